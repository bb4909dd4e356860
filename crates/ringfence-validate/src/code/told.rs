//! Facts as one line each, for tests of the languages.

use std::cell::RefCell;

use crate::{Act, Change, Does, Fact, Flow, Language, Limits, Step, Subject, Surroundings, Unknown, analyse};

thread_local! {
    /// Commands and shell lines that were handed to their readers.
    static HANDED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Notes what is handed on: what its reader makes of it is that reader's test.
pub(super) fn hand_on(line: String) {
    HANDED.with_borrow_mut(|handed| handed.push(line));
}

/// Every fact of a program, one line each, and what it hands on.
pub(crate) fn facts(language: Language, source: &str) -> Vec<String> {
    HANDED.with_borrow_mut(Vec::clear);
    let analysis = analyse(Subject::Code { language, source }, &Surroundings::default(), &Limits::default());
    let mut lines = Vec::new();
    analysis.steps.iter().for_each(|step| tell(step, &mut lines));
    lines.extend(HANDED.with_borrow_mut(std::mem::take));
    lines
}

/// The program shows each of the facts.
pub(crate) fn hostile(language: Language, source: &str, expected: &[&str]) {
    let lines = facts(language, source);
    for fact in expected {
        assert!(lines.iter().any(|line| line.contains(fact)), "no `{fact}` in\n{source}\nonly {lines:#?}");
    }
}

/// The program shows nothing that an ordinary one does not.
pub(crate) fn ordinary(language: Language, source: &str) {
    let strange: Vec<String> = facts(language, source)
        .into_iter()
        .filter(|line| {
            ["trick", "privilege", "system", "executes", "unreadable", "too much"]
                .iter()
                .any(|word| line.starts_with(word))
        })
        .collect();
    assert!(strange.is_empty(), "{strange:#?} in\n{source}");
}

fn tell(step: &Step, lines: &mut Vec<String>) {
    if let Does::Code { language: Language::Python | Language::JavaScript | Language::TypeScript } = &step.does {
        lines.extend(step.facts.iter().map(line));
        step.inner.iter().for_each(|inner| tell(inner, lines));
    }
}

fn line(act: &Act) -> String {
    match &act.fact {
        Fact::Reads { path } => format!("reads {path}"),
        Fact::Writes { path } => format!("writes {path}"),
        Fact::Removes { path, removal } => format!("removes {removal:?} {path}"),
        Fact::Changes { path, change: Change::Mode { mode, .. } } => format!("mode {mode} {path}"),
        Fact::Changes { path, change: Change::Link { to } } => format!("link {path} {to}"),
        Fact::Changes { path, change } => format!("changes {change:?} {path}"),
        Fact::Contacts { place, contact, sends } => format!("contacts {contact:?} {place} [{}]", flows(sends)),
        Fact::Executes { from } => format!("executes {}", flows(from)),
        Fact::Imports { module } => format!("imports {module}"),
        Fact::Calls { name } => format!("calls {name}"),
        Fact::Privilege { privilege } => format!("privilege {privilege:?}"),
        Fact::System { act, about } => format!("system {act:?} {about}"),
        Fact::ReadsEnvironment { name: Some(name) } => format!("environment {name}"),
        Fact::ReadsEnvironment { name: None } => "environment *".to_owned(),
        Fact::SetsEnvironment { name, value } => format!("sets {name}={value}"),
        Fact::Tricks { trick } => format!("trick {trick:?}"),
        Fact::Unknown { unknown: Unknown::Unreadable { why } } => format!("unreadable: {why}"),
        Fact::Unknown { unknown: Unknown::TooMuch { bound } } => format!("too much: {bound}"),
        Fact::Leads { path, to, .. } => format!("leads {path} {to}"),
        Fact::Unknown { unknown } => format!("unknown {unknown:?}"),
    }
}

fn flows(flows: &[Flow]) -> String {
    let one = |flow: &Flow| match flow {
        Flow::File { path } => format!("File {path}"),
        other => format!("{other:?}"),
    };
    flows.iter().map(one).collect::<Vec<_>>().join(", ")
}
