//! `ringfence init`: what it writes, that it can be repeated and taken back, and that it leaves alone what is not its own.

use std::fs;

use serde_json::{Value, json};

use crate::stage::{Ended, Stage};

const ALL: [&str; 10] =
    ["--agent", "claude-code", "--agent", "codex", "--agent", "cursor", "--agent", "gemini", "--agent", "vscode"];
const FILES: [&str; 9] = [
    "sandbox.policy.yaml",
    ".claude/settings.json",
    ".mcp.json",
    ".codex/hooks.json",
    ".codex/config.toml",
    ".cursor/hooks.json",
    ".cursor/mcp.json",
    ".gemini/settings.json",
    ".vscode/mcp.json",
];
/// As a person wrote it.
const SETTINGS: &str = "{\n    // what I permit\n    \"permissions\": { \"allow\": [\"Bash(ls)\"] },\n    \"hooks\": {\n        \"PreToolUse\": [\n            { \"matcher\": \"Bash\", \"hooks\": [ { \"type\": \"command\", \"command\": \"./mine.sh\" } ] } // mine\n        ]\n    },\n    \"sandbox\": { \"network\": { \"allowedDomains\": [\"pypi.org\"] } }\n}\n";
const CONFIG: &str = "# my model\nmodel = \"x\"\n\n[mcp_servers.other]\ncommand = \"other\"\n";

fn init(stage: &Stage, flags: &[&str]) -> Ended {
    stage.ringfence([&["init"], flags].concat()).env("PATH", "/nowhere").run()
}

fn json_of(stage: &Stage, file: &str) -> Value {
    serde_json::from_str(&stage.read(file).unwrap()).unwrap()
}

#[test]
fn everything_is_written_once_checked_and_taken_back_to_the_byte() {
    let stage = Stage::new();
    stage.write("Cargo.toml", "[package]\n");
    stage.write(".claude/settings.json", SETTINGS);
    stage.write(".codex/config.toml", CONFIG);
    let missing = init(&stage, &[&["--check"], &ALL[..]].concat()).expect(1, &["9 files to change"]);
    assert!(missing.text().contains("+++ b/.cursor/hooks.json"), "{missing:?}");
    assert_eq!(stage.read(".mcp.json"), None, "a check changes nothing");
    init(&stage, &ALL).expect(1, &["nobody is there to be asked"]);
    assert_eq!(stage.read(".mcp.json"), None);
    let ended = init(&stage, &[&["--yes"], &ALL[..]].concat())
        .expect(0, &["9 files changed", "init --undo", "allow: [\"pypi.org\"]"]);
    assert!(ended.text().contains("-            { \"matcher\": \"Bash\""), "the difference is shown: {ended:?}");
    for file in FILES {
        assert!(stage.read(file).is_some(), "{file}");
    }
    assert!(stage.read("sandbox.policy.yaml").unwrap().contains("preset:rust"));
    let settings = stage.read(".claude/settings.json").unwrap();
    for kept in [
        "    // what I permit\n    \"permissions\": { \"allow\": [\"Bash(ls)\"] },\n",
        "\"./mine.sh\" } ] }, // mine\n",
    ] {
        assert!(settings.contains(kept), "{kept} is gone:\n{settings}");
    }
    assert_eq!(settings.matches("\"onFailure\": \"block\"").count(), 2, "{settings}");
    assert!(stage.read(".codex/config.toml").unwrap().starts_with(CONFIG));
    let cursor = json_of(&stage, ".cursor/hooks.json");
    assert_eq!(cursor["version"], 1);
    for event in
        ["preToolUse", "beforeShellExecution", "beforeMCPExecution", "beforeReadFile", "postToolUse", "afterFileEdit"]
    {
        assert_eq!(cursor["hooks"][event][0]["failClosed"], true, "{cursor}");
    }
    assert_eq!(json_of(&stage, ".mcp.json")["mcpServers"]["ringfence"]["args"], json!(["mcp"]));
    assert_eq!(json_of(&stage, ".vscode/mcp.json")["servers"]["ringfence"]["type"], "stdio");
    // Again, and for CI.
    let before: Vec<_> = FILES.iter().map(|file| stage.read(file)).collect();
    init(&stage, &[&["--yes"], &ALL[..]].concat()).expect(0, &["everything is in place"]);
    init(&stage, &[&["--check"], &ALL[..]].concat()).expect(0, &["everything is in place"]);
    assert_eq!(FILES.iter().map(|file| stage.read(file)).collect::<Vec<_>>(), before);
    // And back.
    init(&stage, &["--undo", "--yes"]).expect(0, &["taken back"]);
    assert_eq!(stage.read(".claude/settings.json").as_deref(), Some(SETTINGS));
    assert_eq!(stage.read(".codex/config.toml").as_deref(), Some(CONFIG));
    for file in
        ["sandbox.policy.yaml", ".mcp.json", ".codex/hooks.json", ".cursor/hooks.json", ".gemini", ".vscode", ".cursor"]
    {
        assert!(!stage.work().join(file).exists(), "{file} is left");
    }
    init(&stage, &["--undo", "--yes"]).expect(1, &["nothing was done here"]);
}

#[test]
fn the_agents_and_languages_that_are_found_are_set_up_and_no_other() {
    let stage = Stage::new();
    stage.write("package.json", "{}");
    stage.write("pyproject.toml", "");
    stage.write("CLAUDE.md", "x");
    let tools = stage.path().join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("gemini"), "").unwrap();
    stage.ringfence(["init", "--yes"]).env("PATH", &tools).run().expect(0, &["Claude Code, Gemini CLI"]);
    let found: Vec<&str> = FILES.into_iter().filter(|file| stage.read(file).is_some()).collect();
    assert_eq!(found, ["sandbox.policy.yaml", ".claude/settings.json", ".mcp.json", ".gemini/settings.json"]);
    let policy = stage.read("sandbox.policy.yaml").unwrap();
    assert!(policy.contains("extends: [preset:python, preset:node]"), "{policy}");
    stage.ringfence(["policy", "lint"]).run().expect(0, &[]);
}

#[test]
fn what_was_changed_since_is_not_taken_back() {
    let stage = Stage::new();
    init(&stage, &["--yes", "--agent", "claude-code"]).expect(0, &[]);
    let written = stage.read(".mcp.json").unwrap();
    stage.write(".mcp.json", format!("{written}\n"));
    init(&stage, &["--undo", "--yes"]).expect(1, &[".mcp.json was changed since", "by hand"]);
    assert!(stage.read(".claude/settings.json").is_some(), "nothing of it was taken back");
    stage.write(".mcp.json", &written);
    init(&stage, &["--undo", "--yes"]).expect(0, &["taken back"]);
    assert_eq!(stage.read(".mcp.json"), None);
}

#[test]
fn f01_a_link_another_server_or_a_broken_file_is_left_and_said() {
    let stage = Stage::new();
    let elsewhere = stage.path().join("elsewhere.json");
    fs::write(&elsewhere, "{}").unwrap();
    std::os::unix::fs::symlink(&elsewhere, stage.work().join(".mcp.json")).unwrap();
    stage.write(".cursor/mcp.json", "{ \"mcpServers\": { \"ringfence\": { \"command\": \"evil\" } } }");
    stage.write(".gemini/settings.json", "{ broken");
    init(&stage, &[&["--yes"], &ALL[..]].concat()).expect(
        1,
        &[
            "leads through a link",
            ".cursor/mcp.json is left as it is: `mcpServers.ringfence` is there already",
            ".gemini/settings.json is left",
        ],
    );
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "{}");
    assert_eq!(stage.read(".gemini/settings.json").as_deref(), Some("{ broken"));
    assert!(stage.read(".claude/settings.json").is_some(), "the rest is done");
    init(&stage, &[&["--check"], &ALL[..]].concat()).expect(1, &["leads through a link"]);
}

#[test]
fn the_hook_that_was_written_is_the_one_that_runs() {
    let stage = Stage::new();
    init(&stage, &["--yes", "--agent", "claude-code"]).expect(0, &[]);
    let hook = json_of(&stage, ".claude/settings.json")["hooks"]["PreToolUse"][0]["hooks"][0].clone();
    let args: Vec<&str> = hook["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    assert_eq!(hook["command"].as_str().unwrap(), fs::canonicalize(crate::stage::binary()).unwrap().to_str().unwrap());
    let call = json!({ "hook_event_name": "PreToolUse", "tool_name": "Write", "tool_input": { "file_path": ".env", "content": "" } });
    let ended = stage.ringfence(args).stdin(call.to_string()).run().expect(0, &[]);
    assert_eq!(ended.json()["hookSpecificOutput"]["permissionDecision"], "deny", "{ended:?}");
}

#[test]
fn hooks_that_are_turned_off_or_have_no_time_are_not_in_place() {
    let stage = Stage::new();
    let flags = ["--agent", "claude-code"];
    let checked = |code: u8, said: &str| {
        init(&stage, &[&["--check"], &flags[..]].concat()).expect(code.into(), &[said]);
    };
    init(&stage, &[&["--yes"], &flags[..]].concat()).expect(0, &[]);
    checked(0, "everything is in place");
    stage.write(".claude/settings.local.json", "{ \"disableAllHooks\": true }");
    checked(1, ".claude/settings.local.json: `disableAllHooks` turns every hook off");
    stage.write(".claude/settings.local.json", "{ \"disableAllHooks\": false }");
    checked(0, "everything is in place");
    let settings = stage.read(".claude/settings.json").unwrap();
    stage.write(".claude/settings.json", settings.replace("\"timeout\": 30", "\"timeout\": 1"));
    checked(1, "1 file to change");
    stage.write(".claude/settings.json", settings.replace("\"timeout\": 30", "\"timeout\": 60"));
    checked(0, "everything is in place");
}

#[test]
fn hooks_of_others_and_the_wall_of_a_policy_that_is_there_are_told() {
    let stage = Stage::new();
    stage.write("sandbox.policy.yaml", "version: 1\nbackend: none\n");
    let flags = ["--check", "--agent", "claude-code"];
    let quiet = init(&stage, &flags).expect(1, &["has the backend none"]);
    assert!(!quiet.stderr.contains("beware"), "{quiet:?}");
    stage.write(".claude/settings.json", SETTINGS);
    stage.write("sandbox.policy.yaml", "version: 1\n");
    init(&stage, &flags)
        .expect(1, &["has the backend auto", "beware: .claude/settings.json has 1 more under `PreToolUse`"]);
}
