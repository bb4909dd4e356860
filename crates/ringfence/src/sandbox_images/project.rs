//! An image from a project's own instructions: `image: { build: PATH }`.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;

use bollard::Docker;
use bollard::query_parameters::{BuildImageOptions, BuilderVersion, CreateImageOptions};
use futures_util::{StreamExt, pin_mut, stream};
use ringfence_policy::{Glob, Sourced};

use super::build::{BuildError, Built, hear, pieces_of};
use super::connect::{EngineError, inspect};
use super::context::{self, Context, ContextError, INSTRUCTIONS};
use super::dockerfile::{self, DockerfileError};
use super::listed::PROJECT;
use super::plan::{Pull, labels};
use super::recipe::short;
use super::record::{self, Record, canonical};
use super::verify::Problem;
use super::{IMAGE_LABEL, Listener, Progress, RECIPE_LABEL, REPOSITORY, cut};
use crate::state::StateFolder;

/// The memory that one instruction may use.
const MEMORY: i32 = i32::MAX;

/// What the instructions' programs may reach while they run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuildNetwork {
    /// Nothing.
    None,
    /// What the engine lets them.
    Engine,
}

/// What is to be built, and what it may use.
#[derive(Debug, Clone)]
pub struct ProjectWish {
    /// The workspace, whose rules hold.
    pub workspace: PathBuf,
    /// The folder in it, relative to it, with the Dockerfile.
    pub folder: PathBuf,
    /// What never enters.
    pub deny: Vec<Sourced<Glob>>,
    /// Whether bases may be fetched.
    pub pull: Pull,
    /// What its programs may reach.
    pub network: BuildNetwork,
    /// When it is made, in seconds.
    pub built_at: u64,
}

/// Why there is no image of a project.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// There is nothing to send.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The instructions are refused.
    #[error(transparent)]
    Dockerfile(#[from] DockerfileError),
    /// The base has what none may have.
    #[error("the image {image} is refused: {problem}")]
    Refused {
        /// Which.
        image: String,
        /// Why.
        problem: Problem,
    },
    /// It could not be made.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl From<EngineError> for ProjectError {
    fn from(error: EngineError) -> Self {
        Self::Build(error.into())
    }
}

impl ProjectError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Context(error) => error.hint(),
            Self::Dockerfile(_) => {
                "write it in plain FROM, COPY, RUN, ENV and the like, or build the image yourself and name it"
            }
            Self::Refused { .. } => "name another base, or build the image yourself without it and name that",
            Self::Build(error) => error.hint(),
        }
    }
}

/// The image of a project's own instructions. It is made when its folder, or an image that it goes on from, changed since
/// the last time, and otherwise taken as it is.
pub async fn build_project(
    engine: &Docker,
    state: &StateFolder,
    wish: &ProjectWish,
    listener: &Listener,
) -> Result<Built, ProjectError> {
    let (state_too, wish_too) = (state.clone(), wish.clone());
    let making = move || context::make(&state_too, &wish_too.workspace, &wish_too.folder, &wish_too.deny);
    let context = tokio::task::spawn_blocking(making).await.map_err(|_| BuildError::BrokenOff)??;
    let steps = dockerfile::read(&context.instructions)?;
    let mut hasher = blake3::Hasher::new();
    hasher.update(context.hash.as_bytes());
    for image in &steps.images {
        let id = base(engine, image, wish.pull, listener).await?;
        hasher.update(id.as_bytes());
    }
    let hash = hasher.finalize().to_hex().to_string();
    let reference = format!("{REPOSITORY}/{PROJECT}:{}", short(&hash));
    if let Some((built, _)) = look(engine, &reference, &hash).await? {
        let known = record::of(state, &built.id).map_err(BuildError::Record)?;
        if known.is_some_and(|record| record.recipe == hash) {
            return Ok(built);
        }
    }
    send(engine, &context, &reference, &hash, wish, listener).await?;
    let missing = || BuildError::Differs { reference: reference.clone(), problems: vec![Problem::Missing] };
    let (built, layers) = look(engine, &reference, &hash).await?.ok_or_else(missing)?;
    let record =
        Record { name: PROJECT.to_owned(), recipe: hash, id: built.id.clone(), layers, built_at: wish.built_at };
    record::keep(state, &record).map_err(BuildError::Record)?;
    Ok(built)
}

/// The id of an image that the instructions go on from. It is fetched by us, where that is permitted, so that the engine
/// has no reason to.
async fn base(engine: &Docker, image: &str, pull: Pull, listener: &Listener) -> Result<String, ProjectError> {
    let mut seen = inspect(engine, image).await?;
    if seen.is_none() && pull == Pull::Allowed {
        listener(Progress::Step(format!("fetching {image}")));
        let options = CreateImageOptions { from_image: Some(image.to_owned()), ..CreateImageOptions::default() };
        let answers = engine.create_image(Some(options), None, None);
        pin_mut!(answers);
        while let Some(answer) = answers.next().await {
            let answer = answer.map_err(EngineError::at("fetch an image"))?;
            listener(Progress::Detail(cut(&answer.status.unwrap_or_default())));
        }
        seen = inspect(engine, image).await?;
    }
    let seen = seen.ok_or_else(|| BuildError::NoBase(image.to_owned()))?;
    let triggers = seen.config.as_ref().and_then(|config| config.on_build.clone()).unwrap_or_default();
    if !triggers.is_empty() {
        let problem = Problem::Unexpected { part: "ONBUILD instructions", says: cut(&triggers.join("; ")) };
        return Err(ProjectError::Refused { image: image.to_owned(), problem });
    }
    Ok(canonical(&seen.id.unwrap_or_default()))
}

/// What the engine has under the name, if it says that it is this very build, with its layers.
async fn look(engine: &Docker, reference: &str, hash: &str) -> Result<Option<(Built, Vec<String>)>, ProjectError> {
    let Some(seen) = inspect(engine, reference).await? else { return Ok(None) };
    let configuration = seen.config.unwrap_or_default();
    let volumes = configuration.volumes.unwrap_or_default();
    if !volumes.is_empty() {
        // Each would be a place that a program writes to without a limit.
        let problem = Problem::Unexpected { part: "volumes", says: cut(&volumes.join(" ")) };
        return Err(ProjectError::Refused { image: reference.to_owned(), problem });
    }
    let labels = configuration.labels.unwrap_or_default();
    if labels.get(IMAGE_LABEL).map(String::as_str) != Some(PROJECT)
        || labels.get(RECIPE_LABEL).is_none_or(|it| it != hash)
    {
        return Ok(None);
    }
    let bytes = seen.size.and_then(|size| size.try_into().ok()).unwrap_or(0);
    let layers = seen.root_fs.and_then(|root| root.layers).unwrap_or_default();
    Ok(Some((Built { reference: reference.to_owned(), id: canonical(&seen.id.unwrap_or_default()), bytes }, layers)))
}

async fn send(
    engine: &Docker,
    context: &Context,
    reference: &str,
    hash: &str,
    wish: &ProjectWish,
    listener: &Listener,
) -> Result<(), BuildError> {
    listener(Progress::Step(format!("building {reference} from the project's Dockerfile")));
    let archive: Box<dyn io::Read + Send> = Box::new(File::open(&context.archive).map_err(BuildError::Archive)?);
    let labels = labels(PROJECT, hash, wish.built_at);
    let options = BuildImageOptions {
        dockerfile: INSTRUCTIONS.to_owned(),
        t: Some(reference.to_owned()),
        rm: true,
        forcerm: true,
        memory: Some(MEMORY),
        memswap: Some(MEMORY),
        networkmode: match wish.network {
            BuildNetwork::None => Some("none".to_owned()),
            BuildNetwork::Engine => None,
        },
        labels: Some(labels.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<HashMap<_, _>>()),
        version: BuilderVersion::BuilderV1,
        ..BuildImageOptions::default()
    };
    let body = bollard::body_try_stream(stream::iter(pieces_of(archive).map(|piece| piece.map(Into::into))));
    hear(engine.build_image(options, None, Some(body)), "build an image", listener).await
}
