//! Where open sessions are found: a private folder for each, held by a lock that dies with its keeper.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use ringfence::StateFolder;
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use super::{SessionFailure, SessionName};

const FOLDER: &str = "sessions";
const LOCK: &str = "lock";
const INFO: &str = "session.json";
const SOCKET: &str = "socket";
const MOST_INFO: u64 = 64 * 1024;

/// What is known about a session without asking it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Info {
    pub(super) name: String,
    /// As the ledger has it.
    pub(super) id: String,
    pub(super) backend: String,
    pub(super) workspace: String,
    pub(super) started_at: String,
    pub(super) idle_seconds: u64,
    pub(super) life_seconds: u64,
    /// The process that keeps it.
    pub(super) pid: u32,
}

/// The folder of a session that is kept by this process; removed when dropped.
#[derive(Debug)]
pub(super) struct Held {
    folder: PathBuf,
    _lock: File,
}

fn at(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> SessionFailure {
    let path = path.to_owned();
    move |source| SessionFailure::Folder { attempt, path, source }
}

impl Held {
    /// Takes a name, unless somebody has it.
    pub(super) fn take(state: &StateFolder, name: &SessionName) -> Result<Self, SessionFailure> {
        let parent = state.path().join(FOLDER);
        DirBuilder::new().recursive(true).mode(0o700).create(&parent).map_err(at("make", &parent))?;
        sweep(&parent)?;
        // A sweep must not come between making a folder and taking its lock.
        let no_sweep = File::open(&parent).map_err(at("open", &parent))?;
        rustix::fs::flock(&no_sweep, FlockOperation::LockShared).map_err(|errno| at("lock", &parent)(errno.into()))?;
        let folder = parent.join(name.to_string());
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                return Err(SessionFailure::Taken(name.clone()));
            }
            made => made.map_err(at("make", &folder))?,
        }
        let path = folder.join(LOCK);
        let lock =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(at("make", &path))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|errno| at("lock", &path)(errno.into()))?;
        Ok(Self { folder, _lock: lock })
    }

    /// Listens for those who want something of the session.
    pub(super) fn listen(&self) -> Result<UnixListener, SessionFailure> {
        let failed = || at("listen in", &self.folder);
        let folder = File::open(&self.folder).map_err(failed())?;
        let listener = UnixListener::bind(socket_path(&folder)).map_err(failed())?;
        listener.set_nonblocking(true).map_err(failed())?;
        Ok(listener)
    }

    /// Says what is known, so that others find it.
    pub(super) fn announce(&self, info: &Info) -> Result<(), SessionFailure> {
        let path = self.folder.join(INFO);
        let text = serde_json::to_vec(info).map_err(|error| at("write", &path)(error.into()))?;
        fs::write(&path, text).map_err(at("write", &path))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // What cannot be removed now is found by the next sweep.
        fs::remove_dir_all(&self.folder).ok();
    }
}

/// The name of a socket may only be about a hundred letters long; a descriptor's path always fits.
fn socket_path(folder: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd()))
}

/// Removes the folders of sessions whose keeper is gone. The kernel has ended the sessions themselves.
fn sweep(parent: &Path) -> Result<(), SessionFailure> {
    let alone = match File::open(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        opened => opened.map_err(at("open", parent))?,
    };
    if rustix::fs::flock(&alone, FlockOperation::NonBlockingLockExclusive).is_err() {
        // Somebody is making a folder, or sweeping already.
        return Ok(());
    }
    for entry in fs::read_dir(parent).map_err(at("read", parent))? {
        let folder = entry.map_err(at("read", parent))?.path();
        if !folder.is_dir() {
            continue;
        }
        let lock = match File::open(folder.join(LOCK)) {
            Ok(lock) => lock,
            // Its keeper died before it could lock it, or has just removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::remove_dir_all(&folder).ok();
                continue;
            }
            Err(error) => return Err(at("open", &folder)(error)),
        };
        if rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            fs::remove_dir_all(&folder).map_err(at("remove", &folder))?;
        }
    }
    Ok(())
}

/// The sessions that are open.
pub(super) fn list(state: &StateFolder) -> Result<Vec<Info>, SessionFailure> {
    let parent = state.path().join(FOLDER);
    sweep(&parent)?;
    let entries = match fs::read_dir(&parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(at("read", &parent))?,
    };
    let mut all: Vec<Info> = entries.flatten().filter_map(|entry| read_info(&entry.path())).collect();
    all.sort_by(|a, b| a.started_at.cmp(&b.started_at));
    Ok(all)
}

fn read_info(folder: &Path) -> Option<Info> {
    let mut text = Vec::new();
    File::open(folder.join(INFO)).ok()?.take(MOST_INFO).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// A connection to the session of this name.
pub(super) fn connect(state: &StateFolder, name: &SessionName) -> Result<(Info, UnixStream), SessionFailure> {
    let folder = state.path().join(FOLDER).join(name.to_string());
    let info = read_info(&folder).ok_or_else(|| SessionFailure::Unknown(name.clone()))?;
    let opened = File::open(&folder).map_err(|_| SessionFailure::Unknown(name.clone()))?;
    match UnixStream::connect(socket_path(&opened)) {
        Ok(stream) => Ok((info, stream)),
        // Its keeper is gone, and the folder not yet swept.
        Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => {
            Err(SessionFailure::Unknown(name.clone()))
        }
        Err(source) => Err(SessionFailure::Talk { name: name.clone(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_held_by_one_and_free_when_its_keeper_is_gone() {
        let home = tempfile::tempdir().unwrap();
        let state = StateFolder::prepare(home.path().join("state")).unwrap();
        let name: SessionName = "work".parse().unwrap();
        let held = Held::take(&state, &name).unwrap();
        assert!(matches!(Held::take(&state, &name), Err(SessionFailure::Taken(_))));
        // As a killed keeper leaves it: the lock is free, the folder is there.
        rustix::fs::flock(&held._lock, FlockOperation::Unlock).unwrap();
        let again = Held::take(&state, &name).unwrap();
        std::mem::forget(held);
        drop(again);
        assert_eq!(fs::read_dir(state.path().join(FOLDER)).unwrap().count(), 0);
    }

    #[test]
    fn a_socket_deep_below_long_names_can_be_reached() {
        let home = tempfile::tempdir().unwrap();
        let deep = home.path().join("long-folder-name-".repeat(8)).join("and-another-one-".repeat(8));
        let state = StateFolder::prepare(deep).unwrap();
        let name: SessionName = "work".parse().unwrap();
        let held = Held::take(&state, &name).unwrap();
        let _listener = held.listen().unwrap();
        let info = Info {
            name: name.to_string(),
            id: String::new(),
            backend: String::new(),
            workspace: String::new(),
            started_at: String::new(),
            idle_seconds: 0,
            life_seconds: 0,
            pid: 0,
        };
        held.announce(&info).unwrap();
        assert_eq!(connect(&state, &name).unwrap().0, info);
        assert!(matches!(connect(&state, &"other".parse().unwrap()), Err(SessionFailure::Unknown(_))));
    }
}
