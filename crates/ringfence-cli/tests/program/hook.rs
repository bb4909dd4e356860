//! `ringfence hook` as agents start it: exit codes, formats, records.

use std::fs;

use serde_json::{Value, json};

use crate::stage::{Ended, Stage};

const AGENTS: [&str; 4] = ["claude-code", "codex", "gemini", "cursor"];

fn asked(stage: &Stage, agent: &str, call: impl Into<Vec<u8>>) -> Ended {
    stage.ringfence(["hook", agent, "--backend", "spawn"]).env("RINGFENCE_VALIDATE", "standard").stdin(call).run()
}

fn bash(line: &str) -> Value {
    json!({ "hook_event_name": "PreToolUse", "session_id": "s1", "tool_name": "Bash", "tool_input": { "command": line } })
}

#[test]
fn what_is_no_call_is_denied_by_the_exit_code_that_every_agent_knows() {
    let stage = Stage::new();
    let deep = format!("{{\"hook_event_name\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    for bytes in
        [&b""[..], b"{", b"[]", b"null", b"{}", b"\xff\xfe", b"{\"hook_event_name\":\"PreToolUse\"}", deep.as_bytes()]
    {
        for agent in AGENTS {
            let ended = asked(&stage, agent, bytes).expect(2, &["could not be judged, so it is denied"]);
            assert_eq!(ended.text(), "");
        }
    }
    stage.ringfence(["hook", "nobody"]).stdin("{}").run().expect(2, &[]);
    // The twin.
    asked(&stage, "claude-code", bash("ls").to_string()).expect(0, &[]);
}

#[test]
fn a_policy_that_cannot_be_read_denies_and_says_why() {
    let stage = Stage::with_policy("version: 1\nbackand: none\n");
    for agent in AGENTS {
        let event = match agent {
            "gemini" => "BeforeTool",
            "cursor" => "preToolUse",
            _ => "PreToolUse",
        };
        let call = json!({ "hook_event_name": event, "tool_name": "TodoWrite", "tool_input": {} }).to_string();
        asked(&stage, agent, call.clone()).expect(2, &["backand"]);
        stage.write("sandbox.policy.yaml", "version: 1\n");
        let listed = if agent == "claude-code" || agent == "cursor" { "" } else { "tools: { allow: [TodoWrite] }\n" };
        stage.write("sandbox.policy.yaml", format!("version: 1\n{listed}"));
        asked(&stage, agent, call).expect(0, &[]);
        stage.write("sandbox.policy.yaml", "version: 1\nbackand: none\n");
    }
}

#[test]
fn each_agent_is_answered_in_its_own_format() {
    let stage = Stage::new();
    let read = |path: &str| json!({ "file_path": path });
    let ask = |agent: &str, event: &str, tool: &str, input: Value| {
        let call = json!({ "hook_event_name": event, "tool_name": tool, "tool_input": input });
        asked(&stage, agent, call.to_string()).expect(0, &[]).json()
    };
    let claude = ask("claude-code", "PreToolUse", "Read", read(".env"));
    assert_eq!(claude["hookSpecificOutput"]["permissionDecision"], "deny", "{claude}");
    assert_eq!(claude["hookSpecificOutput"]["hookEventName"], "PreToolUse");
    assert!(claude["hookSpecificOutput"]["permissionDecisionReason"].as_str().unwrap().contains("fs.deny"));
    assert_eq!(ask("claude-code", "PreToolUse", "Read", read("a.rs")), json!({}));
    let codex = ask("codex", "PreToolUse", "Bash", json!({ "command": "rm -rf /" }));
    let keys: Vec<&String> = codex["hookSpecificOutput"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["hookEventName", "permissionDecision", "permissionDecisionReason"], "{codex}");
    let codex = ask("codex", "PreToolUse", "Bash", json!({ "command": "ls" }));
    let keys: Vec<&String> = codex["hookSpecificOutput"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["hookEventName", "permissionDecision", "updatedInput"], "{codex}");
    let gemini = ask("gemini", "BeforeTool", "read_file", read(".env"));
    assert_eq!(gemini["decision"], "deny", "{gemini}");
    let gemini = ask("gemini", "BeforeTool", "run_shell_command", json!({ "command": "ls" }));
    assert!(
        gemini["hookSpecificOutput"]["tool_input"]["command"].as_str().unwrap().ends_with("--shell=ls"),
        "{gemini}"
    );
    let cursor = ask("cursor", "preToolUse", "Read", read(".env"));
    assert_eq!(cursor["permission"], "deny", "{cursor}");
    assert!(cursor["agent_message"].as_str().unwrap().contains("fs.deny"));
    let cursor = ask("cursor", "preToolUse", "Shell", json!({ "command": "ls" }));
    assert!(cursor["updated_input"]["command"].as_str().unwrap().ends_with("--shell=ls"), "{cursor}");
}

#[test]
fn calls_and_denials_are_written_down_without_secrets_and_secrets_are_masked_in_what_comes_back() {
    let stage = Stage::new();
    let token = "ghp_0123456789abcdefghijklmnopqrstuvwxyz";
    asked(&stage, "claude-code", bash(&format!("rm -rf / # {token}")).to_string()).expect(0, &[]);
    let after = |agent: &str, event: &str, tool: &str, response: Value| {
        let call = json!({ "hook_event_name": event, "session_id": "s1", "tool_name": tool, "tool_input": { "command": format!("echo {token}") }, "tool_response": response });
        stage
            .ringfence(["hook", agent])
            .env("MY_API_KEY", "correct-horse-battery")
            .stdin(call.to_string())
            .run()
            .expect(0, &[])
            .json()
    };
    let claude = after(
        "claude-code",
        "PostToolUse",
        "Bash",
        json!({ "stdout": format!("a {token} correct-horse-battery\n"), "stderr": "", "interrupted": false }),
    );
    let told = &claude["hookSpecificOutput"]["updatedToolOutput"];
    assert_eq!(told, &json!({ "stdout": "a [redacted] [redacted]\n", "stderr": "", "interrupted": false }));
    assert_eq!(after("claude-code", "PostToolUse", "Bash", json!({ "stdout": "plain" })), json!({}));
    let mcp = after("claude-code", "PostToolUse", "mcp__x__y", json!([{ "type": "text", "text": token }]));
    assert_eq!(mcp["hookSpecificOutput"]["updatedMCPToolOutput"][0]["text"], "[redacted]");
    assert_eq!(
        after("codex", "PostToolUse", "Bash", json!(format!("x {token}"))),
        json!({ "decision": "block", "reason": "x [redacted]" })
    );
    let gemini =
        after("gemini", "AfterTool", "read_file", json!({ "llmContent": format!("x {token}"), "returnDisplay": "" }));
    assert_eq!(gemini, json!({ "decision": "deny", "reason": "x [redacted]" }));
    let edit = json!({ "hook_event_name": "afterFileEdit", "conversation_id": "c", "file_path": "/x", "edits": [] });
    assert_eq!(asked(&stage, "cursor", edit.to_string()).expect(0, &[]).json(), json!({}));
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
    let ledger = fs::read_to_string(stage.ledger()).unwrap();
    let records: Vec<Value> = ledger.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(records.iter().all(|record| record["kind"] == "called"), "{ledger}");
    assert_eq!(records[0]["body"]["verdict"], "deny", "{ledger}");
    assert_eq!(records[0]["body"]["tool"], "Bash");
    assert_eq!(records.len(), 7, "{ledger}");
    assert!(!ledger.contains(token) && !ledger.contains("correct-horse"), "{ledger}");
}

#[test]
fn a_call_that_cannot_be_written_down_is_denied() {
    let stage = Stage::new();
    asked(&stage, "codex", bash("rm -rf /").to_string()).expect(0, &[]);
    let ledger = stage.ledger();
    let text = fs::read_to_string(&ledger).unwrap();
    fs::write(&ledger, text.replace("deny", "allo")).unwrap();
    asked(&stage, "codex", bash("rm -rf /").to_string()).expect(2, &["could not be written down"]);
}
