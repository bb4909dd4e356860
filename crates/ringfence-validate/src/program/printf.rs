//! `printf`: a format filled with values, written or put into a variable.

use super::Run;
use crate::analysis::Flow;
use crate::shell::unescape;
use crate::stream::{Argument, Stream};
use crate::text::{Hole, Piece, Text};

pub(super) fn printf(run: &mut Run<'_, '_>, _name: &str) {
    let mut rest = run.rest();
    let variable = if rest.first().and_then(Argument::known) == Some("-v") && rest.len() > 2 {
        let word = rest.get(1).cloned();
        rest.drain(..2);
        word.and_then(|word| run.target(&word))
    } else {
        None
    };
    if rest.first().and_then(Argument::known) == Some("--") {
        rest.remove(0);
    }
    let Some((format, values)) = rest.split_first() else { return };
    let mut stream = Stream::default();
    stream.add(Flow::Literal);
    for word in &rest {
        stream.add_all(&word.flows);
    }
    match format.known() {
        Some(known) => {
            let (text, disguised) = formatted(known, values);
            if disguised {
                stream.add(Flow::Decoded);
            }
            stream.text = Some(text);
        }
        None => stream.text = Some(format.text.clone()),
    }
    match variable {
        Some(name) => {
            let value = crate::shell::Value {
                fields: vec![stream.text.unwrap_or_else(|| Text::hole(Hole::Value))],
                flows: stream.flows,
            };
            run.expands(&name);
            run.reading.set_named(&name, value);
        }
        None => run.output = stream,
    }
}

/// The format filled with the values, again and again until they are used up.
fn formatted(format: &str, values: &[Argument]) -> (Text, bool) {
    let mut text = Text::default();
    let mut values = values.iter();
    let mut disguised = false;
    for turn in 0..=4096 {
        if turn == 4096 || text.length() > Text::LONGEST {
            // More than what is kept: the rest is not known.
            text.push(Piece::Hole(Hole::Value));
            break;
        }
        let before = values.len();
        let mut letters = format.chars().peekable();
        let mut plain = String::new();
        while let Some(letter) = letters.next() {
            if letter == '\\' {
                plain.push('\\');
                plain.extend(letters.next());
                continue;
            }
            if letter != '%' {
                plain.push(letter);
                continue;
            }
            if letters.peek() == Some(&'%') {
                letters.next();
                plain.push('%');
                continue;
            }
            let mut width = String::new();
            while let Some(letter) = letters.next_if(|letter| "-+ #0123456789.*'".contains(*letter)) {
                width.push(letter);
            }
            let (known, hidden) = unescape(&std::mem::take(&mut plain));
            disguised |= hidden;
            text.push(Piece::Known(known));
            // Cut, or a date: what is written then is not reckoned, only that something is.
            if width.contains(['.', '*']) || letters.peek() == Some(&'(') {
                let mut ends = false;
                while !ends && let Some(letter) = letters.next() {
                    ends = letter.is_ascii_alphabetic() && (width.contains(['.', '*']) || letter == 'T');
                }
                values.next();
                text.push(Piece::Hole(Hole::Value));
                continue;
            }
            match (letters.next(), values.next()) {
                (Some('b'), Some(value)) => match value.known() {
                    Some(known) => {
                        let (known, hidden) = unescape(known);
                        disguised |= hidden;
                        text.push(Piece::Known(known));
                    }
                    None => text.append(value.text.clone()),
                },
                (Some('s' | 'd' | 'i' | 'u'), Some(value)) => text.append(value.text.clone()),
                (Some('c'), Some(value)) => match value.known() {
                    Some(known) => text.push(Piece::Known(known.chars().take(1).collect())),
                    None => text.push(Piece::Hole(Hole::Value)),
                },
                (Some(base @ ('o' | 'x' | 'X')), Some(value)) => match value.known().and_then(number) {
                    Some(number) => text.push(Piece::Known(based(number, base, &width))),
                    None => text.push(Piece::Hole(Hole::Value)),
                },
                (Some(_), Some(_)) => text.push(Piece::Hole(Hole::Value)),
                (_, None) | (None, _) => {}
            }
        }
        let (known, hidden) = unescape(&plain);
        disguised |= hidden;
        text.push(Piece::Known(known));
        if values.len() == 0 || values.len() == before {
            break;
        }
    }
    (text, disguised)
}

/// A number as `printf` takes it: plain, to another base, or the code of a letter behind a quote.
fn number(text: &str) -> Option<u32> {
    if let Some(letter) = text.strip_prefix(['\'', '"']) {
        return letter.chars().next().map(u32::from);
    }
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u32::from_str_radix(digits, 16).ok();
    }
    match text.strip_prefix('0').filter(|digits| !digits.is_empty()) {
        Some(digits) => u32::from_str_radix(digits, 8).ok(),
        None => text.parse().ok(),
    }
}

fn based(number: u32, base: char, width: &str) -> String {
    let digits = match base {
        'o' => format!("{number:o}"),
        'X' => format!("{number:X}"),
        _ => format!("{number:x}"),
    };
    let sign = if width.contains('#') && base != 'o' { "0x" } else { "" };
    let filled = width.trim_start_matches(['#', '-', '+', ' ']);
    // More than a few letters wide is no code of a letter.
    let wide = filled.parse::<usize>().unwrap_or(0).min(16);
    if filled.starts_with('0') { format!("{sign}{digits:0>wide$}") } else { format!("{sign}{digits}") }
}
