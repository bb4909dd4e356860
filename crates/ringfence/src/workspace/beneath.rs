//! A workspace of the host that is held open, and what is done to it: every name is looked up beneath the held folder,
//! through no link and onto no other file system (`openat2`), and whatever stands at the last name is never followed.
//!
//! Decides nothing. Who calls it says exactly what is to be done where.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid};
use rustix::io::Errno;

use super::change::{Moment, OtherKind, Place, Stamp};

const STRICT: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// All of a mode but the type.
const PERMISSIONS: u32 = 0o7777;

/// User and group.
pub type Owner = (u32, u32);

/// Why a workspace cannot be worked in.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// It could not be opened.
    #[error("could not open the workspace {path}")]
    Open {
        /// Where it was.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The path leads elsewhere than it did.
    #[error(
        "the workspace {0} is another folder now: nothing was changed. Move the one that the run worked in back to this path"
    )]
    Another(PathBuf),
}

/// The kind of what is at a place of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundKind {
    /// A file.
    File,
    /// A symbolic link to this.
    Link(OsString),
    /// A folder.
    Folder,
    /// Anything else.
    Other(OtherKind),
}

/// What is at a place of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its kind.
    pub kind: FoundKind,
    /// Permissions, without the type.
    pub mode: u32,
    /// Whose it is.
    pub owner: Owner,
    /// By which it is known again.
    pub stamp: Stamp,
}

impl Found {
    /// Whether `self` is the very node that `earlier` was and was not written since. Moving it changes nothing about that.
    pub fn is_still(&self, earlier: &Self) -> bool {
        let moved = Stamp { changed: earlier.stamp.changed, ..self.stamp };
        let stamp_fits = match self.kind {
            // What is in it, and so when it was written and how large it is, is looked at entry by entry.
            FoundKind::Folder => (self.stamp.device, self.stamp.inode) == (earlier.stamp.device, earlier.stamp.inode),
            FoundKind::File | FoundKind::Link(_) | FoundKind::Other(_) => moved == earlier.stamp,
        };
        stamp_fits && self.kind == earlier.kind && self.mode == earlier.mode && self.owner == earlier.owner
    }
}

/// The stamp of what the kernel says about a node.
#[allow(
    clippy::unnecessary_cast,
    clippy::cast_possible_truncation,
    clippy::useless_conversion,
    reason = "the fields differ between architectures, and nanoseconds are less than a second"
)]
pub fn stamp_of(stat: &Stat) -> Stamp {
    Stamp {
        device: stat.st_dev as u64,
        inode: stat.st_ino as u64,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: Moment { seconds: stat.st_mtime as i64, nanoseconds: stat.st_mtime_nsec as u32 },
        changed: Moment { seconds: stat.st_ctime as i64, nanoseconds: stat.st_ctime_nsec as u32 },
    }
}

fn found(stat: &Stat, target: impl FnOnce() -> Result<OsString, Errno>) -> Result<Found, Errno> {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FoundKind::File,
        FileType::Directory => FoundKind::Folder,
        FileType::Symlink => FoundKind::Link(target()?),
        FileType::Fifo => FoundKind::Other(OtherKind::Pipe),
        FileType::Socket => FoundKind::Other(OtherKind::Socket),
        _ => FoundKind::Other(OtherKind::Device),
    };
    let mode = stat.st_mode & PERMISSIONS;
    Ok(Found { kind, mode, owner: (stat.st_uid, stat.st_gid), stamp: stamp_of(stat) })
}

/// What is open.
pub fn found_open(opened: impl AsFd) -> io::Result<Found> {
    Ok(found(&rustix::fs::fstat(opened)?, || Err(Errno::LOOP))?)
}

/// A workspace that is held.
#[derive(Debug)]
pub struct Held {
    root: OwnedFd,
    path: PathBuf,
    owner: Owner,
}

/// Where a name is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Onto {
    /// Where nothing is.
    Nothing,
    /// In the place of another, which gets this one's name.
    Another,
}

impl Held {
    /// Holds the folder at `path`, which must be the one with this device and number.
    pub fn open(path: &Path, is: (u64, u64)) -> Result<Self, HoldError> {
        let failed = |errno: Errno| HoldError::Open { path: path.to_owned(), source: errno.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // The path was real when it was written down: a link in it now leads to another folder.
        let root = match rustix::fs::openat2(rustix::fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => return Err(HoldError::Another(path.to_owned())),
            opened => opened.map_err(failed)?,
        };
        let stat = rustix::fs::fstat(&root).map_err(failed)?;
        let stamp = stamp_of(&stat);
        if (stamp.device, stamp.inode) != is {
            return Err(HoldError::Another(path.to_owned()));
        }
        Ok(Self { root, path: path.to_owned(), owner: (stat.st_uid, stat.st_gid) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whose the workspace is.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// The folder that `place` is in.
    pub fn folder_of(&self, place: &Place) -> io::Result<Folder<'_>> {
        let parent = place.as_path().parent().filter(|parent| !parent.as_os_str().is_empty());
        Ok(match parent {
            None => Folder::Root(self.root.as_fd()),
            Some(parent) => Folder::Below(rustix::fs::openat2(&self.root, parent, FOLDER, Mode::empty(), STRICT)?),
        })
    }

    /// What is at `place`; nothing when nothing is there, or its folder is none.
    pub fn look(&self, place: &Place) -> io::Result<Option<Found>> {
        match self.folder_of(place) {
            Ok(folder) => folder.look(last(place)?),
            Err(error) if is_no_way(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes everything of this file system to the disk.
    pub fn sync_all(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.root)?)
    }
}

/// Whether an error says that there is no such folder: it is missing, a link, or something else.
pub fn is_no_way(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}

/// The last name of `place`.
pub fn last(place: &Place) -> io::Result<&OsStr> {
    place.names().next_back().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// A folder of the workspace that is open.
#[derive(Debug)]
pub enum Folder<'a> {
    /// The workspace.
    Root(BorrowedFd<'a>),
    /// One below it.
    Below(OwnedFd),
}

impl AsFd for Folder<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Root(folder) => *folder,
            Self::Below(folder) => folder.as_fd(),
        }
    }
}

impl Folder<'_> {
    /// Whether both are one.
    pub fn is(&self, other: &Self) -> io::Result<bool> {
        let [one, other] = [rustix::fs::fstat(self)?, rustix::fs::fstat(other)?];
        Ok((one.st_dev, one.st_ino) == (other.st_dev, other.st_ino))
    }

    /// What is at `name`.
    pub fn look(&self, name: &OsStr) -> io::Result<Option<Found>> {
        let stat = match rustix::fs::statat(self, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let target = || {
            let target = rustix::fs::readlinkat(self, name, Vec::new())?;
            Ok(OsString::from_vec(target.into_bytes()))
        };
        match found(&stat, target) {
            Ok(found) => Ok(Some(found)),
            // It was a link, and is none any more.
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens the file at `name` to read it. Anything but a file is an error.
    pub fn read(&self, name: &OsStr) -> io::Result<File> {
        // A pipe would wait for a writer, and a terminal would become ours.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self, name, flags, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a file any more"));
        }
        Ok(file.into())
    }

    /// The names in the folder at `name`.
    pub fn names(&self, name: &OsStr) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        names_in(rustix::fs::openat2(self, name, flags, Mode::empty(), STRICT)?)
    }

    /// Makes a file at `name`, where nothing may be, for us alone.
    pub fn make_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(self, name, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// Makes a link at `name`, where nothing may be.
    pub fn make_link(&self, name: &OsStr, target: &OsStr, owner: Option<Owner>) -> io::Result<()> {
        rustix::fs::symlinkat(target, self, name)?;
        if let Some((user, group)) = owner {
            let made =
                rustix::fs::openat(self, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
            let stat = rustix::fs::fstat(&made)?;
            // As with a folder: what somebody else put here meanwhile is not given away.
            let is_link = FileType::from_raw_mode(stat.st_mode) == FileType::Symlink && stat.st_nlink == 1;
            if stat.st_uid != rustix::process::geteuid().as_raw() || !is_link {
                return Err(io::Error::other("somebody else put something where a link was being made"));
            }
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            rustix::fs::chownat(&made, "", Some(user), Some(group), AtFlags::EMPTY_PATH)?;
        }
        Ok(())
    }

    /// Makes an empty folder at `name`, where nothing may be. Bits that the file system gave it stay: in a folder for a
    /// group, what is made belongs to the group.
    pub fn make_folder(&self, name: &OsStr, mode: u32, owner: Option<Owner>) -> io::Result<()> {
        rustix::fs::mkdirat(self, name, Mode::RWXU)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat2(self, name, flags, Mode::empty(), STRICT)?;
        let stat = rustix::fs::fstat(&made)?;
        // Whoever put another folder here meanwhile must not have it given away: ours is ours, and empty.
        if stat.st_uid != rustix::process::geteuid().as_raw() || !names_in(made.try_clone()?)?.is_empty() {
            return Err(io::Error::other("somebody else put a folder where one was being made"));
        }
        finish(&made, mode | (stat.st_mode & 0o2000), owner, None)
    }

    /// Sets the permissions of the folder at `name`.
    pub fn set_folder_mode(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        let folder = rustix::fs::openat2(self, name, FOLDER, Mode::empty(), STRICT)?;
        // A closed folder can be held, but not opened; this is the one that is held, whatever its name means now.
        let held = format!("/proc/self/fd/{}", folder.as_raw_fd());
        Ok(rustix::fs::chmod(held, Mode::from_raw_mode(mode))?)
    }

    /// Moves `from` to `to`, both in this folder.
    pub fn swap(&self, from: &OsStr, to: &OsStr, onto: Onto) -> io::Result<()> {
        let flags = match onto {
            Onto::Nothing => RenameFlags::NOREPLACE,
            Onto::Another => RenameFlags::EXCHANGE,
        };
        Ok(rustix::fs::renameat_with(self, from, self, to, flags)?)
    }

    /// Removes a file, a link or an empty folder.
    pub fn remove(&self, name: &OsStr, kind: &FoundKind) -> io::Result<()> {
        let flags = if *kind == FoundKind::Folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        Ok(rustix::fs::unlinkat(self, name, flags)?)
    }

    /// Waits until names that were made or removed in this folder are on the disk.
    pub fn sync(&self) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(self, ".", flags, Mode::empty()) {
            Ok(folder) => Ok(rustix::fs::fsync(folder)?),
            // One that may be written and not read.
            Err(Errno::ACCESS) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// The names in a folder that is open.
fn names_in(folder: OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::new(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

/// Gives what was made its owner, its permissions and its time. In this order: a new owner takes bits away.
pub fn finish(made: impl AsFd, mode: u32, owner: Option<Owner>, modified: Option<Moment>) -> io::Result<()> {
    let made = made.as_fd();
    if let Some((user, group)) = owner {
        rustix::fs::fchown(made, Some(Uid::from_raw(user)), Some(Gid::from_raw(group)))?;
    }
    rustix::fs::fchmod(made, Mode::from_raw_mode(mode & PERMISSIONS))?;
    if let Some(modified) = modified {
        let time = Timespec { tv_sec: modified.seconds, tv_nsec: i64::from(modified.nanoseconds.min(999_999_999)) };
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        rustix::fs::futimens(made, &Timestamps { last_access: now, last_modification: time })?;
    }
    Ok(())
}
