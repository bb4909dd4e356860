//! A text as far as it is known without running anything.

use std::fmt;

use serde::Serialize;

/// A word, a path, a host, a string: known, known in part, or not known.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize)]
pub struct Text {
    /// In order. Two known pieces never stand beside each other.
    pieces: Vec<Piece>,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Piece {
    /// These very characters.
    Known(String),
    /// A pattern that the shell fills in from names that exist, such as `*` or `[a-c]`.
    Pattern(String),
    /// Something that is only known when it runs.
    Hole(Hole),
}

/// Why a part of a text is not known.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hole {
    /// A variable that the text does not set, or not in every case.
    Variable(String),
    /// What a command writes.
    Output,
    /// What a call gives back, an attribute, an expression.
    Value,
    /// Something that was not understood.
    Other,
}

impl Text {
    /// Bytes that are kept of one text, at most: a line that doubles a value again and again would fill the memory.
    pub(crate) const LONGEST: usize = 64 * 1024;

    /// Bytes that it takes, about.
    pub(crate) fn length(&self) -> usize {
        let piece = |piece: &Piece| match piece {
            Piece::Known(text) | Piece::Pattern(text) => text.len(),
            // A piece takes more than its letters.
            Piece::Hole(Hole::Variable(name)) => name.len() + 32,
            Piece::Hole(Hole::Output | Hole::Value | Hole::Other) => 32,
        };
        self.pieces.iter().map(piece).sum()
    }

    /// These very characters.
    pub fn known(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { Self::default() } else { Self { pieces: vec![Piece::Known(text)] } }
    }

    /// Nothing is known of it but why.
    pub fn hole(hole: Hole) -> Self {
        Self { pieces: vec![Piece::Hole(hole)] }
    }

    /// Adds to the end.
    pub fn push(&mut self, piece: Piece) {
        match (self.pieces.last_mut(), piece) {
            (_, Piece::Known(text)) if text.is_empty() => {}
            (Some(Piece::Known(before)), Piece::Known(text)) => before.push_str(&text),
            (_, piece) => self.pieces.push(piece),
        }
    }

    /// Adds another text to the end.
    pub fn append(&mut self, other: Self) {
        other.pieces.into_iter().for_each(|piece| self.push(piece));
    }

    /// The pieces, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The whole text, if all of it is known.
    pub fn as_known(&self) -> Option<&str> {
        match self.pieces.as_slice() {
            [] => Some(""),
            [Piece::Known(text)] => Some(text),
            _ => None,
        }
    }

    /// What is known of its beginning.
    pub fn known_start(&self) -> &str {
        match self.pieces.first() {
            Some(Piece::Known(text)) => text,
            _ => "",
        }
    }

    /// What is known of its end.
    pub fn known_end(&self) -> &str {
        match self.pieces.last() {
            Some(Piece::Known(text)) => text,
            _ => "",
        }
    }

    /// Whether some of it is only known when it runs; a pattern is not.
    pub fn has_hole(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Hole(_)))
    }

    /// Whether the shell fills in names.
    pub fn has_pattern(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Pattern(_)))
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::known(text)
    }
}

impl fmt::Display for Text {
    /// For people: what is not known stands as `$name`, `$(…)` or `…`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.pieces {
            match piece {
                Piece::Known(text) | Piece::Pattern(text) => formatter.write_str(text)?,
                Piece::Hole(Hole::Variable(name)) => write!(formatter, "${name}")?,
                Piece::Hole(Hole::Output) => formatter.write_str("$(…)")?,
                Piece::Hole(Hole::Value | Hole::Other) => formatter.write_str("…")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_pieces_melt_and_a_hole_keeps_the_whole_from_being_known() {
        let mut text = Text::known("/et");
        text.append(Text::known("c/"));
        assert_eq!(text.as_known(), Some("/etc/"));
        text.push(Piece::Hole(Hole::Variable("FILE".to_owned())));
        assert_eq!((text.as_known(), text.known_start(), text.known_end()), (None, "/etc/", ""));
        assert_eq!(text.to_string(), "/etc/$FILE");
        assert_eq!(Text::default().as_known(), Some(""));
    }
}
