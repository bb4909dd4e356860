//! The path of a request, normalised once: the same bytes are judged and forwarded.
//!
//! A path that two servers could read in two ways has no normal form. It passes only where no rule looks at paths.

use std::fmt;

/// Why a path has no normal form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ambiguous {
    /// It does not begin with `/`.
    NotAbsolute,
    /// A `%` without two hexadecimal digits behind it.
    BrokenEscape,
    /// An escaped `/`, `\` or `%`, which some servers decode once more than others.
    EscapedSeparator,
    /// A control character, or a byte that is not ASCII.
    OddByte,
    /// A backslash, which some servers take for `/`.
    Backslash,
    /// A dot segment with parameters (`..;x`), which some servers take for `..`.
    DotWithParameters,
    /// Longer than any path that is read here.
    TooLong,
}

/// The longest path that is normalised.
const LONGEST: usize = 16 * 1024;

/// A path as it came, without its query, and its normal form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlPath {
    raw: String,
    normal: Result<String, Ambiguous>,
}

impl UrlPath {
    /// Reads a path. Anything is a path; not every one has a normal form.
    pub fn new(raw: &str) -> Self {
        let raw = if raw.is_empty() { "/" } else { raw };
        Self { raw: raw.to_owned(), normal: normalise(raw) }
    }

    /// As it came.
    pub fn raw(&self) -> &str {
        &self.raw
    }

    /// What rules are held against.
    pub fn normal(&self) -> Result<&str, Ambiguous> {
        self.normal.as_deref().map_err(|ambiguous| *ambiguous)
    }
}

/// The normal form: escapes of letters, digits and `-._~` decoded, others in capitals, `.` and `..` carried out, no empty
/// segment but at the end.
pub fn normalise(raw: &str) -> Result<String, Ambiguous> {
    if raw.len() > LONGEST {
        return Err(Ambiguous::TooLong);
    }
    let decoded = decode_unreserved(raw)?;
    let Some(rest) = decoded.strip_prefix('/') else { return Err(Ambiguous::NotAbsolute) };
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_in_folder = false;
    for segment in rest.split('/') {
        ends_in_folder = matches!(segment, "" | "." | "..");
        match segment {
            "" | "." => {}
            ".." => {
                // Above the root there is the root.
                kept.pop();
            }
            _ if is_dot_with_parameters(segment) => return Err(Ambiguous::DotWithParameters),
            _ => kept.push(segment),
        }
    }
    let mut normal = String::with_capacity(decoded.len());
    for segment in &kept {
        normal.push('/');
        normal.push_str(segment);
    }
    if ends_in_folder || normal.is_empty() {
        normal.push('/');
    }
    Ok(normal)
}

fn is_dot_with_parameters(segment: &str) -> bool {
    segment.split_once(';').is_some_and(|(front, _)| matches!(front, "" | "." | ".."))
}

fn decode_unreserved(raw: &str) -> Result<String, Ambiguous> {
    let mut decoded = String::with_capacity(raw.len());
    let mut bytes = raw.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let high = bytes.next().and_then(hex);
                let low = bytes.next().and_then(hex);
                let (Some(high), Some(low)) = (high, low) else { return Err(Ambiguous::BrokenEscape) };
                match high << 4 | low {
                    b'/' | b'\\' | b'%' => return Err(Ambiguous::EscapedSeparator),
                    value if value.is_ascii_control() => return Err(Ambiguous::OddByte),
                    value if is_unreserved(value) => decoded.push(char::from(value)),
                    // `..%3bx` is `..;x` to a server that decodes first.
                    b';' => decoded.push(';'),
                    value => {
                        decoded.push('%');
                        for digit in [value >> 4, value & 15] {
                            decoded.push(char::from_digit(u32::from(digit), 16).unwrap_or('0').to_ascii_uppercase());
                        }
                    }
                }
            }
            b'\\' => return Err(Ambiguous::Backslash),
            b'?' | b'#' => return Err(Ambiguous::OddByte),
            byte if byte.is_ascii_graphic() => decoded.push(char::from(byte)),
            _ => return Err(Ambiguous::OddByte),
        }
    }
    Ok(decoded)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

impl fmt::Display for Ambiguous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotAbsolute => "the path does not begin with `/`",
            Self::BrokenEscape => "the path has a `%` without two hexadecimal digits",
            Self::EscapedSeparator => "the path has an escaped `/`, `\\` or `%`",
            Self::OddByte => "the path has a control character or a byte that is not ASCII",
            Self::Backslash => "the path has a backslash",
            Self::DotWithParameters => "the path has a dot segment with parameters",
            Self::TooLong => "the path is too long",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(raw: &str, expected: Result<&str, Ambiguous>) {
        assert_eq!(normalise(raw).as_deref().map_err(|ambiguous| *ambiguous), expected, "{raw}");
    }

    #[test]
    fn e21_a_path_is_normalised_once_and_what_has_two_readings_has_none() {
        check("/repos/acme/x", Ok("/repos/acme/x"));
        check("/repos/acme/%2e%2e/other", Ok("/repos/other"));
        check("/repos/acme/.%2E/other", Ok("/repos/other"));
        check("/repos//acme/./x/", Ok("/repos/acme/x/"));
        check("/../../etc", Ok("/etc"));
        check("/a/..", Ok("/"));
        check("/%61%20b", Ok("/a%20b"));
        check("/a%3ab", Ok("/a%3Ab"));
        check("/a%2fb", Err(Ambiguous::EscapedSeparator));
        check("/a%5Cb", Err(Ambiguous::EscapedSeparator));
        check("/a%252e%252e/b", Err(Ambiguous::EscapedSeparator));
        check("/a\\..\\b", Err(Ambiguous::Backslash));
        check("/a/..;/b", Err(Ambiguous::DotWithParameters));
        check("/a/..%3b/b", Err(Ambiguous::DotWithParameters));
        check("/a%00", Err(Ambiguous::OddByte));
        check("/a%0d%0ab", Err(Ambiguous::OddByte));
        check("/a%", Err(Ambiguous::BrokenEscape));
        check("/a%4", Err(Ambiguous::BrokenEscape));
        check("/a%zz", Err(Ambiguous::BrokenEscape));
        check("/ä", Err(Ambiguous::OddByte));
        check("a", Err(Ambiguous::NotAbsolute));
        check("", Err(Ambiguous::NotAbsolute));
    }

    proptest! {
        #[test]
        fn a_normal_path_is_its_own_normal_form_and_goes_nowhere_up(raw in "/[a-z%2eEfF./;~\\\\0-9]{0,60}") {
            if let Ok(normal) = normalise(&raw) {
                prop_assert!(normal.starts_with('/'));
                prop_assert!(!normal.split('/').any(|segment| segment == ".." || segment == "."));
                prop_assert!(!normal.contains("//"));
                prop_assert_eq!(normalise(&normal), Ok(normal.clone()));
            }
        }

        #[test]
        fn any_text_is_normalised_or_refused(raw in "\\PC{0,200}") {
            match normalise(&raw) {
                Ok(normal) => prop_assert!(normal.is_ascii()),
                Err(ambiguous) => prop_assert!(!ambiguous.to_string().is_empty()),
            }
        }
    }
}
