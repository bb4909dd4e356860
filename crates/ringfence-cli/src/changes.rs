//! `ringfence changes` and `ringfence discard`.

use std::io;
use std::time::{Duration, SystemTime};

use ringfence::ledger::{Ledger, LedgerError};
use ringfence::state::StateError;
use ringfence::workspace::apply::{Progress, ProgressState};
use ringfence::workspace::discard::{DiscardError, discard};
use ringfence::workspace::kept::{self, FindError};
use ringfence::workspace::{ChangeSet, change::Moment};
use ringfence::{RunId, StateFolder};
use serde_json::json;

use crate::args::{ChangesArgs, ChangesCommand};
use crate::log::one_line;
use crate::terminal::harmless;
use crate::{Done, Fatal, chatter, setup};

/// What of a subject is listed.
const MOST_LETTERS: usize = 48;

#[derive(Debug, thiserror::Error)]
enum ChangesFailure {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Find(#[from] FindError),
    #[error(transparent)]
    Discard(#[from] DiscardError),
    #[error("could not look at the changes of {run}")]
    Look { run: RunId, source: io::Error },
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
}

impl Fatal for ChangesFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::Find(FindError::NoSuchRun(_) | FindError::Ambiguous { .. }) => 2,
            _ => crate::OUR_FAILURE,
        }
    }
}

/// One set, as far as it can be read.
struct Listed {
    run: RunId,
    bytes: u64,
    set: io::Result<ChangeSet>,
    progress: io::Result<Option<Progress>>,
}

impl Listed {
    /// How far it was applied, in one word.
    fn applied(&self) -> &'static str {
        match self.progress.as_ref().map(|progress| progress.as_ref().map(|progress| progress.state)) {
            Ok(None) => "waiting",
            Ok(Some(ProgressState::Applied)) => "applied",
            Ok(Some(ProgressState::Partly)) => "partly",
            Ok(Some(ProgressState::TakenBack)) => "takenBack",
            Err(_) => "unknown",
        }
    }
}

pub(crate) fn changes(args: ChangesArgs) -> Done {
    match args.command {
        Some(ChangesCommand::Prune { older_than, keep }) => prune(older_than, keep),
        None => list(args.json),
    }
}

fn list(json: bool) -> Done {
    let state = setup::state().map_err(ChangesFailure::from)?;
    let listed = look(&state)?;
    if listed.is_empty() && !json {
        chatter::say("no changes are kept");
        return Ok(0);
    }
    let text = if json { as_json(&listed) } else { as_table(&listed) };
    if !json {
        let bytes = listed.iter().map(|listed| listed.bytes).sum();
        chatter::say(&format!(
            "{} kept, {} in all; `ringfence discard RUN` and `ringfence changes prune` remove them",
            listed.len(),
            readable(bytes)
        ));
    }
    match chatter::data(&text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(ChangesFailure::Output(error).into()),
        Ok(()) | Err(_) => Ok(0),
    }
}

fn look(state: &StateFolder) -> Result<Vec<Listed>, ChangesFailure> {
    let runs = kept::runs(state).map_err(FindError::from)?;
    let look = |run: RunId| {
        let kept = kept::of(state, &run);
        match kept.size() {
            Ok(bytes) => Ok(Listed { set: kept.load(), progress: Progress::of(&kept), run, bytes }),
            Err(source) => Err(ChangesFailure::Look { run, source }),
        }
    };
    runs.into_iter().map(look).collect()
}

fn as_table(listed: &[Listed]) -> String {
    let mut text = String::new();
    for one in listed {
        let Listed { run, bytes, set, .. } = one;
        match set {
            Ok(set) => {
                let counts = set.counts();
                let counts = format!("+{} ~{} -{}", counts.added, counts.changed, counts.removed);
                text.push_str(&format!(
                    "{run}  {}  {:<9}  {counts:<14} {:>10}  {}  {}\n",
                    time(set.ended),
                    one.applied(),
                    readable(*bytes),
                    one_line(&set.workspace.to_string_lossy(), usize::MAX),
                    one_line(&set.subject, MOST_LETTERS)
                ));
            }
            Err(error) => text.push_str(&format!("{run}  cannot be read: {}\n", harmless(&error.to_string()))),
        }
    }
    text
}

fn as_json(listed: &[Listed]) -> String {
    let one = |one @ Listed { run, bytes, set, .. }: &Listed| match set {
        Ok(set) => json!({
            "run": run,
            "state": one.applied(),
            "endedAt": time(set.ended),
            "workspace": set.workspace.to_string_lossy(),
            "subject": set.subject,
            "changes": set.counts(),
            "bytes": bytes,
            "problem": null,
        }),
        Err(error) => json!({
            "run": run,
            "state": one.applied(),
            "endedAt": null,
            "workspace": null,
            "subject": null,
            "changes": null,
            "bytes": bytes,
            "problem": error.to_string(),
        }),
    };
    format!("{:#}\n", json!(listed.iter().map(one).collect::<Vec<_>>()))
}

/// To the second, in UTC.
fn time(moment: Moment) -> String {
    let text = moment.to_string();
    text.get(..19).map_or(text.clone(), |time| format!("{time}Z"))
}

/// A size for people.
pub(crate) fn readable(bytes: u64) -> String {
    const STEP: f64 = 1024.0;
    let mut size = bytes as f64 / STEP;
    let mut units = ["KiB", "MiB", "GiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    for larger in units {
        if size < STEP {
            break;
        }
        (size, unit) = (size / STEP, larger);
    }
    format!("{size:.1} {unit}")
}

/// Removes old sets, and only those that a flag names.
fn prune(older_than: Option<Duration>, keep: Option<usize>) -> Done {
    let state = setup::state().map_err(ChangesFailure::from)?;
    let mut runs = kept::runs(&state).map_err(|error| ChangesFailure::from(FindError::from(error)))?;
    // The newest come last.
    runs.truncate(runs.len().saturating_sub(keep.unwrap_or(0)));
    let now = SystemTime::now();
    let mut old = Vec::new();
    for run in runs {
        let since = kept::of(&state, &run).since();
        let since = since.map_err(|source| ChangesFailure::Look { run: run.clone(), source })?;
        let age = now.duration_since(since).unwrap_or_default();
        if older_than.is_none_or(|limit| age >= limit) {
            old.push(run);
        }
    }
    throw_away(&state, &old)
}

pub(crate) fn throw_away_named(names: &[String], all: bool) -> Done {
    let state = setup::state().map_err(ChangesFailure::from)?;
    let runs = if all {
        kept::runs(&state).map_err(FindError::from)
    } else {
        // All names first: a slip in one must not throw others away.
        names.iter().map(|name| kept::find(&state, name)).collect()
    };
    let mut runs: Vec<RunId> = runs.map_err(ChangesFailure::from)?;
    runs.sort();
    runs.dedup();
    throw_away(&state, &runs)
}

fn throw_away(state: &StateFolder, runs: &[RunId]) -> Done {
    if runs.is_empty() {
        chatter::say("there is nothing to throw away");
        return Ok(0);
    }
    let ledger = Ledger::open(state).map_err(ChangesFailure::from)?;
    let mut freed = 0;
    for run in runs {
        freed += discard(state, &ledger, run).map_err(ChangesFailure::from)?;
    }
    let of = if let [run] = runs { format!("of {run}") } else { format!("of {} runs", runs.len()) };
    chatter::say(&format!("threw away the changes {of}, {}", readable(freed)));
    Ok(0)
}
