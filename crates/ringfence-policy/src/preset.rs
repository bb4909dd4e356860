//! The built-in texts: the defaults and the presets. Each is parsed once.

use std::sync::LazyLock;

use crate::diagnostic::Diagnostic;
use crate::file::{PolicyFile, parse, parse_prepared};
use crate::policy::Preset;
use crate::prepared;

type Parsed = LazyLock<Result<PolicyFile, Vec<Diagnostic>>>;

macro_rules! built_in {
    ($parsed:ident, $text:ident, $file:literal) => {
        const $text: &str = include_str!(concat!("../presets/", $file));
        static $parsed: Parsed = LazyLock::new(|| parse(concat!("presets/", $file), $text));
    };
}

const DEFAULT_FILE: &str = "presets/default.yaml";
pub(crate) const DEFAULT_TEXT: &str = include_str!("../presets/default.yaml");
/// A test writes it.
pub(crate) const PREPARED: &str = include_str!("../presets/default.tree");
const DEFAULT_HASH: u64 = prepared::hash(DEFAULT_TEXT);
static DEFAULT: Parsed = LazyLock::new(|| match prepared::read(PREPARED, DEFAULT_HASH) {
    Some(tree) => parse_prepared(DEFAULT_FILE, &tree),
    // It is of another text: only time is lost.
    None => parse(DEFAULT_FILE, DEFAULT_TEXT),
});

built_in!(READ_ONLY, READ_ONLY_TEXT, "read-only.yaml");
built_in!(WORKSPACE, WORKSPACE_TEXT, "workspace.yaml");
built_in!(PYTHON, PYTHON_TEXT, "python.yaml");
built_in!(NODE, NODE_TEXT, "node.yaml");
built_in!(RUST, RUST_TEXT, "rust.yaml");
built_in!(CI, CI_TEXT, "ci.yaml");
built_in!(STRICT, STRICT_TEXT, "strict.yaml");

impl Preset {
    /// Every preset.
    pub const ALL: [Self; 7] =
        [Self::ReadOnly, Self::Workspace, Self::Python, Self::Node, Self::Rust, Self::Ci, Self::Strict];

    /// The preset's file, as a person would read it.
    pub fn text(self) -> &'static str {
        match self {
            Self::ReadOnly => READ_ONLY_TEXT,
            Self::Workspace => WORKSPACE_TEXT,
            Self::Python => PYTHON_TEXT,
            Self::Node => NODE_TEXT,
            Self::Rust => RUST_TEXT,
            Self::Ci => CI_TEXT,
            Self::Strict => STRICT_TEXT,
        }
    }

    pub(crate) fn file(self) -> Result<&'static PolicyFile, Vec<Diagnostic>> {
        let parsed = match self {
            Self::ReadOnly => &READ_ONLY,
            Self::Workspace => &WORKSPACE,
            Self::Python => &PYTHON,
            Self::Node => &NODE,
            Self::Rust => &RUST,
            Self::Ci => &CI,
            Self::Strict => &STRICT,
        };
        parsed.as_ref().map_err(Clone::clone)
    }
}

/// The file of the built-in defaults, as a person would read it.
pub const fn default_text() -> &'static str {
    DEFAULT_TEXT
}

pub(crate) fn default_file() -> Result<&'static PolicyFile, Vec<Diagnostic>> {
    DEFAULT.as_ref().map_err(Clone::clone)
}
