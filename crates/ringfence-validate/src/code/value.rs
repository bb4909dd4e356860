//! What an expression may hold, as far as the text shows it. Every part is bounded, so that a hostile text cannot make it grow.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::analysis::Flow;
use crate::text::{Hole, Piece, Text};

/// Ways that one text may read. With more, it is not known.
const TEXTS: usize = 8;
/// Bytes of one text.
pub(crate) const TEXT_BYTES: usize = 256 * 1024;
/// Pieces of one text.
const PIECES: usize = 64;
/// Full names that one value may have.
const NAMES: usize = 8;
/// Functions of the program that one value may be.
const FUNCTIONS: usize = 8;
/// Items of a list, fields of an object.
pub(crate) const ITEMS: usize = 256;
/// Different sources of data.
const FLOWS: usize = 16;
/// Bytes of a full name.
const NAME_BYTES: usize = 160;
/// Lists and objects within each other. Deeper ones are not looked into: dropping them, too, goes down as far as they are deep.
const DEPTH: u8 = 12;

/// Shared, as names and lists hand it on.
pub(crate) type Held = Rc<Value>;

/// What an expression may hold. All empty: nothing is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Value {
    /// How it may read.
    pub(crate) texts: Vec<Text>,
    pub(crate) number: Option<i64>,
    pub(crate) truth: Option<bool>,
    /// Things of the language and its libraries that it may be, by full name: `os.system`; `socket.socket()` for what a call gives.
    pub(crate) names: Vec<Rc<str>>,
    /// Functions of the program that it may be.
    pub(crate) functions: Vec<usize>,
    /// Where its contents come from.
    pub(crate) flows: BTreeSet<Flow>,
    /// By [`Value::list`] alone.
    pub(crate) items: Option<Rc<Vec<Held>>>,
    /// By [`Value::object`] alone.
    pub(crate) fields: Option<Rc<Vec<(String, Held)>>>,
    pub(crate) depth: u8,
    pub(crate) making: Making,
}

/// How a text came to be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Making {
    /// Written, or not known.
    #[default]
    Plain,
    /// Put together from two written texts or more.
    Built,
    /// Decoded from something that people do not read.
    Decoded,
}

impl Value {
    pub(crate) fn text(text: Text) -> Self {
        Self { texts: vec![text], ..Self::default() }
    }

    pub(crate) fn known(text: impl Into<String>) -> Self {
        Self::text(Text::known(text))
    }

    pub(crate) fn decoded(text: impl Into<String>) -> Self {
        Self { making: Making::Decoded, ..Self::known(text) }
    }

    pub(crate) fn number(number: i64) -> Self {
        Self { number: Some(number), ..Self::default() }
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut value = Self::default();
        value.add_name(name);
        value
    }

    pub(crate) fn list(mut items: Vec<Held>) -> Self {
        items.truncate(ITEMS);
        let mut value = Self { depth: 1 + items.iter().map(|item| item.depth).max().unwrap_or(0), ..Self::default() };
        items.iter().for_each(|item| value.add_flows(&item.flows));
        if value.depth <= DEPTH { Self { items: Some(Rc::new(items)), ..value } } else { Self { depth: 0, ..value } }
    }

    pub(crate) fn object(mut fields: Vec<(String, Held)>) -> Self {
        fields.truncate(ITEMS);
        let mut value =
            Self { depth: 1 + fields.iter().map(|(_, field)| field.depth).max().unwrap_or(0), ..Self::default() };
        fields.iter().for_each(|(_, field)| value.add_flows(&field.flows));
        if value.depth <= DEPTH { Self { fields: Some(Rc::new(fields)), ..value } } else { Self { depth: 0, ..value } }
    }

    /// How much work it is to copy it.
    pub(crate) fn size(&self) -> usize {
        let texts: usize = self.texts.iter().map(text_bytes).sum();
        texts
            + 8 * self.names.len()
            + self.items.as_ref().map_or(0, |items| items.len())
            + self.fields.as_ref().map_or(0, |fields| fields.len())
    }

    pub(crate) fn add_name(&mut self, name: &str) {
        if name.len() <= NAME_BYTES && self.names.len() < NAMES && !self.names.iter().any(|known| &**known == name) {
            self.names.push(name.into());
        }
    }

    pub(crate) fn add_flows<'a>(&mut self, flows: impl IntoIterator<Item = &'a Flow>) {
        for flow in flows {
            if self.flows.len() < FLOWS && !self.flows.contains(flow) {
                self.flows.insert(flow.clone());
            }
        }
    }

    /// The one text that it is, if it is known.
    pub(crate) fn as_known(&self) -> Option<&str> {
        match self.texts.as_slice() {
            [text] => text.as_known(),
            _ => None,
        }
    }

    /// How it reads; a hole if nothing is known.
    pub(crate) fn readings(&self) -> Vec<Text> {
        if !self.texts.is_empty() {
            return self.texts.clone();
        }
        match self.number {
            Some(number) => vec![Text::known(number.to_string())],
            None => vec![Text::hole(Hole::Value)],
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| &**known == name)
    }

    /// What a field may hold.
    pub(crate) fn field(&self, name: &str) -> Option<Held> {
        let mut found = self.fields.as_ref()?.iter().filter(|(key, _)| key == name).map(|(_, value)| value);
        let first = Rc::clone(found.next()?);
        Some(found.fold(first, |value, other| Rc::new(Self::clone(&value).or(other))))
    }

    /// One item of it, whichever.
    pub(crate) fn any_item(&self) -> Self {
        let mut any = match &self.items {
            Some(items) => items.iter().fold(Self::default(), |any, item| any.or(item)),
            // What a search for files gives is one of them, each time.
            None if self
                .names
                .iter()
                .any(|name| matches!(&**name, "pathlib.Path()" | "glob.glob()" | "glob.iglob()")) =>
            {
                Self { texts: self.texts.clone(), names: self.names.clone(), ..Self::default() }
            }
            None => Self::default(),
        };
        any.add_flows(&self.flows);
        any
    }

    /// This, or the other.
    #[must_use]
    pub(crate) fn or(mut self, other: &Self) -> Self {
        for text in &other.texts {
            if self.texts.contains(text) {
                continue;
            }
            if self.texts.len() < TEXTS {
                self.texts.push(text.clone());
            } else if let Some(last) = self.texts.last_mut() {
                *last = Text::hole(Hole::Value);
            }
        }
        other.names.iter().for_each(|name| self.add_name(name));
        for function in &other.functions {
            if self.functions.len() < FUNCTIONS && !self.functions.contains(function) {
                self.functions.push(*function);
            }
        }
        self.add_flows(&other.flows);
        self.number = if self.number.is_none() { other.number } else { self.number };
        self.truth = if self.truth.is_none() { other.truth } else { self.truth };
        if self.items.is_none() {
            self.items.clone_from(&other.items);
        }
        self.fields = match (self.fields.take(), &other.fields) {
            (Some(mine), Some(theirs)) if !Rc::ptr_eq(&mine, theirs) && mine.len() + theirs.len() <= ITEMS => {
                let mut both = (*mine).clone();
                both.extend(theirs.iter().cloned());
                Some(Rc::new(both))
            }
            (mine, theirs) => mine.or_else(|| theirs.clone()),
        };
        self.depth = self.depth.max(other.depth);
        self.making = self.making.max(other.making);
        self
    }
}

/// Every way that `parts` read one after the other.
pub(crate) fn join(parts: &[Held], between: &str) -> Value {
    let mut value = Value { texts: vec![Text::default()], ..Value::default() };
    let mut written = 0;
    for (index, part) in parts.iter().enumerate() {
        let readings = part.readings();
        written += usize::from(part.as_known().is_some_and(|text| !text.is_empty()));
        let mut longer = Vec::new();
        for before in &value.texts {
            for reading in &readings {
                if longer.len() >= TEXTS {
                    break;
                }
                let mut text = before.clone();
                if index > 0 {
                    text.push(Piece::Known(between.to_owned()));
                }
                text.append(reading.clone());
                longer.push(if is_small(&text) { text } else { Text::hole(Hole::Value) });
            }
        }
        value.texts = longer;
        value.add_flows(&part.flows);
        value.making = value.making.max(part.making);
    }
    if written > 1 && between.is_empty() {
        value.making = value.making.max(Making::Built);
    }
    value
}

fn is_small(text: &Text) -> bool {
    text_bytes(text) <= TEXT_BYTES && text.pieces().len() <= PIECES
}

fn text_bytes(text: &Text) -> usize {
    text.pieces()
        .iter()
        .map(|piece| match piece {
            Piece::Known(known) | Piece::Pattern(known) => known.len(),
            Piece::Hole(_) => 1,
        })
        .sum()
}
