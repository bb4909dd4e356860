//! Asks the linker to write down in a few bits each which addresses a start has to adjust, where that can be started.

#![allow(clippy::print_stdout, reason = "a build script speaks to cargo by what it prints")]

use std::process::Command;

/// The first C library whose start reads such a list, of a program that is linked with it statically.
const FIRST_GLIBC: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
    let host = std::env::var("HOST").unwrap_or_default();
    // The library that is linked is known only where we build for this machine. Otherwise the list is longer, and that is all.
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_ENV", "gnu") && is("TARGET", &host) && glibc() >= FIRST_GLIBC {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's C library; nothing is below all others.
fn glibc() -> (u32, u32) {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().map(|output| output.stdout).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let number = said.trim().strip_prefix("glibc ").and_then(|version| version.split_once('.'));
    number.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?))).unwrap_or_default()
}
