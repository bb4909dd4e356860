//! The door of a far guest: sockets on the container's own loopback, and what programs and the host say to each other through them.
//!
//! Nothing here waits, and nothing is decided here: every connection is the host's to judge. Of each one only so much is held as its
//! window says; over the bound, programs wait in the kernel's queue.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfence_linux::wall::{self, Failed, open_door};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketFlags};
use rustix::process::{Resource, getrlimit};

use crate::far::{FarReport, PIECE};
use crate::programs::said;
use crate::questions::Questions;
use crate::relay::{
    CONNECTION_WINDOW, ConnectionNumber, FarDoor, OfConnection, QuestionNumber, TOLD_FROM, To, ToConnection,
};
use crate::streams::{OutOfTurn, TellFar};

/// Accepted before others get their turn.
const ACCEPTED_AT_ONCE: usize = 16;
/// Without a descriptor for it, a connection is not tried again before this.
const PAUSE: Duration = Duration::from_millis(20);
/// How long what the host sent last may wait for its program.
const LINGERS: Duration = Duration::from_secs(10);

/// The sockets, and what came through them.
#[derive(Debug)]
pub(crate) struct Door {
    listeners: Vec<Listener>,
    questions: Questions,
    most: usize,
    /// The number of the last one.
    last: ConnectionNumber,
    connections: BTreeMap<ConnectionNumber, Connection>,
    /// Nothing is accepted before this.
    paused: Option<Instant>,
    /// Those from here on are looked at first: each has its turn.
    turn: ConnectionNumber,
}

/// A socket, and what those mean that connect to it.
#[derive(Debug)]
struct Listener {
    socket: OwnedFd,
    meant: Meant,
}

/// What is meant by a connection.
#[derive(Debug, Clone, Copy)]
enum Meant {
    Proxy,
    Names,
    /// What its address says.
    Address,
}

#[derive(Debug)]
struct Connection {
    number: ConnectionNumber,
    socket: OwnedFd,
    /// Sent, and not taken by the host.
    untaken: usize,
    /// The program writes no more.
    has_written: bool,
    /// For the program to read.
    waiting: Vec<u8>,
    /// Taken by the program, or its socket, and not told.
    untold: usize,
    down: Down,
}

/// What is to come for the program to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Down {
    More,
    /// Only what waits.
    Last,
    /// Nothing, and the program knows.
    Nothing,
    /// Only what waits, at most until then; and nobody listens to what the program says.
    Leaving(Instant),
}

/// Whether a connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
enum Goes {
    On,
    Over,
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AtTheDoor {
    /// At the listener with this number.
    Somebody(usize),
    Question,
    Connection(ConnectionNumber),
}

impl Door {
    /// Listens. Before the first program runs, so none can take its place.
    pub(crate) fn open(wanted: &FarDoor) -> Result<Self, Failed> {
        let fixed = [(Meant::Proxy, wanted.proxy()), (Meant::Names, wanted.names)];
        let places = wanted.places.iter().map(|at| (Meant::Address, *at));
        let listeners: Result<Vec<_>, Failed> = fixed.into_iter().chain(places).map(Listener::open).collect();
        let (listeners, questions) = (listeners?, Questions::open(wanted.names)?);
        // Programs need descriptors of ours too: their pipes and terminals.
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2;
        let most = u64::from(wanted.connections).min(descriptors).max(1);
        let most = usize::try_from(most).unwrap_or(1);
        Ok(Self { listeners, questions, most, last: 0, connections: BTreeMap::new(), paused: None, turn: 0 })
    }

    /// What to wait for, each with what it is; those whose turn it is come first.
    pub(crate) fn waits(&self) -> impl Iterator<Item = (AtTheDoor, BorrowedFd<'_>, PollFlags)> {
        let takes = self.paused.is_none() && self.connections.len() < self.most;
        let listeners = self.listeners.iter().enumerate().filter(move |_| takes);
        let somebody = listeners.map(|(at, one)| (AtTheDoor::Somebody(at), one.socket.as_fd(), PollFlags::IN));
        let question = self.questions.waits().map(|(socket, flags)| (AtTheDoor::Question, socket, flags));
        let connections = self.connections.range(self.turn..).chain(self.connections.range(..self.turn));
        let connections = connections.filter_map(|(number, connection)| {
            Some((AtTheDoor::Connection(*number), connection.socket.as_fd(), connection.waits_for()?))
        });
        question.into_iter().chain(somebody).chain(connections)
    }

    /// When somebody has to look again although nothing came.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let leaving = self.connections.values().filter_map(Connection::leaves_at);
        leaving.chain(self.paused).min()
    }

    /// Does what is due now that it is `now`.
    pub(crate) fn settle(&mut self, now: Instant, tell: TellFar<'_>) {
        self.paused = self.paused.filter(|until| now < *until);
        self.connections.retain(|_, connection| {
            let is_late = connection.leaves_at().is_some_and(|limit| limit <= now);
            if is_late {
                connection.tell(OfConnection::Closed, tell);
            }
            !is_late
        });
    }

    /// Does what can be done now that a wait for `what` ended with `found`.
    pub(crate) fn go_on(&mut self, what: AtTheDoor, found: PollFlags, tell: TellFar<'_>) {
        match what {
            AtTheDoor::Somebody(at) => self.accept(at, tell),
            AtTheDoor::Question => self.questions.pass_on(tell),
            AtTheDoor::Connection(number) => {
                self.turn = number.saturating_add(1);
                self.with(number, tell, |connection, tell| Ok(connection.go_on(found, tell))).ok();
            }
        }
    }

    /// Does what the host wants of a connection.
    pub(crate) fn obey(
        &mut self,
        number: ConnectionNumber,
        order: ToConnection,
        tell: TellFar<'_>,
    ) -> Result<(), OutOfTurn> {
        if number == 0 || number > self.last {
            return Err(OutOfTurn);
        }
        self.with(number, tell, |connection, tell| match order {
            ToConnection::Bytes(bytes) => connection.take_in(&bytes, tell),
            ToConnection::End => connection.complete(tell),
            ToConnection::Taken(bytes) => connection.taken(bytes),
            ToConnection::Close => Ok(connection.leave(tell)),
        })
    }

    /// Sends the host's answer to who asked for a name.
    pub(crate) fn answer(&mut self, question: QuestionNumber, message: &[u8]) -> Result<(), OutOfTurn> {
        self.questions.answer(question, message)
    }

    /// Acts on a connection that is still there, and closes it if that was its end.
    fn with(
        &mut self,
        number: ConnectionNumber,
        tell: TellFar<'_>,
        act: impl FnOnce(&mut Connection, TellFar<'_>) -> Result<Goes, OutOfTurn>,
    ) -> Result<(), OutOfTurn> {
        let Some(connection) = self.connections.get_mut(&number) else { return Ok(()) };
        if act(connection, tell)? == Goes::Over {
            self.connections.remove(&number);
            tell(FarReport::Connection { connection: number, what: OfConnection::Closed });
        }
        Ok(())
    }

    fn accept(&mut self, at: usize, tell: TellFar<'_>) {
        let Some(listener) = self.listeners.get(at) else { return };
        for _ in 0..ACCEPTED_AT_ONCE {
            if self.connections.len() >= self.most {
                return;
            }
            match rustix::net::accept_with(&listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    // One that leads to nobody knows where is closed.
                    let Some(to) = listener.meant.by(&socket) else { continue };
                    // Only a matter of speed.
                    rustix::net::sockopt::set_tcp_nodelay(&socket, true).ok();
                    self.last += 1;
                    let connection = Connection::new(self.last, socket);
                    connection.tell(OfConnection::Opened(to), tell);
                    self.connections.insert(self.last, connection);
                }
                Err(Errno::AGAIN) => return,
                // It ended before it was taken.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                // Others may give back what is missing.
                Err(_) => {
                    self.paused = Some(Instant::now() + PAUSE);
                    return;
                }
            }
        }
    }
}

impl Listener {
    fn open((meant, at): (Meant, SocketAddrV4)) -> Result<Self, Failed> {
        let socket = open_door(&wall::Door::Stream(at)).map_err(listening(at))?;
        Ok(Self { socket, meant })
    }
}

impl Meant {
    /// What a connection was made to.
    fn by(self, connection: &OwnedFd) -> Option<To> {
        match self {
            Self::Proxy => Some(To::Proxy),
            Self::Names => Some(To::Names),
            Self::Address => {
                let at = rustix::net::getsockname(connection).ok()?;
                SocketAddrV4::try_from(at).ok().map(To::Place)
            }
        }
    }
}

/// Why nobody listens at `at`.
pub(crate) fn listening(at: SocketAddrV4) -> impl Fn(Errno) -> Failed {
    move |errno| match errno {
        Errno::ACCESS => Failed::Said(format!(
            "could not listen at {at}: the container's engine was asked to let ordinary users listen at low ports \
             (net.ipv4.ip_unprivileged_port_start), and it does not; choose another runtime or engine, or `--backend native`"
        )),
        errno => said("listen on the container's loopback, which its engine has to bring up", &errno.into()),
    }
}

impl Connection {
    fn new(number: ConnectionNumber, socket: OwnedFd) -> Self {
        let (waiting, down) = (Vec::new(), Down::More);
        Self { number, socket, untaken: 0, has_written: false, waiting, untold: 0, down }
    }

    fn tell(&self, what: OfConnection, tell: TellFar<'_>) {
        tell(FarReport::Connection { connection: self.number, what });
    }

    fn reads(&self) -> bool {
        !self.has_written && self.untaken < CONNECTION_WINDOW && !matches!(self.down, Down::Leaving(_))
    }

    /// Nothing when nothing could be done about whatever is found: it would wake us for ever.
    fn waits_for(&self) -> Option<PollFlags> {
        let mut flags = PollFlags::empty();
        if self.reads() {
            flags |= PollFlags::IN;
        }
        if !self.waiting.is_empty() {
            flags |= PollFlags::OUT;
        }
        // One that only waits for the host is looked at for a reset.
        (!flags.is_empty() || self.has_written).then_some(flags)
    }

    fn leaves_at(&self) -> Option<Instant> {
        match self.down {
            Down::Leaving(limit) => Some(limit),
            Down::More | Down::Last | Down::Nothing => None,
        }
    }

    fn go_on(&mut self, found: PollFlags, tell: TellFar<'_>) -> Goes {
        let is_broken = found.intersects(PollFlags::ERR | PollFlags::HUP);
        if found.contains(PollFlags::OUT) && self.feed(tell) == Goes::Over {
            return Goes::Over;
        }
        if !self.reads() {
            return if is_broken { Goes::Over } else { Goes::On };
        }
        if is_broken || found.contains(PollFlags::IN) { self.pass_on(is_broken, tell) } else { Goes::On }
    }

    /// Sends one piece of what the program wrote.
    fn pass_on(&mut self, is_broken: bool, tell: TellFar<'_>) -> Goes {
        let mut bytes = vec![0; PIECE.min(CONNECTION_WINDOW.saturating_sub(self.untaken))];
        match rustix::io::read(&self.socket, bytes.as_mut_slice()) {
            Ok(0) => {
                self.has_written = true;
                self.tell(OfConnection::End, tell);
                if self.down == Down::Nothing { Goes::Over } else { Goes::On }
            }
            Ok(read) => {
                bytes.truncate(read);
                self.untaken += read;
                self.tell(OfConnection::Bytes(bytes), tell);
                Goes::On
            }
            Err(Errno::INTR) => Goes::On,
            Err(Errno::AGAIN) if !is_broken => Goes::On,
            Err(_) => Goes::Over,
        }
    }

    fn take_in(&mut self, bytes: &[u8], tell: TellFar<'_>) -> Result<Goes, OutOfTurn> {
        let held = self.waiting.len().saturating_add(self.untold).saturating_add(bytes.len());
        if self.down != Down::More || held > CONNECTION_WINDOW {
            return Err(OutOfTurn);
        }
        self.waiting.extend_from_slice(bytes);
        Ok(self.feed(tell))
    }

    fn complete(&mut self, tell: TellFar<'_>) -> Result<Goes, OutOfTurn> {
        if self.down != Down::More {
            return Err(OutOfTurn);
        }
        self.down = Down::Last;
        Ok(self.feed(tell))
    }

    /// The host has room for so much more.
    fn taken(&mut self, bytes: u32) -> Result<Goes, OutOfTurn> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.untaken = self.untaken.checked_sub(bytes).ok_or(OutOfTurn)?;
        Ok(Goes::On)
    }

    /// Nobody is at the other end any more.
    fn leave(&mut self, tell: TellFar<'_>) -> Goes {
        self.down = Down::Leaving(Instant::now() + LINGERS);
        self.feed(tell)
    }

    /// Writes what the program has room for.
    fn feed(&mut self, tell: TellFar<'_>) -> Goes {
        let mut written = 0;
        while let Some(rest) = self.waiting.get(written..).filter(|rest| !rest.is_empty()) {
            match rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL) {
                Ok(more) => written += more,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => return Goes::Over,
            }
        }
        self.waiting.drain(..written);
        self.untold += written;
        if self.waiting.is_empty() {
            // An idle connection costs no buffer.
            self.waiting = Vec::new();
        }
        if self.untold >= TOLD_FROM
            && let Ok(bytes) = u32::try_from(self.untold)
        {
            self.untold = 0;
            self.tell(OfConnection::Taken(bytes), tell);
        }
        if self.waiting.is_empty() { self.end_down() } else { Goes::On }
    }

    /// All that came was written.
    fn end_down(&mut self) -> Goes {
        match self.down {
            Down::More | Down::Nothing => Goes::On,
            Down::Leaving(_) => Goes::Over,
            Down::Last => {
                self.down = Down::Nothing;
                let is_told = rustix::net::shutdown(&self.socket, Shutdown::Write).is_ok();
                if self.has_written || !is_told { Goes::Over } else { Goes::On }
            }
        }
    }
}
