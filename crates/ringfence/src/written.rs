//! What the ledger says about a run.

use ringfence_policy::{Grant, ResolvedPolicy};
use serde_json::{Value, json};

use crate::conclude;
use crate::engine::{Inner, Prepared, Stopped};
use crate::judge::{Cleared, describe};
use crate::ledger::{Durability, Entry, Kind, LedgerError};
use crate::outcome::{Failure, FailureKind, FellBack, Outcome, Status};
use crate::plan::Plan;
use crate::request::Request;
use crate::run_id::RunId;
use crate::workspace::Counts;

impl Inner {
    /// What the ledger must know before anything starts: how it will be run, after what was `requested` where it does not know that
    /// yet.
    pub(crate) fn entries_before_the_start(
        &self,
        requested: Option<Entry>,
        prepared: &Prepared<'_>,
        image: Option<&str>,
    ) -> Vec<Entry> {
        let Prepared { plan, chosen, cleared } = prepared;
        let run_id = plan.run_id();
        let judged = |requested| [requested, self.entry(run_id, Kind::Judged, judged_body(cleared))];
        let planned = planned_body(plan, chosen.fell_back.as_ref(), image, &self.grants);
        let planned = self.entry(run_id, Kind::Planned, planned);
        requested.map(judged).into_iter().flatten().chain([planned]).collect()
    }

    /// Writes down a request that goes no further. One that was taken back was not judged.
    pub(crate) fn write_stopped(&self, run_id: &RunId, requested: Entry, stopped: Stopped) -> Outcome {
        let mut entries = vec![requested];
        if stopped.outcome.status != Status::Cancelled {
            let Outcome { refusal, error, .. } = &stopped.outcome;
            let judged = json!({ "verdict": "deny", "refusal": refusal, "error": error });
            entries.push(self.entry(run_id, Kind::Judged, judged));
        }
        entries.push(self.entry(run_id, Kind::Ended, ended_body(&stopped.outcome, None)));
        match self.ledger.append(&entries, Durability::Written) {
            Ok(()) => stopped.outcome,
            Err(error) => conclude::failed(stopped.outcome, ledger_failure(&error)),
        }
    }
}

/// How it will be run.
pub(crate) fn planned_body(plan: &Plan, fell_back: Option<&FellBack>, image: Option<&str>, grants: &Value) -> Value {
    json!({
        "backend": plan.backend(),
        "policyHash": hash_policy(plan.policy()),
        "workspace": plan.workspace().to_string_lossy(),
        "image": image,
        "timeoutMs": u64::try_from(plan.limits().timeout.as_millis()).unwrap_or(u64::MAX),
        "notEnforced": plan.not_enforced(),
        "fellBack": fell_back,
        "grants": grants,
    })
}

/// Why it may be run: what rules found, and who answered for it.
pub(crate) fn judged_body(cleared: &Cleared) -> Value {
    let mut body = json!({ "verdict": "allow", "approvedBy": cleared.approved_by() });
    if !cleared.approvals().is_empty() {
        body["approvals"] = json!(cleared.approvals());
    }
    if !cleared.findings().is_empty() {
        body["findings"] = json!(cleared.findings());
    }
    body
}

/// Names a policy by all of it.
pub(crate) fn hash_policy(policy: &ResolvedPolicy) -> String {
    blake3::hash(policy.hash_input().as_bytes()).to_hex().to_string()
}

/// Who permitted what.
pub(crate) fn record_grant(grant: &Grant) -> Value {
    json!({ "by": &grant.by, "why": &grant.why, "widen": &grant.widen })
}

/// What was asked for, and by whom; in which session.
pub(crate) fn requested_body(request: &Request, session: Option<&RunId>) -> Value {
    let mut body = json!({
        "subject": describe(&request.work),
        "cwd": request.cwd.to_string_lossy(),
        "env": request.env.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "files": request.files.len(),
        "door": &request.metadata.door,
        "labels": &request.metadata.labels,
        "uid": rustix::process::getuid().as_raw(),
        "pid": rustix::process::getpid().as_raw_nonzero(),
    });
    if let Some(session) = session {
        body["session"] = json!(session);
    }
    body
}

/// How it ended; what it changed is named by the hash of its list.
pub(crate) fn ended_body(outcome: &Outcome, list: Option<&str>) -> Value {
    let mut body = json!({
        "status": outcome.status,
        "exitCode": outcome.exit_code,
        "signal": outcome.signal,
        "resourceUsage": outcome.resource_usage,
        "outputTruncated": outcome.output_truncated,
        "violations": outcome.violations,
        "error": outcome.error,
        "changes": outcome.changes.map(|counts| changes_body(counts, list)),
    });
    if !outcome.network.is_empty() || outcome.network_omitted > 0 {
        body["network"] = json!({ "contacts": outcome.network, "omitted": outcome.network_omitted });
    }
    body
}

/// What was changed.
pub(crate) fn changes_body(counts: Counts, list: Option<&str>) -> Value {
    json!({ "added": counts.added, "changed": counts.changed, "removed": counts.removed, "list": list })
}

/// A ledger that cannot be written, as an outcome shows it.
pub(crate) fn ledger_failure(error: &LedgerError) -> Failure {
    Failure::new(FailureKind::Ledger, error).hint(
        "nothing runs without its entry in the ledger: make room on the disk, or set RINGFENCE_STATE_DIR to a folder that can be written",
    )
}
