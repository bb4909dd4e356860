//! Policy answers a request: allow, ask or deny.

use ringfence_policy::{CommandRule, Field, Origin, ResolvedPolicy, Sourced, Verdict, Widening, decide};

use crate::analysis::{Analysis, Unknown};
use crate::approve::{Approval, Approver, Ask};
use crate::redact::{redact, redact_argv};
use crate::refusal::Refusal;
use crate::request::Work;

/// Text of a request that is shown or written down, at most.
const MOST_SUBJECT: usize = 512;

/// The proof that a request was judged and, where that was asked for, approved. Only this module makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cleared {
    approved_by: Option<String>,
}

impl Cleared {
    /// Who answered a question, for the ledger.
    pub fn approved_by(&self) -> Option<&str> {
        self.approved_by.as_deref()
    }
}

/// Judges what `analysis` found, and asks `approver` where the policy says so: once for each command that a rule asks about, so that
/// nobody says yes to one that they were not shown. All have to be approved.
pub async fn judge(
    work: &Work,
    analysis: &Analysis,
    policy: &ResolvedPolicy,
    approver: &dyn Approver,
) -> Result<Cleared, Refusal> {
    let mut questions: Vec<Question<'_>> = Vec::new();
    for argv in &analysis.commands {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let Some(rule) = decide(&policy.commands, &words) else { continue };
        match rule.value.verdict {
            Verdict::Allow => {}
            Verdict::Deny => return Err(deny(argv, rule)),
            Verdict::Ask => {
                // The same command twice is one question; two that only look the same when shortened are two.
                if questions.iter().any(|known| known.argv == Some(argv.as_slice())) {
                    continue;
                }
                questions.push(Question {
                    argv: Some(argv.as_slice()),
                    ask: Ask {
                        subject: shorten(&redact_argv(argv).join(" ")),
                        rule: rule_name(&rule.value),
                        reason: rule.value.why.clone().unwrap_or_else(|| "the policy asks for it".to_owned()),
                    },
                    origin: Some(rule.origin.clone()),
                    instead: rule.value.instead.clone(),
                });
            }
        }
    }
    if let Some(Unknown::Shell(not_plain)) = &analysis.unknown
        && policy.commands.iter().any(|rule| rule.value.verdict != Verdict::Allow)
    {
        // A rule that could not be held against the line must not count as passed.
        questions.push(Question {
            argv: None,
            ask: Ask {
                subject: describe(work),
                rule: "commands.unreadable".to_owned(),
                reason: format!("the policy has command rules, and this line cannot be held against them: {not_plain}"),
            },
            origin: None,
            instead: Some("Write it as plain commands without expansions or redirections.".to_owned()),
        });
    }
    let mut approved_by: Vec<String> = Vec::new();
    for question in questions {
        match approver.decide(&question.ask).await {
            Approval::Granted { by } if approved_by.contains(&by) => {}
            Approval::Granted { by } => approved_by.push(by),
            Approval::Denied { reason } => return Err(not_approved(question, &reason)),
        }
    }
    Ok(Cleared { approved_by: (!approved_by.is_empty()).then(|| approved_by.join(", ")) })
}

fn not_approved(question: Question<'_>, reason: &str) -> Refusal {
    let Question { ask, origin, instead, .. } = question;
    let refusal =
        Refusal::new(&ask.rule, format!("`{}` needs approval", ask.subject), format!("{}, and {reason}", ask.reason))
            .hint("allow it by a rule under `commands`, or run it where somebody can answer")
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
    /// Nothing for a line that could not be read.
    argv: Option<&'a [String]>,
    ask: Ask,
    origin: Option<Origin>,
    instead: Option<String>,
}

fn deny(argv: &[String], rule: &Sourced<CommandRule>) -> Refusal {
    let subject = format!("`{}` may not be run", shorten(&redact_argv(argv).join(" ")));
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
        Work::Code { language, source, name } => match name {
            Some(name) => format!("{language} code {name} ({} bytes)", source.len()),
            None => format!("{language} code ({} bytes)", source.len()),
        },
        Work::Place => "a session".to_owned(),
    })
}

fn shorten(text: &str) -> String {
    if text.len() <= MOST_SUBJECT {
        return text.to_owned();
    }
    let mut end = MOST_SUBJECT;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}… ({} bytes)", &text[..end], text.len())
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
        let rules = "version: 1\ncommands:\n  - { ask: [echo, one], matches: [echo one] }\n  \
                     - { ask: [echo, publish], matches: [echo publish] }\n  - { deny: [rm], matches: [rm] }\n";
        let file = ringfence_policy::parse("p.yaml", rules).unwrap();
        let policy = resolve(&[LayerInput { layer: Layer::Project, file }], &[]).unwrap();
        let approver = AllBut { no, ..AllBut::default() };
        let work = Work::Shell(line.to_owned());
        let cleared = judge(&work, &analyse(&work), &policy, &approver).await;
        (cleared, approver.asked.into_inner().unwrap())
    }

    #[tokio::test]
    async fn each_command_that_a_rule_asks_about_is_a_question_and_all_have_to_be_approved() {
        let line = "echo one && echo publish --everything && echo one && echo two";
        let (cleared, asked) = judged(line, "").await;
        assert_eq!(asked, ["echo one", "echo publish --everything"]);
        assert_eq!(cleared.unwrap().approved_by(), Some("me"));
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
        let (cleared, asked) = judged("echo $HOME", "").await;
        assert_eq!((cleared.unwrap().approved_by(), asked), (Some("me"), vec!["echo $HOME".to_owned()]));
    }
}
