//! Reads values out of a [`Node`] tree and collects what is wrong, so that one load reports several problems.

use std::ops::Range;
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Invalid, list_words, nearest, quote};
use crate::policy::Place;
use crate::yaml::{Key, MAX_DIAGNOSTICS, Mark, Node, Value};

/// A value and where it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written<T> {
    /// The value.
    pub value: T,
    /// Its first character.
    pub place: Place,
    /// Its bytes in the text.
    pub span: Range<usize>,
}

impl<T> Written<T> {
    /// A value that was not written in a file, such as a flag or a variable called `name`.
    pub fn outside(value: T, name: &str) -> Self {
        Self { value, place: Place { file: name.into(), line: 0, column: 0 }, span: 0..0 }
    }
}

/// Collects problems while values are read.
pub(crate) struct Reader<'f> {
    file: &'f Arc<str>,
    problems: Vec<Diagnostic>,
}

/// The entries of a map whose keys are all known.
pub(crate) struct Fields<'n> {
    entries: &'n [(Key, Node)],
}

impl<'n> Fields<'n> {
    pub(crate) fn get(&self, key: &str) -> Option<&'n Node> {
        self.entries.iter().find(|(entry, _)| entry.text == key).map(|(_, node)| node)
    }
}

impl<'f> Reader<'f> {
    pub(crate) fn new(file: &'f Arc<str>) -> Self {
        Self { file, problems: Vec::new() }
    }

    /// Whether nothing was wrong so far.
    pub(crate) fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    /// The value when nothing was wrong.
    pub(crate) fn finish<T>(mut self, value: T) -> Result<T, Vec<Diagnostic>> {
        // Sections are read in the order of the format; people read a file from the top.
        self.problems.sort_by_key(|problem| problem.span.as_ref().map(|span| span.start));
        if self.problems.is_empty() { Ok(value) } else { Err(self.problems) }
    }

    pub(crate) fn report(&mut self, mark: Mark, problem: impl Into<Diagnostic>) {
        if self.problems.len() < MAX_DIAGNOSTICS {
            let place = (mark.line != 0).then(|| mark.place(self.file));
            self.problems.push(problem.into().at(place).spanning(mark.start..mark.end));
        }
    }

    pub(crate) fn written<T>(&self, mark: Mark, value: T) -> Written<T> {
        Written { value, place: mark.place(self.file), span: mark.start..mark.end }
    }

    /// The entries of a map; unknown keys are reported. `path` is empty for the file itself.
    pub(crate) fn fields<'n>(&mut self, node: &'n Node, path: &str, keys: &[&str]) -> Fields<'n> {
        let Value::Map(entries) = &node.value else {
            let example = keys.iter().find(|key| **key != "version").copied().unwrap_or("key");
            let example = match path {
                "" | GRANT => "version: 1".to_owned(),
                _ => format!("{example}: …` below `{path}:"),
            };
            let advice = format!(
                "write keys and values, such as `{example}`; the keys are {}",
                list_words(keys.iter().copied())
            );
            self.wrong_type(node, path, "a map", &advice);
            return Fields { entries: &[] };
        };
        for (key, _) in entries {
            if !keys.contains(&key.text.as_str()) {
                let holder = holder(path);
                let known = list_words(keys.iter().copied());
                let advice = match nearest(&key.text, keys.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`? {} has {known}", capitalise(&holder)),
                    None => format!("{holder} has {known}"),
                };
                let message = format!("{holder} has no key {}", quote(&key.text));
                self.report(key.mark, Diagnostic::error("policy::unknown-key", message).advise(advice));
            }
        }
        Fields { entries }
    }

    /// The text of a scalar, made into a value.
    pub(crate) fn scalar<T>(
        &mut self,
        node: &Node,
        path: &str,
        parse: impl FnOnce(&str) -> Result<T, Invalid>,
    ) -> Option<Written<T>> {
        let Value::Scalar(text, _) = &node.value else {
            self.wrong_type(node, path, "a single value", &format!("write one value, such as `{}`", example(path)));
            return None;
        };
        match parse(text) {
            Ok(value) => Some(self.written(node.mark, value)),
            Err(problem) => {
                self.report(node.mark, problem);
                None
            }
        }
    }

    /// A list; what is wrong with one item does not hide the others.
    pub(crate) fn list<T>(
        &mut self,
        node: &Node,
        path: &str,
        mut item: impl FnMut(&mut Self, &Node) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Value::List(items) = &node.value else {
            let advice = match &node.value {
                Value::Null => "write `[]` for an empty list, or remove the key".to_owned(),
                Value::Scalar(text, _) => format!("write it in brackets: `[\"{}\"]`", quote(text).trim_matches('`')),
                Value::List(_) | Value::Map(_) => "start each item with `- `, or write them in brackets".to_owned(),
            };
            self.wrong_type(node, path, "a list", &advice);
            return None;
        };
        Some(items.iter().filter_map(|node| item(self, node)).collect())
    }

    pub(crate) fn wrong_type(&mut self, node: &Node, path: &str, wanted: &str, advice: &str) {
        let path = holder(path);
        let message = match &node.value {
            Value::Null => format!("{path} has no value"),
            other => format!("{path} must be {wanted}, not {}", other.describe()),
        };
        self.report(node.mark, Diagnostic::error("policy::wrong-type", message).advise(advice));
    }
}

/// What has the keys: a key itself, or the whole text.
fn holder(path: &str) -> String {
    match path {
        "" => "the policy".to_owned(),
        GRANT => "the grant".to_owned(),
        _ => format!("`{path}`"),
    }
}

/// The path of a whole grant, as the empty path is that of a whole policy.
pub(crate) const GRANT: &str = "<grant>";

/// A value that could stand at `path`.
fn example(path: &str) -> &'static str {
    if path.starts_with("proc.env.set.") {
        return "\"1\"` or, when it is empty, `\"\"";
    }
    match path.rsplit('.').next().unwrap_or(path) {
        "version" => "version: 1",
        "timeout" => "timeout: 120s",
        "max_timeout" => "max_timeout: 600s",
        "grace" => "grace: 2s",
        "memory" => "memory: 512MiB",
        "size" => "size: 512MiB",
        "output" => "output: 1MiB",
        "file_size" => "file_size: 1GiB",
        "cpus" => "cpus: 1.5",
        "processes" => "processes: 256",
        "limits" => "limits: watched",
        "open_files" => "open_files: 1024",
        "user" => "user: \"1000:1000\"",
        "backend" | "use" => "backend: auto",
        "image" | "name" => "image: python:3.14-slim",
        "build" => "build: ./docker",
        "pull" => "pull: never",
        "runtime" => "runtime: runsc",
        "cache" => "pip",
        "mode" => "mode: none",
        "workspace" | "path" => "path: .",
        "host" => "host: pypi.org",
        "deny" | "protect" => "\"**/.env\"",
        "pass" => "LANG",
        "requests" | "connections" => "requests: 100",
        "bytes" => "bytes: 10MiB",
        "rate" => "rate: 10/s",
        "unknown" => "unknown: deny",
        "upstream" => "upstream: http://proxy.example.org:3128",
        "inspect" => "inspect: true",
        "acknowledge" => "acknowledge: true",
        "protocol" => "protocol: web",
        "header" => "header: Authorization",
        "format" => "format: \"Bearer {}\"",
        _ => "name",
    }
}

fn capitalise(text: &str) -> String {
    match text.strip_prefix("the ") {
        Some(rest) => format!("The {rest}"),
        None => text.to_owned(),
    }
}
