//! Which backends a test machine must have, and what to say about one that is missing.

use ringfence::{Capabilities, Engine, Unavailable};
use ringfence_policy::BackendKind;

/// Names the backends whose absence is a failure, separated by commas.
pub const REQUIRED: &str = "RINGFENCE_TEST_REQUIRE";

/// What to do with a backend on this machine.
#[derive(Debug)]
pub enum Presence {
    /// It can be attacked.
    Here(Capabilities),
    /// It is missing, and nobody asked for it. Print this line.
    Skip(String),
    /// It is missing, and it was required.
    Fail(String),
}

/// Looks for `kind` through `engine`. `required` is the value of [`REQUIRED`].
pub async fn presence(engine: &Engine, kind: BackendKind, required: &str) -> Presence {
    let found = engine.probe().await.into_iter().find(|(probed, _)| *probed == kind);
    let missing = match found {
        Some((_, Ok(capabilities))) => return Presence::Here(capabilities),
        Some((_, Err(Unavailable { reason, fix }))) => format!("`{kind}` is missing: {reason} (fix: {fix})"),
        None => format!("`{kind}` is missing: the engine does not know it"),
    };
    if required.split(',').any(|name| name.trim() == kind.to_string()) {
        Presence::Fail(format!("{missing}, and {REQUIRED} names it"))
    } else {
        Presence::Skip(format!("SKIPPED: {missing}"))
    }
}
