//! A folder or file of the host that was looked at by its path, and is shown only if it is still the same one.
//!
//! Between a look and a mount somebody who may write on the way can put a link to something else there. So what is checked is
//! held open, and what is mounted must be what is held.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use ringfence_linux::wall::Source;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::process::{Gid, Uid};

use super::view::Seen;
use crate::workspace::copy::Owners;

/// Something of the host, held.
#[derive(Debug)]
pub(super) struct Pinned {
    path: PathBuf,
    opened: OwnedFd,
    stat: rustix::fs::Stat,
}

impl Pinned {
    /// Holds what is at `path`, which leads there without any link.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::open(path, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&opened)?;
        let pinned = Self { path: path.to_owned(), opened, stat };
        if std::fs::read_link(pinned.held())? != path {
            return Err(io::Error::other("it became something else while it was looked at"));
        }
        Ok(pinned)
    }

    /// Where it was found.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// A path that leads to the very thing, in this process.
    pub(super) fn held(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.opened.as_raw_fd()))
    }

    pub(super) fn opened(&self) -> &OwnedFd {
        &self.opened
    }

    pub(super) fn into_opened(self) -> OwnedFd {
        self.opened
    }

    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// Who owns it.
    pub(super) fn owner(&self) -> (u32, u32) {
        (self.stat.st_uid, self.stat.st_gid)
    }

    /// Gives the folder `to`, which is private to us, its permissions and, where owners are kept, its owner.
    pub(super) fn lend_looks(&self, to: &Path, owners: Owners) -> io::Result<()> {
        let to = File::open(to)?;
        if owners == Owners::Kept {
            let (user, group) = (Uid::from_raw(self.stat.st_uid), Gid::from_raw(self.stat.st_gid));
            rustix::fs::fchown(&to, Some(user), Some(group))?;
        }
        Ok(rustix::fs::fchmod(to, Mode::from_raw_mode(self.stat.st_mode & 0o1777))?)
    }

    /// Which one it is.
    pub(super) fn identity(&self) -> (u64, u64) {
        (self.stat.st_dev, self.stat.st_ino)
    }

    /// All that its place inside depends on.
    pub(super) fn seen(&self) -> Seen {
        Seen::of(&self.stat)
    }

    /// Whether everybody may write to it.
    pub(super) fn is_open_to_all(&self) -> bool {
        self.stat.st_mode & 0o002 != 0
    }

    /// As a wall is told to show it: by its path, if that still leads to it.
    pub(super) fn source(&self) -> Source {
        Source::Pinned { path: self.path.clone(), device: self.stat.st_dev, inode: self.stat.st_ino }
    }
}
