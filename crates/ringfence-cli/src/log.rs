//! `ringfence log`.

use std::io;

use ringfence::ledger::{ReadError, records_of, summaries, verify};
use ringfence::state::StateError;

use crate::args::{LogArgs, LogCommand};
use crate::terminal::harmless;
use crate::{Done, Fatal, chatter, setup};

/// What of a run's subject is listed.
const MOST_LETTERS_OF_A_FIELD: usize = 1000;
const MOST_LETTERS: usize = 60;

#[derive(Debug, thiserror::Error)]
enum LogFailure {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("could not read the ledger")]
    Verify(#[source] io::Error),
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
    #[error("could not write a record as JSON")]
    Json(#[from] serde_json::Error),
}

impl Fatal for LogFailure {}

pub(crate) fn log(args: LogArgs) -> Done {
    let (text, code) = match args.command {
        None => (list(args.limit)?, 0),
        Some(LogCommand::Show { run, json }) => (show(&run, json)?, 0),
        Some(LogCommand::Verify) => check()?,
    };
    match chatter::data(&text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(LogFailure::Output(error).into()),
        Ok(()) | Err(_) => Ok(code),
    }
}

fn list(limit: usize) -> Result<String, LogFailure> {
    let runs = summaries(&setup::state()?, limit)?;
    if runs.is_empty() {
        chatter::say("no runs yet");
        return Ok(String::new());
    }
    let mut text = String::new();
    for run in runs {
        let status = match (run.status.as_deref(), run.exit_code) {
            (Some("exited"), Some(code)) => format!("exited {code}"),
            (Some(status), _) => status.to_owned(),
            (None, _) => "not ended".to_owned(),
        };
        // To the second, in UTC.
        let time = run.time.get(..19).map_or_else(|| run.time.clone(), |time| format!("{time}Z"));
        let wall = run.wall_time_ms.map_or_else(String::new, |wall| format!("{wall} ms"));
        let backend = run.backend.as_deref().unwrap_or("-");
        text.push_str(&format!(
            "{}  {time}  {backend:<6}  {status:<16}  {wall:>9}  {}\n",
            run.run,
            one_line(&run.subject, MOST_LETTERS)
        ));
    }
    Ok(text)
}

pub(crate) fn one_line(text: &str, most: usize) -> String {
    let mut short: String = text.chars().take(most).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    harmless(&short).replace('\n', "\\n").replace('\r', "\\r")
}

fn says_nothing(value: &serde_json::Value) -> bool {
    value.is_null() || value.as_str().is_some_and(str::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

fn show(run: &str, json: bool) -> Result<String, LogFailure> {
    let mut text = String::new();
    for record in records_of(&setup::state()?, run)? {
        if json {
            text.push_str(&serde_json::to_string(&record)?);
            text.push('\n');
            continue;
        }
        let kind = serde_json::to_value(record.kind)?;
        text.push_str(&format!("{}  {}  #{}\n", record.time, kind.as_str().unwrap_or("?"), record.seq));
        if let Some(fields) = record.body.as_object() {
            for (name, value) in fields.iter().filter(|(_, value)| !says_nothing(value)) {
                let value = value
                    .as_str()
                    .map_or_else(|| harmless(&value.to_string()), |text| one_line(text, MOST_LETTERS_OF_A_FIELD));
                text.push_str(&format!("    {name:<16} {value}\n"));
            }
        }
    }
    Ok(text)
}

/// Exit code 1 when something is wrong.
fn check() -> Result<(String, u8), LogFailure> {
    let found = verify(&setup::state()?).map_err(LogFailure::Verify)?;
    let mut text = String::new();
    for problem in &found.problems {
        text.push_str(&format!("problem: {problem}\n"));
    }
    text.push_str(&format!("{} records are in order, {} problems\n", found.good, found.problems.len()));
    Ok((text, u8::from(!found.problems.is_empty())))
}
