//! What an agent's own tools are about to do: read in the agent's format, judged by the policy, and answered in the same format.
//!
//! Each agent has a file that translates; what is allowed is decided in one place. Whatever cannot be read or judged is an error, and
//! whoever asked denies it. This crate looks at names of files, to follow links, and changes, starts and prints nothing.

mod agent;
mod call;
mod claude_code;
mod codex;
mod cursor;
mod files;
mod gemini;
mod head;
mod input;
mod judge;
mod mask;
mod names;
mod paths;
mod search;
mod shell;
mod web;
mod wrapper;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;

pub use agent::Agent;
pub use call::{Answer, Call, Event, Returned};
pub use files::shown;
pub use input::parse;
pub use judge::{Ground, Judge, Wall};
pub use names::is_us;
pub use wrapper::joined;

/// The longest call that is read, in bytes. Files that a model writes are in it as a whole.
pub const MOST_BYTES: usize = 32 * 1024 * 1024;

/// Why a call could not be judged, which denies it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotJudged(String);

impl NotJudged {
    /// It could not be, for this reason.
    pub fn because(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}
