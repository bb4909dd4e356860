//! The guest: the small supervisor behind every wall, and the one protocol between it and the host.
//!
//! [`live`] is its whole life as process 1, and [`live_far`] that in a container; [`Guest`] is the host's side. What a guest
//! says is read as if an enemy had written it: frames have a cap, a version and one meaning, or the guest is given up.

mod door;
pub mod far;
mod far_host;
mod far_life;
mod far_workspace;
mod files;
mod host;
mod life;
pub mod nodes;
mod programs;
pub mod protocol;
mod questions;
pub mod relay;
pub mod seal;
mod streams;
#[doc(hidden)]
pub mod workspace;

pub use far_life::{NotAGuest, live_far};
pub use host::{Guest, Received, reap_guests};
pub use life::{WAITS, live};
pub use protocol::{InputFile, Order, Report, Start, Why};
