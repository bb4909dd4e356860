//! `ringfence apply`: from a kept set to the host.

use std::io;

use ringfence::Ledger;
use ringfence::ledger::LedgerError;
use ringfence::state::StateError;
use ringfence::workspace::apply::{self, ApplyError, Flagged, Proposal, Site};
use ringfence::workspace::beneath::{Held, HoldError};
use ringfence::workspace::kept::Kept;
use ringfence::workspace::selection::{NotAmongThem, Selection};

use crate::args::ApplyArgs;
use crate::question::{self, Answer, QuestionFailure};
use crate::told::{self, Told};
use crate::{Done, Fatal, chatter, chosen, setup};

/// Something was left as it is.
pub(crate) const LEFT: u8 = 1;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApplyFailure {
    #[error(transparent)]
    State(#[from] StateError),
    #[error("could not find out where this is")]
    Here(#[source] io::Error),
    #[error(transparent)]
    Selection(#[from] NotAmongThem),
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

impl Fatal for ApplyFailure {
    fn hint(&self) -> Option<String> {
        match self {
            Self::Question(_) => Some("answer on a terminal, or name the paths instead".to_owned()),
            _ => None,
        }
    }
}

pub(crate) fn apply(args: &ApplyArgs) -> Done {
    let here = std::env::current_dir().map_err(ApplyFailure::Here)?;
    let state = setup::state().map_err(ApplyFailure::State)?;
    let (kept, set) = chosen::find(&state, &args.run, &here)?;
    let selection = Selection::of(&set, &args.paths, &here).map_err(ApplyFailure::Selection)?;
    let flagged = if args.include_flagged { Flagged::Include } else { Flagged::Leave };
    let propose = |host: &Held| apply::propose(&set, &kept, host, &selection, flagged);
    if args.dry_run {
        let host = Held::open(&set.workspace, set.workspace_is).map_err(ApplyFailure::Hold)?;
        let told = Told::proposed("apply", &set.run_id, &propose(&host));
        return finish(&told, args.json);
    }
    let site = Site::open(&state, &set.workspace, set.workspace_is).map_err(ApplyFailure::Apply)?;
    told::stranded(&site);
    let mut proposal = propose(site.host());
    if args.interactive {
        choose(&mut proposal, &site, &kept).map_err(ApplyFailure::Question)?;
    } else if !args.yes && !args.json && !proposal.steps.is_empty() && question::can_ask() {
        chatter::say_raw(&Told::proposed("apply", &set.run_id, &proposal).text());
        let question = format!("apply {} to {}?", told::count(proposal.steps.len()), told::shown(&set.workspace));
        if question::ask(&question, &[Answer::Yes, Answer::No]).map_err(ApplyFailure::Question)? != Answer::Yes {
            chatter::say("nothing was changed");
            return Ok(LEFT);
        }
    }
    let ledger = Ledger::open(&state).map_err(ApplyFailure::Ledger)?;
    let applied = apply::apply(&site, &ledger, &kept, &set, proposal).map_err(ApplyFailure::Apply)?;
    finish(&Told::done("apply", &set.run_id, &applied), args.json)
}

/// Prints what was done; whatever was left makes the exit code.
pub(crate) fn finish(told: &Told, json: bool) -> Done {
    let text = if json { told.json() } else { told.text() };
    match chatter::data(&text) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(ApplyFailure::Output(error).into()),
        Ok(()) | Err(_) => {}
    }
    Ok(if told.is_whole() { 0 } else { LEFT })
}

/// Asks for each step.
fn choose(proposal: &mut Proposal, site: &Site, kept: &Kept) -> Result<(), QuestionFailure> {
    let mut all = None;
    let mut failed = None;
    let answers = [Answer::Yes, Answer::No, Answer::All, Answer::Quit, Answer::Difference];
    proposal.keep_only(site.host(), |step| {
        loop {
            if let Some(wanted) = all {
                return wanted;
            }
            let question = format!("{} {}?", told::verb(step), told::shown(step.place.as_path()));
            match question::ask(&question, &answers) {
                Ok(Answer::Yes) => return true,
                Ok(Answer::No) => return false,
                Ok(Answer::All) => all = Some(true),
                Ok(Answer::Quit) => all = Some(false),
                Ok(Answer::Difference) => told::difference(step, site.host(), &kept.objects()),
                Err(error) => {
                    failed = Some(error);
                    all = Some(false);
                }
            }
        }
    });
    failed.map_or(Ok(()), Err)
}
