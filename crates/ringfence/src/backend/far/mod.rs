//! A guest that is far: all that host and guest say goes through one stream of bytes each way, such as those that a container
//! engine attaches.
//!
//! The guest is not believed: what it says must be its turn, and within its caps. One that says anything else is killed from
//! outside, and everything that waits for it gets an error. Nothing here blocks a thread of the event loop.

use std::fmt;
use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ringfence_guest::far::{Begin, FarOrder};
use ringfence_guest::protocol::ProgramNumber;
use ringfence_guest::seal::FrameKey;
use ringfence_guest::{Order, Report, Start};
use ringfence_linux::cgroup::CgroupUsage;
use ringfence_linux::wall::Proof;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use self::bring::Collector;
use self::relay::Relay;
use self::turn::{Begun, Ends, Last, Program, Step, Turns, said_by_the_guest};
use self::wire::{Ear, Frame, Heard, Voice};
use super::StartError;
use super::door::Arriving;
use super::guest::{Proofs, start_error};
use crate::BoxFuture;
use crate::request::TerminalSize;
use crate::workspace::layer::PrivateLayer;

mod ask;
mod bring;
mod relay;
mod stream;
#[cfg(test)]
mod tests;
mod turn;
mod wire;

pub(super) use self::bring::Bringing;

/// How long a far wall may take to be proven.
const PROVES: Duration = Duration::from_secs(60);
/// How long a guest may take to say which files are there, or that the workspace is as it was sent.
const ANSWERS: Duration = Duration::from_secs(60);
/// How long it may take to tell all that differs.
const COLLECTS: Duration = Duration::from_secs(600);
/// How long killing from outside may take before the guest is said to be gone all the same.
const KILLS: Duration = Duration::from_secs(10);
/// When a program ended and something holds what it wrote to: nothing came for this long.
const QUIET: Duration = Duration::from_millis(200);
/// A guest is not sent a question for what is in use more often than this.
const MEASURES_EVERY: Duration = Duration::from_millis(500);
/// Orders that a guest has not read.
const MOST_ORDERS: usize = 1024;
/// Frames with bytes that wait for their turn.
const MOST_FRAMES: usize = 8;

/// Something that it was not the guest's turn to say, or too much of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OutOfTurn;

type Kill = Box<dyn FnOnce() -> BoxFuture<'static, ()> + Send>;

/// A guest at the other end of two streams of bytes. Dropping it kills it.
#[derive(Debug)]
pub(super) struct FarLink {
    shared: Arc<Shared>,
    reports: tokio::sync::Mutex<mpsc::UnboundedReceiver<Report>>,
    tasks: [tokio::task::AbortHandle; 2],
}

struct Shared {
    turns: Mutex<Turns>,
    orders: mpsc::Sender<Frame>,
    voice: Voice,
    /// What seals all frames, once the guest is told to begin.
    key: OnceLock<FrameKey>,
    kill: Mutex<Option<Kill>>,
    /// Turns true when nothing more is to be said or heard.
    over: watch::Sender<bool>,
    /// Turns true when whoever kills from outside has done it.
    killed: watch::Sender<bool>,
    runtime: tokio::runtime::Handle,
    /// What differs at the end becomes a layer.
    keeps: AtomicBool,
    brought: Mutex<Option<io::Result<PrivateLayer>>>,
    heard: Mutex<Instant>,
    /// What was told is being written down here: the guest waits for us.
    writing_down: AtomicBool,
    measured: Mutex<Option<Instant>>,
}

impl fmt::Debug for Shared {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Shared").field("turns", &self.turns).field("over", &self.over).finish_non_exhaustive()
    }
}

impl FarLink {
    /// The guest whose reports come from `reader`, and whose orders go to `writer`. `kill` ends it, and everything with it,
    /// from outside: it is called once, when the guest is not to be believed any more or not needed. `bringing` makes a layer
    /// of what differs at the end, where that is kept.
    pub(super) fn new<K: Future<Output = ()> + Send + 'static>(
        mut reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        kill: impl FnOnce() -> K + Send + 'static,
        bringing: Option<Box<dyn Bringing>>,
    ) -> Self {
        let (orders, next_orders) = mpsc::channel(MOST_ORDERS);
        let (frames, next_frames) = mpsc::channel(MOST_FRAMES);
        let voice = Voice(frames);
        let keeps = AtomicBool::new(bringing.is_some());
        let shared = Arc::new(Shared {
            turns: Mutex::new(Turns::new(voice.clone(), bringing)),
            orders,
            voice,
            key: OnceLock::new(),
            kill: Mutex::new(Some(Box::new(move || Box::pin(kill())))),
            over: watch::Sender::new(false),
            killed: watch::Sender::new(false),
            runtime: tokio::runtime::Handle::current(),
            keeps,
            brought: Mutex::default(),
            heard: Mutex::new(Instant::now()),
            writing_down: AtomicBool::new(false),
            measured: Mutex::default(),
        });
        // No more than was asked for ever waits in it: all else is out of turn.
        let (tell, reports) = mpsc::unbounded_channel();
        let (hearing, saying) = (Arc::clone(&shared), Arc::clone(&shared));
        let hear = tokio::spawn(async move {
            if hearing.hear(&mut reader, &tell).await == Heard::LastWord {
                return;
            }
            hearing.kill();
            // Who is told that it is gone may rely on it.
            hearing.killed.subscribe().wait_for(|killed| *killed).await.ok();
        });
        let say = tokio::spawn(async move {
            let said = wire::write(writer, next_orders, next_frames, saying.over.subscribe()).await;
            // A guest that ends has closed its end before we have heard its last words: those count.
            let may_have_ended = |error: &io::Error| error.kind() != io::ErrorKind::TimedOut && saying.turns().may_end;
            if said.is_err_and(|error| !may_have_ended(&error)) {
                saying.kill();
            }
        });
        Self { shared, reports: tokio::sync::Mutex::new(reports), tasks: [hear.abort_handle(), say.abort_handle()] }
    }

    /// The next report; nothing when the guest is gone.
    pub(super) async fn next(&self) -> Option<Report> {
        self.reports.lock().await.recv().await
    }

    /// Says what makes a layer of what differs at the end, to a guest that was not known to keep anything when it was made.
    /// Only before its wall is raised.
    pub(super) fn keep(&self, bringing: Box<dyn Bringing>) -> io::Result<()> {
        let mut turns = self.shared.turns();
        if !matches!(turns.begun, Begun::NotYet) {
            return Err(gone());
        }
        turns.last = Last::Waiting(bringing);
        self.shared.keeps.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Whether nothing more is to be said or heard.
    pub(super) fn is_over(&self) -> bool {
        *self.shared.over.borrow() || self.tasks.iter().any(tokio::task::AbortHandle::is_finished)
    }

    /// Has the guest raise its wall, and waits until it has proven it; with its door, when it is to open one.
    pub(super) async fn proven(&self, begin: Begin) -> Result<(Proofs, Option<Arriving>), StartError> {
        let watch = |source| StartError::Io { attempt: "watch the guest", source };
        let (sender, proven) = oneshot::channel();
        let (relay, arriving) = begin.door.clone().map(|door| Relay::new(door, self.shared.voice.clone())).unzip();
        {
            let mut turns = self.shared.turns();
            if !matches!(turns.begun, Begun::NotYet) {
                return Err(watch(gone()));
            }
            turns.relay = relay;
            turns.begun = Begun::Asked(sender);
        }
        let key = FrameKey::generate().map_err(watch)?;
        // Before the guest has it, and so before anything can come that is sealed with it.
        self.shared.key.set(key.clone()).map_err(|_| watch(gone()))?;
        self.shared.order(&FarOrder::Begin { begin: Box::new(begin), key }).map_err(watch)?;
        match self.shared.answer(PROVES, proven).await.map_err(watch)? {
            Ok(proofs) => Ok((named(proofs), arriving)),
            Err(why) => Err(start_error(why)),
        }
    }

    /// Whether it said its last word, or was given up: nothing of it runs, or is about to be killed.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.shared.turns().begun, Begun::Gone)
    }

    /// Has a wall proven once more that was proven before anybody needed it.
    pub(super) async fn proven_again(&self) -> Result<Proofs, StartError> {
        let watch = |source| StartError::Io { attempt: "watch the guest", source };
        let (sender, proven) = oneshot::channel();
        {
            let mut turns = self.shared.proven().map_err(watch)?;
            if !turns.programs.is_empty() {
                return Err(watch(io::ErrorKind::ResourceBusy.into()));
            }
            turns.begun = Begun::Asked(sender);
            self.shared.order(&FarOrder::Prove).map_err(watch)?;
        }
        let proofs = self.shared.answer(PROVES, proven).await.map_err(watch)?.map_err(start_error)?;
        Ok(named(proofs))
    }

    /// Gives an order, as to a near guest. What a near one hands out as descriptors, this one cannot.
    pub(super) fn order(&self, order: Order) -> io::Result<()> {
        let mut turns = self.shared.turns();
        match order {
            Order::End | Order::Kill { .. } | Order::Stop { .. } | Order::KillAll => turns.may_end = true,
            Order::Measure => turns.measures += 1,
            Order::Signal { .. } => {}
            Order::Release | Order::Code(_) | Order::Start(_) | Order::Layer | Order::Workspace => {
                return Err(io::ErrorKind::Unsupported.into());
            }
        }
        drop(turns);
        self.shared.order(&FarOrder::Order(order))
    }

    /// Asks what is in use, unless that was just done. The answer is a report.
    pub(super) fn measure_again(&self) -> bool {
        let mut last = self.shared.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| last.elapsed() >= MEASURES_EVERY) && self.shared.turns().measures == 0;
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }

    /// Starts a program with its ends of its pipes: standard input and output, and standard error where it has no terminal.
    pub(super) fn start(&self, start: Start, ends: &[BorrowedFd<'_>]) -> io::Result<()> {
        let [stdin, stdout, stderr @ ..] = ends else { return Err(io::ErrorKind::InvalidInput.into()) };
        let stderr = match (stderr, start.terminal) {
            ([stderr], None) => Some(stderr.try_clone_to_owned()?),
            ([], Some(_)) => None,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        let ends = Ends { stdin: stdin.try_clone_to_owned()?, stdout: stdout.try_clone_to_owned()?, stderr };
        let number = start.number;
        {
            let mut turns = self.shared.turns();
            if !matches!(turns.begun, Begun::Proven) {
                return Err(gone());
            }
            if turns.programs.contains_key(&number) {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            turns.highest = turns.highest.max(number);
            turns.programs.insert(number, Program::new(ends));
        }
        self.shared.order(&FarOrder::Order(Order::Start(Box::new(start))))
    }

    /// Gives a program's terminal another size.
    pub(super) fn resize(&self, program: ProgramNumber, size: TerminalSize) -> io::Result<()> {
        self.shared.order(&FarOrder::Resize { program, size })
    }

    /// Nobody reads or writes for this program any more.
    pub(super) fn forget(&self, program: ProgramNumber) {
        let unread = self.shared.turns().programs.get_mut(&program).map(Program::forget).unwrap_or_default();
        for stream in unread {
            // A guest that cannot be told is gone, and the program with it.
            self.shared.order(&FarOrder::OutputClosed { program, stream }).ok();
        }
    }

    /// Waits until what a program wrote before it ended is in its pipes, at most until `limit`. What it left behind may hold
    /// them open: then until nothing more came for a while.
    pub(super) async fn drained(&self, program: ProgramNumber, limit: Instant) {
        let Some((outlets, moved)) = self.streams(program) else { return };
        let begin = Instant::now();
        loop {
            let next = moved.notified();
            tokio::pin!(next);
            next.as_mut().enable();
            if outlets.iter().all(|outlet| outlet.is_flushed()) {
                return;
            }
            let came = outlets.iter().map(|outlet| outlet.came()).max().unwrap_or(begin).max(begin);
            let holds_something = outlets.iter().any(|outlet| outlet.holds_something());
            let quiet_at = if holds_something { limit } else { limit.min(came + QUIET) };
            tokio::select! {
                () = &mut next => {}
                () = tokio::time::sleep_until(quiet_at.into()) => {
                    let came_since = outlets.iter().any(|outlet| outlet.came() > came);
                    if Instant::now() >= limit || !came_since {
                        return;
                    }
                }
            }
        }
    }

    /// Whether the guest said something within `limit`, or waits for us: for what it told to be written down, or for what
    /// a program wrote to be read.
    pub(super) fn is_heard(&self, limit: Duration) -> bool {
        let holds = |program: &Program| program.outlets().any(|(_, outlet)| outlet.holds_something());
        self.shared.writing_down.load(Ordering::Relaxed)
            || self.shared.heard.lock().unwrap_or_else(PoisonError::into_inner).elapsed() < limit
            || self.shared.turns().programs.values().any(holds)
    }

    fn streams(&self, program: ProgramNumber) -> Option<(Vec<Arc<stream::Outlet>>, Arc<Notify>)> {
        let turns = self.shared.turns();
        let known = turns.programs.get(&program)?;
        Some((known.outlets().map(|(_, outlet)| Arc::clone(outlet)).collect(), Arc::clone(&known.moved)))
    }

    /// What was counted of everything in its place, as it last said.
    pub(super) fn counted(&self) -> Option<CgroupUsage> {
        self.shared.turns().counted
    }

    /// Kills the guest from outside, and everything with it. Once is enough.
    pub(super) fn kill(&self) {
        self.shared.kill();
    }

    /// Whether what differs at the end becomes a layer.
    pub(super) fn keeps_workspace(&self) -> bool {
        self.shared.keeps.load(Ordering::Relaxed)
    }

    /// The layer that was made of what differed at the end; nothing when nothing did. Once.
    pub(super) fn take_brought(&self) -> Option<io::Result<PrivateLayer>> {
        self.shared.brought.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn named(proofs: Vec<Proof>) -> Proofs {
    proofs.into_iter().map(|proof| (proof.name, proof.found)).collect()
}

fn gone() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the guest is gone")
}

impl Drop for FarLink {
    fn drop(&mut self) {
        self.shared.kill();
        self.tasks.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

impl Shared {
    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Only a guest that has proven its wall is asked anything.
    fn proven(&self) -> io::Result<MutexGuard<'_, Turns>> {
        Some(self.turns()).filter(|turns| matches!(turns.begun, Begun::Proven)).ok_or_else(gone)
    }

    fn order(&self, order: &FarOrder) -> io::Result<()> {
        match self.orders.try_send(wire::frame(order)?) {
            // It is gone, and with it all that it kept: what an order could have done, its end has.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.end_from_outside();
                Err(io::Error::new(io::ErrorKind::TimedOut, "the guest does not read its orders"))
            }
        }
    }

    /// Waits for an answer. A guest that does not give it is not waited for again.
    async fn answer<T>(&self, limit: Duration, answer: oneshot::Receiver<T>) -> io::Result<T> {
        match tokio::time::timeout(limit, answer).await {
            Ok(answer) => answer.map_err(|_| gone()),
            Err(_) => {
                self.kill();
                Err(io::ErrorKind::TimedOut.into())
            }
        }
    }

    async fn hear(&self, reader: &mut (impl AsyncRead + Unpin), tell: &mpsc::UnboundedSender<Report>) -> Heard {
        let mut over = self.over.subscribe();
        let mut ear = Ear::new(reader, &self.key);
        loop {
            // However much comes, others get their turn.
            tokio::task::coop::consume_budget().await;
            let said = tokio::select! {
                biased;
                _ = over.wait_for(|over| *over) => return Heard::GivenUp,
                said = ear.next() => said,
            };
            let Ok(Some(said)) = said else { return Heard::GivenUp };
            *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            let step = self.turns().take(said);
            match step {
                Err(OutOfTurn) => return Heard::GivenUp,
                Ok(Step::Nothing) => {}
                Ok(Step::Tell(report)) => {
                    // Who does not listen any more drops the link next.
                    tell.send(report).ok();
                }
                Ok(Step::Bring(parts, nodes)) => self.write_down(Collector::nodes(parts, nodes)).await,
                Ok(Step::Brought(collector, all)) => self.write_down(collector.told(all)).await,
                Ok(Step::BroughtLast(collector, all)) => self.write_down(self.finish(collector, all)).await,
                Ok(Step::Gone(report)) => {
                    self.turns().give_up();
                    tell.send(report).ok();
                    return Heard::LastWord;
                }
            }
        }
    }

    async fn write_down(&self, work: impl Future<Output = ()>) {
        self.writing_down.store(true, Ordering::Relaxed);
        let mut over = self.over.subscribe();
        tokio::select! {
            () = work => {}
            _ = over.wait_for(|over| *over) => {}
        }
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.writing_down.store(false, Ordering::Relaxed);
    }

    async fn finish(&self, collector: Option<Collector>, all: Result<(), String>) {
        let layer = match (collector, all) {
            (_, Err(text)) => Some(Err(said_by_the_guest(&text))),
            (None, Ok(())) => None,
            (Some(collector), Ok(())) => Some(collector.finished().await),
        };
        *self.brought.lock().unwrap_or_else(PoisonError::into_inner) = layer;
    }

    fn kill(&self) {
        self.turns().give_up();
        self.end_from_outside();
    }

    /// Without the turns, which who calls it may hold.
    fn end_from_outside(&self) {
        self.over.send_replace(true);
        let Some(kill) = self.kill.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let killed = self.killed.clone();
        self.runtime.spawn(async move {
            // If it takes longer, our end of the streams is closed all the same, and the guest ends by that.
            tokio::time::timeout(KILLS, kill()).await.ok();
            killed.send_replace(true);
        });
    }
}
