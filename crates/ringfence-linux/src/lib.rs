//! The Linux calls behind Ringfence's walls.
//!
//! This is the only crate of the workspace that may use `unsafe`. It offers safe functions, knows no policy, makes no
//! decision and prints nothing: the caller says exactly what to do, and every step is done or the start fails.

#![allow(unsafe_code, reason = "the one crate that may; every block says why it is sound")]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod acting;
pub mod bytes;
pub mod cgroup;
mod environment;
pub mod fence;
pub mod keeper;
mod keeper_process;
pub mod kernel_file;
pub mod launcher;
pub mod orphans;
pub mod passing;
pub mod privileges;
mod program_process;
pub mod report;
pub mod seccomp;
pub mod tree;
pub mod wall;

pub use keeper::{Keeper, Launch, LaunchError, Privileges, Rlimit, RlimitKind};
pub use report::{Layer, Report, Room, Stage, Usage};
pub use wall::chain;
