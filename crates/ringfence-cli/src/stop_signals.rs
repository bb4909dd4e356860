//! The signals that stop a run.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::run::{HUNG_UP, INTERRUPTED, TERMINATED};

/// Listens for all of them. From then on none of them ends this process by itself.
#[derive(Debug)]
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl StopSignals {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The exit code for the next one. None is lost when this is given up.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => INTERRUPTED,
            _ = self.terminate.recv() => TERMINATED,
            _ = self.hangup.recv() => HUNG_UP,
        }
    }
}
