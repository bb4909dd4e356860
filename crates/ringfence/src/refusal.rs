//! We would not: a value with the rule, its place and advice. Not an error.

use ringfence_policy::{Origin, Place};
use serde::{Deserialize, Serialize};

/// Why a request is not carried out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// What was refused, in a few words.
    pub subject: String,
    /// The rule's stable name.
    pub rule: String,
    /// Why.
    pub reason: String,
    /// Where the rule was written; nothing when it is built in.
    pub place: Option<Place>,
    /// What a person could change to permit it.
    pub hint: Option<String>,
    /// What a model may do instead.
    pub advice: String,
    /// Whether another request could be carried out.
    pub retryable: bool,
}

impl Refusal {
    /// A refusal by a built-in rule.
    pub fn new(rule: &str, subject: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            subject: subject.into(),
            rule: rule.to_owned(),
            reason: reason.into(),
            place: None,
            hint: None,
            advice: String::new(),
            retryable: false,
        }
    }

    /// Says where the rule stands.
    #[must_use]
    pub fn at(mut self, origin: &Origin) -> Self {
        self.place.clone_from(&origin.place);
        self
    }

    /// Says what a person could change.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says what a model may do instead: another request could be carried out.
    #[must_use]
    pub fn instead(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self.retryable = true;
        self
    }

    /// Tells a model that no other wording will help.
    #[must_use]
    pub fn do_not_retry(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self.retryable = false;
        self
    }
}
