//! `ringfence policy`.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use ringfence::layers::{self, LoadedFile, PROJECT_FILE, Project, Sources};
use ringfence_policy::{Change, CommandRule, Direction, Expected, Preset, ResolvedPolicy, Severity, TestResult};
use serde_json::json;

use crate::args::{LayerArgs, PolicyCommand};
use crate::setup::{self, SetupFailure};
use crate::terminal::harmless;
use crate::{Done, Fatal, chatter, render};

#[derive(Debug, thiserror::Error)]
enum PolicyFailure {
    #[error("could not write to standard output")]
    Output(#[from] io::Error),
    #[error("could not write {path}")]
    Write { path: PathBuf, source: io::Error },
}

impl Fatal for PolicyFailure {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Write { source, .. } if source.kind() == io::ErrorKind::AlreadyExists => {
                Some("it is there already; `--stdout` prints the starter so that you can compare".to_owned())
            }
            Self::Write { .. } | Self::Output(_) => None,
        }
    }
}

pub(crate) fn policy(command: PolicyCommand) -> Done {
    match command {
        PolicyCommand::Show { layers, json } => show(&layers, json),
        PolicyCommand::Lint { layers } => lint(&layers),
        PolicyCommand::Test { layers } => test(&layers),
        PolicyCommand::Schema => print(&pretty(&ringfence_policy::json_schema())),
        PolicyCommand::Diff { a, b, json } => diff(&a, &b, json),
        PolicyCommand::Init { preset, stdout } => init(&preset.into_iter().map(Into::into).collect::<Vec<_>>(), stdout),
    }
}

fn print(text: &str) -> Done {
    chatter::data(text).map_err(PolicyFailure::from)?;
    Ok(0)
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

fn show(args: &LayerArgs, json: bool) -> Done {
    let policy = setup::load(args, Vec::new())?.loaded.policy;
    if json {
        return print(&pretty(&policy.canonical_json()));
    }
    print(&harmless(&ringfence_policy::show(&policy)))
}

/// Exit code 1 when something was found.
fn lint(args: &LayerArgs) -> Done {
    let loaded = setup::load(args, Vec::new())?.loaded;
    let mut found = Vec::new();
    for file in &loaded.files {
        if let Some(parsed) = &file.parsed {
            for diagnostic in ringfence_policy::lint(parsed, &loaded.policy) {
                if !found.contains(&diagnostic) {
                    found.push(diagnostic);
                }
            }
        }
    }
    if found.is_empty() {
        let names: Vec<&str> = loaded.files.iter().map(|file| &*file.name).collect();
        chatter::say(&format!("nothing to complain about in {}", list_or(&names, "the built-in defaults")));
        return Ok(0);
    }
    chatter::say_raw(&render::diagnostics(&found, &loaded.files));
    let errors = found.iter().filter(|diagnostic| diagnostic.severity == Severity::Error).count();
    chatter::say(&format!("{}, {}", count(found.len() - errors, "warning"), count(errors, "error")));
    Ok(1)
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn list_or(names: &[&str], nothing: &str) -> String {
    if names.is_empty() { nothing.to_owned() } else { names.join(", ") }
}

/// Exit code 1 when an example does not hold.
fn test(args: &LayerArgs) -> Done {
    let policy = setup::load(args, Vec::new())?.loaded.policy;
    let results = ringfence_policy::check_tests(&policy);
    if results.is_empty() {
        chatter::say("no command rule has examples; write them as `matches` and `rejects` of a rule under `commands`");
    }
    let mut text = String::new();
    for result in &results {
        text.push_str(&example(result));
    }
    let failed = results.iter().filter(|result| !result.passed()).count();
    text.push_str(&format!("{} passed, {failed} failed\n", results.len() - failed));
    print(&text)?;
    Ok(u8::from(failed > 0))
}

fn example(test: &TestResult) -> String {
    let mark = if test.passed() { "ok    " } else { "FAILED" };
    let rule = &test.rule.value;
    let relation = match test.result.expected {
        Expected::Matches => "matches",
        Expected::Rejects => "does not match",
    };
    let name = |rule: &CommandRule| format!("{:?} {}", rule.verdict, rule.prefix.join(" ")).to_lowercase();
    let overruled = match &test.decided_by {
        Some(by) if !test.passed() && by.value != *rule => format!(", overruled by `{}`", name(&by.value)),
        Some(_) | None => String::new(),
    };
    harmless(&format!("{mark} `{}` {relation} `{}`{overruled}\n", name(rule), test.result.example))
}

/// Exit code 1 when they differ, as `diff` has it.
fn diff(a: &Path, b: &Path, json: bool) -> Done {
    let changes = ringfence_policy::compare(&resolve_alone(a)?, &resolve_alone(b)?);
    if json {
        let rows: Vec<_> = changes.iter().map(|change| json!(change)).collect();
        print(&pretty(&json!({ "changes": rows })))?;
    } else {
        print(&changes.iter().map(line).collect::<String>())?;
    }
    Ok(u8::from(!changes.is_empty()))
}

fn line(change: &Change) -> String {
    let direction = match change.direction {
        Direction::Wider => "wider",
        Direction::Narrower => "narrower",
        Direction::Different => "different",
    };
    let side = |text: &str| if text.is_empty() { "nothing".to_owned() } else { harmless(text) };
    format!("{direction:<9} {}: {} -> {}\n", change.field, side(&change.from), side(&change.to))
}

/// A file on top of the built-in defaults, without this machine's other layers.
fn resolve_alone(path: &Path) -> Result<ResolvedPolicy, SetupFailure> {
    let sources = Sources { project: Project::File(path.to_owned()), ..Sources::default() };
    Ok(layers::load(&sources)?.policy)
}

fn init(presets: &[Preset], stdout: bool) -> Done {
    let text = ringfence_policy::starter(presets);
    if stdout {
        return print(&text);
    }
    let path = PathBuf::from(PROJECT_FILE);
    let failed = |source| PolicyFailure::Write { path: path.clone(), source };
    // Never over a file that is there.
    let mut file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    chatter::say(&format!("wrote {PROJECT_FILE}; `ringfence policy show` prints what it means"));
    Ok(0)
}

/// The files of a context, for a door that shows them.
pub(crate) fn names(files: &[LoadedFile]) -> Vec<String> {
    files.iter().map(|file| file.name.to_string()).collect()
}
