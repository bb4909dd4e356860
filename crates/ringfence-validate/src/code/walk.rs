//! The walk over a program: what names come to hold, statement by statement, and the facts that this shows.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::book::Book;
use super::scope::{Of, Scopes, Sure};
use super::tree::{Bind, Class, Expr, Function, How, Import, Kind, LoopEnd, Param, Pattern, Statement, Takes};
use super::value::{Held, Value};
use crate::analysis::{Act, Does, Fact, Flow, Origin, Step, SystemAct, Trick, Unknown};
use crate::language::Language;
use crate::reading::Reading;
use crate::span::Span;
use crate::text::{Hole, Text};

/// Times that the program is gone over before facts are told: once for each call that data is handed on by.
const LEARNING: usize = 2;
/// Work that one program is worth, in bytes copied and expressions looked at.
const EFFORT: usize = 32 * 1024 * 1024;
/// What one statement or expression costs of it, and one call.
pub(super) const STEP_EFFORT: usize = 100;
pub(super) const CALL_EFFORT: usize = 500;
/// Bytes from which on a program is gone over only once before facts are told.
const LONG: usize = 128 * 1024;

/// A program that was parsed.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) language: Language,
    pub(crate) statements: Vec<Statement>,
    /// Facts that the text itself shows: names that look like others, strange comments.
    pub(crate) seen: Vec<(Trick, Span)>,
    pub(crate) length: usize,
}

/// The step of a program.
pub(crate) fn read(reading: &mut Reading<'_>, book: &Book, program: &Program, origin: Origin) -> Step {
    let span = origin.place(Span::new(0, program.length));
    let mut walk = Walk {
        reading,
        book,
        origin,
        language: program.language,
        scopes: Scopes::new(),
        functions: HashMap::new(),
        imported: HashSet::new(),
        stars: Vec::new(),
        files: HashMap::new(),
        telling: Telling::Learning,
        perhaps: 0,
        loops: 0,
        inside: Vec::new(),
        unrolled: 0,
        effort: EFFORT,
        told: HashSet::new(),
        called: HashSet::new(),
        facts: Vec::new(),
        inner: Vec::new(),
    };
    let learning = if program.length > LONG { 1 } else { LEARNING };
    for _ in 0..learning {
        walk.statements(&program.statements);
        walk.scopes.again();
    }
    walk.telling = Telling::Facts;
    for (trick, place) in &program.seen {
        walk.trick(*trick, *place);
    }
    walk.statements(&program.statements);
    if walk.effort == 0 {
        walk.tell(Span::new(0, program.length), Fact::Unknown { unknown: Unknown::TooMuch { bound: "effort" } });
    }
    let (mut facts, inner) = (walk.facts, walk.inner);
    let counted = reading.count_step().and_then(|()| reading.count_facts(facts.len()));
    if let Err(unknown) = counted {
        facts = vec![Act { span, fact: Fact::Unknown { unknown } }];
    }
    Step { span, does: Does::Code { language: program.language }, facts, inner }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Telling {
    Learning,
    Facts,
}

/// What is known of a function of the program.
#[derive(Debug, Default, Clone)]
pub(super) struct Known {
    pub(super) params: Vec<Option<Held>>,
    pub(super) gives: Option<Held>,
    /// The names of its parameters, in order; nothing for one that is a pattern.
    pub(super) order: Vec<(Option<String>, Takes)>,
}

#[derive(Debug)]
pub(super) struct Walk<'w, 'r> {
    pub(super) reading: &'w mut Reading<'r>,
    pub(super) book: &'w Book,
    pub(super) origin: Origin,
    pub(super) language: Language,
    pub(super) scopes: Scopes,
    pub(super) functions: HashMap<usize, Known>,
    /// Modules that are imported somewhere.
    pub(super) imported: HashSet<String>,
    /// Modules that everything is imported of.
    pub(super) stars: Vec<String>,
    /// What was written to which file.
    pub(super) files: HashMap<String, Held>,
    telling: Telling,
    perhaps: usize,
    /// Loops around that never end.
    pub(super) loops: usize,
    /// The functions that are being walked over, innermost last.
    inside: Vec<usize>,
    /// Whether a list is being gone through item by item.
    pub(super) unrolled: usize,
    effort: usize,
    told: HashSet<(Span, Fact)>,
    pub(super) called: HashSet<Rc<str>>,
    facts: Vec<Act>,
    pub(super) inner: Vec<Step>,
}

impl Walk<'_, '_> {
    pub(super) fn tell(&mut self, span: Span, fact: Fact) {
        if self.telling == Telling::Learning || self.facts.len() > self.reading.limits.facts {
            return;
        }
        let span = self.origin.place(span);
        if self.told.insert((span, fact.clone())) {
            self.facts.push(Act { span, fact });
        }
    }

    pub(super) fn trick(&mut self, trick: Trick, span: Span) {
        self.tell(span, Fact::Tricks { trick });
    }

    pub(super) fn is_telling(&self) -> bool {
        self.telling == Telling::Facts
    }

    /// Whether there is still work to be spent on this program.
    pub(super) fn spend(&mut self, work: usize) -> bool {
        self.effort = self.effort.saturating_sub(work);
        self.effort > 0
    }

    pub(super) fn statements(&mut self, statements: &[Statement]) {
        for statement in statements {
            if !self.spend(STEP_EFFORT) {
                return;
            }
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Statement) {
        match statement {
            Statement::Value(value) => {
                self.value(value);
            }
            Statement::Assign { pattern, value, how } => {
                let held = self.value(value);
                self.assign(pattern, held, *how);
            }
            Statement::Branches(branches) => {
                self.perhaps += 1;
                branches.iter().for_each(|branch| self.statements(branch));
                self.perhaps -= 1;
            }
            Statement::Loop { each, end, body, span } => self.walk_loop(each.as_ref(), *end, body, *span),
            Statement::Block(body) => {
                self.scopes.enter(Of::Block);
                self.statements(body);
                self.scopes.leave();
            }
            Statement::Return(value) => {
                let held = self.value(value);
                self.deferred_call(&held, value.span);
                if let Some(known) = self.inside.last().and_then(|number| self.functions.get_mut(number)) {
                    known.gives = Some(match &known.gives {
                        Some(before) if Rc::ptr_eq(before, &held) => held,
                        Some(before) => Rc::new(Value::clone(before).or(&held)),
                        None => held,
                    });
                }
            }
            Statement::Import(import) => self.import(import),
            Statement::Outer(names) => self.scopes.declare_outer(names),
            Statement::Remove(places) => places.iter().for_each(|place| self.removed(place)),
            Statement::Strange(trick, span) => self.trick(*trick, *span),
        }
    }

    fn walk_loop(&mut self, each: Option<&(Pattern, Expr)>, end: LoopEnd, body: &[Statement], span: Span) {
        self.perhaps += 1;
        let endless = usize::from(end == LoopEnd::Never);
        self.loops += endless;
        if let Some((pattern, over)) = each {
            let items = self.value(over);
            self.whole_environment(&items, over.span);
            let item = Rc::new(items.any_item());
            self.assign(pattern, item, How::Here);
        }
        self.statements(body);
        if end == LoopEnd::Never && !body.is_empty() && body.iter().all(only_grows) {
            self.tell(span, Fact::System { act: SystemAct::Exhaustion, about: Text::known("a loop that never ends") });
        }
        self.loops -= endless;
        self.perhaps -= 1;
    }

    fn import(&mut self, import: &Import) {
        self.tell(import.span, Fact::Imports { module: Text::known(import.module.as_str()) });
        let module = self.book.canonical(import.module.as_str()).to_owned();
        if self.imported.len() < 4096 {
            self.imported.insert(module.clone());
        }
        for bind in &import.binds {
            match bind {
                Bind::Module { name } => self.set(name, Value::named(&module), How::Here),
                Bind::Root { name } => {
                    self.imported.insert(name.clone());
                    self.set(name, Value::named(name), How::Here);
                }
                Bind::Member { member, name } => {
                    let whole = Value::named(&module);
                    let held = self.member_of(&whole, member, import.span);
                    self.scopes.set_here(name, held, Sure::Always);
                }
                Bind::All if self.stars.len() < 64 && !self.stars.contains(&module) => self.stars.push(module.clone()),
                Bind::All => {}
            }
        }
    }

    pub(super) fn sure(&self) -> Sure {
        if self.perhaps > 0 { Sure::Perhaps } else { Sure::Always }
    }

    fn set(&mut self, name: &str, value: Value, how: How) {
        self.assign_name(name, Rc::new(value), how);
    }

    fn assign_name(&mut self, name: &str, value: Held, how: How) {
        self.spend(value.size());
        let sure = self.sure();
        match how {
            How::Here => self.scopes.set_here(name, value, sure),
            How::Around => self.scopes.set_around(name, value, sure),
            How::Add => {
                let before = self.lookup(name);
                let parts = [before, value];
                let sum = Rc::new(self.sum(&parts));
                self.scopes.set_around(name, sum, sure);
            }
        }
    }

    /// Puts a value where a pattern says.
    pub(super) fn assign(&mut self, pattern: &Pattern, value: Held, how: How) {
        match pattern {
            Pattern::Name(name) => self.assign_name(name, value, how),
            Pattern::List(patterns) => {
                for (at, pattern) in patterns.iter().enumerate() {
                    let item = match &value.items {
                        Some(items) => items.get(at).cloned().unwrap_or_default(),
                        None => Rc::new(value.any_item()),
                    };
                    self.assign(pattern, item, how);
                }
            }
            Pattern::Rest(pattern) => {
                let rest = Rc::new(Value { texts: Vec::new(), ..Value::clone(&value) });
                self.assign(pattern, rest, how);
            }
            Pattern::Fields(fields) => {
                for (key, pattern) in fields {
                    if let Pattern::Rest(_) = pattern {
                        self.assign(pattern, Rc::clone(&value), how);
                        continue;
                    }
                    let key_held = self.value(key);
                    let held = self.index_of(&value, &key_held, key.span);
                    self.assign(pattern, held, how);
                }
            }
            Pattern::Default(pattern, default) => {
                let default = self.value(default);
                let held = Rc::new(Value::clone(&value).or(&default));
                self.assign(pattern, held, how);
            }
            Pattern::Place(place) => self.assign_place(place, &value, how),
        }
    }

    /// Walks over a function of the program and gives it as a value.
    pub(super) fn function(&mut self, function: &Function) -> Held {
        let known = self.functions.entry(function.number).or_default();
        if known.order.is_empty() {
            known.order = function.params.iter().map(order).collect();
        }
        let known = known.clone();
        let defaults: Vec<Option<Held>> =
            function.params.iter().map(|param| param.default.as_ref().map(|default| self.value(default))).collect();
        self.scopes.enter(Of::Function);
        let (perhaps, loops) = (std::mem::take(&mut self.perhaps), std::mem::take(&mut self.loops));
        self.inside.push(function.number);
        for (at, (param, default)) in function.params.iter().zip(defaults).enumerate() {
            let seen = known.params.get(at).cloned().flatten();
            let unknown = || Rc::new(unknown_param(param));
            let held = match (seen, default) {
                (Some(seen), Some(default)) => Rc::new(Value::clone(&seen).or(&default)),
                (Some(seen), None) => seen,
                (None, Some(default)) if default.texts.is_empty() => default,
                (None, Some(default)) => Rc::new(Value::clone(&default).or(&unknown())),
                (None, None) => unknown(),
            };
            self.assign(&param.pattern, held, How::Here);
        }
        self.statements(&function.body);
        self.inside.pop();
        (self.perhaps, self.loops) = (perhaps, loops);
        self.scopes.leave();
        Rc::new(Value { functions: vec![function.number], ..Value::default() })
    }

    /// Walks over a class of the program and gives it as a value.
    pub(super) fn class(&mut self, class: &Class) -> Held {
        let bases: Vec<Held> = class.bases.iter().map(|base| self.value(base)).collect();
        self.scopes.enter(Of::Class);
        self.statements(&class.body);
        let mut fields = self.scopes.leave();
        fields.sort_by(|one, other| one.0.cmp(&other.0));
        let mut made = Vec::new();
        for (name, held) in &fields {
            self.scopes.set_attribute(name, held);
            if matches!(name.as_str(), "__init__" | "constructor" | "__new__" | "__call__") {
                made.extend(held.functions.iter().copied());
            }
        }
        let mut value = Value::object(fields);
        value.functions = made;
        for base in bases {
            base.names.iter().for_each(|name| value.add_name(name));
        }
        value.flows.clear();
        Rc::new(value)
    }

    /// Hands arguments to a function of the program, and gives what it returns.
    pub(super) fn enter_function(&mut self, number: usize, params: &[(usize, Held)]) -> Option<Held> {
        let known = self.functions.entry(number).or_default();
        for (at, held) in params.iter().filter(|(at, _)| *at < 64) {
            if known.params.len() <= *at {
                known.params.resize(*at + 1, None);
            }
            known.params[*at] = Some(match &known.params[*at] {
                Some(before) if Rc::ptr_eq(before, held) => Rc::clone(held),
                Some(before) => Rc::new(Value::clone(before).or(held)),
                None => Rc::clone(held),
            });
        }
        known.gives.clone()
    }
}

fn order(param: &Param) -> (Option<String>, Takes) {
    match &param.pattern {
        Pattern::Name(name) => (Some(name.clone()), param.takes),
        _ => (None, param.takes),
    }
}

fn unknown_param(param: &Param) -> Value {
    match (&param.pattern, param.takes) {
        (Pattern::Name(name), Takes::One) if !matches!(name.as_str(), "self" | "cls" | "this") => {
            Value::text(Text::hole(Hole::Variable(name.clone())))
        }
        _ => Value::default(),
    }
}

/// A statement that does nothing but take more room.
fn only_grows(statement: &Statement) -> bool {
    match statement {
        Statement::Assign { how: How::Add, .. } => true,
        Statement::Value(Expr { kind: Kind::Call(call), .. }) => {
            matches!(&call.callee.kind, Kind::Member(_, name) if matches!(name.as_str(), "append" | "push" | "extend" | "write" | "appendFileSync"))
        }
        _ => false,
    }
}

/// What may not leave unnoticed.
pub(super) fn matters(flow: &Flow) -> bool {
    match flow {
        Flow::File { .. } | Flow::Environment => true,
        Flow::Network | Flow::Decoded | Flow::Input | Flow::Literal | Flow::Unknown => false,
    }
}
