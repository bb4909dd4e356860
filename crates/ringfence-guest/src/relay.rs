//! What host and far guest say of connections. A far guest cannot hand its socket out: it accepts what programs connect to at its door,
//! and the bytes go over the one stream that there is.
//!
//! Each direction of each connection has a window of its own, so no more is ever held for one than that; and there are only so many.

use std::net::{Ipv4Addr, SocketAddrV4};

use serde::{Deserialize, Serialize};

use crate::far::PIECE;

/// Of each direction of one connection, so many bytes may be on their way that nobody has taken yet.
pub const CONNECTION_WINDOW: usize = 128 * 1024;
/// The most connections that are relayed at once. Further ones wait in the queue of the kernel inside.
pub const MOST_CONNECTIONS: u32 = 256;
/// What was taken is told when it is so much. Less than a window, so the other end never waits for what is not told.
pub const TOLD_FROM: usize = CONNECTION_WINDOW / 2;

/// The longest message that asks for a name, and the longest answer.
pub const LONGEST_QUESTION: usize = 4096;
/// The most questions that wait for an answer. Further ones wait in the queue of the kernel inside.
pub const MOST_QUESTIONS: usize = 32;

/// A question for a name. The first is 1, and each has the next number.
pub type QuestionNumber = u64;

/// A connection of a guest. The first is 1, and each has the next number.
pub type ConnectionNumber = u64;

/// Where a far guest accepts connections for its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarDoor {
    /// The port of its loopback where programs find the proxy.
    pub port: u16,
    /// Where programs that know of no proxy ask for names, in messages and over connections.
    pub names: SocketAddrV4,
    /// Where they connect to. The unspecified address is every one of its loopback.
    pub places: Vec<SocketAddrV4>,
    /// The most connections at once.
    pub connections: u32,
}

impl FarDoor {
    /// Where the proxy is.
    pub fn proxy(&self) -> SocketAddrV4 {
        SocketAddrV4::new(Ipv4Addr::LOCALHOST, self.port)
    }

    /// The lowest of its ports.
    pub fn lowest_port(&self) -> u16 {
        self.places.iter().map(SocketAddrV4::port).chain([self.names.port()]).min().unwrap_or(self.port).min(self.port)
    }

    /// Whether a connection can have come here that was made to `to`.
    pub fn leads(&self, to: To) -> bool {
        match to {
            To::Proxy | To::Names => true,
            To::Place(at) => self.places.iter().any(|place| {
                let is_it = place.ip().is_unspecified() || place.ip() == at.ip();
                is_it && at.ip().is_loopback() && place.port() == at.port()
            }),
        }
    }
}

/// What a connection was made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum To {
    /// The proxy.
    Proxy,
    /// Where names are asked for.
    Names,
    /// This address, which stands for something.
    Place(SocketAddrV4),
}

/// What the host wants of a connection. One that the guest has closed meanwhile is passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToConnection {
    /// For the program to read, at most [`PIECE`] of them.
    Bytes(#[serde(with = "ringfence_linux::bytes")] Vec<u8>),
    /// Nothing more is to be read.
    End,
    /// So much of what the program wrote was taken, and as much more may come.
    Taken(u32),
    /// Nobody is at the other end any more. The guest closes it when what it holds for the program is read, and says so.
    Close,
}

/// What became of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum OfConnection {
    /// A program connected.
    Opened(To),
    /// The program wrote, at most [`PIECE`] of them.
    Bytes(#[serde(with = "ringfence_linux::bytes")] Vec<u8>),
    /// The program writes no more.
    End,
    /// The program, or its socket, took so much, and as much more may come.
    Taken(u32),
    /// The last word: it is closed inside.
    Closed,
}

impl ToConnection {
    pub(crate) fn fits(&self) -> bool {
        !matches!(self, Self::Bytes(bytes) if bytes.len() > PIECE)
    }
}

impl OfConnection {
    pub(crate) fn fits(&self) -> bool {
        !matches!(self, Self::Bytes(bytes) if bytes.len() > PIECE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_a_place_that_somebody_can_have_connected_to() {
        let at = |text: &str| text.parse::<SocketAddrV4>().unwrap();
        let places = vec![at("0.0.0.0:80"), at("127.198.0.2:8080"), at("127.0.0.1:5432")];
        let door = FarDoor { port: 3128, names: at("127.0.0.1:53"), places, connections: 1 };
        for to in ["127.0.0.1:80", "127.198.7.7:80", "127.198.0.2:8080", "127.0.0.1:5432"] {
            assert!(door.leads(To::Place(at(to))), "{to}");
        }
        for to in ["10.0.0.1:80", "0.0.0.0:80", "127.0.0.1:81", "127.198.0.3:8080", "127.0.0.2:5432", "127.0.0.1:0"] {
            assert!(!door.leads(To::Place(at(to))), "{to}");
        }
        assert!(door.leads(To::Proxy) && door.leads(To::Names));
        assert_eq!(door.lowest_port(), 53);
    }
}
