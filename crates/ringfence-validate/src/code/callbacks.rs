//! Functions that are handed over as values: whoever is given them calls them with what there is, and decorators make something of them.

use std::rc::Rc;

use super::act;
use super::call::{Given, Place};
use super::few::Few;
use super::tree::Expr;
use super::value::{Held, Value};
use super::walk::Walk;
use crate::span::Span;

impl Walk<'_, '_> {
    /// Functions that are handed over are called with what there is.
    pub(super) fn callbacks(&mut self, given: &Given, handed: impl FnOnce() -> Value) {
        let is_function = |arg: &Held| arg.fields.is_none() && !arg.functions.is_empty();
        if !given.all().any(is_function) {
            return;
        }
        let handed = handed();
        let all: Vec<&Held> = given.all().collect();
        for (at, arg) in all.iter().enumerate() {
            if !is_function(arg) {
                continue;
            }
            let mut item = handed.clone();
            let mut spread: Vec<Held> = Vec::new();
            for other in all.iter().filter(|other| other.items.is_some()) {
                item.add(&other.any_item());
                spread.extend(other.items.iter().flat_map(|items| items.iter().take(8).cloned()));
            }
            // What stands behind a function is mostly for it: `submit(f, a)`, `Thread(target=f, args=(a,))`.
            let behind: Vec<Held> =
                all.iter().skip(at + 1).take(8).filter(|arg| arg.items.is_none()).map(|arg| Rc::clone(arg)).collect();
            for number in &arg.functions {
                let mut params: Vec<(usize, Held)> = Vec::new();
                for place in 0..3.max(behind.len()).max(spread.len()).min(8) {
                    let mut held = item.clone();
                    for more in [behind.get(place), spread.get(place)].into_iter().flatten() {
                        held.add(more);
                    }
                    params.push((place, Rc::new(held)));
                }
                if let Some(bound) = &arg.bound {
                    let count = bound.args.len();
                    params.iter_mut().for_each(|(place, _)| *place += count);
                    params.extend(bound.args.iter().cloned().enumerate());
                }
                let params = self.gathered(*number, params);
                self.enter_function(*number, &params);
            }
        }
    }

    /// A function of the book that is handed over as a value is called with the other arguments: `map(os.system, […])`.
    pub(super) fn applied(&mut self, given: &Given) {
        let book = self.book;
        let is_acting = |arg: &Held| arg.names.iter().any(|name| book.roles(name).is_some_and(act::acts));
        // `put((os.system, line))`: whoever takes it out again calls it.
        for task in given.all() {
            let Some([function, args @ ..]) = task.items.as_ref().map(|items| items.as_slice()) else { continue };
            if is_acting(function) && args.iter().any(|arg| !arg.texts.is_empty() || arg.items.is_some()) {
                let args: Vec<Held> = match args {
                    [list] if list.texts.is_empty() => {
                        list.items.as_ref().map(|items| (**items).clone()).unwrap_or_default()
                    }
                    args => args.to_vec(),
                };
                let places = args.iter().map(|_| Place { span: given.span, literal: None }).collect();
                self.called(function, None, &Given { args, places, span: given.span, ..Given::default() });
            }
        }
        if !given.all().any(is_acting) {
            return;
        }
        let all: Vec<Held> = given.all().cloned().collect();
        for (at, arg) in all.iter().enumerate() {
            if !is_acting(arg) {
                continue;
            }
            let callee = Rc::new(Value { names: arg.names.clone(), bound: arg.bound.clone(), ..Value::default() });
            let others = all.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other);
            let receiver = given.receiver.iter();
            let mut args: Vec<Held> = Vec::new();
            for other in others.chain(receiver) {
                match &other.items {
                    Some(items) => args.extend(items.iter().cloned()),
                    None if !other.texts.is_empty() || other.flows.iter().next().is_some() => {
                        args.push(Rc::clone(other))
                    }
                    None => {}
                }
            }
            // Each of a list is an argument of a call of its own (`map`), or all are those of one call (`Thread`).
            let places = args.iter().map(|_| Place { span: given.span, literal: None }).collect();
            let one = Given { args: args.clone(), places, span: given.span, ..Given::default() };
            self.called(&callee, None, &one);
            for arg in args.into_iter().skip(1).take(16) {
                let one = Given {
                    args: vec![arg],
                    places: vec![Place { span: given.span, literal: None }],
                    span: given.span,
                    ..Given::default()
                };
                self.called(&callee, None, &one);
            }
        }
    }

    /// A list of a function and its arguments that is given back, as `__reduce__` does.
    pub(super) fn deferred_call(&mut self, value: &Held, span: Span) {
        let Some([function, arguments]) = value.items.as_ref().map(|items| items.as_slice()) else { return };
        let Some(args) = arguments.items.as_ref() else { return };
        if function.names.iter().any(|name| self.book.roles(name).is_some_and(act::acts)) {
            let places = args.iter().map(|_| Place { span, literal: None }).collect();
            let given = Given { args: (**args).clone(), places, span, ..Given::default() };
            self.called(function, None, &given);
        }
    }
    /// What a decorator makes of the name below it.
    pub(super) fn decorated(&mut self, decorator: &Expr, name: &str, span: Span) -> Held {
        let below = self.lookup(name);
        let callee = self.value(decorator);
        let place = Place { span, literal: None };
        let given = Given { args: vec![Rc::clone(&below)], places: vec![place], span, ..Given::default() };
        let made = self.called(&callee, None, &given);
        let is_read = callee.names.iter().any(|name| matches!(&**name, "property" | "functools.cached_property"));
        let mut value = Value::clone(&below);
        if is_read {
            for number in &below.functions {
                if let Some(gives) = self.enter_function(*number, &[]) {
                    value.add(&gives);
                }
            }
        }
        // Of somebody else's decorator only is known that it keeps what is below.
        let known = made.names.iter().filter(|name| self.book.knows(name)).cloned().collect();
        let mine = Value { names: known, texts: Few::default(), ..Value::clone(&made) };
        Rc::new(value.or(&mine))
    }
}
