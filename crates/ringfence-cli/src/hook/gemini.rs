//! Gemini CLI: its tools, and its format. It asks nobody for a hook, so what needs asking is denied.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use super::NotJudged;
use super::call::{
    Access, Answer, Asks, Call, Event, Files, Form, Returned, Rewrites, Runs, Search, Shell, Tool, said,
};
use super::input::{first_text, list, object, only_one, paths, some_paths, text, unknown};
use super::names::GEMINI_TALK;
use super::shell::unknown_argument;
use super::web::addresses_in;

/// What comes with a command; an argument with another name is denied.
const OF_A_COMMAND: [&str; 8] = [
    "command",
    "description",
    "dir_path",
    "directory",
    "is_background",
    "delay_ms",
    "additional_permissions",
    "wait_for_previous",
];

pub(super) fn read(input: &Map<String, Value>) -> Result<Event, NotJudged> {
    let event = text(input, "hook_event_name")?.to_owned();
    let name = text(input, "tool_name")?.to_owned();
    let session = first_text(input, &["session_id"]).map(str::to_owned);
    let arguments = object(input, "tool_input")?;
    match event.as_str() {
        "BeforeTool" => {
            let server =
                input.get("mcp_context").and_then(|context| context.get("server_name")).and_then(Value::as_str);
            Ok(Event::Before(Call {
                tool: tool(&name, &arguments, server)?,
                name,
                input: arguments,
                folder: first_text(input, &["cwd"]).map(PathBuf::from),
                session,
                transcript: first_text(input, &["transcript_path"]).map(PathBuf::from),
                rewrites: Rewrites::Yes,
                asks: Asks::Nobody,
                event,
            }))
        }
        "AfterTool" => {
            let response = input.get("tool_response").cloned().unwrap_or_default();
            Ok(Event::After(Returned { name, input: arguments, session, response, event }))
        }
        other => Err(NotJudged::because(format!("the event `{other}` is none that is judged"))),
    }
}

pub(super) fn tool(name: &str, input: &Map<String, Value>, server: Option<&str>) -> Result<Tool, NotJudged> {
    let file = |access| Ok(Tool::Files(Files { paths: some_paths(input, "file_path")?, access }));
    if server.is_some() {
        return Ok(Tool::Mcp { server: server.map(str::to_owned) });
    }
    Ok(match name {
        "run_shell_command" => shell(input)?,
        "read_file" => file(Access::Read)?,
        "write_file" | "replace" | "edit" => file(Access::Write)?,
        "list_directory" => Tool::Files(Files { paths: paths(input)?, access: Access::List }),
        "glob" => {
            let paths = super::search::reached(paths(input)?, text(input, "pattern")?)?;
            Tool::Files(Files { paths, access: Access::List })
        }
        "search_file_content" | "grep_search" | "ripgrep_search" => {
            Tool::Search(Search { paths: paths(input)?, globs: None })
        }
        "read_many_files" => {
            let all = [list(input, "include")?, list(input, "paths")?, paths(input)?].concat();
            if all.is_empty() {
                return Err(NotJudged::because("it has no list `include`"));
            }
            Tool::Search(Search { paths: all, globs: None })
        }
        "web_fetch" => {
            let written = [first_text(input, &["prompt"]), first_text(input, &["url"])];
            Tool::Fetch(written.into_iter().flatten().flat_map(addresses_in).collect())
        }
        "google_web_search" => Tool::Engine,
        name if name.starts_with("mcp_") => Tool::Mcp { server: None },
        name if GEMINI_TALK.contains(&name) => Tool::Talk,
        _ => Tool::Unknown,
    })
}

fn shell(input: &Map<String, Value>) -> Result<Tool, NotJudged> {
    if let Some(name) = unknown(input, &OF_A_COMMAND) {
        return Ok(Tool::Refused(unknown_argument(name)));
    }
    let folder = only_one(input, &["dir_path", "directory"])?.filter(|path| !path.is_empty());
    Ok(Tool::Shell(Shell {
        line: text(input, "command")?.to_owned(),
        key: "command",
        form: Form::Line,
        folder: folder.map(str::to_owned),
        milliseconds: None,
        runs: if input.get("is_background") == Some(&Value::Bool(true)) { Runs::Beside } else { Runs::Waited },
    }))
}

pub(super) fn answer(answer: Answer) -> Value {
    match answer {
        Answer::Free => json!({}),
        Answer::Changed(input) => json!({
            "decision": "allow",
            "hookSpecificOutput": { "hookEventName": "BeforeTool", "tool_input": input },
        }),
        Answer::Ask(refusal, _) | Answer::Deny(refusal) => json!({ "decision": "deny", "reason": said(&refusal) }),
    }
}

/// A denial hides what came back, and its reason stands in its place.
pub(super) fn answer_after(masked: Option<Value>) -> Value {
    let Some(masked) = masked else { return json!({}) };
    let text = match masked.get("llmContent") {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => masked.to_string(),
    };
    json!({ "decision": "deny", "reason": text })
}
