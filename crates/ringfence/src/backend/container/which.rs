//! Which image stands in a container: the one that the policy names, one that a project's own instructions make, or one of ours
//! for what is to be run.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use bollard::{API_DEFAULT_VERSION, Docker};
use ringfence_policy::{ImageKind, ImagePull};

use super::Containers;
use super::engine::Engine;
use super::failure::chain;
use super::image::{Pull, ResolveError, Resolved, resolve};
use super::wire::docker_at;
use crate::backend::{FoundImage, Settled, StartError, WallError};
use crate::plan::Plan;
use crate::request::Work;
use crate::sandbox_images::{
    self, BuildNetwork, Building, ProjectWish, Recipe, Source, Wish, build_project, ensure, image_for,
    image_for_program,
};

/// How long an engine may be silent while it makes an image.
const MAKES: std::time::Duration = std::time::Duration::from_secs(30 * 60);

/// What a plan asks for.
enum Wanted<'a> {
    /// By its name.
    Named(&'a str),
    /// One of ours.
    Ours(&'static Recipe),
    /// Made from a folder with a Dockerfile.
    Project(&'a Path),
}

fn wanted(plan: &Plan) -> Result<Wanted<'_>, StartError> {
    let Some(image) = &plan.policy().image else {
        return Ok(Wanted::Ours(match plan.work() {
            Work::Code { language, .. } => image_for(Some(*language)),
            Work::Argv(argv) => image_for_program(&name_of(argv.first().map_or(OsStr::new(""), |word| word))),
            Work::Shell(_) | Work::Place => image_for(None),
        }));
    };
    match image.value.kind() {
        ImageKind::Reference => Ok(Wanted::Named(image.value.as_str())),
        ImageKind::Build(path) => Ok(Wanted::Project(path.as_path())),
        ImageKind::Folder(_) | ImageKind::Rootfs(_) | ImageKind::Layout { .. } => Err(failed(
            "a folder of this machine is the root of a native wall; name an image that the engine has".to_owned(),
        )),
    }
}

fn name_of(program: &OsStr) -> String {
    Path::new(program).file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn failed(why: String) -> StartError {
    StartError::Wall(WallError(why))
}

fn with_hint(error: &dyn std::error::Error, hint: &str) -> StartError {
    failed(format!("{}: {hint}", chain(error)))
}

fn pull_of(plan: &Plan) -> Pull {
    match plan.policy().image_pull.value {
        ImagePull::Never => Pull::Never,
        ImagePull::Allow => Pull::Allow,
    }
}

/// The name that a plan has for its image, when it is not one of ours and not to be made.
pub(super) fn names(plan: &Plan) -> Option<&str> {
    match wanted(plan) {
        Ok(Wanted::Named(name)) => Some(name),
        Ok(Wanted::Ours(_) | Wanted::Project(_)) | Err(_) => None,
    }
}

/// The image as it is now, or what would have to be done first.
pub(super) async fn find(containers: &Containers, engine: &Engine, plan: &Plan) -> Result<FoundImage, StartError> {
    let later = |name: String, what: String| FoundImage { name, preparing: Some(what), settled: Settled::WhenPrepared };
    let (name, making) = match wanted(plan)? {
        Wanted::Project(folder) => {
            let folder = folder.display();
            return Ok(later(format!("build {folder}"), format!("making the image of {folder}")));
        }
        Wanted::Named(name) => (name.to_owned(), "fetching"),
        Wanted::Ours(recipe) => (recipe.reference(), "making"),
    };
    match resolve(engine, &name, Pull::Never, &|_| {}).await {
        Ok(found) => {
            containers.remember(&found);
            Ok(FoundImage { name: super::named(&found), preparing: None, settled: Settled::Now })
        }
        Err(ResolveError::Absent(_)) if pull_of(plan) == Pull::Allow => {
            let what = format!("{making} the image {name}");
            Ok(later(name, what))
        }
        Err(ResolveError::Absent(_)) if let Wanted::Ours(recipe) = wanted(plan)? => Err(failed(format!(
            "the engine does not have our image {name} yet: make it with `ringfence image build {}` (once), permit it with \
             `image.pull: allow` in the policy, or name an image of your own there",
            recipe.name()
        ))),
        Err(error) => Err(with_hint(&error, &error.hint())),
    }
}

/// The image, fetched or made first where the policy permits it.
pub(super) async fn obtain(containers: &Containers, engine: &Engine, plan: &Plan) -> Result<Resolved, StartError> {
    let pull = pull_of(plan);
    // What was made is looked up by what it is, and called what people call it.
    let (name, called) = match wanted(plan)? {
        Wanted::Named(name) => (name.to_owned(), None),
        Wanted::Ours(recipe) => (ours(containers, engine, plan, recipe).await?, Some(recipe.reference())),
        Wanted::Project(folder) => {
            let called = format!("build {}", folder.display());
            (project(containers, engine, plan, folder.to_owned()).await?, Some(called))
        }
    };
    let found = resolve(engine, &name, pull, &|_| {}).await.map_err(|error| with_hint(&error, &error.hint()))?;
    Ok(Resolved { name: called.unwrap_or(found.name), ..found })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn pull_for_builds(pull: Pull) -> sandbox_images::Pull {
    match pull {
        Pull::Never => sandbox_images::Pull::Forbidden,
        Pull::Allow => sandbox_images::Pull::Allowed,
    }
}

/// Who makes images on `engine`.
async fn client(engine: &Engine) -> Result<Docker, StartError> {
    let client = docker_at(engine.address(), MAKES, API_DEFAULT_VERSION).map_err(|error| failed(chain(&error)))?;
    client.negotiate_version().await.map_err(|error| failed(chain(&error)))
}

/// One of ours, by its id: verified, and made at first use where fetching is permitted.
async fn ours(
    containers: &Containers,
    engine: &Engine,
    plan: &Plan,
    recipe: &'static Recipe,
) -> Result<String, StartError> {
    let pull = pull_of(plan);
    let client = client(engine).await?;
    let building = match pull {
        Pull::Never => Building::Forbidden,
        Pull::Allow => Building::Permitted(Wish {
            source: Source::Packages,
            pull: pull_for_builds(pull),
            mirrors: Vec::new(),
            built_at: now(),
        }),
    };
    let made = ensure(&client, &containers.state, recipe, &building, &plan.listener()).await;
    made.map(|built| built.id).map_err(|error| with_hint(&error, error.hint()))
}

/// That of a project, by its id; made when what it is made from has changed.
async fn project(containers: &Containers, engine: &Engine, plan: &Plan, folder: PathBuf) -> Result<String, StartError> {
    let client = client(engine).await?;
    let policy = plan.policy();
    let wish = ProjectWish {
        workspace: plan.workspace().to_owned(),
        folder,
        deny: policy.fs.deny.clone(),
        pull: pull_for_builds(pull_of(plan)),
        // Who may fetch a base may fetch what is put on it; the sandbox itself has no network for it.
        network: match pull_of(plan) {
            Pull::Allow => BuildNetwork::Engine,
            Pull::Never => BuildNetwork::None,
        },
        built_at: now(),
    };
    let made = build_project(&client, &containers.state, &wish, &plan.listener()).await;
    made.map(|built| built.id).map_err(|error| with_hint(&error, error.hint()))
}
