//! The connections to an engine: a socket, TCP to this machine, TLS, or the pipes of an `ssh`; and HTTP over them.
//!
//! bollard has transports of its own. They read answers of any size into memory, trust every authority of the system besides the
//! one that was named, and leave an `ssh` behind when we are killed; so it is given this one.

use std::io;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bollard::BollardRequest;
use hyper::body::Incoming;
use hyper::header::{HOST, HeaderValue};
use hyper::{Response, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use super::address::{Address, Location, Remote};

/// The most that is read of an answer.
const MOST_ANSWER: u64 = 16 * 1024 * 1024;
/// Likewise of one that is a file.
const MOST_ARCHIVE: u64 = 256 * 1024 * 1024;
/// Likewise of what is told while an image is fetched or built.
const MOST_PROGRESS: u64 = 64 * 1024 * 1024;

/// The way to one engine. A connection is made for each request.
#[derive(Debug, Clone)]
pub(super) struct Wire {
    address: Address,
    /// Before each path, once it is known: `/v1.41`.
    version: Arc<OnceLock<String>>,
}

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
        Self { address, version: Arc::default() }
    }

    /// Every request is one of this version from now on; a later call changes nothing.
    pub(super) fn speak(&self, version: &str) {
        self.version.get_or_init(|| format!("/v{version}"));
    }

    /// Sends one request over a connection of its own.
    pub(super) async fn send(&self, mut request: BollardRequest) -> Result<Response<Incoming>, WireError> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let most = most_for(request.uri().path());
        let versioned = format!("{}{path}", self.version.get().map_or("", String::as_str));
        *request.uri_mut() = versioned.parse::<Uri>().map_err(|_| WireError::Request)?;
        request.headers_mut().insert(HOST, HeaderValue::from_static("engine"));
        let stream = Capped { inner: self.connect().await?, left: most };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(WireError::Http)?;
        // It ends with the answer, or with the two halves of what was attached.
        tokio::spawn(connection.with_upgrades());
        sender.send_request(request).await.map_err(WireError::Http)
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
                let mut command = tokio::process::Command::new("ssh");
                // No question can be answered here, and an unknown host is not for us to trust.
                command.args([
                    "-T",
                    "-o",
                    "BatchMode=yes",
                    "-o",
                    "StrictHostKeyChecking=yes",
                    "-o",
                    "ConnectTimeout=10",
                ]);
                if let Some(user) = user {
                    command.args(["-l", user]);
                }
                if let Some(port) = port {
                    command.args(["-p", &port.to_string()]);
                }
                // Both are plain words: the shell over there has nothing to interpret.
                let program = self.address.kind.name();
                command.args(["--", host, program]);
                if let Some(socket) = socket {
                    let option = if program == "podman" { "--url" } else { "--host" };
                    command.args([option, &format!("unix://{socket}")]);
                }
                command.args(["system", "dial-stdio"]);
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
                let mut child = command.spawn().map_err(WireError::Ssh)?;
                let pipes = child.stdin.take().zip(child.stdout.take());
                let (input, output) = pipes.ok_or_else(|| WireError::Ssh(io::ErrorKind::BrokenPipe.into()))?;
                Ok(Box::new(SshPipes { _child: child, pipes: tokio::io::join(output, input) }))
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

/// The pipes of an `ssh`, which ends with them.
struct SshPipes {
    _child: tokio::process::Child,
    pipes: tokio::io::Join<tokio::process::ChildStdout, tokio::process::ChildStdin>,
}

impl AsyncRead for SshPipes {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipes).poll_read(cx, buffer)
    }
}

impl AsyncWrite for SshPipes {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.pipes).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipes).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.pipes).poll_shutdown(cx)
    }
}

/// A stream of which only so much is read.
struct Capped {
    inner: Box<dyn Stream>,
    left: u64,
}

impl AsyncRead for Capped {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.left == 0 {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::FileTooLarge, "the engine's answer is too long")));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(cx, buffer);
        let read = buffer.filled().len().saturating_sub(before);
        self.left = self.left.saturating_sub(u64::try_from(read).unwrap_or(u64::MAX));
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
