//! The audit log, seen through the program.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::stage::Stage;

fn ran_three_times() -> Stage {
    let stage = Stage::spawn();
    for script in ["true", "exit 3", "echo hi"] {
        stage.spawn_sh(script).run();
    }
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
    stage
}

#[test]
fn a_run_leaves_all_its_steps_in_order() {
    let stage = Stage::spawn();
    stage.spawn_sh("exit 3").run().expect(3, &[]);
    let text = fs::read_to_string(stage.ledger()).unwrap();
    let records: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<&str> = records.iter().map(|record| record["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["requested", "judged", "planned", "started", "ended"]);
    assert!(records.iter().all(|record| record["v"] == 1 && record["run"] == records[0]["run"]));
    assert_eq!(records[0]["body"]["door"], "cli");
    assert_eq!(records[2]["body"]["policyHash"].as_str().unwrap().len(), 64);
    assert_eq!(records[4]["body"]["exitCode"], 3);
    let mode = fs::metadata(stage.ledger()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_refusal_is_in_the_log() {
    let stage = Stage::with_policy("version: 1\nbackend: spawn\ncommands:\n  - deny: [rm]\n    matches: [\"rm x\"]\n");
    stage.ringfence(["run", "--", "rm", "x"]).run().expect(126, &[]);
    let log = stage.ringfence(["log"]).run().expect(0, &[]).text();
    assert!(log.contains("refused") && log.trim_end().ends_with("rm x"), "{log}");
}

fn check_damage(damage: impl Fn(Vec<String>) -> Vec<String>) -> String {
    let stage = ran_three_times();
    let lines: Vec<String> = fs::read_to_string(stage.ledger()).unwrap().lines().map(str::to_owned).collect();
    let damaged: String = damage(lines).iter().map(|line| format!("{line}\n")).collect();
    fs::write(stage.ledger(), damaged).unwrap();
    let ended = stage.ringfence(["log", "verify"]).run();
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.text().contains("problem: "), "{ended:?}");
    ended.text()
}

#[test]
fn s09_an_edited_record_is_found() {
    check_damage(|mut lines| {
        lines[9] = lines[9].replace("\"exitCode\":3", "\"exitCode\":0");
        lines
    });
}

#[test]
fn s09_records_in_another_order_are_found() {
    check_damage(|mut lines| {
        lines.swap(3, 4);
        lines
    });
}

#[test]
fn s09_a_removed_record_is_found() {
    check_damage(|mut lines| {
        lines.remove(6);
        lines
    });
}

#[test]
fn s09_a_cut_end_is_found() {
    check_damage(|mut lines| {
        lines.truncate(10);
        lines
    });
}

#[test]
fn s09_an_added_record_is_found() {
    check_damage(|mut lines| {
        lines.push(lines[14].clone());
        lines
    });
}

#[test]
fn s09_a_removed_ledger_is_found() {
    let stage = ran_three_times();
    fs::remove_file(stage.ledger()).unwrap();
    let ended = stage.ringfence(["log", "verify"]).run();
    assert_eq!(ended.code, 1, "{ended:?}");
}

#[test]
fn a_torn_last_line_does_not_stop_later_runs_and_is_told() {
    let stage = ran_three_times();
    let text = fs::read_to_string(stage.ledger()).unwrap();
    fs::write(stage.ledger(), &text[..text.len() - 20]).unwrap();
    let ended = stage.spawn_sh("true").run();
    assert!([0, 125].contains(&ended.code), "{ended:?}");
    let verified = stage.ringfence(["log", "verify"]).run();
    assert_eq!(verified.code, 1, "{verified:?}");
}

#[test]
fn s08_newlines_and_json_in_arguments_leave_the_entries_intact() {
    let stage = Stage::spawn();
    let hostile = "x\n{\"v\":1,\"seq\":0,\"kind\":\"ended\",\"run\":\"\"}\n\",\"hash\":\"0";
    stage.ringfence(["run", "-q", "--", "true", hostile]).run().expect(0, &[]);
    stage.ringfence(["run", "-q", "--shell", &format!("true '{hostile}'")]).run().expect(0, &[]);
    let verified = stage.ringfence(["log", "verify"]).run().expect(0, &[]).text();
    assert!(verified.starts_with("10 records are in order, 0 problems"), "{verified}");
    assert_eq!(stage.ringfence(["log"]).run().text().lines().count(), 2);
}

#[test]
fn nothing_runs_when_the_ledger_cannot_be_written() {
    let stage = Stage::spawn();
    let check = |place: &std::path::Path| {
        let ended = stage.ringfence(["run", "--", "touch", "canary"]).env("RINGFENCE_STATE_DIR", place).run();
        assert_eq!(ended.code, 125, "{}: {ended:?}", place.display());
        assert!(ended.stderr.starts_with("error: "), "{ended:?}");
        assert_eq!(stage.read("canary"), None, "{}", place.display());
    };
    let file = stage.write("a-file", "");
    check(&file);
    check(&file.join("below"));
    check(std::path::Path::new("/proc/ringfence-test"));
    check(std::path::Path::new("/dev/null"));
    let taken = stage.path().join("taken");
    fs::create_dir_all(taken.join("ledger.jsonl")).unwrap();
    fs::set_permissions(&taken, fs::Permissions::from_mode(0o700)).unwrap();
    check(&taken);
    let full = stage.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::set_permissions(&full, fs::Permissions::from_mode(0o700)).unwrap();
    symlink("/dev/full", full.join("ledger.jsonl")).unwrap();
    check(&full);
    stage.ringfence(["run", "--", "touch", "canary"]).run().expect(0, &[]);
    assert!(stage.read("canary").is_some(), "the twin");
}

#[test]
fn a_state_folder_that_others_can_write_is_refused() {
    let stage = Stage::spawn();
    let open = stage.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    let run = || stage.ringfence(["run", "--", "touch", "canary"]);
    run().env("RINGFENCE_STATE_DIR", &open).run().expect(125, &["can be written by others", "RINGFENCE_STATE_DIR"]);
    let link = stage.path().join("link");
    symlink(stage.path().join("home"), &link).unwrap();
    run().env("RINGFENCE_STATE_DIR", &link).run().expect(125, &["is not a folder"]);
    assert_eq!(stage.read("canary"), None);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o700)).unwrap();
    run().env("RINGFENCE_STATE_DIR", &open).run().expect(0, &[]);
    assert!(stage.read("canary").is_some(), "the twin");
}

#[test]
fn without_a_place_for_the_ledger_nothing_runs() {
    let stage = Stage::spawn();
    let ended = stage.ringfence(["run", "--", "touch", "canary"]).without_env("HOME").run();
    ended.expect(125, &["RINGFENCE_STATE_DIR", "HOME"]);
    stage.ringfence(["run", "--", "touch", "canary"]).env("HOME", "relative").run().expect(125, &["error: "]);
    assert_eq!(stage.read("canary"), None);
}

#[test]
fn a_run_is_shown_by_the_first_letters_of_its_id() {
    let stage = ran_three_times();
    let list = stage.ringfence(["log"]).run().expect(0, &[]).text();
    let id = list.lines().next_back().unwrap().split_whitespace().next().unwrap().to_owned();
    let whole = stage.ringfence(["log", "show", &id]).run().expect(0, &[]).text();
    assert!(whole.contains("planned") && whole.contains("policyHash"), "{whole}");
    assert_eq!(stage.ringfence(["log", "show", &id[..24]]).run().expect(0, &[]).text(), whole);
    let lines = stage.ringfence(["log", "show", "--json", &id]).run().expect(0, &[]).text();
    assert!(lines.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    stage.ringfence(["log", "show", "zzzz"]).run().expect(125, &["no run begins with `zzzz`"]);
    stage.ringfence(["log", "show", &id[..4]]).run().expect(125, &["3 runs begin with"]);
    assert_eq!(stage.ringfence(["log", "-n", "1"]).run().text().lines().count(), 1);
    assert_eq!(stage.ringfence(["log", "-n", "0"]).run().expect(0, &[]).text(), "");
}
