//! What a container keeps of a policy, given what the engine says of itself.

use ringfence_linux::wall::Kernel;
use ringfence_policy::{Mount, MountMode, NetMode, ResolvedPolicy, WorkspaceMode};

use super::address::EngineKind;
use super::cgroup_view::{CgroupView, cgroup_view};
use super::facts::{Facts, Limits};
use super::places;
use super::ways::{Way, in_a_volume};
use crate::backend::Unavailable;
use crate::backend::native::later_ones;
use crate::backend::spawn::kept_by_the_keeper;
use crate::guarantee::{Guarantee, Strength};

/// What of a policy cannot be done in a container, and what to do instead. Doing less in silence would be a lie.
pub(super) fn cannot(policy: &ResolvedPolicy, facts: &Facts, way: Way) -> Option<Unavailable> {
    let no = |what: &str, fix: &str| {
        Some(Unavailable { reason: format!("in this version a container does not know {what}"), fix: fix.to_owned() })
    };
    if let Some((what, fix)) = network(policy) {
        return no(what, fix);
    }
    let host = |mount: &Mount| match mount {
        Mount::Host { mode, .. } => Some(*mode),
        Mount::Tmpfs { .. } => None,
    };
    let modes: Vec<MountMode> = policy.fs.mounts.iter().filter_map(|mount| host(&mount.value)).collect();
    if modes.contains(&MountMode::ReadWrite) {
        return no(
            "`fs.mounts` that can be written: who a program is on the host depends on the engine",
            "make them `mode: read-only`, or choose `--backend native`",
        );
    }
    if policy.fs.size.value.get() < places::LEAST_SIZE && way == Way::Filled {
        return no("an `fs.size` below 1MiB, which would have to be shared out", "raise `fs.size` in the policy");
    }
    if !policy.cache.is_empty() && way == Way::Filled {
        return no(
            "`cache`, unless both the engine and who asks are root here",
            "take it out of the policy, or choose `--backend native`",
        );
    }
    if !modes.is_empty() && way == Way::Filled {
        return no(
            "`fs.mounts` of this machine, unless both the engine and who asks are root here",
            "take them out of the policy, or choose `--backend native`",
        );
    }
    let runtime = policy.backend.runtime.as_ref().map(|runtime| runtime.value.as_str());
    if let Some(runtime) = runtime.filter(|runtime| !facts.runtimes.contains(*runtime)) {
        let known: Vec<&str> = facts.runtimes.iter().map(String::as_str).collect();
        return Some(Unavailable {
            reason: format!("the engine has no runtime `{runtime}`; it has {}", known.join(", ")),
            fix: "register it with the engine, or leave `backend.runtime` out of the policy".to_owned(),
        });
    }
    None
}

/// What of a policy's network cannot be had: what, and what to do instead.
fn network(policy: &ResolvedPolicy) -> Option<(&'static str, &'static str)> {
    let net = &policy.net;
    if net.mode.value == NetMode::Open {
        Some(("`net.mode: open`", "say `net: { mode: allowlist, allow: [HOST] }`, or `mode: none`"))
    } else if !net.unix.is_empty() {
        Some(("`net.unix`: no socket of the host is shown", "take it out of the policy"))
    } else if net.mode.value == NetMode::None && !net.localhost.is_empty() {
        Some((
            "`net.localhost` without `net.mode: allowlist`",
            "say `net.mode: allowlist`, or take it out of the policy",
        ))
    } else {
        None
    }
}

/// All that is kept.
pub(super) fn kept(
    policy: &ResolvedPolicy,
    facts: &Facts,
    kernel: Kernel,
    way: Way,
) -> Vec<(Guarantee, Strength, &'static str)> {
    let mut kept = kept_by_the_keeper("process 1 of the container: with it, the kernel ends everything in it");
    kept.extend(limits(held(policy, facts, kernel, way)));
    let size = match way {
        Way::Laid => "one tmpfs for all that can be written",
        Way::Filled => "a tmpfs for each place that can be written, `fs.size` shared out among them",
    };
    kept.extend([
        (Guarantee::CleanEnvironment, Strength::Enforced, "made from the pass-list"),
        (Guarantee::FsConfined, Strength::Enforced, "the container's own root, read-only"),
        (Guarantee::FsQuota, Strength::Enforced, size),
        (Guarantee::NetNone, Strength::Enforced, "the engine's network `none`: loopback only"),
        (
            Guarantee::NetAllowlist,
            Strength::Enforced,
            "the engine's network `none`, and on its loopback sockets of the guest, which relays to our proxy",
        ),
        (Guarantee::FileSize, Strength::Enforced, "RLIMIT_FSIZE"),
        (Guarantee::OpenFiles, Strength::Enforced, "RLIMIT_NOFILE"),
        (Guarantee::NoCoreFile, Strength::Enforced, "RLIMIT_CORE 1, which no program can change"),
        (Guarantee::NoNewPrivileges, Strength::Enforced, "no_new_privs, by the engine and by us"),
        (Guarantee::Unprivileged, Strength::Enforced, "an ordinary user, no capability in any set"),
        (
            Guarantee::KernelFilter,
            Strength::Enforced,
            match facts.kind {
                EngineKind::Docker if facts.seccomp => "seccomp, ours by the engine and by the guest",
                EngineKind::Docker | EngineKind::Podman => "seccomp, ours by the guest",
            },
        ),
        (Guarantee::ProcessesHidden, Strength::Enforced, "the container's own process namespace"),
        (
            Guarantee::FsDeny,
            Strength::Enforced,
            match way {
                Way::Laid => later_ones(policy),
                Way::Filled => "files that match are not copied in, nor is what the host makes later",
            },
        ),
        (
            Guarantee::FsProtect,
            Strength::Enforced,
            match policy.fs.mode.value {
                WorkspaceMode::Direct => "held back when changes are taken to the host, after the program's end",
                _ => "nothing written reaches the host",
            },
        ),
    ]);
    let by = match way {
        Way::Laid => "mounts of its own",
        Way::Filled if in_a_volume(policy, kernel, way) => "a private copy in a volume of the engine, shown read-only",
        Way::Filled => "a private copy",
    };
    kept.push((Guarantee::FsWorkspaceMode, Strength::Enforced, by));
    kept
}

/// The limits that a cgroup keeps for containers of this policy. Around a kernel of its own it counts that kernel's threads and
/// memory, and nobody inside can see it. What cannot be seen is not proven, and so not promised.
pub(super) fn held(policy: &ResolvedPolicy, facts: &Facts, kernel: Kernel, way: Way) -> Limits {
    let runtime = policy.backend.runtime.as_ref().map(|runtime| runtime.value.as_str());
    match (kernel, cgroup_view(facts, way)) {
        (Kernel::Host, CgroupView::Own) => facts.limits_with(runtime),
        (Kernel::Own, _) | (_, CgroupView::Nothing) => Limits::NONE,
    }
}

fn limits(limits: Limits) -> [(Guarantee, Strength, &'static str); 3] {
    let by = |holds: bool| match holds {
        true => (Strength::Enforced, "the engine's cgroup"),
        false => (Strength::Watched, "the guest is asked for it twice a second"),
    };
    let (memory, processes) = (by(limits.memory), by(limits.processes));
    let cpus = match limits.cpus {
        true => (Strength::Enforced, "the engine's cgroup"),
        false => (Strength::Watched, "pinned to that many processors"),
    };
    [
        (Guarantee::Memory, memory.0, memory.1),
        (Guarantee::Cpus, cpus.0, cpus.1),
        (Guarantee::Processes, processes.0, processes.1),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_nobody_keeps_are_watched_and_never_said_to_be_enforced() {
        let strengths = |holds| {
            limits(Limits { memory: holds, swap: holds, processes: holds, cpus: holds })
                .map(|(_, strength, _)| strength)
        };
        assert_eq!(strengths(true), [Strength::Enforced; 3]);
        assert_eq!(strengths(false), [Strength::Watched; 3]);
    }
}
