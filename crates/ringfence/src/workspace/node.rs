//! Opening and looking at what is below a held folder. No link is followed, and nothing leads out of the folder.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Stat};
use rustix::io::Errno;

use super::change::{Moment, OtherKind, Stamp};

const RESOLVE: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// Opens the folder at `path` below `root` for reading.
pub(super) fn open_folder(root: impl AsFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path, flags, Mode::empty(), RESOLVE)
}

/// Holds what is at `path` below `root`, whether it may be read or not.
pub(super) fn hold(root: impl AsFd, path: impl AsRef<Path>) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(root, path.as_ref(), flags, Mode::empty(), RESOLVE)
}

/// Opens a file for reading. What is none is opened too, but never waited for.
pub(super) fn open_file(folder: &OwnedFd, name: &OsStr) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(folder, name, flags, Mode::empty(), RESOLVE)?.into())
}

/// Sets permissions of exactly what is held: a path could have become a link.
pub(super) fn open_up(held: &OwnedFd, mode: Mode) -> rustix::io::Result<()> {
    rustix::fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), mode)
}

/// What is known about `name`; nothing when it is not there.
pub(super) fn stat_of(folder: &OwnedFd, name: &OsStr) -> rustix::io::Result<Option<Stat>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Where a link points, as it is written.
pub(super) fn link_target(folder: &OwnedFd, name: &OsStr) -> rustix::io::Result<OsString> {
    Ok(OsString::from_vec(rustix::fs::readlinkat(folder, name, Vec::new())?.into_bytes()))
}

/// Its type.
pub(super) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// The type of what is neither file, link nor folder.
pub(super) fn other_kind(kind: FileType) -> OtherKind {
    match kind {
        FileType::Fifo => OtherKind::Pipe,
        FileType::Socket => OtherKind::Socket,
        _ => OtherKind::Device,
    }
}

/// A moment from the two fields that the kernel has for it.
pub(super) fn moment(seconds: i64, nanoseconds: u64) -> Moment {
    Moment { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) }
}

/// By what a node is known again.
pub(super) fn stamp_of(stat: &Stat) -> Stamp {
    Stamp {
        device: stat.st_dev,
        inode: stat.st_ino,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: moment(stat.st_mtime, stat.st_mtime_nsec),
        changed: moment(stat.st_ctime, stat.st_ctime_nsec),
    }
}

/// Whether what was opened is what was looked at, and as it was then.
pub(super) fn is_the_same_node(file: &File, looked_at: &Stat) -> bool {
    rustix::fs::fstat(file).is_ok_and(|now| stamp_of(&now) == stamp_of(looked_at) && now.st_mode == looked_at.st_mode)
}

/// Whether a folder of the workspace cannot be entered behind a wall, where only its owner's files are the program's.
pub(super) fn is_closed_inside(stat: &Stat, (uid, gid): (u32, u32)) -> bool {
    let group = if stat.st_gid == gid { stat.st_mode & 0o010 } else { 0 };
    stat.st_uid != uid && stat.st_mode & 0o001 == 0 && group == 0
}

/// Whether a file of the workspace can be read behind a wall.
pub(super) fn is_readable_inside(stat: &Stat, (uid, gid): (u32, u32)) -> bool {
    let own = if stat.st_uid == uid { stat.st_mode & 0o400 } else { 0 };
    let group = if stat.st_gid == gid { stat.st_mode & 0o040 } else { 0 };
    own | group | (stat.st_mode & 0o004) != 0
}

/// Reads until `piece` is full or nothing is left; says how much that was.
pub(super) fn fill(from: &mut impl Read, piece: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
