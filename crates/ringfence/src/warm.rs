//! Walls that are begun before anybody needs them.

use ringfence_policy::narrow;

use crate::backend::Expected;
use crate::conclude;
use crate::engine::{Engine, Inner, Place, Prepared};
use crate::outcome::Outcome;
use crate::request::{Request, Work};
use crate::run_id::RunId;

impl Engine {
    /// Has as many containers wait as the engine was set up for, of the kind that its own policy asks for, and says how many
    /// do; none where the wall is no container. What a run takes is made up for in the background.
    ///
    /// Each is used by one run, and ends with it. A run that asks for another kind, by narrower limits or by what it needs of our images,
    /// starts as ever; when two in a row ask for the same one, that kind waits from then on. Those that wait end after ten
    /// minutes, with [`Engine::drain`], and with the engine. Where this failed, the kind of the first run that succeeds waits.
    pub async fn warm(&self) -> Result<usize, Box<Outcome>> {
        let run_id = RunId::generate().map_err(|error| Box::new(self.0.failed_without_id(&error)))?;
        // The plan is of nothing that runs, so the ledger need not know.
        let prepared = self.0.prepare(Place::ToKeep, run_id, Request::new(Work::Place), &self.1).await;
        let Prepared { plan, chosen, .. } = prepared.map_err(|stopped| Box::new(stopped.outcome))?;
        chosen.backend.warm(&plan).await.map_err(|error| {
            let outcome = conclude::begin(plan.run_id().clone(), Some(&plan), plan.policy());
            Box::new(conclude::failed(outcome, error.failure()))
        })
    }

    /// Raises what can be raised of the wall for `request`, which is about to come: all that does not depend on what it runs, or
    /// would be judged. One that never comes, or comes another, only takes a little longer.
    pub fn expect(&self, request: &Request) {
        let Inner { policy, workspace, environment, backends, .. } = &*self.0;
        let overrides = request.whole_overrides();
        let narrowed = (!overrides.is_empty()).then(|| narrow(policy, &overrides)).transpose();
        // What is wrong with it is said when it comes.
        let Ok(narrowed) = narrowed else { return };
        let policy = narrowed.as_ref().unwrap_or(policy);
        let expected = Expected { policy, workspace, environment, at: &request.workspace_at };
        backends.iter().for_each(|backend| backend.expect(expected));
    }

    /// Waits until nothing is left of runs that are over but what goes by itself: to be called before this process ends.
    pub async fn tidy(&self) {
        for backend in &self.0.backends {
            backend.tidy().await;
        }
    }

    /// Ends every container that waits, and waits until it is gone. Runs and sessions go on, and start as ever from then on.
    pub async fn drain(&self) {
        for backend in &self.0.backends {
            backend.drain().await;
        }
    }
}
