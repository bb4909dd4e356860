//! Policy answers a request: allow, ask or deny. Command rules are held against every command that was found, and the validator's
//! rules against everything else.

mod words;

use std::cell::LazyCell;
use std::time::Instant;

use ringfence_policy::{CommandRule, Field, NetMode, Origin, Reading, ResolvedPolicy, Sourced, Verdict, Widening};
use ringfence_validate::{
    Circumstances, Does, Fact, Finding, Language, Span, Surroundings, Text, Unknown, is_read_only,
};

use crate::analysis::Analysis;
use crate::approve::{Approval, Approved, Approver, Ask, SHORTENED, Standing};
use crate::redact::{redact, redact_argv};
use crate::refusal::Refusal;
use crate::request::Work;
use crate::written::hash_policy;

use words::{Held, hold};

/// Text of a request that is shown or written down, at most.
const MOST_SUBJECT: usize = 512;

/// The rule of a command some of whose words are only known when it runs.
const UNKNOWN_WORDS: &str = "commands.unknown-words";

/// The proof that a request was judged and, where that was asked for, approved. Only this module makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleared {
    approvals: Vec<Approved>,
    findings: Vec<Finding>,
    hosts: Vec<String>,
}

impl Cleared {
    /// Who answered a question, for the ledger.
    pub fn approved_by(&self) -> Option<String> {
        let mut names: Vec<&str> = Vec::new();
        for approved in &self.approvals {
            if !names.contains(&approved.by.as_str()) {
                names.push(&approved.by);
            }
        }
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Every answer.
    pub fn approvals(&self) -> &[Approved] {
        &self.approvals
    }

    /// What was found and let pass.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// A few of the hosts that it names, to tell why it may have failed.
    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }
}

/// Everything that decides besides the request.
#[derive(Debug, Clone, Copy)]
pub struct Judge<'a> {
    /// What is allowed.
    pub policy: &'a ResolvedPolicy,
    /// Where it would run.
    pub surroundings: &'a Surroundings,
    /// Who can be asked.
    pub approver: &'a dyn Approver,
    /// Who said "always" before.
    pub standing: &'a Standing,
}

impl Judge<'_> {
    /// Judges what `analysis` found, and asks where the policy says so: once for each command that a rule asks about and each finding,
    /// so that nobody says yes to one that they were not shown. All have to be approved. What is not asked about because it only reads
    /// is among the findings.
    pub async fn judge(&self, work: &Work, analysis: &Analysis) -> Result<Cleared, Refusal> {
        let (mut questions, passed) = self.hold_commands(analysis)?;
        if let Some(question) = hold_unreadable(self.policy, work, analysis) {
            questions.push(question);
        }
        let judgement = validate(analysis, self.policy, self.surroundings);
        let findings: Vec<Finding> = passed.into_iter().chain(judgement.findings.into_iter().map(redacted)).collect();
        match judgement.verdict {
            Verdict::Allow => {}
            Verdict::Ask => {
                questions.extend(findings.iter().filter(|finding| finding.verdict == Verdict::Ask).map(ask_about));
            }
            Verdict::Deny => {
                let denied = findings.iter().find(|finding| finding.verdict == Verdict::Deny);
                return Err(denied.map_or_else(|| self.deny_too_many(work), |finding| self.deny_finding(finding)));
            }
        }
        let approvals = self.ask_all(work, questions).await?;
        Ok(Cleared { approvals, findings, hosts: crate::analysis::hosts(analysis) })
    }

    /// The questions about commands, and those commands that only read and are not asked about.
    fn hold_commands<'a>(&'a self, analysis: &'a Analysis) -> Result<(Vec<Question<'a>>, Vec<Finding>), Refusal> {
        let mut questions: Vec<Question<'_>> = Vec::new();
        let mut passed: Vec<Finding> = Vec::new();
        let reads_only = LazyCell::new(|| is_read_only(analysis));
        for (argv, span) in analysis.commands() {
            // The same command twice is one question; two that only look the same when shortened are two.
            if questions.iter().any(|known| known.argv == Some(argv)) {
                continue;
            }
            let held = hold(&self.policy.commands, argv);
            if let Some(rule) = held.rule().filter(|rule| passes_reading(&rule.value) && *reads_only) {
                let found = only_reads(argv, span, rule);
                if !passed.iter().any(|known| known.rule == found.rule && known.subject == found.subject) {
                    passed.push(found);
                }
                continue;
            }
            match held {
                Held::Not => {}
                Held::By(rule) => match rule.value.verdict {
                    Verdict::Allow => {}
                    Verdict::Deny => return Err(deny(argv, rule)),
                    Verdict::Ask => questions.push(Question {
                        argv: Some(argv),
                        ask: Ask {
                            subject: command(argv),
                            rule: rule_name(&rule.value),
                            reason: rule.value.why.clone().unwrap_or_else(|| "the policy asks for it".to_owned()),
                        },
                        origin: Some(rule.origin.clone()),
                        instead: rule.value.instead.clone(),
                    }),
                },
                Held::Perhaps(rule) => questions.push(Question {
                    argv: Some(argv),
                    ask: Ask {
                        subject: command(argv),
                        rule: UNKNOWN_WORDS.to_owned(),
                        reason: format!(
                            "some of its words are only known when it runs, and then `{}` could hold",
                            rule_name(&rule.value)
                        ),
                    },
                    origin: Some(rule.origin.clone()),
                    instead: Some("Write the words themselves.".to_owned()),
                }),
            }
        }
        Ok((questions, passed))
    }

    async fn ask_all(&self, work: &Work, questions: Vec<Question<'_>>) -> Result<Vec<Approved>, Refusal> {
        let mut approvals = Vec::new();
        if questions.is_empty() {
            return Ok(approvals);
        }
        let policy = hash_policy(self.policy);
        let request = blake3::hash(format!("{policy}\0{work:?}").as_bytes()).to_hex().to_string();
        for question in questions {
            let Ask { rule, subject, .. } = &question.ask;
            let mut approved = |by: String, standing: bool| {
                let (rule, subject, request) = (rule.clone(), subject.clone(), request.clone());
                approvals.push(Approved { rule, subject, by, request, standing });
            };
            let may_stand = question.ask.may_stand();
            if let Some(by) = self.standing.find(rule, &policy, Instant::now()).filter(|_| may_stand) {
                approved(by, true);
                continue;
            }
            match self.approver.decide(&question.ask).await {
                Approval::Granted { by } => approved(by, false),
                Approval::GrantedAlways { by } => {
                    // Whoever answers may offer "always" for any rule: it is held to those that may stand here.
                    if may_stand {
                        self.standing.keep(rule, &policy, &by, Instant::now());
                    }
                    approved(by, false);
                }
                Approval::Denied { reason } | Approval::Absent { reason } => {
                    return Err(not_approved(question, &reason));
                }
            }
        }
        Ok(approvals)
    }

    /// More would have to be asked about than can be told.
    fn deny_too_many(&self, work: &Work) -> Refusal {
        let reason = "it does more that is doubtful than anybody could be asked about";
        Refusal::new("validate.too-many", format!("`{}` may not be run", describe(work)), reason)
            .at(&self.policy.validate.level.origin)
            .hint("run it in smaller parts, or read requests at a lower level of `validate`")
            .instead("Do it in several smaller requests.")
    }

    fn deny_finding(&self, finding: &Finding) -> Refusal {
        let level = &self.policy.validate.level;
        Refusal::new(&finding.rule, format!("it {}", finding.subject), finding.reason.clone())
            .at(&level.origin)
            .hint(format!("requests are read at `validate: {}`; a lower level lets it pass", level.value))
            .instead(format!("{} Do not retry the same by another way.", finding.instead))
    }
}

/// What the validator says under `policy`.
pub(crate) fn validate(
    analysis: &Analysis,
    policy: &ResolvedPolicy,
    surroundings: &Surroundings,
) -> ringfence_validate::Judgement {
    let allows = |host: &str, port: Option<u16>| match policy.net.mode.value {
        NetMode::None => false,
        NetMode::Open => true,
        NetMode::Allowlist => policy.net.allow.iter().any(|rule| {
            let is_port = port.is_none_or(|port| rule.value.ports.is_empty() || rule.value.ports.contains(&port));
            is_port && rule.value.host.covers_name(host)
        }),
    };
    let vouches = |argv: &[Text]| words::vouches(policy, argv);
    let names = |list: &[Sourced<String>]| -> Vec<String> { list.iter().map(|name| name.value.clone()).collect() };
    let circumstances = Circumstances {
        level: policy.validate.level.value,
        surroundings,
        allows: &allows,
        vouches: &vouches,
        commands: &names(&policy.validate.commands),
        modules: &names(&policy.validate.modules),
    };
    ringfence_validate::judge(analysis, &circumstances)
}

/// What the command rules say, without asking anybody.
pub(crate) fn about_commands(policy: &ResolvedPolicy, work: &Work, analysis: &Analysis) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let reads_only = LazyCell::new(|| is_read_only(analysis));
    for (argv, span) in analysis.commands() {
        let held = hold(&policy.commands, argv);
        if let Some(rule) = held.rule().filter(|rule| passes_reading(&rule.value) && *reads_only) {
            findings.push(only_reads(argv, span, rule));
            continue;
        }
        let (rule, verdict, name) = match held {
            Held::Not => continue,
            Held::By(rule) => (rule, rule.value.verdict, rule_name(&rule.value)),
            Held::Perhaps(rule) => (rule, Verdict::Ask, UNKNOWN_WORDS.to_owned()),
        };
        let subject = command(argv);
        let reason = rule.value.why.clone().unwrap_or_else(|| format!("the policy says so ({})", rule.origin));
        let instead = rule.value.instead.clone().unwrap_or_else(|| "Choose another approach.".to_owned());
        findings.push(Finding { rule: name, verdict, span, subject, reason, instead });
    }
    if let Some(question) = hold_unreadable(policy, work, analysis) {
        let Question { ask: Ask { subject, rule, reason }, instead, .. } = question;
        let instead = instead.unwrap_or_default();
        let span = Span::default();
        findings.push(Finding { rule, verdict: Verdict::Ask, span, subject, reason, instead });
    }
    findings
}

/// Whether a rule that asks has nothing against what only reads.
fn passes_reading(rule: &CommandRule) -> bool {
    rule.verdict == Verdict::Ask && rule.reading == Reading::Allow
}

/// A command that a rule would ask about, and does not.
fn only_reads(argv: &[Text], span: Span, rule: &Sourced<CommandRule>) -> Finding {
    Finding {
        rule: rule_name(&rule.value),
        verdict: Verdict::Allow,
        span,
        subject: command(argv),
        reason: format!("it only reads, and the rule asks about nothing that does ({})", rule.origin),
        instead: "Nothing has to be changed.".to_owned(),
    }
}

/// A rule that could not be held against the line must not count as passed.
fn hold_unreadable(policy: &ResolvedPolicy, work: &Work, analysis: &Analysis) -> Option<Question<'static>> {
    if !policy.commands.iter().any(|rule| rule.value.verdict != Verdict::Allow) {
        return None;
    }
    let unknown = analysis.all_steps().into_iter().find_map(|step| {
        let holds_commands = match &step.does {
            Does::Code { language: Language::Python | Language::JavaScript | Language::TypeScript } => false,
            Does::Code { language: Language::Shell | Language::Other }
            | Does::Command { .. }
            | Does::Pipeline
            | Does::Group => true,
        };
        step.facts.iter().filter(|_| holds_commands).find_map(|act| match &act.fact {
            Fact::Unknown {
                unknown: unknown @ (Unknown::Unreadable { .. } | Unknown::Disagreement | Unknown::TooMuch { .. }),
            } => Some(unknown),
            _ => None,
        })
    })?;
    Some(Question {
        argv: None,
        ask: Ask {
            subject: describe(work),
            rule: "commands.unreadable".to_owned(),
            reason: format!("the policy has command rules, and this line cannot be held against them: it {unknown}"),
        },
        origin: None,
        instead: Some("Write it as plain, complete commands.".to_owned()),
    })
}

fn redacted(finding: Finding) -> Finding {
    Finding { subject: redact(&finding.subject), ..finding }
}

fn ask_about<'a>(finding: &Finding) -> Question<'a> {
    Question {
        argv: None,
        ask: Ask { subject: shorten(&finding.subject), rule: finding.rule.clone(), reason: finding.reason.clone() },
        origin: None,
        instead: Some(finding.instead.clone()),
    }
}

/// A command in a few words, with secrets taken out.
fn command(argv: &[Text]) -> String {
    shorten(&redact_argv(&shown(argv)).join(" "))
}

/// The words as people read them: what is not known stands as `$name` or `…`.
fn shown(argv: &[Text]) -> Vec<String> {
    argv.iter().map(ToString::to_string).collect()
}

fn not_approved(question: Question<'_>, reason: &str) -> Refusal {
    let Question { ask, origin, instead, .. } = question;
    let refusal =
        Refusal::new(&ask.rule, format!("`{}` needs approval", ask.subject), format!("{}, and {reason}", ask.reason))
            .hint(match ask.rule.starts_with("commands.") {
                true => "allow it by a rule under `commands`, or run it where somebody can answer",
                false => "run it where somebody can answer, or read requests at a lower level of `validate`",
            })
            .instead(
                instead.unwrap_or_else(|| {
                    "Use another command, or tell the person you work for what you need.".to_owned()
                }),
            );
    match &origin {
        Some(origin) => refusal.at(origin),
        None => refusal,
    }
}

/// A question, the command that it is about, the place of the rule that asks, and what the rule recommends.
struct Question<'a> {
    /// Nothing for what is no command of its own.
    argv: Option<&'a [Text]>,
    ask: Ask,
    origin: Option<Origin>,
    instead: Option<String>,
}

fn deny(argv: &[Text], rule: &Sourced<CommandRule>) -> Refusal {
    let subject = format!("`{}` may not be run", command(argv));
    let reason = rule.value.why.clone().unwrap_or_else(|| "the policy denies it".to_owned());
    let refusal = Refusal::new(&rule_name(&rule.value), subject, reason)
        .at(&rule.origin)
        .hint("to permit it, change that rule under `commands`");
    match &rule.value.instead {
        Some(instead) => refusal.instead(format!("{instead} Do not retry the same by another way.")),
        None => {
            refusal.do_not_retry("This command is denied. Do not retry it by another way; choose another approach.")
        }
    }
}

/// Refuses overrides that would widen the policy.
pub(crate) fn refuse_widening(widenings: &[Widening], policy: &ResolvedPolicy) -> Refusal {
    let asked: Vec<String> = widenings
        .iter()
        .map(|widening| format!("`{}` asks for {} and may have {}", widening.field, widening.asked, widening.allowed))
        .collect();
    let name = |field: Field| format!("`{field}`");
    let is_grantable = |field: Field| policy.overrides.grantable.iter().any(|listed| listed.value == field);
    let missing: Vec<String> =
        widenings.iter().map(|widening| widening.field).filter(|field| !is_grantable(*field)).map(name).collect();
    let flags: Vec<String> = widenings.iter().map(|widening| format!("`--grant {}`", widening.field)).collect();
    let list = if missing.is_empty() {
        String::new()
    } else {
        format!("list {} under `overrides.grantable` there and ", missing.join(", "))
    };
    let refusal =
        Refusal::new("overrides.narrow-only", "the request asks for more than the policy allows", asked.join("; "))
            .hint(format!("write it into the policy, or {list}pass {}", flags.join(" ")))
            .instead("Ask for no more than is allowed. A call can only narrow the policy.");
    match widenings.first() {
        Some(widening) => refusal.at(&widening.origin),
        None => refusal,
    }
}

fn rule_name(rule: &CommandRule) -> String {
    let verdict = match rule.verdict {
        Verdict::Allow => "allow",
        Verdict::Ask => "ask",
        Verdict::Deny => "deny",
    };
    format!("commands.{verdict} {}", shorten(&rule.prefix.join(" ")))
}

/// What is to be run in a few words, with secrets taken out.
pub(crate) fn describe(work: &Work) -> String {
    shorten(&match work {
        Work::Argv(argv) => {
            let argv: Vec<_> = argv.iter().map(|argument| argument.to_string_lossy()).collect();
            redact_argv(&argv).join(" ")
        }
        Work::Shell(line) => redact(line),
        Work::Code { language, source, name, interpreter } => {
            let name = name.as_ref().map(|name| format!(" {name}")).unwrap_or_default();
            let by = interpreter.as_ref().map(|named| format!(" by {}", named.program())).unwrap_or_default();
            format!("{language} code{name}{by} ({} bytes)", source.len())
        }
        Work::Place => "a session".to_owned(),
    })
}

/// The beginning and the end: what matters may stand in either.
fn shorten(text: &str) -> String {
    if text.len() <= MOST_SUBJECT {
        return text.to_owned();
    }
    let start = text.floor_char_boundary(MOST_SUBJECT / 2);
    let end = text.ceil_char_boundary(text.len() - MOST_SUBJECT / 2);
    format!("{} … ({}{SHORTENED}{}", &text[..start], text.len(), &text[end..])
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use ringfence_policy::{Layer, LayerInput, resolve};

    use super::*;
    use crate::BoxFuture;
    use crate::analysis::analyse;

    /// Says yes to all but one, and remembers what it was asked.
    #[derive(Debug, Default)]
    struct AllBut {
        no: &'static str,
        asked: Mutex<Vec<String>>,
    }

    impl Approver for AllBut {
        fn decide<'a>(&'a self, ask: &'a Ask) -> BoxFuture<'a, Approval> {
            self.asked.lock().unwrap().push(ask.subject.clone());
            let answer = match ask.subject == self.no {
                true => Approval::Denied { reason: "no".to_owned() },
                false => Approval::Granted { by: "me".to_owned() },
            };
            Box::pin(async { answer })
        }
    }

    async fn judged(line: &str, no: &'static str) -> (Result<Cleared, Refusal>, Vec<String>) {
        judged_at("warn", line, no).await
    }

    async fn judged_at(level: &str, line: &str, no: &'static str) -> (Result<Cleared, Refusal>, Vec<String>) {
        let rules = "commands:\n  - { ask: [echo, one], matches: [echo one] }\n  \
                     - { ask: [echo, publish], matches: [echo publish] }\n  - { deny: [rm], matches: [rm] }\n";
        let rules = format!("version: 1\nvalidate: {level}\n{rules}");
        let file = ringfence_policy::parse("p.yaml", &rules).unwrap();
        let policy = resolve(&[LayerInput { layer: Layer::Project, file }], &[]).unwrap();
        let approver = AllBut { no, ..AllBut::default() };
        let work = Work::Shell(line.to_owned());
        let (surroundings, standing) = (Surroundings::default(), Standing::default());
        let judge = Judge { policy: &policy, surroundings: &surroundings, approver: &approver, standing: &standing };
        let cleared = judge.judge(&work, &analyse(&work, &surroundings)).await;
        (cleared, approver.asked.into_inner().unwrap())
    }

    #[tokio::test]
    async fn each_command_that_a_rule_asks_about_is_a_question_and_all_have_to_be_approved() {
        let line = "echo one && echo publish --everything && echo one && echo two";
        let (cleared, asked) = judged(line, "").await;
        assert_eq!(asked, ["echo one", "echo publish --everything"]);
        assert_eq!(cleared.unwrap().approved_by().as_deref(), Some("me"));
        let (refused, asked) = judged(line, "echo publish --everything").await;
        assert_eq!(asked.len(), 2);
        assert!(format!("{:?}", refused.unwrap_err()).contains("`echo publish --everything` needs approval"));
        let (refused, asked) = judged(line, "echo one").await;
        assert_eq!(asked, ["echo one"], "a no ends it");
        refused.unwrap_err();
    }

    #[tokio::test]
    async fn nobody_is_asked_about_what_is_denied_or_allowed_and_a_line_that_cannot_be_read_is_one_question() {
        let (denied, asked) = judged("echo one && rm x", "").await;
        assert_eq!(asked, Vec::<String>::new());
        denied.unwrap_err();
        let (cleared, asked) = judged("echo two", "").await;
        assert_eq!((cleared.unwrap().approved_by(), asked), (None, Vec::new()));
        let (cleared, asked) = judged("echo $WORD", "").await;
        assert_eq!((cleared.unwrap().approved_by().as_deref(), asked), (Some("me"), vec!["echo $WORD".to_owned()]));
        let (cleared, asked) = judged("ls $HOME", "").await;
        assert_eq!((cleared.unwrap().approved_by(), asked), (None, Vec::new()), "no rule begins with ls");
    }

    #[tokio::test]
    async fn command_rules_hold_for_commands_within_commands() {
        for line in ["echo $(rm x)", "bash -c 'rm x'", "env A=1 rm x", "x=rm; $x y", "echo two; (rm x)"] {
            let (denied, _) = judged(line, "").await;
            assert!(denied.unwrap_err().rule.starts_with("commands.deny rm"), "{line}");
        }
        let (cleared, asked) = judged("echo two | wc -l", "").await;
        assert_eq!((cleared.unwrap().approvals().len(), asked), (0, Vec::new()), "the twin");
    }

    async fn judged_with(layers: &[(Layer, &str)], line: &str) -> (Result<Cleared, Refusal>, Vec<String>) {
        let parse = |rules: &str| ringfence_policy::parse("p.yaml", &format!("version: 1\n{rules}\n")).unwrap();
        let layers: Vec<LayerInput> =
            layers.iter().map(|(layer, rules)| LayerInput { layer: layer.clone(), file: parse(rules) }).collect();
        let policy = resolve(&layers, &[]).unwrap();
        let approver = AllBut { no: "nothing", ..AllBut::default() };
        let work = Work::Shell(line.to_owned());
        let (surroundings, standing) = (Surroundings::default(), Standing::default());
        let judge = Judge { policy: &policy, surroundings: &surroundings, approver: &approver, standing: &standing };
        let cleared = judge.judge(&work, &analyse(&work, &surroundings)).await;
        (cleared, approver.asked.into_inner().unwrap())
    }

    async fn asked_with(layers: &[(Layer, &str)], line: &str) -> Vec<String> {
        let (cleared, mut asked) = judged_with(layers, line).await;
        if let Err(refusal) = cleared {
            asked.push(format!("denied by {}", refusal.rule));
        }
        asked
    }

    #[tokio::test]
    async fn a_command_that_somebody_allows_is_not_asked_about_and_stays_denied_where_it_was() {
        let cat = "commands:\n  - { allow: [cat, .env], matches: [cat .env] }\n  - { allow: [cat, /etc/shadow], matches: [cat /etc/shadow] }";
        let none: Vec<String> = Vec::new();
        for layer in [Layer::User, Layer::Project, Layer::Operator] {
            assert_eq!(asked_with(&[(layer.clone(), cat)], "cat .env").await, none, "{layer:?}");
            assert_eq!(asked_with(&[(layer, cat)], "cat /etc/shadow").await, ["denied by secret.read"]);
        }
        assert_eq!(asked_with(&[(Layer::User, "")], "cat .env").await.len(), 1, "the twin");
        // Only these words: no others, not what goes in or out beside them, and no other program of that name.
        for line in
            ["cat .env.production", "cat < .env", "head .env", "/tmp/x/cat .env", "p=.env; cat $p $Q", "tail -1 .env"]
        {
            assert_eq!(asked_with(&[(Layer::User, cat)], line).await.len(), 1, "{line}");
        }
        let echo = "commands:\n  - { allow: [echo], matches: [echo x] }";
        for line in
            ["echo x > ~/.aws/credentials", "echo s > ~/.aws/credentials", "echo credentials > ~/.aws/credentials"]
        {
            assert_eq!(asked_with(&[(Layer::User, echo)], line).await.len(), 1, "{line}");
        }
        assert_eq!(asked_with(&[(Layer::User, cat)], "bash -c 'cat .env'").await, none, "also within another");
    }

    #[tokio::test]
    async fn a_project_silences_nothing_that_the_operator_demands_and_a_stricter_rule_counts() {
        let cat = "commands:\n  - { allow: [cat, .env], matches: [cat .env] }";
        let level = "validate: standard";
        let none: Vec<String> = Vec::new();
        assert_eq!(asked_with(&[(Layer::Project, cat), (Layer::Operator, level)], "cat .env").await.len(), 1);
        assert_eq!(asked_with(&[(Layer::User, cat), (Layer::Operator, level)], "cat .env").await.len(), 1);
        let both = format!("{level}\n{cat}");
        assert_eq!(asked_with(&[(Layer::Operator, &both)], "cat .env").await, none, "the operator may");
        let strict = "validate: strict";
        let denied = asked_with(&[(Layer::User, cat), (Layer::Operator, strict)], "cat .env").await;
        assert!(denied.last().is_some_and(|last| last.starts_with("denied")), "{denied:?}");
        let ask = "commands:\n  - { ask: [cat], matches: [cat x] }";
        let asked = asked_with(&[(Layer::User, cat), (Layer::Operator, ask)], "cat .env").await;
        assert!(!asked.is_empty(), "the operator asks about all of cat");
    }

    #[tokio::test]
    async fn what_only_reads_is_not_asked_about_where_the_rule_says_so_and_is_told() {
        let rule = "commands:\n  - { ask: [git], reading: allow, matches: [git x] }";
        for line in ["git status", "git log --oneline | head", "cd src && git diff", "timeout 5 git log"] {
            let (cleared, asked) = judged_with(&[(Layer::User, rule)], line).await;
            let cleared = cleared.unwrap();
            let told: Vec<_> = cleared.findings().iter().map(|it| (it.rule.as_str(), it.verdict)).collect();
            assert_eq!((asked, told), (Vec::new(), vec![("commands.ask git", Verdict::Allow)]), "{line}");
            assert_eq!((cleared.approvals().len(), cleared.approved_by()), (0, None), "nobody approved it");
        }
        for line in [
            "git push",
            "git -c core.pager=x log",
            "git log --output=x",
            "git log > f",
            "git log | tee f",
            "git status && make",
            "git log $REVISION",
            "git log *",
            "GIT_PAGER=x git log",
            "git log $(git push)",
            "./git log",
            "git stash",
        ] {
            assert!(!asked_with(&[(Layer::User, rule)], line).await.is_empty(), "{line}");
        }
        // The twin: without the key every one of them is asked about.
        let asks = "commands:\n  - { ask: [git], matches: [git x] }";
        for line in ["git status", "git log --oneline | head", "timeout 5 git log"] {
            assert_eq!(asked_with(&[(Layer::User, asks)], line).await.len(), 1, "{line}");
        }
    }

    #[tokio::test]
    async fn reading_passes_no_operator_who_asks_no_denial_and_no_finding() {
        let passes = "commands:\n  - { ask: [cat], reading: allow, matches: [cat x] }";
        let none: Vec<String> = Vec::new();
        for level in ["off", "warn", "standard", "strict"] {
            let level = format!("validate: {{ level: {level}, commands: [cat] }}\n{passes}");
            assert_eq!(asked_with(&[(Layer::User, &level)], "cat x").await, none, "{level}");
        }
        let asks = "commands:\n  - { ask: [cat], matches: [cat x] }";
        assert_eq!(asked_with(&[(Layer::Project, passes), (Layer::Operator, asks)], "cat x").await, ["cat x"]);
        assert_eq!(asked_with(&[(Layer::Operator, passes), (Layer::Project, asks)], "cat x").await, ["cat x"]);
        let denies = "commands:\n  - { deny: [cat], matches: [cat x] }";
        let denied = asked_with(&[(Layer::Project, passes), (Layer::Operator, denies)], "cat x").await;
        assert_eq!(denied, ["denied by commands.deny cat"]);
        assert_eq!(asked_with(&[(Layer::User, passes)], "cat ~/.ssh/id_rsa").await, ["denied by secret.read"]);
        assert_eq!(asked_with(&[(Layer::User, passes)], "cat .env").await.len(), 1, "the validator's own question");
        // A longer rule that could hold asks about all.
        let longer = "commands:\n  - { ask: [ls], reading: allow, matches: [ls] }\n  - { ask: [ls, secret], matches: [ls secret] }";
        assert_eq!(asked_with(&[(Layer::User, longer)], "ls s*").await, ["ls s*"]);
        assert_eq!(asked_with(&[(Layer::User, longer)], "ls x*").await, none);
    }

    #[tokio::test]
    async fn what_is_found_is_denied_or_asked_about_and_told_under_warn() {
        let (denied, asked) = judged_at("standard", "rm -rf build; echo x > /etc/hosts", "").await;
        assert_eq!(asked, Vec::<String>::new());
        assert!(denied.unwrap_err().rule.starts_with("commands.deny"), "the policy's own rules come first");
        let (denied, asked) = judged_at("standard", "echo x > /etc/hosts", "").await;
        let refusal = denied.unwrap_err();
        assert_eq!((refusal.rule.as_str(), asked.len()), ("write.system", 0));
        assert!(refusal.advice.contains("Do not retry"), "{refusal:?}");
        let (cleared, asked) = judged_at("standard", "cat .env", "").await;
        let cleared = cleared.unwrap();
        assert_eq!((asked.len(), cleared.approvals()[0].rule.as_str()), (1, "secret.workspace"));
        assert_eq!(cleared.approvals()[0].request.len(), 64);
        let (cleared, asked) = judged_at("warn", "echo x > /etc/hosts", "").await;
        assert_eq!((asked.len(), cleared.unwrap().findings()[0].rule.as_str()), (0, "write.system"));
        let (cleared, _) = judged_at("off", "echo x > /etc/hosts", "").await;
        assert_eq!(cleared.unwrap().findings(), []);
    }
}
