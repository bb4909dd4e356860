//! TLS that is opened.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ringfence_egress::{Inspection, Inspector, Rule, Rules, Via, proxy_environment, trust_environment};
use ringfence_policy::NetRule;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::stage::{Origin, Pki, Stage, ask, client_config, get_direct, read_to_end, rule};

fn inspected(at: &str) -> Rule {
    let mut rule = rule(at);
    rule.inspection = Inspection::Inspected;
    rule
}

fn only_acme(at: &str) -> Rule {
    let mut net: NetRule = at.parse().unwrap();
    net.methods = vec!["GET".to_owned()];
    net.paths = vec!["/repos/acme/**".parse().unwrap()];
    let mut rule = Rule::new(net, "acme");
    rule.inspection = Inspection::Inspected;
    rule
}

#[tokio::test]
async fn methods_and_paths_are_judged_inside_tls_over_http_1() {
    let pki = Pki::new();
    let origin = Origin::tls(&pki, "name.test", &["http/1.1"]).await;
    let at = format!("name.test:{}", origin.port);
    let rules = Rules::none().allow(only_acme(&at)).localhost(origin.port);
    let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder).await;
    let config = client_config(&authority, &["h2", "http/1.1"]);
    for (request, expected) in [
        (get_direct(&at, "/repos/acme/x"), "HTTP/1.1 200 "),
        (get_direct(&at, "/repos/other/x"), "(net.path)"),
        (get_direct(&at, "/repos/acme/%2e%2e/other"), "(net.path)"),
        (get_direct(&at, "/repos/acme/x").replace("GET", "DELETE"), "(net.method)"),
        (get_direct("other.test", "/repos/acme/x"), "(net.names-disagree)"),
    ] {
        let mut stream = stage.tls(&at, "name.test", &config).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        let answer = ask(&mut stream, &request).await;
        assert!(answer.contains(expected), "{request}: {answer}");
    }
    assert_eq!(origin.seen().len(), 1);
    let records = stage.book.decided.lock().unwrap().clone();
    let request = records.iter().find(|record| record.via == Via::Inspected).unwrap();
    assert_eq!((request.method.as_deref(), request.path.as_deref()), (Some("GET"), Some("/repos/acme/x")));
    // The twin: a client that does not trust the sandbox's authority sees that somebody is in between.
    assert!(stage.tls(&at, "name.test", &client_config(&pki.root, &[])).await.is_err());
}

#[tokio::test]
async fn methods_and_paths_are_judged_inside_tls_over_http_2() {
    let pki = Pki::new();
    let origin = Origin::tls(&pki, "name.test", &["h2"]).await;
    let at = format!("name.test:{}", origin.port);
    let rules = Rules::none().allow(only_acme(&at)).localhost(origin.port);
    let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder).await;
    let stream = stage.tls(&at, "name.test", &client_config(&authority, &["h2", "http/1.1"])).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = |method: &str, authority: &str, path: &str| {
        let mut sender = sender.clone();
        let uri = format!("https://{authority}{path}");
        let request = http::Request::builder().method(method).uri(uri).body(Empty::<Bytes>::new()).unwrap();
        async move {
            let response = sender.send_request(request).await.unwrap();
            let status = response.status().as_u16();
            (status, String::from_utf8_lossy(&response.into_body().collect().await.unwrap().to_bytes()).into_owned())
        }
    };
    let (good, path, method, host) = tokio::join!(
        request("GET", &at, "/repos/acme/x"),
        request("GET", &at, "/repos/acme/../other"),
        request("POST", &at, "/repos/acme/x"),
        request("GET", "other.test", "/repos/acme/x"),
    );
    assert_eq!(good.0, 200, "{}", good.1);
    for ((status, text), code) in [(path, "net.path"), (method, "net.method"), (host, "net.names-disagree")] {
        assert!(status == 403 && text.contains(code), "{status} {text}");
    }
    let seen = origin.seen();
    assert_eq!((seen.len(), seen[0].version, seen[0].target.as_str()), (1, http::Version::HTTP_2, "/repos/acme/x"));
}

#[tokio::test]
async fn what_is_under_way_over_http_2_ends_when_serving_stops() {
    let pki = Pki::new();
    let origin = Origin::tls(&pki, "name.test", &["h2"]).await;
    let at = format!("name.test:{}", origin.port);
    let rules = Rules::none().allow(inspected(&at)).localhost(origin.port);
    let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder).await;
    let stream = stage.tls(&at, "name.test", &client_config(&authority, &["h2"])).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    // The origin answers when it has the whole body, which never comes.
    let endless = StreamBody::new(futures_util::stream::pending::<Result<Frame<Bytes>, Infallible>>());
    let request = http::Request::post(format!("https://{at}/up")).body(endless).unwrap();
    let waiting = tokio::spawn(async move { sender.send_request(request).await.map(drop) });
    let soon = |done: Box<dyn Fn() -> bool>| async move {
        for _ in 0..2000 {
            if done() {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
        false
    };
    let book = Arc::clone(&stage.book);
    assert!(soon(Box::new(move || book.decided.lock().unwrap().len() >= 2)).await, "the request did not arrive");
    assert!(Arc::strong_count(&stage.book) > 1, "the probe proves nothing");
    stage.serving.abort();
    // Whoever carries something holds the book.
    let book = Arc::downgrade(&stage.book);
    assert!(soon(Box::new(move || book.strong_count() == 1)).await, "something goes on");
    assert!(waiting.await.unwrap().is_err());
}

#[tokio::test]
async fn an_origin_that_cannot_be_verified_gets_nothing() {
    let (pki, stranger) = (Pki::new(), Pki::new());
    let origin = Origin::tls(&stranger, "name.test", &[]).await;
    let wrong = Origin::tls(&pki, "other.test", &[]).await;
    for port in [origin.port, wrong.port] {
        let at = format!("name.test:{port}");
        let (stage, authority) =
            Stage::inspecting(Rules::none().allow(inspected(&at)).localhost(port), &pki, |b| b).await;
        let mut stream = stage.tls(&at, "name.test", &client_config(&authority, &[])).await.unwrap();
        let answer = ask(&mut stream, &get_direct(&at, "/")).await;
        assert!(answer.starts_with("HTTP/1.1 502 ") && answer.contains("could not be verified"), "{answer}");
    }
    assert!(origin.seen().is_empty() && wrong.seen().is_empty());
}

#[tokio::test]
async fn a_rule_that_needs_inspection_denies_where_there_is_no_inspector() {
    let origin = Origin::plain().await;
    let at = format!("name.test:{}", origin.port);
    let stage = Stage::new(Rules::none().allow(inspected(&at)).localhost(origin.port)).await;
    assert!(stage.connect(&at).await.unwrap_err().contains("(net.needs-inspection)"));
    assert_eq!(origin.connections(), 0);
}

#[tokio::test]
async fn e16_a_websocket_inside_tls_passes_after_its_request_was_judged() {
    let pki = Pki::new();
    let origin = Origin::tls(&pki, "name.test", &["http/1.1"]).await;
    let at = format!("name.test:{}", origin.port);
    let rules = Rules::none().allow(inspected(&at)).localhost(origin.port);
    let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder).await;
    let mut stream = stage.tls(&at, "name.test", &client_config(&authority, &[])).await.unwrap();
    let request = format!("GET /ws HTTP/1.1\r\nHost: {at}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        answer.extend(byte);
    }
    assert!(answer.starts_with(b"HTTP/1.1 101 "));
    stream.write_all(b"hello").await.unwrap();
    assert_eq!(read_to_end(&mut stream).await, "echo hello");
}

#[tokio::test]
async fn e07_inspection_does_not_help_a_name_that_disagrees() {
    let pki = Pki::new();
    let origin = Origin::tls(&pki, "other.test", &[]).await;
    let at = format!("name.test:{}", origin.port);
    let rules = Rules::none().allow(inspected(&at)).localhost(origin.port);
    let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder).await;
    assert!(stage.tls(&at, "other.test", &client_config(&authority, &[])).await.is_err());
    assert_eq!(stage.book.denials(), ["net.names-disagree"]);
    assert!(origin.seen().is_empty());
}

#[tokio::test]
async fn every_sandbox_has_an_authority_of_its_own_and_its_key_is_nowhere() {
    let pki = Pki::new();
    let origin = Origin::tls(&pki, "name.test", &[]).await;
    let at = format!("name.test:{}", origin.port);
    let rules = || Rules::none().allow(inspected(&at)).localhost(origin.port);
    let (mine, my_authority) = Stage::inspecting(rules(), &pki, |builder| builder).await;
    let (_, other_authority) = Stage::inspecting(rules(), &pki, |builder| builder).await;
    assert!(mine.tls(&at, "name.test", &client_config(&other_authority, &[])).await.is_err());
    assert!(mine.tls(&at, "name.test", &client_config(&my_authority, &[])).await.is_ok());
    let inspector = Inspector::trusting(vec![pki.root.clone()]).unwrap();
    for text in [inspector.certificate_pem(), inspector.bundle_pem(), format!("{inspector:?}")] {
        assert!(!text.contains("PRIVATE"), "{text}");
    }
    assert_eq!(inspector.bundle_pem().matches("BEGIN CERTIFICATE").count(), 2);
    assert!(Inspector::trusting(Vec::new()).is_err());
}

#[test]
fn programs_are_led_to_the_bundle_and_to_the_proxy_by_their_variables() {
    let trust = trust_environment("/run/ringfence/trust.pem");
    for name in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT"] {
        assert!(trust.contains(&(name, "/run/ringfence/trust.pem".to_owned())), "{name}");
    }
    let proxy = proxy_environment("127.0.0.1:3128");
    assert!(proxy.contains(&("https_proxy", "http://127.0.0.1:3128".to_owned())));
    assert!(proxy.contains(&("NO_PROXY", String::new())));
    drop(Arc::new(proxy));
}

#[tokio::test]
async fn an_origin_that_speaks_another_version_when_it_is_dialled_again_is_not_used() {
    let pki = Pki::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let at = format!("name.test:{port}");
    // The first connection has one request over HTTP/2; those after it speak nothing but HTTP/1.1, or HTTP/2 again.
    let (second, again) = (pki.server("name.test", &[]), pki.server("name.test", &["h2"]));
    let configs = vec![pki.server("name.test", &["h2"]), second, again];
    tokio::spawn(async move {
        for config in configs {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(stream) = tokio_rustls::TlsAcceptor::from(config).accept(stream).await else { continue };
            let service = hyper::service::service_fn(|_| async {
                Ok::<_, std::convert::Infallible>(http::Response::new(Empty::<Bytes>::new()))
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let serving = builder.serve_connection(TokioIo::new(stream), service);
            drop(tokio::time::timeout(std::time::Duration::from_millis(200), serving).await);
        }
    });
    let mut opened = rule(&at);
    opened.inspection = Inspection::Inspected;
    let rules = Rules::none().allow(opened).localhost(port);
    let (stage, authority) = Stage::inspecting(rules, &pki, |builder| builder).await;
    let stream = stage.tls(&at, "name.test", &client_config(&authority, &["h2"])).await.unwrap();
    let builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
    let (mut sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let request = http::Request::get(format!("https://{at}/")).body(Empty::<Bytes>::new()).unwrap();
        let response = sender.send_request(request).await.unwrap();
        statuses.push(response.status().as_u16());
        let said = response.into_body().collect().await.unwrap().to_bytes();
        if statuses.len() == 2 {
            assert!(String::from_utf8_lossy(&said).contains("does not speak what it spoke before"), "{said:?}");
        }
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
    }
    assert_eq!(statuses, [200, 502, 200]);
}
