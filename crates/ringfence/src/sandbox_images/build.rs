//! Makes an image of ours in an engine.

use std::collections::HashMap;
use std::io::{self, Read};

use bollard::Docker;
use bollard::models::BuildInfo;
use bollard::query_parameters::{BuildImageOptions, BuilderVersion, ImportImageOptions, TagImageOptions};
use futures_util::{Stream, StreamExt, pin_mut, stream};

use super::bundle::{Bundle, header};
use super::connect::{EngineError, inspect};
use super::packages::{PackagesError, make_bundle};
use super::plan::{RegistryPlan, Source, Wish, from_registry};
use super::recipe::Recipe;
use super::record::{self, Record, canonical};
use super::verify::{Problem, problems};
use super::{Listener, Progress, cut};
use crate::state::StateFolder;

const PIECE: usize = 256 * 1024;
const MIB: u64 = 1 << 20;

/// An image that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Built {
    /// Its name and tag.
    pub reference: String,
    /// What the engine calls it.
    pub id: String,
    /// Its size in the engine.
    pub bytes: u64,
}

/// Why there is no image.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The root could not be put together.
    #[error(transparent)]
    Packages(#[from] PackagesError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The base is missing and may not be fetched.
    #[error("the engine does not have the base image {0}, and it may not be fetched")]
    NoBase(String),
    /// The archive could not be read back, or the context not made.
    #[error("could not prepare what is sent to the engine")]
    Archive(#[source] io::Error),
    /// What the engine then had is not what was sent.
    #[error("the engine has something else than was made, under the name {reference}: {}", show(.problems))]
    Differs {
        /// The name.
        reference: String,
        /// What is wrong with it.
        problems: Vec<Problem>,
    },
    /// It could not be written down.
    #[error("could not write down what was made")]
    Record(#[source] io::Error),
    /// The work was broken off.
    #[error("the work was broken off")]
    BrokenOff,
}

impl BuildError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Packages(error) => error.hint(),
            Self::Engine(error) => error.hint(),
            Self::NoBase(_) => {
                "set `image.pull: allow` in the policy or give --pull, load the base yourself, or build from Debian packages \
                 with `--from packages`"
            }
            Self::Archive(_) | Self::Record(_) => {
                "make room in the state folder, or set RINGFENCE_STATE_DIR to a folder on a larger disk"
            }
            Self::Differs { .. } => {
                "look at who else uses this engine: somebody gave the name to another image meanwhile"
            }
            Self::BrokenOff => "run it again",
        }
    }
}

fn show(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Makes the image of `recipe` in the engine; from a registry's base, also those that it goes on from.
pub async fn build(
    engine: &Docker,
    state: &StateFolder,
    recipe: &'static Recipe,
    wish: &Wish,
    listener: &Listener,
) -> Result<Built, BuildError> {
    match wish.source {
        Source::Packages => {
            let (state_too, wish_too, listener_too) = (state.clone(), wish.clone(), listener.clone());
            let making = move || make_bundle(&state_too, recipe, &wish_too, &listener_too);
            let bundle = tokio::task::spawn_blocking(making).await.map_err(|_| BuildError::BrokenOff)??;
            load(engine, &bundle, listener).await?;
            finish(engine, state, recipe, wish, Some(bundle.layers())).await
        }
        Source::Registry => {
            let mut chain = vec![recipe];
            while let Some(base) = chain.last().and_then(|recipe| recipe.base()) {
                chain.push(base);
            }
            let mut built = None;
            for (depth, recipe) in chain.iter().rev().enumerate() {
                let is_wanted = depth + 1 == chain.len();
                if !is_wanted && inspect(engine, &recipe.reference()).await?.is_some() {
                    continue;
                }
                build_on_base(engine, recipe, wish, listener).await?;
                built = Some(finish(engine, state, recipe, wish, None).await?);
            }
            built.ok_or(BuildError::BrokenOff)
        }
    }
}

async fn load(engine: &Docker, bundle: &Bundle, listener: &Listener) -> Result<(), BuildError> {
    listener(Progress::Step(format!("loading {} into the engine", bundle.name)));
    let archive = bundle.archive().map_err(BuildError::Archive)?;
    let (whole, told) = (bundle.size(), listener.clone());
    let mut sent = 0;
    let pieces = pieces_of(archive).inspect(move |piece| {
        let before = sent / (16 * MIB);
        sent += piece.as_ref().map_or(0, Vec::len) as u64;
        if sent / (16 * MIB) != before {
            told(Progress::Detail(format!("{} of {} MiB", sent.min(whole) / MIB, whole / MIB)));
        }
    });
    let options = ImportImageOptions { quiet: true, platform: None };
    let body = stream::iter(pieces.map(|piece| piece.map(Into::into)));
    let answers = engine.import_image_stream(options, body, None);
    hear(answers, "load an image", listener).await
}

/// An archive in pieces.
pub(super) fn pieces_of(mut archive: Box<dyn Read + Send>) -> impl Iterator<Item = io::Result<Vec<u8>>> + Send {
    std::iter::from_fn(move || {
        let mut piece = Vec::with_capacity(PIECE);
        match archive.by_ref().take(PIECE as u64).read_to_end(&mut piece) {
            Ok(0) => None,
            Ok(_) => Some(Ok(piece)),
            Err(error) => Some(Err(error)),
        }
    })
}

/// Listens until the engine is done.
pub(super) async fn hear(
    answers: impl Stream<Item = Result<BuildInfo, bollard::errors::Error>>,
    attempt: &'static str,
    listener: &Listener,
) -> Result<(), BuildError> {
    pin_mut!(answers);
    while let Some(answer) = answers.next().await {
        let answer = answer.map_err(EngineError::at(attempt))?;
        let line = answer.stream.or(answer.status).map(|line| cut(line.trim())).unwrap_or_default();
        if !line.is_empty() {
            listener(Progress::Detail(line));
        }
    }
    Ok(())
}

async fn build_on_base(engine: &Docker, recipe: &Recipe, wish: &Wish, listener: &Listener) -> Result<(), BuildError> {
    let plan = from_registry(recipe, wish);
    if !wish.may_pull() && inspect(engine, &plan.from).await?.is_none() {
        return Err(BuildError::NoBase(plan.from));
    }
    listener(Progress::Step(format!("building {} on {}", recipe.name(), plan.from)));
    let context = context_of(recipe, &plan).map_err(BuildError::Archive)?;
    let options = BuildImageOptions {
        dockerfile: "Dockerfile".to_owned(),
        t: Some(recipe.reference()),
        rm: true,
        forcerm: true,
        buildargs: Some(HashMap::from([("FROM".to_owned(), plan.from)])),
        labels: Some(plan.labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
        version: BuilderVersion::BuilderV1,
        ..BuildImageOptions::default()
    };
    let body = bollard::body_full(context.into());
    hear(engine.build_image(options, None, Some(body)), "build an image", listener).await
}

/// The instructions and the further files, as an engine takes them.
fn context_of(recipe: &Recipe, plan: &RegistryPlan) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    let files = recipe.own_files().iter().map(|file| (format!("files/{}", file.from), file.content));
    let all = std::iter::once(("Dockerfile".to_owned(), plan.dockerfile.as_str())).chain(files);
    for (name, content) in all {
        let mut header = header(0o644, content.len() as u64, 0);
        archive.append_data(&mut header, name, content.as_bytes())?;
    }
    archive.into_inner()
}

/// Looks at what the engine has now, gives it its second name, and writes it down.
async fn finish(
    engine: &Docker,
    state: &StateFolder,
    recipe: &Recipe,
    wish: &Wish,
    layers: Option<Vec<String>>,
) -> Result<Built, BuildError> {
    let reference = recipe.reference();
    let differs = |problems| BuildError::Differs { reference: reference.clone(), problems };
    let seen = inspect(engine, &reference).await?.ok_or_else(|| differs(vec![Problem::Missing]))?;
    let has = seen.root_fs.as_ref().and_then(|root| root.layers.clone()).unwrap_or_default();
    let record = Record {
        name: recipe.name().to_owned(),
        recipe: recipe.hash().to_owned(),
        id: canonical(seen.id.as_deref().unwrap_or_default()),
        // What we made, where we made it; where the engine did, what it has now.
        layers: layers.unwrap_or(has),
        built_at: wish.built_at,
    };
    let problems = problems(&seen, recipe.name(), recipe.hash(), Some(&record));
    if !problems.is_empty() {
        return Err(differs(problems));
    }
    record::keep(state, &record).map_err(BuildError::Record)?;
    let latest = TagImageOptions { repo: Some(recipe.repository()), tag: Some("latest".to_owned()) };
    engine.tag_image(&record.id, Some(latest)).await.map_err(EngineError::at("name an image"))?;
    Ok(Built { reference, id: record.id, bytes: seen.size.and_then(|size| size.try_into().ok()).unwrap_or(0) })
}
