//! One line of the ledger.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The version of the record format.
pub(super) const VERSION: u32 = 1;
/// What stands in front of a line's own hash, at its end.
const HASH_FIELD: &str = ",\"hash\":\"";
const HASH_LENGTH: usize = 64;
/// What the first record points at.
pub(super) const NO_RECORD: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What happened to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// Somebody asked.
    Requested,
    /// Policy answered.
    Judged,
    /// It may run, and how; durable before the start.
    Planned,
    /// The program was executed.
    Started,
    /// It is over.
    Ended,
    /// What it changed was thrown away.
    Discarded,
    /// Its changes are about to be made to the workspace; durable before the first.
    Applied,
    /// Changes that were made are about to be taken back; durable before the first.
    Undone,
    /// The workspace of a session was remembered as it was.
    Checkpointed,
    /// The workspace of a session is about to be what it was before.
    Restored,
    /// An agent's own tool was called, or was not let: said by its hook.
    Called,
    /// An earlier write was cut off; the chain goes on after it.
    Recovered,
}

/// Something to write down.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// What happened.
    pub kind: Kind,
    /// To which run.
    pub run: String,
    /// The details.
    pub body: Value,
}

/// A line as it stands in the file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The format's version.
    pub v: u32,
    /// The place in the chain, from 0.
    pub seq: u64,
    /// When it was written.
    pub time: String,
    /// The run.
    pub run: String,
    /// What happened.
    pub kind: Kind,
    /// The details.
    pub body: Value,
    /// The hash of the line before.
    pub prev: String,
    /// The hash of this line without this field.
    pub hash: String,
}

#[derive(Serialize)]
struct Unsealed<'a> {
    v: u32,
    seq: u64,
    time: &'a str,
    run: &'a str,
    kind: Kind,
    body: &'a Value,
    prev: &'a str,
}

/// The line for `entry`, without its line break, and its hash.
pub(super) fn seal(entry: &Entry, seq: u64, time: &str, prev: &str) -> serde_json::Result<(String, String)> {
    let unsealed = Unsealed { v: VERSION, seq, time, run: &entry.run, kind: entry.kind, body: &entry.body, prev };
    let mut line = serde_json::to_string(&unsealed)?;
    line.pop();
    let hash = blake3::hash(line.as_bytes()).to_hex().to_string();
    line.push_str(HASH_FIELD);
    line.push_str(&hash);
    line.push_str("\"}");
    Ok((line, hash))
}

/// The record of a line whose own hash is right; otherwise what is wrong with it.
pub(super) fn unseal(line: &[u8]) -> Result<Record, &'static str> {
    let body_end = line.len().checked_sub(HASH_FIELD.len() + HASH_LENGTH + 2).ok_or("is too short to be a record")?;
    let (body, seal) = line.split_at(body_end);
    let hash = seal
        .strip_prefix(HASH_FIELD.as_bytes())
        .and_then(|rest| rest.strip_suffix(b"\"}"))
        .ok_or("does not end in its hash")?;
    if blake3::hash(body).to_hex().as_bytes() != hash {
        return Err("was changed: its hash does not fit its text");
    }
    let record: Record = serde_json::from_slice(line).map_err(|_| "is not a record")?;
    if record.v != VERSION {
        return Err("has a version that this program does not know");
    }
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn s08_line_breaks_and_json_in_a_field_stay_inside_one_line() {
        let entry =
            Entry { kind: Kind::Requested, run: "r".to_owned(), body: json!({"argv": ["a\n{\"kind\":\"ended\"}\n"]}) };
        let (line, hash) = seal(&entry, 3, "now", NO_RECORD).unwrap();
        assert!(!line.contains('\n'));
        let record = unseal(line.as_bytes()).unwrap();
        assert_eq!((record.body, record.hash, record.seq), (entry.body, hash, 3));
    }

    #[test]
    fn s09_a_changed_byte_is_seen() {
        let entry = Entry { kind: Kind::Ended, run: "r".to_owned(), body: json!({"exitCode": 1}) };
        let (line, _) = seal(&entry, 0, "now", NO_RECORD).unwrap();
        assert!(unseal(line.as_bytes()).is_ok());
        let changed = line.replace("\"exitCode\":1", "\"exitCode\":0");
        assert!(unseal(changed.as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            unseal(&bytes).ok();
        }
    }
}
