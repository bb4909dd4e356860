//! Programs about files whose flags change what they do.

use super::options::{Style, Words};
use super::{Handler, Run};
use crate::analysis::{Change, Fact, Flow, Privilege, Removal, SystemAct};
use crate::stream::{Argument, Stream};
use crate::text::{Piece, Text};

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "rm" | "trash" | "srm" | "rimraf" | "del" => rm,
        "shred" | "wipe" | "scrub" => shred,
        "cp" | "gcp" => cp,
        "mv" | "gmv" => mv,
        "ln" | "link" => ln,
        "chmod" => chmod,
        "install" | "ginstall" => install,
        "chown" | "chgrp" => chown,
        "chattr" | "setfacl" | "setfattr" | "attr" => attributes,
        "setcap" => setcap,
        "dd" => dd,
        "tar" | "gtar" | "bsdtar" => tar,
        "mknod" | "mkfifo" => mknod,
        "tee" => tee,
        "history" => history,
        "crontab" => crontab,
        "at" | "batch" => at,
        _ => return None,
    })
}

fn rm(run: &mut Run<'_, '_>, name: &str) {
    let words = run.words(&["--interactive"], Style::Usual);
    let tree = words.has(&["-r", "-R", "--recursive"]) || matches!(name, "rimraf");
    for operand in words.operands {
        run.removes(&operand, if tree { Removal::Tree } else { Removal::One });
    }
}

fn shred(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-n", "-s", "--iterations", "--size", "--random-source", "-p"], Style::Usual);
    for operand in words.operands {
        run.removes(&operand, Removal::Shred);
        if operand.text.known_start().starts_with("/dev/") {
            let span = run.span;
            run.fact(span, Fact::System { act: SystemAct::Disk, about: operand.text });
        }
    }
}

/// Sources and the target of a copy or a move.
fn sources_and_target(words: &Words) -> (Vec<Argument>, Option<Argument>) {
    let mut sources = words.operands.clone();
    match words.value(&["-t", "--target-directory"]) {
        Some(target) => (sources, Some(target.clone())),
        None => {
            let target = if sources.len() > 1 { sources.pop() } else { None };
            (sources, target)
        }
    }
}

fn cp(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-S", "-t", "--target-directory", "--suffix", "--sparse"], Style::Usual);
    let (sources, target) = sources_and_target(&words);
    let read = sources.iter().map(|source| run.reads(source)).collect();
    if let Some(target) = target {
        write_into(run, &target, &sources, read);
    }
}

/// The target, or files of the sources' names within it.
pub(super) fn write_into(run: &mut Run<'_, '_>, target: &Argument, sources: &[Argument], read: Vec<Stream>) {
    let mut contents = Stream::default();
    for (source, read) in sources.iter().zip(read) {
        if let Some(folder) = target.known()
            && let Some(name) = source.known().and_then(|path| path.trim_end_matches('/').rsplit('/').next())
        {
            let inside = format!("{}/{name}", folder.trim_end_matches('/'));
            run.reading.scope.keep(&inside, read.clone());
        }
        contents.then(read);
    }
    run.writes(target, contents);
}

fn mv(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-S", "-t", "--target-directory", "--suffix"], Style::Usual);
    let (sources, target) = sources_and_target(&words);
    let mut read = Vec::new();
    let nowhere = target.as_ref().and_then(Argument::known) == Some("/dev/null");
    for source in &sources {
        run.removes(source, if nowhere { Removal::Tree } else { Removal::One });
        let known = source.known().and_then(|path| run.reading.file(path));
        let path = run.reading.scope.resolve(&source.text).to_string();
        read.push(known.unwrap_or_else(|| Stream::from(vec![Flow::File { path }])));
    }
    if let Some(target) = target {
        write_into(run, &target, &sources, read);
    }
}

fn ln(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-S", "-t", "--target-directory", "--suffix"], Style::Usual);
    let (sources, target) = sources_and_target(&words);
    for source in &sources {
        let to = run.reading.scope.resolve(&source.text);
        let place = target.clone().unwrap_or_else(|| {
            let mut here = source.clone();
            if let Some(known) = source.known() {
                here.text = Text::known(known.rsplit('/').next().unwrap_or(known));
            }
            here
        });
        let path = run.reading.scope.resolve(&place.text);
        if place.known().is_some() && source.known().is_some_and(|source| source.starts_with(['/', '~', '.'])) {
            let (name, to) = (run.reading.scope.key(&path.to_string()), to.to_string());
            if let Err(unknown) = run.reading.scope.notes.note_link(name, to) {
                run.fact(place.span, Fact::Unknown { unknown });
            }
        }
        run.fact(place.span, Fact::Changes { path, change: Change::Link { to } });
        // What is read through the link is what it points at.
        if let Some(name) = place.known() {
            let stream = source
                .known()
                .and_then(|path| run.reading.file(path))
                .unwrap_or_else(|| Stream::from(vec![Flow::File { path: source.text.to_string() }]));
            if let Some(own) = source.known().and_then(|path| path.trim_end_matches('/').rsplit('/').next()) {
                run.reading.scope.keep(&format!("{}/{own}", name.trim_end_matches('/')), stream.clone());
            }
            run.reading.scope.keep(name, stream);
        }
    }
}

fn chmod(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    let tree = rest.iter().filter_map(Argument::known).any(|word| {
        word == "--recursive"
            || word.starts_with('-') && !word.starts_with("--") && word.contains('R') && !word.contains(['r', 'w', 'x'])
    });
    let mut words = rest.into_iter().filter(|word| {
        let start = word.text.known_start();
        // `-x` is a mode, `-R` and `-v` are flags.
        !(start.starts_with("--")
            || start.starts_with('-') && start.len() > 1 && !start.contains(['r', 'w', 'x', 's', 't', 'X']))
    });
    let Some(mode) = words.next() else { return };
    for operand in words {
        let path = run.reading.scope.resolve(&operand.text);
        run.fact(operand.span, Fact::Changes { path, change: Change::Mode { mode: mode.text.clone(), tree } });
    }
    note_user_id(run, &mode);
}

/// A mode that gives the rights of the owner or the group to whoever starts the file.
fn note_user_id(run: &mut Run<'_, '_>, mode: &Argument) {
    let known = mode.known().unwrap_or_default();
    let symbolic = known.split(',').any(|part| {
        part.split_once(['+', '='])
            .is_some_and(|(who, rights)| rights.contains('s') && who.chars().all(|letter| "ugoa".contains(letter)))
    });
    let octal = u32::from_str_radix(known.trim_start_matches(['=', '+']), 8).is_ok_and(|bits| bits & 0o6000 != 0);
    if symbolic || octal {
        run.fact(mode.span, Fact::Privilege { privilege: Privilege::SetUserId });
    }
}

fn install(run: &mut Run<'_, '_>, _name: &str) {
    let takes = [
        "-m",
        "--mode",
        "-o",
        "--owner",
        "-g",
        "--group",
        "-t",
        "--target-directory",
        "-S",
        "--suffix",
        "--strip-program",
    ];
    let words = run.words(&takes, Style::Usual);
    for mode in words.values(&["-m", "--mode"]).cloned().collect::<Vec<_>>() {
        note_user_id(run, &mode);
    }
    for code in words.values(&["--strip-program"]).cloned().collect::<Vec<_>>() {
        run.shell(&code);
    }
    if words.has(&["-d", "--directory"]) {
        for folder in &words.operands {
            run.writes(folder, Stream::default());
        }
        return;
    }
    let (sources, target) = sources_and_target(&words);
    let read = sources.iter().map(|source| run.reads(source)).collect();
    if let Some(target) = target {
        write_into(run, &target, &sources, read);
    }
}

fn chown(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["--reference", "--from"], Style::Usual);
    let tree = words.has(&["-R", "--recursive"]);
    for operand in words.operands.into_iter().skip(1) {
        let path = run.reading.scope.resolve(&operand.text);
        run.fact(operand.span, Fact::Changes { path, change: Change::Owner { tree } });
    }
}

fn attributes(run: &mut Run<'_, '_>, name: &str) {
    let words = run.words(&["-m", "-x", "-M", "-X", "-n", "-v", "-s", "-g", "--modify"], Style::Usual);
    let skip = usize::from(name == "chattr" && !words.operands.is_empty() && words.options.is_empty());
    for operand in words.operands.into_iter().skip(skip) {
        let path = run.reading.scope.resolve(&operand.text);
        run.fact(operand.span, Fact::Changes { path, change: Change::Attributes });
    }
}

fn setcap(run: &mut Run<'_, '_>, _name: &str) {
    let span = run.span;
    run.fact(span, Fact::Privilege { privilege: Privilege::Capabilities });
    for operand in run.words(&[], Style::Usual).operands.into_iter().skip(1) {
        let path = run.reading.scope.resolve(&operand.text);
        run.fact(operand.span, Fact::Changes { path, change: Change::Attributes });
    }
}

fn mknod(run: &mut Run<'_, '_>, name: &str) {
    let words = run.words(&["-m", "--mode"], Style::Usual);
    if name == "mkfifo" || words.operands.get(1).and_then(Argument::known) == Some("p") {
        let count = if name == "mkfifo" { words.operands.len() } else { 1 };
        for pipe in words.operands.iter().take(count.min(8)) {
            run.writes(pipe, Stream::default());
            let key = pipe.known().map(|path| run.reading.scope.key(path));
            run.reading.scope.pipes.extend(key);
        }
        return;
    }
    let device = words.operands.get(1).and_then(Argument::known).is_some_and(|kind| kind == "b" || kind == "c");
    if let Some(file) = words.operands.first() {
        run.writes(file, Stream::default());
    }
    if device {
        run.manages(SystemAct::Disk);
    }
}

/// `key=value` words.
fn dd(run: &mut Run<'_, '_>, _name: &str) {
    let mut contents = run.input.clone();
    let rest = run.rest();
    let value = |key: &str| {
        rest.iter()
            .find(|word| word.text.known_start().starts_with(key))
            .map(|word| super::interpreters::cut(word, key.len()))
    };
    if let Some(file) = value("if=") {
        contents = run.reads(&file);
    }
    match value("of=") {
        Some(file) => {
            let device = file.text.known_start().starts_with("/dev/")
                && !matches!(file.known(), Some("/dev/null" | "/dev/stdout"));
            if device {
                let span = run.span;
                run.fact(span, Fact::System { act: SystemAct::Disk, about: file.text.clone() });
            }
            run.writes(&file, contents);
        }
        None => run.output = contents,
    }
}

fn tee(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["--output-error"], Style::Usual);
    let adds = words.has(&["-a", "--append"]);
    for file in words.operands {
        let mut contents = run.input.clone();
        if adds && let Some(mut whole) = file.known().and_then(|path| run.reading.file(path)) {
            whole.then(contents);
            contents = whole;
        }
        run.writes(&file, contents);
    }
    run.output = run.input.clone();
}

const TAR_VALUES: &[&str] = &[
    "-f",
    "-C",
    "-T",
    "-X",
    "-I",
    "-F",
    "-H",
    "-b",
    "-g",
    "-K",
    "-N",
    "-V",
    "-L",
    "--file",
    "--directory",
    "--files-from",
    "--exclude-from",
    "--use-compress-program",
    "--info-script",
    "--new-volume-script",
    "--to-command",
    "--checkpoint-action",
    "--rsh-command",
    "--rmt-command",
    "--exclude",
    "--transform",
    "--strip-components",
    "--owner",
    "--group",
    "--mode",
    "--format",
    "--xform",
    "-s",
    "--one-top-level",
];

fn tar(run: &mut Run<'_, '_>, _name: &str) {
    let mut rest = run.rest();
    // The old form: `tar czf x`.
    if let Some(first) = rest.first_mut()
        && let Some(known) = first.known()
        && !known.starts_with('-')
        && !known.is_empty()
        && known.bytes().all(|byte| byte.is_ascii_alphabetic())
    {
        first.text = Text::known(format!("-{known}"));
    }
    let words =
        super::words(&rest, |option| TAR_VALUES.contains(&option).then_some(super::Role::Nothing), Style::Usual);
    // Each member is what the command reads.
    for code in words.values(&["--to-command"]).cloned().collect::<Vec<_>>() {
        let outer = std::mem::replace(&mut run.input, Stream::from(vec![Flow::Decoded]));
        run.shell(&code);
        run.input = outer;
    }
    for code in words
        .values(&[
            "--info-script",
            "--new-volume-script",
            "-F",
            "--use-compress-program",
            "-I",
            "--rsh-command",
            "--rmt-command",
        ])
        .cloned()
        .collect::<Vec<_>>()
    {
        run.shell(&code);
    }
    for action in words.values(&["--checkpoint-action"]).cloned().collect::<Vec<_>>() {
        if action.text.known_start().starts_with("exec=") {
            let code = super::interpreters::cut(&action, 5);
            run.shell(&code);
        }
    }
    let file = words.value(&["-f", "--file"]).cloned();
    let remote = file.as_ref().and_then(|file| file.known()).and_then(|file| file.split_once(':'));
    if let (Some((host, _)), Some(file), false) = (remote, &file, words.has(&["--force-local"])) {
        run.contacts(Text::known(host), file.span, crate::Contact::Send, Vec::new());
    }
    if words.has(&["-c", "-r", "-u", "--create", "--append", "--update"]) {
        let mut contents = Stream::default();
        for operand in &words.operands {
            let read = run.reads(operand);
            contents.then(read);
        }
        contents.text = None;
        for list in words.values(&["-T", "--files-from"]).cloned().collect::<Vec<_>>() {
            let list = match list.known() {
                Some("-" | "/dev/stdin") => run.input.clone(),
                _ => run.reads(&list),
            };
            contents.add_all(&super::unpack::reads_listed(run, &list).flows);
        }
        if words.has(&["--remove-files"]) {
            for operand in &words.operands {
                run.removes(operand, Removal::Tree);
            }
        }
        match file {
            Some(file) if file.known() != Some("-") => run.writes(&file, contents),
            _ => run.output = contents,
        }
        return;
    }
    let archive = file.filter(|file| file.known() != Some("-"));
    let mut contents = match &archive {
        Some(file) => run.reads(file),
        None => run.input.clone(),
    };
    contents.text = None;
    contents.add(Flow::Decoded);
    if words.has(&["-x", "--extract", "--get"]) {
        for folder in words.values(&["--one-top-level"]).cloned().collect::<Vec<_>>() {
            run.writes(&folder, contents.clone());
        }
        match words.value(&["-C", "--directory"]) {
            Some(folder) => {
                run.writes(folder, contents.clone());
                super::unpack::note(run, archive.as_ref(), folder, &contents);
            }
            None => {
                let span = run.span;
                let mut here = Argument::new(Text::known("."), span);
                if words.has(&["-P", "--absolute-names"]) {
                    here.text = Text::default();
                    here.text.push(Piece::Known("/".to_owned()));
                }
                run.writes(&here, contents.clone());
                super::unpack::note(run, archive.as_ref(), &here, &contents);
            }
        }
    }
    run.output = contents;
}

fn history(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-d"], Style::Usual);
    if words.has(&["-c", "-d", "-w"]) {
        run.manages(SystemAct::Traces);
    }
    run.output = Stream::from(vec![Flow::File { path: "~/.bash_history".to_owned() }]);
}

fn crontab(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-u"], Style::Usual);
    if words.has(&["-l"]) {
        run.output = Stream::from(vec![Flow::Unknown]);
        return;
    }
    run.manages(SystemAct::Schedule);
    for file in &words.operands {
        if file.known() != Some("-") {
            run.reads(file);
        }
    }
}

/// The input of `at` is a script for later.
fn at(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-f", "-q", "-t"], Style::Usual);
    run.manages(SystemAct::Schedule);
    if words.has(&["-l", "-d", "-c"]) {
        return;
    }
    let span = run.span;
    let script = match words.value(&["-f"]).cloned() {
        Some(file) => run.reads(&file),
        None => run.input.clone(),
    };
    run.execute(&script, crate::Language::Shell, span);
}
