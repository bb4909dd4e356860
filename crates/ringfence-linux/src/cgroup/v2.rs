//! cgroup v2: one tree for all controllers, in which a folder has either processes or controlled children.

use std::io;
use std::path::{Path, PathBuf};

use super::folder::{self, Folder, failed};
use super::limits::{self, PERIOD_US};
use super::mounts::{Controller, Mount};
use crate::kernel_file;

/// The folder below the root of the tree that our cgroups lie in where there is no better one.
const GROUP: &str = "ringfence";
const ENABLED: &str = "cgroup.subtree_control";
const AVAILABLE: &str = "cgroup.controllers";

/// Where cgroups of ours go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Parent {
    /// A folder whose children have the controllers already.
    Ready(PathBuf),
    /// A folder of our own, made when it is first needed, below the root of the tree.
    Group { root: PathBuf },
}

/// Finds a folder in which children with `needed` can be made now; otherwise says what stood in the way of each.
///
/// Our own folder is none: it has a process, us, so its children cannot be controlled. Its parent is one where it was
/// delegated to us, as systemd does for a user's own scopes. The root of the tree is one for root.
pub(super) fn find_parent(root: &Path, mount: &Mount, needed: &[Controller]) -> Result<Parent, String> {
    let top = super::below(root, &mount.point);
    let own = mount.own_folder().map(|own| super::below(root, &own));
    let mut obstacles = Vec::new();
    let parent = own.as_deref().filter(|own| *own != top).and_then(Path::parent);
    if let Some(parent) = parent {
        match check_ready(parent, needed) {
            Ok(()) => return Ok(Parent::Ready(parent.to_owned())),
            Err(obstacle) => obstacles.push(obstacle),
        }
    }
    match check_top(&top, needed) {
        Ok(()) => return Ok(Parent::Group { root: top }),
        Err(obstacle) if parent != Some(&top) => obstacles.push(obstacle),
        Err(_) => {}
    }
    Err(obstacles.join("; "))
}

fn check_ready(folder: &Path, needed: &[Controller]) -> Result<(), String> {
    let missing = missing_in(&folder.join(ENABLED), needed)?;
    if !missing.is_empty() {
        return Err(format!("{} does not list {}", folder.join(ENABLED).display(), missing.join(", ")));
    }
    check_writable(folder)?;
    // To move a process from our folder to its new sibling, the kernel asks for this one as well.
    check_writable(&folder.join("cgroup.procs"))
}

fn check_top(top: &Path, needed: &[Controller]) -> Result<(), String> {
    check_writable(top)?;
    check_writable(&top.join("cgroup.procs"))?;
    let missing = missing_in(&top.join(ENABLED), needed)?;
    if missing.is_empty() {
        return Ok(());
    }
    // Only the true root, which has no type, may have both processes and controlled children. The root of a container's
    // namespace looks the same otherwise.
    if top.join("cgroup.type").exists() {
        return Err(format!(
            "{} does not list {}, and cannot be changed while processes lie beside it",
            top.join(ENABLED).display(),
            missing.join(", ")
        ));
    }
    let absent = missing_in(&top.join(AVAILABLE), needed)?;
    if !absent.is_empty() {
        return Err(format!("{} does not list {}", top.join(AVAILABLE).display(), absent.join(", ")));
    }
    check_writable(&top.join(ENABLED))
}

fn check_writable(path: &Path) -> Result<(), String> {
    folder::may_write(path).map_err(|error| format!("{} cannot be written: {error}", path.display()))
}

fn missing_in(list: &Path, needed: &[Controller]) -> Result<Vec<&'static str>, String> {
    let text = kernel_file::read(list).map_err(|error| format!("{} cannot be read: {error}", list.display()))?;
    Ok(missing(&text, needed))
}

fn missing(listed: &str, needed: &[Controller]) -> Vec<&'static str> {
    let is_listed = |name: &str| listed.split_ascii_whitespace().any(|one| one == name);
    needed.iter().map(|controller| controller.name()).filter(|name| !is_listed(name)).collect()
}

impl Parent {
    /// The folder, which may not exist yet.
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::Ready(path) => path.clone(),
            Self::Group { root } => root.join(GROUP),
        }
    }

    /// Makes the folder where it is ours to make, with the controllers on for its children.
    pub(super) fn prepare(&self, controllers: &[Controller]) -> io::Result<PathBuf> {
        let path = self.path();
        if let Self::Group { root } = self {
            enable(root, controllers)?;
            match std::fs::create_dir(&path) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed("make the folder", &path, error)),
            }
            enable(&path, controllers)?;
        }
        Ok(path)
    }
}

fn enable(folder: &Path, controllers: &[Controller]) -> io::Result<()> {
    let path = folder.join(ENABLED);
    let read = || kernel_file::read(&path).map_err(|error| failed("read", &path, error));
    let off = missing(&read()?, controllers);
    if off.is_empty() {
        return Ok(());
    }
    let change = off.iter().map(|name| format!("+{name}")).collect::<Vec<_>>().join(" ");
    std::fs::write(&path, &change).map_err(|error| failed(format!("write `{change}` to"), &path, error))?;
    match missing(&read()?, controllers).as_slice() {
        [] => Ok(()),
        still_off => Err(failed(
            format!("switch on {} in", still_off.join(", ")),
            &path,
            io::Error::new(io::ErrorKind::InvalidData, "the kernel took the change but does not list it"),
        )),
    }
}

/// Swap is not counted together with memory here, so there is none for a sandbox.
pub(super) const SWAP: &str = "memory.swap.max";

pub(super) fn limit_memory(folder: &Folder, bytes: u64) -> io::Result<()> {
    folder.limit("memory.max", &limits::whole_pages(bytes)?.to_string())?;
    if folder.has(SWAP)? { folder.limit(SWAP, "0") } else { limits::require_no_swap() }
}

pub(super) fn limit_cpu(folder: &Folder, millis: u32) -> io::Result<()> {
    folder.limit("cpu.max", &format!("{} {PERIOD_US}", limits::quota_us(millis)?))
}

/// Kills all processes at once, also those that are just being started.
pub(super) fn kill(folder: &Folder) -> io::Result<()> {
    if !folder.has("cgroup.kill")? {
        // Before Linux 5.14.
        return super::v1::kill(folder);
    }
    folder.write("cgroup.kill", "1")?;
    folder::retry_while_busy(|| Ok(folder.counter("cgroup.events", "populated")? == 0))
}

/// The most memory it ever had; nothing before Linux 5.19.
pub(super) fn memory_peak(folder: &Folder) -> io::Result<Option<u64>> {
    if folder.has("memory.peak")? { folder.number("memory.peak").map(Some) } else { Ok(None) }
}

pub(super) fn oom_kills(folder: &Folder) -> io::Result<u64> {
    folder.counter("memory.events", "oom_kill")
}
