//! Expressions and calls: what they give, and whom they reach.

use std::borrow::Cow;
use std::rc::Rc;

use super::few::Few;
use super::role::RoleAct;
use super::talk::is_talk;
use super::tree::{Arg, Call, Expr, Kind, Literal, Written};
use super::value::{Bound, Held, ITEMS, Value};
use super::walk::{CALL_EFFORT, Walk};
use super::{act, fold};
use crate::analysis::{Fact, Trick};
use crate::language::Language;
use crate::span::Span;
use crate::text::Text;

/// The arguments of a call, as far as they are known.
#[derive(Debug, Default, Clone)]
pub(super) struct Given {
    pub(super) args: Vec<Held>,
    pub(super) places: Vec<Place>,
    pub(super) named: Vec<(String, Held, Place)>,
    pub(super) receiver: Option<Held>,
    pub(super) span: Span,
}

/// Where an argument stands.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    pub(super) span: Span,
    /// Where its characters stand as they are.
    pub(super) literal: Option<usize>,
}

impl Place {
    pub(super) fn of(expr: &Expr) -> Self {
        let literal = match &expr.kind {
            Kind::Text(Literal { written: Written::At(at), .. }) => Some(*at),
            _ => None,
        };
        Self { span: expr.span, literal }
    }
}

impl Walk<'_, '_> {
    pub(super) fn call(&mut self, call: &Call, span: Span) -> Held {
        let (callee, receiver, method) = match &call.callee.kind {
            Kind::Member(base, attribute) => {
                let receiver = self.value(base);
                let callee = self.member_of(&receiver, attribute, call.callee.span);
                (callee, Some(receiver), Some(Cow::Borrowed(attribute.as_str())))
            }
            Kind::Index(base, key) => {
                let (receiver, key) = (self.value(base), self.value(key));
                let method = key.as_known().map(|key| Cow::Owned(key.to_owned()));
                (self.index_of(&receiver, &key, call.callee.span), Some(receiver), method)
            }
            _ => (self.value(&call.callee), None, None),
        };
        if let Some(held) = self.each_item(&callee, receiver.as_ref(), method.as_deref(), &call.args) {
            return held;
        }
        let given = Given { receiver, span, ..self.arguments(&call.args) };
        if let (Some(method), Kind::Member(base, _)) = (&method, &call.callee.kind) {
            self.grown(base, method, &given);
        }
        self.called(&callee, method.as_deref(), &given)
    }

    fn arguments(&mut self, args: &[Arg]) -> Given {
        let mut given =
            Given { args: Vec::with_capacity(args.len()), places: Vec::with_capacity(args.len()), ..Given::default() };
        for arg in args {
            let held = self.value(&arg.value);
            let place = Place::of(&arg.value);
            match (&arg.name, &arg.value.kind) {
                (Some(name), _) if name.is_empty() => {
                    self.whole_environment(&held, arg.value.span);
                    for (name, field) in held.fields.iter().flat_map(|fields| fields.iter()) {
                        given.named.push((name.to_string(), Rc::clone(field), place));
                    }
                    given.named.push((String::new(), held, place));
                }
                (Some(name), _) => given.named.push((name.clone(), held, place)),
                (None, Kind::Spread(_)) => match &held.items {
                    Some(items) => {
                        for item in items.iter() {
                            given.args.push(Rc::clone(item));
                            given.places.push(Place { literal: None, ..place });
                        }
                    }
                    None => {
                        given.args.push(Rc::new(held.any_item()));
                        given.places.push(place);
                    }
                },
                (None, _) => {
                    given.args.push(held);
                    given.places.push(place);
                }
            }
        }
        given
    }

    /// What a call of `callee` gives; tells what it does.
    pub(super) fn called(&mut self, callee: &Held, method: Option<&str>, given: &Given) -> Held {
        if !self.spend(CALL_EFFORT) {
            return Held::default();
        }
        if let Some(bound) = callee.bound.clone() {
            let free = Rc::new(Value { bound: None, ..Value::clone(callee) });
            let given = given.behind(&bound);
            return self.called(&free, method, &given);
        }
        if let (Some(method), Some(receiver), Some(key)) = (method, &given.receiver, given.args.first())
            && matches!(method, "get" | "__getitem__" | "__getattribute__" | "setdefault" | "pop")
            && receiver.items.is_none()
            && (receiver.fields.is_some()
                || receiver.names.iter().any(|name| {
                    matches!(&**name, "Map()" | "WeakMap()" | "collections.defaultdict()")
                        || self.language == Language::Python
                            && (self.book.is_guarded(name) || self.book.is_globals(name))
                }))
            && !callee.names.iter().any(|name| self.book.knows(name))
        {
            let found = self.index_of(receiver, key, given.span);
            return match given.args.get(1) {
                Some(default) => Rc::new(Value::clone(&found).or(default)),
                None => found,
            };
        }
        if let Some(made) = self.container(callee, given).or_else(|| self.getter(callee, given)) {
            return made;
        }
        if let (Some(method), Some(receiver)) = (method, &given.receiver) {
            if self.language != Language::Python
                && !callee.names.iter().any(|name| self.book.knows(name))
                && matches!(method, "call" | "apply" | "bind")
                && !(receiver.names.is_empty() && receiver.functions.is_empty())
            {
                return self.called_by(receiver, method, given);
            }
            if method == "format" && receiver.texts.iter().any(reaches_inside) {
                self.trick(Trick::InnerParts, given.span);
            }
            self.spend(receiver.size());
            let own = receiver.items.is_none() && receiver.texts.is_empty() && !callee.functions.is_empty();
            let folded = if own {
                None
            } else if method == "format" && !given.named.is_empty() {
                let named = given.named.iter().map(|(name, held, _)| (name.as_str().into(), Rc::clone(held))).collect();
                let last = Rc::new(Value::object(named));
                let args: Vec<Held> = given.args.iter().cloned().chain([last]).collect();
                fold::method(receiver, method, &args)
            } else {
                fold::method(receiver, method, &given.args)
            };
            let booked = |walk: &Self| receiver.names.iter().any(|name| walk.book.knows(&format!("{name}.{method}")));
            if let Some(value) = folded.filter(|_| !booked(self)) {
                self.callbacks(given, || receiver.any_item());
                return Rc::new(value);
            }
        }
        if callee.has("map")
            && let [function, list] = given.args.as_slice()
            && let Some(items) = &list.items
        {
            let places = vec![Place { span: given.span, literal: None }];
            let each = |item: &Held| Given {
                args: vec![Rc::clone(item)],
                places: places.clone(),
                span: given.span,
                ..Given::default()
            };
            let all = items.iter().map(|item| self.called(function, None, &each(item))).collect();
            return Rc::new(Value::list(all));
        }
        let mut result = Value::default();
        let (mut told, mut acted) = (false, false);
        for name in &callee.names {
            if let Some(gives) = self.by_name(name, given) {
                told = true;
                result = result.or(&gives);
            }
            if let Some(value) = fold::function(name, &given.args) {
                self.tell_call(name, given.span);
                told = true;
                result = result.or(&value);
                given.args.iter().for_each(|arg| result.flows.add_all(&arg.flows));
            }
            let roles = self.book.roles(name);
            if let Some(roles) = roles {
                self.tell_call(name, given.span);
                for role in roles {
                    self.perform(role, given, &mut result);
                }
                told = true;
                acted |= act::acts(roles)
                    || roles.iter().any(|role| matches!(role.act, RoleAct::Applies | RoleAct::Applied));
            } else if self.is_from_a_module(name) {
                self.tell_call(name, given.span);
            }
            if !roles.is_some_and(act::says_what_it_is) {
                let full = format!("{name}()");
                result.add_name(self.book.canonical(&full));
            }
        }
        let mut own = false;
        for number in &callee.functions {
            own = true;
            if let Some(gives) = self.call_own(*number, given) {
                result = result.or(&gives);
            }
        }
        if callee.fields.is_some() {
            // An object of a class: its constructor may be nothing but a list of fields.
            given.named.iter().for_each(|(name, held, _)| self.scopes.set_attribute(name, held));
        }
        if own && let Some(fields) = &callee.fields {
            result.fields = Some(Rc::clone(fields));
        } else if callee.fields.is_some() {
            result = result.or(&Value { functions: Few::default(), names: Few::default(), ..Value::clone(callee) });
        }
        if !told && !own {
            result.flows.add_all(&callee.flows);
            given.args.iter().for_each(|arg| result.flows.add_all(&arg.flows));
            given.named.iter().for_each(|(_, arg, _)| result.flows.add_all(&arg.flows));
        }
        if !acted {
            self.applied(given);
        }
        if !told && !own && !acted && !is_talk(method, callee) {
            self.secret_arguments(given);
        }
        given.args.iter().zip(&given.places).for_each(|(arg, place)| self.whole_environment(arg, place.span));
        if let (Some("then"), Some(receiver)) = (method, &given.receiver) {
            return self.then(receiver, given, result);
        }
        self.callbacks(given, || {
            let gives = Value { functions: Few::default(), ..result.clone() };
            match &given.receiver {
                Some(receiver) if !told => receiver.any_item().or(&gives),
                _ => gives,
            }
        });
        Rc::new(result)
    }

    /// `f.call(this, a)`, `f.apply(this, [a])`, `f.bind(this, a)`.
    fn called_by(&mut self, callee: &Held, method: &str, given: &Given) -> Held {
        let mut shifted = Given { receiver: None, ..given.clone() };
        if let Some(first) = given.args.first()
            && let Some(how) =
                ["call", "apply", "bind"].into_iter().find(|how| callee.has(&format!("Function.prototype.{how}")))
        {
            // `Function.prototype.call.call(f, this, a)`.
            shifted.args.remove(0);
            shifted.places.remove(0);
            return self.called_by(first, how, &shifted);
        }
        if !shifted.args.is_empty() {
            shifted.args.remove(0);
            shifted.places.remove(0);
        }
        if method == "apply"
            && let [list] = shifted.args.as_slice()
            && let Some(items) = &list.items
        {
            let place = shifted.places.first().copied().unwrap_or_default();
            let items = (**items).clone();
            shifted.places = items.iter().map(|_| Place { literal: None, ..place }).collect();
            shifted.args = items;
        }
        if method == "bind" {
            return Rc::new(bound(callee, shifted.args, Vec::new()));
        }
        self.called(callee, None, &shifted)
    }

    /// A promise is followed: the function is given what the promise brings, and its result is what comes next.
    fn then(&mut self, receiver: &Held, given: &Given, result: Value) -> Held {
        let mut next = Value::default();
        for callback in given.args.iter() {
            for number in &callback.functions {
                if let Some(gives) = self.enter_function(*number, &[(0, Rc::clone(receiver))]) {
                    next = next.or(&gives);
                }
            }
            if !callback.names.is_empty() {
                let passed = Given {
                    args: vec![Rc::clone(receiver)],
                    places: vec![Place { span: given.span, literal: None }],
                    span: given.span,
                    ..Given::default()
                };
                let gives = self.called(callback, None, &passed);
                next = next.or(&gives);
            }
        }
        next.flows.add_all(&receiver.flows);
        if next.names.is_empty() && next.texts.is_empty() {
            next = next.or(&result)
        }
        Rc::new(next)
    }

    /// Functions that are handed over are called with what there is.
    fn callbacks(&mut self, given: &Given, handed: impl FnOnce() -> Value) {
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
                item = item.or(&other.any_item());
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
                        held = held.or(more);
                    }
                    params.push((place, Rc::new(held)));
                }
                if let Some(bound) = &arg.bound {
                    let count = bound.args.len();
                    params.iter_mut().for_each(|(place, _)| *place += count);
                    params.extend(bound.args.iter().cloned().enumerate());
                }
                self.enter_function(*number, &params);
            }
        }
    }

    /// A function of the book that is handed over as a value is called with the other arguments: `map(os.system, […])`.
    fn applied(&mut self, given: &Given) {
        let book = self.book;
        let is_acting = |arg: &Held| arg.names.iter().any(|name| book.roles(name).is_some_and(act::acts));
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
                    None if !other.texts.is_empty() || !other.flows.is_empty() => args.push(Rc::clone(other)),
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

    fn tell_call(&mut self, name: &Rc<str>, span: Span) {
        if self.is_telling() && !name.starts_with('(') && self.called.insert(Rc::clone(name)) {
            self.tell(span, Fact::Calls { name: Text::known(&**name) });
        }
    }

    pub(super) fn is_from_a_module(&self, name: &str) -> bool {
        let mut before = name;
        while let Some((shorter, _)) = before.rsplit_once('.') {
            if self.imported.contains(shorter) {
                return true;
            }
            before = shorter;
        }
        self.imported.contains(name)
    }

    /// Tells it if something is the whole environment.
    pub(super) fn whole_environment(&mut self, value: &Value, span: Span) {
        if value.names.iter().any(|name| self.book.is_environment(name)) {
            self.tell(span, Fact::ReadsEnvironment { name: None });
        }
    }
}

impl Given {
    /// Every argument.
    fn all(&self) -> impl Iterator<Item = &Held> {
        self.args.iter().chain(self.named.iter().map(|(_, arg, _)| arg))
    }

    /// These arguments behind those that were given before.
    fn behind(&self, bound: &Bound) -> Self {
        let place = Place { span: self.span, literal: None };
        let mut named: Vec<(String, Held, Place)> = self.named.clone();
        named.extend(bound.named.iter().map(|(name, held)| (name.clone(), Rc::clone(held), place)));
        Self {
            args: bound.args.iter().chain(&self.args).cloned().collect(),
            places: bound.args.iter().map(|_| place).chain(self.places.iter().copied()).collect(),
            named,
            receiver: self.receiver.clone(),
            span: self.span,
        }
    }
}

/// A function with its first arguments.
pub(super) fn bound(function: &Held, args: Vec<Held>, named: Vec<(String, Held)>) -> Value {
    if args.is_empty() && named.is_empty() {
        return Value::clone(function);
    }
    let before = function.bound.as_ref();
    let args = before.iter().flat_map(|bound| bound.args.iter().cloned()).chain(args).take(ITEMS).collect();
    let named = before.iter().flat_map(|bound| bound.named.iter().cloned()).chain(named).take(ITEMS).collect();
    Value { bound: Some(Rc::new(Bound { args, named })), ..Value::clone(function) }
}

fn reaches_inside(text: &Text) -> bool {
    text.pieces().iter().any(|piece| match piece {
        crate::text::Piece::Known(known) => known.contains(".__") || known.contains("[__"),
        crate::text::Piece::Pattern(_) | crate::text::Piece::Hole(_) => false,
    })
}
