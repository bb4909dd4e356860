//! What a request would do, found by reading it; knows no policy.
//!
//! It reads command lines made of plain words. Whatever needs a real shell parser is an *unknown*, and unknown is a fact
//! that the judge must deal with: nothing is guessed.

use ringfence_policy::{NotPlain, split_commands};

use crate::language::Language;
use crate::request::Work;

/// Shells whose `-c` argument is looked into.
const SHELLS: &[&str] = &["sh", "bash", "dash", "ash", "zsh", "ksh"];

/// What a request would do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Analysis {
    /// The programs that it starts, with their arguments.
    pub commands: Vec<Vec<String>>,
    /// A part that could not be read.
    pub unknown: Option<Unknown>,
}

/// Something that was not understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unknown {
    /// A shell line or script that is more than plain words.
    Shell(NotPlain),
    /// Code in a language, whose commands are not looked for.
    Code(Language),
}

/// Reads `work`.
pub fn analyse(work: &Work) -> Analysis {
    match work {
        Work::Argv(argv) => {
            let argv: Vec<String> = argv.iter().map(|argument| argument.to_string_lossy().into_owned()).collect();
            let mut analysis = match shell_line(&argv) {
                Some(line) => analyse_shell(line),
                None => Analysis::default(),
            };
            analysis.commands.insert(0, argv);
            analysis
        }
        Work::Shell(line) => analyse_shell(line),
        Work::Code { language: Language::Bash, source, .. } => match std::str::from_utf8(source) {
            Ok(script) => analyse_shell(script),
            Err(_) => Analysis { commands: Vec::new(), unknown: Some(Unknown::Code(Language::Bash)) },
        },
        Work::Code { language, .. } => Analysis { commands: Vec::new(), unknown: Some(Unknown::Code(*language)) },
        Work::Place => Analysis::default(),
    }
}

fn analyse_shell(line: &str) -> Analysis {
    match split_commands(line) {
        Ok(commands) => Analysis { commands, unknown: None },
        Err(not_plain) => Analysis { commands: Vec::new(), unknown: Some(Unknown::Shell(not_plain)) },
    }
}

/// The line in `sh -c LINE`, also with joined options such as `-ec`.
fn shell_line(argv: &[String]) -> Option<&str> {
    let (program, arguments) = argv.split_first()?;
    let name = program.rsplit('/').next()?;
    if !SHELLS.contains(&name) {
        return None;
    }
    let option = arguments
        .iter()
        .position(|argument| argument.starts_with('-') && !argument.starts_with("--") && argument.ends_with('c'))?;
    arguments.get(option + 1).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn commands(work: &Work) -> Vec<String> {
        analyse(work).commands.iter().map(|argv| argv.join(" ")).collect()
    }

    #[test]
    fn a_plain_line_gives_its_commands_and_a_shell_is_looked_into() {
        assert_eq!(commands(&Work::Shell("make && rm -rf build".to_owned())), ["make", "rm -rf build"]);
        let wrapped = Work::Argv(["/bin/bash", "-ec", "rm -rf /"].map(Into::into).to_vec());
        assert_eq!(commands(&wrapped), ["/bin/bash -ec rm -rf /", "rm -rf /"]);
    }

    #[test]
    fn what_needs_a_parser_is_unknown_and_never_guessed() {
        for line in ["echo $(rm -rf /)", "cat${IFS}/etc/shadow", "`id`", "eval x; rm > /y"] {
            assert!(matches!(analyse(&Work::Shell(line.to_owned())).unknown, Some(Unknown::Shell(_))), "{line}");
        }
        let code = Work::Code { language: Language::Python, source: b"1".to_vec(), name: None };
        assert_eq!(analyse(&code).unknown, Some(Unknown::Code(Language::Python)));
    }

    proptest! {
        #[test]
        fn any_line_is_read_without_a_panic(line in ".*") {
            analyse(&Work::Shell(line.clone()));
            analyse(&Work::Argv(vec!["sh".into(), "-c".into(), line.into()]));
        }
    }
}
