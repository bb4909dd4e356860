//! Whatever a guest says that differs: it is taken within the caps or refused, and changes nothing outside of the copy.

#![no_main]

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use ringfence::workspace::mirror::{Taking, nodes};
use ringfence_guest::far::{Node, OtherKind, What};

/// Small, so that one input takes little time.
const MOST_BYTES: u64 = 64 * 1024;
const MOST_ENTRIES: usize = 64;

/// In memory where that can be had: every input makes files.
fn ground() -> &'static PathBuf {
    static GROUND: OnceLock<PathBuf> = OnceLock::new();
    GROUND.get_or_init(|| {
        let shared = PathBuf::from("/dev/shm");
        let base = if shared.is_dir() { shared } else { std::env::temp_dir() };
        base.join(format!("ringfence-fuzz-taken-{}", std::process::id()))
    })
}

/// Few names, so that they meet; and now and then any bytes.
fn path(number: u8, any: &[u8]) -> OsString {
    const PATHS: [&str; 12] =
        ["a", "b", "a/a", "a/b", "b/a", "a/a/a", "out", "out/canary", "out/a", "..", "../outside/a", "f"];
    match PATHS.get(usize::from(number)) {
        Some(path) => path.into(),
        None => OsString::from_vec(any.to_vec()),
    }
}

fuzz_target!(|input: Vec<(u8, u8, u8, u64, Vec<u8>)>| {
    let ground = ground();
    let root = ground.join("root");
    fs::create_dir_all(ground.join("outside")).expect("a folder can be made");
    fs::create_dir(&root).expect("the last input was removed");
    fs::write(ground.join("outside/canary"), "as it was").expect("a file can be written");
    std::os::unix::fs::symlink("../outside", root.join("out")).expect("a link can be made");
    fs::write(root.join("f"), "f").expect("a file can be written");

    let told = input.into_iter().map(|(choice, at, other, number, bytes)| {
        let mode = u32::try_from(number & 0xffff).unwrap_or(0);
        let what = match choice % 9 {
            0 => What::Folder { mode },
            1 | 2 => What::File { mode, modified: (number as i64, (number >> 32) as u32), bytes: bytes.clone() },
            3 => What::More { bytes: bytes.clone() },
            4 => What::Hole { bytes: number },
            5 => What::Link { target: path(other, &bytes) },
            6 => What::Name { of: path(other, &bytes) },
            7 => What::Other { kind: [OtherKind::Pipe, OtherKind::Socket, OtherKind::Device][usize::from(other % 3)] },
            _ => What::Gone,
        };
        Node { path: path(at, &bytes), what }
    });
    let mut taking = Taking::new(File::open(&root).expect("the folder can be opened").into(), MOST_BYTES, MOST_ENTRIES);
    let taken = told.map(|node| taking.take(vec![node])).find_map(Result::err);
    match taken {
        Some(error) => assert!(!error.to_string().is_empty() && taking.finish().is_err()),
        None => taking.finish().expect("what was taken can be finished"),
    }

    // What is in the copy can be read again, whatever its permissions are, and is within the caps.
    let mut bytes = 0;
    let held = File::open(&root).expect("the folder can be opened");
    for batch in nodes(std::os::fd::AsFd::as_fd(&held)) {
        // A pipe, for one, is in no copy that is sent.
        let Ok(batch) = batch else { break };
        bytes += batch.iter().fold(0, |sum, node| match &node.what {
            What::File { bytes, .. } | What::More { bytes } => sum + bytes.len() as u64,
            What::Hole { bytes } => sum + bytes,
            _ => sum,
        });
    }
    assert!(bytes <= MOST_BYTES + 1, "{bytes} bytes");
    let names = |folder: &PathBuf| fs::read_dir(folder).expect("the folder can be read").count();
    assert_eq!(names(ground), 2, "something was made beside the copy");
    assert_eq!(names(&ground.join("outside")), 1, "something was made outside");
    let canary = fs::read(ground.join("outside/canary")).expect("the canary is there");
    assert_eq!(canary, b"as it was", "the canary was changed");
    open_up(&root);
    fs::remove_dir_all(ground).expect("what was taken can be removed");
});

/// Makes every folder one that can be removed.
fn open_up(folder: &PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).expect("it is ours");
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let entry = entry.expect("the folder can be read");
        if entry.file_type().expect("it has a type").is_dir() {
            open_up(&entry.path());
        }
    }
}
