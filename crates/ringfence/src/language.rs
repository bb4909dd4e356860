//! The languages in which code can be given, and the interpreters that run them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A language of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Bash, or `sh` where there is none.
    Bash,
    /// Python 3.
    Python,
    /// JavaScript on Node, Deno or Bun.
    Javascript,
    /// TypeScript on Deno, Bun, or a Node that strips types.
    Typescript,
}

/// A text that names no language.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a language that can be run; write bash, python, javascript or typescript")]
pub struct UnknownLanguage(String);

/// A program that runs files of a language, with the arguments that go before the file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interpreter {
    /// The name to look for on `PATH`.
    pub program: &'static str,
    /// What goes before the file.
    pub arguments: &'static [&'static str],
}

/// An interpreter that a request names: one that is known to run files of the language, in any version and at any place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedInterpreter {
    program: String,
    arguments: &'static [&'static str],
}

/// A text that names no interpreter of a language.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownInterpreter {
    /// Neither a name nor an absolute path.
    #[error("`{0}` is neither a program's name, which is looked up on the PATH inside, nor an absolute path inside")]
    NotAProgram(String),
    /// Another kind of program. What is read before it runs is read in its language.
    #[error(
        "`{program}` is not known to run {language}; name one of {known}, in any version, or run it as a command with a file"
    )]
    OfAnother {
        /// What was named.
        program: String,
        /// The language.
        language: Language,
        /// What is known.
        known: String,
    },
}

impl NamedInterpreter {
    /// Its name or path, as it was named.
    pub fn program(&self) -> &str {
        &self.program
    }

    /// What goes before the file.
    pub fn arguments(&self) -> &'static [&'static str] {
        self.arguments
    }

    /// The words by which it is started with `file`.
    pub fn words<'a>(&'a self, file: &'a str) -> impl Iterator<Item = &'a str> {
        [self.program()].into_iter().chain(self.arguments.iter().copied()).chain([file])
    }
}

/// A path that is longer names nothing.
const MOST_PROGRAM: usize = 4096;

impl Language {
    /// Every language.
    pub const ALL: [Self; 4] = [Self::Bash, Self::Python, Self::Javascript, Self::Typescript];

    /// The interpreters to look for, best first.
    pub fn interpreters(self) -> &'static [Interpreter] {
        const fn plain(program: &'static str) -> Interpreter {
            Interpreter { program, arguments: &[] }
        }
        match self {
            Self::Bash => const { &[plain("bash"), plain("sh")] },
            Self::Python => const { &[plain("python3"), plain("python")] },
            Self::Javascript => {
                const { &[plain("node"), Interpreter { program: "deno", arguments: &["run"] }, plain("bun")] }
            }
            Self::Typescript => {
                const {
                    &[
                        Interpreter { program: "deno", arguments: &["run"] },
                        plain("bun"),
                        plain("tsx"),
                        Interpreter { program: "node", arguments: &["--experimental-strip-types"] },
                    ]
                }
            }
        }
    }

    /// Interpreters by their names without a version, and what goes before the file.
    fn families(self) -> &'static [(&'static str, &'static [&'static str])] {
        match self {
            Self::Bash => &[("bash", &[]), ("sh", &[]), ("dash", &[])],
            Self::Python => &[("python", &[]), ("pypy", &[])],
            Self::Javascript => &[("node", &[]), ("nodejs", &[]), ("deno", &["run"]), ("bun", &[])],
            Self::Typescript => &[
                ("deno", &["run"]),
                ("bun", &[]),
                ("tsx", &[]),
                ("node", &["--experimental-strip-types"]),
                ("nodejs", &["--experimental-strip-types"]),
            ],
        }
    }

    /// The interpreter that `program` names. One of another language is refused: what is read as this one before it runs would be
    /// run as something that nobody has read.
    pub fn interpreter(self, program: &str) -> Result<NamedInterpreter, UnknownInterpreter> {
        let short = || program.chars().take(64).collect();
        let path = std::path::Path::new(program);
        let name = path.file_name().and_then(|name| name.to_str()).filter(|name| program.ends_with(name));
        let is_place = !program.contains('/') || path.is_absolute();
        let Some(name) = name.filter(|_| is_place && program.len() <= MOST_PROGRAM && !program.contains('\0')) else {
            return Err(UnknownInterpreter::NotAProgram(short()));
        };
        let family = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || letter == '.');
        match self.families().iter().find(|(known, _)| *known == family) {
            Some((_, arguments)) => Ok(NamedInterpreter { program: program.to_owned(), arguments }),
            None => {
                let known: Vec<&str> = self.families().iter().map(|(known, _)| *known).collect();
                Err(UnknownInterpreter::OfAnother { program: short(), language: self, known: known.join(", ") })
            }
        }
    }

    /// The name of the file that holds code which came without one.
    pub fn default_file_name(self) -> &'static str {
        match self {
            Self::Bash => "main.sh",
            Self::Python => "main.py",
            Self::Javascript => "main.js",
            Self::Typescript => "main.ts",
        }
    }

    /// What to install when no interpreter is found.
    pub fn install_advice(self) -> &'static str {
        match self {
            Self::Bash => "install bash",
            Self::Python => "install python3",
            Self::Javascript => "install nodejs, deno or bun",
            Self::Typescript => "install deno, bun, tsx, or Node 22.6 or newer",
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bash => "bash",
            Self::Python => "python",
            Self::Javascript => "javascript",
            Self::Typescript => "typescript",
        })
    }
}

impl FromStr for Language {
    type Err = UnknownLanguage;

    fn from_str(text: &str) -> Result<Self, UnknownLanguage> {
        Ok(match text.to_ascii_lowercase().as_str() {
            "bash" | "sh" | "shell" => Self::Bash,
            "python" | "python3" | "py" => Self::Python,
            "javascript" | "js" | "node" => Self::Javascript,
            "typescript" | "ts" => Self::Typescript,
            _ => return Err(UnknownLanguage(text.chars().take(64).collect())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_language_parses_from_its_own_name_and_common_short_ones() {
        for language in Language::ALL {
            assert_eq!(language.to_string().parse(), Ok(language));
        }
        assert_eq!("PY".parse(), Ok(Language::Python));
        assert_eq!("ts".parse(), Ok(Language::Typescript));
    }

    #[test]
    fn an_interpreter_is_named_by_a_version_or_a_path_and_another_languages_is_refused() {
        let check = |language: Language, program: &str, expected: Option<&str>| {
            let named = language.interpreter(program).map(|named| named.words("FILE").collect::<Vec<_>>().join(" "));
            assert_eq!(named.as_deref().ok(), expected, "{program}: {named:?}");
        };
        check(Language::Python, "python3.11", Some("python3.11 FILE"));
        check(Language::Python, "/opt/py/bin/pypy3", Some("/opt/py/bin/pypy3 FILE"));
        check(Language::Bash, "dash", Some("dash FILE"));
        check(Language::Javascript, "deno", Some("deno run FILE"));
        check(Language::Typescript, "node22", Some("node22 --experimental-strip-types FILE"));
        for other in ["bash", "node", "rm", "sudo", "env", "pythonic", "python3-config", "python3 -c", "-c", "PYTHON3"]
        {
            check(Language::Python, other, None);
        }
        for no_program in
            ["", "/", ".", "..", "./python3", "bin/python3", "/bin/python3/", "/bin/python3/..", "python3\0"]
        {
            check(Language::Python, no_program, None);
        }
        let told = Language::Python.interpreter("ruby").unwrap_err().to_string();
        assert!(told.contains("`ruby` is not known to run python; name one of python, pypy"), "{told}");
        assert!(Language::Python.interpreter(&"x".repeat(1 << 20)).unwrap_err().to_string().len() < 300);
    }

    #[test]
    fn an_unknown_language_is_named_and_cut_short() {
        let error = "cobol".parse::<Language>().unwrap_err();
        assert!(error.to_string().contains("`cobol`"));
        assert!("x".repeat(1 << 20).parse::<Language>().unwrap_err().to_string().len() < 200);
    }
}
