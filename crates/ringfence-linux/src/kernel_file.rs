//! Files that the kernel writes while they are read, in `/proc` and cgroups. They have no size that could be asked for, so
//! a plain read begins with a few bytes and doubles them: ten calls where one does.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Read at once; nearly every such file is shorter.
const AT_ONCE: usize = 8 * 1024;
/// A longer one is refused: what we looked for could stand in the rest.
const MOST: u64 = 16 * 1024 * 1024;

/// The text of the file at `path`.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    read_open(File::open(path)?, MOST)
}

/// The text of an open file, which may have `most` bytes.
pub(crate) fn read_open(file: File, most: u64) -> io::Result<String> {
    let mut text = String::with_capacity(AT_ONCE);
    file.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(text) }
}
