//! Rules about the documents: a promise names the test that attacks it, decisions are numbered.

use std::collections::{BTreeMap, BTreeSet};

use super::rust_source::code_only;
use super::{Tree, Violation, violation};

const SPECIFICATION: &str = "docs/SPECIFICATION.md";
const DECISIONS: &str = "docs/decisions/";
const SDKS: [&str; 2] = ["sdk/", "xtask/clients/"];

/// Rows look like `| P-NAME | what is promised | \`name_of_a_test\` |`.
pub(super) fn promises_name_their_tests(tree: &Tree) -> Vec<Violation> {
    let Some(text) = tree.text(SPECIFICATION) else {
        return vec![violation(SPECIFICATION, 1, "there is no specification, write down what is promised")];
    };
    let mut known = functions(tree);
    known.extend(tests_of_the_sdks(tree));
    let mut found = Vec::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        let cells = cells(line);
        let Some(name) = cells.first().filter(|cell| cell.starts_with("P-")) else { continue };
        if let Some(first) = seen.insert(name.clone(), line_number) {
            found.push(violation(
                SPECIFICATION,
                line_number,
                format!("`{name}` stands in line {first} already, give this promise its own name"),
            ));
        }
        let tests: Vec<&str> = cells.last().filter(|_| cells.len() > 2).map(|cell| quoted(cell)).unwrap_or_default();
        if tests.is_empty() {
            found.push(violation(
                SPECIFICATION,
                line_number,
                format!("`{name}` names no test, write its name in backticks in the last column"),
            ));
        }
        for test in tests {
            let function = test.rsplit("::").next().unwrap_or(test);
            if !known.contains(function) {
                found.push(violation(
                    SPECIFICATION,
                    line_number,
                    format!("there is no test `{function}`, name one that exists"),
                ));
            }
        }
    }
    if seen.is_empty() {
        found.push(violation(
            SPECIFICATION,
            1,
            "there is no promise in it, write rows such as `| P-1 | text | `test_name` |`",
        ));
    }
    found
}

/// The cells of a table's row, without the outer edges; `\|` does not part cells.
fn cells(line: &str) -> Vec<String> {
    let Some(inner) = line.trim().strip_prefix('|') else { return Vec::new() };
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    inner.replace("\\|", "\u{0}").split('|').map(|cell| cell.replace('\u{0}', "|").trim().to_owned()).collect()
}

/// What stands between pairs of backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).map(str::trim).filter(|name| !name.is_empty()).collect()
}

fn functions(tree: &Tree) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (_, text) in tree.rust() {
        let code = code_only(text);
        let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            if word == "fn" {
                names.extend(words.next().map(str::to_owned));
            }
        }
    }
    names
}

/// Methods of Python, `def test_name(self)`, and titles of TypeScript, `test('title', ...)`.
fn tests_of_the_sdks(tree: &Tree) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (path, text) in tree.texts().filter(|(path, _)| SDKS.iter().any(|folder| path.starts_with(folder))) {
        let (before, after, kept) = match path {
            path if path.ends_with(".py") => ("def test_", '(', "test_"),
            path if path.ends_with(".test.ts") => ("test('", '\'', ""),
            _ => continue,
        };
        for line in text.lines() {
            let rest = line.trim_start().strip_prefix(before).and_then(|rest| rest.split_once(after));
            names.extend(rest.map(|(name, _)| format!("{kept}{name}")));
        }
    }
    names
}

/// `docs/decisions/0001-first.md`, `0002-second.md` and so on, each number once.
pub(super) fn decisions_are_numbered(tree: &Tree) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut expected = 1;
    let names = tree.0.iter().filter_map(|file| Some((&file.path, file.path.strip_prefix(DECISIONS)?)));
    for (path, name) in names.filter(|(_, name)| *name != "README.md") {
        match number(name) {
            None => found.push(violation(path, 1, "a decision is called `NNNN-what-was-decided.md`, rename it")),
            Some(number) if number == expected => expected += 1,
            Some(number) => {
                found.push(violation(
                    path,
                    1,
                    format!("number {number:04} where {expected:04} comes next, renumber it"),
                ));
                expected = number + 1;
            }
        }
    }
    found
}

fn number(name: &str) -> Option<u32> {
    let (digits, title) = name.strip_suffix(".md")?.split_once('-')?;
    let four = digits.len() == 4 && digits.chars().all(|c| c.is_ascii_digit());
    if four && !title.is_empty() { digits.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::super::expect;
    use super::*;

    fn promises(rows: &str, expected: &[&str]) {
        let code = "#[test]\nfn holds() {}\n// fn only_said() {}\n";
        expect(promises_name_their_tests, &[(SPECIFICATION, rows), ("crates/x/tests/a.rs", code)], expected);
    }

    #[test]
    fn a_promise_names_tests_that_exist() {
        promises("| id | promise | test |\n|---|---|---|\n| P-1 | a \\| b | `holds` |\n", &[]);
        promises("| P-1 | a | `holds`, `x::tests::holds` |\n", &[]);
        promises("| P-1 | a | `vanished` |\n", &["docs/SPECIFICATION.md:1"]);
        promises("| P-1 | a | `holds` `only_said` |\n", &["docs/SPECIFICATION.md:1"]);
        promises("| P-1 | a | `hold` |\n", &["docs/SPECIFICATION.md:1"]);
    }

    #[test]
    fn a_promise_may_name_a_test_of_an_sdk_and_not_what_only_looks_like_one() {
        let check = |name: &str, expected: &[&str]| {
            let row = format!("| P-1 | a | `{name}` |\n");
            let files = [
                (SPECIFICATION, row.as_str()),
                (
                    "sdk/python/tests/test_a.py",
                    "class A:\n    def test_holds(self) -> None:\n    # def test_said(self)\n    def probe(self):\n",
                ),
                ("sdk/typescript/tests/a.test.ts", "test('it holds', async (t) => {\n// test('only said', x)\n"),
                ("sdk/typescript/tests/model.ts", "test('elsewhere', x)\n"),
                ("elsewhere/test_b.py", "def test_elsewhere(self):\n"),
            ];
            expect(promises_name_their_tests, &files, expected);
        };
        check("test_holds", &[]);
        check("it holds", &[]);
        for hostile in ["holds", "test_said", "probe", "it", "only said", "elsewhere", "test_elsewhere"] {
            check(hostile, &["docs/SPECIFICATION.md:1"]);
        }
    }

    #[test]
    fn a_promise_without_a_test_is_found() {
        for hostile in [
            "| P-1 | a | holds |\n",
            "| P-1 | `holds` |\n",
            "| P-1 | a | |\n",
            "| P-1 | `holds` | by hand |\n",
            "| P-1 |\n",
        ] {
            promises(hostile, &["docs/SPECIFICATION.md:1"]);
        }
    }

    #[test]
    fn two_promises_do_not_share_a_name_and_none_at_all_is_found() {
        promises("| P-1 | a | `holds` |\n| P-1 | b | `holds` |\n", &["docs/SPECIFICATION.md:2"]);
        promises("Soon.\n", &["docs/SPECIFICATION.md:1"]);
        expect(promises_name_their_tests, &[], &["docs/SPECIFICATION.md:1"]);
    }

    #[test]
    fn decisions_have_no_gap_and_no_twin() {
        let check = |names: &[&str], expected: &[&str]| {
            let paths: Vec<String> = names.iter().map(|name| format!("docs/decisions/{name}")).collect();
            let files: Vec<(&str, &str)> = paths.iter().map(|path| (path.as_str(), "")).collect();
            let expected: Vec<String> = expected.iter().map(|name| format!("docs/decisions/{name}:1")).collect();
            expect(decisions_are_numbered, &files, &expected.iter().map(String::as_str).collect::<Vec<_>>());
        };
        check(&["0001-a.md", "0002-b.md", "README.md"], &[]);
        check(&["0002-b.md"], &["0002-b.md"]);
        check(&["0001-a.md", "0003-c.md", "0004-d.md"], &["0003-c.md"]);
        check(&["0001-a.md", "0001-b.md", "0002-c.md"], &["0001-b.md"]);
        check(&["1-a.md"], &["1-a.md"]);
        check(&["0001-.md"], &["0001-.md"]);
        check(&["notes.md"], &["notes.md"]);
    }
}
