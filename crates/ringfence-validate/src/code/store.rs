//! What is put into lists, objects and attributes, and what is known of them afterwards.

use std::borrow::Cow;
use std::rc::Rc;

use super::call::Given;
use super::scope::joined;
use super::tree::{Expr, How, Kind, Pattern};
use super::value::{ANY_KEY, Held, ITEMS, Value};
use super::walk::Walk;
use crate::analysis::{Fact, Trick};
use crate::text::Text;

/// Things of modules that something else is put in the place of.
const REPLACED: usize = 256;
/// What is sent into generators.
pub(super) const SENT: &str = "(sent)";

impl Walk<'_, '_> {
    /// Sets an attribute or an item.
    pub(super) fn assign_place(&mut self, place: &Expr, value: &Held, how: How) {
        let (inner, base, key, keys) = match &place.kind {
            Kind::Member(base, attribute) => {
                (base, self.value(base), Rc::clone(&self.nothing), vec![Cow::Borrowed(attribute.as_str())])
            }
            Kind::Index(base, key) => {
                let (base_held, key) = (self.value(base), self.value(key));
                let known = key.texts.iter().filter_map(Text::as_known);
                let keys = known.map(|key| Cow::Owned(key.to_owned())).collect();
                (base, base_held, key, keys)
            }
            Kind::Slice(base, ends) => {
                let held = self.value(base);
                let within = self.slot_within(&held, ends);
                return self.put_into(base, &held, within, value);
            }
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
            if self.is_put_among_modules(name, &keys, &key, value) {
                continue;
            }
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
            if can_replace(&held) {
                base.names.iter().for_each(|name| self.replace(&format!("{name}.{key}"), &held));
            }
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

    /// The places of a list that a slice is; from the start to the end where they are not known.
    fn slot_within(&mut self, held: &Held, ends: &[Option<Box<Expr>>; 3]) -> Slot<'static> {
        let length = held.items.as_ref().map_or(0, |items| items.len());
        let [start, end] = [0, 1].map(|at| {
            let number = self.value(ends[at].as_deref()?).number?;
            if number < 0 {
                Some(length.saturating_sub(number.unsigned_abs() as usize))
            } else {
                usize::try_from(number).ok()
            }
        });
        Slot::Within(start, end)
    }

    /// Something of a module, by its full name, is something else from now on: at least where that can act.
    pub(super) fn replace(&mut self, name: &str, held: &Held) {
        if !can_replace(held) {
            return;
        }
        let name = self.book.canonical(name.strip_prefix("builtins.").unwrap_or(name));
        self.looks_on(name, held);
        if !name.contains('.') {
            self.scopes.set_global(name, held);
        }
        let all = self.replaced.get_or_insert_default();
        let has_room = all.len() < REPLACED;
        match all.get_mut(name) {
            Some(before) if before.covers(held) => {}
            Some(before) => {
                *before = joined(before, held);
                self.scopes.stale = true;
            }
            None if has_room => {
                all.insert(name.into(), Rc::clone(held));
                self.scopes.stale = true;
            }
            None => {}
        }
    }

    /// A container that a name or an attribute holds, after something was put into it.
    fn put_into(&mut self, base: &Expr, held: &Held, slot: Slot<'_>, value: &Held) {
        let holds = held.items.is_some() || (held.fields.is_some() && held.functions.is_empty());
        if !holds && held.flows.covers(&value.flows) {
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
                changed = container_like(held, Value::list(items));
            }
            (Slot::Within(start, end), Some(items), _) => {
                let changes = match (start, end, &value.items) {
                    (None, None, Some(new)) if sure => (**new).clone(),
                    (start, end, Some(new)) => {
                        let start = start.unwrap_or(0).min(items.len());
                        let end = end.unwrap_or(items.len()).clamp(start, items.len());
                        let mut items = (**items).clone();
                        items.splice(start..end, new.iter().cloned());
                        items
                    }
                    // Whichever it is, it may stand anywhere from now on.
                    (_, _, None) => {
                        let one = value.any_item();
                        let either = items.iter().map(|item| Rc::new(Value::clone(item).or(&one)));
                        either.chain([Rc::new(one.clone())]).collect()
                    }
                };
                changed = container_like(held, Value::list(changes));
            }
            (Slot::At(_) | Slot::Any, Some(items), _) => {
                let mut items = (**items).clone();
                if !items.iter().any(|item| item.has_all_of(value)) {
                    items.push(Rc::clone(value));
                }
                changed = container_like(held, Value::list(items));
            }
            (Slot::Key(key), _, Some(fields)) => {
                let mut fields = (**fields).clone();
                match fields.iter_mut().find(|(known, _)| **known == *key) {
                    Some((_, before)) if !sure => *before = joined(before, value),
                    _ => {
                        fields.retain(|(known, _)| **known != *key);
                        fields.push((key.into(), Rc::clone(value)));
                    }
                }
                changed = container_like(held, Value::object(fields));
            }
            (Slot::At(_) | Slot::Any | Slot::Within(..), None, Some(fields)) => {
                let mut fields = (**fields).clone();
                match fields.iter_mut().find(|(known, _)| **known == *ANY_KEY) {
                    Some((_, before)) => *before = joined(before, value),
                    None => fields.push((ANY_KEY.into(), Rc::clone(value))),
                }
                changed = container_like(held, Value::object(fields));
            }
            (Slot::At(_) | Slot::Any | Slot::Within(..) | Slot::Key(_), _, None) => {}
        }
        changed.flows.add_all(&value.flows);
        self.changed(base, changed);
    }

    /// A container that was changed: whoever else holds it finds that too.
    fn changed(&mut self, base: &Expr, mut changed: Value) {
        self.scopes.stale |= self.heap.put(&mut changed);
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
            // `table.setdefault(a, {})[b] = c`: the table carries it.
            Kind::Call(call) => {
                if let Kind::Member(inner, method) = &call.callee.kind
                    && matches!(method.as_str(), "setdefault" | "get")
                {
                    self.carry(inner, &held);
                }
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
            && !before.flows.covers(&held.flows)
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
                    Some(items) => (**items).clone(),
                    _ => return self.carries(base, receiver, given),
                };
                if matches!(method, "unshift" | "appendleft") {
                    items.splice(0..0, given.args.iter().cloned());
                } else if self.is_put_once(receiver) {
                    items.extend(given.args.iter().cloned());
                } else {
                    for arg in given.args.iter() {
                        if !items.iter().any(|item| item.has_all_of(arg)) {
                            items.push(Rc::clone(arg));
                        }
                    }
                }
                self.holds_list(base, receiver, items);
            }
            ("extend", Some(more)) => match (&receiver.items, &more.items) {
                (Some(items), Some(more)) => {
                    let once = self.is_put_once(receiver);
                    let new = more.iter().filter(|more| once || !items.iter().any(|item| item.has_all_of(more)));
                    let items = items.iter().chain(new).cloned().collect();
                    self.holds_list(base, receiver, items);
                }
                _ => self.carries(base, receiver, given),
            },
            ("insert", Some(at)) => match (&receiver.items, given.args.get(1)) {
                (Some(items), Some(item)) => {
                    let at = at.number.and_then(|at| usize::try_from(at).ok()).unwrap_or(0).min(items.len());
                    let mut items = (**items).clone();
                    items.insert(at, Rc::clone(item));
                    self.holds_list(base, receiver, items);
                }
                _ => self.carries(base, receiver, given),
            },
            ("splice" | "fill", Some(_)) => {
                let Some(items) = &receiver.items else { return self.carries(base, receiver, given) };
                let mut items = (**items).clone();
                if method == "fill" {
                    items = items
                        .iter()
                        .map(|item| joined(item, &given.args[0]))
                        .chain([Rc::clone(&given.args[0])])
                        .collect();
                } else {
                    let from =
                        given.args[0].number.and_then(|at| usize::try_from(at).ok()).unwrap_or(0).min(items.len());
                    let away =
                        given.args.get(1).and_then(|away| away.number).and_then(|away| usize::try_from(away).ok());
                    let until = from.saturating_add(away.unwrap_or(0)).min(items.len());
                    items.splice(from..until, given.args.iter().skip(2).cloned());
                }
                self.holds_list(base, receiver, items);
            }
            ("send" | "next", Some(value)) if !value.flows.abilities().is_empty() || !value.functions.is_empty() => {
                self.scopes.set_attribute(SENT, value);
            }
            ("clear", None) if receiver.items.is_some() => self.holds_list(base, receiver, Vec::new()),
            ("reverse", None) => {
                if let Some(items) = &receiver.items {
                    self.holds_list(base, receiver, items.iter().rev().cloned().collect());
                }
            }
            ("pop" | "shift" | "popleft", _) if self.sure() == super::scope::Sure::Always => {
                let Some(items) = receiver.items.as_ref().filter(|items| !items.is_empty()) else { return };
                let at = match (method, first.map(|at| at.number)) {
                    ("pop", None) => Some(items.len() - 1),
                    ("pop", Some(at)) => at.and_then(|at| usize::try_from(at).ok()),
                    _ => Some(0),
                };
                if let Some(at) = at.filter(|at| *at < items.len()) {
                    let mut items = (**items).clone();
                    items.remove(at);
                    self.holds_list(base, receiver, items);
                }
            }
            ("__iadd__", Some(_)) => self.grown(base, "extend", given),
            ("set" | "setdefault" | "__setitem__" | "__setattr__", Some(key)) => {
                let Some(value) = given.args.get(1) else { return };
                if let Some(key) = key.as_known() {
                    self.scopes.set_attribute(key, value);
                }
                let at = key.number.filter(|_| !key.many).and_then(|at| usize::try_from(at).ok());
                let slot = key.as_known().map(Slot::Key).or(at.map(Slot::At)).unwrap_or(Slot::Any);
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
            (
                "write" | "writelines" | "writestr" | "append_data" | "set_content" | "set_payload" | "attach"
                | "add_attachment" | "add_alternative" | "add_field" | "add_header",
                Some(_),
            ) => self.carries(base, receiver, given),
            _ => {}
        }
    }

    /// A function that changes what it is given first: `Object.assign(a, b)`, `list.append(a, b)`.
    pub(super) fn grown_by(&mut self, base: &Expr, callee: &Value, borrowed: Option<(&str, &str)>, given: &Given) {
        let Some(first) = given.args.first() else { return };
        let of = |name: &str, args: Vec<Held>| (name.to_owned(), args);
        let mut changes: Vec<(String, Vec<Held>)> = Vec::new();
        let rest = || given.args.iter().skip(1).cloned();
        for name in &callee.names {
            match &**name {
                "Object.assign" | "Object.setPrototypeOf" => {
                    changes.extend(rest().map(|more| of("update", vec![more])))
                }
                "Reflect.set" | "setattr" | "operator.setitem" => changes.push(of("set", rest().collect())),
                "Object.defineProperty" | "Reflect.defineProperty" => {
                    if let [_, key, how, ..] = given.args.as_slice() {
                        let value = self.described(how, given);
                        changes.push(of("set", vec![Rc::clone(key), value]));
                    }
                }
                "Object.defineProperties" => {
                    for (key, how) in
                        given.args.get(1).and_then(|all| all.fields.clone()).iter().flat_map(|all| all.iter())
                    {
                        let value = self.described(how, given);
                        changes.push(of("set", vec![Rc::new(Value::known(&**key)), value]));
                    }
                }
                name => {
                    let unbound =
                        ["list.", "dict.", "set.", "collections.deque."].iter().find_map(|of| name.strip_prefix(of));
                    changes.extend(unbound.map(|method| of(method, rest().collect())));
                }
            }
        }
        if let Some((name, how)) = borrowed {
            // `[].push.apply(list, items)`.
            let args = match given.args.get(1).and_then(|list| list.items.as_ref()) {
                Some(items) if how == "apply" => (**items).clone(),
                _ => rest().collect(),
            };
            changes.push(of(name, args));
        }
        let mut now = Rc::clone(first);
        for (name, args) in changes {
            let places = args.iter().map(|_| super::call::Place { span: given.span, literal: None }).collect();
            let given = Given { args, places, receiver: Some(now), span: given.span, named: given.named.clone() };
            self.grown(base, &name, &given);
            now = self.value(base);
        }
    }

    /// What a property holds that is described: `{value: 1}`, `{get() { return 1 }}`.
    fn described(&mut self, how: &Held, given: &Given) -> Held {
        let value = how.field("value").unwrap_or_default();
        match how.field("get") {
            Some(read) => {
                let gives = self.called(&read, None, &Given { span: given.span, ..Given::default() });
                joined(&value, &gives)
            }
            None => value,
        }
    }

    /// Something carries what it was given.
    pub(super) fn carry_into(&mut self, base: &Expr, receiver: &Held, with: &Value) {
        let mut changed = Value::clone(receiver);
        changed.flows.add_all(&with.flows);
        self.changed(base, changed);
    }

    /// Whether what is put into a container here is put there once, as far as the text shows: no loop is around, and no function that
    /// was handed it.
    fn is_put_once(&self, container: &Value) -> bool {
        self.sure() == super::scope::Sure::Always && !self.heap.was_handed(container)
    }

    fn holds_list(&mut self, base: &Expr, before: &Value, items: Vec<Held>) {
        self.spend(items.len());
        let mut list = container_like(before, Value::list(items));
        list.flows.add_all(&before.flows);
        self.changed(base, list);
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

/// Whether something can act in the place of what a module has.
fn can_replace(held: &Value) -> bool {
    !held.functions.is_empty() || !held.flows.abilities().is_empty()
}

/// Where something is put.
#[derive(Debug, Clone, Copy)]
enum Slot<'k> {
    Key(&'k str),
    At(usize),
    /// From one place to another, or from the start and to the end.
    Within(Option<usize>, Option<usize>),
    Any,
}

/// A container with other contents.
fn container_like(held: &Value, contents: Value) -> Value {
    let mut flows = held.flows.clone();
    flows.add_all(&contents.flows);
    Value { flows, names: held.names.clone(), made: held.made.clone(), ..contents }
}
