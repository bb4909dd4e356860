//! Rules about commands, matched on the words that would be executed, never on a shell line.
//!
//! The deciding rule is the one with the longest prefix; at equal length deny beats ask beats allow, and a rule that asks about
//! everything beats one that lets reading pass; then the later layer wins. The operator's rules decide among themselves first, and
//! their deny or ask is never overruled.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::diagnostic::{Invalid, quote};
use crate::policy::{Layer, ResolvedPolicy, Sourced};
use crate::words::{NotPlain, split_words};

/// What a rule decides. The order is from weakest to strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It runs.
    Allow,
    /// A person is asked first.
    Ask,
    /// It is refused.
    Deny,
}

/// What becomes of commands that only read, under a rule that asks. The order is from weakest to strongest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// They run without the question.
    Allow,
    /// They are asked about like all others.
    #[default]
    Ask,
}

impl Reading {
    fn is_asked_about(&self) -> bool {
        *self == Self::Ask
    }
}

/// One entry of `commands`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub struct CommandRule {
    /// What happens to commands that match.
    pub verdict: Verdict,
    /// The first words of a matching command, at least one.
    pub prefix: Vec<String>,
    /// Of a rule that asks: whether it also asks about what only reads. A policy that does not say keeps its hash.
    #[serde(skip_serializing_if = "Reading::is_asked_about")]
    pub reading: Reading,
    /// The reason, shown when the rule decides.
    pub why: Option<String>,
    /// What to do instead, shown when the rule refuses.
    pub instead: Option<String>,
    /// Commands that must match; checked at load.
    pub matches: Vec<String>,
    /// Commands that must not match; checked at load.
    pub rejects: Vec<String>,
}

impl CommandRule {
    /// Which of two rules is stricter: the verdict first, and of two that ask the one that asks about reading, too.
    pub fn strictness(&self) -> (Verdict, Reading) {
        (self.verdict, self.reading)
    }

    /// Whether the command starts with this rule's words. The program is compared as written and by its file name, so
    /// that `/bin/rm` matches a rule about `rm`.
    pub fn matches_argv(&self, argv: &[&str]) -> bool {
        let (Some((program, rest)), Some((wanted, wanted_rest))) = (argv.split_first(), self.prefix.split_first())
        else {
            return false;
        };
        let file_name = program.rsplit('/').next().unwrap_or(program);
        (program == wanted || file_name == wanted)
            && rest.len() >= wanted_rest.len()
            && rest.iter().zip(wanted_rest).all(|(word, wanted)| word == wanted)
    }

    /// Checks every example of this rule.
    pub fn check_examples(&self) -> Vec<ExampleResult> {
        let expected = [(&self.matches, Expected::Matches), (&self.rejects, Expected::Rejects)];
        expected
            .into_iter()
            .flat_map(|(examples, expected)| examples.iter().map(move |example| (example, expected)))
            .map(|(example, expected)| {
                let outcome = match split_words(example) {
                    Err(problem) => ExampleOutcome::NotPlain(problem),
                    Ok(words) => {
                        let argv: Vec<&str> = words.iter().map(String::as_str).collect();
                        match (self.matches_argv(&argv), expected) {
                            (true, Expected::Matches) | (false, Expected::Rejects) => ExampleOutcome::Passed,
                            (true, Expected::Rejects) | (false, Expected::Matches) => ExampleOutcome::Failed,
                        }
                    }
                };
                ExampleResult { example: example.clone(), expected, outcome }
            })
            .collect()
    }
}

/// What an example says about its rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expected {
    /// Listed under `matches`.
    Matches,
    /// Listed under `rejects`.
    Rejects,
}

/// How one example came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExampleOutcome {
    /// As the rule's author expects.
    Passed,
    /// The rule does the opposite.
    Failed,
    /// The example is not one plain command.
    NotPlain(NotPlain),
}

/// One example and how it came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExampleResult {
    /// The example, as written.
    pub example: String,
    /// What its author expects.
    pub expected: Expected,
    /// What the rule does.
    pub outcome: ExampleOutcome,
}

impl ExampleResult {
    pub(crate) fn complaint(&self) -> Option<Invalid> {
        let example = quote(&self.example);
        match (&self.outcome, self.expected) {
            (ExampleOutcome::Passed, _) => None,
            (ExampleOutcome::Failed, Expected::Matches) => Some(Invalid::new(
                "policy::example",
                format!("the rule does not match its own example {example}"),
                "change the words of the rule or of the example; the words of a rule are the first words of a command",
            )),
            (ExampleOutcome::Failed, Expected::Rejects) => Some(Invalid::new(
                "policy::example",
                format!("the rule matches {example}, which it lists under `rejects`"),
                "name more words in the rule, or move the example to `matches`",
            )),
            (ExampleOutcome::NotPlain(problem), _) => Some(Invalid::new(
                "policy::example",
                format!("the example {example} is not one plain command: {problem}"),
                "write one command; put special characters in single quotes",
            )),
        }
    }
}

/// One example of one rule, as `policy test` reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestResult {
    /// The rule that carries the example.
    pub rule: Sourced<CommandRule>,
    /// The example and how it came out.
    pub result: ExampleResult,
    /// The rule that decides about the example when all rules are asked; `None` when none does.
    pub decided_by: Option<Sourced<CommandRule>>,
}

impl TestResult {
    /// Whether the rule does what its author expects, and is not overruled by a weaker verdict.
    pub fn passed(&self) -> bool {
        let overruled = self.result.expected == Expected::Matches
            && self.decided_by.as_ref().is_some_and(|by| by.value.verdict < self.rule.value.verdict);
        self.result.outcome == ExampleOutcome::Passed && !overruled
    }
}

/// Runs every example of every rule against its rule and against all rules together.
pub fn check_tests(policy: &ResolvedPolicy) -> Vec<TestResult> {
    let mut results = Vec::new();
    for rule in &policy.commands {
        for result in rule.value.check_examples() {
            let words = split_words(&result.example).unwrap_or_default();
            let argv: Vec<&str> = words.iter().map(String::as_str).collect();
            let decided_by = decide(&policy.commands, &argv).cloned();
            results.push(TestResult { rule: rule.clone(), result, decided_by });
        }
    }
    results
}

/// The rule that decides about a command, if any does.
pub fn decide<'r>(rules: &'r [Sourced<CommandRule>], argv: &[&str]) -> Option<&'r Sourced<CommandRule>> {
    let strongest = |operator: bool| {
        rules
            .iter()
            .filter(|rule| (rule.origin.layer == Layer::Operator) == operator && rule.value.matches_argv(argv))
            // `max_by_key` keeps the last of equals, which is the one of the later layer.
            .max_by_key(|rule| (rule.value.prefix.len(), rule.value.strictness()))
    };
    match (strongest(true), strongest(false)) {
        // The operator's allow is an exception from the operator's own rules, never from those of others.
        (Some(operator), Some(other)) if operator.value.strictness() > other.value.strictness() => Some(operator),
        (_, Some(other)) => Some(other),
        (operator, None) => operator,
    }
}
