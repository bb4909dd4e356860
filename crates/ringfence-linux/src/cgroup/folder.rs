//! One cgroup folder, used by descriptor: what its path means can change, what it is cannot.

use std::fmt;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal};

use crate::kernel_file;

/// A file of the kernel is not read any further; only a list of very many processes comes near.
const READ_LIMIT: u64 = 4 * 1024 * 1024;
/// How long the kernel may take to let go of a folder whose processes were killed, before removing it fails.
const PATIENCE: Duration = Duration::from_secs(5);
const PROCESSES: &str = "cgroup.procs";

/// What was attempted on which file; the reason is its source.
#[derive(Debug, thiserror::Error)]
#[error("could not {attempt} {path}", path = .path.display())]
pub(super) struct FileError {
    attempt: String,
    path: PathBuf,
    source: io::Error,
}

/// Says what was attempted; the error's kind stays.
pub(super) fn failed(attempt: impl Into<String>, path: &Path, source: impl Into<io::Error>) -> io::Error {
    let source = source.into();
    io::Error::new(source.kind(), FileError { attempt: attempt.into(), path: path.to_owned(), source })
}

/// A folder of ours. Dropping it removes it, so that a start which fails half-way leaves nothing.
pub(super) struct Folder {
    parent: OwnedFd,
    name: String,
    path: PathBuf,
    own: OwnedFd,
    removed: bool,
}

impl fmt::Debug for Folder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Folder").field(&self.path).finish()
    }
}

impl Folder {
    /// Makes the folder `name`, which must not exist yet.
    pub(super) fn make(parent_path: &Path, name: &str) -> io::Result<Self> {
        let parent = open_folder(parent_path)?;
        let path = parent_path.join(name);
        rustix::fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755))
            .map_err(|errno| failed("make the cgroup", &path, errno))?;
        Self::open_in(parent, name, path.clone()).inspect_err(|_| {
            // The folder is new and empty. Should this fail as well, the first error is the one to tell.
            rustix::fs::unlinkat(rustix::fs::CWD, &path, AtFlags::REMOVEDIR).ok();
        })
    }

    /// Takes over a folder that is there already, to remove it.
    pub(super) fn adopt(parent_path: &Path, name: &str) -> io::Result<Self> {
        Self::open_in(open_folder(parent_path)?, name, parent_path.join(name))
    }

    fn open_in(parent: OwnedFd, name: &str, path: PathBuf) -> io::Result<Self> {
        let own = rustix::fs::openat(
            &parent,
            name,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|errno| failed("open the cgroup", &path, errno))?;
        Ok(Self { parent, name: name.to_owned(), path, own, removed: false })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.own.as_fd()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Moves a process in. The kernel moves all of its threads, and all that it starts later begins here.
    pub(super) fn add(&self, pid: i32) -> io::Result<()> {
        rustix::fs::openat(&self.own, PROCESSES, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .and_then(|processes| rustix::io::write(&processes, pid.to_string().as_bytes()))
            .map(drop)
            .map_err(|errno| failed(format!("add process {pid} to"), &self.path, errno))
    }

    pub(super) fn has(&self, file: &str) -> io::Result<bool> {
        match rustix::fs::accessat(&self.own, file, rustix::fs::Access::EXISTS, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(failed("look for", &self.path.join(file), errno)),
        }
    }

    pub(super) fn write(&self, file: &str, value: &str) -> io::Result<()> {
        let told = |errno: io::Error| failed(format!("write `{value}` to"), &self.path.join(file), errno);
        let fd = rustix::fs::openat(&self.own, file, OFlags::WRONLY | OFlags::TRUNC | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| told(errno.into()))?;
        // In one call: the kernel takes each write as a whole value.
        std::fs::File::from(fd).write_all(value.as_bytes()).map_err(told)
    }

    /// Writes a limit and reads it back: a kernel that rounds, ignores or clips it has not set it.
    pub(super) fn limit(&self, file: &str, value: &str) -> io::Result<()> {
        let path = || self.path.join(file);
        let told = |errno| failed(format!("write `{value}` to"), &path(), errno);
        let flags = OFlags::RDWR | OFlags::TRUNC | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&self.own, file, flags, Mode::empty()).map_err(told)?;
        // In one call, which leaves the place to read from at the beginning: the kernel takes each write as a whole value.
        let write = || rustix::io::pwrite(&fd, value.as_bytes(), 0);
        let written = rustix::io::retry_on_intr(write).map_err(told)?;
        if written != value.len() {
            return Err(told(Errno::IO));
        }
        let now = kernel_file::read_open(fd.into(), READ_LIMIT).map_err(|error| failed("read", &path(), error))?;
        if now.trim() == value {
            return Ok(());
        }
        Err(failed(
            format!("set `{value}` in"),
            &self.path.join(file),
            io::Error::new(io::ErrorKind::InvalidData, format!("the kernel made it `{}`", now.trim())),
        ))
    }

    pub(super) fn read(&self, file: &str) -> io::Result<String> {
        let told = |error: io::Error| failed("read", &self.path.join(file), error);
        let fd = rustix::fs::openat(&self.own, file, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| told(errno.into()))?;
        kernel_file::read_open(fd.into(), READ_LIMIT).map_err(told)
    }

    pub(super) fn number(&self, file: &str) -> io::Result<u64> {
        let text = self.read(file)?;
        text.trim().parse().map_err(|_| self.unexpected(file))
    }

    /// The number after `key` in a file of lines `key number`.
    pub(super) fn counter(&self, file: &str, key: &str) -> io::Result<u64> {
        self.read(file)?
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(' '))
            .and_then(|number| number.trim().parse().ok())
            .ok_or_else(|| self.unexpected(file))
    }

    fn unexpected(&self, file: &str) -> io::Error {
        let source = io::Error::new(io::ErrorKind::InvalidData, "it does not hold the number that is expected");
        failed("understand", &self.path.join(file), source)
    }

    /// The processes in it, as far as our pid namespace can name them.
    pub(super) fn processes(&self) -> io::Result<Vec<i32>> {
        let pids = self.read(PROCESSES)?;
        Ok(pids.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect())
    }

    /// Sends SIGKILL to those of the processes `found` in it that are in it. Returns those that were killed: each becomes readable
    /// by its end.
    fn kill_these(&self, found: &[i32]) -> io::Result<Vec<OwnedFd>> {
        let mut opened = Vec::new();
        for &number in found {
            let Some(pid) = Pid::from_raw(number) else { continue };
            match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
                Ok(pidfd) => opened.push((number, pidfd)),
                Err(Errno::SRCH | Errno::INVAL) => {}
                Err(errno) => return Err(failed(format!("open process {number} of"), &self.path, errno)),
            }
        }
        // A number may have passed to a stranger before it was opened. One that is still listed here had not.
        let listed = if opened.is_empty() { Vec::new() } else { self.processes()? };
        let mut killed = Vec::new();
        for (number, pidfd) in opened {
            if !listed.contains(&number) {
                continue;
            }
            match rustix::process::pidfd_send_signal(&pidfd, Signal::KILL) {
                Ok(()) | Err(Errno::SRCH) => killed.push(pidfd),
                Err(errno) => return Err(failed(format!("kill process {number} of"), &self.path, errno)),
            }
        }
        Ok(killed)
    }

    /// Kills until nobody is in it, for a bounded time.
    pub(super) fn kill_all(&self) -> io::Result<()> {
        let start = Instant::now();
        loop {
            let found = self.processes()?;
            if found.is_empty() {
                return Ok(());
            }
            let killed = self.kill_these(&found)?;
            if start.elapsed() > PATIENCE {
                return Err(too_slow());
            }
            // Sooner than any pause: each tells when it is gone.
            wait_for_one(&killed);
        }
    }

    /// Removes the folder; waits a bounded time for processes that have been killed to leave it.
    pub(super) fn remove(&mut self) -> io::Result<()> {
        if self.removed {
            return Ok(());
        }
        retry_while_busy(|| match rustix::fs::unlinkat(&self.parent, &self.name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::BUSY) => Ok(false),
            Err(errno) => Err(failed("remove the cgroup", &self.path, errno)),
        })?;
        self.removed = true;
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // `Cgroup::remove` tells the error; here nobody listens, and `sweep` tries again.
        self.remove().ok();
    }
}

/// Repeats `step` until it says that it is done, for a bounded time.
pub(super) fn retry_while_busy(mut step: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(50);
    while !step()? {
        if start.elapsed() > PATIENCE {
            return Err(too_slow());
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    Ok(())
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::ResourceBusy, "the cgroup's processes did not go in time")
}

/// Waits until one of the first of these processes has ended, for a short time at most.
fn wait_for_one(processes: &[OwnedFd]) {
    const FIRST: usize = 64;
    let limit = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    let ends = processes.iter().take(FIRST).map(|process| PollFd::new(process, PollFlags::IN));
    // In vain or not, what is left is looked at again.
    rustix::event::poll(&mut ends.collect::<Vec<_>>(), Some(&limit)).ok();
}

fn open_folder(path: &Path) -> io::Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| failed("open the folder", path, errno))
}

/// Whether the caller may write to `path` now, with its effective identity.
pub(super) fn may_write(path: &Path) -> io::Result<()> {
    let access = rustix::fs::Access::WRITE_OK;
    rustix::fs::accessat(rustix::fs::CWD, path, access, AtFlags::EACCESS).map_err(io::Error::from)
}
