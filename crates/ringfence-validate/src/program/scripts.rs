//! `sed` and `awk`: small languages that can write files and start commands.

use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Fact, Flow, Unknown};
use crate::stream::{Argument, Stream};
use crate::text::Text;

/// Pipes of one script of awk that are looked at.
const MOST_PIPES: usize = 64;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "sed" | "gsed" => sed,
        "awk" | "gawk" | "mawk" | "nawk" | "original-awk" => awk,
        _ => return None,
    })
}

fn sed(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-e", "--expression", "-f", "--file", "-l", "--line-length"], Style::Usual);
    let mut scripts: Vec<Argument> = words.values(&["-e", "--expression"]).cloned().collect();
    let mut operands = words.operands.clone();
    for file in words.values(&["-f", "--file"]).cloned().collect::<Vec<_>>() {
        let read = run.reads(&file);
        run.fact(file.span, Fact::Executes { from: vec![Flow::File { path: file.text.to_string() }] });
        scripts.extend(read.text.map(|text| Argument::new(text, file.span)));
    }
    if scripts.is_empty() && !words.has(&["-f", "--file"]) && !operands.is_empty() {
        scripts.push(operands.remove(0));
    }
    for script in &scripts {
        sed_script(run, script);
    }
    let in_place = words.options.iter().any(|(option, _)| option == "-i" || option.starts_with("--in-place"));
    let mut output = Stream::default();
    for file in &operands {
        let read = run.reads(file);
        output.add_all(&read.flows);
        if in_place {
            run.writes(file, Stream::from(read.flows));
        }
    }
    if operands.is_empty() {
        output.add_all(&run.input.flows.clone());
        // What stood in the text is something else now.
        if run.input.text.is_some() {
            output.add(Flow::Unknown);
        }
    }
    run.output = output;
}

/// Commands of sed that leave its world: `e`, `w`, `r`, and the flags of `s`.
fn sed_script(run: &mut Run<'_, '_>, script: &Argument) {
    let Some(known) = script.known() else { return };
    for command in known.split(['\n', ';', '{', '}']) {
        let command = command.trim_start();
        let bare = command.trim_start_matches(|letter: char| letter.is_ascii_digit() || "$,!~+ ".contains(letter));
        let bare = match bare.strip_prefix('/').and_then(|rest| rest.split_once('/')) {
            Some((_, rest)) => rest.trim_start_matches([' ', '!', 'I', 'M']),
            None => bare,
        };
        let mut letters = bare.chars();
        match letters.next() {
            Some('e') if bare.len() == 1 => {
                let from = run.input.flows.clone();
                run.fact(script.span, Fact::Executes { from });
            }
            Some('e') if bare.get(1..).is_some_and(|rest| rest.starts_with(' ')) => {
                let code = Argument::new(Text::known(bare.get(1..).unwrap_or_default().trim()), script.span);
                run.shell(&code);
            }
            Some('w' | 'W') if bare.get(1..).is_some_and(|rest| rest.starts_with(' ')) => {
                let file = Argument::new(Text::known(bare.get(1..).unwrap_or_default().trim()), script.span);
                run.writes(&file, Stream::from(vec![Flow::Unknown]));
            }
            Some('r' | 'R') if bare.get(1..).is_some_and(|rest| rest.starts_with(' ')) => {
                let file = Argument::new(Text::known(bare.get(1..).unwrap_or_default().trim()), script.span);
                run.reads(&file);
            }
            Some('s') => substitution(run, script, letters.as_str()),
            _ => {}
        }
    }
}

fn substitution(run: &mut Run<'_, '_>, script: &Argument, rest: &str) {
    let Some(delimiter) = rest.chars().next() else { return };
    let parts = split_escaped(rest, delimiter);
    let (Some(replacement), Some(flags)) = (parts.get(2), parts.get(3)) else { return };
    let flags = flags.split(['#', '\n']).next().unwrap_or_default();
    if let Some((before, file)) = flags.split_once('w')
        && before.chars().all(|letter| "gIipem0123456789".contains(letter))
        && file.starts_with(' ')
    {
        let file = Argument::new(Text::known(file.trim()), script.span);
        run.writes(&file, Stream::from(vec![Flow::Unknown]));
        return;
    }
    if flags.contains('e') && flags.chars().all(|letter| "gIipem0123456789".contains(letter)) {
        let code = Argument::new(Text::known(replacement.as_str()), script.span);
        run.shell(&code);
        run.fact(script.span, Fact::Executes { from: vec![Flow::Unknown] });
    }
}

/// The parts between the delimiters; one behind a backslash is a letter.
fn split_escaped(text: &str, delimiter: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        let next = if letter == '\\' { letters.next() } else { None };
        let Some(part) = parts.last_mut() else { break };
        match next {
            Some(next) if next == delimiter => part.push(next),
            Some(next) => part.extend([letter, next]),
            None if letter == delimiter => parts.push(String::new()),
            None => part.push(letter),
        }
    }
    parts
}

fn awk(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(
        &[
            "-F",
            "-v",
            "-f",
            "--file",
            "--field-separator",
            "--assign",
            "-i",
            "--include",
            "-l",
            "--load",
            "-e",
            "--source",
            "-E",
        ],
        Style::Leading,
    );
    let mut operands = words.operands.clone();
    let mut scripts: Vec<Argument> = words.values(&["-e", "--source"]).cloned().collect();
    let mut from_file = false;
    for file in words.values(&["-f", "--file", "-E", "-i", "--include", "-l", "--load"]).cloned().collect::<Vec<_>>() {
        if file.known() == Some("inplace") {
            continue;
        }
        from_file = true;
        let written = file.known().and_then(|path| run.reading.file(path));
        scripts.extend(written.iter().filter_map(|read| read.text.clone()).map(|text| Argument::new(text, file.span)));
        let from = written.map_or_else(|| vec![Flow::File { path: file.text.to_string() }], |stream| stream.flows);
        run.fact(file.span, Fact::Executes { from });
    }
    if scripts.is_empty() && !from_file && !operands.is_empty() {
        scripts.push(operands.remove(0));
    }
    let in_place = words.values(&["-i", "--include"]).any(|library| library.known() == Some("inplace"));
    let mut output = Stream::default();
    for file in operands.iter().filter(|word| !word.text.known_start().contains('=')) {
        let read = run.reads(file);
        output.add_all(&read.flows);
        if in_place {
            run.writes(file, Stream::from(read.flows));
        }
    }
    if operands.is_empty() {
        output.add_all(&run.input.flows.clone());
    }
    // A variable may be what is started.
    let given: Vec<Argument> = words
        .values(&["-v", "--assign"])
        .chain(operands.iter())
        .filter_map(|word| word.known()?.split_once('='))
        .map(|(_, value)| Argument::new(Text::known(value), run.span))
        .collect();
    for script in &scripts {
        awk_script(run, script, &output);
        if script.known().is_some_and(starts_a_variable) {
            let inside = script.known().map(strings).unwrap_or_default();
            let inside = inside.into_iter().map(|(_, _, text)| Argument::new(Text::known(text), script.span));
            for line in inside.chain(given.iter().cloned()).filter(looks_like_a_line).collect::<Vec<_>>() {
                run.shell(&line);
            }
        }
        // It writes words of its own, too.
        let own = output.flows.iter().all(|flow| matches!(flow, Flow::Literal | Flow::Input));
        if own && script.known().is_some_and(|script| script.contains("print")) {
            output.add(Flow::Unknown);
        }
        // A script that looks for something takes some of the lines.
        if script.known().is_some_and(|script| script.contains('/') || script.contains("==")) {
            super::environment::not_all_processes(&mut output);
        }
    }
    run.output = output;
}

/// `system("…")`, `"…" | getline`, `print | "…"`, `print > "…"`.
fn awk_script(run: &mut Run<'_, '_>, script: &Argument, input: &Stream) {
    let Some(known) = script.known() else {
        if script
            .text
            .pieces()
            .iter()
            .any(|piece| matches!(piece, crate::Piece::Known(known) if known.contains("system")))
        {
            run.fact(script.span, Fact::Executes { from: vec![Flow::Unknown] });
        }
        return;
    };
    let (lines, unread) = concatenated(known);
    for line in lines {
        run.shell(&Argument::new(Text::known(line), script.span));
    }
    if let Some(unknown) = unread {
        run.fact(script.span, Fact::Unknown { unknown });
    }
    let strings = strings(known);
    // Each is looked for once, and not before each text.
    let (prints, gets) = (known.find("print"), known.find("getline"));
    let is_before = |found: Option<usize>, length: usize, end: usize| found.is_some_and(|at| at + length <= end);
    let mut taken = Stream::default();
    for (start, end, text) in &strings {
        let before = known.get(..*start).unwrap_or_default().trim_end();
        let after = known.get(*end..).unwrap_or_default().trim_start();
        let code = Argument::new(Text::known(text.as_str()), script.span);
        let called = before.trim_end_matches(['(', ' ']).ends_with("system") && before.ends_with('(');
        let piped = before.ends_with('|') && !before.ends_with("||") || before.ends_with("|&");
        let read = after.starts_with('|') && !after.starts_with("||");
        if called || piped || read {
            // What a script prints is only known when it runs.
            let printed = Stream::from(vec![Flow::Unknown]);
            let outer = piped.then(|| std::mem::replace(&mut run.input, printed));
            let written = run.shell(&code);
            if let Some(outer) = outer {
                run.input = outer;
            }
            if read {
                taken.add_all(&written.flows);
            }
            if called && !after.starts_with(')') {
                // Something is joined to the text.
                run.fact(script.span, Fact::Executes { from: input.flows.clone() });
            }
        } else if before.ends_with('>') && !before.ends_with("=>") && is_before(prints, "print".len(), before.len()) {
            run.writes(&code, Stream::from(input.flows.clone()));
        } else if before.ends_with("getline <")
            || before.ends_with('<') && is_before(gets, "getline".len(), before.len())
        {
            run.reads(&code);
        } else if text.starts_with("/inet/") || text.starts_with("/inet4/") {
            run.contacts(Text::known(text.as_str()), script.span, crate::Contact::Connect, Vec::new());
        }
    }
    let calls_built = known.match_indices("system").any(|(at, word)| {
        let rest = known.get(at + word.len()..).unwrap_or_default().trim_start();
        rest.strip_prefix('(').is_some_and(|rest| !rest.trim_start().starts_with('"'))
    });
    if calls_built {
        taken.add_all(&input.flows);
        if matches!(taken.flows.as_slice(), [] | [Flow::Input]) {
            taken.add(Flow::Unknown);
        }
        run.fact(script.span, Fact::Executes { from: taken.flows });
    }
}

/// Lines for a shell that a script puts together where it starts them: `"cat " ENVIRON["HOME"] "/x" | getline`, `print | "nc " host`.
/// And whether there are more of them than are looked at.
fn concatenated(script: &str) -> (Vec<String>, Option<Unknown>) {
    let mut lines = Vec::new();
    let texts = strings(script);
    // They stand in order.
    let outside = |at: usize| {
        let behind = texts.partition_point(|(start, _, _)| *start <= at);
        behind.checked_sub(1).and_then(|before| texts.get(before)).is_none_or(|(_, end, _)| at >= *end)
    };
    let bytes = script.as_bytes();
    let is_pipe = |at: usize| {
        let beside = [at.checked_sub(1).and_then(|before| bytes.get(before)), bytes.get(at + 1)];
        !beside.contains(&Some(&b'|')) && outside(at)
    };
    let mut pipes = script.match_indices('|').map(|(at, _)| at).filter(|at| is_pipe(*at));
    for at in pipes.by_ref().take(MOST_PIPES) {
        let (before, after) = (script.get(..at).unwrap_or_default(), script.get(at + 1..).unwrap_or_default());
        let skipped = after.len() - after.trim_start_matches('&').trim_start().len();
        let from = at + 1 + skipped;
        let part = if script.get(from..).is_some_and(|rest| rest.starts_with("getline")) {
            // Back to where the expression begins.
            let ends = |(place, letter): &(usize, char)| "{;(=\n".contains(*letter) && outside(*place);
            let begin = before.char_indices().rfind(ends).map_or(0, |(place, _)| place + 1);
            before.get(begin..).unwrap_or_default()
        } else {
            let rest = script.get(from..).unwrap_or_default();
            let ends = |(place, letter): &(usize, char)| ";})\n".contains(*letter) && outside(from + place);
            let end = rest.char_indices().find(ends).map_or(rest.len(), |(place, _)| place);
            rest.get(..end).unwrap_or_default()
        };
        let parts = strings(part);
        if parts.is_empty() {
            continue;
        }
        let mut line = String::new();
        let mut end = 0;
        // What stands between two texts is a variable, or where one begins that has the text for its name.
        let between = |gap: &str| {
            let gap = gap.trim();
            if matches!(gap, "" | "]") || gap.ends_with("ENVIRON[") { "" } else { "${value}" }
        };
        for (start, stop, text) in &parts {
            let gap = part.get(end..*start).unwrap_or_default();
            let is_variable = gap.trim_end().ends_with("ENVIRON[");
            line.push_str(between(gap));
            if is_variable {
                line.push_str(&format!("${{{text}}}"))
            } else {
                line.push_str(text)
            }
            end = *stop;
        }
        line.push_str(between(part.get(end..).unwrap_or_default()));
        if parts.len() > 1 || line.contains("${value}") {
            lines.push(line);
        }
    }
    let unread = pipes.next().map(|_| Unknown::TooMuch { bound: "pipes" });
    (lines, unread)
}

/// Whether a script of awk starts what a variable holds: `system(c)`, `c | getline`, `print | c`.
fn starts_a_variable(script: &str) -> bool {
    let variable =
        |rest: &str| rest.trim_start().starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    script.match_indices("system").any(|(at, word)| {
        let rest = script.get(at + word.len()..).unwrap_or_default().trim_start();
        rest.strip_prefix('(').is_some_and(variable)
    }) || script.match_indices('|').any(|(at, _)| {
        let rest = script.get(at + 1..).unwrap_or_default();
        let alone = !rest.starts_with('|') && !script.get(..at).is_some_and(|before| before.ends_with('|'));
        alone && variable(rest.trim_start_matches('&'))
    })
}

/// Formats and separators are no lines for a shell.
fn looks_like_a_line(line: &Argument) -> bool {
    line.known().is_some_and(|line| {
        line.starts_with(|first: char| first.is_ascii_alphabetic() || "/.~".contains(first))
            && line.contains([' ', '/'])
    })
}

/// Strings in double quotes, with their places.
fn strings(code: &str) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    let bytes = code.as_bytes();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte != b'"' {
            at += 1;
            continue;
        }
        let start = at;
        at += 1;
        while bytes.get(at).is_some_and(|&byte| byte != b'"') {
            at += if bytes.get(at) == Some(&b'\\') { 2 } else { 1 };
        }
        let end = (at + 1).min(code.len());
        let raw = code.get(start + 1..at.min(code.len())).unwrap_or_default();
        found.push((start, end, crate::shell::unescape(raw).0));
        at = end;
    }
    found
}
