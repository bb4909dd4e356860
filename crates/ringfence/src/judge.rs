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

/// Judges what `analysis` found, and asks `approver` where the policy says so.
pub async fn judge(
    work: &Work,
    analysis: &Analysis,
    policy: &ResolvedPolicy,
    approver: &dyn Approver,
) -> Result<Cleared, Refusal> {
    let mut question = None;
    for argv in &analysis.commands {
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let Some(rule) = decide(&policy.commands, &words) else { continue };
        match rule.value.verdict {
            Verdict::Allow => {}
            Verdict::Deny => return Err(deny(argv, rule)),
            Verdict::Ask => {
                question.get_or_insert_with(|| Question {
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
    if question.is_none()
        && let Some(Unknown::Shell(not_plain)) = &analysis.unknown
        && policy.commands.iter().any(|rule| rule.value.verdict != Verdict::Allow)
    {
        // A rule that could not be held against the line must not count as passed.
        question = Some(Question {
            ask: Ask {
                subject: describe(work),
                rule: "commands.unreadable".to_owned(),
                reason: format!("the policy has command rules, and this line cannot be held against them: {not_plain}"),
            },
            origin: None,
            instead: Some("Write it as plain commands without expansions or redirections.".to_owned()),
        });
    }
    let Some(Question { ask, origin, instead }) = question else { return Ok(Cleared { approved_by: None }) };
    let reason = match approver.decide(&ask).await {
        Approval::Granted { by } => return Ok(Cleared { approved_by: Some(by) }),
        Approval::Denied { reason } => reason,
    };
    let refusal =
        Refusal::new(&ask.rule, format!("`{}` needs approval", ask.subject), format!("{}, and {reason}", ask.reason))
            .hint("allow it by a rule under `commands`, or run it where somebody can answer")
            .instead(
                instead.unwrap_or_else(|| {
                    "Use another command, or tell the person you work for what you need.".to_owned()
                }),
            );
    Err(match &origin {
        Some(origin) => refusal.at(origin),
        None => refusal,
    })
}

/// A question, the place of the rule that asks, and what the rule recommends.
struct Question {
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
