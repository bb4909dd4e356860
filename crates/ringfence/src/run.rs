//! One program in a sandbox, seen from the caller.

use rustix::process::Signal;
use tokio::sync::{mpsc, watch};

use crate::event::Event;
use crate::outcome::Outcome;
use crate::request::TerminalSize;
use crate::run_id::RunId;

/// A run that goes on. Dropping it ends the run.
#[derive(Debug)]
pub struct Run {
    id: RunId,
    events: mpsc::Receiver<Event>,
    cancel: watch::Sender<bool>,
    wishes: mpsc::UnboundedSender<Wish>,
}

/// What a caller may want of a program that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wish {
    /// A signal for its group.
    Signal(Signal),
    /// Another size of its terminal.
    Resize(TerminalSize),
}

/// The caller of a run, as the run sees it.
#[derive(Debug)]
pub(crate) struct Caller {
    pub(crate) cancel: watch::Receiver<bool>,
    pub(crate) wishes: mpsc::UnboundedReceiver<Wish>,
}

/// The run's task ended without an outcome, because its runtime was shut down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run was abandoned before it ended")]
pub struct Abandoned;

impl Run {
    /// A run and, for whoever carries it out, its caller.
    pub(crate) fn new(id: RunId, events: mpsc::Receiver<Event>) -> (Self, Caller) {
        let (cancel, cancelled) = watch::channel(false);
        let (wishes, wished) = mpsc::unbounded_channel();
        (Self { id, events, cancel, wishes }, Caller { cancel: cancelled, wishes: wished })
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

    /// What can be done with the program while somebody else waits for it.
    pub fn control(&self) -> RunControl {
        RunControl { wishes: self.wishes.clone() }
    }
}

/// What can be done with a program that runs. Holding one does not keep the run.
#[derive(Debug, Clone)]
pub struct RunControl {
    wishes: mpsc::UnboundedSender<Wish>,
}

impl RunControl {
    /// Sends a signal to the program and its group.
    pub fn signal(&self, signal: Signal) {
        // A run that is over needs none.
        self.wishes.send(Wish::Signal(signal)).ok();
    }

    /// Gives the program's terminal another size.
    pub fn resize(&self, size: TerminalSize) {
        self.wishes.send(Wish::Resize(size)).ok();
    }
}

/// Waits until the caller wants the run no more, or is gone.
pub(crate) async fn until_cancelled(mut cancelled: watch::Receiver<bool>) {
    while !*cancelled.borrow_and_update() {
        if cancelled.changed().await.is_err() {
            return;
        }
    }
}
