//! What the statements of a loop come to when it is gone through more than once.

use super::lists;
use super::tree::{Expr, How, Kind, Pattern, Statement};
use super::value::{Held, Value};

/// Items of a list that a loop is gone through one by one.
const UNROLLED: usize = 256;

/// Items that a loop can be gone through one by one.
pub(super) fn one_by_one(items: &Value) -> Option<Vec<Held>> {
    let letters = items.as_known().map(lists::as_letters);
    let items = items.items.as_ref().or(letters.as_ref())?;
    (items.len() <= UNROLLED && items.iter().all(|item| item.as_known().is_some() || item.number.is_some()))
        .then(|| (**items).clone())
}

/// A statement that adds to something.
pub(super) fn builds(statement: &Statement) -> bool {
    match statement {
        Statement::Assign { how: How::Add, .. } => true,
        Statement::Assign { pattern: Pattern::Name(name), value: Expr { kind: Kind::Join(parts), .. }, .. } => {
            parts.iter().any(|part| matches!(&part.kind, Kind::Name(part) if part == name))
        }
        Statement::Value(Expr { kind: Kind::Call(call), .. }) => {
            matches!(&call.callee.kind, Kind::Member(_, name) if matches!(name.as_str(), "append" | "push" | "insert" | "unshift"))
        }
        Statement::Branches(branches) => branches.iter().flatten().any(builds),
        Statement::Block(body) => body.iter().any(builds),
        _ => false,
    }
}

/// A statement that gives a name another value.
pub(super) fn assigns(statement: &Statement) -> bool {
    match statement {
        Statement::Assign { how: How::Add, .. } => false,
        Statement::Assign { value, .. } => {
            matches!(value.kind, Kind::Name(_) | Kind::Member(..) | Kind::Index(..) | Kind::Text(_) | Kind::Either(_))
        }
        Statement::Branches(branches) => branches.iter().flatten().any(assigns),
        Statement::Block(body) | Statement::Loop { body, .. } => body.iter().any(assigns),
        _ => false,
    }
}

/// A statement that does nothing but take more room.
pub(super) fn only_grows(statement: &Statement) -> bool {
    match statement {
        Statement::Assign { how: How::Add, .. } => true,
        Statement::Value(Expr { kind: Kind::Call(call), .. }) => {
            matches!(&call.callee.kind, Kind::Member(_, name) if matches!(name.as_str(), "append" | "push" | "extend" | "write" | "appendFileSync"))
        }
        _ => false,
    }
}
