//! How deep a text goes, counted before any parser sees it. Parsers, walks and the freeing of trees go down as deep as a text nests.

use crate::limits::Limits;

/// What one bracket, block or operator counts; a `+`, of which long texts are made, counts less.
const ONE: usize = 16;
const PLUS: usize = 4;
/// Operators in a row, for each bracket that may be open.
const CHAIN: usize = 4;

/// Counts brackets and blocks that are open, and the operators before each.
#[derive(Debug)]
pub(crate) struct Depth {
    /// The operators before each bracket, and how many of them the next item hangs on too.
    open: Vec<(usize, usize)>,
    chain: usize,
    floor: usize,
    before: usize,
    blocks: usize,
    nesting: usize,
}

/// Deeper than is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooDeep;

impl Depth {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self { open: Vec::new(), chain: 0, floor: 0, before: 0, blocks: 0, nesting: limits.nesting }
    }

    /// Brackets that are open.
    pub(crate) fn brackets(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn open(&mut self) -> Result<(), TooDeep> {
        self.chain += ONE;
        self.before += self.chain;
        self.open.push((self.chain, self.floor));
        (self.chain, self.floor) = (0, 0);
        self.check()
    }

    pub(crate) fn close(&mut self) {
        // A bracket that closes nothing is the parser's to find.
        if let Some((chain, floor)) = self.open.pop() {
            self.before -= chain;
            (self.chain, self.floor) = (chain, floor);
        }
    }

    /// An operator, a call on what is before, or a word that an expression follows.
    pub(crate) fn link(&mut self) -> Result<(), TooDeep> {
        self.chain += ONE;
        self.check()
    }

    pub(crate) fn plus(&mut self) -> Result<(), TooDeep> {
        self.chain += PLUS;
        self.check()
    }

    /// What was just closed is one of many beside each other, and not what the next one hangs on.
    pub(crate) fn unlink(&mut self) {
        self.chain = self.chain.saturating_sub(ONE);
    }

    /// The next statement.
    pub(crate) fn next(&mut self) {
        (self.chain, self.floor) = (0, 0);
    }

    /// The next item of a list.
    pub(crate) fn item(&mut self) {
        self.chain = self.floor;
    }

    /// A bracket that may be none: `<`. Items that follow are counted as within it.
    pub(crate) fn angle(&mut self) -> Result<(), TooDeep> {
        self.floor += ONE;
        self.link()
    }

    /// Its end.
    pub(crate) fn angle_end(&mut self) {
        self.floor = self.floor.saturating_sub(ONE);
    }

    /// Blocks by indentation.
    pub(crate) fn set_blocks(&mut self, blocks: usize) -> Result<(), TooDeep> {
        self.blocks = blocks;
        self.check()
    }

    fn check(&self) -> Result<(), TooDeep> {
        let brackets = self.open.len() + self.blocks;
        let all = self.before + self.chain + self.blocks * ONE;
        if brackets > self.nesting || all > self.nesting * CHAIN * ONE { Err(TooDeep) } else { Ok(()) }
    }
}
