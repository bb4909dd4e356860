//! The container that a plan asks for, in typed values: what the engine is told, and what the guest is told first.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_guest::far::{Begin, FarWorkspace};
use ringfence_guest::relay::FarDoor;
use ringfence_linux::RlimitKind;
use ringfence_linux::wall::{Access, Contained, Ground, Writable};
use ringfence_policy::{Mount, WorkspaceMode};

use super::ahead::{Ahead, can_stand, laid_by};
use super::cgroup_view::cgroup_view;
use super::labels::{ContainerKind, Labels};
use super::made::Recipe;
use super::places::{Place, SHARED_MEMORY, places};
use super::pool::Key;
use super::promises::held;
use super::room::Room;
use super::spec::{GuestFrom, GuestPlace, Spec, Tmpfs, TmpfsOwner, User};
use super::ways::{Way, in_a_volume};
use super::{Containers, Prepared, could_not};
use crate::backend::StartError;
use crate::backend::door;
use crate::backend::inside::workspace_at;
use crate::backend::spawn::rlimits;
use crate::plan::Plan;

/// The name of the machine inside, as behind every wall.
const HOSTNAME: &str = "sandbox";
/// A place that something is laid over holds nothing itself.
const COVERED: u64 = 64 * 1024;
/// Places whose files must be writable for programs to work, none of which keeps anything.
const DEVICES: [&str; 8] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts", "/proc"];

/// A container that a plan asks for.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) prepared: Prepared,
    pub(super) workspace: PathBuf,
    /// What its guest is told first, when the container is used.
    pub(super) begin: Begin,
    pub(super) recipe: Arc<Recipe>,
}

impl Wanted {
    /// What `plan` asks for, with `room` for its workspace.
    pub(super) async fn new(
        containers: &Containers,
        plan: &Plan,
        prepared: Prepared,
        room: Room,
    ) -> Result<Self, StartError> {
        let workspace = workspace_at(plan)?;
        let guest = containers.guest(&prepared).await?;
        let owner = containers.owner()?;
        let labels = Labels::new(plan.run_id().as_str(), &owner, ContainerKind::Once).map_err(naming)?;
        let guest_at = GuestPlace::new().map_err(|error| could_not(&error))?;
        let points = match prepared.way {
            Way::Laid => mount_points(containers, plan)?,
            Way::Filled => Vec::new(),
        };
        let with = |room: Room| {
            let mut places = places(plan.policy(), &workspace, room.bytes, room.files);
            if in_a_volume(plan.policy(), prepared.kernel, prepared.way) {
                places.retain(|place| place.at != workspace);
            }
            let memory = plan.policy().proc.memory.value.get().saturating_add(room.memory());
            let placed = (guest.clone(), guest_at.clone());
            let mut spec = spec(plan, &prepared, &places, memory, labels.clone(), placed);
            spec.tmpfs.extend(points.iter().cloned());
            (spec, begin(plan, &prepared, &workspace, &places, memory))
        };
        let (spec, begin) = with(Room::default());
        let laid_by =
            if can_stand(plan.policy(), prepared.way) { laid_by(plan).map_err(indescribable)? } else { Vec::new() };
        let hash = hash(&spec, &begin, prepared.way, &laid_by)?;
        let (spec, begin) = if room == Room::default() { (spec, begin) } else { with(room) };
        let key = Key { hash, room };
        let (engine, leaving) = (prepared.engine.clone(), containers.leaving.clone());
        let recipe = Arc::new(Recipe { key, engine, owner, way: prepared.way, leaving, spec, ahead: None });
        Ok(Self { prepared, workspace, begin, recipe })
    }

    /// How those are made that wait for runs of `plan`.
    pub(super) fn waiting(&self, containers: &Containers, plan: &Plan) -> Arc<Recipe> {
        let ahead = Ahead::of(containers, plan, &self.workspace, self.prepared.way, self.begin.clone());
        Arc::new(Recipe { ahead: ahead.map(Arc::new), ..Recipe::clone(&self.recipe) })
    }
}

/// The hash of all that a container and its guest depend on, and what is laid into it where it waits.
pub(super) fn hash(spec: &Spec, begin: &Begin, way: Way, laid_by: &[u8]) -> Result<[u8; 32], StartError> {
    let way: u8 = match way {
        Way::Laid => 0,
        Way::Filled => 1,
    };
    let encoded = postcard::to_allocvec(&(spec, begin, way, laid_by));
    // A path that is no text: the engine would not take it either.
    Ok(*blake3::hash(&encoded.map_err(indescribable)?).as_bytes())
}

fn indescribable(error: impl std::error::Error + Send + Sync + 'static) -> StartError {
    StartError::Io { attempt: "describe the container", source: io::Error::new(io::ErrorKind::InvalidInput, error) }
}

pub(super) fn naming(source: io::Error) -> StartError {
    StartError::Io { attempt: "name the container", source }
}

fn spec(
    plan: &Plan,
    prepared: &Prepared,
    places: &[Place],
    memory: u64,
    labels: Labels,
    (guest, guest_at): (GuestFrom, GuestPlace),
) -> Spec {
    let proc = &plan.policy().proc;
    // Asked for even where the runtime ignores it: no harm, and nothing is promised of it.
    let limits = prepared.facts.limits;
    let shared = places.iter().find(|place| place.at == Path::new(SHARED_MEMORY));
    let tmpfs = |place: &Place| Tmpfs {
        at: place.at.clone(),
        bytes: match prepared.way {
            Way::Laid => COVERED,
            Way::Filled => place.bytes,
        },
        files: place.files,
        whose: if place.mode == 0o1777 { TmpfsOwner::Everybody } else { TmpfsOwner::User },
    };
    let others = places.iter().filter(|place| place.at != Path::new(SHARED_MEMORY));
    Spec {
        image: prepared.image.id.clone(),
        image_variables: prepared.image.variables(),
        image_volumes: prepared.image.volumes.clone(),
        user: User { uid: proc.user.value.uid, gid: proc.user.value.gid },
        guest,
        guest_at,
        tmpfs: others.map(tmpfs).collect(),
        binds: Vec::new(),
        volumes: Vec::new(),
        memory_bytes: limits.memory.then_some(memory),
        nano_cpus: limits.cpus.then(|| u64::from(proc.cpus.value.millis()) * 1_000_000),
        // The guest is one of them.
        processes: limits.processes.then(|| u64::from(proc.processes.value) + 1),
        open_files: u64::from(proc.open_files.value),
        file_size: None,
        shared_memory_bytes: shared.map_or(COVERED, |place| place.bytes),
        seccomp: prepared.seccomp.clone(),
        cgroups: cgroup_view(&prepared.facts, prepared.way),
        runtime: plan.policy().backend.runtime.as_ref().map(|runtime| runtime.value.to_string()),
        labels,
        hostname: HOSTNAME.to_owned(),
        ports_from: door::wanted_of_a_far_guest(&plan.policy().net).as_ref().map(FarDoor::lowest_port),
        engine_socket: prepared.engine.socket().map(Path::to_owned),
    }
}

/// Where something of the host will be laid, a place must be: the root cannot be written any more then.
fn mount_points(containers: &Containers, plan: &Plan) -> Result<Vec<Tmpfs>, StartError> {
    let mut places = Vec::new();
    for mount in &plan.policy().fs.mounts {
        if let Mount::Host { at, .. } = &mount.value {
            places.push(at.as_path().to_owned());
        }
    }
    for (host, at) in crate::cache::mounts(plan.policy(), plan.workspace(), &containers.state)? {
        let folder = if host.is_dir() { Some(at.as_path()) } else { at.parent() };
        places.extend(folder.map(Path::to_owned));
    }
    let covered = |at| Tmpfs { at, bytes: COVERED, files: 64, whose: TmpfsOwner::Everybody };
    Ok(places.into_iter().map(covered).collect())
}

fn begin(plan: &Plan, prepared: &Prepared, workspace: &Path, places: &[Place], memory: u64) -> Begin {
    let proc = &plan.policy().proc;
    let limits = held(plan.policy(), &prepared.facts, prepared.kernel, prepared.way);
    let mode = plan.policy().fs.mode.value;
    let is_writable = |place: &&Place| place.at != workspace || mode != WorkspaceMode::ReadOnly;
    let mut paths: Vec<(OsString, Access)> = vec![("/".into(), Access::ReadOnly)];
    paths.extend(places.iter().filter(is_writable).map(|place| (place.at.clone().into(), Access::ReadWrite)));
    paths.extend(DEVICES.map(|path| (path.into(), Access::ReadWrite)));
    let size = plan.policy().fs.size.value.get();
    let is_laid_over =
        |place: &Place| prepared.way == Way::Laid && place.at == workspace && mode != WorkspaceMode::Ephemeral;
    // What is filled can be written as far as the file system knows; only Landlock says otherwise.
    let is_written = |place: &&Place| prepared.way == Way::Filled || is_writable(place);
    let writable = places.iter().filter(is_written).map(|place| Writable {
        at: place.at.clone().into_os_string(),
        bytes: match prepared.way {
            Way::Laid => place.bytes.max(size),
            Way::Filled => place.bytes,
        },
        on: if is_laid_over(place) { Ground::Layer } else { Ground::Memory },
    });
    let mut rlimits = rlimits(proc).to_vec();
    if limits.memory {
        // The cgroup counts what is used. A limit on what one process may ask for would come first.
        rlimits.retain(|limit| limit.kind != RlimitKind::Data);
    }
    Begin {
        contained: Contained {
            uid: proc.user.value.uid,
            gid: proc.user.value.gid,
            kernel: prepared.kernel,
            workspace: workspace.as_os_str().to_owned(),
            writable: writable.collect(),
            rlimits,
            paths,
            memory: limits.memory.then_some(memory),
            processes: limits.processes.then(|| u64::from(proc.processes.value) + 1),
            processors: (!limits.cpus).then(|| proc.cpus.value.millis().div_ceil(1000)),
        },
        workspace: match (prepared.way, mode) {
            (Way::Laid, _) | (Way::Filled, WorkspaceMode::Ephemeral) => FarWorkspace::AsItIs,
            _ if in_a_volume(plan.policy(), prepared.kernel, prepared.way) => FarWorkspace::AsItIs,
            (Way::Filled, WorkspaceMode::Review | WorkspaceMode::Direct) => FarWorkspace::Kept,
            (Way::Filled, WorkspaceMode::ReadOnly) => FarWorkspace::Forgotten,
        },
        door: door::wanted_of_a_far_guest(&plan.policy().net),
    }
}
