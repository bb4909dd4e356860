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
