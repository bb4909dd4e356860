//! How much is read, at most. Over a bound means unknown, and unknown denies where it is judged.

/// Bounds of one analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a shell line or script.
    pub shell_bytes: usize,
    /// Bytes of code in a language.
    pub code_bytes: usize,
    /// Texts within texts (`sh -c "python -c …"`).
    pub depth: usize,
    /// Brackets, blocks and substitutions within each other, in one text.
    pub nesting: usize,
    /// Steps of the whole analysis.
    pub steps: usize,
    /// Facts of the whole analysis.
    pub facts: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { shell_bytes: 256 * 1024, code_bytes: 1024 * 1024, depth: 8, nesting: 64, steps: 10_000, facts: 10_000 }
    }
}
