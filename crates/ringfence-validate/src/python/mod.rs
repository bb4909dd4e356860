//! Python programs: bounded, parsed by ruff's parser, brought into the tree that all languages are walked over in.

mod bounds;
mod expression;
mod statement;

use std::sync::LazyLock;

use ruff_python_parser::parse_module;

use crate::analysis::{Origin, Step, Unknown};
use crate::code::{Book, Program};
use crate::language::Language;
use crate::limits::Limits;
use crate::reading::{Reading, unknown_code};
use crate::span::Span;

static BOOK: LazyLock<Book> = LazyLock::new(|| Book::read(include_str!("../../data/python.calls")));

/// The step of `text`.
pub(crate) fn read(reading: &mut Reading<'_>, text: &str, origin: Origin) -> Step {
    let unknown = |unknown| unknown_code(Language::Python, origin.place(Span::new(0, text.len())), unknown);
    if let Err(bound) = bounds::check(text, reading.limits) {
        return unknown(Unknown::TooMuch { bound });
    }
    match parse_module(text) {
        Ok(parsed) => {
            let program = statement::program(text, &parsed.into_syntax(), 0);
            crate::code::read(reading, &BOOK, within, &program, origin)
        }
        Err(error) => {
            let mut why: String = error.error.to_string().chars().take(200).collect();
            if bounds::looks_like_python_2(text) {
                why.push_str(" (it looks like Python 2)");
            }
            unknown(Unknown::Unreadable { why })
        }
    }
}

/// A text that a program runs, as a part of it.
fn within(text: &str, first: usize, limits: &Limits) -> Option<Program> {
    bounds::check(text, limits).ok()?;
    Some(statement::program(text, &parse_module(text).ok()?.into_syntax(), first))
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod ordinary;

#[cfg(test)]
mod followed;

#[cfg(test)]
mod handed;
