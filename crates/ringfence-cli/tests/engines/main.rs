//! The wall of container engines, run through the program as a user would. The letter and number in a test's name are its
//! row in the catalogue of attacks.
//!
//! `cargo xtask test --only engines` starts the engines and names them by variables; without them every test is skipped
//! loudly. Each attack is also run behind `--backend spawn` or `none`, which have no wall, and must get through there. What
//! counts is the effect on the host, or a secret that came out; never what a probe says of itself, except where a system
//! call has no other effect than its answer.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]

mod api;
mod applied;
#[path = "../native/bound.rs"]
mod bound;
mod breakdowns;
mod calls;
#[path = "../mcp/connection.rs"]
#[allow(dead_code, reason = "shared with the tests of the server, which use the rest of it")]
mod connection;
mod direct;
mod egress;
mod files;
mod images;
mod inspected;
#[path = "../native/leads.rs"]
mod leads;
#[path = "../native/left_for_the_host.rs"]
mod left_for_the_host;
#[path = "../native/named.rs"]
mod named;
mod names;
#[path = "../native/origin.rs"]
mod origin;
mod processes;
mod remote;
mod resources;
#[path = "../native/rows.rs"]
mod rows;
mod runs;
mod same;
mod secrets;
mod sessions;
#[path = "../program/stage.rs"]
#[allow(dead_code, reason = "shared with the tests of the program, which use the rest of it")]
mod stage;
#[path = "../native/stand_in.rs"]
#[allow(dead_code, reason = "shared with the tests of the native wall, which use the rest of it")]
mod stand_in;
mod swapped;
#[path = "../native/talked_to.rs"]
mod talked_to;
#[path = "../native/tls_origin.rs"]
#[allow(dead_code, reason = "shared with the tests of native, which use the rest of it")]
mod tls_origin;
mod tools;
mod walls;
mod warm;
#[path = "../native/ways.rs"]
mod ways;
mod workspace;
#[path = "../native/world.rs"]
mod world;
