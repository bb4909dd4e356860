//! Containers that stand before anybody needs them: made, with a guest that waits and was told nothing of a run.
//!
//! Each is used once and by one run, and belongs to one engine of one caller. Whoever takes one has its guest prove the wall then, as in
//! one that was just made, and raise it where that was not done ahead. When the pool is dropped or drained, all of them end.

use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::{Notify, Semaphore};
use tokio::task::AbortHandle;

use super::room::Room;
use crate::backend::StartError;

/// One that nobody took for this long is ended, and not replaced before the next run.
pub(super) const IDLE: Duration = Duration::from_secs(10 * 60);
/// So many are made at once: the engine has the runs themselves to serve.
const AT_ONCE: usize = 2;
/// What a run took is made up for this long after its wall stands: most runs are over by then, and do not have to share the
/// processors with it.
const AFTER: Duration = Duration::from_millis(100);

/// All that a container and its guest depend on. Two with the same key are as good as each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    /// The hash of all of it but the room for the workspace.
    pub(super) hash: [u8; 32],
    pub(super) room: Room,
}

/// How containers of one key are made.
pub(super) trait Recipe: fmt::Debug + Send + Sync + 'static {
    /// One that waits.
    type Made: fmt::Debug + Send + 'static;
    /// What it depends on.
    fn key(&self) -> Key;
    /// Makes one.
    fn make(&self) -> impl Future<Output = Result<Self::Made, StartError>> + Send;
    /// Whether it can still be used.
    fn is_alive(made: &mut Self::Made) -> impl Future<Output = bool> + Send;
    /// Ends it, and waits until it is gone.
    fn end(made: Self::Made) -> impl Future<Output = ()> + Send;
}

/// Those that wait. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Pool<R: Recipe>(Arc<Shared<R>>);

#[derive(Debug)]
struct Shared<R: Recipe> {
    size: usize,
    idle: Duration,
    shelf: Mutex<Shelf<R>>,
    at_once: Semaphore,
    /// Tells that one was made, or was not, or was ended.
    moved: Notify,
    /// Tells those that are to be made a while from now that they may not be wanted any more.
    exchanged: Notify,
}

#[derive(Debug)]
struct Shelf<R: Recipe> {
    /// What is to wait here; nothing when nothing is, or nobody knows yet what.
    recipe: Option<Arc<R>>,
    /// Whether anything is to wait here at all.
    is_open: bool,
    /// The kind that the last run asked for and did not find, if that was another one.
    missed: Option<[u8; 32]>,
    ready: VecDeque<Waiting<R::Made>>,
    making: usize,
    /// Those that are being ended, which nobody else waits for.
    ending: usize,
    next_number: u64,
    /// Why the last one that was not made was not.
    failed: Option<StartError>,
}

#[derive(Debug)]
struct Waiting<M> {
    number: u64,
    made: M,
    /// Ends it when nobody takes it.
    timer: AbortHandle,
}

impl<M> Waiting<M> {
    fn taken(self) -> M {
        self.timer.abort();
        self.made
    }
}

/// What was found where some wait.
#[derive(Debug)]
pub(super) struct Taken<M> {
    /// One that can be used.
    pub(super) made: Option<M>,
    /// How many had ended while they waited, or did not fit.
    pub(super) dead: usize,
}

/// Makes up for what was taken when it is dropped: a while after the run that took it has its wall.
#[derive(Debug)]
pub(super) struct Refill<'a, R: Recipe>(&'a Pool<R>);

impl<R: Recipe> Drop for Refill<'_, R> {
    fn drop(&mut self) {
        self.0.0.refill(AFTER);
    }
}

impl<R: Recipe> Pool<R> {
    /// Room for `size`, each for at most `idle`. Nothing is made before [`Pool::fill`].
    pub(super) fn new(size: usize, idle: Duration) -> Self {
        let shelf = Shelf {
            recipe: None,
            is_open: false,
            missed: None,
            ready: VecDeque::new(),
            making: 0,
            ending: 0,
            next_number: 0,
            failed: None,
        };
        Self(Arc::new(Shared {
            size,
            idle,
            shelf: Mutex::new(shelf),
            at_once: Semaphore::new(AT_ONCE),
            moved: Notify::new(),
            exchanged: Notify::new(),
        }))
    }

    /// Whether there is ever one in it.
    pub(super) fn is_used(&self) -> bool {
        self.0.size > 0
    }

    /// From now on some are to wait, even if it cannot be said yet of which kind: that of the next run then.
    pub(super) fn open(&self) {
        self.0.shelf().is_open = true;
    }

    /// From now on, keeps as many as there is room for of what `recipe` makes. Waits until they are there, and says how many
    /// wait.
    pub(super) async fn fill(&self, recipe: Arc<R>) -> Result<usize, StartError> {
        let others = {
            let mut shelf = self.0.shelf();
            shelf.failed = None;
            shelf.is_open = true;
            let is_same = shelf.recipe.as_ref().is_some_and(|current| current.key() == recipe.key());
            if is_same { Vec::new() } else { shelf.exchange(Some(recipe)) }
        };
        self.0.exchanged.notify_waiters();
        end_all::<R>(others).await;
        self.0.refill(Duration::ZERO);
        self.0.until(|shelf| shelf.making == 0).await;
        let mut shelf = self.0.shelf();
        shelf.failed.take().map_or(Ok(shelf.ready.len()), Err)
    }

    /// One with the key of `recipe`, when one waits that is still alive and `fits`. Those that are not, or do not, are thrown away,
    /// and counted.
    ///
    /// Where only the room for the workspace is another, those that wait are replaced: the next run finds what fits.
    pub(super) async fn take(&self, recipe: &Arc<R>, fits: impl Fn(&R::Made) -> bool) -> Taken<R::Made> {
        let mut dead = 0;
        loop {
            let (found, others) = self.0.shelf().next(recipe);
            if !others.is_empty() {
                self.0.exchanged.notify_waiters();
                self.0.end_later(others);
            }
            let Some(mut made) = found else { return Taken { made: None, dead } };
            if fits(&made) && R::is_alive(&mut made).await {
                return Taken { made: Some(made), dead };
            }
            dead += 1;
            self.0.end_later(vec![made]);
        }
    }

    /// Takes note that a run with this key found none. Says whether its kind should be the one that waits: nobody knew a kind before, or
    /// two runs in a row asked for this one, which is what the next one will do.
    pub(super) fn missed(&self, key: Key) -> bool {
        let mut shelf = self.0.shelf();
        match &shelf.recipe {
            _ if !shelf.is_open => false,
            None => true,
            // It is what waits, but was taken or has ended.
            Some(current) if current.key().hash == key.hash => false,
            Some(_) => shelf.missed.replace(key.hash) == Some(key.hash),
        }
    }

    /// From now on, what `recipe` makes waits here, and what waited is ended; nothing where none is to wait. The first are made when the
    /// run that needed them has its wall.
    pub(super) fn follow(&self, recipe: Arc<R>) {
        let others = {
            let mut shelf = self.0.shelf();
            // Somebody else may have said so at the same time.
            if !shelf.is_open || shelf.wants(&recipe) {
                return;
            }
            shelf.exchange(Some(recipe))
        };
        self.0.exchanged.notify_waiters();
        if !others.is_empty() {
            self.0.end_later(others);
        }
    }

    /// To be held until the run that takes one has its wall.
    pub(super) fn refill_later(&self) -> Refill<'_, R> {
        Refill(self)
    }

    /// Ends all of them, and those that are being made: when it is done, nothing of them is there, and nothing is on its way.
    /// Until [`Pool::open`] or [`Pool::fill`] no more are made.
    pub(super) async fn drain(&self) {
        let all = {
            let mut shelf = self.0.shelf();
            shelf.is_open = false;
            shelf.exchange(None)
        };
        self.0.exchanged.notify_waiters();
        end_all::<R>(all).await;
        self.0.until(|shelf| shelf.making == 0 && shelf.ending == 0).await;
    }
}

impl<R: Recipe> Drop for Pool<R> {
    fn drop(&mut self) {
        // Each ends when it is dropped; one that is being made finds that nobody wants it.
        let mut shelf = self.0.shelf();
        shelf.is_open = false;
        let all = shelf.exchange(None);
        drop(shelf);
        drop(all);
        self.0.exchanged.notify_waiters();
    }
}

impl<R: Recipe> Shelf<R> {
    /// Has another recipe from now on, and gives away what waits.
    fn exchange(&mut self, recipe: Option<Arc<R>>) -> Vec<R::Made> {
        self.recipe = recipe;
        self.missed = None;
        self.ready.drain(..).map(Waiting::taken).collect()
    }

    /// One for `recipe`, and those that are to be ended.
    fn next(&mut self, recipe: &Arc<R>) -> (Option<R::Made>, Vec<R::Made>) {
        let Some(current) = self.recipe.as_ref().map(|current| current.key()) else { return (None, Vec::new()) };
        let wanted = recipe.key();
        if current == wanted {
            self.missed = None;
            (self.ready.pop_front().map(Waiting::taken), Vec::new())
        } else if current.hash == wanted.hash {
            (None, self.exchange(Some(Arc::clone(recipe))))
        } else {
            (None, Vec::new())
        }
    }

    fn wants(&self, recipe: &Arc<R>) -> bool {
        self.recipe.as_ref().is_some_and(|current| current.key() == recipe.key())
    }
}

impl<R: Recipe> Shared<R> {
    fn shelf(&self) -> MutexGuard<'_, Shelf<R>> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to make what is missing, a while from now.
    fn refill(self: &Arc<Self>, after: Duration) {
        // Without an event loop nothing is started that could need one.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut shelf = self.shelf();
        let Some(recipe) = shelf.recipe.clone() else { return };
        while shelf.ready.len() + shelf.making < self.size {
            shelf.making += 1;
            let making = Making(Arc::clone(self));
            runtime.spawn(make_one(making, Arc::clone(&recipe), after));
        }
    }

    /// Waits until so much was made and ended.
    async fn until(&self, holds: impl Fn(&Shelf<R>) -> bool) {
        loop {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if holds(&self.shelf()) {
                return;
            }
            moved.await;
        }
    }

    /// Ends these while somebody else goes on. Who drains waits for it.
    fn end_later(self: &Arc<Self>, all: Vec<R::Made>) {
        self.shelf().ending += 1;
        let ending = Ending(Arc::clone(self));
        tokio::spawn(async move {
            end_all::<R>(all).await;
            drop(ending);
        });
    }

    /// Waits so long, or until `recipe` is not wanted any more.
    async fn pause(&self, recipe: &Arc<R>, after: Duration) {
        let waits = async {
            loop {
                let exchanged = self.exchanged.notified();
                tokio::pin!(exchanged);
                exchanged.as_mut().enable();
                if !self.shelf().wants(recipe) {
                    return;
                }
                exchanged.await;
            }
        };
        tokio::time::timeout(after, waits).await.ok();
    }

    /// Puts one where it waits; gives it back when nobody wants it any more.
    fn put(self: &Arc<Self>, recipe: &Arc<R>, made: R::Made) -> Option<R::Made> {
        let mut shelf = self.shelf();
        if !shelf.wants(recipe) {
            return Some(made);
        }
        let number = shelf.next_number;
        shelf.next_number += 1;
        let timer = tokio::spawn(end_unused(Arc::downgrade(self), number, self.idle)).abort_handle();
        shelf.ready.push_back(Waiting { number, made, timer });
        None
    }
}

/// One that is being made.
#[derive(Debug)]
struct Making<R: Recipe>(Arc<Shared<R>>);

impl<R: Recipe> Drop for Making<R> {
    fn drop(&mut self) {
        self.0.shelf().making -= 1;
        self.0.moved.notify_waiters();
    }
}

/// Some that are being ended.
#[derive(Debug)]
struct Ending<R: Recipe>(Arc<Shared<R>>);

impl<R: Recipe> Drop for Ending<R> {
    fn drop(&mut self) {
        self.0.shelf().ending -= 1;
        self.0.moved.notify_waiters();
    }
}

async fn make_one<R: Recipe>(making: Making<R>, recipe: Arc<R>, after: Duration) {
    let shared = Arc::clone(&making.0);
    shared.pause(&recipe, after).await;
    // It is never closed.
    let Ok(permit) = shared.at_once.acquire().await else { return };
    if shared.shelf().wants(&recipe) {
        match recipe.make().await {
            Ok(made) => {
                if let Some(unwanted) = shared.put(&recipe, made) {
                    R::end(unwanted).await;
                }
            }
            // Nobody waits for it, and who does is told. The next run that finds none has it tried again.
            Err(error) => shared.shelf().failed = Some(error),
        }
    }
    drop(permit);
    drop(making);
    if !shared.shelf().wants(&recipe) {
        shared.refill(Duration::ZERO);
    }
}

/// Ends the one with this number, unless somebody took it meanwhile.
async fn end_unused<R: Recipe>(shared: Weak<Shared<R>>, number: u64, idle: Duration) {
    tokio::time::sleep(idle).await;
    let Some(shared) = shared.upgrade() else { return };
    let unused = {
        let mut shelf = shared.shelf();
        let at = shelf.ready.iter().position(|waiting| waiting.number == number);
        at.and_then(|at| shelf.ready.remove(at))
    };
    if let Some(waiting) = unused {
        shared.end_later(vec![waiting.made]);
    }
}

async fn end_all<R: Recipe>(all: Vec<R::Made>) {
    join_all(all.into_iter().map(R::end)).await;
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
