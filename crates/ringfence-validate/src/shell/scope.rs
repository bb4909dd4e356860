//! What a shell knows at a place of its text: variables, functions, files that the text wrote.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::coprocess::Beside;
use super::directory::Directory;
use super::notes::Notes;
use super::redirect::Lasting;
use super::several::{Held, Several};
use super::tree::Node;
use super::value::Value;
use crate::analysis::{Flow, Origin};
use crate::stream::{Argument, Stream};
use crate::text::Text;

/// A function and the text that it stands in.
#[derive(Debug)]
pub(crate) struct Function {
    pub(super) body: Rc<Node>,
    pub(super) origin: Origin,
}

/// What a name may stand for: several bodies after branches.
#[derive(Debug, Clone, Default)]
pub(super) struct Functions {
    pub(super) bodies: Vec<Rc<Function>>,
    /// It may as well not be defined: then the program of this name runs.
    pub(super) perhaps: bool,
}

impl Functions {
    pub(super) fn add(&mut self, other: &Self) {
        for body in &other.bodies {
            if !self.bodies.iter().any(|known| Rc::ptr_eq(&known.body, &body.body)) {
                self.bodies.push(Rc::clone(body));
            }
        }
        self.perhaps |= other.perhaps;
    }
}

/// A variable that does not simply take what it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Odd {
    /// The value is changed on the way, or refused.
    Changes,
    /// Another variable takes it.
    Names(String),
    /// Some other variable takes it.
    NamesAny,
}

/// Variables and files that are remembered, at most; what is beyond is not known.
const MOST: usize = 512;

/// Values that are remembered for traps; a variable that had more is not known there.
pub(super) const MOST_PASSED: usize = 8;

/// What is known. Copies share what is large until one of them changes it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    pub(crate) variables: Rc<BTreeMap<String, Value>>,
    /// The arguments of the function or script that is walked; nothing at the top, where there are none.
    pub(crate) arguments: Vec<Argument>,
    pub(super) functions: Rc<BTreeMap<String, Functions>>,
    /// Functions of subshells that nothing called there.
    pub(super) uncalled: Vec<(String, Rc<Function>)>,
    pub(super) called: Vec<String>,
    /// Functions that are being walked, to find those that call themselves.
    pub(super) within: Vec<String>,
    pub(crate) aliases: BTreeMap<String, String>,
    /// What stays of commands outside of the shell: what is staged, unpacked.
    pub(crate) notes: Notes,
    /// What is written to these descriptors, these commands read: one of them, after branches.
    pub(super) coprocesses: BTreeMap<i32, Vec<Beside>>,
    /// What the text wrote into files.
    pub(crate) files: Rc<BTreeMap<String, Stream>>,
    /// Pipes with a name that the text made.
    pub(crate) pipes: Vec<String>,
    /// Descriptors that were opened by `exec`.
    pub(crate) descriptors: BTreeMap<i32, Stream>,
    /// Files that descriptors above the usual ones write to.
    pub(super) outputs: BTreeMap<i32, String>,
    /// Where `exec` led the input and the output of all that follows.
    pub(super) lasting: Lasting,
    /// The working directory, where the text changed it.
    pub(crate) directory: Directory,
    /// The directory in which the request starts, and the home folder.
    pub(crate) start: Rc<str>,
    home: Rc<str>,
    /// Variables of the function that is walked, with what they were outside; `false` where only a branch made them its own.
    pub(super) locals: BTreeMap<String, (Held, bool)>,
    pub(super) odd: BTreeMap<String, Odd>,
    /// What was known where a `return`, `break` or `continue` left.
    pub(super) left: Option<Rc<Self>>,
    /// Code that runs at the end, and the values that variables had since.
    pub(crate) traps: Vec<Argument>,
    pub(super) passed: BTreeMap<String, Vec<Value>>,
    /// What may hold instead, after branches.
    pub(super) several: Several,
    /// Variables and functions that programs see which this shell starts.
    pub(super) exported: Rc<BTreeSet<String>>,
    /// `set -a`: all that is set is exported.
    pub(crate) exports_all: bool,
    /// The last command of a pipeline runs in the shell itself.
    pub(crate) last_stays: bool,
}

/// Whether something is done for certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Plainly {
    Surely,
    Perhaps,
}

/// What belongs to the function around the one that is walked.
pub(super) struct Outside {
    locals: BTreeMap<String, (Held, bool)>,
    left: Option<Rc<Scope>>,
}

impl Scope {
    /// Nothing is known but where the request starts, and the home folder.
    pub(crate) fn new(start: &str, home: &str) -> Self {
        Self { start: start.into(), home: home.into(), ..Self::default() }
    }

    /// Sets a variable.
    pub(crate) fn set(&mut self, name: String, value: Value) {
        let value = match self.odd.get(&name).cloned() {
            None => value,
            Some(Odd::Changes) => Value { flows: value.flows, ..Value::hole(&name) },
            Some(Odd::Names(other)) => {
                self.set_other(&other, value);
                Value::hole(&name)
            }
            Some(Odd::NamesAny) => {
                self.forget_all();
                Value::hole(&name)
            }
        };
        self.place(name, value);
    }

    /// Sets what a name stands for that refers to it: a variable, or a place of an array, which is then not known.
    fn set_other(&mut self, other: &str, value: Value) {
        match other.split_once('[') {
            None if !self.odd.contains_key(other) => self.place(other.to_owned(), value),
            None => self.forget_all(),
            Some((array, _)) => {
                self.place(array.to_owned(), Value { flows: value.flows, ..Value::hole(array) });
            }
        }
    }

    /// The variable that a name refers to, where it does.
    pub(super) fn named_by(&self, name: &str) -> Option<&str> {
        match self.odd.get(name) {
            Some(Odd::Names(other)) if !self.odd.contains_key(other) && !other.contains('[') => Some(other),
            _ => None,
        }
    }

    pub(super) fn place(&mut self, name: String, value: Value) {
        if !self.traps.is_empty() {
            let before = self.variables.get(&name).filter(|before| before.first().as_known() != Some("")).cloned();
            let passed = self.passed.entry(name.clone()).or_insert_with(|| before.into_iter().collect());
            if passed.len() <= MOST_PASSED && !passed.contains(&value) {
                passed.push(value.clone());
            }
        }
        self.several.settle(&name);
        if self.exports_all {
            self.export(&name);
        }
        if self.variables.len() < MOST || self.variables.contains_key(&name) {
            let value = value.bounded(&name);
            Rc::make_mut(&mut self.variables).insert(name, value);
        }
    }

    /// Forgets a variable; of a place of an array, that the array is known.
    pub(crate) fn unset(&mut self, name: &str) {
        if let Some((array, _)) = name.split_once('[') {
            self.forget(array);
            return;
        }
        if matches!(name, "HOME" | "PWD" | "SHELL" | "BASH") || self.odd.contains_key(name) {
            self.set(name.to_owned(), Value::hole(name));
        } else {
            self.several.settle(name);
            Rc::make_mut(&mut self.variables).remove(name);
        }
    }

    /// Programs that are started see this variable or function.
    pub(crate) fn export(&mut self, name: &str) {
        if !self.exported.contains(name) && self.exported.len() < MOST {
            Rc::make_mut(&mut self.exported).insert(name.to_owned());
        }
    }

    /// Forgets a function; the plain `unset NAME` takes one only where there is no variable.
    pub(crate) fn unset_function(&mut self, name: &str, plainly: Plainly) {
        match plainly {
            Plainly::Surely => {
                Rc::make_mut(&mut self.functions).remove(name);
            }
            Plainly::Perhaps => {
                if let Some(functions) = Rc::make_mut(&mut self.functions).get_mut(name) {
                    functions.perhaps = true;
                }
            }
        }
    }

    /// A definition that may have been reached.
    pub(super) fn define_perhaps(&mut self, name: &str, function: Rc<Function>) {
        let functions = Rc::make_mut(&mut self.functions);
        let known = functions.entry(name.to_owned()).or_insert_with(|| Functions { bodies: Vec::new(), perhaps: true });
        known.add(&Functions { bodies: vec![function], perhaps: false });
    }

    /// What left early elsewhere left here too.
    pub(super) fn take_left(&mut self, other: &Self) {
        self.files.clone_from(&other.files);
        self.take_notes(other);
    }

    /// The same for one of several branches: what the others wrote is not there.
    pub(super) fn take_notes(&mut self, other: &Self) {
        self.called.clone_from(&other.called);
        self.uncalled.clone_from(&other.uncalled);
        if let Some(left) = &other.left
            && !self.left.as_ref().is_some_and(|here| Rc::ptr_eq(here, left))
        {
            let mut left = Self::clone(left);
            if let Some(here) = self.left.take() {
                left.join(Self::clone(&here));
            }
            self.left = Some(Rc::new(left));
        }
    }

    /// The value of this variable is not known any more; where it comes from is.
    pub(crate) fn forget(&mut self, name: &str) {
        let flows = self.variables.get(name).map(|value| value.flows.clone()).unwrap_or_default();
        self.set(name.to_owned(), Value { flows, ..Value::hole(name) });
    }

    /// No variable is known any more.
    pub(crate) fn forget_all(&mut self) {
        let names: Vec<String> = self.variables.keys().cloned().collect();
        for name in names {
            let flows = self.variables.get(&name).map(|value| value.flows.clone()).unwrap_or_default();
            let value = Value { flows, ..Value::hole(&name) };
            self.place(name, value);
        }
    }

    /// The name refers to another variable from here on; where it did before, it is not known which.
    pub(crate) fn refers(&mut self, name: &str, other: Option<String>) {
        match other {
            Some(other) if !self.odd.contains_key(name) => {
                self.make_odd(name.to_owned(), Odd::Names(other));
                self.place(name.to_owned(), Value::hole(name));
            }
            _ => {
                self.make_odd(name.to_owned(), Odd::NamesAny);
                self.forget_all();
            }
        }
    }

    /// A name that refers to another refers to something else from here on.
    pub(crate) fn renames(&mut self, name: &str) {
        if matches!(self.odd.get(name), Some(Odd::Names(_) | Odd::NamesAny)) {
            self.odd.insert(name.to_owned(), Odd::NamesAny);
            self.forget_all();
        }
    }

    /// From here on the variable does not simply take what it is given.
    pub(crate) fn make_odd(&mut self, name: String, odd: Odd) {
        if self.odd.len() < MOST {
            self.odd.insert(name, odd);
        }
    }

    /// Whether the text gave this name a meaning of its own.
    pub(crate) fn has_function(&self, name: &str) -> bool {
        self.functions.contains_key(name) || self.aliases.contains_key(name)
    }

    /// Whether a function is walked.
    pub(crate) fn is_within(&self) -> bool {
        !self.within.is_empty()
    }

    /// The variable is the function's own until it ends.
    pub(crate) fn make_local(&mut self, name: &str) {
        if self.is_within() && !self.locals.contains_key(name) && self.locals.len() < MOST {
            self.renames(name);
            let before = self.held(name);
            self.locals.insert(name.to_owned(), (before, true));
        }
    }

    /// A function begins: what is kept for the one around it.
    pub(super) fn enter(&mut self, name: &str) -> Outside {
        self.within.push(name.to_owned());
        Outside { locals: std::mem::take(&mut self.locals), left: self.left.take() }
    }

    /// A function ends: it may have returned early, and its own variables are gone.
    pub(super) fn leave(&mut self, outside: Outside) {
        self.within.pop();
        self.join_left();
        self.left = outside.left;
        for (name, (before, surely)) in std::mem::replace(&mut self.locals, outside.locals) {
            if surely && matches!(self.odd.get(&name), Some(Odd::Names(_))) {
                self.odd.remove(&name);
            } else {
                self.renames(&name);
            }
            if surely {
                self.restore(name, before);
            } else {
                let mut either = self.held(&name);
                either.or(&name, before);
                self.restore(name, either);
            }
        }
    }

    /// A `return`, `break` or `continue`: what is known here may hold at the end.
    pub(super) fn note_left(&mut self) {
        // What is kept here has one directory, though there may be several.
        self.directory.get();
        let mut here = self.clone();
        if let Some(before) = here.left.take() {
            here.join(Self::clone(&before));
        }
        here.left = None;
        self.left = Some(Rc::new(here));
    }

    /// The end of what a `return`, `break` or `continue` leaves.
    pub(super) fn join_left(&mut self) {
        if let Some(left) = self.left.clone() {
            self.join(Self::clone(&left));
        }
    }

    /// As a trap sees it: variables that had several values since it was set may have any.
    pub(super) fn as_a_trap_sees_it(&mut self) {
        for (name, values) in std::mem::take(&mut self.passed) {
            if values.len() > MOST_PASSED {
                self.forget(&name);
            } else if values.len() > 1 {
                let held = Held::one_of(&name, values.into_iter().map(Some).collect());
                self.restore(name, held);
            }
        }
    }

    /// Remembers what a file holds.
    pub(crate) fn keep(&mut self, path: &str, mut contents: Stream) {
        let mut path = self.key(path);
        if let Some(file) = number_of(&path).and_then(|descriptor| self.outputs.get(&descriptor)) {
            // Behind what is there already, or instead of it.
            path.clone_from(file);
            if let Some(before) = self.files.get(&path) {
                let mut whole = before.clone();
                whole.then(contents.clone());
                contents.or(whole);
            }
        }
        if self.files.len() < MOST || self.files.contains_key(&path) {
            self.several.streams |= !contents.texts.is_empty();
            Rc::make_mut(&mut self.files).insert(path, contents);
        }
    }

    /// What a file holds that the text wrote, or a descriptor that it opened.
    pub(crate) fn file(&self, path: &str) -> Option<&Stream> {
        let key = self.key(path);
        let found = self.files.get(&key).or_else(|| self.descriptors.get(&number_of(&key)?));
        if found.is_some() || path.starts_with('/') || !self.directory.get().is_some_and(Text::has_hole) {
            return found;
        }
        // Where the directory is not known, any file of that name may be the one.
        let name = key.rsplit('/').next()?;
        self.files.iter().find(|(path, _)| path.rsplit('/').next() == Some(name)).map(|(_, stream)| stream)
    }

    /// The files from which this one was copied, or a folder around it, as far as the text shows it; itself not among them.
    pub(crate) fn copied_from(&self, key: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut add = |stream: &Stream, rest: &str| {
            for flow in &stream.flows {
                if let Flow::File { path } = flow
                    && self.key(path) != key
                {
                    found.push(format!("{path}{rest}"));
                }
            }
        };
        if let Some(stream) = self.files.get(key) {
            add(stream, "");
        }
        for (at, _) in key.rmatch_indices('/').filter(|(at, _)| *at > 0) {
            let (folder, rest) = key.split_at(at);
            if let Some(stream) = self.files.get(folder) {
                add(stream, rest);
            }
        }
        found.truncate(8);
        found
    }

    /// The files of this name that the text wrote, wherever they lie.
    pub(crate) fn named_files(&self, name: &str) -> Vec<String> {
        let named = |path: &&String| path.rsplit('/').next() == Some(name);
        self.files.keys().filter(named).take(4).cloned().collect()
    }

    /// One spelling for all that lead to the same file.
    pub(crate) fn key(&self, path: &str) -> String {
        let seen = self.resolve(&Text::known(path)).to_string();
        let whole = match seen.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/')) {
            Some(rest) => format!("{}{rest}", self.home),
            None if seen.starts_with('/') => seen,
            None => format!("{}/{seen}", self.start),
        };
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
        if let ["proc", _, "fd", number] = parts.as_slice() {
            return format!("/dev/fd/{number}");
        }
        format!("/{}", parts.join("/"))
    }

    /// Back from a program that was started: only what it wrote stays.
    pub(crate) fn leave_child(&mut self, mut saved: Self) {
        saved.files = std::mem::take(&mut self.files);
        saved.pipes = std::mem::take(&mut self.pipes);
        saved.called = std::mem::take(&mut self.called);
        saved.notes = std::mem::take(&mut self.notes);
        *self = saved;
    }

    /// What a child sees: what is exported. What is not may still be, where it was before this text.
    pub(crate) fn enter_child(&mut self) {
        // What a name refers to, and what a variable refuses, no child is told.
        self.odd.clear();
        let exported = &self.exported;
        Rc::make_mut(&mut self.functions).retain(|name, _| exported.contains(name));
        let hidden: Vec<String> = self.variables.keys().filter(|name| !exported.contains(*name)).cloned().collect();
        for name in hidden {
            let held = self.held(&name);
            let flows = self.variables.get(&name).map(|value| value.flows.clone()).unwrap_or_default();
            let mut seen = Held::one_of(&name, vec![Some(Value { flows, ..Value::hole(&name) })]);
            // By their names these are usually there already, and then what is set is seen.
            if name.len() > 1 && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_') {
                seen.or(&name, held);
            }
            self.restore(name, seen);
        }
    }
}

/// The number in `/dev/fd/N`.
pub(super) fn number_of(key: &str) -> Option<i32> {
    key.strip_prefix("/dev/fd/").and_then(|number| number.parse().ok())
}
