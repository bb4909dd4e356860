//! The same over HTTP, on loopback alone and for whoever brings a token.
//!
//! Nothing is read of a request before its token is known to be right. `Host` must be this machine's, so that no name of somebody else
//! leads here, and a request that a web page makes (it has an `Origin`) is refused unless the page is of this machine, too.
//! Each client has its own sessions and its own room: the id of a session is of no use to another one, and no client can take the
//! connections of the rest.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::header::{AUTHORIZATION, CONNECTION, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, combinators::BoxBody};
use hyper::body::{Body, Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};

use crate::client::Client;
use crate::limits::MOST_MESSAGE;
use crate::server::{Door, Setup, Shared};
use crate::token::{Clients, Tokens};

/// The only path.
const PATH: &str = "/mcp";
/// Connections of which nobody knows yet whose they are.
const MOST_STRANGERS: usize = 64;
/// Connections of one client.
const MOST_CONNECTIONS: usize = 32;
/// Sessions of one client, which only 2025-11-25 has. One that is not used ends after some minutes, which is how most clients end theirs.
const MOST_SESSIONS: usize = 64;
const HEAD_WITHIN: Duration = Duration::from_secs(10);
const BODY_WITHIN: Duration = Duration::from_secs(10);
const SESSION: &str = "mcp-session-id";
const MOST_HEAD: usize = 64 * 1024;
/// Names that no other machine has.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// Others could reach it.
    #[error("{0} is not an address of this machine alone; write 127.0.0.1:PORT or [::1]:PORT")]
    NotLoopback(SocketAddr),
    /// It cannot be listened at.
    #[error("could not listen at {address}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The server could not be made.
    #[error("could not start the server")]
    Start(#[source] io::Error),
}

type Answer = Response<BoxBody<Bytes, Infallible>>;
type Service = StreamableHttpService<Door, LocalSessionManager>;

/// What one client has of this server.
struct Desk {
    client: Arc<Client>,
    service: Service,
    sessions: Arc<LocalSessionManager>,
    /// Held while a session is opened, so that no two take the last room.
    opening: Mutex<()>,
    room: Arc<Semaphore>,
}

impl Desk {
    fn new(client: Arc<Client>, shared: &Arc<Shared>, config: StreamableHttpServerConfig) -> Self {
        let sessions = Arc::new(LocalSessionManager::default());
        let (door, of) = (Arc::clone(shared), Arc::clone(&client));
        let make = move || Ok(Door { shared: Arc::clone(&door), client: Arc::clone(&of) });
        let service = StreamableHttpService::new(make, Arc::clone(&sessions), config);
        Self { client, service, sessions, opening: Mutex::default(), room: Arc::new(Semaphore::new(MOST_CONNECTIONS)) }
    }

    async fn handle(&self, request: Request<Full<Bytes>>, begins_session: Begins) -> Answer {
        match begins_session {
            Begins::Nothing => self.service.handle(request).await,
            Begins::Session => {
                let _opening = self.opening.lock().await;
                if self.sessions.sessions.read().await.len() >= MOST_SESSIONS {
                    return plain(StatusCode::TOO_MANY_REQUESTS, "too many sessions are open; end one with DELETE");
                }
                self.service.handle(request).await
            }
        }
    }
}

/// What a request begins.
enum Begins {
    Session,
    Nothing,
}

impl Begins {
    fn of(method: &Method, headers: &HeaderMap, body: &[u8]) -> Self {
        #[derive(serde::Deserialize)]
        struct Named {
            method: String,
        }
        let is_initialize = || serde_json::from_slice::<Named>(body).is_ok_and(|named| named.method == "initialize");
        match method == Method::POST && !headers.contains_key(SESSION) && is_initialize() {
            true => Self::Session,
            false => Self::Nothing,
        }
    }
}

/// Whose room a connection takes: a stranger's, until its first request with a token, and that client's from then on.
struct Seat {
    _permit: OwnedSemaphorePermit,
    of: Option<Arc<Client>>,
}

impl Seat {
    /// Moves to the room of `desk`, if there is any left.
    fn take(&mut self, desk: &Desk) -> bool {
        if self.of.as_ref().is_some_and(|of| Arc::ptr_eq(of, &desk.client)) {
            return true;
        }
        let Ok(permit) = Arc::clone(&desk.room).try_acquire_owned() else { return false };
        *self = Self { _permit: permit, of: Some(Arc::clone(&desk.client)) };
        true
    }
}

/// Serves whoever has one of `tokens` at `address`, until `stop` ends. `listening` is told where: a port of 0 means any.
pub async fn serve_http(
    setup: Setup,
    address: SocketAddr,
    tokens: Tokens,
    listening: impl FnOnce(SocketAddr),
    stop: impl Future<Output = ()>,
) -> Result<(), HttpError> {
    if !address.ip().is_loopback() {
        return Err(HttpError::NotLoopback(address));
    }
    let failed = |source| HttpError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let here = listener.local_addr().map_err(failed)?;
    let clients = Arc::new(tokens.into_clients(setup.limits));
    let shared = Arc::new(Shared::new(setup).map_err(HttpError::Start)?);
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts([
            format!("127.0.0.1:{}", here.port()),
            format!("localhost:{}", here.port()),
            here.to_string(),
        ])
        .with_allowed_origins(LOCAL.iter().flat_map(|host| [format!("http://{host}:*"), format!("https://{host}:*")]))
        .enforce_origin_validation()
        .with_max_request_body_bytes(MOST_MESSAGE)
        .with_cancellation_token(shared.closing.clone());
    let desks: Arc<[Desk]> =
        clients.all().map(|client| Desk::new(Arc::clone(client), &shared, config.clone())).collect();
    listening(here);
    let room = Arc::new(Semaphore::new(MOST_STRANGERS));
    let accepting = async {
        loop {
            // The permit comes first: whoever finds no room waits, and costs nothing.
            let Ok(permit) = Arc::clone(&room).acquire_owned().await else { return };
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            };
            let (desks, clients) = (Arc::clone(&desks), Arc::clone(&clients));
            tokio::spawn(async move {
                // Outlives every answer: a stream of events takes room for as long as it lasts.
                let seat = Arc::new(Mutex::new(Seat { _permit: permit, of: None }));
                let of_connection = Arc::clone(&seat);
                let answering = service_fn(move |request| {
                    let (desks, clients, seat) = (Arc::clone(&desks), Arc::clone(&clients), Arc::clone(&of_connection));
                    async move {
                        let mut answer = answer(&desks, &clients, &seat, here, request).await;
                        if seat.lock().await.of.is_none() {
                            // A stranger keeps no room.
                            answer.headers_mut().insert(CONNECTION, http::HeaderValue::from_static("close"));
                        }
                        Ok::<_, Infallible>(answer)
                    }
                });
                let mut http = hyper::server::conn::http1::Builder::new();
                http.timer(TokioTimer::new()).header_read_timeout(HEAD_WITHIN).max_buf_size(MOST_HEAD);
                // Whoever broke the connection off is told nothing more.
                http.serve_connection(TokioIo::new(stream), answering).await.ok();
                drop(seat);
            });
        }
    };
    tokio::select! {
        () = accepting => {}
        () = stop => {}
    }
    shared.closing.cancel();
    clients.end().await;
    Ok(())
}

async fn answer(
    desks: &[Desk],
    clients: &Clients,
    seat: &Mutex<Seat>,
    here: SocketAddr,
    request: Request<Incoming>,
) -> Answer {
    if !is_for_us(request.headers(), here) {
        return plain(StatusCode::FORBIDDEN, "this host or origin is not served");
    }
    let client = bearer(request.headers()).and_then(|token| clients.find(token));
    let desk = client.and_then(|client| desks.iter().find(|desk| Arc::ptr_eq(&desk.client, &client)));
    let Some(desk) = desk else {
        let mut answer = plain(StatusCode::UNAUTHORIZED, "a token is needed");
        answer.headers_mut().insert(WWW_AUTHENTICATE, http::HeaderValue::from_static("Bearer"));
        return answer;
    };
    if !seat.lock().await.take(desk) {
        return plain(StatusCode::TOO_MANY_REQUESTS, "too many connections of this client are open");
    }
    if request.uri().path() != PATH {
        return plain(StatusCode::NOT_FOUND, "there is nothing here; POST to /mcp");
    }
    let (parts, body) = request.into_parts();
    let too_long = || plain(StatusCode::PAYLOAD_TOO_LARGE, "the message is too long; pass large data in several calls");
    // One that says so itself is not waited for.
    if body.size_hint().lower() > MOST_MESSAGE as u64 {
        return too_long();
    }
    let body = match tokio::time::timeout(BODY_WITHIN, Limited::new(body, MOST_MESSAGE).collect()).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => return too_long(),
        Ok(Err(_)) => return plain(StatusCode::BAD_REQUEST, "the message ended early"),
        Err(_) => return plain(StatusCode::REQUEST_TIMEOUT, "the message did not come in time"),
    };
    let begins = Begins::of(&parts.method, &parts.headers, &body);
    desk.handle(Request::from_parts(parts, Full::new(body)), begins).await
}

/// Whether a request names us, and no web page of elsewhere made it.
fn is_for_us(headers: &HeaderMap, here: SocketAddr) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next().and_then(|host| host.to_str().ok()), hosts.next()) else { return false };
    let port = here.port();
    let ours = [here.to_string(), format!("127.0.0.1:{port}"), format!("localhost:{port}")];
    let mut origins = headers.get_all(ORIGIN).iter();
    let is_local = match (origins.next(), origins.next()) {
        (None, _) => true,
        (Some(origin), None) => origin.to_str().is_ok_and(is_local_origin),
        (Some(_), Some(_)) => false,
    };
    is_local && ours.iter().any(|known| known.eq_ignore_ascii_case(host))
}

/// Whether a web page is served by this machine. It still needs the token.
fn is_local_origin(origin: &str) -> bool {
    let Some(rest) = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) else { return false };
    LOCAL.iter().any(|host| {
        rest.strip_prefix(host).is_some_and(|port| {
            port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok())
        })
    })
}

fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (values.next(), values.next()) else { return None };
    let (scheme, token) = value.as_bytes().split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

    use super::*;

    fn headers(pairs: &[(http::HeaderName, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect()
    }

    #[test]
    fn only_our_own_name_and_no_web_page_of_elsewhere() {
        let here = SocketAddr::from(([127, 0, 0, 1], 8080));
        for good in ["127.0.0.1:8080", "localhost:8080", "LocalHost:8080"] {
            assert!(is_for_us(&headers(&[(HOST, good)]), here), "{good}");
        }
        for bad in ["evil.example:8080", "127.0.0.1", "127.0.0.1:8081", "localhost.evil.example:8080", "0.0.0.0:8080"] {
            assert!(!is_for_us(&headers(&[(HOST, bad)]), here), "{bad}");
        }
        assert!(!is_for_us(&headers(&[]), here));
        let page = |origin: &str| is_for_us(&headers(&[(HOST, "localhost:8080"), (ORIGIN, origin)]), here);
        assert!(page("http://localhost:6274") && page("https://[::1]") && page("http://127.0.0.1:1"));
        for bad in [
            "null",
            "",
            "http://evil.example",
            "http://localhost.evil.example",
            "http://localhost:x",
            "file://localhost",
        ] {
            assert!(!page(bad), "{bad}");
        }
        let mut twice = headers(&[(HOST, "localhost:8080")]);
        twice.append(HOST, "evil.example".parse().unwrap());
        assert!(!is_for_us(&twice, here), "two hosts are none");
    }

    #[test]
    fn a_token_comes_once_and_by_its_scheme() {
        assert_eq!(bearer(&headers(&[(AUTHORIZATION, "Bearer x")])), Some(b"x".as_slice()));
        assert_eq!(bearer(&headers(&[(AUTHORIZATION, "bearer x")])), Some(b"x".as_slice()));
        for bad in ["Basic x", "x", "Bearerx", ""] {
            assert_eq!(bearer(&headers(&[(AUTHORIZATION, bad)])), None, "{bad}");
        }
        let mut twice = headers(&[(AUTHORIZATION, "Bearer x")]);
        twice.append(AUTHORIZATION, "Bearer y".parse().unwrap());
        assert_eq!(bearer(&twice), None);
    }
}
