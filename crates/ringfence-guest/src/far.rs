//! What host and a far guest say to each other. A far guest shares no socket with its host that descriptors could travel
//! over: everything goes through one stream of bytes each way, such as those that a container engine attaches.
//!
//! The frames are those of [`crate::protocol`], and after the first order each has a seal ([`crate::seal`]). What a near guest is handed as descriptors, a far one is sent as bytes: what
//! programs read and write, in pieces, of which only so many are on their way at once; and the workspace, as nodes.

use std::ffi::OsString;

use ringfence_linux::wall::{Contained, TerminalSize};
use serde::{Deserialize, Serialize};

use crate::protocol::{MOST_ORDER, MOST_WORDS, Message, Order, ProgramNumber, Report, shorten};
use crate::relay::{ConnectionNumber, FarDoor, LONGEST_QUESTION, OfConnection, QuestionNumber, ToConnection};
use crate::seal::FrameKey;

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

/// The most files that are asked for at once.
pub const MOST_FILES: usize = 4096;
/// The longest path, and the longest target of a link.
const MOST_PATH: usize = 4096;

/// What the host wants of a far guest.
#[derive(Debug, Serialize, Deserialize)]
pub enum FarOrder {
    /// The first order, and only the first.
    Begin {
        /// How.
        begin: Box<Begin>,
        /// What seals every frame from then on, both ways.
        key: FrameKey,
    },
    /// As to a near guest. What a near one would be handed as descriptors, this one makes and tells of in pieces.
    Order(Order),
    /// For a program to read.
    Input {
        /// Which program.
        program: ProgramNumber,
        /// At most [`PIECE`] of them.
        #[serde(with = "ringfence_linux::bytes")]
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
    /// A part of the workspace. After it was filled: places that are to become what they were, while no program runs.
    Make(Vec<Node>),
    /// That was all of it: what differs from now on is a program's doing. What was put back counts as such.
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
    /// About a connection that came through the door.
    Connection {
        /// Which one.
        connection: ConnectionNumber,
        /// What is wanted of it.
        what: ToConnection,
    },
    /// While no program runs: have the place proven once more. It was proven before it was known what for.
    Prove,
    /// Before the first order, at most once: connect to the socket there. From then on both speak over that.
    Meet {
        /// Its path inside.
        at: OsString,
    },
    /// The answer to a question.
    Answer {
        /// Which one.
        question: QuestionNumber,
        /// At most [`LONGEST_QUESTION`] of them; none when it gets no answer.
        #[serde(with = "ringfence_linux::bytes")]
        message: Vec<u8>,
    },
}

/// How long a host may be silent before its guest takes it for gone.
pub const SILENCE_SECONDS: u64 = 60;

/// How a far guest begins.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Begin {
    /// What restricts every program, and what is looked for before the first.
    pub contained: Contained,
    /// What becomes of the workspace.
    pub workspace: FarWorkspace,
    /// Where connections are accepted for the host; nowhere when there is no way out at all.
    pub door: Option<FarDoor>,
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
    /// `Ended` comes after everything that was in the program's streams when it ended, so nobody has to wait for more.
    Report(Report),
    /// A program wrote.
    Output {
        /// Which program.
        program: ProgramNumber,
        /// What it wrote to.
        stream: Stream,
        /// What.
        #[serde(with = "ringfence_linux::bytes")]
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
    /// What was counted of everything in the container, where it shows that: before a program starts, and when it ended.
    Counted {
        /// The most memory that everything had together.
        memory_peak: Option<u64>,
        /// Processes that were killed because the memory limit was reached.
        killed_for_memory: u64,
        /// Starts of a process or thread that were refused because of the limit.
        starts_refused: u64,
    },
    /// Which of the files that were asked for are there, in their order.
    Found(Vec<bool>),
    /// The workspace is as the host sent it, or could not be made so. One that something was to be put back in is kept all the same.
    Filled(Result<(), String>),
    /// A part of what differs.
    Differs(Vec<Node>),
    /// That was all that differs, or why it could not be found out.
    Collected(Result<(), String>),
    /// About a connection that came through the door.
    Connection {
        /// Which one.
        connection: ConnectionNumber,
        /// What became of it.
        what: OfConnection,
    },
    /// A program asked for a name. Every question is answered.
    Question {
        /// Its number.
        question: QuestionNumber,
        /// What was sent, at most [`LONGEST_QUESTION`] of it.
        #[serde(with = "ringfence_linux::bytes")]
        message: Vec<u8>,
    },
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
        #[serde(with = "ringfence_linux::bytes")]
        bytes: Vec<u8>,
    },
    /// The next bytes of the file that was sent last, which has the same path.
    More {
        /// At most [`PIECE`] of them.
        #[serde(with = "ringfence_linux::bytes")]
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

impl Message for FarOrder {
    const MOST: usize = MOST_ORDER;

    fn capped(self) -> Option<Self> {
        let fits = match &self {
            Self::Input { bytes, .. } => bytes.len() <= PIECE,
            Self::Find(files) => files.len() <= MOST_FILES,
            Self::Make(nodes) => fit(nodes),
            Self::Connection { what, .. } => what.fits(),
            Self::Meet { at } => at.len() <= MOST_PATH,
            Self::Answer { message, .. } => message.len() <= LONGEST_QUESTION,
            _ => true,
        };
        fits.then_some(self)
    }
}

impl Message for FarReport {
    const MOST: usize = MOST_FAR_REPORT;

    fn capped(self) -> Option<Self> {
        let cut = |result: Result<(), String>| result.map_err(|words| shorten(&words, MOST_WORDS));
        Some(match self {
            Self::Report(report) => Self::Report(report.capped()),
            Self::Filled(result) => Self::Filled(cut(result)),
            Self::Collected(result) => Self::Collected(cut(result)),
            Self::Output { bytes, .. } if bytes.len() > PIECE => return None,
            Self::Found(found) if found.len() > MOST_FILES => return None,
            Self::Differs(nodes) if !fit(&nodes) => return None,
            Self::Connection { what, .. } if !what.fits() => return None,
            Self::Question { message, .. } if message.len() > LONGEST_QUESTION => return None,
            other => other,
        })
    }
}

/// Whether nodes are as many, and each as large, as one message may hold.
fn fit(nodes: &[Node]) -> bool {
    let fits = |node: &Node| {
        let what = match &node.what {
            What::File { bytes, .. } | What::More { bytes } => bytes.len() <= PIECE,
            What::Link { target } => target.len() <= MOST_PATH,
            What::Name { of } => of.len() <= MOST_PATH,
            What::Folder { .. } | What::Hole { .. } | What::Other { .. } | What::Gone => true,
        };
        what && node.path.len() <= MOST_PATH
    };
    nodes.len() <= MOST_NODES && nodes.iter().all(fits)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV4};

    use proptest::prelude::*;
    use ringfence_linux::{Layer, Room, Usage};

    use super::*;
    use crate::protocol::{BadFrame, HEADER, Reader, VERSION, Why, encode};
    use crate::relay::To;

    const PLACE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(127, 198, 0, 2), 8080);

    fn reports() -> Vec<FarReport> {
        let file = What::File { mode: 0o644, modified: (-1, 2), bytes: vec![3; 100] };
        let node = |path: &str, what| Node { path: path.into(), what };
        vec![
            FarReport::Report(Report::Started { program: 7, terminal: true }),
            FarReport::Report(Report::Failed { program: 1, why: Why::Said("no".to_owned()) }),
            FarReport::Output { program: 1, stream: Stream::Error, bytes: vec![0; PIECE] },
            FarReport::OutputEnd { program: 1, stream: Stream::Output },
            FarReport::InputTaken { program: 1, bytes: u32::MAX },
            FarReport::InputClosed { program: 1 },
            FarReport::Found(vec![true, false]),
            FarReport::Filled(Err("full".to_owned())),
            FarReport::Differs(vec![
                node("a", What::Folder { mode: 0o755 }),
                node("a/b", file),
                node("a/b", What::More { bytes: vec![1] }),
                node("a/b", What::Hole { bytes: u64::MAX }),
                node("c", What::Link { target: "..".into() }),
                node("d", What::Name { of: "a/b".into() }),
                node("e", What::Gone),
            ]),
            FarReport::Collected(Ok(())),
            FarReport::Connection { connection: 1, what: OfConnection::Opened(To::Proxy) },
            FarReport::Connection { connection: 2, what: OfConnection::Opened(To::Names) },
            FarReport::Connection { connection: 3, what: OfConnection::Opened(To::Place(PLACE)) },
            FarReport::Question { question: 1, message: vec![6; LONGEST_QUESTION] },
            FarReport::Connection { connection: u64::MAX, what: OfConnection::Bytes(vec![5; PIECE]) },
            FarReport::Connection { connection: 1, what: OfConnection::End },
            FarReport::Connection { connection: 1, what: OfConnection::Taken(u32::MAX) },
            FarReport::Connection { connection: 1, what: OfConnection::Closed },
            FarReport::Report(Report::Gone { usage: Usage::default(), layer: Layer::Changed, room: Room::Left }),
        ]
    }

    fn read(bytes: &[u8], size: usize) -> Result<Vec<FarReport>, BadFrame> {
        let mut reader = Reader::<FarReport>::default();
        let mut seen = Vec::new();
        for piece in bytes.chunks(size) {
            reader.push(piece);
            while let Some(report) = reader.next_message()? {
                seen.push(report);
            }
        }
        Ok(seen)
    }

    #[test]
    fn far_reports_survive_the_wire_however_it_cuts_them() {
        let all: Vec<u8> = reports().iter().flat_map(|report| encode(report, MOST_FAR_REPORT).unwrap()).collect();
        for size in [1, 3, 8, 1000, 1_000_000] {
            assert_eq!(read(&all, size), Ok(reports()), "in pieces of {size}");
        }
    }

    #[test]
    fn far_reports_that_hold_too_much_are_refused() {
        let node = |path: String| Node { path: path.into(), what: What::Gone };
        let found = |count| FarReport::Found(vec![true; count]);
        let differs = |count| FarReport::Differs(vec![node("a".to_owned()); count]);
        let long = |length| FarReport::Differs(vec![node("a".repeat(length))]);
        let up = |length| FarReport::Connection { connection: 1, what: OfConnection::Bytes(vec![0; length]) };
        let question = |length| FarReport::Question { question: 1, message: vec![0; length] };
        let output = |length| FarReport::Output { program: 1, stream: Stream::Output, bytes: vec![0; length] };
        for (fits, too_much) in [
            (found(MOST_FILES), found(MOST_FILES + 1)),
            (differs(MOST_NODES), differs(MOST_NODES + 1)),
            (long(MOST_PATH), long(MOST_PATH + 1)),
            (output(PIECE), output(PIECE + 1)),
            (up(PIECE), up(PIECE + 1)),
            (question(LONGEST_QUESTION), question(LONGEST_QUESTION + 1)),
        ] {
            let frame = encode(&fits, MOST_FAR_REPORT).unwrap();
            assert_eq!(read(&frame, frame.len()), Ok(vec![fits]));
            let frame = encode(&too_much, MOST_FAR_REPORT).unwrap();
            assert_eq!(read(&frame, frame.len()), Err(BadFrame::TooMuch));
        }
        let words = FarReport::Collected(Err("n".repeat(MOST_WORDS + 1)));
        let frame = encode(&words, MOST_FAR_REPORT).unwrap();
        assert_eq!(read(&frame, 100), Ok(vec![FarReport::Collected(Err("n".repeat(MOST_WORDS)))]));
    }

    proptest! {
        #[test]
        fn any_bytes_of_a_far_guest_are_read_without_a_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..256),
            right in any::<bool>(),
        ) {
            let mut frame = Vec::new();
            if right {
                frame.extend([b'R', b'F', b'G', VERSION]);
                frame.extend(u32::try_from(bytes.len()).unwrap().to_le_bytes());
            }
            frame.extend(bytes);
            if let Ok(reports) = read(&frame, frame.len().max(1)) {
                for report in reports {
                    prop_assert!(encode(&report, MOST_FAR_REPORT).unwrap().len() <= HEADER + MOST_FAR_REPORT);
                }
            }
        }
    }
}
