//! What an engine says about itself, and what is known to be wrong with it.

use std::collections::BTreeSet;

use bollard::models::{SystemInfo, SystemVersion};
use serde::Deserialize;

use super::address::EngineKind;
use super::failure::{EngineFailure, clean};

/// The most runtimes of an engine that are looked at.
const MOST_RUNTIMES: usize = 64;

/// What an engine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Facts {
    /// Which one answered, whichever was asked for.
    pub(crate) kind: EngineKind,
    /// Its version.
    pub(crate) version: String,
    /// The newest version of the API that it speaks.
    pub(crate) api: String,
    /// Whether it runs as somebody other than root.
    pub(crate) rootless: bool,
    /// `1` or `2`.
    pub(crate) cgroup_version: String,
    /// `systemd`, `cgroupfs` or `none`.
    pub(crate) cgroup_driver: String,
    /// What it can start containers with. Podman names also what is not installed.
    pub(crate) runtimes: BTreeSet<String>,
    /// What it starts containers with unless it is told otherwise.
    pub(crate) default_runtime: String,
    /// Whether it filters system calls.
    pub(crate) seccomp: bool,
    /// The OCI runtime and its version, such as `runc 1.1.12`; only where [`Facts::add`] was told.
    pub(crate) oci_runtime: Option<(String, String)>,
    /// The kernel that it runs on.
    pub(crate) kernel: String,
    /// How it stores images.
    pub(crate) storage: String,
    /// Its processor's architecture.
    pub(crate) architecture: String,
    /// Which limits it can set, if what it starts containers with keeps to them: see [`Facts::limits_with`].
    pub(crate) limits: Limits,
    /// Of the runtimes, those that were told to keep no limit of a cgroup.
    pub(crate) without_cgroups: BTreeSet<String>,
}

/// What an engine answers when it is asked what it is.
#[derive(Debug, Deserialize)]
pub(super) struct Info {
    #[serde(flatten)]
    known: SystemInfo,
    /// Podman's word for it. Docker has it among its options for security.
    #[serde(rename = "Rootless")]
    rootless: Option<bool>,
}

/// Which limits an engine can set; what it does not say, it cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Memory.
    pub(crate) memory: bool,
    /// Swap.
    pub(crate) swap: bool,
    /// Processes.
    pub(crate) processes: bool,
    /// Time on processors.
    pub(crate) cpus: bool,
}

/// Arguments of runtimes that make them ignore cgroups, or go on without them.
const IGNORE_CGROUPS: [&str; 2] = ["ignore-cgroups", "rootless"];

/// Whether an argument of a runtime says that. Only a plain no is one.
fn ignores_cgroups(argument: &str) -> bool {
    let (name, value) = argument.split_once('=').unwrap_or((argument, "true"));
    let is_no = ["false", "f", "0"].iter().any(|no| value.eq_ignore_ascii_case(no));
    name.starts_with('-') && IGNORE_CGROUPS.contains(&name.trim_start_matches('-')) && !is_no
}

impl Limits {
    pub(super) const NONE: Self = Self { memory: false, swap: false, processes: false, cpus: false };
}

impl Facts {
    /// Which limits hold for containers that `runtime` starts, or the default one. The engine knows only what it can ask for:
    /// one that ignores cgroups keeps none of it.
    pub(crate) fn limits_with(&self, runtime: Option<&str>) -> Limits {
        let runtime = runtime.unwrap_or(&self.default_runtime);
        if self.without_cgroups.contains(runtime) { Limits::NONE } else { self.limits }
    }

    /// From what the engine answers.
    pub(super) fn read(kind: EngineKind, api: &str, info: &Info) -> Result<Self, EngineFailure> {
        let Info { known: info, rootless } = info;
        let word = |text: Option<&String>| text.map(|text| clean(text)).filter(|text| !text.is_empty());
        let must =
            |text: Option<String>, what: &str| text.ok_or_else(|| EngineFailure::Garbage(format!("it has no {what}")));
        let options = info.security_options.as_deref().unwrap_or_default();
        let has_option = |name: &str| {
            options.iter().any(|option| option.split(',').any(|part| part == format!("name={name}") || part == name))
        };
        let is = |flag: Option<bool>| flag == Some(true);
        // A Podman that does not say it is taken for one that can do less.
        let rootless = has_option("rootless") || rootless.unwrap_or(kind == EngineKind::Podman);
        let cgroup_version = info.cgroup_version.map_or("unknown".to_owned(), |version| clean(version.as_ref()));
        let limits = Limits {
            memory: is(info.memory_limit),
            swap: is(info.swap_limit),
            processes: is(info.pids_limit),
            cpus: is(info.cpu_cfs_quota),
        };
        Ok(Self {
            kind,
            version: must(word(info.server_version.as_ref()), "version")?,
            api: api.to_owned(),
            // Podman says what the machine can do, whoever asks.
            limits: if rootless && cgroup_version == "1" { Limits::NONE } else { limits },
            rootless,
            cgroup_version,
            cgroup_driver: info.cgroup_driver.map_or("unknown".to_owned(), |driver| clean(driver.as_ref())),
            runtimes: info
                .runtimes
                .iter()
                .flat_map(|runtimes| runtimes.keys())
                .take(MOST_RUNTIMES)
                .map(|name| clean(name))
                .collect(),
            without_cgroups: info
                .runtimes
                .iter()
                .flatten()
                .filter(|(_, runtime)| runtime.runtime_args.iter().flatten().any(|argument| ignores_cgroups(argument)))
                .take(MOST_RUNTIMES)
                .map(|(name, _)| clean(name))
                .collect(),
            default_runtime: word(info.default_runtime.as_ref()).unwrap_or_else(|| "unknown".to_owned()),
            seccomp: has_option("seccomp"),
            oci_runtime: None,
            kernel: word(info.kernel_version.as_ref()).unwrap_or_else(|| "unknown".to_owned()),
            storage: word(info.driver.as_ref()).unwrap_or_else(|| "unknown".to_owned()),
            architecture: word(info.architecture.as_ref()).unwrap_or_else(|| "unknown".to_owned()),
        })
    }

    /// Adds what is known only to who asks for the versions of everything.
    pub(super) fn add(&mut self, version: &SystemVersion) {
        let components = version.components.as_deref().unwrap_or_default();
        self.oci_runtime = components.iter().take(MOST_RUNTIMES).find_map(|component| {
            let name = component.name.strip_prefix("OCI Runtime (").and_then(|name| name.strip_suffix(')'));
            let name = name.or((component.name == "runc").then_some("runc"))?;
            // Podman has the runtime's own words: `crun version 1.8.1`, and more lines.
            let first = component.version.lines().next().unwrap_or_default();
            let version =
                first.strip_prefix(name).map_or(first, |rest| rest.trim_start().trim_start_matches("version"));
            Some((clean(name), clean(version)))
        });
    }

    /// What somebody who relies on this engine should know.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if let Some((name, version)) = &self.oci_runtime
            && name == "runc"
        {
            warnings.extend(runc_warning(version));
        }
        if !self.seccomp {
            warnings.push(
                "it does not filter system calls (no seccomp); the guest's own filter is the only one".to_owned(),
            );
        }
        let old_cgroups = self.cgroup_version == "1";
        let how = "boot with cgroups of version 2 (`systemd.unified_cgroup_hierarchy=1`)";
        if self.rootless && old_cgroups {
            warnings.push(format!(
                "rootless with cgroups of version 1: it can limit neither memory nor processes nor processors, which are only \
                 watched; {how}"
            ));
        }
        if self.kind == EngineKind::Podman && !self.rootless && old_cgroups {
            warnings.push(format!(
                "with cgroups of version 1 only runs of root show a container its own, so those of others only watch memory, \
                 processes and processors; {how}"
            ));
        }
        let limits = [
            (self.limits.memory, "memory"),
            (self.limits.swap, "swap"),
            (self.limits.processes, "the number of processes"),
            (self.limits.cpus, "the time on processors"),
        ];
        let missing: Vec<&str> = limits.iter().filter(|(can, _)| !can).map(|(_, what)| *what).collect();
        let is_said = self.rootless && old_cgroups;
        if !missing.is_empty() && !is_said {
            warnings.push(format!("it cannot limit {}", missing.join(", ")));
        }
        warnings
    }
}

/// A version of runc: a candidate comes before what it is a candidate for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RuncVersion {
    major: u32,
    minor: u32,
    patch: u32,
    candidate: u32,
}

const FINISHED: u32 = u32::MAX;

impl RuncVersion {
    const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self { major, minor, patch, candidate: FINISHED }
    }

    const fn candidate(self, candidate: u32) -> Self {
        Self { candidate, ..self }
    }

    /// `1.1.5`, `1.0.0-rc6+dev`, `1.0.0~rc6+dfsg1`, `1.4.0-rc.2`, `1.1.5+ds1-1+deb12u1`.
    fn read(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('v');
        let (numbers, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()));
        let mut numbers = numbers.split('.').map(|number| number.parse().ok());
        let read = Self::new(numbers.next()??, numbers.next()??, numbers.next()??);
        let candidate = rest.strip_prefix(['-', '~']).and_then(|rest| rest.strip_prefix("rc"));
        Some(match candidate {
            Some(rest) => {
                let rest = rest.trim_start_matches('.');
                let digits = &rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())];
                // A candidate without a number is taken for the first.
                read.candidate(digits.parse().unwrap_or(1))
            }
            None => read,
        })
    }
}

/// What is known to be wrong with a version of runc.
fn runc_warning(text: &str) -> Option<String> {
    let Some(version) = RuncVersion::read(text) else {
        return Some(format!(
            "the version of runc, `{text}`, could not be read: make sure that it is 1.2.8, 1.3.3 or later"
        ));
    };
    let mut known = Vec::new();
    if version < RuncVersion::new(1, 0, 0).candidate(7) {
        known.push("CVE-2019-5736");
    }
    // Before 1.0.0-rc93 the leaked descriptor was not there; who runs that has other worries, and is told as well.
    if version < RuncVersion::new(1, 1, 12) {
        known.push("CVE-2024-21626");
    }
    let is_between = |from, to| version >= from && version < to;
    let fixed = RuncVersion::new(1, 2, 8);
    if version < fixed
        || is_between(RuncVersion::new(1, 3, 0).candidate(0), RuncVersion::new(1, 3, 3))
        || is_between(RuncVersion::new(1, 4, 0).candidate(0), RuncVersion::new(1, 4, 0).candidate(3))
    {
        known.extend(["CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"]);
    }
    (!known.is_empty()).then(|| {
        format!(
            "runc {text} lets containers out: {}; unless your distribution patched it, update it to 1.2.8, 1.3.3 or later",
            known.join(", ")
        )
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn read(kind: EngineKind, more: &serde_json::Value) -> Facts {
        let mut info = serde_json::json!({
            "ServerVersion": "20.10",
            "MemoryLimit": true, "SwapLimit": true, "PidsLimit": true, "CpuCfsQuota": true, "CgroupVersion": "1",
        });
        info.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        Facts::read(kind, "1.41", &serde_json::from_value(info).unwrap()).unwrap()
    }

    /// Of a Docker that can do everything.
    pub(in crate::backend::container) fn facts() -> Facts {
        read(EngineKind::Docker, &serde_json::json!({}))
    }

    #[test]
    fn a_rootless_engine_is_known_and_keeps_no_limit_with_cgroups_of_version_1_whatever_it_says() {
        let check = |kind, more: serde_json::Value, is_rootless, has_limits| {
            let facts = read(kind, &more);
            assert_eq!((facts.rootless, facts.limits != Limits::NONE), (is_rootless, has_limits), "{kind:?} {more}");
        };
        let (docker, podman) = (EngineKind::Docker, EngineKind::Podman);
        check(docker, serde_json::json!({}), false, true);
        check(docker, serde_json::json!({"SecurityOptions": ["name=seccomp,profile=x", "name=rootless"]}), true, false);
        check(podman, serde_json::json!({"Rootless": false}), false, true);
        check(podman, serde_json::json!({"Rootless": true}), true, false);
        check(podman, serde_json::json!({"Rootless": true, "CgroupVersion": "2"}), true, true);
        check(podman, serde_json::json!({}), true, false);
    }

    #[test]
    fn what_old_cgroups_cost_is_said_once_and_with_what_to_do() {
        let check = |kind, more: serde_json::Value, expected: &str| {
            let more = [("SecurityOptions".to_owned(), serde_json::json!(["name=seccomp"]))]
                .into_iter()
                .chain(more.as_object().unwrap().clone())
                .collect::<serde_json::Map<_, _>>();
            let warnings = read(kind, &more.into()).warnings();
            let said = warnings.iter().filter(|warning| warning.contains("boot with cgroups of version 2")).count();
            assert_eq!(said, usize::from(!expected.is_empty()), "{warnings:?}");
            assert_eq!(warnings.len(), said, "{warnings:?}");
            assert!(warnings.concat().contains(expected), "{warnings:?}");
        };
        check(EngineKind::Docker, serde_json::json!({}), "");
        check(EngineKind::Podman, serde_json::json!({"Rootless": true}), "neither memory nor processes");
        check(EngineKind::Podman, serde_json::json!({"Rootless": false}), "only runs of root");
        check(EngineKind::Podman, serde_json::json!({"Rootless": false, "CgroupVersion": "2"}), "");
        check(EngineKind::Podman, serde_json::json!({"Rootless": true, "CgroupVersion": "2"}), "");
    }

    #[test]
    fn old_versions_of_runc_are_named_with_what_is_wrong_with_them() {
        let newer = ["CVE-2025-31133", "CVE-2025-52565", "CVE-2025-52881"];
        let check = |version: &str, expected: &[&str]| {
            let warning = runc_warning(version);
            for name in ["CVE-2019-5736", "CVE-2024-21626"].into_iter().chain(newer) {
                let named = warning.as_ref().is_some_and(|warning| warning.contains(name));
                assert_eq!(named, expected.contains(&name), "{version}: {name}: {warning:?}");
            }
        };
        check("1.0.0-rc6+dev", &[&["CVE-2019-5736", "CVE-2024-21626"], &newer[..]].concat());
        check("1.0.0~rc6+dfsg1", &[&["CVE-2019-5736", "CVE-2024-21626"], &newer[..]].concat());
        check("1.0.0-rc7", &[&["CVE-2024-21626"], &newer[..]].concat());
        check("1.0.0-rc95", &[&["CVE-2024-21626"], &newer[..]].concat());
        check("1.1.5+ds1-1+deb12u1", &[&["CVE-2024-21626"], &newer[..]].concat());
        check("1.1.11", &[&["CVE-2024-21626"], &newer[..]].concat());
        check("1.1.12", &newer);
        check("v1.2.7", &newer);
        check("1.2.8", &[]);
        check("1.2.9+ds1", &[]);
        check("1.3.0-rc.1", &newer);
        check("1.3.2", &newer);
        check("1.3.3", &[]);
        check("1.4.0-rc.2", &newer);
        check("1.4.0-rc.3", &[]);
        check("1.4.0", &[]);
        check("2.0.0", &[]);
        assert!(runc_warning("1.1.5+ds1").unwrap().contains("unless your distribution patched it"));
        for unknown in ["", "latest", "1.1", "99999999999.1.1", "1..1"] {
            assert!(runc_warning(unknown).unwrap().contains("could not be read"), "{unknown}");
        }
    }

    #[test]
    fn a_runtime_that_ignores_cgroups_keeps_no_limit_whatever_the_engine_says() {
        let facts = |default: &str, arguments: &[&str]| {
            let runtimes =
                serde_json::json!({"runc": {"path": "runc"}, "runsc": {"path": "runsc", "runtimeArgs": arguments}});
            read(EngineKind::Docker, &serde_json::json!({"DefaultRuntime": default, "Runtimes": runtimes}))
        };
        let all = Limits { memory: true, swap: true, processes: true, cpus: true };
        for ignores in [
            &["--network=none", "--ignore-cgroups"][..],
            &["-ignore-cgroups"],
            &["--ignore-cgroups=true"],
            &["--ignore-cgroups=T"],
            &["--rootless"],
        ] {
            let facts = facts("runc", ignores);
            assert_eq!(facts.limits_with(Some("runsc")), Limits::NONE, "{ignores:?}");
            assert_eq!(facts.limits_with(Some("runc")), all);
            assert_eq!(facts.limits_with(None), all);
        }
        assert_eq!(facts("runsc", &["--ignore-cgroups"]).limits_with(None), Limits::NONE);
        for keeps in [&[][..], &["--platform=kvm"], &["--ignore-cgroups=false"], &["--root=--ignore-cgroups"]] {
            assert_eq!(facts("runsc", keeps).limits_with(Some("runsc")), all, "{keeps:?}");
        }
    }
}
