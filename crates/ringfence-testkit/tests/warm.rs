//! Containers that wait for runs, in every engine that the environment names.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says so by a panic")]

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use ringfence::outcome::ContainerFrom;
use ringfence::{Engine, Outcome, Request, Status};
use ringfence_policy::NetMode;
use ringfence_testkit::backends::{Presence, REQUIRED, Wall, presence};
use ringfence_testkit::canary::Listener;
use ringfence_testkit::place::Place;

const SOON: Duration = Duration::from_secs(20);
const WARM: usize = 2;

/// The binary that raises walls for these tests; the variable is set where they were moved after they were built.
fn launcher() -> PathBuf {
    let built = env!("CARGO_BIN_EXE_ringfence-testkit-launcher");
    std::env::var_os("NEXTEST_BIN_EXE_ringfence-testkit-launcher").map_or_else(|| built.into(), PathBuf::from)
}

/// Asks the engine behind `wall` by its own API, past our library.
fn ask(wall: &Wall, method: &str, path: &str) -> String {
    let host = &wall.engine.as_ref().unwrap().0;
    let mut stream = UnixStream::connect(host.strip_prefix("unix://").unwrap()).unwrap();
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: engine\r\nContent-Length: 0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// The containers of this process.
fn containers(wall: &Wall) -> BTreeSet<String> {
    containers_of(wall, std::process::id())
}

/// Those of another one.
fn containers_of(wall: &Wall, process: u32) -> BTreeSet<String> {
    let answer = ask(wall, "GET", "/v1.40/containers/json?all=true");
    let body = answer.split_once("\r\n\r\n").unwrap().1;
    let list = &body[body.find('[').unwrap()..=body.rfind(']').unwrap()];
    let list: serde_json::Value = serde_json::from_str(list).unwrap();
    let ours = format!("-{process}-");
    let is_ours = |one: &&serde_json::Value| {
        one["Labels"]["dev.ringfence.supervisor"].as_str().is_some_and(|supervisor| supervisor.contains(&ours))
    };
    list.as_array().unwrap().iter().filter(is_ours).map(|one| one["Id"].as_str().unwrap().to_owned()).collect()
}

async fn until(mut holds: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < SOON {
        if holds() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    false
}

async fn sh(engine: &Engine, line: &str) -> Outcome {
    ask_for(engine, line, Request::argv(["sh", "-c", line])).await
}

async fn ask_for(engine: &Engine, line: &str, request: Request) -> Outcome {
    let outcome = engine.start(request).unwrap().outcome().await.unwrap();
    assert_eq!((outcome.status, outcome.exit_code), (Status::Exited, Some(0)), "{line}: {outcome:?}");
    outcome
}

/// Writes where it can, after making sure that nobody did before.
const MARKS: &str = "for file in /tmp/mark ~/mark mark; do test ! -e $file || exit 9; echo x > $file || exit 8; done";

async fn check(wall: &Wall) {
    let place = Place::new(launcher()).unwrap();
    place.write("there.txt", "as it was\n").unwrap();
    let policy = format!("version: 1\n{}", wall.policy());
    let cold = place.engine(&policy, wall.environment()).unwrap();
    match presence(&cold, wall.kind, &std::env::var(REQUIRED).unwrap_or_default()).await {
        Presence::Here(_) => {}
        Presence::Skip(line) => return eprintln!("{line}"),
        Presence::Fail(line) => panic!("{line}"),
    }
    assert_eq!(cold.warm().await.unwrap(), 0, "an engine keeps none unless it is told to");
    let from_cold = sh(&cold, MARKS).await;
    assert_eq!(from_cold.container, None, "where none waits there is nothing to tell");
    assert!(until(|| containers(wall).is_empty()).await, "{wall}: a run left its container");

    let engine = place.warm_engine(&policy, wall.environment(), WARM).unwrap();
    assert!(containers(wall).is_empty(), "none is made before it is asked for");
    assert_eq!(engine.warm().await.unwrap(), WARM);
    let first = containers(wall);
    assert_eq!(first.len(), WARM);
    for _ in 0..WARM {
        let from_warm = sh(&engine, MARKS).await;
        let evidence = |outcome: &Outcome| serde_json::to_value(&outcome.enforced).unwrap();
        assert_eq!(evidence(&from_warm), evidence(&from_cold), "{wall}: a warm start proves something else");
        assert_eq!(from_warm.changes, from_cold.changes, "{wall}");
        assert_eq!(from_warm.container, Some(ContainerFrom::Waited), "{wall}");
    }
    let is_refilled = || {
        let now = containers(wall);
        now.len() == WARM && now.is_disjoint(&first)
    };
    assert!(until(is_refilled).await, "{wall}: one was used again, or not replaced: {first:?}, {:?}", containers(wall));
    // What the engine names may not have been started yet.
    assert_eq!(engine.warm().await.unwrap(), WARM);
    let before = containers(wall);
    // What came into the workspace since they were made is there all the same.
    place.write("later.txt", "later\n").unwrap();
    let outcome = sh(&engine, "cat there.txt later.txt; echo changed > later.txt").await;
    assert_eq!(outcome.stdout, "as it was\nlater\n", "{wall}");
    assert_eq!(outcome.changes.map(|counts| counts.changed), Some(1), "{wall}");
    assert_eq!(outcome.container, Some(ContainerFrom::Waited), "{wall}");

    // An engine may still be removing the one that was used, which does not wait any more.
    let is_made_up_for = || {
        let now = containers(wall);
        now.len() == WARM && now.intersection(&before).count() == WARM - 1
    };
    assert!(until(is_made_up_for).await, "{wall}: one was used: {before:?}, {:?}", containers(wall));
    assert_eq!(engine.warm().await.unwrap(), WARM);
    let waiting = containers(wall);
    // Other limits than those that it was made with: none of them is used for it.
    let mut narrower = Request::argv(["true"]);
    // Without cgroups nothing of a container depends on the others.
    narrower.overrides.fs.size = Some("64MiB".parse().unwrap());
    let outcome = ask_for(&engine, "narrower", narrower).await;
    assert_eq!(outcome.container, Some(ContainerFrom::Made), "{wall}");
    assert!(
        until(|| containers(wall) == waiting).await,
        "{wall}: they go on waiting: {waiting:?}, {:?}",
        containers(wall)
    );

    for id in &waiting {
        ask(wall, "POST", &format!("/v1.40/containers/{id}/kill"));
    }
    let outcome = sh(&engine, MARKS).await;
    assert_eq!(outcome.container, Some(ContainerFrom::MadeInstead), "{wall}: that they were dead is told");
    let is_replaced = || {
        let now = containers(wall);
        now.len() == WARM && now.is_disjoint(&waiting)
    };
    assert!(until(is_replaced).await, "{wall}: dead ones were not replaced");

    engine.drain().await;
    assert_eq!(containers(wall), BTreeSet::new(), "{wall}: drained");
    assert_eq!(sh(&engine, MARKS).await.container, Some(ContainerFrom::Made), "{wall}");
    engine.drain().await;
    assert_eq!(containers(wall), BTreeSet::new(), "{wall}: what a run used is waited for, too");
    assert_eq!(engine.warm().await.unwrap(), WARM, "the twin: it can be filled again");
    drop(engine);
    assert!(until(|| containers(wall).is_empty()).await, "{wall}: an engine that is gone left a container");
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_that_wait_are_used_once_prove_the_same_and_are_gone_when_drained() {
    let (walls, missing) = Wall::engines();
    for line in missing {
        eprintln!("{line}");
    }
    for wall in walls {
        eprintln!("on {wall}");
        check(&wall).await;
    }
}

/// A name that these tests move from one image to another.
const MOVES: &str = "localhost/ringfence-test-moves";

/// What an engine answered, as JSON.
fn answered(wall: &Wall, method: &str, path: &str, body: &str) -> serde_json::Value {
    let host = &wall.engine.as_ref().unwrap().0;
    let mut stream = UnixStream::connect(host.strip_prefix("unix://").unwrap()).unwrap();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\nHost: engine\r\nContent-Type: application/json\r\n");
    write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let json = answer.split_once("\r\n\r\n").and_then(|(_, body)| body.get(body.find('{')?..=body.rfind('}')?));
    json.map_or(serde_json::Value::Null, |json| serde_json::from_str(json).unwrap())
}

/// An image with a name of these tests, and the container that it is made from. Both are removed.
struct Named<'a> {
    wall: &'a Wall,
    container: String,
    images: Vec<String>,
}

impl<'a> Named<'a> {
    fn new(wall: &'a Wall) -> Self {
        let base = &wall.engine.as_ref().unwrap().1;
        let body = format!(r#"{{"Image":"{base}","Cmd":["true"]}}"#);
        let made = answered(wall, "POST", "/v1.40/containers/create", &body);
        let container = made["Id"].as_str().unwrap_or_else(|| panic!("{wall}: {made}")).to_owned();
        Self { wall, container, images: Vec::new() }
    }

    /// Has `name` mean an image that was not there before.
    fn commit(&mut self, name: &str, comment: &str) -> String {
        let (wall, container) = (self.wall, &self.container);
        let path = format!("/v1.40/commit?container={container}&repo={name}&tag=1&comment={comment}");
        let made = answered(wall, "POST", &path, "{}");
        let id = made["Id"].as_str().unwrap_or_else(|| panic!("{wall}: {made}")).trim_start_matches("sha256:");
        self.images.push(id.to_owned());
        id.to_owned()
    }
}

impl Drop for Named<'_> {
    fn drop(&mut self) {
        ask(self.wall, "DELETE", &format!("/v1.40/containers/{}?force=true", self.container));
        for image in self.images.iter().rev() {
            ask(self.wall, "DELETE", &format!("/v1.40/images/{image}?force=true"));
        }
    }
}

/// A policy with an image of this name.
fn policy_with(wall: &Wall, image: &str) -> String {
    let runtime = wall.runtime.map(|runtime| format!(", runtime: {runtime}")).unwrap_or_default();
    format!("version: 1\nbackend: {{ use: {}{runtime} }}\nimage: {image}\n", wall.kind)
}

/// Has a name mean another image while containers of the old one wait.
async fn check_moved(wall: &Wall) {
    let place = Place::new(launcher()).unwrap();
    let mut named = Named::new(wall);
    let first = named.commit(MOVES, "first");
    let policy = policy_with(wall, &format!("{MOVES}:1"));
    let engine = place.warm_engine(&policy, wall.environment(), 1).unwrap();
    let run = || async {
        let outcome = sh(&engine, "true").await;
        (outcome.image.unwrap_or_default(), outcome.container)
    };
    assert_eq!(engine.warm().await.unwrap(), 1);
    let (image, from) = run().await;
    assert!(image.contains(&first), "{wall}: {image}");
    assert_eq!(from, Some(ContainerFrom::Waited), "{wall}");
    assert_eq!(engine.warm().await.unwrap(), 1);
    let second = named.commit(MOVES, "second");
    assert_ne!(first, second);
    let (image, from) = run().await;
    assert!(image.contains(&second), "{wall}: a run had the image of before: {image}");
    assert_eq!(from, Some(ContainerFrom::Made), "{wall}");
    engine.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_means_another_image_by_now_has_that_one_although_others_wait() {
    let (walls, missing) = Wall::engines();
    for line in missing {
        eprintln!("{line}");
    }
    for wall in walls {
        eprintln!("on {wall}");
        check_moved(&wall).await;
    }
}

/// A name that these tests take away, and another one of the same image.
const WITHDRAWN: &str = "localhost/ringfence-test-withdrawn";
const STAYS: &str = "localhost/ringfence-test-stays";

/// Takes a name away while containers of its image wait.
async fn check_withdrawn(wall: &Wall, pull: &str) {
    let place = Place::new(launcher()).unwrap();
    let mut named = Named::new(wall);
    let id = named.commit(WITHDRAWN, "withdrawn");
    let policy = policy_with(wall, &format!("{{ name: '{WITHDRAWN}:1', pull: {pull} }}"));
    let engine = place.warm_engine(&policy, wall.environment(), WARM).unwrap();
    assert_eq!(engine.warm().await.unwrap(), WARM);
    assert_eq!(sh(&engine, "true").await.container, Some(ContainerFrom::Waited), "{wall}");
    assert_eq!(engine.warm().await.unwrap(), WARM);
    // With a second name, the image itself stays.
    ask(wall, "POST", &format!("/v1.40/images/{id}/tag?repo={STAYS}&tag=1"));
    ask(wall, "DELETE", &format!("/v1.40/images/{WITHDRAWN}:1"));
    let looked = ask(wall, "GET", &format!("/v1.40/images/{WITHDRAWN}:1/json"));
    assert!(looked.starts_with("HTTP/1.0 404") || looked.starts_with("HTTP/1.1 404"), "{wall}: {looked}");
    let waiting = containers(wall);
    for _ in 0..2 {
        let outcome = engine.start(Request::argv(["true"])).unwrap().outcome().await.unwrap();
        assert_eq!(outcome.status, Status::CouldNotRun, "{wall}, {pull}: it ran in what was withdrawn: {outcome:?}");
        let why = format!("{:?}", outcome.error);
        let told = if pull == "allow" { "could not fetch the image" } else { "does not have the image" };
        assert!(why.contains(told), "{wall}, {pull}: {why}");
    }
    let used = waiting.difference(&containers(wall)).count();
    assert!(used <= 1, "{wall}, {pull}: after the first run it is known that none is of use, and {used} were taken");
    ask(wall, "POST", &format!("/v1.40/images/{id}/tag?repo={WITHDRAWN}&tag=1"));
    assert_eq!(engine.warm().await.unwrap(), WARM);
    let again = sh(&engine, "true").await;
    assert_eq!(again.container, Some(ContainerFrom::Waited), "{wall}, {pull}: the twin: it is there again");
    engine.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_withdrawn_runs_nothing_although_containers_of_its_image_wait() {
    let (walls, missing) = Wall::engines();
    for line in missing {
        eprintln!("{line}");
    }
    for wall in walls {
        for pull in ["allow", "never"] {
            eprintln!("on {wall}, pull: {pull}");
            check_withdrawn(&wall, pull).await;
        }
    }
}

/// Asks the proxy for a port of the host, and prints the beginning of the answer; without a door it ends with 7.
const ASKS: &str = "exec 3<>/dev/tcp/127.0.0.1/3128 || exit 7
printf 'CONNECT localhost:%s HTTP/1.1\\r\\nHost: localhost:%s\\r\\n\\r\\n' $0 $0 >&3; head -c 12 <&3";

async fn check_door(wall: &Wall) {
    let place = Place::new(launcher()).unwrap();
    let (listed, other) = (Listener::start().unwrap(), Listener::start().unwrap());
    let net = format!("net: {{ mode: allowlist, localhost: [{}] }}", listed.port());
    let engine = place.warm_engine(&format!("version: 1\n{}{net}\n", wall.policy()), wall.environment(), 1).unwrap();
    match presence(&engine, wall.kind, &std::env::var(REQUIRED).unwrap_or_default()).await {
        Presence::Here(_) => {}
        Presence::Skip(line) => return eprintln!("{line}"),
        Presence::Fail(line) => panic!("{line}"),
    }
    let request = |port: u16| Request::argv(["bash", "-c", ASKS, &port.to_string()]);
    let mut narrower = request(listed.port());
    narrower.overrides.net.localhost = Some(Vec::new());
    let asked = [
        (request(listed.port()), "HTTP/1.1 200", ContainerFrom::Waited),
        (request(other.port()), "HTTP/1.1 403", ContainerFrom::Waited),
        // A guest that waits listens at the listed port already, where nobody may in this run.
        (narrower, "HTTP/1.1 403", ContainerFrom::Made),
    ];
    for (request, answer, from) in asked {
        assert_eq!(engine.warm().await.unwrap(), 1);
        let outcome = engine.start(request).unwrap().outcome().await.unwrap();
        assert_eq!((outcome.stdout.as_str(), outcome.container), (answer, Some(from)), "{outcome:?}");
        assert_eq!(outcome.network.len(), 1, "{wall}: each is told its own: {:?}", outcome.network);
    }
    assert!(listed.hits() > 0 && other.hits() == 0);
    // One that is to have no network has no door, and none that was to have one is used for it.
    assert_eq!(engine.warm().await.unwrap(), 1);
    let mut closed = request(listed.port());
    closed.overrides.net.mode = Some(NetMode::None);
    closed.overrides.net.localhost = Some(Vec::new());
    let outcome = engine.start(closed).unwrap().outcome().await.unwrap();
    assert_eq!((outcome.exit_code, outcome.container), (Some(7), Some(ContainerFrom::Made)), "{outcome:?}");
    engine.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_waited_has_the_door_of_its_run_and_no_other() {
    let (walls, missing) = Wall::engines();
    for line in missing {
        eprintln!("{line}");
    }
    for wall in walls {
        eprintln!("on {wall}");
        check_door(&wall).await;
    }
}

/// Removes the state folder of an engine that has containers wait, and has it make up for one that died.
async fn check_removed_state(wall: &Wall) {
    let place = Place::new(launcher()).unwrap();
    let policy = format!("version: 1\n{}", wall.policy());
    let engine = place.warm_engine(&policy, wall.environment(), 1).unwrap();
    match presence(&engine, wall.kind, &std::env::var(REQUIRED).unwrap_or_default()).await {
        Presence::Here(_) => {}
        Presence::Skip(line) => return eprintln!("{line}"),
        Presence::Fail(line) => panic!("{line}"),
    }
    assert_eq!(engine.warm().await.unwrap(), 1);
    for id in containers(wall) {
        ask(wall, "POST", &format!("/v1.40/containers/{id}/kill"));
    }
    std::fs::remove_dir_all(place.state()).unwrap();
    let outcome = engine.start(Request::argv(["true"]));
    if let Ok(run) = outcome {
        let outcome = run.outcome().await;
        assert!(!matches!(&outcome, Ok(outcome) if outcome.status == Status::Exited), "{wall}: {outcome:?}");
    }
    // Longer than a run that took one is waited for.
    tokio::time::sleep(Duration::from_millis(500)).await;
    engine.drain().await;
    assert_eq!(containers(wall), BTreeSet::new(), "{wall}");
    assert!(!place.state().exists(), "{wall}: it was made again");
    drop(engine);
    // The twin: one that is prepared again is used.
    let engine = place.warm_engine(&policy, wall.environment(), 1).unwrap();
    assert_eq!(engine.warm().await.unwrap(), 1);
    assert_eq!(sh(&engine, "true").await.container, Some(ContainerFrom::Waited), "{wall}");
    engine.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_folder_that_is_removed_while_containers_wait_stays_removed() {
    let (walls, missing) = Wall::engines();
    for line in missing {
        eprintln!("{line}");
    }
    for wall in walls {
        eprintln!("on {wall}");
        check_removed_state(&wall).await;
    }
}

/// Has the host change what containers that wait would show.
async fn check_compared(wall: &Wall) {
    let place = Place::new(launcher()).unwrap();
    let file = place.write("there.txt", "before\n").unwrap();
    let policy = format!("version: 1\n{}fs: {{ deny: ['**/.secret'] }}\n", wall.policy());
    let engine = place.warm_engine(&policy, wall.environment(), WARM).unwrap();
    match presence(&engine, wall.kind, &std::env::var(REQUIRED).unwrap_or_default()).await {
        Presence::Here(_) => {}
        Presence::Skip(line) => return eprintln!("{line}"),
        Presence::Fail(line) => panic!("{line}"),
    }
    assert_eq!(engine.warm().await.unwrap(), WARM);
    let run = |line: &'static str| async {
        assert_eq!(engine.warm().await.unwrap(), WARM);
        sh(&engine, line).await
    };
    let outcome = run("test ! -e .secret").await;
    let shown = outcome.enforced.iter().find(|evidence| evidence.guarantee.name() == "fs.workspace").unwrap();
    let is_laid = shown.evidence.contains("mounts of its own");
    // What would be shown otherwise was laid and proven before anybody asked.
    let stale = if is_laid { ContainerFrom::MadeInstead } else { ContainerFrom::Waited };
    assert_eq!(outcome.container, Some(ContainerFrom::Waited), "{wall}");

    std::fs::write(&file, "after\n").unwrap();
    place.write("folder/new.txt", "new\n").unwrap();
    let outcome = run("grep -q after there.txt && grep -q new folder/new.txt").await;
    assert_eq!(outcome.container, Some(ContainerFrom::Waited), "{wall}: what is not denied is the host's own");

    for secret in [".secret", "folder/.secret"] {
        assert_eq!(engine.warm().await.unwrap(), WARM);
        place.write(secret, "hidden\n").unwrap();
        let waiting = containers(wall);
        let absent = "test ! -e .secret && test ! -e folder/.secret && grep -q new folder/new.txt";
        let outcome = sh(&engine, absent).await;
        assert_eq!(outcome.container, Some(stale), "{wall}: {secret}");
        assert!(outcome.violations.is_empty(), "{wall}: {:?}", outcome.violations);
        if is_laid {
            let is_none_left = || containers(wall).is_disjoint(&waiting);
            assert!(until(is_none_left).await, "{wall}: one in which {secret} would be seen goes on waiting");
        }
        let outcome = run(absent).await;
        assert_eq!(outcome.container, Some(ContainerFrom::Waited), "{wall}: the twin: now it is known");
    }

    // Another folder in its place, and another owner's mode.
    assert_eq!(engine.warm().await.unwrap(), WARM);
    std::fs::rename(place.workspace(), place.path().join("away")).unwrap();
    place.write("there.txt", "another\n").unwrap();
    assert_eq!(sh(&engine, "grep -q another there.txt").await.container, Some(stale), "{wall}");
    assert_eq!(engine.warm().await.unwrap(), WARM);
    if is_laid {
        std::fs::set_permissions(place.workspace(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
        assert_eq!(sh(&engine, "test $(stat -c %a .) = 711").await.container, Some(stale), "{wall}");
        // A request that denies more has another kind of container, and those that wait go on waiting.
        assert_eq!(engine.warm().await.unwrap(), WARM);
        let waiting = containers(wall);
        let mut narrower = Request::argv(["sh", "-c", "test ! -e there.txt"]);
        narrower.overrides.fs.deny = Some(vec!["**/there.txt".parse().unwrap()]);
        let outcome = ask_for(&engine, "denies more", narrower).await;
        assert_eq!(outcome.container, Some(ContainerFrom::Made), "{wall}");
        assert!(until(|| containers(wall) == waiting).await, "{wall}");
    }
    engine.drain().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_that_wait_show_what_one_would_that_is_made_now() {
    let (walls, missing) = Wall::engines();
    for line in missing {
        eprintln!("{line}");
    }
    for wall in walls {
        eprintln!("on {wall}");
        check_compared(&wall).await;
    }
}

/// Says to this test's other self on which wall it has containers wait, until it is killed.
const KEEPS: &str = "RINGFENCE_TEST_KEEPS_WARM";

/// Has containers wait in another process, kills that, and looks for them.
async fn check_killed(wall: &Wall) {
    let place = Place::new(launcher()).unwrap();
    let engine = place.engine(&format!("version: 1\n{}", wall.policy()), wall.environment()).unwrap();
    match presence(&engine, wall.kind, &std::env::var(REQUIRED).unwrap_or_default()).await {
        Presence::Here(_) => {}
        Presence::Skip(line) => return eprintln!("{line}"),
        Presence::Fail(line) => panic!("{line}"),
    }
    let mut other = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "containers_that_wait_for_a_killed_process_are_gone_with_the_next_start", "--nocapture"])
        .env(KEEPS, wall.to_string())
        // It is killed, and cannot remove what it made.
        .env("TMPDIR", place.path())
        .spawn()
        .unwrap();
    let process = other.id();
    assert!(until(|| containers_of(wall, process).len() == WARM).await, "{wall}: nothing waits for the other process");
    other.kill().unwrap();
    other.wait().unwrap();
    // Another engine of ours, as the next start of anything: it sweeps before its first container.
    let next = place.engine(&format!("version: 1\n{}", wall.policy()), wall.environment()).unwrap();
    sh(&next, "true").await;
    assert!(until(|| containers_of(wall, process).is_empty()).await, "{wall}: a killed process left containers");
}

#[tokio::test(flavor = "multi_thread")]
async fn containers_that_wait_for_a_killed_process_are_gone_with_the_next_start() {
    let (walls, _) = Wall::engines();
    if let Ok(name) = std::env::var(KEEPS) {
        let wall = walls.iter().find(|wall| wall.to_string() == name).unwrap();
        let place = Place::new(launcher()).unwrap();
        let policy = format!("version: 1\n{}", wall.policy());
        let engine = place.warm_engine(&policy, wall.environment(), WARM).unwrap();
        assert_eq!(engine.warm().await.unwrap(), WARM);
        tokio::time::sleep(10 * SOON).await;
        return;
    }
    for wall in walls {
        eprintln!("on {wall}");
        check_killed(&wall).await;
    }
}
