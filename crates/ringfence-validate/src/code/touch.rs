//! What a call does to files and other machines.

use std::rc::Rc;

use super::call::{Given, Place};
use super::few::Few;
use super::flows::Flows;
use super::own::add_directory;
use super::run::within;
use super::scope::Sure;
use super::value::{Held, Value};
use super::walk::{Walk, matters};
use crate::analysis::{Change, Contact, Fact, Flow, Removal};
use crate::path::{PathClass, classify};
use crate::span::Span;
use crate::text::{Hole, Piece, Text};

/// Arguments of a request that carry no data of the program's own.
const NOT_DATA: &[&str] = &[
    "headers",
    "auth",
    "cookies",
    "timeout",
    "verify",
    "cert",
    "proxies",
    "env",
    "encoding",
    "method",
    "signal",
    "agent",
    "allow_redirects",
];

impl Walk<'_, '_> {
    /// Each path that an argument may mean, or each item of it, from where the program may be, with its place.
    pub(super) fn each(&mut self, argument: Option<(Held, Place)>, given: &Given) -> Vec<(Span, Text)> {
        let Some((held, place)) = argument else { return vec![(given.span, Text::hole(Hole::Value))] };
        let readings: Vec<Text> = match &held.items {
            Some(items) if held.texts.is_empty() => items.iter().take(32).flat_map(|item| item.readings()).collect(),
            _ => held.readings(),
        };
        let mut all = Vec::with_capacity(readings.len());
        for directory in &self.directories {
            all.extend(readings.iter().map(|path| (place.span, within(directory.as_ref(), path))));
        }
        all
    }

    /// From now on relative paths start there. Where that is not known, it is taken to be a folder of the program's own.
    pub(super) fn moves_to(&mut self, argument: Option<&(Held, Place)>) {
        let Some((held, _)) = argument else { return };
        let mut after = if self.sure() == Sure::Always { Few::default() } else { self.directories.clone() };
        for directory in &self.directories {
            for path in held.readings() {
                let there = (!path.known_start().is_empty()).then(|| within(directory.as_ref(), &path));
                add_directory(&mut after, there.as_ref().or(directory.as_ref()));
            }
        }
        self.directories = after;
    }

    pub(super) fn removes(&mut self, argument: Option<(Held, Place)>, given: &Given, removal: Removal) {
        for (span, path) in self.each(argument, given) {
            // Whatever is found, in whatever folder below a home: that is a tree.
            let sweeps = removal == Removal::One && path.has_pattern() && path.to_string().contains("**");
            let is_home = |class: &PathClass| matches!(class, PathClass::Home | PathClass::WholeHome | PathClass::Root);
            let whole = path.known_start() == "/" && path.to_string().starts_with("/**");
            let sweeps = sweeps && (whole || classify(&path, self.reading.surroundings).iter().any(is_home));
            let removal = if sweeps { Removal::Tree } else { removal };
            for path in self.reading.scope.through_links(&path) {
                self.tell(span, Fact::Removes { path, removal });
            }
            self.tell(span, Fact::Removes { path, removal });
        }
    }

    pub(super) fn changes(&mut self, argument: Option<(Held, Place)>, given: &Given, change: &Change) {
        for (span, path) in self.each(argument, given) {
            self.tell(span, Fact::Changes { path, change: change.clone() });
        }
    }

    pub(super) fn opens(
        &mut self,
        argument: Option<(Held, Place)>,
        mode: Option<Held>,
        given: &Given,
        result: &mut Value,
    ) {
        // `O_WRONLY | O_CREAT`, by name or by number.
        let flags = mode.as_ref().is_some_and(|mode| {
            let named = ["WRONLY", "RDWR", "CREAT", "TRUNC", "APPEND"];
            mode.names.iter().any(|name| named.iter().any(|flag| name.ends_with(&format!("O_{flag}"))))
                || mode.number.is_some_and(|number| number & 3 != 0)
        });
        let mode = mode.map_or_else(
            || "r".to_owned(),
            |mode| mode.texts.first().map_or_else(|| "r".to_owned(), ToString::to_string),
        );
        let writes = flags || mode.contains(['w', 'a', 'x', '+']);
        if let Some((held, _)) = &argument {
            result.texts = held.readings().into();
        }
        for (span, path) in self.each(argument, given) {
            if writes {
                self.overwrites(&path, span);
                self.leaves_scripts(&path, span);
                self.tell(span, Fact::Writes { path: path.clone() });
            }
            if !writes || (mode.contains('r') && !flags) {
                self.opens_a_home(&path, span);
                let written = self.files.get(&path.to_string()).map(|held| held.flows.clone()).unwrap_or_default();
                result.flows.add_all(&written);
                result.flows.add(&Flow::File { path: path.to_string() });
                self.tell(span, Fact::Reads { path });
            }
        }
    }

    /// Who opens whatever lies in a home, or in the whole machine, opens the keys there, too.
    pub(super) fn opens_a_home(&mut self, path: &Text, span: Span) {
        if path.has_pattern() {
            let classes = classify(path, self.reading.surroundings);
            if classes.contains(&PathClass::WholeHome) || classes.contains(&PathClass::Root) {
                let mut keys = path.clone();
                keys.push(Piece::Known("/.ssh/".to_owned()));
                keys.push(Piece::Pattern("id_*".to_owned()));
                self.tell(span, Fact::Reads { path: keys });
            }
        }
    }

    /// Whatever is found in a home is written over: nobody gets it back.
    pub(super) fn overwrites(&mut self, path: &Text, span: Span) {
        if !path.has_pattern() {
            return;
        }
        let classes = classify(path, self.reading.surroundings);
        let has = |class: PathClass| classes.contains(&class);
        let own = has(PathClass::Workspace) || has(PathClass::Temporary);
        if has(PathClass::WholeHome) || has(PathClass::Root) || (has(PathClass::Home) && !own) {
            self.tell(span, Fact::Removes { path: path.clone(), removal: Removal::Shred });
        }
    }

    /// The name of a secret is handed to somebody of whom nothing is known: that may read it.
    pub(super) fn secret_arguments(&mut self, given: &Given) {
        let named = given.named.iter().map(|(_, held, place)| (held, *place));
        for (held, place) in given.args.iter().zip(given.places.iter().copied()).chain(named) {
            // Options may name it, too.
            let options =
                held.fields.iter().flat_map(|fields| fields.iter().take(32)).flat_map(|(_, field)| field.texts.iter());
            for path in held.texts.iter().chain(options).filter(|text| is_outside(text)) {
                let classes = classify(path, self.reading.surroundings);
                let engine = classes.contains(&PathClass::EngineSocket);
                if (classes.contains(&PathClass::Secret) || engine) && !classes.contains(&PathClass::Workspace) {
                    self.tell(place.span, Fact::Reads { path: path.clone() });
                }
            }
        }
    }

    /// What is written to a file is what is later read from it, or run.
    pub(super) fn remember(&mut self, path: Option<&(Held, Place)>, given: &Given, result: &Value, text: Option<Held>) {
        let mut contents = Value::default();
        let mut take = |flows: &Flows| {
            let comes = |flow: &&Flow| matches!(flow, Flow::Network | Flow::Decoded);
            flows.iter().filter(comes).for_each(|flow| contents.flows.add(flow));
        };
        take(&result.flows);
        // An archive gives what it is made of.
        for arg in given.args.iter().chain(given.named.iter().map(|(_, arg, _)| arg)).chain(&given.receiver) {
            take(&arg.flows);
        }
        text.iter().for_each(|text| take(&text.flows));
        if (contents.flows.is_empty() && text.is_none()) || self.files.len() > 256 {
            return;
        }
        for path in path.iter().flat_map(|(held, _)| held.texts.iter()) {
            let before = self.files.remove(&path.to_string()).unwrap_or_default();
            // What stands in the text is kept in the order in which it is written.
            let mut texts: Vec<Held> = before.items.as_ref().map(|texts| (**texts).clone()).unwrap_or_default();
            let is_new = |text: &&Held| {
                text.as_known().is_some() && texts.iter().all(|known| known.as_known() != text.as_known())
            };
            let new = text.as_ref().filter(is_new).cloned();
            let mut now = Value::default();
            if texts.len() < super::left::MOST_KEPT {
                texts.extend(new);
            } else if new.is_some() {
                now.flows.add_all(&super::left::unread().flows);
            }
            now.flows.add_all(&before.flows);
            now.flows.add_all(&contents.flows);
            now.items = (!texts.is_empty()).then(|| Rc::new(texts));
            self.files.insert(path.to_string(), Rc::new(now));
        }
    }

    /// The folders that a server of files shows to whoever asks.
    fn served(&self, given: &Given) -> Vec<Flow> {
        let is_server = |arg: &&Held| arg.has("http.server.SimpleHTTPRequestHandler");
        let Some(handler) = given.all().find(is_server) else { return Vec::new() };
        let told = handler.bound.iter().flat_map(|bound| &bound.named).find(|(name, _)| name == "directory");
        let folders: Vec<Text> = match told {
            Some((_, folder)) => folder.readings(),
            None => self.directories.iter().flatten().cloned().collect(),
        };
        folders.into_iter().map(|folder| Flow::File { path: folder.to_string() }).collect()
    }

    pub(super) fn contacts(&mut self, argument: Option<(Held, Place)>, given: &Given, contact: Contact) {
        let mut sends = Value::default();
        for arg in &given.args {
            match &arg.fields {
                // An object of options: only some of it is data. What no field brings is its own: an environment that was copied.
                Some(fields) => {
                    let mut brought = Flows::default();
                    for (name, field) in fields.iter() {
                        brought.add_all(&field.flows);
                        // What a request carries may have any name; only options are called so.
                        let carried = contact == Contact::Send && &**name == "env";
                        if carried || !NOT_DATA.contains(&&**name) {
                            sends.flows.add_all(&field.flows);
                        }
                    }
                    let own = arg.flows.iter().filter(|flow| !brought.iter().any(|known| known == *flow));
                    own.for_each(|flow| sends.flows.add(flow));
                }
                None => sends.flows.add_all(&arg.flows),
            }
        }
        given
            .named
            .iter()
            .filter(|(name, _, _)| !NOT_DATA.contains(&name.as_str()))
            .for_each(|(_, arg, _)| sends.flows.add_all(&arg.flows));
        if contact == Contact::Send || contact == Contact::Fetch {
            let archives: Vec<Held> = given.all().filter_map(|arg| self.archive_within(arg)).collect();
            archives.iter().for_each(|archive| sends.flows.add_all(&archive.flows));
        }
        let mut sends: Vec<Flow> = sends.flows.iter().filter(|flow| matters(flow)).cloned().collect();
        if contact == Contact::Send {
            sends = self.with_sources(sends);
        }
        if contact == Contact::Listen {
            sends.extend(self.served(given));
        }
        let place = match argument {
            Some((held, place)) => places_of(&held).into_iter().map(|text| (place.span, text)).collect(),
            None => vec![(given.span, Text::hole(Hole::Value))],
        };
        let base = given.receiver.as_ref().filter(|client| client.names.iter().any(is_client));
        for (span, place) in place {
            let place = match base.and_then(|client| client.texts.first()) {
                Some(base) if !place.to_string().contains("://") => {
                    let mut whole = base.clone();
                    if !whole.known_end().ends_with('/') && !place.known_start().starts_with('/') {
                        whole.push(Piece::Known("/".to_owned()));
                    }
                    whole.append(place);
                    whole
                }
                _ => place,
            };
            self.tell(span, Fact::Contacts { place, contact, sends: sends.clone() });
        }
    }
}

/// Each way that an argument reads, with its place.
pub(super) fn names(argument: Option<(Held, Place)>, given: &Given) -> Vec<(Span, Text)> {
    match argument {
        Some((held, place)) => held.readings().into_iter().map(|text| (place.span, text)).collect(),
        None => vec![(given.span, Text::hole(Hole::Value))],
    }
}

/// The places that a value may mean: a text, `(host, port)`, or an object with a host.
fn places_of(held: &Value) -> Vec<Text> {
    let (host, port) = match (&held.items, &held.fields) {
        (Some(items), _) => (items.first().cloned(), items.get(1).cloned()),
        (None, Some(_)) => {
            let host =
                ["socketPath", "hostname", "host", "url", "path", "baseURL"].iter().find_map(|name| held.field(name));
            (host, held.field("port"))
        }
        (None, None) => return swept(held.readings()),
    };
    let mut readings = host.map_or_else(|| vec![Text::hole(Hole::Value)], |host| swept(host.readings()));
    // One port after the other, and not one of a few.
    let each = port.as_ref().is_some_and(|port| port.many && port.texts.contains(&Text::hole(Hole::Value)));
    if each {
        readings.iter_mut().for_each(|reading| reading.push(Piece::Known(":(each)".to_owned())));
    } else if let Some(port) = port.and_then(|port| port.readings().into_iter().next()) {
        for reading in &mut readings {
            reading.push(Piece::Known(":".to_owned()));
            reading.append(port.clone());
        }
    }
    readings
}

/// Addresses of one network, more than are told apart: any of it.
fn swept(mut readings: Vec<Text>) -> Vec<Text> {
    let network = |text: &Text| {
        let (network, _) = text.as_known()?.split(':').next()?.rsplit_once('.')?;
        let is_one =
            network.split('.').count() >= 2 && network.bytes().all(|sign| sign.is_ascii_digit() || sign == b'.');
        is_one.then(|| format!("{network}."))
    };
    if let [before @ .., last] = readings.as_slice()
        && *last == Text::hole(Hole::Value)
        && before.len() > 4
        && let Some(first) = before.first().and_then(network)
        && before.iter().all(|text| network(text).as_ref() == Some(&first))
    {
        let mut any = Text::known(first);
        any.push(Piece::Hole(Hole::Value));
        readings.push(any);
    }
    readings
}

/// Something that asks one server again and again.
fn is_client(name: &Rc<str>) -> bool {
    ["axios.create()", "extend()", "ky.create()", "httpx.Client()", "httpx.AsyncClient()", "aiohttp.ClientSession()"]
        .iter()
        .any(|client| name.ends_with(client))
}

/// Whether a text is a path that begins at the root or in the home.
fn is_outside(text: &Text) -> bool {
    let home = matches!(text.pieces().first(), Some(Piece::Hole(Hole::Variable(name))) if name == "HOME");
    let long = text.known_start().len() < 4096 && text.pieces().len() < 8;
    long && (home || text.known_start().starts_with(['/', '~'])) && !text.known_start().contains([' ', '\n'])
}

/// A mode as people write it.
pub(super) fn octal(mode: &Value) -> Text {
    match mode.number {
        Some(number) => Text::known(format!("{number:o}")),
        None => mode.readings().swap_remove(0),
    }
}

/// Whether a path leads below the project: written out as far as it says where.
fn is_own(path: &str) -> bool {
    path.starts_with(|first: char| first.is_alphanumeric() || "._-".contains(first))
        && !path.contains(['$', ':', '~', '`'])
        && !path.split('/').any(|part| part == "..")
}

/// Whether all of it comes out of files of the project.
pub(super) fn is_own_file(held: &Value) -> bool {
    let mut flows = held.flows.iter().peekable();
    flows.peek().is_some() && flows.all(|flow| matches!(flow, Flow::File { path } if is_own(path)))
}

/// Whether it is the path of a file of the project.
pub(super) fn is_own_path(held: &Value) -> bool {
    !held.texts.is_empty() && held.texts.iter().all(|text| !text.has_hole() && is_own(&text.to_string()))
}
