//! Shell lines and scripts: two parsers that have to agree, folding of what is constant, and a walk that follows data.
//!
//! [`scan`] bounds the text, [`first`] and [`second`] parse it into the same [`tree`], [`walk`] goes through it with what [`scope`] knows.

mod arithmetic;
mod assign;
mod braces;
mod brackets;
mod compound;
mod coprocess;
mod directory;
mod endless;
mod expand;
mod first;
mod join;
mod leaves;
mod lists;
mod notes;
mod parameter;
mod pending;
mod redirect;
mod scan;
mod scope;
mod second;
mod sets;
mod several;
mod tree;
mod value;
mod walk;
mod ways;
mod word;

pub(crate) use notes::Unpacked;
pub(crate) use parameter::looks_secret;
pub(crate) use scope::{Odd, Plainly, Scope};
pub(crate) use value::Value;
pub(crate) use ways::Ways;
pub(crate) use word::unescape;

use crate::analysis::{Flow, Origin, Step, Unknown};
use crate::language::Language;
use crate::reading::{Reading, unknown_code};
use crate::span::Span;
use crate::stream::Stream;

/// Work that the parsers may have, in units of [`scan::Scan::cost`].
const MOST_WORK: u64 = 100_000;

/// The steps of `text`.
pub(crate) fn read(reading: &mut Reading<'_>, text: &str, origin: Origin) -> Vec<Step> {
    read_stream(reading, text, origin, &Stream::from(vec![Flow::Input])).0
}

/// The steps of `text` with `input`, and what it writes.
pub(crate) fn read_stream(
    reading: &mut Reading<'_>,
    text: &str,
    origin: Origin,
    input: &Stream,
) -> (Vec<Step>, Stream) {
    match parse(reading, text) {
        Ok(node) => {
            let mut walker = walk::Walker::new(reading, origin);
            walker.all(&node, input)
        }
        Err(unknown) => {
            let span = origin.place(Span::new(0, text.len()));
            (vec![unknown_code(Language::Shell, span, unknown)], Stream::from(vec![Flow::Unknown]))
        }
    }
}

fn parse(reading: &mut Reading<'_>, text: &str) -> Result<tree::Node, Unknown> {
    reading.count_shell(text.len())?;
    if text.contains('\0') {
        return Err(unreadable("a NUL character"));
    }
    let scan = scan::scan(text, 0, scan::From::Top).map_err(|broken| match broken {
        scan::Broken::Open => unreadable("a quote or bracket is not closed"),
        scan::Broken::Descriptor => unreadable("a file descriptor out of range"),
    })?;
    if scan.depth > reading.limits.nesting || scan.cost > MOST_WORK {
        return Err(Unknown::TooMuch { bound: "nesting" });
    }
    let second = second::parse(text).map_err(|why| unreadable(&why))?;
    let mut selects = Vec::new();
    if text.contains("select") {
        second::selects(&second, &mut selects);
    }
    let first = first::parse(text, &selects).map_err(|why| unreadable(&why))?;
    if first == second { Ok(first) } else { Err(Unknown::Disagreement) }
}

fn unreadable(why: &str) -> Unknown {
    Unknown::Unreadable { why: why.chars().take(120).collect() }
}

#[cfg(test)]
mod attacked;
#[cfg(test)]
mod left_behind;
#[cfg(test)]
mod obeyed;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod twins;
