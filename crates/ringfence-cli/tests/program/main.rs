//! The `ringfence` program as people and agents meet it: started as a process, judged by exit code, output and effect.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]

mod apply;
mod arguments;
mod bad_input;
mod check;
mod code;
mod diff;
mod endings;
mod foresee;
mod hook;
mod init;
mod ledger;
mod limits;
mod output;
mod pages;
mod policies;
mod reach;
mod secrets;
mod stage;
mod survivors;
