//! The protocol: both versions, the list of tools, what is refused, and what a result looks like.

use std::time::Duration;

use serde_json::json;

use crate::connection::{BOTH, Connection, Protocol, text};
use crate::probe::{interpreter, walled};
use crate::stage::Stage;

#[test]
fn hello_world_runs_in_both_protocols_and_comes_as_text_and_as_an_outcome() {
    let (Some(stage), Some(_)) = (walled(), interpreter()) else { return };
    for protocol in BOTH {
        let mut client = Connection::open(&stage, protocol);
        let result = client.python("print('hello')");
        assert_eq!(result["isError"], false, "{protocol:?}: {result}");
        assert_eq!(result["structuredContent"]["stdout"], "hello\n");
        assert_eq!(result["structuredContent"]["exitCode"], 0);
        assert_eq!(result["structuredContent"]["backend"], "native");
        assert!(text(&result).starts_with("Exited with code 0 after "), "{result}");
        assert!(text(&result).ends_with("\nstdout:\nhello"), "{result}");
        assert_eq!(result["resultType"].as_str(), (protocol == Protocol::Stateless).then_some("complete"));
        let failed = client.python("import sys; sys.exit(3)");
        assert_eq!(failed["isError"], true);
        let said = text(&failed);
        assert!(said.contains("exit code 3") && said.contains("No output.") && said.contains("Try again:"), "{said}");
        let line = client.call("sandboxed_code_run", json!({ "command": "echo a | tr a b" }));
        assert_eq!(line["structuredContent"]["stdout"], "b\n");
        let argv = client.call("sandboxed_code_run", json!({ "argv": ["echo", "$HOME", "*"] }));
        assert_eq!(argv["structuredContent"]["stdout"], "$HOME *\n");
        assert!(client.close().success());
    }
}

#[test]
fn long_output_keeps_its_head_and_its_tail() {
    let stage = Stage::spawn();
    let mut client = Connection::open(&stage, Protocol::Initialize);
    let result = client.call("sandboxed_code_run", json!({ "command": "echo first; seq 20000; echo last" }));
    let said = text(&result);
    assert!(said.len() < 40_000 && said.contains("first") && said.contains("last"), "{}", said.len());
    assert!(said.contains("bytes left out"));
    assert_eq!(result["structuredContent"]["outputTruncated"], true);
    assert!(result.to_string().len() < 100_000);
}

#[test]
fn tools_are_listed_with_schemas_in_a_fixed_order_and_with_dots_on_request() {
    let stage = Stage::spawn();
    for protocol in BOTH {
        let mut client = Connection::open(&stage, protocol);
        let list = |client: &mut Connection| client.request("tools/list", json!({}))["result"].clone();
        let listed = list(&mut client);
        let tools = listed["tools"].as_array().unwrap();
        assert_eq!(tools.len(), 12);
        assert_eq!(tools[0]["name"], "sandboxed_code_run");
        for tool in tools {
            assert_eq!(tool["inputSchema"]["additionalProperties"], false, "{tool}");
            assert_eq!(tool["outputSchema"]["type"], "object", "{tool}");
            assert!(tool["annotations"]["readOnlyHint"].is_boolean(), "{tool}");
        }
        assert_eq!(listed.get("ttlMs").is_some(), protocol == Protocol::Stateless || listed.get("ttlMs").is_some());
        assert_eq!(list(&mut client)["tools"], listed["tools"]);
    }
    let mut dotted = Connection::open_with(&stage, Protocol::Initialize, &["--tool-names", "dotted"], json!({}), &[]);
    let listed = dotted.request("tools/list", json!({}));
    assert_eq!(listed["result"]["tools"][0]["name"], "sandboxed_code.run");
    for name in ["sandboxed_code.run", "sandboxed_code_run"] {
        assert_eq!(dotted.call(name, json!({ "command": "echo x" }))["structuredContent"]["stdout"], "x\n");
    }
    let unknown = dotted.request("tools/call", json!({ "name": "sandboxed-code-run", "arguments": {} }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
}

#[test]
fn s17_the_policy_says_which_tools_there_are() {
    let stage = Stage::with_policy("version: 1\nbackend: spawn\ntools: { allow: [sandboxed_code_run, WebSearch] }\n");
    let mut client = Connection::open(&stage, Protocol::Initialize);
    let listed = client.request("tools/list", json!({}));
    assert_eq!(listed["result"]["tools"].as_array().unwrap().len(), 1);
    assert_eq!(client.call("sandboxed_code.run", json!({ "command": "true" }))["isError"], false);
    // One that is left out, ones that there never were, and another program's that the list names.
    for name in ["sandbox_list", "files_read", "sandboxed_code_runs", "ringfence_run", "", "WebSearch"] {
        let gone = client.request("tools/call", json!({ "name": name, "arguments": { "command": "touch ran" } }));
        assert_eq!(gone["error"]["code"], -32602, "{name}: {gone}");
    }
    assert_eq!(stage.read("ran"), None);
    let twin = client.call("sandboxed_code_run", json!({ "command": "touch ran" }));
    assert!(twin["isError"] == false && stage.read("ran").is_some(), "{twin}");
}

#[test]
fn arguments_that_no_tool_knows_are_refused_and_the_same_without_them_works() {
    let stage = Stage::spawn();
    let mut client = Connection::open(&stage, Protocol::Stateless);
    for arguments in [
        json!({ "command": "echo x", "time_out": 1 }),
        json!({ "command": "echo x", "workspace": "/" }),
        json!({ "command": "echo x", "policyOverrides": { "grant": "all" } }),
        json!({ "command": "echo x", "cwd": "/etc" }),
        json!({ "command": "echo x", "cwd": "../.." }),
        json!({ "command": "echo x", "files": [{ "path": "/etc/x", "content": "" }] }),
        json!({ "command": "echo x", "files": [{ "path": "../x", "content": "" }] }),
        json!({ "command": "echo x", "argv": ["echo"] }),
        json!({}),
    ] {
        let result = client.call("sandboxed_code_run", arguments.clone());
        assert_eq!(result["isError"], true, "{arguments}: {result}");
        assert!(!text(&result).contains("stdout:"), "{arguments}: {result}");
        assert!(text(&result).contains("Try again:"), "{result}");
    }
    assert_eq!(client.call("sandboxed_code_run", json!({ "command": "echo x" }))["structuredContent"]["stdout"], "x\n");
}

#[test]
fn what_is_no_message_is_answered_and_the_connection_goes_on() {
    let stage = Stage::spawn();
    let mut client = Connection::open(&stage, Protocol::Initialize);
    let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
    for line in ["{", "[1]", r#"{"jsonrpc":"2.0","id":"x"}"#, &deep] {
        client.write(line);
        let answer = client.next(Duration::from_secs(30)).unwrap();
        assert!(answer["error"]["code"].is_i64(), "{line:.20}: {answer}");
    }
    let long = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","x":"{}"}}"#, "a".repeat(9 << 20));
    client.write(&long);
    let answer = client.next(Duration::from_secs(30)).unwrap();
    assert!(answer["error"]["message"].as_str().unwrap().contains("longer than 8 MiB"), "{answer}");
    let unknown = client.request("no/such/method", json!({}));
    assert_eq!(unknown["error"]["code"], -32601, "{unknown}");
    assert_eq!(client.call("sandboxed_code_run", json!({ "command": "true" }))["isError"], false);
}

#[test]
fn what_is_not_there_is_said_to_be_missing_and_not_to_be_empty() {
    let stage = Stage::spawn();
    for protocol in BOTH {
        let mut client = Connection::open(&stage, protocol);
        assert_eq!(client.request("prompts/list", json!({}))["error"]["code"], -32601);
        let missing = client.request("resources/read", json!({ "uri": "ringfence://nowhere/x.png" }));
        assert_eq!(missing["error"]["data"]["uri"], "ringfence://nowhere/x.png", "{missing}");
        assert_eq!(client.request("resources/list", json!({}))["result"]["resources"], json!([]));
    }
}

#[test]
fn calls_that_fail_again_and_again_are_told_so_and_end_with_the_budget() {
    let stage = Stage::spawn();
    let mut client = Connection::open_with(&stage, Protocol::Initialize, &["--retries", "4"], json!({}), &[]);
    let mut fail = |code: u32| client.call("sandboxed_code_run", json!({ "command": format!("exit {code}") }));
    assert!(fail(1)["structuredContent"].get("loop").is_none());
    fail(1);
    let third = fail(1);
    assert_eq!(third["structuredContent"]["loop"]["circle"], "same-failing", "{third}");
    assert!(text(&third).contains("The same call has failed 3 times"), "{third}");
    fail(2);
    let fifth = fail(5);
    assert!(fifth["structuredContent"].get("exitCode").is_none(), "it was run: {fifth}");
    assert!(text(&fifth).contains("Try again: no"), "{fifth}");
    // What does not run anything still answers.
    assert_eq!(client.call("sandbox_list", json!({}))["isError"], false);
}

#[test]
fn explain_says_what_would_happen_and_runs_nothing() {
    let stage = Stage::with_policy(
        "version: 1\nbackend: spawn\ncommands:\n  - deny: [touch]\n    why: \"no new files\"\nnet: { mode: allowlist, allow: [pypi.org] }\n",
    );
    let mut client = Connection::open(&stage, Protocol::Stateless);
    let denied = client.call("explain", json!({ "command": "touch made" }));
    assert_eq!(denied["structuredContent"]["verdict"], "deny", "{denied}");
    assert!(text(&denied).contains("no new files"));
    let allowed = client.call("explain", json!({ "command": "echo made" }));
    assert_eq!(allowed["structuredContent"]["verdict"], "allow");
    assert!(stage.read("made").is_none());
    let host = |client: &mut Connection, host: &str| {
        client.call("explain", json!({ "host": host }))["structuredContent"]["verdict"].clone()
    };
    assert_eq!((host(&mut client, "pypi.org"), host(&mut client, "evil.example")), (json!("allow"), json!("deny")));
}
