//! Passes bytes through a tunnel, in both directions, until both have ended.
//!
//! An idle tunnel holds no buffer: one is taken when there is something to read, and given back when that is passed on.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, tcp, unix};
use tokio::time::Instant;

use crate::budget::{Direction, Meter, OverBudget};
use crate::record::Ending;
use crate::stream::Stream;

/// Large enough that system calls are few beside the copying.
const BUFFER: usize = 256 * 1024;
/// For what cannot say when it has something: its buffer is held all the time.
const SMALL_BUFFER: usize = 8 * 1024;

/// Why a tunnel ends before both sides want it to.
struct Stopped(Ending);

impl From<io::Error> for Stopped {
    fn from(_: io::Error) -> Self {
        Self(Ending::Broken)
    }
}

impl From<OverBudget> for Stopped {
    fn from(_: OverBudget) -> Self {
        Self(Ending::OverBudget)
    }
}

/// Passes `before`, and then whatever comes.
pub(crate) async fn copy(inside: Stream, before: Vec<u8>, outside: TcpStream, meter: &Meter, idle: Duration) -> Ending {
    let clock = Clock::new();
    let (from_outside, mut to_outside) = outside.into_split();
    if meter.count(Direction::Up, before.len()).is_err() {
        return Ending::OverBudget;
    }
    if to_outside.write_all(&before).await.is_err() {
        return Ending::Broken;
    }
    drop(before);
    let both = async {
        match inside {
            Stream::Tcp(inside) => {
                let (from_inside, to_inside) = inside.into_split();
                let up = pump(from_inside, to_outside, Direction::Up, meter, &clock);
                let down = pump(from_outside, to_inside, Direction::Down, meter, &clock);
                tokio::try_join!(up, down).map(drop)
            }
            Stream::Unix(inside) => {
                let (from_inside, to_inside) = inside.into_split();
                let up = pump(from_inside, to_outside, Direction::Up, meter, &clock);
                let down = pump(from_outside, to_inside, Direction::Down, meter, &clock);
                tokio::try_join!(up, down).map(drop)
            }
            Stream::Relayed(inside) => {
                let (from_inside, to_inside) = tokio::io::split(inside);
                let up = pass(from_inside, to_outside, Direction::Up, meter, &clock);
                let down = pass(from_outside, to_inside, Direction::Down, meter, &clock);
                tokio::try_join!(up, down).map(drop)
            }
        }
    };
    finish(both, &clock, idle).await
}

/// The same for two streams that are no sockets: after an upgrade.
pub(crate) async fn copy_any<A, B>(inside: A, outside: B, meter: &Meter, idle: Duration) -> Ending
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let clock = Clock::new();
    let (from_inside, to_inside) = tokio::io::split(inside);
    let (from_outside, to_outside) = tokio::io::split(outside);
    let both = async {
        let up = pass(from_inside, to_outside, Direction::Up, meter, &clock);
        let down = pass(from_outside, to_inside, Direction::Down, meter, &clock);
        tokio::try_join!(up, down).map(drop)
    };
    finish(both, &clock, idle).await
}

async fn finish(both: impl Future<Output = Result<(), Stopped>>, clock: &Clock, idle: Duration) -> Ending {
    tokio::select! {
        ended = both => match ended {
            Ok(()) => Ending::Complete,
            Err(Stopped(ending)) => ending,
        },
        () = clock.idle_for(idle) => Ending::Idle,
    }
}

/// When something last passed.
struct Clock {
    start: Instant,
    last: AtomicU64,
}

impl Clock {
    fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0) }
    }

    fn tick(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }

    async fn idle_for(&self, limit: Duration) {
        loop {
            let deadline = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed)) + limit;
            if deadline <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }
}

thread_local! {
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// The most buffers that a thread keeps for the next tunnel.
const MOST_SPARE: usize = 8;

/// A buffer that is used again: fresh memory for every few bytes would cost more than passing them on.
struct Buffer(Vec<u8>);

impl Buffer {
    fn take() -> Self {
        Self(SPARE.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; BUFFER]))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        SPARE.with_borrow_mut(|spare| {
            if spare.len() < MOST_SPARE {
                spare.push(buffer);
            }
        });
    }
}

/// The reading half of a socket.
trait Source {
    async fn wait(&self) -> io::Result<()>;
    fn try_take(&self, buffer: &mut [u8]) -> io::Result<usize>;
}

impl Source for tcp::OwnedReadHalf {
    async fn wait(&self) -> io::Result<()> {
        self.readable().await
    }

    fn try_take(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_read(buffer)
    }
}

impl Source for unix::OwnedReadHalf {
    async fn wait(&self) -> io::Result<()> {
        self.readable().await
    }

    fn try_take(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_read(buffer)
    }
}

async fn pump(
    from: impl Source,
    mut to: impl AsyncWrite + Unpin,
    direction: Direction,
    meter: &Meter,
    clock: &Clock,
) -> Result<(), Stopped> {
    loop {
        from.wait().await?;
        let mut buffer = Buffer::take();
        loop {
            match from.try_take(&mut buffer.0) {
                Ok(0) => {
                    to.shutdown().await?;
                    return Ok(());
                }
                Ok(length) => {
                    clock.tick();
                    meter.count(direction, length)?;
                    to.write_all(buffer.0.get(..length).unwrap_or_default()).await?;
                    clock.tick();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    direction: Direction,
    meter: &Meter,
    clock: &Clock,
) -> Result<(), Stopped> {
    let mut buffer = vec![0; SMALL_BUFFER];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            to.shutdown().await?;
            return Ok(());
        }
        clock.tick();
        meter.count(direction, length)?;
        to.write_all(buffer.get(..length).unwrap_or_default()).await?;
        to.flush().await?;
        clock.tick();
    }
}
