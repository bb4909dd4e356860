//! A probe behind a wall, through the engine's only door.

use std::ffi::OsString;
use std::path::Path;
use std::time::Instant;

use ringfence::{Guarantee, Request, Strength};
use ringfence_policy::BackendKind;

use super::{Allowed, Case, Ended, host_environment};
use crate::place::Place;
use crate::{Trouble, canary};

/// Whether the backend promises what the case attacks, under the case's own policy. One that would refuse the policy
/// as a whole promises nothing under it.
pub(super) async fn claims(kind: BackendKind, case: &Case, launcher: &Path) -> Result<bool, Trouble> {
    let place = Place::new(launcher)?;
    let engine = place.engine(&case.setting.policy(kind), Vec::new())?;
    let found = engine.probe().await.into_iter().find(|(probed, _)| *probed == kind);
    let Some((_, Ok(capabilities))) = found else { return Ok(false) };
    let refuses = kind.isolates()
        && ringfence::guarantee::required(engine.policy()).into_iter().any(|one| capabilities.strength(one).is_none());
    let claimed = match (case.guarantee, capabilities.strength(case.guarantee)) {
        // Watched, it is a promise about whole processors; the case is about a part of one.
        (Guarantee::Cpus, Some(Strength::Watched)) | (_, None) => false,
        (_, Some(_)) => true,
    };
    Ok(!refuses && claimed)
}

/// Runs the allowed act; says what went wrong with it.
pub(super) async fn allowed_act(kind: BackendKind, case: &Case, launcher: &Path) -> Result<Option<String>, Trouble> {
    let place = Place::new(launcher)?;
    let note = canary::secret()?;
    place.write("note", &note)?;
    let script = match case.allowed {
        Allowed::Writes(script) | Allowed::PrintsNote(script) | Allowed::Prints(script, _) => script,
    };
    let ended = run(&place, &case.setting.policy(kind), script, &[], &[]).await?;
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

/// Runs `script` under a policy.
pub(super) async fn run(
    place: &Place,
    policy: &str,
    script: &str,
    arguments: &[String],
    environment: &[(OsString, OsString)],
) -> Result<Ended, Trouble> {
    let engine = place.engine(policy, host_environment(environment))?;
    let argv = ["sh", "-c", script, "probe"].into_iter().chain(arguments.iter().map(String::as_str));
    let started = Instant::now();
    let run = engine.start(Request::argv(argv)).map_err(|error| Trouble::Run(Box::new(error)))?;
    let outcome = run.outcome().await.map_err(|error| Trouble::Run(Box::new(error)))?;
    Ok(Ended { wall: started.elapsed(), stdout: outcome.stdout.clone().into_bytes(), outcome: Some(outcome) })
}
