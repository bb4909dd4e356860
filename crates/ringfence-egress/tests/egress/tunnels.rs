//! Tunnels: what is spoken inside has to be what they are for.

use std::sync::Arc;

use ringfence_egress::{Ending, Identity, Protocol, Proxy, Rules, Via};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::stage::{Names, Origin, Pki, Stage, ask, client_config, get_direct, read_to_end, rule};

/// Rules for two names on one port of this machine.
fn rules(origin: &Origin) -> Rules {
    let at = |name: &str| rule(format!("{name}:{}", origin.port));
    Rules::none().allow(at("name.test")).allow(at("other.test")).localhost(origin.port)
}

#[tokio::test]
async fn tls_whose_name_agrees_passes_unopened_and_is_written_down() {
    let pki = Pki::new();
    let origin = Origin::tls(&pki, "name.test", &[]).await;
    let stage = Stage::new(rules(&origin)).await;
    let at = format!("name.test:{}", origin.port);
    let config = client_config(&pki.root, &[]);
    let mut stream = stage.tls(&at, "name.test", &config).await.unwrap();
    assert!(ask(&mut stream, &get_direct(&at, "/secret")).await.starts_with("HTTP/1.1 200 "));
    drop(stream);
    let (record, usage) = stage.book.ended(1).await.remove(0);
    assert_eq!((record.via, record.host.as_str(), record.path), (Via::Connect, "name.test", None));
    assert!(usage.bytes_up > 100 && usage.bytes_down > 100 && usage.ending == Ending::Complete, "{usage:?}");
}

#[tokio::test]
async fn e07_another_name_inside_tls_than_the_tunnels_is_refused() {
    let pki = Pki::new();
    let origin = Origin::tls(&pki, "other.test", &[]).await;
    let stage = Stage::new(rules(&origin)).await;
    let config = client_config(&pki.root, &[]);
    let at = format!("name.test:{}", origin.port);
    // Both names are allowed: it is the disagreement that is refused.
    assert!(stage.tls(&at, "other.test", &config).await.is_err());
    assert!(stage.tls(&at, "evil.test", &config).await.is_err());
    let stream = stage.socks(b"name.test", origin.port).await.unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::clone(&config));
    assert!(connector.connect("other.test".try_into().unwrap(), stream).await.is_err());
    assert_eq!(stage.book.denials(), ["net.names-disagree"; 3]);
    assert!(origin.seen().is_empty());
    let at = format!("other.test:{}", origin.port);
    let mut stream = stage.tls(&at, "other.test", &config).await.unwrap();
    assert!(ask(&mut stream, &get_direct(&at, "/")).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn e07_another_host_in_plain_http_than_the_tunnels_is_refused() {
    let origin = Origin::plain().await;
    let stage = Stage::new(rules(&origin)).await;
    let at = format!("name.test:{}", origin.port);
    for host in ["other.test", "evil.test", "name.test"] {
        let mut stream = stage.connect(&at).await.unwrap();
        let answer = ask(&mut stream, &get_direct(host, "/")).await;
        assert!(answer.contains("(net.names-disagree)"), "{host}: {answer}");
    }
    let mut stream = stage.connect(&at).await.unwrap();
    let answer =
        ask(&mut stream, &format!("GET http://other.test/ HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")).await;
    assert!(answer.contains("(net.names-disagree)"), "{answer}");
    let mut stream = stage.connect(&at).await.unwrap();
    let pipelined = format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n{}", get_direct("other.test", "/2"));
    let answer = ask(&mut stream, &pipelined).await;
    assert!(answer.contains("200 OK") && answer.contains("(net.names-disagree)"), "{answer}");
    assert_eq!(origin.seen().len(), 1);
    let mut stream = stage.socks(b"name.test", origin.port).await.unwrap();
    assert!(ask(&mut stream, &get_direct(&at, "/")).await.starts_with("HTTP/1.1 200 "));
    let stated = stage.connect("name.test:80").await.unwrap_err();
    assert!(stated.contains("(net.port)"), "{stated}");
}

#[tokio::test]
async fn e07_tls_without_a_name_or_anything_else_needs_a_rule_that_says_tcp() {
    let pki = Pki::new();
    let origin = Origin::tls(&pki, "127.0.0.1", &[]).await;
    let at = format!("name.test:{}", origin.port);
    let stage = Stage::new(rules(&origin)).await;
    let config = client_config(&pki.root, &[]);
    assert!(stage.tls(&at, "127.0.0.1", &config).await.is_err());
    let mut stream = stage.connect(&at).await.unwrap();
    assert_eq!(ask(&mut stream, "\0\0 some protocol").await, "");
    assert_eq!(stage.book.denials(), ["net.protocol"; 2]);
    assert!(origin.seen().is_empty());
    let mut tcp = rule(&at);
    tcp.protocol = Protocol::Tcp;
    let stage = Stage::new(Rules::none().allow(tcp).localhost(origin.port)).await;
    let mut stream = stage.tls(&at, "127.0.0.1", &config).await.unwrap();
    assert!(ask(&mut stream, &get_direct(&at, "/")).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn e07_a_second_name_that_is_encrypted_is_refused_and_told_by_an_alert() {
    let pki = Pki::new();
    let origin = Origin::tls(&pki, "name.test", &[]).await;
    let stage = Stage::new(rules(&origin)).await;
    let name = "name.test".try_into().unwrap();
    let mut client = rustls::ClientConnection::new(client_config(&pki.root, &[]), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    let mut hidden = hello.clone();
    let at = hidden.windows(4).position(|window| window == [0, 23, 0, 0]).unwrap();
    hidden[at..at + 2].copy_from_slice(&[0xfe, 0x0d]);
    let target = format!("name.test:{}", origin.port);
    let mut stream = stage.connect(&target).await.unwrap();
    stream.write_all(&hidden).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, 49]);
    assert_eq!(stage.book.denials(), ["net.names-disagree"]);
    // The twin: the same hello without it is answered by the origin.
    let mut stream = stage.connect(&target).await.unwrap();
    stream.write_all(&hello).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), 22);
}

#[tokio::test]
async fn who_has_said_all_may_still_listen_and_who_is_gone_is_not_waited_for() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stage = Stage::new(Rules::none().localhost(port)).await;
    let half_closed = async || {
        let mut inside = stage.connect(&format!("localhost:{port}")).await.unwrap();
        let (mut outside, _) = listener.accept().await.unwrap();
        inside.shutdown().await.unwrap();
        assert_eq!(outside.read(&mut [0; 1]).await.unwrap(), 0);
        outside.write_all(b"a").await.unwrap();
        (inside, outside)
    };
    let (mut inside, mut outside) = half_closed().await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    outside.write_all(b"b").await.unwrap();
    let mut said = [0; 2];
    inside.read_exact(&mut said).await.unwrap();
    assert_eq!((&said, stage.book.ended.lock().unwrap().len()), (b"ab", 0));
    // This one is closed with something unread. Its origin is silent, and stays.
    let (inside, _outside) = half_closed().await;
    while inside.peek(&mut [0; 1]).await.unwrap() == 0 {}
    drop(inside);
    assert_eq!(stage.book.ended(1).await[0].1.ending, Ending::Broken);
}

#[tokio::test]
async fn a_rule_that_says_tcp_lets_the_server_speak_first() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"220 hello\r\n").await.unwrap();
        let mut line = [0; 4];
        stream.read_exact(&mut line).await.unwrap();
        stream.write_all(&line).await.unwrap();
    });
    let mut tcp = rule(format!("mail.test:{port}"));
    tcp.protocol = Protocol::Tcp;
    let stage = Stage::new(Rules::none().allow(tcp).localhost(port)).await;
    let mut stream = stage.connect(&format!("mail.test:{port}")).await.unwrap();
    let mut greeting = [0; 11];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(ask(&mut stream, "QUIT").await, "QUIT");
}

#[tokio::test]
async fn e02_a_socks_name_with_a_zero_byte_is_refused() {
    let origin = Origin::plain().await;
    let wild = rule(format!("*.allowed.test:{}", origin.port));
    let stage = Stage::new(Rules::none().allow(wild).localhost(origin.port)).await;
    for name in [&b"evil.test\0.allowed.test"[..], b"evil.test\n.allowed.test", b"\xffevil.allowed.test", b""] {
        assert_eq!(stage.socks(name, origin.port).await.err(), Some(2), "{name:?}");
    }
    assert!(stage.names.asked().is_empty());
    assert!(stage.socks(b"good.allowed.test", origin.port).await.is_ok());
    assert_eq!(stage.names.asked(), ["good.allowed.test"]);
}

#[tokio::test]
async fn e03_e04_addresses_in_odd_dress_are_refused_on_every_way() {
    let origin = Origin::plain().await;
    let stage = Stage::new(rules(&origin)).await;
    for host in ["2130706433", "0x7f.1", "017700000001", "127.1", "[::ffff:127.0.0.1]", "[fe80::1%25lo]"] {
        let denied = stage.connect(&format!("{host}:{}", origin.port)).await.unwrap_err();
        assert!(denied.contains("(net.bad-host)"), "{host}: {denied}");
        let name = host.trim_matches(['[', ']']).as_bytes();
        assert_eq!(stage.socks(name, origin.port).await.err(), Some(2), "{host}");
    }
    assert_eq!(origin.connections(), 0);
    assert!(stage.socks(b"127.0.0.1", origin.port).await.is_ok());
}

#[tokio::test]
async fn e20_who_asks_is_known_from_the_listener_and_from_nothing_that_is_said() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let mine = Stage::new(Rules::none().allow(rule("mine.test"))).await;
    let theirs = Stage::new(Rules::none().allow(rule(&at)).localhost(origin.port)).await;
    let request = format!(
        "GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nProxy-Authorization: Basic c2FuZGJveC1iOng=\r\nConnection: close\r\n\r\n"
    );
    assert!(mine.talk(&request).await.contains("(net.not-listed)"));
    // A client that insists on a password over SOCKS is turned away.
    let mut socks = TcpStream::connect(mine.at).await.unwrap();
    socks.write_all(&[5, 1, 2]).await.unwrap();
    let mut reply = [0; 2];
    socks.read_exact(&mut reply).await.unwrap();
    assert_eq!(reply, [5, 0xff]);
    assert!(origin.seen().is_empty());
    assert!(theirs.talk(&request).await.starts_with("HTTP/1.1 200 "));
    assert!(!origin.seen()[0].headers.contains_key("proxy-authorization"));
}

#[tokio::test]
async fn a_unix_listener_a_relayed_stream_and_a_known_target_are_served_alike() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let proxy = Proxy::builder(Identity::new("s", "r"), rules(&origin)).resolver(Names::of(&[])).build();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("proxy");
    let listener = UnixListener::bind(&path).unwrap();
    let server = proxy.clone();
    tokio::spawn(async move { server.serve(listener).await });
    let mut unix = UnixStream::connect(&path).await.unwrap();
    let tunnelled = format!("CONNECT {at} HTTP/1.1\r\n\r\n{}", get_direct(&at, "/unix"));
    assert!(ask(&mut unix, &tunnelled).await.contains("GET /unix"));

    let (mut inside, outside) = tokio::io::duplex(1024);
    let server = proxy.clone();
    tokio::spawn(async move { server.serve_stream(ringfence_egress::Stream::Relayed(Box::new(outside))).await });
    assert!(ask(&mut inside, &tunnelled).await.contains("GET /unix"));

    let (relay, relayed) = tokio::sync::mpsc::channel(1);
    let server = proxy.clone();
    let served = tokio::spawn(async move { server.serve(relayed).await });
    let (mut inside, outside) = tokio::io::duplex(1024);
    relay.send(ringfence_egress::Stream::Relayed(Box::new(outside))).await.unwrap();
    assert!(ask(&mut inside, &tunnelled).await.contains("GET /unix"));
    drop(relay);
    served.await.unwrap();

    for (host, reached) in [("name.test", true), ("evil.test", false)] {
        let (mut inside, outside) = UnixStream::pair().unwrap();
        let (server, port) = (proxy.clone(), origin.port);
        tokio::spawn(async move { server.serve_target(outside, host, port).await });
        let answer = ask(&mut inside, &get_direct(&at, "/known")).await;
        assert_eq!(answer.contains("GET /known"), reached, "{answer}");
    }
    assert_eq!(origin.seen().len(), 4);
}

/// Sends much through `stream` to an echo, while it comes back.
async fn send_much(stream: impl AsyncRead + AsyncWrite + Send + 'static) {
    let (mut from, mut to) = tokio::io::split(stream);
    let sent: Vec<u8> = (0..LENGTH).map(|index| u8::try_from(index % 251).unwrap()).collect();
    let copy = sent.clone();
    tokio::spawn(async move {
        to.write_all(&copy).await.unwrap();
        to.shutdown().await.unwrap();
    });
    let mut received = Vec::new();
    from.read_to_end(&mut received).await.unwrap();
    assert!(sent == received);
}

const LENGTH: usize = 24 * 1024 * 1024;

#[tokio::test]
async fn a_large_transfer_arrives_whole_in_both_directions_over_every_kind_of_stream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (mut from, mut to) = stream.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from, &mut to).await.unwrap() });
        }
    });
    let proxy = Proxy::builder(Identity::new("s", "r"), Rules::none().localhost(port)).build();
    let (inside, outside) = UnixStream::pair().unwrap();
    let (relayed, outside_relayed) = tokio::io::duplex(4096);
    let copy = proxy.clone();
    tokio::spawn(async move { copy.serve_target(outside, "localhost", port).await });
    let outside_relayed = ringfence_egress::Stream::Relayed(Box::new(outside_relayed));
    tokio::spawn(async move { proxy.serve_target(outside_relayed, "localhost", port).await });
    send_much(inside).await;
    send_much(relayed).await;
    let stage = Stage::new(Rules::none().localhost(port)).await;
    send_much(stage.connect(&format!("localhost:{port}")).await.unwrap()).await;
    let (_, usage) = stage.book.ended(1).await.remove(0);
    assert_eq!((usage.bytes_up, usage.bytes_down), (LENGTH as u64, LENGTH as u64));
    assert_eq!(usage.ending, Ending::Complete);
}

#[tokio::test]
async fn when_serving_stops_nothing_that_was_open_goes_on() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let proxy = Proxy::builder(Identity::new("s", "r"), rules(&origin)).resolver(Names::of(&[])).build();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy_at = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move { proxy.serve(listener).await });
    let mut open = Vec::new();
    for text in [
        format!("CONNECT localhost:{} HTTP/1.1\r\n\r\n", origin.port),
        format!("GET http://{at}/ws HTTP/1.1\r\nHost: {at}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
    ] {
        let mut stream = TcpStream::connect(proxy_at).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 "), "{answer:?}");
        open.push(stream);
    }
    serving.abort();
    for mut stream in open {
        drop(read_to_end(&mut stream).await);
    }
    assert!(TcpStream::connect(proxy_at).await.is_err());
}

#[tokio::test]
async fn a_refused_socks_command_is_answered_as_the_protocol_says() {
    let stage = Stage::new(Rules::none().allow(rule("name.test"))).await;
    for (request, code) in [
        (&[5, 1, 0, 5, 2, 0, 1, 1, 2, 3, 4, 0, 80][..], 7),
        (&[5, 1, 0, 5, 3, 0, 1, 1, 2, 3, 4, 0, 80], 7),
        (&[5, 1, 0, 5, 1, 0, 7, 1, 2, 3, 4, 0, 80], 8),
        (&[5, 1, 0, 5, 1, 0, 1, 10, 0, 0, 1, 0, 80], 2),
    ] {
        let mut stream = TcpStream::connect(stage.at).await.unwrap();
        stream.write_all(request).await.unwrap();
        let mut reply = [0; 4];
        stream.read_exact(&mut reply).await.unwrap();
        assert_eq!(reply[3], code);
        drop(read_to_end(&mut stream).await);
    }
}
