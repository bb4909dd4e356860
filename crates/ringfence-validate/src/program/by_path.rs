//! Programs and scripts that are named by a path: what this very text put there is read, or told where it comes from.

use super::Run;
use crate::analysis::{Fact, Flow};
use crate::language::Language;
use crate::path::{PathClass, classify};
use crate::span::Span;
use crate::stream::{Argument, Stream};
use crate::text::{Piece, Text};

/// Programs that give some of the lines that they are given, or all of them in another order.
const FILTERS: &[&str] =
    &["head", "tail", "sort", "uniq", "grep", "egrep", "fgrep", "rg", "shuf", "tac", "tee", "sponge", "cat"];

/// A program's name without its folder, version and ending.
pub(super) fn bare_name(path: &str) -> &str {
    let local = path.contains('/') && !path.starts_with('/') && !path.contains("bin/");
    let name = if local { path } else { path.rsplit('/').next().unwrap_or(path) };
    let name = name.strip_suffix(".exe").unwrap_or(name);
    for known in
        ["python", "pip", "perl", "ruby", "php", "lua", "node", "java", "gcc", "clang", "bash", "tclsh", "wish"]
    {
        if let Some(version) = name.strip_prefix(known)
            && !version.is_empty()
            && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-')
        {
            return known;
        }
    }
    name
}

impl Run<'_, '_> {
    /// What is in a file that is about to be executed, where this text wrote it or unpacked it.
    pub(super) fn put_there(&mut self, path: &str) -> Option<Stream> {
        self.reading.file(path).or_else(|| self.reading.scope.unpacked(path).map(Stream::from))
    }

    /// A program that this very text put there.
    pub(super) fn written_program(&mut self, path: &str, span: Span) {
        if path.contains('/')
            && let Some(stream) = self.put_there(path)
        {
            self.execute(&stream, Language::Shell, span);
        }
    }

    /// A program under another name: this very text copied, moved or linked it there, or the folder that it lies in.
    pub(super) fn copied_program(&mut self, path: &str) {
        // Without a folder it is searched for, and found where the text put it.
        let searched = !path.contains('/');
        if searched && super::is_known(path) && !self.reading.scope.variables.contains_key("PATH") {
            return;
        }
        let places = if searched { self.reading.scope.named_files(path) } else { vec![self.reading.scope.key(path)] };
        for place in places {
            if searched {
                self.written_program(&place, self.span);
            }
            for source in self.reading.scope.copied_from(&place) {
                let mut name = super::bare_name(&source).to_owned();
                if name.contains(['*', '?', '[']) && source.starts_with('/') {
                    self.fact(self.span, Fact::Unknown { unknown: crate::Unknown::Program });
                }
                if !super::is_known(&name) {
                    continue;
                }
                let mut arguments = self.arguments.clone();
                let Some(first) = arguments.first_mut() else { return };
                // These do what the name says that they are called by.
                if matches!(name.as_str(), "busybox" | "toybox" | "coreutils") {
                    let own = path.rsplit('/').next().unwrap_or(path);
                    name = if super::is_known(own) { own.to_owned() } else { name };
                    first.text = Text::known(name);
                } else {
                    first.text = Text::known(source);
                }
                let output = self.start(arguments);
                self.output.then(output);
            }
        }
    }

    /// `tests/*.sh`: any program of that folder. Below the workspace, and told nothing, that is as good as its name; elsewhere it may be a
    /// disguise, and so it may be where something is read that an interpreter would run.
    pub(super) fn program_by_pattern(&mut self, first: &Argument) -> bool {
        let plain =
            |argument: &Argument| argument.known().is_some_and(|word| word.starts_with("--") && !word.contains('='));
        let reads = self.input.text.is_some() || !self.input.texts.is_empty();
        if reads
            || self.input.flows.iter().any(|flow| *flow != Flow::Input)
            || !self.arguments.iter().skip(1).all(plain)
        {
            return false;
        }
        let text = self.reading.scope.resolve(&first.text);
        let own = |class: &PathClass| matches!(class, PathClass::Workspace | PathClass::WholeWorkspace);
        let plain = first.text.pieces().iter().all(|piece| !matches!(piece, Piece::Hole(_)));
        let Some((folder, _)) = first.text.known_start().rsplit_once('/') else { return false };
        if !plain || !first.flows.is_empty() || !classify(&text, self.reading.surroundings).iter().all(own) {
            return false;
        }
        self.fact(first.span, Fact::Executes { from: vec![Flow::File { path: text.to_string() }] });
        // Whatever this text put there may be among them.
        let below = format!("{}/", self.reading.scope.key(folder).trim_end_matches('/'));
        let files = self.reading.scope.files.clone();
        for path in files.keys().filter(|path| path.starts_with(&below)) {
            self.written_program(path, first.span);
        }
        self.written_program(&format!("{below}any"), first.span);
        self.output = Stream::from(vec![Flow::Unknown]);
        true
    }

    /// Names that were found, of which only a pattern is known, are the same names behind a filter.
    pub(super) fn keep_names(&mut self, name: &str) {
        let reads = self.facts.iter().any(|act| matches!(act.fact, Fact::Reads { .. }));
        let found = self.input.text.as_ref().filter(|text| text.has_pattern());
        if let Some(found) = found
            && FILTERS.contains(&name)
            && !reads
            && self.output.text.is_none()
        {
            self.output.text = Some(found.clone());
        }
    }
}
