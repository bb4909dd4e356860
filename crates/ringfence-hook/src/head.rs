//! What the formats of all agents but Cursor say alike of every call.

use std::path::PathBuf;

use serde_json::{Map, Value};

use crate::NotJudged;
use crate::call::{Asks, Call, Event, Returned, Rewrites, Tool};
use crate::input::{first_text, text};

pub(crate) struct Head {
    pub(crate) event: String,
    pub(crate) name: String,
    session: Option<String>,
    folder: Option<PathBuf>,
    transcript: Option<PathBuf>,
}

impl Head {
    pub(crate) fn of(input: &Map<String, Value>) -> Result<Self, NotJudged> {
        Ok(Self {
            event: text(input, "hook_event_name")?.to_owned(),
            name: text(input, "tool_name")?.to_owned(),
            session: first_text(input, &["session_id"]).map(str::to_owned),
            folder: first_text(input, &["cwd"]).map(PathBuf::from),
            transcript: first_text(input, &["transcript_path"]).map(PathBuf::from),
        })
    }

    /// A call of `tool` that waits for an answer.
    pub(crate) fn before(self, tool: Tool, input: Map<String, Value>, asks: Asks) -> Event {
        let Self { event, name, session, folder, transcript } = self;
        Event::Before(Call { name, tool, input, folder, session, transcript, rewrites: Rewrites::Yes, asks, event })
    }

    /// One that was made; nothing came back where `response` is missing.
    pub(crate) fn after(self, input: Map<String, Value>, response: Option<&Value>) -> Event {
        let response = response.cloned().unwrap_or_default();
        Event::After(Returned { name: self.name, input, session: self.session, response, event: self.event })
    }

    pub(crate) fn unknown(&self) -> NotJudged {
        unknown_event(&self.event)
    }
}

/// An event that an agent was not told to ask us about.
pub(crate) fn unknown_event(event: &str) -> NotJudged {
    NotJudged::because(format!("the event `{event}` is none that is judged"))
}
