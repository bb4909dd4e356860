//! Which name holds what, where.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::value::{Held, Value};

/// What a scope belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    File,
    Function,
    /// Its names are attributes, and cannot be seen from its functions.
    Class,
    Block,
}

/// How surely an assignment happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sure {
    /// What was there before is gone.
    Always,
    /// In a branch, a loop, or at a time that is not known: what was there before may still be.
    Perhaps,
}

#[derive(Debug)]
struct Scope {
    of: Of,
    names: HashMap<String, Held>,
    /// Names of scopes around that are assigned to here.
    outer: HashSet<String>,
}

/// All names of a program.
#[derive(Debug)]
pub(super) struct Scopes {
    stack: Vec<Scope>,
    /// What each name holds anywhere in the file: for names that are used above the place where they are set.
    everywhere: HashMap<String, Held>,
    /// What each attribute of the program's own objects holds.
    attributes: HashMap<String, Held>,
}

impl Scopes {
    pub(super) fn new() -> Self {
        let mut scopes = Self { stack: Vec::new(), everywhere: HashMap::new(), attributes: HashMap::new() };
        scopes.enter(Of::File);
        scopes
    }

    /// From the top of the file once more, with what was learned.
    pub(super) fn again(&mut self) {
        self.stack.clear();
        self.enter(Of::File);
    }

    pub(super) fn enter(&mut self, of: Of) {
        self.stack.push(Scope { of, names: HashMap::new(), outer: HashSet::new() });
    }

    /// Leaves the innermost scope, and gives what its names hold.
    pub(super) fn leave(&mut self) -> Vec<(String, Held)> {
        self.stack.pop().map(|scope| scope.names.into_iter().collect()).unwrap_or_default()
    }

    /// What `name` holds where it can be seen from here.
    pub(super) fn visible(&self, name: &str) -> Option<&Held> {
        let innermost = self.stack.len().saturating_sub(1);
        self.stack
            .iter()
            .enumerate()
            .rev()
            .filter(|(at, scope)| scope.of != Of::Class || *at == innermost)
            .find_map(|(_, scope)| scope.names.get(name))
    }

    /// What `name` holds anywhere.
    pub(super) fn anywhere(&self, name: &str) -> Option<&Held> {
        self.everywhere.get(name)
    }

    pub(super) fn attribute(&self, name: &str) -> Option<&Held> {
        self.attributes.get(name)
    }

    pub(super) fn set_attribute(&mut self, name: &str, value: &Held) {
        add(&mut self.attributes, name, value);
    }

    /// These names mean those of a scope around.
    pub(super) fn declare_outer(&mut self, names: &[String]) {
        if let Some(scope) = self.stack.last_mut() {
            scope.outer.extend(names.iter().cloned());
        }
    }

    /// Gives a name of this scope a value.
    pub(super) fn set_here(&mut self, name: &str, value: Held, sure: Sure) {
        if self.stack.last().is_some_and(|scope| scope.outer.contains(name)) {
            return self.set_around(name, value, Sure::Perhaps);
        }
        add(&mut self.everywhere, name, &value);
        let before = self.visible(name).cloned();
        if let Some(scope) = self.stack.last_mut() {
            put(&mut scope.names, name, value, before.as_ref(), sure);
        }
    }

    /// Gives a name a value where it was made; in the file if it was not.
    pub(super) fn set_around(&mut self, name: &str, value: Held, sure: Sure) {
        add(&mut self.everywhere, name, &value);
        let mut beyond = Sure::Always;
        let innermost = self.stack.len().saturating_sub(1);
        for at in (0..self.stack.len()).rev() {
            let declared_outer = at == innermost && self.stack[at].outer.contains(name);
            if (self.stack[at].names.contains_key(name) && !declared_outer) || at == 0 {
                let sure = if beyond == Sure::Perhaps { Sure::Perhaps } else { sure };
                let before = self.stack[at].names.get(name).cloned();
                return put(&mut self.stack[at].names, name, value, before.as_ref(), sure);
            }
            // From within a function it is not known when it happens.
            if self.stack[at].of == Of::Function {
                beyond = Sure::Perhaps;
            }
        }
    }
}

fn put(names: &mut HashMap<String, Held>, name: &str, value: Held, before: Option<&Held>, sure: Sure) {
    let value = match (sure, before) {
        (Sure::Perhaps, Some(before)) if !Rc::ptr_eq(before, &value) => Rc::new((**before).clone().or(&value)),
        _ => value,
    };
    match names.get_mut(name) {
        Some(held) => *held = value,
        None => {
            names.insert(name.to_owned(), value);
        }
    }
}

fn add(table: &mut HashMap<String, Held>, name: &str, value: &Held) {
    match table.get_mut(name) {
        Some(held) if Rc::ptr_eq(held, value) => {}
        Some(held) => *held = Rc::new(Value::clone(held).or(value)),
        None => {
            table.insert(name.to_owned(), Rc::clone(value));
        }
    }
}
