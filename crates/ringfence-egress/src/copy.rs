//! Passes bytes through a tunnel, in both directions, until both have ended.
//!
//! An idle tunnel holds no buffer: one is taken when there is something to read, and given back when that is passed on.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, ready};
use std::time::Duration;

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Notify;
use tokio::task::coop::consume_budget;
use tokio::time::Instant;

use crate::budget::{Direction, Meter, OverBudget};
use crate::record::Ending;
use crate::stream::Stream;

/// What fits into it is copied; when it is full, there is more to come, and the kernel moves that.
const BUFFER: usize = 64 * 1024;
/// What the kernel holds of one direction of a tunnel while it moves it: as much as any user may ask for. With half of it each byte costs a
/// tenth more.
const PIPE: usize = 1024 * 1024;
const SMALL_PIPE: usize = 64 * 1024;
/// As long as so much comes at a time, the kernel goes on moving it: less is cheaper to copy.
const MUCH: usize = 16 * 1024;
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
pub(crate) async fn copy(
    inside: Stream,
    before: Vec<u8>,
    mut outside: TcpStream,
    meter: &Meter,
    idle: Duration,
) -> Ending {
    let clock = Clock::new();
    // Halves that are only lent: the others would say the end of both directions once more when they are dropped.
    let (from_outside, mut to_outside) = outside.split();
    if meter.count(Direction::Up, before.len()).is_err() {
        return Ending::OverBudget;
    }
    if to_outside.write_all(&before).await.is_err() {
        return Ending::Broken;
    }
    drop(before);
    match inside {
        Stream::Tcp(mut inside) => {
            let (from_inside, to_inside) = inside.split();
            let up = pump::<TcpStream, TcpStream>(from_inside, to_outside, Direction::Up, meter, &clock);
            let down = pump::<TcpStream, TcpStream>(from_outside, to_inside, Direction::Down, meter, &clock);
            finish(up, down, &clock, idle).await
        }
        Stream::Unix(mut inside) => {
            let (from_inside, to_inside) = inside.split();
            let up = pump::<UnixStream, TcpStream>(from_inside, to_outside, Direction::Up, meter, &clock);
            let down = pump::<TcpStream, UnixStream>(from_outside, to_inside, Direction::Down, meter, &clock);
            finish(up, down, &clock, idle).await
        }
        Stream::Relayed(inside) => {
            let (from_inside, to_inside) = tokio::io::split(inside);
            let up = pass(from_inside, to_outside, Direction::Up, meter, &clock);
            let down = pass(from_outside, to_inside, Direction::Down, meter, &clock);
            finish(up, down, &clock, idle).await
        }
    }
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
    let up = pass(from_inside, to_outside, Direction::Up, meter, &clock);
    let down = pass(from_outside, to_inside, Direction::Down, meter, &clock);
    finish(up, down, &clock, idle).await
}

async fn finish(
    up: impl Future<Output = Result<(), Stopped>>,
    down: impl Future<Output = Result<(), Stopped>>,
    clock: &Clock,
    idle: Duration,
) -> Ending {
    tokio::select! {
        ended = async { tokio::try_join!(up, down) } => match ended {
            Ok(((), ())) => Ending::Complete,
            Err(Stopped(ending)) => ending,
        },
        () = clock.idle_for(idle) => Ending::Idle,
    }
}

/// When something last passed, and whether one direction has ended, or both.
struct Clock {
    start: Instant,
    last: AtomicU64,
    half_ended: AtomicBool,
    both_ended: Notify,
}

impl Clock {
    fn new() -> Self {
        let (half_ended, both_ended) = (AtomicBool::new(false), Notify::new());
        Self { start: Instant::now(), last: AtomicU64::new(0), half_ended, both_ended }
    }

    fn tick(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }

    /// Called at the end of each direction. Whether the other one has ended before it.
    fn is_last_to_end(&self) -> bool {
        self.half_ended.swap(true, Ordering::Relaxed)
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

thread_local! {
    static SPARE_PIPES: RefCell<Vec<Arc<Ends>>> = const { RefCell::new(Vec::new()) };
}

/// The most pipes that a thread keeps for the next who moves much: a user may have 64 of that size, and who has more gets tiny ones
/// everywhere, not only here.
const MOST_SPARE_PIPES: usize = 2;

/// Both ends of a pipe, and how much it can hold.
struct Ends {
    reads: OwnedFd,
    writes: OwnedFd,
    size: usize,
}

/// An empty pipe that is used again: making one for every piece that comes would cost more than moving the piece.
struct Pipe {
    ends: Arc<Ends>,
    /// What was moved into it and not out again. The next who uses it may be another tunnel, so one that holds anything is closed.
    holds: usize,
}

impl Pipe {
    fn take() -> io::Result<Self> {
        if let Some(ends) = SPARE_PIPES.with_borrow_mut(Vec::pop) {
            return Ok(Self { ends, holds: 0 });
        }
        let (reads, writes) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user who has many pipes gets small ones: slower, and no other difference.
        let size = fcntl_setpipe_size(&writes, PIPE).unwrap_or(SMALL_PIPE);
        Ok(Self { ends: Arc::new(Ends { reads, writes, size }), holds: 0 })
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if self.holds > 0 {
            return;
        }
        SPARE_PIPES.with_borrow_mut(|spare| {
            if spare.len() < MOST_SPARE_PIPES {
                spare.push(Arc::clone(&self.ends));
            }
        });
    }
}

/// A socket of ours: one that the kernel can move bytes from and to by itself.
trait Socket: AsFd {
    /// Waits until the other side has broken the connection off.
    async fn wait_broken(&self) -> io::Result<()>;
    async fn wait_writable(&self) -> io::Result<()>;
    async fn wait_readable(&self) -> io::Result<()>;
    fn attempt<T>(&self, interest: Interest, act: impl FnMut() -> io::Result<T>) -> io::Result<T>;
}

macro_rules! socket {
    ($kind:ty) => {
        impl Socket for $kind {
            async fn wait_broken(&self) -> io::Result<()> {
                self.ready(Interest::ERROR).await.map(drop)
            }

            async fn wait_writable(&self) -> io::Result<()> {
                self.writable().await
            }

            async fn wait_readable(&self) -> io::Result<()> {
                self.readable().await
            }

            fn attempt<T>(&self, interest: Interest, act: impl FnMut() -> io::Result<T>) -> io::Result<T> {
                self.try_io(interest, act)
            }
        }
    };
}

socket!(TcpStream);
socket!(UnixStream);

/// Reads what is there; a buffer is held only while there is something.
async fn take(from: &mut (impl AsyncRead + Unpin)) -> io::Result<(Buffer, usize)> {
    poll_fn(|context| {
        let mut buffer = Buffer::take();
        let mut bytes = ReadBuf::new(&mut buffer.0);
        // Unlike `try_read`, this knows after a short read that there is no more, and does not ask the kernel again.
        let read = ready!(Pin::new(&mut *from).poll_read(context, &mut bytes));
        let length = bytes.filled().len();
        Poll::Ready(read.map(|()| (buffer, length)))
    })
    .await
}

/// Passes what one half of a socket reads to the half of another that writes. Little things go through a buffer; when there is more
/// than it holds, the kernel moves the rest without showing it to us, for as long as much is coming.
async fn pump<F: Socket, T: Socket>(
    mut from: impl AsyncRead + AsRef<F> + Unpin,
    mut to: impl AsyncWrite + AsRef<T> + Unpin,
    direction: Direction,
    meter: &Meter,
    clock: &Clock,
) -> Result<(), Stopped> {
    loop {
        let (buffer, length) = take(&mut from).await?;
        if length == 0 {
            break;
        }
        clock.tick();
        meter.count(direction, length)?;
        to.write_all(buffer.0.get(..length).unwrap_or_default()).await?;
        clock.tick();
        let is_full = length == buffer.0.len();
        drop(buffer);
        if is_full {
            // What comes in large pieces goes on so, without a buffer in between.
            while splice_all(from.as_ref(), to.as_ref(), direction, meter, clock).await? >= MUCH {
                from.as_ref().wait_readable().await?;
            }
        }
    }
    // When both have ended, both sockets are closed, which says it as well.
    if clock.is_last_to_end() {
        clock.both_ended.notify_one();
        return Ok(());
    }
    to.shutdown().await?;
    // The other direction may go on for long, and no buffer is held here. Whoever has said all may still listen, or may be gone for good:
    // then the other side would be waited for in vain.
    tokio::select! {
        () = clock.both_ended.notified() => Ok(()),
        broken = from.as_ref().wait_broken() => Err(broken.map_or_else(Stopped::from, |()| Stopped(Ending::Broken))),
    }
}

/// Moves bytes through a pipe until nothing is there to be read, and says how many. Whether that is the end, the next reading tells.
async fn splice_all<F: Socket, T: Socket>(
    from: &F,
    to: &T,
    direction: Direction,
    meter: &Meter,
    clock: &Clock,
) -> Result<usize, Stopped> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    let mut pipe = Pipe::take()?;
    let ends = Arc::clone(&pipe.ends);
    let mut moved = 0;
    loop {
        consume_budget().await;
        let taken = from.attempt(Interest::READABLE, || Ok(splice(from, None, &ends.writes, None, ends.size, flags)?));
        let length = match taken {
            Ok(0) => return Ok(0),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(moved),
            // This kind of socket cannot be spliced, and nothing was taken from it.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        pipe.holds = length;
        moved = moved.saturating_add(length);
        clock.tick();
        meter.count(direction, length)?;
        while pipe.holds > 0 {
            match to.attempt(Interest::WRITABLE, || Ok(splice(&ends.reads, None, to, None, pipe.holds, flags)?)) {
                Ok(0) => return Err(Stopped(Ending::Broken)),
                Ok(length) => {
                    pipe.holds = pipe.holds.saturating_sub(length);
                    clock.tick();
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => to.wait_writable().await?,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Account, Budget, Budgets, RuleBudgets};

    fn spare() -> usize {
        SPARE_PIPES.with_borrow(Vec::len)
    }

    #[test]
    fn a_pipe_that_holds_something_is_not_used_again_and_an_empty_one_is() {
        let pipe = Pipe::take().unwrap();
        let first = Arc::clone(&pipe.ends);
        drop(pipe);
        let mut again = Pipe::take().unwrap();
        assert!(Arc::ptr_eq(&first, &again.ends) && spare() == 0);
        rustix::io::write(&again.ends.writes, b"secret").unwrap();
        again.holds = 6;
        drop((again, first));
        assert_eq!(spare(), 0);
        let fresh = Pipe::take().unwrap();
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&fresh.ends.reads, &mut bytes), Err(rustix::io::Errno::AGAIN));
    }

    /// Both ends of a connection.
    async fn pair() -> (TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (one, other) = tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        (one.unwrap(), other.unwrap().0)
    }

    #[tokio::test]
    async fn a_tunnel_that_has_ended_in_one_direction_holds_no_buffer_while_the_other_goes_on() {
        let (mut client, inside) = pair().await;
        let (outside, mut origin) = pair().await;
        let account = Account::new(Budgets::default(), RuleBudgets::None);
        let meter = account.connection("a.test", Budget::default()).unwrap();
        let tunnel = copy(Stream::Tcp(inside), Vec::new(), outside, &meter, Duration::from_secs(60));
        let talk = async {
            client.shutdown().await.unwrap();
            assert_eq!(origin.read(&mut [0; 1]).await.unwrap(), 0);
            origin.write_all(b"late").await.unwrap();
            let mut late = [0; 4];
            client.read_exact(&mut late).await.unwrap();
            assert_eq!(&late, b"late", "the probe proves nothing");
            drop(origin);
        };
        let (ending, ()) = tokio::join!(tunnel, talk);
        assert_eq!(ending, Ending::Complete);
        // All that were made have come back: what came late needed no second one.
        assert_eq!(SPARE.with_borrow(Vec::len), 1);
    }

    #[test]
    fn a_thread_keeps_few_pipes() {
        let pipes: Vec<Pipe> = (0..MOST_SPARE_PIPES + 3).map(|_| Pipe::take().unwrap()).collect();
        drop(pipes);
        assert_eq!(spare(), MOST_SPARE_PIPES);
    }
}
