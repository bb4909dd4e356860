//! One program in a sandbox, seen from the caller.

use tokio::sync::{mpsc, watch};

use crate::event::Event;
use crate::outcome::Outcome;
use crate::run_id::RunId;

/// A run that goes on. Dropping it ends the run.
#[derive(Debug)]
pub struct Run {
    id: RunId,
    events: mpsc::Receiver<Event>,
    cancel: watch::Sender<bool>,
}

/// The run's task ended without an outcome, because its runtime was shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run was abandoned before it ended")]
pub struct Abandoned;

impl Run {
    pub(crate) fn new(id: RunId, events: mpsc::Receiver<Event>, cancel: watch::Sender<bool>) -> Self {
        Self { id, events, cancel }
    }

    /// Its id.
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// The next thing that happens; nothing after [`Event::Ended`]. A caller who does not read stops the program's
    /// output, not its time limit.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Waits for the end, and leaves out everything on the way.
    pub async fn outcome(mut self) -> Result<Outcome, Abandoned> {
        while let Some(event) = self.events.recv().await {
            if let Event::Ended(outcome) = event {
                return Ok(*outcome);
            }
        }
        Err(Abandoned)
    }

    /// Asks the program to end, then kills it. The outcome still comes.
    pub fn cancel(&self) {
        self.cancel.send_replace(true);
    }
}
