//! `ringfence init`: one command after which the agents of a project run their code behind our walls.

mod found;
mod import;
mod journal;
mod jsonc;
mod target;

use std::io;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use ringfence::layers::{PROJECT_FILE, find_project_file};
use ringfence::state::StateError;
use ringfence_policy::BackendChoice;

use self::journal::{Edit, Journal, JournalError};
use self::target::Target;
use crate::args::LayerArgs;
use crate::question::{self, Answer, QuestionFailure};
use crate::terminal::harmless;
use crate::{Done, Fatal, chatter, setup};

/// Something is missing, or was not done.
const NOT_DONE: u8 = 1;

#[derive(Debug, ClapArgs)]
#[command(
    after_help = "Writes the policy, the hooks and the MCP server of each agent that is used here or installed, shows what would change
first, and asks. Done twice, it changes nothing. What is there stays, with its order and its comments.

Exit codes: 0 all of it is in place; 1 something is missing, or could not be done; 125 we failed, 2 usage."
)]
pub(crate) struct InitArgs {
    /// Only for this agent, used or not; repeatable
    #[arg(long, value_name = "NAME")]
    agent: Vec<Target>,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
    /// Change nothing, and say what is missing
    #[arg(long, conflicts_with_all = ["yes", "undo"])]
    check: bool,
    /// Take back what was done last
    #[arg(long, conflicts_with = "agent")]
    undo: bool,
}

#[derive(Debug, thiserror::Error)]
enum InitFailure {
    #[error("could not find out where this is")]
    Here(#[source] io::Error),
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Question(#[from] QuestionFailure),
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
}

impl Fatal for InitFailure {}

pub(crate) fn init(args: &InitArgs) -> Done {
    let project = std::env::current_dir().and_then(|here| here.canonicalize()).map_err(InitFailure::Here)?;
    if args.undo {
        return Ok(undo(&project, args.yes)?);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let targets = match args.agent.is_empty() {
        true => found::targets(&project, &path),
        false => args.agent.clone(),
    };
    if targets.is_empty() {
        chatter::say("no agent was found here; name one with --agent");
    }
    let (edits, problems) = wanted(&project, &targets, &program())?;
    for problem in &problems {
        chatter::say(&harmless(problem));
    }
    let read = |file: &str| journal::read(&project, Path::new(file)).ok().flatten();
    for other in targets.iter().flat_map(|target| target.others(read)) {
        chatter::say(&harmless(&other));
    }
    say_backend(&project);
    let whole = u8::from(!problems.is_empty()) * NOT_DONE;
    if edits.is_empty() {
        let all = if problems.is_empty() { "everything is" } else { "not everything is" };
        chatter::say(&format!("{all} in place for {}", names(&targets)));
        return Ok(whole);
    }
    let text: String = edits.iter().map(difference).collect();
    chatter::data(&harmless(&text)).map_err(InitFailure::Output)?;
    if args.check {
        chatter::say(&format!("{} to change; `ringfence init` does it", count(edits.len())));
        return Ok(NOT_DONE);
    }
    propose_import(&project);
    if !agreed(args.yes, &format!("change {} in {}?", count(edits.len()), project.display()))? {
        return Ok(NOT_DONE);
    }
    let state = setup::state().map_err(InitFailure::State)?;
    Journal::load(&state, &project)
        .and_then(|mut journal| journal.make(&state, &edits))
        .map_err(InitFailure::Journal)?;
    chatter::say(&format!(
        "{} changed for {}; take it back with: ringfence init --undo",
        count(edits.len()),
        names(&targets)
    ));
    for besides in targets.iter().filter_map(|target| target.besides()) {
        chatter::say(besides);
    }
    Ok(whole)
}

/// How agents call us: by our name where `PATH` leads to us, so that others can use the same settings.
fn program() -> String {
    let ours = std::env::current_exe().and_then(|path| path.canonicalize()).ok();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).map(|folder| folder.join("ringfence")).find(|file| file.is_file());
    match (ours, first.and_then(|file| file.canonicalize().ok())) {
        (Some(ours), found) if found.as_ref() != Some(&ours) => ours.to_string_lossy().into_owned(),
        _ => "ringfence".to_owned(),
    }
}

/// What has to be changed, and what cannot be.
fn wanted(project: &Path, targets: &[Target], program: &str) -> Result<(Vec<Edit>, Vec<String>), InitFailure> {
    let mut edits = Vec::new();
    let mut problems = Vec::new();
    if find_project_file(project).is_none() {
        let after = ringfence_policy::starter(&found::presets(project));
        edits.push(Edit { file: PathBuf::from(PROJECT_FILE), before: None, after });
    }
    let read = |file: &str| journal::read(project, Path::new(file)).ok().flatten();
    for target in targets {
        problems.extend(target.turned_off(read));
        for wanted in target.wants(program) {
            let file = PathBuf::from(wanted.file);
            let before = match journal::read(project, &file) {
                Ok(before) => before,
                Err(error @ (JournalError::Link(_) | JournalError::TooLong(_) | JournalError::NotText(_))) => {
                    problems.push(error.to_string());
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let text = before.clone().unwrap_or_default();
            let added = wanted.pieces.iter().try_fold(text.clone(), |text, piece| piece.add(&text));
            match added {
                Ok(after) if after == text && before.is_some() => {}
                Ok(after) => edits.push(Edit { file, before, after }),
                Err(error) => problems.push(format!("{} is left as it is: {error}", wanted.file)),
            }
        }
    }
    Ok((edits, problems))
}

/// Which wall a policy that is there already has: it comes with the project, and may name one that keeps nothing out.
fn say_backend(project: &Path) {
    let Some(file) = find_project_file(project) else { return };
    let layers = LayerArgs { policy: Some(file.clone()), ..LayerArgs::default() };
    let told = match setup::load(&layers, Vec::new()) {
        Ok(context) => {
            let backend = &context.loaded.policy.backend;
            let mut told = match backend.choice.value {
                BackendChoice::Auto => "auto".to_owned(),
                BackendChoice::Kind(kind) => kind.to_string(),
            };
            for fallback in &backend.fallback {
                told.push_str(&format!(", or {}", fallback.value));
            }
            format!("the policy {} has the backend {told}", file.display())
        }
        Err(error) => format!("the policy {} cannot be read: {error}", file.display()),
    };
    chatter::say(&harmless(&told));
}

fn difference(edit: &Edit) -> String {
    let patch = diffy::create_patch(edit.before.as_deref().unwrap_or_default(), &edit.after).to_string();
    let body = patch.split_once("@@").map(|(_, body)| format!("@@{body}")).unwrap_or_default();
    let file = edit.file.display();
    let before = if edit.before.is_some() { format!("a/{file}") } else { "/dev/null".to_owned() };
    format!("--- {before}\n+++ b/{file}\n{body}")
}

fn propose_import(project: &Path) {
    for file in [".claude/settings.json", ".claude/settings.local.json"] {
        let Ok(Some(text)) = journal::read(project, Path::new(file)) else { continue };
        let Some(proposal) = jsonc::parse(&text).ok().and_then(|settings| import::proposal(&settings)) else {
            continue;
        };
        chatter::say(&format!("{file} has a `sandbox` block. As a policy it would be, for {PROJECT_FILE}:"));
        chatter::say_raw(&harmless(&proposal));
    }
}

/// Whether a person says yes.
fn agreed(yes: bool, question: &str) -> Result<bool, InitFailure> {
    if yes {
        return Ok(true);
    }
    if !question::can_ask() {
        chatter::say("nothing was changed: nobody is there to be asked; pass --yes to do it");
        return Ok(false);
    }
    let agreed = question::ask(question, &[Answer::Yes, Answer::No])? == Answer::Yes;
    if !agreed {
        chatter::say("nothing was changed");
    }
    Ok(agreed)
}

fn undo(project: &Path, yes: bool) -> Result<u8, InitFailure> {
    let state = setup::state()?;
    let mut journal = Journal::load(&state, project)?;
    let Some(step) = journal.last() else {
        chatter::say("nothing was done here that could be taken back");
        return Ok(NOT_DONE);
    };
    let files: Vec<String> = step.files.iter().map(|one| one.file.display().to_string()).collect();
    let changed = journal.changed_since()?;
    if !changed.is_empty() {
        for file in changed {
            chatter::say(&format!("{} was changed since", file.display()));
        }
        chatter::say("nothing was taken back; take those changes out, or remove our entries by hand");
        return Ok(NOT_DONE);
    }
    if !agreed(yes, &format!("take back what was done to {}?", files.join(", ")))? {
        return Ok(NOT_DONE);
    }
    journal.take_back(&state)?;
    chatter::say(&format!("taken back: {}", files.join(", ")));
    Ok(0)
}

fn names(targets: &[Target]) -> String {
    match targets {
        [] => "no agent".to_owned(),
        targets => targets.iter().map(|target| target.name()).collect::<Vec<_>>().join(", "),
    }
}

fn count(files: usize) -> String {
    format!("{files} file{}", if files == 1 { "" } else { "s" })
}
