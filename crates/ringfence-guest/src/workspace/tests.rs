//! Folders that are filled as a host would, and changed by hand as a program would.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::far::PIECE;

struct Made {
    home: tempfile::TempDir,
    workspace: Workspace,
}

fn node(path: &str, what: What) -> Node {
    Node { path: path.into(), what }
}

fn file(path: &str, text: &str) -> Node {
    node(path, What::File { mode: 0o644, modified: (1_000_000, 5), bytes: text.as_bytes().to_vec() })
}

fn folder(path: &str) -> Node {
    node(path, What::Folder { mode: 0o755 })
}

impl Made {
    fn with(nodes: Vec<Node>) -> Self {
        // In memory, as the workspace of a container is.
        let home = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut workspace = Workspace::new(home.path().as_os_str()).unwrap();
        workspace.make(nodes).unwrap();
        workspace.made().unwrap();
        Self { home, workspace }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn collect(&mut self) -> io::Result<Vec<Node>> {
        let mut told = Vec::new();
        let collected = self.workspace.collect(&mut |nodes| {
            told.extend(nodes);
            Ok(())
        })?;
        assert_eq!(collected.changed, !told.is_empty());
        Ok(told)
    }

    #[track_caller]
    fn check(&mut self, expected: &[&str]) {
        let told: Vec<String> = self.collect().unwrap().iter().map(described).collect();
        assert_eq!(
            told.iter().map(String::as_str).collect::<std::collections::BTreeSet<_>>(),
            expected.iter().copied().collect()
        );
        assert_eq!(told.len(), expected.len(), "each once: {told:?}");
    }

    fn mode(&self, name: &str) -> u32 {
        fs::symlink_metadata(self.at(name)).unwrap().mode() & 0o7777
    }

    fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.at(name), fs::Permissions::from_mode(mode)).unwrap();
    }
}

fn described(node: &Node) -> String {
    let what = match &node.what {
        What::Folder { mode } => format!("folder {mode:o}"),
        What::File { mode, bytes, .. } => format!("file {mode:o} {}", String::from_utf8_lossy(bytes)),
        What::More { bytes } => format!("more {}", bytes.len()),
        What::Hole { bytes } => format!("hole {bytes}"),
        What::Link { target } => format!("link {}", target.display()),
        What::Name { of } => format!("name of {}", of.display()),
        What::Other { kind } => format!("{kind:?}"),
        What::Gone => "gone".to_owned(),
    };
    format!("{}: {what}", node.path.display())
}

#[test]
fn what_is_sent_is_made_with_its_permissions_and_times_and_nothing_differs_after_it() {
    let mut made = Made::with(vec![
        node("closed", What::Folder { mode: 0o555 }),
        node("closed/inner", What::Folder { mode: 0o500 }),
        file("closed/inner/file", "text"),
        node("none", What::File { mode: 0, modified: (-5, 7), bytes: Vec::new() }),
        node("link", What::Link { target: "/etc/passwd".into() }),
        file("sparse", "begin"),
        node("sparse", What::Hole { bytes: 8 << 20 }),
        node("sparse", What::More { bytes: b"end".to_vec() }),
        node("name", What::Name { of: "sparse".into() }),
        file("after", ""),
    ]);
    assert_eq!((made.mode("closed"), made.mode("closed/inner"), made.mode("none")), (0o555, 0o500, 0));
    let sparse = fs::metadata(made.at("sparse")).unwrap();
    assert_eq!((sparse.len(), sparse.mtime(), sparse.mtime_nsec(), sparse.nlink()), ((8 << 20) + 8, 1_000_000, 5, 2));
    assert!(sparse.blocks() * 512 < 1 << 20, "holes are holes");
    assert_eq!(fs::metadata(made.at("none")).unwrap().mtime(), -5);
    assert_eq!(fs::read_link(made.at("link")).unwrap(), PathBuf::from("/etc/passwd"));
    assert_eq!(fs::read(made.at("closed/inner/file")).unwrap(), b"text");
    made.check(&[]);
    made.check(&[]);
    assert_eq!((made.mode("closed/inner"), made.mode("none")), (0o500, 0), "put back");
    for name in ["closed", "closed/inner"] {
        made.chmod(name, 0o755);
    }
}

#[test]
fn every_kind_of_change_is_told_once_and_only_the_outermost_of_what_is_gone() {
    let mut made = Made::with(vec![
        folder("d"),
        folder("d/e"),
        file("d/e/f", "f"),
        folder("moved"),
        file("moved/m", "m"),
        folder("to-file"),
        file("to-file/x", "x"),
        file("to-folder", ""),
        node("to-link", What::Folder { mode: 0o700 }),
        node("link", What::Link { target: "a".into() }),
        file("content", "one"),
        file("mode", "m"),
        file("time", "t"),
        file("kept", "k"),
        file("linked", "l"),
    ]);
    fs::remove_dir_all(made.at("d")).unwrap();
    fs::rename(made.at("moved"), made.at("renamed")).unwrap();
    fs::remove_dir_all(made.at("to-file")).unwrap();
    fs::write(made.at("to-file"), "now").unwrap();
    fs::remove_file(made.at("to-folder")).unwrap();
    fs::create_dir(made.at("to-folder")).unwrap();
    fs::remove_dir(made.at("to-link")).unwrap();
    symlink("..", made.at("to-link")).unwrap();
    fs::remove_file(made.at("link")).unwrap();
    symlink("b", made.at("link")).unwrap();
    fs::write(made.at("content"), "two").unwrap();
    fs::write(made.at("empty"), "").unwrap();
    fs::hard_link(made.at("linked"), made.at("linked-too")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, made.at("pipe"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(made.at("socket")).unwrap();
    for (name, mode) in [("mode", 0o4755), ("to-file", 0o600), ("to-folder", 0o1777), ("empty", 0), ("content", 0o644)]
    {
        made.chmod(name, mode);
    }
    fs::File::options().write(true).open(made.at("time")).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    made.check(&[
        "content: file 644 two",
        "d: gone",
        "empty: file 0 ",
        "link: link b",
        "linked-too: name of linked",
        "mode: file 4755 m",
        "moved: gone",
        "pipe: Pipe",
        "renamed: folder 755",
        "renamed/m: file 644 m",
        "socket: Socket",
        "time: file 644 t",
        "to-file: file 600 now",
        "to-folder: folder 1777",
        "to-link: link ..",
    ]);
    made.check(&[]);
    fs::remove_file(made.at("empty")).unwrap();
    made.check(&["empty: gone"]);
}

#[test]
fn a_file_that_is_written_through_a_mapping_differs_though_its_times_are_the_same() {
    let mut made = Made::with(vec![file("mapped", &"x".repeat(5000)), file("kept", &"x".repeat(5000))]);
    let before = fs::metadata(made.at("mapped")).unwrap();
    let program =
        "import mmap,sys\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\nassert m[4097]==120\nm[4097]=121\n";
    let ended = std::process::Command::new("python3").arg("-c").arg(program).arg(made.at("mapped")).status().unwrap();
    assert!(ended.success());
    let after = fs::metadata(made.at("mapped")).unwrap();
    let times = |of: &fs::Metadata| (of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec(), of.size());
    assert_eq!(times(&before), times(&after), "the twin: nothing but its contents tells");
    let told = made.collect().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].path, "mapped");
}

#[test]
fn closed_files_and_folders_are_told_with_what_they_hold_and_stay_closed() {
    let mut made = Made::with(vec![folder("d"), file("d/old", "old"), file("secret", "s")]);
    fs::create_dir_all(made.at("d/a/b")).unwrap();
    fs::write(made.at("d/a/b/new"), "new").unwrap();
    fs::write(made.at("secret"), "now").unwrap();
    for (name, mode) in [("d/a/b/new", 0), ("d/a/b", 0o100), ("d/a", 0), ("d", 0o400), ("secret", 0o200), ("", 0o000)] {
        made.chmod(name, mode);
    }
    made.check(&[
        "d: folder 400",
        "d/a: folder 0",
        "d/a/b: folder 100",
        "d/a/b/new: file 0 new",
        "secret: file 200 now",
    ]);
    made.check(&[]);
    for (name, mode) in [("", 0o000), ("d", 0o400), ("d/a", 0), ("d/a/b", 0o100)] {
        assert_eq!(made.mode(name), mode, "{name} is as the program left it");
        made.chmod(name, 0o700);
    }
    assert_eq!((made.mode("d/a/b/new"), made.mode("secret")), (0, 0o200));
}

#[test]
fn f23_huge_holes_are_told_as_holes_in_no_time() {
    let mut made = Made::with(vec![file("was", "w")]);
    let sparse = fs::File::create(made.at("sparse")).unwrap();
    sparse.set_len(1 << 40).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, &[7; 3 * PIECE], 1 << 39).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, &[0; PIECE], 1 << 30).unwrap();
    made.chmod("sparse", 0o600);
    let told = made.collect().unwrap();
    let mut size = 0;
    for node in &told {
        size += match &node.what {
            What::File { bytes, .. } | What::More { bytes } => bytes.len() as u64,
            What::Hole { bytes } => *bytes,
            other => panic!("{other:?}"),
        };
    }
    assert_eq!(size, 1 << 40);
    assert!(told.len() < 10, "{}", told.len());
    made.check(&[]);
}

#[test]
fn r04_nesting_without_end_and_names_without_end_are_errors_in_words() {
    let mut made = Made::with(vec![folder("d")]);
    let mut here = rustix::fs::open(made.at("d"), FOLDER, Mode::empty()).unwrap();
    for _ in 0..100_000 {
        rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
        here = rustix::fs::openat(&here, "d", FOLDER, Mode::empty()).unwrap();
    }
    drop(here);
    let error = made.collect().unwrap_err().to_string();
    assert!(error.contains("longer than 4095 bytes"), "{error}");
    // The twin, and the clean-up: the next look tells of what is there then.
    let removed = std::process::Command::new("rm").arg("-rf").arg(made.at("d/d")).status().unwrap();
    assert!(removed.success());
    let told = made.collect().unwrap();
    assert!(told.iter().any(|node| node.path == "d/d" && node.what == What::Gone), "{told:?}");

    made.workspace.most_names = 50;
    for number in 0..49 {
        fs::write(made.at(&format!("d/{number}")), "").unwrap();
    }
    assert_eq!(made.collect().unwrap().len(), 49);
    fs::write(made.at("d/one-more"), "").unwrap();
    let error = made.collect().unwrap_err().to_string();
    assert!(error.contains("more than 50 files and folders"), "{error}");
}

#[test]
fn f22_names_of_any_bytes_are_told_as_they_are() {
    let mut made = Made::with(Vec::new());
    let odd = OsString::from_vec(b"a\nb\x1b[31m\xff\\[x]".to_vec());
    fs::write(made.home.path().join(&odd), "odd").unwrap();
    let told = made.collect().unwrap();
    assert!(told.len() == 1 && told[0].path == odd, "{told:?}");
}

#[test]
fn f02_no_link_is_followed_neither_in_filling_nor_in_looking() {
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("canary"), "of the host").unwrap();
    let mut made = Made::with(vec![folder("d")]);
    fs::remove_dir(made.at("d")).unwrap();
    symlink(outside.path(), made.at("d")).unwrap();
    assert!(made.at("d/canary").exists(), "the twin: who follows it gets there");
    let told: Vec<String> = made.collect().unwrap().iter().map(described).collect();
    assert_eq!(told, [format!("d: link {}", outside.path().display())]);
    assert!(made.workspace.make(vec![file("d/new", "x")]).is_err());
    assert!(!outside.path().join("new").exists());
}

#[test]
fn a_look_that_came_to_no_end_is_told_again_as_a_whole() {
    let mut made = Made::with(vec![folder("d"), file("d/a", "a"), file("gone", "g"), file("kept", "k")]);
    fs::write(made.at("new"), "n").unwrap();
    made.chmod("new", 0o644);
    fs::remove_dir_all(made.at("d")).unwrap();
    fs::remove_file(made.at("gone")).unwrap();
    assert!(made.workspace.collect(&mut |_| Err(io::ErrorKind::BrokenPipe.into())).is_err());
    // What was told of as new is gone now, and what was told of as gone is back.
    fs::remove_file(made.at("new")).unwrap();
    fs::create_dir(made.at("d")).unwrap();
    made.chmod("d", 0o755);
    made.check(&["d: folder 755", "d/a: gone", "gone: gone", "new: gone"]);
    made.check(&[]);
}

#[test]
fn orders_that_mean_nothing_and_folders_that_are_not_empty_are_refused() {
    let bad: [Vec<Node>; 9] = [
        vec![file("../a", "")],
        vec![file("/a", "")],
        vec![file("", "")],
        vec![file("a", ""), file("a", "")],
        vec![file("no/a", "")],
        vec![file("a", ""), node("b", What::More { bytes: vec![1] })],
        vec![node("a", What::Hole { bytes: 1 })],
        vec![node("a", What::Name { of: "b".into() })],
        vec![node("a", What::Gone)],
    ];
    for nodes in bad {
        let home = tempfile::tempdir().unwrap();
        let mut workspace = Workspace::new(home.path().as_os_str()).unwrap();
        assert!(workspace.make(nodes.clone()).is_err(), "{nodes:?}");
    }
    let home = tempfile::tempdir().unwrap();
    Workspace::new(home.path().as_os_str()).unwrap().make(vec![file("a", "")]).unwrap();
    let error = Workspace::new(home.path().as_os_str()).unwrap_err().to_string();
    assert!(error.contains("not empty") && error.contains("\"a\""), "{error}");
}

#[test]
fn what_is_put_back_is_as_it_was_and_the_next_look_tells_all_of_it() {
    let mut made =
        Made::with(vec![folder("d"), file("d/a", "a"), file("b", "b"), folder("closed"), file("closed/x", "x")]);
    fs::remove_file(made.at("d/a")).unwrap();
    fs::remove_dir(made.at("d")).unwrap();
    symlink("/etc", made.at("d")).unwrap();
    fs::remove_file(made.at("b")).unwrap();
    fs::create_dir_all(made.at("b/new")).unwrap();
    fs::write(made.at("b/new/more"), "x").unwrap();
    fs::write(made.at("closed/x"), "changed").unwrap();
    made.chmod("closed", 0o100);
    made.chmod("b/new", 0);
    made.collect().unwrap();
    let gone = |path: &str| node(path, What::Gone);
    made.workspace
        .put(vec![gone("closed/x"), gone("b/new/more"), gone("b/new"), gone("b"), gone("d/a"), gone("d")])
        .unwrap();
    let pipe = node("pipe", What::Other { kind: OtherKind::Pipe });
    let again = vec![file("b", "b"), folder("closed"), file("closed/x", "x"), folder("d"), file("d/a", "a"), pipe];
    made.workspace.put(again).unwrap();
    let holes =
        vec![file("holes", "x"), node("holes", What::Hole { bytes: 9 }), node("holes", What::More { bytes: vec![1] })];
    made.workspace.put(holes).unwrap();
    made.workspace.put_all().unwrap();
    assert_eq!([made.mode("d"), made.mode("closed")], [0o755, 0o755]);
    assert_eq!(fs::read(made.at("holes")).unwrap(), b"x\0\0\0\0\0\0\0\0\0\x01");
    made.check(&[
        "b: file 644 b",
        "closed: folder 755",
        "closed/x: file 644 x",
        "d: folder 755",
        "d/a: file 644 a",
        "holes: file 644 x\0\0\0\0\0\0\0\0\0\u{1}",
        "pipe: Pipe",
    ]);
    made.check(&[]);
}

#[test]
fn folders_that_a_program_closed_are_closed_again_after_something_was_put_into_them() {
    let mut made = Made::with(vec![folder("a"), folder("a/b"), file("a/b/c", "c")]);
    made.chmod("a/b", 0o500);
    made.chmod("a", 0o300);
    made.workspace.put(vec![node("a/b/c", What::Gone), file("a/b/c", "other")]).unwrap();
    assert_eq!(fs::read_to_string(made.at("a/b/c")).unwrap(), "other");
    made.workspace.put_all().unwrap();
    assert_eq!([made.mode("a"), made.mode("a/b")], [0o300, 0o500]);
    made.chmod("a", 0o700);
    made.chmod("a/b", 0o700);
}

#[test]
fn f02_nothing_is_put_or_removed_through_a_link_and_no_folder_goes_with_what_is_in_it() {
    let outside = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::write(outside.path().join("kept"), "kept").unwrap();
    let mut made = Made::with(vec![folder("d"), file("d/in", "in")]);
    symlink(outside.path(), made.at("link")).unwrap();
    assert!(made.workspace.put(vec![file("link/new", "x")]).is_err());
    made.workspace.put(vec![node("link/kept", What::Gone)]).unwrap();
    assert!(outside.path().join("kept").exists() && !outside.path().join("new").exists());
    assert!(made.workspace.put(vec![node("d", What::Gone)]).is_err());
    assert!(made.workspace.put(vec![file("d", "x")]).is_err());
    assert!(made.at("d/in").exists());
    for bad in ["../x", "/x", "", "a/../b"] {
        assert!(made.workspace.put(vec![file(bad, "x")]).is_err(), "{bad:?}");
    }
    assert!(made.workspace.put(vec![node("d/in", What::More { bytes: vec![1] })]).is_err(), "a piece of no file");
    made.workspace.put(vec![file("link", "x")]).unwrap();
    made.workspace.put_all().unwrap();
    assert!(made.at("link").is_file() && outside.path().join("kept").exists(), "the twin: the link itself");
}
