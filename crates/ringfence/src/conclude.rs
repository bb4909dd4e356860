//! Puts an outcome together, with what a model should know about it.

use ringfence_policy::{NetMode, ResolvedPolicy};

use crate::event::Violation;
use crate::monitor::{End, Reason, Watched};
use crate::outcome::{Failure, FailureKind, Outcome, ResourceUsage, Status};
use crate::plan::Plan;
use crate::refusal::Refusal;
use crate::run_id::RunId;
use crate::workspace::apply::ApplyError;
use crate::workspace::{AtOnce, Found, KeepError};

/// An outcome with all that is known before the start.
pub(crate) fn begin(run_id: RunId, plan: Option<&Plan>, policy: &ResolvedPolicy) -> Outcome {
    Outcome {
        run_id,
        status: Status::CouldNotRun,
        exit_code: None,
        signal: None,
        stdout: String::new(),
        stderr: String::new(),
        stdout_base64: None,
        stderr_base64: None,
        timed_out: false,
        oom_killed: false,
        output_truncated: false,
        workspace_changed: false,
        changes: None,
        applied: None,
        resource_usage: ResourceUsage::default(),
        effective_policy: policy.canonical_json(),
        enforced: plan.map(|plan| plan.receipt().to_vec()).unwrap_or_default(),
        not_enforced: plan.map(|plan| plan.not_enforced().to_vec()).unwrap_or_default(),
        violations: Vec::new(),
        findings: Vec::new(),
        network: Vec::new(),
        network_omitted: 0,
        unreachable: Vec::new(),
        refusal: None,
        error: None,
        advice: None,
        retryable: false,
        backend: plan.map(Plan::backend),
        fell_back: None,
        image: policy.image.as_ref().map(|image| image.value.to_string()),
        interpreter: None,
        container: None,
        started_at: jiff::Timestamp::now().to_string(),
        env_withheld: plan.map(|plan| plan.env_withheld().to_vec()).unwrap_or_default(),
    }
}

/// Policy would not.
pub(crate) fn refused(outcome: Outcome, refusal: Refusal) -> Outcome {
    Outcome {
        status: Status::Refused,
        advice: Some(refusal.advice.clone()),
        retryable: refusal.retryable,
        refusal: Some(refusal),
        ..outcome
    }
}

/// The caller wanted it no more before it began.
pub(crate) fn cancelled(outcome: Outcome) -> Outcome {
    let advice = Some("The run was cancelled by its caller before it began.".to_owned());
    Outcome { status: Status::Cancelled, enforced: Vec::new(), advice, signal: Some(15), ..outcome }
}

/// We could not. What was to be enforced was not shown to be.
pub(crate) fn failed(outcome: Outcome, failure: Failure) -> Outcome {
    let (advice, retryable) = match failure.kind {
        FailureKind::BadRequest => ("Correct the request and try again.", true),
        FailureKind::NotFound => ("The program is not there. Use one that is, or write the path of the program.", true),
        FailureKind::NotExecutable => {
            ("The file cannot be executed. Run it with its interpreter, or choose another.", true)
        }
        FailureKind::BackendUnavailable | FailureKind::Ledger | FailureKind::Start | FailureKind::Changes => {
            ("The sandbox could not be started. Trying again will not help; tell the person you work for.", false)
        }
    };
    Outcome {
        status: Status::CouldNotRun,
        enforced: Vec::new(),
        advice: Some(advice.to_owned()),
        retryable,
        error: Some(failure),
        ..outcome
    }
}

/// The program ran. It named these `hosts`.
pub(crate) fn ended(mut outcome: Outcome, watched: Watched, policy: &ResolvedPolicy, hosts: &[String]) -> Outcome {
    outcome.set_output(&watched.stdout, &watched.stderr);
    outcome.workspace_changed = watched.layer_changed;
    outcome.resource_usage = watched.usage;
    outcome.violations = watched.violations;
    outcome.network = watched.network.list;
    outcome.network_omitted = watched.network.omitted;
    let wait_status = match (watched.end, watched.ended_by) {
        (End::Reaped(status), _) => status,
        // We killed it from outside, because its keeper did not answer.
        (End::Lost, Some(_)) => 9,
        (End::Lost, None) => {
            outcome.violations.push(Violation {
                rule: "proc.no-survivors".to_owned(),
                message: "the process that keeps the program was killed".to_owned(),
            });
            let chain = vec!["lost the program: the process that keeps it was killed".to_owned()];
            return failed(outcome, Failure { kind: FailureKind::Start, chain, hint: None });
        }
    };
    let signal = wait_status & 0x7f;
    if signal == 0 {
        outcome.exit_code = Some((wait_status >> 8) & 0xff);
    } else {
        outcome.signal = Some(signal);
    }
    outcome.status = match (watched.ended_by, signal) {
        (Some(Reason::TimeLimit), _) => Status::TimedOut,
        (Some(Reason::Memory), _) => Status::OutOfMemory,
        (Some(Reason::Processes), _) => Status::TooManyProcesses,
        (Some(Reason::Cancelled), _) => Status::Cancelled,
        (None, 0) => Status::Exited,
        (None, _) => Status::Signalled,
    };
    outcome.timed_out = outcome.status == Status::TimedOut;
    outcome.oom_killed = outcome.status == Status::OutOfMemory;
    let has_failed = outcome.status == Status::Exited && outcome.exit_code != Some(0);
    if has_failed && policy.net.mode.value == NetMode::None {
        outcome.unreachable = hosts.to_vec();
    }
    (outcome.advice, outcome.retryable) = advise(&outcome, policy);
    outcome
}

/// Puts in what of the changes went straight to the host.
pub(crate) fn applied(outcome: &mut Outcome, applied: Result<AtOnce, ApplyError>) {
    match applied {
        Ok(applied) => {
            for (why, rule, what) in [("flagged", "fs.protect", "protects"), ("denied", "fs.deny", "denies")] {
                let held: Vec<&str> =
                    applied.named.iter().filter(|named| named.why == why).map(|named| named.path.as_str()).collect();
                if !held.is_empty() {
                    let message = format!("the policy {what} what was changed; it was held back: {}", held.join(", "));
                    outcome.violations.push(Violation { rule: rule.to_owned(), message });
                }
            }
            outcome.applied = Some(applied);
        }
        Err(error) => {
            outcome.error.get_or_insert_with(|| not_applied(&error));
        }
    }
}

/// That what was changed did not reach the host, or not all of it.
pub(crate) fn not_applied(error: &ApplyError) -> Failure {
    Failure::new(FailureKind::Changes, error)
        .hint("what was changed is kept; go on with `ringfence apply`, or throw it away with `ringfence discard`")
}

/// Puts in what became of what the program changed; returns what was kept.
pub(crate) fn kept(outcome: &mut Outcome, kept: Result<Option<Found>, KeepError>) -> Option<Found> {
    match kept {
        Ok(Some(found)) => {
            outcome.changes = Some(found.set.counts());
            Some(found)
        }
        Ok(None) => {
            // What was written is no different from what was there.
            outcome.workspace_changed = false;
            None
        }
        Err(error) => {
            outcome.error.get_or_insert_with(|| error.failure());
            let advice = "What it changed in the workspace could not be kept, and is lost. Let it change less at a time, and \
                          put what is needed only while it runs into /tmp.";
            outcome.advice.get_or_insert_with(|| advice.to_owned());
            None
        }
    }
}

fn advise(outcome: &Outcome, policy: &ResolvedPolicy) -> (Option<String>, bool) {
    let proc = &policy.proc;
    match outcome.status {
        Status::Exited if outcome.exit_code == Some(0) => (None, false),
        Status::Exited if outcome.violations.iter().any(|violation| violation.rule == "fs.size") => (
            Some(format!(
                "All of the {} that may be written (`fs.size`) was in use at its end. Write less, or remove files that are \
                 not needed any more, and try again.",
                policy.fs.size.value
            )),
            true,
        ),
        Status::Exited if outcome.network.iter().any(|contact| !contact.allowed) => {
            let hosts: Vec<String> = policy.net.allow.iter().map(|rule| rule.value.to_string()).collect();
            let hosts = if hosts.is_empty() { "no host".to_owned() } else { hosts.join(", ") };
            (
                Some(format!(
                    "It asked for hosts that the policy does not allow (see `violations`). Reachable: {hosts}. Do without the \
                     others, or ask the person you work for to allow them; there is no other way out."
                )),
                true,
            )
        }
        Status::Exited if !outcome.unreachable.is_empty() => (
            Some(format!(
                "The program failed, and there is no network in its sandbox: {} cannot be reached from there. Do without, or ask \
                 the person you work for to allow it; there is no other way out.",
                outcome.unreachable.join(", ")
            )),
            true,
        ),
        Status::Exited => {
            (Some("The program itself failed. Read its output, correct it, and try again.".to_owned()), true)
        }
        Status::Signalled => (
            Some("A signal ended the program, not its sandbox. Look for a crash or for a `kill` in it.".to_owned()),
            true,
        ),
        Status::TimedOut => {
            let more = if proc.timeout.value < proc.max_timeout.value {
                format!("ask for up to {}, or ", proc.max_timeout.value)
            } else {
                String::new()
            };
            (
                Some(format!(
                    "The time limit of {} was reached. What it wrote until then is kept. {}make it do less at a time.",
                    proc.timeout.value,
                    capitalise(&more)
                )),
                true,
            )
        }
        Status::OutOfMemory => (
            Some(format!("The memory limit of {} was reached. Work on smaller parts at a time.", proc.memory.value)),
            true,
        ),
        Status::TooManyProcesses => (
            Some(format!(
                "More than {} processes and threads were started. Start fewer at a time.",
                proc.processes.value
            )),
            true,
        ),
        Status::Cancelled => (Some("The run was cancelled by its caller.".to_owned()), false),
        Status::Refused | Status::CouldNotRun => (outcome.advice.clone(), outcome.retryable),
    }
}

fn capitalise(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
