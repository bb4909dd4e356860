//! What is written down of each decision. The proxy keeps none of it; a [`Sink`] does.

use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::budget::Meter;
use crate::denial::Reason;

/// Which sandbox is asking. Known from the listener, never from what a program says.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The sandbox.
    pub sandbox: Arc<str>,
    /// The run.
    pub run: Arc<str>,
}

impl Identity {
    /// An identity for a sandbox and a run in it.
    pub fn new(sandbox: impl Into<Arc<str>>, run: impl Into<Arc<str>>) -> Self {
        Self { sandbox: sandbox.into(), run: run.into() }
    }
}

/// The way that was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Via {
    /// A plain HTTP request with a whole URL.
    Forward,
    /// `CONNECT`.
    Connect,
    /// SOCKS5.
    Socks,
    /// A connection whose target was known from its address.
    Transparent,
    /// A question for a name, which has no port.
    Lookup,
    /// A request inside a tunnel, plain.
    Tunnelled,
    /// A request inside TLS that was opened.
    Inspected,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Who asked.
    pub identity: Identity,
    /// By which way.
    pub via: Via,
    /// The host in canonical form; for one without, what was sent, as plain ASCII.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The method of a request.
    pub method: Option<String>,
    /// The path of a request, without its query.
    pub path: Option<String>,
    /// `None` is allowed.
    pub denied: Option<Reason>,
    /// The rule that decided.
    pub rule: Arc<str>,
}

/// How an allowed request or connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// As both sides wanted.
    Complete,
    /// By an error of the network or of one side.
    Broken,
    /// Nothing came for too long.
    Idle,
    /// A budget was used up meanwhile.
    OverBudget,
    /// The proxy cut it, because of a credential.
    Cut,
}

/// What an allowed request or connection came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// Bytes out of the sandbox: of a body, or of a tunnel.
    pub bytes_up: u64,
    /// Bytes into it.
    pub bytes_down: u64,
    /// The status of a response.
    pub status: Option<u16>,
    /// The address that was dialled.
    pub address: Option<IpAddr>,
    /// The proxy that it went through: then the address is that proxy's.
    pub through: Option<Arc<str>>,
    /// Until there was a connection, or the head of a response.
    pub latency: Option<Duration>,
    /// All in all.
    pub took: Duration,
    /// How it ended.
    pub ending: Ending,
}

/// Takes what was decided. Called from the proxy's tasks: it must not block.
pub trait Sink: fmt::Debug + Send + Sync {
    /// Something was decided; nothing of it has happened yet. Says a number by which it knows it again.
    fn decided(&self, record: &Record) -> u64;
    /// Something that was allowed, and had this number, has ended. Called once for each that was decided so.
    fn ended(&self, number: u64, record: &Record, usage: &Usage);
}

/// Forgets everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoSink;

impl Sink for NoSink {
    fn decided(&self, _: &Record) -> u64 {
        0
    }

    fn ended(&self, _: u64, _: &Record, _: &Usage) {}
}

/// An allowed request or connection. When the last holder drops it, its end is told.
#[derive(Debug)]
pub(crate) struct Ticket {
    number: u64,
    record: Record,
    sink: Arc<dyn Sink>,
    pub(crate) meter: Meter,
    started: Instant,
    latency: OnceLock<Duration>,
    address: OnceLock<IpAddr>,
    through: OnceLock<Arc<str>>,
    status: AtomicU16,
    ending: Mutex<Option<Ending>>,
}

impl Ticket {
    /// Tells the sink that `record` was allowed.
    pub(crate) fn open(record: Record, sink: &Arc<dyn Sink>, meter: Meter, started: Instant) -> Arc<Self> {
        Arc::new(Self {
            number: sink.decided(&record),
            record,
            sink: Arc::clone(sink),
            meter,
            started,
            latency: OnceLock::new(),
            address: OnceLock::new(),
            through: OnceLock::new(),
            status: AtomicU16::new(0),
            ending: Mutex::new(None),
        })
    }

    /// There is a connection, or the head of a response. The first time counts.
    pub(crate) fn answered(&self, status: Option<u16>) {
        self.latency.get_or_init(|| self.started.elapsed());
        if let Some(status) = status {
            self.status.store(status, Ordering::Relaxed);
        }
    }

    pub(crate) fn dialled(&self, address: IpAddr) {
        self.address.get_or_init(|| address);
    }

    pub(crate) fn goes_through(&self, upstream: Arc<str>) {
        self.through.get_or_init(|| upstream);
    }

    /// The first ending counts: what follows is its consequence.
    pub(crate) fn end(&self, ending: Ending) {
        self.ending.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(ending);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let (bytes_up, bytes_down) = self.meter.passed();
        let status = self.status.load(Ordering::Relaxed);
        let ending = *self.ending.get_mut().unwrap_or_else(PoisonError::into_inner);
        let usage = Usage {
            bytes_up,
            bytes_down,
            status: (status != 0).then_some(status),
            address: self.address.get().copied(),
            through: self.through.get().cloned(),
            latency: self.latency.get().copied(),
            took: self.started.elapsed(),
            ending: ending.unwrap_or(Ending::Broken),
        };
        self.sink.ended(self.number, &self.record, &usage);
    }
}
