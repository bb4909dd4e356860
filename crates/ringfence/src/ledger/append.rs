//! Writing to the ledger.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::FlockOperation;
use serde_json::json;

use super::record::{self, Entry, Kind, NO_RECORD};
use super::{ANCHOR, FILE, MOST_LINE};
use crate::state::StateFolder;

/// Read of the end before more is.
const FIRST_LOOK: u64 = 8 * 1024;

/// Whether a write must have reached the disk before it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It survives the end of this process.
    Written,
    /// It survives the end of the machine.
    Synced,
}

/// Why nothing could be written down.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A file operation failed.
    #[error("could not {attempt} the ledger {path}")]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A record cannot be written as JSON.
    #[error("could not write a record as JSON")]
    Json(#[from] serde_json::Error),
    /// A record is over the cap.
    #[error("a record of {0} bytes is longer than a line may be")]
    TooLong(usize),
    /// The end of the file is not a record.
    #[error(
        "the last line of the ledger {path} {problem}. Look at it with `ringfence log verify`, then move the file away to begin a new one"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        problem: &'static str,
    },
}

/// As often as this a file that is not in its place any more is opened anew.
const MOST_REOPENED: u32 = 3;

/// The ledger of one state folder, shared with other processes.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    writer: Mutex<Writer>,
}

#[derive(Debug)]
struct Writer {
    log: File,
    anchor: File,
    /// The end that we know; another process may have gone on from there.
    known: End,
}

/// Where the chain ends.
#[derive(Debug, Clone, PartialEq, Eq)]
struct End {
    size: u64,
    next_seq: u64,
    hash: String,
    /// The file ends in the middle of a line.
    torn: bool,
}

impl Ledger {
    /// Opens the ledger of `state`, and makes it if it is missing.
    pub fn open(state: &StateFolder) -> Result<Self, LedgerError> {
        let path = state.path().join(FILE);
        let writer = Writer::open(&path)?;
        Ok(Self { path, writer: Mutex::new(writer) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends `entries` as one write: all of them or none.
    pub fn append(&self, entries: &[Entry], durability: Durability) -> Result<(), LedgerError> {
        // A panic while the lock was held cannot leave a half-made state that matters: the end is read again below.
        let mut writer = self.writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let failed = |attempt| {
            let path = self.path.clone();
            move |source| LedgerError::Io { attempt, path, source }
        };
        let mut tries = 0;
        while !writer.lock_at(&self.path)? {
            tries += 1;
            if tries > MOST_REOPENED {
                return Err(failed("find")(io::Error::other("it is moved away again and again")));
            }
            // The lock goes with the file.
            *writer = Writer::open(&self.path)?;
        }
        let written = writer.append_locked(&self.path, entries, durability);
        // The lock is shared by all holders of the descriptor, so it is given back by hand. That cannot be what stops a
        // run: it also ends with the process.
        rustix::fs::flock(&writer.log, FlockOperation::Unlock).map_err(|errno| failed("unlock")(errno.into()))?;
        written
    }
}

impl Writer {
    fn open(path: &Path) -> Result<Self, LedgerError> {
        let failed = |attempt, path: &Path| {
            let path = path.to_owned();
            move |source| LedgerError::Io { attempt, path, source }
        };
        let mut ours = OpenOptions::new();
        ours.read(true).create(true).mode(0o600);
        let log = ours.clone().append(true).open(path).map_err(failed("open", path))?;
        let anchor_path = path.with_file_name(ANCHOR);
        let anchor = ours.write(true).truncate(false).open(&anchor_path);
        let anchor = anchor.map_err(failed("open the anchor of", &anchor_path))?;
        let known = End { size: 0, next_seq: 0, hash: NO_RECORD.to_owned(), torn: false };
        Ok(Self { log, anchor, known })
    }

    /// Locks the file that is open, and tells whether it is still the one at `path`: somebody may have moved it away to begin a new one.
    fn lock_at(&self, path: &Path) -> Result<bool, LedgerError> {
        let failed = |attempt| move |source| LedgerError::Io { attempt, path: path.to_owned(), source };
        rustix::fs::flock(&self.log, FlockOperation::LockExclusive).map_err(|errno| failed("lock")(errno.into()))?;
        let open = self.log.metadata().map_err(failed("look at"))?;
        match std::fs::metadata(path) {
            Ok(there) => Ok((there.dev(), there.ino()) == (open.dev(), open.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => {
                // Others may still be able to.
                rustix::fs::flock(&self.log, FlockOperation::Unlock).map_err(|errno| failed("unlock")(errno.into()))?;
                Err(failed("look at")(error))
            }
        }
    }

    fn append_locked(&mut self, path: &Path, entries: &[Entry], durability: Durability) -> Result<(), LedgerError> {
        let failed = |attempt| {
            let path = path.to_owned();
            move |source| LedgerError::Io { attempt, path, source }
        };
        let size = self.log.metadata().map_err(failed("look at"))?.len();
        if size != self.known.size || size == 0 {
            self.known = read_end(&mut self.log, path, size)?;
        }
        let mut end = self.known.clone();
        let mut text = String::new();
        if std::mem::take(&mut end.torn) {
            text.push('\n');
            let recovered = Entry { kind: Kind::Recovered, run: String::new(), body: json!({ "at": size }) };
            end.add(&recovered, &mut text)?;
        }
        for entry in entries {
            end.add(entry, &mut text)?;
        }
        let written = self.log.write_all(text.as_bytes()).and_then(|()| match durability {
            Durability::Written => Ok(()),
            Durability::Synced => self.log.sync_data(),
        });
        if let Err(source) = written {
            // Take back what reached the file, so that a full disk does not tear the chain.
            let attempt = match self.log.set_len(size) {
                Ok(()) => "write",
                Err(_) => "write, or take back what was written of it to,",
            };
            return Err(failed(attempt)(source));
        }
        end.size = size + text.len() as u64;
        let anchor = format!("{:020} {}\n", end.next_seq, end.hash);
        self.anchor.write_all_at(anchor.as_bytes(), 0).map_err(failed("write the anchor of"))?;
        self.known = end;
        Ok(())
    }
}

impl End {
    fn add(&mut self, entry: &Entry, text: &mut String) -> Result<(), LedgerError> {
        let time = jiff::Timestamp::now().to_string();
        let (line, hash) = record::seal(entry, self.next_seq, &time, &self.hash)?;
        if line.len() >= MOST_LINE {
            return Err(LedgerError::TooLong(line.len()));
        }
        text.push_str(&line);
        text.push('\n');
        self.next_seq += 1;
        self.hash = hash;
        Ok(())
    }
}

/// The end of the chain in a file of `size` bytes, from its last whole line.
fn read_end(log: &mut File, path: &Path, size: u64) -> Result<End, LedgerError> {
    // Most lines are short: a little is read first, and more only when the last line is longer.
    let mut most = FIRST_LOOK;
    loop {
        let from = size.saturating_sub(most);
        let bytes = read_from(log, path, from, size)?;
        let torn = bytes.last().is_some_and(|last| *last != b'\n');
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
        let start = bytes[..whole].iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        match start {
            None if from > 0 && most < 2 * MOST_LINE as u64 => most *= 8,
            None if from == 0 && whole == 0 => {
                return Ok(End { size, next_seq: 0, hash: NO_RECORD.to_owned(), torn });
            }
            start => {
                let line = &bytes[start.unwrap_or(0)..whole];
                let record =
                    record::unseal(line).map_err(|problem| LedgerError::Damaged { path: path.to_owned(), problem })?;
                return Ok(End { size, next_seq: record.seq + 1, hash: record.hash, torn });
            }
        }
    }
}

fn read_from(log: &mut File, path: &Path, from: u64, size: u64) -> Result<Vec<u8>, LedgerError> {
    let failed = |source| LedgerError::Io { attempt: "read the end of", path: path.to_owned(), source };
    // One more than there is: a full buffer would be doubled to look for the end.
    let mut bytes = Vec::with_capacity(usize::try_from(size - from).unwrap_or(0).saturating_add(1));
    log.seek(SeekFrom::Start(from)).map_err(failed)?;
    log.take(size - from).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}
