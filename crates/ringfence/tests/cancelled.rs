//! A run that nobody wants any more is not judged any further, nobody is asked about it any longer, and it never starts.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says so by a panic")]

use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringfence::engine::Setup;
use ringfence::launcher::Launcher;
use ringfence::{Approval, Approver, Ask, BoxFuture, Engine, Outcome, Request, Run, StateFolder, Status};
use ringfence_testkit::place::policy;
use tokio::sync::Notify;

const POLICY: &str = "version: 1\nbackend: none\ncommands: [{ ask: [touch] }]\n";
/// Far less than anybody would wait for an answer.
const SOON: Duration = Duration::from_secs(20);

/// Somebody who is asked and says nothing.
#[derive(Debug, Default)]
struct Silent {
    asked: Notify,
    asks: AtomicUsize,
    let_go: Arc<AtomicUsize>,
}

/// Counts when the question is put away.
struct Question(Arc<AtomicUsize>);

impl Drop for Question {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Approver for Silent {
    fn decide<'a>(&'a self, _: &'a Ask) -> BoxFuture<'a, Approval> {
        Box::pin(async {
            let _question = Question(Arc::clone(&self.let_go));
            self.asks.fetch_add(1, Ordering::SeqCst);
            self.asked.notify_one();
            pending().await
        })
    }
}

/// Somebody who says yes to everything.
#[derive(Debug)]
struct Agrees;

impl Approver for Agrees {
    fn decide<'a>(&'a self, _: &'a Ask) -> BoxFuture<'a, Approval> {
        Box::pin(async { Approval::Granted { by: "a test".to_owned() } })
    }
}

fn engine(home: &Path, approver: Arc<dyn Approver>) -> Engine {
    let workspace = home.join("workspace");
    std::fs::create_dir_all(&workspace).unwrap();
    let setup = Setup {
        policy: policy(POLICY).unwrap(),
        workspace: workspace.canonicalize().unwrap(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        state: StateFolder::prepare(home.join("state")).unwrap(),
        grants: Vec::new(),
        own: Vec::new(),
        launcher: Launcher::here(),
        warm: 0,
    };
    Engine::with_approver(setup, approver).unwrap()
}

fn touch(engine: &Engine, home: &Path) -> Run {
    engine.start(Request::argv(["/usr/bin/touch".into(), home.join("made").into_os_string()])).unwrap()
}

async fn outcome(run: Run) -> Outcome {
    tokio::time::timeout(SOON, run.outcome()).await.expect("it goes on").unwrap()
}

/// The kinds of records that the ledger has, in their order.
fn kinds(home: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(home.join("state/ledger.jsonl")).unwrap();
    let kind =
        |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()["kind"].as_str().unwrap().to_owned();
    text.lines().map(kind).collect()
}

#[tokio::test]
async fn a_run_that_is_cancelled_while_somebody_is_asked_ends_at_once_and_never_starts() {
    let home = tempfile::tempdir().unwrap();
    let silent = Arc::new(Silent::default());
    let engine = engine(home.path(), Arc::clone(&silent) as _);
    let run = touch(&engine, home.path());
    tokio::time::timeout(SOON, silent.asked.notified()).await.expect("nobody was asked");
    run.cancel();
    let ended = outcome(run).await;
    assert_eq!((ended.status, &ended.refusal), (Status::Cancelled, &None));
    assert_eq!(silent.let_go.load(Ordering::SeqCst), 1, "the question stays");
    assert!(!home.path().join("made").exists());
    assert_eq!(kinds(home.path()), ["requested", "ended"]);
}

#[tokio::test]
async fn a_run_that_is_cancelled_at_once_is_not_even_asked_about_and_one_that_is_dropped_is_let_go() {
    let home = tempfile::tempdir().unwrap();
    let silent = Arc::new(Silent::default());
    let engine = engine(home.path(), Arc::clone(&silent) as _);
    let run = touch(&engine, home.path());
    run.cancel();
    assert_eq!(outcome(run).await.status, Status::Cancelled);
    assert_eq!(silent.asks.load(Ordering::SeqCst), 0);
    let run = touch(&engine, home.path());
    tokio::time::timeout(SOON, silent.asked.notified()).await.expect("nobody was asked");
    drop(run);
    let let_go = async {
        while silent.let_go.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, let_go).await.expect("the question stays");
    assert!(!home.path().join("made").exists());
}

#[tokio::test]
async fn the_same_run_with_a_yes_starts() {
    let home = tempfile::tempdir().unwrap();
    let engine = engine(home.path(), Arc::new(Agrees));
    let ended = outcome(touch(&engine, home.path())).await;
    assert_eq!((ended.status, ended.exit_code), (Status::Exited, Some(0)), "{:?}", ended.refusal);
    assert!(home.path().join("made").exists());
    assert_eq!(kinds(home.path()), ["requested", "judged", "planned", "started", "ended"]);
}
