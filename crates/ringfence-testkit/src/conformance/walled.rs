//! A probe behind a wall, through the engine's only door.

use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

use ringfence::workspace::apply::{self, Flagged, Site};
use ringfence::workspace::kept;
use ringfence::workspace::selection::Selection;
use ringfence::{Guarantee, Ledger, Outcome, Request, StateFolder, Strength};

use super::{Allowed, Case, Ended, Setting, host_environment};
use crate::backends::Wall;
use crate::place::Place;
use crate::{Trouble, canary};

/// Whether the backend promises what the case attacks, under the case's own policy. One that would refuse the policy
/// as a whole promises nothing under it.
pub(super) async fn claims(wall: &Wall, case: &Case, launcher: &Path) -> Result<bool, Trouble> {
    let place = Place::new(launcher)?;
    let engine = place.engine(&case.setting.policy(wall), wall.environment())?;
    let found = engine.probe().await.into_iter().find(|(probed, _)| *probed == wall.kind);
    let Some((_, Ok(capabilities))) = found else { return Ok(false) };
    let refuses = wall.kind.isolates()
        && ringfence::guarantee::required(engine.policy()).into_iter().any(|one| capabilities.strength(one).is_none());
    let claimed = match (case.guarantee, capabilities.strength(case.guarantee)) {
        // Watched, it is a promise about whole processors; the case is about a part of one.
        (Guarantee::Cpus, Some(Strength::Watched)) | (_, None) => false,
        (_, Some(_)) => true,
    };
    Ok(!refuses && claimed)
}

/// Runs the allowed act; says what went wrong with it.
pub(super) async fn allowed_act(wall: &Wall, case: &Case, launcher: &Path) -> Result<Option<String>, Trouble> {
    let place = Place::new(launcher)?;
    let note = canary::secret()?;
    place.write("note", &note)?;
    let script = match case.allowed {
        Allowed::Writes(script) | Allowed::PrintsNote(script) | Allowed::Prints(script, _) => script,
    };
    let ended = run(&place, wall, &case.setting, script, &[], &[]).await?;
    let printed = String::from_utf8_lossy(&ended.stdout);
    let succeeded = match case.allowed {
        Allowed::Writes(_) => place.workspace().join("allowed").exists(),
        Allowed::PrintsNote(_) => printed.contains(&note),
        Allowed::Prints(_, text) => printed.contains(text),
    };
    Ok((!succeeded).then(|| match ended.outcome {
        Some(outcome) => format!(
            "{:?}, stderr {:?}, refusal {:?}, error {:?}",
            outcome.status,
            outcome.stderr,
            outcome.refusal.map(|refusal| format!("{}: {}", refusal.subject, refusal.reason)),
            outcome.error.map(|error| error.chain)
        ),
        None => "no outcome".to_owned(),
    }))
}

/// Runs `script` behind a wall.
pub(super) async fn run(
    place: &Place,
    wall: &Wall,
    setting: &Setting,
    script: &str,
    arguments: &[String],
    environment: &[(OsString, OsString)],
) -> Result<Ended, Trouble> {
    let environment = host_environment(environment).into_iter().chain(wall.environment()).collect();
    let engine = place.engine(&setting.policy(wall), environment)?;
    let argv = ["sh", "-c", script, "probe"].into_iter().chain(arguments.iter().map(String::as_str));
    let started = Instant::now();
    let run = engine.start(Request::argv(argv)).map_err(|error| Trouble::Run(Box::new(error)))?;
    let outcome = run.outcome().await.map_err(|error| Trouble::Run(Box::new(error)))?;
    let wall_time = started.elapsed();
    if setting.is_brought_home(wall) && outcome.changes.is_some() {
        bring_home(place, &outcome)?;
    }
    Ok(Ended { wall: wall_time, stdout: outcome.stdout.clone().into_bytes(), outcome: Some(outcome) })
}

/// Brings to the host what a run changed, as a user does who looks at nothing: without what the host would obey.
fn bring_home(place: &Place, outcome: &Outcome) -> Result<(), Trouble> {
    let failed = || "apply what a probe changed";
    let state = StateFolder::prepare(place.state()).map_err(|error| Trouble::Engine(Box::new(error)))?;
    let kept = kept::of(&state, &outcome.run_id);
    let set = kept.load().map_err(Trouble::io(failed()))?;
    let selection = Selection::of(&set, &[], &place.workspace()).map_err(|error| Trouble::Run(Box::new(error)))?;
    let site = Site::open(&state, &set.workspace, set.workspace_is).map_err(|error| Trouble::Run(Box::new(error)))?;
    let proposal = apply::propose(&set, &kept, site.host(), &selection, Flagged::Leave);
    let ledger = Ledger::open(&state).map_err(|error| Trouble::Run(Box::new(error)))?;
    apply::apply(&site, &ledger, &kept, &set, proposal).map_err(|error| Trouble::Run(Box::new(error)))?;
    Ok(())
}
