//! Images that were found for runs before their walls are raised. What was shown to be used is then what is used, and the engine
//! is asked once.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use super::image::Resolved;
use crate::run_id::RunId;

/// Of runs that are never raised, no more are kept.
const MOST: usize = 64;

/// What was found, the oldest first.
#[derive(Debug, Default)]
pub(super) struct FoundImages(Mutex<VecDeque<(RunId, Resolved)>>);

impl FoundImages {
    /// Keeps what was found for `run`.
    pub(super) fn put(&self, run: &RunId, image: Resolved) {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if found.len() >= MOST {
            found.pop_front();
        }
        found.push_back((run.clone(), image));
    }

    /// What was found for `run`, once.
    pub(super) fn take(&self, run: &RunId) -> Option<Resolved> {
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = found.iter().position(|(known, _)| known == run)?;
        found.remove(at).map(|(_, image)| image)
    }
}
