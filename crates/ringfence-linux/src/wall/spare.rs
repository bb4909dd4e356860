//! Process 1 of a wall that is not needed yet: in its namespaces already, with the part of the view that every program has, or with
//! the whole wall around it.
//!
//! Nothing untrusted is near it. It waits for what it will be, and ends with who made it.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::begun::{Begun, WholeWall, arrange};
use super::door::Doors;
use super::guest::{Behind, Life, WallDescriptors, WallLaunch};
use super::membership::{Membership, OpenMembership};
use super::namespaces::{Groups, Joined, Processors, Raised, bear, map};
use super::network::Network;
use super::program::{Failed, Program};
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
    /// What it is, but for its program.
    whole: Option<Box<WholeWall>>,
}

/// What a spare is told after its wall was begun. The number is that of the trees that come with it.
#[derive(Serialize)]
enum Say<'a> {
    Launch(&'a WallLaunch, usize),
    Whole(&'a WholeWall, usize),
    Last(Option<&'a Program>, Option<&'a Membership>, &'a [Entry], Option<&'a OsStr>),
}

/// The same, as it hears it.
#[derive(Deserialize)]
enum Heard {
    /// The rest of the wall, and its program.
    Launch(WallLaunch, usize),
    /// The rest of the wall.
    Whole(WholeWall, usize),
    /// Its program, where that is counted, files that come with it, and the name of one that comes later still.
    Last(Option<Program>, Option<Membership>, Vec<Entry>, Option<OsString>),
}

impl Spare {
    /// Makes one that will live `life`. This process must have one thread.
    pub fn begin(life: Life) -> io::Result<Self> {
        let (ours, theirs) = stream_sockets()?;
        let raised = bear(None, Processors::Free, || wait_for_a_wall(&theirs, life))?;
        Ok(Self { raised: Some(raised.counted()), socket: ours, wall: None, whole: None })
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

    /// Lets it raise the whole wall, which begins as it has begun. What remains is to tell it the program.
    pub fn complete(&mut self, whole: WholeWall, trees: &[OwnedFd]) -> io::Result<()> {
        let goes_on = |begun: &Wall| begins_with(&whole.wall, begun) && can_follow(&whole.wall, begun);
        let may = self.raised.is_some() && self.whole.is_none() && self.wall.as_ref().is_some_and(goes_on);
        if !may || trees.len() > MOST_DESCRIPTORS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let sent: Vec<BorrowedFd<'_>> = trees.iter().map(AsFd::as_fd).collect();
        send(&self.socket, &Say::Whole(&whole, trees.len()), &sent)?;
        self.whole = Some(Box::new(whole));
        Ok(())
    }

    /// Whether it is there for one launch alone, which names it.
    pub fn is_whole(&self) -> bool {
        self.whole.is_some()
    }

    /// What it was told to begin with.
    pub fn begun(&self) -> Option<&Wall> {
        self.wall.as_ref()
    }

    /// Whether what it began with is how the wall of `launch` begins.
    pub fn suits(&self, launch: &WallLaunch) -> bool {
        let born_elsewhere = matches!(launch.cgroup, Some(Membership::Unified(_)));
        let goes_on = |begun: &Wall| begins_with(&launch.wall, begun) && can_follow(&launch.wall, begun);
        !born_elsewhere
            && self.raised.as_ref().is_some_and(Raised::is_alive)
            && match &self.whole {
                Some(whole) => is_whole(launch, whole),
                None => launch.stands.is_none() && launch.awaits.is_none() && self.wall.as_ref().is_some_and(goes_on),
            }
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
        if let Some(whole) = &self.whole {
            let files = launch.wall.entries.get(whole.wall.entries.len()..).unwrap_or_default();
            let (only, cgroup, awaits) = (launch.only.as_ref(), launch.cgroup.as_ref(), launch.awaits.as_deref());
            return send(&self.socket, &Say::Last(only, cgroup, files, awaits), &sent);
        }
        sent.extend(descriptors.trees.iter().map(AsFd::as_fd));
        if sent.len() > MOST_DESCRIPTORS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many prepared trees"));
        }
        send(&self.socket, &Say::Launch(launch, descriptors.trees.len()), &sent)
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
fn can_follow(whole: &Wall, begun: &Wall) -> bool {
    let same_user = whole.identity.host_uid == rustix::process::geteuid().as_raw();
    whole.entries.iter().skip(begun.entries.len()).all(|entry| match entry {
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

/// Whether `launch` is `whole`, with nothing more than files where they can be made later.
fn is_whole(launch: &WallLaunch, whole: &WholeWall) -> bool {
    let (wanted, stands) = (&launch.wall, &whole.wall);
    let room = |wall: &Wall| (wall.writable_bytes, wall.writable_files);
    let comes_later = |entry: &Entry| match entry {
        Entry::File { at, .. } => at.starts_with(&whole.late) && *at != whole.late,
        _ => false,
    };
    launch.stands == Some(whole.number)
        && begins_with(wanted, stands)
        && room(wanted) == room(stands)
        && launch.restrictions == whole.restrictions
        && launch.doors == Doors::default()
        && wanted.entries.iter().skip(stands.entries.len()).all(comes_later)
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
    let unlike = || Failed::Said("the wall is not the one that was begun".to_owned());
    let goes_on = |begun: Result<Begun, Failed>, whole: &Wall| match begun {
        Ok(_) if !begins_with(whole, &wall) => Err(unlike()),
        begun => begun,
    };
    match receive(&socket) {
        Ok(Some((Heard::Launch(launch, trees), came))) => {
            let Some((Fixed { stdio, control }, trees)) = Fixed::take(came, trees) else { return };
            // What is written into files is counted where the program's memory is. Where nothing is, they may still be made.
            let rest = launch.wall.entries.get(wall.entries.len()..).unwrap_or_default();
            let writes = rest.iter().any(|entry| matches!(entry, Entry::File { .. }));
            let groups = match &launch.cgroup {
                None => Groups::Joined(Ok(())),
                Some(_) if writes => Groups::Joined(join_groups(&socket)),
                Some(_) => Groups::Coming(Box::new(move || join_groups(&socket))),
            };
            let stdio = stdio.each_ref().map(AsFd::as_fd);
            let descriptors = WallDescriptors { stdio, control: control.as_fd(), trees: &trees };
            Behind::live(life, &launch, control.as_raw_fd(), |control| {
                let joined = Joined { groups, network };
                goes_on(begun, &launch.wall)?.finish(&launch, wall.entries.len(), descriptors, joined, control)
            });
        }
        Ok(Some((Heard::Whole(whole, trees), came))) if came.len() == trees => {
            let standing = goes_on(begun, &whole.wall)
                .and_then(|begun| begun.stand(&whole, wall.entries.len(), came, network, socket.as_raw_fd()));
            let Ok(Some((Heard::Last(only, cgroup, files, awaits), came))) = receive(&socket) else { return };
            // Not only copied, and the socket closed too: nothing here closes all else later.
            let arranged = Fixed::take(came, 0).is_some_and(|(fixed, _)| fixed.arrange().is_ok());
            if !arranged {
                return;
            }
            let WholeWall { wall, restrictions, late, .. } = whole;
            let entries = [wall.entries, files.clone()].concat();
            let wall = Wall { entries, ..wall };
            let doors = Doors::default();
            let processors = Processors::Free;
            let launch = WallLaunch { wall, restrictions, cgroup, only, doors, stands: None, awaits, processors };
            Behind::live(life, &launch, CONTROL, |_| {
                let join = || launch.cgroup.as_ref().map_or(Ok(()), |_| join_groups(&socket));
                let behind = standing?.go_on(&launch, (&late, &files), join);
                drop(socket);
                behind
            });
        }
        _ => {}
    }
}

/// The descriptors that every launch comes with.
struct Fixed {
    stdio: [OwnedFd; 3],
    control: OwnedFd,
}

impl Fixed {
    /// From all that came, with as many trees as there should be; nothing when some were lost on the way, such as for want of
    /// numbers for them.
    fn take(came: Vec<OwnedFd>, trees: usize) -> Option<(Self, Vec<OwnedFd>)> {
        if came.len() != FIXED + trees {
            return None;
        }
        let mut came = came.into_iter();
        let stdio = <[OwnedFd; 3]>::try_from(came.by_ref().take(3).collect::<Vec<_>>()).ok()?;
        Some((Self { stdio, control: came.next()? }, came.collect()))
    }

    /// Gives them their numbers, and closes what came.
    fn arrange(self) -> Result<(), Failed> {
        let stdio = self.stdio.each_ref().map(AsFd::as_fd);
        arrange(WallDescriptors { stdio, control: self.control.as_fd(), trees: &[] })
    }
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
    use crate::wall::{Access, Door, Identity, Restrictions};

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
        let doors = Doors::default();
        let processors = Processors::Free;
        WallLaunch { wall, restrictions, cgroup: None, only: None, doors, stands: None, awaits: None, processors }
    }

    /// Whether a wall that began with `/usr` can go on to `then`, for somebody with our user or another's.
    fn check(then: Vec<Entry>, host_uid: u32, expected: bool) {
        let begun = launch(vec![host("/usr")], host_uid).wall;
        let entries = [vec![host("/usr")], then].concat();
        let whole = launch(entries, host_uid);
        let suits = begins_with(&whole.wall, &begun) && can_follow(&whole.wall, &begun);
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
    fn a_wall_that_stands_is_only_the_one_with_its_number_and_files_where_they_belong() {
        let stands = launch(vec![host("/usr"), Entry::Folder { at: "/run/code".into() }], 7);
        let WallLaunch { wall, restrictions, .. } = stands;
        let whole = WholeWall { number: 5, wall, restrictions, late: "/run/code".into() };
        let check = |change: &dyn Fn(&mut WallLaunch), expected: bool| {
            let mut wanted = launch(whole.wall.entries.clone(), 7);
            wanted.stands = Some(5);
            change(&mut wanted);
            assert_eq!(is_whole(&wanted, &whole), expected, "{wanted:?}");
        };
        let add = |entry: Entry| move |launch: &mut WallLaunch| launch.wall.entries.push(entry.clone());
        let file = |at: &str| Entry::File { at: at.into(), content: Vec::new() };
        check(&|_| (), true);
        check(&add(file("/run/code/main.py")), true);
        check(&add(file("/run/code/deep/er")), true);
        check(&add(file("/run/code")), false);
        check(&add(file("/run/codes")), false);
        check(&add(file("/etc/passwd")), false);
        check(&add(Entry::Proc), false);
        check(&|launch| launch.stands = None, false);
        check(&|launch| launch.stands = Some(6), false);
        check(&|launch| launch.wall.writable_bytes += 1, false);
        check(&|launch| launch.wall.writable_files += 1, false);
        check(&|launch| launch.wall.identity.host_uid += 1, false);
        check(&|launch| drop(launch.wall.entries.pop()), false);
        check(&|launch| launch.restrictions.processes += 1, false);
        check(&|launch| launch.doors.sockets.push(Door::Stream("127.0.0.1:80".parse().unwrap())), false);
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
