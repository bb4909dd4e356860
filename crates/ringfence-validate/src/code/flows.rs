//! Where the contents of a value come from: a small set that values share until one of them learns more.

use std::rc::Rc;

use super::few::Few;
use crate::analysis::Flow;

/// Different sources of data.
const FLOWS: usize = 16;

/// A set of sources, in their order. A copy is the same set, so that handing a value on costs nothing.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flows(Few<Rc<Flow>>);

impl Flows {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one more makes no difference.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() >= FLOWS
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.0.iter().map(|flow| &**flow)
    }

    pub(crate) fn is_subset(&self, other: &Self) -> bool {
        self.0.is_same(&other.0) || self.0.iter().all(|flow| other.has(flow))
    }

    fn has(&self, flow: &Rc<Flow>) -> bool {
        self.0.iter().any(|known| Rc::ptr_eq(known, flow)) || self.iter().any(|known| *known == **flow)
    }

    /// Adds one, where there is room.
    pub(crate) fn add(&mut self, flow: &Flow) {
        if !self.is_full() && !self.iter().any(|known| known == flow) {
            self.insert(Rc::new(flow.clone()));
        }
    }

    /// Adds all of another set, where there is room.
    pub(crate) fn add_all(&mut self, other: &Self) {
        if other.is_subset(self) {
            return;
        }
        if self.is_subset(other) {
            self.0 = other.0.clone();
            return;
        }
        for flow in &other.0 {
            if !self.is_full() && !self.has(flow) {
                self.insert(Rc::clone(flow));
            }
        }
    }

    fn insert(&mut self, flow: Rc<Flow>) {
        let at = self.0.iter().position(|known| **known > *flow).unwrap_or(self.0.len());
        self.0.insert(at, flow);
    }
}
