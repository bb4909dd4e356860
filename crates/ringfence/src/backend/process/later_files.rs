//! Denied files that come into the workspace while a program runs.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::PoisonError;

use ringfence_guest::{Order, Received, Report};

use super::{Sandbox, Supervisor};
use crate::event::Violation;

/// The workspace behind a wall, as far as it was asked for.
#[derive(Debug, Default)]
pub(super) enum Asked {
    #[default]
    Nothing,
    ForBoth,
    /// The private layer is here.
    ForWorkspace(OwnedFd),
}

impl Sandbox {
    /// Asks a wall that is there for this program alone for the workspace, as soon as somebody has to do with it: what is denied
    /// and comes later is taken away there.
    pub(crate) fn look_for_later_files(&self) -> io::Result<()> {
        let (Supervisor::Guest(link), Some(later)) = (&self.supervisor, &self.later) else { return Ok(()) };
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if later.stands() || !matches!(*asked, Asked::Nothing) {
            return Ok(());
        }
        *asked = Asked::ForBoth;
        link.order(Order::Layer)?;
        link.order(Order::Workspace)
    }

    /// Takes the private layer and the workspace with it when they were asked for, and passes on everything else.
    pub(super) fn take_workspace(&self, received: Received) -> io::Result<Option<Report>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        match (received.report, received.descriptor, std::mem::take(&mut *asked)) {
            (Report::Layer { .. }, Some(upper), Asked::ForBoth) => *asked = Asked::ForWorkspace(upper),
            (Report::Workspace { .. }, Some(merged), Asked::ForWorkspace(upper)) => {
                if let Some(later) = &self.later {
                    later.stand(upper, merged)?;
                }
            }
            (report, _, before) => {
                *asked = before;
                return Ok(Some(report));
            }
        }
        Ok(None)
    }

    /// Denied files that came while the program ran, when nothing of it is left; and how they were looked for.
    pub(crate) fn later_files(&self) -> Option<(Vec<Violation>, String)> {
        let later = self.later.as_ref()?;
        if !matches!(self.supervisor, Supervisor::Kept(_)) {
            later.end();
        }
        let violations = self.released.map(|since| later.violations(since)).unwrap_or_default();
        Some((violations, later.evidence()))
    }
}
