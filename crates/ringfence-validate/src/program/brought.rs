//! Programs that bring files from other machines under names that stand in their words, and `http` with its items.

use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Contact, Fact, Flow};
use crate::shell::Unpacked;
use crate::stream::{Argument, Stream};
use crate::text::Text;

/// Words among which names of files are looked for.
const MOST_WORDS: usize = 64;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "tftp" | "atftp" | "ncftpget" | "smbget" | "aria2c" | "axel" => fetcher,
        "http" | "https" | "httpie" | "xh" | "xhs" => items,
        "split" | "csplit" => parts,
        "pg_dump" | "pg_dumpall" | "mysqldump" | "mariadb-dump" | "mongodump" => dump,
        _ => return None,
    })
}

/// The parts of a file are as much worth as the whole.
fn parts(run: &mut Run<'_, '_>, name: &str) {
    let words = run.words(&["-b", "-l", "-n", "-a", "-C", "-d", "-t", "-f"], Style::Usual);
    let whole = match words.operands.first() {
        Some(file) if file.known() != Some("-") => run.reads(file),
        _ => run.input.clone(),
    };
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    let stem = match words.operands.get(1) {
        Some(stem) if name == "split" => stem.known().map(str::to_owned),
        _ => Some("x".to_owned()),
    };
    for end in ["*", "aa", "ab", "a*", "?", "??"] {
        if let Some(stem) = &stem {
            run.reading.scope.keep(&format!("{stem}{end}"), Stream::from(whole.flows.clone()));
        }
    }
}

/// All that a database holds, which lies in a folder of the system.
fn dump(run: &mut Run<'_, '_>, name: &str) {
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    let words = run.words(&["-h", "-p", "-U", "-d", "-n", "-t", "-f", "--file", "-u", "-r", "-o"], Style::Usual);
    let place = match name {
        "pg_dump" | "pg_dumpall" => "/var/lib/postgresql",
        "mongodump" => "/var/lib/mongodb",
        _ => "/var/lib/mysql",
    };
    // How its tables look is no secret; the passwords of its users are.
    let bare: &[&str] = match place {
        "/var/lib/mysql" => &["-d", "--no-data", "--help", "--version"],
        _ => &["-s", "--schema-only", "--help", "--version"],
    };
    // `--no-data=0` and `--skip-no-data` take it back.
    let is_bare = |(option, value): &(String, Option<Argument>)| {
        bare.contains(&option.as_str()) && (value.is_none() || !option.starts_with("--"))
    };
    let takes_back = |(option, value): &(String, Option<Argument>)| {
        option.starts_with("--skip-no")
            || option.starts_with("--disable-no")
            || value.is_some() && option.starts_with("--no-d")
    };
    if words.options.iter().any(is_bare) && !words.options.iter().any(takes_back) {
        return;
    }
    let all = Stream::from(vec![Flow::File { path: place.to_owned() }]);
    for file in words.values(&["-f", "--file", "-r", "--result-file", "--archive"]).cloned().collect::<Vec<_>>() {
        run.writes(&file, all.clone());
    }
    run.output = all;
}

fn fetcher(run: &mut Run<'_, '_>, name: &str) {
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    run.brings();
}

impl Run<'_, '_> {
    /// Whatever the words or the lines of the input name may be a file now that comes from another machine.
    pub(super) fn brings(&mut self) {
        let said = self.input.known().unwrap_or_default();
        let words: Vec<String> = self
            .arguments
            .iter()
            .skip(1)
            .filter_map(Argument::known)
            .chain([said])
            .flat_map(|word| word.split(|sign: char| sign.is_whitespace() || ";\"'=,".contains(sign)))
            .filter_map(|word| word.rsplit(['/', ':']).next())
            .filter(|name| name.starts_with(|first: char| first.is_alphanumeric() || "._".contains(first)))
            .filter(|name| !matches!(*name, "." | ".."))
            .map(str::to_owned)
            .take(MOST_WORDS)
            .collect();
        for name in words {
            if self.reading.scope.file(&name).is_none() {
                self.reading.scope.keep(&name, Stream::from(vec![Flow::Network]));
            }
        }
    }
}

/// `http POST HOST name=value file@PATH field=@PATH`: what an item names by `@` is read, and goes along.
fn items(run: &mut Run<'_, '_>, name: &str) {
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    let rest = run.rest();
    let mut sends = Stream::default();
    for item in &rest {
        let start = item.text.known_start();
        // A name and a password before a host are no item.
        if start.contains("://") || start.starts_with('-') {
            continue;
        }
        if let Some(at) = start.find('@')
            && start
                .get(..at)
                .is_some_and(|before| before.chars().all(|sign| sign.is_alphanumeric() || "_-.:=[]".contains(sign)))
        {
            let mut file = super::interpreters::cut(item, at + 1);
            if let Some(known) = file.known() {
                file.text = Text::known(known.split(';').next().unwrap_or(known));
            }
            let read = run.reads(&file);
            sends.add_all(&read.telling());
        }
    }
    if sends.flows.is_empty() {
        return;
    }
    let host = rest.iter().find(|word| {
        let start = word.text.known_start();
        !start.starts_with('-') && !start.bytes().all(|byte| byte.is_ascii_uppercase()) && !start.contains('@')
    });
    let place = host.map(|host| host.text.clone()).unwrap_or_default();
    let span = run.span;
    run.contacts(place, span, Contact::Send, sends.flows);
}

/// Hosts of code that others look at too: what is cloned from there and built is a developer's day.
const FORGES: &[&str] = &[
    "github.com",
    "gitlab.com",
    "bitbucket.org",
    "codeberg.org",
    "sr.ht",
    "kernel.org",
    "gnu.org",
    "googlesource.com",
    "freedesktop.org",
    "gnome.org",
    "debian.org",
    "apache.org",
    "localhost",
    "127.0.0.1",
];

/// What is cloned from an address that nobody knows is like a download once something of it is executed.
pub(super) fn note_clone(run: &mut Run<'_, '_>, operands: &[Argument]) {
    let Some(url) = operands.first().and_then(Argument::known) else { return };
    let rest = url.split_once("://").map(|(_, rest)| rest);
    let Some(host) = rest.and_then(|rest| rest.split('/').next()).map(|host| host.rsplit('@').next().unwrap_or(host))
    else {
        return;
    };
    let host = host.split(':').next().unwrap_or(host);
    let knows = |forge: &&str| host == *forge || host.strip_suffix(*forge).is_some_and(|start| start.ends_with('.'));
    if FORGES.iter().any(knows) {
        return;
    }
    let name = url.trim_end_matches('/').rsplit('/').next().unwrap_or(url);
    let folder = match operands.get(1) {
        Some(folder) => folder.known(),
        None => Some(name.strip_suffix(".git").unwrap_or(name)),
    };
    if let Some(folder) = folder {
        let folder = run.reading.scope.key(folder);
        let unpacked = Unpacked { folder, stem: None, flows: vec![Flow::Network] };
        if let Err(unknown) = run.reading.scope.notes.note_unpacked(unpacked) {
            let span = run.span;
            run.fact(span, Fact::Unknown { unknown });
        }
    }
}

/// `git submodule add [-b BRANCH] URL [FOLDER]`: a clone by another name.
pub(super) fn note_submodule(run: &mut Run<'_, '_>, operands: &[Argument]) {
    let is_address = |word: &&Argument| word.text.known_start().contains([':', '@']);
    let from = operands.iter().position(|word| is_address(&word)).unwrap_or(operands.len());
    let operands = operands.get(from..).unwrap_or_default();
    if let Some(url) = operands.first() {
        run.contacts(url.text.clone(), url.span, Contact::Fetch, crate::stream::telling(&url.flows));
    }
    note_clone(run, operands);
}

/// All that is kept here.
pub(super) fn whole(run: &Run<'_, '_>) -> Stream {
    Stream::from(vec![Flow::File { path: run.reading.scope.resolve(&Text::known(".")).to_string() }])
}

/// Folders that are made to be handed out.
const HANDED_OUT: &[&str] = &[
    "dist",
    "build",
    "out",
    "public",
    "target",
    "site",
    "_site",
    "docs",
    "_build",
    "coverage",
    "reports",
    "report",
    "static",
    "assets",
    "www",
    "html",
    "htmlcov",
    "release",
    "releases",
    "artifacts",
    "pkg",
    "packages",
    "images",
    "media",
    "storybook-static",
    "results",
    "output",
    "bundle",
    "export",
    "deploy",
    "book",
    "tmp",
    "temp",
    "wheelhouse",
    "charts",
    "logs",
];

/// Whether a path is a folder of the project that is not made to be handed out: its sources.
pub(crate) fn is_of_the_sources(path: &str) -> bool {
    let path = path.trim_start_matches("./").trim_end_matches(['/', '*', '.']);
    let mut parts = path.split('/');
    let own = path.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
        && !path.contains([':', '…', '$']);
    own && parts.all(|part| !HANDED_OUT.contains(&part) && part != ".." && !part.contains('.'))
}
/// Whether a text is laid where a service that builds obeys it, and hands all secrets that it keeps to somebody.
pub(crate) fn hands_out_secrets(path: &str, text: &str) -> bool {
    const OBEYED: &[&str] = &[".github/workflows/", ".gitea/workflows/", ".forgejo/workflows/", ".github/actions/"];
    let plain = || text.chars().filter(|sign| !sign.is_whitespace()).collect::<String>().to_ascii_lowercase();
    text.len() <= 64 * 1024
        && OBEYED.iter().any(|folder| path.contains(folder))
        && text.contains("ecrets")
        && plain().contains("tojson(secrets)")
}
