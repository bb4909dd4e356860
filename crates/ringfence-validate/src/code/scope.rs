//! Which name holds what, where.

use std::rc::Rc;

use super::names::{Entry, Names};
use super::quick::{SecretMap, SecretSet};
use super::value::{Held, Learned, Value};
use crate::text::Text;

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
pub(super) struct Scope {
    of: Of,
    number: usize,
    names: Names,
    /// Names of scopes around that are assigned to here.
    outer: SecretSet<Rc<str>>,
}

/// What something may hold anywhere in the program.
#[derive(Debug)]
struct Anywhere {
    name: Rc<str>,
    held: Held,
    /// It was looked at since the program was last gone over from its start.
    looked_at: bool,
}

/// The scope that a function stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Home {
    pub(super) depth: usize,
    number: usize,
}

/// All names of a program.
#[derive(Debug)]
pub(super) struct Scopes {
    stack: Vec<Scope>,
    entered: usize,
    /// What each name holds anywhere in the file: for names that are used above the place where they are set.
    everywhere: SecretMap<Rc<str>, Anywhere>,
    /// What each attribute of the program's own objects holds.
    attributes: SecretMap<Rc<str>, Anywhere>,
    /// What functions put into names of scopes around them, whenever they are called.
    captured: SecretMap<Rc<str>, Anywhere>,
    /// Something was learned after it had been looked at.
    pub(super) stale: bool,
}

impl Scopes {
    pub(super) fn new() -> Self {
        let mut scopes = Self {
            stack: Vec::new(),
            entered: 0,
            everywhere: SecretMap::default(),
            attributes: SecretMap::default(),
            captured: SecretMap::default(),
            stale: false,
        };
        scopes.enter(Of::File);
        scopes
    }

    /// From the top of the file once more, with what was learned.
    pub(super) fn again(&mut self) {
        self.stack.clear();
        self.enter(Of::File);
        self.stale = false;
        let tables = self.everywhere.values_mut().chain(self.attributes.values_mut());
        for known in tables.chain(self.captured.values_mut()) {
            known.looked_at = false;
        }
    }

    pub(super) fn enter(&mut self, of: Of) {
        self.entered += 1;
        self.stack.push(Scope { of, number: self.entered, names: Names::default(), outer: SecretSet::default() });
    }

    /// Leaves the innermost scope, and gives what its names hold.
    pub(super) fn leave(&mut self) -> Vec<(Rc<str>, Held)> {
        self.stack.pop().map(|scope| scope.names.all().collect()).unwrap_or_default()
    }

    /// Leaves the innermost scope.
    pub(super) fn forget(&mut self) {
        self.stack.pop();
    }

    pub(super) fn depth(&self) -> usize {
        self.stack.len()
    }

    /// The scope that a function which is made here can see.
    pub(super) fn home(&self) -> Home {
        let at = self.stack.iter().rposition(|scope| scope.of != Of::Class).unwrap_or(0);
        Home { depth: at + 1, number: self.stack.get(at).map_or(0, |scope| scope.number) }
    }

    /// Lays aside the scopes that a function of `home` cannot see; nothing if its home is left already.
    pub(super) fn aside(&mut self, home: Home) -> Option<Vec<Scope>> {
        let there = self.stack.get(home.depth.checked_sub(1)?)?.number == home.number;
        there.then(|| self.stack.split_off(home.depth))
    }

    pub(super) fn back(&mut self, aside: Vec<Scope>) {
        self.stack.extend(aside);
    }

    /// What `name` holds where it can be seen from here.
    pub(super) fn visible(&self, name: &str) -> Option<&Held> {
        let innermost = self.stack.len().saturating_sub(1);
        let mut beyond = false;
        for (at, scope) in self.stack.iter().enumerate().rev() {
            if (scope.of != Of::Class || at == innermost)
                && let Some(entry) = scope.names.get(name)
            {
                return Some(if beyond { &entry.ever } else { &entry.now });
            }
            beyond |= scope.of == Of::Function;
        }
        None
    }

    /// What functions put into `name`.
    pub(super) fn captured(&mut self, name: &str) -> Option<&Held> {
        look_at(&mut self.captured, name)
    }

    /// What `name` holds anywhere.
    pub(super) fn anywhere(&mut self, name: &str) -> Option<&Held> {
        look_at(&mut self.everywhere, name)
    }

    /// What an attribute holds so far.
    pub(super) fn attribute_now(&self, name: &str) -> Option<&Held> {
        self.attributes.get(name).map(|known| &known.held)
    }

    pub(super) fn attribute(&mut self, name: &str) -> Option<&Held> {
        look_at(&mut self.attributes, name)
    }

    /// What attributes may be called by that have such a name: functions alone, whoever they belong to.
    pub(super) fn attributes_like(&mut self, name: &Text) -> Value {
        let (start, end) = (name.known_start(), name.known_end());
        // Within a class, `__name` is what `_Class__name` is from outside.
        let inner = start.strip_prefix('_').and_then(|rest| rest.find("__").map(|at| &rest[at..]));
        let fits = |name: &str| {
            (name.starts_with(start) || inner.is_some_and(|inner| name.starts_with(inner))) && name.ends_with(end)
        };
        let mut found = Value::default();
        let mut all: Vec<&mut Anywhere> = self.attributes.values_mut().filter(|known| fits(&known.name)).collect();
        all.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        for known in all {
            known.looked_at = true;
            let held = &known.held;
            if held.names.is_empty() && held.functions.is_empty() && held.flows.abilities().is_empty() {
                continue;
            }
            found =
                found.or(&Value { names: held.names.clone(), functions: held.functions.clone(), ..Value::default() });
            found.flows.add_abilities(&held.flows);
        }
        found
    }

    pub(super) fn set_attribute(&mut self, name: &str, value: &Held) {
        self.stale |= add(&mut self.attributes, name, value).1;
    }

    /// Whether anything was learned that a second look could use.
    pub(super) fn has_attributes(&self) -> bool {
        !self.attributes.is_empty()
    }

    /// These names mean those of a scope around.
    pub(super) fn declare_outer(&mut self, names: &[String]) {
        if let Some(scope) = self.stack.last_mut() {
            scope.outer.extend(names.iter().map(|name| Rc::from(name.as_str())));
        }
    }

    /// Gives a name of this scope a value.
    pub(super) fn set_here(&mut self, name: &str, value: Held, sure: Sure) {
        if self.stack.last().is_some_and(|scope| !scope.outer.is_empty() && scope.outer.contains(name)) {
            return self.set_around(name, value, Sure::Perhaps);
        }
        let (name, news) = add(&mut self.everywhere, name, &value);
        self.stale |= news;
        let before = match sure {
            Sure::Always => None,
            Sure::Perhaps => self.visible(&name).cloned(),
        };
        if let Some(scope) = self.stack.last_mut() {
            put(&mut scope.names, name, value, before.as_ref());
        }
    }

    /// Gives a name a value where it was made; in the file if it was not.
    pub(super) fn set_around(&mut self, name: &str, value: Held, sure: Sure) {
        let (name, news) = add(&mut self.everywhere, name, &value);
        self.stale |= news;
        let (mut sure, mut within_function) = (sure, false);
        let innermost = self.stack.len().saturating_sub(1);
        for at in (0..self.stack.len()).rev() {
            let scope = &self.stack[at];
            let declared_outer = at == innermost && !scope.outer.is_empty() && scope.outer.contains(&*name);
            if at == 0 || (!declared_outer && scope.names.get(&name).is_some()) {
                if within_function {
                    self.stale |= add(&mut self.captured, &name, &value).1;
                }
                let before = match sure {
                    Sure::Always => None,
                    Sure::Perhaps => scope.names.get(&name).map(|entry| Rc::clone(&entry.now)),
                };
                return put(&mut self.stack[at].names, name, value, before.as_ref());
            }
            // From within a function it is not known when it happens.
            if scope.of == Of::Function {
                sure = Sure::Perhaps;
                within_function = true;
            }
        }
    }

    /// Gives a name of the whole program a value, by way of an object that holds those.
    pub(super) fn set_global(&mut self, name: &str, value: &Held) {
        let (name, news) = add(&mut self.everywhere, name, value);
        self.stale |= news;
        if let Some(file) = self.stack.first_mut() {
            let before = file.names.get(&name).map(|entry| Rc::clone(&entry.now));
            put(&mut file.names, name, Rc::clone(value), before.as_ref());
        }
    }
}

fn put(names: &mut Names, name: Rc<str>, value: Held, before: Option<&Held>) {
    let now = match before {
        Some(before) => joined(before, &value),
        None => value,
    };
    match names.get_mut(&name) {
        Some(entry) => {
            entry.ever = joined(&entry.ever, &now);
            entry.now = now;
        }
        None => names.add(name, Entry { ever: Rc::clone(&now), now }),
    }
}

/// Either of both.
pub(super) fn joined(before: &Held, value: &Held) -> Held {
    if Rc::ptr_eq(before, value) || before.has_all_of(value) {
        Rc::clone(before)
    } else {
        Rc::new(Value::clone(before).or(value))
    }
}

fn look_at<'t>(table: &'t mut SecretMap<Rc<str>, Anywhere>, name: &str) -> Option<&'t Held> {
    let known = table.get_mut(name)?;
    known.looked_at = true;
    Some(&known.held)
}

/// Adds to what is known; the name, and whether that is news to somebody.
fn add(table: &mut SecretMap<Rc<str>, Anywhere>, name: &str, value: &Held) -> (Rc<str>, bool) {
    match table.get_mut(name) {
        Some(known) => {
            if Rc::ptr_eq(&known.held, value) {
                return (Rc::clone(&known.name), false);
            }
            let learned = known.held.learns(value);
            if learned != Learned::Nothing {
                known.held = Rc::new(Value::clone(&known.held).or(value));
            }
            (Rc::clone(&known.name), learned == Learned::News && known.looked_at)
        }
        None => {
            let name: Rc<str> = name.into();
            let known = Anywhere { name: Rc::clone(&name), held: Rc::clone(value), looked_at: false };
            table.insert(Rc::clone(&name), known);
            (name, false)
        }
    }
}
