//! The contents of a value that may be either of two containers.

use std::borrow::Cow;
use std::rc::Rc;

use super::value::{Field, Held, ITEMS, PAIRED, Value, has_field};

/// Bytes from which on an item is not joined with another.
const LARGE: usize = 16 * 1024;

/// The fields of two objects of which a value is one; nothing where the second adds none. What stands by one key is told apart up to a
/// bound: else, where a program puts many things into one object, every look at it goes through all of them.
pub(super) fn either_fields(mine: &[Field], theirs: &[Field], variants: usize) -> Option<Vec<Field>> {
    if mine.len() > PAIRED {
        return Some(mine.iter().chain(theirs).cloned().collect());
    }
    let mut both = Cow::Borrowed(mine);
    for (at, field) in theirs.iter().enumerate() {
        if has_field(mine, at, field) {
            continue;
        }
        let (key, held) = field;
        let mut same = both.iter().enumerate().filter(|(_, (name, _))| name == key).map(|(place, _)| place);
        match same.nth(variants - 1) {
            Some(place) => {
                let mut either = Value::clone(&both[place].1);
                either.add_within(held);
                own(&mut both, theirs.len())[place].1 = Rc::new(either);
            }
            None => own(&mut both, theirs.len()).push(field.clone()),
        }
    }
    changed(both)
}

/// Two lists of which a value is one: place by place where they are short, one behind the other where they are not. Nothing where the
/// second adds none.
pub(super) fn either_items(mine: &[Held], theirs: &[Held]) -> Option<Vec<Held>> {
    if mine.len().max(theirs.len()) > PAIRED {
        return Some(mine.iter().chain(theirs).take(ITEMS).cloned().collect());
    }
    let mut all = Cow::Borrowed(mine);
    for (at, (one, other)) in mine.iter().zip(theirs).enumerate() {
        if Rc::ptr_eq(one, other) || one.size() + other.size() >= LARGE {
            continue;
        }
        // Two lists within are not told apart any more: that could go on without end.
        let apart =
            (one.items.is_some() && other.items.is_some()).then(|| Value { items: None, ..Value::clone(other) });
        let other = apart.as_ref().unwrap_or(other);
        if !one.covers(other) {
            let mut either = Value::clone(one);
            either.add_within(other);
            all.to_mut()[at] = Rc::new(either);
        }
    }
    if theirs.len() > mine.len() {
        all.to_mut().extend(theirs.iter().skip(mine.len()).cloned());
    }
    changed(all)
}

/// A list for changes, with room for so many more.
fn own<'l, T: Clone>(list: &'l mut Cow<'_, [T]>, more: usize) -> &'l mut Vec<T> {
    if let Cow::Borrowed(before) = list {
        let mut own = Vec::with_capacity(before.len() + more);
        own.extend_from_slice(before);
        *list = Cow::Owned(own);
    }
    list.to_mut()
}

/// What became of a list, if it is not the same as before.
fn changed<T: Clone>(list: Cow<'_, [T]>) -> Option<Vec<T>> {
    match list {
        Cow::Borrowed(_) => None,
        Cow::Owned(list) => Some(list),
    }
}
