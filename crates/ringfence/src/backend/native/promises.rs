//! What is kept behind this wall, how firmly, and by what.

use ringfence_policy::{Mount, MountMode, ResolvedPolicy, WorkspaceMode};

use super::{Groups, later_ones};
use crate::backend::spawn::kept_by_the_keeper;
use crate::guarantee::{Guarantee, Strength};

/// What is kept of `policy`.
pub(super) fn kept(policy: &ResolvedPolicy, groups: Groups) -> Vec<(Guarantee, Strength, &'static str)> {
    let mut kept = kept_by_the_keeper("process 1 of its own namespace: with it, the kernel ends everything in it");
    kept.extend(match groups {
        Groups::Kept => [
            (Guarantee::Memory, Strength::Enforced, "cgroup, swap counted"),
            (Guarantee::Cpus, Strength::Enforced, "cgroup"),
            (Guarantee::Processes, Strength::Enforced, "cgroup"),
        ],
        Groups::Missing => [
            (Guarantee::Memory, Strength::Watched, "looked at ten times a second, RLIMIT_DATA per process"),
            (Guarantee::Cpus, Strength::Watched, "pinned to that many processors"),
            (Guarantee::Processes, Strength::Watched, "looked at ten times a second, RLIMIT_NPROC a little above"),
        ],
    });
    kept.extend([
        (Guarantee::CleanEnvironment, Strength::Enforced, "made from the pass-list"),
        (Guarantee::FsConfined, Strength::Enforced, "own root by pivot_root, Landlock"),
        (Guarantee::FsQuota, Strength::Enforced, "one tmpfs for all that can be written"),
        (Guarantee::FsDeny, Strength::Enforced, later_ones(policy)),
        (Guarantee::FsWorkspaceMode, Strength::Enforced, "mounts of its own"),
        (Guarantee::NetNone, Strength::Enforced, "own network namespace with loopback only"),
        (
            Guarantee::NetAllowlist,
            Strength::Enforced,
            "own network namespace with loopback only, and in it sockets of our proxy, which decides host by host",
        ),
        (Guarantee::FileSize, Strength::Enforced, "RLIMIT_FSIZE"),
        (Guarantee::OpenFiles, Strength::Enforced, "RLIMIT_NOFILE"),
        no_core(),
        (Guarantee::NoNewPrivileges, Strength::Enforced, "no_new_privs"),
        (Guarantee::Unprivileged, Strength::Enforced, "own user namespace, one id that is not root's, no capability"),
        (Guarantee::KernelFilter, Strength::Enforced, "seccomp"),
        (Guarantee::ProcessesHidden, Strength::Enforced, "own process namespace"),
    ]);
    // What goes straight to the host cannot be kept from it by a layer.
    let writable = |mount: &Mount| matches!(mount, Mount::Host { mode: MountMode::ReadWrite, .. });
    if !policy.fs.mounts.iter().any(|mount| writable(&mount.value)) {
        let by = match policy.fs.mode.value {
            WorkspaceMode::Direct => "held back when changes are taken to the host, after the program's end",
            WorkspaceMode::Review | WorkspaceMode::Ephemeral | WorkspaceMode::ReadOnly => {
                "nothing written reaches the host"
            }
        };
        kept.push((Guarantee::FsProtect, Strength::Enforced, by));
    }
    kept
}

/// Exactly 1 keeps a core from being written and the host's core handler from being started. Where the host's own limit is
/// below it, it cannot be had.
fn no_core() -> (Guarantee, Strength, &'static str) {
    let most = rustix::process::getrlimit(rustix::process::Resource::Core).maximum;
    // What cannot be looked at counts as a handler.
    let has_handler = std::fs::read("/proc/sys/kernel/core_pattern").map_or(true, |pattern| pattern.starts_with(b"|"));
    match most {
        Some(0) if has_handler => (
            Guarantee::NoCoreFile,
            Strength::Watched,
            "RLIMIT_CORE 0 by the host: no file, but its core handler may be started",
        ),
        Some(0) => (Guarantee::NoCoreFile, Strength::Enforced, "RLIMIT_CORE 0 by the host"),
        Some(_) | None => (Guarantee::NoCoreFile, Strength::Enforced, "RLIMIT_CORE 1, which no program can change"),
    }
}
