//! Containers that are being removed: a run's outcome does not wait for that, as nothing runs in them any more, but whoever ends
//! everything does.

use std::sync::Arc;

use tokio::sync::watch;

/// How many there are.
#[derive(Debug, Clone)]
pub(super) struct Leaving(Arc<watch::Sender<usize>>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct LeavingOne(Leaving);

impl Default for Leaving {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }
}

impl Leaving {
    /// One more.
    pub(super) fn one(&self) -> LeavingOne {
        self.0.send_modify(|count| *count += 1);
        LeavingOne(self.clone())
    }

    /// Waits until there is none.
    pub(super) async fn all(&self) {
        // It is closed only with the last of us.
        self.0.subscribe().wait_for(|count| *count == 0).await.ok();
    }
}

impl Drop for LeavingOne {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count = count.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn all_are_waited_for_and_nobody_where_there_is_none() {
        let leaving = Leaving::default();
        leaving.all().await;
        let (one, two) = (leaving.one(), leaving.one());
        drop(one);
        let still = tokio::time::timeout(Duration::from_secs(3600), leaving.all()).await;
        assert!(still.is_err(), "one is left");
        drop(two);
        leaving.all().await;
    }
}
