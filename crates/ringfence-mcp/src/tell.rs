//! Outcomes in words for a model, and as JSON that is not too long for one.

use ringfence::{Outcome, Status};
use serde_json::{Value, json};

/// Of each stream, in the text and in the JSON.
const MOST_STREAM: usize = 16 * 1024;
/// Of the lists in an outcome.
const MOST_LISTED: usize = 20;

/// The first and the last part of a text that is too long, and how much is missing between them.
pub(crate) fn head_and_tail(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let half = most / 2;
    let head = text.get(..floor(text, half)).unwrap_or_default();
    let tail = text.get(ceil(text, text.len() - half)..).unwrap_or_default();
    format!("{head}\n[… {} bytes left out …]\n{tail}", text.len() - head.len() - tail.len())
}

fn floor(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn ceil(text: &str, mut at: usize) -> usize {
    while !text.is_char_boundary(at) {
        at += 1;
    }
    at
}

/// Whether the program did what it should.
pub(crate) fn is_well(outcome: &Outcome) -> bool {
    outcome.status == Status::Exited && outcome.exit_code == Some(0) && outcome.error.is_none()
}

/// How it ended, in a sentence.
fn ending(outcome: &Outcome) -> String {
    let time = format!("{} ms", outcome.resource_usage.wall_time_ms);
    match outcome.status {
        Status::Exited => match outcome.exit_code {
            Some(0) => format!("Exited with code 0 after {time}."),
            Some(code) => format!("Failed with exit code {code} after {time}."),
            None => format!("Exited after {time}."),
        },
        Status::Signalled => format!("Ended by signal {} after {time}.", outcome.signal.unwrap_or(0)),
        Status::TimedOut => format!("Stopped at its time limit, after {time}."),
        Status::OutOfMemory => format!("Stopped at its memory limit, after {time}."),
        Status::TooManyProcesses => format!("Stopped at its limit of processes, after {time}."),
        Status::Cancelled => "Cancelled.".to_owned(),
        Status::Refused => "Refused: nothing was run.".to_owned(),
        Status::CouldNotRun => "Could not be run.".to_owned(),
    }
}

/// An outcome for a model: what happened, what came out, what to do.
pub(crate) fn text(outcome: &Outcome) -> String {
    let mut text = happened(outcome);
    for (name, stream) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
        if !stream.is_empty() {
            text.push_str(&format!("\n{name}:\n{}", head_and_tail(stream.trim_end_matches('\n'), MOST_STREAM)));
        }
    }
    text.push_str(&to_do(outcome));
    text
}

/// Likewise, without what came out: some clients show a model the JSON alone, which has that already.
fn summary(outcome: &Outcome) -> String {
    happened(outcome) + &to_do(outcome)
}

fn happened(outcome: &Outcome) -> String {
    let mut text = ending(outcome);
    if let Some(refusal) = &outcome.refusal {
        text.push_str(&format!("\n{}\nrule: {}", refusal.subject, refusal.rule));
        if let Some(place) = &refusal.place {
            text.push_str(&format!(" ({})", last_name(&place.to_string())));
        }
        text.push_str(&format!("\nreason: {}", refusal.reason));
    }
    if let Some(error) = &outcome.error {
        text.push_str(&format!("\n{}", error.chain.join(": ")));
        if let Some(hint) = &error.hint {
            text.push_str(&format!("\nhint: {hint}"));
        }
    }
    let ran = !matches!(outcome.status, Status::Refused | Status::CouldNotRun);
    if ran && outcome.stdout.is_empty() && outcome.stderr.is_empty() {
        text.push_str("\nNo output.");
    }
    text
}

fn to_do(outcome: &Outcome) -> String {
    let mut text = String::new();
    for violation in outcome.violations.iter().take(MOST_LISTED) {
        text.push_str(&format!("\nviolation: {} ({})", violation.message, violation.rule));
    }
    if let Some(counts) = &outcome.changes {
        text.push_str(&format!(
            "\nChanged the workspace: {} added, {} changed, {} removed.",
            counts.added, counts.changed, counts.removed
        ));
        text.push_str(&match &outcome.applied {
            Some(applied) => format!(" {} applied to the host's files, {} held back.", applied.applied, applied.left),
            None => format!(
                " The host's files are as they were: changes_diff shows it, changes_apply asks a person to apply it \
                 (runId {}).",
                outcome.run_id
            ),
        });
    }
    if let Some(advice) = advice(outcome) {
        text.push_str(&format!("\n{advice}"));
    }
    if !is_well(outcome) {
        text.push_str(if outcome.retryable {
            "\nTry again: yes, after you changed the request."
        } else if outcome.status == Status::Exited {
            "\nTry again: only after you changed what made the program fail."
        } else {
            "\nTry again: no, the same request ends the same way."
        });
    }
    text
}

/// A file of the policy without its folders: where the host keeps it is nothing for a model.
fn last_name(place: &str) -> &str {
    place.rsplit('/').next().unwrap_or(place)
}

fn advice(outcome: &Outcome) -> Option<String> {
    let refusal = outcome.refusal.as_ref().map(|refusal| refusal.advice.as_str());
    let advice = outcome.advice.as_deref().or(refusal).filter(|advice| !advice.is_empty())?;
    Some(format!("instead: {advice}"))
}

/// An outcome as `ringfence run --json` has it, without what is long and of no use to a caller: the whole policy, the evidence, the names of
/// variables that were withheld, and whatever is not there. A model may have to read all of it.
pub(crate) fn json(outcome: &Outcome) -> Value {
    let mut value = serde_json::to_value(outcome).unwrap_or_else(|_| json!({}));
    let Some(object) = value.as_object_mut() else { return value };
    for name in ["effectivePolicy", "enforced", "envWithheld", "stdoutBase64", "stderrBase64"] {
        object.remove(name);
    }
    let mut shortened = false;
    for (name, stream) in [("stdout", &outcome.stdout), ("stderr", &outcome.stderr)] {
        shortened |= stream.len() > MOST_STREAM;
        object.insert(name.to_owned(), head_and_tail(stream, MOST_STREAM).into());
    }
    object.insert("outputTruncated".to_owned(), (outcome.output_truncated || shortened).into());
    object.insert("summary".to_owned(), summary(outcome).into());
    if let Some(Value::String(file)) = object.get_mut("refusal").and_then(|refusal| refusal.pointer_mut("/place/file"))
    {
        *file = last_name(file).to_owned();
    }
    for name in ["network", "violations", "findings"] {
        if let Some(Value::Array(list)) = object.get_mut(name) {
            list.truncate(MOST_LISTED);
        }
    }
    object.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
    value
}

/// What shows whether a call brought something new: everything but times and ids.
pub(crate) fn mark(outcome: &Outcome) -> Vec<u8> {
    let Outcome { status, exit_code, signal, stdout, stderr, refusal, error, changes, .. } = outcome;
    json!([status, exit_code, signal, stdout, stderr, refusal, error, changes]).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_long_text_keeps_its_head_and_its_tail() {
        assert_eq!(head_and_tail("short", 10), "short");
        let long = format!("first {} last", "ä".repeat(1000));
        let kept = head_and_tail(&long, 100);
        assert!(kept.starts_with("first ") && kept.ends_with(" last") && kept.contains("bytes left out"), "{kept}");
    }

    proptest! {
        #[test]
        fn what_is_kept_is_bounded_whatever_the_letters_are(text in "\\PC{0,300}", most in 0usize..200) {
            let kept = head_and_tail(&text, most);
            prop_assert!(kept.len() <= text.len().min(most) + 64);
        }
    }
}
