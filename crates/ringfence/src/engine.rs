//! The only door: takes a request through analysis, policy, judgement, plan, wall and ledger to an outcome.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use ringfence_policy::{BackendKind, ResolvedPolicy, WorkspaceMode, narrow};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::analysis::{analyse_here, surroundings};
use crate::approve::{Approver, Nobody, Standing};
use crate::backend::{
    Backend, Capabilities, Containers, FoundImage, Landlock, Native, NoWall, Sandbox, Spawn, StartError, Unavailable,
};
use crate::choose::Chosen;
use crate::conclude;
use crate::event::Event;
use crate::image;
use crate::judge::{self, Cleared, Judge};
use crate::ledger::{Durability, Entry, Kind, Ledger, LedgerError};
use crate::monitor;
use crate::outcome::{Failure, FailureKind, Outcome};
use crate::plan::{Host, Plan, plan};
use crate::pump::show;
use crate::refusal::Refusal;
use crate::request::Request;
use crate::run::{Caller, Run, until_cancelled};
use crate::run_id::{NoRandomness, RunId};
use crate::scratch;
use crate::session::{Active, Open, Session, SessionRequest};
pub use crate::setup::{Setup, SetupError};
use crate::state::StateFolder;
use crate::waiting::{begun, beside, has_others, waiting};
use crate::workspace::change::Moment;
use crate::workspace::discard::{DiscardError, discard};
use crate::workspace::{self, About};
use crate::written::{ended_body, ledger_failure, record_grant, requested_body};

/// Events that wait for a slow listener.
const EVENTS_WAITING: usize = 16;
/// Carries out requests under one policy, which is bound when the engine is made.
#[derive(Debug, Clone)]
pub struct Engine(pub(crate) Arc<Inner>, pub(crate) Arc<dyn Approver>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) state: StateFolder,
    pub(crate) policy: ResolvedPolicy,
    pub(crate) workspace: PathBuf,
    pub(crate) environment: Vec<(OsString, OsString)>,
    pub(crate) backends: Vec<Box<dyn Backend>>,
    pub(crate) ledger: Ledger,
    pub(crate) grants: Value,
    pub(crate) own: Vec<PathBuf>,
    standing: Standing,
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
        let launcher = Arc::new(setup.launcher);
        let native = Native::new(Arc::clone(&launcher), setup.state.clone());
        native.prepare(&setup.policy);
        let containers = |of: fn(_, _, _) -> Containers| {
            of(Arc::clone(&launcher), setup.state.clone(), setup.environment.clone()).with_room_for(setup.warm)
        };
        let inner = Inner {
            state: setup.state.clone(),
            policy: setup.policy,
            workspace: setup.workspace,
            ledger: Ledger::open(&setup.state)?,
            own: setup.own,
            grants: setup.grants.iter().map(record_grant).collect(),
            backends: vec![
                Box::new(native),
                Box::new(containers(Containers::docker)),
                Box::new(containers(Containers::podman)),
                Box::new(Landlock::new(setup.state.clone())),
                Box::new(Spawn::new(setup.state.clone())),
                Box::new(NoWall::new(setup.state)),
            ],
            environment: setup.environment,
            standing: Standing::default(),
        };
        Ok(Self(Arc::new(inner), approver))
    }

    /// The policy that was bound.
    pub fn policy(&self) -> &ResolvedPolicy {
        &self.0.policy
    }

    /// Throws away what is kept of what `run` changed, and says how many bytes that frees.
    pub fn discard(&self, run: &RunId) -> Result<u64, DiscardError> {
        discard(&self.0.state, &self.0.ledger, run)
    }

    /// What each kind of wall can enforce on this host, or why it cannot be used; as far as that can be found out by trying.
    pub async fn probe(&self) -> Vec<(BackendKind, Result<Capabilities, Unavailable>)> {
        let mut probed = Vec::new();
        for kind in BackendKind::ALL {
            probed.push((kind, self.0.tried(kind, &self.0.policy).await));
        }
        probed
    }

    /// The wall that a run would have now, or why it would have none.
    pub async fn would_use(&self) -> Result<BackendKind, Unavailable> {
        let chosen = self.0.choose(&self.0.policy, None).await?;
        let kind = chosen.capabilities.kind();
        match self.0.tried(kind, &self.0.policy).await {
            Ok(_) => Ok(kind),
            Err(why) => {
                self.0.choose(&self.0.policy, Some(&(kind, why))).await.map(|chosen| chosen.capabilities.kind())
            }
        }
    }

    /// Begins to carry out `request`. Whatever happens, the run ends in an outcome.
    pub fn start(&self, request: Request) -> Result<Run, NoRandomness> {
        self.start_at(None, request)
    }

    /// Likewise, in a session.
    pub(crate) fn start_in(&self, session: Arc<Open>, request: Request) -> Result<Run, NoRandomness> {
        self.start_at(Some(session), request)
    }

    fn start_at(&self, session: Option<Arc<Open>>, request: Request) -> Result<Run, NoRandomness> {
        let id = RunId::generate()?;
        let (events, receiver) = mpsc::channel(EVENTS_WAITING);
        let (run, caller) = Run::new(id.clone(), receiver);
        let (inner, approver) = (Arc::clone(&self.0), Arc::clone(&self.1));
        tokio::spawn(async move {
            let active = match &session {
                Some(session) => tokio::select! {
                    biased;
                    () = until_cancelled(caller.cancel.clone()) => None,
                    active = Active::begin(session, &id, &request.work) => Some(active),
                },
                None => None,
            };
            let mut listener = Listener { events, last: Vec::new() };
            let outcome = inner.carry_out(session, id, request, &mut listener, caller, approver).await;
            active.into_iter().for_each(|active| active.end(&outcome));
            for event in listener.last {
                show(&listener.events, event).await;
            }
            show(&listener.events, Event::Ended(Box::new(outcome))).await;
        });
        Ok(run)
    }

    /// Raises a wall that is kept for many runs, or says in an outcome why there is none.
    pub async fn open_session(&self, request: SessionRequest) -> Result<Session, Box<Outcome>> {
        let run_id = RunId::generate().map_err(|error| Box::new(self.0.failed_without_id(&error)))?;
        self.0.open_session(run_id, request, &self.1).await.map_err(Box::new)
    }

    /// The plan that `request` would run by, or why it would not. Starts nothing and asks nobody.
    pub async fn dry_run(&self, request: Request) -> Result<Plan, Box<Outcome>> {
        let run_id = RunId::generate().map_err(|error| Box::new(self.0.failed_without_id(&error)))?;
        let Prepared { plan, chosen, .. } = self
            .0
            .prepare(Place::Fresh, run_id, request, &self.1)
            .await
            .map_err(|stopped| Box::new(stopped.outcome))?;
        match chosen.backend.image(&plan).await {
            Ok(_) => Ok(plan),
            Err(error) => {
                let outcome = conclude::begin(plan.run_id().clone(), Some(&plan), plan.policy());
                Err(Box::new(conclude::failed(outcome, error.failure())))
            }
        }
    }
}

/// Lets the program of a wall run that was raised, if it shows `image`.
async fn let_go(raised: Result<Sandbox, StartError>, image: Option<&FoundImage>) -> Result<Sandbox, StartError> {
    let mut sandbox = raised?;
    if !sandbox.shows(image) {
        return Err(StartError::ImageChanged);
    }
    sandbox.release().await?;
    Ok(sandbox)
}

/// Whoever follows a run.
struct Listener {
    events: mpsc::Sender<Event>,
    /// What is still to be told when the end is written down, which waits for no reader.
    last: Vec<Event>,
}

pub(crate) struct Prepared<'a> {
    pub(crate) plan: Plan,
    pub(crate) chosen: Chosen<'a>,
    pub(crate) cleared: Cleared,
}

/// A request that goes no further.
pub(crate) struct Stopped {
    pub(crate) outcome: Outcome,
}

/// Where something is to run.
#[derive(Clone, Copy)]
pub(crate) enum Place<'a> {
    /// In a sandbox of its own.
    Fresh,
    /// In a session that is open.
    In(&'a Open),
    /// Nothing yet: a session is to be opened.
    ToKeep,
}

impl Place<'_> {
    /// The session's id, when it is in one.
    fn session(&self) -> Option<&RunId> {
        match self {
            Self::In(session) => Some(&session.with.id),
            Self::Fresh | Self::ToKeep => None,
        }
    }
}

impl Inner {
    async fn carry_out(
        self: Arc<Self>,
        session: Option<Arc<Open>>,
        run_id: RunId,
        request: Request,
        listener: &mut Listener,
        caller: Caller,
        approver: Arc<dyn Approver>,
    ) -> Outcome {
        let events = listener.events.clone();
        let place = session.as_deref().map_or(Place::Fresh, Place::In);
        let requested = self.entry(&run_id, Kind::Requested, requested_body(&request, place.session()));
        let cancelled = caller.cancel.clone();
        let prepared = tokio::select! {
            biased;
            // Nobody is asked any more about what nobody wants any more.
            () = until_cancelled(cancelled.clone()) => {
                Err(Stopped { outcome: conclude::cancelled(conclude::begin(run_id.clone(), None, self.bound(place))) })
            }
            prepared = self.prepare(place, run_id.clone(), request, &approver) => prepared,
        };
        let mut prepared = match prepared {
            Ok(prepared) => prepared,
            Err(stopped) => return self.write_stopped(&run_id, requested, stopped),
        };
        let mut requested = Some(requested);
        let (mut outcome, raised, image) = loop {
            prepared.plan.tell(events.clone());
            let outcome = prepared.begin();
            let (raised, known) = tokio::select! {
                // First, so that what was asked for stands in the ledger before its end does.
                biased;
                both = self.raise_written(&prepared, requested.take(), &events) => both,
                // A wall that is being raised is dropped, and with it all that was made for it.
                () = until_cancelled(cancelled.clone()) => return self.write_end(&run_id, conclude::cancelled(outcome)),
            };
            let image = match known {
                Ok(image) => image,
                Err(error) => return conclude::failed(outcome, ledger_failure(&error)),
            };
            let Some(forbidden) = prepared.forbidden(raised.as_ref().err()).await else {
                break (outcome, raised, image);
            };
            prepared = match self.instead(prepared, forbidden).await {
                Ok(instead) => instead,
                Err(stopped) => return self.write_end(&run_id, stopped.outcome),
            };
        };
        let Prepared { mut plan, chosen, cleared } = prepared;
        let (mut started, mut began) = (Instant::now(), Moment::now());
        let mut released = let_go(raised, image.as_ref()).await;
        if matches!(released, Err(StartError::NobodyWaits)) {
            // What of it may have run went with its sandbox, and was seen by nobody. Waiting for that is none of the program's time.
            (started, began) = (Instant::now(), Moment::now());
            plan.begin_anew();
            released = let_go(chosen.backend.raise(&plan).await, image.as_ref()).await;
        }
        let outcome = match released {
            Err(error) => conclude::failed(outcome, error.failure().of(plan.work())),
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
                    outcome.interpreter = plan.run_by().map(str::to_owned);
                    outcome.container = sandbox.container;
                    let mut watched = monitor::watch(sandbox, &plan, events, caller, started).await;
                    let layer = std::mem::replace(&mut watched.layer, Ok(None));
                    listener.last = std::mem::take(&mut watched.last);
                    let mut outcome = conclude::ended(outcome, watched, plan.policy(), cleared.hosts());
                    let subject = judge::describe(plan.work());
                    let about =
                        About { run_id: &run_id, subject: &subject, began, policy: plan.policy(), own: &self.own };
                    let kept = waiting(|| workspace::keep_left(&self.state, layer, about));
                    let found = conclude::kept(&mut outcome, kept);
                    if let Some(found) = &found
                        && plan.policy().fs.mode.value == WorkspaceMode::Direct
                    {
                        conclude::applied(&mut outcome, waiting(|| self.apply_directly(found)));
                    }
                    return self.write_end_with(&run_id, outcome, found.as_ref().map(|found| found.list.as_str()));
                }
            }
        };
        self.write_end(&run_id, outcome)
    }

    /// Raises the wall of what was prepared while the ledger's entry about it, after the one of what was `requested`, is on its way to
    /// the disk; says both how that went and whether it is known.
    async fn raise_written(
        self: &Arc<Self>,
        prepared: &Prepared<'_>,
        requested: Option<Entry>,
        events: &mpsc::Sender<Event>,
    ) -> (Result<Sandbox, StartError>, Result<Option<FoundImage>, LedgerError>) {
        let Prepared { plan, chosen, .. } = prepared;
        // Asked now, so that the answer comes while the wall is raised.
        let mut asking = chosen.backend.image(plan);
        let asked = begun(asking.as_mut()).await;
        let write_down = async {
            // One that cannot be found, or is another by then, fails the start with its reason.
            let image = match asked {
                Poll::Ready(image) => image,
                Poll::Pending => asking.await,
            };
            let image = image.ok().flatten();
            if let Some(what) = image.as_ref().and_then(|image| image.preparing.clone()) {
                show(events, Event::Preparing { what }).await;
            }
            let name = image.as_ref().map(|image| image.name.as_str());
            let entries = self.entries_before_the_start(requested, prepared, name);
            let inner = Arc::clone(self);
            beside(move || inner.append(&entries, Durability::Synced)).await?;
            plan.is_written_down();
            Ok(image)
        };
        // While the ledger's entry is on its way to the disk, which is begun first where somebody else can wait for it: the guest works
        // on its own. Nothing runs before both are there.
        let raise = chosen.backend.raise(plan);
        let (raised, known) = if has_others() {
            let (known, raised) = tokio::join!(biased; write_down, raise);
            (raised, known)
        } else {
            tokio::join!(biased; raise, write_down)
        };
        match (raised, known) {
            // What a name means may have been remembered. Now it is known, and one that is another by then fails.
            (Ok(mut sandbox), Ok(image)) if !sandbox.shows(image.as_ref()) => {
                sandbox.close_network().await; // Beside its thread we could not raise another wall.
                drop(sandbox);
                (chosen.backend.raise(plan).await, Ok(image))
            }
            both => both,
        }
    }

    pub(crate) fn append(&self, entries: &[Entry], durability: Durability) -> Result<(), LedgerError> {
        self.ledger.append(entries, durability)
    }

    /// Writes the end down. The program has run: its outcome stays, and says when its end is missing from the ledger.
    pub(crate) fn write_end(&self, run_id: &RunId, outcome: Outcome) -> Outcome {
        self.write_end_with(run_id, outcome, None)
    }

    /// Likewise, with the hash of the list of what was changed.
    fn write_end_with(&self, run_id: &RunId, outcome: Outcome, list: Option<&str>) -> Outcome {
        let entry = self.entry(run_id, Kind::Ended, ended_body(&outcome, list));
        match self.ledger.append(&[entry], Durability::Written) {
            Ok(()) => outcome,
            Err(error) => Outcome { error: Some(ledger_failure(&error)), ..outcome },
        }
    }

    pub(crate) async fn prepare<'a>(
        &'a self,
        place: Place<'a>,
        run_id: RunId,
        mut request: Request,
        approver: &Arc<dyn Approver>,
    ) -> Result<Prepared<'a>, Stopped> {
        let stop = |outcome| Stopped { outcome };
        let bound = self.bound(place);
        let nothing_yet = || conclude::begin(run_id.clone(), None, bound);
        let checked = request.check().and_then(|()| match place {
            Place::Fresh => request.check_fresh(),
            Place::In(_) => request.check_in_session(),
            Place::ToKeep => Ok(()),
        });
        if let Err(error) = checked {
            return Err(stop(conclude::failed(nothing_yet(), Failure::new(FailureKind::BadRequest, &error))));
        }
        let policy = narrow(bound, &request.whole_overrides())
            .map_err(|widenings| stop(conclude::refused(nothing_yet(), judge::refuse_widening(&widenings, bound))))?;
        let refuse = |refusal: Refusal| stop(conclude::refused(nothing_yet(), refusal));
        let home = self.environment.iter().find(|(name, _)| name == "HOME").map(|(_, value)| PathBuf::from(value));
        let around = surroundings(&request, &self.workspace, home.as_deref());
        let analysis = analyse_here(&request.work, &around, &self.workspace, &policy);
        let judge = Judge { policy: &policy, surroundings: &around, approver: &**approver, standing: &self.standing };
        let cleared = judge.judge(&request.work, &analysis).await.map_err(refuse)?;
        let chosen = match place {
            Place::In(session) => {
                session.look_again(&request.work).await.map_err(refuse)?;
                request.workspace_at = session.with.workspace_at.clone();
                let capabilities = session.with.capabilities.clone();
                Chosen { backend: &*session.with.wall, capabilities, fell_back: session.with.fell_back.clone() }
            }
            Place::Fresh | Place::ToKeep => match self.choose(&policy, None).await {
                Ok(chosen) => chosen,
                Err(unavailable) => {
                    let failure =
                        Failure::new(FailureKind::BackendUnavailable, &unavailable).hint(unavailable.fix.clone());
                    return Err(stop(conclude::failed(nothing_yet(), failure)));
                }
            },
        };
        let in_session = matches!(place, Place::In(_));
        let host = Host { workspace: &self.workspace, environment: &self.environment, in_session, approver };
        let plan = plan(run_id.clone(), request, &cleared, policy, &chosen.capabilities, host).map_err(refuse)?;
        Ok(Prepared { plan, chosen, cleared })
    }

    /// The policy that holds there.
    fn bound<'a>(&'a self, place: Place<'a>) -> &'a ResolvedPolicy {
        match place {
            Place::Fresh | Place::ToKeep => &self.policy,
            Place::In(session) => &session.with.policy,
        }
    }

    pub(crate) fn entry(&self, run_id: &RunId, kind: Kind, body: Value) -> Entry {
        Entry { kind, run: run_id.to_string(), body }
    }

    pub(crate) fn failed_without_id(&self, error: &NoRandomness) -> Outcome {
        let outcome = conclude::begin(RunId::unknown(), None, &self.policy);
        conclude::failed(outcome, Failure::new(FailureKind::Start, error))
    }
}
