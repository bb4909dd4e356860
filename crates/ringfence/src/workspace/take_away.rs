//! Takes a place of the host's workspace away from programs that run, through the very view that they have of it: overlay's
//! layers may not be changed beneath it. What a program put there itself is its own and stays.
//!
//! A program may do anything meanwhile. Every name is looked up beneath the folder and through no link, and nothing is done
//! that a program behind the wall could not do itself; at worst something of its own is lost.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::beneath::last;
use super::change::Place;
use super::merged::{Merged, STRICT};

/// A place is tried so often: a program may make it anew each time.
const TRIES: u32 = 4;
/// More than this is not removed from one folder.
const MOST: usize = 100_000;
const HELD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Overlay's mark on what it copied from below.
const COPIED: &[u8] = b"user.overlay.origin";

/// A workspace as programs see it, and its private layer alone.
#[derive(Debug)]
pub(crate) struct Behind {
    upper: OwnedFd,
    merged: Merged,
}

/// What became of a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Taken {
    /// What the host had there is away: from this place, which is the one that was asked for or a folder that it is in.
    Away(PathBuf),
    /// It was away already.
    Before,
    /// There is nothing that could be seen.
    Nothing,
    /// A program has something of its own there, and nothing of the host's is seen.
    Own,
    /// A program has something of its own in the folder; so much that the host had in it was removed.
    Half(usize),
}

/// How far it came.
struct Count {
    left: usize,
    removed: usize,
}

/// What the private layer has at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Above {
    Nothing,
    /// The mark that nothing is there.
    Mark,
    /// Something that overlay copied from below.
    Copied(FileType),
    /// Something that a program made.
    Own(FileType),
}

impl Behind {
    /// The layer in `upper` and the workspace with it in `merged`, as a guest sent them.
    pub(crate) fn new(upper: OwnedFd, merged: OwnedFd) -> io::Result<Self> {
        Ok(Self { upper, merged: Merged::new(merged)? })
    }

    /// Takes away what the host has at `path`.
    pub(crate) fn take_away(&self, path: &Path) -> io::Result<Taken> {
        self.take(path, &mut Count { left: MOST, removed: 0 })
    }

    fn take(&self, path: &Path, count: &mut Count) -> io::Result<Taken> {
        count.left = count.left.checked_sub(1).ok_or_else(|| io::Error::other("there is too much in it"))?;
        let place = Place::new(path).map_err(io::Error::other)?;
        self.in_open_folders(&place, || self.take_seen(path, count))
    }

    fn take_seen(&self, path: &Path, count: &mut Count) -> io::Result<Taken> {
        // A name that a program asked for in vain stays unknown to overlay for a while, and then is there all at once. A folder
        // that is not seen for that reason goes as a whole, as if it were what is denied.
        for folder in folders_above(path) {
            match self.kind(folder)? {
                Some(FileType::Directory) => {}
                Some(_) => return Ok(Taken::Own),
                None => return self.take_one(folder, count),
            }
        }
        self.take_one(path, count)
    }

    /// Likewise, when all folders above it are seen.
    fn take_one(&self, path: &Path, count: &mut Count) -> io::Result<Taken> {
        let before = count.removed;
        for tried in 0..TRIES {
            match self.above(path)? {
                Above::Mark if tried == 0 => return Ok(Taken::Before),
                Above::Mark => return Ok(Taken::Away(path.to_owned())),
                Above::Own(FileType::Directory) => {
                    self.clear(path, count)?;
                    return Ok(Taken::Half(count.removed - before));
                }
                Above::Own(_) => return Ok(Taken::Own),
                Above::Nothing | Above::Copied(_) => {}
            }
            match self.kind(path)? {
                Some(FileType::Directory) => {
                    if self.clear(path, count)? == Cleared::Half {
                        return Ok(Taken::Half(count.removed - before));
                    }
                    self.remove(path, AtFlags::REMOVEDIR, count)?;
                }
                Some(_) => self.remove(path, AtFlags::empty(), count)?,
                None => {
                    // Something of our own is made and removed again: overlay then looks at what is below.
                    self.make_and_remove(path)?;
                    if self.above(path)? == Above::Nothing {
                        // Nothing is below: a program's own folder hides it, or the host removed it.
                        return Ok(Taken::Nothing);
                    }
                }
            }
        }
        Err(io::Error::other("programs put something there again and again"))
    }

    /// Takes away all that the host has in a folder.
    fn clear(&self, path: &Path, count: &mut Count) -> io::Result<Cleared> {
        let inside = Place::new(path.join("x")).map_err(io::Error::other)?;
        let names = self.in_open_folders(&inside, || self.merged.act(|| self.list(path)))?;
        let mut cleared = Cleared::Whole;
        for name in names {
            match self.take(&path.join(name), count)? {
                Taken::Away(_) | Taken::Before | Taken::Nothing => {}
                Taken::Own | Taken::Half(_) => cleared = Cleared::Half,
            }
        }
        Ok(cleared)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = match rustix::fs::openat2(&self.merged.folder, path, flags, Mode::empty(), STRICT) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(Vec::new()),
            folder => folder?,
        };
        let mut names = Vec::new();
        for entry in Dir::new(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsStr::from_bytes(name).to_owned());
            }
            if names.len() > MOST {
                return Err(io::Error::other("there is too much in it"));
            }
        }
        Ok(names)
    }

    fn remove(&self, path: &Path, flags: AtFlags, count: &mut Count) -> io::Result<()> {
        let place = Place::new(path).map_err(io::Error::other)?;
        self.merged.act(|| {
            let Some(folder) = self.merged.folder_of(&place)? else { return Ok(()) };
            match rustix::fs::unlinkat(&folder, last(&place)?, flags) {
                Ok(()) => count.removed += 1,
                // It changed its kind, or a program put something there: the next look tells.
                Err(Errno::NOENT | Errno::ISDIR | Errno::NOTDIR | Errno::NOTEMPTY) => {}
                Err(errno) => return Err(errno.into()),
            }
            Ok(())
        })
    }

    fn make_and_remove(&self, path: &Path) -> io::Result<()> {
        let place = Place::new(path).map_err(io::Error::other)?;
        self.merged.act(|| {
            let Some(folder) = self.merged.folder_of(&place)? else { return Ok(()) };
            let name = last(&place)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match rustix::fs::openat(&folder, name, flags, Mode::empty()) {
                Ok(made) => drop(made),
                // It is seen by now.
                Err(Errno::EXIST) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
            match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
                Err(errno) => Err(errno.into()),
            }
        })
    }

    /// Does something at `place` while the folders on the way are open to the user that programs are.
    fn in_open_folders<T>(&self, place: &Place, act: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let steps = [(place, None)];
        let closed = self.merged.open_up(&steps).map_err(|error| error.source)?;
        let done = act();
        match self.merged.shut(&steps, &closed) {
            // A program removed it meanwhile.
            Err(error) if error.source.kind() != io::ErrorKind::NotFound => Err(error.source),
            Err(_) | Ok(()) => done,
        }
    }

    /// What programs see at a place.
    fn kind(&self, path: &Path) -> io::Result<Option<FileType>> {
        self.merged.act(|| kind_of(&self.merged.folder, path).map(|found| found.map(|(_, kind)| kind)))
    }

    fn above(&self, path: &Path) -> io::Result<Above> {
        let Some((held, kind)) = kind_of(&self.upper, path)? else { return Ok(Above::Nothing) };
        let stat = rustix::fs::fstat(&held)?;
        if kind == FileType::CharacterDevice && stat.st_rdev == 0 {
            return Ok(Above::Mark);
        }
        let mut names = vec![0u8; 64 * 1024];
        match rustix::fs::listxattr(format!("/proc/self/fd/{}", held.as_raw_fd()), &mut names) {
            Ok(length) => {
                let names = names.get(..length).unwrap_or_default();
                let copied = names.split(|byte| *byte == 0).any(|name| name == COPIED);
                Ok(if copied { Above::Copied(kind) } else { Above::Own(kind) })
            }
            Err(Errno::NOTSUP) => Ok(Above::Own(kind)),
            // Who gave it so many marks that they cannot be listed has to do without it.
            Err(_) => Ok(Above::Copied(kind)),
        }
    }
}

/// How much of a folder is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cleared {
    Whole,
    /// All but what programs made in it.
    Half,
}

/// The folders that `path` is in, the outermost first.
fn folders_above(path: &Path) -> Vec<&Path> {
    let mut folders: Vec<&Path> = path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()).collect();
    folders.reverse();
    folders
}

fn kind_of(folder: &OwnedFd, path: &Path) -> io::Result<Option<(OwnedFd, FileType)>> {
    match rustix::fs::openat2(folder, path, HELD, Mode::empty(), STRICT) {
        Ok(held) => {
            let stat = rustix::fs::fstat(&held)?;
            Ok(Some((held, FileType::from_raw_mode(stat.st_mode))))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}
