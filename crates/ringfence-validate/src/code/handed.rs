//! What is handed through somebody of whom nothing is known, and called afterwards.
//!
//! A function that acts leaves its name on everything that is made of it, as data does of which a value is made. When such a thing is
//! called, it may be that function; an attribute of such a thing may be an attribute of the module that it was made of.

use std::borrow::Cow;
use std::rc::Rc;

use super::act;
use super::call::Given;
use super::flows::MANY;
use super::tree::Expr;
use super::value::{ANY_KEY, Held, Value};
use super::walk::Walk;
use crate::analysis::Trick;
use crate::language::Language;
use crate::span::Span;

/// Methods that put away or print what they are given, and call nothing.
const QUIET: &[&str] = &[
    "append",
    "appendleft",
    "add",
    "push",
    "unshift",
    "insert",
    "extend",
    "put",
    "set",
    "setdefault",
    "update",
    "write",
    "writelines",
    "log",
    "info",
    "debug",
    "warn",
    "warning",
    "error",
    "critical",
    "format",
    "join",
    "startswith",
    "endswith",
    "startsWith",
    "endsWith",
    "includes",
    "index",
    "count",
    "remove",
];

/// Whether a function that something holds is called by an attribute of this name.
pub(super) fn is_called_by(attribute: &str) -> bool {
    matches!(
        attribute,
        "call" | "apply" | "bind" | "value" | "get" | "__call__" | "__func__" | "__wrapped__" | "fget" | "func"
    )
}

/// Whether a method of this name gives the parts of what it is called on.
pub(super) fn gives_parts(attribute: &str) -> bool {
    matches!(attribute, "items" | "values" | "entries" | "copy" | "popitem" | "__iter__" | "__dir__")
}

impl Walk<'_, '_> {
    /// An item of something; in JavaScript attributes are items.
    pub(super) fn item(&mut self, value: &Held, key: &Held, span: Span) -> Held {
        if self.language == Language::Python {
            self.index_of(value, key, span)
        } else {
            self.member_like(value, key, span)
        }
    }

    /// `sys.modules[name] = module`, as whoever loads a plug-in from a file has to: a module that was made for it, or something under a name
    /// that none of the language's own modules has.
    pub(super) fn is_put_among_modules(&self, base: &str, keys: &[Cow<'_, str>], key: &Value, value: &Value) -> bool {
        let taken = |key: &str| self.book.about(key).is_some() || self.imported.contains(key);
        let begins = key.texts.iter().any(|text| !text.known_start().is_empty());
        let made = value.has("importlib.util.module_from_spec()") || value.has("types.ModuleType()");
        base == "sys.modules"
            && !keys.iter().any(|key| taken(key))
            && (!keys.is_empty() || (made && (begins || value.has("importlib.util.module_from_spec()"))))
    }

    /// One item of something that is gone through; an object of the program may say itself what it gives.
    pub(super) fn one_of(&mut self, held: &Held, span: Span) -> Value {
        if let Some(member) = self.any_member(held) {
            return member;
        }
        let mut one = held.any_item();
        let is_remote = |name: &Rc<str>| {
            name.starts_with("boto3.") && name.ends_with("()")
                || super::databases::is_of_a_database(name) && name.contains(['.', '('])
        };
        if let Some(name) = held.names.iter().find(|name| is_remote(name)) {
            one.add_name(&format!("{name}.item()"));
        }
        if held.fields.is_some() && held.items.is_none() {
            for name in ["__iter__", "__next__", "__aiter__", "__anext__", "__getitem__", "next", ANY_KEY] {
                let Some(gives) = held.field(name).filter(|gives| !gives.functions.is_empty()) else { continue };
                let function = Rc::new(Value { functions: gives.functions.clone(), ..Value::default() });
                let given = self.called(&function, None, &Given { span, ..Given::default() });
                one.add(&given.any_item());
                one.add(&given);
            }
        }
        one
    }

    /// What is called may be any function that it was made of.
    pub(super) fn handed_on(&mut self, callee: &Held, method: Option<&str>, given: &Given) -> Option<Value> {
        let flows = &callee.flows;
        if (flows.abilities().is_empty() && flows.own().is_empty()) || !is_given_something(method, given) {
            return None;
        }
        let mut result = Value::default();
        for name in flows.abilities().iter().filter(|name| !callee.has(name)) {
            if &**name == MANY {
                self.trick(Trick::ByBuiltName, given.span);
            } else if self.book.roles(name).is_some_and(act::acts) {
                result = self.hands_to(name, method, given, result);
            } else if let (None, Some(about)) = (method, self.book.about(name)) {
                // Something of a module, by a name that is not known.
                for name in &about.strongest {
                    result = self.hands_to(name, None, given, result);
                }
            }
        }
        if method.is_none_or(|method| is_called_by(method) && method != "get") {
            for number in flows.own().iter().filter(|number| !callee.functions.contains(number)) {
                if let Some(gives) = self.call_own(*number, given) {
                    result.add(&gives);
                }
            }
        }
        Some(result)
    }

    /// Somebody unknown keeps the functions that it is handed, and may call them later.
    pub(super) fn handlers(&mut self, base: &Expr, method: &str, callee: &Value, given: &Given) {
        if given.all().all(|arg| arg.flows.abilities().is_empty()) {
            return;
        }
        let Some(receiver) = given.receiver.as_ref().filter(|receiver| receiver.items.is_none()) else { return };
        let acts = |name: &Rc<str>| self.book.roles(name).is_some_and(act::acts);
        let is_module = |name: &Rc<str>| self.imported.contains(name);
        let looks = callee.names.iter().any(|name| super::talk::only_looks(name));
        if looks || QUIET.contains(&method) || callee.names.iter().any(acts) || receiver.names.iter().any(is_module) {
            return;
        }
        let mut with = Value::default();
        for arg in given.all().filter(|arg| arg.flows.abilities().iter().any(acts)) {
            with.flows.add_abilities(&arg.flows);
        }
        if !with.flows.is_empty() {
            self.carry_into(base, receiver, &with);
        }
    }

    /// All that something has, as a list: of a module, whatever it has.
    pub(super) fn parts_of(&mut self, callee: &Value, given: &Given) -> Option<Held> {
        let whole = given.args.first()?;
        if whole.fields.is_some() || whole.flows.abilities().is_empty() {
            return None;
        }
        let mut part = Value::default();
        part.flows.add_all(&whole.flows);
        let part = Rc::new(part);
        if callee.has("Object.values") {
            return Some(Rc::new(Value::list(vec![part])));
        }
        callee.has("Object.entries").then(|| {
            let pair = Rc::new(Value::list(vec![Held::default(), part]));
            Rc::new(Value::list(vec![pair]))
        })
    }

    /// What made something is a function that makes functions, if it is given text that reads as one.
    pub(super) fn maker(&mut self, callee: &Value, given: &Given) {
        let Some(body) = given.args.last().and_then(|arg| arg.as_known()).filter(|_| callee.has("(constructor)"))
        else {
            return;
        };
        let reaches = ["return this", "process", "require", "globalThis", "child_process", "import("];
        if reaches.iter().any(|word| body.contains(word)) {
            self.trick(Trick::InnerParts, given.span);
            self.function_of_text(given);
        }
    }

    fn hands_to(&mut self, name: &str, method: Option<&str>, given: &Given, result: Value) -> Value {
        let function = Rc::new(Value::named(name));
        let gives = match method {
            Some(how @ ("call" | "apply" | "bind")) if self.language != Language::Python => {
                self.called_by(&function, how, given)
            }
            None => self.called(&function, None, &Given { receiver: None, ..given.clone() }),
            // What a method hands over may stand behind what is for the method itself.
            Some(_) => {
                let mut either = Held::default();
                for start in 0..given.args.len().clamp(1, 4) {
                    let args = given.args.iter().skip(start).cloned().collect();
                    let places = given.places.iter().skip(start).copied().collect();
                    let span = given.span;
                    let gives = self.called(&function, None, &Given { args, places, span, ..Given::default() });
                    either = Rc::new(Value::clone(&either).or(&gives));
                }
                either
            }
        };
        result.or(&gives)
    }

    /// Somebody unknown is given containers and functions: the functions may be in the containers from then on.
    pub(super) fn keeps(&mut self, given: &Given) {
        let mut put = Value::default();
        for arg in given.all().filter(|arg| arg.made.sites.is_empty()) {
            put.flows.add_abilities(&arg.flows);
            put.functions.add_all(&arg.functions, 16);
            if !arg.flows.abilities().is_empty() {
                put.add_names(&arg.names);
            }
        }
        if put.flows.abilities().is_empty() && put.functions.is_empty() {
            return;
        }
        let put = Rc::new(put);
        // What nobody else holds is found by nobody.
        for container in given.all().filter(|arg| !arg.made.sites.is_empty() && Rc::strong_count(arg) > 1) {
            let mut changed = Value::clone(container);
            changed.flows.add_abilities(&put.flows);
            if let Some(items) = &container.items {
                let items = items.iter().map(|item| Rc::new(Value::clone(item).or(&put))).chain([Rc::clone(&put)]);
                changed = Value { flows: changed.flows, made: changed.made, ..Value::list(items.collect()) };
            }
            self.scopes.stale |= self.heap.put(&mut changed);
        }
    }
}

/// Whether a call gives something that a function which acts could act on.
fn is_given_something(method: Option<&str>, given: &Given) -> bool {
    let is_known = |arg: &Held| arg.texts.iter().any(|text| !text.known_start().is_empty()) || arg.items.is_some();
    match method {
        Some(method) if QUIET.contains(&method) => false,
        Some(_) => given.all().any(is_known),
        None => given.all().any(|arg| arg.functions.is_empty() && arg.flows.abilities().is_empty() || is_known(arg)),
    }
}
