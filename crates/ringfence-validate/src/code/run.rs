//! What a program runs: code within the code, modules by name, shell lines and commands.

use std::rc::Rc;

use super::call::{Given, Place};
use super::fold;
use super::role::Slot;
use super::tree::{Pattern, Statement};
use super::value::{Held, Making, Value, join};
use super::walk::Walk;
use crate::analysis::{Act, Fact, Flow, Origin, Step, Trick};
use crate::language::Language;
use crate::path::{PathClass, classify};
use crate::span::Span;
use crate::text::{Hole, Piece, Text};

/// Facts among which a file is looked for that was written.
const LOOKED_THROUGH: usize = 256;
/// Bytes of a text within the program that is walked over as a part of it.
const WITHIN_BYTES: usize = 64 * 1024;
/// Such texts of one program, and within each other.
const WITHIN: usize = 64;
const WITHIN_DEEP: usize = 3;
/// Functions of such texts are numbered from here on, each text in a range of its own.
const WITHIN_NUMBERS: usize = 1 << 20;

/// What a program starts, to be read when the walk over the program is done.
#[derive(Debug)]
pub(super) enum Started {
    Shell { line: String, origin: Origin, directory: Option<Text> },
    Command { argv: Vec<(Text, Span)>, span: Span, input: Vec<Flow>, directory: Option<Text> },
    Code { language: Language, text: String, origin: Origin },
}

/// A path as seen from a directory.
pub(super) fn within(directory: Option<&Text>, path: &Text) -> Text {
    let Some(directory) = directory else { return path.clone() };
    if path.known_start().starts_with(['/', '~']) || (path.known_start().is_empty() && !path.has_pattern()) {
        return path.clone();
    }
    let mut whole = directory.clone();
    if !whole.known_end().ends_with('/') {
        whole.push(Piece::Known("/".to_owned()));
    }
    whole.append(path.clone());
    whole
}

impl Walk<'_, '_> {
    /// Reads what the program starts.
    pub(super) fn start_all(&mut self) -> Vec<Step> {
        let first = self.reading.scope.directory.clone();
        let mut steps = Vec::new();
        self.leave_files();
        for started in std::mem::take(&mut self.started) {
            match started {
                Started::Shell { line, origin, directory } => {
                    #[cfg(test)]
                    super::told::hand_on(format!("shell {line}"));
                    self.reading.scope.directory.set(directory.or_else(|| first.get().cloned()));
                    steps.extend(self.reading.shell(&line, origin));
                }
                Started::Command { argv, span, input, directory } => {
                    #[cfg(test)]
                    super::told::hand_on(
                        argv.iter().fold("command".to_owned(), |line, (word, _)| format!("{line} {word}")),
                    );
                    self.reading.scope.directory.set(directory.or_else(|| first.get().cloned()));
                    steps.push(self.reading.command(argv, span, &input));
                }
                Started::Code { language, text, origin } => steps.push(self.reading.code(language, &text, origin)),
            }
            if self.reading.is_spent() {
                break;
            }
        }
        self.reading.scope.directory = first;
        steps
    }

    /// Runs a text as code; what it gives, where that can be told.
    pub(super) fn evaluates(&mut self, argument: Option<(Held, Place)>) -> Value {
        let mut gives = Value::default();
        let Some((held, place)) = argument else { return gives };
        if !held.functions.is_empty() && held.texts.is_empty() {
            return gives;
        }
        let mut unknown = held.texts.is_empty() && held.number.is_none();
        for text in &held.texts {
            match text.as_known() {
                Some(known) => match self.walk_within(known, place) {
                    Some(value) => gives = gives.or(&value),
                    None if self.is_telling() => {
                        let origin = self.origin_of(place);
                        let language =
                            if self.language == Language::TypeScript { Language::JavaScript } else { self.language };
                        self.started.push(Started::Code { language, text: known.to_owned(), origin });
                    }
                    None => {}
                },
                None => unknown = true,
            }
        }
        if unknown {
            // To run a file of the project is what importing it does.
            if !self.comes_from_the_project(&held) {
                self.trick(Trick::Evaluates, place.span);
            }
            self.executes(&held, place.span);
        }
        gives
    }

    /// `new Function("a", "b", "return a + b")`: what it is called with is what its parameters hold.
    pub(super) fn function_of_text(&mut self, given: &Given) -> Value {
        let last = given.slot(&Slot::Last);
        let texts: Option<Vec<&str>> = given.args.iter().map(|arg| arg.as_known()).collect();
        match (texts.as_deref(), &last) {
            (Some([params @ .., body]), Some((held, place))) => {
                // It may wait and it may yield, whatever it was made by.
                let star = if body.contains("yield") { "*" } else { "" };
                let text = format!("(async function{star}({}\n){{\n{body}\n}})", params.join(","));
                let function = Value { making: held.making, flows: held.flows.clone(), ..Value::known(text) };
                self.evaluates(Some((Rc::new(function), Place { literal: None, ..*place })))
            }
            _ => self.evaluates(last),
        }
    }

    /// Walks over a text that is run where it is run: it sees the names that are there, and those that it sets stay.
    fn walk_within(&mut self, text: &str, place: Place) -> Option<Value> {
        if self.evaluated >= WITHIN_DEEP || self.down > 40 || text.len() > WITHIN_BYTES {
            return None;
        }
        let (index, program) = match self.parsed.get(text) {
            Some(known) => known.clone(),
            None if self.parsed.len() >= WITHIN => return None,
            None => {
                self.spend(text.len() * 16);
                let index = self.parsed.len() + 1;
                let program = (self.parse)(text, index * WITHIN_NUMBERS, self.reading.limits).map(Rc::new);
                self.parsed.insert(text.to_owned(), (index, program.clone()));
                (index, program)
            }
        };
        let program = program?;
        self.arguments |= program.arguments;
        let origin = self.origin;
        self.origin = self.origin_of(place);
        // What it returns is what a function made of it returns.
        let number = (index + 1) * WITHIN_NUMBERS - 1;
        self.evaluated += 1;
        self.inside.push(number);
        self.functions.entry(number).or_default();
        for (trick, span) in &program.seen {
            self.trick(*trick, *span);
        }
        let mut gives = Value::default();
        match program.statements.split_last() {
            Some((Statement::Value(last), before)) => {
                self.statements(before);
                gives = Value::clone(&self.value(last));
            }
            _ => self.statements(&program.statements),
        }
        if self.language == Language::Python {
            // The names may go into a dictionary that `exec` is given.
            for statement in &program.statements {
                if let Statement::Assign { pattern: Pattern::Name(name), .. } = statement
                    && let Some(held) = self.scopes.visible(name).cloned()
                {
                    self.scopes.set_attribute(name, &held);
                }
            }
        }
        self.inside.pop();
        self.evaluated -= 1;
        self.origin = origin;
        if let Some(made) = self.made_function(number) {
            gives.functions.push(made);
        }
        Some(gives)
    }

    fn executes(&mut self, held: &Value, span: Span) {
        let mut from: Vec<Flow> = held.flows.iter().cloned().collect();
        if from.is_empty() {
            from.push(Flow::Unknown);
        }
        self.tell(span, Fact::Executes { from });
    }

    /// A module by a name that a program gives.
    pub(super) fn imports(&mut self, module: &Held, place: Place) -> Held {
        let mut found = Value::default();
        // A path into the project is put together every day; the name of a module is not.
        let is_path = |text: &Text| text.known_start().starts_with("./") || text.known_start().starts_with("../");
        let known = module.texts.iter().all(|text| text.as_known().is_some());
        if module.making != Making::Plain && known && !module.texts.iter().all(is_path) {
            self.trick(Trick::Obscured, place.span);
        }
        for text in module.readings() {
            let start = text.known_start();
            let elsewhere = ["http:", "https:", "data:", "blob:"].iter().any(|scheme| start.starts_with(scheme));
            // A part of a package whose name is written out is a plug-in, not a disguise.
            let own = start.contains('.') && !elsewhere;
            if elsewhere || (text.as_known().is_none() && !own) {
                self.trick(Trick::DynamicImport, place.span);
            }
            if let Some(code) = text.as_known().and_then(|known| known.strip_prefix("data:")) {
                self.data_module(code, place);
            } else if elsewhere {
                self.tell(place.span, Fact::Executes { from: vec![Flow::Network] });
            }
            if let Some(known) = text.as_known() {
                let plain = known.strip_prefix("node:").unwrap_or(known);
                // `os:system` is something of a module.
                let (plain, member) =
                    plain.split_once(':').map_or((plain, None), |(plain, member)| (plain, Some(member)));
                let name = self.book.canonical(plain).to_owned();
                if self.imported.len() < 4096 {
                    self.imported.insert(name.clone());
                }
                match member {
                    Some(member) => {
                        let mut held = Rc::new(self.thing(&name));
                        for part in member.split('.') {
                            held = self.member_of(&held, part, place.span);
                        }
                        found.add(&held);
                    }
                    None => self.add_thing(&mut found, &name),
                }
                self.tell(place.span, Fact::Imports { module: Text::known(plain) });
            } else {
                self.tell(place.span, Fact::Imports { module: text });
            }
        }
        Rc::new(found)
    }

    /// `data:text/javascript,CODE`.
    fn data_module(&mut self, data: &str, place: Place) {
        let Some((kind, code)) = data.split_once(',') else { return };
        let code = if kind.ends_with(";base64") {
            fold::function("atob", &[Rc::new(Value::known(code))])
        } else {
            fold::function("decodeURIComponent", &[Rc::new(Value::known(code))])
        };
        self.evaluates(code.map(|code| (Rc::new(code), Place { literal: None, ..place })));
    }

    fn origin_of(&self, place: Place) -> Origin {
        match (self.origin, place.literal) {
            (Origin::At(start), Some(at)) => Origin::At(start + at),
            (origin, _) => Origin::Made(origin.place(place.span)),
        }
    }

    pub(super) fn shell(&mut self, argument: Option<(Held, Place)>, given: &Given) {
        let Some((held, place)) = argument else { return };
        self.runs_what_came(&held, place.span);
        if held.fields.is_some() && held.texts.is_empty() {
            // Options for a line that comes with the next call.
            return;
        }
        for text in &held.texts {
            for word in text.known_start().split_whitespace().take(4) {
                let name = word.trim_start_matches("./");
                if let Some(written) = self.put_there(word).or_else(|| self.put_there(name)) {
                    self.runs_what_came(&written, given.span);
                }
            }
        }
        // What somebody elsewhere typed stands in a line: it may hold commands of its own.
        let asked =
            held.flows.iter().any(|flow| *flow == Flow::Network) && held.flows.iter().any(|flow| *flow == Flow::Input);
        if asked && held.texts.iter().any(Text::has_hole) {
            self.tell(given.span, Fact::Executes { from: vec![Flow::Unknown] });
        }
        let readings = match &held.items {
            Some(items) if held.texts.is_empty() => items.first().map(|first| first.readings()).unwrap_or_default(),
            _ => held.readings(),
        };
        if !self.is_telling() {
            return;
        }
        for directory in self.working_directories(given) {
            for reading in &readings {
                let origin = match reading.as_known() {
                    Some(_) => self.origin_of(place),
                    None => Origin::Made(self.origin.place(place.span)),
                };
                let line = fold::as_shell_line(reading);
                self.started.push(Started::Shell { line, origin, directory: directory.clone() });
            }
        }
    }

    /// Where a command runs: where it is told to, or where the program may be.
    fn working_directories(&self, given: &Given) -> Vec<Option<Text>> {
        let told = given.slot(&Slot::Named("cwd")).map(|(held, _)| held.readings()).unwrap_or_default();
        let known: Vec<&Text> = told.iter().filter(|text| !text.known_start().is_empty()).collect();
        let mut all = Vec::new();
        for directory in &self.directories {
            let from = directory.as_ref();
            if known.is_empty() {
                all.push(from.cloned());
            }
            all.extend(known.iter().map(|told| Some(within(from, told))));
        }
        all
    }

    /// `subprocess.run`: a list of words, or a line if `shell=True` or if the line has spaces, which only a shell would take apart.
    pub(super) fn process(&mut self, argument: Option<(Held, Place)>, given: &Given) {
        let Some((held, place)) = argument else { return };
        let shell = given.slot(&Slot::Named("shell")).is_some_and(|(shell, _)| shell.truth != Some(false));
        let line = held.items.is_none() && held.texts.iter().any(|text| text.to_string().contains(' '));
        if shell || line {
            return self.shell(Some((held, place)), given);
        }
        let Some(items) = &held.items else { return self.program(Some((held, place)), Some(Vec::new()), given) };
        let mut words = items.iter().cloned();
        // The first word is then only what the program is told that it is called.
        let started = given.slot(&Slot::Named("executable")).filter(|(started, _)| !started.texts.is_empty());
        let first = words.next().map(|first| (first, place));
        let first = started.or(first);
        self.program(first, Some(words.collect()), given);
    }

    pub(super) fn spawn(&mut self, program: Option<(Held, Place)>, list: Option<(Held, Place)>, given: &Given) {
        let shell = given.slot(&Slot::Named("shell")).is_some_and(|(shell, _)| shell.truth != Some(false));
        let words: Option<Vec<Held>> = list.and_then(|(list, _)| list.items.as_ref().map(|items| (**items).clone()));
        if shell && let Some((program, place)) = &program {
            let parts: Vec<Held> = std::iter::once(Rc::clone(program)).chain(words.unwrap_or_default()).collect();
            let line = Rc::new(join(&parts, " "));
            return self.shell(Some((line, Place { literal: None, ..*place })), given);
        }
        self.program(program, Some(words.unwrap_or_default()), given);
    }

    /// A program and its words.
    pub(super) fn program(&mut self, program: Option<(Held, Place)>, words: Option<Vec<Held>>, given: &Given) {
        let Some((program, place)) = program else { return };
        self.runs_what_came(&program, place.span);
        self.starts_itself(&program, words.as_deref(), given.span);
        for word in words.iter().flatten().take(4) {
            if let Some(written) = word.texts.first().and_then(|text| self.put_there(&text.to_string())) {
                self.runs_what_came(&written, given.span);
            }
        }
        if let Some(written) =
            program.texts.first().and_then(|text| self.put_there(text.to_string().trim_start_matches("./")))
        {
            self.runs_what_came(&written, given.span);
        }
        if !self.is_telling() {
            return;
        }
        let input: Vec<Flow> = given
            .slot(&Slot::Named("input"))
            .into_iter()
            .flat_map(|(input, _)| input.flows.iter().cloned().collect::<Vec<_>>())
            .collect();
        let span = self.origin.place(given.span);
        let place = self.origin.place(place.span);
        for name in program.readings() {
            let mut argv = vec![(name, place)];
            match &words {
                Some(words) => argv.extend(words.iter().map(|word| (word.readings().swap_remove(0), place))),
                None => argv.push((Text::hole(Hole::Value), place)),
            }
            for directory in self.working_directories(given) {
                self.started.push(Started::Command { argv: argv.clone(), span, input: input.clone(), directory });
            }
        }
    }

    /// What the program wrote to a file, or unpacked into one of the folders around it.
    fn put_there(&self, path: &str) -> Option<Held> {
        let around =
            path.match_indices('/').rev().filter_map(|(at, _)| path.get(..at)).filter(|folder| !folder.is_empty());
        std::iter::once(path).chain(around).find_map(|path| self.files.get(path)).cloned()
    }

    /// Whether it is the path of a file of the project, and not one that was put there here.
    pub(super) fn is_kept_by_the_project(&self, held: &Value) -> bool {
        super::touch::is_own_path(held) && held.texts.iter().all(|text| self.is_untouched(&text.to_string()))
    }

    /// Whether all of it comes out of files of the project, none of which was written here.
    pub(super) fn comes_from_the_project(&self, held: &Value) -> bool {
        let is_untouched = |flow: &Flow| matches!(flow, Flow::File { path } if self.is_untouched(path));
        super::touch::is_own_file(held) && held.flows.iter().all(is_untouched)
    }

    /// Whether a path leads below the project from where this runs, to something that nobody here wrote.
    fn is_untouched(&self, path: &str) -> bool {
        let place = self.reading.scope.resolve(&Text::known(path));
        classify(&place, self.reading.surroundings).contains(&PathClass::Workspace) && !self.has_written(path)
    }

    /// Whether something here may have written a file of that name: this program, one that it starts, or the text around it.
    pub(super) fn has_written(&self, path: &str) -> bool {
        fn name(path: &str) -> &str {
            path.rsplit('/').next().unwrap_or(path)
        }
        let is_written = |act: &Act| match &act.fact {
            Fact::Writes { path: known } => known.has_hole() || name(&known.to_string()) == name(path),
            _ => false,
        };
        // Among many it is not looked for, and may be one of them.
        !self.started.is_empty()
            || !self.reading.scope.files.is_empty()
            || self.facts.len() > LOOKED_THROUGH
            || self.put_there(path).is_some()
            || self.facts.iter().any(is_written)
    }

    /// A command that comes from elsewhere is code from elsewhere.
    fn runs_what_came(&mut self, held: &Value, span: Span) {
        let known = !held.texts.is_empty() && held.texts.iter().all(|text| text.as_known().is_some());
        let begins = held.texts.iter().any(|text| !text.known_start().is_empty());
        let elsewhere = held.flows.iter().any(|flow| matches!(flow, Flow::Network | Flow::Decoded));
        if elsewhere && !known && !begins {
            self.executes(held, span);
        }
    }
}
