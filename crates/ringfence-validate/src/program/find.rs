//! `find` and `fd`: expressions that delete, write and start commands.

use super::{Handler, Run};
use crate::analysis::{Fact, Flow, Removal};
use crate::path::{PathClass, classify};
use crate::stream::{Argument, Stream};
use crate::text::{Piece, Text};

/// Names that are asked for, and folders with them, at most.
const MOST_NAMES: usize = 8;
const MOST_HITS: usize = 16;

pub(super) fn handler(name: &str) -> Option<Handler> {
    Some(match name {
        "find" | "gfind" => find,
        "fd" | "fdfind" => fd,
        "locate" | "plocate" | "mlocate" | "slocate" | "mdfind" => locate,
        _ => return None,
    })
}

/// What is found below a folder, as a path.
fn found(folder: &Argument, names: Option<&Argument>) -> Argument {
    let mut text = folder.text.clone();
    if !text.known_end().ends_with('/') {
        text.push(Piece::Known("/".to_owned()));
    }
    match names {
        Some(names) => {
            for piece in names.text.pieces() {
                match piece {
                    Piece::Known(known) if known.contains(['*', '?', '[']) => text.push(Piece::Pattern(known.clone())),
                    other => text.push(other.clone()),
                }
            }
        }
        None => text.push(Piece::Pattern("*".to_owned())),
    }
    Argument { text, span: folder.span, flows: folder.flows.clone() }
}

/// Single files are removed, but all that are found below a home or the whole machine: that is a tree.
fn sweeps(run: &mut Run<'_, '_>, command: &[Argument], folder: &Argument, hit: &Argument) {
    let removes = matches!(
        command.first().and_then(Argument::known).map(super::bare_name),
        Some("rm" | "unlink" | "shred" | "truncate" | "trash" | "trash-put")
    );
    if !removes {
        return;
    }
    let classes = classify(&run.reading.scope.resolve(&folder.text), run.reading.surroundings);
    let has = |class: PathClass| classes.contains(&class);
    if has(PathClass::Workspace) || has(PathClass::WholeWorkspace) || has(PathClass::Temporary) {
        return;
    }
    if has(PathClass::Root) {
        run.removes(&found(folder, None), Removal::Tree);
    } else if has(PathClass::Home) || has(PathClass::WholeHome) {
        run.removes(hit, Removal::Tree);
    }
}

impl Run<'_, '_> {
    /// A name that somebody found below a home, and that is handed on one by one: all of them together are a tree.
    pub(super) fn was_found(&self, argument: &Argument, path: &Text) -> bool {
        if !path.has_pattern() || !argument.flows.contains(&Flow::Unknown) {
            return false;
        }
        let classes = classify(path, self.reading.surroundings);
        let own = |class: &PathClass| {
            matches!(class, PathClass::Workspace | PathClass::WholeWorkspace | PathClass::Temporary)
        };
        let others = |class: &PathClass| matches!(class, PathClass::Home | PathClass::WholeHome | PathClass::Root);
        !classes.iter().any(own) && classes.iter().any(others)
    }
}

fn find(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    let start = rest.iter().take_while(|word| matches!(word.known(), Some("-H" | "-L" | "-P"))).count();
    let count = rest
        .iter()
        .skip(start)
        .take_while(|word| {
            word.known().is_none_or(|word| !word.starts_with('-') && !matches!(word, "(" | "!" | ")" | ","))
        })
        .count();
    let mut folders: Vec<Argument> = rest.iter().skip(start).take(count).cloned().collect();
    if folders.is_empty() {
        folders.push(Argument::new(Text::known("."), run.span));
    }
    let mut names: Vec<Option<&Argument>> = rest
        .iter()
        .zip(rest.iter().skip(1))
        .filter(|(word, _)| matches!(word.known(), Some("-name" | "-iname" | "-path" | "-wholename")))
        .map(|(_, name)| Some(name))
        .take(MOST_NAMES)
        .collect();
    // Names that must not be are not what is found.
    let denies = rest.iter().any(|word| matches!(word.known(), Some("!" | "-not")));
    if names.is_empty() {
        names.push(None);
    } else if denies {
        names.truncate(1);
    }
    let mut output = Stream::default();
    for folder in &folders {
        let path = run.reading.scope.resolve(&folder.text);
        run.fact(folder.span, Fact::Reads { path });
    }
    output.add(Flow::Unknown);
    let hits: Vec<Argument> =
        folders.iter().flat_map(|folder| names.iter().map(|name| found(folder, *name))).take(MOST_HITS).collect();
    let mut hits = hits;
    // A name that only tells together with its folder: below a home it may be that one.
    for folder in &folders {
        let outside = classify(&run.reading.scope.resolve(&folder.text), run.reading.surroundings);
        let own = |class: &PathClass| {
            matches!(class, PathClass::Workspace | PathClass::WholeWorkspace | PathClass::Temporary)
        };
        for name in names.iter().flatten().filter_map(|name| name.known()).filter(|_| !outside.iter().any(own)) {
            let secret = crate::places::secret_called(name).map(|path| Argument::new(Text::known(path), folder.span));
            hits.extend(secret.map(|path| found(folder, Some(&path))));
        }
    }
    let mut at = start + count;
    while let Some(word) = rest.get(at) {
        match word.known() {
            Some("-delete") => {
                for hit in &hits {
                    run.removes(hit, Removal::Tree);
                }
            }
            Some("-fprint" | "-fprintf" | "-fls" | "-fprint0") => {
                if let Some(file) = rest.get(at + 1) {
                    run.writes(file, Stream::from(vec![Flow::Unknown]));
                }
                at += 1;
            }
            Some("-exec" | "-execdir" | "-ok" | "-okdir") => {
                let command: Vec<Argument> = rest
                    .iter()
                    .skip(at + 1)
                    .take_while(|word| !matches!(word.known(), Some(";" | "+")))
                    .cloned()
                    .collect();
                at += command.len() + 1;
                for folder in &folders {
                    let name = names.first().copied().flatten();
                    sweeps(run, &command, folder, &found(folder, name));
                }
                for hit in &hits {
                    let words = super::wrappers::fill(&command, "{}", hit);
                    let written = run.start_with(words, &Stream::default());
                    output.add_all(&written.flows);
                }
            }
            Some("-files0-from" | "-newer" | "-anewer" | "-cnewer" | "-samefile") => at += 1,
            _ => {}
        }
        at += 1;
    }
    // What is found are names: known as far as the pattern says, so that `find … | xargs rm` is seen.
    let mut hits = hits.into_iter().map(|hit| Stream { text: Some(hit.text), ..output.clone() });
    let first = hits.next().unwrap_or_default();
    run.output = hits.fold(first, |mut all, hit| {
        all.or(hit);
        all
    });
}

fn fd(run: &mut Run<'_, '_>, _name: &str) {
    let rest = run.rest();
    let span = run.span;
    let command_at = rest.iter().position(|word| matches!(word.known(), Some("-x" | "-X" | "--exec" | "--exec-batch")));
    let words = rest.get(..command_at.unwrap_or(rest.len())).unwrap_or_default();
    let takes = [
        "-e",
        "--extension",
        "-t",
        "--type",
        "-d",
        "--max-depth",
        "-E",
        "--exclude",
        "-S",
        "--size",
        "-j",
        "--threads",
    ];
    let taken =
        super::words(words, |option| takes.contains(&option).then_some(super::Role::Nothing), super::Style::Usual);
    let operands: Vec<&Argument> = taken.operands.iter().collect();
    let ending = taken.value(&["-e", "--extension"]).and_then(Argument::known);
    let folder = operands.get(1).map_or_else(|| Argument::new(Text::known("."), span), |folder| (*folder).clone());
    let path = run.reading.scope.resolve(&folder.text);
    run.fact(folder.span, Fact::Reads { path });
    // The pattern stands anywhere in the name, unless it is one for globs.
    let name = operands.first().and_then(|name| name.known()).filter(|name| !matches!(*name, "." | "")).map(|name| {
        let plain = name.trim_matches(['^', '$']);
        Argument::new(Text::known(if plain.contains('*') { plain.to_owned() } else { format!("*{plain}*") }), span)
    });
    let ending = ending.map(|ending| Argument::new(Text::known(format!("*.{}", ending.trim_start_matches('.'))), span));
    let hit = found(&folder, name.or(ending).as_ref());
    if let Some(at) = command_at {
        let mut command: Vec<Argument> =
            rest.iter().skip(at + 1).take_while(|word| word.known() != Some(";")).cloned().collect();
        let has_mark = command.iter().any(|word| word.text.to_string().contains("{}"));
        if !has_mark {
            command.push(Argument::new(Text::known("{}"), span));
        }
        sweeps(run, &command, &folder, &hit);
        let words = super::wrappers::fill(&command, "{}", &hit);
        run.start_with(words, &Stream::default());
    }
    run.output = Stream { flows: vec![Flow::Unknown], ..Stream::literal(hit.text) };
}

/// Names from anywhere on the machine.
fn locate(run: &mut Run<'_, '_>, _name: &str) {
    let words = run.words(&["-n", "-l", "-d", "--limit", "--database"], super::Style::Usual);
    let span = run.span;
    let root = Argument::new(Text::known("/"), span);
    let Some(name) = words.operands.first().and_then(Argument::known) else { return };
    let name = name.rsplit('/').next().unwrap_or(name);
    let pattern = if name.contains('*') { name.to_owned() } else { format!("*{name}*") };
    let hit = found(&root, Some(&Argument::new(Text::known(pattern), span)));
    run.output = Stream { flows: vec![Flow::Unknown], ..Stream::literal(hit.text) };
    // Below any folder there is.
    run.output.or(Stream { flows: vec![Flow::Unknown], ..Stream::literal(found(&root, None).text) });
}
