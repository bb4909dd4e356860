//! Behind a wall that somebody else raised: a container, in which our own binary is process 1.
//!
//! The engine made the namespaces, the root and the cgroup. What is left is what it cannot do: restrict every program once
//! more by ourselves, and prove from inside that the engine did what it was told.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use libc::c_int;
use serde::{Deserialize, Serialize};

use super::guest::KilledFirst;
use super::landlock::{self, Fence};
use super::program::Failed;
use super::proof::{Company, Proof};
use super::{Access, Behind, contained_proof, inside, program};
use crate::keeper::{Rlimit, RlimitKind, place_descriptors};
use crate::keeper_process::{self, CONTROL, SignalMask};
use crate::privileges::{self, Ambient, Bounding};
use crate::program_process::{Step, close_between, close_from, close_from_on_exec, set_limit};
use crate::report::{Room, Stage};
use crate::{seccomp, tree};

/// Where reports go, beside [`CONTROL`], which orders come through.
const REPORTS: c_int = CONTROL + 1;
/// What the engine gave us to report through, where reports go over a socket.
const ATTACHED: c_int = REPORTS + 1;

/// No core files: with any other limit the kernel would start the host's handler for them.
const NO_CORE: Rlimit = Rlimit { kind: RlimitKind::Core, most: 1 };

/// What restricts every program in a container, and what is looked for before the first. Plain data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contained {
    /// Who every program is.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Whose kernel it is.
    pub kernel: Kernel,
    /// Where the workspace is.
    pub workspace: OsString,
    /// All places that can be written, which are file systems of their own, and how much each holds.
    pub writable: Vec<Writable>,
    /// Limits of each process by itself.
    pub rlimits: Vec<Rlimit>,
    /// The second fence, where the kernel has one: what may be read, and what may be written.
    pub paths: Vec<(OsString, Access)>,
    /// What the cgroup must say: bytes of memory. Nothing where no cgroup is said to keep it.
    pub memory: Option<u64>,
    /// Likewise, processes and threads, the guest included.
    pub processes: Option<u64>,
    /// Run on so many processors, where no cgroup shares out their time.
    pub processors: Option<u32>,
}

/// A place that can be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writable {
    /// Where.
    pub at: OsString,
    /// How much it holds.
    pub bytes: u64,
    /// What it is.
    pub on: Ground,
}

/// What a place that can be written is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ground {
    /// A file system in memory.
    Memory,
    /// A private layer in memory, over a folder of the host.
    Layer,
}

/// Whose kernel answers the system calls of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kernel {
    /// The host's.
    Host,
    /// One of its own, in front of the host's, such as gVisor's.
    Own,
}

/// Our process as process 1 of a container that an engine made for it, before it was told anything.
#[derive(Debug)]
pub struct ProcessOne {
    orders: OwnedFd,
    preference: KilledFirst,
    /// What tells of children, once we have restricted ourselves, or why we could not: that may be long before we are told what
    /// we are for, and whoever tells us hears of it then.
    restricted: Option<Result<OwnedFd, Failed>>,
}

impl ProcessOne {
    /// Takes what orders come through from standard input, and what reports go to from standard output: no program is ever to
    /// hold either. Nothing when we are not process 1. To be called once, and before anything else of this process.
    pub fn take() -> Result<Option<(Self, OwnedFd)>, Failed> {
        if !rustix::process::getpid().is_init() {
            return Ok(None);
        }
        let failed = |error: io::Error| Failed::said(&error);
        SignalMask::block_all().map_err(failed)?;
        // Opened while the file is ours: that of a process which may not be read is root's.
        let preference = KilledFirst::open().map_err(failed)?;
        privileges::set_not_dumpable().map_err(failed)?;
        // Given up: its number may be one of those that are arranged, and else it is closed with all others.
        let null = fs::File::options().read(true).write(true).open("/dev/null").map_err(failed)?.into_raw_fd();
        place_descriptors([null, null, null, 0, 1]).map_err(step)?;
        // SAFETY: both numbers were just arranged for this process, and nothing else owns them.
        let (orders, reports) = unsafe { (OwnedFd::from_raw_fd(CONTROL), OwnedFd::from_raw_fd(REPORTS)) };
        Ok(Some((Self { orders, preference, restricted: None }, reports)))
    }

    /// What orders come through.
    pub fn orders(&self) -> &OwnedFd {
        &self.orders
    }

    /// Speaks over the socket at `at` from now on, instead of what the engine gave us: of that only the way out is held, until we
    /// end. Where a host can be met, the kernel is the host's, and nothing of what restricts us depends on what we will be told: it is
    /// done now, and not when somebody waits for it.
    pub fn meet(&mut self, at: &OsStr, reports: &mut OwnedFd) -> io::Result<()> {
        let attached = rustix::io::fcntl_dupfd_cloexec(&*reports, ATTACHED)?;
        if attached.as_raw_fd() != ATTACHED {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let socket = OwnedFd::from(UnixStream::connect(at)?);
        for taken in [&mut self.orders, reports] {
            rustix::io::dup2(&socket, taken)?;
        }
        drop(socket);
        self.restricted = Some(self.restrict(attached.into_raw_fd(), Kernel::Host));
        Ok(())
    }

    /// Gives up everything that the engine may have left us, and restricts us as every program is.
    pub fn enter(mut self, contained: &Contained) -> Result<Behind<'_>, Failed> {
        contained.check_identity()?;
        if contained.rlimits.iter().any(|limit| limit.kind == RlimitKind::Core && limit.most != NO_CORE.most) {
            return Err(Failed::Said("no other limit of core files can be had than none".to_owned()));
        }
        if self.restricted.is_some() && contained.kernel != Kernel::Host {
            return Err(Failed::Said("a host was met, and the kernel is not its own".to_owned()));
        }
        let signals = match self.restricted.take() {
            Some(restricted) => restricted,
            None => self.restrict(REPORTS, contained.kernel),
        }?;
        let fence = contained.make_fence()?;
        Ok(Behind::in_container(contained, self.orders, signals, self.preference, fence))
    }

    /// Restricts us for good; returns what tells of children. Of what is open, what is up to `ours` stays.
    fn restrict(&self, ours: c_int, kernel: Kernel) -> Result<OwnedFd, Failed> {
        let failed = |error: io::Error| Failed::said(&error);
        kernel.forget_arguments()?;
        kernel.close_all_but(ours, self.preference.descriptor())?;
        let signals = keeper_process::child_signals().map_err(step)?;
        // SAFETY: the descriptor was just opened, and nothing else owns it.
        let signals = unsafe { OwnedFd::from_raw_fd(signals) };
        privileges::set_no_new_privileges().map_err(failed)?;
        let ambient = match kernel {
            Kernel::Host => Ambient::Known,
            Kernel::Own => Ambient::PerhapsUnknown,
        };
        match privileges::drop_all_with(ambient).map_err(failed)? {
            Bounding::Empty => {}
            // Only the engine could have emptied it.
            Bounding::Kept { capabilities } => {
                return Err(Failed::Said(format!("the engine left capabilities to be had: {capabilities:x}")));
            }
        }
        // Before the filter, which lets nobody change it.
        set_limit(&NO_CORE).map_err(step)?;
        seccomp::install(seccomp::program()).map_err(failed)?;
        Ok(signals)
    }
}

fn step((stage, errno): (Stage, c_int)) -> Failed {
    Failed::Step(stage, errno)
}

impl Kernel {
    /// Clears our arguments and the environment that the engine set.
    fn forget_arguments(self) -> Result<(), Failed> {
        match (inside::forget_arguments(), self) {
            // One that is not Linux may not say where they are. They hold nothing that programs are not given.
            (Ok(()), _) | (Err(_), Kernel::Own) => Ok(()),
            (Err(error), Kernel::Host) => Err(Failed::said(&error)),
        }
    }

    /// Closes what the engine left open, but ours, the last of which is `ours`, and `kept`.
    fn close_all_but(self, ours: c_int, kept: c_int) -> Result<(), Failed> {
        let closed = close_between(ours + 1, kept - 1).and_then(|()| close_from(kept + 1));
        let closed = self.or_one_by_one(closed, |descriptor| {
            if descriptor > ours && descriptor != kept {
                // SAFETY: an integer. Nothing of ours owns what the engine left open.
                unsafe { libc::close(descriptor) };
            }
            Ok(())
        });
        closed.map_err(step)
    }

    /// What a kernel of its own may not be able to do to all descriptors at once is done to each above the first three.
    fn or_one_by_one(self, done: Result<(), c_int>, each: impl Fn(c_int) -> Result<(), ()>) -> Step<()> {
        let errno = match done {
            Ok(()) => return Ok(()),
            Err(errno @ (libc::ENOSYS | libc::EINVAL)) if self == Kernel::Own => errno,
            Err(errno) => return Err((Stage::Descriptors, errno)),
        };
        let entries = fs::read_dir("/proc/self/fd").map_err(|_| (Stage::Descriptors, errno))?;
        // All of them, before the first is closed.
        let open: Vec<c_int> = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        if open.is_empty() {
            return Err((Stage::Descriptors, errno));
        }
        open.into_iter().filter(|fd| *fd >= CONTROL).try_for_each(each).map_err(|()| (Stage::Descriptors, errno))
    }
}

impl Contained {
    /// Whether we are who every program is to be, and nobody with power over files of the image.
    fn check_identity(&self) -> Result<(), Failed> {
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        if (uid, gid) == (self.uid, self.gid) && uid != 0 && gid != 0 {
            return Ok(());
        }
        Err(Failed::Said(format!("the engine made us user {uid}:{gid} instead of {}:{}", self.uid, self.gid)))
    }

    /// Lets everything but the first three descriptors close when a program is executed.
    pub(super) fn close_others_on_exec(&self) -> Result<(), Failed> {
        let set = self.kernel.or_one_by_one(close_from_on_exec(CONTROL), |descriptor| {
            // SAFETY: integers only; the flags are of this process's own table.
            match unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) } {
                // The one that lists them is closed already.
                -1 if crate::program_process::errno() != libc::EBADF => Err(()),
                _ => Ok(()),
            }
        });
        set.map_err(step)
    }

    /// The second fence, for all programs.
    fn make_fence(&self) -> Result<Option<Fence>, Failed> {
        match landlock::abi() {
            Some(_) => Fence::make(&self.paths).map(Some).map_err(|error| Failed::said(&error)),
            None if self.kernel == Kernel::Own => Ok(None),
            // On the host's kernel it may be all that keeps a copy from being written.
            None => Err(Failed::Said("this kernel has no Landlock".to_owned())),
        }
    }

    /// Puts the restrictions of a program in force for the calling process, and proves them. There is no limit on processes
    /// here: without a user namespace of ours the kernel would count everybody on the host who has the same number. The
    /// engine's cgroup counts them.
    pub(super) fn restrict(&self, fence: Option<&Fence>, company: Company) -> Result<Vec<Proof>, Failed> {
        for limit in self.rlimits.iter().filter(|limit| limit.kind != RlimitKind::Core) {
            set_limit(limit).map_err(step)?;
        }
        if let Some(processors) = self.processors {
            program::pin(processors).map_err(|error| Failed::said(&error))?;
        }
        let version = fence.map(Fence::restrict).transpose().map_err(|error| Failed::said(&error))?;
        contained_proof::prove(self, version, company).map_err(|error| Failed::said(&error))
    }

    /// Whether the kernel lists a process's children.
    pub(super) fn lists_children(&self) -> bool {
        self.kernel == Kernel::Host && tree::children_are_listed()
    }

    /// Whether more could be written, everywhere where it may. A file system that does not count is not said to be full.
    pub(super) fn room(&self) -> Room {
        let is_full = |stat: rustix::fs::StatFs| {
            (stat.f_blocks > 0 && stat.f_bfree == 0) || (stat.f_files > 0 && stat.f_ffree == 0)
        };
        let full = |place: &Writable| rustix::fs::statfs(place.at.as_os_str()).is_ok_and(is_full);
        if self.writable.iter().any(full) { Room::Full } else { Room::Left }
    }
}
