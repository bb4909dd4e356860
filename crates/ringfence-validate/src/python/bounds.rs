//! How much of a Python text is read: size and nesting, found in one go over its bytes.

use crate::code::depth::{Depth, TooDeep};
use crate::limits::Limits;

/// What the scan is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// A string with fields; its quote, and how many of them end it.
    Fields { quote: u8, quotes: usize, raw: Raw },
    /// A bracket, also that of a field.
    Bracket,
    /// A field's own bracket: after it the string goes on.
    Field,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Raw {
    Raw,
    Plain,
}

/// Whether the text is within the bounds; which one it is over otherwise.
pub(super) fn check(text: &str, limits: &Limits) -> Result<(), &'static str> {
    if text.len() > limits.code_bytes {
        return Err("code-bytes");
    }
    Scan { bytes: text.as_bytes(), at: 0, depth: Depth::new(limits), inside: Vec::new(), indents: Vec::new() }
        .run()
        .map_err(|TooDeep| "nesting")
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: Depth,
    inside: Vec<Inside>,
    indents: Vec<usize>,
}

impl Scan<'_> {
    fn run(&mut self) -> Result<(), TooDeep> {
        self.line_start()?;
        while let Some(byte) = self.bytes.get(self.at).copied() {
            if let Some(Inside::Fields { quote, quotes, raw }) = self.inside.last().copied() {
                self.string_with_fields(quote, quotes, raw)?;
                continue;
            }
            match byte {
                b'#' => self.skip_line(),
                b'\n' | b'\r' => {
                    self.at += 1;
                    if self.depth.brackets() == 0 {
                        self.depth.next();
                        self.line_start()?;
                    }
                }
                b'\\' => self.at += 2,
                b'"' | b'\'' => self.string(self.at)?,
                b'(' | b'[' | b'{' => {
                    self.depth.open()?;
                    self.inside.push(Inside::Bracket);
                    self.at += 1;
                }
                b')' | b']' | b'}' => {
                    self.depth.close();
                    self.inside.pop();
                    self.at += 1;
                }
                b',' | b';' => {
                    self.depth.next();
                    self.at += 1;
                }
                b'+' => {
                    self.depth.plus()?;
                    self.at += 1;
                }
                b'-' | b'*' | b'/' | b'%' | b'@' | b'&' | b'|' | b'^' | b'~' | b'<' | b'>' | b'=' | b'!' | b'.'
                | b':' => {
                    self.depth.link()?;
                    self.at += 1;
                }
                b'a'..=b'z' | b'A'..=b'Z' | b'_' | 0x80.. => self.word()?,
                b'0'..=b'9' => self.number(),
                _ => self.at += 1,
            }
        }
        Ok(())
    }

    fn skip_line(&mut self) {
        while self.bytes.get(self.at).is_some_and(|byte| *byte != b'\n' && *byte != b'\r') {
            self.at += 1;
        }
    }

    fn line_start(&mut self) -> Result<(), TooDeep> {
        let mut column = 0;
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b' ' => column += 1,
                b'\t' => column = (column / 8 + 1) * 8,
                _ => break,
            }
            self.at += 1;
        }
        if matches!(self.bytes.get(self.at), None | Some(b'\n' | b'#' | b'\r')) {
            return Ok(());
        }
        while self.indents.last().is_some_and(|indent| *indent > column) {
            self.indents.pop();
        }
        if column > self.indents.last().copied().unwrap_or(0) {
            self.indents.push(column);
        }
        self.depth.set_blocks(self.indents.len())
    }

    fn word(&mut self) -> Result<(), TooDeep> {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte >= 0x80)
        {
            self.at += 1;
        }
        let word = &self.bytes[start..self.at];
        if matches!(self.bytes.get(self.at), Some(b'"' | b'\''))
            && word.len() <= 2
            && word.iter().all(|byte| b"rRbBuUfFtT".contains(byte))
        {
            return self.string(start);
        }
        // Python may read a word of other letters as one of these.
        if !word.is_ascii() {
            return self.depth.link();
        }
        match word {
            b"not" | b"and" | b"or" | b"if" | b"else" | b"lambda" | b"await" | b"in" | b"is" | b"yield" | b"for"
            | b"from" | b"async" => self.depth.link(),
            _ => Ok(()),
        }
    }

    fn number(&mut self) {
        while self.bytes.get(self.at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'.')
        {
            self.at += 1;
        }
    }

    /// A string whose prefix begins at `start`; `at` is on its first quote.
    fn string(&mut self, start: usize) -> Result<(), TooDeep> {
        let prefix = &self.bytes[start..self.at];
        let Some(quote) = self.bytes.get(self.at).copied() else { return Ok(()) };
        let quotes = if self.bytes[self.at..].starts_with(&[quote; 3]) { 3 } else { 1 };
        self.at += quotes;
        if prefix.iter().any(|byte| b"fFtT".contains(byte)) {
            let raw = if prefix.iter().any(|byte| b"rR".contains(byte)) { Raw::Raw } else { Raw::Plain };
            self.depth.open()?;
            self.inside.push(Inside::Fields { quote, quotes, raw });
            return Ok(());
        }
        while let Some(byte) = self.bytes.get(self.at).copied() {
            match byte {
                b'\\' => self.at += 2,
                b'\n' | b'\r' if quotes == 1 => break,
                byte if byte == quote && self.ends(quote, quotes) => {
                    self.at += quotes;
                    break;
                }
                _ => self.at += 1,
            }
        }
        Ok(())
    }

    fn ends(&self, quote: u8, quotes: usize) -> bool {
        self.bytes[self.at..].iter().take(quotes).filter(|byte| **byte == quote).count() == quotes
    }

    fn string_with_fields(&mut self, quote: u8, quotes: usize, raw: Raw) -> Result<(), TooDeep> {
        let Some(byte) = self.bytes.get(self.at).copied() else { return Ok(()) };
        match byte {
            b'\\' if raw == Raw::Plain => self.at += 2,
            b'{' if self.bytes.get(self.at + 1) == Some(&b'{') => self.at += 2,
            b'{' => {
                self.depth.open()?;
                self.inside.push(Inside::Field);
                self.at += 1;
            }
            b'\n' | b'\r' if quotes == 1 => {
                self.depth.close();
                self.inside.pop();
            }
            byte if byte == quote && self.ends(quote, quotes) => {
                self.depth.close();
                self.inside.pop();
                self.at += quotes;
            }
            _ => self.at += 1,
        }
        Ok(())
    }
}

/// Whether a text that is not Python 3 would be Python 2.
pub(super) fn looks_like_python_2(text: &str) -> bool {
    text.lines().map(str::trim_start).take(10_000).any(|line| {
        let says = |word: &str| {
            line.strip_prefix(word)
                .is_some_and(|rest| rest.starts_with([' ', '"', '\'']) && !rest.trim_start().starts_with(['(', '=']))
        };
        says("print")
            || says("exec")
            || (line.starts_with("except ") && line.contains(", ") && !line.contains('('))
            || line.starts_with("raise ") && line.contains(", ")
    })
}
