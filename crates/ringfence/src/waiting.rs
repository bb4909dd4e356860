//! Work that waits for the disk or the kernel, in an event loop.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use tokio::runtime::{Handle, RuntimeFlavor};

/// Whether there are other threads to go on meanwhile. A process with one thread stays one, which is what lets it raise walls
/// itself.
pub(crate) fn has_others() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

/// Does something that waits for the disk on this thread: a process with one thread stays one, which is what lets it raise
/// walls itself. Where there are more, the others go on meanwhile.
pub(crate) fn waiting<T>(act: impl FnOnce() -> T) -> T {
    if has_others() { tokio::task::block_in_place(act) } else { act() }
}

/// Likewise, by another thread as soon as this is first waited for.
pub(crate) async fn beside<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    if !has_others() {
        return act();
    }
    match tokio::task::spawn_blocking(act).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Nobody ends it, and the event loop that it belongs to does not go on without us.
            Err(_) => std::future::pending().await,
        },
    }
}

/// Begins something, and lets whoever has a part in it do so before this thread is kept busy: a question is on its way then.
pub(crate) async fn begun<T>(mut begins: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Poll<T> {
    let first = poll_fn(|cx| Poll::Ready(begins.as_mut().poll(cx))).await;
    if first.is_pending() {
        tokio::task::yield_now().await;
    }
    first
}

/// Does something that nobody waits for: by another thread where there is one.
pub(crate) fn afterwards(act: impl FnOnce() + Send + 'static) {
    if has_others() {
        drop(tokio::task::spawn_blocking(act));
    } else {
        act();
    }
}

/// Something to do when nobody needs the processors any more, in a process that may have threads.
pub(crate) struct Later(Box<dyn FnOnce() + Send + Sync>);

impl Later {
    pub(crate) fn new(act: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Box::new(act))
    }

    /// Does it, by a thread of its own.
    pub(crate) fn begin(self) {
        drop(tokio::task::spawn_blocking(self.0));
    }
}

impl fmt::Debug for Later {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Later")
    }
}
