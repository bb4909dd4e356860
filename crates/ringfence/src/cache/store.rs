//! Caches on the disk: one folder for each kind and key, below the state folder.
//!
//! A folder appears under its key when it is complete, or not at all. With it goes a list of every file with its hash, and
//! before each use every file is read and held against it. That costs a second for a gigabyte or two. A stamp would be cheaper
//! and would say only that nobody tried to hide a change: times and numbers of files can be set by whoever may write them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ringfence_policy::CacheKind;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::failure::{CacheError, failed};
use super::lock::{Lock, is_hex};
use crate::state::StateFolder;

const FOLDER: &str = "caches";
const FILES: &str = "files";
const MANIFEST: &str = "manifest.json";
const UNFINISHED: &str = "unfinished";
const FORMAT: u32 = 1;
const MOST_MANIFEST: u64 = 128 * 1024 * 1024;
const MOST_FILES: usize = 500_000;
const MOST_BYTES: u64 = 16 * 1024 * 1024 * 1024;
const MOST_DEPTH: usize = 64;

/// The list that goes with a cache.
#[derive(Debug, Serialize, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: u32,
    kind: CacheKind,
    key: String,
    lock: String,
    packages: usize,
    /// By path below the folder: size and blake3.
    files: BTreeMap<String, (u64, String)>,
}

/// One cache, for a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its kind.
    pub kind: CacheKind,
    /// Its key: a hash of kind and lock file.
    pub key: String,
    /// The lock file's name.
    pub lock: String,
    /// How many packages.
    pub packages: usize,
    /// How many bytes.
    pub bytes: u64,
    /// When it was used last.
    pub used: SystemTime,
}

/// A file below a folder.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) size: u64,
}

/// Where the caches of one kind are, held for us alone as long as this lives.
pub(super) struct Held {
    folder: PathBuf,
    _lock: File,
}

impl Held {
    /// Waits until nobody else is at work, and removes what somebody who was killed left.
    pub(super) fn take(state: &StateFolder, kind: CacheKind) -> Result<Self, CacheError> {
        let folder = state.path().join(FOLDER).join(kind.to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(failed("make", &folder))?;
        let lock = File::open(&folder).map_err(failed("open", &folder))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|errno| failed("lock", &folder)(errno.into()))?;
        remove(&folder.join(UNFINISHED))?;
        Ok(Self { folder, _lock: lock })
    }

    /// Two empty folders: one to work in, one for what will be the cache.
    pub(super) fn begin(&self) -> Result<Unfinished, CacheError> {
        let folder = self.folder.join(UNFINISHED);
        let unfinished = Unfinished { work: folder.join("work"), files: folder.join("new").join(FILES), folder };
        for folder in [&unfinished.work, &unfinished.files] {
            DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("make", folder))?;
        }
        Ok(unfinished)
    }

    /// Makes what was fetched a cache.
    pub(super) fn finish(
        &self,
        unfinished: &Unfinished,
        kind: CacheKind,
        lock: &Lock,
        packages: usize,
    ) -> Result<(), CacheError> {
        open_to_all(&unfinished.files)?;
        let mut files = BTreeMap::new();
        for file in files_of(&unfinished.files)? {
            let path = unfinished.files.join(&file.path);
            let name = file.path.into_os_string().into_string().map_err(|name| CacheError::Fetched {
                problem: format!("{} has a name that is not UTF-8", name.display()),
            })?;
            files.insert(name, (file.size, blake3_of(&path)?));
        }
        let name = lock.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let manifest = Manifest { format: FORMAT, kind, key: lock.key.clone(), lock: name, packages, files };
        let new = unfinished.folder.join("new");
        let path = new.join(MANIFEST);
        let text = serde_json::to_vec(&manifest).map_err(|error| failed("write", &path)(error.into()))?;
        fs::write(&path, text).map_err(failed("write", &path))?;
        let opened = File::open(&new).map_err(failed("open", &new))?;
        rustix::fs::syncfs(opened.as_fd()).map_err(|errno| failed("sync", &new)(errno.into()))?;
        let place = self.folder.join(&lock.key);
        remove(&place)?;
        fs::rename(&new, &place).map_err(failed("finish", &place))
    }

    /// Whether the cache of this lock file is there and whole.
    pub(super) fn look(&self, kind: CacheKind, lock: &Lock) -> Result<Presence, CacheError> {
        let folder = self.folder.join(&lock.key);
        if folder.symlink_metadata().is_err() {
            return Ok(Presence::Missing);
        }
        match check(&folder, kind, &lock.key) {
            Ok(_) => Ok(Presence::Whole),
            Err(CacheError::Damaged { problem, .. }) => Ok(Presence::Damaged(problem)),
            Err(error) => Err(error),
        }
    }
}

/// What there is for a lock file.
pub(super) enum Presence {
    Missing,
    Whole,
    Damaged(String),
}

/// Folders that are removed when the work in them is over, or given up.
pub(super) struct Unfinished {
    folder: PathBuf,
    pub(super) work: PathBuf,
    pub(super) files: PathBuf,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next who fills.
        remove(&self.folder).ok();
    }
}

/// The folder to show for this lock file, looked at whole.
pub(super) fn ready(state: &StateFolder, kind: CacheKind, lock: &Lock) -> Result<PathBuf, CacheError> {
    let folder = state.path().join(FOLDER).join(kind.to_string()).join(&lock.key);
    if folder.symlink_metadata().is_err() {
        return Err(CacheError::Missing { kind, lock: lock.path.clone() });
    }
    check(&folder, kind, &lock.key)?;
    // Only `prune` asks for this: that it could not be noted makes a cache look older than it is.
    File::open(folder.join(MANIFEST)).and_then(|file| file.set_modified(SystemTime::now())).ok();
    Ok(folder.join(FILES))
}

/// Looks at a cache whole: it is ours alone, and has exactly the files of its list with exactly their contents.
fn check(folder: &Path, kind: CacheKind, key: &str) -> Result<Manifest, CacheError> {
    let damaged = |problem: String| CacheError::Damaged { kind, problem };
    let ours = folder.symlink_metadata().is_ok_and(|metadata| {
        metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o022 == 0
    });
    if !ours {
        return Err(damaged(format!("{} is not a folder of yours alone", folder.display())));
    }
    let text =
        read_capped(&folder.join(MANIFEST), MOST_MANIFEST).map_err(|_| damaged("its list is missing".to_owned()))?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|_| damaged("its list cannot be read".to_owned()))?;
    if manifest.format != FORMAT || manifest.kind != kind || manifest.key != key {
        return Err(damaged("its list is of another cache".to_owned()));
    }
    let root = folder.join(FILES);
    let found = files_of(&root).map_err(|error| damaged(error.to_string()))?;
    if found.len() != manifest.files.len() {
        return Err(damaged(format!("it has {} files, not {}", found.len(), manifest.files.len())));
    }
    for file in found {
        let known = file.path.to_str().and_then(|path| manifest.files.get(path));
        let Some((size, hash)) = known else {
            return Err(damaged(format!("{} was added", file.path.display())));
        };
        if file.size != *size || blake3_of(&root.join(&file.path))? != *hash {
            return Err(damaged(format!("{} was changed", file.path.display())));
        }
    }
    Ok(manifest)
}

/// Every regular file below `root`. Anything else but folders is refused: a link would lead out, a pipe would wait.
pub(super) fn files_of(root: &Path) -> Result<Vec<Found>, CacheError> {
    let odd = |path: &Path, what: &str| CacheError::Fetched { problem: format!("{} {what}", path.display()) };
    if !root.symlink_metadata().map_err(failed("look at", root))?.is_dir() {
        return Err(odd(root, "is not a folder"));
    }
    let mut found = Vec::new();
    let mut bytes: u64 = 0;
    let mut waiting = vec![(PathBuf::new(), 0)];
    while let Some((below, depth)) = waiting.pop() {
        let folder = root.join(&below);
        if depth > MOST_DEPTH {
            return Err(odd(&below, "lies too deep"));
        }
        for entry in fs::read_dir(&folder).map_err(failed("read", &folder))? {
            let entry = entry.map_err(failed("read", &folder))?;
            let path = below.join(entry.file_name());
            let metadata = entry.path().symlink_metadata().map_err(failed("look at", &path))?;
            if metadata.is_dir() {
                waiting.push((path, depth + 1));
            } else if metadata.is_file() {
                bytes = bytes.saturating_add(metadata.len());
                found.push(Found { path, size: metadata.len() });
            } else {
                return Err(odd(&path, "is neither a file nor a folder"));
            }
            if found.len() > MOST_FILES || waiting.len() > MOST_FILES || bytes > MOST_BYTES {
                return Err(odd(&folder, "holds more than 16 GiB or 500,000 files"));
            }
        }
    }
    Ok(found)
}

/// What lies in a folder, not below it.
pub(super) fn folder(path: &Path) -> Result<Vec<PathBuf>, CacheError> {
    let entries = fs::read_dir(path).map_err(failed("read", path))?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed("read", path))).collect()
}

fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    Ok(File::from(rustix::fs::open(path, flags, Mode::empty())?))
}

pub(super) fn read_capped(path: &Path, most: u64) -> Result<Vec<u8>, CacheError> {
    let mut bytes = Vec::new();
    open(path).and_then(|file| file.take(most).read_to_end(&mut bytes)).map_err(failed("read", path))?;
    Ok(bytes)
}

fn each_piece(path: &Path, mut piece: impl FnMut(&[u8])) -> Result<(), CacheError> {
    let mut file = open(path).map_err(failed("open", path))?;
    let mut buffer = vec![0; 128 * 1024];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => piece(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed("read", path)(error)),
        }
    }
}

fn blake3_of(path: &Path) -> Result<String, CacheError> {
    let mut hasher = blake3::Hasher::new();
    each_piece(path, |piece| {
        hasher.update(piece);
    })?;
    Ok(hasher.finalize().to_hex().to_string())
}

/// The hash of a file in hexadecimal digits.
pub(super) fn digest<D: sha2::Digest>(path: &Path) -> Result<String, CacheError> {
    let mut hasher = D::new();
    each_piece(path, |piece| hasher.update(piece))?;
    Ok(hex(&hasher.finalize()))
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Everybody may read what is shown; nobody comes to it through the folders above. Folders stay ours to remove.
fn open_to_all(root: &Path) -> Result<(), CacheError> {
    let set = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(failed("set the mode of", path))
    };
    set(root, 0o755)?;
    for path in folder(root)? {
        let metadata = path.symlink_metadata().map_err(failed("look at", &path))?;
        if metadata.is_dir() {
            open_to_all(&path)?;
        } else if metadata.is_file() {
            set(&path, if metadata.mode() & 0o100 != 0 { 0o755 } else { 0o644 })?;
        }
    }
    Ok(())
}

/// A file or a folder with all in it; that it is missing is fine.
pub(super) fn remove(path: &Path) -> Result<(), CacheError> {
    let gone = match path.symlink_metadata() {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match gone {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The keys of one kind.
fn keys(state: &StateFolder, kind: CacheKind) -> Result<Vec<(String, PathBuf)>, CacheError> {
    let path = state.path().join(FOLDER).join(kind.to_string());
    if !path.is_dir() {
        return Ok(Vec::new());
    }
    let named = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.to_owned();
        is_hex(&name, 64).then_some((name, path))
    };
    let mut keys: Vec<_> = folder(&path)?.into_iter().filter_map(named).collect();
    keys.sort();
    Ok(keys)
}

fn describe(kind: CacheKind, key: String, folder: &Path, manifest: &Manifest) -> Entry {
    let used = folder.join(MANIFEST).metadata().and_then(|metadata| metadata.modified());
    Entry {
        kind,
        key,
        lock: manifest.lock.clone(),
        packages: manifest.packages,
        bytes: manifest.files.values().map(|(size, _)| size).sum(),
        used: used.unwrap_or(SystemTime::UNIX_EPOCH),
    }
}

/// Every cache, as its list describes it; a list that cannot be read is left to [`verify`].
pub fn list(state: &StateFolder) -> Result<Vec<Entry>, CacheError> {
    let mut entries = Vec::new();
    for kind in super::KINDS {
        for (key, folder) in keys(state, kind)? {
            let text = read_capped(&folder.join(MANIFEST), MOST_MANIFEST);
            if let Some(manifest) = text.ok().and_then(|text| serde_json::from_slice::<Manifest>(&text).ok()) {
                entries.push(describe(kind, key, &folder, &manifest));
            }
        }
    }
    Ok(entries)
}

/// What was found of one cache: its kind, its key, and what it is or what is wrong with it.
pub type Verified = (CacheKind, String, Result<Entry, CacheError>);

/// Looks at every cache whole.
pub fn verify(state: &StateFolder) -> Result<Vec<Verified>, CacheError> {
    let mut found = Vec::new();
    for kind in super::KINDS {
        for (key, folder) in keys(state, kind)? {
            let checked = check(&folder, kind, &key).map(|manifest| describe(kind, key.clone(), &folder, &manifest));
            found.push((kind, key, checked));
        }
    }
    Ok(found)
}

/// Removes the caches that nobody used for `age`, those without a readable list, and what was left unfinished.
pub fn prune(state: &StateFolder, age: Duration) -> Result<usize, CacheError> {
    let before = SystemTime::now().checked_sub(age).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut removed = 0;
    for kind in super::KINDS {
        if !state.path().join(FOLDER).join(kind.to_string()).is_dir() {
            continue;
        }
        let _held = Held::take(state, kind)?;
        for (_, folder) in keys(state, kind)? {
            let used = folder.join(MANIFEST).metadata().and_then(|metadata| metadata.modified());
            if used.map_or(true, |used| used <= before) {
                remove(&folder)?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}
