//! Removes images of older recipes of ours, and nothing else.

use std::io;

use bollard::Docker;
use bollard::query_parameters::RemoveImageOptions;

use super::connect::{EngineError, is_in_use, is_missing};
use super::listed::{ListError, Listed, Standing, list};
use super::record;
use crate::state::StateFolder;

/// What is to be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The image.
    pub image: Listed,
    /// The names that are taken from it, or its id when it has none. With its last name it goes.
    pub references: Vec<String>,
}

/// What became of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pruned {
    /// It is gone.
    Removed,
    /// A container uses it, so it stays.
    InUse,
}

/// Why it could not be found out what is to be removed.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// What was written down could not be read.
    #[error("could not read what was written down of the images that were made here")]
    Record(#[source] io::Error),
}

/// What would be removed: images of ours whose recipe is another by now, and builds that were made again.
///
/// Labels alone prove nothing, as images that others built on ours have them, too. So an image must have the very name
/// that belongs to its recipe, or, without any name, be one that was made here.
pub async fn to_prune(engine: &Docker, state: &StateFolder) -> Result<Vec<Removal>, PruneError> {
    let mut removals = Vec::new();
    for image in list(engine).await.map_err(|error: ListError| PruneError::Engine(error))? {
        let references = match (image.standing, image.reference()) {
            (Standing::Outdated, Some(_)) => image.tags.clone(),
            (Standing::Outdated | Standing::Current, None) if image.tags.is_empty() => {
                let made_here = record::of(state, &image.id).map_err(PruneError::Record)?;
                if made_here.is_none_or(|record| record.name != image.name || record.recipe != image.recipe) {
                    continue;
                }
                vec![image.id.clone()]
            }
            _ => continue,
        };
        removals.push(Removal { image, references });
    }
    Ok(removals)
}

/// Removes one of them. Nothing is forced: what is in use stays.
pub async fn prune(engine: &Docker, state: &StateFolder, removal: &Removal) -> Result<Pruned, PruneError> {
    for reference in &removal.references {
        match engine.remove_image(reference, None::<RemoveImageOptions>, None).await {
            Ok(_) => {}
            Err(error) if is_missing(&error) => {}
            Err(error) if is_in_use(&error) => return Ok(Pruned::InUse),
            Err(error) => return Err(EngineError::at("remove an image")(error).into()),
        }
    }
    record::forget(state, &removal.image.id).map_err(PruneError::Record)?;
    Ok(Pruned::Removed)
}
