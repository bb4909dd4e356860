//! A guest in the event loop: of one program, or kept for the runs of a session.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_guest::protocol::ProgramNumber;
use ringfence_guest::{Guest, Order, Received, Report, Start, Why};
use ringfence_linux::passing::MOST_DESCRIPTORS;
use ringfence_linux::{Layer, Room, Usage, tree};
use ringfence_policy::NetMode;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot, watch};

use super::door::{Doors, Given};
use super::far::FarLink;
use super::lead_out::{LISTEN, lead_out};
use super::{StartError, WallError};
use crate::egress::Egress;
use crate::plan::Plan;
use crate::way_out::WayOut;
use crate::workspace::layer::{Life, Lower, PrivateLayer};

/// How long a wall may take to be raised.
const RAISING: Duration = Duration::from_secs(30);

/// How long a guest may take to answer a question.
const ANSWERS: Duration = Duration::from_secs(2);

/// What was seen from inside: names of guarantees, and what was found.
pub(crate) type Proofs = Vec<(String, String)>;

/// A guest whose reports can be waited for.
#[derive(Debug)]
pub(super) enum Link {
    /// One that descriptors can be handed to.
    Near(Near),
    /// One that everything is sent to as bytes.
    Far(Arc<FarLink>),
}

/// A guest that shares a socket with us.
#[derive(Debug)]
pub(super) struct Near {
    /// The control socket in the event loop. It only tells that there is a report: the guest's own side reads it.
    readable: UnixStream,
    guest: Guest,
}

impl Near {
    /// However many reports there are, others get their turn.
    async fn next(&self) -> io::Result<Option<Received>> {
        tokio::task::yield_now().await;
        loop {
            // A report may be waiting in full already, with nothing more to come.
            match self.readable.try_io(Interest::READABLE, || self.guest.receive()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.readable.readable().await?,
                received => return received,
            }
        }
    }
}

impl Link {
    pub(super) fn new(guest: Guest) -> io::Result<Self> {
        Ok(Self::Near(Near { readable: UnixStream::from_std(guest.control()?.into())?, guest }))
    }

    /// The next report; nothing when the guest is gone.
    pub(super) async fn next(&self) -> io::Result<Option<Received>> {
        match self {
            Self::Near(near) => near.next().await,
            Self::Far(far) => Ok(far.next().await.map(|report| Received { report, descriptor: None })),
        }
    }

    pub(super) fn order(&self, order: Order) -> io::Result<()> {
        match self {
            Self::Near(near) => near.guest.send(&order, &[]),
            Self::Far(far) => far.order(order),
        }
    }

    pub(super) fn kill(&self) {
        match self {
            Self::Near(near) => near.guest.kill(),
            Self::Far(far) => far.kill(),
        }
    }

    /// What is in use, as the host sees it; nothing where it cannot look.
    pub(super) fn sample(&self) -> Option<tree::Sample> {
        match self {
            Self::Near(near) => Some(tree::sample(near.guest.pid())),
            Self::Far(_) => None,
        }
    }

    /// What a guest says last; nothing when it says something else.
    pub(super) fn left(&self, received: &mut Received) -> Option<Left> {
        let Report::Gone { layer, room, usage } = received.report else { return None };
        let source = match self {
            Self::Near(_) => LeftLayer::Handed(received.descriptor.take()),
            Self::Far(far) if far.keeps_workspace() => LeftLayer::Brought(far.take_brought()),
            Self::Far(_) => LeftLayer::Nobodys,
        };
        Some(Left { layer: source, changed: layer == Layer::Changed, full: room == Room::Full, usage })
    }

    /// Waits until the guest has proven its wall, and opens the way out that the policy of `plan` allows.
    pub(super) async fn proven_for(
        &self,
        plan: &Plan,
        way_out: Option<WayOut>,
    ) -> Result<(Proofs, Option<Egress>), StartError> {
        let (proofs, sockets) = self.proven().await?;
        let policy = &plan.policy().net;
        let is_open = policy.mode.value == NetMode::Allowlist;
        let doors = is_open.then(|| Given::new(sockets, policy).map(Doors::Given)).transpose();
        let doors = doors.map_err(|source| StartError::Io { attempt: LISTEN, source })?;
        lead_out(proofs, doors, way_out, plan).await
    }

    /// Waits until the guest has proven its wall. A far one is asked to do so by itself.
    async fn proven(&self) -> Result<(Proofs, Vec<OwnedFd>), StartError> {
        let watch = |source| StartError::Io { attempt: "watch the guest", source };
        let mut sockets = Vec::new();
        loop {
            let next = tokio::time::timeout(RAISING, self.next()).await;
            let next = next.map_err(|_| watch(io::ErrorKind::TimedOut.into()))?.map_err(watch)?;
            match next.map(|received| (received.report, received.descriptor)) {
                Some((Report::Door, Some(socket))) if sockets.len() < MOST_DESCRIPTORS => sockets.push(socket),
                Some((Report::Proven(proofs), _)) => {
                    return Ok((proofs.into_iter().map(|proof| (proof.name, proof.found)).collect(), sockets));
                }
                Some((Report::Failed { why, .. }, _)) => return Err(start_error(why)),
                _ => return Err(watch(io::ErrorKind::UnexpectedEof.into())),
            }
        }
    }
}

/// What is left of a wall when its guest is gone.
#[derive(Debug)]
pub(super) struct Left {
    layer: LeftLayer,
    pub(super) changed: bool,
    /// Nothing more could have been written.
    pub(super) full: bool,
    /// What everything used.
    pub(super) usage: Usage,
}

/// The private layer, until somebody takes it.
#[derive(Debug)]
enum LeftLayer {
    /// As a near guest sent it, when it holds changes and is kept.
    Handed(Option<OwnedFd>),
    /// As it was made here of what a far guest told, when it told of changes.
    Brought(Option<io::Result<PrivateLayer>>),
    /// A far guest was to forget it.
    Nobodys,
}

impl Left {
    /// The layer over `lower`, when there is something in it. What a far guest told has its own below it.
    pub(super) fn take_layer(&mut self, lower: Option<&Arc<Lower>>) -> io::Result<Option<PrivateLayer>> {
        match (&mut self.layer, lower) {
            (LeftLayer::Nobodys, _) | (LeftLayer::Handed(_), None) => return Ok(None),
            (LeftLayer::Handed(handed), Some(lower)) => {
                if let Some(upper) = handed.take() {
                    return PrivateLayer::new(upper, Arc::clone(lower), Life::Over).map(Some);
                }
            }
            (LeftLayer::Brought(brought), _) => {
                if let Some(layer) = brought.take() {
                    return layer.map(Some);
                }
            }
        }
        if self.changed {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the guest did not hand over the private layer"));
        }
        Ok(None)
    }
}

/// A guest that was killed has told nothing of its private layer, which went with it.
pub(super) fn no_last_word() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the guest ended before it could hand over the private layer")
}

/// Why nothing was started, in the words of a guest.
pub(super) fn start_error(why: Why) -> StartError {
    match why {
        Why::Step(stage, errno) => StartError::Step { stage, source: io::Error::from_raw_os_error(errno) },
        Why::Said(text) => StartError::Wall(WallError(text)),
    }
}

/// The same report as a keeper would make it. Those that only a guest has come out of turn here.
pub(super) fn as_keepers(report: Report) -> io::Result<ringfence_linux::Report> {
    match report {
        Report::Started { .. } => Ok(ringfence_linux::Report::Started { pid: 0 }),
        Report::Failed { why: Why::Step(stage, errno), .. } => Ok(ringfence_linux::Report::Failed { stage, errno }),
        Report::Ended { wait_status, usage, left, .. } => {
            Ok(ringfence_linux::Report::Ended { wait_status, usage, left })
        }
        Report::Gone { usage, layer, .. } => Ok(ringfence_linux::Report::Gone { usage, layer }),
        Report::Proven(_)
        | Report::Door
        | Report::Measured { .. }
        | Report::Layer { .. }
        | Report::Workspace { .. }
        | Report::Failed { .. } => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the guest said something out of turn"))
        }
    }
}

/// Started or failed, and ended: more cannot be said of a program.
const REPORTS_OF_A_PROGRAM: usize = 2;

/// A report that nobody waits for.
struct OutOfTurn;

/// Those who wait for a descriptor, in the order in which they asked.
type Waiting = VecDeque<oneshot::Sender<Option<OwnedFd>>>;

/// A guest that is kept, and serves several programs at once.
#[derive(Debug, Clone)]
pub(super) struct Kept(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    link: Arc<Link>,
    programs: Mutex<BTreeMap<ProgramNumber, mpsc::Sender<Received>>>,
    next: AtomicU32,
    measured: watch::Sender<Option<(u64, u64)>>,
    /// Questions that are not answered yet.
    asked: AtomicU32,
    /// Those who wait for the private layer.
    layers: Mutex<Waiting>,
    /// Those who wait for the workspace with it.
    workspaces: Mutex<Waiting>,
    /// Turns true when the guest is gone.
    gone: watch::Sender<bool>,
    /// What it left, until somebody takes it.
    left: Mutex<Option<Left>>,
    reader: Mutex<Option<tokio::task::AbortHandle>>,
}

impl Kept {
    /// Keeps the guest at the other end of `link`, which has proven its wall.
    pub(super) fn new(link: Link) -> Self {
        let shared = Arc::new(Shared {
            link: Arc::new(link),
            programs: Mutex::default(),
            next: AtomicU32::new(1),
            measured: watch::Sender::new(None),
            asked: AtomicU32::new(0),
            layers: Mutex::default(),
            workspaces: Mutex::default(),
            gone: watch::Sender::new(false),
            left: Mutex::default(),
            reader: Mutex::new(None),
        });
        let (link, weak) = (Arc::clone(&shared.link), Arc::downgrade(&shared));
        let reader = tokio::spawn(async move {
            let mut left = None;
            while let Ok(Some(mut received)) = link.next().await {
                let Some(shared) = weak.upgrade() else { return };
                left = link.left(&mut received).or(left);
                if shared.deliver(received).is_err() {
                    break;
                }
            }
            // It is gone, or said something that is none of ours: either way it gets no second chance.
            link.kill();
            if let Some(shared) = weak.upgrade() {
                shared.programs.lock().unwrap_or_else(PoisonError::into_inner).clear();
                for waiting in [&shared.layers, &shared.workspaces] {
                    waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
                }
                *shared.left.lock().unwrap_or_else(PoisonError::into_inner) = left;
                shared.gone.send_replace(true);
            }
        });
        *shared.reader.lock().unwrap_or_else(PoisonError::into_inner) = Some(reader.abort_handle());
        Self(shared)
    }

    /// A number for a program, and where its reports come.
    pub(super) fn enlist(&self) -> (ProgramNumber, mpsc::Receiver<Received>) {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = mpsc::channel(REPORTS_OF_A_PROGRAM);
        if !*self.0.gone.borrow() {
            self.0.programs.lock().unwrap_or_else(PoisonError::into_inner).insert(number, sender);
        }
        (number, receiver)
    }

    /// No more reports of this program are wanted.
    pub(super) fn forget(&self, number: ProgramNumber) {
        self.0.programs.lock().unwrap_or_else(PoisonError::into_inner).remove(&number);
        if let Link::Far(far) = &*self.0.link {
            far.forget(number);
        }
    }

    pub(super) fn start(&self, start: Start, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        match &*self.0.link {
            Link::Near(near) => near.guest.send(&Order::Start(Box::new(start)), descriptors),
            Link::Far(far) => far.start(start, descriptors),
        }
    }

    pub(super) fn order(&self, order: Order) -> io::Result<()> {
        self.0.link.order(order)
    }

    pub(super) fn kill(&self) {
        self.0.link.kill();
    }

    /// The far guest, when it is one.
    pub(super) fn far(&self) -> Option<&FarLink> {
        match &*self.0.link {
            Link::Near(_) => None,
            Link::Far(far) => Some(far),
        }
    }

    /// What is in use. Where the host cannot look, what the guest told last, which is then asked again.
    pub(super) fn sample(&self) -> tree::Sample {
        if let Some(sample) = self.0.link.sample() {
            return sample;
        }
        if self.far().is_some_and(FarLink::measure_again) {
            self.0.asked.fetch_add(1, Ordering::Relaxed);
            // One that is gone uses nothing.
            self.order(Order::Measure).ok();
        }
        let (tasks, resident_bytes) = self.0.measured.borrow().unwrap_or_default();
        tree::Sample { tasks, resident_bytes, capped: false }
    }

    /// Asks the guest what is in use: processes and threads, and resident bytes.
    pub(super) async fn measure(&self) -> io::Result<(u64, u64)> {
        let mut measured = self.0.measured.subscribe();
        measured.borrow_and_update();
        self.0.asked.fetch_add(1, Ordering::Relaxed);
        self.order(Order::Measure)?;
        let answered = tokio::time::timeout(ANSWERS, async {
            tokio::select! {
                biased;
                answered = measured.changed() => answered.is_ok(),
                () = self.gone() => false,
            }
        });
        match answered.await {
            Ok(true) => measured.borrow().ok_or_else(|| io::ErrorKind::UnexpectedEof.into()),
            Ok(false) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Asks the guest for the private layer that is kept, as it is now.
    pub(super) async fn layer(&self) -> io::Result<Option<OwnedFd>> {
        self.ask_for(&self.0.layers, Order::Layer).await
    }

    /// Asks the guest for the folder with that layer, as programs see it.
    pub(super) async fn workspace(&self) -> io::Result<Option<OwnedFd>> {
        self.ask_for(&self.0.workspaces, Order::Workspace).await
    }

    async fn ask_for(&self, waiting: &Mutex<Waiting>, order: Order) -> io::Result<Option<OwnedFd>> {
        let (sender, handed) = oneshot::channel();
        {
            // The order goes out under the lock: answers come in the order in which they were asked for.
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if *self.0.gone.borrow() {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the session is gone"));
            }
            waiting.push_back(sender);
            self.order(order)?;
        }
        match tokio::time::timeout(ANSWERS, handed).await {
            Ok(Ok(handed)) => Ok(handed),
            Ok(Err(_)) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the session is gone")),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    /// Waits until the guest is gone.
    pub(super) async fn gone(&self) {
        // An error would mean that nobody can tell any more, and so that it is.
        self.0.gone.subscribe().wait_for(|gone| *gone).await.ok();
    }

    /// What the guest left, once.
    pub(super) fn take_left(&self) -> Option<Left> {
        self.0.left.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Shared {
    /// Passes a report on, unless it comes out of turn: then nothing more of this guest is believed.
    fn deliver(&self, received: Received) -> Result<(), OutOfTurn> {
        let program = match &received.report {
            Report::Started { program, .. } | Report::Failed { program, .. } | Report::Ended { program, .. } => {
                *program
            }
            Report::Measured { tasks, resident_bytes } => {
                let asked = self.asked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |asked| asked.checked_sub(1));
                self.measured.send_replace(Some((*tasks, *resident_bytes)));
                return asked.map(|_| ()).map_err(|_| OutOfTurn);
            }
            Report::Layer { .. } | Report::Workspace { .. } => {
                let asked = match received.report {
                    Report::Layer { .. } => &self.layers,
                    _ => &self.workspaces,
                };
                let waiting = asked.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                // Whoever has given up waiting needs none.
                waiting.ok_or(OutOfTurn)?.send(received.descriptor).ok();
                return Ok(());
            }
            Report::Gone { .. } => return Ok(()),
            Report::Proven(_) | Report::Door => return Err(OutOfTurn),
        };
        let programs = self.programs.lock().unwrap_or_else(PoisonError::into_inner);
        match programs.get(&program).map(|sender| sender.try_send(received)) {
            Some(Err(mpsc::error::TrySendError::Full(_))) => Err(OutOfTurn),
            // A run that is over waits for nothing more.
            Some(Ok(()) | Err(mpsc::error::TrySendError::Closed(_))) | None => Ok(()),
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(reader) = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take() {
            reader.abort();
        }
    }
}

/// The screen's end of a terminal, as a guest sent it: it must be one.
pub(super) fn terminal(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    if rustix::termios::isatty(&descriptor) {
        Ok(descriptor)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidData, "the guest sent something that is no terminal"))
    }
}
