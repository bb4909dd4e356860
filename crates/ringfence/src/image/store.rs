//! Images that were unpacked: one folder for each digest, below the state folder.
//!
//! A folder appears under its name when it is complete, or not at all. One lock for the whole store keeps two starts from
//! unpacking at the same time; it dies with its holder, and whoever gets it next removes what the last one left unfinished.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;

use super::blob::{BlobError, Digest};
use super::compression::Decoder;
use super::layout::{Chosen, Layout};
use super::unpack::{Layer, Limits, Step, UnpackError, Unpacker};
use crate::state::StateFolder;

const FOLDER: &str = "images";
const ROOT: &str = "rootfs";
/// Written last, with the digest in it.
const MARKER: &str = "complete";
const MOST_MARKER: u64 = 256;
const UNFINISHED: &str = "unfinished";
/// How often somebody who waits for the store looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// After so many steps others have their turn: whoever waits for the run can still end it.
const STEPS_PER_TURN: u32 = 32;

/// A root that is ready to be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unpacked {
    root: PathBuf,
}

impl Unpacked {
    /// The folder that is the root.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// Why an image was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store could not be read or written.
    #[error("could not {attempt} {path}")]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A layer is not what it should be.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// A layer is not fit to be unpacked.
    #[error("layer {number} of the image is refused")]
    Layer {
        /// Which, from 1.
        number: usize,
        /// Why.
        source: UnpackError,
    },
}

fn failed(attempt: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Io { attempt, path, source }
}

/// The image with this digest, if it was unpacked before.
pub fn find(state: &StateFolder, digest: &Digest) -> Option<Unpacked> {
    let folder = state.path().join(FOLDER).join(digest.hex());
    is_complete(&folder, digest).then(|| Unpacked { root: folder.join(ROOT) })
}

/// Whether a folder is ours alone and says at its end that it holds this image.
fn is_complete(folder: &Path, digest: &Digest) -> bool {
    let ours = folder.symlink_metadata().is_ok_and(|metadata| {
        metadata.is_dir() && metadata.uid() == rustix::process::geteuid().as_raw() && metadata.mode() & 0o077 == 0
    });
    let said = File::open(folder.join(MARKER)).and_then(|file| {
        let mut text = String::new();
        file.take(MOST_MARKER).read_to_string(&mut text).map(|_| text)
    });
    ours && said.is_ok_and(|said| said == marker(digest)) && folder.join(ROOT).is_dir()
}

fn marker(digest: &Digest) -> String {
    format!("{digest}\n")
}

/// The image, unpacked now if it was not before.
pub async fn obtain(
    state: &StateFolder,
    layout: &Layout,
    chosen: &Chosen,
    limits: Limits,
) -> Result<Unpacked, StoreError> {
    if let Some(unpacked) = find(state, chosen.digest()) {
        return Ok(unpacked);
    }
    let store = state.path().join(FOLDER);
    DirBuilder::new().recursive(true).mode(0o700).create(&store).map_err(failed("make", &store))?;
    let _lock = lock(&store).await?;
    // Somebody else may have done it while we waited.
    if let Some(unpacked) = find(state, chosen.digest()) {
        return Ok(unpacked);
    }
    remove(&store.join(UNFINISHED))?;
    let unfinished = Unfinished(store.join(UNFINISHED));
    unpack(&unfinished.0, layout, chosen, limits).await?;
    let folder = store.join(chosen.digest().hex());
    // One that is there and not complete is of no use to anybody.
    remove(&folder)?;
    fs::rename(&unfinished.0, &folder).map_err(failed("finish", &folder))?;
    Ok(Unpacked { root: folder.join(ROOT) })
}

/// Removes what a killed start left unfinished, unless somebody is at work.
pub fn sweep(state: &StateFolder) -> io::Result<()> {
    let store = state.path().join(FOLDER);
    let alone = match File::open(&store) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if rustix::fs::flock(&alone, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(());
    }
    remove_all(&store.join(UNFINISHED))
}

async fn lock(store: &Path) -> Result<File, StoreError> {
    let folder = File::open(store).map_err(failed("open", store))?;
    loop {
        match rustix::fs::flock(&folder, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(folder),
            Err(rustix::io::Errno::WOULDBLOCK) => tokio::time::sleep(LOOK_AGAIN).await,
            Err(errno) => return Err(failed("lock", store)(errno.into())),
        }
    }
}

/// A folder that is removed when the work on it is given up.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        // What cannot be removed now is found by the next sweep. When all went well it has another name by now.
        remove_all(&self.0).ok();
    }
}

async fn unpack(folder: &Path, layout: &Layout, chosen: &Chosen, limits: Limits) -> Result<(), StoreError> {
    let root = folder.join(ROOT);
    DirBuilder::new().mode(0o700).create(folder).map_err(failed("make", folder))?;
    // Others may look into the root, where it is shown; nobody comes to it through the folders above.
    DirBuilder::new().mode(0o755).create(&root).map_err(failed("make", &root))?;
    let opened = OwnedFd::from(File::open(&root).map_err(failed("open", &root))?);
    rustix::fs::fchmod(&opened, rustix::fs::Mode::from_raw_mode(0o755))
        .map_err(|errno| failed("set the mode of", &root)(errno.into()))?;
    let mut unpacker = Unpacker::new(opened, limits);
    for (index, (blob, compression)) in chosen.layers().iter().enumerate() {
        let from = BufReader::with_capacity(64 * 1024, blob.open(layout.folder())?);
        let mut layer = unpacker.layer(Decoder::new(*compression, from));
        let unpacked = apply(&mut layer).await;
        // Only now is it known whether these were the right bytes. If not, all that they made is removed, and that they
        // were damaged says more than what they were taken for.
        blob.check(layer.finish().into_inner().into_inner())?;
        unpacked.map_err(|source| StoreError::Layer { number: index + 1, source })?;
    }
    write_marker(folder, chosen.digest())
}

async fn apply<R: Read>(layer: &mut Layer<'_, R>) -> Result<(), UnpackError> {
    let mut steps: u32 = 0;
    while layer.step()? == Step::More {
        steps = steps.wrapping_add(1);
        if steps.is_multiple_of(STEPS_PER_TURN) {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// Says that all is there, once all is on the disk.
fn write_marker(folder: &Path, digest: &Digest) -> Result<(), StoreError> {
    let path = folder.join(MARKER);
    let opened = File::open(folder).map_err(failed("open", folder))?;
    rustix::fs::syncfs(opened.as_fd()).map_err(|errno| failed("sync", folder)(errno.into()))?;
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed("make", &path))?;
    file.write_all(marker(digest).as_bytes()).and_then(|()| file.sync_all()).map_err(failed("write", &path))
}

fn remove(path: &Path) -> Result<(), StoreError> {
    remove_all(path).map_err(failed("remove", path))
}

fn remove_all(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
