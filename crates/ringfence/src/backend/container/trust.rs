//! Certificates that programs in a container need: among the files of each run, where variables lead to them. What an image has is left as it is,
//! so a program that heeds no variable trusts what its image does, and nothing that is opened. No key is ever among them.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use ringfence_egress::{TrustFiles, java_environment, trust_environment};
use ringfence_guest::{InputFile, Start};
use ringfence_policy::ResolvedPolicy;

/// Below the folder of a run.
const BUNDLE: &str = ".ringfence/ca.pem";
const JAVA_STORE: &str = ".ringfence/java.jks";

/// The same order with certificates. What the policy sets wins over our variables.
pub(super) fn with_certificates(mut start: Start, trust: Option<&TrustFiles>, policy: &ResolvedPolicy) -> Start {
    let Some(trust) = trust else { return start };
    let at = |name: &str| Path::new(&start.folder).join(name).to_string_lossy().into_owned();
    let mut variables = trust_environment(&at(BUNDLE));
    variables.extend(java_environment(&at(JAVA_STORE)));
    for (name, content) in [(BUNDLE, &trust.bundle), (JAVA_STORE, &trust.java)] {
        start.files.push(InputFile { path: OsString::from(name), content: content.clone() });
    }
    for (name, value) in variables {
        if !policy.proc.env.set.iter().any(|(known, _)| known.as_str() == name) {
            start.program.env.retain(|(known, _)| known != OsStr::new(name));
            start.program.env.push((name.into(), value.into()));
        }
    }
    start
}
