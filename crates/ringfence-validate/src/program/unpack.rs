//! What comes out of archives: where it lies, and that it comes from elsewhere if the archive does.

use super::options::Style;
use super::{Handler, Run};
use crate::analysis::{Fact, Flow};
use crate::path::{PathClass, classify};
use crate::shell::Unpacked;
use crate::stream::{Argument, Stream};
use crate::text::Text;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "unzip" => unzip,
        "7z" | "7za" | "7zr" => seven,
        "unrar" | "unar" => unrar,
        "cpio" | "pax" | "zip" => listed,
        "gunzip" | "bunzip2" | "unxz" | "unzstd" | "unlzma" | "uncompress" | "gzip" | "bzip2" | "xz" | "zstd"
        | "lzma" | "pigz" | "brotli" => single,
        _ => return None,
    })
}

/// Endings of packed files and archives.
const ENDINGS: &[&str] = &[
    ".gz", ".tgz", ".bz2", ".tbz", ".tbz2", ".xz", ".txz", ".zst", ".lzma", ".Z", ".br", ".tar", ".zip", ".7z", ".rar",
];

/// The name of an archive without its endings.
fn stem(path: &str) -> String {
    let mut name = path.rsplit('/').next().unwrap_or(path);
    while let Some(rest) = ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)) {
        name = rest;
    }
    name.to_owned()
}

/// Something was unpacked into a folder: remembered where it comes from elsewhere.
pub(super) fn note(run: &mut Run<'_, '_>, archive: Option<&Argument>, folder: &Argument, contents: &Stream) {
    if !contents.flows.contains(&Flow::Network) {
        return;
    }
    let Some(known) = folder.known() else { return };
    // Where other things lie too, what came out of it has its name, as a rule.
    let place = run.reading.scope.resolve(&folder.text);
    let shared = classify(&place, run.reading.surroundings)
        .iter()
        .any(|class| matches!(class, PathClass::WholeWorkspace | PathClass::WholeHome | PathClass::Root))
        || matches!(place.as_known().map(|path| path.trim_end_matches('/')), Some("/tmp" | "/var/tmp" | "/dev/shm"));
    let stem = archive.filter(|_| shared).and_then(Argument::known).map(stem).filter(|stem| !stem.is_empty());
    let folder = run.reading.scope.key(known);
    let unpacked = Unpacked { folder, stem, flows: contents.flows.clone() };
    if let Err(unknown) = run.reading.scope.notes.note_unpacked(unpacked) {
        let span = run.span;
        run.fact(span, Fact::Unknown { unknown });
    }
}

/// The archive is read, and what is in it lies in the folder.
fn unpack(run: &mut Run<'_, '_>, archive: &Argument, folder: Option<Argument>) {
    let mut contents = run.reads(archive);
    contents.text = None;
    contents.add(Flow::Decoded);
    let folder = match folder {
        Some(folder) => {
            run.writes(&folder, contents.clone());
            folder
        }
        None => Argument::new(Text::known("."), run.span),
    };
    note(run, Some(archive), &folder, &contents);
    run.output = contents;
}

fn unzip(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-d", "-P", "-x"], Style::Usual);
    let Some(archive) = words.operands.first() else { return };
    let lists = words.has(&["-l", "-t", "-v", "-Z", "-p", "-c"]);
    if lists {
        run.output = run.reads(archive);
        run.output.text = None;
        run.output.add(Flow::Decoded);
        return;
    }
    unpack(run, archive, words.value(&["-d"]).cloned());
}

/// `7z x ARCHIVE -oFOLDER`.
fn seven(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    let (options, operands): (Vec<Argument>, Vec<Argument>) =
        rest.into_iter().partition(|word| word.text.known_start().starts_with('-'));
    let folder = options
        .iter()
        .find(|word| word.text.known_start().starts_with("-o"))
        .map(|word| super::interpreters::cut(word, 2));
    match operands.as_slice() {
        [verb, archive, ..] if matches!(verb.known(), Some("x" | "e")) => unpack(run, archive, folder),
        [verb, archive, files @ ..] if matches!(verb.known(), Some("a" | "u")) => {
            let mut contents = Stream::default();
            for file in files {
                let read = run.reads(file);
                contents.then(read);
            }
            contents.text = None;
            run.writes(archive, contents);
        }
        [_, archive, ..] => {
            run.reads(archive);
        }
        _ => {}
    }
}

fn unrar(run: &mut Run<'_, '_>, name: &str) {
    let words = run.words(&["-o", "-p"], Style::Usual);
    let mut operands = words.operands.into_iter();
    if name == "unrar" {
        operands.next();
    }
    let folder = words.options.iter().rfind(|(option, _)| option == "-o").and_then(|(_, value)| value.clone());
    if let Some(archive) = operands.next() {
        unpack(run, &archive, folder.or_else(|| operands.last()));
    }
}

/// Names that are read one to a line, at most.
const MOST_LISTED: usize = 64;

/// Reads the files whose names a list holds, one to a line or to a NUL: what goes into an archive that is told so.
pub(super) fn reads_listed(run: &mut Run<'_, '_>, list: &Stream) -> Stream {
    let mut contents = Stream::default();
    let span = run.span;
    for text in list.text.iter().chain(&list.texts) {
        let names: Vec<Text> = match text.as_known() {
            Some(known) => {
                known.split(['\n', '\0']).filter(|name| !name.is_empty()).take(MOST_LISTED).map(Text::known).collect()
            }
            None => vec![text.clone()],
        };
        for name in names {
            let read = run.reads(&Argument::new(name, span));
            contents.add_all(&read.flows);
        }
    }
    if contents.is_empty() {
        contents.add_all(&list.telling());
    }
    contents
}

/// `cpio -o`, `pax -w` and `zip -@`: archives of what the input names.
fn listed(run: &mut Run<'_, '_>, name: &str) {
    if let Some(entry) = super::book().program(name) {
        run.by_the_book(entry);
    }
    let words = run.words(&["-H", "-R", "-C", "-F", "-O", "-I", "-f", "-x", "-s", "-b", "-o"], Style::Usual);
    let packs = match name {
        "pax" => words.has(&["-w"]) && words.operands.is_empty(),
        "zip" => words.has(&["-@"]),
        _ => words.has(&["-o", "-p", "--create", "--pass-through"]),
    };
    if packs {
        let list = run.input.clone();
        let mut contents = reads_listed(run, &list);
        contents.add_all(&run.output.telling());
        run.output = contents;
    }
}

/// One packed file: beside it lies what was in it.
fn single(run: &mut Run<'_, '_>, name: &str) {
    match (super::texts::handler(name), super::book().program(name)) {
        (Some(handler), _) => handler(run, name),
        (None, Some(entry)) => run.by_the_book(entry),
        (None, None) => {}
    }
    let words = run.words(&["-S", "--suffix", "-o", "--output"], Style::Usual);
    let unpacks =
        name.starts_with("un") || name.contains("unzip") || words.has(&["-d", "--decompress", "--uncompress"]);
    let to_output = words.has(&["-c", "--stdout", "--to-stdout", "-l", "-t", "--list", "--test"]);
    for file in words.operands.iter().filter_map(Argument::known).filter(|_| unpacks && !to_output) {
        let plain = ENDINGS.iter().find_map(|ending| file.strip_suffix(ending));
        if let (Some(plain), Some(mut contents)) = (plain, run.reading.file(file)) {
            contents.text = None;
            contents.add(Flow::Decoded);
            run.reading.scope.keep(plain, contents);
        }
    }
}
