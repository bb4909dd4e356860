//! The workspace as a program sees it: the host's own folder or a copy of it, as its mode says.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_linux::wall::{Access, Entry, Identity, Source, Written};
use ringfence_policy::{WorkspaceMode, WorkspaceSource};

use super::pinned::Pinned;
use super::view::{Trees, no_mounts_below, pin, place_of, source};
use super::{StartError, deny, wall_error};
use crate::backend::copied;
use crate::backend::inside::Scene;
use crate::run_id::RunId;
use crate::scratch::Scratch;
use crate::state::StateFolder;
use crate::waiting::waiting;
use crate::workspace::copy::Owners;
use crate::workspace::layer::{Lower, ShownCopy};

/// Of a copy of the workspace, below its scratch folder.
const COPY: &str = "workspace";

/// How the workspace is shown.
pub(in crate::backend) struct Workspace {
    pub(in crate::backend) entry: Entry,
    /// When its changes are kept.
    pub(in crate::backend) reviewed: Option<Reviewed>,
    /// When they are not, where the copy lies that is shown in its place. It has to stay for as long as anything sees it.
    pub(in crate::backend) copy: Option<Scratch>,
}

/// The workspace, as its mode says.
pub(in crate::backend) fn workspace(
    scene: Scene<'_>,
    identity: Identity,
    state: &StateFolder,
    trees: &mut Trees,
) -> Result<Workspace, StartError> {
    let Scene { policy, workspace, at, .. } = scene;
    let mode = policy.fs.mode.value;
    if mode == WorkspaceMode::Ephemeral {
        let entry = Entry::Scratch { at: at.to_owned(), mode: 0o755, size: None };
        return Ok(Workspace { entry, reviewed: None, copy: None });
    }
    no_mounts_below(workspace, "the workspace")?;
    let folder = pin(workspace)?;
    let Shown { source, denied, copied } = match policy.fs.source.value {
        WorkspaceSource::Live => live(scene, &folder, identity, state, trees)?,
        WorkspaceSource::Copy => copied_once(scene, &folder, identity, state, trees)?,
    };
    let access = match mode {
        // What goes straight to the host is taken there when the program has ended: no mount can keep what is protected
        // from being moved away, or made where it is not yet.
        WorkspaceMode::Review | WorkspaceMode::Direct => Access::ReadWrite,
        // Not a bind: a socket of a host's service in it would answer.
        WorkspaceMode::ReadOnly | WorkspaceMode::Ephemeral => Access::ReadOnly,
    };
    // A copy was made without them.
    let absent = if copied.is_some() { Vec::new() } else { denied.clone() };
    let (written, reviewed, copy) = match access {
        Access::ReadWrite => (Written::Kept, Some(Reviewed { folder, absent: denied, copied }), None),
        Access::ReadOnly => (Written::Forgotten, None, copied.map(|copied| copied.lies_in)),
    };
    Ok(Workspace { entry: Entry::CopyOnWrite { source, at: at.to_owned(), absent, access, written }, reviewed, copy })
}

/// What is shown as the workspace.
struct Shown {
    source: Source,
    /// What is not seen of it.
    denied: Vec<PathBuf>,
    copied: Option<ShownCopy>,
}

/// The host's own folder.
fn live(
    scene: Scene<'_>,
    folder: &Pinned,
    identity: Identity,
    state: &StateFolder,
    trees: &mut Trees,
) -> Result<Shown, StartError> {
    let source = source(folder, identity, trees)?;
    let mut denied = deny::find_in(folder, &scene.policy.fs.deny, Some(state))?;
    // The ledger is outside, also when it lies below the workspace.
    denied.extend(state_below(scene.workspace, state, &denied)?);
    trees.add_live(folder, None, &denied)?;
    Ok(Shown { source, denied, copied: None })
}

/// A copy that is made now: what comes to the host's folder later does not come to it.
fn copied_once(
    scene: Scene<'_>,
    folder: &Pinned,
    identity: Identity,
    state: &StateFolder,
    trees: &mut Trees,
) -> Result<Shown, StartError> {
    // Not by the run's own number: a wall that is raised for it once more may come before this one is gone.
    let unique = RunId::generate().map_err(|error| wall_error("name a copy", &std::io::Error::other(error)))?;
    let copy = Scratch::create(state, &unique)?;
    copy.make_folder(COPY)?;
    let to = copy.path().join(COPY).canonicalize().map_err(|error| wall_error("find the copy", &error))?;
    // Root reads what the workspace's owner may not, and programs behind its walls are that owner.
    let owners = if rustix::process::geteuid().is_root() { Owners::Kept } else { Owners::Ours };
    let copied = waiting(|| copied::make(scene.policy, scene.workspace, state, &to, owners))?.into_shown(copy);
    folder.lend_looks(&to, owners).map_err(|error| wall_error("give an owner to the copy", &error))?;
    let source = source(&pin(&to)?, identity, trees)?;
    let denied = copied.manifest.left_out().to_vec();
    Ok(Shown { source, denied, copied: Some(copied) })
}

/// A workspace whose changes are kept.
pub(in crate::backend) struct Reviewed {
    folder: Pinned,
    absent: Vec<PathBuf>,
    copied: Option<ShownCopy>,
}

impl Reviewed {
    /// What a private layer lies over, when the workspace is at `at` and all of `entries` are shown.
    pub(in crate::backend) fn lower(self, at: &Path, entries: &[Entry]) -> Result<Arc<Lower>, StartError> {
        let below = |path: &Path| path.strip_prefix(at).ok().map(Path::to_owned);
        let made = entries.iter().filter_map(place_of).filter_map(below);
        let made = made.filter(|path| !path.as_os_str().is_empty()).collect();
        let path = self.folder.path().to_owned();
        let lower = Lower::new(self.folder.into_opened(), path, self.absent, made);
        lower
            .map(|lower| Arc::new(lower.shown_as(self.copied)))
            .map_err(|error| wall_error("look at the workspace", &error))
    }
}

/// The state folder, relative to a workspace that it lies in, unless it is in something denied already.
fn state_below(workspace: &Path, state: &StateFolder, denied: &[PathBuf]) -> Result<Option<PathBuf>, StartError> {
    // The workspace is known by its real path, so this one must be.
    let real = state.path().canonicalize().map_err(|error| wall_error("find the state folder", &error))?;
    let Ok(below) = real.strip_prefix(workspace) else { return Ok(None) };
    if below.as_os_str().is_empty() {
        return Err(StartError::Wall(super::WallError(
            "the workspace is the folder that holds the ledger: name another with --workspace".to_owned(),
        )));
    }
    Ok(Some(below.to_owned()).filter(|below| !denied.iter().any(|denied| below.starts_with(denied))))
}
