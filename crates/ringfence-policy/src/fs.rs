//! `fs`: which files are shown, and how.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::path::{Glob, LiteralPath};
use crate::policy::Sourced;
use crate::units::Bytes;

/// `fs`, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsPolicy {
    /// The folder of the host that is worked on.
    pub workspace: Sourced<LiteralPath>,
    /// How it is shown inside.
    pub mode: Sourced<WorkspaceMode>,
    /// Of what.
    pub source: Sourced<WorkspaceSource>,
    /// What else is shown inside; one per place.
    pub mounts: Vec<Sourced<Mount>>,
    /// Neither readable nor writable, whenever they come to be.
    pub deny: Vec<Sourced<Glob>>,
    /// Files that the host would execute or obey later: never changed without a person's look.
    pub protect: Vec<Sourced<Glob>>,
    /// The most that may be written.
    pub size: Sourced<Bytes>,
}

/// How the workspace is shown inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceMode {
    /// Copy-on-write: changes go to a private layer, then are reviewed and applied or thrown away.
    Review,
    /// Changes go straight to the host.
    Direct,
    /// An empty folder, gone afterwards.
    Ephemeral,
    /// The host's files, unchangeable.
    ReadOnly,
}

/// What the workspace that is shown is made of. The order is from narrowest to widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceSource {
    /// A copy, made at the start: what the host changes later is not seen.
    Copy,
    /// The host's own folder, as it is at any moment.
    Live,
}

/// One entry of `fs.mounts`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Mount {
    /// A folder or file of the host.
    Host {
        /// Its path on the host.
        host: LiteralPath,
        /// Where it is shown inside.
        at: LiteralPath,
        /// Whether it can be changed.
        mode: MountMode,
    },
    /// An empty folder in memory.
    Tmpfs {
        /// Where it is shown inside.
        tmpfs: LiteralPath,
        /// The most that it can hold.
        size: Bytes,
    },
}

/// Whether a mount can be changed from inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MountMode {
    /// It can be read.
    ReadOnly,
    /// Changes go straight to the host.
    ReadWrite,
}

impl Mount {
    /// Where it is shown inside; no two mounts of a policy share it.
    pub fn target(&self) -> &LiteralPath {
        match self {
            Self::Host { at, .. } => at,
            Self::Tmpfs { tmpfs, .. } => tmpfs,
        }
    }
}
