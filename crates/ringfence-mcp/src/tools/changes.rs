//! What was changed in a workspace: showing it, and bringing it to the host when a person agrees.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use ringfence::workspace::apply::{self, Expected, Flagged, Left, Proposal, Site, Step, Why};
use ringfence::workspace::beneath::Held;
use ringfence::workspace::change::Change;
use ringfence::workspace::diff::{Body, Effort, Hunk, LookedAt, Row, Sign, compare, look_at};
use ringfence::workspace::flag::Judgement;
use ringfence::workspace::kept::{self, Kept};
use ringfence::workspace::selection::Selection;
use ringfence::workspace::{ChangeSet, ObjectId, Place};
use ringfence::{Approval, Ask, Ledger, StateFolder};
use serde::Deserialize;
use serde_json::{Value, json};

use super::inside::below;
use super::{Problem, Said, failed};
use crate::call::Call;
use crate::shown::{Shown, quoted};
use crate::tell;

/// Of a diff, in letters.
const MOST_DIFF: usize = 32 * 1024;
/// Of the changes in a list.
const MOST_LISTED: usize = 200;
/// Of the paths that a question names: more than that nobody reads.
const MOST_NAMED: usize = 30;
const MOST_PATHS: usize = 256;
/// The rule that asks.
const RULE: &str = "changes.apply";

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Which {
    #[serde(alias = "run_id")]
    run_id: Option<String>,
    #[serde(alias = "sandbox_id")]
    sandbox_id: Option<String>,
    #[serde(default)]
    paths: Vec<String>,
}

/// A set of the client's own, and what of it is meant.
struct Found {
    kept: Kept,
    set: ChangeSet,
    selection: Selection,
}

async fn find(call: &Call, which: &Which) -> Result<Option<Found>, Problem> {
    let state = &call.shared.setup.state;
    let (kept, set) = match (&which.run_id, &which.sandbox_id) {
        (Some(run), None) => {
            let kept = kept::of(state, &call.client.find_run(run)?);
            let set = kept.load().map_err(|error| failed("what it changed is not kept any more", &error))?;
            (kept, set)
        }
        (None, Some(sandbox)) => {
            let sandbox = call.client.sandbox(sandbox).await?;
            let set = sandbox.session.changes(&call.engine()).await;
            let Some(set) = set.map_err(|error| failed("could not look at what was changed", &error))? else {
                return Ok(None);
            };
            call.client.remember(sandbox.session.id().clone());
            (kept::of(state, sandbox.session.id()), set)
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(Problem::fixable("give `runId` or `sandboxId`, one of them"));
        }
    };
    if which.paths.len() > MOST_PATHS {
        return Err(Problem::fixable(format!("there are more than {MOST_PATHS} paths")));
    }
    let words: Vec<OsString> =
        which.paths.iter().map(|path| below(path).map(Into::into)).collect::<Result<_, Problem>>()?;
    let selection = Selection::of(&set, &words, &set.workspace).map_err(|error| Problem::fixable(error.to_string()))?;
    Ok(Some(Found { kept, set, selection }))
}

/// Reads files and compares: not on a thread that others wait for.
async fn aside<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    tokio::task::spawn_blocking(act).await.map_err(|_| Problem::later("it was abandoned before it ended"))
}

pub(super) async fn diff(call: &Call, which: Which) -> Result<Said, Problem> {
    match find(call, &which).await? {
        Some(found) => {
            call.client.showed(&found.set.run_id, named(&found.set)?);
            aside(move || show(&found)).await
        }
        None => Ok(Said::well("Nothing was changed.", json!({ "changes": [], "diff": "", "truncated": false }))),
    }
}

fn named(set: &ChangeSet) -> Result<ObjectId, Problem> {
    apply::name_of_changes(set).map_err(|error| failed("what it changed could not be read", &error))
}

fn show(found: &Found) -> Said {
    let Found { kept, set, selection } = found;
    look_at(set, &kept.objects(), selection, |seen| tell_of(set, seen))
}

fn tell_of(set: &ChangeSet, seen: &LookedAt<'_>) -> Said {
    let LookedAt { judgements, rows, contents } = seen;
    let mut effort = Effort::default();
    let (mut text, mut listed, mut is_cut) = (String::new(), Vec::new(), rows.len() > MOST_LISTED);
    for row in rows.iter().take(MOST_LISTED) {
        let Some(change) = set.changes.get(row.change) else { continue };
        let body = if text.len() < MOST_DIFF { compare(set, row, contents, &mut effort) } else { Body::TooLarge };
        let judgement = judgements.get(row.change);
        listed.push(one(change, row, &body, judgement, set));
        page(&mut text, change, row, &body, judgement);
    }
    is_cut |= text.len() > MOST_DIFF;
    text.truncate((0..=MOST_DIFF.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0));
    let counts = set.counts();
    let mut said =
        format!("{} added, {} changed, {} removed; not applied.\n", counts.added, counts.changed, counts.removed);
    said.push_str(&text);
    if is_cut {
        said.push_str("\n[there is more; name paths to see it]");
    }
    let structured =
        json!({ "runId": set.run_id, "counts": counts, "changes": listed, "diff": text, "truncated": is_cut });
    Said::well(said, structured)
}

fn held_back(judgement: Option<&Judgement>) -> Option<String> {
    match judgement {
        Some(Judgement::Free) => None,
        Some(Judgement::Flagged(flags)) => Some(flags.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")),
        Some(Judgement::Denied(rule)) => Some(format!("the policy denies it by `{rule}`")),
        None => Some("it was not judged".to_owned()),
    }
}

fn one(change: &Change, row: &Row, body: &Body, judgement: Option<&Judgement>, set: &ChangeSet) -> Value {
    let (added, removed) = body.lines();
    let from = row.from.and_then(|from| set.changes.get(from)).map(|change| shown(&change.place));
    json!({
        "path": shown(&change.place),
        "kind": row.kind.word(),
        "from": from,
        "linesAdded": added,
        "linesRemoved": removed,
        "heldBack": held_back(judgement),
    })
}

fn shown(place: &Place) -> String {
    place.as_path().to_string_lossy().into_owned()
}

fn page(text: &mut String, change: &Change, row: &Row, body: &Body, judgement: Option<&Judgement>) {
    text.push_str(&format!("\n{} {}\n", row.kind.word(), shown(&change.place)));
    if let Some(why) = held_back(judgement) {
        text.push_str(&format!("  held back until a person looks at it: {why}\n"));
    }
    match body {
        Body::Nothing => {}
        Body::Text(hunks) | Body::Lost(hunks) => hunks.iter().for_each(|hunk| lines(text, hunk)),
        Body::Binary => text.push_str("  not a text\n"),
        Body::TooLarge => text.push_str("  too large to show\n"),
        Body::Unreadable => text.push_str("  cannot be read\n"),
    }
}

fn lines(text: &mut String, hunk: &Hunk) {
    if text.len() > MOST_DIFF {
        return;
    }
    let Hunk { before_start, before_count, after_start, after_count, lines } = hunk;
    text.push_str(&format!("@@ -{before_start},{before_count} +{after_start},{after_count} @@\n"));
    for (sign, line) in lines {
        text.push(match sign {
            Sign::Same => ' ',
            Sign::Removed => '-',
            Sign::Added => '+',
        });
        text.push_str(&tell::head_and_tail(&String::from_utf8_lossy(line), 1000));
        if !line.ends_with(b"\n") {
            text.push('\n');
        }
    }
}

pub(super) async fn apply(call: &Call, which: Which) -> Result<Said, Problem> {
    let Some(found) = find(call, &which).await? else {
        return Ok(Said::well("Nothing was changed.", json!({ "applied": [], "same": 0, "left": [] })));
    };
    // A program may have gone on since: what a person looked at is what they agree to.
    let changes = named(&found.set)?;
    if !call.client.is_as_shown(&found.set.run_id, changes) {
        return Err(Problem::fixable("the changes are others than those that changes_diff showed last")
            .advise("Look at them again with changes_diff, and tell the person what is new."));
    }
    // An answer may come with another call.
    call.client.showed(&found.set.run_id, changes);
    // Not held while a person thinks: others may want to apply something, too.
    let (found, proposal, amounts) = aside(move || {
        let proposal = propose(&found)?;
        let amounts = amounts(&found, &proposal.steps);
        Ok((found, proposal, amounts))
    })
    .await??;
    if proposal.steps.is_empty() {
        return Ok(told(&found.set, &[], proposal.same.len(), &proposal.left, None));
    }
    let Some((question, approved)) = question(&found.set.workspace, &proposal.steps, &amounts, proposal.left.len())
    else {
        let count = proposal.steps.len();
        return Err(Problem::fixable(format!("a person has to see every name, and {count} of them are too many to show"))
            .advise(format!(
                "Name at most {MOST_NAMED} of them with `paths`, or tell the person you work for: `ringfence apply` applies all."
            )));
    };
    let by = match call.ask(question).await {
        Approval::Granted { by } | Approval::GrantedAlways { by } => by,
        Approval::Denied { reason } | Approval::Absent { reason } => {
            return Err(Problem::never(format!("changes are applied only when a person agrees, and {reason}")).advise(
                "Tell the person you work for: `ringfence diff` shows the changes, `ringfence apply` applies them.",
            ));
        }
    };
    let state = call.shared.setup.state.clone();
    aside(move || carry_out(&state, &found, &approved, &by)).await?
}

fn propose(found: &Found) -> Result<Proposal, Problem> {
    let Found { kept, set, selection } = found;
    let host = Held::open(&set.workspace, set.workspace_is)
        .map_err(|error| failed("the workspace is not what it was", &error))?;
    Ok(apply::propose(set, kept, &host, selection, Flagged::Leave))
}

/// How much of each text is new, and how much is gone; nothing of what is no text.
type Amounts = BTreeMap<Place, (usize, usize)>;

fn amounts(found: &Found, steps: &[Step]) -> Amounts {
    let Found { kept, set, selection } = found;
    if steps.len() > MOST_NAMED {
        return Amounts::new();
    }
    let mut effort = Effort::default();
    look_at(set, &kept.objects(), selection, |seen| {
        let named = |row: &&Row| {
            let place = set.changes.get(row.change).map(|change| &change.place);
            steps.iter().any(|step| Some(&step.place) == place)
        };
        let amount = |row: &Row| match compare(set, row, seen.contents, &mut effort) {
            body @ Body::Text(_) => Some((set.changes.get(row.change)?.place.clone(), body.lines())),
            _ => None,
        };
        seen.rows.iter().filter(named).filter_map(amount).collect()
    })
}

/// What a person agreed to: each place, and what is done there.
type Approved = BTreeMap<Place, &'static str>;

fn deed(step: &Step) -> &'static str {
    match (&step.expected, &step.to) {
        (_, None) => "remove",
        (Expected::Nothing, Some(_)) => "add",
        (Expected::This(_) | Expected::Folder, Some(_)) => "change",
    }
}

/// The question, and what a yes to it is a yes to: the places whose whole names stand in it. Nothing when not all of them fit.
fn question(workspace: &Path, steps: &[Step], amounts: &Amounts, left: usize) -> Option<(Shown, Approved)> {
    if steps.len() > MOST_NAMED {
        return None;
    }
    let (mut lines, mut approved) = (Vec::new(), Approved::new());
    for step in steps {
        let amount = amounts.get(&step.place).map(|(added, removed)| format!(" (+{added} -{removed} lines)"));
        lines.push(format!("{} {}{}", deed(step), quoted(step.place.as_path()), amount.unwrap_or_default()));
        approved.insert(step.place.clone(), deed(step));
    }
    let mut reason = "it changes files of yours".to_owned();
    if left > 0 {
        reason.push_str(&format!("; {left} more would be held back"));
    }
    let subject = format!("apply {} to \"{}\"", counted(steps.len()), workspace.display());
    Shown::listing(&Ask { subject, rule: RULE.to_owned(), reason }, &lines).map(|shown| (shown, approved))
}

/// Applies what was approved, and nothing that came to it since.
fn carry_out(state: &StateFolder, found: &Found, approved: &Approved, by: &str) -> Result<Said, Problem> {
    let Found { kept, set, selection } = found;
    let cannot = |error: &dyn std::error::Error| failed("the changes could not be applied", error);
    let site = Site::open(state, &set.workspace, set.workspace_is).map_err(|error| cannot(&error))?;
    let mut proposal = apply::propose(set, kept, site.host(), selection, Flagged::Leave);
    proposal.keep_only(site.host(), |step| approved.get(&step.place) == Some(&deed(step)));
    proposal.approved_by = Some(by.to_owned());
    let ledger = Ledger::open(state).map_err(|error| cannot(&error))?;
    let applied = apply::apply(&site, &ledger, kept, set, proposal).map_err(|error| cannot(&error))?;
    let undo = applied.undo.as_ref().map(ToString::to_string);
    let mut said = told(set, &applied.done, applied.same.len(), &applied.left, undo);
    said.text.push_str(&format!("\nApproved by {by}."));
    Ok(said)
}

fn counted(changes: usize) -> String {
    if changes == 1 { "1 change".to_owned() } else { format!("{changes} changes") }
}

fn told(set: &ChangeSet, done: &[Place], same: usize, left: &[Left], undo: Option<String>) -> Said {
    let mut text = match (done.len(), same) {
        (0, 0) => "Nothing was applied.".to_owned(),
        (0, same) => format!("Nothing had to be applied: the host has {same} of the changes already."),
        (done, _) => format!("Applied {} to the host's files.", counted(done)),
    };
    let mut rows = Vec::new();
    for Left { place, why } in left.iter().take(MOST_LISTED) {
        let (word, reason) = match why {
            Why::Flagged(reasons) => ("flagged", reasons.join("; ")),
            Why::Denied(rule) => ("denied", format!("the policy denies it by `{rule}`")),
            Why::Conflict(conflict) => ("conflict", conflict.to_string()),
            Why::NotCarried(_) => ("notCarried", "it is neither file, link nor folder".to_owned()),
            Why::Failed(error) => ("failed", error.to_string()),
        };
        text.push_str(&format!("\nleft: {}: {reason}", shown(place)));
        rows.push(json!({ "path": shown(place), "why": word, "reason": reason }));
    }
    if left.iter().any(|left| matches!(left.why, Why::Flagged(_))) {
        text.push_str("\nWhat is flagged can only be applied by a person, with `ringfence apply --include-flagged`.");
    }
    let applied: Vec<String> = done.iter().take(MOST_LISTED).map(shown).collect();
    let structured = json!({ "runId": set.run_id, "applied": applied, "same": same, "left": rows, "undo": undo });
    Said { well: left.is_empty() || !done.is_empty(), ..Said::well(text, structured) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

    use super::*;

    fn removed(name: &str) -> Step {
        let place = Place::new(name).unwrap();
        Step { place, expected: Expected::Folder, to: None, merged: None }
    }

    fn ask(steps: &[Step]) -> Option<(Shown, Approved)> {
        question(Path::new("/w"), steps, &Amounts::new(), 0)
    }

    #[test]
    fn a_yes_holds_for_names_that_stand_whole_in_the_question() {
        let steps: Vec<Step> = (0..MOST_NAMED).map(|number| removed(&format!("dir/{number}"))).collect();
        let (shown, approved) = ask(&steps).unwrap();
        assert_eq!(approved.len(), MOST_NAMED);
        for step in &steps {
            let line = format!("\n  remove \"{}\"", step.place.as_path().display());
            assert!(shown.as_str().contains(&line), "{line}");
        }
        let (shown, _) = ask(&[removed("a\n  remove \"b\"")]).unwrap();
        assert_eq!(shown.as_str().matches("\n  remove").count(), 1, "{shown:?}");
    }

    #[test]
    fn nothing_is_asked_when_not_every_name_fits() {
        let many: Vec<Step> = (0..=MOST_NAMED).map(|number| removed(&number.to_string())).collect();
        assert!(ask(&many).is_none());
        let long: Vec<Step> = (0..20).map(|number| removed(&format!("{number}{}", "x".repeat(240)))).collect();
        assert!(ask(&long).is_none());
        assert!(ask(&long[..5]).is_some());
    }
}
