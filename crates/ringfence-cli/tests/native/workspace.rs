//! The modes of the workspace, further mounts, where things appear and whose they are.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};

use ringfence_testkit::canary::{FileCanary, secret};

use crate::probe::{Wall, outside, run, sh, text, walled, walled_with, walled_with_deps};

const CHANGES: &str =
    "cat note; echo x >> note; echo x > new; mkdir folder; rm -f gone; mv moved elsewhere; chmod 777 note";

fn with_mode(mode: &str) -> Option<(crate::stage::Stage, FileCanary)> {
    let stage = walled_with(&format!("fs: {{ workspace: {{ mode: {mode} }} }}\n"))?;
    for name in ["note", "gone", "moved"] {
        stage.write(name, "as it was\n");
    }
    let canary = FileCanary::set(stage.work()).unwrap();
    Some((stage, canary))
}

#[test]
fn under_review_a_program_can_change_everything_and_the_host_stays_as_it_was() {
    let Some((stage, canary)) = with_mode("review") else { return };
    let ended = sh(&stage, Wall::Native, &format!("{CHANGES}; cat note new elsewhere; ls -d folder"), &[]);
    assert_eq!(ended.text(), "as it was\nas it was\nx\nx\nas it was\nfolder\n", "{ended:?}");
    assert_eq!(canary.change().unwrap(), None);
    sh(&stage, Wall::Bare, CHANGES, &[]);
    assert_ne!(canary.change().unwrap(), None, "the probe proves nothing");
}

#[test]
fn nothing_is_mounted_on_a_host_whose_mounts_are_shared() {
    let Some(stage) = walled() else { return };
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can make the mounts of a host shared");
        return;
    }
    let binary =
        std::env::var_os("NEXTEST_BIN_EXE_ringfence").unwrap_or_else(|| env!("CARGO_BIN_EXE_ringfence").into());
    // As systemd has it. Otherwise a copy of a mount is no peer of it, and this proves nothing.
    let script = "mount --make-rshared / && cd \"$2\" && \"$1\" run -q --backend native -- sh -c 'echo x > new; ls'; \
                  grep -c ' - overlay ' /proc/self/mountinfo; ls";
    let output = std::process::Command::new("unshare")
        .args(["-m", "--propagation", "private", "sh", "-c", script, "sh"])
        .arg(binary)
        .arg(stage.work())
        .env_clear()
        .envs([("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("HOME", text(&stage.path().join("home")))])
        .env("RINGFENCE_STATE_DIR", stage.path().join("state-of-shared-mounts"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let before = std::fs::read_to_string("/proc/self/mountinfo").unwrap().matches(" - overlay ").count();
    let expected = format!("new\nsandbox.policy.yaml\n{before}\nsandbox.policy.yaml\n");
    assert_eq!(said, expected, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_read_only_workspace_can_be_read_and_not_changed() {
    let Some((stage, canary)) = with_mode("read-only") else { return };
    let ended = sh(&stage, Wall::Native, CHANGES, &[]);
    assert_eq!(ended.text(), "as it was\n");
    assert!(ended.stderr.contains("Read-only file system"), "{ended:?}");
    assert_eq!(canary.change().unwrap(), None);
    let inside = sh(&stage, Wall::Native, &format!("{CHANGES}; cat note; ls"), &[]);
    let expected = "as it was\nas it was\ngone\nmoved\nnote\nsandbox.policy.yaml\n";
    assert_eq!(inside.text(), expected, "not even a private copy is changed: {inside:?}");
    sh(&stage, Wall::Bare, CHANGES, &[]);
    assert_ne!(canary.change().unwrap(), None, "the probe proves nothing");
}

#[test]
fn an_ephemeral_workspace_is_empty_and_forgotten() {
    let Some((stage, canary)) = with_mode("ephemeral") else { return };
    let ended = sh(&stage, Wall::Native, "ls -A; echo mine > mine; cat mine", &[]);
    assert_eq!(ended.text(), "mine\n", "{ended:?}");
    assert_eq!(sh(&stage, Wall::Native, "ls -A", &[]).text(), "");
    assert_eq!(canary.change().unwrap(), None);
}

#[test]
fn f01_a_mount_below_the_workspace_does_not_follow_a_link_to_the_host() {
    for target in ["/workspace/link/made", "/workspace/link", "/workspace/sub/up/made", "/var/tmp/made"] {
        let Some(stage) = walled_with(&format!("fs: {{ mounts: [{{ host: deps, at: {target} }}] }}\n")) else { return };
        stage.write("deps/file", "a dependency");
        stage.write("sub/file", "");
        symlink(outside(&stage), stage.work().join("link")).unwrap();
        symlink("../link", stage.work().join("sub/up")).unwrap();
        let canary = FileCanary::set(outside(&stage)).unwrap();
        let ended = sh(&stage, Wall::Native, "echo ran", &[]);
        assert_eq!(canary.change().unwrap(), None, "{target}: {ended:?}");
        assert_eq!((ended.code, &*ended.text()), (125, ""), "{target}: the start must fail: {ended:?}");
    }
    assert!(!std::path::Path::new("/tmp/made").exists());
    let Some(stage) = walled_with("fs: { mounts: [{ host: deps, at: /workspace/plain/made }] }\n") else { return };
    stage.write("deps/file", "a dependency");
    let twin = sh(&stage, Wall::Native, "cat plain/made/file; echo x > plain/made/file; echo x > plain/new", &[]);
    assert_eq!(twin.text(), "a dependency", "{twin:?}");
    assert!(!stage.work().join("plain").exists(), "the place of the mount was made on the host");
}

#[test]
fn a_mount_of_the_policy_is_there_and_read_only() {
    let Some(stage) = walled_with_deps() else { return };
    fs::write(outside(&stage).join("file"), "a dependency\n").unwrap();
    let canary = FileCanary::set(outside(&stage)).unwrap();
    let script = "cat $1/file; echo x > $1/file; echo x > $1/new; rm -f $1/file; mkdir $1/folder";
    let ended = sh(&stage, Wall::Native, script, &["/deps"]);
    assert_eq!(ended.text(), "a dependency\n", "{ended:?}");
    assert_eq!(canary.change().unwrap(), None);
    sh(&stage, Wall::Bare, script, &[text(&outside(&stage))]);
    assert_ne!(canary.change().unwrap(), None, "the probe proves nothing");
}

#[test]
fn the_workspace_appears_where_it_is_asked_for_and_nowhere_else() {
    let Some(stage) = walled() else { return };
    stage.write("note", "a note\n");
    stage.write(".env", "denied\n");
    let real = stage.work().canonicalize().unwrap();
    let check = |at: &str, expected: &str| {
        let argv = ["sh", "-c", "pwd; cat note; cat .env; ls -d /workspace"];
        let ended = run(&stage, Wall::Native, &["--at", at], &argv).run();
        assert_eq!(ended.text(), format!("{expected}\na note\n"), "{at}: {ended:?}");
    };
    check("same", text(&real));
    check("/srv/deep/er", "/srv/deep/er");
    check("/with:colon", "/with:colon");
    check("/with,comma\\backslash", "/with,comma\\backslash");
    for at in ["/", "/proc", "/dev", "/usr", "/x/../../y", "/workspace/../.."] {
        let ended = run(&stage, Wall::Native, &["--at", at], &["echo", "ran"]).run();
        assert_eq!((ended.code, &*ended.text()), (125, ""), "{at}: {ended:?}");
    }
}

#[test]
fn files_of_the_workspace_are_the_programs_own_inside_and_keep_their_owner_outside() {
    let Some(stage) = walled() else { return };
    let note = stage.write("note", "a note\n");
    let before = note.metadata().unwrap();
    let script =
        "stat -c '%u %g' note . ; id -u; id -g; echo more >> note; chmod 600 note; touch new; stat -c '%u %g' note new";
    let ended = sh(&stage, Wall::Native, script, &[]).expect(0, &[]);
    let own = "1000 1000\n";
    assert_eq!(ended.text(), format!("{own}{own}1000\n1000\n{own}{own}"));
    let after = note.metadata().unwrap();
    assert_eq!((after.uid(), after.gid(), after.mode()), (before.uid(), before.gid(), before.mode()));
}

#[test]
fn f22_a_denied_file_of_a_read_only_workspace_is_absent_too() {
    let Some((stage, _)) = with_mode("read-only") else { return };
    let secret = secret().unwrap();
    stage.write(".env", &secret);
    stage.write("a/b/.env", &secret);
    stage.write("a/.ssh/key", &secret);
    let script = "cat .env a/b/.env a/.ssh/key; cat note";
    let ended = sh(&stage, Wall::Native, script, &[]);
    assert_eq!(ended.text(), "as it was\n", "{ended:?}");
    assert_eq!(sh(&stage, Wall::Bare, script, &[]).text().matches(&secret).count(), 3, "the probe proves nothing");
}
