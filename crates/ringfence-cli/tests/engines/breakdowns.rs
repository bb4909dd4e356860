//! What fails under us: the container, the engine, the way to it, the disk. The outcome says so, and nothing is left.

use std::time::{Duration, Instant};

use ringfence_policy::BackendKind;
use ringfence_testkit::backends::{IMAGE, Wall};
use ringfence_testkit::canary::{is_marked_alive, secret, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::api::{Between, containers_with, inspect, remove};
use crate::stage::{Ended, SOON};
use crate::walls::{Walled, for_each_engine};

/// How long a run may take to notice, on a machine that is busy.
const NOTICED: Duration = Duration::from_secs(30);

fn variable(place: &Walled) -> &'static str {
    if place.wall.kind == BackendKind::Podman { "CONTAINER_HOST" } else { "DOCKER_HOST" }
}

/// Starts a run that sleeps, waits for its container, breaks something, and gives how the run ended.
fn interrupted(place: &Walled, host: Option<String>, break_it: impl FnOnce(&str)) -> Ended {
    let mark = secret().unwrap();
    let mut invocation = place.run(&["--json"], &["sh", "-c", "sleep 120; :", &mark]);
    if let Some(host) = host {
        invocation = invocation.env(variable(place), host);
    }
    let child = invocation.start();
    let found = || place.runs().iter().flat_map(|run| containers_with(&place.wall, run)).next();
    assert!(until(SOON, || found().is_some()), "no container came");
    let id = found().unwrap();
    assert!(until(SOON, || inspect(&place.wall, &id)["State"]["Running"] == true), "the container does not run");
    let begin = Instant::now();
    break_it(&id);
    let ended = Ended::from(child.wait_with_output().unwrap());
    assert!(begin.elapsed() < NOTICED, "it took {:?} to notice", begin.elapsed());
    assert!(until(SOON, || !is_marked_alive(&mark)), "the program goes on");
    ended
}

#[test]
fn a_container_that_is_removed_under_a_run_ends_it_with_an_error() {
    for_each_engine("", |place| {
        let ended = interrupted(place, None, |id| remove(&place.wall, id));
        assert_eq!(ended.code, 125, "{ended:?}");
        assert_eq!(ended.json()["status"], "couldNotRun", "{ended:?}");
        assert!(until(SOON, || place.is_soon_empty()));
        place.run(&[], &["true"]).run().expect(0, &[]);
    });
}

#[test]
fn a_way_to_the_engine_that_is_cut_ends_the_run_and_its_container() {
    for_each_engine("", |place| {
        let between = Between::start(&place.wall, place.stage.path().join("b"), Duration::ZERO);
        let ended = interrupted(place, Some(between.host()), |_| between.cut());
        assert_eq!(ended.code, 125, "{ended:?}");
        assert!(until(SOON, || place.is_soon_empty()), "the container goes on without anybody");
    });
}

#[test]
fn an_engine_that_is_slow_is_waited_for() {
    for_each_engine("", |place| {
        let between = Between::start(&place.wall, place.stage.path().join("b"), Duration::from_millis(100));
        let ended = place.run(&[], &["sh", "-c", "echo slowly; exit 4"]).env(variable(place), between.host()).run();
        assert_eq!((ended.code, &*ended.text()), (4, "slowly\n"), "{ended:?}");
        between.cut();
    });
}

#[test]
fn an_engine_that_answers_nothing_is_given_up_in_bounded_time() {
    for_each_engine("", |place| {
        let silent = place.stage.path().join("silent");
        let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
        let begin = Instant::now();
        let host = format!("unix://{}", silent.display());
        let ended = place.run(&["--timeout", "5s"], &["true"]).env(variable(place), host).run();
        assert_eq!(ended.code, 125, "{ended:?}");
        assert!(begin.elapsed() < Duration::from_secs(90), "it took {:?}", begin.elapsed());
    });
}

/// An engine that is there to be killed. The step that starts the tests keeps what it leaves.
fn victim(kind: BackendKind, name: &'static str) -> Option<(Walled, Pid)> {
    let variable = |what: &str| format!("RINGFENCE_TEST_{}_VICTIM_{what}", kind.to_string().to_uppercase());
    let (Ok(host), Ok(pid), Ok(image)) =
        (std::env::var(variable("HOST")), std::env::var(variable("PID")), std::env::var(IMAGE))
    else {
        eprintln!("SKIPPED: {name}: {} is not set", variable("HOST"));
        return None;
    };
    let wall = Wall { kind, runtime: None, name, engine: Some((host, image)) };
    let place = Walled::new(wall, "");
    let report = place.ringfence(&["doctor", "--json"]).run().json();
    let is_usable = report["backends"]
        .as_array()
        .is_some_and(|all| all.iter().any(|one| one["backend"] == *kind.to_string() && one["usable"] == true));
    if !is_usable {
        eprintln!("SKIPPED: {name} cannot be used here");
        return None;
    }
    Some((place, Pid::from_raw(pid.parse().unwrap()).unwrap()))
}

#[test]
fn an_engine_that_is_killed_under_a_run_ends_it_with_an_error_and_its_program_too() {
    for (kind, name) in [(BackendKind::Docker, "docker to be killed"), (BackendKind::Podman, "podman to be killed")] {
        let Some((place, pid)) = victim(kind, name) else { continue };
        let ended = interrupted(&place, None, |_| kill_process(pid, Signal::KILL).unwrap());
        assert_eq!(ended.code, 125, "{ended:?}");
        // The next run says that there is no engine.
        let next = place.run(&[], &["true"]).run();
        assert_eq!(next.code, 125, "{next:?}");
    }
}

#[test]
fn a_full_disk_of_the_host_is_an_error_that_says_so_and_leaves_nothing() {
    for_each_engine("", |place| {
        // Our own side of it: the state folder, where changes and records go, has no room left.
        let state = place.stage.path().join("home/.local/state");
        std::fs::create_dir_all(&state).unwrap();
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k,mode=755", "none"])
            .arg(&state)
            .output()
            .is_ok_and(|output| output.status.success());
        if !mounted {
            eprintln!("SKIPPED: {}: a small file system can be mounted by root only", place.wall);
            return;
        }
        let ended = place.run(&[], &["sh", "-c", "head -c 10M /dev/urandom > big"]).run();
        let left = !place.is_soon_empty();
        let unmounted = std::process::Command::new("umount").arg("-l").arg(&state).status().unwrap();
        assert!(unmounted.success());
        assert_ne!(ended.code, 0, "{ended:?}");
        assert!(!left, "a container is left");
        place.run(&[], &["true"]).run().expect(0, &[]);
    });
}
