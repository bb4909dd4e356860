//! Limits for all processes of one sandbox together, kept by the kernel: cgroups, version 1, version 2 and mixtures.
//!
//! [`probe`] says where a cgroup can be made now, and changes nothing. [`Hierarchy::create`] sets each limit and reads
//! it back, or fails and removes what it made. Nothing here decides how much is allowed, and nothing falls back to
//! less: where there are no cgroups the caller hears why, and chooses.

mod folder;
mod inside;
mod limits;
mod mounts;
mod name;
mod scope;
#[cfg(test)]
mod tests;
mod v1;
mod v2;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use self::folder::Folder;
pub use self::inside::counted_inside;
pub use self::limits::Limits;
use self::mounts::{Controller, Mount, Version};
pub use self::name::{Name, NotAName, Supervisor, is_supervisor_alive, name_for};
pub use self::scope::{NoScope, enter_scope};
use crate::kernel_file;

/// Why no limit can be kept by cgroups here, and what would change that.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no cgroup can be made here: {reason}")]
pub struct Unavailable {
    /// Which file stood in the way, and how.
    pub reason: String,
    /// What to do.
    pub fix: String,
}

/// Where cgroups of ours can be made: one place for each mounted hierarchy that has a needed controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    places: Vec<Place>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    V1 { controllers: Vec<Controller>, parent: PathBuf },
    V2 { controllers: Vec<Controller>, parent: v2::Parent },
}

impl Hierarchy {
    /// Whether processes are born in their group, and not moved there.
    pub fn is_unified(&self) -> bool {
        self.places.iter().all(|place| matches!(place, Place::V2 { .. }))
    }
}

/// Finds out where a cgroup with limits for memory, processes and processor time can be made by us now.
pub fn probe() -> Result<Hierarchy, Unavailable> {
    probe_below(Path::new("/"))
}

fn probe_below(root: &Path) -> Result<Hierarchy, Unavailable> {
    let read = |file: &str| {
        let path = root.join(file);
        kernel_file::read(&path).map_err(|error| Unavailable {
            reason: format!("{} cannot be read: {error}", path.display()),
            fix: "mount /proc".to_owned(),
        })
    };
    let mounts = mounts::find(&read("proc/self/mountinfo")?, &read("proc/self/cgroup")?);
    if mounts.is_empty() {
        return Err(Unavailable {
            reason: "no cgroup file system is mounted".to_owned(),
            fix: "mount it: `mount -t cgroup2 none /sys/fs/cgroup`".to_owned(),
        });
    }
    let mut places = Vec::new();
    let mut missing: Vec<_> = Controller::NEEDED.into();
    for mount in mounts.iter().filter(|mount| mount.version == Version::One) {
        // Of a mount that only counts processor time, nothing is promised.
        let is_needed = missing.iter().any(|controller| mount.controllers.contains(controller));
        match v1::find_parent(root, mount) {
            Ok(parent) if !is_swap_counted(mount, &parent) && limits::is_swap_on(&read("proc/swaps")?) => {
                return Err(Unavailable {
                    reason: format!("this machine swaps, but {} has no {}", parent.display(), v1::MEMORY_AND_SWAP),
                    fix: "start the machine with `swapaccount=1`, or switch swap off".to_owned(),
                });
            }
            Ok(parent) => places.push(Place::V1 { controllers: mount.controllers.clone(), parent }),
            Err(reason) if is_needed => return Err(Unavailable { reason, fix: fix(&mounts) }),
            Err(_) => {}
        }
        missing.retain(|controller| !mount.controllers.contains(controller));
    }
    if !missing.is_empty() {
        let Some(mount) = mounts.iter().find(|mount| mount.version == Version::Two) else {
            let names = missing.iter().map(|controller| controller.name()).collect::<Vec<_>>().join(", ");
            return Err(Unavailable {
                reason: format!("no hierarchy with {names} is mounted"),
                fix: "mount them, or start the machine with `systemd.unified_cgroup_hierarchy=1`".to_owned(),
            });
        };
        let parent =
            v2::find_parent(root, mount, &missing).map_err(|reason| Unavailable { reason, fix: fix(&mounts) })?;
        places.push(Place::V2 { controllers: missing, parent });
    }
    Ok(Hierarchy { places })
}

/// Swap that is not counted would be a way round the memory limit.
fn is_swap_counted(mount: &Mount, parent: &Path) -> bool {
    !mount.controllers.contains(&Controller::Memory) || parent.join(v1::MEMORY_AND_SWAP).exists()
}

fn fix(mounts: &[Mount]) -> String {
    let has_two = mounts.iter().any(|mount| mount.version == Version::Two);
    let has_one = mounts.iter().any(|mount| mount.version == Version::One);
    match (has_two, has_one) {
        (true, false) => "start it in a scope of your own: `systemd-run --user --scope -p Delegate=yes ringfence …`; \
            in a container, give it a writable cgroup tree"
            .to_owned(),
        _ => "run as root, or start the machine with `systemd.unified_cgroup_hierarchy=1` and use \
            `systemd-run --user --scope -p Delegate=yes ringfence …`"
            .to_owned(),
    }
}

/// `path` as seen below `root`, which is `/` outside of tests.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// What a sandbox has used, from the kernel's own counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CgroupUsage {
    /// The most memory that all processes had together; nothing where the kernel does not keep it.
    pub memory_peak: Option<u64>,
    /// Processes killed because the memory limit was reached.
    pub oom_kills: u64,
    /// How often a process or thread could not be started because of the limit.
    pub pids_limit_hits: u64,
    /// Processes and threads there are now.
    pub processes_now: u64,
}

/// The cgroups of one sandbox. Dropping it kills what is in them and removes them.
#[derive(Debug)]
pub struct Cgroup {
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    version: Version,
    controllers: Vec<Controller>,
    folder: Folder,
}

impl Hierarchy {
    /// Where [`Hierarchy::create`] makes the cgroups of one sandbox.
    pub fn folders(&self, name: &str) -> Vec<PathBuf> {
        self.places.iter().map(|place| place.parent().join(name)).collect()
    }

    /// Makes the cgroups of one sandbox, with every limit in force, or leaves nothing behind. `name` comes from
    /// [`name_for`]: [`sweep`] could not find another.
    pub fn create(&self, name: &str, limits: &Limits) -> io::Result<Cgroup> {
        name.parse::<Name>().map_err(|refused| io::Error::new(io::ErrorKind::InvalidInput, refused))?;
        let mut parts = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let part = place.part(Folder::make(&place.prepare()?, name)?);
            part.set(limits)?;
            parts.push(part);
        }
        Ok(Cgroup { parts })
    }

    /// The cgroups of a sandbox that another supervisor made, as far as they are there.
    fn adopt(&self, name: &str) -> io::Result<Cgroup> {
        let mut parts = Vec::new();
        for place in &self.places {
            match Folder::adopt(&place.parent(), name) {
                Ok(folder) => parts.push(place.part(folder)),
                // Never made, or removed by another supervisor that sweeps too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Cgroup { parts })
    }
}

impl Place {
    fn parent(&self) -> PathBuf {
        match self {
            Self::V1 { parent, .. } => parent.clone(),
            Self::V2 { parent, .. } => parent.path(),
        }
    }

    /// The same folder, made ready to have children.
    fn prepare(&self) -> io::Result<PathBuf> {
        match self {
            Self::V1 { parent, .. } => Ok(parent.clone()),
            Self::V2 { controllers, parent } => parent.prepare(controllers),
        }
    }

    fn part(&self, folder: Folder) -> Part {
        let (version, controllers) = match self {
            Self::V1 { controllers, .. } => (Version::One, controllers.clone()),
            Self::V2 { controllers, .. } => (Version::Two, controllers.clone()),
        };
        Part { version, controllers, folder }
    }
}

impl Part {
    fn set(&self, limits: &Limits) -> io::Result<()> {
        for controller in &self.controllers {
            match (controller, self.version) {
                (Controller::Memory, Version::One) => set(limits.memory, |most| v1::limit_memory(&self.folder, most))?,
                (Controller::Memory, Version::Two) => set(limits.memory, |most| v2::limit_memory(&self.folder, most))?,
                (Controller::Cpu, Version::One) => set(limits.cpu_millis, |most| v1::limit_cpu(&self.folder, most))?,
                (Controller::Cpu, Version::Two) => set(limits.cpu_millis, |most| v2::limit_cpu(&self.folder, most))?,
                (Controller::Processes, _) => {
                    set(limits.processes, |most| self.folder.limit("pids.max", &most.to_string()))?;
                }
            }
        }
        Ok(())
    }

    fn count(&self, usage: &mut CgroupUsage) -> io::Result<()> {
        for controller in &self.controllers {
            match (controller, self.version) {
                (Controller::Memory, Version::One) => {
                    usage.memory_peak = Some(v1::memory_peak(&self.folder)?);
                    usage.oom_kills = v1::oom_kills(&self.folder)?;
                }
                (Controller::Memory, Version::Two) => {
                    usage.memory_peak = v2::memory_peak(&self.folder)?;
                    usage.oom_kills = v2::oom_kills(&self.folder)?;
                }
                (Controller::Processes, _) => {
                    usage.pids_limit_hits = self.folder.counter("pids.events", "max")?;
                    usage.processes_now = self.folder.number("pids.current")?;
                }
                (Controller::Cpu, _) => {}
            }
        }
        Ok(())
    }
}

fn set<T>(limit: Option<T>, keep: impl FnOnce(T) -> io::Result<()>) -> io::Result<()> {
    limit.map_or(Ok(()), keep)
}

impl Cgroup {
    /// Moves the process into each cgroup. What it starts later begins there; what it started before stays outside.
    pub fn add(&self, pid: i32) -> io::Result<()> {
        self.parts.iter().try_for_each(|part| part.folder.add(pid))
    }

    /// The folder for `CLONE_INTO_CGROUP`, where one v2 folder has all controllers. Otherwise the process must be
    /// added.
    pub fn folder_fd(&self) -> Option<BorrowedFd<'_>> {
        match self.parts.as_slice() {
            [Part { version: Version::Two, folder, .. }] => Some(folder.fd()),
            _ => None,
        }
    }

    /// Where its folders are, for messages.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().map(|part| part.folder.path())
    }

    /// What the kernel has counted so far.
    pub fn usage(&self) -> io::Result<CgroupUsage> {
        let mut usage = CgroupUsage::default();
        self.parts.iter().try_for_each(|part| part.count(&mut usage))?;
        Ok(usage)
    }

    /// Kills every process in it and waits, for a bounded time, until all are gone. No process can be started in it
    /// afterwards where the kernel has no call for this.
    pub fn kill(&self) -> io::Result<()> {
        // One folder has all processes; that of v2 is killed at once.
        let two = self.parts.iter().find(|part| part.version == Version::Two);
        if let Some(part) = two {
            return v2::kill(&part.folder);
        }
        match self.parts.iter().find(|part| part.controllers.contains(&Controller::Processes)) {
            Some(part) => v1::kill(&part.folder),
            // Left over from a start that was killed in the middle: nothing was started in it yet.
            None => self.parts.iter().try_for_each(|part| part.folder.kill_all()),
        }
    }

    /// Kills what is in it and removes it; as dropping does, but the error is told.
    pub fn remove(mut self) -> io::Result<()> {
        self.kill()?;
        self.parts.iter_mut().try_for_each(|part| part.folder.remove())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The folders are removed next. One that still has processes stays, and `sweep` of a later supervisor tries
        // again.
        self.kill().ok();
    }
}

/// Removes what killed supervisors left: every cgroup of ours for whose name `is_alive` says no, with the processes in
/// it. Returns how many sandboxes that were. [`is_supervisor_alive`] is what to pass outside of tests.
pub fn sweep(hierarchy: &Hierarchy, is_alive: impl Fn(&str) -> bool) -> io::Result<usize> {
    let mut left = BTreeSet::new();
    for place in &hierarchy.places {
        let parent = place.parent();
        let entries = match std::fs::read_dir(&parent) {
            Ok(entries) => entries,
            // Our own group of v2 before its first use.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(folder::failed("list", &parent, error)),
        };
        for entry in entries {
            let entry = entry.map_err(|error| folder::failed("list", &parent, error))?;
            let name = entry.file_name().into_string().ok().filter(|name| name.parse::<Name>().is_ok());
            left.extend(name.filter(|name| !is_alive(name)));
        }
    }
    let mut failed = None;
    for name in &left {
        // One that somebody else is just removing must not keep the others.
        if let Err(error) = hierarchy.adopt(name).and_then(Cgroup::remove) {
            failed.get_or_insert(error);
        }
    }
    failed.map_or(Ok(left.len()), Err)
}
