//! The book of programs: what a program does with its words, where a line of data can say it.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::analysis::{Contact, Privilege, SystemAct};

/// What a value or an operand is to its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Nothing,
    Read,
    Write,
    Remove,
    Tree,
    Url,
    Host,
    Shell,
    Command,
    Environment,
}

/// What a program writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Out {
    Nothing,
    /// What its operands hold, or its input if there are none.
    Files,
    Input,
    Network,
    Environment,
    Decoded,
    Unknown,
}

/// An entry of the book.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Options that take a value.
    pub(super) options: Vec<(&'static str, Role)>,
    pub(super) operands: Vec<Role>,
    /// The last role goes on.
    pub(super) goes_on: bool,
    pub(super) last: Option<Role>,
    pub(super) does: Option<SystemAct>,
    pub(super) privilege: Option<Privilege>,
    pub(super) net: Option<(Contact, Option<&'static str>)>,
    pub(super) out: Out,
    pub(super) long_words: bool,
}

/// The book: an index that is made once, and lines that are read when somebody asks for them. A run mostly asks for one.
pub(super) struct Book {
    lines: Vec<Line>,
    /// The line of a program. Nothing, where only subcommands have lines.
    programs: HashMap<&'static str, Option<usize>>,
    subcommands: HashMap<&'static str, Vec<(&'static str, usize)>>,
    plain: Entry,
}

struct Line {
    words: &'static str,
    /// Nothing for a line that is not understood.
    entry: OnceLock<Option<Entry>>,
}

impl Line {
    fn entry(&self) -> Option<&Entry> {
        self.entry.get_or_init(|| entry(self.words)).as_ref()
    }
}

static BOOK: OnceLock<Book> = OnceLock::new();

/// The book.
pub(super) fn book() -> &'static Book {
    BOOK.get_or_init(|| index(include_str!("../../data/programs.txt")))
}

impl Book {
    pub(super) fn program(&self, name: &str) -> Option<&Entry> {
        match self.programs.get(name)? {
            Some(line) => self.lines.get(*line)?.entry(),
            None => Some(&self.plain),
        }
    }

    pub(super) fn subcommand(&self, name: &str, subcommand: &str) -> Option<&Entry> {
        let lines = self.subcommands.get(name)?;
        let (_, line) = lines.iter().rfind(|(known, _)| *known == subcommand)?;
        self.lines.get(*line)?.entry()
    }
}

/// Finds out which line is whose. Of two lines for one name, the later counts.
fn index(text: &'static str) -> Book {
    let (programs, subcommands) = (HashMap::with_capacity(512), HashMap::new());
    let mut book = Book { lines: Vec::new(), programs, subcommands, plain: plain() };
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let (left, words) = line.split_once('|').unwrap_or((line, "not understood"));
        let number = book.lines.len();
        book.lines.push(Line { words, entry: OnceLock::new() });
        let mut left = left.split_whitespace();
        let names = left.next().unwrap_or_default().split(',');
        match left.next() {
            None => names.for_each(|name| {
                book.programs.insert(name, Some(number));
            }),
            Some(subcommands) => {
                for name in names {
                    let known = book.subcommands.entry(name).or_default();
                    known.extend(subcommands.split(',').map(|subcommand| (subcommand, number)));
                    book.programs.entry(name).or_insert(None);
                }
            }
        }
    }
    book
}

/// A program of which nothing more is said.
fn plain() -> Entry {
    Entry {
        options: Vec::new(),
        operands: vec![Role::Nothing],
        goes_on: true,
        last: None,
        does: None,
        privilege: None,
        net: None,
        out: Out::Unknown,
        long_words: false,
    }
}

fn entry(words: &'static str) -> Option<Entry> {
    let mut entry = Entry { operands: Vec::new(), goes_on: false, out: Out::Nothing, ..plain() };
    for word in words.split_whitespace() {
        if word == "subcommands" {
            entry.operands = vec![Role::Nothing];
            entry.goes_on = true;
        } else if word.starts_with('-') {
            match word.split_once('=') {
                Some((option, name)) => entry.options.push((option, role(name)?)),
                None => entry.options.push((word, Role::Nothing)),
            }
        } else {
            let (key, value) = word.split_once(':')?;
            match key {
                "values" => entry.options.extend(value.split(',').map(|option| (option, Role::Nothing))),
                "operands" => {
                    entry.operands.clear();
                    for name in value.split(',') {
                        entry.goes_on = name.ends_with('*');
                        entry.operands.push(role(name.trim_end_matches('*'))?);
                    }
                }
                "last" => entry.last = Some(role(value)?),
                "does" => entry.does = Some(act(value)?),
                "privilege" => entry.privilege = Some(privilege(value)?),
                "net" => {
                    let (way, host) = value.split_once('@').map_or((value, None), |(way, host)| (way, Some(host)));
                    entry.net = Some((contact(way)?, host));
                }
                "out" => entry.out = out(value)?,
                "style" if value == "words" => entry.long_words = true,
                _ => return None,
            }
        }
    }
    Some(entry)
}

fn role(name: &str) -> Option<Role> {
    Some(match name {
        "_" => Role::Nothing,
        "read" => Role::Read,
        "write" => Role::Write,
        "remove" => Role::Remove,
        "tree" => Role::Tree,
        "url" => Role::Url,
        "host" => Role::Host,
        "shell" => Role::Shell,
        "command" => Role::Command,
        "environment" => Role::Environment,
        _ => return None,
    })
}

fn out(name: &str) -> Option<Out> {
    Some(match name {
        "none" => Out::Nothing,
        "files" => Out::Files,
        "input" => Out::Input,
        "network" => Out::Network,
        "environment" => Out::Environment,
        "decoded" => Out::Decoded,
        "unknown" => Out::Unknown,
        _ => return None,
    })
}

fn act(name: &str) -> Option<SystemAct> {
    Some(match name {
        "power" => SystemAct::Power,
        "disk" => SystemAct::Disk,
        "users" => SystemAct::Users,
        "firewall" => SystemAct::Firewall,
        "services" => SystemAct::Services,
        "schedule" => SystemAct::Schedule,
        "packages" => SystemAct::Packages,
        "traces" => SystemAct::Traces,
        "kill" => SystemAct::Kill,
        "exhaustion" => SystemAct::Exhaustion,
        "trust" => SystemAct::Trust,
        _ => return None,
    })
}

fn privilege(name: &str) -> Option<Privilege> {
    Some(match name {
        "other-user" => Privilege::OtherUser,
        "set-user-id" => Privilege::SetUserId,
        "capabilities" => Privilege::Capabilities,
        "namespaces" => Privilege::Namespaces,
        "kernel" => Privilege::Kernel,
        "other-process" => Privilege::OtherProcess,
        "container-engine" => Privilege::ContainerEngine,
        "defences" => Privilege::Defences,
        _ => return None,
    })
}

fn contact(name: &str) -> Option<Contact> {
    Some(match name {
        "fetch" => Contact::Fetch,
        "send" => Contact::Send,
        "shell" => Contact::Shell,
        "connect" => Contact::Connect,
        "listen" => Contact::Listen,
        "probe" => Contact::Probe,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_book_is_understood() {
        let book = book();
        let wrong: Vec<&str> = book.lines.iter().filter(|line| line.entry().is_none()).map(|line| line.words).collect();
        assert_eq!(wrong, Vec::<&str>::new());
        assert!(book.programs.len() > 350, "{}", book.programs.len());
    }
}
