//! Whatever a program leaves behind: one judgement and one place in the list for each change, nothing special is free, and
//! the differences lead from the old text to the new one.

#![no_main]

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use libfuzzer_sys::fuzz_target;
use ringfence::workspace::change::{Moment, OtherKind, WasKind};
use ringfence::workspace::diff::{Contents, Effort, compare, rows};
use ringfence::workspace::flag::{Judgement, judge_by};
use ringfence::workspace::{Before, Change, ChangeSet, Node, ObjectId, Place, Stamp, Was};

const MOMENT: Moment = Moment { seconds: 0, nanoseconds: 0 };

fuzz_target!(|input: Vec<(u8, Vec<u8>, Vec<u8>, Vec<u8>)>| {
    let mut kept: HashMap<ObjectId, Vec<u8>> = HashMap::new();
    let mut changes = Vec::new();
    for (choice, name, old, new) in input {
        let Ok(place) = Place::new(OsString::from_vec(name)) else { continue };
        let (old_id, new_id) = (ObjectId::of(&old), ObjectId::of(&new));
        let stamp = Stamp { device: 0, inode: 0, size: old.len() as u64, modified: MOMENT, changed: MOMENT };
        let was = |kind| Before::Was(Was { kind, mode: 0o644, stamp });
        let before = match choice % 6 {
            0 | 1 => Before::Nothing,
            2 => was(WasKind::File(Some(old_id))),
            3 => was(WasKind::File(None)),
            4 => was(WasKind::Folder),
            _ => Before::Unknown,
        };
        let after = match choice / 6 % 6 {
            0 => None,
            1 | 2 => Some(Node::File { content: new_id, size: new.len() as u64, mode: 0o644, modified: MOMENT }),
            3 => Some(Node::Link { target: OsString::from_vec(new.clone()) }),
            4 => Some(Node::Folder { mode: 0o755 }),
            _ => Some(Node::Other(OtherKind::Socket)),
        };
        kept.insert(old_id, old);
        kept.insert(new_id, new);
        changes.push(Change { place, before, after });
    }
    let set = ChangeSet {
        run_id: "01k50000000000000000000001".parse().expect("it is an id"),
        workspace: "/w".into(),
        workspace_is: (0, 0),
        subject: String::new(),
        began: MOMENT,
        ended: MOMENT,
        deny: vec!["**/.env".to_owned(), "secrets/**".to_owned()],
        protect: vec!["deploy/**".to_owned()],
        own: Vec::new(),
        size: u64::MAX,
        changes,
    };
    let read = |id| kept.get(&id).cloned();
    let judgements = judge_by(&set, &read);
    assert_eq!(judgements.len(), set.changes.len());
    for (change, judgement) in set.changes.iter().zip(&judgements) {
        if matches!(change.after, Some(Node::Other(_))) || change.place.names().any(|name| name == ".env") {
            assert_ne!(*judgement, Judgement::Free);
        }
    }
    let host = |_: &Place, _: &Stamp| None;
    let contents = Contents { kept: &read, host: &host };
    let rows = rows(&set, &contents);
    let mut listed: Vec<usize> = rows.iter().flat_map(|row| [Some(row.change), row.from]).flatten().collect();
    listed.sort_unstable();
    assert!(listed.into_iter().eq(0..set.changes.len()));
    let mut effort = Effort::default();
    for row in &rows {
        compare(&set, row, &contents, &mut effort).lines();
    }
});
