//! The proxy of a company, through which ours goes out.
//!
//! Names are looked up there, so that what is dialled is not what we checked. What we can look up ourselves is judged first all the same,
//! and what leads inside is reached directly or not at all. The upstream itself is named by the policy, and is not judged.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use http::header::{HOST, PROXY_AUTHORIZATION};
use http::{HeaderValue, Request, Uri};
use ringfence_policy::UpstreamHost;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::denial::plain_and_short;
use crate::resolve::{Dialled, Resolve};

/// The most of an answer's head that is read.
const MOST_HEAD: usize = 16 * 1024;
/// The most of its first line that is told.
const MOST_TOLD: usize = 80;

/// A proxy that is spoken to in HTTP.
#[derive(Debug, Clone)]
pub struct Upstream {
    at: ringfence_policy::Upstream,
    name: Arc<str>,
    authorization: Option<HeaderValue>,
}

/// A name and a password that cannot be sent.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a name and a password for a proxy are written NAME:PASSWORD, in one line")]
pub struct BadAuthorization;

impl Upstream {
    /// The proxy that the policy names.
    pub fn new(at: &ringfence_policy::Upstream) -> Self {
        Self { name: at.to_string().into(), at: at.clone(), authorization: None }
    }

    /// The same with `NAME:PASSWORD`, which goes to the proxy and nowhere else.
    pub fn authorized(mut self, credential: &str) -> Result<Self, BadAuthorization> {
        let is_plain = credential.contains(':') && !credential.chars().any(char::is_control);
        let encoded = base64::engine::general_purpose::STANDARD.encode(credential);
        let mut value = HeaderValue::try_from(format!("Basic {encoded}")).map_err(|_| BadAuthorization)?;
        value.set_sensitive(true);
        self.authorization = is_plain.then_some(value);
        if self.authorization.is_some() { Ok(self) } else { Err(BadAuthorization) }
    }
}

/// The upstream, and who finds it.
#[derive(Debug)]
pub(crate) struct Gate {
    upstream: Upstream,
    resolver: Arc<dyn Resolve>,
}

impl Gate {
    pub(crate) fn new(upstream: Upstream, resolver: Arc<dyn Resolve>) -> Self {
        Self { upstream, resolver }
    }

    /// As records name it.
    pub(crate) fn name(&self) -> Arc<str> {
        Arc::clone(&self.upstream.name)
    }

    fn authorization(&self) -> Option<&HeaderValue> {
        self.upstream.authorization.as_ref()
    }

    /// Writes a request for the upstream as a proxy wants it: with the whole URL, and who we are. One that is sent again has both already.
    pub(crate) fn address<B>(&self, request: &mut Request<B>) -> Result<(), ()> {
        let authority = request.headers().get(HOST).and_then(|host| host.to_str().ok()).ok_or(())?;
        let authority = authority.parse().map_err(drop)?;
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(http::uri::Scheme::HTTP);
        parts.authority = Some(authority);
        *request.uri_mut() = Uri::from_parts(parts).map_err(drop)?;
        if let Some(authorization) = self.authorization() {
            request.headers_mut().insert(PROXY_AUTHORIZATION, authorization.clone());
        }
        Ok(())
    }

    /// A connection to the upstream itself.
    pub(crate) async fn reach(&self, limit: Duration) -> io::Result<Dialled> {
        let failed = |error: io::Error| {
            let text = format!("the upstream proxy {} could not be reached: {error}", self.upstream.name);
            io::Error::new(error.kind(), text)
        };
        let dialling = async {
            let port = self.upstream.at.port();
            let found: Vec<IpAddr> = match self.upstream.at.host() {
                UpstreamHost::Address(address) => vec![*address],
                UpstreamHost::Name(name) if name == "localhost" => {
                    vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]
                }
                UpstreamHost::Name(name) => self.resolver.resolve(name).await?,
            };
            let found: Vec<SocketAddr> = found.into_iter().map(|address| (address, port).into()).collect();
            TcpStream::connect(found.as_slice()).await
        };
        let stream = timeout(limit, dialling).await.map_err(io::Error::from).and_then(|dialled| dialled);
        let stream = stream.map_err(failed)?;
        stream.set_nodelay(true)?;
        let address = stream.peer_addr()?.ip();
        Ok(Dialled { stream, address })
    }

    /// A connection through the upstream to `authority`.
    pub(crate) async fn tunnel(&self, authority: &str, limit: Duration) -> io::Result<Dialled> {
        let Dialled { mut stream, address } = self.reach(limit).await?;
        let mut head = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n").into_bytes();
        if let Some(authorization) = self.authorization() {
            head.extend(b"Proxy-Authorization: ");
            head.extend(authorization.as_bytes());
            head.extend(b"\r\n");
        }
        head.extend(b"\r\n");
        let asking = async {
            stream.write_all(&head).await?;
            let mut answer = Vec::new();
            // Byte by byte: what follows the head is the origin's, and stays where it is.
            while !answer.ends_with(b"\r\n\r\n") {
                if answer.len() >= MOST_HEAD {
                    return Err(self.told("sends a head without an end"));
                }
                match stream.read_u8().await {
                    Ok(byte) => answer.push(byte),
                    Err(_) => return Err(self.told("ended the connection without an answer")),
                }
            }
            Ok(answer)
        };
        let answer = timeout(limit, asking).await.unwrap_or_else(|_| Err(self.told("did not answer in time")))?;
        match status(&answer) {
            Some(200..=299) => Ok(Dialled { stream, address }),
            Some(407) => Err(self.told(self.wants_credential())),
            Some(403) => Err(self.told("does not let this host through (403)")),
            Some(status) => Err(self.told(&format!("answered with status {status}"))),
            None => {
                let line = String::from_utf8_lossy(&answer);
                let line = plain_and_short(line.lines().next().unwrap_or_default(), MOST_TOLD);
                Err(self.told(&format!("is no proxy: it said `{line}`")))
            }
        }
    }

    /// What 407 means.
    pub(crate) fn wants_credential(&self) -> &'static str {
        match self.authorization() {
            None => "wants a name and a password (407); the host sets them, not a program inside",
            Some(_) => "does not take the name and the password that the host sets (407)",
        }
    }

    fn told(&self, what: &str) -> io::Error {
        io::Error::other(format!("the upstream proxy {} {what}", self.upstream.name))
    }
}

/// The status of an answer in HTTP/1.
fn status(head: &[u8]) -> Option<u16> {
    let line = head.strip_prefix(b"HTTP/1.")?;
    let [b'0' | b'1', b' ', a, b, c, b' ' | b'\r', ..] = line else { return None };
    std::str::from_utf8(&[*a, *b, *c]).ok()?.parse().ok().filter(|status| *status >= 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_three_digits_of_http_1_or_none() {
        assert_eq!(status(b"HTTP/1.1 200 Connection established\r\n\r\n"), Some(200));
        assert_eq!(status(b"HTTP/1.0 407\r\n\r\n"), Some(407));
        for bad in
            [&b""[..], b"HTTP/2 200 \r\n", b"HTTP/1.1 20 \r\n", b"HTTP/1.1  200 ", b"SSH-2.0-x\r\n", b"HTTP/1.1 2000 "]
        {
            assert_eq!(status(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_password_is_in_no_debug_output_and_in_one_line() {
        let at: ringfence_policy::Upstream = "http://proxy.test:3128".parse().unwrap();
        let upstream = Upstream::new(&at).authorized("me:hunter2").unwrap();
        assert!(!format!("{upstream:?}").contains("hunter2") && !format!("{upstream:?}").contains("bWU6aHVudGVyMg"));
        for bad in ["", "me", "me:x\r\ny: z", "me:\0"] {
            assert_eq!(Upstream::new(&at).authorized(bad).unwrap_err(), BadAuthorization, "{bad:?}");
        }
    }
}
