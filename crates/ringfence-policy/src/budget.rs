//! How much of the network may be used: counts, amounts and a rate.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use crate::diagnostic::{Diagnostic, Invalid, quote};
use crate::reader::Reader;
use crate::section::parse_amount;
use crate::units::Bytes;
use crate::yaml::Node;

pub(crate) const KEYS: [&str; 4] = ["requests", "connections", "bytes", "rate"];

const OUT_OF_RANGE: &str = "policy::out-of-range";
/// More than anybody counts to, and still exact in JSON.
const MOST: u64 = 1_000_000_000_000;

/// What may be used up; what is `None` is not limited. Of a rule it holds for each of its hosts by itself, of the whole run
/// for all hosts together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
pub struct NetBudget {
    /// HTTP requests; a tunnel that is not looked into is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests: Option<u64>,
    /// Tunnels and connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// Bytes of bodies and tunnels, both directions together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<Bytes>,
    /// How many requests in how much time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
}

/// So many requests in each second or minute, written `10/s` or `100/min`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    /// How many.
    pub count: u32,
    /// In how long.
    pub per: Per,
}

/// The time that a [`Rate`] counts in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Per {
    /// A second.
    Second,
    /// A minute.
    Minute,
}

impl NetBudget {
    /// Whether nothing is limited.
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// Whether whoever keeps `other` keeps this too.
    pub fn covers(&self, other: &Self) -> bool {
        at_most(other.requests, self.requests)
            && at_most(other.connections, self.connections)
            && at_most(other.bytes, self.bytes)
            && match (other.rate, self.rate) {
                (_, None) => true,
                (None, Some(_)) => false,
                (Some(theirs), Some(mine)) => mine.covers(theirs),
            }
    }

    /// What keeps both.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            requests: lower(self.requests, other.requests, u64::min),
            connections: lower(self.connections, other.connections, u64::min),
            bytes: lower(self.bytes, other.bytes, Bytes::min),
            rate: lower(self.rate, other.rate, Rate::meet),
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>, node: &Node, path: &str) -> Self {
        let fields = reader.fields(node, path, &KEYS);
        let requests = fields.get("requests").and_then(|node| reader.scalar(node, "requests", parse_many));
        let connections = fields.get("connections").and_then(|node| reader.scalar(node, "connections", parse_many));
        let bytes = fields.get("bytes").and_then(|node| reader.scalar(node, "bytes", parse_amount));
        let rate = fields.get("rate").and_then(|node| reader.scalar(node, "rate", str::parse));
        Self {
            requests: requests.map(|it| it.value),
            connections: connections.map(|it| it.value),
            bytes: bytes.map(|it| it.value),
            rate: rate.map(|it| it.value),
        }
    }

    /// Likewise of a rule, where an empty one would read as "nothing" and mean "no limit".
    pub(crate) fn read_of_rule(reader: &mut Reader<'_>, node: &Node) -> Self {
        let was_clean = reader.is_clean();
        let budget = Self::read(reader, node, "budget");
        if budget.is_unlimited() && was_clean && reader.is_clean() {
            let problem = Diagnostic::error("policy::bad-rule", "`budget` is empty, so it limits nothing");
            reader
                .report(node.mark, problem.advise("write it such as `{ requests: 100, bytes: 10MiB }`, or remove it"));
        }
        budget
    }
}

fn at_most<T: PartialOrd>(value: Option<T>, limit: Option<T>) -> bool {
    match (value, limit) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(value), Some(limit)) => value <= limit,
    }
}

fn lower<T: Copy>(mine: Option<T>, theirs: Option<T>, both: impl Fn(T, T) -> T) -> Option<T> {
    match (mine, theirs) {
        (Some(mine), Some(theirs)) => Some(both(mine, theirs)),
        (one, None) | (None, one) => one,
    }
}

impl Rate {
    /// Whether whoever keeps `other` keeps this too. Seconds and minutes are counted from the same beginning.
    pub fn covers(self, other: Self) -> bool {
        match (self.per, other.per) {
            (Per::Second, Per::Second) | (Per::Minute, Per::Minute) => other.count <= self.count,
            // A minute's worth may come in one second.
            (Per::Second, Per::Minute) => other.count <= self.count,
            (Per::Minute, Per::Second) => u64::from(other.count) * 60 <= u64::from(self.count),
        }
    }

    /// A rate that keeps both. Where neither covers the other it is below what both would permit: one number cannot say both.
    #[must_use]
    pub fn meet(self, other: Self) -> Self {
        if self.covers(other) {
            return other;
        }
        if other.covers(self) {
            return self;
        }
        let (second, minute) = match self.per {
            Per::Second => (self, other),
            Per::Minute => (other, self),
        };
        match minute.count / 60 {
            0 => Self { count: minute.count.min(second.count), per: Per::Minute },
            each => Self { count: each.min(second.count), per: Per::Second },
        }
    }
}

/// Less is what limits more.
impl PartialOrd for NetBudget {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match (self.covers(other), other.covers(self)) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Greater),
            (false, true) => Some(Ordering::Less),
            (false, false) => None,
        }
    }
}

fn parse_many(text: &str) -> Result<u64, Invalid> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u64>().ok().filter(|count| digits && (1..=MOST).contains(count)).ok_or_else(|| {
        let advice = "write a whole number above zero, such as `100`";
        Invalid::new(OUT_OF_RANGE, format!("{} is not a count", quote(text)), advice)
    })
}

impl FromStr for Rate {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        const HOW: &str = "write a number and a time, such as `10/s` or `100/min`";
        let bad = || Invalid::new("policy::bad-unit", format!("{} is not a rate", quote(text)), HOW);
        let (count, per) = text.split_once('/').ok_or_else(bad)?;
        let per = match per {
            "s" => Per::Second,
            "min" => Per::Minute,
            _ => return Err(bad()),
        };
        let digits = !count.is_empty() && count.bytes().all(|byte| byte.is_ascii_digit());
        let count = count.parse().ok().filter(|count| digits && (1..=1_000_000).contains(count)).ok_or_else(bad)?;
        Ok(Self { count, per })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.per {
            Per::Second => write!(f, "{}/s", self.count),
            Per::Minute => write!(f, "{}/min", self.count),
        }
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// As YAML reads it.
impl fmt::Display for NetBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, connections, bytes, rate } = self;
        let parts = [
            requests.map(|count| format!("requests: {count}")),
            connections.map(|count| format!("connections: {count}")),
            bytes.map(|bytes| format!("bytes: {bytes}")),
            rate.map(|rate| format!("rate: {rate}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() { f.write_str("{}") } else { write!(f, "{{ {} }}", parts.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn arbitrary_rate() -> impl Strategy<Value = Rate> {
        (1..200_u32, any::<bool>())
            .prop_map(|(count, seconds)| Rate { count, per: if seconds { Per::Second } else { Per::Minute } })
    }

    #[test]
    fn a_minutes_worth_may_come_in_one_second() {
        let rate = |text: &str| text.parse::<Rate>().unwrap();
        assert!(rate("60/min").covers(rate("1/s")) && !rate("59/min").covers(rate("1/s")));
        assert!(rate("60/s").covers(rate("60/min")) && !rate("59/s").covers(rate("60/min")));
        assert_eq!(rate("5/s").meet(rate("100/min")), rate("1/s"));
        assert_eq!(rate("5/s").meet(rate("30/min")), rate("5/min"));
        for text in ["10", "10/h", "/s", "0/s", "+1/s", "1.5/s", "10 /s", "9999999/s"] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_keeps_both_is_covered_by_both(
            mine in (proptest::option::of(1..5_u64), proptest::option::of(arbitrary_rate())),
            theirs in (proptest::option::of(1..5_u64), proptest::option::of(arbitrary_rate())),
        ) {
            let budget = |(requests, rate): (Option<u64>, Option<Rate>)| NetBudget { requests, rate, ..NetBudget::default() };
            let (mine, theirs) = (budget(mine), budget(theirs));
            let both = mine.meet(&theirs);
            prop_assert!(mine.covers(&both) && theirs.covers(&both) && both.covers(&both));
            prop_assert_eq!(both, theirs.meet(&mine));
        }
    }
}
