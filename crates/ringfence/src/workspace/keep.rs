//! Keeps what a program changed: from a private layer to a finished set in the state folder, or nothing at all.

use std::io;
use std::path::PathBuf;

use ringfence_policy::ResolvedPolicy;

use super::change::{Change, ChangeSet, Moment, Place};
use super::harvest::{Bounds, HarvestError, harvest};
use super::kept::{self, Kept};
use super::layer::PrivateLayer;
use crate::outcome::{Failure, FailureKind};
use crate::run_id::{NoRandomness, RunId};
use crate::scratch::{Scratch, ScratchError};
use crate::state::StateFolder;

/// In a private folder, until it is finished.
const UNFINISHED: &str = "set";
/// So many times what may be written is read at most: holes in files take no room, and take time.
const READ_FOR_WRITTEN: u64 = 4;

/// What a set says besides what differs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) run_id: &'a RunId,
    pub(crate) subject: &'a str,
    pub(crate) began: Moment,
    pub(crate) policy: &'a ResolvedPolicy,
    /// Real paths of the files that say what is permitted.
    pub(crate) own: &'a [PathBuf],
}

/// A set that is kept.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) set: ChangeSet,
    /// The hash of its list.
    pub(crate) list: String,
}

/// Why what a program changed is not kept. Nothing of it is.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// It could not be told what was changed.
    #[error("could not tell what the program changed")]
    Harvest(#[from] HarvestError),
    /// What was found could not be written to the state folder.
    #[error("could not keep what the program changed")]
    Write(#[source] io::Error),
    /// Likewise.
    #[error("could not keep what the program changed")]
    Scratch(#[from] ScratchError),
    /// Likewise.
    #[error("could not keep what the program changed")]
    RunId(#[from] NoRandomness),
    /// The layer itself could not be had.
    #[error("could not get what the program changed from behind the wall")]
    Layer(#[source] io::Error),
}

impl KeepError {
    /// The error as an outcome shows it.
    pub fn failure(&self) -> Failure {
        let hint = match self {
            Self::Harvest(HarvestError::TooMany | HarvestError::TooLong | HarvestError::TooMuch { .. }) => {
                "what it changed is lost, and your files are as they were; let it change less at a time, and put what is \
                 needed only while it runs into /tmp"
            }
            Self::Harvest(_) | Self::Layer(_) => {
                "what it changed is lost, and your files are as they were; run it again, and let it leave out what is named \
                 above"
            }
            Self::Write(_) | Self::Scratch(_) | Self::RunId(_) => {
                "what it changed is lost, and your files are as they were; make room with `ringfence changes prune`, or set \
                 RINGFENCE_STATE_DIR to a folder on a larger disk, and run it again"
            }
        };
        Failure::new(FailureKind::Changes, self).hint(hint)
    }
}

/// Finds what differs in `layer` and keeps it, instead of what was kept for the same run before. Nothing is kept when nothing
/// differs. A set that is not finished lies in a folder that the next start removes.
pub(crate) fn keep(state: &StateFolder, layer: &PrivateLayer, about: About<'_>) -> Result<Option<Found>, KeepError> {
    let finished = kept::of(state, about.run_id);
    let nothing = || match finished.remove() {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(KeepError::Write(error)),
        Ok(()) | Err(_) => Ok(None),
    };
    // Most runs leave their workspace as it was: no folder is made on the disk for those.
    if layer.holds_nothing() {
        return nothing();
    }
    let scratch = Scratch::create(state, &RunId::generate()?)?;
    let unfinished = Kept::at(scratch.path().join(UNFINISHED));
    let changes = harvest(layer, bounds(about), &unfinished.objects())?;
    if changes.is_empty() {
        return nothing();
    }
    let set = set_of(layer, about, changes);
    let list = unfinished.keep(&set).map_err(KeepError::Write)?;
    unfinished.put_at(&finished).map_err(KeepError::Write)?;
    Ok(Some(Found { set, list }))
}

/// What a harvest may cost under a policy.
pub(crate) fn bounds(about: About<'_>) -> Bounds {
    let most_bytes = about.policy.fs.size.value.get().saturating_mul(READ_FOR_WRITTEN);
    Bounds { began: about.began, most_bytes }
}

/// The set of `changes` in `layer`.
pub(crate) fn set_of(layer: &PrivateLayer, about: About<'_>, changes: Vec<Change>) -> ChangeSet {
    let texts = |globs: &[ringfence_policy::Sourced<ringfence_policy::Glob>]| {
        globs.iter().map(|glob| glob.value.as_str().to_owned()).collect()
    };
    ChangeSet {
        run_id: about.run_id.clone(),
        workspace: layer.lower().path().to_owned(),
        workspace_is: layer.lower().is(),
        subject: about.subject.to_owned(),
        began: about.began,
        ended: Moment::now(),
        deny: texts(&about.policy.fs.deny),
        protect: texts(&about.policy.fs.protect),
        own: about
            .own
            .iter()
            .filter_map(|path| path.strip_prefix(layer.lower().path()).ok())
            .filter_map(|path| Place::new(path).ok())
            .collect(),
        size: about.policy.fs.size.value.get(),
        changes,
    }
}

/// Keeps what was changed in a layer that a wall left.
pub(crate) fn keep_left(
    state: &StateFolder,
    layer: io::Result<Option<PrivateLayer>>,
    about: About<'_>,
) -> Result<Option<Found>, KeepError> {
    match layer.map_err(KeepError::Layer)? {
        Some(layer) => keep(state, &layer, about),
        None => Ok(None),
    }
}
