//! What kind of place a path is. By its words alone: links are the caller's to resolve.

use serde::{Deserialize, Serialize};

use crate::text::Text;

/// Where the request would run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surroundings {
    /// The working directory, absolute; relative paths start here.
    pub directory: String,
    /// Folders that are the request's own, absolute: the workspace, the project outside.
    pub workspaces: Vec<String>,
    /// The home folder, absolute.
    pub home: String,
}

impl Default for Surroundings {
    fn default() -> Self {
        Self {
            directory: "/workspace".to_owned(),
            workspaces: vec!["/workspace".to_owned()],
            home: "/home/user".to_owned(),
        }
    }
}

/// Kinds of places, for rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathClass {
    /// Below a workspace.
    Workspace,
    /// A workspace itself, as a whole.
    WholeWorkspace,
    /// `/tmp`, `/var/tmp`, `/dev/shm`.
    Temporary,
    /// `/dev/null`, `/dev/stdout`, `/dev/tty` and their kin.
    Stream,
    /// `/`, or everything below it by a pattern.
    Root,
    /// Folders of the system: `/usr`, `/bin`, `/lib`, `/boot`, `/var`, `/opt`.
    System,
    /// `/etc`.
    SystemSettings,
    /// A home folder as a whole.
    WholeHome,
    /// Below a home folder.
    Home,
    /// Start files and settings that are executed later: `.bashrc`, `.profile`, `.git/hooks`, `authorized_keys`, agent settings, crontabs.
    ExecutedLater,
    /// Keys, tokens, passwords: `.ssh/id_*`, `.aws/credentials`, `.env`, `/etc/shadow`, cookies, wallets, key rings.
    Secret,
    /// Disks and memory as devices: `/dev/sda`, `/dev/mem`, `/dev/kmem`.
    Device,
    /// Other processes and the kernel: `/proc`, `/sys`.
    Kernel,
    /// The socket of a container engine.
    EngineSocket,
    /// A history of commands, logs.
    Traces,
    /// Somewhere else.
    Elsewhere,
    /// Not known.
    Unknown,
}

/// What kinds of place `path` is: at least one; a secret below the home is both.
pub fn classify(_path: &Text, _surroundings: &Surroundings) -> Vec<PathClass> {
    vec![PathClass::Unknown]
}
