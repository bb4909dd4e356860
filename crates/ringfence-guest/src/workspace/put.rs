//! Places of a workspace are made what they were, when the host puts an earlier state back.
//!
//! It is done as a program would do it: what the host knows stays as it is, and the next look tells all of it. Nothing runs
//! meanwhile, but what ran before has made everything here.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::collect::open_up;
use super::{Workspace, about, mode_of, open_in};
use crate::far::{Node, OtherKind, What};
use crate::nodes::{PERMISSIONS, Unfinished, is_plain, join, split};

/// What the owner of a folder needs to change what is in it.
const OPEN: u32 = 0o700;

/// Places that are being put back.
#[derive(Debug, Default)]
pub(super) struct Putting {
    unfinished: Option<(OsString, Unfinished)>,
    /// Folders that get these permissions at the end, when all is in them.
    modes: BTreeMap<OsString, u32>,
    /// The folder that was asked for last: what is next is often in it.
    last: Option<(OsString, OwnedFd)>,
}

impl Workspace {
    /// Makes places what these nodes say. What has to go comes first and innermost first, then what shall be there, folders
    /// before what is in them.
    pub fn put(&mut self, nodes: Vec<Node>) -> io::Result<()> {
        for node in nodes {
            let name = node.path.clone();
            self.put_one(node).map_err(|error| about(&name, &error))?;
        }
        Ok(())
    }

    /// That was all, or all that could be done: folders get their permissions.
    pub fn put_all(&mut self) -> io::Result<()> {
        let Putting { unfinished, modes, last } = std::mem::take(&mut self.putting);
        drop(last);
        let mut done = unfinished.map_or(Ok(()), |(path, file)| finish(&path, file));
        // What is in a folder comes after it.
        for (path, mode) in modes.into_iter().rev() {
            let closed = self.walk_to(&path).and_then(|folder| {
                let folder = folder.as_ref().map_or(self.folders.root.as_fd(), OwnedFd::as_fd);
                Ok(rustix::fs::fchmod(folder, Mode::from_raw_mode(mode))?)
            });
            done = done.and(closed.map_err(|error| about(&path, &error)));
        }
        // What it led to may be something else by now.
        self.folders.last = None;
        done
    }

    fn put_one(&mut self, Node { path, what }: Node) -> io::Result<()> {
        if let What::More { .. } | What::Hole { .. } = what {
            let file = self.putting.unfinished.as_mut().filter(|(last, _)| *last == path);
            let (_, file) = file.ok_or(io::ErrorKind::InvalidInput)?;
            return match what {
                What::More { bytes } => file.add(&bytes),
                What::Hole { bytes } => file.add_zeros(bytes),
                _ => Ok(()),
            };
        }
        if let Some((path, file)) = self.putting.unfinished.take() {
            finish(&path, file)?;
        }
        if !is_plain(&path) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (parent, name) = split(&path);
        let folder = match self.open_to_change(parent) {
            // What it was in went before.
            Err(error) if matches!(what, What::Gone) && is_no_folder(&error) => return Ok(()),
            opened => opened?,
        };
        let there = stat(folder, name)?;
        let is_folder = there.as_ref().is_some_and(|there| kind_of(there) == FileType::Directory);
        if there.is_some() && !(is_folder && matches!(what, What::Folder { .. })) {
            // A folder goes only when nothing is in it: all that goes is named.
            let flags = if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            rustix::fs::unlinkat(folder, name, flags)?;
        }
        match what {
            What::Folder { mode } => {
                if !is_folder {
                    rustix::fs::mkdirat(folder, name, Mode::RWXU)?;
                }
                self.putting.modes.insert(path, mode & PERMISSIONS);
                return Ok(());
            }
            What::File { mode, modified, bytes } => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let made = rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
                let mut file = Unfinished::new(made.into(), mode, modified);
                file.add(&bytes)?;
                self.putting.unfinished = Some((path.clone(), file));
            }
            What::Link { target } => rustix::fs::symlinkat(&target, folder, name)?,
            What::Other { kind: OtherKind::Pipe } => make_other(folder, name, FileType::Fifo)?,
            What::Other { kind: OtherKind::Socket } => make_other(folder, name, FileType::Socket)?,
            What::Gone => {}
            What::Other { kind: OtherKind::Device } | What::Name { .. } | What::More { .. } | What::Hole { .. } => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        }
        // A folder that is none any more has no permissions of one.
        self.putting.modes.remove(&path);
        if is_folder {
            self.putting.last = None;
        }
        Ok(())
    }

    /// The folder at `path`, so that something can be made and removed in it. One that is closed is ours, and is opened up
    /// until the end, as are those on the way to it.
    fn open_to_change(&mut self, path: &OsStr) -> io::Result<BorrowedFd<'_>> {
        if self.putting.last.as_ref().is_none_or(|(last, _)| last != path) {
            self.putting.last = None;
            let mut here = self.folders.root.try_clone()?;
            let mut at = OsString::new();
            self.putting.keep_open(&at, &here)?;
            for name in path.as_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
                let name = OsStr::from_bytes(name);
                at = join(&at, name);
                let opened = match open_in(&here, name) {
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        let closed = stat(here.as_fd(), name)?.filter(|there| kind_of(there) == FileType::Directory);
                        let mode = mode_of(&closed.ok_or(Errno::NOTDIR)?);
                        open_up(&here, name, mode | OPEN)?;
                        self.putting.modes.entry(at.clone()).or_insert(mode);
                        open_in(&here, name)?
                    }
                    opened => opened?,
                };
                self.putting.keep_open(&at, &opened)?;
                here = opened;
            }
            self.putting.last = Some((path.to_owned(), here));
        }
        self.putting.last.as_ref().map(|(_, folder)| folder.as_fd()).ok_or_else(|| Errno::NOENT.into())
    }

    /// The folder at `path`, through no link; nothing for the workspace itself.
    fn walk_to(&self, path: &OsStr) -> io::Result<Option<OwnedFd>> {
        let mut here: Option<OwnedFd> = None;
        for name in path.as_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            let above = here.as_ref().map_or(self.folders.root.as_fd(), OwnedFd::as_fd);
            here = Some(open_in(above, OsStr::from_bytes(name))?);
        }
        Ok(here)
    }
}

impl Putting {
    /// Opens a folder up until the end, when its owner could not change what is in it.
    fn keep_open(&mut self, path: &OsStr, folder: &OwnedFd) -> io::Result<()> {
        let mode = mode_of(&rustix::fs::fstat(folder)?);
        if mode & OPEN != OPEN {
            rustix::fs::fchmod(folder, Mode::from_raw_mode(mode | OPEN))?;
            self.modes.entry(path.to_owned()).or_insert(mode);
        }
        Ok(())
    }
}

fn finish(path: &OsStr, file: Unfinished) -> io::Result<()> {
    file.finish().map(drop).map_err(|error| about(path, &error))
}

fn make_other(folder: BorrowedFd<'_>, name: &OsStr, kind: FileType) -> io::Result<()> {
    Ok(rustix::fs::mknodat(folder, name, kind, Mode::RUSR | Mode::WUSR, 0)?)
}

fn stat(folder: BorrowedFd<'_>, name: &OsStr) -> io::Result<Option<Stat>> {
    match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn is_no_folder(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP))
}
