//! What facts mean: rules in data files, each with a reason, what to do instead, and examples.

mod about;
mod matching;
mod reach;

use std::sync::{LazyLock, OnceLock};

use ringfence_policy::Verdict;
use serde::Deserialize;

pub(crate) use matching::Seen;
pub(crate) use reach::{Reach, reach};

use about::may_speak_of;
use matching::When;

/// The rules of `data/rules/*.yaml`, without their examples, one in each line behind what it speaks of: a run reads few of them. A test
/// writes it.
const RULES_FILE: &str = include_str!("../../data/rules.txt");

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
}

impl Rule {
    pub(crate) fn covers(&self, seen: &Seen<'_>) -> bool {
        self.when.iter().any(|when| when.covers(seen))
    }
}

/// A line of the file. Its rule is read when something was seen that it could speak of.
struct Line {
    /// The shapes of facts that it speaks of, and of commands their programs.
    about: &'static str,
    text: &'static str,
    rule: OnceLock<Result<Rule, String>>,
}

impl Line {
    fn new(line: &'static str) -> Self {
        // One that says nothing of what it is about cannot be read, either.
        let (about, text) = line.split_once('\t').unwrap_or(("", line));
        Self { about, text, rule: OnceLock::new() }
    }

    fn rule(&self) -> Result<&Rule, &str> {
        let read = || serde_json::from_str(self.text).map_err(|error| error.to_string());
        self.rule.get_or_init(read).as_ref().map_err(String::as_str)
    }
}

static LINES: LazyLock<Vec<Line>> = LazyLock::new(|| RULES_FILE.lines().map(Line::new).collect());

/// The rules that could speak of what was seen, or why one of them cannot be read: then nothing may pass.
pub(crate) fn about<'s>(seen: &'s Seen<'_>) -> impl Iterator<Item = Result<&'static Rule, &'static str>> + 's {
    LINES.iter().filter(|line| line.about.is_empty() || may_speak_of(line.about, seen)).map(Line::rule)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;
    use crate::{
        Circumstances, Language, Limits, Subject, Surroundings, analyse, judge, nobody_vouches, nothing_allowed,
    };
    use ringfence_policy::ValidateLevel;

    /// The rule sets, in the order in which their findings are told.
    const SETS: [&str; 7] = [
        include_str!("../../data/rules/unknown.yaml"),
        include_str!("../../data/rules/files.yaml"),
        include_str!("../../data/rules/secrets.yaml"),
        include_str!("../../data/rules/execution.yaml"),
        include_str!("../../data/rules/network.yaml"),
        include_str!("../../data/rules/system.yaml"),
        include_str!("../../data/rules/code.yaml"),
    ];

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Set {
        rules: Vec<Value>,
    }

    /// All rules as they are written, with their examples.
    fn written() -> Vec<Value> {
        SETS.iter().flat_map(|text| serde_saphyr::from_str::<Set>(text).unwrap().rules).collect()
    }

    /// Lines that a rule must find, or must not. Code of another language stands behind its name: `python: …`.
    fn examples<'a>(rule: &'a Value, key: &str) -> Vec<&'a str> {
        rule[key].as_array().unwrap().iter().map(|line| line.as_str().unwrap()).collect()
    }

    #[test]
    fn what_every_run_reads_is_what_is_written() {
        let mut rules = written();
        for rule in &mut rules {
            let rule = rule.as_object_mut().unwrap();
            rule.remove("matches").unwrap();
            rule.remove("rejects").unwrap();
        }
        let lines = rules.iter().map(|written| {
            let rule: Rule = serde_json::from_value(written.clone()).unwrap();
            let about: Vec<String> = rule.when.iter().map(When::shape).collect();
            assert!(about.iter().all(|word| !word.contains([' ', '\t'])), "{about:?}");
            format!("{}\t{written}\n", about.join(" "))
        });
        let now: String = lines.collect();
        if std::env::var_os("RINGFENCE_TEST_WRITE_RULES").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/data/rules.txt"), now).unwrap();
            return;
        }
        assert!(now == RULES_FILE, "data/rules.txt is stale; run this test with RINGFENCE_TEST_WRITE_RULES=1");
    }

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
            vouches: &nobody_vouches,
            commands: &[],
            modules: &[],
        };
        judge(&analysis, &circumstances).findings.into_iter().map(|finding| finding.rule).collect()
    }

    #[test]
    fn every_rule_is_read_and_has_a_name_of_its_own_reasons_and_examples() {
        let mut names = BTreeSet::new();
        let written = written();
        assert_eq!(LINES.len(), written.len());
        for (line, written) in LINES.iter().zip(&written) {
            let rule = line.rule().unwrap();
            assert!(names.insert(&rule.id), "{} twice", rule.id);
            assert!(rule.id.split('.').count() == 2, "{}", rule.id);
            // A line that two parsers read differently is a mistake in one of them, and would not stay an example. What a link is, no
            // line shows.
            let shows_none = ["unknown.disagreement", "unknown.link"].contains(&rule.id.as_str());
            let has_examples = !examples(written, "matches").is_empty() || shows_none;
            let has_twins = !examples(written, "rejects").is_empty();
            assert!(!rule.when.is_empty() && has_examples && has_twins, "{}", rule.id);
            assert!(!rule.why.ends_with('.') && rule.instead.ends_with('.'), "{}", rule.id);
            assert_ne!(rule.verdict, Verdict::Allow, "{}", rule.id);
        }
    }

    #[test]
    fn a_line_that_cannot_be_read_says_so_whatever_it_is_about() {
        assert!(Line::new("removes\t{}").rule().is_err());
        let bare = Line::new("{}");
        assert!(bare.about.is_empty() && bare.rule().is_err());
    }

    #[test]
    fn every_rule_finds_its_examples_and_leaves_their_twins_alone() {
        let mut wrong = String::new();
        for rule in &written() {
            let id = rule["id"].as_str().unwrap();
            let finds = |line: &str| found(line).iter().any(|found| found == id);
            for line in examples(rule, "matches").into_iter().filter(|line| !finds(line)) {
                wrong.push_str(&format!("{id} does not find: {line} (only {:?})\n", found(line)));
            }
            for line in examples(rule, "rejects").into_iter().filter(|line| finds(line)) {
                wrong.push_str(&format!("{id} finds: {line}\n"));
            }
        }
        assert!(wrong.is_empty(), "\n{wrong}");
    }
}
