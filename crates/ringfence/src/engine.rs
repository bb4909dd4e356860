//! The only door: takes a request through analysis, policy, judgement, plan, wall and ledger to an outcome.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ringfence_linux::launcher::Launcher;
use ringfence_policy::{BackendChoice, BackendKind, Grant, ResolvedPolicy, narrow};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::analysis::analyse;
use crate::approve::{Approver, Nobody};
use crate::backend::{Backend, Capabilities, Native, NoWall, Spawn, StartError, Unavailable};
use crate::conclude;
use crate::event::Event;
use crate::image;
use crate::judge::{self, Cleared, describe, judge};
use crate::ledger::{Durability, Entry, Kind, Ledger, LedgerError};
use crate::monitor;
use crate::outcome::{Failure, FailureKind, FellBack, Outcome};
use crate::plan::{Host, Plan, plan};
use crate::pump::show;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::run::Run;
use crate::run_id::{NoRandomness, RunId};
use crate::scratch;
use crate::state::StateFolder;

/// Events that wait for a slow listener.
const EVENTS_WAITING: usize = 16;
/// What `auto` means, best first: every wall that isolates.
const AUTO: [BackendKind; 3] = [BackendKind::Native, BackendKind::Docker, BackendKind::Podman];

/// Carries out requests under one policy, which is bound when the engine is made.
#[derive(Debug, Clone)]
pub struct Engine(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    policy: ResolvedPolicy,
    workspace: PathBuf,
    environment: Vec<(OsString, OsString)>,
    backends: Vec<Box<dyn Backend>>,
    ledger: Ledger,
    grants: Value,
    approver: Arc<dyn Approver>,
}

/// What an engine is made from.
#[derive(Debug)]
pub struct Setup {
    /// The policy of every request.
    pub policy: ResolvedPolicy,
    /// The workspace, absolute.
    pub workspace: PathBuf,
    /// The host's environment, of which the policy passes a part.
    pub environment: Vec<(OsString, OsString)>,
    /// Where ledger and scratch folders are.
    pub state: StateFolder,
    /// The grants that went into the policy; every plan is written down with them.
    pub grants: Vec<Grant>,
    /// Who raises native walls: this process while it has one thread, or a process started for it.
    pub launcher: Launcher,
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// No ledger, no runs.
    #[error("could not open the ledger")]
    Ledger(#[from] LedgerError),
    /// What earlier runs left cannot be removed.
    #[error("could not remove what earlier runs left in {path}")]
    Sweep {
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The workspace cannot be used.
    #[error("the workspace {0} is not an absolute path")]
    RelativeWorkspace(PathBuf),
}

/// A backend that was found for a policy.
#[derive(Debug)]
pub struct Chosen<'a> {
    backend: &'a dyn Backend,
    capabilities: Capabilities,
    fell_back: Option<FellBack>,
}

impl Engine {
    /// An engine with every backend of this build. Removes what killed supervisors left behind.
    pub fn new(setup: Setup) -> Result<Self, SetupError> {
        Self::with_approver(setup, Arc::new(Nobody))
    }

    /// Likewise, with somebody who can be asked.
    pub fn with_approver(setup: Setup, approver: Arc<dyn Approver>) -> Result<Self, SetupError> {
        if !setup.workspace.is_absolute() {
            return Err(SetupError::RelativeWorkspace(setup.workspace));
        }
        scratch::sweep(&setup.state)
            .and_then(|_| image::sweep(&setup.state))
            .map_err(|source| SetupError::Sweep { path: setup.state.path().to_owned(), source })?;
        Ok(Self(Arc::new(Inner {
            policy: setup.policy,
            workspace: setup.workspace,
            environment: setup.environment,
            ledger: Ledger::open(&setup.state)?,
            grants: setup.grants.iter().map(record_grant).collect(),
            backends: vec![
                Box::new(Native::new(setup.launcher, setup.state.clone())),
                Box::new(Spawn::new(setup.state.clone())),
                Box::new(NoWall::new(setup.state)),
            ],
            approver,
        })))
    }

    /// The policy that was bound.
    pub fn policy(&self) -> &ResolvedPolicy {
        &self.0.policy
    }

    /// What each kind of wall can enforce on this host, or why it cannot be used.
    pub async fn probe(&self) -> Vec<(BackendKind, Result<Capabilities, Unavailable>)> {
        let mut probed = Vec::new();
        for kind in BackendKind::ALL {
            probed.push((kind, self.0.probe(kind, &self.0.policy).await.map(|(_, capabilities)| capabilities)));
        }
        probed
    }

    /// The wall that a run would have now, or why it would have none.
    pub async fn would_use(&self) -> Result<BackendKind, Unavailable> {
        self.0.choose(&self.0.policy).await.map(|chosen| chosen.capabilities.kind())
    }

    /// Begins to carry out `request`. Whatever happens, the run ends in an outcome.
    pub fn start(&self, request: Request) -> Result<Run, NoRandomness> {
        let id = RunId::generate()?;
        let (events, receiver) = mpsc::channel(EVENTS_WAITING);
        let (cancel, cancelled) = watch::channel(false);
        let (inner, run_id) = (Arc::clone(&self.0), id.clone());
        tokio::spawn(async move {
            let outcome = inner.carry_out(run_id, request, events.clone(), cancelled).await;
            show(&events, Event::Ended(Box::new(outcome))).await;
        });
        Ok(Run::new(id, receiver, cancel))
    }

    /// The plan that `request` would run by, or why it would not. Starts nothing and asks nobody.
    pub async fn dry_run(&self, request: Request) -> Result<Plan, Box<Outcome>> {
        let run_id = match RunId::generate() {
            Ok(run_id) => run_id,
            Err(error) => return Err(Box::new(self.0.failed_without_id(&error))),
        };
        let Prepared { plan, chosen, .. } =
            self.0.prepare(run_id, request).await.map_err(|stopped| Box::new(stopped.outcome))?;
        match chosen.backend.image(&plan) {
            Ok(_) => Ok(plan),
            Err(error) => {
                let outcome = conclude::begin(plan.run_id().clone(), Some(&plan), plan.policy());
                Err(Box::new(conclude::failed(outcome, error.failure())))
            }
        }
    }
}

struct Prepared<'a> {
    plan: Plan,
    chosen: Chosen<'a>,
    cleared: Cleared,
}

/// A request that goes no further.
struct Stopped {
    outcome: Outcome,
}

impl Inner {
    async fn carry_out(
        self: Arc<Self>,
        run_id: RunId,
        request: Request,
        events: mpsc::Sender<Event>,
        cancelled: watch::Receiver<bool>,
    ) -> Outcome {
        let requested = self.entry(&run_id, Kind::Requested, requested_body(&request));
        let prepared = match self.prepare(run_id.clone(), request).await {
            Ok(prepared) => prepared,
            Err(stopped) => {
                let judged =
                    json!({ "verdict": "deny", "refusal": &stopped.outcome.refusal, "error": &stopped.outcome.error });
                let entries = [
                    requested,
                    self.entry(&run_id, Kind::Judged, judged),
                    self.entry(&run_id, Kind::Ended, ended_body(&stopped.outcome)),
                ];
                return match self.ledger.append(&entries, Durability::Written) {
                    Ok(()) => stopped.outcome,
                    Err(error) => conclude::failed(stopped.outcome, ledger_failure(&error)),
                };
            }
        };
        let Prepared { plan, chosen, cleared } = prepared;
        let judged = json!({ "verdict": "allow", "approvedBy": cleared.approved_by() });
        // One that cannot be found, or is another by then, fails the start with its reason.
        let image = chosen.backend.image(&plan).ok().flatten();
        if let Some(what) = image.as_ref().and_then(|image| image.preparing.clone()) {
            show(&events, Event::Preparing { what }).await;
        }
        let planned = json!({
            "backend": plan.backend(),
            "policyHash": hash_policy(plan.policy()),
            "workspace": plan.workspace().to_string_lossy(),
            "image": image.as_ref().map(|image| &image.name),
            "timeoutMs": u64::try_from(plan.limits().timeout.as_millis()).unwrap_or(u64::MAX),
            "notEnforced": plan.not_enforced(),
            "fellBack": &chosen.fell_back,
            "grants": &self.grants,
        });
        let entries =
            [requested, self.entry(&run_id, Kind::Judged, judged), self.entry(&run_id, Kind::Planned, planned)];
        let mut outcome = conclude::begin(run_id.clone(), Some(&plan), plan.policy());
        outcome.fell_back = chosen.fell_back;
        // The wall is raised while the ledger's entry is on its way to the disk; nothing runs before both are there.
        // In this order: the guest works on its own while we wait for the disk.
        let both = async {
            tokio::join!(
                biased;
                chosen.backend.raise(&plan),
                async { self.append_synced(&entries) }
            )
        };
        let (raised, known) = tokio::select! {
            biased;
            both = both => both,
            // A wall that is being raised is dropped, and with it all that was made for it.
            () = until_cancelled(cancelled.clone()) => return self.write_end(&run_id, conclude::cancelled(outcome)),
        };
        if let Err(error) = known {
            return conclude::failed(outcome, ledger_failure(&error));
        }
        let started = Instant::now();
        let released = match raised {
            Ok(sandbox) if sandbox.image() != image.as_ref().map(|image| image.name.as_str()) => {
                Err(StartError::ImageChanged)
            }
            Ok(mut sandbox) => sandbox.release().await.map(|()| sandbox),
            Err(error) => Err(error),
        };
        let outcome = match released {
            Err(error) => conclude::failed(outcome, error.failure()),
            Ok(sandbox) => {
                let entry = self.entry(&run_id, Kind::Started, json!({ "backend": plan.backend() }));
                if let Err(error) = self.ledger.append(&[entry], Durability::Written) {
                    drop(sandbox);
                    conclude::failed(outcome, ledger_failure(&error))
                } else {
                    let backend = plan.backend().to_string();
                    show(&events, Event::Started { run_id: run_id.clone(), backend }).await;
                    outcome.prove(sandbox.proofs());
                    outcome.name_image(sandbox.image());
                    let watched = monitor::watch(sandbox, &plan, events, cancelled, started).await;
                    conclude::ended(outcome, watched, plan.policy())
                }
            }
        };
        self.write_end(&run_id, outcome)
    }

    /// Waits for the disk on this thread: a process with one thread stays one, which is what lets it raise walls itself.
    /// Where there are more, the others go on meanwhile.
    fn append_synced(&self, entries: &[Entry]) -> Result<(), LedgerError> {
        let append = || self.ledger.append(entries, Durability::Synced);
        match tokio::runtime::Handle::current().runtime_flavor() {
            tokio::runtime::RuntimeFlavor::MultiThread => tokio::task::block_in_place(append),
            _ => append(),
        }
    }

    /// Writes the end down. The program has run: its outcome stays, and says when its end is missing from the ledger.
    fn write_end(&self, run_id: &RunId, outcome: Outcome) -> Outcome {
        match self.ledger.append(&[self.entry(run_id, Kind::Ended, ended_body(&outcome))], Durability::Written) {
            Ok(()) => outcome,
            Err(error) => Outcome { error: Some(ledger_failure(&error)), ..outcome },
        }
    }

    async fn prepare(&self, run_id: RunId, request: Request) -> Result<Prepared<'_>, Stopped> {
        let stop = |outcome| Stopped { outcome };
        let nothing_yet = || conclude::begin(run_id.clone(), None, &self.policy);
        if let Err(error) = request.check() {
            return Err(stop(conclude::failed(nothing_yet(), Failure::new(FailureKind::BadRequest, &error))));
        }
        let mut overrides = request.overrides.clone();
        overrides.proc.env.set.extend(request.env.iter().cloned());
        let policy = narrow(&self.policy, &overrides).map_err(|widenings| {
            stop(conclude::refused(nothing_yet(), judge::refuse_widening(&widenings, &self.policy)))
        })?;
        let refuse = |refusal: Refusal| stop(conclude::refused(nothing_yet(), refusal));
        let analysis = analyse(&request.work);
        let cleared = judge(&request.work, &analysis, &policy, &*self.approver).await.map_err(refuse)?;
        let chosen = match self.choose(&policy).await {
            Ok(chosen) => chosen,
            Err(unavailable) => {
                let failure = Failure::new(FailureKind::BackendUnavailable, &unavailable).hint(unavailable.fix.clone());
                return Err(stop(conclude::failed(nothing_yet(), failure)));
            }
        };
        let host = Host { workspace: &self.workspace, environment: &self.environment };
        let plan = plan(run_id.clone(), request, &cleared, policy, &chosen.capabilities, host).map_err(refuse)?;
        Ok(Prepared { plan, chosen, cleared })
    }

    /// The backend that the policy wants or, in its order, one that it falls back to.
    async fn choose(&self, policy: &ResolvedPolicy) -> Result<Chosen<'_>, Unavailable> {
        let (name, wanted) = match policy.backend.choice.value {
            BackendChoice::Auto => ("auto".to_owned(), AUTO.to_vec()),
            BackendChoice::Kind(kind) => (kind.to_string(), vec![kind]),
        };
        let mut reasons = Vec::new();
        for kind in &wanted {
            match self.probe(*kind, policy).await {
                Ok((backend, capabilities)) => return Ok(Chosen { backend, capabilities, fell_back: None }),
                Err(unavailable) => reasons.push(format!("{kind}: {}", unavailable.reason)),
            }
        }
        let reason = reasons.join("; ");
        for kind in policy.backend.fallback.iter().map(|kind| kind.value).filter(|kind| !wanted.contains(kind)) {
            match self.probe(kind, policy).await {
                Ok((backend, capabilities)) => {
                    let fell_back = Some(FellBack { wanted: name, reason });
                    return Ok(Chosen { backend, capabilities, fell_back });
                }
                Err(unavailable) => reasons.push(format!("{kind}: {}", unavailable.reason)),
            }
        }
        Err(Unavailable {
            reason: format!("no backend that the policy permits is available ({})", reasons.join("; ")),
            fix: "`ringfence doctor` says what is missing; take out of the policy what a wall does not know; to run without a wall all the same, choose `--backend spawn`, or \
                  list `spawn` under `backend.fallback` in the policy"
                .to_owned(),
        })
    }

    async fn probe(
        &self,
        kind: BackendKind,
        policy: &ResolvedPolicy,
    ) -> Result<(&dyn Backend, Capabilities), Unavailable> {
        let Some(backend) = self.backends.iter().find(|backend| backend.kind() == kind) else {
            return Err(Unavailable {
                reason: "not part of this version".to_owned(),
                fix: format!("choose another backend than `{kind}`, such as `--backend spawn`"),
            });
        };
        Ok((&**backend, backend.probe(policy).await?))
    }

    fn entry(&self, run_id: &RunId, kind: Kind, body: Value) -> Entry {
        Entry { kind, run: run_id.to_string(), body }
    }

    fn failed_without_id(&self, error: &NoRandomness) -> Outcome {
        let outcome = conclude::begin(RunId::unknown(), None, &self.policy);
        conclude::failed(outcome, Failure::new(FailureKind::Start, error))
    }
}

fn hash_policy(policy: &ResolvedPolicy) -> String {
    blake3::hash(policy.canonical_json().to_string().as_bytes()).to_hex().to_string()
}

/// Waits until the caller wants the run no more, or is gone.
async fn until_cancelled(mut cancelled: watch::Receiver<bool>) {
    while !*cancelled.borrow_and_update() {
        if cancelled.changed().await.is_err() {
            return;
        }
    }
}

fn record_grant(grant: &Grant) -> Value {
    json!({ "by": &grant.by, "why": &grant.why, "widen": &grant.widen })
}

fn requested_body(request: &Request) -> Value {
    json!({
        "subject": describe(&request.work),
        "cwd": request.cwd.to_string_lossy(),
        "env": request.env.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        "files": request.files.len(),
        "door": &request.metadata.door,
        "labels": &request.metadata.labels,
        "uid": rustix::process::getuid().as_raw(),
        "pid": rustix::process::getpid().as_raw_nonzero(),
    })
}

fn ended_body(outcome: &Outcome) -> Value {
    json!({
        "status": outcome.status,
        "exitCode": outcome.exit_code,
        "signal": outcome.signal,
        "resourceUsage": outcome.resource_usage,
        "outputTruncated": outcome.output_truncated,
        "violations": outcome.violations,
        "error": outcome.error,
    })
}

fn ledger_failure(error: &LedgerError) -> Failure {
    Failure::new(FailureKind::Ledger, error).hint(
        "nothing runs without its entry in the ledger: make room on the disk, or set RINGFENCE_STATE_DIR to a folder that can be written",
    )
}
