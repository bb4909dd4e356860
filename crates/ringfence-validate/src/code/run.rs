//! What a program runs: code within the code, modules by name, shell lines and commands.

use std::rc::Rc;

use super::call::{Given, Place};
use super::fold;
use super::role::Slot;
use super::value::{Held, Making, Value, join};
use super::walk::Walk;
use crate::analysis::{Fact, Flow, Origin, Trick};
use crate::language::Language;
use crate::span::Span;
use crate::text::{Hole, Text};

impl Walk<'_, '_> {
    pub(super) fn evaluates(&mut self, argument: Option<(Held, Place)>) {
        let Some((held, place)) = argument else { return };
        if !held.functions.is_empty() {
            return;
        }
        let mut unknown = held.texts.is_empty() && held.number.is_none();
        for text in &held.texts {
            match text.as_known() {
                Some(known) if self.is_telling() => {
                    let origin = self.origin_of(place);
                    let language =
                        if self.language == Language::TypeScript { Language::JavaScript } else { self.language };
                    let step = self.reading.code(language, known, origin);
                    self.inner.push(step);
                }
                Some(_) => {}
                None => unknown = true,
            }
        }
        if unknown {
            self.trick(Trick::Evaluates, place.span);
            self.executes(&held, place.span);
        }
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
        if module.making != Making::Plain && module.texts.iter().all(|text| text.as_known().is_some()) {
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
                let name = self.book.canonical(plain).to_owned();
                if self.imported.len() < 4096 {
                    self.imported.insert(name.clone());
                }
                found.add_name(&name);
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

    pub(super) fn shell(&mut self, argument: Option<(Held, Place)>) {
        let Some((held, place)) = argument else { return };
        self.runs_what_came(&held, place.span);
        let readings = match &held.items {
            Some(items) if held.texts.is_empty() => items.first().map(|first| first.readings()).unwrap_or_default(),
            _ => held.readings(),
        };
        if !self.is_telling() {
            return;
        }
        for reading in readings {
            let origin = match reading.as_known() {
                Some(_) => self.origin_of(place),
                None => Origin::Made(self.origin.place(place.span)),
            };
            let line = fold::as_shell_line(&reading);
            #[cfg(test)]
            super::told::hand_on(format!("shell {line}"));
            let steps = self.reading.shell(&line, origin);
            self.inner.extend(steps);
        }
    }

    /// `subprocess.run`: a list of words, or a line if `shell=True` or if the line has spaces, which only a shell would take apart.
    pub(super) fn process(&mut self, argument: Option<(Held, Place)>, given: &Given) {
        let Some((held, place)) = argument else { return };
        let shell = given.slot(&Slot::Named("shell")).is_some_and(|(shell, _)| shell.truth != Some(false));
        let line = held.items.is_none() && held.texts.iter().any(|text| text.to_string().contains(' '));
        if shell || line {
            return self.shell(Some((held, place)));
        }
        let Some(items) = &held.items else { return self.program(Some((held, place)), Some(Vec::new()), given) };
        let mut words = items.iter().cloned();
        let first = words.next().map(|first| (first, place));
        self.program(first, Some(words.collect()), given);
    }

    pub(super) fn spawn(&mut self, program: Option<(Held, Place)>, list: Option<(Held, Place)>, given: &Given) {
        let shell = given.slot(&Slot::Named("shell")).is_some_and(|(shell, _)| shell.truth != Some(false));
        let words: Option<Vec<Held>> = list.and_then(|(list, _)| list.items.as_ref().map(|items| (**items).clone()));
        if shell && let Some((program, place)) = &program {
            let parts: Vec<Held> = std::iter::once(Rc::clone(program)).chain(words.unwrap_or_default()).collect();
            let line = Rc::new(join(&parts, " "));
            return self.shell(Some((line, Place { literal: None, ..*place })));
        }
        self.program(program, Some(words.unwrap_or_default()), given);
    }

    /// A program and its words.
    pub(super) fn program(&mut self, program: Option<(Held, Place)>, words: Option<Vec<Held>>, given: &Given) {
        let Some((program, place)) = program else { return };
        self.runs_what_came(&program, place.span);
        for word in words.iter().flatten().take(4) {
            if let Some(written) = word.texts.first().and_then(|text| self.files.get(&text.to_string())).cloned() {
                self.runs_what_came(&written, given.span);
            }
        }
        if let Some(written) =
            program.texts.first().and_then(|text| self.files.get(text.to_string().trim_start_matches("./"))).cloned()
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
            #[cfg(test)]
            super::told::hand_on(argv.iter().fold("command".to_owned(), |line, (word, _)| format!("{line} {word}")));
            let step = self.reading.command(argv, span, &input);
            self.inner.push(step);
        }
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
