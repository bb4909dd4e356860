//! Sandboxes that are kept: opening, listing, closing.

use std::sync::Arc;
use std::time::Duration;

use ringfence::SessionRequest;
use ringfence::session::{IDLE, LIFE, MOST_LIFE};
use ringfence_policy::Overrides;
use serde::Deserialize;
use serde_json::json;

use super::inside::WORKSPACE;
use super::{Problem, Said};
use crate::ask::Relay;
use crate::call::{Call, hex};
use crate::client::Sandbox;
use crate::{server, tell};

const MOST_LABEL: usize = 100;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Create {
    label: Option<String>,
    idle: Option<u64>,
    #[serde(alias = "policy_overrides")]
    policy_overrides: Option<Overrides>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct List {}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Close {
    #[serde(alias = "sandbox_id")]
    sandbox_id: String,
}

pub(super) async fn create(call: &Call, arguments: Create) -> Result<Said, Problem> {
    // Those that are over need no room any more.
    call.client.sandboxes().await;
    let room = call.client.begin_sandbox()?;
    let id = server::random::<16>().map_err(|_| Problem::later("there are no random numbers to be had"))?;
    let idle = arguments.idle.map_or(IDLE, Duration::from_secs).min(MOST_LIFE);
    let request = SessionRequest {
        overrides: arguments.policy_overrides.unwrap_or_default(),
        idle,
        metadata: call.metadata.clone(),
        ..SessionRequest::default()
    };
    let relay = Arc::new(Relay::default());
    let engine = call.shared.setup.engine.asking(Arc::<Relay>::clone(&relay));
    let opened = tokio::select! {
        opened = engine.open_session(request) => opened,
        () = call.cancelled.cancelled() => return Err(Problem::never("the call was cancelled")),
    };
    let session = match opened {
        Ok(session) => session,
        Err(outcome) => {
            let (text, structured) = (tell::text(&outcome), tell::json(&outcome));
            return Ok(Said { text, structured, well: false, more: Vec::new(), mark: tell::mark(&outcome) });
        }
    };
    let id: Arc<str> = format!("sbx_{}", hex(&id)).into();
    let backend = session.backend().to_string();
    let label = arguments.label.map(|label| label.chars().take(MOST_LABEL).collect::<String>().into());
    let since = ringfence::session::now().into();
    call.client.keep(Sandbox { id: Arc::clone(&id), session, since, label, relay }, room);
    let text = format!(
        "Opened {id} behind the {backend} wall; the workspace is at {WORKSPACE}. It is closed after {} s without a call.",
        idle.as_secs()
    );
    let structured = json!({
        "sandboxId": &*id,
        "backend": backend,
        "workspace": WORKSPACE,
        "idleSeconds": idle.as_secs(),
        "lifeSeconds": LIFE.as_secs(),
    });
    Ok(Said { mark: b"opened".to_vec(), ..Said::well(text, structured) })
}

pub(super) async fn list(call: &Call, _: List) -> Result<Said, Problem> {
    let open = call.client.sandboxes().await;
    let mut rows = Vec::new();
    let mut text = if open.is_empty() { "No sandbox is open.".to_owned() } else { "Open sandboxes:".to_owned() };
    for Sandbox { id, session, since, label, .. } in &open {
        let (backend, running) = (session.backend().to_string(), session.running());
        let called = label.as_deref().map_or_else(String::new, |label| format!(" ({label})"));
        text.push_str(&format!("\n{id}{called}: {backend}, since {since}, {running} running"));
        rows.push(json!({ "sandboxId": &**id, "label": label.as_deref(), "backend": backend, "since": &**since, "running": running }));
    }
    Ok(Said::well(text, json!({ "sandboxes": rows })))
}

pub(super) async fn close(call: &Call, arguments: Close) -> Result<Said, Problem> {
    let sandbox = call.client.sandbox(&arguments.sandbox_id).await?;
    let ended = sandbox.session.close().await;
    call.client.over(&sandbox, &ended);
    let mut text = format!("Closed {}.", sandbox.id);
    match (&ended.changes, &ended.applied) {
        (Some(counts), None) => text.push_str(&format!(
            " It changed the workspace: {} added, {} changed, {} removed; changes_diff shows it (runId {}).",
            counts.added, counts.changed, counts.removed, ended.id
        )),
        (Some(_), Some(applied)) => {
            text.push_str(&format!(" {} changes were applied, {} held back.", applied.applied, applied.left));
        }
        (None, _) => text.push_str(" It changed nothing in the workspace."),
    }
    if let Some(violation) = &ended.violation {
        text.push_str(&format!("\nviolation: {} ({})", violation.message, violation.rule));
    }
    if let Some(error) = &ended.error {
        text.push_str(&format!("\nWhat it changed could not be kept: {}", error.chain.join(": ")));
    }
    let structured = json!({ "closed": true, "runId": ended.id, "changes": ended.changes });
    Ok(Said { well: ended.error.is_none(), ..Said::well(text, structured) })
}
