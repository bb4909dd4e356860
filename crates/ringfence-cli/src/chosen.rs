//! Which kept set a command means, and which of its places.

use std::ffi::OsString;
use std::io;
use std::path::{Component, Path, PathBuf};

use ringfence::StateFolder;
use ringfence::workspace::ChangeSet;
use ringfence::workspace::kept::{self, Kept};
use ringfence_policy::Glob;

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
    #[error("`{0}` is not among the changes")]
    NoSuchPath(String),
}

impl Fatal for NotChosen {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::List(_) => "look at the state folder, which RINGFENCE_STATE_DIR names".to_owned(),
            Self::Load { .. } => "what was kept was changed or cut short; run it again".to_owned(),
            Self::NoneHere(_) => "name a run by its id, as `ringfence log` lists it".to_owned(),
            Self::NoSuchRun(_) => "`ringfence log` lists the runs".to_owned(),
            Self::Ambiguous { .. } => "write more of the id".to_owned(),
            Self::NoSuchPath(_) => "`ringfence diff --name-only` lists the paths".to_owned(),
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

/// For each change whether `words` mean it: by its path or one above it, from `here` or from the workspace, or by a pattern.
pub(crate) fn places(set: &ChangeSet, words: &[OsString], here: &Path) -> Result<Vec<bool>, NotChosen> {
    if words.is_empty() {
        return Ok(vec![true; set.changes.len()]);
    }
    let mut chosen = vec![false; set.changes.len()];
    let below = here.strip_prefix(&set.workspace).unwrap_or(Path::new(""));
    for word in words {
        let plain = |part: &Component<'_>| !matches!(part, Component::CurDir);
        let written: PathBuf = Path::new(word).components().filter(plain).collect();
        let mut paths = vec![below.join(&written)];
        // `.` is where somebody stands, never the whole workspace from a folder below it.
        if !written.as_os_str().is_empty() {
            paths.push(written.strip_prefix(&set.workspace).unwrap_or(&written).to_owned());
        }
        let glob = word.to_str().and_then(|word| word.parse::<Glob>().ok());
        let mut found = false;
        for (chosen, change) in chosen.iter_mut().zip(&set.changes) {
            let place = change.place.as_path();
            let meant = paths.iter().any(|path| place.starts_with(path))
                || glob.as_ref().is_some_and(|glob| glob.matches(place));
            *chosen |= meant;
            found |= meant;
        }
        if !found {
            return Err(NotChosen::NoSuchPath(word.to_string_lossy().into_owned()));
        }
    }
    Ok(chosen)
}
