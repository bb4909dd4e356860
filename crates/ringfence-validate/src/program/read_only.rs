//! Commands that only look: so that nobody is asked about them.

use std::sync::OnceLock;

use serde::Deserialize;

use super::bare_name;
use crate::analysis::{Act, Analysis, Does, Fact, Step};
use crate::text::Text;

/// The list, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    programs: Vec<Program>,
    /// Lines that are read-only, for the test.
    #[cfg_attr(not(test), expect(dead_code, reason = "the examples are read by the test alone"))]
    matches: Vec<String>,
    /// Lines that are not.
    #[cfg_attr(not(test), expect(dead_code, reason = "the examples are read by the test alone"))]
    rejects: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Program {
    names: Vec<String>,
    /// Words of which the first operand, or some flag, has to be one.
    #[serde(default)]
    only: Vec<String>,
    /// Words that must not be there.
    #[serde(default)]
    not: Vec<String>,
}

static LIST: OnceLock<Option<List>> = OnceLock::new();

/// A list that cannot be read recognises nothing.
fn list() -> Option<&'static List> {
    LIST.get_or_init(|| serde_saphyr::from_str(include_str!("../../data/read-only.yaml")).ok()).as_ref()
}

/// Whether every command of `analysis` only reads, and nothing about it is unknown.
///
/// Two things have to agree: the list of programs and flags, and the facts that were found. What a rule would call a secret is not
/// looked at here.
pub fn is_read_only(analysis: &Analysis) -> bool {
    let steps = analysis.all_steps();
    !steps.is_empty() && steps.into_iter().all(only_reads)
}

fn only_reads(step: &Step) -> bool {
    let listed = match &step.does {
        // A command that starts others does more than look; those of its substitutions are looked at by themselves.
        Does::Command { argv } => is_listed(argv) && step.inner.iter().all(|inner| inner.does == Does::Group),
        Does::Pipeline | Does::Group => true,
        Does::Code { .. } => false,
    };
    listed && step.facts.iter().all(harmless)
}

fn harmless(act: &Act) -> bool {
    match &act.fact {
        Fact::Reads { .. } => true,
        Fact::Writes { .. }
        | Fact::Removes { .. }
        | Fact::Changes { .. }
        | Fact::Contacts { .. }
        | Fact::Executes { .. }
        | Fact::Imports { .. }
        | Fact::Calls { .. }
        | Fact::Privilege { .. }
        | Fact::System { .. }
        | Fact::ReadsEnvironment { .. }
        | Fact::SetsEnvironment { .. }
        | Fact::Tricks { .. }
        | Fact::Unknown { .. } => false,
    }
}

fn is_listed(argv: &[Text]) -> bool {
    let Some(name) = argv.first().and_then(Text::as_known) else { return false };
    // A program of the workspace is not the one of the system, whatever its name.
    let of_the_system = !name.contains('/')
        || ["/bin/", "/usr/bin/"]
            .iter()
            .any(|folder| name.strip_prefix(folder).is_some_and(|rest| !rest.contains('/')));
    let name = bare_name(name);
    of_the_system
        && list().is_some_and(|list| {
            list.programs
                .iter()
                .filter(|program| program.names.iter().any(|listed| listed == name))
                .any(|program| allows(program, argv.get(1..).unwrap_or_default()))
        })
}

fn allows(program: &Program, words: &[Text]) -> bool {
    // An option that is only known when it runs could be any.
    if words
        .iter()
        .any(|word| word.has_hole() && (word.known_start().is_empty() || word.known_start().starts_with('-')))
        && !program.not.is_empty()
    {
        return false;
    }
    let forbidden = words.iter().any(|word| program.not.iter().any(|flag| is_flag(word.known_start(), flag)));
    !forbidden && (program.only.is_empty() || is_only(program, words))
}

/// The first word that is no option, or one of the flags.
fn is_only(program: &Program, words: &[Text]) -> bool {
    let mut rest = words.iter().map(Text::known_start);
    while let Some(word) = rest.next() {
        if program.only.iter().any(|only| only == word) {
            return true;
        }
        match word {
            "-C" | "--git-dir" | "--work-tree" => {
                rest.next();
            }
            word if word.starts_with('-') => {}
            _ => return false,
        }
    }
    false
}

fn is_flag(word: &str, flag: &str) -> bool {
    if word == flag {
        return true;
    }
    match flag.strip_prefix("--") {
        // Long flags may be shortened, and have a value joined.
        Some(_) => {
            let name = word.split('=').next().unwrap_or(word);
            name == flag || name.len() > 4 && name.starts_with("--") && flag.starts_with(name)
        }
        None => {
            let letter = flag.strip_prefix('-').filter(|letter| letter.len() == 1);
            letter.is_some_and(|letter| word.starts_with('-') && !word.starts_with("--") && word.contains(letter))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Limits, Subject, Surroundings, analyse};

    fn read_only(line: &str) -> bool {
        is_read_only(&analyse(Subject::Shell(line), &Surroundings::default(), &Limits::default()))
    }

    #[test]
    fn the_examples_of_the_list_hold() {
        let list = list().unwrap();
        for line in &list.matches {
            assert!(read_only(line), "{line}");
        }
        for line in &list.rejects {
            assert!(!read_only(line), "{line}");
        }
    }

    #[test]
    fn nothing_at_all_is_not_read_only() {
        assert!(!is_read_only(&Analysis::default()));
    }
}
