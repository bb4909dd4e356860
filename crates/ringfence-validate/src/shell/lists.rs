//! `"${a[@]…}"` and `"${@…}"`: all fields of a list, a part of them, or each one changed. And how the home is called.

use super::expand::Expansion;
use super::parameter::{Operation, change, hides, inner};
use super::tree::Word;
use super::walk::Walker;
use crate::text::{Hole, Text};

/// What the home is called in paths: by its own sign where the workspace takes it in, and by its name elsewhere.
pub(super) fn home(walker: &Walker<'_, '_>) -> Text {
    let surroundings = walker.reading.surroundings;
    let home = if crate::path::works_at_home(surroundings) { "~" } else { surroundings.home.as_str() };
    Text::known(home)
}

/// All fields of a list: those of a part of it as in `${a[@]:1:2}`, or each one changed.
pub(super) fn changed_fields(
    walker: &mut Walker<'_, '_>,
    name: &str,
    fields: &[Text],
    operation: &str,
    word: &Word,
    expansion: &mut Expansion,
) -> Vec<Text> {
    if operation.is_empty() {
        return fields.to_vec();
    }
    let hole = || vec![Text::hole(Hole::Variable(name.to_owned()))];
    if let Operation::Change(operation) = Operation::of(operation) {
        if let Some(range) = operation.strip_prefix(':') {
            // Of the arguments the first one is 1: nothing stands before it but the name of the shell.
            let skipped = i64::from(matches!(name, "@" | "*"));
            return part_of(fields, range, skipped).unwrap_or_else(hole);
        }
        let changed: Option<Vec<Text>> = fields
            .iter()
            .map(|field| {
                let known = field.as_known()?;
                change(walker, known, operation, word, expansion).map(Text::known)
            })
            .collect();
        if let Some(changed) = changed {
            expansion.disguised |= hides(operation);
            return changed;
        }
    }
    // What stands behind the operator is expanded too, and may run commands; it may be what is taken.
    let mut all = fields.to_vec();
    all.push(inner(walker, operation.trim_start_matches([':', '-', '+', '=', '?']), word, 0, expansion));
    all.extend(hole());
    all
}

/// The fields from a place on, or some of them.
fn part_of(fields: &[Text], range: &str, skipped: i64) -> Option<Vec<Text>> {
    let (start, length) = range.split_once(':').map_or((range, None), |(start, length)| (start, Some(length)));
    let start = super::arithmetic::fold(start).filter(|start| *start >= skipped)?;
    let from = usize::try_from(start - skipped).ok()?.min(fields.len());
    let count = match length {
        None => fields.len(),
        Some(length) => usize::try_from(super::arithmetic::fold(length)?).ok()?,
    };
    Some(fields.get(from..)?.iter().take(count).cloned().collect())
}
