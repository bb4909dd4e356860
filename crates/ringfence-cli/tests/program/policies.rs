//! Where the policy comes from, and that nothing below can widen what stands above.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Instant;

use crate::stage::{Ended, SOON, Stage};

fn shown(stage: &Stage, flags: &[&str]) -> serde_json::Value {
    stage.ringfence([&["policy", "show", "--json"], flags].concat()).run().expect(0, &[]).json()
}

#[test]
fn s10_a_typo_refuses_to_start_with_line_column_and_the_nearest_key() {
    let stage = Stage::with_policy("version: 1\nbackend: spawn\nproc:\n  timeuot: 5s\n");
    let ended = stage.ringfence(["run", "--", "touch", "canary"]).run();
    ended.expect(125, &["timeuot", "sandbox.policy.yaml:4:3", "timeout"]);
    for bad in [
        "version: 1\nbackend: spwan\n",
        "version: 1\nproc: { timeout: soon }\n",
        "version: 2\n",
        "",
        "- 1\n",
        "\u{0}",
        "version: 1\nnet: none\n",
    ] {
        stage.write("sandbox.policy.yaml", bad);
        let ended = stage.ringfence(["run", "--backend", "spawn", "--", "touch", "canary"]).run();
        assert_eq!(ended.code, 125, "{bad:?}: {ended:?}");
        assert!(ended.stderr.contains("sandbox.policy.yaml"), "{bad:?}: {}", ended.stderr);
    }
    assert_eq!(stage.read("canary"), None);
}

#[test]
fn s11_a_policy_that_changes_during_a_run_changes_nothing() {
    let stage = Stage::with_policy("version: 1\nbackend: spawn\nproc: { timeout: 2s, max_timeout: 2s }\n");
    let script = "printf 'version: 1\\nbackend: spawn\\nproc: { timeout: 60s, max_timeout: 60s }\\n' > sandbox.policy.yaml; sleep 30";
    let begin = Instant::now();
    stage.ringfence(["run", "-q", "--", "sh", "-c", script]).run().expect(124, &[]);
    assert!(begin.elapsed() < SOON);
    assert_eq!(shown(&stage, &[])["proc"]["timeout"], "60s", "the twin: the file was changed");
}

#[test]
fn s16_flags_narrow_and_never_widen() {
    let stage = Stage::with_policy(
        "version: 1\nbackend: spawn\nproc: { timeout: 5s, max_timeout: 10s, memory: 256MiB, processes: 50, output: 64KiB, cpus: 1 }\n\
         net: { mode: allowlist, allow: [pypi.org] }\n",
    );
    let run = |flags: &[&str]| stage.ringfence([&["run", "-q"], flags, &["--", "touch", "canary"]].concat()).run();
    for wide in [
        &["--timeout", "11s"][..],
        &["--memory", "1GiB"],
        &["--processes", "51"],
        &["--output", "1MiB"],
        &["--cpus", "2"],
        &["--net", "open"],
        &["--allow-host", "evil.test"],
        &["--allow-host", "*.pypi.org"],
        &["--pass-env", "AWS_SECRET_ACCESS_KEY"],
        &["--timeout", "1s", "--memory", "1GiB"],
    ] {
        run(wide).expect(126, &["refused: the request asks for more than the policy allows", "overrides.narrow-only"]);
    }
    assert_eq!(stage.read("canary"), None);
    run(&[
        "--timeout",
        "10s",
        "--memory",
        "256MiB",
        "--processes",
        "40",
        "--output",
        "1KiB",
        "--cpus",
        "0.5",
        "--net",
        "none",
    ])
    .expect(0, &[]);
    assert!(stage.read("canary").is_some(), "what is narrower runs");
    run(&["--allow-host", "pypi.org"]).expect(0, &[]);
}

#[test]
fn s16_a_grant_widens_only_what_the_policy_lists_and_is_written_down() {
    let stage = Stage::with_policy(
        "version: 1\nbackend: spawn\nproc: { memory: 256MiB, processes: 50 }\noverrides: { grantable: [proc.memory] }\n",
    );
    let run =
        |flags: &[&str]| stage.ringfence([&["run", "-q", "--json"], flags, &["--", "touch", "canary"]].concat()).run();
    run(&["--memory", "1GiB"]).expect(126, &[]);
    run(&["--grant", "proc.memory"]).expect(2, &["--grant proc.memory permits nothing"]);
    let refused = run(&["--grant", "proc.processes", "--processes", "99"]);
    assert!([125, 126].contains(&refused.code) && refused.stderr.contains("proc.processes"), "{refused:?}");
    assert_eq!(stage.read("canary"), None);
    let outcome = run(&["--grant", "proc.memory", "--memory", "1GiB"]).expect(0, &[]).json();
    assert_eq!(outcome["effectivePolicy"]["proc"]["memory"], "1GiB");
    let ledger = fs::read_to_string(stage.ledger()).unwrap();
    let planned = ledger.lines().find(|line| line.contains("\"kind\":\"planned\"")).unwrap();
    assert!(planned.contains("--grant by uid") && planned.contains("1GiB"), "{planned}");
}

#[test]
fn s16_a_grant_file_needs_a_giver_and_is_written_down_with_the_reason() {
    let stage = Stage::with_policy(
        "version: 1\nbackend: spawn\nproc: { memory: 256MiB }\noverrides: { grantable: [proc.memory] }\n",
    );
    let grant = stage.path().join("grant.yaml");
    let run = |text: &str| {
        fs::write(&grant, text).unwrap();
        stage.ringfence(["run", "-q", "--json", "--grant-file", grant.to_str().unwrap(), "--", "true"]).run()
    };
    run("version: 1\ngrant: { proc: { memory: 1GiB } }\n").expect(125, &["who gives it"]);
    run("version: 1\nby: ops\ngrant: { proc: { memroy: 1GiB } }\n").expect(125, &["memroy", "memory"]);
    let outcome = run("version: 1\nby: ops on call\nwhy: the model is large\ngrant: { proc: { memory: 1GiB } }\n")
        .expect(0, &[])
        .json();
    assert_eq!(outcome["effectivePolicy"]["proc"]["memory"], "1GiB");
    let ledger = fs::read_to_string(stage.ledger()).unwrap();
    assert!(ledger.contains("ops on call") && ledger.contains("the model is large"), "{ledger}");
}

const FLOOR: &str = "version: 1\nbackend: spawn\nproc: { timeout: 5s, max_timeout: 5s, memory: 128MiB }\nnet: { mode: none }\n\
                     commands:\n  - deny: [touch]\n    matches: [\"touch x\"]\n";

#[test]
fn an_operators_floor_cannot_be_widened_by_project_user_environment_or_flags() {
    let stage = Stage::with_policy(
        "version: 1\nbackend: none\nproc: { timeout: 60s, max_timeout: 60s, memory: 8GiB }\nnet: { mode: open }\n\
         commands:\n  - allow: [touch]\n    matches: [\"touch x\"]\noverrides: { grantable: [proc.memory] }\n",
    );
    let floor = stage.path().join("floor.yaml");
    fs::write(&floor, FLOOR).unwrap();
    fs::create_dir_all(stage.path().join("home/.config/ringfence")).unwrap();
    fs::write(stage.path().join("home/.config/ringfence/policy.yaml"), "version: 1\nproc: { memory: 8GiB }\n").unwrap();
    let show = stage
        .ringfence(["policy", "show", "--json"])
        .env("RINGFENCE_OPERATOR_POLICY", &floor)
        .env("RINGFENCE_MEMORY", "8GiB")
        .env("RINGFENCE_TIMEOUT", "60s")
        .env("RINGFENCE_NET", "open")
        .run()
        .expect(0, &[])
        .json();
    assert_eq!(
        (&show["proc"]["memory"], &show["proc"]["timeout"], &show["net"]["mode"]),
        (&"128MiB".into(), &"5s".into(), &"none".into())
    );
    let run = |flags: &[&str]| -> Ended {
        stage
            .ringfence([&["run", "-q"], flags, &["--", "touch", "canary"]].concat())
            .env("RINGFENCE_OPERATOR_POLICY", &floor)
            .run()
    };
    run(&[]).expect(126, &["refused:", "floor.yaml"]);
    run(&["--backend", "none"]).expect(126, &[]);
    let granted = run(&["--grant", "proc.memory", "--memory", "1GiB"]);
    assert!([125, 126].contains(&granted.code), "{granted:?}");
    assert_eq!(stage.read("canary"), None);
    stage.ringfence(["run", "-q", "--", "touch", "canary"]).run().expect(0, &[]);
    assert!(stage.read("canary").is_some(), "the twin: without the floor the project decides");
}

#[test]
fn a_floor_that_forbids_weak_backends_is_not_left_by_a_flag() {
    let stage = Stage::new();
    let floor = stage.path().join("floor.yaml");
    fs::write(&floor, "version: 1\nbackend: native\n").unwrap();
    for backend in ["none", "spawn"] {
        let ended = stage
            .ringfence(["run", "--json", "--backend", backend, "--", "touch", "canary"])
            .env("RINGFENCE_OPERATOR_POLICY", &floor)
            .run();
        // Where the floor's own backend can be had, the program runs behind that one.
        let used = ended.json()["backend"].clone();
        assert!(used != "none" && used != "spawn", "{backend}: {ended:?}");
    }
    assert_eq!(stage.read("canary"), None);
}

#[test]
fn an_operators_file_that_is_named_and_missing_or_wrong_stops_everything() {
    let stage = Stage::spawn();
    let run =
        |floor: &str| stage.ringfence(["run", "--", "touch", "canary"]).env("RINGFENCE_OPERATOR_POLICY", floor).run();
    run("/no/such/floor.yaml").expect(125, &["/no/such/floor.yaml"]);
    let broken = stage.write("floor.yaml", "version: 1\nproc: {");
    run(broken.to_str().unwrap()).expect(125, &["floor.yaml"]);
    assert_eq!(stage.read("canary"), None);
}

#[test]
fn variables_of_existing_agents_are_understood() {
    let stage = Stage::new();
    let ended = stage
        .ringfence(["run", "-q", "--json", "--", "true"])
        .env("SECURITY_ENABLE_SANDBOX", "false")
        .run()
        .expect(0, &[]);
    assert_eq!(ended.json()["backend"], "none");
    let show = stage
        .ringfence(["policy", "show", "--json"])
        .env("SECURITY_MAX_EXECUTION_TIME", "7")
        .env("SECURITY_DOCKER_IMAGE", "python:3.13-slim")
        .run()
        .expect(0, &[])
        .json();
    assert_eq!((&show["proc"]["timeout"], &show["proc"]["max_timeout"]), (&"7s".into(), &"7s".into()));
    assert_eq!(show["image"], "python:3.13-slim");
    stage
        .ringfence(["run", "--", "true"])
        .env("SECURITY_ENABLE_SANDBOX", "maybe")
        .run()
        .expect(125, &["SECURITY_ENABLE_SANDBOX"]);
    stage
        .ringfence(["run", "--", "true"])
        .env("SECURITY_MAX_EXECUTION_TIME", "0")
        .run()
        .expect(125, &["SECURITY_MAX_EXECUTION_TIME"]);
}

#[test]
fn a_misspelled_variable_of_ours_is_not_ignored() {
    let stage = Stage::spawn();
    stage
        .ringfence(["run", "--", "touch", "canary"])
        .env("RINGFENCE_TIMEUOT", "5s")
        .run()
        .expect(125, &["RINGFENCE_TIMEOUT"]);
    stage
        .ringfence(["run", "--", "touch", "canary"])
        .env("RINGFENCE_TIMEOUT", "")
        .run()
        .expect(125, &["RINGFENCE_TIMEOUT"]);
    assert_eq!(stage.read("canary"), None);
}

#[test]
fn a_policy_that_everybody_can_write_is_refused() {
    let stage = Stage::spawn();
    let policy = stage.work().join("sandbox.policy.yaml");
    fs::set_permissions(&policy, fs::Permissions::from_mode(0o666)).unwrap();
    stage.ringfence(["run", "--", "touch", "canary"]).run().expect(125, &["can be written by everybody", "chmod o-w"]);
    assert_eq!(stage.read("canary"), None);
}

#[test]
fn a_policy_that_is_no_file_is_refused_without_waiting() {
    let stage = Stage::new();
    let policy = stage.work().join("sandbox.policy.yaml");
    let refused = |what: &str| {
        let begin = Instant::now();
        let ended = stage.ringfence(["run", "--backend", "spawn", "--", "touch", "canary"]).run();
        assert_eq!(ended.code, 125, "{what}: {ended:?}");
        assert!(ended.stderr.contains("sandbox.policy.yaml"), "{what}: {}", ended.stderr);
        assert!(begin.elapsed() < SOON, "{what}");
        assert_eq!(stage.read("canary"), None, "{what}");
    };
    let made = std::process::Command::new("mkfifo").arg(&policy).status().unwrap();
    assert!(made.success());
    refused("a pipe");
    fs::remove_file(&policy).unwrap();
    symlink("sandbox.policy.yaml", &policy).unwrap();
    refused("a link to itself");
    fs::remove_file(&policy).unwrap();
    symlink("nowhere", &policy).unwrap();
    refused("a link to nothing");
    fs::remove_file(&policy).unwrap();
    symlink("/dev/zero", &policy).unwrap();
    refused("an endless device");
    fs::remove_file(&policy).unwrap();
    fs::create_dir(&policy).unwrap();
    refused("a folder");
}

#[test]
fn r13_a_policy_of_ten_megabytes_is_refused_at_once() {
    let stage = Stage::with_policy(&format!("version: 1\n{}", "# filler\n".repeat(1_200_000)));
    let begin = Instant::now();
    stage.ringfence(["run", "--backend", "spawn", "--", "touch", "canary"]).run().expect(125, &["1 MiB"]);
    assert!(begin.elapsed() < SOON);
    assert_eq!(stage.read("canary"), None);
}

#[test]
fn r13_an_anchor_bomb_is_refused_at_once() {
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..30 {
        let names = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{names}]\n"));
    }
    let stage = Stage::with_policy(&bomb);
    let begin = Instant::now();
    let ended = stage.ringfence(["run", "--backend", "spawn", "--", "touch", "canary"]).run();
    assert_eq!(ended.code, 125, "{ended:?}");
    assert!(begin.elapsed() < SOON);
}

#[test]
fn the_nearest_policy_up_to_the_repository_is_found_and_none_above() {
    let stage = Stage::with_policy("version: 1\nproc: { timeout: 11s }\n");
    stage.write("repo/sub/file", "");
    let from = |folder: &str| {
        stage.ringfence(["policy", "show", "--json"]).cwd(stage.work().join(folder)).run().expect(0, &[]).json()["proc"]
            ["timeout"]
            .clone()
    };
    assert_eq!(from(""), "11s");
    assert_eq!(from("repo/sub"), "120s", "without a repository only the folder itself counts");
    fs::create_dir(stage.work().join("repo/.git")).unwrap();
    assert_eq!(from("repo/sub"), "120s", "a policy above the repository does not count");
    stage.write("repo/sandbox.policy.yaml", "version: 1\nproc: { timeout: 12s }\n");
    assert_eq!(from("repo/sub"), "12s");
}

#[test]
fn a_policy_by_flag_or_variable_replaces_the_projects_and_must_be_there() {
    let stage = Stage::with_policy("version: 1\nproc: { timeout: 11s }\n");
    stage.write("other.yaml", "version: 1\nproc: { timeout: 12s }\n");
    assert_eq!(shown(&stage, &["--policy", "other.yaml"])["proc"]["timeout"], "12s");
    let by_variable =
        stage.ringfence(["policy", "show", "--json"]).env("RINGFENCE_POLICY", "other.yaml").run().expect(0, &[]);
    assert_eq!(by_variable.json()["proc"]["timeout"], "12s");
    stage
        .ringfence(["run", "--policy", "missing.yaml", "--", "true"])
        .run()
        .expect(125, &["missing.yaml", "ringfence policy init"]);
}

#[test]
fn a_starter_policy_is_written_once_and_is_valid() {
    let stage = Stage::new();
    stage.ringfence(["policy", "init", "--preset", "python"]).run().expect(0, &["wrote sandbox.policy.yaml"]);
    let written = stage.read("sandbox.policy.yaml").unwrap();
    stage.ringfence(["policy", "show"]).run().expect(0, &[]);
    stage.ringfence(["policy", "lint"]).run().expect(0, &[]);
    stage.ringfence(["policy", "init"]).run().expect(125, &["hint:"]);
    assert_eq!(stage.read("sandbox.policy.yaml").unwrap(), written, "it was overwritten");
    assert_eq!(stage.ringfence(["policy", "init", "--preset", "python", "--stdout"]).run().text(), written);
}
