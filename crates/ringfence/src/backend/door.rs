//! The only way out of a wall's own network: a socket in it at which this process listens, or whose connections a guest relays.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use ringfence_egress::{Listener, Stream};
use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use tokio::sync::mpsc;

/// Where it is inside.
pub(crate) const PORT: u16 = 3128;

/// A door of a wall, which a guest opened before anything ran behind it.
#[derive(Debug)]
pub(crate) enum Door {
    /// A socket that the guest made in its network and gave to us.
    Socket(TcpListener),
    /// A socket that is the guest's, and what comes through it.
    Relayed(mpsc::Receiver<Stream>),
}

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
        Ok(Self::Socket(listener))
    }

    /// To be listened at by this runtime.
    pub(crate) fn listen(self) -> io::Result<Listener> {
        Ok(match self {
            Self::Socket(listener) => tokio::net::TcpListener::from_std(listener)?.into(),
            Self::Relayed(relayed) => relayed.into(),
        })
    }
}
