//! The private layer of a workspace, as a wall handed it out, and the folder that it lies over or was copied from.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Dir, Mode, OFlags};

use super::copy::Manifest;
use crate::scratch::Scratch;

/// Where all layers of overlay are: nothing of the host's own.
const TMPFS: u64 = 0x0102_1994;

/// The workspace below a private layer.
#[derive(Debug)]
pub struct Lower {
    folder: OwnedFd,
    path: PathBuf,
    is: (u64, u64),
    owner: (u32, u32),
    absent: Vec<PathBuf>,
    made: Vec<PathBuf>,
    copied: Option<ShownCopy>,
}

/// A copy that programs see in the place of the workspace.
#[derive(Debug)]
pub(crate) struct ShownCopy {
    pub(crate) folder: OwnedFd,
    pub(crate) manifest: Arc<Manifest>,
    /// With it, all of the copy is removed.
    pub(crate) lies_in: Scratch,
}

/// Whether somebody may still write to a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// Everything that could has ended.
    Over,
    /// Programs go on.
    GoesOn,
    /// Nobody does while it is looked at, and it is looked at again later: it must stay as it is.
    Rests,
}

/// A private layer over a workspace. What is in it was written by an untrusted program.
#[derive(Debug)]
pub struct PrivateLayer {
    upper: OwnedFd,
    lower: Arc<Lower>,
    life: Life,
    source: Source,
}

/// How a layer and its workspace belong together. Whatever makes layers in another way needs one more of these.
#[derive(Debug)]
enum Source {
    /// The layer has what was changed, and marks for what was removed.
    Overlay,
    /// It has everything that the program sees, in a folder that is removed with it.
    Copy { manifest: Arc<Manifest>, _held: Box<dyn Held> },
}

/// What has to be there for as long as a copy is looked at.
pub(crate) trait Held: fmt::Debug + Send + Sync {}

impl<T: fmt::Debug + Send + Sync> Held for T {}

impl Lower {
    /// The workspace `path`, held by `folder`. Relative to it, `absent` is what a program does not see of it, and `made`
    /// where its wall put something of its own.
    pub fn new(folder: OwnedFd, path: PathBuf, absent: Vec<PathBuf>, made: Vec<PathBuf>) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&folder)?;
        Ok(Self {
            folder,
            path,
            is: (stat.st_dev, stat.st_ino),
            owner: (stat.st_uid, stat.st_gid),
            absent: plain(absent),
            made: plain(made),
            copied: None,
        })
    }

    /// The same, when what a program sees below the layer is a copy of it.
    pub(crate) fn shown_as(self, copied: Option<ShownCopy>) -> Self {
        Self { copied, ..self }
    }

    /// What was copied, when a copy is shown in its place.
    pub(super) fn copied(&self) -> Option<&Manifest> {
        self.copied.as_ref().map(|copied| &*copied.manifest)
    }

    /// What a program sees below the layer.
    pub(super) fn shown(&self) -> BorrowedFd<'_> {
        self.copied.as_ref().map_or(self.folder.as_fd(), |copied| copied.folder.as_fd())
    }

    /// The folder.
    pub fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// Its real path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its device and its number there.
    pub fn is(&self) -> (u64, u64) {
        self.is
    }

    /// The user and the group that own it.
    pub(super) fn owner(&self) -> (u32, u32) {
        self.owner
    }

    /// Whether `path` was taken away before a program could see it.
    pub(super) fn is_absent(&self, path: &Path) -> bool {
        self.absent.binary_search_by(|known| known.as_path().cmp(path)).is_ok()
    }

    /// Whether `path`, or a folder that it is in, was.
    pub(super) fn is_in_absent(&self, path: &Path) -> bool {
        path.ancestors().any(|folder| self.is_absent(folder))
    }

    /// Whether something in `path` was.
    pub(super) fn holds_absent(&self, path: &Path) -> bool {
        holds(&self.absent, path)
    }

    /// Whether the wall put something of its own at `path`.
    pub(super) fn is_made(&self, path: &Path) -> bool {
        self.made.binary_search_by(|known| known.as_path().cmp(path)).is_ok()
    }

    /// Whether the wall put something of its own at `path`, or in it.
    pub(crate) fn leads_to_made(&self, path: &Path) -> bool {
        self.is_made(path) || holds(&self.made, path)
    }

    /// Whether the wall may have made the folder `path` itself, for something of its own or to take something away.
    pub(super) fn is_on_our_way(&self, path: &Path) -> bool {
        self.leads_to_made(path) || self.holds_absent(path)
    }
}

/// Sorted, so that what is looked for is found quickly.
fn plain(mut paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.sort();
    paths.dedup();
    paths
}

fn holds(sorted: &[PathBuf], folder: &Path) -> bool {
    let after = sorted.partition_point(|known| known.as_path() <= folder);
    sorted.get(after).is_some_and(|next| next.starts_with(folder))
}

impl PrivateLayer {
    /// The layer in `upper`, which a guest sent. It must be what a layer is.
    pub fn new(upper: OwnedFd, lower: Arc<Lower>, life: Life) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&upper)?;
        let is_folder = rustix::fs::FileType::from_raw_mode(stat.st_mode) == rustix::fs::FileType::Directory;
        let on = u64::try_from(rustix::fs::fstatfs(&upper)?.f_type).unwrap_or(0);
        if is_folder && on == TMPFS {
            Ok(Self { upper, lower, life, source: Source::Overlay })
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the guest sent something that is no private layer"))
        }
    }

    /// The copy in `upper`. What it lies in is `held` for as long as the layer is there.
    pub(crate) fn copy(
        upper: OwnedFd,
        lower: impl Into<Arc<Lower>>,
        manifest: impl Into<Arc<Manifest>>,
        held: impl Held + 'static,
        life: Life,
    ) -> Self {
        let source = Source::Copy { manifest: manifest.into(), _held: Box::new(held) };
        Self { upper, lower: lower.into(), life, source }
    }

    /// What was copied, when it is a copy.
    pub(super) fn copied(&self) -> Option<&Manifest> {
        match &self.source {
            Source::Overlay => None,
            Source::Copy { manifest, .. } => Some(manifest),
        }
    }

    /// A layer that was made by hand, wherever it lies.
    #[cfg(test)]
    pub(super) fn unchecked(upper: OwnedFd, lower: Arc<Lower>, life: Life) -> Self {
        Self { upper, lower, life, source: Source::Overlay }
    }

    /// What lies in it.
    pub(super) fn upper(&self) -> BorrowedFd<'_> {
        self.upper.as_fd()
    }

    /// What it lies over.
    pub fn lower(&self) -> &Lower {
        &self.lower
    }

    /// Whether it is known to hold nothing at all, so that nothing differs. Of a copy, that is not known.
    pub(super) fn holds_nothing(&self) -> bool {
        let is_empty = || -> rustix::io::Result<bool> {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let folder = rustix::fs::openat(&self.upper, c".", flags, Mode::empty())?;
            for entry in Dir::new(folder)? {
                if ![c".", c".."].contains(&entry?.file_name()) {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        matches!(self.source, Source::Overlay) && is_empty().unwrap_or(false)
    }

    /// Whether somebody may still write to it.
    pub(super) fn life(&self) -> Life {
        self.life
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn what_is_taken_away_is_known_by_its_place_and_by_what_is_around_it() {
        let folder = tempfile::tempdir().unwrap();
        let absent = ["a/b/.env", "a.b", "c"].map(PathBuf::from).to_vec();
        let lower =
            Lower::new(File::open(folder.path()).unwrap().into(), folder.path().into(), absent, vec!["d/e".into()]);
        let lower = lower.unwrap();
        let check = |path: &str, expected: [bool; 3]| {
            let path = Path::new(path);
            assert_eq!(
                [lower.is_absent(path), lower.is_in_absent(path), lower.holds_absent(path)],
                expected,
                "{path:?}"
            );
        };
        check("a/b/.env", [true, true, false]);
        check("a/b", [false, false, true]);
        check("a", [false, false, true]);
        check("a.b", [true, true, false]);
        check("a.c", [false, false, false]);
        check("c/x/y", [false, true, false]);
        check("cx", [false, false, false]);
        assert!(lower.is_made(Path::new("d/e")) && !lower.is_made(Path::new("d")));
        assert!(["d", "d/e", "a/b"].map(Path::new).iter().all(|path| lower.is_on_our_way(path)));
        assert!(!lower.is_on_our_way(Path::new("d/e/f")) && !lower.is_on_our_way(Path::new("c")));
    }

    #[test]
    fn what_a_guest_sends_must_be_a_folder_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let lower = || {
            let held = File::open(folder.path()).unwrap().into();
            Arc::new(Lower::new(held, folder.path().into(), Vec::new(), Vec::new()).unwrap())
        };
        let sent = |path: &str| PrivateLayer::new(File::open(path).unwrap().into(), lower(), Life::Over);
        assert!(sent("/dev/shm").is_ok(), "the twin: a folder in memory");
        assert!(sent("/proc/self").is_err() && sent("/proc/self/stat").is_err() && sent("/dev/null").is_err());
    }
}
