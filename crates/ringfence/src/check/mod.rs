//! Attacks the wall that this host and policy would use, and says what held.
//!
//! Every attack is a request through the engine, as anybody's would be. What became of it is judged by its effect on the
//! host: a secret that came out, a file that changed, a connection that was made, a process that was seen. A program's own
//! words only ever make a result worse. Each attack has a control, which shows that it gets through where there is no wall;
//! without one, "held" would mean nothing.
//!
//! This module must not touch the workspace that it is asked about: it attacks from one of its own.

mod arena;
mod attack;
mod attacks;
mod host;
mod report;
mod trial;

use std::time::{Duration, Instant};

use ringfence_linux::launcher::Launcher;
use ringfence_policy::{BackendChoice, BackendKind, ResolvedPolicy, ValidateLevel};

use self::arena::Arena;
use self::attack::{Attack, Control};
use self::trial::{Attempt, Ground};
use crate::engine::{Setup, SetupError};
use crate::guarantee;
use crate::ledger;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::state::StateFolder;
use crate::written::hash_policy;
use crate::{Engine, Status};

pub use report::{Report, Row, Verdict};

/// A check that is ready to begin. Dropping it removes all that was made for it.
#[derive(Debug)]
pub struct Check {
    walled: Ground,
    bare: Ground,
    policy: ResolvedPolicy,
    state: StateFolder,
    attacks: Vec<&'static Attack>,
    // After the engines that work in it.
    _arena: Arena,
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// No place to attack from.
    #[error("could not {attempt}")]
    Io {
        /// What was attempted.
        attempt: String,
        /// Why.
        source: std::io::Error,
    },
    /// No engine.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// No attack has this name.
    #[error("no attack is called `{name}`; write one of these, or a guarantee's name: {known}")]
    NoSuchAttack {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// Not even a harmless program could be run; its outcome says why.
    #[error("nothing can be run under this policy here")]
    NothingRuns(Box<Outcome>),
    /// A run ended without an outcome.
    #[error("a run was abandoned before it ended")]
    Abandoned,
}

impl CheckError {
    fn io(attempt: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let attempt = attempt.into();
        move |source| Self::Io { attempt, source }
    }
}

/// What is going on, for whoever waits.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// How many attacks are over.
    pub done: usize,
    /// How many there are.
    pub all: usize,
    /// The next one.
    pub next: &'a str,
}

impl Check {
    /// Makes a place to attack from, and engines with the policy, environment and state of `setup`, whose workspace is not
    /// touched. With `only`, one attack, or those on one guarantee.
    pub fn prepare(mut setup: Setup, only: Option<&str>) -> Result<Self, CheckError> {
        let attacks = choose(&setup.policy, only)?;
        let arena = Arena::create()?;
        let (walled, bare) = (arena.field("walled", &setup.state)?, arena.field("bare", &setup.state)?);
        for field in [&walled, &bare] {
            field.make_mounted(&setup.policy)?;
        }
        let policy = setup.policy.clone();
        // Attacks are for the wall, not for whoever reads requests before it.
        setup.policy.validate.level.value = ValidateLevel::Off;
        let mut environment = setup.environment.clone();
        environment.push((arena::VARIABLE.into(), arena.variable().into()));
        // The control runs harmless programs of ours against canaries of ours, and on purpose without a wall.
        let mut no_wall = setup.policy.clone();
        no_wall.backend.choice.value = BackendChoice::Kind(BackendKind::None);
        no_wall.backend.fallback.clear();
        let control = Setup {
            policy: no_wall,
            workspace: bare.workspace(),
            environment: environment.clone(),
            state: setup.state.clone(),
            grants: Vec::new(),
            own: Vec::new(),
            launcher: Launcher::here(),
            warm: 0,
        };
        let state = setup.state.clone();
        let walled_setup = Setup { workspace: walled.workspace(), environment, ..setup };
        Ok(Self {
            walled: Ground { engine: Engine::new(walled_setup)?, field: walled },
            bare: Ground { engine: Engine::new(control)?, field: bare },
            policy,
            state,
            attacks,
            _arena: arena,
        })
    }

    /// Attacks, one after the other.
    pub async fn run(&self, progress: &mut (dyn FnMut(Progress<'_>) + Send)) -> Result<Report, CheckError> {
        let begin = Instant::now();
        let proven = self.prove().await?;
        // It ran, so it had one.
        let wall = proven.backend.ok_or(CheckError::Abandoned)?;
        let mut rows = Vec::new();
        for attack in &self.attacks {
            progress(Progress { done: rows.len(), all: self.attacks.len(), next: attack.tries });
            rows.push(self.attack(attack, wall).await?);
        }
        Ok(Report {
            date: proven.started_at,
            backend: proven.backend,
            fell_back: proven.fell_back,
            policy_hash: hash_policy(&self.policy),
            ledger_head: ledger::head(&self.state),
            enforced: proven.enforced,
            not_enforced: proven.not_enforced,
            rows,
            duration: begin.elapsed(),
        })
    }

    /// A harmless program behind the wall: its outcome holds what was proven from inside.
    async fn prove(&self) -> Result<Outcome, CheckError> {
        // So that there is something denied to look for.
        self.walled.field.write(&self.walled.field.workspace().join(".env"), "")?;
        let mut request = Request::argv(["true"]);
        request.metadata.door = trial::DOOR.to_owned();
        let outcome = trial::outcome(&self.walled.engine, request).await?;
        match outcome.status {
            Status::Exited if outcome.exit_code == Some(0) => Ok(outcome),
            _ => Err(CheckError::NothingRuns(Box::new(outcome))),
        }
    }

    async fn attack(&self, attack: &'static Attack, wall: BackendKind) -> Result<Row, CheckError> {
        let (tried, control) = match attack.control {
            Control::WithoutWall => {
                let (tried, control) = tokio::join!(
                    trial::attempt(&self.walled, attack, trial::Limits::Narrow, wall),
                    trial::attempt(&self.bare, attack, trial::Limits::AsTheyAre, wall)
                );
                (tried?, Some(control?))
            }
            Control::Own(_) => (trial::attempt(&self.walled, attack, trial::Limits::Narrow, wall).await?, None),
        };
        let verdict = match (tried, control) {
            (Attempt::GotThrough(how), _) => Verdict::Broken { how },
            (Attempt::NotMade(why), _) => Verdict::NotTried { why },
            (Attempt::Unclear(why), _) => Verdict::Inconclusive { why },
            (Attempt::Stopped, None | Some(Attempt::GotThrough(_))) => Verdict::Held,
            (Attempt::Stopped, Some(Attempt::Stopped)) => Verdict::Inconclusive {
                why: "the control failed: this attack does not get through without a wall either".to_owned(),
            },
            (Attempt::Stopped, Some(Attempt::NotMade(why) | Attempt::Unclear(why))) => {
                Verdict::Inconclusive { why: format!("the control failed: {why}") }
            }
        };
        Ok(Row {
            id: attack.id,
            guarantee: attack.guarantee,
            tried: attack.tries,
            control: match attack.control {
                Control::WithoutWall => "the same without a wall gets through",
                Control::Own(how) => how,
            },
            verdict,
        })
    }
}

/// The attacks on what `policy` asks for; a guarantee that it does not ask for is nobody's to hold.
fn choose(policy: &ResolvedPolicy, only: Option<&str>) -> Result<Vec<&'static Attack>, CheckError> {
    let required = guarantee::required(policy);
    let applies = |attack: &&Attack| required.contains(&attack.guarantee) && (attack.applies)(policy);
    let all: Vec<&'static Attack> = attacks::all().filter(applies).collect();
    let Some(name) = only else { return Ok(all) };
    let is_meant = |attack: &&&Attack| attack.id.eq_ignore_ascii_case(name) || attack.guarantee.name() == name;
    let chosen: Vec<&'static Attack> = all.iter().filter(is_meant).copied().collect();
    if chosen.is_empty() {
        let known: Vec<&str> = all.iter().map(|attack| attack.id).collect();
        return Err(CheckError::NoSuchAttack { name: name.to_owned(), known: known.join(" ") });
    }
    Ok(chosen)
}

/// Waits until `done`, at most `limit`; says whether it came true.
async fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
