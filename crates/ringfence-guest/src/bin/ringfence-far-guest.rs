//! A far guest and nothing else, for tests of the guest by itself.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let error = ringfence_guest::live_far();
    match writeln!(std::io::stderr(), "{error}") {
        Ok(()) | Err(_) => ExitCode::from(2),
    }
}
