//! Lock files of a workspace: found by name, read with a cap, and what they name is the key of a cache.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use ringfence_policy::CacheKind;
use rustix::fs::{Mode, OFlags};

use super::failure::{CacheError, failed};

const MOST_BYTES: u64 = 16 * 1024 * 1024;
/// Raised when a cache of the same lock file would be made otherwise.
const FORMAT: u32 = 2;

/// The lock file of one kind.
#[derive(Debug)]
pub(super) struct Lock {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// Of kind, format and contents: a name for a folder.
    pub(super) key: String,
}

/// One thing in a lock file that is not followed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) line: Option<usize>,
    pub(super) what: String,
}

impl Problem {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { line: None, what: what.into() }
    }

    pub(super) fn at(line: usize, what: impl Into<String>) -> Self {
        Self { line: Some(line), what: what.into() }
    }
}

impl Lock {
    pub(super) fn refuse(&self, problem: Problem) -> CacheError {
        CacheError::Lock { path: self.path.clone(), line: problem.line, problem: problem.what }
    }
}

/// The names of lock files, the most exact first.
fn names(kind: CacheKind) -> &'static [&'static str] {
    match kind {
        CacheKind::Pip => &["requirements.lock", "requirements.txt"],
        CacheKind::Npm => &["package-lock.json"],
        CacheKind::Cargo => &["Cargo.lock"],
    }
}

/// The lock file in the workspace itself: no link, since that could name any file of the host.
pub(super) fn find(kind: CacheKind, workspace: &Path) -> Result<Lock, CacheError> {
    for name in names(kind) {
        let path = workspace.join(name);
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let refuse = |what: &str| CacheError::Lock { path: path.clone(), line: None, problem: what.to_owned() };
        let file = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::NOENT) => continue,
            Err(rustix::io::Errno::LOOP) => return Err(refuse("it is a link; put the file itself there")),
            Err(errno) => return Err(failed("open", &path)(errno.into())),
        };
        let metadata = file.metadata().map_err(failed("look at", &path))?;
        if !metadata.is_file() {
            return Err(refuse("it is not a file"));
        }
        let mut bytes = Vec::new();
        file.take(MOST_BYTES + 1).read_to_end(&mut bytes).map_err(failed("read", &path))?;
        if bytes.len() as u64 > MOST_BYTES {
            return Err(refuse("it is longer than 16 MiB"));
        }
        let key = key(kind, &bytes);
        let text = String::from_utf8(bytes).map_err(|_| refuse("it is not UTF-8"))?;
        return Ok(Lock { path, text, key });
    }
    Err(CacheError::NoLock { kind, names: names(kind) })
}

fn key(kind: CacheKind, contents: &[u8]) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(format!("ringfence cache {FORMAT} {kind}\n").as_bytes());
    hasher.update(contents);
    hasher.finalize().to_hex().to_string()
}

/// A word of a lock file that will stand on a command line or in a path: plain, and never an option or a step upwards.
pub(super) fn is_plain(word: &str, further: &[u8]) -> bool {
    word.len() <= 214
        && word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !word.contains("..")
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || further.contains(&byte))
}

pub(super) fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// For a message: a hostile text must not fill a screen or act on it.
pub(super) fn shown(text: &str) -> String {
    let mut out: String = text.chars().take(80).flat_map(char::escape_default).collect();
    if text.chars().nth(80).is_some() {
        out.push('…');
    }
    format!("`{out}`")
}
