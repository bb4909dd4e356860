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
    /// The host makes places of it what they were. Why that could not be done is told at the end.
    PuttingBack(Workspace, Option<String>),
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
        if self.what == FarWorkspace::Kept {
            self.begin_to_put_back();
        }
        match &mut self.state {
            State::PuttingBack(workspace, failed) => {
                if failed.is_none() {
                    *failed = workspace.put(nodes).err().map(|error| error.to_string());
                }
                Ok(())
            }
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

    /// What is sent to a workspace that was filled puts an earlier state of it back.
    fn begin_to_put_back(&mut self) {
        self.state = match std::mem::replace(&mut self.state, State::AsItIs) {
            State::Filled(workspace) => State::PuttingBack(workspace, None),
            other => other,
        };
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
            State::PuttingBack(mut workspace, failed) => {
                let closed = workspace.put_all().err().map(|error| error.to_string());
                // It is what it is: the host puts back what was there before, or tries again.
                self.state = State::Filled(workspace);
                tell(FarReport::Filled(failed.or(closed).map_or(Ok(()), Err)));
                return Ok(());
            }
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
        self.state = match std::mem::replace(&mut self.state, State::AsItIs) {
            // Nobody will say any more that this was all; what is there is told as it is.
            State::PuttingBack(mut workspace, _) => match workspace.put_all() {
                Ok(()) => State::Filled(workspace),
                Err(error) => {
                    tell(FarReport::Collected(Err(error.to_string())));
                    return Layer::Changed;
                }
            },
            other => other,
        };
        match (&self.state, self.what) {
            (State::Filled(_), FarWorkspace::Kept) => self.collect(tell),
            // No program was started, or nobody wants to know.
            _ => Layer::Unchanged,
        }
    }
}
