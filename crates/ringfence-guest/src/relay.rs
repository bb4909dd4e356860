//! What host and far guest say of connections. A far guest cannot hand its socket out: it accepts what programs connect to at its door,
//! and the bytes go over the one stream that there is.
//!
//! Each direction of each connection has a window of its own, so no more is ever held for one than that; and there are only so many.

use serde::{Deserialize, Serialize};

use crate::far::PIECE;

/// Of each direction of one connection, so many bytes may be on their way that nobody has taken yet.
pub const CONNECTION_WINDOW: usize = 128 * 1024;
/// The most connections that are relayed at once. Further ones wait in the queue of the kernel inside.
pub const MOST_CONNECTIONS: u32 = 256;
/// What was taken is told when it is so much. Less than a window, so the other end never waits for what is not told.
pub const TOLD_FROM: usize = CONNECTION_WINDOW / 2;

/// A connection of a guest. The first is 1, and each has the next number.
pub type ConnectionNumber = u64;

/// Where a far guest accepts connections for its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FarDoor {
    /// The port of its loopback.
    pub port: u16,
    /// The most connections at once.
    pub connections: u32,
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
    Opened,
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
