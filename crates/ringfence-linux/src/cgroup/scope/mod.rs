//! A scope of our own from systemd: a place in the tree of cgroups that is ours, where our session has none.
//!
//! Whoever comes by ssh, or sits at a text console, is in a cgroup of root's. The user's own systemd may move a process of the
//! user's into a new scope below itself, beside which cgroups with limits can then be made.

mod message;

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::message::{Arrived, Call, Kind, MOST_MESSAGE};
use super::name::Supervisor;
use crate::kernel_file;

/// A bus or a systemd that takes longer than this is no help.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(1);
/// The longest line of the handshake.
const LONGEST_LINE: usize = 1024;
/// Signals and answers to others that may come before ours.
const MOST_OTHERS: usize = 100;

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
    let supervisor = Supervisor::current().map_err(cannot)?;
    let name = format!("ringfence-{}-{}.scope", supervisor.pid, supervisor.started);
    ask(bus, &name, supervisor.pid)?;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let groups = kernel_file::read("/proc/self/cgroup").map_err(cannot)?;
        if is_in(&groups, &name) {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(NoScope::NotMoved)
}

/// Whether the second version's tree has us in the scope of this name.
fn is_in(groups: &str, name: &str) -> bool {
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    own.is_some_and(|path| path.rsplit('/').next() == Some(name))
}

fn ask(bus: &Path, name: &str, pid: u32) -> Result<(), NoScope> {
    let cannot = |source| NoScope::Bus { path: bus.to_owned(), source };
    let mut stream = UnixStream::connect(bus).map_err(cannot)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(cannot)?;
    stream.set_write_timeout(Some(PATIENCE)).map_err(cannot)?;
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

/// Says who we are; the kernel vouches for it.
fn log_in(stream: &mut UnixStream) -> io::Result<()> {
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
