//! Frames over a stream of bytes. After the first order every one is sealed, both ways, when its turn on the wire has come.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use ringfence_guest::far::{FarOrder, FarReport, MOST_FAR_REPORT, SILENCE_SECONDS};
use ringfence_guest::protocol::{BadFrame, HEADER, MOST_ORDER, body_length, decode, encode};
use ringfence_guest::seal::{Direction, FrameKey, Seal, TAG};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

/// A guest that takes nothing of a frame for this long does not read any more.
const STUCK: Duration = Duration::from_secs(SILENCE_SECONDS);
/// We are heard so often that one word may be late.
const STILL_HERE_EVERY: Duration = Duration::from_secs(SILENCE_SECONDS / 4);

/// A frame on its way out, which nobody has sealed yet.
#[derive(Clone)]
pub(super) struct Frame {
    bytes: Vec<u8>,
    /// What seals those after it, when it is the first order.
    begins: Option<FrameKey>,
}

pub(super) fn frame(order: &FarOrder) -> io::Result<Frame> {
    let begins = match order {
        FarOrder::Begin { key, .. } => Some(key.clone()),
        _ => None,
    };
    let bytes = encode(order, MOST_ORDER).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    Ok(Frame { bytes, begins })
}

/// What has to wait for its turn: bytes of programs and of the workspace. Orders go before it.
#[derive(Debug, Clone)]
pub(super) struct Voice(pub(super) mpsc::Sender<Frame>);

impl Voice {
    /// Waits until it can be said. To a guest that is gone, it need not be.
    pub(super) async fn say(&self, order: &FarOrder) {
        if let Ok(frame) = frame(order) {
            self.0.send(frame).await.ok();
        }
    }
}

/// How a guest was heard to its end.
#[derive(PartialEq, Eq)]
pub(super) enum Heard {
    /// It said that nothing is left.
    LastWord,
    /// It said something else, or nothing.
    GivenUp,
}

/// What reports come in by.
pub(super) struct Ear<'a, R> {
    from: &'a mut R,
    /// Of this guest, once it was given its first order.
    key: &'a OnceLock<FrameKey>,
    seal: Option<Seal>,
}

impl<'a, R: AsyncRead + Unpin> Ear<'a, R> {
    pub(super) fn new(from: &'a mut R, key: &'a OnceLock<FrameKey>) -> Self {
        Self { from, key, seal: None }
    }

    /// The next report; nothing when the stream ends between two of them. One without the next seal is an error, as
    /// is all that comes before there is a key.
    pub(super) async fn next(&mut self) -> io::Result<Option<FarReport>> {
        let bad = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut header = [0u8; HEADER];
        let first = self.from.read(&mut header).await?;
        if first == 0 {
            return Ok(None);
        }
        self.from.read_exact(header.get_mut(first..).unwrap_or_default()).await?;
        let mut body = vec![0u8; body_length(header, MOST_FAR_REPORT + TAG).map_err(bad)?];
        self.from.read_exact(&mut body).await?;
        let seal = match &mut self.seal {
            Some(seal) => seal,
            None => {
                let key = self.key.get().ok_or_else(|| bad(BadFrame::Seal))?;
                self.seal.insert(Seal::new(key.clone(), Direction::Reports))
            }
        };
        let report = match decode(seal.open(&body).map_err(bad)?).map_err(bad)? {
            FarReport::Report(report) => FarReport::Report(report.capped()),
            other => other,
        };
        Ok(Some(report))
    }
}

/// Writes what is said until all is over; an error when the guest does not take it. Who is silent for long would be taken for
/// gone.
pub(super) async fn write(
    mut to: impl AsyncWrite + Unpin,
    mut orders: mpsc::Receiver<Frame>,
    mut rest: mpsc::Receiver<Frame>,
    mut over: watch::Receiver<bool>,
) -> io::Result<()> {
    let still_here = frame(&FarOrder::StillHere)?;
    let mut seal = None;
    let mut words = tokio::time::interval(STILL_HERE_EVERY);
    words.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // The first comes at once, and nothing may be said before the first order.
    words.reset();
    loop {
        let frame = tokio::select! {
            biased;
            _ = over.wait_for(|over| *over) => return Ok(()),
            Some(frame) = orders.recv() => frame,
            Some(frame) = rest.recv() => frame,
            _ = words.tick() => still_here.clone(),
            else => return Ok(()),
        };
        let bytes = sealed(frame, &mut seal)?;
        tokio::select! {
            written = write_whole(&mut to, &bytes) => written?,
            _ = over.wait_for(|over| *over) => return Ok(()),
        }
    }
}

/// What goes over the wire for `frame`. The first order is in the open: no program is there yet.
fn sealed(frame: Frame, seal: &mut Option<Seal>) -> io::Result<Vec<u8>> {
    let mut bytes = frame.bytes;
    if let Some(seal) = seal {
        seal.close(&mut bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    } else if let Some(key) = frame.begins {
        *seal = Some(Seal::new(key, Direction::Orders));
    }
    Ok(bytes)
}

/// However long it takes, as long as something is taken of it.
async fn write_whole(to: &mut (impl AsyncWrite + Unpin), frame: &[u8]) -> io::Result<()> {
    let stuck = |_| io::Error::new(io::ErrorKind::TimedOut, "the guest does not read its orders");
    let mut rest = frame;
    while !rest.is_empty() {
        let written = tokio::time::timeout(STUCK, to.write(rest)).await.map_err(stuck)??;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        rest = rest.get(written..).unwrap_or_default();
    }
    tokio::time::timeout(STUCK, to.flush()).await.map_err(stuck)?
}
