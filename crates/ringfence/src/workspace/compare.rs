//! Whether a change still fits the host: it may have gone on while the program ran.
//!
//! Reads the host and changes nothing.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};

use super::beneath::{Folder, Found, FoundKind, Held, Owner, last};
use super::carry_out::{Expected, Step};
use super::change::{Before, Change, Moment, Node, Place, Was, WasKind};
use super::objects::{ObjectId, Objects};

/// Larger files are not merged.
const MOST_MERGED: u64 = 1024 * 1024;

/// Neither are texts of which more lines than this lie between the first and the last that differ, on both sides together: the time it
/// takes grows with the square of it.
const MOST_LINES_APART: usize = 10_000;

/// Exactly what is at a place of the host, or is to be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exact {
    /// The node.
    pub node: Node,
    /// Whose it is; nothing when it is to be ours.
    pub owner: Option<Owner>,
}

/// Why a change is not made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conflict {
    /// Both made something there.
    MadeMeanwhile,
    /// The host removed what the program changed.
    GoneMeanwhile,
    /// The host changed it too, and it is no text that could be merged.
    ChangedMeanwhile,
    /// The host changed the same lines.
    SameLines,
    /// The host changed its permissions too, and otherwise.
    Permissions,
    /// What the program saw is not known.
    NotKnown,
    /// The folder holds something that would be lost.
    Holds(OsString),
    /// It has no folder to be in.
    NoFolder(Place),
    /// It is somebody else's, and what replaces it would not be.
    Owner,
    /// It is neither file, link nor folder, and could not be brought back.
    Special,
    /// It was written while it was being replaced; what was written is there.
    Written,
    /// It was changed since it was applied.
    ChangedSince,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::MadeMeanwhile => "the host made something else there meanwhile",
            Self::GoneMeanwhile => "the host removed it meanwhile",
            Self::ChangedMeanwhile => "the host changed it meanwhile, and the two cannot be merged",
            Self::SameLines => "the host changed the same lines meanwhile",
            Self::Permissions => "the host changed its permissions meanwhile, and otherwise",
            Self::NotKnown => "the host changed it while the program ran, so what the program saw is not known",
            Self::Holds(name) => {
                return write!(f, "it holds {name:?}, which is not removed with it");
            }
            Self::NoFolder(folder) => return write!(f, "its folder {:?} is not there", folder.as_path()),
            Self::Owner => "it belongs to another user",
            Self::Special => "on the host it is a pipe, a socket or a device, which could not be brought back",
            Self::Written => "somebody wrote it while it was being replaced; what they wrote is there",
            Self::ChangedSince => "it was changed since",
        };
        f.write_str(text)
    }
}

impl Conflict {
    /// What to do about it.
    pub fn advice(&self) -> &'static str {
        match self {
            Self::MadeMeanwhile | Self::ChangedMeanwhile | Self::SameLines | Self::NotKnown => {
                "look at both with `ringfence diff`, then bring the host's together by hand, or move it away and apply again"
            }
            Self::GoneMeanwhile => "put it back and apply again, or leave it as it is",
            Self::Permissions => "set them by hand",
            Self::Holds(_) => "move that away and do it again, or leave the folder as it is",
            Self::NoFolder(_) => "apply its folder, too, or make it",
            Self::Owner => "do it as its owner, or as root",
            Self::Special => "remove it by hand, and do it again",
            Self::Written => "do it again when nobody writes it",
            Self::ChangedSince => "look at it; `ringfence undo --force` takes it back anyway and keeps a copy",
        }
    }
}

/// What a change means for the host as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Comparison {
    /// The host has it already.
    Same,
    /// The host is as the program found it: this is what will be there.
    Clean(Option<Node>),
    /// The host changed it too, elsewhere: these contents, and this node, hold both.
    Merged(Vec<u8>, Node),
    /// It does not fit.
    Conflict(Conflict),
}

/// Compares `change` with what was `found` at its place.
pub fn compare(change: &Change, found: Option<&Found>, host: &Held, kept: &Objects) -> io::Result<Comparison> {
    let after = change.after.as_ref().map(|node| carried(node, found));
    let Some(found) = found else {
        return Ok(match (&change.before, after) {
            (_, None) => Comparison::Same,
            (Before::Nothing, after) => Comparison::Clean(after),
            (Before::Was(_), Some(_)) => Comparison::Conflict(Conflict::GoneMeanwhile),
            (Before::Unknown, Some(_)) => Comparison::Conflict(Conflict::NotKnown),
        });
    };
    let look = Look { place: &change.place, found, host };
    let untouched = match &change.before {
        Before::Was(was) => look.is_untouched(was)?,
        Before::Nothing | Before::Unknown => false,
    };
    if let Some(after) = &after
        && look.is(after)?
    {
        // Only its time differs: who touched a file on purpose gets it touched.
        let touched = matches!(after, Node::File { modified, .. } if *modified != found.stamp.modified);
        return Ok(if untouched && touched { Comparison::Clean(Some(after.clone())) } else { Comparison::Same });
    }
    if matches!(found.kind, FoundKind::Other(_)) {
        return Ok(Comparison::Conflict(Conflict::Special));
    }
    if untouched {
        return Ok(Comparison::Clean(after));
    }
    match (&change.before, after) {
        (Before::Nothing, Some(Node::Folder { .. })) if found.kind == FoundKind::Folder => Ok(Comparison::Same),
        (Before::Nothing, _) => Ok(Comparison::Conflict(Conflict::MadeMeanwhile)),
        (Before::Unknown, _) => Ok(Comparison::Conflict(Conflict::NotKnown)),
        (Before::Was(was), Some(after)) => look.merge(was, after, kept),
        (Before::Was(_), None) => Ok(Comparison::Conflict(Conflict::ChangedMeanwhile)),
    }
}

/// What of `node` is carried over: nothing that would change the user or the group of who executes it. A folder of the
/// host keeps such bits as it has; they say to whom new files in it belong.
fn carried(node: &Node, found: Option<&Found>) -> Node {
    match node {
        Node::File { content, size, mode, modified } => {
            Node::File { content: *content, size: *size, mode: mode & 0o777, modified: *modified }
        }
        Node::Folder { mode } => {
            let own = found.filter(|found| found.kind == FoundKind::Folder).map_or(0, |found| found.mode & 0o6000);
            Node::Folder { mode: (mode & 0o1777) | own }
        }
        Node::Link { .. } | Node::Other(_) => node.clone(),
    }
}

/// One place of the host, looked at closely.
pub struct Look<'a> {
    /// Where.
    pub place: &'a Place,
    /// What is there.
    pub found: &'a Found,
    /// The workspace.
    pub host: &'a Held,
}

impl Look<'_> {
    fn hash(&self) -> io::Result<ObjectId> {
        hash_in(&self.host.folder_of(self.place)?, last(self.place)?)
    }

    /// Whether it is `node`, but for its time.
    pub fn is(&self, node: &Node) -> io::Result<bool> {
        is_node(self.found, node, || self.hash())
    }

    /// Whether it is as it was when the program began.
    fn is_untouched(&self, was: &Was) -> io::Result<bool> {
        let found = self.found;
        Ok(match (&was.kind, &found.kind) {
            // A folder is written whenever something in it is: that is looked at there.
            (WasKind::Folder, FoundKind::Folder) => was.mode & 0o1777 == found.mode & 0o1777,
            (WasKind::Link(target), FoundKind::Link(now)) => target == now,
            (WasKind::File(_), FoundKind::File) if was.stamp == found.stamp => true,
            (WasKind::File(Some(base)), FoundKind::File) => {
                was.mode & 0o7777 == found.mode && was.stamp.size == found.stamp.size && self.hash()? == *base
            }
            _ => false,
        })
    }

    fn merge(&self, was: &Was, after: Node, kept: &Objects) -> io::Result<Comparison> {
        let found = self.found;
        let mode = |theirs: u32| match (was.mode & 0o777, found.mode & 0o777) {
            (base, now) if base == now => Some(theirs & 0o777),
            (base, now) if theirs & 0o777 == base || theirs & 0o777 == now => Some(now),
            _ => None,
        };
        match (&was.kind, after, &found.kind) {
            (WasKind::Folder, Node::Folder { mode: theirs }, FoundKind::Folder) => Ok(match mode(theirs) {
                Some(mode) if mode == found.mode & 0o777 => Comparison::Same,
                _ => Comparison::Conflict(Conflict::Permissions),
            }),
            (WasKind::File(Some(base)), Node::File { content, mode: theirs, .. }, FoundKind::File) => {
                let Some(mode) = mode(theirs) else { return Ok(Comparison::Conflict(Conflict::Permissions)) };
                let texts = [text(kept, *base)?, self.text()?, text(kept, content)?];
                let [Some(base), Some(ours), Some(theirs)] = texts else {
                    return Ok(Comparison::Conflict(Conflict::ChangedMeanwhile));
                };
                if is_far(&base, &ours) || is_far(&base, &theirs) || is_far(&ours, &theirs) {
                    return Ok(Comparison::Conflict(Conflict::ChangedMeanwhile));
                }
                let Ok(merged) = diffy::merge_bytes(&base, &ours, &theirs) else {
                    return Ok(Comparison::Conflict(Conflict::SameLines));
                };
                if merged == ours && mode == found.mode & 0o777 {
                    return Ok(Comparison::Same);
                }
                let (content, size) = (ObjectId::of(&merged), merged.len() as u64);
                // Newer than both: what is built from it must be built again.
                let modified = Moment::now();
                Ok(Comparison::Merged(merged, Node::File { content, size, mode, modified }))
            }
            _ => Ok(Comparison::Conflict(Conflict::ChangedMeanwhile)),
        }
    }

    /// The host's file, if it can be merged.
    fn text(&self) -> io::Result<Option<Vec<u8>>> {
        let file = self.host.folder_of(self.place)?.read(last(self.place)?)?;
        let mut bytes = Vec::new();
        file.take(MOST_MERGED + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes).filter(|bytes| is_text(bytes)))
    }
}

/// What a step would change in a text, line by line; nothing where one side is no text.
pub fn difference(step: &Step, host: &Held, kept: &Objects) -> io::Result<Option<String>> {
    let old = match &step.expected {
        Expected::This(found) if found.kind == FoundKind::File => Look { place: &step.place, found, host }.text()?,
        Expected::Nothing => Some(Vec::new()),
        Expected::This(_) | Expected::Folder => None,
    };
    let new = match (&step.merged, &step.to) {
        (Some(merged), _) => Some(merged.clone()),
        (None, Some(Exact { node: Node::File { content, .. }, .. })) => text(kept, *content)?,
        (None, None) => Some(Vec::new()),
        (None, Some(_)) => None,
    };
    let (Some(old), Some(new)) = (old, new) else { return Ok(None) };
    if is_far(&old, &new) {
        return Ok(None);
    }
    let (old, new) = (String::from_utf8_lossy(&old), String::from_utf8_lossy(&new));
    Ok(Some(diffy::create_patch(&old, &new).to_string()))
}

/// Whether two texts differ in more than is compared line by line.
fn is_far(one: &[u8], other: &[u8]) -> bool {
    let lines = |bytes: &'_ [u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
    if lines(one) + lines(other) <= MOST_LINES_APART {
        return false;
    }
    let (one, other): (Vec<_>, Vec<_>) =
        (one.split(|byte| *byte == b'\n').collect(), other.split(|byte| *byte == b'\n').collect());
    let alike = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
    let most = one.len().min(other.len()) - alike;
    let alike_at_the_end =
        one.iter().rev().zip(other.iter().rev()).take(most).take_while(|(one, other)| one == other).count();
    one.len() + other.len() - 2 * (alike + alike_at_the_end) > MOST_LINES_APART
}

/// A kept content, if it can be merged.
fn text(kept: &Objects, id: ObjectId) -> io::Result<Option<Vec<u8>>> {
    Ok(kept.bytes(id, MOST_MERGED)?.filter(|bytes| is_text(bytes)))
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.len() as u64 <= MOST_MERGED && !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

/// Names what is in the file at `name`.
pub(super) fn hash_in(folder: &Folder<'_>, name: &OsStr) -> io::Result<ObjectId> {
    ObjectId::read(folder.read(name)?)
}

/// Whether `found` is `node`, but for its time; its contents are only looked at when all else fits.
pub(super) fn is_node(found: &Found, node: &Node, hash: impl FnOnce() -> io::Result<ObjectId>) -> io::Result<bool> {
    Ok(match (node, &found.kind) {
        (Node::File { content, size, mode, .. }, FoundKind::File) => {
            mode & 0o7777 == found.mode && *size == found.stamp.size && hash()? == *content
        }
        (Node::Link { target }, FoundKind::Link(now)) => target == now,
        (Node::Folder { mode }, FoundKind::Folder) => mode & 0o1777 == found.mode & 0o1777,
        (Node::Other(kind), FoundKind::Other(now)) => kind == now,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::is_far;

    #[test]
    fn texts_that_differ_in_very_many_lines_are_not_merged_and_long_ones_that_differ_in_few_are() {
        let text = |line: &str, count: usize| line.repeat(count).into_bytes();
        assert!(is_far(&text("a\n", 500_000), &text("b\n", 500_000)));
        assert!(is_far(&text("a\n", 20_000), b""));
        let long = text("a\n", 500_000);
        assert!(!is_far(&long, &[long.as_slice(), b"b\n"].concat()));
        assert!(!is_far(&long, &[b"b\n", long.as_slice()].concat()));
        assert!(!is_far(&long, &[&long[..500_000], b"b\n", &long[500_000..]].concat()));
        assert!(!is_far(&long, &long) && !is_far(b"", b"") && !is_far(b"a", b"b\n"));
        assert!(!is_far(&text("a\n", 4_000), &text("b\n", 4_000)));
    }
}
