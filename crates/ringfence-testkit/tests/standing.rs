//! Native walls that stand before anybody has asked for them: the next run gets one only if it is just what it would be now.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ringfence::request::WorkspaceAt;
use ringfence::{Engine, Language, Outcome, Request, Status};
use ringfence_policy::BackendKind;
use ringfence_testkit::backends::{Presence, REQUIRED, presence};
use ringfence_testkit::guests::{children, guests, has, lives};
use ringfence_testkit::place::Place;

const POLICY: &str = "version: 1\nbackend: native\nfs: { deny: ['**/.secret'] }\n";
const SOON: Duration = Duration::from_secs(20);

/// The binary that raises walls for these tests; the variable is set where they were moved after they were built.
fn launcher() -> PathBuf {
    let built = env!("CARGO_BIN_EXE_ringfence-testkit-launcher");
    std::env::var_os("NEXTEST_BIN_EXE_ringfence-testkit-launcher").map_or_else(|| built.into(), PathBuf::from)
}

/// The one that stands, with its filter, and has no program; it is waited for. That of a run which is over goes away.
async fn standing() -> u32 {
    let begin = Instant::now();
    let mut before = None;
    loop {
        let waits = |pid: &u32| has(*pid, "Seccomp:\t2") && children(*pid).is_empty();
        match guests().into_iter().filter(waits).collect::<Vec<_>>()[..] {
            [one] if before == Some(one) => return one,
            [one] => before = Some(one),
            _ => before = None,
        }
        assert!(begin.elapsed() < SOON, "no wall stands: {:?}", guests());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// An engine behind which one run has been, where there are native walls.
async fn engine(place: &Place) -> Option<Engine> {
    let path = ("PATH".into(), "/usr/local/bin:/usr/bin:/bin".into());
    let engine = place.engine(POLICY, vec![path]).unwrap();
    match presence(&engine, BackendKind::Native, &std::env::var(REQUIRED).unwrap_or_default()).await {
        Presence::Here(_) => {}
        Presence::Skip(line) => {
            eprintln!("{line}");
            return None;
        }
        Presence::Fail(line) => panic!("{line}"),
    }
    sh(&engine, "true").await;
    Some(engine)
}

async fn sh(engine: &Engine, line: &str) -> Outcome {
    succeeded(engine, Request::argv(["sh", "-c", line])).await
}

async fn succeeded(engine: &Engine, request: Request) -> Outcome {
    let outcome = engine.start(request).unwrap().outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.exit_code), (Status::Exited, Some(0)), "{outcome:?}");
    outcome
}

/// Lets `line` succeed, and says whether `guest`, which stood before, was its process 1.
async fn is_behind(engine: &Engine, guest: u32, line: &str) -> bool {
    let line = format!("{line} && sleep 0.3");
    let run = engine.start(Request::argv(["sh", "-c", &line])).unwrap();
    let begin = Instant::now();
    // It has a program, or is gone.
    while children(guest).is_empty() && lives(guest) && begin.elapsed() < SOON {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let used = !children(guest).is_empty();
    let outcome = run.outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.exit_code), (Status::Exited, Some(0)), "{outcome:?}");
    used
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_gets_the_wall_that_stands_and_leaves_nothing_to_the_next() {
    let place = Place::new(launcher()).unwrap();
    place.write("there.txt", "as it was\n").unwrap();
    let Some(engine) = engine(&place).await else { return };
    let marks = "for file in /tmp/mark ~/mark mark; do test ! -e $file || exit 9; echo x > $file || exit 8; done";
    let mut found = Vec::new();
    for _ in 0..3 {
        let guest = standing().await;
        assert!(is_behind(&engine, guest, marks).await, "another wall was raised");
        assert_ne!(standing().await, guest, "it is there for one run");
        let outcome = sh(&engine, marks).await;
        let named = |evidence: &ringfence::Evidence| (evidence.guarantee, evidence.strength);
        found.push(outcome.enforced.iter().map(named).collect::<Vec<_>>());
    }
    // With a place of its own, which none stands for.
    let mut request = Request::argv(["sh", "-c", marks]);
    request.workspace_at = WorkspaceAt::Path("/elsewhere".into());
    let fresh = succeeded(&engine, request).await;
    let named = |evidence: &ringfence::Evidence| (evidence.guarantee, evidence.strength);
    found.push(fresh.enforced.iter().map(named).collect());
    assert!(found.windows(2).all(|two| two[0] == two[1]), "a wall that stood proves something else: {found:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_host_changed_meanwhile_is_seen_and_what_is_denied_is_not() {
    let place = Place::new(launcher()).unwrap();
    let file = place.write("there.txt", "before\n").unwrap();
    let Some(engine) = engine(&place).await else { return };

    let guest = standing().await;
    fs::write(&file, "after\n").unwrap();
    place.write("folder/new.txt", "new\n").unwrap();
    assert!(is_behind(&engine, guest, "grep -q after there.txt && grep -q new folder/new.txt").await);

    for secret in [".secret", "folder/.secret"] {
        let guest = standing().await;
        let secret = place.write(secret, "hidden\n").unwrap();
        let absent = "test ! -e .secret && test ! -e folder/.secret && grep -q new folder/new.txt";
        assert!(!is_behind(&engine, guest, absent).await, "a wall in which {} is seen", secret.display());
    }
    // And the twin: now that they are known to be there, one stands without them.
    let guest = standing().await;
    assert!(is_behind(&engine, guest, "test ! -e .secret && test ! -e folder/.secret").await);

    // A layer has taken the folder's looks with it when the secret was taken away.
    let guest = standing().await;
    fs::set_permissions(place.workspace().join("folder"), fs::Permissions::from_mode(0o700)).unwrap();
    assert!(!is_behind(&engine, guest, "test $(stat -c %a folder) = 700").await, "a folder as it was");
    assert!(is_behind(&engine, standing().await, "test $(stat -c %a folder) = 700").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_workspace_that_became_another_is_not_the_one_that_stands() {
    let place = Place::new(launcher()).unwrap();
    place.write("there.txt", "before\n").unwrap();
    let Some(engine) = engine(&place).await else { return };

    let guest = standing().await;
    fs::rename(place.workspace(), place.path().join("away")).unwrap();
    place.write("there.txt", "another\n").unwrap();
    assert!(!is_behind(&engine, guest, "grep -q another there.txt").await);

    let guest = standing().await;
    fs::set_permissions(place.workspace(), fs::Permissions::from_mode(0o711)).unwrap();
    assert!(!is_behind(&engine, guest, "test $(stat -c %a .) = 711").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_killed_meanwhile_is_made_up_for() {
    let place = Place::new(launcher()).unwrap();
    let Some(engine) = engine(&place).await else { return };
    for _ in 0..3 {
        let guest = standing().await;
        let number = rustix::process::Pid::from_raw(i32::try_from(guest).unwrap()).unwrap();
        rustix::process::kill_process(number, rustix::process::Signal::KILL).unwrap();
        while lives(guest) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        sh(&engine, "true").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn code_is_put_into_a_wall_that_stands_and_cannot_be_changed_there() {
    let place = Place::new(launcher()).unwrap();
    let Some(engine) = engine(&place).await else { return };
    for number in 0..3 {
        standing().await;
        let source = format!(
            "set -e; test \"$(ls /run/code)\" = main.sh; echo code {number}; \
             ! sh -c 'echo x >> /run/code/main.sh' 2> /dev/null; ! touch /run/code/new 2> /dev/null; ! rm -f /run/code/main.sh 2> /dev/null"
        );
        let outcome = succeeded(&engine, Request::code(Language::Bash, source)).await;
        assert_eq!(outcome.stdout, format!("code {number}\n"), "{outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_none_loses_its_wall_to_another() {
    let place = Place::new(launcher()).unwrap();
    let Some(engine) = engine(&place).await else { return };
    let engine = std::sync::Arc::new(engine);
    let runs = |_| {
        let engine = std::sync::Arc::clone(&engine);
        tokio::spawn(async move {
            for _ in 0..6 {
                sh(&engine, "true").await;
                succeeded(&engine, Request::code(Language::Bash, "true")).await;
                succeeded(&engine, Request::code(Language::Python, "pass")).await;
            }
        })
    };
    let tasks: Vec<_> = (0..16).map(runs).collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// What is raised while no processor is free is the same wall: each has a network of its own, with nothing in it but a loopback that
/// answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_at_once_each_has_a_network_of_its_own() {
    // Of which most are raised while more are under way than there are processors.
    let runs = std::thread::available_parallelism().unwrap().get() * 3 + 10;
    let place = Place::new(launcher()).unwrap();
    let Some(engine) = engine(&place).await else { return };
    let engine = std::sync::Arc::new(engine);
    // Nobody listens, which only an interface that is up can say. All stay until each of them was raised.
    let line = "readlink /proc/self/ns/net; sed '1,2d; s/:.*//; s/ //g' /proc/net/dev; \
                bash -c ': < /dev/tcp/127.0.0.1/9' 2>&1 | grep -q 'Connection refused' && echo refused; sleep 0.5";
    let run = |_| {
        let engine = std::sync::Arc::clone(&engine);
        tokio::spawn(async move { sh(&engine, line).await })
    };
    let tasks: Vec<_> = (0..runs).map(run).collect();
    let mut networks = vec![fs::read_link("/proc/self/ns/net").unwrap().to_string_lossy().into_owned()];
    for task in tasks {
        let outcome = task.await.unwrap();
        let (network, rest) = outcome.stdout.split_once('\n').unwrap();
        assert_eq!(rest, "lo\nrefused\n", "{outcome:?}");
        networks.push(network.to_owned());
    }
    networks.sort_unstable();
    networks.dedup();
    assert_eq!(networks.len(), runs + 1, "{networks:?}");
    // When all is quiet again, the next wall is raised ahead as ever.
    assert!(is_behind(&engine, standing().await, "true").await);
}
