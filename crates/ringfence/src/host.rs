//! Facts about this machine that decide what can be enforced on it. Reading them changes nothing.

use std::path::Path;

use ringfence_linux::kernel_file;

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Its name.
    pub name: &'static str,
    /// What was found.
    pub value: String,
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

pub(crate) fn user_namespaces() -> String {
    let zero = |path: &str| read(path).is_some_and(|text| text == "0");
    if !Path::new("/proc/self/ns/user").exists() {
        "not in this kernel".to_owned()
    } else if zero("/proc/sys/user/max_user_namespaces") {
        "forbidden (user.max_user_namespaces = 0)".to_owned()
    } else if zero("/proc/sys/kernel/unprivileged_userns_clone") {
        "root only (kernel.unprivileged_userns_clone = 0)".to_owned()
    } else if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").is_some_and(|text| text != "0") {
        "restricted by AppArmor".to_owned()
    } else {
        "available".to_owned()
    }
}

fn read(path: &str) -> Option<String> {
    kernel_file::read(path).ok().map(|text| text.trim().to_owned())
}
