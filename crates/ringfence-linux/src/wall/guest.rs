//! Process 1 behind a wall: raises the rest of it, gives up every privilege, and then lives as a guest does.

use std::cell::RefCell;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use libc::c_int;
use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, waitpid};
use serde::{Deserialize, Serialize};

use super::begun::Begun;
use super::contained::{Contained, Kernel};
use super::door::Doors;
use super::inside::Inside;
use super::landlock::Fence;
use super::membership::{Membership, OpenMembership};
use super::namespaces::{Processors, raise};
use super::program::{Failed, Program, Restrictions, Stdio, Strings, TerminalSize};
use super::proof::{Company, Proof};
use super::view::ABOVE_ARRANGED;
use super::{Raised, Wall, program};
use crate::keeper_process::{self, CONTROL};
use crate::program_process::{exit, run_sharing_memory};
use crate::report::{Layer, Room, Stage, Usage};
use crate::seccomp;
use crate::tree::{self, Sample};

/// A wall and what is behind it. Plain data: it can be sent to the process that raises the wall.
#[derive(Debug, Serialize, Deserialize)]
pub struct WallLaunch {
    /// What is shown.
    pub wall: Wall,
    /// What restricts every program.
    pub restrictions: Restrictions,
    /// Where the processes are counted together.
    pub cgroup: Option<Membership>,
    /// The program to hold ready, for a wall that is there for one alone.
    pub only: Option<Program>,
    /// Where in the wall's own network the host is to listen: the only ways out.
    pub doors: Doors,
    /// The number of the [`WholeWall`](super::WholeWall) that this is, when it stands already. Whoever says so has made sure that
    /// the trees are the same ones.
    pub stands: Option<u64>,
    /// The name of the file, where files can be made later, whose content comes when the program has begun and waits for it.
    pub awaits: Option<OsString>,
    /// Whether others than the one that it is raised on have time for it.
    pub processors: Processors,
}

/// The descriptors of a start.
#[derive(Debug, Clone, Copy)]
pub struct WallDescriptors<'a> {
    /// Standard input, output and error: of the only program, or of the guest.
    pub stdio: [BorrowedFd<'a>; 3],
    /// The guest's end of the control socket.
    pub control: BorrowedFd<'a>,
    /// Trees that entries refer to by number.
    pub trees: &'a [OwnedFd],
}

/// How often a session is looked through for what forked away. On a busy machine even what was killed takes its time to go.
const PASSES: usize = 600;
/// So many times in a row nothing of it must be found.
const EMPTY_PASSES: usize = 5;
const BETWEEN_PASSES: Duration = Duration::from_micros(500);

/// What process 1 does once the wall stands, or could not be raised. It never returns; where it does, the process ends.
pub type Life = for<'a> fn(Raising<'a>);

/// How raising a wall went, as seen by process 1.
#[derive(Debug)]
pub enum Raising<'a> {
    /// The wall stands.
    Raised(Behind<'a>, Option<&'a Program>),
    /// It does not; the control socket is there to say so.
    Failed(BorrowedFd<'a>, Failed),
}

/// Raises the wall of `launch`, in which process 1 then lives `life`. This process must have one thread.
pub fn start(launch: &WallLaunch, descriptors: WallDescriptors<'_>, life: Life) -> io::Result<Raised> {
    // Built before the fork: what is made once here is there in every copy.
    seccomp::program();
    let into = launch.cgroup.as_ref().map(Membership::open).transpose()?;
    let join = |pid| match &into {
        Some(into) => into.add(pid),
        None => Ok(()),
    };
    raise(launch.wall.identity, launch.processors, into.as_ref().and_then(OpenMembership::folder), join, |joined| {
        Behind::live(life, launch, descriptors.control.as_raw_fd(), |control| {
            let begun = Begun::begin(&launch.wall, descriptors.trees)?;
            begun.finish(launch, launch.wall.entries.len(), descriptors, joined, control)
        });
    })
}

/// The proof that this process is process 1 behind a wall, without any privilege, and the means to start programs there.
#[derive(Debug)]
pub struct Behind<'a> {
    around: Around<'a>,
    control: OwnedFd,
    signals: OwnedFd,
    preference: KilledFirst,
}

/// Who raised the wall.
#[derive(Debug)]
enum Around<'a> {
    /// We did.
    OurWall { launch: &'a WallLaunch, inside: Inside, fence: Fence, doors: RefCell<Vec<OwnedFd>> },
    /// A container engine. A kernel of its own may have no second fence.
    Container(&'a Contained, Option<Fence>),
}

/// A process that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reaped {
    /// Which.
    pub pid: i32,
    /// As `wait4` gave it.
    pub wait_status: i32,
    /// What it used.
    pub usage: Usage,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Woken {
    /// There is an order to read, or the socket was closed.
    pub order: bool,
    /// A child may have ended.
    pub child: bool,
}

impl<'a> Behind<'a> {
    /// Lives `life` behind the wall that `enter` raises, or tells why it does not stand. What `enter` is given is the number
    /// of the control socket, `control`, which it changes when descriptors are arranged.
    pub(super) fn live(
        life: Life,
        launch: &'a WallLaunch,
        mut control: c_int,
        enter: impl FnOnce(&mut c_int) -> Result<Self, Failed>,
    ) {
        match enter(&mut control) {
            Ok(behind) => life(Raising::Raised(behind, launch.only.as_ref())),
            Err(failed) => {
                // SAFETY: the control socket is open under this number for as long as the process lives.
                let control = unsafe { BorrowedFd::borrow_raw(control) };
                life(Raising::Failed(control, failed));
            }
        }
    }

    /// Process 1 of a wall of ours, once every privilege is given up and its descriptors are arranged.
    pub(super) fn behind_ours(
        launch: &'a WallLaunch,
        inside: Inside,
        fence: Fence,
        doors: Vec<OwnedFd>,
        preference: KilledFirst,
        signals: c_int,
    ) -> Self {
        // SAFETY: both numbers were just arranged and opened for this process, and nothing else owns them.
        let (control, signals) = unsafe { (OwnedFd::from_raw_fd(CONTROL), OwnedFd::from_raw_fd(signals)) };
        let around = Around::OurWall { launch, inside, fence, doors: RefCell::new(doors) };
        Self { around, control, signals, preference }
    }

    /// Process 1 of a container, once everything that it can do for itself is in force.
    pub(super) fn in_container(
        contained: &'a Contained,
        control: OwnedFd,
        signals: OwnedFd,
        preference: KilledFirst,
        fence: Option<Fence>,
    ) -> Self {
        Self { around: Around::Container(contained, fence), control, signals, preference }
    }

    /// Our end of the control socket; in a container, of what orders come through.
    pub fn control(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// The sockets at which the host is to listen, once: whoever takes them gives them away.
    pub fn take_doors(&self) -> Vec<OwnedFd> {
        match &self.around {
            Around::OurWall { doors, .. } => doors.take(),
            Around::Container(..) => Vec::new(),
        }
    }

    /// What becomes readable when a child ends; [`Behind::heed`] makes it unreadable again.
    pub fn child_ends(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    /// Takes notice that a child ended, which is then to be reaped.
    pub fn heed(&self) {
        keeper_process::drain(self.signals.as_raw_fd());
    }

    /// Makes a terminal for a program: whoever looks at it gets the first end, the program the second.
    pub fn terminal(&self, size: TerminalSize) -> io::Result<(OwnedFd, OwnedFd)> {
        let kernel = match &self.around {
            Around::OurWall { .. } => Kernel::Host,
            Around::Container(contained, _) => contained.kernel,
        };
        program::open_terminal(size, kernel)
    }

    /// Starts `program` with every restriction in force. Its own process proves them and calls `proven`, which says
    /// whether to go on. We are stopped until it has executed or ended.
    pub fn start(
        &self,
        program: &Program,
        stdio: &Stdio,
        proven: &mut dyn FnMut(&[Proof]) -> bool,
    ) -> Result<i32, Failed> {
        let strings = Strings::new(program).map_err(|error| Failed::said(&error))?;
        let company = match &self.around {
            Around::OurWall { launch, .. } if launch.only.is_some() => Company::None,
            Around::OurWall { .. } | Around::Container(..) => Company::Others,
        };
        self.in_a_process(&mut || {
            self.take_stdio(stdio)?;
            strings.enter_cwd()?;
            let mut proofs = self.restrict(company)?;
            proofs.push(strings.prove_environment(program)?);
            if !proven(&proofs) {
                exit(0);
            }
            program::expect_signals()?;
            Err(strings.execute())
        })
    }

    /// Puts every restriction in force for a process that executes nothing, and returns what it proved.
    pub fn rehearse(&self) -> Result<Vec<Proof>, Failed> {
        let mut proofs = None;
        let process = self.in_a_process(&mut || {
            self.take_stdio(&Stdio::OfTheGuest)?;
            proofs = Some(self.restrict(Company::None)?);
            Ok(())
        })?;
        // It is about to end. Whoever proves the wall once more counts processes, and it must not be one of them.
        while matches!(waitpid(Pid::from_raw(process), WaitOptions::empty()), Err(Errno::INTR)) {}
        proofs.ok_or_else(|| Failed::Said("the process that proves the wall was killed".to_owned()))
    }

    /// Gives the calling process, a program's own, its session and its descriptors.
    fn take_stdio(&self, stdio: &Stdio) -> Result<(), Failed> {
        program::take_stdio(stdio)?;
        match &self.around {
            Around::OurWall { .. } => program::close_others_on_exec(),
            Around::Container(contained, _) => contained.close_others_on_exec(),
        }
    }

    /// Puts every restriction in force for the calling process, a program's own, and proves them.
    fn restrict(&self, company: Company) -> Result<Vec<Proof>, Failed> {
        match &self.around {
            Around::OurWall { launch, fence, .. } => program::restrict(launch, fence, company),
            Around::Container(contained, fence) => contained.restrict(fence.as_ref(), company),
        }
    }

    /// Runs `child` in a process of its own that shares our memory; returns its number, or how it failed.
    fn in_a_process(&self, child: &mut dyn FnMut() -> Result<(), Failed>) -> Result<i32, Failed> {
        let mut outcome = Ok(());
        // A new process begins with our preference.
        self.preference.set(true).map_err(|error| Failed::said(&error))?;
        let started = run_sharing_memory(&mut || outcome = child());
        self.preference.set(false).map_err(|error| Failed::said(&error))?;
        let pid = started.map_err(|error| Failed::Step(Stage::Fork, error.raw_os_error().unwrap_or(libc::EAGAIN)))?;
        outcome.map(|()| pid)
    }

    /// Lets go of the standard input, output and error that the only program was given: ours would hide the pipes' ends.
    pub fn close_stdio(&self) {
        for fd in 0..=2 {
            // SAFETY: closes descriptors of this process alone, which nothing in it owns or uses.
            unsafe { libc::close(fd) };
        }
    }

    /// Waits for an order or the end of a child, at most `limit`.
    pub fn wait(&self, limit: Option<Duration>) -> Woken {
        let milliseconds = limit.map_or(-1, |limit| c_int::try_from(limit.as_millis()).unwrap_or(c_int::MAX));
        let (order, child) = keeper_process::wait_for(self.signals.as_raw_fd(), milliseconds);
        Woken { order, child }
    }

    /// The next process that ended, if there is one. Orphans of all programs are our children.
    pub fn reap(&self) -> Option<Reaped> {
        let (pid, wait_status, usage) = keeper_process::reap_one()?;
        Some(Reaped { pid, wait_status, usage })
    }

    /// How many children there are; where the kernel does not list them, how many processes.
    pub fn children(&self) -> u32 {
        let mut count = 0u32;
        match &self.around {
            Around::Container(contained, _) if !contained.lists_children() => {
                count = u32::try_from(tree::everybody_else().len()).unwrap_or(u32::MAX);
            }
            _ => tree::for_each_own_child(|_| count = count.saturating_add(1)),
        }
        count
    }

    /// What everything but ourselves uses.
    pub fn measure(&self) -> Sample {
        match &self.around {
            Around::OurWall { .. } => tree::sample(1),
            Around::Container(..) => tree::sample_of(&tree::everybody_else()),
        }
    }

    /// Sends a signal to the group that `leader` leads. It must not have been reaped.
    pub fn signal_group(&self, leader: i32, signal: u8) {
        if leader > 1 && (1..=crate::program_process::MAX_SIGNAL).contains(&c_int::from(signal)) {
            // SAFETY: integers only. A failure means that nothing of the group is left.
            unsafe { libc::kill(-leader, c_int::from(signal)) };
        }
    }

    /// Kills everything in the session that `leader` leads, its group first; says whether nothing of it is left. The leader
    /// has not been reaped, or only just: its number is nobody else's while it or a member is there.
    pub fn kill_session(&self, leader: i32) -> bool {
        self.signal_group(leader, libc::SIGKILL as u8);
        let mut empty = 0;
        for _ in 0..PASSES {
            // A process that forks while we look is not always seen: once is not enough.
            let members = tree::members_of_session(leader);
            empty = if members.is_empty() { empty + 1 } else { 0 };
            if empty == EMPTY_PASSES {
                return true;
            }
            for pid in members.into_iter().filter(|pid| *pid > 1) {
                // SAFETY: integers only. At worst the process has ended; everything that can be reached is behind this
                // wall, where only programs are.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            std::thread::sleep(BETWEEN_PASSES);
        }
        false
    }

    /// Kills everything but ourselves, and waits until nothing is left. `ended` is called for each process.
    pub fn kill_everything(&self, ended: &mut dyn FnMut(Reaped)) {
        loop {
            // SAFETY: integers only. For process 1 of a namespace, "everybody" is everybody else in it.
            unsafe { libc::kill(-1, libc::SIGKILL) };
            while let Some(reaped) = self.reap() {
                ended(reaped);
            }
            if keeper_process::has_no_child() {
                return;
            }
            keeper_process::wait_for_child(self.signals.as_raw_fd(), 20);
        }
    }

    /// What everything that was reaped used.
    pub fn usage(&self) -> Usage {
        keeper_process::usage_of_children()
    }

    /// Whether a private layer holds changes.
    pub fn layer(&self) -> Layer {
        self.inside().map_or(Layer::Unchanged, Inside::layer)
    }

    /// The private layer that is handed to the host.
    pub fn kept_layer(&self) -> Option<BorrowedFd<'_>> {
        self.inside().and_then(Inside::kept_layer)
    }

    /// The folder with that layer, as programs see it.
    pub fn shown_workspace(&self) -> Option<BorrowedFd<'_>> {
        self.inside().and_then(Inside::shown)
    }

    /// Whether more could be written to the file system of all that can be.
    pub fn room(&self) -> Room {
        match &self.around {
            Around::OurWall { inside, .. } => inside.room(),
            Around::Container(contained, _) => contained.room(),
        }
    }

    /// Whether the program waits for its code.
    pub fn awaits_code(&self) -> bool {
        self.inside().is_some_and(Inside::awaits)
    }

    /// Puts `code` where the program looks for it. What is returned is the pipe that it reads it from, if it has got so far: all of it
    /// is to be written there, for which there is room, and the pipe closed.
    pub fn put_code(&mut self, code: &[u8]) -> Result<OwnedFd, Failed> {
        match &mut self.around {
            Around::OurWall { inside, .. } => inside.put_awaited(code).map_err(|error| Failed::said(&error)),
            Around::Container(..) => Err(Failed::Said("no program waits for its code".to_owned())),
        }
    }

    /// What we built ourselves. An engine's containers have no layers.
    fn inside(&self) -> Option<&Inside> {
        match &self.around {
            Around::OurWall { inside, .. } => Some(inside),
            Around::Container(..) => None,
        }
    }

    /// Ends this process, and with it everything behind the wall.
    pub fn end(self) -> ! {
        exit(0)
    }
}

/// Whom the kernel kills first when memory runs out: programs before the guest, which has to tell of it. A program can
/// take this back, and harms itself: without its guest everything behind the wall ends at once.
#[derive(Debug)]
pub(super) struct KilledFirst {
    file: File,
    ours: Vec<u8>,
}

impl KilledFirst {
    pub(super) fn open() -> io::Result<Self> {
        let mut file = File::options().read(true).write(true).open("/proc/self/oom_score_adj")?;
        let mut ours = Vec::new();
        file.read_to_end(&mut ours)?;
        // Out of the way of the numbers that descriptors are arranged at.
        Ok(Self { file: rustix::io::fcntl_dupfd_cloexec(&file, ABOVE_ARRANGED)?.into(), ours })
    }

    /// The number of its descriptor.
    pub(super) fn descriptor(&self) -> c_int {
        self.file.as_raw_fd()
    }

    /// Whether a process that we make now is.
    fn set(&self, first: bool) -> io::Result<()> {
        (&self.file).write_all(if first { b"1000" } else { &self.ours })
    }
}
