//! From flags and environment to a policy and an engine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence::engine::{Setup, SetupError};
use ringfence::launcher::Launcher;
use ringfence::layers::{self, LoadError, Loaded, LoadedFile, OPERATOR_FILE, Operators, Project, Sources};
use ringfence::scope::{Asked, ask_for_scope};
use ringfence::state::StateError;
use ringfence::{Approver, Engine, StateFolder};
use ringfence_policy::{Diagnostic, Grant, Layer};

use crate::Fatal;
use crate::approver::{AtTerminal, Beforehand, NotHeldBack};
use crate::args::{LayerArgs, OutputArgs};
use crate::{chatter, question, render};

/// The hidden word that makes this program a launcher for another process.
pub(crate) const LAUNCHER: &str = "launcher";

/// Why there is nothing to run with.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SetupFailure {
    #[error(transparent)]
    Policy(#[from] LoadError),
    #[error("a grant is not valid")]
    Grant { diagnostics: Vec<Diagnostic>, file: Box<LoadedFile> },
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Engine(#[from] SetupError),
    #[error("could not find the folder {path}")]
    Folder { path: PathBuf, source: std::io::Error },
    #[error("could not find out where the policy's files are, so they could not be protected")]
    OwnFiles(#[source] std::io::Error),
    #[error("could not start the event loop")]
    Runtime(#[source] std::io::Error),
    #[error("this process may have only {0} open files; a run needs at least {FEWEST_DESCRIPTORS}")]
    FewDescriptors(u64),
}

impl Fatal for SetupFailure {
    fn details(&self) -> Option<String> {
        match self {
            Self::Policy(LoadError::Invalid { diagnostics, files }) => Some(render::diagnostics(diagnostics, files)),
            Self::Grant { diagnostics, file } => Some(render::diagnostics(diagnostics, std::slice::from_ref(file))),
            _ => None,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::Policy(LoadError::Read { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                Some("`ringfence policy init` writes a policy to begin with".to_owned())
            }
            Self::State(StateError::Nowhere) => Some(
                "say where it can stay, such as by `RINGFENCE_STATE_DIR=/var/lib/ringfence`; a service has no HOME of its own"
                    .to_owned(),
            ),
            Self::OwnFiles(_) => Some("look whether one was moved while it was read, and run it again".to_owned()),
            Self::FewDescriptors(_) => Some("raise it first, such as by `ulimit -n 1024`".to_owned()),
            _ => None,
        }
    }
}

/// The policy and where it holds.
pub(crate) struct Context {
    pub(crate) loaded: Loaded,
    pub(crate) workspace: PathBuf,
    grants: Vec<Grant>,
    /// The files that the policy was read from, by their real paths.
    pub(crate) own: Vec<PathBuf>,
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Reads all layers. `flag_grants` are permissions that came as flags.
pub(crate) fn load(args: &LayerArgs, flag_grants: Vec<Grant>) -> Result<Context, SetupFailure> {
    let here = std::env::current_dir().map_err(|source| SetupFailure::Folder { path: ".".into(), source })?;
    let folder = match &args.workspace {
        Some(folder) => absolute(&here, folder)?,
        None => here.clone(),
    };
    let mut grants = flag_grants;
    for path in &args.grant_file {
        let text = layers::read(path)?;
        let name = path.to_string_lossy().into_owned();
        match Grant::parse(&name, &text) {
            Ok(grant) => grants.push(grant),
            Err(diagnostics) => {
                let file =
                    LoadedFile { layer: Layer::Grant, path: path.clone(), name: name.into(), text, parsed: None };
                return Err(SetupFailure::Grant { diagnostics, file: Box::new(file) });
            }
        }
    }
    let sources = Sources {
        user: layers::user_file(variable),
        project: match &args.policy {
            Some(file) => Project::File(file.clone()),
            None => Project::Search(folder.clone()),
        },
        workspace: Some(folder.clone()),
        operator: Operators {
            machine: Some(OPERATOR_FILE.into()),
            further: variable("RINGFENCE_OPERATOR_POLICY")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
                .into_iter()
                .collect(),
        },
        environment: std::env::vars_os().collect(),
        chosen_backend: args.named_backend(),
        chosen_runtime: args.runtime.clone(),
        chosen_image: args.image.clone(),
        grants: grants.clone(),
    };
    let loaded = layers::load(&sources)?;
    let workspace = match &args.workspace {
        Some(_) => folder,
        None => {
            // The project's folder is the workspace, also from a folder below it. A file named by --policy can lie
            // anywhere: only a path that it states itself is meant from where it is.
            let from_project = loaded.policy.fs.workspace.origin.layer == Layer::Project;
            let base = match &loaded.project_file {
                Some(file) if from_project || args.policy.is_none() => {
                    absolute(&here, file.parent().unwrap_or(Path::new(".")))?
                }
                _ => here,
            };
            absolute(&base, loaded.policy.fs.workspace.value.as_path())?
        }
    };
    let files = loaded.files.iter().map(|file| file.path.as_path());
    let own = layers::own_files(files.chain(args.grant_file.iter().map(PathBuf::as_path)));
    let own = own.map_err(SetupFailure::OwnFiles)?;
    Ok(Context { loaded, workspace, grants, own })
}

fn absolute(base: &Path, path: &Path) -> Result<PathBuf, SetupFailure> {
    let path = base.join(path);
    path.canonicalize().map_err(|source| SetupFailure::Folder { path, source })
}

/// Who raises the wall of the command in `words`: this process. For a run it makes the guest at once. Without one, or with one
/// that turns out not to be needed, only time is lost.
pub(crate) fn launcher(words: impl Iterator<Item = OsString>) -> Launcher {
    let ours: Vec<OsString> = words.skip(1).take_while(|word| word != "--").collect();
    let starts_nothing = |word: &OsString| ["--dry-run", "--help", "-h"].iter().any(|flag| word == flag);
    if ours.first().is_some_and(|word| word == "run") && !ours.iter().any(starts_nothing) {
        ringfence::launcher::ahead().unwrap_or_else(|_| Launcher::here())
    } else {
        Launcher::here()
    }
}

/// The engine for a context, whose walls `launcher` raises.
pub(crate) fn engine(context: Context, launcher: Launcher) -> Result<Engine, SetupFailure> {
    Ok(Engine::new(engine_setup(context, launcher)?)?)
}

/// Likewise, with somebody who is asked.
pub(crate) fn engine_asking(
    context: Context,
    launcher: Launcher,
    approver: Arc<dyn Approver>,
) -> Result<Engine, SetupFailure> {
    Ok(Engine::with_approver(engine_setup(context, launcher)?, approver)?)
}

/// Likewise, with the person at our terminal as the one who is asked, where there is a terminal and `output` does not go around what
/// is held back.
pub(crate) fn engine_at_terminal(
    context: Context,
    launcher: Launcher,
    output: OutputArgs,
) -> Result<Engine, SetupFailure> {
    if !question::can_ask() {
        return engine(context, launcher);
    }
    let approver: Arc<dyn Approver> = match question::is_held_back(output) {
        true => Arc::new(AtTerminal::default()),
        false => Arc::new(NotHeldBack),
    };
    engine_asking(context, launcher, approver)
}

/// Likewise, for somebody who said yes to these rules before.
pub(crate) fn engine_approving(
    context: Context,
    launcher: Launcher,
    rules: Vec<String>,
) -> Result<Engine, SetupFailure> {
    Ok(Engine::with_approver(engine_setup(context, launcher)?, Arc::new(Beforehand::to(rules)))?)
}

/// What an engine for a context is made from.
pub(crate) fn engine_setup(context: Context, launcher: Launcher) -> Result<Setup, SetupFailure> {
    // In vain is no failure yet: a plan that needs more than can be enforced here is refused.
    if let Asked::InVain(why) = ask_for_scope(&context.loaded.policy, variable) {
        chatter::say(&with_cause(&why));
    }
    Ok(Setup {
        policy: context.loaded.policy,
        workspace: context.workspace,
        environment: std::env::vars_os().collect(),
        state: state()?,
        grants: context.grants,
        own: context.own,
        launcher,
        warm: 0,
    })
}

/// An error and what caused it, in one line.
fn with_cause(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// The state folder of this user.
pub(crate) fn state() -> Result<StateFolder, StateError> {
    StateFolder::from_environment(variable)
}

/// With fewer, the event loop would fail somewhere in the middle, and not by an error that says so.
const FEWEST_DESCRIPTORS: u64 = 32;

/// An event loop on this thread alone: as long as there is no other thread, this process may raise walls itself.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, SetupFailure> {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    if most < FEWEST_DESCRIPTORS {
        return Err(SetupFailure::FewDescriptors(most));
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(SetupFailure::Runtime)
}
