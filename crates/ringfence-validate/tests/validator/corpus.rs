//! The corpus: one case in each line, or several lines between two lines of `~~~`. A line `#: NAME` begins a category.

use ringfence_policy::{ValidateLevel, Verdict};
use ringfence_validate::{
    Circumstances, Judgement, Language, Limits, Subject, Surroundings, analyse, judge, nobody_vouches, nothing_allowed,
};

/// What a case is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Label {
    Dangerous,
    Ordinary,
}

/// One labelled request.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) language: Language,
    pub(crate) label: Label,
    pub(crate) category: String,
    pub(crate) text: String,
}

const FILES: [(Language, Label, &str); 8] = [
    (Language::Shell, Label::Dangerous, include_str!("../../corpus/shell.dangerous.txt")),
    (Language::Python, Label::Dangerous, include_str!("../../corpus/python.dangerous.txt")),
    (Language::JavaScript, Label::Dangerous, include_str!("../../corpus/javascript.dangerous.txt")),
    (Language::TypeScript, Label::Dangerous, include_str!("../../corpus/typescript.dangerous.txt")),
    (Language::Shell, Label::Ordinary, include_str!("../../corpus/shell.ordinary.txt")),
    (Language::Python, Label::Ordinary, include_str!("../../corpus/python.ordinary.txt")),
    (Language::JavaScript, Label::Ordinary, include_str!("../../corpus/javascript.ordinary.txt")),
    (Language::TypeScript, Label::Ordinary, include_str!("../../corpus/typescript.ordinary.txt")),
];

/// The names of [`FILES`], in the same order.
const NAMES: [&str; 8] = [
    "shell.dangerous.txt",
    "python.dangerous.txt",
    "javascript.dangerous.txt",
    "typescript.dangerous.txt",
    "shell.ordinary.txt",
    "python.ordinary.txt",
    "javascript.ordinary.txt",
    "typescript.ordinary.txt",
];

/// Written by somebody who had not seen the rules, and not looked at while those were made.
const APART: [(Language, Label, &str); 7] = [
    (Language::Shell, Label::Dangerous, include_str!("../../corpus/apart/shell.dangerous.txt")),
    (Language::Python, Label::Dangerous, include_str!("../../corpus/apart/python.dangerous.txt")),
    (Language::JavaScript, Label::Dangerous, include_str!("../../corpus/apart/javascript.dangerous.txt")),
    (Language::Shell, Label::Ordinary, include_str!("../../corpus/apart/shell.ordinary.txt")),
    (Language::Python, Label::Ordinary, include_str!("../../corpus/apart/python.ordinary.txt")),
    (Language::JavaScript, Label::Ordinary, include_str!("../../corpus/apart/javascript.ordinary.txt")),
    (Language::TypeScript, Label::Ordinary, include_str!("../../corpus/apart/typescript.ordinary.txt")),
];

/// What lies in a folder under the names of the corpus; a file that is not there has no cases.
pub(crate) fn in_folder(folder: &std::path::Path) -> Vec<Case> {
    let files = FILES.iter().zip(NAMES);
    files
        .flat_map(|((language, label, _), name)| {
            let text = std::fs::read_to_string(folder.join(name)).unwrap_or_default();
            read(*language, *label, &text)
        })
        .collect()
}

/// Every case that was written apart.
pub(crate) fn apart() -> Vec<Case> {
    APART.iter().flat_map(|(language, label, text)| read(*language, *label, text)).collect()
}

/// Every case.
pub(crate) fn cases() -> Vec<Case> {
    FILES.iter().flat_map(|(language, label, text)| read(*language, *label, text)).collect()
}

fn read(language: Language, label: Label, text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut category = String::new();
    let mut block: Option<String> = None;
    for line in text.lines() {
        let mut add = |text: String| cases.push(Case { language, label, category: category.clone(), text });
        match (&mut block, line) {
            (None, "~~~") => block = Some(String::new()),
            (Some(_), "~~~") => add(block.take().unwrap()),
            (Some(text), line) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, "") => {}
            (None, line) => match line.strip_prefix("#: ") {
                Some(name) => category = name.to_owned(),
                None => add(line.to_owned()),
            },
        }
    }
    assert!(block.is_none(), "a block is not closed");
    cases
}

/// What the validator makes of a text.
pub(crate) fn judged(language: Language, text: &str, level: ValidateLevel) -> Judgement {
    let subject = match language {
        Language::Shell => Subject::Shell(text),
        Language::Python | Language::JavaScript | Language::TypeScript | Language::Other => {
            Subject::Code { language, source: text }
        }
    };
    let surroundings = Surroundings::default();
    let analysis = analyse(subject, &surroundings, &Limits::default());
    let list = |text: &str| -> Vec<String> { text.split_whitespace().map(str::to_owned).collect() };
    let circumstances = Circumstances {
        level,
        surroundings: &surroundings,
        allows: &nothing_allowed,
        vouches: &nobody_vouches,
        commands: &list(super::report::COMMANDS),
        modules: &list(super::report::MODULES),
    };
    judge(&analysis, &circumstances)
}

/// Whether somebody would be stopped or asked.
pub(crate) fn is_alarm(judgement: &Judgement) -> bool {
    judgement.verdict > Verdict::Allow
}

#[test]
fn the_corpus_is_as_large_as_it_says_and_has_nothing_twice() {
    let cases = cases();
    let count = |label| cases.iter().filter(|case| case.label == label).count();
    assert!(count(Label::Dangerous) >= 600, "{}", count(Label::Dangerous));
    assert!(count(Label::Ordinary) >= 800, "{}", count(Label::Ordinary));
    let mut seen = std::collections::BTreeSet::new();
    for case in &cases {
        assert!(seen.insert((format!("{:?}", case.language), &case.text)), "twice: {}", case.text);
    }
}
