//! Reads `flags.rules`, and finds the rules that a path falls under.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::contents::Check;

const TEXT: &str = include_str!("flags.rules");

static RULES: LazyLock<Rules> = LazyLock::new(|| Rules::parse(TEXT));

/// One kind of file that the host would execute or obey.
#[derive(Debug)]
pub struct Rule {
    /// Its stable name.
    pub id: &'static str,
    /// What on the host would execute or obey it, and when.
    pub why: &'static str,
    /// Whether no program may change it where changes reach the host at once.
    pub protected: bool,
    /// Whether its removal counts, too: what it said no longer holds.
    pub(super) gone: bool,
    /// Whether daily work changes such files, so that nobody is asked before one is written by hand.
    pub(super) daily: bool,
    pub(super) check: Check,
    names: Vec<Pattern>,
    /// Folders of copies of the project.
    copies: Vec<Vec<&'static str>>,
    #[cfg(test)]
    matches: Vec<&'static str>,
    #[cfg(test)]
    rejects: Vec<&'static str>,
}

impl Rule {
    /// How it fits a path from this name on, where `fit` is how its patterns do. The folder of copies and a copy's own folder hold nothing
    /// that is obeyed, as long as they are folders.
    fn but_for_copies(&self, path: &[String], fit: Fit) -> Option<Fit> {
        let leads = |copies: &&Vec<&str>| path.len() >= copies.len() && copies.iter().zip(path).all(|(a, b)| a == b);
        match self.copies.iter().find(leads) {
            Some(copies) if path.len() > copies.len() + 1 => None,
            Some(_) => Some(fit.min(Fit::Name)),
            None => Some(fit),
        }
    }
}

/// The paths in the project that a path within its copies stands for, by folded names: one for each copy around it, as a copy may hold
/// another.
pub(super) fn in_copies(path: &[String]) -> impl Iterator<Item = &[String]> {
    let copies = || rules().iter().flat_map(|rule| &rule.copies);
    (0..path.len()).rev().filter_map(move |start| {
        let rest = path.get(start..)?;
        let copies = copies().find(|copies| copies.iter().zip(rest).filter(|(a, b)| a == b).count() == copies.len())?;
        rest.get(copies.len() + 1..).filter(|rest| !rest.is_empty())
    })
}

/// All rules.
pub fn rules() -> &'static [Rule] {
    &RULES.rules
}

/// Names one after the other, at any depth.
#[derive(Debug)]
struct Pattern {
    names: Vec<&'static str>,
    /// Whether all below counts, and the folder itself.
    below: bool,
}

/// What of a pattern a path fulfils.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// The path leads there: it is a folder above.
    Above,
    /// It names a folder or a file; for folders this pattern does not count.
    Name,
    /// It lies in a folder that counts as a whole, or is it.
    Below,
}

impl Pattern {
    fn parse(text: &'static str) -> Self {
        match text.strip_suffix("/**") {
            Some(folder) => Self { names: folder.split('/').collect(), below: true },
            None => Self { names: text.split('/').collect(), below: false },
        }
    }

    /// How it fits a path from this name on.
    fn fit(&self, path: &[String]) -> Option<Fit> {
        let common = self.names.len().min(path.len());
        if !self.below && path.len() > common {
            return None;
        }
        if !self.names.iter().zip(path).all(|(pattern, name)| fits(pattern, name)) {
            return None;
        }
        if common < self.names.len() { Some(Fit::Above) } else { Some(if self.below { Fit::Below } else { Fit::Name }) }
    }
}

/// Whether a pattern for one name, in which `*` is any number of letters, fits it. Takes time linear in the name for each
/// star.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        let Some(at) = left.find(piece) else { return false };
        left = left.get(at + piece.len()..).unwrap_or_default();
    }
    left.ends_with(last)
}

struct Rules {
    rules: Vec<Rule>,
    /// Patterns by their first name: rule and pattern.
    by_first: HashMap<&'static str, Vec<(usize, usize)>>,
    /// Those whose first name has a star.
    starred: Vec<(usize, usize)>,
}

impl Rules {
    fn parse(text: &'static str) -> Self {
        let mut rules: Vec<Rule> = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let indented = line.starts_with(' ');
            let (word, rest) = line.trim().split_once(char::is_whitespace).unwrap_or((line.trim(), ""));
            let rest = rest.trim();
            match rules.last_mut() {
                Some(rule) if indented => match word {
                    "names" => rule.names.extend(rest.split_whitespace().map(Pattern::parse)),
                    "copies" => rule.copies.extend(rest.split_whitespace().map(|folder| folder.split('/').collect())),
                    "why" => rule.why = rest,
                    "check" => rule.check = Check::named(rest),
                    #[cfg(test)]
                    "matches" => rule.matches.extend(rest.split_whitespace()),
                    #[cfg(test)]
                    "rejects" => rule.rejects.extend(rest.split_whitespace()),
                    // A test reads the file once more and finds every other word.
                    _ => {}
                },
                _ => rules.push(Rule {
                    id: word,
                    why: "",
                    protected: rest.split_whitespace().any(|word| word == "protected"),
                    gone: rest.split_whitespace().any(|word| word == "gone"),
                    daily: rest.split_whitespace().any(|word| word == "daily"),
                    check: Check::Name,
                    names: Vec::new(),
                    copies: Vec::new(),
                    #[cfg(test)]
                    matches: Vec::new(),
                    #[cfg(test)]
                    rejects: Vec::new(),
                }),
            }
        }
        let mut by_first: HashMap<&'static str, Vec<(usize, usize)>> = HashMap::new();
        let mut starred = Vec::new();
        for (rule, names) in rules.iter().enumerate().map(|(index, rule)| (index, &rule.names)) {
            for (pattern, first) in names.iter().enumerate().map(|(index, pattern)| (index, pattern.names.first())) {
                match first {
                    Some(first) if !first.contains('*') => by_first.entry(first).or_default().push((rule, pattern)),
                    _ => starred.push((rule, pattern)),
                }
            }
        }
        Self { rules, by_first, starred }
    }
}

/// Every rule that a path with these folded names falls under, in the order of the file, and how.
pub(super) fn under(path: &[String]) -> Vec<(&'static Rule, Fit)> {
    let mut found: Vec<(usize, Fit)> = Vec::new();
    for start in 0..path.len() {
        let rest = path.get(start..).unwrap_or_default();
        let by_name = rest.first().and_then(|name| RULES.by_first.get(name.as_str()));
        for (rule, pattern) in by_name.into_iter().flatten().chain(&RULES.starred) {
            let Some(known) = RULES.rules.get(*rule) else { continue };
            let fit = known.names.get(*pattern).and_then(|pattern| pattern.fit(rest));
            if let Some(fit) = fit.and_then(|fit| known.but_for_copies(rest, fit)) {
                found.push((*rule, fit));
            }
        }
    }
    // The strongest fit of each rule.
    found.sort_by_key(|(rule, fit)| (*rule, std::cmp::Reverse(*fit)));
    found.dedup_by_key(|(rule, _)| *rule);
    found.into_iter().filter_map(|(rule, fit)| Some((RULES.rules.get(rule)?, fit))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::names::folded;
    use super::*;
    use crate::workspace::change::Place;

    fn ids(path: &str) -> Vec<&'static str> {
        let names = folded(&Place::new(path).unwrap());
        under(&names).into_iter().filter(|(_, fit)| *fit >= Fit::Name).map(|(rule, _)| rule.id).collect()
    }

    #[test]
    fn every_line_of_the_rules_is_understood() {
        for line in TEXT.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap();
            if line.starts_with(' ') {
                assert!(["names", "copies", "why", "check", "matches", "rejects"].contains(&first), "{line}");
            } else {
                assert!(first.contains('.'), "{line}");
                assert!(words.all(|word| ["protected", "gone", "daily"].contains(&word)), "{line}");
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        for rule in rules() {
            assert!(seen.insert(rule.id), "{} stands twice", rule.id);
            assert!(!rule.names.is_empty() && rule.why.len() > 20, "{}", rule.id);
            for pattern in rule.names.iter().flat_map(|pattern| &pattern.names) {
                assert!(!pattern.contains("**") && !pattern.is_empty(), "{}: {pattern}", rule.id);
                assert_eq!(pattern.to_lowercase(), *pattern, "{}: names are compared in lower case", rule.id);
            }
        }
    }

    #[test]
    fn every_rule_has_examples_that_hold() {
        for rule in rules() {
            assert!(!rule.matches.is_empty() && !rule.rejects.is_empty(), "{} has no examples", rule.id);
            for path in &rule.matches {
                assert!(ids(path).contains(&rule.id), "{} does not match {path}", rule.id);
                let deep = format!("some/where/{path}");
                assert!(ids(&deep).contains(&rule.id), "{} does not match {deep}", rule.id);
                let loud = path.to_uppercase();
                assert!(ids(&loud).contains(&rule.id), "{} does not match {loud}", rule.id);
            }
            for path in &rule.rejects {
                assert!(!ids(path).contains(&rule.id), "{} matches {path}", rule.id);
            }
        }
    }

    #[test]
    fn stars_stand_for_any_letters() {
        for (pattern, name, expected) in [
            ("*.mk", "rules.mk", true),
            ("*.mk", "rules.mkd", false),
            ("compose*.yml", "compose.yml", true),
            ("compose*.yml", "compose.dev.yml", true),
            ("a*b*c", "a-b-c", true),
            ("a*b*c", "a-c", false),
            ("a*a", "a", false),
            ("*", "anything", true),
        ] {
            assert_eq!(fits(pattern, name), expected, "{pattern} {name}");
        }
    }
}
