//! The one way out of a wall's own network: a socket in it at which somebody outside listens.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// How many may wait to be let through.
const WAITING: i32 = 1024;

/// Listens at a port of this network's loopback. Whoever is given the socket accepts what comes, wherever it is itself.
pub fn open(port: u16) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    rustix::net::listen(&socket, WAITING)?;
    Ok(socket)
}
