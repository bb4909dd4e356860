//! Makefiles that the text itself wrote: their recipes, as make fills them.

use std::collections::BTreeMap;

use super::Run;
use crate::stream::Argument;
use crate::text::Text;

/// Whether variables of a makefile may be what the file does not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Settings {
    /// Nobody has given any.
    None,
    /// On the line, or by the environment before the file.
    Given,
}

/// The recipes of a makefile, and what its functions start.
pub(super) fn recipes(run: &mut Run<'_, '_>, text: &str, place: &Argument, settings: Settings) {
    let set = if settings == Settings::None { set_once(text) } else { BTreeMap::new() };
    let mut rule = Rule { set, ..Rule::default() };
    for line in text.lines() {
        rule.follow(line);
        let recipe = match line.strip_prefix('\t') {
            Some(recipe) => Some(recipe),
            // Behind a rule's semicolon, or what `!=` takes the output of.
            None => line
                .split_once("!=")
                .map(|(_, code)| code)
                .or_else(|| line.split_once(':').and_then(|(_, rest)| rest.split_once(';')).map(|(_, recipe)| recipe)),
        };
        for code in calls_of_make(line).into_iter().chain(recipe) {
            let code = rule.filled(code.trim_start_matches(['@', '-', '+', ' ']));
            run.shell(&Argument::new(Text::known(code), place.span));
        }
    }
}

/// Letters of a recipe, once its variables stand there.
const FILLED: usize = 64 * 1024;

/// Words by which a file may set what is not seen here.
const SET_ELSEWHERE: [&str; 5] = ["include", "define", "eval", "load", "file"];

/// The variables that a makefile sets once, plainly, to a text. Recipes are filled when they are run: what is set again, above or
/// below, for one target or by another file, is not known.
fn set_once(text: &str) -> BTreeMap<&str, &str> {
    let mut found: BTreeMap<&str, Option<&str>> = BTreeMap::new();
    if SET_ELSEWHERE.iter().any(|word| text.contains(word)) {
        return BTreeMap::new();
    }
    for line in text.lines() {
        for (at, _) in line.match_indices('=') {
            let (before, value) = (line.get(..at).unwrap_or_default(), line.get(at + 1..).unwrap_or_default());
            let left = before.trim_end_matches([':', '?', '+', '!', ' ', '\t']);
            let name = left.rsplit([' ', '\t', ':']).next().unwrap_or(left);
            let plain = left == name && !before.ends_with(['?', '+', '!']) && !value.contains(['$', '\\', '#']);
            let value = Some(value.trim()).filter(|_| plain);
            found.entry(name).and_modify(|known| *known = None).or_insert(value);
        }
    }
    found.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The rule that the recipes belong to, and what the file sets.
#[derive(Default)]
struct Rule<'t> {
    target: Option<String>,
    first: Option<String>,
    set: BTreeMap<&'t str, &'t str>,
}

impl Rule<'_> {
    fn follow(&mut self, line: &str) {
        if line.starts_with(['\t', '#', ' ']) {
            return;
        }
        if line.contains('=') {
            // A variable, perhaps of one target alone.
            (self.target, self.first) = (None, None);
        } else if let Some((targets, needs)) = line.split_once(':') {
            let one = |words: &str| {
                let mut words = words.split_whitespace();
                words.next().filter(|word| words.next().is_none() && !word.contains(['$', '%', '*'])).map(str::to_owned)
            };
            self.target = one(targets);
            self.first = one(needs.split(['|', ';']).next().unwrap_or(needs));
        }
    }

    /// A recipe as a shell is given it. What make computes is a variable of which nothing is known.
    fn filled(&self, code: &str) -> String {
        let mut filled = String::new();
        let mut rest = code;
        while let Some((before, after)) = rest.split_once('$') {
            filled.push_str(before);
            let mut letters = after.chars();
            rest = match letters.next() {
                Some('$') => {
                    filled.push('$');
                    letters.as_str()
                }
                Some('@') => {
                    filled.push_str(self.target.as_deref().unwrap_or("${make_target}"));
                    letters.as_str()
                }
                Some('<' | '^') => {
                    filled.push_str(self.first.as_deref().unwrap_or("${make_source}"));
                    letters.as_str()
                }
                Some('?' | '*' | '+' | '%' | '|') => {
                    filled.push_str("${make_value}");
                    letters.as_str()
                }
                Some(open @ ('(' | '{')) => {
                    let (inside, behind) = enclosed(letters.as_str(), open);
                    filled.push_str(&self.meant(inside));
                    behind
                }
                _ => {
                    filled.push('$');
                    after
                }
            };
            if filled.len() > FILLED {
                return "${make_value}".to_owned();
            }
        }
        filled + rest
    }

    fn meant(&self, inside: &str) -> String {
        if let Some(code) = inside.strip_prefix("shell ") {
            return format!("$({code})");
        }
        let is_name = |name: &str| name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        match self.set.get(inside) {
            Some(value) => (*value).to_owned(),
            // Of the environment, unless it is make's own.
            None if !inside.is_empty() && is_name(inside) => format!("${{{inside}}}"),
            None => "${make_value}".to_owned(),
        }
    }
}

/// What stands before the sign that closes, and what behind it.
fn enclosed(text: &str, open: char) -> (&str, &str) {
    let close = if open == '(' { ')' } else { '}' };
    let mut deep = 1_usize;
    for (at, letter) in text.char_indices() {
        if letter == open {
            deep += 1;
        } else if letter == close {
            deep -= 1;
            if deep == 0 {
                return (text.get(..at).unwrap_or_default(), text.get(at + 1..).unwrap_or_default());
            }
        }
    }
    (text, "")
}

fn calls_of_make(line: &str) -> Vec<&str> {
    line.match_indices("$(shell ")
        .filter_map(|(at, found)| line.get(at + found.len()..))
        .map(|rest| rest.rsplit_once(')').map_or(rest, |(code, _)| code))
        .collect()
}
