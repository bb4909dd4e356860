//! Editors whose commands start programs and write files: `vim` and its kind, and `ed`.

use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Fact, Flow};
use crate::language::Language;
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "vim" | "vi" | "nvim" | "ex" | "view" | "gvim" | "rvim" | "vimdiff" | "emacsclient" => vim,
        "ed" | "red" => ed,
        _ => return None,
    })
}

/// Commands of the editor: `:!cmd`, `:w file`, `:python …`.
fn vim(run: &mut Run<'_, '_>, name: &str) {
    let words = run.words(
        &["-c", "-S", "-s_", "-u", "-U", "-i", "-w", "-W", "--cmd", "-T", "-t", "--remote", "--eval", "-e_"],
        Style::Usual,
    );
    let mut commands: Vec<Argument> = words.values(&["-c", "--cmd"]).cloned().collect();
    let mut operands = Vec::new();
    for word in &words.operands {
        if word.text.known_start().starts_with('+') {
            commands.push(super::interpreters::cut(word, 1));
        } else {
            operands.push(word.clone());
        }
    }
    for file in words
        .options
        .iter()
        .filter(|(option, _)| matches!(option.as_str(), "-S" | "-u" | "-U"))
        .filter_map(|(_, value)| value.clone())
        .collect::<Vec<_>>()
    {
        if matches!(file.known(), Some("NONE" | "NORC" | "DEFAULTS")) {
            continue;
        }
        let written = file.known().and_then(|path| run.reading.file(path));
        run.fact(file.span, Fact::Executes { from: vec![Flow::File { path: file.text.to_string() }] });
        commands.extend(written.and_then(|stream| stream.text).map(|text| Argument::new(text, file.span)));
    }
    // Without a screen, the input is a script of commands.
    if name == "ex" || words.has(&["-e", "-E", "-s"]) {
        let (input, span) = (run.input.clone(), run.span);
        commands.extend(input.text.map(|text| Argument { text, span, flows: input.flows }));
    }
    for command in &commands {
        match command.known() {
            Some(known) => editor_commands(run, known, command),
            None => run.fact(command.span, Fact::Executes { from: vec![Flow::Unknown] }),
        }
    }
    for file in &operands {
        run.reads(file);
        run.writes(file, Stream::from(vec![Flow::Input]));
    }
}

/// Words that stand before a command and change how it is done.
const BEFORE: &[&str] = &[
    "silent!",
    "silent",
    "sil!",
    "sil",
    "noautocmd",
    "noa",
    "keepalt",
    "verbose",
    "exe",
    "exec",
    "execute",
    "call",
    "normal",
    "norm",
    "norm!",
    "tab",
    "vert",
    "bot",
];

fn editor_commands(run: &mut Run<'_, '_>, text: &str, place: &Argument) {
    for line in text.lines() {
        let mut rest = line;
        while !rest.trim().is_empty() {
            let mut bare = rest.trim_start_matches([':', ' ', '\t', '%', '.', '"', '\'', '$', ',']);
            while let Some(after) = BEFORE
                .iter()
                .find_map(|word| bare.strip_prefix(word).filter(|rest| rest.starts_with([' ', '!', '"', '\''])))
            {
                bare = after.trim_start_matches([' ', '"', '\'', ':']);
            }
            // What stands behind an exclamation mark is all for the shell.
            if let Some(code) = shell_part(bare) {
                run.shell(&Argument::new(Text::known(code.trim_end_matches(['"', '\''])), place.span));
                break;
            }
            let (command, after) = bare.split_once('|').unwrap_or((bare, ""));
            one_command(run, command.trim(), place);
            rest = after;
        }
    }
}

/// `!cmd`, `r !cmd`, `w !cmd`, `terminal cmd`.
fn shell_part(bare: &str) -> Option<&str> {
    if let Some((before, code)) = bare.split_once('!')
        && matches!(before.trim(), "" | "r" | "re" | "read" | "w" | "write" | "g" | "v")
        && (before.is_empty() || before.ends_with(' ') || matches!(before, "r" | "re" | "read"))
    {
        return Some(code);
    }
    ["terminal ", "term ", "ter ", "term! "].iter().find_map(|word| bare.strip_prefix(word))
}

fn one_command(run: &mut Run<'_, '_>, command: &str, place: &Argument) {
    for call in ["system(", "systemlist(", "job_start(", "jobstart(", "termopen("] {
        if let Some((_, rest)) = command.split_once(call) {
            match rest.split(['\'', '"']).nth(1) {
                Some(code) => {
                    run.shell(&Argument::new(Text::known(code), place.span));
                }
                None => run.fact(place.span, Fact::Executes { from: vec![Flow::Unknown] }),
            }
            return;
        }
    }
    let (verb, rest) = command.split_once(' ').unwrap_or((command, ""));
    let rest = rest.trim();
    let file = || Argument::new(Text::known(rest.trim_start_matches(['+', '>', ' '])), place.span);
    match verb {
        "python" | "python3" | "py" | "py3" | "pyx" | "pythonx" => {
            run.code(Language::Python, &Argument::new(Text::known(rest), place.span));
        }
        "lua" | "perl" | "ruby" | "tcl" => {
            let code = Argument::new(Text::known(rest), place.span);
            run.code(Language::Other, &code);
            // The strings of its calls are lines for a shell.
            for call in ["os.execute", "io.popen", "vim.fn.system", "system", "`"] {
                if let Some((_, after)) = rest.split_once(call)
                    && let Some(line) = after.split(['\'', '"', '`']).nth(1)
                {
                    run.shell(&Argument::new(Text::known(line), place.span));
                }
            }
        }
        "source" | "so" | "ru" | "runtime" | "luafile" | "pyfile" => {
            run.fact(place.span, Fact::Executes { from: vec![Flow::File { path: rest.to_owned() }] });
        }
        "w" | "w!" | "write" | "write!" | "sav" | "saveas" | "saveas!" | "sav!" | "wq" | "wq!" | "x" | "up"
        | "redir"
            if !rest.is_empty() =>
        {
            run.writes(&file(), Stream::from(vec![Flow::Unknown]));
        }
        "r" | "read" | "e" | "e!" | "edit" | "tabe" | "tabnew" | "sp" | "split" | "vs" | "vsplit" | "view"
            if !rest.is_empty() =>
        {
            run.reads(&file());
        }
        "set" | "se" | "let" => {
            // Options that name programs.
            if let Some((_, program)) = ["shell=", "grepprg=", "makeprg=", "keywordprg=", "equalprg="]
                .iter()
                .find_map(|option| rest.split_once(option))
            {
                run.shell(&Argument::new(Text::known(program.replace("\\ ", " ")), place.span));
            }
        }
        _ => {}
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
                let bare = line.trim_start_matches(|letter: char| letter.is_ascii_digit() || ",.$% ".contains(letter));
                if let Some(code) = shell_part(bare) {
                    run.shell(&Argument::new(Text::known(code), span));
                } else if bare.starts_with(['w', 'r', 'e', 'E', 'W']) {
                    one_command(run, bare, &Argument::new(Text::default(), span));
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
