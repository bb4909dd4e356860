//! A container that stands: made, joined or filled, and proven from inside.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use ringfence_guest::far::{Begin, FarWorkspace};
use ringfence_linux::RlimitKind;
use ringfence_linux::wall::{Access, Contained, Entry, Ground, HOME, Identity, Laying, Marker, Writable};
use ringfence_policy::{Mount, WorkspaceMode};

use super::attached::Complaint;
use super::brought::Brought;
use super::cgroup_view::cgroup_view;
use super::engine::{ContainerId, Ended, Engine, State};
use super::labels::{ContainerKind, Labels};
use super::places::{Place, in_memory, places};
use super::promises::held;
use super::spec::{GuestFrom, GuestPlace, Spec, Tmpfs, TmpfsOwner, User};
use super::ways::Way;
use super::{Containers, Prepared, could_not};
use crate::backend::copied::{self, Copied};
use crate::backend::far::{Bringing, FarLink};
use crate::backend::guest::{Kept, Link, Proofs};
use crate::backend::inside::{CODE, workspace_at};
use crate::backend::native::view;
use crate::backend::spawn::rlimits;
use crate::backend::{StartError, WallError};
use crate::plan::Plan;
use crate::scratch::Scratch;
use crate::waiting::waiting;
use crate::workspace::layer::{Life, Lower, PrivateLayer};
use crate::workspace::mirror::nodes;

/// The name of the machine inside, as behind every wall.
const HOSTNAME: &str = "sandbox";
/// A place that something is laid over holds nothing itself.
const COVERED: u64 = 64 * 1024;
/// How often, and how far apart, a container's first process is looked for.
const LOOKS: usize = 400;
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);
/// What the kernel shows of itself and of cgroups.
const KERNELS_OWN: &str = "/sys";
/// Of a private copy below the scratch folder.
const COPY: &str = ".workspace";
/// Places whose files must be writable for programs to work, none of which keeps anything.
const DEVICES: [&str; 8] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts", "/proc"];

/// One that stands. Dropping it removes the container.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) guest: Kept,
    pub(super) far: Arc<FarLink>,
    pub(super) proofs: Proofs,
    pub(super) workspace: PathBuf,
    pub(super) prepared: Prepared,
    pub(super) laid: Option<LaidWorkspace>,
    // Last: nobody is in it then.
    _removal: Removal,
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

/// Removes a container when it is dropped.
#[derive(Debug)]
struct Removal {
    engine: Engine,
    id: ContainerId,
}

impl Drop for Removal {
    fn drop(&mut self) {
        let (engine, id) = (self.engine.clone(), self.id.clone());
        // Its guest ends by itself and the engine removes it then; this is for one that does not. Without an event loop, the
        // next start finds it by its labels.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { engine.remove(&id).await });
        }
    }
}

/// A private copy of the workspace and where it lies.
struct Filling {
    copied: Copied,
    scratch: Scratch,
}

/// Makes a container for `plan`, and has its guest prove it.
pub(super) async fn raise(containers: &Containers, plan: &Plan, kind: ContainerKind) -> Result<Standing, StartError> {
    let prepared = containers.prepare(plan).await?;
    let workspace = workspace_at(plan)?;
    let filling = fill_from(containers, plan, prepared.way)?;
    let (bytes, files) = filling.as_ref().map_or((0, 0), |filling| (filling.copied.bytes(), filling.copied.len()));
    let places = places(plan.policy(), &workspace, bytes, files);
    let guest = containers.guest(&prepared).await?;
    let guest_at = GuestPlace::new().map_err(|error| could_not(&error))?;
    let memory = plan.policy().proc.memory.value.get().saturating_add(in_memory(bytes, files));
    let labels = Labels::new(plan.run_id().as_str(), &containers.owner()?, kind).map_err(io("name the container"))?;
    let mut spec = spec(plan, &prepared, &places, memory, labels, (guest, guest_at));
    if prepared.way == Way::Laid {
        spec.tmpfs.extend(mount_points(containers, plan)?);
    }
    let engine = prepared.engine.clone();
    let id = engine.create(&spec).await.map_err(|error| could_not(&error))?;
    let removal = Removal { engine: engine.clone(), id: id.clone() };
    let making = Making { containers, plan, prepared, workspace, places, memory, spec };
    match making.furnish(&id, filling).await {
        Ok((far, proofs, laid)) => {
            let guest = Kept::new(Link::Far(Arc::clone(&far)));
            let Making { prepared, workspace, .. } = making;
            Ok(Standing { guest, far, proofs, workspace, prepared, laid, _removal: removal })
        }
        Err(error) => {
            // Now, and not when nobody is there any more to do it: what was started may not be what we meant to start.
            engine.remove(&id).await.ok();
            Err(error)
        }
    }
}

/// A container that was made and is not started yet.
struct Making<'a> {
    containers: &'a Containers,
    plan: &'a Plan,
    prepared: Prepared,
    workspace: PathBuf,
    places: Vec<Place>,
    memory: u64,
    spec: Spec,
}

impl Making<'_> {
    /// Starts it, lays or fills what can be written, and has its guest prove the wall.
    async fn furnish(
        &self,
        id: &ContainerId,
        filling: Option<Filling>,
    ) -> Result<(Arc<FarLink>, Proofs, Option<LaidWorkspace>), StartError> {
        let engine = &self.prepared.engine;
        let attached = engine.attach(id).await.map_err(|error| could_not(&error))?;
        engine.start(id).await.map_err(|error| could_not(&error))?;
        let complaint = attached.output.complaint();
        let Source { from, bringing, held } = source(filling, self.plan.policy().fs.mode.value, self.plan)?;
        let (killing, killed) = (engine.clone(), id.clone());
        let kill = move || async move {
            // One that cannot be killed is told to by its end of input, and found again by its labels.
            killing.kill(&killed).await.ok();
        };
        let far = Arc::new(FarLink::new(attached.output, attached.input, kill, bringing));
        let laid = match self.prepared.way {
            Way::Laid => {
                let process = engine.process(id).await.map_err(|error| could_not(&error))?;
                let process = self.find_process(process).await?;
                self.lay(process)?
            }
            Way::Filled => None,
        };
        let begin = begin(self.plan, &self.prepared, &self.workspace, &self.places, self.memory);
        let proofs = match far.proven(begin).await {
            Ok(proofs) => proofs,
            Err(error) => return Err(complaining(error, &complaint, engine, id).await),
        };
        if let Some(from) = from {
            let nodes = nodes(from.as_fd()).flat_map(|batch| match batch {
                Ok(nodes) => nodes.into_iter().map(Ok).collect::<Vec<_>>(),
                Err(error) => vec![Err(error)],
            });
            far.fill(stream::iter(nodes)).await.map_err(io("fill the workspace of the container"))?;
        }
        drop(held);
        Ok((far, proofs, laid))
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

fn io(attempt: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::Io { attempt, source }
}

/// Why a guest did not prove its wall: what it wrote for people, or what the engine says of its end, is more than that it
/// ended.
async fn complaining(error: StartError, complaint: &Complaint, engine: &Engine, id: &ContainerId) -> StartError {
    let wall = |why: String| StartError::Wall(WallError(why));
    match (complaint.text(), engine.state(id).await) {
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
    let scratch = Scratch::create(&containers.state, plan.run_id())?;
    scratch.make_folder(COPY)?;
    let copied = waiting(|| copied::make(plan, &containers.state, &scratch.path().join(COPY)))?;
    Ok(Some(Filling { copied, scratch }))
}

/// What a container is filled from.
#[derive(Default)]
struct Source {
    from: Option<OwnedFd>,
    /// Who takes what differs in the end, where that is kept.
    bringing: Option<Box<dyn Bringing>>,
    /// The copy itself, where nobody else has it.
    held: Option<Filling>,
}

fn source(filling: Option<Filling>, mode: WorkspaceMode, plan: &Plan) -> Result<Source, StartError> {
    let Some(filling) = filling else { return Ok(Source::default()) };
    let from = filling.copied.folder().try_clone_to_owned().map_err(io("open the private copy"))?;
    if !matches!(mode, WorkspaceMode::Review | WorkspaceMode::Direct) {
        return Ok(Source { from: Some(from), bringing: None, held: Some(filling) });
    }
    let most = plan.policy().fs.size.value.get().saturating_add(filling.copied.bytes());
    let brought = Brought::new(filling.copied, filling.scratch, most).map_err(io("open the private copy"))?;
    Ok(Source { from: Some(from), bringing: Some(Box::new(brought)), held: None })
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
    let shared = places.iter().find(|place| place.at == Path::new(super::places::SHARED_MEMORY));
    let tmpfs = |place: &Place| Tmpfs {
        at: place.at.clone(),
        bytes: match prepared.way {
            Way::Laid => COVERED,
            Way::Filled => place.bytes,
        },
        files: place.files,
        whose: if place.mode == 0o1777 { TmpfsOwner::Everybody } else { TmpfsOwner::User },
    };
    let others = places.iter().filter(|place| place.at != Path::new(super::places::SHARED_MEMORY));
    Spec {
        image: prepared.image.id.clone(),
        image_variables: prepared.image.variables(),
        image_volumes: prepared.image.volumes.clone(),
        user: User { uid: proc.user.value.uid, gid: proc.user.value.gid },
        guest,
        guest_at,
        tmpfs: others.map(tmpfs).collect(),
        binds: Vec::new(),
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
        engine_socket: prepared.engine.socket().map(Path::to_owned),
    }
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
            (Way::Filled, WorkspaceMode::Review | WorkspaceMode::Direct) => FarWorkspace::Kept,
            (Way::Filled, WorkspaceMode::ReadOnly) => FarWorkspace::Forgotten,
        },
    }
}

impl Making<'_> {
    /// The container's first process, as it is numbered here. What an engine says it has started may not have become our
    /// binary yet.
    async fn find_process(&self, told: i32) -> Result<i32, StartError> {
        let GuestFrom::File(guest) = &self.spec.guest else { return Err(wall("the engine is on another machine")) };
        let marker = fs::metadata(guest).map_err(io("look at our own binary"))?;
        for _ in 0..LOOKS {
            if let Some(process) = find_process(told, self.spec.guest_at.as_str(), &marker) {
                return Ok(process);
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        Err(wall(
            "its processes cannot be seen from here, although its socket is here: name the engine by tcp:// or ssh://",
        ))
    }

    /// Lays all that can be written into the container whose first process is `process`.
    fn lay(&self, process: i32) -> Result<Option<LaidWorkspace>, StartError> {
        let (containers, plan, at) = (self.containers, self.plan, self.workspace.as_path());
        let GuestFrom::File(guest) = &self.spec.guest else { return Err(wall("the engine is on another machine")) };
        let marker = fs::metadata(guest).map_err(io("look at our own binary"))?;
        let map =
            fs::read_to_string(format!("/proc/{process}/uid_map")).map_err(io("look at the container's users"))?;
        if map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"] {
            return Err(wall(
                "the engine gives containers users of their own, which this version cannot lay a workspace for",
            ));
        }
        let user = plan.policy().proc.user.value;
        let identity = Identity { uid: user.uid, gid: user.gid, host_uid: user.uid, host_gid: user.gid };
        let mut trees = Vec::new();
        let scratch = |path: &str, mode| Entry::Scratch { at: path.into(), mode, size: None };
        let mut entries = vec![scratch("/tmp", 0o1777), scratch("/dev/shm", 0o1777), scratch(HOME, 0o700)];
        let (workspace, reviewed) = view::workspace(plan, at, identity, &containers.state, &mut trees)?;
        entries.extend(workspace);
        let mut mounts = view::mounts(plan)?;
        let hidden = view::hide(&mut mounts, plan.workspace(), at, &containers.state)?;
        entries.extend(mounts.into_iter().chain(hidden).chain(view::caches(plan, &containers.state)?));
        let mut entries = view::without_replaced(entries);
        let lower = reviewed.map(|reviewed| reviewed.lower(at, &entries)).transpose()?;
        // Over the quota's own place, and so the last.
        entries.push(scratch(CODE, 0o700));
        let size = plan.policy().fs.size.value.get();
        let laying = Laying {
            process,
            marker: Marker { at: self.spec.guest_at.as_str().into(), device: marker.dev(), inode: marker.ino() },
            user: (user.uid, user.gid),
            entries,
            // Some runtimes leave something open there.
            read_only: vec![KERNELS_OWN.into()],
            quota_at: CODE.into(),
            writable_bytes: size,
            writable_files: super::places::files(size),
        };
        let laid = containers.launcher.lay(&laying, &trees).map_err(io("lay the workspace into the container"))?;
        match (laid.kept, lower) {
            (Some((upper, merged)), Some(lower)) => Ok(Some(LaidWorkspace { upper, merged, lower })),
            (None, None) => Ok(None),
            // What a program changes would be lost without a word.
            (Some(_), None) | (None, Some(_)) => Err(wall("the private layer of the workspace was not handed over")),
        }
    }
}

/// The first process of a container, as it is numbered here: an engine in namespaces of its own has other numbers. What runs is
/// our binary, and only in this container it is at this place.
fn find_process(told: i32, at: &str, marker: &fs::Metadata) -> Option<i32> {
    let is_it = |process: &i32| {
        let runs = fs::metadata(format!("/proc/{process}/exe"));
        runs.is_ok_and(|found| (found.dev(), found.ino()) == (marker.dev(), marker.ino()))
            && fs::symlink_metadata(format!("/proc/{process}/root{at}")).is_ok()
    };
    let numbers = || {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
    };
    Some(told).filter(is_it).or_else(|| numbers().find(is_it))
}

fn wall(why: &str) -> StartError {
    StartError::Wall(WallError(why.to_owned()))
}
