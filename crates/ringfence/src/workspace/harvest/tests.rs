//! Layers made by hand: what overlay writes, and what it would never write.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Arc;

use proptest::prelude::*;
use rustix::fs::{CWD, XattrFlags};

use super::*;
use crate::workspace::change::WasKind;

struct Made {
    folder: tempfile::TempDir,
    absent: Vec<PathBuf>,
    life: Life,
}

impl Made {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["lower", "upper"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        Self { folder, absent: Vec::new(), life: Life::Over }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, text: &str) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        self
    }

    fn whiteout(&self, name: &str) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Anybody may make this one device.
        rustix::fs::mknodat(CWD, &path, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
        self
    }

    fn mark(&self, name: &str, attribute: &str, value: &[u8]) -> &Self {
        let attribute = format!("user.overlay.{attribute}");
        rustix::fs::setxattr(self.path(name), attribute, value, XattrFlags::empty()).unwrap();
        self
    }

    fn objects(&self) -> Objects {
        Objects::at(self.path("objects"))
    }

    fn harvest_with(&self, most_bytes: u64) -> Result<Vec<Change>, HarvestError> {
        let open = |name: &str| OwnedFd::from(File::open(self.path(name)).unwrap());
        let lower = Lower::new(open("lower"), self.path("lower"), self.absent.clone(), Vec::new()).unwrap();
        let layer = PrivateLayer::unchecked(open("upper"), Arc::new(lower), self.life);
        // After all that was made here.
        let began = Moment { seconds: i64::MAX, nanoseconds: 0 };
        harvest(&layer, Bounds { began, most_bytes }, &self.objects())
    }

    #[track_caller]
    fn check(&self, expected: &[&str]) {
        let changes = self.harvest_with(1 << 20).unwrap();
        let sign = |change: &Change| match (&change.before, &change.after) {
            (_, None) => '-',
            (Before::Nothing, _) => '+',
            _ => '~',
        };
        let listed: Vec<String> =
            changes.iter().map(|change| format!("{}{}", sign(change), change.place.as_path().display())).collect();
        assert_eq!(listed, expected);
    }
}

#[test]
fn both_forms_of_a_removal_are_understood() {
    let made = Made::new();
    made.file("lower/a", "a").file("lower/b", "b").file("lower/c", "c").file("lower/d/e", "e");
    made.whiteout("upper/a").file("upper/b", "").mark("upper/b", "whiteout", b"").whiteout("upper/d");
    made.whiteout("upper/never-there").mark("upper", "opaque", b"x");
    made.check(&["-a", "-b", "-d", "-d/e"]);
}

#[test]
fn an_opaque_folder_hides_all_that_it_does_not_have_itself() {
    let made = Made::new();
    made.file("lower/d/same", "same").file("lower/d/gone", "").file("lower/d/sub/gone", "").file("lower/d/other", "1");
    made.file("upper/d/same", "same")
        .file("upper/d/other", "2")
        .file("upper/d/new", "")
        .mark("upper/d", "opaque", b"y");
    made.check(&["-d/gone", "+d/new", "~d/other", "-d/sub", "-d/sub/gone"]);
    let twin = Made::new();
    twin.file("lower/d/gone", "").file("upper/d/new", "");
    twin.check(&["+d/new"]);
}

#[test]
fn a_folder_in_an_opaque_one_hides_as_much_without_a_mark_of_its_own() {
    let made = Made::new();
    made.file("lower/d/sub/gone", "").file("lower/d/sub/deep/gone", "").file("lower/d/sub/same", "same");
    made.file("upper/d/sub/same", "same").file("upper/d/sub/deep/new", "").mark("upper/d", "opaque", b"y");
    made.check(&["-d/sub/deep/gone", "+d/sub/deep/new", "-d/sub/gone"]);
}

#[test]
fn what_overlay_would_not_write_ends_the_harvest() {
    for (attribute, value) in [("redirect", &b"/etc"[..]), ("metacopy", b""), ("opaque", b"z"), ("unheard-of", b"")] {
        let made = Made::new();
        made.file("upper/d/file", "x").mark("upper/d", attribute, value);
        let error = made.harvest_with(1 << 20).unwrap_err();
        assert!(matches!(error, HarvestError::NotUnderstood { .. }), "{attribute}: {error}");
        let twin = Made::new();
        twin.file("upper/d/file", "x").mark("upper/d", "impure", b"y").mark("upper/d", "overlay.opaque", b"y");
        twin.check(&["+d", "+d/file"]);
    }
}

#[test]
fn marks_of_the_wall_are_no_changes_and_what_replaces_them_is_one() {
    let mut made = Made::new();
    made.absent = vec!["d/.env".into(), "secret".into()];
    made.file("lower/d/.env", "s").file("lower/d/x", "x").file("lower/secret/key", "k").file("lower/secret/other", "o");
    made.whiteout("upper/d/.env").whiteout("upper/secret");
    made.check(&[]);
    fs::remove_file(made.path("upper/secret")).unwrap();
    made.file("upper/secret/key", "k").mark("upper/secret", "opaque", b"y");
    made.check(&["~secret", "~secret/key"]);
    let changes = made.harvest_with(1 << 20).unwrap();
    assert!(changes.iter().all(|change| !matches!(
        &change.before,
        Before::Was(was) if matches!(was.kind, WasKind::File(Some(_)))
    )));
}

#[test]
fn contents_are_kept_of_both_sides_and_the_same_is_no_change() {
    let made = Made::new();
    made.file("lower/a", "one").file("upper/a", "two").file("lower/b", "same").file("upper/b", "same");
    made.file("lower/c", "mode").file("upper/c", "mode");
    fs::set_permissions(made.path("upper/c"), fs::Permissions::from_mode(0o600)).unwrap();
    made.check(&["~a", "~c"]);
    let changes = made.harvest_with(1 << 20).unwrap();
    let Before::Was(was) = &changes[0].before else { panic!("{changes:?}") };
    assert_eq!(was.kind, WasKind::File(Some(ObjectId::of(b"one"))));
    let Some(Node::File { content, size: 3, mode: 0o644, .. }) = changes[0].after else { panic!("{changes:?}") };
    assert_eq!(made.objects().bytes(content, 3).unwrap().unwrap(), b"two");
}

#[test]
fn f02_a_link_in_the_place_of_a_folder_is_not_followed_on_either_side() {
    let made = Made::new();
    made.file("outside/file", "of the host").file("lower/d/file", "mine");
    symlink(made.path("outside"), made.path("upper/d")).unwrap();
    symlink(made.path("outside"), made.path("lower/e")).unwrap();
    made.file("upper/e/file", "new");
    made.check(&["~d", "-d/file", "~e", "+e/file"]);
}

#[test]
fn caps_are_errors_and_never_a_shorter_list() {
    let made = Made::new();
    made.file("upper/a", "12345").file("upper/b", "12345");
    assert!(matches!(made.harvest_with(9), Err(HarvestError::TooMuch { most: 9 })));
    assert_eq!(made.harvest_with(10).unwrap().len(), 2);
    let deep = Made::new();
    let mut folder: OwnedFd = File::open(deep.path("upper")).unwrap().into();
    for _ in 0..20 {
        let name = "d".repeat(250);
        rustix::fs::mkdirat(&folder, &name, Mode::RWXU).unwrap();
        folder = open_folder(&folder, Path::new(&name)).unwrap();
    }
    assert!(matches!(deep.harvest_with(10), Err(HarvestError::LongPath { .. })));
}

#[test]
fn a_layer_that_is_still_written_is_never_opened_up() {
    let mut made = Made::new();
    made.file("upper/closed", "x");
    fs::set_permissions(made.path("upper/closed"), fs::Permissions::from_mode(0o000)).unwrap();
    made.life = Life::GoesOn;
    let is_root = rustix::process::geteuid().is_root();
    assert_eq!(made.harvest_with(10).is_ok(), is_root, "only root can read it as it is");
    made.life = Life::Over;
    made.check(&["+closed"]);
    let mode = fs::metadata(made.path("upper/closed")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0, "and it is as it was");
}

#[test]
fn what_the_host_changed_since_is_unknown() {
    let made = Made::new();
    made.file("lower/a", "one").file("upper/a", "two");
    let open = |name: &str| OwnedFd::from(File::open(made.path(name)).unwrap());
    let lower = Lower::new(open("lower"), made.path("lower"), Vec::new(), Vec::new()).unwrap();
    let layer = PrivateLayer::unchecked(open("upper"), Arc::new(lower), Life::Over);
    let began = Moment { seconds: 0, nanoseconds: 0 };
    let changes = harvest(&layer, Bounds { began, most_bytes: 100 }, &made.objects()).unwrap();
    assert_eq!(changes[0].before, Before::Unknown);
}

/// What may be at a place of either side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thing {
    Nothing,
    File(u8),
    Link(u8),
    Folder,
    Opaque,
    Whiteout,
}

fn thing() -> impl Strategy<Value = Thing> {
    prop_oneof![
        3 => Just(Thing::Nothing),
        2 => (0..3u8).prop_map(Thing::File),
        1 => (0..2u8).prop_map(Thing::Link),
        3 => Just(Thing::Folder),
        1 => Just(Thing::Opaque),
        1 => Just(Thing::Whiteout),
    ]
}

/// Puts a thing where it can be.
fn put(made: &Made, side: &str, place: &str, thing: Thing) {
    let path = made.path(side).join(place);
    if !path.parent().unwrap().symlink_metadata().is_ok_and(|parent| parent.is_dir()) {
        return;
    }
    match (thing, side) {
        (Thing::Nothing, _) => {}
        (Thing::File(text), _) => drop(made.file(&format!("{side}/{place}"), &text.to_string())),
        (Thing::Link(target), _) => symlink(target.to_string(), path).unwrap(),
        (Thing::Opaque, "upper") => {
            fs::create_dir(path).unwrap();
            made.mark(&format!("{side}/{place}"), "opaque", b"y");
        }
        (Thing::Folder | Thing::Opaque, _) => fs::create_dir(path).unwrap(),
        (Thing::Whiteout, "upper") => drop(made.whiteout(&format!("{side}/{place}"))),
        (Thing::Whiteout, _) => {}
    }
}

const PLACES: [&str; 9] = ["a", "b", "a/a", "a/b", "b/a", "a/a/a", "a/a/b", "b/a/a", "b/b"];

/// What is at a place of a folder, without anything of ours in between.
fn look(folder: &Path, place: &Path) -> Option<String> {
    let path = folder.join(place);
    let metadata = path.symlink_metadata().ok()?;
    Some(if metadata.is_symlink() {
        format!("link {}", fs::read_link(path).unwrap().display())
    } else if metadata.is_dir() {
        "folder".to_owned()
    } else {
        format!("file {}", fs::read_to_string(path).unwrap())
    })
}

/// What is seen through overlay at a place, by its rules.
fn seen(made: &Made, place: &Path) -> Option<String> {
    let (lower, upper) = (made.path("lower"), made.path("upper"));
    let mut hides = false;
    let mut above = PathBuf::new();
    for name in place.parent().into_iter().flatten() {
        above.push(name);
        match upper.join(&above).symlink_metadata() {
            Err(_) => {}
            Ok(metadata) if metadata.is_dir() => {
                let mut value = [0u8; 4];
                hides |= rustix::fs::getxattr(upper.join(&above), "user.overlay.opaque", &mut value).is_ok();
                // A folder over anything else hides it.
                hides |= !lower.join(&above).symlink_metadata().is_ok_and(|below| below.is_dir());
            }
            Ok(_) => return None,
        }
    }
    match upper.join(place).symlink_metadata() {
        Ok(metadata) if !metadata.is_dir() && !metadata.is_file() && !metadata.is_symlink() => None,
        Ok(_) => look(&upper, place),
        Err(_) if hides => None,
        Err(_) => look(&lower, place),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_list_is_exactly_what_differs_between_the_workspace_and_what_was_seen(
        below in proptest::collection::vec(thing(), PLACES.len()),
        above in proptest::collection::vec(thing(), PLACES.len()),
    ) {
        let made = Made::new();
        for (place, (below, above)) in PLACES.iter().zip(below.into_iter().zip(above)) {
            put(&made, "lower", place, below);
            put(&made, "upper", place, above);
        }
        let changes = made.harvest_with(1 << 20).unwrap();
        let mut expected = Vec::new();
        for place in PLACES.map(Path::new) {
            let (before, after) = (look(&made.path("lower"), place), seen(&made, place));
            if before != after {
                expected.push((place.to_owned(), before.is_some(), after.is_some()));
            }
        }
        expected.sort();
        let listed: Vec<_> = changes
            .iter()
            .map(|it| (it.place.as_path().to_owned(), it.before != Before::Nothing, it.after.is_some()))
            .collect();
        prop_assert_eq!(listed, expected);
    }
}

#[test]
fn folders_in_one_that_was_made_anew_hide_what_was_in_the_old_ones() {
    let made = Made::new();
    made.file("lower/a/b/c/gone", "x").file("lower/a/b/kept", "x").file("lower/d/b/seen", "x");
    made.file("upper/a/b/kept", "x").mark("upper/a", "opaque", b"y").file("upper/d/b/new", "x");
    fs::create_dir(made.path("upper/a/b/c")).unwrap();
    // The twin: in a folder that was not made anew, what is below is seen.
    made.check(&["-a/b/c/gone", "+d/b/new"]);
}

#[test]
fn a_file_that_is_as_it_was_is_not_read_again_and_one_that_may_have_changed_is() {
    let made = Made::new();
    made.file("lower/same", "same").file("lower/changed", "old").file("upper/same", "same");
    made.file("upper/changed", "new").file("upper/kept", "kept").file("upper/touched", "one");
    let open = |name: &str| OwnedFd::from(File::open(made.path(name)).unwrap());
    let lower = Lower::new(open("lower"), made.path("lower"), Vec::new(), Vec::new()).unwrap();
    let layer = PrivateLayer::unchecked(open("upper"), Arc::new(lower), Life::GoesOn);
    let bounds = Bounds { began: Moment { seconds: i64::MAX, nanoseconds: 0 }, most_bytes: 1 << 20 };
    let look = |known: &Remembered| harvest_again(&layer, bounds, &made.objects(), known).unwrap();
    let contents = || fs::read_dir(made.path("objects")).map_or(0, Iterator::count);
    std::thread::sleep(std::time::Duration::from_millis(30));
    let (first, known) = look(&Remembered::default());
    assert_eq!((first.len(), contents()), (3, 4));
    // Without contents, what is read again can be told from what is not.
    fs::remove_dir_all(made.path("objects")).unwrap();
    let (second, known) = look(&known);
    assert_eq!((&second, contents()), (&first, 0));
    // As large as before, and set back to the same time of writing: the kernel's own time tells.
    let modified = fs::metadata(made.path("upper/touched")).unwrap().modified().unwrap();
    fs::write(made.path("upper/touched"), "two").unwrap();
    File::options().write(true).open(made.path("upper/touched")).unwrap().set_modified(modified).unwrap();
    fs::write(made.path("lower/kept"), "kept").unwrap();
    let (third, known) = look(&known);
    let places: Vec<&Path> = third.iter().map(|change| change.place.as_path()).collect();
    assert_eq!((places, contents()), (vec![Path::new("changed"), Path::new("touched")], 1), "one is the host's now");
    assert_ne!(third[1], first[2]);
    // What was written in the step of the clock in which it was looked at is looked at again. The step may end in between.
    let hasty = |number: u32| {
        let name = format!("now-{number}");
        made.file(&format!("upper/{name}"), "now");
        let (_, seen) = look(&known);
        assert!(seen.knows("changed"));
        !seen.knows(&name)
    };
    assert!((0..100).any(hasty));
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert!(look(&known).1.knows("now-0"));
}
