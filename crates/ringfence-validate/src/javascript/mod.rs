//! JavaScript and TypeScript programs.

use crate::analysis::{Origin, Step, Unknown};
use crate::language::Language;
use crate::reading::{Reading, unknown_code};
use crate::span::Span;

/// The step of `text`.
pub(crate) fn read(_reading: &mut Reading<'_>, language: Language, text: &str, origin: Origin) -> Step {
    unknown_code(language, origin.place(Span::new(0, text.len())), Unknown::Language)
}
