//! What comes out: streams, JSON, events, a terminal, a dry run.

use std::fs::File;
use std::io::Read;

use rustix::pty::OpenptFlags;

use crate::stage::{Ended, Stage};

#[test]
fn stdout_is_the_programs_own_and_talk_goes_to_stderr() {
    let stage = Stage::new();
    let ended =
        stage.ringfence(["run", "--backend", "spawn", "--", "sh", "-c", "echo out; echo err >&2"]).run().expect(0, &[]);
    assert_eq!(ended.text(), "out\n");
    assert!(ended.stderr.starts_with("err\n"), "{}", ended.stderr);
    assert!(ended.stderr.contains("warning: `spawn` is no wall; not enforced: fs.confined"), "{}", ended.stderr);
    let quiet = stage.spawn_sh("echo out; echo err >&2").run().expect(0, &[]);
    assert_eq!((quiet.text().as_str(), quiet.stderr.as_str()), ("out\n", "err\n"));
}

#[test]
fn bytes_that_are_no_text_pass_through_and_are_whole_in_json() {
    let stage = Stage::new();
    let script = "printf 'a\\377\\000b'";
    assert_eq!(stage.spawn_sh(script).run().stdout, b"a\xff\0b");
    let outcome = stage.spawn_sh_with(&["--json"], script).run().json();
    assert_eq!(outcome["stdoutBase64"], "Yf8AYg==");
    let events = stage.spawn_sh_with(&["--events"], script).run().text();
    assert!(events.contains("\"dataBase64\":\"Yf8AYg==\""), "{events}");
}

#[test]
fn the_outcome_has_every_stable_name() {
    const NAMES: [&str; 20] = [
        "runId",
        "status",
        "exitCode",
        "signal",
        "stdout",
        "stderr",
        "timedOut",
        "oomKilled",
        "outputTruncated",
        "resourceUsage",
        "effectivePolicy",
        "enforced",
        "notEnforced",
        "violations",
        "refusal",
        "advice",
        "retryable",
        "backend",
        "image",
        "startedAt",
    ];
    const USAGE: [&str; 5] = ["wallTimeMs", "cpuTimeMs", "memoryPeakBytes", "bytesRead", "bytesWritten"];
    let stage = Stage::with_policy("version: 1\nbackend: spawn\ncommands:\n  - deny: [rm]\n    matches: [\"rm x\"]\n");
    for command in ["true", "false", "rm", "no-such-program"] {
        let ended = stage.ringfence(["run", "--json", "--", command]).run();
        let outcome = ended.json();
        for name in NAMES {
            assert!(outcome.get(name).is_some(), "{command}: {name} is missing");
        }
        for name in USAGE {
            assert!(outcome["resourceUsage"][name].is_u64(), "{command}: resourceUsage.{name} is missing");
        }
        assert_eq!(outcome["effectivePolicy"]["backend"]["use"], "spawn");
    }
    let refused = stage.ringfence(["run", "--json", "--", "rm", "x"]).run().expect(126, &[]).json();
    assert_eq!(refused["status"], "refused");
    for name in ["rule", "subject", "reason", "place", "hint", "advice", "retryable"] {
        assert!(refused["refusal"].get(name).is_some(), "refusal.{name} is missing: {}", refused["refusal"]);
    }
    assert!(refused["advice"].as_str().unwrap().contains("Do not retry"));
    let missing = stage.ringfence(["run", "--json", "--", "no-such-program"]).run().expect(127, &[]).json();
    assert_eq!(
        (&missing["status"], &missing["error"]["kind"], &missing["retryable"]),
        (&"couldNotRun".into(), &"notFound".into(), &true.into())
    );
}

#[test]
fn the_outcome_says_what_was_used() {
    let stage = Stage::new();
    let script = "n=0; while [ $n -lt 300000 ]; do n=$((n+1)); done; sleep 0.3";
    let outcome = stage.spawn_sh_with(&["--json"], script).run().expect(0, &[]).json();
    let usage = |name: &str| outcome["resourceUsage"][name].as_u64().unwrap();
    assert!(usage("wallTimeMs") >= 300, "{}", outcome["resourceUsage"]);
    assert!(usage("cpuTimeMs") > 10 && usage("memoryPeakBytes") > 500_000, "{}", outcome["resourceUsage"]);
}

#[test]
fn events_are_json_lines_from_started_to_ended() {
    let stage = Stage::new();
    let ended = stage
        .spawn_sh_with(&["--events", "--timeout", "1500ms"], "echo out; echo err >&2; exec sleep 9")
        .run()
        .expect(124, &[]);
    let events: Vec<serde_json::Value> = ended.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names.first(), Some(&"started"));
    assert_eq!(names.last(), Some(&"ended"));
    for name in ["stdout", "stderr", "usage", "violation"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    assert_eq!(names.iter().filter(|name| **name == "ended").count(), 1);
    assert!(events.iter().all(|event| event["v"] == 1), "each line has its version");
    let run = &events[0]["runId"];
    assert_eq!(run, &events.last().unwrap()["outcome"]["runId"]);
    assert_eq!(stage.ringfence(["log", "show", run.as_str().unwrap()]).run().code, 0);
}

#[test]
fn a_refusal_is_one_event() {
    let stage = Stage::with_policy("version: 1\nbackend: spawn\ncommands:\n  - deny: [rm]\n    matches: [\"rm x\"]\n");
    let ended = stage.ringfence(["run", "--events", "--", "rm", "x"]).run().expect(126, &[]);
    let events: Vec<serde_json::Value> = ended.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.len(), 1);
    assert_eq!(events[0]["outcome"]["status"], "refused");
}

#[test]
fn a_dry_run_prints_a_plan_and_starts_nothing() {
    let stage = Stage::spawn();
    let plan = stage.ringfence(["run", "--dry-run", "--", "touch", "canary"]).run().expect(0, &[]).text();
    assert!(plan.contains("backend   spawn") && plan.contains("not enforced"), "{plan}");
    stage.ringfence(["run", "--dry-run", "--lang", "bash", "--code", "touch canary"]).run().expect(0, &[]);
    assert_eq!(stage.read("canary"), None);
    assert!(!stage.state().join("scratch").exists(), "a dry run leaves files");
    stage.ringfence(["run", "-q", "--", "touch", "canary"]).run().expect(0, &[]);
    assert!(stage.read("canary").is_some(), "the twin");
}

#[test]
fn a_dry_run_tells_what_would_be_refused_or_missing_with_the_same_code() {
    let stage = Stage::with_policy("version: 1\nbackend: spawn\ncommands:\n  - deny: [rm]\n    matches: [\"rm x\"]\n");
    stage.ringfence(["run", "--dry-run", "--", "rm", "x"]).run().expect(126, &["refused:"]);
    stage.ringfence(["run", "--dry-run", "--backend", "kubernetes", "--", "true"]).run().expect(125, &["error:"]);
}

#[test]
fn a_dry_run_as_json_is_json() {
    let stage = Stage::spawn();
    let plan = stage.ringfence(["run", "--dry-run", "--json", "--", "touch", "canary"]).run().expect(0, &[]).json();
    assert_eq!((&plan["plan"]["backend"], &plan["plan"]["timeoutMs"]), (&"spawn".into(), &120_000.into()));
    assert!(plan["plan"]["notEnforced"].as_array().unwrap().contains(&"net.none".into()));
    assert_eq!(stage.read("canary"), None);
}

/// Runs `script` with a terminal for its standard output and error; what reaches the terminal.
fn on_a_terminal(script: &str) -> String {
    let stage = Stage::new();
    let ours = rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    rustix::pty::grantpt(&ours).unwrap();
    rustix::pty::unlockpt(&ours).unwrap();
    let name = rustix::pty::ptsname(&ours, Vec::new()).unwrap();
    let theirs = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    let mut child = stage.spawn_sh(script).stdout(theirs.try_clone().unwrap()).stderr(theirs).start();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let mut buffer = [0u8; 4096];
        // The terminal reports an error, not an end, when its last user is gone.
        while let Ok(read @ 1..) = File::read(&mut File::from(ours.try_clone().unwrap()), &mut buffer) {
            text.extend_from_slice(&buffer[..read]);
        }
        text
    });
    child.wait().unwrap();
    String::from_utf8_lossy(&reader.join().unwrap()).into_owned()
}

#[test]
fn r12_escapes_are_shown_on_a_terminal_and_not_sent() {
    let script =
        r"printf '\033[31mred\033[0m \033]52;c;aGk=\007 \033[2J \342\200\256 end\n'; printf '\033]0;title\007' >&2";
    let shown = on_a_terminal(script);
    assert!(shown.contains("\x1b[31mred\x1b[0m"), "colours stay: {shown:?}");
    assert!(shown.contains("\\x1b]52;c;aGk=\\x07") && shown.contains("\\x1b[2J"), "{shown:?}");
    assert!(shown.contains("\\u{202e}") && shown.contains("\\x1b]0;title"), "{shown:?}");
    assert!(
        !shown.contains("\x1b]")
            && !shown.contains("\x1b[2J")
            && !shown.contains('\u{202e}')
            && !shown.contains('\x07')
    );
}

#[test]
fn r12_the_twin_sends_them_to_a_pipe_unchanged() {
    let stage = Stage::new();
    assert_eq!(stage.spawn_sh(r"printf '\033]52;c;aGk=\007'").run().stdout, b"\x1b]52;c;aGk=\x07");
}

#[test]
fn r12_escapes_in_a_command_reach_neither_a_refusal_nor_the_log() {
    let stage = Stage::with_policy("version: 1\nbackend: spawn\ncommands:\n  - deny: [rm]\n    matches: [\"rm x\"]\n");
    let ended = stage.ringfence(["run", "--", "rm", "\x1b]0;title\x07\nfake line \u{202e}"]).run().expect(126, &[]);
    assert!(!ended.stderr.contains('\x1b') && !ended.stderr.contains('\u{202e}'), "{:?}", ended.stderr);
    let log = stage.ringfence(["log"]).run().expect(0, &[]).text();
    assert!(!log.contains('\x1b') && !log.contains('\u{202e}') && log.lines().count() == 1, "{log:?}");
    let id = log.split_whitespace().next().unwrap().to_owned();
    let shown: Ended = stage.ringfence(["log", "show", &id]).run().expect(0, &[]);
    assert!(!shown.text().contains('\x1b') && !shown.text().contains('\u{202e}'), "{:?}", shown.text());
}
