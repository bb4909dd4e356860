//! What becomes of calls is written down.

use ringfence::ledger::{Durability, Entry, Kind};
use ringfence::{Ledger, Refusal, RunId, StateFolder, redact};
use ringfence_hook::{Agent, Answer, Call, NotJudged, Returned, shown};
use serde_json::{Map, Value, json};

/// Of the arguments in a record.
const MOST_SUBJECT: usize = 300;
/// What says best what a call was about.
const TELLING: [&str; 12] = [
    "command",
    "cmd",
    "file_path",
    "path",
    "notebook_path",
    "absolute_path",
    "dir_path",
    "url",
    "query",
    "pattern",
    "prompt",
    "description",
];

pub(super) fn after(agent: Agent, state: &StateFolder, returned: &Returned) -> Result<(), NotJudged> {
    let event = json!({ "event": returned.event });
    write(agent, state, returned.session.as_deref(), &returned.name, &returned.input, event)
}

/// Refusals and questions are written down at once. What is let through tells of itself: a run in its own records, the rest when it ends.
pub(super) fn before(agent: Agent, state: &StateFolder, call: &Call, answer: &Answer) -> Result<(), NotJudged> {
    let (verdict, refusal): (&str, &Refusal) = match answer {
        Answer::Free | Answer::Changed(_) => return Ok(()),
        Answer::Ask(refusal, _) => ("ask", refusal),
        Answer::Deny(refusal) => ("deny", refusal),
    };
    let judged =
        json!({ "event": call.event, "verdict": verdict, "rule": refusal.rule, "reason": redact(&refusal.reason) });
    write(agent, state, call.session.as_deref(), &call.name, &call.input, judged)
}

fn write(
    agent: Agent,
    state: &StateFolder,
    session: Option<&str>,
    tool: &str,
    input: &Map<String, Value>,
    mut body: Value,
) -> Result<(), NotJudged> {
    let failed = |error: &dyn std::error::Error| NotJudged::because(format!("it could not be written down: {error}"));
    let subject = TELLING.iter().find_map(|key| match input.get(*key)? {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => Some(words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")),
        _ => None,
    });
    // Shortened last: a token that is cut in two is not known for one.
    let subject: String = redact(&subject.unwrap_or_default()).chars().take(MOST_SUBJECT).collect();
    body["door"] = json!(format!("hook {}", agent.name()));
    body["tool"] = json!(shown(tool));
    body["subject"] = json!(subject);
    body["session"] = json!(session.map(shown));
    let run = RunId::generate().map_err(|error| failed(&error))?.to_string();
    let entry = Entry { kind: Kind::Called, run, body };
    let ledger = Ledger::open(state).map_err(|error| failed(&error))?;
    ledger.append(&[entry], Durability::Written).map_err(|error| failed(&error))
}
