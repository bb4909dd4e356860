//! A layer that lies over nothing: a copy of the workspace, known by what was copied.

use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use super::error::{at, marks_of};
use super::{Harvest, HarvestError};
use crate::workspace::change::Stamp;
use crate::workspace::copy::Manifest;
use crate::workspace::node::{hold, kind_of};
use crate::workspace::overlay::Marks;

impl Harvest<'_> {
    /// The marks of a node of the private layer. A copy has none, and shows nothing that it does not have itself.
    pub(super) fn marks_of(&self, node: impl AsFd, place: &Path) -> Result<Marks, HarvestError> {
        if self.copied.is_some() {
            return Ok(Marks { opaque: true, ..Marks::default() });
        }
        marks_of(node, place)
    }

    /// Whether a file or link of a copy is as it was copied, so that nothing of it has to be read.
    pub(super) fn is_untouched(&self, path: &Path, stat: &Stat, below: Option<&Stat>) -> bool {
        let is_folder = kind_of(stat) == FileType::Directory;
        !is_folder && self.copied.is_some_and(|copied| copied.is_untouched(path, stat, below))
    }

    /// Whether the program found something at `path` of the workspace. What the host put there since, a copy does not have.
    pub(super) fn was_seen(&self, path: &Path) -> bool {
        self.copied.is_none_or(|copied| copied.has(path))
    }

    /// Whether a place was counted when it was copied.
    pub(super) fn is_known(&self, path: &Path) -> bool {
        self.copied.is_some_and(|copied| copied.has(path.strip_prefix(".").unwrap_or(path)))
    }

    /// Whether a folder that was copied is none on the host any more.
    pub(super) fn is_lost_folder(&self, path: &Path, below: Option<&Stat>) -> bool {
        let is_folder = below.is_some_and(|below| kind_of(below) == FileType::Directory);
        !is_folder && self.copied.is_some_and(|copied| copied.has_folder(path))
    }

    /// The permissions with which the program found what is `below` in the workspace.
    pub(super) fn old_mode(&self, path: &Path, below: &Stat) -> u32 {
        self.copied.and_then(|copied| copied.mode(path)).unwrap_or(below.st_mode & 0o7777)
    }

    /// Whether the host changed what is at `path` of the workspace since the program could see it.
    pub(super) fn is_unknown(&self, path: &Path, stamp: Stamp) -> bool {
        match self.shown() {
            Some(copied) => copied.is_changed_on_the_host(path, stamp),
            None => stamp.changed >= self.bounds.began,
        }
    }

    /// What the host has of what the program found at `path` and was `below`: the same, but where a copy was shown in its place. Nothing
    /// where the host has removed it since.
    pub(super) fn on_host(&self, below: &Stat, path: &Path) -> Result<Option<Stat>, HarvestError> {
        if self.lower.copied().is_none() {
            return Ok(Some(*below));
        }
        match hold(self.lower.folder(), path) {
            Ok(held) => rustix::fs::fstat(&held).map(Some).map_err(at("look at the host's", path)),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => Ok(None),
            Err(errno) => Err(at("look at the host's", path)(errno)),
        }
    }

    /// The copy that the program was shown: the layer itself, or what lies below it.
    fn shown(&self) -> Option<&Manifest> {
        self.copied.or_else(|| self.lower.copied())
    }
}
