//! `landlock`: what can be had without namespaces, for ordinary users who may not make them. Used only when it is named.
//!
//! It keeps fewer guarantees than a wall and claims no others. What it cannot show as the policy says, it refuses. Nothing can
//! lie over a workspace without a mount, so under review a program works in a copy of it.

mod shown;

use std::ffi::{OsStr, OsString};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use ringfence_linux::fence::{FILES_SINCE, Fence, SIGNALS_SINCE};
use ringfence_linux::wall::landlock_abi;
use ringfence_linux::{Launch, Privileges, seccomp};
use ringfence_policy::{BackendKind, NetMode, ResolvedPolicy, WorkspaceMode, WorkspaceSource};

pub(super) use self::shown::{open, state_below};
use super::pipes::Pipes;
use super::program::open_cwd;
use super::spawn::{kept_by_the_keeper, needs_of_the_keeper, rlimits};
use super::{Backend, Capabilities, Live, Sandbox, StartError, Unavailable, WallError, copied, program};
use crate::BoxFuture;
use crate::guarantee::{Guarantee, Strength};
use crate::plan::Plan;
use crate::request::WorkspaceAt;
use crate::scratch::Scratch;
use crate::state::StateFolder;
use crate::waiting::waiting;
use crate::workspace::copy::Owners;

/// Folders of a run that can be written, below its scratch folder.
const HOME: &str = ".home";
const TEMPORARY: &str = ".tmp";
const WORKSPACE: &str = ".workspace";

/// Landlock around files, a filter on system calls, `no_new_privs`. The program sees the host's processes, and is its user.
#[derive(Debug)]
pub struct Landlock {
    state: StateFolder,
}

impl Landlock {
    /// A backend that keeps code, files and scratch folders of runs below `state`.
    pub fn new(state: StateFolder) -> Self {
        Self { state }
    }
}

impl Backend for Landlock {
    fn kind(&self) -> BackendKind {
        BackendKind::Landlock
    }

    fn probe<'a>(&'a self, policy: &'a ResolvedPolicy) -> BoxFuture<'a, Result<Capabilities, Unavailable>> {
        Box::pin(async move {
            let version = needs()?;
            if let Some((what, fix)) = cannot(policy) {
                let reason = format!("without namespaces there is no {what}");
                return Err(Unavailable { reason, fix: fix.to_owned() });
            }
            Ok(Capabilities::new(BackendKind::Landlock, kept(version)))
        })
    }

    fn raise<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Sandbox, StartError>> {
        Box::pin(async move { prepare(plan, &self.state) })
    }
}

/// What this kernel and this user must have; the version of Landlock.
fn needs() -> Result<i32, Unavailable> {
    needs_of_the_keeper()?;
    let missing = |reason: &str, fix: &str| Err(Unavailable { reason: reason.to_owned(), fix: fix.to_owned() });
    let Some(version) = landlock_abi() else {
        return missing(
            "this kernel has no Landlock",
            "use Linux 6.2 or newer with `landlock` in the boot parameter lsm=",
        );
    };
    if !seccomp::is_known() {
        return missing(
            "this kernel has no filters of system calls",
            "use Linux 4.14 or newer with CONFIG_SECCOMP_FILTER, where nothing around us refuses `seccomp`",
        );
    }
    // What cannot be looked at must not count as harmless.
    let has_capabilities = rustix::thread::capabilities(None)
        .map_or(true, |sets| !sets.permitted.is_empty() || !sets.effective.is_empty());
    if rustix::process::geteuid().is_root() || has_capabilities {
        return missing(
            "it is for ordinary users: it cannot take rights away from root, or from a process with capabilities",
            "use `--backend native`, where this host lets it stand; or start it as an ordinary user",
        );
    }
    Ok(version)
}

/// What of a policy cannot be had, and what to do instead. Doing less in silence would be a lie, and more as well.
fn cannot(policy: &ResolvedPolicy) -> Option<(&'static str, &'static str)> {
    if policy.fs.mode.value == WorkspaceMode::Direct {
        return Some((
            "way to protect files in a workspace that can be written (`direct`)",
            "choose `--mode review` or `--mode read-only`, or say so under `fs.workspace` in the policy",
        ));
    }
    if policy.fs.mode.value == WorkspaceMode::ReadOnly && policy.fs.source.value == WorkspaceSource::Copy {
        return Some((
            "way to keep a copy of the workspace from being written",
            "choose `--mode review`, which works in a copy, or say `source: live` under `fs.workspace` in the policy",
        ));
    }
    if !policy.fs.mounts.is_empty() {
        return Some(("other place for a file, so no `fs.mounts`", "take them out of the policy"));
    }
    if policy.net.mode.value != NetMode::None || !policy.net.localhost.is_empty() || !policy.net.unix.is_empty() {
        return Some(("network but the host's", "say `net: { mode: none }`, with no `localhost` and no `unix`"));
    }
    if policy.backend.runtime.is_some() {
        return Some(("OCI runtime: it has no container engine", "take `backend.runtime` out of the policy"));
    }
    if !policy.cache.is_empty() {
        return Some(("other place for a file, so no `cache`", "take it out of the policy"));
    }
    policy.image.is_some().then_some(("image: it shows the host's own system", "take it out of the policy"))
}

/// What is kept with this version of Landlock. What a version lacks is not claimed.
fn kept(version: i32) -> Vec<(Guarantee, Strength, &'static str)> {
    let mut kept = kept_by_the_keeper(if version >= SIGNALS_SINCE {
        "a subreaper that ends only when it has no child, and that the program may not signal"
    } else {
        super::spawn::BY_SUBREAPER
    });
    kept.extend([
        (Guarantee::CleanEnvironment, Strength::Enforced, "made from the pass-list"),
        (Guarantee::Memory, Strength::Watched, "looked at ten times a second, RLIMIT_DATA per process"),
        (Guarantee::Processes, Strength::Watched, "looked at ten times a second"),
        (Guarantee::NetNone, Strength::Enforced, "seccomp: no socket but a connected pair"),
        (Guarantee::FileSize, Strength::Enforced, "RLIMIT_FSIZE"),
        (Guarantee::OpenFiles, Strength::Enforced, "RLIMIT_NOFILE"),
        (Guarantee::NoCoreFile, Strength::Enforced, "RLIMIT_CORE 1"),
        (Guarantee::NoNewPrivileges, Strength::Enforced, "no_new_privs"),
        (Guarantee::KernelFilter, Strength::Enforced, "seccomp"),
    ]);
    if version >= FILES_SINCE {
        kept.extend([
            (Guarantee::FsConfined, Strength::Enforced, "Landlock; names that are known can be looked up"),
            (
                Guarantee::FsDeny,
                Strength::Enforced,
                "files that matched at the start cannot be opened, and are not copied; later ones are told",
            ),
            (Guarantee::FsProtect, Strength::Enforced, "nothing of the host can be written"),
            (Guarantee::FsWorkspaceMode, Strength::Enforced, "Landlock; under review, a private copy"),
        ]);
    }
    kept
}

fn prepare(plan: &Plan, state: &StateFolder) -> Result<Sandbox, StartError> {
    let mut program = program::find(plan, state)?;
    let scratch = match program.scratch.take() {
        Some(scratch) => scratch,
        None => Scratch::create(state, plan.run_id())?,
    };
    for folder in [HOME, TEMPORARY, WORKSPACE] {
        scratch.make_folder(folder)?;
    }
    let own = scratch.path().join(WORKSPACE);
    let (workspace, copied) = match plan.policy().fs.mode.value {
        WorkspaceMode::Ephemeral => (own, None),
        WorkspaceMode::Review => {
            if plan.workspace_at() == &WorkspaceAt::Same {
                let why = "without namespaces a workspace under review is a copy, which cannot appear at the workspace's own \
                           place: leave out `--at same`, or choose `--mode read-only`";
                return Err(refuse(why.to_owned()));
            }
            let copied = waiting(|| copied::make(plan.policy(), plan.workspace(), state, &own, Owners::Ours))?;
            // One of the workspace's own is executed as it is in the copy.
            if let Ok(below) = program.file.strip_prefix(plan.workspace()) {
                program.file = own.join(below);
            }
            (own, Some(copied))
        }
        WorkspaceMode::ReadOnly | WorkspaceMode::Direct => (plan.workspace().to_owned(), None),
    };
    let cwd = open_cwd(&workspace, plan.cwd())?;
    let (fence, live) = fence(plan, state, &scratch)?;
    let env = environment(plan, &scratch);
    let env: Vec<(&OsStr, &OsStr)> = env.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())).collect();
    let argv: Vec<&OsStr> = program.argv.iter().map(AsRef::as_ref).collect();
    let pipes = Pipes::new(plan.stdin())?;
    let [stdin, stdout, stderr] = pipes.program_ends(plan.stdin())?;
    let keeper = ringfence_linux::keeper::launch(&Launch {
        program: program.file.as_os_str(),
        argv: &argv,
        env: &env,
        cwd: cwd.as_fd(),
        stdin,
        stdout,
        stderr,
        privileges: Privileges::NoNew,
        rlimits: &rlimits(&plan.policy().proc),
        fence: Some(&fence),
    })?;
    let mut sandbox = pipes.kept_by(keeper)?;
    sandbox.proofs = proofs(fence.version());
    sandbox.live = live.map(Arc::new);
    match copied {
        Some(copied) => {
            sandbox.proofs.push(copied.proof());
            *sandbox.copy.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(copied.into_layer(scratch));
        }
        None => sandbox.scratch = Some(scratch),
    }
    Ok(sandbox)
}

fn fence(plan: &Plan, state: &StateFolder, scratch: &Scratch) -> Result<(Fence, Option<Live>), StartError> {
    let failed = |error| StartError::Wall(WallError(format!("could not make the fence: {error}")));
    let writable: Vec<PathBuf> = [HOME, TEMPORARY, WORKSPACE].iter().map(|name| scratch.path().join(name)).collect();
    let (rules, live) = shown::rules(plan, state, scratch.path(), &writable)?;
    // The twin of the proof: what the program's process must fail to open, we can.
    let hidden = scratch.lock_path();
    std::fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(hidden)
        .map_err(|source| StartError::Io { attempt: "open a file that will be closed to the program", source })?;
    let live = Live::new(live.into_iter().collect(), &plan.policy().fs.deny, state);
    Ok((rules.fence(hidden.as_os_str()).map_err(failed)?, live))
}

/// The plan's environment, with a home and a temporary folder that the program may use.
fn environment(plan: &Plan, scratch: &Scratch) -> Vec<(OsString, OsString)> {
    let mut env = plan.env().to_vec();
    for (name, folder) in [("HOME", HOME), ("TMPDIR", TEMPORARY)] {
        if !plan.policy().proc.env.set.contains_key(name) {
            env.retain(|(known, _)| known != name);
            env.push((name.into(), scratch.path().join(folder).into()));
        }
    }
    env
}

/// What the program's process sees before it executes; it does not execute otherwise (`fence.rs`).
fn proofs(version: i32) -> Vec<(String, String)> {
    let mut proofs = vec![
        (Guarantee::FsConfined, format!("a file outside could be neither read nor written, Landlock {version}")),
        (Guarantee::NetNone, "no socket could be made".to_owned()),
        (Guarantee::KernelFilter, "Seccomp 2, unshare and chmod refused".to_owned()),
        (Guarantee::NoNewPrivileges, "NoNewPrivs 1".to_owned()),
        (Guarantee::CleanEnvironment, "execve gets the listed strings alone".to_owned()),
        (Guarantee::FileSize, "soft and hard, also after an attempt to raise it".to_owned()),
        (Guarantee::OpenFiles, "soft and hard, also after an attempt to raise it".to_owned()),
    ];
    if version >= SIGNALS_SINCE {
        proofs.push((Guarantee::NoSurvivors, "the keeper could not be signalled".to_owned()));
    }
    proofs.into_iter().map(|(guarantee, found)| (guarantee.name().to_owned(), found)).collect()
}

/// An error in preparing what is shown.
fn refuse(why: String) -> StartError {
    StartError::Wall(WallError(why))
}

/// Whether one of two paths is the other or lies in it.
fn overlap(one: &Path, other: &Path) -> bool {
    one.starts_with(other) || other.starts_with(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(version: i32, guarantee: Guarantee) -> bool {
        kept(version).iter().any(|(kept, ..)| *kept == guarantee)
    }

    #[test]
    fn n13_what_a_version_of_landlock_lacks_is_not_claimed() {
        let files = [Guarantee::FsConfined, Guarantee::FsDeny, Guarantee::FsProtect, Guarantee::FsWorkspaceMode];
        for guarantee in files {
            assert!(!claims(2, guarantee), "{guarantee}: a file could be emptied");
            assert!(claims(3, guarantee), "{guarantee}");
        }
        let survivors = |version| kept(version).iter().find(|kept| kept.0 == Guarantee::NoSurvivors).map(|kept| kept.2);
        assert!(survivors(5).unwrap().contains("could kill it"));
        assert!(survivors(6).unwrap().contains("may not signal"));
        assert!(!proofs(5).iter().any(|(name, _)| name == Guarantee::NoSurvivors.name()));
    }

    #[test]
    fn what_needs_a_namespace_is_claimed_with_no_version() {
        let never = [
            Guarantee::FsQuota,
            Guarantee::NetAllowlist,
            Guarantee::Cpus,
            Guarantee::Unprivileged,
            Guarantee::ProcessesHidden,
        ];
        assert!(never.iter().all(|guarantee| !claims(99, *guarantee)));
    }
}
