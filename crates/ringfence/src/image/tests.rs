//! Archives and layouts that somebody made to get out, each beside the same one without the attack.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use ringfence_testkit::canary::FileCanary;
use ringfence_testkit::oci::{self, archive, file, folder, hard_link, link, member, properties};

use super::*;

const SMALL: Limits = Limits { bytes: 1 << 20, entries: 2000 };

/// A folder to unpack into, and one beside it that nobody may touch.
struct Ground {
    home: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("root")).unwrap();
        fs::create_dir_all(home.path().join("outside/folder")).unwrap();
        fs::write(home.path().join("outside/canary"), "as it was").unwrap();
        Self { home }
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("root")
    }

    fn outside(&self) -> PathBuf {
        self.home.path().join("outside")
    }

    fn canary(&self) -> String {
        self.outside().join("canary").to_str().unwrap().to_owned()
    }

    fn unpack(&self, layers: &[Vec<u8>], limits: Limits) -> Result<u64, UnpackError> {
        let mut unpacker = Unpacker::new(File::open(self.root()).unwrap().into(), limits);
        for bytes in layers {
            let mut layer = unpacker.layer(bytes.as_slice());
            while layer.step()? == Step::More {}
            layer.finish();
        }
        Ok(unpacker.left_out())
    }

    /// `path`, `path/` or `path -> target`, with what a file says.
    fn listing(&self) -> Vec<String> {
        fn list(root: &Path, folder: &Path, found: &mut Vec<String>) {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().as_os_str().as_bytes().escape_ascii().to_string();
                let metadata = path.symlink_metadata().unwrap();
                if metadata.is_symlink() {
                    found.push(format!("{name} -> {}", fs::read_link(&path).unwrap().display()));
                } else if metadata.is_dir() {
                    found.push(format!("{name}/"));
                    list(root, &path, found);
                } else {
                    found.push(format!("{name} {}", String::from_utf8_lossy(&fs::read(&path).unwrap())));
                }
            }
        }
        let mut found = Vec::new();
        list(&self.root(), &self.root(), &mut found);
        found.sort();
        found
    }
}

/// `before` unpacks. With `hostile` after it the whole is refused for `problem`, and nothing outside changes.
#[track_caller]
fn refused(before: &[Vec<u8>], hostile: &[Vec<u8>], problem: &str) {
    Ground::new().unpack(&[archive(before)], SMALL).unwrap();
    for layers in [vec![archive(&[before, hostile].concat())], vec![archive(before), archive(hostile)]] {
        let ground = Ground::new();
        let canary = FileCanary::set(ground.outside()).unwrap();
        let error = ground.unpack(&layers, SMALL).unwrap_err();
        assert!(error.to_string().contains(problem), "{error}, not {problem}");
        assert_eq!(canary.change().unwrap(), None);
        let beside: Vec<_> = fs::read_dir(ground.home.path()).unwrap().map(|it| it.unwrap().file_name()).collect();
        assert_eq!(beside.len(), 2, "{beside:?}");
    }
}

/// The layers unpack to exactly this, and nothing outside changes.
#[track_caller]
fn unpacks(layers: &[&[Vec<u8>]], expected: &[&str]) {
    let ground = Ground::new();
    let canary = FileCanary::set(ground.outside()).unwrap();
    let layers: Vec<Vec<u8>> = layers.iter().map(|members| archive(members)).collect();
    ground.unpack(&layers, SMALL).unwrap();
    assert_eq!(ground.listing(), expected);
    assert_eq!(canary.change().unwrap(), None);
}

#[test]
fn f20_names_that_lead_out_are_refused() {
    let before = [folder("a"), file("a/file", "1")];
    for name in ["../evil", "a/../../evil", "./../evil", "a/..", ".."] {
        refused(&before, &[file(name, "x")], "goes up with `..`");
        refused(&before, &[folder(name)], "goes up with `..`");
    }
    for name in ["/evil", "//evil", "/"] {
        refused(&before, &[file(name, "")], "is an absolute name");
        refused(&before, &[link(name, "a")], "is an absolute name");
    }
    unpacks(&[&[folder("./"), file("./a/./file", "1"), file("b...c", "2")]], &["a/", "a/file 1", "b...c 2"]);
}

#[test]
fn f20_a_file_through_an_earlier_link_is_refused() {
    for target in ["../outside", "/", ".", "a", "/proc/self/cwd", "missing"] {
        let before = [folder("a"), link("l", target)];
        for hostile in [file("l/canary", "x"), folder("l/folder"), link("l/new", "a"), file("l/deep/er", "x")] {
            refused(&before, &[hostile], "leads through a link");
        }
        for hostile in ["l/.wh.canary", "l/.wh..wh..opq", "l/folder/.wh.x"] {
            refused(&before, &[file(hostile, "")], "leads through a link");
        }
        refused(&before, &[hard_link("mine", "l/canary")], "leads through a link");
        refused(&before, &[member(b'3', "l/null", "", 0o666, "")], "leads through a link");
    }
}

#[test]
fn a_file_or_folder_at_the_name_of_a_link_replaces_the_link() {
    let ground = Ground::new();
    let canary = FileCanary::set(ground.outside()).unwrap();
    let (to_file, to_folder) = (ground.canary(), ground.outside().to_str().unwrap().to_owned());
    let first = [link("l", &to_file), link("m", &to_folder), link("n", &to_file)];
    let second = [file("l", "new"), folder("m"), file("m/canary", "new"), hard_link("n", "l")];
    ground.unpack(&[archive(&first), archive(&second)], SMALL).unwrap();
    assert_eq!(ground.listing(), ["l new", "m/", "m/canary new", "n new"]);
    assert_eq!(canary.change().unwrap(), None);
}

#[test]
fn f10_hard_links_lead_only_to_files_of_the_image() {
    let ground = Ground::new();
    let before = [folder("a"), file("a/file", "1")];
    refused(&before, &[hard_link("mine", ground.canary())], "is an absolute name");
    refused(&before, &[hard_link("mine", "../outside/canary")], "goes up with `..`");
    refused(&before, &[hard_link("mine", "a")], "no file");
    refused(&before, &[hard_link("mine", "missing")], "is not there");
    refused(&before, &[hard_link("mine", "")], "empty name");
    refused(&before, &[hard_link("a", "a/file")], "could not unpack");
    unpacks(&[&before, &[hard_link("b", "a/file"), hard_link("a/file", "a/file")]], &["a/", "a/file 1", "b 1"]);
    // A second name for a link is a link, and what is written to either name later replaces that name alone.
    let members = [link("l", "../outside/canary"), hard_link("m", "l"), file("l", "new")];
    unpacks(&[&members], &["l new", "m -> ../outside/canary"]);
    unpacks(&[&before, &[hard_link("b", "a/file"), file("b", "2")]], &["a/", "a/file 1", "b 2"]);
}

#[test]
fn whiteouts_hide_what_is_below_and_nothing_of_their_own_layer() {
    let below = [folder("d"), file("d/old", "1"), folder("d/deep"), file("d/deep/old", "1"), file("e", "1")];
    unpacks(&[&below, &[file(".wh.d", ""), file("d/.wh.missing", "")]], &["e 1"]);
    unpacks(&[&below, &[file("d/.wh.old", ""), file("d/.wh.deep", "")]], &["d/", "e 1"]);
    let expected = ["d/", "d/deep/", "d/deep/new 2", "e 1"];
    unpacks(&[&below, &[file("d/.wh..wh..opq", ""), file("d/deep/new", "2")]], &expected);
    unpacks(&[&below, &[file("d/deep/new", "2"), file("d/.wh..wh..opq", "")]], &expected);
    unpacks(&[&below, &[file(".wh..wh..opq", ""), file("f", "2")]], &["f 2"]);
    unpacks(&[&below, &[file("e", "2"), file(".wh.e", "")]], &["d/", "d/deep/", "d/deep/old 1", "d/old 1", "e 2"]);
    unpacks(&[&below[4..], &[file(".wh..wh.plnk", ""), file("missing/.wh..wh..opq", "")]], &["e 1"]);
    refused(&below, &[folder(".wh.d")], "reserved for whiteouts");
    refused(&below, &[link(".wh.d", "e")], "reserved for whiteouts");
}

#[test]
fn a_whiteout_cannot_name_the_folder_above() {
    let before = [folder("d"), file("d/file", "1")];
    for hostile in [".wh...", ".wh..", ".wh.", "d/.wh...", "d/.wh.."] {
        refused(&before, &[file(hostile, "")], "names nothing");
    }
    unpacks(&[&before, &[file("d/.wh....", "")]], &["d/", "d/file 1"]);
}

#[test]
fn f17_devices_and_pipes_are_left_out_and_no_file_changes_its_user() {
    let ground = Ground::new();
    let special = (*b"346").map(|kind| member(kind, [kind], "", 0o666, ""));
    let members = [&special[..], &[member(b'0', "su", "", 0o6755, "x"), member(b'5', "tmp", "", 0o3777, "")]].concat();
    assert_eq!(ground.unpack(&[archive(&[file("3", "covered")]), archive(&members)], SMALL).unwrap(), 3);
    assert_eq!(ground.listing(), ["su x", "tmp/"]);
    for (name, mode) in [("su", 0o755), ("tmp", 0o777)] {
        let metadata = fs::metadata(ground.root().join(name)).unwrap();
        assert_eq!(metadata.mode() & 0o7777, mode, "{name}");
        assert_eq!(metadata.uid(), rustix::process::geteuid().as_raw());
    }
}

#[test]
fn what_is_unpacked_can_always_be_read_and_removed_by_its_owner() {
    let ground = Ground::new();
    let members = [member(b'5', "d", "", 0, ""), member(b'0', "d/file", "", 0, "x")];
    ground.unpack(&[archive(&members)], SMALL).unwrap();
    assert_eq!(fs::metadata(ground.root().join("d")).unwrap().mode() & 0o777, 0o700);
    assert_eq!(fs::metadata(ground.root().join("d/file")).unwrap().mode() & 0o777, 0o400);
    assert_eq!(fs::metadata(ground.root().join("d/file")).unwrap().mtime(), 1_000_000_000);
    ground.unpack(&[archive(&[file(".wh.d", "")])], SMALL).unwrap();
    assert_eq!(ground.listing(), [""; 0]);
}

#[test]
fn the_last_of_several_members_with_one_name_counts() {
    unpacks(&[&[file("a", "1"), file("a", "2")]], &["a 2"]);
    unpacks(&[&[folder("a"), file("a/b", "1"), file("a", "2")]], &["a 2"]);
    unpacks(&[&[file("a", "1"), folder("a"), file("a/b", "2")]], &["a/", "a/b 2"]);
    unpacks(&[&[folder("a"), file("a/b", "1"), folder("a")]], &["a/", "a/b 1"]);
    unpacks(&[&[folder("a"), file("a/b", "1")], &[link("a", "c")]], &["a -> c"]);
    refused(&[file("a", "1")], &[file("a/b", "2")], "no folder");
}

#[test]
fn f22_names_may_be_long_and_odd_but_not_endless() {
    let long = "n".repeat(255);
    let odd = b"a\n\xff\x1b[0m";
    let path = format!("{}file", "d/".repeat(127));
    let ground = Ground::new();
    let by_properties = [properties(&[("path", &b"p\nq"[..]), ("mtime", b"1.5")]), file("x", "2")].concat();
    let members = [file(&long, "1"), file(odd, "1"), file(&path, "1"), by_properties, link("l", "t".repeat(4000))];
    ground.unpack(&[archive(&members)], SMALL).unwrap();
    let listing = ground.listing();
    for expected in [format!("{long} 1"), "a\\n\\xff\\x1b[0m 1".to_owned(), format!("{path} 1"), "p\\nq 2".to_owned()] {
        assert!(listing.contains(&expected), "{expected} is not in {listing:?}");
    }
    refused(&members[..1], &[file("n".repeat(256), "x")], "too long");
    refused(&members[..1], &[folder("d/".repeat(1025))], "too long");
    refused(&members[..1], &[file(format!("{}file", "d/".repeat(128)), "x")], "lies too deep");
    refused(&members[..1], &[file("", "x")], "empty name");
    let zero = [properties(&[("path", &b"a\0b"[..])]), file("x", "")].concat();
    refused(&members[..1], &[zero], "zero byte");
    let zero = [properties(&[("linkpath", &b"a\0b"[..])]), link("x", "y")].concat();
    refused(&members[..1], &[zero], "leads to no name");
    refused(&members[..1], &[link("l", "")], "leads to no name");
    refused(&members[..1], &[link("l", "t".repeat(4096))], "leads to no name");
}

#[test]
fn an_archive_that_two_readers_would_read_differently_is_refused() {
    let before = [file("a", "1")];
    let twice = properties(&[("path", &b"a"[..]), ("path", b"../b")]);
    refused(&before, &[twice, file("x", "")], "two names");
    let both = [oci::raw(b'L', b"././@LongLink", b"", 0, b"long"), properties(&[("path", &b"a"[..])]), file("x", "")];
    refused(&before, &both, "two names");
    refused(&before, &[properties(&[("size", &b"0"[..])]), file("x", "data")], "two sizes");
    refused(&before, &[properties(&[("GNU.sparse.size", &b"1"[..])]), file("x", "")], "sparse");
    refused(&before, &[member(b'S', "x", "", 0o644, "")], "sparse");
    refused(&before, &[member(b'V', "x", "", 0o644, "")], "kind that is not known");
    refused(&before, &[member(b'1', "x", "a", 0o644, "data")], "has data");
    refused(&before, &[member(b'5', "x", "", 0o644, "data")], "has data");
    let mut for_all = properties(&[("path", &b"../b"[..])]);
    for_all[156] = b'g';
    for_all[148..156].fill(b' ');
    let sum: u32 = for_all[..512].iter().map(|byte| u32::from(*byte)).sum();
    for_all[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    refused(&before, &[for_all], "for all members");
    let mut wrong = file("x", "1");
    wrong[0] = b'y';
    refused(&before, &[wrong], "sum of a header");
    for broken in ["", "x", "99 path=x\n", "5 a\n", "0 path=x\n", "-1 path=x\n"] {
        let broken = oci::raw(b'x', b"p", b"", 0, broken.as_bytes());
        if broken.len() > 512 {
            refused(&before, &[broken, file("x", "")], "cannot be read");
        }
    }
    let fine = [properties(&[("path", &b"b"[..]), ("size", b"4"), ("SCHILY.xattr.user.x", b"y")]), file("x", "data")];
    unpacks(&[&before, &fine], &["a 1", "b data"]);
}

#[test]
fn f23_an_archive_that_unpacks_to_too_much_is_stopped() {
    let big = file("big", vec![0; 600 << 10]);
    let ground = Ground::new();
    let error = ground.unpack(&[archive(std::slice::from_ref(&big)), archive(&[big])], SMALL).unwrap_err();
    assert!(matches!(error, UnpackError::TooLarge), "{error}");
    let mut huge = file("huge", "");
    // A length in binary, near the largest number.
    huge[124..136].copy_from_slice(&[0x80, 0, 0, 0, 0x7f, 255, 255, 255, 255, 255, 255, 255]);
    huge[148..156].fill(b' ');
    let sum: u32 = huge[..512].iter().map(|byte| u32::from(*byte)).sum();
    huge[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    refused(&[], &[huge], "more than is permitted");
    let many: Vec<_> = (0..=SMALL.entries).map(|number| member(b'6', format!("{number}"), "", 0, "")).collect();
    Ground::new().unpack(&[many[1..].concat()], Limits { bytes: 1 << 30, ..SMALL }).unwrap();
    let error = Ground::new().unpack(&[many.concat()], Limits { bytes: 1 << 30, ..SMALL }).unwrap_err();
    assert!(matches!(error, UnpackError::TooMany), "{error}");
    refused(&[], &[oci::raw(b'L', b"l", b"", 0, &[b'n'; 65 << 10]), file("x", "")], "longer than 64 KiB");
    refused(&[], &[properties(&[("a", b"b")]).repeat(20), file("x", "")], "too many extension headers");
}

#[test]
fn f23_whiteouts_that_make_endless_work_are_stopped() {
    let files: Vec<_> = (0..900).map(|number| file(format!("d/{number}"), "")).collect();
    let again = vec![file("d/.wh..wh..opq", ""); 900];
    let limits = Limits { bytes: 1 << 30, ..SMALL };
    Ground::new().unpack(&[archive(&[&files[..], &again[..4]].concat())], limits).unwrap();
    let error = Ground::new().unpack(&[archive(&[files, again].concat())], limits).unwrap_err();
    assert!(matches!(error, UnpackError::TooMany), "{error}");
}

#[test]
fn an_archive_that_breaks_off_is_refused() {
    let whole = archive(&[file("a", "content"), file("b", "x")]);
    for length in [100, 515, 1024 + 100] {
        let error = Ground::new().unpack(&[whole[..length].to_vec()], SMALL).unwrap_err();
        assert!(error.to_string().contains("it ends within"), "{length}: {error}");
    }
    let error = Ground::new().unpack(&[properties(&[("path", &b"x"[..])])], SMALL).unwrap_err();
    assert!(error.to_string().contains("ends after an extension"), "{error}");
    Ground::new().unpack(&[whole[..1024].to_vec()], SMALL).unwrap();
}

fn any_member() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec![
        "a",
        "b",
        "a/b",
        "l",
        "l/canary",
        "a/b/c",
        "../outside/canary",
        "/etc",
        "l/a",
        ".wh.a",
        ".wh.l",
        "a/.wh..wh..opq",
        "l/.wh.canary",
        "l/.wh..wh..opq",
        ".wh...",
        ".",
        "a/",
        "outside",
    ]);
    let target = prop::sample::select(vec![
        "../outside",
        "../outside/canary",
        "a",
        "l",
        "/",
        "a/b",
        "..",
        ".",
        "l/canary",
        "/proc/self/cwd",
    ]);
    let kind = prop::sample::select(vec![b'0', b'1', b'2', b'5', b'6', 0]);
    (kind, name, target).prop_map(|(kind, name, target)| {
        let content =
            if matches!(kind, b'0' | 0) && !name.contains(".wh.") && !name.ends_with('/') { "new" } else { "" };
        member(kind, name, target, 0o777, content)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn no_archive_changes_anything_outside(
        first in prop::collection::vec(any_member(), 0..8), second in prop::collection::vec(any_member(), 0..8),
    ) {
        let ground = Ground::new();
        let canary = FileCanary::set(ground.outside()).unwrap();
        let unpacked = ground.unpack(&[archive(&first), archive(&second)], SMALL);
        prop_assert_eq!(canary.change().unwrap(), None, "{:?}", unpacked);
        prop_assert_eq!(fs::read_dir(ground.home.path()).unwrap().count(), 2);
    }
}

mod layouts;
