//! `ringfence check`: it holds behind the wall, and can tell when nothing does.

use std::fs;
use std::time::{Duration, Instant};

use ringfence_testkit::canary::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::probe::walled;
use crate::stage::{SOON, Stage};

/// What a check must never take.
const LONG: Duration = Duration::from_secs(40);

fn attacks(report: &Value) -> &[Value] {
    report["attacks"].as_array().unwrap()
}

/// What is left of a check: folders, and processes that work in them.
fn left(stage: &Stage) -> Vec<String> {
    let folder = stage.path().join("tmp");
    let mut left: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("ringfence-check-"))
        .collect();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let cwd = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        if cwd.starts_with(folder.canonicalize().unwrap()) {
            left.push(cwd.display().to_string());
        }
    }
    left
}

#[test]
fn measured_check_holds_behind_the_wall_and_leaves_nothing() {
    let Some(stage) = walled() else { return };
    stage.write("mine", "as it was");
    let begin = Instant::now();
    let ended = stage.ringfence(["check", "--json"]).env("HOST_SECRET", "x").run();
    let report = ended.json();
    for attack in attacks(&report) {
        assert_eq!(attack["result"], "held", "{attack:#}");
    }
    assert_eq!((ended.code, report["holds"].as_bool()), (0, Some(true)), "{}", report["summary"]);
    assert!(attacks(&report).len() >= 38, "{}", report["summary"]);
    assert_eq!((report["backend"].as_str(), report["isolates"].as_bool()), (Some("native"), Some(true)));
    assert!(begin.elapsed() < LONG, "it took {:?}", begin.elapsed());
    assert_eq!(left(&stage), Vec::<String>::new());
    assert_eq!(stage.read("mine").unwrap(), "as it was");
    assert_eq!(fs::read_dir(stage.work()).unwrap().count(), 2, "the workspace was touched");
    assert_eq!(
        stage.ringfence(["changes", "--json"]).run().json(),
        serde_json::json!([]),
        "nobody is to review an attack"
    );
    // Every attack is a run like any other.
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
    let listed = stage.ringfence(["log", "-n", "500"]).run().expect(0, &[]).text();
    assert!(listed.lines().count() > 2 * 25, "{listed}");
}

#[test]
fn measured_check_says_broken_for_all_that_no_wall_keeps() {
    let stage = Stage::new();
    let ended = stage.ringfence(["check", "--json", "--backend", "none"]).run();
    let report = ended.json();
    assert_eq!((ended.code, report["holds"].as_bool()), (1, Some(false)), "{}", report["summary"]);
    let not_kept: Vec<&str> = report["notEnforced"].as_array().unwrap().iter().map(|it| it.as_str().unwrap()).collect();
    for attack in attacks(&report) {
        let is_kept = !not_kept.contains(&attack["guarantee"].as_str().unwrap());
        let expected = if is_kept { "held" } else { "broken" };
        assert_eq!(attack["result"], expected, "{attack:#}");
    }
    assert_eq!(left(&stage), Vec::<String>::new());
    let page = stage.ringfence(["check", "--backend", "none", "--only", "fs.deny"]).run().expect(1, &[]).text();
    assert!(page.contains("BROKEN        S02-denied") && page.contains("NOT SAFE"), "{page}");
}

#[test]
fn check_holds_under_command_rules_and_in_an_empty_workspace() {
    let policy = "fs: { workspace: { mode: ephemeral }, mounts: [{ host: ./deps, at: /deps }] }
commands: [{ deny: [rm], matches: [\"rm x\"] }]\nproc: { timeout: 2s, processes: 8, open_files: 64 }\n";
    let Some(stage) = crate::probe::walled_with(policy) else { return };
    fs::create_dir(stage.work().join("deps")).unwrap();
    for only in ["fs.deny", "fs.size", "fs.workspace", "proc.open-files"] {
        let ended = stage.ringfence(["check", "--json", "--only", only]).run();
        assert_eq!(ended.code, 0, "{:#}", ended.json());
    }
}

#[test]
fn check_holds_where_changes_reach_the_host_at_the_end() {
    let Some(stage) = crate::probe::walled_with("fs: { workspace: { mode: direct } }\n") else { return };
    for only in ["fs.deny", "fs.protect", "fs.workspace"] {
        let ended = stage.ringfence(["check", "--json", "--only", only]).run();
        assert_eq!(ended.code, 0, "{only}: {ended:?}");
    }
}

#[test]
fn a_check_that_is_interrupted_leaves_nothing() {
    for backend in ["none", "auto"] {
        if backend == "auto" && walled().is_none() {
            return;
        }
        let stage = Stage::new();
        let mut child = stage.ringfence(["check", "--backend", backend]).start();
        assert!(until(SOON, || left(&stage).len() > 2), "it did not begin: {:?}", left(&stage));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(until(Duration::from_secs(2), || left(&stage).is_empty()), "left: {:?}", left(&stage));
    }
}

#[test]
fn what_a_killed_check_leaves_is_removed_by_the_next_one() {
    let stage = Stage::new();
    let mut child = stage.ringfence(["check", "--backend", "none"]).start();
    assert!(until(SOON, || left(&stage).len() > 2), "it did not begin");
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert!(until(SOON, || left(&stage).len() == 1), "something still runs: {:?}", left(&stage));
    stage.ringfence(["check", "--backend", "none", "--only", "fd.clean"]).run().expect(0, &[]);
    assert_eq!(left(&stage), Vec::<String>::new());
}
