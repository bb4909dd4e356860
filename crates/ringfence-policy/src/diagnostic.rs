//! What is wrong with a text, where, and how to write it instead.
//!
//! Nothing here renders source excerpts: a front door does that from [`Diagnostic::span`].

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use crate::policy::Place;

/// How much a [`Diagnostic`] matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Allowed, but probably not what the author wants.
    Warning,
    /// The text is refused.
    Error,
}

/// One problem in a policy, an override, a grant or an environment variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// A stable identifier, such as `policy::unknown-key`.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// The first character of the offending text.
    pub place: Option<Place>,
    /// The offending bytes of the source text.
    pub span: Option<Range<usize>>,
    /// What to write instead.
    pub advice: Option<String>,
    /// Whether it stops the load.
    pub severity: Severity,
}

impl Diagnostic {
    /// A problem that refuses the text and has no place of its own.
    pub(crate) fn error(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), place: None, span: None, advice: None, severity: Severity::Error }
    }

    /// Something that is allowed and worth a second look.
    pub(crate) fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, message) }
    }

    pub(crate) fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    pub(crate) fn at(mut self, place: Option<Place>) -> Self {
        self.place = place;
        self
    }

    pub(crate) fn spanning(mut self, span: Range<usize>) -> Self {
        self.span = Some(span);
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some(place) => write!(f, "{place}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Diagnostic {}

/// A single value that cannot be read: what is wrong with it and what to write instead.
///
/// The parsers of one value (units, hosts, paths …) return this; the reader of the file adds the place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {advice}")]
pub struct Invalid {
    /// A stable identifier, such as `policy::bad-unit`.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub advice: String,
}

impl Invalid {
    pub(crate) fn new(code: &'static str, message: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { code, message: message.into(), advice: advice.into() }
    }
}

impl From<Invalid> for Diagnostic {
    fn from(invalid: Invalid) -> Self {
        Self::error(invalid.code, invalid.message).advise(invalid.advice)
    }
}

/// Text from outside as it may be shown: control characters escaped, long text cut.
pub(crate) fn quote(text: &str) -> String {
    const SHOWN: usize = 60;
    if text.is_empty() {
        return "an empty text".to_owned();
    }
    let mut out = String::with_capacity(text.len().min(SHOWN) + 2);
    out.push('`');
    for (count, c) in text.chars().enumerate() {
        if count == SHOWN {
            out.push('…');
            break;
        }
        if c.is_control() || is_invisible(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.push('`');
    out
}

/// Characters that would make shown text read as something else: directional marks and zero-width ones.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}' | '\u{2028}' | '\u{2029}')
}

/// The candidate nearest to `word`, when it is near enough to be what was meant.
pub(crate) fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Beyond this the distance costs more than the hint is worth.
    if word.len() > 64 {
        return None;
    }
    let word = word.to_ascii_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&word, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1) + 1 && *distance < candidate.len())
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// `a`, `b` and `c`, as code.
pub(crate) fn list_words<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.as_slice() {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}
