//! The workspace of a far guest: a folder of its own that is filled with what the host sends, and of which it tells what
//! differs from what the host knows.
//!
//! Programs are the same user and may write meanwhile. So nothing is looked up by a path: each folder is opened in the one
//! above it, through no link, and a folder of this file system stays in it wherever it is moved. Times are not believed: in
//! memory a file that is written through a mapping keeps them. What was sent is known by its contents.

mod collect;
mod print;
mod put;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, Stat};

use self::print::{Print, Printed};
use self::put::Putting;
use crate::far::{Node, OtherKind, What};
use crate::nodes::{MOST_ENTRIES, PERMISSIONS, Unfinished, is_plain, split};

pub use self::collect::Collected;

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// A workspace that the host fills.
#[derive(Debug)]
pub struct Workspace {
    folders: Folders,
    /// What the host knows.
    known: HashMap<OsString, Known>,
    /// The number of the last look.
    look: u32,
    unfinished: Option<(OsString, Unfinished, Print)>,
    /// Folders that get their permissions when all is in them, outermost first.
    closed_later: Vec<(OsString, u32)>,
    /// What is being put back.
    putting: Putting,
    /// Names that are looked at: what was sent, and as many beside it.
    most_names: usize,
}

/// A place that the host knows.
#[derive(Debug)]
struct Known {
    state: State,
    /// The look at which it was last there, whether it was a folder then, and the one that told of it.
    seen: u32,
    folder: bool,
    told: u32,
}

/// What the host has at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Folder {
        mode: u32,
    },
    File {
        mode: u32,
        modified: (i64, u32),
        content: Printed,
    },
    Link {
        target: OsString,
    },
    Other {
        kind: OtherKind,
    },
    /// Nobody knows: it was told of in a look that came to no end.
    Unsure,
}

impl Known {
    fn made(state: State) -> Self {
        let folder = matches!(state, State::Folder { .. });
        Self { state, seen: 0, folder, told: 0 }
    }
}

impl Workspace {
    /// The folder at `path`, which must be empty.
    pub fn new(path: &OsStr) -> io::Result<Self> {
        let root = rustix::fs::open(path, FOLDER, Mode::empty())?;
        for entry in Dir::read_from(&root)? {
            let entry = entry?;
            if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                let name = entry.file_name().to_string_lossy().into_owned();
                return Err(io::Error::other(format!("the folder for the workspace is not empty: it has {name:?}")));
            }
        }
        Ok(Self {
            folders: Folders { root, last: None },
            known: HashMap::new(),
            look: 0,
            unfinished: None,
            closed_later: Vec::new(),
            putting: Putting::default(),
            most_names: 2 * MOST_ENTRIES,
        })
    }

    /// Makes a part of what the host has.
    pub fn make(&mut self, nodes: Vec<Node>) -> io::Result<()> {
        for node in nodes {
            let name = node.path.clone();
            self.make_one(node).map_err(|error| about(&name, &error))?;
        }
        Ok(())
    }

    fn make_one(&mut self, Node { path, what }: Node) -> io::Result<()> {
        if let What::More { .. } | What::Hole { .. } = what {
            return self.go_on(&path, &what);
        }
        self.finish_file()?;
        if !is_plain(&path) || self.known.contains_key(&path) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if self.known.len() >= MOST_ENTRIES {
            return Err(io::Error::other(format!("there are more than {MOST_ENTRIES} files and folders")));
        }
        let (parent, name) = split(&path);
        let state = match what {
            What::Folder { mode } => {
                rustix::fs::mkdirat(self.folders.open(parent)?, name, Mode::RWXU)?;
                self.closed_later.push((path.clone(), mode & PERMISSIONS));
                State::Folder { mode: mode & PERMISSIONS }
            }
            What::File { mode, modified, bytes } => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = rustix::fs::openat(self.folders.open(parent)?, name, flags, Mode::RUSR | Mode::WUSR)?;
                let mut file = Unfinished::new(made.into(), mode, modified);
                let mut print = Print::default();
                file.add(&bytes)?;
                print.add(&bytes);
                self.unfinished = Some((path, file, print));
                return Ok(());
            }
            What::Link { target } => {
                rustix::fs::symlinkat(&target, self.folders.open(parent)?, name)?;
                State::Link { target }
            }
            What::Name { of } => {
                let known = self.known.get(&of).map(|known| known.state.clone());
                let state = known.filter(|state| matches!(state, State::File { .. }));
                let state = state.ok_or(io::ErrorKind::InvalidInput)?;
                let (folder, first) = split(&of);
                let folder = self.folders.open(folder)?.try_clone_to_owned()?;
                rustix::fs::linkat(folder, first, self.folders.open(parent)?, name, AtFlags::empty())?;
                state
            }
            What::Other { .. } | What::Gone | What::More { .. } | What::Hole { .. } => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        };
        self.known.insert(path, Known::made(state));
        Ok(())
    }

    /// More of the file that was sent last.
    fn go_on(&mut self, path: &OsStr, what: &What) -> io::Result<()> {
        let Some((_, file, print)) = self.unfinished.as_mut().filter(|(last, ..)| last == path) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        match what {
            What::More { bytes } => {
                print.add(bytes);
                file.add(bytes)
            }
            What::Hole { bytes } => {
                print.add_zeros(*bytes);
                file.add_zeros(*bytes)
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn finish_file(&mut self) -> io::Result<()> {
        let Some((path, file, print)) = self.unfinished.take() else { return Ok(()) };
        let stat = rustix::fs::fstat(file.finish()?)?;
        // As this file system has it: it may know no times so early, or so exact.
        let state = State::File { mode: mode_of(&stat), modified: modified(&stat), content: print.end() };
        self.known.insert(path, Known::made(state));
        Ok(())
    }

    /// That was all: folders get their permissions, and what differs from now on is a program's doing.
    pub fn made(&mut self) -> io::Result<()> {
        self.finish_file()?;
        // One that is in another was made after it.
        for (path, mode) in std::mem::take(&mut self.closed_later).into_iter().rev() {
            let folder = self.folders.open(&path).map_err(|error| about(&path, &error))?;
            rustix::fs::fchmod(folder, Mode::from_raw_mode(mode)).map_err(|errno| about(&path, &errno.into()))?;
        }
        self.folders.last = None;
        Ok(())
    }
}

/// Finds folders, each in the one above it.
#[derive(Debug)]
struct Folders {
    root: OwnedFd,
    /// The one that was asked for last: what is next is often in it.
    last: Option<(OsString, OwnedFd)>,
}

impl Folders {
    /// The folder at `path`, which is plain, or empty for the workspace.
    fn open(&mut self, path: &OsStr) -> io::Result<BorrowedFd<'_>> {
        if path.is_empty() {
            return Ok(self.root.as_fd());
        }
        let (mut here, rest) = match self.last.take() {
            Some((last, folder)) if last == path => (Some(folder), &b""[..]),
            Some((last, folder)) => match below(&last, path) {
                Some(rest) => (Some(folder), rest),
                None => (None, path.as_bytes()),
            },
            None => (None, path.as_bytes()),
        };
        for name in rest.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let above = here.as_ref().map_or(self.root.as_fd(), OwnedFd::as_fd);
            here = Some(open_in(above, OsStr::from_bytes(name))?);
        }
        match here {
            Some(here) => Ok(self.last.insert((path.to_owned(), here)).1.as_fd()),
            None => Ok(self.root.as_fd()),
        }
    }
}

/// The folder `name` in the one above it, through no link.
fn open_in(above: impl AsFd, name: &OsStr) -> io::Result<OwnedFd> {
    let opened = rustix::fs::openat(&above, name, FOLDER, Mode::empty())?;
    // gVisor follows a last link although it is told not to, when a folder is wanted.
    let named = rustix::fs::statat(&above, name, AtFlags::SYMLINK_NOFOLLOW)?;
    let is = rustix::fs::fstat(&opened)?;
    if (named.st_dev, named.st_ino) == (is.st_dev, is.st_ino) {
        Ok(opened)
    } else {
        Err(rustix::io::Errno::LOOP.into())
    }
}

/// The way from `folder` to `path`, if that is in it.
fn below<'a>(folder: &OsStr, path: &'a OsStr) -> Option<&'a [u8]> {
    path.as_bytes().strip_prefix(folder.as_bytes())?.strip_prefix(b"/")
}

fn mode_of(stat: &Stat) -> u32 {
    stat.st_mode & PERMISSIONS
}

fn modified(stat: &Stat) -> (i64, u32) {
    (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

/// The same error, with the place that it is about.
fn about(path: &OsStr, error: &io::Error) -> io::Error {
    let begin: String = path.to_string_lossy().chars().take(256).collect();
    io::Error::new(error.kind(), format!("{begin:?}: {error}"))
}

fn open_file(folder: impl AsFd, name: &OsStr) -> rustix::io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, name, flags, Mode::empty())?.into())
}

#[cfg(test)]
mod tests;
