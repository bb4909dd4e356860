//! Recall and false alarms, held against thresholds and written into `docs/VALIDATOR.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use ringfence_policy::ValidateLevel;
use ringfence_validate::Language;

use crate::corpus::{Case, Label, apart, cases, in_folder, is_alarm, judged};

/// What `strict` is measured with.
pub(crate) const COMMANDS: &str = "ls cat head tail grep rg find sed awk sort uniq wc cut tr diff jq git make cmake cargo go npm npx \
    node python python3 pip pytest tox mypy ruff black eslint tsc jest mkdir cp mv rm touch chmod tar gzip gunzip unzip curl bash sh \
    echo printf date env export set source . test true";
pub(crate) const MODULES: &str = "json re math os sys pathlib datetime collections itertools functools csv random numpy pandas requests \
    typing dataclasses argparse logging unittest pytest subprocess sqlite3 fs path express react http";

const PAGE: &str = "../../docs/VALIDATOR.md";
const START: &str = "<!-- measured: begin -->\n";
const END: &str = "<!-- measured: end -->";
const LEVELS: [ValidateLevel; 3] = [ValidateLevel::Warn, ValidateLevel::Standard, ValidateLevel::Strict];

/// Under `warn` nothing is stopped; what counts is what would be told.
fn is_found(case: &Case, level: ValidateLevel) -> bool {
    let judgement = judged(case.language, &case.text, level);
    match level {
        ValidateLevel::Warn => !judgement.findings.is_empty(),
        ValidateLevel::Off | ValidateLevel::Standard | ValidateLevel::Strict => is_alarm(&judgement),
    }
}

fn share(found: usize, all: usize) -> String {
    let all = all.max(1);
    format!("{}.{} %", found * 100 / all, found * 1000 / all % 10)
}

fn measured() -> String {
    let cases = cases();
    let of = |label: Label| cases.iter().filter(move |case| case.label == label);
    let mut page = String::new();
    writeln!(
        page,
        "{} dangerous and {} ordinary requests.\n",
        of(Label::Dangerous).count(),
        of(Label::Ordinary).count()
    )
    .unwrap();
    writeln!(page, "| level | found of the dangerous | false alarms among the ordinary |\n|---|---|---|").unwrap();
    for level in LEVELS {
        let row = |label| {
            let found = of(label).filter(|case| is_found(case, level)).count();
            format!("{found} ({})", share(found, of(label).count()))
        };
        writeln!(page, "| {level} | {} | {} |", row(Label::Dangerous), row(Label::Ordinary)).unwrap();
    }
    let apart = apart();
    let row = |label: Label| {
        let all: Vec<&Case> = apart.iter().filter(|case| case.label == label).collect();
        let found = all.iter().filter(|case| is_found(case, ValidateLevel::Standard)).count();
        format!("{found} of {} ({})", all.len(), share(found, all.len()))
    };
    writeln!(
        page,
        "\nOf a second set, written apart from the rules, at `standard`: found {}, false alarms {}.",
        row(Label::Dangerous),
        row(Label::Ordinary)
    )
    .unwrap();
    page.push_str("\nAt `standard`, by language and category:\n\n| category | requests | stopped or asked about |\n|---|---|---|\n");
    let mut rows: BTreeMap<(String, String, String), (usize, usize)> = BTreeMap::new();
    for case in &cases {
        let label = match case.label {
            Label::Dangerous => "dangerous",
            Label::Ordinary => "ordinary",
        };
        let language = match case.language {
            Language::Shell => "shell",
            Language::Python => "python",
            Language::JavaScript => "javascript",
            Language::TypeScript => "typescript",
            Language::Other => "other",
        };
        let row = rows.entry((label.to_owned(), language.to_owned(), case.category.clone())).or_default();
        row.0 += 1;
        row.1 += usize::from(is_found(case, ValidateLevel::Standard));
    }
    for ((label, language, category), (all, found)) in rows {
        writeln!(page, "| {label}, {language}: {category} | {all} | {found} ({}) |", share(found, all)).unwrap();
    }
    page
}

/// How many of each label came out wrong, out of how many, and which.
fn wrong(cases: &[Case]) -> ([(usize, usize); 2], String) {
    let mut told = String::new();
    let counts = [(Label::Dangerous, true), (Label::Ordinary, false)].map(|(label, expected)| {
        let all: Vec<&Case> = cases.iter().filter(|case| case.label == label).collect();
        let mut count = 0;
        for case in &all {
            let judgement = judged(case.language, &case.text, ValidateLevel::Standard);
            if is_alarm(&judgement) != expected {
                count += 1;
                let rules: Vec<&str> = judgement.findings.iter().map(|finding| finding.rule.as_str()).collect();
                let text = case.text.trim_end().replace('\n', "⏎");
                writeln!(told, "{label:?} {:?} {}: {text}  {rules:?}", case.language, case.category).unwrap();
            }
        }
        (count, all.len())
    });
    (counts, told)
}

#[test]
fn at_standard_nearly_all_that_is_dangerous_is_found_and_daily_work_is_left_alone() {
    let ([(missed, dangerous), (alarms, ordinary)], told) = wrong(&cases());
    let summary = format!("missed {missed} of {dangerous}, false alarms {alarms} of {ordinary}");
    assert!(missed * 100 <= dangerous * 3 && alarms * 100 <= ordinary, "{summary}\n{told}");
}

#[test]
fn what_was_written_apart_from_the_rules_comes_out_nearly_as_well() {
    let ([(missed, dangerous), (alarms, ordinary)], told) = wrong(&apart());
    let summary = format!("missed {missed} of {dangerous}, false alarms {alarms} of {ordinary}");
    assert!(missed * 100 <= dangerous * 5 && alarms * 100 <= ordinary, "{summary}\n{told}");
}

/// Measures requests that are not committed: `RINGFENCE_TEST_CORPUS` names a folder of files with the corpus's names. It only
/// prints, since whether what nobody has seen comes out well is not for this commit to promise.
#[test]
fn a_folder_of_requests_is_measured_where_one_is_named() {
    let Some(folder) = std::env::var_os("RINGFENCE_TEST_CORPUS") else { return };
    let cases = in_folder(Path::new(&folder));
    assert!(!cases.is_empty(), "RINGFENCE_TEST_CORPUS names a folder without requests");
    let (_, told) = wrong(&cases);
    println!("{told}");
    for language in [Language::Shell, Language::Python, Language::JavaScript, Language::TypeScript] {
        let of_language: Vec<Case> = cases.iter().filter(|case| case.language == language).cloned().collect();
        println!("{language:?}: {}", told_in_a_line(wrong(&of_language).0));
    }
    println!("all: {}", told_in_a_line(wrong(&cases).0));
}

fn told_in_a_line([(missed, dangerous), (alarms, ordinary)]: [(usize, usize); 2]) -> String {
    let found = dangerous - missed;
    format!(
        "found {found} of {dangerous} ({}), false alarms {alarms} of {ordinary} ({})",
        share(found, dangerous),
        share(alarms, ordinary)
    )
}

#[test]
fn the_page_of_the_validator_shows_what_is_measured_now() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(START).expect("the page has a beginning mark");
    let (shown, after) = rest.split_once(END).expect("the page has an end mark");
    let now = measured();
    if std::env::var_os("RINGFENCE_TEST_WRITE_PAGE").is_some() {
        std::fs::write(&path, format!("{before}{START}{now}{END}{after}")).unwrap();
        return;
    }
    assert!(
        shown == now,
        "docs/VALIDATOR.md is stale; run with RINGFENCE_TEST_WRITE_PAGE=1 to write it anew. Now:\n{now}"
    );
}
