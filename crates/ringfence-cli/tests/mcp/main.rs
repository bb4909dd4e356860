//! `ringfence mcp`, spoken to as clients speak to it. Each thing that must not happen has a twin that shows that it could.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]

mod asking;
mod connection;
mod endings;
mod files;
mod hello;
mod http;
#[path = "../native/origin.rs"]
#[allow(dead_code, reason = "shared with the tests of the wall, which use the rest of it")]
mod origin;
#[path = "../native/probe.rs"]
#[allow(dead_code, reason = "shared with the tests of the wall, which use the rest of it")]
mod probe;
#[path = "../program/stage.rs"]
#[allow(dead_code, reason = "shared with the tests of the program, which use the rest of it")]
mod stage;
mod walls;
