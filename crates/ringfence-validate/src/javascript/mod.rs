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
use crate::code::Book;
use crate::language::Language;
use crate::reading::{Reading, unknown_code};
use crate::span::Span;

static BOOK: LazyLock<Book> = LazyLock::new(|| Book::read(include_str!("../../data/javascript.calls")));

/// The step of `text`.
pub(crate) fn read(reading: &mut Reading<'_>, language: Language, text: &str, origin: Origin) -> Step {
    let unknown = |unknown| unknown_code(language, origin.place(Span::new(0, text.len())), unknown);
    if let Err(bound) = bounds::check(text, reading.limits, bounds::Elements::None) {
        return unknown(Unknown::TooMuch { bound });
    }
    let with_elements = (text.contains("</") || text.contains("/>"))
        && bounds::check(text, reading.limits, bounds::Elements::Some).is_ok();
    let mut why = String::new();
    for kind in kinds(language) {
        if kind.is_jsx() && !with_elements {
            continue;
        }
        let allocator = Allocator::default();
        let options =
            ParseOptions { allow_return_outside_function: true, enable_ident_hashes: false, ..ParseOptions::default() };
        let parsed = Parser::new(&allocator, text, kind).with_options(options).parse();
        if !parsed.panicked && parsed.diagnostics.is_empty() {
            let Some(program) = statement::program(text, language, &parsed.program, reading.limits) else {
                return unknown(Unknown::TooMuch { bound: "nesting" });
            };
            return crate::code::read(reading, &BOOK, &program, origin);
        }
        if why.is_empty() {
            why = parsed.diagnostics.iter().next().map(ToString::to_string).unwrap_or_default();
        }
    }
    unknown(Unknown::Unreadable { why: why.chars().take(200).collect() })
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
