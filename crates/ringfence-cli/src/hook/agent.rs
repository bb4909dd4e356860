//! The agents whose calls are judged.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::{Map, Value};

use super::call::{Answer, Call, Event, Returned};
use super::input::texts;
use super::{NotJudged, claude_code, codex, cursor, gemini};

/// An agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Agent {
    /// Claude Code, and the Claude Agent SDK
    ClaudeCode,
    /// Codex
    Codex,
    /// Gemini CLI
    Gemini,
    /// Cursor
    Cursor,
}

impl Agent {
    /// Its name, as on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Cursor => "cursor",
        }
    }

    /// What it tells us of.
    pub(super) fn read(self, input: &Map<String, Value>) -> Result<Event, NotJudged> {
        match self {
            Self::ClaudeCode => claude_code::read(input),
            Self::Codex => codex::read(input),
            Self::Gemini => gemini::read(input),
            Self::Cursor => cursor::read(input),
        }
    }

    /// The answer in its format.
    pub(super) fn answer(self, call: &Call, answer: Answer) -> Value {
        match self {
            Self::ClaudeCode => claude_code::answer(answer),
            Self::Codex => codex::answer(answer),
            Self::Gemini => gemini::answer(answer),
            Self::Cursor => cursor::answer(call, answer),
        }
    }

    /// What is said to a call that was made: nothing to say, or what came back with secrets taken out.
    pub(super) fn answer_after(self, returned: &Returned, masked: Option<Value>) -> Value {
        match self {
            Self::ClaudeCode => claude_code::answer_after(returned, masked),
            Self::Codex => codex::answer_after(masked),
            Self::Gemini => gemini::answer_after(masked),
            Self::Cursor => cursor::answer_after(returned, masked),
        }
    }

    /// The folder that it was started in: said by the agent itself, never by a call.
    pub(super) fn project(
        self,
        input: &Map<String, Value>,
        variable: impl Fn(&str) -> Option<PathBuf>,
    ) -> Option<PathBuf> {
        let named = |name: &str| variable(name).filter(|path| path.is_absolute());
        match self {
            Self::ClaudeCode => named("CLAUDE_PROJECT_DIR"),
            Self::Codex => None,
            Self::Gemini => named("GEMINI_PROJECT_DIR"),
            Self::Cursor => named("CURSOR_PROJECT_DIR")
                .or_else(|| texts(input, "workspace_roots").into_iter().next().map(PathBuf::from)),
        }
    }
}
