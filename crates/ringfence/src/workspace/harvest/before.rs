//! The workspace's side of a change: what was there before.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FileType, Stat};

use super::Harvest;
use super::error::{HarvestError, at, io_at};
use crate::workspace::change::{Before, Was, WasKind};
use crate::workspace::node::{
    fill, is_readable_inside, is_the_same_node, kind_of, link_target, open_file, other_kind, stamp_of,
};
use crate::workspace::objects::ObjectId;

/// Files of the workspace whose contents are kept, too, so that two changes can be merged later; and all of them together.
const MOST_BASE: u64 = 8 * 1024 * 1024;
const MOST_BASES: u64 = 256 * 1024 * 1024;
const PIECE: usize = 128 * 1024;

/// Whether old contents are kept beside the new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Contents {
    Kept,
    Left,
}

/// The contents of a file of the workspace.
enum Base {
    Same(Option<ObjectId>),
    /// The host writes to it.
    Changed,
}

impl Harvest<'_> {
    /// Whether a file of the workspace holds the same.
    pub(super) fn is_same(
        &mut self,
        lower: &OwnedFd,
        name: &OsStr,
        below: &Stat,
        file: &File,
        size: u64,
        path: &Path,
    ) -> Result<bool, HarvestError> {
        // Whether a guess was right is not told of a file that the program may not read itself. What was copied it has.
        if self.copied.is_none() && !is_readable_inside(below, self.lower.owner()) {
            return Ok(false);
        }
        // One that may not be read cannot be compared, and is listed.
        let Ok(old) = open_file(lower, name) else { return Ok(false) };
        if !is_the_same_node(&old, below) {
            return Ok(false);
        }
        self.count_read(size)?;
        let (mut old, mut new) = (old, file);
        let (mut one, mut other) = (vec![0u8; PIECE], vec![0u8; PIECE]);
        let same = loop {
            let read = fill(&mut new, &mut one).map_err(|source| io_at("read", path, source))?;
            let Ok(was) = fill(&mut old, &mut other) else { break false };
            if one.get(..read) != other.get(..was) {
                break false;
            }
            if read < PIECE {
                break true;
            }
        };
        io::Seek::rewind(&mut new).map_err(|source| io_at("read", path, source))?;
        Ok(same)
    }

    /// Whether the host changed something about `node` since the program began. What cannot be looked at may have been.
    pub(super) fn is_changed_since(&self, node: &OwnedFd) -> bool {
        rustix::fs::fstat(node).map_or(true, |stat| stamp_of(&stat).changed >= self.bounds.began)
    }

    /// What was in the workspace before.
    pub(super) fn before(
        &mut self,
        lower: Option<&OwnedFd>,
        name: &OsStr,
        below: Option<&Stat>,
        contents: Contents,
        path: &Path,
    ) -> Result<Before, HarvestError> {
        let (Some(lower), Some(below)) = (lower, below) else { return Ok(Before::Nothing) };
        // What is compared with the host's, when changes are taken there, is the host's own.
        let Some(on_host) = self.on_host(below, path)? else { return Ok(Before::Unknown) };
        let stamp = stamp_of(&on_host);
        if self.is_unknown(path, stamp) {
            return Ok(Before::Unknown);
        }
        let kind = match kind_of(below) {
            FileType::Directory => WasKind::Folder,
            FileType::Symlink => WasKind::Link(link_target(lower, name).map_err(at("read the link", path))?),
            FileType::RegularFile => match contents {
                Contents::Left => WasKind::File(None),
                Contents::Kept => match self.keep_base(lower, name, below, path)? {
                    Base::Same(content) => WasKind::File(content),
                    Base::Changed => return Ok(Before::Unknown),
                },
            },
            FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice => {
                WasKind::Other(other_kind(kind_of(below)))
            }
            FileType::Unknown => return Err(HarvestError::NotUnderstood { place: path.to_owned(), mark: "its type" }),
        };
        Ok(Before::Was(Was { kind, mode: on_host.st_mode & 0o7777, stamp }))
    }

    /// Keeps the contents of a file of the workspace, if they are small and may be read.
    fn keep_base(&mut self, lower: &OwnedFd, name: &OsStr, below: &Stat, path: &Path) -> Result<Base, HarvestError> {
        let size = u64::try_from(below.st_size).unwrap_or(u64::MAX);
        if size > MOST_BASE || self.bases.saturating_add(size) > MOST_BASES {
            return Ok(Base::Same(None));
        }
        let Ok(mut file) = open_file(lower, name) else { return Ok(Base::Same(None)) };
        if !is_the_same_node(&file, below) {
            return Ok(Base::Changed);
        }
        let added = match self.objects.add(&mut file, MOST_BASE) {
            Ok((content, read)) if read == size => content,
            // It grew, or shrank, while it was read.
            Ok(_) => return Ok(Base::Changed),
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => return Ok(Base::Changed),
            Err(source) => return Err(io_at("keep the old contents of", path, source)),
        };
        self.bases += size;
        Ok(if is_the_same_node(&file, below) { Base::Same(Some(added)) } else { Base::Changed })
    }
}
