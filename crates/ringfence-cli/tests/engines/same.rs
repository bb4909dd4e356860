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

/// One request: the words after `ringfence run --json`, its standard input, and what else the policy says.
struct Asked {
    words: Vec<&'static str>,
    stdin: &'static str,
    policy: &'static str,
}

fn requests() -> Vec<Asked> {
    let plain = |words: &[&'static str]| Asked { words: words.to_vec(), stdin: "", policy: "" };
    let sh = |script: &'static str| plain(&["--", "sh", "-c", script]);
    let line = |line: &'static str| plain(&["--shell", line]);
    let python = |code: &'static str| plain(&["--lang", "python", "--code", code]);
    let bash = |code: &'static str| plain(&["--lang", "bash", "--code", code]);
    let fed = |stdin: &'static str, words: &[&'static str]| Asked {
        words: [&["--stdin"], words].concat(),
        stdin,
        policy: "",
    };
    let allowlist = |code: &'static str| Asked {
        words: vec!["--lang", "python", "--code", code],
        stdin: "",
        policy: "net: { mode: allowlist, allow: [a.test], localhost: [9] }\n",
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
    let script = place.stage.write("script.sh", "#!/bin/sh\necho \"script $# $1\"\n");
    std::fs::set_permissions(script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let invocation = place.ringfence(&[&["run", "--json"], &asked.words[..]].concat());
    let ended = if asked.stdin.is_empty() { invocation.run() } else { invocation.stdin(asked.stdin).run() };
    let text = place.stage.neutral(&ended.text());
    let outcome = serde_json::from_str(&text).map_or(Value::Null, neutral);
    serde_json::json!({ "code": ended.code, "outcome": outcome })
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
        let expected: &Vec<Value> =
            expected.get_or_init(|| requests().iter().map(|one| answer(&native, one)).collect());
        if expected.iter().all(|one| one["code"] == 125) {
            eprintln!("SKIPPED: native, which the others are compared with, cannot be used here");
            return;
        }
        let mut different = Vec::new();
        for (asked, expected) in requests().iter().zip(expected) {
            let found = answer(&place.wall, asked);
            if found != *expected {
                different.push(format!("{:?}\n  native {expected}\n  here   {found}", asked.words));
            }
        }
        assert!(different.is_empty(), "on {}:\n{}", place.wall, different.join("\n"));
    });
}
