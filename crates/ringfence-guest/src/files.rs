//! Files that come with a program, put where it finds them.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};

use crate::protocol::InputFile;

const INSIDE: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

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
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(&placed.folder, flags, Mode::empty())?;
    for file in files {
        let path = Path::new(&file.path);
        if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a file's path leads outside"));
        }
        for parent in
            path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()).collect::<Vec<_>>().iter().rev()
        {
            match rustix::fs::mkdirat(&root, *parent, Mode::RWXU) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let new = rustix::fs::openat2(&root, path, flags, Mode::RUSR | Mode::WUSR, INSIDE)?;
        placed.files.push(path.to_owned());
        std::fs::File::from(new).write_all(&file.content)?;
    }
    Ok(())
}

impl Placed {
    /// Takes away what was placed. What a program put beside it stays, and is its own.
    pub(crate) fn remove(&self) {
        if self.files.is_empty() {
            return;
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(root) = rustix::fs::open(&self.folder, flags, Mode::empty()) else { return };
        for file in &self.files {
            // A program may have moved or removed them: they are its own, and nothing is lost.
            rustix::fs::unlinkat(&root, file, AtFlags::empty()).ok();
            for parent in file.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
                rustix::fs::unlinkat(&root, parent, AtFlags::REMOVEDIR).ok();
            }
        }
        rustix::fs::rmdir(&self.folder).ok();
    }
}
