//! What commands leave behind outside of the shell, and later ones find there.

use std::collections::BTreeMap;

use super::Scope;
use crate::analysis::{Flow, Unknown};
use crate::text::{Piece, Text};

/// Folders that are remembered, at most, and second names.
const MOST: usize = 64;
const MOST_LINKS: usize = 1024;

/// What is left behind.
#[derive(Debug, Clone, Default)]
pub(crate) struct Notes {
    /// Remotes of a repository that the text made.
    pub(crate) remotes: BTreeMap<String, Text>,
    /// Secrets that the next commit and push of a repository take along.
    pub(crate) staged: Vec<Flow>,
    unpacked: Vec<Unpacked>,
    /// Second names that the text gave to folders, from the root, and what they stand for.
    links: Vec<(String, String)>,
    /// Files and folders with made-up names, so far.
    made: usize,
}

/// A folder that something from elsewhere was unpacked into.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unpacked {
    /// From the root.
    pub(crate) folder: String,
    /// What its parts are called like, where others lie beside them.
    pub(crate) stem: Option<String>,
    pub(crate) flows: Vec<Flow>,
}

impl Unpacked {
    /// Whether a path, from the root, may have come out of it.
    fn holds(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.folder.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'));
        let first = rest.and_then(|rest| rest.split('/').next()).filter(|first| !first.is_empty());
        match (first, &self.stem) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(first), Some(stem)) => first.starts_with(stem.as_str()) || stem.starts_with(first),
        }
    }
}

impl Scope {
    /// What a path stands for that leads through a second name which the text gave to a folder.
    pub(crate) fn through_links(&self, path: &Text) -> Vec<Text> {
        if self.notes.links.is_empty() {
            return Vec::new();
        }
        let meant = |path: String| {
            let start = path.trim_end_matches('*');
            let mut text = Text::known(start);
            if start.len() < path.len() {
                text.push(Piece::Pattern("*".to_owned()));
            }
            text
        };
        self.notes.through_links(&self.key(&path.to_string())).into_iter().map(meant).collect()
    }
}

impl Notes {
    /// Remembers that something from elsewhere was unpacked, once. Where there is no room, that has to be told.
    pub(crate) fn note_unpacked(&mut self, unpacked: Unpacked) -> Result<(), Unknown> {
        add(&mut self.unpacked, unpacked, MOST, "folders")
    }

    /// Remembers a second name of something, once. Where there is no room, that has to be told.
    pub(crate) fn note_link(&mut self, name: String, to: String) -> Result<(), Unknown> {
        add(&mut self.links, (name, to), MOST_LINKS, "links")
    }

    /// The paths that one below a second name stands for.
    fn through_links(&self, path: &str) -> Vec<String> {
        let behind = |(name, to): &(String, String)| {
            let rest = path.strip_prefix(name.trim_end_matches('/'))?.strip_prefix('/')?;
            Some(format!("{}/{rest}", to.trim_end_matches('/')))
        };
        self.links.iter().filter_map(behind).collect()
    }

    /// One more name is made up: its number.
    pub(crate) fn make(&mut self) -> usize {
        self.made += 1;
        self.made
    }

    /// What either of two branches left.
    pub(super) fn join(&mut self, other: Self) {
        for (name, url) in other.remotes {
            self.remotes.entry(name).or_insert(url);
        }
        for flow in other.staged {
            if !self.staged.contains(&flow) {
                self.staged.push(flow);
            }
        }
        self.made = self.made.max(other.made);
        join(&mut self.unpacked, other.unpacked);
        join(&mut self.links, other.links);
    }
}

/// Adds what a branch has more: each of it was counted when it was noted.
fn join<T: PartialEq>(all: &mut Vec<T>, other: Vec<T>) {
    let shared = all.iter().zip(&other).take_while(|(one, two)| one == two).count();
    for new in other.into_iter().skip(shared) {
        if !all.get(shared..).unwrap_or_default().contains(&new) {
            all.push(new);
        }
    }
}

/// Adds what is new, while there is room.
fn add<T: PartialEq>(all: &mut Vec<T>, new: T, most: usize, bound: &'static str) -> Result<(), Unknown> {
    if all.contains(&new) {
        return Ok(());
    }
    if all.len() >= most {
        return Err(Unknown::TooMuch { bound });
    }
    all.push(new);
    Ok(())
}

impl Scope {
    /// Where a file comes from that was unpacked with others.
    pub(crate) fn unpacked(&self, path: &str) -> Option<Vec<Flow>> {
        if self.notes.unpacked.is_empty() {
            return None;
        }
        let path = self.key(path);
        self.notes.unpacked.iter().find(|unpacked| unpacked.holds(&path)).map(|unpacked| unpacked.flows.clone())
    }
}
