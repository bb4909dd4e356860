//! What each agent reads, and what has to stand in it: the hooks, and the MCP server.

use clap::ValueEnum;
use ringfence_hook::{Agent, is_us, joined};
use serde_json::{Value, json};

use super::jsonc::{self, NotJson};

/// Something that runs what a model writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Target {
    /// Claude Code
    ClaudeCode,
    /// Codex
    Codex,
    /// Cursor
    Cursor,
    /// Gemini CLI
    Gemini,
    /// Visual Studio Code: the MCP server alone
    Vscode,
}

impl Target {
    pub(crate) const ALL: [Self; 5] = [Self::ClaudeCode, Self::Codex, Self::Cursor, Self::Gemini, Self::Vscode];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Codex => "Codex",
            Self::Cursor => "Cursor",
            Self::Gemini => "Gemini CLI",
            Self::Vscode => "Visual Studio Code",
        }
    }

    /// What in a project says that it is used there.
    pub(super) fn traces(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode => &[".claude", "CLAUDE.md", ".mcp.json"],
            Self::Codex => &[".codex", "AGENTS.md"],
            Self::Cursor => &[".cursor", ".cursorrules"],
            Self::Gemini => &[".gemini", "GEMINI.md"],
            Self::Vscode => &[".vscode"],
        }
    }

    /// And what on a machine says that it is installed.
    pub(super) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode => &["claude"],
            Self::Codex => &["codex"],
            Self::Cursor => &["cursor", "cursor-agent"],
            Self::Gemini => &["gemini"],
            Self::Vscode => &[],
        }
    }

    /// What a person has to do besides.
    pub(super) fn besides(self) -> Option<&'static str> {
        match self {
            Self::Codex => Some(
                "Codex runs a hook of a project only once a person trusted both: open `codex`, trust the project, and trust the hooks under /hooks",
            ),
            Self::ClaudeCode => Some("Claude Code asks once whether the server `ringfence` of `.mcp.json` may be used"),
            Self::Cursor => Some("Cursor reads hooks when it starts: start it again"),
            Self::Gemini => Some(
                "Gemini CLI reads the hooks and the server of a project only in a folder that it trusts: say so when it asks, or under /permissions",
            ),
            Self::Vscode => None,
        }
    }

    /// Files that can turn hooks off, and what in them would. A project's own settings come first, a person's for the project after them.
    fn switches(self) -> &'static [(&'static str, &'static str, Value)] {
        match self {
            Self::ClaudeCode => &[
                (".claude/settings.json", "/disableAllHooks", Value::Bool(true)),
                (".claude/settings.local.json", "/disableAllHooks", Value::Bool(true)),
            ],
            Self::Gemini => &[(".gemini/settings.json", "/hooksConfig/enabled", Value::Bool(false))],
            Self::Codex | Self::Cursor | Self::Vscode => &[],
        }
    }

    /// Why the hooks do not run although they stand there. `read` gives the text of a file of the project.
    pub(super) fn turned_off(self, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let is_off = |(file, pointer, off): &(&str, &str, Value)| {
            let settings = jsonc::parse(&read(file)?).ok()?;
            let found = settings.pointer(pointer)? == off;
            found.then(|| {
                format!("{file}: `{}` turns every hook off", pointer.trim_start_matches('/').replace('/', "."))
            })
        };
        self.switches().iter().filter_map(is_off).collect()
    }

    /// Hooks of others that see a call before it is made: what one of them changes, ours may not have seen.
    pub(super) fn others(self, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
        let (files, event, agent): (&[&str], &str, Agent) = match self {
            Self::ClaudeCode => {
                (&[".claude/settings.json", ".claude/settings.local.json"], "PreToolUse", Agent::ClaudeCode)
            }
            Self::Codex => (&[".codex/hooks.json"], "PreToolUse", Agent::Codex),
            Self::Cursor => (&[".cursor/hooks.json"], "preToolUse", Agent::Cursor),
            Self::Gemini => (&[".gemini/settings.json"], "BeforeTool", Agent::Gemini),
            Self::Vscode => return Vec::new(),
        };
        let count = |file: &&str| {
            let settings = jsonc::parse(&read(file)?).ok()?;
            let entries = settings["hooks"][event].as_array()?;
            let theirs = |hook: &&Value| !calls_us(hook["command"].as_str().unwrap_or_default(), agent);
            let others = entries.iter().flat_map(hooks_of).filter(theirs).count();
            (others > 0).then(|| {
                format!(
                    "beware: {file} has {others} more under `{event}`; what it changes in a call, Ringfence may not see"
                )
            })
        };
        files.iter().filter_map(count).collect()
    }

    /// The files and what is wanted in each.
    pub(super) fn wants(self, program: &str) -> Vec<Wanted> {
        match self {
            Self::ClaudeCode => vec![
                Wanted::new(
                    ".claude/settings.json",
                    ["PreToolUse", "PostToolUse"].map(|event| claude_code(event, program)),
                ),
                Wanted::new(".mcp.json", [server("mcpServers", program)]),
            ],
            Self::Codex => vec![
                Wanted::new(".codex/hooks.json", ["PreToolUse", "PostToolUse"].map(|event| codex(event, program))),
                Wanted::new(".codex/config.toml", [Piece::TomlServer { program: program.to_owned() }]),
            ],
            Self::Cursor => {
                let mut pieces = vec![Piece::Member { path: vec!["version"], value: json!(1), same: Same::Equal }];
                let events = [
                    "preToolUse",
                    "beforeShellExecution",
                    "beforeMCPExecution",
                    "beforeReadFile",
                    "beforeTabFileRead",
                    "postToolUse",
                    "afterFileEdit",
                ];
                pieces.extend(events.map(|event| cursor(event, program)));
                vec![
                    Wanted::new(".cursor/hooks.json", pieces),
                    Wanted::new(".cursor/mcp.json", [server("mcpServers", program)]),
                ]
            }
            Self::Gemini => vec![Wanted::new(
                ".gemini/settings.json",
                ["BeforeTool", "AfterTool"]
                    .map(|event| gemini(event, program))
                    .into_iter()
                    .chain([server("mcpServers", program)]),
            )],
            Self::Vscode => vec![Wanted::new(".vscode/mcp.json", [server("servers", program)])],
        }
    }
}

/// A file and what has to stand in it.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) file: &'static str,
    pub(super) pieces: Vec<Piece>,
}

impl Wanted {
    fn new(file: &'static str, pieces: impl IntoIterator<Item = Piece>) -> Self {
        Self { file, pieces: pieces.into_iter().collect() }
    }
}

/// One thing that has to stand in a file.
#[derive(Debug)]
pub(super) enum Piece {
    /// A member with this value.
    Member { path: Vec<&'static str>, value: Value, same: Same },
    /// An element of an array, which calls our hook for this agent.
    Hook { path: Vec<&'static str>, value: Value, agent: Agent },
    /// Our server, in TOML.
    TomlServer { program: String },
}

/// When a member that is there is as good as ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Same {
    Equal,
    /// It starts our server, wherever our program is.
    StartsServer,
}

/// Why a file is left as it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum CannotAdd {
    #[error(transparent)]
    Json(#[from] NotJson),
    #[error("it is not TOML: {0}")]
    Toml(#[from] toml_edit::TomlError),
    #[error("`{0}` is there already and says something else; change it by hand")]
    Taken(String),
}

impl Piece {
    /// `text` with this in it; unchanged where it is.
    pub(super) fn add(&self, text: &str) -> Result<String, CannotAdd> {
        match self {
            Self::Member { path, value, same } => {
                let pointer = format!("/{}", path.join("/"));
                match jsonc::parse(text)?.pointer(&pointer) {
                    None => Ok(jsonc::set(text, path, value)?),
                    Some(found) if found == value || *same == Same::StartsServer && starts_server(found) => {
                        Ok(text.to_owned())
                    }
                    Some(_) => Err(CannotAdd::Taken(path.join("."))),
                }
            }
            Self::Hook { path, value, agent } => {
                let pointer = format!("/{}", path.join("/"));
                let there = jsonc::parse(text)?;
                let entries = there.pointer(&pointer).and_then(Value::as_array).into_iter().flatten();
                match entries.into_iter().any(|entry| is_as_good(entry, value, *agent)) {
                    true => Ok(text.to_owned()),
                    false => Ok(jsonc::push(text, path, value)?),
                }
            }
            Self::TomlServer { program } => toml_server(text, program),
        }
    }
}

fn toml_server(text: &str, program: &str) -> Result<String, CannotAdd> {
    use toml_edit::{Array, DocumentMut, Item, Table, value};
    let mut document: DocumentMut = text.parse()?;
    let taken = || CannotAdd::Taken("mcp_servers.ringfence".to_owned());
    if let Some(servers) = document.get("mcp_servers") {
        let servers = servers.as_table_like().ok_or_else(taken)?;
        if let Some(found) = servers.get("ringfence") {
            let found = found.as_table_like().ok_or_else(taken)?;
            let command = found.get("command").and_then(Item::as_str).unwrap_or_default();
            let first = found.get("args").and_then(Item::as_array).and_then(|args| args.get(0)?.as_str());
            return if is_us(command) && first == Some("mcp") { Ok(text.to_owned()) } else { Err(taken()) };
        }
    } else {
        let mut servers = Table::new();
        servers.set_implicit(true);
        document.insert("mcp_servers", Item::Table(servers));
    }
    let mut server = Table::new();
    server.insert("command", value(program));
    server.insert("args", value(Array::from_iter(["mcp"])));
    let servers = document.get_mut("mcp_servers").and_then(Item::as_table_like_mut).ok_or_else(taken)?;
    servers.insert("ringfence", Item::Table(server));
    Ok(document.to_string())
}

fn server(key: &'static str, program: &str) -> Piece {
    let mut value = json!({ "command": program, "args": ["mcp"] });
    if key == "servers" {
        value = json!({ "type": "stdio", "command": program, "args": ["mcp"] });
    }
    Piece::Member { path: vec![key, "ringfence"], value, same: Same::StartsServer }
}

fn claude_code(event: &'static str, program: &str) -> Piece {
    let hook = json!({
        "type": "command",
        "command": program,
        "args": ["hook", "claude-code"],
        "timeout": 30,
        // Without it, a hook that cannot be started would be a yes.
        "onFailure": "block",
    });
    Piece::Hook {
        path: vec!["hooks", event],
        value: json!({ "matcher": "*", "hooks": [hook] }),
        agent: Agent::ClaudeCode,
    }
}

fn line(program: &str, agent: Agent) -> String {
    joined(&[program.to_owned(), "hook".to_owned(), agent.name().to_owned()])
}

fn codex(event: &'static str, program: &str) -> Piece {
    let hook = json!({ "type": "command", "command": line(program, Agent::Codex), "timeout": 30 });
    Piece::Hook { path: vec!["hooks", event], value: json!({ "matcher": "*", "hooks": [hook] }), agent: Agent::Codex }
}

fn gemini(event: &'static str, program: &str) -> Piece {
    // In milliseconds.
    let hook =
        json!({ "name": "ringfence", "type": "command", "command": line(program, Agent::Gemini), "timeout": 30000 });
    Piece::Hook { path: vec!["hooks", event], value: json!({ "matcher": ".*", "hooks": [hook] }), agent: Agent::Gemini }
}

fn cursor(event: &'static str, program: &str) -> Piece {
    let value = json!({ "command": line(program, Agent::Cursor), "timeout": 30, "failClosed": true });
    Piece::Hook { path: vec!["hooks", event], value, agent: Agent::Cursor }
}

fn starts_server(found: &Value) -> bool {
    found["command"].as_str().is_some_and(is_us) && found["args"][0] == "mcp"
}

/// Whether `entry` is `value` but for the place of the program and the time that it may take, if that is enough.
fn is_as_good(entry: &Value, value: &Value, agent: Agent) -> bool {
    let plain = |value: &Value| {
        let mut value = value.clone();
        let hooks: Vec<&mut Value> = match value.get_mut("hooks") {
            Some(Value::Array(hooks)) => hooks.iter_mut().collect(),
            _ => vec![&mut value],
        };
        for hook in hooks {
            if let Some(fields) = hook.as_object_mut() {
                fields.remove("timeout");
                let calls_us = calls_us(fields.get("command").and_then(Value::as_str).unwrap_or_default(), agent);
                if calls_us {
                    fields.insert("command".to_owned(), json!("ringfence"));
                }
            }
        }
        value
    };
    plain(entry) == plain(value) && hooks_of(entry).iter().all(|hook| has_time(hook, agent))
}

/// The hooks of an entry, or the entry where it is one.
fn hooks_of(entry: &Value) -> Vec<&Value> {
    match entry.get("hooks") {
        Some(Value::Array(hooks)) => hooks.iter().collect(),
        _ => vec![entry],
    }
}

/// Seconds that a judgement may need on a busy machine. An agent goes on without one that takes longer than it was given.
const LEAST_SECONDS: u64 = 10;

fn has_time(hook: &Value, agent: Agent) -> bool {
    let least = match agent {
        Agent::Gemini => LEAST_SECONDS * 1000,
        Agent::ClaudeCode | Agent::Codex | Agent::Cursor => LEAST_SECONDS,
    };
    match hook.get("timeout") {
        None => true,
        Some(time) => time.as_f64().is_some_and(|time| time >= least as f64),
    }
}

fn calls_us(command: &str, agent: Agent) -> bool {
    // Claude Code is given the program and its arguments apart, the others a line.
    if agent == Agent::ClaudeCode {
        return is_us(command);
    }
    let words = ringfence_policy::split_words(command).unwrap_or_default();
    match words.as_slice() {
        [program, hook, name] => is_us(program) && hook == "hook" && name == agent.name(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_added_once_and_found_again_wherever_our_program_is() {
        for target in Target::ALL {
            for wanted in target.wants("ringfence") {
                let mut text = String::new();
                for piece in &wanted.pieces {
                    text = piece.add(&text).unwrap();
                }
                assert_ne!(text, "", "{}", wanted.file);
                let again =
                    target.wants("/opt/my tools/ringfence").into_iter().find(|one| one.file == wanted.file).unwrap();
                for piece in &again.pieces {
                    assert_eq!(piece.add(&text).unwrap(), text, "{}", wanted.file);
                }
            }
        }
    }

    #[test]
    fn the_plugin_and_the_registrys_entry_say_the_same() {
        let wanted = Target::ClaudeCode.wants("ringfence");
        let plugin = [
            include_str!("../../../../plugin/claude-code/hooks/hooks.json"),
            include_str!("../../../../plugin/claude-code/.mcp.json"),
        ];
        for (wanted, text) in wanted.iter().zip(plugin) {
            let made = wanted.pieces.iter().fold(String::new(), |text, piece| piece.add(&text).unwrap());
            assert_eq!(jsonc::parse(text).unwrap(), jsonc::parse(&made).unwrap());
        }
        let described = include_str!("../../../../plugin/claude-code/.claude-plugin/plugin.json");
        assert_eq!(jsonc::parse(described).unwrap()["version"], env!("CARGO_PKG_VERSION"));
        let entry = jsonc::parse(include_str!("../../../../server.json")).unwrap();
        assert_eq!(entry["version"], env!("CARGO_PKG_VERSION"));
        assert!(
            entry["description"].as_str().unwrap().len() <= 100
                && entry["$schema"].as_str().unwrap().contains("2025-12-11")
        );
    }

    #[test]
    fn a_hook_that_does_not_block_on_failure_is_not_as_good() {
        let wanted = &Target::ClaudeCode.wants("ringfence")[0];
        let text = wanted.pieces[0].add("").unwrap();
        let weak =
            text.replace(",\n            \"onFailure\": \"block\"", "").replace("\"onFailure\": \"block\"", "\"x\": 1");
        assert_ne!(weak, text);
        assert_ne!(wanted.pieces[0].add(&weak).unwrap(), weak);
        let cursor = &Target::Cursor.wants("ringfence")[0];
        let text = cursor.pieces[1].add("").unwrap();
        let weak = text.replace("\"failClosed\": true", "\"failClosed\": false");
        assert_ne!(cursor.pieces[1].add(&weak).unwrap(), weak);
        // Nor is one that is whatever the project has there.
        for (piece, ours, theirs) in [
            (&wanted.pieces[0], "\"ringfence\"", "\"./ringfence\""),
            (&cursor.pieces[1], "\"ringfence hook", "\"bin/ringfence hook"),
            (&cursor.pieces[1], "\"ringfence hook cursor\"", "\"evil; ringfence hook cursor\""),
        ] {
            let text = piece.add("").unwrap();
            let other = text.replace(ours, theirs);
            assert_ne!(other, text);
            assert_ne!(piece.add(&other).unwrap(), other, "{theirs}");
        }
    }

    #[test]
    fn a_server_of_the_same_name_that_is_another_is_left_and_said() {
        let taken = "{\"mcpServers\":{\"ringfence\":{\"command\":\"evil\",\"args\":[\"mcp\"]}}}";
        assert!(matches!(server("mcpServers", "ringfence").add(taken), Err(CannotAdd::Taken(_))));
        let toml = "[mcp_servers.ringfence]\ncommand = \"evil\"\n";
        assert!(matches!(toml_server(toml, "ringfence"), Err(CannotAdd::Taken(_))));
        assert!(toml_server("not toml", "ringfence").is_err());
        let kept = "# mine\nmodel = \"x\" # why\n\n[mcp_servers.other]\ncommand = \"o\"\n";
        let added = toml_server(kept, "ringfence").unwrap();
        assert!(
            added.starts_with(kept)
                && added.contains("[mcp_servers.ringfence]\ncommand = \"ringfence\"\nargs = [\"mcp\"]\n"),
            "{added}"
        );
    }
}
