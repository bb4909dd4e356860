//! Other names of denied files. A hard link shows the same contents under a name that no rule denies.
//!
//! Nothing is looked for unless a denied file says itself that it has more names than were denied: its count of links is
//! the kernel's. Then every name beside them is compared, whatever was remembered of it: a memory holds names only.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, Stat};
use rustix::io::Errno;

use super::deny::{Ground, MOST_ENTRIES, PIECE, WalkError, open};
use super::known::KEEP_THEIR_TIMES;
use super::pace::Pace;

/// Files that are denied and have several names: how many there are, and how many are known.
#[derive(Debug, Default)]
struct Files {
    names: HashMap<(u64, u64), Names>,
    /// Their numbers alone, which come with every name for nothing.
    numbers: HashSet<u64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Names {
    known: u64,
    all: u64,
}

impl Files {
    fn see(&mut self, stat: &Stat) {
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory && stat.st_nlink > 1 {
            self.numbers.insert(stat.st_ino);
            let names = self.names.entry((stat.st_dev, stat.st_ino)).or_default();
            // It may grow or shrink while we look: the larger number is the safe one.
            names.all = names.all.max(stat.st_nlink);
            names.known += 1;
        }
    }

    /// Counts one more name, if it is one of such a file.
    fn is_one(&mut self, stat: &Stat) -> bool {
        let names = self.names.get_mut(&(stat.st_dev, stat.st_ino));
        names.is_some_and(|names| {
            names.known += 1;
            true
        })
    }

    fn have_more(&self) -> bool {
        self.names.values().any(|names| names.known < names.all)
    }

    fn may_have(&self, inode: u64) -> bool {
        self.numbers.contains(&inode)
    }
}

/// The names below `ground` that are not in `denied`, and lead to the same files as names that are, or that lie in folders
/// that are.
pub(super) async fn other_names(
    ground: Ground<'_>,
    denied: &[PathBuf],
    pace: &mut Pace,
) -> Result<Vec<PathBuf>, WalkError> {
    let mut entries = 0;
    let mut files = Files::default();
    let mut folders = Vec::new();
    for path in denied {
        pace.next_folder().await?;
        match hold(ground, path).and_then(rustix::fs::fstat) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => folders.push(path.clone()),
            Ok(stat) => files.see(&stat),
            // Removed since, or in a folder that we cannot look into; then nobody can say what else it is called.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS | Errno::PERM) => {}
            Err(errno) => return Err(WalkError::Folder(path.clone(), errno)),
        }
    }
    // A closed folder in what is denied keeps its names to itself.
    let _closed: Vec<PathBuf> = look_through(ground, folders, &mut entries, pace, |_, _, entry| {
        if let Some(stat) = entry.stat()? {
            files.see(&stat);
        }
        Ok(Next::Into)
    })
    .await?;
    if !files.have_more() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    let denied: HashSet<&Path> = denied.iter().map(PathBuf::as_path).collect();
    let closed = look_through(ground, vec![PathBuf::new()], &mut entries, pace, |folder, believed, entry| {
        let path = folder.join(OsStr::from_bytes(entry.name));
        if denied.contains(path.as_path()) || ground.hides(&path) {
            return Ok(Next::Over);
        }
        let is_other = match believed {
            Numbers::Believed if !files.may_have(entry.inode) => false,
            Numbers::Believed | Numbers::NotBelieved => entry.stat()?.is_some_and(|stat| files.is_one(&stat)),
        };
        if is_other {
            found.push(path);
        }
        Ok(Next::Into)
    })
    .await?;
    // Closed since it was looked through for names: the program may open it.
    found.extend(closed);
    Ok(found)
}

/// Whether numbers of files that come with their names are those that looking at them gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Numbers {
    Believed,
    /// Overlay, for one, has others.
    NotBelieved,
}

/// Whether a folder is looked into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Into,
    Over,
}

/// One name of a folder that is open.
struct Entry<'a> {
    folder: &'a OwnedFd,
    name: &'a [u8],
    inode: u64,
    kind: FileType,
}

impl Entry<'_> {
    /// What the kernel says of it; nothing for what is a folder, or gone.
    fn stat(&self) -> rustix::io::Result<Option<Stat>> {
        if self.kind == FileType::Directory {
            return Ok(None);
        }
        match rustix::fs::statat(self.folder, self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat).filter(|stat| FileType::from_raw_mode(stat.st_mode) != FileType::Directory)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }
}

/// Shows every name in `folders` and below. Returns those that may not be read.
async fn look_through(
    ground: Ground<'_>,
    folders: Vec<PathBuf>,
    entries: &mut usize,
    pace: &mut Pace,
    mut look: impl FnMut(&Path, Numbers, &Entry<'_>) -> rustix::io::Result<Next>,
) -> Result<Vec<PathBuf>, WalkError> {
    let mut left: Vec<_> = folders.into_iter().map(|folder| (folder, FileType::Directory)).collect();
    let mut closed = Vec::new();
    // Not written before it is needed: each page of it would be a fault.
    let mut piece = Vec::<u8>::with_capacity(PIECE);
    while let Some((folder, kind)) = left.pop() {
        pace.next_folder().await?;
        let failed = |errno| WalkError::Folder(folder.clone(), errno);
        let opened = match open(ground, &folder) {
            Ok(opened) => opened,
            Err(Errno::ACCESS | Errno::PERM) if !folder.as_os_str().is_empty() => {
                closed.push(folder);
                continue;
            }
            // Its kind could not be told, and it is no folder.
            Err(Errno::NOTDIR | Errno::LOOP) if kind == FileType::Unknown => continue,
            Err(errno) => return Err(failed(errno)),
        };
        let kind = rustix::fs::fstatfs(&opened).map_err(failed)?.f_type;
        let known = u32::try_from(kind).is_ok_and(|kind| KEEP_THEIR_TIMES.contains(&kind));
        let numbers = if known { Numbers::Believed } else { Numbers::NotBelieved };
        let held = opened.try_clone().map_err(|_| failed(Errno::MFILE))?;
        let mut names = RawDir::new(opened, piece.spare_capacity_mut());
        while let Some(entry) = names.next() {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            *entries += 1;
            // Once what is denied, once what is not.
            if *entries > 2 * MOST_ENTRIES {
                return Err(WalkError::TooMany("more than 200,000 entries in what is denied"));
            }
            let kind = entry.file_type();
            let next = look(&folder, numbers, &Entry { folder: &held, name, inode: entry.ino(), kind });
            if next.map_err(failed)? == Next::Into && matches!(kind, FileType::Directory | FileType::Unknown) {
                left.push((folder.join(OsStr::from_bytes(name)), kind));
            }
            pace.next_name().await?;
        }
    }
    Ok(closed)
}

/// Holds what is at `path`, through no link.
fn hold(ground: Ground<'_>, path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat2(ground.root, path, flags, Mode::empty(), ground.resolve())
}
