//! What an engine is made from, and why there is none.

use std::ffi::OsString;
use std::path::PathBuf;

use ringfence_linux::launcher::Launcher;
use ringfence_policy::{Grant, ResolvedPolicy};

use crate::ledger::LedgerError;
use crate::state::StateFolder;

/// What an engine is made from.
#[derive(Debug)]
pub struct Setup {
    /// The policy of every request.
    pub policy: ResolvedPolicy,
    /// The workspace, absolute.
    pub workspace: PathBuf,
    /// The host's environment, of which the policy passes a part.
    pub environment: Vec<(OsString, OsString)>,
    /// Where ledger and scratch folders are.
    pub state: StateFolder,
    /// The grants that went into the policy; every plan is written down with them.
    pub grants: Vec<Grant>,
    /// The files that said what is permitted, as [`own_files`](crate::layers::own_files) gives them: in the
    /// workspace they are protected, whatever they are called.
    pub own: Vec<PathBuf>,
    /// Who raises native walls: this process while it has one thread, or a process started for it.
    pub launcher: Launcher,
    /// How many containers wait for runs after [`Engine::warm`](crate::Engine::warm), where containers are the wall.
    pub warm: usize,
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// No ledger, no runs.
    #[error("could not open the ledger")]
    Ledger(#[from] LedgerError),
    /// What earlier runs left cannot be removed.
    #[error("could not remove what earlier runs left in {path}")]
    Sweep {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The workspace cannot be used.
    #[error("the workspace {0} is not an absolute path")]
    RelativeWorkspace(PathBuf),
}
