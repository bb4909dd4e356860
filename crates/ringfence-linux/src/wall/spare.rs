//! Process 1 of a wall that is not needed yet: in its namespaces already, with the part of the view that every program has.
//!
//! Nothing untrusted is near it. It waits for what it will be, and ends with who made it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::guest::{Begun, Behind, Life, WallDescriptors, WallLaunch};
use super::membership::{Membership, OpenMembership};
use super::namespaces::{Groups, Joined, Raised, bear, map};
use super::network::Network;
use super::program::Failed;
use super::view::ABOVE_ARRANGED;
use super::{Entry, Source, Wall};
use crate::keeper::stream_sockets;
use crate::keeper_process::CONTROL;
use crate::passing::{self, MOST_DESCRIPTORS};
use crate::program_process::{close_between, close_from};
use crate::{privileges, seccomp};

/// Code and files travel in a launch.
const MOST_MESSAGE: usize = 128 * 1024 * 1024;
const LENGTH: usize = 8;
/// Standard input, output and error, and the control socket.
const FIXED: usize = 4;

/// A guest without a wall. Dropping it ends it.
#[derive(Debug)]
pub struct Spare {
    /// Taken out when it gets its wall.
    raised: Option<Raised>,
    socket: OwnedFd,
    /// What it builds already.
    wall: Option<Wall>,
}

impl Spare {
    /// Makes one that will live `life`. This process must have one thread.
    pub fn begin(life: Life) -> io::Result<Self> {
        let (ours, theirs) = stream_sockets()?;
        let raised = bear(None, || wait_for_a_wall(&theirs, life))?;
        Ok(Self { raised: Some(raised.counted()), socket: ours, wall: None })
    }

    /// Lets it begin with `wall`: its user, its size, and the entries that come first, none of which is a prepared tree.
    pub fn prepare(&mut self, wall: Wall) -> io::Result<()> {
        let raised = self.raised.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        if self.wall.is_some() || !wall.entries.iter().all(can_be_early) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        map(raised.pid(), wall.identity)?;
        send(&self.socket, &wall, &[])?;
        self.wall = Some(wall);
        Ok(())
    }

    /// What it was told to begin with.
    pub fn begun(&self) -> Option<&Wall> {
        self.wall.as_ref()
    }

    /// Whether what it began with is how the wall of `launch` begins.
    pub fn suits(&self, launch: &WallLaunch) -> bool {
        let born_elsewhere = matches!(launch.cgroup, Some(Membership::Unified(_)));
        !born_elsewhere
            && self.wall.as_ref().is_some_and(|wall| begins_with(&launch.wall, wall) && can_follow(launch, wall))
    }

    /// Lets it raise the wall of `launch`, which it [suits](Self::suits). The groups that it joins are made meanwhile.
    pub fn raise(
        mut self,
        launch: &WallLaunch,
        descriptors: WallDescriptors<'_>,
        make_groups: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Raised> {
        let raised = self.raised.take().ok_or(io::ErrorKind::NotConnected)?;
        let sent = self.send_launch(launch, descriptors).and_then(|()| make_groups()).and_then(|()| {
            // It waits for them wherever the launch names some.
            launch.cgroup.as_ref().map_or(Ok(()), |groups| self.send_groups(groups))
        });
        if let Err(error) = sent {
            raised.end();
            return Err(error);
        }
        Ok(raised)
    }

    fn send_launch(&self, launch: &WallLaunch, descriptors: WallDescriptors<'_>) -> io::Result<()> {
        let mut sent: Vec<BorrowedFd<'_>> = descriptors.stdio.to_vec();
        sent.push(descriptors.control);
        sent.extend(descriptors.trees.iter().map(AsFd::as_fd));
        if sent.len() > MOST_DESCRIPTORS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many prepared trees"));
        }
        send(&self.socket, &(launch, descriptors.trees.len()), &sent)
    }

    fn send_groups(&self, groups: &Membership) -> io::Result<()> {
        let lists = groups.open()?.lists().ok_or(io::ErrorKind::Unsupported)?;
        send(&self.socket, &lists.len(), &lists.iter().map(AsFd::as_fd).collect::<Vec<_>>())
    }
}

impl Drop for Spare {
    fn drop(&mut self) {
        if let Some(raised) = &self.raised {
            raised.end();
        }
    }
}

/// Whether an entry needs nothing that only comes with the launch.
fn can_be_early(entry: &Entry) -> bool {
    match entry {
        Entry::Bind { source, .. } | Entry::CopyOnWrite { source, .. } => matches!(source, Source::Host(_)),
        _ => true,
    }
}

/// Whether the entries after the first ones can be added by somebody who has become the program's user already, and who sees
/// none of the host's devices any more.
fn can_follow(launch: &WallLaunch, begun: &Wall) -> bool {
    let same_user = launch.wall.identity.host_uid == rustix::process::geteuid().as_raw();
    launch.wall.entries.iter().skip(begun.entries.len()).all(|entry| match entry {
        Entry::Bind { source, .. } | Entry::CopyOnWrite { source, .. } => match source {
            Source::Tree(_) => true,
            Source::Host(path) | Source::Pinned { path, .. } => same_user && !path.starts_with("/dev"),
        },
        Entry::Device { .. } => false,
        _ => true,
    })
}

/// How much can be written is no part of the beginning: it can be changed until the view is entered.
fn begins_with(whole: &Wall, begun: &Wall) -> bool {
    whole.identity == begun.identity && whole.hostname == begun.hostname && whole.entries.starts_with(&begun.entries)
}

/// The whole life of a spare, until it is a guest like any other.
fn wait_for_a_wall(socket: &OwnedFd, life: Life) {
    // Nothing of whoever made us is ours, least of all the other end of our socket: by its end we know of theirs.
    let kept = socket.as_raw_fd();
    if close_between(CONTROL, kept - 1).and_then(|()| close_from(kept + 1)).is_err() {
        return;
    }
    let Ok(socket) = rustix::io::fcntl_dupfd_cloexec(socket, ABOVE_ARRANGED) else { return };
    let network = Network::begin();
    // We have time now. Later it is looked at again, when every privilege goes.
    let bounding = privileges::empty_bounding_set();
    let Ok(Some((wall, _))) = receive::<Wall>(&socket) else { return };
    seccomp::program();
    let begun = bounding.map_err(|error| Failed::said(&error)).and_then(|()| Begun::begin(&wall, &[]));
    let Ok(Some(((launch, trees), came))) = receive::<(WallLaunch, usize)>(&socket) else { return };
    if came.len() != FIXED + trees {
        // Some were lost on the way, such as for want of numbers for them.
        return;
    }
    let mut came = came.into_iter();
    let fixed: Vec<OwnedFd> = came.by_ref().take(FIXED).collect();
    let trees: Vec<OwnedFd> = came.by_ref().take(trees).collect();
    let Ok([stdin, stdout, stderr, control]) = <[OwnedFd; FIXED]>::try_from(fixed) else { return };
    // What is written into files is counted where the program's memory is. Where nothing is, they may still be made.
    let rest = launch.wall.entries.get(wall.entries.len()..).unwrap_or_default();
    let writes = rest.iter().any(|entry| matches!(entry, Entry::File { .. }));
    let groups = match &launch.cgroup {
        None => Groups::Joined(Ok(())),
        Some(_) if writes => Groups::Joined(join_groups(&socket)),
        Some(_) => Groups::Coming(Box::new(move || join_groups(&socket))),
    };
    let descriptors = WallDescriptors {
        stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        control: control.as_fd(),
        trees: &trees,
    };
    let unlike = || Failed::Said("the wall is not the one that was begun".to_owned());
    let begun = begun.and_then(|begun| if begins_with(&launch.wall, &wall) { Ok(begun) } else { Err(unlike()) });
    Behind::live(life, &launch, descriptors, |control| {
        begun?.finish(&launch, wall.entries.len(), descriptors, Joined { groups, network }, control)
    });
}

/// Joins the groups that are told of next.
fn join_groups(socket: &OwnedFd) -> io::Result<()> {
    let (lists, came) = receive::<usize>(socket)?.ok_or(io::ErrorKind::UnexpectedEof)?;
    if lists == 0 || came.len() != lists {
        // Without one of them the program would not be counted there.
        return Err(io::Error::new(io::ErrorKind::InvalidData, "some of them were lost on the way"));
    }
    OpenMembership::from_lists(came).add(0)
}

fn send<T: Serialize>(socket: &OwnedFd, message: &T, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut bytes = postcard::to_extend(message, vec![0; LENGTH]).map_err(io::Error::other)?;
    let length = bytes.len() - LENGTH;
    if length > MOST_MESSAGE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    bytes[..LENGTH].copy_from_slice(&(length as u64).to_le_bytes());
    passing::send(socket.as_fd(), &bytes, descriptors)
}

/// The next message, or nothing when the other end is gone.
fn receive<T: DeserializeOwned>(socket: &OwnedFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut descriptors = Vec::new();
    let mut header = [0u8; LENGTH];
    if !fill(socket, &mut header, &mut descriptors)? {
        return Ok(None);
    }
    let length = usize::try_from(u64::from_le_bytes(header)).unwrap_or(usize::MAX);
    if length > MOST_MESSAGE {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    let mut bytes = vec![0; length];
    if !fill(socket, &mut bytes, &mut descriptors)? {
        return Ok(None);
    }
    let message = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
    Ok(Some((message, descriptors)))
}

fn fill(socket: &OwnedFd, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let (received, came) = passing::receive(socket.as_fd(), rest)?;
        if received == 0 {
            return Ok(false);
        }
        filled += received;
        // Out of the way of the numbers that descriptors are arranged at: those are taken since the network was begun.
        descriptors.extend(came);
    }
    Ok(true)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::wall::{Access, Doors, Identity, Restrictions};

    fn bind(source: Source) -> Entry {
        Entry::Bind { source, at: "/x".into(), access: Access::ReadOnly }
    }

    fn host(path: &str) -> Entry {
        bind(Source::Host(PathBuf::from(path)))
    }

    fn launch(entries: Vec<Entry>, host_uid: u32) -> WallLaunch {
        let identity = Identity { uid: 1000, gid: 1000, host_uid, host_gid: host_uid };
        let wall = Wall { identity, hostname: "sandbox".into(), entries, writable_bytes: 4096, writable_files: 16 };
        let restrictions = Restrictions { rlimits: Vec::new(), paths: Vec::new(), processors: None, processes: 1 };
        WallLaunch { wall, restrictions, cgroup: None, only: None, doors: Doors::default() }
    }

    /// Whether a wall that began with `/usr` can go on to `then`, for somebody with our user or another's.
    fn check(then: Vec<Entry>, host_uid: u32, expected: bool) {
        let begun = launch(vec![host("/usr")], host_uid).wall;
        let entries = [vec![host("/usr")], then].concat();
        let whole = launch(entries, host_uid);
        let suits = begins_with(&whole.wall, &begun) && can_follow(&whole, &begun);
        assert_eq!(suits, expected, "{:?} as {host_uid}", whole.wall.entries);
    }

    #[test]
    fn a_wall_that_was_begun_goes_on_only_with_what_its_user_can_still_see() {
        let ourselves = rustix::process::geteuid().as_raw();
        let another = ourselves + 1;
        check(vec![], ourselves, true);
        check(vec![host("/home/x")], ourselves, true);
        check(vec![host("/home/x")], another, false);
        check(vec![bind(Source::Tree(0))], another, true);
        check(vec![bind(Source::Pinned { path: "/home/x".into(), device: 1, inode: 2 })], another, false);
        check(vec![host("/dev/shm/x")], ourselves, false);
        check(vec![Entry::Device { name: "null".to_owned() }], ourselves, false);
    }

    #[test]
    fn a_guest_that_does_not_hear_of_all_its_groups_joins_none() {
        let list = || OwnedFd::from(std::fs::File::options().write(true).open("/dev/null").unwrap());
        let check = |told: usize, lists: &[OwnedFd], expected: bool| {
            let (ours, theirs) = stream_sockets().unwrap();
            send(&ours, &told, &lists.iter().map(AsFd::as_fd).collect::<Vec<_>>()).unwrap();
            assert_eq!(join_groups(&theirs).is_ok(), expected, "{told} of {}", lists.len());
        };
        check(2, &[list(), list()], true);
        check(2, &[list()], false);
        check(1, &[], false);
        check(0, &[], false);
        let (ours, theirs) = stream_sockets().unwrap();
        drop(ours);
        assert!(join_groups(&theirs).is_err(), "whoever makes them is gone");
    }

    #[test]
    fn a_wall_that_was_begun_is_no_other_one() {
        let begun = launch(vec![host("/usr")], 7).wall;
        assert!(begins_with(&launch(vec![host("/usr"), Entry::Proc], 7).wall, &begun));
        assert!(!begins_with(&launch(vec![host("/usr")], 8).wall, &begun), "another user");
        assert!(!begins_with(&launch(vec![host("/opt")], 7).wall, &begun), "another system");
        assert!(!begins_with(&launch(vec![], 7).wall, &begun), "less of it");
        let larger = Wall { writable_bytes: 8192, ..launch(vec![host("/usr")], 7).wall };
        assert!(begins_with(&larger, &begun), "another size, which it is given when it goes on");
    }
}
