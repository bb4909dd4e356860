//! Runs the commands and code that AI agents write, inside walls, under a policy, with proof.
//!
//! One way through, in one direction: a [`Request`] is analysed, the policy judges it, [`plan`](plan::plan) turns it
//! into a [`Plan`] for one backend, the backend raises its wall and starts the program, and the run ends in an
//! [`Outcome`]. [`Engine::start`] is the only door; nothing untrusted starts without a plan.
//!
//! This library never prints and never decides on text that an untrusted program wrote.

pub mod analysis;
pub mod approve;
pub mod backend;
pub mod cache;
pub mod capture;
pub mod check;
pub mod checkpoint;
mod choose;
mod conclude;
mod direct;
pub mod egress;
pub mod engine;
pub mod event;
pub mod explain;
mod forbidden;
pub mod guarantee;
pub mod host;
pub mod image;
mod instead;
pub mod judge;
pub mod language;
pub mod layers;
pub mod learn;
pub mod ledger;
mod links;
pub mod loop_guard;
pub mod mask;
mod monitor;
mod opening;
pub mod outcome;
pub mod plain;
pub mod plan;
mod pump;
mod redact;
pub mod refusal;
mod remove_tree;
pub mod request;
pub mod run;
pub mod run_id;
pub mod sandbox_images;
pub mod scope;
pub mod scratch;
pub mod secret;
pub mod session;
mod setup;
pub mod state;
mod waiting;
mod warm;
pub mod way_out;
pub mod workspace;
mod written;

pub use approve::{Approval, Approver, Ask, Nobody};
pub use backend::{Backend, Capabilities, StartError, Unavailable};
pub use engine::Engine;
pub use event::{Event, Stream};
pub use guarantee::{Evidence, Guarantee, Strength};
pub use language::Language;
pub use ledger::Ledger;
pub use loop_guard::{LoopGuard, LoopLimits};
pub use outcome::{Outcome, Status};
pub use plan::Plan;
pub use redact::redact;
pub use refusal::Refusal;
pub use request::{Request, Stdin, Work};
pub use run::Run;
pub use run_id::RunId;
pub use session::{Session, SessionRequest};
pub use state::StateFolder;

/// Who raises native walls for this process, and the work of a process that does it for another.
pub mod launcher {
    pub use ringfence_linux::launcher::{Launcher, Threads};

    /// This process as a launcher, with a guest that is made now, while nobody knows yet what for. It begins with what most
    /// policies want.
    pub fn ahead() -> std::io::Result<Launcher> {
        let launcher = Launcher::ahead(ringfence_guest::live)?;
        crate::backend::presume(&launcher);
        Ok(launcher)
    }

    /// The work of a launcher: raises walls until its owner is gone.
    pub fn serve() -> std::io::Result<()> {
        ringfence_linux::launcher::serve(ringfence_guest::live)
    }
}

/// Makes this process adopt what a program leaves behind when it kills its own keeper, so that it can be killed too. For
/// programs that start no children of their own.
pub use ringfence_linux::orphans::adopt_orphans;

/// Waits for the last of what is behind walls that are gone already, at most so long for each. For programs that end.
pub use ringfence_guest::reap_guests;

/// Our binary as process 1 of a container.
pub mod far_guest {
    pub use ringfence_guest::far::ARGUMENT;
    pub use ringfence_guest::{NotAGuest, live_far};

    /// Whether these are the arguments, the program's name first, that a container is started with.
    pub fn is_meant(mut arguments: impl Iterator<Item = std::ffi::OsString>) -> bool {
        arguments.nth(1).is_some_and(|word| word == ARGUMENT) && arguments.next().is_none()
    }
}

/// What an asynchronous method of a trait object returns.
pub type BoxFuture<'a, T> = std::pin::Pin<Box<dyn Future<Output = T> + Send + 'a>>;
