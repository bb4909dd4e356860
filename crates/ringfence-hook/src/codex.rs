//! Codex: its tools, and its format. It takes no key that it does not know, a yes only together with a changed call, and a question for a
//! yes: so what needs asking is denied.

use serde_json::{Map, Value, json};

use crate::NotJudged;
use crate::call::{Access, Answer, Asks, Event, Files, Form, Runs, Search, Shell, Tool, said};
use crate::head::Head;
use crate::input::{first_text, list, object, only_one, paths, some_paths, unknown};
use crate::names::CODEX_TALK;
use crate::shell::unknown_argument;
use crate::wrapper::joined;

/// What comes with a command; an argument with another name is denied. `shell` and `env` are other names.
const OF_A_COMMAND: [&str; 16] = [
    "command",
    "cmd",
    "workdir",
    "working_directory",
    "timeout",
    "timeout_ms",
    "yield_time_ms",
    "max_output_tokens",
    "justification",
    "description",
    "login",
    "tty",
    "sandbox_permissions",
    "additional_permissions",
    "with_escalated_permissions",
    "prefix_rule",
];

pub(crate) fn read(input: &Map<String, Value>) -> Result<Event, NotJudged> {
    let head = Head::of(input)?;
    // A patch can come as a bare text.
    let arguments = match input.get("tool_input") {
        Some(Value::String(patch)) if head.name == "apply_patch" => {
            Map::from_iter([("command".to_owned(), json!(patch))])
        }
        _ => object(input, "tool_input")?,
    };
    match head.event.as_str() {
        "PreToolUse" => {
            let tool = tool(&head.name, &arguments)?;
            Ok(head.before(tool, arguments, Asks::Nobody))
        }
        "PostToolUse" => Ok(head.after(arguments, input.get("tool_response"))),
        _ => Err(head.unknown()),
    }
}

pub(crate) fn tool(name: &str, input: &Map<String, Value>) -> Result<Tool, NotJudged> {
    let path = |key: &str, access| Ok(Tool::Files(Files { paths: some_paths(input, key)?, access }));
    Ok(match name {
        "Bash" | "shell" | "local_shell" | "shell_command" | "container.exec" | "exec_command" => shell(input)?,
        "apply_patch" => {
            let patch = only_one(input, &["command", "input", "patch"])?;
            let patch = patch.ok_or_else(|| NotJudged::because("it has no text `command`"))?;
            Tool::Files(Files { paths: patched(patch)?, access: Access::Write })
        }
        "read_file" => path("file_path", Access::Read)?,
        "view_image" => path("path", Access::Read)?,
        "list_dir" => path("dir_path", Access::List)?,
        "grep_files" => Tool::Search(Search { paths: paths(input)?, globs: None }),
        "web_search" | "web_search_request" => Tool::Engine,
        name if name.starts_with("mcp__") => Tool::Mcp { server: None },
        "list_mcp_resources" | "list_mcp_resource_templates" | "read_mcp_resource" => {
            Tool::Mcp { server: first_text(input, &["server"]).map(str::to_owned) }
        }
        name if CODEX_TALK.contains(&name) => Tool::Talk,
        _ => Tool::Unknown,
    })
}

fn shell(input: &Map<String, Value>) -> Result<Tool, NotJudged> {
    if let Some(name) = unknown(input, &OF_A_COMMAND) {
        return Ok(Tool::Refused(unknown_argument(name)));
    }
    let there = |name: &str| input.get(name).filter(|value| !value.is_null());
    let (key, form, line) = match (there("command"), there("cmd")) {
        (Some(_), Some(_)) => return Err(NotJudged::because("it has both `command` and `cmd`")),
        (Some(Value::String(line)), None) => ("command", Form::Line, line.clone()),
        (Some(Value::Array(_)), None) => match list(input, "command")?.as_slice() {
            [] => return Err(NotJudged::because("its command has no words")),
            words => ("command", Form::Words, of_words(words)),
        },
        (None, Some(Value::String(line))) => ("cmd", Form::Line, line.clone()),
        _ => return Err(NotJudged::because("it has no text `command`")),
    };
    Ok(Tool::Shell(Shell {
        line,
        key,
        form,
        folder: only_one(input, &["workdir", "working_directory"])?.map(str::to_owned),
        milliseconds: input.get("timeout_ms").or_else(|| input.get("timeout")).and_then(Value::as_u64),
        runs: if key == "cmd" { Runs::Beside } else { Runs::Waited },
    }))
}

/// The line that words mean: that of a shell, or the words themselves.
fn of_words(words: &[String]) -> String {
    let is_shell = |word: &str| matches!(word.rsplit('/').next(), Some("bash" | "sh" | "zsh"));
    match words {
        [shell, flag, line] if is_shell(shell) && matches!(flag.as_str(), "-c" | "-lc") => line.clone(),
        _ => joined(words),
    }
}

/// The files that a patch names. One that names none cannot be judged.
fn patched(patch: &str) -> Result<Vec<String>, NotJudged> {
    const MARKS: [&str; 4] = ["*** Add File:", "*** Update File:", "*** Delete File:", "*** Move to:"];
    let named = |line: &str| {
        MARKS.iter().find_map(|mark| line.trim_start().strip_prefix(mark)).map(str::trim).map(str::to_owned)
    };
    let paths: Vec<String> = patch.lines().filter_map(named).collect();
    if paths.is_empty() || paths.iter().any(String::is_empty) {
        return Err(NotJudged::because("the patch does not say which files it changes"));
    }
    Ok(paths)
}

pub(crate) fn answer(answer: Answer) -> Value {
    let denied = |reason: String| {
        json!({ "hookSpecificOutput": {
            "hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason,
        }})
    };
    match answer {
        Answer::Free => json!({}),
        Answer::Changed(input) => json!({ "hookSpecificOutput": {
            "hookEventName": "PreToolUse", "permissionDecision": "allow", "updatedInput": input,
        }}),
        Answer::Ask(refusal, _) | Answer::Deny(refusal) => denied(said(&refusal)),
    }
}

/// What came back can only be replaced by a text.
pub(crate) fn answer_after(masked: Option<Value>) -> Value {
    match masked {
        None => json!({}),
        Some(Value::String(text)) => json!({ "decision": "block", "reason": text }),
        Some(other) => json!({ "decision": "block", "reason": other.to_string() }),
    }
}
