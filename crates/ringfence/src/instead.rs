//! What takes the place of a wall that this host turns out to forbid.
//!
//! A run costs too little to try first whether its wall can stand: raising it is the trial. Where that fails, nothing untrusted has
//! begun, and the policy's order of walls goes on after the one that failed. It never leads to one that it would not lead to otherwise.

use ringfence_policy::{BackendKind, ResolvedPolicy};

use crate::backend::{Capabilities, StartError, Unavailable};
use crate::choose::Forbidden;
use crate::conclude;
use crate::engine::{Inner, Prepared, Stopped};
use crate::outcome::{Failure, FailureKind, Outcome};

impl Prepared<'_> {
    /// The outcome of what was prepared, with all that is known before the start.
    pub(crate) fn begin(&self) -> Outcome {
        let mut outcome = conclude::begin(self.plan.run_id().clone(), Some(&self.plan), self.plan.policy());
        outcome.fell_back = self.chosen.fell_back.clone();
        outcome.findings = self.cleared.findings().to_vec();
        outcome
    }

    /// That this host forbids such a wall, where that is why it could not be raised.
    pub(crate) async fn forbidden(&self, error: Option<&StartError>) -> Option<Forbidden> {
        error.filter(|error| error.may_be_the_host())?;
        match self.chosen.backend.try_out(self.plan.policy()).await {
            Ok(Some(why)) => Some((self.plan.backend(), why)),
            // It can stand, or it is not known whether: then the start failed for the reason that it says.
            Ok(None) | Err(_) => None,
        }
    }
}

impl Inner {
    /// The same request, judged already, behind the wall that the policy wants after the `forbidden` one.
    pub(crate) async fn instead<'a>(
        &'a self,
        prepared: Prepared<'a>,
        forbidden: Forbidden,
    ) -> Result<Prepared<'a>, Stopped> {
        let mut outcome = prepared.begin();
        let Prepared { plan, cleared, .. } = prepared;
        let chosen = match self.choose(plan.policy(), Some(&forbidden)).await {
            Ok(chosen) => chosen,
            Err(unavailable) => {
                let failure = Failure::new(FailureKind::BackendUnavailable, &unavailable).hint(unavailable.fix.clone());
                outcome.backend = None;
                return Err(Stopped { outcome: conclude::failed(outcome, failure) });
            }
        };
        match plan.behind(&cleared, &chosen.capabilities, &self.environment) {
            Ok(plan) => Ok(Prepared { plan, chosen, cleared }),
            Err(refusal) => Err(Stopped { outcome: conclude::refused(outcome, refusal) }),
        }
    }

    /// What a kind of wall can enforce, or why it cannot be used, found out by trying.
    pub(crate) async fn tried(&self, kind: BackendKind, policy: &ResolvedPolicy) -> Result<Capabilities, Unavailable> {
        let (backend, capabilities) = self.probe(kind, policy).await?;
        match backend.try_out(policy).await {
            Ok(None) => Ok(capabilities),
            Ok(Some(why)) => Err(why),
            Err(error) => Err(Unavailable {
                reason: format!("it could not be tried whether it can stand here: {error}"),
                fix: "look whether memory, processes or open files ran out, and try it again".to_owned(),
            }),
        }
    }
}
