//! Changes that go to the host without anybody looking first.

use crate::conclude;
use crate::engine::{Engine, Inner};
use crate::outcome::{Failure, FailureKind, Outcome, Status};
use crate::waiting::waiting;
use crate::workspace::apply::ApplyError;
use crate::workspace::at_once::{AtOnce, Terms, apply_at_once};
use crate::workspace::{Found, kept};

impl Inner {
    /// Takes what was changed straight to the host, as the policy says.
    pub(crate) fn apply_directly(&self, found: &Found) -> Result<AtOnce, ApplyError> {
        apply_at_once(&self.state, &self.ledger, &found.set, Terms::Direct)
    }
}

impl Engine {
    /// Applies what the run of `outcome` changed, all of it, if it succeeded and nobody needs to look at it first; the outcome
    /// then says what became of it. For a person who asked for that before the run.
    pub async fn apply_if_clean(&self, outcome: &mut Outcome) {
        if outcome.status == Status::Exited && outcome.exit_code == Some(0) && outcome.error.is_none() {
            self.apply_on(outcome, Terms::AllOrNothing);
        }
    }

    /// Applies what the run of `outcome` changed, however it ended, but for what nobody may apply without a look: that stays kept,
    /// and the outcome names it. For doors whose users look at the workspace between two runs.
    pub async fn apply_unflagged(&self, outcome: &mut Outcome) {
        self.apply_on(outcome, Terms::Unflagged);
    }

    fn apply_on(&self, outcome: &mut Outcome, terms: Terms) {
        if outcome.changes.is_none() || outcome.applied.is_some() {
            return;
        }
        let Inner { state, ledger, .. } = &*self.0;
        let applied = waiting(|| {
            let set = kept::of(state, &outcome.run_id).load().map_err(|error| {
                Failure::new(FailureKind::Changes, &error).hint("what was kept was changed or cut short; run it again")
            })?;
            apply_at_once(state, ledger, &set, terms).map_err(|error| conclude::not_applied(&error))
        });
        match applied {
            Ok(applied) => outcome.applied = Some(applied),
            // What ended the run is told first.
            Err(failure) => {
                outcome.error.get_or_insert(failure);
            }
        }
    }
}
