//! What both ends of a workspace that travels as nodes share: which paths are plain, how files are cut into pieces and put
//! together again, and how many nodes go into one message.
//!
//! Nothing here looks a path up: whoever does, does it beneath a folder that is held.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

use rustix::fs::{Mode, SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use crate::far::{MOST_FAR_REPORT, MOST_NODES, Node, PIECE, What};

/// More files and folders than this do not travel: neither out, nor back beside those.
pub const MOST_ENTRIES: usize = 200_000;
/// Of the letters in a path, and in what a link points at: no program could use a longer one.
pub const LONGEST: usize = 4095;
const LONGEST_NAME: usize = 255;
/// Of the permissions.
pub const PERMISSIONS: u32 = 0o7777;
/// What goes into one message, with room for what is around it.
const MOST_BATCH: usize = MOST_FAR_REPORT - 1024;
/// More than what a node takes beside its path and its contents.
const AROUND: usize = 64;
/// Zeros that had to be read are told of at least so often: whoever counts them can end it.
pub const MOST_ZEROS: u64 = 1 << 30;

/// Whether `path` is relative, not empty, and made of plain names only, in their one spelling.
pub fn is_plain(path: &OsStr) -> bool {
    let is_name = |name: &[u8]| !matches!(name, b"" | b"." | b"..") && name.len() <= LONGEST_NAME && !name.contains(&0);
    path.len() <= LONGEST && path.as_bytes().split(|byte| *byte == b'/').all(is_name)
}

/// The folder of a plain path, which is empty for the workspace itself, and the name in it.
pub fn split(path: &OsStr) -> (&OsStr, &OsStr) {
    let bytes = path.as_bytes();
    match bytes.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (OsStr::from_bytes(&bytes[..at]), OsStr::from_bytes(&bytes[at + 1..])),
        None => (OsStr::new(""), path),
    }
}

/// `name` in the folder at `path`.
pub fn join(path: &OsStr, name: &OsStr) -> OsString {
    if path.is_empty() {
        return name.to_owned();
    }
    let mut joined = OsString::with_capacity(path.len() + name.len() + 1);
    joined.push(path);
    joined.push("/");
    joined.push(name);
    joined
}

/// Nodes for one message.
#[derive(Debug, Default)]
pub struct Batch {
    nodes: Vec<Node>,
    size: usize,
}

impl Batch {
    /// Adds a node. What was there before comes out when there is no room for both.
    pub fn push(&mut self, node: Node) -> Option<Vec<Node>> {
        let content = match &node.what {
            What::File { bytes, .. } | What::More { bytes } => bytes.len(),
            What::Link { target } => target.len(),
            What::Name { of } => of.len(),
            What::Folder { .. } | What::Hole { .. } | What::Other { .. } | What::Gone => 0,
        };
        let size = node.path.len() + content + AROUND;
        let is_full = self.nodes.len() >= MOST_NODES || self.size + size > MOST_BATCH;
        let full = if is_full { self.take() } else { None };
        self.size += size;
        self.nodes.push(node);
        full
    }

    /// What is left, if anything is.
    pub fn take(&mut self) -> Option<Vec<Node>> {
        self.size = 0;
        let nodes = std::mem::take(&mut self.nodes);
        (!nodes.is_empty()).then_some(nodes)
    }
}

/// A file that is read as nodes, to the length that it had when it was looked at.
#[derive(Debug)]
pub struct FileNodes {
    path: OsString,
    file: File,
    size: u64,
    at: u64,
    /// Until here the file has been said to hold no hole.
    data_until: u64,
    first: Option<(u32, (i64, u32))>,
    zeros: u64,
    waiting: Option<Vec<u8>>,
}

enum Piece {
    Bytes(Vec<u8>),
    Zeros(u64),
}

impl FileNodes {
    /// The first `size` bytes of `file`, with these permissions and this time.
    pub fn new(path: OsString, file: File, size: u64, mode: u32, modified: (i64, u32)) -> Self {
        let first = Some((mode, modified));
        Self { path, file, size, at: 0, data_until: 0, first, zeros: 0, waiting: None }
    }

    /// The next node: one with the file itself, then its other pieces and its holes.
    pub fn next_node(&mut self) -> io::Result<Option<Node>> {
        let what = match std::mem::take(&mut self.zeros) {
            0 => self.next_what()?,
            bytes => Some(What::Hole { bytes }),
        };
        Ok(what.map(|what| Node { path: self.path.clone(), what }))
    }

    fn next_what(&mut self) -> io::Result<Option<What>> {
        let piece = match self.waiting.take() {
            Some(bytes) => Some(Piece::Bytes(bytes)),
            None => self.next_merged()?,
        };
        Ok(match (self.first.take(), piece) {
            (Some((mode, modified)), Some(Piece::Bytes(bytes))) => Some(What::File { mode, modified, bytes }),
            (Some((mode, modified)), rest) => {
                if let Some(Piece::Zeros(zeros)) = rest {
                    self.zeros = zeros;
                }
                Some(What::File { mode, modified, bytes: Vec::new() })
            }
            (None, Some(Piece::Bytes(bytes))) => Some(What::More { bytes }),
            (None, Some(Piece::Zeros(bytes))) => Some(What::Hole { bytes }),
            (None, None) => None,
        })
    }

    fn next_merged(&mut self) -> io::Result<Option<Piece>> {
        let mut zeros = match self.next_piece()? {
            Some(Piece::Zeros(zeros)) => zeros,
            other => return Ok(other),
        };
        while zeros < MOST_ZEROS {
            match self.next_piece()? {
                Some(Piece::Zeros(more)) => zeros = zeros.saturating_add(more),
                Some(Piece::Bytes(bytes)) => {
                    self.waiting = Some(bytes);
                    break;
                }
                None => break,
            }
        }
        Ok(Some(Piece::Zeros(zeros)))
    }

    fn next_piece(&mut self) -> io::Result<Option<Piece>> {
        let left = self.size.saturating_sub(self.at);
        if left == 0 {
            return Ok(None);
        }
        // One piece is read sooner than it is asked about.
        if self.size > PIECE as u64 && self.at >= self.data_until {
            match rustix::fs::seek(&self.file, SeekFrom::Data(self.at)) {
                Ok(begin) if begin > self.at => return Ok(Some(self.skip((begin - self.at).min(left)))),
                Ok(_) => {
                    let end = rustix::fs::seek(&self.file, SeekFrom::Hole(self.at)).unwrap_or(self.size);
                    self.data_until = if end > self.at { end } else { self.at + 1 };
                }
                // Only a hole is left.
                Err(Errno::NXIO) => return Ok(Some(self.skip(left))),
                // Not every kernel knows holes. What is read as zeros becomes one again.
                Err(_) => self.data_until = self.size,
            }
        }
        let until = if self.data_until > self.at { (self.data_until - self.at).min(left) } else { left };
        let mut bytes = vec![0; usize::try_from(until).unwrap_or(PIECE).min(PIECE)];
        let read = fill_at(&self.file, &mut bytes, self.at)?;
        bytes.truncate(read);
        if read == 0 {
            // It was cut short: whoever looks at it next sees that.
            self.size = self.at;
            return Ok(None);
        }
        self.at += read as u64;
        Ok(Some(if is_zero(&bytes) { Piece::Zeros(read as u64) } else { Piece::Bytes(bytes) }))
    }

    fn skip(&mut self, zeros: u64) -> Piece {
        self.at += zeros;
        Piece::Zeros(zeros)
    }
}

/// Whether there is nothing but zeros.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn fill_at(file: &File, piece: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = piece.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// A file of which more may come.
#[derive(Debug)]
pub struct Unfinished {
    file: File,
    length: u64,
    mode: u32,
    modified: (i64, u32),
}

impl Unfinished {
    /// An empty file that can be written. It gets its permissions and its time when it is finished.
    pub fn new(file: File, mode: u32, modified: (i64, u32)) -> Self {
        Self { file, length: 0, mode, modified }
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = self.longer(bytes.len() as u64)?;
        self.file.write_all_at(bytes, self.length)?;
        self.length = length;
        Ok(())
    }

    /// Adds zeros, which take no room.
    pub fn add_zeros(&mut self, zeros: u64) -> io::Result<()> {
        self.length = self.longer(zeros)?;
        Ok(())
    }

    fn longer(&self, by: u64) -> io::Result<u64> {
        let length = self.length.checked_add(by).filter(|length| i64::try_from(*length).is_ok());
        length.ok_or_else(|| io::ErrorKind::FileTooLarge.into())
    }

    /// Gives it its length, its permissions and its time. In this order: a new length takes bits away and is a new time.
    pub fn finish(self) -> io::Result<File> {
        self.file.set_len(self.length)?;
        let (seconds, nanoseconds) = self.modified;
        let last_modification = Timespec { tv_sec: seconds, tv_nsec: i64::from(nanoseconds.min(999_999_999)) };
        let last_access = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        rustix::fs::fchmod(&self.file, Mode::from_raw_mode(self.mode & PERMISSIONS))?;
        rustix::fs::futimens(&self.file, &Timestamps { last_access, last_modification })?;
        Ok(self.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::far::FarReport;
    use crate::protocol::{HEADER, encode};

    #[test]
    fn only_relative_paths_of_plain_names_in_one_spelling_are_plain() {
        for good in ["a", "a/b", ".a/..b/...", "a\nb"] {
            assert!(is_plain(OsStr::new(good)), "{good:?}");
        }
        for bad in ["", "/", "/a", "a/", "a//b", ".", "a/.", "./a", "..", "a/../b", "a/..", "a\0b"] {
            assert!(!is_plain(OsStr::new(bad)), "{bad:?}");
        }
        assert!(is_plain(OsStr::from_bytes(&[0xff, b'/', 0xfe])));
        assert!(is_plain(OsStr::new(&"a".repeat(255))) && !is_plain(OsStr::new(&"a".repeat(256))));
        assert!(is_plain(OsStr::new(&"a/".repeat(2047)[..4093])) && !is_plain(OsStr::new(&"a/".repeat(2050)[..4099])));
        assert_eq!(split(OsStr::new("a/b/c")), (OsStr::new("a/b"), OsStr::new("c")));
        assert_eq!(split(OsStr::new("c")), (OsStr::new(""), OsStr::new("c")));
        assert_eq!(join(OsStr::new("a/b"), OsStr::new("c")), "a/b/c");
    }

    #[test]
    fn a_batch_always_fits_into_one_report_whatever_the_nodes_hold() {
        let long = OsString::from("n".repeat(LONGEST));
        let nodes = [
            What::File { mode: u32::MAX, modified: (i64::MIN, u32::MAX), bytes: vec![0xff; PIECE] },
            What::More { bytes: vec![0; PIECE] },
            What::Hole { bytes: u64::MAX },
            What::Link { target: long.clone() },
            What::Name { of: long.clone() },
            What::Folder { mode: u32::MAX },
            What::Gone,
        ];
        let mut batch = Batch::default();
        let mut seen = 0;
        let mut check = |nodes: Vec<Node>| {
            seen += nodes.len();
            assert!(nodes.len() <= MOST_NODES);
            let frame = encode(&FarReport::Differs(nodes), MOST_FAR_REPORT).unwrap();
            assert!(frame.len() <= HEADER + MOST_FAR_REPORT);
        };
        for what in nodes.iter().cycle().take(700) {
            batch.push(Node { path: long.clone(), what: what.clone() }).map(&mut check);
        }
        for _ in 0..5000 {
            batch.push(Node { path: "a".into(), what: What::Gone }).map(&mut check);
        }
        batch.take().map(&mut check);
        assert_eq!(seen, 5700, "none is lost");
        assert!(batch.take().is_none());
    }
}
