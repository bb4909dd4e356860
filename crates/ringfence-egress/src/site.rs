//! HTTP from inside, request by request: read by one parser, judged, and written anew for the origin.
//!
//! What is forwarded is made from what was judged, never copied from the wire: an origin cannot read another request in it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_ENCODING, HOST};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Mutex, OwnedSemaphorePermit};
use tokio::time::timeout;

use crate::answer::{Answer, nothing, say};
use crate::authority::Authority;
use crate::body::{Filter, Source, Watched};
use crate::budget::{Budget, Direction};
use crate::copy;
use crate::credential::{self, Handled};
use crate::decide::{Access, Allowed, Decision, Scheme, Target, deny_because};
use crate::denial::{Denied, Reason, plain};
use crate::headers;
use crate::host::Host;
use crate::inspect::Version;
use crate::origin::{NoAnswer, Origin, authority};
use crate::place::Place;
use crate::proxy::Shared;
use crate::record::{Ending, Record, Ticket, Via};
use crate::resolve::{Unchecked, check, dial};
use crate::scan::Scanner;
use crate::sign::Signed;
use crate::tasks::{Spawner, Tasks};
use crate::upstream::Gate;
use crate::url_path::UrlPath;

/// One connection from inside over which HTTP is spoken.
pub(crate) struct Site {
    shared: Arc<Shared>,
    via: Via,
    place: Place,
    /// The connection to the origin that was used last.
    open: Mutex<Option<Open>>,
    /// What a WebSocket has become of the connection. It is passed on when HTTP has ended.
    upgraded: Mutex<Option<BoxFuture<'static, ()>>>,
    /// Begins what ends with the connection.
    spawner: Spawner,
    /// Held until the last request, or what became of it, has ended.
    _permit: Arc<OwnedSemaphorePermit>,
}

#[derive(Debug)]
struct Open {
    host: Host,
    port: u16,
    origin: Origin,
}

/// Why a request is not forwarded.
enum Refused {
    Denied(Box<Denied>),
    Failed(StatusCode, String),
}

impl Site {
    pub(crate) fn new(
        shared: Arc<Shared>,
        via: Via,
        place: Place,
        origin: Option<Origin>,
        permit: Arc<OwnedSemaphorePermit>,
        spawner: Spawner,
    ) -> Arc<Self> {
        let open = match (&place, origin) {
            (Place::One(one), Some(origin)) => Some(Open { host: one.host.clone(), port: one.port, origin }),
            (Place::One(_) | Place::Anywhere, _) => None,
        };
        let (open, upgraded) = (Mutex::new(open), Mutex::new(None));
        Arc::new(Self { shared, via, place, open, upgraded, spawner, _permit: permit })
    }

    /// Serves requests until the inside has no more. With it end its `tasks`.
    pub(crate) async fn serve<S>(self: Arc<Self>, stream: S, version: Version, tasks: Tasks) -> Result<(), hyper::Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let limits = self.shared.limits;
        let io = TokioIo::new(stream);
        let service = service_fn(|request| {
            let site = Arc::clone(&self);
            async move { Ok::<_, Infallible>(site.answer(request).await) }
        });
        let served = match version {
            Version::Http1 => {
                http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(limits.handshake)
                    .max_headers(limits.head.headers)
                    .max_buf_size(limits.head.bytes.max(8192))
                    .half_close(true)
                    .serve_connection(io, service)
                    .with_upgrades()
                    .await
            }
            Version::Http2 => {
                http2::Builder::new(tasks.spawner())
                    .timer(TokioTimer::new())
                    .max_concurrent_streams(limits.streams)
                    .max_header_list_size(u32::try_from(limits.head.bytes).unwrap_or(u32::MAX))
                    .initial_stream_window_size(256 * 1024)
                    .initial_connection_window_size(1024 * 1024)
                    .keep_alive_interval(limits.idle)
                    .keep_alive_timeout(limits.handshake)
                    .serve_connection(io, service)
                    .await
            }
        };
        let upgraded = self.upgraded.lock().await.take();
        if let Some(upgraded) = upgraded {
            upgraded.await;
        }
        served
    }

    async fn answer(&self, request: Request<Incoming>) -> Answer {
        match self.forward(request).await {
            Ok(answer) => answer,
            Err(Refused::Denied(denied)) => {
                let status = match denied.reason {
                    Reason::BadRequest => StatusCode::BAD_REQUEST,
                    Reason::Trace => StatusCode::METHOD_NOT_ALLOWED,
                    _ => StatusCode::FORBIDDEN,
                };
                say(status, denied.text)
            }
            Err(Refused::Failed(status, text)) => say(status, text),
        }
    }

    async fn forward(&self, request: Request<Incoming>) -> Result<Answer, Refused> {
        let started = Instant::now();
        let (mut parts, body) = request.into_parts();
        let (host, port, scheme) = self.target_of(&parts)?;
        let path = UrlPath::new(parts.uri.path());
        let method = parts.method.clone();
        let access = Access::Request { scheme, method: method.as_str(), path: &path };
        let target = Target { host: &host, port, access };
        let allowed = match self.shared.decide(&target).await {
            Decision::Allowed(allowed) => allowed,
            Decision::Denied(denied) => return Err(self.denied(&target, denied)),
        };
        let websocket = self.prepare(&target, &allowed, &mut parts)?;
        let handled = self
            .shared
            .credentials
            .apply(&allowed, scheme, &mut parts)
            .map_err(|why| self.refuse(&target, Reason::Credential, &why))?;
        if websocket && handled.response.is_some() {
            let why = "a WebSocket cannot be looked through, and this host is used with a credential";
            return Err(self.refuse(&target, Reason::Credential, why));
        }
        let meter = self
            .shared
            .account
            .request(&host.to_string(), allowed.budget)
            .map_err(|over| self.refuse(&target, Reason::Budget, &over.to_string()))?;
        let (body, known) = match handled.signs {
            None => (Source::Coming(body), None),
            Some(_) => self.hold(body).await?,
        };
        let origin = self.origin(&target, allowed.budget).await?;
        let record = self.record(&target, None, Arc::clone(&allowed.rule));
        let ticket = Ticket::open(record, &self.shared.sink, meter, started);
        let Handled { request: filter, response: mut words, signs } = handled;
        if let Some(credential) = signs {
            let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
            let authority = authority(&target, scheme);
            let signed = Signed { method: method.as_str(), authority: &authority, path, body: known.as_deref() };
            let signature = credential
                .sign(&signed, &mut parts.headers)
                .map_err(|why| self.refuse(&target, Reason::Credential, &why))?;
            // Whoever could read it in an echo could send the request once more.
            words.get_or_insert_default().extend(signature);
        }
        let strip = allowed.strip.clone();
        let up = Watched::new(body, Arc::clone(&ticket), Direction::Up, self.shared.limits.idle, filter, strip);
        let mut request = Request::from_parts(parts, up);
        let inside = websocket.then(|| hyper::upgrade::on(&mut request));
        let response = self.send(&target, &allowed, scheme, origin, request, &ticket).await?;
        ticket.answered(Some(response.status().as_u16()));
        self.pass_back(&target, response, inside, ticket, words, allowed.strip).await
    }

    /// Holds a body that is to be signed, where it is small.
    async fn hold(&self, body: Incoming) -> Result<(Source, Option<Bytes>), Refused> {
        let broken =
            |what: &str| Refused::Failed(StatusCode::BAD_REQUEST, format!("the body of the request {what}.\n"));
        match timeout(self.shared.limits.handshake, Source::hold(body)).await {
            Ok(held) => held.map_err(|_| broken("is not whole")),
            Err(_) => Err(broken("did not come in time")),
        }
    }

    /// Makes the request ready for the origin. Whether it asks for a WebSocket.
    fn prepare(&self, target: &Target<'_>, allowed: &Allowed, parts: &mut Parts) -> Result<bool, Refused> {
        if parts.method == Method::TRACE || parts.method == Method::CONNECT {
            return Err(self.refuse(target, Reason::Trace, "this method is not passed on"));
        }
        headers::leave_out(&mut parts.headers, &allowed.strip);
        if allowed.looked_at_request
            && let Some(name) = headers::override_in(&parts.headers)
        {
            let why = format!("`{name}` would have the host act on something else than what was judged");
            return Err(self.refuse(target, Reason::Method, &why));
        }
        let websocket = parts.version < http::Version::HTTP_2 && headers::wants_websocket(&parts.headers);
        headers::strip(&mut parts.headers).map_err(|why| self.refuse(target, Reason::BadRequest, &why))?;
        if websocket {
            headers::say_websocket(&mut parts.headers);
        }
        // The bytes that were judged are the bytes that are forwarded.
        let Access::Request { path, .. } = target.access else {
            return Err(self.refuse(target, Reason::BadRequest, "this is no request"));
        };
        let path = match path.normal() {
            Ok(normal) if allowed.looked_at_request => normal,
            Ok(_) | Err(_) => path.raw(),
        };
        let whole = match parts.uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.to_owned(),
        };
        parts.uri = whole.parse::<Uri>().map_err(|_| self.refuse(target, Reason::BadRequest, "the path is not one"))?;
        Ok(websocket)
    }

    /// Which host a request is about. Everything that names one has to agree.
    fn target_of(&self, parts: &Parts) -> Result<(Host, u16, Scheme), Refused> {
        let bad = |why: &str| self.bad_request(parts, Reason::BadRequest, why);
        let mut hosts = parts.headers.get_all(HOST).iter();
        let (host, second) = (hosts.next(), hosts.next());
        if second.is_some() {
            return Err(bad("the request has two Hosts"));
        }
        let read = |text: &str| {
            Authority::parse(text).map_err(|error| self.bad_request(parts, Reason::BadHost, &error.to_string()))
        };
        let said = match host {
            Some(value) => Some(read(value.to_str().map_err(|_| bad("the Host is not text"))?)?),
            None => None,
        };
        let asked = parts.uri.authority().map(|authority| read(authority.as_str())).transpose()?;
        let scheme_said = parts.uri.scheme_str();
        let (host, port, scheme) = match &self.place {
            Place::Anywhere => {
                let Some(asked) = &asked else {
                    return Err(bad("this is a proxy, which needs a whole URL such as http://pypi.org/simple/"));
                };
                if scheme_said != Some("http") {
                    return Err(bad("this is a proxy, which takes https through CONNECT"));
                }
                (asked.host.clone(), asked.port.unwrap_or(Scheme::Http.port()), Scheme::Http)
            }
            Place::One(one) => {
                let scheme = if one.tls.is_some() { Scheme::Https } else { Scheme::Http };
                if scheme_said.is_some_and(|said| said != scheme.name()) {
                    return Err(bad("the URL's scheme is not that of the connection"));
                }
                (one.host.clone(), one.port, scheme)
            }
        };
        let names = [&said, &asked];
        if said.is_none() && (asked.is_none() || parts.version == http::Version::HTTP_11) {
            return Err(bad("the request has no Host"));
        }
        if names.into_iter().flatten().any(|name| !name.agrees_with(&host, port, scheme.port())) {
            let path = UrlPath::new(parts.uri.path());
            let access = Access::Request { scheme, method: parts.method.as_str(), path: &path };
            let why = "the Host and the URL of the request do not name the host that the connection is for";
            return Err(self.refuse(&Target { host: &host, port, access }, Reason::NamesDisagree, why));
        }
        Ok((host, port, scheme))
    }

    async fn send(
        &self,
        target: &Target<'_>,
        allowed: &Allowed,
        scheme: Scheme,
        mut origin: Origin,
        mut request: Request<Watched>,
        ticket: &Arc<Ticket>,
    ) -> Result<Response<Incoming>, Refused> {
        // A connection that was kept may have ended meanwhile, which is told when it is used.
        for _ in 0..3 {
            ticket.dialled(origin.address);
            origin
                .address(&mut request, target, scheme)
                .map_err(|()| self.refuse(target, Reason::BadRequest, "the host does not fit into a header"))?;
            if let Some(gate) = self.gate_of(&origin) {
                ticket.goes_through(gate.name());
            }
            let answer = timeout(self.shared.limits.response, origin.send(request)).await;
            match answer {
                Ok(Ok(response)) => {
                    let wants = origin.gate.as_ref().map(|gate| (gate.name(), gate.wants_credential()));
                    if let Some((gate, wants)) = wants
                        && response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED
                    {
                        let text = format!("the upstream proxy {gate} {wants}.\n");
                        return Err(Refused::Failed(StatusCode::BAD_GATEWAY, text));
                    }
                    self.keep(target, origin).await;
                    return Ok(response);
                }
                Ok(Err(NoAnswer::NotSent(returned))) => {
                    request = *returned;
                    origin = self.origin(target, allowed.budget).await?;
                }
                Ok(Err(NoAnswer::Failed)) => {
                    let text = format!("{} did not answer the request.\n", target.host);
                    return Err(Refused::Failed(StatusCode::BAD_GATEWAY, text));
                }
                Err(_) => {
                    ticket.end(Ending::Idle);
                    let text = format!("{} did not answer in time.\n", target.host);
                    return Err(Refused::Failed(StatusCode::GATEWAY_TIMEOUT, text));
                }
            }
        }
        let text = format!("{} ends connections before they are used.\n", target.host);
        Err(Refused::Failed(StatusCode::BAD_GATEWAY, text))
    }

    /// A connection to the target: the one that was kept, or a new one to an address that was judged.
    async fn origin(&self, target: &Target<'_>, budget: Budget) -> Result<Origin, Refused> {
        let limits = &self.shared.limits;
        let mut open = self.open.lock().await;
        let kept = open.take_if(|open| open.host == *target.host && open.port == target.port);
        if let Some(Open { host, port, mut origin }) = kept
            && origin.is_ready(limits.connect).await
        {
            if let Some(shared) = origin.shared() {
                *open = Some(Open { host, port, origin: shared });
            }
            return Ok(origin);
        }
        let failed = |error: std::io::Error| {
            let text = format!("{} could not be reached: {}.\n", target.host, plain(&error.to_string()));
            Refused::Failed(StatusCode::BAD_GATEWAY, text)
        };
        match &self.place {
            Place::Anywhere => {
                self.shared
                    .account
                    .connection(&target.host.to_string(), budget)
                    .map_err(|over| self.refuse(target, Reason::Budget, &over.to_string()))?;
                let resolver = &*self.shared.resolver;
                let gate = self.shared.gate.as_ref();
                let checked = check(&self.shared.rules, resolver, gate, target.host, target.port, limits.resolve).await;
                let checked = checked.map_err(|unchecked| match unchecked {
                    Unchecked::Denied(why) => self.refuse(target, Reason::Address, &why),
                    Unchecked::Failed(error) => failed(error),
                })?;
                // Not by CONNECT: many let that through for port 443 alone.
                if let Some(gate) = checked.through() {
                    return Origin::gate(gate, limits, &self.spawner).await.map_err(failed);
                }
                let outside = dial(&checked, limits.connect).await.map_err(failed)?;
                Origin::plain(outside, limits, &self.spawner).await.map_err(failed)
            }
            Place::One(one) => {
                if let Some(why) = &one.failed {
                    return Err(Refused::Failed(StatusCode::BAD_GATEWAY, format!("{} {why}.\n", target.host)));
                }
                self.shared
                    .account
                    .connection(&target.host.to_string(), budget)
                    .map_err(|over| self.refuse(target, Reason::Budget, &over.to_string()))?;
                let outside = dial(&one.checked, limits.connect).await.map_err(failed)?;
                match &one.tls {
                    None => Origin::plain(outside, limits, &self.spawner).await.map_err(failed),
                    Some((config, version)) => {
                        let tls = Origin::tls(outside, &one.host, Arc::clone(config), limits, &self.spawner);
                        let (origin, spoken) = tls.await.map_err(failed)?;
                        // Requests that come side by side would have a connection each.
                        if spoken != *version {
                            return Err(failed(std::io::Error::other("it does not speak what it spoke before")));
                        }
                        if let Some(shared) = origin.shared() {
                            *open = Some(Open { host: one.host.clone(), port: one.port, origin: shared });
                        }
                        Ok(origin)
                    }
                }
            }
        }
    }

    /// The proxy above ours that `origin` is reached through.
    fn gate_of<'a>(&'a self, origin: &'a Origin) -> Option<&'a Gate> {
        match &self.place {
            Place::Anywhere => origin.gate.as_deref(),
            Place::One(one) => one.checked.through().map(|gate| &**gate),
        }
    }

    async fn keep(&self, target: &Target<'_>, origin: Origin) {
        if origin.version() == Version::Http1 {
            *self.open.lock().await = Some(Open { host: target.host.clone(), port: target.port, origin });
        }
    }

    async fn pass_back(
        &self,
        target: &Target<'_>,
        mut response: Response<Incoming>,
        inside: Option<hyper::upgrade::OnUpgrade>,
        ticket: Arc<Ticket>,
        words: Option<Vec<Vec<u8>>>,
        strip: Vec<String>,
    ) -> Result<Answer, Refused> {
        let idle = self.shared.limits.idle;
        headers::strip_response(response.headers_mut());
        let mut encodings = response.headers().get_all(CONTENT_ENCODING).iter();
        let is_compressed = encodings.any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
        headers::leave_out(response.headers_mut(), &strip);
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(inside) = inside else {
                let text = format!("{} changed the protocol without being asked.\n", target.host);
                return Err(Refused::Failed(StatusCode::BAD_GATEWAY, text));
            };
            let outside = hyper::upgrade::on(&mut response);
            headers::say_websocket(response.headers_mut());
            let passing = async move {
                let ending = match tokio::try_join!(inside, outside) {
                    Ok((inside, outside)) => {
                        copy::copy_any(TokioIo::new(inside), TokioIo::new(outside), &ticket.meter, idle).await
                    }
                    Err(_) => Ending::Broken,
                };
                ticket.end(ending);
            };
            *self.upgraded.lock().await = Some(Box::pin(passing));
            return Ok(response.map(|_| nothing()));
        }
        let filter = match words {
            None => Filter::Nothing,
            Some(words) => {
                let words: Arc<[Vec<u8>]> = words.into();
                if is_compressed {
                    let text = format!("{} sent a compressed answer, which cannot be looked through.\n", target.host);
                    return Err(Refused::Failed(StatusCode::BAD_GATEWAY, text));
                }
                // An origin may say anything there, and it would be passed on as it is.
                response.extensions_mut().remove::<hyper::ext::ReasonPhrase>();
                credential::mask_headers(response.headers_mut(), &words);
                Filter::Mask(Scanner::new(Arc::clone(&words)), words)
            }
        };
        Ok(response.map(|body| {
            Watched::new(Source::Coming(body), ticket, Direction::Down, idle, filter, strip).boxed_unsync()
        }))
    }

    fn record(&self, target: &Target<'_>, denied: Option<Reason>, rule: Arc<str>) -> Record {
        self.shared.record(self.via, target, denied, rule)
    }

    fn denied(&self, target: &Target<'_>, denied: Denied) -> Refused {
        let record = self.record(target, Some(denied.reason), Arc::clone(&denied.rule));
        self.shared.sink.decided(&record);
        Refused::Denied(Box::new(denied))
    }

    fn refuse(&self, target: &Target<'_>, reason: Reason, why: &str) -> Refused {
        self.denied(target, deny_because(&self.shared.rules, target, reason, why))
    }

    /// A request that names no host in a way that can be judged.
    fn bad_request(&self, parts: &Parts, reason: Reason, why: &str) -> Refused {
        // Neither a password nor the query.
        let what = format!("{} {}{}", parts.method, parts.uri.host().unwrap_or_default(), parts.uri.path());
        Refused::Denied(Box::new(self.shared.deny_unnamed(self.via, reason, &what, why)))
    }
}
