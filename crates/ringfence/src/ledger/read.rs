//! Reading the ledger back, for people.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use serde::Serialize;

use super::record::{Kind, Record};
use super::{ANCHOR, FILE, MOST_LINE};
use crate::state::StateFolder;

/// Of the anchor: a number and a hash.
const MOST_ANCHOR: u64 = 256;

/// Why the ledger cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file operation failed.
    #[error("could not read the ledger")]
    Io(#[from] io::Error),
    /// No run has such an id.
    #[error("no run begins with `{0}`; `ringfence log` lists the runs")]
    NoSuchRun(String),
    /// More than one has.
    #[error("{count} runs begin with `{prefix}`; write more of the id")]
    Ambiguous {
        /// What was asked for.
        prefix: String,
        /// How many fit.
        count: usize,
    },
}

/// A run in a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// The run.
    pub run: String,
    /// When it was asked for.
    pub time: String,
    /// What was asked for.
    pub subject: String,
    /// The backend, once planned.
    pub backend: Option<String>,
    /// The status, once ended.
    pub status: Option<String>,
    /// The program's exit code.
    pub exit_code: Option<i64>,
    /// How long it ran.
    pub wall_time_ms: Option<u64>,
}

/// The last `most` runs, oldest first.
pub fn summaries(state: &StateFolder, most: usize) -> Result<Vec<RunSummary>, ReadError> {
    let mut runs: Vec<RunSummary> = Vec::new();
    for_each_record(state, |record| {
        let text = |name: &str| record.body.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        if record.kind == Kind::Requested {
            if runs.len() >= most.saturating_mul(2).max(64) {
                runs.drain(..runs.len() - most);
            }
            runs.push(RunSummary {
                run: record.run.clone(),
                time: record.time.clone(),
                subject: text("subject").unwrap_or_default(),
                backend: None,
                status: None,
                exit_code: None,
                wall_time_ms: None,
            });
            return;
        }
        // From the newest back: runs that overlap are close together.
        let Some(run) = runs.iter_mut().rev().find(|run| run.run == record.run) else { return };
        match record.kind {
            Kind::Planned => run.backend = text("backend"),
            Kind::Ended => {
                run.status = text("status");
                run.exit_code = record.body.get("exitCode").and_then(serde_json::Value::as_i64);
                run.wall_time_ms = record.body.pointer("/resourceUsage/wallTimeMs").and_then(serde_json::Value::as_u64);
            }
            Kind::Requested
            | Kind::Judged
            | Kind::Started
            | Kind::Discarded
            | Kind::Applied
            | Kind::Undone
            | Kind::Checkpointed
            | Kind::Restored
            | Kind::Called
            | Kind::Recovered => {}
        }
    })?;
    let surplus = runs.len().saturating_sub(most);
    runs.drain(..surplus);
    Ok(runs)
}

/// All records of the one run whose id begins with `prefix`.
pub fn records_of(state: &StateFolder, prefix: &str) -> Result<Vec<Record>, ReadError> {
    let mut records: Vec<Record> = Vec::new();
    for_each_record(state, |record| {
        if !prefix.is_empty() && record.run.starts_with(prefix) {
            records.push(record);
        }
    })?;
    let mut runs: Vec<&str> = records.iter().map(|record| record.run.as_str()).collect();
    runs.sort_unstable();
    runs.dedup();
    match runs.len() {
        0 => Err(ReadError::NoSuchRun(prefix.chars().take(64).collect())),
        1 => Ok(records),
        count => Err(ReadError::Ambiguous { prefix: prefix.chars().take(64).collect(), count }),
    }
}

/// Calls `act` for each line that is a record. Damage is not reported here: that is what `verify` is for.
fn for_each_record(state: &StateFolder, mut act: impl FnMut(Record)) -> io::Result<()> {
    let file = match File::open(state.path().join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    while next_line(&mut reader, &mut line)? {
        if let Ok(record) = serde_json::from_slice(&line) {
            act(record);
        }
    }
    Ok(())
}

/// Reads the next line without its break; says whether there was one. A line over the cap is cut, and so no record.
pub(super) fn next_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    if reader.by_ref().take(MOST_LINE as u64).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
    } else {
        skip_rest_of_line(reader)?;
    }
    Ok(true)
}

fn skip_rest_of_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(());
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(buffer.len(), |at| at + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(());
        }
    }
}

/// Where the chain ends, as the anchor has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Head {
    /// How many records there are.
    pub records: u64,
    /// The hash of the last one.
    pub hash: String,
}

/// The end of the chain; nothing when there is no anchor, or none that can be read. [`super::verify()`] says why.
pub fn head(state: &StateFolder) -> Option<Head> {
    let mut text = String::new();
    File::open(state.path().join(ANCHOR)).ok()?.take(MOST_ANCHOR).read_to_string(&mut text).ok()?;
    let (records, hash) = text.trim_end().split_once(' ')?;
    Some(Head { records: records.parse().ok()?, hash: hash.to_owned() })
}
