//! `validate`: how closely requests are read before they run.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::diagnostic::{Invalid, quote};
use crate::name::Named;
use crate::order::contains_all;
use crate::policy::Sourced;
use crate::reader::{Reader, Written};
use crate::yaml::{Node, Value};

pub(crate) const VALIDATE_KEYS: [&str; 3] = ["level", "commands", "modules"];

/// What becomes of what a reader of requests finds. The order is from narrowest to widest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ValidateLevel {
    /// Only listed commands and modules, and what would be asked about is denied.
    Strict,
    /// What is dangerous is denied, what is doubtful is asked about.
    Standard,
    /// It is told, and stops nothing.
    Warn,
    /// Nothing is looked for.
    Off,
}

/// `validate`, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValidatePolicy {
    /// What becomes of findings.
    pub level: Sourced<ValidateLevel>,
    /// Under [`ValidateLevel::Strict`], the only programs.
    pub commands: Vec<Sourced<String>>,
    /// Under [`ValidateLevel::Strict`], the only modules that code may import.
    pub modules: Vec<Sourced<String>>,
}

/// `validate`, as written.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ValidateFile {
    /// `validate`, or its `level`
    pub level: Option<Written<ValidateLevel>>,
    /// `commands`
    pub commands: Option<Vec<Written<String>>>,
    /// `modules`
    pub modules: Option<Vec<Written<String>>>,
}

pub(crate) fn read_validate(reader: &mut Reader<'_>, node: &Node) -> ValidateFile {
    if !matches!(node.value, Value::Map(_)) {
        let level = reader.scalar(node, "validate", ValidateLevel::read);
        return ValidateFile { level, ..ValidateFile::default() };
    }
    let fields = reader.fields(node, "validate", &VALIDATE_KEYS);
    let mut names = |key: &str, path: &str| {
        let node = fields.get(key)?;
        reader.list(node, path, |reader, node| reader.scalar(node, path, parse_name))
    };
    let commands = names("commands", "validate.commands");
    let modules = names("modules", "validate.modules");
    let level = fields.get("level").and_then(|node| reader.scalar(node, "validate.level", ValidateLevel::read));
    ValidateFile { level, commands, modules }
}

/// A program by its file name, or a module by its full name.
fn parse_name(text: &str) -> Result<String, Invalid> {
    let word = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b'+' | b'[' | b'@' | b'/' | b':');
    if text.is_empty() || text.len() > 128 || text.starts_with(['-', '/']) || !text.bytes().all(word) {
        return Err(Invalid::new(
            "policy::bad-name",
            format!("{} is not the name of a program or a module", quote(text)),
            "write a name without its folder, such as `git` or `json`; one entry each",
        ));
    }
    Ok(text.to_owned())
}

impl ValidatePolicy {
    pub(crate) fn is_within(&self, wider: &Self) -> bool {
        let lists = wider.level.value != ValidateLevel::Strict
            || contains_all(&wider.commands, &self.commands) && contains_all(&wider.modules, &self.modules);
        self.level.value <= wider.level.value && lists
    }

    pub(crate) fn canonical(&self) -> Json {
        let names = |list: &[Sourced<String>]| -> Vec<String> { list.iter().map(|it| it.value.clone()).collect() };
        json!({ "commands": names(&self.commands), "level": self.level.value, "modules": names(&self.modules) })
    }
}

pub(crate) fn schema() -> Json {
    let levels: Vec<&str> = ValidateLevel::ALL.iter().map(|(name, _)| *name).collect();
    let level = json!({ "description": "What becomes of what is found when a request is read", "enum": levels });
    let names = |description: &str| {
        json!({
            "description": description,
            "type": "array",
            "items": { "type": "string", "pattern": "^[A-Za-z0-9_.+\\[@:][A-Za-z0-9_.+\\[@/:-]{0,127}$" }
        })
    };
    json!({
        "description": "How closely requests are read before they run",
        "anyOf": [
            level,
            {
                "description": "The level, and what `strict` lets through",
                "type": "object",
                "properties": {
                    "level": level,
                    "commands": names("Under `strict`, the only programs"),
                    "modules": names("Under `strict`, the only modules that code may import")
                },
                "required": [],
                "additionalProperties": false
            }
        ]
    })
}
