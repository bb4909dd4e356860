//! `native`: a full wall on this host's kernel, without a daemon.

mod begun;
pub(crate) mod deny;
mod image;
mod interpreter;
mod kept;
mod known;
mod linked;
mod live;
mod load;
mod pace;
mod parked;
mod pinned;
mod promises;
mod sockets;
pub(super) mod toolchain;
mod trust;
pub(super) mod view;
pub(super) mod workspace;

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, Once, OnceLock};

use ringfence_guest::Guest;
use ringfence_linux::cgroup::{self, Cgroup, Hierarchy, Limits};
use ringfence_linux::launcher::{self, Launcher, Prepares};
use ringfence_linux::wall::{self, Access, Entry, Membership, Processors, Program, Restrictions, Wall, WallLaunch};
use ringfence_linux::{RlimitKind, seccomp};
use ringfence_policy::{BackendChoice, BackendKind, NetMode, ResolvedPolicy};

pub(crate) use self::begun::presume;
use self::begun::{Begun, System, Wanted, wall_for};
pub use self::image::ImageError;
pub use self::live::Live;
pub(super) use self::live::{LATER_ONES_ARE_TOLD, LATER_ONES_STOP, LiveFolder, later_ones};
pub(super) use self::load::AtWork;
use self::load::Load;
use self::parked::Parked;
use self::promises::kept;
use super::counters::Counters;
use super::door;
use super::environment::{self, Person};
use super::inside::{self, CODE, Scene, place_of, search_path, workspace_at};
use super::pipes::Pipes;
use super::spawn::rlimits;
use super::{
    Backend, Capabilities, Expected, FoundImage, KeptWall, NAMESPACES, Sandbox, StartError, Unavailable, WallError,
};
use crate::plan::Plan;
use crate::run_id::RunId;
use crate::scratch::Scratch;
use crate::state::StateFolder;
use crate::waiting::waiting;
use crate::way_out::WayOut;
use crate::workspace::layer::Lower;
use crate::{BoxFuture, forbidden, host};

/// The guest, and so many more that who counts sees the limit passed, and not only reached, before the kernel stops it.
const PROCESSES_BEYOND: u64 = 1 + 32;
/// Users of the host that nobody is: one of these stands for a program that root started.
const FIRST_NOBODY: u32 = 2_100_000_000;
const NOBODIES: u32 = 1 << 24;

/// Namespaces, an own view of files, no privileges, a filtered kernel, Landlock as a second fence.
#[derive(Debug, Clone)]
pub struct Native {
    launcher: Arc<Launcher>,
    state: StateFolder,
    /// What a wall was begun with that is not needed yet.
    begun: Arc<Mutex<Option<Begun>>>,
    /// An interpreter that waits for code.
    parked: Arc<Mutex<Option<Parked>>>,
    /// How much there is to do.
    load: Load,
    hierarchy: Arc<OnceLock<Result<Hierarchy, cgroup::Unavailable>>>,
    /// What killed supervisors left is removed before the first run.
    swept: Arc<Once>,
}

impl Native {
    /// A backend whose walls `launcher` raises, and behind which `state` is never seen.
    pub fn new(launcher: Arc<Launcher>, state: StateFolder) -> Self {
        let swept = Arc::new(Once::new());
        let (begun, parked, load) = (Arc::default(), Arc::default(), Load::default());
        Self { launcher, state, begun, parked, load, hierarchy: Arc::default(), swept }
    }

    /// Begins a wall for a request to come, where the launcher can. That it could not costs that request a little time.
    pub(crate) fn prepare(&self, policy: &ResolvedPolicy) {
        let wanted = policy.backend.choice.value;
        let may_be_native = matches!(wanted, BackendChoice::Auto | BackendChoice::Kind(BackendKind::Native));
        let for_an_engine = policy.image.is_some() || policy.backend.runtime.is_some();
        if self.launcher.prepares() == Prepares::Nothing || !may_be_native || for_an_engine {
            return;
        }
        // Where processes are born in the group that counts them, none can be made before there is a group.
        if !self.hierarchy().is_ok_and(Hierarchy::is_unified) {
            begun::begin(&self.launcher, &self.begun, policy);
        }
    }

    /// Where cgroups can be made; looked up once.
    fn hierarchy(&self) -> Result<&Hierarchy, &cgroup::Unavailable> {
        self.hierarchy.get_or_init(cgroup::probe).as_ref()
    }

    /// Makes the cgroup called `name` of one run, with its limits.
    fn make_group(&self, hierarchy: &Hierarchy, name: &str, policy: &ResolvedPolicy) -> std::io::Result<Cgroup> {
        self.swept.call_once(|| {
            // What cannot be removed now, such as because another supervisor is just removing it, is found again by a
            // later start. It must not cost this one its limits.
            cgroup::sweep(hierarchy, cgroup::is_supervisor_alive).ok();
        });
        let proc = &policy.proc;
        let limits = Limits {
            memory: Some(proc.memory.value.get()),
            // The guest is one of them.
            processes: Some(u64::from(proc.processes.value) + 1),
            cpu_millis: Some(proc.cpus.value.millis()),
        };
        hierarchy.create(name, &limits)
    }

    /// The root from an image, when the policy names one. Before anything else is made: it may have to be unpacked first.
    async fn root(&self, plan: &Plan) -> Result<Option<image::Root>, StartError> {
        match image::find(plan, &self.state)? {
            Some(found) => found.obtain(plan, &self.state).await.map(Some),
            None => Ok(None),
        }
    }

    /// Raises the wall of a run under `policy`, with `only` this program behind it or none. Nothing when it is one that was to stand already and
    /// does not.
    fn raise_wall(
        &self,
        (id, policy): (&RunId, &ResolvedPolicy),
        mut view: View,
        only: Option<Program>,
        stdio: [BorrowedFd<'_>; 3],
    ) -> Result<Option<(Guest, Option<Cgroup>)>, StartError> {
        let no_group = |source| StartError::Io { attempt: "make a cgroup for the program", source };
        // Where this host has one to give.
        let grouped = match self.hierarchy() {
            Ok(hierarchy) => Some((hierarchy, cgroup::name_for(id.as_str()).map_err(no_group)?)),
            Err(_) => None,
        };
        if self.launcher.prepares() != Prepares::Nothing && view.stands.is_none() {
            begun::hold(&mut view.wall, view.system, &mut view.trees.held)?;
        }
        let groups = if grouped.is_some() { Groups::Kept } else { Groups::Missing };
        let launch = WallLaunch {
            wall: view.wall,
            restrictions: restrictions(policy, view.writable, groups),
            cgroup: grouped.as_ref().map(|(hierarchy, name)| membership(hierarchy, name)),
            only,
            doors: door::wanted(&policy.net),
            stands: view.stands,
            awaits: view.awaits,
            processors: self.load.processors(),
        };
        let mut group = None;
        let make_groups = || {
            let Some((hierarchy, name)) = &grouped else { return Ok(()) };
            let made = self.make_group(hierarchy, name, policy);
            let gone_on = if made.is_ok() { Ok(()) } else { Err(std::io::ErrorKind::Other.into()) };
            group = Some(made);
            gone_on
        };
        let raised = self.launcher.start(&launch, stdio, &view.trees.held, ringfence_guest::live, make_groups);
        // Why there is no group is told before that there is no wall.
        let group = group.transpose().map_err(no_group)?;
        if raised.as_ref().is_err_and(launcher::is_gone) {
            return Ok(None);
        }
        let guest = raised
            .and_then(|(raised, control)| Guest::new(raised, control))
            .map_err(|source| StartError::Io { attempt: NAMESPACES, source })?;
        Ok(Some((guest, group)))
    }

    fn groups(&self) -> Groups {
        if self.hierarchy().is_ok() { Groups::Kept } else { Groups::Missing }
    }

    /// What the program of `plan` sees: what stands already, if that is it.
    fn look(&self, plan: &Plan, at: &Path, root: Option<&image::Root>, with: &With) -> Result<View, StartError> {
        let scene = Scene::of(plan, at);
        if root.is_some() {
            return self.look_anew(plan, at, root, with);
        }
        let (system, whole) = begun::take(&self.launcher, &self.begun, plan.policy(), plan.run_id())?;
        if let Some(whole) = whole {
            let shown = with.comes_later().then(|| whole.view_of(scene, &self.state, system.clone(), with));
            if let Some(view) = shown.transpose()?.flatten() {
                return Ok(view);
            }
            // Nobody can name it any more, and it keeps its workspace in use until another one takes its place.
            if self.load.processors() == Processors::Busy {
                self.launcher.forget().map_err(|error| begun::not_forgotten(&error))?;
            }
        }
        view(scene, &self.state, system, None, with, view::Trees::default())
    }

    /// Likewise, without anything that was begun.
    fn look_anew(&self, plan: &Plan, at: &Path, root: Option<&image::Root>, with: &With) -> Result<View, StartError> {
        let identity = begun::identity(plan.policy().proc.user.value, plan.run_id());
        let system = root.map_or_else(|| Ok(view::system(identity)), |root| root.system(identity))?;
        view(Scene::of(plan, at), &self.state, (identity, system), root, with, view::Trees::default())
    }

    async fn raise_for_one(&self, plan: &Plan) -> Result<Sandbox, StartError> {
        let at_work = self.load.begin();
        let way_out = WayOut::prepare(plan.policy(), self.launcher.threads())?;
        let root = self.root(plan).await?;
        let at = workspace_at(plan)?;
        if let Some(mut sandbox) = self.take_parked(plan, &at).await? {
            sandbox.at_work = Some(at_work);
            return Ok(sandbox);
        }
        let pipes = Pipes::new(plan.stdin())?;
        let with = With {
            place: Entry::Folder { at: CODE.into() },
            files: view::files(plan, Path::new(CODE)),
            trust: trust::entries(way_out.as_ref(), root.as_ref()),
        };
        let raise = |mut view: View| -> Result<_, StartError> {
            let program = program(plan, &at, Path::new(CODE), root.as_ref())?;
            let (lower, live, copy) = (view.lower.clone(), view.live.clone(), view.copy.take());
            let stdio = pipes.program_ends(plan.stdin())?;
            let wall = self.raise_wall((plan.run_id(), plan.policy()), view, Some(program), stdio)?;
            Ok(wall.map(|wall| (wall, lower, live, copy)))
        };
        let mut raised = raise(self.look(plan, &at, root.as_ref(), &with)?)?;
        if raised.is_none() {
            // What was to stand does not, or another run's is there now.
            raised = raise(self.look_anew(plan, &at, root.as_ref(), &with)?)?;
        }
        let ((guest, group), lower, live, copy) = raised.ok_or_else(lost)?;
        let mut sandbox = pipes.behind(guest)?;
        sandbox.scratch = copy;
        sandbox.counters = group.map(|group| Counters::Cgroup(Arc::new(group)));
        sandbox.lower = lower;
        sandbox.live = live;
        let alone = root.is_none();
        sandbox.image = root.map(|root| root.name().to_owned());
        sandbox.proven(plan, way_out, alone).await?;
        sandbox.at_work = Some(at_work);
        // The program that starts now needs the processors more.
        sandbox.afterwards = self.prepare_again(plan, &at);
        Ok(sandbox)
    }
}

impl Backend for Native {
    fn kind(&self) -> BackendKind {
        BackendKind::Native
    }

    fn probe<'a>(&'a self, policy: &'a ResolvedPolicy) -> BoxFuture<'a, Result<Capabilities, Unavailable>> {
        Box::pin(async move {
            needs()?;
            if let Some(what) = cannot(policy) {
                return Err(Unavailable {
                    reason: format!("in this version it does not know {what}"),
                    fix: "take it out of the policy, or choose another backend".to_owned(),
                });
            }
            image::check_kind(policy)?;
            Ok(Capabilities::new(BackendKind::Native, kept(policy, self.groups())))
        })
    }

    fn try_out<'a>(&'a self, policy: &'a ResolvedPolicy) -> BoxFuture<'a, io::Result<Option<Unavailable>>> {
        Box::pin(async move {
            let identity = begun::identity(policy.proc.user.value, &RunId::unknown());
            let refused = waiting(|| self.launcher.attempt(identity))?;
            Ok(refused.map(|refused| forbidden::explain(refused, &host::read)))
        })
    }

    fn image<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Option<FoundImage>, StartError>> {
        Box::pin(async { Ok(image::find(plan, &self.state)?.map(|found| found.describe(&self.state))) })
    }

    fn expect(&self, expected: Expected<'_>) {
        let Ok(at) = place_of(expected.at, expected.workspace) else { return };
        let (env, _) = environment::clean(expected.policy, expected.environment, Person::Agent);
        let Expected { policy, workspace, .. } = expected;
        let scene = Scene { policy, workspace, at: &at, search_path: search_path(&env) };
        begun::stand(&self.launcher, &self.begun, &self.state, Wanted::from(scene), self.groups());
    }

    fn raise<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Sandbox, StartError>> {
        Box::pin(self.raise_for_one(plan))
    }

    fn keep<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Arc<dyn KeptWall>, StartError>> {
        Box::pin(kept::raise(self, plan))
    }
}

/// Whether this host gives us cgroups to keep limits with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Groups {
    Kept,
    Missing,
}

fn groups_of(group: Option<&Cgroup>) -> Groups {
    if group.is_some() { Groups::Kept } else { Groups::Missing }
}

/// The groups of one run, which are about to be made.
fn membership(hierarchy: &Hierarchy, name: &str) -> Membership {
    let mut folders = hierarchy.folders(name);
    match folders.pop() {
        Some(folder) if folders.is_empty() && hierarchy.is_unified() => Membership::Unified(folder),
        last => Membership::PerController(folders.into_iter().chain(last).collect()),
    }
}

/// What this kernel must have, as far as that costs next to nothing: [`Native::try_out`] tries the rest.
fn needs() -> Result<(), Unavailable> {
    let missing = |reason: &str, fix: &str| Err(Unavailable { reason: reason.to_owned(), fix: fix.to_owned() });
    if wall::landlock_abi().is_none() {
        return missing(
            "this kernel has no Landlock",
            "use Linux 5.13 or newer with `landlock` in the boot parameter lsm=",
        );
    }
    if !seccomp::is_known() {
        return missing(
            "this kernel has no filters of system calls",
            "use Linux 4.14 or newer with CONFIG_SECCOMP_FILTER, where nothing around us refuses `seccomp`",
        );
    }
    // Of root too little is known before it is tried.
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    forbidden::by_settings(&host::read).map_or(Ok(()), Err)
}

/// What restricts every program under `policy` that can write to `paths`.
fn restrictions(policy: &ResolvedPolicy, paths: Vec<(OsString, Access)>, groups: Groups) -> Restrictions {
    let mut rlimits = rlimits(&policy.proc).to_vec();
    let processors = match groups {
        Groups::Kept => {
            // The group counts what is used. A limit on what one process may ask for would come first, refuse programs that
            // only reserve much, and leave nothing to tell by.
            rlimits.retain(|limit| limit.kind != RlimitKind::Data);
            None
        }
        Groups::Missing => Some(policy.proc.cpus.value.millis().div_ceil(1000)),
    };
    let processes = u64::from(policy.proc.processes.value) + PROCESSES_BEYOND;
    Restrictions { rlimits, paths, processors, processes }
}

/// What of a view comes with the run.
struct With {
    /// Where its code is.
    place: Entry,
    /// Code and files, below that.
    files: Vec<Entry>,
    /// Whom its programs are to trust.
    trust: Vec<Entry>,
}

impl With {
    /// A run that brings nothing.
    fn nothing() -> Self {
        Self { place: Entry::Folder { at: CODE.into() }, files: Vec::new(), trust: Vec::new() }
    }

    /// Whether all of it can be put into a wall that stands.
    fn comes_later(&self) -> bool {
        self.trust.is_empty() && self.place == Self::nothing().place
    }
}

/// All that is shown, decided on the host before the wall is raised.
struct View {
    wall: Wall,
    /// How many of its first entries are the system's.
    system: usize,
    trees: view::Trees,
    writable: Vec<(OsString, Access)>,
    /// The workspace, when what is changed of it is kept.
    lower: Option<Arc<Lower>>,
    /// What stays the host's own, where something in it is denied.
    live: Option<Arc<Live>>,
    /// The copy of the workspace that is shown, if one is.
    copy: Option<Scratch>,
    /// The number of the wall that shows this already, if one does.
    stands: Option<u64>,
    /// The name of the code that comes when its program waits for it.
    awaits: Option<OsString>,
}

fn view(
    scene: Scene<'_>,
    state: &StateFolder,
    (identity, mut entries): System,
    root: Option<&image::Root>,
    with: &With,
    mut trees: view::Trees,
) -> Result<View, StartError> {
    let Scene { policy, workspace, at, search_path } = scene;
    let system = if root.is_none() { entries.len() } else { 0 };
    if root.is_none() {
        entries.extend(toolchain::entries(search_path, workspace));
    }
    let hidden = view::hide(&mut entries, workspace, at, state)?;
    entries.extend(hidden);
    let workspace::Workspace { entry, reviewed, copy } = workspace::workspace(scene, identity, state, &mut trees)?;
    entries.push(entry);
    let mut mounts = view::mounts(scene, &mut trees)?;
    let hidden = view::hide(&mut mounts, workspace, at, state)?;
    entries.extend(mounts.into_iter().chain(hidden).chain(view::caches(scene, state)?));
    entries.extend(sockets::entries(policy, identity, state, &mut trees)?);
    entries.extend(with.trust.iter().chain([&with.place]).chain(&with.files).cloned());
    let mut entries = view::without_replaced(entries);
    if let Some(root) = root {
        entries.insert(0, root.ground(&entries, identity, &mut trees)?);
    }
    let writable = view::writable_paths(&entries);
    let lower = reviewed.map(|reviewed| reviewed.lower(at, &entries)).transpose()?;
    let live = trees.live(&policy.fs.deny, state);
    let wall = wall_for(policy, identity, entries);
    Ok(View { wall, system, trees, writable, lower, live, copy, stands: None, awaits: None })
}

/// The program of `plan`, whose code is in the folder `code` inside.
fn program(plan: &Plan, workspace: &Path, code: &Path, root: Option<&image::Root>) -> Result<Program, StartError> {
    let env = root.map_or_else(|| plan.env().to_vec(), |root| root.env(plan));
    // Without an image, the system's folders and toolchains look the same inside and outside.
    let is_there = |file: &Path| root.map_or_else(|| file.is_file(), |root| root.has_file(file));
    inside::program(plan, env, workspace, code, is_there)
}

/// What of a policy this version cannot do behind this wall. Doing less in silence would be a lie, and more as well.
fn cannot(policy: &ResolvedPolicy) -> Option<&'static str> {
    if policy.net.mode.value == NetMode::Open {
        Some("`net.mode: open`: there is only the network of its own")
    } else if policy.net.mode.value == NetMode::None && !policy.net.localhost.is_empty() {
        Some("`net.localhost` without `net.mode: allowlist`")
    } else {
        None
    }
}

/// A wall that was to stand is gone a second time.
fn lost() -> StartError {
    StartError::Wall(WallError("what was raised before is gone, as if somebody killed it: try it again".to_owned()))
}

/// An error in preparing a part of the view.
fn wall_error(attempt: &str, source: &std::io::Error) -> StartError {
    StartError::Wall(WallError(format!("could not {attempt}: {source}")))
}
