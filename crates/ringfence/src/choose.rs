//! Which wall a policy gets on this host.

use ringfence_policy::{BackendChoice, BackendKind, ResolvedPolicy};

use crate::backend::{Backend, Capabilities, Unavailable};
use crate::engine::Inner;
use crate::outcome::FellBack;
use crate::plan::missing;

/// What `auto` means, best first: every wall that isolates. After them comes `landlock`, if nothing would be missing.
const AUTO: [BackendKind; 3] = [BackendKind::Native, BackendKind::Docker, BackendKind::Podman];

/// A backend that was found for a policy.
#[derive(Debug)]
pub(crate) struct Chosen<'a> {
    pub(crate) backend: &'a dyn Backend,
    pub(crate) capabilities: Capabilities,
    pub(crate) fell_back: Option<FellBack>,
}

/// A backend that this host turned out not to let stand, and why.
pub(crate) type Forbidden = (BackendKind, Unavailable);

impl Inner {
    /// The backend that the policy wants or, in its order, one that it falls back to; never the `forbidden` one.
    pub(crate) async fn choose(
        &self,
        policy: &ResolvedPolicy,
        forbidden: Option<&Forbidden>,
    ) -> Result<Chosen<'_>, Unavailable> {
        let (name, wanted) = match policy.backend.choice.value {
            BackendChoice::Auto => ("auto".to_owned(), AUTO.to_vec()),
            BackendChoice::Kind(kind) => (kind.to_string(), vec![kind]),
        };
        let forbidden_one =
            || forbidden.map(|(kind, why)| FellBack { wanted: kind.to_string(), reason: why.reason.clone() });
        let mut reasons = Vec::new();
        let mut own_fix = None;
        for kind in &wanted {
            let probed = match forbidden {
                Some((forbidden, why)) if forbidden == kind => Err(why.clone()),
                Some(_) | None => self.probe(*kind, policy).await,
            };
            match probed {
                Ok((backend, capabilities)) => {
                    return Ok(Chosen { backend, capabilities, fell_back: forbidden_one() });
                }
                Err(unavailable) => {
                    reasons.push(format!("{kind}: {}", unavailable.reason));
                    // Who named one wall wants to know what is in its way.
                    own_fix =
                        matches!(wanted[..], [BackendKind::Native | BackendKind::Landlock]).then_some(unavailable.fix);
                }
            }
        }
        let mut less = None;
        if policy.backend.choice.value == BackendChoice::Auto {
            match self.tier(policy).await {
                Ok(chosen) => return Ok(Chosen { fell_back: forbidden_one(), ..chosen }),
                Err((unavailable, missing)) => {
                    reasons.push(format!("landlock: {}", unavailable.reason));
                    less = missing;
                }
            }
        }
        let reason = reasons.join("; ");
        for kind in policy.backend.fallback.iter().map(|kind| kind.value).filter(|kind| !wanted.contains(kind)) {
            match self.probe(kind, policy).await {
                Ok((backend, capabilities)) => {
                    let fell_back = Some(FellBack { wanted: name, reason });
                    return Ok(Chosen { backend, capabilities, fell_back });
                }
                Err(unavailable) => reasons.push(format!("{kind}: {}", unavailable.reason)),
            }
        }
        Err(Unavailable {
            reason: format!("no backend that the policy permits is available ({})", reasons.join("; ")),
            fix: match (own_fix, less) {
                (Some(fix), _) => fix,
                (None, Some(missing)) => format!(
                    "`ringfence doctor` says what is missing and how to get it; `--backend landlock` would run it with less: \
                     without {missing}"
                ),
                (None, None) => "`ringfence doctor` says what is missing; take out of the policy what a wall does not know; to run without a wall all the same, choose `--backend spawn`, or \
                  list `spawn` under `backend.fallback` in the policy"
                    .to_owned(),
            },
        })
    }

    /// `landlock` for somebody who did not name it: only where it keeps all that the policy requires. Otherwise why not, and
    /// what whoever names it would go without.
    async fn tier(&self, policy: &ResolvedPolicy) -> Result<Chosen<'_>, (Unavailable, Option<String>)> {
        let (backend, capabilities) =
            self.probe(BackendKind::Landlock, policy).await.map_err(|unavailable| (unavailable, None))?;
        let missing: Vec<&str> = missing(policy, &capabilities).iter().map(|guarantee| guarantee.name()).collect();
        if missing.is_empty() {
            return Ok(Chosen { backend, capabilities, fell_back: None });
        }
        let missing = missing.join(", ");
        let fix = "choose it by name".to_owned();
        Err((Unavailable { reason: format!("it cannot enforce {missing}"), fix }, Some(missing)))
    }

    pub(crate) async fn probe(
        &self,
        kind: BackendKind,
        policy: &ResolvedPolicy,
    ) -> Result<(&dyn Backend, Capabilities), Unavailable> {
        let Some(backend) = self.backends.iter().find(|backend| backend.kind() == kind) else {
            return Err(Unavailable {
                reason: "not part of this version".to_owned(),
                fix: format!("choose another backend than `{kind}`, such as `--backend spawn`"),
            });
        };
        Ok((&**backend, backend.probe(policy).await?))
    }
}
