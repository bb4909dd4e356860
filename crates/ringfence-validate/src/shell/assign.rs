//! Assignments: plain ones, those that add, and arrays.

use super::scan::{From, scan};
use super::tree::Word;
use super::value::Value;
use super::walk::Walker;
use super::word::Quotes;
use crate::span::Span;
use crate::text::{Hole, Text};

impl Walker<'_, '_> {
    /// A name and its value, from `name=value`, `name+=value` or `name=(a b)`.
    pub(super) fn assignment(&mut self, word: &Word) -> Option<(String, Value, Span)> {
        let (left, right) = word.raw.split_once('=')?;
        let (left, adds) = left.strip_suffix('+').map_or((left, false), |left| (left, true));
        let (name, index) = left.split_once('[').map_or((left, None), |(name, index)| (name, Some(index)));
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
            value = match (before, index.trim_end_matches(']').parse::<usize>()) {
                (Some(before), Ok(index)) if index < before.fields.len() => {
                    let mut all = before.clone();
                    if let (Some(place), Some(field)) = (all.fields.get_mut(index), value.fields.pop()) {
                        *place = field;
                    }
                    all
                }
                (Some(before), Ok(index)) if index == before.fields.len() => {
                    let mut all = before.clone();
                    all.fields.extend(value.fields);
                    all
                }
                (None, Ok(0)) => value,
                _ => Value { flows: value.flows, ..Value::hole(name) },
            };
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

    /// An array whose elements have keys: those are kept beside it, in the same order. Nothing for others.
    fn placed(
        &mut self,
        name: &str,
        index: Option<&str>,
        adds: bool,
        keys: Vec<Text>,
        value: &Value,
        word: &Word,
    ) -> Option<Value> {
        let beside = keys_of(name);
        let known = self.reading.scope.variables.get(&beside).cloned();
        let key = index.map(|index| index.trim_end_matches(']'));
        if index.is_none() && !adds {
            if keys.is_empty() {
                if known.is_some() {
                    self.reading.scope.unset(&beside);
                }
                return None;
            }
            self.reading.scope.place(beside, Value { fields: keys, flows: Vec::new() });
            return Some(value.clone());
        }
        // A number is a place of an ordinary array, unless it has keys already.
        let named = key.is_some_and(|key| key.parse::<usize>().is_err()) && !adds;
        let (Some(key), true) = (key, known.is_some() || named) else {
            if known.is_some() {
                self.reading.scope.unset(&beside);
                return Some(Value { flows: value.flows.clone(), ..Value::hole(name) });
            }
            return None;
        };
        let mut all = self.reading.scope.variables.get(name).cloned().unwrap_or_default();
        let mut keys = known.unwrap_or_default();
        if keys.fields.len() != all.fields.len() {
            // What was there before has other places: nothing is known any more.
            self.reading.scope.unset(&beside);
            return Some(Value { flows: all.flows, ..Value::hole(name) });
        }
        let key = self.single_of(key, word, Quotes::Mean).text;
        if let (Some(at), false) = (keys.fields.iter().position(|other| *other == key), key.has_hole()) {
            keys.fields.remove(at);
            all.fields.remove(at);
        }
        keys.fields.push(key);
        all.fields.push(if adds { Text::hole(Hole::Value) } else { value.first() });
        all.flows.extend(value.flows.clone());
        self.reading.scope.place(beside, keys);
        Some(all)
    }

    /// The elements of `(a "b c")`.
    fn array(&mut self, list: &str, word: &Word, keys: &mut Vec<Text>) -> Value {
        let mut value = Value::default();
        let mut odd = false;
        let elements = elements(list);
        let key_of = |element: &str| element.strip_prefix('[')?.split_once("]=").map(|(key, _)| key.len());
        let placed = !elements.is_empty() && elements.iter().all(|element| key_of(element).is_some());
        for element in elements {
            if let (true, Some(length)) = (placed, key_of(&element)) {
                // `[key]=value`: both stand for one text.
                let (key, rest) =
                    (element.get(1..=length).unwrap_or_default(), element.get(length + 3..).unwrap_or_default());
                keys.push(self.single_of(key, word, Quotes::Mean).text);
                let argument = self.single_of(rest, word, Quotes::Mean);
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

/// The name under which the keys of an array are kept: none that a text could write.
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
