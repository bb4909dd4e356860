//! What host and guest say to each other: orders in, reports out, each in one frame.
//!
//! A frame is three letters, the version, the length of what follows as four bytes, and that many bytes of `postcard`. A
//! descriptor may travel with a frame: the three of a program with its start, the screen's end of a terminal with the
//! report that it started, the private layer of the workspace, or the workspace with it, with the reports that tell of it.

use std::ffi::OsString;
use std::fmt;
use std::marker::PhantomData;

use ringfence_linux::wall::{Failed, Program, Proof, TerminalSize};
use ringfence_linux::{Layer, Room, Stage, Usage};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::seal::{Seal, TAG};

/// Of the protocol. Both ends come from the same build, so another number means that something is wrong.
pub const VERSION: u8 = 1;
/// The longest order: a program's code and files travel in one.
pub const MOST_ORDER: usize = 128 * 1024 * 1024;
/// The longest report.
pub const MOST_REPORT: usize = 64 * 1024;
/// Of proofs in one report, and of the letters in each.
const MOST_PROOFS: usize = 64;
const MOST_PROOF: usize = 512;
/// Of a failure in words.
pub(crate) const MOST_WORDS: usize = 4096;

const LETTERS: [u8; 3] = *b"RFG";
/// Letters, version and length.
pub const HEADER: usize = 8;

/// The longest code that a program can be given which waits for it: what a pipe has room for.
pub const MOST_AWAITED: usize = 64 * 1024;

/// A program's number, which the host chose.
pub type ProgramNumber = u32;

/// The number of the only program of a wall that is there for one.
pub const ONLY: ProgramNumber = 0;

/// What the host wants of the guest.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Execute the only program, which was held.
    Release,
    /// Start a program. Its three descriptors come with the frame, unless it has a terminal.
    Start(Box<Start>),
    /// Send a signal to a program's group.
    Signal {
        /// Which program.
        program: ProgramNumber,
        /// The signal's number.
        signal: u8,
    },
    /// Ask a program's group to end; what is left of its session when it has ended is killed.
    Stop {
        /// Which program.
        program: ProgramNumber,
    },
    /// Kill a program and all of its session.
    Kill {
        /// Which program.
        program: ProgramNumber,
    },
    /// Kill every program and all that programs left behind, and go on.
    KillAll,
    /// Say what is in use.
    Measure,
    /// Hand out the private layer that is kept, as it is now.
    Layer,
    /// Hand out the folder with that layer, as programs see it.
    Workspace,
    /// Kill everything and end.
    End,
    /// Give the only program its code, for which it waits. That it started is told before it can read any of it.
    Code(#[serde(with = "ringfence_linux::bytes")] Vec<u8>),
}

/// A program to start.
#[derive(Debug, Serialize, Deserialize)]
pub struct Start {
    /// Its number from now on.
    pub number: ProgramNumber,
    /// What to execute.
    pub program: Program,
    /// The folder for `files`, which is made for them.
    pub folder: OsString,
    /// What to put in place before.
    pub files: Vec<InputFile>,
    /// The size of its terminal, when it has one.
    pub terminal: Option<TerminalSize>,
}

/// A file that comes with a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Relative, without `..`.
    pub path: OsString,
    /// What it holds.
    #[serde(with = "ringfence_linux::bytes")]
    pub content: Vec<u8>,
}

/// Why a program was not started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// A step, and the system's error number.
    Step(Stage, i32),
    /// In words.
    Said(String),
}

impl From<Failed> for Why {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Step(stage, errno) => Self::Step(stage, errno),
            Failed::Said(text) => Self::Said(text),
        }
    }
}

/// What the guest tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The wall stands, and this was seen by a process restricted as every program will be. With only one program, that
    /// process is the program's, held before its first instruction.
    Proven(Vec<Proof>),
    /// A program's first instruction is about to run.
    Started {
        /// Which program.
        program: ProgramNumber,
        /// Whether the screen's end of its terminal comes with this frame.
        terminal: bool,
    },
    /// A program, or the whole wall, could not be started; nothing of it ran.
    Failed {
        /// Which program.
        program: ProgramNumber,
        /// Why.
        why: Why,
    },
    /// A program itself ended.
    Ended {
        /// Which program.
        program: ProgramNumber,
        /// The status as `wait4` gave it.
        wait_status: i32,
        /// What the program used.
        usage: Usage,
        /// Processes that are left.
        left: u32,
    },
    /// What is in use.
    Measured {
        /// Processes and threads.
        tasks: u64,
        /// Resident memory of all of them.
        resident_bytes: u64,
    },
    /// A socket in the wall's network at which the host is to listen, which comes with this frame. Before the proofs.
    Door,
    /// The private layer that is kept, which goes on to change.
    Layer {
        /// Whether there is one, which then comes with this frame.
        comes: bool,
    },
    /// The folder with that layer, as programs see it.
    Workspace {
        /// Whether there is one, which then comes with this frame.
        comes: bool,
    },
    /// Nothing is left, and the guest ends. A private layer that holds changes and is kept comes with this frame.
    Gone {
        /// What everything used.
        usage: Usage,
        /// Whether a private layer holds changes.
        layer: Layer,
        /// Whether more could have been written.
        room: Room,
    },
}

impl Report {
    /// The same, with every text cut to its cap.
    #[must_use]
    pub fn capped(self) -> Self {
        match self {
            Self::Proven(proofs) => {
                let cut = |proof: Proof| Proof {
                    name: shorten(&proof.name, MOST_PROOF),
                    found: shorten(&proof.found, MOST_PROOF),
                };
                Self::Proven(proofs.into_iter().take(MOST_PROOFS).map(cut).collect())
            }
            Self::Failed { program, why: Why::Said(text) } => {
                Self::Failed { program, why: Why::Said(shorten(&text, MOST_WORDS)) }
            }
            other => other,
        }
    }
}

pub(crate) fn shorten(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

/// A message that is none of ours. Whoever sent it is not to be trusted with another.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadFrame {
    /// Not the letters that a frame begins with.
    #[error("a frame begins with other letters")]
    Letters,
    /// Another version.
    #[error("a frame of version {0}; this is version {VERSION}")]
    Version(u8),
    /// Over the cap.
    #[error("a frame of {length} bytes; the most is {most}")]
    TooLong {
        /// Its length.
        length: usize,
        /// The cap.
        most: usize,
    },
    /// It holds more of something than it may.
    #[error("a frame that holds too much")]
    TooMuch,
    /// Its seal is not that of the next frame: somebody else made it, or it comes again, or one is missing.
    #[error("a frame that is not sealed as the next one has to be")]
    Seal,
    /// Its bytes mean nothing.
    #[error("a frame that means nothing")]
    Meaningless,
}

/// The length of what follows a header.
pub fn body_length(header: [u8; HEADER], most: usize) -> Result<usize, BadFrame> {
    let [a, b, c, version, length @ ..] = header;
    if [a, b, c] != LETTERS {
        return Err(BadFrame::Letters);
    }
    if version != VERSION {
        return Err(BadFrame::Version(version));
    }
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    if length > most { Err(BadFrame::TooLong { length, most }) } else { Ok(length) }
}

/// The whole frame of a message.
pub fn encode<T: Serialize>(message: &T, most: usize) -> Result<Vec<u8>, BadFrame> {
    let mut frame = vec![0; HEADER];
    frame = postcard::to_extend(message, frame).map_err(|_| BadFrame::Meaningless)?;
    let length = frame.len() - HEADER;
    let too_long = BadFrame::TooLong { length, most };
    let word = u32::try_from(length).ok().filter(|_| length <= most).ok_or(too_long)?;
    frame[..HEADER].copy_from_slice(&header(word));
    Ok(frame)
}

/// What a body of this length follows.
pub(crate) fn header(length: u32) -> [u8; HEADER] {
    let [a, b, c] = LETTERS;
    let [w, x, y, z] = length.to_le_bytes();
    [a, b, c, VERSION, w, x, y, z]
}

/// The message in a frame's body: all of it, and nothing beside it.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, BadFrame> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok(_) | Err(_) => Err(BadFrame::Meaningless),
    }
}

/// What a [`Reader`] can put together.
pub trait Message: DeserializeOwned {
    /// The longest.
    const MOST: usize;

    /// The same with every text cut to its cap, or nothing when it holds more of something than it may.
    fn capped(self) -> Option<Self>;
}

impl Message for Report {
    const MOST: usize = MOST_REPORT;

    fn capped(self) -> Option<Self> {
        Some(Self::capped(self))
    }
}

/// Room that is given back when nothing is in it: most messages are small, and few are large.
const ROOMY: usize = 256 * 1024;

/// Puts messages together from bytes as they come. It holds at most one frame and what came with it.
pub struct Reader<M = Report> {
    bytes: Vec<u8>,
    seal: Option<Seal>,
    messages: PhantomData<fn() -> M>,
}

impl<M> Default for Reader<M> {
    fn default() -> Self {
        Self { bytes: Vec::new(), seal: None, messages: PhantomData }
    }
}

/// What was not read yet is not printed: a key may be in it.
impl<M> fmt::Debug for Reader<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Reader").field("seal", &self.seal).finish_non_exhaustive()
    }
}

impl<M: Message> Reader<M> {
    /// Takes in what came.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Every message from now on has to be sealed, those included that came already and were not asked for.
    pub fn seal(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// The next message that is whole. After an error nothing more can be told apart.
    pub fn next_message(&mut self) -> Result<Option<M>, BadFrame> {
        let Some(header) = self.bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let most = M::MOST + if self.seal.is_some() { TAG } else { 0 };
        let end = HEADER + body_length(*header, most)?;
        let Some(mut body) = self.bytes.get(HEADER..end) else { return Ok(None) };
        if let Some(seal) = &mut self.seal {
            body = seal.open(body)?;
        }
        let message: M = decode(body)?;
        self.bytes.drain(..end);
        if self.bytes.is_empty() && self.bytes.capacity() > ROOMY {
            self.bytes = Vec::new();
        }
        message.capped().map(Some).ok_or(BadFrame::TooMuch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reports() -> Vec<Report> {
        let usage = Usage { user_us: 1, system_us: u64::MAX, max_resident_bytes: 3, read_bytes: 4, written_bytes: 5 };
        vec![
            Report::Proven(vec![Proof { name: "net.none".to_owned(), found: "lo".to_owned() }]),
            Report::Started { program: 7, terminal: false },
            Report::Failed { program: 1, why: Why::Step(Stage::Exec, 2) },
            Report::Failed { program: 1, why: Why::Said("no".to_owned()) },
            Report::Ended { program: 3, wait_status: -1, usage, left: 9 },
            Report::Measured { tasks: 1, resident_bytes: 2 },
            Report::Door,
            Report::Layer { comes: true },
            Report::Workspace { comes: false },
            Report::Gone { usage, layer: Layer::Changed, room: Room::Full },
        ]
    }

    #[test]
    fn reports_survive_the_wire_however_it_cuts_them() {
        let all: Vec<u8> = reports().iter().flat_map(|report| encode(report, MOST_REPORT).unwrap()).collect();
        for size in [1, 3, 8, 1000] {
            let mut reader = Reader::<Report>::default();
            let mut seen = Vec::new();
            for piece in all.chunks(size) {
                reader.push(piece);
                while let Some(report) = reader.next_message().unwrap() {
                    seen.push(report);
                }
            }
            assert_eq!(seen, reports(), "in pieces of {size}");
        }
    }

    #[test]
    fn a_frame_with_other_letters_version_length_or_rest_is_refused() {
        let good = encode(&Report::Started { program: 7, terminal: false }, MOST_REPORT).unwrap();
        let read = |frame: &[u8]| {
            let mut reader = Reader::<Report>::default();
            reader.push(frame);
            reader.next_message()
        };
        assert_eq!(read(&good), Ok(Some(Report::Started { program: 7, terminal: false })));
        let changed = |at: usize, to: u8| {
            let mut frame = good.clone();
            frame[at] = to;
            read(&frame)
        };
        assert_eq!(changed(0, b'X'), Err(BadFrame::Letters));
        assert_eq!(changed(3, 2), Err(BadFrame::Version(2)));
        assert!(matches!(changed(7, 1), Err(BadFrame::TooLong { .. })));
        assert_eq!(changed(8, 200), Err(BadFrame::Meaningless));
        let mut longer = good.clone();
        longer[4] += 1;
        longer.push(0);
        assert_eq!(read(&longer), Err(BadFrame::Meaningless), "bytes after the message");
    }

    #[test]
    fn texts_of_a_guest_are_cut() {
        let proofs = vec![Proof { name: "n".repeat(600), found: "f".repeat(600) }; 30];
        let frame = encode(&Report::Proven(proofs), MOST_REPORT).unwrap();
        let mut reader = Reader::<Report>::default();
        reader.push(&frame);
        let Some(Report::Proven(read)) = reader.next_message().unwrap() else { panic!("no proofs") };
        assert!(read.iter().all(|proof| proof.name.len() == MOST_PROOF && proof.found.len() == MOST_PROOF));
        let endless = Report::Proven(vec![Proof { name: "n".repeat(60_000), found: "f".repeat(60_000) }]);
        assert!(encode(&endless, MOST_REPORT).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256), right in any::<bool>()) {
            let mut reader = Reader::<Report>::default();
            if right {
                reader.push(&[b'R', b'F', b'G', VERSION]);
            }
            reader.push(&bytes);
            while let Ok(Some(_)) = reader.next_message() {}
        }
    }
}
