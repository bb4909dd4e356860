//! Commands of the shell itself that change what it knows.

use super::{Handler, Run};
use crate::analysis::{Fact, Flow, Trick};
use crate::language::Language;
use crate::shell::{Odd, Plainly, Value};
use crate::stream::{Argument, Stream};
use crate::text::{Hole, Text};

/// What `mktemp` fills in, at least.
const FILLED_IN: [char; 3] = ['X'; 3];

/// Traps that are remembered; more are read at once.
const MOST_TRAPS: usize = 32;

pub(super) fn handler(name: &str) -> Option<Handler> {
    if let Some(handler) = super::reads::handler(name).or_else(|| super::lookups::handler(name)) {
        return Some(handler);
    }
    Some(match name {
        "cd" | "pushd" => cd,
        "eval" => eval,
        "source" | "." => source,
        "export" | "declare" | "typeset" | "local" | "readonly" => declare,
        "unset" => unset,
        "trap" => trap,
        "alias" => alias,
        "unalias" => unalias,
        "shopt" => shopt,
        "getopts" | "let" | "wait" => sets_names,
        "set" => set,
        "shift" => shift,
        "pwd" => pwd,
        "enable" => enable,
        "hash" => hash,
        "mktemp" => mktemp,
        "dirname" => dirname,
        _ => return None,
    })
}

fn cd(run: &mut Run<'_, '_>, _name: &str) {
    let target =
        run.rest().into_iter().find(|word| word.known().is_none_or(|word| !word.starts_with('-') || word == "-"));
    let directory = match target {
        Some(word) if word.known() == Some("-") => Text::hole(Hole::Variable("OLDPWD".to_owned())),
        Some(word) => run.reading.scope.resolve(&word.text),
        None if crate::path::works_at_home(run.reading.surroundings) => Text::known("~"),
        None => Text::known(run.reading.surroundings.home.clone()),
    };
    run.reading.scope.go(directory);
}

/// A new name: below the folder for such, or where the template says.
fn mktemp(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-p", "--suffix"], super::Style::Usual);
    let temporary = run.rest().iter().any(|word| matches!(word.known(), Some("-t" | "-dt" | "-td" | "--tmpdir")));
    let mut name = match words.value(&["-p"]) {
        Some(folder) => folder.text.clone(),
        None => Text::default(),
    };
    let rest = run.rest();
    let known = rest.iter().filter_map(Argument::known).find_map(|word| {
        word.strip_prefix("--tmpdir=").or_else(|| word.strip_prefix("-p").filter(|folder| !folder.is_empty()))
    });
    if let Some(folder) = known {
        name = Text::known(folder);
    }
    let below = !name.pieces().is_empty();
    match words.operands.as_slice() {
        [] if !below => name = Text::known("/tmp/"),
        [] => name.append(Text::known("/")),
        [template] => {
            if temporary && !below {
                name = Text::known("/tmp");
            }
            if temporary || below {
                name.append(Text::known("/"));
            }
            match template
                .known()
                .and_then(|known| known.split_once(&String::from_iter(FILLED_IN)))
                .filter(|(start, _)| !start.is_empty())
            {
                Some((start, _)) => name.append(Text::known(start)),
                None if temporary && template.known().is_some() => name.append(template.text.clone()),
                None => name = Text::default(),
            }
        }
        _ => name = Text::default(),
    }
    run.output = if name.known_start().is_empty() {
        Stream::from(vec![Flow::Unknown])
    } else {
        // One name for each time that one is made: what is written there is then known where it is read or executed.
        let made = format!("{}.{}", run.span.start, run.reading.scope.notes.make());
        name.append(Text::known(made));
        Stream::literal(name)
    };
}

/// The folder of a known path is known: scripts find their own so.
fn dirname(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    let known = match rest.as_slice() {
        [only] => only.known().filter(|path| !path.starts_with('-')),
        [dashes, only] if dashes.known() == Some("--") => only.known(),
        _ => None,
    };
    let Some(path) = known else {
        if let Some(entry) = super::book().program(name) {
            run.by_the_book(entry);
        }
        return;
    };
    let bare = path.trim_end_matches('/');
    let folder = match bare.rsplit_once('/') {
        _ if bare.is_empty() && !path.is_empty() => "/",
        Some((folder, _)) if folder.trim_end_matches('/').is_empty() => "/",
        Some((folder, _)) => folder.trim_end_matches('/'),
        None => ".",
    };
    run.output = Stream::literal(Text::known(format!("{folder}\n")));
}

fn pwd(run: &mut Run<'_, '_>, _name: &str) {
    let directory = run.reading.scope.directory.get().cloned();
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
        run.reading.scope.forget_all();
    }
    run.output = run.shell(&line);
}

fn source(run: &mut Run<'_, '_>, _name: &str) {
    let Some(file) = run.rest().into_iter().find(|word| word.known() != Some("--")) else { return };
    if matches!(file.known(), Some("/dev/stdin" | "/dev/fd/0" | "/proc/self/fd/0" | "-")) {
        let input = run.input.clone();
        run.output = run.execute(&input, Language::Shell, file.span);
        return;
    }
    let known = file.known().map(str::to_owned);
    let written = known.as_deref().and_then(|path| run.put_there(path));
    match written {
        Some(stream) => run.output = run.execute(&stream, Language::Shell, file.span),
        None => {
            let path = run.reading.scope.resolve(&file.text);
            let mut from = vec![Flow::File { path: path.to_string() }];
            from.extend(crate::stream::telling(&file.flows));
            run.fact(file.span, Fact::Executes { from });
            // The file may set any of them.
            run.reading.scope.forget_all();
        }
    }
}

fn declare(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    let letters: String =
        rest.iter().filter_map(Argument::known).filter(|word| word.starts_with('-')).collect::<String>();
    let turned_off: String = rest.iter().filter_map(Argument::known).filter(|word| word.starts_with('+')).collect();
    let local = name == "local" || matches!(name, "declare" | "typeset") && !letters.contains('g');
    let exports = name == "export" || letters.contains('x');
    for word in rest {
        let start = word.text.known_start();
        let Some((variable, _)) = start.split_once('=') else {
            let Some(known) = word.known().filter(|known| !known.starts_with(['-', '+'])) else { continue };
            if turned_off.contains('n') {
                run.reading.scope.renames(known);
            }
            if exports {
                run.reading.scope.export(known);
                run.reading.settle(known);
            }
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
        run.expands(variable);
        let (variable, place) = match variable.split_once('[') {
            Some((array, _)) => (array.to_owned(), Some(variable.to_owned())),
            None => (variable.to_owned(), None),
        };
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
        if exports {
            run.reading.scope.export(&variable);
        }
        if exports || super::poisons(&variable) {
            let facts = super::sets_environment(run.reading, &variable, &value, word.span, &mut run.inner);
            run.facts.extend(facts);
        }
        let target = value.first().as_known().map(str::to_owned);
        if letters.contains('i')
            && let Some(sum) = &target
        {
            run.reckons(sum);
        }
        if !letters.contains('n') {
            run.reading.set_named(place.as_deref().unwrap_or(&variable), value);
        }
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
        scope.refers(variable, target);
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
    let rest_has_n = rest.iter().any(|word| word.known() == Some("-n"));
    for word in rest {
        if let Some(name) = run.target(&word).as_deref() {
            if functions {
                run.reading.scope.unset_function(name, Plainly::Surely);
                continue;
            }
            if !run.reading.scope.variables.contains_key(name) {
                run.reading.scope.unset_function(name, Plainly::Perhaps);
            }
            run.expands(name);
            if rest_has_n {
                run.reading.scope.renames(name);
            }
            run.reading.scope.unset(name);
            if matches!(name, "HISTFILE" | "HISTSIZE" | "HISTFILESIZE") {
                run.fact(word.span, Fact::System { act: crate::SystemAct::Traces, about: Text::known(name) });
            }
        }
    }
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
    let full = run.reading.scope.traps.len() >= MOST_TRAPS;
    if !at_the_end || full || code.known().is_none() {
        let before = run.reading.scope.clone();
        run.shell(&code);
        run.reading.scope.join(before);
    }
    if !full && code.known().is_some() {
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
        if super::is_known(name) && !line.starts_with(name) && !is_short_for(name, line) {
            run.fact(word.span, Fact::Tricks { trick: Trick::Redefines });
        }
        // Whoever means the program gets this.
        if super::is_known(name) {
            run.later(line, word.span);
        }
        run.reading.scope.set_alias(name, line);
    }
}

/// `gs` for `git status`: two letters, and the first of them is the program's.
fn is_short_for(name: &str, line: &str) -> bool {
    let first = |text: &str| text.chars().next();
    name.len() <= 2
        && first(name) == first(line)
        && !matches!(name, "ls" | "cp" | "rm" | "mv" | "cd" | "ps" | "df" | "du" | "sh" | "cc")
}

fn unalias(run: &mut Run<'_, '_>, _name: &str) {
    for word in run.rest() {
        match word.known() {
            Some("-a") => run.reading.scope.unset_alias(None),
            Some(name) => run.reading.scope.unset_alias(Some(name)),
            None => {}
        }
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
    let mut words = rest.into_iter().peekable();
    while let Some(word) = words.next_if(|word| word.text.known_start().starts_with(['-', '+'])) {
        if matches!(word.known(), Some("--" | "-")) {
            run.reading.scope.arguments = words.collect();
            return;
        }
        let flags = word.text.known_start();
        let mut exports = !flags.starts_with("--") && flags.contains('a');
        // The last letter of `-euo` takes a name.
        if word.text.known_end().ends_with('o') {
            let name = words.next_if(|name| !name.text.known_start().starts_with(['-', '+']));
            exports |= name.is_some_and(|name| name.known() == Some("allexport"));
        }
        if exports {
            run.reading.scope.exports_all = flags.starts_with('-');
        }
    }
    if words.peek().is_some() {
        run.reading.scope.arguments = words.collect();
    }
}

fn shift(run: &mut Run<'_, '_>, _name: &str) {
    let first = run.rest().into_iter().next();
    let count = match &first {
        None => Some(1),
        Some(word) => word.known().and_then(|word| word.parse::<usize>().ok()),
    };
    let arguments = &mut run.reading.scope.arguments;
    match count {
        Some(count) if count <= arguments.len() => {
            arguments.drain(..count);
        }
        // The shell refuses, and nothing moves.
        Some(_) => {}
        None => arguments.iter_mut().for_each(|argument| argument.text = Text::hole(Hole::Value)),
    }
}

/// `shopt -s lastpipe`: the last command of a pipeline sets the shell's own variables.
fn shopt(run: &mut Run<'_, '_>, _name: &str) {
    if run.rest().iter().any(|word| word.known().is_none_or(|word| word == "lastpipe")) {
        run.reading.scope.last_stays = true;
    }
}

/// Builtins that set the variables they name to what is only known when they run.
fn sets_names(run: &mut Run<'_, '_>, name: &str) {
    for word in run.rest() {
        let Some(known) = word.known() else {
            run.reading.scope.forget_all();
            continue;
        };
        if name == "let" {
            run.reckons(known);
        }
        for part in known.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_') {
            if run.reading.scope.variables.contains_key(part) {
                run.reading.scope.forget(part);
            }
        }
    }
    if name == "getopts" {
        for set in ["OPTARG", "OPTIND"] {
            run.reading.scope.set(set.to_owned(), Value::hole(set));
        }
    }
}

/// `enable -f FILE NAME` loads native code into the shell.
fn enable(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-f"], super::Style::Usual);
    if let Some(file) = words.value(&["-f"]).cloned() {
        let path = file.text.to_string();
        run.fact(file.span, Fact::Executes { from: vec![Flow::File { path }] });
        run.fact(file.span, Fact::Privilege { privilege: crate::Privilege::ForeignCode });
    }
}

/// `hash -p PATH NAME`: the name is another program from now on.
fn hash(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-p"], super::Style::Usual);
    if let Some(path) = words.value(&["-p"]).cloned() {
        run.fact(path.span, Fact::Tricks { trick: Trick::Redefines });
        let names: Vec<String> = words.operands.iter().filter_map(|word| word.known().map(str::to_owned)).collect();
        for name in names {
            run.reading.scope.set_alias(&name, &path.text.to_string());
        }
    }
}
