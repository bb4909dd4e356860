//! The progress of long work on standard error: one line that is written over on a terminal, plain lines elsewhere.

use std::io::{self, IsTerminal};
use std::sync::{Arc, Mutex, PoisonError};

use ringfence::sandbox_images::{Listener, Progress};

use crate::chatter;
use crate::terminal::plain_line;

/// Goes back to the beginning of the line and empties it.
const AGAIN: &str = "\r\x1b[K";
/// Where the width of a terminal is not known.
const WIDTH: usize = 80;

#[derive(Clone)]
pub(super) struct Line {
    kind: Kind,
    /// The step that details belong to.
    step: Arc<Mutex<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Quiet,
    Plain,
    Terminal,
}

impl Line {
    pub(super) fn new(quiet: bool) -> Self {
        let kind = match quiet {
            true => Kind::Quiet,
            false if io::stderr().is_terminal() => Kind::Terminal,
            false => Kind::Plain,
        };
        Self { kind, step: Arc::default() }
    }

    pub(super) fn listener(&self) -> Listener {
        let line = self.clone();
        Arc::new(move |progress| line.tell(progress))
    }

    fn tell(&self, progress: Progress) {
        let mut step = self.step.lock().unwrap_or_else(PoisonError::into_inner);
        let detail = match progress {
            Progress::Step(text) => {
                *step = plain_line(text.as_bytes());
                None
            }
            Progress::Detail(text) => Some(plain_line(text.as_bytes())),
        };
        match (self.kind, detail) {
            (Kind::Quiet, _) => {}
            (Kind::Plain, None) => chatter::say(&step),
            (Kind::Plain, Some(detail)) => chatter::say(&format!("  {detail}")),
            (Kind::Terminal, detail) => {
                let detail = detail.map(|detail| format!(": {detail}")).unwrap_or_default();
                let text: String = format!("ringfence: {step}{detail}").chars().take(width() - 1).collect();
                chatter::say_raw(&format!("{AGAIN}{text}"));
            }
        }
    }

    /// Takes the line away, before something else is written.
    pub(super) fn clear(&self) {
        if self.kind == Kind::Terminal {
            chatter::say_raw(AGAIN);
        }
    }

    /// A line that stays.
    pub(super) fn say(&self, text: &str) {
        if self.kind != Kind::Quiet {
            chatter::say(text);
        }
    }
}

fn width() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr());
    let width = size.map_or(0, |size| usize::from(size.ws_col));
    if width < 20 { WIDTH } else { width }
}
