//! What a run changed reaches the host: at once where the policy or a flag says so, and otherwise by hand.

use std::fs;
use std::os::unix::fs::symlink;

use crate::left_for_the_host::{self as left, DIRECT, DIRECT_ALONE, PLANTS, filled};
use crate::probe::{Wall, outside, run, sh, walled, walled_with};
use crate::stage::{Ended, Stage};

/// Behind the wall, with all that is told.
fn aloud(stage: &Stage, flags: &[&str], script: &str) -> Ended {
    stage.ringfence([&["run"], flags, &["--", "sh", "-c", script]].concat()).run()
}

/// Likewise, with arguments.
fn told<'a>(stage: &'a Stage) -> impl Fn(&str, &[&str]) -> Ended + 'a {
    |script, arguments| stage.ringfence([&["run", "--", "sh", "-c", script, "sh"], arguments].concat()).run()
}

#[test]
fn f06_direct_takes_changes_to_the_host_and_holds_back_what_is_protected_or_denied() {
    let Some(stage) = walled_with(DIRECT) else { return };
    left::direct_takes_changes_to_the_host(&stage, &told(&stage));
}

#[test]
fn f04_direct_does_not_let_a_folder_with_protected_files_be_moved_away() {
    let Some(stage) = walled_with(DIRECT_ALONE) else { return };
    left::direct_does_not_let_a_folder_be_moved_away(&stage, &told(&stage));
}

#[test]
fn direct_changes_are_said_in_the_outcome_and_can_be_taken_back() {
    let Some(stage) = walled_with(DIRECT) else { return };
    filled(&stage);
    let ended = run(&stage, Wall::Native, &["--json"], &["sh", "-c", PLANTS]).run();
    let outcome = ended.json();
    assert_eq!(outcome["status"], "exited", "{outcome}");
    assert!(outcome["applied"]["applied"].as_u64().unwrap() >= 4, "{outcome}");
    assert!(outcome["applied"]["left"].as_u64().unwrap() >= 6, "{outcome}");
    let rules: Vec<&str> =
        outcome["violations"].as_array().unwrap().iter().filter_map(|violation| violation["rule"].as_str()).collect();
    assert!(rules.contains(&"fs.protect") && rules.contains(&"fs.deny"), "{outcome}");
    stage.ringfence(["undo", "--yes"]).run().expect(0, &[]);
    assert_eq!(stage.read("old.txt").as_deref(), Some("old\n"));
    assert_eq!(stage.read("gone.txt").as_deref(), Some("gone\n"));
    assert_eq!(stage.read("new.txt"), None);
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
}

#[test]
fn direct_keeps_nothing_when_all_of_it_was_applied_and_a_failing_program_counts_too() {
    let Some(stage) = walled_with(DIRECT) else { return };
    filled(&stage);
    let ended = sh(&stage, Wall::Native, "echo changed > old.txt; exit 7", &[]);
    assert_eq!(ended.code, 7, "{ended:?}");
    assert_eq!(stage.read("old.txt").as_deref(), Some("changed\n"));
    assert_eq!(stage.ringfence(["changes", "--json"]).run().json(), serde_json::json!([]));
}

#[test]
fn f01_direct_never_writes_through_a_link() {
    let Some(stage) = walled_with(DIRECT_ALONE) else { return };
    left::direct_never_writes_through_a_link(&stage, &outside(&stage), &told(&stage));
}

#[test]
fn run_with_apply_applies_all_when_it_succeeded_and_nothing_is_flagged() {
    let Some(stage) = walled() else { return };
    filled(&stage);
    let apply = |script: &str| aloud(&stage, &["--apply"], script);
    let ended = apply("echo changed > old.txt; rm gone.txt");
    assert!(ended.stderr.contains("applied; take them back with: ringfence undo"), "{ended:?}");
    assert_eq!((stage.read("old.txt").as_deref(), stage.read("gone.txt")), (Some("changed\n"), None));
    let failed = apply("echo again > old.txt; exit 3").expect(3, &["ringfence apply"]);
    assert_eq!(stage.read("old.txt").as_deref(), Some("changed\n"), "{failed:?}");
    let flagged = apply("echo again > old.txt; echo x > .envrc");
    assert_eq!(stage.read("old.txt").as_deref(), Some("changed\n"), "{flagged:?}");
    assert!(flagged.stderr.contains("none of them applied") && flagged.stderr.contains(".envrc"), "{flagged:?}");
}

#[test]
fn run_with_apply_unflagged_applies_the_rest_however_it_ended_and_keeps_what_was_held_back() {
    let Some(stage) = walled() else { return };
    filled(&stage);
    let apply = |flag: &str, script: &str| aloud(&stage, &[flag], script);
    let script = "echo changed > old.txt; rm gone.txt; echo x > .envrc; echo x > .env; exit 3";
    // The twin: all or nothing leaves all of it.
    apply("--apply", script).expect(3, &[]);
    assert_eq!(stage.read("old.txt").as_deref(), Some("old\n"));
    let ended = apply("--apply=unflagged", script)
        .expect(3, &["2 of them applied", "held back", ".envrc", "--include-flagged"]);
    assert_eq!((stage.read("old.txt").as_deref(), stage.read("gone.txt")), (Some("changed\n"), None), "{ended:?}");
    assert_eq!((stage.read(".envrc"), stage.read(".env")), (None, None), "{ended:?}");
    // A person applies what is flagged; what is denied never comes.
    stage.ringfence(["apply", "last", ".envrc", "--include-flagged", "--yes"]).run().expect(0, &[]);
    assert_eq!((stage.read(".envrc").as_deref(), stage.read(".env")), (Some("x\n"), None));
    let quiet = apply("--apply=unflagged", "echo again > old.txt; kill -9 $$");
    assert_eq!((stage.read("old.txt").as_deref(), quiet.stderr.as_str()), (Some("again\n"), ""), "{quiet:?}");
    stage.ringfence(["undo", "--yes"]).run().expect(0, &[]);
    assert_eq!(stage.read("old.txt").as_deref(), Some("changed\n"));
}

#[test]
fn a_walk_from_a_run_over_diff_partial_apply_conflict_and_undo() {
    let Some(stage) = walled() else { return };
    filled(&stage);
    stage.write("text.txt", "one\ntwo\nthree\n");
    let script = "echo changed > old.txt; rm gone.txt; mkdir -p .git/hooks; echo 'touch /tmp/p' > .git/hooks/post-checkout; \
                  sed -i s/one/ONE/ text.txt; echo new > new.txt";
    let ended = aloud(&stage, &[], script);
    assert!(ended.stderr.contains("ringfence diff"), "{ended:?}");
    let diff = stage.ringfence(["diff"]).run().expect(0, &[]).text();
    for expected in [".git/hooks/post-checkout", "old.txt", "gone.txt", "new.txt", "text.txt", "+ONE", "-one"] {
        assert!(diff.contains(expected), "{expected} is missing:\n{diff}");
    }
    // A part of it.
    stage.ringfence(["apply", "last", "new.txt"]).run().expect(0, &[]);
    assert_eq!(stage.read("new.txt").as_deref(), Some("new\n"));
    assert_eq!(stage.read("old.txt").as_deref(), Some("old\n"));
    // The host goes on meanwhile: one text can be merged, one cannot.
    stage.write("text.txt", "one\ntwo\nTHREE\n");
    stage.write("old.txt", "the host's\n");
    let applied = stage.ringfence(["apply"]).run().expect(1, &[]);
    assert_eq!(stage.read("text.txt").as_deref(), Some("ONE\ntwo\nTHREE\n"), "{applied:?}");
    assert_eq!(stage.read("old.txt").as_deref(), Some("the host's\n"), "{applied:?}");
    assert_eq!(stage.read("gone.txt"), None, "{applied:?}");
    assert_eq!(stage.read(".git/hooks/post-checkout"), None, "{applied:?}");
    let told = applied.text();
    assert!(told.contains("old.txt") && told.contains("post-checkout"), "{told}");
    // And back, one apply at a time.
    stage.ringfence(["undo", "--yes"]).run().expect(0, &[]);
    assert_eq!(stage.read("text.txt").as_deref(), Some("one\ntwo\nTHREE\n"));
    assert_eq!(stage.read("gone.txt").as_deref(), Some("gone\n"));
    stage.ringfence(["undo", "--yes"]).run().expect(0, &[]);
    assert_eq!(stage.read("new.txt"), None);
    // Whoever wants the hook gets it, by saying so.
    stage.ringfence(["apply", "last", ".git", "--include-flagged"]).run().expect(0, &[]);
    assert_eq!(stage.read(".git/hooks/post-checkout").as_deref(), Some("touch /tmp/p\n"));
    stage.ringfence(["discard", "--all"]).run().expect(0, &[]);
    stage.ringfence(["diff"]).run().expect(125, &["no changes are kept"]);
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
}

#[test]
fn a_session_that_is_direct_takes_its_changes_to_the_host_when_it_stops() {
    let Some(stage) = walled_with(DIRECT) else { return };
    filled(&stage);
    stage.ringfence(["session", "start", "one"]).run().expect(0, &[]);
    stage.ringfence(["session", "exec", "one", "--", "sh", "-c", PLANTS]).run().expect(0, &[]);
    assert_eq!(stage.read("new.txt"), None, "not before it stops");
    stage.ringfence(["session", "stop", "one"]).run().expect(0, &[]);
    assert_eq!(stage.read("new.txt").as_deref(), Some("new\n"));
    assert_eq!(stage.read("kept.txt").as_deref(), Some("kept\n"));
    assert_eq!(stage.read(".mcp.json"), None);
}

#[test]
fn f05_moving_a_folder_above_a_denied_or_protected_file_does_not_free_it() {
    let Some(stage) = walled_with(DIRECT) else { return };
    left::moving_a_folder_above_frees_nothing(&stage, &told(&stage));
}

#[test]
fn f08_git_on_the_host_executes_nothing_that_was_held_back() {
    let Some(stage) = walled() else { return };
    left::git_on_the_host_executes_nothing(&stage, &told(&stage));
}

#[test]
fn f21_what_runs_on_the_host_comes_there_only_to_whoever_says_so() {
    let Some(stage) = walled() else { return };
    left::what_runs_on_the_host_is_flagged(&stage, &told(&stage));
}

#[test]
fn s07_direct_never_changes_the_policy_that_was_named_nor_our_own_program() {
    let Some(stage) = walled() else { return };
    let policy = "version: 1\nfs: { workspace: { mode: direct } }\n";
    let set = || {
        stage.write("odd [name]*.yaml", policy);
        stage.write("plain.yaml", policy);
        fs::remove_file(stage.work().join("link.yaml")).ok();
        symlink("plain.yaml", stage.work().join("link.yaml")).unwrap();
        fs::copy(crate::stage::binary(), stage.work().join("ringfence")).unwrap();
    };
    let script = "for file in odd*.yaml plain.yaml ringfence; do echo evil > \"$file\"; done; rm link.yaml; echo evil > link.yaml; \
                  mkdir -p .config/ringfence; echo x > .config/ringfence/policy.yaml; echo fine > fine";
    let is_evil = |name: &str| stage.read(name).as_deref() == Some("evil\n");
    for named in ["odd [name]*.yaml", "plain.yaml", "link.yaml"] {
        set();
        let ended = std::process::Command::new(stage.work().join("ringfence"))
            .args(["run", "--policy", named, "--", "sh", "-c", script])
            .current_dir(stage.work())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", stage.path())
            .env("RINGFENCE_STATE_DIR", stage.state())
            .output()
            .unwrap();
        assert_eq!(ended.status.code(), Some(0), "{named}: {ended:?}");
        assert_eq!(stage.read("fine").as_deref(), Some("fine\n"), "{named}: the rest was not applied: {ended:?}");
        assert!(!is_evil(named), "{named}: the policy was changed: {ended:?}");
        assert!(named != "link.yaml" || !is_evil("plain.yaml"), "what the link leads to was changed: {ended:?}");
        let program = fs::read(stage.work().join("ringfence")).unwrap();
        assert!(program.len() > 1000, "{named}: our own program was changed: {ended:?}");
        assert_eq!(stage.read(".config/ringfence/policy.yaml"), None, "{named}: {ended:?}");
        // A file of the same kind that is nobody's policy goes through: the probe works.
        assert!(named == "plain.yaml" || named == "link.yaml" || is_evil("plain.yaml"), "{named}: {ended:?}");
        fs::remove_file(stage.work().join("fine")).unwrap();
    }
}

#[test]
fn run_with_apply_tells_the_outcome_even_when_nothing_could_be_applied() {
    let Some(stage) = walled_with("fs: { size: 16MiB }\n") else { return };
    let script = "head -c 8000000 /dev/zero > a; ln a b; ln a c";
    let ended = stage.ringfence(["run", "--json", "--apply", "--", "sh", "-c", script]).run();
    let outcome = ended.json();
    assert_eq!((&outcome["exitCode"], &outcome["applied"]), (&0.into(), &serde_json::Value::Null), "{outcome}");
    assert!(outcome["error"]["hint"].as_str().unwrap().contains("ringfence apply"), "{outcome}");
    assert_eq!(stage.read("a"), None);
    stage.ringfence(["apply"]).run().expect(0, &[]);
}

#[test]
fn f01_direct_holds_back_links_that_lead_to_protected_files_or_out() {
    let Some(stage) = walled_with(DIRECT_ALONE) else { return };
    left::direct_holds_back_links_that_lead_out(&stage, &told(&stage));
}

#[test]
fn r03_hard_links_do_not_multiply_what_may_be_written() {
    let Some(stage) = walled_with("fs: { workspace: { mode: direct }, size: 16MiB }\n") else { return };
    let script = "head -c 8000000 /dev/zero > a; n=0; while [ $n -lt 40 ]; do ln a b$n; n=$((n+1)); done";
    let ended = aloud(&stage, &[], script);
    let size: u64 = fs::read_dir(stage.work()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
    assert!(size < 70_000_000, "{size} bytes are on the host: {ended:?}");
    assert!(ended.stderr.contains("16777216 may be written"), "{ended:?}");
}
