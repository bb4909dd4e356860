//! The attacks that every backend must survive, and the canaries that show whether it did.
//!
//! A negative test proves nothing unless its twin succeeds: [`conformance`] runs each probe without the guarantee first,
//! and a probe that does not reach its [canary] there makes the case inconclusive. What a probe prints, and the
//! code that it exits with, decide nothing where an effect on the host can be seen.

pub mod backends;
pub mod canary;
pub mod conformance;
pub mod guests;
pub mod oci;
pub mod place;

use std::io;

/// Why a test could not be carried out; it says nothing about the backend.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// A file, process or socket of the test itself failed.
    #[error("could not {attempt}")]
    Io {
        /// What was attempted.
        attempt: String,
        /// Why it failed.
        source: io::Error,
    },
    /// The policy of a test is not valid.
    #[error("the policy of the test is not valid: {0}")]
    Policy(String),
    /// No engine could be made.
    #[error("could not make an engine")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A run ended without an outcome.
    #[error("a run brought no outcome")]
    Run(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Trouble {
    /// Turns a failed file operation into trouble, with what was attempted.
    pub fn io<E: Into<io::Error>>(attempt: impl Into<String>) -> impl FnOnce(E) -> Self {
        let attempt = attempt.into();
        move |source| Self::Io { attempt, source: source.into() }
    }
}
