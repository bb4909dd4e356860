//! Contents of files, each under the hash of what it holds. What comes out is what went in, or an error.

use std::collections::HashSet;
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

const PIECE: usize = 128 * 1024;
/// More files than this are synced sooner with everything else than one by one.
pub(super) const FEW: usize = 8;

/// The name of one content: its BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId([u8; 32]);

impl ObjectId {
    /// The name of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The name of what can be read from `from`.
    pub fn read(from: impl Read) -> io::Result<Self> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(from)?;
        Ok(Self(*hasher.finalize().as_bytes()))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(blake3::Hash::from_bytes(self.0).to_hex().as_str())
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A private folder of contents.
#[derive(Debug, Clone)]
pub struct Objects {
    folder: PathBuf,
}

impl Objects {
    /// The contents in `folder`, which is made when something is added.
    pub fn at(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn path(&self, id: ObjectId) -> PathBuf {
        self.folder.join(id.to_string())
    }

    /// Adds what can be read from `from`, at most `most` bytes of it: more is an error of the kind `FileTooLarge`.
    pub fn add(&self, from: &mut dyn Read, most: u64) -> io::Result<(ObjectId, u64)> {
        let unfinished = self.folder.join(format!("new-{}", crate::RunId::generate().map_err(io::Error::other)?));
        let added = self.add_by(&unfinished, from, most);
        if added.is_err() {
            fs::remove_file(&unfinished).ok();
        }
        added
    }

    fn add_by(&self, unfinished: &Path, from: &mut dyn Read, most: u64) -> io::Result<(ObjectId, u64)> {
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(unfinished);
        let mut file = match create() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
                create()?
            }
            file => file?,
        };
        let mut hasher = blake3::Hasher::new();
        // One more than there may be: too much is seen at once.
        let mut piece = vec![0u8; usize::try_from(most).unwrap_or(PIECE).saturating_add(1).min(PIECE)];
        let mut size = 0u64;
        let mut ends_in_hole = false;
        loop {
            let read = match from.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            size += read as u64;
            if size > most {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            let read = piece.get(..read).unwrap_or_default();
            hasher.update(read);
            ends_in_hole = read.iter().all(|byte| *byte == 0);
            if ends_in_hole {
                // A hole stays one: a file that is mostly holes must not fill the host's disk.
                file.seek(SeekFrom::Current(i64::try_from(read.len()).unwrap_or(i64::MAX)))?;
            } else {
                file.write_all(read)?;
            }
        }
        if ends_in_hole {
            file.set_len(size)?;
        }
        let id = ObjectId(*hasher.finalize().as_bytes());
        fs::rename(unfinished, self.path(id))?;
        Ok((id, size))
    }

    /// The content `id`, to be read. What it really holds has to be looked at where it arrives.
    pub(super) fn open(&self, id: ObjectId) -> io::Result<File> {
        File::open(self.path(id))
    }

    /// Removes everything but the contents `ids`.
    pub fn keep_only(&self, ids: &HashSet<ObjectId>) -> io::Result<()> {
        let names: HashSet<String> = ids.iter().map(ObjectId::to_string).collect();
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_str().is_none_or(|name| !names.contains(name)) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Waits until the contents `ids` are on the disk.
    pub fn sync(&self, ids: &[ObjectId]) -> io::Result<()> {
        let Some(first) = ids.first() else { return Ok(()) };
        if ids.len() > FEW {
            return Ok(rustix::fs::syncfs(File::open(self.path(*first))?)?);
        }
        for id in ids {
            File::open(self.path(*id))?.sync_all()?;
        }
        File::open(&self.folder)?.sync_all()
    }

    /// Writes the content `id` to `to`, and says how much it was. What was written before an error is not to be used.
    pub fn copy(&self, id: ObjectId, to: &mut dyn Write) -> io::Result<u64> {
        let mut file = File::open(self.path(id))?;
        let mut hasher = blake3::Hasher::new();
        let mut piece = vec![0u8; PIECE];
        let mut size = 0u64;
        loop {
            let read = match file.read(&mut piece) {
                Ok(0) => break,
                Ok(read) => piece.get(..read).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            size += read.len() as u64;
            hasher.update(read);
            to.write_all(read)?;
        }
        if hasher.finalize().as_bytes() == &id.0 {
            Ok(size)
        } else {
            Err(io::Error::new(io::ErrorKind::InvalidData, format!("the kept content {id} was changed")))
        }
    }

    /// The content `id` as bytes, unless it is more than `most`.
    pub fn bytes(&self, id: ObjectId, most: u64) -> io::Result<Option<Vec<u8>>> {
        if fs::metadata(self.path(id))?.len() > most {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        self.copy(id, &mut bytes)?;
        Ok(Some(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_is_what_went_in_or_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::at(folder.path().join("objects"));
        let (id, size) = objects.add(&mut b"hello".as_slice(), 5).unwrap();
        assert_eq!((id, size), (ObjectId::of(b"hello"), 5));
        assert_eq!(objects.bytes(id, 5).unwrap().as_deref(), Some(b"hello".as_slice()));
        assert_eq!(objects.bytes(id, 4).unwrap(), None);
        fs::write(objects.path(id), "other").unwrap();
        assert_eq!(objects.bytes(id, 5).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn too_much_is_refused_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let objects = Objects::at(folder.path().to_owned());
        let error = objects.add(&mut b"hello".as_slice(), 4).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
