//! What differs from what the host knows.
//!
//! Only one folder is open at a time, so nesting costs nothing, and the way back up is checked. What the host was told it
//! knows, once a look has come to its end; of one that did not, everything is told again.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::fs::{AtFlags, Dir, FileType, Mode, Stat};
use rustix::io::Errno;

use super::print::Print;
use super::{FOLDER, Known, State, Workspace, about, mode_of, modified, open_file};
use crate::far::{Node, OtherKind, What};
use crate::nodes::{Batch, FileNodes, LONGEST, MOST_ZEROS, join, split};

/// File systems cannot give one file names without end.
const MOST_LINKS: u32 = 1000;

/// What a look came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Collected {
    /// Whether anything differed from what the host knew before.
    pub changed: bool,
}

impl Workspace {
    /// Tells what differs from what the host was sent, or was told before. After an error the host has been told a part:
    /// it may keep it, and the next look tells all of that again.
    pub fn collect(&mut self, each: &mut dyn FnMut(Vec<Node>) -> io::Result<()>) -> io::Result<Collected> {
        self.look += 1;
        let look = self.look;
        let root = rustix::fs::openat(&self.folders.root, ".", FOLDER, Mode::empty());
        let root = match root {
            // A program has closed it, and it is ours.
            Err(Errno::ACCESS) => {
                let mode = mode_of(&rustix::fs::fstat(&self.folders.root)?);
                rustix::fs::fchmod(&self.folders.root, Mode::from_raw_mode(mode | 0o700))?;
                let root = rustix::fs::openat(&self.folders.root, ".", FOLDER, Mode::empty());
                if root.is_err() {
                    rustix::fs::fchmod(&self.folders.root, Mode::from_raw_mode(mode))?;
                }
                (root?, Some(mode))
            }
            root => (root?, None),
        };
        let mut walk = Walk {
            known: &mut self.known,
            look,
            each,
            batch: Batch::default(),
            linked: HashMap::new(),
            most_names: self.most_names,
            names: 0,
            changed: false,
        };
        let walked = walk.all(root.0);
        let told = walked.and_then(|()| walk.tell_what_is_gone());
        let changed = walk.changed;
        if let Some(mode) = root.1 {
            rustix::fs::fchmod(&self.folders.root, Mode::from_raw_mode(mode))?;
        }
        match told {
            Ok(()) => {
                self.known.retain(|_, known| known.seen == look);
                Ok(Collected { changed })
            }
            Err(error) => {
                // The host may have taken what it was told, and may have removed what was in a folder that is none any more.
                for known in self.known.values_mut().filter(|known| known.told == look || known.seen != look) {
                    known.state = State::Unsure;
                }
                Err(error)
            }
        }
    }
}

/// A folder on the way to the one that is open.
struct Level {
    path: OsString,
    names: std::vec::IntoIter<OsString>,
    is: (u64, u64),
    /// Its permissions, when it was closed and is open for us.
    closed: Option<u32>,
}

struct Walk<'a> {
    known: &'a mut HashMap<OsString, Known>,
    look: u32,
    each: &'a mut dyn FnMut(Vec<Node>) -> io::Result<()>,
    batch: Batch,
    /// Files with several names: one that the host knows, what it holds, and how many were told.
    linked: HashMap<u64, (OsString, State, u32)>,
    most_names: usize,
    names: usize,
    changed: bool,
}

impl Walk<'_> {
    fn all(&mut self, root: OwnedFd) -> io::Result<()> {
        let mut levels = Vec::new();
        let mut here = root;
        levels.push(self.level(&here, OsString::new(), None)?);
        let mut walked = Ok(());
        while let Some(level) = levels.last_mut() {
            if let Some(name) = level.names.next().filter(|_| walked.is_ok()) {
                let path = join(&level.path, &name);
                match self.look_at(&here, &name, &path) {
                    Ok(None) => {}
                    Ok(Some((folder, level))) => {
                        here = folder;
                        levels.push(level);
                    }
                    Err(error) => walked = Err(about(&path, &error)),
                }
                continue;
            }
            // Also after an error: what was opened up is closed again.
            let done = levels.pop();
            let Some(up) = levels.last() else { break };
            let above = rustix::fs::openat(&here, "..", FOLDER, Mode::empty());
            if let Some(Level { closed: Some(mode), path, .. }) = &done {
                close(&here, *mode).map_err(|error| about(path, &error))?;
            }
            let above = above.map_err(|errno| about(&up.path, &errno.into()))?;
            if identity(&rustix::fs::fstat(&above)?) != up.is {
                return walked.and(Err(about(&up.path, &moving())));
            }
            here = above;
        }
        walked
    }

    fn level(&mut self, folder: &OwnedFd, path: OsString, closed: Option<u32>) -> io::Result<Level> {
        let mut names = Vec::new();
        for entry in Dir::read_from(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            self.names += 1;
            if self.names > self.most_names {
                let more = format!("the workspace has more than {} files and folders", self.most_names);
                return Err(io::Error::other(more));
            }
            names.push(OsStr::from_bytes(name).to_owned());
        }
        names.sort_unstable();
        Ok(Level { path, names: names.into_iter(), is: identity(&rustix::fs::fstat(folder)?), closed })
    }

    /// One name. What is to be looked through next is a folder.
    fn look_at(&mut self, folder: &OwnedFd, name: &OsStr, path: &OsStr) -> io::Result<Option<(OwnedFd, Level)>> {
        if path.len() > LONGEST {
            let long = format!("it is longer than {LONGEST} bytes, so no program could use it");
            return Err(io::Error::other(long));
        }
        let stat = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed since it was listed.
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => return self.look_into(folder, name, path, &stat),
            FileType::RegularFile => self.look_at_file(folder, name, path, &stat)?,
            FileType::Symlink => {
                let target = rustix::fs::readlinkat(folder, name, Vec::new())?;
                let target = OsString::from_vec(target.into_bytes());
                self.compare(path, State::Link { target: target.clone() }, What::Link { target })?;
            }
            FileType::Fifo => self.look_at_other(path, OtherKind::Pipe)?,
            FileType::Socket => self.look_at_other(path, OtherKind::Socket)?,
            FileType::CharacterDevice | FileType::BlockDevice => self.look_at_other(path, OtherKind::Device)?,
            FileType::Unknown => return Err(io::Error::other("it is of no kind that is known")),
        }
        Ok(None)
    }

    fn look_at_other(&mut self, path: &OsStr, kind: OtherKind) -> io::Result<()> {
        self.compare(path, State::Other { kind }, What::Other { kind })
    }

    fn look_into(
        &mut self,
        folder: &OwnedFd,
        name: &OsStr,
        path: &OsStr,
        stat: &Stat,
    ) -> io::Result<Option<(OwnedFd, Level)>> {
        let mode = mode_of(stat);
        self.compare(path, State::Folder { mode }, What::Folder { mode })?;
        let closed = (mode & 0o500 != 0o500).then_some(mode);
        if closed.is_some() {
            open_up(folder, name, mode | 0o700)?;
        }
        let opened = rustix::fs::openat(folder, name, FOLDER, Mode::empty()).map_err(io::Error::from);
        let opened = opened.and_then(|opened| match identity(&rustix::fs::fstat(&opened)?) == identity(stat) {
            true => Ok(opened),
            false => Err(moving()),
        })?;
        match self.level(&opened, path.to_owned(), closed) {
            Ok(level) => Ok(Some((opened, level))),
            Err(error) => {
                closed.map_or(Ok(()), |mode| close(&opened, mode))?;
                Err(error)
            }
        }
    }

    fn look_at_file(&mut self, folder: &OwnedFd, name: &OsStr, path: &OsStr, stat: &Stat) -> io::Result<()> {
        let has_names = stat.st_nlink > 1;
        if let Some((of, state, told)) = self.linked.get_mut(&stat.st_ino).filter(|_| has_names) {
            if *told < MOST_LINKS {
                *told += 1;
                let (of, state) = (of.clone(), state.clone());
                return self.compare(path, state, What::Name { of });
            }
            self.linked.remove(&stat.st_ino);
        }
        let Some((file, now)) = open_to_read(folder, name, stat)? else { return Ok(()) };
        let size = u64::try_from(now.st_size).unwrap_or(0);
        let (mode, modified) = (mode_of(stat), modified(&now));
        let known = match self.known.get(path).map(|known| known.state.clone()) {
            Some(State::File { mode: was, modified: then, content })
                if (was, then, content.size) == (mode, modified, size) =>
            {
                Some(content)
            }
            _ => None,
        };
        // Whatever its times say: in memory a mapping is written without a trace.
        let state = match known {
            Some(known) if printed(file.try_clone()?, size)? == known => {
                self.see(path, FileType::RegularFile);
                State::File { mode, modified, content: known }
            }
            _ => self.tell_file(path, FileNodes::new(path.to_owned(), file, size, mode, modified), mode, modified)?,
        };
        if has_names {
            self.linked.insert(stat.st_ino, (path.to_owned(), state, 0));
        }
        Ok(())
    }

    fn tell_file(&mut self, path: &OsStr, mut nodes: FileNodes, mode: u32, modified: (i64, u32)) -> io::Result<State> {
        self.learn(path, State::Unsure, false);
        let mut print = Print::default();
        while let Some(node) = nodes.next_node()? {
            let is_endless = take_print(&mut print, &node.what) >= MOST_ZEROS;
            self.send(node)?;
            if is_endless {
                self.flush()?;
            }
        }
        let state = State::File { mode, modified, content: print.end() };
        self.learn(path, state.clone(), false);
        Ok(state)
    }

    /// Tells `what` is at `path`, unless the host knows.
    fn compare(&mut self, path: &OsStr, state: State, what: What) -> io::Result<()> {
        let is_folder = matches!(state, State::Folder { .. });
        if let Some(known) = self.known.get_mut(path).filter(|known| known.state == state) {
            known.seen = self.look;
            known.folder = is_folder;
            return Ok(());
        }
        self.learn(path, state, is_folder);
        self.send(Node { path: path.to_owned(), what })
    }

    fn see(&mut self, path: &OsStr, kind: FileType) {
        if let Some(known) = self.known.get_mut(path) {
            known.seen = self.look;
            known.folder = kind == FileType::Directory;
        }
    }

    fn learn(&mut self, path: &OsStr, state: State, folder: bool) {
        let known = Known { state, seen: self.look, folder, told: self.look };
        self.known.insert(path.to_owned(), known);
    }

    fn send(&mut self, node: Node) -> io::Result<()> {
        self.changed = true;
        self.batch.push(node).map_or(Ok(()), &mut *self.each)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.batch.take().map_or(Ok(()), &mut *self.each)
    }

    /// What the host knows and nobody saw: the outermost of it, for the rest goes with it.
    fn tell_what_is_gone(&mut self) -> io::Result<()> {
        let stays = |path: &OsStr| {
            let folder = split(path).0;
            folder.is_empty() || self.known.get(folder).is_some_and(|known| known.seen == self.look && known.folder)
        };
        let unseen = self.known.iter().filter(|(_, known)| known.seen != self.look).map(|(path, _)| path);
        let mut gone: Vec<OsString> = unseen.filter(|path| stays(path)).cloned().collect();
        gone.sort();
        for path in gone {
            self.send(Node { path, what: What::Gone })?;
        }
        self.flush()
    }
}

/// The contents of a file.
fn printed(file: File, size: u64) -> io::Result<super::Printed> {
    let mut nodes = FileNodes::new(OsString::new(), file, size, 0, (0, 0));
    let mut print = Print::default();
    while let Some(node) = nodes.next_node()? {
        take_print(&mut print, &node.what);
    }
    Ok(print.end())
}

/// Says how many zeros it were.
fn take_print(print: &mut Print, what: &What) -> u64 {
    match what {
        What::File { bytes, .. } | What::More { bytes } => print.add(bytes),
        What::Hole { bytes } => {
            print.add_zeros(*bytes);
            return *bytes;
        }
        What::Folder { .. } | What::Link { .. } | What::Name { .. } | What::Other { .. } | What::Gone => {}
    }
    0
}

/// Opens a file that was looked at. It is ours: one that is closed can be opened up, and is closed again. Nothing when it
/// is gone.
fn open_to_read(folder: &OwnedFd, name: &OsStr, stat: &Stat) -> io::Result<Option<(File, Stat)>> {
    let file = match open_file(folder, name) {
        Err(Errno::ACCESS) => {
            let mode = mode_of(stat);
            open_up(folder, name, mode | 0o400)?;
            let file = open_file(folder, name)?;
            if identity(&rustix::fs::fstat(&file)?) == identity(stat) {
                close_file(&file, mode)?;
            }
            Ok(file)
        }
        opened => opened,
    };
    let file = match file {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    let now = rustix::fs::fstat(&file)?;
    if identity(&now) == identity(stat) { Ok(Some((file, now))) } else { Err(moving()) }
}

/// A program may have put a link here meanwhile. Then this changes what that program, as the same user, could have changed.
pub(super) fn open_up(folder: &OwnedFd, name: &OsStr, mode: u32) -> io::Result<()> {
    Ok(rustix::fs::chmodat(folder, name, Mode::from_raw_mode(mode), AtFlags::empty())?)
}

/// Puts permissions back, unless a program has set others meanwhile.
fn close(folder: &OwnedFd, mode: u32) -> io::Result<()> {
    if mode_of(&rustix::fs::fstat(folder)?) == mode | 0o700 {
        rustix::fs::fchmod(folder, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

fn close_file(file: &File, mode: u32) -> io::Result<()> {
    if mode_of(&rustix::fs::fstat(file)?) == mode | 0o400 {
        rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

fn identity(stat: &Stat) -> (u64, u64) {
    (stat.st_dev, stat.st_ino)
}

fn moving() -> io::Error {
    io::Error::other("it became something else while it was looked at; try again when no program writes")
}
