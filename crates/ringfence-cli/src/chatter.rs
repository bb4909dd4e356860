//! Talk for people, on standard error. Data goes to standard output, by `data`.

#![allow(clippy::print_stderr, reason = "the only place that talks to people")]

use std::io::{self, Write};

use crate::Fatal;
use crate::render;

/// Tells what ended the program.
pub(crate) fn error(error: &dyn Fatal) {
    let mut text = match error.details() {
        Some(details) => details,
        None => {
            let mut chain = vec![error.to_string()];
            let mut cause = error.source();
            while let Some(error) = cause {
                chain.push(error.to_string());
                cause = error.source();
            }
            render::error_chain(&chain)
        }
    };
    if let Some(hint) = error.hint() {
        text.push_str(&format!("\nhint: {hint}\n"));
    }
    say_raw(&text);
}

/// A line of talk.
pub(crate) fn say(line: &str) {
    say_raw(&format!("ringfence: {line}\n"));
}

/// Text that was laid out already.
pub(crate) fn say_raw(text: &str) {
    // What people cannot hear must not change what happens.
    io::stderr().lock().write_all(text.as_bytes()).ok();
}

/// Writes data to standard output.
pub(crate) fn data(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}
