//! A container engine: what it is asked for, one request each, every one with a time limit and a cap on the answer.
//!
//! Answers are read into the few fields that are looked at: an engine may say more than this version knows.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bollard::models::SystemVersion;
use bollard::{BollardRequest, body_full, body_stream};
use futures_util::Stream;
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, UPGRADE};
use hyper::{Method, Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::backend::Unavailable;

use super::address::{Address, EngineKind, Location};
use super::attached::Attached;
use super::facts::{Facts, Info};
use super::failure::{EngineError, EngineFailure, clean, unavailable};
use super::inspected::{Inspected, differs};
use super::spec::{ImageId, Spec, SpecError};
use super::wire::{Wire, WireError};

/// How long a question may take that needs no work.
pub(super) const SHORT: Duration = Duration::from_secs(10);
/// How long may be taken by what has to touch disks, or wait for a kernel.
pub(super) const LONG: Duration = Duration::from_secs(60);
/// How long a whole workspace may be on its way.
const SENDS: Duration = Duration::from_secs(600);
const TAR: &str = "application/x-tar";
/// The newest version of the API that this was written for.
const NEWEST_API: (u32, u32) = (1, 53);

/// An engine that answered.
#[derive(Debug, Clone)]
pub(crate) struct Engine {
    address: Address,
    wire: Wire,
    kind: EngineKind,
    /// The newest version of the API that it speaks.
    api: String,
}

/// What an engine says first.
struct Greeting {
    kind: EngineKind,
    api: (u32, u32),
}

/// A container, by its id.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ContainerId(String);

impl ContainerId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        ImageId::parse(text).filter(|_| !text.contains(':')).map(|_| Self(text.to_owned()))
    }

    /// 64 digits.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

/// How a container is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Made, or running.
    NotEnded,
    /// It ended.
    Ended(Ended),
    /// It was removed, by the engine when it ended or by somebody else.
    Gone,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Of its first process.
    pub(crate) exit_code: i64,
    /// Whether the kernel killed something in it for memory, as the engine says.
    pub(crate) oom_killed: bool,
    /// Why it did not start, as the engine says.
    pub(crate) error: Option<String>,
}

/// Why no container was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// It must not be made so.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The engine did not make it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// What the engine made is not what it was told to make. It was removed.
    #[error("the engine made a container with {found}, and not with {wanted}")]
    Different {
        /// What was asked for.
        wanted: String,
        /// What is there.
        found: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Created {
    id: String,
}

#[cfg(test)]
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Waited {
    status_code: i64,
}

#[derive(Deserialize)]
struct Message {
    message: String,
}

impl Engine {
    /// Connects and agrees on a version.
    pub(crate) async fn connect(address: &Address, limit: Duration) -> Result<Self, Unavailable> {
        let mut engine =
            Self { address: address.clone(), wire: Wire::new(address.clone()), kind: address.kind, api: String::new() };
        let greeting = within(limit, engine.greet()).await.map_err(|failure| unavailable(address, &failure))?;
        engine.kind = greeting.kind;
        let spoken = greeting.api.min(NEWEST_API);
        engine.wire.speak(&format!("{}.{}", spoken.0, spoken.1));
        engine.api = format!("{}.{}", greeting.api.0, greeting.api.1);
        Ok(engine)
    }

    /// The one question that every engine answers at once. Podman looks at half of its machine before it says its version.
    async fn greet(&self) -> Result<Greeting, EngineFailure> {
        let request: BollardRequest = hyper::Request::builder()
            .method(Method::GET)
            .uri("/_ping")
            .body(body_full(Bytes::new()))
            .map_err(|error| garbage(&error))?;
        let response = self.wire.send(request).await.map_err(EngineFailure::of_wire)?;
        if !response.status().is_success() {
            return Err(refusal(response).await);
        }
        let said = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let api = said("Api-Version").and_then(api_version);
        let kind = if said("Libpod-Api-Version").is_some() { EngineKind::Podman } else { EngineKind::Docker };
        let mut body = response.into_body();
        while next(&mut body).await?.is_some() {}
        let nonsense = || EngineFailure::Garbage("it has no version of its API".to_owned());
        Ok(Greeting { kind, api: api.ok_or_else(nonsense)? })
    }

    /// What is said of the engine at `address` when all of it took longer than `limit`.
    pub(crate) fn silent(address: &Address, limit: Duration) -> Unavailable {
        unavailable(address, &EngineFailure::Silent { seconds: limit.as_secs() })
    }

    /// Which engine answered.
    pub(crate) fn kind(&self) -> EngineKind {
        self.kind
    }

    /// Where it is.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Its socket, when that is on this machine.
    pub(crate) fn socket(&self) -> Option<&std::path::Path> {
        match &self.address.location {
            Location::Local(path) => Some(path),
            Location::Remote(_) => None,
        }
    }

    /// What it is.
    pub(crate) async fn facts(&self, limit: Duration) -> Result<Facts, Unavailable> {
        let ask = async {
            let info = self.get::<Info>("/info", limit, "ask the engine what it is").await?;
            Facts::read(self.kind, &self.api, &info).map_err(|failure| failure.during("ask the engine what it is"))
        };
        ask.await.map_err(|error| unavailable(&self.address, &error.failure))
    }

    /// What it is, with all that people want to know and no run needs.
    pub(crate) async fn all_facts(&self, limit: Duration) -> Result<Facts, Unavailable> {
        let mut facts = self.facts(limit).await?;
        let version = self.get::<SystemVersion>("/version", limit, "ask the engine for its version").await;
        facts.add(&version.map_err(|error| unavailable(&self.address, &error.failure))?);
        Ok(facts)
    }

    /// Makes a container, and makes sure that it is the one that was asked for. Nothing in it runs.
    pub(crate) async fn create(&self, spec: &Spec) -> Result<ContainerId, CreateError> {
        const ATTEMPT: &str = "create the container";
        let body = spec.body(self.kind)?;
        let body = serde_json::to_vec(&body).map_err(|error| garbage(&error).during(ATTEMPT))?;
        let answer = self.call(Method::POST, "/containers/create", json(body), LONG, ATTEMPT).await?;
        let id = container_id(&answer, ATTEMPT)?;
        let checked = match self.inspect(&id).await {
            Ok(found) => differs(spec, &found),
            Err(error) => Err(CreateError::Engine(error)),
        };
        match checked {
            Ok(()) => Ok(id),
            Err(error) => {
                // The first failure is the one to tell; what is left is found by its labels.
                self.remove(&id).await.ok();
                Err(error)
            }
        }
    }

    /// Makes a container that is never started, from options that are not a wall's.
    pub(super) async fn create_courier(&self, body: &serde_json::Value) -> Result<ContainerId, EngineError> {
        const ATTEMPT: &str = "create a container to put the guest in place";
        let body = serde_json::to_vec(body).map_err(|error| garbage(&error).during(ATTEMPT))?;
        let answer = self.call(Method::POST, "/containers/create", json(body), LONG, ATTEMPT).await?;
        container_id(&answer, ATTEMPT)
    }

    /// Takes hold of the streams of a container's first process, before it is started.
    pub(crate) async fn attach(&self, id: &ContainerId) -> Result<Attached, EngineError> {
        const ATTEMPT: &str = "attach to the container";
        let path = format!("/containers/{}/attach?stream=true&stdin=true&stdout=true&stderr=true", id.0);
        let request = hyper::Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "tcp")
            .body(body_full(Bytes::new()))
            .map_err(|error| garbage(&error).during(ATTEMPT))?;
        let attach = async {
            let response = self.wire.send(request).await.map_err(EngineFailure::of_wire)?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                return Err(refusal(response).await);
            }
            hyper::upgrade::on(response).await.map_err(|error| EngineFailure::of_wire(WireError::Http(error)))
        };
        within(SHORT, attach).await.map(Attached::new).map_err(|failure| failure.during(ATTEMPT))
    }

    /// Starts a container.
    pub(crate) async fn start(&self, id: &ContainerId) -> Result<(), EngineError> {
        let path = format!("/containers/{}/start", id.0);
        self.call(Method::POST, &path, json(Vec::new()), LONG, "start the container").await.map(|_| ())
    }

    /// Kills everything in a container. One that has ended, or is gone, is as good as killed.
    pub(crate) async fn kill(&self, id: &ContainerId) -> Result<(), EngineError> {
        let path = format!("/containers/{}/kill?signal=SIGKILL", id.0);
        let killed = self.call(Method::POST, &path, json(Vec::new()), SHORT, "kill the container").await;
        unless_gone(killed)
    }

    /// Kills and removes a container, with what it alone used. One that is gone is as good as removed.
    pub(crate) async fn remove(&self, id: &ContainerId) -> Result<(), EngineError> {
        let path = format!("/containers/{}?force=true&v=true", id.0);
        let removed = self.call(Method::DELETE, &path, json(Vec::new()), LONG, "remove the container").await;
        unless_gone(removed)
    }

    /// How a container is.
    pub(crate) async fn state(&self, id: &ContainerId) -> Result<State, EngineError> {
        match self.inspect(id).await {
            Ok(Inspected { state, .. }) => Ok(match state.status.as_str() {
                "exited" | "dead" | "stopped" | "removing" => State::Ended(Ended {
                    exit_code: state.exit_code,
                    oom_killed: state.oom_killed,
                    error: Some(clean(&state.error)).filter(|error| !error.is_empty()),
                }),
                _ => State::NotEnded,
            }),
            Err(EngineError { failure: EngineFailure::Absent(_), .. }) => Ok(State::Gone),
            Err(error) => Err(error),
        }
    }

    /// The first process of a container that runs, by its number on the engine's machine.
    pub(crate) async fn process(&self, id: &ContainerId) -> Result<i32, EngineError> {
        match self.inspect(id).await?.state.pid {
            pid if pid > 0 => Ok(pid),
            _ => Err(EngineFailure::Garbage("the container does not run".to_owned()).during("look at the container")),
        }
    }

    /// Waits until a container has ended and was removed, for as long as that takes. Returns what its first process ended with;
    /// nothing when the container was gone before.
    #[cfg(test)]
    pub(crate) async fn wait(&self, id: &ContainerId) -> Result<Option<i64>, EngineError> {
        const ATTEMPT: &str = "wait for the container";
        let path = format!("/containers/{}/wait?condition=removed", id.0);
        match self.call_without_limit(Method::POST, &path, json(Vec::new())).await {
            Ok(answer) => decode::<Waited>(&answer).map(|waited| Some(waited.status_code)),
            Err(EngineFailure::Absent(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
        .map_err(|failure| failure.during(ATTEMPT))
    }

    pub(super) async fn inspect(&self, id: &ContainerId) -> Result<Inspected, EngineError> {
        self.get(&format!("/containers/{}/json", id.0), SHORT, "look at the container").await
    }

    /// An answer to a question.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        limit: Duration,
        attempt: &'static str,
    ) -> Result<T, EngineError> {
        let answer = self.call(Method::GET, path, json(Vec::new()), limit, attempt).await?;
        decode(&answer).map_err(|failure| failure.during(attempt))
    }

    /// The whole answer to a request.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        content: Content,
        limit: Duration,
        attempt: &'static str,
    ) -> Result<Vec<u8>, EngineError> {
        let call = self.call_without_limit(method, path, content);
        within(limit, call).await.map_err(|failure| failure.during(attempt))
    }

    async fn call_without_limit(&self, method: Method, path: &str, content: Content) -> Result<Vec<u8>, EngineFailure> {
        let mut body = self.open(method, path, content).await?;
        let mut all = Vec::new();
        while let Some(piece) = next(&mut body).await? {
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }

    /// Sends an archive that is made meanwhile.
    pub(super) async fn send_archive(
        &self,
        path: &str,
        pieces: impl Stream<Item = Bytes> + Send + 'static,
        attempt: &'static str,
    ) -> Result<(), EngineError> {
        let send = async {
            let request = hyper::Request::builder().method(Method::PUT).uri(path).header(CONTENT_TYPE, TAR);
            let request = request.body(body_stream(pieces)).map_err(|error| garbage(&error))?;
            let response = self.wire.send(request).await.map_err(EngineFailure::of_wire)?;
            if response.status().is_success() { Ok(()) } else { Err(refusal(response).await) }
        };
        within(SENDS, send).await.map_err(|failure| failure.during(attempt))
    }

    /// The beginning of an answer, which is read with [`next`].
    pub(super) async fn open(&self, method: Method, path: &str, content: Content) -> Result<Incoming, EngineFailure> {
        let request: BollardRequest = hyper::Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, content.mime)
            .body(body_full(Bytes::from(content.bytes)))
            .map_err(|error| garbage(&error))?;
        let response = self.wire.send(request).await.map_err(EngineFailure::of_wire)?;
        if response.status().is_success() || response.status() == StatusCode::NOT_MODIFIED {
            Ok(response.into_body())
        } else {
            Err(refusal(response).await)
        }
    }
}

/// What is sent with a request.
pub(super) struct Content {
    mime: &'static str,
    bytes: Vec<u8>,
}

pub(super) fn json(bytes: Vec<u8>) -> Content {
    Content { mime: "application/json", bytes }
}

pub(super) fn archive(bytes: Vec<u8>) -> Content {
    Content { mime: TAR, bytes }
}

/// The next piece of an answer; nothing at its end.
pub(super) async fn next(body: &mut Incoming) -> Result<Option<Bytes>, EngineFailure> {
    loop {
        match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            None => return Ok(None),
            Some(Ok(frame)) => {
                // What is no data are trailers.
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
            Some(Err(error)) => return Err(EngineFailure::of_wire(WireError::Http(error))),
        }
    }
}

/// A word within an address: whatever has a meaning there is written in numbers.
pub(super) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

async fn refusal(response: Response<Incoming>) -> EngineFailure {
    const MOST_MESSAGE: usize = 64 * 1024;
    let status = response.status().as_u16();
    let mut body = response.into_body();
    let mut text = Vec::new();
    // An answer that breaks off says no all the same.
    while let Ok(Some(piece)) = next(&mut body).await {
        text.extend_from_slice(&piece[..piece.len().min(MOST_MESSAGE.saturating_sub(text.len()))]);
        if text.len() >= MOST_MESSAGE {
            break;
        }
    }
    let message = match serde_json::from_slice::<Message>(&text) {
        Ok(Message { message }) => clean(&message),
        Err(_) => clean(&String::from_utf8_lossy(&text)),
    };
    match status {
        404 => EngineFailure::Absent(message),
        409 => EngineFailure::Conflict(message),
        status => EngineFailure::Refused { status, message },
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, EngineFailure>>) -> Result<T, EngineFailure> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(EngineFailure::Silent { seconds: limit.as_secs() }),
    }
}

fn decode<T: DeserializeOwned>(answer: &[u8]) -> Result<T, EngineFailure> {
    serde_json::from_slice(answer).map_err(|error| garbage(&error))
}

fn garbage(error: &dyn std::fmt::Display) -> EngineFailure {
    EngineFailure::Garbage(clean(&error.to_string()))
}

fn container_id(answer: &[u8], attempt: &'static str) -> Result<ContainerId, EngineError> {
    let created = decode::<Created>(answer).map_err(|failure| failure.during(attempt))?;
    let id = ContainerId::parse(&created.id);
    id.ok_or_else(|| EngineFailure::Garbage("the container's id is none".to_owned()).during(attempt))
}

fn unless_gone(result: Result<Vec<u8>, EngineError>) -> Result<(), EngineError> {
    match result {
        Ok(_) | Err(EngineError { failure: EngineFailure::Absent(_) | EngineFailure::Conflict(_), .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn api_version(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
