//! Tasks that end with what they serve: with a connection from inside, also what was begun for it.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::rt::Executor;
use tokio::task::JoinSet;

/// All tasks of one connection. Dropping it ends them.
#[derive(Debug)]
pub(crate) struct Tasks(Spawner);

/// Begins tasks. After the end of its [`Tasks`] it begins none.
#[derive(Debug, Clone)]
pub(crate) struct Spawner(Arc<Mutex<Option<JoinSet<()>>>>);

impl Tasks {
    pub(crate) fn new() -> Self {
        Self(Spawner(Arc::new(Mutex::new(Some(JoinSet::new())))))
    }

    pub(crate) fn spawner(&self) -> Spawner {
        self.0.clone()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        // Taken out first: a task that is dropped may drop what spawns.
        let tasks = self.0.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(tasks);
    }
}

impl Spawner {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tasks) = tasks.as_mut() {
            // Those that have ended, so that the set does not grow.
            while tasks.try_join_next().is_some() {}
            drop(tasks.spawn(task));
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Spawner {
    fn execute(&self, future: F) {
        self.spawn(future);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn tasks_end_with_what_they_serve_and_none_is_begun_after_it() {
        let (tasks, alive) = (Tasks::new(), Arc::new(()));
        let spawner = tasks.spawner();
        let held = |spawner: &Spawner| {
            let (alive, again) = (Arc::clone(&alive), spawner.clone());
            spawner.spawn(async move {
                tokio::time::sleep(Duration::from_secs(3600)).await;
                drop((alive, again));
            });
        };
        held(&spawner);
        tokio::task::yield_now().await;
        assert_eq!(Arc::strong_count(&alive), 2, "the probe proves nothing");
        drop(tasks);
        held(&spawner);
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if Arc::strong_count(&alive) == 1 {
                return;
            }
        }
        panic!("a task goes on");
    }
}
