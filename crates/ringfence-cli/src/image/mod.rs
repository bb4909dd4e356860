//! `ringfence image`: makes, lists, verifies and removes the images that stand behind container walls.

mod build;
mod page;
mod progress;

use std::io;

use ringfence::StateFolder;
use ringfence::sandbox_images::connect::{ConnectError, EngineError, EngineKind, connect};
use ringfence::sandbox_images::{
    BuildError, LayoutWriteError, PackagesError, Problem, PruneError, Pruned, Recipe, VerifyError, find, list, prune,
    recipes, to_prune, verify,
};
use ringfence::state::StateError;

use crate::args::{EngineArg, ImageCommand};
use crate::setup::SetupFailure;
use crate::{Done, Fatal, chatter, setup};

/// An image is not what was made.
const DIFFERS: u8 = 1;

#[derive(Debug, thiserror::Error)]
enum ImageFailure {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Setup(#[from] SetupFailure),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("could not make the image `{name}`")]
    Build { name: String, source: BuildError },
    #[error("could not make the image `{name}`")]
    Packages { name: String, source: PackagesError },
    #[error(transparent)]
    Layout(#[from] LayoutWriteError),
    #[error(transparent)]
    Verify(#[from] VerifyError),
    #[error(transparent)]
    Prune(#[from] PruneError),
    #[error("there is no image `{0}`")]
    NoSuchImage(String),
    #[error("an OCI layout is made from packages only")]
    LayoutFromRegistry,
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
}

impl Fatal for ImageFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::NoSuchImage(_) | Self::LayoutFromRegistry => 2,
            _ => crate::OUR_FAILURE,
        }
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Connect(error) => error.hint(),
            Self::Engine(error) => error.hint(),
            Self::Build { source, .. } => source.hint(),
            Self::Packages { source, .. } => source.hint(),
            Self::Layout(error) => error.hint(),
            Self::Verify(VerifyError::Engine(error)) | Self::Prune(PruneError::Engine(error)) => error.hint(),
            Self::Verify(VerifyError::Record(_)) | Self::Prune(PruneError::Record(_)) => {
                "look at `built-images` in the state folder, which RINGFENCE_STATE_DIR names"
            }
            Self::NoSuchImage(_) => return Some(format!("there are {}", page::names())),
            Self::LayoutFromRegistry => "leave out --from, or leave out --oci",
            Self::Setup(error) => return error.hint(),
            Self::State(_) | Self::Output(_) => return None,
        };
        Some(hint.to_owned())
    }
}

pub(crate) fn image(command: ImageCommand) -> Done {
    let runtime = setup::runtime().map_err(ImageFailure::Setup)?;
    let state = setup::state().map_err(ImageFailure::State)?;
    let done = runtime.block_on(async {
        match command {
            ImageCommand::Build(args) => build::build(&state, &args).await,
            ImageCommand::List { engine, json } => show_list(engine, json).await,
            ImageCommand::Verify { names, engine, json } => show_verified(&state, &names, engine, json).await,
            ImageCommand::Prune { engine, dry_run } => remove(&state, engine, dry_run).await,
        }
    });
    Ok(done?)
}

fn kind(engine: EngineArg) -> EngineKind {
    match engine {
        EngineArg::Docker => EngineKind::Docker,
        EngineArg::Podman => EngineKind::Podman,
    }
}

/// The recipes that are meant.
fn chosen(names: &[String]) -> Result<Vec<&'static Recipe>, ImageFailure> {
    names
        .iter()
        .map(|name| find(name).ok_or_else(|| ImageFailure::NoSuchImage(name.chars().take(64).collect())))
        .collect()
}

fn print(text: &str) -> Result<(), ImageFailure> {
    match chatter::data(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ImageFailure::Output(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

async fn show_list(engine: EngineArg, json: bool) -> Result<u8, ImageFailure> {
    let engine = connect(kind(engine), |name| std::env::var(name).ok()).await?;
    let listed = list(&engine).await?;
    if json {
        print(&page::list_as_json(&listed))?;
    } else if listed.is_empty() {
        chatter::say("the engine has no images of ours; `ringfence image build` makes them");
    } else {
        print(&page::list_as_table(&listed, page::now()))?;
    }
    Ok(0)
}

async fn show_verified(
    state: &StateFolder,
    names: &[String],
    engine: EngineArg,
    json: bool,
) -> Result<u8, ImageFailure> {
    let wanted = chosen(names)?;
    let engine = connect(kind(engine), |name| std::env::var(name).ok()).await?;
    let all = if wanted.is_empty() { recipes().iter().collect() } else { wanted };
    let mut verified = Vec::new();
    for recipe in all {
        let one = verify(&engine, state, recipe).await?;
        // What nobody asked for by name may be missing.
        if names.is_empty() && one.problems == [Problem::Missing] {
            continue;
        }
        verified.push(one);
    }
    if json {
        print(&page::verified_as_json(&verified))?;
    } else if verified.is_empty() {
        chatter::say("the engine has no images of the present recipes; `ringfence image build` makes them");
    } else {
        print(&page::verified_as_table(&verified))?;
    }
    let differs = verified.iter().any(|one| !one.problems.is_empty());
    if differs && !json {
        chatter::say("an image that differs is made anew by `ringfence image build NAME`");
    }
    Ok(if differs { DIFFERS } else { 0 })
}

async fn remove(state: &StateFolder, engine: EngineArg, dry_run: bool) -> Result<u8, ImageFailure> {
    let engine = connect(kind(engine), |name| std::env::var(name).ok()).await?;
    let removals = to_prune(&engine, state).await?;
    if removals.is_empty() {
        chatter::say("there is nothing to remove");
        return Ok(0);
    }
    for removal in removals {
        let became = if dry_run {
            "would be removed"
        } else {
            match prune(&engine, state, &removal).await? {
                Pruned::Removed => "removed",
                Pruned::InUse => "stays, because a container uses it",
            }
        };
        print(&page::removal(&removal, became))?;
    }
    Ok(0)
}
