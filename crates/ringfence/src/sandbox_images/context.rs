//! A project's folder as an engine takes it: one archive, without what is denied, and the same for the same contents.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};

use ringfence_policy::{Glob, Sourced};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::bundle::header;
use super::ignored::{BadLine, Ignored};
use crate::backend::StartError;
use crate::backend::denied;
use crate::run_id::{NoRandomness, RunId};
use crate::scratch::{Scratch, ScratchError};
use crate::state::StateFolder;
use crate::workspace::copy::{CopyError, Kind, Owners, copy};

/// The instructions.
pub(super) const INSTRUCTIONS: &str = "Dockerfile";
const IGNORED: &str = ".dockerignore";
/// Contents of one context.
const MOST_BYTES: u64 = 256 << 20;
/// The instructions, and what is to be left out.
const MOST_DOCUMENT: u64 = 256 * 1024;

/// Why there is no context.
#[derive(Debug, thiserror::Error)]
pub enum ContextError {
    /// The folder is not in the workspace.
    #[error("{0} is not a folder of the workspace, or a link is on the way to it")]
    Outside(PathBuf),
    /// It could not be opened.
    #[error("could not open the folder {path}")]
    Open {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There are no instructions.
    #[error("{0} has no Dockerfile, or the policy denies it")]
    NoInstructions(PathBuf),
    /// A document of it cannot be read.
    #[error("could not read {0}: it is larger than 256 KiB, no file, or no text")]
    Document(&'static str),
    /// What is to be left out cannot be told.
    #[error(transparent)]
    Ignored(#[from] BadLine),
    /// What is denied could not be found out.
    #[error("could not find out what the policy denies")]
    Denied(#[source] Box<StartError>),
    /// It could not be copied.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// A link leads elsewhere.
    #[error("the link {0:?} leads out of the folder that is sent to the engine")]
    LinkOut(PathBuf),
    /// The archive could not be written.
    #[error("could not write the archive for the engine")]
    Write(#[source] io::Error),
    /// There was no place for it.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// There was no name for the place.
    #[error(transparent)]
    Randomness(#[from] NoRandomness),
}

impl ContextError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Outside(_) => "name a folder below the workspace under `image.build`, by its own path",
            Self::Open { .. } => "look whether it is there, and whether you may read it",
            Self::NoInstructions(_) => "write a Dockerfile there, or name the folder that has one under `image.build`",
            Self::Document(_) => "make it a plain text of less than 256 KiB",
            Self::Ignored(_) => "write plain names, `*`, `**`, `?` and `!` only, one to a line",
            Self::Denied(_) => "name a smaller workspace with --workspace",
            Self::Copy(_) => "list what the image does not need in .dockerignore: at most 256 MiB are sent",
            Self::LinkOut(_) => "list it in .dockerignore, or make it a link within the folder",
            Self::Write(_) | Self::Scratch(_) => {
                "make room in the state folder, or set RINGFENCE_STATE_DIR to a folder on a larger disk"
            }
            Self::Randomness(_) => "try again",
        }
    }
}

/// What is sent.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) archive: PathBuf,
    /// Of the whole archive.
    pub(super) hash: blake3::Hash,
    pub(super) instructions: String,
    /// Removed with it.
    _scratch: Scratch,
}

/// The folder `folder` of `workspace`, without what `deny` denies in that workspace, or what the project leaves out itself.
pub(super) fn make(
    state: &StateFolder,
    workspace: &Path,
    folder: &Path,
    deny: &[Sourced<Glob>],
) -> Result<Context, ContextError> {
    let below: PathBuf = folder.components().filter(|part| !matches!(part, Component::CurDir)).collect();
    let from = open_below(workspace, &below)?;
    let ignored = match read_document(&from, IGNORED)? {
        Some(text) => Ignored::parse(&text)?,
        None => Ignored::default(),
    };
    let absent = denied::find(workspace, deny, Some(state)).map_err(|error| ContextError::Denied(Box::new(error)))?;
    let absent: BTreeSet<PathBuf> = absent.into_iter().collect();
    let real = |path: &Path| path.canonicalize().map_err(|source| ContextError::Open { path: path.to_owned(), source });
    // The ledger never goes to an engine, so it must be known where it is.
    let (own_state, whole) = (real(state.path())?, real(workspace)?);
    let is_left_out = |path: &Path, kind: Kind| {
        let named = below.join(path);
        if named.ancestors().any(|part| absent.contains(part)) || denied::denies(deny, &named, kind) {
            return true;
        }
        if own_state == whole.join(&named) {
            return true;
        }
        // The engine needs the instructions even where they are left out.
        let is_needed = path == Path::new(INSTRUCTIONS);
        let may_hold_exceptions = kind == Kind::Folder && ignored.has_exceptions();
        !is_needed && !may_hold_exceptions && ignored.leaves_out(path)
    };
    let scratch = Scratch::create(state, &RunId::generate()?)?;
    scratch.make_folder("context")?;
    let copied = scratch.path().join("context");
    let to = open(&copied).map_err(|errno| ContextError::Write(errno.into()))?;
    copy(from.as_fd(), to.as_fd(), MOST_BYTES, Owners::Ours, is_left_out)?;
    let Some(instructions) = read_document(&to, INSTRUCTIONS)? else {
        return Err(ContextError::NoInstructions(folder.to_owned()));
    };
    let archive = scratch.path().join("context.tar");
    let hash = write_archive(&copied, &archive)?;
    Ok(Context { archive, hash, instructions, _scratch: scratch })
}

fn open(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The folder, through no link below the workspace.
fn open_below(workspace: &Path, below: &Path) -> Result<OwnedFd, ContextError> {
    let failed = |path: &Path, errno: Errno| ContextError::Open { path: path.to_owned(), source: errno.into() };
    let root = open(workspace).map_err(|errno| failed(workspace, errno))?;
    if below.as_os_str().is_empty() {
        return Ok(root);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    rustix::fs::openat2(&root, below, flags, Mode::empty(), beneath).map_err(|errno| match errno {
        Errno::XDEV | Errno::LOOP => ContextError::Outside(below.to_owned()),
        errno => failed(below, errno),
    })
}

fn read_document(folder: &OwnedFd, name: &'static str) -> Result<Option<String>, ContextError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(_) => return Err(ContextError::Document(name)),
    };
    let mut text = String::new();
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    match file.take(MOST_DOCUMENT + 1).read_to_string(&mut text) {
        Ok(read) if is_file && read as u64 <= MOST_DOCUMENT => Ok(Some(text)),
        Ok(_) | Err(_) => Err(ContextError::Document(name)),
    }
}

/// Hashes what passes.
struct Hashed<W> {
    to: W,
    hasher: blake3::Hasher,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.to.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Writes all of the private copy at `folder` to a new archive; the same contents give the same bytes.
fn write_archive(folder: &Path, to: &Path) -> Result<blake3::Hash, ContextError> {
    let failed = ContextError::Write;
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to).map_err(failed)?;
    let mut archive = tar::Builder::new(Hashed { to: BufWriter::new(file), hasher: blake3::Hasher::new() });
    // Folders whose names are yet to be read; the names within each in their order.
    let mut left = vec![PathBuf::new()];
    while let Some(path) = left.pop() {
        let whole = folder.join(&path);
        let metadata = fs::symlink_metadata(&whole).map_err(failed)?;
        let executable = metadata.mode() & 0o100 != 0;
        let mut header = header(if metadata.is_dir() || executable { 0o755 } else { 0o644 }, 0, 0);
        if metadata.is_dir() {
            let mut names = Vec::new();
            for entry in fs::read_dir(&whole).map_err(failed)? {
                names.push(path.join(entry.map_err(failed)?.file_name()));
            }
            names.sort_by(|a, b| b.cmp(a));
            left.extend(names);
            if !path.as_os_str().is_empty() {
                header.set_entry_type(tar::EntryType::Directory);
                archive.append_data(&mut header, &path, io::empty()).map_err(failed)?;
            }
        } else if metadata.is_symlink() {
            let target = fs::read_link(&whole).map_err(failed)?;
            if leads_out(&path, &target) {
                return Err(ContextError::LinkOut(path));
            }
            header.set_entry_type(tar::EntryType::Symlink);
            archive.append_link(&mut header, &path, &target).map_err(failed)?;
        } else {
            header.set_size(metadata.len());
            let content = File::open(&whole).map_err(failed)?;
            archive.append_data(&mut header, &path, content).map_err(failed)?;
        }
    }
    let mut hashed = archive.into_inner().map_err(failed)?;
    hashed.flush().map_err(failed)?;
    Ok(hashed.hasher.finalize())
}

/// Whether the link at `path` leads out of the folder, as far as names tell.
fn leads_out(path: &Path, target: &Path) -> bool {
    let mut depth = path.components().count().saturating_sub(1);
    for part in target.components() {
        match part {
            Component::Normal(_) => depth += 1,
            Component::CurDir => {}
            Component::ParentDir if depth > 0 => depth -= 1,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return true,
        }
    }
    false
}
