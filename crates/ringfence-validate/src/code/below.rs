//! Where things of the project lie, what a folder holds, and lines as they are meant.

use std::rc::Rc;

use super::value::{Held, Value};
use crate::text::{Piece, Text};

/// The folder of the project, by a name that no program has.
pub(super) const PROJECT: &str = "(project)";

/// A path from the folder of the program itself up and down again, without the way up: a program of the project lies in one of its
/// folders, or in one below that.
pub(super) fn from_here(parts: &[Held]) -> Option<Vec<Held>> {
    if let [project, below, ..] = parts
        && project.has(PROJECT)
    {
        let here = std::iter::once(Rc::new(Value::known(".")));
        let down = below.texts.iter().all(goes_down) && !below.texts.is_empty();
        return down.then(|| here.chain(parts.iter().skip(1).cloned()).collect());
    }
    let [here, up, rest @ ..] = parts else { return None };
    let up = up.as_known().filter(|_| here.has("__dirname"))?.trim_start_matches("./");
    let below = match up {
        ".." | "../.." => None,
        up => Some(up.strip_prefix("../../").or_else(|| up.strip_prefix("../"))?),
    };
    let down: Vec<Held> =
        below.map(|below| Rc::new(Value::known(below))).into_iter().chain(rest.iter().cloned()).collect();
    let first = down.first()?;
    if first.texts.is_empty() || !first.texts.iter().all(goes_down) {
        return None;
    }
    Some(std::iter::once(Rc::clone(here)).chain(down).collect())
}

fn goes_down(text: &Text) -> bool {
    let start = text.known_start();
    !start.is_empty() && !start.starts_with(['/', '~', '*']) && start != "." && !start.starts_with("..")
}

/// Whether parts of a path lead to the folder of the project: from the program's own one or two up, and nothing else.
pub(super) fn is_project(parts: &[Held]) -> bool {
    let ups =
        |part: &Held| part.as_known().map(|up| up.trim_end_matches('/').split('/').filter(|up| *up == "..").count());
    let only = |part: &Held| part.as_known().is_some_and(|up| up.split('/').all(|up| matches!(up, ".." | "." | "")));
    match parts {
        [here, rest @ ..] if here.has("__dirname") && rest.iter().all(only) => {
            matches!(rest.iter().filter_map(ups).sum(), 1 | 2)
        }
        _ => false,
    }
}

/// The folder that the program lies in.
pub(super) fn here() -> Held {
    Rc::new(Value { texts: Value::known(".").texts, ..Value::named("__dirname") })
}

/// Whether something is the address, or the path, of the program itself.
pub(super) fn is_itself(value: &Value) -> bool {
    value.has("import.meta.url") || value.has("import.meta.filename") || value.has("__filename")
}

/// What a folder holds, each with its name and with the folder that it is in.
pub(super) fn entries(folder: &Held, options: &Value, name: Text) -> Value {
    let deep = options.field("recursive").is_some_and(|deep| deep.truth != Some(false));
    let mut place = Value { texts: folder.texts.clone(), ..Value::default() };
    if deep {
        for text in place.texts.own() {
            text.push(Piece::Known("/".to_owned()));
            text.push(Piece::Pattern("**".to_owned()));
        }
    }
    let place = Rc::new(place);
    let fields = [("name", Rc::new(Value::text(name))), ("parentPath", Rc::clone(&place)), ("path", place)];
    Value::object(fields.into_iter().map(|(key, held)| (key.into(), held)).collect())
}

/// Lines without the blanks that all of them begin with.
pub(super) fn dedent(text: &str) -> String {
    let blanks = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let all = text.lines().filter(|line| !line.trim().is_empty()).map(blanks).min().unwrap_or_default();
    let cut = |line: &str| line.get(all..).unwrap_or_default().to_owned();
    let mut whole: String = text.lines().map(cut).collect::<Vec<_>>().join("\n");
    if text.ends_with('\n') {
        whole.push('\n');
    }
    whole
}
