//! A file that a program is to read whole, whose content is not known when the program begins.
//!
//! Until then it is a pipe, so that whoever reads it waits. It may not be put in place of a file that must be found again: a pipe
//! cannot be read twice.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::root::Root;
use super::{SetupError, at};

/// What was attempted with which of them.
struct About<'a>(&'static str, &'a OsStr);

impl fmt::Display for About<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} what is awaited at {}", self.0, Path::new(self.1).display())
    }
}

/// A pipe that has a name where a file will be.
#[derive(Debug)]
pub(super) struct Awaited {
    name: OsString,
    /// Both of its ends: whoever opens it to read waits for bytes, not for somebody who writes, and sees no end before we close it.
    pipe: OwnedFd,
}

impl Awaited {
    /// Makes it in the folder that is `root`.
    pub(super) fn begin(root: &Root, name: &OsStr) -> Result<Self, SetupError> {
        let step = |step: &'static str| at(About(step, name));
        // Nothing but a name: whoever sends it has checked it, and no path may lead away from here.
        if Path::new(name).file_name() != Some(name) {
            return Err(step("make")(Errno::INVAL));
        }
        let readable = Mode::from_raw_mode(0o644);
        rustix::fs::mknodat(root.folder(), name, FileType::Fifo, readable, 0).map_err(step("make"))?;
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let pipe = rustix::fs::openat(root.folder(), name, flags, Mode::empty()).map_err(step("open"))?;
        Ok(Self { name: name.to_owned(), pipe })
    }

    /// Puts a file that holds `content` in its place. Who opens the name from here on gets the file; who opened it before has the pipe,
    /// which is returned: it has room for all of `content`.
    pub(super) fn put(self, root: &mut Root, content: &[u8]) -> Result<OwnedFd, SetupError> {
        let step = |step: &'static str| at(About(step, &self.name));
        let room = rustix::pipe::fcntl_getpipe_size(&self.pipe).map_err(step("measure"))?;
        if room < content.len() {
            return Err(step("write")(Errno::FBIG));
        }
        let mut new = OsString::from(".");
        new.push(&self.name);
        new.push(".new");
        root.make_file(Path::new(&new), content)?;
        rustix::fs::renameat(root.folder(), &new, root.folder(), &self.name).map_err(step("put in place"))?;
        Ok(self.pipe)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::{Read, Write};

    use super::*;

    fn root(folder: &Path) -> Root {
        Root::new(File::open(folder).unwrap().into())
    }

    #[test]
    fn who_came_before_reads_the_pipe_and_who_comes_later_the_file() {
        let place = tempfile::tempdir().unwrap();
        let mut root = root(place.path());
        let awaited = Awaited::begin(&root, OsStr::new("main.py")).unwrap();
        let at = place.path().join("main.py");
        let mut before = File::open(&at).unwrap();
        let content = vec![b'x'; 64 * 1024];
        let pipe = awaited.put(&mut root, &content).unwrap();
        assert_eq!(fs::read(&at).unwrap(), content, "it is there before anybody can have read it");
        File::from(pipe).write_all(&content).unwrap();
        let mut read = Vec::new();
        before.read_to_end(&mut read).unwrap();
        assert_eq!(read, content);
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "nothing else stays");
    }

    #[test]
    fn what_a_pipe_has_no_room_for_is_not_put_there() {
        let place = tempfile::tempdir().unwrap();
        let mut root = root(place.path());
        let awaited = Awaited::begin(&root, OsStr::new("main.py")).unwrap();
        assert!(awaited.put(&mut root, &vec![0; 64 * 1024 + 1]).is_err());
    }

    #[test]
    fn a_path_is_no_name() {
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("folder")).unwrap();
        for path in ["", ".", "..", "/x", "folder/x", "folder/", "../x"] {
            assert!(Awaited::begin(&root(place.path()), OsStr::new(path)).is_err(), "{path}");
        }
        assert!(Awaited::begin(&root(place.path()), OsStr::new("x")).is_ok(), "the twin");
    }
}
