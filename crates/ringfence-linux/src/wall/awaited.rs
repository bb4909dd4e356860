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
