//! A workspace that goes to a guest's folder and comes back, and guests that lie.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{ffi::OsString, io};

use proptest::prelude::*;
use ringfence_guest::far::{FarOrder, FarReport, MOST_FAR_REPORT, Node, OtherKind, What};
use ringfence_guest::nodes::MOST_ENTRIES;
use ringfence_guest::protocol::{HEADER, decode, encode};
use ringfence_guest::workspace::Workspace;

use super::*;
use crate::run_id::RunId;
use crate::scratch::Scratch;
use crate::state::StateFolder;
use crate::workspace::change::{self, Before, Change, Moment, WasKind};
use crate::workspace::copy::{Manifest, Owners, copy};
use crate::workspace::harvest::{Bounds, harvest};
use crate::workspace::layer::{Life, Lower, PrivateLayer};
use crate::workspace::objects::{ObjectId, Objects};

const PLENTY: u64 = 1 << 28;

/// A workspace, its private copy, and the folder of a guest.
struct Made {
    home: tempfile::TempDir,
    scratch: Option<Scratch>,
    manifest: Option<Manifest>,
    guest: Option<Workspace>,
}

impl Drop for Made {
    fn drop(&mut self) {
        drop(self.scratch.take());
        // Folders that are closed are not removed with the one that they are in.
        for name in ["work", "guest"] {
            crate::remove_tree::remove_tree(&self.home.path().join(name)).ok();
        }
    }
}

impl Made {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        for name in ["work", "guest"] {
            fs::create_dir(home.path().join(name)).unwrap();
        }
        let state = StateFolder::prepare(home.path().join("state")).unwrap();
        let scratch = Scratch::create(&state, &RunId::generate().unwrap()).unwrap();
        fs::create_dir(scratch.path().join("copy")).unwrap();
        Self { home, scratch: Some(scratch), manifest: None, guest: None }
    }

    fn work(&self, name: &str) -> PathBuf {
        self.home.path().join("work").join(name)
    }

    fn inside(&self, name: &str) -> PathBuf {
        self.home.path().join("guest").join(name)
    }

    fn copy(&self, name: &str) -> PathBuf {
        self.scratch.as_ref().unwrap().path().join("copy").join(name)
    }

    /// Copies the workspace, and fills the guest with the copy, over the wire.
    fn begin(&mut self, denied: &[&str]) {
        let (from, to) = (File::open(self.work("")).unwrap(), File::open(self.copy("")).unwrap());
        let is_denied = |path: &Path, _| denied.iter().any(|denied| Path::new(denied) == path);
        self.manifest = Some(copy(from.as_fd(), to.as_fd(), PLENTY, Owners::Ours, is_denied).unwrap());
        let mut guest = Workspace::new(self.inside("").as_os_str()).unwrap();
        for batch in nodes(to.as_fd()) {
            let frame = encode(&FarOrder::Make(batch.unwrap()), MOST_FAR_REPORT).unwrap();
            let FarOrder::Make(batch) = decode(&frame[HEADER..]).unwrap() else { panic!() };
            guest.make(batch).unwrap();
        }
        guest.made().unwrap();
        self.guest = Some(guest);
        // As after a while: what is written next is stamped later.
        std::thread::sleep(std::time::Duration::from_millis(12));
    }

    fn taking(&self) -> Taking {
        Taking::new(File::open(self.copy("")).unwrap().into(), PLENTY, MOST_ENTRIES)
    }

    /// Takes what differs into the copy; at most so many nodes of each message, and then the wire breaks.
    fn collect(&mut self, breaks_after: Option<usize>) -> io::Result<()> {
        let mut taking = self.taking();
        let collected = self.guest.as_mut().unwrap().collect(&mut |nodes| {
            let frame = encode(&FarReport::Differs(nodes), MOST_FAR_REPORT).unwrap();
            let FarReport::Differs(mut nodes) = decode(&frame[HEADER..]).unwrap() else { panic!() };
            nodes.truncate(breaks_after.unwrap_or(usize::MAX));
            taking.take(nodes).unwrap();
            breaks_after.map_or(Ok(()), |_| Err(io::ErrorKind::BrokenPipe.into()))
        });
        taking.finish().unwrap();
        collected.map(drop)
    }

    fn objects(&self) -> Objects {
        Objects::at(self.home.path().join("objects"))
    }

    fn changes(&mut self) -> Vec<Change> {
        let (from, to) = (File::open(self.work("")).unwrap(), File::open(self.copy("")).unwrap());
        let manifest = self.manifest.take().unwrap();
        let lower = Lower::new(from.into(), self.work(""), manifest.left_out().to_vec(), Vec::new()).unwrap();
        let layer = PrivateLayer::copy(to.into(), lower, manifest, self.scratch.take().unwrap(), Life::Over);
        harvest(&layer, Bounds { began: Moment::now(), most_bytes: PLENTY }, &self.objects()).unwrap()
    }

    #[track_caller]
    fn check(mut self, expected: &[&str]) -> Vec<Change> {
        self.collect(None).unwrap();
        let changes = self.changes();
        let listed: Vec<String> = changes.iter().map(described).collect();
        assert_eq!(listed, expected);
        changes
    }
}

fn put_file(path: &Path, text: impl AsRef<[u8]>) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    chmod(path, 0o644);
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn described(change: &Change) -> String {
    let before = match &change.before {
        Before::Nothing => "nothing",
        Before::Unknown => "unknown",
        Before::Was(was) => match &was.kind {
            WasKind::File(_) => "file",
            WasKind::Link(_) => "link",
            WasKind::Folder => "folder",
            WasKind::Other(_) => "other",
        },
    };
    let after = match &change.after {
        None => "nothing".to_owned(),
        Some(change::Node::File { size, mode, .. }) => format!("file {mode:o} of {size}"),
        Some(change::Node::Link { target }) => format!("link to {}", target.display()),
        Some(change::Node::Folder { mode }) => format!("folder {mode:o}"),
        Some(change::Node::Other(kind)) => format!("{kind:?}"),
    };
    format!("{}: {before} -> {after}", change.place.as_path().display())
}

#[test]
fn a_workspace_that_nobody_touched_in_its_guest_has_no_changes() {
    let mut made = Made::new();
    put_file(&made.work("d/e/f"), "f");
    put_file(&made.work("empty"), "");
    put_file(&made.work("large"), vec![7u8; 200_000]);
    put_file(&made.work("d/closed"), "x");
    symlink("d/e", made.work("link")).unwrap();
    chmod(&made.work("d/closed"), 0o4444);
    chmod(&made.work("d"), 0o555);
    made.begin(&[]);
    assert_eq!(made.manifest.as_ref().unwrap().bytes(), 200_002);
    assert_eq!(fs::read(made.inside("large")).unwrap(), vec![7u8; 200_000]);
    assert_eq!(fs::read_link(made.inside("link")).unwrap(), Path::new("d/e"));
    let [closed, folder] = ["d/closed", "d"].map(|name| fs::metadata(made.inside(name)).unwrap().mode() & 0o7777);
    assert_eq!((closed, folder), (0o444, 0o555));
    let time = |path: PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    assert_eq!(time(made.inside("d/e/f")), time(made.work("d/e/f")));
    for name in ["work", "guest"] {
        chmod(&made.home.path().join(name).join("d"), 0o755);
    }
    chmod(&made.inside("d"), 0o555);
    let inside = made.inside("d");
    made.check(&[]);
    drop(inside);
}

#[test]
fn every_kind_of_change_in_a_guest_is_listed_as_if_the_program_had_worked_in_the_copy() {
    let mut made = Made::new();
    for (name, text) in [
        ("changed", "one"),
        ("same", "same"),
        ("mode", "m"),
        ("gone", "g"),
        ("d/e/f", "f"),
        ("to-link", "l"),
        ("to-folder", "f"),
        ("folder/x", "x"),
        ("moved/a/b", "m"),
        ("grown", "1"),
        ("closed", "c"),
        ("readonly/x", "x"),
        ("readonly/y", "y"),
    ] {
        put_file(&made.work(name), text);
    }
    symlink("a", made.work("link")).unwrap();
    symlink("a", made.work("link-to-folder")).unwrap();
    chmod(&made.work("readonly"), 0o555);
    made.begin(&[]);
    chmod(&made.work("readonly"), 0o755);
    put_file(&made.inside("changed"), "two");
    put_file(&made.inside("same"), "same");
    put_file(&made.inside("new/deep"), "n");
    put_file(&made.inside("empty"), "");
    chmod(&made.inside("new"), 0o750);
    chmod(&made.inside("mode"), 0o755);
    fs::remove_file(made.inside("gone")).unwrap();
    fs::remove_dir_all(made.inside("d")).unwrap();
    for (name, target) in [("link", "b"), ("to-link", "/etc/passwd"), ("folder", "d")] {
        fs::remove_file(made.inside(name)).or_else(|_| fs::remove_dir_all(made.inside(name))).unwrap();
        symlink(target, made.inside(name)).unwrap();
    }
    for name in ["to-folder", "link-to-folder"] {
        fs::remove_file(made.inside(name)).unwrap();
        fs::create_dir(made.inside(name)).unwrap();
        chmod(&made.inside(name), 0o700);
    }
    put_file(&made.inside("link-to-folder/in"), "i");
    fs::rename(made.inside("moved"), made.inside("renamed")).unwrap();
    fs::hard_link(made.inside("same"), made.inside("second")).unwrap();
    put_file(&made.inside("grown"), "12");
    put_file(&made.inside("closed"), "now closed");
    chmod(&made.inside("closed"), 0o000);
    // In a folder that may not be written, and is again not.
    chmod(&made.inside("readonly"), 0o755);
    put_file(&made.inside("readonly/x"), "xx");
    chmod(&made.inside("readonly"), 0o555);
    put_file(&made.inside("special"), "s");
    chmod(&made.inside("special"), 0o4755);
    rustix::fs::mknodat(rustix::fs::CWD, made.inside("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    let modified = fs::metadata(made.inside("changed")).unwrap();
    let changes = made.check(&[
        "changed: file -> file 644 of 3",
        "closed: file -> file 0 of 10",
        "d: folder -> nothing",
        "d/e: folder -> nothing",
        "d/e/f: file -> nothing",
        "empty: nothing -> file 644 of 0",
        "folder: folder -> link to d",
        "folder/x: file -> nothing",
        "gone: file -> nothing",
        "grown: file -> file 644 of 2",
        "link: link -> link to b",
        "link-to-folder: link -> folder 700",
        "link-to-folder/in: nothing -> file 644 of 1",
        "mode: file -> file 755 of 1",
        "moved: folder -> nothing",
        "moved/a: folder -> nothing",
        "moved/a/b: file -> nothing",
        "new: nothing -> folder 750",
        "new/deep: nothing -> file 644 of 1",
        "pipe: nothing -> Pipe",
        "readonly/x: file -> file 644 of 2",
        "renamed: nothing -> folder 755",
        "renamed/a: nothing -> folder 755",
        "renamed/a/b: nothing -> file 644 of 1",
        "second: nothing -> file 644 of 4",
        "special: nothing -> file 4755 of 1",
        "to-folder: file -> folder 700",
        "to-link: file -> link to /etc/passwd",
    ]);
    let Some(change::Node::File { content, modified: told, .. }) = &changes[0].after else { panic!() };
    assert_eq!(*content, ObjectId::of(b"two"));
    assert_eq!((told.seconds, i64::from(told.nanoseconds)), (modified.mtime(), modified.mtime_nsec()));
}

#[test]
fn f11_what_was_denied_does_not_go_to_a_guest_and_is_not_removed_with_its_folder() {
    let mut made = Made::new();
    put_file(&made.work("d/.env"), "secret");
    put_file(&made.work("d/x"), "x");
    made.begin(&["d/.env"]);
    assert!(!made.inside("d/.env").exists() && made.inside("d/x").exists());
    fs::remove_dir_all(made.inside("d")).unwrap();
    made.check(&["d: folder -> nothing", "d/x: file -> nothing"]);
}

#[test]
fn f22_f23_odd_names_deep_folders_and_holes_come_back_as_they_were() {
    let mut made = Made::new();
    let odd = OsString::from_vec(b"a\nb\x1b[31m\xff\\[x]".to_vec());
    fs::write(made.work("").join(&odd), "odd").unwrap();
    let hole = File::create(made.work("hole")).unwrap();
    hole.set_len(64 << 20).unwrap();
    made.begin(&[]);
    let blocks = |path: PathBuf| fs::metadata(path).unwrap().blocks() * 512;
    assert!(blocks(made.inside("hole")) < 1 << 20);
    fs::write(made.inside("").join(&odd), "now").unwrap();
    let hole = File::create(made.inside("hole-too")).unwrap();
    hole.set_len((64 << 20) + 1).unwrap();
    std::os::unix::fs::FileExt::write_at(&hole, b"middle", 32 << 20).unwrap();
    let deep = "deep/".repeat(300);
    fs::create_dir_all(made.inside(&deep)).unwrap();
    put_file(&made.inside(&deep).join("file"), "at the bottom");
    made.collect(None).unwrap();
    assert!(blocks(made.copy("hole-too")) < 1 << 20, "holes stay holes");
    assert_eq!(fs::read(made.copy("hole-too")).unwrap(), fs::read(made.inside("hole-too")).unwrap());
    assert_eq!(fs::read(made.copy(&deep).join("file")).unwrap(), b"at the bottom");
    let changes = made.changes();
    assert_eq!(changes.len(), 303);
    assert!(changes.iter().any(|change| change.place.as_path().as_os_str().as_bytes() == odd.as_bytes()));
}

#[test]
fn many_files_travel_in_many_messages() {
    let mut made = Made::new();
    for number in 0..1500 {
        put_file(&made.work(&format!("{}/{number}", number % 7)), vec![1u8; number]);
    }
    made.begin(&[]);
    for number in (0..1500).step_by(3) {
        put_file(&made.inside(&format!("{}/{number}", number % 7)), vec![2u8; number + 1]);
    }
    made.collect(None).unwrap();
    assert_eq!(made.changes().len(), 500);
}

/// What a guest may say to a copy with a file `f`, a folder `d` with a file in it, and a link `out` to a folder outside.
#[track_caller]
fn told(nodes: Vec<Node>) -> Result<Made, TakeError> {
    told_within(nodes, 1000, 20)
}

#[track_caller]
fn told_within(nodes: Vec<Node>, most_bytes: u64, most_entries: usize) -> Result<Made, TakeError> {
    let mut made = Made::new();
    let outside = made.home.path().join("outside");
    put_file(&outside.join("canary"), "of the host");
    put_file(&made.copy("f"), "f");
    put_file(&made.copy("d/inner"), "inner");
    symlink(&outside, made.copy("out")).unwrap();
    let mut taking = Taking::new(File::open(made.copy("")).unwrap().into(), most_bytes, most_entries);
    let taken = taking.take(nodes);
    assert_eq!(fs::read(outside.join("canary")).unwrap(), b"of the host");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "nothing is made outside");
    assert_eq!(fs::read_dir(made.home.path()).unwrap().count(), 4, "nothing is made beside");
    if taken.is_err() {
        assert!(matches!(taking.take(Vec::new()), Err(TakeError::GivenUp)));
        assert!(matches!(taking.finish(), Err(TakeError::GivenUp)));
    } else {
        taking.finish()?;
    }
    made.guest = None;
    taken.map(|()| made)
}

fn node(path: &str, what: What) -> Node {
    Node { path: path.into(), what }
}

fn file(path: &str, text: &str) -> Node {
    node(path, What::File { mode: 0o644, modified: (1, 2), bytes: text.as_bytes().to_vec() })
}

fn link(path: &str, target: &str) -> Node {
    node(path, What::Link { target: target.into() })
}

fn folder(path: &str) -> Node {
    node(path, What::Folder { mode: 0o755 })
}

#[test]
fn f02_nothing_is_taken_outside_of_the_copy_or_through_a_link() {
    let root = OsString::from("/tmp/ringfence-never");
    for path in ["../a", "d/../../a", "/a", "", ".", "d/./a", "d//a", "d/", "a\0b", &"x".repeat(256)] {
        let taken = told(vec![file(path, "x")]);
        assert!(matches!(taken, Err(TakeError::NotAPlace { .. })), "{path:?}");
    }
    assert!(matches!(told(vec![Node { path: root, what: What::Gone }]), Err(TakeError::NotAPlace { .. })));
    told(vec![file("d/a", "x")]).unwrap();
    for nodes in [
        vec![file("out/a", "x")],
        vec![node("out/canary", What::Gone)],
        vec![folder("out/d")],
        vec![link("out/l", "x")],
        vec![node("out/n", What::Name { of: "f".into() })],
        vec![node("out/n", What::Other { kind: OtherKind::Pipe })],
        // Links that it makes itself, and a folder that it exchanges for one after something was put into it.
        vec![link("l", ".."), file("l/a", "x")],
        vec![link("l", "d"), file("l/a", "x")],
        vec![file("d/a", "x"), link("d", "out"), file("d/b", "x")],
        vec![file("f/a", "x")],
        vec![file("no/a", "x")],
        vec![node("no/a", What::Gone)],
    ] {
        let taken = told(nodes.clone());
        assert!(matches!(taken, Err(TakeError::NoFolder { .. })), "{nodes:?}: {taken:?}", taken = taken.map(drop));
    }
    let made = told(vec![node("out", What::Gone), folder("out"), file("out/a", "x")]).unwrap();
    assert_eq!(fs::read(made.copy("out/a")).unwrap(), b"x", "the twin: a folder of its own");
    let made = told(vec![file("out", "x")]).unwrap();
    assert_eq!(fs::read(made.copy("out")).unwrap(), b"x", "the link is replaced, not what it leads to");
    let made = told(vec![node("out", What::Folder { mode: 0o700 })]).unwrap();
    assert!(fs::symlink_metadata(made.copy("out")).unwrap().is_dir());
}

#[test]
fn f11_another_name_is_one_of_a_file_of_the_copy_or_nothing() {
    let name = |of: &str| node("n", What::Name { of: of.into() });
    for of in ["out", "d", "no", "../outside/canary", "/etc/passwd", "n"] {
        assert!(matches!(told(vec![name(of)]), Err(TakeError::Meaningless { .. })), "{of}");
    }
    assert!(matches!(told(vec![name("out/canary")]), Err(TakeError::NoFolder { .. })));
    assert!(told(vec![node("d", What::Name { of: "d/inner".into() })]).is_err(), "it goes with its folder");
    for of in ["f", "d/inner"] {
        let made = told(vec![name(of)]).unwrap();
        assert_eq!(fs::metadata(made.copy("n")).unwrap().nlink(), 2, "the twin");
    }
    let made = told(vec![file("new", "new"), name("new")]).unwrap();
    assert_eq!(fs::read(made.copy("n")).unwrap(), b"new");
    // What is told of one name later does not reach the other.
    let made = told(vec![name("f"), file("f", "other")]).unwrap();
    assert_eq!(fs::read(made.copy("n")).unwrap(), b"f");
}

#[test]
fn pieces_and_holes_belong_to_the_file_that_was_sent_last() {
    let more = |path: &str| node(path, What::More { bytes: b"more".to_vec() });
    let hole = |path: &str| node(path, What::Hole { bytes: 4 });
    for nodes in [
        vec![more("f")],
        vec![hole("f")],
        vec![file("a", "a"), more("b")],
        vec![file("a", "a"), folder("b"), more("a")],
        vec![file("a", "a"), node("a", What::More { bytes: Vec::new() })],
        vec![file("a", "a"), node("a", What::Hole { bytes: 0 })],
        vec![link("a", "f"), more("a")],
    ] {
        assert!(matches!(told(nodes.clone()), Err(TakeError::Meaningless { .. })), "{nodes:?}");
    }
    let made = told(vec![file("a", "a"), more("a"), hole("a"), more("a"), hole("a")]).unwrap();
    assert_eq!(fs::read(made.copy("a")).unwrap(), b"amore\0\0\0\0more\0\0\0\0");
    let told = fs::metadata(made.copy("a")).unwrap();
    assert_eq!((told.mtime(), told.mtime_nsec(), told.mode() & 0o7777), (1, 2, 0o644));
}

#[test]
fn f23_more_bytes_holes_or_places_than_may_be_are_errors() {
    let sized = |bytes: u64| vec![file("a", "12345"), node("a", What::Hole { bytes })];
    told_within(sized(95), 100, 20).unwrap();
    for bytes in [96, 1 << 40, u64::MAX - 2, u64::MAX] {
        assert!(matches!(told_within(sized(bytes), 100, 20), Err(TakeError::TooMuch { most: 100 })), "{bytes}");
    }
    assert!(told_within(sized(u64::MAX - 5), u64::MAX, 20).is_err(), "no file is so long");
    let twice = vec![file("a", &"x".repeat(60)), file("a", &"x".repeat(60))];
    assert!(matches!(told_within(twice, 100, 20), Err(TakeError::TooMuch { .. })), "replaced is written, too");
    let many = |count: usize| (0..count).map(|number| node(&number.to_string(), What::Gone)).collect::<Vec<_>>();
    told_within(many(20), 100, 20).unwrap();
    assert!(matches!(told_within(many(21), 100, 20), Err(TakeError::TooMany { most: 20 })));
}

#[test]
fn what_no_guest_of_ours_says_is_refused() {
    let odd_file = |mode, nanoseconds| node("a", What::File { mode, modified: (0, nanoseconds), bytes: Vec::new() });
    for odd in [
        odd_file(0o10000, 0),
        odd_file(0o100_644, 0),
        odd_file(0o644, 1_000_000_000),
        node("a", What::Folder { mode: 0o40755 }),
        link("a", ""),
        link("a", "b\0c"),
        link("a", &"x".repeat(4096)),
    ] {
        assert!(matches!(told(vec![odd.clone()]), Err(TakeError::Meaningless { .. })), "{odd:?}");
    }
    for good in [odd_file(0o7777, 999_999_999), node("a", What::Folder { mode: 0o7777 }), link("a", &"x".repeat(4095))]
    {
        told(vec![good]).unwrap();
    }
}

#[test]
fn f17_a_file_with_special_bits_is_never_roots_and_devices_are_none() {
    let special = |mode| node("a", What::File { mode, modified: (0, 0), bytes: b"#!".to_vec() });
    let made = told(vec![special(0o6755)]).unwrap();
    let stat = fs::metadata(made.copy("a")).unwrap();
    assert_eq!(stat.mode() & 0o7777, 0o6755, "so that it is listed and flagged");
    assert_ne!(stat.uid(), 0);
    let made = told(vec![special(0o755)]).unwrap();
    assert_eq!(fs::metadata(made.copy("a")).unwrap().uid(), rustix::process::geteuid().as_raw(), "the twin");
    let made = told(vec![
        node("p", What::Other { kind: OtherKind::Pipe }),
        node("s", What::Other { kind: OtherKind::Socket }),
        node("c", What::Other { kind: OtherKind::Device }),
    ])
    .unwrap();
    assert_eq!(fs::symlink_metadata(made.copy("c")).unwrap().rdev(), 0);
    let opened = File::open(made.copy("c")).unwrap_err();
    assert!(matches!(opened.raw_os_error(), Some(6 | 13)), "{opened}");
}

#[test]
fn closed_folders_of_the_copy_are_written_and_closed_again() {
    let mut made = Made::new();
    put_file(&made.copy("a/b/file"), "x");
    for (name, mode) in [("a/b", 0o000), ("a", 0o100)] {
        chmod(&made.copy(name), mode);
    }
    let mut taking = made.taking();
    taking.take(vec![file("a/b/new", "new"), node("a/b/file", What::Gone), folder("x"), file("x/y", "")]).unwrap();
    taking.take(vec![node("x", What::Folder { mode: 0 })]).unwrap();
    taking.finish().unwrap();
    let mode = |made: &Made, name: &str| fs::metadata(made.copy(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode(&made, "a"), mode(&made, "x")), (0o100, 0));
    chmod(&made.copy("a"), 0o700);
    assert_eq!(mode(&made, "a/b"), 0);
    chmod(&made.copy("a/b"), 0o700);
    assert!(made.copy("a/b/new").exists() && !made.copy("a/b/file").exists());
    chmod(&made.copy("a/b"), 0);
    // Removed as a whole, and made anew: the old permissions are not given to the new folder.
    let mut taking = made.taking();
    taking.take(vec![file("a/b/more", ""), node("a", What::Gone), folder("a"), folder("a/b")]).unwrap();
    taking.finish().unwrap();
    assert_eq!((mode(&made, "a"), mode(&made, "a/b")), (0o755, 0o755));
    made.manifest = None;
}

/// One thing that a program does.
#[derive(Debug, Clone)]
enum Edit {
    Remove(usize),
    File(usize, u8),
    Sparse(usize, u8),
    Link(usize, u8),
    Folder(usize),
    Mode(usize, usize),
    Name(usize, usize),
    Rename(usize, usize),
}

const PLACES: [&str; 9] = ["a", "b", "a/a", "a/b", "b/a", "a/a/a", "a/a/b", "b/a/a", "b/b"];
const MODES: [u32; 3] = [0o755, 0o700, 0o711];

fn edit() -> impl Strategy<Value = Edit> {
    let place = || 0..PLACES.len();
    prop_oneof![
        2 => place().prop_map(Edit::Remove),
        3 => (place(), 0..3u8).prop_map(|(at, text)| Edit::File(at, text)),
        1 => (place(), 0..3u8).prop_map(|(at, text)| Edit::Sparse(at, text)),
        1 => (place(), 0..2u8).prop_map(|(at, target)| Edit::Link(at, target)),
        3 => place().prop_map(Edit::Folder),
        1 => (place(), 0..MODES.len()).prop_map(|(at, mode)| Edit::Mode(at, mode)),
        1 => (place(), place()).prop_map(|(at, of)| Edit::Name(at, of)),
        1 => (place(), place()).prop_map(|(at, from)| Edit::Rename(at, from)),
    ]
}

/// Does what can be done.
fn carry_out(root: &Path, edit: &Edit) {
    let at = |place: usize| root.join(PLACES[place]);
    let is_dir = |path: &Path| path.symlink_metadata().is_ok_and(|it| it.is_dir());
    let make_room = |place: usize| {
        let path = at(place);
        if is_dir(&path) {
            fs::remove_dir_all(&path).unwrap();
        } else if path.symlink_metadata().is_ok() {
            fs::remove_file(&path).unwrap();
        }
        is_dir(path.parent().unwrap())
    };
    match *edit {
        Edit::Remove(place) => drop(make_room(place)),
        // In place, where there is a file: all its names change.
        Edit::File(place, text) if at(place).symlink_metadata().is_ok_and(|it| it.is_file()) => {
            fs::write(at(place), text.to_string()).unwrap();
        }
        Edit::File(place, text) if make_room(place) => fs::write(at(place), text.to_string()).unwrap(),
        Edit::Sparse(place, text) if make_room(place) => {
            let file = File::create(at(place)).unwrap();
            file.set_len(100_000).unwrap();
            std::os::unix::fs::FileExt::write_at(&file, &[text], 70_000).unwrap();
        }
        Edit::Link(place, target) if make_room(place) => symlink(target.to_string(), at(place)).unwrap(),
        Edit::Folder(place) if !is_dir(&at(place)) && make_room(place) => fs::create_dir(at(place)).unwrap(),
        Edit::Mode(place, mode) if at(place).symlink_metadata().is_ok_and(|it| !it.is_symlink()) => {
            chmod(&at(place), MODES[mode]);
        }
        Edit::Name(place, of) if place != of && at(of).symlink_metadata().is_ok_and(|it| it.is_file()) => {
            let held = root.join("held");
            fs::hard_link(at(of), &held).unwrap();
            if make_room(place) {
                fs::hard_link(&held, at(place)).unwrap();
            }
            fs::remove_file(held).unwrap();
        }
        Edit::Rename(place, from)
            if !PLACES[place].starts_with(PLACES[from]) && at(from).symlink_metadata().is_ok() =>
        {
            let held = root.join("held");
            fs::rename(at(from), &held).unwrap();
            if make_room(place) {
                fs::rename(held, at(place)).unwrap();
            } else {
                fs::remove_dir_all(&held).or_else(|_| fs::remove_file(&held)).unwrap();
            }
        }
        _ => {}
    }
}

/// All below a folder, with permissions and without anything of ours in between.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let place = folder.join(entry.file_name());
            let stat = entry.metadata().unwrap();
            let mode = stat.mode() & 0o7777;
            let is = if stat.is_symlink() {
                format!("link {}", fs::read_link(entry.path()).unwrap().display())
            } else if stat.is_dir() {
                left.push(place.clone());
                format!("folder {mode:o}")
            } else {
                let content = ObjectId::of(&fs::read(entry.path()).unwrap());
                format!("file {mode:o} {content} of {} at {}", stat.size(), stat.mtime())
            };
            found.insert(place, is);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_a_program_does_the_copy_becomes_what_it_sees_and_the_list_says_so(
        origin in proptest::collection::vec(edit(), 0..12),
        rounds in proptest::collection::vec(
            (proptest::collection::vec(edit(), 0..8), proptest::option::weighted(0.4, 0..6usize)), 1..5),
    ) {
        let mut made = Made::new();
        for edit in &origin {
            carry_out(&made.work(""), edit);
        }
        let before = tree(&made.work(""));
        made.begin(&[]);
        prop_assert_eq!(&tree(&made.inside("")), &before);
        for (edits, breaks_after) in &rounds {
            for edit in edits {
                carry_out(&made.inside(""), edit);
            }
            let collected = made.collect(*breaks_after);
            if collected.is_ok() {
                prop_assert_eq!(tree(&made.copy("")), tree(&made.inside("")));
            }
        }
        made.collect(None).unwrap();
        let after = tree(&made.inside(""));
        prop_assert_eq!(&tree(&made.copy("")), &after);
        let changes = made.changes();
        let differs = |place: &PathBuf| {
            // Times alone are no change.
            let plain = |tree: &BTreeMap<PathBuf, String>| {
                tree.get(place).map(|is| is.split(" at ").next().unwrap_or_default().to_owned())
            };
            plain(&before) != plain(&after)
        };
        let mut expected: Vec<PathBuf> = before.keys().chain(after.keys()).filter(|it| differs(it)).cloned().collect();
        expected.sort();
        expected.dedup();
        let listed: Vec<PathBuf> = changes.iter().map(|change| change.place.as_path().to_owned()).collect();
        prop_assert_eq!(listed, expected);
        for change in &changes {
            prop_assert_eq!(change.after.is_some(), after.contains_key(change.place.as_path()));
            if let Some(change::Node::File { content, size, mode, .. }) = &change.after {
                let is = format!("file {mode:o} {content} of {size}");
                prop_assert!(after[change.place.as_path()].starts_with(&is), "{:?}", change);
            }
        }
        prop_assert_eq!(&tree(&made.work("")), &before, "the origin is as it was");
    }
}

impl Made {
    /// What differs, as often as it is asked for.
    fn looked_at(&mut self) -> Vec<Change> {
        self.collect(None).unwrap();
        let (from, to) = (File::open(self.work("")).unwrap(), File::open(self.copy("")).unwrap());
        let manifest = std::sync::Arc::new(self.manifest.take().unwrap());
        let lower = Lower::new(from.into(), self.work(""), manifest.left_out().to_vec(), Vec::new()).unwrap();
        let layer = PrivateLayer::copy(to.into(), lower, std::sync::Arc::clone(&manifest), (), Life::Rests);
        let changes = harvest(&layer, Bounds { began: Moment::now(), most_bytes: PLENTY }, &self.objects()).unwrap();
        drop(layer);
        self.manifest = std::sync::Arc::into_inner(manifest);
        changes
    }

    /// Has the guest put back what leads from one state to another, over the wire.
    fn put_back(&mut self, changes: &[Change]) -> io::Result<()> {
        let objects = self.objects();
        let steps: Vec<_> = changes.iter().map(|change| (&change.place, change.after.as_ref())).collect();
        let nodes = put_nodes(&steps, &objects)?.collect::<io::Result<Vec<Node>>>()?;
        let guest = self.guest.as_mut().unwrap();
        for node in nodes {
            let frame = encode(&FarOrder::Make(vec![node]), MOST_FAR_REPORT).unwrap();
            let FarOrder::Make(batch) = decode(&frame[HEADER..]).unwrap() else { panic!() };
            guest.put(batch)?;
        }
        guest.put_all()
    }
}

#[test]
fn a_copy_that_is_looked_at_again_and_again_says_the_same_and_an_earlier_state_comes_back() {
    let mut made = Made::new();
    for name in ["kept", "shut/in", "folder/leaf"] {
        put_file(&made.work(name), name);
    }
    made.begin(&[]);
    put_file(&made.inside("shut/in"), "changed");
    chmod(&made.inside("shut"), 0o500);
    let one = made.looked_at();
    assert_eq!(one.iter().map(described).collect::<Vec<_>>().len(), 2, "{one:?}");
    assert_eq!(made.looked_at(), one, "a look changes nothing");
    chmod(&made.inside("shut"), 0o700);
    fs::remove_dir_all(made.inside("folder")).unwrap();
    symlink("/tmp", made.inside("folder")).unwrap();
    put_file(&made.inside("shut/in"), vec![7; 100_000]);
    put_file(&made.inside("new/a/b"), "new");
    let two = made.looked_at();
    assert_ne!(two, one);
    struct Host<'a>(&'a Made);
    impl crate::workspace::between::Beneath for Host<'_> {
        type Error = io::Error;

        fn node(&mut self, place: &change::Place) -> io::Result<Option<change::Node>> {
            let path = self.0.work(place.as_path().to_str().unwrap());
            let Ok(is) = fs::symlink_metadata(&path) else { return Ok(None) };
            let mode = is.mode() & 0o7777;
            if is.is_dir() {
                return Ok(Some(change::Node::Folder { mode }));
            }
            let (content, size) = self.0.objects().add(&mut File::open(&path)?, PLENTY)?;
            let modified = Moment { seconds: is.mtime(), nanoseconds: u32::try_from(is.mtime_nsec()).unwrap() };
            Ok(Some(change::Node::File { content, size, mode, modified }))
        }
    }
    let back = crate::workspace::between::between(&two, &one, &mut Host(&made)).unwrap();
    made.put_back(&back).unwrap();
    let now = made.looked_at();
    let left = crate::workspace::between::between(&now, &one, &mut Host(&made)).unwrap();
    assert!(left.is_empty(), "{left:?}");
    // What is not there any more is noticed before anything is done.
    let lost = change::Node::File { content: ObjectId::of(b"lost"), size: 4, mode: 0o644, modified: Moment::now() };
    let lost = Change { place: change::Place::new("kept").unwrap(), before: Before::Nothing, after: Some(lost) };
    assert!(made.put_back(&[lost]).is_err());
    assert_eq!(made.looked_at(), now, "the twin");
}
