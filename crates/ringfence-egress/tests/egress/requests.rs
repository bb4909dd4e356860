//! Plain HTTP, request by request.

use ringfence_egress::{Ending, Rule, Rules, Via};
use ringfence_policy::NetRule;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::stage::{Origin, Stage, get, read_to_end, rule};

async fn stage_for(origin: &Origin) -> (Stage, String) {
    let at = format!("name.test:{}", origin.port);
    (Stage::new(Rules::none().allow(rule(&at)).localhost(origin.port)).await, at)
}

#[tokio::test]
async fn a_request_reaches_its_origin_and_everything_about_it_is_written_down() {
    let origin = Origin::plain().await;
    let (stage, at) = stage_for(&origin).await;
    let request = format!(
        "POST http://{at}/a//b?q=1 HTTP/1.1\r\nHost: {at}\r\nContent-Length: 5\r\nX-Own: yes\r\nConnection: close\r\n\r\nhello"
    );
    let answer = stage.talk(request).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("POST /a//b?q=1"), "{answer}");
    let seen = origin.seen();
    assert_eq!((seen[0].body.as_slice(), seen[0].headers["host"].to_str().unwrap()), (&b"hello"[..], at.as_str()));
    assert_eq!(seen[0].headers["x-own"], "yes");
    let (record, usage) = stage.book.ended(1).await.remove(0);
    assert_eq!((record.host.as_str(), record.port, record.via), ("name.test", origin.port, Via::Forward));
    assert_eq!((record.method.as_deref(), record.path.as_deref()), (Some("POST"), Some("/a//b")));
    assert_eq!((&*record.rule, &*record.identity.sandbox), (at.as_str(), "sandbox-a"));
    assert_eq!((usage.bytes_up, usage.status, usage.ending), (5, Some(200), Ending::Complete));
    assert!(usage.bytes_down > 0 && usage.latency.is_some() && usage.address.is_some());
}

#[tokio::test]
async fn a_denial_is_a_403_with_text_for_a_model() {
    let origin = Origin::plain().await;
    let (stage, _) = stage_for(&origin).await;
    let answer = stage.talk(get("evil.test", "/x")).await;
    assert!(answer.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{answer}");
    assert!(answer.contains("content-type: text/plain"), "{answer}");
    assert!(answer.contains("Ringfence denied GET http://evil.test/x."), "{answer}");
    assert!(answer.contains("Do not retry in another way"), "{answer}");
    assert_eq!(stage.book.denials(), ["net.not-listed"]);
}

#[tokio::test]
async fn e07_an_absolute_url_unlike_its_host_is_refused() {
    let origin = Origin::plain().await;
    let (stage, at) = stage_for(&origin).await;
    for host in ["evil.test", "name.test", "name.test:1", "", "name.test,evil.test", "user@name.test"] {
        let request = format!("GET http://{at}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        let answer = stage.talk(request).await;
        assert!(answer.starts_with("HTTP/1.1 40"), "{host}: {answer}");
    }
    let user = format!("GET http://evil.test@{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    assert!(stage.talk(user).await.starts_with("HTTP/1.1 40"));
    assert!(origin.seen().is_empty());
    let upper = at.to_uppercase();
    let same = format!("GET http://{at}/ HTTP/1.1\r\nHost: {upper}\r\nConnection: close\r\n\r\n");
    assert!(stage.talk(same).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn e15_smuggled_requests_are_refused_or_are_one_request() {
    let origin = Origin::plain().await;
    let (stage, at) = stage_for(&origin).await;
    let hidden = format!("GET /hidden HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let start = format!("POST http://{at}/shown HTTP/1.1\r\nHost: {at}\r\n");
    let attempts = [
        format!("{start}Content-Length: {}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}", hidden.len() + 5),
        format!("{start}Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{start}Content-Length: 0\r\nContent-Length: {}\r\n\r\n{hidden}", hidden.len()),
        format!("{start}Content-Length: 0\r\n Content-Length: {}\r\n\r\n{hidden}", hidden.len()),
        format!("{start}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{start}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{hidden}"),
        format!("{start}X: y\nContent-Length: 0\r\n\r\n{hidden}"),
        format!("{start}Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n{hidden}"),
        format!("{start}Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n{hidden}"),
        format!("{start}Transfer-Encoding: chunked\r\n\r\n0;\nx\r\n\r\n{hidden}"),
        format!("{start}Transfer-Encoding: chunked\r\n\r\nffffffffffffffff1\r\n{hidden}"),
    ];
    for attempt in &attempts {
        // As the first request, and as the second on a connection that is kept.
        let kept = format!("GET http://{at}/before HTTP/1.1\r\nHost: {at}\r\n\r\n{attempt}");
        for text in [attempt, &kept] {
            let mut stream = TcpStream::connect(stage.at).await.unwrap();
            stream.write_all(text.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            drop(read_to_end(&mut stream).await);
        }
    }
    let targets: Vec<String> = origin.seen().into_iter().map(|seen| seen.target).collect();
    assert!(!targets.iter().any(|target| target == "/hidden"), "{targets:?}");
    // The twin: what was hidden gets through when it is not.
    let open = format!(
        "{start}Content-Length: 0\r\n\r\nGET http://{at}/hidden HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"
    );
    drop(stage.talk(open).await);
    assert_eq!(origin.seen().last().unwrap().target, "/hidden");
}

#[tokio::test]
async fn e15_a_chunked_body_is_written_anew_and_arrives_whole() {
    let origin = Origin::plain().await;
    let (stage, at) = stage_for(&origin).await;
    let request = format!(
        "POST http://{at}/ HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
         3\r\nabc\r\n00004;x=y\r\ndefg\r\n0\r\n\r\n"
    );
    assert!(stage.talk(request).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(origin.seen()[0].body, b"abcdefg");
}

#[tokio::test]
async fn e16_every_request_on_a_kept_connection_is_judged_by_itself() {
    let origin = Origin::plain().await;
    let (stage, at) = stage_for(&origin).await;
    let kept = format!("GET http://{at}/1 HTTP/1.1\r\nHost: {at}\r\n\r\n");
    let other = "GET http://evil.test/2 HTTP/1.1\r\nHost: evil.test\r\n\r\n";
    let answer = stage.talk(format!("{kept}{other}{}", get(&at, "/3"))).await;
    let statuses: Vec<&str> = answer.lines().filter_map(|line| line.split("HTTP/1.1 ").nth(1)).collect();
    assert_eq!(statuses, ["200 OK", "403 Forbidden", "200 OK"], "{answer}");
    let targets: Vec<String> = origin.seen().into_iter().map(|seen| seen.target).collect();
    assert_eq!(targets, ["/1", "/3"]);
    assert_eq!((origin.connections(), stage.names.asked().len()), (1, 1));
}

#[tokio::test]
async fn e17_the_second_hop_of_a_redirect_is_judged() {
    let origin = Origin::plain().await;
    let (stage, at) = stage_for(&origin).await;
    let answer = stage.talk(get(&at, "/redirect")).await;
    assert!(answer.contains("location: https://elsewhere.test/take"), "{answer}");
    assert!(stage.connect("elsewhere.test:443").await.unwrap_err().contains("(net.not-listed)"));
}

#[tokio::test]
async fn e18_methods_and_headers_that_would_tell_or_hide_something_stay_here() {
    let origin = Origin::plain().await;
    let (stage, at) = stage_for(&origin).await;
    let trace = format!("TRACE http://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    assert!(stage.talk(trace).await.starts_with("HTTP/1.1 405 "));
    let hiding = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: close, Host\r\n\r\n");
    assert!(stage.talk(hiding).await.starts_with("HTTP/1.1 400 "));
    assert!(origin.seen().is_empty());
    let plain = format!(
        "GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nProxy-Authorization: Basic c2VjcmV0\r\nProxy-Connection: x\r\n\
         X-Hop: 1\r\nX-Stays: 1\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nConnection: close, X-Hop, Upgrade\r\n\r\n"
    );
    let answer = stage.talk(plain).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains("c2VjcmV0"), "{answer}");
    let headers = &origin.seen()[0].headers;
    let mut names: Vec<&str> = headers.keys().map(http::HeaderName::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["host", "x-stays"]);
}

#[tokio::test]
async fn e21_the_path_that_was_judged_is_the_path_that_is_forwarded() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let mut net: NetRule = at.parse().unwrap();
    net.paths = vec!["/repos/acme/**".parse().unwrap()];
    net.methods = vec!["GET".to_owned()];
    let stage = Stage::new(Rules::none().allow(Rule::new(net, "acme")).localhost(origin.port)).await;
    for (path, reason) in [
        ("/repos/acme/%2e%2e/other", "net.path"),
        ("/repos/acme/../other", "net.path"),
        ("/repos/acme%2f..%2fother", "net.ambiguous-path"),
        ("/repos/acme/..%5cother", "net.ambiguous-path"),
        ("/repos/acme/%252e%252e/other", "net.ambiguous-path"),
        ("/repos/acme/..;/other", "net.ambiguous-path"),
    ] {
        let answer = stage.talk(get(&at, path)).await;
        assert!(answer.contains(&format!("({reason})")), "{path}: {answer}");
    }
    let post = format!(
        "POST http://{at}/repos/acme/x HTTP/1.1\r\nHost: {at}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    assert!(stage.talk(post).await.contains("(net.method)"));
    let trick = get(&at, "/repos/acme/x").replace("Connection", "X-HTTP-Method-Override: DELETE\r\nConnection");
    assert!(stage.talk(trick).await.contains("(net.method)"));
    assert!(origin.seen().is_empty());
    assert!(stage.talk(get(&at, "/repos//acme/./a/../%62?q=%2f")).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(origin.seen()[0].target, "/repos/acme/b?q=%2f");
}

#[tokio::test]
async fn e24_plain_http_and_tunnels_and_socks_have_one_answer() {
    let origin = Origin::plain().await;
    let (stage, at) = stage_for(&origin).await;
    assert!(stage.talk(get("evil.test", "/")).await.contains("403"));
    assert!(stage.connect("evil.test:80").await.unwrap_err().contains("403"));
    assert_eq!(stage.socks(b"evil.test", 80).await.err(), Some(2));
    assert_eq!(stage.book.denials(), ["net.not-listed"; 3]);
    assert!(stage.talk(get(&at, "/")).await.contains("200 OK"));
    assert!(stage.connect(&at).await.is_ok());
    assert!(stage.socks(b"name.test", origin.port).await.is_ok());
}

#[tokio::test]
async fn e16_a_websocket_passes_after_its_request_was_judged() {
    let origin = Origin::plain().await;
    let (stage, at) = stage_for(&origin).await;
    let upgrade = |at: &str| {
        format!("GET http://{at}/ws HTTP/1.1\r\nHost: {at}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
    };
    let mut denied = TcpStream::connect(stage.at).await.unwrap();
    denied.write_all(upgrade("evil.test").as_bytes()).await.unwrap();
    denied.shutdown().await.unwrap();
    assert!(read_to_end(&mut denied).await.contains("(net.not-listed)"));
    let mut stream = TcpStream::connect(stage.at).await.unwrap();
    stream.write_all(upgrade(&at).as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        answer.extend(byte);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "), "{}", String::from_utf8_lossy(&answer));
    stream.write_all(b"hello").await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "echo hello");
    drop(stream);
    let (_, usage) = stage.book.ended(1).await.remove(0);
    assert_eq!((usage.status, usage.bytes_up, usage.bytes_down), (Some(101), 5, 10));
}

#[tokio::test]
async fn what_is_not_for_a_proxy_is_told_so() {
    let origin = Origin::plain().await;
    let (stage, at) = stage_for(&origin).await;
    for text in [
        format!("GET / HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"),
        format!("GET https://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"),
        format!("GET ftp://{at}/ HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ] {
        let answer = stage.talk(&text).await;
        assert!(answer.starts_with("HTTP/1.1 400 "), "{text}: {answer}");
    }
    assert!(origin.seen().is_empty());
}
