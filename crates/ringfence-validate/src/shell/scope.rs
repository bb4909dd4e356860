//! What a shell knows at a place of its text: variables, functions, files that the text wrote.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::tree::Node;
use crate::analysis::{Flow, Origin};
use crate::stream::{Argument, Stream};
use crate::text::{Hole, Piece, Text};

/// The value of a variable: one field, or those of an array.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Value {
    pub(crate) fields: Vec<Text>,
    pub(crate) flows: Vec<Flow>,
}

impl Value {
    pub(crate) fn one(text: Text) -> Self {
        Self { fields: vec![text], flows: Vec::new() }
    }

    /// Only known when it runs.
    pub(crate) fn hole(name: &str) -> Self {
        Self::one(Text::hole(Hole::Variable(name.to_owned())))
    }

    /// The same value, or a hole where it is longer than what is kept.
    fn bounded(self, name: &str) -> Self {
        let length: usize = self.fields.iter().map(|field| field.length() + 1).sum();
        if length > Text::LONGEST { Self { flows: self.flows, ..Self::hole(name) } } else { self }
    }

    /// The first field, which is what the plain name stands for.
    pub(crate) fn first(&self) -> Text {
        self.fields.first().cloned().unwrap_or_default()
    }
}

/// A function and the text that it stands in.
#[derive(Debug)]
pub(crate) struct Function {
    pub(super) body: Rc<Node>,
    pub(super) origin: Origin,
}

/// Variables and files that are remembered, at most; what is beyond is not known.
const MOST: usize = 512;

/// What is known. Copies share what is large until one of them changes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    pub(crate) variables: Rc<BTreeMap<String, Value>>,
    /// The arguments of the function or script that is walked; nothing at the top, where there are none.
    pub(crate) arguments: Vec<Argument>,
    pub(super) functions: BTreeMap<String, Rc<Function>>,
    pub(super) called: Vec<String>,
    /// Functions that are being walked, to find those that call themselves.
    pub(super) within: Vec<String>,
    pub(crate) aliases: BTreeMap<String, String>,
    /// What the text wrote into files.
    pub(crate) files: Rc<BTreeMap<String, Stream>>,
    /// Pipes with a name that the text made.
    pub(crate) pipes: Vec<String>,
    /// Descriptors that were opened by `exec`.
    pub(crate) descriptors: BTreeMap<i32, Stream>,
    /// The working directory, where the text changed it.
    pub(crate) directory: Option<Text>,
    /// The directory in which the request starts.
    pub(crate) start: Rc<str>,
}

impl Scope {
    /// Nothing is known but where the request starts.
    pub(crate) fn new(start: &str) -> Self {
        Self { start: start.into(), ..Self::default() }
    }

    /// Sets a variable.
    pub(crate) fn set(&mut self, name: String, value: Value) {
        if self.variables.len() < MOST || self.variables.contains_key(&name) {
            let value = value.bounded(&name);
            Rc::make_mut(&mut self.variables).insert(name, value);
        }
    }

    /// Forgets a variable.
    pub(crate) fn unset(&mut self, name: &str) {
        Rc::make_mut(&mut self.variables).remove(name);
    }

    /// Remembers what a file holds.
    pub(crate) fn keep(&mut self, path: &str, contents: Stream) {
        let path = self.key(path);
        if self.files.len() < MOST || self.files.contains_key(&path) {
            Rc::make_mut(&mut self.files).insert(path, contents);
        }
    }

    /// What a file holds that the text wrote, or a descriptor that it opened.
    pub(crate) fn file(&self, path: &str) -> Option<&Stream> {
        let key = self.key(path);
        let number = key.strip_prefix("/dev/fd/").or_else(|| key.strip_prefix("/proc/self/fd/"));
        let descriptor = number.and_then(|number| number.parse::<i32>().ok());
        let found = self.files.get(&key).or_else(|| self.descriptors.get(&descriptor?));
        if found.is_some() || !self.directory.as_ref().is_some_and(Text::has_hole) || path.starts_with('/') {
            return found;
        }
        // Where the directory is not known, any file of that name may be the one.
        let name = key.rsplit('/').next()?;
        self.files.iter().find(|(path, _)| path.rsplit('/').next() == Some(name)).map(|(_, stream)| stream)
    }

    /// One spelling for all that lead to the same file.
    pub(crate) fn key(&self, path: &str) -> String {
        let seen = self.resolve(&Text::known(path)).to_string();
        let whole = if seen.starts_with('/') { seen } else { format!("{}/{seen}", self.start) };
        let mut parts: Vec<&str> = Vec::new();
        for part in whole.split('/') {
            match part {
                "" | "." => {}
                ".." => {
                    parts.pop();
                }
                part => parts.push(part),
            }
        }
        format!("/{}", parts.join("/"))
    }

    /// Back from a program that was started: only what it wrote stays.
    pub(crate) fn leave_child(&mut self, mut saved: Self) {
        saved.files = std::mem::take(&mut self.files);
        saved.pipes = std::mem::take(&mut self.pipes);
        saved.called = std::mem::take(&mut self.called);
        *self = saved;
    }

    /// What a child sees of the variables: it has those that are exported, which is not known.
    pub(crate) fn enter_child(&mut self) {
        if self.variables.is_empty() {
            return;
        }
        let hidden = |(name, value): (&String, &Value)| {
            (name.clone(), Value { flows: value.flows.clone(), ..Value::hole(name) })
        };
        self.variables = Rc::new(self.variables.iter().map(hidden).collect());
    }

    /// After a branch that may or may not have been taken: what differs is not known.
    pub(super) fn join(&mut self, other: Self) {
        if Rc::ptr_eq(&self.variables, &other.variables) {
            return self.join_rest(other);
        }
        let mut names: Vec<&String> = self.variables.keys().chain(other.variables.keys()).collect();
        names.sort_unstable();
        names.dedup();
        let mut joined = BTreeMap::new();
        for name in names {
            let value = match (self.variables.get(name), other.variables.get(name)) {
                (Some(one), Some(two)) if one == two => one.clone(),
                (one, two) => {
                    let mut value = Value::hole(name);
                    value.flows = one.into_iter().chain(two).flat_map(|value| value.flows.clone()).collect();
                    value.flows.dedup();
                    value
                }
            };
            joined.insert(name.clone(), value);
        }
        self.variables = Rc::new(joined);
        self.join_rest(other);
    }

    fn join_rest(&mut self, other: Self) {
        self.functions.extend(other.functions);
        for name in other.called {
            if !self.called.contains(&name) {
                self.called.push(name);
            }
        }
        self.aliases.extend(other.aliases);
        if !Rc::ptr_eq(&self.files, &other.files) {
            for (path, stream) in other.files.iter() {
                let mut joined = stream.clone();
                if let Some(here) = self.files.get(path).filter(|here| *here != stream) {
                    joined.text = None;
                    joined.add_all(&here.flows);
                }
                self.keep(path, joined);
            }
        }
        self.descriptors.extend(other.descriptors);
        if self.directory != other.directory {
            self.directory = Some(Text::hole(Hole::Other));
        }
    }

    /// A path as seen from where the request starts.
    pub(crate) fn resolve(&self, path: &Text) -> Text {
        let Some(directory) = &self.directory else { return path.clone() };
        if path.known_start().starts_with(['/', '~']) || path.known_start().is_empty() && path.has_hole() {
            return path.clone();
        }
        let mut whole = directory.clone();
        if !whole.known_end().ends_with('/') {
            whole.push(Piece::Known("/".to_owned()));
        }
        whole.append(path.clone());
        whole
    }
}
