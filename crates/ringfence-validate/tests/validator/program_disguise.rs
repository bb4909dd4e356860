//! A disguise must not help a program either: whatever it is dressed as, the verdict is not milder than for the plain one.

use std::fmt::Write as _;

use ringfence_policy::{ValidateLevel, Verdict};
use ringfence_validate::Language;

use crate::corpus::{Label, cases, judged};
use crate::disguise::base64;

type Dress = fn(&str) -> Option<String>;

const PYTHON: [(&str, Dress); 30] = [
    ("exec", |text| Some(format!("exec({})", literal(text)))),
    ("exec of a compiled text", |text| Some(format!("exec(compile({}, 'x', 'exec'))", literal(text)))),
    ("exec of a text in two parts", |text| {
        let (one, other) = halves(text);
        Some(format!("exec({} + {})", literal(one), literal(other)))
    }),
    ("exec of joined parts", |text| {
        let (one, other) = halves(text);
        Some(format!("exec(''.join([{}, {}]))", literal(one), literal(other)))
    }),
    ("exec of base64", |text| Some(format!("import base64\nexec(base64.b64decode('{}'))", base64(text.as_bytes())))),
    ("exec of hexadecimal", |text| {
        let hex: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
        Some(format!("exec(bytes.fromhex('{hex}').decode())"))
    }),
    ("exec of a reversed text", |text| {
        let reversed: String = text.chars().rev().collect();
        Some(format!("exec({}[::-1])", literal(&reversed)))
    }),
    ("exec by another name", |text| Some(format!("q9 = exec\nq9({})", literal(text)))),
    ("exec out of a list", |text| Some(format!("[print, exec][1]({})", literal(text)))),
    ("exec out of the builtins", |text| Some(format!("__builtins__.__dict__['ex' + 'ec']({})", literal(text)))),
    ("exec in a lambda", |text| Some(format!("(lambda q9: exec(q9))({})", literal(text)))),
    ("exec by map", |text| Some(format!("list(map(exec, [{}]))", literal(text)))),
    ("exec in a thread", |text| {
        Some(format!("import threading\nthreading.Thread(target=exec, args=({},)).start()", literal(text)))
    }),
    ("exec of what a function decodes", |text| {
        let shifted: String = text.chars().map(|letter| char::from_u32(u32::from(letter) + 1).unwrap()).collect();
        let fits = text.len() < 200 && text.is_ascii();
        fits.then(|| {
            let decoder = "def q9(t):\n    out = ''\n    for c in t:\n        out += chr(ord(c) - 1)\n    return out";
            format!("{decoder}\nexec(q9({}))", literal(&shifted))
        })
    }),
    ("eval of exec", |text| Some(format!("eval({})", literal(&format!("exec({})", literal(text)))))),
    ("a function", |text| block("def q9():", text).map(|block| format!("{block}q9()\n"))),
    ("a function that nobody calls", |text| block("def q9():", text)),
    ("functions that call each other", |text| {
        let inner = block("def q9():", text)?;
        Some(format!("def q7():\n    q8()\ndef q8():\n    q9()\n{inner}q7()\n"))
    }),
    ("a condition", |text| block("if q9 > 1:", text)),
    ("an attempt", |text| block("try:", text).map(|block| format!("{block}except Exception:\n    pass\n"))),
    ("a loop", |text| block("for q9 in range(3):", text)),
    // Functions do not see the names of the class around them.
    ("a class", |text| Some(text).filter(|text| !text.contains("def ")).and_then(|text| block("class Q9:", text))),
    ("a decorated function", |text| block("@staticmethod\ndef q9():", text)),
    ("a generator", |text| block("def q9():\n    yield 1", text)),
    ("the system's function out of a dictionary", |text| system(text, "{'k': os.system}['k']")),
    ("the system's function behind a condition", |text| system(text, "(os.system if q9 else print)")),
    ("the system's function by its name", |text| system(text, "getattr(os, 'sys' + 'tem')")),
    ("the system's function out of the module's names", |text| system(text, "vars(os)['system']")),
    ("the system's function in part", |text| system(text, "__import__('functools').partial(os.system)")),
    ("the system's function in a lambda", |text| system(text, "(lambda *q9: os.system(*q9))")),
];

const JAVASCRIPT: [(&str, Dress); 26] = [
    ("eval", |text| script(text).map(|text| format!("eval({})", literal(text)))),
    ("indirect eval", |text| script(text).map(|text| format!("(0, eval)({})", literal(text)))),
    ("eval by another name", |text| script(text).map(|text| format!("const q9 = eval; q9({})", literal(text)))),
    ("eval out of the global object", |text| {
        script(text).map(|text| format!("globalThis['ev' + 'al']({})", literal(text)))
    }),
    ("eval out of a list", |text| script(text).map(|text| format!("[eval][0]({})", literal(text)))),
    ("eval of two parts", |text| {
        let (one, other) = halves(script(text)?);
        Some(format!("eval({} + {})", literal(one), literal(other)))
    }),
    ("eval of base64", |text| script(text).map(|text| format!("eval(atob('{}'))", base64(text.as_bytes())))),
    ("eval of a buffer", |text| {
        script(text).map(|text| format!("eval(Buffer.from('{}', 'base64').toString())", base64(text.as_bytes())))
    }),
    ("eval of codes", |text| {
        let text = script(text).filter(|text| text.len() < 120 && text.is_ascii())?;
        let codes: Vec<String> = text.bytes().map(|byte| (byte ^ 1).to_string()).collect();
        Some(format!("eval([{}].map(c => String.fromCharCode(c ^ 1)).join(''))", codes.join(",")))
    }),
    ("Function", |text| script(text).map(|text| format!("Function({})()", literal(text)))),
    ("new Function", |text| script(text).map(|text| format!("new Function('q9', {})(1)", literal(text)))),
    ("a text for a timer", |text| script(text).map(|text| format!("setTimeout({}, 1)", literal(text)))),
    ("a function", |text| script(text).map(|text| format!("function q9() {{\n{text}\n}}\nq9();"))),
    ("a function that nobody calls", |text| script(text).map(|text| format!("function q9() {{\n{text}\n}}"))),
    ("a function that is called at once", |text| script(text).map(|text| format!("(() => {{\n{text}\n}})();"))),
    ("an asynchronous function", |text| script(text).map(|text| format!("(async () => {{\n{text}\n}})();"))),
    ("a promise", |text| script(text).map(|text| format!("Promise.resolve().then(() => {{\n{text}\n}});"))),
    ("a timer", |text| script(text).map(|text| format!("setTimeout(() => {{\n{text}\n}}, 1);"))),
    ("a condition", |text| script(text).map(|text| format!("if (q9) {{\n{text}\n}}"))),
    ("an attempt", |text| script(text).map(|text| format!("try {{\n{text}\n}} catch (q9) {{}}"))),
    ("a loop", |text| script(text).map(|text| format!("for (const q9 of [1, 2]) {{\n{text}\n}}"))),
    ("a class", |text| script(text).map(|text| format!("class Q9 {{ static {{\n{text}\n}} }}"))),
    ("a getter", |text| script(text).map(|text| format!("const q9 = {{ get f() {{\n{text}\n}} }}; q9.f;"))),
    ("require by another way", |text| required(text, "(0, require)(")),
    ("require out of the global object", |text| required(text, "globalThis['require'](")),
    ("require out of a container", |text| required(text, "new Map([['r', require]]).get('r')(")),
];

/// A text as both languages write it.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n").replace('\r', "\\r"))
}

fn halves(text: &str) -> (&str, &str) {
    text.split_at(text.floor_char_boundary(text.len() / 2))
}

/// A program that can stand within something: no text of several lines, nothing that only stands at the top.
fn block(head: &str, text: &str) -> Option<String> {
    let fits = ["'''", "\"\"\"", "import *", "await ", "global ", "from __future__", "\\\n", "\x0c"];
    if fits.iter().any(|part| text.contains(part)) {
        return None;
    }
    let lines = text.trim_end().lines().fold(String::new(), |all, line| format!("{all}    {line}\n"));
    Some(format!("{head}\n{lines}"))
}

fn system(text: &str, instead: &str) -> Option<String> {
    let plain = text.contains("import os") && text.contains("os.system(") && !text.contains("[\"os.system");
    plain.then(|| text.replace("os.system(", &format!("{instead}(")))
}

/// A program that can stand within a function.
fn script(text: &str) -> Option<&str> {
    let only_at_the_top = ["import ", "export ", "await ", "<!--", "-->", "return ", "`"];
    let fits = !only_at_the_top.iter().any(|part| text.contains(part)) && !text.trim_end().ends_with('\\');
    fits.then(|| text.trim_end())
}

fn required(text: &str, instead: &str) -> Option<String> {
    let plain = text.contains("require(") && !text.contains(".require(") && !text.contains("['\"]require");
    plain.then(|| text.replace("require(", instead))
}

fn check(language: Language, dresses: &[(&str, Dress)], enough: usize) {
    let verdict = |text: &str| judged(language, text, ValidateLevel::Standard).verdict;
    let (mut tried, mut told) = (0, String::new());
    for case in cases() {
        if case.language != language || case.label != Label::Dangerous || case.category == "unreadable" {
            continue;
        }
        let plain = verdict(&case.text);
        if plain == Verdict::Allow {
            continue;
        }
        for (name, dress) in dresses {
            let Some(text) = dress(&case.text) else { continue };
            tried += 1;
            let dressed = verdict(&text);
            if dressed < plain {
                writeln!(told, "{name}: {plain} becomes {dressed}:\n{text}\n").unwrap();
            }
        }
    }
    assert!(tried > enough, "only {tried} were tried");
    assert!(told.is_empty(), "of {tried}:\n{told}");
}

#[test]
fn no_disguise_of_a_dangerous_python_program_gets_a_milder_verdict() {
    check(Language::Python, &PYTHON, 3000);
}

#[test]
fn no_disguise_of_a_dangerous_javascript_program_gets_a_milder_verdict() {
    check(Language::JavaScript, &JAVASCRIPT, 1500);
}

#[test]
fn an_ordinary_program_in_a_function_a_loop_or_a_condition_is_still_ordinary() {
    // The twin: what stands around a program makes nothing dangerous.
    let hidden = |name: &str| name.contains("exec") || name.contains("eval") || name.contains("Function");
    for (language, dresses) in [(Language::Python, &PYTHON[..]), (Language::JavaScript, &JAVASCRIPT[..])] {
        let texts: &[&str] = match language {
            Language::Python => &["import json\nprint(json.dumps({'a': 1}))", "import os\nprint(os.getcwd())"],
            _ => &[
                "const path = require('path'); console.log(path.join('a', 'b'))",
                "console.log([1, 2].map(x => x * 2))",
            ],
        };
        for text in texts {
            for (name, dress) in dresses.iter().filter(|(name, _)| !hidden(name) && !name.contains("timer")) {
                let Some(dressed) = dress(text) else { continue };
                let judgement = judged(language, &dressed, ValidateLevel::Standard);
                assert_eq!(judgement.verdict, Verdict::Allow, "{name}: {dressed} {:?}", judgement.findings);
            }
        }
    }
}
