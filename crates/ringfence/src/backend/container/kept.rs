//! A container that is kept for the runs of a session, and what single runs share with it.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ringfence_guest::Order;
use ringfence_linux::cgroup::CgroupUsage;
use ringfence_linux::wall::Program;
use ringfence_policy::{BackendKind, ResolvedPolicy};

use super::brought::Copy;
use super::standing::Standing;
use super::trust::with_certificates;
use super::{named, promises};
use crate::BoxFuture;
use crate::backend::counters::{Counters, Told};
use crate::backend::far::FarLink;
use crate::backend::guest::{self, Proofs};
use crate::backend::inside::{self, env_with_image, interpreters};
use crate::backend::process::in_session;
use crate::backend::spawn::in_a_session;
use crate::backend::{
    Backend, Capabilities, FoundImage, InUse, KeptWall, Left, Live, Sandbox, Settled, StartError, Unavailable,
};
use crate::egress::{Contacts, Egress};
use crate::plan::Plan;
use crate::workspace::layer::{Life, PrivateLayer};
use crate::workspace::merged::{Merged, PutBack, PutError, Step};
use crate::workspace::mirror::put_nodes;
use crate::workspace::objects::Objects;

/// A guest that said nothing for so long tells nothing more.
const HEARD: Duration = Duration::from_secs(2);

/// What to execute in a container, and where the guest finds it.
#[derive(Debug)]
pub(super) struct Found {
    env: Vec<(std::ffi::OsString, std::ffi::OsString)>,
    there: BTreeSet<PathBuf>,
    workspace: PathBuf,
}

/// Asks the guest which interpreters there are, where that matters.
pub(super) async fn find(standing: &Standing, plan: &Plan) -> Result<Found, StartError> {
    let path = standing.prepared.image.env.iter().find_map(|variable| variable.strip_prefix("PATH="));
    let env = env_with_image(plan, path);
    let wanted = interpreters(plan, &env);
    let mut there = BTreeSet::new();
    if !wanted.is_empty() {
        let asked = wanted.iter().map(|path| path.clone().into_os_string()).collect();
        let found = standing.far.find(asked).await;
        let found = found.map_err(|source| StartError::Io { attempt: "look for an interpreter", source })?;
        there.extend(wanted.into_iter().zip(found).filter(|(_, found)| *found).map(|(path, _)| path));
    }
    Ok(Found { env, there, workspace: standing.workspace.clone() })
}

impl Found {
    /// The program of `plan`, whose code is in the folder `code` inside.
    pub(super) fn program(self, plan: &Plan, code: &Path) -> Result<Program, StartError> {
        let Self { env, there, workspace } = self;
        inside::program(plan, env, &workspace, code, |file| there.contains(file))
    }
}

/// What the guest read of the container's own counters.
#[derive(Debug)]
struct ToldByGuest(Arc<FarLink>);

impl Told for ToldByGuest {
    fn usage(&self) -> BoxFuture<'_, Option<CgroupUsage>> {
        Box::pin(async { self.0.counted() })
    }
}

/// The counters of a container.
pub(super) fn counters(standing: &Standing) -> Counters {
    Counters::Told(Arc::new(ToldByGuest(Arc::clone(&standing.far))))
}

/// A container that is kept.
#[derive(Debug)]
pub(super) struct Session {
    kind: BackendKind,
    standing: Standing,
    capabilities: Capabilities,
    proofs: Proofs,
}

impl Session {
    pub(super) fn new(kind: BackendKind, standing: Standing, policy: &ResolvedPolicy) -> Self {
        let prepared = &standing.prepared;
        let kept = in_a_session(promises::kept(policy, &prepared.facts, prepared.kernel, prepared.way));
        let when = |(name, found): &(String, String)| (name.clone(), format!("{found}, when the session was opened"));
        let proofs = standing.proofs.iter().map(when).collect();
        Self { kind, capabilities: Capabilities::new(kind, kept), proofs, standing }
    }
}

impl Backend for Session {
    fn kind(&self) -> BackendKind {
        self.kind
    }

    fn probe<'a>(&'a self, _policy: &'a ResolvedPolicy) -> BoxFuture<'a, Result<Capabilities, Unavailable>> {
        Box::pin(async { Ok(self.capabilities.clone()) })
    }

    fn image<'a>(&'a self, _plan: &'a Plan) -> BoxFuture<'a, Result<Option<FoundImage>, StartError>> {
        let name = named(&self.standing.prepared.image);
        Box::pin(async move { Ok(Some(FoundImage { name, preparing: None, settled: Settled::Now })) })
    }

    fn raise<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Sandbox, StartError>> {
        Box::pin(async move {
            let found = find(&self.standing, plan).await?;
            let start = |number| {
                let start = inside::start(plan, number, |code| found.program(plan, code))?;
                Ok(with_certificates(start, self.standing.trust.as_ref(), plan.policy()))
            };
            let mut sandbox = in_session(plan, &self.standing.guest, start)?;
            sandbox.proofs = inside::with_each_start(&self.proofs);
            sandbox.live = self.standing.live.clone();
            sandbox.network = self.standing.egress.as_ref().map(Egress::follow);
            sandbox.image = Some(named(&self.standing.prepared.image));
            sandbox.share(counters(&self.standing)).await;
            Ok(sandbox)
        })
    }
}

impl KeptWall for Session {
    fn proofs(&self) -> &[(String, String)] {
        &self.proofs
    }

    fn live(&self) -> Option<&Arc<Live>> {
        self.standing.live.as_ref()
    }

    fn measure(&self) -> BoxFuture<'_, io::Result<InUse>> {
        Box::pin(async {
            let (tasks, memory_bytes) = self.standing.guest.measure().await?;
            Ok(InUse { tasks, memory_bytes })
        })
    }

    fn sample(&self) -> InUse {
        let sample = self.standing.guest.sample();
        InUse { tasks: sample.tasks, memory_bytes: sample.resident_bytes }
    }

    fn close_network(&self) -> BoxFuture<'_, Contacts> {
        Box::pin(async {
            let Some(egress) = &self.standing.egress else { return Contacts::default() };
            egress.close().await;
            egress.between_runs()
        })
    }

    fn kill_programs(&self) -> io::Result<()> {
        self.standing.guest.order(Order::KillAll)
    }

    fn end(&self) {
        if self.standing.guest.order(Order::End).is_err() {
            self.standing.guest.kill();
        }
    }

    fn kill(&self) {
        self.standing.guest.kill();
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.standing.guest.gone())
    }

    fn still_tells(&self) -> bool {
        self.standing.far.is_heard(HEARD)
    }

    fn take_left(&self) -> Left {
        let left = self.standing.guest.take_left();
        let (changed, full) = left.as_ref().map_or((false, false), |left| (left.changed, left.full));
        let layer = match (&self.standing.laid, left) {
            (Some(laid), Some(_)) => laid.layer(Life::Over).map(Some),
            (None, Some(mut left)) => left.take_layer(None),
            (Some(_), None) => Err(guest::no_last_word()),
            (None, None) if self.standing.far.keeps_workspace() => Err(guest::no_last_word()),
            (None, None) => Ok(None),
        };
        let changed = changed || matches!(layer, Ok(Some(_)));
        Left { layer, changed, full }
    }

    fn layer(&self) -> BoxFuture<'_, io::Result<Option<PrivateLayer>>> {
        Box::pin(async {
            match (&self.standing.laid, &self.standing.copy) {
                (Some(laid), _) => laid.layer(Life::GoesOn).map(Some),
                (None, Some(copy)) => {
                    let brought = copy.now().await?;
                    self.standing.far.collect(Box::new(brought)).await.map(Some)
                }
                (None, None) => Ok(None),
            }
        })
    }

    fn workspace(&self) -> BoxFuture<'_, io::Result<Option<Box<dyn PutBack>>>> {
        Box::pin(async {
            let found: Option<Box<dyn PutBack>> = match (&self.standing.laid, &self.standing.copy) {
                (Some(laid), _) => Some(Box::new(Merged::new(laid.merged.try_clone()?)?)),
                (None, Some(copy)) => Some(Box::new(FarMerged {
                    far: Arc::clone(&self.standing.far),
                    copy: Arc::clone(copy),
                    runtime: tokio::runtime::Handle::current(),
                })),
                (None, None) => None,
            };
            Ok(found)
        })
    }
}

/// The workspace of a filled container, which its guest puts back.
#[derive(Debug)]
struct FarMerged {
    far: Arc<FarLink>,
    copy: Arc<Copy>,
    runtime: tokio::runtime::Handle,
}

impl PutBack for FarMerged {
    fn put(&self, steps: &[Step<'_>], contents: &Objects) -> Result<(), PutError> {
        let failed = |attempt| {
            let place = steps.first().map(|(place, _)| place.as_path().to_owned()).unwrap_or_default();
            move |source| PutError { attempt, place, source }
        };
        let nodes = put_nodes(steps, contents).map_err(failed("read what is to be put back, from"))?;
        self.runtime.block_on(async {
            let put = self.far.fill(futures_util::stream::iter(nodes)).await;
            // Also when it could not be done: the copy is what the guest has.
            let told = match self.copy.once_more() {
                Ok(brought) => self.far.collect(Box::new(brought)).await.map(drop),
                Err(error) => Err(error),
            };
            put.map_err(failed("put back in the container, from"))?;
            told.map_err(failed("look at what was put back in the container, from"))
        })
    }
}
