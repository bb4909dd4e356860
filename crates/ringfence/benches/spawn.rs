//! What a run through the whole engine costs over a bare start of the same program, in the same minute on the same
//! machine, in turns.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first failure"
)]

use std::process::Command;
use std::time::{Duration, Instant};

use ringfence::engine::Setup;
use ringfence::layers::{self, Sources};
use ringfence::{Engine, Request, StateFolder, Status};

const ROUNDS: usize = 300;

fn main() {
    let home = tempfile::tempdir().unwrap();
    let engine = engine(home.path(), "spawn");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (name, program) in [("true", "/bin/true"), ("sh", "/bin/sh")] {
        let argv: &[&str] = if name == "true" { &[program] } else { &[program, "-c", "exit 0"] };
        let mut bare = Vec::new();
        let mut ours = Vec::new();
        for _ in 0..ROUNDS {
            bare.push(time(|| {
                let output = Command::new(argv[0]).args(&argv[1..]).output().unwrap();
                assert!(output.status.success());
            }));
            ours.push(time(|| {
                let outcome =
                    runtime.block_on(async { engine.start(Request::argv(argv)).unwrap().outcome().await.unwrap() });
                assert_eq!((outcome.status, outcome.exit_code), (Status::Exited, Some(0)));
            }));
        }
        let (bare, ours) = (median(bare), median(ours));
        let ratio = ours.as_secs_f64() / bare.as_secs_f64();
        println!("bare_{name} {} us", bare.as_micros());
        println!("engine_spawn_{name} {} us", ours.as_micros());
        if name == "true" {
            println!("spawn_over_bare {ratio:.2} ratio");
        } else {
            println!("spawn_over_bare_{name} {ratio:.2} ratio");
        }
    }
}

fn engine(home: &std::path::Path, backend: &str) -> Engine {
    let sources = Sources { chosen_backend: Some(backend.to_owned()), ..Sources::default() };
    let policy = layers::load(&sources).unwrap().policy;
    Engine::new(Setup {
        policy,
        workspace: home.to_owned(),
        environment: std::env::vars_os().collect(),
        state: StateFolder::prepare(home.join("state")).unwrap(),
        grants: Vec::new(),
    })
    .unwrap()
}

fn time(act: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    act();
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
