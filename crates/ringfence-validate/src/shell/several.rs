//! What may hold after branches: each of the values, not only that they differ. Whoever uses one takes them in turn (see [`ways`](super::ways)).

use std::collections::BTreeMap;
use std::rc::Rc;

use super::Scope;
use super::value::Value;
use crate::span::Span;
use crate::stream::Argument;
use crate::text::{Hole, Text};

/// Values of one variable, at most; one that may have more is not known.
const MOST_VALUES: usize = 24;
/// Lists of arguments.
const MOST_LISTS: usize = 8;

/// What may hold instead of what the scope says, which is then a hole.
#[derive(Debug, Clone, Default)]
pub(super) struct Several {
    variables: Rc<BTreeMap<String, Vec<Option<Value>>>>,
    pub(super) directories: Vec<Option<Text>>,
    arguments: Vec<Vec<Argument>>,
    aliases: BTreeMap<String, Vec<Option<String>>>,
    /// A file or descriptor may hold several texts.
    pub(super) streams: bool,
}

/// What a variable is, wherever that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Held {
    value: Option<Value>,
    /// One of these; nothing in it where it is not set.
    values: Vec<Option<Value>>,
}

impl Held {
    /// One of these values.
    pub(super) fn one_of(name: &str, mut values: Vec<Option<Value>>) -> Self {
        if values.len() == 1 {
            return Self { value: values.pop().flatten(), values };
        }
        let mut value = Value::hole(name);
        for flow in values.iter().flatten().flat_map(|value| &value.flows) {
            if !value.flows.contains(flow) {
                value.flows.push(flow.clone());
            }
        }
        let length: usize = values.iter().flatten().flat_map(|value| &value.fields).map(Text::length).sum();
        if values.len() > MOST_VALUES || length > Text::LONGEST {
            values = Vec::new();
        }
        Self { value: Some(value), values }
    }

    fn all(&self) -> Vec<Option<Value>> {
        if self.values.is_empty() { vec![self.value.clone()] } else { self.values.clone() }
    }

    /// This or another.
    pub(super) fn or(&mut self, name: &str, other: Self) {
        if *self == other {
            return;
        }
        let mut values = self.all();
        for value in other.all() {
            if !values.contains(&value) {
                values.push(value);
            }
        }
        *self = Self::one_of(name, values);
    }
}

impl Several {
    pub(super) fn is_empty(&self) -> bool {
        self.variables.is_empty()
            && self.directories.is_empty()
            && self.arguments.is_empty()
            && self.aliases.is_empty()
            && !self.streams
    }

    /// The variable has one value again.
    pub(super) fn settle(&mut self, name: &str) {
        if self.variables.contains_key(name) {
            Rc::make_mut(&mut self.variables).remove(name);
        }
    }
}

impl Scope {
    pub(super) fn held(&self, name: &str) -> Held {
        Held {
            value: self.variables.get(name).cloned(),
            values: self.several.variables.get(name).cloned().unwrap_or_default(),
        }
    }

    /// Whether all that the variable may hold begin with a path, also where they are split into words.
    pub(super) fn holds_a_path(&self, name: &str) -> bool {
        let begins = |text: &Text| text.known_start().split_whitespace().next().is_some_and(|word| word.contains('/'));
        let is_path = |value: &Option<Value>| {
            value.as_ref().is_some_and(|value| !value.fields.is_empty() && value.fields.iter().all(begins))
        };
        !self.variables.contains_key("IFS") && self.held(name).all().iter().all(is_path)
    }

    /// Sets variables for one command, which exports them; what they were.
    pub(crate) fn set_for_one(&mut self, environment: &[(String, Value, Span)]) -> Vec<(String, Held)> {
        let before = environment.iter().map(|(name, _, _)| (name.clone(), self.held(name))).collect();
        for (name, value, _) in environment {
            self.export(name);
            self.set(name.clone(), value.clone());
        }
        before
    }

    /// The variables are what they were.
    pub(crate) fn set_back(&mut self, before: Vec<(String, Held)>) {
        before.into_iter().for_each(|(name, held)| self.restore(name, held));
    }

    pub(super) fn restore(&mut self, name: String, held: Held) {
        match held.value {
            Some(value) => self.place(name.clone(), value),
            None => {
                self.several.settle(&name);
                Rc::make_mut(&mut self.variables).remove(&name);
            }
        }
        if !held.values.is_empty() && self.variables.contains_key(&name) {
            Rc::make_mut(&mut self.several.variables).insert(name, held.values);
        }
    }

    /// How many values the variable may have, where that is more than one.
    pub(crate) fn values_of(&self, name: &str) -> Option<usize> {
        self.several.variables.get(name).map(Vec::len)
    }

    /// The variable has this one of its values.
    pub(crate) fn take_value(&mut self, name: &str, index: usize) {
        let value = self.several.variables.get(name).and_then(|values| values.get(index)).cloned().flatten();
        self.several.settle(name);
        let variables = Rc::make_mut(&mut self.variables);
        match value {
            Some(value) => variables.insert(name.to_owned(), value),
            None => variables.remove(name),
        };
    }

    /// How many lists of arguments there may be, where that is more than one.
    pub(crate) fn lists_of_arguments(&self) -> usize {
        self.several.arguments.len()
    }

    /// These are the arguments; nothing where it is not known which.
    pub(crate) fn take_arguments(&mut self, index: Option<usize>) {
        let lists = std::mem::take(&mut self.several.arguments);
        if let Some(arguments) = index.and_then(|index| lists.into_iter().nth(index)) {
            self.arguments = arguments;
        }
    }

    /// How many lines an alias may stand for.
    pub(super) fn lines_of(&self, alias: &str) -> Option<usize> {
        self.several.aliases.get(alias).map(Vec::len)
    }

    /// The alias stands for this line.
    pub(super) fn take_line(&mut self, alias: &str, index: usize) {
        let Some(lines) = self.several.aliases.remove(alias) else { return };
        match lines.into_iter().nth(index).flatten() {
            Some(line) => self.aliases.insert(alias.to_owned(), line),
            None => self.aliases.remove(alias),
        };
    }

    /// The alias stands for one line again.
    pub(crate) fn set_alias(&mut self, alias: &str, line: &str) {
        self.several.aliases.remove(alias);
        self.aliases.insert(alias.to_owned(), line.to_owned());
    }

    /// The alias is gone, or all of them.
    pub(crate) fn unset_alias(&mut self, alias: Option<&str>) {
        match alias {
            Some(alias) => {
                self.several.aliases.remove(alias);
                self.aliases.remove(alias);
            }
            None => {
                self.several.aliases.clear();
                self.aliases.clear();
            }
        }
    }

    pub(super) fn join_variables(&mut self, other: &Self) {
        if Rc::ptr_eq(&self.variables, &other.variables)
            && Rc::ptr_eq(&self.several.variables, &other.several.variables)
        {
            return;
        }
        let mut names: Vec<&String> = self
            .variables
            .keys()
            .filter(|name| self.variables.get(*name) != other.variables.get(*name))
            .chain(other.variables.keys().filter(|name| !self.variables.contains_key(*name)))
            .chain(
                self.several
                    .variables
                    .keys()
                    .chain(other.several.variables.keys())
                    .filter(|name| self.several.variables.get(*name) != other.several.variables.get(*name)),
            )
            .collect();
        names.sort_unstable();
        names.dedup();
        let joined: Vec<(String, Held)> = names
            .into_iter()
            .map(|name| {
                let mut held = self.held(name);
                held.or(name, other.held(name));
                (name.clone(), held)
            })
            .collect();
        // Not `restore`: a join is no change that a trap would see.
        for (name, held) in joined {
            self.several.settle(&name);
            let Some(value) = held.value else { continue };
            Rc::make_mut(&mut self.variables).insert(name.clone(), value.bounded(&name));
            if !held.values.is_empty() {
                Rc::make_mut(&mut self.several.variables).insert(name, held.values);
            }
        }
    }

    pub(super) fn join_arguments(&mut self, other: &mut Self) {
        if self.arguments == other.arguments && self.several.arguments == other.several.arguments {
            return;
        }
        let all = |scope: &mut Self| {
            let lists = std::mem::take(&mut scope.several.arguments);
            if lists.is_empty() { vec![scope.arguments.clone()] } else { lists }
        };
        let mut lists = all(self);
        for list in all(other) {
            if !lists.contains(&list) {
                lists.push(list);
            }
        }
        self.mix_arguments(std::mem::take(&mut other.arguments));
        if (2..=MOST_LISTS).contains(&lists.len()) {
            self.several.arguments = lists;
        }
    }

    /// One list that stands for both: what differs is a hole.
    fn mix_arguments(&mut self, others: Vec<Argument>) {
        if self.arguments == others {
            return;
        }
        let same = self.arguments.len() == others.len();
        let (mut all, fewer) = if self.arguments.len() >= others.len() {
            (std::mem::take(&mut self.arguments), others)
        } else {
            (others, std::mem::take(&mut self.arguments))
        };
        for (index, argument) in all.iter_mut().enumerate() {
            let other = fewer.get(index);
            if !same || other.is_none_or(|other| other.text != argument.text) {
                argument.text = Text::hole(Hole::Value);
            }
            argument.flows.extend(other.into_iter().flat_map(|other| other.flows.clone()));
            argument.flows.dedup();
        }
        self.arguments = all;
    }

    pub(super) fn join_aliases(&mut self, other: &Self) {
        if self.aliases == other.aliases && self.several.aliases == other.several.aliases {
            return;
        }
        let all = |scope: &Self, name: &String| {
            scope.several.aliases.get(name).cloned().unwrap_or_else(|| vec![scope.aliases.get(name).cloned()])
        };
        let names: Vec<String> = self.aliases.keys().chain(other.aliases.keys()).cloned().collect();
        for name in names {
            let mut lines = all(self, &name);
            for line in all(other, &name) {
                if !lines.contains(&line) {
                    lines.push(line);
                }
            }
            if let Some(line) = lines.iter().flatten().next() {
                self.aliases.insert(name.clone(), line.clone());
            }
            if lines.len() > 1 {
                lines.truncate(MOST_VALUES);
                self.several.aliases.insert(name, lines);
            }
        }
    }
}
