//! For agents' own loops: notices that calls go in circles, and says so in words that a model can act on.
//!
//! Pure: no clock, no I/O. The caller tells each call and how it ended; a call that was made again with other words is another call.

use std::collections::VecDeque;

use serde::Serialize;

/// When a loop is a loop. Zero switches a check off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopLimits {
    /// The same call fails so often, whatever happens in between.
    pub same_failing: u32,
    /// Two calls take turns so often, with the same results.
    pub alternating: u32,
    /// So many calls in a row bring nothing that was not seen before.
    pub without_progress: u32,
    /// So many calls fail in a row, whichever they are.
    pub failing_in_a_row: u32,
    /// So many calls may fail in all: the budget for trying again.
    pub retries: u32,
}

impl Default for LoopLimits {
    fn default() -> Self {
        Self { same_failing: 3, alternating: 3, without_progress: 8, failing_in_a_row: 10, retries: 30 }
    }
}

/// How a call ended. The result is whatever shows whether something changed: output, exit code, refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended<'a> {
    /// It did what it should.
    Well(&'a [u8]),
    /// It did not, or was refused.
    Badly(&'a [u8]),
}

/// In which way it goes in circles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Circle {
    /// One call fails again and again.
    SameFailing,
    /// Two calls take turns.
    Alternating,
    /// Nothing new comes out.
    WithoutProgress,
    /// Everything fails.
    FailingInARow,
    /// The budget for trying again is used up. Nothing else should be tried.
    OutOfRetries,
}

/// What was noticed, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stuck {
    /// In which way.
    pub circle: Circle,
    /// How often.
    pub times: u32,
    /// For a model.
    pub advice: String,
}

/// Calls that are remembered.
const REMEMBERED: usize = 256;

type Mark = [u8; 16];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    call: Mark,
    result: Mark,
    failed: bool,
}

/// Watches the calls of one task.
#[derive(Debug, Clone)]
pub struct LoopGuard {
    limits: LoopLimits,
    seen: VecDeque<Seen>,
    stale: u32,
    failing: u32,
    failed: u32,
}

impl LoopGuard {
    /// A guard that has seen nothing.
    pub fn new(limits: LoopLimits) -> Self {
        Self { limits, seen: VecDeque::new(), stale: 0, failing: 0, failed: 0 }
    }

    /// How many calls may still fail; nothing when that is not limited.
    pub fn retries_left(&self) -> Option<u32> {
        (self.limits.retries > 0).then(|| self.limits.retries.saturating_sub(self.failed))
    }

    /// Takes note of a call. The graver circle is told when there are several.
    pub fn note(&mut self, call: &[u8], ended: Ended<'_>) -> Option<Stuck> {
        let (result, failed) = match ended {
            Ended::Well(result) => (result, false),
            Ended::Badly(result) => (result, true),
        };
        let now = Seen { call: mark(call), result: mark(result), failed };
        let is_known = self.seen.contains(&now);
        self.stale = if is_known { self.stale.saturating_add(1) } else { 0 };
        self.failing = if failed { self.failing.saturating_add(1) } else { 0 };
        self.failed = self.failed.saturating_add(u32::from(failed));
        if self.seen.len() == REMEMBERED {
            self.seen.pop_front();
        }
        self.seen.push_back(now);
        self.judge(now)
    }

    fn judge(&self, now: Seen) -> Option<Stuck> {
        let LoopLimits { same_failing, alternating, without_progress, failing_in_a_row, retries } = self.limits;
        let same = count(self.seen.iter().filter(|seen| **seen == now && seen.failed));
        let turns = self.turns();
        let checks = [
            (Circle::OutOfRetries, self.failed, retries, now.failed),
            (Circle::SameFailing, same, same_failing, now.failed),
            (Circle::Alternating, turns, alternating, true),
            (Circle::FailingInARow, self.failing, failing_in_a_row, now.failed),
            (Circle::WithoutProgress, self.stale, without_progress, true),
        ];
        let (circle, times, _, _) =
            checks.into_iter().find(|(_, times, limit, applies)| *applies && *limit > 0 && times >= limit)?;
        Some(Stuck { circle, times, advice: advice(circle, times) })
    }

    /// How often the last two calls took turns, each with the same result as before.
    fn turns(&self) -> u32 {
        let mut backwards = self.seen.iter().rev();
        let (Some(last), Some(other)) = (backwards.next(), backwards.next()) else { return 0 };
        if last.call == other.call {
            return 0;
        }
        let expected = [last, other].into_iter().cycle();
        let length = self.seen.iter().rev().zip(expected).take_while(|(seen, wanted)| seen == wanted).count();
        u32::try_from(length / 2).unwrap_or(u32::MAX)
    }
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self::new(LoopLimits::default())
    }
}

fn count<'s>(seen: impl Iterator<Item = &'s Seen>) -> u32 {
    u32::try_from(seen.count()).unwrap_or(u32::MAX)
}

fn mark(bytes: &[u8]) -> Mark {
    let mut mark = Mark::default();
    mark.iter_mut().zip(blake3::hash(bytes).as_bytes()).for_each(|(to, from)| *to = *from);
    mark
}

fn advice(circle: Circle, times: u32) -> String {
    match circle {
        Circle::SameFailing => format!(
            "The same call has failed {times} times with the same result. It will fail again: read the result, change the cause, or take another way."
        ),
        Circle::Alternating => format!(
            "The same two calls have taken turns {times} times with the same results. Neither helps the other: stop, and think about what both assume."
        ),
        Circle::WithoutProgress => format!(
            "The last {times} calls brought nothing that was not known before. Use what you have, or look somewhere else."
        ),
        Circle::FailingInARow => format!(
            "{times} calls in a row have failed. Go back to the last thing that worked, and take a smaller step from there."
        ),
        Circle::OutOfRetries => format!(
            "{times} calls have failed, which is all that may. Stop, and tell the person you work for what you tried and what stands in the way."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn circle(guard: &mut LoopGuard, call: &str, ended: Ended<'_>) -> Option<Circle> {
        guard.note(call.as_bytes(), ended).map(|stuck| stuck.circle)
    }

    #[test]
    fn the_same_failing_call_is_noticed_also_with_others_in_between() {
        let mut guard = LoopGuard::default();
        assert_eq!(circle(&mut guard, "make", Ended::Badly(b"2")), None);
        assert_eq!(circle(&mut guard, "cat Makefile", Ended::Well(b"x")), None);
        assert_eq!(circle(&mut guard, "make", Ended::Badly(b"2")), None);
        assert_eq!(circle(&mut guard, "ls", Ended::Well(b"y")), None);
        assert_eq!(circle(&mut guard, "make", Ended::Badly(b"2")), Some(Circle::SameFailing));
        let stuck = guard.note(b"make", Ended::Badly(b"2")).unwrap();
        assert!(stuck.advice.contains("failed 4 times"), "{}", stuck.advice);
    }

    #[test]
    fn a_call_that_fails_in_another_way_each_time_makes_progress() {
        let mut guard = LoopGuard::default();
        for result in [b"1", b"2", b"3", b"4"] {
            assert_eq!(circle(&mut guard, "make", Ended::Badly(result)), None);
        }
    }

    #[test]
    fn two_calls_that_take_turns_are_noticed_and_a_changed_result_breaks_the_turn() {
        let mut guard = LoopGuard::default();
        let mut last = None;
        for _ in 0..3 {
            circle(&mut guard, "edit a", Ended::Well(b"done"));
            last = circle(&mut guard, "test", Ended::Well(b"1 failed"));
        }
        assert_eq!(last, Some(Circle::Alternating));
        let mut guard = LoopGuard::default();
        for round in 0..3u8 {
            circle(&mut guard, "edit a", Ended::Well(b"done"));
            assert_eq!(circle(&mut guard, "test", Ended::Well(&[round])), None);
        }
    }

    #[test]
    fn calls_that_bring_nothing_new_are_noticed_and_something_new_begins_again() {
        let limits = LoopLimits { alternating: 0, without_progress: 3, ..LoopLimits::default() };
        let mut guard = LoopGuard::new(limits);
        for call in ["a", "b", "c"] {
            assert_eq!(circle(&mut guard, call, Ended::Well(b"same")), None);
        }
        assert_eq!(circle(&mut guard, "a", Ended::Well(b"same")), None);
        assert_eq!(circle(&mut guard, "c", Ended::Well(b"same")), None);
        assert_eq!(circle(&mut guard, "b", Ended::Well(b"same")), Some(Circle::WithoutProgress));
        assert_eq!(circle(&mut guard, "b", Ended::Well(b"new")), None);
    }

    #[test]
    fn the_budget_for_trying_again_ends_and_a_limit_of_zero_is_none() {
        let mut guard = LoopGuard::new(LoopLimits { retries: 2, ..LoopLimits::default() });
        assert_eq!(guard.retries_left(), Some(2));
        assert_eq!(circle(&mut guard, "a", Ended::Badly(b"1")), None);
        assert_eq!(circle(&mut guard, "b", Ended::Badly(b"2")), Some(Circle::OutOfRetries));
        assert_eq!(guard.retries_left(), Some(0));
        assert_eq!(circle(&mut guard, "c", Ended::Well(b"3")), None, "what works is never held back");
        let none = LoopLimits { same_failing: 0, alternating: 0, without_progress: 0, failing_in_a_row: 0, retries: 0 };
        let mut guard = LoopGuard::new(none);
        assert_eq!(guard.retries_left(), None);
        assert!((0..1000).all(|_| guard.note(b"a", Ended::Badly(b"b")).is_none()));
    }

    proptest! {
        #[test]
        fn new_results_that_are_good_are_never_a_circle(results in proptest::collection::hash_set(any::<u64>(), 0..200)) {
            let mut guard = LoopGuard::default();
            for result in results {
                prop_assert!(guard.note(b"call", Ended::Well(&result.to_le_bytes())).is_none());
            }
        }

        #[test]
        fn whatever_repeats_for_ever_is_noticed(calls in proptest::collection::vec((0u8..4, 0u8..3, any::<bool>()), 1..4)) {
            let mut guard = LoopGuard::default();
            let noticed = (0..100).flat_map(|_| calls.clone()).any(|(call, result, failed)| {
                let result = [result];
                let ended = if failed { Ended::Badly(&result) } else { Ended::Well(&result) };
                guard.note(&[call], ended).is_some()
            });
            prop_assert!(noticed);
        }
    }
}
