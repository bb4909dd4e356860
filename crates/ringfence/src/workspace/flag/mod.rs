//! What of a set the host would execute or obey later, and what policy denies. Pure: it looks at the set and at kept
//! contents, never at the host, and changes nothing.
//!
//! A flag is no proof of malice. It says that applying the change would let something run, or be obeyed, that nobody asked
//! for by name: so a person looks first. Names are compared as the most forgiving file system would (`names.rs`), the rules
//! are data (`flags.rules`), and whatever cannot be read or understood is flagged.

mod contents;
mod links;
mod names;
mod patterns;
mod rules;

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::path::{Path, PathBuf};

use ringfence_policy::Glob;
use serde::Serialize;

use self::contents::{Check, Text, counts, is_git_config};
use self::links::{Leads, Nodes, leads};
pub(crate) use self::patterns::{Denied, Patterns};
use self::rules::{Fit, in_copies, under};
use super::change::{Before, Change, ChangeSet, Node, Place, WasKind};
use super::objects::{ObjectId, Objects};

pub use self::names::is_invisible;
pub use self::rules::{Rule, rules};

/// Contents that are larger are not looked into, and taken for the worst.
const MOST_BYTES: u64 = 1024 * 1024;
/// Of all that is read to judge one set.
const MOST_READ: usize = 64 * 1024 * 1024;

/// What is to become of a change unless somebody says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judgement {
    /// Nothing speaks against it.
    Free,
    /// The host would execute or obey it: it is held back until a person includes it. Never empty.
    Flagged(Vec<Flag>),
    /// The policy denies the place, by this rule; it is never carried over.
    Denied(String),
}

/// One reason to look first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Flag {
    /// The rule's stable name.
    pub rule: &'static str,
    /// What on the host would execute or obey it, and when.
    pub reason: &'static str,
    /// What was found besides, in words of whoever wrote the file: hostile text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Whether no program may change it where changes reach the host at once.
    pub protected: bool,
}

/// In one line. What was found besides is hostile text: whoever prints it makes it harmless.
impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.reason)?;
        self.detail.as_ref().map_or(Ok(()), |detail| write!(f, " ({detail})"))
    }
}

/// A judgement for each change of the set, in its order.
pub fn judge(set: &ChangeSet, objects: &Objects) -> Vec<Judgement> {
    judge_by(set, &|id| objects.bytes(id, MOST_BYTES).ok().flatten())
}

/// Likewise, with contents from elsewhere: nothing where they are too large or cannot be had.
pub fn judge_by(set: &ChangeSet, read: &dyn Fn(ObjectId) -> Option<Vec<u8>>) -> Vec<Judgement> {
    let court = Court {
        deny: Patterns::of(&set.deny),
        protect: Patterns::of_protect(&set.protect),
        own: set.own.iter().map(names::folded).collect(),
        nodes: links::nodes(&set.changes),
        bare: Bare::find(&set.changes),
        gone: gone_repositories(&set.changes),
        read,
        read_so_far: Cell::new(0),
    };
    set.changes.iter().map(|change| court.judge(change)).collect()
}

/// The rule that protects a place by its name alone; for walls that have to close it before anything runs.
pub fn protected_by(place: &Place) -> Option<&'static Rule> {
    under(&names::folded(place))
        .into_iter()
        .filter(|(_, fit)| *fit >= Fit::Name)
        .map(|(rule, _)| rule)
        .find(|rule| rule.protected)
}

/// The rule by which a person looks first before a file of this name is changed by hand: a protected one, or one that needs no contents
/// and is not for files that daily work changes.
pub fn asked_about(place: &Place) -> Option<&'static Rule> {
    let fitting = under(&names::folded(place)).into_iter().filter(|(_, fit)| *fit >= Fit::Name);
    fitting.map(|(rule, _)| rule).find(|rule| rule.protected || rule.check == Check::Name && !rule.daily)
}

/// The places in the project that one within copies of it stands for, by folded names; nothing where it lies in none.
pub(crate) fn copied(place: &Place) -> Vec<PathBuf> {
    in_copies(&names::folded(place)).map(|names| names.iter().collect()).collect()
}

struct Court<'a> {
    deny: Patterns,
    protect: Patterns,
    /// Our own files, by their folded names.
    own: HashSet<Vec<String>>,
    nodes: Nodes<'a>,
    bare: Bare,
    gone: HashSet<&'a Path>,
    read: &'a dyn Fn(ObjectId) -> Option<Vec<u8>>,
    read_so_far: Cell<usize>,
}

/// What becomes of a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Becomes {
    Folder,
    Link,
    /// A file, or anything else that is not a folder.
    File,
    Gone {
        was_folder: bool,
    },
}

impl Becomes {
    fn of(change: &Change) -> Self {
        match &change.after {
            Some(Node::Folder { .. }) => Self::Folder,
            Some(Node::Link { .. }) => Self::Link,
            Some(Node::File { .. } | Node::Other(_)) => Self::File,
            None => {
                Self::Gone { was_folder: matches!(&change.before, Before::Was(was) if was.kind == WasKind::Folder) }
            }
        }
    }

    fn is_folder(self) -> bool {
        matches!(self, Self::Folder | Self::Gone { was_folder: true })
    }
}

impl Court<'_> {
    fn judge(&self, change: &Change) -> Judgement {
        let becomes = Becomes::of(change);
        let path = change.place.as_path();
        if let Some(rule) = &self.deny.unreadable {
            return Judgement::Denied(rule.clone());
        }
        if let Some(rule) = Patterns::naming(&self.deny.exact, path, becomes.is_folder()) {
            return Judgement::Denied(rule.as_str().to_owned());
        }
        let folded = names::folded(&change.place);
        let mut copied = in_copies(&folded).map(|names| names.iter().collect::<PathBuf>());
        if let Some(rule) = copied.find_map(|path| Patterns::naming(&self.deny.folded, &path, becomes.is_folder())) {
            return Judgement::Denied(rule.as_str().to_owned());
        }
        let mut flags = self.by_rules(change, becomes, &folded);
        self.by_git(change, becomes, &folded, &mut flags);
        self.by_policy(path, becomes, &folded, &mut flags);
        self.by_node(change, &mut flags);
        if folded.iter().any(|name| names::is_short_name(name)) {
            let reason = "on Windows this short name can mean another file, such as `git~1` for `.git`";
            flags.push(flag("name.short", reason));
        }
        if flags.is_empty() { Judgement::Free } else { Judgement::Flagged(flags) }
    }

    fn by_rules(&self, change: &Change, becomes: Becomes, folded: &[String]) -> Vec<Flag> {
        let mut flags = Vec::new();
        let mut texts: Option<(Text, Text)> = None;
        for (rule, fit) in under(folded) {
            let counts_here = match becomes {
                // A link where a rule's folder would be decides what that folder holds.
                Becomes::Link => true,
                Becomes::Folder => fit == Fit::Below,
                Becomes::File => fit >= Fit::Name,
                Becomes::Gone { was_folder: true } => rule.gone && fit == Fit::Below,
                Becomes::Gone { was_folder: false } => rule.gone && fit >= Fit::Name,
            };
            let plain = matches!(&change.after, Some(Node::File { mode, .. }) if mode & 0o111 == 0);
            if !counts_here || rule.check == Check::Executable && plain {
                continue;
            }
            let detail = if fit == Fit::Above {
                Some("a link in its place decides what is found there".to_owned())
            } else if matches!(rule.check, Check::Name | Check::Executable) {
                // Nothing is read where nothing depends on it: there may be thousands.
                None
            } else {
                let (before, after) = texts.get_or_insert_with(|| (self.text_before(change), self.text_after(change)));
                let Some(detail) = counts(rule.check, folded, before, after) else { continue };
                detail
            };
            flags.push(Flag { rule: rule.id, reason: rule.why, detail, protected: rule.protected });
        }
        // In a repository's own folder of hooks, the name says nothing more.
        if flags.iter().any(|flag| matches!(flag.rule, "git.hooks" | "git.parts")) {
            flags.retain(|flag| flag.rule != "git.hook-script");
        }
        flags
    }

    fn text_before(&self, change: &Change) -> Text {
        match &change.before {
            Before::Was(was) => match was.kind {
                WasKind::File(Some(id)) => self.text(id),
                WasKind::File(None) => Text::Unknown,
                WasKind::Link(_) | WasKind::Folder | WasKind::Other(_) => Text::Absent,
            },
            Before::Nothing => Text::Absent,
            Before::Unknown => Text::Unknown,
        }
    }

    fn text_after(&self, change: &Change) -> Text {
        match &change.after {
            Some(Node::File { content, .. }) => self.text(*content),
            Some(Node::Link { .. } | Node::Folder { .. } | Node::Other(_)) => Text::Unknown,
            None => Text::Absent,
        }
    }

    /// What is not read counts as whatever it could be. Many names of one content are no reason to read for ever.
    fn text(&self, id: ObjectId) -> Text {
        if self.read_so_far.get() > MOST_READ {
            return Text::Unknown;
        }
        match (self.read)(id).map(String::from_utf8) {
            Some(Ok(text)) => {
                self.read_so_far.set(self.read_so_far.get().saturating_add(text.len()));
                Text::Known(text)
            }
            Some(Err(_)) | None => Text::Unknown,
        }
    }

    /// What no list of names can tell about repositories.
    fn by_git(&self, change: &Change, becomes: Becomes, folded: &[String], flags: &mut Vec<Flag>) {
        if let Some(at) = folded.iter().position(|name| name == ".git") {
            let rest = folded.get(at + 1..).unwrap_or_default();
            // Without the rest of it, even data must not go: half a repository is worse than none.
            let all_gone =
                !self.gone.is_empty() && change.place.as_path().ancestors().any(|path| self.gone.contains(path));
            if !flags.iter().any(|flag| flag.protected) && (all_gone || becomes == Becomes::Link || !is_git_data(rest))
            {
                let reason = "is a part of a repository: git obeys it at commands in this folder";
                let detail = all_gone.then(|| "all of the repository was removed".to_owned());
                flags.push(Flag { protected: true, detail, ..flag("git.repository", reason) });
            }
            return;
        }
        let reason =
            "makes a folder a repository without a `.git`: git obeys its configuration and hooks where it is entered";
        let bare = Flag { protected: true, ..flag("git.bare", reason) };
        let in_bare = self.bare.repositories_above(folded).any(|rest| !is_git_data_below(rest));
        let head_or_config = match (folded.last().map(String::as_str), becomes) {
            (Some("head"), Becomes::Link) => true,
            (Some("head"), Becomes::File) => match self.text_after(change) {
                Text::Known(text) => looks_like_head(&text),
                Text::Unknown | Text::Absent => true,
            },
            (Some("config" | "config.worktree"), Becomes::File) => match self.text_after(change) {
                Text::Known(text) => is_git_config(&text),
                Text::Unknown | Text::Absent => true,
            },
            (Some("commondir" | "gitdir"), Becomes::File | Becomes::Link) => true,
            _ => false,
        };
        if in_bare || head_or_config {
            flags.push(bare);
        }
    }

    fn by_policy(&self, path: &Path, becomes: Becomes, folded: &[String], flags: &mut Vec<Flag>) {
        let folded_path: PathBuf = folded.iter().collect();
        if let Some(rule) = Patterns::naming(&self.deny.folded, &folded_path, becomes.is_folder()) {
            let reason = "on a file system that folds case this is a file that the policy denies";
            let detail = Some(rule.as_str().to_owned());
            flags.push(Flag { detail, protected: true, ..flag("policy.deny", reason) });
        }
        let stands_for = |own: &Vec<String>| own.len() == folded.len() || !becomes.is_folder();
        if self.own.iter().any(|own| own.starts_with(folded) && stands_for(own)) {
            let reason =
                "is, or stands in the way to, a file that says what is permitted: it is obeyed at the next run";
            flags.push(Flag { protected: true, ..flag("ringfence.own", reason) });
        }
        let exact = Patterns::naming(&self.protect.exact, path, becomes.is_folder());
        let by_fold = |path: &Path| Patterns::naming(&self.protect.folded, path, becomes.is_folder());
        let in_copies = || in_copies(folded).find_map(|names| by_fold(&names.iter().collect::<PathBuf>()));
        let rule = exact.or_else(|| by_fold(&folded_path)).or_else(in_copies);
        let rule = rule.map(Glob::as_str).or(self.protect.unreadable.as_deref());
        // What a rule of ours says already is not said again in the policy's words.
        if let Some(rule) = rule.filter(|_| !flags.iter().any(|flag| flag.protected)) {
            let detail = Some(rule.to_owned());
            flags.push(Flag {
                detail,
                protected: true,
                ..flag("policy.protect", "the policy's `fs.protect` names it")
            });
        }
    }

    /// What a node is, whatever its name.
    fn by_node(&self, change: &Change, flags: &mut Vec<Flag>) {
        match &change.after {
            Some(Node::File { mode, .. }) if mode & 0o6000 != 0 => {
                let reason = "runs as its owner or group, whoever starts it: the set-user-id or set-group-id bit is on";
                flags.push(flag("mode.setuid", reason));
            }
            Some(Node::Link { target }) => self.by_link(change, target, flags),
            Some(Node::Other(_)) => {
                flags.push(flag("node.special", "is a device, a socket or a pipe, and never carried over to the host"));
            }
            Some(Node::File { .. } | Node::Folder { .. }) | None => {}
        }
    }

    fn by_link(&self, change: &Change, target: &std::ffi::OsStr, flags: &mut Vec<Flag>) {
        let detail = Some(format!("-> {}", target.to_string_lossy()));
        let replaces = match &change.before {
            Before::Was(was) => !matches!(was.kind, WasKind::Link(_)),
            Before::Unknown => true,
            Before::Nothing => false,
        };
        if replaces {
            let reason =
                "stands where something else was: what reads or writes that path reaches the link's target instead";
            flags.push(Flag { detail: detail.clone(), protected: true, ..flag("link.replaces", reason) });
        }
        match leads(&change.place, target, &self.nodes) {
            Leads::Out => {
                let reason = "points out of the workspace: programs on the host that follow it read or write there";
                flags.push(Flag { detail, protected: true, ..flag("link.out", reason) });
            }
            Leads::Unclear => {
                let reason = "may point out of the workspace: where it leads cannot be told";
                flags.push(Flag { detail, protected: true, ..flag("link.unclear", reason) });
            }
            Leads::Inside(path) => {
                let to = Place::new(path).ok();
                if to.as_ref().is_some_and(|to| protected_by(to).is_some()) {
                    let reason = "points at a protected file: what is written to this path changes that one";
                    flags.push(Flag { detail, protected: true, ..flag("link.protected", reason) });
                }
            }
        }
    }
}

fn flag(rule: &'static str, reason: &'static str) -> Flag {
    Flag { rule, reason, detail: None, protected: false }
}

/// Folders called `.git` that are no longer folders.
fn gone_repositories(changes: &[Change]) -> HashSet<&Path> {
    let was_folder = |change: &&Change| matches!(&change.before, Before::Was(was) if was.kind == WasKind::Folder);
    let gone = changes.iter().filter(was_folder).filter(|change| !matches!(change.after, Some(Node::Folder { .. })));
    let called_git = |path: &&Path| path.file_name().is_some_and(|name| names::fold(name) == [".git"]);
    gone.map(|change| change.place.as_path()).filter(called_git).collect()
}

/// Whether what lies below a `.git` is data that git neither executes nor obeys. Everything else counts.
fn is_git_data(rest: &[String]) -> bool {
    is_git_data_below(rest)
        || matches!(rest, [name] if matches!(name.as_str(),
            "head" | "packed-refs" | "description" | "objects" | "refs" | "logs" | "lfs"))
}

/// Data also where only other files make the folder a repository.
fn is_git_data_below(rest: &[String]) -> bool {
    match rest {
        [name] => matches!(
            name.as_str(),
            "index"
                | "orig_head"
                | "fetch_head"
                | "merge_head"
                | "merge_msg"
                | "merge_mode"
                | "merge_rr"
                | "squash_msg"
                | "cherry_pick_head"
                | "revert_head"
                | "auto_merge"
                | "commit_editmsg"
                | "tag_editmsg"
                | "notes_editmsg"
                | "shallow"
                | "gc.log"
                | "index.lock"
                | "head.lock"
                | "rebase_head"
                | "bisect_log"
                | "bisect_start"
        ),
        [folder, ..] => matches!(folder.as_str(), "objects" | "refs" | "logs" | "lfs" | "rr-cache"),
        [] => false,
    }
}

/// Whether a file called HEAD is one of a repository.
fn looks_like_head(text: &str) -> bool {
    let text = text.trim_start().as_bytes();
    // Git reads as many digits as it needs, and nothing after them.
    text.starts_with(b"ref:") || text.get(..40).is_some_and(|start| start.iter().all(u8::is_ascii_hexdigit))
}

/// Folders that have `HEAD`, `objects` and `refs` after the changes, without being called `.git`. Known by a hash of their
/// folded names, so that a deep path costs no more than its length.
struct Bare {
    hasher: RandomState,
    folders: HashMap<u64, u8>,
}

impl Bare {
    const WHOLE: u8 = 7;

    fn find(changes: &[Change]) -> Self {
        let mut bare = Self { hasher: RandomState::new(), folders: HashMap::new() };
        for change in changes.iter().filter(|change| change.after.is_some()) {
            let folded = names::folded(&change.place);
            for (at, (name, folder)) in folded.iter().zip(bare.folders_above(&folded)).enumerate() {
                let sign = match name.as_str() {
                    "head" if at + 1 == folded.len() => 1,
                    "objects" => 2,
                    "refs" => 4,
                    _ => continue,
                };
                *bare.folders.entry(folder).or_default() |= sign;
            }
        }
        bare
    }

    /// The hash of the folder that each name is in.
    fn folders_above(&self, folded: &[String]) -> Vec<u64> {
        let mut hasher = self.hasher.build_hasher();
        let mut hashes = Vec::with_capacity(folded.len());
        for name in folded {
            hashes.push(hasher.finish());
            name.hash(&mut hasher);
        }
        hashes
    }

    /// What remains of a path below each repository that it lies in.
    fn repositories_above<'a>(&self, folded: &'a [String]) -> impl Iterator<Item = &'a [String]> {
        let above = self.folders_above(folded);
        let is_whole: Vec<bool> = above.iter().map(|hash| self.folders.get(hash) == Some(&Self::WHOLE)).collect();
        is_whole.into_iter().enumerate().filter(|(_, whole)| *whole).filter_map(|(at, _)| folded.get(at..))
    }
}

#[cfg(test)]
mod tests;
