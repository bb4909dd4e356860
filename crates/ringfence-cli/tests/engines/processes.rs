//! What a program leaves behind, and whom it can reach by a signal.

use std::time::{Duration, Instant};

use ringfence_testkit::canary::{ProcessCanary, is_marked_alive, secret, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::stage::SOON;
use crate::walls::for_each_engine;

#[test]
fn r07_a_daemon_that_ignores_signals_dies_with_the_program() {
    for_each_engine("", |place| {
        let mark = secret().unwrap();
        let script = "(setsid sh -c 'trap \"\" TERM HUP; sleep 60' \"$1\" > /dev/null 2>&1 &); sleep 0.3; echo done";
        assert_eq!(place.sh(script, &[&mark]).expect(0, &[]).text(), "done\n");
        assert!(until(SOON, || !is_marked_alive(&mark)), "it outlived its run");
        assert!(place.is_soon_empty(), "a container is left");
    });
    let mark = secret().unwrap();
    // What it starts may outlive it for a moment, and holds nothing of ours.
    let nothing = std::process::Stdio::null;
    let child =
        std::process::Command::new("sh").args(["-c", "sleep 5", &mark]).stdout(nothing()).stderr(nothing()).spawn();
    assert!(until(SOON, || is_marked_alive(&mark)), "the probe proves nothing");
    let mut child = child.unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn r08_a_child_in_the_background_does_not_delay_the_end() {
    for_each_engine("", |place| {
        let begin = Instant::now();
        assert_eq!(place.sh("(sleep 60 &); echo done", &[]).expect(0, &[]).text(), "done\n");
        assert!(begin.elapsed() < Duration::from_secs(20), "it took {:?}", begin.elapsed());
    });
}

#[test]
fn n11_signals_reach_nobody_outside_and_the_run_still_ends() {
    for_each_engine("", |place| {
        let process = ProcessCanary::start().unwrap();
        let pid = process.pid().to_string();
        let script = "kill -9 $1; kill -9 1; kill -STOP 1; kill -9 -1; exit 5";
        let ended = place.sh(&format!("({script}) 2> /dev/null; exit 5"), &[&pid]);
        // The kernel keeps a first process from its own namespace's signals. Where there is another kernel, a program can
        // end its own container, and then the run is lost and says so.
        let is_lost = !place.wall.shows_processes() && ended.code == 125;
        assert!(is_lost || matches!(ended.code, 5 | 137), "{ended:?}");
        assert!(!process.died(), "a process of the host was killed");
        place.bare_sh("kill -9 $1", &[&pid]);
        assert!(process.died(), "the probe proves nothing");
    });
}

#[test]
fn r11_a_supervisor_that_is_killed_leaves_no_container_and_no_process() {
    for_each_engine("", |place| {
        let mark = secret().unwrap();
        let mut child = place.run(&[], &["sh", "-c", "sleep 60; :", &mark]).start();
        let is_seen = || place.has_started() && place.has_containers();
        assert!(until(SOON, is_seen), "it did not start");
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(until(SOON, || !is_marked_alive(&mark)), "the program outlived its supervisor");
        assert!(until(SOON, || place.is_soon_empty()), "the container outlived its supervisor");
    });
}

/// The parent of the shell with this mark, by its number here: an engine in namespaces of its own has others.
fn guest_of(mark: &str) -> Option<i32> {
    let line = format!("sh\0-c\0sleep 60; :\0{mark}\0");
    let numbers =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let shell = numbers
        .filter(|name| std::fs::read_to_string(format!("/proc/{name}/cmdline")).is_ok_and(|found| found == line))
        .find_map(|name| std::fs::read_to_string(format!("/proc/{name}/status")).ok())?;
    shell.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}

#[test]
fn the_guest_of_a_local_container_speaks_over_a_socket_whose_name_is_gone() {
    for_each_engine("", |place| {
        // Over all others all goes through the engine.
        if !["docker", "podman"].contains(&place.wall.name) || !rustix::process::geteuid().is_root() {
            return;
        }
        let mark = secret().unwrap();
        let mut child = place.run(&[], &["sh", "-c", "sleep 60; :", &mark]).start();
        assert!(until(SOON, || guest_of(&mark).is_some()), "{}: no program began", place.wall);
        let first = guest_of(&mark).unwrap();
        let ends = || {
            let end = |number| std::fs::read_link(format!("/proc/{first}/fd/{number}")).unwrap_or_default();
            [3, 4].map(|number| end(number).to_string_lossy().into_owned())
        };
        assert!(ends().iter().all(|end| end.starts_with("socket:")), "{}: it speaks over {:?}", place.wall, ends());
        let there = std::fs::read_dir(format!("/proc/{first}/root/run/code")).unwrap();
        let there: Vec<_> = there.flatten().map(|entry| entry.file_name()).collect();
        assert_eq!(there, Vec::<std::ffi::OsString>::new(), "{}: somebody could meet us there", place.wall);
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        child.wait().unwrap();
        assert!(place.is_soon_empty());
    });
}
