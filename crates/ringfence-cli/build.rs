//! Lets the linker put what a start executes side by side, where it can: a start is mostly page faults, and what it executes
//! lies all over the program otherwise.
//!
//! `start.order` names functions in the order in which a start comes to them. `cargo xtask order` writes it. A name that is not there (any
//! more) is passed over, and so is the whole list by a linker that knows no such thing: a start takes longer then, and nothing else.
#![allow(clippy::print_stdout, reason = "cargo is told what to do on standard output")]

use std::env;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The names, one in each line.
const ORDER: &str = "start.order";
/// Where the linker is to write what lies where; for `cargo xtask order`.
const MAP: &str = "RINGFENCE_LINK_MAP";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={ORDER}");
    println!("cargo::rerun-if-env-changed={MAP}");
    if let Some(map) = env::var_os(MAP) {
        // By the names that the linker knows them by, not by those that a person reads.
        println!("cargo::rustc-link-arg-bin=ringfence=-Wl,--no-demangle,-Map={}", map.display());
    }
    // What is built for tests is linked often and started seldom.
    let is_release = env::var_os("PROFILE").is_some_and(|profile| profile == "release");
    let Some(folder) = env::var_os("CARGO_MANIFEST_DIR").filter(|_| is_release) else { return };
    let order = format!("-Wl,--symbol-ordering-file={}", Path::new(&folder).join(ORDER).display());
    let ours = [order.as_str(), "-Wl,--no-warn-symbol-ordering"];
    if knows(&ours).unwrap_or(false) {
        ours.iter().for_each(|argument| println!("cargo::rustc-link-arg-bin=ringfence={argument}"));
    }
}

/// Whether the linker that will be used takes these arguments: it is tried with a program that does nothing.
fn knows(arguments: &[&str]) -> Option<bool> {
    let flags = env::var("CARGO_ENCODED_RUSTFLAGS").unwrap_or_default();
    let mut compiler = Command::new(env::var_os("RUSTC")?);
    compiler.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
    compiler.args(["--crate-name", "ordered", "--crate-type", "bin", "--target", &env::var("TARGET").ok()?]);
    compiler.args(arguments.iter().map(|argument| format!("-Clink-arg={argument}")));
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        let mut flag = OsString::from("-Clinker=");
        flag.push(linker);
        compiler.arg(flag);
    }
    compiler.arg("-o").arg(Path::new(&env::var_os("OUT_DIR")?).join("ordered")).arg("-");
    let mut compiling = compiler.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
    // Dropped at once, so that it ends.
    compiling.stdin.take()?.write_all(b"fn main() {}").ok()?;
    compiling.wait().ok().map(|status| status.success())
}
