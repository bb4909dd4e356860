//! Why there is no list of changes, and where one ends.

use std::io;
use std::path::PathBuf;

/// Places that are looked at or listed.
pub(super) const MOST_ENTRIES: usize = 200_000;
/// Of the letters in all of them.
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
