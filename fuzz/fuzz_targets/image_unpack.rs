//! Any bytes, taken as the archives of two layers, are unpacked or refused, and change nothing outside their folder.

#![no_main]

use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use ringfence::image::{Limits, Step, Unpacker};

/// Small, so that one input takes little time.
const LIMITS: Limits = Limits { bytes: 64 * 1024, entries: 64 };

/// In memory where that can be had: every input makes files.
fn ground() -> &'static PathBuf {
    static GROUND: OnceLock<PathBuf> = OnceLock::new();
    GROUND.get_or_init(|| {
        let shared = PathBuf::from("/dev/shm");
        let base = if shared.is_dir() { shared } else { std::env::temp_dir() };
        base.join(format!("ringfence-fuzz-{}", std::process::id()))
    })
}

/// Puts the right sum into every header: nobody finds one by chance, and an attacker simply computes it.
fn with_sums(layer: &[u8]) -> Vec<u8> {
    let mut bytes = layer.to_vec();
    let mut at = 0;
    while let Some(header) = bytes.get_mut(at..at + 512) {
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = String::from_utf8_lossy(&header[124..136]);
        let size = usize::from_str_radix(digits.trim_matches(['\0', ' ']), 8).unwrap_or(0).min(1 << 20);
        at += 512 + size.next_multiple_of(512);
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    let ground = ground();
    let root = ground.join("root");
    fs::create_dir_all(ground.join("outside")).expect("a folder can be made");
    fs::create_dir(&root).expect("the last input was removed");
    fs::write(ground.join("outside/canary"), "as it was").expect("a file can be written");

    // The first byte says where the second layer begins.
    let (first, rest) = data.split_first().map_or((0, data), |(first, rest)| (usize::from(*first), rest));
    let (lower, upper) = rest.split_at((first * 512).min(rest.len()));
    let mut unpacker = Unpacker::new(File::open(&root).expect("the folder can be opened").into(), LIMITS);
    'layers: for bytes in [lower, upper].map(with_sums) {
        let mut layer = unpacker.layer(bytes.as_slice());
        loop {
            match layer.step() {
                Ok(Step::More) => {}
                Ok(Step::Done) => break,
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    break 'layers;
                }
            }
        }
        layer.finish();
    }

    let names = |folder: &PathBuf| fs::read_dir(folder).expect("the folder can be read").count();
    assert_eq!(names(ground), 2, "something was made beside the root");
    assert_eq!(names(&ground.join("outside")), 1, "something was made outside");
    let canary = fs::read(ground.join("outside/canary")).expect("the canary is there");
    assert_eq!(canary, b"as it was", "the canary was changed");
    fs::remove_dir_all(ground).expect("what was unpacked can be removed");
});
