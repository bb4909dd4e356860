//! Copies that are changed by hand as a program would, and origins that are changed as a host would.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;
use crate::run_id::RunId;
use crate::scratch::Scratch;
use crate::state::StateFolder;
use crate::workspace::change::{Before, Change, Node, OtherKind, WasKind};
use crate::workspace::harvest::{Bounds, HarvestError, harvest};
use crate::workspace::layer::{Life, Lower, PrivateLayer};
use crate::workspace::objects::{ObjectId, Objects};

const PLENTY: u64 = 1 << 20;

/// A workspace, and a copy of it once it was made.
struct Made {
    home: tempfile::TempDir,
    copied: Option<Manifest>,
    scratch: Option<Scratch>,
}

impl Made {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("work")).unwrap();
        let state = StateFolder::prepare(home.path().join("state")).unwrap();
        let scratch = Scratch::create(&state, &RunId::generate().unwrap()).unwrap();
        fs::create_dir(scratch.path().join("copy")).unwrap();
        Self { home, copied: None, scratch: Some(scratch) }
    }

    fn work(&self, name: &str) -> PathBuf {
        self.home.path().join("work").join(name)
    }

    fn copy(&self, name: &str) -> PathBuf {
        self.scratch.as_ref().unwrap().path().join("copy").join(name)
    }

    fn file(&self, name: &str, text: &str) -> &Self {
        put_file(&self.work(name), text);
        self
    }

    fn try_begin(&mut self, most: u64, denied: &[&str]) -> Result<(), CopyError> {
        let (from, to) = (File::open(self.work("")).unwrap(), File::open(self.copy("")).unwrap());
        let is_denied = |path: &Path, _| denied.iter().any(|denied| Path::new(denied) == path);
        self.copied = Some(copy(from.as_fd(), to.as_fd(), most, Owners::Ours, is_denied)?);
        Ok(())
    }

    fn begin(&mut self) {
        self.try_begin(PLENTY, &[]).unwrap();
    }

    /// As after a while: what is written next is stamped later.
    fn rest(&self) {
        std::thread::sleep(std::time::Duration::from_millis(12));
    }

    fn objects(&self) -> Objects {
        Objects::at(self.home.path().join("objects"))
    }

    fn changes(&mut self) -> Result<Vec<Change>, HarvestError> {
        let (from, to) = (File::open(self.work("")).unwrap(), File::open(self.copy("")).unwrap());
        let manifest = self.copied.take().unwrap();
        let lower = Lower::new(from.into(), self.work(""), manifest.left_out().to_vec(), Vec::new()).unwrap();
        let layer = PrivateLayer::copy(to.into(), lower, manifest, self.scratch.take().unwrap(), Life::Over);
        harvest(&layer, Bounds { began: Moment::now(), most_bytes: PLENTY }, &self.objects())
    }

    #[track_caller]
    fn check(mut self, expected: &[&str]) -> Vec<Change> {
        let changes = self.changes().unwrap();
        let listed: Vec<String> = changes.iter().map(described).collect();
        assert_eq!(listed, expected);
        changes
    }
}

fn put_file(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
}

fn described(change: &Change) -> String {
    let before = match &change.before {
        Before::Nothing => "nothing",
        Before::Unknown => "unknown",
        Before::Was(was) => match &was.kind {
            WasKind::File(Some(_)) => "file",
            WasKind::File(None) => "file without contents",
            WasKind::Link(_) => "link",
            WasKind::Folder => "folder",
            WasKind::Other(_) => "other",
        },
    };
    let after = match &change.after {
        None => "nothing".to_owned(),
        Some(Node::File { size, mode, .. }) => format!("file {mode:o} of {size}"),
        Some(Node::Link { target }) => format!("link to {}", target.display()),
        Some(Node::Folder { mode }) => format!("folder {mode:o}"),
        Some(Node::Other(OtherKind::Pipe)) => "pipe".to_owned(),
        Some(Node::Other(_)) => "other".to_owned(),
    };
    format!("{}: {before} -> {after}", change.place.as_path().display())
}

#[test]
fn a_copy_that_nobody_touched_has_no_changes() {
    let mut made = Made::new();
    made.file("a", "a").file("d/e/f", "f").file("closed", "x");
    symlink("a", made.work("link")).unwrap();
    fs::set_permissions(made.work("closed"), fs::Permissions::from_mode(0o4444)).unwrap();
    fs::set_permissions(made.work("d"), fs::Permissions::from_mode(0o2555)).unwrap();
    made.begin();
    let copy = fs::symlink_metadata(made.copy("closed")).unwrap();
    let host = fs::symlink_metadata(made.work("closed")).unwrap();
    assert_eq!(copy.mode() & 0o7777, 0o444, "no set-user-id");
    assert_eq!((copy.mtime(), copy.mtime_nsec()), (host.mtime(), host.mtime_nsec()));
    assert_eq!(fs::metadata(made.copy("d")).unwrap().mode() & 0o7777, 0o555);
    assert_eq!(fs::read_link(made.copy("link")).unwrap(), Path::new("a"));
    assert_eq!(fs::read(made.copy("d/e/f")).unwrap(), b"f");
    let copy = made.copy("");
    fs::set_permissions(made.work("d"), fs::Permissions::from_mode(0o755)).unwrap();
    made.check(&[]);
    assert!(!copy.exists(), "it is removed with its layer");
}

#[test]
fn every_kind_of_change_in_a_copy_is_listed_as_a_layer_would_list_it() {
    let mut made = Made::new();
    made.file("changed", "one").file("same", "same").file("mode", "m").file("gone", "g").file("d/e/f", "f");
    made.file("to-link", "l").file("to-folder", "f").file("folder/x", "x").file("moved", "m").file("grown", "1");
    symlink("a", made.work("link")).unwrap();
    symlink("a", made.work("link-kept")).unwrap();
    made.begin();
    made.rest();
    put_file(&made.copy("changed"), "two");
    put_file(&made.copy("same"), "same");
    put_file(&made.copy("new/deep"), "n");
    fs::set_permissions(made.copy("new"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(made.copy("mode"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(made.copy("gone")).unwrap();
    fs::remove_dir_all(made.copy("d")).unwrap();
    for (name, target) in [("link", "b"), ("link-kept", "a"), ("to-link", "/etc/passwd"), ("folder", "d")] {
        fs::remove_file(made.copy(name)).or_else(|_| fs::remove_dir_all(made.copy(name))).unwrap();
        symlink(target, made.copy(name)).unwrap();
    }
    fs::remove_file(made.copy("to-folder")).unwrap();
    fs::create_dir(made.copy("to-folder")).unwrap();
    fs::set_permissions(made.copy("to-folder"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::rename(made.copy("moved"), made.copy("renamed")).unwrap();
    fs::hard_link(made.copy("same"), made.copy("second")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, made.copy("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let mut grown = OpenOptions::new().append(true).open(made.copy("grown")).unwrap();
    grown.write_all(b"2").unwrap();
    let changes = made.check(&[
        "changed: file -> file 644 of 3",
        "d: folder -> nothing",
        "d/e: folder -> nothing",
        "d/e/f: file without contents -> nothing",
        "folder: folder -> link to d",
        "folder/x: file without contents -> nothing",
        "gone: file without contents -> nothing",
        "grown: file -> file 644 of 2",
        "link: link -> link to b",
        "mode: file -> file 755 of 1",
        "moved: file without contents -> nothing",
        "new: nothing -> folder 750",
        "new/deep: nothing -> file 644 of 1",
        "pipe: nothing -> pipe",
        "renamed: nothing -> file 644 of 1",
        "second: nothing -> file 644 of 4",
        "to-folder: file without contents -> folder 700",
        "to-link: file without contents -> link to /etc/passwd",
    ]);
    let Before::Was(was) = &changes[0].before else { panic!() };
    assert_eq!(was.kind, WasKind::File(Some(ObjectId::of(b"one"))));
}

#[test]
fn the_same_change_in_a_copy_and_in_a_layer_of_overlay_is_the_same_value() {
    let mut made = Made::new();
    made.file("changed", "one").file("gone", "g").file("kept", "k");
    made.begin();
    made.rest();
    put_file(&made.copy("changed"), "two");
    fs::remove_file(made.copy("gone")).unwrap();
    let modified = fs::metadata(made.copy("changed")).unwrap().modified().unwrap();
    // By hand, as overlay would have it.
    let upper = made.home.path().join("upper");
    put_file(&upper.join("changed"), "two");
    File::options().write(true).open(upper.join("changed")).unwrap().set_modified(modified).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, upper.join("gone"), FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    let lower = Lower::new(File::open(made.work("")).unwrap().into(), made.work(""), Vec::new(), Vec::new()).unwrap();
    let life = crate::workspace::layer::Life::Over;
    let layer = PrivateLayer::unchecked(File::open(&upper).unwrap().into(), lower.into(), life);
    let began = Moment { seconds: i64::MAX, nanoseconds: 0 };
    let by_overlay = harvest(&layer, Bounds { began, most_bytes: PLENTY }, &made.objects()).unwrap();
    assert_eq!(made.changes().unwrap(), by_overlay);
    assert_eq!(by_overlay.len(), 2);
}

#[test]
fn what_the_host_changes_meanwhile_is_unknown_where_the_program_changed_it_too_and_no_change_elsewhere() {
    let mut made = Made::new();
    made.file("both", "one").file("host", "one").file("host-removed", "x").file("both-removed", "x");
    made.file("lost/inner/file", "x").file("lost/other", "x").file("lost-in-peace/x", "x").file("changed-gone", "x");
    made.begin();
    made.rest();
    put_file(&made.copy("both"), "program");
    put_file(&made.copy("lost/inner/new"), "n");
    put_file(&made.copy("changed-gone"), "program");
    fs::remove_file(made.copy("both-removed")).unwrap();
    made.file("both", "host").file("host", "host").file("made-by-host", "x").file("both-removed", "host");
    for gone in ["host-removed", "changed-gone"] {
        fs::remove_file(made.work(gone)).unwrap();
    }
    for gone in ["lost", "lost-in-peace"] {
        fs::remove_dir_all(made.work(gone)).unwrap();
    }
    let listed: Vec<String> = made.changes().unwrap().iter().map(described).collect();
    assert_eq!(
        listed,
        [
            "both: unknown -> file 644 of 7",
            "both-removed: unknown -> nothing",
            "changed-gone: unknown -> file 644 of 7",
            "lost: unknown -> folder 755",
            "lost/inner: unknown -> folder 755",
            "lost/inner/new: nothing -> file 644 of 1",
        ]
    );
}

#[test]
fn what_is_denied_is_not_copied_and_not_removed_with_its_folder() {
    let mut made = Made::new();
    made.file("d/.env", "secret").file("d/x", "x").file("keys/one", "secret").file("again", "x");
    made.rest();
    made.try_begin(PLENTY, &["d/.env", "keys"]).unwrap();
    assert!(!made.copy("d/.env").exists() && !made.copy("keys").exists() && made.copy("d/x").exists());
    made.rest();
    fs::remove_dir_all(made.copy("d")).unwrap();
    put_file(&made.copy("keys"), "mine");
    made.check(&["d: folder -> nothing", "d/x: file without contents -> nothing", "keys: folder -> file 644 of 4"]);
}

#[test]
fn f22_odd_names_and_files_that_are_none_do_no_harm() {
    let mut made = Made::new();
    let odd: PathBuf = std::ffi::OsString::from_vec(b"a\nb\x1b[31m\xff\\[x]".to_vec()).into();
    fs::write(made.home.path().join("work").join(&odd), "odd").unwrap();
    made.file("d/x", "x");
    rustix::fs::mknodat(rustix::fs::CWD, made.work("d/pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(made.work("socket")).unwrap();
    made.begin();
    assert_eq!(fs::read(made.copy("").join(&odd)).unwrap(), b"odd");
    assert!(!made.copy("d/pipe").exists() && !made.copy("socket").exists());
    made.rest();
    fs::remove_dir_all(made.copy("d")).unwrap();
    made.check(&["d: folder -> nothing", "d/x: file without contents -> nothing"]);
}

#[test]
fn a_file_that_its_owner_may_not_read_is_left_out() {
    let mut made = Made::new();
    made.file("open", "o").file("closed", "c").file("folder/x", "x");
    for closed in ["closed", "folder"] {
        fs::set_permissions(made.work(closed), fs::Permissions::from_mode(0o000)).unwrap();
    }
    made.begin();
    let is_root = rustix::process::geteuid().is_root();
    assert!(made.copy("open").exists(), "the twin");
    assert_eq!(made.copy("closed").exists(), is_root, "root may read everything");
    assert_eq!(made.copied.as_ref().unwrap().left_out().len(), if is_root { 0 } else { 2 });
    fs::set_permissions(made.work("folder"), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(made.changes().unwrap(), []);
}

#[test]
fn f23_what_is_too_large_is_refused_and_holes_stay_holes() {
    let mut made = Made::new();
    File::create(made.work("hole")).unwrap().set_len(1 << 40).unwrap();
    let error = made.try_begin(2 << 30, &[]).unwrap_err();
    assert!(matches!(error, CopyError::TooMuch { .. }) && error.to_string().contains("`fs.size`"), "{error}");
    let mut made = Made::new();
    let mut file = File::create(made.work("hole")).unwrap();
    file.write_all(b"begin").unwrap();
    file.set_len(64 << 20).unwrap();
    file.write_at(b"end", (32 << 20) + 5).unwrap();
    drop(file);
    made.file("after", "x");
    assert!(matches!(made.try_begin((64 << 20) - 1, &[]), Err(CopyError::TooMuch { .. })));
    let mut twin = Made::new();
    fs::rename(made.work("hole"), twin.work("hole")).unwrap();
    twin.try_begin(64 << 20, &[]).unwrap();
    let copy = fs::metadata(twin.copy("hole")).unwrap();
    assert!(copy.len() == 64 << 20 && copy.blocks() * 512 < 1 << 20, "{copy:?}");
    assert!(fs::read(twin.copy("hole")).unwrap() == fs::read(twin.work("hole")).unwrap());
}

#[test]
fn f03_a_folder_that_is_exchanged_for_a_link_leads_nowhere() {
    let made = Made::new();
    let outside = made.home.path().join("outside");
    put_file(&outside.join("file"), "of the host");
    put_file(&outside.join("canary"), "of the host");
    made.file("d/file", "mine");
    symlink(&outside, made.work("link")).unwrap();
    assert_eq!(fs::read(made.work("link/canary")).unwrap(), b"of the host", "the twin: who follows it gets there");
    let stop = AtomicBool::new(false);
    let work = File::open(made.work("")).unwrap();
    let (mut links, mut folders) = (0, 0);
    std::thread::scope(|scope| {
        let swapper = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(&work, "d", &work, "link", rustix::fs::RenameFlags::EXCHANGE).unwrap();
            }
        });
        for round in 0..100 {
            let to = made.home.path().join(format!("to{round}"));
            fs::create_dir(&to).unwrap();
            let copied = copy(work.as_fd(), File::open(&to).unwrap().as_fd(), PLENTY, Owners::Ours, |_, _| false);
            if let Err(error) = copied {
                assert!(matches!(error, CopyError::Moving { .. }), "{error:?}");
            }
            for name in ["d", "link"] {
                let Ok(metadata) = fs::symlink_metadata(to.join(name)) else { continue };
                if metadata.is_symlink() {
                    links += 1;
                } else {
                    folders += 1;
                    assert!(!to.join(name).join("canary").exists(), "it was followed");
                    assert!(fs::read(to.join(name).join("file")).map_or(true, |content| content == b"mine"));
                }
            }
            fs::remove_dir_all(&to).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        swapper.join().unwrap();
    });
    assert!(links > 0 && folders > 0, "both were met: {links} links, {folders} folders");
}

#[test]
fn a_file_that_is_written_meanwhile_is_copied_whole_or_refused() {
    let made = Made::new();
    let block = 64 * 1024;
    fs::write(made.work("file"), vec![0u8; block]).unwrap();
    let stop = AtomicBool::new(false);
    let (mut whole, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let file = OpenOptions::new().write(true).open(made.work("file")).unwrap();
            for value in (1..=255u8).cycle() {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                for part in 0..8 {
                    file.write_at(&vec![value; block / 8], part * (block as u64 / 8)).unwrap();
                }
                std::thread::sleep(std::time::Duration::from_millis(u64::from(value) % 24));
            }
        });
        for round in 0..60 {
            let to = made.home.path().join(format!("to{round}"));
            fs::create_dir(&to).unwrap();
            let from = File::open(made.work("")).unwrap();
            match copy(from.as_fd(), File::open(&to).unwrap().as_fd(), PLENTY, Owners::Ours, |_, _| false) {
                Ok(copied) => {
                    let is_it = || {
                        let stat = rustix::fs::stat(made.work("file")).unwrap();
                        !copied.is_changed_on_the_host(Path::new("file"), stamp_of(&stat))
                    };
                    let content = fs::read(made.work("file")).unwrap();
                    if is_it() {
                        whole += 1;
                        assert!(fs::read(to.join("file")).unwrap() == content, "it says that nobody wrote");
                    }
                }
                Err(CopyError::Moving { .. }) => refused += 1,
                Err(error) => panic!("{error:?}"),
            }
            fs::remove_dir_all(&to).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    });
    assert!(whole > 0, "{whole} whole, {refused} refused");
}

/// What may be at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thing {
    Nothing,
    File(u8),
    Link(u8),
    Folder,
}

fn thing() -> impl Strategy<Value = Thing> {
    prop_oneof![
        3 => Just(Thing::Nothing),
        3 => (0..3u8).prop_map(Thing::File),
        1 => (0..2u8).prop_map(Thing::Link),
        3 => Just(Thing::Folder),
    ]
}

const PLACES: [&str; 9] = ["a", "b", "a/a", "a/b", "b/a", "a/a/a", "a/a/b", "b/a/a", "b/b"];

/// Puts a thing where it can be, in place of what is there.
fn put(root: &Path, place: &str, thing: Thing) {
    let path = root.join(place);
    if !path.parent().unwrap().symlink_metadata().is_ok_and(|parent| parent.is_dir()) {
        return;
    }
    if let Ok(old) = path.symlink_metadata() {
        if thing == Thing::Folder && old.is_dir() {
            return;
        }
        if old.is_dir() { fs::remove_dir_all(&path).unwrap() } else { fs::remove_file(&path).unwrap() }
    }
    match thing {
        Thing::Nothing => {}
        Thing::File(text) => put_file(&path, &text.to_string()),
        Thing::Link(target) => symlink(target.to_string(), path).unwrap(),
        Thing::Folder => fs::create_dir(path).unwrap(),
    }
}

/// All below a folder, without anything of ours in between.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(folder) = left.pop() {
        for entry in fs::read_dir(root.join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let place = folder.join(entry.file_name());
            let kind = entry.file_type().unwrap();
            let is = if kind.is_symlink() {
                format!("link {}", fs::read_link(entry.path()).unwrap().display())
            } else if kind.is_dir() {
                left.push(place.clone());
                "folder".to_owned()
            } else {
                format!("file {}", fs::read_to_string(entry.path()).unwrap())
            };
            found.insert(place, is);
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn applying_the_list_to_the_origin_gives_the_copy_and_lists_nothing_else(
        origin in proptest::collection::vec(thing(), PLACES.len()),
        edits in proptest::collection::vec((0..PLACES.len(), thing()), 0..10),
    ) {
        let mut made = Made::new();
        for (place, thing) in PLACES.iter().zip(origin) {
            put(&made.work(""), place, thing);
        }
        let before = tree(&made.work(""));
        made.begin();
        prop_assert_eq!(&tree(&made.copy("")), &before);
        for (place, thing) in edits {
            put(&made.copy(""), PLACES[place], thing);
        }
        let after = tree(&made.copy(""));
        let changes = made.changes().unwrap();
        let mut applied = before.clone();
        for change in &changes {
            let place = change.place.as_path().to_owned();
            let was = before.get(&place);
            prop_assert_eq!(was.is_some(), change.before != Before::Nothing, "{:?}", change);
            prop_assert!(change.before != Before::Unknown, "{:?}", change);
            let is = match &change.after {
                None => None,
                Some(Node::File { content, size, .. }) => {
                    let bytes = made.objects().bytes(*content, *size).unwrap().unwrap();
                    Some(format!("file {}", String::from_utf8(bytes).unwrap()))
                }
                Some(Node::Link { target }) => Some(format!("link {}", target.display())),
                Some(Node::Folder { .. }) => Some("folder".to_owned()),
                Some(Node::Other(_)) => Some("other".to_owned()),
            };
            prop_assert_ne!(was, is.as_ref(), "{:?}", change);
            match is {
                Some(is) => drop(applied.insert(place, is)),
                None => drop(applied.remove(&place)),
            }
        }
        prop_assert_eq!(applied, after);
        prop_assert_eq!(&tree(&made.work("")), &before, "the origin is as it was");
    }
}
