//! Attacks on the `native` wall, run through the program as a user would. The letter and number in a test's name are its
//! row in the catalogue of attacks.
//!
//! A negative proves nothing alone: each attack is also run bare, or behind `--backend spawn`, which has no wall, and
//! must get through there. What counts is the effect on the host, or a secret that came out; never what a probe says of
//! itself, except where a system call has no other effect than its answer.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]

mod applied;
mod asking;
mod bound;
mod caches;
mod calls;
mod changes;
mod check;
mod checkpoints;
mod clients;
mod copied;
mod direct;
mod egress;
mod files;
mod forbidden;
mod guest;
mod hooked;
mod image;
mod inspected;
mod kernel;
mod languages;
mod later;
mod leads;
mod left_for_the_host;
mod missing;
#[allow(dead_code, reason = "shared with the tests of engines, which use the rest of it")]
mod named;
mod names;
mod network;
#[allow(dead_code, reason = "shared with the tests of engines, which use the rest of it")]
mod origin;
mod other_ways;
mod probe;
mod resources;
mod rows;
mod secrets;
mod session_asking;
mod sessions;
mod signed;
mod sitting;
#[path = "../program/stage.rs"]
#[allow(dead_code, reason = "shared with the tests of the program, which use the rest of it")]
mod stage;
#[allow(dead_code, reason = "shared with the tests of engines, which use the rest of it")]
mod stand_in;
mod survivors;
mod talked_to;
mod tls_origin;
mod tmux;
mod told;
mod unix_sockets;
mod ways;
mod workspace;
mod world;
