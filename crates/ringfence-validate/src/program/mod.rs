//! What a program does with its words: flags and operands understood, wrappers looked through.
//!
//! What a line of data can say stands in the [`book`]; what it cannot is here, by kind of program.

mod book;
mod brought;
mod builtins;
mod by_path;
mod by_the_book;
mod clouds;
mod composed;
mod containers;
mod databases;
mod downloads;
mod editors;
mod env_file;
mod environment;
mod evaluated;
mod files;
mod find;
mod git;
mod interpreters;
mod launchers;
mod lookups;
mod makefile;
mod manifest;
mod network;
mod options;
mod plays;
mod printf;
mod read_only;
mod reads;
mod scripting;
mod scripts;
mod texts;
mod tools;
mod unpack;
mod unread;
mod wrappers;

pub(crate) use brought::{hands_out_secrets, is_of_the_sources};
pub(crate) use env_file::unshown;
pub(crate) use environment::{note_processes, poisons, sets_environment};
pub use read_only::is_read_only;

use book::{Entry, Role, book};
use by_path::bare_name;
use options::{Style, Words, words};

use crate::analysis::{Act, Contact, Does, Fact, Flow, Origin, Removal, Step, SystemAct, Trick, Unknown};
use crate::language::Language;
use crate::reading::Reading;
use crate::shell::Value;
use crate::span::Span;
use crate::stream::{Argument, Stream, telling};
use crate::text::{Hole, Piece, Text};

/// A command that is about to run.
pub(crate) struct Invocation<'i> {
    /// Its words, the name first.
    pub(crate) arguments: Vec<Argument>,
    /// Variables that are set for it alone.
    pub(crate) environment: &'i [(String, Value, Span)],
    pub(crate) span: Span,
    pub(crate) input: &'i Stream,
}

/// The step of one command.
pub(crate) fn read(reading: &mut Reading<'_>, argv: Vec<(Text, Span)>, span: Span, input: &[Flow]) -> Step {
    let arguments = argv.into_iter().map(|(text, span)| Argument::new(text, span)).collect();
    let input = Stream::from(input.to_vec());
    run(reading, Invocation { arguments, environment: &[], span, input: &input }).0
}

/// The step of one command, and what it writes.
pub(crate) fn run(reading: &mut Reading<'_>, invocation: Invocation<'_>) -> (Step, Stream) {
    let Invocation { arguments, environment, span, input } = invocation;
    let argv: Vec<Text> = arguments.iter().map(|argument| argument.text.clone()).collect();
    let mut run = Run {
        reading,
        arguments,
        span,
        input: input.clone(),
        facts: Vec::new(),
        inner: Vec::new(),
        output: Stream::default(),
        runs: Runs::Here,
    };
    for (name, value, place) in environment {
        let facts = sets_environment(run.reading, name, value, *place, &mut run.inner);
        run.facts.extend(facts);
    }
    run.dispatch_in_place(environment);
    let Run { reading, mut facts, inner, output, .. } = run;
    env_file::show_names(reading, &argv, &mut facts);
    if let Err(unknown) = reading.count_facts(facts.len()) {
        facts = vec![Act { span, fact: Fact::Unknown { unknown } }];
    }
    (Step { span, does: Does::Command { argv }, facts, inner }, output)
}

/// Whether the book knows a program of this name.
pub(crate) fn is_known(name: &str) -> bool {
    book().program(name).is_some() || handler(name).is_some()
}

/// A file's contents as a stream, and the fact that it is read.
pub(crate) fn read_file(reading: &mut Reading<'_>, argument: &Argument, facts: &mut Vec<Act>) -> Stream {
    let known = argument.known();
    if known.is_some_and(|path| path == "/dev/stdin" || path == "-") {
        return Stream::from(vec![Flow::Input]);
    }
    if let Some(stream) = known.and_then(|path| reading.file(path)) {
        return stream;
    }
    if known.is_some_and(|path| path.starts_with("/dev/null") || path.starts_with("/dev/fd/")) {
        return Stream::default();
    }
    let path = reading.scope.resolve(&argument.text);
    let environment = known.is_some_and(|path| path.starts_with("/proc/") && path.ends_with("/environ"));
    let mut stream = Stream::from(vec![Flow::File { path: path.to_string() }]);
    if environment {
        stream.add(Flow::Environment);
        facts.push(Act { span: argument.span, fact: Fact::ReadsEnvironment { name: None } });
    }
    stream.add_all(&telling(&argument.flows));
    if known.is_none() && argument.text.pieces().len() < 8 {
        let written = reading.scope.file(&argument.text.to_string()).map(|written| written.flows.clone());
        stream.add_all(&written.unwrap_or_default());
    }
    facts.push(Act { span: argument.span, fact: Fact::Reads { path } });
    stream
}

/// What a text is behind its first `bytes`, which are known.
fn after(text: &Text, bytes: usize) -> Text {
    let mut rest = Text::default();
    for (index, piece) in text.pieces().iter().enumerate() {
        match piece {
            Piece::Known(known) if index == 0 => {
                rest.push(Piece::Known(known.get(bytes..).unwrap_or_default().to_owned()));
            }
            other => rest.push(other.clone()),
        }
    }
    rest
}

/// One command as it is read.
struct Run<'r, 'a> {
    reading: &'r mut Reading<'a>,
    arguments: Vec<Argument>,
    span: Span,
    input: Stream,
    facts: Vec<Act>,
    inner: Vec<Step>,
    output: Stream,
    runs: Runs,
}

/// Where a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runs {
    /// In the shell itself: what it sets stays.
    Here,
    /// As a program of its own: nothing that it sets comes back.
    Apart,
}

/// Whether a command of this name runs in the shell itself, or starts one that does.
fn runs(name: &str) -> Runs {
    let here = builtins::handler(name).is_some()
        || evaluated::handler(name).is_some()
        || matches!(
            name,
            "command"
                | "builtin"
                | "time"
                | "exec"
                | "noglob"
                | "nocorrect"
                | "printf"
                | "popd"
                | "let"
                | "getopts"
                | "wait"
        );
    if here { Runs::Here } else { Runs::Apart }
}

type Handler = fn(&mut Run<'_, '_>, &str);

fn handler(name: &str) -> Option<Handler> {
    wrappers::handler(name)
        .or_else(|| launchers::handler(name))
        .or_else(|| scripting::handler(name))
        .or_else(|| interpreters::handler(name))
        .or_else(|| databases::handler(name))
        .or_else(|| builtins::handler(name))
        .or_else(|| evaluated::handler(name))
        .or_else(|| files::handler(name))
        .or_else(|| unpack::handler(name))
        .or_else(|| find::handler(name))
        .or_else(|| tools::handler(name))
        .or_else(|| editors::handler(name))
        .or_else(|| clouds::handler(name))
        .or_else(|| scripts::handler(name))
        .or_else(|| downloads::handler(name))
        .or_else(|| brought::handler(name))
        .or_else(|| manifest::handler(name))
        .or_else(|| texts::handler(name))
        .or_else(|| network::handler(name))
        .or_else(|| git::handler(name))
        .or_else(|| containers::handler(name))
        .or_else(|| environment::handler(name))
}

impl Run<'_, '_> {
    /// Reads the command; what a program of its own sets is forgotten again.
    fn dispatch_in_place(&mut self, environment: &[(String, Value, Span)]) {
        self.runs = self.arguments.first().and_then(Argument::known).map_or(Runs::Here, runs);
        match self.runs {
            Runs::Here => {
                // What is set for this command alone holds in it, and not behind it.
                let before = self.reading.scope.set_for_one(environment);
                self.dispatch();
                self.reading.scope.set_back(before);
            }
            Runs::Apart => {
                let saved = self.reading.scope.clone();
                self.reading.scope.set_for_one(environment);
                self.dispatch();
                self.reading.scope.leave_child(saved);
            }
        }
        evaluated::set_up_a_shell(self);
    }

    /// The words of a shell that is about to read code: its own name, and its arguments.
    fn enter(&mut self, name: Option<Argument>, arguments: Vec<Argument>) {
        self.reading.scope.enter_child();
        let name = name.unwrap_or_else(|| {
            self.arguments.first().cloned().unwrap_or_else(|| Argument::new("sh".into(), self.span))
        });
        self.reading.scope.set("0".to_owned(), Value { fields: vec![name.text], flows: name.flows });
        self.reading.scope.arguments = arguments;
        self.runs = Runs::Here;
    }

    fn dispatch(&mut self) {
        let Some(first) = self.arguments.first().cloned() else { return };
        let Some(path) = first.known() else {
            self.unknown_program(&first);
            return;
        };
        let name = bare_name(path);
        self.written_program(path, first.span);
        environment::look_among(self, name);
        containers::obey_input(self, name);
        if let Some(handler) = handler(name) {
            handler(self, name);
            self.keep_names(name);
            if !self.reading.scope.files.is_empty() {
                self.copied_program(path);
            }
            return;
        }
        let entry = self.subcommand(name).or_else(|| book().program(name));
        match entry {
            Some(entry) => {
                self.by_the_book(entry);
                self.keep_names(name);
            }
            None => {
                self.output = self.input.clone();
                self.output.text = None;
                self.output.add(Flow::Unknown);
            }
        }
        if !self.reading.scope.files.is_empty() {
            self.copied_program(path);
        }
    }

    /// What the book says of the subcommand that is asked for.
    fn subcommand(&self, name: &str) -> Option<&'static Entry> {
        let mut words = self.arguments.iter().skip(1).filter_map(Argument::known);
        words.find_map(|word| book().subcommand(name, word).filter(|_| !word.starts_with('-')))
    }

    /// The program is only known when it runs.
    fn unknown_program(&mut self, first: &Argument) {
        if self.program_by_pattern(first) {
            return;
        }
        self.fact(first.span, Fact::Unknown { unknown: Unknown::Program });
        if first.text.has_pattern() {
            self.fact(first.span, Fact::Tricks { trick: Trick::Obscured });
        }
        if !first.flows.is_empty() {
            self.fact(first.span, Fact::Executes { from: first.flows.clone() });
        }
        // A variable may be empty, or hold a wrapper: then the next word is the program.
        if matches!(first.text.pieces(), [Piece::Hole(Hole::Variable(_))]) && self.arguments.len() > 1 {
            let rest = self.arguments.iter().skip(1).cloned().collect();
            self.start(rest);
        }
        self.output = Stream::from(vec![Flow::Unknown]);
    }

    fn fact(&mut self, span: Span, fact: Fact) {
        self.facts.push(Act { span, fact });
    }

    /// The words behind the name.
    fn rest(&self) -> Vec<Argument> {
        self.arguments.iter().skip(1).cloned().collect()
    }

    /// The words behind the name, told apart; `takes` names the options that have values.
    fn words(&self, takes: &[&str], style: Style) -> Words {
        words(&self.rest(), |option| takes.contains(&option).then_some(Role::Nothing), style)
    }

    fn reads(&mut self, argument: &Argument) -> Stream {
        read_file(self.reading, argument, &mut self.facts)
    }

    fn writes(&mut self, argument: &Argument, mut contents: Stream) {
        if matches!(argument.known(), Some("/dev/null" | "/dev/stdout" | "/dev/stderr" | "-" | "/dev/tty")) {
            return;
        }
        let path = self.reading.scope.resolve(&argument.text);
        self.fact(argument.span, Fact::Writes { path });
        if let Some(path) = argument.known() {
            self.reading.scope.keep(path, contents);
        } else if argument.text.pieces().len() < 8 && !contents.flows.is_empty() {
            // Of a name that is not all known, what goes into it is kept beside what may be there.
            let path = argument.text.to_string();
            let before = self.reading.scope.file(&path).cloned().unwrap_or_default();
            contents.add_all(&before.flows);
            self.reading.scope.keep(&path, Stream::from(contents.flows));
        }
    }

    fn removes(&mut self, argument: &Argument, removal: Removal) {
        let path = self.reading.scope.resolve(&argument.text);
        let removal = if self.was_found(argument, &path) { Removal::Tree } else { removal };
        for path in self.reading.scope.through_links(&path) {
            self.fact(argument.span, Fact::Removes { path, removal });
        }
        self.fact(argument.span, Fact::Removes { path, removal });
    }

    fn contacts(&mut self, place: Text, span: Span, contact: Contact, sends: Vec<Flow>) {
        self.fact(span, Fact::Contacts { place, contact, sends });
    }

    /// Where the words of the command come from, all together.
    fn word_flows(&self) -> Vec<Flow> {
        let mut stream = Stream::default();
        for argument in self.arguments.iter().skip(1) {
            stream.add_all(&argument.flows);
        }
        stream.telling()
    }

    fn manages(&mut self, act: SystemAct) {
        let about = self
            .arguments
            .iter()
            .skip(1)
            .rfind(|argument| !argument.text.known_start().starts_with('-'))
            .or(self.arguments.first())
            .map(|argument| argument.text.clone())
            .unwrap_or_default();
        let span = self.span;
        self.fact(span, Fact::System { act, about });
    }

    /// Starts another command: its step stands within this one.
    fn start(&mut self, arguments: Vec<Argument>) -> Stream {
        let input = self.input.clone();
        self.start_with(arguments, &input)
    }

    fn start_with(&mut self, arguments: Vec<Argument>, input: &Stream) -> Stream {
        if arguments.is_empty() {
            return Stream::default();
        }
        let start = arguments.first().map_or(self.span.start, |first| first.span.start);
        let end = arguments.last().map_or(self.span.end, |last| last.span.end);
        let span = Span::new(start, end.max(start));
        let (step, output) = self.reading.run(Invocation { arguments, environment: &[], span, input });
        self.inner.push(step);
        output
    }

    /// Reads a text that is given to a shell.
    fn shell(&mut self, code: &Argument) -> Stream {
        let input = self.input.clone();
        if self.runs == Runs::Apart {
            self.reading.scope.enter_child();
        }
        if let [Piece::Hole(_)] = code.text.pieces() {
            let from = if code.flows.is_empty() { vec![Flow::Unknown] } else { code.flows.clone() };
            self.fact(code.span, Fact::Executes { from });
            return Stream::from(vec![Flow::Unknown]);
        }
        let (text, origin) = match code.known() {
            Some(known) => (known.to_owned(), origin_of(code, known)),
            None => (self.with_holes(code), Origin::Made(code.span)),
        };
        let (steps, output) = self.reading.shell_stream(&text, origin, &input);
        self.inner.extend(steps);
        output
    }

    /// A text for a shell in which what is not known stands as variables.
    fn with_holes(&mut self, code: &Argument) -> String {
        let mut text = String::new();
        for piece in code.text.pieces() {
            match piece {
                Piece::Known(known) | Piece::Pattern(known) => text.push_str(known),
                Piece::Hole(hole) => {
                    let name = format!("_hole{}", self.reading.scope.variables.len());
                    let value = Value { fields: vec![Text::hole(hole.clone())], flows: code.flows.clone() };
                    text.push_str("${");
                    text.push_str(&name);
                    text.push('}');
                    self.reading.scope.set(name, value);
                }
            }
        }
        text
    }

    /// Code that comes out of a stream is executed: read where it is known.
    fn execute(&mut self, stream: &Stream, language: Language, span: Span) -> Stream {
        let from = if stream.flows.is_empty() { vec![Flow::Unknown] } else { stream.flows.clone() };
        if stream.flows.contains(&Flow::Decoded) && stream.text.is_some() {
            self.fact(span, Fact::Tricks { trick: Trick::Obscured });
        }
        self.fact(span, Fact::Executes { from });
        let Some(text) = &stream.text else { return Stream::from(vec![Flow::Unknown]) };
        let code = Argument { text: text.clone(), span, flows: stream.flows.clone() };
        match language {
            Language::Shell => {
                let input = std::mem::take(&mut self.input);
                let output = self.shell(&code);
                self.input = input;
                output
            }
            language => {
                self.code(language, &code);
                Stream::from(vec![Flow::Unknown])
            }
        }
    }

    /// Reads code that is given to an interpreter.
    fn code(&mut self, language: Language, code: &Argument) {
        let text = match code.known() {
            Some(known) => known.to_owned(),
            None if language == Language::Other => String::new(),
            None => {
                // What the shell puts in is a name to the reader of the language.
                let from = if code.flows.is_empty() { vec![Flow::Unknown] } else { code.flows.clone() };
                self.fact(code.span, Fact::Executes { from });
                code.text
                    .pieces()
                    .iter()
                    .map(|piece| match piece {
                        Piece::Known(known) | Piece::Pattern(known) => known.clone(),
                        Piece::Hole(_) => "_hole".to_owned(),
                    })
                    .collect()
            }
        };
        if language == Language::Other {
            unread::read(self, &text, code);
        }
        let origin = if code.known().is_some() { origin_of(code, &text) } else { Origin::Made(code.span) };
        let step = self.reading.code(language, &text, origin);
        self.inner.push(step);
    }
}

/// Where the code of a word stands: as it is where quotes are all that was taken away.
fn origin_of(code: &Argument, known: &str) -> Origin {
    let length = code.span.end.saturating_sub(code.span.start);
    if length == known.len() {
        Origin::At(code.span.start)
    } else if length == known.len() + 2 {
        Origin::At(code.span.start + 1)
    } else {
        Origin::Made(code.span)
    }
}
