//! Unpacks the layers of an image into a folder, and nothing anywhere else.
//!
//! Every name is looked up beneath the folder's descriptor and through no link (`openat2`), what stands at a name is taken
//! away before something new is made there, and files are made only where nothing is. Owners, extended attributes, devices
//! and pipes are not kept; no file can change the user of who executes it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::archive::{Archive, Kind, Member};

/// The longest name, in bytes and in folders: what is unpacked must also be removed again.
const MOST_NAME: usize = 2048;
const MOST_DEPTH: usize = 128;
/// The longest target of a link that Linux knows.
const MOST_TARGET: usize = 4095;
/// Of all names that one layer makes together; they are kept in memory while it is unpacked.
const MOST_NAMES: usize = 128 * 1024 * 1024;
/// A later time is not believed.
const LAST_SECOND: u64 = 1 << 34;
/// What is copied in one step.
const CHUNK: usize = 128 * 1024;

const STRICT: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

/// How much of an image is unpacked at most, all layers together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of the archives as they are unpacked.
    pub bytes: u64,
    /// Members of the archives.
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 16 << 30, entries: 500_000 }
    }
}

/// Why a layer is not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// It is no archive, or could be read in two ways.
    #[error("the archive is broken: {0}")]
    Broken(&'static str),
    /// One member is not fit.
    #[error("`{name}` {problem}")]
    Refused {
        /// Its name, with odd bytes escaped.
        name: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// It is longer than [`Limits::bytes`].
    #[error("it unpacks to more than is permitted")]
    TooLarge,
    /// It has more members than [`Limits::entries`], or makes more work than so many.
    #[error("it has more files than are permitted")]
    TooMany,
    /// The stream broke off, or is not packed as it says.
    #[error("could not read the archive")]
    Read(#[source] io::Error),
    /// The folder could not be written.
    #[error("could not unpack `{name}`")]
    Write {
        /// What, with odd bytes escaped.
        name: String,
        /// Why.
        source: io::Error,
    },
}

impl UnpackError {
    pub(super) fn refused(name: &[u8], problem: &'static str) -> Self {
        Self::Refused { name: shown(name), problem }
    }
}

/// Text for people, of bytes that an image chose.
fn shown(name: &[u8]) -> String {
    let cut = name.get(..200).unwrap_or(name);
    cut.escape_ascii().to_string()
}

fn at(path: &Path) -> impl Fn(Errno) -> UnpackError + '_ {
    |errno| UnpackError::Write { name: shown(path.as_os_str().as_bytes()), source: errno.into() }
}

/// A folder that layers are unpacked into.
#[derive(Debug)]
pub struct Unpacker {
    root: OwnedFd,
    bytes_left: u64,
    entries_left: u64,
    /// Entries that may be looked at to be removed.
    removals_left: u64,
    /// Devices and pipes that were left out.
    left_out: u64,
}

/// Whether a layer is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// There is more to do.
    More,
    /// All of it is unpacked.
    Done,
}

impl Unpacker {
    /// Unpacks into `root`, an empty folder that nobody else changes.
    pub fn new(root: OwnedFd, limits: Limits) -> Self {
        let Limits { bytes, entries } = limits;
        Self { root, bytes_left: bytes, entries_left: entries, removals_left: entries.saturating_mul(4), left_out: 0 }
    }

    /// Begins the next layer, whose archive is read from `from`.
    pub fn layer<R: Read>(&mut self, from: R) -> Layer<'_, R> {
        let archive = Archive::new(from, self.bytes_left);
        Layer { unpacker: self, archive, made: HashSet::new(), names: 0, writing: None, buffer: vec![0; CHUNK] }
    }

    /// How many devices and pipes were left out.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The kind of what is at `path`, which may be a link, but not lead through one; nothing when nothing is there.
    fn kind_of(&self, path: &Path) -> Result<Option<FileType>, UnpackError> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat2(&self.root, path, flags, Mode::empty(), STRICT) {
            Ok(found) => {
                let stat = rustix::fs::fstat(&found).map_err(at(path))?;
                Ok(Some(FileType::from_raw_mode(stat.st_mode)))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.way_error(path, errno)),
        }
    }

    fn open_folder(&self, path: &Path) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat2(&self.root, path, flags, Mode::empty(), STRICT)
    }

    fn way_error(&self, path: &Path, errno: Errno) -> UnpackError {
        let name = path.as_os_str().as_bytes();
        match errno {
            Errno::LOOP => UnpackError::refused(name, "leads through a link, and could lead out of the image"),
            Errno::XDEV => UnpackError::refused(name, "leads out of the image"),
            Errno::NOTDIR => UnpackError::refused(name, "lies below something that is no folder"),
            errno => at(path)(errno),
        }
    }

    fn names_in(&self, folder: &Path) -> Result<Vec<PathBuf>, UnpackError> {
        let opened = self.open_folder(folder).map_err(|errno| self.way_error(folder, errno))?;
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::new(opened).map_err(at(folder))? {
            let entry = entry.map_err(at(folder))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(folder.join(OsStr::from_bytes(name)));
            }
        }
        Ok(names)
    }

    /// Removes what is at `path` with all below it, but nothing that is in `kept`.
    fn remove(&mut self, path: &Path, kept: &HashSet<PathBuf>) -> Result<(), UnpackError> {
        let Some(kind) = self.kind_of(path)? else { return Ok(()) };
        self.removals_left = self.removals_left.checked_sub(1).ok_or(UnpackError::TooMany)?;
        let is_folder = kind == FileType::Directory;
        if is_folder {
            for name in self.names_in(path)? {
                self.remove(&name, kept)?;
            }
        }
        if kept.contains(path) {
            return Ok(());
        }
        let (parent, name) = split(path)?;
        let parent = self.open_folder(parent).map_err(|errno| self.way_error(path, errno))?;
        let flags = if is_folder { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(&parent, name, flags) {
            // Something below it is kept, and so it is.
            Err(Errno::NOTEMPTY | Errno::EXIST) if is_folder && !kept.is_empty() => Ok(()),
            removed => removed.map_err(at(path)),
        }
    }
}

/// One layer that is being unpacked.
#[derive(Debug)]
pub struct Layer<'a, R> {
    unpacker: &'a mut Unpacker,
    archive: Archive<R>,
    /// What this layer made: a whiteout takes away what layers below it made, wherever it stands in the archive.
    made: HashSet<PathBuf>,
    names: usize,
    writing: Option<Writing>,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Writing {
    file: File,
    path: PathBuf,
    mode: u32,
    modified: u64,
}

impl<R: Read> Layer<'_, R> {
    /// Goes on a little.
    pub fn step(&mut self) -> Result<Step, UnpackError> {
        if self.writing.is_some() {
            return self.write_on();
        }
        let Some(member) = self.archive.next()? else { return Ok(Step::Done) };
        self.unpacker.entries_left = self.unpacker.entries_left.checked_sub(1).ok_or(UnpackError::TooMany)?;
        self.place(member)?;
        Ok(Step::More)
    }

    /// The rest of the stream.
    pub fn finish(self) -> R {
        let (left, from) = self.archive.into_parts();
        self.unpacker.bytes_left = left;
        from
    }

    fn write_on(&mut self) -> Result<Step, UnpackError> {
        let Some(writing) = &mut self.writing else { return Ok(Step::More) };
        let failed = |path: &Path, source| UnpackError::Write { name: shown(path.as_os_str().as_bytes()), source };
        let read = self.archive.read_data(&mut self.buffer)?;
        if read > 0 {
            let data = self.buffer.get(..read).unwrap_or_default();
            writing.file.write_all(data).map_err(|source| failed(&writing.path, source))?;
            return Ok(Step::More);
        }
        let Writing { file, path, mode, modified } = writing;
        let seconds = i64::try_from((*modified).min(LAST_SECOND)).unwrap_or(0);
        let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
        // Some programs compare the times of two files, as Python does with its compiled ones.
        rustix::fs::futimens(&*file, &Timestamps { last_access: time, last_modification: time }).map_err(at(path))?;
        rustix::fs::fchmod(&*file, Mode::from_raw_mode((*mode & 0o777) | 0o400)).map_err(at(path))?;
        self.writing = None;
        Ok(Step::More)
    }

    fn place(&mut self, member: Member) -> Result<(), UnpackError> {
        let path = plain_path(&member.name)?;
        let Some(name) = path.file_name().map(OsStr::as_bytes) else {
            // The root itself.
            return match member.kind {
                Kind::Folder => Ok(()),
                _ => Err(UnpackError::refused(&member.name, "is the root, and no folder")),
            };
        };
        if let Some(hidden) = name.strip_prefix(b".wh.") {
            if member.kind != Kind::File {
                return Err(UnpackError::refused(&member.name, "has a name that is reserved for whiteouts"));
            }
            return self.take_away(&path, hidden);
        }
        match member.kind {
            Kind::Folder => self.make_folder(&path, member.mode),
            Kind::File => self.make_file(path, &member),
            Kind::Link { target } => self.make_link(&path, &target),
            Kind::HardLink { target } => self.make_hard_link(&path, &target),
            Kind::Special => {
                self.unpacker.remove(&path, &HashSet::new())?;
                self.unpacker.left_out += 1;
                Ok(())
            }
        }
    }

    /// A whiteout: `.wh.NAME` hides a name of the layers below, `.wh..wh..opq` all in its folder.
    fn take_away(&mut self, path: &Path, hidden: &[u8]) -> Result<(), UnpackError> {
        let parent = path.parent().unwrap_or(Path::new(""));
        match hidden {
            b".wh..opq" => match self.unpacker.open_folder(parent) {
                Ok(_) => {
                    for name in self.unpacker.names_in(parent)? {
                        self.unpacker.remove(&name, &self.made)?;
                    }
                    Ok(())
                }
                Err(Errno::NOENT) => Ok(()),
                Err(errno) => Err(self.unpacker.way_error(path, errno)),
            },
            b"" | b"." | b".." => {
                Err(UnpackError::refused(path.as_os_str().as_bytes(), "is a whiteout that names nothing"))
            }
            // Notes of another file system to itself.
            hidden if hidden.starts_with(b".wh.") => Ok(()),
            hidden => self.unpacker.remove(&parent.join(OsStr::from_bytes(hidden)), &self.made),
        }
    }

    fn make_folder(&mut self, path: &Path, mode: u32) -> Result<(), UnpackError> {
        let parent = self.make_parent(path)?;
        let (_, name) = split(path)?;
        match self.unpacker.kind_of(path)? {
            Some(FileType::Directory) => {}
            Some(_) => {
                self.unpacker.remove(path, &HashSet::new())?;
                rustix::fs::mkdirat(&parent, name, Mode::RWXU).map_err(at(path))?;
            }
            None => rustix::fs::mkdirat(&parent, name, Mode::RWXU).map_err(at(path))?,
        }
        self.remember(path)?;
        let folder = self.unpacker.open_folder(path).map_err(|errno| self.unpacker.way_error(path, errno))?;
        // Its owner can always remove what is in it: somebody has to, one day.
        rustix::fs::fchmod(&folder, Mode::from_raw_mode((mode & 0o777) | 0o700)).map_err(at(path))
    }

    fn make_file(&mut self, path: PathBuf, member: &Member) -> Result<(), UnpackError> {
        let parent = self.make_room(&path)?;
        let (_, name) = split(&path)?;
        // Nothing is there, so nothing that is there is written.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR).map_err(at(&path))?;
        self.remember(&path)?;
        self.writing = Some(Writing { file: file.into(), path, mode: member.mode, modified: member.modified });
        Ok(())
    }

    /// A link may lead anywhere: it is followed only inside, where the image is all there is.
    fn make_link(&mut self, path: &Path, target: &[u8]) -> Result<(), UnpackError> {
        if target.is_empty() || target.len() > MOST_TARGET || target.contains(&0) {
            return Err(UnpackError::refused(path.as_os_str().as_bytes(), "is a link that leads to no name"));
        }
        let parent = self.make_room(path)?;
        let (_, name) = split(path)?;
        rustix::fs::symlinkat(OsStr::from_bytes(target), &parent, name).map_err(at(path))?;
        self.remember(path)
    }

    /// A further name for a file, or a link, that the image has already.
    fn make_hard_link(&mut self, path: &Path, target: &[u8]) -> Result<(), UnpackError> {
        let bytes = path.as_os_str().as_bytes();
        let target = plain_path(target)?;
        if target == path {
            return Ok(());
        }
        match self.unpacker.kind_of(&target)? {
            Some(FileType::RegularFile | FileType::Symlink) => {}
            Some(_) => return Err(UnpackError::refused(bytes, "is a hard link to something that is no file")),
            None => return Err(UnpackError::refused(bytes, "is a hard link to something that is not there")),
        }
        let parent = self.make_room(path)?;
        let (_, name) = split(path)?;
        let (from, from_name) = split(&target)?;
        let from = self.unpacker.open_folder(from).map_err(|errno| self.unpacker.way_error(&target, errno))?;
        // Without a flag, a link is not followed.
        rustix::fs::linkat(&from, from_name, &parent, name, AtFlags::empty()).map_err(at(path))?;
        self.remember(path)
    }

    /// The folder of `path`, with nothing at its name.
    fn make_room(&mut self, path: &Path) -> Result<OwnedFd, UnpackError> {
        let parent = self.make_parent(path)?;
        self.unpacker.remove(path, &HashSet::new())?;
        Ok(parent)
    }

    /// The folder of `path`, made if it is missing.
    fn make_parent(&mut self, path: &Path) -> Result<OwnedFd, UnpackError> {
        let (parent, _) = split(path)?;
        match self.unpacker.open_folder(parent) {
            Err(Errno::NOENT) => {}
            opened => return opened.map_err(|errno| self.unpacker.way_error(path, errno)),
        }
        let mut made = PathBuf::new();
        let mut folder = self.unpacker.open_folder(&made).map_err(at(path))?;
        for part in parent.components() {
            made.push(part);
            match rustix::fs::mkdirat(&folder, part.as_os_str(), Mode::from_raw_mode(0o755)) {
                Ok(()) => self.remember(&made)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(at(path)(errno)),
            }
            folder = self.unpacker.open_folder(&made).map_err(|errno| self.unpacker.way_error(path, errno))?;
        }
        Ok(folder)
    }

    fn remember(&mut self, path: &Path) -> Result<(), UnpackError> {
        if self.made.insert(path.to_owned()) {
            self.names += path.as_os_str().len();
        }
        if self.names > MOST_NAMES { Err(UnpackError::TooMany) } else { Ok(()) }
    }
}

fn split(path: &Path) -> Result<(&Path, &OsStr), UnpackError> {
    path.parent().zip(path.file_name()).ok_or_else(|| UnpackError::refused(path.as_os_str().as_bytes(), "is no name"))
}

/// A name of an archive as a path below the root, or why it cannot be one. Empty for the root itself.
fn plain_path(name: &[u8]) -> Result<PathBuf, UnpackError> {
    let refuse = |problem| Err(UnpackError::refused(name, problem));
    if name.is_empty() {
        return refuse("is an empty name");
    }
    if name.contains(&0) {
        return refuse("is a name with a zero byte");
    }
    if name.len() > MOST_NAME {
        return refuse("is a name that is too long");
    }
    let mut plain = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(name)).components() {
        match part {
            Component::Normal(part) if part.len() > 255 => return refuse("is a name that is too long"),
            Component::Normal(part) => plain.push(part),
            Component::CurDir => {}
            Component::ParentDir => return refuse("goes up with `..`"),
            Component::RootDir | Component::Prefix(_) => return refuse("is an absolute name"),
        }
    }
    if plain.components().count() > MOST_DEPTH {
        return refuse("lies too deep");
    }
    Ok(plain)
}
