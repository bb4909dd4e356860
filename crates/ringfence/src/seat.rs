//! Where something is to run, and who is asked about it there.

use std::sync::Arc;

use crate::approve::Approver;
use crate::run_id::RunId;
use crate::session::Open;

/// A run's place in a session that is open.
pub(crate) struct Seat {
    pub(crate) session: Arc<Open>,
    /// Who is asked about this run, when that is somebody else than whoever the engine asks: several people may use one session.
    pub(crate) approver: Option<Arc<dyn Approver>>,
}

/// Where something is to run.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// In a sandbox of its own.
    Fresh,
    /// In a session that is open.
    In(&'a Seat),
    /// Nothing yet: a session is to be opened.
    ToKeep,
}

impl<'a> Place<'a> {
    /// The session's id, when it is in one.
    pub(crate) fn session(&self) -> Option<&'a RunId> {
        match self {
            Self::In(seat) => Some(&seat.session.with.id),
            Self::Fresh | Self::ToKeep => None,
        }
    }

    /// Who is asked, when it is not whoever the engine asks.
    pub(crate) fn approver(&self) -> Option<&'a Arc<dyn Approver>> {
        match self {
            Self::In(seat) => seat.approver.as_ref(),
            Self::Fresh | Self::ToKeep => None,
        }
    }
}
