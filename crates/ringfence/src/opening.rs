//! Raising a wall that is kept for many runs.

use std::sync::Arc;

use serde_json::json;

use crate::approve::Approver;
use crate::backend::{FoundImage, Shown, StartError};
use crate::conclude;
use crate::engine::{Inner, Place, Prepared};
use crate::ledger::{Durability, Kind};
use crate::outcome::{Failure, FailureKind, Outcome};
use crate::request::{Request, Work};
use crate::run_id::RunId;
use crate::session::{Opening, Session, SessionRequest};
use crate::waiting::waiting;
use crate::workspace::change::Moment;
use crate::written::{ledger_failure, requested_body};

impl Inner {
    /// Raises a wall for `wanted`, or says in an outcome why there is none.
    pub(crate) async fn open_session(
        self: &Arc<Self>,
        run_id: RunId,
        wanted: SessionRequest,
        approver: &Arc<dyn Approver>,
    ) -> Result<Session, Outcome> {
        let mut request = Request::new(Work::Place);
        request.workspace_at = wanted.workspace_at.clone();
        request.overrides = wanted.overrides;
        request.metadata = wanted.metadata;
        let requested = self.entry(&run_id, Kind::Requested, requested_body(&request, None));
        let mut prepared = match self.prepare(Place::ToKeep, run_id.clone(), request, approver).await {
            Ok(prepared) => prepared,
            Err(stopped) => return Err(self.write_stopped(&run_id, requested, stopped)),
        };
        let mut requested = Some(requested);
        let (raised, image) = loop {
            let Prepared { plan, chosen, .. } = &prepared;
            let image = chosen.backend.image(plan).await.ok().flatten();
            let name = image.as_ref().map(|image| image.name.as_str());
            let entries = self.entries_before_the_start(requested.take(), &prepared, name);
            let (raised, known) = tokio::join!(biased; chosen.backend.keep(plan), async {
                waiting(|| self.append(&entries, Durability::Synced))
            });
            if let Err(error) = known {
                return Err(conclude::failed(prepared.begin(), ledger_failure(&error)));
            }
            let Some(forbidden) = prepared.forbidden(raised.as_ref().err()).await else { break (raised, image) };
            prepared = match self.instead(prepared, forbidden).await {
                Ok(instead) => instead,
                Err(stopped) => return Err(self.write_end(&run_id, stopped.outcome)),
            };
        };
        let outcome = prepared.begin();
        let Prepared { plan, chosen, .. } = prepared;
        let wall = match raised {
            Ok(wall) => match wall.image(&plan).await {
                Ok(found) => {
                    let name = found.as_ref().map(|found| found.name.as_str());
                    let is_shown = FoundImage::is_shown(image.as_ref(), name, Shown::AsAsked);
                    if is_shown { Ok((wall, found)) } else { Err(StartError::ImageChanged) }
                }
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let (wall, shown) = match wall {
            Ok(both) => both,
            Err(error) => return Err(self.write_end(&run_id, conclude::failed(outcome, error.failure()))),
        };
        let began = Moment::now();
        let entry = self.entry(&run_id, Kind::Started, json!({ "backend": plan.backend(), "session": true }));
        if let Err(error) = self.ledger.append(&[entry], Durability::Written) {
            return Err(conclude::failed(outcome, ledger_failure(&error)));
        }
        let mut proven = outcome;
        proven.prove(wall.proofs());
        proven.name_image(shown.as_ref().map(|shown| shown.name.as_str()));
        let capabilities = match wall.probe(plan.policy()).await {
            Ok(capabilities) => capabilities,
            Err(unavailable) => {
                let failure = Failure::new(FailureKind::BackendUnavailable, &unavailable).hint(unavailable.fix.clone());
                return Err(self.write_end(&run_id, conclude::failed(proven, failure)));
            }
        };
        let opening = Opening {
            id: run_id,
            began,
            policy: plan.policy().clone(),
            own: self.own.clone(),
            wall,
            capabilities,
            fell_back: chosen.fell_back,
            workspace_at: wanted.workspace_at,
            receipt: proven.enforced,
            idle: wanted.idle,
            life: wanted.life,
        };
        Ok(Session::begin(opening, self))
    }
}
