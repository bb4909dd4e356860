//! The beginning of a wall that is raised before it is known for what: who the program is, and the system that it sees.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_linux::kernel_file;
use ringfence_linux::launcher::{Launcher, MOST_TREES, Prepares};
use ringfence_linux::wall::{self, Access, Entry, Identity, Wall, WholeWall};
use ringfence_policy::{NetMode, ResolvedPolicy, UserId, WorkspaceSource};

use super::view::{Seen, Trees};
use super::{FIRST_NOBODY, Groups, Live, NOBODIES, StartError, View, With, restrictions, view, wall_error};
use crate::backend::inside::{CODE, Scene};
use crate::run_id::RunId;
use crate::state::StateFolder;
use crate::workspace::layer::Lower;

/// So long what a policy shows, and what it denies, is believed by the command that has just looked.
const JUST_NOW: Duration = Duration::from_millis(50);

/// The next wall's number.
static NUMBERS: AtomicU64 = AtomicU64::new(1);

/// What was begun, and when.
#[derive(Debug)]
pub(super) struct Begun {
    wall: Wall,
    at: Instant,
    /// The host's mounts then: the guest has a copy of them, in which those that came or went since did not.
    mounts: Option<String>,
    /// What stands by now.
    whole: Option<Whole>,
}

/// What decides what a wall shows, kept for one that is not needed yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    policy: ResolvedPolicy,
    workspace: PathBuf,
    at: PathBuf,
    search_path: OsString,
}

impl From<Scene<'_>> for Wanted {
    fn from(Scene { policy, workspace, at, search_path }: Scene<'_>) -> Self {
        let (workspace, at) = (workspace.to_owned(), at.to_owned());
        Self { policy: policy.clone(), workspace, at, search_path: search_path.to_owned() }
    }
}

impl Wanted {
    pub(super) fn scene(&self) -> Scene<'_> {
        Scene { policy: &self.policy, workspace: &self.workspace, at: &self.at, search_path: &self.search_path }
    }

    fn is(&self, scene: Scene<'_>) -> bool {
        (&self.policy, &*self.workspace, &*self.at, &*self.search_path)
            == (scene.policy, scene.workspace, scene.at, scene.search_path)
    }
}

impl Begun {
    /// Whether it is for this user.
    fn is_for(&self, user: UserId) -> bool {
        (self.wall.identity.uid, self.wall.identity.gid) == (user.uid, user.gid)
    }

    /// Whether the host's mounts are others by now.
    fn is_outdated(&self) -> bool {
        self.mounts.is_some() && self.mounts != mounts()
    }

    /// The system that a wall for the same program would show now. If it still looks the same, the wall that was begun is the right one.
    fn system(&self) -> System {
        let identity = self.wall.identity;
        let is_believed = self.at.elapsed() < view::BELIEVED;
        (identity, if is_believed { self.wall.entries.clone() } else { view::system(identity) })
    }

    /// What is shown in `scene`, of which it was made, if its whole wall shows just that.
    pub(super) fn shows(&self, scene: Scene<'_>, state: &StateFolder) -> Result<Option<View>, StartError> {
        match &self.whole {
            Some(whole)
                if whole.wanted.is(scene) && self.is_for(scene.policy.proc.user.value) && !self.is_outdated() =>
            {
                whole.clone().view_of(scene, state, self.system(), &With::nothing())
            }
            Some(_) | None => Ok(None),
        }
    }
}

/// Who the program is, and the system that it sees.
pub(super) type System = (Identity, Vec<Entry>);

/// A whole wall that stands and waits for its program.
#[derive(Debug, Clone)]
pub(super) struct Whole {
    number: u64,
    wanted: Wanted,
    /// Since when, for a request that was about to come.
    just_now: Option<Instant>,
    /// What it shows, as it was found.
    shown: Wall,
    seen: Vec<Option<Seen>>,
    /// The same, as its guest was told it: what root took hold of is a tree.
    held: Wall,
    lower: Option<Arc<Lower>>,
    live: Option<Arc<Live>>,
    writable: Vec<(OsString, Access)>,
}

impl Whole {
    /// What is shown in `scene`, if this wall shows just that.
    pub(super) fn view_of(
        self,
        scene: Scene<'_>,
        state: &StateFolder,
        system: System,
        with: &With,
    ) -> Result<Option<View>, StartError> {
        let begun = system.1.len();
        let is_new = self.just_now.is_some_and(|at| at.elapsed() < JUST_NOW);
        let (lower, live) = if is_new && self.wanted.is(scene) {
            (self.lower, self.live)
        } else {
            let now = super::view(scene, state, system, None, &With::nothing(), Trees::only_counted())?;
            if now.wall != self.shown || all_seen(&now) != self.seen {
                return Ok(None);
            }
            (now.lower, now.live)
        };
        let mut wall = self.held;
        wall.entries.extend(with.files.iter().cloned());
        let (trees, writable, stands) = (Trees::default(), self.writable, Some(self.number));
        Ok(Some(View { wall, system: begun, trees, writable, lower, live, copy: None, stands, awaits: None }))
    }
}

fn all_seen(view: &View) -> Vec<Option<Seen>> {
    view.trees.all_seen(view.wall.entries.iter().skip(view.system))
}

/// Lets the wall that was begun be raised as a whole for what is `wanted`, where that can be known before there is a program.
/// Without it, that takes a little longer.
pub(super) fn stand(
    launcher: &Launcher,
    begun: &Mutex<Option<Begun>>,
    state: &StateFolder,
    wanted: Wanted,
    groups: Groups,
) {
    let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(begun) = begun.as_mut().filter(|begun| begun.whole.is_none()) {
        // Why it cannot be is found out, and told, when it is needed.
        begun.whole = raise_whole(launcher, &begun.wall, state, wanted, groups).ok().flatten();
    }
}

fn raise_whole(
    launcher: &Launcher,
    begun: &Wall,
    state: &StateFolder,
    wanted: Wanted,
    groups: Groups,
) -> Result<Option<Whole>, StartError> {
    let scene = wanted.scene();
    let user = scene.policy.proc.user.value;
    // Who is behind a way out, and whom that makes them trust, is known with the run.
    let has_way_out = scene.policy.net.mode.value != NetMode::None || !scene.policy.net.unix.is_empty();
    // A copy that was made ahead would be an old one.
    let is_copy = scene.policy.fs.source.value == WorkspaceSource::Copy;
    if has_way_out || is_copy || (begun.identity.uid, begun.identity.gid) != (user.uid, user.gid) {
        return Ok(None);
    }
    // For one that comes whenever somebody asks, all is looked at again.
    let just_now = (launcher.prepares() == Prepares::Once).then(Instant::now);
    let system = (begun.identity, begun.entries.clone());
    let mut view = super::view(scene, state, system, None, &With::nothing(), Trees::default())?;
    let seen = all_seen(&view);
    if seen.iter().any(Option::is_none) {
        return Ok(None);
    }
    // The folders above what is shown within the workspace would be shown as they are now, whatever becomes of them.
    let within = |at: &Path| at != scene.at && at.starts_with(scene.at);
    if view.wall.entries.iter().filter_map(view::place_of).any(within) {
        return Ok(None);
    }
    let shown = view.wall.clone();
    hold(&mut view.wall, view.system, &mut view.trees.held)?;
    let restrictions = restrictions(scene.policy, view.writable.clone(), groups);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let whole = WholeWall { number, wall: view.wall, restrictions, late: CODE.into() };
    let told = launcher.complete(&whole, &view.trees.held);
    told.map_err(|error| wall_error("raise a wall that is not needed yet", &error))?;
    let View { lower, live, writable, .. } = view;
    Ok(Some(Whole { number, wanted, just_now, shown, seen, held: whole.wall, lower, live, writable }))
}

/// Who programs are and how much they can write, unless a policy says otherwise.
const USUAL_USER: UserId = UserId { uid: 1000, gid: 1000 };
const USUAL_SIZE: u64 = 2 << 30;

/// Begins a wall while the policy is not read yet. If it wants another user this was in vain; another size is set later.
pub(crate) fn presume(launcher: &Launcher) {
    let Ok(id) = RunId::generate() else { return };
    let identity = identity(USUAL_USER, &id);
    // That it could not be begun is found out when it is needed.
    launcher.prepare(&wall_of(USUAL_SIZE, identity, view::system(identity))).ok();
}

/// Begins the next wall under `policy`, if none waits. Without one, the next run only takes a little longer.
pub(super) fn begin(launcher: &Launcher, begun: &Mutex<Option<Begun>>, policy: &ResolvedPolicy) {
    let mut waiting = begun.lock().unwrap_or_else(PoisonError::into_inner);
    if waiting.is_some() {
        return;
    }
    if let Some(wall) = launcher.begun() {
        let begin = Begun { wall, at: Instant::now(), mounts: None, whole: None };
        *waiting = Some(begin);
        return;
    }
    let Ok(id) = RunId::generate() else { return };
    let identity = identity(policy.proc.user.value, &id);
    let wall = wall_for(policy, identity, view::system(identity));
    // Before the guest is made. One that this process has made itself is used at once.
    let mounts = (launcher.prepares() == Prepares::Again).then(mounts);
    if mounts.as_ref().is_none_or(Option::is_some) && launcher.prepare(&wall).is_ok() {
        let begin = Begun { wall, at: Instant::now(), mounts: mounts.flatten(), whole: None };
        *waiting = Some(begin);
    }
}

fn mounts() -> Option<String> {
    kernel_file::read("/proc/self/mountinfo").ok()
}

/// A wall with these entries.
pub(super) fn wall_for(policy: &ResolvedPolicy, identity: Identity, entries: Vec<Entry>) -> Wall {
    wall_of(policy.fs.size.value.get(), identity, entries)
}

fn wall_of(writable_bytes: u64, identity: Identity, entries: Vec<Entry>) -> Wall {
    let writable_files = (writable_bytes / 4096).clamp(1024, 1 << 20);
    Wall { identity, hostname: "sandbox".into(), entries, writable_bytes, writable_files }
}

/// Inside as the policy says; on the host ourselves, or nobody when we are root.
pub(super) fn identity(user: UserId, id: &RunId) -> Identity {
    let (euid, egid) = (rustix::process::geteuid(), rustix::process::getegid());
    let (host_uid, host_gid) = if euid.is_root() {
        // Another one for each run: what one leaves behind, another must not own.
        let hash = blake3::hash(id.as_str().as_bytes());
        let number = u32::from_le_bytes([hash.as_bytes()[0], hash.as_bytes()[1], hash.as_bytes()[2], 0]) % NOBODIES;
        (FIRST_NOBODY + number, FIRST_NOBODY + number)
    } else {
        (euid.as_raw(), egid.as_raw())
    };
    Identity { uid: user.uid, gid: user.gid, host_uid, host_gid }
}

/// Who the program of the next wall is, and the system that it sees: as it was begun, if it was and the host's mounts are the
/// same.
pub(super) fn take(
    launcher: &Launcher,
    begun: &Mutex<Option<Begun>>,
    policy: &ResolvedPolicy,
    id: &RunId,
) -> Result<(System, Option<Whole>), StartError> {
    let user = policy.proc.user.value;
    let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
    if begun.as_ref().is_some_and(Begun::is_outdated) {
        launcher.forget().map_err(|error| not_forgotten(&error))?;
        begun = None;
    }
    Ok(match begun.filter(|begun| begun.is_for(user)) {
        Some(begun) => (begun.system(), begun.whole),
        None => {
            let identity = identity(user, id);
            ((identity, view::system_lately(identity)), None)
        }
    })
}

pub(super) fn not_forgotten(error: &std::io::Error) -> StartError {
    wall_error("end a guest that was made too early", error)
}

/// Makes the entries of `wall` after the first `system` ones fit for somebody who has become the program's user already and
/// sees no device: as root, what is shown of the host is taken hold of here.
pub(super) fn hold(wall: &mut Wall, system: usize, trees: &mut Vec<OwnedFd>) -> Result<(), StartError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let failed = |error: wall::SetupError| wall_error("take hold of what is shown", &std::io::Error::other(error));
    for entry in wall.entries.iter_mut().skip(system) {
        if trees.len() < MOST_TREES {
            wall::hold_source(entry, trees).map_err(failed)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_presumed_is_what_the_defaults_say() {
        let policy = ringfence_policy::resolve(&[], &[]).unwrap();
        assert_eq!((policy.proc.user.value, policy.fs.size.value.get()), (USUAL_USER, USUAL_SIZE));
    }
}
