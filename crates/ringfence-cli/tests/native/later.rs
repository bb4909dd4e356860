//! Denied files that come on the host after a sandbox was made: nothing is started in it any more, and what ran meanwhile
//! is told of them.

use std::fs;
use std::io::Write;
use std::process::Stdio;

use ringfence_testkit::canary::{secret, until};
use serde_json::{Value, json};

use crate::probe::{outside, text, walled, walled_with, walled_with_deps};
use crate::sessions::Session;
use crate::stage::{Ended, Invocation, SOON, Stage};

pub(crate) const CAME_LATER: &str = "fs.deny.came-later";
/// Nothing is looked up before the line comes: what a program knows to be missing, it may go on to miss.
pub(crate) const READS: &str = "read line; cat .env; cat sub/.env";

fn records(stage: &Stage) -> Vec<Value> {
    let ledger = fs::read_to_string(stage.ledger()).unwrap_or_default();
    ledger.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn started(stage: &Stage) -> usize {
    records(stage).iter().filter(|record| record["kind"] == "started").count()
}

/// Starts a program that waits for a line, does something on the host, and lets it go on.
pub(crate) fn meanwhile(stage: &Stage, invocation: Invocation<'_>, act: impl FnOnce()) -> Ended {
    let before = started(stage);
    let mut child = invocation.stdin_from(Stdio::piped()).start();
    assert!(until(SOON, || started(stage) > before), "it did not start");
    act();
    child.stdin.take().unwrap().write_all(b"now\n").unwrap();
    Ended::from(child.wait_with_output().unwrap())
}

pub(crate) fn run<'a>(stage: &'a Stage, flags: &[&str], script: &str) -> Invocation<'a> {
    stage.ringfence([&["run", "--stdin"], flags, &["--", "sh", "-c", script]].concat())
}

pub(crate) fn told(outcome: &Value) -> Vec<&str> {
    let violations = outcome["violations"].as_array().unwrap();
    violations.iter().filter(|one| one["rule"] == CAME_LATER).map(|one| one["message"].as_str().unwrap()).collect()
}

#[test]
fn s02_nothing_is_started_in_a_session_that_is_older_than_a_denied_file() {
    let Some(stage) = walled() else { return };
    let hidden = secret().unwrap();
    stage.write("sub/.env", &hidden);
    stage.write("open/plain", "");
    let session = Session::start(&stage, "work", &[]);
    session.sh("test ! -e sub/.env").expect(0, &[]);
    // The twin: what is not denied comes in, and so would this.
    stage.write("notes.txt", "a note\n");
    assert_eq!(session.sh("cat notes.txt").expect(0, &[]).text(), "a note\n");
    // What was taken away stays away, whatever the host writes into it.
    stage.write("sub/.env", format!("{hidden} once more"));
    session.sh("test ! -e sub/.env").expect(0, &[]);
    stage.write("open/.env", &hidden);
    let before = started(&stage);
    let ended = session.sh("cat open/.env; echo ran").expect(126, &[CAME_LATER, "`open/.env`", "session start"]);
    assert!(ended.stdout.is_empty() && !ended.stderr.contains(&hidden), "{ended:?}");
    let outcome = session.exec(&["--json"], &["cat", "open/.env"]).run().expect(126, &[]).json();
    assert_eq!((&outcome["status"], &outcome["refusal"]["rule"]), (&json!("refused"), &json!(CAME_LATER)));
    assert!(outcome["advice"].as_str().unwrap().contains("open a new one"), "{outcome:#}");
    assert!(!outcome["refusal"].to_string().contains("sub/.env"), "{outcome:#}");
    assert_eq!(started(&stage), before, "something was started");
    let id = outcome["runId"].as_str().unwrap();
    let judged = records(&stage).into_iter().find(|one| one["run"] == id && one["kind"] == "judged").unwrap();
    assert_eq!(judged["body"]["refusal"]["rule"], CAME_LATER, "{judged:#}");
    // It goes on when the file is gone, and a new one never shows it.
    fs::rename(stage.work().join("open/.env"), stage.path().join("elsewhere")).unwrap();
    session.sh("true").expect(0, &[]);
    fs::rename(stage.path().join("elsewhere"), stage.work().join("open/.env")).unwrap();
    session.sh("true").expect(126, &[CAME_LATER]);
    let young = Session::start(&stage, "young", &[]);
    assert!(!young.sh("cat open/.env; find . -name .env").expect(0, &[]).text().contains(".env"));
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
}

#[test]
fn s02_a_denied_file_comes_in_many_ways_and_each_stops_a_session() {
    let Some(stage) = walled() else { return };
    stage.write("a/plain", "");
    stage.write("b/harmless", "");
    let ways: [(&str, &str, &str); 6] = [
        ("echo x > a/.env", "rm a/.env", "`a/.env`"),
        ("mv b/harmless b/.npmrc", "mv b/.npmrc b/harmless", "`b/.npmrc`"),
        ("mkdir -p a/.ssh; echo x > a/.ssh/key", "rm a/.ssh/key; rmdir a/.ssh", "`a/.ssh`"),
        ("ln -s /nowhere .netrc", "rm .netrc", "`.netrc`"),
        ("mkdir ../made; echo x > ../made/.env; mv ../made made", "rm made/.env; rmdir made", "`made/.env`"),
        ("echo x > \"id_rsa\n\x1b[31m\"", "rm id_rsa?*", "id_rsa\\n\\u{1b}[31m"),
    ];
    let session = Session::start(&stage, "work", &[]);
    let on_the_host = |script: &str| {
        let done = std::process::Command::new("sh").args(["-c", script]).current_dir(stage.work()).status().unwrap();
        assert!(done.success(), "{script}");
    };
    for (come, go, named) in ways {
        session.sh("true").expect(0, &[]);
        on_the_host(come);
        session.sh("echo ran").expect(126, &[CAME_LATER, named]);
        on_the_host(go);
    }
    // Another name of a file that was denied at the start shows the same.
    stage.write("b/.env", "x");
    let other = Session::start(&stage, "other", &[]);
    other.sh("test ! -e b/.env").expect(0, &[]);
    fs::hard_link(stage.work().join("b/.env"), stage.work().join("a/notes")).unwrap();
    other.sh("cat a/notes").expect(126, &[CAME_LATER, "`a/notes`"]);
}

#[test]
fn s02_what_came_while_a_program_ran_is_told_whatever_the_mode() {
    for mode in ["review", "read-only", "direct"] {
        let Some(stage) = walled_with(&format!("fs: {{ workspace: {{ mode: {mode} }} }}\n")) else { return };
        let hidden = secret().unwrap();
        stage.write("sub/.env", "taken away");
        let come = || drop(stage.write(".env", &hidden));
        let outcome = meanwhile(&stage, run(&stage, &["--json"], READS), come).json();
        // Honestly: it can be read. That is why it is told.
        assert_eq!(outcome["stdout"], hidden, "{mode}: {outcome:#}");
        let messages = told(&outcome);
        assert!(messages.len() == 1 && messages[0].contains("`.env`"), "{mode}: {outcome:#}");
        assert!(!messages[0].contains("sub/.env") && !messages[0].contains(&hidden), "{mode}: {messages:?}");
        assert_eq!(outcome["status"], "exited");
        let ended = records(&stage).into_iter().rfind(|one| one["kind"] == "ended").unwrap();
        assert_eq!(ended["body"]["violations"][0]["rule"], CAME_LATER, "{ended:#}");
        fs::remove_file(stage.work().join(".env")).unwrap();
        // Also for a person, and for one who wants to hear only what went wrong; the exit code is the program's own.
        for flags in [&[][..], &["-q"]] {
            let come = || drop(stage.write(".env", &hidden));
            let ended = meanwhile(&stage, run(&stage, flags, "read line; exit 3"), come);
            ended.expect(3, &[CAME_LATER, "`.env`"]);
            fs::remove_file(stage.work().join(".env")).unwrap();
        }
        // The twin: nothing came, and what was there before is none of it.
        stage.write(".env", &hidden);
        let outcome = meanwhile(&stage, run(&stage, &["--json"], READS), || {}).json();
        assert_eq!((&outcome["stdout"], &outcome["violations"]), (&json!(""), &json!([])), "{mode}: {outcome:#}");
    }
}

#[test]
fn s02_a_program_hides_nothing_that_came_by_what_it_does_in_its_own_layer() {
    let Some(stage) = walled() else { return };
    let hidden = secret().unwrap();
    let scripts = [
        "read line; cat .env; rm .env",
        "read line; cat .env; mv .env other; mkdir .env",
        "echo own > .env; read line; rm .env; cat .env",
        "read line; cat .env; for name in * .env; do rm -rf $name; done",
    ];
    for script in scripts {
        let come = || drop(stage.write(".env", &hidden));
        let outcome = meanwhile(&stage, run(&stage, &["--json"], script), come).json();
        assert_eq!(told(&outcome).len(), 1, "{script}: {outcome:#}");
        assert_eq!(stage.read(".env").unwrap(), hidden, "the host's own file is as it was");
        fs::remove_file(stage.work().join(".env")).unwrap();
    }
    // What it makes itself is its own: no other program is kept from starting, and nothing is told.
    let session = Session::start(&stage, "work", &[]);
    session.sh("echo own > .env; mkdir -p deep/.ssh").expect(0, &[]);
    let outcome = session.exec(&["--json"], &["cat", ".env"]).run().expect(0, &[]).json();
    assert_eq!((&outcome["stdout"], &outcome["violations"]), (&json!("own\n"), &json!([])));
    stage.write(".env", &hidden);
    session.sh("cat .env").expect(126, &[CAME_LATER]);
}

#[test]
fn s02_programs_of_a_session_are_told_of_what_came_while_they_ran_and_so_is_its_end() {
    let Some(stage) = walled() else { return };
    let hidden = secret().unwrap();
    let session = Session::start(&stage, "work", &[]);
    let background = session.exec(&["--background"], &["sh", "-c", "sleep 1.5; exit 4"]).run().expect(0, &[]).text();
    let come = || drop(stage.write(".env", &hidden));
    let outcome = meanwhile(&stage, session.exec(&["--json", "-i"], &["sh", "-c", READS]), come).json();
    assert_eq!((&outcome["stdout"], told(&outcome).len()), (&json!(hidden), 1), "{outcome:#}");
    // One that ran at the same time may have read it, too.
    let outcome = stage.ringfence(["session", "wait", "--json", "work", background.trim()]).run().expect(4, &[]).json();
    assert_eq!(told(&outcome).len(), 1, "{outcome:#}");
    let ended = stage.ringfence(["session", "stop", "work"]).run().expect(0, &[CAME_LATER, "`.env`"]);
    assert!(!ended.stderr.contains(&hidden), "{ended:?}");
    let last = records(&stage).into_iter().rfind(|one| one["kind"] == "ended").unwrap();
    assert_eq!(last["body"]["session"]["violation"]["rule"], CAME_LATER, "{last:#}");
    // The twin: a session beside which nothing came.
    fs::remove_file(stage.work().join(".env")).unwrap();
    let quiet = Session::start(&stage, "quiet", &[]);
    quiet.sh("true").expect(0, &[]);
    let ended = stage.ringfence(["session", "stop", "quiet"]).run().expect(0, &[]);
    assert_eq!(ended.stderr, "", "{ended:?}");
}

#[test]
fn s02_a_folder_that_is_mounted_is_looked_at_too_and_called_by_its_place_inside() {
    let Some(stage) = walled_with_deps() else { return };
    let (folder, hidden) = (outside(&stage), secret().unwrap());
    fs::write(folder.join("plain"), "").unwrap();
    let session = Session::start(&stage, "work", &[]);
    session.sh("cat /deps/plain").expect(0, &[]);
    let come = || fs::write(folder.join(".env"), &hidden).unwrap();
    let outcome = meanwhile(&stage, session.exec(&["--json", "-i"], &["sh", "-c", "read line; cat /deps/.env"]), come);
    let outcome = outcome.json();
    assert_eq!((&outcome["stdout"], told(&outcome).len()), (&json!(hidden), 1), "{outcome:#}");
    let ended = session.sh("cat /deps/.env").expect(126, &[CAME_LATER, "`/deps/.env`"]);
    assert!(!ended.stderr.contains(text(&folder)), "{ended:?}");
}

#[test]
fn s02_an_ephemeral_workspace_has_nothing_that_could_come_later() {
    let Some(stage) = walled_with("fs: { workspace: { mode: ephemeral } }\n") else { return };
    let session = Session::start(&stage, "work", &[]);
    stage.write(".env", "x");
    let outcome = session.exec(&["--json"], &["ls", "-A"]).run().expect(0, &[]).json();
    assert_eq!((&outcome["stdout"], &outcome["violations"]), (&json!(""), &json!([])), "{outcome:#}");
}

#[test]
fn r09_a_host_that_changes_all_the_time_holds_up_neither_a_look_nor_a_time_limit() {
    let Some(stage) = walled() else { return };
    for number in 0..200 {
        fs::create_dir_all(stage.work().join(format!("tree/{number}/inner"))).unwrap();
    }
    let session = Session::start(&stage, "work", &[]);
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let (made, moved) = (stage.work().join("tree/made"), stage.work().join("tree/7/moved"));
                fs::create_dir_all(made.join("inner")).unwrap();
                fs::rename(&made, &moved).unwrap();
                fs::remove_dir_all(&moved).unwrap();
            }
        });
        let begun = std::time::Instant::now();
        let codes: Vec<i32> =
            (0..10).map(|_| session.exec(&["-q", "--timeout", "300ms"], &["sleep", "20"]).run().code).collect();
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        // Where it could not be known, it is refused and not hoped for.
        assert!(codes.iter().all(|code| [124, 126].contains(code)) && codes.contains(&124), "{codes:?}");
    });
}

#[test]
fn s02_a_denied_file_that_was_gone_for_a_while_is_one_that_came() {
    let Some(stage) = walled() else { return };
    let hidden = secret().unwrap();
    let file = stage.write(".env", &hidden);
    let session = Session::start(&stage, "work", &[]);
    session.sh("test ! -e .env").expect(0, &[]);
    fs::remove_file(&file).unwrap();
    // With its own file a program takes the mark away, too.
    session.sh("touch .env && rm .env").expect(0, &[]);
    fs::write(&file, &hidden).unwrap();
    let ended = session.sh("cat .env; echo ran").expect(126, &[CAME_LATER, "`.env`"]);
    assert!(ended.stdout.is_empty() && !ended.stderr.contains(&hidden), "{ended:?}");
    fs::remove_file(&file).unwrap();
    session.sh("test ! -e .env").expect(0, &[]);
}
