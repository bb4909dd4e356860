//! What a variable holds, as far as it is known.

use crate::analysis::Flow;
use crate::text::{Hole, Text};

/// The value of a variable: one field, or those of an array.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Value {
    pub(crate) fields: Vec<Text>,
    pub(crate) flows: Vec<Flow>,
}

impl Value {
    pub(crate) fn one(text: Text) -> Self {
        Self { fields: vec![text], flows: Vec::new() }
    }

    /// Only known when it runs. Where the text changes the home or the directory, their names say nothing any more.
    pub(crate) fn hole(name: &str) -> Self {
        let hole = if matches!(name, "HOME" | "PWD") { Hole::Other } else { Hole::Variable(name.to_owned()) };
        Self::one(Text::hole(hole))
    }

    /// The same value, or a hole where it is longer than what is kept.
    pub(super) fn bounded(self, name: &str) -> Self {
        let length: usize = self.fields.iter().map(|field| field.length() + 1).sum();
        if length > Text::LONGEST { Self { flows: self.flows, ..Self::hole(name) } } else { self }
    }

    /// The first field, which is what the plain name stands for.
    pub(crate) fn first(&self) -> Text {
        self.fields.first().cloned().unwrap_or_default()
    }
}
