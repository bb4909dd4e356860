//! The fresh root while it is put together: folders, files, and what is shown at them.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::mount_api::{attach, attach_named};
use super::{SetupError, at};

/// How names are looked up that we did not make ourselves.
const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);
const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A root that only we see yet. Paths are relative to it.
#[derive(Debug)]
pub(super) struct Root {
    folder: Rc<OwnedFd>,
    /// Folders that we made and that nothing lies over: what their names lead to is known without looking.
    made: Vec<(PathBuf, Rc<OwnedFd>)>,
}

/// Who made what is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Made {
    /// We, just now: it is what we made, and nothing lies over it.
    Now,
    /// It was there.
    Before,
}

impl Root {
    pub(super) fn new(folder: OwnedFd) -> Self {
        Self { folder: Rc::new(folder), made: Vec::new() }
    }

    pub(super) fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    /// Shows `tree`, which is of this kind, at `path`: over what is there, or over something made for it.
    pub(super) fn show(&mut self, path: &Path, tree: &OwnedFd, kind: FileType) -> Result<(), SetupError> {
        let made = match kind {
            FileType::Directory => self.make_folder(path)?,
            // What is there may be read-only, and need not be a plain file: it is only covered.
            _ => self.make_empty_file(path)?,
        };
        match made {
            Made::Before => self.attach_over(path, tree),
            Made::Now => {
                let (parent, name) = self.parent(path)?;
                attach_named(tree.as_fd(), parent.as_fd(), name)
                    .map_err(at(format_args!("attach {}", path.display())))?;
                self.forget_below(path);
                Ok(())
            }
        }
    }

    /// Attaches `tree` over what is at `path`.
    pub(super) fn attach_over(&mut self, path: &Path, tree: &OwnedFd) -> Result<(), SetupError> {
        let target = self.find(path)?;
        attach(tree.as_fd(), target.as_fd()).map_err(at(format_args!("attach {}", path.display())))?;
        self.forget_below(path);
        Ok(())
    }

    /// What we made there is covered now.
    fn forget_below(&mut self, path: &Path) {
        self.made.retain(|(folder, _)| !folder.starts_with(path));
    }

    /// What is at `path`. A link on the way is refused: below the workspace the names are a program's, and until our root
    /// is changed an absolute link would lead to the host's files.
    pub(super) fn find(&self, path: &Path) -> Result<OwnedFd, SetupError> {
        rustix::fs::openat2(&*self.folder, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), INSIDE)
            .map_err(at(format_args!("find {}", path.display())))
    }

    pub(super) fn make_folder(&mut self, path: &Path) -> Result<Made, SetupError> {
        let (parent, name) = self.parent(path)?;
        made(rustix::fs::mkdirat(&*parent, name, Mode::from_raw_mode(0o755)))
            .map_err(at(format_args!("make the folder {}", path.display())))
    }

    fn make_empty_file(&mut self, path: &Path) -> Result<Made, SetupError> {
        let (parent, name) = self.parent(path)?;
        made(rustix::fs::mknodat(&*parent, name, FileType::RegularFile, Mode::from_raw_mode(0o644), 0))
            .map_err(at(format_args!("make the file {}", path.display())))
    }

    pub(super) fn make_file(&mut self, path: &Path, content: &[u8]) -> Result<(), SetupError> {
        let step = || format!("make the file {}", path.display());
        let (parent, name) = self.parent(path)?;
        // A pipe that stands there already must not hold us up.
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*parent, name, flags, Mode::from_raw_mode(0o644)).map_err(at(step()))?;
        let mut left = content;
        while !left.is_empty() {
            let written = rustix::io::write(&file, left).map_err(at(step()))?;
            left = left.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// The folder that `path` lies in, made if it is missing, and the name in it.
    pub(super) fn parent<'a>(&mut self, path: &'a Path) -> Result<(Rc<OwnedFd>, &'a OsStr), SetupError> {
        let name = path.file_name().ok_or(Errno::INVAL).map_err(at(format_args!("use the path {}", path.display())))?;
        Ok((self.open_folder(path.parent().unwrap_or(Path::new("")))?, name))
    }

    /// The folder at `path`, made if it is missing. No link is followed, as in [`Root::find`].
    fn open_folder(&mut self, path: &Path) -> Result<Rc<OwnedFd>, SetupError> {
        if path.as_os_str().is_empty() {
            return Ok(Rc::clone(&self.folder));
        }
        if let Some((_, folder)) = self.made.iter().find(|(made, _)| made == path) {
            return Ok(Rc::clone(folder));
        }
        let open = |root: &Self| {
            rustix::fs::openat2(&*root.folder, path, FOLDER, Mode::empty(), INSIDE)
                .map(Rc::new)
                .map_err(at(format_args!("find the folder {}", path.display())))
        };
        // Made at once rather than looked for: a name that is taken says so, and is looked at then.
        match self.make_folder(path) {
            Ok(Made::Now) => {
                let folder = open(self)?;
                self.made.push((path.to_owned(), Rc::clone(&folder)));
                Ok(folder)
            }
            Ok(Made::Before) => open(self),
            // Where nothing can be made, what is needed may be there.
            Err(cannot) => open(self).map_err(|_| cannot),
        }
    }
}

fn made(result: rustix::io::Result<()>) -> rustix::io::Result<Made> {
    match result {
        Ok(()) => Ok(Made::Now),
        Err(Errno::EXIST) => Ok(Made::Before),
        Err(errno) => Err(errno),
    }
}
