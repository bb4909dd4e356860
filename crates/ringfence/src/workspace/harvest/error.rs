//! Why a harvest ends without a list, and what it may cost.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::workspace::overlay::{self, Marks, MarksError};

/// Places that are looked at or listed.
pub(super) const MOST_ENTRIES: usize = 200_000;
/// Of the letters in all of them, and in what links point at.
pub(super) const MOST_LETTERS: usize = 64 * 1024 * 1024;
/// Of the letters in one: no program of the host could name a longer one.
pub(super) const LONGEST: usize = 4095;

/// Why there is no list of changes.
#[derive(Debug, thiserror::Error)]
pub enum HarvestError {
    /// The system refused something.
    #[error("could not {attempt} {place:?}")]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// With what, relative to the workspace.
        place: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// Too many places differ.
    #[error("more than {MOST_ENTRIES} files and folders would have to be listed")]
    TooMany,
    /// Their names are too long, taken together.
    #[error("the names of what was changed are together longer than {MOST_LETTERS} bytes")]
    TooLong,
    /// One name is.
    #[error("the path that begins with {begin:?} is longer than {LONGEST} bytes, so no program could use it")]
    LongPath {
        /// Its first letters.
        begin: String,
    },
    /// There is too much to read.
    #[error("the files that were made or changed are together larger than {most} bytes, holes in them included")]
    TooMuch {
        /// What may be read.
        most: u64,
    },
    /// Overlay wrote something that this version does not know, or somebody else did.
    #[error("{place:?} is marked in the private layer in a way that is not known: {mark}")]
    NotUnderstood {
        /// Where.
        place: PathBuf,
        /// The mark.
        mark: &'static str,
    },
    /// It changed while it was looked at.
    #[error("{place:?} became something else while it was looked at")]
    Moving {
        /// Where.
        place: PathBuf,
    },
}

pub(super) fn at(attempt: &'static str, place: &Path) -> impl FnOnce(Errno) -> HarvestError {
    let place = place.to_owned();
    move |errno| HarvestError::Io { attempt, place, source: errno.into() }
}

pub(super) fn marks_of(node: impl AsFd, place: &Path) -> Result<Marks, HarvestError> {
    overlay::marks_of(node).map_err(|error| match error {
        MarksError::Read(errno) => at("read the attributes of", place)(errno),
        MarksError::NotUnderstood(mark) => HarvestError::NotUnderstood { place: place.to_owned(), mark },
    })
}

pub(super) fn io_at(attempt: &'static str, place: &Path, source: io::Error) -> HarvestError {
    HarvestError::Io { attempt, place: place.to_owned(), source }
}
