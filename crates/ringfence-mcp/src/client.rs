//! What belongs to one client. Nothing in here can be named by another one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ringfence::loop_guard::{Circle, Ended, Stuck};
use ringfence::session::SessionEnded;
use ringfence::workspace::ObjectId;
use ringfence::{LoopGuard, RunId, Session};
use rmcp::task_manager::TaskManager;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::artifact::Artifacts;
use crate::ask::{Relay, Waiting};
use crate::limits::{Limits, MOST_RUNS, MOST_TASKS, QUIET, TASK_KEPT};
use crate::tools::Problem;

/// How long the sandboxes of a client that went away may take to end.
const CLOSE_WITHIN: Duration = Duration::from_secs(15);

/// A sandbox that is kept for a client.
#[derive(Debug, Clone)]
pub(crate) struct Sandbox {
    pub(crate) id: Arc<str>,
    pub(crate) session: Session,
    pub(crate) since: Arc<str>,
    /// What the client calls it.
    pub(crate) label: Option<Arc<str>>,
    /// Who is asked about what programs in it want.
    pub(crate) relay: Arc<Relay>,
}

/// One client.
pub(crate) struct Client {
    limits: Limits,
    calls: Arc<Semaphore>,
    runs: Arc<Semaphore>,
    sandboxes: Mutex<BTreeMap<Arc<str>, Sandbox>>,
    /// Sandboxes that are being opened.
    opening: Arc<Semaphore>,
    /// Whose changes it may look at, newest last.
    known: Mutex<VecDeque<RunId>>,
    /// Which changes of them it was shown last, by the name of these changes.
    shown: Mutex<BTreeMap<RunId, ObjectId>>,
    used: Mutex<Duration>,
    guard: Mutex<Guard>,
    pub(crate) artifacts: Mutex<Artifacts>,
    pub(crate) waiting: Mutex<BTreeMap<String, Waiting>>,
    pub(crate) tasks: TaskManager,
    /// When those that may still be kept began, oldest first.
    tasks_began: Mutex<VecDeque<Instant>>,
}

struct Guard {
    loops: LoopGuard,
    /// Runs that failed since one went well.
    failed: u32,
    last: Instant,
}

impl Guard {
    fn new(limits: &Limits) -> Self {
        Self { loops: LoopGuard::new(limits.of_loops()), failed: 0, last: Instant::now() }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Client {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            calls: Arc::new(Semaphore::new(limits.calls)),
            runs: Arc::new(Semaphore::new(limits.runs)),
            sandboxes: Mutex::default(),
            opening: Arc::new(Semaphore::new(limits.sandboxes)),
            known: Mutex::default(),
            shown: Mutex::default(),
            used: Mutex::default(),
            guard: Mutex::new(Guard::new(&limits)),
            artifacts: Mutex::default(),
            waiting: Mutex::default(),
            tasks: TaskManager::new(),
            tasks_began: Mutex::default(),
        }
    }

    /// Room for a call.
    pub(crate) fn begin_call(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let most = self.limits.calls;
        Arc::clone(&self.calls)
            .try_acquire_owned()
            .map_err(|_| Problem::later(format!("{most} calls of this client go on already, which is the most")))
    }

    /// Room and time for a program.
    pub(crate) fn begin_run(&self) -> Result<OwnedSemaphorePermit, Problem> {
        if *lock(&self.used) >= self.limits.run_time {
            return Err(Problem::never(format!(
                "the programs of this client have run for {} seconds in all, which is the most",
                self.limits.run_time.as_secs()
            ))
            .advise("Stop, and tell the person you work for: the time begins anew when the server is started again."));
        }
        let most = self.limits.runs;
        Arc::clone(&self.runs)
            .try_acquire_owned()
            .map_err(|_| Problem::later(format!("{most} programs of this client run already, which is the most")))
    }

    pub(crate) fn ran_for(&self, time: Duration) {
        let mut used = lock(&self.used);
        *used = used.saturating_add(time);
    }

    /// Room for a sandbox; to be given to [`Client::keep`].
    pub(crate) fn begin_sandbox(&self) -> Result<OwnedSemaphorePermit, Problem> {
        Arc::clone(&self.opening)
            .try_acquire_owned()
            .ok()
            .filter(|_| {
                lock(&self.sandboxes).len() + self.limits.sandboxes - self.opening.available_permits()
                    <= self.limits.sandboxes
            })
            .ok_or_else(|| {
                Problem::never(format!("{} sandboxes are open already, which is the most", self.limits.sandboxes))
                    .advise("Close one with sandbox_close, or use one that is open.")
            })
    }

    pub(crate) fn keep(&self, sandbox: Sandbox, _room: OwnedSemaphorePermit) {
        lock(&self.sandboxes).insert(Arc::clone(&sandbox.id), sandbox);
    }

    /// The sandbox with this id. One that never was, one that is over and one of somebody else answer alike.
    pub(crate) async fn sandbox(&self, id: &str) -> Result<Sandbox, Problem> {
        let found = lock(&self.sandboxes).get(id).cloned();
        if let Some(sandbox) = found {
            match is_over(&sandbox.session).await {
                None => return Ok(sandbox),
                Some(ended) => self.over(&sandbox, &ended),
            }
        }
        Err(Problem::never("there is no sandbox with this id")
            .advise("sandbox_list shows those that are open; sandbox_create opens one."))
    }

    /// Those that are open, in the order of their ids.
    pub(crate) async fn sandboxes(&self) -> Vec<Sandbox> {
        let all: Vec<Sandbox> = lock(&self.sandboxes).values().cloned().collect();
        let mut open = Vec::new();
        for sandbox in all {
            match is_over(&sandbox.session).await {
                None => open.push(sandbox),
                Some(ended) => self.over(&sandbox, &ended),
            }
        }
        open
    }

    /// Takes note that a sandbox is over. What was changed in it can still be looked at.
    pub(crate) fn over(&self, sandbox: &Sandbox, ended: &SessionEnded) {
        lock(&self.sandboxes).remove(&sandbox.id);
        if ended.changes.is_some() {
            self.remember(ended.id.clone());
        }
    }

    /// Lets the client look at what a run of its own changed.
    pub(crate) fn remember(&self, run: RunId) {
        let mut known = lock(&self.known);
        known.retain(|other| *other != run);
        if known.len() == MOST_RUNS {
            let oldest = known.pop_front();
            oldest.map(|oldest| lock(&self.shown).remove(&oldest));
        }
        known.push_back(run);
    }

    /// Takes note of what was shown of the changes of a run.
    pub(crate) fn showed(&self, run: &RunId, changes: ObjectId) {
        lock(&self.shown).insert(run.clone(), changes);
    }

    /// Whether these changes of a run are those that were shown last, or none were.
    pub(crate) fn is_as_shown(&self, run: &RunId, changes: ObjectId) -> bool {
        lock(&self.shown).get(run).is_none_or(|shown| *shown == changes)
    }

    /// Whether a run is one of its own. One that never was and one of somebody else answer alike.
    pub(crate) fn find_run(&self, text: &str) -> Result<RunId, Problem> {
        let found = lock(&self.known).iter().find(|run| run.as_str() == text).cloned();
        found.ok_or_else(|| {
            Problem::never("no changes of a run with this id are kept")
                .advise("Write the runId that a result named, of a run that changed the workspace.")
        })
    }

    /// Whether there is room for one more task, which is then taken. Results are kept for a while, so that this counts those, too.
    pub(crate) fn begin_task(&self) -> bool {
        let mut began = lock(&self.tasks_began);
        // One may run for as long as it is kept, and its result is kept for as long again.
        began.retain(|began| began.elapsed() < 2 * TASK_KEPT);
        let has_room = began.len() < MOST_TASKS;
        if has_room {
            began.push_back(Instant::now());
        }
        has_room
    }

    /// Whether anything may still be tried.
    pub(crate) fn may_try(&self) -> Result<(), Problem> {
        let mut guard = lock(&self.guard);
        if guard.last.elapsed() > QUIET {
            *guard = Guard::new(&self.limits);
        }
        if self.limits.retries > 0 && guard.failed >= self.limits.retries {
            let most = self.limits.retries;
            return Err(Problem::never(format!("{most} runs in a row have failed, which is all that may"))
                .advise("Stop, and tell the person you work for what you tried and what stands in the way."));
        }
        Ok(())
    }

    /// Takes note of how a run ended. One that goes well shows that the work goes on, and begins the budget anew; looking for a file that
    /// is not there uses up nothing of it.
    pub(crate) fn note_run(&self, ended: Ended<'_>) {
        let mut guard = lock(&self.guard);
        guard.failed = match ended {
            Ended::Well(_) => 0,
            Ended::Badly(_) => guard.failed.saturating_add(1),
        };
    }

    /// Takes note of a call, and says when it goes in circles.
    pub(crate) fn note(&self, call: &[u8], ended: Ended<'_>) -> Option<Stuck> {
        let mut guard = lock(&self.guard);
        guard.last = Instant::now();
        let stuck = guard.loops.note(call, ended)?;
        // What works and repeats itself is often meant so: only the graver circles are worth a model's attention then.
        let works = matches!(ended, Ended::Well(_));
        (!works || stuck.circle != Circle::WithoutProgress || stuck.times.is_multiple_of(8)).then_some(stuck)
    }

    /// Ends all that is kept for it, and waits until nothing is left.
    pub(crate) async fn end(&self) {
        self.tasks.shutdown();
        lock(&self.waiting).clear();
        let all: Vec<Sandbox> = std::mem::take(&mut *lock(&self.sandboxes)).into_values().collect();
        let mut closing = tokio::task::JoinSet::new();
        for sandbox in all {
            closing.spawn(async move { sandbox.session.close().await });
        }
        // What takes longer is killed with this process.
        tokio::time::timeout(CLOSE_WITHIN, closing.join_all()).await.ok();
    }
}

/// How a session ended, if it did.
async fn is_over(session: &Session) -> Option<SessionEnded> {
    tokio::time::timeout(Duration::ZERO, session.ended()).await.ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by a panic")]

    use super::*;

    #[test]
    fn a_run_of_somebody_else_is_as_unknown_as_none() {
        let (mine, other) = (Client::new(Limits::default()), Client::new(Limits::default()));
        let run = RunId::generate().unwrap();
        mine.remember(run.clone());
        assert_eq!(mine.find_run(run.as_str()).unwrap(), run);
        let foreign = other.find_run(run.as_str()).unwrap_err();
        let unknown = other.find_run(RunId::generate().unwrap().as_str()).unwrap_err();
        assert_eq!(foreign, unknown);
        assert!(mine.find_run(&run.as_str()[..20]).is_err(), "the beginning of an id is no id");
    }

    #[test]
    fn the_budget_for_trying_again_ends_calls_and_not_those_that_work() {
        let client = Client::new(Limits { retries: 2, ..Limits::default() });
        assert!(client.may_try().is_ok());
        client.note_run(Ended::Badly(b"1"));
        client.note_run(Ended::Well(b"1"));
        client.note_run(Ended::Badly(b"2"));
        assert!(client.may_try().is_ok(), "one of them went well in between");
        for _ in 0..5 {
            client.note(b"look", Ended::Badly(b"there is no such file"));
        }
        assert!(client.may_try().is_ok(), "nothing was run");
        client.note_run(Ended::Badly(b"3"));
        assert!(client.may_try().is_err());
    }

    #[test]
    fn no_more_tasks_are_kept_than_the_limit_says() {
        let (client, other) = (Client::new(Limits::default()), Client::new(Limits::default()));
        assert!((0..MOST_TASKS).all(|_| client.begin_task()));
        assert!(!client.begin_task());
        assert!(other.begin_task());
    }

    #[test]
    fn no_more_calls_and_runs_at_once_than_the_limits_say() {
        let client = Client::new(Limits { calls: 1, runs: 1, ..Limits::default() });
        let (call, run) = (client.begin_call().unwrap(), client.begin_run().unwrap());
        assert!(client.begin_call().is_err() && client.begin_run().is_err());
        drop((call, run));
        assert!(client.begin_call().is_ok() && client.begin_run().is_ok());
        client.ran_for(Limits::default().run_time);
        assert!(client.begin_run().is_err(), "its time is used up");
    }
}
