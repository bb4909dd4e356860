//! Looking at processes without a descriptor to look with. In a binary of its own: it uses up those of its whole process.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

use std::fs::File;

use ringfence_linux::tree::sample;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

#[test]
fn who_cannot_open_a_file_does_not_see_little() {
    let own = i32::try_from(std::process::id()).unwrap();
    assert!(!sample(own).capped, "the probe proves nothing");
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(32), maximum }).unwrap();
    let mut held: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(sample(own).capped);
    held.clear();
    assert!(!sample(own).capped);
}
