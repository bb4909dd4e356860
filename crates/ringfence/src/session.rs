//! A place that is kept: many runs behind one wall, one after the other or several at once.
//!
//! Files, background programs and all else behind the wall stay from run to run. The wall is the one that the policy asked
//! for when the session was opened; a run can narrow only what belongs to itself: its time, its output, its variables.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence_policy::{BackendKind, Overrides, ResolvedPolicy, WorkspaceMode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{OwnedRwLockReadGuard, RwLock, watch};
use tokio::time::MissedTickBehavior;

use crate::backend::{Capabilities, InUse, KeptWall};
use crate::checkpoint::{Runs, Shelf};
use crate::conclude;
use crate::engine::Inner;
use crate::event::Violation;
use crate::guarantee::{Evidence, Guarantee, Strength};
use crate::judge;
use crate::ledger::{Durability, Kind};
use crate::outcome::{Failure, FellBack, Outcome};
use crate::refusal::Refusal;
use crate::request::{Metadata, Request, Work, WorkspaceAt};
use crate::run::Run;
use crate::run_id::{NoRandomness, RunId};
use crate::waiting::waiting;
use crate::workspace::change::Moment;
use crate::workspace::{self, About, AtOnce, ChangeSet, Counts, KeepError};
use crate::written::changes_body;

/// Without a run for this long, a session ends.
pub const IDLE: Duration = Duration::from_secs(30 * 60);
/// A session ends after this long.
pub const LIFE: Duration = Duration::from_secs(8 * 60 * 60);
/// No session may ask for more of either.
pub const MOST_LIFE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// How long a session may take to end before it is killed from outside.
const ENDS: Duration = Duration::from_secs(5);
/// Likewise, as long as it still tells what was changed in it.
const TELLS: Duration = Duration::from_secs(600);
/// The time between two looks at limits that no cgroup keeps.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// So many looks in a row over a limit end a session.
const LOOKS_OVER: u32 = 5;

/// This moment, as outcomes and lists write it.
pub fn now() -> String {
    jiff::Timestamp::now().to_string()
}

/// What someone wants kept.
#[derive(Debug)]
pub struct SessionRequest {
    /// Where the workspace appears inside.
    pub workspace_at: WorkspaceAt,
    /// Narrowing of the policy for everything in the session.
    pub overrides: Overrides,
    /// End when there was no run for this long.
    pub idle: Duration,
    /// End after this long.
    pub life: Duration,
    /// Who asked.
    pub metadata: Metadata,
}

impl Default for SessionRequest {
    fn default() -> Self {
        Self {
            workspace_at: WorkspaceAt::Default,
            overrides: Overrides::default(),
            idle: IDLE,
            life: LIFE,
            metadata: Metadata { door: "library".to_owned(), labels: Vec::new() },
        }
    }
}

/// Why a session is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SessionEnd {
    /// Somebody asked.
    Closed,
    /// Nothing ran for too long.
    Idle,
    /// Its life was over.
    Life,
    /// What was left in the background used more memory than the session may.
    Memory,
    /// Likewise, more processes.
    Processes,
    /// Its guest was killed, or did not answer.
    Lost,
}

/// What is known about a session that is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionEnded {
    /// Its id, by which what was changed in it is found.
    pub id: RunId,
    /// Why.
    pub reason: SessionEnd,
    /// Something in it changed the workspace in its private layer; the host's files are as they were.
    pub workspace_changed: bool,
    /// How much of it, when it was kept to be looked at.
    pub changes: Option<Counts>,
    /// What of it the host has already.
    #[serde(default)]
    pub applied: Option<AtOnce>,
    /// At its end, nothing more could have been written.
    pub full: bool,
    /// What came into the host's folders that is denied, and may have been read by what was left running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violation: Option<Violation>,
    /// Why what was changed could not be kept.
    pub error: Option<Failure>,
}

/// A session. Dropping the last handle ends it.
#[derive(Debug, Clone)]
pub struct Session {
    pub(crate) open: Arc<Open>,
    _held: Arc<Held>,
}

/// Ends the session when nobody holds it any more.
#[derive(Debug)]
struct Held(Arc<Open>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.end_for(SessionEnd::Closed);
    }
}

/// A session that is open, as the engine sees it.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) with: Opening,
    activity: watch::Sender<Activity>,
    reason: watch::Sender<Option<SessionEnd>>,
    ended: watch::Sender<Option<SessionEnded>>,
    /// One set at a time is kept of it, so that the last one stays.
    pub(crate) keeping: Mutex<()>,
    /// Held by every run; and alone by whoever needs that nothing runs.
    pub(crate) gate: Arc<RwLock<()>>,
    pub(crate) runs: Mutex<Runs>,
    pub(crate) shelf: Mutex<Option<Shelf>>,
    pub(crate) engine: Arc<Inner>,
}

/// What a session is opened with, once its wall stands.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) id: RunId,
    pub(crate) began: Moment,
    pub(crate) policy: ResolvedPolicy,
    pub(crate) own: Vec<PathBuf>,
    pub(crate) wall: Arc<dyn KeptWall>,
    pub(crate) capabilities: Capabilities,
    pub(crate) fell_back: Option<FellBack>,
    pub(crate) workspace_at: WorkspaceAt,
    pub(crate) receipt: Vec<Evidence>,
    pub(crate) idle: Duration,
    pub(crate) life: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Activity {
    running: usize,
    since: Instant,
}

/// Something that a session must not end under; counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Active {
    open: Arc<Open>,
    /// A run's id, and its share of the gate.
    run: Option<(RunId, OwnedRwLockReadGuard<()>)>,
}

impl Active {
    /// A run, which waits while the workspace must be left alone.
    pub(crate) async fn begin(open: &Arc<Open>, run: &RunId, work: &Work) -> Self {
        let gate = Arc::clone(&open.gate).read_owned().await;
        open.runs().begin(run, judge::describe(work));
        let mut active = Self::beside(open);
        active.run = Some((run.clone(), gate));
        active
    }

    /// Anything else.
    pub(crate) fn beside(open: &Arc<Open>) -> Self {
        open.activity.send_modify(|activity| activity.running += 1);
        Self { open: Arc::clone(open), run: None }
    }

    /// The run ended.
    pub(crate) fn end(self, outcome: &Outcome) {
        self.open.runs().end(outcome);
    }
}

impl Drop for Active {
    fn drop(&mut self) {
        if let Some((run, _)) = &self.run {
            self.open.runs().forget(run);
        }
        self.open.activity.send_modify(|activity| {
            activity.running = activity.running.saturating_sub(1);
            activity.since = Instant::now();
        });
    }
}

impl Session {
    /// Takes over a wall that stands, and watches over its life.
    pub(crate) fn begin(opening: Opening, engine: &Arc<Inner>) -> Self {
        let (idle, life) = (opening.idle.min(MOST_LIFE), opening.life.min(MOST_LIFE));
        let open = Arc::new(Open {
            with: Opening { idle, life, ..opening },
            activity: watch::Sender::new(Activity { running: 0, since: Instant::now() }),
            reason: watch::Sender::new(None),
            ended: watch::Sender::new(None),
            keeping: Mutex::default(),
            gate: Arc::default(),
            runs: Mutex::default(),
            shelf: Mutex::default(),
            engine: Arc::clone(engine),
        });
        tokio::spawn(watch_over(Arc::clone(&open), Arc::clone(engine)));
        Self { _held: Arc::new(Held(Arc::clone(&open))), open }
    }

    /// Its id, as the ledger has it.
    pub fn id(&self) -> &RunId {
        &self.open.with.id
    }

    /// The policy of everything in it.
    pub fn policy(&self) -> &ResolvedPolicy {
        &self.open.with.policy
    }

    /// The wall.
    pub fn backend(&self) -> BackendKind {
        self.open.with.capabilities.kind()
    }

    /// The guarantees in force, with what was seen from inside when the wall was raised.
    pub fn receipt(&self) -> &[Evidence] {
        &self.open.with.receipt
    }

    /// How many runs go on.
    pub fn running(&self) -> usize {
        self.open.activity.borrow().running
    }

    /// What is in use.
    pub async fn measure(&self) -> std::io::Result<InUse> {
        self.open.with.wall.measure().await
    }

    /// Begins to carry out `request` in it. Whatever happens, the run ends in an outcome. Whoever `engine` asks is asked about the request;
    /// what programs want of the network belongs to the whole session, and about that whoever the engine asked that opened it.
    pub fn start(&self, engine: &crate::Engine, request: Request) -> Result<Run, NoRandomness> {
        engine.start_in(Arc::clone(&self.open), request)
    }

    /// Ends it, and waits until nothing of it is left.
    pub async fn close(&self) -> SessionEnded {
        self.open.end_for(SessionEnd::Closed);
        self.ended().await
    }

    /// Waits until it is over.
    pub async fn ended(&self) -> SessionEnded {
        let mut ended = self.open.ended.subscribe();
        let ended = ended.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone());
        ended.unwrap_or_else(|| SessionEnded {
            id: self.open.with.id.clone(),
            reason: SessionEnd::Lost,
            workspace_changed: false,
            changes: None,
            applied: None,
            full: false,
            violation: None,
            error: None,
        })
    }

    /// What was changed in it until now, which is kept as the changes of its id; nothing when nothing was. Programs may go
    /// on: what they do meanwhile can make this fail, and a file that changes while it is read is listed as it was read.
    pub async fn changes(&self, engine: &crate::Engine) -> Result<Option<ChangeSet>, KeepError> {
        let layer = self.open.with.wall.layer().await.map_err(KeepError::Layer)?;
        let Some(layer) = layer else { return Ok(None) };
        let (open, state) = (Arc::clone(&self.open), engine.0.state.clone());
        let (sender, kept) = tokio::sync::oneshot::channel();
        // A thread of its own, which ends at once: it may take long, and others are watched meanwhile.
        std::thread::Builder::new()
            .name("changes".to_owned())
            .spawn(move || {
                let _one = open.keeping.lock().unwrap_or_else(PoisonError::into_inner);
                // Who does not wait any more does not need it.
                sender.send(workspace::keep(&state, &layer, open.about())).ok();
            })
            .map_err(KeepError::Layer)?;
        let abandoned = |_| KeepError::Layer(std::io::ErrorKind::UnexpectedEof.into());
        Ok(kept.await.map_err(abandoned)??.map(|found| found.set))
    }
}

impl Open {
    /// What a set of its changes says of it.
    pub(crate) fn about(&self) -> About<'_> {
        let Opening { id, began, policy, own, .. } = &self.with;
        About { run_id: id, subject: "a session", began: *began, policy, own }
    }

    pub(crate) fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it is over, or about to be.
    pub(crate) fn is_ending(&self) -> bool {
        self.reason.borrow().is_some() || self.ended.borrow().is_some()
    }

    fn end_for(&self, reason: SessionEnd) {
        self.reason.send_modify(|known| {
            known.get_or_insert(reason);
        });
        self.with.wall.end();
    }

    /// Why `work` may not start here any more, if so: the wall is older than something that is denied, and shows it. Asked as
    /// late as it can be, after every question that had to be waited for.
    pub(crate) async fn look_again(&self, work: &Work) -> Result<(), Refusal> {
        let Some(live) = self.with.wall.live() else { return Ok(()) };
        live.refusal(&judge::describe(work)).await.map_or(Ok(()), Err)
    }

    /// Which watched limit everything behind the wall is over together.
    fn is_over(&self) -> Option<SessionEnd> {
        let watched = |guarantee| self.with.capabilities.strength(guarantee) == Some(Strength::Watched);
        let proc = &self.with.policy.proc;
        if !watched(Guarantee::Memory) && !watched(Guarantee::Processes) {
            return None;
        }
        let used = self.with.wall.sample();
        if watched(Guarantee::Memory) && used.memory_bytes > proc.memory.value.get() {
            return Some(SessionEnd::Memory);
        }
        let too_many = watched(Guarantee::Processes) && used.tasks > u64::from(proc.processes.value);
        too_many.then_some(SessionEnd::Processes)
    }
}

/// Ends a session when its time has come, or when it is told to, and writes its end down.
async fn watch_over(open: Arc<Open>, engine: Arc<Inner>) {
    let opened = Instant::now();
    let mut activity = open.activity.subscribe();
    let mut told = open.reason.subscribe();
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // A run that is over a limit is ended by itself first. What is over it for longer was left behind.
    let mut over_for = 0;
    let already_gone = loop {
        let now = *activity.borrow_and_update();
        let idle_at = (now.running == 0).then(|| now.since + open.with.idle);
        let life_at = opened + open.with.life;
        let next = idle_at.map_or(life_at, |idle_at| idle_at.min(life_at));
        tokio::select! {
            () = open.with.wall.ended() => break true,
            changed = activity.changed() => if changed.is_err() { break false },
            _ = told.wait_for(Option::is_some) => break false,
            () = tokio::time::sleep_until(next.into()) => {
                open.end_for(if next == life_at { SessionEnd::Life } else { SessionEnd::Idle });
            }
            _ = looks.tick() => match open.is_over() {
                Some(reason) => {
                    over_for += 1;
                    if over_for >= LOOKS_OVER {
                        open.end_for(reason);
                    }
                }
                None => over_for = 0,
            },
        }
    };
    let told = Instant::now();
    while !already_gone && tokio::time::timeout(ENDS, open.with.wall.ended()).await.is_err() {
        if !open.with.wall.still_tells() || told.elapsed() > TELLS {
            open.with.wall.kill();
            break;
        }
    }
    let violation = match open.with.wall.live() {
        Some(live) => live.violation().await,
        None => None,
    };
    let left = open.with.wall.take_left();
    let kept = waiting(|| {
        let _one = open.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        workspace::keep_left(&engine.state, left.layer, open.about())
    });
    // They can be restored here only, and here is no more.
    let shelf = open.shelf.lock().unwrap_or_else(PoisonError::into_inner).take();
    waiting(|| drop(shelf));
    let (found, mut error) = match kept {
        Ok(found) => (found, None),
        Err(error) => (None, Some(error.failure())),
    };
    let mut applied = None;
    if let Some(found) = &found
        && open.with.policy.fs.mode.value == WorkspaceMode::Direct
    {
        match waiting(|| engine.apply_directly(found)) {
            Ok(done) => applied = Some(done),
            Err(failed) => error = Some(conclude::not_applied(&failed)),
        }
    }
    let changes = found.as_ref().map(|found| found.set.counts());
    let ended = SessionEnded {
        id: open.with.id.clone(),
        reason: open.reason.borrow().unwrap_or(SessionEnd::Lost),
        workspace_changed: changes.is_some() || error.is_some(),
        changes,
        applied,
        full: left.full,
        violation,
        error,
    };
    let listed = found.map(|found| changes_body(found.set.counts(), Some(&found.list)));
    let mut body = json!({ "session": ended, "changes": listed });
    if let Some(network) = open.with.wall.close_network().await.body() {
        body["network"] = network;
    }
    let entry = engine.entry(&open.with.id, Kind::Ended, body);
    // The session is over either way; a ledger that cannot be written stops the next start.
    engine.append(&[entry], Durability::Written).ok();
    open.ended.send_replace(Some(ended));
}
