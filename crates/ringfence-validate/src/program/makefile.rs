//! Makefiles that the text itself wrote: their recipes, as make fills them.

use std::collections::BTreeMap;

use super::Run;
use crate::analysis::{Fact, Unknown};
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

/// Bytes of all that is given to a shell, once the variables stand there.
const MOST_CODE: usize = 512 * 1024;

/// The recipes of a makefile, and what its functions start.
pub(super) fn recipes(run: &mut Run<'_, '_>, text: &str, place: &Argument, settings: Settings) {
    let lines = whole_lines(text);
    let mut rule = Rule { file: File::of(&lines, settings), ..Rule::default() };
    // The environment may say it, too.
    rule.file.wide |= run.reading.scope.variables.contains_key("VPATH");
    if text.contains("RECIPEPREFIX") {
        let unknown = Unknown::Unreadable { why: "recipes of a makefile that begin in their own way".to_owned() };
        run.fact(place.span, Fact::Unknown { unknown });
    }
    let mut left = MOST_CODE;
    for line in &lines {
        rule.follow(line);
        let recipe = match line.strip_prefix('\t') {
            Some(recipe) => Some(recipe),
            // Behind a rule's semicolon, or what `!=` takes the output of.
            None => line
                .split_once("!=")
                .map(|(_, code)| code)
                .or_else(|| line.split_once(':').and_then(|(_, rest)| rest.split_once(';')).map(|(_, recipe)| recipe)),
        };
        for code in calls_of_make(line).chain(recipe) {
            // Counted before it is filled, too: that may take longer than what comes of it shows.
            let within = left.checked_sub(code.len() + 1).and_then(|left| {
                let code = rule.filled(code.trim_start_matches(['@', '-', '+', ' ']), LEVELS);
                Some((left.checked_sub(code.len())?, code))
            });
            let Some((rest, code)) = within else {
                run.fact(place.span, Fact::Unknown { unknown: Unknown::TooMuch { bound: "makefile" } });
                return;
            };
            left = rest;
            run.shell(&Argument::new(Text::known(code), place.span));
        }
    }
}

/// Lines as make reads them: one that ends in a backslash goes on in the next. Of recipes the shell joins them.
fn whole_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let ends_open = line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1;
        match lines.last_mut().filter(|_| goes_on) {
            Some(whole) if whole.starts_with('\t') => {
                whole.push('\n');
                whole.push_str(line.strip_prefix('\t').unwrap_or(line));
            }
            Some(whole) => {
                whole.pop();
                whole.push(' ');
                whole.push_str(line);
            }
            None => lines.push(line.to_owned()),
        }
        goes_on = ends_open;
    }
    lines
}

/// Letters of a recipe, once its variables stand there, and calls within each other.
const FILLED: usize = 64 * 1024;
const LEVELS: usize = 8;

/// Words by which a file may set what is not seen here.
const SET_ELSEWHERE: [&str; 6] = ["include", "define", "eval", "load", "file", "MAKEFLAGS"];
/// Words by which a line may not count.
const CONDITIONS: [&str; 4] = ["ifdef", "ifndef", "ifeq", "ifneq"];

/// What a makefile says of its variables and targets. Recipes are filled when they are run: what is set again, above or below, for one target or by
/// another file, is not known.
#[derive(Default)]
struct File<'t> {
    /// What is set here, and to what where that is plain.
    set: BTreeMap<&'t str, Option<&'t str>>,
    /// Whether anything may be set that is not seen.
    hidden: bool,
    /// How many rules a target has.
    rules: BTreeMap<&'t str, usize>,
    /// Whether a target may need what its rule does not say, or find it elsewhere.
    wide: bool,
}

impl<'t> File<'t> {
    fn of(lines: &'t [String], settings: Settings) -> Self {
        let mut file = Self { hidden: settings == Settings::Given, ..Self::default() };
        let mut in_rule = false;
        for line in lines {
            let is_recipe = line.starts_with('\t');
            let bare = line.trim_start();
            if !is_recipe && bare.starts_with('#') || bare.is_empty() {
                continue;
            }
            file.hidden |= SET_ELSEWHERE.iter().any(|word| line.contains(word))
                || !(is_recipe && in_rule) && CONDITIONS.iter().any(|word| bare.starts_with(word));
            file.wide |= line.contains("VPATH") || line.contains("vpath");
            if let Some((before, value)) = line.split_once('=') {
                file.note(before, value, is_recipe && in_rule);
            }
            if !is_recipe {
                file.note_rule(bare);
                in_rule = !line.contains('=') && line.contains(':') && !computes(bare);
            }
        }
        file
    }

    /// What stands left and right of a line's first `=`. In a recipe it is the shell's, if make takes it for one.
    fn note(&mut self, before: &'t str, value: &'t str, in_recipe: bool) {
        // A name that is computed may be any.
        self.hidden |= before.contains('$') && !in_recipe;
        let left = before.trim_end_matches([':', '?', '+', '!', ' ', '\t']);
        let name = left.rsplit([' ', '\t', ':']).next().unwrap_or(left);
        let plain = left == name && !before.ends_with(['?', '+', '!']) && !value.contains(['$', '\\', '#']);
        let value = Some(value.trim()).filter(|_| plain);
        self.set.entry(name).and_modify(|known| *known = None).or_insert(value);
    }

    fn note_rule(&mut self, line: &'t str) {
        // Behind the colon of `:=` no need stands.
        let Some((targets, _)) =
            line.split_once(':').filter(|(_, needs)| !needs.trim_start_matches(':').starts_with('='))
        else {
            return;
        };
        // A target that is computed may be any.
        self.wide |= targets.contains('$');
        for target in targets.split_whitespace() {
            *self.rules.entry(target).or_default() += 1;
        }
    }
}

/// Whether a line begins with a call of a function.
fn computes(line: &str) -> bool {
    line.starts_with("$(") && line.split(')').next().is_some_and(|call| call.contains([' ', ',']))
}

/// The rule that the recipes belong to, and what the file sets.
#[derive(Default)]
struct Rule<'t> {
    target: Option<String>,
    first: Option<String>,
    file: File<'t>,
}

impl Rule<'_> {
    fn follow(&mut self, line: &str) {
        if line.starts_with(['\t', '#']) {
            return;
        }
        if line.contains('=') {
            // A variable, perhaps of one target alone.
            (self.target, self.first) = (None, None);
        } else if let Some((targets, needs)) = line.split_once(':') {
            let one = |words: &str| {
                let mut words = words.split_whitespace();
                words
                    .next()
                    .filter(|word| words.next().is_none() && !word.contains(['$', '%', '*', ':']))
                    .map(str::to_owned)
            };
            self.target = one(targets);
            let alone = self.target.as_deref().is_some_and(|target| self.file.rules.get(target) == Some(&1));
            let is_known = alone && !self.file.wide && !self.file.hidden;
            self.first = one(needs.split(['|', ';']).next().unwrap_or(needs)).filter(|_| is_known);
        }
    }

    /// A recipe as a shell is given it. What make computes is a variable of which nothing is known.
    fn filled(&self, code: &str, levels: usize) -> String {
        let mut filled = String::new();
        let mut rest = code;
        while let Some((before, after)) = rest.split_once('$') {
            filled.push_str(before);
            let mut letters = after.chars();
            let letter = letters.next();
            rest = letters.as_str();
            match letter {
                Some('$') | None => filled.push('$'),
                Some('@') => filled.push_str(self.target.as_deref().unwrap_or("${make_target}")),
                Some('<' | '^') => filled.push_str(self.first.as_deref().unwrap_or("${make_source}")),
                Some(open @ ('(' | '{')) => {
                    let (inside, behind) = enclosed(letters.as_str(), open);
                    filled.push_str(&self.meant(inside, levels));
                    rest = behind;
                }
                // One letter needs no brackets.
                Some(letter) => filled.push_str(&self.meant(letter.encode_utf8(&mut [0; 4]), levels)),
            }
            if filled.len() > FILLED {
                return UNKNOWN.to_owned();
            }
        }
        filled + rest
    }

    fn meant(&self, inside: &str, levels: usize) -> String {
        if let Some(code) = inside.strip_prefix("shell ") {
            let inner = levels.checked_sub(1).map(|levels| self.filled(code, levels));
            return inner.map_or_else(|| UNKNOWN.to_owned(), |code| format!("$({code})"));
        }
        let is_name = |name: &str| name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        match self.file.set.get(inside) {
            Some(Some(value)) if !self.file.hidden => (*value).to_owned(),
            // Of the environment, unless it is make's own.
            None if !self.file.hidden && !inside.is_empty() && is_name(inside) => format!("${{{inside}}}"),
            _ => UNKNOWN.to_owned(),
        }
    }
}

/// A variable of which nothing is known.
const UNKNOWN: &str = "${make_value}";

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

fn calls_of_make(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("$(shell ")
        .filter_map(|(at, found)| line.get(at + found.len()..))
        .map(|rest| rest.rsplit_once(')').map_or(rest, |(code, _)| code))
}
