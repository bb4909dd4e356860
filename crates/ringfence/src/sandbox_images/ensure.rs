//! An image of ours that is ready to be used: there already, or made now where that is permitted.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::time::Duration;

use bollard::Docker;
use rustix::fs::FlockOperation;

use super::Listener;
use super::build::{BuildError, Built, build};
use super::connect::inspect;
use super::plan::Wish;
use super::recipe::Recipe;
use super::record::{self, Record, canonical};
use super::verify::{Problem, VerifyError, problems};
use crate::state::StateFolder;

/// How often somebody who waits for another's build looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// Whether an image that is missing is made.
#[derive(Debug, Clone)]
pub enum Building {
    /// It is not.
    Forbidden,
    /// It is, in this way.
    Permitted(Wish),
}

/// Why no image is ready.
#[derive(Debug, thiserror::Error)]
pub enum EnsureError {
    /// There is none, and none may be made.
    #[error("the engine does not have the image {0}")]
    Missing(String),
    /// What is there is not ours.
    #[error("the engine's image {reference} is not what was made here: {problem}")]
    NotOurs {
        /// Its name.
        reference: String,
        /// The first thing that is wrong with it.
        problem: Problem,
    },
    /// It could not be looked at.
    #[error(transparent)]
    Verify(#[from] VerifyError),
    /// It could not be made.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// Nobody could say whether another makes it.
    #[error("could not take the lock under which images are made")]
    Lock(#[source] io::Error),
}

impl EnsureError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Missing(_) => "make it with `ringfence image build`, or name an image of your own in the policy",
            Self::NotOurs { .. } => {
                "see `ringfence image verify`; `ringfence image build` makes it anew, also where it was made by another user"
            }
            Self::Verify(VerifyError::Engine(error)) => error.hint(),
            Self::Verify(VerifyError::Record(_)) | Self::Lock(_) => {
                "look at the state folder, which RINGFENCE_STATE_DIR names"
            }
            Self::Build(error) => error.hint(),
        }
    }
}

/// The image of `recipe`, verified; made now if it is missing and that is permitted.
pub async fn ensure(
    engine: &Docker,
    state: &StateFolder,
    recipe: &'static Recipe,
    building: &Building,
    listener: &Listener,
) -> Result<Built, EnsureError> {
    if let Some(ready) = ready(engine, state, recipe).await? {
        return Ok(ready);
    }
    let Building::Permitted(wish) = building else {
        return Err(EnsureError::Missing(recipe.reference()));
    };
    // Two first uses at the same time make one image. The lock dies with its holder.
    let folder = state.path().join("built-images");
    DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(EnsureError::Lock)?;
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(folder.join("lock"));
    let lock = lock.map_err(EnsureError::Lock)?;
    while let Err(errno) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        if errno != rustix::io::Errno::WOULDBLOCK {
            return Err(EnsureError::Lock(errno.into()));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    match ready(engine, state, recipe).await? {
        Some(ready) => Ok(ready),
        None => Ok(build(engine, state, recipe, wish, listener).await?),
    }
}

/// The image that is there; nothing when there is none. One that is not as it was made is an error, and never replaced
/// in silence.
///
/// An engine may be shared, and another user may have made the image. Where none of this recipe was ever made here, the
/// one that says that it is, and has no surprises, is taken and written down; from then on it must be that one.
async fn ready(engine: &Docker, state: &StateFolder, recipe: &Recipe) -> Result<Option<Built>, EnsureError> {
    let reference = recipe.reference();
    let Some(seen) = inspect(engine, &reference).await.map_err(VerifyError::Engine)? else { return Ok(None) };
    let id = canonical(seen.id.as_deref().unwrap_or_default());
    let mut known = record::of(state, &id).map_err(VerifyError::Record)?;
    if known.is_none() && !record::knows(state, recipe.name(), recipe.hash()).map_err(VerifyError::Record)? {
        known = Some(Record {
            name: recipe.name().to_owned(),
            recipe: recipe.hash().to_owned(),
            id: id.clone(),
            layers: seen.root_fs.as_ref().and_then(|root| root.layers.clone()).unwrap_or_default(),
            built_at: 0,
        });
    }
    match problems(&seen, recipe.name(), recipe.hash(), known.as_ref()).into_iter().next() {
        Some(problem) => Err(EnsureError::NotOurs { reference, problem }),
        None => {
            if let Some(taken) = known.filter(|record| record.built_at == 0) {
                record::keep(state, &taken).map_err(VerifyError::Record)?;
            }
            let bytes = seen.size.and_then(|size| size.try_into().ok()).unwrap_or(0);
            Ok(Some(Built { reference, id, bytes }))
        }
    }
}
