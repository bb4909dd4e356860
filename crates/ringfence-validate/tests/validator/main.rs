//! The validator against its corpus: how much it finds, how often it is wrong, and whether a disguise helps.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod corpus;
mod disguise;
mod program_disguise;
mod report;
