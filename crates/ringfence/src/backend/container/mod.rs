//! `docker` and `podman`: a container of an engine that runs already, here or on another machine, with our guest as its first
//! process.
//!
//! `address.rs` finds an engine, `wire.rs` connects, `engine.rs` asks, `spec.rs` says what a container may be and `guard.rs` looks at
//! that once more. `made.rs` has a container made, `pool.rs` keeps some before they are needed, and `standing.rs` brings it all
//! together for one.

pub(crate) mod address;
mod ahead;
pub(crate) mod attached;
mod brought;
mod cgroup_view;
pub(crate) mod engine;
pub(crate) mod facts;
pub(crate) mod failure;
mod guard;
mod guest_file;
mod guest_path;
mod guest_place;
pub(crate) mod guest_volume;
pub(crate) mod image;
mod inspected;
mod kept;
pub(crate) mod labels;
mod laying;
mod leaving;
mod made;
mod meeting;
mod mounted;
mod places;
mod pool;
mod promises;
mod room;
pub(crate) mod spec;
mod ssh;
mod standing;
pub(crate) mod sweep;
mod trust;
mod wanted;
mod ways;
mod which;
pub(crate) mod wire;
mod workspace_volume;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use ringfence_linux::cgroup;
use ringfence_linux::launcher::Launcher;
use ringfence_linux::wall::Kernel;
use ringfence_policy::{BackendKind, ResolvedPolicy};
use tokio::sync::OnceCell;

use self::address::{Address, EngineKind, Surroundings};
use self::engine::Engine;
use self::facts::Facts;
use self::failure::chain;
use self::image::Resolved;
use self::labels::{ContainerKind, Owner};
use self::leaving::Leaving;
use self::made::Recipe;
use self::pool::Pool;
use self::spec::GuestFrom;
use self::standing::Used;
use self::ways::{Way, in_a_volume, way};
use super::process::alone;
use super::{
    Backend, Capabilities, FoundImage, KeptWall, Sandbox, Settled, StartError, Unavailable, WallError, inside,
};
use crate::BoxFuture;
use crate::plan::Plan;
use crate::state::StateFolder;

/// How long an engine may take to say what it is.
const ANSWERS: Duration = Duration::from_secs(5);

/// How long a process that ends waits for what its runs left.
const TIDIES: Duration = Duration::from_secs(20);

/// Our filter in the words of an engine.
static PROFILE: LazyLock<String> = LazyLock::new(ringfence_linux::seccomp::engine_profile);

/// Containers of one kind of engine.
#[derive(Debug)]
pub struct Containers {
    kind: EngineKind,
    state: StateFolder,
    environment: Vec<(OsString, OsString)>,
    launcher: Arc<Launcher>,
    /// The engine, once it has answered, and what it said of itself.
    engine: OnceCell<(Engine, Facts)>,
    /// What killed supervisors left is removed before the first container is made.
    swept: OnceCell<()>,
    /// Containers that are being removed.
    leaving: Leaving,
    /// Volumes that containers of runs show.
    volumes: Leaving,
    /// Containers that wait for runs.
    pool: Pool<Recipe>,
    /// The image that was found last under a name. What it means now is asked anew for every run.
    found: Mutex<Option<Resolved>>,
}

/// All that is known before a container is made.
#[derive(Debug, Clone)]
struct Prepared {
    engine: Engine,
    facts: Facts,
    image: Resolved,
    kernel: Kernel,
    way: Way,
    /// Our filter, where the engine takes one.
    seccomp: Option<String>,
}

impl Containers {
    /// Containers of Docker, where `environment` says that it is. Our binary is `launcher`'s.
    pub fn docker(launcher: Arc<Launcher>, state: StateFolder, environment: Vec<(OsString, OsString)>) -> Self {
        Self::new(EngineKind::Docker, launcher, state, environment)
    }

    /// Likewise, of Podman.
    pub fn podman(launcher: Arc<Launcher>, state: StateFolder, environment: Vec<(OsString, OsString)>) -> Self {
        Self::new(EngineKind::Podman, launcher, state, environment)
    }

    fn new(
        kind: EngineKind,
        launcher: Arc<Launcher>,
        state: StateFolder,
        environment: Vec<(OsString, OsString)>,
    ) -> Self {
        Self {
            kind,
            state,
            environment,
            launcher,
            engine: OnceCell::new(),
            swept: OnceCell::new(),
            leaving: Leaving::default(),
            volumes: Leaving::default(),
            pool: Pool::new(0, pool::IDLE),
            found: Mutex::default(),
        }
    }

    /// The same, with room for so many containers that wait for runs.
    pub fn with_room_for(self, warm: usize) -> Self {
        Self { pool: Pool::new(warm, pool::IDLE), ..self }
    }

    /// The engine, asked once.
    async fn engine(&self) -> Result<&(Engine, Facts), Unavailable> {
        let ask = || async {
            let address = self.address()?;
            let engine = Engine::connect(&address, ANSWERS).await?;
            let facts = engine.facts(ANSWERS).await?;
            Ok((engine, facts))
        };
        self.engine.get_or_try_init(ask).await
    }

    fn address(&self) -> Result<Address, Unavailable> {
        let variable = |name: &str| {
            let found = self.environment.iter().find(|(known, _)| known == name);
            found.and_then(|(_, value)| value.to_str()).map(str::to_owned)
        };
        let surroundings = Surroundings {
            variable: &variable,
            exists: &|path: &Path| path.exists(),
            user: rustix::process::geteuid().as_raw(),
        };
        address::find(self.kind, &surroundings)
            .map_err(|error| Unavailable { reason: error.to_string(), fix: error.fix() })
    }

    fn owner(&self) -> Result<Owner, StartError> {
        Owner::current().map_err(|source| StartError::Io { attempt: "tell this machine from others", source })
    }

    async fn prepare(&self, plan: &Plan) -> Result<Prepared, StartError> {
        let (engine, _) = self.engine().await.map_err(|unavailable| could_not(&unavailable))?;
        let owner = self.owner()?;
        self.swept
            .get_or_init(|| async {
                // What cannot be removed now is found again by a later start, and must not cost this one.
                sweep::sweep(engine, &owner, &cgroup::is_supervisor_alive).await.ok();
            })
            .await;
        let image = which::obtain(self, engine, plan).await?;
        self.prepared(plan, image).await
    }

    /// The way that containers of `plan` are furnished.
    async fn way(&self, plan: &Plan) -> Result<Way, StartError> {
        let (engine, facts) = self.engine().await.map_err(|unavailable| could_not(&unavailable))?;
        Ok(way(engine.address(), facts, kernel(plan.policy(), facts)))
    }

    /// Whether the workspace of `plan` comes in a volume.
    async fn shows_a_volume(&self, plan: &Plan) -> Result<bool, StartError> {
        let (engine, facts) = self.engine().await.map_err(|unavailable| could_not(&unavailable))?;
        let kernel = kernel(plan.policy(), facts);
        Ok(in_a_volume(plan.policy(), kernel, way(engine.address(), facts, kernel)))
    }

    /// The image that `plan` names, as it was when it was last asked for. Only where containers wait for runs: whoever uses it
    /// has to ask before anything runs.
    fn remembered(&self, plan: &Plan) -> Option<Resolved> {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let is_meant = |found: &&Resolved| self.pool.is_used() && which::names(plan) == Some(found.name.as_str());
        found.as_ref().filter(is_meant).cloned()
    }

    fn remember(&self, found: &Resolved) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
    }

    /// What was remembered may not be there any more.
    fn forget(&self) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn prepared(&self, plan: &Plan, image: Resolved) -> Result<Prepared, StartError> {
        let (engine, facts) = self.engine().await.map_err(|unavailable| could_not(&unavailable))?;
        let kernel = kernel(plan.policy(), facts);
        let seccomp = match engine.kind() {
            EngineKind::Docker => Some(PROFILE.clone()),
            // It takes none over its API; the guest installs ours.
            EngineKind::Podman => None,
        };
        let way = way(engine.address(), facts, kernel);
        Ok(Prepared { engine: engine.clone(), facts: facts.clone(), image, kernel, way, seccomp })
    }

    /// Our binary, where the engine can show it from.
    async fn guest(&self, prepared: &Prepared) -> Result<GuestFrom, StartError> {
        let file = guest_file::obtain(self.launcher.binary(), &self.state).map_err(|error| could_not(&error))?;
        if prepared.engine.address().is_local() {
            return Ok(GuestFrom::File(file));
        }
        let labels = labels::Labels::new("guest", &self.owner()?, ContainerKind::Courier)
            .map_err(|source| StartError::Io { attempt: "name the container", source })?;
        let content =
            std::fs::read(&file).map_err(|source| StartError::Io { attempt: "read our own binary", source })?;
        let volume = guest_volume::put(&prepared.engine, &content, &prepared.image.id, &labels).await;
        let volume = volume.map_err(|error| could_not(&error))?;
        // Those of older versions of us, which nobody uses; what cannot be removed now is found again.
        sweep::sweep_volumes(&prepared.engine, &volume).await.ok();
        Ok(GuestFrom::Volume(volume))
    }

    async fn raise_for_one(&self, plan: &Plan) -> Result<Sandbox, StartError> {
        let mut standing = standing::raise(self, plan, ContainerKind::Once).await?;
        let found = kept::find(&standing, plan).await?;
        let layer = standing.laid.as_ref().map(|laid| laid.layer(crate::workspace::layer::Life::Over)).transpose();
        let layer = layer.map_err(|source| StartError::Io { attempt: "open the private layer", source })?;
        let (proofs, image, guest) =
            (inside::with_each_start(&standing.proofs), named(&standing.prepared.image), standing.guest.clone());
        let (counters, from, egress) = (kept::counters(&standing), standing.from, standing.egress.take());
        let (trust, shown, live) = (standing.trust.take(), standing.shown, standing.live.take());
        // Only what is told at the end is of interest: it goes with its layer.
        standing.copy = None;
        let start = |number| {
            let start = inside::start(plan, number, |code| found.program(plan, code))?;
            Ok(trust::with_certificates(start, trust.as_ref(), plan.policy()))
        };
        let mut sandbox = alone(plan, &guest, start, Box::new(Used::new(standing)))?;
        sandbox.proofs = proofs;
        sandbox.image = Some(image);
        sandbox.shown = shown;
        sandbox.live = live;
        sandbox.container = from;
        sandbox.counters = Some(counters);
        sandbox.lead_out(egress);
        sandbox.hold(layer);
        Ok(sandbox)
    }
}

/// An image as outcomes name it: what it was asked for as, and what it is.
fn named(image: &Resolved) -> String {
    format!("{} ({})", image.name, image.id.as_str())
}

/// Whose kernel a container of this policy has: gVisor's runtime is its own.
fn kernel(policy: &ResolvedPolicy, facts: &Facts) -> Kernel {
    let runtime =
        policy.backend.runtime.as_ref().map_or(facts.default_runtime.as_str(), |runtime| runtime.value.as_str());
    if has_own_kernel(runtime) { Kernel::Own } else { Kernel::Host }
}

/// Whether a runtime of this name is gVisor's.
pub(crate) fn has_own_kernel(runtime: &str) -> bool {
    runtime.contains("runsc") || runtime.contains("gvisor")
}

/// An error of the engine, or in speaking to it.
fn could_not(error: &dyn std::error::Error) -> StartError {
    StartError::Wall(WallError(chain(error)))
}

impl Backend for Containers {
    fn kind(&self) -> BackendKind {
        match self.kind {
            EngineKind::Docker => BackendKind::Docker,
            EngineKind::Podman => BackendKind::Podman,
        }
    }

    fn probe<'a>(&'a self, policy: &'a ResolvedPolicy) -> BoxFuture<'a, Result<Capabilities, Unavailable>> {
        Box::pin(async move {
            let (engine, facts) = self.engine().await?;
            let kernel = kernel(policy, facts);
            let way = way(engine.address(), facts, kernel);
            match promises::cannot(policy, facts, way) {
                Some(unavailable) => Err(unavailable),
                None => Ok(Capabilities::new(self.kind(), promises::kept(policy, facts, kernel, way))),
            }
        })
    }

    fn image<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Option<FoundImage>, StartError>> {
        Box::pin(async move {
            let (engine, _) = self.engine().await.map_err(|unavailable| could_not(&unavailable))?;
            let found = which::find(self, engine, plan).await;
            if !matches!(&found, Ok(FoundImage { settled: Settled::Now, .. })) {
                self.forget();
            }
            found.map(Some)
        })
    }

    fn raise<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Sandbox, StartError>> {
        Box::pin(self.raise_for_one(plan))
    }

    fn keep<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Arc<dyn KeptWall>, StartError>> {
        Box::pin(async move {
            let standing = standing::raise(self, plan, ContainerKind::Session).await?;
            Ok(Arc::new(kept::Session::new(self.kind(), standing, plan.policy())) as Arc<dyn KeptWall>)
        })
    }

    fn warm<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<usize, StartError>> {
        Box::pin(standing::warm(self, plan))
    }

    fn tidy(&self) -> BoxFuture<'_, ()> {
        // Containers remove themselves; their engine does not know whose a volume is.
        Box::pin(async {
            // One that stays is found by its labels.
            tokio::time::timeout(TIDIES, self.volumes.all()).await.ok();
        })
    }

    fn drain(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.pool.drain().await;
            self.leaving.all().await;
        })
    }
}
