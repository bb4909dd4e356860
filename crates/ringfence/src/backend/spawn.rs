//! `spawn`: a process of its own without a wall. Used only when it is named.

use ringfence_linux::{Privileges, Rlimit, RlimitKind, tree};
use ringfence_policy::{BackendKind, ProcPolicy, ResolvedPolicy};

use super::native::{LATER_ONES_ARE_TOLD, LATER_ONES_STOP};
use super::{Backend, Capabilities, Sandbox, StartError, Unavailable, process, program};
use crate::BoxFuture;
use crate::guarantee::{Guarantee, Strength};
use crate::plan::Plan;
use crate::state::StateFolder;

/// Clean environment, own session, `no_new_privs`, limits by the kernel where it has them per process and by watching
/// where it has not. The program sees the host's files and network.
#[derive(Debug)]
pub struct Spawn {
    state: StateFolder,
}

impl Spawn {
    /// A backend that keeps code and files of runs below `state`.
    pub fn new(state: StateFolder) -> Self {
        Self { state }
    }
}

impl Backend for Spawn {
    fn kind(&self) -> BackendKind {
        BackendKind::Spawn
    }

    fn probe<'a>(&'a self, _policy: &'a ResolvedPolicy) -> BoxFuture<'a, Result<Capabilities, Unavailable>> {
        Box::pin(async {
            needs_of_the_keeper()?;
            let mut kept = kept_by_the_keeper(BY_SUBREAPER);
            kept.extend([
                (Guarantee::CleanEnvironment, Strength::Enforced, "made from the pass-list"),
                (Guarantee::Memory, Strength::Watched, "looked at ten times a second, RLIMIT_DATA per process"),
                (Guarantee::Processes, Strength::Watched, "looked at ten times a second"),
                (Guarantee::NoNewPrivileges, Strength::Enforced, "no_new_privs"),
            ]);
            if !may_raise_limits() {
                kept.extend([
                    (Guarantee::FileSize, Strength::Enforced, "RLIMIT_FSIZE"),
                    (Guarantee::OpenFiles, Strength::Enforced, "RLIMIT_NOFILE"),
                    (Guarantee::NoCoreFile, Strength::Enforced, "RLIMIT_CORE 1"),
                ]);
            }
            Ok(Capabilities::new(BackendKind::Spawn, kept))
        })
    }

    fn raise<'a>(&'a self, plan: &'a Plan) -> BoxFuture<'a, Result<Sandbox, StartError>> {
        Box::pin(async move {
            let program = program::find(plan, &self.state)?;
            process::prepare(plan, program, Privileges::NoNew, &rlimits(&plan.policy().proc))
        })
    }
}

pub(super) fn rlimits(proc: &ProcPolicy) -> [Rlimit; 4] {
    [
        Rlimit { kind: RlimitKind::Data, most: proc.memory.value.get() },
        Rlimit { kind: RlimitKind::FileSize, most: proc.file_size.value.get() },
        Rlimit { kind: RlimitKind::OpenFiles, most: u64::from(proc.open_files.value) },
        // Not 0: too small for a file all the same, and with exactly 1 the kernel does not start a host's core handler.
        Rlimit { kind: RlimitKind::Core, most: 1 },
    ]
}

/// How a keeper without a wall sees to it that nothing survives.
pub(super) const BY_SUBREAPER: &str =
    "a subreaper that ends only when it has no child; a hostile program of the same user could kill it";

/// Whether we, and so the program, may raise a hard limit again.
fn may_raise_limits() -> bool {
    // What cannot be looked at must not count as kept.
    rustix::thread::capabilities(None)
        .map_or(true, |sets| sets.effective.contains(rustix::thread::CapabilitySet::SYS_RESOURCE))
}

/// What is kept of `kept` when a wall stands for many runs: what one leaves behind is the session's.
pub(super) fn in_a_session(
    mut kept: Vec<(Guarantee, Strength, &'static str)>,
) -> Vec<(Guarantee, Strength, &'static str)> {
    kept.retain(|(guarantee, ..)| *guarantee != Guarantee::NoSurvivors);
    for (guarantee, _, by) in &mut kept {
        match guarantee {
            Guarantee::TimeLimit => *by = "the supervisor's clock, then SIGTERM, then SIGKILL to the program's session",
            Guarantee::PromptReturn => *by = "a run ends with its program",
            // A copy has nothing that came later.
            Guarantee::FsDeny if *by == LATER_ONES_ARE_TOLD => *by = LATER_ONES_STOP,
            _ => {}
        }
    }
    kept
}

/// What a keeper and the supervisor keep whatever the wall.
pub(super) fn kept_by_the_keeper(survivors: &'static str) -> Vec<(Guarantee, Strength, &'static str)> {
    vec![
        (Guarantee::TimeLimit, Strength::Enforced, "the supervisor's clock, then SIGTERM, then SIGKILL to the tree"),
        (Guarantee::OutputLimit, Strength::Enforced, "head and tail kept by the supervisor"),
        (Guarantee::PromptReturn, Strength::Enforced, "what is left is killed when the program ends"),
        (Guarantee::NoSurvivors, Strength::Enforced, survivors),
        (Guarantee::CleanDescriptors, Strength::Enforced, "close_range"),
    ]
}

/// What the keeper cannot do without.
pub(super) fn needs_of_the_keeper() -> Result<(), Unavailable> {
    if tree::children_are_listed() {
        Ok(())
    } else {
        Err(Unavailable {
            reason: "/proc does not list the children of a process, so survivors could not be found".to_owned(),
            fix: "mount /proc, on a kernel built with CONFIG_PROC_CHILDREN".to_owned(),
        })
    }
}
