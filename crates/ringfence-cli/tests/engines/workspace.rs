//! The workspace in a container: changes are reviewed and applied, and what is denied is not there.

use ringfence_testkit::canary::until;
use rustix::process::{Pid, Signal, kill_process};

use crate::api::has_workspaces;
use crate::stage::SOON;
use crate::walls::for_each_engine;

#[test]
fn what_a_program_changed_is_reviewed_and_applied_and_the_host_is_as_it_was_before() {
    for_each_engine("", |place| {
        place.stage.write("old.txt", "old\n");
        place.stage.write("gone.txt", "gone\n");
        place.stage.write("deep/er/kept.txt", "kept\n");
        let script = "cat deep/er/kept.txt; echo new > new.txt; echo more >> old.txt; rm gone.txt; mkdir d; ln -s new.txt d/link";
        assert_eq!(place.sh(script, &[]).expect(0, &[]).text(), "kept\n");
        assert_eq!(place.stage.read("old.txt").as_deref(), Some("old\n"));
        assert_eq!(place.stage.read("new.txt"), None);
        let diff = place.ringfence(&["diff"]).run().text();
        for part in ["new.txt", "old.txt", "gone.txt", "+more"] {
            assert!(diff.contains(part), "{part} is not in {diff}");
        }
        place.ringfence(&["apply", "--yes"]).run().expect(0, &[]);
        assert_eq!(place.stage.read("old.txt").as_deref(), Some("old\nmore\n"));
        assert_eq!(place.stage.read("new.txt").as_deref(), Some("new\n"));
        assert_eq!(place.stage.read("gone.txt"), None);
        assert!(place.stage.work().join("d/link").is_symlink());
        place.ringfence(&["undo", "--yes"]).run().expect(0, &[]);
        assert_eq!(place.stage.read("gone.txt").as_deref(), Some("gone\n"));
    });
}

#[test]
fn what_is_denied_is_not_in_the_container_under_any_name() {
    for_each_engine("fs: { deny: [\"secret/**\", \"*.key\"] }\n", |place| {
        for name in ["secret/a", "x.key", ".env"] {
            place.stage.write(name, "hidden-text");
        }
        std::fs::hard_link(place.stage.work().join("x.key"), place.stage.work().join("other")).unwrap();
        place.stage.write("plain", "plain-text");
        let text = place.sh("find . -type f -exec cat {} + 2> /dev/null; :", &[]).text();
        assert!(text.contains("plain-text") && !text.contains("hidden-text"), "{text}");
        place.ringfence(&["apply", "--yes"]).run();
        assert_eq!(place.stage.read("x.key").as_deref(), Some("hidden-text"), "what was not shown is not removed");
    });
}

#[test]
fn a_workspace_that_may_only_be_read_or_begins_empty_stays_as_it_is_on_the_host() {
    for mode in ["read-only", "ephemeral"] {
        for_each_engine(&format!("fs: {{ workspace: {{ mode: {mode} }} }}\n"), |place| {
            place.stage.write("note", "as it was\n");
            let ended = place.sh("cat note; echo x > note; echo y > new; :", &[]);
            assert_eq!(ended.text(), if mode == "read-only" { "as it was\n" } else { "" }, "{mode}: {ended:?}");
            assert_eq!(place.stage.read("note").as_deref(), Some("as it was\n"));
            assert_eq!(place.stage.read("new"), None);
        });
    }
}

#[test]
fn a_workspace_that_may_only_be_read_is_shown_whatever_was_left_in_it() {
    for_each_engine("fs: { workspace: { mode: read-only } }\n", |place| {
        // Nothing that its owner may write by its permissions, and names that a probe could choose.
        for number in 0..20 {
            std::fs::create_dir(place.stage.work().join(format!(".probe-{number}"))).unwrap();
        }
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o444);
        std::fs::set_permissions(place.stage.work().join("sandbox.policy.yaml"), closed).unwrap();
        let ended = place.sh("ls -A; mkdir new 2> /dev/null; :", &[]).expect(0, &[]);
        assert_eq!(ended.text().lines().count(), 21, "{ended:?}");
        assert!(!place.stage.work().join("new").exists());
    });
}

/// Every way of changing a workspace that a program has, and one that it may.
const CHANGES: &str = "try() { \"$@\" 2> /dev/null && echo \"$1 $2\"; }
try sh -c 'echo x > new'; try sh -c 'echo x >> note'; try sh -c ': > note'; try rm -f note; try rm -f deep/er/note; try mv note other
try mkdir folder; try rmdir deep/er; try chmod 777 note; try ln note hard; try ln -s note soft; try touch -d @1 note; try mkfifo pipe
try python3 -c 'import os; os.open(\"note\", os.O_RDWR)'; try python3 -Ic 'import os; os.setxattr(\"note\", \"user.a\", b\"b\")'
try python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'
try python3 -c 'import os; os.truncate(\"run.sh\", 0)'; try sh -c 'echo x > /tmp/there'; cat note deep/er/note; ./run.sh; echo *";

#[test]
fn no_way_of_changing_a_workspace_that_may_only_be_read_is_left_and_a_private_copy_leaves_all() {
    let run = |mode: &str, check: fn(&str, usize)| {
        let policy = format!("fs: {{ workspace: {{ mode: {mode} }}, deny: [hidden] }}\n");
        for_each_engine(&policy, move |place| {
            for (name, text) in [("note", "as it was\n"), ("deep/er/note", "below\n"), ("hidden", "hidden\n")] {
                place.stage.write(name, text);
            }
            let program = place.stage.write("run.sh", "#!/bin/sh\necho ran\n");
            std::fs::set_permissions(program, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
            std::os::unix::fs::symlink("/etc/passwd", place.stage.work().join("link")).unwrap();
            let text = place.sh(CHANGES, &[]).text();
            let done = text.lines().filter(|line| line.split(' ').count() == 2 && !line.contains("as it")).count();
            check(&text, done);
            // Only where the kernel is its own it is in a volume; others there are not this user's to remove.
            assert!(
                place.wall.shows_processes() || place.has_soon_no_volumes(),
                "{mode}: a copy of the workspace is left"
            );
            assert_eq!(place.stage.read("note").as_deref(), Some("as it was\n"), "{mode}");
            assert_eq!(place.stage.read("new"), None, "{mode}");
        });
    };
    run("read-only", |text, _| {
        // A container that was filled has a copy of the program's user, whose looks only that user's own kernel could keep from it.
        let looks = ["chmod 777\n", "touch -d\n", "python3 -Ic\n"];
        let is_laid = rustix::process::geteuid().is_root();
        let text = looks.iter().filter(|_| !is_laid).fold(text.to_owned(), |text, look| text.replace(look, ""));
        // Of all that was tried only `/tmp` could be written; what was there is read, and run, and what is denied is not there.
        assert_eq!(text, "sh -c\nas it was\nbelow\nran\ndeep link note run.sh sandbox.policy.yaml\n");
    });
    run("review", |text, done| assert!(done >= 8, "the twin: only {done} of them are done: {text}"));
}

#[test]
fn a_copy_of_a_workspace_that_a_killed_supervisor_left_is_removed_by_the_next_start() {
    for_each_engine("fs: { workspace: { mode: read-only } }\n", |place| {
        if place.wall.shows_processes() {
            // Only where the kernel is its own it is in a volume.
            return;
        }
        let mut child = place.run(&[], &["sleep", "60"]).start();
        assert!(until(SOON, || place.has_started()), "it did not start");
        assert!(has_workspaces(&place.wall), "the twin: it is in a volume");
        kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(place.is_soon_empty(), "the container outlived its supervisor");
        assert!(has_workspaces(&place.wall), "nobody was there to remove it");
        place.sh("true", &[]).expect(0, &[]);
        assert!(place.has_soon_no_volumes());
    });
}
