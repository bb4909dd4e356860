//! How much of the network one run may use. What is over is denied, also in the middle of a transfer.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Counts and amounts; what is `None` is not limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Budget {
    /// HTTP requests.
    pub requests: Option<u64>,
    /// Tunnels and connections to a host.
    pub connections: Option<u64>,
    /// Bytes of bodies and tunnels, both directions together.
    pub bytes: Option<u64>,
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
    Hosts,
}

/// Whose budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    Run,
    Host,
}

impl fmt::Display for OverBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whose, limit, what) = match self {
            Self::Requests(whose, limit) => (whose, limit, "requests"),
            Self::Connections(whose, limit) => (whose, limit, "connections"),
            Self::Bytes(whose, limit) => (whose, limit, "bytes"),
            Self::Hosts => return write!(f, "the run has used {MOST_HOSTS} hosts, and more are not counted"),
        };
        let whose = match whose {
            Whose::Run => "this run",
            Whose::Host => "this host",
        };
        write!(f, "the budget of {limit} {what} for {whose} is used up")
    }
}

#[derive(Debug, Default)]
struct Used {
    requests: AtomicU64,
    connections: AtomicU64,
    bytes: AtomicU64,
}

/// What one run has used.
#[derive(Debug)]
pub(crate) struct Account {
    budgets: Budgets,
    run: Used,
    hosts: Mutex<HashMap<String, Arc<Used>>>,
}

/// Counts the bytes of one request or tunnel.
#[derive(Debug)]
pub(crate) struct Meter {
    account: Arc<Account>,
    host: Arc<Used>,
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
    pub(crate) fn new(budgets: Budgets) -> Arc<Self> {
        Arc::new(Self { budgets, run: Used::default(), hosts: Mutex::new(HashMap::new()) })
    }

    /// One more request to `host`.
    pub(crate) fn request(self: &Arc<Self>, host: &str) -> Result<Meter, OverBudget> {
        self.one_more(host, |used| &used.requests, |budget| budget.requests, OverBudget::Requests)
    }

    /// One more connection to `host`.
    pub(crate) fn connection(self: &Arc<Self>, host: &str) -> Result<Meter, OverBudget> {
        self.one_more(host, |used| &used.connections, |budget| budget.connections, OverBudget::Connections)
    }

    fn one_more(
        self: &Arc<Self>,
        host: &str,
        counter: impl Fn(&Used) -> &AtomicU64,
        limit: impl Fn(&Budget) -> Option<u64>,
        over: impl Fn(Whose, u64) -> OverBudget,
    ) -> Result<Meter, OverBudget> {
        let meter = self.meter(host)?;
        meter.check_bytes()?;
        for (used, budget, whose) in meter.sides() {
            if let Some(limit) = limit(&budget) {
                let take = |count: u64| (count < limit).then_some(count + 1);
                counter(used)
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
                    .map_err(|_| over(whose, limit))?;
            }
        }
        Ok(meter)
    }

    fn meter(self: &Arc<Self>, host: &str) -> Result<Meter, OverBudget> {
        let host = if self.budgets.host == Budget::default() {
            Arc::default()
        } else {
            let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
            match hosts.get(host) {
                Some(used) => Arc::clone(used),
                None if hosts.len() >= MOST_HOSTS => return Err(OverBudget::Hosts),
                None => Arc::clone(hosts.entry(host.to_owned()).or_default()),
            }
        };
        Ok(Meter { account: Arc::clone(self), host, up: AtomicU64::new(0), down: AtomicU64::new(0) })
    }
}

impl Meter {
    fn sides(&self) -> [(&Used, Budget, Whose); 2] {
        [
            (&self.account.run, self.account.budgets.run, Whose::Run),
            (&self.host, self.account.budgets.host, Whose::Host),
        ]
    }

    fn check_bytes(&self) -> Result<(), OverBudget> {
        for (used, budget, whose) in self.sides() {
            if let Some(limit) = budget.bytes.filter(|limit| used.bytes.load(Ordering::Relaxed) >= *limit) {
                return Err(OverBudget::Bytes(whose, limit));
            }
        }
        Ok(())
    }

    /// Counts bytes that are about to be passed on. When there are too many, none of them may be.
    pub(crate) fn count(&self, direction: Direction, bytes: usize) -> Result<(), OverBudget> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        for (used, budget, whose) in self.sides() {
            let total = used.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
            if let Some(limit) = budget.bytes.filter(|limit| total > *limit) {
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
        let account = Account::new(Budgets { run, host });
        assert!(account.request("a").is_ok());
        assert!(account.request("a").is_ok());
        assert_eq!(account.request("a").err(), Some(OverBudget::Requests(Whose::Host, 2)));
        assert!(account.connection("a").is_ok());
        assert_eq!(account.connection("a").err(), Some(OverBudget::Connections(Whose::Host, 1)));
        assert_eq!(account.request("b").err(), Some(OverBudget::Requests(Whose::Run, 3)));
    }

    #[test]
    fn bytes_over_the_budget_are_not_passed_on_and_nothing_is_after_them() {
        let account =
            Account::new(Budgets { run: Budget { bytes: Some(10), ..Budget::default() }, ..Budgets::default() });
        let meter = account.connection("a").unwrap();
        assert_eq!(meter.count(Direction::Up, 4), Ok(()));
        assert_eq!(meter.count(Direction::Down, 6), Ok(()));
        assert_eq!(meter.count(Direction::Down, 1), Err(OverBudget::Bytes(Whose::Run, 10)));
        assert_eq!(meter.passed(), (4, 6));
        assert_eq!(account.request("b").err(), Some(OverBudget::Bytes(Whose::Run, 10)));
    }
}
