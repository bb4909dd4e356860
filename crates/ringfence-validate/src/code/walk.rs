//! The walk over a program: what names come to hold, statement by statement, and the facts that this shows.

use std::rc::Rc;

use super::book::Book;
use super::few::Few;
use super::heap::Heap;
use super::lists;
use super::loops::{assigns, does_only_grow, one_by_one, puts_together};
use super::names::Modules;
use super::own::Known;
use super::quick::{QuickMap, SecretMap, SecretSet};
use super::run::Started;
use super::scope::{Of, Scopes, Sure};
use super::tree::{Bind, Expr, How, Import, LoopEnd, Pattern, Statement};
use super::value::{Held, Value};
use crate::analysis::{Act, Does, Fact, Flow, Origin, Step, SystemAct, Trick, Unknown};
use crate::language::Language;
use crate::limits::Limits;
use crate::reading::Reading;
use crate::span::Span;
use crate::text::Text;

/// Times that the program is gone over at most: until nothing is learned any more that was looked at before.
const PASSES: usize = 4;
/// Work that one program is worth, in bytes copied and expressions looked at.
const EFFORT: usize = 18 * 1024 * 1024;
/// What one statement or expression costs of it, and one call.
pub(super) const STEP_EFFORT: usize = 100;
pub(super) const CALL_EFFORT: usize = 500;
/// Bytes from which on a program is gone over only twice.
const LONG: usize = 128 * 1024;
/// Bytes from which on a program is gone over only once: names are followed downwards alone.
const VERY_LONG: usize = 512 * 1024;

/// A program that was parsed.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) language: Language,
    pub(crate) statements: Vec<Statement>,
    /// Facts that the text itself shows: names that look like others, strange comments.
    pub(crate) seen: Vec<(Trick, Span)>,
    pub(crate) length: usize,
    /// Whether functions look at all that they are given, by no name of theirs.
    pub(crate) arguments: bool,
}

/// Parses a text within the program; the functions in it are numbered from the second argument on. Nothing if it cannot be read.
pub(crate) type Parse = fn(&str, usize, &Limits) -> Option<Program>;

/// The step of a program.
pub(crate) fn read(reading: &mut Reading<'_>, book: &Book, parse: Parse, program: &Program, origin: Origin) -> Step {
    let span = origin.place(Span::new(0, program.length));
    // The program runs as a process of its own: where it goes, nobody follows.
    let started_in = reading.scope.directory.clone();
    let mut walk = Walk {
        reading,
        book,
        parse,
        origin,
        language: program.language,
        scopes: Scopes::new(),
        heap: Heap::default(),
        functions: QuickMap::default(),
        waiting: Vec::new(),
        imported: Modules::default(),
        builtins: SecretMap::default(),
        replaced: None,
        stars: Vec::new(),
        files: SecretMap::default(),
        parsed: SecretMap::default(),
        directories: Few::default(),
        pass: 0,
        found_before: [0; 4],
        exact: 0,
        quiet: 0,
        perhaps: 0,
        turns: 0,
        loops: 0,
        inside: Vec::new(),
        evaluated: 0,
        down: 0,
        unrolled: 0,
        arguments: program.arguments,
        effort: EFFORT,
        told: SecretSet::default(),
        called: SecretSet::default(),
        nothing: Held::default(),
        spelled: String::new(),
        facts: Vec::new(),
        started: Vec::new(),
    };
    let passes = match program.length {
        length if length > VERY_LONG => 1,
        length if length > LONG => 2,
        _ => PASSES,
    };
    for _ in 0..passes {
        walk.pass(program);
        if !walk.has_news() || walk.effort == 0 {
            break;
        }
    }
    if walk.effort == 0 {
        walk.tell(Span::new(0, program.length), Fact::Unknown { unknown: Unknown::TooMuch { bound: "effort" } });
    }
    let inner = walk.start_all();
    let mut facts = walk.facts;
    reading.scope.directory = started_in;
    let counted = reading.count_step().and_then(|()| reading.count_facts(facts.len()));
    if let Err(unknown) = counted {
        facts = vec![Act { span, fact: Fact::Unknown { unknown } }];
    }
    Step { span, does: Does::Code { language: program.language }, facts, inner }
}

#[derive(Debug)]
pub(super) struct Walk<'w, 'r> {
    pub(super) reading: &'w mut Reading<'r>,
    pub(super) book: &'w Book,
    pub(super) parse: Parse,
    pub(super) origin: Origin,
    pub(super) language: Language,
    pub(super) scopes: Scopes,
    pub(super) heap: Heap,
    pub(super) functions: QuickMap<usize, Known>,
    /// Functions whose bodies are walked over at the end of the scope that they stand in, with its depth.
    pub(super) waiting: Vec<(usize, usize)>,
    /// Modules that are imported somewhere.
    pub(super) imported: Modules,
    /// What names mean that the program does not set, as far as they were asked for.
    pub(super) builtins: SecretMap<String, Held>,
    /// What was put in the place of something of a module, by its full name.
    pub(super) replaced: Option<SecretMap<Rc<str>, Held>>,
    /// Modules that everything is imported of.
    pub(super) stars: Vec<String>,
    /// What was written to which file.
    pub(super) files: SecretMap<String, Held>,
    /// Texts that were run as code, each with a number.
    pub(super) parsed: SecretMap<String, (usize, Option<Rc<Program>>)>,
    /// Where relative paths may start; nothing for where the program does.
    pub(super) directories: Few<Option<Text>>,
    /// How often the program was gone over, this time included.
    pub(super) pass: usize,
    /// What was found before this time.
    found_before: [usize; 4],
    /// Calls that were followed with just their own arguments, this time.
    pub(super) exact: usize,
    /// Above 0 nothing is told: what is walked over is walked over once more.
    pub(super) quiet: usize,
    pub(super) perhaps: usize,
    /// Loops around.
    pub(super) turns: usize,
    /// Loops around that never end.
    pub(super) loops: usize,
    /// The functions that are being walked over, innermost last.
    pub(super) inside: Vec<usize>,
    /// Texts within texts that are being walked over.
    pub(super) evaluated: usize,
    /// Expressions and statements around.
    pub(super) down: usize,
    /// Whether a list is being gone through item by item.
    pub(super) unrolled: usize,
    /// Whether functions may look at all that they are given, by no name of theirs.
    pub(super) arguments: bool,
    effort: usize,
    told: SecretSet<(Span, Fact)>,
    pub(super) called: SecretSet<Rc<str>>,
    /// What nothing is known of, for all who need one.
    pub(super) nothing: Held,
    /// The room in which full names are put together.
    pub(super) spelled: String,
    pub(super) facts: Vec<Act>,
    /// What the program starts; read when the walk is done.
    pub(super) started: Vec<Started>,
}

impl Walk<'_, '_> {
    /// Goes over the program once, from its start.
    fn pass(&mut self, program: &Program) {
        self.pass += 1;
        self.found_before = self.found();
        self.exact = 0;
        if self.pass > 1 {
            self.scopes.again();
            self.heap.again();
        }
        self.waiting.clear();
        self.directories = Few::one(None);
        self.told.clear();
        self.called.clear();
        self.facts.clear();
        self.started.clear();
        for (trick, place) in &program.seen {
            self.trick(*trick, *place);
        }
        self.statements(&program.statements);
        self.finish_scope();
    }

    /// Whether going over it once more could show more.
    fn has_news(&self) -> bool {
        let first = self.pass == 1 && (!self.functions.is_empty() || self.scopes.has_attributes());
        first || self.scopes.stale || (self.pass > 1 && self.found() != self.found_before)
    }

    /// How many modules, files and texts that are run were found: nobody notes who looked for them.
    fn found(&self) -> [usize; 4] {
        [self.imported.len(), self.stars.len(), self.files.len(), self.parsed.len()]
    }

    pub(super) fn tell(&mut self, span: Span, fact: Fact) {
        if self.quiet > 0 || self.facts.len() > self.reading.limits.facts {
            return;
        }
        let span = self.origin.place(span);
        let key = (span, fact);
        if !self.told.contains(&key) {
            self.facts.push(Act { span, fact: key.1.clone() });
            self.told.insert(key);
        }
    }

    /// A full name of these parts; whoever has it gives the room back when it is looked up.
    pub(super) fn spell(&mut self, parts: &[&str]) -> String {
        let mut spelled = std::mem::take(&mut self.spelled);
        spelled.clear();
        parts.iter().for_each(|part| spelled.push_str(part));
        spelled
    }

    pub(super) fn trick(&mut self, trick: Trick, span: Span) {
        self.tell(span, Fact::Tricks { trick });
    }

    pub(super) fn is_telling(&self) -> bool {
        self.quiet == 0
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
            Statement::Loop { each, end, body, span } => self.walk_loop(each.as_deref(), *end, body, *span),
            Statement::Block(body) => {
                self.scopes.enter(Of::Block);
                self.statements(body);
                self.finish_scope();
                self.scopes.forget();
            }
            Statement::Return(value) => {
                let held = self.value(value);
                self.deferred_call(&held, value.span);
                self.returns(&held);
            }
            Statement::Import(import) => self.import(import),
            Statement::Outer(names) => self.scopes.declare_outer(names),
            Statement::Remove(places) => places.iter().for_each(|place| self.removed(place)),
            Statement::Strange(trick, span) => self.trick(*trick, *span),
        }
    }

    fn walk_loop(&mut self, each: Option<&(Pattern, Expr)>, end: LoopEnd, body: &[Statement], span: Span) {
        let items = each.map(|(_, over)| {
            let items = self.value(over);
            self.whole_environment(&items, over.span);
            items
        });
        if let (Some((pattern, _)), Some(items)) = (each, &items)
            && self.unrolled == 0
            && let Some(items) = one_by_one(items, body)
        {
            // A text that is put together letter by letter: each turn counts.
            let perhaps = std::mem::take(&mut self.perhaps);
            let before: Vec<(String, Option<Held>)> = body
                .iter()
                .filter_map(|statement| match statement {
                    Statement::Assign { pattern: Pattern::Name(name), .. } if perhaps > 0 => {
                        Some((name.clone(), self.scopes.visible(name).cloned()))
                    }
                    _ => None,
                })
                .collect();
            self.unrolled += 1;
            for item in items {
                self.assign(pattern, item, How::Here);
                self.statements(body);
            }
            self.unrolled -= 1;
            self.perhaps = perhaps;
            // Where the loop may not be reached, what was there before may still be.
            for (name, held) in before {
                if let Some(held) = held {
                    self.assign_name(&name, held, How::Around);
                }
            }
            if puts_together(body) {
                return;
            }
            // Records are gone through all together, too: a turn may leave the loop, and what is known then holds behind it.
        }
        self.perhaps += 1;
        let endless = usize::from(end == LoopEnd::Never);
        self.loops += endless;
        if let (Some((pattern, _)), Some(items)) = (each, &items) {
            let item = Rc::new(self.one_of(items, span));
            self.assign(pattern, item, How::Here);
        }
        self.turns += 1;
        if self.turns == 1 && body.iter().any(assigns) {
            // What one turn sets, the next one sees.
            self.quiet += 1;
            self.statements(body);
            self.quiet -= 1;
        }
        self.statements(body);
        self.turns -= 1;
        if end == LoopEnd::Never && does_only_grow(body) {
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
                Bind::Module { name } => self.set(name, self.thing(&module), How::Here),
                Bind::Root { name } => {
                    self.imported.insert(name.clone());
                    self.set(name, self.thing(self.book.canonical(name)), How::Here);
                }
                Bind::Member { member, name } => {
                    let whole = self.thing(&module);
                    let held = self.member_of(&whole, member, import.span);
                    self.scopes.set_here(name, held, Sure::Always);
                }
                Bind::All if self.stars.len() < 64 && !self.stars.contains(&module) => {
                    self.stars.push(module.clone());
                    self.builtins.clear();
                }
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
                let mut sum = self.sum(&parts);
                let [before, _] = &parts;
                if sum.items.is_some() {
                    // A list is made longer, for everybody who holds it.
                    sum.made = before.made.clone();
                    self.scopes.stale |= self.heap.put(&mut sum);
                }
                self.scopes.set_around(name, Rc::new(sum), sure);
            }
        }
    }

    /// Puts a value where a pattern says.
    pub(super) fn assign(&mut self, pattern: &Pattern, value: Held, how: How) {
        match pattern {
            Pattern::Name(name) => self.assign_name(name, value, how),
            Pattern::List(patterns) => self.assign_list(patterns, &value, how),
            Pattern::Rest(pattern) => {
                let rest = Rc::new(Value { texts: Few::default(), ..Value::clone(&value) });
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

    /// Items to their patterns; the one that takes the rest may stand anywhere.
    fn assign_list(&mut self, patterns: &[Pattern], value: &Held, how: How) {
        let letters = value.as_known().map(lists::as_letters);
        let items = value.items.as_ref().or(letters.as_ref());
        let rest = patterns.iter().position(|pattern| matches!(pattern, Pattern::Rest(_)));
        for (at, pattern) in patterns.iter().enumerate() {
            let item = match (items, rest) {
                (None, _) => Rc::new(self.one_of(value, Span::default())),
                (Some(items), Some(rest)) if at == rest => {
                    let behind = patterns.len() - rest - 1;
                    let until = items.len().saturating_sub(behind).max(rest);
                    Rc::new(Value::list(items.get(rest..until).unwrap_or_default().to_vec()))
                }
                (Some(items), Some(rest)) if at > rest => {
                    let from_end = patterns.len() - at;
                    items.len().checked_sub(from_end).and_then(|at| items.get(at)).cloned().unwrap_or_default()
                }
                (Some(items), _) => items.get(at).cloned().unwrap_or_default(),
            };
            self.assign(pattern, item, how);
        }
    }
}

/// What may not leave unnoticed.
pub(super) fn matters(flow: &Flow) -> bool {
    match flow {
        Flow::File { .. } | Flow::Environment => true,
        Flow::Network | Flow::Decoded | Flow::Input | Flow::Literal | Flow::Unknown => false,
    }
}
