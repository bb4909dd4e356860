//! How many runs are being started: what is done beside or ahead only gains something while processors have nothing else to do.

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use ringfence_linux::wall::Processors;

/// For so long a run counts. One that goes on is a program at work, or one that waits, and no start.
const YOUNG: Duration = Duration::from_secs(1);

/// The processors that we may use. To ask takes as long as several of a start's steps.
static PROCESSORS: LazyLock<usize> = LazyLock::new(|| available_parallelism().map_or(1, usize::from));

/// The runs of one backend that are under way, by when they began.
#[derive(Debug, Clone, Default)]
pub(super) struct Load(Arc<Mutex<Vec<Instant>>>);

/// A run that is under way, as long as this is held.
#[derive(Debug)]
pub(in crate::backend) struct AtWork {
    load: Load,
    since: Instant,
}

impl Load {
    /// One more.
    pub(super) fn begin(&self) -> AtWork {
        let since = Instant::now();
        self.runs().push(since);
        AtWork { load: self.clone(), since }
    }

    /// Whether any processor is likely to have nothing to do: each start keeps one busy.
    pub(super) fn processors(&self) -> Processors {
        let young = self.runs().iter().filter(|since| since.elapsed() < YOUNG).count();
        if young <= *PROCESSORS { Processors::Free } else { Processors::Busy }
    }

    fn runs(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        let mut runs = self.load.runs();
        // Of two that began at the same time, either.
        if let Some(place) = runs.iter().position(|since| *since == self.since) {
            runs.swap_remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_starts_than_processors_leave_none_free() {
        let load = Load::default();
        let mut runs: Vec<_> = (0..*PROCESSORS).map(|_| load.begin()).collect();
        assert_eq!(load.processors(), Processors::Free);
        runs.push(load.clone().begin());
        assert_eq!(load.processors(), Processors::Busy);
        runs.pop();
        assert_eq!(load.processors(), Processors::Free);
    }

    #[test]
    fn a_run_that_goes_on_keeps_no_other_from_being_helped() {
        let load = Load::default();
        let long_ago = Instant::now().checked_sub(YOUNG).unwrap();
        load.runs().extend(std::iter::repeat_n(long_ago, 1000));
        let young = load.begin();
        assert_eq!(load.processors(), Processors::Free);
        drop(young);
        assert_eq!(load.runs().len(), 1000);
    }
}
