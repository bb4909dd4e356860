//! Claude Code and the Claude Agent SDK: their tools, and their format.

use ringfence::Refusal;
use serde_json::{Map, Value, json};

use crate::NotJudged;
use crate::call::{Access, Answer, Asks, Event, Files, Form, Returned, Runs, Search, Shell, Tool, said};
use crate::head::Head;
use crate::input::{first_text, object, optional, paths, some_paths, text, unknown};
use crate::names::CLAUDE_CODE_TALK;
use crate::shell::unknown_argument;

/// What comes with a command; an argument with another name is denied.
const OF_A_COMMAND: [&str; 7] =
    ["command", "description", "timeout", "timeout_ms", "run_in_background", "persistent", "dangerouslyDisableSandbox"];

pub(crate) fn read(input: &Map<String, Value>) -> Result<Event, NotJudged> {
    let head = Head::of(input)?;
    let arguments = object(input, "tool_input")?;
    match head.event.as_str() {
        "PreToolUse" => {
            let tool = tool(&head.name, &arguments, first_text(input, &["mcp_server"]))?;
            Ok(head.before(tool, arguments, asks(first_text(input, &["permission_mode"]))))
        }
        "PostToolUse" | "PostToolUseFailure" => {
            Ok(head.after(arguments, input.get("tool_response").or_else(|| input.get("error"))))
        }
        _ => Err(head.unknown()),
    }
}

/// In some modes a question is answered without anybody, and in one that we do not know it may be.
fn asks(mode: Option<&str>) -> Asks {
    match mode {
        Some("default" | "acceptEdits" | "plan") => Asks::APerson,
        Some(_) | None => Asks::Nobody,
    }
}

pub(crate) fn tool(name: &str, input: &Map<String, Value>, server: Option<&str>) -> Result<Tool, NotJudged> {
    let path = |key: &str, access| {
        text(input, key)?;
        Ok(Tool::Files(Files { paths: some_paths(input, key)?, access }))
    };
    Ok(match name {
        "Bash" | "Monitor" => {
            let leaves_out = input.get("dangerouslyDisableSandbox").unwrap_or(&Value::Null);
            if !matches!(leaves_out, Value::Null | Value::Bool(false)) {
                return Ok(Tool::Refused(no_way_around()));
            }
            if let Some(name) = unknown(input, &OF_A_COMMAND) {
                return Ok(Tool::Refused(unknown_argument(name)));
            }
            let beside = name == "Monitor" || input.get("run_in_background") == Some(&Value::Bool(true));
            Tool::Shell(Shell {
                line: text(input, "command")?.to_owned(),
                key: "command",
                form: Form::Line,
                folder: None,
                milliseconds: ["timeout", "timeout_ms"].iter().find_map(|key| input.get(*key)?.as_u64()),
                runs: if beside { Runs::Beside } else { Runs::Waited },
            })
        }
        "Read" => path("file_path", Access::Read)?,
        "Write" | "Edit" | "MultiEdit" => path("file_path", Access::Write)?,
        "NotebookRead" => path("notebook_path", Access::Read)?,
        "NotebookEdit" => path("notebook_path", Access::Write)?,
        "LSP" => path("filePath", Access::Read)?,
        "LS" => path("path", Access::List)?,
        "Glob" => {
            let paths = crate::search::reached(paths(input)?, text(input, "pattern")?)?;
            Tool::Files(Files { paths, access: Access::List })
        }
        "Grep" => {
            optional(input, "glob")?;
            Tool::Search(Search { paths: paths(input)?, globs: Some("glob") })
        }
        "WebFetch" => Tool::Fetch(vec![text(input, "url")?.to_owned()]),
        "WebSearch" => Tool::Engine,
        "ReadMcpResourceTool" | "ListMcpResourcesTool" => {
            Tool::Mcp { server: first_text(input, &["server"]).map(str::to_owned) }
        }
        name if name.starts_with("mcp__") => Tool::Mcp { server: server.map(str::to_owned) },
        name if CLAUDE_CODE_TALK.contains(&name) => Tool::Talk,
        _ => Tool::Unknown,
    })
}

fn no_way_around() -> Refusal {
    Refusal::new(
        "hook.disable-sandbox",
        "a command was to run outside of the sandbox",
        "no call of a model can leave the wall out",
    )
    .instead("Leave `dangerouslyDisableSandbox` out. If something was denied inside, say so and stop.")
}

pub(crate) fn answer(answer: Answer) -> Value {
    let decided = |decision: &str, reason: Option<String>, input: Option<Map<String, Value>>| {
        let mut specific = json!({ "hookEventName": "PreToolUse", "permissionDecision": decision });
        if let Some(reason) = reason {
            specific["permissionDecisionReason"] = json!(reason);
        }
        if let Some(input) = input {
            specific["updatedInput"] = Value::Object(input);
        }
        json!({ "hookSpecificOutput": specific })
    };
    match answer {
        Answer::Free => json!({}),
        Answer::Changed(input) => decided("allow", Some("let by Ringfence, in this form".to_owned()), Some(input)),
        Answer::Ask(refusal, input) => decided("ask", Some(said(&refusal)), input),
        Answer::Deny(refusal) => decided("deny", Some(said(&refusal)), None),
    }
}

pub(crate) fn answer_after(returned: &Returned, masked: Option<Value>) -> Value {
    let Some(masked) = masked else { return json!({}) };
    if returned.event != "PostToolUse" {
        return json!({ "hookSpecificOutput": {
            "hookEventName": returned.event,
            "additionalContext": "ringfence: what came back holds a secret. Do not repeat it.",
        }});
    }
    let key = if returned.name.starts_with("mcp__") { "updatedMCPToolOutput" } else { "updatedToolOutput" };
    json!({ "hookSpecificOutput": { "hookEventName": "PostToolUse", key: masked } })
}
