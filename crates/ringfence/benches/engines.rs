//! What a run in a container costs beside its engine's own commands, in turns in the same run: `run` with about the same walls,
//! `exec` into a container that runs already, our run that makes its container, our run in one that waited, and our run in a
//! session; then many in a session, each beside a bare start. For each engine that the environment names, as for tests.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a benchmark prints its figures and stops at the first failure"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringfence::engine::Setup;
use ringfence::launcher::{self, Launcher};
use ringfence::layers::{self, Project, Sources};
use ringfence::{Engine, Outcome, Request, Session, SessionRequest, StateFolder, Status};

const ROUNDS: usize = 20;
/// The argument that leaves out what is slow: the engine's `run`, and a container that is made for a run. A number is how many rounds.
const WARM_ALONE: &str = "warm";
/// Runs of a session that follow one another.
const IN_A_ROW: usize = 100;
/// An engine has more to do after it said that it is done.
const PAUSE: Duration = Duration::from_millis(200);
/// The argument that makes this program the launcher of its other self.
const LAUNCHER: &str = "launcher";
/// What hardens a container, as far as the engine's command has words for it.
const HARDENED: [&str; 11] = [
    "--rm",
    "--network=none",
    "--read-only",
    "--cap-drop=ALL",
    "--security-opt=no-new-privileges",
    "--user=1000:1000",
    "--memory=512m",
    "--pids-limit=128",
    "--cpus=1",
    "--tmpfs=/tmp",
    "--tmpfs=/workspace",
];
const ENGINES: [(&str, &str, &str); 2] = [
    ("docker", "RINGFENCE_TEST_DOCKER_HOST", "DOCKER_HOST"),
    ("podman", "RINGFENCE_TEST_PODMAN_HOST", "CONTAINER_HOST"),
];

fn main() {
    if ringfence::far_guest::is_meant(std::env::args_os()) {
        eprintln!("{}", ringfence::far_guest::live_far());
        return;
    }
    if std::env::args().nth(1).as_deref() == Some(LAUNCHER) {
        launcher::serve().unwrap();
        return;
    }
    let Ok(image) = std::env::var("RINGFENCE_TEST_IMAGE") else {
        return eprintln!("SKIPPED the engines: RINGFENCE_TEST_IMAGE names no image that they have");
    };
    for (name, variable, leads) in ENGINES {
        match std::env::var(variable) {
            Ok(host) => measure(name, leads, &host, &image),
            Err(_) => eprintln!("SKIPPED {name}: {variable} is not set"),
        }
    }
}

/// The engine's own command.
struct Cli<'a> {
    name: &'a str,
    host: &'a str,
}

impl Cli<'_> {
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.name);
        if self.name == "podman" {
            command.args(["--remote", "--url", self.host]);
        }
        command.env("DOCKER_HOST", self.host).args(words).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) {
        let output = self.command(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

fn measure(name: &str, leads: &str, host: &str, image: &str) {
    let home = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let cli = Cli { name, host };
    let hardened = [&["run"][..], &HARDENED].concat();
    let standing = format!("ringfence-bench-{}", std::process::id());
    cli.run(&[&hardened[..], &["--detach", "--name", &standing, image, "sleep", "3600"]].concat());

    let environment = vec![(leads.into(), host.into())];
    let engine = |warm| engine(&home.path().join(format!("{warm}")), name, image, &environment, warm);
    let (cold, warm) = (engine(0), engine(2));
    assert_eq!(runtime.block_on(warm.warm()).unwrap(), 2);
    println!("{name}_guest_that_waits {} kB, proportional", proportional_kilobytes());
    let session = runtime.block_on(cold.open_session(SessionRequest::default())).unwrap();

    let words: Vec<String> = std::env::args().collect();
    let warm_alone = words.iter().any(|word| word == WARM_ALONE);
    let rounds = words.iter().find_map(|word| word.parse().ok()).unwrap_or(ROUNDS);
    let mut times: [Vec<Duration>; 5] = Default::default();
    for _ in 0..rounds {
        if !warm_alone {
            times[0].push(time(|| cli.run(&[&hardened[..], &[image, "true"]].concat())));
            times[2].push(time(|| check(runtime.block_on(run(&cold)))));
        }
        times[1].push(time(|| cli.run(&["exec", &standing, "true"])));
        // What was used last is gone, and what was taken is made up for: so it is where runs do not come faster than
        // containers can be made and removed.
        runtime.block_on(cold.drain());
        assert_eq!(runtime.block_on(warm.warm()).unwrap(), 2);
        std::thread::sleep(PAUSE);
        times[3].push(time(|| check(runtime.block_on(run(&warm)))));
        runtime.block_on(warm.warm()).unwrap();
        std::thread::sleep(PAUSE);
        times[4].push(time(|| check(runtime.block_on(run_in(&session, &cold)))));
    }
    let mut in_a_row: [Vec<Duration>; 2] = Default::default();
    for _ in 0..IN_A_ROW {
        in_a_row[0].push(time(|| assert!(Command::new("true").status().unwrap().success())));
        in_a_row[1].push(time(|| check(runtime.block_on(run_in(&session, &cold)))));
    }
    runtime.block_on(async {
        session.close().await;
        warm.drain().await;
    });
    cli.run(&["rm", "--force", &standing]);
    let [bare, ours] = in_a_row.each_ref().map(|times| median(times));
    println!("{name}_bare {} us", bare.as_micros());
    println!("{name}_ours_in_a_row {} us", ours.as_micros());
    println!("{name}_ours_in_a_row_over_bare {} us more", ours.saturating_sub(bare).as_micros());
    let [by_run, by_exec, ..] = times.each_ref().map(|times| median(times));
    let over = |name: String, median: Duration, of: Duration| {
        if !of.is_zero() {
            println!("{name} {:.3} ratio", median.as_secs_f64() / of.as_secs_f64());
        }
    };
    for (way, times) in ["run", "exec", "ours_cold", "ours_warm", "ours_session"].iter().zip(&times) {
        if times.is_empty() {
            continue;
        }
        let median = median(times);
        println!("{name}_{way} {} us", median.as_micros());
        over(format!("{name}_{way}_over_exec"), median, by_exec);
        over(format!("{name}_{way}_over_run"), median, by_run);
    }
}

/// What a guest of ours that waits has of the machine's memory: the most of all.
fn proportional_kilobytes() -> u64 {
    let ours = std::fs::metadata(std::env::current_exe().unwrap()).unwrap().len();
    let of = |process: std::fs::DirEntry| -> Option<u64> {
        let path = process.path();
        // It has forgotten its arguments.
        let is_guest = std::fs::read_to_string(path.join("comm")).ok()?.trim() == "ringfence-guest";
        let is_ours = std::fs::metadata(path.join("exe")).ok()?.len() == ours;
        let text = std::fs::read_to_string(path.join("smaps_rollup")).ok().filter(|_| is_guest && is_ours)?;
        text.lines().find_map(|line| line.strip_prefix("Pss:"))?.trim().strip_suffix(" kB")?.parse().ok()
    };
    std::fs::read_dir("/proc").unwrap().flatten().filter_map(of).max().unwrap_or(0)
}

async fn run(engine: &Engine) -> Outcome {
    engine.start(Request::argv(["true"])).unwrap().outcome().await.unwrap()
}

async fn run_in(session: &Session, engine: &Engine) -> Outcome {
    session.start(engine, Request::argv(["true"])).unwrap().outcome().await.unwrap()
}

fn check(outcome: Outcome) {
    assert_eq!((outcome.status, outcome.exit_code), (Status::Exited, Some(0)), "{:?}", outcome.error);
}

fn engine(
    home: &Path,
    backend: &str,
    image: &str,
    environment: &[(std::ffi::OsString, std::ffi::OsString)],
    warm: usize,
) -> Engine {
    let workspace = home.join("workspace");
    std::fs::create_dir_all(&workspace).unwrap();
    let policy = home.join("sandbox.policy.yaml");
    std::fs::write(&policy, format!("version: 1\nbackend: {backend}\nimage: {image}\n")).unwrap();
    Engine::new(Setup {
        policy: layers::load(&Sources { project: Project::File(policy), ..Sources::default() }).unwrap().policy,
        workspace,
        environment: environment.to_vec(),
        state: StateFolder::prepare(home.join("state")).unwrap(),
        grants: Vec::new(),
        own: Vec::new(),
        launcher: Launcher::process(&std::env::current_exe().unwrap(), &[LAUNCHER]).unwrap(),
        warm,
    })
    .unwrap()
}

fn time(act: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    act();
    begin.elapsed()
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
