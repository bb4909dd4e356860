//! Calls that try to get around the judgement, each beside a harmless one that looks alike.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::call::Answer;
use crate::tests::{Project, check};
use crate::{Agent, Wall};

const PLAIN: &str = "version: 1\n";

/// Each agent's event, and its tools for commands, reading and writing.
const TOOLS: [(Agent, &str, &str, &str, &str); 4] = [
    (Agent::ClaudeCode, "PreToolUse", "Bash", "Read", "Write"),
    (Agent::Codex, "PreToolUse", "exec_command", "read_file", "read_file"),
    (Agent::Gemini, "BeforeTool", "run_shell_command", "read_file", "write_file"),
    (Agent::Cursor, "preToolUse", "Shell", "Read", "Write"),
];

fn call(event: &str, tool: &str, input: Value) -> Value {
    json!({ "hook_event_name": event, "tool_name": tool, "tool_input": input, "cwd": "{W}", "permission_mode": "default" })
}

/// Denied because it cannot be judged.
#[track_caller]
fn not_judged(project: &Project, agent: Agent, call: &Value) {
    assert!(project.answer(agent, call.as_object().unwrap()).is_err(), "{call}");
}

#[test]
fn a_command_with_an_argument_that_nobody_knows_is_denied_and_known_ones_are_let() {
    let project = Project::new(PLAIN);
    for (agent, event, tool, _, _) in TOOLS {
        for (name, value) in [
            ("shell", json!("./bash")),
            ("env", json!({ "LD_PRELOAD": "./x.so" })),
            ("environment_id", json!("other")),
            ("environment", json!([])),
            ("Command", json!("id")),
            ("user", json!("root")),
        ] {
            let with = call(event, tool, json!({ "command": "ls", name: value }));
            check(&project, agent, &with, false, "hook.argument");
        }
        check(&project, agent, &call(event, tool, json!({ "command": "ls", "shell": null })), true, "");
        check(&project, agent, &call(event, tool, json!({ "command": "ls", "description": "d" })), true, "");
    }
    let known = json!({ "cmd": "ls", "workdir": "{W}/src", "tty": false, "login": true, "justification": "j", "yield_time_ms": 1 });
    check(&project, Agent::Codex, &call("PreToolUse", "exec_command", known), true, "");
    let known =
        json!({ "command": "ls", "block_until_ms": 0, "required_permissions": ["all"], "working_directory": "" });
    check(&project, Agent::Cursor, &call("preToolUse", "Shell", known), true, "");
}

#[test]
fn every_word_for_a_path_counts_and_two_words_for_a_command_are_not_judged() {
    let project = Project::new(PLAIN);
    not_judged(&project, Agent::Codex, &call("PreToolUse", "exec_command", json!({ "command": "ls", "cmd": "id" })));
    not_judged(&project, Agent::Codex, &call("PreToolUse", "exec_command", json!({ "command": ["ls", 1] })));
    let both = json!({ "command": "ls", "dir_path": "src", "directory": "/tmp" });
    not_judged(&project, Agent::Gemini, &call("BeforeTool", "run_shell_command", both));
    for (agent, event, _, read, write) in TOOLS {
        for tool in [read, write] {
            for other in ["path", "absolute_path", "target_file", "notebook_path"] {
                let with = call(event, tool, json!({ "file_path": "src/main.rs", other: "/etc/shadow" }));
                check(&project, agent, &with, false, "fs.workspace");
                let with = call(event, tool, json!({ "file_path": "src/main.rs", other: "src/other.rs" }));
                check(&project, agent, &with, true, "");
                not_judged(&project, agent, &call(event, tool, json!({ "file_path": "a.rs", other: ["/etc/shadow"] })));
            }
        }
    }
    let many = |include: Value| call("BeforeTool", "read_many_files", json!({ "include": include }));
    not_judged(&project, Agent::Gemini, &many(json!(["src/*.rs", { "x": 1 }])));
    check(&project, Agent::Gemini, &many(json!(["src/*.rs"])), true, "");
}

#[test]
fn paths_with_white_space_around_them_or_an_address_are_denied_and_a_tilde_is_read_both_ways() {
    let project = Project::new(PLAIN);
    let outside = project.folder.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir_all(project.work().join("~")).unwrap();
    std::os::unix::fs::symlink(&outside, project.work().join("~/work")).unwrap();
    let read = |path: &str| call("PreToolUse", "Read", json!({ "file_path": path }));
    for odd in [" .env", ".env ", "\t.env", "file:.env", "file:///etc/passwd", "File:x"] {
        check(&project, Agent::ClaudeCode, &read(odd), false, "fs.unreadable-path");
    }
    for plain in ["my notes.txt", "src/file", "file.rs"] {
        check(&project, Agent::ClaudeCode, &read(plain), true, "");
    }
    check(&project, Agent::ClaudeCode, &read("~/notes.txt"), false, "fs.workspace");
    check(&project, Agent::ClaudeCode, &read("~/work/x"), false, "fs.workspace");
    check(&project, Agent::ClaudeCode, &read("./~/x"), true, "");
}

#[test]
fn where_the_policy_has_no_wall_a_person_decides_and_otherwise_it_is_denied() {
    for policy in ["version: 1\nbackend: none\n", "version: 1\nbackend: spawn\n"] {
        let mut project = Project::new(policy);
        for (agent, event, tool, _, _) in TOOLS {
            check(&project, agent, &call(event, tool, json!({ "command": "ls" })), false, "hook.no-wall");
        }
        let ask = call("PreToolUse", "Bash", json!({ "command": "ls" }));
        let ask: Value =
            serde_json::from_str(&ask.to_string().replace("{W}", project.work().to_str().unwrap())).unwrap();
        let (answer, told) = project.answer(Agent::ClaudeCode, ask.as_object().unwrap()).unwrap().unwrap();
        assert!(matches!(answer, Answer::Ask(_, Some(_))), "{answer:?}");
        assert_eq!(told["hookSpecificOutput"]["permissionDecision"], "ask");
        // Whoever writes the hook's command decides for themselves.
        project.wall = Wall::ByHook;
        for (agent, event, tool, _, _) in TOOLS {
            check(&project, agent, &call(event, tool, json!({ "command": "ls" })), true, "");
        }
    }
    let walled = Project::new("version: 1\nbackend: native\n");
    check(&walled, Agent::Codex, &call("PreToolUse", "exec_command", json!({ "cmd": "ls" })), true, "");
}

#[test]
fn only_modes_that_are_known_to_ask_count_as_a_person() {
    let project = Project::new("version: 1\ncommands: [{ ask: [touch, asked] }]\n");
    for (mode, asks) in [
        (json!("default"), true),
        (json!("acceptEdits"), true),
        (json!("plan"), true),
        (json!("bypassPermissions"), false),
        (json!("dontAsk"), false),
        (json!("auto"), false),
        (json!("Default"), false),
        (Value::Null, false),
    ] {
        let call = json!({ "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": { "command": "touch asked" }, "permission_mode": mode });
        let (answer, _) = project.answer(Agent::ClaudeCode, call.as_object().unwrap()).unwrap().unwrap();
        assert_eq!(matches!(answer, Answer::Ask(..)), asks, "{mode}: {answer:?}");
        assert_eq!(matches!(answer, Answer::Deny(_)), !asks, "{mode}: {answer:?}");
    }
}

#[test]
fn file_tools_ask_for_files_that_are_flagged_by_name_and_leave_daily_ones_free() {
    let project = Project::new(PLAIN);
    for (agent, event, write) in [
        (Agent::ClaudeCode, "PreToolUse", "Write"),
        (Agent::Gemini, "BeforeTool", "write_file"),
        (Agent::Cursor, "preToolUse", "Write"),
    ] {
        for asked in
            [".github/workflows/ci.yml", ".yarnrc.yml", "mise.toml", "node_modules/.bin/x", ".venv/bin/python", "a.pyc"]
        {
            check(&project, agent, &call(event, write, json!({ "file_path": asked })), false, "fs.protect");
        }
        for daily in [
            "Makefile",
            "package.json",
            "Cargo.toml",
            "build.rs",
            "conftest.py",
            "vite.config.ts",
            "Dockerfile",
            "src/cmd.rs",
        ] {
            check(&project, agent, &call(event, write, json!({ "file_path": daily })), true, "");
        }
    }
}

#[test]
fn what_an_agent_keeps_for_this_project_is_its_own_and_that_of_others_is_not() {
    let home = PathBuf::from(std::env::var_os("HOME").unwrap()).canonicalize().unwrap();
    let project = Project::new(PLAIN);
    let touch = |agent: Agent, tool: &str, path: &str, let_through: bool| {
        let (event, own) = match agent {
            Agent::Gemini => ("BeforeTool", ".gemini/tmp/own/chats/a.json"),
            Agent::Cursor => ("preToolUse", ".cursor/projects/own/agent-transcripts/a.jsonl"),
            Agent::ClaudeCode | Agent::Codex => ("PreToolUse", ".claude/projects/-own/a.jsonl"),
        };
        let mut call = call(event, tool, json!({ "file_path": home.join(path) }));
        call["transcript_path"] = json!(home.join(own));
        check(&project, agent, &call, let_through, "fs.workspace");
        if !path.contains("plans") && let_through {
            call.as_object_mut().unwrap().remove("transcript_path");
            check(&project, agent, &call, false, "fs.workspace");
        }
    };
    touch(Agent::ClaudeCode, "Read", ".claude/projects/-own/s/tool-results/x.txt", true);
    touch(Agent::ClaudeCode, "Read", ".claude/projects/-other/b.jsonl", false);
    touch(Agent::ClaudeCode, "Write", ".claude/projects/-own/x.txt", false);
    touch(Agent::ClaudeCode, "Write", ".claude/plans/plan.md", true);
    touch(Agent::Gemini, "write_file", ".gemini/tmp/own/plans/p.md", true);
    touch(Agent::Gemini, "write_file", ".gemini/tmp/bin/rg", false);
    touch(Agent::Gemini, "read_file", ".gemini/tmp/other/x", false);
    touch(Agent::Cursor, "Read", ".cursor/projects/own/terminals/1.txt", true);
    touch(Agent::Cursor, "Read", ".cursor/projects/other/terminals/1.txt", false);
    touch(Agent::Cursor, "Write", ".cursor/projects/own/terminals/1.txt", false);
    touch(Agent::Cursor, "Read", ".cursor/mcp.json", false);
}

#[test]
fn a_file_in_a_copy_of_the_project_is_judged_as_the_projects() {
    let project = Project::new("version: 1\nfs: { deny: [\"secrets/**\"] }\n");
    let write = |path: &str| call("PreToolUse", "Write", json!({ "file_path": path }));
    check(&project, Agent::ClaudeCode, &write(".claude/worktrees/x/src/a.rs"), true, "");
    for kept in [
        ".claude/worktrees/x",
        ".claude/worktrees/x/.envrc",
        ".claude/worktrees/x/.claude/settings.json",
        ".claude/x/a.rs",
    ] {
        check(&project, Agent::ClaudeCode, &write(kept), false, "fs.protect");
    }
    check(&project, Agent::ClaudeCode, &write(".claude/worktrees/x/secrets/a"), false, "fs.deny");
    let cursor = call("preToolUse", "Write", json!({ "file_path": ".claude/worktrees/x/src/a.rs" }));
    check(&project, Agent::Cursor, &cursor, true, "");
}

#[test]
fn codex_starts_a_command_where_it_wants_to_and_the_others_are_told() {
    let project = Project::new(PLAIN);
    for (agent, event, tool, _, _) in TOOLS {
        let call = json!({ "hook_event_name": event, "tool_name": tool, "tool_input": { "command": "ls" } });
        let (answer, _) = project.answer(agent, call.as_object().unwrap()).unwrap().unwrap();
        let Answer::Changed(input) = answer else { panic!("{answer:?}") };
        let line = input["command"].as_str().unwrap();
        assert_eq!(line.contains(" --cwd="), agent != Agent::Codex, "{line}");
        assert!(line.contains(" --ask=nobody "), "{line}");
    }
}

#[test]
fn a_pattern_that_leads_up_behind_its_first_special_letter_is_not_judged() {
    let project = Project::new(PLAIN);
    let glob =
        |pattern: &str, path: Option<&str>| call("PreToolUse", "Glob", json!({ "pattern": pattern, "path": path }));
    for up in [
        "*/../../x",
        "{..,src}/x",
        "src/{../..,a}/*",
        "[a]/../../../x",
        "{/etc,src}/*",
        "{src,~/.ssh}/*",
        ".\\./x/*",
        "@(..|a)/x",
    ] {
        not_judged(&project, Agent::ClaudeCode, &glob(up, None));
    }
    for (out, path) in [
        ("../*", None),
        ("../x", None),
        ("src/../..", None),
        ("/etc/*", None),
        ("../../*", Some("src")),
        ("*", Some("/etc")),
    ] {
        check(&project, Agent::ClaudeCode, &glob(out, path), false, "fs.workspace");
    }
    for (free, path) in [
        ("**/*.rs", None),
        ("../*.rs", Some("{W}/src")),
        ("*.{rs,py}", Some("src")),
        ("src/(group)/*.ts", None),
        ("main.rs", Some("src")),
    ] {
        check(&project, Agent::ClaudeCode, &glob(free, path), true, "");
    }
}

#[test]
fn what_a_search_leaves_out_is_left_out_wherever_it_begins() {
    let project = Project::new("version: 1\nfs: { deny: [\"secrets/**\", \"**/kept.txt\"] }\n");
    let grep = json!({ "hook_event_name": "PreToolUse", "tool_name": "Grep", "tool_input": { "pattern": "x", "path": "src" } });
    let (answer, _) = project.answer(Agent::ClaudeCode, grep.as_object().unwrap()).unwrap().unwrap();
    let Answer::Changed(input) = answer else { panic!("{answer:?}") };
    let globs: Vec<&str> = input["glob"].as_str().unwrap().split(' ').collect();
    let secrets = "!**/[sS][eE][cC][rR][eE][tT][sS]/**";
    assert!(globs.contains(&secrets) && globs.contains(&"!**/[kK][eE][pP][tT].[tT][xX][tT]"), "{globs:?}");
    assert!(globs.iter().all(|glob| glob.starts_with("!**/") && !glob.contains("**/**/")), "{globs:?}");
}

#[test]
fn a_server_that_only_looks_like_ours_is_not_ours() {
    let project = Project::new(PLAIN);
    let tool = |name: &str| call("PreToolUse", name, json!({}));
    check(&project, Agent::ClaudeCode, &tool("mcp__ringfence__sandboxed_code_run"), true, "");
    check(&project, Agent::ClaudeCode, &tool("mcp__ringfence__x__run"), false, "tools.mcp");
    let server = |command: &str| json!({ "hook_event_name": "beforeMCPExecution", "tool_name": "run", "tool_input": "{}", "command": command });
    for other in ["./ringfence mcp", "bin/ringfence mcp", "ringfence run", "evil mcp", "sh -c 'ringfence mcp'"] {
        check(&project, Agent::Cursor, &server(other), false, "tools.mcp");
    }
    for ours in ["ringfence mcp", "/usr/local/bin/ringfence mcp"] {
        check(&project, Agent::Cursor, &server(ours), true, "");
    }
}

#[test]
fn a_server_with_our_name_that_something_else_starts_is_not_ours() {
    let project = Project::new(PLAIN);
    let call = |name: &str, command: Option<&str>| json!({ "hook_event_name": "beforeMCPExecution", "tool_name": "run", "tool_input": "{}", "mcp_server_name": name, "command": command });
    check(&project, Agent::Cursor, &call("ringfence", Some("ringfence mcp")), true, "");
    check(&project, Agent::Cursor, &call("walls", Some("/usr/bin/ringfence mcp --http 127.0.0.1:1")), true, "");
    check(&project, Agent::Cursor, &call("ringfence", None), true, "");
    check(&project, Agent::Cursor, &call("ringfence", Some("node ./ringfence.js mcp")), false, "tools.mcp");
    check(&project, Agent::Cursor, &call("plugin:ringfence:ringfence", Some("node evil.js")), false, "tools.mcp");
    let mut by_address = call("ringfence", None);
    by_address["url"] = "https://elsewhere.example/mcp".into();
    check(&project, Agent::Cursor, &by_address, false, "tools.mcp");
    check(&project, Agent::Cursor, &call("other", None), false, "tools.mcp");
    let listed = Project::new("version: 1\ntools: { allow: [mcp__github] }\n");
    check(&listed, Agent::Cursor, &call("github", Some("npx github")), true, "");
    not_judged(
        &project,
        Agent::Cursor,
        &json!({ "hook_event_name": "beforeMCPExecution", "tool_name": "run", "command": ["ringfence", "mcp"] }),
    );
}

#[test]
fn cursor_names_the_folder_of_a_command_by_either_word_and_its_waiting_time_is_no_limit() {
    let project = Project::new(PLAIN);
    let shell = |input: Value| call("preToolUse", "Shell", input);
    check(
        &project,
        Agent::Cursor,
        &shell(json!({ "command": "ls", "cwd": "/etc", "timeout": 30000 })),
        false,
        "fs.workspace",
    );
    check(
        &project,
        Agent::Cursor,
        &shell(json!({ "command": "ls", "cwd": "{W}/src", "working_directory": "{W}/src" })),
        true,
        "",
    );
    not_judged(&project, Agent::Cursor, &shell(json!({ "command": "ls", "cwd": "src", "working_directory": "." })));
    not_judged(&project, Agent::Cursor, &shell(json!({ "command": "ls", "cwd": ["src"] })));
    let work = project.work().to_str().unwrap();
    let asked = shell(json!({ "command": "ls", "cwd": "{W}/src", "timeout": 30000 })).to_string().replace("{W}", work);
    let asked: Value = serde_json::from_str(&asked).unwrap();
    let (answer, _) = project.answer(Agent::Cursor, asked.as_object().unwrap()).unwrap().unwrap();
    let Answer::Changed(input) = answer else { panic!("{answer:?}") };
    let line = input["command"].as_str().unwrap();
    assert!(line.contains(&format!("--cwd={work}/src ")) && line.contains(" --timeout=600000ms "), "{line}");
    // Cursor asks again, by an event that says less.
    let again = json!({ "hook_event_name": "beforeShellExecution", "command": line, "cwd": "", "sandbox": false, "workspace_roots": [work] });
    check(&project, Agent::Cursor, &again, true, "");
}

#[test]
fn cursor_that_runs_the_hook_of_claude_code_is_denied_and_told_of_its_own() {
    let project = Project::new(PLAIN);
    let cursor = |tool: &str| json!({ "hook_event_name": "preToolUse", "tool_name": tool, "tool_input": { "command": "ls" }, "cursor_version": "3.9.16" });
    for tool in ["Shell", "MCP:run_shell", "Read"] {
        let asked = cursor(tool);
        let denied = Agent::ClaudeCode.read(asked.as_object().unwrap()).unwrap_err();
        assert!(denied.to_string().contains("ringfence init --agent cursor"), "{tool}: {denied}");
    }
    let (_, told) = project.answer(Agent::Cursor, cursor("Shell").as_object().unwrap()).unwrap().unwrap();
    assert!(told["updated_input"]["command"].as_str().unwrap().contains(" --shell=ls"), "{told}");
    // What a model writes stands in the arguments.
    let claude = call("PreToolUse", "Bash", json!({ "command": "ls", "cursor_version": "3.9.16" }));
    check(&project, Agent::ClaudeCode, &claude, false, "hook.argument");
}

#[test]
fn what_cursor_is_told_of_a_secret_is_what_it_can_use() {
    let token = format!("ghp_{}", "a1".repeat(18));
    let told = |name: &str, output: &str| {
        let call =
            json!({ "hook_event_name": "postToolUse", "tool_name": name, "tool_input": {}, "tool_output": output });
        let crate::Event::After(returned) = Agent::Cursor.read(call.as_object().unwrap()).unwrap() else { panic!() };
        Agent::Cursor.answer_after(&returned, returned.masked(&ringfence::mask::Mask::default()))
    };
    let server = json!({ "content": [{ "type": "text", "text": token }] }).to_string();
    let answer = told("MCP:get", &server);
    let text = answer["updated_mcp_tool_output"]["content"][0]["text"].as_str().unwrap();
    assert!(!text.contains(&token), "{answer}");
    assert!(told("MCP:get", &token)["updated_mcp_tool_output"].is_string());
    assert!(told("Shell", &token)["additional_context"].is_string());
    assert_eq!(told("MCP:get", "nothing"), json!({}));
}

#[test]
fn a_pattern_leads_where_it_would_in_any_case_of_its_letters() {
    let project = Project::new(PLAIN);
    let outside = project.folder.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, project.work().join("out")).unwrap();
    std::os::unix::fs::symlink(project.work(), project.folder.path().join("other-name")).unwrap();
    for (agent, event, tool, key) in [
        (Agent::ClaudeCode, "PreToolUse", "Glob", "pattern"),
        (Agent::Gemini, "BeforeTool", "glob", "pattern"),
        (Agent::Cursor, "preToolUse", "Glob", "glob_pattern"),
    ] {
        check(&project, agent, &call(event, tool, json!({ key: "OUT/*" })), false, "fs.workspace");
        check(&project, agent, &call(event, tool, json!({ key: "SRC/*.rs" })), true, "");
        check(&project, agent, &call(event, tool, json!({ key: "src/*.rs" })), true, "");
        // By another name of the workspace it leads to the same places.
        let by_link = |pattern: &str| {
            let cwd = project.folder.path().join("other-name");
            json!({ "hook_event_name": event, "tool_name": tool, "tool_input": { key: pattern }, "cwd": cwd })
        };
        check(&project, agent, &by_link("OUT/*"), false, "fs.workspace");
        check(&project, agent, &by_link("SRC/*.rs"), true, "");
    }
    let many = |include: &str| call("BeforeTool", "read_many_files", json!({ "include": [include] }));
    check(&project, Agent::Gemini, &many("Out/x.txt"), false, "fs.workspace");
    check(&project, Agent::Gemini, &many("OUT/*"), false, "fs.workspace");
    check(&project, Agent::Gemini, &many("SRC/*"), true, "");
}

#[test]
fn quotes_are_written_so_that_every_shell_reads_them_alike() {
    let words = ["printf".to_owned(), "%s".to_owned(), "it's \\'a\\\\b\\ $x `y` \"z\" !".to_owned()];
    let line = crate::joined(&words);
    assert_eq!(crate::joined(&["a'b\\c".to_owned()]), "'a'\"'\"'b'\"\\\\\"'c'");
    // Between single quotes stands neither: fish would take a backslash there for more than itself.
    assert_eq!(ringfence_policy::split_words(&line).unwrap(), words);
    for shell in ["sh", "bash", "zsh", "fish"] {
        let Ok(read) = std::process::Command::new(shell).args(["-c", &line]).output() else { continue };
        assert_eq!(String::from_utf8_lossy(&read.stdout), words[2], "{shell}");
    }
}
