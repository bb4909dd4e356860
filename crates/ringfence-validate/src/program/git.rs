//! `git`: settings that are commands, addresses that are commands, and what goes over the network.

use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Contact, Fact, Flow, Removal};
use crate::path::{PathClass, classify};
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    (name == "git").then_some(git as Handler)
}

/// Settings whose value git starts as a command.
fn is_command(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    matches!(
        key.as_str(),
        "core.sshcommand"
            | "core.pager"
            | "core.editor"
            | "core.fsmonitor"
            | "core.askpass"
            | "core.gitproxy"
            | "sequence.editor"
            | "diff.external"
            | "credential.helper"
            | "gpg.program"
            | "gpg.ssh.program"
            | "gpg.x509.program"
            | "interactive.difffilter"
            | "uploadpack.packobjectshook"
            | "core.alternaterefscommand"
            | "gui.editor"
            | "web.browser"
            | "receive.procreceiverefs"
            | "sendemail.smtpserver"
            | "ssh.variant"
            | "init.templatedir"
    ) || key.starts_with("pager.")
        || key.starts_with("filter.")
            && (key.ends_with(".clean") || key.ends_with(".smudge") || key.ends_with(".process"))
        || key.starts_with("diff.") && (key.ends_with(".command") || key.ends_with(".textconv"))
        || key.starts_with("merge.") && key.ends_with(".driver")
        || (key.starts_with("mergetool.")
            || key.starts_with("difftool.")
            || key.starts_with("browser.")
            || key.starts_with("man."))
            && (key.ends_with(".cmd") || key.ends_with(".path"))
        || key.starts_with("remote.")
            && (key.ends_with(".uploadpack") || key.ends_with(".receivepack") || key.ends_with(".vcs"))
        || key.starts_with("credential.") && key.ends_with(".helper")
        || key.starts_with("submodule.") && key.ends_with(".update")
        || key.starts_with("trailer.") && (key.ends_with(".command") || key.ends_with(".cmd"))
}

/// A setting: what is started by it is read.
fn setting(run: &mut Run<'_, '_>, key: &str, value: &Argument) {
    let lower = key.to_ascii_lowercase();
    let start = value.text.known_start();
    if lower.starts_with("alias.") {
        if start.starts_with('!') {
            let code = super::interpreters::cut(value, 1);
            run.shell(&code);
        } else if let Some(known) = value.known() {
            let line =
                Argument { text: Text::known(format!("git {known}")), span: value.span, flows: value.flows.clone() };
            run.shell(&line);
        }
    } else if lower == "core.hookspath"
        || lower == "include.path"
        || lower.starts_with("includeif.")
        || lower == "core.attributesfile"
    {
        run.fact(value.span, Fact::Executes { from: vec![Flow::File { path: value.text.to_string() }] });
        // A project keeps its own hooks below itself.
        if start.starts_with(['/', '~']) && lower == "core.hookspath" && start != "/dev/null" {
            run.fact(value.span, Fact::Tricks { trick: crate::Trick::Redefines });
        }
    } else if is_command(key)
        && !matches!(
            start,
            "true"
                | "false"
                | "cat"
                | ""
                | "less"
                | "store"
                | "cache"
                | "osxkeychain"
                | "manager"
                | "vim"
                | "vi"
                | "nano"
                | "code --wait"
                | "delta"
        )
    {
        let code = if start.starts_with('!') { super::interpreters::cut(value, 1) } else { value.clone() };
        run.shell(&code);
    }
}

/// Addresses that are commands: `ext::sh -c …`.
fn address(run: &mut Run<'_, '_>, url: &Argument, contact: Contact, sends: Vec<Flow>) {
    let start = url.text.known_start();
    if let Some(rest) = start.strip_prefix("ext::") {
        // `% ` stands for a blank within a word: to a shell that is given the words, it is one.
        let mut code = super::interpreters::cut(url, start.len() - rest.len());
        if let Some(known) = code.known().filter(|known| known.contains("% ")) {
            let (shell, line) = known.split_once("-c ").map_or(("", known), |(shell, line)| (shell, line));
            let line = line.replace("% ", " ");
            code.text = Text::known(if shell.is_empty() { line } else { format!("{shell}-c '{line}'") });
        }
        run.shell(&code);
    } else if start.contains("://") || start.contains('@') || start.contains(':') || url.text.has_hole() {
        run.contacts(url.text.clone(), url.span, contact, sends);
    } else {
        run.contacts(Text::known(start), url.span, contact, sends);
    }
}

fn git(run: &mut Run<'_, '_>, _name: &str) {
    let takes =
        ["-c", "-C", "--git-dir", "--work-tree", "--exec-path", "--namespace", "--config-env", "--super-prefix"];
    let words = run.words(&takes, Style::Leading);
    for pair in words.values(&["-c"]).cloned().collect::<Vec<_>>() {
        let start = pair.text.known_start().to_owned();
        match start.split_once('=') {
            Some((key, _)) => {
                let value = super::interpreters::cut(&pair, key.len() + 1);
                setting(run, key, &value);
            }
            None => run.fact(pair.span, Fact::Tricks { trick: crate::Trick::Redefines }),
        }
    }
    if let Some(folder) = words.value(&["--exec-path"]).cloned() {
        run.fact(folder.span, Fact::Executes { from: vec![Flow::File { path: folder.text.to_string() }] });
    }
    let saved = run.reading.scope.directory.clone();
    for folder in words.values(&["-C", "--work-tree"]) {
        let there = run.reading.scope.resolve(&folder.text);
        run.reading.scope.directory.set(Some(there));
    }
    let mut operands = words.operands.into_iter();
    if let Some(subcommand) = operands.next() {
        let rest: Vec<Argument> = operands.collect();
        self::subcommand(run, &subcommand, &rest);
    }
    run.reading.scope.directory = saved;
    run.output.add(Flow::Unknown);
}

const VALUES: &[&str] = &[
    "-m",
    "-F",
    "-C",
    "-c",
    "-b",
    "-B",
    "-t",
    "-o",
    "-O",
    "-S",
    "-G",
    "-L",
    "-n",
    "-j",
    "-u",
    "-x",
    "--exec",
    "--upload-pack",
    "--receive-pack",
    "--branch",
    "--origin",
    "--depth",
    "--template",
    "--config",
    "--author",
    "--date",
    "--message",
    "--file",
    "--output",
    "--format",
    "--prefix",
    "--remote",
    "--since",
    "--until",
    "--grep",
    "--tree-filter",
    "--env-filter",
    "--index-filter",
    "--msg-filter",
    "--commit-filter",
    "--parent-filter",
    "--tag-name-filter",
    "--subdirectory-filter",
    "--onto",
    "--reference",
    "--separate-git-dir",
    "--filter",
    "--strategy",
    "-X",
    "-s",
    "--extcmd",
    "--sendmail-cmd",
    "--smtp-server",
    "--to-cmd",
    "--cc-cmd",
    "--open-files-in-pager",
    "--server-option",
    "--push-option",
    "--repo",
];

fn subcommand(run: &mut Run<'_, '_>, name: &Argument, rest: &[Argument]) {
    let known = name.known().unwrap_or_default();
    let takes: Vec<&str> = VALUES
        .iter()
        .copied()
        .filter(|option| match *option {
            "-x" => known == "rebase" || known == "difftool",
            "-c" | "-C" | "-b" | "-B" => matches!(known, "clone" | "checkout" | "switch" | "commit"),
            "-O" => matches!(known, "grep" | "clone" | "log" | "format-patch" | "archive"),
            "-n" | "-o" | "-s" | "-t" | "-u" | "-S" | "-G" | "-L" | "-j" => {
                matches!(known, "clone" | "log" | "format-patch" | "archive")
            }
            "-F" | "-m" => matches!(known, "commit" | "tag" | "merge" | "notes" | "stash"),
            _ => true,
        })
        .collect();
    let words = super::words(rest, |option| takes.contains(&option).then_some(super::Role::Nothing), Style::Usual);
    for code in words
        .values(&[
            "--upload-pack",
            "--receive-pack",
            "--exec",
            "-x",
            "--tree-filter",
            "--env-filter",
            "--index-filter",
            "--msg-filter",
            "--commit-filter",
            "--parent-filter",
            "--tag-name-filter",
            "--extcmd",
            "--sendmail-cmd",
            "--smtp-server",
            "--to-cmd",
            "--cc-cmd",
        ])
        .cloned()
        .collect::<Vec<_>>()
    {
        run.shell(&code);
    }
    if matches!(known, "clone" | "fetch" | "pull" | "ls-remote") {
        for code in words.values(&["-u"]).cloned().collect::<Vec<_>>() {
            run.shell(&code);
        }
    }
    for pair in words.values(&["--config", "-c"]).filter(|_| known == "clone").cloned().collect::<Vec<_>>() {
        let start = pair.text.known_start().to_owned();
        if let Some((key, _)) = start.split_once('=') {
            let value = super::interpreters::cut(&pair, key.len() + 1);
            setting(run, key, &value);
        }
    }
    for option in words
        .options
        .iter()
        .filter(|(option, _)| option.starts_with("-O") || option.starts_with("--open-files-in-pager"))
        .map(|(_, value)| value.clone())
        .collect::<Vec<_>>()
    {
        if let (Some(code), "grep") = (option, known) {
            run.shell(&code);
        }
    }
    let span = run.span;
    match known {
        "clone" | "fetch" | "pull" | "ls-remote" | "submodule" | "remote" => {
            if known == "clone" || known == "ls-remote" {
                if let Some(url) = words.operands.first().cloned() {
                    address(run, &url, Contact::Fetch, crate::stream::telling(&url.flows));
                }
                if let Some(folder) = words.operands.get(1) {
                    run.writes(folder, Stream::from(vec![Flow::Network]));
                }
                if known == "clone" {
                    super::brought::note_clone(run, &words.operands);
                }
            } else if known == "remote" || known == "submodule" {
                match words.operands.first().and_then(Argument::known) {
                    Some("add") if known == "submodule" => super::brought::note_submodule(run, &words.operands),
                    Some("add" | "set-url") => {
                        if let [_, name, url, ..] = words.operands.as_slice()
                            && let Some(name) = name.known()
                        {
                            run.reading.scope.notes.remotes.insert(name.to_owned(), url.text.clone());
                        }
                        if let Some(url) =
                            words.operands.last().filter(|url| url.text.known_start().starts_with("ext::")).cloned()
                        {
                            address(run, &url, Contact::Fetch, Vec::new());
                        }
                    }
                    Some("foreach") => {
                        if let Some(code) = super::wrappers::join(words.operands.get(1..).unwrap_or_default()) {
                            run.shell(&code);
                        }
                    }
                    Some("update" | "init") => {
                        run.contacts(Text::known("submodules"), span, Contact::Fetch, Vec::new())
                    }
                    _ => {}
                }
            } else {
                let url = words.operands.first().cloned().unwrap_or_else(|| Argument::new(Text::known("origin"), span));
                address(run, &url, Contact::Fetch, Vec::new());
            }
        }
        "push" | "send-email" | "svn" | "p4" => {
            let mut url = words.value(&["--repo"]).or(words.operands.first()).cloned();
            // A remote that this very text made is its address.
            if let Some(url) = &mut url
                && let Some(added) = url.known().and_then(|name| run.reading.scope.notes.remotes.get(name))
            {
                url.text = added.clone();
            }
            let url = url.unwrap_or_else(|| Argument::new(Text::known("origin"), span));
            let mut sends = Stream::from(crate::stream::telling(&url.flows));
            sends.add_all(&run.reading.scope.notes.staged);
            address(run, &url, Contact::Send, sends.flows);
        }
        "add" | "stage" if !words.has(&["-n", "--dry-run"]) => stage(run, &words),
        "commit" if words.has(&["-a", "--all"]) => stage(run, &words),
        "config" => config(
            run,
            &words.operands,
            words.has(&["--get", "--list", "-l", "--get-all", "--unset", "--unset-all", "--get-regexp"]),
            words.has(&["--global", "--system"]),
        ),
        "clean" if !words.has(&["-n", "--dry-run"]) => {
            // Only what is not under version control goes.
            let removal = if words.has(&["-d", "-x", "-X"]) { Removal::Tree } else { Removal::One };
            // Where the text went elsewhere first, that is where they go.
            let path = run.reading.scope.directory.get().cloned().unwrap_or_else(|| Text::known("untracked files"));
            run.fact(span, Fact::Removes { path, removal });
        }
        "rm" => {
            let tree = words.has(&["-r"]);
            if !words.has(&["--cached", "-n", "--dry-run"]) {
                for operand in words.operands {
                    run.removes(&operand, if tree { Removal::Tree } else { Removal::One });
                }
            }
        }
        "mv" => {
            let mut operands = words.operands;
            if let Some(target) = operands.pop() {
                for source in &operands {
                    run.removes(source, Removal::One);
                }
                run.writes(&target, Stream::from(vec![Flow::Unknown]));
            }
        }
        "bisect" if words.operands.first().and_then(Argument::known) == Some("run") => {
            // All that stands behind it is the command's own, options too.
            run.start(rest.iter().skip_while(|word| word.known() != Some("run")).skip(1).cloned().collect());
        }
        "difftool" | "mergetool" => {}
        "subtree" => {
            let folder = words.value(&["--prefix", "-P"]).cloned();
            let url = words.operands.iter().find(|word| word.text.known_start().contains("://")).cloned();
            super::brought::note_clone(run, &url.into_iter().chain(folder).collect::<Vec<_>>());
        }
        // The whole history, or all that it holds now, in one file.
        "bundle" if words.operands.first().and_then(Argument::known) == Some("create") => {
            let all = super::brought::whole(run);
            match words.operands.get(1).cloned() {
                Some(file) if file.known() == Some("-") => run.output = all,
                Some(file) => run.writes(&file, all),
                None => {}
            }
        }
        "archive" if words.value(&["--remote"]).is_none() => {
            let all = archived(run, words.operands.get(1..).unwrap_or_default());
            for file in words.values(&["--output", "-o"]).cloned().collect::<Vec<_>>() {
                run.writes(&file, all.clone());
            }
            run.output = all;
        }
        "show" | "cat-file" | "diff" | "log" | "blame" | "grep" | "archive" => {
            if let Some(file) = words.value(&["--output"]).cloned() {
                run.writes(&file, Stream::from(vec![Flow::Unknown]));
            }
            if let Some(file) = words.value(&["-o"]).filter(|_| known == "archive").cloned() {
                run.writes(&file, Stream::from(vec![Flow::Unknown]));
            }
            if words.has(&["--no-index"]) {
                for file in &words.operands {
                    run.reads(file);
                }
            }
        }
        // The project's own folder, wherever in it this runs.
        "rev-parse" if rest.iter().any(|word| word.known() == Some("--show-toplevel")) => {
            if let [workspace, ..] = run.reading.surroundings.workspaces.as_slice() {
                run.output = Stream::literal(Text::known(format!("{workspace}\n")));
            }
        }
        "apply" | "am" | "hash-object" => {
            for file in &words.operands {
                run.reads(file);
            }
        }
        "credential" | "credential-store" | "credential-cache" => {
            run.fact(span, Fact::Reads { path: Text::known("~/.git-credentials") });
            run.output = Stream::from(vec![Flow::File { path: "~/.git-credentials".to_owned() }]);
        }
        _ => {}
    }
}

/// What of a tree goes into an archive: all, or what is below these paths. A pattern of git's own may be all.
fn archived(run: &Run<'_, '_>, paths: &[Argument]) -> Stream {
    let is_path = |path: &Argument| path.known().is_some_and(|path| !path.starts_with([':', '*']));
    if paths.is_empty() || !paths.iter().all(is_path) {
        return super::brought::whole(run);
    }
    let below = |path: &Argument| Flow::File { path: run.reading.scope.resolve(&path.text).to_string() };
    Stream::from(paths.iter().map(below).collect())
}

fn config(run: &mut Run<'_, '_>, operands: &[Argument], asks: bool, global: bool) {
    if asks {
        return;
    }
    let operands = match operands.first().and_then(Argument::known) {
        Some("set") => operands.get(1..).unwrap_or_default(),
        Some("get" | "list" | "unset") => return,
        _ => operands,
    };
    if let [key, value, ..] = operands {
        // What a name ends in may not be known; what its setting does is told by how it begins.
        let key = key.text.known_start().to_owned();
        setting(run, &key, value);
        let file = if global { "~/.gitconfig" } else { ".git/config" };
        // Names and addresses are daily settings; those that start something are written to be executed later.
        if is_command(&key)
            || key.to_ascii_lowercase().starts_with("alias.")
                && value
                    .known()
                    .is_none_or(|line| line.starts_with('!') || line.contains("-c ") || line.contains("--exec"))
            || key.eq_ignore_ascii_case("core.hookspath")
        {
            run.fact(value.span, Fact::Writes { path: Text::known(file) });
        }
    }
}

/// What is added goes out with the next push. Only secrets are remembered, and files into which this very text put some.
fn stage(run: &mut Run<'_, '_>, words: &super::Words) {
    let everything = words.operands.is_empty() || words.has(&["-A", "--all", "-a"]);
    let folder = Argument::new(Text::known("."), run.span);
    let added = if everything { vec![folder] } else { words.operands.clone() };
    let mut found = Stream::default();
    for path in added {
        let resolved = run.reading.scope.resolve(&path.text);
        found.add(Flow::File { path: resolved.to_string() });
        let Some(known) = path.known() else { continue };
        let key = run.reading.scope.key(known);
        let below = |written: &str| written == key || written.starts_with(&format!("{}/", key.trim_end_matches('/')));
        for (_, stream) in run.reading.scope.files.iter().filter(|(path, _)| below(path)) {
            found.add_all(&stream.flows);
        }
    }
    let surroundings = run.reading.surroundings;
    let is_secret = |flow: &Flow| match flow {
        Flow::File { path } => classify(&Text::known(path.as_str()), surroundings).contains(&PathClass::Secret),
        Flow::Network | Flow::Decoded | Flow::Environment | Flow::Input | Flow::Literal | Flow::Unknown => false,
    };
    let mut staged = Stream::from(std::mem::take(&mut run.reading.scope.notes.staged));
    staged.add_all(found.flows.iter().filter(|flow| is_secret(flow)));
    run.reading.scope.notes.staged = staged.flows;
}
