//! Each kind of diagnostic as a person sees it: where, what, and what to write instead.

use crate::stage::Stage;

#[track_caller]
fn check(text: &str) -> String {
    let stage = Stage::with_policy(text);
    let ended = stage.ringfence(["run", "--backend", "spawn", "--", "touch", "canary"]).run();
    assert_eq!(stage.read("canary"), None);
    ended.page(&stage)
}

#[test]
fn an_unknown_key_names_the_nearest_one() {
    insta::assert_snapshot!(check("version: 1\nproc:\n  timeuot: 5s\n"));
}

#[test]
fn a_wrong_type_says_what_to_write() {
    insta::assert_snapshot!(check("version: 1\nnet:\n  allow: pypi.org\n"));
}

#[test]
fn a_duplicate_key_names_the_first() {
    insta::assert_snapshot!(check("version: 1\nproc: { memory: 1GiB }\nnet: { mode: none }\nproc: { memory: 2GiB }\n"));
}

#[test]
fn a_bad_unit_says_how_to_write_it() {
    insta::assert_snapshot!(check("version: 1\nproc:\n  memory: 512 megs\n  timeout: 5 fortnights\n"));
}

#[test]
fn a_time_limit_of_zero_is_refused() {
    insta::assert_snapshot!(check("version: 1\nproc:\n  timeout: 0\n"));
}

#[test]
fn an_anchor_is_refused() {
    insta::assert_snapshot!(check("version: 1\nproc: &p\n  timeout: 5s\nfs: *p\n"));
}

#[test]
fn a_host_that_is_too_broad_is_refused() {
    insta::assert_snapshot!(check(
        "version: 1\nnet:\n  mode: allowlist\n  allow: [\"*\", \"*.com\", \"http://pypi.org/simple\"]\n"
    ));
}

#[test]
fn an_example_that_does_not_match_its_rule_is_refused() {
    insta::assert_snapshot!(check(
        "version: 1\ncommands:\n  - deny: [\"rm\", \"-rf\"]\n    matches: [\"rm -r -f /\"]\n"
    ));
}

#[test]
fn hostile_text_in_a_policy_is_shown_and_not_sent() {
    let page = check("version: 1\nproc:\n  \"\u{1b}]0;title\u{7}\u{202e}\": 5s\n");
    assert!(!page.contains('\u{1b}') && !page.contains('\u{7}') && !page.contains('\u{202e}'), "{page:?}");
}

#[test]
fn a_broken_variable_is_shown_with_its_name() {
    let stage = Stage::spawn();
    let ended =
        stage.ringfence(["run", "--", "true"]).env("RINGFENCE_MEMORY", "lots").env("RINGFENCE_NETWORK", "none").run();
    insta::assert_snapshot!(ended.page(&stage));
}

#[test]
fn a_missing_policy_says_how_to_begin() {
    let stage = Stage::new();
    insta::assert_snapshot!(stage.ringfence(["run", "--policy", "missing.yaml", "--", "true"]).run().page(&stage));
}

#[test]
fn r13_a_line_that_is_very_long_is_not_repeated() {
    let page = check(&format!("version: 1\nproc: {}\n", "[".repeat(500_000)));
    assert!(page.len() < 1000, "{} bytes", page.len());
    assert!(page.contains("sandbox.policy.yaml:2:"), "{page}");
}

#[test]
fn too_few_descriptors_are_an_error_and_never_a_panic() {
    let stage = Stage::spawn();
    for most in [6, 8, 10, 12, 16, 24, 31, 40] {
        let script = format!("ulimit -n {most} && exec \"$@\"");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(crate::stage::binary()).args(["run", "-q", "--", "true"]);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", stage.path().join("home"))
            .current_dir(stage.work());
        let ended = crate::stage::Ended::from(command.output().unwrap());
        assert!([0, 125].contains(&ended.code), "{most}: {ended:?}");
    }
}

#[test]
fn closed_standard_streams_do_not_change_what_runs() {
    let stage = Stage::spawn();
    let script = "exec \"$@\" <&- >&- 2>&-";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, "sh"]).arg(crate::stage::binary());
    command.args(["run", "--", "sh", "-c", "echo out; echo err >&2; ls /proc/self/fd > descriptors"]);
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", stage.path().join("home")).current_dir(stage.work());
    assert_eq!(command.status().unwrap().code(), Some(0));
    assert_eq!(stage.read("descriptors").unwrap().split_whitespace().collect::<Vec<_>>(), ["0", "1", "2", "3"]);
}

#[test]
fn hostile_names_of_folders_are_shown_and_not_sent() {
    let stage = Stage::new();
    let folder = stage.work().join("a\u{1b}]0;title\u{7}\u{202e}");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("sandbox.policy.yaml"), "version: 1\nbackend: spawn\nx: 1\n").unwrap();
    let check = |args: &[&str]| {
        let ended = stage.ringfence(args).cwd(&folder).run();
        let page = ended.page(&stage);
        assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'), "{args:?}: {page:?}");
        ended.code
    };
    assert_eq!(check(&["run", "--", "true"]), 125);
    std::fs::write(folder.join("sandbox.policy.yaml"), "version: 1\nbackend: spawn\n").unwrap();
    assert_eq!(check(&["run", "--dry-run", "--", "true"]), 0);
    assert_eq!(check(&["doctor"]), 0);
    assert_eq!(check(&["policy", "lint"]), 1);
    assert_eq!(check(&["policy", "show"]), 0);
    assert_eq!(check(&["run", "--memory", "9TiB", "--", "true"]), 126);
    assert_eq!(check(&["run", "--cwd", "/etc", "--", "true"]), 2);
}

#[test]
fn a_service_without_a_home_is_told_how_to_name_a_place_for_the_ledger() {
    let stage = Stage::spawn();
    let invocation = stage.ringfence(["run", "--", "touch", "canary"]);
    let bare =
        ["RINGFENCE_STATE_DIR", "XDG_STATE_HOME", "HOME"].into_iter().fold(invocation, |it, name| it.without_env(name));
    bare.run().expect(125, &["there is no place for the ledger", "hint: ", "RINGFENCE_STATE_DIR=/var/lib/ringfence"]);
    assert_eq!(stage.read("canary"), None);
}
