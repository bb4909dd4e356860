//! Where cgroup hierarchies are mounted, and where in them the calling process lies.

use std::path::{Path, PathBuf};

/// Which of the kernel's two interfaces a hierarchy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Version {
    One,
    Two,
}

/// A controller that limits or counts something for us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Controller {
    Memory,
    Processes,
    Cpu,
}

impl Controller {
    /// Those without which no limit can be promised.
    pub(super) const NEEDED: [Self; 3] = [Self::Memory, Self::Processes, Self::Cpu];

    /// The kernel's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Processes => "pids",
            Self::Cpu => "cpu",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::NEEDED.into_iter().find(|controller| controller.name() == name)
    }
}

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) version: Version,
    pub(super) controllers: Vec<Controller>,
    /// Where it is mounted.
    pub(super) point: PathBuf,
    /// Which of its folders is mounted there.
    pub(super) root: String,
    /// The folder of the calling process, as `/proc/self/cgroup` has it.
    pub(super) own: String,
}

impl Mount {
    /// The calling process's own folder, where this mount shows it.
    pub(super) fn own_folder(&self) -> Option<PathBuf> {
        let below = if self.root == "/" { self.own.as_str() } else { self.own.strip_prefix(&self.root)? };
        let below = Path::new(below.strip_prefix('/').unwrap_or(below));
        // `/..` is how the kernel writes a folder outside of our cgroup namespace.
        let is_visible = below.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        is_visible.then(|| self.point.join(below))
    }
}

/// All cgroup hierarchies in `mountinfo` that `membership` (`/proc/self/cgroup`) places the process in. Of several
/// mounts of one hierarchy the first is taken.
pub(super) fn find(mountinfo: &str, membership: &str) -> Vec<Mount> {
    let mut mounts: Vec<Mount> = Vec::new();
    for line in mountinfo.lines() {
        let Some(mount) = parse(line, membership) else { continue };
        let is_known = mounts.iter().any(|known| {
            known.version == mount.version
                && (mount.version == Version::Two
                    || known.controllers.iter().any(|one| mount.controllers.contains(one)))
        });
        if !is_known {
            mounts.push(mount);
        }
    }
    mounts
}

fn parse(line: &str, membership: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split(' ').skip(3);
    let root = unescape(front.next()?)?;
    let point = PathBuf::from(unescape(front.next()?)?);
    let mut back = back.split(' ');
    let (version, controllers) = match back.next()? {
        "cgroup2" => (Version::Two, Vec::new()),
        "cgroup" => (Version::One, back.nth(1)?.split(',').filter_map(Controller::from_name).collect()),
        _ => return None,
    };
    // A hierarchy of v1 that serves nothing of ours, such as systemd's own.
    if version == Version::One && controllers.is_empty() {
        return None;
    }
    let own = membership.lines().find_map(|line| {
        let (names, path) = line.split_once(':')?.1.split_once(':')?;
        let is_this = match version {
            Version::Two => names.is_empty(),
            Version::One => controllers.iter().any(|wanted| names.split(',').any(|name| name == wanted.name())),
        };
        is_this.then(|| path.to_owned())
    })?;
    Some(Mount { version, controllers, point, root, own })
}

/// `mountinfo` writes blanks, tabs, line ends and backslashes as three octal digits.
fn unescape(field: &str) -> Option<String> {
    let mut plain = Vec::new();
    let mut bytes = field.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }
        let mut code = 0u8;
        for _ in 0..3 {
            let digit = bytes.next().filter(|digit| (b'0'..=b'7').contains(digit))? - b'0';
            code = code.checked_mul(8)?.checked_add(digit)?;
        }
        plain.push(code);
    }
    String::from_utf8(plain).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_folder(root: &str, own: &str) -> Option<PathBuf> {
        let mount = Mount {
            version: Version::Two,
            controllers: Vec::new(),
            point: "/sys/fs/cgroup".into(),
            root: root.into(),
            own: own.into(),
        };
        mount.own_folder()
    }

    #[test]
    fn cgroup_own_folder_is_found_below_the_mounted_root_or_not_at_all() {
        assert_eq!(own_folder("/", "/"), Some("/sys/fs/cgroup/".into()));
        assert_eq!(own_folder("/", "/user.slice/a.scope"), Some("/sys/fs/cgroup/user.slice/a.scope".into()));
        assert_eq!(own_folder("/docker/ab", "/docker/ab/x"), Some("/sys/fs/cgroup/x".into()));
        assert_eq!(own_folder("/docker/ab", "/docker/ab"), Some("/sys/fs/cgroup/".into()));
        assert_eq!(own_folder("/docker/ab", "/other"), None);
        assert_eq!(own_folder("/", "/../outside"), None);
    }

    #[test]
    fn cgroup_mounts_of_both_versions_are_read_and_others_passed_over() {
        let mountinfo = "22 1 0:20 / /proc rw - proc proc rw\n\
            33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
            35 31 0:32 / /sys/fs/cgroup/my\\040memory rw,relatime shared:3 - cgroup cgroup rw,memory\n\
            36 31 0:32 / /elsewhere rw - cgroup cgroup rw,memory\n\
            40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
            41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
            broken line\n";
        let membership = "4:memory:/a:b\n1:cpu,cpuacct:/\n0::/user.slice\n";
        let mounts = find(mountinfo, membership);
        let seen: Vec<_> = mounts.iter().map(|mount| (mount.point.to_str().unwrap(), mount.own.as_str())).collect();
        assert_eq!(
            seen,
            [
                ("/sys/fs/cgroup/cpu,cpuacct", "/"),
                ("/sys/fs/cgroup/my memory", "/a:b"),
                ("/sys/fs/cgroup/unified", "/user.slice")
            ]
        );
        assert_eq!(mounts[0].controllers, [Controller::Cpu]);
    }

    #[test]
    fn cgroup_mount_with_a_broken_escape_is_passed_over() {
        for point in ["/a\\04", "/a\\999", "/a\\777", "/a\\"] {
            assert_eq!(find(&format!("1 1 0:1 / {point} rw - cgroup2 c rw\n"), "0::/\n"), []);
        }
    }
}
