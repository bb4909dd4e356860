//! Where the shell is, as far as the text shows it.

use std::cell::Cell;
use std::rc::Rc;

use super::Scope;
use crate::text::{Hole, Piece, Text};

/// Directories that are told apart, at most.
const MOST_DIRECTORIES: usize = 8;
/// Parts that are kept of the end of a directory whose start is not known: no file is a secret by more of them.
const MOST_PARTS: usize = 4;

/// Bytes of a path, at most: no system opens a longer one.
const LONGEST: usize = 4096;

/// The working directory, where the text changed it. Who looks at it is noted: a command that does not is the same in each of several.
#[derive(Debug, Clone, Default)]
pub(crate) struct Directory {
    now: Option<Text>,
    /// One for all copies: what a subshell looks at is looked at.
    looked_at: Rc<Cell<bool>>,
}

impl Directory {
    /// Where it is; nothing where that is where the request starts.
    pub(crate) fn get(&self) -> Option<&Text> {
        self.looked_at.set(true);
        self.now.as_ref()
    }

    /// It is there from now on.
    pub(crate) fn set(&mut self, directory: Option<Text>) {
        self.now = directory;
    }
}

/// The directory that a way through a command starts in, out of several.
#[derive(Debug)]
pub(super) struct Start {
    several: Vec<Option<Text>>,
    taken: Option<Text>,
}

/// Whether a way through a command depends on the directory that it starts in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Depends {
    #[default]
    Yes,
    No,
}

impl Scope {
    /// How many directories it may be in, where that is more than one.
    pub(crate) fn directories(&self) -> usize {
        self.several.directories.len()
    }

    /// It is in this one of the directories; nothing where it is not known in which.
    pub(super) fn take_directory(&mut self, index: Option<usize>) -> Start {
        let several = std::mem::take(&mut self.several.directories);
        if let Some(directory) = index.and_then(|index| several.get(index)) {
            self.directory.now.clone_from(directory);
        }
        Start { several, taken: self.directory.now.clone() }
    }

    /// From here on it is noted whether somebody looks at the directory; what was noted before.
    pub(super) fn watch_directory(&self) -> bool {
        self.directory.looked_at.replace(false)
    }

    /// The end of a way. Where nobody looked at the directory and it is still the same, it is one of several again.
    pub(super) fn end_directory(&mut self, start: Option<Start>, noted: bool) -> Depends {
        let looked_at = self.directory.looked_at.get();
        self.directory.looked_at.set(noted || looked_at);
        match start {
            Some(start) if !looked_at && self.several.directories.is_empty() && self.directory.now == start.taken => {
                self.forget_directory();
                self.several.directories = start.several;
                Depends::No
            }
            _ => Depends::Yes,
        }
    }

    /// The directory is not known any more.
    pub(crate) fn forget_directory(&mut self) {
        self.several.directories = Vec::new();
        self.directory.now = Some(Text::hole(Hole::Other));
    }

    pub(super) fn join_directories(&mut self, other: &mut Self) {
        if self.directory.now == other.directory.now && self.several.directories == other.several.directories {
            return;
        }
        let all = |scope: &mut Self| {
            let directories = std::mem::take(&mut scope.several.directories);
            if directories.is_empty() { vec![scope.directory.now.take()] } else { directories }
        };
        let mut directories = all(self);
        for directory in all(other) {
            if !directories.contains(&directory) {
                directories.push(directory);
            }
        }
        self.forget_directory();
        if directories.len() == 1 {
            self.directory.now = directories.pop().flatten();
        } else if directories.len() <= MOST_DIRECTORIES {
            self.several.directories = directories;
        }
    }

    /// The shell goes to another directory. Known steps back are taken at once: a loop of them would be endless.
    pub(crate) fn go(&mut self, directory: Text) {
        let Some(known) = directory.as_known() else {
            self.directory.now = Some(shortened(directory));
            return;
        };
        let mut parts: Vec<&str> = Vec::new();
        for part in known.split('/').filter(|part| !matches!(*part, "" | ".")) {
            match parts.last() {
                Some(last) if part == ".." && *last != ".." => {
                    parts.pop();
                }
                None if part == ".." && known.starts_with('/') => {}
                _ => parts.push(part),
            }
        }
        let joined = parts.join("/");
        if joined.len() > LONGEST {
            self.forget_directory();
            return;
        }
        self.directory.now = match (known.starts_with('/'), joined.is_empty()) {
            (true, _) => Some(Text::known(format!("/{joined}"))),
            (false, true) => None,
            (false, false) => Some(Text::known(joined)),
        };
    }

    /// A path as seen from where the request starts.
    pub(crate) fn resolve(&self, path: &Text) -> Text {
        if path.known_start().starts_with(['/', '~']) || path.known_start().is_empty() && path.has_hole() {
            return path.clone();
        }
        let Some(directory) = self.directory.get() else { return path.clone() };
        let mut whole = directory.clone();
        if !whole.known_end().ends_with('/') {
            whole.push(Piece::Known("/".to_owned()));
        }
        whole.append(path.clone());
        whole
    }
}

/// Somewhere below a directory that is not known: only the last parts of it are kept, so that going down again and again ends.
fn shortened(directory: Text) -> Text {
    let [Piece::Hole(Hole::Other), Piece::Known(below)] = directory.pieces() else { return directory };
    let parts: Vec<&str> = below.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
    if parts.len() <= MOST_PARTS || parts.contains(&"..") {
        return directory;
    }
    let mut short = Text::hole(Hole::Other);
    let kept = parts.get(parts.len() - MOST_PARTS..).unwrap_or_default();
    short.push(Piece::Known(format!("/{}", kept.join("/"))));
    short
}
