//! Where the contents of a value come from, and what it was made of that can act: small sets that values share until one of them
//! learns more.

use std::rc::Rc;

use super::few::Few;
use crate::analysis::Flow;

/// Different sources of data.
const FLOWS: usize = 16;
/// Functions and modules that one value may be made of. With more, it may be anything.
const ABILITIES: usize = 16;
/// More functions than are told apart.
pub(crate) const MANY: &str = "(many)";

/// Sets of sources and of abilities, the sources in their order. A copy is the same sets, so that handing a value on costs nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flows {
    sources: Few<Rc<Flow>>,
    /// Functions that act, and modules that have such, by full name. Called, the value may be any of them, whoever handed it on.
    abilities: Few<Rc<str>>,
    /// Functions of the program that somebody unknown was given who gave this back.
    own: Few<usize>,
}

impl Flows {
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty() && self.abilities.is_empty() && self.own.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.sources.iter().map(|flow| &**flow)
    }

    pub(crate) fn abilities(&self) -> &Few<Rc<str>> {
        &self.abilities
    }

    pub(crate) fn own(&self) -> &Few<usize> {
        &self.own
    }

    /// Whether both share their sets.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.sources.is_same(&other.sources) && self.abilities.is_same(&other.abilities) && self.own.is_same(&other.own)
    }

    /// Whether the other has nothing that this has not, or that would make no difference.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        (self.sources.len() >= FLOWS || other.sources_within(self))
            && (self.abilities.len() > ABILITIES || other.abilities_within(self))
    }

    /// Whether the other was handed no function of the program to somebody unknown that this was not, or that would find room.
    pub(crate) fn covers_own(&self, other: &Self) -> bool {
        other.own.is_same(&self.own)
            || self.own.len() >= ABILITIES
            || other.own.iter().all(|number| self.own.contains(number))
    }

    fn sources_within(&self, other: &Self) -> bool {
        self.sources.is_same(&other.sources)
            || (self.sources.len() <= other.sources.len() && {
                // Both are in order, so that one look through the other is enough.
                let mut rest = other.sources.iter();
                self.sources.iter().all(|flow| rest.any(|known| Rc::ptr_eq(known, flow) || known == flow))
            })
    }

    fn abilities_within(&self, other: &Self) -> bool {
        self.abilities.is_same(&other.abilities)
            || (self.abilities.len() <= other.abilities.len()
                && self.abilities.iter().all(|name| other.abilities.contains(name)))
    }

    fn has(&self, flow: &Rc<Flow>) -> bool {
        self.sources.iter().any(|known| Rc::ptr_eq(known, flow)) || self.iter().any(|known| *known == **flow)
    }

    /// Adds one, where there is room.
    pub(crate) fn add(&mut self, flow: &Flow) {
        if self.sources.len() < FLOWS && !self.iter().any(|known| known == flow) {
            self.insert(Rc::new(flow.clone()));
        }
    }

    /// Adds a function that acts, or a module that has such.
    pub(crate) fn add_ability(&mut self, name: &Rc<str>) {
        if self.abilities.contains(name) {
            return;
        }
        if self.abilities.len() < ABILITIES {
            self.abilities.push(Rc::clone(name));
        } else if self.abilities.len() == ABILITIES {
            self.abilities.push(MANY.into());
        }
    }

    /// Forgets abilities that something has by its very name.
    pub(crate) fn forget_abilities(&mut self, names: &Few<Rc<str>>) {
        if self.abilities.iter().any(|name| names.contains(name)) {
            self.abilities = self.abilities.iter().filter(|name| !names.contains(name)).cloned().collect();
        }
    }

    /// Adds functions of the program that were handed to somebody unknown.
    pub(crate) fn add_own(&mut self, functions: &Few<usize>) {
        self.own.add_all(functions, ABILITIES);
    }

    /// Adds all of another, where there is room.
    pub(crate) fn add_all(&mut self, other: &Self) {
        self.add_sources(other);
        self.add_abilities(other);
    }

    /// Adds what another was made of that can act.
    pub(crate) fn add_abilities(&mut self, other: &Self) {
        if self.abilities.is_empty() {
            self.abilities = other.abilities.clone();
        } else if !other.abilities.is_same(&self.abilities) {
            other.abilities.iter().for_each(|name| self.add_ability(name));
        }
    }

    /// Adds where another's contents come from.
    pub(crate) fn add_sources(&mut self, other: &Self) {
        if other.sources_within(self) {
            return;
        }
        if self.sources_within(other) {
            self.sources = other.sources.clone();
            return;
        }
        let room = FLOWS.saturating_sub(self.sources.len());
        let new: Vec<&Rc<Flow>> = other.sources.iter().filter(|flow| !self.has(flow)).take(room).collect();
        if !new.is_empty() {
            let mut all: Vec<Rc<Flow>> = self.sources.iter().chain(new).cloned().collect();
            all.sort_unstable();
            self.sources = all.into();
        }
    }

    fn insert(&mut self, flow: Rc<Flow>) {
        let at = self.sources.iter().position(|known| **known > *flow).unwrap_or(self.sources.len());
        self.sources.insert(at, flow);
    }
}
