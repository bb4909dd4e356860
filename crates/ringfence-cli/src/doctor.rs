//! `ringfence doctor`.

use ringfence::host::{EngineReport, Fact, engines, facts};
use ringfence::launcher::Launcher;
use ringfence::workspace::kept;
use ringfence::{Capabilities, Guarantee, StateFolder, Strength, Unavailable};
use ringfence_policy::BackendKind;
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::changes::readable;
use crate::terminal::harmless;
use crate::{Done, Fatal, chatter, policy, setup};

#[derive(Debug, thiserror::Error)]
#[error("could not write to standard output")]
struct DoctorFailure(#[source] std::io::Error);

impl Fatal for DoctorFailure {}

const WIDTH: usize = 100;
/// Where the words about a backend begin.
const INDENT: usize = 19;

type Probed = (BackendKind, Result<Capabilities, Unavailable>);

/// Exit code 1 when no backend that the policy permits can be used.
pub(crate) fn doctor(args: &DoctorArgs) -> Done {
    let context = setup::load(&args.layers, Vec::new())?;
    let files = policy::names(&context.loaded.files);
    let state = setup::state().map_err(setup::SetupFailure::from)?;
    let engine = setup::engine(context, Launcher::here())?;
    let (probed, would_use, engines) =
        setup::runtime()?.block_on(async { (engine.probe().await, engine.would_use().await.ok(), engines().await) });
    let facts = facts();
    let text = if args.json {
        format!("{:#}\n", as_json(&facts, &engines, &probed, would_use))
    } else {
        let mut text = String::from("this host\n");
        for fact in &facts {
            text.push_str(&format!("  {:<16} {}\n", fact.name, fact.value));
        }
        text.push_str(&format!("  {:<16} {}\n", "ledger", state.path().display()));
        if let Some(changes) = changes(&state) {
            text.push_str(&format!("  {:<16} {changes}\n", "changes"));
        }
        let files = if files.is_empty() { "built-in defaults only".to_owned() } else { files.join(", ") };
        text.push_str(&format!("  {:<16} {files}\n\ncontainer engines\n", "policy"));
        for engine in &engines {
            text.push_str(&describe_engine(engine));
        }
        text.push_str("\nbackends\n");
        for (kind, result) in &probed {
            text.push_str(&describe(*kind, result));
        }
        text.push('\n');
        text.push_str(&match would_use {
            Some(kind) if kind.isolates() => format!("A run would use `{kind}`.\n"),
            Some(BackendKind::Landlock) => {
                "A run would use `landlock`, a wall with gaps: see what it lacks above.\n".to_owned()
            }
            Some(kind) => {
                format!("A run would use `{kind}`, which is no wall: the program sees your files and network.\n")
            }
            None => format!(
                "No backend that the policy permits can be used here.\n\nfix: {}\n",
                "ringfence run --backend spawn -- COMMAND   (no wall; by your explicit choice)"
            ),
        });
        harmless(&text)
    };
    chatter::data(&text).map_err(DoctorFailure)?;
    Ok(u8::from(would_use.is_none()))
}

/// What kept changes take, when there are any.
fn changes(state: &StateFolder) -> Option<String> {
    let runs = kept::runs(state).ok().filter(|runs| !runs.is_empty())?;
    let bytes = runs.iter().filter_map(|run| kept::of(state, run).size().ok()).sum();
    Some(format!("{} kept, {}; `ringfence changes` lists them", runs.len(), readable(bytes)))
}

fn describe_engine(engine: &EngineReport) -> String {
    let indent = " ".repeat(INDENT);
    match &engine.found {
        Err(unavailable) => {
            let start = format!("  {:<11} no   ", engine.name);
            wrap(&start, &unavailable.reason) + &wrap(&format!("{indent}fix: "), &unavailable.fix)
        }
        Ok(found) => {
            let mut text = format!("  {:<11} yes  {}\n", engine.name, engine.address.as_deref().unwrap_or_default());
            for fact in &found.facts {
                text.push_str(&wrap(&format!("{indent}{:<9}", fact.name), &fact.value));
            }
            for warning in &found.warnings {
                text.push_str(&wrap(&format!("{indent}warning: "), warning));
            }
            text
        }
    }
}

fn describe(kind: BackendKind, result: &Result<Capabilities, Unavailable>) -> String {
    match result {
        Err(unavailable) => {
            let start = format!("  {:<11} no   ", kind.to_string());
            wrap(&start, &unavailable.reason) + &wrap(&format!("{}fix: ", " ".repeat(INDENT)), &unavailable.fix)
        }
        Ok(capabilities) => {
            let names = |strength: Option<Strength>| -> String {
                let names: Vec<&str> = Guarantee::ALL
                    .into_iter()
                    .filter(|guarantee| capabilities.strength(*guarantee) == strength)
                    .map(Guarantee::name)
                    .collect();
                if names.is_empty() { "nothing".to_owned() } else { names.join(" ") }
            };
            let mut text = String::new();
            let rows = [("keeps", Some(Strength::Enforced)), ("watches", Some(Strength::Watched)), ("lacks", None)];
            for (row, (word, strength)) in rows.into_iter().enumerate() {
                let start = if row == 0 { format!("  {:<11} yes  ", kind.to_string()) } else { " ".repeat(INDENT) };
                text.push_str(&wrap(&format!("{start}{word:<9}"), &names(strength)));
            }
            text
        }
    }
}

/// `start` and then the words, in lines of a width that a terminal has; later lines begin below the first word.
fn wrap(start: &str, words: &str) -> String {
    let mut text = start.to_owned();
    let mut width = start.len();
    for (index, word) in words.split(' ').enumerate() {
        if index > 0 && width + 1 + word.len() > WIDTH {
            text.push_str(&format!("\n{}", " ".repeat(start.len())));
            width = start.len();
        } else if index > 0 {
            text.push(' ');
            width += 1;
        }
        text.push_str(word);
        width += word.len();
    }
    text.push('\n');
    text
}

fn as_json(facts: &[Fact], engines: &[EngineReport], probed: &[Probed], would_use: Option<BackendKind>) -> Value {
    let engines: Vec<Value> = engines
        .iter()
        .map(|engine| match &engine.found {
            Ok(found) => {
                let facts: serde_json::Map<String, Value> =
                    found.facts.iter().map(|fact| (fact.name.to_owned(), json!(fact.value))).collect();
                json!({
                    "engine": engine.name, "address": engine.address, "reachable": true, "rootless": found.rootless,
                    "runtimes": found.runtimes, "facts": facts, "warnings": found.warnings,
                })
            }
            Err(unavailable) => json!({
                "engine": engine.name, "address": engine.address, "reachable": false,
                "reason": unavailable.reason, "fix": unavailable.fix,
            }),
        })
        .collect();
    let backends: Vec<Value> = probed
        .iter()
        .map(|(kind, result)| match result {
            Ok(capabilities) => {
                let kept: serde_json::Map<String, Value> = Guarantee::ALL
                    .into_iter()
                    .map(|guarantee| (guarantee.name().to_owned(), json!(capabilities.strength(guarantee))))
                    .collect();
                json!({ "backend": kind, "usable": true, "guarantees": kept })
            }
            Err(unavailable) => {
                json!({ "backend": kind, "usable": false, "reason": unavailable.reason, "fix": unavailable.fix })
            }
        })
        .collect();
    let host: serde_json::Map<String, Value> =
        facts.iter().map(|fact| (fact.name.to_owned(), json!(fact.value))).collect();
    json!({ "host": host, "engines": engines, "backends": backends, "wouldUse": would_use })
}
