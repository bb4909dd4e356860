//! How a walk through a folder of the host goes on: to its end, or for so long and with breaks.
//!
//! Whoever looks while programs run does it on the thread that keeps their time limits. So it works in slices, between
//! which the others have their turn, and gives up after a while.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// The length of a slice. A single call of the kernel may make it longer.
const SLICE: Duration = Duration::from_millis(1);
/// Names between two looks at the clock.
const NAMES: u32 = 256;

/// It took longer than it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLong;

/// How a walk goes on.
#[derive(Debug)]
pub(super) struct Pace(Option<Slices>);

#[derive(Debug)]
struct Slices {
    until: Instant,
    break_at: Instant,
    names: u32,
}

impl Pace {
    /// To its end, without a break.
    pub(super) fn to_the_end() -> Self {
        Self(None)
    }

    /// With breaks, until `limit` is over.
    pub(super) fn within(limit: Duration) -> Self {
        let now = Instant::now();
        Self(Some(Slices { until: now + limit, break_at: now + SLICE, names: 0 }))
    }

    /// Before the next folder.
    pub(super) async fn next_folder(&mut self) -> Result<(), TooLong> {
        let Some(slices) = &mut self.0 else { return Ok(()) };
        let now = Instant::now();
        if now >= slices.until {
            return Err(TooLong);
        }
        if now >= slices.break_at {
            tokio::task::yield_now().await;
            slices.break_at = Instant::now() + SLICE;
        }
        Ok(())
    }

    /// After a name.
    pub(super) async fn next_name(&mut self) -> Result<(), TooLong> {
        let Some(slices) = &mut self.0 else { return Ok(()) };
        slices.names += 1;
        if slices.names < NAMES {
            return Ok(());
        }
        slices.names = 0;
        self.next_folder().await
    }
}

/// Carries out a walk on this thread, where nobody else needs it.
pub(super) fn at_once<T>(walk: impl Future<Output = T>) -> T {
    let mut walk = pin!(walk);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        // All that it ever waits for is its turn.
        if let Poll::Ready(found) = walk.as_mut().poll(&mut context) {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[tokio::test]
    async fn a_walk_with_breaks_lets_others_work_meanwhile_and_one_without_does_not() {
        for (pace, expected) in [(Pace::within(Duration::from_secs(60)), true), (Pace::to_the_end(), false)] {
            let turns = AtomicU32::new(0);
            let walk = async {
                let (mut pace, begun) = (pace, Instant::now());
                while begun.elapsed() < 20 * SLICE {
                    pace.next_name().await.unwrap();
                }
            };
            let other = async {
                loop {
                    turns.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                biased;
                () = walk => {}
                () = other => {}
            }
            assert_eq!(turns.load(Ordering::Relaxed) > 5, expected);
        }
    }

    #[test]
    fn a_walk_ends_when_its_time_is_over_and_one_without_a_limit_does_not() {
        let walk = |mut pace: Pace| {
            at_once(async move {
                for _ in 0..NAMES {
                    pace.next_name().await?;
                }
                pace.next_folder().await
            })
        };
        assert_eq!(walk(Pace::within(Duration::ZERO)), Err(TooLong));
        assert_eq!(walk(Pace::within(Duration::from_secs(60))), Ok(()));
        assert_eq!(walk(Pace::to_the_end()), Ok(()));
    }
}
