//! How a far guest hears its host and speaks to it: over the streams that an engine attached, or over a socket where they met.

use std::cell::{Cell, RefCell};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfence_linux::cgroup::counted_inside;
use ringfence_linux::wall::ProcessOne;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::far::{Begin, FarOrder, FarReport, MOST_FAR_REPORT, SILENCE_SECONDS};
use crate::protocol::{BadFrame, Reader, encode};
use crate::seal::{Direction, FrameKey, Seal};

/// Read at once of orders.
const READ: usize = 64 * 1024;
/// How long a host may say nothing, or take nothing.
const SILENCE: Duration = Duration::from_secs(SILENCE_SECONDS);

/// How long a last word may take to the host.
const LAST_WORD: Duration = Duration::from_secs(1);

/// The first order, which begins everything. The host may want to be met before; nothing when anything else came, or nothing.
pub(crate) fn begin(process: &mut ProcessOne, ear: &mut Ear, voice: &mut Voice) -> Option<Box<Begin>> {
    let (begin, key) = match wait_for_first(process, ear)? {
        First::Begin(begin, key) => (begin, key),
        First::Meet(at) => {
            // Nobody can be told where that fails: nothing may be said without a key.
            process.meet(&at, &mut voice.to).ok()?;
            match wait_for_first(process, ear)? {
                First::Begin(begin, key) => (begin, key),
                First::Meet(_) => return None,
            }
        }
    };
    // Before anything else is read or said: no program is there yet that could have sent or seen it.
    ear.orders.seal(Seal::new(key.clone(), Direction::Orders));
    voice.seal.replace(Some(Seal::new(key, Direction::Reports)));
    Some(begin)
}

/// What may come first.
enum First {
    Begin(Box<Begin>, FrameKey),
    Meet(OsString),
}

/// The first order; nothing when another came, or none.
fn wait_for_first(process: &ProcessOne, ear: &mut Ear) -> Option<First> {
    let orders = process.orders().as_fd();
    loop {
        match ear.orders.next_message() {
            Ok(Some(FarOrder::Begin { begin, key })) => return Some(First::Begin(begin, key)),
            Ok(Some(FarOrder::Meet { at })) => return Some(First::Meet(at)),
            Ok(Some(FarOrder::StillHere)) => {}
            Ok(Some(_)) | Err(_) => return None,
            Ok(None) => {
                wait(&mut [PollFd::from_borrowed_fd(orders, PollFlags::IN)], ear.silence_left()).ok()?;
                if ear.silence_left().is_zero() || !ear.listen(orders) {
                    return None;
                }
            }
        }
    }
}

/// Waits for any of `polls`, at most `limit`.
pub(crate) fn wait(polls: &mut [PollFd<'_>], limit: Duration) -> io::Result<()> {
    let seconds = i64::try_from(limit.as_secs()).unwrap_or(i64::MAX);
    let limit = Timespec { tv_sec: seconds, tv_nsec: limit.subsec_nanos().into() };
    match poll(polls, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// What orders come in by.
pub(crate) struct Ear {
    pub(crate) orders: Reader<FarOrder>,
    /// When the host was heard last.
    heard: Instant,
}

impl Ear {
    pub(crate) fn new() -> Self {
        Self { orders: Reader::default(), heard: Instant::now() }
    }

    pub(crate) fn silence_left(&self) -> Duration {
        SILENCE.saturating_sub(self.heard.elapsed())
    }

    /// Waits until the host has heard our last word and leaves, or for a moment: an engine may lose what is said just before an
    /// end.
    pub(crate) fn wait_until_heard(&mut self, orders: BorrowedFd<'_>) {
        let begin = Instant::now();
        while begin.elapsed() < LAST_WORD {
            let mut polls = [PollFd::from_borrowed_fd(orders, PollFlags::IN)];
            let waited = wait(&mut polls, LAST_WORD.saturating_sub(begin.elapsed()));
            let [found] = polls;
            if waited.is_err() || !found.revents().is_empty() && !self.listen(orders) {
                return;
            }
        }
    }

    /// Takes in what came; false when the host is gone.
    pub(crate) fn listen(&mut self, orders: BorrowedFd<'_>) -> bool {
        let mut bytes = [0u8; READ];
        match rustix::io::read(orders, &mut bytes) {
            Ok(read @ 1..) => {
                self.orders.push(bytes.get(..read).unwrap_or_default());
                self.heard = Instant::now();
                true
            }
            Err(Errno::INTR | Errno::AGAIN) => true,
            Ok(_) | Err(_) => false,
        }
    }
}

/// What reports go out by.
pub(crate) struct Voice {
    pub(crate) to: OwnedFd,
    /// Nothing is said without one.
    seal: RefCell<Option<Seal>>,
    /// The host is gone, or takes nothing: there is nobody to tell.
    pub(crate) lost: Cell<bool>,
}

impl Voice {
    pub(crate) fn new(to: OwnedFd) -> Self {
        Self { to, seal: RefCell::new(None), lost: Cell::new(false) }
    }

    /// Sends a whole report. Waits for a host that is slow, as a program that writes to a pipe does.
    pub(crate) fn tell(&self, report: &FarReport) {
        if self.lost.get() {
            return;
        }
        let sent = self
            .frame(report)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
            .and_then(|frame| self.send(&frame));
        // A part may have been sent, and nothing after it could be told apart.
        if sent.is_err() {
            self.lost.set(true);
        }
    }

    fn frame(&self, report: &FarReport) -> Result<Vec<u8>, BadFrame> {
        let mut frame = encode(report, MOST_FAR_REPORT)?;
        self.seal.borrow_mut().as_mut().ok_or(BadFrame::Seal)?.close(&mut frame)?;
        Ok(frame)
    }

    /// Tells what was counted of everything in the container, where that can be read.
    pub(crate) fn count(&self) {
        if let Some(counted) = counted_inside() {
            self.tell(&FarReport::Counted {
                memory_peak: counted.memory_peak,
                killed_for_memory: counted.oom_kills,
                starts_refused: counted.pids_limit_hits,
            });
        }
    }

    fn send(&self, mut rest: &[u8]) -> io::Result<()> {
        let mut taken = Instant::now();
        while !rest.is_empty() {
            match rustix::io::write(&self.to, rest) {
                Ok(written) => {
                    rest = rest.get(written..).unwrap_or_default();
                    taken = Instant::now();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = SILENCE.saturating_sub(taken.elapsed());
                    if left.is_zero() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    wait(&mut [PollFd::from_borrowed_fd(self.to.as_fd(), PollFlags::OUT)], left)?;
                }
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
}
