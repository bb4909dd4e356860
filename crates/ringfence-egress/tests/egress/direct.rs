//! Programs that know nothing of proxies: what they are told of names, and where their connections lead.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;

use ringfence_egress::{
    Arrivals, Direct, Identity, NamedAddresses, Names as Told, Places, Proxy, Questions, RelayedQuestion, Resolve,
    Rules, Sink, Stream, Via,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{mpsc, oneshot};

use crate::stage::{Book, Names, Origin, PATIENCE, get_direct, read_to_end, rule};

/// A proxy that is met in three ways.
struct Met {
    questions: SocketAddr,
    long_questions: SocketAddr,
    connections: SocketAddr,
    proxy: SocketAddr,
    book: Arc<Book>,
    names: Arc<Names>,
}

impl Met {
    async fn new(rules: Rules) -> Self {
        let (book, names) = (Arc::new(Book::default()), Names::of(&[]));
        let proxy = Proxy::builder(Identity::new("sandbox-a", "run-1"), rules)
            .resolver(Arc::clone(&names) as Arc<dyn Resolve>)
            .sink(Arc::clone(&book) as Arc<dyn Sink>)
            .build();
        let listen = || TcpListener::bind("127.0.0.1:0");
        let (listener, connections, long_questions) =
            (listen().await.unwrap(), listen().await.unwrap(), listen().await.unwrap());
        let questions = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let met = Self {
            questions: questions.local_addr().unwrap(),
            long_questions: long_questions.local_addr().unwrap(),
            connections: connections.local_addr().unwrap(),
            proxy: listener.local_addr().unwrap(),
            book,
            names,
        };
        let told = Arc::new(Told::new(&Places::none(NamedAddresses::OF_NO_HOST)));
        let direct = Direct {
            names: told,
            questions: Questions::Socket(questions),
            long_questions: long_questions.into(),
            connections: Arrivals::Sockets(vec![connections]),
        };
        let both = proxy.clone();
        tokio::spawn(async move { proxy.serve_direct(direct).await });
        tokio::spawn(async move { both.serve(listener).await });
        met
    }

    /// Sends a message and gives the answer to it.
    async fn ask(&self, message: &[u8]) -> Vec<u8> {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(message, self.questions).await.unwrap();
        let mut answer = vec![0; 1024];
        let length = tokio::time::timeout(PATIENCE, socket.recv(&mut answer)).await.unwrap().unwrap();
        answer.truncate(length);
        answer
    }

    /// The code of the answer to a question, and the bytes of its record.
    async fn look_up(&self, name: &str, kind: u8) -> (u8, Vec<u8>) {
        let message = question(name, kind);
        let answer = self.ask(&message).await;
        assert_eq!(answer[..2], message[..2], "the answer to another question");
        (answer[3] & 0x0f, answer.get(message.len() + 12..).unwrap_or_default().to_vec())
    }
}

fn question(name: &str, kind: u8) -> Vec<u8> {
    let mut message = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap());
        message.extend(label.as_bytes());
    }
    message.extend([0, 0, kind, 0, 1]);
    message
}

const A: u8 = 1;
const AAAA: u8 = 28;
const TXT: u8 = 16;

#[tokio::test]
async fn e11_names_are_answered_without_looking_anything_up_and_denied_ones_are_told() {
    let met = Met::new(Rules::none().allow(rule("a.test")).allow(rule("*.b.test"))).await;
    let (code, address) = met.look_up("A.test", A).await;
    assert_eq!((code, &address[..2]), (0, [198, 18].as_slice()));
    assert_eq!(met.look_up("a.test", A).await.1, address, "it keeps its address");
    assert_ne!(met.look_up("x.b.test", A).await.1, address);
    assert_eq!(met.look_up("a.test", AAAA).await, (0, vec![]));
    assert_eq!(met.look_up("a.test", TXT).await, (0, vec![]));
    assert_eq!(met.look_up("localhost", A).await, (0, vec![127, 0, 0, 1]));
    assert_eq!(met.look_up("_https._tcp.a.test", 33).await, (3, vec![]));
    assert_eq!(met.look_up("1.0.18.198.in-addr.arpa", 12).await, (3, vec![]));
    assert!(met.book.denials().is_empty(), "nothing was wrong so far");
    for kind in [A, AAAA, TXT] {
        assert_eq!(met.look_up("c2VjcmV0.evil.test", kind).await, (3, vec![]));
    }
    assert_eq!(met.look_up("a b.test", A).await, (3, vec![]));
    assert_eq!(met.book.denials(), ["net.not-listed", "net.not-listed", "net.not-listed", "net.bad-host"]);
    let first = met.book.decided.lock().unwrap()[0].clone();
    assert_eq!((first.via, first.host.as_str(), first.port), (Via::Lookup, "c2vjcmv0.evil.test", 0));
    assert!(met.names.asked().is_empty(), "{:?}", met.names.asked());
}

#[tokio::test]
async fn an_address_is_no_name_also_where_a_rule_names_it() {
    let met = Met::new(Rules::none().allow(rule("a.test")).allow(rule("93.184.216.34"))).await;
    for name in ["93.184.216.34", "10.0.0.1", "198.18.0.1"] {
        assert_eq!(met.look_up(name, A).await, (3, vec![]), "{name}");
    }
    // One in an odd dress has no canonical form, and is told.
    assert_eq!(met.look_up("2130706433", A).await, (3, vec![]));
    assert_eq!(met.book.denials(), ["net.bad-host"]);
    assert_eq!(met.look_up("a.test", A).await.0, 0);
    assert!(met.names.asked().is_empty());
}

#[tokio::test]
async fn questions_over_a_connection_are_answered_one_after_the_other() {
    let met = Met::new(Rules::none().allow(rule("a.test"))).await;
    let mut stream = TcpStream::connect(met.long_questions).await.unwrap();
    for _ in 0..3 {
        let message = question("a.test", A);
        stream.write_all(&[&[0, u8::try_from(message.len()).unwrap()], message.as_slice()].concat()).await.unwrap();
        let length = usize::from(stream.read_u16().await.unwrap());
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!((answer[3] & 0x0f, answer[7]), (0, 1));
    }
    stream.write_all(&[0xff, 0xff]).await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "", "one that is too long ends it");
}

#[tokio::test]
async fn e19_those_who_ask_and_say_nothing_hold_up_nobody() {
    let met = Met::new(Rules::none().allow(rule("a.test"))).await;
    let mut held = Vec::new();
    for _ in 0..64 {
        held.push(TcpStream::connect(met.long_questions).await.unwrap());
    }
    for noise in [vec![], vec![0; 11], vec![0xff; 2000], vec![0x80; 12]] {
        UdpSocket::bind("127.0.0.1:0").await.unwrap().send_to(&noise, met.questions).await.unwrap();
    }
    assert_eq!(met.look_up("a.test", A).await.0, 0);
}

#[tokio::test]
async fn a_connection_to_the_sandboxs_loopback_is_one_to_this_machine_if_its_port_is_listed() {
    let origin = Origin::plain().await;
    let met = Met::new(Rules::none().localhost(origin.port)).await;
    // Where it arrives is what it is for, and that port is not listed.
    let mut stream = TcpStream::connect(met.connections).await.unwrap();
    stream.write_all(get_direct("localhost", "/").as_bytes()).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("Ringfence denied"), "{answer}");
    let told = met.book.decided.lock().unwrap()[0].clone();
    assert_eq!((told.via, told.host.as_str(), told.port), (Via::Transparent, "localhost", met.connections.port()));
    assert_eq!((met.book.denials(), origin.connections()), (vec!["net.not-listed"], 0));
}

#[tokio::test]
async fn an_address_that_somebody_was_told_is_the_name_also_for_the_proxy() {
    let origin = Origin::plain().await;
    let met = Met::new(Rules::none().allow(rule(format!("a.test:{}", origin.port))).localhost(origin.port)).await;
    let (_, address) = met.look_up("a.test", A).await;
    let socks = async |address: &[u8]| {
        let mut stream = TcpStream::connect(met.proxy).await.unwrap();
        let request = [&[5, 1, 0, 5, 1, 0, 1], address, &origin.port.to_be_bytes()].concat();
        stream.write_all(&request).await.unwrap();
        let mut reply = [0; 12];
        stream.read_exact(&mut reply).await.unwrap();
        (reply[3], stream)
    };
    let (reply, mut stream) = socks(&address).await;
    assert_eq!(reply, 0);
    stream.write_all(get_direct(&format!("a.test:{}", origin.port), "/x").as_bytes()).await.unwrap();
    assert!(read_to_end(&mut stream).await.contains("GET /x"));
    assert_eq!(met.names.asked(), ["a.test"], "once, when it was dialled");
    assert_eq!(socks(&[198, 18, 99, 99]).await.0, 2, "nobody was told that one");
}

/// What somebody relays to a proxy in four ways.
struct Relaying {
    questions: mpsc::Sender<RelayedQuestion>,
    long_questions: mpsc::Sender<Stream>,
    connections: mpsc::Sender<(Stream, SocketAddrV4)>,
    proxy: mpsc::Sender<Stream>,
    book: Arc<Book>,
}

impl Relaying {
    fn new(rules: Rules) -> Self {
        let book = Arc::new(Book::default());
        let proxy = Proxy::builder(Identity::new("sandbox-a", "run-1"), rules)
            .resolver(Names::of(&[]) as Arc<dyn Resolve>)
            .sink(Arc::clone(&book) as Arc<dyn Sink>)
            .build();
        let (questions, questions_come) = mpsc::channel(4);
        let (long_questions, long_questions_come) = mpsc::channel::<Stream>(4);
        let (connections, connections_come) = mpsc::channel(4);
        let (to_proxy, come) = mpsc::channel::<Stream>(4);
        let direct = Direct {
            names: Arc::new(Told::new(&Places::none(NamedAddresses::OF_A_LOOPBACK))),
            questions: Questions::Relayed(questions_come),
            long_questions: long_questions_come.into(),
            connections: Arrivals::Relayed(connections_come),
        };
        tokio::spawn(async move { tokio::join!(proxy.serve(come), proxy.serve_direct(direct)) });
        Self { questions, long_questions, connections, proxy: to_proxy, book }
    }

    /// The answer to a message, if there is one.
    async fn ask(&self, message: Vec<u8>) -> Option<Vec<u8>> {
        let (answer, answered) = oneshot::channel();
        self.questions.send(RelayedQuestion { message, answer }).await.unwrap();
        tokio::time::timeout(PATIENCE, answered).await.unwrap().ok()
    }

    async fn address_of(&self, name: &str) -> Option<Ipv4Addr> {
        let message = question(name, A);
        let answer = self.ask(message.clone()).await.unwrap();
        let record: Option<[u8; 4]> = answer.get(message.len() + 12..).and_then(|record| record.try_into().ok());
        record.map(Ipv4Addr::from)
    }

    /// What comes back of a request to `to`.
    async fn request(&self, to: SocketAddrV4, request: String) -> String {
        let (mut inside, relayed) = tokio::io::duplex(4096);
        self.connections.send((Stream::Relayed(Box::new(relayed)), to)).await.unwrap();
        inside.write_all(request.as_bytes()).await.unwrap();
        read_to_end(&mut inside).await
    }
}

#[tokio::test]
async fn what_is_relayed_is_judged_as_what_comes_to_sockets_is() {
    let origin = Origin::plain().await;
    let rules = Rules::none().allow(rule(format!("a.test:{}", origin.port))).localhost(origin.port);
    let relaying = Relaying::new(rules);
    let address = relaying.address_of("a.test").await.unwrap();
    assert_eq!(address.octets()[..2], [127, 198], "{address}");
    assert_eq!((relaying.address_of("evil.test").await, relaying.address_of("a.test").await), (None, Some(address)));
    assert_eq!(relaying.ask(vec![0; 3]).await, None, "that is no question");
    let at = |address: Ipv4Addr, port: u16| SocketAddrV4::new(address, port);
    let named = get_direct(&format!("a.test:{}", origin.port), "/name");
    assert!(relaying.request(at(address, origin.port), named.clone()).await.contains("GET /name"));
    let here = get_direct(&format!("localhost:{}", origin.port), "/here");
    assert!(relaying.request(at(Ipv4Addr::LOCALHOST, origin.port), here).await.contains("GET /here"));
    // Another port of it, and an address that nobody was told, although this machine would be reached at that port.
    let nobodys = Ipv4Addr::new(127, 198, 77, 77);
    for to in [at(address, 1), at(nobodys, origin.port)] {
        let answer = relaying.request(to, named.clone()).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{to}: {answer}");
    }
    assert_eq!(relaying.book.denials(), ["net.not-listed", "net.port", "net.not-listed"]);
    // Who looks names up first and then asks the proxy for the address means the name.
    let (mut inside, relayed) = tokio::io::duplex(4096);
    relaying.proxy.send(Stream::Relayed(Box::new(relayed))).await.unwrap();
    let connect = format!("CONNECT {address}:{} HTTP/1.1\r\n\r\n", origin.port);
    inside.write_all(connect.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    inside.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(relaying.book.decided.lock().unwrap().last().unwrap().host, "a.test");
}

#[tokio::test]
async fn questions_over_a_relayed_connection_are_answered() {
    let relaying = Relaying::new(Rules::none().allow(rule("a.test")));
    let (mut inside, relayed) = tokio::io::duplex(4096);
    relaying.long_questions.send(Stream::Relayed(Box::new(relayed))).await.unwrap();
    let message = question("a.test", A);
    inside.write_all(&[&[0, u8::try_from(message.len()).unwrap()], message.as_slice()].concat()).await.unwrap();
    let length = usize::from(inside.read_u16().await.unwrap());
    let mut answer = vec![0; length];
    inside.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[answer.len() - 4..][..2], [127, 198]);
}
