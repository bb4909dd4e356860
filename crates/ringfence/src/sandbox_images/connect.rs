//! A connection to the container engine that keeps the images.

use std::path::Path;
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};

pub use crate::backend::container::address::EngineKind;
use crate::backend::container::address::{Address, Surroundings, find};
use crate::backend::container::wire::docker_at;

/// Loading or building an image takes long; an engine that says nothing for so long is gone.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing says where it is, or what says it is not usable.
    #[error("{reason}")]
    Nowhere {
        /// Why.
        reason: String,
        /// What to do.
        fix: String,
    },
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
    pub fn hint(&self) -> &str {
        match self {
            Self::Nowhere { fix, .. } => fix,
            Self::Silent { .. } => {
                "look whether it runs, whether you may use its socket (the group `docker`, or a rootless engine), and what \
                 DOCKER_HOST or CONTAINER_HOST says"
            }
        }
    }
}

/// Connects to the engine that the environment names, or that listens at its usual place.
pub async fn connect(kind: EngineKind, variable: impl Fn(&str) -> Option<String>) -> Result<Docker, ConnectError> {
    let address = address(kind, &variable)?;
    let silent = |source| ConnectError::Silent { address: address.shown(), source: Box::new(source) };
    let engine = docker_at(&address, TIMEOUT, API_DEFAULT_VERSION).map_err(silent)?;
    engine.negotiate_version().await.map_err(silent)
}

fn address(kind: EngineKind, variable: &dyn Fn(&str) -> Option<String>) -> Result<Address, ConnectError> {
    let user = rustix::process::geteuid().as_raw();
    let surroundings = Surroundings { variable, exists: &|path: &Path| path.exists(), user };
    find(kind, &surroundings).map_err(|error| ConnectError::Nowhere { reason: error.to_string(), fix: error.fix() })
}

/// Connects to the engine at `address`, such as `unix:///run/docker.sock`.
#[cfg(test)]
pub(super) async fn connect_to(address: &str) -> Result<Docker, ConnectError> {
    connect(EngineKind::Docker, |name| (name == "DOCKER_HOST").then(|| address.to_owned())).await
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
