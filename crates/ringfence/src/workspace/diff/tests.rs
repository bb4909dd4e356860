//! Sets made by hand, and what their rows say.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use proptest::prelude::*;

use super::*;
use crate::run_id::RunId;
use crate::workspace::change::{Moment, OtherKind, Was};

const MOMENT: Moment = Moment { seconds: 1, nanoseconds: 0 };

/// A set, what is kept of it, and what the host still has.
#[derive(Default)]
struct Case {
    changes: Vec<Change>,
    kept: HashMap<ObjectId, Vec<u8>>,
    host: HashMap<Place, Vec<u8>>,
}

fn was(kind: WasKind, size: usize) -> Before {
    let stamp = Stamp { device: 1, inode: 1, size: size as u64, modified: MOMENT, changed: MOMENT };
    Before::Was(Was { kind, mode: 0o644, stamp })
}

impl Case {
    fn keep(&mut self, bytes: &[u8]) -> ObjectId {
        let id = ObjectId::of(bytes);
        self.kept.insert(id, bytes.to_owned());
        id
    }

    fn file(&mut self, bytes: &[u8], mode: u32) -> Option<Node> {
        let content = self.keep(bytes);
        Some(Node::File { content, size: bytes.len() as u64, mode, modified: MOMENT })
    }

    fn with(mut self, place: &str, before: Before, after: Option<Node>) -> Self {
        self.changes.push(Change { place: Place::new(place).unwrap(), before, after });
        self
    }

    fn adds(mut self, place: &str, bytes: &[u8]) -> Self {
        let after = self.file(bytes, 0o644);
        self.with(place, Before::Nothing, after)
    }

    fn changes(mut self, place: &str, old: &[u8], new: &[u8]) -> Self {
        let before = was(WasKind::File(Some(self.keep(old))), old.len());
        let after = self.file(new, 0o644);
        self.with(place, before, after)
    }

    /// A file of the host that the program removed; it was not kept.
    fn removes(mut self, place: &str, bytes: &[u8]) -> Self {
        self.host.insert(Place::new(place).unwrap(), bytes.to_owned());
        self.with(place, was(WasKind::File(None), bytes.len()), None)
    }

    fn set(&self) -> ChangeSet {
        ChangeSet {
            run_id: RunId::generate().unwrap(),
            workspace: "/w".into(),
            workspace_is: (1, 1),
            subject: String::new(),
            began: MOMENT,
            ended: MOMENT,
            deny: Vec::new(),
            protect: Vec::new(),
            own: Vec::new(),
            size: u64::MAX,
            changes: self.changes.clone(),
        }
    }

    fn look(&self) -> (Vec<Row>, Vec<Body>) {
        let set = self.set();
        let kept = |id| self.kept.get(&id).cloned();
        let host = |place: &Place, _: &Stamp| self.host.get(place).cloned();
        let contents = Contents { kept: &kept, host: &host };
        let rows = rows(&set, &contents);
        let mut effort = Effort::default();
        let bodies = rows.iter().map(|row| compare(&set, row, &contents, &mut effort)).collect();
        (rows, bodies)
    }

    fn kinds(&self) -> Vec<Kind> {
        self.look().0.iter().map(|row| row.kind).collect()
    }
}

#[test]
fn every_kind_of_change_has_its_name() {
    let mut case = Case::default();
    let same = case.keep(b"x");
    let executable = case.file(b"x", 0o755);
    let link = |to: &str| Some(Node::Link { target: to.into() });
    let case = case
        .adds("added", b"a\n")
        .changes("changed", b"a\n", b"b\n")
        .with("folder", was(WasKind::Folder, 0), Some(Node::Folder { mode: 0o700 }))
        .with("link", was(WasKind::Link("x".into()), 0), link("y"))
        .with("mode", was(WasKind::File(Some(same)), 1), executable)
        .removes("removed", b"r\n")
        .with("type", was(WasKind::Folder, 0), link("y"))
        .with("unknown", Before::Unknown, link("y"));
    let expected =
        [Kind::Added, Kind::Changed, Kind::Mode, Kind::Link, Kind::Mode, Kind::Removed, Kind::Type, Kind::Changed];
    assert_eq!(case.kinds(), expected);
}

#[test]
fn a_file_that_moved_is_a_rename_also_when_a_part_of_it_changed() {
    let text: Vec<u8> = (0..20).flat_map(|line| format!("line {line}\n").into_bytes()).collect();
    let mut changed = text.clone();
    changed.extend(b"one more\n");
    let exact = Case::default().removes("a", &text).adds("b", &text);
    assert_eq!(exact.kinds(), [Kind::Renamed { similarity: 100 }]);
    assert_eq!(exact.look().0[0].from, Some(0));
    let alike = Case::default().adds("b", &changed).removes("c", &text);
    let (rows, bodies) = alike.look();
    assert!(matches!(rows[..], [Row { change: 0, from: Some(1), kind: Kind::Renamed { similarity: 90..=99 } }]));
    assert_eq!(bodies[0].lines(), (1, 0));
    let other = Case::default().removes("a", &text).adds("b", b"something else\n");
    assert_eq!(other.kinds(), [Kind::Removed, Kind::Added]);
    let mut gone = Case::default().removes("a", &text).adds("b", &text);
    gone.host.clear();
    assert_eq!(gone.kinds(), [Kind::Removed, Kind::Added], "the host's file changed since");
    let empty = Case::default().removes("a", b"").adds("b", b"");
    assert_eq!(empty.kinds(), [Kind::Removed, Kind::Added], "empty files are all alike");
    let twice = Case::default().removes("a", &text).adds("b", &text).adds("c", &text);
    assert_eq!(twice.kinds(), [Kind::Renamed { similarity: 100 }, Kind::Added]);
}

#[test]
fn what_cannot_be_compared_is_said_and_never_left_out() {
    let check = |case: Case, expected: &Body| assert_eq!(case.look().1, std::slice::from_ref(expected));
    check(Case::default().changes("a", b"a\0", b"b\0"), &Body::Binary);
    check(Case::default().adds("a", &vec![b'a'; MOST_BYTES as usize + 1]), &Body::TooLarge);
    check(Case::default().adds("a", &b"\n".repeat(MOST_LINES + 1)), &Body::TooLarge);
    let mut lost = Case::default().removes("a", b"text\n");
    lost.host.clear();
    check(lost, &Body::Lost(Vec::new()));
    let mut unreadable = Case::default().adds("a", b"text\n");
    unreadable.kept.clear();
    check(unreadable, &Body::Unreadable);
    let mut unknown = Case::default();
    let after = unknown.file(b"text\n", 0o644);
    let unknown = unknown.with("a", Before::Unknown, after);
    assert!(matches!(&unknown.look().1[..], [Body::Lost(hunks)] if hunks.len() == 1), "all of the new one");
    assert_eq!(Case::default().removes("a", b"text\n").look().1[0].lines(), (0, 1), "the twin");
}

#[test]
fn f23_many_removed_and_added_files_take_bounded_time() {
    let mut case = Case::default();
    for index in 0..1_500 {
        let text: Vec<u8> = (0..200).flat_map(|line| format!("{line} {}\n", line * index % 7).into_bytes()).collect();
        case = case.adds(&format!("a{index}"), &text);
        case = case.removes(&format!("b{index}"), &[&text[..], b"x"].concat());
    }
    let began = std::time::Instant::now();
    let (rows, _) = case.look();
    let pairs = rows.iter().filter(|row| row.from.is_some()).count();
    assert_eq!(rows.len() + pairs, case.changes.len());
    assert!(began.elapsed() < std::time::Duration::from_secs(30), "{:?}", began.elapsed());
}

proptest! {
    #[test]
    fn any_set_lists_each_change_exactly_once(
        changes in proptest::collection::vec(
            ("[ab/]{1,4}", 0u8..6, 0u8..6, prop_oneof![Just(b"one\ntwo\n".to_vec()), Just(b"one\ntwo\n3\n".to_vec()),
                proptest::collection::vec(any::<u8>(), 0..30)]), 0..14)
    ) {
        let mut case = Case::default();
        for (place, before, after, bytes) in changes {
            let Ok(place) = Place::new(&place) else { continue };
            let id = case.keep(&bytes);
            let before = match before {
                0 => Before::Nothing,
                1 => Before::Unknown,
                2 => was(WasKind::Folder, 0),
                3 => was(WasKind::Link("x".into()), 0),
                4 => was(WasKind::File(None), bytes.len()),
                _ => was(WasKind::File(Some(id)), bytes.len()),
            };
            let after = match after {
                0 | 1 => None,
                2 => Some(Node::Folder { mode: 0 }),
                3 => Some(Node::Link { target: OsString::from_vec(bytes.clone()) }),
                4 => Some(Node::Other(OtherKind::Socket)),
                _ => case.file(&bytes, 0o644),
            };
            case.host.insert(place.clone(), bytes);
            case.changes.push(Change { place, before, after });
        }
        let (rows, bodies) = case.look();
        prop_assert_eq!(rows.len(), bodies.len());
        let mut listed: Vec<usize> = rows.iter().flat_map(|row| [Some(row.change), row.from]).flatten().collect();
        listed.sort_unstable();
        prop_assert_eq!(listed, (0..case.changes.len()).collect::<Vec<_>>());
    }
}
