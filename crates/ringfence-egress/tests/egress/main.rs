//! The proxy over sockets of this machine: origins, resolvers and clients of the test's own. The letter and number in a test's
//! name are its row in the catalogue of attacks; what counts is what reached an origin, never what a client was told.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what is skipped is said")]

mod addresses;
mod asking;
mod bounds;
mod credentials;
mod direct;
mod inspection;
mod requests;
mod signing;
mod size;
mod stage;
mod tunnels;
mod upstream;
