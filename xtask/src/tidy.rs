//! `cargo xtask tidy`: the house rules that no other tool knows. Each violation is `path:line: message, what to do`.
//!
//! The rules are pure functions over a [`Tree`], so that each is tested with a good tree and its hostile twin.

mod arrows;
mod documents;
mod rust_source;
mod text;

use std::fmt;
use std::process::ExitCode;

use crate::step::Failure;
use crate::workspace::Workspace;

/// A text file is read up to here; one that is larger does not belong in the tree.
const LARGEST: u64 = 4 << 20;

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Violation {
    path: String,
    line: usize,
    message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

fn violation(path: &str, line: usize, message: impl Into<String>) -> Violation {
    Violation { path: path.to_owned(), line, message: message.into() }
}

#[derive(Debug)]
struct File {
    path: String,
    /// `None` where the content is not text.
    text: Option<String>,
}

/// What is committed or would be.
#[derive(Debug, Default)]
struct Tree(Vec<File>);

impl Tree {
    fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }

    fn rust(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(|(path, _)| path.ends_with(".rs"))
    }

    fn text(&self, path: &str) -> Option<&str> {
        self.texts().find(|(known, _)| *known == path).map(|(_, text)| text)
    }

    #[cfg(test)]
    fn of(files: &[(&str, &str)]) -> Self {
        Self(files.iter().map(|(path, text)| File { path: (*path).into(), text: Some((*text).into()) }).collect())
    }
}

type Rule = fn(&Tree) -> Vec<Violation>;

const RULES: &[Rule] = &[
    arrows::dependencies_point_one_way,
    arrows::lints_are_inherited,
    arrows::pure_crates_do_nothing,
    text::files_are_short,
    text::unsafe_stays_in_its_room,
    text::words_are_final,
    text::tests_are_not_ignored,
    text::paths_are_nobodys,
    text::names_say_something,
    documents::promises_name_their_tests,
    documents::decisions_are_numbered,
];

/// Runs every rule; says how much was looked at.
pub(crate) fn check(workspace: &Workspace) -> Result<String, Failure> {
    let tree = read(workspace)?;
    let mut found: Vec<Violation> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    found.extend(arrows::pure_crates_pull_in_nothing(workspace)?);
    found.sort();
    found.dedup();
    if found.is_empty() {
        return Ok(format!("{} files, {} rules", tree.0.len(), RULES.len() + 1));
    }
    let output = found.iter().map(|violation| format!("{violation}\n")).collect();
    Err(Failure { what: format!("{} violations of the house rules", found.len()), output })
}

pub(crate) fn report(workspace: &Workspace) -> Result<ExitCode, Failure> {
    println!("{}", check(workspace)?);
    Ok(ExitCode::SUCCESS)
}

fn read(workspace: &Workspace) -> Result<Tree, Failure> {
    let mut files = Vec::new();
    for path in workspace.files()? {
        let full = workspace.root.join(&path);
        let cannot = |error: std::io::Error| Failure::io(format!("read `{path}`"), &error);
        let metadata = full.symlink_metadata().map_err(cannot)?;
        let text = if metadata.is_file() && metadata.len() <= LARGEST {
            String::from_utf8(std::fs::read(&full).map_err(cannot)?).ok()
        } else if metadata.is_file() {
            return Err(Failure::new(format!(
                "`{path}` is larger than {} MiB; keep it out of the tree",
                LARGEST >> 20
            )));
        } else {
            None
        };
        files.push(File { path, text });
    }
    Ok(Tree(files))
}

/// Runs one rule over some files and compares with `path:line` of each violation.
#[cfg(test)]
fn expect(rule: Rule, files: &[(&str, &str)], expected: &[&str]) {
    let mut found = rule(&Tree::of(files));
    found.sort();
    let places: Vec<String> = found.iter().map(|violation| format!("{}:{}", violation.path, violation.line)).collect();
    assert_eq!(places, expected, "{found:#?}");
}
