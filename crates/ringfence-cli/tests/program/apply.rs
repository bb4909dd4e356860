//! `apply` and `undo`, with sets that are made by hand.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ringfence::workspace::beneath::{FoundKind, Held};
use ringfence::workspace::change::{Moment, WasKind};
use ringfence::workspace::kept::{self, Kept};
use ringfence::workspace::{Before, Change, ChangeSet, Node, Place, Was};
use ringfence::{RunId, StateFolder};

use crate::stage::{Ended, Stage};

const THEN: Moment = Moment { seconds: 1_600_000_000, nanoseconds: 5 };

/// A set for the workspace of a stage.
struct Made {
    kept: Kept,
    set: ChangeSet,
}

impl Made {
    fn new(stage: &Stage) -> Self {
        let state = StateFolder::prepare(stage.state()).unwrap();
        let run_id = RunId::generate().unwrap();
        let workspace = stage.work().canonicalize().unwrap();
        let metadata = fs::metadata(&workspace).unwrap();
        let set = ChangeSet {
            run_id: run_id.clone(),
            workspace,
            workspace_is: (metadata.dev(), metadata.ino()),
            subject: "make \x1b[2J".to_owned(),
            deny: Vec::new(),
            protect: Vec::new(),
            own: Vec::new(),
            size: u64::MAX,
            began: THEN,
            ended: THEN,
            changes: Vec::new(),
        };
        Self { kept: kept::of(&state, &run_id), set }
    }

    fn run(&self) -> &str {
        self.set.run_id.as_str()
    }

    fn change(mut self, path: impl AsRef<Path>, after: Option<Node>) -> Self {
        let place = Place::new(path.as_ref()).unwrap();
        let host = Held::open(&self.set.workspace, self.set.workspace_is).unwrap();
        let before = match host.look(&place).unwrap() {
            None => Before::Nothing,
            Some(found) => {
                let kind = match found.kind {
                    FoundKind::Folder => WasKind::Folder,
                    FoundKind::Link(target) => WasKind::Link(target),
                    FoundKind::Other(kind) => WasKind::Other(kind),
                    FoundKind::File => {
                        let bytes = fs::read(self.set.workspace.join(place.as_path())).unwrap();
                        WasKind::File(Some(self.kept.objects().add(&mut bytes.as_slice(), u64::MAX).unwrap().0))
                    }
                };
                Before::Was(Was { kind, mode: found.mode, stamp: found.stamp })
            }
        };
        self.set.changes.push(Change { place, before, after });
        self
    }

    fn file(self, path: impl AsRef<Path>, text: &str) -> Self {
        let (content, size) = self.kept.objects().add(&mut text.as_bytes(), u64::MAX).unwrap();
        self.change(path, Some(Node::File { content, size, mode: 0o600, modified: THEN }))
    }

    fn folder(self, path: impl AsRef<Path>) -> Self {
        self.change(path, Some(Node::Folder { mode: 0o750 }))
    }

    fn link(self, path: impl AsRef<Path>, target: &str) -> Self {
        self.change(path, Some(Node::Link { target: target.into() }))
    }

    fn gone(self, path: impl AsRef<Path>) -> Self {
        self.change(path, None)
    }

    fn keep(mut self) -> Self {
        self.set.changes.sort_by(|one, other| one.place.cmp(&other.place));
        self.kept.keep(&self.set).unwrap();
        self
    }
}

/// All of a tree: permissions, contents or target, and the time of files.
fn picture(folder: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>, i64)> {
    let mut all = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let seen = if metadata.is_dir() {
                left.push(path.clone());
                (metadata.mode(), Vec::new(), 0)
            } else if metadata.is_symlink() {
                (metadata.mode(), fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec(), 0)
            } else {
                (metadata.mode(), fs::read(&path).unwrap(), metadata.mtime_nsec() + metadata.mtime())
            };
            all.insert(path, seen);
        }
    }
    all
}

fn apply(stage: &Stage, words: &[&str]) -> Ended {
    stage.ringfence([&["apply"], words].concat()).run()
}

fn undo(stage: &Stage, words: &[&str]) -> Ended {
    stage.ringfence([&["undo"], words].concat()).run()
}

#[test]
fn a_set_is_applied_listed_and_taken_back() {
    let stage = Stage::new();
    stage.write("changed", "old");
    stage.write("gone", "old");
    let before = picture(&stage.work());
    let made = Made::new(&stage).file("changed", "new").gone("gone").folder("made").file("made/file", "new").keep();
    let dry = apply(&stage, &["last", "--dry-run"]).expect(0, &[]);
    assert_eq!(
        dry.text(),
        "change  changed  (permissions 644 to 600)\nremove  gone\nadd     made\nadd     made/file\n4 to apply, 0 left\n"
    );
    assert_eq!(picture(&stage.work()), before, "a dry run changes nothing");
    let done = apply(&stage, &[&made.run()[..12]]).expect(0, &[]);
    assert_eq!(done.text(), "done    changed\ndone    gone\ndone    made\ndone    made/file\n4 applied, 0 left\n");
    assert_eq!(stage.read("changed").as_deref(), Some("new"));
    let again = apply(&stage, &["last", "--json"]).expect(0, &[]).json();
    assert_eq!(again["same"].as_array().unwrap().len(), 4);
    let listed = undo(&stage, &["--list"]).expect(0, &[]).text();
    assert!(
        listed.contains(made.run()) && listed.contains("applied") && listed.contains("make \\x1b[2J"),
        "{listed:?}"
    );
    let undone = undo(&stage, &["--json"]).expect(0, &[]).json();
    assert_eq!(undone["changed"].as_array().unwrap().len(), 4);
    assert_eq!(picture(&stage.work()), before);
    let listed = undo(&stage, &["--list", "--json"]).expect(0, &[]).json();
    assert!(listed.as_array().unwrap().iter().any(|row| row["takenBack"] == true));
    undo(&stage, &[]).expect(125, &["nothing is left to take back", "--list"]);
    let kinds = stage.ringfence(["log", "show", made.run()]).run().expect(0, &[]).text();
    assert!(kinds.contains("applied") && kinds.contains("undone"), "{kinds}");
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
}

#[test]
fn what_is_left_makes_the_exit_code_and_says_what_to_do() {
    let stage = Stage::new();
    stage.write("both", "1\n");
    let odd = OsStr::from_bytes(b"odd\n\x1b[2J\xff");
    Made::new(&stage).file("both", "2\n").file("fine", "x").file(odd, "x").keep();
    stage.write("both", "3\n");
    fs::write(stage.work().join(odd), "host").unwrap();
    let ended = apply(&stage, &["last"]).expect(1, &[]);
    let text = ended.text();
    assert!(text.contains("left    both: the host changed the same lines meanwhile\n        look at both"), "{text}");
    assert!(text.contains("left    \"odd\\n\\u{1b}[2J\\xFF\": the host made something else"), "{text}");
    assert!(text.ends_with("1 applied, 2 left\n"), "{text}");
    assert_eq!(stage.read("both").as_deref(), Some("3\n"));
    let json = apply(&stage, &["last", "--json"]).expect(1, &[]).json();
    assert_eq!(json["left"][0]["why"], "conflict");
    assert!(json["left"][1]["pathBase64"].is_string());
}

#[test]
fn names_that_mean_nothing_are_errors_with_what_to_write() {
    let stage = Stage::new();
    apply(&stage, &["last"]).expect(125, &["no changes are kept"]);
    undo(&stage, &[]).expect(125, &["nothing was applied"]);
    Made::new(&stage).file("src.rs", "x").keep();
    apply(&stage, &["zzz"]).expect(125, &["no changes are kept of a run that begins with `zzz`", "ringfence changes"]);
    apply(&stage, &["last", "scr.rs"]).expect(125, &["did you mean \"src.rs\"?"]);
    apply(&stage, &["-i", "last"]).expect(125, &["there is nobody to ask"]);
    assert_eq!(stage.read("src.rs"), None);
    apply(&stage, &["last", "*.rs"]).expect(0, &[]);
    assert_eq!(stage.read("src.rs").as_deref(), Some("x"));
}

#[test]
fn f03_another_workspace_at_the_same_path_is_refused() {
    let stage = Stage::new();
    let made = Made::new(&stage).file("a", "x").keep();
    let moved = stage.path().join("moved");
    fs::rename(stage.work(), &moved).unwrap();
    symlink(&moved, stage.work()).unwrap();
    apply(&stage, &[made.run()]).expect(125, &["is another folder now"]);
    assert_eq!(fs::read_dir(&moved).unwrap().count(), 0);
    fs::remove_file(stage.work()).unwrap();
    fs::rename(&moved, stage.work()).unwrap();
    apply(&stage, &[made.run()]).expect(0, &[]);
}

/// Types `answers` at a terminal, one for each question; says how it ended and what was on the screen.
fn answered(stage: &Stage, words: &[&str], answers: &[&str]) -> (Option<i32>, String) {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let ours = openpt(flags).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = ioctl_tiocgptpeer(&ours, flags).unwrap();
    let mut child = stage
        .ringfence(words)
        .stdin_from(theirs.try_clone().unwrap())
        .stderr(theirs.try_clone().unwrap())
        .stdout(theirs)
        .start();
    let mut screen = fs::File::from(ours);
    let (mut seen, mut piece, mut asked) = (String::new(), [0u8; 1024], 0);
    // The terminal is gone, and reading fails, when the command has ended.
    while let Ok(read @ 1..) = screen.read(&mut piece) {
        seen.push_str(&String::from_utf8_lossy(&piece[..read]));
        while seen.matches("/no").count() > asked && seen.trim_end().ends_with(']') {
            screen.write_all(format!("{}\n", answers.get(asked).unwrap_or(&"")).as_bytes()).unwrap();
            asked += 1;
        }
    }
    assert_eq!(asked, answers.len(), "{seen}");
    (child.wait().unwrap().code(), seen)
}

#[test]
fn at_a_terminal_a_person_is_asked_for_all_or_for_each() {
    let stage = Stage::new();
    stage.write("a", "old\n");
    let made = Made::new(&stage).file("a", "n\x1b[2Jew\n").file("b", "new").file("c", "new").file("d", "new").keep();
    let (code, seen) = answered(&stage, &["apply", made.run()], &["no"]);
    assert!(code == Some(1) && seen.contains("apply 4 changes") && seen.contains("nothing was changed"), "{seen}");
    assert_eq!(stage.read("a").as_deref(), Some("old\n"));
    let (code, seen) = answered(&stage, &["apply", "-i", made.run()], &["difference", "y", "n", "what", "quit"]);
    assert_eq!(code, Some(0), "{seen}");
    assert!(seen.contains("-old\r\n+n\\x1b[2Jew\r\n") && !seen.contains('\x1b'), "{seen}");
    let there = ["a", "b", "c", "d"].map(|name| stage.read(name).is_some_and(|text| text != "old\n"));
    assert_eq!(there, [true, false, false, false]);
    let (code, seen) = answered(&stage, &["apply", "-i", made.run()], &["n", "all"]);
    assert!(code == Some(0) && stage.read("b").is_none() && stage.read("d").is_some(), "{seen}");
    let (code, seen) = answered(&stage, &["undo"], &["yes"]);
    assert!(code == Some(0) && seen.contains("take back 2 changes"), "{seen}");
    assert!(stage.read("d").is_none() && stage.read("a").as_deref() != Some("old\n"));
}

/// Old or new, for every file and link; folders by their kind. Ours that lie aside are for the next to remove.
fn check_each_is_old_or_new(
    stage: &Stage,
    old: &BTreeMap<PathBuf, (u32, Vec<u8>, i64)>,
    new: &BTreeMap<PathBuf, (u32, Vec<u8>, i64)>,
    context: &str,
) {
    let now = picture(&stage.work());
    let mut paths: Vec<&PathBuf> = old.keys().chain(new.keys()).chain(now.keys()).collect();
    paths.sort();
    paths.dedup();
    for path in paths {
        let aside = path.file_name().unwrap().as_bytes().starts_with(b".ringfence-");
        let is_folder = |seen: &(u32, Vec<u8>, i64)| seen.0 & 0o170_000 == 0o040_000;
        let (was, will, is) = (old.get(path), new.get(path), now.get(path));
        let folder = is.is_some_and(is_folder) && (was.is_some_and(is_folder) || will.is_some_and(is_folder));
        assert!(aside || folder || is == was || is == will, "{context}: {path:?} is {is:?}, not {was:?} or {will:?}");
    }
}

#[test]
fn r11_measured_killing_apply_and_undo_200_times_leaves_old_or_new_and_the_next_finishes() {
    let stage = Stage::new();
    for number in 0..6 {
        stage.write(&format!("changed-{number}"), format!("old {number}").repeat(1 + number * 4000));
        stage.write(&format!("gone/{number}"), "old");
    }
    stage.write("to-folder", "old");
    stage.write("to-file/inside", "old");
    symlink("old", stage.work().join("link")).unwrap();
    fs::set_permissions(stage.work().join("changed-1"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut made = Made::new(&stage);
    for number in 0..6 {
        made = made.file(format!("changed-{number}"), &format!("new {number}").repeat(1 + number * 4000));
        made = made.gone(format!("gone/{number}")).file(format!("added-{number}"), "new");
    }
    made = made.gone("gone").folder("to-folder").file("to-folder/in", "new").file("to-file", "new");
    made = made.gone("to-file/inside").link("link", "new").folder("deep").folder("deep/er").file("deep/er/file", "new");
    let made = made.keep();
    let old = picture(&stage.work());
    apply(&stage, &[made.run()]).expect(0, &[]);
    let new = picture(&stage.work());
    undo(&stage, &[]).expect(0, &[]);
    assert_eq!(picture(&stage.work()), old);

    let seed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
    let mut random = seed;
    let (mut kills, mut partly, mut round) = (0, 0, 0);
    // How long one takes differs with what else the machine does: the window follows, so that most are killed.
    let mut window = Duration::from_millis(50);
    while kills < 200 {
        // Even rounds are killed while they apply, odd ones while they take back.
        let (words, from, to): (&[&str], _, _) =
            if round % 2 == 0 { (&["apply", made.run()], &old, &new) } else { (&["undo"], &new, &old) };
        let context = format!("seed {seed}, round {round}, {words:?}");
        loop {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mut child = stage.ringfence(words).start();
            std::thread::sleep(Duration::from_nanos((random >> 11) % (window.as_nanos() as u64)));
            child.kill().unwrap();
            let finished = child.wait().unwrap().success();
            check_each_is_old_or_new(&stage, &old, &new, &context);
            kills += u32::from(!finished);
            window = window.mul_f64(if finished { 0.8 } else { 1.1 }).max(Duration::from_millis(1));
            let now = picture(&stage.work());
            partly += u32::from(now != *from && now != *to);
            // Sometimes the one after a killed one is killed, too.
            if finished || !(random >> 33).is_multiple_of(4) {
                break;
            }
        }
        if picture(&stage.work()) != *to {
            let ended = stage.ringfence(words).run();
            assert_eq!(ended.code, 0, "{context}: {ended:?}");
        }
        // What was finished but for the last word is finished now.
        if words[0] == "undo" && undo(&stage, &["--dry-run"]).code == 0 {
            undo(&stage, &[]);
        }
        assert_eq!(picture(&stage.work()), *to, "{context}");
        round += 1;
    }
    assert!(partly >= 10, "only {partly} of {kills} kills came in between");
    eprintln!("{kills} kills in {round} rounds, {partly} in between, {window:?} at last");
}
