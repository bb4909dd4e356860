//! Programs that start another command elsewhere: in namespaces, as services, in terminals, by package managers.

use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Contact, Fact, Privilege};
use crate::stream::Argument;
use crate::text::{Hole, Text};

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "chroot" | "unshare" | "nsenter" | "bwrap" | "firejail" | "systemd-nspawn" | "proot" | "fakechroot" => {
            namespaces
        }
        "systemd-run" => systemd_run,
        "parallel" | "rush" | "moreutils-parallel" => parallel,
        "screen" | "tmux" | "zellij" | "abduco" | "dtach" | "byobu" => multiplexer,
        "ld.so" | "ld-linux.so.2" | "ld-linux-x86-64.so.2" | "ld-linux-aarch64.so.1" | "ld-musl-x86_64.so.1" => loader,
        "uv" | "poetry" | "pipenv" | "pdm" | "hatch" | "rye" | "bundle" | "mise" | "conda" | "npm" | "pnpm"
        | "yarn" | "cargo" | "go" | "npx" | "pnpx" | "bunx" | "uvx" | "pipx" | "rustup" | "composer" => runner,
        "nix" | "nix-shell" | "guix" | "devbox" | "pixi" | "mamba" | "micromamba" | "asdf" | "rtx" | "pyenv"
        | "rbenv" | "nodenv" | "goenv" | "jenv" | "volta" | "fnm" | "vfox" | "flox" | "devenv" | "dotenvx"
        | "chamber" | "infisical" | "teller" | "envconsul" | "lerna" | "spack" | "module" => surroundings,
        _ => return None,
    })
}

/// Programs that set something up and then start a command: behind two dashes, behind `-c`, or behind `run` or `exec`.
fn surroundings(run: &mut Run<'_, '_>, name: &str) {
    let takes = [
        "-p",
        "--packages",
        "-n",
        "--name",
        "-I",
        "-f",
        "--file",
        "-A",
        "--attr",
        "--env",
        "-e",
        "--prefix",
        "--run",
        "--command",
        "-c",
        "--manifest-path",
        "--arg",
        "--argstr",
        "--config",
    ];
    let rest = run.rest();
    let words = run.words(&takes, Style::Leading);
    let first = words.operands.first().and_then(Argument::known).unwrap_or_default().to_owned();
    if let Some(entry) = super::book().subcommand(name, &first) {
        run.by_the_book(entry);
    }
    if name == "nix-shell" {
        let words = run.words(&takes, Style::Usual);
        for code in words.values(&["--run", "--command", "-c"]).cloned().collect::<Vec<_>>() {
            run.output = run.shell(&code);
        }
        return;
    }
    let mark = if matches!(name, "nix" | "guix") {
        rest.iter().position(|word| matches!(word.known(), Some("-c" | "--command" | "--")))
    } else {
        rest.iter().position(|word| word.known() == Some("--"))
    };
    let starts = matches!(first.as_str(), "run" | "exec" | "x" | "shell" | "develop" | "environment" | "activate");
    if let Some(at) = mark.filter(|_| starts && !(name == "nix" && first == "run")) {
        run.output = run.start(rest.into_iter().skip(at + 1).collect());
    } else if matches!(first.as_str(), "run" | "exec" | "x") && !matches!(name, "nix" | "guix") {
        let command: Vec<Argument> = words.operands.into_iter().skip(1).collect();
        let words =
            super::words(&command, |option| takes.contains(&option).then_some(super::Role::Nothing), Style::Leading);
        let known = words.operands.first().and_then(Argument::known);
        if known.is_some_and(|word| super::is_known(super::bare_name(word))) {
            run.output = run.start(words.operands);
        }
    } else if let Some(own) = super::evaluated::handler(name) {
        own(run, name);
    }
}

fn namespaces(run: &mut Run<'_, '_>, name: &str) {
    let span = run.span;
    run.fact(span, Fact::Privilege { privilege: Privilege::Namespaces });
    let takes = [
        "-t",
        "--target",
        "-S",
        "-G",
        "--setuid",
        "--setgid",
        "-R",
        "--root",
        "-w",
        "--wd",
        "--userspec",
        "--groups",
        "--map-user",
        "--map-group",
        "-D",
        "--directory",
        "-M",
        "--machine",
        "--propagation",
        "-r",
        "-b",
        "-q",
        "-0",
        "-i",
        "-k",
    ];
    let takes: &[&str] =
        if matches!(name, "unshare" | "chroot") { takes.get(..12).unwrap_or_default() } else { &takes };
    let takes: Vec<&str> = takes.iter().copied().filter(|option| !(name == "unshare" && *option == "-t")).collect();
    let words = run.words(&takes, Style::Leading);
    let skip = usize::from(name == "chroot");
    let mut operands: Vec<Argument> = words.operands.into_iter().skip(skip).collect();
    if name == "bwrap" {
        // Options of several values: the command starts at the first word that is a program's name behind them.
        operands = run.rest();
        let start = operands.iter().rposition(|word| word.text.known_start().starts_with("--")).map_or(0, |at| at + 1);
        operands = operands.split_off(start.min(operands.len()));
    }
    run.output = run.start(operands);
}

fn systemd_run(run: &mut Run<'_, '_>, _name: &str) {
    let span = run.span;
    let takes = [
        "-u",
        "--unit",
        "-p",
        "--property",
        "-E",
        "--setenv",
        "-M",
        "--uid",
        "--gid",
        "--on-calendar",
        "--on-active",
        "--slice",
        "-H",
        "-d",
    ];
    let words = run.words(&takes, Style::Leading);
    let act = if words.options.iter().any(|(option, _)| option.starts_with("--on-")) {
        crate::SystemAct::Schedule
    } else {
        crate::SystemAct::Services
    };
    run.fact(span, Fact::System { act, about: "systemd-run".into() });
    run.output = run.start(words.operands);
}

fn parallel(run: &mut Run<'_, '_>, _name: &str) {
    let takes = [
        "-j",
        "--jobs",
        "-a",
        "--arg-file",
        "-S",
        "--sshlogin",
        "--colsep",
        "-n",
        "-N",
        "-I",
        "--joblog",
        "--results",
        "--tmpdir",
    ];
    let words = run.words(&takes, Style::Leading);
    if let Some(host) = words.value(&["-S", "--sshlogin"]).cloned() {
        run.contacts(host.text.clone(), host.span, Contact::Shell, Vec::new());
    }
    let mut command = words.operands;
    let mark = command.iter().position(|word| matches!(word.known(), Some(":::" | "::::" | ":::+")));
    let values = mark.map(|at| command.split_off(at)).unwrap_or_default();
    let values: Vec<Argument> =
        values.into_iter().skip(1).filter(|word| !word.text.known_start().starts_with(":::")).collect();
    let input = run.input.clone();
    if command.is_empty() {
        // Without a command, the input's lines are commands.
        let span = run.span;
        if values.is_empty() {
            run.output = run.execute(&input, crate::Language::Shell, span);
        }
        for line in values {
            run.shell(&line);
        }
        return;
    }
    let values = if values.is_empty() {
        vec![Argument { text: Text::hole(Hole::Output), span: run.span, flows: input.flows.clone() }]
    } else {
        values
    };
    for value in &values {
        if run.reading.is_spent() {
            break;
        }
        let has_mark = command.iter().any(|word| {
            word.text.pieces().iter().any(|piece| matches!(piece, crate::Piece::Known(known) if known.contains("{}")))
        });
        let mut words = super::wrappers::fill(&command, "{}", value);
        if !has_mark {
            words.push(value.clone());
        }
        if let Some(line) = super::wrappers::join(&words) {
            run.output = run.shell(&line);
        }
    }
}

fn multiplexer(run: &mut Run<'_, '_>, name: &str) {
    if name == "tmux" {
        let takes = ["-L", "-S", "-f", "-s", "-n", "-t", "-c", "-x", "-y", "-e", "-F", "-l", "-p"];
        let words = run.words(&takes, Style::Usual);
        let mut operands = words.operands.into_iter();
        match operands.next().as_ref().and_then(|word| word.known()) {
            Some(
                "new" | "new-session" | "neww" | "new-window" | "splitw" | "split-window" | "run" | "run-shell"
                | "respawn-pane" | "popup",
            ) => {
                let line = super::wrappers::join(&operands.collect::<Vec<_>>());
                if let Some(line) = line {
                    run.shell(&line);
                }
            }
            Some("send" | "send-keys" | "if-shell" | "pipe-pane") => {
                for keys in operands.filter(|word| !matches!(word.known(), Some("Enter" | "C-m" | "C-c"))) {
                    run.shell(&keys);
                }
            }
            _ => {}
        }
        return;
    }
    // `-X stuff LINE` types a line into a shell, `-X exec` and `-X screen` start one.
    let rest = run.rest();
    if let Some(at) = rest.iter().position(|word| word.known() == Some("-X")) {
        let mut words = rest.into_iter().skip(at + 1);
        match words.next().as_ref().and_then(Argument::known) {
            Some("stuff" | "eval") => {
                for line in words {
                    let known = line.known().map(|known| crate::shell::unescape(known).0.replace("^M", "\n"));
                    let text = known.map_or(line.text, Text::known);
                    run.shell(&Argument { text, span: line.span, flows: line.flows });
                }
            }
            Some("exec" | "screen") => run.output = run.start(words.collect()),
            _ => {}
        }
        return;
    }
    let words = run.words(&["-S", "-t", "-s", "-c", "-p", "-r", "-T"], Style::Leading);
    run.output = run.start(words.operands);
}

fn loader(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["--library-path", "--preload", "--audit", "--argv0", "--inhibit-rpath"], Style::Leading);
    let span = run.span;
    run.fact(span, Fact::Tricks { trick: crate::Trick::Obscured });
    run.output = run.start(words.operands);
}

/// `go build -toolexec LINE`, `go test -exec LINE`.
fn go_tools(run: &mut Run<'_, '_>, name: &str) {
    if name != "go" {
        return;
    }
    let rest = run.rest();
    for (index, word) in rest.iter().enumerate() {
        let start = word.text.known_start();
        let start = start.strip_prefix("--").or_else(|| start.strip_prefix('-')).unwrap_or_default();
        if matches!(start, "toolexec" | "exec" | "vettool") {
            if let Some(code) = rest.get(index + 1) {
                run.shell(code);
            }
        } else if ["toolexec=", "exec=", "vettool="].iter().any(|option| start.starts_with(option)) {
            let code = super::interpreters::cut(word, word.text.known_start().find('=').unwrap_or(0) + 1);
            run.shell(&code);
        }
    }
}

/// Programs whose subcommand `run` or `exec` starts another one.
fn runner(run: &mut Run<'_, '_>, name: &str) {
    let takes = [
        "--with",
        "-p",
        "--python",
        "--directory",
        "--project",
        "-C",
        "--prefix",
        "-n",
        "--package",
        "--manifest-path",
        "--features",
        "-c",
        "--call",
        "--bin",
        "--example",
        "-w",
        "--workspace",
        "--extra",
        "--group",
    ];
    let words = run.words(&takes, Style::Leading);
    let first = words.operands.first().and_then(Argument::known).map(str::to_owned);
    let runs = match (name, first.as_deref()) {
        ("npx" | "pnpx" | "bunx" | "uvx", _) => Some(0),
        ("uv" | "poetry" | "pipenv" | "pdm" | "hatch" | "rye" | "conda" | "pipx" | "rustup", Some("run")) => Some(1),
        ("bundle" | "mise" | "npm" | "pnpm" | "yarn" | "composer", Some("exec" | "x")) => Some(1),
        _ => None,
    };
    if let Some(entry) =
        first.as_deref().and_then(|word| super::book().subcommand(name, word)).or_else(|| super::book().program(name))
    {
        // What the package manager itself does comes first.
        if runs.is_none() || matches!(name, "npx" | "pnpx" | "bunx") {
            run.by_the_book(entry);
        }
    }
    if matches!(name, "npm" | "pnpm" | "yarn") {
        super::manifest::scripts(run, name, &words.operands);
    }
    // `npx -c LINE`, `npm exec -c LINE`, `yarn exec LINE`.
    let executes =
        matches!(name, "npx" | "pnpx" | "bunx") || runs == Some(1) && matches!(name, "npm" | "pnpm" | "yarn");
    if executes {
        let words = run.words(&takes, Style::Usual);
        for code in words.values(&["-c", "--call"]).cloned().collect::<Vec<_>>() {
            run.shell(&code);
        }
        let line = words.operands.get(1).filter(|line| name == "yarn" && line.text.known_start().contains(' '));
        if let Some(line) = line.cloned() {
            run.shell(&line);
        }
    }
    super::manifest::sets_scripts(run, name);
    go_tools(run, name);
    let Some(skip) = runs else { return };
    let mut command: Vec<Argument> = words.operands.into_iter().skip(skip).collect();
    if skip == 1 {
        // Options may stand behind the subcommand too.
        let words =
            super::words(&command, |option| takes.contains(&option).then_some(super::Role::Nothing), Style::Leading);
        command = words.operands;
    }
    if command.first().and_then(Argument::known).is_some_and(|word| super::is_known(super::bare_name(word))) {
        run.output = run.start(command);
    } else if let Some(script) = command.first().filter(|word| name == "uv" && word.text.known_end().ends_with(".py")) {
        let mut words = vec![Argument::new("python".into(), script.span)];
        words.extend(command.iter().cloned());
        run.output = run.start(words);
    }
}
