//! A native wall that is kept for the runs of a session.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;

use ringfence_guest::protocol::ProgramNumber;
use ringfence_guest::{Order, Start};
use ringfence_linux::cgroup::Cgroup;
use ringfence_linux::wall::Entry;
use ringfence_policy::{BackendKind, ResolvedPolicy};

use super::image::Root;
use super::{Live, Native, With, groups_of, kept, lost, program, trust};
use crate::BoxFuture;
use crate::backend::counters::Counters;
use crate::backend::guest::{self, Kept, Link, Proofs};
use crate::backend::inside::{self, CODE, workspace_at};
use crate::backend::process::in_session;
use crate::backend::spawn::in_a_session;
use crate::backend::{
    Backend, Capabilities, FoundImage, InUse, KeptWall, Left, Sandbox, Settled, StartError, Unavailable,
};
use crate::egress::{Contacts, Egress};
use crate::plan::Plan;
use crate::scratch::Scratch;
use crate::way_out::WayOut;
use crate::workspace::layer::{Life, Lower, PrivateLayer};
use crate::workspace::merged::{Merged, PutBack};

/// A wall with a guest that starts programs one after the other, or several at once.
#[derive(Debug)]
struct Standing {
    guest: Kept,
    egress: Option<Egress>,
    workspace: PathBuf,
    root: Option<Root>,
    capabilities: Capabilities,
    proofs: Proofs,
    lower: Option<Arc<Lower>>,
    live: Option<Arc<Live>>,
    // After the guest, as the group: the copy of the workspace that it shows.
    _copy: Option<Scratch>,
    // After the guest: the group is removed when what it counts is gone.
    group: Option<Arc<Cgroup>>,
}

/// Raises the wall of `plan`, which names no program.
pub(super) async fn raise(native: &Native, plan: &Plan) -> Result<Arc<dyn KeptWall>, StartError> {
    let _at_work = native.load.begin();
    let way_out = WayOut::prepare(plan.policy(), native.launcher.threads())?;
    let root = native.root(plan).await?;
    let workspace = workspace_at(plan)?;
    let with = With {
        // Each run has a folder of its own there for its code.
        place: Entry::Scratch { at: CODE.into(), mode: 0o700, size: None },
        files: Vec::new(),
        trust: trust::entries(way_out.as_ref(), root.as_ref()),
    };
    let mut view = native.look(plan, &workspace, root.as_ref(), &with)?;
    let (lower, live, copy) = (view.lower.clone(), view.live.clone(), view.copy.take());
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(|source| StartError::Io { attempt: "open /dev/null", source })?;
    let (guest, group) =
        native.raise_wall((plan.run_id(), plan.policy()), view, None, [null.as_fd(); 3])?.ok_or_else(lost)?;
    let link = Link::new(guest).map_err(|source| StartError::Io { attempt: "watch the guest", source })?;
    let when = |(name, found): (String, String)| (name, format!("{found}, when the session was opened"));
    let (proofs, egress) = link.proven_for(plan, way_out).await?;
    let proofs: Proofs = proofs.into_iter().map(when).collect();
    let groups = groups_of(group.as_ref());
    Ok(Arc::new(Standing {
        guest: Kept::new(link),
        egress,
        workspace,
        root,
        capabilities: Capabilities::new(BackendKind::Native, in_a_session(kept(plan.policy(), groups))),
        proofs,
        lower,
        live,
        _copy: copy,
        group: group.map(Arc::new),
    }))
}

impl Standing {
    fn start(&self, plan: &Plan, number: ProgramNumber) -> Result<Start, StartError> {
        inside::start(plan, number, |code| program(plan, &self.workspace, code, self.root.as_ref()))
    }
}

impl Backend for Standing {
    fn kind(&self) -> BackendKind {
        BackendKind::Native
    }

    fn probe<'a>(&'a self, _policy: &'a ResolvedPolicy) -> BoxFuture<'a, Result<Capabilities, Unavailable>> {
        Box::pin(async { Ok(self.capabilities.clone()) })
    }

    fn image<'a>(&'a self, _plan: &'a Plan) -> BoxFuture<'a, Result<Option<FoundImage>, StartError>> {
        let named = |root: &Root| FoundImage { name: root.name().to_owned(), preparing: None, settled: Settled::Now };
        Box::pin(async move { Ok(self.root.as_ref().map(named)) })
    }

    fn raise<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Sandbox, StartError>> {
        Box::pin(async move {
            let mut sandbox = in_session(plan, &self.guest, |number| self.start(plan, number))?;
            sandbox.proofs = inside::with_each_start(&self.proofs);
            sandbox.live = self.live.clone();
            sandbox.network = self.egress.as_ref().map(Egress::follow);
            sandbox.image = self.root.as_ref().map(|root| root.name().to_owned());
            if let Some(group) = &self.group {
                sandbox.share(Counters::Cgroup(Arc::clone(group))).await;
            }
            Ok(sandbox)
        })
    }
}

impl KeptWall for Standing {
    fn proofs(&self) -> &[(String, String)] {
        &self.proofs
    }

    fn live(&self) -> Option<&Arc<Live>> {
        self.live.as_ref()
    }

    fn measure(&self) -> BoxFuture<'_, io::Result<InUse>> {
        Box::pin(async {
            let (tasks, memory_bytes) = self.guest.measure().await?;
            Ok(InUse { tasks, memory_bytes })
        })
    }

    fn kill(&self) {
        self.guest.kill();
    }

    fn sample(&self) -> InUse {
        let sample = self.guest.sample();
        InUse { tasks: sample.tasks, memory_bytes: sample.resident_bytes }
    }

    fn close_network(&self) -> BoxFuture<'_, Contacts> {
        Box::pin(async {
            let Some(egress) = &self.egress else { return Contacts::default() };
            egress.close().await;
            egress.between_runs()
        })
    }

    fn kill_programs(&self) -> io::Result<()> {
        self.guest.order(Order::KillAll)
    }

    fn end(&self) {
        if self.guest.order(Order::End).is_err() {
            self.guest.kill();
        }
    }

    fn ended(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.guest.gone())
    }

    fn take_left(&self) -> Left {
        let left = self.guest.take_left();
        let (changed, full) = left.as_ref().map_or((false, false), |left| (left.changed, left.full));
        let layer = match (&self.lower, left) {
            (None, _) => Ok(None),
            (Some(lower), Some(mut left)) => left.take_layer(Some(lower)),
            (Some(_), None) => Err(guest::no_last_word()),
        };
        Left { layer, changed, full }
    }

    fn layer(&self) -> BoxFuture<'_, io::Result<Option<PrivateLayer>>> {
        Box::pin(async {
            let Some(lower) = &self.lower else { return Ok(None) };
            match self.guest.layer().await? {
                Some(upper) => PrivateLayer::new(upper, Arc::clone(lower), Life::GoesOn).map(Some),
                None => {
                    Err(io::Error::new(io::ErrorKind::InvalidData, "the guest did not hand over the private layer"))
                }
            }
        })
    }

    fn workspace(&self) -> BoxFuture<'_, io::Result<Option<Box<dyn PutBack>>>> {
        Box::pin(async {
            if self.lower.is_none() {
                return Ok(None);
            }
            match self.guest.workspace().await? {
                Some(folder) => Ok(Some(Box::new(Merged::new(folder)?) as Box<dyn PutBack>)),
                None => Err(io::Error::new(io::ErrorKind::InvalidData, "the guest did not hand over the workspace")),
            }
        })
    }
}
