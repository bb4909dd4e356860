//! What the statements of a loop come to when it is gone through more than once.

use std::rc::Rc;

use super::lists;
use super::own::weight;
use super::tree::{Expr, How, Kind, Pattern, Statement};
use super::value::{ANY_KEY, Held, Value};

/// Items of a list that a loop is gone through one by one: where it puts a text together, and where each is a record of its own.
const UNROLLED: usize = 256;
const RECORDS: usize = 16;
/// Statements of such a loop.
const SHORT: usize = 12;

/// Whether a loop puts something together, turn by turn.
pub(super) fn puts_together(body: &[Statement]) -> bool {
    body.len() <= 4 && body.iter().any(builds)
}

/// Items that a loop can be gone through one by one.
pub(super) fn one_by_one(items: &Value, body: &[Statement]) -> Option<Vec<Held>> {
    let letters = items.as_known().map(lists::as_letters);
    let known = |item: &Held| item.as_known().is_some() || item.number.is_some();
    if puts_together(body) {
        let items = items.items.as_ref().or(letters.as_ref())?;
        return (items.len() <= UNROLLED && items.iter().all(known)).then(|| (**items).clone());
    }
    // What belongs together in a record stays together: a program and its words, a path and what becomes of it.
    if weight(body) > SHORT {
        return None;
    }
    match (&items.items, &items.fields) {
        (Some(items), _) => {
            let is_record = |item: &Held| item.items.is_some() || item.fields.is_some() || item.number.is_some();
            let few = (2..=RECORDS).contains(&items.len());
            (few && items.iter().all(is_record)).then(|| (**items).clone())
        }
        (None, Some(fields)) if items.functions.is_empty() && items.texts.is_empty() && items.names.is_empty() => {
            let few = (2..=RECORDS).contains(&fields.len());
            let plain =
                fields.iter().all(|(key, held)| **key != *ANY_KEY && !held.texts.is_empty() && !key.starts_with("__"));
            (few && plain).then(|| fields.iter().map(|(key, _)| Rc::new(Value::known(&**key))).collect())
        }
        _ => None,
    }
}

/// A statement that adds to something.
fn builds(statement: &Statement) -> bool {
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
fn only_grows(statement: &Statement) -> bool {
    match statement {
        Statement::Assign { how: How::Add, .. } => true,
        Statement::Value(value) => grows(value) || asks_somebody(value),
        // Nothing else is tried, and whatever goes wrong is passed over.
        Statement::Branches(branches) => {
            branches.iter().flatten().any(only_grows) && branches.iter().flatten().all(grows_or_idles)
        }
        // Into one file after the other.
        Statement::Assign { value: Expr { kind: Kind::Call(call), .. }, .. } => is_named(&call.callee, &["open"]),
        Statement::Block(body) => !body.is_empty() && body.iter().all(only_grows),
        // One that counts.
        Statement::Loop { each: None, body, .. } => body.iter().any(takes_room) && body.iter().all(only_grows),
        _ => false,
    }
}

/// Whether something takes room each time, and not only counts.
fn takes_room(statement: &Statement) -> bool {
    match statement {
        Statement::Value(value) => grows(value),
        Statement::Assign { how: How::Add, value, .. } => !matches!(value.kind, Kind::Number(_)),
        Statement::Block(body) | Statement::Loop { body, .. } => body.iter().any(takes_room),
        _ => false,
    }
}

/// A call that only takes more room, or a machine that is started and never waited for.
pub(super) fn grows(value: &Expr) -> bool {
    let Kind::Call(call) = &value.kind else { return false };
    match &call.callee.kind {
        // A thread, or a process, that is started and never waited for.
        Kind::Member(base, name) if name == "start" => match &base.kind {
            Kind::Call(made) => match &made.callee.kind {
                Kind::Name(name) | Kind::Member(_, name) => matches!(name.as_str(), "Thread" | "Process" | "Timer"),
                _ => false,
            },
            _ => false,
        },
        Kind::Member(_, name) => {
            matches!(
                name.as_str(),
                "append"
                    | "push"
                    | "extend"
                    | "write"
                    | "writelines"
                    | "appendFileSync"
                    | "appendFile"
                    | "writeSync"
                    | "writevSync"
                    | "unshift"
                    | "concat"
            )
        }
        Kind::Name(name) => name == "Worker",
        _ => false,
    }
}

/// Whether a loop does nothing but take more room, or ask somebody once more.
pub(super) fn does_only_grow(body: &[Statement]) -> bool {
    body.iter().any(only_grows) && body.iter().all(grows_or_idles)
}

fn grows_or_idles(statement: &Statement) -> bool {
    only_grows(statement) || is_idle(statement)
}

/// A statement that does nothing.
fn is_idle(statement: &Statement) -> bool {
    match statement {
        Statement::Value(value) => {
            matches!(value.kind, Kind::Name(_) | Kind::Member(..) | Kind::Nothing | Kind::Text(_) | Kind::Number(_))
        }
        Statement::Assign { value, .. } => matches!(value.kind, Kind::Name(_) | Kind::Nothing),
        Statement::Block(body) => body.iter().all(is_idle),
        Statement::Branches(branches) => branches.iter().flatten().all(is_idle),
        _ => false,
    }
}

/// A request whose answer nobody looks at.
fn asks_somebody(value: &Expr) -> bool {
    let Kind::Call(call) = &value.kind else { return false };
    let here = |text: &str| text.contains("://localhost") || text.contains("://127.") || text.starts_with('/');
    let is_here = call.args.first().is_some_and(|arg| match &arg.value.kind {
        Kind::Text(text) => here(&text.value),
        Kind::Join(parts) => {
            matches!(parts.first().map(|part| &part.kind), Some(Kind::Text(text)) if here(&text.value))
        }
        _ => false,
    });
    match &call.callee.kind {
        Kind::Name(name) => matches!(name.as_str(), "fetch" | "axios" | "got" | "urlopen") && !is_here,
        Kind::Member(base, name) => match (&base.kind, name.as_str()) {
            (_, "catch" | "then" | "finally" | "on" | "end" | "destroy") => asks_somebody(base),
            (Kind::Name(base), "get" | "post" | "head" | "put" | "request" | "urlopen" | "options") => {
                let speaks = matches!(
                    base.as_str(),
                    "axios"
                        | "got"
                        | "http"
                        | "https"
                        | "requests"
                        | "httpx"
                        | "superagent"
                        | "needle"
                        | "ky"
                        | "undici"
                );
                speaks && !is_here
            }
            _ => false,
        },
        _ => false,
    }
}

/// A function that does nothing but keep much, each time that it is called.
pub(super) fn hoards(body: &[Statement]) -> bool {
    let keeps = |statement: &Statement| match statement {
        Statement::Value(value) | Statement::Return(value) => grows(value) && makes_much(value),
        _ => false,
    };
    !body.is_empty() && body.iter().all(keeps)
}

/// A call that is given something large which was made for it.
fn makes_much(value: &Expr) -> bool {
    let Kind::Call(call) = &value.kind else { return false };
    let is_made = |arg: &Expr| {
        let mut inner = arg;
        while let Kind::Call(call) = &inner.kind {
            match &call.callee.kind {
                Kind::Member(_, name)
                    if matches!(name.as_str(), "alloc" | "allocUnsafe" | "repeat" | "randomBytes") =>
                {
                    return true;
                }
                Kind::Name(name)
                    if name.ends_with("Array") || matches!(name.as_str(), "ArrayBuffer" | "randomBytes") =>
                {
                    return true;
                }
                Kind::Member(base, _) => inner = base,
                _ => return false,
            }
        }
        false
    };
    call.args.iter().any(|arg| match &arg.value.kind {
        Kind::Spread(inner) => is_made(inner),
        _ => is_made(&arg.value),
    })
}

/// Whether it is a name, or a part of a module of files, that is called so.
fn is_named(expr: &Expr, names: &[&str]) -> bool {
    match &expr.kind {
        Kind::Name(name) => names.contains(&name.as_str()),
        Kind::Member(base, name) => {
            let of_files = |base: &str| matches!(base, "io" | "codecs" | "gzip" | "os");
            names.contains(&name.as_str()) && matches!(&base.kind, Kind::Name(base) if of_files(base))
        }
        _ => false,
    }
}
