//! Commands: judged as a run would be, and then made one, behind the wall and by our own binary.

use std::path::Path;
use std::time::Duration;

use ringfence::analysis::surroundings;
use ringfence::explain::request::{Foreseen, foresee};
use ringfence::request::{MOST_SHELL_BYTES, WorkspaceAt};
use ringfence::{Refusal, Request, Work};
use ringfence_policy::{BackendChoice, BackendKind, TimeSpan, Verdict};
use serde_json::{Value, json};

use crate::NotJudged;
use crate::call::{Answer, Asks, Call, Form, Rewrites, Runs, Shell};
use crate::files::shown;
use crate::judge::{Judge, Wall};
use crate::wrapper::{Parts, Wrapper};

/// Findings that are told.
const MOST_TOLD: usize = 5;

pub(crate) fn judge(judge: &Judge, call: &Call, wanted: &Shell) -> Result<Answer, NotJudged> {
    let wrapper = Wrapper::new(&judge.ground)?;
    let parts = wrapper.unwrap(&wanted.line).unwrap_or_else(|| Parts {
        line: wanted.line.clone(),
        folder: None,
        milliseconds: wanted.milliseconds,
    });
    let folder = match (&parts.folder, &wanted.folder) {
        (Some(folder), _) => folder.clone(),
        (None, Some(folder)) => judge.folder(call).join(folder),
        (None, None) => judge.folder(call),
    };
    if let Some(refusal) = unfit(&parts.line) {
        return Ok(Answer::Deny(refusal));
    }
    let below =
        match folder.canonicalize().map(|folder| folder.strip_prefix(&judge.ground.workspace).map(Path::to_owned)) {
            Ok(Ok(below)) => below,
            Ok(Err(_)) | Err(_) => return Ok(Answer::Deny(elsewhere(judge, &folder))),
        };
    let foreseen = judge_line(judge, &parts.line, &below);
    let approved: Vec<String> = match foreseen.verdict {
        Verdict::Allow => Vec::new(),
        Verdict::Deny => return Ok(Answer::Deny(objection(judge, &foreseen, Verdict::Deny))),
        Verdict::Ask if call.asks == Asks::Nobody => {
            let refusal = objection(judge, &foreseen, Verdict::Ask);
            return Ok(Answer::Deny(Refusal {
                reason: format!("{}, and nobody is asked here", refusal.reason),
                ..refusal
            }));
        }
        Verdict::Ask => {
            let asking = foreseen.findings.iter().filter(|finding| finding.verdict == Verdict::Ask);
            let mut rules: Vec<String> = asking.map(|finding| finding.rule.clone()).collect();
            rules.sort();
            rules.dedup();
            rules
        }
    };
    let time = time(judge, parts.milliseconds, wanted.runs);
    let line = wrapper.wrap(&parts.line, &below, time, &approved);
    if line.len() > MOST_SHELL_BYTES {
        return Ok(Answer::Deny(too_long()));
    }
    let open = no_wall(judge);
    if let (Some(refusal), Asks::Nobody) = (&open, call.asks) {
        return Ok(Answer::Deny(refusal.clone()));
    }
    if line == wanted.line {
        return Ok(open.map_or(Answer::Free, |refusal| Answer::Ask(refusal, None)));
    }
    if call.rewrites == Rewrites::No {
        return Ok(Answer::Deny(not_behind_the_wall(&line)));
    }
    let mut input = call.input.clone();
    let written = match wanted.form {
        Form::Line => Value::String(line),
        Form::Words => json!(["/bin/sh", "-c", line]),
    };
    input.insert(wanted.key.to_owned(), written);
    Ok(match (approved.is_empty(), open) {
        (true, None) => Answer::Changed(input),
        (true, Some(refusal)) => Answer::Ask(refusal, Some(input)),
        (false, _) => Answer::Ask(objection(judge, &foreseen, Verdict::Ask), Some(input)),
    })
}

/// Why a person decides where the policy's wall keeps no files from a program. Whoever wrote such a wall into the hook's own arguments has
/// decided; a policy comes with a project.
fn no_wall(judge: &Judge) -> Option<Refusal> {
    let is_open = |kind: BackendKind| match kind {
        BackendKind::Spawn | BackendKind::None => true,
        BackendKind::Native
        | BackendKind::Docker
        | BackendKind::Podman
        | BackendKind::Microvm
        | BackendKind::Kubernetes
        | BackendKind::Landlock => false,
    };
    let backend = &judge.ground.loaded.policy.backend;
    let origin = match backend.choice.value {
        BackendChoice::Kind(kind) if is_open(kind) => &backend.choice.origin,
        BackendChoice::Kind(_) | BackendChoice::Auto => {
            &backend.fallback.iter().find(|fallback| is_open(fallback.value))?.origin
        }
    };
    if judge.ground.wall == Wall::ByHook {
        return None;
    }
    Some(
        Refusal::new(
            "hook.no-wall",
            "the command would run without a wall",
            "the policy's backend keeps no file of this machine from it",
        )
        .at(origin)
        .hint("A person can take `backend` out of the policy, or write `--backend` into the hook's own command.")
        .instead("Tell the person. Do not run it by another way."),
    )
}

/// What a run of the line would be told, without one.
fn judge_line(judge: &Judge, line: &str, below: &Path) -> Foreseen {
    let work = Work::Shell(line.to_owned());
    let mut request = Request::new(work.clone());
    request.workspace_at = WorkspaceAt::Same;
    request.cwd = below.to_owned();
    let around = surroundings(&request, &judge.ground.workspace, judge.ground.home.as_deref());
    foresee(&work, &judge.ground.loaded.policy, &around, &judge.ground.workspace)
}

/// The findings of one verdict as one refusal.
fn objection(judge: &Judge, foreseen: &Foreseen, verdict: Verdict) -> Refusal {
    let level = &judge.ground.loaded.policy.validate.level;
    let told: Vec<_> = foreseen.findings.iter().filter(|finding| finding.verdict == verdict).collect();
    let reasons: Vec<String> =
        told.iter().take(MOST_TOLD).map(|finding| format!("{}: {}", finding.subject, finding.reason)).collect();
    let more = told.len().saturating_sub(MOST_TOLD);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let (rule, reason, instead) = match told.first() {
        Some(first) => (first.rule.as_str(), format!("{}{more}", reasons.join("; ")), first.instead.as_str()),
        None => (
            "validate.too-many",
            "it does more that is doubtful than can be told".to_owned(),
            "Do it in several smaller calls.",
        ),
    };
    Refusal::new(rule, format!("`{}`", shown(&foreseen.subject)), reason)
        .at(&level.origin)
        .instead(format!("{instead} Do not retry the same by another way."))
}

/// Why a command is not run that comes with an argument nobody knows.
pub(crate) fn unknown_argument(name: &str) -> Refusal {
    Refusal::new(
        "hook.argument",
        format!("a command came with the argument `{}`", shown(name)),
        "nobody knows what it does, and it could choose another program or what is loaded into it",
    )
    .instead("Leave it out. Set variables in the command itself, such as `NAME=value program`.")
}

fn unfit(line: &str) -> Option<Refusal> {
    let refusal =
        |reason| Refusal::new("hook.command", "the command cannot be run", reason).instead("Write one that can be.");
    if line.trim().is_empty() {
        return Some(refusal("it is empty"));
    }
    if line.contains('\0') {
        return Some(refusal("it holds a NUL byte"));
    }
    (line.len() > MOST_SHELL_BYTES).then(too_long)
}

fn too_long() -> Refusal {
    Refusal::new("hook.command", "the command cannot be run", "it is longer than one argument may be, 128 KiB")
        .instead("Write a long text to a file with the file tool first, and use the file.")
}

fn elsewhere(judge: &Judge, folder: &Path) -> Refusal {
    let why = format!("the folder is not there, or not below the workspace {}", judge.ground.workspace.display());
    Refusal::new("fs.workspace", format!("the command would start in `{}`", shown(&folder.to_string_lossy())), why)
        .at(&judge.ground.loaded.policy.fs.workspace.origin)
        .instead("Start it in a folder below the workspace.")
}

fn not_behind_the_wall(line: &str) -> Refusal {
    Refusal::new(
        "hook.wall",
        "the command would run without a wall",
        "this agent cannot be given another command than its own",
    )
    .instead(format!("Use the tool `sandboxed_code_run` of the MCP server `ringfence`, or run exactly this: {line}"))
}

/// The time limit: what was asked for, at most what the policy has. What runs beside gets all of that.
fn time(judge: &Judge, milliseconds: Option<u64>, runs: Runs) -> Option<TimeSpan> {
    let most = judge.ground.loaded.policy.proc.max_timeout.value;
    match (milliseconds, runs) {
        (Some(asked), _) => Some(
            TimeSpan::new(Duration::from_millis(asked.max(1)))
                .map_or(most, |asked| if asked.get() > most.get() { most } else { asked }),
        ),
        (None, Runs::Beside) => Some(most),
        (None, Runs::Waited) => None,
    }
}
