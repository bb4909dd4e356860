//! Takes back what was applied last: contents, permissions, times, links, and what was removed.

use std::collections::BTreeMap;
use std::io;

use serde_json::json;

use super::apply::{Applied, ApplyError, Progress, ProgressState, Proposal, Site};
use super::beneath::{Found, FoundKind, Held};
use super::carry_out::{Expected, Left, Step};
use super::change::{Moment, Place};
use super::compare::{Conflict, Exact, Look};
use super::journal::{Act, Fate, Recorded};
use super::kept;
use crate::ledger::{Durability, Entry, Kind, Ledger};
use crate::state::StateFolder;

/// What happens to files that were changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Since {
    /// They are left.
    Leave,
    /// They are taken back, too; a copy of what they were is in the undo's journal.
    TakeBack,
}

/// The apply that is taken back next: the newest that was not taken back yet.
pub fn next(site: &Site) -> Result<Recorded, ApplyError> {
    newest(site.journals()?).ok_or_else(|| ApplyError::NothingToUndo(site.host().path().to_owned()))
}

/// Likewise, of journals that were read already, newest first.
pub fn newest(journals: Vec<Recorded>) -> Option<Recorded> {
    let fits = |recorded: &Recorded| recorded.head.act == Act::Apply && !recorded.taken_back && recorded.changed() > 0;
    journals.into_iter().find(fits)
}

/// Says what taking `applied` back would do. Changes nothing.
pub fn propose(applied: &Recorded, host: &Held, since: Since) -> Proposal {
    let mut changed: BTreeMap<&Place, (Option<&Exact>, Option<&Exact>)> = BTreeMap::new();
    for (intent, _) in applied.intents.iter().filter(|(_, fate)| *fate == Fate::Done) {
        let (from, to) = (intent.from.as_ref(), intent.to.as_ref());
        changed.entry(&intent.place).and_modify(|(_, last)| *last = to).or_insert((from, to));
    }
    let mut proposal = Proposal::default();
    for (place, (from, to)) in changed {
        match propose_one(place, from, to, host, since) {
            Ok(Ok(Some(step))) => proposal.steps.push(step),
            Ok(Ok(None)) => proposal.same.push(place.clone()),
            Ok(Err(conflict)) => proposal.left.push(Left { place: place.clone(), why: conflict.into() }),
            Err(error) => proposal.left.push(Left { place: place.clone(), why: error.into() }),
        }
    }
    proposal.fit_together(host);
    proposal
}

fn propose_one(
    place: &Place,
    from: Option<&Exact>,
    to: Option<&Exact>,
    host: &Held,
    since: Since,
) -> io::Result<Result<Option<Step>, Conflict>> {
    let found = host.look(place)?;
    let is = |exact: Option<&Exact>| match (&found, exact) {
        (None, None) => Ok(true),
        (Some(found), Some(exact)) => Look { place, found, host }.is(&exact.node),
        (Some(_), None) | (None, Some(_)) => Ok(false),
    };
    let as_applied = is(to)?;
    if !as_applied && is(from)? {
        return Ok(Ok(None));
    }
    match &found {
        Some(Found { kind: FoundKind::Other(_), .. }) => return Ok(Err(Conflict::Special)),
        _ if as_applied || since == Since::TakeBack => {}
        _ => return Ok(Err(Conflict::ChangedSince)),
    }
    let expected = found.map_or(Expected::Nothing, Expected::This);
    Ok(Ok(Some(Step { place: place.clone(), expected, to: from.cloned(), merged: None })))
}

/// Does what `proposal` says. That it is about to be done is in the ledger before the first change.
pub fn undo(
    site: &Site,
    state: &StateFolder,
    ledger: &Ledger,
    applied: &Recorded,
    since: Since,
    proposal: Proposal,
) -> Result<Applied, ApplyError> {
    let head = &applied.head;
    let act = Act::Undo(head.id.clone());
    let mut journal = site.journal_for(act, &head.run, head.set, &head.subject)?;
    let body = json!({
        "undo": &head.id,
        "set": head.set.to_string(),
        "workspace": head.workspace.to_string_lossy(),
        "toTakeBack": proposal.steps.len(),
        "same": proposal.same.len(),
        "left": proposal.left.len(),
        "uid": rustix::process::getuid().as_raw(),
    });
    let entry = Entry { kind: Kind::Undone, run: head.run.to_string(), body };
    ledger.append(&[entry], Durability::Synced)?;
    let mut taken = site.open_journal(&head.id)?;
    let done = site.carry_out(&mut journal, &taken.objects(), proposal)?;
    // With what could not be taken back, it stays the next to be; whoever wanted it by force goes on to the one before.
    if done.left.is_empty() || since == Since::TakeBack {
        taken.take_back().map_err(ApplyError::Journal)?;
        let kept = kept::of(state, &head.run);
        if kept.is_complete() {
            let progress = Progress { state: ProgressState::TakenBack, at: Moment::now() };
            progress.write(&kept).map_err(ApplyError::Journal)?;
        }
    }
    site.prune(None)?;
    Ok(done)
}
