//! Expressions and calls: what they give, and whom they reach.

use std::borrow::Cow;
use std::rc::Rc;

use super::databases::is_of_a_database;
use super::few::Few;
use super::heap::Made;
use super::role::RoleAct;
use super::talk::{is_stub, is_talk, only_looks};
use super::tampered::is_expectation;
use super::tree::{Arg, Call, Expr, Kind, Literal, ORDER, Written};
use super::value::{Bound, Held, ITEMS, Value};
use super::walk::{CALL_EFFORT, Walk};
use super::{act, fold};
use crate::analysis::{Fact, Trick};
use crate::language::Language;
use crate::span::Span;
use crate::text::Text;

/// Functions that give a container like the one that they are given.
const COPIES: &[&str] =
    &["list", "tuple", "sorted", "set", "frozenset", "collections.deque", "Array.from", "Set", "structuredClone"];
/// Functions of the program that one call may be of, and that are followed one by one.
const FOLLOWED: usize = 8;
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
        if let Kind::Either(choices) = &call.callee.kind
            && choices.len() <= 4
            && choices.iter().any(|choice| matches!(choice.kind, Kind::Member(..)))
        {
            return self.call_either(choices, call, span);
        }
        let (callee, receiver, method) = match &call.callee.kind {
            Kind::Member(base, attribute) => {
                let receiver = self.value(base);
                let callee = self.member_of(&receiver, attribute, call.callee.span);
                (callee, Some(receiver), Some(Cow::Borrowed(attribute.as_str())))
            }
            Kind::Index(base, key) => {
                let (receiver, key) = (self.value(base), self.value(key));
                let method = key.as_known().map(|key| Cow::Owned(key.to_owned()));
                (self.item(&receiver, &key, call.callee.span), Some(receiver), method)
            }
            _ => (self.value(&call.callee), None, None),
        };
        if let Some(held) = self.each_item(&callee, receiver.as_ref(), method.as_deref(), &call.args) {
            return held;
        }
        if Self::copies_a_function(&callee, call) {
            return Held::default();
        }
        let given = Given { receiver, span, ..self.arguments(&call.args) };
        if let (Some(method), Kind::Member(base, _)) = (&method, &call.callee.kind) {
            self.grown(base, method, &given);
            self.handlers(base, method, &callee, &given);
            if &**method == "pipe" {
                self.piped(given.receiver.as_ref(), given.args.first(), &given);
            }
        }
        if let Some(first) = call.args.first().filter(|first| first.name.is_none()) {
            let borrowed = match &call.callee.kind {
                Kind::Member(inner, how) if matches!(how.as_str(), "call" | "apply") => match &inner.kind {
                    Kind::Member(_, name) => Some((name.as_str(), how.as_str())),
                    _ => None,
                },
                _ => None,
            };
            self.grown_by(&first.value, &callee, borrowed, &given);
        }
        self.called(&callee, method.as_deref(), &given)
    }

    /// `(a.f if x else b.g)()`: each may be called, on what it belongs to.
    fn call_either(&mut self, choices: &[Expr], call: &Call, span: Span) -> Held {
        let given = self.arguments(&call.args);
        let mut either = Value::default();
        for choice in choices {
            let (callee, receiver, method) = match &choice.kind {
                Kind::Member(base, attribute) => {
                    let receiver = self.value(base);
                    (self.member_of(&receiver, attribute, choice.span), Some(receiver), Some(attribute.as_str()))
                }
                Kind::Ignored(_) => {
                    self.value(choice);
                    continue;
                }
                _ => (self.value(choice), None, None),
            };
            let gives = self.called(&callee, method, &Given { receiver, span, ..given.clone() });
            either.add(&gives);
        }
        Rc::new(either)
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
        if is_expectation(method, given.receiver.as_ref()) {
            return Held::default();
        }
        let handed = self.handed_on(callee, method, given);
        let gives = self.called_by_name(callee, method, given);
        match handed {
            Some(handed) => Rc::new(Value::clone(&gives).or(&handed)),
            None => gives,
        }
    }

    /// What a call of what is known by its name gives, or of a function of the program.
    fn called_by_name(&mut self, callee: &Held, method: Option<&str>, given: &Given) -> Held {
        if let (Some(method), Some(receiver), Some(key)) = (method, &given.receiver, given.args.first())
            && matches!(method, "get" | "__getitem__" | "__getattribute__" | "setdefault" | "pop")
            && receiver.items.is_none()
            && (receiver.fields.is_some()
                || receiver.names.iter().any(|name| {
                    matches!(&**name, "Map()" | "WeakMap()" | "collections.defaultdict()")
                        || self.language == Language::Python
                            && (self.book.is_guarded(name) || self.book.is_globals(name))
                }))
            && !receiver.names.iter().any(|name| self.book.knows(&format!("{name}.{method}")))
        {
            let found = self.index_of(receiver, key, given.span);
            return match given.args.get(1) {
                Some(default) => Rc::new(Value::clone(&found).or(default)),
                None => found,
            };
        }
        if let Some(parts) = self.parts_of(callee, given) {
            return parts;
        }
        self.maker(callee, given);
        if let Some(made) = self.container(callee, given).or_else(|| self.getter(callee, given)) {
            return made;
        }
        if let (Some(method), Some(receiver)) = (method, &given.receiver) {
            if self.language != Language::Python
                && !callee.names.iter().any(|name| self.book.knows(name) || is_of_a_database(name))
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
                if matches!(method, "sort" | "toSorted" | "find" | "findLast" | "filter" | "findIndex" | "flatMap") {
                    self.applied(given);
                }
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
        self.trusts_code(given);
        for name in &callee.names {
            if let Some(gives) = self.by_name(name, given) {
                told = true;
                result.add(&gives);
            }
            if let Some(mut value) = fold::function(name, &given.args) {
                if COPIES.contains(&&**name) {
                    value.made = Made::default();
                }
                self.tell_call(name, given.span);
                told = true;
                result.add(&value);
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
                let full = self.spell(&[name, "()"]);
                self.add_thing(&mut result, self.book.canonical(&full));
                self.spelled = full;
            }
        }
        let mut own = false;
        for number in callee.functions.iter().take(FOLLOWED) {
            own = true;
            if let Some(gives) = self.call_own(*number, given) {
                result.add(&gives);
            }
        }
        callee.functions.iter().skip(FOLLOWED).for_each(|number| self.call_one_of_many(*number, given));
        if callee.fields.is_some() {
            if let Some(order) = callee.field(ORDER).and_then(|order| order.items.clone()) {
                let names = order.iter().filter_map(|name| name.as_known());
                names.zip(&given.args).for_each(|(name, held)| self.scopes.set_attribute(name, held));
            }
            // An object of a class: its constructor may be nothing but a list of fields.
            given.named.iter().for_each(|(name, held, _)| self.scopes.set_attribute(name, held));
        }
        if own && let Some(fields) = &callee.fields {
            result.fields = Some(Rc::clone(fields));
            if let Some(itself) = callee.field("__call__") {
                // An object that is called as a function is.
                result.functions = itself.functions.clone();
            }
        } else if callee.fields.is_some() {
            result.add(&Value { functions: Few::default(), names: Few::default(), ..Value::clone(callee) });
        }
        if !told && !own {
            result.flows.add_all(&callee.flows);
            for arg in given.all() {
                // What somebody unknown gives back may be what it was given.
                result.flows.add_all(&arg.flows);
                result.flows.add_own(&arg.functions);
            }
            self.keeps(given);
        }
        if !acted && !callee.names.iter().any(|name| only_looks(name)) {
            self.applied(given);
        }
        if !told && !own && !acted && !is_talk(method, callee) {
            self.secret_arguments(given);
        }
        given.args.iter().zip(&given.places).for_each(|(arg, place)| self.whole_environment(arg, place.span));
        if let (Some("then"), Some(receiver)) = (method, &given.receiver) {
            return self.then(receiver, given, result);
        }
        if let (Some("catch" | "finally"), Some(receiver)) = (method, &given.receiver)
            && self.language != Language::Python
        {
            // Where nothing goes wrong, it is what was promised.
            result = Value::clone(receiver).or(&result);
        }
        if let (Some("on" | "once" | "addListener" | "prependListener"), Some(receiver)) = (method, &given.receiver)
            && self.language != Language::Python
            && !told
            && !own
        {
            // Whoever is told of something gives itself back.
            result.add_names(&receiver.names);
            self.told_by(receiver);
            receiver.texts.iter().for_each(|text| result.texts.push(text.clone()));
        }
        self.callbacks(given, || {
            let gives = Value { functions: Few::default(), ..result.clone() };
            match &given.receiver {
                // Who calls the stand-in says what it is given.
                Some(_) if method.is_some_and(is_stub) => Value::default(),
                Some(receiver) if !told => receiver.any_item().or(&gives),
                _ => gives,
            }
        });
        Rc::new(result)
    }

    /// `f.call(this, a)`, `f.apply(this, [a])`, `f.bind(this, a)`.
    pub(super) fn called_by(&mut self, callee: &Held, method: &str, given: &Given) -> Held {
        let mut shifted = Given { receiver: None, ..given.clone() };
        if let Some(first) = given.args.first()
            && let Some(how) = ["call", "apply", "bind"].into_iter().find(|how| {
                let is_it = |name: &Rc<str>| name.strip_suffix(how).is_some_and(|of| of.ends_with('.'));
                callee.names.iter().any(is_it) && !callee.names.iter().any(|name| self.book.knows(name))
            })
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
            let mut function = bound(callee, shifted.args, Vec::new());
            // Something of the library may bind what it is given.
            given.args.first().iter().for_each(|first| function.flows.add_abilities(&first.flows));
            return Rc::new(function);
        }
        self.called(callee, None, &shifted)
    }

    /// A promise is followed: the function is given what the promise brings, and its result is what comes next.
    fn then(&mut self, receiver: &Held, given: &Given, result: Value) -> Held {
        let mut next = Value::default();
        for callback in given.args.iter() {
            for number in &callback.functions {
                if let Some(gives) = self.enter_function(*number, &[(0, Rc::clone(receiver))]) {
                    next.add(&gives);
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
                next.add(&gives);
            }
        }
        next.flows.add_all(&receiver.flows);
        if next.names.is_empty() && next.texts.is_empty() {
            next.add(&result);
        }
        Rc::new(next)
    }

    fn tell_call(&mut self, name: &Rc<str>, span: Span) {
        if self.is_telling() && !name.starts_with('(') && self.called.insert(Rc::clone(name)) {
            self.tell(span, Fact::Calls { name: Text::known(&**name) });
        }
    }

    pub(super) fn is_from_a_module(&self, name: &str) -> bool {
        self.imported.has_around(name)
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
    pub(super) fn all(&self) -> impl Iterator<Item = &Held> {
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

/// Whether a format looks into what it is given: further than to the name of its class.
fn reaches_inside(text: &Text) -> bool {
    let inside = |part: &str| part.contains(".__") || part.contains("[__");
    text.pieces().iter().any(|piece| match piece {
        crate::text::Piece::Known(known) => {
            let mut parts = known.split('{');
            // What stands before may be the rest of a field that began in what is not known.
            parts.next().is_some_and(inside)
                || parts
                    .map(|field| field.split(['}', '!', ':']).next().unwrap_or(field))
                    .any(|field| inside(field) && !is_name_of_class(field))
        }
        crate::text::Piece::Pattern(_) | crate::text::Piece::Hole(_) => false,
    })
}

/// `x.__class__.__name__`, and nothing else.
fn is_name_of_class(field: &str) -> bool {
    let mut parts = field.split('.').skip(1);
    let named = |part: Option<&str>| matches!(part, Some("__name__" | "__qualname__" | "__module__" | "__doc__"));
    !field.contains('[')
        && match parts.next() {
            Some("__class__") => named(parts.next()),
            part => named(part),
        }
        && parts.next().is_none()
}
