//! `.dockerignore`, as far as it can be understood. What cannot be is refused: a file that is not left out is sent.

use std::path::Path;

use ringfence_policy::Glob;

/// Patterns in one file.
const MOST_PATTERNS: usize = 1_000;

/// What a project leaves out of its context.
#[derive(Debug, Default)]
pub(super) struct Ignored {
    rules: Vec<(Effect, Glob)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    LeaveOut,
    TakeIn,
}

/// A line that is not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of .dockerignore cannot be understood: `{text}`")]
pub struct BadLine {
    line: usize,
    text: String,
}

impl Ignored {
    pub(super) fn parse(text: &str) -> Result<Self, BadLine> {
        let mut rules = Vec::new();
        for (number, written) in text.lines().enumerate() {
            let bad = || BadLine { line: number + 1, text: super::cut(written) };
            let line = written.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (effect, pattern) = match line.strip_prefix('!') {
                Some(rest) => (Effect::TakeIn, rest.trim()),
                None => (Effect::LeaveOut, line),
            };
            let pattern = pattern.trim_start_matches("./").trim_matches('/');
            // Another reader could read these otherwise: escapes, classes, and what our patterns call alternatives.
            let odd = pattern.contains(['\\', '[', ']', '{', '}', '\u{feff}']);
            let parts = pattern.split('/').all(|part| !matches!(part, "" | "." | ".."));
            if odd || !parts || rules.len() == MOST_PATTERNS {
                // Everything: the folder itself.
                if matches!(pattern, "" | ".") && line != "!" {
                    rules.push((effect, "**".parse().map_err(|_| bad())?));
                    continue;
                }
                return Err(bad());
            }
            rules.push((effect, pattern.parse().map_err(|_| bad())?));
        }
        Ok(Self { rules })
    }

    /// Whether `path` is left out. The last rule that matches it, or a folder that it is in, decides.
    pub(super) fn leaves_out(&self, path: &Path) -> bool {
        let matches = |glob: &Glob| path.ancestors().any(|part| !part.as_os_str().is_empty() && glob.matches(part));
        let last = self.rules.iter().rev().find(|(_, glob)| matches(glob));
        matches!(last, Some((Effect::LeaveOut, _)))
    }

    /// Whether something in a folder that is left out may be taken in again.
    pub(super) fn has_exceptions(&self) -> bool {
        self.rules.iter().any(|(effect, _)| *effect == Effect::TakeIn)
    }
}
