//! How much the supervisor's memory grows while a program writes ten gigabytes.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first failure"
)]

use std::time::Instant;

use ringfence::engine::Setup;
use ringfence::layers::{self, Sources};
use ringfence::{Engine, Request, StateFolder};

const BYTES: u64 = 10 << 30;

fn main() {
    let home = tempfile::tempdir().unwrap();
    let sources = Sources { chosen_backend: Some("spawn".to_owned()), ..Sources::default() };
    let engine = Engine::new(Setup {
        policy: layers::load(&sources).unwrap().policy,
        workspace: home.path().to_owned(),
        environment: std::env::vars_os().collect(),
        state: StateFolder::prepare(home.path().join("state")).unwrap(),
        grants: Vec::new(),
        own: Vec::new(),
        launcher: ringfence::launcher::Launcher::here(),
        warm: 0,
    })
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let run = |bytes: u64| {
        let line = format!("head -c {bytes} /dev/zero");
        runtime.block_on(async { engine.start(Request::shell(line)).unwrap().outcome().await.unwrap() })
    };
    // Once small, so that what is allocated once is not counted as growth.
    assert_eq!(run(4 << 20).exit_code, Some(0));
    let before = resident_peak();
    let begin = Instant::now();
    let outcome = run(BYTES);
    let seconds = begin.elapsed().as_secs_f64();
    assert_eq!(outcome.exit_code, Some(0));
    assert!(outcome.output_truncated);
    let growth = resident_peak().saturating_sub(before);
    println!("output_10gb_growth_mb {:.1} MB", growth as f64 / 1e6);
    println!("output_10gb_rate {:.2} GB/s", BYTES as f64 / 1e9 / seconds);
}

/// The most that this process ever had in memory, in bytes.
fn resident_peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}
