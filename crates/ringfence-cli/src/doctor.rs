//! `ringfence doctor`.

use ringfence::host::{Fact, facts};
use ringfence::{Capabilities, Guarantee, Strength, Unavailable};
use ringfence_policy::BackendKind;
use serde_json::{Value, json};

use crate::args::DoctorArgs;
use crate::{Done, Fatal, chatter, policy, setup};

#[derive(Debug, thiserror::Error)]
#[error("could not write to standard output")]
struct DoctorFailure(#[source] std::io::Error);

impl Fatal for DoctorFailure {}

type Probed = (BackendKind, Result<Capabilities, Unavailable>);

/// Exit code 1 when no backend that the policy permits can be used.
pub(crate) fn doctor(args: &DoctorArgs) -> Done {
    let context = setup::load(&args.layers, Vec::new())?;
    let files = policy::names(&context.loaded.files);
    let state = setup::state().map_err(setup::SetupFailure::from)?;
    let engine = setup::engine(context)?;
    let (probed, would_use) =
        setup::runtime()?.block_on(async { (engine.probe().await, engine.would_use().await.ok()) });
    let facts = facts();
    let text = if args.json {
        format!("{:#}\n", as_json(&facts, &probed, would_use))
    } else {
        let mut text = String::from("this host\n");
        for fact in &facts {
            text.push_str(&format!("  {:<16} {}\n", fact.name, fact.value));
        }
        text.push_str(&format!("  {:<16} {}\n", "ledger", state.path().display()));
        let files = if files.is_empty() { "built-in defaults only".to_owned() } else { files.join(", ") };
        text.push_str(&format!("  {:<16} {files}\n\nbackends\n", "policy"));
        for (kind, result) in &probed {
            text.push_str(&describe(*kind, result));
        }
        text.push('\n');
        text.push_str(&match would_use {
            Some(kind) if kind.isolates() => format!("A run would use `{kind}`.\n"),
            Some(kind) => {
                format!("A run would use `{kind}`, which is no wall: the program sees your files and network.\n")
            }
            None => format!(
                "No backend that the policy permits can be used here.\n\nfix: {}\n",
                "ringfence run --backend spawn -- COMMAND   (no wall; by your explicit choice)"
            ),
        });
        text
    };
    chatter::data(&text).map_err(DoctorFailure)?;
    Ok(u8::from(would_use.is_none()))
}

fn describe(kind: BackendKind, result: &Result<Capabilities, Unavailable>) -> String {
    match result {
        Err(unavailable) => {
            format!("  {:<11} no   {}\n{:19}fix: {}\n", kind.to_string(), unavailable.reason, "", unavailable.fix)
        }
        Ok(capabilities) => {
            let names = |strength: Option<Strength>| -> String {
                let names: Vec<&str> = Guarantee::ALL
                    .into_iter()
                    .filter(|guarantee| capabilities.strength(*guarantee) == strength)
                    .map(Guarantee::name)
                    .collect();
                if names.is_empty() { "nothing".to_owned() } else { names.join(" ") }
            };
            format!(
                "  {:<11} yes  keeps    {}\n{:19}watches  {}\n{:19}lacks    {}\n",
                kind.to_string(),
                names(Some(Strength::Enforced)),
                "",
                names(Some(Strength::Watched)),
                "",
                names(None)
            )
        }
    }
}

fn as_json(facts: &[Fact], probed: &[Probed], would_use: Option<BackendKind>) -> Value {
    let backends: Vec<Value> = probed
        .iter()
        .map(|(kind, result)| match result {
            Ok(capabilities) => {
                let kept: serde_json::Map<String, Value> = Guarantee::ALL
                    .into_iter()
                    .map(|guarantee| (guarantee.name().to_owned(), json!(capabilities.strength(guarantee))))
                    .collect();
                json!({ "backend": kind, "usable": true, "guarantees": kept })
            }
            Err(unavailable) => {
                json!({ "backend": kind, "usable": false, "reason": unavailable.reason, "fix": unavailable.fix })
            }
        })
        .collect();
    let host: serde_json::Map<String, Value> =
        facts.iter().map(|fact| (fact.name.to_owned(), json!(fact.value))).collect();
    json!({ "host": host, "backends": backends, "wouldUse": would_use })
}
