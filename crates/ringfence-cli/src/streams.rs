//! Standard input and output in an event loop. Of a pipe or a local socket the kernel says when it is ready; everything else is read and
//! written by a thread that waits, which costs every message two more turns of the scheduler.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as Socket;

use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use rustix::net::AddressFamily;
use rustix::net::sockopt::socket_domain;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::net::unix::pipe::{Receiver, Sender};

pub(crate) type Input = Box<dyn AsyncRead + Send + Unpin>;
pub(crate) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// What became of the streams, which ends with it.
#[derive(Default)]
pub(crate) struct Changed(Vec<(BorrowedFd<'static>, OFlags)>);

impl Drop for Changed {
    /// Whoever has them after us expects that they wait, as they did.
    fn drop(&mut self) {
        for (stream, flags) in self.0.drain(..).rev() {
            // Nothing of ours depends on it where that fails.
            fcntl_setfl(stream, flags).ok();
        }
    }
}

/// Standard input and output, each as it can be had.
pub(crate) fn standard() -> io::Result<(Input, Output, Changed)> {
    let (stdin, stdout, mut changed) = (rustix::stdio::stdin(), rustix::stdio::stdout(), Changed::default());
    let input: Input = match kind(stdin) {
        Kind::Pipe => Box::new(Receiver::from_owned_fd(changed.take(stdin)?)?),
        Kind::Socket => Box::new(UnixStream::from_std(Socket::from(changed.take(stdin)?))?),
        Kind::Other => Box::new(tokio::io::stdin()),
    };
    // What is said on standard error is written without a look at whether there is room.
    let output: Output = match kind(stdout) {
        Kind::Pipe if !is_same(stdout, rustix::stdio::stderr()) => {
            Box::new(Sender::from_owned_fd(changed.take(stdout)?)?)
        }
        Kind::Socket if !is_same(stdout, rustix::stdio::stderr()) => {
            Box::new(UnixStream::from_std(Socket::from(changed.take(stdout)?))?)
        }
        Kind::Pipe | Kind::Socket | Kind::Other => Box::new(tokio::io::stdout()),
    };
    Ok((input, output, changed))
}

impl Changed {
    /// A descriptor of our own for `stream`, which does not wait any more.
    fn take(&mut self, stream: BorrowedFd<'static>) -> io::Result<OwnedFd> {
        let own = stream.try_clone_to_owned()?;
        let flags = fcntl_getfl(stream)?;
        fcntl_setfl(stream, flags | OFlags::NONBLOCK)?;
        self.0.push((stream, flags));
        Ok(own)
    }
}

enum Kind {
    Pipe,
    Socket,
    Other,
}

fn kind(stream: BorrowedFd<'_>) -> Kind {
    match fstat(stream).map(|found| FileType::from_raw_mode(found.st_mode)) {
        Ok(FileType::Fifo) => Kind::Pipe,
        Ok(FileType::Socket) if socket_domain(stream) == Ok(AddressFamily::UNIX) => Kind::Socket,
        _ => Kind::Other,
    }
}

fn is_same(one: BorrowedFd<'_>, other: BorrowedFd<'_>) -> bool {
    match (fstat(one), fstat(other)) {
        (Ok(one), Ok(other)) => (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino),
        // One that is closed is nobody's.
        (Err(_), _) | (_, Err(_)) => false,
    }
}
