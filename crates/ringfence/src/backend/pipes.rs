//! A program's standard streams: its ends, and ours.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::PipeFlags;
use tokio::net::unix::pipe;

use super::StartError;
use crate::request::Stdin;

/// The program's ends of its pipes, and ours.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdin: Option<OwnedFd>,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    pub(super) our_stdin: Option<OwnedFd>,
    pub(super) our_stdout: OwnedFd,
    pub(super) our_stderr: OwnedFd,
}

impl Pipes {
    pub(super) fn new(stdin: &Stdin) -> Result<Self, StartError> {
        let (our_stdout, stdout) = make_pipe()?;
        let (our_stderr, stderr) = make_pipe()?;
        let (stdin, our_stdin) = match stdin {
            Stdin::Empty => {
                let null =
                    File::open("/dev/null").map_err(|source| StartError::Io { attempt: "open /dev/null", source })?;
                (Some(OwnedFd::from(null)), None)
            }
            Stdin::Bytes(_) => {
                let (read, write) = make_pipe()?;
                (Some(read), Some(write))
            }
            Stdin::Pipe(_) => (None, None),
        };
        Ok(Self { stdin, stdout, stderr, our_stdin, our_stdout, our_stderr })
    }

    /// What the program gets as its standard input, output and error.
    pub(super) fn program_ends<'a>(&'a self, stdin: &'a Stdin) -> Result<[BorrowedFd<'a>; 3], StartError> {
        let stdin = match (stdin, &self.stdin) {
            (Stdin::Pipe(given), _) => given.as_fd(),
            (_, Some(made)) => made.as_fd(),
            (Stdin::Empty | Stdin::Bytes(_), None) => {
                return Err(StartError::Io {
                    attempt: "make standard input",
                    source: io::ErrorKind::InvalidInput.into(),
                });
            }
        };
        Ok([stdin, self.stdout.as_fd(), self.stderr.as_fd()])
    }
}

/// The end that is read, and the one that is written.
pub(super) fn make_pipe() -> Result<(OwnedFd, OwnedFd), StartError> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
        .map_err(|errno| StartError::Io { attempt: "make a pipe", source: errno.into() })
}

/// Our end of a pipe that is read.
pub(super) fn reader(fd: OwnedFd) -> io::Result<pipe::Receiver> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    pipe::Receiver::from_owned_fd_unchecked(fd)
}

/// Our end of a pipe that is written.
pub(super) fn writer(fd: OwnedFd) -> io::Result<pipe::Sender> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    pipe::Sender::from_owned_fd_unchecked(fd)
}
