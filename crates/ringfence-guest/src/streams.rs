//! What a program of a far guest reads and writes: pipes or a terminal on its side, pieces on the host's.
//!
//! Nothing here waits. Of each stream only so much is on its way as the host has room for, so a program that writes faster
//! than the host reads waits in its own `write`, as with a pipe.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfence_linux::wall::{Behind, Failed, Stdio, TerminalSize};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::termios::Winsize;

use crate::far::{FarReport, PIECE, Stream, WINDOW};
use crate::programs::said;
use crate::protocol::{ProgramNumber, Report};

/// A terminal is hung up when its program ends, and read to its end then. One that is not is not waited for longer.
const HANGS_UP: Duration = Duration::from_millis(200);

/// The streams of one program. They may outlive it: what it left behind may hold them.
#[derive(Debug)]
pub(crate) struct Streams {
    program: ProgramNumber,
    outgoing: [Option<Outgoing>; 2],
    incoming: Option<Incoming>,
    kind: Kind,
    /// That it ended, to be told after what was in its streams then.
    ended: Option<Report>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Pipes,
    Terminal,
}

/// What a program writes to.
#[derive(Debug)]
struct Outgoing {
    from: OwnedFd,
    /// Sent, and not taken by the host.
    untaken: usize,
    owed: Owed,
}

/// What of a stream has to be sent before the end of its program is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owed {
    Nothing,
    /// That was in the pipe when the program ended.
    Bytes(usize),
    /// All until it is closed, but not waiting after this.
    AllUntil(Instant),
}

/// What a program reads from.
#[derive(Debug)]
struct Incoming {
    to: OwnedFd,
    waiting: Vec<u8>,
    /// Nothing comes after what waits.
    complete: bool,
}

/// The host did not keep to what was agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfTurn;

/// Sends a report on its way.
pub(crate) type TellFar<'a> = &'a mut dyn FnMut(FarReport);

const STREAMS: [Stream; 2] = [Stream::Output, Stream::Error];

impl Streams {
    /// Pipes for a program: its ends and ours.
    pub(crate) fn pipes(program: ProgramNumber) -> Result<(Stdio, Self), Failed> {
        let make = || -> io::Result<(Stdio, Self)> {
            let pipe = || rustix::pipe::pipe_with(PipeFlags::CLOEXEC);
            let ((input, to), (output, writes), (error, complains)) = (pipe()?, pipe()?, pipe()?);
            let streams = Self {
                program,
                outgoing: [Some(Outgoing::new(output)?), Some(Outgoing::new(error)?)],
                incoming: Some(Incoming::new(to)?),
                kind: Kind::Pipes,
                ended: None,
            };
            Ok((Stdio::Given([input, writes, complains]), streams))
        };
        make().map_err(|error| said("make pipes", &error))
    }

    /// A terminal for a program, likewise.
    pub(crate) fn terminal(
        program: ProgramNumber,
        behind: &Behind<'_>,
        size: TerminalSize,
    ) -> Result<(Stdio, Self), Failed> {
        let make = || -> io::Result<(Stdio, Self)> {
            let (screen, terminal) = behind.terminal(size)?;
            let streams = Self {
                program,
                incoming: Some(Incoming::new(screen.try_clone()?)?),
                outgoing: [Some(Outgoing::new(screen)?), None],
                kind: Kind::Terminal,
                ended: None,
            };
            Ok((Stdio::Terminal(terminal), streams))
        };
        make().map_err(|error| said("make a terminal", &error))
    }

    pub(crate) fn has_terminal(&self) -> bool {
        self.kind == Kind::Terminal
    }

    /// What to wait for, each with what it is.
    pub(crate) fn waits(&self) -> impl Iterator<Item = (Waits, BorrowedFd<'_>, PollFlags)> {
        let outgoing = STREAMS.into_iter().zip(&self.outgoing).filter_map(|(stream, outgoing)| {
            // A stream that is not read is not looked at: its end would wake us for ever.
            let outgoing = outgoing.as_ref().filter(|outgoing| outgoing.untaken < WINDOW)?;
            Some((Waits::Outgoing(stream), outgoing.from.as_fd(), PollFlags::IN))
        });
        let incoming = self.incoming.iter().map(|incoming| {
            let wanted = if incoming.waiting.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            (Waits::Incoming, incoming.to.as_fd(), wanted)
        });
        outgoing.chain(incoming)
    }

    /// Whether the program may still be sent something to read.
    pub(crate) fn feeds(&self) -> bool {
        self.incoming.is_some()
    }

    /// When somebody has to look again although nothing came.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.ended.as_ref()?;
        self.outgoing.iter().flatten().find_map(|outgoing| match outgoing.owed {
            Owed::AllUntil(deadline) => Some(deadline),
            Owed::Nothing | Owed::Bytes(_) => None,
        })
    }

    /// Does what can be done now that a wait for `what` ended with `found`.
    pub(crate) fn go_on(&mut self, what: Waits, found: PollFlags, tell: TellFar<'_>) {
        match what {
            Waits::Outgoing(stream) => self.pass_on(stream, tell),
            Waits::Incoming if found.intersects(PollFlags::ERR | PollFlags::HUP) => self.stop_reading(tell),
            Waits::Incoming => self.feed(tell),
        }
    }

    /// Sends one piece of what was written.
    fn pass_on(&mut self, stream: Stream, tell: TellFar<'_>) {
        let program = self.program;
        let Some(place) = self.outgoing.get_mut(stream as usize) else { return };
        let Some(outgoing) = place else { return };
        let mut bytes = vec![0; PIECE.min(WINDOW.saturating_sub(outgoing.untaken))];
        match rustix::io::read(&outgoing.from, bytes.as_mut_slice()) {
            Ok(read @ 1..) => {
                bytes.truncate(read);
                outgoing.untaken += read;
                if let Owed::Bytes(owed) = &mut outgoing.owed {
                    *owed = owed.saturating_sub(read);
                }
                tell(FarReport::Output { program, stream, bytes });
            }
            Err(Errno::AGAIN | Errno::INTR) => {
                // Less was there than the kernel had said.
                if let Owed::Bytes(_) = outgoing.owed {
                    outgoing.owed = Owed::Nothing;
                }
            }
            // The end; a terminal says it by an error.
            Ok(_) | Err(_) => {
                *place = None;
                tell(FarReport::OutputEnd { program, stream });
            }
        }
    }

    /// Takes what the host sent for the program to read.
    pub(crate) fn take_in(&mut self, bytes: &[u8], tell: TellFar<'_>) -> Result<(), OutOfTurn> {
        // One that reads no more was told of, or has ended: what was on its way meanwhile is dropped.
        let Some(incoming) = &mut self.incoming else { return Ok(()) };
        if incoming.complete || incoming.waiting.len().saturating_add(bytes.len()) > WINDOW {
            return Err(OutOfTurn);
        }
        incoming.waiting.extend_from_slice(bytes);
        self.feed(tell);
        Ok(())
    }

    /// Nothing more is to be read. A terminal cannot be closed from one side: what ends a line's input there is typed by the
    /// host.
    pub(crate) fn complete(&mut self, tell: TellFar<'_>) {
        if let Some(incoming) = &mut self.incoming {
            incoming.complete = true;
            self.feed(tell);
        }
    }

    /// Writes what the program has room for.
    fn feed(&mut self, tell: TellFar<'_>) {
        let program = self.program;
        let Some(incoming) = &mut self.incoming else { return };
        let mut taken = 0;
        let mut closed = false;
        while let Some(rest) = incoming.waiting.get(taken..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(&incoming.to, rest) {
                Ok(written) => taken += written,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => {
                    closed = true;
                    break;
                }
            }
        }
        incoming.waiting.drain(..taken);
        if incoming.waiting.is_empty() {
            // Most programs read nothing: they need not cost us a buffer.
            incoming.waiting = Vec::new();
        }
        if let Ok(bytes @ 1..) = u32::try_from(taken) {
            tell(FarReport::InputTaken { program, bytes });
        }
        if closed {
            self.stop_reading(tell);
        } else if incoming.complete && incoming.waiting.is_empty() {
            self.incoming = None;
        }
    }

    fn stop_reading(&mut self, tell: TellFar<'_>) {
        if self.incoming.take().is_some() {
            tell(FarReport::InputClosed { program: self.program });
        }
    }

    /// Nobody reads any more what the program writes to this stream.
    pub(crate) fn close(&mut self, stream: Stream, tell: TellFar<'_>) {
        if let Some(place) = self.outgoing.get_mut(stream as usize)
            && place.take().is_some()
        {
            tell(FarReport::OutputEnd { program: self.program, stream });
        }
    }

    /// The host has room for so much more.
    pub(crate) fn taken(&mut self, stream: Stream, bytes: u32) -> Result<(), OutOfTurn> {
        // What was sent last may be taken after the end.
        let Some(Some(outgoing)) = self.outgoing.get_mut(stream as usize) else { return Ok(()) };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        outgoing.untaken = outgoing.untaken.checked_sub(bytes).ok_or(OutOfTurn)?;
        Ok(())
    }

    /// Gives the terminal another size. Whether a program without one gets it does not matter to anybody.
    pub(crate) fn resize(&self, size: TerminalSize) {
        if let (Kind::Terminal, [Some(screen), _]) = (self.kind, &self.outgoing) {
            let size = Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
            rustix::termios::tcsetwinsize(&screen.from, size).ok();
        }
    }

    /// The program ended. What is in its streams now goes before `report`.
    pub(crate) fn end(&mut self, report: Report) {
        self.incoming = None;
        self.ended = Some(report);
        for outgoing in self.outgoing.iter_mut().flatten() {
            outgoing.owed = match self.kind {
                Kind::Pipes => {
                    let there = rustix::io::ioctl_fionread(&outgoing.from).unwrap_or(0);
                    Owed::Bytes(usize::try_from(there).unwrap_or(WINDOW))
                }
                Kind::Terminal => Owed::AllUntil(Instant::now() + HANGS_UP),
            };
        }
    }

    /// Tells the program's end if nothing has to go before it. `now` is what time it is.
    pub(crate) fn settle(&mut self, now: Instant, tell: TellFar<'_>) {
        let is_owed = |outgoing: &Outgoing| match outgoing.owed {
            Owed::Nothing | Owed::Bytes(0) => false,
            Owed::Bytes(_) => true,
            Owed::AllUntil(deadline) => now < deadline,
        };
        if !self.outgoing.iter().flatten().any(is_owed) {
            self.tell_end(tell);
        }
    }

    /// Tells the program's end, if it has ended, whatever is in its streams.
    pub(crate) fn tell_end(&mut self, tell: TellFar<'_>) {
        if let Some(report) = self.ended.take() {
            tell(FarReport::Report(report));
        }
    }

    /// Sends what the host has room for of what is left. Nobody is there any more who could write.
    pub(crate) fn finish(&mut self, tell: TellFar<'_>) {
        for stream in STREAMS {
            loop {
                let untaken = |outgoing: &Outgoing| outgoing.untaken;
                let before = self.outgoing.get(stream as usize).and_then(|outgoing| outgoing.as_ref().map(untaken));
                let Some(before @ ..WINDOW) = before else { break };
                self.pass_on(stream, tell);
                let after = self.outgoing.get(stream as usize).and_then(|outgoing| outgoing.as_ref().map(untaken));
                if after == Some(before) {
                    break;
                }
            }
        }
        self.tell_end(tell);
    }

    /// Whether there is anything left to say of it.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.is_none() && self.incoming.is_none() && self.outgoing.iter().all(Option::is_none)
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Waits {
    Outgoing(Stream),
    Incoming,
}

impl Outgoing {
    fn new(from: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&from, true)?;
        Ok(Self { from, untaken: 0, owed: Owed::Nothing })
    }
}

impl Incoming {
    fn new(to: OwnedFd) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&to, true)?;
        Ok(Self { to, waiting: Vec::new(), complete: false })
    }
}
