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

/// The book, read once.
pub(super) struct Book {
    programs: HashMap<&'static str, Entry>,
    subcommands: HashMap<&'static str, HashMap<&'static str, Entry>>,
}

static BOOK: OnceLock<Book> = OnceLock::new();

/// The book.
pub(super) fn book() -> &'static Book {
    BOOK.get_or_init(|| read(include_str!("../../data/programs.txt")).0)
}

impl Book {
    pub(super) fn program(&self, name: &str) -> Option<&Entry> {
        self.programs.get(name)
    }

    pub(super) fn subcommand(&self, name: &str, subcommand: &str) -> Option<&Entry> {
        self.subcommands.get(name)?.get(subcommand)
    }
}

/// Reads the text of the book; the lines that are not understood come back, for the test.
fn read(text: &'static str) -> (Book, Vec<&'static str>) {
    let mut book = Book { programs: HashMap::new(), subcommands: HashMap::new() };
    let mut wrong = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let Some((left, right)) = line.split_once('|') else {
            wrong.push(line);
            continue;
        };
        let Some(entry) = entry(right) else {
            wrong.push(line);
            continue;
        };
        let mut left = left.split_whitespace();
        let names: Vec<&'static str> = left.next().unwrap_or_default().split(',').collect();
        match left.next() {
            None => names.iter().for_each(|name| {
                book.programs.insert(name, entry.clone());
            }),
            Some(subcommands) => {
                for name in names {
                    for subcommand in subcommands.split(',') {
                        book.subcommands.entry(name).or_default().insert(subcommand, entry.clone());
                    }
                    book.programs.entry(name).or_insert_with(plain);
                }
            }
        }
    }
    (book, wrong)
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
        let (book, wrong) = read(include_str!("../../data/programs.txt"));
        assert_eq!(wrong, Vec::<&str>::new());
        assert!(book.programs.len() > 350, "{}", book.programs.len());
    }
}
