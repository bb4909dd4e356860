//! How much one client may have, and how much is read of what it says.

use std::time::Duration;

use ringfence::LoopLimits;

/// Of one message. Code and files travel in it.
pub(crate) const MOST_MESSAGE: usize = 8 * 1024 * 1024;
/// Brackets within brackets in one message.
pub(crate) const MOST_NESTING: usize = 64;
/// How long a person has to answer a question.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_secs(5 * 60);
/// Questions of one client that wait for a second request.
pub(crate) const MOST_WAITING: usize = 16;
/// Runs whose changes a client may look at.
pub(crate) const MOST_RUNS: usize = 256;
/// A client that was quiet for this long begins anew with its budget for trying again.
pub(crate) const QUIET: Duration = Duration::from_secs(10 * 60);
/// After this long a run becomes a task, for clients that know tasks.
pub(crate) const TASK_AFTER: Duration = Duration::from_secs(15);
/// Tasks of one client, with those whose results are kept. A run beyond that stays a call.
pub(crate) const MOST_TASKS: usize = 32;
/// How long the result of a task is kept.
pub(crate) const TASK_KEPT: Duration = Duration::from_secs(60 * 60);
/// How long a call that was cancelled may take to end before it is dropped, which kills what it runs.
pub(crate) const ENDS_WITHIN: Duration = Duration::from_secs(10);
/// Between two notices of progress.
pub(crate) const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// How much one client may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Calls at the same time.
    pub calls: usize,
    /// Programs that run at the same time.
    pub runs: usize,
    /// Sandboxes that are kept at the same time.
    pub sandboxes: usize,
    /// The time that its programs may run in all.
    pub run_time: Duration,
    /// Runs that may fail in a row before it is told to stop; 0 is any number.
    pub retries: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { calls: 32, runs: 8, sandboxes: 8, run_time: Duration::from_secs(24 * 60 * 60), retries: 100 }
    }
}

impl Limits {
    pub(crate) fn of_loops(&self) -> LoopLimits {
        // Runs alone use up the budget, and are counted apart.
        LoopLimits { retries: 0, ..LoopLimits::default() }
    }
}
