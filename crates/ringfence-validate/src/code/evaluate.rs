//! Expressions: what they hold.

use std::rc::Rc;

use super::call::Place;
use super::fold;
use super::lists;
use super::loops::grows;
use super::store::SENT;
use super::tree::{Arithmetic, Expr, How, Kind, Literal, Pattern, Truth};
use super::value::{ANY_KEY, Held, ITEMS, Value, join};
use super::walk::{STEP_EFFORT, Walk};
use crate::analysis::{Fact, Flow, SystemAct};
use crate::language::Language;
use crate::span::Span;
use crate::text::{Hole, Text};

/// What functions are called on that are told of something, as an attribute that no program has.
pub(super) const TOLD_BY: &str = "(told by)";
/// More than this of anything is more than a machine has to spare.
const TOO_MANY: i64 = 1 << 33;

impl Walk<'_, '_> {
    /// What an expression holds.
    pub(super) fn value(&mut self, expr: &Expr) -> Held {
        if !self.spend(STEP_EFFORT) {
            return Held::default();
        }
        self.down += 1;
        let mut held = self.value_of(expr);
        self.down -= 1;
        if held.items.is_none() && held.fields.is_none() {
            return held;
        }
        if held.made.sites.is_empty() {
            // Nobody else has it yet, so it was made here.
            if let Some(container) = Rc::get_mut(&mut held) {
                self.heap.make(container, expr.span);
            }
            return held;
        }
        self.heap.found(&held).unwrap_or(held)
    }

    fn value_of(&mut self, expr: &Expr) -> Held {
        match &expr.kind {
            Kind::Text(literal) => {
                self.spend(literal.value.len());
                literal.held()
            }
            Kind::Number(number) => Rc::new(Value::number(*number)),
            Kind::Truth(truth) => Rc::new(Value { truth: Some(*truth == Truth::True), ..Value::default() }),
            Kind::Nothing => Rc::clone(&self.nothing),
            Kind::Name(name) => self.lookup(name),
            Kind::This => match self.scopes.attribute(TOLD_BY) {
                Some(tellers) => Rc::clone(tellers),
                None => Rc::clone(&self.nothing),
            },
            Kind::Member(base, attribute) => match self.plain_part(base, attribute) {
                Some(plain) => plain,
                None => {
                    let base = self.value(base);
                    let found = self.member_of(&base, attribute, expr.span);
                    self.bound_to(found, &base)
                }
            },
            Kind::Index(base, key) => {
                let (base, key) = (self.value(base), self.value(key));
                self.item(&base, &key, expr.span)
            }
            Kind::Slice(base, ends) => self.slice(base, ends),
            Kind::Call(call) => self.call(call, expr.span),
            Kind::Join(parts) => {
                let parts: Vec<Held> = parts.iter().map(|part| self.value(part)).collect();
                Rc::new(self.sum(&parts))
            }
            Kind::Percent(text, values) => {
                let (text, values) = (self.value(text), self.value(values));
                match text.as_known() {
                    Some(known) => Rc::new(fold::percent(known, &values)),
                    None => Rc::new(mixed(&[text, values])),
                }
            }
            Kind::Divide(left, right) => {
                let (left, right) = (self.value(left), self.value(right));
                if left.has("pathlib.Path()") || right.has("pathlib.Path()") {
                    let mut path = fold::path(&[left, right]);
                    path.add_name("pathlib.Path()");
                    return Rc::new(path);
                }
                Rc::new(mixed(&[left, right]))
            }
            Kind::Times(left, right) => self.times(left, right, expr.span),
            Kind::Power(left, right) => {
                let (left, right) = (self.value(left), self.value(right));
                let power = left
                    .number
                    .zip(right.number)
                    .and_then(|(base, power)| base.checked_pow(u32::try_from(power).ok()?));
                Rc::new(Value { number: power, ..mixed(&[left, right]) })
            }
            Kind::Arithmetic(operator, left, right) => {
                let (left, right) = (self.value(left), self.value(right));
                let number = left.number.zip(right.number).and_then(|(left, right)| match operator {
                    Arithmetic::Minus => left.checked_sub(right),
                    Arithmetic::Xor => Some(left ^ right),
                });
                Rc::new(Value { number, ..mixed(&[left, right]) })
            }
            Kind::Ignored(inner) => {
                self.value(inner);
                Rc::clone(&self.nothing)
            }
            Kind::List(items) => {
                let items = self.items(items);
                Rc::new(Value::list(items))
            }
            Kind::Spread(inner) => self.value(inner),
            Kind::Fields(fields) => self.fields(fields),
            Kind::Either(choices) => {
                let mut either = Value::default();
                let mut open = false;
                for choice in choices {
                    let held = self.value(choice);
                    open |= is_open(&held);
                    either.add(&held);
                }
                // Beside what is written out it may be what somebody else says.
                if open && !either.texts.is_empty() {
                    either.texts.push(Text::hole(Hole::Value));
                }
                Rc::new(either)
            }
            Kind::Function(function) => self.function(function),
            Kind::Class(class) => self.class(class),
            Kind::Decorated(decorator, name) => self.decorated(decorator, name, expr.span),
            Kind::Yield(inner) => {
                let held = self.value(inner);
                self.yields(&held);
                match self.scopes.attribute(SENT) {
                    Some(sent) => Rc::new(Value::clone(sent).or(&held)),
                    None => held,
                }
            }
            Kind::Assign(pattern, value) => {
                let held = self.value(value);
                let how = if matches!(**pattern, Pattern::Name(_)) { How::Around } else { How::Here };
                self.assign(pattern, Rc::clone(&held), how);
                held
            }
            Kind::Comprehension { loops, values } => {
                let items = self.comprehension(loops, values);
                Rc::new(Value::list(items))
            }
            Kind::Import(module) => {
                let held = self.value(module);
                self.imports(&held, Place::of(module))
            }
            Kind::Mix(parts) => {
                let parts: Vec<Held> = parts.iter().map(|part| self.value(part)).collect();
                Rc::new(mixed(&parts))
            }
        }
    }

    /// Texts one after the other, lists one after the other, or numbers added.
    pub(super) fn sum(&mut self, parts: &[Held]) -> Value {
        self.spend(parts.iter().map(|part| part.size()).sum::<usize>() * 2);
        if parts.iter().all(|part| part.items.is_some()) && !parts.is_empty() {
            let all = parts.iter().filter_map(|part| part.items.as_ref()).flat_map(|items| items.iter().cloned());
            return Value::list(all.take(ITEMS + 1).collect());
        }
        if parts.iter().all(|part| part.number.is_some() && part.texts.is_empty()) {
            let sum = parts.iter().filter_map(|part| part.number).try_fold(0_i64, i64::checked_add);
            return Value { number: sum, ..Value::default() };
        }
        if parts.iter().all(|part| part.texts.is_empty() && part.number.is_none()) {
            return mixed(parts);
        }
        join(parts, "")
    }

    fn slice(&mut self, base: &Expr, ends: &[Option<Box<Expr>>; 3]) -> Held {
        let base = self.value(base);
        let mut numbers = [None; 3];
        let mut known = true;
        for (end, number) in ends.iter().zip(&mut numbers) {
            if let Some(end) = end {
                *number = self.value(end).number;
                known &= number.is_some();
            }
        }
        let [start, end, step] = numbers;
        if let Some(text) = base.as_known().filter(|_| known) {
            let mut value = fold::slice(text, start, end, step).unwrap_or_default();
            value.making = value.making.max(base.making);
            value.flows.add_all(&base.flows);
            return Rc::new(value);
        }
        if let Some(items) = base.items.as_ref().filter(|_| known) {
            let taken = lists::places(items.len(), start, end, step);
            return Rc::new(Value::list(taken.into_iter().filter_map(|at| items.get(at)).cloned().collect()));
        }
        if base.items.is_some() {
            return base;
        }
        Rc::new(mixed(&[base]))
    }

    fn times(&mut self, left: &Expr, right: &Expr, span: Span) -> Held {
        let (left, right) = (self.value(left), self.value(right));
        let of = |one: &Held, other: &Held| other.number.filter(|_| !one.texts.is_empty() || one.items.is_some());
        if let Some(times) = of(&left, &right).or_else(|| of(&right, &left)) {
            if times > TOO_MANY {
                self.tell(span, Fact::System { act: SystemAct::Exhaustion, about: Text::known("memory") });
            }
            let text = left.as_known().or_else(|| right.as_known());
            if let Some(value) = text.and_then(|text| fold::repeated(text, times)) {
                self.spend(value.size());
                return Rc::new(value);
            }
            if let (Some(items), Ok(times)) = (left.items.as_ref().or(right.items.as_ref()), usize::try_from(times)) {
                let all = std::iter::repeat_n(items, times.min(ITEMS + 1)).flat_map(|items| items.iter().cloned());
                return Rc::new(Value::list(all.take(ITEMS + 1).collect()));
            }
        }
        let product = left.number.zip(right.number).and_then(|(left, right)| left.checked_mul(right));
        Rc::new(Value { number: product, ..mixed(&[left, right]) })
    }

    fn items(&mut self, items: &[Expr]) -> Vec<Held> {
        let mut all = Vec::with_capacity(items.len());
        for item in items {
            let held = self.value(item);
            match (&item.kind, &held.items) {
                (Kind::Spread(_), Some(more)) => all.extend(more.iter().cloned()),
                (Kind::Spread(_), None) => match held.as_known() {
                    Some(text) => all.extend(lists::as_letters(text).iter().cloned()),
                    None => all.push(Rc::new(self.one_of(&held, item.span))),
                },
                _ => all.push(held),
            }
        }
        all
    }

    fn fields(&mut self, fields: &[(Option<Expr>, Expr)]) -> Held {
        let mut all = Vec::with_capacity(fields.len());
        let mut flows = Value::default();
        for (key, value) in fields {
            let held = self.value(value);
            match key {
                // What an object inherits it has.
                Some(Expr { kind: Kind::Text(Literal { value: key, .. }), .. }) if key == "__proto__" => {
                    flows.flows.add_all(&held.flows);
                    flows.add_names(&held.names);
                    all.extend(held.fields.iter().flat_map(|fields| fields.iter().cloned()));
                }
                Some(key) => {
                    let key = self.value(key);
                    let number = key.number.map(|number| number.to_string());
                    let key = key.as_known().or(number.as_deref()).unwrap_or(ANY_KEY);
                    all.push((key.into(), held));
                }
                None => {
                    self.whole_environment(&held, value.span);
                    flows.flows.add_all(&held.flows);
                    flows.add_names(&held.names);
                    all.extend(held.fields.iter().flat_map(|fields| fields.iter().cloned()));
                }
            }
        }
        if self.language != Language::Python && all.iter().any(|(_, held)| !held.functions.is_empty()) {
            // Its methods find the rest of it by `this`.
            let plain = |(_, held): &&(Rc<str>, Held)| held.functions.is_empty();
            all.iter().filter(plain).for_each(|(key, held)| self.scopes.set_attribute(key, held));
        }
        if self.language != Language::Python {
            let span = fields.first().map(|(_, value)| value.span).unwrap_or_default();
            self.brings_code(&all, span);
        }
        self.notes_scripts(&all);
        let mut object = Value { names: flows.names, ..Value::object(all) };
        object.flows.add_all(&flows.flows);
        Rc::new(object)
    }

    /// The items of a comprehension. A known list is gone through item by item, as disguises of texts do it.
    fn comprehension(&mut self, loops: &[(Pattern, Expr)], values: &[Expr]) -> Vec<Held> {
        let endless = usize::from(loops.iter().any(|(_, over)| self.is_endless(over)));
        self.loops += endless;
        if endless > 0 && !values.is_empty() && values.iter().all(grows) {
            let span = values.first().map(|value| value.span).unwrap_or_default();
            self.tell(span, Fact::System { act: SystemAct::Exhaustion, about: Text::known("a loop that never ends") });
        }
        let all = self.comprehension_of(loops, values);
        self.loops -= endless;
        all
    }

    fn comprehension_of(&mut self, loops: &[(Pattern, Expr)], values: &[Expr]) -> Vec<Held> {
        if let [(pattern, expr)] = loops
            && self.unrolled == 0
        {
            let over = self.value(expr);
            let items: Vec<Held> = match (&over.items, over.as_known()) {
                (Some(items), _) => (**items).clone(),
                (None, Some(text)) => text.chars().take(ITEMS).map(|letter| Rc::new(Value::known(letter))).collect(),
                (None, None) => vec![Rc::new(self.one_of(&over, expr.span))],
            };
            self.unrolled += 1;
            let perhaps = std::mem::take(&mut self.perhaps);
            let mut all = Vec::new();
            for item in items {
                self.assign(pattern, item, How::Here);
                for value in values {
                    let held = self.value(value);
                    if !matches!(value.kind, Kind::Ignored(_)) {
                        all.push(held);
                    }
                }
            }
            self.unrolled -= 1;
            self.perhaps = perhaps;
            return all;
        }
        for (pattern, over) in loops {
            let held = self.value(over);
            let item = Rc::new(self.one_of(&held, over.span));
            self.assign(pattern, item, How::Here);
        }
        values.iter().map(|value| self.value(value)).collect()
    }
}

/// Whether only somebody else knows what it is.
fn is_open(held: &Value) -> bool {
    let elsewhere = |flow: &Flow| matches!(flow, Flow::Network | Flow::Input);
    held.texts.is_empty()
        && held.number.is_none()
        && held.items.is_none()
        && held.fields.is_none()
        && held.flows.iter().any(elsewhere)
}

/// Only where it comes from is known.
fn mixed(parts: &[Held]) -> Value {
    let mut value = Value::default();
    parts.iter().for_each(|part| value.flows.add_all(&part.flows));
    value
}
