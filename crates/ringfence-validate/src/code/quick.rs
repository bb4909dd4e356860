//! Tables for keys that no text can choose so that they collide: numbers that are given here, the names of a fixed book, and what a text
//! does choose, under keys that it does not know.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use ahash::{AHasher, RandomState};

/// For names and texts of the program.
pub(super) type SecretMap<K, V> = HashMap<K, V, Secret>;
pub(super) type SecretSet<K> = HashSet<K, Secret>;

/// Hashes with keys that a table has for itself, made from a secret of this process: what one request's time tells about them is of no
/// use to the next.
#[derive(Debug, Clone)]
pub(super) struct Secret(RandomState);

impl Default for Secret {
    fn default() -> Self {
        static SECRET: LazyLock<[u64; 4]> = LazyLock::new(|| {
            let random = std::hash::RandomState::new();
            [0, 1, 2, 3].map(|number: u64| random.hash_one(number))
        });
        static TABLES: AtomicU64 = AtomicU64::new(0);
        let [first, second, third, fourth] = *SECRET;
        let table = TABLES.fetch_add(1, Ordering::Relaxed);
        Self(RandomState::with_seeds(first ^ table, second, third, fourth.wrapping_add(table)))
    }
}

impl BuildHasher for Secret {
    type Hasher = AHasher;

    fn build_hasher(&self) -> AHasher {
        self.0.build_hasher()
    }
}

/// For numbers, and names of a book.
pub(super) type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;
pub(super) type QuickSet<K> = HashSet<K, BuildHasherDefault<Quick>>;

/// A list that is looked into for every call of a program: one look, however long it is.
pub(super) type Listed = LazyLock<QuickSet<&'static str>>;

pub(super) fn listed(names: &[&'static str]) -> QuickSet<&'static str> {
    names.iter().copied().collect()
}

/// Far less work than what tables for anybody's keys need.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Quick(u64);

impl Quick {
    fn add(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Quick {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|word| self.add(u64::from_le_bytes(*word)));
        // A last word that begins within the one before: no copy byte by byte.
        let last = match (bytes.last_chunk(), rest) {
            (_, []) => return,
            (Some(last), _) => u64::from_le_bytes(*last),
            (None, rest) => rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
        self.add(last);
    }

    fn write_u8(&mut self, byte: u8) {
        self.add(u64::from(byte));
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}
