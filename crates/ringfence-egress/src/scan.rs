//! Finds words in bytes that come in pieces. What may be the beginning of a word is held back until more has come.

use std::sync::Arc;

/// What is looked for, and what is done about it.
#[derive(Debug, Clone)]
pub(crate) struct Scanner {
    words: Arc<[Vec<u8>]>,
    held: Vec<u8>,
}

/// A word was found where it must not be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found;

impl Scanner {
    /// Looks for `words`, none of which is empty.
    pub(crate) fn new(words: Arc<[Vec<u8>]>) -> Self {
        Self { words, held: Vec::new() }
    }

    /// Takes a piece; gives what can be passed on, with every word in it overwritten. The length of the whole stays the same.
    pub(crate) fn mask(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        mask(&mut bytes, &self.words);
        self.held = bytes.split_off(bytes.len() - beginning_at_end(&bytes, &self.words));
        bytes
    }

    /// Takes a piece; gives what can be passed on, or says that a word was in it.
    pub(crate) fn refuse(&mut self, piece: &[u8]) -> Result<Vec<u8>, Found> {
        let mut bytes = std::mem::take(&mut self.held);
        bytes.extend_from_slice(piece);
        if contains_any(&bytes, &self.words) {
            return Err(Found);
        }
        self.held = bytes.split_off(bytes.len() - beginning_at_end(&bytes, &self.words));
        Ok(bytes)
    }

    /// What was held back and turned out to be nothing.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    pub(crate) fn holds_nothing(&self) -> bool {
        self.held.is_empty()
    }
}

/// Overwrites every word.
pub(crate) fn mask(bytes: &mut [u8], words: &[Vec<u8>]) {
    for word in words {
        let mut from = 0;
        while let Some(at) = find(bytes.get(from..).unwrap_or_default(), word) {
            let start = from + at;
            if let Some(found) = bytes.get_mut(start..start + word.len()) {
                found.fill(b'*');
            }
            from = start + word.len();
        }
    }
}

pub(crate) fn contains_any(bytes: &[u8], words: &[Vec<u8>]) -> bool {
    words.iter().any(|word| find(bytes, word).is_some())
}

fn find(bytes: &[u8], word: &[u8]) -> Option<usize> {
    let first = word.first()?;
    let mut from = 0;
    loop {
        let rest = bytes.get(from..)?;
        let at = rest.iter().position(|byte| byte == first)?;
        if rest.get(at..)?.starts_with(word) {
            return Some(from + at);
        }
        from += at + 1;
    }
}

/// How many bytes at the end may be the beginning of a word.
fn beginning_at_end(bytes: &[u8], words: &[Vec<u8>]) -> usize {
    let longest = |word: &Vec<u8>| {
        let most = word.len().saturating_sub(1).min(bytes.len());
        (1..=most).rev().find(|length| bytes.get(bytes.len() - length..).is_some_and(|end| word.starts_with(end)))
    };
    words.iter().filter_map(longest).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn scanner(words: &[&str]) -> Scanner {
        Scanner::new(words.iter().map(|word| word.as_bytes().to_vec()).collect())
    }

    proptest! {
        #[test]
        fn a_word_is_masked_however_the_bytes_are_cut(
            text in "[abS]{0,20}(SabS)?[abS]{0,20}",
            cuts in proptest::collection::vec(0_usize..44, 0..5),
        ) {
            let mut whole = text.clone().into_bytes();
            mask(&mut whole, &[b"SabS".to_vec()]);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut scanner = scanner(&["SabS"]);
            let mut out = Vec::new();
            for pair in cuts.windows(2) {
                out.extend(scanner.mask(&text.as_bytes()[pair[0]..pair[1]]));
            }
            out.extend(scanner.rest());
            prop_assert_eq!(out.len(), text.len());
            prop_assert!(!contains_any(&out, &[b"SabS".to_vec()]));
        }

        #[test]
        fn a_word_is_found_before_any_of_it_is_passed_on(front in "[xy]{0,9}", cut in 0_usize..9) {
            let mut scanner = scanner(&["PLACEHOLD"]);
            let mut out = scanner.refuse(front.as_bytes()).unwrap();
            out.extend(scanner.refuse(&b"PLACEHOLD"[..cut]).unwrap());
            prop_assert_eq!(scanner.refuse(&b"PLACEHOLD"[cut..]), Err(Found));
            prop_assert_eq!(out, front.into_bytes());
        }
    }
}
