//! An origin on the host's loopback that speaks HTTPS under an authority of the test's own, and remembers what it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// One request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    /// Names in small letters; trailers are among them, and over HTTP/2 the host that was asked for.
    pub(crate) headers: Vec<(String, String)>,
    /// As far as it came.
    pub(crate) body: Vec<u8>,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// What is answered.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn ok(body: impl Into<Vec<u8>>) -> Self {
        Self { status: 200, headers: Vec::new(), body: body.into() }
    }

    pub(crate) fn missing() -> Self {
        Self { status: 404, headers: Vec::new(), body: b"nothing here\n".to_vec() }
    }
}

/// Who the origins of one test are certified by.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let encoded = base64::engine::general_purpose::STANDARD.encode(params.self_signed(&key).unwrap().der());
        let lines: Vec<&str> = encoded.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        let pem = format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"));
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// A file that the host is told to trust, by the variable `SSL_CERT_FILE`.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let file = folder.join("authority.pem");
        std::fs::write(&file, &self.pem).unwrap();
        file
    }

    /// An origin on this machine that is called `name`.
    pub(crate) fn named(&self, name: &str, answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> TlsOrigin {
        self.start(name, "127.0.0.1", answer)
    }

    /// An origin at `address` on a port of its own.
    pub(crate) fn origin(&self, address: &str, answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> TlsOrigin {
        self.start(address, address, answer)
    }

    /// Likewise, which speaks HTTP/2 and nothing else.
    pub(crate) fn http2(&self, address: &str, answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> TlsOrigin {
        let mut config = self.config(address);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let (listener, asked): (_, Arc<Mutex<Vec<Asked>>>) = (TcpListener::bind((address, 0)).unwrap(), Arc::default());
        let port = listener.local_addr().unwrap().port();
        let (answer, remembered) = (Arc::new(answer), Arc::clone(&asked));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serve_http2(listener, config, answer, remembered));
        });
        TlsOrigin { name: address.to_owned(), port, asked }
    }

    fn config(&self, name: &str) -> ServerConfig {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap()
    }

    fn start(&self, name: &str, address: &str, answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> TlsOrigin {
        let config = self.config(name);
        let listener = TcpListener::bind((address, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (config, answer, remembered) = (Arc::new(config), Arc::new(answer), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, answer) = (Arc::clone(&config), Arc::clone(&answer));
                let remembered = Arc::clone(&remembered);
                std::thread::spawn(move || {
                    let connection = ServerConnection::new(config).unwrap();
                    serve(StreamOwned::new(connection, stream), &*answer, &remembered)
                });
            }
        });
        TlsOrigin { name: name.to_owned(), port, asked }
    }
}

/// A server that goes on until the test ends.
pub(crate) struct TlsOrigin {
    name: String,
    pub(crate) port: u16,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl TlsOrigin {
    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://{}:{}{path}", self.name, self.port)
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// Nothing when the other side is gone.
fn serve<S: Read + Write>(
    stream: S,
    answer: &(dyn Fn(&Asked) -> Answer + Send + Sync),
    remembered: &Mutex<Vec<Asked>>,
) -> Option<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut first = String::new();
        reader.read_line(&mut first).ok().filter(|read| *read > 0)?;
        let mut words = first.split_whitespace();
        let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut headers = Vec::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            match line.trim_end().split_once(':') {
                Some((name, value)) => headers.push((name.to_ascii_lowercase(), value.trim().to_owned())),
                None => break,
            }
        }
        let mut asked = Asked { method, path, headers, body: Vec::new() };
        let length = asked.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        let whole = reader.by_ref().take(length).read_to_end(&mut asked.body).is_ok_and(|read| read as u64 == length);
        remembered.lock().unwrap().push(asked.clone());
        if !whole {
            return None;
        }
        let Answer { status, headers, body } = answer(&asked);
        let mut head = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        let stream = reader.get_mut();
        stream.write_all(format!("{head}\r\n").as_bytes()).ok()?;
        if asked.method != "HEAD" {
            stream.write_all(&body).ok()?;
        }
        stream.flush().ok()?;
    }
}

async fn serve_http2(
    listener: TcpListener,
    config: ServerConfig,
    answer: Arc<impl Fn(&Asked) -> Answer + Send + Sync + 'static>,
    remembered: Arc<Mutex<Vec<Asked>>>,
) {
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (acceptor, answer, remembered) = (acceptor.clone(), Arc::clone(&answer), Arc::clone(&remembered));
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(|request| {
                let (answer, remembered) = (Arc::clone(&answer), Arc::clone(&remembered));
                async move { hear(request, &remembered).await.map(|asked| said(answer(&asked))) }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // Whoever gives up in the middle was heard so far.
            builder.serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}

/// Takes a request in. It is remembered piece by piece: it may never come to its end.
async fn hear(request: Request<Incoming>, remembered: &Mutex<Vec<Asked>>) -> Result<Asked, hyper::Error> {
    let text = |headers: &HeaderMap| -> Vec<(String, String)> {
        let each =
            headers.iter().map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into()));
        each.collect()
    };
    let (parts, mut body) = request.into_parts();
    let path = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
    let mut asked = Asked { method: parts.method.to_string(), path, headers: text(&parts.headers), body: Vec::new() };
    asked.headers.extend(parts.uri.authority().map(|host| ("host".to_owned(), host.to_string())));
    let at = {
        let mut all = remembered.lock().unwrap();
        all.push(asked);
        all.len() - 1
    };
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        let asked = &mut remembered.lock().unwrap()[at];
        asked.body.extend(frame.data_ref().into_iter().flatten());
        asked.headers.extend(frame.trailers_ref().map(text).unwrap_or_default());
    }
    Ok(remembered.lock().unwrap()[at].clone())
}

fn said(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Full::new(answer.body.into())).unwrap()
}
