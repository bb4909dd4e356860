//! After branches: what holds in one or in the other.

use std::rc::Rc;

use super::Scope;
use super::scope::{Functions, MOST_PASSED, Odd};

impl Scope {
    /// After a branch that may or may not have been taken: either of the two holds.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.join_variables(&other);
        self.join_functions(&other);
        self.join_aliases(&other);
        self.join_directories(&mut other);
        self.join_arguments(&mut other);
        for name in other.called {
            if !self.called.contains(&name) {
                self.called.push(name);
            }
        }
        for pipe in other.pipes {
            if !self.pipes.contains(&pipe) {
                self.pipes.push(pipe);
            }
        }
        self.several.streams |= other.several.streams;
        if !Rc::ptr_eq(&self.files, &other.files) {
            for (path, stream) in other.files.iter() {
                let mut joined = stream.clone();
                if let Some(here) = self.files.get(path).filter(|here| *here != stream) {
                    joined.or(here.clone());
                }
                self.keep(path, joined);
            }
        }
        for (descriptor, stream) in other.descriptors {
            match self.descriptors.get_mut(&descriptor) {
                Some(here) => here.or(stream),
                None => {
                    self.descriptors.insert(descriptor, stream);
                }
            }
        }
        self.notes.join(other.notes);
        for (descriptor, others) in other.coprocesses {
            let here = self.coprocesses.entry(descriptor).or_default();
            for other in others {
                if !here.iter().any(|known| known.is(&other)) {
                    here.push(other);
                }
            }
        }
        self.lasting.join(other.lasting);
        for (descriptor, path) in other.outputs {
            self.outputs.entry(descriptor).or_insert(path);
        }
        for (name, local) in &mut self.locals {
            local.1 &= other.locals.get(name).is_some_and(|other| other.1);
        }
        for (name, (before, _)) in other.locals {
            self.locals.entry(name).or_insert((before, false));
        }
        for (name, odd) in &mut self.odd {
            if other.odd.get(name) != Some(odd) && *odd != Odd::Changes {
                *odd = Odd::NamesAny;
            }
        }
        for (name, odd) in other.odd {
            let odd = match self.odd.get(&name) {
                Some(here) if *here == odd => odd,
                None if odd == Odd::Changes => odd,
                _ => Odd::NamesAny,
            };
            self.odd.insert(name, odd);
        }
        self.left = match (self.left.take(), other.left) {
            (Some(here), Some(there)) if !Rc::ptr_eq(&here, &there) => {
                let mut left = Self::clone(&there);
                left.join(Self::clone(&here));
                Some(Rc::new(left))
            }
            (here, there) => here.or(there),
        };
        for trap in other.traps {
            if !self.traps.contains(&trap) {
                self.traps.push(trap);
            }
        }
        for (name, values) in other.passed {
            let passed = self.passed.entry(name).or_default();
            for value in values {
                if passed.len() <= MOST_PASSED && !passed.contains(&value) {
                    passed.push(value);
                }
            }
        }
        if !Rc::ptr_eq(&self.exported, &other.exported) {
            other.exported.iter().for_each(|name| self.export(name));
        }
        self.exports_all |= other.exports_all;
        self.last_stays |= other.last_stays;
    }

    fn join_functions(&mut self, other: &Self) {
        if Rc::ptr_eq(&self.functions, &other.functions) {
            return self.join_uncalled(other);
        }
        let here = Rc::make_mut(&mut self.functions);
        for (name, functions) in here.iter_mut() {
            match other.functions.get(name) {
                Some(others) => functions.add(others),
                None => functions.perhaps = true,
            }
        }
        for (name, functions) in other.functions.iter() {
            if !here.contains_key(name) {
                here.insert(name.clone(), Functions { perhaps: true, ..functions.clone() });
            }
        }
        self.join_uncalled(other);
    }

    fn join_uncalled(&mut self, other: &Self) {
        for (name, function) in &other.uncalled {
            if !self.uncalled.iter().any(|(_, known)| Rc::ptr_eq(&known.body, &function.body)) {
                self.uncalled.push((name.clone(), Rc::clone(function)));
            }
        }
    }
}
