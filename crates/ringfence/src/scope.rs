//! A place among the cgroups where limits can be enforced, asked of systemd when the policy wants them and we have none.
//!
//! For programs that are their own process from beginning to end: whoever is part of a service would be taken out of it.

use std::ffi::OsString;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;

use ringfence_linux::cgroup;
pub use ringfence_linux::cgroup::NoScope;
use ringfence_policy::{BackendChoice, BackendKind, Firmness, ResolvedPolicy};

/// What came of it.
#[derive(Debug)]
pub enum Asked {
    /// The policy wants no limits enforced behind a wall of ours, or they can be already.
    NotNeeded,
    /// There is no user's systemd to ask.
    Nobody,
    /// This process was moved into a scope of its own.
    Moved,
    /// It was asked in vain.
    InVain(NoScope),
}

/// Asks the user's systemd for a scope, where `policy` wants limits enforced and this process is nowhere where they could be. `variable`
/// reads the environment.
pub fn ask_for_scope(policy: &ResolvedPolicy, variable: impl Fn(&str) -> Option<OsString>) -> Asked {
    let wanted = policy.backend.choice.value;
    let by_us = matches!(wanted, BackendChoice::Auto | BackendChoice::Kind(BackendKind::Native));
    if !by_us || policy.proc.limits.value != Firmness::Enforced || cgroup::probe().is_ok() {
        return Asked::NotNeeded;
    }
    let is_socket = |path: &PathBuf| path.metadata().is_ok_and(|metadata| metadata.file_type().is_socket());
    match bus(variable).filter(is_socket) {
        None => Asked::Nobody,
        Some(bus) => match cgroup::enter_scope(&bus) {
            Ok(()) => Asked::Moved,
            Err(why) => Asked::InVain(why),
        },
    }
}

/// The socket of the user's bus: as the environment names it, else where systemd has it.
fn bus(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let named = variable("DBUS_SESSION_BUS_ADDRESS").and_then(|address| path_in(address.to_str()?));
    named.or_else(|| {
        let folder = variable("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty())?;
        Some(PathBuf::from(folder).join("bus"))
    })
}

/// The path in an address such as `unix:path=/run/user/1000/bus,guid=…`. Of several addresses the first counts; one with escapes is none.
fn path_in(address: &str) -> Option<PathBuf> {
    let first = address.split(';').next()?;
    let path = first.strip_prefix("unix:")?.split(',').find_map(|pair| pair.strip_prefix("path="))?;
    (path.starts_with('/') && !path.contains('%')).then(|| PathBuf::from(path))
}

#[cfg(test)]
mod tests {
    use ringfence_policy::{Layer, LayerInput, resolve};

    use super::*;

    #[test]
    fn the_bus_is_where_the_environment_says_and_only_as_a_plain_path() {
        assert_eq!(path_in("unix:path=/run/user/1000/bus"), Some("/run/user/1000/bus".into()));
        assert_eq!(path_in("unix:guid=1,path=/b;tcp:host=x"), Some("/b".into()));
        for other in ["tcp:host=x,port=1", "unix:abstract=/tmp/x", "unix:path=/a%2fb", "unix:path=rel", ""] {
            assert_eq!(path_in(other), None, "{other}");
        }
        let environment = |name: &str| (name == "XDG_RUNTIME_DIR").then(|| OsString::from("/run/user/7"));
        assert_eq!(bus(environment), Some("/run/user/7/bus".into()));
        assert_eq!(bus(|_| None), None);
    }

    #[test]
    fn nobody_is_asked_where_limits_may_be_watched_or_somebody_else_keeps_them() {
        for text in ["version: 1\n", "version: 1\nbackend: docker\nproc: { limits: enforced }\n"] {
            let file = ringfence_policy::parse("p.yaml", text).unwrap();
            let policy = resolve(&[LayerInput { layer: Layer::Project, file }], &[]).unwrap();
            let asked = ask_for_scope(&policy, |_| panic!("the environment is not even looked at"));
            assert!(matches!(asked, Asked::NotNeeded), "{text}");
        }
    }
}
