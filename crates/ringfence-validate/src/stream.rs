//! What flows into a command and out of it.

use crate::analysis::Flow;
use crate::span::Span;
use crate::text::{Hole, Piece, Text};

/// Texts that a stream may say, at most; more are not known.
const MOST_TEXTS: usize = 16;

/// Bytes that are kept of what a stream says, at most.
const MOST_TEXT: usize = 1024 * 1024;

/// Pieces of it, at most.
const MOST_PIECES: usize = 1024;

/// Standard input or output, the value of a substitution, the contents of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Stream {
    /// Where it comes from. Empty: there is none.
    pub(crate) flows: Vec<Flow>,
    /// What it says, where the text shows it.
    pub(crate) text: Option<Text>,
    /// What it says after branches: one of these. Then there is no `text`.
    pub(crate) texts: Vec<Text>,
}

impl Stream {
    /// From these places; what it says is not known.
    pub(crate) fn from(flows: Vec<Flow>) -> Self {
        Self { flows, text: None, texts: Vec::new() }
    }

    /// Words that stand in the text.
    pub(crate) fn literal(text: Text) -> Self {
        Self { flows: vec![Flow::Literal], text: Some(text), texts: Vec::new() }
    }

    /// Adds where something comes from, once.
    pub(crate) fn add(&mut self, flow: Flow) {
        if !self.flows.contains(&flow) {
            self.flows.push(flow);
        }
    }

    /// Adds where something comes from, once each.
    pub(crate) fn add_all<'a>(&mut self, flows: impl IntoIterator<Item = &'a Flow>) {
        flows.into_iter().for_each(|flow| self.add(flow.clone()));
    }

    /// Puts another stream behind this one.
    pub(crate) fn then(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        if other.is_empty() {
            return;
        }
        self.add_all(&other.flows);
        if !self.texts.is_empty() || !other.texts.is_empty() {
            let after = other.may_say();
            let mut whole = Vec::new();
            for before in self.may_say() {
                for after in &after {
                    let mut text = before.clone();
                    text.append(after.clone());
                    whole.push(text);
                }
            }
            self.says_one_of(whole);
            return;
        }
        self.text = match (self.text.take(), other.text) {
            (Some(mut before), Some(after)) => {
                before.append(after);
                let kept = before.pieces().len() <= MOST_PIECES && before.length() <= MOST_TEXT;
                if !kept {
                    self.add(Flow::Unknown);
                }
                kept.then_some(before)
            }
            _ => None,
        };
    }

    /// Whether nothing is written at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.flows.is_empty() && self.text.is_none() && self.texts.is_empty()
    }

    /// This stream or another one: either may be what is read.
    pub(crate) fn or(&mut self, other: Self) {
        if *self == other {
            return;
        }
        let mut texts = self.may_say();
        for text in other.may_say() {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        self.add_all(&other.flows);
        self.says_one_of(texts);
    }

    /// Another stream behind this one, where what is not known of one may as well be nothing.
    pub(crate) fn follow(&mut self, other: Self) {
        let unknown = |stream: &Self| stream.text.is_none() && stream.texts.is_empty() && !stream.flows.is_empty();
        if unknown(self) != unknown(&other) && !self.is_empty() && !other.is_empty() {
            self.or(other);
        } else {
            self.then(other);
        }
    }

    /// All that it may say; a hole where that is not known.
    fn may_say(&self) -> Vec<Text> {
        match &self.text {
            _ if !self.texts.is_empty() => self.texts.clone(),
            Some(text) => vec![text.clone()],
            None if self.flows.is_empty() => vec![Text::default()],
            None => vec![Text::hole(Hole::Output)],
        }
    }

    fn says_one_of(&mut self, mut texts: Vec<Text>) {
        let pieces: usize = texts.iter().map(|text| text.pieces().len()).sum();
        let kept = texts.len() <= MOST_TEXTS
            && pieces <= MOST_PIECES
            && texts.iter().map(Text::length).sum::<usize>() <= MOST_TEXT;
        self.text = None;
        self.texts = Vec::new();
        match texts.as_slice() {
            [_] if kept => self.says(texts.remove(0)),
            _ if kept => self.texts = texts,
            // What it says was known once, and is not any more.
            _ => self.add(Flow::Unknown),
        }
    }

    /// It says this text, and no other.
    pub(crate) fn says(&mut self, text: Text) {
        self.texts = Vec::new();
        self.text = if matches!(text.pieces(), [Piece::Hole(_)]) { None } else { Some(text) };
    }

    /// What it says, if all of it is known.
    pub(crate) fn known(&self) -> Option<&str> {
        self.text.as_ref().and_then(Text::as_known)
    }

    /// The places that matter to whoever it is sent to: not what stands in the text itself, nor the request's own input.
    pub(crate) fn telling(&self) -> Vec<Flow> {
        telling(&self.flows)
    }
}

/// The places that matter to whoever something is sent to.
pub(crate) fn telling(flows: &[Flow]) -> Vec<Flow> {
    flows.iter().filter(|flow| !matches!(flow, Flow::Literal | Flow::Input | Flow::Unknown)).cloned().collect()
}

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Argument {
    pub(crate) text: Text,
    pub(crate) span: Span,
    /// Where its unknown parts come from.
    pub(crate) flows: Vec<Flow>,
}

impl Argument {
    pub(crate) fn new(text: Text, span: Span) -> Self {
        Self { text, span, flows: Vec::new() }
    }

    /// The word, if all of it is known.
    pub(crate) fn known(&self) -> Option<&str> {
        self.text.as_known()
    }
}
