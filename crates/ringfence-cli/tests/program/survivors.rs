//! Nothing outlives a run, however it ends, and however we do.

use std::fs;
use std::time::{Duration, Instant};

use ringfence_testkit::canary::{Heartbeat, is_alive, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::stage::{SOON, Stage};

fn send(child: &std::process::Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn r07_a_daemon_that_left_its_session_and_ignores_signals_dies_with_the_program() {
    for backend in ["spawn", "none"] {
        let stage = Stage::new();
        let heart = Heartbeat::watch(stage.work());
        let script = format!(
            "(setsid sh -c 'trap \"\" TERM HUP INT; {}' > /dev/null 2>&1 &); while [ ! -s beat ]; do sleep 0.05; done",
            Heartbeat::LOOP
        );
        stage.ringfence(["run", "-q", "--backend", backend, "--", "sh", "-c", &script]).run().expect(0, &[]);
        assert!(heart.has_begun(SOON));
        assert!(!heart.goes_on(), "the daemon survived `{backend}`");
    }
}

#[test]
fn r07_the_daemon_of_the_twin_survives_without_us() {
    let stage = Stage::new();
    let heart = Heartbeat::watch(stage.work());
    let script = format!("(setsid sh -c 'trap \"\" TERM HUP INT; {}' > /dev/null 2>&1 &)", Heartbeat::LOOP);
    assert!(
        std::process::Command::new("sh").args(["-c", &script]).current_dir(stage.work()).status().unwrap().success()
    );
    assert!(heart.has_begun(SOON));
    assert!(heart.goes_on(), "the probe proves nothing: its daemon dies by itself");
    drop(heart);
    // The daemon sees the order to stop before its folder goes away.
    std::thread::sleep(Duration::from_millis(300));
}

#[test]
fn n11_a_program_that_kills_its_keeper_leaves_nothing_alive_either() {
    let stage = Stage::new();
    let heart = Heartbeat::watch(stage.work());
    let script = format!(
        "(setsid sh -c 'trap \"\" TERM HUP INT; {}' > /dev/null 2>&1 &); while [ ! -s beat ]; do sleep 0.05; done; kill -9 $PPID; sleep 30",
        Heartbeat::LOOP
    );
    let ended = stage.spawn_sh(&script).run();
    assert_ne!(ended.code, 0, "{ended:?}");
    assert!(!heart.goes_on(), "the daemon survived its keeper");
}

#[test]
fn r11_measured_killing_us_leaves_nothing_alive_and_the_next_start_removes_the_rest() {
    let stage = Stage::new();
    let heart = Heartbeat::watch(stage.work());
    let code = format!("(setsid sh -c 'trap \"\" TERM HUP; {}' &)\nsleep 60", Heartbeat::LOOP);
    let mut child = stage.ringfence(["run", "-q", "--backend", "spawn", "--lang", "bash", "--code", &code]).start();
    assert!(heart.has_begun(SOON));
    let scratch = stage.state().join("scratch");
    let left = || fs::read_dir(&scratch).map_or(0, Iterator::count);
    assert!(left() > 0, "there is no scratch folder to leave behind");
    send(&child, Signal::KILL);
    child.wait().unwrap();
    assert!(until(SOON, || !heart.goes_on()), "something survived");
    assert!(left() > 0, "the twin: a killed supervisor cannot remove its scratch folder");
    assert!(
        until(SOON, || {
            stage.spawn_sh("true").run().expect(0, &[]);
            left() == 0
        }),
        "the scratch folder is still there"
    );
    let listed = stage.ringfence(["log"]).run().expect(0, &[]).text();
    assert!(listed.contains("not ended"), "{listed}");
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
}

#[test]
fn an_interrupt_cancels_the_run_with_130_and_nothing_survives() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let stage = Stage::new();
        let heart = Heartbeat::watch(stage.work());
        let script = format!("(setsid sh -c 'trap \"\" TERM HUP INT; {}' &); sleep 60", Heartbeat::LOOP);
        let mut child = stage.spawn_sh_with(&["--json"], &script).start();
        assert!(heart.has_begun(SOON));
        send(&child, signal);
        let begin = Instant::now();
        let ended = crate::stage::Ended::from({
            let stdout = child.stdout.take().unwrap();
            let text = std::io::read_to_string(stdout).unwrap();
            let status = child.wait().unwrap();
            std::process::Output { status, stdout: text.into_bytes(), stderr: Vec::new() }
        });
        assert!(begin.elapsed() < SOON);
        assert_eq!(ended.code, code);
        assert_eq!(ended.json()["status"], "cancelled");
        assert!(!heart.goes_on(), "something survived {signal:?}");
    }
}

#[test]
fn two_runs_at_once_do_not_disturb_each_other() {
    let stage = Stage::spawn();
    let long = stage.spawn_sh("echo $$ > long; sleep 2; echo long").start();
    let pid = stage.wait_for("long").trim().parse().unwrap();
    let short = stage.spawn_sh("echo short").run().expect(0, &[]);
    assert_eq!(short.text(), "short\n");
    assert!(is_alive(pid), "the end of one run ended the other");
    let output = long.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &*output.stdout), (Some(0), &b"long\n"[..]));
}

#[test]
fn r11_measured_fifty_runs_at_once_all_end_and_the_ledger_is_whole() {
    let stage = Stage::spawn();
    let runs: Vec<_> = (0..50)
        .map(|number| {
            stage
                .ringfence(["run", "-q", "--lang", "bash", "--code", &format!("echo run {number}; exit {number}")])
                .start()
        })
        .collect();
    for (number, run) in runs.into_iter().enumerate() {
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), i32::try_from(number).ok(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("run {number}\n"));
    }
    let verified = stage.ringfence(["log", "verify"]).run().expect(0, &[]).text();
    assert!(verified.starts_with("250 records are in order"), "{verified}");
    assert_eq!(fs::read_dir(stage.state().join("scratch")).unwrap().count(), 0, "a scratch folder is left");
}
