//! What a program sees: a system to work with, the workspace, nothing else of the host.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_linux::kernel_file;
use ringfence_linux::wall::{self, Access, Entry, HOME, Identity, OwnerMap, Source, Written};
use ringfence_policy::{Glob, Mount, MountMode, Sourced};
use rustix::fs::FileType;

use super::live::{Live, LiveFolder};
use super::pinned::Pinned;
use super::{StartError, deny, wall_error};
use crate::backend::inside::Scene;
use crate::plan::Plan;
use crate::request::{InputFile, Work};
use crate::state::StateFolder;

/// Folders of the system; on most hosts all but the first are links into it.
pub(in crate::backend) const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// What programs need of `/etc` and holds no secret.
pub(in crate::backend) const FROM_ETC: [&str; 4] =
    ["/etc/alternatives", "/etc/ssl/certs", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted"];
/// Likewise, single files.
const FILES_FROM_ETC: [&str; 3] = ["/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ssl/openssl.cnf"];
/// So long the host's system is believed to look as it did.
pub(super) const BELIEVED: Duration = Duration::from_secs(1);
const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// What `/proc` tells about the host, and not about the processes inside: keys that the host's user holds, and where the
/// kernel lies.
const MASKED: [&str; 2] = ["/proc/keys", "/proc/kallsyms"];

/// The system part of the view: the host's, and what is ours in every view.
pub(super) fn system(identity: Identity) -> Vec<Entry> {
    with_ours(system_of_host(), identity)
}

/// Likewise, of a host that looks as it did a moment ago.
pub(super) fn system_lately(identity: Identity) -> Vec<Entry> {
    static LATELY: Mutex<Option<(Instant, Vec<Entry>)>> = Mutex::new(None);
    let mut lately = LATELY.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, entries) = match lately.take() {
        Some(found) if found.0.elapsed() < BELIEVED => lately.insert(found),
        _ => lately.insert((Instant::now(), system_of_host())),
    };
    with_ours(entries.clone(), identity)
}

fn with_ours(mut system: Vec<Entry>, identity: Identity) -> Vec<Entry> {
    system.extend(own(identity));
    system.push(Entry::Link { at: "/var/tmp".into(), target: "/tmp".into() });
    system
}

fn system_of_host() -> Vec<Entry> {
    let mut entries = Vec::new();
    for path in SYSTEM {
        entries.extend(as_on_host(Path::new(path)));
    }
    entries.extend(FROM_ETC.iter().filter(|path| Path::new(path).is_dir()).map(|path| read_only(Path::new(path))));
    entries
        .extend(FILES_FROM_ETC.iter().filter(|path| Path::new(path).is_file()).map(|path| read_only(Path::new(path))));
    entries.extend(settings_of_java().iter().map(|path| read_only(path)));
    if let Ok(target) = fs::read_link("/etc/localtime") {
        entries.push(Entry::Link { at: "/etc/localtime".into(), target });
    }
    entries
}

/// Folders of `/etc` such as `java-17-openjdk`: on Debian, Java has its settings there, and knows no TLS without them. They are
/// called like the folders of the versions, such as `java-17-openjdk-amd64`, which are few: `/etc` need not be read.
fn settings_of_java() -> Vec<PathBuf> {
    let Ok(versions) = fs::read_dir("/usr/lib/jvm") else { return Vec::new() };
    let settings = |version: fs::DirEntry| {
        let name = version.file_name();
        let (name, _architecture) = name.to_str()?.rsplit_once('-')?;
        name.starts_with("java-").then(|| Path::new("/etc").join(name)).filter(|path| path.is_dir())
    };
    let mut folders: Vec<PathBuf> = versions.flatten().filter_map(settings).collect();
    // A view that was begun is compared with the one that is wanted.
    folders.sort_unstable();
    folders.dedup();
    folders
}

/// What is ours in every view, whatever system it shows.
pub(super) fn own(identity: Identity) -> Vec<Entry> {
    let mut entries = Vec::new();
    let (uid, gid) = (identity.uid, identity.gid);
    let file = |at: &str, content: String| Entry::File { at: at.into(), content: content.into_bytes() };
    entries.extend([
        file("/etc/passwd", format!("root:x:0:0:root:/nonexistent:/bin/false\nagent:x:{uid}:{gid}:agent:{HOME}:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n")),
        file("/etc/group", format!("root:x:0:\nagent:x:{gid}:\nnogroup:x:65534:\n")),
        file("/etc/hosts", "127.0.0.1 localhost sandbox\n::1 localhost\n".to_owned()),
        file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n".to_owned()),
        file("/etc/hostname", "sandbox\n".to_owned()),
        // Where there is a network, our proxy answers there. No name is ever completed.
        file("/etc/resolv.conf", "nameserver 127.0.0.1\noptions ndots:0\n".to_owned()),
    ]);
    entries.extend(DEVICES.map(|name| Entry::Device { name: name.to_owned() }));
    entries.push(Entry::Terminals);
    let link = |at: &str, target: &str| Entry::Link { at: at.into(), target: target.into() };
    entries.extend([
        link("/dev/ptmx", "pts/ptmx"),
        link("/dev/fd", "/proc/self/fd"),
        link("/dev/stdin", "/proc/self/fd/0"),
        link("/dev/stdout", "/proc/self/fd/1"),
        link("/dev/stderr", "/proc/self/fd/2"),
        Entry::Proc,
        Entry::Scratch { at: "/tmp".into(), mode: 0o1777, size: None },
        Entry::Scratch { at: "/dev/shm".into(), mode: 0o1777, size: None },
        Entry::Scratch { at: HOME.into(), mode: 0o700, size: None },
    ]);
    entries.extend(MASKED.iter().filter(|path| Path::new(path).exists()).map(|path| Entry::Masked { at: path.into() }));
    entries
}

/// A folder as the host has it, or the same link.
fn as_on_host(path: &Path) -> Option<Entry> {
    let metadata = path.symlink_metadata().ok()?;
    if metadata.is_symlink() {
        let target = fs::read_link(path).ok()?;
        return Some(Entry::Link { at: path.to_owned(), target });
    }
    metadata.is_dir().then(|| read_only(path))
}

pub(super) fn read_only(path: &Path) -> Entry {
    Entry::Bind { source: Source::Host(path.to_owned()), at: path.to_owned(), access: Access::ReadOnly }
}

/// What of the host was taken hold of.
#[derive(Debug, Default)]
pub(in crate::backend) struct Trees {
    /// What entries name by their number.
    pub(in crate::backend) held: Vec<OwnedFd>,
    /// Each is waited for when it is dropped, for which there is time when the guest works.
    maps: Vec<OwnerMap>,
    /// What stays the host's own behind the wall.
    live: Vec<LiveFolder>,
    /// What was looked at to be shown, in order.
    seen: Vec<Seen>,
    /// How many would be held, where a look is enough.
    only_counted: Option<usize>,
}

/// Something of the host that was looked at. As long as a wall shows it, nothing else can be the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::backend) struct Seen {
    device: u64,
    inode: u64,
    mode: u32,
    owner: (u32, u32),
}

impl Seen {
    /// What `path` leads to.
    pub(in crate::backend) fn at(path: &Path) -> Option<Self> {
        rustix::fs::stat(path).ok().map(|stat| Self::of(&stat))
    }

    pub(super) fn of(stat: &rustix::fs::Stat) -> Self {
        Self { device: stat.st_dev, inode: stat.st_ino, mode: stat.st_mode, owner: (stat.st_uid, stat.st_gid) }
    }
}

impl Trees {
    /// For a look at what would be shown, to be compared with what is: nothing is held.
    pub(in crate::backend) fn only_counted() -> Self {
        Self { only_counted: Some(0), ..Self::default() }
    }

    /// What was looked at to be shown: by those who hold it, and by the paths of `entries` alone. What is not there is never the same.
    pub(in crate::backend) fn all_seen<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> Vec<Option<Seen>> {
        let by_path = entries.filter_map(|entry| match entry {
            Entry::Bind { source, .. } | Entry::CopyOnWrite { source, .. } => match source {
                Source::Host(path) | Source::Pinned { path, .. } => Some(Seen::at(path)),
                Source::Tree(_) => None,
            },
            _ => None,
        });
        self.seen.iter().cloned().map(Some).chain(by_path).collect()
    }

    /// What stays the host's own behind the wall, where `deny` names something.
    pub(in crate::backend) fn live(&mut self, deny: &[Sourced<Glob>], state: &StateFolder) -> Option<Arc<Live>> {
        Live::new(std::mem::take(&mut self.live), deny, state).map(Arc::new)
    }

    pub(super) fn add_live(
        &mut self,
        folder: &Pinned,
        at: Option<&Path>,
        absent: &[PathBuf],
    ) -> Result<(), StartError> {
        // Where something is taken away, the folders above it are shown as they are now, whatever becomes of them.
        let above = absent.iter().flat_map(|path| path.ancestors().skip(1)).filter(|path| !path.as_os_str().is_empty());
        let above: BTreeSet<&Path> = above.collect();
        self.seen.extend(above.into_iter().filter_map(|path| Seen::at(&folder.path().join(path))));
        let folder = LiveFolder::below_a_layer(folder, at, absent.to_vec());
        self.live.push(folder.map_err(|error| wall_error("hold a folder that is shown", &error))?);
        Ok(())
    }
}

/// Where an entry is made.
pub(super) fn place_of(entry: &Entry) -> Option<&Path> {
    match entry {
        Entry::Folder { at }
        | Entry::File { at, .. }
        | Entry::Link { at, .. }
        | Entry::Bind { at, .. }
        | Entry::Scratch { at, .. }
        | Entry::CopyOnWrite { at, .. } => Some(at),
        Entry::Device { .. } | Entry::Masked { .. } | Entry::Again { .. } | Entry::Proc | Entry::Terminals => None,
    }
}

/// Hides the workspace and the state folder where `entries`, folders of the host, would show them: a second time with what is
/// denied in it, or at all. What is at the workspace's `own` place is covered by itself.
pub(in crate::backend) fn hide(
    entries: &mut [Entry],
    workspace: &Path,
    own: &Path,
    state: &StateFolder,
) -> Result<Vec<Entry>, StartError> {
    let state = state.path().canonicalize().map_err(|error| wall_error("find the state folder", &error))?;
    let mut masks = Vec::new();
    for entry in entries {
        let (at, path) = match &*entry {
            Entry::Bind { source: Source::Host(path) | Source::Pinned { path, .. }, at, .. }
            | Entry::CopyOnWrite { source: Source::Host(path) | Source::Pinned { path, .. }, at, .. } => {
                (at.clone(), path)
            }
            _ => continue,
        };
        let shown = path.canonicalize().map_err(|error| wall_error("look at what is shown", &error))?;
        for hidden in [workspace, &state] {
            let Ok(below) = hidden.strip_prefix(&shown) else { continue };
            let is_whole = below.as_os_str().is_empty();
            match entry {
                // Shown once more as a whole, its own rules hold there too.
                Entry::CopyOnWrite { .. } if is_whole && hidden == workspace => {}
                Entry::CopyOnWrite { absent, .. } if !is_whole => {
                    absent.retain(|known| !known.starts_with(below));
                    if !absent.iter().any(|known| below.starts_with(known)) {
                        absent.push(below.to_owned());
                    }
                }
                Entry::CopyOnWrite { .. } => {
                    let why = format!("{} cannot be shown at {}: it holds the ledger", shown.display(), at.display());
                    return Err(StartError::Wall(super::WallError(why)));
                }
                _ if at.join(below) == own => {}
                _ => masks.push(Entry::Masked { at: at.join(below) }),
            }
        }
    }
    Ok(masks)
}

/// What is mounted below a folder would be missing inside, and what it covers be seen.
pub(super) fn no_mounts_below(folder: &Path, what: &str) -> Result<(), StartError> {
    let mounts = kernel_file::read("/proc/self/mountinfo").map_err(|error| wall_error("read the mounts", &error))?;
    // The fifth field is where it is mounted; spaces and the like are written as octal numbers.
    let places = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    for place in places {
        if place != folder && place.starts_with(folder) {
            return Err(StartError::Wall(super::WallError(format!(
                "something is mounted below {what}, at {}: unmount it, or name another folder{}",
                place.display(),
                if what == "the workspace" { " with --workspace" } else { "" }
            ))));
        }
    }
    Ok(())
}

fn unescape(field: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let octal = after.first_chunk::<3>().filter(|_| *first == b'\\');
        match octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Holds a folder or file of the host.
pub(super) fn pin(path: &Path) -> Result<Pinned, StartError> {
    Pinned::open(path).map_err(|source| StartError::WorkingDirectory { path: path.to_owned(), source })
}

/// A folder of the host. Root's files must be the program's files inside, although the program is not root outside.
pub(super) fn source(folder: &Pinned, identity: Identity, trees: &mut Trees) -> Result<Source, StartError> {
    trees.seen.push(folder.seen());
    if !rustix::process::geteuid().is_root() {
        return Ok(folder.source());
    }
    if let Some(counted) = &mut trees.only_counted {
        *counted += 1;
        return Ok(Source::Tree(*counted - 1));
    }
    let mapping = wall::user_namespace(folder.owner(), (identity.host_uid, identity.host_gid))
        .map_err(|error| wall_error("map the owner of a folder", &error))?;
    let tree = wall::idmapped_tree(&folder.held(), mapping.as_fd())
        .map_err(|error| wall_error("show a folder's files as the program's own", &error))?;
    trees.held.push(tree);
    trees.maps.push(mapping);
    Ok(Source::Tree(trees.held.len() - 1))
}

/// What the policy denies in a folder of the host, by its place in the folder or in the workspace; nothing when the whole
/// folder is denied there.
pub(super) fn denied_in(
    folder: &Pinned,
    deny: &[Sourced<Glob>],
    workspace: &Path,
) -> Result<Option<Vec<PathBuf>>, StartError> {
    let mut absent = deny::find_in(folder, deny, None)?;
    let Ok(below) = folder.path().strip_prefix(workspace) else { return Ok(Some(absent)) };
    for path in deny::find(workspace, deny, None)? {
        if below.starts_with(&path) {
            return Ok(None);
        }
        if let Ok(path) = path.strip_prefix(below)
            && !absent.iter().any(|known| path.starts_with(known))
        {
            absent.retain(|known| !known.starts_with(path));
            absent.push(path.to_owned());
        }
    }
    Ok(Some(absent))
}

/// The policy's further mounts.
pub(in crate::backend) fn mounts(scene: Scene<'_>, trees: &mut Trees) -> Result<Vec<Entry>, StartError> {
    scene.policy.fs.mounts.iter().map(|mount| entry_for(scene, &mount.value, trees)).collect()
}

/// Packages that were fetched for the workspace. Plain binds: what is in them was looked at file by file.
pub(in crate::backend) fn caches(scene: Scene<'_>, state: &StateFolder) -> Result<Vec<Entry>, StartError> {
    let mounts = crate::cache::mounts(scene.policy, scene.workspace, state)?;
    let entry =
        |(host, at): (PathBuf, PathBuf)| Ok(Entry::Bind { source: pin(&host)?.source(), at, access: Access::ReadOnly });
    mounts.into_iter().map(entry).collect()
}

fn entry_for(scene: Scene<'_>, mount: &Mount, trees: &mut Trees) -> Result<Entry, StartError> {
    let (host, at, mode) = match mount {
        Mount::Tmpfs { tmpfs, size } => {
            return Ok(Entry::Scratch { at: tmpfs.as_path().to_owned(), mode: 0o1777, size: Some(size.get()) });
        }
        Mount::Host { host, at, mode } => (host, at.as_path().to_owned(), *mode),
    };
    let refuse = |why: String| StartError::Wall(super::WallError(why));
    let path = scene.workspace.join(host.as_path());
    let path = path.canonicalize().map_err(|source| StartError::WorkingDirectory { path, source })?;
    // What is named below the workspace lies in it: a link there is the project's, not the policy's.
    if host.as_path().is_relative() && !path.starts_with(scene.workspace) {
        return Err(refuse(format!("the mount {} leads out of the workspace, to {}", host.as_str(), path.display())));
    }
    // A link may lead to what was refused by name.
    ringfence_policy::check_source(&path).map_err(|invalid| refuse(invalid.message))?;
    let pinned = pin(&path)?;
    let source = pinned.source();
    match (mode, pinned.kind()) {
        (MountMode::ReadWrite, _) => Ok(Entry::Bind { source, at, access: Access::ReadWrite }),
        // Not a bind: a socket of a host's service in it would answer.
        (MountMode::ReadOnly, FileType::Directory) => {
            let denied = || refuse(format!("`fs.deny` denies {}, so it cannot be mounted", path.display()));
            let absent = denied_in(&pinned, &scene.policy.fs.deny, scene.workspace)?.ok_or_else(denied)?;
            trees.add_live(&pinned, Some(&at), &absent)?;
            Ok(Entry::CopyOnWrite { source, at, absent, access: Access::ReadOnly, written: Written::Forgotten })
        }
        (MountMode::ReadOnly, FileType::RegularFile) => Ok(Entry::Bind { source, at, access: Access::ReadOnly }),
        (MountMode::ReadOnly, _) => Err(refuse(format!("{} is neither a folder nor a file", path.display()))),
    }
}

/// What a later entry puts at the same place is there instead of an earlier one.
pub(in crate::backend) fn without_replaced(entries: Vec<Entry>) -> Vec<Entry> {
    let targets: Vec<Option<PathBuf>> = entries
        .iter()
        .map(|entry| match entry {
            Entry::Scratch { at, .. } | Entry::Bind { at, .. } | Entry::CopyOnWrite { at, .. } => Some(at.clone()),
            _ => None,
        })
        .collect();
    entries
        .into_iter()
        .enumerate()
        .filter(|(index, _)| {
            let target = targets.get(*index).and_then(Option::as_ref);
            target.is_none() || !targets.iter().skip(index + 1).any(|later| later.as_ref() == target)
        })
        .map(|(_, entry)| entry)
        .collect()
}

/// Code and files of the request, in a folder of the read-only root.
pub(super) fn files(plan: &Plan, folder: &Path) -> Vec<Entry> {
    let mut entries: Vec<Entry> = plan
        .files()
        .iter()
        .map(|InputFile { path, content }| Entry::File { at: folder.join(path), content: content.clone() })
        .collect();
    if let Work::Code { language, source, name, .. } = plan.work() {
        let name = name.as_deref().unwrap_or(language.default_file_name());
        entries.push(Entry::File { at: folder.join(name), content: source.clone() });
    }
    entries
}

/// The second fence: everything that is shown may be read, and only this may be written.
pub(super) fn writable_paths(entries: &[Entry]) -> Vec<(OsString, Access)> {
    let writable = entries.iter().filter_map(|entry| match entry {
        Entry::Bind { at, access: Access::ReadWrite, .. }
        | Entry::Scratch { at, .. }
        | Entry::CopyOnWrite { at, access: Access::ReadWrite, .. } => Some(at.clone()),
        Entry::Device { name } => Some(Path::new("/dev").join(name)),
        Entry::Proc => Some(PathBuf::from("/proc")),
        Entry::Terminals => Some(PathBuf::from("/dev/pts")),
        Entry::Folder { .. }
        | Entry::File { .. }
        | Entry::Link { .. }
        | Entry::Masked { .. }
        | Entry::Again { .. }
        | Entry::Bind { access: Access::ReadOnly, .. }
        | Entry::CopyOnWrite { access: Access::ReadOnly, .. } => None,
    });
    let mut paths = vec![(OsString::from("/"), Access::ReadOnly)];
    paths.extend(writable.map(|path| (path.into_os_string(), Access::ReadWrite)));
    paths
}
