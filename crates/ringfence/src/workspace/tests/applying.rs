use std::ffi::OsStr;

use super::*;
use crate::workspace::apply::{Left, Progress, ProgressState, Why};
use crate::workspace::change::OtherKind;
use crate::workspace::compare::Conflict;

/// Every kind of change at once.
fn everything() -> Bench {
    let mut bench = Bench::new();
    bench.write("changed", "old");
    bench.write("removed", "gone soon");
    bench.write("folder/inside", "old");
    bench.write("going/a/deep", "1");
    bench.write("going/b", "2");
    bench.folder("going/empty");
    bench.link("link", "changed");
    bench.link("link-removed", "/etc/passwd");
    bench.write("file-to-folder", "was a file");
    bench.write("folder-to-file/x/y", "was in a folder");
    bench.write("file-to-link", "was a file");
    bench.link("link-to-file", "nowhere");
    bench.link("link-to-folder", "nowhere");
    bench.write("mode", "same");
    bench.write("untouched", "same");
    bench.folder("closed");

    bench.changes_file("changed", "new");
    bench.removes("removed");
    bench.changes_file("folder/inside", "new");
    bench.changes_file("folder/added", "new");
    for path in ["going", "going/a", "going/a/deep", "going/b", "going/empty"] {
        bench.removes(path);
    }
    bench.changes_link("link", "removed");
    bench.removes("link-removed");
    bench.changes_link("link-added", "../outside/canary");
    bench.changes_folder("file-to-folder", 0o750);
    bench.changes_file("file-to-folder/in", "new");
    bench.changes_file("folder-to-file", "now a file");
    bench.removes("folder-to-file/x");
    bench.removes("folder-to-file/x/y");
    bench.changes_link("file-to-link", "changed");
    bench.changes_file("link-to-file", "now a file");
    bench.changes_folder("link-to-folder", 0o755);
    bench.changes_file("link-to-folder/in", "new");
    let node = bench.file_node("same", 0o755);
    bench.changes("mode", Some(node));
    bench.changes_folder("made", 0o555);
    bench.changes_folder("made/deep", 0o700);
    bench.changes_file("made/deep/file", "new");
    bench.changes_folder("closed", 0o500);
    bench.changes_file("closed/file", "new");
    bench
}

#[test]
fn every_kind_of_change_is_applied_and_taken_back_byte_for_byte() {
    let bench = everything();
    let before = bench.picture();
    let applied = bench.apply_whole();
    assert_eq!(applied.done.len(), bench.changes.len());
    for (path, text) in [
        ("changed", "new"),
        ("folder/inside", "new"),
        ("folder/added", "new"),
        ("file-to-folder/in", "new"),
        ("folder-to-file", "now a file"),
        ("link-to-file", "now a file"),
        ("link-to-folder/in", "new"),
        ("made/deep/file", "new"),
        ("closed/file", "new"),
        ("untouched", "same"),
    ] {
        assert_eq!(bench.read(path).as_deref(), Some(text), "{path}");
        let metadata = fs::symlink_metadata(bench.at(path)).unwrap();
        assert!(metadata.is_file(), "{path}");
        if path != "untouched" {
            let time = (metadata.mtime(), metadata.mtime_nsec());
            assert_eq!(time, (THEN.seconds, i64::from(THEN.nanoseconds)), "{path}");
        }
    }
    for gone in ["removed", "going", "link-removed"] {
        assert!(fs::symlink_metadata(bench.at(gone)).is_err(), "{gone}");
    }
    for (link, target) in [("link", "removed"), ("link-added", "../outside/canary"), ("file-to-link", "changed")] {
        assert_eq!(fs::read_link(bench.at(link)).unwrap(), Path::new(target));
    }
    for (path, mode) in [("mode", 0o755), ("made", 0o555), ("made/deep", 0o700), ("closed", 0o500)] {
        assert_eq!(fs::metadata(bench.at(path)).unwrap().mode() & 0o7777, mode, "{path}");
    }
    // A second time there is nothing to do.
    let again = bench.apply_whole();
    assert_eq!((again.done.len(), again.same.len()), (0, bench.changes.len()));
    bench.undo_whole();
    assert_eq!(bench.picture(), before);
    bench.nothing_happened_outside();
}

#[test]
fn what_was_applied_is_known_and_a_second_undo_goes_one_further_back() {
    let mut bench = Bench::new();
    bench.write("a", "1");
    let first = bench.picture();
    bench.changes_file("a", "2");
    assert_eq!(Progress::of(&bench.kept()).unwrap(), None);
    bench.apply_whole();
    assert_eq!(Progress::of(&bench.kept()).unwrap().unwrap().state, ProgressState::Applied);
    let second = bench.picture();
    let run = std::mem::replace(&mut bench.run, RunId::generate().unwrap());
    bench.changes_file("a", "3");
    bench.apply_whole();
    bench.undo_whole();
    assert_eq!(bench.picture(), second);
    assert_eq!(Progress::of(&bench.kept()).unwrap().unwrap().state, ProgressState::TakenBack);
    bench.undo_whole();
    assert_eq!(bench.picture(), first);
    assert_eq!(Progress::of(&kept::of(&bench.state, &run)).unwrap().unwrap().state, ProgressState::TakenBack);
    assert!(undo::next(&bench.site()).is_err(), "nothing is left");
    let kinds: Vec<_> = crate::ledger::records_of(&bench.state, run.as_str()).unwrap();
    let kinds: Vec<_> = kinds.iter().map(|record| record.kind).collect();
    assert_eq!(kinds, [crate::ledger::Kind::Applied, crate::ledger::Kind::Undone]);
}

#[test]
fn only_the_newest_journals_are_kept() {
    let mut bench = Bench::new();
    bench.write("a", "");
    for text in ["1", "2", "3"] {
        bench.changes_file("a", text);
        bench.apply_whole();
    }
    let site = bench.site();
    assert_eq!(site.prune(Some(1)).unwrap(), 2);
    assert_eq!(site.journals().unwrap().len(), 1);
    drop(site);
    bench.undo_whole();
    assert_eq!(bench.read("a").as_deref(), Some("2"));
    assert!(undo::next(&bench.site()).is_err());
}

#[test]
fn f22_odd_names_are_applied_as_they_are() {
    let mut bench = Bench::new();
    let names: [&[u8]; 6] = [b"new\nline", b"\x1b[2J", b"\xff\xfe", b"*[a]", b"back\\slash", b".ringfence-x"];
    for name in names {
        bench.changes_file(OsStr::from_bytes(name), "x");
    }
    bench.kept().keep(&bench.set()).unwrap();
    let applied = apply::apply(&bench.site(), &bench.ledger, &bench.kept(), &bench.set(), bench.propose()).unwrap();
    assert_eq!((applied.done.len(), applied.left.len()), (names.len(), 0));
    for name in names {
        assert_eq!(fs::read(bench.at(OsStr::from_bytes(name))).unwrap(), b"x");
    }
}

#[test]
fn f17_set_user_id_is_dropped_and_pipes_sockets_and_devices_are_never_carried_over() {
    let mut bench = Bench::new();
    let node = bench.file_node("x", 0o6755);
    bench.changes("tool", Some(node));
    bench.changes_folder("shared", 0o7777);
    for (name, kind) in [("pipe", OtherKind::Pipe), ("socket", OtherKind::Socket), ("device", OtherKind::Device)] {
        bench.changes(name, Some(Node::Other(kind)));
    }
    let applied = bench.apply();
    assert_eq!(applied.done.len(), 2);
    assert_eq!(applied.left.len(), 3);
    assert!(applied.left.iter().all(|left| matches!(left.why, Why::NotCarried(_))));
    assert_eq!(fs::metadata(bench.at("tool")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::metadata(bench.at("shared")).unwrap().mode() & 0o7777, 0o1777);
    // The twin: a file can have such bits here.
    bench.write("twin", "x");
    bench.mode("twin", 0o6755);
    assert_eq!(fs::metadata(bench.at("twin")).unwrap().mode() & 0o7777, 0o6755);
}

#[test]
fn an_undo_brings_back_the_set_user_id_of_the_hosts_own_file() {
    let mut bench = Bench::new();
    bench.write("tool", "x");
    bench.mode("tool", 0o4755);
    let before = bench.picture();
    bench.changes_file("tool", "y");
    bench.apply_whole();
    assert_eq!(fs::metadata(bench.at("tool")).unwrap().mode() & 0o7777, 0o644);
    bench.undo_whole();
    assert_eq!(bench.picture(), before);
}

#[test]
fn what_root_makes_belongs_to_whom_the_workspace_belongs_to() {
    if !is_root() {
        return;
    }
    let mut bench = Bench::new();
    bench.write("theirs", "x");
    std::os::unix::fs::chown(bench.work(), Some(1234), Some(2345)).unwrap();
    std::os::unix::fs::chown(bench.at("theirs"), Some(3456), Some(4567)).unwrap();
    bench.changes_file("theirs", "y");
    bench.changes_folder("made", 0o755);
    bench.changes_file("made/file", "y");
    bench.changes_link("made/link", "y");
    bench.apply_whole();
    let owner = |path: &str| {
        let metadata = fs::symlink_metadata(bench.at(path)).unwrap();
        (metadata.uid(), metadata.gid())
    };
    assert_eq!(owner("theirs"), (3456, 4567));
    for path in ["made", "made/file", "made/link"] {
        assert_eq!(owner(path), (1234, 2345), "{path}");
    }
    bench.undo_whole();
    assert_eq!(owner("theirs"), (3456, 4567));
}

#[test]
fn flagged_changes_wait_for_a_word_and_denied_ones_are_never_applied() {
    let mut bench = Bench::new();
    for name in ["denied", "flagged", "free", "protected", "unjudged"] {
        bench.changes_file(name, "x");
    }
    let set = bench.set();
    let flagged = |protected| {
        Judgement::Flagged(vec![Flag { rule: "a.rule", reason: "runs on the host", detail: None, protected }])
    };
    let judged = |change: &Change| match change.place.as_path().to_str() {
        Some("flagged") => flagged(false),
        Some("protected") => flagged(true),
        Some("denied") => Judgement::Denied("**/denied".to_owned()),
        _ => Judgement::Free,
    };
    let judgements: Vec<Judgement> = set.changes.iter().map(judged).collect();
    let all = Selection::all(&set);
    for (flagged, expected) in [
        (Flagged::Leave, vec!["free"]),
        (Flagged::LeaveProtected, vec!["flagged", "free"]),
        (Flagged::Include, vec!["flagged", "free", "protected"]),
    ] {
        // There is no judgement of the last one.
        let proposal = apply::propose_judged(&set, &judgements[..4], &bench.kept(), &bench.host(), &all, flagged);
        let steps: Vec<_> = proposal.steps.iter().map(|step| step.place.as_path().to_str().unwrap()).collect();
        assert_eq!(steps, expected);
        assert!(proposal.left.iter().any(|left| matches!(&left.why, Why::Denied(rule) if rule == "**/denied")));
        let waits = proposal.left.iter().any(|left| matches!(left.why, Why::Flagged(_)));
        assert_eq!(waits, flagged != Flagged::Include);
    }
}

#[test]
fn a_part_is_applied_with_the_folders_that_it_needs() {
    let mut bench = Bench::new();
    bench.changes_folder("a", 0o755);
    bench.changes_folder("a/b", 0o755);
    bench.changes_file("a/b/c", "x");
    bench.changes_file("a/d", "x");
    let set = bench.set();
    bench.kept().keep(&set).unwrap();
    let chosen = Selection::of(&set, &["a/b/c".into()], &bench.work()).unwrap();
    let site = bench.site();
    let mut proposal = propose_free(&set, &bench.kept(), site.host(), &chosen);
    assert_eq!(proposal.steps.len(), 3);
    // Whoever does not want the folder does not get what is in it.
    proposal.keep_only(site.host(), |step| step.place != place("a/b"));
    assert_eq!(proposal.steps.len(), 1);
    assert!(matches!(&proposal.left[..], [Left { why: Why::Conflict(Conflict::NoFolder(_)), .. }]));
    let proposal = propose_free(&set, &bench.kept(), site.host(), &chosen);
    apply::apply(&site, &bench.ledger, &bench.kept(), &set, proposal).unwrap();
    assert_eq!(Progress::of(&bench.kept()).unwrap().unwrap().state, ProgressState::Partly);
    assert!(bench.at("a/b/c").exists());
    assert!(!bench.at("a/d").exists());
}

#[test]
fn nothing_is_changed_when_the_ledger_cannot_be_written() {
    let mut bench = Bench::new();
    bench.changes_file("a", "x");
    let path = bench.ledger.path().to_owned();
    fs::write(&path, "this is no record\n").unwrap();
    bench.kept().keep(&bench.set()).unwrap();
    let site = bench.site();
    assert!(apply::apply(&site, &bench.ledger, &bench.kept(), &bench.set(), bench.propose()).is_err());
    assert_eq!(bench.picture(), Picture::new());
    // The twin: with a ledger it is applied.
    drop(site);
    fs::remove_file(path).unwrap();
    bench.ledger = Ledger::open(&bench.state).unwrap();
    bench.apply_whole();
    assert_eq!(bench.read("a").as_deref(), Some("x"));
}

#[test]
fn two_at_once_in_one_workspace_are_refused() {
    let bench = Bench::new();
    let first = bench.site();
    let second = Site::open(&bench.state, &bench.work(), bench.workspace_is());
    assert!(matches!(second, Err(apply::ApplyError::Busy(_))));
    drop(first);
    bench.site();
}

#[test]
fn f23_a_file_that_is_mostly_holes_does_not_fill_the_disk() {
    let mut bench = Bench::new();
    let mut text = vec![0u8; 8 * 1024 * 1024];
    text[5_000_000] = 1;
    bench.changes_file("sparse", &text);
    bench.apply_whole();
    assert_eq!(fs::read(bench.at("sparse")).unwrap(), text);
    assert!(fs::metadata(bench.at("sparse")).unwrap().blocks() < 2048, "less than a mebibyte is written");
}

#[test]
fn nothing_in_the_state_folder_is_ever_applied() {
    let mut bench = Bench::new();
    bench.state = StateFolder::prepare(bench.at("home/state")).unwrap();
    bench.ledger = Ledger::open(&bench.state).unwrap();
    bench.changes_file("home/state/ledger.jsonl", "forged");
    bench.changes_file("home/state/new", "forged");
    bench.changes_file("home/other", "fine");
    let applied = bench.apply();
    assert_eq!(applied.done, [place("home/other")]);
    assert!(applied.left.iter().all(|left| matches!(left.why, Why::Denied(_))), "{:?}", applied.left);
    assert_ne!(bench.read("home/state/ledger.jsonl").as_deref(), Some("forged"));
}
