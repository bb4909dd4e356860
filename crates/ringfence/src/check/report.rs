//! What a check found.

use std::time::Duration;

use ringfence_policy::BackendKind;
use serde::Serialize;

use crate::guarantee::{Evidence, Guarantee};
use crate::ledger::Head;
use crate::outcome::FellBack;

/// What became of an attack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum Verdict {
    /// It had no effect, and its control had.
    Held,
    /// It got through.
    Broken {
        /// How that was seen.
        how: String,
    },
    /// Nothing was shown: the probe did not come to its end, or its control failed.
    Inconclusive {
        /// Why.
        why: String,
    },
    /// It could not be made here.
    NotTried {
        /// Why.
        why: String,
    },
}

/// One attack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its stable name.
    pub id: &'static str,
    /// What it attacks.
    pub guarantee: Guarantee,
    /// What was tried.
    pub tried: &'static str,
    /// What shows that the probe works.
    pub control: &'static str,
    /// What became of it.
    #[serde(flatten)]
    pub verdict: Verdict,
}

/// What a check found.
#[derive(Debug, Clone)]
pub struct Report {
    /// When it began.
    pub date: String,
    /// The wall.
    pub backend: Option<BackendKind>,
    /// The wall that was wanted and missing.
    pub fell_back: Option<FellBack>,
    /// The policy's hash, as the ledger has it for a run that narrows nothing.
    pub policy_hash: String,
    /// Where the ledger's chain ended after the last attack.
    pub ledger_head: Option<Head>,
    /// The guarantees in force, with what was seen from inside.
    pub enforced: Vec<Evidence>,
    /// What the policy asks for and this wall cannot keep.
    pub not_enforced: Vec<Guarantee>,
    /// Every attack.
    pub rows: Vec<Row>,
    /// How long it took.
    pub duration: Duration,
}

impl Report {
    /// How many attacks ended like this.
    pub fn count(&self, is_meant: impl Fn(&Verdict) -> bool) -> usize {
        self.rows.iter().filter(|row| is_meant(&row.verdict)).count()
    }

    /// Whether every attack was made, and held. A check without an attack shows nothing.
    pub fn holds(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| row.verdict == Verdict::Held)
    }
}
