//! What an agent wrote, and what it may be.

use serde_json::{Map, Value};

use crate::{MOST_BYTES, NotJudged};

/// One JSON object and nothing else; how deep it may be nested is bounded by its reader.
pub fn parse(bytes: &[u8]) -> Result<Map<String, Value>, NotJudged> {
    if bytes.len() > MOST_BYTES {
        return Err(NotJudged::because("it is longer than 32 MiB"));
    }
    let unreadable = |error| NotJudged::because(format!("it is not one JSON object: {error}"));
    match serde_json::from_slice(bytes).map_err(unreadable)? {
        Value::Object(fields) => Ok(fields),
        _ => Err(NotJudged::because("it is not one JSON object")),
    }
}

/// A text that has to be there.
pub(crate) fn text<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a str, NotJudged> {
    fields.get(name).and_then(Value::as_str).ok_or_else(|| NotJudged::because(format!("it has no text `{name}`")))
}

/// The first of these that is a text.
pub(crate) fn first_text<'a>(fields: &'a Map<String, Value>, names: &[&str]) -> Option<&'a str> {
    names.iter().find_map(|name| fields.get(*name).and_then(Value::as_str))
}

/// Which argument of a tool's names a file or a folder, by any agent's word for it.
const PATHS: [&str; 10] = [
    "file_path",
    "filePath",
    "absolute_path",
    "path",
    "notebook_path",
    "target_file",
    "target_notebook",
    "target_directory",
    "dir_path",
    "directory",
];

/// Every path that is named. Nobody knows which of several words a tool takes, so all of them count.
pub(crate) fn paths(fields: &Map<String, Value>) -> Result<Vec<String>, NotJudged> {
    let mut found = Vec::new();
    for name in PATHS {
        found.extend(optional(fields, name)?.map(str::to_owned));
    }
    Ok(found)
}

/// Likewise, at least one.
pub(crate) fn some_paths(fields: &Map<String, Value>, expected: &str) -> Result<Vec<String>, NotJudged> {
    let found = paths(fields)?;
    if found.is_empty() {
        return Err(NotJudged::because(format!("it has no text `{expected}`")));
    }
    Ok(found)
}

/// A text that may be missing, and is nothing else.
pub(crate) fn optional<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<Option<&'a str>, NotJudged> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(NotJudged::because(format!("its `{name}` is no text"))),
    }
}

/// The one of these that is there. With two of them, nobody knows which one is taken.
pub(crate) fn only_one<'a>(fields: &'a Map<String, Value>, names: &[&str]) -> Result<Option<&'a str>, NotJudged> {
    let there: Vec<&str> =
        names.iter().copied().filter(|name| fields.get(*name).is_some_and(|it| !it.is_null())).collect();
    match there.as_slice() {
        [] => Ok(None),
        [name] => optional(fields, name),
        [first, second, ..] => Err(NotJudged::because(format!("it has both `{first}` and `{second}`"))),
    }
}

/// A list of texts that may be missing, and is nothing else.
pub(crate) fn list(fields: &Map<String, Value>, name: &str) -> Result<Vec<String>, NotJudged> {
    let not_texts = || NotJudged::because(format!("its `{name}` is not a list of texts"));
    match fields.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(all)) => {
            all.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(not_texts)).collect()
        }
        Some(_) => Err(not_texts()),
    }
}

/// The first argument that is not among those that are known: it could choose another program, or what is loaded into it.
pub(crate) fn unknown<'a>(fields: &'a Map<String, Value>, known: &[&str]) -> Option<&'a str> {
    fields
        .iter()
        .find(|(name, value)| !value.is_null() && !known.contains(&name.as_str()))
        .map(|(name, _)| name.as_str())
}

/// The texts of a list that an agent itself wrote.
pub(crate) fn texts(fields: &Map<String, Value>, name: &str) -> Vec<String> {
    let list = fields.get(name).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// An object that has to be there; some agents write it as a text.
pub(crate) fn object(fields: &Map<String, Value>, name: &str) -> Result<Map<String, Value>, NotJudged> {
    match fields.get(name) {
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(Value::String(text)) => parse(text.as_bytes()),
        Some(_) | None => Err(NotJudged::because(format!("it has no object `{name}`"))),
    }
}
