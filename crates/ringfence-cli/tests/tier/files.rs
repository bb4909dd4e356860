//! F rows: files of the host behind Landlock.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use ringfence_testkit::canary::{FileCanary, secret, until};

use crate::probe::{Wall, fenced, fenced_with, outside, python, run, sh, text};
use crate::stage::{Ended, SOON};

#[test]
fn f13_a_file_outside_cannot_be_read_by_any_way_to_it() {
    let Some(stage) = fenced() else { return };
    let word = secret().unwrap();
    let file = outside(&stage).join("secret");
    fs::write(&file, &word).unwrap();
    std::os::unix::fs::symlink(&file, stage.work().join("link")).unwrap();
    let script = "cat \"$1\"; cat link; cat \"/proc/self/root$1\"; cd \"$(dirname \"$1\")\" && cat secret; exec 9< \"$1\"; cat <&9; dd if=\"$1\"";
    for (wall, comes_out) in [(Wall::Bare, true), (Wall::Tier, false)] {
        let ended = sh(&stage, wall, script, &[text(&file)]);
        assert_eq!(ended.text().contains(&word), comes_out, "{wall:?} {ended:?}");
    }
    let listed = sh(&stage, Wall::Tier, "ls \"$1\"", &[text(&outside(&stage))]);
    assert!(!listed.text().contains("secret"), "{listed:?}");
    assert!(sh(&stage, Wall::Bare, "ls \"$1\"", &[text(&outside(&stage))]).text().contains("secret"));
}

#[test]
fn s02_a_home_and_the_ledger_are_closed() {
    let Some(stage) = fenced() else { return };
    let word = secret().unwrap();
    let home = stage.path().join("home");
    fs::create_dir_all(home.join(".ssh")).unwrap();
    fs::write(home.join(".ssh/id_rsa"), &word).unwrap();
    let script = "cat \"$1/.ssh/id_rsa\"; ls -a \"$1\"; cat \"$1\"/.local/state/ringfence/ledger.jsonl";
    let bare = sh(&stage, Wall::Bare, script, &[text(&home)]);
    assert!(bare.text().contains(&word) && bare.text().contains("requested"), "{bare:?}");
    let ended = sh(&stage, Wall::Tier, script, &[text(&home)]);
    assert_eq!(ended.text(), "", "{ended:?}");
}

#[test]
fn f01_f10_nothing_of_the_host_is_written_renamed_linked_or_emptied() {
    let script = "echo x > \"$1/file\"; echo x >> file; echo x > new; : > \"$1/file\"; truncate -s 0 file; rm -f file; mv file moved; \
        ln file \"$TMPDIR/hard\" && echo x > \"$TMPDIR/hard\"; ln -s \"$1/file\" \"$TMPDIR/soft\"; echo x > \"$TMPDIR/soft\"; \
        mkdir made; mv \"$1\" \"$TMPDIR/taken\"; mkfifo pipe; ln -s /etc/passwd link; touch -r /bin/sh file; cp /bin/true \"$1/prog\"; \
        mv \"$TMPDIR\" \"$1/in\"; true";
    let reached = |wall| {
        let stage = fenced()?;
        let beside = outside(&stage);
        fs::write(beside.join("file"), "kept").unwrap();
        stage.write("file", "kept");
        let canaries = [FileCanary::set(&beside).unwrap(), FileCanary::set(stage.work()).unwrap()];
        sh(&stage, wall, script, &[text(&beside)]);
        Some(canaries.map(|canary| canary.change().unwrap()))
    };
    let Some(bare) = reached(Wall::Bare) else { return };
    assert!(bare.iter().all(Option::is_some), "the twin: {bare:?}");
    assert_eq!(reached(Wall::Tier), Some([None, None]));
}

#[test]
fn f10_modes_owners_times_and_attributes_of_the_users_files_stay() {
    let code = "
for path in sys.argv[1:]:
    attempt(lambda: os.chmod(path, 0o777))
    attempt(lambda: os.utime(path, (1, 1)))
    attempt(lambda: os.chown(path, -1, os.getgid()))
    attempt(lambda: os.setxattr(path, 'user.mark', b'x'))
    def by_descriptor():
        fd = os.open(path, os.O_RDONLY)
        os.fchmod(fd, 0o777)
    attempt(by_descriptor)
    attempt(lambda: os.utime(os.open(path, os.O_RDONLY), (1, 1)))
    attempt(lambda: os.chmod('/proc/self/fd/%d' % os.open(path, os.O_PATH), 0o777))
    call(452, -100, ctypes.c_char_p(path.encode()), 0o777, 0)
";
    let reached = |wall| {
        let stage = fenced()?;
        let (beside, within) = (outside(&stage).join("file"), stage.write("file", "kept"));
        fs::write(&beside, "kept").unwrap();
        fs::set_permissions(&beside, fs::Permissions::from_mode(0o640)).unwrap();
        let look = || {
            [&beside, &within]
                .map(|path| path.metadata().map(|found| (found.mode(), found.mtime(), found.ctime_nsec())).unwrap())
        };
        let before = look();
        python(&stage, wall, code, &[text(&beside), text(&within)]);
        let after = look();
        Some([before[0] != after[0], before[1] != after[1]])
    };
    let Some(bare) = reached(Wall::Bare) else { return };
    assert_eq!(bare, [true, true], "the twin");
    assert_eq!(reached(Wall::Tier), Some([false, false]));
}

#[test]
fn denied_files_of_the_workspace_cannot_be_opened_and_their_neighbours_can() {
    let Some(stage) = fenced() else { return };
    let words = [secret().unwrap(), secret().unwrap(), secret().unwrap()];
    stage.write(".env", &words[0]);
    stage.write("deep/er/.ssh/key", &words[1]);
    stage.write("deep/er/open", &words[2]);
    stage.write("other/file", "seen\n");
    let script = "ls; cat .env deep/er/.ssh/key deep/er/open other/file; cd deep/er && cat .ssh/../open ../../.env";
    let bare = sh(&stage, Wall::Bare, script, &[]);
    assert!(words.iter().all(|word| bare.text().contains(word)), "{bare:?}");
    let ended = sh(&stage, Wall::Tier, script, &[]);
    assert!(!ended.text().contains(&words[0]) && !ended.text().contains(&words[1]), "{ended:?}");
    assert!(ended.text().contains(&words[2]) && ended.text().contains("seen"), "{ended:?}");
}

#[test]
fn f19_a_file_that_is_made_later_beside_a_denied_one_stays_closed() {
    let Some(stage) = fenced() else { return };
    stage.write(".env", "x");
    stage.write("whole/here", "seen\n");
    let script = "echo ready; while ! [ -e late ]; do sleep 0.05; done; cat late whole/late";
    let child = stage.ringfence(["run", "-q", "--backend", "landlock", "--", "sh", "-c", script]).start();
    std::thread::sleep(std::time::Duration::from_millis(500));
    stage.write("whole/late", "in a folder that was let in\n");
    stage.write("late", "beside a denied file\n");
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("let in") && !text.contains("beside"), "{text}");
}

#[test]
fn s02_a_denied_file_that_came_while_a_program_ran_is_told() {
    let Some(stage) = fenced() else { return };
    let word = secret().unwrap();
    stage.write("sub/plain", "");
    let script = "read line; cat sub/.env";
    let meanwhile = |act: &dyn Fn()| {
        let argv = ["run", "--stdin", "--json", "--backend", "landlock", "--", "sh", "-c", script];
        let started = || fs::read_to_string(stage.ledger()).unwrap_or_default().matches("\"started\"").count();
        let before = started();
        let mut child = stage.ringfence(argv).stdin_from(std::process::Stdio::piped()).start();
        assert!(until(SOON, || started() > before), "it did not start");
        act();
        child.stdin.take().unwrap().write_all(b"now\n").unwrap();
        Ended::from(child.wait_with_output().unwrap()).json()
    };
    let outcome = meanwhile(&|| drop(stage.write("sub/.env", &word)));
    assert_eq!(outcome["stdout"], word, "it is told because it can be read: {outcome:#}");
    assert_eq!(outcome["violations"][0]["rule"], "fs.deny.came-later", "{outcome:#}");
    assert!(outcome["violations"][0]["message"].as_str().unwrap().contains("`sub/.env`"), "{outcome:#}");
    let twin = meanwhile(&|| {});
    assert_eq!((&twin["stdout"], &twin["violations"]), (&"".into(), &serde_json::json!([])), "{twin:#}");
}

#[test]
fn an_ephemeral_workspace_is_empty_and_nothing_of_it_stays() {
    let Some(stage) = fenced_with("fs: { workspace: { mode: ephemeral } }\n") else { return };
    let word = secret().unwrap();
    stage.write("note", &word);
    let script = "ls -A; echo made > made; cat made; cat \"$1/note\"; mkdir -m 0 closed; mkdir -p a/b; mkdir -m 0 a/b/c; ln -s / root; \
        echo \"$HOME\" \"$TMPDIR\" \"$PWD\"";
    let ended = sh(&stage, Wall::Tier, script, &[text(&stage.work())]);
    assert!(ended.text().starts_with("made\n") && !ended.text().contains(&word), "{ended:?}");
    assert!(sh(&stage, Wall::Bare, script, &[text(&stage.work())]).text().contains(&word), "the twin");
    // What the twin closed could not be removed with the stage.
    for closed in ["closed", "a/b/c"] {
        fs::set_permissions(stage.work().join(closed), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let left: Vec<_> =
        fs::read_dir(stage.state().join("scratch")).unwrap().flatten().map(|it| it.file_name()).collect();
    assert_eq!(left, Vec::<std::ffi::OsString>::new());
    run(&stage, Wall::Tier, &[], &["true"]).expect(0, &[]);
}

#[test]
fn what_cannot_be_shown_as_the_policy_says_is_refused_with_what_to_do() {
    let Some(stage) = fenced() else { return };
    let policies = [
        ("fs: { workspace: { mode: direct } }", "--mode read-only"),
        ("fs: { workspace: { mode: read-only }, mounts: [{ tmpfs: /t, size: 1MiB }] }", "take them out"),
        ("fs: { workspace: { mode: read-only } }\nnet: { mode: open }", "mode: none"),
        ("fs: { workspace: { mode: read-only } }\nnet: { mode: allowlist, allow: [a.test] }", "mode: none"),
    ];
    for (policy, advice) in policies {
        stage.write("sandbox.policy.yaml", format!("version: 1\n{policy}\n"));
        run(&stage, Wall::Tier, &[], &["touch", "ran"]).expect(125, &[advice]);
    }
    assert_eq!(stage.read("ran"), None);
    stage.write("sandbox.policy.yaml", "version: 1\n");
    run(&stage, Wall::Tier, &["--mode", "read-only"], &["true"]).expect(0, &[]);
    run(&stage, Wall::Tier, &["--mode", "ephemeral"], &["true"]).expect(0, &[]);
}
