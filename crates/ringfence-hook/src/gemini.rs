//! Gemini CLI: its tools, and its format. It asks nobody for a hook, so what needs asking is denied.

use serde_json::{Map, Value, json};

use crate::NotJudged;
use crate::call::{Access, Answer, Asks, Event, Files, Form, Runs, Search, Shell, Tool, said};
use crate::head::Head;
use crate::input::{first_text, list, object, only_one, paths, some_paths, text, unknown};
use crate::names::GEMINI_TALK;
use crate::shell::unknown_argument;
use crate::web::addresses_in;

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

pub(crate) fn read(input: &Map<String, Value>) -> Result<Event, NotJudged> {
    let head = Head::of(input)?;
    let arguments = object(input, "tool_input")?;
    match head.event.as_str() {
        "BeforeTool" => {
            let server =
                input.get("mcp_context").and_then(|context| context.get("server_name")).and_then(Value::as_str);
            let tool = tool(&head.name, &arguments, server)?;
            Ok(head.before(tool, arguments, Asks::Nobody))
        }
        "AfterTool" => Ok(head.after(arguments, input.get("tool_response"))),
        _ => Err(head.unknown()),
    }
}

pub(crate) fn tool(name: &str, input: &Map<String, Value>, server: Option<&str>) -> Result<Tool, NotJudged> {
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
            let paths = crate::search::reached(paths(input)?, text(input, "pattern")?)?;
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

pub(crate) fn answer(answer: Answer) -> Value {
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
pub(crate) fn answer_after(masked: Option<Value>) -> Value {
    let Some(masked) = masked else { return json!({}) };
    let text = match masked.get("llmContent") {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => masked.to_string(),
    };
    json!({ "decision": "deny", "reason": text })
}
