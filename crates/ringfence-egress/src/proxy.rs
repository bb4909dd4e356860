//! The proxy of one sandbox. It serves what it is given: a listener, or single connections.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::ask::{Ask, Asking};
use crate::authority::Authority;
use crate::budget::{Account, Budgets};
use crate::credential::{Credential, Credentials};
use crate::decide::{Access, Decision, Target, decide, deny_because};
use crate::denial::{Denied, Reason};
use crate::host::{Host, Loopback};
use crate::inspect::{Inspector, Version};
use crate::limits::Limits;
use crate::listener::Listener;
use crate::names::Names;
use crate::place::Place;
use crate::record::{Identity, NoSink, Record, Sink, Via};
use crate::request_head::{RequestHead, read_head};
use crate::resolve::{Resolve, SystemResolver};
use crate::rules::Rules;
use crate::site::Site;
use crate::socks::{self, BadHandshake, Read, Reply};
use crate::stream::{Rewound, Stream};
use crate::tasks::Tasks;
use crate::tunnel::{Greeting, Tunnel};
use crate::upstream::{Gate, Upstream};

/// The way out of one sandbox. Cloning it is cheap, and both serve the same sandbox.
#[derive(Debug, Clone)]
pub struct Proxy(Arc<Shared>);

/// What all connections of a sandbox share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) identity: Identity,
    pub(crate) rules: Arc<Rules>,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) sink: Arc<dyn Sink>,
    pub(crate) limits: Limits,
    pub(crate) account: Arc<Account>,
    pub(crate) inspector: Option<Arc<Inspector>>,
    pub(crate) credentials: Credentials,
    pub(crate) gate: Option<Arc<Gate>>,
    asking: Option<Asking>,
    permits: Arc<Semaphore>,
    /// Set when programs are told addresses of names.
    names: OnceLock<Arc<Names>>,
}

/// What a proxy is made of. Only identity and rules are needed.
#[derive(Debug)]
pub struct ProxyBuilder {
    identity: Identity,
    rules: Rules,
    resolver: Arc<dyn Resolve>,
    sink: Arc<dyn Sink>,
    limits: Limits,
    budgets: Budgets,
    inspector: Option<Arc<Inspector>>,
    credentials: Vec<Credential>,
    upstream: Option<Upstream>,
    ask: Option<Arc<dyn Ask>>,
}

impl ProxyBuilder {
    /// Looks names up in another way than the system's.
    #[must_use]
    pub fn resolver(mut self, resolver: Arc<dyn Resolve>) -> Self {
        self.resolver = resolver;
        self
    }

    /// Writes decisions down.
    #[must_use]
    pub fn sink(mut self, sink: Arc<dyn Sink>) -> Self {
        self.sink = sink;
        self
    }

    /// Other bounds than the default.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Budgets for the run.
    #[must_use]
    pub fn budgets(mut self, budgets: Budgets) -> Self {
        self.budgets = budgets;
        self
    }

    /// Opens TLS where a rule says so. Without an inspector, what such a rule allows is denied.
    #[must_use]
    pub fn inspector(mut self, inspector: Arc<Inspector>) -> Self {
        self.inspector = Some(inspector);
        self
    }

    /// Adds a credential that rules may name.
    #[must_use]
    pub fn credential(mut self, credential: Credential) -> Self {
        self.credentials.push(credential);
        self
    }

    /// Goes out through another proxy.
    #[must_use]
    pub fn upstream(mut self, upstream: Upstream) -> Self {
        self.upstream = Some(upstream);
        self
    }

    /// Asks somebody about hosts that no rule names. Without, they are denied.
    #[must_use]
    pub fn ask(mut self, ask: Arc<dyn Ask>) -> Self {
        self.ask = Some(ask);
        self
    }

    /// The proxy.
    pub fn build(self) -> Proxy {
        let gate = self.upstream.map(|upstream| Arc::new(Gate::new(upstream, Arc::clone(&self.resolver))));
        let asking = self.ask.map(|ask| Asking::new(ask, &self.rules, self.limits.answer));
        Proxy(Arc::new(Shared {
            identity: self.identity,
            account: Account::new(self.budgets, self.rules.budgets()),
            rules: Arc::new(self.rules),
            resolver: self.resolver,
            sink: self.sink,
            inspector: self.inspector,
            credentials: Credentials::new(self.credentials),
            gate,
            asking,
            permits: Arc::new(Semaphore::new(self.limits.connections)),
            names: OnceLock::new(),
            limits: self.limits,
        }))
    }
}

impl Proxy {
    /// A proxy for the sandbox `identity`, under `rules`.
    pub fn builder(identity: Identity, rules: Rules) -> ProxyBuilder {
        ProxyBuilder {
            identity,
            rules,
            resolver: Arc::new(SystemResolver::default()),
            sink: Arc::new(NoSink),
            limits: Limits::default(),
            budgets: Budgets::default(),
            inspector: None,
            credentials: Vec::new(),
            upstream: None,
            ask: None,
        }
    }

    /// Serves every connection that arrives, until the listener fails. Dropping the future ends all of them.
    ///
    /// Whatever arrives here is taken for the sandbox of this proxy: the listener must be reachable from there alone.
    pub async fn serve(&self, listener: impl Into<Listener>) -> io::Error {
        let mut listener = listener.into();
        if let Err(error) = listener.prepare() {
            return error;
        }
        let mut connections = JoinSet::new();
        loop {
            // Taken before accepting: what is over the bound waits in the kernel, and costs nothing here.
            let permit = self.permit().await;
            let accepted = listener.accept().await;
            // Those that have ended, so that the set does not grow. Nobody is woken for each of them.
            while connections.try_join_next().is_some() {}
            match accepted {
                Ok(stream) => {
                    let proxy = self.clone();
                    connections.spawn(async move { proxy.speak(stream, permit).await });
                }
                // The connection ended before it was taken, or we are short of descriptors: neither ends the listener.
                Err(error) if is_passing(&error) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                Err(error) => return error,
            }
        }
    }

    /// Serves one connection to its end: HTTP, `CONNECT` or SOCKS5, told apart by the first byte.
    pub async fn serve_stream(&self, stream: impl Into<Stream>) {
        let permit = self.permit().await;
        self.speak(stream.into(), permit).await;
    }

    /// Serves one connection whose target is known already: from the address that it was made to, for instance.
    pub async fn serve_target(&self, stream: impl Into<Stream>, host: &str, port: u16) {
        let permit = self.permit().await;
        let tunnel = Tunnel {
            shared: Arc::clone(&self.0),
            stream: stream.into(),
            before: Vec::new(),
            via: Via::Transparent,
            greeting: Greeting::None,
            permit,
        };
        match Host::parse(host) {
            Ok(host) => tunnel.open(host, port).await,
            Err(error) => drop(self.0.deny_unnamed(Via::Transparent, Reason::BadHost, host, &error.to_string())),
        }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0
    }

    pub(crate) async fn permit(&self) -> Arc<OwnedSemaphorePermit> {
        loop {
            if let Ok(permit) = Arc::clone(&self.0.permits).acquire_owned().await {
                return Arc::new(permit);
            }
            // Nobody closes the semaphore. If somebody did, nothing more would be served.
            std::future::pending::<()>().await;
        }
    }

    async fn speak(&self, mut stream: Stream, permit: Arc<OwnedSemaphorePermit>) {
        let mut before = Vec::new();
        let limit = self.0.limits.handshake;
        let first = timeout(limit, read_some(&mut stream, &mut before)).await;
        if !matches!(first, Ok(Ok(length)) if length > 0) {
            return;
        }
        match before.first() {
            Some(&socks::VERSION) => self.speak_socks(stream, before, permit).await,
            _ => self.speak_http(stream, before, permit).await,
        }
    }

    async fn speak_http(&self, mut stream: Stream, mut before: Vec<u8>, permit: Arc<OwnedSemaphorePermit>) {
        let shared = &self.0;
        let reading = async {
            let mut searched = 0;
            loop {
                // Only what is new is searched, and a head is read when it is whole: one that drips costs no more than another.
                let is_whole = before.get(searched..).is_some_and(|new| new.windows(4).any(|end| end == b"\r\n\r\n"));
                if is_whole || before.len() > shared.limits.head.bytes {
                    match read_head(&before, shared.limits.head) {
                        Ok(Some(head)) => return Ok(Some(head)),
                        Err(bad) => return Err(bad),
                        Ok(None) => {}
                    }
                }
                searched = before.len().saturating_sub(3);
                match read_some(&mut stream, &mut before).await {
                    Ok(0) | Err(_) => return Ok(None),
                    Ok(_) => {}
                }
            }
        };
        let head = match timeout(shared.limits.handshake, reading).await {
            Ok(Ok(Some(head))) => head,
            Ok(Ok(None)) | Err(_) => return,
            Ok(Err(bad)) => {
                let denied = shared.deny_unnamed(Via::Forward, Reason::BadRequest, "a request", &bad.to_string());
                return answer_denied(&mut stream, 400, &denied.text).await;
            }
        };
        if head.method == "CONNECT" {
            return self.connect(stream, before, head, permit).await;
        }
        let tasks = Tasks::new();
        let site = Site::new(Arc::clone(shared), Via::Forward, Place::Anywhere, None, permit, tasks.spawner());
        // An error here is the end of the connection, and its requests have been told.
        drop(Box::pin(site.serve(Rewound::new(before, stream), Version::Http1, tasks)).await);
    }

    async fn connect(
        &self,
        mut stream: Stream,
        mut before: Vec<u8>,
        head: RequestHead,
        permit: Arc<OwnedSemaphorePermit>,
    ) {
        let shared = &self.0;
        let after = before.split_off(head.length.min(before.len()));
        let target = Authority::parse(&head.target).and_then(|target| match (&head.host, target.port) {
            (_, None) => Err(crate::host::BadHost::new("CONNECT needs a port")),
            (None, Some(port)) => Ok((target.host, port)),
            (Some(said), Some(port)) => {
                let said = Authority::parse(said)?;
                // Some clients leave the port out of `Host`.
                let agrees = said.host == target.host && said.port.is_none_or(|said| said == port);
                if agrees { Ok((target.host, port)) } else { Err(crate::host::BadHost::new("Host names another host")) }
            }
        });
        // A tunnel may be long and idle, and holds nothing that it does not need.
        drop(before);
        match target {
            Ok((host, port)) => {
                drop(head);
                let tunnel = Tunnel {
                    shared: Arc::clone(shared),
                    stream,
                    before: after,
                    via: Via::Connect,
                    greeting: Greeting::Http,
                    permit,
                };
                tunnel.open(host, port).await;
            }
            Err(error) => {
                let what = format!("CONNECT {}", head.target.rsplit('@').next().unwrap_or_default());
                let denied = shared.deny_unnamed(Via::Connect, Reason::BadHost, &what, &error.to_string());
                answer_denied(&mut stream, 403, &denied.text).await;
            }
        }
    }

    async fn speak_socks(&self, mut stream: Stream, mut before: Vec<u8>, permit: Arc<OwnedSemaphorePermit>) {
        let shared = &self.0;
        let handshake = async {
            let ((), length) = read_message(&mut stream, &mut before, socks::read_greeting).await?;
            drop(before.drain(..length));
            stream.write_all(&[socks::VERSION, 0]).await.map_err(|_| None)?;
            let (request, length) = read_message(&mut stream, &mut before, socks::read_request).await?;
            drop(before.drain(..length));
            Ok(request)
        };
        let request = match timeout(shared.limits.handshake, handshake).await {
            Ok(Ok(request)) => request,
            Ok(Err(None)) | Err(_) => return,
            Ok(Err(Some(bad))) => {
                let answer: &[u8] = match bad {
                    BadHandshake::NoAcceptableMethod => &[socks::VERSION, 0xff],
                    BadHandshake::Command => &Reply::CommandNotSupported.bytes(),
                    BadHandshake::AddressType => &Reply::AddressTypeNotSupported.bytes(),
                    BadHandshake::Version => &Reply::Failed.bytes(),
                };
                let why = "SOCKS is spoken here in version 5, without a password and for connections alone";
                drop(shared.deny_unnamed(Via::Socks, Reason::BadRequest, "a SOCKS request", why));
                return say_and_close(&mut stream, answer).await;
            }
        };
        match request.host {
            Ok(host) => {
                let tunnel = Tunnel {
                    shared: Arc::clone(shared),
                    stream,
                    before,
                    via: Via::Socks,
                    greeting: Greeting::Socks,
                    permit,
                };
                tunnel.open(host, request.port).await;
            }
            Err(error) => {
                drop(shared.deny_unnamed(Via::Socks, Reason::BadHost, "a SOCKS request", &error.to_string()));
                say_and_close(&mut stream, &Reply::NotAllowed.bytes()).await;
            }
        }
    }
}

/// Errors of `accept` that say nothing about the listener.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted, WouldBlock};
    // EMFILE, ENFILE, ENOBUFS, ENOMEM: others may give back what is missing.
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted | WouldBlock)
        || matches!(error.raw_os_error(), Some(24 | 23 | 105 | 12))
}

pub(crate) async fn read_some(stream: &mut Stream, bytes: &mut Vec<u8>) -> io::Result<usize> {
    bytes.reserve(4096);
    stream.read_buf(bytes).await
}

/// `None` is the end of the connection.
async fn read_message<T>(
    stream: &mut Stream,
    bytes: &mut Vec<u8>,
    read: impl Fn(&[u8]) -> Result<Read<T>, BadHandshake>,
) -> Result<(T, usize), Option<BadHandshake>> {
    loop {
        match read(bytes) {
            Ok(Read::Complete(message, length)) => return Ok((message, length)),
            Ok(Read::Incomplete) => match read_some(stream, bytes).await {
                Ok(0) | Err(_) => return Err(None),
                Ok(_) => {}
            },
            Err(bad) => return Err(Some(bad)),
        }
    }
}

/// Says why, in HTTP, and closes.
pub(crate) async fn answer_denied(stream: &mut Stream, status: u16, text: &str) {
    let reason = match status {
        400 => "Bad Request",
        502 => "Bad Gateway",
        _ => "Forbidden",
    };
    let answer = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: text/plain; charset=us-ascii\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    say_and_close(stream, answer.as_bytes()).await;
}

/// Says something last. Whether it arrives is the other side's affair.
pub(crate) async fn say_and_close(stream: &mut Stream, bytes: &[u8]) {
    let saying = async {
        stream.write_all(bytes).await?;
        stream.shutdown().await?;
        // Read what is still coming, some of it: bytes that nobody reads would take the answer back with a reset.
        let mut rest = vec![0; 1024];
        for _ in 0..64 {
            if stream.read(&mut rest).await? == 0 {
                break;
            }
        }
        Ok::<(), io::Error>(())
    };
    drop(timeout(std::time::Duration::from_secs(2), saying).await);
}

impl Shared {
    /// The rules, with what was approved.
    pub(crate) fn rules_by_now(&self) -> Arc<Rules> {
        self.asking.as_ref().map_or_else(|| Arc::clone(&self.rules), Asking::rules)
    }

    /// The decision; where no rule names the host, after somebody was asked.
    pub(crate) async fn decide(&self, target: &Target<'_>) -> Decision {
        if self.credentials.are_named_in(target.host) {
            // Looked up, it would be told to whoever answers for the names around it.
            let why = "a placeholder in a name is never replaced; send it in a header";
            return Decision::Denied(deny_because(&self.rules, target, Reason::Credential, why));
        }
        match (decide(&self.rules, target), &self.asking) {
            (Decision::Denied(denied), Some(asking)) => asking.decide(target, denied).await,
            (decision, _) => decision,
        }
    }

    pub(crate) fn use_names(&self, names: &Arc<Names>) {
        self.names.get_or_init(|| Arc::clone(names));
    }

    /// The name that an address stands for which programs were told instead; some look names up first, and then ask for the address.
    pub(crate) fn named(&self, host: Host) -> Host {
        let named = match (&host, self.names.get()) {
            // In some sandboxes they are addresses of the loopback.
            (
                Host::Address(IpAddr::V4(address)) | Host::ThisMachine(Loopback::Address(IpAddr::V4(address))),
                Some(names),
            ) => names.name_at(*address),
            _ => None,
        };
        named.unwrap_or(host)
    }

    pub(crate) fn record(&self, via: Via, target: &Target<'_>, denied: Option<Reason>, rule: Arc<str>) -> Record {
        let (method, path) = match target.access {
            Access::Connection => (None, None),
            Access::Request { method, path, .. } => (Some(method.to_owned()), Some(path.raw().to_owned())),
        };
        let host = target.host.to_string();
        Record { identity: self.identity.clone(), via, host, port: target.port, method, path, denied, rule }
    }

    /// Denies what names no host in a way that can be judged.
    pub(crate) fn deny_unnamed(&self, via: Via, reason: Reason, what: &str, why: &str) -> Denied {
        let denied = Denied::new(reason, None, what, why, &self.rules.summary());
        self.sink.decided(&Record {
            identity: self.identity.clone(),
            via,
            host: crate::denial::plain(what),
            port: 0,
            method: None,
            path: None,
            denied: Some(reason),
            rule: Arc::clone(&denied.rule),
        });
        denied
    }
}
