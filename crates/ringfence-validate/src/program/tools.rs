//! Tools with small languages of their own that can write files and start commands: editors, pagers, make, debuggers.

use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Fact, Flow, Privilege, SystemAct};
use crate::language::Language;
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "vim" | "vi" | "nvim" | "ex" | "view" | "gvim" | "rvim" | "vimdiff" => vim,
        "ed" | "red" => ed,
        "man" => man,
        "less" | "more" => pager,
        "make" | "gmake" | "bmake" => make,
        "gdb" | "lldb" => gdb,
        "kill" | "pkill" | "killall" => kill,
        "sysctl" => sysctl,
        "ip" => ip,
        "sort" => sort,
        "java" => java,
        "emacsclient" => vim,
        "passwd" => passwd,
        "date" => date,
        "journalctl" => journalctl,
        "test" | "[" => test,
        _ => return None,
    })
}

/// Looking at whether a file is there is not reading it.
fn test(_run: &mut Run<'_, '_>, _name: &str) {}

/// Commands of the editor: `:!cmd`, `:w file`, `:python …`.
fn vim(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(
        &["-c", "-S", "-s", "-u", "-U", "-i", "-w", "-W", "--cmd", "-T", "-t", "--remote", "--eval", "-e_"],
        Style::Usual,
    );
    let mut commands: Vec<Argument> = words.values(&["-c", "--cmd"]).cloned().collect();
    let mut operands = Vec::new();
    for word in words.operands {
        if word.text.known_start().starts_with('+') {
            commands.push(super::interpreters::cut(&word, 1));
        } else {
            operands.push(word);
        }
    }
    for file in words
        .options
        .iter()
        .filter(|(option, _)| matches!(option.as_str(), "-S" | "-u" | "-s" | "-U"))
        .filter_map(|(_, value)| value.clone())
        .collect::<Vec<_>>()
    {
        if !matches!(file.known(), Some("NONE" | "NORC" | "DEFAULTS")) {
            run.fact(file.span, Fact::Executes { from: vec![Flow::File { path: file.text.to_string() }] });
        }
    }
    for command in &commands {
        editor_command(run, command);
    }
    for file in &operands {
        run.reads(file);
        run.writes(file, Stream::from(vec![Flow::Input]));
    }
}

fn editor_command(run: &mut Run<'_, '_>, command: &Argument) {
    let Some(known) = command.known() else {
        run.fact(command.span, Fact::Executes { from: vec![Flow::Unknown] });
        return;
    };
    let bare = known.trim_start_matches([':', ' ']);
    if let Some(at) = bare.find('!')
        && (at == 0
            || bare.get(..at).is_some_and(|before| {
                matches!(before.trim(), "r" | "read" | "w" | "write" | "%" | "." | "silent" | "sil" | "ter" | "term")
            }))
    {
        let code = Argument::new(Text::known(bare.get(at + 1..).unwrap_or_default()), command.span);
        run.shell(&code);
        return;
    }
    for word in [
        "terminal ",
        "term ",
        "system(",
        "python",
        "py3",
        "pyx",
        "lua ",
        "perl ",
        "ruby ",
        "source ",
        "so ",
        "call system",
    ] {
        if bare.starts_with(word) || bare.contains("system(") {
            let quoted = bare.split(['\'', '"']).nth(1).filter(|_| bare.contains("system("));
            match quoted {
                Some(code) => {
                    let code = Argument::new(Text::known(code), command.span);
                    run.shell(&code);
                }
                None if word.starts_with("py") => {
                    let rest = bare.split_once(' ').map_or("", |(_, rest)| rest);
                    let code = Argument::new(Text::known(rest), command.span);
                    run.code(Language::Python, &code);
                }
                None if word.starts_with("ter") => {
                    let rest = bare.split_once(' ').map_or("", |(_, rest)| rest);
                    let code = Argument::new(Text::known(rest), command.span);
                    run.shell(&code);
                }
                None => run.fact(command.span, Fact::Unknown { unknown: crate::Unknown::Language }),
            }
            return;
        }
    }
    if let Some(file) = bare.strip_prefix("w ").or_else(|| bare.strip_prefix("saveas ")) {
        let file = Argument::new(Text::known(file.trim()), command.span);
        run.writes(&file, Stream::from(vec![Flow::Unknown]));
    }
}

/// The input of `ed` is a script.
fn ed(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-p"], Style::Usual);
    for file in &words.operands {
        if let Some(code) = file.text.known_start().strip_prefix('!') {
            let code = Argument::new(Text::known(code), file.span);
            run.shell(&code);
            continue;
        }
        run.reads(file);
        run.writes(file, Stream::from(vec![Flow::Unknown]));
    }
    let script = run.input.known().map(str::to_owned);
    let span = run.span;
    match script {
        Some(script) => {
            for line in script.lines() {
                if let Some(code) =
                    line.strip_prefix('!').or_else(|| line.strip_prefix("r !")).or_else(|| line.strip_prefix("w !"))
                {
                    let code = Argument::new(Text::known(code), span);
                    run.shell(&code);
                }
            }
        }
        None if run.input.flows != [Flow::Input] => {
            let from = run.input.flows.clone();
            run.fact(span, Fact::Executes { from });
        }
        None => {}
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
    for code in words.values(&["--eval", "-E"]).cloned().collect::<Vec<_>>() {
        let from = vec![Flow::Literal];
        run.fact(code.span, Fact::Executes { from });
        if let Some(known) = code.known() {
            // Commands of a rule stand behind a tab or a semicolon, functions within `$(shell …)`.
            let line = known.split(['\t', ';']).skip(1).collect::<Vec<_>>().join(";");
            let shell = known.split("$(shell ").nth(1).map(|rest| rest.trim_end_matches(')').to_owned());
            for line in [Some(line), shell].into_iter().flatten().filter(|line| !line.trim().is_empty()) {
                let line = Argument::new(Text::known(line), code.span);
                run.shell(&line);
            }
        }
    }
    for file in words.values(&["-f", "--file", "--makefile"]).cloned().collect::<Vec<_>>() {
        if matches!(file.known(), Some("-" | "/dev/stdin")) {
            let from = run.input.flows.clone();
            run.fact(file.span, Fact::Executes { from });
            continue;
        }
        let written = file.known().and_then(|path| run.reading.scope.file(path).cloned());
        if let Some(stream) = written {
            run.fact(file.span, Fact::Executes { from: stream.flows });
        }
    }
    for setting in
        words.operands.iter().filter(|word| word.text.known_start().starts_with("SHELL=")).cloned().collect::<Vec<_>>()
    {
        let code = super::interpreters::cut(&setting, 6);
        run.start(vec![code]);
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}

fn gdb(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(
        &["-p", "--pid", "-pid", "-ex", "-eval-command", "-x", "-o", "-c", "--core", "-iex", "-s"],
        Style::LongWords,
    );
    let span = run.span;
    if words.value(&["-p", "--pid", "-pid"]).is_some() {
        run.fact(span, Fact::Privilege { privilege: Privilege::OtherProcess });
    }
    for command in words.values(&["-ex", "-eval-command", "-iex", "-o"]).cloned().collect::<Vec<_>>() {
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
        } else if known.starts_with("call ") || known.starts_with("print system") {
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
    let everything = rest.iter().filter_map(Argument::known).any(|word| word == "-1");
    if !asks && (!own || everything) {
        let span = run.span;
        let about =
            if everything { Text::known("-1") } else { rest.last().map(|word| word.text.clone()).unwrap_or_default() };
        run.fact(span, Fact::System { act: SystemAct::Kill, about });
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
        let written = jar.known().and_then(|path| run.reading.scope.file(path).cloned());
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
