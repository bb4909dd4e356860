//! The names of one scope and what they hold, and the names of modules.

use std::rc::Rc;

use super::quick::{SecretMap, SecretSet};
use super::value::Held;

/// Names that are looked through one by one, which is faster than a table as long as they are few. Most scopes have no more.
const FEW: usize = 8;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) now: Held,
    /// Everything that it ever held: a function that sees it may run at any time.
    pub(super) ever: Held,
}

#[derive(Debug, Default)]
pub(super) struct Names {
    first: Vec<(Rc<str>, Entry)>,
    others: SecretMap<Rc<str>, Entry>,
}

impl Names {
    pub(super) fn get(&self, name: &str) -> Option<&Entry> {
        let first = self.first.iter().find(|(known, _)| &**known == name).map(|(_, entry)| entry);
        first.or_else(|| self.others.get(name))
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut Entry> {
        match self.first.iter_mut().find(|(known, _)| &**known == name) {
            Some((_, entry)) => Some(entry),
            None => self.others.get_mut(name),
        }
    }

    /// Adds a name that is not there.
    pub(super) fn add(&mut self, name: Rc<str>, entry: Entry) {
        if self.first.len() < FEW {
            self.first.push((name, entry));
        } else {
            self.others.insert(name, entry);
        }
    }

    /// Each name with what it holds now.
    pub(super) fn all(self) -> impl Iterator<Item = (Rc<str>, Held)> {
        self.first.into_iter().chain(self.others).map(|(name, entry)| (name, entry.now))
    }
}

/// Modules. Nearly every name of a program is looked for here, and most programs have few.
#[derive(Debug, Default)]
pub(super) struct Modules {
    first: Vec<String>,
    others: SecretSet<String>,
}

impl Modules {
    pub(super) fn contains(&self, name: &str) -> bool {
        self.first.iter().any(|known| known == name) || self.others.contains(name)
    }

    /// Whether it is one of them, or something of one.
    pub(super) fn has_around(&self, name: &str) -> bool {
        let is_around = |known: &String| {
            name.strip_prefix(known.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.first.iter().any(is_around)
            || (!self.others.is_empty()
                && (self.others.contains(name)
                    || name.match_indices('.').any(|(at, _)| self.others.contains(&name[..at]))))
    }

    pub(super) fn insert(&mut self, name: String) {
        if self.contains(&name) {
            return;
        }
        if self.first.len() < FEW {
            self.first.push(name);
        } else {
            self.others.insert(name);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.first.len() + self.others.len()
    }
}
