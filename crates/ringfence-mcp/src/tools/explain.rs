//! `explain`: what would become of something, without doing it.

use ringfence::analysis::surroundings;
use ringfence::explain::request::foresee;
use ringfence::explain::{Question, explain as explain_host};
use ringfence::{Language, Request};
use ringfence_policy::Verdict;
use serde::Deserialize;
use serde_json::json;

use super::{Problem, Said, run};
use crate::call::Call;

const MOST_FINDINGS: usize = 20;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Arguments {
    code: Option<String>,
    language: Option<Language>,
    command: Option<String>,
    argv: Option<Vec<String>>,
    host: Option<String>,
    method: Option<String>,
    path: Option<String>,
}

pub(super) fn explain(call: &Call, arguments: &Arguments) -> Result<Said, Problem> {
    let Arguments { code, language, command, argv, host, method, path } = arguments;
    if let Some(host) = host {
        if code.is_some() || language.is_some() || command.is_some() || argv.is_some() {
            return Err(Problem::fixable("give a host or something to run, not both"));
        }
        return of_host(call, host, method.as_deref(), path.as_deref());
    }
    if method.is_some() || path.is_some() {
        return Err(Problem::fixable("`method` and `path` belong to `host`"));
    }
    let work = run::work(code.clone(), *language, command.clone(), argv.clone())?;
    let request = Request::new(work);
    request.check().map_err(|error| Problem::fixable(error.to_string()))?;
    let setup = &call.shared.setup;
    let around = surroundings(&request, &setup.workspace, setup.home.as_deref());
    let foreseen = foresee(&request.work, setup.engine.policy(), &around, &setup.workspace);
    let (word, meaning) = match foreseen.verdict {
        Verdict::Allow => ("allow", "It would be run, behind the wall."),
        Verdict::Ask => ("ask", "A person would be asked first."),
        Verdict::Deny => ("deny", "It would be refused."),
    };
    let mut text = meaning.to_owned();
    for finding in foreseen.findings.iter().take(MOST_FINDINGS) {
        text.push_str(&format!(
            "\n{}: it {}; {}\n  instead: {}",
            finding.rule, finding.subject, finding.reason, finding.instead
        ));
    }
    let findings: Vec<_> = foreseen.findings.iter().take(MOST_FINDINGS).collect();
    Ok(Said::well(text, json!({ "verdict": word, "subject": foreseen.subject, "findings": findings })))
}

fn of_host(call: &Call, host: &str, method: Option<&str>, path: Option<&str>) -> Result<Said, Problem> {
    let question = Question::read(host, method, path).map_err(|error| Problem::fixable(error.to_string()))?;
    let explained = explain_host(&call.shared.setup.loaded, &question);
    let verdict = if explained.allowed { "allow" } else { "deny" };
    let meaning = if explained.allowed { "It would be let through" } else { "It would be denied" };
    let mut text = format!("{meaning}: {}\nrule: {}", explained.subject, explained.rule);
    if let Some(why) = &explained.why {
        text.push_str(&format!("\nreason: {why}"));
    }
    if let Some(hint) = &explained.hint {
        text.push_str(&format!("\nfor a person: {hint}"));
    }
    let structured = json!({
        "verdict": verdict,
        "subject": explained.subject,
        "rule": explained.rule,
        "reason": explained.why,
        "hint": explained.hint,
    });
    Ok(Said::well(text, structured))
}
