//! Whether an image that an engine has is what was made: its recipe, its layers, and a configuration without surprises.

use std::fmt;
use std::io;

use bollard::Docker;
use bollard::models::ImageInspect;

use super::connect::{EngineError, inspect};
use super::recipe::{Recipe, short};
use super::record::{self, Record, canonical};
use super::{IMAGE_LABEL, RECIPE_LABEL, SEARCH_PATH, cut};
use crate::state::StateFolder;

/// What is wrong with an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// The engine has none.
    Missing,
    /// It says that it is another.
    OtherName(Option<String>),
    /// It says that it was made by another recipe.
    OtherRecipe(Option<String>),
    /// We did not make what the engine has under this name.
    NotOurs(String),
    /// Its layers are not those that we made.
    OtherLayers,
    /// Its configuration says what none of ours does.
    Unexpected {
        /// Which part.
        part: &'static str,
        /// What it says.
        says: String,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = |text: &Option<String>| text.as_deref().map_or("nothing".to_owned(), |text| format!("`{text}`"));
        match self {
            Self::Missing => f.write_str("the engine does not have it"),
            Self::OtherName(name) => write!(f, "it says of itself that it is {}", said(name)),
            Self::OtherRecipe(recipe) => write!(f, "it says of itself that its recipe is {}", said(recipe)),
            Self::NotOurs(id) => write!(f, "no record says that {id} was made here"),
            Self::OtherLayers => f.write_str("its layers are not those that were made here"),
            Self::Unexpected { part, says } => write!(f, "its configuration has {part}: {says}"),
        }
    }
}

/// What was found about one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The recipe's name.
    pub name: String,
    /// What was looked for.
    pub reference: String,
    /// What the engine calls it.
    pub id: Option<String>,
    /// What is wrong; nothing when all is well.
    pub problems: Vec<Problem>,
}

/// Why an image could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// What was written down could not be read.
    #[error("could not read what was written down of the images that were made here")]
    Record(#[source] io::Error),
}

/// Holds the image of `recipe` that the engine has against what was made.
pub async fn verify(engine: &Docker, state: &StateFolder, recipe: &Recipe) -> Result<Verified, VerifyError> {
    let reference = recipe.reference();
    let seen = inspect(engine, &reference).await?;
    let (id, problems) = match &seen {
        None => (None, vec![Problem::Missing]),
        Some(seen) => {
            let id = canonical(seen.id.as_deref().unwrap_or_default());
            let record = record::of(state, &id).map_err(VerifyError::Record)?;
            (Some(cut(&id)), problems(seen, recipe.name(), recipe.hash(), record.as_ref()))
        }
    };
    Ok(Verified { name: recipe.name().to_owned(), reference, id, problems })
}

/// What is wrong with an image that should be `name`, made by `recipe`.
pub(super) fn problems(seen: &ImageInspect, name: &str, recipe: &str, record: Option<&Record>) -> Vec<Problem> {
    let mut problems = Vec::new();
    let configuration = seen.config.clone().unwrap_or_default();
    let label = |key| configuration.labels.as_ref().and_then(|labels| labels.get(key)).map(|text| cut(text));
    let said = label(IMAGE_LABEL);
    if said.as_deref() != Some(name) {
        problems.push(Problem::OtherName(said));
    }
    let said = label(RECIPE_LABEL);
    if said.as_deref() != Some(recipe) {
        problems.push(Problem::OtherRecipe(said.map(|recipe| short(&recipe).to_owned())));
    }
    match record {
        None => problems.push(Problem::NotOurs(cut(seen.id.as_deref().unwrap_or("an image without id")))),
        Some(record) => {
            let layers = seen.root_fs.as_ref().and_then(|root| root.layers.as_ref());
            if record.name != name || record.recipe != recipe || layers != Some(&record.layers) {
                problems.push(Problem::OtherLayers);
            }
        }
    }
    problems.extend(surprises(&configuration));
    problems
}

/// What in a configuration none of our images has, and what could act when one is used.
pub(super) fn surprises(configuration: &bollard::models::ImageConfig) -> Vec<Problem> {
    let list = |list: &Option<Vec<String>>| list.as_deref().unwrap_or_default().join(" ");
    let environment = configuration.env.iter().flatten().filter(|variable| *variable != SEARCH_PATH);
    let folder = configuration.working_dir.clone().filter(|folder| folder != "/").unwrap_or_default();
    let found = [
        ("an entry point", list(&configuration.entrypoint)),
        ("volumes", list(&configuration.volumes)),
        ("a user", configuration.user.clone().unwrap_or_default()),
        ("variables", environment.cloned().collect::<Vec<_>>().join(" ")),
        ("ONBUILD instructions", list(&configuration.on_build)),
        ("ports", list(&configuration.exposed_ports)),
        ("a working folder", folder),
        ("a health check", configuration.healthcheck.as_ref().map(|it| list(&it.test)).unwrap_or_default()),
    ];
    let unexpected = |(part, says): (&'static str, String)| Problem::Unexpected { part, says: cut(&says) };
    found.into_iter().filter(|(_, says)| !says.is_empty()).map(unexpected).collect()
}
