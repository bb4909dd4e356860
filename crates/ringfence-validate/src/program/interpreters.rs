//! Shells and interpreters of languages: code in an argument is read, code in a file or from a pipe is executed.

use super::{Handler, Role, Run};
use crate::analysis::{Fact, Flow, Unknown};
use crate::language::Language;
use crate::span::Span;
use crate::stream::{Argument, Stream};

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "sh" | "bash" | "dash" | "zsh" | "ksh" | "ash" | "mksh" | "rbash" | "fish" | "rksh" | "yash" | "-sh"
        | "-bash" => shell,
        "python" | "python2" | "python3" | "pypy" | "pypy3" | "ipython" => python,
        "node" | "nodejs" | "deno" | "bun" | "tsx" | "ts-node" | "qjs" | "d8" => javascript,
        "perl" | "ruby" | "irb" | "php" | "lua" | "luajit" | "tclsh" | "wish" | "expect" | "Rscript" | "R"
        | "julia" | "guile" | "racket" | "sbcl" | "clisp" | "emacs" | "osascript" | "groovy" | "jshell" | "scala"
        | "kotlin" | "elixir" | "iex" | "erl" | "ghci" | "runghc" | "ocaml" | "swipl" | "gawk-lua" | "pwsh"
        | "powershell" | "csh" | "tcsh" | "xonsh" | "nu" | "raku" | "octave" | "gnuplot" | "jrunscript" | "jjs"
        | "rhino" => other,
        _ => return None,
    })
}

/// What languages that are not read call to start programs or to remove files.
const STARTS: &[&str] = &[
    "system(",
    "system \"",
    "system '",
    "exec(",
    "exec \"",
    "popen(",
    "os.execute",
    "shell-command",
    "call-process",
    "start-process",
    "delete-directory",
    "delete-file",
    "rmtree",
    "rm -rf",
    "rm_rf",
    "System.cmd",
    "getRuntime()",
    "ProcessBuilder",
    "passthru(",
    "shell_exec",
    "do shell script",
];

/// Whether code of a language that is not read starts programs or removes files.
pub(super) fn starts_programs(code: &str) -> bool {
    STARTS.iter().any(|word| code.contains(word))
}

/// What stands in quotes and looks like a line for a shell.
pub(super) fn quoted(code: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '\'', '`'])
        && lines.len() < 16
    {
        let sign = rest.get(at..).and_then(|rest| rest.chars().next()).unwrap_or('"');
        let Some(inside) = rest.get(at + 1..) else { break };
        let Some(end) = inside.find(sign) else { break };
        let (line, behind) = inside.split_at(end);
        if line.contains(' ') && line.starts_with(|first: char| first.is_ascii_alphabetic() || "/.".contains(first)) {
            lines.push(line.to_owned());
        }
        rest = behind.get(1..).unwrap_or_default();
    }
    lines
}

/// The words of a shell, told apart: options end at the first word that is neither one nor the value of one.
#[derive(Debug, Default)]
struct ShellWords {
    /// `-c`: the first operand is the code.
    wants_code: bool,
    /// `-s`: the input is the code, whatever the operands are.
    reads_input: bool,
    /// `-n`: the code is looked at, and nothing of it is done.
    only_looks: bool,
    /// Files that are read first.
    files: Vec<Argument>,
    /// Code that stands in an option, as fish has it.
    codes: Vec<Argument>,
    operands: Vec<Argument>,
}

fn shell_words(rest: &[Argument]) -> ShellWords {
    let is_code = |word: &Argument| {
        word.known().is_some_and(|word| word.starts_with('-') && !word.starts_with("--") && word.contains('c'))
    };
    let mut found = ShellWords::default();
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        let later = rest.get(at + 1..).unwrap_or_default();
        let Some(known) = word.known() else {
            // A variable may hold options, or nothing: what comes behind it is looked at too.
            if word.text.known_start().is_empty() && !found.wants_code && later.iter().any(is_code) {
                at += 1;
                continue;
            }
            break;
        };
        at += 1;
        match known {
            "--" | "-" => break,
            "--rcfile" | "--init-file" => {
                found.files.extend(later.first().cloned());
                at += 1;
            }
            "--command" | "--init-command" => {
                found.codes.extend(later.first().cloned());
                at += 1;
            }
            long if long.starts_with("--command=") || long.starts_with("--init-command=") => {
                found.codes.push(cut(word, long.find('=').unwrap_or(0) + 1));
            }
            long if long.starts_with("--") => {}
            flags if flags.len() > 1 && flags.starts_with(['-', '+']) => {
                found.wants_code |= flags.starts_with('-') && flags.contains('c');
                found.reads_input |= flags.starts_with('-') && flags.contains('s');
                // `-o` and `-O` take the next word, even from among joined flags.
                at += flags.matches(['o', 'O']).count();
            }
            _ => {
                at -= 1;
                break;
            }
        }
    }
    found.operands = rest.get(at..).unwrap_or_default().to_vec();
    // Another option may take it back: a shell that talks to somebody does everything all the same.
    let options = rest.get(..at).unwrap_or_default();
    found.only_looks = !options.is_empty() && options.iter().all(|option| option.known() == Some("-n"));
    found
}

fn shell(run: &mut Run<'_, '_>, _name: &str) {
    let words = shell_words(&run.rest());
    if words.only_looks {
        for script in &words.operands {
            run.reads(script);
        }
        return;
    }
    for file in &words.files {
        let stream = run.reads(file);
        run.execute(&stream, Language::Shell, file.span);
    }
    for code in &words.codes {
        run.output = run.shell(code);
    }
    if words.wants_code {
        let mut operands = words.operands.into_iter();
        if let Some(code) = operands.next() {
            run.enter(operands.next(), operands.collect());
            run.output = run.shell(&code);
        }
        return;
    }
    if !words.codes.is_empty() {
        return;
    }
    if words.reads_input || words.operands.is_empty() {
        let input = run.input.clone();
        let span = run.span;
        run.enter(None, words.operands);
        if input.flows != [Flow::Input] {
            run.output = run.execute(&input, Language::Shell, span);
        } else {
            // A shell that waits for commands: nothing of this text reaches it.
            run.fact(span, Fact::Executes { from: vec![Flow::Input] });
        }
        return;
    }
    let mut operands = words.operands.into_iter();
    if let Some(script) = operands.next() {
        run.enter(Some(script.clone()), operands.collect());
        script_file(run, &script, Language::Shell);
    }
}

/// A script in a file: what this text wrote there is read.
fn script_file(run: &mut Run<'_, '_>, script: &Argument, language: Language) {
    let known = script.known().map(str::to_owned);
    if matches!(known.as_deref(), Some("-" | "/dev/stdin" | "/proc/self/fd/0" | "/dev/fd/0")) {
        let input = run.input.clone();
        run.output = run.execute(&input, language, script.span);
        return;
    }
    let written = known.as_deref().and_then(|path| run.put_there(path));
    match written {
        Some(stream) => run.output = run.execute(&stream, language, script.span),
        None => {
            let path = run.reading.scope.resolve(&script.text).to_string();
            let mut from = vec![Flow::File { path: path.clone() }];
            from.extend(script.flows.clone());
            run.fact(script.span, Fact::Executes { from });
            run.fact(script.span, Fact::Unknown { unknown: Unknown::Script { path } });
            run.output = Stream::from(vec![Flow::Unknown]);
        }
    }
}

fn input_as_code(run: &mut Run<'_, '_>, language: Language) {
    let input = run.input.clone();
    let span = run.span;
    if input.flows == [Flow::Input] {
        run.fact(span, Fact::Executes { from: vec![Flow::Input] });
    } else {
        run.output = run.execute(&input, language, span);
    }
}

fn python(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        let start = word.text.known_start();
        if !start.starts_with('-') || start == "-" {
            script_file(run, word, Language::Python);
            return;
        }
        // `-c` and `-m` end the options; they may be joined to others, and the code to them.
        let flags = start.strip_prefix('-').unwrap_or_default();
        match flags.find(['c', 'm']) {
            Some(index)
                if !start.starts_with("--")
                    && !flags.get(..index).is_some_and(|before| before.contains(['W', 'X'])) =>
            {
                let joined = flags.get(index + 1..).is_some_and(|rest| !rest.is_empty()) || word.known().is_none();
                let value = if joined { Some(cut(word, index + 2)) } else { rest.get(at + 1).cloned() };
                let Some(value) = value else { return };
                if flags.get(index..).is_some_and(|rest| rest.starts_with('c')) {
                    run.code(Language::Python, &value);
                    run.output = Stream::from(vec![Flow::Unknown]);
                } else {
                    let used = if joined { at + 1 } else { at + 2 };
                    module(run, &value, rest.get(used..).unwrap_or_default());
                }
                return;
            }
            _ => at += if matches!(start, "-W" | "-X" | "--check-hash-based-pycs") { 2 } else { 1 },
        }
    }
    if !rest.iter().any(|word| matches!(word.known(), Some("-V" | "--version" | "-h" | "--help"))) {
        input_as_code(run, Language::Python);
    }
}

/// `python -m NAME …`: modules that are programs of their own.
fn module(run: &mut Run<'_, '_>, module: &Argument, rest: &[Argument]) {
    run.fact(module.span, Fact::Imports { module: module.text.clone() });
    let program = match module.known() {
        Some(
            name @ ("pip" | "pytest" | "pipx" | "twine" | "black" | "mypy" | "ruff" | "uv" | "flake8" | "coverage"
            | "tox"),
        ) => name.to_owned(),
        Some("timeit") => {
            let words = super::words(
                rest,
                |option| matches!(option, "-n" | "-r" | "-s" | "-u" | "--setup").then_some(Role::Nothing),
                super::Style::Leading,
            );
            for code in words.values(&["-s", "--setup"]).chain(&words.operands).cloned().collect::<Vec<_>>() {
                run.code(Language::Python, &code);
            }
            return;
        }
        Some("IPython" | "ipython") => {
            let code = rest.iter().position(|word| word.known() == Some("-c")).and_then(|at| rest.get(at + 1));
            match code.cloned() {
                Some(code) if code.text.known_start().starts_with('!') => run.output = run.shell(&cut(&code, 1)),
                Some(code) => run.code(Language::Python, &code),
                None => {}
            }
            return;
        }
        Some("cProfile" | "profile" | "pdb" | "trace" | "coverage.__main__") => {
            if let Some(script) = rest.iter().find(|word| word.text.known_end().ends_with(".py")).cloned() {
                script_file(run, &script, Language::Python);
            }
            return;
        }
        Some("http.server" | "SimpleHTTPServer") => {
            serves(run, rest);
            return;
        }
        _ => return,
    };
    let mut words = vec![Argument::new(program.as_str().into(), module.span)];
    words.extend(rest.iter().cloned());
    run.output = run.start(words);
}

/// `python -m http.server`: everything below a folder, for everybody who asks.
fn serves(run: &mut Run<'_, '_>, rest: &[Argument]) {
    let takes = |option: &str| matches!(option, "-d" | "--directory" | "-b" | "--bind" | "-p").then_some(Role::Nothing);
    let words = super::words(rest, takes, super::Style::Usual);
    let folder = words.value(&["-d", "--directory"]).map_or_else(|| ".".into(), |folder| folder.text.clone());
    let sends = vec![Flow::File { path: run.reading.scope.resolve(&folder).to_string() }];
    let place = words.value(&["-b", "--bind"]).map_or_else(|| "0.0.0.0".into(), |host| host.text.clone());
    let span = run.span;
    run.contacts(place, span, crate::Contact::Listen, sends);
}

/// A word behind its first `bytes`.
pub(super) fn cut(word: &Argument, bytes: usize) -> Argument {
    let mut rest = word.clone();
    rest.text = super::after(&word.text, bytes);
    rest.span = Span::new((word.span.start + bytes).min(word.span.end), word.span.end);
    rest
}

fn javascript(run: &mut Run<'_, '_>, name: &str) {
    let language =
        if matches!(name, "tsx" | "ts-node" | "deno" | "bun") { Language::TypeScript } else { Language::JavaScript };
    let mut rest = run.rest();
    if matches!(name, "deno" | "bun") {
        match rest.first().and_then(Argument::known) {
            Some("run") => {
                rest.remove(0);
            }
            Some("eval") => {
                if let Some(code) = rest.iter().skip(1).find(|word| !word.text.known_start().starts_with('-')).cloned()
                {
                    run.code(language, &code);
                }
                return;
            }
            Some("install" | "add" | "i" | "x" | "create" | "update" | "cache") => {
                let span = run.span;
                run.contacts("registry.npmjs.org".into(), span, crate::Contact::Fetch, Vec::new());
                return;
            }
            Some("test" | "fmt" | "lint" | "check" | "build" | "task") => return,
            _ => {}
        }
    }
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        match word.text.known_start() {
            "-e" | "--eval" | "-p" | "--print" | "-pe" | "-ep" => {
                if let Some(code) = rest.get(at + 1).cloned() {
                    run.code(language, &code);
                }
                run.output = Stream::from(vec![Flow::Unknown]);
                return;
            }
            start if start.starts_with("--eval=") || start.starts_with("--print=") => {
                let code = cut(word, start.find('=').unwrap_or(0) + 1);
                run.code(language, &code);
                return;
            }
            "-r" | "--require" | "--import" | "--loader" | "--experimental-loader" => {
                if let Some(module) = rest.get(at + 1).cloned() {
                    run.fact(module.span, Fact::Imports { module: module.text.clone() });
                }
                at += 2;
            }
            "--test" | "--version" | "-v" | "--help" => return,
            "-c" | "--check" if at == 0 && name.starts_with("node") && rest.len() == 2 => {
                if let Some(script) = rest.get(1).cloned() {
                    run.reads(&script);
                }
                return;
            }
            "-" => break,
            start if start.starts_with('-') => at += 1,
            _ => {
                let script = word.clone();
                script_file(run, &script, language);
                return;
            }
        }
    }
    input_as_code(run, language);
}

/// Whether nothing is done but to look whether a file can be read. `perl -c` is not such: it runs what stands in a `BEGIN`.
fn only_checks(name: &str, rest: &[Argument]) -> bool {
    let checks: &[&str] = match name {
        "php" => &["-l", "--syntax-check"],
        "ruby" => &["-c", "-wc", "-cw"],
        _ => return false,
    };
    let mut options = rest.iter().filter(|word| word.text.known_start().starts_with('-'));
    let is = |word: &Argument, list: &[&str]| word.known().is_some_and(|word| list.contains(&word));
    rest.first().is_some_and(|first| is(first, checks))
        && options.all(|word| is(word, checks) || is(word, &["-n", "-w"]))
}

/// Languages that are not read: their code is unknown.
fn other(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    let flags: &[char] = match name {
        "perl" | "ruby" | "raku" => &['e', 'E'],
        "php" => &['r', 'B', 'R'],
        "lua" | "luajit" | "Rscript" | "R" | "julia" | "octave" | "elixir" | "osascript" | "groovy" | "ocaml"
        | "gnuplot" => &['e'],
        "csh" | "tcsh" | "expect" | "xonsh" | "nu" | "guile" => &['c'],
        "pwsh" | "powershell" => &['c', 'C', 'e', 'E'],
        _ => &['e', 'c'],
    };
    if only_checks(name, &rest) {
        for script in rest.iter().filter(|word| !word.text.known_start().starts_with('-')) {
            run.reads(script);
        }
        return;
    }
    let mut found = false;
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        let start = word.text.known_start();
        if matches!(start, "-v" | "--version" | "-h" | "--help" | "-V") && rest.len() == 1 {
            return;
        }
        if start.starts_with("--eval")
            || matches!(start, "-execute" | "-Command" | "-EncodedCommand" | "-eval" | "--eval")
        {
            found = true;
            if let Some(code) = rest.get(at + 1).cloned() {
                run.code(Language::Other, &code);
            }
            at += 2;
            continue;
        }
        if start.starts_with('-') && !start.starts_with("--") && start.len() > 1 {
            if let Some(index) = start.find(|letter| flags.contains(&letter)) {
                found = true;
                let joined = start.len() > index + 1 || word.known().is_none();
                let code = if joined { Some(cut(word, index + 1)) } else { rest.get(at + 1).cloned() };
                if let Some(code) = code {
                    run.code(Language::Other, &code);
                }
                at += if joined { 1 } else { 2 };
                continue;
            }
            at += 1;
            continue;
        }
        if start.starts_with("--") {
            at += 1;
            continue;
        }
        if !found {
            script_file(run, word, Language::Other);
        }
        return;
    }
    if !found {
        input_as_code(run, Language::Other);
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}
