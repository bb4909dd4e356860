//! Programs that speak to other machines; those that download stand in [`super::downloads`].

use super::options::{Style, Words};
use super::{Handler, Run};
use crate::analysis::{Contact, Fact, Flow};
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "nc" | "ncat" | "netcat" | "nc.openbsd" | "nc.traditional" | "pwncat" => netcat,
        "socat" => socat,
        "ssh" | "slogin" | "autossh" | "mosh" | "dbclient" | "sshpass" => ssh,
        "scp" | "sftp" | "rcp" => scp,
        "rsync" => rsync,
        _ => return None,
    })
}

fn netcat(run: &mut Run<'_, '_>, _name: &str) {
    let takes = [
        "-e",
        "-c",
        "--exec",
        "--sh-exec",
        "--lua-exec",
        "-p",
        "-s",
        "-w",
        "-i",
        "-q",
        "-X",
        "-x",
        "-I",
        "-O",
        "-T",
        "-P",
        "-g",
        "-G",
        "-m",
        "--proxy",
        "--allow",
    ];
    let words = run.words(&takes, Style::Usual);
    let listens = words.has(&["-l", "--listen"]);
    let place = match words.operands.as_slice() {
        [host, port, ..] => {
            let mut place = host.text.clone();
            place.append(Text::known(":"));
            place.append(port.text.clone());
            place
        }
        [host] => host.text.clone(),
        [] => words.value(&["-p"]).map(|port| port.text.clone()).unwrap_or_default(),
    };
    let span = run.span;
    let scans = words.has(&["-z"]);
    let sends = run.sent();
    let contact = if listens {
        Contact::Listen
    } else if scans {
        Contact::Probe
    } else {
        Contact::Connect
    };
    run.contacts(place, span, contact, sends);
    let network = Stream::from(vec![Flow::Network]);
    for (option, value) in &words.options {
        let Some(value) = value else { continue };
        match option.as_str() {
            "-e" | "-c" | "--exec" | "--sh-exec" => {
                let outer = std::mem::replace(&mut run.input, network.clone());
                run.shell(value);
                run.input = outer;
            }
            "--lua-exec" => run.fact(value.span, Fact::Unknown { unknown: crate::Unknown::Language }),
            _ => {}
        }
    }
    run.output = network;
}

/// Addresses of socat: `TCP:host:port`, `EXEC:cmd`, `FILE:…`.
fn socat(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-b", "-t", "-T", "-lf", "-L", "-W", "-r", "-R"], Style::LongWords);
    let mut runs = Vec::new();
    let mut reads = Stream::default();
    let mut network = false;
    let mut target = None;
    for address in &words.operands {
        let start = address.text.known_start();
        let Some((kind, rest)) = start.split_once(':') else {
            if matches!(start, "-" | "STDIN" | "STDIO" | "stdio") {
                let input = run.input.clone();
                reads.then(input);
            }
            continue;
        };
        let value = super::interpreters::cut(address, kind.len() + 1);
        let upper = kind.to_ascii_uppercase();
        match upper.as_str() {
            "EXEC" | "SYSTEM" | "SHELL" => {
                let mut code = value.clone();
                if let Some(known) = value.known() {
                    code.text = Text::known(
                        known.split(",pty").next().unwrap_or(known).split(",stderr").next().unwrap_or(known),
                    );
                }
                runs.push(code);
            }
            "OPEN" | "FILE" | "GOPEN" | "CREATE" => {
                let mut file = value.clone();
                file.text = Text::known(rest.split(',').next().unwrap_or(rest));
                let read = run.reads(&file);
                reads.then(read);
                if upper == "CREATE" {
                    run.writes(&file, Stream::from(vec![Flow::Network]));
                }
            }
            _ => {
                network = true;
                let listens = upper.contains("LISTEN") || upper.contains("RECV");
                let contact = if listens { Contact::Listen } else { Contact::Connect };
                let place = if value.known().is_some() {
                    Text::known(rest.split(',').next().unwrap_or(rest))
                } else {
                    value.text
                };
                target = Some((place.clone(), contact));
                run.contacts(place, address.span, contact, Vec::new());
            }
        }
    }
    let sends = reads.telling();
    if let Some((place, contact)) = target.filter(|_| !sends.is_empty()) {
        let span = run.span;
        run.contacts(place, span, contact, sends);
    }
    for code in runs {
        let input = if network { Stream::from(vec![Flow::Network]) } else { run.input.clone() };
        let outer = std::mem::replace(&mut run.input, input);
        run.shell(&code);
        run.input = outer;
    }
    if network {
        run.output = Stream::from(vec![Flow::Network]);
    }
}

fn ssh(run: &mut Run<'_, '_>, name: &str) {
    if name == "sshpass" {
        let words = run.words(&["-p", "-f", "-d", "-P"], Style::Leading);
        run.output = run.start(words.operands);
        return;
    }
    let takes = [
        "-b", "-c", "-D", "-E", "-e", "-F", "-I", "-i", "-J", "-L", "-l", "-m", "-O", "-o", "-p", "-Q", "-R", "-S",
        "-W", "-w", "-B", "-M",
    ];
    let words = run.words(&takes, Style::Leading);
    ssh_options(run, &words);
    let mut operands = words.operands.into_iter();
    let Some(host) = operands.next() else { return };
    let rest: Vec<Argument> = operands.collect();
    // Options may follow the host as well.
    let more = super::words(&rest, |option| takes.contains(&option).then_some(super::Role::Nothing), Style::Leading);
    ssh_options(run, &more);
    let mut sends = Stream::from(run.input.telling());
    for word in &more.operands {
        sends.add_all(&crate::stream::telling(&word.flows));
    }
    run.contacts(host.text.clone(), host.span, Contact::Shell, sends.flows);
    if let Some(line) = super::wrappers::join(&more.operands) {
        // It runs there, not here: its files are not ours, yet what it does is said.
        let outer = run.reading.scope.clone();
        run.shell(&line);
        run.reading.scope = outer;
    }
    run.output = Stream::from(vec![Flow::Network]);
}

/// Settings of ssh whose value it starts.
fn starts_a_command(key: &str) -> bool {
    matches!(
        key.to_ascii_lowercase().as_str(),
        "proxycommand"
            | "localcommand"
            | "knownhostscommand"
            | "proxyusefdpass"
            | "xauthlocation"
            | "securitykeyprovider"
            | "pkcs11provider"
    )
}

/// Options of ssh that start commands here.
fn ssh_options(run: &mut Run<'_, '_>, words: &Words) {
    for option in words.values(&["-o"]).cloned().collect::<Vec<_>>() {
        let start = option.text.known_start().to_owned();
        let Some((key, _)) = start.split_once(['=', ' ']) else { continue };
        if starts_a_command(key) {
            let code = super::interpreters::cut(&option, key.len() + 1);
            run.shell(&code);
        }
    }
    for file in words.values(&["-F"]).cloned().collect::<Vec<_>>() {
        let read = run.reads(&file);
        for line in read.known().unwrap_or_default().lines() {
            let line = line.trim_start();
            let Some((key, value)) = line.split_once(['=', ' ', '\t']) else { continue };
            if starts_a_command(key) {
                run.shell(&Argument::new(Text::known(value.trim_start_matches(['=', ' '])), file.span));
            }
        }
    }
    for jump in words.values(&["-J", "-W"]).cloned().collect::<Vec<_>>() {
        run.contacts(jump.text.clone(), jump.span, Contact::Connect, Vec::new());
    }
    for forward in words.values(&["-R"]).cloned().collect::<Vec<_>>() {
        run.contacts(forward.text.clone(), forward.span, Contact::Listen, Vec::new());
    }
}

/// Whether a word names a file on another machine.
fn remote(word: &Argument) -> bool {
    let start = word.text.known_start();
    match start.find(':') {
        Some(at) => !start.get(..at).is_some_and(|host| host.contains('/')) || start.starts_with("rsync://"),
        None => false,
    }
}

fn copies(run: &mut Run<'_, '_>, words: &Words) {
    let (sources, target) = match words.operands.split_last() {
        Some((target, sources)) if !sources.is_empty() => (sources, Some(target)),
        _ => (words.operands.as_slice(), None),
    };
    let mut contents = Stream::default();
    for source in sources {
        if remote(source) {
            run.contacts(source.text.clone(), source.span, Contact::Fetch, Vec::new());
            contents.add(Flow::Network);
        } else {
            let read = run.reads(source);
            contents.add_all(&read.flows);
            let deep = |option: &str| !option.starts_with("--") && option.contains(['r', 'a', 'R']);
            let is_tree = words
                .options
                .iter()
                .any(|(option, _)| deep(option) || matches!(option.as_str(), "--recursive" | "--archive"));
            let goes_out = target.is_some_and(remote);
            if goes_out && is_tree && source.known().is_some_and(super::brought::is_of_the_sources) {
                let all = super::brought::whole(run);
                contents.add_all(&all.flows);
            }
        }
    }
    if let Some(target) = target.filter(|target| !remote(target)) {
        target_here(run, sources, target, contents);
    } else if let Some(target) = target {
        let sends = contents.telling();
        run.contacts(target.text.clone(), target.span, Contact::Send, sends);
    }
}

fn target_here(run: &mut Run<'_, '_>, sources: &[Argument], target: &Argument, contents: Stream) {
    // The target may be a folder: the file in it has its own name.
    if let Some(folder) = target.known() {
        for name in sources.iter().filter_map(|source| source.known()?.rsplit(['/', ':']).next()) {
            let path = format!("{}/{name}", folder.trim_end_matches('/'));
            run.reading.scope.keep(&path, contents.clone());
        }
    }
    run.writes(target, contents);
}

fn scp(run: &mut Run<'_, '_>, name: &str) {
    let takes = ["-c", "-F", "-i", "-J", "-l", "-o", "-P", "-S", "-D", "-X", "-b", "-B", "-R", "-s"];
    let words = run.words(&takes, Style::Usual);
    ssh_options(run, &words);
    for code in words.values(&["-S"]).cloned().collect::<Vec<_>>() {
        run.shell(&code);
    }
    if name == "sftp" {
        for host in &words.operands {
            run.contacts(host.text.clone(), host.span, Contact::Send, run.input.telling());
        }
        run.brings();
        return;
    }
    copies(run, &words);
}

fn rsync(run: &mut Run<'_, '_>, _name: &str) {
    let takes = [
        "-e",
        "--rsh",
        "--rsync-path",
        "--exclude",
        "--include",
        "--exclude-from",
        "--include-from",
        "--files-from",
        "-f",
        "--filter",
        "--password-file",
        "--bwlimit",
        "--port",
        "--log-file",
        "--partial-dir",
        "--link-dest",
        "--compare-dest",
        "--backup-dir",
        "--chmod",
        "--chown",
        "-T",
        "-B",
        "--max-size",
        "--min-size",
        "--timeout",
    ];
    let words = run.words(&takes, Style::Usual);
    for code in words.values(&["-e", "--rsh", "--rsync-path"]).cloned().collect::<Vec<_>>() {
        // A plain `ssh` with flags names no host yet.
        if code.known().is_none_or(|known| known.split_whitespace().next() != Some("ssh") || known.contains("Command"))
        {
            run.shell(&code);
        }
    }
    if words.has(&["-n", "--dry-run"]) {
        // It is only told what would be sent.
        for there in words.operands.iter().filter(|operand| remote(operand)) {
            run.contacts(there.text.clone(), there.span, Contact::Connect, Vec::new());
        }
        return;
    }
    copies(run, &words);
    if words.options.iter().any(|(option, _)| option.starts_with("--delete"))
        && let Some(target) = words.operands.last().filter(|target| !remote(target)).cloned()
    {
        run.removes(&target, crate::Removal::Tree);
    }
    if words.has(&["--remove-source-files"]) {
        for source in words.operands.iter().rev().skip(1).filter(|source| !remote(source)).cloned().collect::<Vec<_>>()
        {
            run.removes(&source, crate::Removal::Tree);
        }
    }
}
