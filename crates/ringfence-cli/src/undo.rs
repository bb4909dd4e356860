//! `ringfence undo`: takes back what was applied last.

use std::io;
use std::path::PathBuf;

use ringfence::ledger::LedgerError;
use ringfence::state::StateError;
use ringfence::workspace::apply::{ApplyError, Site};
use ringfence::workspace::beneath::{Held, HoldError};
use ringfence::workspace::journal::{self, Act, Recorded};
use ringfence::workspace::undo::{self, Since};
use ringfence::{Ledger, StateFolder};
use serde_json::json;

use crate::apply::{LEFT, finish};
use crate::args::UndoArgs;
use crate::question::{self, Answer, QuestionFailure};
use crate::terminal::harmless;
use crate::told::{self, Told};
use crate::{Done, Fatal, chatter, setup};

#[derive(Debug, thiserror::Error)]
enum UndoFailure {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("could not find the folder {path}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("could not find out what was applied")]
    List(#[source] io::Error),
    #[error("nothing was applied to a workspace at {0}")]
    NoneHere(PathBuf),
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Hold(#[from] HoldError),
    #[error("could not open the ledger")]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Question(#[from] QuestionFailure),
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
}

impl Fatal for UndoFailure {
    fn hint(&self) -> Option<String> {
        match self {
            Self::NoneHere(_) => Some("go to the workspace, or name it with --workspace".to_owned()),
            Self::List(_) => Some("look at `undo` in the state folder, which RINGFENCE_STATE_DIR names".to_owned()),
            _ => None,
        }
    }
}

/// The workspace that is meant, and the folder that it was.
fn find(state: &StateFolder, args: &UndoArgs) -> Result<(PathBuf, (u64, u64)), UndoFailure> {
    let path = args.workspace.clone().unwrap_or_else(|| ".".into());
    let here = path.canonicalize().map_err(|source| UndoFailure::Folder { path, source })?;
    let mut known = journal::workspaces(state).map_err(UndoFailure::List)?;
    known.retain(|(workspace, _)| match args.workspace {
        Some(_) => here == *workspace,
        None => here.starts_with(workspace),
    });
    // A workspace may lie in another: the innermost is meant, and of two at one path the newer.
    known.reverse();
    let innermost = known.into_iter().max_by_key(|(workspace, _)| workspace.components().count());
    innermost.ok_or(UndoFailure::NoneHere(here))
}

pub(crate) fn undo(args: &UndoArgs) -> Done {
    let state = setup::state().map_err(UndoFailure::State)?;
    let (workspace, is) = find(&state, args)?;
    if args.list {
        let journals = journal::of_workspace(&state, is).map_err(UndoFailure::List)?;
        return print(&list(&journals, args));
    }
    let since = if args.force { Since::TakeBack } else { Since::Leave };
    if args.dry_run {
        let host = Held::open(&workspace, is).map_err(UndoFailure::Hold)?;
        let journals = journal::of_workspace(&state, is).map_err(UndoFailure::List)?;
        let next = undo::newest(journals).ok_or(ApplyError::NothingToUndo(workspace));
        let next = next.map_err(UndoFailure::Apply)?;
        let told = Told::proposed("undo", &next.head.run, &undo::propose(&next, &host, since));
        return finish(&told, args.json);
    }
    let site = Site::open(&state, &workspace, is).map_err(UndoFailure::Apply)?;
    told::stranded(&site);
    if let Some(most) = args.prune {
        let forgotten = site.prune(Some(most)).map_err(UndoFailure::Apply)?;
        return print(&if args.json {
            format!("{}\n", json!({ "forgotten": forgotten }))
        } else {
            format!("{forgotten} forgotten\n")
        });
    }
    let next = undo::next(&site).map_err(UndoFailure::Apply)?;
    let proposal = undo::propose(&next, site.host(), since);
    if !args.yes && !args.json && !proposal.steps.is_empty() && question::can_ask() {
        chatter::say_raw(&Told::proposed("undo", &next.head.run, &proposal).text());
        let question = format!("take back {} in {}?", told::count(proposal.steps.len()), told::shown(&workspace));
        if question::ask(&question, &[Answer::Yes, Answer::No]).map_err(UndoFailure::Question)? != Answer::Yes {
            chatter::say("nothing was changed");
            return Ok(LEFT);
        }
    }
    let ledger = Ledger::open(&state).map_err(UndoFailure::Ledger)?;
    let undone = undo::undo(&site, &state, &ledger, &next, since, proposal).map_err(UndoFailure::Apply)?;
    finish(&Told::done("undo", &next.head.run, &undone), args.json)
}

fn print(text: &str) -> Done {
    match chatter::data(text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(UndoFailure::Output(error).into()),
        Ok(()) | Err(_) => Ok(0),
    }
}

/// What was applied, newest first.
fn list(journals: &[Recorded], args: &UndoArgs) -> String {
    let applied = journals.iter().filter(|journal| journal.head.act == Act::Apply);
    if args.json {
        let rows = applied.map(|journal| {
            json!({
                "undo": &journal.head.id,
                "run": &journal.head.run,
                "subject": &journal.head.subject,
                "began": journal.head.began.seconds,
                "changed": journal.changed(),
                "finished": journal.finished,
                "takenBack": journal.taken_back,
            })
        });
        return format!("{}\n", json!(rows.collect::<Vec<_>>()));
    }
    let mut text = String::new();
    for journal in applied {
        let state = match (journal.taken_back, journal.finished) {
            (true, _) => "taken back",
            (false, true) => "applied",
            (false, false) => "interrupted",
        };
        let subject: String = journal.head.subject.chars().take(60).collect();
        let subject = harmless(&subject).replace('\n', "\\n").replace('\r', "\\r");
        text.push_str(&format!("{}  {state:<11}  {:>5}  {subject}\n", journal.head.run, journal.changed()));
    }
    text
}
