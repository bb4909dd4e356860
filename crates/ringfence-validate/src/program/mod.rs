//! What a program does with its words: flags and operands understood, wrappers looked through.

use crate::analysis::{Does, Flow, Step};
use crate::reading::Reading;
use crate::span::Span;
use crate::text::Text;

/// The step of one command.
pub(crate) fn read(_reading: &mut Reading<'_>, argv: Vec<(Text, Span)>, span: Span, _input: &[Flow]) -> Step {
    Step {
        span,
        does: Does::Command { argv: argv.into_iter().map(|(word, _)| word).collect() },
        facts: Vec::new(),
        inner: Vec::new(),
    }
}
