//! What a program changed under review, and what is kept of it when it ends.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::time::Duration;

use ringfence::StateFolder;
use ringfence::workspace::change::{OtherKind, WasKind};
use ringfence::workspace::kept::{self, Kept};
use ringfence::workspace::{Before, Change, ChangeSet, Node};
use ringfence_testkit::canary::FileCanary;

use crate::probe::{Wall, is_root, outside, python, run, sh, text, walled, walled_with};
use crate::stage::{Ended, Stage};

/// The kernel's clock for files goes in steps: what is written in the same step as the start counts as changed since.
fn settle() {
    std::thread::sleep(Duration::from_millis(30));
}

fn state(stage: &Stage) -> StateFolder {
    StateFolder::prepare(stage.state()).unwrap()
}

/// What the newest run changed, when something is kept.
fn newest(stage: &Stage) -> Option<(ChangeSet, Kept)> {
    let state = state(stage);
    let run = kept::runs(&state).unwrap().pop()?;
    let kept = kept::of(&state, &run);
    Some((kept.load().unwrap(), kept))
}

fn describe(change: &Change, kept: &Kept) -> String {
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
        Some(Node::File { content, mode, .. }) => {
            let bytes = kept.objects().bytes(*content, 1 << 20).unwrap().unwrap();
            format!("file {mode:o} {:?}", String::from_utf8_lossy(&bytes))
        }
        Some(Node::Link { target }) => format!("link to {}", target.to_string_lossy()),
        Some(Node::Folder { mode }) => format!("folder {mode:o}"),
        Some(Node::Other(OtherKind::Pipe)) => "pipe".to_owned(),
        Some(Node::Other(OtherKind::Socket)) => "socket".to_owned(),
        Some(Node::Other(OtherKind::Device)) => "device".to_owned(),
    };
    format!("{}: {before} -> {after}", change.place.as_path().display())
}

/// Everything that the newest run changed, a line for each.
fn listed(stage: &Stage) -> Vec<String> {
    newest(stage).map_or_else(Vec::new, |(set, kept)| set.changes.iter().map(|it| describe(it, &kept)).collect())
}

/// Runs `script` under review, with `umask 022`, and checks what is kept and that the host stays as it was.
#[track_caller]
fn check(stage: &Stage, script: &str, expected: &[&str]) -> Ended {
    settle();
    let canary = FileCanary::set(stage.work()).unwrap();
    let ended = sh(stage, Wall::Native, &format!("umask 022; {script}"), &[]);
    assert_eq!(canary.change().unwrap(), None, "the host's files");
    assert_eq!(listed(stage), expected, "{script}: {ended:?}");
    ended
}

fn mode(stage: &Stage, name: &str, mode: u32) {
    fs::set_permissions(stage.work().join(name), fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_is_added_changed_and_removed_is_kept_with_its_contents() {
    let Some(stage) = walled() else { return };
    for name in ["changed", "removed", "moved", "mode", "same", "tree/deep/leaf", "kind"] {
        stage.write(name, format!("{name} before\n"));
        mode(&stage, name, 0o644);
    }
    symlink("changed", stage.work().join("link")).unwrap();
    let script = "echo more >> changed; rm removed; mv moved elsewhere; chmod 750 mode; touch same; rm -r tree; rm kind; \
                  mkdir kind; echo inner > kind/inner; ln -sf removed link; echo new > new; ln -s /etc/passwd out; \
                  mkfifo pipe; cat same > copy; mv copy same";
    check(
        &stage,
        script,
        &[
            "changed: file -> file 644 \"changed before\\nmore\\n\"",
            "elsewhere: nothing -> file 644 \"moved before\\n\"",
            "kind: file without contents -> folder 755",
            "kind/inner: nothing -> file 644 \"inner\\n\"",
            "link: link -> link to removed",
            "mode: file -> file 750 \"mode before\\n\"",
            "moved: file without contents -> nothing",
            "new: nothing -> file 644 \"new\\n\"",
            "out: nothing -> link to /etc/passwd",
            "pipe: nothing -> pipe",
            "removed: file without contents -> nothing",
            "tree: folder -> nothing",
            "tree/deep: folder -> nothing",
            "tree/deep/leaf: file without contents -> nothing",
        ],
    );
}

#[test]
fn the_outcome_the_ledger_and_a_line_say_how_much_was_changed_and_nothing_when_nothing_was() {
    let Some(stage) = walled() else { return };
    stage.write("old", "old");
    let ended = run(&stage, Wall::Native, &["--json"], &["sh", "-c", "echo > new; rm old; exit 3"]).run();
    let outcome = ended.json();
    assert_eq!(outcome["changes"], serde_json::json!({ "added": 1, "changed": 0, "removed": 1 }));
    assert_eq!((&outcome["workspaceChanged"], &outcome["exitCode"]), (&true.into(), &3.into()));
    let id = outcome["runId"].as_str().unwrap();
    let shown = stage.ringfence(["log", "show", "--json", id]).run().text();
    let last: serde_json::Value = serde_json::from_str(shown.lines().last().unwrap()).unwrap();
    assert_eq!((&last["body"]["changes"]["added"], &last["body"]["changes"]["removed"]), (&1.into(), &1.into()));
    let list = fs::read(stage.state().join("changes").join(id).join("list")).unwrap();
    let (_, hash) = list.split_last_chunk::<32>().unwrap();
    let hash: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(last["body"]["changes"]["list"], hash.as_str());
    let loud = stage.ringfence(["run", "--backend", "native", "--", "sh", "-c", "echo > new"]).run();
    assert!(loud.stderr.contains("1 change (1 added); look at them with: ringfence diff "), "{loud:?}");
    let before = kept::runs(&state(&stage)).unwrap().len();
    let quiet = stage.ringfence(["run", "--backend", "native", "--", "sh", "-c", "cat old; touch old"]).run();
    assert_eq!(quiet.stderr, "", "times alone are no change");
    assert_eq!(kept::runs(&state(&stage)).unwrap().len(), before, "nothing is kept of a run that changed nothing");
}

#[test]
fn a_run_that_timed_out_keeps_what_it_changed() {
    let Some(stage) = walled() else { return };
    let script = "echo early > early; sleep 60";
    let ended = run(&stage, Wall::Native, &["--timeout", "1s"], &["sh", "-c", script]).run();
    assert_eq!(ended.code, 124);
    assert_eq!(listed(&stage), ["early: nothing -> file 644 \"early\\n\""]);
}

#[test]
fn a_folder_that_is_made_anew_hides_what_was_in_the_old_one() {
    let Some(stage) = walled() else { return };
    for name in ["folder/kept", "folder/gone", "folder/sub/gone", "file"] {
        stage.write(name, "as it was");
        mode(&stage, name, 0o644);
    }
    mode(&stage, "folder", 0o755);
    check(
        &stage,
        "rm -r folder; mkdir folder; printf 'as it was' > folder/kept; printf other > folder/new",
        &[
            "folder/gone: file without contents -> nothing",
            "folder/new: nothing -> file 644 \"other\"",
            "folder/sub: folder -> nothing",
            "folder/sub/gone: file without contents -> nothing",
        ],
    );
    mode(&stage, "folder/sub", 0o755);
    // Overlay marks only the outer one as made anew.
    check(
        &stage,
        "rm -r folder; mkdir -p folder/sub; printf 'as it was' > folder/kept",
        &["folder/gone: file without contents -> nothing", "folder/sub/gone: file without contents -> nothing"],
    );
    check(
        &stage,
        "rm -r folder; echo x > folder",
        &[
            "folder: folder -> file 644 \"x\\n\"",
            "folder/gone: file without contents -> nothing",
            "folder/kept: file without contents -> nothing",
            "folder/sub: folder -> nothing",
            "folder/sub/gone: file without contents -> nothing",
        ],
    );
    check(&stage, "chmod 700 folder", &["folder: folder -> folder 700"]);
}

#[test]
fn what_the_policy_denies_is_no_change_until_a_program_makes_it_anew() {
    let Some(stage) = walled_with("fs: { deny: [\"**/.env\", \"secret/**\", \"secret\"] }\n") else { return };
    for name in ["a/.env", "a/plain", "secret/key", "b/.env"] {
        stage.write(name, "never seen");
        mode(&stage, name, 0o644);
    }
    mode(&stage, "a", 0o755);
    check(&stage, "cat a/.env secret/key; ls a", &[]);
    check(&stage, "echo x > a/x", &["a/x: nothing -> file 644 \"x\\n\""]);
    check(&stage, "chmod 700 a", &["a: folder -> folder 700"]);
    check(
        &stage,
        "printf 'never seen' > a/.env; mkdir secret; echo y > secret/new; echo z > secret/key",
        &[
            "a/.env: file without contents -> file 644 \"never seen\"",
            "secret: folder -> folder 755",
            "secret/key: file without contents -> file 644 \"z\\n\"",
            "secret/new: nothing -> file 644 \"y\\n\"",
        ],
    );
    let (set, _) = newest(&stage).unwrap();
    assert!(set.deny.contains(&"**/.env".to_owned()) && !set.protect.is_empty(), "{:?}", set.deny);
    check(&stage, "rm -r b; echo made > a/made", &["a/made: nothing -> file 644 \"made\\n\"", "b: folder -> nothing"]);
    assert_eq!(stage.read("b/.env").as_deref(), Some("never seen"));
}

#[test]
fn a_closed_folder_that_a_program_makes_anew_is_listed_and_nothing_is_told_of_the_old_one() {
    let Some(stage) = walled_with("fs: { deny: [\"**/.env\"] }\n") else { return };
    stage.write("closed/secret", "guess");
    stage.write("open/secret", "guess");
    mode(&stage, "open/secret", 0o644);
    mode(&stage, "closed/secret", 0o644);
    let folder = stage.work().join("closed");
    if is_root() {
        // Of somebody else: the wall takes away only what cannot be entered and holds something denied.
        stage.write("closed/sub/.env", "");
        std::os::unix::fs::chown(&folder, Some(12345), Some(12345)).unwrap();
        mode(&stage, "closed", 0o700);
    } else {
        mode(&stage, "closed", 0o000);
    }
    settle();
    let script = "umask 022; mkdir closed; printf guess > closed/secret; rm open/secret; printf guess > open/secret";
    let ended = sh(&stage, Wall::Native, script, &[]);
    let listed = listed(&stage);
    mode(&stage, "closed", 0o755);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(listed.iter().any(|line| line.starts_with("closed: ")), "{listed:?}");
    assert!(listed.iter().any(|line| line.starts_with("closed/secret: ") && line.ends_with("\"guess\"")), "{listed:?}");
    assert!(!listed.iter().any(|line| line.starts_with("open")), "the twin: {listed:?}");
}

#[test]
fn what_the_host_changes_meanwhile_is_not_taken_for_what_the_program_saw() {
    let Some(stage) = walled() else { return };
    for name in ["both", "mine", "theirs", "taken", "gone/deep/file"] {
        stage.write(name, "as it was\n");
        mode(&stage, name, 0o644);
    }
    settle();
    let script = "umask 022; echo x >> both; echo x >> mine; echo x >> taken; echo x >> gone/deep/file; sleep 1";
    let mut child = run(&stage, Wall::Native, &["--json"], &["sh", "-c", script]).start();
    std::thread::sleep(Duration::from_millis(500));
    stage.write("both", "the host's");
    stage.write("theirs", "the host's");
    fs::remove_file(stage.work().join("taken")).unwrap();
    fs::remove_dir_all(stage.work().join("gone")).unwrap();
    child.wait().unwrap();
    let listed = listed(&stage);
    let expected = [
        "both: unknown -> file 644 \"as it was\\nx\\n\"",
        "gone: unknown -> folder 755",
        "gone/deep: unknown -> folder 755",
        "gone/deep/file: unknown -> file 644 \"as it was\\nx\\n\"",
        "mine: file -> file 644 \"as it was\\nx\\n\"",
        "taken: unknown -> file 644 \"as it was\\nx\\n\"",
    ];
    assert_eq!(listed, expected);
}

#[test]
fn f22_odd_names_hard_links_closed_files_and_odd_permissions_are_listed_as_they_are() {
    let Some(stage) = walled() else { return };
    stage.write("plain", "plain\n");
    mode(&stage, "plain", 0o644);
    let script = r#"printf odd > "$(printf 'a\nb')"; printf odd > "$(printf 'x\033[31m')"; printf odd > "$(printf '\377\376')";
        ln plain second; printf secret > closed; chmod 000 closed; mkdir shut; echo in > shut/in; mkdir shut/er;
        echo in > shut/er/in; chmod 000 shut/er shut; mkdir half; echo in > half/in; chmod 400 half; echo id > suid; chmod 4755 suid; printf '' > -f"#;
    settle();
    let ended = sh(&stage, Wall::Native, &format!("umask 022; {script}"), &[]);
    assert_eq!(ended.code, 0, "{ended:?}");
    let (set, kept) = newest(&stage).unwrap();
    let find = |name: &[u8]| {
        let change = set.changes.iter().find(|change| change.place.as_path() == Path::new(OsStr::from_bytes(name)));
        let line = change.map(|change| describe(change, &kept)).unwrap_or_default();
        line.rsplit(": ").next().unwrap_or_default().to_owned()
    };
    for name in [&b"a\nb"[..], b"x\x1b[31m", b"\xff\xfe"] {
        assert_eq!(find(name), "nothing -> file 644 \"odd\"", "{name:?}");
    }
    assert_eq!(find(b"second"), "nothing -> file 644 \"plain\\n\"");
    assert_eq!(find(b"closed"), "nothing -> file 0 \"secret\"");
    assert_eq!(find(b"shut"), "nothing -> folder 0");
    assert_eq!(find(b"shut/er"), "nothing -> folder 0");
    assert_eq!(find(b"shut/er/in"), "nothing -> file 644 \"in\\n\"");
    assert_eq!((&*find(b"half"), &*find(b"half/in")), ("nothing -> folder 400", "nothing -> file 644 \"in\\n\""));
    assert_eq!(find(b"suid"), "nothing -> file 4755 \"id\\n\"");
    assert_eq!(find(b"-f"), "nothing -> file 644 \"\"");
    assert_eq!(set.changes.len(), 13, "`plain` is the same, however many names it has");
}

#[test]
fn f01_links_are_listed_and_never_followed() {
    let Some(stage) = walled() else { return };
    let outside = outside(&stage);
    fs::write(outside.join("secret"), "of the host").unwrap();
    stage.write("folder/file", "mine");
    symlink(&outside, stage.work().join("old")).unwrap();
    let target = text(&outside);
    let script = format!(
        "rm -r folder; ln -s {target} folder; ln -s {target}/secret leak; rm old; mkdir old; echo x > old/secret"
    );
    check(
        &stage,
        &script,
        &[
            &format!("folder: folder -> link to {target}"),
            "folder/file: file without contents -> nothing",
            &format!("leak: nothing -> link to {target}/secret"),
            "old: link -> folder 755",
            "old/secret: nothing -> file 644 \"x\\n\"",
        ],
    );
    let kept = fs::read_dir(newest(&stage).unwrap().1.folder().join("objects")).unwrap();
    let leaked = kept.filter(|entry| fs::read(entry.as_ref().unwrap().path()).unwrap() == b"of the host").count();
    assert_eq!(leaked, 0, "nothing of the host was read through a link");
}

#[test]
fn what_a_wall_puts_into_the_workspace_itself_is_no_change() {
    let Some(stage) = walled_with("fs: { mounts: [{ host: deps, at: /workspace/made/here/deps }] }\n") else { return };
    stage.write("deps/file", "a dependency");
    mode(&stage, "deps/file", 0o644);
    let canary = FileCanary::set(stage.work()).unwrap();
    let ended = stage.ringfence(["run", "--backend", "native", "--", "cat", "made/here/deps/file"]).run();
    assert_eq!((ended.text(), &*ended.stderr), ("a dependency".to_owned(), ""));
    assert_eq!(listed(&stage), [""; 0]);
    sh(&stage, Wall::Native, "umask 022; echo x > made/here/x", &[]);
    let expected = [
        "made: nothing -> folder 755",
        "made/here: nothing -> folder 755",
        "made/here/x: nothing -> file 644 \"x\\n\"",
    ];
    assert_eq!(listed(&stage), expected);
    assert_eq!(canary.change().unwrap(), None);
}

#[test]
fn attributes_that_a_program_gives_overlays_names_mean_nothing() {
    let Some(stage) = walled() else { return };
    for name in ["folder/file", "file", "metacopy"] {
        stage.write(name, "as it was");
        mode(&stage, name, 0o644);
    }
    // Whether they can be set depends on the kernel; none of them may hide, remove or redirect anything.
    let code = "
import os
def mark(path, name, value):
    try:
        os.setxattr(path, name, value)
    except OSError:
        pass
for spelling in ('user.overlay.', 'trusted.overlay.'):
    mark('folder', spelling + 'opaque', b'y')
    mark('folder', spelling + 'redirect', b'/etc')
    mark('file', spelling + 'whiteout', b'')
    mark('metacopy', spelling + 'metacopy', b'')
for number in range(3000):
    mark('file', 'user.' + 'x' * 200 + str(number), b'')
open('file', 'a').write(' and more')
os.chmod('folder', 0o711)
";
    settle();
    let Some(ended) = python(&stage, Wall::Native, code, &[]) else { return };
    assert_eq!(ended.code, 0, "{ended:?}");
    let expected = ["file: file -> file 644 \"as it was and more\"", "folder: folder -> folder 711"];
    assert_eq!(listed(&stage), expected);
}

#[test]
fn r04_nesting_deeper_than_any_path_keeps_nothing_and_says_so() {
    let Some(stage) = walled() else { return };
    let code = "
import os
for _ in range(5000):
    os.mkdir('d')
    os.chdir('d')
";
    let Some(ended) = python(&stage, Wall::Native, code, &[]) else { return };
    assert_eq!(ended.code, 0, "{ended:?}");
    assert!(ended.stderr.contains("could not tell what the program changed"), "{ended:?}");
    assert!(ended.stderr.contains("longer than 4095 bytes"), "{ended:?}");
    assert!(newest(&stage).is_none());
    assert_eq!(fs::read_dir(stage.state().join("scratch")).unwrap().count(), 0, "nothing is half kept");
    let twin = python(&stage, Wall::Native, &code.replace("5000", "1000"), &[]).unwrap();
    assert_eq!(twin.stderr, "");
    assert_eq!(newest(&stage).unwrap().0.changes.len(), 1000);
}

#[test]
fn r04_holes_and_links_without_end_cost_neither_disk_nor_time() {
    let Some(stage) = walled_with("fs: { size: 64MiB }\n") else { return };
    let script = "truncate -s 200M hole; for i in 1 2 3 4 5 6 7 8 9; do ln hole hole$i; done";
    let ended = sh(&stage, Wall::Native, script, &[]);
    assert_eq!((ended.code, &*ended.stderr), (0, ""));
    let (set, kept) = newest(&stage).unwrap();
    assert_eq!(set.changes.len(), 10);
    assert!(kept.size().unwrap() < 1 << 20, "a hole stays one");
    let more = sh(&stage, Wall::Native, "for i in 1 2 3; do truncate -s 200M hole$i; done", &[]);
    assert!(more.stderr.contains("together larger than") && more.stderr.contains("holes"), "{more:?}");
}

#[test]
fn a_full_quota_is_said_with_its_limit_and_what_was_written_is_kept() {
    let Some(stage) = walled_with("fs: { size: 2MiB }\n") else { return };
    for script in ["head -c 9000000 /dev/zero > /tmp/all", "i=0; while : > f$i; do i=$((i+1)); done 2> /dev/null"] {
        let ended = run(&stage, Wall::Native, &["--json"], &["sh", "-c", &format!("{script}; exit 1")]).run().json();
        let violations = ended["violations"].to_string();
        assert!(violations.contains("fs.size") && violations.contains("2MiB"), "{script}: {violations}");
        assert!(ended["advice"].as_str().unwrap().contains("remove files"), "{script}");
    }
    assert!(newest(&stage).unwrap().0.changes.len() > 100);
    let twin = run(&stage, Wall::Native, &["--json"], &["sh", "-c", "head -c 1000000 /dev/zero > /tmp/some"]).run();
    assert_eq!(twin.json()["violations"], serde_json::json!([]));
}

#[test]
fn only_review_keeps_changes() {
    for mode in ["read-only", "ephemeral"] {
        let Some(stage) = walled_with(&format!("fs: {{ workspace: {{ mode: {mode} }} }}\n")) else { return };
        sh(&stage, Wall::Native, "echo x > new", &[]);
        assert!(newest(&stage).is_none(), "{mode}");
    }
}

#[test]
fn kept_changes_are_listed_found_by_the_first_letters_and_thrown_away() {
    let Some(stage) = walled() else { return };
    assert!(stage.ringfence(["changes"]).run().expect(0, &["no changes are kept"]).text().is_empty());
    for name in ["one", "two", "three"] {
        run(&stage, Wall::Native, &[], &["sh", "-c", &format!("echo x > {name}")]).run().expect(0, &[]);
    }
    let state = state(&stage);
    let runs = kept::runs(&state).unwrap();
    let table = stage.ringfence(["changes"]).run().expect(0, &["3 kept"]).text();
    assert!(runs.iter().all(|run| table.contains(run.as_str())) && table.contains("+1 ~0 -0"), "{table}");
    let json = stage.ringfence(["changes", "--json"]).run().json();
    assert_eq!(json[0]["changes"], serde_json::json!({ "added": 1, "changed": 0, "removed": 0 }));
    assert_eq!(json[2]["run"], runs[2].as_str());
    stage.ringfence(["discard", "zzz"]).run().expect(2, &["no changes are kept of a run that begins with `zzz`"]);
    stage.ringfence(["discard", runs[0].as_str(), "zzz"]).run().expect(2, &[]);
    assert_eq!(kept::runs(&state).unwrap(), runs, "a slip in one name throws nothing away");
    let prefix = &runs[0].as_str()[..25];
    stage.ringfence(["discard", prefix]).run().expect(0, &["threw away the changes of"]);
    assert_eq!(kept::runs(&state).unwrap(), runs[1..]);
    let shown = stage.ringfence(["log", "show", runs[0].as_str()]).run().text();
    assert!(shown.contains("discarded"), "{shown}");
    stage.ringfence(["changes", "prune"]).run().expect(2, &["--older-than"]);
    stage.ringfence(["changes", "prune", "--older-than", "7d"]).run().expect(0, &["nothing to throw away"]);
    stage.ringfence(["changes", "prune", "--keep", "1"]).run().expect(0, &[]);
    assert_eq!(kept::runs(&state).unwrap(), runs[2..]);
    stage.ringfence(["discard", "--all"]).run().expect(0, &[]);
    assert_eq!(kept::runs(&state).unwrap(), []);
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
}

#[test]
fn a_session_keeps_what_was_changed_in_it_when_it_stops() {
    let Some(stage) = walled() else { return };
    stage.write("old", "old");
    stage.ringfence(["session", "start", "work", "--backend", "native"]).run().expect(0, &[]);
    let exec = |script: &str| stage.ringfence(["session", "exec", "work", "--", "sh", "-c", script]).run();
    exec("umask 022; echo one > first; rm old").expect(0, &[]);
    exec("umask 022; echo two >> first; echo three > second").expect(0, &[]);
    assert!(newest(&stage).is_none(), "it goes on");
    stage.ringfence(["session", "stop", "work"]).run().expect(0, &["work: 3 changes (2 added, 1 removed)"]);
    let expected = [
        "first: nothing -> file 644 \"one\\ntwo\\n\"",
        "old: file without contents -> nothing",
        "second: nothing -> file 644 \"three\\n\"",
    ];
    assert_eq!(listed(&stage), expected);
    assert_eq!(stage.read("old").as_deref(), Some("old"));
}

#[test]
fn what_a_killed_supervisor_was_keeping_is_removed_by_the_next_start() {
    let Some(stage) = walled() else { return };
    let scratch = stage.state().join("scratch");
    let mut child = run(&stage, Wall::Native, &[], &["sh", "-c", "head -c 300000000 /dev/urandom > big"]).start();
    // Somewhere in the middle of it, or not at all: nothing may stay either way.
    let is_keeping = || fs::read_dir(&scratch).is_ok_and(|entries| entries.count() > 0);
    for _ in 0..2000 {
        if is_keeping() || child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().ok();
    child.wait().unwrap();
    let kept_before = kept::runs(&state(&stage)).unwrap();
    sh(&stage, Wall::Native, "true", &[]);
    assert!(!is_keeping(), "the next start removes what was not finished");
    assert_eq!(kept::runs(&state(&stage)).unwrap(), kept_before);
    assert!(kept_before.iter().all(|run| kept::of(&state(&stage), run).load().is_ok()));
}

/// Random changes by a program, and the same found by comparing the workspace with a copy that the program made at its end.
#[test]
fn every_difference_is_listed_and_applying_the_list_gives_what_the_program_saw() {
    let Some(stage) = walled() else { return };
    let mut number = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = |below: u64| {
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        number % below
    };
    for round in 0..8 {
        for folder in ["a", "a/b", "c"] {
            fs::create_dir_all(stage.work().join(folder)).unwrap();
        }
        for index in 0..12 {
            let folder = ["a/", "a/b/", "c/", ""][index % 4];
            stage.write(&format!("{folder}f{index}"), format!("{index}"));
        }
        settle();
        let mut script = String::from("umask 022\n");
        for step in 0..40 {
            let folder = ["a", "a/b", "c", ".", "d", "a/e"][random(6) as usize];
            let (from, to) = (random(14), random(14));
            script.push_str(&match random(9) {
                0 => format!("echo {step} > {folder}/f{from}\n"),
                1 => format!("echo {step} >> {folder}/f{from}\n"),
                2 => format!("rm -f {folder}/f{from}\n"),
                3 => format!("rm -rf {folder}/sub a/b\n"),
                4 => format!("mkdir -p {folder}/sub; echo {step} > {folder}/sub/x\n"),
                5 => format!("mv {folder}/f{from} a/f{to}\n"),
                6 => format!("chmod 6{}{} {folder}/f{from}\n", random(8), random(8)),
                7 => format!("ln -sfn f{to} {folder}/f{from}\n"),
                _ => format!("ln -f {folder}/f{from} c/f{to}\n"),
            });
        }
        script.push_str("tar -C . -cf - .\n");
        let script = script.replace('\n', " 2>/dev/null\n").replace("umask 022 2>/dev/null", "umask 022");
        let ended = sh(&stage, Wall::Native, &script, &[]);
        let seen = unpack(&stage, &ended.stdout, "seen");
        let applied = apply(&stage, round);
        assert_eq!(tree(&applied), tree(&seen), "round {round}:\n{script}\n{:#?}", listed(&stage));
        fs::remove_dir_all(&applied).unwrap();
        fs::remove_dir_all(&seen).unwrap();
    }
}

fn unpack(stage: &Stage, archive: &[u8], name: &str) -> std::path::PathBuf {
    let folder = stage.path().join(name);
    fs::create_dir(&folder).unwrap();
    let mut tar = std::process::Command::new("tar")
        .args(["--no-same-owner", "-xpf", "-", "-C"])
        .arg(&folder)
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    tar.stdin.take().unwrap().write_all(archive).unwrap();
    assert!(tar.wait().unwrap().success());
    folder
}

/// A copy of the workspace with what the newest run changed.
fn apply(stage: &Stage, round: u32) -> std::path::PathBuf {
    let copy = stage.path().join(format!("applied{round}"));
    let copied = std::process::Command::new("cp").arg("-a").arg(stage.work()).arg(&copy).status().unwrap();
    assert!(copied.success());
    let Some((set, kept)) = newest(stage) else { return copy };
    for change in set.changes.iter().rev() {
        let at = copy.join(change.place.as_path());
        let replaced = match (&change.before, &change.after) {
            (Before::Was(was), Some(Node::Folder { .. })) => was.kind != WasKind::Folder,
            (Before::Nothing, _) => false,
            _ => true,
        };
        if replaced {
            match fs::symlink_metadata(&at).unwrap().is_dir() {
                true => fs::remove_dir(&at).unwrap(),
                false => fs::remove_file(&at).unwrap(),
            }
        }
    }
    for change in &set.changes {
        let at = copy.join(change.place.as_path());
        match &change.after {
            None => {}
            Some(Node::File { content, mode, .. }) => {
                fs::write(&at, kept.objects().bytes(*content, 1 << 20).unwrap().unwrap()).unwrap();
                fs::set_permissions(&at, fs::Permissions::from_mode(*mode)).unwrap();
            }
            Some(Node::Link { target }) => symlink(target, &at).unwrap(),
            Some(Node::Folder { mode }) => {
                fs::create_dir(&at).ok();
                fs::set_permissions(&at, fs::Permissions::from_mode(*mode)).unwrap();
            }
            Some(Node::Other(_)) => panic!("{change:?}"),
        }
    }
    copy
}

/// Every path with its type, permissions and contents.
fn tree(folder: &Path) -> Vec<String> {
    let mut left = vec![folder.to_owned()];
    let mut lines = Vec::new();
    while let Some(at) = left.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let mode = metadata.permissions().mode() & 0o7777;
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            if metadata.is_symlink() {
                lines.push(format!("{name} -> {}", fs::read_link(&path).unwrap().display()));
            } else if metadata.is_dir() {
                lines.push(format!("{name}/ {mode:o}"));
                left.push(path);
            } else {
                lines.push(format!("{name} {mode:o} {}", String::from_utf8_lossy(&fs::read(&path).unwrap())));
            }
        }
    }
    lines.sort();
    lines
}

#[test]
fn roots_own_folders_that_a_program_cannot_enter_are_no_change() {
    let Some(stage) = walled_with("fs: { deny: [\"**/.env\"] }\n") else { return };
    if !is_root() {
        eprintln!("SKIPPED: only root can give a folder to somebody else");
        return;
    }
    stage.write("closed/sub/.env", "never seen");
    stage.write("other/.env", "never seen");
    for folder in ["closed", "other"] {
        std::os::unix::fs::chown(stage.work().join(folder), Some(12345), Some(12345)).unwrap();
        mode(&stage, folder, 0o700);
    }
    check(&stage, "ls closed; echo x > new", &["new: nothing -> file 644 \"x\\n\""]);
}
