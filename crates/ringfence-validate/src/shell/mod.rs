//! Shell lines and scripts: two parsers that have to agree, folding of what is constant, and a walk that follows data.

use crate::analysis::{Origin, Step, Unknown};
use crate::language::Language;
use crate::reading::{Reading, unknown_code};
use crate::span::Span;

/// The steps of `text`.
pub(crate) fn read(_reading: &mut Reading<'_>, text: &str, origin: Origin) -> Vec<Step> {
    let span = origin.place(Span::new(0, text.len()));
    vec![unknown_code(Language::Shell, span, Unknown::Unreadable { why: "not read yet".to_owned() })]
}
