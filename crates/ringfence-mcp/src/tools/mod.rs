//! The tools: their names, what they take and give, and what they do.

mod changes;
mod explain;
mod files;
mod inside;
mod run;
mod sandboxes;
mod schema;

use std::sync::Arc;

use ringfence_policy::ResolvedPolicy;
use rmcp::model::{CallToolResult, ContentBlock, Tool, ToolAnnotations};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::call::Call;
use crate::client::Sandbox;

/// Names all of ours at once, as other servers are named in the same list.
const WHOLE_SERVER: &str = "mcp__ringfence";

/// How the tools are listed. Whichever way, both are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// `sandboxed_code_run`: what every client takes.
    #[default]
    Plain,
    /// `sandboxed_code.run`.
    Dotted,
}

/// A tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Run,
    SandboxCreate,
    SandboxList,
    SandboxClose,
    FilesRead,
    FilesWrite,
    FilesList,
    FilesEdit,
    FilesSearch,
    ChangesDiff,
    ChangesApply,
    Explain,
}

/// What a tool does to the world, as clients want to know it.
struct Hints {
    read_only: bool,
    destructive: bool,
    idempotent: bool,
    open_world: bool,
}

const LOOKS: Hints = Hints { read_only: true, destructive: false, idempotent: true, open_world: false };
const CHANGES: Hints = Hints { read_only: false, destructive: false, idempotent: false, open_world: false };

impl Kind {
    pub(crate) const ALL: [Self; 12] = [
        Self::Run,
        Self::SandboxCreate,
        Self::SandboxList,
        Self::SandboxClose,
        Self::FilesRead,
        Self::FilesWrite,
        Self::FilesList,
        Self::FilesEdit,
        Self::FilesSearch,
        Self::ChangesDiff,
        Self::ChangesApply,
        Self::Explain,
    ];

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Run => "sandboxed_code_run",
            Self::SandboxCreate => "sandbox_create",
            Self::SandboxList => "sandbox_list",
            Self::SandboxClose => "sandbox_close",
            Self::FilesRead => "files_read",
            Self::FilesWrite => "files_write",
            Self::FilesList => "files_list",
            Self::FilesEdit => "files_edit",
            Self::FilesSearch => "files_search",
            Self::ChangesDiff => "changes_diff",
            Self::ChangesApply => "changes_apply",
            Self::Explain => "explain",
        }
    }

    /// Likewise, with a dot before its last word.
    pub(crate) fn dotted(self) -> &'static str {
        match self {
            Self::Run => "sandboxed_code.run",
            Self::SandboxCreate => "sandbox.create",
            Self::SandboxList => "sandbox.list",
            Self::SandboxClose => "sandbox.close",
            Self::FilesRead => "files.read",
            Self::FilesWrite => "files.write",
            Self::FilesList => "files.list",
            Self::FilesEdit => "files.edit",
            Self::FilesSearch => "files.search",
            Self::ChangesDiff => "changes.diff",
            Self::ChangesApply => "changes.apply",
            Self::Explain => "explain",
        }
    }

    fn hints(self) -> Hints {
        match self {
            Self::Run => Hints { open_world: true, ..CHANGES },
            Self::SandboxCreate | Self::FilesWrite | Self::FilesEdit => CHANGES,
            Self::SandboxClose => Hints { idempotent: true, ..CHANGES },
            Self::ChangesApply => Hints { destructive: true, idempotent: true, ..CHANGES },
            Self::SandboxList
            | Self::FilesRead
            | Self::FilesList
            | Self::FilesSearch
            | Self::ChangesDiff
            | Self::Explain => LOOKS,
        }
    }

    /// The tool as it is listed.
    pub(crate) fn listed(self, names: Names) -> Tool {
        let name = match names {
            Names::Plain => self.name(),
            Names::Dotted => self.dotted(),
        };
        let (title, description, input, output) = schema::of(self);
        let Hints { read_only, destructive, idempotent, open_world } = self.hints();
        let annotations = ToolAnnotations::with_title(title)
            .read_only(read_only)
            .destructive(destructive)
            .idempotent(idempotent)
            .open_world(open_world);
        Tool::new(name, description, Arc::new(input))
            .with_title(title)
            .with_raw_output_schema(Arc::new(output))
            .with_annotations(annotations)
    }

    /// Does it.
    pub(crate) async fn carry_out(self, call: &Call, arguments: Map<String, Value>) -> Result<Said, Problem> {
        match self {
            Self::Run => run::run(call, read(arguments)?).await,
            Self::SandboxCreate => sandboxes::create(call, read(arguments)?).await,
            Self::SandboxList => sandboxes::list(call, read(arguments)?).await,
            Self::SandboxClose => sandboxes::close(call, read(arguments)?).await,
            Self::FilesRead => files::read(call, read(arguments)?).await,
            Self::FilesWrite => files::write(call, read(arguments)?).await,
            Self::FilesList => files::list(call, read(arguments)?).await,
            Self::FilesEdit => files::edit(call, read(arguments)?).await,
            Self::FilesSearch => files::search(call, read(arguments)?).await,
            Self::ChangesDiff => changes::diff(call, read(arguments)?).await,
            Self::ChangesApply => changes::apply(call, read(arguments)?).await,
            Self::Explain => explain::explain(call, &read(arguments)?),
        }
    }
}

/// The tools that `policy` leaves: all where nobody wrote `tools.allow`, and else those that it names, were it none.
pub(crate) fn allowed(policy: &ResolvedPolicy) -> Vec<Kind> {
    let Some(own) = &policy.tools.own else { return Kind::ALL.to_vec() };
    let names = |kind: &Kind| [kind.name(), kind.dotted(), WHOLE_SERVER];
    Kind::ALL.into_iter().filter(|kind| own.iter().any(|tool| names(kind).contains(&tool.value.as_str()))).collect()
}

/// Whether `policy` leaves any tool.
pub fn has_tools(policy: &ResolvedPolicy) -> bool {
    !allowed(policy).is_empty()
}

/// Arguments as a tool takes them. What it does not know is an error: a misspelt limit must not be no limit.
fn read<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, Problem> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| {
        Problem::fixable(format!("the arguments do not fit: {error}")).advise("Look at the tool's input schema.")
    })
}

/// What a tool has to say.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) text: String,
    pub(crate) structured: Value,
    pub(crate) well: bool,
    /// Pictures and links.
    pub(crate) more: Vec<ContentBlock>,
    /// By which a result is known again.
    pub(crate) mark: Vec<u8>,
}

impl Said {
    fn well(text: impl Into<String>, structured: Value) -> Self {
        let mark = structured.to_string().into_bytes();
        Self { text: text.into(), structured, well: true, more: Vec::new(), mark }
    }

    /// As the protocol has it.
    pub(crate) fn into_result(self) -> CallToolResult {
        let mut content = vec![ContentBlock::text(self.text)];
        content.extend(self.more);
        let mut result = if self.well { CallToolResult::success(content) } else { CallToolResult::error(content) };
        result.structured_content = Some(self.structured);
        result
    }
}

/// Why a tool did nothing, and whether trying again helps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    message: String,
    retry: Retry,
    advice: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Retry {
    /// The same call may work later.
    Later,
    /// Another call may work.
    Changed,
    /// Neither.
    Never,
}

impl Problem {
    /// The same call may work later.
    pub(crate) fn later(message: impl Into<String>) -> Self {
        Self { message: message.into(), retry: Retry::Later, advice: None }
    }

    /// A call with other arguments may work.
    pub(crate) fn fixable(message: impl Into<String>) -> Self {
        Self { message: message.into(), retry: Retry::Changed, advice: None }
    }

    /// Nothing like it will work.
    pub(crate) fn never(message: impl Into<String>) -> Self {
        Self { message: message.into(), retry: Retry::Never, advice: None }
    }

    /// Says what to do instead.
    #[must_use]
    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    /// As a tool says it.
    pub(crate) fn said(self) -> Said {
        let mut text = format!("Not done: {}.", self.message.trim_end_matches('.'));
        if let Some(advice) = &self.advice {
            text.push_str(&format!("\ninstead: {advice}"));
        }
        text.push_str(match self.retry {
            Retry::Later => "\nTry again: yes, the same call, a little later.",
            Retry::Changed => "\nTry again: yes, with other arguments.",
            Retry::Never => "\nTry again: no.",
        });
        let retryable = self.retry != Retry::Never;
        let structured = json!({ "error": { "message": self.message, "retryable": retryable, "advice": self.advice } });
        let mark = structured.to_string().into_bytes();
        Said { text, structured, well: false, more: Vec::new(), mark }
    }
}

/// What a file of a sandbox holds, at most so much and a byte more; for pictures.
pub(crate) async fn inside_file(call: &Call, sandbox: &Sandbox, path: &str, most: usize) -> Result<Vec<u8>, Problem> {
    files::bytes_of(call, Some(sandbox), &inside::file(path)?, most).await
}

/// A thing that could not be done, with its causes.
pub(crate) fn failed(attempt: &str, error: &dyn std::error::Error) -> Problem {
    let mut text = format!("{attempt}: {error}");
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    Problem::never(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

    use super::*;

    #[test]
    fn names_are_what_every_client_takes_and_each_has_its_dotted_twin() {
        for kind in Kind::ALL {
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            assert!(kind.name().len() <= 64 && kind.name().bytes().all(plain), "{}", kind.name());
            assert_eq!(kind.dotted().replace('.', "_"), kind.name());
        }
    }

    #[test]
    fn a_list_of_tools_is_all_there_is_whoever_wrote_it() {
        use ringfence_policy::{Layer, LayerInput, parse, resolve};
        let check = |layers: &[(Layer, &str)], left: &[&str]| {
            let inputs: Vec<LayerInput> = layers
                .iter()
                .map(|(layer, tools)| {
                    let text = format!("version: 1\ntools: {{ allow: [{tools}] }}\n");
                    LayerInput { layer: layer.clone(), file: parse("test.yaml", &text).unwrap() }
                })
                .collect();
            let named: Vec<&str> = allowed(&resolve(&inputs, &[]).unwrap()).into_iter().map(Kind::name).collect();
            assert_eq!(named, left, "{layers:?}");
        };
        let all: Vec<&str> = Kind::ALL.into_iter().map(Kind::name).collect();
        check(&[], &all);
        check(&[(Layer::Project, "files_read, explain")], &["files_read", "explain"]);
        check(&[(Layer::Operator, "files_read")], &["files_read"]);
        check(&[(Layer::Operator, "files_read, explain"), (Layer::User, "explain, changes_apply")], &["explain"]);
        // Lists that share nothing, a misspelt one, an empty one, and one for other programs' tools leave none.
        check(&[(Layer::Operator, "files_read"), (Layer::User, "explain")], &[]);
        check(&[(Layer::Project, "file_read")], &[]);
        check(&[(Layer::Operator, "")], &[]);
        check(&[(Layer::User, "WebSearch")], &[]);
        check(&[(Layer::User, "WebSearch, mcp__ringfence")], &all);
    }

    #[test]
    fn every_schema_is_closed_for_what_comes_in_and_open_for_an_error() {
        for kind in Kind::ALL {
            let tool = kind.listed(Names::Plain);
            assert_eq!(tool.input_schema["type"], "object", "{}", kind.name());
            assert_eq!(tool.input_schema["additionalProperties"], false, "{}", kind.name());
            let output = tool.output_schema.unwrap();
            assert_eq!(output["type"], "object");
            assert!(output["properties"].get("error").is_some(), "{}", kind.name());
            assert!(tool.annotations.is_some() && tool.description.is_some());
        }
    }

    #[test]
    fn an_error_says_whether_to_try_again() {
        assert!(Problem::later("x").said().text.contains("Try again: yes, the same call"));
        assert!(Problem::fixable("x").said().text.contains("with other arguments"));
        let never = Problem::never("x").advise("y").said();
        assert!(never.text.ends_with("instead: y\nTry again: no.") && !never.well);
        assert_eq!(never.structured["error"]["retryable"], false);
    }
}
