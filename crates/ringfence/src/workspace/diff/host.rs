//! Reads files of the host that a set says were removed or replaced, as long as they are what they were.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::workspace::change::{Moment, Place, Stamp};

/// A workspace that is held open; nothing is read through links.
#[derive(Debug)]
pub struct HostFiles {
    root: OwnedFd,
}

impl HostFiles {
    /// The folder at `path`, if it still is the one with this device and number.
    pub fn open(path: &Path, is: (u64, u64)) -> Option<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        let found = rustix::fs::fstat(&root).ok()?;
        ((found.st_dev, found.st_ino) == is).then_some(Self { root })
    }

    /// What the file at `place` holds, unless it is more than `most`, or is not the file with this stamp.
    pub fn read(&self, place: &Place, stamp: &Stamp, most: u64) -> Option<Vec<u8>> {
        // Not blocking: in the file's place there may be a pipe now.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let file = rustix::fs::openat2(&self.root, place.as_path(), flags, Mode::empty(), resolve).ok()?;
        if stamp.size > most || !is_same(&file, stamp) {
            return None;
        }
        let mut file = File::from(file);
        let mut bytes = Vec::new();
        file.by_ref().take(most + 1).read_to_end(&mut bytes).ok()?;
        // Once more: somebody may have written meanwhile.
        (bytes.len() as u64 == stamp.size && is_same(&file, stamp)).then_some(bytes)
    }
}

fn is_same(file: &impl AsFd, stamp: &Stamp) -> bool {
    let Ok(found) = rustix::fs::fstat(file) else { return false };
    let moment = |seconds, nanoseconds: u64| Moment { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap_or(0) };
    let found_stamp = Stamp {
        device: found.st_dev,
        inode: found.st_ino,
        size: u64::try_from(found.st_size).unwrap_or(u64::MAX),
        modified: moment(found.st_mtime, found.st_mtime_nsec),
        changed: moment(found.st_ctime, found.st_ctime_nsec),
    };
    rustix::fs::FileType::from_raw_mode(found.st_mode) == rustix::fs::FileType::RegularFile && found_stamp == *stamp
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn stamp(path: &Path) -> Stamp {
        let found = fs::metadata(path).unwrap();
        let moment = |seconds, nanoseconds: i64| Moment { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap() };
        Stamp {
            device: found.dev(),
            inode: found.ino(),
            size: found.len(),
            modified: moment(found.mtime(), found.mtime_nsec()),
            changed: moment(found.ctime(), found.ctime_nsec()),
        }
    }

    #[test]
    fn f02_a_file_is_read_only_while_it_is_the_same_and_through_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let work = folder.path().join("work");
        fs::create_dir_all(work.join("a")).unwrap();
        fs::write(work.join("a/b"), "hello").unwrap();
        let found = fs::metadata(&work).unwrap();
        let is = (found.dev(), found.ino());
        assert!(HostFiles::open(&work, (is.0, is.1 + 1)).is_none(), "another folder");
        let files = HostFiles::open(&work, is).unwrap();
        let place = Place::new("a/b").unwrap();
        let known = stamp(&work.join("a/b"));
        assert_eq!(files.read(&place, &known, 5).as_deref(), Some(b"hello".as_slice()), "the twin");
        assert_eq!(files.read(&place, &known, 4), None);
        symlink("a", work.join("link")).unwrap();
        assert_eq!(files.read(&Place::new("link/b").unwrap(), &known, 5), None, "through a link");
        fs::write(work.join("a/b"), "other").unwrap();
        assert_eq!(files.read(&place, &known, 5), None, "changed since");
    }
}
