//! Cursor: its events, its tools, and its format.
//!
//! `preToolUse` takes a changed call; the older events take only yes or no. So a command that comes by those must stand behind the wall
//! already: by what `preToolUse` made of it, or because the model wrote what the denial told it to. A question blocks without one being
//! asked, so it is a denial; of a denial, a model sees what is meant for the user.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::NotJudged;
use crate::call::{
    Access, Answer, Asks, Call, Event, Files, Form, Returned, Rewrites, Runs, Search, Shell, Tool, said,
};
use crate::head::unknown_event;
use crate::input::{first_text, list, object, only_one, optional, paths, some_paths, text, texts, unknown};
use crate::judge::OURS;
use crate::names::{CURSOR_TALK, OUR_SERVER, is_us};
use crate::shell::unknown_argument;

/// What comes with a command; an argument with another name is denied.
const OF_A_COMMAND: [&str; 11] = [
    "command",
    "description",
    "explanation",
    "cwd",
    "working_directory",
    "is_background",
    "run_in_background",
    "timeout",
    "block_until_ms",
    "notify_on_output",
    "required_permissions",
];

pub(crate) fn read(input: &Map<String, Value>) -> Result<Event, NotJudged> {
    let event = text(input, "hook_event_name")?.to_owned();
    let session = first_text(input, &["conversation_id", "session_id"]).map(str::to_owned);
    let folder = || {
        let root = texts(input, "workspace_roots").into_iter().next();
        first_text(input, &["cwd"]).filter(|path| !path.is_empty()).map(PathBuf::from).or(root.map(PathBuf::from))
    };
    let before = |name: &str, tool, arguments, rewrites| {
        Ok(Event::Before(Call {
            name: name.to_owned(),
            tool,
            input: arguments,
            folder: folder(),
            session: session.clone(),
            transcript: first_text(input, &["transcript_path"]).map(PathBuf::from),
            rewrites,
            asks: Asks::Nobody,
            event: event.clone(),
        }))
    };
    let after = |name: &str, response: Option<&Value>| {
        Ok(Event::After(Returned {
            name: name.to_owned(),
            input: input.clone(),
            session: session.clone(),
            response: response.cloned().unwrap_or_default(),
            event: event.clone(),
        }))
    };
    match event.as_str() {
        "preToolUse" => {
            let name = text(input, "tool_name")?;
            let arguments = object(input, "tool_input")?;
            before(name, tool(name, &arguments)?, arguments, Rewrites::Yes)
        }
        "beforeShellExecution" => before("Shell", shell(input)?, input.clone(), Rewrites::No),
        "beforeReadFile" | "beforeTabFileRead" => {
            let mut paths = vec![text(input, "file_path")?.to_owned()];
            let attached = input.get("attachments").and_then(Value::as_array).into_iter().flatten();
            let attached = attached.filter_map(|one| first_text(one.as_object()?, &["file_path", "filePath"]));
            paths.extend(attached.map(str::to_owned));
            before("Read", Tool::Files(Files { paths, access: Access::Read }), Map::new(), Rewrites::No)
        }
        "beforeMCPExecution" => {
            let name = text(input, "tool_name")?;
            before(name, Tool::Mcp { server: server(input)? }, Map::new(), Rewrites::No)
        }
        "postToolUse" | "postToolUseFailure" => {
            after(text(input, "tool_name")?, input.get("tool_output").or_else(|| input.get("error_message")))
        }
        "afterShellExecution" => after("Shell", input.get("output")),
        "afterMCPExecution" => after(text(input, "tool_name")?, input.get("result_json")),
        "afterFileEdit" | "afterTabFileEdit" => after("Edit", None),
        other => Err(unknown_event(other)),
    }
}

/// Whose tool it is. The person's settings say what a server is called and how it is started, not the model; and one that is called as ours
/// is, and is started by something else, is not ours.
fn server(input: &Map<String, Value>) -> Result<Option<String>, NotJudged> {
    let named = first_text(input, &["mcp_server_name", "server", "server_name", "mcp_server"]);
    let said = |name| Ok(optional(input, name)?.filter(|text| !text.is_empty()));
    Ok(match (said("command")?, said("url")?) {
        (Some(command), None) if runs_us(command) => Some(OUR_SERVER.to_owned()),
        (None, None) => named.map(str::to_owned),
        (_, _) => named.filter(|name| !OURS.contains(name)).map(str::to_owned),
    })
}

/// Whether a server is started by `ringfence mcp`.
fn runs_us(command: &str) -> bool {
    let words = ringfence_policy::split_words(command).unwrap_or_default();
    words.first().is_some_and(|program| is_us(program)) && words.get(1).is_some_and(|word| word == "mcp")
}

fn shell(input: &Map<String, Value>) -> Result<Tool, NotJudged> {
    let says_so = ["is_background", "run_in_background"].iter().any(|key| input.get(*key) == Some(&Value::Bool(true)));
    // How long Cursor waits before it goes on and looks later: no limit of the command's.
    let goes_on = ["timeout", "block_until_ms"].iter().any(|key| input.get(*key).is_some_and(Value::is_number));
    let folder = match (folder(input, "working_directory")?, folder(input, "cwd")?) {
        (Some(one), Some(other)) if one != other => {
            return Err(NotJudged::because("it has both `working_directory` and `cwd`, and they differ"));
        }
        (one, other) => one.or(other),
    };
    Ok(Tool::Shell(Shell {
        line: text(input, "command")?.to_owned(),
        key: "command",
        form: Form::Line,
        folder: folder.map(str::to_owned),
        milliseconds: None,
        runs: if says_so || goes_on { Runs::Beside } else { Runs::Waited },
    }))
}

/// A folder that is named; where Cursor has nothing to say it writes nothing.
fn folder<'a>(input: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, NotJudged> {
    Ok(optional(input, name)?.filter(|path| !path.is_empty()))
}

pub(crate) fn tool(name: &str, input: &Map<String, Value>) -> Result<Tool, NotJudged> {
    let files = |access| Ok(Tool::Files(Files { paths: some_paths(input, "file_path")?, access }));
    Ok(match name {
        "Shell" => match unknown(input, &OF_A_COMMAND) {
            Some(name) => Tool::Refused(unknown_argument(name)),
            None => shell(input)?,
        },
        "Read" | "ReadFile" => files(Access::Read)?,
        "Write" | "StrReplace" | "Edit" | "MultiEdit" | "MultiStrReplace" | "Delete" | "EditNotebook" | "TabWrite" => {
            files(Access::Write)?
        }
        "LS" => Tool::Files(Files { paths: paths(input)?, access: Access::List }),
        "Glob" => {
            let pattern = only_one(input, &["glob_pattern", "pattern"])?;
            let paths = crate::search::reached(paths(input)?, pattern.unwrap_or("*"))?;
            Tool::Files(Files { paths, access: Access::List })
        }
        "Grep" => Tool::Search(Search { paths: paths(input)?, globs: None }),
        "ReadLints" => Tool::Files(Files { paths: list(input, "paths")?, access: Access::List }),
        // It goes by an index that Cursor made, and shows what is in it.
        "SemanticSearch" | "codebase_search" => {
            Tool::Search(Search { paths: [list(input, "target_directories")?, paths(input)?].concat(), globs: None })
        }
        "WebFetch" => Tool::Fetch(vec![text(input, "url")?.to_owned()]),
        "WebSearch" => Tool::Engine,
        // They are asked about again by an event that knows their server.
        name if name.starts_with("MCP:") => Tool::Talk,
        name if CURSOR_TALK.contains(&name) => Tool::Talk,
        _ => Tool::Unknown,
    })
}

pub(crate) fn answer(call: &Call, answer: Answer) -> Value {
    match answer {
        Answer::Free => json!({ "permission": "allow" }),
        Answer::Changed(input) if call.event == "preToolUse" => {
            json!({ "permission": "allow", "updated_input": input })
        }
        Answer::Changed(_) => json!({ "permission": "allow" }),
        Answer::Ask(refusal, _) | Answer::Deny(refusal) => {
            let said = said(&refusal);
            json!({ "permission": "deny", "user_message": said, "agent_message": said })
        }
    }
}

/// Only what an MCP server gave back can be replaced.
pub(crate) fn answer_after(returned: &Returned, masked: Option<Value>) -> Value {
    match masked {
        Some(masked) if returned.event == "postToolUse" && returned.name.starts_with("MCP:") => {
            json!({ "updated_mcp_tool_output": as_object(masked) })
        }
        Some(_) if returned.event == "postToolUse" => {
            json!({ "additional_context": "ringfence: what came back holds a secret. Do not repeat it." })
        }
        Some(_) | None => json!({}),
    }
}

/// What a server gave back comes as a text that holds its object, and is taken as either.
fn as_object(output: Value) -> Value {
    let inside = output.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
    inside.filter(|inside| inside.get("content").is_some_and(Value::is_array)).unwrap_or(output)
}
