//! What facts mean: rules in data files, each with a reason, what to do instead, and examples.

mod matching;

use std::sync::LazyLock;

use ringfence_policy::Verdict;
use serde::Deserialize;

pub(crate) use matching::{Seen, reach};

use matching::When;

/// The rule sets, in the order in which their findings are told.
const FILES: [(&str, &str); 7] = [
    ("unknown.yaml", include_str!("../../data/rules/unknown.yaml")),
    ("files.yaml", include_str!("../../data/rules/files.yaml")),
    ("secrets.yaml", include_str!("../../data/rules/secrets.yaml")),
    ("execution.yaml", include_str!("../../data/rules/execution.yaml")),
    ("network.yaml", include_str!("../../data/rules/network.yaml")),
    ("system.yaml", include_str!("../../data/rules/system.yaml")),
    ("code.yaml", include_str!("../../data/rules/code.yaml")),
];

/// One rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Stable, such as `delete.root`.
    pub(crate) id: String,
    /// What becomes of it at `standard`. At `strict`, a question is a denial.
    pub(crate) verdict: Verdict,
    /// Any of these.
    when: Vec<When>,
    /// The reason, a sentence without its stop.
    pub(crate) why: String,
    /// What to do instead, for a model.
    pub(crate) instead: String,
    /// Commands that only read may do it without a question.
    #[serde(default)]
    reading_passes: bool,
    /// Lines that must be found by it. Code of another language stands behind its name: `python: …`.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are for readers and tests"))]
    matches: Vec<String>,
    /// Lines that must not.
    #[cfg_attr(not(test), expect(dead_code, reason = "examples are for readers and tests"))]
    rejects: Vec<String>,
}

impl Rule {
    pub(crate) fn covers(&self, seen: &Seen<'_>) -> bool {
        !(self.reading_passes && seen.reads_only) && self.when.iter().any(|when| when.covers(seen))
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    rules: Vec<Rule>,
}

static RULES: LazyLock<Result<Vec<Rule>, String>> = LazyLock::new(|| {
    let mut rules = Vec::new();
    for (name, text) in FILES {
        let file: File = serde_saphyr::from_str(text).map_err(|error| format!("{name}: {error}"))?;
        rules.extend(file.rules);
    }
    Ok(rules)
});

/// All rules, or why they cannot be read: then nothing may pass.
pub(crate) fn all() -> Result<&'static [Rule], &'static str> {
    RULES.as_ref().map(Vec::as_slice).map_err(String::as_str)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{Circumstances, Language, Limits, Subject, Surroundings, analyse, judge, nothing_allowed};
    use ringfence_policy::ValidateLevel;

    fn found(line: &str) -> Vec<String> {
        let subject = match line.split_once(": ") {
            Some(("python", source)) => Subject::Code { language: Language::Python, source },
            Some(("javascript", source)) => Subject::Code { language: Language::JavaScript, source },
            _ => Subject::Shell(line),
        };
        let surroundings = Surroundings::default();
        let analysis = analyse(subject, &surroundings, &Limits::default());
        let circumstances = Circumstances {
            level: ValidateLevel::Standard,
            surroundings: &surroundings,
            allows: &nothing_allowed,
            commands: &[],
            modules: &[],
        };
        judge(&analysis, &circumstances).findings.into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn every_rule_is_read_and_has_a_name_of_its_own_reasons_and_examples() {
        let mut names = BTreeSet::new();
        for rule in all().unwrap() {
            assert!(names.insert(&rule.id), "{} twice", rule.id);
            assert!(rule.id.split('.').count() == 2, "{}", rule.id);
            // A line that two parsers read differently is a mistake in one of them, and would not stay an example.
            let has_examples = !rule.matches.is_empty() || rule.id == "unknown.disagreement";
            assert!(!rule.when.is_empty() && has_examples && !rule.rejects.is_empty(), "{}", rule.id);
            assert!(!rule.why.ends_with('.') && rule.instead.ends_with('.'), "{}", rule.id);
            assert_ne!(rule.verdict, Verdict::Allow, "{}", rule.id);
        }
    }

    #[test]
    fn every_rule_finds_its_examples_and_leaves_their_twins_alone() {
        let mut wrong = String::new();
        for rule in all().unwrap() {
            for line in rule.matches.iter().filter(|line| !found(line).contains(&rule.id)) {
                wrong.push_str(&format!("{} does not find: {line} (only {:?})\n", rule.id, found(line)));
            }
            for line in rule.rejects.iter().filter(|line| found(line).contains(&rule.id)) {
                wrong.push_str(&format!("{} finds: {line}\n", rule.id));
            }
        }
        assert!(wrong.is_empty(), "\n{wrong}");
    }
}
