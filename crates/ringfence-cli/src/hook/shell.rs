//! Commands: judged as a run would be, and then made one, behind the wall and by our own binary.
//!
//! What is run is written in exactly one way. A line that is in this form already, whoever wrote it, is taken apart again and judged by
//! what is in it; every other line that calls us is a line like any other, and runs behind the wall, where it can widen nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ringfence::analysis::surroundings;
use ringfence::explain::request::{Foreseen, foresee};
use ringfence::request::{MOST_SHELL_BYTES, WorkspaceAt};
use ringfence::{Refusal, Request, Work};
use ringfence_policy::{BackendChoice, BackendKind, TimeSpan, Verdict, split_words};
use serde_json::{Value, json};

use super::call::{Answer, Asks, Call, Form, Rewrites, Runs, Shell};
use super::files::shown;
use super::judge::Judge;
use super::{Agent, NotJudged};

/// Findings that are told.
const MOST_TOLD: usize = 5;

pub(super) fn judge(judge: &Judge<'_>, call: &Call, wanted: &Shell) -> Result<Answer, NotJudged> {
    let wrapper = Wrapper::new(judge)?;
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
    let below = match folder.canonicalize().map(|folder| folder.strip_prefix(&judge.workspace).map(Path::to_owned)) {
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
fn no_wall(judge: &Judge<'_>) -> Option<Refusal> {
    let is_open = |kind: BackendKind| match kind {
        BackendKind::Spawn | BackendKind::None => true,
        BackendKind::Native
        | BackendKind::Docker
        | BackendKind::Podman
        | BackendKind::Microvm
        | BackendKind::Kubernetes
        | BackendKind::Landlock => false,
    };
    let backend = &judge.ground.context.loaded.policy.backend;
    let origin = match backend.choice.value {
        BackendChoice::Kind(kind) if is_open(kind) => &backend.choice.origin,
        BackendChoice::Kind(_) | BackendChoice::Auto => {
            &backend.fallback.iter().find(|fallback| is_open(fallback.value))?.origin
        }
    };
    if judge.ground.layers.named_backend().is_some() {
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
fn judge_line(judge: &Judge<'_>, line: &str, below: &Path) -> Foreseen {
    let work = Work::Shell(line.to_owned());
    let mut request = Request::new(work.clone());
    request.workspace_at = WorkspaceAt::Same;
    request.cwd = below.to_owned();
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let around = surroundings(&request, &judge.workspace, home.as_deref());
    foresee(&work, &judge.ground.context.loaded.policy, &around)
}

/// The findings of one verdict as one refusal.
fn objection(judge: &Judge<'_>, foreseen: &Foreseen, verdict: Verdict) -> Refusal {
    let level = &judge.ground.context.loaded.policy.validate.level;
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
pub(super) fn unknown_argument(name: &str) -> Refusal {
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

fn elsewhere(judge: &Judge<'_>, folder: &Path) -> Refusal {
    let why = format!("the folder is not there, or not below the workspace {}", judge.workspace.display());
    Refusal::new("fs.workspace", format!("the command would start in `{}`", shown(&folder.to_string_lossy())), why)
        .at(&judge.ground.context.loaded.policy.fs.workspace.origin)
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
fn time(judge: &Judge<'_>, milliseconds: Option<u64>, runs: Runs) -> Option<TimeSpan> {
    let most = judge.ground.context.loaded.policy.proc.max_timeout.value;
    match (milliseconds, runs) {
        (Some(asked), _) => Some(
            TimeSpan::new(Duration::from_millis(asked.max(1)))
                .map_or(most, |asked| if asked.get() > most.get() { most } else { asked }),
        ),
        (None, Runs::Beside) => Some(most),
        (None, Runs::Waited) => None,
    }
}

/// What a line of ours says.
struct Parts {
    line: String,
    /// Nothing where the line does not say it.
    folder: Option<PathBuf>,
    milliseconds: Option<u64>,
}

/// Writes lines that run behind the wall, and knows them again.
struct Wrapper {
    /// What every such line begins with.
    start: Vec<String>,
    workspace: PathBuf,
    starts: Starts,
}

/// Where a wrapped command starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Starts {
    /// Where the line says.
    AsWritten,
    /// Where the agent starts it: Codex does not show the folder that a command asks for.
    WhereItIs,
}

impl Wrapper {
    fn new(judge: &Judge<'_>) -> Result<Self, NotJudged> {
        let text = |path: &Path| {
            path.to_str().map(str::to_owned).ok_or_else(|| NotJudged::because(format!("{} is no text", path.display())))
        };
        let program = std::env::current_exe()
            .map_err(|error| NotJudged::because(format!("nobody knows where we are: {error}")))?;
        if !program.is_file() {
            return Err(NotJudged::because(format!("{} is gone; start the agent again", program.display())));
        }
        let mut start = vec![text(&program)?, "run".to_owned(), "--at=same".to_owned(), "--apply=unflagged".to_owned()];
        // At a terminal that a model types at, it would answer our own questions.
        start.push("--ask=nobody".to_owned());
        let context = judge.ground.context;
        start.push(format!("--workspace={}", text(&context.workspace)?));
        if let Some(file) = &context.loaded.project_file {
            let file =
                file.canonicalize().map_err(|error| NotJudged::because(format!("{}: {error}", file.display())))?;
            start.push(format!("--policy={}", text(&file)?));
        }
        let layers = judge.ground.layers;
        start.extend(layers.named_backend().map(|backend| format!("--backend={backend}")));
        start.extend(layers.runtime.as_ref().map(|runtime| format!("--runtime={runtime}")));
        start.extend(layers.image.as_ref().map(|image| format!("--image={image}")));
        for file in &layers.grant_file {
            let file =
                file.canonicalize().map_err(|error| NotJudged::because(format!("{}: {error}", file.display())))?;
            start.push(format!("--grant-file={}", text(&file)?));
        }
        let starts = match judge.ground.agent {
            Agent::Codex => Starts::WhereItIs,
            Agent::ClaudeCode | Agent::Gemini | Agent::Cursor => Starts::AsWritten,
        };
        Ok(Self { start, workspace: context.workspace.clone(), starts })
    }

    fn wrap(&self, line: &str, below: &Path, time: Option<TimeSpan>, approved: &[String]) -> String {
        let mut words = self.start.clone();
        if self.starts == Starts::AsWritten {
            words.push(format!("--cwd={}", self.workspace.join(below).to_string_lossy().trim_end_matches('/')));
        }
        words.extend(time.map(|time| format!("--timeout={}ms", time.get().as_millis().max(1))));
        words.extend(approved.iter().map(|rule| format!("--approve={rule}")));
        words.push(format!("--shell={line}"));
        joined(&words)
    }

    /// The parts of a line that we wrote, or that is exactly as we would have. What was approved is no part of one: a model could have
    /// written that.
    fn unwrap(&self, line: &str) -> Option<Parts> {
        if !line.starts_with(&joined(&self.start[..2])) {
            return None;
        }
        let words = split_words(line).ok()?;
        let rest = words.strip_prefix(self.start.as_slice())?;
        let (folder, rest) = match self.starts {
            Starts::AsWritten => {
                let (folder, rest) = rest.split_first()?;
                (Some(PathBuf::from(folder.strip_prefix("--cwd=")?)), rest)
            }
            Starts::WhereItIs => (None, rest),
        };
        let (milliseconds, rest) = match rest {
            [time, rest @ ..] if time.starts_with("--timeout=") => {
                (Some(time.strip_prefix("--timeout=")?.strip_suffix("ms")?.parse().ok()?), rest)
            }
            rest => (None, rest),
        };
        let [inner] = rest else { return None };
        let inner = inner.strip_prefix("--shell=")?.to_owned();
        Some(Parts { line: inner, folder, milliseconds })
    }
}

/// Words as every shell reads them back, fish included: there a backslash counts between single quotes, too.
pub(crate) fn joined(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => {
            let mut text = String::from("'");
            for letter in word.chars() {
                match letter {
                    '\'' => text.push_str("'\"'\"'"),
                    '\\' => text.push_str("'\"\\\\\"'"),
                    other => text.push(other),
                }
            }
            text.push('\'');
            text
        }
    }
}
