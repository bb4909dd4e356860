//! A private folder per run: code and files that came with the request, and what a program without a view of its own may write.
//!
//! A lock that dies with its holder marks a folder as in use, so that the next start can tell what a killed supervisor
//! left behind from what a living one needs.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::remove_tree::remove_tree;
use crate::request::InputFile;
use crate::run_id::RunId;
use crate::state::StateFolder;

const FOLDER: &str = "scratch";
const LOCK_ENDING: &str = "lock";

/// A run's folder; removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
    lock_path: PathBuf,
    /// Held open for its lock.
    _lock: File,
}

/// Why a scratch folder could not be made.
#[derive(Debug, thiserror::Error)]
#[error("could not write {path}")]
pub struct ScratchError {
    path: PathBuf,
    source: io::Error,
}

impl Scratch {
    /// Makes the folder of `run`.
    pub fn create(state: &StateFolder, run: &RunId) -> Result<Self, ScratchError> {
        let parent = state.path().join(FOLDER);
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| ScratchError { path, source }
        };
        // Not the state folder itself: whoever removed that does not want it back.
        match DirBuilder::new().mode(0o700).create(&parent) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(at(&parent))?,
        }
        // A sweep must not come between making a lock file and taking its lock.
        let no_sweep = File::open(&parent).map_err(at(&parent))?;
        rustix::fs::flock(&no_sweep, FlockOperation::LockShared).map_err(|errno| at(&parent)(errno.into()))?;
        let lock_path = parent.join(format!("{run}.{LOCK_ENDING}"));
        let lock =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&lock_path).map_err(at(&lock_path))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| at(&lock_path)(errno.into()))?;
        let folder = parent.join(run.as_str());
        DirBuilder::new().mode(0o700).create(&folder).map_err(at(&folder))?;
        Ok(Self { folder, lock_path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// The file beside it that says it is in use.
    pub fn lock_path(&self) -> &Path {
        &self.lock_path
    }

    /// Makes a folder in it, which may be there already.
    pub fn make_folder(&self, name: &str) -> Result<(), ScratchError> {
        let path = self.folder.join(name);
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.map_err(|source| ScratchError { path, source })
    }

    /// Writes a new file. The path was checked to be relative and plain when the request was.
    pub fn write(&self, file: &InputFile) -> Result<PathBuf, ScratchError> {
        let path = self.folder.join(&file.path);
        let failed = |source| ScratchError { path: path.clone(), source };
        if let Some(parent) = path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(parent).map_err(failed)?;
        }
        let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
        written.write_all(&file.content).map_err(failed)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed now is found by the next sweep.
        if remove_tree(&self.folder).is_ok() {
            fs::remove_file(&self.lock_path).ok();
        }
    }
}

/// Removes the folders of runs whose supervisor is gone; says how many.
pub fn sweep(state: &StateFolder) -> io::Result<usize> {
    let parent = state.path().join(FOLDER);
    let entries = match fs::read_dir(&parent) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error),
    };
    let alone = File::open(&parent)?;
    if rustix::fs::flock(&alone, FlockOperation::NonBlockingLockExclusive).is_err() {
        // Somebody is making a folder, or sweeping already.
        return Ok(0);
    }
    let mut removed = 0;
    for entry in entries {
        let path = entry?.path();
        let is_lock = path.extension().is_some_and(|ending| ending == LOCK_ENDING);
        if !is_lock {
            continue;
        }
        let lock = match File::open(&path) {
            Ok(lock) => lock,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            continue;
        }
        let folder = path.with_extension("");
        match remove_tree(&folder) {
            Ok(()) => removed += 1,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_folder_stays_and_a_dead_one_is_swept() {
        let home = tempfile::tempdir().unwrap();
        let state = StateFolder::prepare(home.path().join("state")).unwrap();
        let living = Scratch::create(&state, &RunId::generate().unwrap()).unwrap();
        let dead = Scratch::create(&state, &RunId::generate().unwrap()).unwrap();
        let dead_folder = dead.path().to_owned();
        // As a killed supervisor leaves it: the lock is free, the folder is there.
        rustix::fs::flock(&dead._lock, FlockOperation::Unlock).unwrap();
        assert_eq!(sweep(&state).unwrap(), 1);
        assert!(!dead_folder.exists());
        assert!(living.path().exists());
        let living_folder = living.path().to_owned();
        drop(living);
        assert!(!living_folder.exists());
        drop(dead);
        assert_eq!(fs::read_dir(state.path().join(FOLDER)).unwrap().count(), 0);
    }

    #[test]
    fn a_state_folder_that_was_removed_is_not_made_again() {
        let home = tempfile::tempdir().unwrap();
        let state = StateFolder::prepare(home.path().join("state")).unwrap();
        assert!(Scratch::create(&state, &RunId::generate().unwrap()).is_ok(), "the twin");
        fs::remove_dir_all(state.path()).unwrap();
        assert!(Scratch::create(&state, &RunId::generate().unwrap()).is_err());
        assert!(!state.path().exists());
    }

    #[test]
    fn a_file_never_replaces_another() {
        let home = tempfile::tempdir().unwrap();
        let state = StateFolder::prepare(home.path().join("state")).unwrap();
        let scratch = Scratch::create(&state, &RunId::generate().unwrap()).unwrap();
        let file = InputFile { path: "a/b.py".into(), content: b"1".to_vec() };
        assert_eq!(fs::read(scratch.write(&file).unwrap()).unwrap(), b"1");
        assert!(scratch.write(&file).is_err());
    }
}
