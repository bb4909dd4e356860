//! Behind a wall that somebody else raised: a container, in which our own binary is process 1.
//!
//! The engine made the namespaces, the root and the cgroup. What is left is what it cannot do: restrict every program once
//! more by ourselves, and prove from inside that the engine did what it was told.

use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use super::Access;
use crate::keeper::Rlimit;

/// What restricts every program in a container, and what is looked for before the first. Plain data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contained {
    /// Who every program is.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Whose kernel it is.
    pub kernel: Kernel,
    /// Where the workspace is.
    pub workspace: OsString,
    /// All places that can be written, which are file systems of their own, and how much each holds.
    pub writable: Vec<Writable>,
    /// Limits of each process by itself.
    pub rlimits: Vec<Rlimit>,
    /// The second fence, where the kernel has one: what may be read, and what may be written.
    pub paths: Vec<(OsString, Access)>,
    /// What the cgroup must say, where it can be read from inside: bytes of memory.
    pub memory: u64,
    /// Likewise, processes and threads, the guest included.
    pub processes: u64,
}

/// A place that can be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writable {
    /// Where.
    pub at: OsString,
    /// How much it holds.
    pub bytes: u64,
}

/// Whose kernel answers the system calls of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kernel {
    /// The host's.
    Host,
    /// One of its own, in front of the host's, such as gVisor's.
    Own,
}
