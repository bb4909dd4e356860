//! The line that a command becomes, written in exactly one way.
//!
//! A line that is in this form already, whoever wrote it, is taken apart again and judged by what is in it; every other line that calls us
//! is a line like any other, and runs behind the wall, where it can widen nothing.

use std::path::{Path, PathBuf};

use ringfence_policy::{TimeSpan, split_words};

use crate::{Agent, Ground, NotJudged};

/// What a line of ours says.
pub(crate) struct Parts {
    pub(crate) line: String,
    /// Nothing where the line does not say it.
    pub(crate) folder: Option<PathBuf>,
    pub(crate) milliseconds: Option<u64>,
}

/// Writes lines that run behind the wall, and knows them again.
pub(crate) struct Wrapper {
    /// What every such line begins with.
    start: Vec<String>,
    workspace: PathBuf,
    starts: Starts,
}

/// Where a wrapped command starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Starts {
    /// Where the line says.
    AsWritten,
    /// Where the agent starts it: Codex does not show the folder that a command asks for.
    WhereItIs,
}

impl Wrapper {
    pub(crate) fn new(ground: &Ground) -> Result<Self, NotJudged> {
        let text = |path: &Path| {
            path.to_str().map(str::to_owned).ok_or_else(|| NotJudged::because(format!("{} is no text", path.display())))
        };
        let program = &ground.program;
        if !program.is_file() {
            return Err(NotJudged::because(format!("{} is gone; start the agent again", program.display())));
        }
        let mut start = vec![text(program)?, "run".to_owned(), "--at=same".to_owned(), "--apply=unflagged".to_owned()];
        // At a terminal that a model types at, it would answer our own questions.
        start.push("--ask=nobody".to_owned());
        start.push(format!("--workspace={}", text(&ground.workspace)?));
        if let Some(file) = &ground.loaded.project_file {
            let file =
                file.canonicalize().map_err(|error| NotJudged::because(format!("{}: {error}", file.display())))?;
            start.push(format!("--policy={}", text(&file)?));
        }
        start.extend(ground.flags.iter().cloned());
        let starts = match ground.agent {
            Agent::Codex => Starts::WhereItIs,
            Agent::ClaudeCode | Agent::Gemini | Agent::Cursor => Starts::AsWritten,
        };
        Ok(Self { start, workspace: ground.workspace.clone(), starts })
    }

    pub(crate) fn wrap(&self, line: &str, below: &Path, time: Option<TimeSpan>, approved: &[String]) -> String {
        let mut words = self.start.clone();
        if self.starts == Starts::AsWritten {
            words.push(format!("--cwd={}", self.workspace.join(below).to_string_lossy().trim_end_matches('/')));
        }
        words.extend(time.map(|time| format!("--timeout={}ms", time.get().as_millis().max(1))));
        words.extend(approved.iter().map(|rule| format!("--approve={rule}")));
        words.push(format!("--shell={line}"));
        joined(&words)
    }

    /// The parts of a line that we wrote, or that is exactly as we would have. What was approved is no part of one: a model could have
    /// written that.
    pub(crate) fn unwrap(&self, line: &str) -> Option<Parts> {
        if !line.starts_with(&joined(&self.start[..2])) {
            return None;
        }
        let words = split_words(line).ok()?;
        let rest = words.strip_prefix(self.start.as_slice())?;
        let (folder, rest) = match self.starts {
            Starts::AsWritten => {
                let (folder, rest) = rest.split_first()?;
                (Some(PathBuf::from(folder.strip_prefix("--cwd=")?)), rest)
            }
            Starts::WhereItIs => (None, rest),
        };
        let (milliseconds, rest) = match rest {
            [time, rest @ ..] if time.starts_with("--timeout=") => {
                (Some(time.strip_prefix("--timeout=")?.strip_suffix("ms")?.parse().ok()?), rest)
            }
            rest => (None, rest),
        };
        let [inner] = rest else { return None };
        let inner = inner.strip_prefix("--shell=")?.to_owned();
        Some(Parts { line: inner, folder, milliseconds })
    }
}

/// Words as every shell reads them back, fish included: there a backslash counts between single quotes, too.
pub fn joined(words: &[String]) -> String {
    words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => {
            let mut text = String::from("'");
            for letter in word.chars() {
                match letter {
                    '\'' => text.push_str("'\"'\"'"),
                    '\\' => text.push_str("'\"\\\\\"'"),
                    other => text.push(other),
                }
            }
            text.push('\'');
            text
        }
    }
}
