//! Applies what a run changed as soon as it has ended, without anybody looking first.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::apply::{self, Applied, ApplyError, Flagged, Left, Site, Why};
use super::change::{Change, ChangeSet, Node};
use super::kept;
use super::selection::Selection;
use crate::ledger::Ledger;
use crate::run_id::RunId;
use crate::state::StateFolder;

/// How long another run in the same workspace may take to apply what it changed.
const MOST_WAITING: Duration = Duration::from_secs(30);
const LOOK_AGAIN: Duration = Duration::from_millis(20);
/// Of what was left, so many are named in an outcome.
const MOST_NAMED: usize = 50;

/// What may be applied without a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terms {
    /// All of it, or nothing: nothing is flagged, denied or in conflict.
    AllOrNothing,
    /// Whatever is not flagged, denied or in conflict; the rest stays kept.
    Unflagged,
    /// Whatever is not protected, denied or in conflict.
    Direct,
}

/// What became of what a run changed. Its JSON names are stable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AtOnce {
    /// Places that the host has now.
    pub applied: usize,
    /// Places that were left.
    pub left: usize,
    /// The first of those, and why.
    pub named: Vec<Named>,
    /// By which it can be taken back.
    pub undo: Option<RunId>,
}

/// A place that was left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Named {
    /// Where; not always what it is called exactly, where that is no text.
    pub path: String,
    /// In one word.
    pub why: String,
    /// In more of them.
    pub reason: String,
}

impl Named {
    fn new(left: &Left) -> Self {
        let (why, reason) = match &left.why {
            Why::Flagged(reasons) => ("flagged", reasons.join("; ")),
            Why::Denied(rule) => ("denied", format!("the policy denies it by `{rule}`")),
            Why::Conflict(conflict) => ("conflict", conflict.to_string()),
            Why::NotCarried(_) => ("notCarried", "it is neither file, link nor folder".to_owned()),
            Why::Failed(error) => ("failed", format!("it could not be changed: {error}")),
        };
        Self { path: left.place.as_path().to_string_lossy().into_owned(), why: why.to_owned(), reason }
    }
}

/// Applies `set`, which is kept, on `terms`, if it is not larger than the run might write: nobody looks, so that has to hold
/// on the host, too. Of what is applied in whole nothing is kept but the way back, unless it was to be all or nothing.
pub fn apply_at_once(
    state: &StateFolder,
    ledger: &Ledger,
    set: &ChangeSet,
    terms: Terms,
) -> Result<AtOnce, ApplyError> {
    let kept = &kept::of(state, &set.run_id);
    let size = |change: &Change| match &change.after {
        Some(Node::File { size, .. }) => *size,
        _ => 0,
    };
    let bytes = set.changes.iter().map(size).fold(0u64, u64::saturating_add);
    if bytes > set.size {
        return Err(ApplyError::TooMuch { bytes, most: set.size });
    }
    let site = open(state, set)?;
    let flagged = match terms {
        Terms::AllOrNothing | Terms::Unflagged => Flagged::Leave,
        Terms::Direct => Flagged::LeaveProtected,
    };
    let mut proposal = apply::propose(set, kept, site.host(), &Selection::all(set), flagged);
    if terms == Terms::AllOrNothing && !proposal.left.is_empty() {
        let left = std::mem::take(&mut proposal.left);
        return Ok(told(&Applied { undo: None, done: Vec::new(), same: Vec::new(), left }));
    }
    let applied = apply::apply(&site, ledger, kept, set, proposal)?;
    if terms != Terms::AllOrNothing && applied.left.is_empty() {
        kept.remove().map_err(ApplyError::Journal)?;
    }
    Ok(told(&applied))
}

fn told(applied: &Applied) -> AtOnce {
    AtOnce {
        applied: applied.done.len() + applied.same.len(),
        left: applied.left.len(),
        named: applied.left.iter().take(MOST_NAMED).map(Named::new).collect(),
        undo: applied.undo.clone(),
    }
}

/// The workspace, once nobody else is at work in it.
fn open(state: &StateFolder, set: &ChangeSet) -> Result<Site, ApplyError> {
    let until = Instant::now() + MOST_WAITING;
    loop {
        match Site::open(state, &set.workspace, set.workspace_is) {
            Err(ApplyError::Busy(_)) if Instant::now() < until => std::thread::sleep(LOOK_AGAIN),
            opened => return opened,
        }
    }
}
