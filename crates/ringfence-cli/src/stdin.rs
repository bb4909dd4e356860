//! Our standard input, for a program that is to read it.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;

use crate::run::RunFailure;

/// Copies our standard input to `to`, on a thread: the program gets no descriptor of the host, and a terminal that is
/// never closed does not hold up the end.
pub(crate) fn pass_on_stdin(to: OwnedFd) -> Result<(), RunFailure> {
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            // A program that reads no more, or input that breaks off, ends the copy; the program sees the end of file.
            io::copy(&mut io::stdin().lock(), &mut File::from(to)).ok();
        })
        .map(|_| ())
        .map_err(RunFailure::Stdin)
}
