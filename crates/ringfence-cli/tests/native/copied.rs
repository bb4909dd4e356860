//! `fs.workspace.source: copy`: a program sees what was there at the start, and nothing that the host does later.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

use ringfence_testkit::canary::secret;
use serde_json::json;

use crate::later::{CAME_LATER, READS, meanwhile, run, told};
use crate::probe::{is_root, outside, walled, walled_with};
use crate::sessions::Session;
use crate::stage::Stage;

/// What is left of copies.
fn copies(stage: &Stage) -> usize {
    fs::read_dir(stage.state().join("scratch")).map_or(0, |entries| entries.count())
}

#[test]
fn s02_a_denied_file_that_comes_later_is_absent_from_a_copy_whatever_the_mode() {
    for mode in ["review", "read-only", "direct"] {
        let Some(stage) = walled_with(&format!("fs: {{ workspace: {{ mode: {mode} }} }}\n")) else { return };
        let hidden = secret().unwrap();
        stage.write("sub/.env", &hidden);
        stage.write("before.txt", "before\n");
        let script = format!("{READS}; cat later.txt; cat before.txt");
        let come = || {
            stage.write(".env", &hidden);
            // Over the one that was taken away: a mark of overlay's would have to hold, and there is none.
            fs::remove_file(stage.work().join("sub/.env")).unwrap();
            stage.write("sub/.env", &hidden);
            stage.write("later.txt", &hidden);
            stage.write("before.txt", "after\n");
        };
        let outcome = meanwhile(&stage, run(&stage, &["--json", "--source", "copy"], &script), come).json();
        assert_eq!((&outcome["stdout"], told(&outcome).len()), (&json!("before\n"), 0), "{mode}: {outcome:#}");
        let kept = outcome["enforced"].as_array().unwrap().iter().find(|one| one["guarantee"] == "fs.deny").unwrap();
        assert!(kept["evidence"].as_str().unwrap().contains("what the host makes later is not in it"), "{kept:#}");
        assert_eq!(copies(&stage), 0, "{mode}: the copy is gone with its program");
        // The twin: the same files come to a program that sees the host's own folder.
        for name in [".env", "later.txt"] {
            fs::remove_file(stage.work().join(name)).unwrap();
        }
        let outcome = meanwhile(&stage, run(&stage, &["--json", "--source", "live"], &script), come).json();
        let seen = outcome["stdout"].as_str().unwrap();
        assert!(seen.matches(&hidden).count() >= 2 && told(&outcome).len() == 1, "{mode}: {outcome:#}");
    }
}

#[test]
fn s02_a_session_with_a_copy_goes_on_when_a_denied_file_came_and_never_shows_it() {
    let Some(stage) = walled_with("fs: { workspace: { source: copy } }\n") else { return };
    let hidden = secret().unwrap();
    stage.write(".env", &hidden);
    let session = Session::start(&stage, "work", &[]);
    // What takes a mark of overlay's away, were there one.
    session.sh("echo own > .env; cat .env; rm .env").expect(0, &[]);
    fs::remove_file(stage.work().join(".env")).unwrap();
    stage.write(".env", &hidden);
    stage.write("sub/.env", &hidden);
    let ended = session.sh("cat .env sub/.env; echo ran").expect(0, &[]);
    assert_eq!(ended.text(), "ran\n");
    assert_eq!(copies(&stage) / 2, 1, "the twin: a folder and its lock");
    let ended = stage.ringfence(["session", "stop", "work"]).run().expect(0, &[]);
    assert!(!ended.stderr.contains(CAME_LATER), "{ended:?}");
    assert_eq!(copies(&stage), 0);
}

#[test]
fn what_was_changed_in_a_copy_is_told_and_applied_as_from_the_folder_itself() {
    let Some(stage) = walled() else { return };
    let work = stage.work();
    let set_up = || {
        stage.write("kept/a.txt", "one\ntwo\nthree\n");
        stage.write("kept/run.sh", "#!/bin/sh\n");
        stage.write("gone/b.txt", "b");
        stage.write("shared/c.txt", "c");
        fs::set_permissions(work.join("kept/run.sh"), Permissions::from_mode(0o755)).unwrap();
        // One group's folder: what is made in it is the group's. A copy has no such bit, and nobody changed it.
        fs::set_permissions(work.join("shared"), Permissions::from_mode(0o2775)).unwrap();
        fs::remove_file(work.join("link")).ok();
        symlink("kept/a.txt", work.join("link")).unwrap();
    };
    let script = "echo four >> kept/a.txt; rm -r gone; echo new > shared/new.txt; ln -sf kept/run.sh link; \
                  chmod 700 kept/run.sh; mkdir made; mv shared/c.txt made/c.txt";
    let mut pages = Vec::new();
    for source in ["live", "copy"] {
        set_up();
        run(&stage, &["--source", source], script).stdin("").run().expect(0, &[]);
        pages.push(stage.ringfence(["diff", "--color", "never"]).run().expect(0, &[]).text());
        stage.ringfence(["apply"]).run();
        assert_eq!(stage.read("kept/a.txt").unwrap(), "one\ntwo\nthree\nfour\n", "{source}");
        assert_eq!(stage.read("made/c.txt").unwrap(), "c", "{source}");
        assert!(!work.join("gone").exists() && stage.read("shared/new.txt").is_some(), "{source}");
        assert_eq!(fs::metadata(work.join("shared")).unwrap().mode() & 0o7777, 0o2775, "{source}");
        fs::remove_dir_all(work.join("made")).unwrap();
        fs::remove_file(work.join("shared/new.txt")).unwrap();
    }
    // The first line names the run.
    let without_run = |page: &str| page.split_once('\n').unwrap().1.to_owned();
    assert_eq!(without_run(&pages[0]), without_run(&pages[1]));
    assert!(pages[1].contains("kept/a.txt") && !pages[1].contains("2775"), "{}", pages[1]);
}

#[test]
fn what_the_host_changed_since_the_copy_is_a_conflict_and_not_lost() {
    let Some(stage) = walled() else { return };
    stage.write("a.txt", "one\n");
    stage.write("b.txt", "one\n");
    let change = "read line; echo two > a.txt; echo two > b.txt";
    let come = || drop(stage.write("a.txt", "host\n"));
    meanwhile(&stage, run(&stage, &["--source", "copy"], change), come).expect(0, &[]);
    let applied = stage.ringfence(["apply"]).run();
    assert_ne!(applied.code, 0, "{applied:?}");
    assert_eq!(stage.read("a.txt").unwrap(), "host\n", "{applied:?}");
}

#[test]
fn a_copy_is_bounded_and_says_what_to_do_and_only_narrows() {
    let Some(stage) = walled_with("fs: { size: 1MiB, workspace: { source: copy } }\n") else { return };
    stage.write("large", vec![1u8; 2 << 20]);
    let small = |flags: &[&str]| run(&stage, flags, "cat small").stdin("").run();
    small(&[]).expect(125, &["larger than", "`fs.size`", "--workspace"]);
    assert_eq!(copies(&stage), 0, "half a copy is removed");
    fs::remove_file(stage.work().join("large")).unwrap();
    stage.write("small", "small\n");
    assert_eq!(small(&[]).expect(0, &[]).text(), "small\n");
    // What a policy shows a copy of, a call does not see live.
    small(&["--source", "live"]).expect(126, &["fs.workspace.source"]);
}

#[test]
fn f01_a_link_in_a_copy_leads_no_further_than_in_the_folder_itself() {
    let Some(stage) = walled() else { return };
    let folder = outside(&stage);
    let hidden = secret().unwrap();
    fs::write(folder.join("canary"), &hidden).unwrap();
    symlink(folder.join("canary"), stage.work().join("link")).unwrap();
    let ended = run(&stage, &["--source", "copy"], "cat link; echo x > link; readlink link").stdin("").run();
    assert!(!ended.text().contains(&hidden) && ended.text().contains("canary"), "{ended:?}");
    assert_eq!(fs::read_to_string(folder.join("canary")).unwrap(), hidden);
}

/// `copy` is what a call may ask for without anybody's leave: nothing may be wider in it.
#[test]
fn s16_what_the_workspaces_owner_may_not_read_or_write_is_as_closed_in_a_copy() {
    if !is_root() {
        return eprintln!("SKIPPED: files of a second owner, which need root");
    }
    for mode in ["review", "direct"] {
        let Some(stage) = walled_with(&format!("fs: {{ workspace: {{ mode: {mode} }} }}\n")) else { return };
        let hidden = secret().unwrap();
        for (name, permissions) in [("closed", 0o600), ("readable", 0o644), ("dir/inner", 0o644)] {
            let file = stage.write(name, &hidden);
            fs::set_permissions(&file, Permissions::from_mode(permissions)).unwrap();
            chown(&file, Some(4321), Some(4321)).unwrap();
        }
        fs::set_permissions(stage.work().join("dir"), Permissions::from_mode(0o700)).unwrap();
        chown(stage.work().join("dir"), Some(4321), Some(4321)).unwrap();
        let script =
            "cat closed; cat dir/inner; ls dir; echo changed >> closed; echo changed >> readable; cat readable";
        for source in ["live", "copy"] {
            let ended = run(&stage, &["-q", "--source", source], script).stdin("").run();
            assert_eq!(ended.text(), hidden, "{mode} {source}: {ended:?}");
            assert_eq!(stage.read("closed").unwrap(), hidden, "{mode} {source}");
            assert_eq!(stage.read("readable").unwrap(), hidden, "{mode} {source}");
        }
        // The twin: the same files, of the workspace's owner.
        for name in ["closed", "readable", "dir", "dir/inner"] {
            chown(stage.work().join(name), Some(0), Some(0)).unwrap();
        }
        let ended = run(&stage, &["-q", "--source", "copy"], script).stdin("").run();
        assert!(ended.text().matches(&hidden).count() >= 2 && ended.text().contains("changed"), "{ended:?}");
    }
}

#[test]
fn s02_a_checkpoint_of_a_copy_brings_nothing_back_that_the_host_did_later() {
    let Some(stage) = walled_with("fs: { workspace: { source: copy } }\n") else { return };
    let hidden = secret().unwrap();
    stage.write("a.txt", "one\n");
    stage.write("gone/b.txt", "b\n");
    let session = Session::start(&stage, "work", &[]);
    stage.ringfence(["checkpoint", "create", "work"]).run().expect(0, &[]);
    session.sh("echo two > a.txt; rm -r gone").expect(0, &[]);
    stage.write("a.txt", &hidden);
    stage.write("later.txt", &hidden);
    fs::remove_dir_all(stage.work().join("gone")).unwrap();
    stage.ringfence(["checkpoint", "restore", "work", "1"]).run().expect(0, &["as in checkpoint 1"]);
    let ended = session.sh("cat a.txt gone/b.txt; ls").expect(0, &[]);
    assert_eq!(ended.text(), "one\nb\na.txt\ngone\nsandbox.policy.yaml\n", "{ended:?}");
}

#[test]
fn nothing_is_listed_that_a_program_never_saw_and_what_the_host_removed_is_not_brought_back() {
    let Some(stage) = walled() else { return };
    stage.write("d/plain", "plain\n");
    stage.write("a.txt", "one\n");
    let pipe = std::process::Command::new("mkfifo").arg(stage.work().join("d/pipe")).status().unwrap();
    assert!(pipe.success());
    let come = || {
        stage.write("d/later.txt", "later\n");
        stage.write("d/later/x", "later\n");
        fs::remove_file(stage.work().join("a.txt")).unwrap();
    };
    let script = "read line; rm -rf d; mkdir d; echo two >> a.txt";
    meanwhile(&stage, run(&stage, &["--source", "copy"], script), come).expect(0, &[]);
    let diff = stage.ringfence(["diff", "--stat"]).run().expect(0, &[]).text();
    assert!(diff.contains("d/plain") && !diff.contains("later") && !diff.contains("pipe"), "{diff}");
    stage.ringfence(["apply"]).run();
    assert!(stage.read("a.txt").is_none(), "the host has removed it since");
    assert_eq!(stage.read("d/later.txt").as_deref(), Some("later\n"));
    // The twin: where the host has it, it is changed.
    stage.write("a.txt", "one\n");
    run(&stage, &["--source", "copy"], "echo two >> a.txt").stdin("").run().expect(0, &[]);
    stage.ringfence(["apply"]).run().expect(0, &[]);
    assert_eq!(stage.read("a.txt").as_deref(), Some("one\ntwo\n"));
}
