//! Output that is kept up to a cap: the beginning and the end, in constant memory.

/// What is kept of the end when something must be left out.
const MOST_TAIL: usize = 64 * 1024;

/// One stream's output so far.
#[derive(Debug)]
pub struct Capture {
    head: Vec<u8>,
    most_head: usize,
    /// A ring once it is full; `tail_start` is then its oldest byte.
    tail: Vec<u8>,
    tail_start: usize,
    most_tail: usize,
    total: u64,
}

/// What was kept of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Captured {
    /// The beginning.
    pub head: Vec<u8>,
    /// How many bytes between the two are gone.
    pub omitted: u64,
    /// The end.
    pub tail: Vec<u8>,
}

impl Capture {
    /// Keeps at most `most` bytes.
    pub fn new(most: u64) -> Self {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let most_tail = (most / 4).min(MOST_TAIL);
        Self { head: Vec::new(), most_head: most - most_tail, tail: Vec::new(), tail_start: 0, most_tail, total: 0 }
    }

    /// Takes more output. Returns how many bytes of it belong to the beginning, which can be shown at once.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        self.total = self.total.saturating_add(bytes.len() as u64);
        let to_head = bytes.len().min(self.most_head - self.head.len());
        let (first, rest) = bytes.split_at(to_head);
        self.head.extend_from_slice(first);
        self.push_tail(rest);
        to_head
    }

    fn push_tail(&mut self, bytes: &[u8]) {
        // Only the last bytes of a chunk that is larger than the whole ring can stay.
        let bytes = &bytes[bytes.len().saturating_sub(self.most_tail)..];
        let room = self.most_tail - self.tail.len();
        let (fill, wrap) = bytes.split_at(bytes.len().min(room));
        self.tail.extend_from_slice(fill);
        if wrap.is_empty() {
            return;
        }
        let (to_end, to_start) = wrap.split_at(wrap.len().min(self.tail.len() - self.tail_start));
        self.tail[self.tail_start..self.tail_start + to_end.len()].copy_from_slice(to_end);
        self.tail[..to_start.len()].copy_from_slice(to_start);
        self.tail_start = (self.tail_start + wrap.len()) % self.most_tail;
    }

    /// All bytes that came, kept or not.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// What was kept.
    pub fn finish(mut self) -> Captured {
        self.tail.rotate_left(self.tail_start);
        let kept = (self.head.len() + self.tail.len()) as u64;
        Captured { head: self.head, omitted: self.total - kept, tail: self.tail }
    }
}

impl Captured {
    /// The bytes, with a line where something was left out.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head.clone();
        if self.omitted > 0 {
            bytes.extend_from_slice(marker(self.omitted).as_bytes());
        }
        bytes.extend_from_slice(&self.tail);
        bytes
    }
}

/// The line that stands where output was left out.
pub fn marker(omitted: u64) -> String {
    format!("\n[ringfence: {omitted} bytes of output left out here]\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn capture(most: u64, chunks: &[&[u8]]) -> Captured {
        let mut capture = Capture::new(most);
        for chunk in chunks {
            capture.push(chunk);
        }
        capture.finish()
    }

    #[test]
    fn output_within_the_cap_is_whole() {
        let kept = capture(16, &[b"0123456789", b"abcdef"]);
        assert_eq!(kept.bytes(), b"0123456789abcdef");
        assert_eq!(kept.omitted, 0);
    }

    #[test]
    fn output_over_the_cap_keeps_both_ends_and_says_how_much_is_gone() {
        let kept = capture(8, &[b"0123456789abcdef"]);
        assert_eq!((kept.head.as_slice(), kept.omitted, kept.tail.as_slice()), (&b"012345"[..], 8, &b"ef"[..]));
        assert!(String::from_utf8(kept.bytes()).unwrap().contains("8 bytes of output left out"));
    }

    #[test]
    fn r06_memory_does_not_grow_with_the_output() {
        let mut capture = Capture::new(1 << 20);
        let chunk = vec![b'x'; 1 << 16];
        for _ in 0..10_000 {
            capture.push(&chunk);
        }
        assert!(capture.head.capacity() + capture.tail.capacity() <= 4 << 20);
        assert_eq!(capture.total(), 10_000 << 16);
    }

    proptest! {
        #[test]
        fn what_is_kept_is_the_beginning_and_the_end(
            most in 0u64..64,
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..12),
        ) {
            let whole: Vec<u8> = chunks.concat();
            let borrowed: Vec<&[u8]> = chunks.iter().map(Vec::as_slice).collect();
            let kept = capture(most, &borrowed);
            prop_assert!(whole.starts_with(&kept.head));
            prop_assert!(whole.ends_with(&kept.tail));
            prop_assert_eq!((kept.head.len() + kept.tail.len()) as u64 + kept.omitted, whole.len() as u64);
            prop_assert_eq!((kept.head.len() + kept.tail.len()) as u64, most.min(whole.len() as u64));
        }
    }
}
