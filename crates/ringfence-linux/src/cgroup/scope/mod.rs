//! A scope of our own from systemd: a place in the tree of cgroups that is ours, where our session has none.
//!
//! Whoever comes by ssh, or sits at a text console, is in a cgroup of root's. The user's own systemd may move a process of the
//! user's into a new scope below itself, beside which cgroups with limits can then be made.

mod message;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use self::message::{Arrived, Call, Kind, MOST_MESSAGE};
use super::name::Supervisor;
use crate::kernel_file;

/// A bus and a systemd that take longer than this together are no help. A bus that nobody has used yet is only started now.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);
/// The longest line of the handshake.
const LONGEST_LINE: usize = 1024;
/// Signals and answers to others that may come before ours.
const MOST_OTHERS: usize = 100;
/// The first namespace of process numbers, which every Linux gives this number.
const FIRST_NUMBERS: u64 = 0xEFFF_FFFC;

/// Why there is no scope.
#[derive(Debug, thiserror::Error)]
pub enum NoScope {
    /// The bus could not be spoken with.
    #[error("could not speak with the user's bus at {path}")]
    Bus {
        /// Its socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Systemd may know our number as another process's.
    #[error("this process is numbered within a container, so that systemd could take another one for it")]
    Numbered,
    /// Systemd, or the bus, said no.
    #[error("systemd made no scope: {0}")]
    Refused(String),
    /// It said yes, and nothing came of it.
    #[error("systemd made a scope, but did not move this process there within {} seconds", PATIENCE.as_secs())]
    NotMoved,
}

/// Asks the user's systemd, by the bus at `bus`, for a scope with this process in it, and returns once it is there. All threads
/// of the process go along; where it is a service's, the service loses it.
pub fn enter_scope(bus: &Path) -> Result<(), NoScope> {
    let cannot = |source| NoScope::Bus { path: bus.to_owned(), source };
    let numbers = rustix::fs::stat("/proc/self/ns/pid").map_err(|errno| cannot(errno.into()))?;
    if !is_known_to_all(numbers.st_ino) {
        return Err(NoScope::Numbered);
    }
    let until = Instant::now() + PATIENCE;
    let supervisor = Supervisor::current().map_err(cannot)?;
    let name = format!("ringfence-{}-{}.scope", supervisor.pid, supervisor.started);
    ask(bus, &name, supervisor.pid, until)?;
    while Instant::now() < until {
        let groups = kernel_file::read("/proc/self/cgroup").map_err(cannot)?;
        if is_in(&groups, &name) {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(NoScope::NotMoved)
}

/// Whether a process that is numbered by this namespace has the same number for everybody. One in a container may see a bus of the host.
fn is_known_to_all(numbers: u64) -> bool {
    numbers == FIRST_NUMBERS
}

/// Whether the second version's tree has us in the scope of this name.
fn is_in(groups: &str, name: &str) -> bool {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    own.is_some_and(|path| path.rsplit('/').next() == Some(name))
}

fn ask(bus: &Path, name: &str, pid: u32, until: Instant) -> Result<(), NoScope> {
    let cannot = |source| NoScope::Bus { path: bus.to_owned(), source };
    let mut stream = Patient::connect(bus, until).map_err(cannot)?;
    log_in(&mut stream).map_err(cannot)?;
    // The bus talks only with those that have greeted it.
    for (serial, call) in [(1, Call::hello()), (2, Call::start_scope(name, pid))] {
        stream.write_all(&call.encode(serial)).map_err(cannot)?;
        let answer = answer_to(serial, &mut stream).map_err(cannot)?;
        if answer.kind == Kind::Error {
            return Err(NoScope::Refused(answer.complaint()));
        }
    }
    Ok(())
}

/// A stream that is waited for until one moment, however often something comes.
struct Patient {
    stream: UnixStream,
    until: Instant,
}

impl Patient {
    fn connect(path: &Path, until: Instant) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                // Too many wait there already.
                Err(Errno::AGAIN) if Instant::now() < until => std::thread::sleep(PAUSE),
                Err(errno) => return Err(in_words(errno.into())),
            }
        }
        let stream = UnixStream::from(socket);
        stream.set_nonblocking(false)?;
        Ok(Self { stream, until })
    }

    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(late()) } else { Ok(Some(left)) }
    }
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(buffer).map_err(in_words)
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(bytes).map_err(in_words)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// The kernel says of a time limit only that nothing was there.
fn in_words(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::WouldBlock { late() } else { error }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, format!("it did not answer within {} seconds", PATIENCE.as_secs()))
}

/// Says who we are; the kernel vouches for it.
fn log_in(stream: &mut (impl Read + Write)) -> io::Result<()> {
    let user: String = rustix::process::geteuid().as_raw().to_string();
    let user: String = user.bytes().map(|byte| format!("{byte:02x}")).collect();
    stream.write_all(format!("\0AUTH EXTERNAL {user}\r\n").as_bytes())?;
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        if line.len() > LONGEST_LINE {
            return Err(invalid("the handshake has no end"));
        }
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        line.extend(byte);
    }
    if !line.starts_with(b"OK ") {
        return Err(invalid("it does not take us for who we are"));
    }
    stream.write_all(b"BEGIN\r\n")
}

fn answer_to(serial: u32, stream: &mut impl Read) -> io::Result<Arrived> {
    for _ in 0..MOST_OTHERS {
        let mut start = [0; message::START];
        stream.read_exact(&mut start)?;
        let rest = message::length_after(&start).filter(|rest| *rest <= MOST_MESSAGE);
        let mut rest = vec![0; rest.ok_or_else(|| invalid("a message is no message, or too long"))?];
        stream.read_exact(&mut rest)?;
        let arrived = Arrived::decode(&start, &rest).ok_or_else(|| invalid("a message cannot be read"))?;
        if arrived.answers == Some(serial) {
            return Ok(arrived);
        }
    }
    Err(invalid("it says everything but the answer"))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
