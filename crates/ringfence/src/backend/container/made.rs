//! A container that was made and started, whose guest was told nothing yet; and what it is made from.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_guest::far::{Begin, FarWorkspace};
use ringfence_linux::RlimitKind;
use ringfence_linux::wall::{Access, Contained, Ground, Writable};
use ringfence_policy::WorkspaceMode;

use super::attached::Complaint;
use super::engine::{ContainerId, Engine, State};
use super::failure::EngineError;
use super::labels::{ContainerKind, Labels, Owner};
use super::places::{Place, SHARED_MEMORY, places};
use super::pool::{self, Key};
use super::room::Room;
use super::spec::{GuestFrom, Spec, Tmpfs, TmpfsOwner, User};
use super::ways::Way;
use super::{Containers, Prepared, could_not};
use crate::backend::StartError;
use crate::backend::far::FarLink;
use crate::backend::inside::workspace_at;
use crate::backend::spawn::rlimits;
use crate::plan::Plan;
use crate::run_id::RunId;

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
    pub(super) guest: GuestFrom,
    /// What its guest is told first, when the container is used.
    pub(super) begin: Begin,
    pub(super) recipe: Arc<Recipe>,
}

/// How a container is made: nothing of one run is in it but the first labels.
#[derive(Debug)]
pub(super) struct Recipe {
    key: Key,
    engine: Engine,
    owner: Owner,
    spec: Spec,
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
        let with = |room: Room| {
            let places = places(plan.policy(), &workspace, room.bytes, room.files);
            let memory = plan.policy().proc.memory.value.get().saturating_add(room.memory());
            let spec = spec(plan, &prepared, &places, &guest, memory, labels.clone());
            (spec, begin(plan, &prepared, &workspace, &places, memory))
        };
        let (spec, begin) = with(Room::default());
        let hash = hash(&spec, &begin, prepared.way)?;
        let (spec, begin) = if room == Room::default() { (spec, begin) } else { with(room) };
        let recipe = Arc::new(Recipe { key: Key { hash, room }, engine: prepared.engine.clone(), owner, spec });
        Ok(Self { prepared, workspace, guest, begin, recipe })
    }
}

/// The hash of all that a container and its guest depend on.
fn hash(spec: &Spec, begin: &Begin, way: Way) -> Result<[u8; 32], StartError> {
    let way: u8 = match way {
        Way::Laid => 0,
        Way::Filled => 1,
    };
    let encoded = postcard::to_allocvec(&(spec, begin, way));
    // A path that is no text: the engine would not take it either.
    let encoded = encoded.map_err(|error| StartError::Io {
        attempt: "describe the container",
        source: io::Error::new(io::ErrorKind::InvalidInput, error),
    })?;
    Ok(*blake3::hash(&encoded).as_bytes())
}

fn naming(source: io::Error) -> StartError {
    StartError::Io { attempt: "name the container", source }
}

/// One that was made. Dropping it kills its guest and removes the container.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) far: Arc<FarLink>,
    pub(super) complaint: Complaint,
    /// Its first process on the engine's machine, where that was just looked at.
    pub(super) process: Option<i32>,
    // Last: nobody is in it then.
    pub(super) place: MadePlace,
}

/// The container itself. Dropping it removes it.
#[derive(Debug)]
pub(super) struct MadePlace {
    engine: Engine,
    id: ContainerId,
}

impl MadePlace {
    /// Its first process; an error when it has none.
    pub(super) async fn process(&self) -> Result<i32, EngineError> {
        self.engine.process(&self.id).await
    }

    /// How it is.
    pub(super) async fn state(&self) -> Result<State, EngineError> {
        self.engine.state(&self.id).await
    }
}

impl Drop for MadePlace {
    fn drop(&mut self) {
        let (engine, id) = (self.engine.clone(), self.id.clone());
        // Its guest ends by itself and the engine removes it then; this is for one that does not. Without an event loop, the
        // next start finds it by its labels.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { engine.remove(&id).await });
        }
    }
}

impl Recipe {
    /// Makes one for a run or a session.
    pub(super) async fn make_for(&self, run: &RunId, kind: ContainerKind) -> Result<Made, StartError> {
        let labels = Labels::new(run.as_str(), &self.owner, kind).map_err(naming)?;
        let spec = Spec { labels, ..self.spec.clone() };
        let engine = &self.engine;
        let id = engine.create(&spec).await.map_err(|error| could_not(&error))?;
        let place = MadePlace { engine: engine.clone(), id: id.clone() };
        let attached = engine.attach(&id).await.map_err(|error| could_not(&error))?;
        engine.start(&id).await.map_err(|error| could_not(&error))?;
        let complaint = attached.output.complaint();
        let killing = engine.clone();
        let kill = move || async move {
            // One that cannot be killed is told to by its end of input, and found again by its labels.
            killing.kill(&id).await.ok();
        };
        let far = Arc::new(FarLink::new(attached.output, attached.input, kill, None));
        Ok(Made { far, complaint, process: None, place })
    }
}

impl pool::Recipe for Recipe {
    type Made = Made;

    fn key(&self) -> Key {
        self.key
    }

    async fn make(&self) -> Result<Made, StartError> {
        let unique = RunId::generate().map_err(|_| naming(io::ErrorKind::Other.into()))?;
        self.make_for(&unique, ContainerKind::Pool).await
    }

    async fn is_alive(made: &mut Made) -> bool {
        if made.far.is_over() {
            return false;
        }
        made.process = made.place.process().await.ok();
        made.process.is_some() && !made.far.is_over()
    }

    async fn end(made: Made) {
        let (engine, id) = (made.place.engine.clone(), made.place.id.clone());
        // What cannot be removed is tried once more when it is dropped, and found by its labels later.
        engine.remove(&id).await.ok();
        drop(made);
    }
}

fn spec(plan: &Plan, prepared: &Prepared, places: &[Place], guest: &GuestFrom, memory: u64, labels: Labels) -> Spec {
    let proc = &plan.policy().proc;
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
        guest: guest.clone(),
        tmpfs: others.map(tmpfs).collect(),
        binds: Vec::new(),
        memory_bytes: if limits.memory { memory } else { 0 },
        nano_cpus: if limits.cpus { u64::from(proc.cpus.value.millis()) * 1_000_000 } else { 0 },
        // The guest is one of them.
        processes: if limits.processes { u64::from(proc.processes.value) + 1 } else { 0 },
        open_files: u64::from(proc.open_files.value),
        file_size: None,
        shared_memory_bytes: shared.map_or(COVERED, |place| place.bytes),
        seccomp: prepared.seccomp.clone(),
        runtime: plan.policy().backend.runtime.as_ref().map(|runtime| runtime.value.to_string()),
        labels,
        hostname: HOSTNAME.to_owned(),
        engine_socket: prepared.engine.socket().map(Path::to_owned),
    }
}

fn begin(plan: &Plan, prepared: &Prepared, workspace: &Path, places: &[Place], memory: u64) -> Begin {
    let proc = &plan.policy().proc;
    let limits = prepared.facts.limits;
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
            memory,
            processes: u64::from(proc.processes.value) + 1,
        },
        workspace: match (prepared.way, mode) {
            (Way::Laid, _) | (Way::Filled, WorkspaceMode::Ephemeral) => FarWorkspace::AsItIs,
            (Way::Filled, WorkspaceMode::Review | WorkspaceMode::Direct) => FarWorkspace::Kept,
            (Way::Filled, WorkspaceMode::ReadOnly) => FarWorkspace::Forgotten,
        },
    }
}
