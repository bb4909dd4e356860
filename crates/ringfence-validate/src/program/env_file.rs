//! `env $(grep -v '^#' .env | xargs) COMMAND` and `export $(… .env …)`: settings of the project, handed on and not shown. What is in the
//! file means no more than it does to `source .env`.

use super::Run;
use crate::analysis::{Act, Does, Fact, Flow, Step};
use crate::path::{PathClass, classify};
use crate::reading::Reading;
use crate::stream::Argument;
use crate::text::{Piece, Text};

/// Programs that pass on what they read, and show nothing where their output is taken.
const PASSES_ON: &[&str] = &["grep", "egrep", "cat", "sed", "xargs", "cut", "tr"];

/// Whether a word is nothing but what stands in files of settings that the project keeps, and that this text did not write.
fn is_settings(reading: &Reading<'_>, word: &Argument) -> bool {
    let only_output = matches!(word.text.pieces(), [Piece::Hole(_)]);
    let is_kept = |flow: &Flow| match flow {
        Flow::File { path } => {
            let name = path.rsplit('/').next().unwrap_or(path);
            let place = reading.scope.resolve(&Text::known(path.as_str()));
            (name.starts_with(".env") || name.ends_with(".env"))
                && reading.scope.file(path).is_none()
                && reading.scope.unpacked(path).is_none()
                && classify(&place, reading.surroundings).contains(&PathClass::Workspace)
        }
        _ => false,
    };
    only_output && !word.flows.is_empty() && word.flows.iter().all(is_kept)
}

/// Takes out of the steps within a command what they read of such files, where the command does nothing but set it.
pub(crate) fn unshown(reading: &Reading<'_>, arguments: &[Argument], inner: &mut [Step]) {
    let Some((name, rest)) = arguments.split_first() else { return };
    let is_set = match name.known() {
        Some("export") => rest.iter().all(|word| is_settings(reading, word)) && !rest.is_empty(),
        // Without a command it shows them all.
        Some("env") => {
            let first = rest.iter().position(|word| word.known().is_none());
            let settings = first.and_then(|at| rest.get(at));
            let behind = first.and_then(|at| rest.get(at + 1)).and_then(Argument::known);
            settings.is_some_and(|word| is_settings(reading, word))
                && behind.is_some_and(|command| !matches!(super::bare_name(command), "env" | "printenv"))
        }
        _ => false,
    };
    if is_set {
        let files: Vec<String> = rest
            .iter()
            .flat_map(|word| &word.flows)
            .filter_map(|flow| if let Flow::File { path } = flow { Some(path.clone()) } else { None })
            .collect();
        forget(inner, &files);
    }
}

/// Takes out that a command reads the project's settings, where it shows nothing but their names.
pub(super) fn show_names(reading: &Reading<'_>, argv: &[Text], facts: &mut Vec<Act>) {
    let is_settings = |act: &Act| match &act.fact {
        Fact::Reads { path } => {
            let known = path.as_known().unwrap_or_default();
            let name = known.rsplit('/').next().unwrap_or(known);
            (name.starts_with(".env") || name.ends_with(".env"))
                && classify(path, reading.surroundings).contains(&PathClass::Workspace)
        }
        _ => false,
    };
    if facts.iter().any(is_settings) && argv.iter().map(Text::as_known).collect::<Option<Vec<_>>>().is_some_and(names) {
        facts.retain(|act| !is_settings(act));
    }
}

/// Whether a command writes nothing of a line but what stands before its `=`.
fn names(words: Vec<&str>) -> bool {
    let Some((program, rest)) = words.split_first() else { return false };
    let operands: Vec<&str> = rest.iter().copied().filter(|word| !word.starts_with('-')).collect();
    let options: Vec<&str> = rest.iter().copied().filter(|word| word.starts_with('-')).collect();
    let only = |list: &[&str]| options.iter().all(|option| list.contains(option));
    match super::bare_name(program) {
        "grep" | "egrep" => {
            only(&["-o", "-oE", "-Eo", "-E", "-oh", "-ohE", "-oEh", "-h", "--only-matching"])
                && options.iter().any(|option| option.contains('o'))
                && operands.first().is_some_and(|pattern| is_of_a_name(pattern))
        }
        "cut" => matches!(
            rest,
            ["-d=", "-f1", _]
                | ["-d", "=", "-f1", _]
                | ["-d", "=", "-f", "1", _]
                | ["-f1", "-d=", _]
                | ["-s", "-d=", "-f1", _]
                | ["-d=", "-f1", "-s", _]
                | ["--delimiter==", "--fields=1", _]
        ),
        "awk" | "gawk" | "mawk" => {
            let script = match rest {
                ["-F=", script, _] | ["-F", "=", script, _] => script.replace(' ', ""),
                _ => return false,
            };
            let before = script.strip_suffix("{print$1}");
            before.is_some_and(|before| !before.contains(['{', '}', ';', '|', '>', '"', '(', ',']))
        }
        "sed" => match (only(&["-E", "-r"]), operands.as_slice()) {
            (true, [script, _]) => script
                .strip_prefix("s/=.*/")
                .or_else(|| script.strip_prefix("s/=.*$/"))
                .and_then(|rest| rest.strip_suffix('/'))
                .is_some_and(|put| !put.contains(['/', '&', '\\', ';', '\n'])),
            _ => false,
        },
        _ => false,
    }
}

/// `^[A-Z_]+`, `^[^=]*` and their kin: what a pattern finds ends before the `=`.
fn is_of_a_name(pattern: &str) -> bool {
    let Some(rest) = pattern.strip_prefix('^') else { return false };
    let rest = rest.strip_suffix('=').unwrap_or(rest).trim_end_matches(['+', '*']).trim_end_matches('\\');
    let Some(class) = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else { return false };
    match class.strip_prefix('^') {
        Some(stops) => stops.contains('=') && stops.chars().all(|letter| "=# ".contains(letter)),
        None => class.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-".contains(letter)),
    }
}

fn forget(steps: &mut [Step], files: &[String]) {
    for step in steps {
        forget(&mut step.inner, files);
        let passes_on = matches!(&step.does, Does::Command { argv }
            if argv.first().and_then(Text::as_known).is_some_and(|name| PASSES_ON.contains(&name)));
        if passes_on {
            let told = |fact: &Fact| matches!(fact, Fact::Reads { path } if files.contains(&path.to_string()));
            step.facts.retain(|act| !told(&act.fact));
        }
    }
}

impl Run<'_, '_> {
    /// The words behind settings that come out of such a file.
    pub(super) fn behind_settings(&self, words: Vec<Argument>) -> Vec<Argument> {
        let count = words.iter().take_while(|word| is_settings(self.reading, word)).count();
        // Something has to be started; what stands alone may be a command.
        if count < words.len() { words.into_iter().skip(count).collect() } else { words }
    }
}
