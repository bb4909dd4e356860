//! A few things of one kind, shared by all values that hold them until one of them changes.

use std::ops::Deref;
use std::rc::Rc;

/// Mostly none or one. A copy is the same list, so that handing a value on costs nothing.
#[derive(Debug)]
pub(crate) struct Few<T>(Option<Rc<[T]>>);

impl<T> Default for Few<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Clone for Few<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl<T> From<Vec<T>> for Few<T> {
    fn from(all: Vec<T>) -> Self {
        Self((!all.is_empty()).then(|| all.into()))
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        all.into_iter().collect::<Vec<T>>().into()
    }
}

impl<'a, T> IntoIterator for &'a Few<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> Few<T> {
    pub(crate) fn one(one: T) -> Self {
        Self(Some(Rc::new([one])))
    }

    /// Whether both share one list, or have nothing.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(mine), Some(theirs)) => Rc::ptr_eq(mine, theirs),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }
}

impl<T: Clone> Few<T> {
    /// For changes: from here on this is a list of its own.
    pub(crate) fn own(&mut self) -> &mut [T] {
        match &mut self.0 {
            Some(all) => Rc::make_mut(all),
            None => &mut [],
        }
    }

    pub(crate) fn push(&mut self, one: T) {
        if self.is_empty() { *self = Self::one(one) } else { self.insert(self.len(), one) }
    }

    /// Adds one before the place `at`.
    pub(crate) fn insert(&mut self, at: usize, one: T) {
        let (before, behind) = self.split_at(at.min(self.len()));
        *self = Self(Some(before.iter().cloned().chain([one]).chain(behind.iter().cloned()).collect()));
    }
}

impl<T: Clone + PartialEq> Few<T> {
    /// Whether each is there once.
    pub(crate) fn has_nothing_twice(&self) -> bool {
        self.iter().enumerate().all(|(at, one)| !self.iter().take(at).any(|before| before == one))
    }

    /// Adds what is not there yet, as long as there are fewer than `most`.
    pub(crate) fn add_all(&mut self, other: &Self, most: usize) {
        if self.is_empty() && other.len() <= most {
            *self = other.clone();
            return;
        }
        if self.is_same(other) {
            return;
        }
        let mut all: Vec<T> = Vec::new();
        for one in other {
            let known = if all.is_empty() { &**self } else { &all };
            if known.len() < most && !known.contains(one) {
                if all.is_empty() {
                    all.reserve_exact(most.min(self.len() + other.len()));
                    all.extend_from_slice(self);
                }
                all.push(one.clone());
            }
        }
        if !all.is_empty() {
            *self = all.into();
        }
    }
}
