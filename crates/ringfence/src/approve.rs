//! Who answers when the verdict is *ask*, and how long an answer holds.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::{BoxFuture, Engine};

/// A question for a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// What is to be run, shortened and with secrets taken out.
    pub subject: String,
    /// The rule that asks.
    pub rule: String,
    /// Why it asks.
    pub reason: String,
}

/// Stands in a text whose middle was taken out.
pub(crate) const SHORTENED: &str = " bytes in all) … ";

impl Ask {
    /// Whether the middle of what is to be run is missing. Whoever wrote the mark into a command is told so without reason, which
    /// costs an approval and gives none.
    pub fn is_shortened(&self) -> bool {
        self.subject.contains(SHORTENED)
    }

    /// Whether one answer may stand for the whole rule. A question about a host is about that host alone, and a rule about what is
    /// not known says nothing of what the next request will be.
    pub fn may_stand(&self) -> bool {
        !self.rule.split('.').any(|part| part == "net" || part == "unreadable" || part.starts_with("unknown"))
    }
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// This run may go on.
    Granted {
        /// Who said so, for the ledger.
        by: String,
    },
    /// This run may go on, and the same rule need not ask again for a while.
    GrantedAlways {
        /// Who said so, for the ledger.
        by: String,
    },
    /// It may not.
    Denied {
        /// Why, for the refusal.
        reason: String,
    },
    /// It may not, because nobody was shown the question. Whoever comes later may be asked.
    Absent {
        /// Why, for the refusal.
        reason: String,
    },
}

/// Somebody who can be asked. The model must not be able to answer for it.
pub trait Approver: fmt::Debug + Send + Sync {
    /// Answers one question. No answer in time is a denial, which the implementation decides.
    fn decide<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Approval>;
}

/// Nobody is there: everything that would need asking is denied.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nobody;

impl Approver for Nobody {
    fn decide<'a>(&'a self, _ask: &'a Ask) -> BoxFuture<'a, Approval> {
        Box::pin(async { Approval::Absent { reason: "nobody is there to be asked".to_owned() } })
    }
}

impl Engine {
    /// The same engine for somebody else: requests that enter here are asked about by `approver`. A yes is for one request; who says
    /// "always" says it for the engine, so give that answer only to people who may speak for all of its callers.
    #[must_use]
    pub fn asking(&self, approver: Arc<dyn Approver>) -> Self {
        Self(Arc::clone(&self.0), approver)
    }
}

/// An answer as the ledger keeps it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Approved {
    /// The rule that asked.
    pub rule: String,
    /// What it asked about.
    pub subject: String,
    /// Who answered.
    pub by: String,
    /// Names the exact request and the exact policy that the answer is for.
    pub request: String,
    /// It was an earlier answer that still holds.
    pub standing: bool,
}

/// How long "always" is.
const HOLDS: Duration = Duration::from_secs(60 * 60);
/// Rules that may stand at once.
const MOST_STANDING: usize = 256;

/// Answers of "always": each for one rule under one policy, and only for a while. A changed policy, the operator's floor included,
/// is another policy, so that no answer outlives what it was given for.
#[derive(Debug, Default)]
pub struct Standing(Mutex<Vec<StandingAnswer>>);

#[derive(Debug)]
struct StandingAnswer {
    rule: String,
    policy: String,
    by: String,
    until: Instant,
}

impl Standing {
    /// Who said "always" about this rule, if that still holds `now`.
    pub fn find(&self, rule: &str, policy: &str, now: Instant) -> Option<String> {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.retain(|answer| answer.until > now);
        answers.iter().find(|answer| answer.rule == rule && answer.policy == policy).map(|answer| answer.by.clone())
    }

    /// Remembers "always".
    pub fn keep(&self, rule: &str, policy: &str, by: &str, now: Instant) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() < MOST_STANDING {
            let (rule, policy, by) = (rule.to_owned(), policy.to_owned(), by.to_owned());
            answers.push(StandingAnswer { rule, policy, by, until: now + HOLDS });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_asked_about_each_time() {
        let ask = |rule: &str| Ask { subject: "x".to_owned(), rule: rule.to_owned(), reason: "y".to_owned() };
        for rule in ["net.unknown", "execute.unknown", "delete.unknown", "commands.unknown-words", "unknown.program"] {
            assert!(!ask(rule).may_stand(), "{rule}");
        }
        for rule in ["delete.workspace", "commands.ask echo"] {
            assert!(ask(rule).may_stand(), "{rule}");
        }
    }

    #[test]
    fn always_is_for_one_rule_under_one_policy_and_ends() {
        let (standing, now) = (Standing::default(), Instant::now());
        standing.keep("delete.workspace", "p1", "me", now);
        assert_eq!(standing.find("delete.workspace", "p1", now).as_deref(), Some("me"));
        assert_eq!(standing.find("delete.home", "p1", now), None);
        assert_eq!(standing.find("delete.workspace", "p2", now), None);
        assert_eq!(standing.find("delete.workspace", "p1", now + HOLDS), None);
        assert_eq!(standing.find("delete.workspace", "p1", now), None, "what has ended stays so");
    }
}
