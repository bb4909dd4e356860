//! A program's streams over a far link: between frames and the program's ends of its pipes, with only so much on its way.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ringfence_guest::far::{FarOrder, PIECE, Stream, WINDOW};
use ringfence_guest::protocol::ProgramNumber;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;

use super::OutOfTurn;
use super::wire::Voice;
use crate::backend::pipes::{reader, writer};

/// What a program wrote and nobody has taken yet. It holds at most [`WINDOW`].
#[derive(Debug)]
pub(super) struct Outlet {
    state: Mutex<OutletState>,
    changed: Notify,
}

#[derive(Debug)]
struct OutletState {
    waiting: Vec<u8>,
    /// What came and was not taken, the part that is being written included.
    untaken: usize,
    /// Nothing more comes.
    ended: bool,
    /// Nobody wants more.
    closed: bool,
    /// All that came is where it belongs.
    is_flushed: bool,
    came: Instant,
}

impl Outlet {
    pub(super) fn new() -> Arc<Self> {
        let state = OutletState {
            waiting: Vec::new(),
            untaken: 0,
            ended: false,
            closed: false,
            is_flushed: false,
            came: Instant::now(),
        };
        Arc::new(Self { state: Mutex::new(state), changed: Notify::new() })
    }

    fn state(&self) -> MutexGuard<'_, OutletState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what came, when so much may.
    pub(super) fn push(&self, bytes: &[u8]) -> Result<(), OutOfTurn> {
        let mut state = self.state();
        let untaken = state.untaken + bytes.len();
        // Nothing at all would be a frame that costs its sender nothing.
        if state.ended || bytes.is_empty() || bytes.len() > PIECE || untaken > WINDOW {
            return Err(OutOfTurn);
        }
        state.untaken = untaken;
        state.came = Instant::now();
        if !state.closed {
            state.waiting.extend_from_slice(bytes);
        }
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// The guest says that nothing more comes.
    pub(super) fn end(&self) -> Result<(), OutOfTurn> {
        let again = std::mem::replace(&mut self.state().ended, true);
        self.changed.notify_one();
        if again { Err(OutOfTurn) } else { Ok(()) }
    }

    /// Nothing more comes, whether the guest said so or not.
    pub(super) fn cut(&self) {
        self.state().ended = true;
        self.changed.notify_one();
    }

    /// Nobody wants more; says whether the guest has to be told.
    pub(super) fn close(&self) -> bool {
        let mut state = self.state();
        state.waiting = Vec::new();
        let tell = !state.closed && !state.ended;
        state.closed = true;
        drop(state);
        self.changed.notify_one();
        tell
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state().ended
    }

    /// Whether all that came is where it belongs, and nothing more comes.
    pub(super) fn is_flushed(&self) -> bool {
        let state = self.state();
        state.is_flushed || state.closed
    }

    /// Whether something came that is still here.
    pub(super) fn holds_something(&self) -> bool {
        let state = self.state();
        !state.closed && state.untaken > 0
    }

    /// When something came last.
    pub(super) fn came(&self) -> Instant {
        self.state().came
    }

    /// What waits, all of it; nothing when no more is to come.
    async fn next(&self) -> Option<Vec<u8>> {
        loop {
            {
                let mut state = self.state();
                if state.closed {
                    return None;
                }
                if !state.waiting.is_empty() {
                    return Some(std::mem::take(&mut state.waiting));
                }
                if state.ended {
                    return None;
                }
            }
            self.changed.notified().await;
        }
    }

    fn taken(&self, bytes: usize) {
        let mut state = self.state();
        state.untaken = state.untaken.saturating_sub(bytes);
    }

    /// Writes what comes to `end` until no more does, and lets the guest send as much again. Whoever reads the other end
    /// slowly holds up nobody but this program.
    pub(super) async fn pour(
        self: Arc<Self>,
        end: OwnedFd,
        (program, stream): (ProgramNumber, Stream),
        voice: Voice,
        moved: Arc<Notify>,
    ) {
        if self.pour_all(end, (program, stream), &voice, &moved).await.is_err() && self.close() {
            voice.say(&FarOrder::OutputClosed { program, stream }).await;
        }
        self.state().is_flushed = true;
        moved.notify_waiters();
    }

    async fn pour_all(
        &self,
        end: OwnedFd,
        (program, stream): (ProgramNumber, Stream),
        voice: &Voice,
        moved: &Notify,
    ) -> io::Result<()> {
        let mut pipe = writer(end)?;
        while let Some(piece) = self.next().await {
            let mut rest = piece.as_slice();
            while !rest.is_empty() {
                let written = pipe.write(rest).await?;
                rest = rest.get(written..).unwrap_or_default();
                self.taken(written);
                let bytes = u32::try_from(written).unwrap_or(u32::MAX);
                voice.say(&FarOrder::Taken { program, stream, bytes }).await;
            }
            moved.notify_waiters();
        }
        Ok(())
    }
}

/// What a program is sent to read.
#[derive(Debug, Default)]
pub(super) struct Inlet {
    state: Mutex<InletState>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct InletState {
    /// Sent and not taken.
    on_its_way: usize,
    /// The program does not read, or nobody writes for it any more.
    closed: bool,
}

impl Inlet {
    fn state(&self) -> MutexGuard<'_, InletState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guest took so much: never more than was sent.
    pub(super) fn taken(&self, bytes: u32) -> Result<(), OutOfTurn> {
        let mut state = self.state();
        let bytes = usize::try_from(bytes).map_err(|_| OutOfTurn)?;
        state.on_its_way = state.on_its_way.checked_sub(bytes).filter(|_| bytes > 0).ok_or(OutOfTurn)?;
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Nothing more is to be sent.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_one();
    }

    /// Waits until something may be sent, and says how much; nothing when it may not any more.
    async fn room(&self) -> Option<usize> {
        loop {
            {
                let state = self.state();
                if state.closed {
                    return None;
                }
                let room = WINDOW.saturating_sub(state.on_its_way).min(PIECE);
                if room > 0 {
                    return Some(room);
                }
            }
            self.changed.notified().await;
        }
    }

    async fn closed(&self) {
        while !self.state().closed {
            self.changed.notified().await;
        }
    }

    /// Sends what is read from `end` until it ends, or nobody wants it.
    pub(super) async fn draw(
        self: Arc<Self>,
        end: OwnedFd,
        program: ProgramNumber,
        at_the_end: AtTheEnd,
        voice: Voice,
    ) {
        // Without a source there is nothing to read, and the program is told so.
        let mut source = Source::new(end).ok();
        let mut buffer = vec![0u8; PIECE];
        while let Some(source) = &mut source {
            let Some(room) = self.room().await else { return };
            let piece = buffer.get_mut(..room).unwrap_or_default();
            let read = tokio::select! {
                read = source.read(piece) => read,
                () = self.closed() => return,
            };
            let Ok(read @ 1..) = read else { break };
            self.state().on_its_way += read;
            let bytes = buffer.get(..read).unwrap_or_default().to_vec();
            voice.say(&FarOrder::Input { program, bytes }).await;
        }
        if at_the_end == AtTheEnd::Tell {
            voice.say(&FarOrder::InputEnd { program }).await;
        }
    }
}

/// What becomes of a program's input when there is no more of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AtTheEnd {
    /// It ends.
    Tell,
    /// It stays open, as that of a terminal: one cannot be closed from one side only.
    StayOpen,
}

/// Where a program's input comes from.
enum Source {
    Pipe(tokio::net::unix::pipe::Receiver),
    /// Something that can always be read, and so cannot be waited for, such as `/dev/null`.
    Always(OwnedFd),
}

impl Source {
    fn new(end: OwnedFd) -> io::Result<Self> {
        let second = end.try_clone()?;
        match reader(end) {
            Ok(pipe) => Ok(Self::Pipe(pipe)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(Self::Always(second)),
            Err(error) => Err(error),
        }
    }

    async fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Pipe(pipe) => pipe.read(bytes).await,
            Self::Always(end) => {
                tokio::task::yield_now().await;
                Ok(rustix::io::read(end, bytes)?)
            }
        }
    }
}
