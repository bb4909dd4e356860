//! A word as written, taken apart: quotes, escapes, expansions. Nothing is looked up here.

use super::scan::{self, From};

/// A part of a word. Places are bytes within the word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    /// Without quotes: patterns, braces and tildes mean something.
    Plain(String),
    /// After a backslash.
    Escaped(char),
    /// In single quotes.
    Single(String),
    /// In `$'…'`, with its escapes taken; and whether there were any for plain letters.
    Ansi { text: String, disguised: bool },
    /// In double quotes.
    Double(Vec<Part>),
    /// `$name` or `${…}`, without the sign and the braces.
    Parameter { body: String, at: usize },
    /// `$(…)` or backquotes. The place is missing where escapes were taken out.
    Command { text: String, at: Option<usize> },
    /// `<(…)` or `>(…)`.
    Process { text: String, at: usize, writes: bool },
    /// `$((…))` or `$[…]`.
    Arithmetic { text: String },
}

/// Whether quotes mean something: not in here-documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    /// A word of the shell.
    Mean,
    /// The inside of double quotes, or of a here-document.
    Plain,
}

/// Takes `raw` apart; nothing if it is not a word.
pub(super) fn parts(raw: &str, quotes: Quotes) -> Option<Vec<Part>> {
    Taking { raw, bytes: raw.as_bytes(), at: 0 }.take(quotes, None)
}

/// `raw` with its continued lines joined, except where quotes or substitutions keep them: those are read on their own.
pub(super) fn joined(raw: &str) -> String {
    if !raw.contains("\\\n") {
        return raw.to_owned();
    }
    let bytes = raw.as_bytes();
    let mut text = String::with_capacity(raw.len());
    let mut at = 0;
    let mut double = false;
    while let Some(letter) = raw.get(at..).and_then(|rest| rest.chars().next()) {
        let next = bytes.get(at + 1).copied();
        let end = match (letter, next) {
            ('\\', Some(b'\n')) => {
                at += 2;
                continue;
            }
            ('\\', Some(_)) => {
                raw.get(at + 1..).and_then(|rest| rest.chars().next()).map(|next| at + 1 + next.len_utf8())
            }
            ('\'', _) if !double => raw.get(at + 1..).and_then(|rest| rest.find('\'')).map(|length| at + length + 2),
            ('"', _) => {
                double = !double;
                Some(at + 1)
            }
            // What is more than quotes is left as it is, to its end.
            ('$', Some(b'(' | b'{' | b'\'' | b'[')) | ('`', _) => Some(raw.len()),
            ('<' | '>', Some(b'(')) if !double => Some(raw.len()),
            _ => Some(at + letter.len_utf8()),
        };
        let end = end.unwrap_or(raw.len());
        text.push_str(raw.get(at..end).unwrap_or_default());
        at = end;
    }
    text
}

struct Taking<'a> {
    raw: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl Taking<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    /// Up to `stop`, or to the end.
    fn take(&mut self, quotes: Quotes, stop: Option<u8>) -> Option<Vec<Part>> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        loop {
            let Some(byte) = self.peek(0) else {
                if stop.is_some() {
                    return None;
                }
                break;
            };
            if Some(byte) == stop {
                self.at += 1;
                break;
            }
            let before = self.at;
            let found = match byte {
                b'\\' if quotes == Quotes::Mean => self.escape(),
                b'\\' => {
                    match self.peek(1) {
                        Some(next @ (b'$' | b'`' | b'\\')) => {
                            plain.push(char::from(next));
                            self.at += 2;
                        }
                        Some(b'"') if stop.is_some() => {
                            plain.push('"');
                            self.at += 2;
                        }
                        Some(b'\n') => self.at += 2,
                        _ => {
                            plain.push('\\');
                            self.at += 1;
                        }
                    }
                    continue;
                }
                b'\'' if quotes == Quotes::Mean => {
                    let start = self.at + 1;
                    let length = self.raw.get(start..)?.find('\'')?;
                    self.at = start + length + 1;
                    Some(Part::Single(self.raw.get(start..start + length)?.to_owned()))
                }
                b'"' if quotes == Quotes::Mean => {
                    self.at += 1;
                    Some(Part::Double(self.take(Quotes::Plain, Some(b'"'))?))
                }
                b'`' => Some(self.backquotes(stop.is_some())?),
                b'$' => self.dollar(quotes)?,
                b'<' | b'>' if quotes == Quotes::Mean && self.peek(1) == Some(b'(') => {
                    let start = self.at + 2;
                    let end = scan::scan(self.raw, start, From::Command).ok()?.end;
                    self.at = end;
                    let text = self.raw.get(start..end.checked_sub(1)?)?.to_owned();
                    Some(Part::Process { text, at: start, writes: byte == b'>' })
                }
                _ => None,
            };
            match found {
                Some(part) => {
                    if !plain.is_empty() {
                        parts.push(Part::Plain(std::mem::take(&mut plain)));
                    }
                    parts.push(part);
                }
                // A continued line leaves nothing behind.
                None if self.at > before => {}
                None => {
                    let letter = self.raw.get(self.at..)?.chars().next()?;
                    plain.push(letter);
                    self.at += letter.len_utf8();
                }
            }
        }
        if !plain.is_empty() {
            parts.push(Part::Plain(plain));
        }
        Some(parts)
    }

    fn escape(&mut self) -> Option<Part> {
        let letter = self.raw.get(self.at + 1..).and_then(|rest| rest.chars().next());
        match letter {
            Some('\n') => {
                self.at += 2;
                None
            }
            Some(letter) => {
                self.at += 1 + letter.len_utf8();
                Some(Part::Escaped(letter))
            }
            None => None,
        }
    }

    fn backquotes(&mut self, in_double_quotes: bool) -> Option<Part> {
        let start = self.at + 1;
        let mut text = String::new();
        let mut changed = false;
        let mut letters = self.raw.get(start..)?.char_indices().peekable();
        while let Some((offset, letter)) = letters.next() {
            match letter {
                '`' => {
                    self.at = start + offset + 1;
                    return Some(Part::Command { text, at: (!changed).then_some(start) });
                }
                '\\' => match letters.peek() {
                    Some(&(_, next)) if "`$\\".contains(next) || next == '"' && in_double_quotes => {
                        changed = true;
                        text.push(next);
                        letters.next();
                    }
                    _ => text.push('\\'),
                },
                _ => text.push(letter),
            }
        }
        None
    }

    /// What starts with a dollar sign: `None` within for a plain sign.
    #[expect(clippy::option_option, reason = "broken, or plain, or a part")]
    fn dollar(&mut self, quotes: Quotes) -> Option<Option<Part>> {
        let next = self.peek(1);
        Some(match next {
            Some(b'\'') if quotes == Quotes::Mean => Some(self.ansi()?),
            Some(b'"') if quotes == Quotes::Mean => {
                self.at += 2;
                Some(Part::Double(self.take(Quotes::Plain, Some(b'"'))?))
            }
            Some(b'(') if self.peek(2) == Some(b'(') => {
                let start = self.at + 3;
                match scan::scan(self.raw, start, From::Arithmetic) {
                    Ok(found) if self.bytes.get(found.end) == Some(&b')') => {
                        self.at = found.end + 1;
                        Some(Part::Arithmetic { text: self.raw.get(start..found.end.checked_sub(1)?)?.to_owned() })
                    }
                    // `$((a); b)` is a substitution that starts with a subshell.
                    _ => Some(self.command()?),
                }
            }
            Some(b'(') => Some(self.command()?),
            Some(b'[') => {
                let start = self.at + 2;
                let mut depth = 1_usize;
                let mut end = start;
                while depth > 0 {
                    match self.bytes.get(end)? {
                        b'[' => depth += 1,
                        b']' => depth -= 1,
                        _ => {}
                    }
                    end += 1;
                }
                self.at = end;
                Some(Part::Arithmetic { text: self.raw.get(start..end - 1)?.to_owned() })
            }
            Some(b'{') => {
                let start = self.at + 2;
                let from = if quotes == Quotes::Mean { From::Parameter } else { From::QuotedParameter };
                let end = scan::scan(self.raw, start, from).ok()?.end;
                self.at = end;
                Some(Part::Parameter { body: self.raw.get(start..end.checked_sub(1)?)?.to_owned(), at: start })
            }
            Some(byte) if byte.is_ascii_alphabetic() || byte == b'_' => {
                let start = self.at + 1;
                let mut end = start;
                while self.bytes.get(end).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
                    end += 1;
                }
                self.at = end;
                Some(Part::Parameter { body: self.raw.get(start..end)?.to_owned(), at: start })
            }
            Some(byte) if byte.is_ascii_digit() || b"@*#?$!-".contains(&byte) => {
                let start = self.at + 1;
                self.at += 2;
                Some(Part::Parameter { body: char::from(byte).to_string(), at: start })
            }
            _ => None,
        })
    }

    fn command(&mut self) -> Option<Part> {
        let start = self.at + 2;
        let end = scan::scan(self.raw, start, From::Command).ok()?.end;
        self.at = end;
        Some(Part::Command { text: self.raw.get(start..end.checked_sub(1)?)?.to_owned(), at: Some(start) })
    }

    fn ansi(&mut self) -> Option<Part> {
        let start = self.at + 2;
        let mut end = start;
        loop {
            match self.bytes.get(end)? {
                b'\\' => end += 2,
                b'\'' => break,
                _ => end += 1,
            }
        }
        let (text, disguised) = unescape(self.raw.get(start..end)?);
        self.at = end + 1;
        Some(Part::Ansi { text, disguised })
    }
}

/// Takes the escapes of `$'…'`, `printf` and `echo -e`; and whether a plain letter was behind one.
pub(crate) fn unescape(text: &str) -> (String, bool) {
    let mut bytes = Vec::with_capacity(text.len());
    let mut disguised = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let Some(escape) = letters.next() else {
            bytes.push(b'\\');
            break;
        };
        let mut number = |radix: u32, most: usize, first: Option<char>| {
            let mut value = first.and_then(|first| first.to_digit(radix));
            let mut taken = usize::from(first.is_some());
            while taken < most {
                let Some(digit) = letters.peek().and_then(|letter| letter.to_digit(radix)) else { break };
                value = Some(value.unwrap_or(0).saturating_mul(radix).saturating_add(digit));
                letters.next();
                taken += 1;
            }
            value
        };
        let coded = match escape {
            'x' => number(16, 2, None),
            'u' => number(16, 4, None),
            'U' => number(16, 8, None),
            '0'..='7' => number(8, if escape == '0' { 4 } else { 3 }, Some(escape)),
            _ => None,
        };
        if let Some(code) = coded {
            disguised |= (0x21..0x7f).contains(&code);
            match (u8::try_from(code), char::from_u32(code)) {
                (Ok(byte), _) if escape != 'u' && escape != 'U' => bytes.push(byte),
                (_, Some(letter)) => bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes()),
                (_, None) => bytes.push(b'?'),
            }
            continue;
        }
        match escape {
            'a' => bytes.push(7),
            'b' => bytes.push(8),
            'e' | 'E' => bytes.push(27),
            'f' => bytes.push(12),
            'n' => bytes.push(b'\n'),
            'r' => bytes.push(b'\r'),
            't' => bytes.push(b'\t'),
            'v' => bytes.push(11),
            '\\' | '\'' | '"' | '?' => bytes.push(u8::try_from(escape).unwrap_or(b'?')),
            'c' => {
                if let Some(letter) = letters.next() {
                    bytes.push(u8::try_from(u32::from(letter) & 0x1f).unwrap_or(0));
                }
            }
            other => {
                bytes.push(b'\\');
                bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
            }
        }
    }
    (String::from_utf8_lossy(&bytes).into_owned(), disguised)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(raw: &str, expected: &[Part]) {
        assert_eq!(parts(raw, Quotes::Mean).as_deref(), Some(expected), "{raw}");
    }

    #[test]
    fn a_word_is_taken_apart_where_its_quotes_change() {
        check("c''at", &[Part::Plain("c".into()), Part::Single(String::new()), Part::Plain("at".into())]);
        check(r"$'\x63at'", &[Part::Ansi { text: "cat".into(), disguised: true }]);
        check(r"\c\a", &[Part::Escaped('c'), Part::Escaped('a')]);
        check("a\\\nb", &[Part::Plain("ab".into())]);
        check("$(ls)", &[Part::Command { text: "ls".into(), at: Some(2) }]);
        check("`ls`", &[Part::Command { text: "ls".into(), at: Some(1) }]);
        check("`a \\`b\\``", &[Part::Command { text: "a `b`".into(), at: None }]);
        check("${x:-$(y)}", &[Part::Parameter { body: "x:-$(y)".into(), at: 2 }]);
        check("<(ls)", &[Part::Process { text: "ls".into(), at: 2, writes: false }]);
        check("$((1+2))", &[Part::Arithmetic { text: "1+2".into() }]);
        check("5$", &[Part::Plain("5$".into())]);
        check(
            "\"a\\\"$x\"",
            &[Part::Double(vec![Part::Plain("a\"".into()), Part::Parameter { body: "x".into(), at: 5 }])],
        );
    }

    #[test]
    fn what_is_not_closed_is_not_a_word() {
        for raw in ["'a", "\"a", "$(a", "${a", "`a", "$'a", "$[1", "<(a"] {
            assert_eq!(parts(raw, Quotes::Mean), None, "{raw}");
        }
    }
}
