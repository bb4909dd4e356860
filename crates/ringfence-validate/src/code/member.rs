//! Names, attributes and items: what they lead to.

use std::rc::Rc;

use super::call::Given;
use super::handed::{gives_parts, is_called_by};
use super::scope::joined;
use super::tree::{Expr, Kind};
use super::value::{ANY_KEY, Held, Making, Value};
use super::walk::Walk;
use super::{act, fold};
use crate::analysis::{Fact, Flow, Privilege, Trick};
use crate::language::Language;
use crate::span::Span;
use crate::text::{Hole, Text};

/// The class of something, by way of an object of it.
const CLASS: &str = "(class)";
/// One of the classes above it.
const ABOVE: &str = "(class above)";
/// What made something, by way of the thing.
const MAKER: &str = "(constructor)";
/// What a function gives that was made of text.
const MADE: &str = "Function()()";
/// The address of a file, made of its path.
const FILE_URL: &str = "(file-url)";
/// Where something was raised.
const RAISED_IN: &str = "(raised in)";
/// A library of native code that only reckons, and what it can do; by the same handle, everything else can be had.
pub(super) const RECKONS: &str = "(reckons)";
const SUMS: &str = " acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma \
    fmax fmin fmod hypot ldexp lgamma log log10 log1p log2 nearbyint pow remainder rint round sin sinh sqrt tan tanh tgamma trunc ";
/// A function that belongs to a text or a list.
const METHOD: &str = "(method)";

/// What was thrown last, wherever that was.
pub(crate) const RAISED: &str = "(raised)";

/// What counts, after the first turn: one number after the other.
pub(crate) const COUNTED: &str = "(counted)";

impl Walk<'_, '_> {
    /// What a name holds.
    pub(super) fn lookup(&mut self, name: &str) -> Held {
        if let Some(held) = self.scopes.visible(name).cloned() {
            return match self.scopes.captured(name) {
                Some(more) => joined(&held, more),
                None => held,
            };
        }
        let builtin = self.builtin(name);
        match self.scopes.anywhere(name) {
            // Set somewhere else in the file: then it may be that.
            Some(held) if builtin.names.iter().any(|name| self.book.knows(name)) => {
                Rc::new(Value::clone(&builtin).or(held))
            }
            Some(held) => Rc::clone(held),
            // What an object holds that has the names of the whole program.
            None if self.language != Language::Python => match self.scopes.attribute_now(name) {
                Some(held) if !held.flows.abilities().is_empty() => joined(&builtin, held),
                _ => builtin,
            },
            None => builtin,
        }
    }

    /// Something of the language and its libraries, by full name.
    pub(super) fn thing(&self, name: &str) -> Value {
        let mut value = Value::default();
        self.add_thing(&mut value, name);
        value
    }

    /// A value may be something of the language and its libraries, too.
    pub(super) fn add_thing(&self, value: &mut Value, name: &str) {
        value.add_name(name);
        if self.book.about(name).is_some_and(|about| about.is_ability) {
            value.flows.add_ability(&name.into());
        }
    }

    /// What a name means that the program does not set.
    fn builtin(&mut self, name: &str) -> Held {
        if let Some(known) = self.builtins.get(name) {
            return Rc::clone(known);
        }
        if name == COUNTED {
            return Rc::new(Value { many: true, ..Value::text(Text::hole(Hole::Value)) });
        }
        if name == RAISED {
            // Nothing of the program is thrown.
            return Held::default();
        }
        let mut builtin = self.thing(self.book.canonical(name));
        builtin.texts = self.book.about(name).and_then(|about| about.text).map(Text::known).into_iter().collect();
        for module in &self.stars {
            let full = format!("{module}.{name}");
            if self.book.knows(&full) {
                builtin = self.thing(&full);
            }
        }
        if self.book.is_environment(name) {
            builtin.flows.add(&Flow::Environment);
        }
        let builtin = Rc::new(builtin);
        self.builtins.insert(name.to_owned(), Rc::clone(&builtin));
        builtin
    }

    /// What an attribute of something holds.
    pub(super) fn member_of(&mut self, value: &Value, attribute: &str, span: Span) -> Held {
        // In Python the environment is a mapping: its attributes are methods.
        if self.language != Language::Python && value.names.iter().any(|name| self.book.is_environment(name)) {
            return self.index_of(value, &Value::known(attribute), span);
        }
        let mut found = Value::default();
        if value.has(RECKONS)
            && !SUMS.contains(&format!(" {} ", attribute.trim_end_matches('f')))
            && !SUMS.contains(&format!(" {attribute} "))
        {
            self.tell(span, Fact::Privilege { privilege: Privilege::ForeignCode });
        }
        self.inner_parts(value, attribute, span, &mut found);
        let behind = self.book.module_behind(attribute);
        for name in &value.names {
            let globals = self.book.is_globals(name);
            if globals && self.scopes.visible(attribute).is_some() {
                let held = self.lookup(attribute);
                found.add(&held);
            }
            // A function that was made of text gives what is everywhere, or the process.
            let made = &**name == MADE;
            if made && self.book.is_guarded(attribute) {
                self.trick(Trick::InnerParts, span);
            }
            let parts: &[&str] = if made && !self.book.is_guarded(attribute) {
                &["process.", attribute]
            } else if made {
                &[attribute]
            } else if attribute == "__dict__" {
                &[name]
            } else if globals {
                &[attribute]
            } else if attribute == "modules" && name.ends_with(".sys") {
                // A module of the library that has imported it.
                &["sys.modules"]
            } else {
                &[name, ".", attribute]
            };
            if let Some(behind) = behind
                && **name != *attribute
                && self.imported.contains(name)
            {
                self.add_thing(&mut found, behind);
            }
            let spelled = self.spell(parts);
            let (full, about) = self.book.meant(&spelled);
            found.add_name(full);
            if about.is_some_and(|about| about.is_ability) {
                found.flows.add_ability(&full.into());
            }
            let is_for_a_worker = full == "worker_threads.workerData";
            self.spelled = spelled;
            if about.is_some_and(|about| about.is_environment) {
                found.flows.add(&Flow::Environment);
            }
            if let Some(text) = about.and_then(|about| about.text) {
                found.texts.push(Text::known(text));
            }
            let is_ours = || {
                let first = name.split('.').next().unwrap_or(name);
                !name.contains('(') && self.book.about(first).is_none() && self.is_from_a_module(name)
            };
            if attribute == "__name__" && (self.imported.contains(name) || is_ours()) {
                found.texts.push(Text::known(&**name));
            }
            if attribute == "default" && self.language != Language::Python && self.imported.contains(name) {
                // What a module shows by default is mostly the module itself.
                found.add_name(name);
            }
            if is_for_a_worker && let Some(data) = self.scopes.attribute(super::libraries::WORKER_DATA) {
                found.add(data);
            }
            if &**name == FILE_URL && matches!(attribute, "href" | "pathname") {
                found.texts.clone_from(&value.texts);
            }
            if &**name == "open()" && attribute == "name" {
                found.texts.clone_from(&value.texts);
            }
            if &**name == "pathlib.Path()" && attribute == "path" {
                found.texts.clone_from(&value.texts);
            }
            if name.starts_with("pathlib.Path()") && attribute == "parent" {
                found.texts = value.texts.iter().map(parent).collect();
            }
        }
        if let Some(field) = value.field(attribute) {
            found.add(&field);
        }
        if let Some(field) = value.field(ANY_KEY) {
            found.add(&field);
        }
        // What belongs to nobody else's module may keep what the program puts into it.
        if value.texts.iter().all(Text::has_hole)
            && !value.names.iter().any(|name| !name.ends_with("()") && self.is_from_a_module(name))
            && !found.names.iter().any(|name| self.book.knows(name))
            && let Some(held) = self.scopes.attribute(attribute)
        {
            found.add(held);
        }
        if matches!(attribute, "name" | "path" | "parentPath") && value.texts.iter().any(Text::has_pattern) {
            found.texts.clone_from(&value.texts);
        }
        if found.names.is_empty() && (!value.texts.is_empty() || value.items.is_some()) {
            found.add_name(METHOD);
        }
        // What an object has not, its class makes: by the name that is asked for.
        if let Some(read) = value.field("__getattr__").filter(|read| !read.functions.is_empty())
            && value.field(attribute).is_none()
            && !attribute.starts_with("__")
        {
            let place = super::call::Place { span, literal: None };
            let given =
                Given { args: vec![Rc::new(Value::known(attribute))], places: vec![place], span, ..Given::default() };
            let gives = self.called(&Rc::new(Value { fields: None, ..Value::clone(&read) }), None, &given);
            found.add(&gives);
        }
        found.flows.add_sources(&value.flows);
        if is_called_by(attribute) {
            found.flows.add_own(value.flows.own());
        }
        self.made_of(value, attribute, &mut found);
        if let Some(read) = found.field("__get__") {
            // Reading it is calling it.
            let given = Given { span, ..Given::default() };
            let gives = self.called(&read, None, &given);
            found.add(&gives);
        }
        if let Some(set) = self.replaced.as_ref() {
            let names = found.names.clone();
            for held in names.iter().filter_map(|name| set.get(name)) {
                found.add(held);
            }
        }
        Rc::new(found)
    }

    /// What an attribute of something may be that was made of functions which act, or of modules that have such.
    fn made_of(&self, value: &Value, attribute: &str, found: &mut Value) {
        for thing in value.flows.abilities() {
            if value.has(thing) {
                // By its name it is told already, but for what calls it, or gives all that it has.
                if is_called_by(attribute) || gives_parts(attribute) {
                    found.flows.add_ability(thing);
                }
                continue;
            }
            // An attribute of it may be this, or an attribute of this.
            found.flows.add_ability(thing);
            if self.book.is_globals(thing) {
                for name in self.book.abilities_called(attribute) {
                    found.flows.add_ability(&name.into());
                }
            } else if let Some(name) = self.book.ability(&format!("{thing}.{attribute}")) {
                found.flows.add_ability(&name.into());
            }
        }
    }

    /// Whether it is a class that stands in this text, or is imported from a module that is not one of the language's own. What is not known
    /// may be the one that stands above all others.
    fn is_a_class_of_ours(&self, value: &Value) -> bool {
        let guarded = |part: &str| part.starts_with("__") || self.book.is_guarded(part);
        let imported = |name: &str| self.is_from_a_module(name) && !name.split('.').any(guarded);
        value.fields.is_some() || (!value.names.is_empty() && value.names.iter().all(|name| imported(name)))
    }

    /// Whether it is a function, or a method of something.
    pub(super) fn is_a_function(&self, value: &Value) -> bool {
        !value.functions.is_empty() || value.has(METHOD) || value.has(MAKER)
    }

    /// Whether something may be what a function calls all that it was given: a list, or something that such a list was handed to.
    fn may_be_arguments(&self, value: &Value) -> bool {
        value.items.is_some() || value.has("arguments")
    }

    fn inner_parts(&mut self, value: &Value, attribute: &str, span: Span, found: &mut Value) {
        match attribute {
            "__class__" => found.add_name(CLASS),
            "constructor" => {
                if self.is_a_function(value) && value.fields.is_none() {
                    self.trick(Trick::InnerParts, span);
                    found.add_name("Function");
                } else {
                    found.add_name(MAKER);
                }
            }
            // Of a function that stands in this very text it is that function.
            "__wrapped__" if value.functions.is_empty() => self.trick(Trick::InnerParts, span),
            // The classes above it: looking at them is not yet looking for others below.
            "__mro__" if value.has(CLASS) || value.has("type()") => {
                let mut above = Value::named(CLASS);
                above.add_name(ABOVE);
                found.items = Some(Rc::new(vec![Rc::new(above)]));
            }
            _ if (value.has(CLASS) || value.has("type()")) && self.book.is_inner_chain(attribute) => {
                self.trick(Trick::InnerParts, span);
                found.add_name(CLASS);
            }
            // The classes that a program makes of its own, or of a library's.
            "__subclasses__" if !value.has(CLASS) && !value.has("type()") && self.is_a_class_of_ours(value) => {}
            "tb_frame" => found.add_name(RAISED_IN),
            // What a function held that failed is shown every day; what can be reached by it is what `globals()` leads to.
            "f_locals" if value.has(RAISED_IN) => found.add_name("globals()"),
            // Of a tree of code it is what is called; of anything else it may be a function.
            "callee" if self.language != Language::Python && !self.may_be_arguments(value) => found.add_name(METHOD),
            _ if self.book.is_inner(attribute) => {
                self.trick(Trick::InnerParts, span);
                if attribute.contains("globals") || attribute.contains("builtins") || attribute == "f_locals" {
                    found.add_name("globals()");
                }
            }
            _ => {}
        }
    }

    /// What an item of something holds.
    pub(super) fn index_of(&mut self, value: &Value, key: &Value, span: Span) -> Held {
        if value.names.iter().any(|name| self.book.is_environment(name)) {
            let home = key.as_known().is_some_and(|name| matches!(name, "HOME" | "USERPROFILE"));
            // Which machines it is of matters to whoever connects there.
            let live = key.as_known().filter(|name| super::hosts::says_live(name));
            let hole = match live {
                _ if home => Hole::Variable("HOME".to_owned()),
                Some(name) => Hole::Variable(name.to_owned()),
                None => Hole::Value,
            };
            let mut found = Value::text(Text::hole(hole));
            for reading in key.readings() {
                if reading.as_known().is_none_or(act::is_secret_name) {
                    found.flows.add(&Flow::Environment);
                }
                self.tell(span, Fact::ReadsEnvironment { name: Some(reading) });
            }
            return Rc::new(found);
        }
        if let Some(command) = self.plumbed(value, key, span) {
            return command;
        }
        if key.names.iter().any(|name| name.starts_with("Symbol.")) && value.items.is_some() {
            // A method of the list, which hands out what is in it.
            return Rc::new(Value { flows: value.flows.clone(), ..Value::default() });
        }
        let number = key.number.filter(|_| !key.many);
        if number == Some(0) && value.has("process.argv") {
            return Rc::new(Value::known("node"));
        }
        if let (Some(text), Some(at)) = (value.as_known(), number) {
            return Rc::new(
                fold::letter(text, at)
                    .map(|letter| Value { making: Making::Built, ..Value::known(letter) })
                    .unwrap_or_default(),
            );
        }
        if let (Some(items), Some(at)) = (&value.items, number) {
            let length = items.len();
            let at = if at < 0 { length.checked_sub(at.unsigned_abs() as usize) } else { usize::try_from(at).ok() };
            if let Some(item) = at.and_then(|at| items.get(at)) {
                return Rc::clone(item);
            }
        }
        let unknown = key.texts.iter().any(Text::has_hole) || (key.texts.is_empty() && key.number.is_none());
        let mut found = match (&value.items, &value.fields) {
            (None, Some(_)) => Value { flows: value.flows.clone(), ..Value::default() },
            _ => value.any_item(),
        };
        if !unknown {
            found.flows.forget_abilities(&value.names);
        }
        if let (Some(number), Some(_)) = (number, &value.fields)
            && let Some(field) = value.field(&number.to_string())
        {
            found.add(&field);
        }
        for reading in &key.texts {
            if let Some(known) = reading.as_known() {
                if key.making != Making::Plain && self.leads_somewhere(value, known) {
                    self.trick(Trick::Obscured, span);
                }
                if value.has("sys.modules") {
                    self.imported.insert(known.to_owned());
                }
                let member = self.member_of(value, known, span);
                found.add(&member);
            }
        }
        if value.fields.is_some() {
            for read in
                ["__getitem__", "__missing__", "__class_getitem__"].into_iter().filter_map(|name| value.field(name))
            {
                let given = Given { args: vec![Rc::new(key.clone())], span, ..Given::default() };
                let gives = self.called(&read, None, &given);
                found.add(&gives);
            }
        }
        if unknown && value.has(RECKONS) {
            self.tell(span, Fact::Privilege { privilege: Privilege::ForeignCode });
        }
        if unknown {
            // One of the tables that a client of a database has.
            let is_client = |name: &&Rc<str>| name.contains('(') && super::databases::is_of_a_database(name);
            let clients = value.names.iter().filter(is_client);
            clients.for_each(|name| found.add_name(&format!("{name}.(any)")));
        }
        if unknown && value.names.iter().any(|name| self.book.is_guarded(name) || &**name == ABOVE) {
            self.trick(Trick::ByBuiltName, span);
        }
        if (unknown || key.number.is_some()) && value.names.is_empty() && value.texts.is_empty() {
            found.add(&value.any_field());
            if let Some(held) = self.scopes.attribute(ANY_KEY) {
                found.add(held);
            }
        }
        Rc::new(found)
    }

    /// What an attribute of something holds whose name is not known, or not wholly.
    pub(super) fn member_like(&mut self, value: &Value, key: &Value, span: Span) -> Held {
        let found = self.index_of(value, key, span);
        let is_own = value.names.is_empty() && value.texts.is_empty() && value.items.is_none();
        if !is_own || key.number.is_some() || (!key.texts.is_empty() && !key.texts.iter().any(Text::has_hole)) {
            return found;
        }
        let mut either = Value::clone(&found);
        for reading in key.readings().iter().filter(|reading| reading.has_hole()) {
            either.add(&self.scopes.attributes_like(reading));
        }
        Rc::new(either)
    }

    /// Whether an attribute of something is one that the book speaks of.
    fn leads_somewhere(&self, value: &Value, attribute: &str) -> bool {
        self.book.is_inner(attribute)
            || self.book.is_inner_chain(attribute)
            || attribute == "constructor"
            || value.names.iter().any(|name| self.book.is_guarded(name) || self.book.is_globals(name))
    }

    /// An item or an attribute is taken away.
    pub(super) fn removed(&mut self, place: &Expr) {
        self.value(place);
        match &place.kind {
            Kind::Member(base, _) | Kind::Index(base, _) => {
                let base = self.value(base);
                if base.names.iter().any(|name| self.book.is_tampered(name)) {
                    self.trick(Trick::Redefines, place.span);
                }
            }
            _ => {}
        }
    }
}

/// The folder that a path is in, where it can be told.
pub(super) fn parent(path: &Text) -> Text {
    let is_home = |known: &str| known == "~";
    if path.as_known().is_some_and(is_home)
        || matches!(path.pieces(), [crate::text::Piece::Hole(Hole::Variable(name))] if name == "HOME")
    {
        // Where the homes of all are.
        return Text::known("/home");
    }
    match path.as_known().and_then(|path| path.trim_end_matches('/').rsplit_once('/')) {
        Some(("", _)) => Text::known("/"),
        Some((parent, _)) => Text::known(parent),
        None => Text::hole(Hole::Value),
    }
}
