//! Which of two policies permits more.
//!
//! The order is on what a program can reach. An image names what stands inside and is not part of it; whether one may be
//! fetched is. So is a workspace, since another folder holds other files. Where a secret comes from and through which proxy
//! everything goes is not: rules say which hosts are reached, and with which credential.

use crate::command::{CommandRule, Reading, Verdict};
use crate::host::NetRule;
use crate::policy::{
    BackendChoice, BackendKind, BackendPolicy, EnvPolicy, FsPolicy, Mount, MountMode, NetMode, NetPolicy, ProcPolicy,
    ResolvedPolicy, Sourced, ToolsPolicy, WorkspaceMode,
};
use crate::variable::{changes_code, covers_pass};

/// How strong a wall is. All that isolate are equals: which of them is at hand is the host's affair.
pub(crate) fn backend_rank(kind: BackendKind) -> u8 {
    match kind {
        BackendKind::None => 0,
        BackendKind::Spawn => 1,
        BackendKind::Landlock => 2,
        BackendKind::Native
        | BackendKind::Docker
        | BackendKind::Podman
        | BackendKind::Microvm
        | BackendKind::Kubernetes => 3,
    }
}

pub(crate) fn choice_rank(choice: BackendChoice) -> u8 {
    match choice {
        BackendChoice::Auto => 3,
        BackendChoice::Kind(kind) => backend_rank(kind),
    }
}

/// The weakest wall that could end up being used.
pub(crate) fn weakest(backend: &BackendPolicy) -> u8 {
    let fallback = backend.fallback.iter().map(|kind| backend_rank(kind.value));
    fallback.fold(choice_rank(backend.choice.value), u8::min)
}

/// How much of the host's workspace a mode opens: nothing, reading, changing after review, changing.
pub(crate) fn mode_rank(mode: WorkspaceMode) -> u8 {
    match mode {
        WorkspaceMode::Ephemeral => 0,
        WorkspaceMode::ReadOnly => 1,
        WorkspaceMode::Review => 2,
        WorkspaceMode::Direct => 3,
    }
}

/// What both mounts permit, when they show the same thing in the same place.
pub(crate) fn meet_mount(mine: &Mount, theirs: &Mount) -> Option<Mount> {
    match (mine, theirs) {
        (Mount::Host { host, at, mode }, Mount::Host { host: other_host, at: other_at, mode: other_mode }) => {
            let mode = match (mode, other_mode) {
                (MountMode::ReadWrite, MountMode::ReadWrite) => MountMode::ReadWrite,
                (MountMode::ReadOnly, _) | (_, MountMode::ReadOnly) => MountMode::ReadOnly,
            };
            (host == other_host && at == other_at).then(|| Mount::Host { host: host.clone(), at: at.clone(), mode })
        }
        (Mount::Tmpfs { tmpfs, size }, Mount::Tmpfs { tmpfs: other, size: other_size }) => {
            (tmpfs == other).then(|| Mount::Tmpfs { tmpfs: tmpfs.clone(), size: *size.min(other_size) })
        }
        (Mount::Host { .. }, Mount::Tmpfs { .. }) | (Mount::Tmpfs { .. }, Mount::Host { .. }) => None,
    }
}

impl ResolvedPolicy {
    /// Whether everything that this permits is permitted by `wider` too. A preorder: reflexive and transitive.
    pub fn is_within(&self, wider: &Self) -> bool {
        weakest(&self.backend) >= weakest(&wider.backend)
            && runtime_within(&self.backend, &wider.backend)
            && self.image_pull.value <= wider.image_pull.value
            && contains_all(&wider.cache, &self.cache)
            && fs_within(&self.fs, &wider.fs)
            && net_within(&self.net, &wider.net)
            && proc_within(&self.proc, &wider.proc)
            && env_within(&self.proc.env, &wider.proc.env)
            && self.validate.is_within(&wider.validate)
            && commands_within(&self.commands, &wider.commands)
            && contains_all(&wider.tools.allow, &self.tools.allow)
            && own_tools_within(&self.tools, &wider.tools)
            && contains_all(&wider.overrides.grantable, &self.overrides.grantable)
    }
}

/// Where nobody named any there are all of them.
fn own_tools_within(tools: &ToolsPolicy, wider: &ToolsPolicy) -> bool {
    match (&tools.own, &wider.own) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(own), Some(wider)) => contains_all(wider, own),
    }
}

/// A runtime that was named stays the same. Runtimes have no order of their own.
fn runtime_within(backend: &BackendPolicy, wider: &BackendPolicy) -> bool {
    let name = |backend: &BackendPolicy| backend.runtime.as_ref().map(|runtime| runtime.value.clone());
    wider.runtime.is_none() || name(backend) == name(wider)
}

pub(crate) fn contains_all<T: PartialEq>(all: &[Sourced<T>], some: &[Sourced<T>]) -> bool {
    some.iter().all(|item| all.iter().any(|other| other.value == item.value))
}

pub(crate) fn mounts_within(mounts: &[Sourced<Mount>], wider: &[Sourced<Mount>]) -> bool {
    mounts
        .iter()
        .all(|mount| wider.iter().any(|other| meet_mount(&mount.value, &other.value).as_ref() == Some(&mount.value)))
}

fn fs_within(fs: &FsPolicy, wider: &FsPolicy) -> bool {
    fs.workspace.value.as_path().starts_with(wider.workspace.value.as_path())
        && mode_rank(fs.mode.value) <= mode_rank(wider.mode.value)
        && fs.source.value <= wider.source.value
        && mounts_within(&fs.mounts, &wider.mounts)
        && contains_all(&fs.deny, &wider.deny)
        && contains_all(&fs.protect, &wider.protect)
        && fs.size.value <= wider.size.value
}

fn net_within(net: &NetPolicy, wider: &NetPolicy) -> bool {
    let reach = match net.mode.value {
        NetMode::None => true,
        NetMode::Allowlist | NetMode::Open => {
            net.mode.value <= wider.mode.value && allow_within(net, wider) && deny_within(net, wider)
        }
    };
    reach
        && contains_all(&wider.localhost, &net.localhost)
        && contains_all(&wider.unix, &net.unix)
        && wider.budget.value.covers(&net.budget.value)
        && net.unknown.value <= wider.unknown.value
}

pub(crate) fn allow_within(net: &NetPolicy, wider: &NetPolicy) -> bool {
    // Where everything is open, everything is reached but with no secret that no rule gives.
    let free = |rule: &NetRule| wider.mode.value == NetMode::Open && rule.credential.is_none();
    let mut rules = net.allow.iter().map(|rule| &rule.value);
    rules.all(|rule| free(rule) || wider.allow.iter().any(|other| other.value.covers(rule)))
}

pub(crate) fn deny_within(net: &NetPolicy, wider: &NetPolicy) -> bool {
    wider.deny.iter().all(|rule| net.deny.iter().any(|mine| mine.value.covers(&rule.value)))
}

fn proc_within(proc: &ProcPolicy, wider: &ProcPolicy) -> bool {
    proc.user.value == wider.user.value
        && proc.cpus.value <= wider.cpus.value
        && proc.memory.value <= wider.memory.value
        && proc.processes.value <= wider.processes.value
        && proc.limits.value <= wider.limits.value
        && proc.timeout.value <= wider.max_timeout.value
        && proc.max_timeout.value <= wider.max_timeout.value
        && proc.grace.value <= wider.grace.value
        && proc.output.value <= wider.output.value
        && proc.file_size.value <= wider.file_size.value
        && proc.open_files.value <= wider.open_files.value
}

/// Fixed values stay fixed; more of them give nothing, unless they change what code a program loads.
pub(crate) fn env_within(env: &EnvPolicy, wider: &EnvPolicy) -> bool {
    let value = |env: &EnvPolicy, name: &str| env.set.get(name).map(|set| set.value.clone());
    env.pass.iter().all(|name| wider.pass.iter().any(|other| covers_pass(&other.value, &name.value)))
        && wider.set.iter().all(|(name, set)| value(env, name).as_ref() == Some(&set.value))
        && env.set.keys().all(|name| wider.set.contains_key(name) || !changes_code(name))
}

pub(crate) fn commands_within(rules: &[Sourced<CommandRule>], wider: &[Sourced<CommandRule>]) -> bool {
    let same = |rule: &CommandRule, other: &CommandRule| rule.verdict == other.verdict && rule.prefix == other.prefix;
    let restricts = |rule: &CommandRule| rule.verdict != Verdict::Allow;
    // One that asks and lets reading pass can be an exception from one that does not.
    let permits = |rule: &CommandRule| rule.strictness() < (Verdict::Ask, Reading::Ask);
    let is_kept = |rule: &CommandRule| {
        rules.iter().any(|mine| same(&mine.value, rule) && mine.value.strictness() >= rule.strictness())
    };
    let is_permitted = |rule: &CommandRule| {
        wider.iter().any(|other| same(&other.value, rule) && other.value.strictness() <= rule.strictness())
    };
    wider.iter().filter(|rule| restricts(&rule.value)).all(|rule| is_kept(&rule.value))
        && rules.iter().filter(|rule| permits(&rule.value)).all(|rule| is_permitted(&rule.value))
}
