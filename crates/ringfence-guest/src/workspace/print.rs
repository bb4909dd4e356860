//! By what the contents of a file are known again. Holes and zeros are the same, and cost nothing.

use crate::nodes::is_zero;

const BLOCK: usize = 4096;
const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// The contents of a file that were seen so far.
#[derive(Debug, Default)]
pub(super) struct Print {
    hasher: blake3::Hasher,
    /// Where the block that is not full begins.
    at: u64,
    block: Vec<u8>,
}

/// Contents: how long, and their hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Printed {
    pub(super) size: u64,
    hash: [u8; 32],
}

impl Print {
    pub(super) fn add(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.block.is_empty()
                && let Some((block, rest)) = bytes.split_at_checked(BLOCK)
            {
                bytes = rest;
                self.take(block);
                continue;
            }
            let (now, rest) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = rest;
            self.take_if(BLOCK);
        }
    }

    pub(super) fn add_zeros(&mut self, mut zeros: u64) {
        if !self.block.is_empty() {
            let now = usize::try_from(zeros).unwrap_or(BLOCK).min(BLOCK - self.block.len());
            self.block.extend_from_slice(&ZEROS[..now]);
            zeros -= now as u64;
            self.take_if(BLOCK);
        }
        let rest = zeros % BLOCK as u64;
        self.at = self.at.saturating_add(zeros - rest);
        self.block.extend_from_slice(&ZEROS[..usize::try_from(rest).unwrap_or(0)]);
    }

    pub(super) fn end(mut self) -> Printed {
        self.take_if(1);
        Printed { size: self.at, hash: *self.hasher.finalize().as_bytes() }
    }

    /// Takes the block that was put together, if it is so long.
    fn take_if(&mut self, length: usize) {
        if self.block.len() >= length {
            let block = std::mem::take(&mut self.block);
            self.take(&block);
            self.block = block;
            self.block.clear();
        }
    }

    fn take(&mut self, block: &[u8]) {
        // Where a block lies is hashed with it: those that are left out are then known to be zeros.
        if !is_zero(block) {
            self.hasher.update(&self.at.to_le_bytes());
            self.hasher.update(block);
        }
        self.at = self.at.saturating_add(block.len() as u64);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn printed(bytes: &[u8]) -> Printed {
        let mut print = Print::default();
        print.add(bytes);
        print.end()
    }

    #[test]
    fn contents_that_differ_anywhere_have_another_print() {
        let base = vec![7u8; 3 * BLOCK + 5];
        for at in [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK, 3 * BLOCK + 4] {
            for value in [0, 8] {
                let mut other = base.clone();
                other[at] = value;
                assert_ne!(printed(&other), printed(&base), "{value} at {at}");
            }
        }
        assert_ne!(printed(&[0; 5]), printed(&[0; 6]), "zeros count");
        let (mut one, mut other) = (vec![0; 2 * BLOCK], vec![0; 2 * BLOCK]);
        (one[0], other[BLOCK]) = (1, 1);
        assert_ne!(printed(&one), printed(&other), "where a block is counts");
    }

    proptest! {
        #[test]
        fn however_it_comes_and_whether_zeros_are_holes_the_print_is_the_same(
            parts in proptest::collection::vec((0..9000usize, any::<bool>()), 0..6),
            cut in 1..7000usize,
        ) {
            let mut whole = Vec::new();
            let mut print = Print::default();
            for (length, is_hole) in parts {
                if is_hole {
                    print.add_zeros(length as u64);
                    whole.resize(whole.len() + length, 0);
                } else {
                    let bytes: Vec<u8> = (0..length).map(|at| if at % 5000 < 4500 { 1 } else { 0 }).collect();
                    bytes.chunks(cut).for_each(|piece| print.add(piece));
                    whole.extend(bytes);
                }
            }
            prop_assert_eq!(print.end(), printed(&whole));
        }
    }
}
