//! Which backends a test machine must have, and what to say about one that is missing.

use std::ffi::OsString;
use std::fmt;

use ringfence::{Capabilities, Engine, Unavailable};
use ringfence_policy::BackendKind;

/// Names the backends whose absence is a failure, separated by commas.
pub const REQUIRED: &str = "RINGFENCE_TEST_REQUIRE";

/// The image that engines were given for tests.
pub const IMAGE: &str = "RINGFENCE_TEST_IMAGE";

/// What the probe of a backend says that is not built yet.
const NOT_BUILT: &str = "not part of this version";

/// One wall to attack: a backend, and for an engine's where that is and what stands inside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wall {
    /// The backend.
    pub kind: BackendKind,
    /// The runtime that the engine is to use, if not its own choice.
    pub runtime: Option<&'static str>,
    /// What tests call it.
    pub name: &'static str,
    /// The engine's address, and the image that it has.
    pub engine: Option<(String, String)>,
}

/// The engines that tests ask for: name, backend, runtime, and the variable with the address.
const ENGINES: [(&str, BackendKind, Option<&str>, &str); 5] = [
    ("docker", BackendKind::Docker, None, "RINGFENCE_TEST_DOCKER_HOST"),
    ("docker with runsc", BackendKind::Docker, Some("runsc"), "RINGFENCE_TEST_GVISOR_HOST"),
    ("docker rootless", BackendKind::Docker, None, "RINGFENCE_TEST_DOCKER_ROOTLESS_HOST"),
    ("podman", BackendKind::Podman, None, "RINGFENCE_TEST_PODMAN_HOST"),
    ("podman rootless", BackendKind::Podman, None, "RINGFENCE_TEST_PODMAN_ROOTLESS_HOST"),
];

impl Wall {
    /// A backend that needs no engine.
    pub fn of(kind: BackendKind) -> Self {
        Self { kind, runtime: None, name: "", engine: None }
    }

    /// The walls of the engines that the environment names; of each other one, a line that says so.
    pub fn engines() -> (Vec<Self>, Vec<String>) {
        let image = std::env::var(IMAGE).ok().filter(|image| !image.is_empty());
        let (mut walls, mut missing) = (Vec::new(), Vec::new());
        for (name, kind, runtime, variable) in ENGINES {
            match (std::env::var(variable), &image) {
                (Ok(host), Some(image)) => {
                    walls.push(Self { kind, runtime, name, engine: Some((host, image.clone())) });
                }
                (Ok(_), None) => missing.push(format!("SKIPPED: {name}: {variable} is set and {IMAGE} is not")),
                (Err(_), _) => missing.push(format!("SKIPPED: {name}: {variable} is not set")),
            }
        }
        (walls, missing)
    }

    /// The same engine with a runtime of its own choice.
    #[must_use]
    pub fn with_its_own_runtime(&self) -> Self {
        Self { runtime: None, ..self.clone() }
    }

    /// Whether programs are processes of the host's kernel, which a witness can see.
    pub fn shows_processes(&self) -> bool {
        self.runtime.is_none()
    }

    /// What a policy says to choose it.
    pub fn policy(&self) -> String {
        let kind = self.kind;
        let backend = match self.runtime {
            Some(runtime) => format!("backend: {{ use: {kind}, runtime: {runtime} }}\n"),
            None => format!("backend: {kind}\n"),
        };
        let image = self.engine.as_ref().map(|(_, image)| format!("image: {image}\n"));
        backend + &image.unwrap_or_default()
    }

    /// What leads our library to the engine.
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let variable = if self.kind == BackendKind::Podman { "CONTAINER_HOST" } else { "DOCKER_HOST" };
        self.engine.iter().map(|(host, _)| (variable.into(), host.into())).collect()
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { self.kind.fmt(f) } else { f.write_str(self.name) }
    }
}

/// What to do with a backend on this machine.
#[derive(Debug)]
pub enum Presence {
    /// It can be attacked.
    Here(Capabilities),
    /// It is missing, and nobody asked for it. Print this line.
    Skip(String),
    /// It is missing, and it was required.
    Fail(String),
}

/// Looks for `kind` through `engine`. `required` is the value of [`REQUIRED`].
pub async fn presence(engine: &Engine, kind: BackendKind, required: &str) -> Presence {
    let found = engine.probe().await.into_iter().find(|(probed, _)| *probed == kind);
    let missing = match found {
        Some((_, Ok(capabilities))) => return Presence::Here(capabilities),
        Some((_, Err(Unavailable { reason, fix }))) => format!("`{kind}` is missing: {reason} (fix: {fix})"),
        None => format!("`{kind}` is missing: the engine does not know it"),
    };
    // Nobody can require what nobody has written.
    let is_built = !missing.contains(NOT_BUILT) || !matches!(kind, BackendKind::Docker | BackendKind::Podman);
    if is_built && required.split(',').any(|name| name.trim() == kind.to_string()) {
        Presence::Fail(format!("{missing}, and {REQUIRED} names it"))
    } else {
        Presence::Skip(format!("SKIPPED: {missing}"))
    }
}
