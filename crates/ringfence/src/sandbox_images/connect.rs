//! A connection to the container engine that keeps the images.

use std::path::PathBuf;
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};

/// Loading or building an image takes long; an engine that says nothing for so long is gone.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);
const DOCKER_SOCKETS: [&str; 2] = ["/run/docker.sock", "/var/run/docker.sock"];
const PODMAN_SOCKET: &str = "/run/podman/podman.sock";

/// A kind of engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// Docker.
    Docker,
    /// Podman, by the interface that is like Docker's.
    Podman,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// No socket is where engines have theirs.
    #[error("no {0:?} engine was found: none of its sockets is there")]
    NoSocket(EngineKind),
    /// It does not answer.
    #[error("the container engine at {address} does not answer")]
    Silent {
        /// Where.
        address: String,
        /// Why.
        source: Box<bollard::errors::Error>,
    },
}

impl ConnectError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NoSocket(EngineKind::Docker) => "start Docker, or set DOCKER_HOST to where it listens",
            Self::NoSocket(EngineKind::Podman) => {
                "start its service with `systemctl --user start podman.socket`, or set CONTAINER_HOST to where it listens"
            }
            Self::Silent { .. } => {
                "look whether it runs, whether you may use its socket (the group `docker`, or a rootless engine), and what \
                 DOCKER_HOST or CONTAINER_HOST says"
            }
        }
    }
}

/// Connects to the engine that the environment names, or that listens at its usual place.
pub async fn connect(kind: EngineKind, variable: impl Fn(&str) -> Option<String>) -> Result<Docker, ConnectError> {
    let address = address(kind, variable).ok_or(ConnectError::NoSocket(kind))?;
    connect_to(&address).await
}

/// Connects to the engine at `address`, such as `unix:///run/docker.sock`.
pub async fn connect_to(address: &str) -> Result<Docker, ConnectError> {
    let silent = |source| ConnectError::Silent { address: super::cut(address), source: Box::new(source) };
    let engine = match address.strip_prefix("unix://") {
        Some(path) => Docker::connect_with_unix(path, TIMEOUT.as_secs(), API_DEFAULT_VERSION),
        None => Docker::connect_with_host(address).map(|engine| engine.with_timeout(TIMEOUT)),
    };
    engine.map_err(silent)?.negotiate_version().await.map_err(silent)
}

fn address(kind: EngineKind, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let (name, mut places) = match kind {
        EngineKind::Docker => ("DOCKER_HOST", DOCKER_SOCKETS.map(PathBuf::from).to_vec()),
        EngineKind::Podman => ("CONTAINER_HOST", vec![PathBuf::from(PODMAN_SOCKET)]),
    };
    if let Some(address) = variable(name).filter(|address| !address.is_empty()) {
        return Some(address);
    }
    if let Some(own) = variable("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|folder| folder.is_absolute()) {
        let below = match kind {
            EngineKind::Docker => "docker.sock",
            EngineKind::Podman => "podman/podman.sock",
        };
        places.insert(0, own.join(below));
    }
    let found = places.into_iter().find(|path| path.exists())?;
    Some(format!("unix://{}", found.display()))
}

/// The engine refused something, or broke off.
#[derive(Debug, thiserror::Error)]
#[error("the container engine could not {attempt}")]
pub struct EngineError {
    pub(super) attempt: &'static str,
    source: Box<bollard::errors::Error>,
}

impl EngineError {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        "read what the engine says above; `docker info` or `podman info` tells whether it is well, and its disk may be full"
    }

    pub(super) fn at(attempt: &'static str) -> impl Fn(bollard::errors::Error) -> Self {
        move |source| Self { attempt, source: Box::new(source) }
    }
}

/// Whether the engine said that there is no such thing.
pub(super) fn is_missing(error: &bollard::errors::Error) -> bool {
    matches!(error, bollard::errors::Error::DockerResponseServerError { status_code: 404, .. })
}

/// Whether it said that the thing is in use.
pub(super) fn is_in_use(error: &bollard::errors::Error) -> bool {
    matches!(error, bollard::errors::Error::DockerResponseServerError { status_code: 409, .. })
}

/// What the engine says of an image; nothing when it has none of that name.
pub(super) async fn inspect(
    engine: &Docker,
    reference: &str,
) -> Result<Option<bollard::models::ImageInspect>, EngineError> {
    match engine.inspect_image(reference).await {
        Ok(seen) => Ok(Some(seen)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(EngineError::at("look at an image")(error)),
    }
}
