//! Whatever a program looks like, reading it ends, and every place lies in its text.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::*;
use ringfence_validate::{Language, Limits, Subject, Surroundings, analyse};

fn check(language: Language, source: &str) {
    let analysis = analyse(Subject::Code { language, source }, &Surroundings::default(), &Limits::default());
    for step in analysis.all_steps() {
        let spans = step.facts.iter().map(|act| act.span).chain([step.span]);
        for span in spans {
            assert!(source.get(span.start..span.end).is_some(), "{span:?} is no place in {source:?}");
        }
    }
}

/// Programs of pieces that mean something, in any order.
fn pieces(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(words), 0..60).prop_map(|words| words.concat())
}

const PYTHON: &[&str] = &[
    "import os\n",
    "from os import system as s\n",
    "x = ",
    "x",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "'",
    "\"",
    "f'{",
    "}'",
    "'''",
    "\n",
    "    ",
    "os",
    ".system",
    ".",
    ",",
    ":",
    "=",
    "+",
    "%",
    "*",
    "**",
    "lambda ",
    "def f(a):\n    ",
    "return ",
    "class A:\n    ",
    "getattr(",
    "exec(",
    "eval(",
    "'id'",
    "b64decode",
    "é",
    "ｅ",
    "\u{a0}",
    "[::-1]",
    "-1",
    "99999999999",
    "chr(",
    "''.join(",
    "for x in ",
    "if ",
    " else ",
    "await ",
    "@",
    "#",
    "\\",
    "\\x41",
    "global x\n",
    "subprocess.run(",
    "shell=True",
    "requests.get(",
    ".text",
    "open(",
    "x.append(",
    "**",
    "*x",
    "match x:\n case ",
    "with ",
    " as ",
    "try:\n    ",
    "\r",
];

const JAVASCRIPT: &[&str] = &[
    "const x = ",
    "x",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "'",
    "\"",
    "`",
    "${",
    "\n",
    ";",
    ".",
    ",",
    ":",
    "=",
    "=>",
    "+",
    "require('child_process')",
    ".exec",
    "'id'",
    "eval(",
    "new ",
    "Function(",
    "async ",
    "await ",
    "import('",
    "import x from 'y';",
    "export ",
    "class A {",
    "constructor",
    ".constructor",
    "['a']",
    "...",
    "if (a) ",
    "else ",
    "for (const a of b) ",
    "while (1) ",
    "return ",
    "<a>",
    "</a>",
    "<a b={",
    "/>",
    "/",
    "//",
    "/*",
    "*/",
    "<!--",
    "é",
    "е",
    "\u{2028}",
    "\u{a0}",
    "\\u0061",
    "String.fromCharCode(",
    "104",
    "1e99",
    "-1",
    ".join('')",
    ".split('')",
    "atob(",
    "process.env",
    "with (a) ",
    "as any",
    "<T>",
    ": string",
    "\r",
];

proptest! {
    #[test]
    fn any_text_is_read_as_python(text in any::<String>()) {
        check(Language::Python, &text);
    }

    #[test]
    fn any_text_is_read_as_javascript(text in any::<String>()) {
        check(Language::JavaScript, &text);
        check(Language::TypeScript, &text);
    }

    #[test]
    fn pieces_of_python_in_any_order_are_read(text in pieces(PYTHON)) {
        check(Language::Python, &text);
    }

    #[test]
    fn pieces_of_javascript_in_any_order_are_read(text in pieces(JAVASCRIPT)) {
        check(Language::JavaScript, &text);
        check(Language::TypeScript, &text);
    }

    #[test]
    fn a_call_is_found_behind_any_number_of_names(names in proptest::collection::vec("[a-z]{3,8}[0-9]", 1..12)) {
        let mut source = "import os\nfirst = os.system\n".to_owned();
        let mut last = "first".to_owned();
        for name in &names {
            source.push_str(&format!("{name} = {last}\n"));
            last.clone_from(name);
        }
        source.push_str(&format!("{last}('id')\n"));
        let analysis = analyse(Subject::Code { language: Language::Python, source: &source }, &Surroundings::default(), &Limits::default());
        let told = format!("{analysis:?}");
        prop_assert!(told.contains("os.system"), "{}", source);
    }
}
