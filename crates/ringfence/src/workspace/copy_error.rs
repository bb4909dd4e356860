//! Why there is no copy of a workspace, and what to do about it.

use std::io;
use std::path::PathBuf;

use super::copy::MOST_ENTRIES;

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
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
    /// There are too many files and folders.
    #[error("the workspace has more than {MOST_ENTRIES} files and folders, so it was not copied")]
    TooMany,
    /// They are too large.
    #[error(
        "the files of the workspace are together larger than the {most} bytes of `fs.size`, so they were not copied"
    )]
    TooMuch {
        /// What may be copied.
        most: u64,
    },
    /// Somebody writes to it without end.
    #[error("{place:?} was changed each time it was copied")]
    Moving {
        /// Where.
        place: PathBuf,
    },
    /// It is not of the same file system.
    #[error("something is mounted below the workspace, at {place:?}")]
    Mounted {
        /// Where.
        place: PathBuf,
    },
}

impl CopyError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::TooMany | Self::TooMuch { .. } => {
                "with `source: copy`, without namespaces, and in some containers, a program works in a copy of the workspace: \
                 name a smaller folder with --workspace, list what it does not need under `fs.deny`, or raise `fs.size` in the policy"
            }
            Self::Mounted { .. } => "unmount it, or name another folder with --workspace",
            Self::Moving { .. } => "wait until whatever writes to it is done, or list it under `fs.deny`",
            Self::Io { .. } => {
                "with `source: copy`, without namespaces, and in some containers, a program works in a copy of the workspace, which is made in the \
                 state folder: make room there, or set RINGFENCE_STATE_DIR to a folder on a larger disk"
            }
        }
    }
}
