//! The cgroups of an engine that was ended: their folders outlive their processes.

use std::fs;
use std::path::{Path, PathBuf};

use super::engine::Life;

/// How the names begin that we give to the parents of all cgroups of an engine.
const PREFIX: &str = "ringfence-test-";

/// The parent of all cgroups of one engine of ours. One that ends with us has our number, so that the next of us knows
/// whether it was abandoned.
pub(super) fn name(engine: &str, life: Life) -> String {
    match life {
        Life::WithUs => format!("{PREFIX}{}-{engine}", std::process::id()),
        Life::OnItsOwn => format!("{PREFIX}live-{engine}"),
    }
}

/// Removes what is left below `name` in every hierarchy. A cgroup that still has a process stays.
pub(super) fn remove(name: &str) {
    for hierarchy in hierarchies() {
        remove_tree(&hierarchy.join(name));
    }
}

/// Removes those of a test command that was killed.
pub(super) fn remove_abandoned() {
    for hierarchy in hierarchies() {
        for entry in fs::read_dir(&hierarchy).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let pid = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next());
            if pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !Path::new("/proc").join(pid).exists()) {
                remove_tree(&entry.path());
            }
        }
    }
}

/// Podman puts every container beside those of every other Podman: only the ones that we know are ours are removed.
pub(super) fn remove_podmans(containers: &[String]) {
    for hierarchy in hierarchies() {
        let parent = hierarchy.join("libpod_parent");
        for id in containers {
            remove_tree(&parent.join(format!("libpod-{id}")));
            remove_tree(&parent.join(format!("libpod-conmon-{id}")));
        }
        // Both fail where another Podman uses them.
        drop(fs::remove_dir(parent.join("conmon")));
        drop(fs::remove_dir(parent));
    }
}

/// Where the hierarchies of cgroups are mounted.
pub(crate) fn hierarchies() -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().filter_map(hierarchy).map(PathBuf::from).collect()
}

fn hierarchy(mount: &str) -> Option<&str> {
    let mut words = mount.split(' ').skip(1);
    let (place, kind) = (words.next()?, words.next()?);
    matches!(kind, "cgroup" | "cgroup2").then_some(place)
}

/// Of a cgroup only the folders can be removed, the innermost first. Whatever cannot be is still used.
fn remove_tree(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    drop(fs::remove_dir(folder));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_of_cgroups_are_hierarchies() {
        assert_eq!(hierarchy("cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0"), Some("/sys/fs/cgroup/pids"));
        assert_eq!(hierarchy("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0"), Some("/sys/fs/cgroup"));
        assert_eq!(hierarchy("tmpfs /sys/fs/cgroup tmpfs rw 0 0"), None);
        assert_eq!(hierarchy(""), None);
    }
}
