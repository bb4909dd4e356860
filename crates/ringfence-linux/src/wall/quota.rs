//! The one file system that holds all that can be written.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode};

use super::mount_api::{INERT, attach, attach_over, clone_below, new_file_system, reconfigure};
use super::{SetupError, at};

/// The one file system that holds all that can be written.
#[derive(Debug)]
pub(super) struct Quota {
    pub(super) tree: OwnedFd,
    used: u32,
    /// Where it is attached, when overlay has to be told by a path: in the mounts of others, `/proc` is not ours.
    pub(super) path: Option<PathBuf>,
}

impl Quota {
    /// What it covers is the host's `/dev`, which goes away with the host's root.
    pub(super) fn new(bytes: u64, files: u64) -> Result<Self, SetupError> {
        let tree = Self::make(bytes, files, "0755")?;
        attach_over(tree.as_fd(), Path::new("/dev")).map_err(at("attach what can be written"))?;
        Ok(Self { tree, used: 0, path: None })
    }

    /// Attached over `place`, the folder at `path`; only we may look into it by its root.
    pub(super) fn attached(bytes: u64, files: u64, path: &Path, place: BorrowedFd<'_>) -> Result<Self, SetupError> {
        let tree = Self::make(bytes, files, "0700")?;
        attach(tree.as_fd(), place).map_err(at("attach what can be written"))?;
        Ok(Self { tree, used: 0, path: Some(path.to_owned()) })
    }

    /// Overlay and clones need it attached.
    fn make(bytes: u64, files: u64, mode: &str) -> Result<OwnedFd, SetupError> {
        let [size, inodes] = room(bytes, files);
        new_file_system("tmpfs", &[("size", &size), ("nr_inodes", &inodes), ("mode", mode)], INERT)
            .map_err(at("make the file system for all that can be written"))
    }

    /// Gives it another size; what lies in it already has to fit.
    pub(super) fn resize(&self, bytes: u64, files: u64) -> Result<(), SetupError> {
        let [size, inodes] = room(bytes, files);
        reconfigure(self.tree.as_fd(), &[("size", &size), ("nr_inodes", &inodes)])
            .map_err(at("set the size of all that can be written"))
    }

    /// The name of a new folder of it.
    pub(super) fn folder(&mut self, mode: u32) -> Result<PathBuf, SetupError> {
        let name = PathBuf::from(self.used.to_string());
        self.used += 1;
        rustix::fs::mkdirat(&self.tree, &name, Mode::from_raw_mode(mode)).map_err(at("make a folder in the quota"))?;
        Ok(name)
    }

    /// A copy of what lies in it at `path`; it forbids what the quota's own mount does.
    pub(super) fn clone(&self, path: &Path) -> Result<OwnedFd, SetupError> {
        clone_below(self.tree.as_fd(), path).map_err(at("take a folder from the quota"))
    }

    /// The file system itself, once everything in it was made.
    pub(super) fn into_tree(self) -> OwnedFd {
        self.tree
    }

    /// Something empty that nobody may read: a folder or a file.
    pub(super) fn nothing(&self, kind: FileType) -> Result<OwnedFd, SetupError> {
        let name = Path::new(if kind == FileType::Directory { "folder" } else { "file" });
        let made = match kind {
            FileType::Directory => rustix::fs::mkdirat(&self.tree, name, Mode::empty()),
            _ => rustix::fs::mknodat(&self.tree, name, FileType::RegularFile, Mode::empty(), 0),
        };
        match made {
            Ok(()) | Err(rustix::io::Errno::EXIST) => self.clone(name),
            Err(errno) => Err(at("make what masks")(errno)),
        }
    }
}

/// Bytes and files as options of a file system. Without a few files it could not even be laid out.
fn room(bytes: u64, files: u64) -> [String; 2] {
    [bytes.to_string(), files.max(16).to_string()]
}
