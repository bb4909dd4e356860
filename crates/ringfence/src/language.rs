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
    fn an_unknown_language_is_named_and_cut_short() {
        let error = "cobol".parse::<Language>().unwrap_err();
        assert!(error.to_string().contains("`cobol`"));
        assert!("x".repeat(1 << 20).parse::<Language>().unwrap_err().to_string().len() < 200);
    }
}
