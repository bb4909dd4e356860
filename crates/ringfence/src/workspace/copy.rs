//! A private copy of a workspace, where no layer can lie over it, and what was copied.
//!
//! The workspace is the host's, and somebody may write to it meanwhile: no link is followed, nothing is looked up that is
//! not beneath the folder that is held, and a file that changes while it is copied is copied again or refused. The copy
//! is nobody's but ours until a program is started in it.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::change::{Moment, Stamp};
pub use super::copy_error::CopyError;
use super::node::{kind_of, link_target, open_file, open_folder, stamp_of, stat_of};

/// More places than this are not copied.
pub(super) const MOST_ENTRIES: usize = 200_000;
/// How often a file is copied that changes meanwhile.
const ATTEMPTS: usize = 4;
/// The kernel's clock for files goes in steps of 10 ms at most.
const TICK: Duration = Duration::from_millis(11);
const PIECE: usize = 128 * 1024;
/// Set-user-id and set-group-id are not for a copy.
const FILE_MODE: u32 = 0o777;
const FOLDER_MODE: u32 = 0o1777;
/// File systems that give a file a new time whenever a mapping of it is written, as well: ext2 to ext4, XFS, btrfs, f2fs.
const TELL_EVERY_WRITE: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// What a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// With places in it, perhaps.
    Folder,
    /// Anything else.
    Leaf,
}

/// One place, as it was copied.
#[derive(Debug, Clone, Copy)]
struct Copied {
    kind: Kind,
    /// The permissions that the copy was given.
    mode: u32,
    host: Stamp,
    copy: Stamp,
}

/// Whether a file with the same times holds the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Times {
    Believed,
    NotBelieved,
}

/// What was copied, by which a copy and its origin are compared later.
#[derive(Debug)]
pub struct Manifest {
    places: HashMap<PathBuf, Copied>,
    /// Places that the program does not see, relative to the workspace.
    left_out: Vec<PathBuf>,
    began: Moment,
    ended: Moment,
    times: Times,
    bytes: u64,
}

impl Manifest {
    /// Whether there was something that was copied at `path`.
    pub(super) fn has(&self, path: &Path) -> bool {
        self.places.contains_key(path)
    }

    /// Whether there was a folder.
    pub(super) fn has_folder(&self, path: &Path) -> bool {
        self.places.get(path).is_some_and(|copied| copied.kind == Kind::Folder)
    }

    /// The permissions that the copy was given.
    pub(super) fn mode(&self, path: &Path) -> Option<u32> {
        self.places.get(path).map(|copied| copied.mode)
    }

    /// Whether the file or link at `path` of the copy, which is now `stat`, was not written since. `host` is what its origin
    /// is now.
    pub(super) fn is_untouched(&self, path: &Path, stat: &Stat, host: Option<&Stat>) -> bool {
        let Some(copied) = self.places.get(path).filter(|copied| copied.kind == Kind::Leaf) else { return false };
        let stamp = stamp_of(stat);
        let same = stamp == copied.copy && (kind_of(stat) == FileType::Symlink || stat.st_mode & 0o7777 == copied.mode);
        // A write in the same tick of the clock as the last of the copy would leave the same times.
        let at_rest = self.times == Times::Believed && stamp.changed < self.ended;
        // What is in doubt is compared with its origin; where that is not the same any more, only the times are left.
        let comparable = host.is_some_and(|host| stamp_of(host) == copied.host);
        same && (at_rest || !comparable)
    }

    /// Whether what is at `path` of the workspace, with this stamp, is not what it was when it was copied.
    pub(super) fn is_changed_on_the_host(&self, path: &Path, stamp: Stamp) -> bool {
        match self.places.get(path) {
            Some(copied) => copied.host != stamp,
            None => stamp.changed >= self.began,
        }
    }

    /// How many places were copied.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there was nothing to copy.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How much the files that were copied hold, holes in them included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What was left out because it is denied or cannot be read, relative to the workspace.
    pub fn left_out(&self) -> &[PathBuf] {
        &self.left_out
    }
}

/// Whose the files of a copy are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owners {
    /// Whoever copies them.
    Ours,
    /// Whose they were. Behind a wall that maps one owner to the program, those of others then are as closed as they were.
    Kept,
}

/// Copies all below `from` to the empty folder `to`, at most `most_bytes` of contents, holes included. What `is_denied` says
/// yes to is left out, with all in it, and so is what may not be read and what is neither file, link nor folder.
pub(crate) fn copy(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    most_bytes: u64,
    owners: Owners,
    is_denied: impl Fn(&Path, Kind) -> bool,
) -> Result<Manifest, CopyError> {
    let began = Moment::now();
    let on = rustix::fs::fstatfs(to).map_err(at("look at", Path::new(".")))?.f_type;
    let tells = u32::try_from(on).is_ok_and(|on| TELL_EVERY_WRITE.contains(&on));
    let mut copier = Copier {
        from,
        to,
        most_bytes,
        owners,
        manifest: Manifest {
            places: HashMap::new(),
            left_out: Vec::new(),
            began,
            ended: began,
            times: if tells { Times::Believed } else { Times::NotBelieved },
            bytes: 0,
        },
        folders: Vec::new(),
        left: vec![PathBuf::new()],
        bytes: 0,
        entries: 0,
    };
    while let Some(folder) = copier.left.pop() {
        copier.copy_folder(&folder, &is_denied)?;
    }
    copier.close_folders()?;
    let mut manifest = copier.manifest;
    manifest.bytes = copier.bytes;
    manifest.ended = Moment::now();
    Ok(manifest)
}

struct Copier<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    most_bytes: u64,
    owners: Owners,
    manifest: Manifest,
    /// Folders of the copy, outermost first. They get their permissions when all is in them.
    folders: Vec<(PathBuf, Stat)>,
    left: Vec<PathBuf>,
    bytes: u64,
    entries: usize,
}

impl Copier<'_> {
    fn copy_folder(&mut self, folder: &Path, is_denied: &impl Fn(&Path, Kind) -> bool) -> Result<(), CopyError> {
        let is_top = folder.as_os_str().is_empty();
        let path = if is_top { Path::new(".") } else { folder };
        let from = match open_folder(self.from, path) {
            Ok(from) => from,
            Err(Errno::ACCESS | Errno::PERM) if !is_top => {
                self.manifest.left_out.push(folder.to_owned());
                return Ok(());
            }
            Err(Errno::XDEV) => return Err(CopyError::Mounted { place: folder.to_owned() }),
            // Removed or exchanged since it was listed.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !is_top => return Ok(()),
            Err(errno) => return Err(at("open the folder", folder)(errno)),
        };
        // Before its names are read: what comes to it later makes this an old stamp.
        let stat = rustix::fs::fstat(&from).map_err(at("look at", folder))?;
        if !is_top {
            rustix::fs::mkdirat(self.to, folder, Mode::RWXU).map_err(at("make the folder", folder))?;
        }
        let to = open_folder(self.to, path).map_err(at("open the copy of the folder", folder))?;
        for entry in Dir::read_from(&from).map_err(at("read the folder", folder))? {
            let entry = entry.map_err(at("read the folder", folder))?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.entries += 1;
            if self.entries > MOST_ENTRIES {
                return Err(CopyError::TooMany);
            }
            let name = OsStr::from_bytes(name);
            self.copy_entry(&from, &to, name, folder.join(name), is_denied)?;
        }
        if !is_top {
            let copied = Copied {
                kind: Kind::Folder,
                mode: stat.st_mode & FOLDER_MODE,
                host: stamp_of(&stat),
                // Whatever comes to a folder or goes changes it: it is known by what is in it.
                copy: stamp_of(&stat),
            };
            self.manifest.places.insert(folder.to_owned(), copied);
            self.folders.push((folder.to_owned(), stat));
        }
        Ok(())
    }

    fn copy_entry(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &OsStr,
        path: PathBuf,
        is_denied: &impl Fn(&Path, Kind) -> bool,
    ) -> Result<(), CopyError> {
        for _ in 0..ATTEMPTS {
            let now = Moment::now();
            let stat = match stat_of(from, name) {
                Ok(Some(stat)) => stat,
                // Removed since it was listed.
                Ok(None) => return Ok(()),
                Err(Errno::ACCESS | Errno::PERM) => {
                    self.manifest.left_out.push(path);
                    return Ok(());
                }
                Err(errno) => return Err(at("look at", &path)(errno)),
            };
            let kind = if kind_of(&stat) == FileType::Directory { Kind::Folder } else { Kind::Leaf };
            if is_denied(&path, kind) {
                self.manifest.left_out.push(path);
                return Ok(());
            }
            let done = match kind_of(&stat) {
                FileType::Directory => {
                    self.left.push(path);
                    return Ok(());
                }
                // A second write in the same tick of the clock would leave the same times.
                FileType::RegularFile if is_of_this_tick(&stat, now) => Done::Moved,
                FileType::RegularFile => self.copy_file(from, to, name, &stat, &path)?,
                FileType::Symlink => self.copy_link(from, to, name, &stat, &path)?,
                FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => return Ok(()),
            };
            match done {
                Done::Copied(copy) => {
                    let mode = stat.st_mode & FILE_MODE;
                    let host = stamp_of(&stat);
                    self.manifest.places.insert(path, Copied { kind: Kind::Leaf, mode, host, copy: stamp_of(&copy) });
                    return Ok(());
                }
                Done::Closed => {
                    self.manifest.left_out.push(path);
                    return Ok(());
                }
                Done::Moved => std::thread::sleep(TICK),
            }
        }
        Err(CopyError::Moving { place: path })
    }

    fn copy_file(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &OsStr,
        stat: &Stat,
        path: &Path,
    ) -> Result<Done, CopyError> {
        let is_it = |file: &File| {
            let now = rustix::fs::fstat(file);
            now.is_ok_and(|now| stamp_of(&now) == stamp_of(stat) && now.st_mode == stat.st_mode)
        };
        let source = match open_file(from, name) {
            Ok(source) => source,
            Err(Errno::ACCESS | Errno::PERM) => return Ok(Done::Closed),
            Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(Done::Moved),
            Err(Errno::XDEV) => return Err(CopyError::Mounted { place: path.to_owned() }),
            Err(errno) => return Err(at("open", path)(errno)),
        };
        if !is_it(&source) {
            return Ok(Done::Moved);
        }
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.most_bytes {
            return Err(CopyError::TooMuch { most: self.most_bytes });
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = rustix::fs::openat(to, name, flags, Mode::RUSR | Mode::WUSR).map_err(at("make a copy of", path))?;
        let made = File::from(made);
        pour(&source, &made, size).map_err(|source| io_at("copy", path, source))?;
        if !is_it(&source) {
            self.bytes -= size;
            rustix::fs::unlinkat(to, name, AtFlags::empty()).map_err(at("remove half a copy of", path))?;
            return Ok(Done::Moved);
        }
        self.own(&made, stat).map_err(at("give an owner to the copy of", path))?;
        give(&made, stat, FILE_MODE).map_err(at("give permissions to the copy of", path))?;
        rustix::fs::fstat(&made).map(Done::Copied).map_err(at("look at the copy of", path))
    }

    fn copy_link(
        &self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &OsStr,
        stat: &Stat,
        path: &Path,
    ) -> Result<Done, CopyError> {
        let target = match link_target(from, name) {
            Ok(target) => target,
            Err(Errno::INVAL | Errno::NOENT) => return Ok(Done::Moved),
            Err(errno) => return Err(at("read the link", path)(errno)),
        };
        let now = stat_of(from, name).map_err(at("look at", path))?;
        if now.map(|now| stamp_of(&now)) != Some(stamp_of(stat)) {
            return Ok(Done::Moved);
        }
        rustix::fs::symlinkat(&target, to, name).map_err(at("make a copy of the link", path))?;
        if self.owners == Owners::Kept {
            let (user, group) = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
            let given = rustix::fs::chownat(to, name, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW);
            given.map_err(at("give an owner to the copy of", path))?;
        }
        let made = rustix::fs::statat(to, name, AtFlags::SYMLINK_NOFOLLOW);
        made.map(Done::Copied).map_err(at("look at the copy of", path))
    }

    /// Gives the folders of the copy their permissions and times, innermost first.
    fn close_folders(&mut self) -> Result<(), CopyError> {
        // One that is in another was made after it.
        for (path, stat) in self.folders.iter().rev() {
            let folder = open_folder(self.to, path).map_err(at("open the copy of the folder", path))?;
            self.own(&folder, stat).map_err(at("give an owner to the copy of", path))?;
            give(&folder, stat, FOLDER_MODE).map_err(at("give permissions to the copy of", path))?;
        }
        Ok(())
    }

    /// Gives a copy to whom `stat` names, if it is to be theirs. Before its permissions: those go with a change of owner.
    fn own(&self, node: impl AsFd, stat: &Stat) -> rustix::io::Result<()> {
        match self.owners {
            Owners::Ours => Ok(()),
            Owners::Kept => {
                rustix::fs::fchown(node, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))
            }
        }
    }
}

/// Whether something was changed just `now`. A time further ahead is of a clock that was set back.
fn is_of_this_tick(stat: &Stat, now: Moment) -> bool {
    let changed = stamp_of(stat).changed;
    changed >= now && changed.seconds <= now.seconds.saturating_add(1)
}

/// What became of one file or link.
enum Done {
    Copied(Stat),
    /// It became something else meanwhile.
    Moved,
    /// It may not be read.
    Closed,
}

/// Times and permissions of `stat`, of which `mask` is let through.
fn give(node: impl AsFd, stat: &Stat, mask: u32) -> rustix::io::Result<()> {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    let last_modification = Timespec { tv_sec: stat.st_mtime, tv_nsec: nanoseconds };
    let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    rustix::fs::futimens(&node, &Timestamps { last_access, last_modification })?;
    rustix::fs::fchmod(&node, Mode::from_raw_mode(stat.st_mode & mask))
}

/// Copies the first `size` bytes: as a second name for the same blocks where the file system can, or without its holes.
fn pour(from: &File, to: &File, size: u64) -> io::Result<()> {
    if size == 0 || rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    to.set_len(size)?;
    let mut done = 0;
    while done < size {
        let begin = match rustix::fs::seek(from, SeekFrom::Data(done)) {
            Ok(begin) => begin,
            // Only a hole is left.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL) => done,
            Err(errno) => return Err(errno.into()),
        };
        let end = rustix::fs::seek(from, SeekFrom::Hole(begin)).unwrap_or(size).min(size);
        if begin >= end {
            break;
        }
        pour_part(from, to, begin, end)?;
        done = end;
    }
    Ok(())
}

fn pour_part(from: &File, to: &File, mut begin: u64, end: u64) -> io::Result<()> {
    while begin < end {
        let wanted = usize::try_from(end - begin).unwrap_or(usize::MAX).min(1 << 30);
        let (mut off_in, mut off_out) = (begin, begin);
        match rustix::fs::copy_file_range(from, Some(&mut off_in), to, Some(&mut off_out), wanted) {
            Ok(0) => break,
            Ok(copied) => begin += copied as u64,
            Err(Errno::INTR) => {}
            // Between two file systems, or on one that cannot.
            Err(Errno::XDEV | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP | Errno::PERM) => break,
            Err(errno) => return Err(errno.into()),
        }
    }
    let mut piece = vec![0u8; if begin < end { PIECE } else { 0 }];
    while begin < end {
        let wanted = usize::try_from(end - begin).unwrap_or(PIECE).min(PIECE);
        let piece = piece.get_mut(..wanted).unwrap_or_default();
        match from.read_at(piece, begin) {
            // It was cut short: whoever looks at it next sees that.
            Ok(0) => return Ok(()),
            Ok(read) => {
                to.write_all_at(piece.get(..read).unwrap_or_default(), begin)?;
                begin += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn at(attempt: &'static str, place: &Path) -> impl FnOnce(Errno) -> CopyError {
    let place = place.to_owned();
    move |errno| CopyError::Io { attempt, place, source: errno.into() }
}

fn io_at(attempt: &'static str, place: &Path, source: io::Error) -> CopyError {
    CopyError::Io { attempt, place: place.to_owned(), source }
}

#[cfg(test)]
mod tests;
