//! The only ways out of a wall's own network: sockets in it at which this process listens, or those of a guest that relays what comes.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringfence_egress::{
    Arrivals, Direct, Listener, NAME_SERVER, NamedAddresses, Names, Places, Questions, RelayedQuestion, Stream,
};
use ringfence_guest::relay::{FarDoor, MOST_CONNECTIONS};
use ringfence_linux::wall;
use ringfence_policy::{NetMode, NetPolicy};
use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use tokio::sync::mpsc;

use crate::egress::most_connections;

/// Where the proxy is inside.
pub(crate) const PORT: u16 = 3128;
const PROXY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT);

/// Where programs meet us that know nothing of proxies, in a network that is given `addresses` for them.
fn places(policy: &NetPolicy, addresses: NamedAddresses) -> Places {
    Places::of_policy(policy, addresses, &[PORT, NAME_SERVER.port()])
}

/// What a guest is to make in its network under `policy`.
pub(super) fn wanted(policy: &NetPolicy) -> wall::Doors {
    if policy.mode.value != NetMode::Allowlist {
        return wall::Doors::default();
    }
    let fixed = [wall::Door::Stream(PROXY), wall::Door::Datagram(NAME_SERVER), wall::Door::Stream(NAME_SERVER)];
    let addresses = NamedAddresses::OF_NO_HOST;
    let direct = places(policy, addresses).sockets().iter().copied().map(wall::Door::Stream).collect::<Vec<_>>();
    wall::Doors { sockets: [&fixed, direct.as_slice()].concat(), addresses: Some((addresses.first, addresses.bits)) }
}

/// What a far guest is to open in its network under `policy`, where it has no power over that: its loopback is as an engine made it.
pub(super) fn wanted_of_a_far_guest(policy: &NetPolicy) -> Option<FarDoor> {
    (policy.mode.value == NetMode::Allowlist).then(|| FarDoor {
        port: PORT,
        names: NAME_SERVER,
        places: places(policy, NamedAddresses::OF_A_LOOPBACK).sockets().to_vec(),
        // More could not be served here.
        connections: u32::try_from(most_connections()).unwrap_or(u32::MAX).min(MOST_CONNECTIONS),
    })
}

/// The doors of a wall, which a guest opened before anything ran behind it.
#[derive(Debug)]
pub(crate) enum Doors {
    /// Sockets that the guest made in its network and gave to us.
    Given(Given),
    /// Sockets that are the guest's, and what comes through them.
    Relayed(Arriving, Places),
}

/// What a guest relays.
#[derive(Debug)]
pub(crate) struct Arriving {
    /// Connections to the proxy.
    pub(super) proxy: mpsc::Receiver<Stream>,
    /// Questions for names.
    pub(super) questions: mpsc::Receiver<RelayedQuestion>,
    /// Connections for such questions.
    pub(super) long_questions: mpsc::Receiver<Stream>,
    /// Connections to addresses that stand for something, each with that.
    pub(super) connections: mpsc::Receiver<(Stream, SocketAddrV4)>,
}

impl Doors {
    /// Those of a far guest that opened what was wanted under `policy`.
    pub(super) fn relayed(arriving: Arriving, policy: &NetPolicy) -> Self {
        Self::Relayed(arriving, places(policy, NamedAddresses::OF_A_LOOPBACK))
    }

    /// What there is, in words.
    pub(super) fn describe(&self) -> String {
        let (Self::Given(Given { places, .. }) | Self::Relayed(_, places)) = self;
        let mut text = format!("our proxy at {PROXY}, and at {} for allowed names", places.addresses());
        if places.omitted() > 0 {
            text.push_str(&format!(" ({} ports of them at {PROXY} alone)", places.omitted()));
        }
        text
    }

    /// To be listened at by this runtime: the proxy's own, and those for programs that know nothing of it.
    pub(crate) fn listen(self) -> io::Result<(Listener, Direct)> {
        match self {
            Self::Given(given) => given.listen().map(|(proxy, direct)| (proxy.into(), direct)),
            Self::Relayed(arriving, places) => {
                let direct = Direct {
                    names: Arc::new(Names::new(&places)),
                    questions: Questions::Relayed(arriving.questions),
                    long_questions: arriving.long_questions.into(),
                    connections: Arrivals::Relayed(arriving.connections),
                };
                Ok((arriving.proxy.into(), direct))
            }
        }
    }
}

/// Sockets in a network that is not ours.
#[derive(Debug)]
pub(crate) struct Given {
    proxy: TcpListener,
    questions: UdpSocket,
    long_questions: TcpListener,
    connections: Vec<TcpListener>,
    places: Places,
}

impl Given {
    /// The doors behind `sockets`, which must be what was wanted under `policy`, in that order.
    pub(super) fn new(sockets: Vec<OwnedFd>, policy: &NetPolicy) -> io::Result<Self> {
        let places = places(policy, NamedAddresses::OF_NO_HOST);
        let mut sockets = sockets.into_iter();
        let mut next = || sockets.next().ok_or_else(bad);
        let proxy = stream(next()?, PROXY)?;
        let questions = datagram(next()?, NAME_SERVER)?;
        let long_questions = stream(next()?, NAME_SERVER)?;
        let connections: io::Result<Vec<_>> = places.sockets().iter().map(|at| stream(next()?, *at)).collect();
        let doors = Self { proxy, questions, long_questions, connections: connections?, places };
        if next().is_ok() { Err(bad()) } else { Ok(doors) }
    }

    fn listen(self) -> io::Result<(tokio::net::TcpListener, Direct)> {
        let listen = tokio::net::TcpListener::from_std;
        let connections: io::Result<Vec<_>> = self.connections.into_iter().map(listen).collect();
        let direct = Direct {
            names: Arc::new(Names::new(&self.places)),
            questions: Questions::Socket(tokio::net::UdpSocket::from_std(self.questions)?),
            long_questions: listen(self.long_questions)?.into(),
            connections: Arrivals::Sockets(connections?),
        };
        Ok((listen(self.proxy)?, direct))
    }
}

fn bad() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the guest sent something that nobody can listen at")
}

fn stream(socket: OwnedFd, at: SocketAddrV4) -> io::Result<TcpListener> {
    if socket_type(&socket)? != SocketType::STREAM || !socket_acceptconn(&socket)? {
        return Err(bad());
    }
    let listener = TcpListener::from(socket);
    if listener.local_addr()? != SocketAddr::from(at) {
        return Err(bad());
    }
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn datagram(socket: OwnedFd, at: SocketAddrV4) -> io::Result<UdpSocket> {
    if socket_type(&socket)? != SocketType::DGRAM {
        return Err(bad());
    }
    let socket = UdpSocket::from(socket);
    if socket.local_addr()? != SocketAddr::from(at) {
        return Err(bad());
    }
    socket.set_nonblocking(true)?;
    Ok(socket)
}
