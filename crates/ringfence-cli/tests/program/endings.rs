//! Exit codes: the program's own, and the conventional ones.

use std::fs;

use crate::stage::{Ended, Stage};

fn check(script: &str, code: i32) {
    Stage::new().spawn_sh(script).run().expect(code, &[]);
}

#[test]
fn the_programs_own_code_passes_through() {
    for code in [0, 1, 2, 7, 42, 124, 125, 126, 127, 137, 255] {
        check(&format!("exit {code}"), code);
    }
}

#[test]
fn a_signal_that_ends_the_program_is_128_and_its_number() {
    check("kill -TERM $$", 143);
    check("kill -9 $$", 137);
    check("kill -SEGV $$", 139);
    check("kill -PIPE $$", 141);
}

#[test]
fn s06_a_kill_and_its_exit_code_are_told_apart_in_the_outcome() {
    let stage = Stage::new();
    let killed = stage.spawn_sh_with(&["--json"], "kill -9 $$").run().expect(137, &[]).json();
    let exited = stage.spawn_sh_with(&["--json"], "exit 137").run().expect(137, &[]).json();
    assert_eq!(
        (&killed["status"], &killed["signal"], &killed["exitCode"]),
        (&"signalled".into(), &9.into(), &().into())
    );
    assert_eq!(
        (&exited["status"], &exited["signal"], &exited["exitCode"]),
        (&"exited".into(), &().into(), &137.into())
    );
}

#[test]
fn a_time_limit_is_124_and_what_was_written_until_then_stays() {
    let stage = Stage::new();
    let ended = stage.spawn_sh_with(&["--timeout", "1s"], "echo before; sleep 30; echo after").run().expect(124, &[]);
    assert_eq!(ended.text(), "before\n");
    let outcome =
        stage.spawn_sh_with(&["--timeout", "1s", "--json"], "echo before; exec sleep 30").run().expect(124, &[]).json();
    assert_eq!((&outcome["status"], &outcome["timedOut"]), (&"timedOut".into(), &true.into()));
    assert_eq!(outcome["stdout"], "before\n");
    assert_eq!(outcome["violations"][0]["rule"], "time.limit");
    assert_eq!(outcome["retryable"], true);
}

#[test]
fn a_program_that_ends_by_itself_after_the_polite_signal_is_still_timed_out() {
    let stage = Stage::new();
    let ended = stage
        .spawn_sh_with(&["--timeout", "500ms"], "trap 'echo tidy; exit 0' TERM; while :; do sleep 0.05; done")
        .run();
    assert_eq!((ended.expect(124, &[]).text().as_str()), "tidy\n");
}

#[test]
fn a_program_that_does_not_exist_is_127() {
    let stage = Stage::spawn();
    stage.ringfence(["run", "--", "no-such-program"]).run().expect(127, &["`no-such-program` was not found", "hint:"]);
    stage.ringfence(["run", "--", "./no-such-file"]).run().expect(127, &["was not found"]);
    stage.write("orphan", "#!/no/such/interpreter\n");
    fs::set_permissions(stage.work().join("orphan"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    stage.ringfence(["run", "--", "./orphan"]).run().expect(127, &["interpreter"]);
}

#[test]
fn a_whole_line_in_place_of_a_program_is_told_to_be_for_a_shell() {
    let stage = Stage::spawn();
    stage.ringfence(["run", "--", "echo one; echo two"]).run().expect(127, &["hint:", "--shell"]);
    let told = stage.ringfence(["run", "--", "no-such-program", "one; two"]).run().expect(127, &["hint:"]);
    assert!(!told.stderr.contains("--shell"), "{told:?}");
    assert_eq!(
        stage.ringfence(["run", "-q", "--shell", "echo one; echo two"]).run().expect(0, &[]).text(),
        "one\ntwo\n"
    );
}

#[test]
fn a_file_that_cannot_be_executed_is_our_failure_and_says_why() {
    let stage = Stage::spawn();
    stage.write("text", "no program\n");
    stage.ringfence(["run", "--", "./text"]).run().expect(125, &["hint:"]);
    let folder = stage.ringfence(["run", "--", "./"]).run();
    assert!([125, 127].contains(&folder.code), "{folder:?}");
}

#[test]
fn a_shell_line_that_begins_like_an_option_is_run_as_the_line_that_was_judged() {
    for backend in ["spawn", "native"] {
        let stage = Stage::with_policy(&format!("version: 1\nbackend: {backend}\nvalidate: off\n"));
        let line = "-s -- && true; echo went on";
        let ended = stage.ringfence(["run", "-q", &format!("--shell={line}")]).run().expect(0, &["-s", "not found"]);
        assert_eq!(ended.stdout, b"went on\n");
        assert_eq!(stage.ringfence(["run", "-q", "--shell=echo -s"]).run().expect(0, &[]).stdout, b"-s\n");
    }
}

#[test]
fn a_denied_command_is_126_and_nothing_of_it_happens() {
    let stage = Stage::with_policy(
        "version: 1\nbackend: spawn\ncommands:\n  - deny: [touch]\n    why: no new files\n    matches: [\"touch x\"]\n",
    );
    stage
        .ringfence(["run", "--", "touch", "canary"])
        .run()
        .expect(126, &["refused:", "no new files", "sandbox.policy.yaml:4"]);
    stage.ringfence(["run", "--shell", "echo a && touch canary"]).run().expect(126, &["refused:"]);
    stage.ringfence(["run", "--", "sh", "-c", "touch canary"]).run().expect(126, &["refused:"]);
    stage.ringfence(["run", "--", "/usr/bin/touch", "canary"]).run().expect(126, &["refused:"]);
    assert_eq!(stage.read("canary"), None);
    // The twin: without the rule the same line makes the file.
    stage.write("sandbox.policy.yaml", "version: 1\nbackend: spawn\n");
    stage.ringfence(["run", "--", "touch", "canary"]).run().expect(0, &[]);
    assert!(stage.read("canary").is_some());
}

#[test]
fn a_line_that_cannot_be_read_is_refused_where_there_are_command_rules() {
    let stage =
        Stage::with_policy("version: 1\nbackend: spawn\ncommands:\n  - deny: [touch]\n    matches: [\"touch x\"]\n");
    let run = |line: &str| stage.ringfence(["run", "--shell", line]).run();
    run("touch canary; echo 'open").expect(126, &["refused:", "cannot be held against"]);
    run("$(echo touch) canary").expect(126, &["refused:", "commands.deny touch"]);
    assert_eq!(stage.read("canary"), None);
}

#[test]
fn a_usage_mistake_is_2_and_says_what_to_write() {
    let stage = Stage::spawn();
    let check = |args: &[&str], parts: &[&str]| {
        stage.ringfence(args).run().expect(2, parts);
    };
    check(&[], &["Usage:"]);
    check(&["run"], &["--shell"]);
    check(&["run", "--"], &["Usage:"]);
    check(&["run", "--no-such-flag", "--", "true"], &["--no-such-flag"]);
    check(&["run", "--json", "--events", "--", "true"], &["cannot be used with"]);
    check(&["run", "--lang", "cobol", "--code", "1"], &["cobol", "python"]);
    check(&["run", "--lang", "python"], &["--code"]);
    check(&["run", "--lang", "python", "-", "--stdin"], &["standard input"]);
    check(&["run", "--env", "1X=2", "--", "true"], &["1X"]);
    check(&["run", "--env", "NAME", "--", "true"], &["--pass-env"]);
    check(&["run", "--", ""], &["empty"]);
    check(&["run", "--shell", ""], &["empty"]);
    check(&["run", "--lang", "bash", "--code", ""], &["empty"]);
    check(&["run", "--grant", "proc.nothing", "--", "true"], &["proc.memory"]);
    check(&["completions", "tcsh"], &["bash"]);
    check(&["run", "--backend", "spwan", "--", "true"], &["--backend", "'spawn'"]);
    check(&["run", "--dry-run", "--events", "--", "true"], &["cannot be used with"]);
    check(&["run", "--grant", "proc.memory", "--", "true"], &["--grant proc.memory"]);
}

#[test]
fn s15_a_backend_that_is_missing_is_an_error_and_never_something_weaker() {
    let stage = Stage::new();
    for flags in [&["--backend", "kubernetes"], &["--sandbox", "microvm"]] {
        let args = [&["run"], &flags[..], &["--", "touch", "canary"]].concat();
        stage.ringfence(args).run().expect(125, &["error:", "hint:"]);
    }
    for text in ["version: 1\nbackend: kubernetes\n", "version: 1\nbackend: { use: kubernetes, fallback: [microvm] }\n"]
    {
        stage.write("sandbox.policy.yaml", text);
        stage.ringfence(["run", "--", "touch", "canary"]).run().expect(125, &["error:"]);
    }
    assert_eq!(stage.read("canary"), None);
    stage.ringfence(["run", "--backend", "spawn", "--", "touch", "canary"]).run().expect(0, &[]);
    assert!(stage.read("canary").is_some(), "the twin makes the file");
}

#[test]
fn s15_the_best_backend_is_never_one_that_is_no_wall() {
    let stage = Stage::new();
    let check = |ended: Ended| {
        let backend = ended.json()["backend"].clone();
        assert!(backend != "spawn" && backend != "none", "{ended:?}");
        assert!(ended.code == 125 || ended.code == 0, "{ended:?}");
    };
    check(stage.ringfence(["run", "--json", "--", "true"]).run());
    check(stage.ringfence(["run", "--json", "--backend", "auto", "--", "true"]).run());
    check(stage.ringfence(["run", "--json", "--", "true"]).env("SECURITY_ENABLE_SANDBOX", "true").run());
    stage.write("sandbox.policy.yaml", "version: 1\nbackend: spawn\n");
    check(stage.ringfence(["run", "--json", "--", "true"]).env("SECURITY_ENABLE_SANDBOX", "true").run());
    check(stage.ringfence(["run", "--json", "--backend", "auto", "--", "true"]).run());
}

#[test]
fn s15_a_fallback_that_the_policy_lists_is_taken_loudly_even_when_quiet() {
    let stage = Stage::with_policy("version: 1\nbackend: { use: kubernetes, fallback: [microvm, spawn] }\n");
    let said = ["warning: `kubernetes`", "falls back to `spawn`", "not enforced: fs.confined"];
    stage.ringfence(["run", "--quiet", "--", "true"]).run().expect(0, &said);
    let outcome = stage.ringfence(["run", "--quiet", "--json", "--", "true"]).run().expect(0, &said).json();
    assert_eq!((&outcome["backend"], &outcome["fellBack"]["wanted"]), (&"spawn".into(), &"kubernetes".into()));
    let planned = fs::read_to_string(stage.ledger()).unwrap();
    assert!(planned.contains("\"fellBack\":{\"reason\"") || planned.contains("\"wanted\":\"kubernetes\""), "{planned}");
}

#[test]
fn naming_a_backend_by_flag_takes_the_fallback_away() {
    let stage = Stage::with_policy("version: 1\nbackend: { use: kubernetes, fallback: [spawn] }\n");
    stage.ringfence(["run", "--backend", "microvm", "--", "touch", "canary"]).run().expect(125, &["error:"]);
    assert_eq!(stage.read("canary"), None);
}

#[test]
fn s15_a_runtime_is_for_a_container_engine_and_no_other_wall_passes_it_over() {
    let said = ["error:", "`backend.runtime: runsc` is for a container engine"];
    let stage = Stage::with_policy("version: 1\nbackend: { use: auto, runtime: runsc }\n");
    for flags in [&[][..], &["--backend", "native"]] {
        let args = [&["run"], flags, &["--", "touch", "canary"]].concat();
        stage.ringfence(args).run().expect(125, &said);
    }
    stage.ringfence(["run", "--backend", "landlock", "--", "touch", "canary"]).run().expect(125, &["error:"]);
    let plain = Stage::new();
    plain.ringfence(["run", "--backend", "native", "--runtime", "runsc", "--", "true"]).run().expect(125, &said);
    let by_variable = plain.ringfence(["run", "--backend", "native", "--", "true"]).env("RINGFENCE_RUNTIME", "runsc");
    by_variable.run().expect(125, &said);
    for hostile in ["--privileged", "/usr/bin/runsc", "a b"] {
        let flag = format!("--runtime={hostile}");
        plain.ringfence(["run", &flag, "--", "true"]).run().expect(125, &["is not the name of a runtime"]);
    }
    assert_eq!(stage.read("canary"), None);
    stage.ringfence(["run", "--backend", "spawn", "--", "touch", "canary"]).run().expect(0, &[]);
    assert!(stage.read("canary").is_some(), "the twin makes the file");
}

#[test]
fn short_names_of_engines_name_their_backends_and_exclude_each_other() {
    let stage = Stage::new();
    for engine in ["docker", "podman"] {
        let flag = format!("--{engine}");
        let shown = stage.ringfence(["policy", "show", &flag]).run().expect(0, &[]);
        assert!(shown.text().contains(&format!("use: {engine} ")), "{shown:?}");
    }
    stage.ringfence(["policy", "show", "--docker", "--podman"]).run().expect(2, &[]);
    stage.ringfence(["policy", "show", "--podman", "--backend", "native"]).run().expect(2, &[]);
    let runtime = stage.ringfence(["policy", "show", "--podman", "--runtime", "crun"]).run().expect(0, &[]);
    assert!(runtime.text().contains("runtime: crun"), "{runtime:?}");
}
