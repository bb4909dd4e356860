//! Which kept set a command means.

use std::io;
use std::path::{Path, PathBuf};

use ringfence::StateFolder;
use ringfence::workspace::ChangeSet;
use ringfence::workspace::kept::{self, Kept};

use crate::Fatal;

/// The newest set of this workspace.
const LAST: &str = "last";

/// Why there is no set to show.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotChosen {
    #[error("could not find out which changes are kept")]
    List(#[source] io::Error),
    #[error("could not read the changes of run {run}")]
    Load { run: String, source: io::Error },
    #[error("no changes are kept of a run in {0}")]
    NoneHere(PathBuf),
    #[error("no changes are kept of a run that begins with `{0}`")]
    NoSuchRun(String),
    #[error("changes of {count} runs that begin with `{prefix}` are kept")]
    Ambiguous { prefix: String, count: usize },
}

impl Fatal for NotChosen {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::List(_) => "look at the state folder, which RINGFENCE_STATE_DIR names".to_owned(),
            Self::Load { .. } => "what was kept was changed or cut short; run it again".to_owned(),
            Self::NoneHere(_) => "name a run by its id, as `ringfence changes` lists it".to_owned(),
            Self::NoSuchRun(_) => "`ringfence changes` lists them".to_owned(),
            Self::Ambiguous { .. } => "write more of the id".to_owned(),
        })
    }
}

/// The set that `name` means, for somebody who stands in the folder `here`.
pub(crate) fn find(state: &StateFolder, name: &str, here: &Path) -> Result<(Kept, ChangeSet), NotChosen> {
    let mut runs = kept::runs(state).map_err(NotChosen::List)?;
    if name == LAST {
        for run in runs.iter().rev() {
            let kept = kept::of(state, run);
            // One that cannot be read might be the one that is meant: nothing older is shown in its place.
            let set = kept.load().map_err(|source| NotChosen::Load { run: run.to_string(), source })?;
            if here.starts_with(&set.workspace) {
                return Ok((kept, set));
            }
        }
        return Err(NotChosen::NoneHere(here.to_owned()));
    }
    let short = || name.chars().take(64).collect::<String>();
    runs.retain(|run| !name.is_empty() && run.as_str().starts_with(name));
    match runs.as_slice() {
        [run] => {
            let kept = kept::of(state, run);
            let set = kept.load().map_err(|source| NotChosen::Load { run: run.to_string(), source })?;
            Ok((kept, set))
        }
        [] => Err(NotChosen::NoSuchRun(short())),
        runs => Err(NotChosen::Ambiguous { prefix: short(), count: runs.len() }),
    }
}
