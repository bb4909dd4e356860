//! Very many connections, and very large bodies: what the proxy holds stays bounded, and another sandbox does not notice.
//! How long anything takes is not looked at, but for a bound that only a hang is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ringfence_egress::{Inspection, Limits, Rules};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::stage::{Names, Origin, Pki, Stage, client_config, get, rule};

const MANY: usize = 10_000;
const LARGE: usize = 1024 * 1024 * 1024;
/// What a neighbour may wait for its answer on a machine that is busy.
const UNNOTICED: Duration = Duration::from_secs(3);

/// As many descriptors as this process may have, up to `wanted`; says so where they are fewer.
fn descriptors(wanted: u64) -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit { current: Some(wanted), maximum: Some(limit.maximum.map_or(wanted, |most| most.max(wanted))) };
    if setrlimit(Resource::Nofile, all).is_ok() {
        return wanted;
    }
    let most = limit.maximum.unwrap_or(wanted);
    setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) }).unwrap();
    eprintln!("SKIPPED in part: this user may have {most} descriptors, and {wanted} are needed for all of it");
    most
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Accepts everybody and says nothing. How many there are.
async fn silent() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            held.push(listener.accept().await.unwrap());
            counted.store(held.len(), Ordering::Relaxed);
        }
    });
    (port, count)
}

/// A sandbox beside, and the question that it asks now and then.
struct Neighbour {
    stage: Stage,
    question: String,
}

impl Neighbour {
    async fn new() -> Self {
        let origin = Origin::plain().await;
        let at = format!("name.test:{}", origin.port);
        let stage = Stage::new(Rules::none().allow(rule(&at)).localhost(origin.port)).await;
        Self { stage, question: get(&at, "/") }
    }

    async fn check(&self) {
        let start = Instant::now();
        assert!(self.stage.talk(&self.question).await.starts_with("HTTP/1.1 200 "));
        assert!(start.elapsed() < UNNOTICED, "{:?}", start.elapsed());
    }
}

#[tokio::test]
async fn e19_ten_thousand_half_open_tunnels_hold_little_and_another_sandbox_does_not_notice() {
    // Client, proxy and origin are in this process, which has four ends of each tunnel.
    let most = usize::try_from(descriptors(4 * MANY as u64 + 1000) - 1000).unwrap() / 4;
    assert!(most >= MANY / 10, "{most} are not many");
    let (port, reached) = silent().await;
    let limits = Limits { connections: most, ..Limits::default() };
    let stage = Stage::with(Rules::none().localhost(port), Names::of(&[]), |builder| builder.limits(limits)).await;
    let neighbour = Neighbour::new().await;
    let target = format!("localhost:{port}");
    let mut open = vec![stage.connect(&target).await.unwrap()];
    let before = resident();
    while open.len() < most {
        let mut opening: JoinSet<TcpStream> = JoinSet::new();
        for _ in 0..100.min(most - open.len()) {
            let (at, target) = (stage.at, target.clone());
            opening.spawn(async move {
                let mut stream = TcpStream::connect(at).await.unwrap();
                stream
                    .write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes())
                    .await
                    .unwrap();
                let mut answer = [0; 12];
                stream.read_exact(&mut answer).await.unwrap();
                assert_eq!(&answer, b"HTTP/1.1 200");
                stream
            });
        }
        open.extend(opening.join_all().await);
        if open.len() % 1000 < 100 {
            neighbour.check().await;
        }
    }
    while reached.load(Ordering::Relaxed) < most {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let each = resident().saturating_sub(before) / most;
    assert!(each < 32 * 1024, "{each} bytes for each tunnel, with its client and its origin");
    neighbour.check().await;
    // When they are gone, all of them are told, and the sandbox is served again.
    drop(open);
    assert_eq!(stage.book.ended(most - 1).await.len().min(most - 1), most - 1);
    drop(stage.connect(&target).await.unwrap());
}

#[tokio::test]
async fn e19_over_its_bound_a_sandbox_waits_in_the_kernel_and_the_proxy_holds_no_more() {
    let many = usize::try_from(descriptors(MANY as u64 + 4000) - 4000).unwrap();
    let (port, reached) = silent().await;
    let stage = Stage::new(Rules::none().localhost(port)).await;
    let neighbour = Neighbour::new().await;
    let bound = Limits::default().connections;
    let before = resident();
    let mut open = JoinSet::new();
    for _ in 0..many {
        let at = stage.at;
        open.spawn(async move {
            // Whoever finds no room in the queue is told late or never.
            let Ok(mut stream) = TcpStream::connect(at).await else { return };
            let head = format!("CONNECT localhost:{port} HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
            drop(stream.write_all(head.as_bytes()).await);
            std::future::pending::<()>().await;
        });
    }
    while reached.load(Ordering::Relaxed) < bound {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..10 {
        neighbour.check().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(reached.load(Ordering::Relaxed), bound);
    let grown = resident().saturating_sub(before);
    assert!(grown < many * 16 * 1024, "{grown} bytes, with {many} clients in the same process");
    open.shutdown().await;
    // Those that waited are served and end at once. Then there is room; whoever came too early tries again, since the kernel waits longer and
    // longer before it does.
    let target = format!("localhost:{port}");
    let served = async {
        let soon = Duration::from_millis(500);
        while !tokio::time::timeout(soon, stage.connect(&target)).await.is_ok_and(|tunnel| tunnel.is_ok()) {}
    };
    tokio::time::timeout(Duration::from_secs(20), served).await.unwrap();
}

/// Answers a request with a large body, and takes one.
async fn large_origin(tls: Option<TlsAcceptor>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let tls = tls.clone();
            tokio::spawn(async move {
                match tls {
                    None => give_and_take(stream).await,
                    Some(tls) => give_and_take(tls.accept(stream).await.unwrap()).await,
                }
            });
        }
    });
    port
}

async fn give_and_take(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let mut piece = vec![b'x'; 256 * 1024];
    if head.starts_with(b"POST") {
        let end = head.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
        let mut left = LARGE - (head.len() - end);
        while left > 0 {
            match stream.read(&mut piece).await {
                Ok(length @ 1..) => left -= length,
                _ => return,
            }
        }
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhad!").await);
        drop(stream.flush().await);
        return;
    }
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    for _ in 0..LARGE / piece.len() {
        // Who does not take it is gone.
        if stream.write_all(&piece).await.is_err() {
            return;
        }
    }
    drop(stream.flush().await);
}

/// How much this process may grow while a large body passes through it: its buffers, and those of client and origin.
const GROWS: usize = 48 * 1024 * 1024;

/// Reads a large body to its end, and looks at the neighbour and at the memory now and then.
async fn take(stream: &mut (impl AsyncRead + Unpin), neighbour: &Neighbour) {
    let (before, mut most) = (resident(), 0);
    let (mut total, mut looked) = (0, 0);
    let mut piece = vec![0; 256 * 1024];
    while total < LARGE {
        let length = stream.read(&mut piece).await.unwrap();
        assert!(length > 0, "cut after {total} bytes");
        total += length;
        if total / (LARGE / 8) > looked {
            looked = total / (LARGE / 8);
            most = most.max(resident());
            neighbour.check().await;
        }
    }
    assert!(most.saturating_sub(before) < GROWS, "{} bytes more", most - before);
}

#[tokio::test]
async fn a_body_of_a_gigabyte_passes_in_bounded_memory_and_another_sandbox_does_not_notice() {
    let port = large_origin(None).await;
    let at = format!("name.test:{port}");
    let neighbour = Neighbour::new().await;
    // Judged request by request, and in a tunnel.
    let judged = Stage::new(Rules::none().allow(rule(&at)).localhost(port)).await;
    let mut stream = TcpStream::connect(judged.at).await.unwrap();
    stream.write_all(get(&at, "/").as_bytes()).await.unwrap();
    take(&mut stream, &neighbour).await;
    let mut stream = judged.connect(&format!("localhost:{port}")).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    take(&mut stream, &neighbour).await;
    // In the other direction.
    let mut stream = TcpStream::connect(judged.at).await.unwrap();
    let head = format!("POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nContent-Length: {LARGE}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let (before, piece) = (resident(), vec![b'x'; 256 * 1024]);
    for round in 0..LARGE / piece.len() {
        stream.write_all(&piece).await.unwrap();
        if round % 512 == 0 {
            neighbour.check().await;
        }
    }
    assert!(resident().saturating_sub(before) < GROWS);
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200");
}

#[tokio::test]
async fn a_body_of_a_gigabyte_passes_through_opened_tls_in_bounded_memory() {
    let pki = Pki::new();
    let port = large_origin(Some(TlsAcceptor::from(pki.server("name.test", &["http/1.1"])))).await;
    let at = format!("name.test:{port}");
    let mut opened = rule(&at);
    opened.inspection = Inspection::Inspected;
    let rules = Rules::none().allow(opened).localhost(port);
    let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder).await;
    let neighbour = Neighbour::new().await;
    let mut stream = stage.tls(&at, "name.test", &client_config(&authority, &[])).await.unwrap();
    stream.write_all(format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n").as_bytes()).await.unwrap();
    take(&mut stream, &neighbour).await;
}

#[tokio::test]
async fn nobody_is_read_for_a_program_that_does_not_read() {
    let port = large_origin(None).await;
    let at = format!("name.test:{port}");
    let stage = Stage::new(Rules::none().allow(rule(&at)).localhost(port)).await;
    let neighbour = Neighbour::new().await;
    let before = resident();
    let mut waiting = Vec::new();
    for index in 0..64 {
        let mut stream = match index % 2 {
            0 => TcpStream::connect(stage.at).await.unwrap(),
            _ => stage.connect(&format!("localhost:{port}")).await.unwrap(),
        };
        stream.write_all(get(&at, "/").as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        neighbour.check().await;
    }
    // Each has its buffers in the proxy, and the origin one piece of its own.
    let grown = resident().saturating_sub(before) / waiting.len();
    assert!(grown < 1024 * 1024, "{grown} bytes for each");
    // The probe: there is much more to be had.
    let mut piece = vec![0; 1024 * 1024];
    let mut first = waiting.remove(0);
    for _ in 0..16 {
        first.read_exact(&mut piece).await.unwrap();
    }
}
