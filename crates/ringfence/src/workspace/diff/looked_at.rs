//! A set as it is looked at: judged and paired as a whole, and then the rows that were chosen.

use std::collections::HashSet;

use super::{Contents, HostFiles, MOST_BYTES, Row, rows};
use crate::workspace::change::{Change, ChangeSet, Place, Stamp};
use crate::workspace::flag::{Judgement, judge};
use crate::workspace::objects::{ObjectId, Objects};
use crate::workspace::selection::Selection;

/// What there is to see of a set.
pub struct LookedAt<'a> {
    /// One for each change of the set.
    pub judgements: &'a [Judgement],
    /// Those that were chosen, in the set's order.
    pub rows: &'a [Row],
    /// Ways to what the files hold.
    pub contents: &'a Contents<'a>,
}

/// Lets `see` look at what was chosen of `set`, whose contents are in `objects`.
pub fn look_at<T>(set: &ChangeSet, objects: &Objects, chosen: &Selection, see: impl FnOnce(&LookedAt<'_>) -> T) -> T {
    let host = HostFiles::open(&set.workspace, set.workspace_is);
    // All are judged and paired before some are chosen: what a file means can depend on its neighbours.
    let judgements = judge(set, objects);
    let is_denied = |(_, judgement): &(&Change, &Judgement)| matches!(judgement, Judgement::Denied(_));
    let denied: HashSet<&Place> =
        set.changes.iter().zip(&judgements).filter(is_denied).map(|(change, _)| &change.place).collect();
    let from_kept = |id: ObjectId| objects.bytes(id, MOST_BYTES).ok().flatten();
    let from_host = |place: &Place, stamp: &Stamp| {
        // What the program could not see is not shown for it, either: what we say may be what it reads next.
        let host = host.as_ref().filter(|_| !denied.contains(place))?;
        host.read(place, stamp, MOST_BYTES)
    };
    let contents = Contents { kept: &from_kept, host: &from_host };
    let is_chosen = |change: usize| set.changes.get(change).is_some_and(|change| chosen.has(&change.place));
    let mut rows = rows(set, &contents);
    rows.retain(|row| is_chosen(row.change) || row.from.is_some_and(is_chosen));
    see(&LookedAt { judgements: &judgements, rows: &rows, contents: &contents })
}
