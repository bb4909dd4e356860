//! What a run through the whole engine costs over a bare start of the same program, in the same minute on the same
//! machine, in turns: without a wall and behind the native one.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first failure"
)]

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ringfence::engine::Setup;
use ringfence::launcher::{self, Launcher};
use ringfence::layers::{self, Sources};
use ringfence::{Engine, Request, StateFolder, Status};

const ROUNDS: usize = 200;
/// The argument that makes this program the launcher of its other self.
const LAUNCHER: &str = "launcher";

fn main() {
    if std::env::args().nth(1).as_deref() == Some(LAUNCHER) {
        launcher::serve().unwrap();
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let spawn = engine(home.path(), "spawn");
    let native = engine(home.path(), "native");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for (name, argv) in [("true", &["/bin/true"][..]), ("sh", &["/bin/sh", "-c", "exit 0"][..])] {
        let run = |engine: &Engine| {
            time(|| {
                let outcome =
                    runtime.block_on(async { engine.start(Request::argv(argv)).unwrap().outcome().await.unwrap() });
                assert_eq!((outcome.status, outcome.exit_code), (Status::Exited, Some(0)), "{:?}", outcome.error);
            })
        };
        let mut times: [Vec<Duration>; 3] = Default::default();
        for _ in 0..ROUNDS {
            times[0].push(time(|| {
                let output = Command::new(argv[0]).args(&argv[1..]).output().unwrap();
                assert!(output.status.success());
            }));
            times[1].push(run(&spawn));
            times[2].push(run(&native));
        }
        let [bare, spawn, native] = times.map(median);
        let over = |time: Duration| time.as_secs_f64() / bare.as_secs_f64();
        println!("bare_{name} {} us", bare.as_micros());
        println!("engine_spawn_{name} {} us", spawn.as_micros());
        println!("engine_native_{name} {} us", native.as_micros());
        let suffix = if name == "true" { String::new() } else { format!("_{name}") };
        println!("engine_spawn_over_bare{suffix} {:.2} ratio", over(spawn));
        println!("engine_native_over_bare{suffix} {:.2} ratio", over(native));
    }
}

fn engine(home: &Path, backend: &str) -> Engine {
    let sources = Sources { chosen_backend: Some(backend.to_owned()), ..Sources::default() };
    let workspace = home.join("workspace");
    std::fs::create_dir_all(&workspace).unwrap();
    Engine::new(Setup {
        policy: layers::load(&sources).unwrap().policy,
        workspace,
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        state: StateFolder::prepare(home.join("state")).unwrap(),
        grants: Vec::new(),
        own: Vec::new(),
        launcher: Launcher::process(&std::env::current_exe().unwrap(), &[LAUNCHER]).unwrap(),
        warm: 0,
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
