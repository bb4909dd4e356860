//! Programs that bring files from other machines under names that stand in their words, and `http` with its items.

use super::{Handler, Run};
use crate::analysis::{Contact, Flow};
use crate::stream::{Argument, Stream};
use crate::text::Text;

/// Words among which names of files are looked for.
const MOST_WORDS: usize = 64;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "tftp" | "atftp" | "ncftpget" | "smbget" | "aria2c" | "axel" => fetcher,
        "http" | "https" | "httpie" | "xh" | "xhs" => items,
        _ => return None,
    })
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
