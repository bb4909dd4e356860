//! The end of a run, as it is told to whoever started it.

use std::io;

use ringfence::event::Violation;
use ringfence::run_id::RunId;
use ringfence::workspace::{AtOnce, Counts};
use ringfence::{Outcome, Status};

use crate::args::OutputArgs;
use crate::run::RunFailure;
use crate::terminal::plain_line;
use crate::{chatter, render};

/// What is said of changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    /// Whatever became of them.
    All,
    /// Only what was left.
    WhatWasLeft,
}

/// The end of a run for a person or, with `--json`, for a program.
pub(crate) fn finish(outcome: &Outcome, args: OutputArgs, spoken: Spoken) -> Result<(), RunFailure> {
    if args.json {
        let mut text = serde_json::to_string_pretty(outcome)?;
        text.push('\n');
        match chatter::data(&text) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(RunFailure::Output(error)),
            Ok(()) | Err(_) => {}
        }
        return Ok(());
    }
    if let Some(refused) = &outcome.refusal {
        chatter::say_raw(&render::refusal(refused));
    }
    if let Some(error) = &outcome.error {
        chatter::say_raw(&render::failure(error));
    }
    // Also for who wants to hear only what went wrong: a secret may have been read.
    for violation in outcome.violations.iter().filter(|violation| is_of_later_files(violation)) {
        chatter::say(&describe_later(violation));
    }
    if !args.quiet {
        if outcome.output_truncated {
            chatter::say("some output was left out; the policy's proc.output is the cap");
        }
        let all_applied = outcome.applied.as_ref().is_some_and(|applied| applied.left == 0);
        if let Some(counts) = outcome.changes
            && !(spoken == Spoken::WhatWasLeft && all_applied)
        {
            chatter::say(&describe_changes(counts, outcome.applied.as_ref(), &outcome.run_id));
        }
        for violation in outcome.violations.iter().filter(|violation| violation.rule == "fs.size") {
            chatter::say(&describe_full(&violation.message));
        }
        if let Some(denied) = describe_denied(outcome) {
            chatter::say(&denied);
        }
        if let [first, ..] = outcome.unreachable.as_slice() {
            let hosts = outcome.unreachable.join(", ");
            chatter::say(&format!(
                "there is no network inside, so {hosts} cannot be reached; `ringfence explain {first}` says what would allow it"
            ));
        }
        match outcome.status {
            Status::TimedOut | Status::OutOfMemory | Status::TooManyProcesses => {
                let rules: Vec<String> = outcome
                    .violations
                    .iter()
                    .filter(|violation| !is_of_later_files(violation))
                    .map(|violation| format!("{} ({})", violation.message, violation.rule))
                    .collect();
                chatter::say(&format!("stopped: {}", rules.join("; ")));
                if let Some(advice) = &outcome.advice {
                    chatter::say(advice);
                }
            }
            Status::Exited | Status::Signalled | Status::Cancelled | Status::Refused | Status::CouldNotRun => {}
        }
    }
    Ok(())
}

/// The hosts that a program did not get to, and how it would.
fn describe_denied(outcome: &Outcome) -> Option<String> {
    const SHOWN: usize = 5;
    let mut hosts: Vec<String> = Vec::new();
    for contact in outcome.network.iter().filter(|contact| !contact.allowed) {
        let reason = contact.reason.as_deref().unwrap_or_default();
        // A name that was only looked up has no port.
        let port = if contact.port == 0 { String::new() } else { format!(":{}", contact.port) };
        let host = format!("{}{port} ({reason})", contact.host);
        if !hosts.contains(&host) {
            hosts.push(host);
        }
    }
    let more = hosts.len().saturating_sub(SHOWN);
    hosts.truncate(SHOWN);
    if more > 0 {
        hosts.push(format!("and {more} more"));
    }
    let what = hosts.join(", ");
    (!what.is_empty()).then(|| {
        let id = &outcome.run_id;
        format!("the network was denied: {what}; `ringfence learn {id}` proposes what to write to allow it")
    })
}

/// What was changed, where it is, and what to do with it.
pub(crate) fn describe_changes(counts: Counts, applied: Option<&AtOnce>, id: &RunId) -> String {
    let parts = [(counts.added, "added"), (counts.changed, "changed"), (counts.removed, "removed")];
    let parts: Vec<String> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    let changes = if counts.total() == 1 { "change" } else { "changes" };
    let changed = format!("{} {changes} ({})", counts.total(), parts.join(", "));
    let Some(applied) = applied else {
        return format!("{changed}; look at them with: ringfence diff {id}, and apply them with: ringfence apply {id}");
    };
    let mut text = match (applied.applied, applied.left) {
        (_, 0) => format!("{changed}, applied; take them back with: ringfence undo"),
        (0, left) => format!("{changed}, none of them applied, because of {left}:"),
        (done, left) => format!("{changed}, {done} of them applied; {left} held back:"),
    };
    for named in &applied.named {
        text.push_str(&format!("\n  {}: {}", plain_line(named.path.as_bytes()), plain_line(named.reason.as_bytes())));
    }
    if applied.left > applied.named.len() {
        text.push_str(&format!("\n  and {} more", applied.left - applied.named.len()));
    }
    if applied.left > 0 {
        text.push_str(&format!(
            "\nlook at them with: ringfence diff {id}, and apply what may be with: ringfence apply {id} --include-flagged"
        ));
    }
    text
}

/// Whether it is about denied files that came after the start.
fn is_of_later_files(violation: &Violation) -> bool {
    violation.rule.starts_with("fs.deny.")
}

/// What came after the start that is denied, or that it is not known.
pub(crate) fn describe_later(violation: &Violation) -> String {
    format!("{} ({})", plain_line(violation.message.as_bytes()), violation.rule)
}

/// That there was no room, and how to get more.
pub(crate) fn describe_full(message: &str) -> String {
    format!("{message} (fs.size); to permit more, raise `fs: {{ size: … }}` in the policy")
}
