//! Decisions as they are made, for whoever follows a run. What a program does fills neither our memory nor the reader's screen: so
//! many are told at once, then so many in a second, and so many wait for a slow reader. How many were left out is told, too.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_egress::{Ending, Record, Usage};
use tokio::sync::{Notify, mpsc};

use super::Contact;
use crate::event::{Carried, Decided, Event, Traffic, Untold, Violation, Wanted};
use crate::run_id::RunId;

/// Decisions that are told at once, of those that let something through and of those that deny: a flood of one hides none of the other.
const AT_ONCE: u32 = 256;
/// As many more may be told in a second.
const PER_SECOND: u32 = 32;
/// Lines that wait for whoever reads them.
const MOST_WAITING: usize = 1024;
/// Of those, so many may tell of what was let through: while nobody reads, that leaves room for what was denied.
const MOST_ALLOWED: usize = 768;

/// What is to be told of one run.
#[derive(Debug, Default)]
pub(super) struct News {
    pile: Mutex<Pile>,
    more: Notify,
}

impl News {
    /// Something was decided.
    pub(super) fn decided(&self, number: u64, record: &Record) {
        self.change(|pile| pile.decided(number, record, Instant::now()));
    }

    /// Something was denied that was not denied before. Where there is no room for it, it is in the outcome alone.
    pub(super) fn violation(&self, violation: Violation) {
        self.change(|pile| {
            pile.add(Line::Violation(violation));
        });
    }

    /// Something that was let through has ended.
    pub(super) fn ended(&self, number: u64, record: &Record, usage: &Usage) {
        self.change(|pile| pile.ended(number, record, usage));
    }

    /// Waits until there may be something to take.
    pub(super) async fn more(&self) {
        self.more.notified().await;
    }

    /// Tells `events` all that waits; nothing when nobody listens.
    pub(super) async fn pass_on(&self, run_id: &RunId, events: &mpsc::Sender<Event>) -> Option<()> {
        while self.has_some() {
            // The place first: what is taken out is surely told.
            let place = events.reserve().await.ok()?;
            if let Some(event) = self.take(run_id) {
                place.send(event);
            }
        }
        Some(())
    }

    fn has_some(&self) -> bool {
        !self.pile().waiting.is_empty()
    }

    /// The next thing to tell. What was left out is told with what comes after it, or else it would be a line each.
    fn take(&self, run_id: &RunId) -> Option<Event> {
        Some(match self.pile().waiting.pop_front()? {
            Line::Violation(violation) => Event::Violation(violation),
            Line::Traffic(traffic) => Event::Traffic { run_id: run_id.clone(), traffic },
        })
    }

    /// All that waits, and how much was left out.
    pub(super) fn take_rest(&self, run_id: &RunId) -> Vec<Event> {
        let mut rest: Vec<Event> = std::iter::from_fn(|| self.take(run_id)).take(MOST_WAITING).collect();
        rest.extend(self.take_untold(run_id));
        rest
    }

    /// What was left out since, when nothing comes after it.
    fn take_untold(&self, run_id: &RunId) -> Option<Event> {
        let untold = std::mem::take(&mut self.pile().untold);
        let traffic = Traffic::Untold(untold);
        (untold != Untold::default()).then(|| Event::Traffic { run_id: run_id.clone(), traffic })
    }

    fn change(&self, act: impl FnOnce(&mut Pile)) {
        let mut pile = self.pile();
        let before = pile.waiting.len();
        act(&mut pile);
        // What is only counted wakes nobody.
        if pile.waiting.len() > before {
            self.more.notify_one();
        }
    }

    fn pile(&self) -> std::sync::MutexGuard<'_, Pile> {
        self.pile.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
enum Line {
    Traffic(Traffic),
    Violation(Violation),
}

impl Line {
    fn is_of_what_was_allowed(&self) -> bool {
        match self {
            Self::Traffic(Traffic::Decided(decided)) => decided.allowed,
            Self::Traffic(Traffic::Carried(_)) => true,
            Self::Traffic(Traffic::Untold(_)) | Self::Violation(_) => false,
        }
    }
}

#[derive(Debug, Default)]
struct Pile {
    waiting: VecDeque<Line>,
    /// What was left out after the last of those that wait.
    untold: Untold,
    allowed: Pace,
    denied: Pace,
    /// What was told and has not ended.
    open: BTreeSet<u64>,
}

impl Pile {
    fn decided(&mut self, number: u64, record: &Record, now: Instant) {
        let allowed = record.denied.is_none();
        let pace = if allowed { &mut self.allowed } else { &mut self.denied };
        let told = pace.permits(now) && {
            let Contact { rule, reason, .. } = Contact::of(record);
            self.add(Line::Traffic(Traffic::Decided(Decided { wanted: wanted(number, record), allowed, rule, reason })))
        };
        match (told, allowed) {
            (true, true) => drop(self.open.insert(number)),
            (true, false) => {}
            (false, true) => self.untold.allowed += 1,
            (false, false) => self.untold.denied += 1,
        }
    }

    fn ended(&mut self, number: u64, record: &Record, usage: &Usage) {
        // The end of something that was not told says nothing to anybody.
        if !self.open.remove(&number) {
            return;
        }
        let carried = Carried {
            wanted: wanted(number, record),
            bytes_up: usage.bytes_up,
            bytes_down: usage.bytes_down,
            status: usage.status,
            latency_ms: usage.latency.map(milliseconds),
            took_ms: milliseconds(usage.took),
            ending: ending(usage.ending).to_owned(),
        };
        if !self.add(Line::Traffic(Traffic::Carried(carried))) {
            self.untold.carried += 1;
        }
    }

    /// Adds a line, after the count of what was left out before it; false when there is no room.
    fn add(&mut self, line: Line) -> bool {
        let left_out = self.untold != Untold::default();
        let most = if line.is_of_what_was_allowed() { MOST_ALLOWED } else { MOST_WAITING };
        if self.waiting.len() + usize::from(left_out) >= most {
            return false;
        }
        if left_out {
            self.waiting.push_back(Line::Traffic(Traffic::Untold(std::mem::take(&mut self.untold))));
        }
        self.waiting.push_back(line);
        true
    }
}

/// How much may be told.
#[derive(Debug)]
struct Pace {
    left: u32,
    since: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { left: AT_ONCE, since: None }
    }
}

impl Pace {
    fn permits(&mut self, now: Instant) -> bool {
        let waited = now.saturating_duration_since(*self.since.get_or_insert(now));
        let more = waited.as_millis().saturating_mul(u128::from(PER_SECOND)) / 1000;
        if more > 0 {
            self.left = u32::try_from(more).unwrap_or(AT_ONCE).saturating_add(self.left).min(AT_ONCE);
            self.since = Some(now);
        }
        let permits = self.left > 0;
        self.left = self.left.saturating_sub(1);
        permits
    }
}

fn wanted(number: u64, record: &Record) -> Wanted {
    let Contact { host, port, via, method, path, .. } = Contact::of(record);
    Wanted { number, host, port, via, method, path }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn ending(ending: Ending) -> &'static str {
    match ending {
        Ending::Complete => "complete",
        Ending::Broken => "broken",
        Ending::Idle => "idle",
        Ending::OverBudget => "overBudget",
        Ending::Cut => "cut",
    }
}

#[cfg(test)]
mod tests {
    use ringfence_egress::{Identity, Reason, Via};

    use super::*;

    fn record(path: &str, denied: Option<Reason>) -> Record {
        Record {
            identity: Identity::new("sandbox", "run"),
            via: Via::Forward,
            host: "a.test".to_owned(),
            port: 80,
            method: Some("GET".to_owned()),
            path: Some(path.to_owned()),
            denied,
            rule: "a.test".into(),
        }
    }

    fn usage() -> Usage {
        Usage {
            bytes_up: 1,
            bytes_down: 2,
            status: Some(200),
            address: None,
            through: None,
            latency: Some(Duration::from_millis(3)),
            took: Duration::from_millis(4),
            ending: Ending::Complete,
        }
    }

    /// All that is to be told: decisions, ends, violations, and what was left out.
    fn told(news: &News) -> (Vec<u64>, Vec<u64>, usize, Untold) {
        let (run, mut all) = (RunId::generate().unwrap(), (Vec::new(), Vec::new(), 0, Untold::default()));
        while let Some(event) = news.take(&run).or_else(|| news.take_untold(&run)) {
            match event {
                Event::Traffic { traffic: Traffic::Decided(decided), .. } => all.0.push(decided.wanted.number),
                Event::Traffic { traffic: Traffic::Carried(carried), .. } => all.1.push(carried.wanted.number),
                Event::Traffic { traffic: Traffic::Untold(untold), .. } => {
                    assert_ne!(untold, Untold::default());
                    all.3.allowed += untold.allowed;
                    all.3.denied += untold.denied;
                    all.3.carried += untold.carried;
                }
                Event::Violation(_) => all.2 += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(!news.has_some());
        all
    }

    #[test]
    fn a_flood_of_what_is_allowed_is_counted_and_hides_no_denial() {
        let news = News::default();
        let begin = Instant::now();
        let mut pile = news.pile();
        for number in 0..100_000 {
            pile.decided(number, &record("/", None), begin);
            pile.ended(number, &record("/", None), &usage());
        }
        pile.decided(100_000, &record("/x", Some(Reason::NotListed)), begin);
        assert!(pile.waiting.len() <= MOST_WAITING && pile.open.is_empty());
        drop(pile);
        let (decided, ended, _, untold) = told(&news);
        assert_eq!((decided.len(), ended.len()), (AT_ONCE as usize + 1, AT_ONCE as usize));
        assert_eq!(decided.last(), Some(&100_000));
        assert_eq!(untold, Untold { allowed: 100_000 - u64::from(AT_ONCE), ..Untold::default() });
    }

    #[test]
    fn who_reads_nothing_has_so_much_kept_and_hears_how_much_was_not() {
        let (news, begin) = (News::default(), Instant::now());
        for number in 0..3000 {
            // As slowly as it may be told.
            news.pile().decided(number, &record("/", None), begin + Duration::from_secs(number));
        }
        assert_eq!(news.pile().waiting.len(), MOST_ALLOWED);
        for number in 0..3000 {
            news.pile().ended(number, &record("/", None), &usage());
        }
        // There is still room for what was denied, and for no more than that.
        let room = MOST_WAITING - MOST_ALLOWED;
        for _ in 0..2 * room {
            news.violation(Violation { rule: "net.allowlist".to_owned(), message: String::new() });
        }
        assert_eq!(news.pile().waiting.len(), MOST_WAITING);
        let (decided, ended, violations, untold) = told(&news);
        // One line is the count of what was left out before them.
        assert_eq!((decided.len(), ended.len(), violations), (MOST_ALLOWED, 0, room - 1));
        let kept = MOST_ALLOWED as u64;
        assert_eq!(untold, Untold { allowed: 3000 - kept, denied: 0, carried: kept });
        // Who reads again is told again.
        news.decided(3000, &record("/", None));
        assert_eq!(told(&news).0, [3000]);
    }

    #[test]
    fn the_rest_is_all_that_waits_and_the_count_of_what_does_not() {
        let (news, run) = (News::default(), RunId::generate().unwrap());
        assert!(news.take_rest(&run).is_empty());
        let begin = Instant::now();
        for number in 0..u64::from(AT_ONCE) + 7 {
            news.pile().decided(number, &record("/", None), begin);
        }
        let rest = news.take_rest(&run);
        assert_eq!(rest.len(), AT_ONCE as usize + 1);
        let traffic = Traffic::Untold(Untold { allowed: 7, ..Untold::default() });
        assert_eq!(rest.last(), Some(&Event::Traffic { run_id: run.clone(), traffic }));
        assert!(news.take_rest(&run).is_empty() && !news.has_some());
    }

    #[test]
    fn what_was_left_out_is_told_where_it_was_and_the_pace_recovers() {
        let (news, begin) = (News::default(), Instant::now());
        let decide = |number: u64, at: Duration| news.pile().decided(number, &record("/", None), begin + at);
        (0..u64::from(AT_ONCE) + 5).for_each(|number| decide(number, Duration::ZERO));
        decide(1000, Duration::from_millis(20));
        decide(1001, Duration::from_secs(1));
        let run = RunId::generate().unwrap();
        let lines: Vec<Event> = std::iter::from_fn(|| news.take(&run)).collect();
        let [.., untold, last] = lines.as_slice() else { panic!("{lines:?}") };
        let traffic = Traffic::Untold(Untold { allowed: 6, ..Untold::default() });
        assert_eq!(untold, &Event::Traffic { run_id: run.clone(), traffic });
        assert!(matches!(last, Event::Traffic { traffic: Traffic::Decided(it), .. } if it.wanted.number == 1001));
        assert_eq!(lines.len(), AT_ONCE as usize + 2);
    }

    #[test]
    fn an_end_is_told_once_and_only_of_what_was_told() {
        let news = News::default();
        news.ended(1, &record("/of-another-run", None), &usage());
        news.decided(2, &record("/", None));
        news.ended(2, &record("/", None), &usage());
        news.ended(2, &record("/", None), &usage());
        assert_eq!(told(&news), (vec![2], vec![2], 0, Untold::default()));
    }
}
