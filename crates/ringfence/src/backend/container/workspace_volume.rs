//! A workspace that only the engine can keep from being written: a private copy of it in a volume, which the container shows
//! read-only.
//!
//! What a guest fills is its own user's, and so its programs'; only Landlock closes that to them. A kernel of its own may have none. So
//! the copy is put into the volume before there is a container, through one that is never started, and nobody inside ever has it
//! otherwise than read-only. One volume belongs to one container, and is removed with it.
//!
//! An engine makes an empty volume where a container names one that is gone. So what is never started stays until the container is
//! made, and until then nobody takes the volume for one that nothing uses; and that it still is the one that was filled is asked.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream;
use hyper::Method;
use hyper::body::Bytes;
use serde::Deserialize;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::engine::{ContainerId, Engine, SHORT, encoded, json};
use super::failure::{EngineError, EngineFailure};
use super::guest_volume::courier_body;
use super::labels::{Labels, OWNER};
use super::leaving::{Leaving, LeavingOne};
use super::spec::{GuestPlace, ImageId, ReadOnlyVolume, User};
use crate::run_id::RunId;

/// What the names of these volumes begin with.
pub(super) const NAMED: &str = "ringfence-workspace-";
const MAKE: &str = "make a volume for the workspace";
const PUT: &str = "put the workspace into its volume";
const HAND_OVER: &str = "find the workspace's volume again";
/// Sent at once, and so many of them wait for the engine.
const PIECE: usize = 256 * 1024;
const PIECES: usize = 4;

/// So often, and with such a pause, a volume is removed that nobody removed: the container that showed it may still be going.
const TRIES: u32 = 25;
const PAUSE: Duration = Duration::from_millis(200);

/// A volume with a copy of a workspace in it.
#[derive(Debug, Clone)]
pub(super) struct WorkspaceVolume {
    volume: Arc<Volume>,
    at: PathBuf,
}

/// A volume that goes with the last who knows of it: whoever made it may have been cancelled.
#[derive(Debug)]
struct Volume {
    engine: Engine,
    name: String,
    /// What it was filled through, as long as that is there.
    courier: Mutex<Option<ContainerId>>,
    is_removed: AtomicBool,
    /// It is waited for.
    one: Option<LeavingOne>,
}

/// What is looked at of a volume.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Found {
    #[serde(default)]
    labels: Option<HashMap<String, String>>,
}

impl Volume {
    fn courier(&self) -> MutexGuard<'_, Option<ContainerId>> {
        self.courier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else { return };
        if self.is_removed.load(Ordering::Relaxed) {
            return;
        }
        let (engine, name, one) = (self.engine.clone(), self.name.clone(), self.one.take());
        let courier = self.courier().take();
        runtime.spawn(async move {
            for _ in 0..TRIES {
                if remove_both(&engine, courier.as_ref(), &name).await.is_ok() {
                    break;
                }
                tokio::time::sleep(PAUSE).await;
            }
            drop(one);
        });
    }
}

impl WorkspaceVolume {
    /// As its container shows it.
    pub(super) fn shown(&self) -> ReadOnlyVolume {
        ReadOnlyVolume { name: self.volume.name.clone(), at: self.at.clone() }
    }

    /// Leaves it to its container, which was made by now, once it is sure that what that shows is what was filled.
    pub(super) async fn hand_over(&self) -> Result<(), EngineError> {
        let Volume { engine, name, .. } = &*self.volume;
        let path = format!("/volumes/{}", encoded(name));
        let found: Found = engine.get(&path, SHORT, HAND_OVER).await?;
        // One that an engine makes because it is named has no labels of ours.
        if !found.labels.unwrap_or_default().contains_key(OWNER) {
            let message = "the volume was removed before its container was made, which would show an empty workspace; \
                run it again, and prune no volumes meanwhile";
            return Err(EngineFailure::Absent(message.to_owned()).during(HAND_OVER));
        }
        let courier = self.volume.courier().clone();
        if let Some(courier) = courier {
            engine.remove(&courier).await?;
            *self.volume.courier() = None;
        }
        Ok(())
    }

    /// Removes it. The container that showed it must be gone.
    pub(super) async fn remove(&self) -> Result<(), EngineError> {
        let courier = self.volume.courier().clone();
        remove_both(&self.volume.engine, courier.as_ref(), &self.volume.name).await?;
        self.volume.is_removed.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// Removes a volume, and before it what still uses it.
async fn remove_both(engine: &Engine, courier: Option<&ContainerId>, name: &str) -> Result<(), EngineError> {
    if let Some(courier) = courier {
        engine.remove(courier).await?;
    }
    remove(engine, name).await
}

/// Removes a volume. One that is gone is as good as removed.
pub(super) async fn remove(engine: &Engine, name: &str) -> Result<(), EngineError> {
    let path = format!("/volumes/{}", encoded(name));
    match engine.call(Method::DELETE, &path, json(Vec::new()), SHORT, "remove the volume of a workspace").await {
        Ok(_) | Err(EngineError { failure: EngineFailure::Absent(_), .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Has the engine make a volume with what is in `folder`, as files of `user`, for a container that shows it at `at`. `image` is any
/// image that it has: nothing of it is run. The labels are those of a courier, and say whose the volume is.
pub(super) async fn put(
    engine: &Engine,
    (folder, at): (BorrowedFd<'_>, &Path),
    user: User,
    image: &ImageId,
    (labels, all): (&Labels, &Leaving),
) -> Result<WorkspaceVolume, EngineError> {
    let lost = |error: &dyn std::fmt::Display| EngineFailure::Lost(error.to_string());
    let unique = RunId::generate().map_err(|error| lost(&error).during(MAKE))?;
    let volume = Volume {
        engine: engine.clone(),
        name: format!("{NAMED}{unique}"),
        courier: Mutex::new(None),
        is_removed: AtomicBool::new(false),
        one: Some(all.one()),
    };
    let volume = WorkspaceVolume { volume: Arc::new(volume), at: at.to_owned() };
    // By what is held: the copy lies where nobody else comes.
    let folder = folder.try_clone_to_owned().map_err(|error| lost(&error).during(PUT))?;
    let filled = make_and_fill(volume.clone(), folder, user, image.clone(), labels.clone());
    // By itself: also for somebody who does not wait any more, what was made for it is removed, and not before it was made.
    if let Err(error) = tokio::spawn(filled).await.map_err(|error| lost(&error).during(PUT)).flatten() {
        // The first failure is the one to tell; what is left is found by its labels.
        volume.remove().await.ok();
        return Err(error);
    }
    Ok(volume)
}

/// Has the engine make `volume`, and fills it through a container that is never started.
async fn make_and_fill(
    volume: WorkspaceVolume,
    folder: OwnedFd,
    user: User,
    image: ImageId,
    labels: Labels,
) -> Result<(), EngineError> {
    let lost = |error: &dyn std::fmt::Display| EngineFailure::Lost(error.to_string());
    let Volume { engine, name, .. } = &*volume.volume;
    let body = serde_json::json!({ "Name": name, "Driver": "local", "Labels": labels.as_map() }).to_string();
    engine.call(Method::POST, "/volumes/create", json(body.into_bytes()), SHORT, MAKE).await?;
    let place = GuestPlace::new().map_err(|error| lost(&error).during(PUT))?;
    let courier = engine.create_courier(&courier_body(&image, name, &place, &labels)).await?;
    *volume.volume.courier() = Some(courier.clone());
    let path = format!("/containers/{}/archive?path={}", courier.as_str(), encoded(place.as_str()));
    let (sender, pieces) = mpsc::channel(PIECES);
    let packing = tokio::task::spawn_blocking(move || {
        let root = PathBuf::from(format!("/proc/self/fd/{}/.", folder.as_raw_fd()));
        let pieces = Pieces { sender, next: Vec::new() };
        pack(&root, user, pieces).and_then(|mut pieces| pieces.flush())
    });
    let pieces = stream::unfold(pieces, |mut pieces| async { Some((pieces.recv().await?, pieces)) });
    let sent = engine.send_archive(&path, pieces, PUT).await;
    // An archive that broke off may look to an engine like one that came to its end.
    let packed = packing.await.map_err(|error| lost(&error).during(PUT))?.map_err(|error| lost(&error).during(PUT));
    sent.and(packed)
}

/// What is written is sent in pieces.
struct Pieces {
    sender: mpsc::Sender<Bytes>,
    next: Vec<u8>,
}

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.next.extend_from_slice(bytes);
        if self.next.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = Bytes::from(std::mem::take(&mut self.next));
        // Who took them is gone, and says why.
        self.sender.blocking_send(piece).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Packs all below `root` into `to`, as the user's own.
fn pack<W: Write>(root: &Path, user: User, to: W) -> io::Result<W> {
    let mut builder = tar::Builder::new(to);
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let mut entries = fs::read_dir(root.join(&folder))?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_unstable_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = folder.join(entry.file_name());
            let found = entry.path().symlink_metadata()?;
            let mut header = tar::Header::new_gnu();
            header.set_uid(user.uid.into());
            header.set_gid(user.gid.into());
            header.set_mode(found.mode() & 0o777);
            header.set_mtime(u64::try_from(found.mtime()).unwrap_or(0));
            header.set_size(0);
            if found.is_symlink() {
                header.set_entry_type(tar::EntryType::Symlink);
                builder.append_link(&mut header, &path, fs::read_link(entry.path())?)?;
            } else if found.is_dir() {
                header.set_entry_type(tar::EntryType::Directory);
                builder.append_data(&mut header, &path, io::empty())?;
                folders.push(path);
            } else if found.is_file() {
                header.set_entry_type(tar::EntryType::Regular);
                header.set_size(found.len());
                builder.append_data(&mut header, &path, fs::File::open(entry.path())?)?;
            }
            // What programs talk through cannot be talked through in a copy.
        }
    }
    builder.into_inner()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_workspace_is_packed_as_the_programs_own_and_without_what_gives_rights() {
        let root = tempfile::tempdir().unwrap();
        let long = format!("deep/{}/{}", "d".repeat(120), "f".repeat(120));
        fs::create_dir_all(root.path().join(&long).parent().unwrap()).unwrap();
        fs::write(root.path().join(&long), "long").unwrap();
        fs::write(root.path().join("run"), "code").unwrap();
        fs::set_permissions(root.path().join("run"), fs::Permissions::from_mode(0o4750)).unwrap();
        symlink("../../etc/passwd", root.path().join("link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(root.path().join("socket")).unwrap();
        let packed = pack(root.path(), User { uid: 12, gid: 34 }, Vec::new()).unwrap();

        let mut archive = tar::Archive::new(packed.as_slice());
        let mut found = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            assert_eq!((entry.header().uid().unwrap(), entry.header().gid().unwrap()), (12, 34));
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let link = entry.link_name().unwrap().map(|link| link.display().to_string());
            let path = entry.path().unwrap().display().to_string();
            found.insert(path, (entry.header().mode().unwrap(), content, link));
        }
        let at = |path: &str| found.get(path).unwrap_or_else(|| panic!("{path} is not in {found:?}"));
        assert_eq!(at(&long).1, "long");
        assert_eq!(at("run"), &(0o750, "code".to_owned(), None));
        assert_eq!(at("link").2.as_deref(), Some("../../etc/passwd"));
        assert_eq!(found.len(), 5, "{found:?}");
    }

    #[test]
    fn a_copy_that_cannot_be_read_is_no_archive_and_one_that_nobody_takes_ends() {
        let root = tempfile::tempdir().unwrap();
        pack(&root.path().join("missing"), User { uid: 1, gid: 1 }, Vec::new()).unwrap_err();
        fs::write(root.path().join("file"), vec![1; 2 * PIECE]).unwrap();
        let (sender, taken) = mpsc::channel(1);
        drop(taken);
        let pieces = Pieces { sender, next: Vec::new() };
        assert_eq!(pack(root.path(), User { uid: 1, gid: 1 }, pieces).err().unwrap().kind(), io::ErrorKind::BrokenPipe);
    }
}
