//! `none`: the program runs directly, with the host's environment. Used only when it is named.

use ringfence_linux::Privileges;
use ringfence_policy::{BackendKind, ResolvedPolicy};

use super::spawn::{BY_SUBREAPER, kept_by_the_keeper, needs_of_the_keeper};
use super::{Backend, Capabilities, Sandbox, StartError, Unavailable, process, program};
use crate::BoxFuture;
use crate::plan::Plan;
use crate::state::StateFolder;

/// No wall at all: time and output are limited, and nothing survives; that is all.
#[derive(Debug)]
pub struct NoWall {
    state: StateFolder,
}

impl NoWall {
    /// A backend that keeps code and files of runs below `state`.
    pub fn new(state: StateFolder) -> Self {
        Self { state }
    }
}

impl Backend for NoWall {
    fn kind(&self) -> BackendKind {
        BackendKind::None
    }

    fn probe<'a>(&'a self, _policy: &'a ResolvedPolicy) -> BoxFuture<'a, Result<Capabilities, Unavailable>> {
        Box::pin(async {
            needs_of_the_keeper()?;
            Ok(Capabilities::new(BackendKind::None, kept_by_the_keeper(BY_SUBREAPER)))
        })
    }

    fn raise<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Sandbox, StartError>> {
        Box::pin(async move {
            let program = program::find(plan, &self.state)?;
            process::prepare(plan, program, Privileges::Host, &[])
        })
    }
}
