//! Commands of the shell itself that change what it knows.

use super::{Handler, Run};
use crate::analysis::{Fact, Flow, Trick};
use crate::language::Language;
use crate::shell::{Odd, Plainly, Value};
use crate::stream::{Argument, Stream};
use crate::text::{Hole, Text};

/// Traps that are remembered; more are read at once.
const MOST_TRAPS: usize = 32;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "cd" | "pushd" => cd,
        "eval" => eval,
        "source" | "." => source,
        "export" | "declare" | "typeset" | "local" | "readonly" => declare,
        "unset" => unset,
        "read" => read,
        "trap" => trap,
        "alias" => alias,
        "set" => set,
        "shift" => shift,
        "pwd" => pwd,
        "enable" => enable,
        "mapfile" | "readarray" => mapfile,
        "mktemp" => mktemp,
        "ssh-agent" | "pyenv" | "rbenv" | "nodenv" | "goenv" | "jenv" | "direnv" | "starship" | "zoxide" | "fnm"
        | "mise" | "dircolors" | "keychain" | "minikube" | "docker-machine" | "lesspipe" => own_words,
        _ => return None,
    })
}

fn cd(run: &mut Run<'_, '_>, _name: &str) {
    let target =
        run.rest().into_iter().find(|word| word.known().is_none_or(|word| !word.starts_with('-') || word == "-"));
    let directory = match target {
        Some(word) if word.known() == Some("-") => Text::hole(Hole::Variable("OLDPWD".to_owned())),
        Some(word) => run.reading.scope.resolve(&word.text),
        None => Text::known(run.reading.surroundings.home.clone()),
    };
    run.reading.scope.directory = Some(directory);
}

/// Programs whose output is made to be evaluated, and which ask nobody else for it.
fn own_words(run: &mut Run<'_, '_>, _name: &str) {
    run.output = Stream::literal(Text::default());
}

/// A new name below the folder for such; with words of its own it may be anywhere.
fn mktemp(run: &mut Run<'_, '_>, _name: &str) {
    let is_plain = |word: &Argument| matches!(word.known(), Some("-d" | "-q" | "-u" | "--directory" | "-dq" | "-qd"));
    run.output = if run.rest().iter().all(is_plain) {
        let mut name = Text::known("/tmp/");
        name.append(Text::hole(Hole::Output));
        Stream { flows: vec![Flow::Literal], text: Some(name) }
    } else {
        Stream::from(vec![Flow::Unknown])
    };
}

fn pwd(run: &mut Run<'_, '_>, _name: &str) {
    let directory = run.reading.scope.directory.clone();
    let directory = directory.unwrap_or_else(|| Text::known(run.reading.surroundings.directory.clone()));
    run.output = Stream::literal(directory);
}

fn eval(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    let Some(line) = super::wrappers::join(&rest) else { return };
    if line.text.has_hole() {
        let from = if line.flows.is_empty() { vec![Flow::Unknown] } else { line.flows.clone() };
        run.fact(line.span, Fact::Tricks { trick: Trick::Evaluates });
        if !matches!(line.text.pieces(), [crate::Piece::Hole(_)]) {
            run.fact(line.span, Fact::Executes { from });
        }
    }
    run.output = run.shell(&line);
}

fn source(run: &mut Run<'_, '_>, _name: &str) {
    let Some(file) = run.rest().into_iter().find(|word| word.known() != Some("--")) else { return };
    if file.known().is_some_and(|path| path.starts_with("/dev/stdin")) {
        let input = run.input.clone();
        run.output = run.execute(&input, Language::Shell, file.span);
        return;
    }
    let known = file.known().map(str::to_owned);
    let written = known.as_deref().and_then(|path| {
        let files = &run.reading.scope.files;
        files.get(path).or_else(|| files.get(path.strip_prefix("./").unwrap_or(path))).cloned()
    });
    match written {
        Some(stream) => run.output = run.execute(&stream, Language::Shell, file.span),
        None => {
            let path = run.reading.scope.resolve(&file.text);
            let mut from = vec![Flow::File { path: path.to_string() }];
            from.extend(crate::stream::telling(&file.flows));
            run.fact(file.span, Fact::Executes { from });
        }
    }
}

fn declare(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    let letters: String =
        rest.iter().filter_map(Argument::known).filter(|word| word.starts_with('-')).collect::<String>();
    let local = name == "local" || matches!(name, "declare" | "typeset") && !letters.contains('g');
    for word in rest {
        let start = word.text.known_start();
        let Some((variable, _)) = start.split_once('=') else {
            let Some(known) = word.known().filter(|known| !known.starts_with(['-', '+'])) else { continue };
            // `export NAME` of what was set before.
            if name == "export"
                && super::poisons(known)
                && let Some(value) = run.reading.scope.variables.get(known).cloned()
            {
                let facts = super::sets_environment(run.reading, known, &value, word.span, &mut run.inner);
                run.facts.extend(facts);
            }
            if local && run.reading.scope.is_within() {
                run.reading.scope.make_local(known);
                run.reading.scope.unset(known);
            }
            mark(run, name, &letters, known, None);
            continue;
        };
        if variable.starts_with('-') {
            continue;
        }
        let (variable, adds) = variable.strip_suffix('+').map_or((variable, false), |variable| (variable, true));
        let variable = variable.split('[').next().unwrap_or(variable).to_owned();
        let mut value = Value {
            fields: vec![super::after(&word.text, start.find('=').unwrap_or(0) + 1)],
            flows: word.flows.clone(),
        };
        if local {
            run.reading.scope.make_local(&variable);
        }
        if adds {
            value = Value { flows: value.flows, ..Value::hole(&variable) };
        }
        if name == "export" || super::poisons(&variable) {
            let facts = super::sets_environment(run.reading, &variable, &value, word.span, &mut run.inner);
            run.facts.extend(facts);
        }
        let target = value.first().as_known().map(str::to_owned);
        run.reading.scope.set(variable.clone(), value);
        mark(run, name, &letters, &variable, target);
    }
    // `export -p`, `declare -x`: everything is shown.
    if run.arguments.len() == 1
        || run.arguments.get(1).and_then(Argument::known).is_some_and(|word| word == "-p" || word == "-x")
            && run.arguments.len() == 2
    {
        let span = run.span;
        run.fact(span, Fact::ReadsEnvironment { name: None });
        run.output = Stream::from(vec![Flow::Environment]);
    }
}

/// Variables that refer to others, change what they are given, or refuse it.
fn mark(run: &mut Run<'_, '_>, name: &str, letters: &str, variable: &str, target: Option<String>) {
    let scope = &mut run.reading.scope;
    if letters.contains('n') {
        scope.make_odd(variable.to_owned(), target.map_or(Odd::NamesAny, Odd::Names));
        scope.set(variable.to_owned(), Value::hole(variable));
    } else if letters.contains(['i', 'l', 'u', 'c']) {
        scope.make_odd(variable.to_owned(), Odd::Changes);
        scope.forget(variable);
    } else if name == "readonly" || letters.contains('r') {
        scope.make_odd(variable.to_owned(), Odd::Changes);
    }
}

fn unset(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    let functions = rest.iter().any(|word| word.known() == Some("-f"));
    for word in rest {
        if let Some(name) = word.known() {
            if functions {
                run.reading.scope.unset_function(name, Plainly::Surely);
                continue;
            }
            if !run.reading.scope.variables.contains_key(name) {
                run.reading.scope.unset_function(name, Plainly::Perhaps);
            }
            run.reading.scope.unset(name);
            if matches!(name, "HISTFILE" | "HISTSIZE" | "HISTFILESIZE" | "PROMPT_COMMAND") {
                run.fact(word.span, Fact::System { act: crate::SystemAct::Traces, about: Text::known(name) });
            }
        }
    }
}

/// Variables take what the input holds.
fn read(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-p", "-d", "-n", "-N", "-t", "-u", "-i"], super::Style::Usual);
    let descriptor = words.value(&["-u"]).and_then(|value| value.known()).and_then(|value| value.parse::<i32>().ok());
    let input = match descriptor {
        Some(descriptor) => run.reading.scope.descriptors.get(&descriptor).cloned().unwrap_or_default(),
        None => run.input.clone(),
    };
    let names: Vec<String> = words.operands.iter().filter_map(|word| word.known().map(str::to_owned)).collect();
    let names = if names.is_empty() { vec!["REPLY".to_owned()] } else { names };
    // One line of known input into one variable is known too.
    let single = input
        .known()
        .map(|known| known.trim_end_matches('\n'))
        .filter(|known| !known.contains('\n') && names.len() == 1);
    for name in &names {
        let value = match single {
            Some(known) => Value { fields: vec![Text::known(known)], flows: input.flows.clone() },
            None => Value { flows: input.flows.clone(), ..Value::hole(name) },
        };
        run.reading.scope.set(name.clone(), value);
    }
}

fn mapfile(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-d", "-n", "-O", "-s", "-u", "-C", "-c"], super::Style::Usual);
    if let Some(code) = words.value(&["-C"]).cloned() {
        run.shell(&code);
    }
    let name =
        words.operands.first().and_then(|word| word.known().map(str::to_owned)).unwrap_or_else(|| "MAPFILE".to_owned());
    let value = Value { flows: run.input.flows.clone(), ..Value::hole(&name) };
    run.reading.scope.set(name, value);
}

/// A trap runs later, with what is known then; one for errors and the like may run at any time too.
fn trap(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    let Some(at) = rest.iter().position(|word| !matches!(word.known(), Some("-l" | "-p" | "--" | "-"))) else { return };
    let Some(code) = rest.get(at).cloned() else { return };
    if rest.len() < 2 || code.known() == Some("") {
        return;
    }
    let at_the_end = rest.iter().skip(at + 1).all(|signal| {
        signal.known().is_some_and(|signal| {
            let signal = signal.strip_prefix("SIG").unwrap_or(signal);
            !matches!(signal.to_ascii_uppercase().as_str(), "ERR" | "DEBUG" | "RETURN")
        })
    });
    if !at_the_end || code.known().is_none() {
        let before = run.reading.scope.clone();
        run.shell(&code);
        run.reading.scope.join(before);
    }
    if code.known().is_some() && run.reading.scope.traps.len() < MOST_TRAPS {
        run.reading.scope.traps.push(code);
    }
}

fn alias(run: &mut Run<'_, '_>, _name: &str) {
    for word in run.rest() {
        let Some(known) = word.known() else {
            run.fact(word.span, Fact::Tricks { trick: Trick::Redefines });
            continue;
        };
        let Some((name, line)) = known.split_once('=') else { continue };
        if super::is_known(name) && !line.starts_with(name) {
            run.fact(word.span, Fact::Tricks { trick: Trick::Redefines });
        }
        run.reading.scope.aliases.insert(name.to_owned(), line.to_owned());
    }
}

fn set(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    if rest.is_empty() {
        let span = run.span;
        run.fact(span, Fact::ReadsEnvironment { name: None });
        run.output = Stream::from(vec![Flow::Environment]);
        return;
    }
    let words: Vec<Argument> = match rest.iter().position(|word| word.known() == Some("--")) {
        Some(at) => rest.into_iter().skip(at + 1).collect(),
        None => rest.into_iter().skip_while(|word| word.text.known_start().starts_with(['-', '+'])).collect(),
    };
    if !words.is_empty() {
        run.reading.scope.arguments = words;
    }
}

fn shift(run: &mut Run<'_, '_>, _name: &str) {
    let count =
        run.rest().first().and_then(|word| word.known().and_then(|word| word.parse::<usize>().ok())).unwrap_or(1);
    let arguments = &mut run.reading.scope.arguments;
    arguments.drain(..count.min(arguments.len()));
}

/// `enable -f FILE NAME` loads native code into the shell.
fn enable(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-f"], super::Style::Usual);
    if let Some(file) = words.value(&["-f"]).cloned() {
        let path = file.text.to_string();
        run.fact(file.span, Fact::Executes { from: vec![Flow::File { path }] });
    }
}
