//! Languages whose code can be read.

use serde::Serialize;

/// A language of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Language {
    /// A shell line or script.
    Shell,
    /// Python 3.
    Python,
    /// JavaScript.
    JavaScript,
    /// TypeScript.
    TypeScript,
    /// A language that is recognised and not read (Perl, Ruby, PHP, awk …): its code is unknown.
    Other,
}

impl Language {
    /// As people write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shell => "shell",
            Self::Python => "Python",
            Self::JavaScript => "JavaScript",
            Self::TypeScript => "TypeScript",
            Self::Other => "another language",
        }
    }
}
