use std::ffi::OsStr;

use super::*;
use crate::workspace::apply::Why;
use crate::workspace::beneath::HoldError;
use crate::workspace::compare::Conflict;

/// The host does `meanwhile` after the program saw it; only `conflict` is left, and the host stays as it then is.
#[track_caller]
fn check(bench: &Bench, meanwhile: impl FnOnce(&Bench), conflict: &Conflict) {
    meanwhile(bench);
    let before = bench.picture();
    let applied = bench.apply();
    let [left] = &applied.left[..] else { panic!("{:?}", applied.left) };
    assert!(matches!(&left.why, Why::Conflict(why) if why == conflict), "{left:?}");
    assert_eq!(bench.picture(), before);
    assert!(!conflict.advice().is_empty());
}

fn one_file(text: &str, new: &str) -> Bench {
    let mut bench = Bench::new();
    bench.write("a", text);
    bench.changes_file("a", new);
    bench
}

#[test]
fn a_file_that_the_host_changed_in_the_same_lines_is_left() {
    check(&one_file("1\n2\n", "1\nprogram\n"), |bench| bench.write("a", "1\nhost\n"), &Conflict::SameLines);
}

#[test]
fn a_file_that_the_host_changed_and_that_is_no_text_is_left() {
    let changed = Conflict::ChangedMeanwhile;
    check(&one_file("1\n2\n", "0\n1\n2\n"), |bench| bench.write("a", "1\n2\n\0"), &changed);
    check(&one_file("1\n2\n", "\0"), |bench| bench.write("a", "1\n2\n3\n"), &changed);
    let large = "x\n".repeat(600_000);
    check(&one_file("1\n", "0\n1\n"), |bench| bench.write("a", &large), &changed);
}

#[test]
fn what_the_host_made_removed_or_turned_into_something_else_is_left() {
    let mut added = Bench::new();
    added.changes_file("a", "program");
    check(&added, |bench| bench.write("a", "host"), &Conflict::MadeMeanwhile);
    check(&one_file("1", "2"), |bench| fs::remove_file(bench.at("a")).unwrap(), &Conflict::GoneMeanwhile);
    let to_link = |bench: &Bench| {
        fs::remove_file(bench.at("a")).unwrap();
        bench.link("a", bench.outside().join("canary"));
    };
    let bench = one_file("1", "2");
    check(&bench, to_link, &Conflict::ChangedMeanwhile);
    bench.nothing_happened_outside();
    let to_folder = |bench: &Bench| {
        fs::remove_file(bench.at("a")).unwrap();
        bench.folder("a");
    };
    check(&one_file("1", "2"), to_folder, &Conflict::ChangedMeanwhile);
    let to_pipe = |bench: &Bench| {
        fs::remove_file(bench.at("a")).unwrap();
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(CWD, bench.at("a"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    check(&one_file("1", "2"), to_pipe, &Conflict::Special);
    let mut removed = Bench::new();
    removed.write("a", "1");
    removed.removes("a");
    check(&removed, |bench| bench.write("a", "2"), &Conflict::ChangedMeanwhile);
}

#[test]
fn permissions_that_both_changed_are_left() {
    let mut bench = Bench::new();
    bench.write("a", "1\n");
    let node = bench.file_node("2\n", 0o755);
    bench.changes("a", Some(node));
    check(&bench, |bench| bench.mode("a", 0o600), &Conflict::Permissions);
}

#[test]
fn what_the_host_changed_while_the_program_ran_is_left() {
    let mut bench = one_file("1", "2");
    bench.changes.get_mut(&place("a")).unwrap().before = Before::Unknown;
    check(&bench, |_| (), &Conflict::NotKnown);
    // The twin: what the host has already is done.
    bench.write("a", "2");
    bench.apply_whole();
}

#[test]
fn a_folder_that_holds_more_than_the_program_saw_is_not_removed() {
    let mut bench = Bench::new();
    bench.write("going/seen", "1");
    bench.write("going/deep/seen", "1");
    for path in ["going", "going/seen", "going/deep", "going/deep/seen"] {
        bench.removes(path);
    }
    bench.write("going/deep/host", "mine");
    let applied = bench.apply();
    let left: Vec<&Path> = applied.left.iter().map(|left| left.place.as_path()).collect();
    assert_eq!(left, [Path::new("going"), Path::new("going/deep")]);
    assert!(applied.left.iter().all(|left| matches!(left.why, Why::Conflict(Conflict::Holds(_)))));
    assert_eq!(bench.read("going/deep/host").as_deref(), Some("mine"));
    assert!(!bench.at("going/seen").exists());
}

#[test]
fn a_folder_that_became_a_link_leads_nowhere() {
    let mut bench = Bench::new();
    bench.write("a/b", "1");
    bench.changes_file("a/c", "new");
    bench.changes_file("a/b", "new");
    bench.removes("a/canary");
    fs::rename(bench.at("a"), bench.at("moved")).unwrap();
    bench.link("a", bench.outside());
    let applied = bench.apply();
    assert_eq!((applied.done.len(), applied.left.len()), (0, 2), "{applied:?}");
    bench.nothing_happened_outside();
    assert_eq!(bench.read("moved/b").as_deref(), Some("1"));
}

#[test]
fn text_that_both_changed_in_different_lines_is_merged_and_taken_back() {
    let bench = one_file("1\n2\n3\n4\n5\n", "program\n2\n3\n4\n5\n");
    bench.write("a", "1\n2\n3\n4\nhost\n");
    bench.mode("a", 0o600);
    let before = bench.picture();
    bench.apply_whole();
    assert_eq!(bench.read("a").as_deref(), Some("program\n2\n3\n4\nhost\n"));
    assert_eq!(fs::metadata(bench.at("a")).unwrap().mode() & 0o7777, 0o600, "the host's own permissions stay");
    let again = bench.apply_whole();
    assert_eq!(again.same.len(), 1, "what was merged holds it already");
    bench.undo_whole();
    assert_eq!(bench.picture(), before);
}

#[test]
fn a_file_that_was_only_copied_or_written_back_is_as_it_was() {
    let bench = one_file("1", "2");
    fs::copy(bench.at("a"), bench.at("copy")).unwrap();
    fs::rename(bench.at("copy"), bench.at("a")).unwrap();
    bench.apply_whole();
    assert_eq!(bench.read("a").as_deref(), Some("2"));
}

#[test]
fn folders_that_both_made_become_one() {
    let mut bench = Bench::new();
    bench.changes_folder("a", 0o755);
    bench.changes_file("a/program", "1");
    bench.write("a/host", "2");
    bench.mode("a", 0o700);
    bench.apply_whole();
    assert_eq!(bench.read("a/program").as_deref(), Some("1"));
    assert_eq!(bench.read("a/host").as_deref(), Some("2"));
    assert_eq!(fs::metadata(bench.at("a")).unwrap().mode() & 0o7777, 0o700);
}

#[test]
fn f03_a_workspace_that_is_another_folder_now_is_refused() {
    let mut bench = Bench::new();
    bench.changes_file("a", "x");
    let (work, is) = (bench.work(), bench.workspace_is());
    assert!(Held::open(&work, is).is_ok());
    fs::rename(&work, work.with_file_name("moved")).unwrap();
    fs::create_dir(&work).unwrap();
    assert!(matches!(Held::open(&work, is), Err(HoldError::Another(_))));
    fs::remove_dir(&work).unwrap();
    symlink("moved", &work).unwrap();
    assert!(matches!(Held::open(&work, is), Err(HoldError::Another(_))), "not even by a link to it");
}

#[test]
fn f02_links_that_point_out_are_never_followed_wherever_they_stand() {
    let mut bench = Bench::new();
    // Where the program changed, removed or added something, the host has a link outside; and what the program made are
    // links outside.
    for (index, path) in ["l", "d/l", "d/e/l"].into_iter().enumerate() {
        bench.folder("d/e");
        let full = bench.at(path);
        symlink(bench.outside(), &full).unwrap();
        symlink(bench.outside().join("canary"), full.with_file_name("file")).unwrap();
        bench.changes_file(full.with_file_name("file").strip_prefix(bench.work()).unwrap(), "x");
        if index == 0 {
            bench.changes_folder(path, 0o755);
            bench.changes_file(format!("{path}/canary"), "overwritten");
        } else {
            bench.removes(path);
            bench.removes(format!("{path}/canary"));
        }
    }
    bench.changes_link("made", bench.outside());
    bench.changes_file("made/canary", "overwritten");
    bench.changes_link("absolute", "/etc/passwd");
    let before = bench.picture();
    let applied = bench.apply();
    bench.nothing_happened_outside();
    assert_eq!(bench.read("l/canary").as_deref(), Some("overwritten"), "it is a folder of the workspace now");
    let [left] = &applied.left[..] else { panic!("{:?}", applied.left) };
    assert_eq!(left.place, place("made/canary"));
    bench.undo_whole();
    assert_eq!(bench.picture(), before);
    bench.nothing_happened_outside();
}

#[test]
fn an_undo_leaves_what_was_changed_since_unless_it_is_told_otherwise() {
    let mut bench = Bench::new();
    bench.write("a", "1");
    bench.write("b", "1");
    let before = bench.picture();
    bench.changes_file("a", "2");
    bench.changes_file("b", "2");
    bench.changes_file("c", "2");
    bench.apply_whole();
    bench.write("a", "edited");
    fs::remove_file(bench.at("c")).unwrap();
    let undone = bench.undo(Since::Leave);
    let [left] = &undone.left[..] else { panic!("{:?}", undone.left) };
    assert!(left.place == place("a") && matches!(left.why, Why::Conflict(Conflict::ChangedSince)));
    assert_eq!((bench.read("a").as_deref(), bench.read("b").as_deref()), (Some("edited"), Some("1")));
    // It is still the next one, and by force all of it goes.
    let undone = bench.undo(Since::TakeBack);
    assert!(undone.left.is_empty());
    assert_eq!(bench.picture(), before);
    assert!(undo::next(&bench.site()).is_err());
    let site = bench.site();
    let forced = site.journals().unwrap().remove(0);
    let journal = site.open_journal(&forced.head.id).unwrap();
    assert_eq!(journal.objects().bytes(object("edited"), 100).unwrap().unwrap(), b"edited", "a copy is kept");
}

#[test]
fn an_undo_never_removes_a_folder_with_something_in_it_that_was_not_applied() {
    let mut bench = Bench::new();
    bench.changes_folder("made", 0o755);
    bench.changes_file("made/file", "1");
    bench.apply_whole();
    bench.write("made/mine", "keep");
    let undone = bench.undo(Since::TakeBack);
    let [left] = &undone.left[..] else { panic!("{:?}", undone.left) };
    assert!(matches!(&left.why, Why::Conflict(Conflict::Holds(name)) if name == OsStr::new("mine")));
    assert_eq!(bench.read("made/mine").as_deref(), Some("keep"));
    assert!(!bench.at("made/file").exists());
}
