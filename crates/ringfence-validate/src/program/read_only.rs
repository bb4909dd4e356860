//! Commands that only look: so that nobody is asked about them.

use std::sync::OnceLock;

use serde::Deserialize;

use super::bare_name;
use crate::analysis::{Analysis, Does, Fact, Step};
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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Program {
    names: Vec<String>,
    /// Words that must not be there.
    not: Vec<String>,
    /// What the words have to begin with, if there is any; each of one word or of several.
    only: Vec<String>,
    /// Options that may stand before that.
    before: Vec<String>,
    /// Likewise, with a value behind them.
    before_value: Vec<String>,
    /// All that may stand behind that.
    words: Option<Vec<String>>,
    /// What every word has to start with.
    starts: Vec<String>,
    /// It only starts another command.
    through: bool,
}

static LIST: OnceLock<Option<List>> = OnceLock::new();

/// A list that cannot be read recognises nothing.
fn list() -> Option<&'static List> {
    LIST.get_or_init(|| serde_saphyr::from_str(include_str!("../../data/read-only.yaml")).ok()).as_ref()
}

/// Whether every command of `analysis` only reads, and nothing about it is unknown.
///
/// Two things have to agree: the list of programs and flags, and the facts that were found. What a rule would call a secret is not
/// looked at here, and neither is what a program does because a file tells it to, such as the settings of a repository.
pub fn is_read_only(analysis: &Analysis) -> bool {
    let steps = analysis.all_steps();
    !steps.is_empty() && steps.into_iter().all(only_reads)
}

fn only_reads(step: &Step) -> bool {
    let listed = match &step.does {
        Does::Command { argv } => is_listed(argv, &step.inner),
        Does::Pipeline | Does::Group => true,
        Does::Code { .. } => false,
    };
    listed && step.facts.iter().all(|act| harmless(&act.fact))
}

fn harmless(fact: &Fact) -> bool {
    match fact {
        Fact::Reads { .. } => true,
        Fact::Leads { does, .. } => does.as_deref().is_none_or(harmless),
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

/// Whether an entry of the list lets a command pass that starts `inner`, each of which is looked at by itself.
fn is_listed(argv: &[Text], inner: &[Step]) -> bool {
    // What is only known when it runs could be any flag, and any text of a language that has commands.
    if argv.iter().any(Text::has_hole) {
        return false;
    }
    let Some(name) = argv.first().and_then(Text::as_known) else { return false };
    // A program of the workspace is not the one of the system, whatever its name.
    let of_the_system = !name.contains('/')
        || ["/bin/", "/usr/bin/"]
            .iter()
            .any(|folder| name.strip_prefix(folder).is_some_and(|rest| !rest.contains('/')));
    let name = bare_name(name);
    // Substitutions are groups; everything else is started by the command itself.
    let starts_others = inner.iter().any(|inner| inner.does != Does::Group);
    of_the_system
        && list().is_some_and(|list| {
            list.programs
                .iter()
                .filter(|program| program.names.iter().any(|listed| listed == name))
                .filter(|program| program.through == starts_others)
                .any(|program| allows(program, argv.get(1..).unwrap_or_default()))
        })
}

fn allows(program: &Program, words: &[Text]) -> bool {
    // A file can have the name of a flag, and a pattern without a beginning takes it.
    let could_be_flag = |word: &Text| word.has_pattern() && word.known_start().is_empty();
    let minds_flags = !program.not.is_empty() || !program.only.is_empty();
    if minds_flags && words.iter().any(could_be_flag) {
        return false;
    }
    let words: Vec<&str> = words.iter().map(Text::known_start).collect();
    let forbidden = words.iter().any(|word| program.not.iter().any(|flag| is_flag(word, flag)));
    let starts = |word: &&str| program.starts.is_empty() || program.starts.iter().any(|start| word.starts_with(start));
    !forbidden && words.iter().all(starts) && begins(program, &words)
}

/// Whether the words begin with one of `only`, and go on with nothing but `words`.
fn begins(program: &Program, words: &[&str]) -> bool {
    if program.only.is_empty() {
        return true;
    }
    let mut rest = words;
    while let [word, behind @ ..] = rest {
        if program.before.iter().any(|option| option == word) {
            rest = behind;
        } else if program.before_value.iter().any(|option| option == word) {
            rest = behind.get(1..).unwrap_or_default();
        } else {
            break;
        }
    }
    program.only.iter().any(|only| {
        let wanted: Vec<&str> = only.split(' ').collect();
        let behind = rest.strip_prefix(wanted.as_slice());
        let is_listed =
            |word: &&str| program.words.as_ref().is_none_or(|words| words.iter().any(|listed| listed == word));
        behind.is_some_and(|behind| behind.iter().all(is_listed))
    })
}

fn is_flag(word: &str, flag: &str) -> bool {
    if word == flag {
        return true;
    }
    match flag.strip_prefix("--") {
        // Long flags may be shortened, and have a value joined.
        Some(_) => {
            let name = word.split('=').next().unwrap_or(word);
            name == flag || name.len() > 2 && name.starts_with("--") && flag.starts_with(name)
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
