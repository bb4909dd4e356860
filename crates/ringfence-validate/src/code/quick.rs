//! Tables for keys that no text can choose so that they collide: numbers that are given here, and the names of a fixed book.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type QuickMap<K, V> = HashMap<K, V, BuildHasherDefault<Quick>>;
pub(super) type QuickSet<K> = HashSet<K, BuildHasherDefault<Quick>>;

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
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, byte: u8) {
        self.add(u64::from(byte));
    }

    fn write_usize(&mut self, number: usize) {
        self.write(&number.to_le_bytes());
    }

    fn finish(&self) -> u64 {
        self.0.rotate_left(26)
    }
}
