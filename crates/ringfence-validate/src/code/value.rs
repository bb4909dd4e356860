//! What an expression may hold, as far as the text shows it. Every part is bounded, so that a hostile text cannot make it grow.

use std::rc::Rc;

use super::either::{either_fields, either_items};
use super::few::Few;
use super::flows::Flows;
use super::heap::Made;
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
const FUNCTIONS: usize = 16;
/// Items of a list, fields of an object.
pub(crate) const ITEMS: usize = 256;
/// Bytes of a full name.
const NAME_BYTES: usize = 160;
/// Items of two lists that are told apart place by place when one value may be either.
pub(super) const PAIRED: usize = 32;
/// Values by one key of an object that are told apart.
const VARIANTS: usize = 2;
/// The key of what is put into a container by a key that is not known.
pub(crate) const ANY_KEY: &str = "[]";
/// Lists and objects within each other. Deeper ones are not looked into: dropping them, too, goes down as far as they are deep.
const DEPTH: u8 = 12;

/// Shared, as names and lists hand it on.
pub(crate) type Held = Rc<Value>;

/// A field of an object, by its key.
pub(crate) type Field = (Rc<str>, Held);

/// What an expression may hold. All empty: nothing is known.
#[derive(Debug, Clone, Default)]
pub(crate) struct Value {
    /// How it may read.
    pub(crate) texts: Few<Text>,
    pub(crate) number: Option<i64>,
    pub(crate) truth: Option<bool>,
    /// Things of the language and its libraries that it may be, by full name: `os.system`; `socket.socket()` for what a call gives.
    pub(crate) names: Few<Rc<str>>,
    /// Functions of the program that it may be.
    pub(crate) functions: Few<usize>,
    /// Where its contents come from.
    pub(crate) flows: Flows,
    /// By [`Value::list`] alone.
    pub(crate) items: Option<Rc<Vec<Held>>>,
    /// By [`Value::object`] alone.
    pub(crate) fields: Option<Rc<Vec<Field>>>,
    pub(crate) depth: u8,
    pub(crate) making: Making,
    /// Whether `number` is only one of those that it may be.
    pub(crate) many: bool,
    /// Arguments that a function was given before it is called.
    pub(crate) bound: Option<Rc<Bound>>,
    /// Where it was made, if it is a container.
    pub(crate) made: Made,
}

/// The first arguments of a function, as `functools.partial` and `bind` keep them.
#[derive(Debug, Default)]
pub(crate) struct Bound {
    pub(crate) args: Vec<Held>,
    pub(crate) named: Vec<(String, Held)>,
}

/// What a value learns from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Learned {
    Nothing,
    /// Where it was made, or whom it was handed to: that finds its way by itself.
    Origins,
    News,
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
        Self { texts: Few::one(text), ..Self::default() }
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
        let mut value = Self { depth: 1 + items.iter().map(|item| item.depth).max().unwrap_or(0), ..Self::default() };
        items.iter().for_each(|item| value.flows.add_all(&item.flows));
        if items.len() > ITEMS {
            items.truncate(ITEMS - 1);
            items.push(Rc::new(value.one_of_many()));
        }
        if value.depth <= DEPTH { Self { items: Some(Rc::new(items)), ..value } } else { Self { depth: 0, ..value } }
    }

    pub(crate) fn object(mut fields: Vec<(Rc<str>, Held)>) -> Self {
        let mut value =
            Self { depth: 1 + fields.iter().map(|(_, field)| field.depth).max().unwrap_or(0), ..Self::default() };
        fields.iter().for_each(|(_, field)| value.flows.add_all(&field.flows));
        if fields.len() > ITEMS {
            fields.truncate(ITEMS - 1);
            fields.push((ANY_KEY.into(), Rc::new(value.one_of_many())));
        }
        if value.depth <= DEPTH { Self { fields: Some(Rc::new(fields)), ..value } } else { Self { depth: 0, ..value } }
    }

    /// What stands for everything that a container has no room for.
    fn one_of_many(&self) -> Self {
        Self { flows: self.flows.clone(), ..Self::text(Text::hole(Hole::Value)) }
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

    pub(crate) fn add_names(&mut self, names: &Few<Rc<str>>) {
        self.names.add_all(names, NAMES);
    }

    /// The one text that it is, if it is known.
    pub(crate) fn as_known(&self) -> Option<&str> {
        match &*self.texts {
            [text] => text.as_known(),
            _ => None,
        }
    }

    /// How it reads; a hole if nothing is known.
    pub(crate) fn readings(&self) -> Vec<Text> {
        if !self.texts.is_empty() {
            return self.texts.to_vec();
        }
        match self.number {
            Some(_) if self.many => vec![Text::hole(Hole::Value)],
            Some(number) => vec![Text::known(number.to_string())],
            None => vec![Text::hole(Hole::Value)],
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| &**known == name)
    }

    /// What a field may hold.
    pub(crate) fn field(&self, name: &str) -> Option<Held> {
        let mut found = self.fields.as_ref()?.iter().filter(|(key, _)| **key == *name).map(|(_, value)| value);
        let first = found.next()?;
        let Some(second) = found.next() else { return Some(Rc::clone(first)) };
        let mut either = Self::clone(first);
        either.add(second);
        found.for_each(|other| either.add(other));
        Some(Rc::new(either))
    }

    /// One item of it, whichever; of an object, one of its keys.
    pub(crate) fn any_item(&self) -> Self {
        let mut any = match (&self.items, &self.fields) {
            (Some(items), _) => {
                let mut any = Self::default();
                items.iter().for_each(|item| any.add(item));
                any
            }
            // What a search for files gives is one of them, each time.
            (None, _)
                if self
                    .names
                    .iter()
                    .any(|name| matches!(&**name, "pathlib.Path()" | "glob.glob()" | "glob.iglob()")) =>
            {
                Self { texts: self.texts.clone(), names: self.names.clone(), ..Self::default() }
            }
            (None, Some(fields)) if self.functions.is_empty() => {
                let keys = fields.iter().filter(|(key, _)| **key != *ANY_KEY);
                keys.take(TEXTS + 1).fold(Self::default(), |any, (key, _)| any.or(&Self::known(&**key)))
            }
            (None, _) => Self::default(),
        };
        any.flows.add_all(&self.flows);
        any
    }

    /// One of its fields, whichever.
    pub(crate) fn any_field(&self) -> Self {
        let mut any = Self::default();
        self.fields.iter().flat_map(|fields| fields.iter().take(PAIRED)).for_each(|(_, field)| any.add(field));
        any
    }

    /// Whether the other says nothing that this does not say already. Within containers within it, that is not looked at.
    pub(crate) fn covers(&self, other: &Self) -> bool {
        self.covers_alone(other)
            && match (&self.items, &other.items) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(mine), Some(theirs)) => {
                    Rc::ptr_eq(mine, theirs)
                        || (theirs.len() <= mine.len().min(PAIRED)
                            && mine.iter().zip(theirs.iter()).all(|(mine, theirs)| covers_within(mine, theirs)))
                }
            }
            && match (&self.fields, &other.fields) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(mine), Some(theirs)) => {
                    Rc::ptr_eq(mine, theirs)
                        || mine.len() + theirs.len() > ITEMS
                        || (theirs.len() <= PAIRED
                            && theirs.iter().enumerate().all(|(at, field)| has_field(mine, at, field)))
                }
            }
    }

    /// Whether the other surely is the same: made anew of the same parts. What they share is not looked into.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        fn shares<T: ?Sized>(one: &Option<Rc<T>>, other: &Option<Rc<T>>) -> bool {
            match (one, other) {
                (Some(one), Some(other)) => Rc::ptr_eq(one, other),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            }
        }
        shares(&self.items, &other.items)
            && shares(&self.fields, &other.fields)
            && shares(&self.bound, &other.bound)
            && self.texts.is_same(&other.texts)
            && self.flows.is_same(&other.flows)
            && self.made.is_same(&other.made)
            && *self.names == *other.names
            && *self.functions == *other.functions
            && (self.number, self.truth, self.many) == (other.number, other.truth, other.many)
            && (self.depth, self.making) == (other.depth, other.making)
    }

    /// Whether nothing of the other is lost if it is left out: what it says, where it was made, and whom it was handed to.
    pub(crate) fn has_all_of(&self, other: &Self) -> bool {
        self.has_origins_of(other) && self.covers(other)
    }

    fn has_origins_of(&self, other: &Self) -> bool {
        self.made.covers(&other.made) && self.flows.covers_own(&other.flows)
    }

    /// What is learned from the other: both answers for the work of one.
    pub(crate) fn learns(&self, other: &Self) -> Learned {
        match (self.covers(other), self.has_origins_of(other)) {
            (true, true) => Learned::Nothing,
            (true, false) => Learned::Origins,
            (false, _) => Learned::News,
        }
    }

    /// Whether it may read in so many ways that one more makes no difference.
    fn is_full(&self) -> bool {
        self.texts.len() >= TEXTS && self.texts.last().is_some_and(|last| *last == Text::hole(Hole::Value))
    }

    fn covers_alone(&self, other: &Self) -> bool {
        (other.number.is_none() || self.number == other.number || self.many)
            && (other.truth.is_none() || self.truth == other.truth)
            && self.making >= other.making
            && (other.names.is_same(&self.names)
                || self.names.len() >= NAMES
                || other.names.iter().all(|name| self.names.contains(name)))
            && (other.functions.is_same(&self.functions)
                || self.functions.len() >= FUNCTIONS
                || (other.functions.len() <= self.functions.len()
                    && other.functions.iter().all(|function| self.functions.contains(function))))
            && (other.texts.is_same(&self.texts)
                || self.is_full()
                || other.texts.iter().all(|text| self.texts.contains(text)))
            && self.flows.covers(&other.flows)
            && (other.bound.is_none() || self.bound.is_some())
    }

    /// This, or the other.
    #[must_use]
    pub(crate) fn or(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }

    /// It may be the other, too.
    pub(crate) fn add(&mut self, other: &Self) {
        self.add_apart(other, VARIANTS);
    }

    /// Within a container nothing is joined that stands within it: that could go on without end.
    pub(super) fn add_within(&mut self, other: &Self) {
        self.add_apart(other, ITEMS);
    }

    fn add_apart(&mut self, other: &Self, variants: usize) {
        if self.texts.is_empty() && other.texts.len() <= TEXTS && other.texts.has_nothing_twice() {
            self.texts = other.texts.clone();
        }
        let new = if self.texts.is_same(&other.texts) { &[] } else { &*other.texts };
        for text in new {
            if self.is_full() || self.texts.contains(text) {
                continue;
            }
            if self.texts.len() < TEXTS {
                self.texts.push(text.clone());
            } else if let Some(last) = self.texts.own().last_mut() {
                *last = Text::hole(Hole::Value);
            }
        }
        self.add_names(&other.names);
        self.functions.add_all(&other.functions, FUNCTIONS);
        self.flows.add_all(&other.flows);
        self.flows.add_own(other.flows.own());
        self.many |= other.many || (self.number.is_some() && other.number.is_some() && self.number != other.number);
        self.number = if self.number.is_none() { other.number } else { self.number };
        self.truth = if self.truth.is_none() { other.truth } else { self.truth };
        if self.bound.is_none() {
            self.bound.clone_from(&other.bound);
        }
        self.items = match (self.items.take(), &other.items) {
            (Some(mine), Some(theirs)) if !Rc::ptr_eq(&mine, theirs) => {
                Some(either_items(&mine, theirs).map_or(mine, Rc::new))
            }
            (mine, theirs) => mine.or_else(|| theirs.clone()),
        };
        self.fields = match (self.fields.take(), &other.fields) {
            (Some(mine), Some(theirs)) if !Rc::ptr_eq(&mine, theirs) && mine.len() + theirs.len() <= ITEMS => {
                Some(either_fields(&mine, theirs, variants).map_or(mine, Rc::new))
            }
            (mine, theirs) => mine.or_else(|| theirs.clone()),
        };
        self.depth = self.depth.max(other.depth);
        self.making = self.making.max(other.making);
        self.made.or(&other.made);
    }
}

/// Whether fields say all that one more says, which stood at the place `at` of its own.
pub(super) fn has_field(mine: &[Field], at: usize, (key, theirs): &Field) -> bool {
    // Most are copies of one object, so that the very same value is there, mostly at the same place: that is found at once. Comparing
    // values is far more work, and a key may be there several times.
    let is_same = |(name, mine): &Field| Rc::ptr_eq(mine, theirs) && name == key;
    mine.get(at).is_some_and(is_same)
        || mine.iter().any(is_same)
        || mine.iter().any(|(name, mine)| name == key && covers_within(mine, theirs))
}

/// Whether what stands in one container says all that what stands in another says.
fn covers_within(mine: &Held, theirs: &Held) -> bool {
    Rc::ptr_eq(mine, theirs)
        || ((theirs.items.is_none() || mine.items.is_some())
            && (theirs.fields.is_none() || mine.fields.is_some())
            && mine.made.covers(&theirs.made)
            && mine.covers_alone(theirs))
}

/// Every way that `parts` read one after the other.
pub(crate) fn join(parts: &[Held], between: &str) -> Value {
    let mut value = Value::default();
    let mut texts = vec![Text::default()];
    let mut written = 0;
    for (index, part) in parts.iter().enumerate() {
        let between = if index > 0 { between } else { "" };
        written += usize::from(part.as_known().is_some_and(|text| !text.is_empty()));
        texts = match (&*part.texts, texts.as_mut_slice()) {
            ([reading], [text]) => vec![joined(std::mem::take(text), between, reading)],
            _ => {
                let mut longer = Vec::new();
                let readings = part.readings();
                for before in &texts {
                    for reading in readings.iter().take(TEXTS - longer.len()) {
                        longer.push(joined(before.clone(), between, reading));
                    }
                }
                longer
            }
        };
        value.flows.add_all(&part.flows);
        value.making = value.making.max(part.making);
    }
    value.texts = texts.into();
    if written > 1 && between.is_empty() {
        value.making = value.making.max(Making::Built);
    }
    value
}

/// One text behind another; not known if that is too long.
fn joined(mut text: Text, between: &str, reading: &Text) -> Text {
    if !between.is_empty() {
        text.push(Piece::Known(between.to_owned()));
    }
    reading.pieces().iter().for_each(|piece| text.push(piece.clone()));
    if is_small(&text) { text } else { Text::hole(Hole::Value) }
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
