//! Finding out by trying whether this host lets a wall stand, and if not, what of it is refused.
//!
//! What settings say is a guess: a filter, a profile or a container around us refuses what they permit. So the namespaces are made
//! and the mounts laid as for a wall, in a process that shows nothing, starts nothing and is gone at once.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use libc::c_int;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use serde::{Deserialize, Serialize};

use super::mount_api::{INERT, attach_over, clone_below, new_file_system};
use super::namespaces::{Identity, Processors, bear, bear_in, close_copy, map};
use super::network::Network;
use super::{SetupError, inside};

/// It takes a millisecond. Who does not answer by then is not waited for.
const LIMIT: Duration = Duration::from_secs(2);
/// A need's number and the system's error number.
const ANSWER: usize = 8;

/// What a wall needs of its host, in the order in which it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Need {
    /// A user namespace.
    Users,
    /// A mount namespace.
    Mounts,
    /// A process namespace.
    Processes,
    /// A namespace of queues and shared memory.
    Ipc,
    /// A namespace of the machine's name.
    Names,
    /// A namespace of control groups.
    Groups,
    /// A network namespace, with its loopback.
    Network,
    /// Saying who is who in the user namespace.
    Map,
    /// A copy of the host's mounts, which root takes before it gives its rights up.
    HostMounts,
    /// Cutting mounts off from the host's.
    CutOff,
    /// A file system in memory.
    FileSystem,
    /// Laying it over what is there.
    Attach,
    /// Its own `/proc`.
    Proc,
}

impl Need {
    /// Every one.
    pub const ALL: [Self; 13] = [
        Self::Users,
        Self::Mounts,
        Self::Processes,
        Self::Ipc,
        Self::Names,
        Self::Groups,
        Self::Network,
        Self::Map,
        Self::HostMounts,
        Self::CutOff,
        Self::FileSystem,
        Self::Attach,
        Self::Proc,
    ];

    /// The flag by which a process is born with it; nothing where it is no namespace.
    fn flag(self) -> Option<c_int> {
        match self {
            Self::Users => Some(libc::CLONE_NEWUSER),
            Self::Mounts => Some(libc::CLONE_NEWNS),
            Self::Processes => Some(libc::CLONE_NEWPID),
            Self::Ipc => Some(libc::CLONE_NEWIPC),
            Self::Names => Some(libc::CLONE_NEWUTS),
            Self::Groups => Some(libc::CLONE_NEWCGROUP),
            Self::Network => Some(libc::CLONE_NEWNET),
            Self::Map | Self::HostMounts | Self::CutOff | Self::FileSystem | Self::Attach | Self::Proc => None,
        }
    }

    fn number(self) -> i32 {
        // After 0, which stands for none.
        self as i32 + 1
    }

    fn of_number(number: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|need| need.number() == number)
    }
}

/// The first need that this host refuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Which.
    pub need: Need,
    /// The system's error number.
    pub errno: i32,
}

impl Refused {
    /// As two numbers, for whoever asked over a socket or pipe.
    pub(crate) fn encode(found: Option<Self>) -> [u8; ANSWER] {
        let (need, errno) = found.map_or((0, 0), |refused| (refused.need.number(), refused.errno));
        let mut bytes = [0; ANSWER];
        bytes[..4].copy_from_slice(&need.to_le_bytes());
        bytes[4..].copy_from_slice(&errno.to_le_bytes());
        bytes
    }

    /// What was encoded; an error where it is nothing of the kind.
    pub(crate) fn decode(bytes: &[u8]) -> io::Result<Option<Self>> {
        let [n0, n1, n2, n3, e0, e1, e2, e3]: [u8; ANSWER] =
            bytes.try_into().map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        let (number, errno) = (i32::from_le_bytes([n0, n1, n2, n3]), i32::from_le_bytes([e0, e1, e2, e3]));
        match (number, Need::of_number(number)) {
            (0, _) if errno == 0 => Ok(None),
            (_, Some(need)) => Ok(Some(Self { need, errno })),
            (_, None) => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Makes what every wall needs for a program of `identity`, and takes it away again; says what is refused first. This process must
/// have one thread. An error where it could not be tried, which says nothing about the host.
pub fn attempt(identity: Identity) -> io::Result<Option<Refused>> {
    let (child_waits, parent_maps) = pipe_with(PipeFlags::CLOEXEC)?;
    let (answer, tells) = pipe_with(PipeFlags::CLOEXEC)?;
    // What root shows of the host, it takes hold of before there is a namespace.
    let host_mounts = rustix::process::geteuid().is_root().then(copy_of_a_mount);
    let born = bear(None, Processors::Busy, || {
        // Otherwise the end of file would never come.
        close_copy(&parent_maps);
        let mut mapped = [0u8; 1];
        if matches!(rustix::io::read(&child_waits, &mut mapped), Ok(1)) {
            // Whoever waits sees by the end of the pipe that nothing comes.
            rustix::io::write(&tells, &Refused::encode(lay().err())).ok();
        }
    });
    drop((child_waits, tells));
    let raised = match born {
        Ok(raised) => raised.counted(),
        Err(error) => return first_refused(error).map(Some),
    };
    let found = match map(raised.pid(), identity) {
        Err(error) => refused(Need::Map, error).map(Some),
        Ok(()) => match host_mounts {
            Some(Err(errno)) => refused(Need::HostMounts, errno.into()).map(Some),
            Some(Ok(())) | None => {
                rustix::io::write(&parent_maps, b"m").map_err(io::Error::from).and_then(|_| hear(answer.as_fd()))
            }
        },
    };
    raised.end();
    found
}

fn copy_of_a_mount() -> rustix::io::Result<()> {
    clone_below(rustix::fs::CWD, Path::new("/")).map(drop)
}

fn hear(answer: std::os::fd::BorrowedFd<'_>) -> io::Result<Option<Refused>> {
    let limit = Timespec::try_from(LIMIT).map_err(io::Error::other)?;
    if poll(&mut [PollFd::from_borrowed_fd(answer, PollFlags::IN)], Some(&limit))? == 0 {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut bytes = [0u8; ANSWER];
    let length = rustix::io::read(answer, &mut bytes)?;
    Refused::decode(bytes.get(..length).unwrap_or_default())
}

/// Which namespace it was that a process could not be born with because of `error`.
fn first_refused(error: io::Error) -> io::Result<Refused> {
    for need in Need::ALL {
        let Some(flag) = need.flag() else { continue };
        // Only who has a user namespace of its own may make the others.
        match bear_in(libc::CLONE_NEWUSER | flag, None, Processors::Busy, || ()) {
            Ok(raised) => raised.counted().end(),
            Err(error) => return refused(need, error),
        }
    }
    // Each by itself can be had.
    Err(error)
}

/// An error that says nothing about the host's rules stays one.
fn refused(need: Need, error: io::Error) -> io::Result<Refused> {
    match error.raw_os_error() {
        None | Some(libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EINTR) => Err(error),
        Some(errno) => Ok(Refused { need, errno }),
    }
}

/// Lays what is at the bottom of every wall. The caller is process 1 of new namespaces, and mapped.
fn lay() -> Result<(), Refused> {
    let failed = |need| move |errno: Errno| Refused { need, errno: errno.raw_os_error() };
    let of_io = |need| move |error: io::Error| Refused { need, errno: error.raw_os_error().unwrap_or(libc::EINVAL) };
    Network::of_birth().map_err(of_io(Need::Network))?;
    inside::cut_off().map_err(|SetupError::Step { source, .. }| of_io(Need::CutOff)(source))?;
    let memory = new_file_system("tmpfs", &[("size", "64k")], INERT).map_err(failed(Need::FileSystem))?;
    attach_over(memory.as_fd(), Path::new("/")).map_err(failed(Need::Attach))?;
    new_file_system("proc", &[], INERT).map_err(failed(Need::Proc)).map(drop)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_survives_the_wire_and_anything_else_is_no_answer() {
        for need in Need::ALL {
            let found = Some(Refused { need, errno: libc::EPERM });
            assert_eq!(Refused::decode(&Refused::encode(found)).unwrap(), found);
        }
        assert_eq!(Refused::decode(&Refused::encode(None)).unwrap(), None);
        let good = Refused::encode(None);
        let longer = [&good[..], &[0]].concat();
        let bad: [&[u8]; 5] = [&good[..7], &[], &longer, &[99, 0, 0, 0, 1, 0, 0, 0], &[0, 0, 0, 0, 1, 0, 0, 0]];
        for bad in bad {
            assert!(Refused::decode(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn what_could_not_be_tried_is_nothing_that_the_host_refuses() {
        let check = |errno, expected: bool| {
            let found = refused(Need::Users, io::Error::from_raw_os_error(errno));
            assert_eq!(found.is_ok(), expected, "{errno}: {found:?}");
        };
        for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS, libc::ENOSPC, libc::EUSERS] {
            check(errno, true);
        }
        for errno in [libc::EAGAIN, libc::ENOMEM, libc::EMFILE, libc::EINTR] {
            check(errno, false);
        }
        assert!(refused(Need::Users, io::ErrorKind::TimedOut.into()).is_err());
    }
}
