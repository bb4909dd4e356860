//! F22 once more: denied files that come into the workspace when a wall shows it already.

use std::fs;
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::Duration;

use ringfence_testkit::canary::{secret, until};
use serde_json::Value;

use crate::probe::{Wall, is_root, run, sh, walled, walled_with};
use crate::sessions::Session;
use crate::stage::{Ended, SOON, Stage};

/// Names that are denied, and the folders that they are in are not there before.
const DENIED: [&str; 5] = [".env", "sub/.env", "new/deep/.env", ".ssh/config", "sub/.aws/x/credentials"];

/// Reads each of them, and one more name of the first, and lists what there is.
const READ: &str =
    "cat .env sub/.env new/deep/.env .ssh/config sub/.aws/x/credentials other; ls -AR; cat allowed new/allowed";

fn make_denied(stage: &Stage, secret: &str) {
    for name in DENIED {
        stage.write(name, secret);
    }
    fs::hard_link(stage.work().join(".env"), stage.work().join("other")).unwrap();
    stage.write("allowed", "one may be read\n");
    stage.write("new/allowed", "another may be read\n");
}

fn check_absent(ended: &Ended, secret: &str) {
    let text = ended.text();
    assert!(!text.contains(secret), "{ended:?}");
    assert!(text.contains("one may be read") && text.contains("another may be read"), "{ended:?}");
    assert!(![".env", ".ssh", ".aws", "other"].iter().any(|name| text.lines().any(|line| line == *name)), "{ended:?}");
}

#[test]
fn f22_a_denied_file_that_comes_between_two_runs_of_a_session_is_absent_in_the_next() {
    for mode in ["review", "read-only"] {
        for asked_before in ["true", READ] {
            let Some(stage) = walled_with(&format!("fs: {{ workspace: {{ mode: {mode} }} }}\n")) else { return };
            let secret = secret().unwrap();
            stage.write("sub/note", "a note\n");
            let session = Session::start(&stage, "work", &[]);
            // What a program asked for in vain, the kernel remembers for a while.
            session.sh(asked_before);
            make_denied(&stage, &secret);
            let ended = session.exec(&["--json"], &["sh", "-c", READ]).run().json();
            assert_eq!(ended["violations"], Value::Array(Vec::new()), "{mode}: it came before the run");
            let text = ended["stdout"].as_str().unwrap();
            assert!(!text.contains(&secret) && !text.contains(".env"), "{mode}: {ended}");
            if asked_before == "true" {
                check_absent(&session.sh(READ), &secret);
            }
            let twin = sh(&stage, Wall::Bare, READ, &[]);
            assert_eq!(twin.text().matches(&secret).count(), DENIED.len() + 1, "the probe proves nothing: {twin:?}");
        }
    }
}

#[test]
fn f22_what_was_taken_away_in_a_session_is_no_change_of_its_and_stays_on_the_host() {
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    stage.write("sub/note", "a note\n");
    let session = Session::start(&stage, "work", &[]);
    session.sh("echo own > mine").expect(0, &[]);
    make_denied(&stage, &secret);
    session.sh("echo more > sub/more; rm sub/note").expect(0, &[]);
    stage.ringfence(["session", "stop", "work"]).run().expect(0, &["3 changes (2 added, 1 removed)"]);
    let diff = stage.ringfence(["diff", "--name-only"]).run().expect(0, &[]).text();
    assert_eq!(diff, "mine\nsub/more\nsub/note\n");
    stage.ringfence(["apply"]).run().expect(0, &[]);
    assert_eq!(
        (stage.read("mine").as_deref(), stage.read("sub/note")),
        (Some("own\n"), None),
        "the twin: it is applied"
    );
    for name in DENIED.iter().chain(&["other"]) {
        assert_eq!(stage.read(name).as_deref(), Some(secret.as_str()), "{name} of the host");
    }
}

#[test]
fn f22_a_session_in_which_nothing_but_denied_files_came_has_no_changes() {
    let Some(stage) = walled() else { return };
    let session = Session::start(&stage, "work", &[]);
    make_denied(&stage, "x");
    session.sh("true").expect(0, &[]);
    let stopped = stage.ringfence(["session", "stop", "work"]).run().expect(0, &[]);
    assert!(!stopped.stderr.contains("change"), "{stopped:?}");
    assert_eq!(stage.read(".env").as_deref(), Some("x"));
}

#[test]
fn f22_what_a_program_made_under_a_denied_name_stays_its_own_when_the_host_makes_it_too() {
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    let session = Session::start(&stage, "work", &[]);
    session.sh("echo own > .env; mkdir .ssh; echo own > .ssh/own; mkdir -p sub; echo own > sub/.env").expect(0, &[]);
    for name in [".env", ".ssh/config", ".ssh/own", "sub/.env"] {
        stage.write(name, &secret);
    }
    let script = "cat .env .ssh/own sub/.env; cat .ssh/config; ls .ssh";
    for _ in 0..2 {
        let ended = session.sh(script);
        assert_eq!(ended.text(), "own\nown\nown\nown\n", "{ended:?}");
    }
    // It goes as it came: what is below does not appear.
    let ended = session.sh("rm -rf .env .ssh sub; cat .env .ssh/config sub/.env; ls -A");
    assert_eq!(ended.text(), "sandbox.policy.yaml\n", "{ended:?}");
    for name in [".env", ".ssh/config", ".ssh/own", "sub/.env"] {
        assert_eq!(stage.read(name).as_deref(), Some(secret.as_str()), "{name} of the host");
    }
}

#[test]
fn f22_a_file_that_could_be_denied_again_and_again_stays_absent() {
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    stage.write(".env", &secret);
    let session = Session::start(&stage, "work", &[]);
    for _ in 0..3 {
        fs::remove_file(stage.work().join(".env")).unwrap();
        // A program's own, made and removed while the host has none, leaves no mark.
        session.sh("cat .env; echo own > .env; rm .env").expect(0, &[]);
        stage.write(".env", &secret);
        let ended = session.sh("cat .env; ls -A");
        assert_eq!(ended.text(), "sandbox.policy.yaml\n", "{ended:?}");
    }
}

#[test]
fn f22_a_denied_file_in_a_folder_that_is_closed_to_its_owner_is_taken_away_too() {
    use std::os::unix::fs::PermissionsExt;
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    stage.write("closed/note", "a note\n");
    let closed = stage.work().join("closed");
    let session = Session::start(&stage, "work", &[]);
    stage.write("closed/.env", &secret);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    let ended = session.sh("cat closed/.env; cat closed/note; stat -c %a closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(ended.text(), "a note\n555\n", "{ended:?}");
}

#[test]
fn f22_a_denied_file_that_cannot_be_taken_away_keeps_programs_from_starting() {
    if !is_root() {
        eprintln!("SKIPPED: only root can give a folder to somebody else");
        return;
    }
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    stage.write("theirs/note", "a note\n");
    let theirs = stage.work().join("theirs");
    std::os::unix::fs::chown(&theirs, Some(12_345), Some(12_345)).unwrap();
    let session = Session::start(&stage, "work", &[]);
    session.sh("cat theirs/note").expect(0, &[]);
    stage.write("theirs/.env", &secret);
    let ended = session.sh("cat theirs/.env").expect(125, &["theirs/.env", "could not be taken away"]);
    assert_eq!(ended.text(), "");
    drop(session);
    let session = Session::start(&stage, "again", &[]);
    let ended = session.sh("cat theirs/.env; cat theirs/note");
    assert_eq!(ended.text(), "a note\n", "the twin: what is there before a wall is raised is taken away: {ended:?}");
}

/// A run that waits for a line before it reads.
struct Waiting<'a> {
    stage: &'a Stage,
    child: Child,
}

impl<'a> Waiting<'a> {
    fn start(stage: &'a Stage, script: &str) -> Self {
        let script = format!("read line; {script}");
        let flags = ["--json", "--stdin"];
        let child = run(stage, Wall::Native, &flags, &["sh", "-c", &script]).stdin_from(Stdio::piped()).start();
        let started = || fs::read_to_string(stage.ledger()).is_ok_and(|text| text.contains("\"started\""));
        assert!(until(SOON, started), "it does not start");
        Self { stage, child }
    }

    fn go(mut self) -> Value {
        self.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let outcome = Ended::from(self.child.wait_with_output().unwrap()).expect(0, &[]).json();
        self.stage.ringfence(["log", "verify"]).run().expect(0, &[]);
        outcome
    }
}

fn denied(outcome: &Value) -> Vec<&str> {
    let all = outcome["violations"].as_array().unwrap().iter().filter(|one| one["rule"] == "fs.deny.later");
    all.map(|one| one["message"].as_str().unwrap()).collect()
}

fn evidence(outcome: &Value) -> &str {
    let all = outcome["enforced"].as_array().unwrap();
    all.iter().find(|one| one["guarantee"] == "fs.deny").unwrap()["evidence"].as_str().unwrap()
}

#[test]
fn f22_a_run_during_which_a_denied_file_came_says_so_and_one_without_says_nothing() {
    let Some(stage) = walled() else { return };
    let waiting = Waiting::start(&stage, "echo own > mine");
    stage.write("sub/.env", "came");
    stage.write("allowed", "came");
    let outcome = waiting.go();
    let [message] = denied(&outcome)[..] else { panic!("{outcome}") };
    assert!(message.contains("sub/.env") && message.contains("may have been read"), "{message}");
    assert!(!message.contains("allowed"), "{message}");
    assert!(evidence(&outcome).contains("later ones were looked for until its end"), "{outcome}");
    let diff = stage.ringfence(["diff", "--name-only"]).run().expect(0, &[]).text();
    assert_eq!(diff, "mine\n");
    stage.ringfence(["apply"]).run().expect(0, &[]);
    assert_eq!((stage.read("sub/.env").as_deref(), stage.read("mine").as_deref()), (Some("came"), Some("own\n")));
    // The twin, for which it was there before.
    let outcome = Waiting::start(&stage, "cat allowed sub/.env; true").go();
    assert_eq!((denied(&outcome), &outcome["stdout"]), (Vec::new(), &"came".into()), "{outcome}");
}

#[test]
fn f22_what_comes_while_a_program_runs_is_taken_away_from_it() {
    for mode in ["review", "read-only"] {
        for wait in [Duration::ZERO, Duration::from_millis(1_600)] {
            let Some(stage) = walled_with(&format!("fs: {{ workspace: {{ mode: {mode} }} }}\n")) else { return };
            let secret = secret().unwrap();
            stage.write("sub/note", "a note\n");
            let waiting = Waiting::start(&stage, &format!("{READ}; true"));
            std::thread::sleep(wait);
            make_denied(&stage, &secret);
            // Ten looks, or much more time than a watch needs.
            std::thread::sleep(Duration::from_secs(1));
            let outcome = waiting.go();
            let text = outcome["stdout"].as_str().unwrap();
            assert!(!text.contains(&secret), "{mode} {wait:?}: {outcome}");
            assert!(text.contains("one may be read") && text.contains("another may be read"), "{mode}: {outcome}");
            let [message] = denied(&outcome)[..] else { panic!("{outcome}") };
            for name in DENIED.iter().map(|name| name.trim_end_matches("/config").trim_end_matches("/x/credentials")) {
                assert!(message.contains(name), "{name} in {message}");
            }
            let how = if wait.is_zero() { "later ones were" } else { "later ones were watched for" };
            assert!(evidence(&outcome).contains(how), "{outcome}");
            assert_eq!(outcome["workspaceChanged"], false, "{outcome}");
        }
    }
}

#[test]
fn f22_a_denied_file_that_came_and_went_is_told_where_folders_are_watched() {
    let Some(stage) = walled() else { return };
    let waiting = Waiting::start(&stage, "true");
    std::thread::sleep(Duration::from_millis(1_600));
    fs::remove_file(stage.write(".netrc", "came and went")).unwrap();
    let outcome = waiting.go();
    assert!(denied(&outcome).iter().any(|message| message.contains(".netrc")), "{outcome}");
    assert!(evidence(&outcome).contains("watched for"), "{outcome}");
}
