//! Assignments: plain ones, those that add, and arrays.

use super::scan::{From, scan};
use super::tree::Word;
use super::value::Value;
use super::walk::Walker;
use super::word::Quotes;
use crate::reading::Reading;
use crate::span::Span;
use crate::text::{Hole, Text};

/// Places of an array that are kept by their numbers, at most.
const MOST_NUMBERED: usize = 64;

impl Walker<'_, '_> {
    /// A name and its value, from `name=value`, `name+=value` or `name=(a b)`.
    pub(super) fn assignment(&mut self, word: &Word) -> Option<(String, Value, Span)> {
        let (left, right) = word.raw.split_once('=')?;
        let (left, adds) = left.strip_suffix('+').map_or((left, false), |left| (left, true));
        let (name, index) = left.split_once('[').map_or((left, None), |(name, index)| (name, Some(index)));
        let named = self.reading.scope.named_by(name).map(str::to_owned);
        let name = named.as_deref().unwrap_or(name);
        let span = self.span(word);
        let mut keys = Vec::new();
        let mut value = if let Some(list) = right.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            self.array(list, word, &mut keys)
        } else {
            let argument = self.single_of(right, word, Quotes::Mean);
            Value { fields: vec![argument.text], flows: argument.flows }
        };
        if adds || index.is_some() {
            self.reading.settle(name);
        }
        if let Some(all) = self.placed(name, index, adds, keys, &value, word) {
            return Some((name.to_owned(), all, span));
        }
        let before = self.reading.scope.variables.get(name);
        if let Some(index) = index {
            value = with_place(name, before, index.trim_end_matches(']'), value);
            if adds {
                value = Value { flows: value.flows, ..Value::hole(name) };
            }
        } else if adds {
            let mut all = before.cloned().unwrap_or_else(|| Value::hole(name));
            if right.starts_with('(') {
                all.fields.extend(value.fields);
            } else if let (Some(first), Some(more)) = (all.fields.first_mut(), value.fields.pop()) {
                first.append(more);
            }
            all.flows.extend(value.flows);
            value = all;
        }
        Some((name.to_owned(), value, span))
    }

    /// An array whose elements have names for places: which of them a place means is not followed, only that it is one of them. An array
    /// that was such a one is one for good. Nothing for others.
    fn placed(
        &mut self,
        name: &str,
        index: Option<&str>,
        adds: bool,
        mut keys: Vec<Text>,
        value: &Value,
        word: &Word,
    ) -> Option<Value> {
        let beside = keys_of(name);
        let known = self.reading.scope.variables.get(&beside).cloned();
        let key = index.map(|index| index.trim_end_matches(']'));
        if known.is_none() && keys.is_empty() && !key.is_some_and(is_name) {
            return None;
        }
        keys.extend(key.map(|key| self.single_of(key, word, Quotes::Mean).text));
        let mut places = known.unwrap_or_default();
        places.fields.extend(keys);
        self.reading.scope.place(beside, places);
        if key.is_none() && !adds {
            return Some(value.clone());
        }
        let mut all = self.reading.scope.variables.get(name).cloned().unwrap_or_default();
        all.fields.extend(value.fields.iter().cloned());
        if adds {
            all.fields.push(Text::hole(Hole::Value));
        }
        all.flows.extend(value.flows.clone());
        Some(all)
    }

    /// The elements of `([1]=a [2]="b c")`, where each says by a number where it stands; what stands between them is not known.
    fn numbered(&mut self, elements: &[String], word: &Word) -> Option<Value> {
        let placed = |element: &str| {
            let (key, value) = element.strip_prefix('[')?.split_once("]=")?;
            let at = key.trim_matches(['"', '\'']).parse::<usize>().ok().filter(|at| *at < MOST_NUMBERED)?;
            Some((at, value.to_owned()))
        };
        let placed: Vec<(usize, String)> = elements.iter().map(|element| placed(element)).collect::<Option<_>>()?;
        let length = placed.iter().map(|(at, _)| at + 1).max()?;
        let mut value = Value { fields: vec![Text::hole(Hole::Value); length], flows: Vec::new() };
        for (at, raw) in placed {
            let argument = self.single_of(&raw, word, Quotes::Mean);
            if let Some(field) = value.fields.get_mut(at) {
                *field = argument.text;
            }
            value.flows.extend(argument.flows);
        }
        value.flows.dedup();
        Some(value)
    }

    /// The elements of `(a "b c")`.
    fn array(&mut self, list: &str, word: &Word, keys: &mut Vec<Text>) -> Value {
        let mut value = Value::default();
        let mut odd = false;
        let elements = elements(list);
        let placed = |element: &str| {
            let (key, value) = element.strip_prefix('[')?.split_once("]=")?;
            Some((key.to_owned(), value.to_owned()))
        };
        if let Some(value) = self.numbered(&elements, word) {
            return value;
        }
        let named = elements.iter().all(|element| placed(element).is_some_and(|(key, _)| is_name(&key)));
        for element in elements {
            let place = placed(&element);
            if let Some((key, _)) = &place {
                keys.push(self.single_of(key, word, Quotes::Mean).text);
            }
            if let (true, Some((_, rest))) = (named, place) {
                let argument = self.single_of(&rest, word, Quotes::Mean);
                value.fields.push(argument.text);
                value.flows.extend(argument.flows);
                continue;
            }
            odd |= element.starts_with('[') && element.contains("]=") || element.contains("]+=");
            let part = Word { raw: element, at: word.at };
            for argument in self.fields(&part) {
                value.fields.push(argument.text);
                value.flows.extend(argument.flows);
            }
        }
        value.flows.dedup();
        if odd {
            // Some elements that say where they stand: not followed.
            value.fields = vec![Text::hole(Hole::Value)];
        }
        value
    }
}

/// An array with one place set: not known where the place is not.
fn with_place(name: &str, before: Option<&Value>, index: &str, mut value: Value) -> Value {
    match (before, index.parse::<usize>()) {
        (Some(before), Ok(index)) if index < before.fields.len() => {
            let mut all = before.clone();
            if let (Some(place), Some(field)) = (all.fields.get_mut(index), value.fields.pop()) {
                *place = field;
            }
            all.flows.extend(value.flows);
            all
        }
        (Some(before), Ok(index)) if index == before.fields.len() => {
            let mut all = before.clone();
            all.fields.extend(value.fields);
            all.flows.extend(value.flows);
            all
        }
        (None, Ok(0)) => value,
        _ => Value { flows: value.flows, ..Value::hole(name) },
    }
}

impl Reading<'_> {
    /// Sets what a command names as its target: a variable, or `name[place]` of an array.
    pub(crate) fn set_named(&mut self, target: &str, value: Value) {
        let Some((array, index)) = target.split_once('[') else {
            self.scope.set(target.to_owned(), value);
            return;
        };
        let array = self.scope.named_by(array).unwrap_or(array).to_owned();
        self.settle(&array);
        let before = self.scope.variables.get(&array);
        let value = if self.scope.variables.contains_key(&keys_of(&array)) {
            let mut all = before.cloned().unwrap_or_default();
            all.fields.extend(value.fields);
            all.flows.extend(value.flows);
            all
        } else {
            with_place(&array, before, index.trim_end_matches(']'), value)
        };
        self.scope.set(array, value);
    }
}

/// Whether a place of an array is written as a plain name, which is never reckoned to be another place where the array has names.
fn is_name(key: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "_-.".contains(letter);
    key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') && key.chars().all(letter)
}

/// The name under which it is kept that an array's places have names: none that a text could write.
pub(super) fn keys_of(name: &str) -> String {
    format!("!{name}")
}

/// Whether the command sets variables by words such as `export A=b`.
pub(super) fn declaration(words: &[Word]) -> bool {
    words
        .first()
        .is_some_and(|word| matches!(word.raw.as_str(), "export" | "declare" | "local" | "typeset" | "readonly"))
}

/// Whether it adds to a variable, or sets one or all elements of an array.
pub(super) fn is_intricate(raw: &str) -> bool {
    raw.split_once('=').is_some_and(|(left, right)| {
        let name = left.split(['+', '[']).next().unwrap_or_default();
        let plain = !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
        plain && (left.ends_with(['+', ']']) || right.starts_with('('))
    })
}

pub(super) fn is_assignment(raw: &str) -> bool {
    raw.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    })
}

/// The words of an array's list.
pub(super) fn elements(list: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut start = None;
    let bytes = list.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte.is_ascii_whitespace() {
            if let Some(start) = start.take() {
                found.extend(list.get(start..at).map(str::to_owned));
            }
            at += 1;
            continue;
        }
        if byte == b'#' && start.is_none() {
            at += list.get(at..).and_then(|rest| rest.find('\n')).unwrap_or(list.len());
            continue;
        }
        start.get_or_insert(at);
        let next = bytes.get(at + 1).copied();
        let end = match (byte, next) {
            (b'\\', _) => at + 2,
            (b'\'' | b'`', _) => list
                .get(at + 1..)
                .and_then(|rest| rest.find(char::from(byte)))
                .map_or(list.len(), |length| at + length + 2),
            (b'"', _) => double_quotes(list, at + 1),
            (b'$' | b'<' | b'>', Some(b'(')) => scan(list, at + 2, From::Command).map_or(list.len(), |scan| scan.end),
            (b'$', Some(b'{')) => scan(list, at + 2, From::Parameter).map_or(list.len(), |scan| scan.end),
            _ => at + 1,
        };
        at = end;
    }
    if let Some(start) = start {
        found.extend(list.get(start..).map(str::to_owned));
    }
    found
}

/// The end of double quotes that open before `at`.
fn double_quotes(list: &str, mut at: usize) -> usize {
    let bytes = list.as_bytes();
    while let Some(&byte) = bytes.get(at) {
        match (byte, bytes.get(at + 1)) {
            (b'"', _) => return at + 1,
            (b'\\', _) => at += 2,
            (b'$', Some(b'(')) => at = scan(list, at + 2, From::Command).map_or(list.len(), |scan| scan.end),
            _ => at += 1,
        }
    }
    list.len()
}
