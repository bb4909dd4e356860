//! A disguise must not help: whatever a dangerous line is dressed as, the verdict is not milder than for the plain line.

use std::fmt::Write as _;

use ringfence_policy::{ValidateLevel, Verdict};
use ringfence_validate::Language;

use crate::corpus::{Label, cases, judged};

type Dress = fn(&str) -> Option<String>;

const DRESSES: [(&str, Dress); 40] = [
    ("empty quotes in the name", |line| name_as(line, |name| format!("{}''{}", &name[..1], &name[1..]))),
    ("double quotes around the name", |line| name_as(line, |name| format!("\"{name}\""))),
    ("a backslash before the name", |line| name_as(line, |name| format!("\\{name}"))),
    ("a backslash in the name", |line| name_as(line, |name| format!("{}\\{}", &name[..1], &name[1..]))),
    ("the name in hexadecimal", |line| {
        name_as(line, |name| format!("$'{}'", name.bytes().map(|b| format!("\\x{b:02x}")).collect::<String>()))
    }),
    ("the name in octal", |line| {
        name_as(line, |name| format!("$'{}'", name.bytes().map(|b| format!("\\{b:03o}")).collect::<String>()))
    }),
    ("the name in a variable", |line| {
        let (name, rest) = plain_name(line)?;
        Some(format!("q9={name}; $q9{rest}"))
    }),
    ("the name in two variables", |line| {
        let (name, rest) = plain_name(line)?;
        Some(format!("q8={} q9={}; $q8${{q9}}{rest}", &name[..1], &name[1..]))
    }),
    ("the name from a substitution", |line| name_as(line, |name| format!("$(echo {name})"))),
    ("the name by a default value", |line| name_as(line, |name| format!("${{q9:-{name}}}"))),
    ("eval", |line| Some(format!("eval {}", quoted(line)))),
    ("eval of a variable", |line| Some(format!("q9={}; eval \"$q9\"", quoted(line)))),
    ("sh -c", |line| (!is_bash_only(line)).then(|| format!("sh -c {}", quoted(line)))),
    ("bash -c behind env", |line| Some(format!("env -i bash -c {}", quoted(line)))),
    ("env -S", |line| words(line).map(|words| format!("env -S '{}'", words.join(" ")))),
    ("base64 into a shell", |line| Some(format!("echo {} | base64 -d | bash", base64(line.as_bytes())))),
    ("a here-string", |line| Some(format!("bash <<< {}", quoted(line)))),
    ("a here-document", |line| Some(format!("bash <<'Q9'\n{line}\nQ9\n"))),
    ("IFS between words", |line| words(line).map(|words| words.join("${IFS}"))),
    ("braces around words", |line| {
        words(line).filter(|words| words.len() > 1).map(|words| format!("{{{}}}", words.join(",")))
    }),
    ("wrappers", |line| words(line).map(|words| format!("nohup timeout 5 nice -n 5 env A=1 {}", words.join(" ")))),
    ("a function", |line| closed(line).map(|line| format!("q9() {{ {line}; }}; q9"))),
    ("a subshell", |line| Some(format!("( {line}\n)"))),
    ("a list", |line| Some(format!("echo start; true && {line}"))),
    ("a loop in a condition", |line| {
        closed(line).map(|line| format!("if true; then for q9 in 1; do {line}; done; fi"))
    }),
    ("a substitution", |line| Some(format!("echo \"$({line}\n)\""))),
    ("the name from a branch", |line| {
        let (name, rest) = plain_name(line)?;
        Some(format!("if [ -e z9 ]; then q9={name}; else q9=echo; fi; $q9{rest}"))
    }),
    ("the name from one of many cases", |line| {
        let (name, rest) = plain_name(line)?;
        let others: String = (0..12).map(|each| format!("{each}) q9=echo{each};; ")).collect();
        Some(format!("case \"$Z9\" in {others} *) q9={name};; esac; $q9{rest}"))
    }),
    ("the name from a case that goes on", |line| {
        let (name, rest) = plain_name(line)?;
        Some(format!("case $Z9 in a) q9={name};& b) $q9{rest};; esac"))
    }),
    ("the name from a loop that is left", |line| {
        let (name, rest) = plain_name(line)?;
        Some(format!("while :; do q9={name}; break; done; $q9{rest}"))
    }),
    ("the name from the turn before", |line| {
        let (name, rest) = plain_name(line)?;
        Some(format!("q9=echo; while read -r z9; do $q9{rest}; q9={name}; done"))
    }),
    ("the name from two branches", |line| {
        let (name, rest) = plain_name(line)?;
        let halves = format!("if a9; then q8={}; else q8=x; fi; if b9; then q9={}; fi;", &name[..1], &name[1..]);
        Some(format!("{halves} $q8$q9{rest}"))
    }),
    ("the line from a branch, evaluated", |line| {
        Some(format!("if [ -e z9 ]; then q9={}; fi; eval \"$q9\"", quoted(line)))
    }),
    ("the line from a branch, into a shell", |line| {
        Some(format!("if [ -e z9 ]; then printf '%s\\n' {}; fi | bash", quoted(line)))
    }),
    ("a file that one branch writes", |line| {
        Some(format!("if a9; then printf '%s\\n' {} > q9.sh; else echo ls > q9.sh; fi; bash q9.sh", quoted(line)))
    }),
    ("a function of one branch", |line| {
        closed(line).map(|line| format!("if a9; then q9() {{ {line}; }}; else q9() {{ :; }}; fi; q9"))
    }),
    ("an argument that a branch sets", |line| {
        let (name, rest) = plain_name(line)?;
        Some(format!("if a9; then set -- {name}; else set -- echo; fi; \"$1\"{rest}"))
    }),
    ("an alias that a branch sets", |line| {
        closed(line).map(|_| format!("if a9; then alias q9={}; fi; q9", quoted(line)))
    }),
    ("an exported variable of a child", |line| Some(format!("export q9={}; bash -c 'eval \"$q9\"'", quoted(line)))),
    ("a command of Python", |line| {
        let fits = !line.contains(['\'', '"', '\\']);
        fits.then(|| format!("python3 -c 'import os; os.system(\"{line}\")'"))
    }),
];

/// The first word, where it is a plain name of two letters or more, and the rest.
fn plain_name(line: &str) -> Option<(&str, &str)> {
    let end = line.find(' ').unwrap_or(line.len());
    let (name, rest) = line.split_at(end);
    let plain = name.len() > 1 && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let keyword =
        ["if", "for", "while", "until", "case", "time", "coproc", "function", "select", "alias", "eval", "exec"];
    // An alias, a function or a list behind the name would change with its quoting.
    let simple = !line.contains([';', '\n']) && !rest.trim_start().starts_with('(');
    (plain && !keyword.contains(&name) && simple).then_some((name, rest))
}

fn name_as(line: &str, dress: impl Fn(&str) -> String) -> Option<String> {
    let (name, rest) = plain_name(line)?;
    Some(format!("{}{rest}", dress(name)))
}

/// The words of a line that has nothing but words.
fn words(line: &str) -> Option<Vec<&str>> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b' ' | b'/' | b'.' | b'-' | b'_' | b':' | b'@' | b'+');
    plain_name(line)?;
    line.bytes().all(plain).then(|| line.split_whitespace().collect())
}

/// A line that `;` can follow.
fn closed(line: &str) -> Option<&str> {
    let line = line.trim_end();
    (!line.ends_with(['&', ';']) && !line.contains('#')).then_some(line)
}

fn is_bash_only(line: &str) -> bool {
    ["<(", "<<<", "$'", "&>", ">&", "/dev/tcp", "/dev/udp", "=(", "[[", "{", "source "]
        .iter()
        .any(|part| line.contains(part))
}

fn quoted(line: &str) -> String {
    format!("'{}'", line.replace('\'', "'\\''"))
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let value = chunk.iter().fold(0u32, |value, byte| value << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for place in 0..4 {
            let letter = LETTERS[(value >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[test]
fn no_disguise_of_a_dangerous_line_gets_a_milder_verdict() {
    let verdict = |line: &str| judged(Language::Shell, line, ValidateLevel::Standard).verdict;
    let (mut tried, mut told) = (0, String::new());
    for case in cases() {
        let wanted =
            case.language == Language::Shell && case.label == Label::Dangerous && case.category != "unreadable";
        if !wanted || case.text.contains('\n') {
            continue;
        }
        let plain = verdict(&case.text);
        if plain == Verdict::Allow {
            continue;
        }
        for (name, dress) in DRESSES {
            let Some(line) = dress(&case.text) else { continue };
            tried += 1;
            let dressed = verdict(&line);
            if dressed < plain {
                writeln!(told, "{name}: {plain} becomes {dressed}: {line}").unwrap();
            }
        }
    }
    assert!(tried > 4000, "only {tried} were tried");
    assert!(told.is_empty(), "of {tried}:\n{told}");
}

#[test]
fn a_disguise_of_an_ordinary_line_is_no_reason_to_deny_it() {
    // The twin: quoting alone makes nothing dangerous.
    for line in ["ls -la", "git status", "make test"] {
        for (name, dress) in DRESSES.iter().filter(|(name, _)| !name.contains("base64")) {
            let Some(line) = dress(line) else { continue };
            let judgement = judged(Language::Shell, &line, ValidateLevel::Standard);
            assert_ne!(judgement.verdict, Verdict::Deny, "{name}: {line} {:?}", judgement.findings);
        }
    }
}

#[test]
fn base64_is_written_as_others_write_it() {
    for (bytes, text) in [("", ""), ("r", "cg=="), ("rm", "cm0="), ("rm -rf /", "cm0gLXJmIC8=")] {
        assert_eq!(base64(bytes.as_bytes()), text);
    }
}
