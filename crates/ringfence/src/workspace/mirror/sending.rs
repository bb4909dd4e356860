//! A private copy as nodes, for a guest that makes the same.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ringfence_guest::far::{Node, What};
use ringfence_guest::nodes::{Batch, FileNodes, PERMISSIONS, join};
use rustix::fs::{Dir, FileType, Mode, Stat};
use rustix::io::Errno;

use crate::workspace::node::{hold, kind_of, link_target, open_file, open_folder, open_up, stat_of};

/// All below `folder`, a private copy that nobody else writes to, in messages. Folders come before what is in them.
pub fn nodes(folder: BorrowedFd<'_>) -> Nodes<'_> {
    let left = vec![OsString::new()];
    let linked = HashMap::new();
    let batch = Batch::default();
    Nodes { root: folder, left, here: None, file: None, linked, opened: Vec::new(), batch, life: Life::GoesOn }
}

/// See [`nodes`].
#[derive(Debug)]
pub struct Nodes<'a> {
    root: BorrowedFd<'a>,
    left: Vec<OsString>,
    here: Option<Here>,
    file: Option<FileNodes>,
    /// The first names of files that have several.
    linked: HashMap<u64, OsString>,
    /// Folders that were opened up until all is read, and their permissions.
    opened: Vec<(OwnedFd, Mode)>,
    batch: Batch,
    life: Life,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    GoesOn,
    Over,
}

/// The folder that is read.
#[derive(Debug)]
struct Here {
    path: OsString,
    folder: OwnedFd,
    names: std::vec::IntoIter<OsString>,
}

impl Iterator for Nodes<'_> {
    type Item = io::Result<Vec<Node>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.life == Life::GoesOn {
            match self.next_node() {
                Ok(Some(node)) => {
                    if let Some(full) = self.batch.push(node) {
                        return Some(Ok(full));
                    }
                }
                Ok(None) => {
                    self.life = Life::Over;
                    return match self.close() {
                        Ok(()) => self.batch.take().map(Ok),
                        Err(error) => Some(Err(error)),
                    };
                }
                Err(error) => {
                    self.life = Life::Over;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

impl Nodes<'_> {
    fn next_node(&mut self) -> io::Result<Option<Node>> {
        loop {
            if let Some(file) = &mut self.file {
                match file.next_node()? {
                    Some(node) => return Ok(Some(node)),
                    None => self.file = None,
                }
            }
            if let Some(here) = &mut self.here {
                let Some(name) = here.names.next() else {
                    self.here = None;
                    continue;
                };
                let path = join(&here.path, &name);
                let what = self.look_at(&name, &path).map_err(|error| about(&path, &error))?;
                if let Some(what) = what {
                    return Ok(Some(Node { path, what }));
                }
                continue;
            }
            let Some(path) = self.left.pop() else { return Ok(None) };
            self.here = Some(self.enter(path.clone()).map_err(|error| about(&path, &error))?);
        }
    }

    /// Gives folders their permissions back.
    fn close(&mut self) -> io::Result<()> {
        let closed: Vec<_> = self.opened.drain(..).rev().map(|(held, mode)| open_up(&held, mode)).collect();
        Ok(closed.into_iter().collect::<rustix::io::Result<()>>()?)
    }

    fn enter(&mut self, path: OsString) -> io::Result<Here> {
        let place = if path.is_empty() { Path::new(".") } else { Path::new(&path) };
        let folder = match open_folder(self.root, place) {
            Err(Errno::ACCESS) => {
                self.keep_open(hold(self.root, place)?)?;
                open_folder(self.root, place)?
            }
            opened => opened?,
        };
        // One that can be listed, but whose files cannot be looked at.
        if rustix::fs::fstat(&folder)?.st_mode & 0o100 == 0 {
            self.keep_open(hold(self.root, place)?)?;
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(Here { path, folder, names: names.into_iter() })
    }

    /// Opens a folder of ours up, which has the permissions of somebody else's.
    fn keep_open(&mut self, held: OwnedFd) -> io::Result<()> {
        let mode = Mode::from_raw_mode(rustix::fs::fstat(&held)?.st_mode & PERMISSIONS);
        open_up(&held, mode | Mode::RWXU)?;
        self.opened.push((held, mode));
        Ok(())
    }

    /// What is at a name; nothing when it is a file, whose nodes come next.
    fn look_at(&mut self, name: &OsStr, path: &OsStr) -> io::Result<Option<What>> {
        let Some(here) = &self.here else { return Ok(None) };
        let stat = stat_of(&here.folder, name)?.ok_or(io::ErrorKind::NotFound)?;
        let mode = stat.st_mode & PERMISSIONS;
        Ok(match kind_of(&stat) {
            FileType::Directory => {
                self.left.push(path.to_owned());
                Some(What::Folder { mode })
            }
            FileType::Symlink => Some(What::Link { target: link_target(&here.folder, name)? }),
            FileType::RegularFile => match self.linked.get(&stat.st_ino).filter(|_| stat.st_nlink > 1) {
                Some(of) => Some(What::Name { of: of.clone() }),
                None => {
                    let file = open(&here.folder, name)?;
                    self.file = Some(file_nodes(path, file, &stat));
                    if stat.st_nlink > 1 {
                        self.linked.insert(stat.st_ino, path.to_owned());
                    }
                    None
                }
            },
            // A copy has none.
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return Err(io::Error::other("it is neither file, link nor folder")),
        })
    }
}

fn file_nodes(path: &OsStr, file: File, stat: &Stat) -> FileNodes {
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let modified = (stat.st_mtime, u32::try_from(stat.st_mtime_nsec).unwrap_or(0));
    FileNodes::new(path.to_owned(), file, size, stat.st_mode & PERMISSIONS, modified)
}

fn open(folder: &OwnedFd, name: &OsStr) -> io::Result<File> {
    match open_file(folder, name) {
        // Ours, with the permissions of somebody else's.
        Err(Errno::ACCESS) => {
            let held = hold(folder, name)?;
            let mode = Mode::from_raw_mode(rustix::fs::fstat(&held)?.st_mode & PERMISSIONS);
            open_up(&held, mode | Mode::RUSR)?;
            let opened = open_file(folder, name);
            open_up(&held, mode)?;
            Ok(opened?)
        }
        opened => Ok(opened?),
    }
}

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        // Whoever stops before the end throws the copy away.
        self.close().ok();
    }
}

fn about(path: &OsStr, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("could not read {path:?} of the copy of the workspace: {error}"))
}
