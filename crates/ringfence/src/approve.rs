//! Who answers when the verdict is *ask*.

use std::fmt;

use crate::BoxFuture;

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

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Approval {
    /// This run may go on.
    Granted {
        /// Who said so, for the ledger.
        by: String,
    },
    /// It may not.
    Denied {
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
        Box::pin(async { Approval::Denied { reason: "nobody is there to be asked".to_owned() } })
    }
}
