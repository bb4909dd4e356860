//! What the lines of rules are about, so that few of them have to be read.

use super::matching::{Seen, named};
use crate::analysis::Fact;

/// What a line must name to speak of a fact: as the rules name it.
fn shape_of(fact: &Fact) -> &'static str {
    match fact {
        Fact::Reads { .. } => "reads",
        Fact::Writes { .. } => "writes",
        Fact::Removes { .. } => "removes",
        Fact::Changes { .. } => "changes",
        Fact::Contacts { .. } => "contacts",
        Fact::Executes { .. } => "executes",
        Fact::Imports { .. } => "imports",
        Fact::Calls { .. } => "calls",
        Fact::Privilege { .. } => "privilege",
        Fact::System { .. } => "system",
        Fact::ReadsEnvironment { .. } => "reads-environment",
        Fact::SetsEnvironment { .. } => "sets-environment",
        Fact::Tricks { .. } => "tricks",
        Fact::Leads { does: None, .. } => ARGUMENT,
        // What is done where it leads is held against the rules, and not that it leads there.
        Fact::Leads { does: Some(_), .. } => "leads",
        Fact::Unknown { .. } => "unknown",
    }
}

/// Whether a rule with the shapes in `about` could cover what was seen. What it says no to, `When::covers` says no to.
pub(crate) fn may_speak_of(about: &str, seen: &Seen<'_>) -> bool {
    let mut shapes = about.split(' ');
    match seen.fact {
        Some(fact) => shapes.any(|shape| shape == shape_of(fact)),
        None => shapes.any(|shape| match shape.strip_prefix(COMMAND) {
            Some(programs) => named(programs.split(','), seen.argv.first()),
            None => shape == ARGUMENT && !seen.paths.is_empty(),
        }),
    }
}

/// Before the programs that a command has to be one of.
const COMMAND: &str = "command:";
const ARGUMENT: &str = "argument";

#[cfg(test)]
impl super::matching::When {
    /// What a line that has it must name: see [`may_speak_of`].
    pub(crate) fn shape(&self) -> String {
        let shape = match self {
            Self::Reads(_) => "reads",
            Self::Writes(_) => "writes",
            Self::Removes(_) => "removes",
            Self::Changes(_) => "changes",
            Self::Contacts(_) => "contacts",
            Self::Executes(_) => "executes",
            Self::Imports(_) => "imports",
            Self::Calls(_) => "calls",
            Self::Privilege(_) => "privilege",
            Self::System(_) => "system",
            Self::ReadsEnvironment(_) => "reads-environment",
            Self::SetsEnvironment(_) => "sets-environment",
            Self::Tricks(_) => "tricks",
            Self::Unknown(_) => "unknown",
            Self::Command(command) => {
                assert!(command.program.iter().all(|name| !name.contains(',')), "{command:?}");
                return format!("{COMMAND}{}", command.program.join(","));
            }
            Self::Argument(_) => ARGUMENT,
        };
        shape.to_owned()
    }
}
