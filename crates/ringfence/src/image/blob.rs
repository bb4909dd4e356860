//! The blobs of a layout: files that are called by the hash of what is in them.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// The longest document of a layout: an index, a manifest, a configuration.
pub(super) const MOST_DOCUMENT: u64 = 4 * 1024 * 1024;

/// The hash of a blob: `sha256:` and 64 digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest(String);

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is not `sha256:` with 64 hexadecimal digits")]
pub struct NotADigest;

impl Digest {
    /// The digits alone, which are safe in a path.
    pub fn hex(&self) -> &str {
        &self.0
    }

    fn of(hash: Sha256) -> Self {
        Self(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match text.strip_prefix("sha256:") {
            Some(hex) if hex.len() == 64 && hex.bytes().all(digit) => Ok(Self(hex.to_owned())),
            Some(_) | None => Err(NotADigest),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = NotADigest;

    fn try_from(text: String) -> Result<Self, NotADigest> {
        text.parse()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.0)
    }
}

/// Why a file of a layout was not read, or is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// It could not be opened or read.
    #[error("could not read {path} of the image")]
    Io {
        /// Which, relative to the layout.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A link, a folder, a pipe.
    #[error("{path} of the image is no plain file")]
    NotAFile {
        /// Which, relative to the layout.
        path: PathBuf,
    },
    /// It is not the one that was meant.
    #[error("{path} of the image is not what its digest says: the copy is damaged, or somebody changed it")]
    Mismatch {
        /// Which, relative to the layout.
        path: PathBuf,
    },
    /// A document that is longer than any honest one.
    #[error("{path} of the image has more than {} bytes", MOST_DOCUMENT)]
    TooLong {
        /// Which, relative to the layout.
        path: PathBuf,
    },
}

/// A reference to a blob, as documents give it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BlobRef {
    pub(super) digest: Digest,
    pub(super) size: u64,
}

impl BlobRef {
    pub(super) fn path(&self) -> PathBuf {
        Path::new("blobs/sha256").join(self.digest.hex())
    }

    /// Opens the blob, which has the right length. Whether it is the right one is known when it has been read.
    pub(super) fn open(&self, layout: BorrowedFd<'_>) -> Result<Hashing<File>, BlobError> {
        let path = self.path();
        let (file, length) = open_file(layout, &path)?;
        if length != self.size {
            return Err(BlobError::Mismatch { path });
        }
        Ok(Hashing { from: file.take(length), hash: Sha256::new() })
    }

    /// A whole document, checked.
    pub(super) fn read(&self, layout: BorrowedFd<'_>) -> Result<Vec<u8>, BlobError> {
        if self.size > MOST_DOCUMENT {
            return Err(BlobError::TooLong { path: self.path() });
        }
        let mut content = Vec::new();
        let mut from = self.open(layout)?;
        from.read_to_end(&mut content).map_err(|source| BlobError::Io { path: self.path(), source })?;
        self.check(from)?;
        Ok(content)
    }

    /// Reads what is left, and says whether all of it was the blob that was meant.
    pub(super) fn check(&self, mut read: Hashing<File>) -> Result<(), BlobError> {
        io::copy(&mut read, &mut io::sink()).map_err(|source| BlobError::Io { path: self.path(), source })?;
        let whole = read.from.limit() == 0;
        if whole && Digest::of(read.hash) == self.digest {
            Ok(())
        } else {
            Err(BlobError::Mismatch { path: self.path() })
        }
    }
}

/// Hashes what is read through it.
#[derive(Debug)]
pub(super) struct Hashing<R> {
    from: io::Take<R>,
    hash: Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.hash.update(buffer.get(..read).unwrap_or_default());
        Ok(read)
    }
}

/// Reads a document of a layout that has no digest.
pub(super) fn read_document(layout: BorrowedFd<'_>, path: &Path) -> Result<Vec<u8>, BlobError> {
    let (file, _) = open_file(layout, path)?;
    let mut content = Vec::new();
    file.take(MOST_DOCUMENT + 1)
        .read_to_end(&mut content)
        .map_err(|source| BlobError::Io { path: path.to_owned(), source })?;
    if content.len() as u64 > MOST_DOCUMENT {
        return Err(BlobError::TooLong { path: path.to_owned() });
    }
    Ok(content)
}

/// Opens a plain file of the layout and says how long it is. No link is followed, and a pipe does not hold us up.
fn open_file(layout: BorrowedFd<'_>, path: &Path) -> Result<(File, u64), BlobError> {
    let failed = |errno: rustix::io::Errno| match errno {
        rustix::io::Errno::LOOP => BlobError::NotAFile { path: path.to_owned() },
        errno => BlobError::Io { path: path.to_owned(), source: errno.into() },
    };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = rustix::fs::openat2(layout, path, flags, Mode::empty(), resolve).map_err(failed)?;
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(BlobError::NotAFile { path: path.to_owned() });
    }
    Ok((file.into(), u64::try_from(stat.st_size).unwrap_or(0)))
}
