//! Starting one program under a keeper: a small process of its own that owns the program's whole tree.
//!
//! The keeper is a subreaper, so that a daemon which double-forks comes back to it, and it kills all that is left when
//! the program ends, when it is told to, or when its supervisor is gone. It is a process per run because a supervisor
//! with many runs could not tell whose orphan it was handed.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use crate::environment::Environment;
use crate::fence::Fence;
use crate::keeper_process::{self, Prepared};
use crate::orphans;
use crate::program_process::{Step, check, close_from};
use crate::report::{Report, SIZE, Stage};

/// Whether the program may gain privileges by executing a setuid file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privileges {
    /// As the host has it.
    Host,
    /// `no_new_privs` is set.
    NoNew,
}

/// A limit that the kernel keeps for each process by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RlimitKind {
    /// Private writable memory of one process.
    Data,
    /// The size of one file.
    FileSize,
    /// Open descriptors of one process.
    OpenFiles,
    /// The size of a core file.
    Core,
}

/// One resource limit, soft and hard at the same value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rlimit {
    /// What is limited.
    pub kind: RlimitKind,
    /// The most that is allowed. A hard limit of ours that is lower already stays.
    pub most: u64,
}

/// All that a start needs, made before the fork: nothing is allocated or looked up after it.
#[derive(Debug)]
pub struct Launch<'a> {
    /// The file to execute.
    pub program: &'a OsStr,
    /// The arguments, the program's name first.
    pub argv: &'a [&'a OsStr],
    /// The whole environment.
    pub env: &'a [(&'a OsStr, &'a OsStr)],
    /// The working directory, already open: a path could change its meaning meanwhile.
    pub cwd: BorrowedFd<'a>,
    /// Standard input.
    pub stdin: BorrowedFd<'a>,
    /// Standard output.
    pub stdout: BorrowedFd<'a>,
    /// Standard error.
    pub stderr: BorrowedFd<'a>,
    /// Whether privileges may be gained.
    pub privileges: Privileges,
    /// Limits set on the program.
    pub rlimits: &'a [Rlimit],
    /// What is put around the program before it executes; only together with `no_new_privs`.
    pub fence: Option<&'a Fence>,
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A string holds a NUL byte, which no system call can carry.
    #[error("the {what} holds a NUL byte")]
    Nul {
        /// Which string.
        what: &'static str,
    },
    /// A system call before the fork failed.
    #[error("could not {attempt}")]
    Prepare {
        /// What was attempted.
        attempt: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

/// A running keeper. Dropping it kills the program and everything it started.
#[derive(Debug)]
pub struct Keeper {
    pid: i32,
    pidfd: OwnedFd,
    control: OwnedFd,
    reaped: bool,
}

/// Makes a keeper that holds `launch` ready. Nothing of the program runs before [`Keeper::release`].
pub fn launch(launch: &Launch<'_>) -> Result<Keeper, LaunchError> {
    let program = c_string(launch.program, "program's path")?;
    let argv = launch.argv.iter().map(|arg| c_string(arg, "argument")).collect::<Result<Vec<_>, _>>()?;
    let env = Environment::new(launch.env)?;
    let (ours, theirs) = control_sockets()
        .map_err(|source| LaunchError::Prepare { attempt: "make the keeper's control socket", source })?;
    let argv_pointers = null_terminated(&argv);
    let prepared = Prepared {
        program: program.as_ptr(),
        argv: argv_pointers.as_ptr(),
        env: env.as_ptr(),
        listed: launch.env,
        cwd: launch.cwd.as_raw_fd(),
        stdio: [launch.stdin.as_raw_fd(), launch.stdout.as_raw_fd(), launch.stderr.as_raw_fd()],
        control: theirs.as_raw_fd(),
        privileges: launch.privileges,
        rlimits: launch.rlimits,
        fence: launch.fence.map(Fence::prepare),
    };
    let (pid, pidfd) = keeper_process::fork(&prepared)
        .map_err(|source| LaunchError::Prepare { attempt: "start the process that keeps the program", source })?;
    orphans::add_keeper(pid);
    Ok(Keeper { pid, pidfd, control: ours, reaped: false })
}

impl Keeper {
    /// The keeper's process id; the root of the program's tree.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// A second descriptor of the control socket, for an event loop that wants to own what it waits on.
    pub fn control(&self) -> io::Result<OwnedFd> {
        self.control.try_clone()
    }

    /// The next report; `WouldBlock` when there is none yet, nothing when the keeper is gone.
    pub fn receive(&self) -> io::Result<Option<Report>> {
        let mut bytes = [0u8; SIZE];
        let (received, _) = rustix::net::recv(&self.control, &mut bytes[..], rustix::net::RecvFlags::empty())?;
        if received == 0 {
            return Ok(None);
        }
        Report::decode(&bytes[..received]).map(Some).ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "the keeper sent a message that is not one of its reports")
        })
    }

    /// Lets the program be executed. Whether it could be is the keeper's first [`Report`].
    pub fn release(&self) -> io::Result<()> {
        self.send(&[keeper_process::COMMAND_GO])
    }

    /// Asks for `signal` to be sent to the program's process group.
    pub fn signal(&self, signal: u8) -> io::Result<()> {
        self.send(&[keeper_process::COMMAND_SIGNAL, signal])
    }

    /// Asks for the program and everything it started to be killed.
    pub fn kill(&self) -> io::Result<()> {
        self.send(&[keeper_process::COMMAND_KILL])
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        match rustix::net::send(&self.control, message, SendFlags::NOSIGNAL) {
            Ok(_) => Ok(()),
            // The keeper is gone, and with it all that it kept: what was asked for has happened.
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Kills from outside, for a keeper that does not answer: the program can stop a process of its own user.
    pub fn kill_from_outside(&self) {
        crate::tree::kill_below(self.pid);
        keeper_process::kill_pidfd(self.pidfd.as_fd());
    }

    /// Waits until the keeper's process is gone, at most `limit`; says whether it is.
    pub fn reap(&mut self, limit: Duration) -> bool {
        if !self.reaped {
            self.reaped = keeper_process::reap(self.pidfd.as_fd(), limit);
        }
        self.reaped
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end();
        orphans::remove_keeper(self.pid);
    }
}

impl Keeper {
    fn end(&mut self) {
        if self.reaped {
            return;
        }
        // A keeper kills its tree on this order, and also when the socket closes. One that was stopped from inside does
        // neither, so it is killed together with its tree.
        if self.kill().is_err() || !self.reap(Duration::from_secs(2)) {
            self.kill_from_outside();
            self.reap(Duration::from_secs(2));
        }
    }
}

/// A socket that keeps messages apart: our end, which does not wait, and the other's, which does.
pub(crate) fn control_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs) = message_sockets()?;
    rustix::io::ioctl_fionbio(&ours, true)?;
    Ok((ours, theirs))
}

/// Two ends of a socket that is one stream of bytes, with descriptors. Both wait.
pub(crate) fn stream_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?)
}

/// Two ends of a socket that keeps messages apart.
pub(crate) fn message_sockets() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

pub(crate) fn c_string(text: &OsStr, what: &'static str) -> Result<CString, LaunchError> {
    CString::new(text.as_bytes()).map_err(|_| LaunchError::Nul { what })
}

pub(crate) fn null_terminated(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| CStr::as_ptr(string)).chain([std::ptr::null()]).collect()
}

/// Puts `wanted` at 0, 1, 2, … and closes everything else.
pub(crate) fn arrange_descriptors<const N: usize>(wanted: [i32; N]) -> Step<()> {
    place_descriptors(wanted)?;
    let first_free = i32::try_from(N).unwrap_or(i32::MAX);
    close_from(first_free).map_err(|errno| (Stage::Descriptors, errno))
}

/// Puts `wanted` at 0, 1, 2, …; what else is open stays.
pub(crate) fn place_descriptors<const N: usize>(wanted: [i32; N]) -> Step<()> {
    let mut high = [-1; N];
    for (copy, fd) in high.iter_mut().zip(wanted) {
        // SAFETY: integers only. First out of the way of the low numbers, so that no step overwrites a later source.
        *copy = check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 16) }, Stage::Descriptors)?;
    }
    for (target, copy) in (0..).zip(high) {
        // SAFETY: integers only; the descriptor table is this process's own copy, and nobody else knows the number `copy`.
        check(unsafe { libc::dup2(copy, target) }, Stage::Descriptors)?;
        // SAFETY: likewise.
        check(unsafe { libc::close(copy) }, Stage::Descriptors)?;
    }
    Ok(())
}

/// Takes ownership of a descriptor that a raw call returned.
pub(crate) fn own(fd: i32) -> OwnedFd {
    // SAFETY: callers pass a descriptor that the kernel has just returned to them and that nothing else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
