//! The workspace in a container: changes are reviewed and applied, and what is denied is not there.

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
            if mode == "read-only" && !place.wall.shows_processes() {
                // A kernel without Landlock cannot take the right to write from a workspace that was sent.
                assert_eq!(ended.code, 126, "{ended:?}");
                assert!(ended.stderr.contains("fs.workspace"), "{ended:?}");
                return;
            }
            assert_eq!(ended.text(), if mode == "read-only" { "as it was\n" } else { "" }, "{mode}: {ended:?}");
            assert_eq!(place.stage.read("note").as_deref(), Some("as it was\n"));
            assert_eq!(place.stage.read("new"), None);
        });
    }
}
