//! The resolved policy: every default written out, every value with the layer that set it.
//!
//! Nothing here parses or decides; the types are what the rest of the program reads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::budget::NetBudget;
use crate::command::CommandRule;
use crate::credential::CredentialPolicy;
pub use crate::fs::{FsPolicy, Mount, MountMode, WorkspaceMode, WorkspaceSource};
use crate::host::NetRule;
use crate::image::Image;
use crate::path::LiteralPath;
use crate::runtime::Runtime;
use crate::units::{Bytes, Cpus, TimeSpan};
use crate::upstream::Upstream;
pub use crate::user::UserId;
use crate::validate::ValidatePolicy;
pub use crate::way::{NetProtocol, UnknownHosts};

/// Where a layer's text was read from, and the line of one value in it. Lines and columns start at 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The file as it was named; for an environment variable its name.
    pub file: Arc<str>,
    /// The line, from 1; 0 where the source has no lines.
    pub line: u32,
    /// The column in characters, from 1; 0 where the source has no lines.
    pub column: u32,
}

/// The layers, weakest first. [`Layer::Operator`] is a floor: it only narrows what the layers before it say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// What holds when nobody says anything.
    Default,
    /// A preset named by `extends`.
    Preset(Preset),
    /// The person's own file.
    User,
    /// The file of the project.
    Project,
    /// `RINGFENCE_*` and its aliases, and what the person who started us chose on the command line.
    Environment,
    /// A permission from outside to go beyond the layers before it.
    Grant,
    /// The floor that nobody below can widen.
    Operator,
    /// Overrides that came with one request.
    Call,
}

/// The layer that set a value and, when it came from a file, the line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Origin {
    /// Who set it.
    pub layer: Layer,
    /// Where; `None` for what is built in.
    pub place: Option<Place>,
}

/// A value that knows who set it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Sourced<T> {
    /// The value.
    pub value: T,
    /// Who set it.
    pub origin: Origin,
}

/// A preset that `extends` may name as `preset:NAME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// The workspace can be read, not changed.
    ReadOnly,
    /// The workspace can be changed after review; no network.
    Workspace,
    /// Python, with its package index.
    Python,
    /// Node.js, with its registry.
    Node,
    /// Rust, with its registry.
    Rust,
    /// Unattended builds: longer times, changes go straight to the workspace.
    Ci,
    /// As little as most programs need.
    Strict,
}

/// A kind of wall.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BackendKind {
    /// Namespaces, cgroups and filters of this kernel.
    Native,
    /// A container of Docker.
    Docker,
    /// A container of Podman.
    Podman,
    /// A virtual machine with a kernel of its own.
    Microvm,
    /// A pod of a cluster.
    Kubernetes,
    /// Landlock and a filter on this kernel, for users who may not make namespaces: a wall with gaps that it names.
    Landlock,
    /// A process with a clean environment and limits; no isolation.
    Spawn,
    /// A plain process.
    None,
}

/// What `backend:` asks for: the best isolating wall of this host, or one by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BackendChoice {
    /// The strongest isolating wall that this host has.
    Auto,
    /// This one.
    Kind(BackendKind),
}

/// How far the network reaches. The order is from narrowest to widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetMode {
    /// Nowhere.
    None,
    /// To what `net.allow` lists; an empty list is nowhere.
    Allowlist,
    /// Anywhere but to what `net.deny` lists.
    Open,
}

/// Whether an image that is not on this machine may be fetched. The order is from narrowest to widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ImagePull {
    /// Nothing is fetched; a missing image is an error.
    Never,
    /// The container engine may fetch it.
    Allow,
}

/// Packages that were fetched outside and are shown read-only inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CacheKind {
    /// Wheels of Python, for `pip`.
    Pip,
    /// Packages of Node.js, for `npm`.
    Npm,
    /// Crates of Rust, for `cargo`.
    Cargo,
}

/// How firmly `memory`, `cpus` and `processes` must be kept. The order is from narrowest to widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Firmness {
    /// By the kernel, without a gap; where that cannot be had, nothing runs.
    Enforced,
    /// Looking now and then, and killing what is over, will do where there is nothing better.
    Watched,
}

/// What the layers resolve to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedPolicy {
    /// Which wall.
    pub backend: BackendPolicy,
    /// What stands inside, for the backends that use images.
    pub image: Option<Sourced<Image>>,
    /// Whether an image that is not on this machine may be fetched.
    pub image_pull: Sourced<ImagePull>,
    /// Packages that are shown read-only inside.
    pub cache: Vec<Sourced<CacheKind>>,
    /// Files.
    pub fs: FsPolicy,
    /// Network.
    pub net: NetPolicy,
    /// Where secrets come from, and to which hosts they may go.
    pub credentials: BTreeMap<String, Sourced<CredentialPolicy>>,
    /// The process: user, limits, environment.
    pub proc: ProcPolicy,
    /// How closely requests are read.
    pub validate: ValidatePolicy,
    /// In the order of the layers; see [`crate::decide`] for how the deciding rule is chosen.
    pub commands: Vec<Sourced<CommandRule>>,
    /// Tools that a model may call.
    pub tools: ToolsPolicy,
    /// What may be widened from outside.
    pub overrides: OverridesPolicy,
}

/// `backend`, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendPolicy {
    /// The wanted wall.
    pub choice: Sourced<BackendChoice>,
    /// Tried in this order when the choice is missing; the only way down.
    pub fallback: Vec<Sourced<BackendKind>>,
    /// The OCI runtime that a container engine is to use; its own choice when nobody says.
    pub runtime: Option<Sourced<Runtime>>,
}

/// `net`, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetPolicy {
    /// How far it reaches.
    pub mode: Sourced<NetMode>,
    /// Reachable under [`NetMode::Allowlist`].
    pub allow: Vec<Sourced<NetRule>>,
    /// Never reachable; beats `allow`.
    pub deny: Vec<Sourced<NetRule>>,
    /// Ports of this machine that are reachable.
    pub localhost: Vec<Sourced<u16>>,
    /// Sockets of this machine that are reachable.
    pub unix: Vec<Sourced<LiteralPath>>,
    /// How much may be used, of all hosts together.
    pub budget: Sourced<NetBudget>,
    /// What becomes of hosts that no rule names.
    pub unknown: Sourced<UnknownHosts>,
    /// The proxy through which everything goes out.
    pub upstream: Option<Sourced<Upstream>>,
}

/// `proc`, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcPolicy {
    /// Who the program is.
    pub user: Sourced<UserId>,
    /// The share of processors.
    pub cpus: Sourced<Cpus>,
    /// The most memory, of all processes together.
    pub memory: Sourced<Bytes>,
    /// The most processes and threads at once.
    pub processes: Sourced<u32>,
    /// How firmly the three before must be kept.
    pub limits: Sourced<Firmness>,
    /// The time limit of a run that asks for none.
    pub timeout: Sourced<TimeSpan>,
    /// The most that a run may ask for.
    pub max_timeout: Sourced<TimeSpan>,
    /// Between the polite signal and the kill.
    pub grace: Sourced<TimeSpan>,
    /// Kept of each of stdout and stderr.
    pub output: Sourced<Bytes>,
    /// The largest single file.
    pub file_size: Sourced<Bytes>,
    /// The most descriptors of one process.
    pub open_files: Sourced<u32>,
    /// The environment.
    pub env: EnvPolicy,
}

/// `proc.env`, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvPolicy {
    /// Names passed from the host's environment.
    pub pass: Vec<Sourced<String>>,
    /// Variables with fixed values.
    pub set: BTreeMap<String, Sourced<String>>,
}

/// `tools`, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolsPolicy {
    /// Names of other programs' tools that are let through; empty means none.
    pub allow: Vec<Sourced<String>>,
    /// Which of Ringfence's own tools there are, by the same key. Nothing means that nobody wrote it, and all of them; a list is all
    /// there is, also where it names none. It is kept apart because an operator's list alone lets nothing through, and still limits.
    pub own: Option<Vec<Sourced<String>>>,
}

/// `overrides`, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverridesPolicy {
    /// What a [`crate::Grant`] may widen. Empty unless a layer says otherwise.
    pub grantable: Vec<Sourced<Field>>,
}

/// A field that a call may narrow and a grant may widen, by its name in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Field {
    /// `backend`
    #[serde(rename = "backend")]
    Backend,
    /// `cache`
    #[serde(rename = "cache")]
    Cache,
    /// `fs.workspace.mode`
    #[serde(rename = "fs.workspace.mode")]
    WorkspaceMode,
    /// `fs.workspace.source`
    #[serde(rename = "fs.workspace.source")]
    WorkspaceSource,
    /// `fs.size`
    #[serde(rename = "fs.size")]
    FsSize,
    /// `net.mode`
    #[serde(rename = "net.mode")]
    NetMode,
    /// `net.allow`
    #[serde(rename = "net.allow")]
    NetAllow,
    /// `net.localhost`
    #[serde(rename = "net.localhost")]
    NetLocalhost,
    /// `net.unix`
    #[serde(rename = "net.unix")]
    NetUnix,
    /// `net.budget`
    #[serde(rename = "net.budget")]
    NetBudget,
    /// `net.unknown`
    #[serde(rename = "net.unknown")]
    NetUnknown,
    /// `proc.cpus`
    #[serde(rename = "proc.cpus")]
    Cpus,
    /// `proc.memory`
    #[serde(rename = "proc.memory")]
    Memory,
    /// `proc.processes`
    #[serde(rename = "proc.processes")]
    Processes,
    /// `proc.limits`
    #[serde(rename = "proc.limits")]
    Limits,
    /// `proc.timeout`
    #[serde(rename = "proc.timeout")]
    Timeout,
    /// `proc.output`
    #[serde(rename = "proc.output")]
    Output,
    /// `proc.env.pass`
    #[serde(rename = "proc.env.pass")]
    EnvPass,
    /// `proc.env.set`
    #[serde(rename = "proc.env.set")]
    EnvSet,
    /// `validate`
    #[serde(rename = "validate")]
    Validate,
}

impl BackendKind {
    /// Every kind, weakest last.
    pub const ALL: [Self; 8] = [
        Self::Native,
        Self::Docker,
        Self::Podman,
        Self::Microvm,
        Self::Kubernetes,
        Self::Landlock,
        Self::Spawn,
        Self::None,
    ];

    /// Whether the wall confines files, network and privileges. `landlock` does so in part, `spawn` and `none` do not: these
    /// are used only by name.
    pub fn isolates(self) -> bool {
        match self {
            Self::Native | Self::Docker | Self::Podman | Self::Microvm | Self::Kubernetes => true,
            Self::Landlock | Self::Spawn | Self::None => false,
        }
    }
}

impl BackendChoice {
    /// Whether the chosen wall confines files, network and privileges.
    pub fn isolates(self) -> bool {
        match self {
            Self::Auto => true,
            Self::Kind(kind) => kind.isolates(),
        }
    }
}

impl<T> Sourced<T> {
    /// The same origin with another value.
    pub(crate) fn map<U>(&self, change: impl FnOnce(&T) -> U) -> Sourced<U> {
        Sourced { value: change(&self.value), origin: self.origin.clone() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.file),
            _ => write!(f, "{}:{}:{}", self.file, self.line, self.column),
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Preset(preset) => write!(f, "preset:{preset}"),
            Self::User => f.write_str("user"),
            Self::Project => f.write_str("project"),
            Self::Environment => f.write_str("environment"),
            Self::Grant => f.write_str("grant"),
            Self::Operator => f.write_str("operator"),
            Self::Call => f.write_str("call"),
        }
    }
}

/// The layer and, when there is one, the file and line.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(Place { file, line: 0, .. }) => write!(f, "{} {file}", self.layer),
            Some(Place { file, line, .. }) => write!(f, "{} {file}:{line}", self.layer),
            None => write!(f, "{}", self.layer),
        }
    }
}
