//! JavaScript and TypeScript programs: bounded, parsed by oxc's parser, brought into the tree that all languages are walked over in.

mod bounds;
mod class;
mod expression;
mod guesses;
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
use bounds::{Elements, Types};

/// Bytes from which on a text is tried in two ways alone.
const LONG: usize = 256 * 1024;

static BOOK: LazyLock<Book> = LazyLock::new(|| Book::read(include_str!("../../data/javascript.calls")));

/// The step of `text`.
pub(crate) fn read(reading: &mut Reading<'_>, language: Language, text: &str, origin: Origin) -> Step {
    let unknown = |unknown| unknown_code(language, origin.place(Span::new(0, text.len())), unknown);
    let types = match bounds::check(text, reading.limits, Elements::None) {
        Ok(Types::TooManyGuesses) if language == Language::TypeScript => {
            return unknown(Unknown::TooMuch { bound: "guesses" });
        }
        Ok(types) => types,
        Err(bound) => return unknown(Unknown::TooMuch { bound }),
    };
    let with_elements = (text.contains("</") || text.contains("/>"))
        && bounds::check(text, reading.limits, Elements::Some) == Ok(types);
    match parsed(language, text, 0, Ways { elements: with_elements, types }, reading.limits) {
        Ok(Some(program)) => crate::code::read(reading, &BOOK, within, &program, origin),
        Ok(None) => unknown(Unknown::TooMuch { bound: "nesting" }),
        Err(why) => unknown(Unknown::Unreadable { why: why.chars().take(200).collect() }),
    }
}

/// The ways in which a text may be tried, beside the plain ones.
#[derive(Clone, Copy)]
struct Ways {
    elements: bool,
    types: Types,
}

/// The program of a text; nothing if it goes too deep, and why it cannot be read.
fn parsed(
    language: Language,
    text: &str,
    first: usize,
    ways: Ways,
    limits: &Limits,
) -> Result<Option<Program>, String> {
    let mut why = String::new();
    // What is long and no plain program is not tried in every way: each takes as long as the text.
    let most = if text.len() > LONG { 2 } else { usize::MAX };
    let may =
        |kind: &SourceType| (ways.elements || !kind.is_jsx()) && (ways.types == Types::May || !kind.is_typescript());
    for kind in kinds(language).into_iter().filter(may).take(most) {
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
    let types = bounds::check(text, limits, Elements::None).ok()?;
    parsed(Language::JavaScript, text, first, Ways { elements: false, types }, limits).ok().flatten()
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
