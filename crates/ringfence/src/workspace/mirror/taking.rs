//! Taking what a guest says into a private copy.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_guest::far::{Node, OtherKind, What};
use ringfence_guest::nodes::{LONGEST, PERMISSIONS, Unfinished, is_plain, split};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid};
use rustix::io::Errno;

use crate::remove_tree::remove_tree_at;
use crate::workspace::node::{hold, kind_of, open_folder, open_up, stat_of};

/// Of the letters in all paths, and in what links point at.
const MOST_LETTERS: usize = 64 * 1024 * 1024;
/// Whose files are that would make whoever executes them their owner, when we are root.
const NOBODY: u32 = 65534;

/// Why what a guest said is not taken.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// The system refused something.
    #[error("could not {attempt} {place:?} of what the program changed")]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// With what, relative to the workspace.
        place: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Not a path below the workspace.
    #[error("the guest told of a change at {begin:?}, which is no place in the workspace")]
    NotAPlace {
        /// Its first letters.
        begin: String,
    },
    /// The folder that it would be in is none.
    #[error("the guest told of a change at {place:?}, and there is no such folder")]
    NoFolder {
        /// Where.
        place: PathBuf,
    },
    /// Something that no guest of ours says.
    #[error("the guest told of a change at {place:?} that means nothing: {what}")]
    Meaningless {
        /// Where.
        place: PathBuf,
        /// What about it.
        what: &'static str,
    },
    /// Too many places differ.
    #[error("more than {most} files and folders were changed")]
    TooMany {
        /// What may be taken.
        most: usize,
    },
    /// Their names are too long, taken together.
    #[error("the names of what was changed are together longer than {MOST_LETTERS} bytes")]
    TooLong,
    /// There is too much.
    #[error("the files that were made or changed are together larger than {most} bytes, holes in them included")]
    TooMuch {
        /// What may be taken.
        most: u64,
    },
    /// There was an error before.
    #[error("an earlier part of what the program changed could not be taken")]
    GivenUp,
}

/// A private copy into which is taken what a guest says that differs.
///
/// The guest may be anybody's. Its paths are relative and plain, nothing is looked up through a link or outside of the copy,
/// and what is there already is removed before something else is made. Bytes and places have caps. After an error nothing
/// more is taken, and what was is of no use: whoever holds the copy throws it away.
#[derive(Debug)]
pub struct Taking {
    root: Arc<OwnedFd>,
    most_bytes: u64,
    most_entries: usize,
    bytes: u64,
    entries: usize,
    letters: usize,
    /// The folder that was asked for last: what is next is often in it.
    last: Option<(OsString, Arc<OwnedFd>)>,
    unfinished: Option<(OsString, Unfinished)>,
    /// Folders that get these permissions at the end, when all is in them.
    modes: BTreeMap<PathBuf, u32>,
    given_up: bool,
}

impl Taking {
    /// Into the copy in `folder`, at most so many bytes, holes included, and so many places.
    pub fn new(folder: OwnedFd, most_bytes: u64, most_entries: usize) -> Self {
        Self {
            root: Arc::new(folder),
            most_bytes,
            most_entries,
            bytes: 0,
            entries: 0,
            letters: 0,
            last: None,
            unfinished: None,
            modes: BTreeMap::new(),
            given_up: false,
        }
    }

    /// Takes a part of what differs.
    pub fn take(&mut self, nodes: Vec<Node>) -> Result<(), TakeError> {
        if self.given_up {
            return Err(TakeError::GivenUp);
        }
        let taken = nodes.into_iter().try_for_each(|node| self.take_one(node));
        self.given_up = taken.is_err();
        taken
    }

    /// That was all, or all that the guest could tell: folders get their permissions.
    pub fn finish(mut self) -> Result<(), TakeError> {
        if self.given_up {
            return Err(TakeError::GivenUp);
        }
        self.finish_file()?;
        // What is in a folder comes after it.
        for (path, mode) in self.modes.iter().rev() {
            let failed = || io_at("give permissions to", path.as_os_str());
            let folder = hold(&self.root, path).map_err(failed())?;
            open_up(&folder, Mode::from_raw_mode(*mode)).map_err(failed())?;
        }
        Ok(())
    }

    fn take_one(&mut self, Node { path, what }: Node) -> Result<(), TakeError> {
        let meaningless = |what| TakeError::Meaningless { place: PathBuf::from(&path), what };
        if !is_plain(&path) {
            return Err(TakeError::NotAPlace { begin: path.to_string_lossy().chars().take(64).collect() });
        }
        match &what {
            What::More { bytes } if bytes.is_empty() => return Err(meaningless("an empty piece")),
            What::Hole { bytes: 0 } => return Err(meaningless("an empty hole")),
            What::More { bytes } => {
                self.count_bytes(bytes.len() as u64)?;
                let file = self.file_sent_last(&path).ok_or_else(|| meaningless("a piece of no file"))?;
                return file.add(bytes).map_err(|source| io_error("write", &path, source));
            }
            What::Hole { bytes } => {
                self.count_bytes(*bytes)?;
                let file = self.file_sent_last(&path).ok_or_else(|| meaningless("a hole in no file"))?;
                return file.add_zeros(*bytes).map_err(|source| io_error("write", &path, source));
            }
            What::Folder { mode } | What::File { mode, .. } if mode & !PERMISSIONS != 0 => {
                return Err(meaningless("its permissions"));
            }
            What::File { modified: (_, nanoseconds), .. } if *nanoseconds >= 1_000_000_000 => {
                return Err(meaningless("its time"));
            }
            What::Link { target } if target.is_empty() || target.len() > LONGEST || has_zero(target) => {
                return Err(meaningless("where it points"));
            }
            What::Name { of } if !is_plain(of) || *of == path => return Err(meaningless("whose name it is")),
            _ => {}
        }
        self.finish_file()?;
        self.count_place(&path, &what)?;
        let (parent, name) = split(&path);
        let folder = self.folder(parent)?;
        match what {
            What::Folder { mode } => {
                let stat = stat_of(&folder, name).map_err(io_at("look at", &path))?;
                if stat.is_none_or(|stat| kind_of(&stat) != FileType::Directory) {
                    self.remove(&folder, name, &path)?;
                    rustix::fs::mkdirat(&*folder, name, Mode::RWXU).map_err(io_at("make the folder", &path))?;
                }
                self.modes.insert(PathBuf::from(&path), mode);
            }
            What::File { mode, modified, bytes } => {
                self.count_bytes(bytes.len() as u64)?;
                self.remove(&folder, name, &path)?;
                let file = make_file(&folder, name, mode).map_err(io_at("make", &path))?;
                let mut file = Unfinished::new(file, mode, modified);
                file.add(&bytes).map_err(|source| io_error("write", &path, source))?;
                self.unfinished = Some((path, file));
            }
            What::Link { target } => {
                self.remove(&folder, name, &path)?;
                rustix::fs::symlinkat(&target, &*folder, name).map_err(io_at("make the link", &path))?;
            }
            What::Name { of } => {
                let (other, first) = split(&of);
                let other = self.folder(other)?;
                let stat = stat_of(&other, first).map_err(io_at("look at", &of))?;
                if stat.is_none_or(|stat| kind_of(&stat) != FileType::RegularFile) {
                    return Err(TakeError::Meaningless { place: path.into(), what: "another name of no file" });
                }
                self.remove(&folder, name, &path)?;
                let linked = rustix::fs::linkat(&*other, first, &*folder, name, AtFlags::empty());
                linked.map_err(io_at("make another name", &path))?;
            }
            What::Other { kind } => {
                self.remove(&folder, name, &path)?;
                let kind = match kind {
                    OtherKind::Pipe => FileType::Fifo,
                    OtherKind::Socket => FileType::Socket,
                    // With the number that is no device's, which everybody may make: it is listed, and cannot be opened.
                    OtherKind::Device => FileType::CharacterDevice,
                };
                let made = rustix::fs::mknodat(&*folder, name, kind, Mode::RUSR | Mode::WUSR, 0);
                made.map_err(io_at("make", &path))?;
            }
            What::Gone => self.remove(&folder, name, &path)?,
            What::More { .. } | What::Hole { .. } => {}
        }
        Ok(())
    }

    fn count_place(&mut self, path: &OsStr, what: &What) -> Result<(), TakeError> {
        self.entries += 1;
        if self.entries > self.most_entries {
            return Err(TakeError::TooMany { most: self.most_entries });
        }
        let target = match what {
            What::Link { target } => target.len(),
            _ => 0,
        };
        self.letters += path.len() + target;
        if self.letters > MOST_LETTERS { Err(TakeError::TooLong) } else { Ok(()) }
    }

    fn count_bytes(&mut self, bytes: u64) -> Result<(), TakeError> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.most_bytes { Err(TakeError::TooMuch { most: self.most_bytes }) } else { Ok(()) }
    }

    fn file_sent_last(&mut self, path: &OsStr) -> Option<&mut Unfinished> {
        self.unfinished.as_mut().filter(|(last, _)| last == path).map(|(_, file)| file)
    }

    fn finish_file(&mut self) -> Result<(), TakeError> {
        let Some((path, file)) = self.unfinished.take() else { return Ok(()) };
        file.finish().map(drop).map_err(|source| io_error("finish", &path, source))
    }

    /// The folder at `path`, so that something can be made and removed in it.
    fn folder(&mut self, path: &OsStr) -> Result<Arc<OwnedFd>, TakeError> {
        if path.is_empty() {
            return Ok(self.root.clone());
        }
        if let Some((_, folder)) = self.last.as_ref().filter(|(last, _)| last == path) {
            return Ok(folder.clone());
        }
        let place = Path::new(path);
        let opened = match open_folder(&self.root, place) {
            Err(Errno::ACCESS) => {
                // From the outermost on: what is in a closed folder cannot be looked at.
                let mut above: Vec<&Path> = place.ancestors().filter(|above| !above.as_os_str().is_empty()).collect();
                above.reverse();
                above.into_iter().try_for_each(|above| self.open_up(above))?;
                open_folder(&self.root, place)
            }
            opened => opened,
        };
        let opened = match opened {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return Err(TakeError::NoFolder { place: place.to_owned() });
            }
            opened => opened.map_err(io_at("open the folder", path))?,
        };
        self.open_up(place)?;
        let opened = Arc::new(opened);
        self.last = Some((path.to_owned(), opened.clone()));
        Ok(opened)
    }

    /// Opens a closed folder of ours up until the end.
    fn open_up(&mut self, place: &Path) -> Result<(), TakeError> {
        let failed = || io_at("open the folder", place.as_os_str());
        let held = match hold(&self.root, place) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                return Err(TakeError::NoFolder { place: place.to_owned() });
            }
            held => held.map_err(failed())?,
        };
        let stat = rustix::fs::fstat(&held).map_err(failed())?;
        if kind_of(&stat) != FileType::Directory {
            return Err(TakeError::NoFolder { place: place.to_owned() });
        }
        let mode = stat.st_mode & PERMISSIONS;
        if mode & 0o700 != 0o700 {
            open_up(&held, Mode::from_raw_mode(mode | 0o700)).map_err(failed())?;
            self.modes.entry(place.to_owned()).or_insert(mode);
        }
        Ok(())
    }

    /// Removes what is at a place, with all that is in it.
    fn remove(&mut self, folder: &OwnedFd, name: &OsStr, path: &OsStr) -> Result<(), TakeError> {
        let Some(stat) = stat_of(folder, name).map_err(io_at("look at", path))? else { return Ok(()) };
        if kind_of(&stat) != FileType::Directory {
            return rustix::fs::unlinkat(folder, name, AtFlags::empty()).map_err(io_at("remove", path));
        }
        // It may be the one that is held, or around it.
        self.last = None;
        let place = PathBuf::from(path);
        let below = self.modes.range(place.clone()..).map(|(known, _)| known);
        let below: Vec<PathBuf> = below.take_while(|known| known.starts_with(&place)).cloned().collect();
        for known in below {
            self.modes.remove(&known);
        }
        remove_tree_at(folder.as_fd(), name).map_err(|source| io_error("remove", path, source))
    }
}

/// Makes a file where nothing is.
fn make_file(folder: &OwnedFd, name: &OsStr, mode: u32) -> rustix::io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)?;
    // It is listed with these bits, so it has them. It must not be root's, wherever it lies.
    if mode & 0o6000 != 0 && rustix::process::geteuid().is_root() {
        rustix::fs::fchown(&made, Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(NOBODY)))?;
    }
    Ok(made.into())
}

fn has_zero(text: &OsStr) -> bool {
    text.as_encoded_bytes().contains(&0)
}

fn io_at(attempt: &'static str, place: &OsStr) -> impl FnOnce(Errno) -> TakeError {
    let place = PathBuf::from(place);
    move |errno| TakeError::Io { attempt, place, source: errno.into() }
}

fn io_error(attempt: &'static str, place: &OsStr, source: io::Error) -> TakeError {
    TakeError::Io { attempt, place: place.into(), source }
}
