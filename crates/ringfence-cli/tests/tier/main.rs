//! Attacks on the tier `landlock`, run through the program as an ordinary user would. The letter and number in a test's name
//! are its row in the catalogue of attacks.
//!
//! Each attack is also run behind `--backend spawn`, which has no wall, and must get through there. What counts is the effect
//! on the host, or a secret that came out; never what a probe says of itself, except where a system call has no other effect
//! than its answer.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]

mod files;
mod namespaces;
mod outside;
mod probe;
mod promises;
mod review;
#[path = "../program/stage.rs"]
#[allow(dead_code, reason = "shared with the tests of the program, which use the rest of it")]
mod stage;
