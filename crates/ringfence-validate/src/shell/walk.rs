//! The walk through a tree: each command becomes a step, and what it writes goes on to where it is read.

use std::rc::Rc;

use super::assign::{declaration, is_assignment, is_intricate};
use super::scope::{Function, Functions};
use super::tree::{Node, Place, Simple, Word};
use super::value::Value;
use crate::analysis::{Act, Does, Fact, Flow, Origin, Step, SystemAct, Trick, Unknown};
use crate::program::{self, Invocation};
use crate::reading::Reading;
use crate::span::Span;
use crate::stream::{Argument, Stream};
use crate::text::Text;

/// Functions within functions, at most.
const MOST_CALLS: usize = 16;

/// One walk through one text.
pub(super) struct Walker<'w, 'a> {
    pub(super) reading: &'w mut Reading<'a>,
    pub(super) origin: Origin,
    /// Facts of the command whose words are being expanded.
    pub(super) facts: Vec<Act>,
    /// Facts that are only known once a command has run: what it sent.
    pub(super) late: Vec<Act>,
    /// What a coprocess does with what a command sent to it.
    pub(super) beside: Vec<Step>,
    /// Steps of the substitutions in those words.
    pub(super) inner: Vec<Step>,
    /// Turns of the loops around, multiplied.
    pub(super) turning: usize,
    /// Loops around that are walked twice.
    pub(super) rounds: usize,
}

impl<'w, 'a> Walker<'w, 'a> {
    pub(super) fn new(reading: &'w mut Reading<'a>, origin: Origin) -> Self {
        Self {
            reading,
            origin,
            facts: Vec::new(),
            late: Vec::new(),
            beside: Vec::new(),
            inner: Vec::new(),
            turning: 1,
            rounds: 0,
        }
    }

    /// The whole text; functions that it defines and never calls are walked last, since something else may call them.
    pub(super) fn all(&mut self, node: &Node, input: &Stream) -> (Vec<Step>, Stream) {
        let known: Vec<String> = self.reading.scope.functions.keys().cloned().collect();
        let outside = std::mem::take(&mut self.reading.scope.uncalled);
        let traps = self.reading.scope.traps.len();
        let mut steps = Vec::new();
        let output = self.node(node, input, &mut steps);
        self.run_traps(traps, &mut steps);
        let scope = &mut self.reading.scope;
        let mut waiting = std::mem::replace(&mut scope.uncalled, outside);
        for (name, functions) in scope.functions.iter() {
            if !known.contains(name) && !scope.called.contains(name) {
                waiting.extend(functions.bodies.iter().map(|body| (name.clone(), Rc::clone(body))));
            }
        }
        for (name, function) in waiting {
            let saved = self.reading.scope.clone();
            let mut inner = Vec::new();
            self.function(&name, &function, Vec::new(), &Stream::default(), &mut inner);
            self.leave_subshell(saved);
            if !inner.is_empty() {
                let span = inner.first().map(|step| step.span).unwrap_or_default();
                steps.push(Step { span, does: Does::Group, facts: Vec::new(), inner });
            }
        }
        (steps, output)
    }

    /// The traps that were set since there were `before` of them, at the end of the shell that set them.
    pub(super) fn run_traps(&mut self, before: usize, steps: &mut Vec<Step>) {
        let traps: Vec<Argument> = self.reading.scope.traps.iter().skip(before).cloned().collect();
        for trap in traps {
            let Some(code) = trap.known() else { continue };
            let saved = self.reading.scope.clone();
            self.reading.scope.as_a_trap_sees_it();
            let (inner, _) = super::read_stream(self.reading, code, Origin::Made(trap.span), &Stream::default());
            self.leave_subshell(saved);
            if !inner.is_empty() {
                steps.push(Step { span: trap.span, does: Does::Group, facts: Vec::new(), inner });
            }
        }
    }

    pub(super) fn place(&self, place: Place) -> Span {
        self.origin.place(place.0)
    }

    pub(super) fn node(&mut self, node: &Node, input: &Stream, steps: &mut Vec<Step>) -> Stream {
        if self.reading.is_spent() {
            return Stream::from(vec![Flow::Unknown]);
        }
        if let Err(unknown) = self.reading.count_visit() {
            let span = self.place(Place::default());
            steps.push(crate::reading::unknown_code(crate::Language::Shell, span, unknown));
            return Stream::from(vec![Flow::Unknown]);
        }
        match node {
            Node::Simple(simple) => self.each_simple(simple, input, steps),
            Node::Pipeline(commands, place) => self.pipeline(commands, *place, input, steps),
            Node::List(items) => self.list(items, input, steps),
            Node::Nothing => Stream::default(),
            Node::Function { name, body, place } => {
                self.define(name, body, *place, steps);
                Stream::default()
            }
            Node::Group { .. }
            | Node::If { .. }
            | Node::While { .. }
            | Node::For { .. }
            | Node::ForArithmetic { .. }
            | Node::Case { .. }
            | Node::Test { .. }
            | Node::Arithmetic { .. }
            | Node::Coprocess { .. } => self.compound(node, input, steps),
        }
    }

    fn define(&mut self, name: &str, body: &Rc<Node>, place: Place, steps: &mut Vec<Step>) {
        let function = Rc::new(Function { body: Rc::clone(body), origin: self.origin });
        if let Err(unknown) = self.reading.count_function() {
            steps.push(crate::reading::unknown_code(crate::Language::Shell, self.place(place), unknown));
            return;
        }
        let functions = Rc::make_mut(&mut self.reading.scope.functions);
        functions.insert(name.to_owned(), Functions { bodies: vec![function], perhaps: false });
        if program::is_known(name) {
            let span = self.place(place);
            let fact = Fact::Tricks { trick: Trick::Redefines };
            steps.push(Step { span, does: Does::Group, facts: vec![Act { span, fact }], inner: Vec::new() });
        }
    }

    /// A definition that may have been reached.
    pub(super) fn define_perhaps(&mut self, name: &str, body: &Rc<Node>) {
        let function = Rc::new(Function { body: Rc::clone(body), origin: self.origin });
        self.reading.scope.define_perhaps(name, function);
    }

    fn pipeline(&mut self, commands: &[Node], place: Place, input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let files = Rc::clone(&self.reading.scope.files);
        let mut inner = Vec::new();
        let mut output = self.through(commands, input, &mut inner);
        // The commands run at once: what the last one writes into a named pipe, the first one reads.
        let pipes = &self.reading.scope.pipes;
        let closes = pipes.iter().any(|path| files.get(path) != self.reading.scope.files.get(path));
        if closes && self.reading.count_circle() {
            inner.clear();
            output = self.through(commands, input, &mut inner);
        }
        steps.push(Step { span: self.place(place), does: Does::Pipeline, facts: Vec::new(), inner });
        output
    }

    fn through(&mut self, commands: &[Node], input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let mut stream = input.clone();
        for (index, command) in commands.iter().enumerate() {
            let saved = self.reading.scope.clone();
            if index > 0 {
                self.reading.scope.lasting.without_input();
            }
            if index + 1 < commands.len() {
                self.reading.scope.lasting.without_output();
            }
            stream = self.node(command, &stream, steps);
            if self.reading.scope.last_stays && index + 1 == commands.len() {
                self.reading.scope.join(saved);
                continue;
            }
            self.run_traps(saved.traps.len(), steps);
            self.leave_subshell(saved);
        }
        stream
    }

    /// Back to what was known before; files stay as they were written.
    pub(super) fn leave_subshell(&mut self, mut saved: super::Scope) {
        let scope = &mut self.reading.scope;
        saved.files = std::mem::take(&mut scope.files);
        saved.pipes = std::mem::take(&mut scope.pipes);
        saved.notes = std::mem::take(&mut scope.notes);
        saved.called = std::mem::take(&mut scope.called);
        saved.uncalled = std::mem::take(&mut scope.uncalled);
        let functions = std::mem::take(&mut scope.functions);
        let new = functions.iter().filter(|_| !Rc::ptr_eq(&functions, &saved.functions));
        for (name, functions) in new {
            let before = saved.functions.get(name);
            for body in &functions.bodies {
                let known = before.is_some_and(|before| before.bodies.iter().any(|known| Rc::ptr_eq(known, body)));
                if !known && !saved.called.contains(name) {
                    saved.uncalled.push((name.clone(), Rc::clone(body)));
                }
            }
        }
        *scope = saved;
    }

    pub(super) fn simple(&mut self, simple: &Simple, input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let outer = (std::mem::take(&mut self.facts), std::mem::take(&mut self.inner));
        let output = self.simple_within(simple, input, steps);
        (self.facts, self.inner) = outer;
        output
    }

    fn simple_within(&mut self, simple: &Simple, input: &Stream, steps: &mut Vec<Step>) -> Stream {
        let span = self.place(simple.place);
        if let Some((line, rest)) = self.alias(simple) {
            return self.aliased(&line, rest, simple, span, input, steps);
        }
        let assignments: Vec<(String, Value, Span)> =
            simple.assignments.iter().filter_map(|word| self.assignment(word)).collect();
        let mut arguments = Vec::new();
        let mut declared = Vec::new();
        for (index, word) in simple.words.iter().enumerate() {
            if index > 0
                && declaration(&simple.words)
                && is_intricate(&word.raw)
                && let Some((name, value, span)) = self.assignment(word)
            {
                let mut text = Text::known(format!("{name}="));
                text.append(value.first());
                arguments.push(Argument { text, span, flows: value.flows.clone() });
                declared.push((name, value));
                continue;
            }
            // `export A="b c"` is one word: what follows a declaration is not cut.
            let declares = index > 0 && declaration(&simple.words) && is_assignment(&word.raw);
            if declares { arguments.push(self.single(word)) } else { arguments.extend(self.fields(word)) }
        }
        let mut redirection = self.redirections(&simple.redirects, input);
        if stays(&arguments) {
            self.stay_redirected(&mut redirection);
        }
        let outer = self.enter_redirection(&redirection);
        let input = redirection.input.clone().or_else(|| self.lasting_input()).unwrap_or_else(|| input.clone());
        let output = if arguments.is_empty() {
            self.bare(assignments, span, redirection.read.clone(), steps)
        } else {
            self.run(arguments, &assignments, span, &input, steps)
        };
        for (name, value) in declared {
            self.reading.scope.set(name, value);
        }
        for word in simple.words.iter().chain(&simple.assignments) {
            // Only from there on: what stands before it, such as the name that is set, is no sum.
            if let Some(sum) = word.raw.find("$((").and_then(|at| word.raw.get(at..)) {
                self.set_by_arithmetic(sum);
            }
        }
        if redirection.redirects() {
            self.reading.scope.lasting = outer;
        }
        let output = self.deliver(redirection, output);
        if !self.reading.scope.coprocesses.is_empty() {
            self.send_written();
        }
        let late = std::mem::take(&mut self.late);
        if let Some(step) = steps.last_mut() {
            step.facts.extend(late);
        }
        steps.append(&mut self.beside);
        output
    }

    /// No words: variables are set, substitutions run, targets opened.
    fn bare(
        &mut self,
        assignments: Vec<(String, Value, Span)>,
        span: Span,
        read: Option<Stream>,
        steps: &mut Vec<Step>,
    ) -> Stream {
        for (name, value, place) in assignments {
            if program::poisons(&name) {
                let facts = program::sets_environment(self.reading, &name, &value, place, &mut self.inner);
                self.facts.extend(facts);
            }
            self.reading.scope.set(name, value);
        }
        let (facts, inner) = (std::mem::take(&mut self.facts), std::mem::take(&mut self.inner));
        if !facts.is_empty() || !inner.is_empty() {
            steps.push(Step { span, does: Does::Group, facts, inner });
        }
        read.unwrap_or_default()
    }

    fn run(
        &mut self,
        arguments: Vec<Argument>,
        assignments: &[(String, Value, Span)],
        span: Span,
        input: &Stream,
        steps: &mut Vec<Step>,
    ) -> Stream {
        let name = arguments.first().and_then(|first| first.known()).map(str::to_owned);
        if let Some(name) = &name
            && let Some(functions) = self.reading.scope.functions.get(name).cloned()
        {
            return self.call(name, &functions, arguments, assignments, span, input, steps);
        }
        self.program(arguments, assignments, span, input, steps)
    }

    /// Each body that the name may stand for, from the same start; what they leave behind is joined.
    #[allow(clippy::too_many_arguments, reason = "a command has this many sides")]
    fn call(
        &mut self,
        name: &str,
        functions: &Functions,
        arguments: Vec<Argument>,
        assignments: &[(String, Value, Span)],
        span: Span,
        input: &Stream,
        steps: &mut Vec<Step>,
    ) -> Stream {
        let mut facts = std::mem::take(&mut self.facts);
        let mut inner = std::mem::take(&mut self.inner);
        if self.reading.scope.within.iter().any(|within| within == name) {
            // A function that starts itself, and not as its own last act, fills the machine.
            facts.push(Act { span, fact: Fact::System { act: SystemAct::Exhaustion, about: Text::known(name) } });
            steps.push(Step { span, does: Does::Group, facts, inner });
            return Stream::default();
        }
        let mut output = Stream::default();
        if let Err(unknown) = self.reading.count_step() {
            steps.push(crate::reading::unknown_code(crate::Language::Shell, span, unknown));
            return output;
        }
        let before = self.reading.scope.clone();
        let mut after: Option<super::Scope> = None;
        for (index, function) in functions.bodies.iter().enumerate() {
            if index > 0 {
                self.reading.scope = before.clone();
            }
            let words = arguments.iter().skip(1).cloned().collect();
            // Variables that stand before the name hold within the function.
            for (name, value, _) in assignments {
                self.reading.scope.set(name.clone(), value.clone());
            }
            let written = self.function(name, function, words, input, &mut inner);
            for (name, _, _) in assignments {
                self.reading.scope.forget(name);
            }
            if index == 0 {
                output = written
            } else {
                output.or(written)
            }
            let ended = std::mem::replace(&mut self.reading.scope, before.clone());
            match &mut after {
                Some(after) => after.join(ended),
                None => after = Some(ended),
            }
        }
        steps.push(Step { span, does: Does::Group, facts, inner });
        if functions.perhaps {
            let written = self.program(arguments, assignments, span, input, steps);
            output.or(written);
        }
        match after {
            Some(after) if functions.perhaps => self.reading.scope.join(after),
            Some(after) => self.reading.scope = after,
            None => {}
        }
        output
    }

    fn program(
        &mut self,
        arguments: Vec<Argument>,
        assignments: &[(String, Value, Span)],
        span: Span,
        input: &Stream,
        steps: &mut Vec<Step>,
    ) -> Stream {
        if matches!(arguments.first().and_then(Argument::known), Some("return" | "break" | "continue")) {
            self.reading.scope.note_left();
        }
        if let Err(unknown) = self.reading.count_step() {
            steps.push(crate::reading::unknown_code(crate::Language::Shell, span, unknown));
            return Stream::default();
        }
        let mut facts = std::mem::take(&mut self.facts);
        if let Err(unknown) = self.reading.count_facts(facts.len()) {
            facts = vec![Act { span, fact: Fact::Unknown { unknown } }];
        }
        let mut inner = std::mem::take(&mut self.inner);
        program::unshown(self.reading, &arguments, &mut inner);
        let (mut step, output) =
            program::run(self.reading, Invocation { arguments, environment: assignments, span, input });
        step.facts.splice(0..0, facts);
        step.inner.splice(0..0, inner);
        steps.push(step);
        output
    }

    pub(super) fn function(
        &mut self,
        name: &str,
        function: &Function,
        arguments: Vec<Argument>,
        input: &Stream,
        steps: &mut Vec<Step>,
    ) -> Stream {
        if !self.reading.scope.called.iter().any(|called| called == name) {
            self.reading.scope.called.push(name.to_owned());
        }
        if self.reading.scope.within.len() >= MOST_CALLS {
            let unknown = Unknown::TooMuch { bound: "depth" };
            steps.push(crate::reading::unknown_code(crate::Language::Shell, Span::default(), unknown));
            return Stream::default();
        }
        self.reading.scope.take_arguments(None);
        let outer = std::mem::replace(&mut self.reading.scope.arguments, arguments);
        let outside = self.reading.scope.enter(name);
        let origin = std::mem::replace(&mut self.origin, function.origin);
        let output = self.node(&function.body, input, steps);
        self.origin = origin;
        self.reading.scope.leave(outside);
        self.reading.scope.arguments = outer;
        output
    }

    /// The line of an alias of this text, and the words behind it.
    fn alias<'s>(&self, simple: &'s Simple) -> Option<(String, &'s [Word])> {
        if self.reading.scope.aliases.is_empty() {
            return None;
        }
        let (first, rest) = simple.words.split_first()?;
        Some((self.reading.scope.aliases.get(&first.raw)?.clone(), rest))
    }

    fn aliased(
        &mut self,
        line: &str,
        rest: &[Word],
        simple: &Simple,
        span: Span,
        input: &Stream,
        steps: &mut Vec<Step>,
    ) -> Stream {
        let name = simple.words.first().map(|word| word.raw.clone()).unwrap_or_default();
        let mut text = line.to_owned();
        for word in rest {
            text.push(' ');
            text.push_str(&word.raw);
        }
        // An alias is not looked up within itself.
        let alias = self.reading.scope.aliases.remove(&name);
        let (inner, output) = super::read_stream(self.reading, &text, Origin::Made(span), input);
        if let Some(alias) = alias {
            self.reading.scope.aliases.insert(name, alias);
        }
        steps.push(Step { span, does: Does::Group, facts: Vec::new(), inner });
        output
    }
}

/// Whether it is `exec` without a command: its redirections stay.
fn stays(arguments: &[Argument]) -> bool {
    let known = |argument: &Argument| matches!(argument.known(), Some("exec" | "command" | "builtin"));
    arguments.last().and_then(Argument::known) == Some("exec") && arguments.iter().all(known)
}
