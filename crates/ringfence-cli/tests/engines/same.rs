//! The same requests on every wall have the same outcome, but for the wall's own name and what it measured.

use ringfence_policy::BackendKind;
use ringfence_testkit::backends::Wall;
use serde_json::Value;

use crate::walls::{Walled, for_each_engine};

/// What differs between two walls, or two runs, and is about neither the program nor the policy.
const OWN: [&str; 9] = [
    "runId",
    "backend",
    "image",
    "startedAt",
    "resourceUsage",
    "effectivePolicy",
    "enforced",
    "notEnforced",
    "envWithheld",
];

/// One request: the words after `ringfence run --json`, its standard input, what else the policy says, and what has to be enforced for
/// it to mean the same everywhere.
struct Asked {
    words: Vec<&'static str>,
    stdin: &'static str,
    policy: &'static str,
    needs: Option<&'static str>,
}

fn requests() -> Vec<Asked> {
    let plain = |words: &[&'static str]| Asked { words: words.to_vec(), stdin: "", policy: "", needs: None };
    let sh = |script: &'static str| plain(&["--", "sh", "-c", script]);
    let line = |line: &'static str| plain(&["--shell", line]);
    let python = |code: &'static str| plain(&["--lang", "python", "--code", code]);
    let bash = |code: &'static str| plain(&["--lang", "bash", "--code", code]);
    let fed = |stdin: &'static str, words: &[&'static str]| Asked {
        words: [&["--stdin"], words].concat(),
        stdin,
        policy: "",
        needs: None,
    };
    let allowlist = |code: &'static str| Asked {
        words: vec!["--lang", "python", "--code", code],
        stdin: "",
        policy: "net: { mode: allowlist, allow: [a.test], localhost: [9] }\n",
        needs: None,
    };
    let limited = |needs: &'static str, flags: &[&'static str], script: &'static str| Asked {
        words: [flags, &["--", "sh", "-c", script]].concat(),
        stdin: "",
        policy: "fs: { size: 16MiB }\n",
        needs: Some(needs),
    };
    vec![
        plain(&["--", "true"]),
        plain(&["--", "false"]),
        plain(&["--", "echo", "a", "b  c", "", "d'e\"f", "$HOME", "*"]),
        plain(&["--", "printf", "%s\\n", "ünïcödé", "日本語", "🦀"]),
        plain(&["--", "no-such-program-anywhere"]),
        plain(&["--", "/no/such/program"]),
        plain(&["--", "/etc/passwd"]),
        plain(&["--", "/tmp"]),
        plain(&["--", "./script.sh", "one", "two"]),
        plain(&["--", "sh", "script.sh"]),
        plain(&["--", "sleep", "0.1"]),
        sh("exit 0"),
        sh("exit 3"),
        sh("exit 126"),
        sh("exit 127"),
        sh("exit 137"),
        sh("exit 255"),
        sh("kill -9 $$"),
        sh("kill -TERM $$"),
        sh("kill -SEGV $$"),
        sh("echo out; echo err >&2"),
        sh("printf 'no end of line'"),
        sh("printf 'a\\000b\\377c\\n'"),
        sh("printf '\\033[31mred\\033[0m\\n'"),
        sh("pwd; id -u; id -g; umask"),
        sh("cat note; ls"),
        sh("cat missing; echo $?"),
        sh("echo new > new; rm note; mkdir d; echo x > d/x"),
        sh("echo more >> note; chmod 755 note; ln -s note link"),
        sh("echo x > .envrc; mkdir -p .git/hooks; echo x > .git/hooks/pre-commit; :"),
        sh("(echo x > /etc/x) 2> /dev/null; echo $?"),
        sh("(sleep 30 &); echo done"),
        sh("cat; echo end"),
        sh("test -t 0; echo $?; test -t 1; echo $?"),
        line("echo one && false || echo two; exit 4"),
        line("for i in 1 2 3; do echo $i; done | tac"),
        line("echo \"unterminated"),
        python("print(6 * 7)"),
        python("import sys; print('to err', file=sys.stderr); sys.exit(9)"),
        python("raise SystemExit(1)"),
        python("import os; print(sorted(k for k in os.environ if k.startswith('RF_')), os.environ.get('RF_A'))"),
        python("import os, signal; os.kill(os.getpid(), signal.SIGUSR1)"),
        bash("a=(1 2 3); echo ${#a[@]} ${a[-1]}"),
        bash("set -euo pipefail; false | true; echo never"),
        fed("fed\n", &["--", "cat"]),
        fed("", &["--", "cat"]),
        fed("1\n2\n3\n", &["--lang", "python", "--code", "import sys; print(sum(int(x) for x in sys.stdin))"]),
        plain(&["--env", "RF_A=x y=z", "--", "sh", "-c", "echo $RF_A"]),
        plain(&["--cwd", "sub", "--", "sh", "-c", "pwd; cat inner"]),
        plain(&["--cwd", "missing", "--", "true"]),
        plain(&["--cwd", "../..", "--", "true"]),
        plain(&["--timeout", "1s", "--", "sleep", "30"]),
        plain(&["--timeout", "1s", "--", "sh", "-c", "trap '' TERM; echo begun; sleep 30"]),
        allowlist("import os; print(sorted((k, v) for k, v in os.environ.items() if k.lower().endswith('proxy')))"),
        allowlist(
            "import urllib.request, urllib.error\ntry: urllib.request.urlopen('http://evil.test/x', timeout=20)\nexcept urllib.error.HTTPError as e: print(e.code, e.read())",
        ),
        allowlist(
            "import socket\nfor host in ('127.0.0.1', '192.0.2.1'):\n  try: socket.create_connection((host, 7), 5); print('reached')\n  except OSError: print('none')",
        ),
        plain(&["--output", "4KiB", "--", "sh", "-c", "yes | head -c 100000; echo end"]),
        // A file of the host that is sent, as it is or over the standard input.
        plain(&["--lang", "python", "code.py"]),
        plain(&["--lang", "bash", "missing.sh"]),
        fed("import os; print(__file__.rsplit('/')[-1], os.getcwd())", &["--lang", "python", "-"]),
        limited("proc.memory", &["--memory", "96MiB"], "exec python3 -c 'x = bytearray(400 << 20); print(len(x))'"),
        limited("proc.memory", &["--memory", "96MiB"], "python3 -c 'x = bytearray(20 << 20); print(len(x))'"),
        limited(
            "proc.processes",
            &["--processes", "16"],
            "(for i in $(seq 40); do sleep 1 & done) 2> /dev/null; echo went on",
        ),
        limited("proc.processes", &["--processes", "16"], "for i in 1 2 3 4; do sleep 0.1 & done; wait; echo all"),
        limited("fs.size", &[], "head -c 40000000 /dev/zero > big 2> /dev/null; echo $?; rm big; echo kept > kept"),
        limited("fs.size", &[], "head -c 40000000 /dev/zero > /tmp/big 2> /dev/null; echo $?"),
        limited("fs.size", &[], "head -c 4000000 /dev/zero > /tmp/small; echo $?"),
        limited("proc.open-files", &[], "ulimit -n; ulimit -c; ulimit -f"),
    ]
}

/// The outcome without what is the wall's own.
fn neutral(mut outcome: Value) -> Value {
    let Some(fields) = outcome.as_object_mut() else { return outcome };
    for name in OWN {
        fields.remove(name);
    }
    if let Some(violations) = fields.get_mut("violations").and_then(Value::as_array_mut) {
        for violation in violations {
            *violation = violation["rule"].clone();
        }
    }
    // The words of an error name the wall's own parts; that there is one does not.
    if let Some(error) = fields.get_mut("error") {
        *error = Value::Bool(!error.is_null());
    }
    outcome
}

fn answer(wall: &Wall, asked: &Asked) -> Value {
    let place = Walled::new(wall.clone(), asked.policy);
    place.stage.write("note", "a note\n");
    place.stage.write("sub/inner", "inner\n");
    place.stage.write("code.py", "print('from a file')\nraise SystemExit(6)\n");
    let script = place.stage.write("script.sh", "#!/bin/sh\necho \"script $# $1\"\n");
    std::fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let invocation = place.ringfence(&[&["run", "--json"], &asked.words[..]].concat());
    let ended = if asked.stdin.is_empty() { invocation.run() } else { invocation.stdin(asked.stdin).run() };
    let text = place.stage.neutral(&ended.text());
    let outcome = serde_json::from_str(&text).map_or(Value::Null, neutral);
    serde_json::json!({ "code": ended.code, "outcome": outcome })
}

/// Whatever is enforced behind a wall, as its own outcome says.
fn enforced(wall: &Wall) -> Vec<String> {
    let outcome = Walled::new(wall.clone(), "").outcome(&[], "true");
    let all = outcome["enforced"].as_array().cloned().unwrap_or_default();
    let enforced = all.iter().filter(|one| one["strength"] == "enforced");
    enforced.filter_map(|one| Some(one["guarantee"].as_str()?.to_owned())).collect()
}

#[test]
fn there_are_fifty_requests_and_no_two_are_the_same() {
    let mut all: Vec<String> = requests().iter().map(|asked| format!("{:?} {}", asked.words, asked.stdin)).collect();
    all.sort();
    all.dedup();
    assert!(all.len() >= 50 && all.len() == requests().len(), "{}", all.len());
}

#[test]
fn what_is_the_walls_own_is_left_out_and_nothing_else() {
    let outcome = serde_json::json!({
        "runId": "x", "backend": "native", "exitCode": 3, "stdout": "a", "violations": [{ "rule": "r", "evidence": "e" }],
        "error": { "chain": ["native failed"] }, "enforced": [],
    });
    let expected = serde_json::json!({ "exitCode": 3, "stdout": "a", "violations": ["r"], "error": true });
    assert_eq!(neutral(outcome), expected);
}

#[test]
fn fifty_varied_requests_have_the_same_outcome_on_every_wall() {
    let native = Wall::of(BackendKind::Native);
    let expected = std::sync::OnceLock::new();
    for_each_engine("", |place| {
        let (expected, kept): &(Vec<Value>, Vec<String>) =
            expected.get_or_init(|| (requests().iter().map(|one| answer(&native, one)).collect(), enforced(&native)));
        if expected.iter().all(|one| one["code"] == 125) {
            eprintln!("SKIPPED: native, which the others are compared with, cannot be used here");
            return;
        }
        let kept_here = enforced(&place.wall);
        let is_kept = |needs: &str| [kept, &kept_here].iter().all(|kept| kept.iter().any(|it| it == needs));
        let mut different = Vec::new();
        for (asked, expected) in requests().iter().zip(expected) {
            if let Some(needs) = asked.needs.filter(|needs| !is_kept(needs)) {
                eprintln!("SKIPPED: {}: {needs} is not enforced on both: {:?}", place.wall, asked.words);
                continue;
            }
            let found = answer(&place.wall, asked);
            if found != *expected {
                different.push(format!("{:?}\n  native {expected}\n  here   {found}", asked.words));
            }
        }
        assert!(different.is_empty(), "on {}:\n{}", place.wall, different.join("\n"));
    });
}

/// The words after `ringfence session exec`, but for the session's name, and the standard input.
const IN_A_SESSION: [(&[&str], &[&str], &str); 9] = [
    (&[], &["sh", "-c", "echo one > /tmp/kept; echo changed > note; echo new > new; exit 3"], ""),
    (&[], &["sh", "-c", "cat /tmp/kept note new; pwd; id -u"], ""),
    (&[], &["sh", "-c", "export A=1; cd sub; kill -9 $$"], ""),
    (&[], &["sh", "-c", "pwd; echo \"<$A>\"; umask"], ""),
    (&["-i"], &["cat"], "fed\n"),
    (&["--env", "A=b", "--cwd", "sub"], &["sh", "-c", "echo $A; cat inner; echo err >&2"], ""),
    (&["--timeout", "1s"], &["sleep", "30"], ""),
    (&["--output", "4KiB"], &["sh", "-c", "yes | head -c 100000; echo end"], ""),
    (&[], &["no-such-program-anywhere"], ""),
];

/// What a session answers, one run after the other, and what is left of it when it has ended.
fn session_answers(wall: &Wall) -> Vec<Value> {
    let place = Walled::new(wall.clone(), "");
    place.stage.write("note", "a note\n");
    place.stage.write("sub/inner", "inner\n");
    let outcome = |ended: &crate::stage::Ended| {
        let outcome = serde_json::from_str(&place.stage.neutral(&ended.text())).map_or(Value::Null, neutral);
        serde_json::json!({ "code": ended.code, "outcome": outcome })
    };
    let mut answers = vec![place.ringfence(&["session", "start", "work"]).run().code.into()];
    for (flags, argv, stdin) in IN_A_SESSION {
        let words = [&["session", "exec", "--json"], flags, &["work", "--"], argv].concat();
        answers.push(outcome(&place.ringfence(&words).stdin(stdin).run()));
    }
    let begun =
        place.ringfence(&["session", "exec", "--background", "work", "--", "sh", "-c", "echo later; exit 4"]).run();
    let id = begun.text();
    answers.push(outcome(&place.ringfence(&["session", "wait", "--json", "work", id.trim()]).run()));
    let stopped = place.ringfence(&["session", "stop", "work"]).run();
    let changes = place.ringfence(&["diff", "--name-only"]).run().text();
    answers.push(serde_json::json!({ "code": stopped.code, "changes": changes }));
    answers
}

#[test]
fn the_runs_of_a_session_have_the_same_outcomes_on_every_wall() {
    let native = Wall::of(BackendKind::Native);
    let expected = std::sync::OnceLock::new();
    for_each_engine("", |place| {
        let expected: &Vec<Value> = expected.get_or_init(|| session_answers(&native));
        if expected[0] == 125 {
            eprintln!("SKIPPED: native, which the others are compared with, cannot be used here");
            return;
        }
        assert_eq!(expected[0], 0, "{expected:#?}");
        for (number, (expected, found)) in expected.iter().zip(session_answers(&place.wall)).enumerate() {
            assert_eq!(found, *expected, "on {}, answer {number}", place.wall);
        }
    });
}
