//! What is done with a container that waits before it is known for what: all that can be written is laid into it, and its guest
//! proves the wall.
//!
//! Nothing of a run is in it. Whoever takes one has to make sure that it shows what would be laid then, and has its guest prove the
//! wall once more. Only where the workspace is laid, and neither a copy of it nor a way out is asked for: a copy would be an old one,
//! and whom a way out makes programs trust comes with the run.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_guest::far::Begin;
use ringfence_linux::launcher::Launcher;
use ringfence_policy::{NetMode, ResolvedPolicy, WorkspaceMode, WorkspaceSource};

use super::Containers;
use super::laying::{Sight, Stands, lay, look};
use super::made::Made;
use super::standing::complaining;
use super::ways::Way;
use crate::backend::StartError;
use crate::backend::inside::Scene;
use crate::backend::native::view::Trees;
use crate::plan::Plan;
use crate::state::StateFolder;
use crate::waiting::waiting;

/// Whether all that a container shows under `policy` can be laid into it before there is a run.
pub(super) fn can_stand(policy: &ResolvedPolicy, way: Way) -> bool {
    let fs = &policy.fs;
    // What a proof looks at in a workspace that it may not write to would stay as it was then, and so would the folders above a mount.
    let is_looked_into = fs.mode.value == WorkspaceMode::ReadOnly || !fs.mounts.is_empty();
    way == Way::Laid
        && policy.net.mode.value == NetMode::None
        && fs.source.value == WorkspaceSource::Live
        && !is_looked_into
}

/// What decides what is laid, in one form: containers in which something else was laid are of another kind.
pub(super) fn laid_by(plan: &Plan) -> Result<Vec<u8>, serde_json::Error> {
    let fs = &plan.policy().fs;
    let deny: Vec<_> = fs.deny.iter().map(|deny| &deny.value).collect();
    let mounts: Vec<_> = fs.mounts.iter().map(|mount| &mount.value).collect();
    let cache: Vec<_> = plan.policy().cache.iter().map(|cache| &cache.value).collect();
    serde_json::to_vec(&(plan.workspace().as_os_str().as_bytes(), deny, mounts, cache))
}

/// What a container would show for `plan` now, where those that wait show it already.
pub(super) fn look_now(containers: &Containers, plan: &Plan, at: &Path, way: Way) -> Result<Option<Sight>, StartError> {
    let stands = containers.pool.is_used() && can_stand(plan.policy(), way);
    stands.then(|| look(Scene::of(plan, at), &containers.state, Trees::only_counted())).transpose()
}

/// What is done ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    launcher: Arc<Launcher>,
    state: StateFolder,
    policy: ResolvedPolicy,
    workspace: PathBuf,
    at: PathBuf,
    begin: Begin,
}

impl Ahead {
    /// For runs of `plan`, whose workspace is at `at` inside; nothing where nothing can be done.
    pub(super) fn of(containers: &Containers, plan: &Plan, at: &Path, way: Way, begin: Begin) -> Option<Self> {
        can_stand(plan.policy(), way).then(|| Self {
            launcher: Arc::clone(&containers.launcher),
            state: containers.state.clone(),
            policy: plan.policy().clone(),
            workspace: plan.workspace().to_owned(),
            at: at.to_owned(),
            begin,
        })
    }

    /// Has the wall stand in one that was just made.
    pub(super) async fn stand(&self, made: Made) -> Result<Made, StartError> {
        let Some(first) = &made.first else { return Ok(made) };
        // Where programs are looked for matters to walls that show the host's own.
        let scene =
            Scene { policy: &self.policy, workspace: &self.workspace, at: &self.at, search_path: OsStr::new("") };
        // Why it cannot be looked at is found out, and told, when it is needed.
        let Ok(sight) = waiting(|| look(scene, &self.state, Trees::default())) else { return Ok(made) };
        let laid = waiting(|| lay(&self.launcher, &self.policy, &sight, first));
        let stands = match laid {
            Ok(handed) => match made.far.proven(self.begin.clone()).await {
                Ok(_) => Ok(Stands::new(sight, handed)),
                Err(error) => Err(complaining(error, &made.complaint, &made.place).await),
            },
            Err(error) => Err(error),
        };
        match stands {
            Ok(stands) => Ok(Made { stands: Some(stands), ..made }),
            Err(error) => {
                made.place.remove().await;
                Err(error)
            }
        }
    }
}
