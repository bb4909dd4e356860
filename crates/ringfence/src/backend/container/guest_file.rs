//! Our own binary as containers are shown it: a copy in the state folder, which nobody changes any more.
//!
//! What a container executes must not be what the next version of us is installed over, nor something that a path leads to
//! which somebody else may write.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::run_id::RunId;
use crate::state::StateFolder;

const FOLDER: &str = "guest";
/// Everybody may execute it: who a container's user is on the host depends on the engine.
const MODE: u32 = 0o555;
const PT_INTERP: u32 = 3;
const HEADERS: u16 = 64;

/// Why there is nothing to execute in a container.
#[derive(Debug, thiserror::Error)]
pub(super) enum GuestFileError {
    /// It could not be read or copied.
    #[error("could not copy our own binary to {path}")]
    Copy {
        /// To where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A container has another libc, or none.
    #[error("{path} needs libraries of this host, so it cannot run in a container")]
    NotStatic {
        /// Which.
        path: PathBuf,
    },
}

/// A copy of `binary` for containers, made unless there is one.
pub(super) fn obtain(binary: &Path, state: &StateFolder) -> Result<PathBuf, GuestFileError> {
    let folder = state.path().join(FOLDER);
    let failed = |source| GuestFileError::Copy { path: folder.clone(), source };
    let mut source = File::open(binary).map_err(failed)?;
    let is = source.metadata().map_err(failed)?;
    // What was changed since has another time, and one that was put in its place another number.
    let name = format!("{:x}-{:x}-{:x}-{:x}.{:x}", is.dev(), is.ino(), is.len(), is.ctime(), is.ctime_nsec());
    let path = folder.join(name);
    if fs::symlink_metadata(&path).is_ok_and(|there| there.is_file() && there.len() == is.len()) {
        return Ok(path);
    }
    if !is_static(&source).map_err(failed)? {
        return Err(GuestFileError::NotStatic { path: binary.to_owned() });
    }
    // Not the state folder itself: whoever removed that does not want it back.
    make_folder(&folder).map_err(failed)?;
    let unique = RunId::generate().map_err(|_| failed(io::ErrorKind::Other.into()))?;
    let part = folder.join(format!("{unique}.part"));
    let copied = copy(&mut source, &part).and_then(|()| fs::rename(&part, &path));
    if let Err(source) = copied {
        // It is not complete, and nobody else knows its name.
        fs::remove_file(&part).ok();
        return Err(failed(source));
    }
    forget_others(&folder, &path);
    Ok(path)
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn copy(source: &mut File, part: &Path) -> io::Result<()> {
    let mut copy = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part)?;
    io::copy(source, &mut copy)?;
    copy.set_permissions(Permissions::from_mode(MODE))?;
    copy.sync_all()
}

/// Removes copies of older binaries. A container that runs one keeps it without its name.
fn forget_others(folder: &Path, kept: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    // One that is being made has another ending.
    let others = entries.map(|entry| entry.path()).filter(|path| path != kept);
    for other in others.filter(|path| path.extension().is_none_or(|ending| ending != "part")) {
        fs::remove_file(other).ok();
    }
}

/// Whether a program of this machine needs no loader. What is no program at all needs one.
fn is_static(file: &File) -> io::Result<bool> {
    let mut header = [0u8; HEADERS as usize];
    file.read_exact_at(&mut header, 0)?;
    let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let (size, count) = (u64::from(half(54)), half(56));
    let begins = u64::from_le_bytes([32, 33, 34, 35, 36, 37, 38, 39].map(|at: usize| header[at]));
    if !header.starts_with(b"\x7fELF\x02\x01") || count > HEADERS {
        return Ok(false);
    }
    for number in 0..u64::from(count) {
        let mut kind = [0u8; 4];
        file.read_exact_at(&mut kind, begins.saturating_add(number * size))?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> (tempfile::TempDir, StateFolder) {
        let folder = tempfile::tempdir().unwrap();
        let state = StateFolder::prepare(folder.path().join("state")).unwrap();
        (folder, state)
    }

    #[test]
    fn a_static_binary_is_copied_once_and_again_when_it_became_another() {
        let (folder, state) = state();
        let binary = folder.path().join("binary");
        fs::copy("/proc/self/exe", &binary).unwrap();
        let first = obtain(&binary, &state).unwrap();
        let made = fs::metadata(&first).unwrap();
        assert_eq!(made.mode() & 0o777, MODE);
        assert_eq!(obtain(&binary, &state).unwrap(), first);
        assert_eq!(fs::metadata(&first).unwrap().ino(), made.ino(), "not made a second time");
        fs::remove_file(&binary).unwrap();
        fs::copy("/proc/self/exe", &binary).unwrap();
        let second = obtain(&binary, &state).unwrap();
        assert_ne!(second, first);
        assert!(!first.exists() && second.exists());
    }

    #[test]
    fn a_state_folder_that_was_removed_is_not_made_again() {
        let (_folder, state) = state();
        let binary = Path::new("/proc/self/exe");
        obtain(binary, &state).unwrap();
        fs::remove_dir_all(state.path()).unwrap();
        assert!(obtain(binary, &state).is_err());
        assert!(!state.path().exists());
        fs::create_dir(state.path()).unwrap();
        assert!(obtain(binary, &state).is_ok(), "the twin");
    }

    #[test]
    fn what_needs_a_loader_or_is_no_program_is_refused() {
        let (folder, state) = state();
        let script = folder.path().join("script");
        fs::write(&script, "#!/bin/sh\n".repeat(64)).unwrap();
        for other in ["/bin/sh", script.to_str().unwrap()] {
            let refused = obtain(Path::new(other), &state).unwrap_err();
            assert!(matches!(refused, GuestFileError::NotStatic { .. }), "{other}: {refused:?}");
        }
    }
}
