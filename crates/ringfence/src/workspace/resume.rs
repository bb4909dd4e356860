//! What comes after a killed apply or undo: every intent whose fate is not written down is looked at, what lay aside is
//! removed or put back, and nothing that somebody else wrote is lost.

use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;

use super::beneath::{Folder, Found, FoundKind, Held, Onto, is_no_way, last};
use super::carry_out::part_of;
use super::change::Node;
use super::compare::{Exact, hash_in, is_node};
use super::journal::{Fate, Intent, Journal};
use super::swap::is_not_empty;

/// Settles every intent of `journal` that is open. What lies aside and is neither the old nor the new node, and cannot be
/// put back, stays, and is named.
pub(super) fn settle_open(host: &Held, journal: &mut Journal) -> io::Result<Vec<PathBuf>> {
    let mut stranded = Vec::new();
    let open = journal.recorded().intents.iter().filter(|(_, fate)| *fate == Fate::Open);
    let open: Vec<Intent> = open.map(|(intent, _)| intent.clone()).collect();
    for intent in open {
        let (fate, left) = settle(host, &intent)?;
        stranded.extend(left);
        journal.settle(intent.number, fate)?;
    }
    Ok(stranded)
}

fn settle(host: &Held, intent: &Intent) -> io::Result<(Fate, Option<PathBuf>)> {
    let folder = match host.folder_of(&intent.place) {
        // It may come back, and with it what lies aside there.
        Err(error) if is_no_way(&error) => return Ok((Fate::Open, None)),
        folder => folder?,
    };
    let (name, aside, part) = (last(&intent.place)?, OsStr::new(&intent.aside), part_of(intent));
    if let Some(found) = folder.look(part.as_ref())? {
        folder.remove(part.as_ref(), &found.kind)?;
    }
    let arrived = is(&folder, name, folder.look(name)?.as_ref(), intent.to.as_ref())?;
    let Some(found) = folder.look(aside)? else {
        return Ok((if arrived { Fate::Done } else { Fate::Dropped }, None));
    };
    // One that we made and did not come to finish.
    let bare_folder =
        found.kind == FoundKind::Folder && matches!(intent.to, Some(Exact { node: Node::Folder { .. }, .. }));
    let is_old = is(&folder, aside, Some(&found), intent.from.as_ref())?;
    let is_new = bare_folder || is(&folder, aside, Some(&found), intent.to.as_ref())?;
    if is_old || is_new {
        match folder.remove(aside, &found.kind) {
            // Somebody put something into the folder that was to go.
            Err(error) if is_not_empty(&error) => {}
            removed => return removed.map(|()| (if is_old { Fate::Done } else { Fate::Dropped }, None)),
        }
    }
    let beside = || host.path().join(intent.place.as_path()).with_file_name(aside);
    if !arrived {
        return Ok((Fate::Done, Some(beside())));
    }
    if intent.to.is_some() {
        folder.swap(aside, name, Onto::Another)?;
        let ours = folder.look(aside)?;
        if !is(&folder, aside, ours.as_ref(), intent.to.as_ref())? {
            return Ok((Fate::Dropped, Some(beside())));
        }
        if let Some(ours) = ours {
            folder.remove(aside, &ours.kind)?;
        }
        return Ok((Fate::Dropped, None));
    }
    match folder.swap(aside, name, Onto::Nothing) {
        Ok(()) => Ok((Fate::Dropped, None)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok((Fate::Done, Some(beside()))),
        Err(error) => Err(error),
    }
}

fn is(folder: &Folder<'_>, name: &OsStr, found: Option<&Found>, exact: Option<&Exact>) -> io::Result<bool> {
    match (found, exact) {
        (None, None) => Ok(true),
        (Some(found), Some(exact)) => is_node(found, &exact.node, || hash_in(folder, name)),
        (Some(_), None) | (None, Some(_)) => Ok(false),
    }
}
