//! A process with one thread that raises walls with ways out by itself. No harness: that would have a second thread.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test of its own stops at the first failure, and answers whoever lists tests"
)]

use std::path::Path;
use std::time::Duration;

use ringfence::engine::Setup;
use ringfence::launcher::Launcher;
use ringfence::{Engine, Event, Outcome, Request, Run, SessionRequest, StateFolder, Status};
use ringfence_policy::BackendKind;
use ringfence_testkit::backends::{self, Presence};
use ringfence_testkit::place::policy;

const NAME: &str = "a_process_with_one_thread_raises_one_wall_with_a_way_out_beside_another";
const POLICY: &str =
    "version: 1\nbackend: native\nfs: { workspace: { mode: read-only } }\nnet: { mode: allowlist, allow: [a.test] }\n";
const LONG: [&str; 2] = ["/bin/sleep", "600"];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let has = |word: &str| words.iter().any(|it| it == word);
    if has("--list") {
        if !has("--ignored") {
            println!("{NAME}: test");
        }
        return;
    }
    let filter = words.iter().find(|word| !word.starts_with('-'));
    if filter.is_some_and(|filter| !NAME.contains(filter.as_str())) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let engine = engine(home.path(), Launcher::here());
    let required = std::env::var(backends::REQUIRED).unwrap_or_default();
    match runtime.block_on(backends::presence(&engine, BackendKind::Native, &required)) {
        Presence::Here(_) => {}
        Presence::Skip(why) => return eprintln!("{why}"),
        Presence::Fail(why) => panic!("{why}"),
    }
    runtime.block_on(a_process_with_one_thread_raises_one_wall_with_a_way_out_beside_another(&engine));
    runtime.block_on(one_wall_with_a_thread(home.path()));
}

/// Runs at once, after one that was left to itself, and beside a session.
async fn a_process_with_one_thread_raises_one_wall_with_a_way_out_beside_another(engine: &Engine) {
    assert_eq!(threads(), ["one_thread"]);
    let first = started(engine).await;
    assert_eq!(threads(), ["one_thread"], "the proxy would keep us from raising another wall");
    succeeded(&once(engine).await);
    let second = started(engine).await;
    first.cancel();
    assert_eq!(first.outcome().await.unwrap().status, Status::Cancelled);
    succeeded(&once(engine).await);
    drop(second);
    succeeded(&once(engine).await);
    let session = engine.open_session(SessionRequest::default()).await.unwrap();
    succeeded(&once(engine).await);
    session.close().await;
    succeeded(&once(engine).await);
    // The probe: with a second thread there is no wall.
    let (stop, wait) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || wait.recv().is_err());
    let failed = once(engine).await;
    assert_eq!(failed.status, Status::CouldNotRun, "the probe proves nothing: {failed:?}");
    drop(stop);
    assert!(other.join().unwrap());
}

/// Whoever raises one wall has the proxy in a thread of its own, until its end.
async fn one_wall_with_a_thread(home: &Path) {
    let engine = engine(home, Launcher::here().for_one_wall());
    let run = started(&engine).await;
    // A new thread says its name itself.
    let has_proxy = || threads().iter().any(|name| name == "ringfence-egres");
    let begun = std::time::Instant::now();
    while !has_proxy() && begun.elapsed() < std::time::Duration::from_secs(10) {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    assert!(has_proxy(), "{:?}", threads());
    run.cancel();
    run.outcome().await.unwrap();
    assert_eq!(threads(), ["one_thread"]);
}

fn engine(home: &Path, launcher: Launcher) -> Engine {
    let workspace = home.join("workspace");
    std::fs::create_dir_all(&workspace).unwrap();
    Engine::new(Setup {
        policy: policy(POLICY).unwrap(),
        workspace: workspace.canonicalize().unwrap(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        state: StateFolder::prepare(home.join("state")).unwrap(),
        grants: Vec::new(),
        own: Vec::new(),
        launcher,
        warm: 0,
    })
    .unwrap()
}

/// A run that goes on.
async fn started(engine: &Engine) -> Run {
    let mut run = engine.start(Request::argv(LONG)).unwrap();
    loop {
        match tokio::time::timeout(Duration::from_secs(60), run.next_event()).await.unwrap() {
            Some(Event::Started { .. }) => return run,
            Some(_) => {}
            None => panic!("{:?}", run.outcome().await.unwrap()),
        }
    }
}

async fn once(engine: &Engine) -> Outcome {
    engine.start(Request::argv(["/bin/true"])).unwrap().outcome().await.unwrap()
}

fn succeeded(outcome: &Outcome) {
    assert_eq!((outcome.status, outcome.exit_code), (Status::Exited, Some(0)), "{:?}", outcome.error);
}

/// The names of this process's threads, as much of each as the kernel keeps.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).ok();
    let cut =
        |name: String| name.trim().split('-').next().filter(|it| *it == "one_thread").unwrap_or(name.trim()).to_owned();
    tasks.filter_map(|task| name(task.unwrap())).map(cut).collect()
}
