//! Makes untrusted text harmless on a terminal: colours stay, everything else that would act or hide is shown, not sent.

use ringfence::plain::escape;
pub(crate) use ringfence::plain::{line as plain_line, path as plain_path};

/// A character sequence that is longer than this is not a colour.
const MOST_COLOUR: usize = 32;
/// Text that is hidden.
const CONCEAL: u8 = 8;
/// Everything as it was before any colour.
pub(crate) const RESET: &str = "\x1b[0m";

/// Rewrites a stream of bytes piece by piece; a sequence may be cut anywhere.
#[derive(Debug, Default)]
pub(crate) struct Harmless {
    pending: Vec<u8>,
    /// Whether a colour was passed on, which would hold for what others write afterwards.
    coloured: bool,
}

impl Harmless {
    /// The harmless form of `bytes`, with what the last piece left open.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut out = String::new();
        let mut rest = std::mem::take(&mut self.pending);
        let used = rewrite(&rest, &mut out, End::Open);
        rest.drain(..used);
        self.pending = rest;
        self.coloured |= out.contains('\x1b');
        out
    }

    /// What is still open at the end. Colours end with it: what we say afterwards could not be read in black on black.
    pub(crate) fn finish(&mut self) -> String {
        let mut out = String::new();
        let rest = std::mem::take(&mut self.pending);
        rewrite(&rest, &mut out, End::Final);
        if std::mem::take(&mut self.coloured) {
            out.push_str(RESET);
        }
        out
    }
}

/// The harmless form of a whole text.
pub(crate) fn harmless(text: &str) -> String {
    let mut out = String::new();
    rewrite(text.as_bytes(), &mut out, End::Final);
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// More may follow.
    Open,
    Final,
}

/// Rewrites as much of `bytes` as is complete; returns how much that was.
fn rewrite(bytes: &[u8], out: &mut String, end: End) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        if rest[0] == 0x1b {
            match colour(rest) {
                Colour::Whole(length) => {
                    out.push_str(&String::from_utf8_lossy(&rest[..length]));
                    at += length;
                    continue;
                }
                Colour::Cut if end == End::Open => return at,
                Colour::Cut | Colour::No => {}
            }
        }
        let (character, length) = match next_character(rest) {
            Next::Character(character, length) => (character, length),
            Next::Cut if end == End::Open => return at,
            Next::Cut | Next::Invalid => {
                escape(out, u32::from(rest[0]));
                at += 1;
                continue;
            }
        };
        if acts(character) {
            escape(out, u32::from(character));
        } else {
            out.push(character);
        }
        at += length;
    }
    at
}

/// Whether a terminal would do something other than show it.
fn acts(character: char) -> bool {
    match character {
        '\n' | '\t' => false,
        // A carriage return can hide what stands before it, but progress bars live on it; it cannot leave its line.
        '\r' => false,
        '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        character => character.is_control(),
    }
}

enum Colour {
    Whole(usize),
    Cut,
    No,
}

/// `ESC [ digits ; … m`, unless it hides.
fn colour(bytes: &[u8]) -> Colour {
    match bytes.get(1) {
        None => return Colour::Cut,
        Some(b'[') => {}
        Some(_) => return Colour::No,
    }
    for (index, byte) in bytes.iter().enumerate().skip(2).take(MOST_COLOUR) {
        match byte {
            b'0'..=b'9' | b';' => {}
            b'm' if only_colours(bytes.get(2..index).unwrap_or_default()) => return Colour::Whole(index + 1),
            _ => return Colour::No,
        }
    }
    if bytes.len() < 2 + MOST_COLOUR { Colour::Cut } else { Colour::No }
}

/// Whether nothing in `parameters` hides what follows. A number beyond a byte is nobody's colour, and could be read as another.
fn only_colours(parameters: &[u8]) -> bool {
    let number = |digits: &[u8]| match digits {
        b"" => Some(0),
        digits => std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u8>().ok()),
    };
    let mut numbers = parameters.split(|byte| *byte == b';').map(number);
    while let Some(number) = numbers.next() {
        let skipped = match number {
            None | Some(CONCEAL) => return false,
            // A colour by its number, or by its three parts.
            Some(38 | 48 | 58) => match numbers.next() {
                Some(Some(5)) => 1,
                Some(Some(2)) => 3,
                _ => return false,
            },
            Some(_) => 0,
        };
        for _ in 0..skipped {
            if !matches!(numbers.next(), Some(Some(_))) {
                return false;
            }
        }
    }
    true
}

enum Next {
    Character(char, usize),
    /// The beginning of a character.
    Cut,
    Invalid,
}

fn next_character(bytes: &[u8]) -> Next {
    let window = &bytes[..bytes.len().min(4)];
    let valid = match std::str::from_utf8(window) {
        Ok(text) => text,
        Err(error) if error.valid_up_to() > 0 => {
            std::str::from_utf8(&window[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(error) => return if error.error_len().is_none() { Next::Cut } else { Next::Invalid },
    };
    match valid.chars().next() {
        Some(character) => Next::Character(character, character.len_utf8()),
        None => Next::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(harmless(text), expected);
    }

    #[test]
    fn r12_escapes_and_direction_controls_are_shown_and_colours_stay() {
        check("plain\ttext\n", "plain\ttext\n");
        check("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m");
        check("\x1b]52;c;aGk=\x07", "\\x1b]52;c;aGk=\\x07");
        check("\x1b[2J\x1b[H", "\\x1b[2J\\x1b[H");
        check("a\u{202e}b", "a\\u{202e}b");
        check("\u{9b}31m", "\\x9b31m");
        check("日本 ünï", "日本 ünï");
    }

    #[test]
    fn r12_what_hides_text_is_shown_and_colours_with_the_same_number_stay() {
        for hides in
            ["8", "08", "0;8", "31;8;1", "38;5;1;8", "38;2;1;2;3;8", "264", "4294967304", "38;8", "38;5", "38;2;8"]
        {
            check(&format!("\x1b[{hides}mx"), &format!("\\x1b[{hides}mx"));
        }
        for colour in ["", "0", "1;31", "38;5;8", "48;5;8;1", "38;2;8;8;8", "58;5;8", "97;40", ";1", "28"] {
            check(&format!("\x1b[{colour}mx"), &format!("\x1b[{colour}mx"));
        }
    }

    #[test]
    fn r12_colours_end_with_the_stream_and_without_any_nothing_is_added() {
        let mut stream = Harmless::default();
        assert_eq!(stream.push(b"\x1b[30;40mx") + &stream.finish(), "\x1b[30;40mx\x1b[0m");
        let mut stream = Harmless::default();
        assert_eq!(stream.push(b"x") + &stream.finish(), "x");
    }

    #[test]
    fn r12_a_sequence_that_is_cut_in_two_is_judged_as_a_whole() {
        let mut stream = Harmless::default();
        let text = format!("{}{}{}", stream.push(b"\x1b"), stream.push(b"]0;title"), stream.finish());
        assert_eq!(text, "\\x1b]0;title");
        let mut stream = Harmless::default();
        assert_eq!(stream.push(b"\x1b[3") + &stream.push(b"1mx"), "\x1b[31mx");
        let mut stream = Harmless::default();
        assert_eq!(stream.push(&[0xe6, 0x97]) + &stream.push(&[0xa5]), "日");
        let mut stream = Harmless::default();
        assert_eq!(stream.push(&[0xff, 0xe6]) + &stream.finish(), "\\xff\\xe6");
    }

    proptest! {
        #[test]
        fn nothing_that_acts_is_left_however_it_is_cut(
            pieces in proptest::collection::vec(proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(0x1b), Just(b'['), Just(b']'), Just(b'm'), Just(b'1')], 0..12), 0..8)
        ) {
            let mut stream = Harmless::default();
            let mut out = String::new();
            for piece in &pieces {
                out.push_str(&stream.push(piece));
            }
            out.push_str(&stream.finish());
            let without_colours = {
                let mut text = String::new();
                let mut rest = out.as_str();
                while let Some(at) = rest.find('\x1b') {
                    text.push_str(&rest[..at]);
                    match colour(&rest.as_bytes()[at..]) {
                        Colour::Whole(length) => rest = &rest[at + length..],
                        _ => panic!("an escape is left: {out:?}"),
                    }
                }
                text + rest
            };
            prop_assert!(!without_colours.chars().any(acts));
        }
    }
}
