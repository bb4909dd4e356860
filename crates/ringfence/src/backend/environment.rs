//! The environment that a program gets.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use ringfence_policy::{HostPattern, NetMode, ResolvedPolicy};

use super::door;
use crate::way_out;

/// Searched when the host has no usable path.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Set by us from the host's own, because programs do not work without them and they hold no secret.
const ALWAYS: &[&str] = &["HOME", "USER", "LOGNAME"];
/// Everybody has these, and nobody misses them inside.
const NOT_WORTH_NAMING: &[&str] = &["_", "PWD", "OLDPWD", "SHLVL", "PATH"];

/// The sandbox itself, as programs name it.
const OWN_MACHINE: &str = "localhost,127.0.0.1,::1";

type Variables = Vec<(OsString, OsString)>;

/// Whose home and name a program has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Person {
    /// The host's user.
    Host,
    /// Nobody of the host.
    Agent,
}

/// Only what the policy passes and sets; and the names of what stays outside.
pub(crate) fn clean(
    policy: &ResolvedPolicy,
    host: &[(OsString, OsString)],
    person: Person,
) -> (Variables, Vec<String>) {
    let mut inside: Variables = Vec::new();
    let mut withheld = Vec::new();
    if person == Person::Agent {
        let made_up = [("HOME", ringfence_linux::wall::HOME), ("USER", "agent"), ("LOGNAME", "agent")];
        inside.extend(made_up.map(|(name, value)| (name.into(), value.into())));
    }
    let host_path = host.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    inside.push(("PATH".into(), absolute_entries(host_path)));
    for (name, value) in host {
        let text = name.to_string_lossy();
        if name == "PATH" || (person == Person::Agent && ALWAYS.contains(&text.as_ref())) {
            continue;
        }
        let is_passed = policy.proc.env.pass.iter().any(|pass| passes(&pass.value, &text));
        if ALWAYS.contains(&text.as_ref()) || is_passed && !way_out::is_held_back(policy, &text) {
            inside.push((name.clone(), value.clone()));
        } else if !NOT_WORTH_NAMING.contains(&text.as_ref()) {
            withheld.push(text.into_owned());
        }
    }
    // Behind a wall that shows them, tools are led to the caches, whatever was passed; what the policy sets comes last.
    if person == Person::Agent {
        for (name, value) in crate::cache::environment(policy.cache.iter().map(|kind| kind.value)) {
            inside.retain(|(known, _)| known != name);
            inside.push((name.into(), value.into()));
        }
        // A convenience: there is no other way out, whether a program heeds them or not.
        if policy.net.mode.value == NetMode::Allowlist {
            for (name, value) in ringfence_egress::proxy_environment(&format!("127.0.0.1:{}", door::PORT)) {
                // A program's own servers are not asked for outside, unless ports of the same name are.
                let is_own = name.eq_ignore_ascii_case("NO_PROXY") && !names_this_machine(policy);
                let value = if is_own { OWN_MACHINE.to_owned() } else { value };
                inside.retain(|(known, _)| known != name);
                inside.push((name.into(), value.into()));
            }
        }
        for (name, value) in way_out::trust_variables(policy) {
            inside.retain(|(known, _)| known != name);
            inside.push((name.into(), value.into()));
        }
    }
    set(policy, &mut inside);
    if person == Person::Agent {
        // Last: what was passed under the same name may be the secret itself.
        for (name, value) in way_out::placeholders(policy) {
            inside.retain(|(known, _)| known != OsStr::new(&name));
            inside.push((name.into(), value.into()));
        }
    }
    withheld.sort_unstable();
    (inside, withheld)
}

/// Whether something of the host's own loopback can be reached through the proxy.
fn names_this_machine(policy: &ResolvedPolicy) -> bool {
    let is_loopback = |host: &HostPattern| matches!(host, HostPattern::Address(address) if address.is_loopback());
    !policy.net.localhost.is_empty() || policy.net.allow.iter().any(|rule| is_loopback(&rule.value.host))
}

/// The host's own environment without the secrets of the way out, with what the policy sets.
pub(crate) fn whole(policy: &ResolvedPolicy, host: &[(OsString, OsString)]) -> Variables {
    let mut inside = host.to_vec();
    inside.retain(|(name, _)| !way_out::is_held_back(policy, &name.to_string_lossy()));
    set(policy, &mut inside);
    inside
}

fn set(policy: &ResolvedPolicy, inside: &mut Variables) {
    for (name, value) in &policy.proc.env.set {
        inside.retain(|(known, _)| known != OsStr::new(name));
        inside.push((name.into(), (&value.value).into()));
    }
}

/// `NAME` or `PREFIX_*`.
fn passes(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(prefix) => !prefix.is_empty() && name.starts_with(prefix),
        None => pattern == name,
    }
}

/// A relative entry would let a file of the workspace stand in for a program.
fn absolute_entries(path: Option<&OsStr>) -> OsString {
    let entries: Vec<&[u8]> = path
        .map(OsStr::as_bytes)
        .unwrap_or_default()
        .split(|byte| *byte == b':')
        .filter(|entry| entry.starts_with(b"/"))
        .collect();
    if entries.is_empty() { DEFAULT_PATH.into() } else { OsStr::from_bytes(&entries.join(&b':')).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_passes_its_name_or_its_prefix_only() {
        assert!(passes("LANG", "LANG"));
        assert!(!passes("LANG", "LANGUAGE"));
        assert!(passes("LC_*", "LC_ALL"));
        assert!(!passes("LC_*", "XLC_ALL"));
        assert!(!passes("*", "SECRET"));
    }

    #[test]
    fn relative_entries_of_the_path_are_dropped() {
        assert_eq!(absolute_entries(Some(OsStr::new(".:/usr/bin::bin:/bin"))), "/usr/bin:/bin");
        assert_eq!(absolute_entries(Some(OsStr::new("."))), DEFAULT_PATH);
        assert_eq!(absolute_entries(None), DEFAULT_PATH);
    }
}
