//! The places of a container that can be written, and how much each may hold.
//!
//! An engine gives each place a file system of its own, so `fs.size`, which holds for all of them together, is shared out.
//! What the workspace has before anything runs does not count: behind other walls it lies below a layer.

use std::path::{Path, PathBuf};

use ringfence_linux::wall::HOME;
use ringfence_policy::{Mount, ResolvedPolicy};

use crate::backend::inside::CODE;

/// Shared memory; the engine has an option of its own for it.
pub(super) const SHARED_MEMORY: &str = "/dev/shm";
const PAGE: u64 = 4096;
/// Of less than this, a part would be of no use to any program.
pub(super) const LEAST_SIZE: u64 = 1024 * 1024;

/// One place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) at: PathBuf,
    pub(super) bytes: u64,
    pub(super) files: u64,
    /// Of its permissions, the last twelve bits.
    pub(super) mode: u32,
}

/// The parts of `fs.size`, in sixteenths.
const WORKSPACE_PART: u64 = 8;
const PARTS: [(&str, u64, u32); 4] =
    [("/tmp", 4, 0o1777), (HOME, 2, 0o700), (SHARED_MEMORY, 1, 0o1777), (CODE, 1, 0o700)];
const WHOLE: u64 = 16;

/// What so many bytes in so many files take in memory: each file takes whole pages.
pub(super) fn in_memory(bytes: u64, files: u64) -> u64 {
    bytes.saturating_add(files.saturating_mul(PAGE))
}

/// How many files may be made where so many bytes may be written; the same behind every wall.
pub(super) fn files(bytes: u64) -> u64 {
    (bytes / PAGE).clamp(1024, 1 << 20)
}

/// All places, the workspace first, which is at `workspace` and begins with `filled` bytes in so many files and folders.
pub(super) fn places(policy: &ResolvedPolicy, workspace: &Path, filled: u64, filled_files: u64) -> Vec<Place> {
    let size = policy.fs.size.value.get();
    let most_files = files(size);
    let part = |sixteenths: u64| (size / WHOLE).saturating_mul(sixteenths);
    let files_of = |sixteenths: u64| (most_files / WHOLE).saturating_mul(sixteenths).max(64);
    let mut places = vec![Place {
        at: workspace.to_owned(),
        bytes: part(WORKSPACE_PART).saturating_add(in_memory(filled, filled_files)),
        files: files_of(WORKSPACE_PART).saturating_add(filled_files),
        mode: 0o755,
    }];
    places.extend(PARTS.map(|(at, sixteenths, mode)| Place {
        at: at.into(),
        bytes: part(sixteenths),
        files: files_of(sixteenths),
        mode,
    }));
    for mount in &policy.fs.mounts {
        let Mount::Tmpfs { tmpfs, size } = &mount.value else { continue };
        places.retain(|place| place.at != tmpfs.as_path());
        places.push(Place {
            at: tmpfs.as_path().to_owned(),
            bytes: size.get(),
            files: files_of(PARTS[0].1),
            mode: 0o1777,
        });
    }
    places
}
