//! What is seen inside: a list of entries, put together below a fresh root.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::cover::{mask, show_again};
use super::layer::{Laid, PrivateLayer};
use super::mount_api::{INERT, READ_ONLY, clone_tree, make_private_with, new_file_system};
use super::quota::Quota;
use super::root::Root;
use super::{SetupError, at, inside_path, os_path, os_paths};
use crate::keeper_process::CONTROL;

/// Descriptors below are arranged anew before the view is built.
pub(super) const ABOVE_ARRANGED: i32 = 32;

/// Whether something can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Never.
    ReadOnly,
    /// As its owner permits.
    ReadWrite,
}

/// What becomes of a private layer when nothing runs any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Written {
    /// It is handed to the host, when something was written to it.
    Kept,
    /// Nobody asks for it.
    Forgotten,
}

/// Where something shown comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A path of the host.
    Host(#[serde(with = "os_path")] PathBuf),
    /// A path of the host, if it still leads to what was looked at.
    Pinned {
        /// Where.
        #[serde(with = "os_path")]
        path: PathBuf,
        /// The device that it lies on.
        device: u64,
        /// Its number there.
        inode: u64,
    },
    /// The tree with this number, which was made before.
    Tree(usize),
}

/// One thing inside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Entry {
    /// A folder of the read-only root.
    Folder {
        /// Where.
        #[serde(with = "os_path")]
        at: PathBuf,
    },
    /// A file of the read-only root.
    File {
        /// Where.
        #[serde(with = "os_path")]
        at: PathBuf,
        /// What it says.
        #[serde(with = "crate::bytes")]
        content: Vec<u8>,
    },
    /// A symbolic link of the read-only root.
    Link {
        /// Where.
        #[serde(with = "os_path")]
        at: PathBuf,
        /// To what.
        #[serde(with = "os_path")]
        target: PathBuf,
    },
    /// A folder or file of the host.
    Bind {
        /// What.
        source: Source,
        /// Where.
        #[serde(with = "os_path")]
        at: PathBuf,
        /// Whether it can be written.
        access: Access,
    },
    /// A device of the host; only for the harmless ones.
    Device {
        /// Its name below `/dev`.
        name: String,
    },
    /// An empty folder that can be written, part of the one quota unless it has a size of its own.
    Scratch {
        /// Where.
        #[serde(with = "os_path")]
        at: PathBuf,
        /// Its permissions.
        mode: u32,
        /// Of its own, beside the quota.
        size: Option<u64>,
    },
    /// A folder of the host whose changes go to a private layer, part of the one quota.
    CopyOnWrite {
        /// What.
        source: Source,
        /// Where.
        #[serde(with = "os_path")]
        at: PathBuf,
        /// What of it is not there inside, relative to it.
        #[serde(with = "os_paths")]
        absent: Vec<PathBuf>,
        /// Whether there are changes at all. One that is never written still differs from a bind: the sockets and
        /// pipes in it are not the host's.
        access: Access,
        /// What becomes of the changes.
        written: Written,
    },
    /// Hides what is there: a file becomes an empty one, a folder an empty one, which cannot be read.
    Masked {
        /// Where; it must be there.
        #[serde(with = "os_path")]
        at: PathBuf,
    },
    /// Shows once more what was made before.
    Again {
        /// Where it was made: a file of the read-only root.
        #[serde(with = "os_path")]
        from: PathBuf,
        /// Over what; it must be there.
        #[serde(with = "os_path")]
        at: PathBuf,
    },
    /// The kernel's own view of the processes inside.
    Proc,
    /// Terminals of its own.
    Terminals,
}

/// An entry with its host side opened, while we still are who we are on the host.
pub(super) struct Opened<'a> {
    pub(super) entry: &'a Entry,
    pub(super) tree: Option<OwnedFd>,
}

impl Entry {
    /// Where it is made, when it is one thing at one place of its own.
    pub(super) fn place(&self) -> Option<PathBuf> {
        match self {
            Self::Folder { at }
            | Self::File { at, .. }
            | Self::Link { at, .. }
            | Self::Bind { at, .. }
            | Self::Scratch { at, .. }
            | Self::CopyOnWrite { at, .. } => Some(at.clone()),
            Self::Device { name } => Some(Path::new("/dev").join(name)),
            Self::Proc => Some(PathBuf::from("/proc")),
            Self::Terminals => Some(PathBuf::from("/dev/pts")),
            Self::Masked { .. } | Self::Again { .. } => None,
        }
    }
}

/// Opens what entries take from the host.
pub(super) fn open_sources<'a>(entries: &'a [Entry], trees: &[OwnedFd]) -> Result<Vec<Opened<'a>>, SetupError> {
    entries.iter().map(|entry| Ok(Opened { entry, tree: open_source(entry, trees)? })).collect()
}

fn open_from(source: &Source, trees: &[OwnedFd]) -> Result<OwnedFd, SetupError> {
    match source {
        Source::Host(path) => clone(path),
        Source::Pinned { path, device, inode } => {
            let tree = clone(path)?;
            let stat = rustix::fs::fstat(&tree).map_err(at(format_args!("look at {}", path.display())))?;
            if (stat.st_dev, stat.st_ino) == (*device, *inode) {
                return Ok(tree);
            }
            let step = format!("show {}, which became something else", path.display());
            Err(SetupError::Step { step, source: std::io::ErrorKind::InvalidData.into() })
        }
        Source::Tree(number) => trees
            .get(*number)
            .ok_or(rustix::io::Errno::BADF)
            .and_then(|tree| rustix::io::fcntl_dupfd_cloexec(tree, ABOVE_ARRANGED))
            .map_err(at("show a prepared tree")),
    }
}

fn open_source(entry: &Entry, trees: &[OwnedFd]) -> Result<Option<OwnedFd>, SetupError> {
    let from = |source: &Source| open_from(source, trees);
    match entry {
        Entry::Bind { source, .. } | Entry::CopyOnWrite { source, .. } => from(source).map(Some),
        Entry::Device { name } => {
            let path = Path::new("/dev").join(name);
            clone(&path).map(Some)
        }
        Entry::Folder { .. }
        | Entry::File { .. }
        | Entry::Link { .. }
        | Entry::Scratch { .. }
        | Entry::Masked { .. }
        | Entry::Again { .. }
        | Entry::Proc
        | Entry::Terminals => Ok(None),
    }
}

/// Takes hold of what `entry` shows of the host: from then on it is one of the `trees`. Needs privileges on the host, which
/// whoever raises the wall may have given up by then.
pub fn hold_source(entry: &mut Entry, trees: &mut Vec<OwnedFd>) -> Result<(), SetupError> {
    let (Entry::Bind { source, .. } | Entry::CopyOnWrite { source, .. }) = entry else { return Ok(()) };
    if let Source::Host(path) | Source::Pinned { path, .. } = &*source {
        let path = path.clone();
        let tree = open_from(source, &[])?;
        // A copy of a shared mount is a peer of it: what is laid over it inside would be laid over the host's as well.
        restrict(&path, &tree, 0)?;
        trees.push(tree);
        *source = Source::Tree(trees.len() - 1);
    }
    Ok(())
}

/// Clones out of the way of the numbers that descriptors are arranged at.
fn clone(path: &Path) -> Result<OwnedFd, SetupError> {
    let clear = |tree: OwnedFd| {
        if tree.as_raw_fd() > CONTROL { Ok(tree) } else { rustix::io::fcntl_dupfd_cloexec(&tree, ABOVE_ARRANGED) }
    };
    clone_tree(path).and_then(clear).map_err(at(format_args!("show {}", path.display())))
}

/// Puts `opened` together below `root`. Modes are meant as they are said, so no mask may take from them.
pub(super) fn build(
    root: &mut Root,
    opened: Vec<Opened<'_>>,
    quota: &mut Quota,
) -> Result<Vec<PrivateLayer>, SetupError> {
    let mut layers: Vec<(&Path, PrivateLayer)> = Vec::new();
    for Opened { entry, tree } in opened {
        // The place of what is shown in a folder with a private layer may have to be made there first.
        let within = layers.iter().position(|(at, _)| entry.place().is_some_and(|place| place.starts_with(at)));
        match (entry, tree) {
            (Entry::Folder { at: path }, _) => drop(root.make_folder(&inside_path(path))?),
            (Entry::File { at: path, content }, _) => root.make_file(&inside_path(path), content)?,
            (Entry::Link { at: path, target }, _) => {
                let path = inside_path(path);
                let (parent, name) = root.parent(&path)?;
                rustix::fs::symlinkat(target, &*parent, name).map_err(at(format_args!("link {}", path.display())))?;
            }
            (Entry::Bind { at: path, access, .. }, Some(tree)) => {
                let path = inside_path(path);
                restrict(&path, &tree, INERT | read_only_if(*access))?;
                root.show(&path, &tree, kind_of(&tree)?)?;
            }
            (Entry::Device { name }, Some(tree)) => {
                let path = Path::new("dev").join(name);
                // A device must work, so it is not made inert; the folder that it lies in is read-only.
                restrict(&path, &tree, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)?;
                root.show(&path, &tree, FileType::CharacterDevice)?;
            }
            (Entry::Scratch { at: path, mode, size: Some(size) }, _) => {
                let inodes = (size / 4096).clamp(16, 1 << 20);
                let tree = new_file_system(
                    "tmpfs",
                    &[
                        ("size", &size.to_string()),
                        ("nr_inodes", &inodes.to_string()),
                        ("mode", &format!("{mode:04o}")),
                    ],
                    INERT,
                )
                .map_err(at(format_args!("make a file system for {}", path.display())))?;
                root.show(&inside_path(path), &tree, FileType::Directory)?;
            }
            (Entry::Scratch { at: path, mode, size: None }, _) => {
                let name = quota.folder(*mode)?;
                root.show(&inside_path(path), &quota.clone(&name)?, FileType::Directory)?;
            }
            (Entry::CopyOnWrite { at: path, absent, access, written, .. }, Some(tree)) => {
                let laid = copy_on_write(root, &inside_path(path), &tree, (absent, &[]), *access, quota)?;
                // What is never written is never looked at.
                if *access == Access::ReadWrite {
                    let layer = match absent.as_slice() {
                        [] => PrivateLayer::empty(laid, *written),
                        _ => PrivateLayer::new(laid, *written).map_err(at("look at the private layer"))?,
                    };
                    layers.push((path, layer));
                }
            }
            (Entry::Masked { at: path }, _) => mask(root, &inside_path(path), quota)?,
            (Entry::Again { from, at: path }, _) => show_again(root, &inside_path(from), &inside_path(path))?,
            (Entry::Proc, _) => {
                let tree = new_file_system("proc", &[], INERT | libc::MOUNT_ATTR_NOEXEC).map_err(at("mount /proc"))?;
                root.show(Path::new("proc"), &tree, FileType::Directory)?;
            }
            (Entry::Terminals, _) => {
                let options = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620")];
                let tree = new_file_system("devpts", &options, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)
                    .map_err(at("mount /dev/pts"))?;
                root.show(Path::new("dev/pts"), &tree, FileType::Directory)?;
            }
            (Entry::Bind { .. } | Entry::Device { .. } | Entry::CopyOnWrite { .. }, None) => {
                let step = "show something that was not opened".to_owned();
                return Err(SetupError::Step { step, source: std::io::ErrorKind::NotFound.into() });
            }
        }
        if let Some((_, layer)) = within.and_then(|within| layers.get_mut(within)) {
            layer.look_again().map_err(at("look at the private layer"))?;
        }
    }
    Ok(layers.into_iter().map(|(_, layer)| layer).collect())
}

fn read_only_if(access: Access) -> u64 {
    match access {
        Access::ReadOnly => READ_ONLY,
        Access::ReadWrite => 0,
    }
}

/// Sets what a tree of the host forbids inside, and cuts it off from the host's mounts.
pub(super) fn restrict(path: &Path, tree: &OwnedFd, attributes: u64) -> Result<(), SetupError> {
    make_private_with(tree.as_fd(), attributes)
        .map_err(|source| SetupError::Step { step: format!("restrict {}", path.display()), source })
}

pub(super) fn kind_of(tree: &OwnedFd) -> Result<FileType, SetupError> {
    let stat = rustix::fs::fstat(tree).map_err(at("look at what is shown"))?;
    Ok(FileType::from_raw_mode(stat.st_mode))
}

/// The lower tree is attached where overlay can name it, and stays hidden below the overlay's own place. Of it some paths
/// are absent; the folders of others are given to us, so that something can be made there. Returns the private layer,
/// and what is seen with it.
pub(super) fn copy_on_write(
    root: &mut Root,
    path: &Path,
    lower: &OwnedFd,
    (absent, changed): (&[PathBuf], &[PathBuf]),
    access: Access,
    quota: &mut Quota,
) -> Result<Laid, SetupError> {
    restrict(path, lower, INERT | READ_ONLY)?;
    let stat = rustix::fs::fstat(lower).map_err(at("look at what is laid over"))?;
    root.show(path, lower, FileType::from_raw_mode(stat.st_mode))?;
    let upper = quota.folder(stat.st_mode & 0o7777)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let upper_folder =
        rustix::fs::openat(&quota.tree, &upper, flags, Mode::empty()).map_err(at("open the private layer"))?;
    for path in changed {
        raise_folders(lower.as_fd(), upper_folder.as_fd(), path)?;
    }
    for path in absent {
        take_away(lower.as_fd(), upper_folder.as_fd(), path)?;
    }
    let work = quota.folder(0o755)?;
    let in_quota = |name: &Path| match &quota.path {
        None => format!("/proc/self/fd/{}/{}", quota.tree.as_raw_fd(), name.display()),
        Some(path) => path.join(name).display().to_string(),
    };
    let lower_named = match &quota.path {
        // By its descriptor: overlay would take a colon in a path for the end of it.
        None => format!("/proc/self/fd/{}", lower.as_raw_fd()),
        Some(_) => named_for_overlay(path)?,
    };
    let options = [
        ("lowerdir", lower_named),
        ("upperdir", in_quota(&upper)),
        ("workdir", in_quota(&work)),
        ("userxattr", String::new()),
    ];
    let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let tree = new_file_system("overlay", &options, INERT | read_only_if(access))
        .map_err(at(format_args!("lay a private layer over {}", path.display())))?;
    root.attach_over(path, &tree)?;
    Ok(Laid { upper: upper_folder, merged: tree })
}

/// The place of a lower tree that was just attached, as overlay takes it.
fn named_for_overlay(path: &Path) -> Result<String, SetupError> {
    let text = path.to_str().filter(|text| !text.contains([':', ',', '\\', '"']));
    let text = text.ok_or(rustix::io::Errno::INVAL);
    let text = text.map_err(at(format_args!("lay a private layer over {}: use a plainer path", path.display())))?;
    Ok(format!("/{text}"))
}

/// Makes `path` of the lower folder be absent, by a mark for overlay in the upper one.
fn take_away(lower: BorrowedFd<'_>, upper: BorrowedFd<'_>, path: &Path) -> Result<(), SetupError> {
    let closed = raise_folders(lower, upper, path)?;
    let gone = closed.as_deref().unwrap_or(path);
    if closed.is_some() {
        // A folder on the way that we may not enter goes as a whole; it was just made in the upper one.
        rustix::fs::unlinkat(upper, gone, rustix::fs::AtFlags::REMOVEDIR)
            .map_err(at(format_args!("take {} away", gone.display())))?;
    }
    rustix::fs::mknodat(upper, gone, rustix::fs::FileType::CharacterDevice, Mode::empty(), 0)
        .map_err(at(format_args!("take {} away", gone.display())))
}

/// Makes the folders above `path`, as far as the lower folder has them, in the upper one, where they are ours. Overlay
/// would make them the lower owner's, who may be nobody inside. Returns the first that may not be entered, if there is one.
fn raise_folders(lower: BorrowedFd<'_>, upper: BorrowedFd<'_>, path: &Path) -> Result<Option<PathBuf>, SetupError> {
    let step = || format!("prepare the folder of {}", path.display());
    let mut folder = PathBuf::new();
    for part in path.parent().map(Path::components).into_iter().flatten() {
        let above = folder.clone();
        folder.push(part);
        let stat = match rustix::fs::statat(lower, &folder, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(rustix::io::Errno::ACCESS) if !above.as_os_str().is_empty() => return Ok(Some(above)),
            stat => stat.map_err(at(step()))?,
        };
        if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::Directory {
            return Err(at(step())(rustix::io::Errno::NOTDIR));
        }
        let mode = Mode::from_raw_mode(stat.st_mode & 0o7777);
        match rustix::fs::mkdirat(upper, &folder, mode) {
            Ok(()) => {
                rustix::fs::chmodat(upper, &folder, mode, rustix::fs::AtFlags::empty()).map_err(at(step()))?;
            }
            Err(rustix::io::Errno::EXIST) => {}
            Err(errno) => return Err(at(step())(errno)),
        }
    }
    Ok(None)
}
