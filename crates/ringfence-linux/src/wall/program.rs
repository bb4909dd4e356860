//! A program behind a wall, from its own process on: puts everything in force, proves it, executes.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use libc::c_int;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::contained::Kernel;
use super::landlock::Fence;
use super::proof::{self, Company, Expected, Proof, prove};
use super::{Access, WallLaunch, os_paths};
use crate::environment::Environment;
use crate::keeper::{Rlimit, RlimitKind, c_string, null_terminated};
use crate::keeper_process::CONTROL;
use crate::program_process::{close_from_on_exec, errno, reset_signals, set_limit};
use crate::report::Stage;

/// What restricts every program behind one wall. Plain data: it can be sent to the process that raises the wall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restrictions {
    /// Limits of each process by itself.
    pub rlimits: Vec<Rlimit>,
    /// The second fence: what may be read, and what may be written.
    pub paths: Vec<(OsString, Access)>,
    /// Run on so many processors, where no cgroup shares out their time.
    pub processors: Option<u32>,
    /// All processes and threads together, the guest included. The kernel counts them in the wall's user namespace.
    pub processes: u64,
}

/// A program to execute behind a wall. Plain data, likewise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// The files to try to execute, in this order; the first that is there is taken.
    #[serde(with = "os_paths")]
    pub files: Vec<PathBuf>,
    /// The arguments, the program's name first.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts, inside.
    pub cwd: OsString,
}

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// What a program reads from and writes to.
#[derive(Debug)]
pub enum Stdio {
    /// What the guest itself was given at 0, 1 and 2.
    OfTheGuest,
    /// These three.
    Given([OwnedFd; 3]),
    /// A terminal of its own, which the program's session is led by.
    Terminal(OwnedFd),
}

/// Why a program was not started; nothing of it ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// A step, and the system's error number.
    Step(Stage, c_int),
    /// In words.
    Said(String),
}

impl Failed {
    pub(super) fn said(error: &dyn std::error::Error) -> Self {
        Self::Said(chain(error))
    }
}

/// A terminal made behind the wall: the end for whoever looks at it, and the program's.
pub(super) fn open_terminal(size: TerminalSize, kernel: Kernel) -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let screen = rustix::fs::open("/dev/pts/ptmx", flags, Mode::empty())?;
    rustix::pty::unlockpt(&screen)?;
    let ends = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY | rustix::pty::OpenptFlags::CLOEXEC;
    let program = match rustix::pty::ioctl_tiocgptpeer(&screen, ends) {
        // A kernel of its own may know only the name. It is the kernel's, in a folder that only the kernel fills.
        Err(Errno::NOTTY | Errno::INVAL) if kernel == Kernel::Own => {
            let name = rustix::pty::ptsname(&screen, Vec::new())?;
            rustix::fs::open(name, flags, Mode::empty())?
        }
        opened => opened?,
    };
    let size = rustix::termios::Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&screen, size)?;
    Ok((screen, program))
}

/// All strings of a program in the form that system calls take.
pub(super) struct Strings {
    files: Vec<CString>,
    argv: Vec<CString>,
    env: Environment,
    cwd: CString,
}

impl Strings {
    pub(super) fn new(program: &Program) -> io::Result<Self> {
        let invalid = |error: crate::keeper::LaunchError| io::Error::new(io::ErrorKind::InvalidInput, error);
        let files = program.files.iter().map(|path| c_string(path.as_os_str(), "program's path"));
        let argv = program.argv.iter().map(|argument| c_string(argument, "argument"));
        Ok(Self {
            files: files.collect::<Result<_, _>>().map_err(invalid)?,
            argv: argv.collect::<Result<_, _>>().map_err(invalid)?,
            env: Environment::new(&program.env).map_err(invalid)?,
            cwd: c_string(&program.cwd, "working directory").map_err(invalid)?,
        })
    }

    /// Returns only when it could not be executed.
    pub(super) fn execute(&self) -> Failed {
        let argv = null_terminated(&self.argv);
        let mut reason = libc::ENOENT;
        for file in &self.files {
            // SAFETY: NUL-terminated strings and null-terminated lists, which live until this process has executed.
            unsafe { libc::execve(file.as_ptr(), argv.as_ptr(), self.env.as_ptr()) };
            match errno() {
                libc::ENOENT | libc::ENOTDIR => {}
                other => reason = other,
            }
        }
        Failed::Step(Stage::Exec, reason)
    }

    /// What [`Strings::execute`] will hand over as the environment of `program`, of which these are the strings.
    pub(super) fn prove_environment(&self, program: &Program) -> Result<Proof, Failed> {
        proof::clean_environment(self.env.count(&program.env)).map_err(|error| Failed::said(&error))
    }

    /// Goes where the program starts.
    pub(super) fn enter_cwd(&self) -> Result<(), Failed> {
        // SAFETY: a NUL-terminated path; the working directory is this process's own.
        if unsafe { libc::chdir(self.cwd.as_ptr()) } < 0 {
            return Err(Failed::Step(Stage::WorkingDirectory, errno()));
        }
        Ok(())
    }
}

/// Gives the calling process, the program's own, its session and its descriptors.
pub(super) fn take_stdio(stdio: &Stdio) -> Result<(), Failed> {
    // SAFETY: no arguments; the session is this process's own.
    if unsafe { libc::setsid() } < 0 {
        return Err(Failed::Step(Stage::Session, errno()));
    }
    let put = |from: BorrowedFd<'_>, at: c_int| {
        // SAFETY: integers only. The table of descriptors is this process's own, and `from` is above those replaced.
        if unsafe { libc::dup2(from.as_raw_fd(), at) } < 0 {
            return Err(Failed::Step(Stage::Descriptors, errno()));
        }
        Ok(())
    };
    match stdio {
        Stdio::OfTheGuest => {}
        Stdio::Given(given) => {
            for (at, from) in (0..).zip(given) {
                put(from.as_fd(), at)?;
            }
        }
        Stdio::Terminal(terminal) => {
            rustix::process::ioctl_tiocsctty(terminal)
                .map_err(|error| Failed::Step(Stage::Session, error.raw_os_error()))?;
            for at in 0..=2 {
                put(terminal.as_fd(), at)?;
            }
        }
    }
    Ok(())
}

/// Lets everything but those three close when the program is executed.
pub(super) fn close_others_on_exec() -> Result<(), Failed> {
    close_from_on_exec(CONTROL).map_err(|errno| Failed::Step(Stage::Descriptors, errno))
}

/// Puts the restrictions of `launch` in force for the calling process, and proves them.
pub(super) fn restrict(launch: &WallLaunch, fence: &Fence, company: Company) -> Result<Vec<Proof>, Failed> {
    let restrictions = &launch.restrictions;
    for limit in restrictions.rlimits.iter().filter(|limit| limit.kind != RlimitKind::Core) {
        set_limit(limit).map_err(|(stage, errno)| Failed::Step(stage, errno))?;
    }
    limit_processes(restrictions.processes).map_err(|error| Failed::said(&error))?;
    if let Some(processors) = restrictions.processors {
        pin(processors).map_err(|error| Failed::said(&error))?;
    }
    let version = fence.restrict().map_err(|error| Failed::said(&error))?;
    let expected = Expected {
        identity: launch.wall.identity,
        rlimits: &restrictions.rlimits,
        shown: restrictions.paths.len(),
        landlock: version,
        entries: &launch.wall.entries,
        writable_bytes: launch.wall.writable_bytes,
        cgroup: launch.cgroup.as_ref(),
        company,
    };
    prove(&expected).map_err(|error| Failed::said(&error))
}

/// The last step before [`Strings::execute`].
pub(super) fn expect_signals() -> Result<(), Failed> {
    reset_signals().map_err(|(stage, errno)| Failed::Step(stage, errno))
}

fn limit_processes(most: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: `limit` is valid for reading, and outlives the call.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Keeps this process on the first `most` of the processors that it may use.
pub(super) fn pin(most: u32) -> io::Result<()> {
    let mut allowed = rustix::thread::sched_getaffinity(None)?;
    let mut kept = 0;
    for processor in 0..rustix::thread::CpuSet::MAX_CPU {
        if allowed.is_set(processor) {
            kept += 1;
            if kept > most {
                allowed.unset(processor);
            }
        }
    }
    rustix::thread::sched_setaffinity(None, &allowed).map_err(io::Error::from)
}

/// An error and its causes, in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
