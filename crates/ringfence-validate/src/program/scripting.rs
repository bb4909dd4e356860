//! Small languages that start programs: macros, rules of `make`, dialogues of `expect`, PowerShell. Not all of them is read: what they
//! start and which files they name is.

use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Contact, Fact, Flow, Removal, SystemAct, Trick};
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "m4" | "gm4" => macros,
        "expect" | "tclsh" | "wish" => dialogue,
        "pwsh" | "powershell" | "pwsh-preview" => powershell,
        "csh" | "tcsh" => other_shell,
        _ => return None,
    })
}

/// Calls of a macro: what stands within the brackets, without quotes.
fn calls<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    text.match_indices(name)
        .filter_map(|(at, found)| text.get(at + found.len()..)?.strip_prefix('('))
        .map(|rest| {
            let mut depth = 1_usize;
            let end = rest.find(|letter| {
                match letter {
                    '(' => depth += 1,
                    ')' => depth -= 1,
                    _ => {}
                }
                depth == 0
            });
            rest.get(..end.unwrap_or(rest.len())).unwrap_or_default().trim().trim_matches(['`', '\'', '"'])
        })
        .collect()
}

fn macros(run: &mut Run<'_, '_>, name: &str) {
    let words = run.words(&["-D", "-I", "-U", "-o", "-F", "-R", "-L", "-B", "-S", "-H", "-t", "-T"], Style::Usual);
    let mut texts = Vec::new();
    for file in words.operands.iter().filter(|file| file.known() != Some("-")).cloned().collect::<Vec<_>>() {
        let read = run.reads(&file);
        texts.extend(read.known().map(str::to_owned));
    }
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    texts.extend(run.input.known().map(str::to_owned));
    texts.extend(words.values(&["-D"]).filter_map(|word| word.known().map(str::to_owned)));
    let span = run.span;
    for text in texts {
        for code in calls(&text, "syscmd") {
            run.shell(&Argument::new(Text::known(code), span));
        }
        for file in calls(&text, "include").into_iter().chain(calls(&text, "undivert")) {
            run.reads(&Argument::new(Text::known(file), span));
        }
    }
}

/// Words that end a command in a file of CMake.
const CMAKE_WORDS: &[&str] = &[
    "COMMAND",
    "ARGS",
    "WORKING_DIRECTORY",
    "RESULT_VARIABLE",
    "RESULTS_VARIABLE",
    "OUTPUT_VARIABLE",
    "ERROR_VARIABLE",
    "OUTPUT_STRIP_TRAILING_WHITESPACE",
    "ERROR_STRIP_TRAILING_WHITESPACE",
    "OUTPUT_QUIET",
    "ERROR_QUIET",
    "COMMAND_ERROR_IS_FATAL",
    "COMMAND_ECHO",
    "TIMEOUT",
    "INPUT_FILE",
    "OUTPUT_FILE",
    "ERROR_FILE",
    "DEPENDS",
    "COMMENT",
    "VERBATIM",
    "TARGET",
    "BYPRODUCTS",
];

/// Calls that start what stands behind `COMMAND`.
const CMAKE_STARTS: &[&str] = &["execute_process", "exec_program", "add_custom_command", "add_custom_target"];

/// `cmake -P FILE` and the file of a project, where this very text put them there.
pub(super) fn cmake_files(run: &mut Run<'_, '_>, rest: &[Argument]) {
    let script = rest.iter().position(|word| word.known() == Some("-P")).and_then(|at| rest.get(at + 1));
    let source = rest
        .iter()
        .position(|word| word.known() == Some("-S"))
        .and_then(|at| rest.get(at + 1))
        .or_else(|| rest.iter().find(|word| !word.text.known_start().starts_with('-')))
        .and_then(Argument::known)
        .unwrap_or(".");
    let path = match script {
        Some(script) => script.known().unwrap_or_default().to_owned(),
        None => format!("{source}/CMakeLists.txt"),
    };
    let Some(written) = run.put_there(&path) else { return };
    let span = run.span;
    if let Some(text) = written.known() {
        let lowered = text.to_ascii_lowercase();
        let places = CMAKE_STARTS.iter().flat_map(|name| lowered.match_indices(name));
        let calls: Vec<String> = places
            .filter_map(|(at, _)| text.get(at..)?.split_once('('))
            .filter_map(|(_, rest)| cmake_command(rest))
            .collect();
        for line in calls {
            run.shell(&Argument::new(Text::known(line), span));
        }
    }
    run.fact(span, Fact::Executes { from: written.flows });
}

/// The commands of a call, as a line for a shell.
fn cmake_command(call: &str) -> Option<String> {
    let mut quoted = false;
    let end = call.find(|letter| {
        quoted ^= letter == '"';
        letter == ')' && !quoted
    });
    let mut lines: Vec<String> = Vec::new();
    let mut inside = false;
    for word in call.get(..end?)?.split_whitespace() {
        match word {
            "COMMAND" => {
                lines.push(String::new());
                inside = true;
            }
            "ARGS" => {}
            word if CMAKE_WORDS.contains(&word) => inside = false,
            word if inside => {
                if let Some(line) = lines.last_mut() {
                    line.push_str(if line.is_empty() { "" } else { " " });
                    line.push_str(word);
                }
            }
            _ => {}
        }
    }
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// `spawn`, `exec`, `system`, and what is typed into a shell by `send`.
fn dialogue(run: &mut Run<'_, '_>, name: &str) {
    let rest = run.rest();
    let mut texts: Vec<Argument> = Vec::new();
    let mut script = None;
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match word.text.known_start() {
            "-c" => texts.extend(words.next().cloned()),
            "-f" | "-b" => script = words.next().cloned(),
            start if start.starts_with('-') && start.len() > 1 => {}
            _ => {
                script = script.or_else(|| Some(word.clone()));
                break;
            }
        }
    }
    let span = run.span;
    match script.filter(|script| script.known() != Some("-")) {
        Some(script) => {
            let read = run.reads(&script);
            run.fact(script.span, Fact::Executes { from: read.flows.clone() });
            texts.extend(read.text.map(|text| Argument::new(text, script.span)));
        }
        None if texts.is_empty() && run.input.flows != [Flow::Input] => {
            let input = run.input.clone();
            run.fact(span, Fact::Executes { from: input.flows.clone() });
            texts.extend(input.text.map(|text| Argument::new(text, span)));
        }
        None => {}
    }
    for text in texts {
        let Some(known) = text.known() else {
            run.fact(text.span, Fact::Executes { from: vec![Flow::Unknown] });
            continue;
        };
        // What stands in brackets is a command, too.
        for line in known.split(['\n', ';', '[']) {
            let line = line.trim().trim_start_matches(['{', ' ']);
            let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
            let code = match verb {
                "spawn" | "exec" | "system" => rest.trim_start_matches("-noecho ").trim_matches(['{', '}', '"', ']']),
                "send" | "exp_send" if name == "expect" => rest.trim_start_matches("-- ").trim_matches(['"', '{', '}']),
                "socket" if !rest.starts_with("-server") => {
                    let place = rest.trim_end_matches([']', '}']).replace(' ', ":");
                    run.contacts(Text::known(place), text.span, Contact::Connect, Vec::new());
                    continue;
                }
                "open" => match rest.trim_matches(['"', '{', '}']).strip_prefix('|') {
                    Some(code) => code,
                    None => {
                        let file =
                            Text::known(rest.split(' ').next().unwrap_or_default().trim_matches(['"', '{', '}']));
                        run.reads(&Argument::new(file, text.span));
                        continue;
                    }
                },
                _ => continue,
            };
            let code = code.trim_end_matches("\\r").trim_end_matches("\\n");
            if !code.is_empty() && !code.starts_with('$') {
                run.shell(&Argument::new(Text::known(code), text.span));
            }
        }
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}

/// Shells of another syntax: their plain commands are those of every shell.
fn other_shell(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    let code = rest.iter().position(|word| {
        word.known().is_some_and(|word| word.starts_with('-') && !word.starts_with("--") && word.contains('c'))
    });
    match code.and_then(|at| rest.get(at + 1)).cloned() {
        Some(code) => {
            run.reading.scope.enter_child();
            run.output = run.shell(&code);
        }
        None => {
            let mut words = vec![Argument::new("sh".into(), run.span)];
            words.extend(rest);
            run.output = run.start(words);
        }
    }
}

fn powershell(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    let mut at = 0;
    while let Some(word) = rest.get(at) {
        at += 1;
        let option = word.text.known_start().to_ascii_lowercase();
        let Some(option) = option.strip_prefix('-') else {
            // A word alone is a file, or a command of Windows' own shell.
            let written = word.known().and_then(|path| run.reading.file(path));
            run.fact(word.span, Fact::Executes { from: vec![Flow::File { path: word.text.to_string() }] });
            if let Some(text) = written.and_then(|stream| stream.known().map(str::to_owned)) {
                cmdlets(run, &text, word);
            }
            return;
        };
        let value = || super::wrappers::join(rest.get(at..).unwrap_or_default());
        match option {
            "command" | "c" | "comman" | "comm" => {
                if let Some(code) = value() {
                    command(run, &code);
                }
                return;
            }
            option if "encodedcommand".starts_with(option) || option == "ec" => {
                if let Some(code) = rest.get(at).cloned() {
                    run.fact(code.span, Fact::Tricks { trick: Trick::Obscured });
                    run.fact(code.span, Fact::Executes { from: vec![Flow::Decoded] });
                }
                return;
            }
            "file" | "f" => {
                if let Some(file) = rest.get(at) {
                    run.fact(file.span, Fact::Executes { from: vec![Flow::File { path: file.text.to_string() }] });
                }
                return;
            }
            "executionpolicy" | "ep" | "ex" | "exec" | "windowstyle" | "w" | "version" | "inputformat"
            | "outputformat" | "workingdirectory" | "wd" => at += 1,
            _ => {}
        }
    }
    let input = run.input.clone();
    let span = run.span;
    if input.flows != [Flow::Input] {
        run.fact(span, Fact::Executes { from: input.flows.clone() });
        if let Some(text) = input.known() {
            cmdlets(run, text, &Argument::new(Text::default(), span));
        }
    }
}

fn command(run: &mut Run<'_, '_>, code: &Argument) {
    match code.known() {
        Some(known) => cmdlets(run, known, code),
        None => run.fact(code.span, Fact::Executes { from: vec![Flow::Unknown] }),
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}

/// Commands of PowerShell, one after the other; where they are those of every shell, they are read as such.
fn cmdlets(run: &mut Run<'_, '_>, text: &str, place: &Argument) {
    let lower = text.to_ascii_lowercase();
    let fetches =
        ["downloadstring", "invoke-webrequest", "invoke-restmethod", "iwr ", "irm ", "net.webclient", "curl ", "wget "];
    if fetches.iter().any(|word| lower.contains(word)) {
        let url = text.split(['\'', '"', ' ', '(', ')']).find(|word| word.contains("://")).unwrap_or("network");
        run.contacts(Text::known(url), place.span, Contact::Fetch, Vec::new());
        if ["iex", "invoke-expression", "| sh", "|sh", "| bash"].iter().any(|word| lower.contains(word)) {
            run.fact(place.span, Fact::Executes { from: vec![Flow::Network] });
        }
    } else if lower.contains("invoke-expression") || lower.split_whitespace().any(|word| word == "iex") {
        run.fact(place.span, Fact::Executes { from: vec![Flow::Unknown] });
    }
    if lower.contains("frombase64string") {
        run.fact(place.span, Fact::Executes { from: vec![Flow::Decoded] });
    }
    for line in text.split([';', '\n', '|', '{', '}']) {
        let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_matches(['\'', '"', '(', ')'])).collect();
        let Some((verb, rest)) = words.split_first() else { continue };
        let paths = rest.iter().filter(|word| !word.starts_with('-'));
        let argument =
            |word: &&str| Argument::new(Text::known(word.replace("$env:HOME", "~").replace("$HOME", "~")), place.span);
        match verb.to_ascii_lowercase().as_str() {
            "remove-item" | "ri" | "del" | "rd" | "erase" | "rmdir" | "clear-content" => {
                let tree = rest.iter().any(|word| word.to_ascii_lowercase().starts_with("-r"));
                let removal = if tree { Removal::Tree } else { Removal::One };
                paths.map(argument).for_each(|path| run.removes(&path, removal));
            }
            "get-content" | "gc" | "type" | "select-string" | "import-csv" => paths.map(argument).for_each(|path| {
                run.reads(&path);
            }),
            "set-content" | "add-content" | "out-file" | "new-item" | "copy-item" | "move-item" | "tee-object" => {
                paths.map(argument).for_each(|path| run.writes(&path, Stream::from(vec![Flow::Unknown])));
            }
            "stop-computer" | "restart-computer" => run.manages(SystemAct::Power),
            "stop-service" | "start-service" | "set-service" | "new-service" => run.manages(SystemAct::Services),
            "register-scheduledtask" | "new-scheduledtask" | "schtasks" => run.manages(SystemAct::Schedule),
            "format-volume" | "clear-disk" | "initialize-disk" => run.manages(SystemAct::Disk),
            "set-mppreference" | "add-mppreference" | "set-executionpolicy" => {
                run.fact(place.span, Fact::Privilege { privilege: crate::Privilege::Defences });
            }
            "start-process" | "saps" | "&" | "start" => {
                let command = rest.iter().filter(|word| !word.starts_with('-')).map(argument).collect();
                run.start(command);
            }
            name if super::is_known(name) => {
                let command: Vec<Argument> = words.iter().map(argument).collect();
                run.start(command);
            }
            _ => {}
        }
    }
}
