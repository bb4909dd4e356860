//! A thread with a runtime of its own, for as long as its owner wants.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};

use tokio::runtime::{self, Runtime};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// One task, with all that it begins, in a thread of its own. Dropping it ends them, without waiting for it: whoever has one raises no
/// wall beside it, or ended it before.
#[derive(Debug)]
pub(super) struct Thread {
    task: AbortHandle,
    /// Closed when nothing of the task is left.
    ended: watch::Receiver<()>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Thread {
    /// Begins what `make` makes in the thread's runtime. Whatever can fail has failed before the thread is there.
    pub(super) fn begin<F>(make: impl FnOnce() -> io::Result<F>) -> io::Result<Self>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let runtime = Ends(Some(runtime::Builder::new_current_thread().enable_all().build()?));
        let serving = {
            let _here = runtime.get()?.enter();
            tokio::spawn(make()?)
        };
        let task = serving.abort_handle();
        let (alive, ended) = watch::channel(());
        let thread = Builder::new().name("ringfence-egress".to_owned()).spawn(move || {
            // How it ended is of no interest: what it did was told while it went on.
            drop(runtime.get().map(|runtime| runtime.block_on(serving)));
            drop(runtime);
            drop(alive);
        })?;
        Ok(Self { task, ended, thread: Mutex::new(Some(thread)) })
    }

    /// Ends the task soon.
    pub(super) fn stop(&self) {
        self.task.abort();
    }

    /// Ends the task, and returns when nothing of it is left.
    pub(super) async fn end(&self) {
        self.stop();
        // It sends nothing: that its end is dropped is the message.
        let mut ended = self.ended.clone();
        while ended.changed().await.is_ok() {}
        // All that is left of it is its own end.
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(thread.map(JoinHandle::join));
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Ends a runtime with all that was begun in it, wherever it is dropped. A file that is read meanwhile may be on a disk that does not
/// answer: nobody waits for that.
struct Ends(Option<Runtime>);

impl Ends {
    fn get(&self) -> io::Result<&Runtime> {
        self.0.as_ref().ok_or_else(|| io::ErrorKind::BrokenPipe.into())
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    fn threads() -> usize {
        std::fs::read_dir("/proc/self/task").unwrap().count()
    }

    #[tokio::test]
    async fn what_it_began_is_gone_when_it_has_ended_and_the_thread_too() {
        let (alive, before) = (Arc::new(()), threads());
        let held = Arc::clone(&alive);
        let thread = Thread::begin(|| {
            Ok(async move {
                let also = Arc::clone(&held);
                let begun = tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_secs(3600)).await;
                    drop(also);
                });
                drop(begun.await);
                drop(held);
            })
        })
        .unwrap();
        while Arc::strong_count(&alive) < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(threads(), before + 1, "the probe proves nothing");
        thread.end().await;
        assert_eq!(Arc::strong_count(&alive), 1);
        assert_eq!(threads(), before);
        thread.end().await;
    }

    #[tokio::test]
    async fn one_that_is_dropped_ends_too() {
        let (alive, before) = (Arc::new(()), threads());
        let held = Arc::clone(&alive);
        drop(
            Thread::begin(|| {
                Ok(async move {
                    std::future::pending::<()>().await;
                    drop(held);
                })
            })
            .unwrap(),
        );
        for _ in 0..1000 {
            if Arc::strong_count(&alive) == 1 && threads() == before {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it goes on");
    }

    #[tokio::test]
    async fn what_cannot_be_begun_leaves_no_thread() {
        let before = threads();
        let failed = Thread::begin(|| Err::<std::future::Pending<()>, _>(io::ErrorKind::AddrInUse.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        assert_eq!(threads(), before);
    }

    #[test]
    fn the_owner_is_not_held_up_by_what_keeps_it_busy() {
        let owner = runtime::Builder::new_current_thread().enable_all().build().unwrap();
        owner.block_on(async {
            let (began, begins) = oneshot::channel();
            let thread = Thread::begin(|| {
                Ok(async move {
                    began.send(()).unwrap();
                    std::thread::sleep(Duration::from_millis(500));
                })
            })
            .unwrap();
            begins.await.unwrap();
            let start = std::time::Instant::now();
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(start.elapsed() < Duration::from_millis(400), "{:?}", start.elapsed());
            thread.end().await;
        });
    }
}
