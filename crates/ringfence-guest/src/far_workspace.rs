//! The workspace of a far guest: filled by the host, and told back to it.

use std::ffi::OsStr;

use ringfence_linux::Layer;

use crate::far::{FarReport, FarWorkspace, Node};
use crate::streams::{OutOfTurn, TellFar};
use crate::workspace::Workspace;

/// What a far guest does with its workspace.
pub(crate) struct Keeping {
    what: FarWorkspace,
    state: State,
}

enum State {
    /// There is nothing to fill.
    AsItIs,
    /// The host is filling it.
    Filling(Workspace),
    /// It is as the host sent it, and programs may change it.
    Filled(Workspace),
    /// It could not be filled.
    Failed(String),
}

impl Keeping {
    /// The workspace at `path`, of which `what` becomes.
    pub(crate) fn new(path: &OsStr, what: FarWorkspace) -> Self {
        let state = match what {
            FarWorkspace::AsItIs => State::AsItIs,
            FarWorkspace::Kept | FarWorkspace::Forgotten => match Workspace::new(path) {
                Ok(workspace) => State::Filling(workspace),
                Err(error) => State::Failed(error.to_string()),
            },
        };
        Self { what, state }
    }

    /// Whether programs may be started.
    pub(crate) fn is_ready(&self) -> bool {
        matches!(self.state, State::AsItIs | State::Filled(_))
    }

    /// Takes in a part.
    pub(crate) fn make(&mut self, nodes: Vec<Node>) -> Result<(), OutOfTurn> {
        match &mut self.state {
            State::Filling(workspace) => {
                if let Err(error) = workspace.make(nodes) {
                    self.state = State::Failed(error.to_string());
                }
                Ok(())
            }
            // It is told when the host says that this was all.
            State::Failed(_) => Ok(()),
            State::AsItIs | State::Filled(_) => Err(OutOfTurn),
        }
    }

    /// That was all of it.
    pub(crate) fn made(&mut self, tell: TellFar<'_>) -> Result<(), OutOfTurn> {
        let state = std::mem::replace(&mut self.state, State::AsItIs);
        self.state = match state {
            State::Filling(mut workspace) => match workspace.made() {
                Ok(()) => State::Filled(workspace),
                Err(error) => State::Failed(error.to_string()),
            },
            State::Failed(words) => State::Failed(words),
            State::AsItIs | State::Filled(_) => return Err(OutOfTurn),
        };
        tell(FarReport::Filled(match &self.state {
            State::Failed(words) => Err(words.clone()),
            _ => Ok(()),
        }));
        Ok(())
    }

    /// Tells what differs now, and says whether anything does. What cannot be found out may differ.
    pub(crate) fn collect(&mut self, tell: TellFar<'_>) -> Layer {
        let found = match &mut self.state {
            State::Filled(workspace) if self.what == FarWorkspace::Kept => workspace.collect(&mut |nodes| {
                tell(FarReport::Differs(nodes));
                Ok(())
            }),
            _ => Err(std::io::Error::other("this workspace is not kept, or was never filled")),
        };
        let (layer, told) = match found {
            Ok(found) => (if found.changed { Layer::Changed } else { Layer::Unchanged }, Ok(())),
            Err(error) => (Layer::Changed, Err(error.to_string())),
        };
        tell(FarReport::Collected(told));
        layer
    }

    /// What is told at the end, when nothing runs any more.
    pub(crate) fn finish(&mut self, tell: TellFar<'_>) -> Layer {
        match (&self.state, self.what) {
            (State::Filled(_), FarWorkspace::Kept) => self.collect(tell),
            // No program was started, or nobody wants to know.
            _ => Layer::Unchanged,
        }
    }
}
