//! What a call does with its arguments, as the book says: facts, commands, and texts within the text.

use std::rc::Rc;

use super::call::{Given, Place};
use super::fold;
use super::role::{Given as Source, Role, RoleAct, Slot};
use super::touch::{names, octal};
use super::value::{Held, Making, Value};
use super::walk::Walk;
use crate::analysis::{Change, Contact, Fact, Flow, Privilege, Removal, SystemAct, Trick};
use crate::text::{Hole, Text};

/// Whether the book says what a call gives.
pub(super) fn says_what_it_is(roles: &[Role]) -> bool {
    roles.iter().any(|role| matches!(role.act, RoleAct::Is(_) | RoleAct::Imports | RoleAct::Attribute))
}

/// Whether a call does something that a rule could speak of.
pub(super) fn acts(roles: &[Role]) -> bool {
    roles.iter().any(|role| {
        !matches!(
            role.act,
            RoleAct::Is(_)
                | RoleAct::Gives(_)
                | RoleAct::Text(_)
                | RoleAct::Path
                | RoleAct::Applies
                | RoleAct::Applied
                | RoleAct::Passes
                | RoleAct::EvaluatesText
        )
    })
}

/// Whether it is one number after the other, and not one of a few that are written out.
fn counts(value: &Value) -> bool {
    value.many && value.texts.contains(&Text::hole(Hole::Value))
}

/// Whether an environment variable is one that holds a secret, by its name.
pub(super) fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "PRIVATE"].iter().any(|word| name.contains(word))
}

impl Walk<'_, '_> {
    /// The names of a whole program that a text sees.
    fn sees(&mut self, names: &Value) {
        for (name, held) in names.fields.iter().flat_map(|fields| fields.iter()) {
            self.scopes.set_global(name, held);
        }
    }

    pub(super) fn perform(&mut self, role: &Role, given: &Given, result: &mut Value) {
        let slots: Vec<Option<(Held, Place)>> = role.args.iter().map(|slot| given.slot(slot)).collect();
        let first = slots.first().cloned().flatten();
        let second = slots.get(1).cloned().flatten();
        if let Some((held, place)) = &first
            && held.making == Making::Decoded
            && !matches!(role.act, RoleAct::Path | RoleAct::Gives(_) | RoleAct::Applies | RoleAct::Writes)
        {
            self.trick(Trick::Obscured, place.span);
        }
        if role.act.runs_what_it_is_given()
            && first.as_ref().is_some_and(|(line, _)| super::left::shows_environment(line))
        {
            result.flows.add(&Flow::Environment);
        }
        match role.act {
            RoleAct::Shell => self.shell(first, given),
            RoleAct::Process => self.process(first, given),
            RoleAct::Spawn => self.spawn(first, second, given),
            RoleAct::ExecList => {
                let words = second
                    .and_then(|(list, _)| list.items.as_ref().map(|items| items.iter().skip(1).cloned().collect()));
                self.program(first, words, given);
            }
            RoleAct::ExecWords => {
                let from = role
                    .args
                    .iter()
                    .find_map(|slot| if let Slot::From(at) = slot { Some(*at) } else { None })
                    .unwrap_or(1);
                let words = given.args.iter().skip(from).filter(|arg| arg.fields.is_none()).cloned().collect();
                self.program(first, Some(words), given);
            }
            RoleAct::Reads => {
                for path in self.each(first, given) {
                    result.flows.add(&Flow::File { path: path.1.to_string() });
                    self.tell(path.0, Fact::Reads { path: path.1 });
                }
            }
            RoleAct::Writes => {
                let text = self.written_text(role.args.first(), given);
                self.leaves_orders(first.as_ref(), text.as_ref(), given);
                self.remember(first.as_ref(), given, result, text);
                for (span, path) in self.each(first, given) {
                    self.overwrites(&path, span);
                    self.leaves_scripts(&path, span);
                    self.tell(span, Fact::Writes { path });
                }
            }
            RoleAct::Removes => self.removes(first, given, Removal::One),
            RoleAct::RemovesTree => {
                let options = given.slot(&Slot::Named("recursive"));
                let alone = options.is_none() && role.args.contains(&Slot::Named("recursive"));
                self.removes(first, given, if alone { Removal::One } else { Removal::Tree });
            }
            RoleAct::Empties => self.removes(first, given, Removal::Shred),
            RoleAct::Opens => self.opens(first, second.map(|(mode, _)| mode), given, result),
            RoleAct::Moves => {
                self.removes(first, given, Removal::One);
                for (span, path) in self.each(second, given) {
                    self.tell(span, Fact::Writes { path });
                }
            }
            RoleAct::Copies => {
                for (span, path) in self.each(first, given) {
                    self.tell(span, Fact::Reads { path });
                }
                for (span, path) in self.each(second, given) {
                    self.tell(span, Fact::Writes { path });
                }
            }
            RoleAct::Mode => {
                let by_name = |name: &Rc<str>| name.ends_with("S_ISUID") || name.ends_with("S_ISGID");
                let adds = second.as_ref().is_some_and(|(mode, _)| mode.names.iter().any(by_name));
                let mode = second.map_or_else(|| Text::hole(Hole::Value), |(mode, _)| octal(&mode));
                for (span, path) in self.each(first, given) {
                    let octal =
                        mode.as_known().is_some_and(|mode| mode.len() == 4 && mode.starts_with(['2', '4', '6', '7']));
                    if octal || adds {
                        self.tell(span, Fact::Privilege { privilege: Privilege::SetUserId });
                    }
                    self.tell(span, Fact::Changes { path, change: Change::Mode { mode: mode.clone(), tree: false } });
                }
            }
            RoleAct::Owner => self.changes(first, given, &Change::Owner { tree: false }),
            RoleAct::Times => self.changes(first, given, &Change::Times),
            RoleAct::Links => {
                let to = first.map_or_else(|| Text::hole(Hole::Value), |(to, _)| to.readings().swap_remove(0));
                for (_, path) in self.each(second.clone(), given).into_iter().take(4) {
                    if path.as_known().is_some() && to.as_known().is_some_and(|to| to.starts_with(['/', '~', '.'])) {
                        let name = self.reading.scope.key(&path.to_string());
                        if let Err(unknown) = self.reading.scope.notes.note_link(name, to.to_string()) {
                            self.tell(given.span, Fact::Unknown { unknown });
                        }
                    }
                }
                self.changes(second, given, &Change::Link { to });
            }
            RoleAct::Fetches => self.contacts(first, given, Contact::Fetch),
            RoleAct::Sends => self.contacts(first, given, Contact::Send),
            RoleAct::Uploads => self.uploads(&slots, given),
            RoleAct::Connects => self.contacts(first, given, Contact::Connect),
            RoleAct::Listens => self.contacts(first, given, Contact::Listen),
            RoleAct::Probes => self.contacts(first, given, Contact::Probe),
            RoleAct::RemoteShell => self.contacts(first, given, Contact::Shell),
            RoleAct::MakesFunction => {
                let gives = self.function_of_text(given);
                *result = std::mem::take(result).or(&gives);
            }
            RoleAct::SeesNames => given.all().for_each(|names| self.sees(names)),
            RoleAct::Evaluates => {
                // The names that the text sees may be handed over with it.
                given.all().skip(1).for_each(|names| self.sees(names));
                let gives = self.evaluates(first);
                *result = std::mem::take(result).or(&gives);
            }
            RoleAct::Directory => self.moves_to(first.as_ref()),
            RoleAct::Loads | RoleAct::Obeys => {
                let acts = role.act == RoleAct::Obeys
                    || second.is_some_and(|(handed, _)| !handed.flows.abilities().is_empty());
                let mut flows = first.iter().flat_map(|(held, _)| held.flows.iter());
                if acts && flows.any(|flow| matches!(flow, Flow::Network | Flow::Decoded)) {
                    self.tell(given.span, Fact::Executes { from: vec![Flow::Network] });
                }
            }
            RoleAct::EvaluatesText => {
                // A name of which nothing is known is a function, as nearly always.
                let text = first.filter(|(held, _)| {
                    held.texts.iter().any(|text| !text.known_start().is_empty())
                        || held.flows.iter().any(|flow| matches!(flow, Flow::Network | Flow::Decoded))
                });
                if text.is_some() {
                    self.evaluates(text);
                }
            }
            RoleAct::Yaml
                if given.args.iter().skip(1).chain(given.named.iter().map(|(_, arg, _)| arg)).any(|loader| {
                    loader.names.iter().any(|name| name.contains("Safe") || name.contains("BaseLoader"))
                }) => {}
            // What was put together a moment ago is what it was.
            RoleAct::Deserialises if first.as_ref().is_some_and(|(held, _)| held.has("pickle.dumps()")) => {}
            // Whoever says that objects are wanted means what can run code.
            RoleAct::DeserialisesFile
                if given.slot(&Slot::Named("weights_only")).is_some_and(|(only, _)| only.truth == Some(false)) =>
            {
                self.trick(Trick::Deserialises, given.span);
            }
            // A file that the project keeps is as much its own as the code that loads it.
            RoleAct::Deserialises | RoleAct::DeserialisesFile
                if first.as_ref().is_some_and(|(held, _)| self.comes_from_the_project(held)) => {}
            RoleAct::DeserialisesFile | RoleAct::ImportsFile
                if first.as_ref().is_some_and(|(held, _)| self.is_kept_by_the_project(held)) => {}
            RoleAct::DeserialisesFile
                if given.slot(&Slot::Named("weights_only")).is_some_and(|(only, _)| only.truth == Some(true)) => {}
            // What the project builds is started as a program every day.
            RoleAct::LoadsLibrary
                if first.as_ref().is_some_and(|(held, _)| {
                    self.is_kept_by_the_project(held) && held.texts.iter().all(|text| text.known_start().contains('/'))
                }) => {}
            // Mathematics: told when something else is taken from it.
            RoleAct::LoadsLibrary
                if first.as_ref().is_some_and(|(held, _)| {
                    !held.texts.is_empty()
                        && held
                            .texts
                            .iter()
                            .all(|text| matches!(text.as_known(), Some("libm.so" | "libm.so.6" | "libm.dylib")))
                }) =>
            {
                result.add_name(super::member::RECKONS);
            }
            RoleAct::LoadsLibrary => {
                self.tell(given.span, Fact::Privilege { privilege: Privilege::ForeignCode });
            }
            RoleAct::ImportsFile => self.trick(Trick::DynamicImport, given.span),
            RoleAct::Deserialises | RoleAct::DeserialisesFile | RoleAct::Yaml => {
                self.trick(Trick::Deserialises, given.span);
                let flows: Vec<Flow> = first.iter().flat_map(|(held, _)| held.flows.iter().cloned()).collect();
                if flows.iter().any(|flow| matches!(flow, Flow::Network | Flow::Decoded | Flow::Input)) {
                    self.tell(given.span, Fact::Executes { from: flows });
                }
            }
            RoleAct::Imports => {
                if let Some((module, place)) = first {
                    let module = self.imports(&module, place);
                    *result = std::mem::take(result).or(&module);
                }
            }
            RoleAct::Attribute => {
                if let (Some((object, _)), Some((key, place))) = (first, second) {
                    let found = self.member_like(&object, &key, place.span);
                    *result = std::mem::take(result).or(&found);
                    if let Some(default) = given.args.get(2) {
                        *result = std::mem::take(result).or(default);
                    }
                }
            }
            RoleAct::SetsAttribute => {
                if let (Some((object, place)), Some((key, _))) = (first, second) {
                    let value = given.args.get(2).cloned().unwrap_or_default();
                    // A name of its own among those of the whole program hides nothing.
                    let is_new = key.as_known().is_some_and(|key| self.book.about(key).is_none());
                    let changes = |name: &Rc<str>| {
                        self.book.is_tampered(name)
                            || self.book.is_guarded(name) && !(is_new && self.book.is_globals(name))
                    };
                    if object.names.iter().any(changes) {
                        self.trick(Trick::Redefines, place.span);
                    }
                    if let Some(key) = key.as_known() {
                        self.scopes.set_attribute(key, &value);
                        for name in &object.names {
                            self.replace(&format!("{name}.{key}"), &value);
                        }
                    }
                }
            }
            RoleAct::Environment => {
                for (span, name) in names(first, given) {
                    if name.as_known().is_some_and(|name| matches!(name, "HOME" | "USERPROFILE")) {
                        result.texts.push(Text::hole(Hole::Variable("HOME".to_owned())));
                    }
                    if let Some(live) = name.as_known().filter(|name| super::hosts::says_live(name)) {
                        result.texts.push(Text::hole(Hole::Variable(live.to_owned())));
                    }
                    if name.as_known().is_none_or(is_secret_name) {
                        result.flows.add(&Flow::Environment);
                    }
                    self.tell(span, Fact::ReadsEnvironment { name: Some(name) });
                }
                if let Some(default) = given.args.get(1) {
                    *result = std::mem::take(result).or(default);
                }
            }
            RoleAct::WholeEnvironment => {
                result.flows.add(&Flow::Environment);
                self.tell(given.span, Fact::ReadsEnvironment { name: None });
            }
            RoleAct::SetsEnvironment => {
                let value =
                    second.map_or_else(|| Text::hole(Hole::Value), |(value, _)| value.readings().swap_remove(0));
                for (span, name) in names(first, given) {
                    self.tell(span, Fact::SetsEnvironment { name, value: value.clone() });
                }
            }
            RoleAct::Privilege(privilege) => self.tell(given.span, Fact::Privilege { privilege }),
            RoleAct::System(act) => {
                let listed = |flow: &Flow| matches!(flow, Flow::File { path } if path.starts_with("/proc"));
                let about = match &first {
                    // Each process that there is, or each number in turn.
                    Some((about, _)) if about.flows.iter().any(listed) || counts(about) => Text::known("-1"),
                    Some((about, _)) => about.readings().swap_remove(0),
                    None => Text::default(),
                };
                self.tell(given.span, Fact::System { act, about });
            }
            RoleAct::Trick(trick) => self.trick(trick, given.span),
            RoleAct::Forks => {
                if self.loops > 0 {
                    self.tell(
                        given.span,
                        Fact::System { act: SystemAct::Exhaustion, about: Text::known("processes in a loop") },
                    );
                }
            }
            RoleAct::Gives(source) => match source {
                Source::Receiver => {
                    given.receiver.iter().for_each(|receiver| result.flows.add_all(&receiver.flows));
                }
                Source::Arguments => {
                    given.args.iter().for_each(|arg| result.flows.add_all(&arg.flows));
                    given.named.iter().for_each(|(_, arg, _)| result.flows.add_all(&arg.flows));
                }
                Source::Decoded => {
                    given.args.iter().for_each(|arg| result.flows.add_all(&arg.flows));
                    given.receiver.iter().for_each(|receiver| result.flows.add_all(&receiver.flows));
                    if result.texts.is_empty() {
                        result.flows.add(&Flow::Decoded);
                    }
                }
                source => {
                    if let Some(flow) = source.flow() {
                        result.flows.add(&flow);
                    }
                }
            },
            RoleAct::Is(name) => self.add_thing(result, name),
            RoleAct::Text(text) => result.texts.push(Text::known(text)),
            RoleAct::Path => {
                let mut parts: Vec<Held> = Vec::new();
                for slot in &role.args {
                    match slot {
                        Slot::From(at) => parts.extend(given.args.iter().skip(*at).cloned()),
                        slot => parts.extend(given.slot(slot).map(|(held, _)| held)),
                    }
                }
                if !parts.is_empty() {
                    *result = std::mem::take(result).or(&fold::path(&parts));
                }
            }
            RoleAct::Passes => {
                if let Some((held, _)) = first {
                    *result = std::mem::take(result).or(&held);
                }
            }
            RoleAct::Requests => {
                let method = given.slot(&Slot::Named("method"));
                let sends = method.is_some_and(|(method, _)| {
                    method.as_known().is_none_or(|method| !matches!(method, "GET" | "HEAD" | "get" | "head"))
                });
                self.contacts(first, given, if sends { Contact::Send } else { Contact::Fetch });
            }
            RoleAct::Socket => {
                // `connect(port, host)` and `connect({host, port})`.
                let place = match (first, second) {
                    (Some((port, at)), Some((host, _)))
                        if (port.number.is_some() || port.many) && host.functions.is_empty() =>
                    {
                        Some((Rc::new(Value::list(vec![host, port])), at))
                    }
                    (first, _) => first,
                };
                self.contacts(place, given, Contact::Connect);
            }
            RoleAct::Worker => {
                let code = given.slot(&Slot::Named("eval")).is_some_and(|(eval, _)| eval.truth == Some(true));
                let data = first
                    .as_ref()
                    .is_some_and(|(held, _)| held.texts.iter().any(|text| text.known_start().starts_with("data:")));
                if let Some((data, _)) = given.slot(&Slot::Named("workerData")) {
                    self.scopes.set_attribute(super::libraries::WORKER_DATA, &data);
                }
                match first {
                    first if code => {
                        self.evaluates(first);
                    }
                    Some((module, place)) if data => {
                        self.imports(&module, place);
                    }
                    _ => {}
                }
            }
            RoleAct::Applied => {
                if let (Some((function, _)), Some((list, place))) = (first, second) {
                    if function.has("Function") || function.has("eval") {
                        // Nobody who has nothing to hide runs text by way of something that calls functions.
                        self.trick(Trick::InnerParts, given.span);
                    }
                    let args = list.items.as_ref().map(|items| (**items).clone()).unwrap_or_default();
                    let places = args.iter().map(|_| Place { literal: None, ..place }).collect();
                    let gives =
                        self.called(&function, None, &Given { args, places, span: given.span, ..Given::default() });
                    *result = std::mem::take(result).or(&gives);
                }
            }
            RoleAct::Applies => {
                if let Some((function, _)) = first {
                    let rest = Given {
                        args: given.args.iter().skip(1).cloned().collect(),
                        places: given.places.iter().skip(1).copied().collect(),
                        receiver: None,
                        ..given.clone()
                    };
                    let gives = self.called(&function, None, &rest);
                    *result = std::mem::take(result).or(&gives).or(&function);
                }
            }
        }
    }
}

impl Given {
    /// The argument for a slot.
    pub(super) fn slot(&self, slot: &Slot) -> Option<(Held, Place)> {
        match slot {
            Slot::Receiver => {
                let taken = || self.named.iter().find(|(name, _, _)| name == super::libraries::ITSELF);
                let itself = self.receiver.clone().or_else(|| taken().map(|(_, held, _)| Rc::clone(held)));
                itself.map(|held| (held, Place { span: self.span, literal: None }))
            }
            Slot::At(at, name) => self
                .args
                .get(*at)
                .map(|held| (Rc::clone(held), self.places.get(*at).copied().unwrap_or_default()))
                .or_else(|| name.and_then(|name| self.slot(&Slot::Named(name)))),
            Slot::Last => self.slot(&Slot::At(self.args.len().checked_sub(1)?, None)),
            Slot::From(at) => self.slot(&Slot::At(*at, None)),
            Slot::Named(name) => self
                .named
                .iter()
                .find(|(known, _, _)| known == name)
                .map(|(_, held, place)| (Rc::clone(held), *place))
                .or_else(|| {
                    self.args.iter().zip(&self.places).find_map(|(arg, place)| Some((arg.field(name)?, *place)))
                }),
        }
    }
}
