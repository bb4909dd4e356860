//! A set as rows that people and programs look at: every change in exactly one row, a rename with the removal that belongs
//! to it. Contents are compared on demand, within a bounded effort, and what is too much is said to be too much.

mod host;
mod looked_at;
mod renames;
mod text;

use super::change::{Before, Change, ChangeSet, Node, Place, Stamp, WasKind};
use super::objects::ObjectId;

pub use self::host::HostFiles;
pub use self::looked_at::{LookedAt, look_at};
pub use self::text::{Effort, Hunk, Sign};

/// Contents that are larger are not compared line by line.
pub const MOST_BYTES: u64 = 1024 * 1024;
/// Nor are texts with more lines.
const MOST_LINES: usize = 50_000;

/// Ways to contents, each giving nothing where they are larger than [`MOST_BYTES`] or cannot be had.
pub struct Contents<'a> {
    /// What is kept with the set.
    pub kept: &'a dyn Fn(ObjectId) -> Option<Vec<u8>>,
    /// A file of the host, while it is the one with this stamp.
    pub host: &'a dyn Fn(&Place, &Stamp) -> Option<Vec<u8>>,
}

/// What a file held or holds.
#[derive(Debug, PartialEq, Eq)]
enum Held {
    /// There was no file.
    Nothing,
    /// This.
    Bytes(Vec<u8>),
    /// More than is compared.
    TooMuch,
    /// It was not kept, and the host's file changed since.
    Lost,
}

impl Contents<'_> {
    fn before(&self, change: &Change) -> Held {
        match &change.before {
            Before::Nothing => Held::Nothing,
            Before::Unknown => Held::Lost,
            Before::Was(was) => match &was.kind {
                WasKind::File(_) if was.stamp.size > MOST_BYTES => Held::TooMuch,
                WasKind::File(id) => {
                    let bytes = match id {
                        Some(id) => (self.kept)(*id),
                        None => (self.host)(&change.place, &was.stamp),
                    };
                    bytes.map_or(Held::Lost, Held::Bytes)
                }
                WasKind::Link(_) | WasKind::Folder | WasKind::Other(_) => Held::Nothing,
            },
        }
    }

    fn after(&self, change: &Change) -> Held {
        match &change.after {
            Some(Node::File { size, .. }) if *size > MOST_BYTES => Held::TooMuch,
            Some(Node::File { content, .. }) => (self.kept)(*content).map_or(Held::Lost, Held::Bytes),
            Some(Node::Link { .. } | Node::Folder { .. } | Node::Other(_)) | None => Held::Nothing,
        }
    }
}

/// What happened at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// There was nothing.
    Added,
    /// It holds something else.
    Changed,
    /// There is nothing any more.
    Removed,
    /// What was elsewhere is here now.
    Renamed {
        /// How much of it stayed, in percent.
        similarity: u8,
    },
    /// Only its permissions differ.
    Mode,
    /// A link points elsewhere.
    Link,
    /// It is something of another type.
    Type,
}

impl Kind {
    /// In one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
            Self::Renamed { .. } => "renamed",
            Self::Mode => "mode",
            Self::Link => "link",
            Self::Type => "type",
        }
    }
}

/// One line of the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The change, as a number in the set.
    pub change: usize,
    /// The removal that belongs to a rename.
    pub from: Option<usize>,
    /// What happened.
    pub kind: Kind,
}

/// The rows of a set, in its order.
pub fn rows(set: &ChangeSet, contents: &Contents<'_>) -> Vec<Row> {
    let renamed = renames::find(set, contents);
    let away: std::collections::HashSet<usize> = renamed.values().map(|(from, _)| *from).collect();
    let stays = set.changes.iter().enumerate().filter(|(index, _)| !away.contains(index));
    stays
        .map(|(index, change)| match renamed.get(&index) {
            Some((from, similarity)) => {
                Row { change: index, from: Some(*from), kind: Kind::Renamed { similarity: *similarity } }
            }
            None => Row { change: index, from: None, kind: kind(change) },
        })
        .collect()
}

fn kind(change: &Change) -> Kind {
    let Some(after) = &change.after else { return Kind::Removed };
    let was = match &change.before {
        Before::Nothing => return Kind::Added,
        Before::Unknown => return Kind::Changed,
        Before::Was(was) => was,
    };
    match (&was.kind, after) {
        (WasKind::File(Some(old)), Node::File { content, mode, .. }) if old == content && was.mode != *mode => {
            Kind::Mode
        }
        (WasKind::File(_), Node::File { .. }) => Kind::Changed,
        (WasKind::Folder, Node::Folder { .. }) => Kind::Mode,
        (WasKind::Link(_), Node::Link { .. }) => Kind::Link,
        (WasKind::Other(old), Node::Other(new)) if old == new => Kind::Changed,
        _ => Kind::Type,
    }
}

/// What comparing the contents of a row gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// There are no contents, or they are the same.
    Nothing,
    /// Texts, with these differences.
    Text(Vec<Hunk>),
    /// At least one of them is no text.
    Binary,
    /// One of them is too large, or has too many lines, to be compared.
    TooLarge,
    /// What was there is not known: the host's file changed since. This is all of the new one; nothing for a removed file.
    Lost(Vec<Hunk>),
    /// What is kept of the new file cannot be read.
    Unreadable,
}

impl Body {
    /// Lines that are new, and lines that are gone.
    pub fn lines(&self) -> (usize, usize) {
        let (Self::Text(hunks) | Self::Lost(hunks)) = self else { return (0, 0) };
        let count =
            |wanted: Sign| hunks.iter().flat_map(|hunk| &hunk.lines).filter(|(sign, _)| *sign == wanted).count();
        (count(Sign::Added), count(Sign::Removed))
    }
}

/// Compares the contents of a row.
pub fn compare(set: &ChangeSet, row: &Row, contents: &Contents<'_>, effort: &mut Effort) -> Body {
    let Some(change) = set.changes.get(row.change) else { return Body::Nothing };
    let before = row.from.and_then(|from| set.changes.get(from)).unwrap_or(change);
    if row.kind == Kind::Mode || row.kind == (Kind::Renamed { similarity: 100 }) {
        return Body::Nothing;
    }
    let empty = Vec::new();
    let (before, after) = (contents.before(before), contents.after(change));
    let (old, new, lost) = match (&before, &after) {
        (Held::Nothing, Held::Nothing) => return Body::Nothing,
        (Held::TooMuch, _) | (_, Held::TooMuch) => return Body::TooLarge,
        (Held::Lost, Held::Bytes(new)) => (&empty, new, true),
        (_, Held::Lost) => return Body::Unreadable,
        (Held::Lost, Held::Nothing) => return Body::Lost(Vec::new()),
        (Held::Nothing, Held::Bytes(new)) => (&empty, new, false),
        (Held::Bytes(old), Held::Nothing) => (old, &empty, false),
        (Held::Bytes(old), Held::Bytes(new)) => (old, new, false),
    };
    if is_binary(old) || is_binary(new) {
        return if old == new { Body::Nothing } else { Body::Binary };
    }
    let lines = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    if lines(old) > MOST_LINES || lines(new) > MOST_LINES {
        return Body::TooLarge;
    }
    let hunks = text::hunks(old, new, effort);
    match (hunks.is_empty(), lost) {
        (_, true) => Body::Lost(hunks),
        (true, false) => Body::Nothing,
        (false, false) => Body::Text(hunks),
    }
}

/// Whether no terminal should be asked to show it.
fn is_binary(bytes: &[u8]) -> bool {
    bytes.contains(&0)
}

#[cfg(test)]
mod tests;
