//! Why this host forbids the native wall, and what would change that.
//!
//! What is refused was found out by trying; this says only why. It reads facts and never decides whether a wall can stand.

use std::io;

use ringfence_linux::wall::{Need, Refused};
use rustix::io::Errno;

use crate::backend::Unavailable;

const MOST_USERS: &str = "/proc/sys/user/max_user_namespaces";
const USERS_BY_ANYBODY: &str = "/proc/sys/kernel/unprivileged_userns_clone";
const APPARMOR_RESTRICTS: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
/// The second is of kernels before 5.8, and of other modules too.
const PROFILES: [&str; 2] = ["/proc/self/attr/apparmor/current", "/proc/self/attr/current"];
const STATUS: &str = "/proc/self/status";
const USERS_HERE: &str = "/proc/self/uid_map";
const MOUNTS: &str = "/proc/self/mountinfo";

const ADMINISTERS: u64 = 1 << 21;
const MAPS: u64 = 1 << 6 | 1 << 7;

const PERMITTING_PROFILE: &str = "give the binary a profile that does: write `abi <abi/4.0>, include <tunables/global> profile \
    ringfence /PATH/TO/ringfence flags=(unconfined) { userns, }` to /etc/apparmor.d/ringfence and load it, by `sudo \
    apparmor_parser -r /etc/apparmor.d/ringfence`; or lift the restriction for all programs, by `sudo sysctl -w \
    kernel.apparmor_restrict_unprivileged_userns=0`";

/// The text of a file of this host, by its path; nothing where there is none.
pub(crate) type Read<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Who is around us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    Docker,
    Podman,
    Kubernetes,
    /// One of those that systemd knows.
    Other,
}

impl Container {
    fn find(read: Read<'_>) -> Option<Self> {
        let has = |path: &str| read(path).is_some();
        if has("/var/run/secrets/kubernetes.io/serviceaccount/namespace") {
            Some(Self::Kubernetes)
        } else if has("/run/.containerenv") {
            Some(Self::Podman)
        } else if has("/.dockerenv") {
            Some(Self::Docker)
        } else {
            has("/run/systemd/container").then_some(Self::Other)
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Docker => "a Docker container",
            Self::Podman => "a Podman container",
            Self::Kubernetes => "a Kubernetes pod",
            Self::Other => "a container",
        }
    }
}

/// What of a container stands in the way.
#[derive(Debug, Clone, Copy)]
enum Obstacle {
    /// Its filter of system calls.
    Filter,
    /// Its AppArmor profile.
    Profile,
    /// That parts of its `/proc` are covered: a new one would show them.
    CoveredProc,
    /// That its root may not do all.
    Capabilities,
}

impl Obstacle {
    /// How to start a container without it.
    fn fix(self, container: Container) -> String {
        let options = match (container, self) {
            (Container::Docker, Self::Filter) => {
                "`--security-opt seccomp=unconfined`, or with `--cap-add SYS_ADMIN`, for which Docker's filter permits namespaces and mounts"
            }
            (Container::Docker | Container::Podman, Self::Profile) => "`--security-opt apparmor=unconfined`",
            (Container::Docker, Self::CoveredProc) => "`--security-opt systempaths=unconfined`",
            (Container::Podman, Self::Filter) => "`--security-opt seccomp=unconfined`",
            (Container::Podman, Self::CoveredProc) => "`--security-opt unmask=ALL`",
            (Container::Docker | Container::Podman, Self::Capabilities) => {
                "`--cap-add SYS_ADMIN --cap-add SETUID --cap-add SETGID`, or as an ordinary user by `--user`, who needs no capability"
            }
            (Container::Kubernetes, Self::Filter) => "`securityContext: { seccompProfile: { type: Unconfined } }`",
            (Container::Kubernetes, Self::Profile) => "`securityContext: { appArmorProfile: { type: Unconfined } }`",
            (Container::Kubernetes, Self::CoveredProc) => {
                "`securityContext: { procMount: Unmasked }` and `hostUsers: false`"
            }
            (Container::Kubernetes, Self::Capabilities) => {
                "`securityContext: { capabilities: { add: [SYS_ADMIN, SETUID, SETGID] } }`, or as an ordinary user by `runAsUser`"
            }
            (Container::Other, _) => "what lets containers be nested in it (LXC: `security.nesting=true`)",
        };
        let all = match container {
            Container::Docker | Container::Podman => " (`--privileged` lifts every such restriction)",
            Container::Kubernetes => " (`privileged: true` lifts every such restriction)",
            Container::Other => "",
        };
        format!(
            "start the container with {options}{all}; or use ringfence outside of it, with `--backend docker` for programs in containers"
        )
    }
}

/// What settings alone forbid an ordinary user, for sure. Everything else is found out by trying.
pub(crate) fn by_settings(read: Read<'_>) -> Option<Unavailable> {
    let errno = if read(USERS_HERE).is_none() {
        Errno::INVAL
    } else if is_zero(MOST_USERS, read) {
        Errno::NOSPC
    } else if is_zero(USERS_BY_ANYBODY, read) {
        Errno::PERM
    } else {
        return None;
    };
    Some(explain(Refused { need: Need::Users, errno: errno.raw_os_error() }, read))
}

/// Why `refused` was, as far as this host tells, and what to do.
pub(crate) fn explain(refused: Refused, read: Read<'_>) -> Unavailable {
    let (why, fix) = because(refused, read);
    let error = io::Error::from_raw_os_error(refused.errno);
    Unavailable { reason: format!("it may not {} here ({error}): {why}", act(refused.need)), fix }
}

fn act(need: Need) -> &'static str {
    match need {
        Need::Users => "make a user namespace",
        Need::Mounts => "make a mount namespace",
        Need::Processes => "make a process namespace",
        Need::Ipc => "make an ipc namespace",
        Need::Names => "make a uts namespace",
        Need::Groups => "make a cgroup namespace",
        Need::Network => "make a network namespace",
        Need::Map => "say who a program is in a user namespace",
        Need::HostMounts => "copy mounts of the host",
        Need::CutOff => "cut mounts off in a namespace of its own",
        Need::FileSystem => "make a tmpfs in a namespace of its own",
        Need::Attach => "mount in a namespace of its own",
        Need::Proc => "mount /proc in a namespace of its own",
    }
}

/// The namespace's name in `/proc/sys/user` and in what a kernel is built with; nothing where it is none.
fn namespace(need: Need) -> Option<(&'static str, &'static str)> {
    match need {
        Need::Users => Some(("user", "CONFIG_USER_NS")),
        Need::Mounts => Some(("mnt", "CONFIG_NAMESPACES")),
        Need::Processes => Some(("pid", "CONFIG_PID_NS")),
        Need::Ipc => Some(("ipc", "CONFIG_IPC_NS")),
        Need::Names => Some(("uts", "CONFIG_UTS_NS")),
        Need::Groups => Some(("cgroup", "CONFIG_CGROUPS")),
        Need::Network => Some(("net", "CONFIG_NET_NS")),
        Need::Map | Need::HostMounts | Need::CutOff | Need::FileSystem | Need::Attach | Need::Proc => None,
    }
}

fn because(refused: Refused, read: Read<'_>) -> (String, String) {
    let Refused { need, errno } = refused;
    let errno = Errno::from_raw_os_error(errno);
    let status = Status::of(&read(STATUS).unwrap_or_default());
    if let Some((name, _)) = namespace(need)
        && matches!(errno, Errno::NOSPC | Errno::USERS)
    {
        return used_up(name, read);
    }
    // Root of a container passes for root, and may less.
    if matches!(need, Need::HostMounts | Need::Map) && status.is_root {
        if need == Need::Map && status.has(MAPS) {
            return few_users(read);
        }
        return few_capabilities(need, read);
    }
    if need == Need::Users && is_zero(USERS_BY_ANYBODY, read) && !status.has(ADMINISTERS) {
        let why = "only root may, by the setting kernel.unprivileged_userns_clone = 0";
        return (why.to_owned(), set("kernel.unprivileged_userns_clone=1"));
    }
    if (need, errno) == (Need::Proc, Errno::PERM) {
        return match Container::find(read) {
            Some(container) => {
                let why = format!("this is {}, in whose /proc parts are covered", container.name());
                (why, Obstacle::CoveredProc.fix(container))
            }
            None => (
                "parts of /proc are covered by other mounts here, and a new one would show them".to_owned(),
                "start ringfence where nothing is mounted below /proc".to_owned(),
            ),
        };
    }
    by_who_watches(errno, &status, read).unwrap_or_else(|| by_the_kernel(need, errno, read))
}

/// What watches over system calls and refuses some.
fn by_who_watches(errno: Errno, status: &Status, read: Read<'_>) -> Option<(String, String)> {
    let container = Container::find(read);
    let profile = profile(read);
    // In other modes it says what it would refuse, or nothing.
    let confines = |profile: &&str| ["(enforce)", "(kill)"].iter().any(|mode| profile.ends_with(mode));
    let confining = profile.as_deref().filter(confines);
    // AppArmor refuses by this number, and a filter by others.
    if let (Some(container), true) = (container, status.is_filtered && errno != Errno::ACCESS) {
        let why = format!("this is {}, whose seccomp filter refuses it", container.name());
        return Some((why, Obstacle::Filter.fix(container)));
    }
    if let (Some(container), Some(profile)) = (container, confining) {
        let why = format!("this is {}, whose AppArmor profile `{profile}` refuses it", container.name());
        return Some((why, Obstacle::Profile.fix(container)));
    }
    if let Some(value) = read(APPARMOR_RESTRICTS).filter(|value| value != "0" && !status.has(ADMINISTERS)) {
        let why = format!(
            "AppArmor restricts user namespaces (kernel.apparmor_restrict_unprivileged_userns = {value}), and the profile \
             that this runs in, `{}`, does not permit them",
            profile.as_deref().unwrap_or("unknown")
        );
        return Some((why, PERMITTING_PROFILE.to_owned()));
    }
    if let Some(profile) = confining {
        let why = format!("the AppArmor profile that this runs in, `{profile}`, does not permit it");
        let fix =
            "add `userns, mount, umount, pivot_root,` to that profile, or start ringfence from a program without one";
        return Some((why, fix.to_owned()));
    }
    if status.is_filtered {
        let why = "a seccomp filter refuses it, of whoever started this process";
        let fix = "permit clone with namespaces, mount and pivot_root in that filter (in a unit of systemd: \
                   `RestrictNamespaces=no` and no `SystemCallFilter=` without @mount), or start ringfence from where there is none";
        return Some((why.to_owned(), fix.to_owned()));
    }
    read("/sys/fs/selinux/enforce").filter(|value| value == "1").map(|_| {
        let why = "nothing else that can be read here forbids it, and SELinux is enforcing";
        let fix =
            "`sudo ausearch -m avc -ts recent` says which rule it was; permit it for the domain that ringfence runs in";
        (why.to_owned(), fix.to_owned())
    })
}

/// What the kernel itself cannot or will not do.
fn by_the_kernel(need: Need, errno: Errno, read: Read<'_>) -> (String, String) {
    match namespace(need) {
        Some((name, option)) if errno == Errno::INVAL => (
            format!("this kernel has no {name} namespaces"),
            format!("use a kernel that was built with {option}"),
        ),
        Some(_) if errno == Errno::PERM && is_in_a_chroot(read) => (
            "this process runs in a chroot, from which no user namespace can be made".to_owned(),
            "enter it by `pivot_root` instead, as `unshare --mount --root=FOLDER` and containers do, or start ringfence outside of it"
                .to_owned(),
        ),
        None if errno == Errno::NOSYS => (
            "this kernel does not have the calls for it".to_owned(),
            "use Linux 5.13 or newer".to_owned(),
        ),
        Some(_) | None => (
            "nothing that can be read here says why".to_owned(),
            "`sudo dmesg` and the audit log may name who refused it; in a chroot nobody may".to_owned(),
        ),
    }
}

fn used_up(name: &str, read: Read<'_>) -> (String, String) {
    let setting = format!("user.max_{name}_namespaces");
    match read(&format!("/proc/sys/user/max_{name}_namespaces")) {
        Some(most) if most == "0" => {
            (format!("the setting {setting} = 0 forbids it"), set(&format!("{setting}=10000")))
        }
        most => (
            format!(
                "as many exist as may (here {setting} = {}, and less may be left by an outer namespace), or they are nested too deeply",
                most.as_deref().unwrap_or("unknown")
            ),
            format!("end what holds them, or {}", set(&format!("{setting}=100000"))),
        ),
    }
}

fn few_users(read: Read<'_>) -> (String, String) {
    let users = read(USERS_HERE).unwrap_or_default();
    let users = users.split_whitespace().collect::<Vec<_>>().join(" ");
    (
        format!(
            "this root is one of a user namespace that knows few users (`{users}`), and a program of root's gets a user of its own"
        ),
        "start ringfence as an ordinary user in it, whose programs stay that user's; or as root of the host".to_owned(),
    )
}

fn few_capabilities(need: Need, read: Read<'_>) -> (String, String) {
    let (which, why) = match need {
        Need::Map => ("CAP_SETUID and CAP_SETGID", "a program of root's gets a user of its own"),
        _ => ("CAP_SYS_ADMIN", "root shows a program its files as that program's own"),
    };
    let fix = match Container::find(read) {
        Some(container) => Obstacle::Capabilities.fix(container),
        None => format!(
            "start it with {which} (in a unit of systemd: `CapabilityBoundingSet=`), or as an ordinary user, who needs none"
        ),
    };
    (format!("this root has no {which}, and {why}"), fix)
}

fn set(setting: &str) -> String {
    format!("`sudo sysctl -w {setting}`, and for good: `echo {setting} | sudo tee /etc/sysctl.d/60-ringfence.conf`")
}

fn is_zero(path: &str, read: Read<'_>) -> bool {
    read(path).is_some_and(|text| text == "0")
}

/// The AppArmor profile that we run in. Without AppArmor, another module may answer in its place, in words of its own.
fn profile(read: Read<'_>) -> Option<String> {
    let modules = read("/sys/kernel/security/lsm");
    if modules.is_some_and(|modules| !modules.split(',').any(|module| module == "apparmor")) {
        return None;
    }
    // Of SELinux it has colons, and of AppArmor its mode in brackets.
    let is_one = |text: &String| text == "unconfined" || text.ends_with(')');
    PROFILES.iter().find_map(|path| read(path)).map(|text| text.trim_end_matches('\0').to_owned()).filter(is_one)
}

/// In a chroot the root of what we see is no mount, as a rule.
fn is_in_a_chroot(read: Read<'_>) -> bool {
    read(MOUNTS).is_some_and(|mounts| !mounts.lines().any(|line| line.split(' ').nth(4) == Some("/")))
}

/// Who we are, from the kernel's words.
#[derive(Debug, Default)]
struct Status {
    is_root: bool,
    capabilities: u64,
    is_filtered: bool,
}

impl Status {
    fn of(text: &str) -> Self {
        let field =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        Self {
            is_root: field("Uid").and_then(|users| users.split_whitespace().nth(1)) == Some("0"),
            capabilities: field("CapEff").and_then(|set| u64::from_str_radix(set, 16).ok()).unwrap_or(0),
            is_filtered: field("Seccomp") == Some("2"),
        }
    }

    fn has(&self, capabilities: u64) -> bool {
        self.capabilities & capabilities == capabilities
    }
}

#[cfg(test)]
mod tests;
