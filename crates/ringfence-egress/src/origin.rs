//! A connection to an origin that HTTP is spoken over.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{HOST, HeaderValue, PROXY_AUTHORIZATION};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use crate::body::Watched;
use crate::decide::{Scheme, Target};
use crate::host::Host;
use crate::inspect::{Version, server_name};
use crate::limits::Limits;
use crate::resolve::Dialled;
use crate::tasks::Spawner;
use crate::upstream::Gate;

/// Sends requests over one connection.
#[derive(Debug)]
pub(crate) struct Origin {
    sender: Sender,
    pub(crate) address: IpAddr,
    /// The proxy above ours that each request is written for, with its whole URL.
    pub(crate) gate: Option<Arc<Gate>>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Watched>),
    Http2(http2::SendRequest<Watched>),
}

/// Why a request was not answered.
#[derive(Debug)]
pub(crate) enum NoAnswer {
    /// The connection had ended before anything was sent: the request may be sent over another.
    NotSent(Box<Request<Watched>>),
    /// Something of it may have been sent.
    Failed,
}

/// As a request names its target.
pub(crate) fn authority(target: &Target<'_>, scheme: Scheme) -> String {
    match target.port == scheme.port() {
        true => target.host.in_url(),
        false => format!("{}:{}", target.host.in_url(), target.port),
    }
}

impl Origin {
    /// Speaks HTTP/1.1 over a plain connection.
    pub(crate) async fn plain(outside: Dialled, limits: &Limits, spawner: &Spawner) -> io::Result<Self> {
        Self::speak(outside.stream, outside.address, Version::Http1, limits, spawner).await
    }

    /// Speaks HTTP/1.1 to the proxy above ours.
    pub(crate) async fn gate(gate: &Arc<Gate>, limits: &Limits, spawner: &Spawner) -> io::Result<Self> {
        let origin = Self::plain(gate.reach(limits.connect).await?, limits, spawner).await?;
        Ok(Self { gate: Some(Arc::clone(gate)), ..origin })
    }

    /// Verifies that `outside` leads to `host`, and speaks what is agreed on.
    pub(crate) async fn tls(
        outside: Dialled,
        host: &Host,
        config: Arc<ClientConfig>,
        limits: &Limits,
        spawner: &Spawner,
    ) -> io::Result<(Self, Version)> {
        let Dialled { stream, address } = outside;
        let name = server_name(host).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let stream = timeout(limits.handshake, TlsConnector::from(config).connect(name, stream)).await??;
        let version = Version::agreed(stream.get_ref().1.alpn_protocol());
        Ok((Self::speak(stream, address, version, limits, spawner).await?, version))
    }

    async fn speak<S>(
        stream: S,
        address: IpAddr,
        version: Version,
        limits: &Limits,
        spawner: &Spawner,
    ) -> io::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        let sender = match version {
            Version::Http1 => {
                let mut builder = http1::Builder::new();
                builder.max_headers(limits.head.headers).max_buf_size(limits.head.bytes.max(8192));
                let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
                // It ends with the sender, and with what it is for. What went wrong on it, the request was told.
                spawner.spawn(async { drop(connection.with_upgrades().await) });
                Sender::Http1(sender)
            }
            Version::Http2 => {
                let mut builder = http2::Builder::new(spawner.clone());
                builder
                    .timer(TokioTimer::new())
                    .initial_stream_window_size(256 * 1024)
                    .initial_connection_window_size(1024 * 1024)
                    .max_header_list_size(u32::try_from(limits.head.bytes).unwrap_or(u32::MAX));
                let (sender, connection) = builder.handshake(io).await.map_err(io::Error::other)?;
                spawner.spawn(async { drop(connection.await) });
                Sender::Http2(sender)
            }
        };
        Ok(Self { sender, address, gate: None })
    }

    /// Another sender over the same connection, where requests can go at the same time.
    pub(crate) fn shared(&self) -> Option<Self> {
        match &self.sender {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => {
                Some(Self { sender: Sender::Http2(sender.clone()), address: self.address, gate: self.gate.clone() })
            }
        }
    }

    pub(crate) fn version(&self) -> Version {
        match self.sender {
            Sender::Http1(_) => Version::Http1,
            Sender::Http2(_) => Version::Http2,
        }
    }

    /// Says in the request itself where it goes.
    pub(crate) fn address(
        &self,
        request: &mut Request<Watched>,
        target: &Target<'_>,
        scheme: Scheme,
    ) -> Result<(), ()> {
        let authority = authority(target, scheme);
        // It may have been meant for a proxy above ours before, which is not here any more.
        request.headers_mut().remove(PROXY_AUTHORIZATION);
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse().map_err(drop)?;
        match self.version() {
            Version::Http1 => {
                *request.version_mut() = http::Version::HTTP_11;
                request.headers_mut().insert(HOST, HeaderValue::from_str(&authority).map_err(drop)?);
                self.gate.as_ref().map_or(Ok(()), |gate| gate.address(request))
            }
            Version::Http2 => {
                *request.version_mut() = http::Version::HTTP_2;
                request.headers_mut().remove(HOST);
                let mut parts = std::mem::take(request.uri_mut()).into_parts();
                parts.scheme = Some(scheme.name().parse().map_err(drop)?);
                parts.authority = Some(authority.parse().map_err(drop)?);
                *request.uri_mut() = Uri::from_parts(parts).map_err(drop)?;
                Ok(())
            }
        }
    }

    /// Whether a request can be sent now.
    pub(crate) async fn is_ready(&mut self, limit: Duration) -> bool {
        let ready = async {
            match &mut self.sender {
                Sender::Http1(sender) => sender.ready().await.is_ok(),
                Sender::Http2(sender) => sender.ready().await.is_ok(),
            }
        };
        timeout(limit, ready).await.unwrap_or(false)
    }

    pub(crate) async fn send(&mut self, request: Request<Watched>) -> Result<Response<Incoming>, NoAnswer> {
        let answer = match &mut self.sender {
            Sender::Http1(sender) => sender.try_send_request(request).await,
            Sender::Http2(sender) => sender.try_send_request(request).await,
        };
        answer.map_err(|mut error| match error.take_message() {
            Some(request) => NoAnswer::NotSent(Box::new(request)),
            None => NoAnswer::Failed,
        })
    }
}
