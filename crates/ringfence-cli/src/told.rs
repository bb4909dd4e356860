//! What is said about changes that were applied or taken back, for people and as JSON.

use std::error::Error;
use std::path::Path;

use base64::Engine as _;
use ringfence::RunId;
use ringfence::workspace::apply::{Applied, Expected, Left, Proposal, Site, Step, Why};
use ringfence::workspace::beneath::{FoundKind, Held};
use ringfence::workspace::change::OtherKind;
use ringfence::workspace::compare::{self, Exact};
use ringfence::workspace::{Node, Objects, Place};
use serde_json::{Value, json};

use crate::chatter;
use crate::terminal::harmless;

/// Something that was done, or would be.
#[derive(Debug)]
pub(crate) struct Told {
    act: &'static str,
    dry_run: bool,
    run: String,
    undo: Option<String>,
    changed: Vec<(String, Value)>,
    same: Vec<Value>,
    left: Vec<(String, Value)>,
}

/// A path on one line, as it can be typed, or quoted with everything odd escaped.
pub(crate) fn shown(path: &Path) -> String {
    let quoted = format!("{path:?}");
    let plain = path.to_str().filter(|text| quoted == format!("\"{text}\"") && text.trim() == *text);
    plain.map_or(quoted.clone(), str::to_owned)
}

/// A reason may quote what a program wrote, such as where a link points: it must not begin a line of its own.
fn one_line(text: &str) -> String {
    let escape = |letter: char| match letter.is_control() {
        true => letter.escape_default().to_string(),
        false => letter.to_string(),
    };
    text.chars().map(escape).collect()
}

/// How many changes.
pub(crate) fn count(changes: usize) -> String {
    if changes == 1 { "1 change".to_owned() } else { format!("{changes} changes") }
}

fn place_json(place: &Place) -> Value {
    let path = place.as_path();
    match path.to_str() {
        Some(text) => json!({ "path": text }),
        None => {
            let bytes = base64::engine::general_purpose::STANDARD.encode(path.as_os_str().as_encoded_bytes());
            json!({ "path": path.to_string_lossy(), "pathBase64": bytes })
        }
    }
}

/// What a step does.
pub(crate) fn verb(step: &Step) -> &'static str {
    match (&step.expected, &step.to, &step.merged) {
        (_, None, _) => "remove",
        (Expected::Nothing, Some(_), _) => "add",
        (_, Some(_), Some(_)) => "merge",
        (_, Some(_), None) => "change",
    }
}

/// Why something was left, and what to do about it.
fn reason(why: &Why, act: &str) -> (&'static str, String, String) {
    match why {
        Why::Conflict(conflict) => ("conflict", conflict.to_string(), conflict.advice().to_owned()),
        Why::Flagged(reasons) => {
            ("flagged", reasons.join("; "), "look at it, then apply it with --include-flagged".to_owned())
        }
        Why::Denied(rule) => (
            "denied",
            format!("the policy denies it by `{rule}`"),
            "it is never applied; copy it by hand if it must be".to_owned(),
        ),
        Why::NotCarried(kind) => {
            let what = match kind {
                OtherKind::Pipe => "a pipe",
                OtherKind::Socket => "a socket",
                OtherKind::Device => "a device",
            };
            let reason = format!("it is {what}, which is never carried over");
            ("notCarried", reason, "nothing needs to be done".to_owned())
        }
        Why::Failed(error) => {
            let mut text = format!("it could not be changed: {error}");
            let mut cause = error.source();
            while let Some(error) = cause {
                text.push_str(&format!(": {error}"));
                cause = error.source();
            }
            ("failed", text, format!("put that right, then {act} again"))
        }
    }
}

fn left_told(left: &Left, act: &str) -> (String, Value) {
    let (kind, reason, advice) = reason(&left.why, act);
    let text = format!("left    {}: {}\n        {advice}\n", shown(left.place.as_path()), one_line(&reason));
    let mut value = place_json(&left.place);
    value["why"] = json!(kind);
    value["reason"] = json!(reason);
    value["advice"] = json!(advice);
    (text, value)
}

impl Told {
    /// What would be done.
    pub(crate) fn proposed(act: &'static str, run: &RunId, proposal: &Proposal) -> Self {
        let changed = proposal.steps.iter().map(|step| {
            let mut value = place_json(&step.place);
            value["act"] = json!(verb(step));
            let mode = mode_change(step).map(|modes| format!("  ({modes})")).unwrap_or_default();
            (format!("{:<7} {}{mode}\n", verb(step), shown(step.place.as_path())), value)
        });
        Self {
            act,
            dry_run: true,
            run: run.to_string(),
            undo: None,
            changed: changed.collect(),
            same: proposal.same.iter().map(place_json).collect(),
            left: proposal.left.iter().map(|left| left_told(left, act)).collect(),
        }
    }

    /// What was done.
    pub(crate) fn done(act: &'static str, run: &RunId, applied: &Applied) -> Self {
        let changed = applied.done.iter().map(|place| {
            let line = format!("{:<7} {}\n", "done", shown(place.as_path()));
            (line, place_json(place))
        });
        Self {
            act,
            dry_run: false,
            run: run.to_string(),
            undo: applied.undo.as_ref().map(ToString::to_string),
            changed: changed.collect(),
            same: applied.same.iter().map(place_json).collect(),
            left: applied.left.iter().map(|left| left_told(left, act)).collect(),
        }
    }

    /// Whether nothing was left.
    pub(crate) fn is_whole(&self) -> bool {
        self.left.is_empty()
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text: String = self.changed.iter().chain(&self.left).map(|(line, _)| line.as_str()).collect();
        let done = match (self.act, self.dry_run) {
            ("undo", false) => "taken back",
            ("undo", true) => "to take back",
            (_, false) => "applied",
            (_, true) => "to apply",
        };
        text.push_str(&format!("{} {done}", self.changed.len()));
        if !self.same.is_empty() {
            text.push_str(&format!(", {} on the host already", self.same.len()));
        }
        text.push_str(&format!(", {} left\n", self.left.len()));
        harmless(&text)
    }

    /// For programs.
    pub(crate) fn json(&self) -> String {
        let values = |rows: &[(String, Value)]| rows.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>();
        let value = json!({
            "act": self.act,
            "dryRun": self.dry_run,
            "run": &self.run,
            "undo": &self.undo,
            "changed": values(&self.changed),
            "same": &self.same,
            "left": values(&self.left),
        });
        format!("{value}\n")
    }
}

/// Permissions that would change, of a file that stays one.
fn mode_change(step: &Step) -> Option<String> {
    let Expected::This(found) = &step.expected else { return None };
    let mode = match step.to.as_ref()? {
        Exact { node: Node::File { mode, .. } | Node::Folder { mode }, .. } => *mode,
        Exact { node: Node::Link { .. } | Node::Other(_), .. } => return None,
    };
    let stays = matches!(found.kind, FoundKind::File | FoundKind::Folder) && mode != found.mode;
    stays.then(|| format!("permissions {:o} to {mode:o}", found.mode))
}

/// Shows what a step would change, line by line.
pub(crate) fn difference(step: &Step, host: &Held, kept: &Objects) {
    let text = match compare::difference(step, host, kept) {
        Ok(Some(text)) => text,
        Ok(None) => "this is no text that could be shown\n".to_owned(),
        Err(error) => format!("could not read it: {error}\n"),
    };
    // No colours either: a file could forge a line that way.
    chatter::say_raw(&harmless(&text.replace('\x1b', "\\x1b").replace('\r', "\\r")));
}

/// Says what an interrupted apply could not put back.
pub(crate) fn stranded(site: &Site) {
    for path in site.stranded() {
        chatter::say(&format!(
            "warning: somebody wrote a file while an apply was interrupted; what they wrote is in {}",
            shown(path)
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn r12_a_reason_cannot_begin_a_line_of_its_own() {
        let why = Why::Flagged(vec!["-> x\ndone    everything\r\x1b[31m\u{202e}".to_owned()]);
        let left = Left { place: Place::new("a").unwrap(), why };
        let told = Told {
            act: "apply",
            dry_run: false,
            run: String::new(),
            undo: None,
            changed: Vec::new(),
            same: Vec::new(),
            left: vec![left_told(&left, "apply")],
        };
        let text = told.text();
        assert!(text.starts_with("left    a: -> x\\ndone    everything\\r\\u{1b}[31m\\u{202e}\n"), "{text:?}");
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn r12_a_path_that_would_act_on_a_terminal_or_break_its_line_is_quoted() {
        assert_eq!(shown(Path::new("src/ünï code.rs")), "src/ünï code.rs");
        for odd in [&b"a\nb"[..], b"\x1b[2J", b"\xff", b"\"", b" x", "a\u{202e}b".as_bytes(), b"a\\b"] {
            let text = shown(Path::new(OsStr::from_bytes(odd)));
            assert!(text.starts_with('"') && text.ends_with('"'), "{text}");
            assert!(!text.chars().any(|letter| letter.is_control() || letter == '\u{202e}'), "{text:?}");
        }
    }
}
