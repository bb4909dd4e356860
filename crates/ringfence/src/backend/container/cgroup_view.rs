//! What a container shows of cgroups: its own, or nothing.

use serde::Serialize;

use super::address::EngineKind;
use super::facts::Facts;
use super::ways::Way;

/// Where a container shows them.
const AT: &str = "/sys/fs/cgroup";
/// What Docker hides unless it is told what to hide; it is told all of it then.
const DOCKER_HIDES: [&str; 13] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
    AT,
];

/// What is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum CgroupView {
    /// The container's own, read-only. Limits are proven by it.
    Own,
    /// Nothing, and so no limit of a cgroup can be proven.
    Nothing,
}

/// What containers of this engine show. With cgroups of version 1 a rootless engine has none to give to a container, which
/// would show those of the whole machine; and Podman lays them into a file system that everybody may write to, which only
/// who joins the container's mounts can close.
pub(super) fn cgroup_view(facts: &Facts, way: Way) -> CgroupView {
    let left_open = facts.kind == EngineKind::Podman && way == Way::Filled;
    if facts.cgroup_version == "1" && (facts.rootless || left_open) { CgroupView::Nothing } else { CgroupView::Own }
}

impl CgroupView {
    /// Options of Podman's for it.
    pub(super) fn security_options(self, kind: EngineKind) -> Option<String> {
        (self == Self::Nothing && kind == EngineKind::Podman).then(|| format!("mask={AT}"))
    }

    /// All paths that Docker is to hide; none where its own choice is right.
    pub(super) fn masked_paths(self, kind: EngineKind) -> Option<Vec<String>> {
        let all = || DOCKER_HIDES.map(str::to_owned).to_vec();
        (self == Self::Nothing && kind == EngineKind::Docker).then(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::container::facts::tests::facts;

    #[test]
    fn cgroups_are_shown_where_they_are_the_containers_own_and_closed() {
        let check = |kind, is_rootless, version: &str, way, expected| {
            let facts = Facts { kind, rootless: is_rootless, cgroup_version: version.to_owned(), ..facts() };
            assert_eq!(cgroup_view(&facts, way), expected, "{kind:?} {is_rootless} {version} {way:?}");
        };
        for way in [Way::Laid, Way::Filled] {
            check(EngineKind::Docker, false, "1", way, CgroupView::Own);
            for kind in [EngineKind::Docker, EngineKind::Podman] {
                check(kind, true, "1", way, CgroupView::Nothing);
                check(kind, false, "2", way, CgroupView::Own);
                check(kind, true, "2", way, CgroupView::Own);
            }
        }
        check(EngineKind::Podman, false, "1", Way::Laid, CgroupView::Own);
        check(EngineKind::Podman, false, "1", Way::Filled, CgroupView::Nothing);
    }
}
