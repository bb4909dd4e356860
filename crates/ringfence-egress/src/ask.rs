//! Asking somebody about a host that no rule names, while the connection waits.
//!
//! The decision stays [`crate::decide`]: an answer of yes is one more allow rule for exactly this host and port, and the decision is
//! made again with it. Nothing is looked up before there is an answer, and afterwards every address is judged as always. What
//! is built in, or denied by a rule, is never asked about.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use ringfence_policy::{HostPattern, NetRule};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::address::{AddressKind, kind_of};
use crate::decide::{Decision, Target, decide, describe};
use crate::denial::{Denied, Reason};
use crate::foresee::is_channel_to_strangers;
use crate::host::Host;
use crate::rules::{Rule, Rules};

/// Questions that wait for an answer at the same time. More would be a way to wear somebody down.
const MOST_WAITING: usize = 4;
/// Questions of one proxy, all in all.
const MOST_QUESTIONS: usize = 32;

/// Somebody who can be asked about hosts that no rule names.
pub trait Ask: fmt::Debug + Send + Sync {
    /// Answers one question. What takes too long is cut short, and then it is a no. The host comes from inside a sandbox, in
    /// canonical form.
    fn ask<'a>(&'a self, host: &'a Host, port: u16) -> BoxFuture<'a, Answer>;
}

/// What was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// This host may be reached on this port.
    Yes {
        /// Who said so.
        by: String,
    },
    /// It may not.
    No {
        /// Why, for whoever asked.
        why: String,
    },
    /// Nobody was shown the question. It may not now, and somebody may be asked when it is wanted again.
    Absent {
        /// Why, for whoever asked.
        why: String,
    },
}

/// The questions of one sandbox, each asked once.
#[derive(Debug)]
pub(crate) struct Asking(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    somebody: Arc<dyn Ask>,
    patience: Duration,
    book: Mutex<Book>,
}

#[derive(Debug)]
struct Book {
    answers: HashMap<(Host, u16), watch::Receiver<Option<Answer>>>,
    asking: Vec<AbortHandle>,
    /// The rules of the policy, and what was approved.
    rules: Arc<Rules>,
}

impl Inner {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asking {
    pub(crate) fn new(somebody: Arc<dyn Ask>, rules: &Rules, patience: Duration) -> Self {
        let book = Book { answers: HashMap::new(), asking: Vec::new(), rules: Arc::new(rules.clone()) };
        Self(Arc::new(Inner { somebody, patience, book: Mutex::new(book) }))
    }

    /// The rules of the policy, and what was approved.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.0.book().rules)
    }

    /// Decides again about what was denied because no rule names it. Anything else stays denied.
    pub(crate) async fn decide(&self, target: &Target<'_>, denied: Denied) -> Decision {
        if !may_be_asked_about(target.host, &denied) {
            return Decision::Denied(denied);
        }
        let answer = match self.question(target.host, target.port) {
            Ok(mut answer) => match answer.wait_for(Option::is_some).await.map(|answer| answer.clone()) {
                Ok(Some(answer)) => answer,
                Ok(None) | Err(_) => no("the question came to no answer"),
            },
            Err(why) => no(why),
        };
        let rules = Arc::clone(&self.0.book().rules);
        match answer {
            // Deny rules are in it, too, and still beat what somebody said.
            Answer::Yes { .. } => decide(&rules, target),
            Answer::No { why } | Answer::Absent { why } => Decision::Denied(refuse(&rules, target, &why)),
        }
    }

    /// The answer to come, or why nobody is asked.
    fn question(&self, host: &Host, port: u16) -> Result<watch::Receiver<Option<Answer>>, &'static str> {
        let mut book = self.0.book();
        let key = (host.clone(), port);
        if let Some(answer) = book.answers.get(&key) {
            return Ok(answer.clone());
        }
        if book.answers.len() >= MOST_QUESTIONS {
            return Err("too many questions were asked already");
        }
        if book.answers.values().filter(|answer| answer.borrow().is_none()).count() >= MOST_WAITING {
            return Err("too many questions wait for an answer; try again when they have one");
        }
        let (sender, receiver) = watch::channel(None);
        book.answers.insert(key, receiver.clone());
        let inner = Arc::clone(&self.0);
        let host = host.clone();
        // On its own: whoever hangs up meanwhile does not have it asked again.
        let asking = tokio::spawn(async move {
            let asked = timeout(inner.patience, inner.somebody.ask(&host, port)).await;
            let answer = asked.unwrap_or_else(|_| no("nobody answered in time"));
            if let (Answer::Yes { by }, Some(pattern)) = (&answer, pattern_of(&host)) {
                let name = format!("net.unknown approved by {}", crate::denial::plain_and_short(by, 128));
                let net = NetRule { ports: vec![port], ..NetRule::new(pattern) };
                let mut book = inner.book();
                let rules = Rules::clone(&book.rules).allow(Rule::new(net, name));
                book.rules = Arc::new(rules);
            }
            // A no is remembered, or asking again and again would get a yes at last. This was none: nobody saw the question.
            if let Answer::Absent { .. } = answer {
                inner.book().answers.remove(&(host, port));
            }
            // Nobody waits any more when the sandbox is gone.
            sender.send(Some(answer)).ok();
        });
        book.asking.retain(|asking| !asking.is_finished());
        book.asking.push(asking.abort_handle());
        Ok(receiver)
    }
}

/// With the sandbox its questions go.
impl Drop for Asking {
    fn drop(&mut self) {
        self.0.book().asking.iter().for_each(AbortHandle::abort);
    }
}

fn no(why: &str) -> Answer {
    Answer::No { why: why.to_owned() }
}

/// Whether a host was denied because it is merely unknown. What is refused whatever anybody says is no question.
pub fn may_be_asked_about(host: &Host, denied: &Denied) -> bool {
    denied.reason == Reason::NotListed
        && match host {
            Host::Name(_) => !is_channel_to_strangers(host),
            Host::Address(address) => kind_of(*address) == AddressKind::Public,
            Host::ThisMachine(_) => false,
        }
}

fn pattern_of(host: &Host) -> Option<HostPattern> {
    match host {
        Host::Name(name) => Some(HostPattern::Name(name.clone())),
        Host::Address(address) => Some(HostPattern::Address(*address)),
        Host::ThisMachine(_) => None,
    }
}

fn refuse(rules: &Rules, target: &Target<'_>, why: &str) -> Denied {
    let why = format!("no rule under `net.allow` names {}, and {why}", target.host);
    Denied::new(Reason::NotListed, Some(&"net.unknown".into()), &describe(target), &why, &rules.summary())
}
