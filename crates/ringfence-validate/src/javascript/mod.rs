//! JavaScript and TypeScript programs: bounded, parsed by oxc's parser, brought into the tree that all languages are walked over in.

mod bounds;
mod class;
mod expression;
mod pattern;
mod statement;

use std::sync::LazyLock;

use oxc_allocator::Allocator;
use oxc_parser::{ParseOptions, Parser};
use oxc_span::SourceType;

use crate::analysis::{Origin, Step, Unknown};
use crate::code::{Book, Program};
use crate::language::Language;
use crate::limits::Limits;
use crate::reading::{Reading, unknown_code};
use crate::span::Span;

/// Bytes from which on a text is tried in two ways alone.
const LONG: usize = 256 * 1024;

static BOOK: LazyLock<Book> = LazyLock::new(|| Book::read(include_str!("../../data/javascript.calls")));

/// The step of `text`.
pub(crate) fn read(reading: &mut Reading<'_>, language: Language, text: &str, origin: Origin) -> Step {
    let unknown = |unknown| unknown_code(language, origin.place(Span::new(0, text.len())), unknown);
    if let Err(bound) = bounds::check(text, reading.limits, bounds::Elements::None) {
        return unknown(Unknown::TooMuch { bound });
    }
    let with_elements = (text.contains("</") || text.contains("/>"))
        && bounds::check(text, reading.limits, bounds::Elements::Some).is_ok();
    match parsed(language, text, 0, with_elements, reading.limits) {
        Ok(Some(program)) => crate::code::read(reading, &BOOK, within, &program, origin),
        Ok(None) => unknown(Unknown::TooMuch { bound: "nesting" }),
        Err(why) => unknown(Unknown::Unreadable { why: why.chars().take(200).collect() }),
    }
}

/// The program of a text; nothing if it goes too deep, and why it cannot be read.
fn parsed(
    language: Language,
    text: &str,
    first: usize,
    with_elements: bool,
    limits: &Limits,
) -> Result<Option<Program>, String> {
    let mut why = String::new();
    // What is long and no plain program is not tried in every way: each takes as long as the text.
    let most = if text.len() > LONG { 2 } else { usize::MAX };
    for kind in kinds(language).into_iter().filter(|kind| with_elements || !kind.is_jsx()).take(most) {
        let allocator = Allocator::default();
        let options =
            ParseOptions { allow_return_outside_function: true, enable_ident_hashes: false, ..ParseOptions::default() };
        let parsed = Parser::new(&allocator, text, kind).with_options(options).parse();
        if !parsed.panicked && parsed.diagnostics.is_empty() {
            return Ok(statement::program(text, language, &parsed.program, first, limits));
        }
        if why.is_empty() {
            why = parsed.diagnostics.iter().next().map(ToString::to_string).unwrap_or_default();
        }
    }
    Err(why)
}

/// A text that a program runs, as a part of it.
fn within(text: &str, first: usize, limits: &Limits) -> Option<Program> {
    bounds::check(text, limits, bounds::Elements::None).ok()?;
    parsed(Language::JavaScript, text, first, false, limits).ok().flatten()
}

/// The ways to read a text, the likeliest first: a module or a script, with elements or with types.
fn kinds(language: Language) -> [SourceType; 5] {
    let (plain, script) = (SourceType::mjs(), SourceType::script());
    match language {
        Language::TypeScript => {
            [SourceType::ts(), SourceType::tsx(), SourceType::ts().with_script(true), plain, script]
        }
        _ => [plain, script, plain.with_jsx(true), SourceType::ts(), SourceType::tsx()],
    }
}

#[cfg(test)]
mod ordinary;
#[cfg(test)]
mod tests;

#[cfg(test)]
mod followed;

#[cfg(test)]
mod handed;
