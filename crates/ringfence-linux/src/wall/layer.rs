//! The private layer of a folder that is shown copy-on-write, seen from the guest.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags};

use super::view::Written;

/// Looked through at most; a layer with more has surely changed.
const MOST_ENTRIES: usize = 10_000;

/// What a layer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Content {
    folders: usize,
    marks: usize,
    others: usize,
    /// Permissions of the folders, each with its number, added up: they can be changed where nothing else is.
    modes: u64,
}

/// A layer that was laid over a folder.
#[derive(Debug)]
pub(super) struct Laid {
    /// The layer itself.
    pub(super) upper: OwnedFd,
    /// Both as one folder, as programs see them.
    pub(super) merged: OwnedFd,
}

/// A layer, and what we put into it ourselves.
#[derive(Debug)]
pub(super) struct PrivateLayer {
    folder: OwnedFd,
    /// What programs see: the layer and what it lies over.
    merged: OwnedFd,
    at_start: Content,
    written: Written,
}

impl PrivateLayer {
    /// The layer of `laid`, into which nothing was put.
    pub(super) fn empty(laid: Laid, written: Written) -> Self {
        Self { folder: laid.upper, merged: laid.merged, at_start: Content::default(), written }
    }

    /// The layer of `laid`, as it is before the program runs.
    pub(super) fn new(laid: Laid, written: Written) -> rustix::io::Result<Self> {
        let at_start = content(&laid.upper)?;
        Ok(Self { at_start, ..Self::empty(laid, written) })
    }

    /// Something more was put into it, before the program runs.
    pub(super) fn look_again(&mut self) -> rustix::io::Result<()> {
        self.at_start = content(&self.folder)?;
        Ok(())
    }

    pub(super) fn descriptors(&self) -> [i32; 2] {
        [self.folder.as_raw_fd(), self.merged.as_raw_fd()]
    }

    /// The layer itself, when it is to be handed to the host.
    pub(super) fn kept(&self) -> Option<BorrowedFd<'_>> {
        (self.written == Written::Kept).then(|| self.folder.as_fd())
    }

    /// What programs see of a layer that is to be handed to the host.
    pub(super) fn shown(&self) -> Option<BorrowedFd<'_>> {
        (self.written == Written::Kept).then(|| self.merged.as_fd())
    }

    /// Whether something was written, changed or removed. What cannot be looked at was made so by the program.
    pub(super) fn is_changed(&self) -> bool {
        content(&self.folder).ok() != Some(self.at_start)
    }
}

fn content(folder: &OwnedFd) -> rustix::io::Result<Content> {
    let open = |at: &OwnedFd, name: &std::ffi::CStr| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(at, name, flags, Mode::empty())
    };
    let mut found = Content::default();
    let mut left = vec![open(folder, c".")?];
    while let Some(folder) = left.pop() {
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            if [c".", c".."].contains(&entry.file_name()) {
                continue;
            }
            match entry.file_type() {
                FileType::Directory => {
                    found.folders += 1;
                    let below = open(&folder, entry.file_name())?;
                    let stat = rustix::fs::fstat(&below)?;
                    found.modes = found.modes.wrapping_add(stat.st_ino.wrapping_mul(u64::from(stat.st_mode)));
                    left.push(below);
                }
                FileType::CharacterDevice => found.marks += 1,
                _ => found.others += 1,
            }
            if found.folders + found.marks + found.others > MOST_ENTRIES {
                return Err(rustix::io::Errno::TOOBIG);
            }
        }
    }
    Ok(found)
}
