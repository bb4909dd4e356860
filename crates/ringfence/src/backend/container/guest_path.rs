//! The path of our binary, around the request that shows it to an engine.
//!
//! Podman makes a folder of every path that it is to show and does not find, with all folders on the way. Whoever removes the
//! state folder while a container is being made would find it there again, and a folder where our binary was.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Its device, its number there, and when it was made: a number is soon another's.
type Identity = (u64, u64, Option<SystemTime>);

/// What was on the way to our binary before an engine was told of it.
#[derive(Debug)]
pub(super) struct GuestPath {
    /// The binary first, then each folder around it.
    was: Vec<(PathBuf, Option<Identity>)>,
}

impl GuestPath {
    /// The way to `binary`, which must be there: nothing is made for one that is not.
    pub(super) fn look(binary: &Path) -> io::Result<Self> {
        if !fs::symlink_metadata(binary)?.is_file() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "there is something else where our binary was"));
        }
        let was = binary.ancestors().map(|path| (path.to_owned(), identity(path))).collect();
        Ok(Self { was })
    }

    /// Removes the folders that came since. Only empty ones, from the innermost on: what anybody else put there stays.
    pub(super) fn remove_what_came(&self) {
        for (path, was) in &self.was {
            match identity(path) {
                // Nobody made it again; what is around it may have been made.
                None => {}
                now if now == *was => return,
                Some(_) => match fs::remove_dir(path) {
                    Ok(()) => {}
                    // Somebody uses it.
                    Err(_) => return,
                },
            }
        }
    }
}

fn identity(path: &Path) -> Option<Identity> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino(), found.created().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, PathBuf) {
        let home = tempfile::tempdir().unwrap();
        let binary = home.path().join("state/guest/binary");
        fs::create_dir_all(binary.parent().unwrap()).unwrap();
        fs::write(&binary, "x").unwrap();
        (home, binary)
    }

    #[test]
    fn folders_that_an_engine_made_of_a_path_that_is_gone_are_removed_and_no_others() {
        let (home, binary) = state();
        let path = GuestPath::look(&binary).unwrap();
        path.remove_what_came();
        assert!(binary.is_file(), "the twin: what was there stays");
        fs::remove_dir_all(home.path().join("state")).unwrap();
        path.remove_what_came();
        fs::create_dir_all(&binary).unwrap();
        path.remove_what_came();
        assert!(home.path().is_dir() && !home.path().join("state").exists());
        // Somebody uses it again.
        fs::create_dir_all(&binary).unwrap();
        fs::write(home.path().join("state/ledger"), "x").unwrap();
        path.remove_what_came();
        assert!(home.path().join("state/ledger").exists() && !home.path().join("state/guest").exists());
    }

    #[test]
    fn nothing_is_made_for_a_binary_that_is_not_there() {
        let (home, binary) = state();
        assert!(GuestPath::look(&binary).is_ok(), "the twin");
        assert!(GuestPath::look(&home.path().join("state")).is_err());
        fs::remove_file(&binary).unwrap();
        assert!(GuestPath::look(&binary).is_err());
    }
}
