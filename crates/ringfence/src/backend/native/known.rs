//! What a walk found in each folder, kept in the state folder until the folder changes: then a start looks at folders, and
//! not at every name in them.
//!
//! A folder's time of change is set by the kernel whenever a name in it is made, removed or renamed, and by nobody else.
//! What is believed is therefore bound to it, and never to a folder that changed just before it was read: a second change
//! in the same tick would leave the same time. On file systems that are not known to keep these times themselves nothing
//! is believed. What cannot be read, is cut short or was changed counts as nothing known, and costs a walk.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use ringfence_policy::{Glob, Sourced};
use rustix::fs::{AtFlags, FlockOperation, Statx, StatxFlags};

use super::deny::{Ground, Memory};

const FOLDER: &str = "denied";
/// Fewer folders are walked through sooner than remembered.
const FEWEST: usize = 32;
/// Never more than this.
pub(super) const MOST_BYTES: u64 = 64 * 1024 * 1024;
/// Workspaces, each with each policy; the longest unused go.
const MOST_FILES: usize = 64;
/// A folder must have been at rest for so long when it was read. Far above the tick of every file system below.
const AT_REST_SECONDS: i64 = 3;
/// ext2 to ext4, XFS, btrfs, tmpfs, f2fs: local, with times of their own kernel, and the same numbers in lists of names.
pub(super) const KEEP_THEIR_TIMES: [u32; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010];
const HASH: usize = 32;

/// What the kernel says of a folder; equal as long as no name in it came or went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp([u64; 7]);

/// One folder's names, as far as they matter.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Names<'a> {
    pub(super) entries: usize,
    pub(super) folders: Vec<&'a [u8]>,
    pub(super) denied: Vec<&'a [u8]>,
}

/// What is known of one workspace under one list of rules.
pub(super) struct Known<'a> {
    records: HashMap<&'a [u8], (Stamp, Names<'a>, &'a [u8])>,
    /// What will be known next time.
    next: Vec<u8>,
    folders: usize,
    learnt: usize,
    /// Seconds; what changed later was not at rest.
    at_rest_before: i64,
}

/// Where it is kept.
pub(super) struct Place {
    folder: PathBuf,
    key: blake3::Hash,
    most_bytes: u64,
}

impl Place {
    /// The place for `ground`, if it is on a file system whose times can be believed.
    pub(super) fn of(memory: Memory<'_>, ground: Ground<'_>, deny: &[Sourced<Glob>]) -> Option<Self> {
        let kind = u32::try_from(rustix::fs::fstatfs(ground.root).ok()?.f_type).ok()?;
        if !KEEP_THEIR_TIMES.contains(&kind) {
            return None;
        }
        let mut hasher = blake3::Hasher::new();
        hasher.update(ground.path.as_os_str().as_bytes());
        for rule in deny {
            hasher.update(b"\0").update(rule.value.as_str().as_bytes());
        }
        let folder = memory.state.path().join(FOLDER);
        Some(Self { folder, key: hasher.finalize(), most_bytes: memory.most_bytes })
    }

    fn file(&self) -> PathBuf {
        self.folder.join(self.key.to_hex().as_str())
    }

    /// The bytes that were kept, if they are whole.
    pub(super) fn read(&self) -> Vec<u8> {
        let read = || {
            let mut bytes = Vec::new();
            let file = File::open(self.file()).ok()?;
            // One that would be cut is not read to be found so.
            if file.metadata().ok()?.len() > self.most_bytes {
                return None;
            }
            file.take(self.most_bytes).read_to_end(&mut bytes).ok()?;
            let body = bytes.len().checked_sub(HASH)?;
            (self.seal(&bytes[..body]).as_bytes() == &bytes[body..]).then(|| {
                bytes.truncate(body);
                bytes
            })
        };
        read().unwrap_or_default()
    }

    fn seal(&self, body: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(self.key.as_bytes(), body)
    }

    /// Keeps what is worth it. That nothing could be kept costs the next start a walk, and nothing else.
    pub(super) fn keep(&self, known: Known<'_>) {
        if known.learnt > 0 && known.folders >= FEWEST && (known.next.len() as u64) < self.most_bytes {
            self.write(known.next).ok();
        }
    }

    fn write(&self, mut bytes: Vec<u8>) -> std::io::Result<()> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        // One name for all writers, so that a killed one leaves nothing that the next does not use.
        let new = self.folder.join("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&new)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        let seal = self.seal(&bytes);
        bytes.extend(seal.as_bytes());
        file.set_len(0)?;
        file.write_all(&bytes)?;
        fs::rename(&new, self.file())?;
        self.forget_oldest()
    }

    fn forget_oldest(&self) -> std::io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
        files.sort();
        let too_many = files.len().saturating_sub(MOST_FILES);
        files.iter().take(too_many).try_for_each(|(_, path)| fs::remove_file(path))
    }
}

impl<'a> Known<'a> {
    /// What `bytes` say, as read at `now`.
    pub(super) fn parse(bytes: &'a [u8], now: SystemTime) -> Self {
        let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        Self {
            records: parse_all(bytes).unwrap_or_default(),
            next: Vec::with_capacity(bytes.len() + 4096),
            folders: 0,
            learnt: 0,
            at_rest_before: i64::try_from(seconds).unwrap_or(0) - AT_REST_SECONDS,
        }
    }

    /// The names of `folder`, if they cannot have changed.
    pub(super) fn recall(&mut self, root: &OwnedFd, folder: &Path) -> Option<Names<'a>> {
        let (stamp, names, record) = self.records.get(folder.as_os_str().as_bytes())?;
        let path = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        if stamp_of(root, path)? != *stamp {
            return None;
        }
        self.folders += 1;
        self.next.extend_from_slice(record);
        Some(names.clone())
    }

    /// Remembers what was read of `folder` after it had this stamp.
    pub(super) fn learn(&mut self, folder: &Path, stamp: Stamp, names: &Names<'_>) {
        let Stamp([_, _, _, changed, _, modified, _]) = stamp;
        if [changed, modified].iter().any(|at| at.cast_signed() >= self.at_rest_before) {
            return;
        }
        self.folders += 1;
        self.learnt += 1;
        put(&mut self.next, folder.as_os_str().as_bytes());
        stamp.0.iter().for_each(|word| self.next.extend(word.to_le_bytes()));
        self.next.extend((names.entries as u64).to_le_bytes());
        for list in [&names.folders, &names.denied] {
            self.next.extend((list.len() as u64).to_le_bytes());
            list.iter().for_each(|name| put(&mut self.next, name));
        }
    }
}

/// The stamp of an open folder, or of one below it; nothing where the kernel does not tell all of it.
pub(super) fn stamp_of(root: &OwnedFd, path: &Path) -> Option<Stamp> {
    let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::MTIME | StatxFlags::CTIME;
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
    let Statx {
        stx_mask, stx_attributes, stx_mode, stx_dev_major, stx_dev_minor, stx_ino, stx_ctime, stx_mtime, ..
    } = rustix::fs::statx(root, path, flags, wanted).ok()?;
    let is_folder = rustix::fs::FileType::from_raw_mode(stx_mode.into()) == rustix::fs::FileType::Directory;
    let device = u64::from(stx_dev_major) << 32 | u64::from(stx_dev_minor);
    // With its key added or removed, an encrypted folder has other names and the same times.
    let may_change = stx_attributes.contains(rustix::fs::StatxAttributes::ENCRYPTED);
    (stx_mask & wanted.bits() == wanted.bits() && is_folder && !may_change).then(|| {
        Stamp([
            device,
            stx_ino,
            u64::from(stx_mode),
            stx_ctime.tv_sec.cast_unsigned(),
            u64::from(stx_ctime.tv_nsec),
            stx_mtime.tv_sec.cast_unsigned(),
            u64::from(stx_mtime.tv_nsec),
        ])
    })
}

fn put(to: &mut Vec<u8>, bytes: &[u8]) {
    to.extend((bytes.len() as u64).to_le_bytes());
    to.extend_from_slice(bytes);
}

type Records<'a> = HashMap<&'a [u8], (Stamp, Names<'a>, &'a [u8])>;

fn parse_all(bytes: &[u8]) -> Option<Records<'_>> {
    let mut records = HashMap::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let start = rest;
        let path = take_bytes(&mut rest)?;
        let mut stamp = [0; 7];
        for word in &mut stamp {
            *word = take_number(&mut rest)?;
        }
        let mut names = Names { entries: usize::try_from(take_number(&mut rest)?).ok()?, ..Names::default() };
        for list in [&mut names.folders, &mut names.denied] {
            for _ in 0..take_number(&mut rest)? {
                list.push(take_bytes(&mut rest)?);
            }
        }
        let record = start.get(..start.len() - rest.len())?;
        records.insert(path, (Stamp(stamp), names, record));
    }
    Some(records)
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_le_bytes(*number))
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_number(rest)?).ok()?;
    let (bytes, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(bytes)
}
