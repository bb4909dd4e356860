//! What is said between a command and the process that keeps a session, both of the same user and the same program.

use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use ringfence::checkpoint::{CheckpointName, LeftBehind, Point};
use ringfence::{Language, Work};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// Code and arguments travel in a call.
const MOST_CALL: usize = 64 * 1024 * 1024;
/// An outcome holds all output that is kept.
const MOST_ANSWER: usize = 1024 * 1024 * 1024;
/// What a command says while its run goes on.
pub(super) const MOST_WORD: usize = 64;
/// A kind, and the length of what follows.
pub(super) const HEADER: usize = 5;

/// What a command wants.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Call {
    /// Run something. A descriptor may come with the call: its standard input, or a socket for questions.
    Exec(Box<Exec>),
    /// The outcome of a run in the background.
    Wait { run: String },
    /// A signal for a run.
    Signal { run: String, signal: i32 },
    /// How it goes.
    Look,
    /// End the session.
    Stop,
    /// Something about its checkpoints.
    Checkpoint(CheckpointCall),
}

/// What a command wants of checkpoints. Each has an answer of its own type, or a failure.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum CheckpointCall {
    /// Make one: a `Checkpoint`.
    Create { name: Option<CheckpointName> },
    /// All of them: a list of `Checkpoint`.
    List,
    /// What differs: `Compared`.
    Compare { from: Option<Point>, to: Point },
    /// Go back: `Restored`.
    Restore { to: Point, behind: LeftBehind },
    /// Forget some, or all: how many.
    Drop { which: Option<Vec<Point>> },
}

/// Something to run, as flags said it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Exec {
    pub(super) work: WireWork,
    pub(super) cwd: OsString,
    pub(super) env: Vec<(String, String)>,
    pub(super) pass_env: Vec<String>,
    pub(super) timeout: Option<String>,
    pub(super) output: Option<u64>,
    /// Rows and columns.
    pub(super) terminal: Option<(u16, u16)>,
    pub(super) background: bool,
    pub(super) asked: AskedAt,
}

/// Who is asked what the policy wants asked about a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AskedAt {
    /// Nobody is there.
    Nobody,
    /// Somebody is, and could not tell a question from what the program writes.
    NotHeldBack,
    /// The person at the command's terminal. The descriptor that comes with the call is a socket for questions, not the run's standard input.
    Terminal,
}

/// [`Work`] in a form that travels.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum WireWork {
    Argv(Vec<OsString>),
    Shell(String),
    Code { language: String, source: Vec<u8>, name: Option<String>, interpreter: Option<String> },
}

impl WireWork {
    pub(super) fn new(work: Work) -> Option<Self> {
        match work {
            Work::Argv(argv) => Some(Self::Argv(argv)),
            Work::Shell(line) => Some(Self::Shell(line)),
            Work::Code { language, source, name, interpreter } => {
                let interpreter = interpreter.map(|named| named.program().to_owned());
                Some(Self::Code { language: language.to_string(), source, name, interpreter })
            }
            Work::Place => None,
        }
    }

    pub(super) fn into_work(self) -> Option<Work> {
        Some(match self {
            Self::Argv(argv) => Work::Argv(argv),
            Self::Shell(line) => Work::Shell(line),
            Self::Code { language, source, name, interpreter } => {
                let language = language.parse::<Language>().ok()?;
                let interpreter = interpreter.map(|program| language.interpreter(&program)).transpose().ok()?;
                Work::Code { language, source, name, interpreter }
            }
        })
    }
}

impl Exec {
    pub(super) fn cwd(&self) -> PathBuf {
        PathBuf::from(&self.cwd)
    }
}

/// How a session goes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Look {
    pub(super) running: usize,
    pub(super) tasks: u64,
    pub(super) memory_bytes: u64,
}

/// What an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// A run began; its id and its backend.
    Started = b'a',
    /// It wrote to standard output.
    Stdout = b'o',
    /// It wrote to standard error.
    Stderr = b'e',
    /// Output was left out: the stream's letter, then the number of bytes.
    Omitted = b'm',
    /// A limit was reached or a rule broken.
    Violation = b'v',
    /// The run's id, and what its way out tells.
    Traffic = b't',
    /// The run is over; its outcome.
    Ended = b'x',
    /// An answer to anything else.
    Answer = b'r',
    /// There is no such run.
    NoSuchRun = b'n',
    // What a command says while its run goes on.
    /// End it.
    Cancel = b'C',
    /// Rows and columns of its terminal.
    Resize = b'W',
    // On the socket for questions.
    /// One for the person at the terminal.
    Question = b'q',
    /// Its number; nobody waits for the answer any more.
    Withdrawn = b'w',
    /// A question's number, and the answer's letter.
    Reply = b'R',
}

impl Kind {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Started,
            Self::Stdout,
            Self::Stderr,
            Self::Omitted,
            Self::Violation,
            Self::Traffic,
            Self::Ended,
            Self::Answer,
            Self::NoSuchRun,
            Self::Cancel,
            Self::Resize,
            Self::Question,
            Self::Withdrawn,
            Self::Reply,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// The bytes of one message.
pub(super) fn message(kind: Kind, body: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(body.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.push(kind as u8);
    bytes.extend(length.to_le_bytes());
    bytes.extend(body);
    Ok(bytes)
}

/// What a header announces.
pub(super) fn announced(header: [u8; HEADER], most: usize) -> io::Result<(Kind, usize)> {
    let [kind, length @ ..] = header;
    let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
    match Kind::from_byte(kind) {
        Some(kind) if length <= most => Ok((kind, length)),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "a message that means nothing")),
    }
}

/// Reads one answer, and waits for it. Nothing when the session's keeper is gone.
pub(super) fn read_answer(from: &mut impl Read) -> io::Result<Option<(Kind, Vec<u8>)>> {
    let mut header = [0u8; HEADER];
    match from.read_exact(&mut header) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let (kind, length) = announced(header, MOST_ANSWER)?;
    let mut body = Vec::new();
    from.take(length as u64).read_to_end(&mut body)?;
    if body.len() < length { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(Some((kind, body))) }
}

/// Makes a call; `given` goes with it.
pub(super) fn call(stream: &mut UnixStream, call: &Call, given: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let body = postcard::to_stdvec(call).map_err(io::Error::other)?;
    let length =
        u32::try_from(body.len()).ok().filter(|_| body.len() <= MOST_CALL).ok_or(io::ErrorKind::InvalidInput)?;
    let given: Vec<BorrowedFd<'_>> = given.into_iter().collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !given.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(&given)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let header = length.to_le_bytes();
    let sent = sendmsg(stream.as_fd(), &[IoSlice::new(&header)], &mut ancillary, SendFlags::NOSIGNAL)?;
    stream.write_all(header.get(sent..).unwrap_or_default())?;
    stream.write_all(&body)
}

/// Reads a call in the event loop.
pub(super) async fn read_call(stream: &tokio::net::UnixStream) -> io::Result<(Call, Option<OwnedFd>)> {
    let mut header = [0u8; 4];
    let mut input = Vec::new();
    fill(stream, &mut header, &mut input).await?;
    let length = usize::try_from(u32::from_le_bytes(header)).unwrap_or(usize::MAX);
    if length > MOST_CALL {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0u8; length];
    fill(stream, &mut body, &mut input).await?;
    let call = postcard::from_bytes(&body).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
    Ok((call, input.pop()))
}

async fn fill(stream: &tokio::net::UnixStream, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut filled = 0;
    while filled < bytes.len() {
        stream.readable().await?;
        let received = stream.try_io(tokio::io::Interest::READABLE, || {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let rest = bytes.get_mut(filled..).unwrap_or_default();
            let received = recvmsg(stream, &mut [IoSliceMut::new(rest)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    descriptors.extend(rights);
                }
            }
            Ok(received.bytes)
        });
        match received {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(received) => filled += received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_known_by_its_byte_and_nothing_else_is() {
        let known: Vec<u8> = (0..=u8::MAX).filter(|byte| Kind::from_byte(*byte).is_some()).collect();
        assert_eq!(known, b"CRWaemnoqrtvwx");
        let bytes = message(Kind::Stdout, b"hello").unwrap();
        assert_eq!(read_answer(&mut bytes.as_slice()).unwrap(), Some((Kind::Stdout, b"hello".to_vec())));
        assert!(read_answer(&mut &bytes[..7]).is_err());
        assert_eq!(read_answer(&mut [].as_slice()).unwrap(), None);
        assert!(announced([b'o', 255, 255, 255, 255], MOST_WORD).is_err());
    }
}
