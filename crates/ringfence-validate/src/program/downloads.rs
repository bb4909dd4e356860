//! `curl` and `wget`: what is fetched, what is sent, and where it goes.

use super::options::{Style, Words};
use super::{Handler, Run};
use crate::analysis::{Contact, Flow};
use crate::span::Span;
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "curl" => curl,
        "wget" | "wget2" => wget,
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

/// The lines of a file of settings, as the options that they stand for.
fn settings(text: &str, span: Span) -> Vec<Argument> {
    let mut words = vec![Argument::new("curl".into(), span)];
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (key, value) = line.split_once(['=', ' ', ':']).unwrap_or((line, ""));
        words.push(Argument::new(Text::known(format!("--{}", key.trim().trim_start_matches('-'))), span));
        let value = value.trim().trim_start_matches(['=', ' ']).trim_matches('"');
        if !value.is_empty() {
            words.push(Argument::new(Text::known(value), span));
        }
    }
    words
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
                let read = if value.known() == Some("-") { run.input.clone() } else { run.reads(value) };
                if let Some(text) = read.known() {
                    let words = settings(text, value.span);
                    run.start(words);
                }
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
    // Below this folder the file has the name that the address ends with.
    if let Some(folder) = words.value(&["-P", "--directory-prefix"]).and_then(|word| word.known().map(str::to_owned)) {
        for name in urls.iter().filter_map(|url| url.known()?.rsplit('/').next()) {
            let path = format!("{}/{name}", folder.trim_end_matches('/'));
            run.reading.scope.keep(&path, Stream::from(vec![Flow::Network]));
        }
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
