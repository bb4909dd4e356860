//! Secrets that are used inside and never seen there.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ringfence_egress::{Credential, Inspection, Rule, Rules};
use ringfence_policy::NetRule;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{Origin, Pki, Seen, Stage, ask, client_config, get, get_direct, rule};

const PLACEHOLDER: &str = "ringfence-placeholder-hub-0123456789";
const SECRET: &str = "ghp_R3alS3cret/Value+42";

fn with_credential(at: &str, paths: &[&str]) -> Rule {
    let mut net: NetRule = at.parse().unwrap();
    net.credential = Some("hub".to_owned());
    net.paths = paths.iter().map(|path| path.parse().unwrap()).collect();
    Rule::new(net, "hub")
}

fn credential() -> Credential {
    Credential::new("hub", PLACEHOLDER, SECRET).unwrap()
}

struct Scene {
    stage: Stage,
    origin: Origin,
    config: std::sync::Arc<rustls::ClientConfig>,
    at: String,
}

impl Scene {
    async fn new(more: impl FnOnce(&str, Rules) -> Rules) -> Self {
        let pki = Pki::new();
        let origin = Origin::tls(&pki, "name.test", &["h2", "http/1.1"]).await;
        let at = format!("name.test:{}", origin.port);
        let rules = more(&at, Rules::none().localhost(origin.port));
        let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder.credential(credential())).await;
        Self { stage, origin, config: client_config(&authority, &["http/1.1"]), at }
    }

    async fn ask(&self, request: &str) -> String {
        let mut stream = self.stage.tls(&self.at, "name.test", &self.config).await.unwrap();
        ask(&mut stream, request).await
    }

    async fn get(&self, path: &str, headers: &str) -> String {
        self.ask(&get_direct(&self.at, path).replace("Connection", &format!("{headers}Connection"))).await
    }

    fn last(&self) -> Seen {
        self.origin.seen().pop().unwrap()
    }
}

#[tokio::test]
async fn a_placeholder_becomes_the_secret_for_its_host_and_nobody_inside_sees_it() {
    let scene = Scene::new(|at, rules| rules.allow(with_credential(at, &[]))).await;
    let answer = scene.get("/x", &format!("Authorization: token {PLACEHOLDER}\r\n")).await;
    assert_eq!(scene.last().headers["authorization"], format!("token {SECRET}"));
    // The origin echoes every header, in a header and in the body.
    assert!(answer.starts_with("HTTP/1.1 200 ") && !answer.contains(SECRET), "{answer}");
    assert!(answer.contains("authorization: token ***"), "{answer}");
    let basic = STANDARD.encode(format!("x-access-token:{PLACEHOLDER}"));
    let answer = scene.get("/x", &format!("Authorization: Basic {basic}\r\n")).await;
    let sent = STANDARD.encode(format!("x-access-token:{SECRET}"));
    assert_eq!(scene.last().headers["authorization"], format!("Basic {sent}"));
    assert!(!answer.contains(&sent), "{answer}");
    // Without a placeholder the proxy adds it.
    drop(scene.get("/x", "").await);
    assert_eq!(scene.last().headers["authorization"], format!("Bearer {SECRET}"));
}

#[tokio::test]
async fn a_placeholder_is_replaced_in_the_header_of_its_credential_alone() {
    let scene = Scene::new(|at, rules| rules.allow(with_credential(at, &[]))).await;
    let own = format!("Authorization: Bearer {PLACEHOLDER}\r\n");
    for other in ["X-Any", "X-Api-Key", "Referer"] {
        for beside in ["", own.as_str()] {
            let answer = scene.get("/x", &format!("{other}: {PLACEHOLDER}\r\n{beside}")).await;
            assert!(answer.contains("belongs into `authorization`"), "{other} {beside}: {answer}");
        }
    }
    assert!(scene.origin.seen().is_empty());
    assert!(scene.get("/x", &own).await.contains("200 OK"));
    // One that is sent for a user has its name beside it, in base64.
    let basic = Credential::new("hub", PLACEHOLDER, SECRET).unwrap().sent_in("Authorization", "Basic me:").unwrap();
    let pki = Pki::new();
    let origin = Origin::tls(&pki, "name.test", &["http/1.1"]).await;
    let at = format!("name.test:{}", origin.port);
    let rules = Rules::none().localhost(origin.port).allow(with_credential(&at, &[]));
    let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder.credential(basic)).await;
    let mut stream = stage.tls(&at, "name.test", &client_config(&authority, &[])).await.unwrap();
    assert!(ask(&mut stream, &get_direct(&at, "/")).await.contains("200 OK"));
    let sent = format!("Basic {}", STANDARD.encode(format!("me:{SECRET}")));
    assert_eq!(origin.seen()[0].headers["authorization"], sent);
}

#[tokio::test]
async fn e22_a_foreign_credential_is_refused_where_one_is_bound_to_the_host() {
    let scene = Scene::new(|at, rules| {
        let mut plain = rule(at);
        plain.inspection = Inspection::Inspected;
        rules.allow(with_credential(at, &["/repos/**"])).allow(plain)
    })
    .await;
    for (path, header) in [
        ("/repos/x", "Authorization: Bearer attackers-own-key\r\n"),
        ("/upload", "Authorization: Bearer attackers-own-key\r\n"),
        ("/repos/x", "Authorization: Bearer attackers-own-key ringfence-placeholder-hub-0123456789\r\n"),
        ("/repos/x", "X-Api-Key: 0123key,ringfence-placeholder-hub-0123456789\r\n"),
        ("/upload", "X-Api-Key: attackers-own-key\r\n"),
        ("/upload", "Cookie: session=attackers\r\n"),
        ("/upload?access_token=attackers", ""),
        ("/upload?a=1&KEY=attackers", ""),
        ("/upload?%6bey=attackers", ""),
    ] {
        let answer = scene.get(path, header).await;
        assert!(answer.contains("(net.credential)"), "{path} {header}: {answer}");
    }
    assert!(scene.origin.seen().is_empty());
    assert!(scene.get("/upload", "").await.starts_with("HTTP/1.1 200 "));
    assert!(!scene.last().headers.contains_key("authorization"));
    assert!(scene.get("/repos/x", &format!("Authorization: Bearer {PLACEHOLDER}\r\n")).await.contains("200 OK"));
    // The twin: where nothing is bound, the key passes.
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let stage = Stage::new(Rules::none().allow(rule(&at)).localhost(origin.port)).await;
    let request = get(&at, "/").replace("Connection", "Authorization: Bearer attackers-own-key\r\nConnection");
    assert!(stage.talk(request).await.contains("200 OK"));
}

#[tokio::test]
async fn e23_a_placeholder_goes_nowhere_else() {
    let scene = Scene::new(|at, rules| {
        let mut plain = rule(at);
        plain.inspection = Inspection::Inspected;
        rules.allow(with_credential(at, &["/repos/**"])).allow(plain)
    })
    .await;
    let basic = STANDARD.encode(format!("user:{PLACEHOLDER}"));
    for (path, header) in [
        ("/other", format!("Authorization: Bearer {PLACEHOLDER}\r\n")),
        ("/other", format!("X-Any: {PLACEHOLDER}\r\n")),
        ("/other", format!("X-Any: Basic {basic}\r\n")),
        (&format!("/repos/{PLACEHOLDER}"), String::new()),
        (&format!("/repos/x?q={PLACEHOLDER}"), String::new()),
        (&format!("/repos/x?q={}", PLACEHOLDER.replace('p', "%70")), String::new()),
    ] {
        let answer = scene.get(path, &header).await;
        assert!(answer.contains("(net.credential)"), "{path} {header}: {answer}");
    }
    assert!(scene.origin.seen().is_empty());
    // In a body it is cut off, also in base64.
    for body in [PLACEHOLDER.to_owned(), format!("abc{basic}")] {
        let head = format!("POST /repos/x HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n", scene.at, body.len());
        drop(scene.ask(&format!("{head}Connection: close\r\n\r\n{body}")).await);
    }
    assert!(scene.origin.seen().iter().all(|seen| seen.body == b"(cut)"));
    assert!(scene.get("/repos/x", &format!("Authorization: Bearer {PLACEHOLDER}\r\n")).await.contains("200 OK"));

    // Over plain HTTP, to whatever host.
    let origin = Origin::plain().await;
    let at = format!("plain.test:{}", origin.port);
    let rules = Rules::none().allow(rule(&at)).localhost(origin.port);
    let names = crate::stage::Names::of(&[]);
    let stage = Stage::with(rules, names, |builder| builder.credential(credential())).await;
    let request = get(&at, "/").replace("Connection", &format!("Authorization: Bearer {PLACEHOLDER}\r\nConnection"));
    assert!(stage.talk(request).await.contains("(net.credential)"));
    let denied = stage.talk(format!("CONNECT {PLACEHOLDER}:443 HTTP/1.1\r\n\r\n")).await;
    assert!(denied.contains("(net.credential)"), "{denied}");
    assert!(origin.seen().is_empty() && stage.names.asked().is_empty());
}

#[tokio::test]
async fn e17_a_redirect_does_not_carry_the_secret() {
    let scene = Scene::new(|at, rules| rules.allow(with_credential(at, &[]))).await;
    let answer = scene.get("/redirect", "").await;
    assert!(answer.starts_with("HTTP/1.1 302 ") && !answer.contains(SECRET), "{answer}");
    // The proxy follows nothing: the origin saw one request, and the second hop is a request of its own.
    assert_eq!(scene.origin.seen().len(), 1);
    assert!(scene.stage.connect("elsewhere.test:443").await.unwrap_err().contains("(net.not-listed)"));
}

#[tokio::test]
async fn an_answer_that_cannot_be_looked_through_is_not_passed_on() {
    let scene = Scene::new(|at, rules| rules.allow(with_credential(at, &[]))).await;
    let answer = scene.get("/gzip", "Accept-Encoding: gzip\r\nRange: bytes=0-5\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 502 ") && !answer.contains(SECRET), "{answer}");
    let seen = scene.last();
    assert_eq!(seen.headers["accept-encoding"], "identity");
    assert!(!seen.headers.contains_key("range"));
    let upgrade =
        format!("GET /ws HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\r\n", scene.at);
    assert!(scene.ask(&upgrade).await.contains("(net.credential)"));
}

#[tokio::test]
async fn a_credential_that_is_not_at_hand_denies() {
    let pki = Pki::new();
    let origin = Origin::tls(&pki, "name.test", &[]).await;
    let at = format!("name.test:{}", origin.port);
    let rules = Rules::none().allow(with_credential(&at, &[])).localhost(origin.port);
    let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder).await;
    let mut stream = stage.tls(&at, "name.test", &client_config(&authority, &[])).await.unwrap();
    assert!(ask(&mut stream, &get_direct(&at, "/")).await.contains("(net.credential)"));
    assert!(origin.seen().is_empty());
}

#[tokio::test]
async fn a_reason_phrase_is_no_way_to_echo_a_secret() {
    let pki = Pki::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let at = format!("name.test:{port}");
    let acceptor = tokio_rustls::TlsAcceptor::from(pki.server("name.test", &[]));
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut head).await.unwrap();
            }
            let head = String::from_utf8(head).unwrap();
            let secret = head.lines().find_map(|line| line.strip_prefix("authorization: ")).unwrap_or("None");
            let answer = format!("HTTP/1.1 200 {secret}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).await.unwrap();
            drop(stream.shutdown().await);
        }
    });
    let mut plain = rule(&at);
    plain.inspection = Inspection::Inspected;
    for (rule, sent, expected) in [
        (plain, "Authorization: mine\r\n", "HTTP/1.1 200 mine\r\n"),
        (with_credential(&at, &[]), "", "HTTP/1.1 200 OK\r\n"),
    ] {
        let rules = Rules::none().localhost(port).allow(rule);
        let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder.credential(credential())).await;
        let mut stream = stage.tls(&at, "name.test", &client_config(&authority, &[])).await.unwrap();
        let request = get_direct(&at, "/").replace("Connection", &format!("{sent}Connection"));
        let answer = ask(&mut stream, &request).await;
        assert!(answer.starts_with(expected) && !answer.contains(SECRET), "{answer}");
    }
}
