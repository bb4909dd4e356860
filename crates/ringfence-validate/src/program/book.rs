//! The book of programs: what a program does with its words, where a line of data can say it.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

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

/// The book: lines that are looked through, and read when somebody asks for them. A run mostly asks for one. Who asks often gets an
/// index, which takes longer to make than a few lines are looked for.
pub(super) struct Book {
    lines: Vec<Line>,
    asked: AtomicUsize,
    index: OnceLock<Index>,
    plain: Entry,
}

/// Room for every line.
const MOST_LINES: usize = 160;
/// So many questions are answered without an index.
const FEW: usize = 8;

/// Which line is whose. Of two lines for one name, the later counts.
#[derive(Default)]
struct Index {
    /// The line of a program. Nothing, where only subcommands have lines.
    programs: HashMap<&'static str, Option<usize>>,
    subcommands: HashMap<&'static str, Vec<(&'static str, usize)>>,
}

struct Line {
    /// Separated by commas.
    names: &'static str,
    subcommands: Option<&'static str>,
    words: &'static str,
    /// Nothing for a line that is not understood.
    entry: OnceLock<Option<Entry>>,
}

impl Line {
    fn new(line: &'static str) -> Self {
        let (left, words) = line.split_once('|').unwrap_or((line, "not understood"));
        let left = left.trim_ascii_end();
        let (names, subcommands) = match left.split_once(' ') {
            Some((names, subcommands)) => (names, Some(subcommands.trim_ascii_start())),
            None => (left, None),
        };
        Self { names, subcommands, words, entry: OnceLock::new() }
    }

    fn entry(&self) -> Option<&Entry> {
        self.entry.get_or_init(|| entry(self.words)).as_ref()
    }

    fn is_for(&self, name: &str) -> bool {
        self.names.split(',').any(|known| known == name)
    }

    fn has_subcommand(&self, subcommand: &str) -> bool {
        self.subcommands.is_some_and(|known| known.split(',').any(|known| known == subcommand))
    }
}

static BOOK: OnceLock<Book> = OnceLock::new();

/// The book.
pub(super) fn book() -> &'static Book {
    BOOK.get_or_init(|| Book::new(include_str!("../../data/programs.txt")))
}

impl Book {
    fn new(text: &'static str) -> Self {
        let mut lines = Vec::with_capacity(MOST_LINES);
        lines.extend(text.split('\n').filter(|line| !line.is_empty() && !line.starts_with('#')).map(Line::new));
        Self { lines, asked: AtomicUsize::new(0), index: OnceLock::new(), plain: plain() }
    }

    pub(super) fn program(&self, name: &str) -> Option<&Entry> {
        match self.index() {
            Some(index) => self.program_by(index, name),
            None => self.look_for_program(name),
        }
    }

    pub(super) fn subcommand(&self, name: &str, subcommand: &str) -> Option<&Entry> {
        match self.index() {
            Some(index) => self.subcommand_by(index, name, subcommand),
            None => self.look_for_subcommand(name, subcommand),
        }
    }

    /// The index, once it is worth its making.
    fn index(&self) -> Option<&Index> {
        let is_worth_it = self.asked.fetch_add(1, Ordering::Relaxed) >= FEW;
        is_worth_it.then(|| self.index.get_or_init(|| index(&self.lines)))
    }

    fn program_by(&self, index: &Index, name: &str) -> Option<&Entry> {
        match index.programs.get(name)? {
            Some(line) => self.lines.get(*line)?.entry(),
            None => Some(&self.plain),
        }
    }

    fn subcommand_by(&self, index: &Index, name: &str, subcommand: &str) -> Option<&Entry> {
        let lines = index.subcommands.get(name)?;
        let (_, line) = lines.iter().rfind(|(known, _)| *known == subcommand)?;
        self.lines.get(*line)?.entry()
    }

    fn look_for_program(&self, name: &str) -> Option<&Entry> {
        let mut lines = self.lines.iter().rev().filter(|line| line.is_for(name)).peekable();
        lines.peek()?;
        match lines.find(|line| line.subcommands.is_none()) {
            Some(line) => line.entry(),
            None => Some(&self.plain),
        }
    }

    fn look_for_subcommand(&self, name: &str, subcommand: &str) -> Option<&Entry> {
        self.lines.iter().rfind(|line| line.has_subcommand(subcommand) && line.is_for(name))?.entry()
    }
}

fn index(lines: &[Line]) -> Index {
    let mut index = Index::default();
    for (number, line) in lines.iter().enumerate() {
        let names = line.names.split(',');
        match line.subcommands {
            None => names.for_each(|name| {
                index.programs.insert(name, Some(number));
            }),
            Some(subcommands) => {
                for name in names {
                    let known = index.subcommands.entry(name).or_default();
                    known.extend(subcommands.split(',').map(|subcommand| (subcommand, number)));
                    index.programs.entry(name).or_insert(None);
                }
            }
        }
    }
    index
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
        let index = index(&book.lines);
        assert!(index.programs.len() > 350, "{}", index.programs.len());
    }

    #[test]
    fn what_is_looked_for_is_what_the_index_has() {
        let book = book();
        let index = index(&book.lines);
        let same = |one: Option<&Entry>, other: Option<&Entry>| match (one, other) {
            (Some(one), Some(other)) => std::ptr::eq(one, other),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        for name in index.programs.keys().copied().chain(["", "no-such-program"]) {
            assert!(same(book.program_by(&index, name), book.look_for_program(name)), "{name}");
            let known = index.subcommands.get(name).into_iter().flatten().map(|(known, _)| *known);
            for subcommand in known.chain(["", "no-such-subcommand"]) {
                let by_index = book.subcommand_by(&index, name, subcommand);
                assert!(same(by_index, book.look_for_subcommand(name, subcommand)), "{name} {subcommand}");
            }
        }
    }
}
