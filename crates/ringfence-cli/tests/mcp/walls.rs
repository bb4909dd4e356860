//! What is behind the door: the wall, the policy, and no way to widen it.

use std::io::Read;
use std::net::TcpListener;

use ringfence_testkit::canary::secret;
use serde_json::{Value, json};

use crate::connection::{BOTH, Connection, Protocol, text};
use crate::origin::Origin;
use crate::probe::{interpreter, outside, walled, walled_with};
use crate::stage::Stage;

fn stdout(result: &Value) -> &str {
    result["structuredContent"]["stdout"].as_str().unwrap_or_else(|| panic!("{result}"))
}

#[test]
fn the_hosts_files_are_never_seen_and_those_of_the_workspace_are() {
    let (Some(stage), Some(_)) = (walled(), interpreter()) else { return };
    let hidden = secret().unwrap();
    let file = outside(&stage).join("secret");
    std::fs::write(&file, &hidden).unwrap();
    stage.write("shown", "shown\n");
    let look = format!(
        "import sys\nfor path in ['shown', {:?}, '/etc/passwd']:\n  try: sys.stdout.write(open(path).read())\n  except OSError as e: print(e.errno)",
        file.to_str().unwrap()
    );
    let host = std::fs::read_to_string("/etc/passwd").unwrap();
    for protocol in BOTH {
        let result = Connection::open(&stage, protocol).python(&look);
        assert!(stdout(&result).starts_with("shown\n") && !result.to_string().contains(&hidden), "{result}");
        assert!(!stdout(&result).contains(host.trim()), "{result}");
        let bare = Stage::spawn();
        let twin = Connection::open(&bare, protocol).python(&look);
        assert!(stdout(&twin).contains(&hidden) && stdout(&twin).contains(host.trim()), "{twin}");
    }
}

#[test]
fn what_a_program_writes_stays_in_its_sandbox() {
    let Some(stage) = walled() else { return };
    let mut client = Connection::open(&stage, Protocol::Stateless);
    let result = client.call("sandboxed_code_run", json!({ "command": "echo new > made; cat made" }));
    assert_eq!(stdout(&result), "new\n");
    assert_eq!(stage.read("made"), None);
    assert_eq!(result["structuredContent"]["changes"]["added"], 1, "{result}");
    assert!(text(&result).contains("changes_diff"), "{result}");
}

#[test]
fn s02_nothing_is_run_in_a_sandbox_that_is_older_than_a_denied_file() {
    let Some(stage) = walled() else { return };
    let hidden = secret().unwrap();
    for protocol in BOTH {
        let mut client = Connection::open(&stage, protocol);
        let sandbox = client.sandbox();
        let cat = |name: &str| json!({ "command": format!("cat {name}"), "sandboxId": sandbox });
        stage.write("notes", "a note\n");
        assert_eq!(stdout(&client.call("sandboxed_code_run", cat("notes"))), "a note\n", "the twin: it would come in");
        stage.write(".env", &hidden);
        let result = client.call("sandboxed_code_run", cat(".env"));
        assert_eq!((&result["structuredContent"]["status"], &result["isError"]), (&json!("refused"), &json!(true)));
        let said = text(&result);
        for part in ["fs.deny.came-later", "`.env`", "instead: Nothing can be started in this sandbox any more"] {
            assert!(said.contains(part), "`{part}` is not in {said}");
        }
        let read = client.call("files_read", json!({ "path": ".env", "sandboxId": sandbox }));
        assert_eq!(read["isError"], true, "{read}");
        assert!(![&result, &read].iter().any(|answer| answer.to_string().contains(&hidden)), "{result} {read}");
        let closed = client.call("sandbox_close", json!({ "sandboxId": sandbox }));
        assert!(text(&closed).contains("fs.deny.came-later"), "{closed}");
        let young = client.sandbox();
        let result = client.call("sandboxed_code_run", json!({ "command": "ls -A", "sandboxId": young }));
        assert!(stdout(&result).contains("notes") && !stdout(&result).contains(".env"), "{result}");
        std::fs::remove_file(stage.work().join(".env")).unwrap();
    }
}

#[test]
fn s17_what_is_denied_comes_out_of_no_tool_whoever_asks_for_it() {
    let policy = "commands: [{ deny: [base64], matches: [\"base64 x\"] }]\n";
    let (Some(stage), Some(_)) = (walled_with(policy), interpreter()) else { return };
    let hidden = secret().unwrap();
    stage.write(".env", format!("line {hidden}\n"));
    stage.write("note", "line shown\n");
    for protocol in BOTH {
        let mut client = Connection::open(&stage, protocol);
        let sandbox = client.sandbox();
        // By a command, by code, by a program that code starts, by the tools for files, and by what a run left behind.
        let nested =
            "import subprocess\nprint(subprocess.run(['sh', '-c', 'cat note .env'], capture_output=True).stdout)";
        let ways = [
            ("sandboxed_code_run", json!({ "command": "cat note .env" })),
            (
                "sandboxed_code_run",
                json!({ "language": "python", "code": "for f in 'note', '.env': print(open(f).read())" }),
            ),
            ("sandboxed_code_run", json!({ "language": "python", "code": nested })),
            ("files_read", json!({ "path": "note" })),
            ("files_read", json!({ "path": ".env" })),
            ("files_search", json!({ "pattern": "^line" })),
            (
                "sandboxed_code_run",
                json!({ "command": "ln -s .env link; cp -r . /tmp/all; cat note link /tmp/all/.env" }),
            ),
        ];
        let mut shown = 0;
        for (tool, mut arguments) in ways {
            arguments["sandboxId"] = json!(sandbox);
            let result = client.call(tool, arguments.clone());
            assert!(!result.to_string().contains(&hidden), "{tool} {arguments}: {result}");
            shown += usize::from(result.to_string().contains("line shown"));
        }
        assert_eq!(
            shown, 6,
            "the twin: what is not denied comes out of each, but of who asked for the other file alone"
        );
        // One rule about commands, before each tool that runs one.
        for (arguments, refused) in [
            (json!({ "command": "base64 note" }), true),
            (json!({ "command": "sh -c 'base64 note'" }), true),
            (json!({ "command": "base64 note", "sandboxId": sandbox }), true),
            (json!({ "command": "cat note", "sandboxId": sandbox }), false),
        ] {
            let result = client.call("sandboxed_code_run", arguments.clone());
            assert_eq!(result["structuredContent"]["status"] == "refused", refused, "{arguments}: {result}");
        }
    }
}

#[test]
fn there_is_no_network_unless_the_policy_says_so() {
    let (Some(stage), Some(_)) = (walled(), interpreter()) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let reach = format!("import socket\nsocket.create_connection(('127.0.0.1', {port}), 5).sendall(b'x')");
    let result = Connection::open(&stage, Protocol::Stateless).python(&reach);
    assert_eq!(result["isError"], true, "{result}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "somebody came");
    listener.set_nonblocking(false).unwrap();
    let twin = Connection::open(&Stage::spawn(), Protocol::Stateless).python(&reach);
    assert_eq!(twin["isError"], false, "{twin}");
    let mut came = String::new();
    listener.accept().unwrap().0.read_to_string(&mut came).unwrap();
    assert_eq!(came, "x");
}

#[test]
fn an_override_narrows_and_one_that_widens_is_refused() {
    let Some(stage) = walled_with("proc: { timeout: 20s, max_timeout: 30s }\n") else { return };
    for protocol in BOTH {
        let mut client = Connection::open(&stage, protocol);
        let narrow = json!({ "command": "sleep 15; echo late", "policyOverrides": { "proc": { "timeout": "1s" } } });
        let result = client.call("sandboxed_code_run", narrow);
        assert_eq!(result["structuredContent"]["status"], "timedOut", "{result}");
        for wide in [
            json!({ "net": { "mode": "open" } }),
            json!({ "net": { "allow": ["evil.example"] } }),
            json!({ "fs": { "mode": "direct" } }),
            json!({ "backend": "none" }),
            json!({ "proc": { "memory": "64GiB" } }),
            json!({ "proc": { "timeout": "5m" } }),
            json!({ "proc": { "env": { "pass": ["HOME"] } } }),
        ] {
            let arguments = json!({ "command": "echo ran", "policyOverrides": wide });
            let result = client.call("sandboxed_code_run", arguments.clone());
            assert_eq!(result["structuredContent"]["status"], "refused", "{arguments}: {result}");
            assert_eq!((&result["isError"], stdout(&result)), (&json!(true), ""));
            let opened = client.call("sandbox_create", json!({ "policyOverrides": wide }));
            assert_eq!(opened["isError"], true, "{opened}");
        }
        let long = client.call("sandboxed_code_run", json!({ "command": "echo ran", "timeout": 300 }));
        assert_eq!(long["structuredContent"]["status"], "refused", "{long}");
        let twin = client.call("sandboxed_code_run", json!({ "command": "echo ran", "timeout": 25 }));
        assert_eq!(stdout(&twin), "ran\n");
    }
}

#[test]
fn an_endless_loop_ends_at_its_limit_and_says_so() {
    let (Some(stage), Some(_)) = (walled(), interpreter()) else { return };
    let mut client = Connection::open(&stage, Protocol::Initialize);
    let arguments =
        json!({ "language": "python", "code": "print('began', flush=True)\nwhile True: pass", "timeout": 2 });
    let result = client.call("sandboxed_code_run", arguments);
    assert_eq!(result["structuredContent"]["status"], "timedOut");
    assert_eq!(stdout(&result), "began\n");
    let said = text(&result);
    assert!(said.contains("time limit") && said.contains("violation:") && said.contains("Try again:"), "{said}");
    assert_eq!(client.python("print(1)")["isError"], false);
}

#[test]
fn a_secret_of_the_hosts_environment_is_not_there_inside() {
    let (Some(stage), Some(_)) = (walled(), interpreter()) else { return };
    let look = "import os; print(os.environ.get('A_SECRET'))";
    let open =
        |stage: &Stage| Connection::open_with(stage, Protocol::Stateless, &[], json!({}), &[("A_SECRET", "x7y7z7")]);
    let result = open(&stage).python(look);
    assert_eq!(stdout(&result), "None\n");
    assert!(!result.to_string().contains("x7y7z7"));
    stage.write("sandbox.policy.yaml", "version: 1\nproc: { env: { pass: [A_SECRET] } }\n");
    assert_eq!(stdout(&open(&stage).python(look)), "x7y7z7\n");
}

/// Sends `data` to each address, as a program that heeds the variables for a proxy.
const UPLOAD: &str = "
import sys, urllib.request, urllib.error
def upload(url):
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data=b'of the workspace'), timeout=10) as answer: print(answer.status)
    except urllib.error.HTTPError as error: print(error.code, error.read().decode())
";

#[test]
fn a_listed_host_is_reached_and_another_and_a_vendors_file_store_are_refused_with_403_and_recorded() {
    let (listed, other) = (Origin::start(), Origin::start());
    // Naming the vendor is not enough: whoever has a key can read what is sent there.
    let policy = format!("net: {{ mode: allowlist, localhost: [{}], allow: [api.anthropic.com] }}\n", listed.port);
    let (Some(stage), Some(_)) = (walled_with(&policy), interpreter()) else { return };
    for protocol in BOTH {
        let mut client = Connection::open(&stage, protocol);
        let reached = client.python(&format!("{UPLOAD}upload('{}')", listed.url("/v1/files")));
        assert_eq!(stdout(&reached), "200\n", "{reached}");
        assert_eq!(listed.asked(), ["POST /v1/files 16"], "the probe proves nothing");
        listed.forget();
        for (url, host, rule) in [
            (other.url("/v1/files"), "localhost", "net.not-listed"),
            ("http://api.anthropic.com/v1/files".to_owned(), "api.anthropic.com", "net.stranger"),
        ] {
            let refused = client.python(&format!("{UPLOAD}upload('{url}')"));
            assert!(stdout(&refused).starts_with("403 Ringfence denied POST"), "{refused}");
            assert_eq!(refused["structuredContent"]["network"][0]["host"], host, "{refused}");
            assert_eq!(refused["structuredContent"]["network"][0]["allowed"], false, "{refused}");
            assert!(text(&refused).contains(rule), "the model is told by which rule: {refused}");
            let id = refused["structuredContent"]["runId"].as_str().unwrap_or_else(|| panic!("{refused}"));
            let log = stage.ringfence(["log", "show", "--json", id]).run().text();
            assert!(log.contains(host) && log.contains(rule), "{log}");
        }
        // The policy reaches the host, and a call can still close it.
        let narrowed = client.call(
            "sandboxed_code_run",
            json!({ "language": "python", "code": format!("{UPLOAD}upload('{}')", listed.url("/narrowed")), "policyOverrides": { "net": { "mode": "none" } } }),
        );
        assert_eq!(narrowed["isError"], true, "{narrowed}");
        assert!(listed.asked().is_empty() && other.asked().is_empty());
    }
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
}

#[test]
fn a_grant_of_the_operator_opens_one_host_for_all_calls_and_no_call_opens_another() {
    let (granted, other) = (Origin::start(), Origin::start());
    let policy = "overrides: { grantable: [net.mode, net.localhost] }\n";
    let (Some(stage), Some(_)) = (walled_with(policy), interpreter()) else { return };
    let grant = stage.path().join("grant.yaml");
    let text_of = |port: u16| {
        format!(
            "version: 1\nby: ops on call\nwhy: the registry\ngrant: {{ net: {{ mode: allowlist, localhost: [{port}] }} }}\n"
        )
    };
    std::fs::write(&grant, text_of(granted.port)).unwrap();
    let flags = ["--grant-file", grant.to_str().unwrap()];
    for protocol in BOTH {
        let upload = |origin: &Origin| format!("{UPLOAD}upload('{}')", origin.url("/x"));
        let without = Connection::open(&stage, protocol).python(&upload(&granted));
        assert!(without["isError"] == true && granted.asked().is_empty(), "{without}");
        let mut client = Connection::open_with(&stage, protocol, &flags, json!({}), &[]);
        let reached = client.python(&upload(&granted));
        assert_eq!((stdout(&reached), granted.asked()), ("200\n", vec!["POST /x 16".to_owned()]), "{reached}");
        granted.forget();
        let id = reached["structuredContent"]["runId"].as_str().unwrap_or_else(|| panic!("{reached}"));
        let log = stage.ringfence(["log", "show", "--json", id]).run().text();
        assert!(log.contains("ops on call") && log.contains("the registry"), "{log}");
        let refused = client.python(&upload(&other));
        assert!(stdout(&refused).starts_with("403 Ringfence denied POST"), "{refused}");
        // What may be granted is still not the model's to ask for.
        let wide = json!({ "command": "true", "policyOverrides": { "net": { "localhost": [other.port] } } });
        let asked = client.call("sandboxed_code_run", wide);
        assert_eq!(asked["structuredContent"]["status"], "refused", "{asked}");
        // Nor does a grant that changed meanwhile reach a server that has read it.
        std::fs::write(&grant, text_of(other.port)).unwrap();
        let late = client.python(&upload(&other));
        assert!(stdout(&late).starts_with("403 Ringfence denied POST") && other.asked().is_empty(), "{late}");
        std::fs::write(&grant, text_of(granted.port)).unwrap();
    }
}

#[test]
fn files_of_a_call_lie_beside_its_code_and_not_in_the_workspace() {
    let (Some(stage), Some(_)) = (walled(), interpreter()) else { return };
    let code = "import helper, os, sys\nprint(helper.X, open(os.path.join(sys.path[0], 'data', 'raw'), 'rb').read(), os.listdir('.'))";
    let files = json!([
        { "path": "helper.py", "content": "X = 41\n" },
        { "path": "data/raw", "content": "AP8=", "encoding": "base64" },
    ]);
    for protocol in BOTH {
        let mut client = Connection::open(&stage, protocol);
        let with = client.call("sandboxed_code_run", json!({ "language": "python", "code": code, "files": files }));
        assert!(stdout(&with).starts_with("41 b'\\x00\\xff' ["), "{with}");
        assert!(!stdout(&with).contains("helper") && stage.read("helper.py").is_none(), "{with}");
        let without = client.python(code);
        assert_eq!(without["isError"], true, "they are there for one call: {without}");
    }
}
