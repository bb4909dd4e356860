//! What lists and objects become by their methods.

use std::rc::Rc;

use super::fold::joined;
use super::heap::Made;
use super::value::{Held, ITEMS, Value};
use crate::text::{Hole, Piece, Text};

/// What a method of a list or an object gives, if it can be told.
pub(super) fn list_method(receiver: &Value, method: &str, args: &[Held]) -> Option<Value> {
    if let Some(fields) = &receiver.fields
        && receiver.functions.is_empty()
    {
        let pair = |key: &str, held: &Held| Rc::new(Value::list(vec![Rc::new(Value::known(key)), Rc::clone(held)]));
        return match method {
            "values" => Some(Value::list(fields.iter().map(|(_, held)| Rc::clone(held)).collect())),
            "items" | "entries" => Some(Value::list(fields.iter().map(|(key, held)| pair(key, held)).collect())),
            "keys" => Some(Value::list(fields.iter().map(|(key, _)| Rc::new(Value::known(&**key))).collect())),
            "copy" => Some(Value { made: Made::default(), ..receiver.clone() }),
            "popitem" => Some(Value::list(vec![Held::default(), Rc::new(receiver.any_field())])),
            _ => None,
        };
    }
    let items = receiver.items.as_ref()?;
    match method {
        "join" => {
            let between = args.first().map_or(Some(","), |arg| arg.as_known())?;
            joined(receiver, between)
        }
        "reverse" | "toReversed" => Some(Value::list(items.iter().rev().cloned().collect())),
        "concat" => {
            let mut all = (**items).clone();
            for arg in args {
                match &arg.items {
                    Some(more) => all.extend(more.iter().cloned()),
                    None => all.push(Rc::clone(arg)),
                }
            }
            Some(Value::list(all))
        }
        "slice" => {
            let number = |at: usize| args.get(at).map(|arg| arg.number);
            match (number(0), number(1)) {
                (Some(None), _) | (_, Some(None)) => Some(Value { made: Made::default(), ..receiver.clone() }),
                (start, end) => {
                    let taken = places(items.len(), start.flatten(), end.flatten(), None);
                    Some(Value::list(taken.into_iter().filter_map(|at| items.get(at)).cloned().collect()))
                }
            }
        }
        "pop" | "shift" | "at" | "popleft" | "get" | "get_nowait" | "find" | "findLast" | "__getitem__"
        | "__next__" => {
            let at = match (method, args.first().map(|arg| arg.number)) {
                ("shift" | "popleft", _) => Some(0),
                ("pop", None) => Some(-1),
                ("at" | "pop" | "__getitem__", Some(at)) => at,
                _ => None,
            };
            let last = i64::try_from(items.len()).ok()?;
            let one = at.and_then(|at| usize::try_from(if at < 0 { at.checked_add(last)? } else { at }).ok());
            match one.and_then(|at| items.get(at)).filter(|_| items.len() == 1 || method == "at") {
                Some(item) => Some((**item).clone()),
                None => Some(receiver.any_item()),
            }
        }
        "next" => Some(Value::object(vec![("value".into(), Rc::new(receiver.any_item()))])),
        "sort" | "fill" => Some(receiver.clone()),
        "copy" | "flat" | "filter" | "values" | "toSorted" => Some(Value { made: Made::default(), ..receiver.clone() }),
        "entries" => Some(Value::list(
            items.iter().map(|item| Rc::new(Value::list(vec![Held::default(), Rc::clone(item)]))).collect(),
        )),
        _ => None,
    }
}

/// `$HOME` and `${HOME}` in the texts, as what they stand for; another variable is not known.
pub(super) fn expanded(value: &Value) -> Value {
    let expand = |text: &Text| {
        let mut whole = Text::default();
        for piece in text.pieces() {
            let Piece::Known(known) = piece else {
                whole.push(piece.clone());
                continue;
            };
            let mut rest = known.as_str();
            while let Some((before, after)) = rest.split_once('$') {
                whole.push(Piece::Known(before.to_owned()));
                let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
                let (name, behind) = match after.strip_prefix('{').and_then(|inside| inside.split_once('}')) {
                    Some(found) => found,
                    None => after.split_at(after.find(|letter| !is_letter(letter)).unwrap_or(after.len())),
                };
                match name {
                    "" => whole.push(Piece::Known("$".to_owned())),
                    name => whole.push(Piece::Hole(Hole::Variable(name.to_owned()))),
                }
                rest = behind;
            }
            whole.push(Piece::Known(rest.to_owned()));
        }
        whole
    };
    let texts: Vec<Text> = value.texts.iter().map(expand).collect();
    Value { texts: texts.into(), names: value.names.clone(), ..Value::default() }
}

/// The letters of a text, as a list.
pub(super) fn as_letters(text: &str) -> Rc<Vec<Held>> {
    Rc::new(text.chars().take(ITEMS).map(|letter| Rc::new(Value::known(letter))).collect())
}

/// The places that `[start:end:step]` takes of a list.
pub(super) fn places(length: usize, start: Option<i64>, end: Option<i64>, step: Option<i64>) -> Vec<usize> {
    let Ok(length) = i64::try_from(length) else { return Vec::new() };
    let place = |at: i64| if at < 0 { at.saturating_add(length).max(-1) } else { at.min(length) };
    let step = step.unwrap_or(1);
    let mut taken = Vec::new();
    let (mut at, end) = if step > 0 {
        (start.map_or(0, |at| place(at).max(0)), end.map_or(length, |at| place(at).max(0)))
    } else {
        (start.map_or(length - 1, |at| place(at).min(length - 1)), end.map_or(-1, place))
    };
    while step != 0 && if step > 0 { at < end } else { at > end } {
        taken.extend(usize::try_from(at));
        at = at.saturating_add(step);
    }
    taken
}

/// `text.translate(table)`: each letter as the table says.
pub(super) fn translated(text: &str, table: &Value) -> Option<Value> {
    let fields = table.fields.as_ref()?;
    let letter = |letter: char| {
        let mut known = [0; 4];
        let (plain, code) = (&*letter.encode_utf8(&mut known), u32::from(letter).to_string());
        match fields.iter().find(|(key, _)| **key == *plain || **key == *code) {
            Some((_, to)) => to.as_known().map(str::to_owned).or_else(|| {
                let code = to.number.and_then(|code| u32::try_from(code).ok()).and_then(char::from_u32);
                Some(code.map(String::from).unwrap_or_default())
            }),
            None => Some(letter.to_string()),
        }
    };
    let all: Option<String> = text.chars().map(letter).collect();
    Some(Value::decoded(all?))
}

/// `str.maketrans(from, to, away)`.
pub(super) fn table(args: &[Held]) -> Option<Value> {
    let text = |at: usize| args.get(at).and_then(|arg| arg.as_known());
    if args.len() == 1 {
        return args.first().map(|table| Value::clone(table));
    }
    let mut fields: Vec<(Rc<str>, Held)> = text(0)?
        .chars()
        .zip(text(1)?.chars())
        .map(|(from, to)| (from.to_string().into(), Rc::new(Value::known(to))))
        .collect();
    for away in text(2).unwrap_or_default().chars() {
        fields.push((away.to_string().into(), Rc::new(Value::known(""))));
    }
    Some(Value::object(fields))
}
