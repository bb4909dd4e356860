//! Headers that are left out, and requests that are signed.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ring::{digest, hmac};
use ringfence_egress::{Credential, Rule, Rules};
use ringfence_policy::NetRule;

use crate::stage::{Origin, Pki, Seen, Stage, ask, client_config, get, get_direct, rule};

const KEY: &str = "0123456789abcdef0123456789abcdef";
const PLACEHOLDER: &str = "ringfence.corp.placeholder";

struct Scene {
    stage: Stage,
    origin: Origin,
    config: Arc<rustls::ClientConfig>,
    at: String,
}

impl Scene {
    async fn new(rules: impl FnOnce(&str) -> Rule) -> Self {
        let pki = Pki::new();
        let origin = Origin::tls(&pki, "name.test", &["h2", "http/1.1"]).await;
        let at = format!("name.test:{}", origin.port);
        let rules = Rules::none().localhost(origin.port).allow(rules(&at));
        let signs = Credential::new("corp", PLACEHOLDER, KEY).unwrap().signing_in("authorization").unwrap();
        let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder.credential(signs)).await;
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

fn net(at: &str) -> NetRule {
    at.parse().unwrap()
}

fn signed(at: &str) -> Rule {
    Rule::new(NetRule { credential: Some("corp".to_owned()), ..net(at) }, "corp")
}

fn stripped(at: &str) -> Rule {
    Rule::new(NetRule { strip: vec!["cookie".to_owned(), "x-echo".to_owned(), "x-id".to_owned()], ..net(at) }, "strip")
}

/// What an origin does with a signature: whether it is right, and over which body.
fn verify(seen: &Seen, authority: &str) -> Result<String, String> {
    let value = seen.headers.get("authorization").ok_or("none")?.to_str().unwrap();
    let fields = value.strip_prefix("Ringfence-HMAC-SHA256 ").ok_or("another scheme")?;
    let field = |name: &str| {
        let found = fields.split(", ").find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        found.map(str::to_owned).ok_or(format!("no {name}"))
    };
    let (key, time, nonce, body) = (field("key")?, field("time")?, field("nonce")?, field("body")?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    if now.abs_diff(time.parse().unwrap()) > 300 {
        return Err(format!("{time} is not {now}"));
    }
    let text =
        format!("Ringfence-HMAC-SHA256\n{key}\n{time}\n{nonce}\n{}\n{authority}\n{}\n{body}", seen.method, seen.target);
    let own = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, KEY.as_bytes()), text.as_bytes());
    if hex(own.as_ref()) != field("signature")? {
        return Err("a wrong signature".to_owned());
    }
    Ok(body)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

#[tokio::test]
async fn a_request_is_signed_for_its_host_and_the_key_stays_here() {
    let scene = Scene::new(signed).await;
    let answer = scene.get("/a/../b?c=d%20e", "").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let seen = scene.last();
    assert_eq!(verify(&seen, &scene.at), Ok(hash(b"")));
    assert!(
        verify(&Seen { target: "/other".to_owned(), ..seen.clone() }, &scene.at).is_err(),
        "the probe proves nothing"
    );
    assert!(!format!("{:?}", seen.headers).contains(KEY));
    // The origin echoes every header. A signature that is read could be sent once more.
    let signature = seen.headers["authorization"].to_str().unwrap().rsplit('=').next().unwrap();
    assert!(!answer.contains(signature) && answer.contains("signature=***"), "{answer}");
    // Each is another one.
    drop(scene.get("/a/../b?c=d%20e", "").await);
    assert_ne!(scene.last().headers["authorization"], seen.headers["authorization"]);
}

#[tokio::test]
async fn a_small_body_is_signed_and_one_that_is_large_or_of_unknown_length_is_said_not_to_be() {
    let scene = Scene::new(signed).await;
    let post = |length: usize| {
        let body = "x".repeat(length);
        let at = &scene.at;
        format!("POST /p HTTP/1.1\r\nHost: {at}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
    };
    for (length, is_signed) in [(5, true), (16 * 1024, true), (16 * 1024 + 1, false)] {
        assert!(scene.ask(&post(length)).await.starts_with("HTTP/1.1 200 "));
        let seen = scene.last();
        assert_eq!(seen.body.len(), length);
        let expected = if is_signed { hash(&seen.body) } else { "unsigned".to_owned() };
        assert_eq!(verify(&seen, &scene.at), Ok(expected));
    }
    let at = &scene.at;
    let chunked = format!(
        "POST /p HTTP/1.1\r\nHost: {at}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    );
    assert!(scene.ask(&chunked).await.starts_with("HTTP/1.1 200 "));
    assert_eq!((verify(&scene.last(), at), scene.last().body), (Ok("unsigned".to_owned()), b"hi".to_vec()));
}

#[tokio::test]
async fn nobody_else_signs_for_such_a_host_and_nothing_is_signed_for_another() {
    let scene = Scene::new(signed).await;
    for header in [
        "Authorization: Ringfence-HMAC-SHA256 key=corp\r\n".to_owned(),
        format!("Authorization: Bearer {PLACEHOLDER}\r\n"),
        "X-Api-Key: mine\r\n".to_owned(),
        format!("X-Any: {PLACEHOLDER}\r\n"),
    ] {
        assert!(scene.get("/", &header).await.starts_with("HTTP/1.1 403 "), "{header}");
    }
    assert!(scene.origin.seen().is_empty());
    let other = Scene::new(|at| Rule::new(NetRule { inspect: true, ..net(at) }, "plain")).await;
    assert!(other.get("/", "").await.starts_with("HTTP/1.1 200 "));
    assert!(!other.last().headers.contains_key("authorization"));
}

#[tokio::test]
async fn headers_that_a_rule_leaves_out_pass_in_neither_direction() {
    let scene = Scene::new(stripped).await;
    let sent = "Cookie: a=b\r\nX-Id: 1\r\nx_id: 2\r\nCOOKIE: c=d\r\nX-Other: 3\r\nAuthorization: me\r\n";
    let answer = scene.get("/", sent).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let headers = scene.last().headers;
    for gone in ["cookie", "x-id", "x_id"] {
        assert!(!headers.contains_key(gone), "{gone}: {headers:?}");
    }
    assert_eq!(headers["x-other"], "3");
    // The origin says who asked in a header of its own.
    assert!(!answer.contains("x-echo"), "{answer}");
    let control = Scene::new(|at| Rule::new(NetRule { inspect: true, ..net(at) }, "plain")).await;
    let answer = control.get("/", sent).await;
    assert!(answer.contains("x-echo: me") && control.last().headers.contains_key("cookie"), "{answer}");
}

#[tokio::test]
async fn plain_http_is_held_to_the_same() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let request = get(&at, "/").replace("Connection", "Cookie: a=b\r\nConnection");
    for (rule, is_left_out) in [(rule(&at), false), (stripped(&at), true)] {
        let stage = Stage::new(Rules::none().localhost(origin.port).allow(rule)).await;
        assert!(stage.talk(&request).await.starts_with("HTTP/1.1 200 "));
        assert_eq!(origin.seen().pop().unwrap().headers.contains_key("cookie"), !is_left_out);
    }
}

/// A body of two bytes with trailers.
struct Trailed(Vec<Frame<Bytes>>);

impl Body for Trailed {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop().map(Ok))
    }
}

#[tokio::test]
async fn a_trailer_is_no_way_around() {
    for (rule, is_left_out) in [
        ((|at: &str| Rule::new(NetRule { inspect: true, ..net(at) }, "plain")) as fn(&str) -> Rule, false),
        (stripped as fn(&str) -> Rule, true),
    ] {
        let pki = Pki::new();
        let origin = Origin::tls(&pki, "name.test", &["h2"]).await;
        let at = format!("name.test:{}", origin.port);
        let rules = Rules::none().localhost(origin.port).allow(rule(&at));
        let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder).await;
        let stream = stage.tls(&at, "name.test", &client_config(&authority, &["h2"])).await.unwrap();
        let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let trailers =
            [("x-id", "1"), ("x-end", "2")].map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let frames = vec![Frame::trailers(trailers.into_iter().collect()), Frame::data(Bytes::from_static(b"hi"))];
        let request = http::Request::post(format!("https://{at}/")).body(Trailed(frames)).unwrap();
        assert_eq!(sender.send_request(request).await.unwrap().status(), 200);
        let seen = origin.seen().pop().unwrap();
        assert_eq!((seen.body.as_slice(), seen.trailers.contains_key("x-end")), (&b"hi"[..], true));
        assert_eq!(seen.trailers.contains_key("x-id"), !is_left_out);
    }
}
