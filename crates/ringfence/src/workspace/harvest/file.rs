//! Files of a private layer: whether they differ from the workspace's, and not reading the same one twice.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;

use rustix::fs::{FileType, Stat};

use super::before::Contents;
use super::{Harvest, HarvestError, Old, at, io_at};
use crate::workspace::change::{Before, Change, Moment, Node, Place, Stamp};
use crate::workspace::node::{kind_of, moment, stamp_of};

/// What a look at a layer found of its files, for the next look at the same layer.
#[derive(Debug)]
pub struct Remembered {
    files: HashMap<Place, Known>,
    /// When the look began. What was changed in that step of the clock or later can change again without a trace.
    began: Moment,
}

impl Default for Remembered {
    fn default() -> Self {
        Self { files: HashMap::new(), began: Moment { seconds: i64::MIN, nanoseconds: 0 } }
    }
}

/// A file as it was found, and what that meant.
#[derive(Debug, Clone)]
struct Known {
    upper: (Stamp, u32),
    /// The workspace's file beside it.
    lower: Option<(Stamp, u32)>,
    hidden: bool,
    lost: bool,
    /// Nothing when it was no change.
    change: Option<Change>,
}

fn mark(stat: &Stat) -> (Stamp, u32) {
    (stamp_of(stat), stat.st_mode)
}

impl Remembered {
    pub(super) fn begin() -> Self {
        Self { files: HashMap::new(), began: Moment::now() }
    }

    fn recall(&self, place: &Place, stat: &Stat, old: &Old) -> Option<&Known> {
        let fits = |known: &&Known| {
            known.upper == mark(stat)
                && known.lower == old.stat.as_ref().map(mark)
                && (known.hidden, known.lost) == (old.hidden, old.lost)
        };
        self.files.get(place).filter(fits)
    }

    #[cfg(test)]
    pub(super) fn knows(&self, path: &str) -> bool {
        Place::new(path).is_ok_and(|place| self.files.contains_key(&place))
    }

    fn remember(&mut self, place: Place, stat: &Stat, old: &Old, change: Option<Change>) {
        if stamp_of(stat).changed < self.began {
            let lower = old.stat.as_ref().map(mark);
            let known = Known { upper: mark(stat), lower, hidden: old.hidden, lost: old.lost, change };
            self.files.insert(place, known);
        }
    }
}

impl Harvest<'_> {
    /// A file of the private layer.
    pub(super) fn take_file(
        &mut self,
        lower: Option<&OwnedFd>,
        name: &OsStr,
        file: File,
        old: &Old,
        place: Place,
    ) -> Result<(), HarvestError> {
        let path = place.as_path();
        let stat = rustix::fs::fstat(&file).map_err(at("look at", path))?;
        if let Some(found) = self.known.recall(&place, &stat, old) {
            self.changes.extend(found.change.clone());
            self.seen.files.insert(place, found.clone());
            return Ok(());
        }
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        let mode = stat.st_mode & 0o7777;
        let below = old.stat.as_ref();
        let same_kind = below.filter(|below| kind_of(below) == FileType::RegularFile && !old.hidden);
        if let (Some(below), Some(lower)) = (same_kind, lower)
            && below.st_size == stat.st_size
            && self.old_mode(path, below) == mode
            && self.is_same(lower, name, below, &file, size, path)?
        {
            self.seen.remember(place, &stat, old, None);
            return Ok(());
        }
        let key = (stat.st_dev, stat.st_ino);
        let known = self.linked.get(&key).copied();
        let (content, size) = match known {
            Some(known) => known,
            None => {
                self.count_read(size)?;
                // As it is now: what a program adds meanwhile belongs to a later look.
                let mut whole = file.take(size);
                let added = self.objects.add(&mut whole, size);
                let added = added.map_err(|source| io_at("keep the contents of", path, source))?;
                if stat.st_nlink > 1 {
                    self.linked.insert(key, added);
                }
                added
            }
        };
        let contents = if old.hidden { Contents::Left } else { Contents::Kept };
        let before = match old.lost {
            true => Before::Unknown,
            false => self.before(lower, name, below, contents, path)?,
        };
        let modified = moment(stat.st_mtime, stat.st_mtime_nsec);
        let change = Change { place: place.clone(), before, after: Some(Node::File { content, size, mode, modified }) };
        self.seen.remember(place, &stat, old, Some(change.clone()));
        self.changes.push(change);
        Ok(())
    }
}
