//! Frames over a stream of bytes.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ringfence_guest::far::{FarOrder, FarReport, MOST_FAR_REPORT, SILENCE_SECONDS};
use ringfence_guest::protocol::{HEADER, MOST_ORDER, body_length, decode, encode};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

/// A guest that takes nothing of a frame for this long does not read any more.
const STUCK: Duration = Duration::from_secs(SILENCE_SECONDS);
/// We are heard so often that one word may be late.
const STILL_HERE_EVERY: Duration = Duration::from_secs(SILENCE_SECONDS / 4);

/// A frame on its way out.
pub(super) type Frame = Vec<u8>;

pub(super) fn frame(order: &FarOrder) -> io::Result<Frame> {
    encode(order, MOST_ORDER).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
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

/// The next report; nothing when the stream ends between two of them.
pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<FarReport>> {
    let bad = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut header = [0u8; HEADER];
    let first = from.read(&mut header).await?;
    if first == 0 {
        return Ok(None);
    }
    from.read_exact(header.get_mut(first..).unwrap_or_default()).await?;
    let mut body = vec![0u8; body_length(header, MOST_FAR_REPORT).map_err(bad)?];
    from.read_exact(&mut body).await?;
    let report = match decode(&body).map_err(bad)? {
        FarReport::Report(report) => FarReport::Report(report.capped()),
        other => other,
    };
    Ok(Some(report))
}

/// Writes what is said until all is over; an error when the guest does not take it. Who is silent for long would be taken for
/// gone.
pub(super) async fn write(
    mut to: impl AsyncWrite + Unpin,
    mut orders: mpsc::Receiver<Frame>,
    mut rest: mpsc::Receiver<Frame>,
    mut over: watch::Receiver<bool>,
) -> io::Result<()> {
    let still_here = Arc::new(frame(&FarOrder::StillHere)?);
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
            _ = words.tick() => still_here.to_vec(),
            else => return Ok(()),
        };
        tokio::select! {
            written = write_whole(&mut to, &frame) => written?,
            _ = over.wait_for(|over| *over) => return Ok(()),
        }
    }
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
