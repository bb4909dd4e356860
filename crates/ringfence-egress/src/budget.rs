//! How much of the network one run may use. What is over is denied, also in the middle of a transfer.
//!
//! What a host has used is counted once, whichever rule let it: the limits of a rule are held against all of it, so that two
//! rules for one host do not add up to more than either says.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ringfence_policy::{NetBudget, Per, Rate};

/// Counts and amounts; what is `None` is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    /// HTTP requests; a tunnel that is not looked into is one.
    pub requests: Option<u64>,
    /// Tunnels and connections to a host.
    pub connections: Option<u64>,
    /// Bytes of bodies and tunnels, both directions together.
    pub bytes: Option<u64>,
    /// Requests in each second or minute, counted from the run's beginning.
    pub rate: Option<Rate>,
}

impl From<&NetBudget> for Budget {
    fn from(budget: &NetBudget) -> Self {
        Self {
            requests: budget.requests,
            connections: budget.connections,
            bytes: budget.bytes.map(ringfence_policy::Bytes::get),
            rate: budget.rate,
        }
    }
}

impl Budget {
    /// Whether something is limited.
    pub(crate) fn limits(&self) -> bool {
        *self != Self::default()
    }

    /// What keeps both.
    #[must_use]
    pub(crate) fn meet(&self, other: &Self) -> Self {
        fn both<T>(mine: Option<T>, theirs: Option<T>, lower: impl Fn(T, T) -> T) -> Option<T> {
            match (mine, theirs) {
                (Some(mine), Some(theirs)) => Some(lower(mine, theirs)),
                (one, None) | (None, one) => one,
            }
        }
        Self {
            requests: both(self.requests, other.requests, u64::min),
            connections: both(self.connections, other.connections, u64::min),
            bytes: both(self.bytes, other.bytes, u64::min),
            rate: both(self.rate, other.rate, Rate::meet),
        }
    }
}

/// The budgets of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budgets {
    /// For all hosts together.
    pub run: Budget,
    /// For each host by itself.
    pub host: Budget,
}

/// The most hosts that are counted. A wildcard must not make the table grow without end.
const MOST_HOSTS: usize = 16 * 1024;

/// What is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OverBudget {
    Requests(Whose, u64),
    Connections(Whose, u64),
    Bytes(Whose, u64),
    Rate(Whose, Rate),
    Hosts,
}

/// Whose budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Run,
    Host,
}

impl fmt::Display for Whose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Run => "this run",
            Self::Host => "this host",
        })
    }
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whose, limit, what) = match self {
            Self::Requests(whose, limit) => (whose, limit, "requests"),
            Self::Connections(whose, limit) => (whose, limit, "connections"),
            Self::Bytes(whose, limit) => (whose, limit, "bytes"),
            Self::Rate(whose, rate) => {
                let wait = match rate.per {
                    Per::Second => "a second",
                    Per::Minute => "a minute",
                };
                return write!(f, "there were {rate} requests for {whose}, which is the most; wait {wait}");
            }
            Self::Hosts => return write!(f, "the run has used {MOST_HOSTS} hosts, and more are not counted"),
        };
        write!(f, "the budget of {limit} {what} for {whose} is used up")
    }
}

#[derive(Debug, Default)]
struct Used {
    requests: AtomicU64,
    connections: AtomicU64,
    bytes: AtomicU64,
    lately: Mutex<Lately>,
}

/// Requests of the second and of the minute that goes on.
#[derive(Debug, Default)]
struct Lately {
    second: (u64, u32),
    minute: (u64, u32),
}

impl Lately {
    /// One more request, `seconds` after the beginning.
    fn one_more(&mut self, seconds: u64, rates: &[(Rate, Whose)]) -> Result<(), OverBudget> {
        for (window, now) in [(&mut self.second, seconds), (&mut self.minute, seconds / 60)] {
            if window.0 != now {
                *window = (now, 0);
            }
        }
        for (rate, whose) in rates {
            let so_far = match rate.per {
                Per::Second => self.second.1,
                Per::Minute => self.minute.1,
            };
            if so_far >= rate.count {
                return Err(OverBudget::Rate(*whose, *rate));
            }
        }
        self.second.1 = self.second.1.saturating_add(1);
        self.minute.1 = self.minute.1.saturating_add(1);
        Ok(())
    }
}

/// What one run has used.
#[derive(Debug)]
pub(crate) struct Account {
    budgets: Budgets,
    /// Whether what each host has used is counted.
    counts_hosts: bool,
    run: Used,
    hosts: Mutex<HashMap<String, Arc<Used>>>,
    began: Instant,
}

/// Counts the bytes of one request or tunnel.
#[derive(Debug)]
pub(crate) struct Meter {
    account: Arc<Account>,
    host: Arc<Used>,
    /// Of the rule that let it.
    rule: Budget,
    up: AtomicU64,
    down: AtomicU64,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Out of the sandbox.
    Up,
    /// Into it.
    Down,
}

impl Account {
    /// An account for a run whose rules have budgets, or not.
    pub(crate) fn new(budgets: Budgets, rules: RuleBudgets) -> Arc<Self> {
        let counts_hosts = budgets.host.limits() || rules == RuleBudgets::Some;
        let hosts = Mutex::new(HashMap::new());
        Arc::new(Self { budgets, counts_hosts, run: Used::default(), hosts, began: Instant::now() })
    }

    /// One more request to `host`, which a rule with the budget `rule` lets.
    pub(crate) fn request(self: &Arc<Self>, host: &str, rule: Budget) -> Result<Meter, OverBudget> {
        let meter = self.meter(host, rule)?;
        meter.check_bytes()?;
        meter.one_more_request()?;
        Ok(meter)
    }

    /// One more connection to `host`.
    pub(crate) fn connection(self: &Arc<Self>, host: &str, rule: Budget) -> Result<Meter, OverBudget> {
        let meter = self.meter(host, rule)?;
        meter.check_bytes()?;
        meter.one_more(|used| &used.connections, |budget| budget.connections, OverBudget::Connections)?;
        Ok(meter)
    }

    fn meter(self: &Arc<Self>, host: &str, rule: Budget) -> Result<Meter, OverBudget> {
        let host = if self.counts_hosts {
            let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            match hosts.get(host) {
                Some(used) => Arc::clone(used),
                None if hosts.len() >= MOST_HOSTS => return Err(OverBudget::Hosts),
                None => Arc::clone(hosts.entry(host.to_owned()).or_default()),
            }
        } else {
            Arc::default()
        };
        Ok(Meter { account: Arc::clone(self), host, rule, up: AtomicU64::new(0), down: AtomicU64::new(0) })
    }
}

/// Whether a rule has a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RuleBudgets {
    None,
    Some,
}

impl Meter {
    /// What is counted for the run and for the host, with the limit that holds for each.
    fn sides<T: Copy + Ord>(&self, limit: impl Fn(&Budget) -> Option<T>) -> [(&Used, Option<T>, Whose); 2] {
        let budgets = &self.account.budgets;
        let of_host = [limit(&budgets.host), limit(&self.rule)].into_iter().flatten().min();
        [(&self.account.run, limit(&budgets.run), Whose::Run), (&self.host, of_host, Whose::Host)]
    }

    fn one_more(
        &self,
        counter: impl Fn(&Used) -> &AtomicU64,
        limit: impl Fn(&Budget) -> Option<u64>,
        over: impl Fn(Whose, u64) -> OverBudget,
    ) -> Result<(), OverBudget> {
        for (used, limit, whose) in self.sides(limit) {
            let take = |count: u64| (limit.is_none_or(|limit| count < limit)).then_some(count.saturating_add(1));
            counter(used)
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                .map_err(|_| over(whose, limit.unwrap_or_default()))?;
        }
        Ok(())
    }

    /// One more request, or a tunnel that is not looked into.
    pub(crate) fn one_more_request(&self) -> Result<(), OverBudget> {
        let budgets = &self.account.budgets;
        let of_run: Vec<(Rate, Whose)> = budgets.run.rate.map(|rate| (rate, Whose::Run)).into_iter().collect();
        let of_host = [budgets.host.rate, self.rule.rate].into_iter().flatten().map(|rate| (rate, Whose::Host));
        let of_host: Vec<(Rate, Whose)> = of_host.collect();
        let seconds = self.account.began.elapsed().as_secs();
        for (used, rates) in [(&self.account.run, of_run), (&*self.host, of_host)] {
            used.lately.lock().unwrap_or_else(PoisonError::into_inner).one_more(seconds, &rates)?;
        }
        self.one_more(|used| &used.requests, |budget| budget.requests, OverBudget::Requests)
    }

    fn check_bytes(&self) -> Result<(), OverBudget> {
        for (used, limit, whose) in self.sides(|budget| budget.bytes) {
            if let Some(limit) = limit.filter(|limit| used.bytes.load(Ordering::Relaxed) >= *limit) {
                return Err(OverBudget::Bytes(whose, limit));
            }
        }
        Ok(())
    }

    /// Counts bytes that are about to be passed on. When there are too many, none of them may be.
    pub(crate) fn count(&self, direction: Direction, bytes: usize) -> Result<(), OverBudget> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        for (used, limit, whose) in self.sides(|budget| budget.bytes) {
            let total = used.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
            if let Some(limit) = limit.filter(|limit| total > *limit) {
                return Err(OverBudget::Bytes(whose, limit));
            }
        }
        let own = match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        };
        own.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Bytes that were passed on: up, down.
    pub(crate) fn passed(&self) -> (u64, u64) {
        (self.up.load(Ordering::Relaxed), self.down.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_hold_for_the_run_and_for_each_host() {
        let run = Budget { requests: Some(3), ..Budget::default() };
        let host = Budget { requests: Some(2), connections: Some(1), ..Budget::default() };
        let account = Account::new(Budgets { run, host }, RuleBudgets::None);
        assert!(account.request("a", Budget::default()).is_ok());
        assert!(account.request("a", Budget::default()).is_ok());
        assert_eq!(account.request("a", Budget::default()).err(), Some(OverBudget::Requests(Whose::Host, 2)));
        assert!(account.connection("a", Budget::default()).is_ok());
        assert_eq!(account.connection("a", Budget::default()).err(), Some(OverBudget::Connections(Whose::Host, 1)));
        assert_eq!(account.request("b", Budget::default()).err(), Some(OverBudget::Requests(Whose::Run, 3)));
    }

    #[test]
    fn bytes_over_the_budget_are_not_passed_on_and_nothing_is_after_them() {
        let account = Account::new(
            Budgets { run: Budget { bytes: Some(10), ..Budget::default() }, ..Budgets::default() },
            RuleBudgets::None,
        );
        let meter = account.connection("a", Budget::default()).unwrap();
        assert_eq!(meter.count(Direction::Up, 4), Ok(()));
        assert_eq!(meter.count(Direction::Down, 6), Ok(()));
        assert_eq!(meter.count(Direction::Down, 1), Err(OverBudget::Bytes(Whose::Run, 10)));
        assert_eq!(meter.passed(), (4, 6));
        assert_eq!(account.request("b", Budget::default()).err(), Some(OverBudget::Bytes(Whose::Run, 10)));
    }

    #[test]
    fn the_limits_of_a_rule_are_held_against_all_that_its_host_has_used() {
        let account = Account::new(Budgets::default(), RuleBudgets::Some);
        let limit = |requests: u64| Budget { requests: Some(requests), ..Budget::default() };
        assert!(account.request("a", limit(3)).is_ok());
        assert!(account.request("a", Budget::default()).is_ok());
        assert_eq!(account.request("a", limit(2)).err(), Some(OverBudget::Requests(Whose::Host, 2)));
        assert!(account.request("a", limit(3)).is_ok());
        assert_eq!(account.request("a", limit(3)).err(), Some(OverBudget::Requests(Whose::Host, 3)));
        assert!(account.request("b", limit(2)).is_ok(), "each host has its own");
    }

    #[test]
    fn a_rate_counts_whole_seconds_and_minutes() {
        let rate = |text: &str| (text.parse::<Rate>().unwrap(), Whose::Host);
        let mut lately = Lately::default();
        let both = [rate("2/s"), rate("3/min")];
        assert!(lately.one_more(0, &both).is_ok() && lately.one_more(0, &both).is_ok());
        assert_eq!(lately.one_more(0, &both), Err(OverBudget::Rate(Whose::Host, both[0].0)));
        assert!(lately.one_more(1, &both).is_ok());
        assert_eq!(lately.one_more(2, &both), Err(OverBudget::Rate(Whose::Host, both[1].0)));
        assert!(lately.one_more(60, &both).is_ok());
    }
}
