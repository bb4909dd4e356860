//! What one sandbox may take: connections, time, bytes.

use std::time::{Duration, Instant};

use ringfence_egress::{Budget, Budgets, Ending, Limits, Rules};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::stage::{Names, Origin, Stage, ask, get, get_direct, read_to_end, rule};

fn hasty() -> Limits {
    Limits {
        connections: 8,
        handshake: Duration::from_millis(400),
        idle: Duration::from_millis(600),
        ..Limits::default()
    }
}

#[tokio::test]
async fn e19_half_open_connections_are_bounded_and_end_and_others_are_served() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let rules = || Rules::none().allow(rule(&at)).localhost(origin.port);
    let stage = Stage::with(rules(), Names::of(&[]), |builder| builder.limits(hasty())).await;
    let neighbour = Stage::new(rules()).await;
    let mut open = Vec::new();
    for index in 0..100 {
        let mut stream = TcpStream::connect(stage.at).await.unwrap();
        let first: &[u8] = match index % 3 {
            0 => b"GET http://name",
            1 => b"\x05\x01",
            _ => b"",
        };
        stream.write_all(first).await.unwrap();
        open.push(stream);
    }
    // Another sandbox does not notice.
    let start = Instant::now();
    assert!(neighbour.talk(get(&at, "/")).await.starts_with("HTTP/1.1 200 "));
    assert!(start.elapsed() < Duration::from_secs(2));
    // Each of the hundred is let go after its time; when they are gone, the sandbox itself is served again.
    drop(open);
    assert!(stage.talk(get(&at, "/")).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn e19_a_head_that_drips_is_cut_at_its_time() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let rules = Rules::none().allow(rule(&at)).localhost(origin.port);
    let stage = Stage::with(rules, Names::of(&[]), |builder| builder.limits(hasty())).await;
    for greeting in ["", "CONNECT"] {
        let mut stream = match greeting {
            "" => TcpStream::connect(stage.at).await.unwrap(),
            _ => stage.connect(&at).await.unwrap(),
        };
        let start = Instant::now();
        let (mut from, mut to) = stream.split();
        let dripping = async {
            for byte in get(&at, "/").bytes().cycle() {
                if to.write_all(&[byte]).await.is_err() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            _ = read_to_end(&mut from) => {}
            () = dripping => {}
        }
        assert!(start.elapsed() < Duration::from_secs(4), "{greeting}");
    }
    assert!(origin.seen().is_empty());
    assert!(stage.talk(get(&at, "/")).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn e19_an_idle_tunnel_ends_and_one_that_is_used_does_not() {
    let origin = Origin::plain().await;
    let stage =
        Stage::with(Rules::none().localhost(origin.port), Names::of(&[]), |builder| builder.limits(hasty())).await;
    let mut idle = stage.connect(&format!("localhost:{}", origin.port)).await.unwrap();
    let start = Instant::now();
    assert_eq!(read_to_end(&mut idle).await, "");
    assert!(start.elapsed() >= Duration::from_millis(500) && start.elapsed() < Duration::from_secs(5));
    assert_eq!(stage.book.ended(1).await[0].1.ending, Ending::Idle);
    let mut used = stage.connect(&format!("localhost:{}", origin.port)).await.unwrap();
    for last in ["", "", "", "", "Connection: close\r\n"] {
        tokio::time::sleep(Duration::from_millis(250)).await;
        used.write_all(format!("GET / HTTP/1.1\r\nHost: x\r\n{last}\r\n").as_bytes()).await.unwrap();
    }
    assert_eq!(read_to_end(&mut used).await.matches("200 OK").count(), 5);
    assert_eq!(origin.seen().len(), 5);
}

#[tokio::test]
async fn a_head_that_is_too_long_or_has_too_many_headers_is_refused() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let stage = Stage::new(Rules::none().allow(rule(&at)).localhost(origin.port)).await;
    let head = |extra: &str| get(&at, "/").replace("\r\nConnection", &format!("\r\n{extra}Connection"));
    for extra in [format!("X: {}\r\n", "a".repeat(70_000)), "X: a\r\n".repeat(200)] {
        let answer = stage.talk(head(&extra)).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
        let mut stream = stage.connect(&at).await.unwrap();
        let answer =
            ask(&mut stream, &get_direct(&at, "/").replace("\r\nConnection", &format!("\r\n{extra}Connection"))).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert!(origin.seen().is_empty());
    assert!(stage.talk(head(&"X: a\r\n".repeat(80))).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_budget_of_requests_and_connections_is_kept_and_told() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let rules = || Rules::none().allow(rule(&at)).localhost(origin.port);
    let requests = Budgets { host: Budget { requests: Some(2), ..Budget::default() }, ..Budgets::default() };
    let stage = Stage::with(rules(), Names::of(&[]), |builder| builder.budgets(requests)).await;
    for expected in ["200 OK", "200 OK", "the budget of 2 requests for this host is used up (net.budget)"] {
        let answer = stage.talk(get(&at, "/")).await;
        assert!(answer.contains(expected), "{answer}");
    }
    assert_eq!(origin.seen().len(), 2);
    let connections = Budgets { run: Budget { connections: Some(1), ..Budget::default() }, ..Budgets::default() };
    let stage = Stage::with(rules(), Names::of(&[]), |builder| builder.budgets(connections)).await;
    assert!(stage.connect(&at).await.is_ok());
    assert!(stage.connect(&at).await.unwrap_err().contains("(net.budget)"));
    assert_eq!(stage.socks(b"name.test", origin.port).await.err(), Some(2));
}

#[tokio::test]
async fn a_budget_of_bytes_cuts_a_transfer_and_denies_what_comes_after() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let rules = || Rules::none().allow(rule(&at)).localhost(origin.port);
    let bytes = |bytes| Budgets { run: Budget { bytes: Some(bytes), ..Budget::default() }, ..Budgets::default() };
    let body = "x".repeat(100_000);
    let post = format!(
        "POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let stage = Stage::with(rules(), Names::of(&[]), |builder| builder.budgets(bytes(50_000))).await;
    drop(stage.talk(&post).await);
    assert!(origin.seen().iter().all(|seen| seen.body == b"(cut)"));
    assert_eq!(stage.book.ended(1).await[0].1.ending, Ending::OverBudget);
    assert!(stage.talk(get(&at, "/")).await.contains("(net.budget)"));
    let stage = Stage::with(rules(), Names::of(&[]), |builder| builder.budgets(bytes(500_000))).await;
    assert!(stage.talk(&post).await.contains("200 OK"));
    // Through a tunnel of any kind.
    let small =
        Stage::with(Rules::none().localhost(origin.port), Names::of(&[]), |builder| builder.budgets(bytes(1000))).await;
    let mut stream = small.connect(&format!("localhost:{}", origin.port)).await.unwrap();
    stream.write_all(post.as_bytes()).await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "");
    assert_eq!(small.book.ended(1).await[0].1.ending, Ending::OverBudget);
}
