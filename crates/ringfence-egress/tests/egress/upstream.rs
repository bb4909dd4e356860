//! Going out through another proxy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringfence_egress::{Limits, Rules, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::stage::{Names, Origin, Stage, ask, client_config, get, get_direct, read_to_end, rule};

/// What the other proxy does.
#[derive(Debug, Clone)]
enum Does {
    /// Leads every tunnel to this port of ours, and answers requests itself.
    Serves(u16),
    /// Answers one request, and closes without having said so.
    ServesOne,
    /// Says this and closes.
    Says(&'static str),
    /// Says nothing.
    Waits,
}

/// A proxy of somebody else, which remembers the heads that it got.
struct Other {
    port: u16,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Other {
    async fn start(does: Does) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let remembered = Arc::clone(&heads);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(stream, does.clone(), Arc::clone(&remembered)));
            }
        });
        Self { port, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }

    fn upstream(&self) -> Upstream {
        Upstream::new(&format!("http://127.0.0.1:{}", self.port).parse().unwrap())
    }
}

async fn serve(mut stream: TcpStream, does: Does, heads: Arc<Mutex<Vec<String>>>) {
    loop {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            head.push(byte);
        }
        let head = String::from_utf8(head).unwrap();
        heads.lock().unwrap().push(head.clone());
        match does {
            Does::Serves(port) if head.starts_with("CONNECT ") => {
                let mut origin = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\nVia: other\r\n\r\n").await.unwrap();
                drop(copy_bidirectional(&mut stream, &mut origin).await);
                return;
            }
            Does::Serves(_) => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nother\n").await.unwrap();
            }
            Does::ServesOne => {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nother\n").await.unwrap();
                return;
            }
            Does::Says(text) => {
                stream.write_all(text.as_bytes()).await.unwrap();
                return;
            }
            Does::Waits => tokio::time::sleep(Duration::from_secs(60)).await,
        }
    }
}

const PUBLIC: &[&[&str]] = &[&["93.184.216.34"]];

async fn stage(rules: Rules, names: &[(&str, &[&[&str]])], upstream: Upstream) -> Stage {
    let limits = Limits { connect: Duration::from_millis(500), ..Limits::default() };
    Stage::with(rules, Names::of(names), |builder| builder.upstream(upstream).limits(limits)).await
}

#[tokio::test]
async fn plain_requests_go_there_with_their_whole_url_and_tunnels_by_connect() {
    let origin = Origin::plain().await;
    let other = Other::start(Does::Serves(origin.port)).await;
    let rules = Rules::none().allow(rule("a.test"));
    let stage = stage(rules, &[("a.test", PUBLIC)], other.upstream()).await;
    let said = stage.talk(get("a.test", "/x?y")).await;
    assert!(said.starts_with("HTTP/1.1 200") && said.ends_with("other\n"), "{said}");
    let mut tunnel = stage.connect("a.test:80").await.unwrap();
    assert!(ask(&mut tunnel, &get_direct("a.test", "/inside")).await.starts_with("HTTP/1.1 200"));
    let heads = other.heads();
    assert!(heads[0].starts_with("GET http://a.test/x?y HTTP/1.1\r\n") && heads[0].contains("host: a.test\r\n"));
    assert_eq!(heads[1], "CONNECT a.test:80 HTTP/1.1\r\nHost: a.test:80\r\n\r\n");
    assert_eq!((heads.len(), origin.seen()[0].target.as_str()), (2, "/inside"));
    let ended = stage.book.ended(3).await;
    let name = format!("http://127.0.0.1:{}", other.port);
    assert!(ended.iter().all(|(_, usage)| usage.through.as_deref() == Some(&name)), "{ended:?}");
}

#[tokio::test]
async fn two_requests_on_one_connection_are_both_whole() {
    let other = Other::start(Does::Serves(0)).await;
    let stage = stage(Rules::none().allow(rule("a.test")), &[("a.test", PUBLIC)], other.upstream()).await;
    let first = "GET http://a.test/1 HTTP/1.1\r\nHost: a.test\r\nProxy-Authorization: Basic mine\r\n\r\n";
    let said = stage.talk(format!("{first}{}", get("a.test", "/2"))).await;
    assert_eq!(said.matches("other\n").count(), 2, "{said}");
    let heads = other.heads();
    assert!(heads[0].starts_with("GET http://a.test/1 ") && heads[1].starts_with("GET http://a.test/2 "), "{heads:?}");
    assert!(!heads[0].contains("mine"), "what a program says to a proxy is for ours alone: {heads:?}");
}

#[tokio::test]
async fn what_is_denied_never_gets_there_and_what_is_inside_is_not_left_to_it() {
    let origin = Origin::plain().await;
    let other = Other::start(Does::Serves(origin.port)).await;
    let rules = Rules::none().allow(rule("a.test")).allow(rule("inside.test")).localhost(origin.port);
    let names: &[(&str, &[&[&str]])] = &[("inside.test", &[&["10.0.0.7"]]), ("a.test", PUBLIC)];
    let stage = stage(rules, names, other.upstream()).await;
    for target in ["evil.test:443", "inside.test:443", "169.254.169.254:80", "0x7f.1:80", "localhost:1"] {
        assert!(stage.connect(target).await.is_err(), "{target}");
    }
    assert!(stage.talk(get("inside.test", "/")).await.starts_with("HTTP/1.1 403"));
    let direct = stage.talk(get(&format!("localhost:{}", origin.port), "/")).await;
    assert!(direct.starts_with("HTTP/1.1 200"), "{direct}");
    assert_eq!(other.heads(), Vec::<String>::new());
    assert!(stage.connect("a.test:443").await.is_ok());
    assert_eq!(other.heads().len(), 1, "the twin");
}

#[tokio::test]
async fn a_name_that_cannot_be_looked_up_here_is_looked_up_there() {
    let origin = Origin::plain().await;
    let other = Other::start(Does::Serves(origin.port)).await;
    let names: &[(&str, &[&[&str]])] = &[("a.test", &[&[]])];
    let through = stage(Rules::none().allow(rule("a.test")), names, other.upstream()).await;
    assert!(through.connect("a.test:443").await.is_ok());
    // Without another proxy there is nobody who knows it.
    let alone = Stage::with(Rules::none().allow(rule("a.test")), Names::of(names), |builder| builder).await;
    assert!(alone.connect("a.test:443").await.unwrap_err().starts_with("HTTP/1.1 502"));
}

#[tokio::test]
async fn tls_goes_through_unseen_and_its_name_still_has_to_agree() {
    let pki = crate::stage::Pki::new();
    let origin = Origin::tls(&pki, "a.test", &["http/1.1"]).await;
    let other = Other::start(Does::Serves(origin.port)).await;
    let stage = stage(Rules::none().allow(rule("a.test")), &[("a.test", PUBLIC)], other.upstream()).await;
    let config = client_config(&pki.root, &["http/1.1"]);
    let mut stream = stage.tls("a.test:443", "a.test", &config).await.unwrap();
    assert!(ask(&mut stream, &get_direct("a.test", "/x")).await.starts_with("HTTP/1.1 200"));
    assert!(stage.tls("a.test:443", "b.test", &config).await.is_err());
    assert_eq!(origin.seen().len(), 1);
}

#[tokio::test]
async fn what_goes_wrong_with_the_other_proxy_is_told_plainly() {
    for (says, expected) in [
        (
            "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n",
            "wants a name and a password (407)",
        ),
        ("HTTP/1.1 403 Forbidden\r\n\r\n", "does not let this host through (403)"),
        ("HTTP/1.1 502 Bad Gateway\r\n\r\n", "answered with status 502"),
        ("SSH-2.0-x\u{1b}[2J\r\n\r\n", "is no proxy: it said `SSH-2.0-x?[2J`"),
        ("", "ended the connection without an answer"),
    ] {
        let other = Other::start(Does::Says(says)).await;
        let stage = stage(Rules::none().allow(rule("a.test")), &[("a.test", PUBLIC)], other.upstream()).await;
        let said = stage.connect("a.test:443").await.unwrap_err();
        assert!(said.starts_with("HTTP/1.1 502") && said.contains(expected), "{says:?}: {said}");
        assert!(said.contains(&format!("the upstream proxy http://127.0.0.1:{}", other.port)), "{said}");
    }
    let slow = Other::start(Does::Waits).await;
    let stage = stage(Rules::none().allow(rule("a.test")), &[("a.test", PUBLIC)], slow.upstream()).await;
    assert!(stage.connect("a.test:443").await.unwrap_err().contains("did not answer in time"));
    let says = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
    let other = Other::start(Does::Says(says)).await;
    let plain = self::stage(Rules::none().allow(rule("a.test")), &[("a.test", PUBLIC)], other.upstream()).await;
    let said = plain.talk(get("a.test", "/")).await;
    assert!(said.starts_with("HTTP/1.1 502") && said.contains("wants a name and a password"), "{said}");
}

#[tokio::test]
async fn a_password_for_the_other_proxy_goes_to_it_alone() {
    let origin = Origin::plain().await;
    let other = Other::start(Does::Serves(origin.port)).await;
    let upstream = other.upstream().authorized("me:hunter2").unwrap();
    let rules = Rules::none().allow(rule("a.test")).localhost(origin.port);
    let stage = stage(rules, &[("a.test", PUBLIC)], upstream).await;
    assert!(stage.talk(get("a.test", "/")).await.starts_with("HTTP/1.1 200"));
    let mut tunnel = stage.connect("a.test:80").await.unwrap();
    assert!(ask(&mut tunnel, &get_direct("a.test", "/")).await.starts_with("HTTP/1.1 200"));
    assert!(stage.talk(get(&format!("localhost:{}", origin.port), "/")).await.starts_with("HTTP/1.1 200"));
    for head in other.heads() {
        assert!(head.to_ascii_lowercase().contains("proxy-authorization: basic bwu6ahvudgvymg==\r\n"), "{head}");
    }
    let seen = origin.seen();
    assert_eq!(seen.len(), 2);
    assert!(seen.iter().all(|seen| !seen.headers.contains_key("proxy-authorization")), "{seen:?}");
}

#[tokio::test]
async fn a_request_over_another_connection_has_the_password_once_and_its_whole_url() {
    let other = Other::start(Does::ServesOne).await;
    let upstream = other.upstream().authorized("me:hunter2").unwrap();
    let stage = stage(Rules::none().allow(rule("a.test")), &[("a.test", PUBLIC)], upstream).await;
    let mut stream = TcpStream::connect(stage.at).await.unwrap();
    for path in ["/1", "/2", "/3"] {
        let request =
            format!("GET http://a.test{path} HTTP/1.1\r\nHost: a.test\r\nProxy-Authorization: Basic mine\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        while !said.ends_with(b"other\n") {
            assert!(stream.read_buf(&mut said).await.unwrap() > 0, "{}", String::from_utf8_lossy(&said));
        }
        // It has closed by then, so that the next one needs another.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let heads = other.heads();
    assert_eq!(heads.len(), 3);
    for (head, path) in heads.iter().zip(["/1", "/2", "/3"]) {
        let head = head.to_ascii_lowercase();
        assert!(head.starts_with(&format!("get http://a.test{path} ")), "{head}");
        assert_eq!(head.matches("proxy-authorization").count(), 1, "{head}");
        assert!(head.contains("proxy-authorization: basic bwu6ahvudgvymg==\r\n"), "{head}");
    }
}

#[tokio::test]
async fn what_an_origin_says_first_is_not_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"220 ready\r\n").await.unwrap();
    });
    let other = Other::start(Does::Serves(port)).await;
    let mut tcp = rule("a.test:25");
    tcp.protocol = ringfence_egress::Protocol::Tcp;
    let stage = stage(Rules::none().allow(tcp), &[("a.test", PUBLIC)], other.upstream()).await;
    let mut tunnel = stage.connect("a.test:25").await.unwrap();
    assert_eq!(read_to_end(&mut tunnel).await, "220 ready\r\n");
}
