//! Clients of databases: their own commands start programs and touch files, and so do some functions of SQL.

use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Fact, Flow};
use crate::language::Language;
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "sqlite3" | "sqlite" | "duckdb" | "sqlcipher" => sqlite,
        "psql" => psql,
        "mysql" | "mariadb" => mysql,
        "mongo" | "mongosh" => mongo,
        "redis-cli" | "valkey-cli" => redis,
        _ => return None,
    })
}

/// The database is a file, and what stands behind it is SQL or commands that begin with a dot.
fn sqlite(run: &mut Run<'_, '_>, _name: &str) {
    let takes = ["-cmd", "-init", "-separator", "-newline", "-nullvalue", "-vfs", "-mmap", "-c", "-s", "-maxsize"];
    let words = run.words(&takes, Style::LongWords);
    let mut texts: Vec<Argument> = words.values(&["-cmd", "-c", "-s"]).cloned().collect();
    let mut operands = words.operands.into_iter();
    let database = operands.next();
    texts.extend(operands);
    let mut output = Stream::default();
    if let Some(database) = database.filter(|word| word.known() != Some(":memory:")) {
        output = run.reads(&database);
        output.text = None;
    }
    let init: Vec<Argument> =
        words.options.iter().filter(|(name, _)| name == "-init").filter_map(|(_, v)| v.clone()).collect();
    for file in init {
        let stream = run.reads(&file);
        texts.extend(stream.text.map(|text| Argument::new(text, file.span)));
    }
    texts.extend(input(run));
    for text in &texts {
        each_line(run, text, |run, line, code| {
            let Some(command) = line.strip_prefix('.') else { return sql(run, line, code) };
            let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
            match name {
                "shell" | "system" | "sh" | "sy" | "she" | "sys" => shell(run, rest, code),
                "output" | "once" | "log" | "backup" | "save" | "clone" | "excel" | "trace" | "cd" => {
                    target(run, rest, code);
                }
                "read" | "import" | "open" | "restore" => source(run, rest, code),
                "load" => loads(run, rest, code),
                _ => {}
            }
        });
    }
    output.add(Flow::Unknown);
    run.output = output;
}

fn psql(run: &mut Run<'_, '_>, _name: &str) {
    let takes = [
        "-c",
        "--command",
        "-f",
        "--file",
        "-h",
        "--host",
        "-p",
        "--port",
        "-U",
        "--username",
        "-d",
        "--dbname",
        "-o",
        "--output",
        "-L",
        "--log-file",
        "-v",
        "--set",
        "-P",
        "-F",
        "-R",
        "-T",
    ];
    let words = run.words(&takes, Style::Usual);
    let mut texts: Vec<Argument> = words.values(&["-c", "--command"]).cloned().collect();
    for file in words.values(&["-f", "--file"]).cloned().collect::<Vec<_>>() {
        let stream = if file.known() == Some("-") { run.input.clone() } else { run.reads(&file) };
        texts.extend(stream.text.map(|text| Argument::new(text, file.span)));
    }
    for file in words.values(&["-o", "--output", "-L", "--log-file"]).cloned().collect::<Vec<_>>() {
        target(run, &file.text.to_string(), &file);
    }
    texts.extend(input(run));
    for text in &texts {
        each_line(run, text, |run, line, code| match line.find('\\') {
            Some(at) => {
                let (before, command) = line.split_at(at);
                sql(run, before, code);
                backslash(run, command, code);
            }
            None => sql(run, line, code),
        });
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}

/// `\! command`, `\o file`, `\i file`, `\copy … to program 'command'`.
fn backslash(run: &mut Run<'_, '_>, line: &str, code: &Argument) {
    let command = line.trim_start_matches('\\');
    if let Some(line) = command.strip_prefix('!') {
        return shell(run, line, code);
    }
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    match name {
        "o" | "out" | "g" | "gx" | "w" | "write" | "s" => target(run, rest, code),
        "i" | "ir" | "include" | "lo_import" => source(run, rest, code),
        "copy" => sql(run, rest, code),
        "setenv" => {
            run.fact(code.span, Fact::SetsEnvironment { name: Text::known(first_word(rest)), value: Text::known(rest) })
        }
        _ => {}
    }
}

fn mysql(run: &mut Run<'_, '_>, _name: &str) {
    let takes = [
        "-e",
        "--execute",
        "-h",
        "--host",
        "-P",
        "--port",
        "-u",
        "--user",
        "-D",
        "--database",
        "-S",
        "--socket",
        "--pager",
        "--tee",
        "--defaults-file",
        "--init-command",
    ];
    let words = run.words(&takes, Style::Usual);
    let mut texts: Vec<Argument> = words.values(&["-e", "--execute", "--init-command"]).cloned().collect();
    for pager in words.values(&["--pager"]).cloned().collect::<Vec<_>>() {
        run.shell(&pager);
    }
    for file in words.values(&["--tee"]).cloned().collect::<Vec<_>>() {
        run.writes(&file, Stream::from(vec![Flow::Unknown]));
    }
    texts.extend(input(run));
    for text in &texts {
        each_line(run, text, |run, line, code| {
            for part in line.split(';') {
                let part = part.trim();
                let (name, rest) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
                match name.to_ascii_lowercase().as_str() {
                    "\\!" | "system" => shell(run, rest, code),
                    "\\p" | "pager" => shell(run, rest, code),
                    "\\t" | "tee" => target(run, rest, code),
                    "\\." | "source" => source(run, rest, code),
                    other => match other.strip_prefix("\\!") {
                        Some(_) => shell(run, part.trim_start_matches("\\!"), code),
                        None => sql(run, part, code),
                    },
                }
            }
        });
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}

fn mongo(run: &mut Run<'_, '_>, _name: &str) {
    let words = run
        .words(&["--eval", "--host", "--port", "-u", "-p", "--username", "--password", "--file", "-f"], Style::Usual);
    for code in words.values(&["--eval"]).cloned().collect::<Vec<_>>() {
        run.code(Language::JavaScript, &code);
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}

/// `config set dir` and `dbfilename` say where the server writes.
fn redis(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-h", "-p", "-a", "-n", "-u", "-s", "--user", "--pass", "-x_", "--eval"], Style::Usual);
    let lower: Vec<String> = words.operands.iter().map(|word| word.text.to_string().to_ascii_lowercase()).collect();
    if let [config, set, key, ..] = lower.as_slice()
        && config == "config"
        && set == "set"
        && matches!(key.as_str(), "dir" | "dbfilename")
        && let Some(place) = words.operands.get(3).cloned()
    {
        run.writes(&place, Stream::from(vec![Flow::Unknown]));
    }
    run.output = Stream::from(vec![Flow::Unknown]);
}

/// What is piped in, where the text shows it.
fn input(run: &mut Run<'_, '_>) -> Option<Argument> {
    let text = run.input.text.clone()?;
    Some(Argument { text, span: run.span, flows: run.input.flows.clone() })
}

fn each_line(run: &mut Run<'_, '_>, text: &Argument, mut line: impl FnMut(&mut Run<'_, '_>, &str, &Argument)) {
    // What is not known stands as a word that is nothing.
    let whole: String = text
        .text
        .pieces()
        .iter()
        .map(|piece| match piece {
            crate::Piece::Known(known) | crate::Piece::Pattern(known) => known.as_str(),
            crate::Piece::Hole(_) => "_hole",
        })
        .collect();
    for each in whole.lines() {
        line(run, each.trim_start(), text);
    }
}

fn shell(run: &mut Run<'_, '_>, line: &str, code: &Argument) {
    let line = Argument::new(Text::known(line.trim()), code.span);
    run.shell(&line);
}

fn first_word(text: &str) -> &str {
    let text = text.trim_start();
    match text.chars().next() {
        Some(quote @ ('\'' | '"')) => text.get(1..).and_then(|rest| rest.split(quote).next()).unwrap_or_default(),
        _ => text.split([' ', '\t', ';']).next().unwrap_or_default(),
    }
}

/// A file that is written, or a command behind `|`.
fn target(run: &mut Run<'_, '_>, rest: &str, code: &Argument) {
    let bare = rest.trim().trim_matches(['\'', '"']);
    match bare.strip_prefix('|') {
        Some(line) => shell(run, line, code),
        None => {
            let name = rest.split_whitespace().last().unwrap_or_default();
            for file in [first_word(rest), first_word(name)] {
                if file.contains(['/', '~', '.']) {
                    run.writes(&Argument::new(Text::known(file), code.span), Stream::from(vec![Flow::Unknown]));
                }
            }
        }
    }
}

/// A file that is read, or a command behind `|`.
fn source(run: &mut Run<'_, '_>, rest: &str, code: &Argument) {
    let bare = rest.trim().trim_start_matches(['\'', '"']);
    match bare.strip_prefix('|') {
        Some(line) => shell(run, line.split(['\'', '"']).next().unwrap_or(line), code),
        None => {
            let file = rest.split_whitespace().find(|word| !word.starts_with('-')).unwrap_or_default();
            run.reads(&Argument::new(Text::known(first_word(file)), code.span));
        }
    }
}

fn loads(run: &mut Run<'_, '_>, rest: &str, code: &Argument) {
    let path = first_word(rest).to_owned();
    run.fact(code.span, Fact::Executes { from: vec![Flow::File { path }] });
}

/// Functions and clauses of SQL that leave the database.
fn sql(run: &mut Run<'_, '_>, text: &str, code: &Argument) {
    let lower = text.to_ascii_lowercase();
    for (words, act) in [
        ("readfile", Act::Reads),
        ("load_file", Act::Reads),
        ("pg_read_file", Act::Reads),
        ("pg_read_binary_file", Act::Reads),
        ("pg_ls_dir", Act::Reads),
        ("lo_import", Act::Reads),
        ("read_csv", Act::Reads),
        ("read_csv_auto", Act::Reads),
        ("read_text", Act::Reads),
        ("read_blob", Act::Reads),
        ("infile", Act::Reads),
        ("attach database", Act::Reads),
        ("attach", Act::Reads),
        ("writefile", Act::Writes),
        ("vacuum into", Act::Writes),
        ("into outfile", Act::Writes),
        ("into dumpfile", Act::Writes),
        ("lo_export", Act::Writes),
        ("load_extension", Act::Loads),
        ("to program", Act::Runs),
        ("from program", Act::Runs),
        ("sys_exec", Act::Runs),
        ("sys_eval", Act::Runs),
        ("xp_cmdshell", Act::Runs),
        ("shell_exec", Act::Runs),
    ] {
        for (at, found) in lower.match_indices(words) {
            let rest = text.get(at + found.len()..).unwrap_or_default().trim_start_matches([' ', '(', '\t']);
            let Some(quote) = rest.chars().next().filter(|letter| matches!(letter, '\'' | '"')) else { continue };
            let Some(word) = rest.get(1..).and_then(|rest| rest.split(quote).next()) else { continue };
            let word = Argument::new(Text::known(word), code.span);
            match act {
                Act::Reads => {
                    run.reads(&word);
                }
                Act::Writes => run.writes(&word, Stream::from(vec![Flow::Unknown])),
                Act::Loads => {
                    run.fact(code.span, Fact::Executes { from: vec![Flow::File { path: word.text.to_string() }] });
                }
                Act::Runs => {
                    run.shell(&word);
                }
            }
        }
    }
    copies(run, text, &lower, code);
}

/// `COPY table TO '/file'` and `FROM '/file'`.
fn copies(run: &mut Run<'_, '_>, text: &str, lower: &str, code: &Argument) {
    if !lower.trim_start().starts_with("copy") && !lower.contains(" copy ") && !lower.starts_with('(') {
        return;
    }
    for (words, writes) in [(" to '", true), (" from '", false)] {
        for (at, found) in lower.match_indices(words) {
            let Some(path) = text.get(at + found.len()..).and_then(|rest| rest.split('\'').next()) else { continue };
            let file = Argument::new(Text::known(path), code.span);
            if writes {
                run.writes(&file, Stream::from(vec![Flow::Unknown]));
            } else {
                run.reads(&file);
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Act {
    Reads,
    Writes,
    Loads,
    Runs,
}
