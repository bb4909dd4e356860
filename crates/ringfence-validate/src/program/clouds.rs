//! Clients of clouds and of places where packages and notes are published: what they take along, and what they destroy there.

use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Contact, Flow};
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "aws" | "gcloud" | "gsutil" | "az" | "s3cmd" | "rclone" | "mc" | "b2" | "azcopy" | "s5cmd" | "ossutil"
        | "coscmd" | "bq" => client,
        "gh" | "glab" => forge,
        _ => return None,
    })
}

/// Options whose value is a file that goes along.
const FILES: &[&str] = &[
    "--file",
    "-f",
    "--body",
    "--source",
    "-s",
    "--zip-file",
    "--template-body",
    "--cli-input-json",
    "--payload",
    "--data-file",
    "--secret-string",
    "--key-file",
    "--user-data",
    "--content-file",
];

/// Verbs after which the operands are sources, and a target behind them.
const COPIES: &[&str] = &[
    "cp",
    "mv",
    "sync",
    "put",
    "copy",
    "move",
    "upload",
    "upload-file",
    "copyto",
    "moveto",
    "rsync",
    "mirror",
    "load",
    "put-object",
    "upload-batch",
    "create",
    "upload-file-multi",
];

/// Whether a word names something in the cloud.
fn is_remote(word: &Argument) -> bool {
    let start = word.text.known_start();
    start.contains("://") || start.split('/').next().is_some_and(|first| first.ends_with(':') || first.contains(':'))
}

fn client(run: &mut Run<'_, '_>, _name: &str) {
    let takes: Vec<&str> = FILES
        .iter()
        .copied()
        .chain([
            "--profile",
            "--region",
            "--query",
            "--output",
            "--project",
            "--account-name",
            "--container-name",
            "-c",
            "-n",
            "--name",
            "--bucket",
            "--key",
            "--endpoint-url",
            "--acl",
            "-g",
        ])
        .collect();
    let words = run.words(&takes, Style::Usual);
    let mut sends = Stream::from(run.sent());
    for file in words.values(FILES).cloned().collect::<Vec<_>>() {
        let start = file.text.known_start();
        let path = ["fileb://", "file://", "@"]
            .iter()
            .find(|prefix| start.starts_with(*prefix))
            .map_or(0, |prefix| prefix.len());
        if start.contains("://") && path == 0 {
            continue;
        }
        let read = run.reads(&super::interpreters::cut(&file, path));
        sends.add_all(&read.flows);
    }
    let copies = words.operands.iter().position(|word| word.known().is_some_and(|word| COPIES.contains(&word)));
    let mut fetches = Contact::Fetch;
    if let Some(at) = copies {
        let places: Vec<Argument> = words.operands.into_iter().skip(at + 1).collect();
        if let Some((target, sources)) = places.split_last() {
            for source in sources.iter().filter(|word| !is_remote(word)).cloned().collect::<Vec<_>>() {
                let read = run.reads(&source);
                sends.add_all(&read.flows);
            }
            if is_remote(target) {
                fetches = Contact::Send;
            } else if !sources.is_empty() {
                run.writes(target, Stream::from(vec![Flow::Network]));
                run.brings();
            }
        }
    }
    let contact = if sends.flows.is_empty() { fetches } else { Contact::Send };
    let span = run.span;
    run.contacts(Text::known("cloud"), span, contact, sends.telling());
    run.output = Stream::from(vec![Flow::Network]);
}

/// `gh gist create FILE`, `gh release upload TAG FILE`, `gh api --input FILE`.
fn forge(run: &mut Run<'_, '_>, name: &str) {
    let words = run.words(
        &[
            "-R",
            "--repo",
            "-t",
            "--title",
            "-b",
            "--body",
            "-X",
            "--method",
            "-f",
            "-F",
            "-H",
            "--input",
            "-d",
            "--desc",
            "--body-file",
            "--notes-file",
            "--filename",
        ],
        Style::Usual,
    );
    let mut sends = Stream::from(run.sent());
    let verbs: Vec<&str> = words.operands.iter().filter_map(Argument::known).take(2).collect();
    let files: Vec<Argument> = match verbs.as_slice() {
        ["gist" | "snippet", "create"] => words.operands.iter().skip(2).cloned().collect(),
        ["release", "upload" | "create"] => words.operands.iter().skip(3).cloned().collect(),
        _ => Vec::new(),
    };
    let given = words.values(&["--input", "--body-file", "--notes-file"]).cloned();
    let fields = words.values(&["-F", "-f"]).filter_map(|field| {
        let start = field.text.known_start();
        let at = start.find("=@")?;
        Some(super::interpreters::cut(field, at + 2))
    });
    for file in files.into_iter().chain(given).chain(fields).collect::<Vec<_>>() {
        if file.known() != Some("-") {
            let read = run.reads(&file);
            sends.add_all(&read.flows);
        }
    }
    if verbs.contains(&"download") {
        run.brings();
    }
    let span = run.span;
    let host = if name == "gh" { "github.com" } else { "gitlab.com" };
    run.contacts(Text::known(host), span, Contact::Send, sends.telling());
    run.output = Stream::from(vec![Flow::Network]);
}
