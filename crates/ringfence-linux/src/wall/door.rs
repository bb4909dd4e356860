//! The ways out of a wall's own network: sockets in it at which somebody outside listens.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType};
use serde::{Deserialize, Serialize};

use super::network;

/// How many may wait to be let through.
const WAITING: i32 = 1024;

/// What is made in a wall's network for the host, before anything runs there.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Doors {
    /// Sockets, in the order in which they are handed out.
    pub sockets: Vec<Door>,
    /// Addresses that belong to this network, besides its loopback's: the first of them, and the bits that all have in common.
    /// They lead to nothing but sockets in this network.
    pub addresses: Option<(Ipv4Addr, u8)>,
}

/// One socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Door {
    /// Connections arrive at it.
    Stream(SocketAddrV4),
    /// Single messages do.
    Datagram(SocketAddrV4),
}

/// Makes `doors` in this network. Whoever is given a socket accepts what comes, wherever it is itself.
pub(super) fn open(doors: &Doors) -> rustix::io::Result<Vec<OwnedFd>> {
    if let Some((first, bits)) = doors.addresses {
        network::add_addresses(first, bits)?;
    }
    doors.sockets.iter().map(open_one).collect()
}

/// Makes one of them.
pub fn open_one(door: &Door) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let made = |kind, at: &SocketAddrV4| {
        let socket = rustix::net::socket_with(AddressFamily::INET, kind, flags, None)?;
        rustix::net::bind(&socket, at)?;
        Ok(socket)
    };
    match door {
        Door::Stream(at) => {
            let socket = made(SocketType::STREAM, at)?;
            rustix::net::listen(&socket, WAITING)?;
            Ok(socket)
        }
        Door::Datagram(at) => made(SocketType::DGRAM, at),
    }
}
