//! Names of HTTP headers, as a policy writes them.

use crate::diagnostic::{Invalid, quote};

/// Headers that say how a message is carried, to whom, or how it is to be read, and those of proxies.
const FOR_CARRYING: [&str; 12] = [
    "host",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "via",
    "expect",
    "transfer-encoding",
    "content-length",
    "content-type",
    "content-encoding",
];

/// A header in small letters that is none of those. `what` becomes of it is said in the message.
pub(crate) fn parse_header(text: &str, code: &'static str, what: &str, advice: &str) -> Result<String, Invalid> {
    let lower = text.to_ascii_lowercase();
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_');
    if lower.is_empty() || lower.len() > 64 || !lower.bytes().all(word) {
        return Err(Invalid::new(code, format!("{} is not the name of a header", quote(text)), advice));
    }
    // Some servers take `_` for `-`, and so do we where a header is left out.
    let alike = lower.replace('_', "-");
    if FOR_CARRYING.contains(&alike.as_str()) || alike.starts_with("proxy-") {
        let message = format!("the header {} says how a request is carried, and {what}", quote(text));
        return Err(Invalid::new(code, message, advice));
    }
    Ok(lower)
}
