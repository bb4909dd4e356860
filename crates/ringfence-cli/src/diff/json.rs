//! A set as JSON. Its names are stable; names and lines that are not UTF-8 come as base64 under a name of their own.

use std::io::{self, Write};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringfence::workspace::change::{OtherKind, WasKind};
use ringfence::workspace::diff::{Body, Hunk, Kind, Row, Sign};
use ringfence::workspace::flag::Judgement;
use ringfence::workspace::{Before, Node};
use serde_json::{Map, Value, json};

use super::View;
use super::page::Depth;

/// Of what is written here.
const VERSION: u32 = 1;

/// One object; its changes are written one by one, because all their lines together may be much.
pub(super) fn write(view: &View<'_>, depth: Depth, out: &mut dyn Write) -> io::Result<()> {
    let mut head = Map::new();
    head.insert("version".to_owned(), VERSION.into());
    head.insert("run".to_owned(), view.set.run_id.as_str().into());
    put_path(&mut head, "workspace", &view.set.workspace);
    head.insert("subject".to_owned(), view.set.subject.as_str().into());
    head.insert("endedSeconds".to_owned(), view.set.ended.seconds.into());
    // Also of what a rename took away.
    let shown = |row: &Row| [Some(row.change), row.from].into_iter().flatten().collect::<Vec<_>>();
    let judged = || view.rows.iter().flat_map(shown).filter_map(|change| view.judgements.get(change));
    let count = |wanted: fn(&Judgement) -> bool| judged().filter(|judgement| wanted(judgement)).count();
    head.insert("flagged".to_owned(), count(|judgement| matches!(judgement, Judgement::Flagged(_))).into());
    head.insert("denied".to_owned(), count(|judgement| matches!(judgement, Judgement::Denied(_))).into());
    let head = serde_json::to_string(&head)?;
    let head = head.strip_suffix('}').unwrap_or(&head);
    write!(out, "{head},\"changes\":[")?;
    for (index, (row, body)) in view.bodies().enumerate() {
        if index > 0 {
            write!(out, ",")?;
        }
        write!(out, "\n{}", serde_json::to_string(&one(view, row, &body, depth))?)?;
    }
    writeln!(out, "\n]}}")
}

fn put_path(object: &mut Map<String, Value>, name: &str, path: &Path) {
    let bytes = path.as_os_str().as_encoded_bytes();
    put_bytes(object, name, bytes);
}

fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}Base64"), STANDARD.encode(bytes).into()),
    };
}

fn one(view: &View<'_>, row: &Row, body: &Body, depth: Depth) -> Value {
    let mut object = Map::new();
    let Some(change) = view.change(row) else { return Value::Object(object) };
    put_path(&mut object, "path", change.place.as_path());
    object.insert("kind".to_owned(), row.kind.word().into());
    let before = row.from.and_then(|from| view.set.changes.get(from)).unwrap_or(change);
    if let Some(from) = view.from(row) {
        put_path(&mut object, "from", from.as_path());
    }
    if let Kind::Renamed { similarity } = row.kind {
        object.insert("similarity".to_owned(), similarity.into());
    }
    object.insert("before".to_owned(), before_side(&before.before));
    object.insert("after".to_owned(), change.after.as_ref().map_or(Value::Null, after_side));
    object.insert("judgement".to_owned(), judgement(view.judgement(row)));
    if let Some(judged) = row.from.and_then(|from| view.judgements.get(from)) {
        object.insert("fromJudgement".to_owned(), judgement(judged));
    }
    let (added, removed) = body.lines();
    object.insert("linesAdded".to_owned(), added.into());
    object.insert("linesRemoved".to_owned(), removed.into());
    let (compared, hunks) = match body {
        Body::Nothing => ("nothing", None),
        Body::Text(hunks) => ("text", Some(hunks)),
        Body::Binary => ("binary", None),
        Body::TooLarge => ("tooLarge", None),
        Body::Lost(hunks) => ("beforeUnknown", Some(hunks)),
        Body::Unreadable => ("unreadable", None),
    };
    object.insert("compared".to_owned(), compared.into());
    if let Some(hunks) = hunks.filter(|_| depth == Depth::Lines) {
        object.insert("hunks".to_owned(), hunks.iter().map(hunk).collect());
    }
    Value::Object(object)
}

fn judgement(judgement: &Judgement) -> Value {
    match judgement {
        Judgement::Free => json!({ "verdict": "free" }),
        Judgement::Flagged(flags) => json!({ "verdict": "flagged", "flags": flags }),
        Judgement::Denied(rule) => json!({ "verdict": "denied", "rule": rule }),
    }
}

fn other(kind: OtherKind) -> &'static str {
    match kind {
        OtherKind::Pipe => "pipe",
        OtherKind::Socket => "socket",
        OtherKind::Device => "device",
    }
}

fn mode_of(mode: u32) -> Value {
    format!("{mode:04o}").into()
}

fn before_side(before: &Before) -> Value {
    let was = match before {
        Before::Nothing => return Value::Null,
        Before::Unknown => return json!({ "type": "unknown" }),
        Before::Was(was) => was,
    };
    let mut side = Map::new();
    let kind = match &was.kind {
        WasKind::File(_) => "file",
        WasKind::Link(_) => "link",
        WasKind::Folder => "folder",
        WasKind::Other(kind) => other(*kind),
    };
    side.insert("type".to_owned(), kind.into());
    match &was.kind {
        WasKind::Link(target) => put_path(&mut side, "target", target.as_ref()),
        WasKind::File(_) => {
            side.insert("mode".to_owned(), mode_of(was.mode));
            side.insert("size".to_owned(), was.stamp.size.into());
        }
        WasKind::Folder | WasKind::Other(_) => {
            side.insert("mode".to_owned(), mode_of(was.mode));
        }
    }
    Value::Object(side)
}

fn after_side(node: &Node) -> Value {
    let mut side = Map::new();
    match node {
        Node::File { content, size, mode, .. } => {
            side.insert("type".to_owned(), "file".into());
            side.insert("mode".to_owned(), mode_of(*mode));
            side.insert("size".to_owned(), (*size).into());
            side.insert("blake3".to_owned(), content.to_string().into());
        }
        Node::Link { target } => {
            side.insert("type".to_owned(), "link".into());
            put_path(&mut side, "target", target.as_ref());
        }
        Node::Folder { mode } => {
            side.insert("type".to_owned(), "folder".into());
            side.insert("mode".to_owned(), mode_of(*mode));
        }
        Node::Other(kind) => {
            side.insert("type".to_owned(), other(*kind).into());
        }
    }
    Value::Object(side)
}

fn hunk(hunk: &Hunk) -> Value {
    let line = |(sign, line): &(Sign, Vec<u8>)| {
        let mut object = Map::new();
        let sign = match sign {
            Sign::Same => " ",
            Sign::Removed => "-",
            Sign::Added => "+",
        };
        object.insert("sign".to_owned(), sign.into());
        put_bytes(&mut object, "text", line);
        Value::Object(object)
    };
    json!({
        "beforeStart": hunk.before_start,
        "beforeCount": hunk.before_count,
        "afterStart": hunk.after_start,
        "afterCount": hunk.after_count,
        "lines": hunk.lines.iter().map(line).collect::<Value>(),
    })
}
