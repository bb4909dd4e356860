//! Proof from inside: the program's own process, restricted as the program will be, looks and tries before it executes.
//!
//! Each proof reads what the kernel says or does the forbidden thing and sees it fail. One that fails stops the start.

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};
use serde::{Deserialize, Serialize};

use super::{Access, Entry, Identity, Membership};
use crate::keeper::{Rlimit, RlimitKind};
use crate::kernel_file;
use crate::privileges::{self, Status};
use crate::program_process::{InForce, look_at_limit, read_limit, write_limit};

/// Of denied files, so many are looked for: a start must not wait for all of a large workspace.
const MOST_DENIED: usize = 8;
/// Where the processes begin in the list of `/proc`.
const FIRST_PROCESS: u64 = 256;
/// From this version on Landlock keeps signals inside.
const LANDLOCK_SIGNALS: i32 = 6;
/// What `statfs` says of an overlay, and of a tmpfs.
const LAYERS: [i64; 2] = [0x794c_7630, 0x0102_1994];
/// A longer file of `/proc` is not believed to be one.
const MOST_TEXT: u64 = 1024 * 1024;

/// What was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proof {
    /// What it proves; a stable name.
    pub name: String,
    /// What was found.
    pub found: String,
}

/// Something was not as it must be.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unproven {
    /// A forbidden act succeeded, or the kernel says otherwise.
    #[error("{name} does not hold: {found}")]
    Broken {
        /// What was to be proven.
        name: &'static str,
        /// What was found instead.
        found: String,
    },
    /// It could not be looked at.
    #[error("could not look at {name}")]
    Unreadable {
        /// What was to be proven.
        name: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// What the caller expects to find.
#[derive(Debug)]
pub(super) struct Expected<'a> {
    pub(super) identity: Identity,
    pub(super) rlimits: &'a [Rlimit],
    pub(super) shown: usize,
    pub(super) landlock: i32,
    pub(super) entries: &'a [Entry],
    pub(super) writable_bytes: u64,
    pub(super) cgroup: Option<&'a Membership>,
    pub(super) company: Company,
}

/// Who else is behind the wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Company {
    /// Nobody but the guest.
    None,
    /// Other programs of the same session.
    Others,
}

/// Proves everything, in a fixed order.
pub(super) fn prove(expected: &Expected<'_>) -> Result<Vec<Proof>, Unproven> {
    let mut proofs = Vec::new();
    let mut add = |name: &'static str, found: Result<String, Unproven>| -> Result<(), Unproven> {
        proofs.push(Proof { name: name.to_owned(), found: found? });
        Ok(())
    };
    let status = privileges::read_status().map_err(|source| Unproven::Unreadable { name: "priv.none", source })?;
    add("priv.none", no_privileges(&status, expected.identity))?;
    add("priv.no-new", no_new_privileges(&status))?;
    add("kernel.filter", filtered(&status))?;
    add("proc.hidden", few_processes(expected.company))?;
    add("net.none", no_network(&[libc::ENETUNREACH]))?;
    add("fs.confined", confined(expected))?;
    add("fd.clean", clean_descriptors())?;
    add("proc.no-core", no_core())?;
    for (name, limit) in limits(expected.rlimits) {
        add(name, limited(name, limit))?;
    }
    add("fs.size", limited_size(expected))?;
    // Programs that ran before may have made what looks like the host's in their own layer.
    if expected.company == Company::None {
        if !has_writable_bind(expected.entries) {
            add("fs.workspace", own_layer())?;
        }
        if let Some(found) = denied_are_absent(expected.entries).transpose() {
            add("fs.deny", found)?;
        }
    }
    if let Some(cgroup) = expected.cgroup {
        let found = counted(cgroup, &read("proc.memory", "/proc/self/cgroup")?)?;
        for name in ["proc.memory", "proc.cpus", "proc.processes"] {
            add(name, Ok(found.clone()))?;
        }
    }
    Ok(proofs)
}

fn no_privileges(status: &Status, identity: Identity) -> Result<String, Unproven> {
    let name = "priv.none";
    let sets = status.cap_eff | status.cap_prm | status.cap_inh | status.cap_amb | status.cap_bnd;
    let uid = rustix::process::getuid().as_raw();
    let map = read(name, "/proc/self/uid_map")?;
    let map: Vec<&str> = map.split_whitespace().collect();
    if sets != 0 {
        return Err(Unproven::Broken { name, found: format!("capabilities {sets:x}") });
    }
    if uid != identity.uid || map.len() != 3 || map.get(2) != Some(&"1") || uid == 0 {
        return Err(Unproven::Broken { name, found: format!("uid {uid}, map {map:?}") });
    }
    let groups =
        rustix::process::getgroups().map_err(|errno| Unproven::Unreadable { name, source: errno.into() })?.len();
    Ok(format!("uid {uid}, one id mapped, no capability in any set, {groups} further groups of the host"))
}

pub(super) fn no_new_privileges(status: &Status) -> Result<String, Unproven> {
    let name = "priv.no-new";
    if status.no_new_privs {
        Ok("NoNewPrivs 1".to_owned())
    } else {
        Err(Unproven::Broken { name, found: "NoNewPrivs 0".to_owned() })
    }
}

pub(super) fn filtered(status: &Status) -> Result<String, Unproven> {
    let name = "kernel.filter";
    if status.seccomp != 2 {
        return Err(Unproven::Broken { name, found: format!("Seccomp {}", status.seccomp) });
    }
    // SAFETY: takes one integer. If it succeeded we would be in a new user namespace, which the error says.
    let unshared = unsafe { libc::unshare(libc::CLONE_NEWUSER) };
    let error = io::Error::last_os_error();
    if unshared == 0 || error.raw_os_error() != Some(libc::EPERM) {
        return Err(Unproven::Broken { name, found: "a user namespace could be made".to_owned() });
    }
    Ok("Seccomp 2, unshare refused".to_owned())
}

fn few_processes(company: Company) -> Result<String, Unproven> {
    let name = "proc.hidden";
    if company == Company::Others {
        // Counting was done when nobody else was there. The number of the guest tells whose processes are seen.
        return match rustix::process::getppid() {
            Some(parent) if parent.is_init() => Ok("the guest is process 1".to_owned()),
            parent => Err(Unproven::Broken { name, found: format!("the guest is process {parent:?}") }),
        };
    }
    let processes = count_processes().map_err(|errno| Unproven::Unreadable { name, source: errno.into() })?;
    // The guest and ourselves.
    if processes == 2 {
        Ok("2 processes".to_owned())
    } else {
        Err(Unproven::Broken { name, found: format!("{processes} processes") })
    }
}

/// How many processes `/proc` shows. The kernel lists about eighty files of its own before them, which takes as long as several
/// proofs together; on a kernel that orders them otherwise the count would be too low, and prove nothing.
fn count_processes() -> rustix::io::Result<usize> {
    let proc = rustix::fs::open("/proc", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::seek(&proc, SeekFrom::Start(FIRST_PROCESS))?;
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut entries = RawDir::new(&proc, &mut space);
    let mut count = 0;
    while let Some(entry) = entries.next() {
        let is_process = entry?.file_name().to_bytes().iter().all(u8::is_ascii_digit);
        count += usize::from(is_process);
    }
    Ok(count)
}

/// `unroutable` is how the kernel says that there is no route.
pub(super) fn no_network(unroutable: &[i32]) -> Result<String, Unproven> {
    let name = "net.none";
    let devices = read(name, "/proc/self/net/dev")?;
    let interfaces: Vec<&str> =
        devices.lines().skip(2).filter_map(|line| line.split(':').next()).map(str::trim).collect();
    if interfaces != ["lo"] {
        return Err(Unproven::Broken { name, found: format!("interfaces {interfaces:?}") });
    }
    // An address for documentation, which nobody has, and one that everybody can reach: with any route to them this would
    // succeed without a packet.
    for address in [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(8, 8, 8, 8)] {
        let reached = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
            .and_then(|socket| socket.connect(SocketAddrV4::new(address, 9)));
        match reached {
            Err(error) if error.raw_os_error().is_some_and(|errno| unroutable.contains(&errno)) => {}
            Err(error) => return Err(Unproven::Broken { name, found: format!("unexpected: {error}") }),
            Ok(()) => return Err(Unproven::Broken { name, found: "there is a route".to_owned() }),
        }
    }
    // Without IPv6 there is no such socket, and without a route no address to send from.
    let documentation = SocketAddrV6::new(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), 9, 0, 0);
    let reached = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).and_then(|socket| socket.connect(documentation));
    if reached.is_ok() {
        return Err(Unproven::Broken { name, found: "there is a route for IPv6".to_owned() });
    }
    Ok("only lo, no route".to_owned())
}

fn confined(expected: &Expected<'_>) -> Result<String, Unproven> {
    let name = "fs.confined";
    for path in ["/etc/shadow", "/sys", "/boot", "/.quota", "/.masked"] {
        if Path::new(path).symlink_metadata().is_ok() {
            return Err(Unproven::Broken { name, found: format!("{path} is there") });
        }
    }
    let mounts = read(name, "/proc/self/mountinfo")?;
    if mounts.lines().any(|line| line.contains(" shared:") || line.contains(" master:")) {
        return Err(Unproven::Broken { name, found: "a mount is tied to the host's".to_owned() });
    }
    // What lies over our root is not seen by its name, but is by `..`.
    let roots = mounts.lines().filter(|line| line.split(' ').nth(4) == Some("/")).count();
    let look = |path: &str| fs::metadata(path).map_err(|source| Unproven::Unreadable { name, source });
    let (root, above) = (look("/")?, look("/..")?);
    if roots != 1 || (root.dev(), root.ino()) != (above.dev(), above.ino()) {
        return Err(Unproven::Broken { name, found: "something lies over the root".to_owned() });
    }
    for path in ["/.probe", "/usr/.probe", "/dev/.probe"] {
        match fs::File::create(path) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EROFS | libc::EACCES)) => {}
            Err(error) => return Err(Unproven::Unreadable { name, source: error }),
            Ok(_) => return Err(Unproven::Broken { name, found: format!("{path} could be made") }),
        }
    }
    let mut found =
        format!("{} paths shown, root and system read-only, Landlock {}", expected.shown, expected.landlock);
    if expected.landlock >= LANDLOCK_SIGNALS {
        // We have the guest's user, so nothing but Landlock forbids this. With 0 no signal is sent.
        // SAFETY: two integers.
        if unsafe { libc::kill(1, 0) } == 0 {
            return Err(Unproven::Broken { name, found: "Landlock lets signals out".to_owned() });
        }
        found.push_str(" keeps signals inside");
    }
    Ok(found)
}

/// Tries to lower the limit: below 1, a crash would start the host's core handler.
pub(super) fn no_core() -> Result<String, Unproven> {
    let name = "proc.no-core";
    let before = core_limit(name)?;
    if before == (0, 0) {
        // The host's own; it cannot be raised.
        return Ok("RLIMIT_CORE 0".to_owned());
    }
    let answer = write_limit(RlimitKind::Core, 0);
    match (before, core_limit(name)?) {
        ((1, 1), (1, 1)) => Ok("RLIMIT_CORE 1, also after an attempt to lower it".to_owned()),
        (before, after) => {
            let found = format!("RLIMIT_CORE {before:?}, then {after:?}, when lowering it was answered by {answer:?}");
            Err(Unproven::Broken { name, found })
        }
    }
}

fn core_limit(name: &'static str) -> Result<(u64, u64), Unproven> {
    read_limit(RlimitKind::Core).map_err(|errno| unreadable(name, errno))
}

fn unreadable(name: &'static str, errno: i32) -> Unproven {
    Unproven::Unreadable { name, source: io::Error::from_raw_os_error(errno) }
}

/// Of limits of each process, those that are guarantees by themselves.
pub(super) fn limits(all: &[Rlimit]) -> impl Iterator<Item = (&'static str, &Rlimit)> {
    all.iter().filter_map(|limit| match limit.kind {
        RlimitKind::FileSize => Some(("proc.file-size", limit)),
        RlimitKind::OpenFiles => Some(("proc.open-files", limit)),
        // The first is a part of how memory is watched; the second has a proof of its own.
        RlimitKind::Data | RlimitKind::Core => None,
    })
}

/// What was asked for is in force, and this process may not raise it; nor may what it becomes, which gains no privilege.
pub(super) fn limited(name: &'static str, limit: &Rlimit) -> Result<String, Unproven> {
    match look_at_limit(limit).map_err(|errno| unreadable(name, errno))? {
        InForce::Kept(most) => Ok(format!("{most}, soft and hard, also after an attempt to raise it")),
        InForce::Otherwise(soft, hard) => {
            let found = format!("{soft}, and {hard} at most, instead of {}", limit.most);
            Err(Unproven::Broken { name, found })
        }
        InForce::Raised(0) => Err(Unproven::Broken { name, found: "it could be raised".to_owned() }),
        InForce::Raised(errno) => {
            let error = io::Error::from_raw_os_error(errno);
            Err(Unproven::Broken { name, found: format!("unexpected when it was raised: {error}") })
        }
    }
}

/// What `execve` is about to be handed: so many strings, all of them listed, or the place of the first that is not.
pub(super) fn clean_environment(counted: Result<usize, usize>) -> Result<Proof, Unproven> {
    let name = "env.clean";
    match counted {
        Ok(count) => {
            Ok(Proof { name: name.to_owned(), found: format!("execve gets the {count} listed strings alone") })
        }
        Err(place) => Err(Unproven::Broken { name, found: format!("string {place} is not the listed one") }),
    }
}

/// What can be written is a file system of the wanted size.
fn limited_size(expected: &Expected<'_>) -> Result<String, Unproven> {
    let name = "fs.size";
    let place = expected.entries.iter().find_map(|entry| match entry {
        Entry::Scratch { at, size: None, .. } => Some(at),
        _ => None,
    });
    let Some(place) = place else { return Ok("nothing can be written".to_owned()) };
    let found = rustix::fs::statfs(place).map_err(|errno| Unproven::Unreadable { name, source: errno.into() })?;
    let block = u64::try_from(found.f_bsize).unwrap_or(u64::MAX);
    let bytes = found.f_blocks.saturating_mul(block);
    // In whole blocks, and no blocks mean no limit.
    if found.f_blocks == 0 || bytes > expected.writable_bytes.saturating_add(block) {
        return Err(Unproven::Broken { name, found: format!("{bytes} bytes can be written") });
    }
    Ok(format!("{bytes} bytes, {} files", found.f_files))
}

fn has_writable_bind(entries: &[Entry]) -> bool {
    entries.iter().any(|entry| matches!(entry, Entry::Bind { access: Access::ReadWrite, .. }))
}

/// Where the program starts is a layer of its own, not the host's file system.
fn own_layer() -> Result<String, Unproven> {
    let name = "fs.workspace";
    let found = rustix::fs::statfs(".").map_err(|errno| Unproven::Unreadable { name, source: errno.into() })?;
    if LAYERS.contains(&found.f_type) {
        Ok("a layer of its own".to_owned())
    } else {
        Err(Unproven::Broken { name, found: format!("a file system of the host, type {:x}", found.f_type) })
    }
}

/// Looks for the first few that must not be there; nothing when nothing is denied.
fn denied_are_absent(entries: &[Entry]) -> Result<Option<String>, Unproven> {
    let name = "fs.deny";
    let all = || {
        entries.iter().flat_map(|entry| match entry {
            Entry::CopyOnWrite { at, absent, .. } => absent.iter().map(|path| at.join(path)).collect::<Vec<_>>(),
            _ => Vec::new(),
        })
    };
    // Of an image also what we have our own of is taken away.
    let is_ours = |path: &Path| entries.iter().any(|entry| entry.place().is_some_and(|place| place.starts_with(path)));
    let mut tried = 0;
    for path in all().filter(|path| !is_ours(path)).take(MOST_DENIED) {
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => tried += 1,
            Err(source) => return Err(Unproven::Unreadable { name, source }),
            Ok(_) => return Err(Unproven::Broken { name, found: format!("{} is there", path.display()) }),
        }
    }
    Ok((tried > 0).then(|| format!("{tried} denied paths are absent")))
}

/// We are counted where our limits are, as far as `text`, which is what the kernel says of our groups, can show it.
fn counted(cgroup: &Membership, text: &str) -> Result<String, Unproven> {
    let name = "proc.memory";
    let folders = match cgroup {
        Membership::PerController(folders) => folders,
        Membership::Unified(_) => {
            // Born in it, or not at all. Whoever was put elsewhere since sees a longer path; which group the root is, nobody
            // sees from inside.
            let path = text.lines().find_map(|line| line.strip_prefix("0::"));
            return match path {
                Some("/") => Ok("in its cgroup: where it was born, the root of all that it sees".to_owned()),
                _ => Err(Unproven::Broken { name, found: format!("in the cgroup {path:?} instead of its own") }),
            };
        }
    };
    let paths: Vec<&str> = text.lines().filter_map(|line| line.rsplit(':').next()).collect();
    let Some(wanted) = folders.first().and_then(|folder| folder.file_name()) else {
        return Err(Unproven::Broken { name, found: "there is no cgroup to be in".to_owned() });
    };
    let joined = paths.iter().filter(|path| Path::new(path).file_name() == Some(wanted)).count();
    if joined >= folders.len() {
        return Ok(format!("in its cgroup for {joined} controllers"));
    }
    Err(Unproven::Broken { name, found: format!("in {joined} of {} cgroups", folders.len()) })
}

pub(super) fn clean_descriptors() -> Result<String, Unproven> {
    let name = "fd.clean";
    let mut open = 0;
    for entry in fs::read_dir("/proc/self/fd").map_err(|source| Unproven::Unreadable { name, source })?.flatten() {
        let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if fd > 2 {
            // SAFETY: integers only. One that was closed meanwhile, as the one that lists, gives an error.
            let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
            if flags >= 0 && flags & libc::FD_CLOEXEC == 0 {
                return Err(Unproven::Broken { name, found: format!("descriptor {fd} would stay open") });
            }
        } else {
            open += 1;
        }
    }
    Ok(format!("{open} descriptors stay open"))
}

/// Reads a file of `/proc`.
pub(super) fn read(name: &'static str, path: &str) -> Result<String, Unproven> {
    fs::File::open(path)
        .and_then(|file| kernel_file::read_open(file, MOST_TEXT))
        .map_err(|source| Unproven::Unreadable { name, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n13_who_is_not_in_its_cgroup_is_found() {
        let check = |cgroup: &Membership, text: &str, expected: bool| {
            assert_eq!(counted(cgroup, text).is_ok(), expected, "{cgroup:?}: {text}");
        };
        let unified = Membership::Unified("/sys/fs/cgroup/ringfence-x".into());
        check(&unified, "0::/\n", true);
        check(&unified, "1:name=systemd:/user\n0::/\n", true);
        // Beside it, above it and in the host's: as the kernel tells of whoever was put there afterwards.
        check(&unified, "0::/../other\n", false);
        check(&unified, "0::/..\n", false);
        check(&unified, "0::/deeper\n", false);
        check(&unified, "1:name=systemd:/\n", false);
        check(&unified, "", false);
        let folders = ["/sys/fs/cgroup/memory/ringfence-x", "/sys/fs/cgroup/pids/ringfence-x"];
        let split = Membership::PerController(folders.map(Into::into).to_vec());
        check(&split, "8:pids:/ringfence-x\n4:memory:/a/ringfence-x\n1:cpu:/\n", true);
        check(&split, "8:pids:/ringfence-x\n4:memory:/\n1:cpu:/\n", false);
        check(&split, "", false);
        check(&Membership::PerController(Vec::new()), "8:pids:/\n", false);
    }

    #[test]
    fn a_limit_that_is_not_the_one_that_was_asked_for_is_found() {
        let (soft, hard) = read_limit(RlimitKind::OpenFiles).unwrap();
        // What is in force here stays: nothing is written before it is found to be as low as was asked for.
        let limit = Rlimit { kind: RlimitKind::OpenFiles, most: hard.min(soft) - 1 };
        let found = limited("proc.open-files", &limit).unwrap_err().to_string();
        assert!(found.starts_with("proc.open-files does not hold: "), "{found}");
        assert!(found.ends_with(&format!("instead of {}", limit.most)), "{found}");
    }

    #[test]
    fn only_limits_that_are_guarantees_by_themselves_are_proven_as_such() {
        let all = [RlimitKind::Data, RlimitKind::FileSize, RlimitKind::OpenFiles, RlimitKind::Core];
        let all = all.map(|kind| Rlimit { kind, most: 7 });
        assert_eq!(limits(&all).map(|(name, _)| name).collect::<Vec<_>>(), ["proc.file-size", "proc.open-files"]);
    }
}
