//! The head of the first request on a connection, read strictly. Pure.
//!
//! It tells `CONNECT` from the rest. What is refused here could be read in two ways; nothing is repaired.

use std::fmt;

/// A whole head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// The method, as sent.
    pub method: String,
    /// What stands between method and version.
    pub target: String,
    /// The value of `Host`, where there is one.
    pub host: Option<String>,
    /// How many bytes the head has, its empty line included.
    pub length: usize,
}

/// Why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadHead {
    /// More bytes than are read.
    TooLong,
    /// More headers than are read.
    TooManyHeaders,
    /// A line that does not end in CR LF, or a CR, LF or NUL elsewhere.
    LineEnd,
    /// The first line is not `METHOD TARGET HTTP/1.x`.
    RequestLine,
    /// A header line without a plain name and a colon behind it, or one that goes on with a space.
    HeaderLine,
    /// Both lengths, two lengths, or a transfer encoding other than `chunked`.
    Framing,
    /// `Host` twice.
    Host,
}

impl fmt::Display for BadHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooLong => "the request's head is too long",
            Self::TooManyHeaders => "the request has too many headers",
            Self::LineEnd => "a line of the request does not end in CR LF",
            Self::RequestLine => "the request does not begin with a method, a target and HTTP/1.1",
            Self::HeaderLine => "a header has no plain name, or goes on in another line",
            Self::Framing => "the request says its length in two ways, or in an odd one",
            Self::Host => "the request has two Hosts",
        })
    }
}

/// What is read of a head at most.
#[derive(Debug, Clone, Copy)]
pub struct HeadLimits {
    /// Bytes.
    pub bytes: usize,
    /// Headers.
    pub headers: usize,
}

/// Reads a head from the beginning of `bytes`; `None` when more is to come.
pub fn read_head(bytes: &[u8], limits: HeadLimits) -> Result<Option<RequestHead>, BadHead> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let seen = bytes.get(..end.map_or(bytes.len(), |end| end + 4)).unwrap_or(bytes);
    check_line_ends(seen)?;
    if seen.len() > limits.bytes {
        return Err(BadHead::TooLong);
    }
    let Some(end) = end else { return Ok(None) };
    let text = bytes.get(..end).and_then(|head| str::from_utf8(head).ok()).ok_or(BadHead::HeaderLine)?;
    let mut lines = text.split("\r\n");
    let (method, target) = read_request_line(lines.next().unwrap_or_default())?;
    let mut headers = Headers::default();
    for (index, line) in lines.enumerate() {
        if index >= limits.headers {
            return Err(BadHead::TooManyHeaders);
        }
        headers.read(line)?;
    }
    let host = headers.host.map(str::to_owned);
    Ok(Some(RequestHead { method: method.to_owned(), target: target.to_owned(), host, length: end + 4 }))
}

fn check_line_ends(bytes: &[u8]) -> Result<(), BadHead> {
    let mut previous = 0;
    for (index, byte) in bytes.iter().enumerate() {
        let next = bytes.get(index + 1);
        let broken = match byte {
            b'\n' => previous != b'\r',
            b'\r' => next.is_some_and(|next| *next != b'\n'),
            0 => true,
            _ => false,
        };
        if broken {
            return Err(BadHead::LineEnd);
        }
        previous = *byte;
    }
    Ok(())
}

fn read_request_line(line: &str) -> Result<(&str, &str), BadHead> {
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(target), Some("HTTP/1.1" | "HTTP/1.0"), None)
            if !method.is_empty()
                && method.len() <= 32
                && method.bytes().all(is_token)
                && !target.is_empty()
                && target.bytes().all(|byte| byte.is_ascii_graphic()) =>
        {
            Ok((method, target))
        }
        _ => Err(BadHead::RequestLine),
    }
}

#[derive(Default)]
struct Headers<'a> {
    host: Option<&'a str>,
    has_length: bool,
    has_encoding: bool,
}

impl<'a> Headers<'a> {
    fn read(&mut self, line: &'a str) -> Result<(), BadHead> {
        let Some((name, value)) = line.split_once(':') else { return Err(BadHead::HeaderLine) };
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(BadHead::HeaderLine);
        }
        let value = value.trim_matches([' ', '\t']);
        if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
            return Err(BadHead::HeaderLine);
        }
        if name.eq_ignore_ascii_case("host") {
            return match self.host.replace(value) {
                None => Ok(()),
                Some(_) => Err(BadHead::Host),
            };
        }
        let (twice, plain) = if name.eq_ignore_ascii_case("content-length") {
            let digits = !value.is_empty() && value.len() <= 18 && value.bytes().all(|byte| byte.is_ascii_digit());
            (std::mem::replace(&mut self.has_length, true), digits)
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            (std::mem::replace(&mut self.has_encoding, true), value.eq_ignore_ascii_case("chunked"))
        } else {
            (false, true)
        };
        if twice || !plain || self.has_length && self.has_encoding { Err(BadHead::Framing) } else { Ok(()) }
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: HeadLimits = HeadLimits { bytes: 1024, headers: 8 };

    fn bad(text: &str, expected: BadHead) {
        assert_eq!(read_head(text.as_bytes(), LIMITS), Err(expected), "{text:?}");
    }

    #[test]
    fn e15_heads_that_can_be_read_in_two_ways_are_refused() {
        bad("GET / HTTP/1.1\nHost: a\n\n", BadHead::LineEnd);
        bad("GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", BadHead::LineEnd);
        bad("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", BadHead::LineEnd);
        bad("GET / HTTP/1.1\r\nHost: a\0\r\n\r\n", BadHead::LineEnd);
        bad("GET / HTTP/1.1\r\nHost: a\r\n folded\r\n\r\n", BadHead::HeaderLine);
        bad("GET / HTTP/1.1\r\nHost : a\r\n\r\n", BadHead::HeaderLine);
        bad("GET / HTTP/1.1\r\n: a\r\n\r\n", BadHead::HeaderLine);
        bad("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", BadHead::Host);
        bad("POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", BadHead::Framing);
        bad("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", BadHead::Framing);
        bad("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", BadHead::Framing);
        bad("POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", BadHead::Framing);
        bad("POST / HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\n", BadHead::Framing);
        bad("POST / HTTP/1.1\r\nTransfer-Encoding: xchunked\r\n\r\n", BadHead::Framing);
        bad("POST / HTTP/1.1\r\nTransfer-Encoding: chunked, identity\r\n\r\n", BadHead::Framing);
        bad("GET  / HTTP/1.1\r\n\r\n", BadHead::RequestLine);
        bad("GET / HTTP/2.0\r\n\r\n", BadHead::RequestLine);
        bad("GET /\r\n\r\n", BadHead::RequestLine);
        bad("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", BadHead::RequestLine);
        bad(&format!("GET /{} HTTP/1.1\r\n", "a".repeat(2000)), BadHead::TooLong);
        bad(&format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(9)), BadHead::TooManyHeaders);
        let good = "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nX: \r\n\r\n";
        let head = read_head(format!("{good}rest").as_bytes(), LIMITS).unwrap().unwrap();
        assert_eq!((head.method.as_str(), head.target.as_str()), ("CONNECT", "a.test:443"));
        assert_eq!((head.host.as_deref(), head.length), (Some("a.test:443"), good.len()));
        assert_eq!(read_head(b"GET / HTTP/1.1\r\nHost: a\r\n", LIMITS), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_head_or_the_beginning_of_one_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Ok(Some(head)) = read_head(&bytes, LIMITS) {
                prop_assert!(head.length <= bytes.len());
            }
        }

        #[test]
        fn a_head_that_comes_in_pieces_is_the_same_head(cut in 0_usize..70) {
            let text = b"POST http://a.test/ HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\n\r\nabc";
            let whole = read_head(text, LIMITS).unwrap().unwrap();
            let piece = &text[..cut.min(text.len())];
            let expected = (piece.len() >= whole.length).then_some(whole);
            prop_assert_eq!(read_head(piece, LIMITS), Ok(expected));
        }
    }
}
