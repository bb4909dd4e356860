//! `ringfence checkpoint`: the workspace of a session as it was, and going back to it.

use std::io;

use ringfence::checkpoint::{Checkpoint, Compared, LeftBehind, Restored};
use ringfence::outcome::{Failure, Status};
use ringfence::workspace::{Counts, Objects};
use serde::de::DeserializeOwned;

use super::wire::{Call, CheckpointCall};
use super::{SessionFailure, SessionName, client};
use crate::args::{CheckpointCommand, CheckpointDiffArgs};
use crate::log::one_line;
use crate::{Done, chatter, diff};

/// Of what was run, in the list.
const MOST_LETTERS: usize = 60;

pub(crate) fn checkpoint(command: CheckpointCommand) -> Done {
    match command {
        CheckpointCommand::Create { session, name, json } => {
            let made: Checkpoint = ask(&session, CheckpointCall::Create { name })?;
            if made.while_programs_ran && !json {
                chatter::say("programs ran meanwhile: what they wrote at that moment may be in it in part");
            }
            print(&if json { as_json(&made) } else { format!("{}\n", made.number) })
        }
        CheckpointCommand::List { session, json } => {
            let all: Vec<Checkpoint> = ask(&session, CheckpointCall::List)?;
            if all.is_empty() && !json {
                chatter::say(&format!("no checkpoint yet; `ringfence checkpoint create {session}` makes one"));
                return Ok(0);
            }
            print(&if json { as_json(&all) } else { all.iter().map(describe).collect() })
        }
        CheckpointCommand::Diff(args) => compare(&args),
        CheckpointCommand::Restore { session, checkpoint, kill, json } => {
            let behind = if kill { LeftBehind::Killed } else { LeftBehind::Kept };
            let restored: Restored = ask(&session, CheckpointCall::Restore { to: checkpoint, behind })?;
            if json { print(&as_json(&restored)) } else { Ok(tell(&restored)) }
        }
        CheckpointCommand::Drop { session, checkpoints, all } => {
            let which = if all { None } else { Some(checkpoints) };
            let dropped: usize = ask(&session, CheckpointCall::Drop { which })?;
            chatter::say(&match dropped {
                1 => "1 checkpoint dropped".to_owned(),
                dropped => format!("{dropped} checkpoints dropped"),
            });
            Ok(0)
        }
    }
}

/// What the session's keeper says to a call.
fn ask<T: DeserializeOwned>(session: &SessionName, call: CheckpointCall) -> Result<T, SessionFailure> {
    let answer =
        client::ask(session, &Call::Checkpoint(call))?.ok_or_else(|| SessionFailure::Ended(session.clone()))?;
    let meaningless = |error: postcard::Error| SessionFailure::Talk {
        name: session.clone(),
        source: io::Error::new(io::ErrorKind::InvalidData, error),
    };
    let told: Result<T, Failure> = postcard::from_bytes(&answer).map_err(meaningless)?;
    told.map_err(SessionFailure::Told)
}

fn print(text: &str) -> Done {
    match chatter::data(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(SessionFailure::Output(error).into()),
        Ok(()) | Err(_) => Ok(0),
    }
}

fn as_json<T: serde::Serialize>(value: &T) -> String {
    format!("{:#}\n", serde_json::json!(value))
}

fn signs(counts: Counts) -> String {
    format!("+{} ~{} -{}", counts.added, counts.changed, counts.removed)
}

/// A line for the checkpoint, and one for each run since the one before.
fn describe(one: &Checkpoint) -> String {
    let time = one.made_at.get(..19).map_or_else(|| one.made_at.clone(), |time| format!("{time}Z"));
    let name = one.name.as_deref().map_or_else(String::new, |name| one_line(name, usize::MAX));
    let line = format!("{:<4} {time}  {:<14} {name}", one.number, signs(one.changes));
    let mut text = format!("{}\n", line.trim_end());
    if one.runs_left_out > 0 {
        text.push_str(&format!("       {} more runs\n", one.runs_left_out));
    }
    for run in &one.runs {
        let end = match (run.status, run.exit_code) {
            (Status::Exited, Some(code)) => format!("exit {code}"),
            (status, _) => serde_json::to_value(status)
                .ok()
                .and_then(|word| word.as_str().map(str::to_owned))
                .unwrap_or_else(|| "ended".to_owned()),
        };
        text.push_str(&format!("       {}  {end:<9} {}\n", run.run, one_line(&run.subject, MOST_LETTERS)));
    }
    text
}

fn tell(restored: &Restored) -> u8 {
    let what = match restored.number {
        0 => "the host has it".to_owned(),
        number => format!("in checkpoint {number}"),
    };
    chatter::say(&match &restored.before {
        None => format!("the workspace is as {what} already"),
        Some(before) => format!(
            "the workspace is as {what} ({}); what was there is checkpoint {}",
            signs(restored.changes),
            before.number
        ),
    });
    0
}

fn compare(args: &CheckpointDiffArgs) -> Done {
    let call = CheckpointCall::Compare { from: args.from.clone(), to: args.to.clone() };
    let compared: Compared = ask(&args.session, call)?;
    let shown = diff::DiffArgs {
        run: String::new(),
        paths: args.paths.clone(),
        stat: args.stat,
        name_only: args.name_only,
        json: args.json,
        color: args.color,
    };
    diff::show_set(&compared.set, &Objects::at(compared.objects), &shown)
}
