//! How much of a JavaScript text is read: size and nesting, found in one go over its bytes.
//!
//! The parser goes down as deep as the text nests, so the scan may never count less than the parser will see. Where it cannot tell
//! (a slash after `}`, the text between elements) it counts as if everything were code and nothing were closed.

use super::guesses::Guesses;
use crate::code::depth::{Depth, TooDeep};
use crate::limits::Limits;

/// Whether elements (`<a>…</a>`) are expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Elements {
    None,
    Some,
}

/// What was last, for what a slash or a new line means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Something that an expression or a statement goes on after: an operator, an open bracket, `if (…)`.
    Open,
    /// A value: a name, a number, `)`, `]`.
    Value,
    /// `}`: the end of a block, or of an object.
    Brace,
}

/// Whether a statement may have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ended {
    No,
    /// By a new line, unless one side of it goes on.
    Line,
    /// By `;`, unless `else` follows.
    Statement,
}

/// What is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// A round bracket after `if`, `while`, `for` or `with`.
    Head,
    Bracket,
    /// `${` of a template.
    Template,
    /// An element: before its `>`, and after.
    Tag,
    Content,
}

/// Whether a text may be read as one with types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Types {
    May,
    /// The parser would have to guess too often.
    TooManyGuesses,
}

/// Whether the text is within the bounds; which one it is over otherwise.
pub(super) fn check(text: &str, limits: &Limits, elements: Elements) -> Result<Types, &'static str> {
    if text.len() > limits.code_bytes {
        return Err("code-bytes");
    }
    let mut scan = Scan {
        text,
        bytes: text.as_bytes(),
        at: 0,
        depth: Depth::new(limits),
        guesses: Guesses::new(),
        inside: Vec::new(),
        last: Last::Open,
        ended: Ended::No,
        head: false,
        hidden: 0,
        nesting: limits.nesting,
        elements,
    };
    scan.run().map_err(|TooDeep| "nesting")?;
    Ok(if scan.guesses.are_few() { Types::May } else { Types::TooManyGuesses })
}

struct Scan<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    depth: Depth,
    guesses: Guesses,
    inside: Vec<Inside>,
    last: Last,
    ended: Ended,
    /// Whether the last word was one that a head in brackets follows.
    head: bool,
    /// Brackets in what may or may not be a regular expression.
    hidden: usize,
    nesting: usize,
    elements: Elements,
}

impl Scan<'_> {
    fn run(&mut self) -> Result<(), TooDeep> {
        if self.bytes.starts_with(b"#!") {
            self.skip_line();
        }
        while let Some(byte) = self.peek(0) {
            let before = self.at;
            self.one(byte)?;
            self.guesses.read(self.at - before);
        }
        Ok(())
    }

    fn one(&mut self, byte: u8) -> Result<(), TooDeep> {
        if self.inside.last() == Some(&Inside::Content) {
            return self.content(byte);
        }
        let comment = byte == b'/' && matches!(self.peek(1), Some(b'/' | b'*'));
        if !byte.is_ascii_whitespace() && !comment {
            self.after_end()?;
            self.guesses.token(byte);
        }
        match byte {
            b' ' | b'\t' => self.at += 1,
            b'\n' | b'\r' => {
                self.at += 1;
                if self.ended == Ended::No {
                    self.ended = Ended::Line;
                }
            }
            b'\'' | b'"' => self.string(byte),
            b'`' => self.template()?,
            b'/' if self.peek(1) == Some(b'/') => self.skip_line(),
            b'/' if self.peek(1) == Some(b'*') => self.comment(),
            b'/' if self.inside.last() == Some(&Inside::Tag) && self.peek(1) == Some(b'>') => {
                self.leave();
                self.at += 2;
            }
            b'/' => self.slash()?,
            b'(' | b'[' | b'{' => {
                let head = std::mem::take(&mut self.head) && byte == b'(';
                self.enter(if head { Inside::Head } else { Inside::Bracket })?;
                self.at += 1;
            }
            b')' | b']' | b'}' => self.close(byte)?,
            b'>' if self.inside.last() == Some(&Inside::Tag) && self.last != Last::Open => {
                if let Some(inside) = self.inside.last_mut() {
                    *inside = Inside::Content;
                }
                self.at += 1;
            }
            b'<' if self.bytes[self.at..].starts_with(b"<!--") => return Err(TooDeep),
            b'<' if self.is_element() => {
                self.enter(Inside::Tag)?;
                self.last = Last::Value;
                self.at += 1;
            }
            b';' => {
                self.at += 1;
                self.last = Last::Open;
                self.ended = Ended::Statement;
            }
            b'<' => {
                self.depth.angle()?;
                self.guesses.guess();
                self.last = Last::Open;
                self.at += 1;
            }
            b'>' if self.at > 0 && self.bytes[self.at - 1] != b'=' => {
                self.depth.angle_end();
                self.guesses.known();
                self.depth.link()?;
                self.last = Last::Open;
                self.at += 1;
            }
            b',' => {
                self.depth.item();
                self.last = Last::Open;
                self.at += 1;
            }
            b'+' => {
                self.depth.plus()?;
                self.last = Last::Open;
                self.at += 1;
            }
            0x80.. if self.space().is_some() => self.at += self.space().unwrap_or(1),
            b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$' | b'#' | b'\\' | 0x80.. => self.word()?,
            b'0'..=b'9' => self.number(),
            // A tag's `=` is followed by a value, and its `>` may come right after.
            b'=' if self.inside.last() == Some(&Inside::Tag) => {
                self.depth.link()?;
                self.at += 1;
            }
            b'&' | b'|' if self.peek(1) == Some(byte) => {
                self.depth.link()?;
                self.guesses.no_type();
                self.last = Last::Open;
                self.at += 2;
            }
            _ => {
                self.depth.link()?;
                self.last = Last::Open;
                self.at += 1;
            }
        }
        Ok(())
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn enter(&mut self, inside: Inside) -> Result<(), TooDeep> {
        self.depth.open()?;
        self.guesses.open(self.bytes.get(self.at).copied().unwrap_or(b'{'), self.last == Last::Value);
        self.inside.push(inside);
        self.last = Last::Open;
        self.head = false;
        Ok(())
    }

    fn leave(&mut self) {
        self.inside.pop();
        self.depth.close();
        self.guesses.close();
        self.last = Last::Value;
    }

    fn close(&mut self, byte: u8) -> Result<(), TooDeep> {
        self.at += 1;
        match self.inside.last() {
            Some(Inside::Template) if byte == b'}' => {
                self.leave();
                self.template_rest()
            }
            Some(Inside::Head) => {
                self.leave();
                self.last = Last::Open;
                Ok(())
            }
            // A tag that something around it closes was none.
            Some(Inside::Tag | Inside::Content) => Err(TooDeep),
            _ => {
                self.leave();
                if byte == b'}' {
                    self.last = Last::Brace;
                }
                Ok(())
            }
        }
    }

    fn skip_line(&mut self) {
        while self.peek(0).is_some_and(|byte| byte != b'\n' && byte != b'\r') {
            // Two more characters end a line: U+2028 and U+2029.
            if self.bytes[self.at..].starts_with(&[0xe2, 0x80, 0xa8])
                || self.bytes[self.at..].starts_with(&[0xe2, 0x80, 0xa9])
            {
                self.at += 3;
                return;
            }
            self.at += 1;
        }
    }

    fn comment(&mut self) {
        self.at += 2;
        while self.at < self.bytes.len() && !self.bytes[self.at..].starts_with(b"*/") {
            self.at += 1;
        }
        self.at += 2;
    }

    /// Looks at what comes after a `;` or a new line: whether it is a new statement, and counts anew if so.
    fn after_end(&mut self) -> Result<(), TooDeep> {
        let rest = &self.bytes[self.at..];
        let begins = |words: &[&[u8]]| words.iter().any(|word| rest.starts_with(word));
        // What follows `else` hangs on what is before.
        let goes_on = match std::mem::replace(&mut self.ended, Ended::No) {
            Ended::No => return Ok(()),
            Ended::Statement => begins(&[b"else"]),
            Ended::Line => {
                if rest.starts_with(b"-->") {
                    return Err(TooDeep);
                }
                let operator = b".?*/%+-<>=!&|^~([,:`".contains(&rest.first().copied().unwrap_or(b'.'));
                self.last == Last::Open
                    || operator
                    || begins(&[b"else", b"instanceof", b"in", b"of", b"as", b"satisfies", b"extends", b"while"])
            }
        };
        if !goes_on {
            self.depth.next();
            self.guesses.no_type();
        }
        Ok(())
    }

    fn string(&mut self, quote: u8) {
        let start = self.at;
        self.at += 1;
        self.last = Last::Value;
        self.head = false;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' => self.at += 2,
                byte if byte == quote => {
                    self.at += 1;
                    return;
                }
                b'\n' | b'\r' => break,
                _ => self.at += 1,
            }
        }
        // It has no end: what follows the quote is counted as code.
        self.at = start + 1;
    }

    fn template(&mut self) -> Result<(), TooDeep> {
        self.at += 1;
        // A template right after a value is a call.
        if self.last != Last::Open {
            self.depth.link()?;
        }
        self.template_rest()
    }

    fn template_rest(&mut self) -> Result<(), TooDeep> {
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\\' => self.at += 2,
                b'`' => {
                    self.at += 1;
                    break;
                }
                b'$' if self.peek(1) == Some(b'{') => {
                    self.at += 2;
                    return self.enter(Inside::Template);
                }
                _ => self.at += 1,
            }
        }
        self.last = Last::Value;
        Ok(())
    }

    /// A division, or a regular expression.
    fn slash(&mut self) -> Result<(), TooDeep> {
        if self.last == Last::Value {
            self.depth.link()?;
            self.last = Last::Open;
            self.at += 1;
            return Ok(());
        }
        let (mut at, mut class, mut opened) = (self.at + 1, false, 0_usize);
        loop {
            match self.bytes.get(at) {
                None | Some(b'\n' | b'\r') => {
                    // No end on this line: a division.
                    self.depth.link()?;
                    self.last = Last::Open;
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => at += 1,
                Some(b'[') => class = true,
                Some(b']') => class = false,
                Some(b'/') if !class => break,
                Some(b'(' | b'{' | b'\'' | b'"' | b'`') => opened += 1,
                Some(_) => {}
            }
            at += 1;
        }
        if self.last == Last::Brace {
            self.hidden += opened;
            if self.hidden > self.nesting {
                return Err(TooDeep);
            }
        }
        self.at = at + 1;
        self.last = Last::Value;
        Ok(())
    }

    fn number(&mut self) {
        while self.peek(0).is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.') {
            self.at += 1;
        }
        self.last = Last::Value;
        self.head = false;
    }

    fn word(&mut self) -> Result<(), TooDeep> {
        let start = self.at;
        while let Some(byte) = self.peek(0) {
            let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'#' | b'\\');
            if !plain && (byte < 0x80 || self.space().is_some()) {
                break;
            }
            self.at += 1;
        }
        let member = start > 0 && self.bytes[start - 1] == b'.';
        self.last = Last::Value;
        self.head = false;
        match &self.bytes[start..self.at] {
            _ if member => Ok(()),
            b"if" | b"while" | b"for" | b"with" => {
                self.head = true;
                self.last = Last::Open;
                self.depth.link()
            }
            b"infer" => {
                self.last = Last::Open;
                self.guesses.guess();
                self.depth.link()
            }
            b"typeof" | b"void" | b"delete" | b"new" | b"await" | b"yield" | b"in" | b"of" | b"instanceof"
            | b"else" | b"do" | b"extends" | b"keyof" | b"readonly" | b"unique" | b"async" | b"class" | b"function"
            | b"return" | b"throw" | b"case" | b"default" | b"as" | b"satisfies" | b"is" | b"asserts" | b"export"
            | b"declare" | b"abstract" => {
                self.last = Last::Open;
                self.depth.link()
            }
            _ => Ok(()),
        }
    }

    /// The length of a space that is none of the plain ones, if one stands here.
    fn space(&self) -> Option<usize> {
        let letter = self.text.get(self.at..)?.chars().next()?;
        (!letter.is_ascii() && (letter.is_whitespace() || letter == '\u{feff}')).then(|| letter.len_utf8())
    }

    fn is_element(&self) -> bool {
        self.elements == Elements::Some
            && self.last != Last::Value
            && self.peek(1).is_some_and(|byte| byte.is_ascii_alphabetic() || matches!(byte, b'_' | b'$' | b'>'))
    }

    /// The text between elements: nothing in it closes anything, because it may be code after all.
    fn content(&mut self, byte: u8) -> Result<(), TooDeep> {
        match byte {
            b'{' => {
                self.enter(Inside::Bracket)?;
                self.at += 1;
            }
            b'<' if self.peek(1) == Some(b'/') => {
                while self.peek(0).is_some_and(|byte| byte != b'>') {
                    self.at += 1;
                }
                self.at += 1;
                self.leave();
                self.depth.unlink();
            }
            b'<' => {
                self.enter(Inside::Tag)?;
                self.last = Last::Value;
                self.at += 1;
            }
            b'}' => return Err(TooDeep),
            b'(' | b'[' | b'!' | b'~' | b'-' | b'?' | b':' | b'=' | b'*' | b'&' | b'|' | b'^' | b'%' | b'/' => {
                self.depth.link()?;
                self.at += 1;
            }
            b'+' | b'.' => {
                self.depth.plus()?;
                self.at += 1;
            }
            b'a'..=b'z' => {
                // Words that an expression follows count here too.
                let last = self.last;
                self.word()?;
                self.last = last;
            }
            _ => self.at += 1,
        }
        Ok(())
    }
}
