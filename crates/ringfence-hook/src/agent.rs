//! The agents whose calls are judged.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::call::{Answer, Call, Event, Returned};
use crate::input::texts;
use crate::{NotJudged, claude_code, codex, cursor, gemini};

/// An agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agent {
    /// Claude Code, and the Claude Agent SDK.
    ClaudeCode,
    /// Codex.
    Codex,
    /// Gemini CLI.
    Gemini,
    /// Cursor.
    Cursor,
}

impl Agent {
    /// Every one.
    pub const ALL: [Self; 4] = [Self::ClaudeCode, Self::Codex, Self::Gemini, Self::Cursor];

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|agent| agent.name() == name)
    }

    /// What it calls itself.
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code, and the Claude Agent SDK",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Cursor => "Cursor",
        }
    }

    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Cursor => "cursor",
        }
    }

    /// What it tells us of. Cursor can run the hooks of Claude Code as well, and says itself who it is. Which answers it takes there nobody
    /// promises, and some of its calls it only describes to hooks of its own: none of them is judged by halves.
    pub fn read(self, input: &Map<String, Value>) -> Result<Event, NotJudged> {
        match self {
            Self::ClaudeCode if input.contains_key("cursor_version") => Err(NotJudged::because(
                "Cursor asks by the hook of Claude Code: give it its own by `ringfence init --agent cursor`, and switch hooks of \
                 third parties off in its settings",
            )),
            Self::ClaudeCode => claude_code::read(input),
            Self::Codex => codex::read(input),
            Self::Gemini => gemini::read(input),
            Self::Cursor => cursor::read(input),
        }
    }

    /// The answer in its format.
    pub fn answer(self, call: &Call, answer: Answer) -> Value {
        match self {
            Self::ClaudeCode => claude_code::answer(answer),
            Self::Codex => codex::answer(answer),
            Self::Gemini => gemini::answer(answer),
            Self::Cursor => cursor::answer(call, answer),
        }
    }

    /// What is said to a call that was made: nothing to say, or what came back with secrets taken out.
    pub fn answer_after(self, returned: &Returned, masked: Option<Value>) -> Value {
        match self {
            Self::ClaudeCode => claude_code::answer_after(returned, masked),
            Self::Codex => codex::answer_after(masked),
            Self::Gemini => gemini::answer_after(masked),
            Self::Cursor => cursor::answer_after(returned, masked),
        }
    }

    /// The folder that it was started in: said by the agent itself, never by a call.
    pub fn project(self, input: &Map<String, Value>, variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
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
