//! One suite for every backend: each guarantee as one allowed act, one forbidden act, and the twin of the forbidden one.
//!
//! The twin is the same probe without a backend. Only if it reaches the canary does it mean something that the probe
//! does not reach it behind the wall.

mod bare;
mod files;
mod limits;
mod network;
mod privileges;
mod walled;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use ringfence::{Guarantee, Outcome, Status};

use crate::Trouble;
use crate::backends::Wall;
use crate::place::Place;

/// One attack on one guarantee.
#[derive(Debug)]
pub struct Case {
    /// The row of the attack catalogue, and what is special about this case.
    pub id: &'static str,
    /// What is attacked.
    pub guarantee: Guarantee,
    /// What the policy of all its runs says.
    pub setting: Setting,
    /// What must still be possible.
    pub allowed: Allowed,
    /// What must not be possible.
    pub forbidden: fn(&Place) -> Result<Probe, Trouble>,
}

/// The parts of a policy that cases differ in, each as the inside of a flow mapping.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// `fs.workspace.mode`.
    pub mode: &'static str,
    /// More of `fs`, after a comma.
    pub fs: &'static str,
    /// `net`.
    pub net: &'static str,
    /// `proc`.
    pub proc: &'static str,
}

impl Setting {
    /// The workspace is written directly, so that its files are canaries; the rest is as by default.
    pub const DIRECT: Self = Self { mode: "direct", fs: "", net: "mode: none", proc: "timeout: 20s, grace: 500ms" };

    /// The policy's text for one wall. An engine's has a workspace of its own, which is never the host's: what it would
    /// write directly is under review there, and brought to the host after the run.
    pub fn policy(&self, wall: &Wall) -> String {
        let Self { mode, fs, net, proc } = self;
        let mode = if self.is_brought_home(wall) { "review" } else { mode };
        let chosen = wall.policy();
        format!(
            "version: 1\n{chosen}fs: {{ workspace: {{ path: ., mode: {mode} }}{fs} }}\nnet: {{ {net} }}\nproc: {{ {proc} }}\n"
        )
    }

    /// Whether what a program wrote comes to the host only when it is brought there.
    fn is_brought_home(&self, wall: &Wall) -> bool {
        wall.engine.is_some() && self.mode == Self::DIRECT.mode
    }
}

/// An act that a guarantee must not prevent, as a line for a shell.
#[derive(Debug, Clone, Copy)]
pub enum Allowed {
    /// It leaves the file `allowed` in the workspace.
    Writes(&'static str),
    /// It prints what the file `note` in the workspace says; for workspaces that the host does not see written.
    PrintsNote(&'static str),
    /// It prints this; for workspaces that begin empty.
    Prints(&'static str, &'static str),
}

/// A forbidden act, set up in a place of its own.
pub struct Probe {
    /// A line for `sh -c`.
    pub script: String,
    /// Its arguments, from `$1` on.
    pub arguments: Vec<String>,
    /// Variables of the host while it runs.
    pub environment: Vec<(OsString, OsString)>,
    /// Looks whether it got through, and says how.
    pub reached: Reached,
}

/// How a probe's effect is judged once it has ended.
pub type Reached = Box<dyn FnOnce(&Ended) -> Result<Option<String>, Trouble>>;

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe")
            .field("script", &self.script)
            .field("arguments", &self.arguments)
            .finish_non_exhaustive()
    }
}

impl Probe {
    /// A probe without arguments and variables.
    pub fn new(
        script: impl Into<String>,
        reached: impl FnOnce(&Ended) -> Result<Option<String>, Trouble> + 'static,
    ) -> Self {
        Self { script: script.into(), arguments: Vec::new(), environment: Vec::new(), reached: Box::new(reached) }
    }

    /// Adds an argument.
    #[must_use]
    pub fn with(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }
}

/// The end of a probe, behind a wall or bare.
#[derive(Debug)]
pub struct Ended {
    /// From start until nobody held its output any more.
    pub wall: Duration,
    /// What was kept of its standard output.
    pub stdout: Vec<u8>,
    /// What the engine says about it; nothing for a bare one.
    pub outcome: Option<Outcome>,
}

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The allowed act succeeded, the forbidden one had no effect, and its twin had.
    Held,
    /// The guarantee does not hold, and this is how.
    Broken(String),
    /// Nothing was shown: the twin did not reach the canary.
    Inconclusive(String),
    /// The backend does not promise it.
    NotClaimed,
}

/// Every case.
pub fn cases() -> Vec<Case> {
    [limits::cases(), privileges::cases(), files::cases(), network::cases()].into_iter().flatten().collect()
}

/// Runs one case against a backend that can be used here. `launcher` is the binary that raises walls for tests.
pub fn attack(wall: &Wall, case: &Case, launcher: &Path) -> Result<Verdict, Trouble> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Trouble::io("start an event loop"))?;
    if !runtime.block_on(walled::claims(wall, case, launcher))? {
        return Ok(Verdict::NotClaimed);
    }
    if twin(case, launcher)?.is_none() {
        return Ok(Verdict::Inconclusive("the probe does not reach its canary without the guarantee".to_owned()));
    }
    if let Some(problem) = runtime.block_on(walled::allowed_act(wall, case, launcher))? {
        return Ok(Verdict::Broken(format!("the allowed act failed: {problem}")));
    }
    let place = Place::new(launcher)?;
    let probe = (case.forbidden)(&place)?;
    let ended = runtime.block_on(walled::run(
        &place,
        wall,
        &case.setting,
        &probe.script,
        &probe.arguments,
        &probe.environment,
    ))?;
    if let Some(outcome) = &ended.outcome
        && matches!(outcome.status, Status::Refused | Status::CouldNotRun)
    {
        return Ok(Verdict::Inconclusive(format!(
            "the probe was not started: {:?} {:?}",
            outcome.refusal, outcome.error
        )));
    }
    Ok(match (probe.reached)(&ended)? {
        None => Verdict::Held,
        Some(how) => Verdict::Broken(how),
    })
}

/// Runs the forbidden act of a case bare; says how it reached its canary.
pub fn twin(case: &Case, launcher: &Path) -> Result<Option<String>, Trouble> {
    let place = Place::new(launcher)?;
    let probe = (case.forbidden)(&place)?;
    let ended = bare::run(&place.workspace(), &probe.script, &probe.arguments, &probe.environment)?;
    (probe.reached)(&ended)
}

/// What every run has of the host's environment, whatever machine this is.
fn host_environment(more: &[(OsString, OsString)]) -> Vec<(OsString, OsString)> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    let mut all: Vec<(OsString, OsString)> = vec![("PATH".into(), path), ("LANG".into(), "C.UTF-8".into())];
    all.extend(more.iter().cloned());
    all
}
