//! The connections to an engine: a socket, TCP to this machine, TLS, or the pipes of an `ssh`; and HTTP over them.
//!
//! bollard has transports of its own. They read answers of any size into memory, trust every authority of the system besides the
//! one that was named, and leave an `ssh` behind when we are killed; so it is given this one.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bollard::BollardRequest;
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::address::{Address, Location, Remote};
use super::ssh::{Destination, Ssh};

/// The most that is read of an answer.
const MOST_ANSWER: u64 = 16 * 1024 * 1024;
/// Likewise of one that is a file.
const MOST_ARCHIVE: u64 = 256 * 1024 * 1024;
/// Likewise of what is told while an image is fetched or built.
const MOST_PROGRESS: u64 = 64 * 1024 * 1024;

/// The most connections that wait for another request.
const MOST_IDLE: usize = 4;

/// The way to one engine. A connection is used again once its answer was read: an `ssh` for each would be slow.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    address: Address,
    /// Before each path, once it is known: `/v1.41`.
    version: Arc<OnceLock<String>>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

/// An open connection, and how much may still be read from it.
#[derive(Debug)]
struct Connection {
    sender: SendRequest<Body>,
    left: Arc<AtomicU64>,
}

/// bollard has no name for its own.
type Body = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Why no answer came.
#[derive(Debug, thiserror::Error)]
pub(super) enum WireError {
    /// Nobody could be connected to.
    #[error("could not connect to the engine")]
    Connect(#[source] io::Error),
    /// Certificates or the handshake.
    #[error("could not agree on TLS with the engine")]
    Tls(#[source] io::Error),
    /// `ssh` could not be started.
    #[error("could not start `ssh`")]
    Ssh(#[source] io::Error),
    /// What was said is not HTTP, or ended early.
    #[error("could not read the engine's answer")]
    Http(#[source] hyper::Error),
    /// The request itself is none.
    #[error("could not ask the engine")]
    Request,
}

/// bollard's client, over these connections.
pub(crate) fn docker_at(
    address: &Address,
    limit: Duration,
    version: &bollard::ClientVersion,
) -> Result<bollard::Docker, bollard::errors::Error> {
    let wire = Wire::new(address.clone());
    let transport = move |request: BollardRequest| {
        let wire = wire.clone();
        Box::pin(async move {
            let sent = wire.send(request).await;
            sent.map_err(|error| bollard::errors::Error::IOError { err: io::Error::other(error) })
        }) as Pin<Box<dyn Future<Output = _> + Send>>
    };
    bollard::Docker::connect_with_custom_transport(transport, Some("http://engine"), limit.as_secs(), version)
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Wire {
    pub(super) fn new(address: Address) -> Self {
        Self { address, version: Arc::default(), idle: Arc::default() }
    }

    /// Every request is one of this version from now on; a later call changes nothing.
    pub(super) fn speak(&self, version: &str) {
        self.version.get_or_init(|| format!("/v{version}"));
    }

    /// Sends one request, over a connection that waits for one if there is such.
    pub(super) async fn send(&self, mut request: BollardRequest) -> Result<Response<Incoming>, WireError> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let most = most_for(request.uri().path());
        let versioned = format!("{}{path}", self.version.get().map_or("", String::as_str));
        *request.uri_mut() = versioned.parse::<Uri>().map_err(|_| WireError::Request)?;
        request.headers_mut().insert(HOST, HeaderValue::from_static("engine"));
        let mut request = request.map(|body| body.map_err(Into::into).boxed_unsync());
        while let Some(connection) = self.waiting() {
            match self.over(connection, most, request).await {
                Ok(response) => return Ok(response),
                // The engine closed it meanwhile, and nothing was sent.
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(WireError::Http(failed.into_error())),
                },
            }
        }
        let left = Arc::new(AtomicU64::new(most));
        let stream = Capped { inner: self.connect().await?, left: Arc::clone(&left) };
        let (sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(WireError::Http)?;
        // It ends with the last answer, or with the two halves of what was attached.
        tokio::spawn(connection.with_upgrades());
        let sent = self.over(Connection { sender, left }, most, request).await;
        sent.map_err(|failed| WireError::Http(failed.into_error()))
    }

    async fn over(
        &self,
        mut connection: Connection,
        most: u64,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        connection.left.store(most, Ordering::Relaxed);
        let response = connection.sender.try_send_request(request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            let idle = Arc::downgrade(&self.idle);
            // Ready when the answer was read, or gone when nobody wanted the rest of it.
            tokio::spawn(async move {
                if connection.sender.ready().await.is_ok()
                    && let Some(idle) = idle.upgrade()
                {
                    let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
                    if idle.len() < MOST_IDLE {
                        idle.push(connection);
                    }
                }
            });
        }
        Ok(response)
    }

    /// A connection that waits for a request, and is open as far as we know.
    fn waiting(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|connection| connection.sender.is_ready());
        idle.pop()
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, WireError> {
        match &self.address.location {
            Location::Local(path) => {
                let stream = UnixStream::connect(path).await.map_err(WireError::Connect)?;
                Ok(Box::new(stream))
            }
            Location::Remote(Remote::Loopback { host, port }) => {
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(WireError::Connect)?;
                stream.set_nodelay(true).map_err(WireError::Connect)?;
                // `localhost` is whatever the resolver says; only now it is known to be this machine.
                if !stream.peer_addr().map_err(WireError::Connect)?.ip().is_loopback() {
                    let elsewhere = io::Error::new(io::ErrorKind::InvalidInput, "`localhost` leads to another machine");
                    return Err(WireError::Connect(elsewhere));
                }
                Ok(Box::new(stream))
            }
            Location::Remote(Remote::Tls { host, port, certificates }) => {
                let folder = certificates.clone();
                let read = tokio::task::spawn_blocking(move || tls_configuration(&folder));
                let configuration = read.await.map_err(|error| WireError::Tls(io::Error::other(error)))?;
                let configuration = Arc::new(configuration.map_err(WireError::Tls)?);
                let name = ServerName::try_from(host.clone())
                    .map_err(|error| WireError::Tls(io::Error::new(io::ErrorKind::InvalidInput, error)))?;
                let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(WireError::Connect)?;
                stream.set_nodelay(true).map_err(WireError::Connect)?;
                let connector = tokio_rustls::TlsConnector::from(configuration);
                Ok(Box::new(connector.connect(name, stream).await.map_err(WireError::Tls)?))
            }
            Location::Remote(Remote::Ssh { user, host, port, socket }) => {
                let to = Destination {
                    kind: self.address.kind,
                    user: user.as_deref(),
                    host,
                    port: *port,
                    socket: socket.as_deref(),
                };
                Ok(Box::new(Ssh::start(to).map_err(WireError::Ssh)?))
            }
        }
    }
}

fn most_for(path: &str) -> u64 {
    if path.ends_with("/attach") {
        // What a guest says is read in pieces and never kept whole.
        u64::MAX
    } else if path.ends_with("/archive") || path.ends_with("/get") {
        MOST_ARCHIVE
    } else if path.ends_with("/images/create") || path.ends_with("/build") || path.ends_with("/images/load") {
        MOST_PROGRESS
    } else {
        MOST_ANSWER
    }
}

/// Only the authority in the folder is trusted: what is on the other side is root for what we run.
fn tls_configuration(folder: &std::path::Path) -> io::Result<rustls::ClientConfig> {
    let unreadable = |name: &str| {
        let path = folder.join(name);
        move |error: rustls::pki_types::pem::Error| {
            io::Error::new(io::ErrorKind::InvalidData, format!("could not read {}: {error}", path.display()))
        }
    };
    let certificates = |name: &str| -> io::Result<Vec<CertificateDer<'static>>> {
        let read = CertificateDer::pem_file_iter(folder.join(name)).map_err(unreadable(name))?;
        read.collect::<Result<_, _>>().map_err(unreadable(name))
    };
    let mut roots = rustls::RootCertStore::empty();
    for authority in certificates("ca.pem")? {
        roots.add(authority).map_err(io::Error::other)?;
    }
    let key = PrivateKeyDer::from_pem_file(folder.join("key.pem")).map_err(unreadable("key.pem"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates("cert.pem")?, key)
        .map_err(io::Error::other)
}

/// A stream of which only so much is read for each answer.
struct Capped {
    inner: Box<dyn Stream>,
    left: Arc<AtomicU64>,
}

impl AsyncRead for Capped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::FileTooLarge, "the engine's answer is too long")));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let read = buffer.filled().len().saturating_sub(before);
        if read > 0 {
            let read = u64::try_from(read).unwrap_or(u64::MAX);
            let less = |left: u64| Some(left.saturating_sub(read));
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok();
        }
        polled
    }
}

impl AsyncWrite for Capped {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::super::address::EngineKind;
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Answers so many requests on each connection, closes it, and counts the connections.
    fn engine(listener: tokio::net::UnixListener, answers: usize) -> Arc<AtomicU64> {
        let count = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                for _ in 0..answers {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK").await.unwrap();
                }
            }
        });
        count
    }

    #[tokio::test]
    async fn a_connection_is_used_again_until_the_engine_closes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let count = engine(tokio::net::UnixListener::bind(&path).unwrap(), 2);
        let location = Location::Local(path);
        let wire = Wire::new(Address { kind: EngineKind::Docker, location, said_by: None });
        for expected in [1, 1, 2, 2] {
            let request = Request::get("http://engine/_ping").body(bollard::body_full(Bytes::new())).unwrap();
            let answer = wire.send(request).await.unwrap().collect().await.unwrap().to_bytes();
            assert_eq!(answer, "OK");
            assert_eq!(count.load(Ordering::Relaxed), expected);
            // Until it is known that it can be used again, or not.
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
