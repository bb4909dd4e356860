//! `ringfence cache`.

use std::io;
use std::time::{Duration, SystemTime};

use ringfence::cache::{self, CacheError, Entry, Filled};
use ringfence::state::StateError;
use serde_json::json;

use crate::args::{CacheCommand, LayerArgs};
use crate::changes::readable;
use crate::terminal::harmless;
use crate::{Done, Fatal, chatter, setup};

#[derive(Debug, thiserror::Error)]
enum CacheFailure {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Cache(#[from] CacheError),
    #[error("the policy lists no cache")]
    NoneListed,
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
}

impl Fatal for CacheFailure {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoneListed => {
                Some("write `cache: [pip]` into the policy; the kinds are pip, npm and cargo".to_owned())
            }
            _ => None,
        }
    }

    /// What a tool said is of others: nothing in it may act on a terminal.
    fn details(&self) -> Option<String> {
        match self {
            Self::Cache(error @ CacheError::Tool { .. }) => {
                let lines: Vec<String> = error.to_string().lines().map(harmless).collect();
                Some(format!("error: {}\n", lines.join("\n  ")))
            }
            _ => None,
        }
    }
}

pub(crate) fn cache(command: CacheCommand) -> Done {
    match command {
        CacheCommand::Fill { layers } => fill(&layers),
        CacheCommand::List { json } => list(json),
        CacheCommand::Verify => verify(),
        CacheCommand::Prune { older_than } => prune(older_than),
    }
}

fn fill(layers: &LayerArgs) -> Done {
    let context = setup::load(layers, Vec::new())?;
    let state = setup::state().map_err(CacheFailure::from)?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let kinds: Vec<_> = context.loaded.policy.cache.iter().map(|kind| kind.value).collect();
    if kinds.is_empty() {
        return Err(CacheFailure::NoneListed.into());
    }
    for kind in kinds {
        let mut say = |line: &str| chatter::say(&harmless(line));
        match cache::fill(kind, &context.workspace, &state, &path, &mut say).map_err(CacheFailure::from)? {
            Filled::Already => chatter::say(&format!("{kind}: all is there, and is what was fetched")),
            Filled::Fetched(packages) => chatter::say(&format!("{kind}: {packages} packages were fetched")),
        }
    }
    Ok(0)
}

fn list(json: bool) -> Done {
    let state = setup::state().map_err(CacheFailure::from)?;
    let entries = cache::list(&state).map_err(CacheFailure::from)?;
    let text = if json { as_json(&entries) } else { as_table(&entries) };
    if entries.is_empty() && !json {
        chatter::say("there are no caches; `ringfence cache fill` makes them");
    }
    match chatter::data(&text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CacheFailure::Output(error).into()),
        Ok(()) | Err(_) => Ok(0),
    }
}

fn as_json(entries: &[Entry]) -> String {
    let seconds = |used: SystemTime| used.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let list: Vec<_> = entries
        .iter()
        .map(|it| {
            json!({
                "kind": it.kind, "key": it.key, "lock": it.lock, "packages": it.packages, "bytes": it.bytes,
                "usedAt": seconds(it.used),
            })
        })
        .collect();
    format!("{}\n", json!(list))
}

fn as_table(entries: &[Entry]) -> String {
    let mut out = String::new();
    for it in entries {
        let key = it.key.get(..12).unwrap_or(&it.key);
        let (kind, size, lock) = (it.kind.to_string(), readable(it.bytes), harmless(&it.lock));
        out.push_str(&format!("{kind:<6} {key}  {size:>9}  {:>5} packages  {lock}\n", it.packages));
    }
    out
}

fn verify() -> Done {
    let state = setup::state().map_err(CacheFailure::from)?;
    let mut damaged = 0;
    for (kind, key, checked) in cache::verify(&state).map_err(CacheFailure::from)? {
        let key = key.get(..12).unwrap_or(&key);
        match checked {
            Ok(entry) => chatter::say(&format!("{kind} {key}: all of {} is what was fetched", readable(entry.bytes))),
            Err(error) => {
                damaged += 1;
                chatter::say(&format!("{kind} {key}: {}", harmless(&error.to_string())));
            }
        }
    }
    Ok(if damaged == 0 { 0 } else { 1 })
}

fn prune(age: Duration) -> Done {
    let state = setup::state().map_err(CacheFailure::from)?;
    let removed = cache::prune(&state, age).map_err(CacheFailure::from)?;
    chatter::say(&format!("{removed} caches were removed"));
    Ok(0)
}
