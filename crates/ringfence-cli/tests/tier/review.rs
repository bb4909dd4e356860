//! A workspace under review, where nothing can lie over it: the program works in a copy.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use ringfence_testkit::canary::{FileCanary, secret};

use crate::probe::{PYTHON, Wall, fenced_with, outside, run, sh, text};
use crate::stage::Stage;

fn reviewed(more: &str) -> Option<Stage> {
    fenced_with(&format!("fs: {{ workspace: {{ mode: review }}{more} }}\n"))
}

/// Nothing of a run is left, in whatever way it ended.
#[track_caller]
fn nothing_left(stage: &Stage) {
    let left: Vec<_> =
        fs::read_dir(stage.state().join("scratch")).unwrap().flatten().map(|it| it.file_name()).collect();
    assert_eq!(left, Vec::<std::ffi::OsString>::new());
}

#[test]
fn without_namespaces_a_program_under_review_changes_a_copy_and_its_changes_can_be_applied() {
    let Some(stage) = reviewed("") else { return };
    stage.write("changed", "one\n");
    stage.write("gone/deep", "x");
    stage.write("kept", "kept\n");
    std::os::unix::fs::symlink("kept", stage.work().join("link")).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let canary = FileCanary::set(stage.work()).unwrap();
    let script = "cat changed link; echo two >> changed; rm -r gone; mkdir -p new/er; echo made > new/er/file; \
        ln -sfn changed link; cat changed; ls; echo x > \"$1/changed\"; cat \"$1/changed\"";
    let work = stage.work();
    let arguments = ["sh", "-c", script, "sh", text(&work)];
    let ended = run(&stage, Wall::Tier, &["--json"], &arguments).json();
    assert_eq!(canary.change().unwrap(), None, "the host is as it was");
    assert_eq!(ended["workspaceChanged"], true, "{ended:#}");
    assert_eq!(ended["changes"], serde_json::json!({ "added": 3, "changed": 2, "removed": 2 }), "{ended:#}");
    let output = ended["stdout"].as_str().unwrap();
    assert!(output.starts_with("one\nkept\none\ntwo\nchanged\n") && !output.contains("gone"), "{output:?}");
    assert!(output.ends_with("sandbox.policy.yaml\n"), "the workspace itself cannot be opened: {output:?}");
    assert!(ended["enforced"].to_string().contains("a private copy of 6 files and folders"), "{ended:#}");
    nothing_left(&stage);

    let id = ended["runId"].as_str().unwrap();
    let shown = stage.ringfence(["diff", id]).run().expect(0, &[]).text();
    assert!(shown.contains("new/er/file") && shown.contains("+two"), "{shown}");
    stage.ringfence(["apply", id, "--yes"]).run().expect(0, &[]);
    assert_eq!(stage.read("changed").as_deref(), Some("one\ntwo\n"));
    assert_eq!(stage.read("new/er/file").as_deref(), Some("made\n"));
    assert_eq!(fs::read_link(stage.work().join("link")).unwrap().to_str(), Some("changed"));
    assert!(!stage.work().join("gone").exists());
    assert_eq!(stage.read("kept").as_deref(), Some("kept\n"));

    // The twin: without a wall the same script changes the workspace at once.
    let twin = FileCanary::set(stage.work()).unwrap();
    sh(&stage, Wall::Bare, "echo x > \"$1/changed\"", &[text(&work)]);
    assert!(twin.change().unwrap().is_some());
}

#[test]
fn a_run_in_a_copy_that_changes_nothing_keeps_nothing() {
    let Some(stage) = reviewed("") else { return };
    stage.write("file", "same\n");
    let ended = run(&stage, Wall::Tier, &["--json"], &["sh", "-c", "echo same > file; : > new; rm new"]).json();
    assert_eq!((&ended["workspaceChanged"], &ended["exitCode"]), (&false.into(), &0.into()), "{ended:#}");
    assert!(stage.ringfence(["changes"]).run().expect(0, &["no changes are kept"]).text().is_empty());
    nothing_left(&stage);
}

#[test]
fn f11_what_is_denied_is_not_in_a_copy_under_any_of_its_names() {
    let Some(stage) = reviewed(", deny: [\"keys/**\"]") else { return };
    let words = [secret().unwrap(), secret().unwrap()];
    let env = stage.write("deep/.env", &words[0]);
    let key = stage.write("keys/one", &words[1]);
    stage.write("deep/seen", "seen\n");
    fs::hard_link(env, stage.work().join("notes.txt")).unwrap();
    fs::hard_link(key, stage.work().join("deep/key")).unwrap();
    let script = "cat deep/seen; cat \"$1/deep/seen\"; cat notes.txt deep/key deep/.env keys/one; \
        cat \"$1/notes.txt\" \"$1/deep/.env\"; grep -r . . ..; ls -R";
    let work = stage.work();
    let bare = sh(&stage, Wall::Bare, script, &[text(&work)]);
    assert!(words.iter().all(|word| bare.text().contains(word)), "the twin: {bare:?}");
    let ended = sh(&stage, Wall::Tier, script, &[text(&work)]);
    assert!(!words.iter().any(|word| ended.text().contains(word)), "{ended:?}");
    assert!(ended.text().starts_with("seen\n") && !ended.text().contains("notes.txt"), "{ended:?}");
    let told = run(&stage, Wall::Tier, &["--json"], &["true"]).json()["enforced"].to_string();
    assert!(told.contains("without 4 that are denied, another name of one"), "{told}");
    // Without a copy, the same files are closed.
    let ended = run(&stage, Wall::Tier, &["--mode", "read-only"], &["sh", "-c", script, "sh", text(&work)]);
    assert!(!words.iter().any(|word| ended.text().contains(word)) && ended.text().starts_with("seen\n"), "{ended:?}");
}

#[test]
fn f01_links_out_of_a_copy_lead_to_nothing_that_can_be_opened() {
    let Some(stage) = reviewed("") else { return };
    let word = secret().unwrap();
    let file = outside(&stage).join("secret");
    fs::write(&file, &word).unwrap();
    std::os::unix::fs::symlink(&file, stage.work().join("link")).unwrap();
    std::os::unix::fs::symlink(outside(&stage), stage.work().join("folder")).unwrap();
    let canary = FileCanary::set(outside(&stage)).unwrap();
    let script = "cat link folder/secret; echo x >> link; echo x > folder/new; rm -f folder/secret";
    let ended = sh(&stage, Wall::Tier, script, &[]);
    assert!(!ended.text().contains(&word), "{ended:?}");
    assert_eq!(canary.change().unwrap(), None);
    let bare = sh(&stage, Wall::Bare, script, &[]);
    assert!(bare.text().contains(&word) && canary.change().unwrap().is_some(), "the twin: {bare:?}");
}

#[test]
fn a_workspace_larger_than_what_may_be_written_is_refused_with_the_key() {
    let Some(stage) = reviewed(", size: 1MiB") else { return };
    stage.write("large", vec![1u8; 2 << 20]);
    let ended = run(&stage, Wall::Tier, &[], &["sh", "-c", "echo ran"]).expect(125, &["`fs.size`", "--workspace"]);
    assert_eq!(ended.text(), "");
    nothing_left(&stage);
    fs::remove_file(stage.work().join("large")).unwrap();
    run(&stage, Wall::Tier, &[], &["true"]).expect(0, &[]);
    run(&stage, Wall::Tier, &["--at", "same"], &["true"]).expect(125, &["leave out `--at same`"]);
}

#[test]
fn a_program_of_the_workspace_runs_as_it_is_in_the_copy_and_in_its_folder() {
    let Some(stage) = reviewed("") else { return };
    let script =
        stage.write("tools/run.sh", "#!/bin/sh\necho \"in $(basename \"$PWD\")\"; echo more >> run.sh; cat data\n");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    stage.write("tools/data", "data\n");
    let ended = run(&stage, Wall::Tier, &["--cwd", "tools"], &["./run.sh"]).expect(0, &[]);
    assert_eq!(ended.text(), "in tools\ndata\n");
    assert!(!stage.read("tools/run.sh").unwrap().contains("more\n"));
}

#[test]
fn a_copy_that_was_written_through_memory_is_seen_to_be_changed() {
    let Some(stage) = reviewed("") else { return };
    stage.write("file", "x".repeat(4096));
    std::thread::sleep(Duration::from_millis(20));
    let code =
        "import mmap\nwith open('file', 'r+b') as f:\n    m = mmap.mmap(f.fileno(), 0)\n    m[0]\n    m[0] = 65\n";
    let ended = run(&stage, Wall::Tier, &["--json"], &[PYTHON, "-c", code]).json();
    assert_eq!(ended["changes"]["changed"], 1, "{ended:#}");
}

#[test]
fn a_run_in_a_copy_that_timed_out_keeps_what_it_changed_and_a_killed_supervisor_leaves_no_copy() {
    let Some(stage) = reviewed("") else { return };
    stage.write("old", "old");
    let script = "echo x > made; mkdir -m 0 closed; sleep 60";
    let ended = run(&stage, Wall::Tier, &["--json", "--timeout", "500ms"], &["sh", "-c", script]).json();
    assert_eq!((&ended["status"], &ended["changes"]["added"]), (&"timedOut".into(), &2.into()), "{ended:#}");
    nothing_left(&stage);
    let mut child = stage.ringfence(["run", "-q", "--backend", "landlock", "--", "sh", "-c", script]).start();
    let scratch = stage.state().join("scratch");
    let is_there = || fs::read_dir(&scratch).is_ok_and(|mut entries| entries.next().is_some());
    for _ in 0..400 {
        if is_there() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(200));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(is_there(), "the twin: there was a copy");
    std::thread::sleep(Duration::from_millis(200));
    run(&stage, Wall::Tier, &["--mode", "read-only"], &["true"]).expect(0, &[]);
    nothing_left(&stage);
}
