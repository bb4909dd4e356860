//! What container engines are spoken to with. `address.rs` finds one, `wire.rs` connects, `engine.rs` asks, `spec.rs` says what a
//! container may be and `guard.rs` looks at that once more. Nothing here decides what may run.
#![allow(dead_code, reason = "the backend that uses these parts is not here yet")]

pub(crate) mod address;
pub(crate) mod attached;
pub(crate) mod engine;
pub(crate) mod facts;
pub(crate) mod failure;
mod guard;
pub(crate) mod guest_volume;
pub(crate) mod image;
pub(crate) mod labels;
pub(crate) mod spec;
pub(crate) mod sweep;
mod wire;

#[cfg(test)]
mod tests;
