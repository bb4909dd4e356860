//! `$name` and `${name…}`: looked up, and changed where the value is known.

use super::expand::Expansion;
use super::lists;
use super::tree::Word;
use super::walk::Walker;
use super::word::Quotes;
use crate::analysis::{Fact, Flow};
use crate::glob;
use crate::shell::value::Value;
use crate::text::{Hole, Piece, Text};

/// How an expansion stands in its word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub(super) quoted: bool,
    /// Something stands before and behind it.
    pub(super) middle: bool,
}

/// What the search for programs usually is: only its letters are taken, as in `${PATH:0:1}`.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Expands the inside of `${…}`.
pub(super) fn expand(
    walker: &mut Walker<'_, '_>,
    body: &str,
    word: &Word,
    at: usize,
    standing: Standing,
    expansion: &mut Expansion,
) {
    let quoted = standing.quoted;
    if let Some(name) = body.strip_prefix('#')
        && !name.is_empty()
    {
        let length = lookup(walker, name).and_then(|value| value.first().as_known().map(|known| known.chars().count()));
        match length {
            Some(length) => expansion.value(&Text::known(length.to_string()), quoted),
            None => expansion.value(&Text::hole(Hole::Value), quoted),
        }
        return;
    }
    let (indirect, body) = match body.strip_prefix('!') {
        Some(rest) if !rest.is_empty() => (true, rest),
        _ => (false, body),
    };
    let (name, index, operation) = take_name(body);
    let mut name = walker.reading.scope.named_by(name).unwrap_or(name).to_owned();
    if indirect && matches!(index, Some("@" | "*")) && operation.is_empty() {
        // The places of an array, not what another variable holds.
        expansion.each(&any_of(lookup(walker, &super::assign::keys_of(&name)), &name), quoted);
        return;
    }
    if indirect {
        match lookup(walker, &name).and_then(|value| value.first().as_known().map(str::to_owned)) {
            // Only what the text itself sets can hide a plain word there.
            Some(target) => {
                expansion.disguised |= lookup(walker, &target).is_some();
                name = target;
            }
            None => {
                expansion.value(&Text::hole(Hole::Variable(name)), quoted);
                return;
            }
        }
    }
    if matches!(name.as_str(), "@" | "*") {
        all_arguments(walker, operation, word, standing, expansion);
        return;
    }
    let found = lookup(walker, &name);
    note_secret(walker, &name, found.as_ref(), word, expansion);
    if let Some(found) = &found {
        for flow in &found.flows {
            if !expansion.flows.contains(flow) {
                expansion.flows.push(flow.clone());
            }
        }
    }
    let value = match (&found, index) {
        (Some(value), Some("@" | "*")) => {
            let fields = lists::changed_fields(walker, &name, &value.fields, operation, word, expansion);
            match walker.separators().chars().next() {
                // They are one word then, joined by what the text says.
                between if index == Some("*") && quoted => {
                    let mut whole = Text::default();
                    for (at, field) in fields.into_iter().enumerate() {
                        if let Some(between) = between.filter(|_| at > 0) {
                            whole.append(Text::known(between.to_string()));
                        }
                        whole.append(field);
                    }
                    expansion.value(&whole, quoted);
                }
                _ => expansion.each(&fields, quoted),
            }
            return;
        }
        (Some(_), Some(_)) if lookup(walker, &super::assign::keys_of(&name)).is_some() => {
            if operation.is_empty() {
                expansion.each(&any_of(found, &name), quoted);
                return;
            }
            Some(Text::hole(Hole::Variable(name.clone())))
        }
        (Some(value), Some(index)) => Some(
            index
                .parse::<usize>()
                .ok()
                .and_then(|index| value.fields.get(index).cloned())
                .unwrap_or_else(|| Text::hole(Hole::Variable(name.clone()))),
        ),
        (Some(value), None) => Some(value.first()),
        (None, _) => None,
    };
    // Where the work is done in the home, whoever says "home" means more than a project.
    if name == "HOME" && operation.is_empty() && !walker.reading.scope.variables.contains_key("HOME") {
        expansion.value(&lists::home(walker), quoted);
        return;
    }
    let unset = || Value::hole(&name).first();
    let offset = at + (body.len() - operation.len()) + usize::from(indirect);
    let text = match Operation::of(operation) {
        Operation::None => match (name.as_str(), value) {
            ("IFS", value) => {
                expansion.disguised = true;
                value.unwrap_or_else(|| Text::known(" "))
            }
            (_, value) => value.unwrap_or_else(unset),
        },
        Operation::Default(empty, default) => match value {
            Some(value) if !empty.counts(&value) => {
                // It may still be empty where it is not known: what stands behind may run.
                if value.has_hole() {
                    inner(walker, default, word, offset, expansion);
                }
                value
            }
            _ => inner(walker, default, word, offset, expansion),
        },
        Operation::Assign(empty, default) => match value {
            Some(value) if !empty.counts(&value) => {
                if value.has_hole() {
                    inner(walker, default, word, offset, expansion);
                }
                value
            }
            _ => {
                let text = inner(walker, default, word, offset, expansion);
                walker.reading.scope.set(name.clone(), Value::one(text.clone()));
                text
            }
        },
        Operation::Complain(message) => {
            inner(walker, message, word, offset, expansion);
            value.unwrap_or_else(unset)
        }
        Operation::Instead(empty, other) => {
            let text = inner(walker, other, word, offset, expansion);
            match value {
                Some(value) if empty.counts(&value) => Text::default(),
                Some(value) if value.has_hole() => unset(),
                Some(_) => text,
                None if text.as_known().is_some() => unset(),
                None => text,
            }
        }
        Operation::Change(operation) => {
            let usual = (name == "PATH" && value.is_none()).then(|| Text::known(USUAL_PATH));
            let changed = value
                .or(usual)
                .and_then(|value| value.as_known().map(str::to_owned))
                .and_then(|known| change(walker, &known, operation, word, expansion));
            match changed {
                Some(text) => {
                    expansion.disguised |= hides(operation) && text.chars().any(|letter| !letter.is_whitespace());
                    Text::known(text)
                }
                None => {
                    // What stands behind the operator is expanded too, and may run commands.
                    inner(walker, operation, word, offset, expansion);
                    unset()
                }
            }
        }
    };
    expansion.value(&text, quoted);
}

/// Only cutting single letters out, or replacing, hides a word; taking off an ending is daily work.
pub(super) fn hides(operation: &str) -> bool {
    operation.starts_with(':') || operation.starts_with('/')
}

fn note_secret(walker: &mut Walker<'_, '_>, name: &str, found: Option<&Value>, word: &Word, expansion: &mut Expansion) {
    if found.is_none() && looks_secret(name) {
        let span = walker.span(word);
        walker.fact(span, Fact::ReadsEnvironment { name: Some(Text::known(name)) });
        if !expansion.flows.contains(&Flow::Environment) {
            expansion.flows.push(Flow::Environment);
        }
    }
}

/// Whether a variable of this name would hold a secret.
pub(crate) fn looks_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    [
        "SECRET",
        "TOKEN",
        "PASSW",
        "PASSPHRASE",
        "API_KEY",
        "APIKEY",
        "ACCESS_KEY",
        "PRIVATE_KEY",
        "CREDENTIAL",
        "AUTH_KEY",
    ]
    .iter()
    .any(|part| upper.contains(part))
        || matches!(upper.as_str(), "GH_PAT" | "PGPASSFILE" | "KEY")
}

fn all_arguments(
    walker: &mut Walker<'_, '_>,
    operation: &str,
    word: &Word,
    standing: Standing,
    expansion: &mut Expansion,
) {
    let arguments = walker.reading.scope.arguments.clone();
    if arguments.is_empty() && operation.is_empty() {
        // At the top there are none: `ca$@t` is `cat`.
        expansion.disguised |= standing.middle && !standing.quoted;
        return;
    }
    let texts: Vec<Text> = arguments.iter().map(|argument| argument.text.clone()).collect();
    for flow in arguments.iter().flat_map(|argument| &argument.flows) {
        if !expansion.flows.contains(flow) {
            expansion.flows.push(flow.clone());
        }
    }
    let texts = lists::changed_fields(walker, "@", &texts, operation, word, expansion);
    expansion.each(&texts, standing.quoted);
}

/// The name, its index, and the rest.
fn take_name(body: &str) -> (&str, Option<&str>, &str) {
    let first = body.chars().next();
    let length = match first {
        Some(letter) if letter.is_ascii_digit() => {
            body.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(body.len())
        }
        Some(letter) if letter.is_ascii_alphabetic() || letter == '_' => {
            body.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(body.len())
        }
        Some(letter) => letter.len_utf8(),
        None => 0,
    };
    let (name, rest) = body.split_at(length);
    if let Some(after) = rest.strip_prefix('[')
        && let Some(end) = after.find(']')
    {
        return (name, after.get(..end), after.get(end + 1..).unwrap_or_default());
    }
    (name, None, rest)
}

/// What the text says about a variable, or what every shell has.
/// All that may stand at a place of an array whose places have names, and something else.
fn any_of(array: Option<Value>, name: &str) -> Vec<Text> {
    let mut all = array.map(|array| array.fields).unwrap_or_default();
    all.push(Text::hole(Hole::Variable(name.to_owned())));
    all
}

pub(super) fn lookup(walker: &mut Walker<'_, '_>, name: &str) -> Option<Value> {
    if let Some(other) = walker.reading.scope.named_by(name).map(str::to_owned) {
        return lookup(walker, &other);
    }
    walker.reading.settle(name);
    if let Some(value) = walker.reading.scope.variables.get(name) {
        return Some(value.clone());
    }
    if let Ok(number) = name.parse::<usize>()
        && number > 0
    {
        return walker
            .reading
            .scope
            .arguments
            .get(number - 1)
            .map(|argument| Value { fields: vec![argument.text.clone()], flows: argument.flows.clone() });
    }
    let surroundings = walker.reading.surroundings;
    match name {
        "HOME" => Some(Value::one(Text::known(surroundings.home.clone()))),
        "PWD" => Some(Value::one(
            walker
                .reading
                .scope
                .directory
                .get()
                .cloned()
                .unwrap_or_else(|| Text::known(surroundings.directory.clone())),
        )),
        "SHELL" | "BASH" => Some(Value::one(Text::known("/bin/bash"))),
        // Of a line there is no file: its folder is the one it starts in.
        "BASH_SOURCE" => Some(Value::one(Text::default())),
        "0" => Some(Value::one(Text::known("bash"))),
        _ => None,
    }
}

/// Whether an empty value counts as none: that is what the colon of `:-` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Empty {
    IsNone,
    IsAValue,
}

impl Empty {
    fn counts(self, value: &Text) -> bool {
        self == Self::IsNone && value.as_known() == Some("")
    }
}

pub(super) enum Operation<'a> {
    None,
    Default(Empty, &'a str),
    Assign(Empty, &'a str),
    Complain(&'a str),
    Instead(Empty, &'a str),
    Change(&'a str),
}

impl<'a> Operation<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let (empty, bare) = text.strip_prefix(':').map_or((Empty::IsAValue, text), |bare| (Empty::IsNone, bare));
        let Some(sign) = bare.chars().next() else { return Self::None };
        let rest = bare.get(sign.len_utf8()..).unwrap_or_default();
        match sign {
            '-' => Self::Default(empty, rest),
            '=' => Self::Assign(empty, rest),
            '?' => Self::Complain(rest),
            '+' => Self::Instead(empty, rest),
            _ => Self::Change(text),
        }
    }
}

/// A word within the braces.
pub(super) fn inner(
    walker: &mut Walker<'_, '_>,
    text: &str,
    word: &Word,
    _at: usize,
    expansion: &mut Expansion,
) -> Text {
    let argument = walker.single_of(text, word, Quotes::Mean);
    for flow in argument.flows {
        if !expansion.flows.contains(&flow) {
            expansion.flows.push(flow);
        }
    }
    argument.text
}

/// A pattern: what was quoted in it stands for itself.
fn pattern_of(walker: &mut Walker<'_, '_>, raw: &str, word: &Word, expansion: &mut Expansion) -> Option<String> {
    let text = inner(walker, raw, word, 0, expansion);
    let mut whole = String::new();
    for piece in text.pieces() {
        match piece {
            Piece::Known(known) => {
                for letter in known.chars() {
                    if matches!(letter, '*' | '?' | '[' | ']' | '\\') {
                        // In the value of a variable it would be a pattern, or not: that depends on quotes.
                        if raw.contains(['$', '`']) {
                            return None;
                        }
                        whole.push('\\');
                    }
                    whole.push(letter);
                }
            }
            Piece::Pattern(pattern) if pattern.contains('(') => return None,
            Piece::Pattern(pattern) => whole.push_str(pattern),
            Piece::Hole(_) => return None,
        }
    }
    Some(whole)
}

/// Whether matching a pattern against a value takes no longer than it may: each start and each end of the value may have to be tried,
/// and all of that for many values of one text.
fn affords(walker: &mut Walker<'_, '_>, known: &str, operation: &str) -> bool {
    let tries = match operation.chars().next() {
        Some('%' | '#') => known.len(),
        Some('/') if operation.contains(['*', '?', '[', '$', '`']) => known.len().saturating_pow(2),
        _ => return true,
    };
    let work = tries.saturating_mul(known.len()).saturating_mul(operation.len());
    work <= 4_000_000 && walker.reading.count_text(work / 8).is_ok()
}

/// Changes a known value.
pub(super) fn change(
    walker: &mut Walker<'_, '_>,
    known: &str,
    operation: &str,
    word: &Word,
    expansion: &mut Expansion,
) -> Option<String> {
    if known.len() > 4096 || !affords(walker, known, operation) {
        return None;
    }
    let letters: Vec<char> = known.chars().collect();
    if let Some(range) = operation.strip_prefix(':') {
        let (offset, length) = range.split_once(':').map_or((range, None), |(offset, length)| (offset, Some(length)));
        let count = i64::try_from(letters.len()).ok()?;
        let number = |text: &str| super::arithmetic::fold(text);
        let start = number(offset)?;
        let start = if start < 0 { count + start } else { start }.clamp(0, count);
        let end = match length.map(number) {
            None => count,
            Some(length) => {
                let length = length?;
                if length < 0 { count + length } else { start + length }.clamp(start, count)
            }
        };
        return Some(letters.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)?.iter().collect());
    }
    match operation {
        "^^" | "@U" => return Some(known.to_uppercase()),
        ",," | "@L" => return Some(known.to_lowercase()),
        "^" | "," => {
            let first: String = letters.first()?.to_string();
            let first = if operation == "^" { first.to_uppercase() } else { first.to_lowercase() };
            return Some(first + &letters.get(1..)?.iter().collect::<String>());
        }
        "@P" => {
            // As a prompt is shown: substitutions in the value run.
            walker.single_of(known, word, Quotes::Plain);
            return None;
        }
        "@Q" | "@E" | "@A" => return None,
        _ => {}
    }
    for (sign, prefix, longest) in [("##", true, true), ("#", true, false), ("%%", false, true), ("%", false, false)] {
        if let Some(pattern) = operation.strip_prefix(sign) {
            let pattern = pattern_of(walker, pattern, word, expansion)?;
            return Some(glob::strip(known, &pattern, glob::Strip { prefix, longest }).to_owned());
        }
    }
    let rest = operation.strip_prefix('/')?;
    let (all, rest) = rest.strip_prefix('/').map_or((false, rest), |rest| (true, rest));
    // A quoted slash does not end the pattern, and `&` may stand for what was found.
    if rest.contains(['\'', '"', '\\', '&']) {
        return None;
    }
    let (pattern, replacement) = rest.split_once('/').unwrap_or((rest, ""));
    let pattern = pattern_of(walker, pattern, word, expansion)?;
    let replacement = inner(walker, replacement, word, 0, expansion);
    let replacement = replacement.pieces().iter().try_fold(String::new(), |whole, piece| match piece {
        Piece::Known(text) | Piece::Pattern(text) => Some(whole + text),
        Piece::Hole(_) => None,
    })?;
    glob::replace(known, &pattern, &replacement, all)
}
