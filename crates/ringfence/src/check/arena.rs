//! Private folders that attacks start from and aim at, and the sweep of what a killed check left.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use ringfence_policy::{Mount, ResolvedPolicy};
use rustix::fs::FlockOperation;

use super::CheckError;
use super::host::secret;
use crate::state::StateFolder;

/// A variable of the host that no policy passes.
pub(super) const VARIABLE: &str = "CANARY_OF_THE_HOST";
const PREFIX: &str = "ringfence-check-";
const LOCK: &str = "lock";

/// Everything that a check makes on the host; removed when dropped.
#[derive(Debug)]
pub(super) struct Arena {
    folder: PathBuf,
    variable: String,
    /// Held open for its lock, which says that the folder is in use.
    _lock: File,
}

/// A workspace, and beside it what no policy shows.
#[derive(Debug, Clone)]
pub(super) struct Field {
    folder: PathBuf,
    canary: PathBuf,
}

impl Arena {
    pub(super) fn create() -> Result<Self, CheckError> {
        let parent = std::env::temp_dir();
        let parent = parent.canonicalize().map_err(CheckError::io(format!("find {}", parent.display())))?;
        sweep(&parent);
        let name = secret()?;
        let folder = parent.join(format!("{PREFIX}{name}"));
        let failed = || format!("make {}", folder.display());
        // Everybody may look in: what keeps a program from it must be the wall, not the mode of a folder.
        make_folder(&folder, 0o755)?;
        let lock = File::create(folder.join(LOCK)).map_err(CheckError::io(failed()))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| CheckError::io(failed())(errno.into()))?;
        Ok(Self { folder, variable: secret()?, _lock: lock })
    }

    /// The value of [`VARIABLE`].
    pub(super) fn variable(&self) -> &str {
        &self.variable
    }

    /// One of its fields. What is kept of runs is in `state`.
    pub(super) fn field(&self, name: &str, state: &StateFolder) -> Result<Field, CheckError> {
        let field = Field { folder: self.folder.join(name), canary: state.path().join(format!("{PREFIX}{name}")) };
        for folder in [field.folder.clone(), field.workspace(), field.outside()] {
            make_folder(&folder, 0o755)?;
        }
        Ok(field)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // What cannot be removed now is found by the next sweep.
        fs::remove_dir_all(&self.folder).ok();
    }
}

impl Field {
    pub(super) fn workspace(&self) -> PathBuf {
        self.folder.join("workspace")
    }

    /// A folder that everybody on the host may read.
    pub(super) fn outside(&self) -> PathBuf {
        self.folder.join("outside")
    }

    /// A file beside the ledger, which is not there.
    pub(super) fn canary(&self) -> Result<PathBuf, CheckError> {
        // Of a check that was killed it may be.
        remove_if_there(&self.canary)?;
        Ok(self.canary.clone())
    }

    /// Makes a folder outside that everybody on the host may write. We only ever look at it: somebody else could have put
    /// a link there.
    pub(super) fn make_open(&self) -> Result<PathBuf, CheckError> {
        let open = self.outside().join("open");
        make_folder(&open, 0o777)?;
        Ok(open)
    }

    /// Mounts that the policy names from its workspace have to be there, also in ours.
    pub(super) fn make_mounted(&self, policy: &ResolvedPolicy) -> Result<(), CheckError> {
        for path in mounted(policy) {
            let path = self.workspace().join(path);
            fs::create_dir_all(&path).map_err(CheckError::io(format!("make {}", path.display())))?;
        }
        Ok(())
    }

    /// Takes away what the last attack made.
    pub(super) fn clear(&self, policy: &ResolvedPolicy) -> Result<(), CheckError> {
        for folder in [self.workspace(), self.outside()] {
            let failed = || format!("clear {}", folder.display());
            for entry in fs::read_dir(&folder).map_err(CheckError::io(failed()))? {
                let path = entry.map_err(CheckError::io(failed()))?.path();
                let is_folder = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir());
                let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                removed.map_err(CheckError::io(failed()))?;
            }
        }
        self.make_mounted(policy)
    }

    /// Writes a file that everybody may read and write.
    pub(super) fn write(&self, path: &Path, content: &str) -> Result<(), CheckError> {
        let failed = || format!("write {}", path.display());
        fs::write(path, content).map_err(CheckError::io(failed()))?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(CheckError::io(failed()))
    }
}

fn mounted(policy: &ResolvedPolicy) -> impl Iterator<Item = &Path> {
    policy.fs.mounts.iter().filter_map(|mount| match &mount.value {
        Mount::Host { host, .. } if host.as_path().is_relative() => Some(host.as_path()),
        Mount::Host { .. } | Mount::Tmpfs { .. } => None,
    })
}

/// Removes a file; says whether it was there.
pub(super) fn remove_if_there(file: &Path) -> Result<bool, CheckError> {
    match fs::remove_file(file) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(CheckError::io(format!("remove {}", file.display()))(error)),
    }
}

fn make_folder(path: &Path, mode: u32) -> Result<(), CheckError> {
    let failed = || format!("make {}", path.display());
    DirBuilder::new().mode(0o700).create(path).map_err(CheckError::io(failed()))?;
    // Not by the builder: a umask would take it away again.
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(CheckError::io(failed()))
}

/// Removes the folders of checks that were killed. What is somebody else's, or in use, stays.
fn sweep(parent: &Path) {
    let ours = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        let is_ours = path.symlink_metadata().is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == ours);
        if is_named && is_ours && is_abandoned(&path).unwrap_or(false) {
            // Another check may be removing it too.
            fs::remove_dir_all(&path).ok();
        }
    }
}

fn is_abandoned(folder: &Path) -> io::Result<bool> {
    match File::open(folder.join(LOCK)) {
        Ok(lock) => Ok(rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Just being made, or killed in between: told apart by age.
            let age = folder.metadata()?.modified()?.elapsed().unwrap_or_default();
            Ok(age > std::time::Duration::from_secs(60))
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_check_left_is_swept_and_what_is_in_use_stays() {
        let parent = tempfile::tempdir().unwrap();
        let [dead, living] = ["dead", "living"].map(|name| parent.path().join(format!("{PREFIX}{name}")));
        for folder in [&dead, &living] {
            fs::create_dir(folder).unwrap();
            File::create(folder.join(LOCK)).unwrap();
        }
        let lock = File::open(living.join(LOCK)).unwrap();
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        fs::create_dir(parent.path().join("other")).unwrap();
        sweep(parent.path());
        assert!(!dead.exists() && living.exists() && parent.path().join("other").exists());
    }
}
