//! Programs that know nothing of proxies: they ask for a name, are told a made-up address, and connect to it. From the address
//! the name is known, and the connection is served like a tunnel to it.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::denial::Reason;
use crate::dns::{self, ADDRESS_4, ADDRESS_6, Code, LONGEST_MESSAGE, Question};
use crate::host::{Host, Loopback};
use crate::listener::{Listener, send_at_once};
use crate::names::{Named, Names};
use crate::proxy::{Proxy, Shared, is_passing};
use crate::record::{Record, Via};
use crate::stream::Stream;
use crate::tunnel::{Greeting, Tunnel};

/// Where such programs are met. Whatever arrives here is taken for the sandbox of the proxy.
#[derive(Debug)]
pub struct Direct {
    /// The names, which must be those of the sockets.
    pub names: Arc<Names>,
    /// Questions for names, one by one.
    pub questions: Questions,
    /// Questions over connections.
    pub long_questions: Listener,
    /// Connections to names, and to this machine.
    pub connections: Arrivals,
}

/// Where single questions for names arrive.
#[derive(Debug)]
pub enum Questions {
    /// At a socket in the sandbox's own network namespace.
    Socket(UdpSocket),
    /// As somebody relays them.
    Relayed(mpsc::Receiver<RelayedQuestion>),
}

/// A question that somebody relays. Without an answer, nobody is answered.
#[derive(Debug)]
pub struct RelayedQuestion {
    /// The message, as it was sent.
    pub message: Vec<u8>,
    /// Where its answer goes.
    pub answer: oneshot::Sender<Vec<u8>>,
}

/// Where connections arrive whose target is known by the address that they were made to.
#[derive(Debug)]
pub enum Arrivals {
    /// At sockets in the sandbox's own network namespace.
    Sockets(Vec<TcpListener>),
    /// As somebody relays them, each with that address.
    Relayed(mpsc::Receiver<(Stream, SocketAddrV4)>),
}

/// The most connections at the same time that only ask for names.
const MOST_ASKING: usize = 8;
/// How long such a connection may say nothing.
const ASKING: Duration = Duration::from_secs(5);

impl Proxy {
    /// Serves programs that know nothing of proxies, until a listener fails. Dropping the future ends all of their connections.
    pub async fn serve_direct(&self, direct: Direct) -> io::Error {
        let Direct { names, mut questions, mut long_questions, mut connections } = direct;
        self.shared().use_names(&names);
        tokio::select! {
            error = self.answer_questions(&mut questions, &names) => error,
            error = self.answer_connections(&mut long_questions, &names) => error,
            error = self.serve_places(&mut connections, &names) => error,
        }
    }

    async fn answer_questions(&self, questions: &mut Questions, names: &Names) -> io::Error {
        let socket = match questions {
            Questions::Socket(socket) => socket,
            Questions::Relayed(relayed) => {
                while let Some(RelayedQuestion { message, answer }) = relayed.recv().await {
                    if let Some(told) = self.shared().tell_name(&message, names) {
                        // Who relays may be gone, and then nobody waits for it.
                        answer.send(told).ok();
                    }
                }
                return io::ErrorKind::BrokenPipe.into();
            }
        };
        // One that is longer is cut, and none.
        let mut message = [0; LONGEST_MESSAGE + 1];
        loop {
            match socket.recv_from(&mut message).await {
                Ok((length, from)) => {
                    let told = self.shared().tell_name(message.get(..length).unwrap_or_default(), names);
                    if let Some(told) = told {
                        // Whoever does not take answers asks again.
                        socket.try_send_to(&told, from).ok();
                    }
                }
                Err(error) if is_passing(&error) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => return error,
            }
        }
    }

    async fn answer_connections(&self, listener: &mut Listener, names: &Arc<Names>) -> io::Error {
        let mut asking = JoinSet::new();
        loop {
            if asking.len() >= MOST_ASKING {
                asking.join_next().await;
                continue;
            }
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = asking.join_next() => continue,
            };
            match accepted {
                Ok(stream) => {
                    let (proxy, names) = (self.clone(), Arc::clone(names));
                    asking.spawn(async move { drop(proxy.answer_stream(stream, &names).await) });
                }
                Err(error) if is_passing(&error) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => return error,
            }
        }
    }

    /// Answers one question after the other, each with its length before it.
    async fn answer_stream(&self, mut stream: Stream, names: &Names) -> io::Result<()> {
        loop {
            let turn = async {
                let length = usize::from(stream.read_u16().await?);
                if length > LONGEST_MESSAGE {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                let mut message = vec![0; length];
                stream.read_exact(&mut message).await?;
                let told = self.shared().tell_name(&message, names).ok_or(io::ErrorKind::InvalidData)?;
                let length = u16::try_from(told.len()).map_err(|_| io::ErrorKind::InvalidData)?;
                stream.write_all(&[&length.to_be_bytes(), told.as_slice()].concat()).await
            };
            timeout(ASKING, turn).await??;
        }
    }

    /// Like [`Proxy::serve`], for all that arrives there together: a place that nobody connects to holds no permit.
    async fn serve_places(&self, arrivals: &mut Arrivals, names: &Arc<Names>) -> io::Error {
        if let Err(error) = arrivals.prepare() {
            return error;
        }
        if arrivals.is_nowhere() {
            // A permit that waits here would be one less for others.
            return std::future::pending().await;
        }
        let mut connections = JoinSet::new();
        let mut first = 0;
        loop {
            let permit = self.permit().await;
            let arrived = arrivals.next(&mut first).await;
            while connections.try_join_next().is_some() {}
            match arrived {
                Ok((stream, to)) => {
                    let (proxy, names) = (self.clone(), Arc::clone(names));
                    connections.spawn(async move { proxy.serve_place(stream, to, &names, permit).await });
                }
                Err(error) if is_passing(&error) => tokio::time::sleep(Duration::from_millis(20)).await,
                Err(error) => return error,
            }
        }
    }

    async fn serve_place(&self, stream: Stream, to: SocketAddr, names: &Names, permit: Arc<OwnedSemaphorePermit>) {
        let host = match to {
            SocketAddr::V4(v4) => names.host_at(*v4.ip()),
            SocketAddr::V6(_) => Host::of_address(to.ip()),
        };
        // Which of this machine's loopback addresses is meant is not said by one of the sandbox's.
        let host = match host {
            Host::ThisMachine(_) => Host::ThisMachine(Loopback::Name),
            host => host,
        };
        let tunnel = Tunnel {
            shared: Arc::clone(self.shared()),
            stream,
            before: Vec::new(),
            via: Via::Transparent,
            greeting: Greeting::None,
            permit,
        };
        tunnel.open(host, to.port()).await;
    }
}

impl Arrivals {
    fn is_nowhere(&self) -> bool {
        matches!(self, Self::Sockets(listeners) if listeners.is_empty())
    }

    /// Called once before the first is taken.
    fn prepare(&self) -> io::Result<()> {
        match self {
            Self::Sockets(listeners) => listeners.iter().try_for_each(send_at_once),
            Self::Relayed(_) => Ok(()),
        }
    }

    /// The next connection, and where it was made to. Sockets are asked from `first` on: one that is always busy must not starve the others.
    async fn next(&mut self, first: &mut usize) -> io::Result<(Stream, SocketAddr)> {
        match self {
            Self::Relayed(relayed) => {
                let (stream, to) = relayed.recv().await.ok_or(io::ErrorKind::BrokenPipe)?;
                Ok((stream, to.into()))
            }
            Self::Sockets(listeners) => {
                let mut accept = |context: &mut Context<'_>| {
                    for at in (0..listeners.len()).map(|at| (*first + at) % listeners.len()) {
                        if let Some(Poll::Ready(accepted)) = listeners.get(at).map(|one| one.poll_accept(context)) {
                            *first = at + 1;
                            return Poll::Ready(accepted);
                        }
                    }
                    Poll::Pending
                };
                loop {
                    let (stream, _) = poll_fn(&mut accept).await?;
                    // One that leads to nobody knows where is dropped, and its place serves others.
                    if let Ok(to) = stream.local_addr() {
                        return Ok((stream.into(), to));
                    }
                }
            }
        }
    }
}

impl Shared {
    /// The answer to a message that asks for a name; nothing to one that asks for nothing.
    fn tell_name(&self, message: &[u8], names: &Names) -> Option<Vec<u8>> {
        let question = match dns::read_question(message) {
            Ok(question) => question,
            Err(bad) => return dns::refuse(message, bad),
        };
        let (code, address) = self.judge_name(&question, names);
        Some(dns::answer(message, &question, code, address))
    }

    fn judge_name(&self, question: &Question, names: &Names) -> (Code, Option<IpAddr>) {
        let (asked, is_service) = without_service(&question.name);
        let host = match Host::parse_bytes(asked) {
            Ok(host) => host,
            // Who has which address is asked by many programs, and means nothing here.
            Err(_) if asked.is_empty() || asked.to_ascii_lowercase().ends_with(b".arpa") => {
                return (Code::NoSuchName, None);
            }
            Err(error) => {
                let name = String::from_utf8_lossy(asked);
                drop(self.deny_unnamed(Via::Lookup, Reason::BadHost, &name, &error.to_string()));
                return (Code::NoSuchName, None);
            }
        };
        if let Host::ThisMachine(_) = host {
            let address = match question.kind {
                ADDRESS_4 => Some(Ipv4Addr::LOCALHOST.into()),
                ADDRESS_6 => Some(Ipv6Addr::LOCALHOST.into()),
                _ => None,
            };
            return (Code::Fine, address);
        }
        // An address has no name that leads to it, and must not become one.
        if let Host::Address(_) = host {
            return (Code::NoSuchName, None);
        }
        let is_reverse = matches!(&host, Host::Name(name) if name.ends_with(".arpa"));
        match names.address_of(&self.rules_by_now(), &host) {
            Named::Denied(_) if is_reverse => (Code::NoSuchName, None),
            Named::Denied(denied) => {
                self.sink.decided(&Record {
                    identity: self.identity.clone(),
                    via: Via::Lookup,
                    host: host.to_string(),
                    port: 0,
                    method: None,
                    path: None,
                    denied: Some(denied.reason),
                    rule: denied.rule,
                });
                (Code::NoSuchName, None)
            }
            Named::Full => (Code::Failed, None),
            // Below an allowed name there may be services, which nobody tells of here.
            Named::Address(_) if is_service => (Code::NoSuchName, None),
            Named::Address(address) if question.kind == ADDRESS_4 => (Code::Fine, Some(address.into())),
            // It has no other record; in particular, no address of IPv6.
            Named::Address(_) => (Code::Fine, None),
        }
    }
}

/// The name without what it begins with when a service is asked for, such as `_https._tcp.`; and whether it did.
fn without_service(name: &[u8]) -> (&[u8], bool) {
    let mut rest = name;
    while rest.first() == Some(&b'_') {
        rest = rest.iter().position(|byte| *byte == b'.').and_then(|dot| rest.get(dot + 1..)).unwrap_or_default();
    }
    (rest, rest.len() != name.len())
}
