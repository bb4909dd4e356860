//! Tools with small languages of their own that can write files and start commands: pagers, make, debuggers.

use super::makefile::Settings;
use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Fact, Flow, Privilege, SystemAct};
use crate::language::Language;
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "man" => man,
        "less" | "more" => pager,
        "make" | "gmake" | "bmake" => make,
        "gdb" | "lldb" => gdb,
        "kill" | "pkill" | "killall" => kill,
        "sysctl" => sysctl,
        "ip" => ip,
        "sort" => sort,
        "ssh-keygen" => ssh_keygen,
        "gcc" | "g++" | "cc" | "c++" | "clang" | "clang++" => super::lookups::compiler,
        "java" => java,
        "passwd" => passwd,
        "date" => date,
        "journalctl" => journalctl,
        "test" | "[" => test,
        "ftp" | "lftp" | "bc" | "dc" | "mail" | "mailx" | "mutt" => line_tool,
        _ => return None,
    })
}

/// Makes keys, or looks at one.
fn ssh_keygen(run: &mut Run<'_, '_>, _name: &str) {
    let takes =
        ["-t", "-b", "-C", "-N", "-P", "-O", "-I", "-n", "-V", "-f", "-m", "-a", "-Z", "-D", "-s", "-F", "-R", "-E"];
    let words = run.words(&takes, Style::Usual);
    let looks = words.has(&["-l", "-y", "-e", "-L", "-F", "-B", "-r"]);
    for file in words.values(&["-f"]).cloned().collect::<Vec<_>>() {
        if looks {
            run.reads(&file);
        } else {
            run.writes(&file, Stream::default());
        }
    }
    if let Some(signer) = words.value(&["-s"]).cloned() {
        run.reads(&signer);
    }
}

/// Looking at whether a file is there is not reading it; an operand of `-v` names a place of an array.
fn test(run: &mut Run<'_, '_>, _name: &str) {
    for word in run.rest() {
        if let Some(known) = word.known() {
            run.expands(known);
        }
    }
}

fn man(run: &mut Run<'_, '_>, _name: &str) {
    let words =
        run.words(&["-P", "--pager", "-H", "--html", "-M", "-C", "-S", "-s", "-L", "-m", "-p", "-r"], Style::Usual);
    for code in words.values(&["-P", "--pager", "-H", "--html"]).cloned().collect::<Vec<_>>() {
        run.shell(&code);
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}

fn pager(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-o", "-O", "-p", "-x", "-j", "-k", "-P", "-t", "-T"], Style::Usual);
    let mut output = Stream::default();
    for file in &words.operands {
        if let Some(command) = file.text.known_start().strip_prefix("+!") {
            let code = Argument::new(Text::known(command), file.span);
            run.shell(&code);
            continue;
        }
        if file.text.known_start().starts_with('+') {
            continue;
        }
        let read = run.reads(file);
        output.then(read);
    }
    if words.operands.is_empty() {
        output = run.input.clone();
    }
    for file in words.values(&["-o", "-O"]).cloned().collect::<Vec<_>>() {
        run.writes(&file, output.clone());
    }
    run.output = output;
}

/// Variables and code given on the line; the file is the project's own.
fn make(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(
        &["-f", "--file", "--makefile", "-C", "--directory", "-I", "-o", "-W", "--eval", "-j", "-l", "-E"],
        Style::Usual,
    );
    let flags = run.reading.scope.variables.get("MAKEFLAGS").map(crate::shell::Value::first);
    let is_setting = |word: &Argument| word.known().is_none_or(|known| known.contains('='));
    let given = flags.is_some()
        || run.reading.scope.variables.contains_key("MAKEFILES")
        || words.values(&["-f", "--file", "--makefile"]).count() > 1
        || words.has(&["-e", "--environment-overrides", "--eval", "-E"])
        || words.operands.iter().any(is_setting);
    let settings = if given { Settings::Given } else { Settings::None };
    for code in words.values(&["--eval", "-E"]).cloned().collect::<Vec<_>>() {
        let from = vec![Flow::Literal];
        run.fact(code.span, Fact::Executes { from });
        if let Some(known) = code.known() {
            super::makefile::recipes(run, known, &code, settings);
        }
    }
    let mut files: Vec<Argument> = words.values(&["-f", "--file", "--makefile"]).cloned().collect();
    if files.is_empty() {
        // The first of these that is there.
        let folder = words.value(&["-C", "--directory"]).and_then(Argument::known).unwrap_or(".").to_owned();
        let names = ["GNUmakefile", "makefile", "Makefile"];
        files.extend(names.map(|name| Argument::new(Text::known(format!("{folder}/{name}")), run.span)));
    }
    for file in files {
        let written = match file.known() {
            Some("-" | "/dev/stdin" | "/dev/fd/0") => Some(run.input.clone()),
            Some(path) => run.reading.file(path),
            None => None,
        };
        if let Some(stream) = written {
            if let Some(text) = stream.known() {
                super::makefile::recipes(run, text, &file, settings);
            }
            run.fact(file.span, Fact::Executes { from: stream.flows });
        }
    }
    for setting in words.operands.clone() {
        let start = setting.text.known_start().to_owned();
        let Some((variable, _)) = start.split_once('=') else { continue };
        let value = super::interpreters::cut(&setting, variable.len() + 1);
        make_setting(run, variable.trim_end_matches([':', '?', '+']), &value);
    }
    if let Some(flags) = flags {
        let span = run.span;
        make_setting(run, "MAKEFLAGS", &Argument::new(flags, span));
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}

/// Variables that recipes start as programs.
const MAKE_PROGRAMS: &[&str] = &[
    "SHELL", "CC", "CXX", "CPP", "LD", "AR", "AS", "FC", "RM", "CP", "MV", "INSTALL", "MAKE", "PYTHON", "NODE", "SUDO",
];

/// A variable on the line: a program, flags with code among them, or a call of make's own functions.
fn make_setting(run: &mut Run<'_, '_>, name: &str, value: &Argument) {
    if MAKE_PROGRAMS.contains(&name) {
        run.shell(value);
    }
    let Some(known) = value.known() else { return };
    let code = if name == "MAKEFLAGS" { known.split_once("--eval=").map(|(_, code)| code) } else { None };
    let code = code.unwrap_or(if known.contains("$(shell ") { known } else { "" });
    super::makefile::recipes(run, code, value, Settings::Given);
}

/// Lines of a tool in which a sign starts a command: `!rm x`.
pub(super) fn escapes(run: &mut Run<'_, '_>, text: &str, signs: &[&str], span: crate::span::Span) {
    for line in text.split(['\n', ';']) {
        let line = line.trim_start();
        if let Some(code) = signs.iter().find_map(|sign| line.strip_prefix(sign)) {
            run.shell(&Argument::new(Text::known(code.trim_start()), span));
        }
    }
}

/// Tools that take lines from their input or an option, where `!` or a word starts a command.
fn line_tool(run: &mut Run<'_, '_>, name: &str) {
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    let signs: &[&str] = match name {
        "mail" | "mailx" | "mutt" => &["~!", "~|", "~r !", "!"],
        _ => &["!", "shell ", "local shell "],
    };
    let span = run.span;
    if let Some(text) = run.input.known().map(str::to_owned) {
        escapes(run, &text, signs, span);
    }
    let words = run.words(&["-e", "-c", "-f"], Style::Usual);
    for line in words.values(&["-e", "-c"]).cloned().collect::<Vec<_>>() {
        if let Some(known) = line.known() {
            escapes(run, known, signs, line.span);
        }
    }
    if matches!(name, "ftp" | "lftp") {
        run.brings();
    }
}

fn gdb(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(
        &[
            "-p",
            "--pid",
            "-pid",
            "-ex",
            "-eval-command",
            "-x",
            "-o",
            "-c",
            "--core",
            "-iex",
            "-s",
            "--eval-command",
            "--ex",
            "--init-eval-command",
            "--command",
            "-command",
        ],
        Style::LongWords,
    );
    let span = run.span;
    if words.value(&["-p", "--pid", "-pid"]).is_some() {
        run.fact(span, Fact::Privilege { privilege: Privilege::OtherProcess });
    }
    for file in words.values(&["-x", "--command", "-command"]).cloned().collect::<Vec<_>>() {
        if let Some(text) =
            file.known().and_then(|path| run.reading.file(path)).and_then(|read| read.known().map(str::to_owned))
        {
            escapes(run, &text, &["!", "shell "], file.span);
        }
    }
    let commands = ["-ex", "-eval-command", "-iex", "-o", "--eval-command", "--ex", "--init-eval-command"];
    for command in words.values(&commands).cloned().collect::<Vec<_>>() {
        let Some(known) = command.known() else { continue };
        let code = known
            .strip_prefix('!')
            .or_else(|| known.strip_prefix("shell "))
            .or_else(|| known.strip_prefix("platform shell "));
        if let Some(code) = code {
            let code = Argument::new(Text::known(code), command.span);
            run.shell(&code);
        } else if let Some(code) = known.strip_prefix("python ").or_else(|| known.strip_prefix("script ")) {
            let code = Argument::new(Text::known(code), command.span);
            run.code(Language::Python, &code);
        } else if let Some((_, rest)) = known.split_once("system") {
            run.fact(command.span, Fact::Executes { from: vec![Flow::Literal] });
            if let Some(code) = rest.split('"').nth(1) {
                run.shell(&Argument::new(Text::known(code), command.span));
            }
        } else if let Some(file) = known.strip_prefix("source ") {
            run.fact(command.span, Fact::Executes { from: vec![Flow::File { path: file.to_owned() }] });
        } else if known.starts_with("call ") {
            run.fact(command.span, Fact::Executes { from: vec![Flow::Literal] });
        }
    }
    if let Some(at) = run.rest().iter().position(|word| word.known() == Some("--args")) {
        let command = run.rest().into_iter().skip(at + 1).collect();
        run.start(command);
    }
}

fn kill(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    // `kill -0` only asks, `kill -l` lists; jobs of this shell are its own.
    let asks = rest.iter().filter_map(Argument::known).any(|word| matches!(word, "-0" | "-l" | "-L"));
    let own = rest.iter().filter(|word| !word.text.known_start().starts_with('-')).all(|word| {
        word.text.known_start().starts_with('%') || matches!(word.text.pieces(), [crate::Piece::Hole(crate::Hole::Variable(name))] if name == "!" || name.ends_with("PID") || name.ends_with("pid"))
    });
    // By the names of folders: each process has one below `/proc`.
    let listed = |flow: &crate::Flow| matches!(flow, crate::Flow::File { path } if path == "/proc" || path.starts_with("/proc/["));
    let everything = rest.iter().any(|word| {
        word.known() == Some("-1") || word.text.has_pattern() || word.known().is_none() && word.flows.iter().any(listed)
    });
    if !asks && (!own || everything) {
        let span = run.span;
        let mut about: Vec<Text> = rest
            .iter()
            .filter(|word| !word.text.known_start().starts_with('-'))
            .map(|word| word.text.clone())
            .collect();
        if everything || about.is_empty() {
            about = vec![if everything {
                Text::known("-1")
            } else {
                rest.last().map(|word| word.text.clone()).unwrap_or_default()
            }];
        }
        for about in about {
            run.fact(span, Fact::System { act: SystemAct::Kill, about });
        }
    }
}

fn sysctl(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-p", "--load"], Style::Usual);
    let writes = words.has(&["-w", "-p", "--write", "--load"])
        || words.operands.iter().any(|word| word.text.known_start().contains('='));
    if writes {
        let span = run.span;
        let about = words.operands.first().map(|word| word.text.to_string()).unwrap_or_default();
        let privilege =
            if about.contains("randomize_va_space") || about.contains("ptrace_scope") || about.contains("kptr") {
                Privilege::Defences
            } else {
                Privilege::Kernel
            };
        run.fact(span, Fact::Privilege { privilege });
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}

/// Showing is not changing.
fn ip(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-n", "-f", "-netns", "-family"], Style::LongWords);
    let verbs: Vec<String> = words.operands.iter().filter_map(|word| word.known().map(str::to_owned)).collect();
    if verbs.first().is_some_and(|word| word == "netns") && verbs.get(1).is_some_and(|word| word == "exec") {
        let span = run.span;
        run.fact(span, Fact::Privilege { privilege: Privilege::Namespaces });
        run.start(words.operands.into_iter().skip(3).collect());
        return;
    }
    if verbs.iter().skip(1).any(|verb| {
        matches!(
            verb.as_str(),
            "add" | "del" | "delete" | "set" | "flush" | "replace" | "change" | "append" | "up" | "down"
        )
    }) {
        run.manages(SystemAct::Firewall);
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}

fn sort(run: &mut Run<'_, '_>, name: &str) {
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
}

fn java(run: &mut Run<'_, '_>, _name: &str) {
    let words =
        run.words(&["-cp", "-classpath", "-jar", "--module-path", "-p", "-m", "--add-modules"], Style::LongWords);
    if let Some(jar) = words.value(&["-jar"]).cloned() {
        let written = jar.known().and_then(|path| run.reading.file(path));
        let from = written.map_or_else(|| vec![Flow::File { path: jar.text.to_string() }], |stream| stream.flows);
        run.fact(jar.span, Fact::Executes { from });
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}

fn passwd(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-n", "-x", "-w", "-i"], Style::Usual);
    if !words.has(&["-S", "--status"]) {
        run.manages(SystemAct::Users);
    }
}

fn date(run: &mut Run<'_, '_>, _name: &str) {
    run.output = Stream::from(vec![Flow::Unknown]);
}

fn journalctl(run: &mut Run<'_, '_>, _name: &str) {
    if run.rest().iter().any(|word| word.text.known_start().starts_with("--vacuum") || word.known() == Some("--rotate"))
    {
        run.manages(SystemAct::Traces);
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}
