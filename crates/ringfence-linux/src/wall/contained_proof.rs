//! Proof from inside a container: the engine did what it was told, and we did the rest.
//!
//! As in `proof.rs`, and under the same names. What an engine adds by itself is looked for where engines add it: mounts,
//! devices, sockets of the engine. What cannot be seen from inside is left out, and is for the host to prove.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access as Ask, OFlags, StatVfsMountFlags};
use rustix::rand::GetRandomFlags;

use super::Access;
use super::contained::{Contained, Ground, Kernel};
use super::proof::{self, Company, Proof, Unproven};
use crate::privileges::{self, Status};

/// What `statfs` says of a tmpfs.
const TMPFS: i64 = 0x0102_1994;
const OVERLAY: i64 = 0x794c_7630;
/// From this version on Landlock keeps signals inside.
const LANDLOCK_SIGNALS: i32 = 6;
/// So many files of a workspace are tried to be written, among so many entries.
const MOST_TRIED: usize = 16;
const MOST_LOOKED_AT: usize = 4096;
/// No engine has more mounts, or devices, for one container.
const MOST_MOUNTS: usize = 4096;
const MOST_DEVICES: usize = 1024;

/// Where engines and what stands behind them listen on a host.
const ENGINES: [&str; 8] = [
    "/var/run/docker.sock",
    "/run/docker.sock",
    "/run/podman/podman.sock",
    "/var/run/podman/podman.sock",
    "/run/containerd/containerd.sock",
    "/var/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/var/run/crio/crio.sock",
];

/// What nobody but the host's root may write: through the first a program of the host would be started.
const OF_THE_HOST: [&str; 4] =
    ["/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper"];

/// Proves everything, in a fixed order. `landlock` is the version that is in force.
///
/// A process in company comes after one that has proven the place itself: what is mounted there, which devices, how much fits, what
/// the cgroup says. Nobody inside has the power to change that, so only what holds for the process itself is looked at.
pub(super) fn prove(contained: &Contained, landlock: Option<i32>, company: Company) -> Result<Vec<Proof>, Unproven> {
    let mut proofs = Vec::new();
    let mut add = |name: &'static str, found: Result<String, Unproven>| -> Result<(), Unproven> {
        proofs.push(Proof { name: name.to_owned(), found: found? });
        Ok(())
    };
    let status = match contained.kernel {
        Kernel::Host => privileges::read_status(),
        Kernel::Own => privileges::ask_status(),
    };
    let status = status.map_err(|source| Unproven::Unreadable { name: "priv.none", source })?;
    add("priv.none", no_privileges(&status, contained))?;
    add("priv.no-new", proof::no_new_privileges(&status))?;
    add("kernel.filter", proof::filtered(&status))?;
    add("proc.hidden", few_processes(contained.kernel, company))?;
    if company == Company::Others {
        add("fs.confined", read_only_root(contained).and_then(|()| fenced(contained, landlock)))?;
        add("fd.clean", proof::clean_descriptors())?;
        add("proc.no-core", proof::no_core())?;
        for (name, limit) in proof::limits(&contained.rlimits) {
            add(name, proof::limited(name, limit))?;
        }
        return Ok(proofs);
    }
    let unroutable: &[i32] = match contained.kernel {
        Kernel::Host => &[libc::ENETUNREACH],
        // gVisor's word for it.
        Kernel::Own => &[libc::ENETUNREACH, libc::EHOSTUNREACH],
    };
    add("net.none", proof::no_network(unroutable))?;
    add("fs.confined", confined(contained, landlock))?;
    add("fd.clean", proof::clean_descriptors())?;
    add("proc.no-core", proof::no_core())?;
    for (name, limit) in proof::limits(&contained.rlimits) {
        add(name, proof::limited(name, limit))?;
    }
    add("fs.size", limited_size(contained))?;
    for (name, files, most) in
        [("proc.memory", MEMORY, contained.memory), ("proc.processes", PROCESSES, contained.processes)]
    {
        if let Some(most) = most {
            add(name, limited(name, files, most))?;
        }
    }
    Ok(proofs)
}

fn no_privileges(status: &Status, contained: &Contained) -> Result<String, Unproven> {
    let name = "priv.none";
    let sets = status.cap_eff | status.cap_prm | status.cap_inh | status.cap_amb | status.cap_bnd;
    if sets != 0 {
        return Err(Unproven::Broken { name, found: format!("capabilities {sets:x}") });
    }
    let (uid, gid) = (contained.uid, contained.gid);
    if status.uids != [uid; 4] || status.gids != [gid; 4] || uid == 0 || gid == 0 {
        return Err(Unproven::Broken { name, found: format!("uids {:?}, gids {:?}", status.uids, status.gids) });
    }
    if status.groups.contains(&0) {
        return Err(Unproven::Broken { name, found: "root's group".to_owned() });
    }
    Ok(format!("uid {uid}, gid {gid}, no capability in any set, {} groups", status.groups.len()))
}

/// The guest is our parent, and nobody else is there before the first program.
fn few_processes(kernel: Kernel, company: Company) -> Result<String, Unproven> {
    let name = "proc.hidden";
    match rustix::process::getppid() {
        Some(parent) if parent.is_init() => {}
        parent => return Err(Unproven::Broken { name, found: format!("the guest is process {parent:?}") }),
    }
    let opens = |path: &str, flags: OFlags| {
        let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()
    };
    // The guest is our user's, and only not being dumpable keeps us out. Its memory holds the key of its frames.
    for path in ["/proc/1/mem", "/proc/1/task/1/mem"] {
        if [OFlags::RDONLY, OFlags::WRONLY].into_iter().any(|flags| opens(path, flags).is_some()) {
            return Err(Unproven::Broken { name, found: format!("{path} of the guest can be opened") });
        }
    }
    if let Some(environment) = opens("/proc/1/environ", OFlags::RDONLY)
        && rustix::io::read(environment, &mut [0u8; 1]).is_ok_and(|read| read > 0)
    {
        return Err(Unproven::Broken { name, found: "/proc/1/environ of the guest can be read".to_owned() });
    }
    // Nothing can be said there without the key. That they cannot even be opened is for every kernel that can see to it.
    let ways = [("/proc/1/fd/3", OFlags::RDONLY), ("/proc/1/fd/4", OFlags::WRONLY), ("/proc/1/fd/5", OFlags::WRONLY)];
    let open = ways.into_iter().find(|(path, flags)| opens(path, *flags).is_some());
    let guarded = match (open, kernel) {
        (None, Kernel::Own) => "",
        (None, Kernel::Host) => match named_descriptors("/proc/1/fd") {
            None => "",
            Some(path) => return Err(Unproven::Broken { name, found: format!("{path} of the guest can be read") }),
        },
        (Some(_), Kernel::Own) => {
            ", whose descriptors this kernel lets programs open: every frame there is sealed, and its memory is closed"
        }
        (Some((path, _)), Kernel::Host) => {
            return Err(Unproven::Broken { name, found: format!("{path} of the guest can be opened") });
        }
    };
    if company == Company::Others {
        // Counting was done when nobody else was there.
        return Ok(format!("the guest is process 1{guarded}"));
    }
    let entries = fs::read_dir("/proc").map_err(|source| Unproven::Unreadable { name, source })?;
    let is_process = |name: &OsStr| name.as_bytes().iter().all(u8::is_ascii_digit);
    match entries.flatten().filter(|entry| is_process(&entry.file_name())).count() {
        2 => Ok(format!("2 processes, of which the guest is one{guarded}")),
        count => Err(Unproven::Broken { name, found: format!("{count} processes") }),
    }
}

/// What can be read of the descriptors in `folder`. A socket cannot be opened by its name, whoever may read that, so that it cannot
/// says nothing.
fn named_descriptors(folder: &str) -> Option<String> {
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some_and(|entry| entry.is_ok())) {
        return Some(folder.to_owned());
    }
    let mut paths = (0..=5).map(|number| format!("{folder}/{number}"));
    paths.find(|path| fs::read_link(path).is_ok())
}

fn confined(contained: &Contained, landlock: Option<i32>) -> Result<String, Unproven> {
    let name = "fs.confined";
    let broken = |found: String| Err(Unproven::Broken { name, found });
    let of_the_user =
        ["docker.sock", "podman/podman.sock"].map(|socket| format!("/run/user/{}/{socket}", contained.uid));
    for path in ENGINES.iter().copied().chain(of_the_user.iter().map(String::as_str)) {
        if fs::metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
            return broken(format!("the socket of an engine is at {path}"));
        }
    }
    read_only_root(contained)?;
    for path in ["/.probe", "/usr/.probe", "/etc/.probe", "/dev/.probe", "/sys/.probe", "/proc/sys/.probe"] {
        match fs::File::create(path) {
            Err(_) => {}
            Ok(_) => return broken(format!("{path} could be made")),
        }
    }
    workspace_closed(contained, landlock)?;
    for path in OF_THE_HOST {
        if can_be_written(Path::new(path)) {
            return broken(format!("{path} can be written"));
        }
    }
    let mounts = mounts(contained)?;
    let devices = devices(Path::new("/dev"), contained.kernel)?;
    let fence = fenced(contained, landlock)?;
    Ok(format!("root read-only, {mounts} mounts, {devices} devices, {fence}"))
}

/// A workspace that programs are not to write is tried: to make a folder in it, and to write to the first of those that it has.
fn workspace_closed(contained: &Contained, landlock: Option<i32>) -> Result<(), Unproven> {
    let (name, workspace) = ("fs.confined", Path::new(&contained.workspace));
    let unreadable = |source| Unproven::Unreadable { name, source };
    let mut written = contained.paths.iter().filter(|(_, access)| *access == Access::ReadWrite).map(|(at, _)| at);
    if written.clone().any(|at| *at == contained.workspace) {
        return Ok(());
    }
    // Landlock's answer counts where it was told to give it.
    let fence = match landlock {
        Some(_) if !written.any(|at| workspace.starts_with(at)) => Fenced::Yes,
        _ => Fenced::No,
    };
    // By a name that nobody can have put there: of another it would only be said that it is taken.
    let mut random = [0; 8];
    rustix::rand::getrandom(&mut random, GetRandomFlags::empty()).map_err(|errno| unreadable(errno.into()))?;
    let probe = workspace.join(format!(".ringfence-probe-{:016x}", u64::from_ne_bytes(random)));
    // A folder and no file: of that, every kernel says first that the file system is read-only, whatever else forbids it.
    let made = fs::create_dir(&probe);
    if made.is_ok() {
        // It may be the host's.
        fs::remove_dir(&probe).map_err(unreadable)?;
    }
    let mut tried = vec![(workspace.to_owned(), made)];
    // That nothing can be written where nothing is proves nothing.
    for entry in fs::read_dir(workspace).map_err(unreadable)?.take(MOST_LOOKED_AT) {
        let path = entry.map_err(unreadable)?.path();
        if path.symlink_metadata().is_ok_and(|found| found.is_file()) {
            let written = fs::File::options().append(true).open(&path).map(drop);
            tried.push((path, written));
        }
        if tried.len() > MOST_TRIED {
            break;
        }
    }
    match all_closed(&tried, fence) {
        Ok(()) => Ok(()),
        Err(found) => Err(Unproven::Broken { name, found }),
    }
}

/// Whether Landlock was told that nothing there is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fenced {
    Yes,
    No,
}

/// What attempts to write say of a workspace, of which the first was the workspace itself. That whoever tried had no permission says
/// nothing of the next one who tries: who owns a file can change that.
fn all_closed(tried: &[(PathBuf, std::io::Result<()>)], fence: Fenced) -> Result<(), String> {
    const INSTEAD: &str = "use another engine or runtime (`backend`), or `fs.workspace.mode: review`";
    let closes = |error: &std::io::Error| match error.raw_os_error() {
        Some(libc::EROFS) => true,
        Some(libc::EACCES) => fence == Fenced::Yes,
        _ => false,
    };
    let shown = |path: &Path| path.display().to_string();
    if let Some((path, _)) = tried.iter().find(|(_, written)| written.is_ok()) {
        return Err(format!("{} can be written, and the workspace is read-only: {INSTEAD}", shown(path)));
    }
    let refused = || tried.iter().filter_map(|(path, written)| Some((path, written.as_ref().err()?)));
    match refused().next() {
        _ if refused().any(|(_, error)| closes(error)) => Ok(()),
        Some((path, error)) => {
            Err(format!("whether {} is read-only cannot be told, as writing says `{error}`: {INSTEAD}", shown(path)))
        }
        None => Err(format!("nothing was tried in the workspace: {INSTEAD}")),
    }
}

/// Asked and not only tried: Landlock refuses it also on a root that can be written. A kernel of its own has no Landlock, and does
/// not say it in this way.
fn read_only_root(contained: &Contained) -> Result<(), Unproven> {
    let name = "fs.confined";
    if contained.kernel == Kernel::Host {
        let root = rustix::fs::statvfs("/").map_err(|errno| Unproven::Unreadable { name, source: errno.into() })?;
        if !root.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(Unproven::Broken { name, found: "the root can be written".to_owned() });
        }
    }
    Ok(())
}

/// The fence of the calling process, where the kernel has one.
fn fenced(contained: &Contained, landlock: Option<i32>) -> Result<String, Unproven> {
    let Some(version) = landlock else { return Ok("no Landlock in this kernel".to_owned()) };
    let mut found = format!("{} paths shown by Landlock {version}", contained.paths.len());
    if version >= LANDLOCK_SIGNALS {
        // We have the guest's user, so nothing but Landlock forbids this. With 0 no signal is sent.
        // SAFETY: two integers.
        if unsafe { libc::kill(1, 0) } == 0 {
            return Err(Unproven::Broken { name: "fs.confined", found: "Landlock lets signals out".to_owned() });
        }
        found.push_str(", which keeps signals inside");
    }
    Ok(found)
}

/// Whether the calling process may write there, as the permissions say. A file system that is read-only says no.
fn can_be_written(path: &Path) -> bool {
    rustix::fs::access(path, Ask::WRITE_OK).is_ok()
}

/// One line of `mountinfo`.
struct Mount<'a> {
    at: OsString,
    options: &'a str,
    tags: &'a str,
    kind: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = mount.splitn(7, ' ').skip(4);
        let at = unescape(fields.next()?);
        let options = fields.next()?;
        let tags = fields.next().unwrap_or_default();
        Some(Self { at, options, tags, kind: file_system.split(' ').next()? })
    }

    fn has_option(&self, wanted: &str) -> bool {
        self.options.split(',').any(|option| option == wanted)
    }
}

/// Spaces and their kin are written as three octal digits.
fn unescape(text: &str) -> OsString {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|digits| str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if first == b'\\' => {
                bytes.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// Every mount is read-only, or one of those that may be written, or the container's own and closed to us.
fn mounts(contained: &Contained) -> Result<usize, Unproven> {
    let name = "fs.confined";
    let text = proof::read(name, "/proc/self/mountinfo")?;
    let mut count = 0;
    for line in text.lines() {
        count += 1;
        let Some(mount) = Mount::parse(line).filter(|_| count <= MOST_MOUNTS) else {
            return Err(Unproven::Broken { name, found: format!("a mount that cannot be read: {line}") });
        };
        if let Some(found) = wrong_mount(contained, &mount) {
            return Err(Unproven::Broken { name, found: format!("{} {found}", mount.at.display()) });
        }
    }
    if count == 0 {
        return Err(Unproven::Broken { name, found: "no mount is told".to_owned() });
    }
    Ok(count)
}

fn wrong_mount(contained: &Contained, mount: &Mount<'_>) -> Option<&'static str> {
    if mount.tags.split(' ').any(|tag| tag.starts_with("shared:")) {
        return Some("is shared with the host");
    }
    let found = fs::metadata(&mount.at).ok();
    let kind = found.as_ref().map(fs::Metadata::file_type);
    if kind.is_some_and(|kind| kind.is_socket()) {
        // Whether it can be written does not matter to who connects.
        return Some("is a socket");
    }
    if let Some((found, true)) = found.as_ref().map(|found| (found, is_device(found))) {
        return if is_harmless(found.rdev(), contained.kernel) { None } else { Some("is a device") };
    }
    let may_be_written = contained.writable.iter().any(|place| place.at == mount.at);
    if mount.has_option("ro") || may_be_written {
        return None;
    }
    match mount.kind {
        // Of the container itself, and bounded by the kernel.
        "proc" | "devpts" | "mqueue" if mount.kind != "proc" || mount.at == "/proc" => None,
        // Folders that the engine made, such as `/dev`, and single files, such as `/etc/hosts`.
        "tmpfs" => closed(mount),
        _ if kind.is_some_and(|kind| kind.is_file()) => closed(mount),
        _ => Some("can be written"),
    }
}

fn closed(mount: &Mount<'_>) -> Option<&'static str> {
    if can_be_written(Path::new(&mount.at)) { Some("can be written") } else { None }
}

fn is_device(found: &fs::Metadata) -> bool {
    found.file_type().is_char_device() || found.file_type().is_block_device()
}

/// Those that every container has, by their numbers; a kernel of its own makes up whatever it has.
fn is_harmless(device: u64, kernel: Kernel) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    // null, zero, full, random, urandom; tty, console, ptmx; terminals of the container.
    matches!((major, minor), (1, 3 | 5 | 7 | 8 | 9) | (5, 0..=2) | (136..=143, _)) || kernel == Kernel::Own
}

/// Counts the devices in `/dev` and its folders, all of which must be harmless.
fn devices(folder: &Path, kernel: Kernel) -> Result<usize, Unproven> {
    let name = "fs.confined";
    let mut folders = vec![folder.to_owned()];
    let (mut count, mut seen) = (0, 0);
    while let Some(folder) = folders.pop() {
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            // What we may not look into, no program may.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => continue,
            Err(source) => return Err(Unproven::Unreadable { name, source }),
        };
        for entry in entries.flatten() {
            seen += 1;
            if seen > MOST_DEVICES {
                return Err(Unproven::Broken { name, found: "too much in /dev".to_owned() });
            }
            let Ok(found) = entry.path().symlink_metadata() else { continue };
            // What programs put there themselves is in memory, and no device.
            if found.is_dir() && !folder.ends_with("shm") {
                folders.push(entry.path());
            } else if is_device(&found) {
                count += 1;
                if found.file_type().is_block_device() || !is_harmless(found.rdev(), kernel) {
                    return Err(Unproven::Broken { name, found: format!("{} is a device", entry.path().display()) });
                }
            }
        }
    }
    Ok(count)
}

/// Each place that can be written is in memory, or a layer that is, and of the wanted size.
fn limited_size(contained: &Contained) -> Result<String, Unproven> {
    let name = "fs.size";
    let mut largest = 0u64;
    for place in &contained.writable {
        let found = rustix::fs::statfs(place.at.as_os_str())
            .map_err(|errno| Unproven::Unreadable { name, source: errno.into() })?;
        let at = place.at.display();
        let expected = match place.on {
            Ground::Memory => TMPFS,
            Ground::Layer => OVERLAY,
        };
        if found.f_type != expected {
            return Err(Unproven::Broken {
                name,
                found: format!("{at} is on a file system of type {:x}", found.f_type),
            });
        }
        let block = u64::try_from(found.f_bsize).unwrap_or(u64::MAX);
        let bytes = found.f_blocks.saturating_mul(block);
        // In whole blocks, and no blocks mean no limit.
        if found.f_blocks == 0 || bytes > place.bytes.saturating_add(block) {
            return Err(Unproven::Broken { name, found: format!("{bytes} bytes can be written to {at}") });
        }
        largest = largest.max(bytes);
    }
    Ok(format!("{} places, the largest of {largest} bytes", contained.writable.len()))
}

/// Where a container sees its own limits, in both versions of cgroups.
const MEMORY: [&str; 2] = ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"];
const PROCESSES: [&str; 2] = ["/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"];

/// What is said to be limited must be seen to be: an engine's word alone is not a proof.
fn limited(name: &'static str, files: [&str; 2], most: u64) -> Result<String, Unproven> {
    let found = files.into_iter().find_map(|file| Some((file, fs::read_to_string(file).ok()?)));
    let Some((file, text)) = found else {
        return Err(Unproven::Broken { name, found: "the container does not show its cgroup".to_owned() });
    };
    match text.trim().parse::<u64>() {
        Ok(limit) if limit <= most => Ok(format!("{file} says {limit}")),
        _ => Err(Unproven::Broken { name, found: format!("{file} says {}", text.trim()) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wall::Writable;

    fn contained(workspace: &Path, paths: Vec<(OsString, Access)>) -> Contained {
        Contained {
            uid: 1000,
            gid: 1000,
            kernel: Kernel::Host,
            workspace: workspace.into(),
            writable: vec![Writable { at: "/work space".into(), bytes: 1, on: Ground::Memory }],
            rlimits: Vec::new(),
            paths,
            memory: Some(1),
            processes: Some(1),
            processors: None,
        }
    }

    fn check(line: &str) -> Option<&'static str> {
        wrong_mount(&contained(Path::new("/workspace"), Vec::new()), &Mount::parse(line).unwrap())
    }

    #[test]
    fn only_a_read_only_file_system_or_a_fence_that_was_told_to_closes_a_workspace() {
        let check = |answers: &[i32], fence, expected: &str| {
            let answer = |errno: &i32| match errno {
                0 => Ok(()),
                errno => Err(std::io::Error::from_raw_os_error(*errno)),
            };
            let tried: Vec<_> = answers.iter().map(|errno| (PathBuf::from("/w"), answer(errno))).collect();
            let found = all_closed(&tried, fence).err().unwrap_or_default();
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{answers:?}: {found}");
            assert!(found.is_empty() || found.contains("fs.workspace.mode: review"), "{found}");
        };
        check(&[libc::EROFS], Fenced::No, "");
        check(&[libc::EROFS, libc::EACCES], Fenced::No, "");
        check(&[libc::EACCES, libc::EROFS], Fenced::No, "");
        check(&[libc::EACCES, libc::EACCES], Fenced::Yes, "");
        check(&[libc::EACCES, libc::EACCES], Fenced::No, "cannot be told");
        check(&[libc::EACCES, 0], Fenced::Yes, "can be written");
        check(&[libc::EROFS, 0], Fenced::No, "can be written");
        for other in [libc::EPERM, libc::EEXIST, libc::ENOSPC, libc::EDQUOT, libc::EMFILE, libc::ENOENT] {
            check(&[other], Fenced::Yes, "cannot be told");
        }
        check(&[], Fenced::Yes, "nothing was tried");
    }

    #[test]
    fn a_workspace_that_can_be_written_is_found_behind_names_that_were_left_there_and_nothing_stays() {
        let workspace = tempfile::tempdir().unwrap();
        for number in 0..MOST_TRIED {
            fs::write(workspace.path().join(format!(".probe-{number}")), "left").unwrap();
            fs::create_dir(workspace.path().join(format!("a-{number}"))).unwrap();
        }
        let before = fs::read_dir(workspace.path()).unwrap().count();
        let read_only = vec![("/".into(), Access::ReadOnly)];
        let found = workspace_closed(&contained(workspace.path(), read_only.clone()), None).unwrap_err();
        assert!(found.to_string().contains("can be written"), "{found}");
        assert_eq!(fs::read_dir(workspace.path()).unwrap().count(), before);
        // Where a folder above it may be written, Landlock was not told to close it.
        let above = [read_only, vec![(workspace.path().parent().unwrap().into(), Access::ReadWrite)]].concat();
        assert!(workspace_closed(&contained(workspace.path(), above), Some(6)).is_err());
        let written = vec![(workspace.path().into(), Access::ReadWrite)];
        workspace_closed(&contained(workspace.path(), written), None).unwrap();
        let gone = workspace_closed(&contained(Path::new("/no/such/workspace"), Vec::new()), None);
        assert!(matches!(gone, Err(Unproven::Unreadable { .. })), "{gone:?}");
    }

    #[test]
    fn a_mount_that_is_shared_or_can_be_written_is_found() {
        assert_eq!(check("1 2 0:3 / / ro,relatime master:3 - overlay overlay rw"), None);
        assert_eq!(check("1 2 0:3 / / ro,relatime shared:3 - overlay overlay rw"), Some("is shared with the host"));
        assert_eq!(check("1 2 0:3 / /usr rw,relatime - ext4 /dev/vda rw"), Some("can be written"));
        assert_eq!(check("1 2 0:3 / /work\\040space rw - tmpfs tmpfs rw"), None);
        assert_eq!(check("1 2 0:3 / /proc rw,nosuid - proc proc rw"), None);
        assert_eq!(check("1 2 0:3 /sys /proc/sys rw,nosuid - proc proc rw"), Some("can be written"));
        assert_eq!(check("1 2 0:3 / /sys rw - sysfs sysfs rw"), Some("can be written"));
    }

    #[test]
    fn a_line_that_is_none_of_mountinfo_is_not_passed_over() {
        assert!(Mount::parse("1 2 0:3 / /usr rw ext4").is_none());
        assert!(Mount::parse("").is_none());
    }

    #[test]
    fn devices_are_told_by_their_numbers() {
        let device = |major, minor| is_harmless(rustix::fs::makedev(major, minor), Kernel::Host);
        assert!(device(1, 3) && device(5, 2) && device(136, 7));
        assert!(!device(1, 1) && !device(8, 0) && !device(10, 200) && !device(1, 11));
    }

    #[test]
    fn descriptors_that_are_sockets_are_seen_where_they_can_be_read() {
        use std::os::unix::net::UnixStream;
        use std::process::{Command, Stdio};

        let (ours, theirs) = UnixStream::pair().unwrap();
        let end = || Stdio::from(std::os::fd::OwnedFd::from(theirs.try_clone().unwrap()));
        let mut child = Command::new("cat").stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        drop(theirs);
        let folder = format!("/proc/{}/fd", child.id());
        let opened = rustix::fs::open(format!("{folder}/0"), OFlags::RDONLY, rustix::fs::Mode::empty());
        assert_eq!(opened.unwrap_err(), rustix::io::Errno::NXIO, "the twin: that it cannot be opened proves nothing");
        assert_eq!(named_descriptors(&folder), Some(folder));
        assert_eq!(named_descriptors("/proc/0/fd"), None);
        drop(ours);
        child.wait().unwrap();
    }
}
