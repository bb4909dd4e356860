//! Raises walls for tests, which have many threads and so cannot raise them themselves.

use std::process::ExitCode;

fn main() -> ExitCode {
    match ringfence::launcher::serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
