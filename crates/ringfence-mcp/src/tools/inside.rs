//! Running something for a tool: the only way from this crate to a program.

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use ringfence::{Event, Outcome, Request, Run, Stdin};
use ringfence_policy::TimeSpan;
use tokio::time::MissedTickBehavior;

use super::Problem;
use crate::call::{Call, since};
use crate::client::Sandbox;
use crate::limits::PROGRESS_EVERY;
use crate::tell;

/// Where the workspace is in a sandbox.
pub(super) const WORKSPACE: &str = "/workspace";
/// What a file tool may take, at most.
const FILES_WITHIN: Duration = Duration::from_secs(30);

/// The sandbox that was named, if one was.
pub(super) async fn place(call: &Call, id: Option<&str>) -> Result<Option<Sandbox>, Problem> {
    match id {
        Some(id) => call.client.sandbox(id).await.map(Some),
        None => Ok(None),
    }
}

/// Carries out `request`, in a sandbox that is kept or in one of its own.
pub(super) async fn carry_out(call: &Call, place: Option<&Sandbox>, mut request: Request) -> Result<Outcome, Problem> {
    let _room = call.client.begin_run()?;
    request.metadata = call.metadata.clone();
    let engine = call.engine();
    let run = match place {
        Some(sandbox) => {
            sandbox.relay.lead_to(call.questions.clone());
            sandbox.session.start(&engine, request)
        }
        None => engine.start(request),
    };
    let run = run.map_err(|error| super::failed("could not start it", &error))?;
    let outcome = follow(call, run).await?;
    call.client.ran_for(Duration::from_millis(outcome.resource_usage.wall_time_ms));
    if outcome.changes.is_some() {
        call.client.remember(outcome.run_id.clone());
    }
    Ok(outcome)
}

/// Watches a run to its end. A call that is cancelled ends its run; the end is waited for all the same, so that nothing is left.
async fn follow(call: &Call, mut run: Run) -> Result<Outcome, Problem> {
    let (began, mut written, mut cancelled) = (Instant::now(), 0usize, false);
    let mut ticks = tokio::time::interval(PROGRESS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.reset();
    loop {
        tokio::select! {
            biased;
            () = call.cancelled.cancelled(), if !cancelled => {
                cancelled = true;
                run.cancel();
            }
            event = run.next_event() => match event {
                Some(Event::Ended(outcome)) => return Ok(*outcome),
                Some(Event::Output { bytes, .. }) => written += bytes.len(),
                Some(Event::Preparing { what }) => call.progress.tell(began.elapsed(), what).await,
                Some(
                    Event::Started { .. }
                    | Event::Omitted { .. }
                    | Event::Usage(_)
                    | Event::Violation(_)
                    | Event::Traffic { .. },
                ) => {}
                None => return Err(Problem::later("the run was abandoned before it ended")),
            },
            _ = ticks.tick() => {
                let message = format!("running for {}, {written} bytes written", since(began));
                call.progress.tell(began.elapsed(), message).await;
            }
        }
    }
}

/// Runs one of the usual small programs inside, for a file tool; `good` are the exit codes that it may have. Whatever the policy says of
/// such programs holds for file tools, too.
pub(super) async fn small(
    call: &Call,
    place: Option<&Sandbox>,
    argv: Vec<OsString>,
    stdin: Vec<u8>,
    good: &[i32],
) -> Result<Outcome, Problem> {
    let policy = place.map_or_else(|| call.shared.setup.engine.policy(), |sandbox| sandbox.session.policy());
    let within = FILES_WITHIN.min(policy.proc.timeout.value.get());
    let mut request = Request::argv(argv);
    request.overrides.proc.timeout = TimeSpan::new(within).ok();
    if !stdin.is_empty() {
        request.stdin = Stdin::Bytes(stdin);
    }
    let outcome = carry_out(call, place, request).await?;
    match outcome.exit_code {
        Some(code) if outcome.error.is_none() && good.contains(&code) => Ok(outcome),
        _ => {
            let what = outcome.stderr.trim();
            let is_its_own = outcome.exit_code.is_some() && outcome.refusal.is_none() && outcome.error.is_none();
            Err(if is_its_own && !what.is_empty() {
                Problem::fixable(tell::head_and_tail(what, 1000))
            } else {
                Problem::never(tell::text(&outcome))
            })
        }
    }
}

/// A path below the workspace, in one form: relative, without `.` and `..`. The workspace itself is empty.
pub(super) fn below(path: &str) -> Result<PathBuf, Problem> {
    let outside = || {
        Problem::fixable(format!("`{}` is not a path below the workspace", tell::head_and_tail(path, 100)))
            .advise("Write it relative to the workspace and without `..`.")
    };
    if path.contains('\0') || path.len() > 4096 {
        return Err(outside());
    }
    let path = Path::new(path);
    let path = if path.is_absolute() { path.strip_prefix(WORKSPACE).map_err(|_| outside())? } else { path };
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => plain.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(outside()),
        }
    }
    Ok(plain)
}

/// Likewise, of something in it.
pub(super) fn file(path: &str) -> Result<PathBuf, Problem> {
    let path = below(path)?;
    if path.as_os_str().is_empty() {
        return Err(Problem::fixable("this is the workspace, and no file").advise("Name a file in it."));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_path_stays_below_the_workspace_or_is_refused() {
        for (written, meant) in
            [("a", "a"), ("./a//b/", "a/b"), ("/workspace/a", "a"), ("/workspace", ""), (".", ""), ("-rf", "-rf")]
        {
            assert_eq!(below(written).unwrap(), Path::new(meant), "{written}");
        }
        for bad in ["..", "a/../b", "/etc/passwd", "/", "/workspace/../etc", "/workspaces/a", "a\0b", "/proc/self/root"]
        {
            assert!(below(bad).is_err(), "{bad:?}");
        }
        assert!(file(".").is_err() && file("a").is_ok());
    }

    proptest! {
        #[test]
        fn whatever_is_written_what_comes_out_has_plain_names_only(path in "[a./\\-]{0,20}") {
            if let Ok(path) = below(&path) {
                let is_plain = path.components().all(|part| matches!(part, Component::Normal(_)));
                prop_assert!(is_plain && !path.is_absolute());
            }
        }
    }
}
