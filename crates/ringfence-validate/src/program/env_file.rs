//! `env $(grep -v '^#' .env | xargs) COMMAND` and `export $(… .env …)`: settings of the project, handed on and not shown. What is in the
//! file means no more than it does to `source .env`.

use super::Run;
use crate::analysis::{Does, Fact, Flow, Step};
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
