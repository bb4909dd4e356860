//! What flows into a command and out of it.

use crate::analysis::Flow;
use crate::span::Span;
use crate::text::Text;

/// Bytes that are kept of what a stream says, at most.
const MOST_TEXT: usize = 1024 * 1024;

/// Standard input or output, the value of a substitution, the contents of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Stream {
    /// Where it comes from. Empty: there is none.
    pub(crate) flows: Vec<Flow>,
    /// What it says, where the text shows it.
    pub(crate) text: Option<Text>,
}

impl Stream {
    /// From these places; what it says is not known.
    pub(crate) fn from(flows: Vec<Flow>) -> Self {
        Self { flows, text: None }
    }

    /// Words that stand in the text.
    pub(crate) fn literal(text: Text) -> Self {
        Self { flows: vec![Flow::Literal], text: Some(text) }
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
        if self.flows.is_empty() && self.text.is_none() {
            *self = other;
            return;
        }
        if other.flows.is_empty() && other.text.is_none() {
            return;
        }
        self.add_all(&other.flows);
        self.text = match (self.text.take(), other.text) {
            (Some(mut before), Some(after)) => {
                before.append(after);
                (before.length() <= MOST_TEXT).then_some(before)
            }
            _ => None,
        };
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
