//! A permission from outside to go beyond the policy. A request cannot carry one.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Invalid};
use crate::overrides::Overrides;
use crate::policy::Place;
use crate::reader::{GRANT, Reader};
use crate::section::read_version;
use crate::yaml::parse_yaml;

pub(crate) const KEYS: [&str; 4] = ["version", "grant", "by", "why"];

/// What a person or an operator permits beyond the policy. It has effect only on what `overrides.grantable` lists.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// What is permitted.
    pub widen: Overrides,
    /// Who permits it; recorded.
    pub by: String,
    /// The reason; recorded.
    pub why: Option<String>,
    /// Where it was written, when it came from a file.
    pub place: Option<Place>,
}

impl Grant {
    /// A permission that was not read from a file.
    pub fn new(widen: Overrides, by: impl Into<String>) -> Self {
        Self { widen, by: by.into(), why: None, place: None }
    }

    /// Reads `version: 1`, `grant: {…}`, `by: NAME`, `why: REASON`.
    pub fn parse(file_name: &str, text: &str) -> Result<Self, Vec<Diagnostic>> {
        let file: Arc<str> = file_name.into();
        let tree = parse_yaml(&file, text)?;
        let mut reader = Reader::new(&file);
        let fields = reader.fields(&tree, GRANT, &KEYS);
        read_version(&mut reader, &tree, &fields);
        let widen = fields.get("grant").map(|node| Overrides::read(&mut reader, node, "grant"));
        let by = fields.get("by").and_then(|node| reader.scalar(node, "by", line));
        let why = fields.get("why").and_then(|node| reader.scalar(node, "why", line));
        if fields.get("by").is_none() {
            let problem = Diagnostic::error("grant::by", "the grant does not say who gives it");
            reader.report(tree.mark, problem.advise("add `by: NAME`; it is recorded with every run"));
        }
        if widen.as_ref().is_none_or(Overrides::is_empty) && reader.is_clean() {
            let problem = Diagnostic::error("grant::empty", "the grant permits nothing");
            reader.report(tree.mark, problem.advise("add it such as `grant: { proc: { memory: 4GiB } }`"));
        }
        let grant = Self {
            widen: widen.unwrap_or_default(),
            by: by.map(|by| by.value).unwrap_or_default(),
            why: why.map(|why| why.value),
            place: Some(tree.mark.place(&file)),
        };
        reader.finish(grant)
    }
}

/// One line of text, since it is recorded and shown.
fn line(text: &str) -> Result<String, Invalid> {
    if text.trim().is_empty() || text.chars().any(char::is_control) {
        return Err(Invalid::new(
            "grant::text",
            "this is not one line of text",
            "write a name or a reason on one line",
        ));
    }
    Ok(text.to_owned())
}
