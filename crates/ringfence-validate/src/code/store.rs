//! What is put into lists, objects and attributes, and what is known of them afterwards.

use std::borrow::Cow;
use std::rc::Rc;

use super::call::Given;
use super::tree::{Expr, How, Kind, Pattern};
use super::value::{ANY_KEY, Held, ITEMS, Value};
use super::walk::Walk;
use crate::analysis::{Fact, Trick};
use crate::text::Text;

impl Walk<'_, '_> {
    /// Sets an attribute or an item.
    pub(super) fn assign_place(&mut self, place: &Expr, value: &Held, how: How) {
        let (inner, base, key, keys) = match &place.kind {
            Kind::Member(base, attribute) => {
                (base, self.value(base), Held::default(), vec![Cow::Borrowed(attribute.as_str())])
            }
            Kind::Index(base, key) => {
                let (base_held, key) = (self.value(base), self.value(key));
                let known = key.texts.iter().filter_map(Text::as_known);
                let keys = known.map(|key| Cow::Owned(key.to_owned())).collect();
                (base, base_held, key, keys)
            }
            Kind::Slice(base, _) => (base, self.value(base), Held::default(), Vec::new()),
            _ => {
                self.value(place);
                return;
            }
        };
        if base.names.iter().any(|name| self.book.is_environment(name)) {
            let names = match &place.kind {
                Kind::Member(_, attribute) => vec![Text::known(attribute.as_str())],
                _ => key.readings(),
            };
            for name in names {
                for value in value.readings() {
                    self.tell(place.span, Fact::SetsEnvironment { name: name.clone(), value });
                }
            }
            return;
        }
        for name in &base.names {
            let redefined = || keys.iter().any(|key| self.book.knows(&format!("{name}.{key}")));
            if self.book.is_tampered(name) || (self.book.is_guarded(name) && redefined()) {
                self.trick(Trick::Redefines, place.span);
            }
        }
        let is_globals = base.names.iter().any(|name| self.book.is_globals(name));
        for key in &keys {
            if self.book.is_inner(key) {
                self.trick(Trick::InnerParts, place.span);
            }
            let held = if how == How::Add {
                let before = self.scopes.attribute(key).cloned().unwrap_or_default();
                Rc::new(self.sum(&[before, Rc::clone(value)]))
            } else {
                Rc::clone(value)
            };
            if is_globals {
                self.scopes.set_global(key, &held);
            }
            self.scopes.set_attribute(key, &held);
            self.put_into(inner, &base, Slot::Key(key), &held);
        }
        if keys.is_empty() {
            let slot = match key.number.filter(|_| !key.many).and_then(|at| usize::try_from(at).ok()) {
                Some(at) => Slot::At(at),
                None => Slot::Any,
            };
            self.put_into(inner, &base, slot, value);
            if !value.names.is_empty() || !value.functions.is_empty() {
                let callable =
                    Value { names: value.names.clone(), functions: value.functions.clone(), ..Value::default() };
                self.scopes.set_attribute(ANY_KEY, &Rc::new(callable));
            }
        }
    }

    /// A container that a name or an attribute holds, after something was put into it.
    fn put_into(&mut self, base: &Expr, held: &Held, slot: Slot<'_>, value: &Held) {
        let holds = held.items.is_some() || (held.fields.is_some() && held.functions.is_empty());
        if !holds && value.flows.is_subset(&held.flows) {
            return;
        }
        // Containers are copied, and so are the names of their fields.
        let parts =
            held.items.as_ref().map_or(0, |items| items.len()) + held.fields.as_ref().map_or(0, |all| all.len());
        self.spend(held.size() + 40 * parts + 64);
        let sure = self.sure() == super::scope::Sure::Always;
        let mut changed = Value::clone(held);
        match (slot, &held.items, &held.fields) {
            (Slot::At(at), Some(items), _) if at < items.len() => {
                let mut items = (**items).clone();
                items[at] = if sure { Rc::clone(value) } else { Rc::new(Value::clone(&items[at]).or(value)) };
                changed = Value { flows: changed.flows, names: changed.names, ..Value::list(items) };
            }
            (Slot::At(_) | Slot::Any, Some(items), _) if items.len() < ITEMS => {
                let mut items = (**items).clone();
                items.push(Rc::clone(value));
                changed = Value { flows: changed.flows, names: changed.names, ..Value::list(items) };
            }
            (Slot::Key(key), _, Some(fields)) if fields.len() < ITEMS => {
                let mut fields = (**fields).clone();
                if sure {
                    fields.retain(|(known, _)| **known != *key);
                }
                fields.push((key.into(), Rc::clone(value)));
                changed = Value { flows: changed.flows, names: changed.names, ..Value::object(fields) };
            }
            (Slot::At(_) | Slot::Any, None, Some(fields)) if fields.len() < ITEMS => {
                let mut fields = (**fields).clone();
                fields.push((ANY_KEY.into(), Rc::clone(value)));
                changed = Value { flows: changed.flows, names: changed.names, ..Value::object(fields) };
            }
            _ => {}
        }
        changed.flows.add_all(&value.flows);
        self.hold(base, Rc::new(changed));
    }

    /// What an expression stands for is this from now on.
    fn hold(&mut self, base: &Expr, held: Held) {
        match &base.kind {
            Kind::Name(name) if self.scopes.visible(name).is_some() => {
                self.assign(&Pattern::Name(name.clone()), held, How::Around);
            }
            Kind::Member(inner, attribute) => {
                self.scopes.set_attribute(attribute, &held);
                self.carry(inner, &held);
            }
            Kind::Index(inner, key) => {
                if let Kind::Text(key) = &key.kind {
                    self.scopes.set_attribute(&key.value, &held);
                }
                self.carry(inner, &held);
            }
            _ => {}
        }
    }

    /// Where data goes, the thing around it carries the data too.
    fn carry(&mut self, outer: &Expr, held: &Held) {
        if held.flows.is_empty() {
            return;
        }
        let mut base = outer;
        while let Kind::Member(inner, _) | Kind::Index(inner, _) = &base.kind {
            base = inner;
        }
        let Kind::Name(name) = &base.kind else { return };
        if let Some(before) = self.scopes.visible(name)
            && !held.flows.is_subset(&before.flows)
        {
            let mut with = Value::clone(before);
            with.flows.add_all(&held.flows);
            self.assign(&Pattern::Name(name.clone()), Rc::new(with), How::Around);
        }
    }

    /// A container after one of its methods put something into it.
    pub(super) fn grown(&mut self, base: &Expr, method: &str, given: &Given) {
        let Some(receiver) = &given.receiver else { return };
        let first = given.args.first();
        match (method, first) {
            ("append" | "push" | "add" | "appendleft" | "unshift" | "put" | "enqueue", Some(_)) => {
                let mut items = match &receiver.items {
                    Some(items) if items.len() < ITEMS => (**items).clone(),
                    _ => return self.carries(base, receiver, given),
                };
                if matches!(method, "unshift" | "appendleft") {
                    items.splice(0..0, given.args.iter().cloned());
                } else {
                    items.extend(given.args.iter().cloned());
                }
                self.holds_list(base, receiver, items);
            }
            ("extend", Some(more)) => match (&receiver.items, &more.items) {
                (Some(items), Some(more)) if items.len() < ITEMS => {
                    let items = items.iter().chain(more.iter()).cloned().collect();
                    self.holds_list(base, receiver, items);
                }
                _ => self.carries(base, receiver, given),
            },
            ("insert", Some(at)) => match (&receiver.items, given.args.get(1)) {
                (Some(items), Some(item)) if items.len() < ITEMS => {
                    let at = at.number.and_then(|at| usize::try_from(at).ok()).unwrap_or(0).min(items.len());
                    let mut items = (**items).clone();
                    items.insert(at, Rc::clone(item));
                    self.holds_list(base, receiver, items);
                }
                _ => self.carries(base, receiver, given),
            },
            ("set" | "setdefault" | "__setitem__" | "__setattr__", Some(key)) => {
                let Some(value) = given.args.get(1) else { return };
                if let Some(key) = key.as_known() {
                    self.scopes.set_attribute(key, value);
                }
                let slot = key.as_known().map_or(Slot::Any, Slot::Key);
                self.put_into(base, receiver, slot, value);
            }
            ("update", _) => {
                let fields = first.iter().flat_map(|more| more.fields.iter().flat_map(|fields| fields.iter()));
                let all: Vec<(Rc<str>, Held)> = fields
                    .cloned()
                    .chain(given.named.iter().map(|(name, held, _)| (name.as_str().into(), Rc::clone(held))))
                    .take(ITEMS)
                    .collect();
                let is_globals = receiver.names.iter().any(|name| self.book.is_globals(name));
                let mut now = Rc::clone(receiver);
                for (key, value) in &all {
                    if is_globals {
                        self.scopes.set_global(key, value);
                    }
                    self.scopes.set_attribute(key, value);
                    self.put_into(base, &now, Slot::Key(key), value);
                    if let Kind::Name(name) = &base.kind
                        && let Some(held) = self.scopes.visible(name)
                    {
                        now = Rc::clone(held);
                    }
                }
                if all.is_empty() {
                    self.carries(base, receiver, given);
                }
            }
            ("write" | "writelines" | "writestr" | "append_data", Some(_)) => self.carries(base, receiver, given),
            _ => {}
        }
    }

    fn holds_list(&mut self, base: &Expr, before: &Value, items: Vec<Held>) {
        self.spend(items.len());
        let mut list = Value::list(items);
        list.flows.add_all(&before.flows);
        self.hold(base, Rc::new(list));
    }

    /// Nothing is known of the container but that it now carries what it was given.
    fn carries(&mut self, base: &Expr, receiver: &Held, given: &Given) {
        let mut with = Value::default();
        given.args.iter().for_each(|arg| with.flows.add_all(&arg.flows));
        if !with.flows.is_empty() {
            self.put_into(base, receiver, Slot::Any, &Rc::new(with));
        }
    }
}

/// Where something is put.
#[derive(Debug, Clone, Copy)]
enum Slot<'k> {
    Key(&'k str),
    At(usize),
    Any,
}
