//! A container that stands: joined or filled, and proven from inside.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use ringfence_egress::TrustFiles;
use ringfence_policy::WorkspaceMode;

use super::ahead;
use super::attached::Complaint;
use super::brought::Copy;
use super::engine::{Ended, State};
use super::labels::{ContainerKind, Labels};
use super::laying::{Laid, Sight, lay, look};
use super::made::{Made, MadePlace};
use super::room::Room;
use super::wanted::{Wanted, naming};
use super::ways::{Way, in_a_volume};
use super::workspace_volume::{self, WorkspaceVolume};
use super::{Containers, Prepared, could_not};
use crate::backend::copied::{self, Copied};
use crate::backend::door::Doors;
use crate::backend::far::FarLink;
use crate::backend::guest::{Kept, Link, Proofs};
use crate::backend::inside::{Scene, workspace_at};
use crate::backend::lead_out::lead_out;
use crate::backend::native::view::Trees;
use crate::backend::{Live, Shown, StartError, WallError};
use crate::egress::Egress;
use crate::outcome::ContainerFrom;
use crate::plan::Plan;
use crate::run_id::RunId;
use crate::scratch::Scratch;
use crate::waiting::waiting;
use crate::way_out::WayOut;
use crate::workspace::copy::Owners;
use crate::workspace::layer::{Life, Lower, PrivateLayer};
use crate::workspace::mirror::nodes;

/// So long after a program's end its outcome is told, mostly.
const OUTCOME_IS_TOLD: Duration = Duration::from_millis(5);
/// Of a private copy below the scratch folder.
const COPY: &str = ".workspace";

/// One that stands. Dropping it removes the container.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) guest: Kept,
    pub(super) far: Arc<FarLink>,
    pub(super) proofs: Proofs,
    pub(super) workspace: PathBuf,
    pub(super) prepared: Prepared,
    /// How its image was found.
    pub(super) shown: Shown,
    pub(super) laid: Option<LaidWorkspace>,
    /// What stays the host's own, where something in it is denied.
    pub(super) live: Option<Arc<Live>>,
    /// What a container was filled from, when what differs from it is kept.
    pub(super) copy: Option<Arc<Copy>>,
    /// The way out, where the policy allows one.
    pub(super) egress: Option<Egress>,
    /// What programs have to trust, where TLS is opened there.
    pub(super) trust: Option<TrustFiles>,
    /// Where the container came from, where some wait.
    pub(super) from: Option<ContainerFrom>,
    // Last: nobody is in it then.
    place: MadePlace,
    /// The copy of the workspace that was laid into it, if one was.
    _shown_copy: Option<Scratch>,
}

/// One that was there for one run. When its guest has said its last word, nothing runs in it any more, and it is put away once the
/// outcome was told: its engine, and the kernel, have more to do for that than the run itself.
#[derive(Debug)]
pub(super) struct Used(Option<Standing>);

impl Used {
    pub(super) fn new(standing: Standing) -> Self {
        Self(Some(standing))
    }
}

impl Drop for Used {
    fn drop(&mut self) {
        let Some(standing) = self.0.take() else { return };
        if !standing.far.has_ended() {
            return;
        }
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let one = standing.place.leaves();
            runtime.spawn(async move {
                tokio::time::sleep(OUTCOME_IS_TOLD).await;
                drop(standing);
                drop(one);
            });
        }
    }
}

/// A workspace with a private layer that was laid over it.
#[derive(Debug)]
pub(super) struct LaidWorkspace {
    pub(super) upper: OwnedFd,
    pub(super) merged: OwnedFd,
    pub(super) lower: Arc<Lower>,
}

impl LaidWorkspace {
    /// The layer as it is now.
    pub(super) fn layer(&self, life: Life) -> io::Result<PrivateLayer> {
        PrivateLayer::new(self.upper.try_clone()?, Arc::clone(&self.lower), life)
    }
}

/// A private copy of the workspace and where it lies.
struct Filling {
    copied: Copied,
    scratch: Scratch,
}

/// A container for `plan`, taken where one waits and made where none does, whose guest has proven it.
pub(super) async fn raise(containers: &Containers, plan: &Plan, kind: ContainerKind) -> Result<Standing, StartError> {
    let way = containers.way(plan).await?;
    let filling = fill_from(containers, plan, way)?;
    let is_in_a_volume = containers.shows_a_volume(plan).await?;
    // What is in a volume takes no room in memory.
    let room = room(filling.as_ref().filter(|_| !is_in_a_volume));
    let look = || ahead::look_now(containers, plan, &workspace_at(plan)?, way);
    let _refill = containers.pool.refill_later();
    let mut dead = 0;
    // Who carries out a run asks meanwhile what the name of its image means now, and has another wall raised if that is another.
    if let (ContainerKind::Once, Some(image)) = (kind, containers.remembered(plan)) {
        let wanted = Wanted::new(containers, plan, containers.prepared(plan, image).await?, room).await?;
        let now = look()?;
        let taken = containers.pool.take(&wanted.recipe, |made: &Made| fits(made, now.as_ref())).await;
        dead = taken.dead;
        if let Some(made) = taken.made {
            let standing = furnish(containers, plan, wanted, made, (filling, now)).await?;
            return Ok(Standing { from: Some(ContainerFrom::Waited), shown: Shown::AsRemembered, ..standing });
        }
    }
    let wanted = Wanted::new(containers, plan, containers.prepare(plan).await?, room).await?;
    // Once more: to prepare an image may have taken long.
    let now = look()?;
    let taken = containers.pool.take(&wanted.recipe, |made: &Made| fits(made, now.as_ref())).await;
    let (made, from) = match taken.made {
        Some(made) => (made, ContainerFrom::Waited),
        None => {
            let from = if dead + taken.dead > 0 { ContainerFrom::MadeInstead } else { ContainerFrom::Made };
            if kind == ContainerKind::Once && !is_in_a_volume && containers.pool.missed(wanted.recipe.key) {
                containers.pool.follow(wanted.waiting(containers, plan));
            }
            let volume = match &filling {
                Some(filling) if is_in_a_volume => Some(put_into_a_volume(containers, plan, &wanted, filling).await?),
                _ => None,
            };
            (wanted.recipe.make_for(plan.run_id(), kind, volume).await?, from)
        }
    };
    let standing = furnish(containers, plan, wanted, made, (filling, now)).await?;
    Ok(Standing { from: containers.pool.is_used().then_some(from), ..standing })
}

/// Whether a container whose wall stands shows what would be laid into it `now`.
fn fits(made: &Made, now: Option<&Sight>) -> bool {
    made.stands.as_ref().is_none_or(|stands| now.is_some_and(|now| stands.shows(now)))
}

/// Has containers wait for runs of `plan`, and says how many do.
pub(super) async fn warm(containers: &Containers, plan: &Plan) -> Result<usize, StartError> {
    if !containers.pool.is_used() {
        return Ok(0);
    }
    // Also if it fails, as where the engine is not there yet: the next run will find out what is to wait.
    containers.pool.open();
    let prepared = containers.prepare(plan).await?;
    // A volume is there before its container, and the workspace in it before that.
    if in_a_volume(plan.policy(), prepared.kernel, prepared.way) {
        return Ok(0);
    }
    // Only its size is of interest: what it holds is looked at anew when one is taken.
    let room = room(fill_from(containers, plan, prepared.way)?.as_ref());
    let wanted = Wanted::new(containers, plan, prepared, room).await?;
    containers.pool.fill(wanted.waiting(containers, plan)).await
}

/// The room for a workspace, where a container is filled with one.
fn room(filling: Option<&Filling>) -> Room {
    filling.map_or(Room::default(), |filling| Room::for_a_copy(filling.copied.bytes(), filling.copied.len()))
}

/// Puts the workspace and all else that can be written into a container, unless that was done while it waited and is what shows
/// `now`, and has its guest prove the wall. All that is said of a wall is found out here, whenever the container was made.
async fn furnish(
    containers: &Containers,
    plan: &Plan,
    wanted: Wanted,
    mut made: Made,
    (filling, now): (Option<Filling>, Option<Sight>),
) -> Result<Standing, StartError> {
    let Wanted { prepared, workspace, begin, .. } = wanted;
    let work = async {
        let filling = filling.filter(|_| !in_a_volume(plan.policy(), prepared.kernel, prepared.way));
        let Source { from, copy, held } = source(filling, plan.policy().fs.mode.value, plan)?;
        if let Some(copy) = &copy {
            let brought = copy.at_the_end().map_err(io("open the private copy"))?;
            made.far.keep(Box::new(brought)).map_err(io("speak to the guest"))?;
        }
        let stands = made.stands.take();
        let stood = stands.is_some();
        let laid = match (stands, now, &made.first) {
            (Some(stands), Some(now), _) => stands.into_handed().over(now)?,
            (Some(_), None, _) => return Err(StartError::Wall(WallError("what stands was not compared".to_owned()))),
            (None, _, Some(first)) => {
                let sight = look(Scene::of(plan, &workspace), &containers.state, Trees::default())?;
                lay(&containers.launcher, plan.policy(), &sight, first)?.over(sight)?
            }
            (None, _, None) => Laid::default(),
        };
        // Not before: one that waited for a run has no door until it is known whose it is.
        let way_out = WayOut::prepare(plan.policy(), containers.launcher.threads())?;
        let trust = way_out.as_ref().and_then(WayOut::trust);
        // What was proven while nobody needed it is proven once more.
        let proven = match stood {
            true => made.far.proven_again().await.map(|proofs| (proofs, None)),
            false => made.far.proven(begin).await,
        };
        let (proofs, egress) = match proven {
            Ok((proofs, arriving)) => {
                let doors = arriving.map(|arriving| Doors::relayed(arriving, &plan.policy().net));
                lead_out(proofs, doors, way_out, plan).await?
            }
            Err(error) => return Err(complaining(error, &made.complaint, &made.place).await),
        };
        if let Some(from) = from {
            let nodes = nodes(from.as_fd()).flat_map(|batch| match batch {
                Ok(nodes) => nodes.into_iter().map(Ok).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            });
            made.far.fill(stream::iter(nodes)).await.map_err(io("fill the workspace of the container"))?;
        }
        drop(held);
        Ok((proofs, egress, trust, laid, copy))
    };
    match work.await {
        Ok((proofs, egress, trust, laid, copy)) => {
            let Made { far, place, .. } = made;
            let guest = Kept::new(Link::Far(Arc::clone(&far)));
            let shown = Shown::AsAsked;
            Ok(Standing {
                guest,
                far,
                proofs,
                workspace,
                prepared,
                shown,
                laid: laid.workspace,
                live: laid.live,
                copy,
                egress,
                trust,
                from: None,
                place,
                _shown_copy: laid.copy,
            })
        }
        Err(error) => {
            // Now, and not when nobody is there any more to do it: what was started may not be what we meant to start.
            made.place.remove().await;
            Err(error)
        }
    }
}

fn io(attempt: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::Io { attempt, source }
}

/// Why a guest did not prove its wall: what it wrote for people, or what the engine says of its end, is more than that it
/// ended.
pub(super) async fn complaining(error: StartError, complaint: &Complaint, place: &MadePlace) -> StartError {
    let wall = |why: String| StartError::Wall(WallError(why));
    match (complaint.text(), place.state().await) {
        (text, _) if !text.is_empty() => wall(format!("the guest ended in the container: {text}")),
        (_, Ok(State::Ended(Ended { oom_killed: true, .. }))) => {
            wall("the container had too little memory for the guest itself: raise `proc.memory`".to_owned())
        }
        (_, Ok(State::Ended(Ended { error: Some(text), .. }))) => {
            wall(format!("the engine could not start it: {text}"))
        }
        (_, Ok(State::Ended(Ended { exit_code, .. }))) if matches!(error, StartError::Io { .. }) => {
            wall(format!("the guest ended in the container with {exit_code}"))
        }
        _ => error,
    }
}

/// A private copy of the workspace, where a container is filled from one.
fn fill_from(containers: &Containers, plan: &Plan, way: Way) -> Result<Option<Filling>, StartError> {
    if way == Way::Laid || plan.policy().fs.mode.value == WorkspaceMode::Ephemeral {
        return Ok(None);
    }
    // Not by the run's own: a wall that is raised for it once more may come before this one is gone.
    let unique = RunId::generate().map_err(|error| could_not(&error))?;
    let scratch = Scratch::create(&containers.state, &unique)?;
    scratch.make_folder(COPY)?;
    let to = scratch.path().join(COPY);
    let copied = waiting(|| copied::make(plan.policy(), plan.workspace(), &containers.state, &to, Owners::Ours))?;
    Ok(Some(Filling { copied, scratch }))
}

/// Has the engine take the copy into a volume, for the container that is made next.
async fn put_into_a_volume(
    containers: &Containers,
    plan: &Plan,
    wanted: &Wanted,
    filling: &Filling,
) -> Result<WorkspaceVolume, StartError> {
    let labels = Labels::new(plan.run_id().as_str(), &containers.owner()?, ContainerKind::Courier).map_err(naming)?;
    let (engine, spec) = (&wanted.prepared.engine, &wanted.recipe.spec);
    let volume = workspace_volume::put(
        engine,
        (filling.copied.folder(), &wanted.workspace),
        spec.user,
        &spec.image,
        (&labels, &containers.volumes),
    );
    volume.await.map_err(|error| could_not(&error))
}

/// What a container is filled from.
#[derive(Default)]
struct Source {
    from: Option<OwnedFd>,
    /// Where what differs is taken, where that is kept.
    copy: Option<Arc<Copy>>,
    /// The copy itself, where nobody else has it.
    held: Option<Filling>,
}

fn source(filling: Option<Filling>, mode: WorkspaceMode, plan: &Plan) -> Result<Source, StartError> {
    let Some(filling) = filling else { return Ok(Source::default()) };
    let from = filling.copied.folder().try_clone_to_owned().map_err(io("open the private copy"))?;
    if !matches!(mode, WorkspaceMode::Review | WorkspaceMode::Direct) {
        return Ok(Source { from: Some(from), copy: None, held: Some(filling) });
    }
    let most = plan.policy().fs.size.value.get().saturating_add(filling.copied.bytes());
    let copy = Copy::new(filling.copied, filling.scratch, most);
    Ok(Source { from: Some(from), copy: Some(copy), held: None })
}
