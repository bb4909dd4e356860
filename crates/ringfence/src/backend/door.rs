//! The only way out of a wall's own network: a socket in it at which this process listens.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};

/// Where it is inside.
pub(crate) const PORT: u16 = 3128;

/// A socket that a guest made in its network and gave to us before anything ran there.
#[derive(Debug)]
pub(crate) struct Door(TcpListener);

impl Door {
    /// The door behind `socket`, which must be what a door is.
    pub(super) fn new(socket: OwnedFd) -> io::Result<Self> {
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "the guest sent something that nobody can listen at");
        if socket_type(&socket)? != SocketType::STREAM || !socket_acceptconn(&socket)? {
            return Err(bad());
        }
        let listener = TcpListener::from(socket);
        if listener.local_addr()? != SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)) {
            return Err(bad());
        }
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// To be listened at by this runtime.
    pub(crate) fn listen(self) -> io::Result<tokio::net::TcpListener> {
        tokio::net::TcpListener::from_std(self.0)
    }
}
