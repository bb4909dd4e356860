//! Raises walls for tests, which have many threads and so cannot raise them themselves; and lives as a guest in containers.

use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    if ringfence::far_guest::is_meant(std::env::args_os()) {
        let error = ringfence::far_guest::live_far();
        return match writeln!(std::io::stderr(), "{error}") {
            Ok(()) | Err(_) => ExitCode::from(2),
        };
    }
    match ringfence::launcher::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
