//! What an agent wrote to our standard input.

use std::io::Read;

use serde_json::{Map, Value};

use super::NotJudged;

/// A longer call is not read. Files that a model writes are in it as a whole.
const MOST_BYTES: u64 = 32 * 1024 * 1024;

/// One JSON object and nothing else; how deep it may be nested is bounded by its reader.
pub(super) fn read(from: impl Read) -> Result<Map<String, Value>, NotJudged> {
    let mut bytes = Vec::new();
    from.take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| NotJudged::because(format!("it could not be read: {error}")))?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(NotJudged::because("it is longer than 32 MiB"));
    }
    parse(&bytes)
}

/// Likewise, of bytes.
pub(super) fn parse(bytes: &[u8]) -> Result<Map<String, Value>, NotJudged> {
    let unreadable = |error| NotJudged::because(format!("it is not one JSON object: {error}"));
    match serde_json::from_slice(bytes).map_err(unreadable)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(NotJudged::because("it is not one JSON object")),
    }
}

/// A text that has to be there.
pub(super) fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a str, NotJudged> {
    fields.get(name).and_then(Value::as_str).ok_or_else(|| NotJudged::because(format!("it has no text `{name}`")))
}

/// The first of these that is a text.
pub(super) fn first_text<'a>(fields: &'a Map<String, Value>, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| fields.get(*name).and_then(Value::as_str))
}

/// The texts of a list.
pub(super) fn texts(fields: &Map<String, Value>, name: &str) -> Vec<String> {
    let list = fields.get(name).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// An object that has to be there; some agents write it as a text.
pub(super) fn object(fields: &Map<String, Value>, name: &str) -> Result<Map<String, Value>, NotJudged> {
    match fields.get(name) {
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(Value::String(text)) => parse(text.as_bytes()),
        Some(_) | None => Err(NotJudged::because(format!("it has no object `{name}`"))),
    }
}
