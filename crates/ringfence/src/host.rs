//! Facts about this machine that decide what can be enforced on it. Reading them changes nothing.

use std::path::Path;
use std::time::Duration;

use ringfence_linux::kernel_file;

use crate::backend::Unavailable;
use crate::backend::container::address::{self, EngineKind, Surroundings};
use crate::backend::container::engine::Engine;

/// How long a container engine may take to say what it is. Podman asks many programs for their versions first.
const ENGINE_LIMIT: Duration = Duration::from_secs(5);
/// Who may map numbers of users that are not its own, and the programs that do it.
const SUBORDINATE: [&str; 2] = ["/etc/subuid", "/etc/subgid"];
const MAPPERS: [&str; 2] = ["newuidmap", "newgidmap"];
const MAPPERS_AT: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Its name.
    pub name: &'static str,
    /// What was found.
    pub value: String,
}

/// A container engine, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineReport {
    /// `docker` or `podman`.
    pub name: &'static str,
    /// Where it is; nothing when nobody knows.
    pub address: Option<String>,
    /// What it says about itself, or why it says nothing.
    pub found: Result<EngineFacts, Unavailable>,
}

/// What a container engine is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineFacts {
    /// Facts, for people.
    pub facts: Vec<Fact>,
    /// Whether it runs as somebody other than root.
    pub rootless: bool,
    /// What it can start containers with.
    pub runtimes: Vec<String>,
    /// What is known to be wrong with it.
    pub warnings: Vec<String>,
}

/// Asks the container engines what they are. Each has five seconds.
pub async fn engines() -> Vec<EngineReport> {
    let variable = |name: &str| std::env::var(name).ok();
    let exists = |path: &Path| path.exists();
    let user = rustix::process::geteuid().as_raw();
    let surroundings = Surroundings { variable: &variable, exists: &exists, user };
    let docker = address::find(EngineKind::Docker, &surroundings);
    let podman = address::find(EngineKind::Podman, &surroundings);
    let (docker, podman) = tokio::join!(engine(EngineKind::Docker, docker), engine(EngineKind::Podman, podman));
    vec![docker, podman]
}

async fn engine(kind: EngineKind, address: Result<address::Address, address::AddressError>) -> EngineReport {
    let address = match address {
        Ok(address) => address,
        Err(error) => {
            let lacks = match &error {
                address::AddressError::NotFound { .. } => rootless_lacks(rustix::process::geteuid()),
                _ => None,
            };
            let fix = error.fix() + &lacks.map(|lacks| format!("; a rootless one lacks {lacks}")).unwrap_or_default();
            let unavailable = Unavailable { reason: error.to_string(), fix };
            return EngineReport { name: kind.name(), address: None, found: Err(unavailable) };
        }
    };
    let ask = async { Engine::connect(&address, ENGINE_LIMIT).await?.all_facts(ENGINE_LIMIT).await };
    let found = match tokio::time::timeout(ENGINE_LIMIT, ask).await {
        Ok(found) => found.map(|found| describe(kind, &found)),
        Err(_) => Err(Engine::silent(&address, ENGINE_LIMIT)),
    };
    EngineReport { name: kind.name(), address: Some(address.shown()), found }
}

fn describe(asked: EngineKind, found: &crate::backend::container::facts::Facts) -> EngineFacts {
    let fact = |name, value: String| Fact { name, value };
    let mut warnings = found.warnings();
    if found.kind != asked {
        warnings.insert(0, format!("it is {}, and not {}", found.kind.name(), asked.name()));
    }
    let runtime = match &found.oci_runtime {
        Some((name, version)) => format!("{} ({name} {version})", found.default_runtime),
        None => found.default_runtime.clone(),
    };
    let runtimes: Vec<String> = found.runtimes.iter().cloned().collect();
    let facts = vec![
        fact("version", format!("{} {}, API {}", found.kind.name(), found.version, found.api)),
        fact("runs as", if found.rootless { "a user (rootless)".to_owned() } else { "root".to_owned() }),
        fact("runtime", runtime),
        fact("runtimes", runtimes.join(" ")),
        fact("cgroups", format!("v{}, by {}", found.cgroup_version, found.cgroup_driver)),
        fact("seccomp", if found.seccomp { "yes".to_owned() } else { "no".to_owned() }),
        fact("kernel", format!("{} {}", found.kernel, found.architecture)),
        fact("storage", found.storage.clone()),
    ];
    EngineFacts { facts, rootless: found.rootless, runtimes, warnings }
}

/// What this machine has.
pub fn facts() -> Vec<Fact> {
    let uname = rustix::system::uname();
    let user = rustix::process::geteuid();
    let fact = |name, value: String| Fact { name, value };
    vec![
        fact("kernel", format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy())),
        fact("machine", uname.machine().to_string_lossy().into_owned()),
        fact("user", if user.is_root() { "root".to_owned() } else { format!("uid {}", user.as_raw()) }),
        fact("cgroups", cgroups().to_owned()),
        fact("user namespaces", user_namespaces()),
        fact("security", read("/sys/kernel/security/lsm").unwrap_or_else(|| "unknown".to_owned())),
    ]
}

fn cgroups() -> &'static str {
    let has = |path: &str| Path::new(path).exists();
    if has("/sys/fs/cgroup/cgroup.controllers") {
        "v2"
    } else if has("/sys/fs/cgroup/memory") && has("/sys/fs/cgroup/unified") {
        "v1 controllers, v2 hierarchy beside them"
    } else if has("/sys/fs/cgroup/memory") {
        "v1"
    } else {
        "none mounted"
    }
}

fn user_namespaces() -> String {
    let zero = |path: &str| read(path).is_some_and(|text| text == "0");
    if !Path::new("/proc/self/ns/user").exists() {
        "not in this kernel".to_owned()
    } else if zero("/proc/sys/user/max_user_namespaces") {
        "forbidden (user.max_user_namespaces = 0)".to_owned()
    } else if zero("/proc/sys/kernel/unprivileged_userns_clone") {
        "root only (kernel.unprivileged_userns_clone = 0)".to_owned()
    } else if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").is_some_and(|text| text != "0") {
        "as AppArmor's profiles permit (kernel.apparmor_restrict_unprivileged_userns)".to_owned()
    } else {
        "no setting forbids them".to_owned()
    }
}

/// What this system lacks for a rootless engine of this user; nothing where it has all, and for root, who needs none.
fn rootless_lacks(user: rustix::process::Uid) -> Option<String> {
    if user.is_root() {
        return None;
    }
    let has_program = |name: &&str| MAPPERS_AT.iter().any(|folder| Path::new(folder).join(name).exists());
    let users = read("/etc/passwd").unwrap_or_default();
    let has_numbers = |path: &&str| has_numbers(&read(path).unwrap_or_default(), &users, user.as_raw());
    let mut missing = Vec::new();
    if crate::forbidden::by_settings(&read).is_some() {
        missing.push("user namespaces".to_owned());
    }
    if !MAPPERS.iter().all(has_program) {
        missing.push(format!("{} (package `uidmap`)", MAPPERS.map(|name| format!("`{name}`")).join(" and ")));
    }
    if !SUBORDINATE.iter().all(has_numbers) {
        let how = "`sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER`";
        missing.push(format!("numbers for you in {} ({how})", SUBORDINATE.join(" and ")));
    }
    (!missing.is_empty()).then(|| missing.join(", "))
}

/// Whether a line of `numbers` is about `user`, by its number or by its name in `users`.
fn has_numbers(numbers: &str, users: &str, user: u32) -> bool {
    let number = user.to_string();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then_some(name)
    });
    numbers.lines().any(|line| {
        let whose = line.split(':').next().unwrap_or_default();
        !whose.is_empty() && (whose == number || Some(whose) == name)
    })
}

/// The text of a file that the kernel or this system keeps, without the space around it; nothing where there is none.
pub(crate) fn read(path: &str) -> Option<String> {
    kernel_file::read(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_a_users_own_by_name_or_number_and_nobody_elses() {
        let users = "root:x:0:0::/root:/bin/sh\nsomebody:x:1000:1000::/home/x:/bin/sh\n";
        let check =
            |numbers: &str, user, expected| assert_eq!(has_numbers(numbers, users, user), expected, "{numbers}");
        check("somebody:100000:65536\n", 1000, true);
        check("1000:100000:65536\n", 1000, true);
        check("1001:100000:65536\n", 1001, true);
        for other in ["", "\n", ":100000:65536\n", "somebody-else:100000:65536\n", "root:100000:65536\n", "100:1:1\n"] {
            check(other, 1000, false);
        }
        check("somebody:100000:65536\n", 1001, false);
    }
}
