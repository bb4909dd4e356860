//! Kinds of walls. A backend owns only the boundary; policy, limits, monitoring and the ledger are the engine's.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_linux::Stage;
use ringfence_policy::{BackendKind, ResolvedPolicy};

use crate::BoxFuture;
use crate::egress::Contacts;
use crate::guarantee::{Guarantee, Strength};
use crate::language::Language;
use crate::outcome::{Failure, FailureKind};
use crate::plan::Plan;
use crate::request::WorkspaceAt;
use crate::scratch::ScratchError;
use crate::workspace::copy::CopyError;
use crate::workspace::layer::PrivateLayer;
use crate::workspace::merged::PutBack;

pub(crate) mod container;
mod copied;
mod counters;
pub(crate) mod door;
pub(crate) mod environment;
mod far;
mod guest;
mod inside;
mod landlock;
mod lead_out;
mod native;
mod none;
mod pipes;
mod process;
mod program;
mod spawn;

pub(crate) use native::deny as denied;

/// The paths below `workspace`, relative to it, that `deny` names: as a wall finds them before it masks them.
pub fn denied_below(
    workspace: &std::path::Path,
    deny: &[ringfence_policy::Sourced<ringfence_policy::Glob>],
    state: Option<&crate::state::StateFolder>,
) -> Result<Vec<PathBuf>, StartError> {
    denied::find(workspace, deny, state)
}

/// What of this host, besides the workspace, every program behind the native wall can read: the system's folders and the toolchains that
/// `path` leads to.
pub fn readable(path: &std::ffi::OsStr, workspace: &std::path::Path) -> Vec<PathBuf> {
    let system = native::view::SYSTEM.iter().chain(&native::view::FROM_ETC).map(PathBuf::from);
    system.chain(native::toolchain::paths(path, workspace)).collect()
}

pub use container::Containers;
pub use landlock::Landlock;
pub(crate) use native::presume;
pub use native::{ImageError, Live, Native};
pub use none::NoWall;
pub use process::Sandbox;
pub use spawn::Spawn;

/// A kind of wall that a [`Plan`] can be carried out behind.
///
/// A backend puts every guarantee of the plan in force before the program's first instruction, or fails: it never
/// starts with less. Raising and releasing are two steps, because nothing may run that the ledger does not know of, and
/// a wall can be raised while the ledger's entry is on its way to the disk. Dropping the [`Sandbox`] removes all that was made for it. `ringfence_testkit::conformance` attacks
/// both promises.
pub trait Backend: fmt::Debug + Send + Sync {
    /// Which one.
    fn kind(&self) -> BackendKind;
    /// What this host can enforce now of what `policy` asks for; changes nothing.
    fn probe<'a>(&'a self, policy: &'a ResolvedPolicy) -> BoxFuture<'a, Result<Capabilities, Unavailable>>;
    /// Why this host does not let the wall stand that [`Backend::probe`] took for granted, found out by trying; nothing where it does.
    /// That costs a start, so a run does it only when its wall could not be raised. An error where it could not be tried.
    fn try_out<'a>(&'a self, _policy: &'a ResolvedPolicy) -> BoxFuture<'a, io::Result<Option<Unavailable>>> {
        Box::pin(async { Ok(None) })
    }
    /// The image that stands inside, found and named; nothing when it is the host's own system. Changes nothing. The
    /// wall that is raised next must have the same one, or is not used.
    fn image<'a>(&'a self, _plan: &'a Plan) -> BoxFuture<'a, Result<Option<FoundImage>, StartError>> {
        Box::pin(async { Ok(None) })
    }
    /// Gets ready for a request to come, where that can be. Without it, that request takes a little longer.
    fn expect(&self, _expected: Expected<'_>) {}
    /// Raises the wall, with the program ready behind it. Nothing of it runs before the plan is known to be written down, or before
    /// [`Sandbox::release`].
    fn raise<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Sandbox, StartError>>;
    /// Raises a wall that is kept for several runs, with nothing behind it yet. Not every backend can.
    fn keep<'a>(&'a self, _plan: &'a Plan) -> BoxFuture<'a, Result<Arc<dyn KeptWall>, StartError>> {
        Box::pin(async { Err(StartError::NoSessions { kind: self.kind() }) })
    }
    /// Makes ready what runs like `plan` start from, where something can be, and says how much of it waits. What is said of a
    /// wall is found out when it is raised, all the same.
    fn warm<'a>(&'a self, _plan: &'a Plan) -> BoxFuture<'a, Result<usize, StartError>> {
        Box::pin(async { Ok(0) })
    }
    /// Waits until nothing is left of runs that are over but what goes by itself.
    fn tidy(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
    /// Ends all that was made ready, and waits until it is gone.
    fn drain(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// What is known of a request to come.
#[derive(Debug, Clone, Copy)]
pub struct Expected<'a> {
    /// The policy that it will have.
    pub policy: &'a ResolvedPolicy,
    /// The workspace, absolute.
    pub workspace: &'a Path,
    /// The host's environment, of which the policy passes a part.
    pub environment: &'a [(OsString, OsString)],
    /// Where the workspace is to be inside.
    pub at: &'a WorkspaceAt,
}

/// A wall that stands already. As a backend, it raises no other: its sandboxes are programs in the same place. Dropping
/// it ends everything behind it.
pub trait KeptWall: Backend {
    /// What was seen from inside when it was raised: names of guarantees, and what was found.
    fn proofs(&self) -> &[(String, String)];
    /// The folders that stay the host's own behind it, where something in them is denied.
    fn live(&self) -> Option<&Arc<Live>>;
    /// What is in use behind it, as the guest counts it.
    fn measure(&self) -> BoxFuture<'_, io::Result<InUse>>;
    /// Likewise, as the host sees it, without asking anybody.
    fn sample(&self) -> InUse;
    /// Kills every program behind it, and keeps the place.
    fn kill_programs(&self) -> io::Result<()>;
    /// Ends everything behind it.
    fn end(&self);
    /// Likewise, without the guest's help.
    fn kill(&self);
    /// Ends the way out, and tells what was wanted of the network while no run went on, when all that it carried is counted.
    fn close_network(&self) -> BoxFuture<'_, Contacts> {
        Box::pin(async { Contacts::default() })
    }
    /// Whether a wall that was told to end still tells what is left of it, and is waited for.
    fn still_tells(&self) -> bool {
        false
    }
    /// Waits until nothing runs behind it any more.
    fn ended(&self) -> BoxFuture<'_, ()>;
    /// What is left of it then. Who asks again gets nothing.
    fn take_left(&self) -> Left;
    /// The workspace's private layer as it is now, when there is one that is kept.
    fn layer(&self) -> BoxFuture<'_, io::Result<Option<PrivateLayer>>>;
    /// The workspace with that layer, as programs see it, to be written to. What is put back there is seen in a layer that was
    /// got before.
    fn workspace(&self) -> BoxFuture<'_, io::Result<Option<Box<dyn PutBack>>>>;
}

/// What is left of a wall when nothing runs behind it any more.
#[derive(Debug)]
pub struct Left {
    /// The workspace's private layer, when it holds changes and is kept.
    pub layer: io::Result<Option<PrivateLayer>>,
    /// Whether a private layer holds changes.
    pub changed: bool,
    /// Whether there was no room for anything more to be written.
    pub full: bool,
}

/// What is in use behind a wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InUse {
    /// Processes and threads.
    pub tasks: u64,
    /// Resident memory of all of them.
    pub memory_bytes: u64,
}

/// What a backend can enforce on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    kind: BackendKind,
    kept: Vec<(Guarantee, Strength, &'static str)>,
}

impl Capabilities {
    /// What `kind` keeps: each guarantee, how firmly, and by what.
    pub fn new(kind: BackendKind, kept: Vec<(Guarantee, Strength, &'static str)>) -> Self {
        Self { kind, kept }
    }

    /// The backend.
    pub fn kind(&self) -> BackendKind {
        self.kind
    }

    /// How firmly a guarantee is kept; nothing when it is not.
    pub fn strength(&self, guarantee: Guarantee) -> Option<Strength> {
        self.kept.iter().find(|(kept, ..)| *kept == guarantee).map(|(_, strength, _)| *strength)
    }

    /// By what it is kept, with the policy's value.
    pub fn evidence(&self, guarantee: Guarantee, policy: &ResolvedPolicy) -> String {
        let by = self.kept.iter().find(|(kept, ..)| *kept == guarantee).map_or("", |(_, _, by)| *by);
        let proc = &policy.proc;
        let value = match guarantee {
            Guarantee::TimeLimit => proc.timeout.value.to_string(),
            Guarantee::OutputLimit => proc.output.value.to_string(),
            Guarantee::Memory => proc.memory.value.to_string(),
            Guarantee::Cpus => proc.cpus.value.to_string(),
            Guarantee::Processes => proc.processes.value.to_string(),
            Guarantee::FileSize => proc.file_size.value.to_string(),
            Guarantee::OpenFiles => proc.open_files.value.to_string(),
            Guarantee::FsQuota => policy.fs.size.value.to_string(),
            _ => return by.to_owned(),
        };
        format!("{by}: {value}")
    }
}

/// An image that a wall will show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundImage {
    /// Where it is, with its digest where it has one.
    pub name: String,
    /// What has to be done first and takes a while, for whoever waits.
    pub preparing: Option<String>,
    /// Whether it is known already which one it will be.
    pub settled: Settled,
}

/// When it is known which image a wall will show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Now: the wall must show this very one.
    Now,
    /// When it has been fetched or made, by its name alone until then.
    WhenPrepared,
}

/// How whoever raised a wall came to its image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// By asking for it, or by having it made.
    AsAsked,
    /// By what a name meant at an earlier run.
    AsRemembered,
}

impl FoundImage {
    /// Whether a wall that shows `image` shows what was found. What was remembered counts only where the answer is the same by
    /// now: a name that means nothing any more was withdrawn.
    pub(crate) fn is_shown(found: Option<&Self>, image: Option<&str>, how: Shown) -> bool {
        match (found, how) {
            (Some(Self { settled: Settled::WhenPrepared, .. }), Shown::AsAsked) => image.is_some(),
            (Some(Self { settled: Settled::WhenPrepared, .. }), Shown::AsRemembered) => false,
            (found, Shown::AsAsked | Shown::AsRemembered) => found.map(|found| found.name.as_str()) == image,
        }
    }
}

/// Why a backend cannot be used on this host, and what would change that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    /// Why.
    pub reason: String,
    /// What to do.
    pub fix: String,
}

/// What was attempted when a wall has no namespaces.
const NAMESPACES: &str = "make namespaces for the program";

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The program is nowhere on the path.
    #[error("`{program}` was not found")]
    NotFound {
        /// Its name.
        program: String,
    },
    /// There is no interpreter for the language.
    #[error("no interpreter for {language} was found")]
    NoInterpreter {
        /// The language.
        language: Language,
    },
    /// The working directory is not there, or not a folder.
    #[error("could not open the working directory {path}")]
    WorkingDirectory {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file for the run could not be written.
    #[error("could not put the code and files of the run in place")]
    Files(#[from] ScratchError),
    /// Nothing was forked.
    #[error("could not start the program")]
    Launch(#[from] ringfence_linux::LaunchError),
    /// The wall could not be raised, or a proof of it failed; nothing ran.
    #[error("could not raise the wall")]
    Wall(#[source] WallError),
    /// The image cannot be the root; nothing ran.
    #[error("could not use the image `{image}`")]
    Image {
        /// As the policy has it.
        image: String,
        /// Why.
        source: ImageError,
    },
    /// Between the plan and the wall the image became another one.
    #[error("the image was changed while the run began")]
    ImageChanged,
    /// The interpreter that waited for the code ended before it was given it; nothing of it ran.
    #[error("could not give the code to the interpreter that was started for it")]
    NobodyWaits,
    /// A step inside the new process failed; it ended before the program's first instruction.
    #[error("could not {}", .stage.attempt())]
    Step {
        /// The step.
        stage: Stage,
        /// Why.
        source: io::Error,
    },
    /// The backend keeps no wall for several runs.
    #[error("`{kind}` has no sessions")]
    NoSessions {
        /// Which backend.
        kind: BackendKind,
    },
    /// The workspace could not be copied; nothing ran.
    #[error("could not make a private copy of the workspace")]
    Copy(#[from] CopyError),
    /// Packages that the policy lists cannot be shown; nothing ran.
    #[error("could not show the packages that the policy lists under `cache`")]
    Cache(#[from] crate::cache::CacheError),
    /// Something that the way out needs cannot be had; nothing ran.
    #[error("could not prepare the way out that the policy allows")]
    WayOut(#[from] crate::way_out::WayOutError),
    /// Pipes, descriptors.
    #[error("could not {attempt}")]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// What went wrong behind a wall before anything ran, in the guest's words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WallError(pub String);

impl StartError {
    /// Whether it may be this host that forbids such walls, and not anything about the run.
    pub(crate) fn may_be_the_host(&self) -> bool {
        matches!(self, Self::Wall(_) | Self::Io { attempt: NAMESPACES, .. })
    }

    /// The error as an outcome shows it.
    pub fn failure(&self) -> Failure {
        let (kind, hint) = match self {
            Self::NotFound { .. } => (
                FailureKind::NotFound,
                Some("check the spelling, or install it where the sandbox can see it".to_owned()),
            ),
            Self::NoInterpreter { language } => (FailureKind::NotFound, Some(language.install_advice().to_owned())),
            Self::Step { stage: Stage::Exec, source } if source.kind() == io::ErrorKind::NotFound => {
                (FailureKind::NotFound, Some("the file or the interpreter in its first line does not exist".to_owned()))
            }
            Self::Step { stage: Stage::Exec, .. } => (
                FailureKind::NotExecutable,
                Some("it must be a program for this machine, with permission to execute it".to_owned()),
            ),
            Self::Step { stage: Stage::Fork, .. } => (
                FailureKind::Start,
                Some("as many processes run as may: end some, or raise `proc.processes` in the policy".to_owned()),
            ),
            Self::WorkingDirectory { .. } => {
                (FailureKind::Start, Some("name a folder that exists below the workspace".to_owned()))
            }
            Self::Image { .. } => (
                FailureKind::Start,
                Some("an image is a folder with a root, such as `./rootfs`, or an OCI layout, such as `oci:./image:NAME`".to_owned()),
            ),
            Self::WayOut(_) => (FailureKind::Start, Some("only the person who runs this can provide it; nothing inside can".to_owned())),
            Self::Wall(_) => (FailureKind::Start, Some("`ringfence doctor` says what this host is missing".to_owned())),
            Self::Copy(error) => (FailureKind::Start, Some(error.hint().to_owned())),
            Self::Cache(_) => (
                FailureKind::Start,
                Some("`ringfence cache fill` fetches the packages of the workspace's lock files".to_owned()),
            ),
            Self::NoSessions { .. } => (
                FailureKind::BackendUnavailable,
                Some("use a backend that isolates, such as `native`, or single runs".to_owned()),
            ),
            Self::ImageChanged | Self::NobodyWaits | Self::Files(_) | Self::Launch(_) | Self::Step { .. } | Self::Io { .. } => (FailureKind::Start, None),
        };
        let failure = Failure::new(kind, self);
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_remembered_is_shown_only_where_it_was_found_again() {
        let found = |settled| FoundImage { name: "tool:1 (a)".to_owned(), preparing: None, settled };
        let (now, later) = (found(Settled::Now), found(Settled::WhenPrepared));
        let shown = |found: Option<&FoundImage>, how| FoundImage::is_shown(found, Some("tool:1 (a)"), how);
        assert!(shown(Some(&now), Shown::AsRemembered) && shown(Some(&now), Shown::AsAsked));
        assert!(!FoundImage::is_shown(Some(&now), Some("tool:1 (b)"), Shown::AsRemembered));
        assert!(!shown(None, Shown::AsRemembered));
        assert!(!shown(Some(&later), Shown::AsRemembered), "it was withdrawn meanwhile");
        assert!(shown(Some(&later), Shown::AsAsked), "the twin: it was fetched or made for this wall");
    }
}
