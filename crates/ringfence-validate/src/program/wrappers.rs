//! Programs that start another command: they are looked through.

use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Fact, Flow, Privilege};
use crate::shell::Value;
use crate::stream::{Argument, Stream};
use crate::text::{Hole, Text};

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "env" => env,
        "sudo" | "doas" | "pkexec" | "sudoedit" | "run0" | "dzdo" | "gosu" | "su-exec" | "setpriv" => sudo,
        "su" | "runuser" | "sg" => su,
        "xargs" => xargs,
        "nohup" | "nice" | "ionice" | "setsid" | "stdbuf" | "time" | "command" | "builtin" | "exec" | "chrt"
        | "taskset" | "setarch" | "linux32" | "linux64" | "unbuffer" | "catchsegv" | "fakeroot" | "eatmydata"
        | "dbus-run-session" | "xvfb-run" | "proxychains" | "proxychains4" | "torsocks" | "torify" | "tsocks"
        | "caffeinate" | "daemonize" | "start-stop-daemon" | "chronic" | "ts" | "numactl" | "cpulimit" | "prlimit"
        | "softlimit" | "setuidgid" | "rlwrap" | "winpty" | "stap" | "noglob" | "nocorrect" | "coproc" | "doctest"
        | "ltrace" | "strace" | "valgrind" | "perf" | "heaptrack" | "hyperfine" | "dotenv" | "direnv" | "op"
        | "aws-vault" | "envchain" | "honcho" | "foreman" | "tini" | "dumb-init" | "faketime" | "chpst"
        | "s6-setuidgid" | "doppler" | "systemd-inhibit" | "runcon" | "flatpak-spawn" | "i386" | "x86_64" => plain,
        "concurrently" => lines,
        "cmake" => cmake,
        "timeout" | "gtimeout" => timeout,
        "busybox" | "toybox" => busybox,
        "script" | "scriptreplay" => script,
        "watch" | "entr" | "inotifywait" | "watchexec" | "nodemon" => watch,
        "flock" => flock,
        "cd" | "pushd" | "popd" => folder,
        _ => return None,
    })
}

/// Options of wrappers that take a value.
const VALUES: &[(&str, &[&str])] = &[
    ("nice", &["-n", "--adjustment"]),
    ("ionice", &["-c", "-n", "-p", "--class", "--classdata"]),
    ("stdbuf", &["-i", "-o", "-e", "--input", "--output", "--error"]),
    ("time", &["-f", "-o", "--format", "--output"]),
    ("exec", &["-a"]),
    ("taskset", &["-p"]),
    ("strace", &["-e", "-o", "-p", "-s", "-P", "-E", "-u", "-a", "-O", "-S", "-I"]),
    ("ltrace", &["-e", "-o", "-p", "-s", "-u", "-n", "-a", "-A"]),
    ("prlimit", &["-p", "--pid", "-n", "--nofile"]),
    ("numactl", &["-C", "-m", "-N", "-i"]),
    ("cpulimit", &["-l", "-p", "-e"]),
    ("fakeroot", &["-l", "-i", "-s", "-b"]),
    ("start-stop-daemon", &["--pidfile", "-p", "--chuid", "-c", "--exec", "-x", "--name", "-n", "-u"]),
    ("chpst", &["-u", "-U", "-e", "-n", "-l", "-L", "-m", "-d", "-o", "-p", "-f", "-c", "-t", "-/", "-b"]),
    ("tini", &["-p", "-e"]),
    ("faketime", &["--date-prog", "-p"]),
    ("proxychains", &["-f"]),
    ("proxychains4", &["-f"]),
    ("xvfb-run", &["-s", "-n", "-e", "-f", "-p"]),
    ("hyperfine", &["-w", "-r", "-N", "--warmup", "--runs", "-n", "-L"]),
];

fn plain(run: &mut Run<'_, '_>, name: &str) {
    let takes = VALUES.iter().find(|(wrapper, _)| *wrapper == name).map_or(&[][..], |(_, takes)| *takes);
    let words = run.words(takes, Style::Leading);
    if matches!(name, "strace" | "ltrace" | "prlimit") && words.value(&["-p", "--pid"]).is_some() {
        let span = run.span;
        run.fact(span, Fact::Privilege { privilege: Privilege::OtherProcess });
    }
    if let Some(file) =
        words.value(&["-o", "--output"]).filter(|_| matches!(name, "time" | "strace" | "ltrace")).cloned()
    {
        run.writes(&file, Stream::default());
    }
    // `command -v` and `command -V` only ask.
    if name == "command" && words.has(&["-v", "-V"]) {
        super::lookups::which(run, name);
        return;
    }
    // `strace -o '|LINE'` gives what it writes to a command.
    if let Some(line) = words.value(&["-o", "--output"]).filter(|_| matches!(name, "strace" | "ltrace")).cloned()
        && line.text.known_start().starts_with(['|', '!'])
    {
        run.shell(&super::interpreters::cut(&line, 1));
    }
    if name == "start-stop-daemon"
        && let Some(program) = words.value(&["--exec", "-x", "--startas", "-a"]).cloned()
    {
        let mut command = vec![program];
        command.extend(words.operands);
        run.output = run.start(command);
        return;
    }
    // Their output is made to be evaluated.
    if name == "direnv" && matches!(words.operands.first().and_then(Argument::known), Some("hook" | "export")) {
        run.output = Stream::literal(Text::default());
        return;
    }
    let skip = match name {
        // What stands behind the dashes is the command, whatever comes before.
        "op" | "aws-vault" | "direnv" | "dotenv" | "perf" | "doppler"
            if run.rest().iter().any(|word| word.known() == Some("--")) =>
        {
            let command = run.rest().into_iter().skip_while(|word| word.known() != Some("--")).skip(1).collect();
            run.output = run.start(command);
            return;
        }
        "aws-vault" | "direnv" if words.operands.len() > 2 => 2,
        "faketime" | "s6-setuidgid" | "setuidgid" => 1,
        "runcon" | "setarch" if words.operands.len() > 1 => 1,
        "taskset" | "chrt" if !words.has(&["-p"]) => 1,
        "hyperfine" => {
            for line in words.operands {
                run.shell(&line);
            }
            return;
        }
        "dotenv" => usize::from(words.operands.first().and_then(Argument::known) == Some("run")),
        "op" | "aws-vault" | "direnv" | "perf" | "doppler" => usize::from(words.operands.len() > 1),
        _ => 0,
    };
    let operands: Vec<Argument> =
        words.operands.into_iter().skip(skip).skip_while(|word| word.known() == Some("--")).collect();
    if name == "exec" && operands.is_empty() {
        return;
    }
    // It is to be listed under another name.
    if name == "exec" && words.options.iter().any(|(option, _)| option == "-a") {
        let span = run.span;
        run.fact(span, Fact::Tricks { trick: crate::Trick::Obscured });
    }
    run.output = run.start(operands);
}

/// The shell goes to another folder: where that is not one plain word, it is not known which.
fn folder(run: &mut Run<'_, '_>, name: &str) {
    let operands: Vec<Argument> =
        run.rest().into_iter().filter(|word| !matches!(word.known(), Some("-P" | "-L" | "-e" | "-n" | "--"))).collect();
    let start = operands.first().map(|word| word.text.known_start().to_owned()).unwrap_or_default();
    let searched = run.reading.scope.variables.contains_key("CDPATH") && !start.starts_with(['/', '.']);
    let turned = name == "pushd" && (operands.is_empty() || start.starts_with(['+', '-']));
    if name == "popd" || turned || searched && !operands.is_empty() {
        run.reading.scope.forget_directory();
    } else if let Some(cd) = super::builtins::handler("cd") {
        cd(run, name);
    }
}

fn env(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-u", "--unset", "-C", "--chdir", "-S", "--split-string"], Style::Leading);
    let mut operands = words.operands.clone();
    if let Some(folder) = words.value(&["-C", "--chdir"]) {
        let there = run.reading.scope.resolve(&folder.text);
        run.reading.scope.directory.set(Some(there));
    }
    if let Some(line) = words.value(&["-S", "--split-string"]) {
        let mut whole = line.clone();
        for operand in &operands {
            whole.text.append(Text::known(" "));
            whole.text.append(operand.text.clone());
        }
        // The words of the line, as if they stood behind `env`.
        let (settings, rest) = split_settings(&whole);
        set_all(run, &settings);
        run.output = run.shell(&rest);
        return;
    }
    let count = operands.iter().take_while(|word| is_setting(word)).count();
    let command = operands.split_off(count);
    set_all(run, &operands);
    let command: Vec<Argument> =
        command.into_iter().skip_while(|word| matches!(word.known(), Some("--" | "-"))).collect();
    let command = run.behind_settings(command);
    if command.is_empty() {
        let span = run.span;
        run.fact(span, Fact::ReadsEnvironment { name: None });
        run.output = Stream::from(vec![Flow::Environment]);
    } else {
        run.output = run.start(command);
    }
}

/// The settings at the start of a line, and the rest of it.
fn split_settings(line: &Argument) -> (Vec<Argument>, Argument) {
    let Some(known) = line.known() else { return (Vec::new(), line.clone()) };
    let mut settings = Vec::new();
    let mut rest = known.trim_start();
    while let Some((word, after)) = rest.split_once(' ') {
        let setting = Argument::new(Text::known(word), line.span);
        if !is_setting(&setting) {
            break;
        }
        settings.push(setting);
        rest = after.trim_start();
    }
    let mut command = line.clone();
    command.text = Text::known(rest);
    (settings, command)
}

fn is_setting(word: &Argument) -> bool {
    let start = word.text.known_start();
    start.split_once('=').is_some_and(|(name, _)| !name.is_empty() && !name.contains('/') && !name.starts_with('-'))
}

fn set_all(run: &mut Run<'_, '_>, settings: &[Argument]) {
    for setting in settings {
        let start = setting.text.known_start();
        let Some((name, _)) = start.split_once('=') else { continue };
        let value = Value { fields: vec![super::after(&setting.text, name.len() + 1)], flows: setting.flows.clone() };
        let name = name.to_owned();
        let facts = super::sets_environment(run.reading, &name, &value, setting.span, &mut run.inner);
        run.facts.extend(facts);
        run.reading.scope.export(&name);
        run.reading.scope.set(name, value);
    }
}

fn sudo(run: &mut Run<'_, '_>, name: &str) {
    let span = run.span;
    run.fact(span, Fact::Privilege { privilege: Privilege::OtherUser });
    let takes = [
        "-u", "-g", "-h", "-p", "-r", "-t", "-C", "-D", "-R", "-T", "-U", "--user", "--group", "--host", "--prompt",
        "--reuid", "--regid",
    ];
    let words = run.words(&takes, Style::Leading);
    let mut operands = words.operands.clone();
    if matches!(name, "gosu" | "su-exec") && !operands.is_empty() {
        operands.remove(0);
    }
    if name == "sudoedit" || words.has(&["-e", "--edit"]) {
        for file in &operands {
            run.writes(file, Stream::default());
        }
        return;
    }
    let count = operands.iter().take_while(|word| is_setting(word)).count();
    let command = operands.split_off(count);
    set_all(run, &operands);
    run.output = run.start(command);
}

fn su(run: &mut Run<'_, '_>, name: &str) {
    let span = run.span;
    run.fact(span, Fact::Privilege { privilege: Privilege::OtherUser });
    let words = run.words(&["-c", "--command", "-s", "--shell", "-g", "-G", "-u", "-w", "-T"], Style::Usual);
    if let Some(code) = words.value(&["-c", "--command"]).cloned() {
        run.output = run.shell(&code);
    } else if name == "runuser" && words.has(&["-u"]) {
        run.output = run.start(words.operands);
    }
}

fn xargs(run: &mut Run<'_, '_>, _name: &str) {
    let takes = [
        "-a",
        "-d",
        "-E",
        "-I",
        "-L",
        "-n",
        "-P",
        "-s",
        "--arg-file",
        "--delimiter",
        "--replace",
        "--max-args",
        "--max-procs",
        "--max-lines",
    ];
    let words = run.words(&takes, Style::Leading);
    let mut input = run.input.clone();
    if let Some(file) = words.value(&["-a", "--arg-file"]).cloned() {
        input = run.reads(&file);
    }
    let mut command = words.operands.clone();
    if command.is_empty() {
        command.push(Argument::new("echo".into(), run.span));
    }
    let marker = words.value(&["-I", "--replace"]).and_then(|value| value.known().map(str::to_owned));
    let cuts = if words.has(&["-0", "--null"]) {
        Cuts::At('\0')
    } else if let Some(delimiter) = words.value(&["-d", "--delimiter"]) {
        delimiter.known().map_or(Cuts::Unknown, |known| {
            let (text, _) = crate::shell::unescape(known);
            let mut letters = text.chars();
            match (letters.next(), letters.next()) {
                (Some(letter), None) => Cuts::At(letter),
                _ => Cuts::Unknown,
            }
        })
    } else if words.has(&["-E", "-e", "--eof"]) {
        Cuts::Unknown
    } else if marker.is_some() {
        Cuts::Lines
    } else {
        Cuts::Blanks
    };
    let given: Vec<Argument> = match input.known().and_then(|known| cut_input(known, cuts)) {
        Some(values) => values.into_iter().map(|value| Argument::new(Text::known(value), run.span)).collect(),
        None if input.flows.is_empty() => Vec::new(),
        None => vec![Argument {
            text: input
                .text
                .clone()
                .filter(|text| text.as_known().is_none())
                .unwrap_or_else(|| Text::hole(Hole::Output)),
            span: run.span,
            flows: input.flows.clone(),
        }],
    };
    match marker {
        Some(marker) => {
            let marker = if marker.is_empty() { "{}".to_owned() } else { marker };
            for value in &given {
                if run.reading.is_spent() {
                    break;
                }
                let output = run.start_with(fill(&command, &marker, value), &Stream::default());
                run.output.then(output);
            }
        }
        None => {
            command.extend(given);
            run.output = run.start_with(command, &Stream::default());
        }
    }
    if words.operands.is_empty() && input.text.is_none() && input.texts.is_empty() {
        // By itself it says what it is told, and no word of its own.
        run.output = Stream::from(input.flows);
    }
}

/// What cuts the input of `xargs` into values.
#[derive(Debug, Clone, Copy)]
enum Cuts {
    At(char),
    Lines,
    Blanks,
    Unknown,
}

/// The values of a known input; nothing where quotes would have to be read.
fn cut_input(known: &str, cuts: Cuts) -> Option<Vec<&str>> {
    let quoted = known.contains(['\'', '"', '\\']);
    match cuts {
        Cuts::At(letter) => {
            let known = known.strip_suffix(letter).unwrap_or(known);
            Some(if known.is_empty() { Vec::new() } else { known.split(letter).collect() })
        }
        Cuts::Lines if !quoted => Some(known.lines().map(str::trim_start).filter(|line| !line.is_empty()).collect()),
        Cuts::Blanks if !quoted => Some(known.split_whitespace().collect()),
        Cuts::Lines | Cuts::Blanks | Cuts::Unknown => None,
    }
}

/// Puts a value into the place of a mark.
pub(super) fn fill(command: &[Argument], mark: &str, value: &Argument) -> Vec<Argument> {
    command
        .iter()
        .map(|word| {
            let mut filled = Argument { text: Text::default(), span: word.span, flows: word.flows.clone() };
            for piece in word.text.pieces() {
                match piece {
                    crate::Piece::Known(known) if known.contains(mark) => {
                        for (index, part) in known.split(mark).enumerate() {
                            if index > 0 {
                                filled.text.append(value.text.clone());
                                filled.flows.extend(value.flows.clone());
                            }
                            filled.text.append(Text::known(part));
                        }
                    }
                    other => filled.text.push(other.clone()),
                }
            }
            filled
        })
        .collect()
}

/// Each operand is a line for a shell.
fn lines(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-n", "--names", "-c", "--prefix-colors", "-m", "--max-processes"], Style::Usual);
    for line in words.operands {
        // `npm:dev` stands for `npm run dev`, and what follows it is the shell's as ever.
        let shortcut = line.text.known_start().split_once(':').and_then(|(runner, _)| {
            let known = ["npm", "yarn", "pnpm", "bun", "node", "deno"].contains(&runner);
            known.then(|| {
                let mut whole = Text::known(format!("{runner} run "));
                whole.append(super::after(&line.text, runner.len() + 1));
                whole
            })
        });
        match shortcut {
            Some(text) => run.shell(&Argument { text, ..line.clone() }),
            None => run.shell(&line),
        };
    }
}

/// `cmake -E` is a box of small programs, `rm` and `env` among them.
fn cmake(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    if rest.first().and_then(Argument::known) == Some("-E") {
        run.output = run.start(rest.into_iter().skip(1).collect());
        return;
    }
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    super::scripting::cmake_files(run, &rest);
}

fn timeout(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-k", "-s", "--kill-after", "--signal"], Style::Leading);
    run.output = run.start(words.operands.into_iter().skip(1).collect());
}

fn busybox(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    if rest.first().and_then(Argument::known).is_some_and(|word| word.starts_with("--")) {
        return;
    }
    run.output = run.start(rest);
}

fn script(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-c", "--command", "-O", "-I", "-B", "-T", "-E", "-o"], Style::Usual);
    for file in words.operands.iter().take(1) {
        run.writes(file, Stream::default());
    }
    if let Some(code) = words.value(&["-c", "--command"]).cloned() {
        run.output = run.shell(&code);
    } else if words.operands.len() > 1 {
        // Elsewhere than on Linux the command stands behind the file.
        run.output = run.start(words.operands.into_iter().skip(1).collect());
    }
}

fn watch(run: &mut Run<'_, '_>, name: &str) {
    // Of `watch` itself, `-x` and `-d` take no value.
    let takes: &[&str] = match name {
        "watch" => &["-n", "--interval"],
        _ => &["-n", "--interval", "-d", "-w", "-e", "--exec", "-x", "-s"],
    };
    let words = run.words(takes, Style::Leading);
    let exec = words.values(&["--exec"]).next().cloned();
    if let (Some(code), "nodemon") = (&exec, name) {
        run.shell(code);
        return;
    }
    if name == "inotifywait" {
        return;
    }
    if let (Some(code), "entr") = (words.value(&["-s"]), name) {
        run.output = run.shell(&code.clone());
        return;
    }
    if name == "entr" || words.has(&["-x"]) {
        run.output = run.start(words.operands);
        return;
    }
    // `watch` gives its words to a shell, joined.
    if let Some(line) = join(&words.operands) {
        run.output = run.shell(&line);
    }
}

/// The words as one line.
pub(super) fn join(words: &[Argument]) -> Option<Argument> {
    let (first, rest) = words.split_first()?;
    let mut line = first.clone();
    for word in rest {
        line.text.append(Text::known(" "));
        line.text.append(word.text.clone());
        line.flows.extend(word.flows.clone());
        line.span.end = word.span.end.max(line.span.start);
    }
    Some(line)
}

fn flock(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-w", "-E", "--wait", "--timeout", "-c", "--command"], Style::Leading);
    let mut operands = words.operands.into_iter().skip(1).peekable();
    if operands.peek().and_then(|word| word.known()).is_some_and(|word| word == "-c" || word == "--command") {
        operands.next();
        if let Some(code) = operands.next() {
            run.output = run.shell(&code);
        }
        return;
    }
    run.output = run.start(operands.collect());
}
