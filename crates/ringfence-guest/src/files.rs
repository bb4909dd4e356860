//! Files that come with a program, put where it finds them.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags};

use crate::protocol::InputFile;

const FOLDER: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What was put in place, and is taken away again.
#[derive(Debug)]
pub(crate) struct Placed {
    folder: PathBuf,
    files: Vec<PathBuf>,
}

/// Makes `folder`, which must not be there, and writes `files` in it. Programs that run already may write beside us, so
/// nothing is followed and nothing replaced.
pub(crate) fn place(folder: &OsStr, files: &[InputFile]) -> io::Result<Placed> {
    let folder = PathBuf::from(folder);
    let mut placed = Placed { folder, files: Vec::new() };
    if files.is_empty() {
        return Ok(placed);
    }
    rustix::fs::mkdir(&placed.folder, Mode::RWXU)?;
    let written = write_all(&mut placed, files);
    if written.is_err() {
        placed.remove();
    }
    written.map(|()| placed)
}

fn write_all(placed: &mut Placed, files: &[InputFile]) -> io::Result<()> {
    let root = rustix::fs::open(&placed.folder, FOLDER, Mode::empty())?;
    for file in files {
        let path = Path::new(&file.path);
        if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a file's path leads outside"));
        }
        let parents: Vec<&Path> = parents(path).collect();
        for parent in parents.into_iter().rev() {
            let (folder, name) = open_parent(&root, parent)?;
            match rustix::fs::mkdirat(&folder, name, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let (folder, name) = open_parent(&root, path)?;
        let new = rustix::fs::openat(&folder, name, flags, Mode::RUSR | Mode::WUSR)?;
        placed.files.push(path.to_owned());
        std::fs::File::from(new).write_all(&file.content)?;
    }
    Ok(())
}

/// The folders that a path lies in, the innermost first.
fn parents(path: &Path) -> impl Iterator<Item = &Path> {
    path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty())
}

/// The folder of `path` below `root`, by no link, and the name in it. Step by step: not every kernel that a container may
/// have can do it at once.
fn open_parent<'a>(root: &OwnedFd, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut folder = root.try_clone()?;
    for part in path.parent().into_iter().flat_map(Path::components) {
        match part {
            Component::Normal(part) => folder = rustix::fs::openat(&folder, part, FOLDER, Mode::empty())?,
            Component::CurDir => {}
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
    Ok((folder, name))
}

impl Placed {
    /// Takes away what was placed. What a program put beside it stays, and is its own.
    pub(crate) fn remove(&self) {
        if self.files.is_empty() {
            return;
        }
        let Ok(root) = rustix::fs::open(&self.folder, FOLDER, Mode::empty()) else { return };
        // A program may have moved or removed them: they are its own, and nothing is lost.
        let remove = |path: &Path, flags| {
            open_parent(&root, path).and_then(|(folder, name)| Ok(rustix::fs::unlinkat(&folder, name, flags)?)).ok()
        };
        for file in &self.files {
            remove(file, AtFlags::empty());
            for parent in parents(file) {
                remove(parent, AtFlags::REMOVEDIR);
            }
        }
        rustix::fs::rmdir(&self.folder).ok();
    }
}
