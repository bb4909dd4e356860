//! Functions and classes of the program: what they are given, and what they give back.
//!
//! A body is walked over when the scope that it stands in ends, with everything that any call hands to it. A call whose arguments are
//! known follows the body once more with just these, so that a function which decodes many texts gives each caller its own.

use std::rc::Rc;

use super::call::{Given, Place};
use super::few::Few;
use super::flows::Flows;
use super::scope::{Home, Of, joined};
use super::tree::{Class, Function, How, Param, Pattern, Statement, Takes};
use super::value::{Field, Held, Learned, Value};
use super::walk::Walk;
use crate::analysis::{Origin, Trick};
use crate::span::Span;
use crate::text::{Hole, Text};

/// Statements of a function that is followed for one call alone.
const SMALL: usize = 24;
/// Calls that are followed so, each time the program is gone over.
const EXACT: usize = 400;
/// Functions within each other that are followed.
const CALLS: usize = 4;
/// Expressions around a call that is followed: each is a frame of ours.
const DOWN: usize = 48;
/// Parameters of one function.
const PARAMS: usize = 64;
/// Times that one body is walked over while the program is gone over the first time.
const WALKS: usize = 3;

/// What is known of a function of the program.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Everything that it is called with.
    params: Vec<Option<Held>>,
    defaults: Vec<Option<Held>>,
    gives: Option<Held>,
    /// The names of its parameters, in order; nothing for one that is a pattern.
    order: Vec<(Option<String>, Takes)>,
    function: Option<Rc<Function>>,
    home: Home,
    /// Of the text that it stands in.
    origin: Option<Origin>,
    /// When it was last walked over, and when somebody last asked what it gives.
    walked: usize,
    asked: usize,
    /// How often it was walked over only to learn what it gives.
    learned: usize,
    is_small: bool,
    /// It is being followed for one call alone: what it gives then is for that call, and no news to others.
    is_alone: bool,
    /// It is called in a loop that never ends.
    is_looped: bool,
    /// Where it may be when it is called, and where the program is afterwards, if that is somewhere else.
    directories: Few<Option<Text>>,
    ends_in: Few<Option<Text>>,
}

impl Walk<'_, '_> {
    /// A function of the program as a value. Its body waits.
    pub(super) fn function(&mut self, function: &Rc<Function>) -> Held {
        let defaults: Vec<Option<Held>> =
            function.params.iter().map(|param| param.default.as_ref().map(|default| self.value(default))).collect();
        let home = self.scopes.home();
        let known = self.functions.entry(function.number).or_default();
        if known.function.is_none() {
            known.order = function.params.iter().map(order).collect();
            known.is_small = weight(&function.body) <= SMALL;
            known.function = Some(Rc::clone(function));
        }
        known.origin = Some(self.origin);
        (known.home, known.defaults) = (home, defaults);
        let walked = known.walked == self.pass;
        if !walked || self.is_alone() {
            self.waiting.push((home.depth, function.number));
        }
        Rc::new(Value { functions: Few::one(function.number), ..Value::default() })
    }

    /// Whether a call is followed with just its own arguments: a function that is made there holds what that call was given.
    fn is_alone(&self) -> bool {
        self.inside.iter().any(|around| self.functions.get(around).is_some_and(|known| known.is_alone))
    }

    /// Walks over the bodies that wait for the end of this scope, the last first: callers mostly stand below what they call.
    pub(super) fn finish_scope(&mut self) {
        let depth = self.scopes.depth();
        while let Some((home, number)) = self.waiting.pop_if(|(home, _)| *home >= depth) {
            debug_assert!(home == depth, "a scope was left before its functions were walked over");
            let alone = self.is_alone();
            if self.functions.get(&number).is_some_and(|known| known.walked != self.pass || alone) {
                self.walk_body(number, None);
            }
        }
    }

    /// Walks over a body, with all that it is ever given, or with these arguments alone. What it gives, if it can be walked over from here.
    fn walk_body(&mut self, number: usize, exactly: Option<&[(usize, Held)]>) -> Option<Held> {
        let pass = self.pass;
        let known = self.functions.get_mut(&number)?;
        let function = Rc::clone(known.function.as_ref()?);
        let aside = self.scopes.aside(known.home)?;
        let before = match exactly {
            Some(_) => known.gives.take(),
            None => {
                if self.quiet == 0 {
                    known.walked = pass;
                }
                None
            }
        };
        let mut held: Vec<Held> = Vec::with_capacity(function.params.len());
        for (at, param) in function.params.iter().enumerate() {
            let given = match exactly {
                Some(given) => given.iter().rev().find(|(place, _)| *place == at).map(|(_, held)| Rc::clone(held)),
                None => known.params.get(at).cloned().flatten(),
            };
            let default = known.defaults.get(at).cloned().flatten();
            held.push(match (given, default) {
                (Some(given), Some(default)) if exactly.is_none() => joined(&given, &default),
                (Some(given), _) => given,
                (None, Some(default)) if default.texts.is_empty() || exactly.is_some() => default,
                (None, Some(default)) => Rc::new(Value::clone(&default).or(&unknown_param(param))),
                (None, None) => Rc::new(unknown_param(param)),
            });
        }
        let all = self.arguments.then(|| match exactly {
            Some(given) => given.iter().map(|(_, held)| Rc::clone(held)).collect(),
            None => known.params.iter().map(|held| held.clone().unwrap_or_default()).collect::<Vec<Held>>(),
        });
        let was_alone = std::mem::replace(&mut known.is_alone, exactly.is_some());
        let loops = usize::from(known.is_looped);
        let origin = self.origin;
        self.origin = known.origin.unwrap_or(origin);
        let starts_in = match exactly {
            None if !known.directories.is_empty() => known.directories.clone(),
            _ => self.directories.clone(),
        };
        let around = (
            std::mem::take(&mut self.perhaps),
            std::mem::replace(&mut self.loops, loops),
            std::mem::take(&mut self.waiting),
            std::mem::take(&mut self.unrolled),
            std::mem::replace(&mut self.directories, starts_in.clone()),
            self.heap.entered,
        );
        self.heap.entered = self.heap.now();
        self.scopes.enter(Of::Function);
        self.inside.push(number);
        if let Some(itself) = &function.itself {
            let own = Rc::new(Value { functions: Few::one(number), ..Value::default() });
            self.assign(&Pattern::Name(itself.clone()), own, How::Here);
        }
        for (param, held) in function.params.iter().zip(held) {
            self.assign(&param.pattern, held, How::Here);
        }
        if let Some(all) = all {
            self.assign(&Pattern::Name("arguments".to_owned()), Rc::new(Value::list(all)), How::Here);
        }
        self.statements(&function.body);
        self.finish_scope();
        self.inside.pop();
        self.scopes.forget();
        self.origin = origin;
        let ends_in = std::mem::take(&mut self.directories);
        (self.perhaps, self.loops, self.waiting, self.unrolled, self.directories, self.heap.entered) = around;
        self.scopes.back(aside);
        let known = self.functions.get_mut(&number)?;
        known.is_alone = was_alone;
        if *ends_in != *starts_in {
            self.scopes.stale |= *known.ends_in != *ends_in;
            known.ends_in = ends_in;
        }
        match exactly {
            Some(_) => std::mem::replace(&mut known.gives, before),
            None => known.gives.clone(),
        }
    }

    /// Something is given back by the function that is walked over.
    pub(super) fn returns(&mut self, held: &Held) {
        let Some(known) = self.inside.last().and_then(|number| self.functions.get_mut(number)) else { return };
        let is_asked = known.asked == self.pass && !known.is_alone;
        match &known.gives {
            Some(before) if Rc::ptr_eq(before, held) => {}
            Some(before) => {
                let learned = before.learns(held);
                self.scopes.stale |= is_asked && learned == Learned::News;
                if learned != Learned::Nothing {
                    known.gives = Some(Rc::new(Value::clone(before).or(held)));
                }
            }
            None => {
                known.gives = Some(Rc::clone(held));
                self.scopes.stale |= is_asked;
            }
        }
    }

    /// Something is given to whoever goes through what the function gives back.
    pub(super) fn yields(&mut self, held: &Held) {
        let list = Rc::new(Value::list(vec![Rc::clone(held)]));
        // By itself too: a function that hands one thing to a `with` gives just that.
        let both = if held.items.is_none() { Rc::new(Value::clone(held).or(&list)) } else { list };
        self.returns(&both);
    }

    /// A call of a function of the program that is one of many: what it is given is told when its scope ends.
    pub(super) fn call_one_of_many(&mut self, number: usize, given: &Given) {
        // As deep down as no call is followed any more.
        self.down += DOWN;
        self.call_own(number, given);
        self.down -= DOWN;
    }

    /// A call of a function of the program; what it gives.
    pub(super) fn call_own(&mut self, number: usize, given: &Given) -> Option<Held> {
        if self.perhaps == 0 && self.inside.last() == Some(&number) {
            // What calls itself whatever happens goes on without end.
            self.goes_on(number);
        }
        let params = self.params(number, given);
        self.enter_function(number, &params)
    }

    /// Hands arguments to a function of the program, and gives what it returns.
    pub(super) fn enter_function(&mut self, number: usize, params: &[(usize, Held)]) -> Option<Held> {
        let pass = self.pass;
        let known = self.functions.entry(number).or_default();
        let mut grew = false;
        for (at, held) in params.iter().filter(|(at, _)| *at < PARAMS) {
            if known.params.len() <= *at {
                known.params.resize(*at + 1, None);
            }
            match &known.params[*at] {
                Some(before) if Rc::ptr_eq(before, held) => {}
                Some(before) => {
                    let learned = before.learns(held);
                    grew |= learned == Learned::News;
                    if learned != Learned::Nothing {
                        known.params[*at] = Some(Rc::new(Value::clone(before).or(held)));
                    }
                }
                None => {
                    known.params[*at] = Some(Rc::clone(held));
                    grew = true;
                }
            }
        }
        if self.loops > 0 && !known.is_looped {
            known.is_looped = true;
            grew = true;
        }
        for directory in &self.directories {
            let count = known.directories.len();
            add_directory(&mut known.directories, directory.as_ref());
            grew |= known.directories.len() > count && (count > 0 || directory.is_some());
        }
        known.ends_in.iter().for_each(|directory| add_directory(&mut self.directories, directory.as_ref()));
        known.asked = pass;
        let is_walked = known.walked == pass;
        let (is_small, learned) = (known.is_small, known.learned);
        if is_walked && grew {
            self.scopes.stale = true;
        }
        let may_follow = self.inside.len() < CALLS && self.down < DOWN && !self.inside.contains(&number);
        if may_follow && is_small && self.exact < EXACT && params.iter().any(|(_, held)| is_constant(held)) {
            // What it does with just these is told too: of several calls that are taken together, words may be lost.
            self.exact += 1;
            let gives = self.walk_body(number, Some(params));
            if gives.is_some() {
                return gives;
            }
        }
        if may_follow && pass == 1 && !is_walked && (learned == 0 || (grew && learned < WALKS)) {
            // What it does is told when its scope ends, with all that it is given by then.
            self.quiet += 1;
            let gives = self.walk_body(number, None);
            self.quiet -= 1;
            if let Some(known) = self.functions.get_mut(&number) {
                known.learned += 1;
            }
            if gives.is_some() {
                return gives;
            }
        }
        self.functions.get(&number).and_then(|known| known.gives.clone())
    }

    /// Which parameter of a function of the program takes which argument.
    fn params(&self, number: usize, given: &Given) -> Vec<(usize, Held)> {
        let order = self.functions.get(&number).map(|known| known.order.as_slice()).unwrap_or_default();
        let rest = order.iter().position(|(_, takes)| *takes == Takes::Rest);
        let named = order.iter().position(|(_, takes)| *takes == Takes::Named);
        // `Class.method(object, argument)`: the object is no parameter of ours.
        let plain = order.iter().filter(|(_, takes)| *takes == Takes::One).count();
        let own = usize::from(rest.is_none() && plain > 0 && given.args.len() == plain + 1);
        let args = given.args.get(own..).unwrap_or_default();
        let mut params: Vec<(usize, Held)> =
            args.iter().cloned().enumerate().filter(|(at, _)| rest.is_none_or(|rest| *at < rest)).collect();
        if let Some(rest) = rest {
            params.push((rest, Rc::new(Value::list(args.iter().skip(rest).cloned().collect()))));
        }
        let mut others = Vec::new();
        for (name, held, _) in &given.named {
            match order.iter().position(|(known, _)| known.as_ref() == Some(name)) {
                Some(at) => params.push((at, Rc::clone(held))),
                None => others.push((name.as_str().into(), Rc::clone(held))),
            }
        }
        if let (Some(named), false) = (named, others.is_empty()) {
            params.push((named, Rc::new(Value::object(others))));
        }
        params
    }

    /// What is handed over place by place, where the last parameter takes all the rest.
    pub(super) fn gathered(&self, number: usize, params: Vec<(usize, Held)>) -> Vec<(usize, Held)> {
        let order = self.functions.get(&number).map(|known| known.order.as_slice()).unwrap_or_default();
        let Some(rest) = order.iter().position(|(_, takes)| *takes == Takes::Rest) else { return params };
        let (mut before, behind): (Vec<_>, Vec<_>) = params.into_iter().partition(|(at, _)| *at < rest);
        before.push((rest, Rc::new(Value::list(behind.into_iter().map(|(_, held)| held).collect()))));
        before
    }

    /// A function of the program, as it stands there.
    pub(super) fn body_of(&self, number: usize) -> Option<Rc<Function>> {
        self.functions.get(&number)?.function.clone()
    }

    /// A function has itself called again, whatever happens.
    pub(super) fn goes_on(&mut self, number: usize) {
        if let Some(known) = self.functions.get_mut(&number).filter(|known| !known.is_looped) {
            known.is_looped = true;
            self.scopes.stale = true;
        }
    }

    /// A function that exists only as what it gives: that of a text which was run.
    pub(super) fn made_function(&mut self, number: usize) -> Option<usize> {
        self.functions.get(&number).and_then(|known| known.gives.as_ref()).map(|_| number)
    }

    /// Walks over a class of the program and gives it as a value.
    pub(super) fn class(&mut self, class: &Class) -> Held {
        let bases: Vec<Held> = class.bases.iter().map(|base| self.value(base)).collect();
        let keywords: Vec<(String, Held)> =
            class.keywords.iter().map(|(name, value)| (name.clone(), self.value(value))).collect();
        self.scopes.enter(Of::Class);
        self.statements(&class.body);
        let mut fields = self.scopes.leave();
        fields.sort_by(|one, other| one.0.cmp(&other.0));
        self.enumerated(&bases, &mut fields);
        self.reduced(&fields);
        let mut made = Vec::new();
        for (name, held) in &fields {
            self.scopes.set_attribute(name, held);
            let runs = |role: &super::role::Role| role.act.runs_what_it_is_given();
            if name.starts_with("__")
                && held.names.iter().any(|name| self.book.roles(name).is_some_and(|roles| roles.iter().any(runs)))
            {
                // What the language calls by itself is something that runs what it is given.
                self.trick(Trick::Redefines, Span::default());
            }
            if matches!(&**name, "__init__" | "constructor" | "__new__" | "__call__") {
                made.extend(held.functions.iter().copied());
            }
        }
        self.subclass(&bases, keywords, &fields);
        let mut value = Value::object(fields);
        value.functions = made.into();
        if value.functions.is_empty() {
            value.functions = bases.iter().flat_map(|base| base.functions.iter().copied()).take(4).collect();
        }
        for base in bases {
            value.add_names(&base.names);
        }
        value.flows = Flows::default();
        Rc::new(value)
    }
}

impl Walk<'_, '_> {
    /// Whom a class is made by, and whose it is, is told of it.
    fn subclass(&mut self, bases: &[Held], keywords: Vec<(String, Held)>, fields: &[Field]) {
        if keywords.is_empty() {
            return;
        }
        let place = Place::default();
        let maker = keywords.iter().find(|(name, _)| name == "metaclass").map(|(_, maker)| Rc::clone(maker));
        if let Some(maker) = maker.filter(|maker| !maker.functions.is_empty()) {
            let args =
                vec![Held::default(), Rc::new(Value::list(bases.to_vec())), Rc::new(Value::object(fields.to_vec()))];
            self.called(&maker, None, &Given { places: vec![place; args.len()], args, ..Given::default() });
        }
        let named: Vec<(String, Held, Place)> = keywords.into_iter().map(|(name, held)| (name, held, place)).collect();
        for told in bases.iter().filter_map(|base| base.field("__init_subclass__")) {
            self.called(&told, None, &Given { named: named.clone(), ..Given::default() });
        }
    }
}

/// Adds a place where relative paths may start; few are told apart.
pub(super) fn add_directory(directories: &mut Few<Option<Text>>, directory: Option<&Text>) {
    if directories.len() < 4 && !directories.iter().any(|known| known.as_ref() == directory) {
        directories.push(directory.cloned());
    }
}

/// Whether something is known so well that a call with it can be followed.
fn is_constant(held: &Value) -> bool {
    held.as_known().is_some() || held.number.is_some() || held.items.as_ref().is_some_and(|items| !items.is_empty())
}

/// How many statements these are, those within others counted too.
pub(super) fn weight(body: &[Statement]) -> usize {
    body.iter()
        .map(|statement| match statement {
            Statement::Branches(branches) => 1 + branches.iter().map(|branch| weight(branch)).sum::<usize>(),
            Statement::Loop { body, .. } | Statement::Block(body) => 1 + weight(body),
            Statement::Value(_)
            | Statement::Assign { .. }
            | Statement::Return(_)
            | Statement::Import(_)
            | Statement::Outer(_)
            | Statement::Remove(_)
            | Statement::Strange(..) => 1,
        })
        .sum()
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
