//! Cloning a process into new namespaces, and mapping who it is.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use libc::c_int;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};

use super::companion::Companion;
use super::network::Network;
use super::program::Failed;
use crate::keeper_process::{CloneArguments, Forked, SignalMask, clone_process};

/// All but the network's.
const NAMESPACES: c_int = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWCGROUP;

/// libc's constant has a type that is too small for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Whether processors have nothing else to do while a wall is raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Processors {
    /// Some: a part of the work is done beside the rest, which takes less time.
    Free,
    /// None: all is done in turn, which is less work.
    Busy,
}

/// Who the program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Inside.
    pub uid: u32,
    /// Inside.
    pub gid: u32,
    /// On the host; never root.
    pub host_uid: u32,
    /// On the host; never root.
    pub host_gid: u32,
}

/// Process 1 of a new set of namespaces, as its parent sees it. Killing it kills everything in them.
#[derive(Debug)]
pub struct Raised {
    pid: i32,
    pidfd: OwnedFd,
    _counted: Option<Counted>,
}

/// Keeps a process from being taken for an orphan of somebody else's, as long as it is held.
#[derive(Debug)]
struct Counted(i32);

impl Drop for Counted {
    fn drop(&mut self) {
        crate::orphans::remove_keeper(self.0);
    }
}

impl Raised {
    pub(crate) fn new(pid: i32, pidfd: OwnedFd) -> Self {
        Self { pid, pidfd, _counted: None }
    }

    /// The same, known as no orphan to this process.
    pub(crate) fn counted(self) -> Self {
        if self._counted.is_some() {
            return self;
        }
        crate::orphans::add_keeper(self.pid);
        Self { _counted: Some(Counted(self.pid)), ..self }
    }

    pub(crate) fn into_pidfd(self) -> OwnedFd {
        self.pidfd
    }

    /// Its process id on the host.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Kills it, and with it everything in its namespaces.
    pub fn kill(&self) {
        crate::keeper_process::kill_pidfd(self.pidfd.as_fd());
    }

    /// Whether it has not ended: somebody may have killed it.
    pub(super) fn is_alive(&self) -> bool {
        let mut ended = [PollFd::from_borrowed_fd(self.pidfd.as_fd(), PollFlags::IN)];
        matches!(poll(&mut ended, Some(&Timespec::default())), Ok(0))
    }

    /// Kills it and waits until it is gone.
    pub(super) fn end(&self) {
        self.kill();
        self.reap(std::time::Duration::from_secs(2));
    }

    /// Waits until it is gone, at most `limit`; says whether it is.
    pub fn reap(&self, limit: std::time::Duration) -> bool {
        crate::keeper_process::reap(self.pidfd.as_fd(), limit)
    }
}

/// Whether this process has one thread, so that a fork of it may go on with ordinary code. The kernel counts each thread as a link
/// to their folder, which has two of its own.
pub fn is_single_threaded() -> io::Result<bool> {
    Ok(fs::metadata("/proc/self/task")?.nlink() == 3)
}

/// What a new process 1 began to join before anything else: where its processes are counted, and its network.
pub(super) struct Joined {
    pub(super) groups: Groups,
    pub(super) network: io::Result<Network>,
}

/// Where the processes behind a wall are counted.
pub(super) enum Groups {
    /// It is there, or could not go there.
    Joined(io::Result<()>),
    /// They are being made; this waits for them and goes there.
    Coming(Box<dyn FnOnce() -> io::Result<()>>),
}

impl Joined {
    /// Returns once it is in both. What is started before would be outside.
    pub(super) fn wait(self) -> Result<(), Failed> {
        Self::join_groups(match self.groups {
            Groups::Joined(joined) => joined,
            Groups::Coming(join) => join(),
        })?;
        Self::join_network(self.network)
    }

    pub(super) fn join_groups(joined: io::Result<()>) -> Result<(), Failed> {
        joined.map_err(|error| Failed::Said(format!("could not join the control groups: {error}")))
    }

    /// Returns once it is in its own network.
    pub(super) fn join_network(network: io::Result<Network>) -> Result<(), Failed> {
        let joined = network.and_then(Network::join);
        joined.map_err(|error| Failed::Said(format!("could not make a network of its own: {error}")))
    }
}

/// Clones this process into new namespaces, where it is nobody yet. The child runs `child`, and ends.
///
/// This process must have one thread: the child goes on with a copy of its memory, in which a lock that another thread
/// held would never be released.
///
/// Where processors are free, its network is still the host's: it is to be made beside the rest.
pub(super) fn bear(cgroup: Option<BorrowedFd<'_>>, processors: Processors, child: impl FnOnce()) -> io::Result<Raised> {
    let namespaces = match processors {
        Processors::Free => NAMESPACES,
        Processors::Busy => NAMESPACES | libc::CLONE_NEWNET,
    };
    bear_in(namespaces, cgroup, processors, child)
}

/// Likewise, into these namespaces alone.
pub(super) fn bear_in(
    namespaces: c_int,
    cgroup: Option<BorrowedFd<'_>>,
    processors: Processors,
    child: impl FnOnce(),
) -> io::Result<Raised> {
    if !is_single_threaded()? {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "this process has several threads"));
    }
    let mut arguments = CloneArguments { flags: namespaces as u64, ..CloneArguments::default() };
    if let Some(cgroup) = cgroup {
        arguments.flags |= CLONE_INTO_CGROUP;
        arguments.cgroup = u64::try_from(cgroup.as_raw_fd()).map_err(|_| io::ErrorKind::InvalidInput)?;
    }
    let masked = SignalMask::block_all()?;
    let our_processor = rustix::thread::sched_getcpu();
    // One thread, checked above: the child has a whole and consistent copy of its memory, and may go on with any code.
    let forked = clone_process(arguments);
    if let Ok(Forked::Child) = forked {
        if processors == Processors::Free {
            leave(None, our_processor);
        }
        // A panic must never go on in the code of the parent, of which this process is a copy.
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(child)).ok();
        crate::program_process::exit(1);
    }
    masked.restore()?;
    match forked? {
        Forked::Parent(pid, pidfd) => {
            if let Some(child) = rustix::process::Pid::from_raw(pid).filter(|_| processors == Processors::Free) {
                leave(Some(child), rustix::thread::sched_getcpu());
            }
            Ok(Raised::new(pid, pidfd))
        }
        Forked::Child => crate::program_process::exit(1),
    }
}

/// Lets a process, or the calling one, go on on another processor than `busy`, where there is one.
///
/// A new process is to work beside its maker. Where it was born it may have to wait until its maker has nothing to do, or its maker for
/// it, even while other processors are idle: whoever of the two runs first moves it. What it may use is afterwards what it
/// was, by whichever of them is the last to say so. Without this, only time is lost.
fn leave(process: Option<rustix::process::Pid>, busy: usize) {
    let Ok(all) = rustix::thread::sched_getaffinity(None) else { return };
    let mut others = all;
    others.unset(busy);
    let is_there = process.is_some() || rustix::thread::sched_getcpu() == busy;
    if is_there && others.count() > 0 && rustix::thread::sched_setaffinity(process, &others).is_ok() {
        rustix::thread::sched_setaffinity(process, &all).ok();
    }
}

/// Clones this process into new namespaces. The child begins to make its network or has it, goes by `join(0)` where its
/// processes are counted, waits until it is mapped, then runs `child`, and ends.
///
/// It goes there itself: to move another process, version 1 of the control groups waits until every processor has passed
/// a quiet point, ten milliseconds or more. For the calling thread alone it does not.
pub(super) fn raise(
    identity: Identity,
    processors: Processors,
    cgroup: Option<BorrowedFd<'_>>,
    join: impl FnOnce(i32) -> io::Result<()>,
    child: impl FnOnce(Joined),
) -> io::Result<Raised> {
    let (child_waits, parent_maps) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let raised = bear(cgroup, processors, || {
        // Otherwise the end of file would never come.
        close_copy(&parent_maps);
        let network = match processors {
            Processors::Free => Network::begin(),
            Processors::Busy => Network::of_birth(),
        };
        let groups = join(0);
        // The end of file means that the parent failed or died before we were mapped.
        let mut mapped = [0u8; 1];
        if matches!(rustix::io::read(&child_waits, &mut mapped), Ok(1)) {
            child(Joined { groups: Groups::Joined(groups), network });
        }
    })?;
    drop(child_waits);
    let mapped =
        map(raised.pid(), identity).and_then(|()| rustix::io::write(&parent_maps, b"m").map_err(io::Error::from));
    if let Err(error) = mapped {
        raised.end();
        return Err(error);
    }
    Ok(raised)
}

/// Closes the copy of a descriptor that belongs to the parent, of which this process is a copy.
pub(super) fn close_copy(descriptor: &OwnedFd) {
    // SAFETY: the number is open in this process; its owner is a value of the parent's code, which never goes on here.
    unsafe { rustix::io::close(descriptor.as_raw_fd()) };
}

/// Writes who `pid` is in its user namespace: one user and one group, none of them the host's root.
pub(super) fn map(pid: i32, identity: Identity) -> io::Result<()> {
    if identity.host_uid == 0 || identity.host_gid == 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a program is never the host's root"));
    }
    let folder = format!("/proc/{pid}");
    let folder = Path::new(&folder);
    if !rustix::process::geteuid().is_root() {
        // Without it an ordinary user may not map a group: dropping a group could lift a restriction.
        fs::write(folder.join("setgroups"), "deny")?;
    }
    fs::write(folder.join("gid_map"), format!("{} {} 1\n", identity.gid, identity.host_gid))?;
    fs::write(folder.join("uid_map"), format!("{} {} 1\n", identity.uid, identity.host_uid))
}

/// A user namespace that maps one owner on disk to one user of the host, for mounts that show files of the first as
/// files of the second. Needs privileges on the host.
pub fn user_namespace(disk: (u32, u32), host: (u32, u32)) -> io::Result<OwnerMap> {
    // SAFETY: `hold` makes system calls by rustix alone, and reads what it is given as a number. Our descriptors are shared
    // with it, not copied: a copy would keep open what other threads close and wait for.
    let holder = unsafe {
        let parent = rustix::process::getpid().as_raw_nonzero().get();
        let argument = std::ptr::without_provenance_mut(parent.cast_unsigned() as usize);
        Companion::start(hold, argument, libc::CLONE_NEWUSER | libc::CLONE_FILES)
    }?;
    let folder = format!("/proc/{}", holder.pid());
    let folder = Path::new(&folder);
    // Nobody who looks for what outlived a keeper is to take it for that.
    crate::orphans::add_keeper(holder.pid());
    let holder = Holder(Some(holder));
    fs::write(folder.join("gid_map"), format!("{} {} 1\n", disk.1, host.1))?;
    fs::write(folder.join("uid_map"), format!("{} {} 1\n", disk.0, host.0))?;
    let namespace = fs::File::open(folder.join("ns/user"))?.into();
    // The descriptor keeps the namespace from here on.
    drop(holder);
    Ok(OwnerMap { namespace })
}

/// Who owns files on disk, as mounts are to show them.
#[derive(Debug)]
pub struct OwnerMap {
    namespace: OwnedFd,
}

impl AsFd for OwnerMap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }
}

/// The process that a namespace was made with. It is taken out when it ends.
struct Holder(Option<Companion>);

/// Holders that were killed and were not gone yet. On a busy machine that takes milliseconds, for which no start has to wait.
static LEAVING: Mutex<Vec<Companion>> = Mutex::new(Vec::new());

impl Drop for Holder {
    fn drop(&mut self) {
        let Some(holder) = self.0.take() else { return };
        // What cannot be killed ends with us, by its own wish.
        holder.kill().ok();
        put_away(Some(holder));
    }
}

/// Reaps the processes that namespaces were made with, as far as they are gone.
pub fn reap_holders() {
    put_away(None);
}

/// Puts away `another` and the earlier ones, as far as they are gone.
fn put_away(another: Option<Companion>) {
    let mut leaving = LEAVING.lock().unwrap_or_else(PoisonError::into_inner);
    let all: Vec<Companion> = leaving.drain(..).chain(another).collect();
    for one in all {
        let pid = one.pid();
        match one.put_away() {
            Some(one) => leaving.push(one),
            None => crate::orphans::remove_keeper(pid),
        }
    }
}

/// Keeps a process, and so its namespace, until it is killed: also by the end of who started it.
extern "C" fn hold(argument: *mut libc::c_void) -> c_int {
    // Who started us, as a number.
    let parent = argument.addr();
    let told = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL));
    let now = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned() as usize);
    if told.is_err() || now != parent {
        return 1;
    }
    loop {
        rustix::event::pause();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_put_on_another_processor_may_use_all_afterwards() {
        let may_use = |of| {
            let set = rustix::thread::sched_getaffinity(of).unwrap();
            (0..rustix::thread::CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor)).collect::<Vec<_>>()
        };
        let all = may_use(None);
        let mut child = std::process::Command::new("sleep").arg("10").spawn().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        leave(Some(pid), rustix::thread::sched_getcpu());
        let theirs = may_use(Some(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(theirs, all);
        leave(None, rustix::thread::sched_getcpu());
        assert_eq!(may_use(None), all, "the calling thread");
    }

    #[test]
    fn namespaces_of_owners_are_made_by_many_threads_at_once() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root maps other users");
            return;
        }
        let make = || {
            for _ in 0..50 {
                user_namespace((1000, 1000), (1234, 1234)).unwrap();
            }
        };
        std::thread::scope(|scope| {
            for thread in [make; 4].map(|make| scope.spawn(make)) {
                thread.join().unwrap();
            }
        });
    }
}
