//! A place in the text that was read.

use serde::{Deserialize, Serialize};

/// From one byte to before another, in the text of the request. What stands in a text within a text (`sh -c '…'`) has its own place
/// where the inner text is written out as it is, and the place of the whole word where quoting changed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub struct Span {
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Span {
    /// From `start` to before `end`.
    pub const fn new(start: usize, end: usize) -> Self {
        Self { start, end }
    }
}
