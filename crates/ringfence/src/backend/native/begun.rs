//! The beginning of a wall that is raised before it is known for what: who the program is, and the system that it sees.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_linux::kernel_file;
use ringfence_linux::launcher::{Launcher, MOST_TREES, Prepares};
use ringfence_linux::wall::{self, Entry, Identity, Wall};
use ringfence_policy::{ResolvedPolicy, UserId};

use super::{FIRST_NOBODY, NOBODIES, StartError, view, wall_error};
use crate::run_id::RunId;

/// So long the host's system is believed to look as it did.
const BELIEVED: Duration = Duration::from_secs(1);

/// What was begun, and when.
#[derive(Debug)]
pub(super) struct Begun {
    wall: Wall,
    at: Instant,
    /// The host's mounts then: the guest has a copy of them, in which those that came or went since did not.
    mounts: Option<String>,
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

/// Begins the next wall under `policy`. Without one, the next run only takes a little longer.
pub(super) fn begin(launcher: &Launcher, begun: &Mutex<Option<Begun>>, policy: &ResolvedPolicy) {
    if let Some(wall) = launcher.begun() {
        let begin = Begun { wall, at: Instant::now(), mounts: None };
        *begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(begin);
        return;
    }
    let Ok(id) = RunId::generate() else { return };
    let identity = identity(policy.proc.user.value, &id);
    let wall = wall_for(policy, identity, view::system(identity));
    // Before the guest is made. One that this process has made itself is used at once.
    let mounts = (launcher.prepares() == Prepares::Again).then(mounts);
    if mounts.as_ref().is_none_or(Option::is_some) && launcher.prepare(&wall).is_ok() {
        let begin = Begun { wall, at: Instant::now(), mounts: mounts.flatten() };
        *begun.lock().unwrap_or_else(PoisonError::into_inner) = Some(begin);
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
) -> Result<(Identity, Vec<Entry>), StartError> {
    let user = policy.proc.user.value;
    let mut begun = begun.lock().unwrap_or_else(PoisonError::into_inner).take();
    if begun.as_ref().is_some_and(|begun| begun.mounts.is_some() && begun.mounts != mounts()) {
        launcher.forget().map_err(|error| wall_error("end a guest that was made too early", &error))?;
        begun = None;
    }
    Ok(match begun.filter(|begun| (begun.wall.identity.uid, begun.wall.identity.gid) == (user.uid, user.gid)) {
        Some(begun) if begun.at.elapsed() < BELIEVED => (begun.wall.identity, begun.wall.entries),
        // If the system still looks the same, the wall that was begun is the right one.
        Some(begun) => (begun.wall.identity, view::system(begun.wall.identity)),
        None => {
            let identity = identity(user, id);
            (identity, view::system(identity))
        }
    })
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
