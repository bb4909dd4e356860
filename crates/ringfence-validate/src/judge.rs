//! What rules make of an analysis: allow, ask or deny, and why.

use ringfence_policy::{ValidateLevel, Verdict};
use serde::{Deserialize, Serialize};

use crate::analysis::{Act, Analysis, Does, Fact, Flow, Step};
use crate::path::{Surroundings, classify};
use crate::rules::{self, Rule, Seen, reach};
use crate::span::Span;
use crate::text::Text;

/// What of a subject is shown, at most.
const MOST_SUBJECT: usize = 240;
/// Findings that are told. More of them decide, too, and are not listed.
const MOST_FINDINGS: usize = 64;

/// Commands of the shell itself that touch nothing: a list of programs need not name them.
const HARMLESS: &[&str] = &[
    ":", "[", "[[", "break", "cd", "continue", "declare", "echo", "exit", "false", "let", "local", "popd", "printf",
    "pushd", "pwd", "read", "readonly", "return", "shift", "test", "true", "typeset", "unset", "wait",
];

/// What else decides.
#[derive(Clone, Copy)]
pub struct Circumstances<'a> {
    /// How closely.
    pub level: ValidateLevel,
    /// Where it would run.
    pub surroundings: &'a Surroundings,
    /// Whether the policy allows a host, and a port of it where one is known.
    pub allows: &'a dyn Fn(&str, Option<u16>) -> bool,
    /// Whether somebody who may has allowed this very command: what would be asked about it is then allowed.
    pub vouches: &'a dyn Fn(&[Text]) -> bool,
    /// Under `strict`, the only programs.
    pub commands: &'a [String],
    /// Under `strict`, the only modules.
    pub modules: &'a [String],
}

impl std::fmt::Debug for Circumstances<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Circumstances").field("level", &self.level).finish_non_exhaustive()
    }
}

/// For [`Circumstances::allows`]: no host.
pub fn nothing_allowed(_host: &str, _port: Option<u16>) -> bool {
    false
}

/// For [`Circumstances::vouches`]: for no command.
pub fn nobody_vouches(_argv: &[Text]) -> bool {
    false
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// The strongest of the findings' verdicts; `allow` under `warn`.
    pub verdict: Verdict,
    /// In the order of the text, one for each rule and subject.
    pub findings: Vec<Finding>,
}

/// A rule that speaks of what was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The rule's stable name.
    pub rule: String,
    /// What the rule says at this level; under `warn`, what it would say at `standard`.
    pub verdict: Verdict,
    /// Where.
    pub span: Span,
    /// What it is about, short.
    pub subject: String,
    /// Why.
    pub reason: String,
    /// What to do instead.
    pub instead: String,
}

/// Holds the rules against `analysis`.
pub fn judge(analysis: &Analysis, circumstances: &Circumstances<'_>) -> Judgement {
    let mut judging = Judging { circumstances, findings: Vec::new(), verdict: Verdict::Allow };
    match circumstances.level {
        ValidateLevel::Off => {}
        ValidateLevel::Warn | ValidateLevel::Standard | ValidateLevel::Strict => {
            for step in &analysis.steps {
                judging.step(step, &[]);
            }
        }
    }
    let verdict = match circumstances.level {
        ValidateLevel::Off | ValidateLevel::Warn => Verdict::Allow,
        ValidateLevel::Standard | ValidateLevel::Strict => judging.verdict,
    };
    let mut findings = judging.findings;
    findings.sort_by_key(|finding| (finding.span, std::cmp::Reverse(finding.verdict)));
    Judgement { verdict, findings }
}

/// Whether somebody allowed the command that is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vouched {
    Yes,
    No,
}

struct Judging<'a> {
    circumstances: &'a Circumstances<'a>,
    findings: Vec<Finding>,
    verdict: Verdict,
}

impl<'a> Judging<'a> {
    fn step(&mut self, step: &'a Step, outer: &'a [Text]) {
        let surroundings = self.circumstances.surroundings;
        let mut argv = outer;
        // For what the command itself does. What it starts has words of its own.
        let mut vouched = Vouched::No;
        if let Does::Command { argv: words } = &step.does {
            argv = words;
            if self.circumstances.level == ValidateLevel::Standard
                && words.iter().all(|word| !word.has_hole())
                && (self.circumstances.vouches)(words)
            {
                vouched = Vouched::Yes;
            }
            let paths = if step.facts.iter().all(|act| !act.fact.tells_of_files()) {
                let looks = |word: &&Text| word.pieces().len() < 4 && word.known_start().contains(['/', '~']);
                words.iter().skip(1).filter(looks).map(|word| (word, classify(word, surroundings))).collect()
            } else {
                Vec::new()
            };
            let seen = Seen { fact: None, argv, classes: Vec::new(), paths, reach: None, surroundings };
            self.hold(&seen, None, step.span, vouched);
            self.hold_commands(words, step.span);
        }
        for Act { span, fact } in &step.facts {
            match fact {
                Fact::Leads { does: Some(does), .. } => self.fact(does, fact, argv, *span, vouched),
                Fact::Leads { to, does: None, .. } => {
                    let paths = vec![(to, classify(to, surroundings))];
                    let seen = Seen { fact: Some(fact), argv, classes: Vec::new(), paths, reach: None, surroundings };
                    self.hold(&seen, Some(fact), *span, vouched);
                }
                fact => self.fact(fact, fact, argv, *span, vouched),
            }
        }
        for inner in &step.inner {
            self.step(inner, argv);
        }
    }

    /// Holds the rules against what is done, which is told as `told`.
    fn fact(&mut self, fact: &Fact, told: &Fact, argv: &[Text], span: Span, vouched: Vouched) {
        let surroundings = self.circumstances.surroundings;
        let classes = match fact {
            Fact::Reads { path } | Fact::Writes { path } | Fact::Removes { path, .. } | Fact::Changes { path, .. } => {
                classify(path, surroundings)
            }
            _ => Vec::new(),
        };
        let reach = match fact {
            Fact::Contacts { place, .. } => Some(reach(place, self.circumstances.allows)),
            _ => None,
        };
        let seen = Seen { fact: Some(fact), argv, classes, paths: Vec::new(), reach, surroundings };
        self.hold(&seen, Some(told), span, vouched);
        if let Fact::Imports { module } = fact {
            self.hold_modules(module, span);
        }
    }

    fn hold(&mut self, seen: &Seen<'_>, told: Option<&Fact>, span: Span, vouched: Vouched) {
        for rule in rules::about(seen) {
            match rule {
                Ok(rule) if rule.covers(seen) => self.find(rule, seen.argv, told, span, vouched),
                Ok(_) => {}
                Err(why) => self.add(broken(why)),
            }
        }
    }

    fn find(&mut self, rule: &Rule, argv: &[Text], told: Option<&Fact>, span: Span, vouched: Vouched) {
        let verdict = match (self.circumstances.level, rule.verdict) {
            (ValidateLevel::Strict, Verdict::Ask) => Verdict::Deny,
            // Nobody vouches for what the words do not show.
            (ValidateLevel::Standard, Verdict::Ask)
                if vouched == Vouched::Yes && told.is_none_or(|fact| is_in_words(fact, argv)) =>
            {
                Verdict::Allow
            }
            (_, verdict) => verdict,
        };
        let subject = told.map_or_else(|| command_line(argv), ToString::to_string);
        self.add(Finding {
            rule: rule.id.clone(),
            verdict,
            span,
            subject: shorten(&subject),
            reason: rule.why.clone(),
            instead: rule.instead.clone(),
        });
    }

    /// Under `strict` a program that is not listed is denied, and so is one whose name is not known.
    fn hold_commands(&mut self, argv: &[Text], span: Span) {
        let name = argv.first().and_then(Text::as_known).map(|name| name.rsplit('/').next().unwrap_or(name));
        let is_listed =
            |name: &str| HARMLESS.contains(&name) || self.circumstances.commands.iter().any(|listed| listed == name);
        if self.circumstances.level == ValidateLevel::Strict && !name.is_some_and(is_listed) {
            self.add(Finding {
                rule: "strict.command".to_owned(),
                verdict: Verdict::Deny,
                span,
                subject: shorten(&command_line(argv)),
                reason: "only listed commands run, and this is none of them".to_owned(),
                instead: "Use a listed command, or tell the person you work for what you need.".to_owned(),
            });
        }
    }

    /// A listed module covers those below it.
    fn hold_modules(&mut self, module: &Text, span: Span) {
        let covers = |listed: &str, name: &str| {
            name.strip_prefix(listed).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '/']))
        };
        let is_listed = |name: &str| {
            let name = name.strip_prefix("node:").unwrap_or(name);
            name.starts_with('.') || self.circumstances.modules.iter().any(|listed| covers(listed, name))
        };
        if self.circumstances.level == ValidateLevel::Strict && !module.as_known().is_some_and(is_listed) {
            self.add(Finding {
                rule: "strict.module".to_owned(),
                verdict: Verdict::Deny,
                span,
                subject: shorten(&format!("imports {module}")),
                reason: "only listed modules are imported, and this is none of them".to_owned(),
                instead: "Use a listed module, or tell the person you work for what you need.".to_owned(),
            });
        }
    }

    fn add(&mut self, finding: Finding) {
        self.verdict = self.verdict.max(finding.verdict);
        let is_known = |known: &Finding| {
            known.rule == finding.rule && known.subject == finding.subject && known.verdict == finding.verdict
        };
        if self.findings.iter().any(is_known) {
            return;
        }
        if self.findings.len() < MOST_FINDINGS {
            return self.findings.push(finding);
        }
        // Nobody can say yes to what is not told: a question that does not fit is a denial. A denial takes the place of a question.
        let weaker = self.findings.iter_mut().find(|known| known.verdict < finding.verdict);
        self.verdict = Verdict::Deny;
        if let Some(weaker) = weaker {
            *weaker = finding;
        }
    }
}

/// Whether the words themselves show it. What comes in by a pipe, a redirection or a variable was not allowed with them.
fn is_in_words(fact: &Fact, argv: &[Text]) -> bool {
    let shows = |path: &str| {
        let in_word = |word: &Text| {
            // Whole, or as the value of an option: a word that only ends alike could vouch for what a redirection brings.
            let word = word.to_string();
            word == path || word.strip_suffix(path).is_some_and(|before| before.ends_with(['=', '@']))
        };
        !path.is_empty() && argv.iter().skip(1).any(in_word)
    };
    let from_words = |flow: &Flow| match flow {
        Flow::File { path } => shows(path),
        Flow::Literal => true,
        Flow::Input | Flow::Network | Flow::Environment | Flow::Decoded | Flow::Unknown => false,
    };
    match fact {
        Fact::Reads { path } | Fact::Writes { path } | Fact::Removes { path, .. } | Fact::Changes { path, .. } => {
            shows(&path.to_string())
        }
        Fact::Contacts { sends, .. } => sends.iter().all(from_words),
        Fact::Executes { from } => from.iter().all(from_words),
        Fact::ReadsEnvironment { name } => name.as_ref().is_some_and(|name| shows(&name.to_string())),
        Fact::Privilege { .. } | Fact::System { .. } => true,
        Fact::Imports { .. }
        | Fact::Calls { .. }
        | Fact::SetsEnvironment { .. }
        | Fact::Tricks { .. }
        // Where a link leads was not said by whoever allowed the words.
        | Fact::Leads { .. }
        | Fact::Unknown { .. } => false,
    }
}

/// A rule that could speak of what was seen, and cannot be read.
fn broken(why: &str) -> Finding {
    Finding {
        rule: "rules.broken".to_owned(),
        verdict: Verdict::Deny,
        span: Span::default(),
        subject: "the built-in rules".to_owned(),
        reason: format!("they cannot be read: {why}"),
        instead: "Tell the person you work for.".to_owned(),
    }
}

fn command_line(argv: &[Text]) -> String {
    argv.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn shorten(text: &str) -> String {
    if text.len() <= MOST_SUBJECT {
        return text.to_owned();
    }
    // The beginning and the end: what matters may stand in either.
    let start = text.floor_char_boundary(MOST_SUBJECT / 2);
    let end = text.ceil_char_boundary(text.len() - MOST_SUBJECT / 2);
    format!("{} … {}", text.get(..start).unwrap_or_default(), text.get(end..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Unknown;

    fn command(words: &[&str], facts: Vec<Fact>) -> Analysis {
        let span = Span::new(0, 4);
        let facts = facts.into_iter().map(|fact| Act { span, fact }).collect();
        let argv = words.iter().map(|word| Text::known(*word)).collect();
        Analysis { steps: vec![Step { span, does: Does::Command { argv }, facts, inner: Vec::new() }] }
    }

    fn judged(analysis: &Analysis, level: ValidateLevel) -> (Verdict, Vec<String>) {
        let surroundings = Surroundings::default();
        let (commands, modules) = (["git".to_owned()], ["json".to_owned(), "os".to_owned()]);
        let circumstances = Circumstances {
            level,
            surroundings: &surroundings,
            allows: &nothing_allowed,
            vouches: &nobody_vouches,
            commands: &commands,
            modules: &modules,
        };
        let judgement = judge(analysis, &circumstances);
        (judgement.verdict, judgement.findings.into_iter().map(|finding| finding.rule).collect())
    }

    #[test]
    fn unreadable_text_is_denied_told_under_warn_and_nothing_when_off() {
        let unknown = Unknown::Unreadable { why: "a quote is open".to_owned() };
        let analysis = command(&["git"], vec![Fact::Unknown { unknown }]);
        let rule = vec!["unknown.unreadable".to_owned()];
        assert_eq!(judged(&analysis, ValidateLevel::Standard), (Verdict::Deny, rule.clone()));
        assert_eq!(judged(&analysis, ValidateLevel::Strict), (Verdict::Deny, rule.clone()));
        assert_eq!(judged(&analysis, ValidateLevel::Warn), (Verdict::Allow, rule));
        assert_eq!(judged(&analysis, ValidateLevel::Off), (Verdict::Allow, Vec::new()));
    }

    #[test]
    fn strict_denies_what_standard_asks_about_and_whatever_is_not_listed() {
        let asks = command(&["git"], vec![Fact::Unknown { unknown: Unknown::Program }]);
        assert_eq!(judged(&asks, ValidateLevel::Standard).0, Verdict::Ask);
        assert_eq!(judged(&asks, ValidateLevel::Strict).0, Verdict::Deny);
        assert_eq!(judged(&command(&["/usr/bin/git", "status"], Vec::new()), ValidateLevel::Strict).0, Verdict::Allow);
        assert_eq!(judged(&command(&["cd", "src"], Vec::new()), ValidateLevel::Strict).0, Verdict::Allow);
        let other = judged(&command(&["make"], Vec::new()), ValidateLevel::Strict);
        assert_eq!(other, (Verdict::Deny, vec!["strict.command".to_owned()]));
        assert_eq!(judged(&command(&["make"], Vec::new()), ValidateLevel::Standard).0, Verdict::Allow);
        let imports = |module: &str| {
            let fact = Fact::Imports { module: Text::known(module) };
            judged(&command(&["git"], vec![fact]), ValidateLevel::Strict).0
        };
        assert_eq!(
            (imports("json"), imports("os.path"), imports("osx"), imports("socket")),
            (Verdict::Allow, Verdict::Allow, Verdict::Deny, Verdict::Deny)
        );
    }

    #[test]
    fn more_findings_than_are_told_still_decide() {
        let fact =
            |n: usize| Fact::Removes { path: Text::known(format!("/usr/lib/{n}")), removal: crate::Removal::Tree };
        let mut facts: Vec<Fact> = (0..200).map(fact).collect();
        facts.push(Fact::Unknown { unknown: Unknown::Disagreement });
        let (verdict, findings) = judged(&command(&["git"], facts), ValidateLevel::Standard);
        assert_eq!(verdict, Verdict::Deny);
        assert!(findings.len() <= MOST_FINDINGS);
    }

    #[test]
    fn a_denial_behind_many_questions_is_told_and_questions_that_cannot_be_told_are_denials() {
        let question = |n: usize| Fact::Reads { path: Text::known(format!("{n}/.env")) };
        let few: Vec<Fact> = (0..3).map(question).collect();
        let (verdict, findings) = judged(&command(&["cat"], few), ValidateLevel::Standard);
        assert_eq!((verdict, findings.len()), (Verdict::Ask, 3), "the twin: these are questions");
        let mut many: Vec<Fact> = (0..MOST_FINDINGS + 9).map(question).collect();
        let (verdict, _) = judged(&command(&["cat"], many.clone()), ValidateLevel::Standard);
        assert_eq!(verdict, Verdict::Deny, "some would be asked about by nobody");
        many.push(Fact::Removes { path: Text::known("/usr/lib"), removal: crate::Removal::Tree });
        let (verdict, findings) = judged(&command(&["cat"], many), ValidateLevel::Standard);
        assert_eq!((verdict, findings.len()), (Verdict::Deny, MOST_FINDINGS));
        assert!(findings.iter().any(|rule| rule.starts_with("delete.")), "{findings:?}");
    }
}
