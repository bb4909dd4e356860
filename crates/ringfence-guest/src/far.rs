//! What host and a far guest say to each other. A far guest shares no socket with its host that descriptors could travel
//! over: everything goes through one stream of bytes each way, such as those that a container engine attaches.
//!
//! The frames are those of [`crate::protocol`]. What a near guest is handed as descriptors, a far one is sent as bytes: what
//! programs read and write, in pieces, of which only so many are on their way at once; and the workspace, as nodes.

use std::ffi::OsString;

use ringfence_linux::wall::{Contained, TerminalSize};
use serde::{Deserialize, Serialize};

use crate::protocol::{Order, ProgramNumber, Report};

/// The first argument of our binary that makes it live as a far guest.
pub const ARGUMENT: &str = "guest-of-a-container";
/// Of one program's stream, so many bytes may be on their way that nobody has taken yet.
pub const WINDOW: usize = 256 * 1024;
/// The most bytes of a stream, or of a file, in one message.
pub const PIECE: usize = 32 * 1024;
/// The longest report of a far guest.
pub const MOST_FAR_REPORT: usize = 128 * 1024;
/// The most nodes in one message.
pub const MOST_NODES: usize = 512;

/// What the host wants of a far guest.
#[derive(Debug, Serialize, Deserialize)]
pub enum FarOrder {
    /// The first order, and only the first.
    Begin(Box<Begin>),
    /// As to a near guest. What a near one would be handed as descriptors, this one makes and tells of in pieces.
    Order(Order),
    /// For a program to read.
    Input {
        /// Which program.
        program: ProgramNumber,
        /// At most [`PIECE`] of them.
        bytes: Vec<u8>,
    },
    /// Nothing more is to be read.
    InputEnd {
        /// Which program.
        program: ProgramNumber,
    },
    /// So much of what a program wrote was taken, and as much more may come.
    Taken {
        /// Which program.
        program: ProgramNumber,
        /// What it wrote to.
        stream: Stream,
        /// How much.
        bytes: u32,
    },
    /// A program's terminal has another size.
    Resize {
        /// Which program.
        program: ProgramNumber,
        /// The new size.
        size: TerminalSize,
    },
    /// Say which of these files are there.
    Find(Vec<OsString>),
    /// A part of the workspace.
    Make(Vec<Node>),
    /// That was all of it: what differs from now on is a program's doing.
    Made,
    /// Say what differs now.
    Collect,
    /// The host is still there. A guest that hears nothing for [`SILENCE_SECONDS`] ends.
    StillHere,
    /// Nobody reads any more what a program writes there: the guest closes its end, as a reader of a pipe or a terminal would.
    OutputClosed {
        /// Which program.
        program: ProgramNumber,
        /// What it writes to.
        stream: Stream,
    },
}

/// How long a host may be silent before its guest takes it for gone.
pub const SILENCE_SECONDS: u64 = 60;

/// How a far guest begins.
#[derive(Debug, Serialize, Deserialize)]
pub struct Begin {
    /// What restricts every program, and what is looked for before the first.
    pub contained: Contained,
    /// What becomes of the workspace.
    pub workspace: FarWorkspace,
}

/// What a far guest does with the workspace, which is at [`Contained::workspace`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FarWorkspace {
    /// Nothing: it is what the engine shows there.
    AsItIs,
    /// It is filled with what the host sends, and what a program changes of it is told at the end.
    Kept,
    /// It is filled, and what is changed of it is nobody's business.
    Forgotten,
}

/// What a program writes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output, or its terminal.
    Output,
    /// Standard error.
    Error,
}

/// What a far guest tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FarReport {
    /// As a near guest would. `Started` says whether there is a terminal, `Gone` whether what differs was told before.
    Report(Report),
    /// A program wrote.
    Output {
        /// Which program.
        program: ProgramNumber,
        /// What it wrote to.
        stream: Stream,
        /// What.
        bytes: Vec<u8>,
    },
    /// Nothing more is to come of a stream.
    OutputEnd {
        /// Which program.
        program: ProgramNumber,
        /// What it wrote to.
        stream: Stream,
    },
    /// A program, or the pipe to it, took so much of its input, and as much more may come.
    InputTaken {
        /// Which program.
        program: ProgramNumber,
        /// How much.
        bytes: u32,
    },
    /// A program does not read any more.
    InputClosed {
        /// Which program.
        program: ProgramNumber,
    },
    /// Which of the files that were asked for are there, in their order.
    Found(Vec<bool>),
    /// The workspace is as the host sent it, or could not be made so.
    Filled(Result<(), String>),
    /// A part of what differs.
    Differs(Vec<Node>),
    /// That was all that differs, or why it could not be found out.
    Collected(Result<(), String>),
}

/// A file, folder or link of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Relative to the workspace and never empty, of plain names only. Folders come before what is in them.
    pub path: OsString,
    /// What is there.
    pub what: What,
}

/// What is at a place of the workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum What {
    /// A folder, and its permissions.
    Folder {
        /// Of its permissions, the last twelve bits.
        mode: u32,
    },
    /// A file and the first of its bytes.
    File {
        /// Likewise.
        mode: u32,
        /// When it was written, in seconds and nanoseconds.
        modified: (i64, u32),
        /// At most [`PIECE`] of them.
        bytes: Vec<u8>,
    },
    /// The next bytes of the file that was sent last, which has the same path.
    More {
        /// At most [`PIECE`] of them.
        bytes: Vec<u8>,
    },
    /// Bytes of the same file that are all zero.
    Hole {
        /// How many.
        bytes: u64,
    },
    /// A symbolic link.
    Link {
        /// Where it points.
        target: OsString,
    },
    /// Another name of a file that was sent before, or that the other end has already.
    Name {
        /// A name that it has.
        of: OsString,
    },
    /// Something that programs talk through. It is told of, and made as something that nobody can use.
    Other {
        /// What.
        kind: OtherKind,
    },
    /// Nothing any more, and nothing in it.
    Gone,
}

/// What is neither file, link nor folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum OtherKind {
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A device.
    Device,
}
