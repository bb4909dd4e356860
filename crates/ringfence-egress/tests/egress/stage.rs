//! What the tests stand on: origins that remember, a resolver that can change its mind, a book of decisions, a client.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use ringfence_egress::{Identity, Inspector, Proxy, ProxyBuilder, Record, Resolve, Rule, Rules, Sink, Usage};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Nothing here takes longer, unless something hangs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Answers names from a table. Each name has a list of answers; the last one is given for ever.
#[derive(Debug, Default)]
pub(crate) struct Names {
    answers: Mutex<HashMap<String, Vec<Vec<IpAddr>>>>,
    pub(crate) asked: Mutex<Vec<String>>,
}

impl Names {
    pub(crate) fn of(list: &[(&str, &[&[&str]])]) -> Arc<Self> {
        let parse = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        let table = list
            .iter()
            .map(|(name, answers)| ((*name).to_owned(), answers.iter().map(parse).collect::<Vec<Vec<IpAddr>>>()));
        Arc::new(Self { answers: Mutex::new(table.collect()), asked: Mutex::default() })
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Resolve for Names {
    fn resolve<'a>(&'a self, name: &'a str) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.asked.lock().unwrap().push(name.to_owned());
        let mut answers = self.answers.lock().unwrap();
        let answer = match answers.get_mut(name) {
            Some(list) if list.len() > 1 => Ok(list.remove(0)),
            Some(list) => Ok(list.first().cloned().unwrap_or_default()),
            None => Ok(vec!["127.0.0.1".parse().unwrap()]),
        };
        Box::pin(async move { answer })
    }
}

/// Remembers what was decided.
#[derive(Debug, Default)]
pub(crate) struct Book {
    pub(crate) decided: Mutex<Vec<Record>>,
    pub(crate) ended: Mutex<Vec<(Record, Usage)>>,
}

impl Sink for Book {
    fn decided(&self, record: &Record) -> u64 {
        let mut decided = self.decided.lock().unwrap();
        decided.push(record.clone());
        decided.len() as u64
    }

    fn ended(&self, number: u64, record: &Record, usage: &Usage) {
        assert_eq!(self.decided.lock().unwrap()[number as usize - 1], *record, "what ends is what began");
        self.ended.lock().unwrap().push((record.clone(), usage.clone()));
    }
}

impl Book {
    /// The codes of all denials.
    pub(crate) fn denials(&self) -> Vec<&'static str> {
        self.decided.lock().unwrap().iter().filter_map(|record| record.denied).map(|reason| reason.code()).collect()
    }

    /// Waits until `count` allowed requests or connections have ended.
    pub(crate) async fn ended(&self, count: usize) -> Vec<(Record, Usage)> {
        for _ in 0..1000 {
            let ended = self.ended.lock().unwrap().clone();
            if ended.len() >= count {
                return ended;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("{:?}", self.ended.lock().unwrap());
    }
}

/// A request as an origin saw it.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) version: http::Version,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: http::HeaderMap,
}

/// A server of HTTP that remembers what it was asked, and answers with an echo of it.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
}

impl Origin {
    pub(crate) async fn plain() -> Self {
        Self::start(None).await
    }

    pub(crate) async fn tls(pki: &Pki, name: &str, protocols: &[&str]) -> Self {
        Self::start(Some(TlsAcceptor::from(pki.server(name, protocols)))).await
    }

    async fn start(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin =
            Self { port: listener.local_addr().unwrap().port(), seen: Arc::default(), connections: Arc::default() };
        let copy = origin.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                copy.connections.fetch_add(1, Ordering::Relaxed);
                let (origin, tls) = (copy.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => origin.serve(stream, "http/1.1").await,
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                            origin.serve(stream, if http2 { "h2" } else { "http/1.1" }).await;
                        }
                    }
                });
            }
        });
        origin
    }

    async fn serve(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, protocol: &str) {
        let service = service_fn(move |request| {
            let origin = self.clone();
            async move { Ok::<_, Infallible>(origin.answer(request).await) }
        });
        let io = TokioIo::new(stream);
        if protocol == "h2" {
            drop(hyper::server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(io, service).await);
        } else {
            drop(hyper::server::conn::http1::Builder::new().serve_connection(io, service).with_upgrades().await);
        }
    }

    async fn answer(&self, mut request: Request<Incoming>) -> Response<Full<Bytes>> {
        let upgrade = request.headers().contains_key("upgrade").then(|| hyper::upgrade::on(&mut request));
        let (parts, body) = request.into_parts();
        let (body, trailers) = match body.collect().await {
            Ok(body) => {
                let trailers = body.trailers().cloned().unwrap_or_default();
                (body.to_bytes().to_vec(), trailers)
            }
            Err(_) => (b"(cut)".to_vec(), http::HeaderMap::new()),
        };
        let target = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        let method = parts.method.to_string();
        let seen = Seen { method, target, version: parts.version, headers: parts.headers, body, trailers };
        let mut echo = format!("{} {}\n", seen.method, seen.target);
        for (name, value) in &seen.headers {
            echo += &format!("{name}: {}\n", value.to_str().unwrap());
        }
        echo += &String::from_utf8_lossy(&seen.body);
        self.seen.lock().unwrap().push(seen.clone());
        let mut response = Response::new(Full::new(Bytes::from(echo)));
        if let Some(upgrade) = upgrade {
            tokio::spawn(async move {
                let mut stream = TokioIo::new(upgrade.await.unwrap());
                let mut bytes = [0; 5];
                stream.read_exact(&mut bytes).await.unwrap();
                stream.write_all(&[b"echo ", bytes.as_slice()].concat()).await.unwrap();
            });
            *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert("connection", "upgrade".parse().unwrap());
            response.headers_mut().insert("upgrade", "websocket".parse().unwrap());
            *response.body_mut() = Full::default();
        }
        if seen.target == "/redirect" {
            *response.status_mut() = http::StatusCode::FOUND;
            response.headers_mut().insert("location", "https://elsewhere.test/take".parse().unwrap());
        }
        if seen.target == "/gzip" {
            response.headers_mut().insert("content-encoding", "gzip".parse().unwrap());
        }
        if let Some(value) = seen.headers.get("authorization") {
            response.headers_mut().insert("x-echo", value.clone());
        }
        response
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// A certificate authority of the outside.
pub(crate) struct Pki {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) root: CertificateDer<'static>,
}

impl Pki {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), root }
    }

    pub(crate) fn server(&self, name: &str, protocols: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let leaf = params.signed_by(&key, &self.issuer).unwrap().der().clone();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf], private)
            .unwrap();
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

/// A client of TLS that trusts `root` alone.
pub(crate) fn client_config(root: &CertificateDer<'static>, protocols: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(root.clone()).unwrap();
    let mut config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}

/// A rule of the policy's own spelling.
pub(crate) fn rule(text: impl AsRef<str>) -> Rule {
    let text = text.as_ref();
    Rule::new(text.parse().unwrap(), text)
}

/// A proxy that listens, and what it wrote down.
pub(crate) struct Stage {
    pub(crate) at: SocketAddr,
    pub(crate) book: Arc<Book>,
    pub(crate) names: Arc<Names>,
    pub(crate) serving: tokio::task::JoinHandle<io::Error>,
}

impl Stage {
    pub(crate) async fn new(rules: Rules) -> Self {
        Self::with(rules, Names::of(&[]), |builder| builder).await
    }

    pub(crate) async fn with(
        rules: Rules,
        names: Arc<Names>,
        change: impl FnOnce(ProxyBuilder) -> ProxyBuilder,
    ) -> Self {
        let book = Arc::new(Book::default());
        let builder = Proxy::builder(Identity::new("sandbox-a", "run-1"), rules)
            .resolver(Arc::clone(&names) as Arc<dyn Resolve>)
            .sink(Arc::clone(&book) as Arc<dyn Sink>);
        let proxy = change(builder).build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = listener.local_addr().unwrap();
        let serving = tokio::spawn(async move { proxy.serve(listener).await });
        Self { at, book, names, serving }
    }

    /// A proxy that opens TLS, before origins of `pki`. The certificate is the one that clients inside trust.
    pub(crate) async fn inspecting(
        rules: Rules,
        pki: &Pki,
        change: impl FnOnce(ProxyBuilder) -> ProxyBuilder,
    ) -> (Self, CertificateDer<'static>) {
        let inspector = Arc::new(Inspector::trusting(vec![pki.root.clone()]).unwrap());
        let certificate = inspector.certificate().clone();
        let stage = Self::with(rules, Names::of(&[]), |builder| change(builder.inspector(inspector))).await;
        (stage, certificate)
    }

    /// Sends `text` and gives all that comes back.
    pub(crate) async fn talk(&self, text: impl AsRef<[u8]>) -> String {
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        stream.write_all(text.as_ref()).await.unwrap();
        read_to_end(&mut stream).await
    }

    /// A tunnel by CONNECT, or the answer that denies it.
    pub(crate) async fn connect(&self, target: &str) -> Result<TcpStream, String> {
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            answer.extend(byte);
        }
        let answer = String::from_utf8(answer).unwrap();
        if answer.starts_with("HTTP/1.1 200 ") { Ok(stream) } else { Err(answer + &read_to_end(&mut stream).await) }
    }

    /// A tunnel by SOCKS5, or the reply that denies it.
    pub(crate) async fn socks(&self, name: &[u8], port: u16) -> Result<TcpStream, u8> {
        let mut stream = TcpStream::connect(self.at).await.unwrap();
        let mut request = vec![5, 1, 0, 5, 1, 0, 3, u8::try_from(name.len()).unwrap()];
        request.extend(name);
        request.extend(port.to_be_bytes());
        stream.write_all(&request).await.unwrap();
        let mut reply = [0; 12];
        tokio::time::timeout(PATIENCE, stream.read_exact(&mut reply)).await.unwrap().unwrap();
        assert_eq!(reply[..3], [5, 0, 5]);
        if reply[3] == 0 { Ok(stream) } else { Err(reply[3]) }
    }

    /// TLS through a tunnel: to `target`, asking for `name`.
    pub(crate) async fn tls(
        &self,
        target: &str,
        name: &'static str,
        config: &Arc<ClientConfig>,
    ) -> io::Result<TlsStream<TcpStream>> {
        let stream = self.connect(target).await.map_err(io::Error::other)?;
        TlsConnector::from(Arc::clone(config)).connect(ServerName::try_from(name).unwrap(), stream).await
    }
}

/// All that comes, also when the other side ends it rudely.
pub(crate) async fn read_to_end(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut bytes = Vec::new();
    let reading = async {
        let mut buffer = [0; 16 * 1024];
        while let Ok(length @ 1..) = stream.read(&mut buffer).await {
            bytes.extend_from_slice(&buffer[..length]);
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("the connection is not closed");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Sends a request and gives all that comes back until the end.
pub(crate) async fn ask(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), text: &str) -> String {
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    read_to_end(stream).await
}

/// `GET` with a whole URL, for a proxy.
pub(crate) fn get(authority: &str, path: &str) -> String {
    format!("GET http://{authority}{path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")
}

/// `GET` as it goes to an origin.
pub(crate) fn get_direct(authority: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n")
}
