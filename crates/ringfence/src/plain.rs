//! Text and names of somebody else on one line, for people and models: nothing in them acts, and nothing hides.

use std::fmt::Write;
use std::path::Path;

/// A line of a file, of which nothing may act, colours included, and nothing may hide. Only tabs stay as they are, and what
/// makes an emoji of a sign.
pub fn line(bytes: &[u8]) -> String {
    plain(bytes, |character| matches!(character, '\t' | '\u{fe0e}' | '\u{fe0f}'))
}

/// A path on one line. One that holds anything odd, or could be read in two ways, is quoted.
pub fn path(path: &Path) -> String {
    let bytes = path.as_os_str().as_encoded_bytes();
    let shown = plain(bytes, |_| false);
    let odd =
        shown.as_bytes() != bytes || shown.contains(['"', '\\']) || shown.trim() != shown || shown.contains(" -> ");
    if !odd {
        return shown;
    }
    let doubled: Vec<u8> = bytes
        .iter()
        .flat_map(|byte| if matches!(byte, b'"' | b'\\') { vec![b'\\', *byte] } else { vec![*byte] })
        .collect();
    format!("\"{}\"", plain(&doubled, |_| false))
}

fn plain(bytes: &[u8], stays: fn(char) -> bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for piece in bytes.utf8_chunks() {
        for character in piece.valid().chars() {
            let hides = crate::workspace::flag::is_invisible(character);
            let parts = matches!(character, '\u{2028}' | '\u{2029}');
            match character {
                '\n' if !stays(character) => out.push_str("\\n"),
                '\r' if !stays(character) => out.push_str("\\r"),
                _ if (hides || parts || character.is_control()) && !stays(character) => {
                    escape(&mut out, u32::from(character));
                }
                _ => out.push(character),
            }
        }
        for byte in piece.invalid() {
            escape(&mut out, u32::from(*byte));
        }
    }
    out
}

/// Writes what cannot be shown as its number.
pub fn escape(out: &mut String, code: u32) {
    // Writing to a string cannot fail.
    let written = if code < 0x100 { write!(out, "\\x{code:02x}") } else { write!(out, "\\u{{{code:x}}}") };
    debug_assert!(written.is_ok());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r12_nothing_acts_or_hides_in_lines_and_paths() {
        assert_eq!(line(b"a\tb"), "a\tb");
        assert_eq!(line(b"\x1b[31mred\r"), "\\x1b[31mred\\r");
        assert_eq!(line("a\u{202e}b\u{200b}c\u{9b}".as_bytes()), "a\\u{202e}b\\u{200b}c\\x9b");
        assert_eq!(line(b"\xff"), "\\xff");
        let path =
            |text: &[u8]| super::path(Path::new(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(text)));
        assert_eq!(path(b"src/main.rs"), "src/main.rs");
        assert_eq!(path("\u{fc}n\u{ef} code".as_bytes()), "\u{fc}n\u{ef} code");
        assert_eq!(path(b"a\nb"), "\"a\\nb\"");
        assert_eq!(path(b"a\\nb"), "\"a\\\\nb\"");
        assert_eq!(path(b"\x1b]0;x\x07\xff\t"), "\"\\x1b]0;x\\x07\\xff\\x09\"");
        assert_eq!(path(b"a -> b"), "\"a -> b\"");
        assert_eq!(path(b" a"), "\" a\"");
    }
}
