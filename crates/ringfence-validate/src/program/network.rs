//! Programs that speak to other machines.

use super::options::{Style, Words};
use super::{Handler, Run};
use crate::analysis::{Contact, Fact, Flow};
use crate::language::Language;
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "curl" => curl,
        "wget" | "wget2" => wget,
        "nc" | "ncat" | "netcat" | "nc.openbsd" | "nc.traditional" | "pwncat" => netcat,
        "socat" => socat,
        "ssh" | "slogin" | "autossh" | "mosh" | "dbclient" | "sshpass" => ssh,
        "scp" | "sftp" | "rcp" => scp,
        "rsync" => rsync,
        _ => return None,
    })
}

const CURL_VALUES: &[&str] = &[
    "-o",
    "--output",
    "-d",
    "--data",
    "--data-raw",
    "--data-binary",
    "--data-urlencode",
    "--data-ascii",
    "--json",
    "-F",
    "--form",
    "--form-string",
    "-T",
    "--upload-file",
    "-H",
    "--header",
    "-X",
    "--request",
    "-u",
    "--user",
    "-A",
    "--user-agent",
    "-e",
    "--referer",
    "-b",
    "--cookie",
    "-c",
    "--cookie-jar",
    "-x",
    "--proxy",
    "-K",
    "--config",
    "-m",
    "--max-time",
    "--connect-timeout",
    "--retry",
    "--retry-delay",
    "-w",
    "--write-out",
    "-E",
    "--cert",
    "--key",
    "--cacert",
    "--capath",
    "--resolve",
    "--unix-socket",
    "--abstract-unix-socket",
    "-D",
    "--dump-header",
    "-r",
    "--range",
    "--interface",
    "--output-dir",
    "--url",
    "-U",
    "--proxy-user",
    "--url-query",
    "-Q",
    "--quote",
    "-y",
    "-Y",
    "-z",
    "-C",
    "--continue-at",
    "--limit-rate",
    "--max-redirs",
    "--create-file-mode",
    "-t",
    "--dns-servers",
    "--doh-url",
    "--socks5",
    "--socks5-hostname",
    "--preproxy",
    "--netrc-file",
    "--stderr",
    "--trace",
    "--trace-ascii",
    "--ciphers",
    "--tls-max",
    "--connect-to",
    "--noproxy",
    "--aws-sigv4",
    "--variable",
    "--expand-url",
    "--expand-data",
];

/// A value of `curl` that may name a file by `@`.
fn payload(run: &mut Run<'_, '_>, value: &Argument, sends: &mut Stream, form: bool) {
    let start = value.text.known_start();
    let at = if form {
        start.find("=@").or_else(|| start.find("=<")).map(|at| at + 2)
    } else {
        start.starts_with('@').then_some(1)
    };
    let at = at.or_else(|| {
        start
            .split_once('@')
            .filter(|(name, _)| name.chars().all(char::is_alphanumeric) && !form && !name.is_empty())
            .map(|(name, _)| name.len() + 1)
            .filter(|_| false)
    });
    match at {
        Some(at) => {
            let mut file = super::interpreters::cut(value, at);
            if let Some(known) = file.known() {
                file.text = Text::known(known.split(';').next().unwrap_or(known));
            }
            let read = if file.known() == Some("-") { run.input.clone() } else { run.reads(&file) };
            sends.add_all(&read.telling());
        }
        None => sends.add_all(&crate::stream::telling(&value.flows)),
    }
}

fn curl(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(CURL_VALUES, Style::Usual);
    let mut sends = Stream::default();
    let mut posts = false;
    for (option, value) in &words.options {
        let Some(value) = value else { continue };
        match option.as_str() {
            "-d" | "--data" | "--data-binary" | "--data-ascii" | "--json" | "--data-urlencode" => {
                posts = true;
                payload(run, value, &mut sends, false);
                if option == "--data-urlencode" {
                    urlencoded(run, value, &mut sends);
                }
            }
            "--data-raw" | "--form-string" => {
                posts = true;
                sends.add_all(&crate::stream::telling(&value.flows));
            }
            "-F" | "--form" => {
                posts = true;
                payload(run, value, &mut sends, true);
            }
            "-T" | "--upload-file" => {
                posts = true;
                let read = if matches!(value.known(), Some("-" | ".")) { run.input.clone() } else { run.reads(value) };
                sends.add_all(&read.telling());
            }
            "-K" | "--config" => {
                run.reads(value);
            }
            "-b" | "--cookie" | "--netrc-file" | "--key" | "-E" | "--cert"
                if !value.text.known_start().contains('=') =>
            {
                run.reads(value);
            }
            "--unix-socket" | "--abstract-unix-socket" => {
                run.contacts(value.text.clone(), value.span, Contact::Connect, Vec::new());
            }
            "-x" | "--proxy" | "--socks5" | "--socks5-hostname" | "--preproxy" | "--doh-url" | "--connect-to" => {
                run.contacts(value.text.clone(), value.span, Contact::Connect, Vec::new());
            }
            "-H" | "--header" | "-A" | "--user-agent" | "-e" | "--referer" | "-u" | "--user" | "--url-query" => {
                // A secret in a header is how one logs in; the contents of a file there are not.
                let told: Vec<Flow> = crate::stream::telling(&value.flows)
                    .into_iter()
                    .filter(|flow| *flow != Flow::Environment || option == "-A" || option == "-e")
                    .collect();
                sends.add_all(&told);
                if value.text.known_start().starts_with('@') {
                    payload(run, value, &mut sends, false);
                }
            }
            "-X" | "--request" => posts |= matches!(value.known(), Some("POST" | "PUT" | "PATCH" | "DELETE")),
            "-c" | "--cookie-jar" | "-D" | "--dump-header" | "--trace" | "--trace-ascii" | "--stderr" => {
                run.writes(value, Stream::from(vec![Flow::Network]));
            }
            _ => {}
        }
    }
    let mut urls: Vec<Argument> = words.operands.clone();
    urls.extend(words.values(&["--url", "--expand-url"]).cloned());
    let download = Stream::from(vec![Flow::Network]);
    let mut read_local = None;
    for url in &urls {
        if let Some(path) = url.text.known_start().strip_prefix("file://") {
            let length = url.text.known_start().len() - path.len();
            let file = super::interpreters::cut(url, length);
            read_local = Some(run.reads(&file));
            continue;
        }
        let mut told = sends.clone();
        told.add_all(&crate::stream::telling(&url.flows));
        let contact = if posts || !told.flows.is_empty() { Contact::Send } else { Contact::Fetch };
        run.contacts(url.text.clone(), url.span, contact, told.flows);
    }
    save(
        run,
        &words,
        &urls,
        &["-o", "--output"],
        words.has(&["-O", "--remote-name", "--remote-name-all"]),
        read_local.unwrap_or(download),
    );
}

fn urlencoded(run: &mut Run<'_, '_>, value: &Argument, sends: &mut Stream) {
    let start = value.text.known_start();
    if let Some(at) = start.find('@')
        && at > 0
        && !start.get(..at).is_some_and(|name| name.contains('='))
    {
        let file = super::interpreters::cut(value, at + 1);
        let read = if file.known() == Some("-") { run.input.clone() } else { run.reads(&file) };
        sends.add_all(&read.telling());
    }
}

/// Where a download goes: into files, or out.
fn save(run: &mut Run<'_, '_>, words: &Words, urls: &[Argument], names: &[&str], by_name: bool, contents: Stream) {
    let files: Vec<Argument> = words.values(names).cloned().collect();
    let to_output = files.iter().any(|file| matches!(file.known(), Some("-" | "/dev/stdout")));
    for file in &files {
        run.writes(file, contents.clone());
    }
    if by_name {
        for url in urls {
            let mut file = url.clone();
            if let Some(known) = url.known() {
                let path = known.split(['?', '#']).next().unwrap_or(known);
                file.text = Text::known(path.rsplit('/').next().unwrap_or(path));
            }
            run.writes(&file, contents.clone());
        }
    }
    if to_output || files.is_empty() && !by_name {
        run.output = contents;
    }
}

fn wget(run: &mut Run<'_, '_>, _name: &str) {
    let takes = [
        "-O",
        "--output-document",
        "-o",
        "--output-file",
        "-a",
        "-P",
        "--directory-prefix",
        "--header",
        "--post-data",
        "--post-file",
        "--body-data",
        "--body-file",
        "--method",
        "-U",
        "--user-agent",
        "--user",
        "--password",
        "-i",
        "--input-file",
        "-t",
        "--tries",
        "-T",
        "--timeout",
        "-e",
        "--execute",
        "--referer",
        "-l",
        "--level",
        "-A",
        "-R",
        "-D",
        "--use-askpass",
        "--ca-certificate",
        "-w",
        "--wait",
        "-Q",
        "--limit-rate",
    ];
    let words = run.words(&takes, Style::Usual);
    let mut sends = Stream::default();
    let mut posts = false;
    for (option, value) in &words.options {
        let Some(value) = value else { continue };
        match option.as_str() {
            "--post-data" | "--body-data" | "--header" | "-U" | "--user-agent" | "--referer" => {
                posts |= option.ends_with("data");
                sends.add_all(&crate::stream::telling(&value.flows));
            }
            "--post-file" | "--body-file" => {
                posts = true;
                let read = run.reads(value);
                sends.add_all(&read.telling());
            }
            "-i" | "--input-file" => {
                run.reads(value);
            }
            "--use-askpass" => {
                run.shell(value);
            }
            "-o" | "--output-file" | "-a" => run.writes(value, Stream::default()),
            _ => {}
        }
    }
    let urls = words.operands.clone();
    for url in &urls {
        let mut told = sends.clone();
        told.add_all(&crate::stream::telling(&url.flows));
        let contact = if posts || !told.flows.is_empty() { Contact::Send } else { Contact::Fetch };
        run.contacts(url.text.clone(), url.span, contact, told.flows);
    }
    let named = words.value(&["-O", "--output-document"]).is_some();
    save(
        run,
        &words,
        &urls,
        &["-O", "--output-document"],
        !named && !words.has(&["--spider"]),
        Stream::from(vec![Flow::Network]),
    );
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
                run.contacts(place, address.span, contact, Vec::new());
            }
        }
    }
    let sends = reads.telling();
    if network && !sends.is_empty() {
        let span = run.span;
        run.contacts(Text::known("socat"), span, Contact::Send, sends);
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

/// Options of ssh that start commands here.
fn ssh_options(run: &mut Run<'_, '_>, words: &Words) {
    for option in words.values(&["-o"]).cloned().collect::<Vec<_>>() {
        let start = option.text.known_start().to_owned();
        let Some((key, _)) = start.split_once(['=', ' ']) else { continue };
        if matches!(
            key.to_ascii_lowercase().as_str(),
            "proxycommand"
                | "localcommand"
                | "knownhostscommand"
                | "proxyusefdpass"
                | "xauthlocation"
                | "securitykeyprovider"
                | "pkcs11provider"
        ) {
            let code = super::interpreters::cut(&option, key.len() + 1);
            run.shell(&code);
        }
    }
    for file in words.values(&["-F"]).cloned().collect::<Vec<_>>() {
        run.reads(&file);
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
        }
    }
    if let Some(target) = target {
        if remote(target) {
            let sends = contents.telling();
            run.contacts(target.text.clone(), target.span, Contact::Send, sends);
        } else {
            run.writes(target, contents);
        }
    }
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
    let _ = Language::Shell;
}
