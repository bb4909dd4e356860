//! A tool call in our own words: each agent's file translates into these, and back.

use std::path::PathBuf;

use ringfence::Refusal;
use serde_json::{Map, Value};

/// What an agent tells us of.
#[derive(Debug)]
pub enum Event {
    /// A call that waits for an answer.
    Before(Call),
    /// One that was made.
    After(Returned),
}

/// A call that waits for an answer.
#[derive(Debug)]
pub struct Call {
    /// The tool as the agent calls it.
    pub name: String,
    /// What it would do.
    pub(crate) tool: Tool,
    /// Its arguments, by which a changed call is answered.
    pub input: Map<String, Value>,
    /// Where the agent stands.
    pub(crate) folder: Option<PathBuf>,
    /// Which conversation it belongs to.
    pub session: Option<String>,
    /// Where the agent writes the conversation down, by its own word.
    pub(crate) transcript: Option<PathBuf>,
    /// Whether the agent takes a changed call.
    pub(crate) rewrites: Rewrites,
    /// Whether a person can be asked.
    pub(crate) asks: Asks,
    /// The event's name, where an agent wants it back.
    pub event: String,
}

/// Whether an agent takes a changed call for the one that was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rewrites {
    /// It does.
    Yes,
    /// It only takes yes or no.
    No,
}

/// Whether a question reaches a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// The agent asks them.
    APerson,
    /// Nobody is asked, so what needs asking is denied.
    Nobody,
}

/// What a tool does.
#[derive(Debug)]
pub(crate) enum Tool {
    /// It runs a command.
    Shell(Shell),
    /// It reads or writes files.
    Files(Files),
    /// It looks through the contents of whole folders.
    Search(Search),
    /// It fetches from these addresses.
    Fetch(Vec<String>),
    /// It asks a search engine, whose host nobody names.
    Engine,
    /// It belongs to an MCP server.
    Mcp {
        /// The server, where the agent says it.
        server: Option<String>,
    },
    /// It touches nothing but the conversation.
    Talk,
    /// Nobody knows what it does.
    Unknown,
    /// It is never let.
    Refused(Refusal),
}

/// A command for a shell.
#[derive(Debug)]
pub(crate) struct Shell {
    /// The line.
    pub(crate) line: String,
    /// Which argument holds it.
    pub(crate) key: &'static str,
    /// In which form.
    pub(crate) form: Form,
    /// The folder that it asks for.
    pub(crate) folder: Option<String>,
    /// The time that it asks for.
    pub(crate) milliseconds: Option<u64>,
    /// Whether the agent goes on while it runs.
    pub(crate) runs: Runs,
}

/// How a command is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As one line.
    Line,
    /// As words, the program first.
    Words,
}

/// Whether somebody waits for a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runs {
    /// The agent waits.
    Waited,
    /// The agent goes on, and looks later.
    Beside,
}

/// Files that are touched.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) paths: Vec<String>,
    pub(crate) access: Access,
}

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Its contents are shown.
    Read,
    /// Names in a folder are shown.
    List,
    /// It is made, changed or removed.
    Write,
}

/// A search through contents.
#[derive(Debug)]
pub(crate) struct Search {
    /// Where; the agent's folder where nothing is said.
    pub(crate) paths: Vec<String>,
    /// The argument that takes globs, and can leave files out.
    pub(crate) globs: Option<&'static str>,
}

/// What is said to a call.
#[derive(Debug)]
pub enum Answer {
    /// Nothing speaks against it. The agent's own questions stay as they are.
    Free,
    /// It may be made in this form, without a further question.
    Changed(Map<String, Value>),
    /// A person decides; then it is made in this form, where there is one.
    Ask(Refusal, Option<Map<String, Value>>),
    /// It is not made.
    Deny(Refusal),
}

/// A call that was made.
#[derive(Debug)]
pub struct Returned {
    /// The tool as the agent calls it.
    pub name: String,
    /// Its arguments.
    pub input: Map<String, Value>,
    /// Which conversation it belongs to.
    pub session: Option<String>,
    /// What came back.
    pub response: Value,
    /// The event's name.
    pub event: String,
}

/// In a few sentences, for a model: what, why, what to do instead.
pub(crate) fn said(refusal: &Refusal) -> String {
    let place = refusal.place.as_ref().map_or_else(|| "built in".to_owned(), ToString::to_string);
    let mut text = format!("ringfence: {}: {} (rule {}, {place}).", refusal.subject, refusal.reason, refusal.rule);
    for more in [Some(&refusal.advice), refusal.hint.as_ref()].into_iter().flatten().filter(|text| !text.is_empty()) {
        text.push(' ');
        text.push_str(more);
    }
    ringfence::redact(&text)
}
