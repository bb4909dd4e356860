//! What every agent's format has in common: harmless calls are let, whatever else is denied, and nothing panics.

use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use ringfence::layers::{self, Loaded, Sources};
use serde_json::{Map, Value, json};

use crate::call::{Answer, Event};
use crate::{Agent, Ground, Judge, NotJudged, Wall, input};

pub(crate) const RECORDED: [(Agent, &str); 4] = [
    (Agent::ClaudeCode, include_str!("../recorded/claude-code.jsonl")),
    (Agent::Codex, include_str!("../recorded/codex.jsonl")),
    (Agent::Gemini, include_str!("../recorded/gemini.jsonl")),
    (Agent::Cursor, include_str!("../recorded/cursor.jsonl")),
];
pub(crate) const POLICY: &str = "version: 1\nnet: { mode: allowlist, allow: [docs.example.org] }\n\
    tools: { allow: [WebSearch, web_search, google_web_search, mcp__github] }\n";

pub(crate) struct Project {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) wall: Wall,
    loaded: Loaded,
    workspace: PathBuf,
    own: PathBuf,
}

impl Project {
    pub(crate) fn new(policy: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let workspace = folder.path().canonicalize().unwrap().join("work");
        fs::create_dir_all(workspace.join("src")).unwrap();
        fs::write(workspace.join("src/main.rs"), "fn main() {}\n").unwrap();
        let own = workspace.join("sandbox.policy.yaml");
        fs::write(&own, policy).unwrap();
        let sources = Sources {
            project: layers::Project::File(own.clone()),
            workspace: Some(workspace.clone()),
            ..Sources::default()
        };
        let loaded = layers::load(&sources).unwrap();
        Self { folder, wall: Wall::ByPolicy, loaded, workspace, own }
    }

    pub(crate) fn work(&self) -> &Path {
        &self.workspace
    }

    fn judge(&self, agent: Agent) -> Judge {
        Judge::new(Ground {
            agent,
            loaded: self.loaded.clone(),
            workspace: self.workspace.clone(),
            own: vec![self.own.clone()],
            state: None,
            program: std::env::current_exe().unwrap(),
            flags: Vec::new(),
            wall: self.wall,
            home: std::env::var_os("HOME").map(PathBuf::from),
            path: std::env::var_os("PATH").unwrap_or_default(),
            user: 1000,
        })
    }

    pub(crate) fn answer(
        &self,
        agent: Agent,
        input: &Map<String, Value>,
    ) -> Result<Option<(Answer, Value)>, NotJudged> {
        match agent.read(input)? {
            Event::After(_) => Ok(None),
            Event::Before(call) => {
                let judge = self.judge(agent);
                let answer = judge.judge(&call)?;
                let told = agent.answer(&call, judge.judge(&call)?);
                Ok(Some((answer, told)))
            }
        }
    }

    fn recorded(&self, agent: Agent) -> Vec<Map<String, Value>> {
        let text = RECORDED.iter().find(|(known, _)| *known == agent).unwrap().1;
        let work = self.work().to_str().unwrap();
        text.lines().map(|line| input::parse(line.replace("{W}", work).as_bytes()).unwrap()).collect()
    }
}

/// Whether an agent would take `told` for a no.
pub(crate) fn is_denial(told: &Value) -> bool {
    told.pointer("/hookSpecificOutput/permissionDecision") == Some(&json!("deny"))
        || told["decision"] == "deny"
        || told["permission"] == "deny"
}

#[test]
fn every_recorded_harmless_call_is_let() {
    let project = Project::new(POLICY);
    for agent in Agent::ALL {
        for call in project.recorded(agent) {
            let (answer, told) =
                project.answer(agent, &call).unwrap_or_else(|error| panic!("{call:?}: {error}")).unwrap();
            assert!(matches!(answer, Answer::Free | Answer::Changed(_)), "{call:?}: {answer:?}");
            assert!(!is_denial(&told), "{told}");
        }
    }
}

#[test]
fn a_command_that_was_made_a_run_is_not_made_one_twice_and_says_the_same() {
    let project = Project::new(POLICY);
    for agent in Agent::ALL {
        for mut call in project.recorded(agent) {
            let Some((Answer::Changed(changed), _)) = project.answer(agent, &call).unwrap() else { continue };
            let key = if changed.contains_key("cmd") { "cmd" } else { "command" };
            let Some(Value::String(line)) = changed.get(key).cloned() else { continue };
            call.insert("tool_input".to_owned(), Value::Object(changed));
            let (again, _) = project.answer(agent, &call).unwrap().unwrap();
            assert!(matches!(again, Answer::Free), "{line}: {again:?}");
            let words = ringfence_policy::split_words(&line).unwrap();
            assert!(words[1] == "run" && words.last().unwrap().starts_with("--shell="), "{line}");
        }
    }
}

/// The line that a command becomes.
fn becomes(project: &Project, line: &str) -> Result<String, Answer> {
    let call = json!({ "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": { "command": line } });
    match project.answer(Agent::Codex, call.as_object().unwrap()).unwrap().unwrap().0 {
        Answer::Changed(input) => Ok(input["command"].as_str().unwrap().to_owned()),
        other => Err(other),
    }
}

#[test]
fn a_model_that_calls_us_itself_widens_nothing() {
    let project = Project::new(POLICY);
    let ours = becomes(&project, "ls").unwrap();
    let program = ours.split(" run ").next().unwrap().to_owned();
    for line in [
        "ringfence run --backend none --shell ls".to_owned(),
        format!("{program} run --backend=none --shell=ls"),
        format!("{program} run --grant net.mode --net open --shell=ls"),
        format!("{ours} ; touch /tmp/x"),
        format!("{ours} --backend=none"),
        ours.replace("--at=same", "--at=same --backend=none"),
        ours.replace("--shell=", "--approve=delete.workspace --shell="),
        ours.replace("--workspace=", "--workspace=/tmp --workspace="),
        ours.replace("--policy=", "--policy=/tmp/x.yaml --policy="),
        format!("{ours}\ntouch /tmp/x"),
        format!("X=1 {ours}"),
    ] {
        // It is a command like any other: what is run is ours, and it is inside.
        match becomes(&project, &line) {
            Ok(changed) => {
                let words = ringfence_policy::split_words(&changed).unwrap();
                assert_eq!(words.last().unwrap(), &format!("--shell={line}"), "{line}");
                assert!(!words[..words.len() - 1].iter().any(|word| word.contains("none") || word.contains("approve")));
            }
            Err(answer) => assert!(matches!(answer, Answer::Deny(_)), "{line}: {answer:?}"),
        }
    }
    // A longer time is cut to what the policy has; the form is ours again.
    let longer = ours.replace("--shell=", "--timeout=999999999ms --shell=");
    assert!(becomes(&project, &longer).unwrap().contains("--timeout=600000ms --shell=ls"));
}

pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        "(\\.\\./|~|/etc/|\\*|\u{0}|\\.env|http://|'|\"|\n|[a-z]){0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::hash_map("[a-z_]{1,12}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

const EVENTS: [&str; 12] = [
    "PreToolUse",
    "PostToolUse",
    "BeforeTool",
    "AfterTool",
    "preToolUse",
    "beforeShellExecution",
    "beforeReadFile",
    "beforeMCPExecution",
    "postToolUse",
    "afterFileEdit",
    "Stop",
    "",
];
const KEYS: [&str; 14] = [
    "command",
    "cmd",
    "file_path",
    "path",
    "pattern",
    "url",
    "prompt",
    "glob",
    "include",
    "timeout",
    "workdir",
    "notebook_path",
    "server",
    "dangerouslyDisableSandbox",
];
const TOOLS: [&str; 16] = [
    "Bash",
    "Read",
    "Write",
    "Grep",
    "Glob",
    "WebFetch",
    "shell",
    "apply_patch",
    "run_shell_command",
    "read_many_files",
    "web_fetch",
    "Shell",
    "StrReplace",
    "mcp__x__y",
    "grep_files",
    "LSP",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes_are_no_call(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        // An object has to name an event; no bytes of this length do so by chance.
        if let Ok(fields) = input::parse(&bytes) {
            for agent in Agent::ALL {
                prop_assert!(agent.read(&fields).is_err());
            }
        }
    }

    #[test]
    fn any_call_is_answered_or_denied_without_a_panic(
        event in proptest::sample::select(&EVENTS[..]),
        tool in proptest::sample::select(&TOOLS[..]),
        key in proptest::sample::select(&KEYS[..]),
        value in any_json(),
        other in any_json(),
        cwd in any_json(),
    ) {
        let project = Project::new(POLICY);
        let mut call = json!({ "hook_event_name": event, "tool_name": tool, "cwd": cwd, key: value.clone() });
        call["tool_input"] = json!({ key: value, "pattern": other });
        for agent in Agent::ALL {
            if let Ok(Some((answer, told))) = project.answer(agent, call.as_object().unwrap()) {
                prop_assert!(told.is_object());
                let denied = matches!(answer, Answer::Deny(_)) || matches!(answer, Answer::Ask(..)) && agent != Agent::ClaudeCode;
                prop_assert_eq!(denied, is_denial(&told), "{}", told);
            }
        }
    }

    #[test]
    fn an_unknown_tool_is_denied(name in "[A-Za-z_]{1,20}[0-9]{3}", input in any_json()) {
        let project = Project::new(POLICY);
        for (agent, event) in [(Agent::ClaudeCode, "PreToolUse"), (Agent::Codex, "PreToolUse"), (Agent::Gemini, "BeforeTool"), (Agent::Cursor, "preToolUse")] {
            let call = json!({ "hook_event_name": event, "tool_name": name, "tool_input": input });
            if let Ok(Some((answer, told))) = project.answer(agent, call.as_object().unwrap()) {
                prop_assert!(matches!(answer, Answer::Deny(_)));
                prop_assert!(is_denial(&told));
            }
        }
    }

    #[test]
    fn any_harmless_command_comes_through_the_quotes_as_it_was(
        words in proptest::collection::vec("[a-zA-Z0-9 '\"\\\\$!\n\t\u{fc}*?~#]{0,30}", 1..4)
    ) {
        let project = Project::new("version: 1\nvalidate: off\n");
        let line = format!("echo {}", words.join("\n"));
        let changed = becomes(&project, &line).map_err(|answer| TestCaseError::fail(format!("{answer:?}")))?;
        let read = ringfence_policy::split_words(&changed).unwrap();
        prop_assert_eq!(read.last().unwrap(), &format!("--shell={line}"));
    }

    #[test]
    fn any_plain_file_of_the_workspace_may_be_touched(name in "[a-z]{1,8}(/[a-z]{1,8}){0,3}\\.(rs|py|md|txt)") {
        let project = Project::new(POLICY);
        prop_assume!(!name.contains("key."));
        for (tool, key) in [("Read", "file_path"), ("Write", "file_path"), ("Edit", "file_path"), ("NotebookEdit", "notebook_path")] {
            for path in [name.clone(), project.work().join(&name).to_str().unwrap().to_owned(), format!("./src/../{name}")] {
                let call = json!({ "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": { key: path } });
                let (answer, _) = project.answer(Agent::ClaudeCode, call.as_object().unwrap()).unwrap().unwrap();
                prop_assert!(matches!(answer, Answer::Free), "{}: {:?}", name, answer);
            }
        }
    }
}

#[track_caller]
pub(crate) fn check(project: &Project, agent: Agent, call: &Value, let_through: bool, rule: &str) {
    let work = project.work().to_str().unwrap();
    let call = input::parse(call.to_string().replace("{W}", work).as_bytes()).unwrap();
    let (answer, told) = project.answer(agent, &call).unwrap().unwrap();
    match &answer {
        Answer::Free | Answer::Changed(_) => assert!(let_through, "{call:?} was let through"),
        Answer::Ask(refusal, _) | Answer::Deny(refusal) => {
            assert!(!let_through, "{call:?}: {refusal:?}");
            assert_eq!(refusal.rule, rule, "{call:?}: {refusal:?}");
        }
    }
    assert_eq!(is_denial(&told), matches!(answer, Answer::Deny(_)), "{told}");
}

#[test]
fn file_tools_stay_in_the_workspace_and_off_what_is_denied_or_protected() {
    let project = Project::new(POLICY);
    let work = project.work();
    let outside = project.folder.path().join("outside");
    fs::create_dir_all(outside.join("deep")).unwrap();
    std::os::unix::fs::symlink(&outside, work.join("out")).unwrap();
    std::os::unix::fs::symlink("out/deep", work.join("nested")).unwrap();
    fs::write(work.join(".env"), "SECRET=1\n").unwrap();
    std::os::unix::fs::symlink(".env", work.join("plain.txt")).unwrap();
    let file = |tool: &str, path: &str, let_through: bool, rule: &str| {
        let call = json!({ "hook_event_name": "PreToolUse", "tool_name": tool, "tool_input": { "file_path": path } });
        check(&project, Agent::ClaudeCode, &call, let_through, rule);
    };
    file("Read", "{W}/src/main.rs", true, "");
    for denied in
        ["{W}/.env", ".env", "src/../.env", "{W}/.ENV", "plain.txt", "a/.ssh/config", "~/.ssh/id_rsa", "out/.env"]
    {
        file("Read", denied, false, "fs.deny");
        file("Write", denied, false, "fs.deny");
    }
    file("Read", "{W}/.env.example", true, "");
    for elsewhere in
        ["/etc/passwd", "../x", "{W}/../x", "out/x", "nested/x", "nested/../../x", "/proc/self/environ", "/"]
    {
        file("Read", elsewhere, false, "fs.workspace");
        file("Write", elsewhere, false, "fs.workspace");
    }
    file("Read", "/usr/share/x", true, "");
    file("Write", "/usr/share/x", false, "fs.workspace");
    for protected in [".git/hooks/pre-commit", "{W}/.claude/settings.json", ".vscode/tasks.json", ".GIT/config"] {
        file("Write", protected, false, "fs.protect");
        file("Read", protected, true, "");
    }
    file("Write", "sandbox.policy.yaml", false, "hook.own-files");
    file("Read", "sandbox.policy.yaml", true, "");
    let read_only = Project::new("version: 1\nextends: [preset:read-only]\n");
    let call = json!({ "hook_event_name": "PreToolUse", "tool_name": "Write", "tool_input": { "file_path": "x.txt" } });
    check(&read_only, Agent::ClaudeCode, &call, false, "fs.workspace");
}

#[test]
fn what_needs_a_person_is_asked_of_one_or_denied() {
    let project = Project::new(&format!("{POLICY}commands: [{{ ask: [git, push] }}]\n"));
    let call = |agent: Agent, event: &str, tool: &str, input: Value, mode: &str| {
        let call = json!({ "hook_event_name": event, "tool_name": tool, "tool_input": input, "permission_mode": mode });
        project.answer(agent, call.as_object().unwrap()).unwrap().unwrap()
    };
    let line = json!({ "command": "git push --force origin main" });
    let (answer, told) = call(Agent::ClaudeCode, "PreToolUse", "Bash", line.clone(), "default");
    let Answer::Ask(_, Some(input)) = answer else { panic!("{answer:?}") };
    assert!(input["command"].as_str().unwrap().contains("--approve="), "{input:?}");
    assert_eq!(told["hookSpecificOutput"]["permissionDecision"], "ask");
    let (answer, _) = call(Agent::ClaudeCode, "PreToolUse", "Bash", line.clone(), "bypassPermissions");
    assert!(matches!(answer, Answer::Deny(_)), "{answer:?}");
    for (agent, event, tool) in [
        (Agent::Codex, "PreToolUse", "Bash"),
        (Agent::Gemini, "BeforeTool", "run_shell_command"),
        (Agent::Cursor, "preToolUse", "Shell"),
    ] {
        let (_, told) = call(agent, event, tool, line.clone(), "default");
        assert!(is_denial(&told), "{told}");
        // The twin: a plain command of the same tool.
        let (answer, told) = call(agent, event, tool, json!({ "command": "git status" }), "default");
        assert!(matches!(answer, Answer::Changed(_)) && !is_denial(&told), "{told}");
    }
    let (answer, _) = call(Agent::ClaudeCode, "PreToolUse", "Bash", json!({ "command": "rm -rf /" }), "default");
    assert!(matches!(answer, Answer::Deny(_)), "{answer:?}");
}

#[test]
fn web_tools_go_by_the_rules_of_the_network_and_unlisted_servers_are_denied() {
    let project = Project::new(POLICY);
    let tool =
        |name: &str, input: Value| json!({ "hook_event_name": "PreToolUse", "tool_name": name, "tool_input": input });
    let claude = |call: Value, let_through, rule| check(&project, Agent::ClaudeCode, &call, let_through, rule);
    claude(tool("WebFetch", json!({ "url": "https://docs.example.org/x", "prompt": "p" })), true, "");
    for url in [
        "https://evil.example.org/",
        "http://127.0.0.1/",
        "file:///etc/passwd",
        "docs.example.org@evil.example",
        "",
        "https://docs.example.org.evil.test/",
    ] {
        claude(tool("WebFetch", json!({ "url": url, "prompt": "p" })), false, "net.rules");
    }
    claude(tool("WebSearch", json!({ "query": "x" })), true, "");
    claude(tool("mcp__github__x", json!({})), true, "");
    claude(tool("mcp__ringfence__x", json!({})), true, "");
    claude(tool("mcp__plugin_ringfence_ringfence__x", json!({})), true, "");
    for other in [
        "mcp__other__x",
        "mcp__ringfenced__x",
        "mcp__ringfence_evil__x",
        "mcp__ringfence",
        "mcp__githubs__x",
        "mcp__x__ringfence",
    ] {
        claude(tool(other, json!({})), false, "tools.mcp");
    }
    claude(tool("Bash", json!({ "command": "ls", "dangerouslyDisableSandbox": true })), false, "hook.disable-sandbox");
    claude(tool("Bash", json!({ "command": "ls", "dangerouslyDisableSandbox": false })), true, "");
    let bare = Project::new("version: 1\n");
    check(&bare, Agent::ClaudeCode, &tool("WebSearch", json!({ "query": "x" })), false, "tools.search");
    let gemini = |prompt: &str| json!({ "hook_event_name": "BeforeTool", "tool_name": "web_fetch", "tool_input": { "prompt": prompt } });
    check(&project, Agent::Gemini, &gemini("see https://docs.example.org/a"), true, "");
    check(&project, Agent::Gemini, &gemini("see https://docs.example.org/a and http://evil.test"), false, "net.rules");
    check(&project, Agent::Gemini, &gemini("no address"), false, "net.rules");
}

#[test]
fn a_search_leaves_out_what_is_denied_or_is_denied_itself() {
    let project = Project::new(POLICY);
    let grep = |input: Value| json!({ "hook_event_name": "PreToolUse", "tool_name": "Grep", "tool_input": input });
    let call = grep(json!({ "pattern": "x", "glob": "*.rs" }));
    let (answer, _) = project.answer(Agent::ClaudeCode, call.as_object().unwrap()).unwrap().unwrap();
    let Answer::Changed(input) = answer else { panic!("{answer:?}") };
    let globs = input["glob"].as_str().unwrap();
    assert!(globs.starts_with("*.rs "), "{globs}");
    assert!(globs.contains("!**/.[eE][nN][vV] ") && globs.contains("!**/.[sS][sS][hH]/**"), "{globs}");
    check(&project, Agent::ClaudeCode, &grep(json!({ "pattern": "x", "path": ".env" })), false, "fs.deny");
    check(&project, Agent::ClaudeCode, &grep(json!({ "pattern": "x", "path": "/etc" })), false, "fs.workspace");
    check(&project, Agent::ClaudeCode, &grep(json!({ "pattern": "x", "path": "src" })), true, "");
    let codex = |path: &str| json!({ "hook_event_name": "PreToolUse", "tool_name": "grep_files", "tool_input": { "pattern": "x", "path": path } });
    check(&project, Agent::Codex, &codex("."), true, "");
    fs::write(project.work().join(".env"), "SECRET=1\n").unwrap();
    check(&project, Agent::Codex, &codex("."), false, "fs.deny");
    check(&project, Agent::Codex, &codex("src"), true, "");
}

#[test]
fn patches_are_judged_by_every_file_that_they_name() {
    let project = Project::new(POLICY);
    let patch = |text: &str| json!({ "hook_event_name": "PreToolUse", "tool_name": "apply_patch", "tool_input": { "command": text } });
    check(&project, Agent::Codex, &patch("*** Begin Patch\n*** Add File: a.rs\n+x\n*** End Patch"), true, "");
    check(&project, Agent::Codex, &patch("*** Add File: a.rs\n+x\n*** Update File: ../b\n"), false, "fs.workspace");
    check(
        &project,
        Agent::Codex,
        &patch("*** Update File: a.rs\n*** Move to: .git/hooks/pre-commit\n"),
        false,
        "fs.protect",
    );
    check(&project, Agent::Codex, &patch("*** Delete File: .env\n"), false, "fs.deny");
    let empty = patch("nothing at all");
    assert!(project.answer(Agent::Codex, empty.as_object().unwrap()).is_err());
}

#[test]
fn cursor_runs_only_what_stands_behind_the_wall_where_it_cannot_be_given_another_command() {
    let project = Project::new(POLICY);
    let event = |line: &str| json!({ "hook_event_name": "beforeShellExecution", "command": line, "cwd": "{W}", "workspace_roots": ["{W}"] });
    check(&project, Agent::Cursor, &event("ls"), false, "hook.wall");
    let before = json!({ "hook_event_name": "preToolUse", "tool_name": "Shell", "tool_input": { "command": "ls" }, "cwd": project.work() });
    let (answer, told) = project.answer(Agent::Cursor, before.as_object().unwrap()).unwrap().unwrap();
    let Answer::Changed(input) = answer else { panic!("{answer:?}") };
    assert_eq!(told["updated_input"]["command"], input["command"]);
    check(&project, Agent::Cursor, &event(input["command"].as_str().unwrap()), true, "");
    check(&project, Agent::Cursor, &event(&format!("{} ; id", input["command"].as_str().unwrap())), false, "hook.wall");
}
