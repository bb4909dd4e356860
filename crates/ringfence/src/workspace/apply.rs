//! From a set of changes to the host: what would be done, and doing it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;

pub use super::carry_out::{Expected, Left, Step, Why};

use super::beneath::{Found, FoundKind, Held, HoldError, last};
use super::carry_out::carry_out;
use super::change::{Change, ChangeSet, Moment, Node, Place};
use super::compare::{Comparison, Conflict, Exact, compare};
use super::flag::{Flag, Judgement, judge};
use super::journal::{self, Act, Fate, Head, Journal, Lock, Recorded};
use super::kept::{self, Kept};
use super::objects::{ObjectId, Objects};
use super::resume::settle_open;
use super::selection::Selection;
use crate::ledger::{Durability, Entry, Kind, Ledger, LedgerError};
use crate::run_id::RunId;
use crate::state::StateFolder;

const PROGRESS: &str = "progress";
const MOST_PROGRESS: u64 = 4096;

/// What happens to changes that are flagged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flagged {
    /// They are left.
    Leave,
    /// Those that are protected are left; the others are applied.
    LeaveProtected,
    /// They are applied like others.
    Include,
}

impl Flagged {
    fn leaves(self, flags: &[Flag]) -> bool {
        match self {
            Self::Leave => true,
            Self::LeaveProtected => flags.iter().any(|flag| flag.protected),
            Self::Include => false,
        }
    }
}

/// What would be done.
#[derive(Debug, Default)]
pub struct Proposal {
    /// Places that would be changed, in order.
    pub steps: Vec<Step>,
    /// Places where the host has it already.
    pub same: Vec<Place>,
    /// Places that would be left, and why.
    pub left: Vec<Left>,
    /// Who was shown it and agreed, for the ledger, where that is not whoever calls.
    pub approved_by: Option<String>,
}

/// Says what applying the selected changes of `set` would do. Changes nothing. All of the set is judged, whatever is selected:
/// what one change means can depend on others.
pub fn propose(set: &ChangeSet, kept: &Kept, host: &Held, selection: &Selection, flagged: Flagged) -> Proposal {
    propose_judged(set, &judge(set, &kept.objects()), kept, host, selection, flagged)
}

/// Likewise, with the judgements of all changes, in their order. What lies in the state folder is denied, whoever says
/// otherwise: a workspace may be a whole home.
pub(super) fn propose_judged(
    set: &ChangeSet,
    judgements: &[Judgement],
    kept: &Kept,
    host: &Held,
    selection: &Selection,
    flagged: Flagged,
) -> Proposal {
    let mut proposal = Proposal::default();
    let objects = kept.objects();
    let ours = kept.state_folder().map(|state| state.canonicalize().unwrap_or_else(|_| state.to_owned()));
    let program = std::env::current_exe().ok().map(|path| path.canonicalize().unwrap_or(path));
    let is_ours = |place: &Place| {
        let path = host.path().join(place.as_path());
        ours.as_ref().is_some_and(|ours| path.starts_with(ours))
            || program.as_ref().is_some_and(|program| program.starts_with(&path))
    };
    let unjudged = Judgement::Denied("it was not judged".to_owned());
    let judged = judgements.iter().chain(std::iter::repeat(&unjudged));
    for (change, judgement) in set.changes.iter().zip(judged).filter(|(change, _)| selection.has(&change.place)) {
        let place = change.place.clone();
        let held = match (judgement, &change.after) {
            _ if is_ours(&place) => Some(Why::Denied("what is Ringfence's own is nobody's to change".to_owned())),
            (Judgement::Denied(rule), _) => Some(Why::Denied(rule.clone())),
            (_, Some(Node::Other(kind))) => Some(Why::NotCarried(*kind)),
            (Judgement::Flagged(flags), _) if flagged.leaves(flags) => {
                Some(Why::Flagged(flags.iter().map(ToString::to_string).collect()))
            }
            (Judgement::Flagged(_) | Judgement::Free, _) => None,
        };
        match held.map_or_else(|| propose_one(change, &objects, host), Err) {
            Ok(Some(step)) => proposal.steps.push(step),
            Ok(None) => proposal.same.push(place),
            Err(why) => proposal.left.push(Left { place, why }),
        }
    }
    proposal.fit_together(host);
    proposal
}

fn propose_one(change: &Change, kept: &Objects, host: &Held) -> Result<Option<Step>, Why> {
    let found = host.look(&change.place)?;
    let (merged, node) = match compare(change, found.as_ref(), host, kept)? {
        Comparison::Same => return Ok(None),
        Comparison::Conflict(conflict) => return Err(conflict.into()),
        Comparison::Clean(node) => (None, node),
        Comparison::Merged(bytes, node) => (Some(bytes), Some(node)),
    };
    step(change.place.clone(), found, node, merged, host).map(Some)
}

/// A step from what was found to `node`. As root what is made belongs to whom the workspace belongs to, or to whom it
/// belonged before.
fn step(
    place: Place,
    found: Option<Found>,
    node: Option<Node>,
    merged: Option<Vec<u8>>,
    host: &Held,
) -> Result<Step, Why> {
    let user = rustix::process::geteuid();
    let replaced = found.as_ref().map(|found| found.owner);
    // What replaces it, or brings it back, could not be given to its owner.
    let folders_stay = found.as_ref().is_some_and(|found| found.kind == FoundKind::Folder);
    if !user.is_root() && !folders_stay && replaced.is_some_and(|(owner, _)| owner != user.as_raw()) {
        return Err(Conflict::Owner.into());
    }
    let owner = replaced.or_else(|| user.is_root().then(|| host.owner()));
    let expected = found.map_or(Expected::Nothing, Expected::This);
    Ok(Step { place, expected, to: node.map(|node| Exact { node, owner }), merged })
}

impl Proposal {
    /// Whether something waits for a person, or is never applied: then nothing is applied without anybody looking.
    pub fn needs_a_look(&self) -> bool {
        self.left.iter().any(|left| matches!(left.why, Why::Flagged(_) | Why::Denied(_)))
    }

    /// Leaves out every step that `wanted` does not want, and what cannot be done without those.
    pub fn keep_only(&mut self, host: &Held, mut wanted: impl FnMut(&Step) -> bool) {
        self.steps.retain(|step| wanted(step));
        self.fit_together(host);
    }

    /// Leaves out what cannot be done because something else is not: what would have no folder, and folders that would
    /// not be empty.
    pub(super) fn fit_together(&mut self, host: &Held) {
        let mut steps: BTreeMap<Place, Step> =
            std::mem::take(&mut self.steps).into_iter().map(|step| (step.place.clone(), step)).collect();
        let places: Vec<Place> = steps.keys().cloned().collect();
        // A folder comes before what is in it, so one that is left out takes that with it.
        for place in &places {
            if let Some(step) = steps.get(place)
                && step.to.is_some()
                && let Some(folder) = place.folder()
            {
                let there = match steps.get(&folder) {
                    Some(above) => Ok(above.ends_as_folder()),
                    None => host.look(&folder).map(|found| found.is_some_and(|found| found.kind == FoundKind::Folder)),
                };
                let why = match there {
                    Ok(true) => continue,
                    Ok(false) => Conflict::NoFolder(folder).into(),
                    Err(error) => Why::Failed(error),
                };
                steps.remove(place);
                self.left.push(Left { place: place.clone(), why });
            }
        }
        for place in places.iter().rev() {
            if let Some(step) = steps.get(place)
                && step.begins_as_folder()
                && !step.ends_as_folder()
            {
                let why = match stays_in(host, place, &steps) {
                    Ok(None) => continue,
                    Ok(Some(name)) => Conflict::Holds(name).into(),
                    Err(error) => Why::Failed(error),
                };
                steps.remove(place);
                self.left.push(Left { place: place.clone(), why });
            }
        }
        self.steps = steps.into_values().collect();
    }
}

/// Something in the folder at `place` that no step takes away.
fn stays_in(host: &Held, place: &Place, steps: &BTreeMap<Place, Step>) -> io::Result<Option<std::ffi::OsString>> {
    let names = match host.folder_of(place)?.names(last(place)?) {
        // A closed folder cannot be looked into before it is opened; the kernel removes it only when it is empty.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return Ok(None),
        names => names?,
    };
    Ok(names.into_iter().find(|name| {
        let inside = Place::new(place.as_path().join(name)).ok();
        inside.and_then(|inside| steps.get(&inside)).is_none_or(|step| step.to.is_some())
    }))
}

/// Why a workspace was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The workspace cannot be held.
    #[error(transparent)]
    Hold(#[from] HoldError),
    /// Another has it.
    #[error("another `ringfence apply` or `undo` is at work in {0}; wait until it is done")]
    Busy(PathBuf),
    /// What an earlier one left cannot be put in order.
    #[error("could not put in order what an interrupted `apply` or `undo` left in {workspace}")]
    Resume {
        /// The workspace.
        workspace: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The journal cannot be read or written.
    #[error("could not write down what is being changed; do it again to go on from where this ended")]
    Journal(#[source] io::Error),
    /// The ledger cannot be written.
    #[error("nothing was changed, because it could not be written to the ledger")]
    Ledger(#[from] LedgerError),
    /// On the host it would take more room than may be written.
    #[error("what was changed would take {bytes} bytes on the host, and {most} may be written")]
    TooMuch {
        /// All files together: there each name is a file of its own, and holes are none.
        bytes: u64,
        /// `fs.size`.
        most: u64,
    },
    /// There is nothing to take back.
    #[error("nothing is left to take back in {0}; `ringfence undo --list` lists what was applied")]
    NothingToUndo(PathBuf),
}

/// A workspace that nobody else changes by Ringfence, with everything that earlier ones left put in order.
#[derive(Debug)]
pub struct Site {
    host: Held,
    state: StateFolder,
    workspace_is: (u64, u64),
    /// Files that somebody wrote while an apply was killed, and that could not be put back.
    stranded: Vec<PathBuf>,
    _lock: Lock,
}

impl Site {
    /// Opens the workspace at `path`, which must be the folder with this device and number.
    pub fn open(state: &StateFolder, path: &Path, workspace_is: (u64, u64)) -> Result<Self, ApplyError> {
        let host = Held::open(path, workspace_is)?;
        let lock = journal::lock(state, workspace_is).map_err(ApplyError::Journal)?;
        let lock = lock.ok_or_else(|| ApplyError::Busy(path.to_owned()))?;
        let failed = |source| ApplyError::Resume { workspace: path.to_owned(), source };
        let mut stranded = Vec::new();
        for recorded in journal::of_workspace(state, workspace_is).map_err(failed)? {
            if recorded.intents.iter().any(|(_, fate)| *fate == Fate::Open) {
                let mut journal = Journal::open(state, &recorded.head.id).map_err(failed)?;
                stranded.extend(settle_open(&host, &mut journal).map_err(failed)?);
            }
        }
        Ok(Self { host, state: state.clone(), workspace_is, stranded, _lock: lock })
    }

    /// The workspace.
    pub fn host(&self) -> &Held {
        &self.host
    }

    /// Files that somebody wrote while an earlier apply was killed, and that could not be put back: they lie beside
    /// where they were.
    pub fn stranded(&self) -> &[PathBuf] {
        &self.stranded
    }

    /// Every journal of this workspace, newest first.
    pub fn journals(&self) -> Result<Vec<Recorded>, ApplyError> {
        journal::of_workspace(&self.state, self.workspace_is).map_err(ApplyError::Journal)
    }

    pub(super) fn open_journal(&self, id: &RunId) -> Result<Journal, ApplyError> {
        Journal::open(&self.state, id).map_err(ApplyError::Journal)
    }

    /// The journal to write: that of the same act, if it was interrupted, or a new one. Others that were interrupted are
    /// over: nobody goes on with them any more.
    pub(super) fn journal_for(
        &self,
        act: Act,
        run: &RunId,
        set: ObjectId,
        subject: &str,
    ) -> Result<Journal, ApplyError> {
        let mut same = None;
        for recorded in self.journals()?.into_iter().filter(|recorded| !recorded.finished) {
            let Head { act: other, run: of, set: what, .. } = &recorded.head;
            let mut journal = self.open_journal(&recorded.head.id)?;
            if same.is_none() && (other, of, what) == (&act, run, &set) && !recorded.taken_back {
                same = Some(journal);
            } else {
                journal.finish().map_err(ApplyError::Journal)?;
            }
        }
        if let Some(journal) = same {
            return Ok(journal);
        }
        let head = Head {
            id: RunId::generate().map_err(|error| ApplyError::Journal(io::Error::other(error)))?,
            act,
            run: run.clone(),
            set,
            subject: subject.to_owned(),
            workspace: self.host.path().to_owned(),
            workspace_is: self.workspace_is,
            began: Moment::now(),
        };
        Journal::begin(&self.state, head).map_err(ApplyError::Journal)
    }

    /// Nobody goes on with what was interrupted: all of it is there already.
    fn close_interrupted(&self) -> Result<(), ApplyError> {
        for recorded in self.journals()?.into_iter().filter(|recorded| !recorded.finished) {
            self.open_journal(&recorded.head.id)?.finish().map_err(ApplyError::Journal)?;
        }
        Ok(())
    }

    /// Forgets all but the newest `most` journals, or as many as are kept by themselves.
    pub fn prune(&self, most: Option<usize>) -> Result<usize, ApplyError> {
        journal::prune(&self.state, self.workspace_is, most).map_err(ApplyError::Journal)
    }

    pub(super) fn carry_out(
        &self,
        journal: &mut Journal,
        contents: &Objects,
        proposal: Proposal,
    ) -> Result<Applied, ApplyError> {
        let Proposal { steps, same, mut left, .. } = proposal;
        let report = carry_out(&self.host, journal, contents, steps).map_err(ApplyError::Journal)?;
        journal.finish().map_err(ApplyError::Journal)?;
        left.extend(report.left);
        left.sort_by(|one, other| one.place.cmp(&other.place));
        Ok(Applied { undo: Some(journal.recorded().head.id.clone()), done: report.done, same, left })
    }
}

/// What was done.
#[derive(Debug)]
pub struct Applied {
    /// The journal, by which it can be taken back; nothing when there was nothing to do.
    pub undo: Option<RunId>,
    /// Places that were changed.
    pub done: Vec<Place>,
    /// Places where the host had it already.
    pub same: Vec<Place>,
    /// Places that were left, and why.
    pub left: Vec<Left>,
}

/// Does what `proposal` says. That it is about to be done is in the ledger before the first change.
pub fn apply(
    site: &Site,
    ledger: &Ledger,
    kept: &Kept,
    set: &ChangeSet,
    proposal: Proposal,
) -> Result<Applied, ApplyError> {
    if proposal.steps.is_empty() {
        site.close_interrupted()?;
        let Proposal { same, left, .. } = proposal;
        let applied = Applied { undo: None, done: Vec::new(), same, left };
        note_progress(&applied, set, kept).map_err(ApplyError::Journal)?;
        return Ok(applied);
    }
    let name = name_of(set).map_err(ApplyError::Journal)?;
    let mut journal = site.journal_for(Act::Apply, &set.run_id, name, &set.subject)?;
    let mut body = json!({
        "undo": &journal.recorded().head.id,
        "set": name.to_string(),
        "workspace": set.workspace.to_string_lossy(),
        "changes": set.changes.len(),
        "toApply": proposal.steps.len(),
        "same": proposal.same.len(),
        "left": proposal.left.len(),
        "uid": rustix::process::getuid().as_raw(),
    });
    if let Some(by) = &proposal.approved_by {
        body["approvedBy"] = json!(by);
    }
    let entry = Entry { kind: Kind::Applied, run: set.run_id.to_string(), body };
    ledger.append(&[entry], Durability::Synced)?;
    let applied = site.carry_out(&mut journal, &kept.objects(), proposal)?;
    note_progress(&applied, set, kept).map_err(ApplyError::Journal)?;
    site.prune(None)?;
    Ok(applied)
}

/// Writes down how far it was applied. Whoever did nothing changed nothing about that.
fn note_progress(applied: &Applied, set: &ChangeSet, kept: &Kept) -> io::Result<()> {
    let state = match applied.done.len() + applied.same.len() == set.changes.len() {
        true => ProgressState::Applied,
        false if applied.done.is_empty() => return Ok(()),
        false => ProgressState::Partly,
    };
    Progress { state, at: Moment::now() }.write(kept)
}

/// Names a set by all of it: the hash that its list on disk ends in.
pub fn name_of(set: &ChangeSet) -> io::Result<ObjectId> {
    Ok(ObjectId::of(&postcard::to_extend(set, kept::VERSION.to_vec()).map_err(io::Error::other)?))
}

/// Names what a set changes, whenever it was looked at: the same changes have the same name.
pub fn name_of_changes(set: &ChangeSet) -> io::Result<ObjectId> {
    Ok(ObjectId::of(&postcard::to_stdvec(&set.changes).map_err(io::Error::other)?))
}

/// How far a kept set was applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// How far.
    pub state: ProgressState,
    /// When.
    pub at: Moment,
}

/// How far a set was applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProgressState {
    /// All of it.
    Applied,
    /// Some of it; the rest was not chosen, or left.
    Partly,
    /// It was, and was taken back.
    TakenBack,
}

impl Progress {
    /// That of a kept set; nothing when nobody applied it yet.
    pub fn of(kept: &Kept) -> io::Result<Option<Self>> {
        let file = match fs::File::open(kept.folder().join(PROGRESS)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut bytes = Vec::new();
        file.take(MOST_PROGRESS).read_to_end(&mut bytes)?;
        Ok(Some(serde_json::from_slice(&bytes)?))
    }

    pub(super) fn write(&self, kept: &Kept) -> io::Result<()> {
        let new = kept.folder().join("progress.new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        fs::rename(new, kept.folder().join(PROGRESS))
    }
}
