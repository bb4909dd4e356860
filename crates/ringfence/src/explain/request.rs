//! What a request would do and what the policy says of it: read and judged as a run would be, without one.

use std::path::Path;

use ringfence_policy::{ResolvedPolicy, ValidateLevel, Verdict};
use ringfence_validate::{Finding, Span, Step, Text};
use serde::Serialize;

use crate::analysis::{Surroundings, analyse_here};
use crate::judge::{self, describe};
use crate::request::Work;

/// The version of the JSON.
const VERSION: u32 = 1;

/// What would happen, and what becomes of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Foreseen {
    /// Of this form.
    pub version: u32,
    /// What was asked about, in a few words, with secrets taken out.
    pub subject: String,
    /// What would become of it.
    pub verdict: Verdict,
    /// How closely it was read.
    pub level: ValidateLevel,
    /// The rules that fire, the policy's own first.
    pub findings: Vec<Finding>,
    /// What would happen.
    pub steps: Vec<Step>,
}

/// Reads `work` and holds `policy` against it, in the host's folder `workspace`. Nobody is asked, nothing is run.
pub fn foresee(work: &Work, policy: &ResolvedPolicy, surroundings: &Surroundings, workspace: &Path) -> Foreseen {
    let analysis = analyse_here(work, surroundings, workspace, policy);
    let mut findings = judge::about_commands(policy, work, &analysis);
    let strongest = findings.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Allow);
    let judgement = judge::validate(&analysis, policy, surroundings);
    findings.extend(judgement.findings);
    Foreseen {
        version: VERSION,
        subject: describe(work),
        verdict: strongest.max(judgement.verdict),
        level: policy.validate.level.value,
        findings,
        steps: analysis.steps,
    }
}

/// The words of a command on one line, quoted where a shell would need it.
pub fn command_line(argv: &[Text]) -> String {
    let word = |word: &Text| {
        let text = word.to_string();
        let plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,~$*?[]{}…()".contains(c);
        if !text.is_empty() && text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// What stands at `span` in `text`; nothing where it lies elsewhere.
pub fn at(text: &str, span: Span) -> Option<&str> {
    text.get(span.start..span.end).filter(|found| !found.is_empty())
}
