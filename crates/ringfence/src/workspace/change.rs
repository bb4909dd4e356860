//! One set of changes, as data. Knows nothing of how it was found or what will become of it.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::objects::ObjectId;
use crate::run_id::RunId;

/// Where something is in a workspace: relative, not empty, and made of plain names only.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "OsString", into = "OsString")]
pub struct Place(PathBuf);

/// Why a path is no place in a workspace.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a place in the workspace: write a path below it, without `..`")]
pub struct NotAPlace(PathBuf);

impl Place {
    /// The place at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Result<Self, NotAPlace> {
        let path = path.into();
        let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
        if plain && path.components().next().is_some() {
            // Put together from its names: two ways to write a place must not be two places.
            Ok(Self(path.components().collect()))
        } else {
            Err(NotAPlace(path))
        }
    }

    /// As a path, relative to the workspace.
    pub fn as_path(&self) -> &Path {
        &self.0
    }

    /// Its names, outermost first.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &OsStr> {
        self.0.iter()
    }

    /// The folder that it is in, unless that is the workspace.
    pub fn folder(&self) -> Option<Self> {
        self.0.parent().filter(|parent| !parent.as_os_str().is_empty()).map(|parent| Self(parent.to_owned()))
    }
}

impl TryFrom<OsString> for Place {
    type Error = NotAPlace;

    fn try_from(text: OsString) -> Result<Self, NotAPlace> {
        Self::new(text)
    }
}

impl From<Place> for OsString {
    fn from(place: Place) -> Self {
        place.0.into_os_string()
    }
}

/// A moment as file systems keep it: seconds since 1970, and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Moment {
    /// Whole seconds; before 1970 they are negative.
    pub seconds: i64,
    /// The rest.
    pub nanoseconds: u32,
}

impl Moment {
    /// Now, by the clock that the kernel stamps files with. It goes in small steps, so that what is stamped later is never
    /// before it.
    pub fn now() -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        Self { seconds: now.tv_sec, nanoseconds: u32::try_from(now.tv_nsec).unwrap_or(0) }
    }
}

impl std::fmt::Display for Moment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let nanoseconds = i32::try_from(self.nanoseconds).unwrap_or(0);
        match jiff::Timestamp::new(self.seconds, nanoseconds) {
            Ok(time) => std::fmt::Display::fmt(&time, f),
            // Beyond the years that have names.
            Err(_) => write!(f, "{}.{nanoseconds:09} seconds since 1970", self.seconds),
        }
    }
}

/// What is at a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Node {
    /// A file with contents.
    File {
        /// What it holds.
        content: ObjectId,
        /// How much of it.
        size: u64,
        /// Permissions, with set-user-id, set-group-id and sticky bits.
        mode: u32,
        /// When it was last written.
        modified: Moment,
    },
    /// A symbolic link.
    Link {
        /// Where it points, as it is written.
        target: OsString,
    },
    /// A folder; what is in it has places of its own.
    Folder {
        /// Permissions.
        mode: u32,
    },
    /// Something that is listed and never carried over to a host.
    Other(OtherKind),
}

/// What is neither file, link nor folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OtherKind {
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A device.
    Device,
}

/// What tells a node of the host from every later state of it: whoever writes it changes this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The file system.
    pub device: u64,
    /// The node's number there.
    pub inode: u64,
    /// How large it is.
    pub size: u64,
    /// When its contents were last written; a program can set it.
    pub modified: Moment,
    /// When anything of it last changed; only the kernel sets it.
    pub changed: Moment,
}

/// What was at a place of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Was {
    /// Its type.
    pub kind: WasKind,
    /// Type-less permissions.
    pub mode: u32,
    /// By which it is known again.
    pub stamp: Stamp,
}

/// The type of what was there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WasKind {
    /// A file. Its contents are kept when they are small enough to be merged later, and the file was not only removed.
    File(Option<ObjectId>),
    /// A symbolic link to this.
    Link(OsString),
    /// A folder.
    Folder,
    /// Anything else.
    Other(OtherKind),
}

/// What a change begins from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Before {
    /// Nothing was there.
    Nothing,
    /// This was.
    Was(Was),
    /// The host changed it while the program ran: what the program saw is not known.
    Unknown,
}

/// One place that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Where.
    pub place: Place,
    /// What was there when the program began.
    pub before: Before,
    /// What is there now; nothing when it was removed.
    pub after: Option<Node>,
}

/// All that one run changed, sorted by place, so that a folder comes before what is in it. Of a folder that was removed
/// everything in it is listed, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeSet {
    /// The run, or the session, that made it.
    pub run_id: RunId,
    /// The workspace's real path.
    pub workspace: PathBuf,
    /// The folder that it was: device and number.
    pub workspace_is: (u64, u64),
    /// What was run, for people.
    pub subject: String,
    /// When the run began.
    pub began: Moment,
    /// When the set was made.
    pub ended: Moment,
    /// Patterns of the policy's `fs.deny`: what they name is listed, and never carried over to a host.
    pub deny: Vec<String>,
    /// Patterns of the policy's `fs.protect`: what they name, a host would execute or obey.
    pub protect: Vec<String>,
    /// Files of the workspace that say what is permitted, by whatever name.
    pub own: Vec<Place>,
    /// All that the run might write, in bytes.
    pub size: u64,
    /// What differs.
    pub changes: Vec<Change>,
}

/// How many places differ. Its JSON names are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// There was nothing before.
    pub added: u64,
    /// There was something else before.
    pub changed: u64,
    /// There is nothing any more.
    pub removed: u64,
}

impl Counts {
    /// All of them together.
    pub fn total(self) -> u64 {
        self.added + self.changed + self.removed
    }
}

impl ChangeSet {
    /// How many places differ.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for change in &self.changes {
            match (&change.before, &change.after) {
                (_, None) => counts.removed += 1,
                (Before::Nothing, Some(_)) => counts.added += 1,
                (Before::Was(_) | Before::Unknown, Some(_)) => counts.changed += 1,
            }
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_plain_path_below_the_workspace() {
        for good in ["a", "a/b", ".git/hooks", "a\nb", "..a", "a//b"] {
            assert!(Place::new(good).is_ok(), "{good:?}");
        }
        for bad in ["", ".", "..", "/", "/etc", "a/..", "a/../b", "../a", "./a"] {
            assert!(Place::new(bad).is_err(), "{bad:?}");
        }
        assert_eq!(Place::new("a//b/"), Place::new("a/b"));
    }
}
