//! Tunnels: `CONNECT`, SOCKS5 and connections whose target is known. One way for all three.
//!
//! The name that was asked for is not believed: what is spoken inside has to name the same host.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_rustls::LazyConfigAcceptor;

use crate::client_hello::{BadHello, ClientHello, HANDSHAKE, read_hello};
use crate::copy;
use crate::decide::{Access, Decision, Handling, Target, deny_because};
use crate::denial::{Denied, Reason, plain};
use crate::host::Host;
use crate::inspect::{Inspector, Version};
use crate::origin::Origin;
use crate::place::{OnePlace, Place};
use crate::proxy::{Shared, answer_denied, read_some, say_and_close};
use crate::record::{Ending, Ticket, Via};
use crate::resolve::{Checked, Dialled, Unchecked, check, dial};
use crate::site::Site;
use crate::socks::Reply;
use crate::stream::{Rewound, Stream};
use crate::tasks::Tasks;

/// A fatal alert: access denied. All that can be said to a client that speaks TLS.
const ACCESS_DENIED: [u8; 7] = [21, 3, 3, 0, 2, 2, 49];

/// How long we wait for the first words of a program that is denied: clients of HTTP and TLS speak at once.
const SPEAKS: Duration = Duration::from_secs(1);

/// How a tunnel is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Greeting {
    Http,
    Socks,
    /// Nobody waits for an answer.
    None,
}

/// A tunnel that somebody wants.
#[derive(Debug)]
pub(crate) struct Tunnel {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stream: Stream,
    /// What was read already of what is spoken inside.
    pub(crate) before: Vec<u8>,
    pub(crate) via: Via,
    pub(crate) greeting: Greeting,
    pub(crate) permit: Arc<OwnedSemaphorePermit>,
}

/// What is spoken inside a tunnel.
enum Spoken {
    Tls(ClientHello),
    Http,
    Unknown,
    /// It ended, or nothing came.
    Nothing,
}

impl Tunnel {
    /// Decides, looks up, dials, and passes on what may pass.
    pub(crate) async fn open(mut self, host: Host, port: u16) {
        let started = Instant::now();
        let shared = Arc::clone(&self.shared);
        let host = shared.named(host);
        let target = Target { host: &host, port, access: Access::Connection };
        let allowed = match shared.decide(&target).await {
            Decision::Allowed(allowed) => allowed,
            Decision::Denied(denied) => return self.deny(&target, denied).await,
        };
        if allowed.handling == Handling::Inspect && shared.inspector.is_none() {
            let why = "the rule needs TLS to be opened, and this sandbox has no authority for it";
            let denied = deny_because(&shared.rules, &target, Reason::NeedsInspection, why);
            return self.deny(&target, denied).await;
        }
        let meter = match shared.account.connection(&host.to_string(), allowed.budget) {
            Ok(meter) => meter,
            Err(over) => {
                let denied = deny_because(&shared.rules, &target, Reason::Budget, &over.to_string());
                return self.deny(&target, denied).await;
            }
        };
        let gate = shared.gate.as_ref();
        let checked = match check(&shared.rules, &*shared.resolver, gate, &host, port, shared.limits.resolve).await {
            Ok(checked) => checked,
            Err(Unchecked::Denied(why)) => {
                let denied = deny_because(&shared.rules, &target, Reason::Address, &why);
                return self.deny(&target, denied).await;
            }
            Err(Unchecked::Failed(error)) => return self.fail(&host, &error).await,
        };
        let record = shared.record(self.via, &target, None, Arc::clone(&allowed.rule));
        let ticket = Ticket::open(record, &shared.sink, meter, started);
        if let Some(gate) = checked.through() {
            ticket.goes_through(gate.name());
        }
        let outside = match dial(&checked, shared.limits.connect).await {
            Ok(outside) => outside,
            Err(error) => return self.fail(&host, &error).await,
        };
        ticket.dialled(outside.address);
        ticket.answered(None);
        if self.greet().await.is_err() {
            return;
        }
        match allowed.handling {
            Handling::Tcp => self.pass(&target, outside, &ticket).await,
            Handling::Web => self.web(&target, checked, outside, ticket, None).await,
            Handling::Inspect => {
                let inspector = shared.inspector.clone();
                self.web(&target, checked, outside, ticket, inspector).await;
            }
        }
    }

    /// TLS whose name agrees, or HTTP, and nothing else.
    ///
    /// What speaks HTTP or opens TLS has an allocation of its own: a tunnel that only passes bytes on stays small.
    async fn web(
        mut self,
        target: &Target<'_>,
        checked: Checked,
        outside: Dialled,
        ticket: Arc<Ticket>,
        inspector: Option<Arc<Inspector>>,
    ) {
        match self.listen().await {
            Ok(Spoken::Nothing) => ticket.end(Ending::Complete),
            Ok(Spoken::Http) => Box::pin(self.http(target, checked, outside, &ticket)).await,
            Ok(Spoken::Tls(hello)) => {
                if let Err((reason, why)) = agrees(&hello, target.host, inspector.as_deref()) {
                    let denied = deny_because(&self.shared.rules, target, reason, why);
                    ticket.end(Ending::Cut);
                    return self.deny_inside(target, &denied, &ACCESS_DENIED).await;
                }
                match inspector {
                    None => self.pass(target, outside, &ticket).await,
                    Some(inspector) => {
                        Box::pin(self.inspect(target, checked, outside, &inspector, ticket)).await;
                    }
                }
            }
            Ok(Spoken::Unknown) => {
                let why =
                    "neither HTTP nor TLS is spoken in the connection; the rule would have to say `protocol: tcp`";
                let denied = deny_because(&self.shared.rules, target, Reason::Protocol, why);
                ticket.end(Ending::Cut);
                self.deny_inside(target, &denied, &[]).await;
            }
            Err(bad) => {
                let (reason, why) = match bad {
                    BadHello::NotTls => (Reason::Protocol, "the connection begins like TLS and is none"),
                    BadHello::TooLong => (Reason::Protocol, "the first message of TLS is too long"),
                    BadHello::Name => (Reason::NamesDisagree, "the name that TLS asks for is not one"),
                };
                let denied = deny_because(&self.shared.rules, target, reason, why);
                ticket.end(Ending::Cut);
                self.deny_inside(target, &denied, &ACCESS_DENIED).await;
            }
        }
    }

    /// Reads until it is clear what is spoken.
    async fn listen(&mut self) -> Result<Spoken, BadHello> {
        let reading = async {
            loop {
                let spoken = match self.before.as_slice() {
                    [] => None,
                    [HANDSHAKE, ..] => read_hello(&self.before)?.map(Spoken::Tls),
                    [b'A'..=b'Z', ..] => Some(Spoken::Http),
                    [..] => Some(Spoken::Unknown),
                };
                match spoken {
                    Some(spoken) => return Ok(spoken),
                    None => match read_some(&mut self.stream, &mut self.before).await {
                        Ok(0) | Err(_) => return Ok(Spoken::Nothing),
                        Ok(_) => {}
                    },
                }
            }
        };
        timeout(self.shared.limits.handshake, reading).await.unwrap_or(Ok(Spoken::Nothing))
    }

    /// Passes bytes on without a look at them. To a budget of requests that is one.
    async fn pass(self, target: &Target<'_>, outside: Dialled, ticket: &Ticket) {
        if let Err(over) = ticket.meter.one_more_request() {
            let denied = deny_because(&self.shared.rules, target, Reason::Budget, &over.to_string());
            ticket.end(Ending::Cut);
            let last: &[u8] = if self.before.first() == Some(&HANDSHAKE) { &ACCESS_DENIED } else { &[] };
            return self.deny_inside(target, &denied, last).await;
        }
        let Self { shared, stream, before, permit, .. } = self;
        let ending = copy::copy(stream, before, outside.stream, &ticket.meter, shared.limits.idle).await;
        ticket.end(ending);
        drop(permit);
    }

    /// Plain HTTP in a tunnel is judged request by request, like any other.
    async fn http(self, target: &Target<'_>, checked: Checked, outside: Dialled, ticket: &Ticket) {
        let Self { shared, stream, before, permit, .. } = self;
        let tasks = Tasks::new();
        let origin = Origin::plain(outside, &shared.limits, &tasks.spawner()).await.ok();
        let one = OnePlace { host: target.host.clone(), port: target.port, checked, tls: None, failed: None };
        let site = Site::new(shared, Via::Tunnelled, Place::One(one), origin, permit, tasks.spawner());
        let served = site.serve(Rewound::new(before, stream), Version::Http1, tasks).await;
        ticket.end(if served.is_ok() { Ending::Complete } else { Ending::Broken });
    }

    async fn inspect(
        self,
        target: &Target<'_>,
        checked: Checked,
        outside: Dialled,
        inspector: &Inspector,
        ticket: Arc<Ticket>,
    ) {
        let Self { shared, stream, before, permit, .. } = self;
        let limits = shared.limits;
        let stream = Rewound::new(before, stream);
        let acceptor = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream);
        let Ok(Ok(start)) = timeout(limits.handshake, acceptor).await else { return };
        let offered = Version::offered(start.client_hello().alpn());
        // First to the origin: what it speaks is what the inside is offered, so that nothing has to be translated.
        let Ok(config) = inspector.to_origin(offered) else { return };
        let tasks = Tasks::new();
        let tls = Origin::tls(outside, target.host, Arc::clone(&config), &limits, &tasks.spawner()).await;
        let (origin, version, failed) = match tls {
            Ok((origin, version)) => (Some(origin), version, None),
            Err(error) => {
                let why = format!("could not be verified, or does not speak TLS: {}", plain(&error.to_string()));
                (None, Version::Http1, Some(why))
            }
        };
        let Ok(to_inside) = inspector.to_inside(target.host, version) else { return };
        let Ok(Ok(stream)) = timeout(limits.handshake, start.into_stream(to_inside)).await else { return };
        let version = Version::agreed(stream.get_ref().1.alpn_protocol());
        let Ok(again) = inspector.to_origin(version) else { return };
        let one =
            OnePlace { host: target.host.clone(), port: target.port, checked, tls: Some((again, version)), failed };
        let site = Site::new(shared, Via::Inspected, Place::One(one), origin, permit, tasks.spawner());
        let served = site.serve(stream, version, tasks).await;
        ticket.end(if served.is_ok() { Ending::Complete } else { Ending::Broken });
    }

    async fn greet(&mut self) -> std::io::Result<()> {
        match self.greeting {
            Greeting::Http => self.stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await,
            Greeting::Socks => self.stream.write_all(&Reply::Succeeded.bytes()).await,
            Greeting::None => Ok(()),
        }
    }

    fn tell(&self, target: &Target<'_>, denied: &Denied) {
        let record = self.shared.record(self.via, target, Some(denied.reason), Arc::clone(&denied.rule));
        self.shared.sink.decided(&record);
    }

    /// Before the tunnel stands.
    async fn deny(mut self, target: &Target<'_>, denied: Denied) {
        self.tell(target, &denied);
        match self.greeting {
            Greeting::Http => answer_denied(&mut self.stream, 403, &denied.text).await,
            Greeting::Socks => say_and_close(&mut self.stream, &Reply::NotAllowed.bytes()).await,
            // In the words of whoever speaks first, if somebody does soon.
            Greeting::None => match timeout(SPEAKS, self.listen()).await.unwrap_or(Ok(Spoken::Nothing)) {
                Ok(Spoken::Http) => answer_denied(&mut self.stream, 403, &denied.text).await,
                Ok(Spoken::Tls(_)) | Err(_) => say_and_close(&mut self.stream, &ACCESS_DENIED).await,
                Ok(Spoken::Unknown | Spoken::Nothing) => {}
            },
        }
    }

    /// After it stands.
    async fn deny_inside(mut self, target: &Target<'_>, denied: &Denied, last: &[u8]) {
        self.tell(target, denied);
        say_and_close(&mut self.stream, last).await;
    }

    async fn fail(mut self, host: &Host, error: &std::io::Error) {
        let text = format!("{host} could not be reached: {}.\n", plain(&error.to_string()));
        match self.greeting {
            Greeting::Http => answer_denied(&mut self.stream, 502, &text).await,
            Greeting::Socks => say_and_close(&mut self.stream, &Reply::Failed.bytes()).await,
            Greeting::None => {}
        }
    }
}

/// Whether the name in TLS is the one that the tunnel is for.
fn agrees(hello: &ClientHello, host: &Host, inspector: Option<&Inspector>) -> Result<(), (Reason, &'static str)> {
    match (&hello.name, host) {
        (Some(name), host) if name == host => {}
        (Some(_), _) => {
            return Err((Reason::NamesDisagree, "TLS asks for another name than the one of the connection"));
        }
        // An address has no name to ask for, and was named by the policy itself.
        (None, Host::Address(_) | Host::ThisMachine(_)) => {}
        (None, Host::Name(_)) => {
            let why = "TLS does not say which name it asks for; the rule would have to say `protocol: tcp`";
            return Err((Reason::Protocol, why));
        }
    }
    if hello.encrypted && inspector.is_none() {
        let why = "TLS asks for a second name that is encrypted; switch encrypted client hello off";
        return Err((Reason::NamesDisagree, why));
    }
    Ok(())
}
