//! cgroup v1: each controller is mounted by itself, and processes may lie in inner folders.

use std::io;
use std::path::{Path, PathBuf};

use super::folder::{self, Folder};
use super::limits::{self, PERIOD_US};
use super::mounts::Mount;

/// Memory and swap together. It may not be below the memory limit, so it is set after it.
pub(super) const MEMORY_AND_SWAP: &str = "memory.memsw.limit_in_bytes";

/// Where a cgroup of ours can be made: below our own, so that limits which hold for us hold for our sandboxes too.
pub(super) fn find_parent(root: &Path, mount: &Mount) -> Result<PathBuf, String> {
    let own = mount.own_folder().unwrap_or_else(|| mount.point.clone());
    let own = super::below(root, &own);
    match folder::may_write(&own) {
        Ok(()) => Ok(own),
        Err(error) => Err(format!("{} cannot be written: {error}", own.display())),
    }
}

pub(super) fn limit_memory(folder: &Folder, bytes: u64) -> io::Result<()> {
    let value = limits::whole_pages(bytes)?.to_string();
    folder.limit("memory.limit_in_bytes", &value)?;
    if folder.has(MEMORY_AND_SWAP)? { folder.limit(MEMORY_AND_SWAP, &value) } else { limits::require_no_swap() }
}

pub(super) fn limit_cpu(folder: &Folder, millis: u32) -> io::Result<()> {
    folder.limit("cpu.cfs_period_us", &PERIOD_US.to_string())?;
    folder.limit("cpu.cfs_quota_us", &limits::quota_us(millis)?.to_string())
}

/// Kills all processes: first none may be started, so that the list can only become shorter.
pub(super) fn kill(processes: &Folder) -> io::Result<()> {
    processes.write("pids.max", "0")?;
    processes.kill_all()
}

pub(super) fn memory_peak(folder: &Folder) -> io::Result<u64> {
    folder.number("memory.max_usage_in_bytes")
}

pub(super) fn oom_kills(folder: &Folder) -> io::Result<u64> {
    folder.counter("memory.oom_control", "oom_kill")
}
