//! Which of a set's changes somebody means.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use ringfence_policy::Glob;

use super::change::{Before, ChangeSet, Node, Place, Was, WasKind};

/// How many names are offered instead of one that is not in the set.
const MOST_OFFERED: usize = 3;

/// The places of a set that are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection(BTreeSet<Place>);

/// Why nothing is meant.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} is not among the changes{}", offer(near))]
pub struct NotAmongThem {
    /// What was asked for.
    pub word: OsString,
    /// What is like it.
    pub near: Vec<PathBuf>,
}

fn offer(near: &[PathBuf]) -> String {
    if near.is_empty() {
        return "; `ringfence diff` lists them".to_owned();
    }
    let near: Vec<String> = near.iter().map(|path| format!("{path:?}")).collect();
    format!("; did you mean {}?", near.join(" or "))
}

impl Selection {
    /// All of `set`.
    pub fn all(set: &ChangeSet) -> Self {
        Self(set.changes.iter().map(|change| change.place.clone()).collect())
    }

    /// What `words` mean, which were written in the folder `here`: paths, as they are or below a folder that is named, or
    /// globs below the workspace. A folder that the program made comes with what is in it.
    pub fn of(set: &ChangeSet, words: &[OsString], here: &Path) -> Result<Self, NotAmongThem> {
        if words.is_empty() {
            return Ok(Self::all(set));
        }
        let mut chosen = BTreeSet::new();
        for word in words {
            let found = matching(set, word, here);
            if found.is_empty() {
                return Err(NotAmongThem { word: word.clone(), near: near(set, word) });
            }
            chosen.extend(found);
        }
        let new_folders = set.changes.iter().filter(|change| {
            let was_folder = matches!(change.before, Before::Was(Was { kind: WasKind::Folder, .. }));
            matches!(change.after, Some(Node::Folder { .. })) && !was_folder
        });
        let needed: Vec<Place> = new_folders
            .filter(|change| {
                let below = |place: &Place| place.as_path().starts_with(change.place.as_path());
                chosen.range(change.place.clone()..).next().is_some_and(below)
            })
            .map(|change| change.place.clone())
            .collect();
        chosen.extend(needed);
        Ok(Self(chosen))
    }

    /// Whether `place` is meant.
    pub fn has(&self, place: &Place) -> bool {
        self.0.contains(place)
    }
}

fn matching(set: &ChangeSet, word: &OsStr, here: &Path) -> Vec<Place> {
    let below = |folder: &Path| -> Vec<Place> {
        let changes = set.changes.iter().filter(|change| change.place.as_path().starts_with(folder));
        changes.map(|change| change.place.clone()).collect()
    };
    // First as a path from here, then as one below the workspace: a name with a star in it can be named as it is.
    let from_here = plain(&here.join(word));
    let literal = [from_here.strip_prefix(&set.workspace).ok(), Some(Path::new(word))];
    for path in literal.into_iter().flatten() {
        let found = below(&plain(path));
        if !found.is_empty() {
            return found;
        }
    }
    let Some(glob) = word.to_str().and_then(|word| word.parse::<Glob>().ok()) else { return Vec::new() };
    let matches = |place: &Place| place.as_path().ancestors().any(|path| glob.matches(path));
    set.changes.iter().filter(|change| matches(&change.place)).map(|change| change.place.clone()).collect()
}

/// `path` without `.` and `..`. Nothing is looked up: a link must not change what is meant.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            Component::Normal(_) | Component::RootDir | Component::Prefix(_) => plain.push(part),
        }
    }
    plain
}

fn near(set: &ChangeSet, word: &OsStr) -> Vec<PathBuf> {
    let word = word.to_string_lossy();
    let name = word.rsplit('/').next().unwrap_or_default().to_owned();
    let mut near: Vec<(usize, &Path)> = set
        .changes
        .iter()
        .map(|change| {
            let path = change.place.as_path();
            let last = path.file_name().unwrap_or_default().to_string_lossy();
            let whole = strsim::damerau_levenshtein(&word, &path.to_string_lossy());
            (whole.min(strsim::damerau_levenshtein(&name, &last)), path)
        })
        .filter(|(distance, _)| *distance <= name.chars().count().div_ceil(3))
        .collect();
    near.sort_unstable();
    near.into_iter().take(MOST_OFFERED).map(|(_, path)| path.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::change::{Change, Moment};
    use super::*;
    use crate::run_id::RunId;

    fn set(places: &[&str]) -> ChangeSet {
        let moment = Moment { seconds: 0, nanoseconds: 0 };
        let change = |place: &&str| {
            let after =
                if place.ends_with('/') { Node::Folder { mode: 0o755 } } else { Node::Link { target: "x".into() } };
            Change { place: Place::new(*place).unwrap(), before: Before::Nothing, after: Some(after) }
        };
        ChangeSet {
            run_id: RunId::generate().unwrap(),
            workspace: "/w".into(),
            workspace_is: (1, 2),
            subject: String::new(),
            deny: Vec::new(),
            protect: Vec::new(),
            own: Vec::new(),
            size: u64::MAX,
            began: moment,
            ended: moment,
            changes: places.iter().map(change).collect(),
        }
    }

    #[track_caller]
    fn check(here: &str, word: &str, expected: &[&str]) {
        let set = set(&["*.rs", "a/", "a/b/", "a/b/c.rs", "a/d.rs", "main.rs"]);
        let chosen = Selection::of(&set, &[word.into()], Path::new(here)).unwrap();
        let chosen: Vec<&str> = chosen.0.iter().map(|place| place.as_path().to_str().unwrap()).collect();
        assert_eq!(chosen, expected, "{word} in {here}");
    }

    #[test]
    fn paths_are_meant_from_here_or_from_the_workspace_and_globs_below_it() {
        check("/w", "main.rs", &["main.rs"]);
        check("/w/a", "d.rs", &["a", "a/d.rs"]);
        check("/w/a", "../main.rs", &["main.rs"]);
        check("/elsewhere", "a/d.rs", &["a", "a/d.rs"]);
        check("/elsewhere", "/w/main.rs", &["main.rs"]);
        check("/w", "a/b", &["a", "a/b", "a/b/c.rs"]);
        check("/w", ".", &["*.rs", "a", "a/b", "a/b/c.rs", "a/d.rs", "main.rs"]);
        check("/w", "a/*.rs", &["a", "a/d.rs"]);
        check("/w", "**/*.rs", &["*.rs", "a", "a/b", "a/b/c.rs", "a/d.rs", "main.rs"]);
    }

    #[test]
    fn f22_a_name_that_looks_like_a_glob_can_be_named_as_it_is() {
        check("/w", "*.rs", &["*.rs"]);
    }

    #[test]
    fn a_name_that_is_not_in_the_set_is_an_error_with_what_is_like_it() {
        let set = set(&["a/", "a/main.rs", "b"]);
        let error = Selection::of(&set, &["man.rs".into()], Path::new("/w")).unwrap_err();
        assert_eq!(error.near, [PathBuf::from("a/main.rs")]);
        let error = Selection::of(&set, &["/etc/passwd".into()], Path::new("/w")).unwrap_err();
        assert_eq!(error.near, Vec::<PathBuf>::new());
    }
}
