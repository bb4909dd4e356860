//! The folder that holds what outlives a run: the ledger, scratch folders, and what was found in workspaces. Never inside a
//! sandbox.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A private folder that is ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateFolder(PathBuf);

/// Why there is no usable state folder.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Nothing says where it should be.
    #[error(
        "there is no place for the ledger: none of RINGFENCE_STATE_DIR, XDG_STATE_HOME and HOME is an absolute path"
    )]
    Nowhere,
    /// It could not be made or looked at.
    #[error("could not prepare the state folder {path}")]
    Prepare {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Somebody else could write it.
    #[error(
        "the state folder {path} {problem}; it must be yours alone. Remove it, or set RINGFENCE_STATE_DIR to another folder"
    )]
    NotPrivate {
        /// Where.
        path: PathBuf,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl StateFolder {
    /// The folder that the environment names, by `RINGFENCE_STATE_DIR`, `XDG_STATE_HOME` or `HOME`, in this order.
    pub fn from_environment(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Result<Self, StateError> {
        let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let path = absolute("RINGFENCE_STATE_DIR")
            .or_else(|| absolute("XDG_STATE_HOME").map(|path| path.join("ringfence")))
            .or_else(|| absolute("HOME").map(|path| path.join(".local/state/ringfence")))
            .ok_or(StateError::Nowhere)?;
        Self::prepare(path)
    }

    /// Makes `path` if it is missing, and checks that it is private.
    pub fn prepare(path: PathBuf) -> Result<Self, StateError> {
        let failed = |source| StateError::Prepare { path: path.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(&path).map_err(failed)?;
        let metadata = fs::symlink_metadata(&path).map_err(failed)?;
        let problem = if !metadata.is_dir() {
            Some("is not a folder")
        } else if metadata.uid() != rustix::process::geteuid().as_raw() {
            Some("belongs to another user")
        } else if metadata.mode() & 0o022 != 0 {
            Some("can be written by others")
        } else {
            None
        };
        match problem {
            Some(problem) => Err(StateError::NotPrivate { path, problem }),
            None => Ok(Self(path)),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_first_absolute_path_wins() {
        let folder = tempfile::tempdir().unwrap();
        let wanted = folder.path().join("state");
        let state = StateFolder::from_environment(|name| match name {
            "RINGFENCE_STATE_DIR" => Some("relative/is/ignored".into()),
            "XDG_STATE_HOME" => Some(wanted.clone().into()),
            _ => Some("/nowhere".into()),
        })
        .unwrap();
        assert_eq!(state.path(), wanted.join("ringfence"));
        assert_eq!(fs::metadata(state.path()).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn f25_a_folder_that_others_can_write_or_a_link_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        fs::create_dir(&open).unwrap();
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(StateFolder::prepare(open.clone()), Err(StateError::NotPrivate { .. })));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(StateFolder::prepare(link).is_err());
        assert!(matches!(StateFolder::from_environment(|_| None), Err(StateError::Nowhere)));
    }
}
