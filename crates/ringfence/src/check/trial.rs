//! One attempt at one attack: through the engine's only door, with the host looking on.

use std::time::{Duration, Instant};

use ringfence_policy::{BackendKind, Overrides, TimeSpan};

use super::arena::Field;
use super::attack::{Attack, Ended, Ends, Found};
use super::host::{self, Sightings};
use super::{CheckError, until};
use crate::outcome::Outcome;
use crate::request::Request;
use crate::{Engine, Status, Stdin};

/// Who asks, in the ledger.
pub(super) const DOOR: &str = "check";
/// No attack needs longer, on however slow a machine, and none may hold up the others.
const MOST_TIME: Duration = Duration::from_secs(30);
/// What is left of a run is dead by then.
const UNTIL_GONE: Duration = Duration::from_millis(500);
/// Where programs are looked for when nobody says.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// An engine, and the place that its workspace is in.
#[derive(Debug)]
pub(super) struct Ground {
    pub(super) engine: Engine,
    pub(super) field: Field,
}

/// Which limits an attempt has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limits {
    /// Those that the attack tries to break, narrow enough to be reached soon.
    Narrow,
    /// The policy's own.
    AsTheyAre,
}

/// What scripts of attacks are made of. Where an image lacks one, an attack would fail by itself and look as if it was held.
const EVERYWHERE: [&str; 9] = ["cat", "head", "ln", "ls", "mkdir", "mv", "rm", "sleep", "uname"];

/// What became of an attempt.
#[derive(Debug)]
pub(super) enum Attempt {
    GotThrough(String),
    Stopped,
    Unclear(String),
    NotMade(String),
}

/// Sets the attack up as one on a wall of the kind `wall`, makes it, and looks at the host.
pub(super) async fn attempt(
    ground: &Ground,
    attack: &Attack,
    limits: Limits,
    wall: BackendKind,
) -> Result<Attempt, CheckError> {
    let policy = ground.engine.policy();
    ground.field.clear(policy)?;
    if !attack.needs.is_empty() && !attack.needs.iter().any(|name| is_on_path(name)) {
        return Ok(Attempt::NotMade(format!("this host has none of: {}", attack.needs.join(", "))));
    }
    let probe = (attack.set)(&ground.field, policy, wall)?;
    let (end, missing) = (host::secret()?, host::secret()?);
    // By standard input: a rule about commands is about what somebody types, and could not read a script. In brackets, so
    // that all of it is read before anything in it could read the rest.
    let script =
        format!("{{\n{}{}\necho {end}\n}} < /dev/null\n", look_for_programs(attack.needs, &missing), probe.script);
    let mut request = Request::argv(["sh", "-s", "--"].into_iter().chain(probe.arguments.iter().map(String::as_str)));
    request.stdin = Stdin::Bytes(script.into_bytes());
    request.metadata.door = DOOR.to_owned();
    request.metadata.labels = vec![("attack".to_owned(), attack.id.to_owned())];
    request.overrides = match limits {
        Limits::Narrow => probe.limits.clone(),
        Limits::AsTheyAre => Overrides::default(),
    };
    if request.overrides.proc.timeout.is_none() {
        let most = policy.proc.timeout.value.get().min(MOST_TIME);
        request.overrides.proc.timeout = TimeSpan::new(most).ok();
    }
    let begin = Instant::now();
    let mut seen = Sightings::default();
    let outcome = match &probe.nap {
        Some(nap) => tokio::select! {
            biased;
            outcome = outcome(&ground.engine, request) => outcome?,
            () = nap.watch(&mut seen) => return Err(CheckError::Abandoned),
        },
        None => outcome(&ground.engine, request).await?,
    };
    let elapsed = begin.elapsed();
    let mut left = 0;
    if let Some(nap) = &probe.nap
        && !until(UNTIL_GONE, || nap.sleepers().is_empty()).await
    {
        left = nap.sleepers().len();
        nap.end();
    }
    if let Some(why) = never_ran(&outcome) {
        return Ok(Attempt::NotMade(why));
    }
    if outcome.stdout.contains(&missing) {
        let needs: Vec<&str> = EVERYWHERE.iter().chain(attack.needs).copied().collect();
        return Ok(Attempt::NotMade(format!("inside, one of these is missing: {}", needs.join(", "))));
    }
    let ended = Ended { outcome: &outcome, seen: &seen, elapsed, left };
    Ok(match (probe.judge)(&ended)? {
        Found::GotThrough(how) => Attempt::GotThrough(how),
        Found::Unclear(why) => Attempt::Unclear(why),
        // Time is what it lacked there, and no wall.
        Found::Stopped if limits == Limits::AsTheyAre && outcome.status == Status::TimedOut => {
            Attempt::Unclear(format!("it was not done after {}s; this machine is slow or busy", elapsed.as_secs()))
        }
        Found::Stopped if probe.ends == Ends::Always && !outcome.stdout.contains(&end) => {
            Attempt::Unclear(format!("the probe did not come to its end: {}", how_it_ended(&outcome)))
        }
        Found::Stopped => Attempt::Stopped,
    })
}

/// Runs a request to its end.
pub(super) async fn outcome(engine: &Engine, request: Request) -> Result<Outcome, CheckError> {
    let run = engine.start(request).map_err(|error| CheckError::Io {
        attempt: "get random bytes from the kernel".to_owned(),
        source: std::io::Error::other(error),
    })?;
    let outcome = run.outcome().await.map_err(|_| CheckError::Abandoned)?;
    // What reached the host whole, as under `direct`, is not kept any more.
    let is_kept = outcome.applied.as_ref().is_none_or(|applied| applied.left > 0);
    if outcome.changes.is_some() && is_kept {
        // Nobody is to review what an attack wrote to a private folder of ours.
        engine.discard(&outcome.run_id).map_err(|error| CheckError::Io {
            attempt: "throw away what an attack changed".to_owned(),
            source: std::io::Error::other(error),
        })?;
    }
    Ok(outcome)
}

fn never_ran(outcome: &Outcome) -> Option<String> {
    match outcome.status {
        Status::Refused => Some(outcome.refusal.as_ref().map_or_else(
            || "it was refused".to_owned(),
            |refusal| format!("the policy refuses it: {} ({})", refusal.reason, refusal.rule),
        )),
        Status::CouldNotRun => Some(outcome.error.as_ref().map_or_else(
            || "it could not be run".to_owned(),
            |error| format!("it could not be run: {}", error.chain.join(": ")),
        )),
        Status::Exited
        | Status::Signalled
        | Status::TimedOut
        | Status::OutOfMemory
        | Status::TooManyProcesses
        | Status::Cancelled => None,
    }
}

fn how_it_ended(outcome: &Outcome) -> String {
    match (outcome.exit_code, outcome.signal) {
        (Some(code), _) => format!("it exited with {code}"),
        (None, Some(signal)) => format!("signal {signal} ended it"),
        (None, None) => format!("{:?}", outcome.status),
    }
}

fn look_for_programs(needs: &[&str], missing: &str) -> String {
    let all: Vec<String> = EVERYWHERE.iter().map(|name| format!("command -v {name}")).collect();
    let mut looks = format!("{{ {}; }} > /dev/null || {{ echo {missing}; exit; }}\n", all.join(" && "));
    if !needs.is_empty() {
        let one: Vec<String> = needs.iter().map(|name| format!("command -v {name}")).collect();
        looks.push_str(&format!("{{ {}; }} > /dev/null || {{ echo {missing}; exit; }}\n", one.join(" || ")));
    }
    looks
}

fn is_on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}
