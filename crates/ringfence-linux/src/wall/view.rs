//! What is seen inside: a list of entries, put together below a fresh root.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use serde::{Deserialize, Serialize};

use super::layer::PrivateLayer;
use super::mount_api::{INERT, READ_ONLY, attach, clone_tree, new_file_system, set_attributes};
use super::{SetupError, at, inside_path, os_path, os_paths};

/// Descriptors below are arranged anew before the view is built.
pub(super) const ABOVE_ARRANGED: i32 = 32;

/// How names are looked up while the view is put together.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// Whether something can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Never.
    ReadOnly,
    /// As its owner permits.
    ReadWrite,
}

/// Where something shown comes from.
#[derive(Debug, Serialize, Deserialize)]
pub enum Source {
    /// A path of the host.
    Host(#[serde(with = "os_path")] PathBuf),
    /// The tree with this number, which was made before.
    Tree(usize),
}

/// One thing inside.
#[derive(Debug, Serialize, Deserialize)]
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
    },
    /// Hides what is there: a file becomes an empty one, a folder an empty one, which cannot be read.
    Masked {
        /// Where; it must be there.
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
            Self::Masked { .. } => None,
        }
    }
}

/// Opens what entries take from the host.
pub(super) fn open_sources<'a>(entries: &'a [Entry], trees: &[OwnedFd]) -> Result<Vec<Opened<'a>>, SetupError> {
    entries.iter().map(|entry| Ok(Opened { entry, tree: open_source(entry, trees)? })).collect()
}

fn open_source(entry: &Entry, trees: &[OwnedFd]) -> Result<Option<OwnedFd>, SetupError> {
    let from = |source: &Source| match source {
        Source::Host(path) => clone(path),
        Source::Tree(number) => trees
            .get(*number)
            .ok_or(rustix::io::Errno::BADF)
            .and_then(|tree| rustix::io::fcntl_dupfd_cloexec(tree, ABOVE_ARRANGED))
            .map_err(at("show a prepared tree")),
    };
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
        | Entry::Proc
        | Entry::Terminals => Ok(None),
    }
}

/// Clones out of the way of the numbers that descriptors are arranged at.
fn clone(path: &Path) -> Result<OwnedFd, SetupError> {
    clone_tree(path)
        .and_then(|tree| rustix::io::fcntl_dupfd_cloexec(&tree, ABOVE_ARRANGED).map_err(std::io::Error::from))
        .map_err(|source| SetupError::Step { step: format!("show {}", path.display()), source })
}

/// The one file system that holds all that can be written.
pub(super) struct Quota {
    tree: OwnedFd,
    used: u32,
}

impl Quota {
    pub(super) fn new(bytes: u64, files: u64) -> Result<Self, SetupError> {
        let tree = new_file_system(
            "tmpfs",
            &[("size", &bytes.to_string()), ("nr_inodes", &files.max(16).to_string()), ("mode", "0755")],
            INERT,
        )
        .map_err(at("make the file system for all that can be written"))?;
        Ok(Self { tree, used: 0 })
    }

    pub(super) fn tree(&self) -> &OwnedFd {
        &self.tree
    }

    /// A new folder of it.
    fn folder(&mut self, mode: u32) -> Result<(PathBuf, OwnedFd), SetupError> {
        let name = PathBuf::from(self.used.to_string());
        self.used += 1;
        rustix::fs::mkdirat(&self.tree, &name, Mode::from_raw_mode(0o755)).map_err(at("make a folder in the quota"))?;
        rustix::fs::chmodat(&self.tree, &name, Mode::from_raw_mode(mode), rustix::fs::AtFlags::empty())
            .map_err(at("set the mode of a folder in the quota"))?;
        let folder = open_folder(self.tree.as_fd(), &name)?;
        Ok((name, folder))
    }
}

/// Puts `opened` together below `root`.
pub(super) fn build(
    root: BorrowedFd<'_>,
    opened: Vec<Opened<'_>>,
    quota: &mut Quota,
) -> Result<Vec<PrivateLayer>, SetupError> {
    let mut layers = Vec::new();
    // Overlay needs its layers as paths: the quota is attached where it can be named, and taken away at the end.
    make_folder(root, Path::new(".quota"))?;
    attach_at(root, Path::new(".quota"), &quota.tree)?;
    for Opened { entry, tree } in opened {
        match (entry, tree) {
            (Entry::Folder { at: path }, _) => make_folder(root, &inside_path(path))?,
            (Entry::File { at: path, content }, _) => make_file(root, &inside_path(path), content)?,
            (Entry::Link { at: path, target }, _) => {
                let path = inside_path(path);
                let (parent, name) = open_parent(root, &path)?;
                rustix::fs::symlinkat(target, &parent, name).map_err(at(format_args!("link {}", path.display())))?;
            }
            (Entry::Bind { at: path, access, .. }, Some(tree)) => {
                bind(root, &inside_path(path), &tree, INERT | read_only_if(*access))?;
            }
            (Entry::Device { name }, Some(tree)) => {
                // A device must work, so it is not made inert; the folder that it lies in is read-only.
                bind(root, &Path::new("dev").join(name), &tree, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)?;
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
                bind(root, &inside_path(path), &tree, INERT)?;
            }
            (Entry::Scratch { at: path, mode, size: None }, _) => {
                let (name, _folder) = quota.folder(*mode)?;
                let tree = clone_below(root, &Path::new(".quota").join(name))?;
                bind(root, &inside_path(path), &tree, INERT)?;
            }
            (Entry::CopyOnWrite { at: path, absent, access, .. }, Some(tree)) => {
                layers.push(copy_on_write(root, &inside_path(path), &tree, (absent, &[]), *access, quota)?);
            }
            (Entry::Masked { at: path }, _) => mask(root, &inside_path(path))?,
            (Entry::Proc, _) => {
                make_folder(root, Path::new("proc"))?;
                let tree = new_file_system("proc", &[], INERT | libc::MOUNT_ATTR_NOEXEC).map_err(at("mount /proc"))?;
                attach_at(root, Path::new("proc"), &tree)?;
            }
            (Entry::Terminals, _) => {
                make_folder(root, Path::new("dev/pts"))?;
                let options = [("newinstance", ""), ("ptmxmode", "0666"), ("mode", "0620")];
                let tree = new_file_system("devpts", &options, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)
                    .map_err(at("mount /dev/pts"))?;
                attach_at(root, Path::new("dev/pts"), &tree)?;
            }
            (Entry::Bind { .. } | Entry::Device { .. } | Entry::CopyOnWrite { .. }, None) => {
                let step = "show something that was not opened".to_owned();
                return Err(SetupError::Step { step, source: std::io::ErrorKind::NotFound.into() });
            }
        }
    }
    Ok(layers)
}

fn read_only_if(access: Access) -> u64 {
    match access {
        Access::ReadOnly => READ_ONLY,
        Access::ReadWrite => 0,
    }
}

fn bind(root: BorrowedFd<'_>, path: &Path, tree: &OwnedFd, attributes: u64) -> Result<(), SetupError> {
    set_attributes(tree.as_fd(), attributes)
        .map_err(|source| SetupError::Step { step: format!("restrict {}", path.display()), source })?;
    make_target(root, path, tree)?;
    attach_at(root, path, tree)
}

pub(super) fn attach_at(root: BorrowedFd<'_>, path: &Path, tree: &OwnedFd) -> Result<(), SetupError> {
    let target = find(root, path)?;
    attach(tree.as_fd(), target.as_fd()).map_err(at(format_args!("attach {}", path.display())))
}

/// What is at `path`. A link on the way is refused: below the workspace the names are a program's, and until our root
/// is changed an absolute link would lead to the host's files.
pub(super) fn find(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, SetupError> {
    rustix::fs::openat2(root, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), INSIDE)
        .map_err(at(format_args!("find {}", path.display())))
}

/// The lower tree is attached where overlay can name it, and stays hidden below the overlay's own place. Of it some paths
/// are absent; the folders of others are given to us, so that something can be made there.
pub(super) fn copy_on_write(
    root: BorrowedFd<'_>,
    path: &Path,
    lower: &OwnedFd,
    (absent, changed): (&[PathBuf], &[PathBuf]),
    access: Access,
    quota: &mut Quota,
) -> Result<PrivateLayer, SetupError> {
    bind(root, path, lower, INERT | READ_ONLY)?;
    let mode = rustix::fs::fstat(lower).map_err(at("look at what is laid over"))?.st_mode & 0o7777;
    let (upper, upper_folder) = quota.folder(mode)?;
    for path in changed {
        raise_folders(lower.as_fd(), upper_folder.as_fd(), path)?;
    }
    for path in absent {
        take_away(lower.as_fd(), upper_folder.as_fd(), path)?;
    }
    let (work, _folder) = quota.folder(0o755)?;
    let in_quota = |name: &Path| format!("/proc/self/fd/{}/.quota/{}", root.as_raw_fd(), name.display());
    let options = [
        // By its descriptor: overlay would take a colon in a path for the end of it.
        ("lowerdir", format!("/proc/self/fd/{}", lower.as_raw_fd())),
        ("upperdir", in_quota(&upper)),
        ("workdir", in_quota(&work)),
        ("userxattr", String::new()),
    ];
    let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let tree = new_file_system("overlay", &options, INERT | read_only_if(access))
        .map_err(at(format_args!("lay a private layer over {}", path.display())))?;
    attach_at(root, path, &tree)?;
    // Out of the way of the numbers that descriptors are arranged at.
    rustix::io::fcntl_dupfd_cloexec(&upper_folder, ABOVE_ARRANGED)
        .and_then(PrivateLayer::new)
        .map_err(at("look at the private layer"))
}

/// Makes `path` of the lower folder be absent, by a mark for overlay in the upper one.
fn take_away(lower: BorrowedFd<'_>, upper: BorrowedFd<'_>, path: &Path) -> Result<(), SetupError> {
    raise_folders(lower, upper, path)?;
    rustix::fs::mknodat(upper, path, rustix::fs::FileType::CharacterDevice, Mode::empty(), 0)
        .map_err(at(format_args!("take {} away", path.display())))
}

/// Makes the folders above `path`, as far as the lower folder has them, in the upper one, where they are ours. Overlay
/// would make them the lower owner's, who may be nobody inside.
fn raise_folders(lower: BorrowedFd<'_>, upper: BorrowedFd<'_>, path: &Path) -> Result<(), SetupError> {
    let step = || format!("prepare the folder of {}", path.display());
    let mut folder = PathBuf::new();
    for part in path.parent().map(Path::components).into_iter().flatten() {
        folder.push(part);
        let stat = match rustix::fs::statat(lower, &folder, rustix::fs::AtFlags::SYMLINK_NOFOLLOW) {
            Err(rustix::io::Errno::NOENT) => return Ok(()),
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
    Ok(())
}

/// Puts nothing over what is there.
fn mask(root: BorrowedFd<'_>, path: &Path) -> Result<(), SetupError> {
    let found = find(root, path)?;
    let stat = rustix::fs::fstat(&found).map_err(at(format_args!("look at {} to mask it", path.display())))?;
    let is_folder = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
    let empty = Path::new(if is_folder { ".masked/folder" } else { ".masked/file" });
    let tree = clone_below(root, empty)?;
    set_attributes(tree.as_fd(), INERT | READ_ONLY | libc::MOUNT_ATTR_NOEXEC)
        .map_err(|source| SetupError::Step { step: format!("restrict the mask of {}", path.display()), source })?;
    attach(tree.as_fd(), found.as_fd()).map_err(at(format_args!("mask {}", path.display())))
}

fn clone_below(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, SetupError> {
    rustix::mount::open_tree(
        root,
        path,
        rustix::mount::OpenTreeFlags::OPEN_TREE_CLONE | rustix::mount::OpenTreeFlags::OPEN_TREE_CLOEXEC,
    )
    .map_err(at(format_args!("take {} from the root", path.display())))
}

fn open_folder(root: BorrowedFd<'_>, path: &Path) -> Result<OwnedFd, SetupError> {
    rustix::fs::openat(root, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(at(format_args!("open {}", path.display())))
}

/// A folder or a file, as `tree` is one, to attach it to.
fn make_target(root: BorrowedFd<'_>, path: &Path, tree: &OwnedFd) -> Result<(), SetupError> {
    let stat = rustix::fs::fstat(tree).map_err(at(format_args!("look at what is shown at {}", path.display())))?;
    match rustix::fs::FileType::from_raw_mode(stat.st_mode) {
        rustix::fs::FileType::Directory => make_folder(root, path),
        _ => {
            let (parent, name) = open_parent(root, path)?;
            // One that is there may be read-only, and need not be a plain file: it is only covered.
            let there = rustix::fs::statat(&parent, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok();
            if there { Ok(()) } else { make_file(root, path, b"") }
        }
    }
}

pub(super) fn make_folder(root: BorrowedFd<'_>, path: &Path) -> Result<(), SetupError> {
    let (parent, name) = open_parent(root, path)?;
    match rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(errno) => Err(at(format_args!("make the folder {}", path.display()))(errno)),
    }
}

pub(super) fn make_file(root: BorrowedFd<'_>, path: &Path, content: &[u8]) -> Result<(), SetupError> {
    let step = || format!("make the file {}", path.display());
    let (parent, name) = open_parent(root, path)?;
    // A pipe that stands there already must not hold us up.
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(&parent, name, flags, Mode::from_raw_mode(0o644)).map_err(at(step()))?;
    let mut left = content;
    while !left.is_empty() {
        let written = rustix::io::write(&file, left).map_err(at(step()))?;
        left = left.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// The folder that `path` lies in, made if it is missing, and the name in it. No link is followed, as in [`find`].
fn open_parent<'a>(root: BorrowedFd<'_>, path: &'a Path) -> Result<(OwnedFd, &'a OsStr), SetupError> {
    let step = || format!("find the folder of {}", path.display());
    let name = path.file_name().ok_or(rustix::io::Errno::INVAL).map_err(at(step()))?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let open = || {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat2(root, parent, flags, Mode::empty(), INSIDE)
    };
    let opened = match open() {
        Err(rustix::io::Errno::NOENT) => {
            make_folder(root, parent)?;
            open()
        }
        opened => opened,
    };
    opened.map(|parent| (parent, name)).map_err(at(step()))
}
