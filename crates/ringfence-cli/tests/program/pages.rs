//! What each command prints, looked at as a whole.

use crate::stage::Stage;

const SAMPLE: &str = "version: 1
extends: [preset:python]
backend: { use: native, fallback: [spawn] }
fs:
  deny: [\"secrets/**\"]
net:
  mode: allowlist
  allow: [pypi.org, { host: api.github.com, methods: [GET], paths: [\"/repos/acme/**\"] }]
proc: { memory: 512MiB, timeout: 30s }
commands:
  - deny: [\"rm\", \"-rf\", \"/\"]
    why: removes everything
    instead: Remove only what you made.
    matches: [\"rm -rf /\"]
    rejects: [\"rm -rf build\"]
  - ask: [git, push]
    matches: [\"git push origin\"]
overrides: { grantable: [proc.memory] }
";

const DANGEROUS: &str = "version: 1
backend: none
fs:
  workspace: { path: ., mode: direct }
  mounts:
    - { host: ./data, at: /data, mode: read-write }
net: { mode: open }
proc: { env: { pass: [AWS_SECRET_ACCESS_KEY] } }
commands:
  - allow: [bash]
    matches: [\"bash x\"]
";

/// Run ids, times and durations differ each time.
fn without_chance(text: &str) -> String {
    let words = |line: &str| -> String {
        line.split_inclusive(' ')
            .map(|piece| {
                let (word, space) = piece.strip_suffix(' ').map_or((piece, ""), |word| (word, " "));
                let is_id =
                    word.len() == 26 && word.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase());
                let is_time = word.starts_with("20") && word.contains('T') && word.len() > 18;
                let is_hash = word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
                let shown = if is_id {
                    "[RUN]"
                } else if is_time {
                    "[TIME]"
                } else if is_hash {
                    "[HASH]"
                } else {
                    word
                };
                format!("{shown}{space}")
            })
            .collect()
    };
    text.split_inclusive('\n')
        .map(|line| {
            let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            format!("{}{end}", words(line))
        })
        .collect()
}

fn help(command: &[&str]) -> String {
    let stage = Stage::new();
    let ended = stage.ringfence(command.iter().chain(&["--help"])).run().expect(0, &[]);
    assert_eq!(ended.stderr, "");
    ended.text()
}

macro_rules! help_pages {
    ($($name:ident: $($word:literal)*;)*) => {$(
        #[test]
        fn $name() {
            insta::assert_snapshot!(help(&[$($word),*]));
        }
    )*};
}

help_pages! {
    help_of_the_program: ;
    help_of_run: "run";
    help_of_changes: "changes";
    help_of_changes_prune: "changes" "prune";
    help_of_discard: "discard";
    help_of_policy: "policy";
    help_of_policy_show: "policy" "show";
    help_of_policy_lint: "policy" "lint";
    help_of_policy_test: "policy" "test";
    help_of_policy_schema: "policy" "schema";
    help_of_policy_diff: "policy" "diff";
    help_of_policy_init: "policy" "init";
    help_of_log: "log";
    help_of_log_show: "log" "show";
    help_of_log_verify: "log" "verify";
    help_of_diff: "diff";
    help_of_checkpoint: "checkpoint";
    help_of_checkpoint_diff: "checkpoint" "diff";
    help_of_checkpoint_restore: "checkpoint" "restore";
    help_of_explain: "explain";
    help_of_learn: "learn";
    help_of_doctor: "doctor";
    help_of_check: "check";
    help_of_completions: "completions";
    help_of_man: "man";
}

#[test]
fn the_version_says_what_this_build_can_do() {
    let stage = Stage::new();
    insta::assert_snapshot!(stage.ringfence(["--version"]).run().expect(0, &[]).text());
}

#[test]
fn policy_show_names_the_layer_of_every_line() {
    let stage = Stage::with_policy(SAMPLE);
    let ended = stage.ringfence(["policy", "show"]).env("RINGFENCE_TIMEOUT", "20s").run();
    insta::assert_snapshot!(ended.page(&stage));
}

#[test]
fn policy_lint_warns_of_what_is_dangerous() {
    let stage = Stage::with_policy(DANGEROUS);
    insta::assert_snapshot!(stage.ringfence(["policy", "lint"]).run().page(&stage));
}

#[test]
fn policy_lint_has_nothing_to_say_about_the_defaults() {
    let stage = Stage::new();
    insta::assert_snapshot!(stage.ringfence(["policy", "lint"]).run().page(&stage));
}

#[test]
fn policy_diff_says_what_is_wider_and_narrower() {
    let stage = Stage::new();
    stage.write("a.yaml", SAMPLE);
    stage.write("b.yaml", DANGEROUS);
    insta::assert_snapshot!(stage.ringfence(["policy", "diff", "a.yaml", "b.yaml"]).run().page(&stage));
}

#[test]
fn policy_diff_of_equal_files_is_empty() {
    let stage = Stage::new();
    stage.write("a.yaml", SAMPLE);
    insta::assert_snapshot!(stage.ringfence(["policy", "diff", "a.yaml", "a.yaml"]).run().page(&stage));
}

#[test]
fn policy_test_lists_every_example() {
    let stage = Stage::with_policy(SAMPLE);
    insta::assert_snapshot!(stage.ringfence(["policy", "test"]).run().page(&stage));
}

#[test]
fn policy_test_without_rules_says_so() {
    let stage = Stage::new();
    insta::assert_snapshot!(stage.ringfence(["policy", "test"]).run().page(&stage));
}

#[test]
fn doctor_says_what_this_host_can_enforce() {
    let stage = Stage::spawn();
    let page = stage.ringfence(["doctor"]).run().page(&stage);
    let mut neutral = String::new();
    let mut about_a_wall = false;
    for line in page.lines() {
        // Facts of one machine, and which walls it has.
        let fact = ["kernel", "machine", "user namespaces", "user", "cgroups", "security"]
            .into_iter()
            .find(|name| line.starts_with(&format!("  {name:<16} ")));
        let wall = ["native", "docker", "podman", "microvm", "kubernetes", "landlock"]
            .into_iter()
            .find(|name| line.starts_with(&format!("  {name:<11} ")));
        about_a_wall = wall.is_some() || (about_a_wall && line.starts_with("     "));
        match (fact, wall) {
            (Some(name), _) => neutral.push_str(&format!("  {name:<16} [FACT]\n")),
            (None, Some(name)) => neutral.push_str(&format!("  {name:<11} [FACT]\n")),
            (None, None) if about_a_wall => {}
            (None, None) => neutral.push_str(&format!("{line}\n")),
        }
    }
    insta::assert_snapshot!(neutral);
}

#[test]
fn doctor_says_why_a_container_engine_cannot_be_reached() {
    let stage = Stage::spawn();
    let absent = stage.path().join("absent.sock");
    let silent = stage.path().join("silent.sock");
    // It takes connections, and never says a word.
    let _listener = std::os::unix::net::UnixListener::bind(&silent).unwrap();
    let begun = std::time::Instant::now();
    let found = stage
        .ringfence(["doctor", "--json"])
        .env("DOCKER_HOST", format!("unix://{}", silent.display()))
        .env("CONTAINER_HOST", format!("unix://{}", absent.display()))
        .run()
        .expect(0, &[])
        .json();
    assert!(begun.elapsed() < std::time::Duration::from_secs(20), "{:?}", begun.elapsed());
    let reason = |index: usize| found["engines"][index]["reason"].as_str().unwrap_or_default().to_owned();
    assert!(reason(0).contains("did not answer within 5 seconds"), "{found:#}");
    assert!(reason(1).contains("podman is not running") && reason(1).contains("`CONTAINER_HOST`"), "{found:#}");
    assert!(found["engines"][1]["fix"].as_str().unwrap().contains("podman.socket"), "{found:#}");
}

#[test]
fn doctor_as_json_is_json() {
    let stage = Stage::spawn();
    let found = stage.ringfence(["doctor", "--json"]).run().expect(0, &[]).json();
    assert_eq!(found["wouldUse"], "spawn");
    let spawn = found["backends"].as_array().unwrap().iter().find(|backend| backend["backend"] == "spawn").unwrap();
    assert_eq!(spawn["guarantees"]["time.limit"], "enforced");
    assert!(spawn["guarantees"]["net.none"].is_null());
}

#[test]
fn a_refused_command_says_rule_place_reason_and_fix() {
    let stage = Stage::with_policy(&SAMPLE.replace("native, fallback: [spawn]", "spawn"));
    insta::assert_snapshot!(stage.ringfence(["run", "--", "rm", "-rf", "/"]).run().page(&stage));
}

#[test]
fn a_refused_question_says_that_nobody_could_answer() {
    let stage = Stage::with_policy(&SAMPLE.replace("native, fallback: [spawn]", "spawn"));
    insta::assert_snapshot!(stage.ringfence(["run", "--", "git", "push", "origin"]).run().page(&stage));
}

#[test]
fn a_refused_widening_says_what_is_allowed() {
    let stage = Stage::with_policy(&SAMPLE.replace("native, fallback: [spawn]", "spawn"));
    insta::assert_snapshot!(
        stage.ringfence(["run", "--memory", "4GiB", "--timeout", "1h", "--", "true"]).run().page(&stage)
    );
}

#[test]
fn a_missing_backend_says_what_to_do() {
    let stage = Stage::new();
    insta::assert_snapshot!(stage.ringfence(["run", "--backend", "kubernetes", "--", "true"]).run().page(&stage));
}

#[test]
fn a_missing_program_says_what_to_do() {
    let stage = Stage::spawn();
    insta::assert_snapshot!(stage.ringfence(["run", "--", "pythn3", "x.py"]).run().page(&stage));
}

#[test]
fn a_time_limit_says_what_was_kept_and_what_to_do() {
    let stage = Stage::spawn();
    let ended = stage.ringfence(["run", "--timeout", "500ms", "--", "sh", "-c", "echo before; exec sleep 9"]).run();
    insta::assert_snapshot!(ended.page(&stage));
}

#[test]
fn a_dry_run_shows_the_plan() {
    let stage = Stage::with_policy(&SAMPLE.replace("native, fallback: [spawn]", "spawn"));
    let ended = stage
        .ringfence(["run", "--dry-run", "--memory", "128MiB", "--env", "CI=1", "--", "python3", "-c", "print(1)"])
        .run();
    insta::assert_snapshot!(ended.page(&stage));
}

/// Durations differ in their width as well, so they are replaced together with the spaces before them.
fn without_durations(text: &str) -> String {
    text.lines()
        .map(|line| match line.find(" ms  ") {
            Some(at) => {
                let before = line[..at].trim_end_matches(|c: char| c.is_ascii_digit()).trim_end();
                format!("{before}  [WALL]  {}\n", &line[at + 5..])
            }
            None => format!("{line}\n"),
        })
        .collect()
}

#[test]
fn the_log_lists_runs_in_lines() {
    let stage = Stage::with_policy(&SAMPLE.replace("native, fallback: [spawn]", "spawn"));
    insta::assert_snapshot!("nothing_yet", stage.ringfence(["log"]).run().page(&stage));
    stage.ringfence(["run", "--", "true"]).run();
    stage.ringfence(["run", "--", "sh", "-c", "exit 3"]).run();
    stage.ringfence(["run", "--", "rm", "-rf", "/"]).run();
    stage.ringfence(["run", "--timeout", "300ms", "--", "sleep", "9"]).run();
    stage.ringfence(["run", "--lang", "bash", "--code", "kill -9 $$"]).run();
    stage.ringfence(["run", "--", "no-such-program"]).run();
    let page = without_chance(&without_durations(&stage.ringfence(["log"]).run().page(&stage)));
    insta::assert_snapshot!("some_runs", page);
    insta::assert_snapshot!("verified", stage.ringfence(["log", "verify"]).run().page(&stage));
}

#[test]
fn the_log_shows_all_records_of_one_run() {
    let stage = Stage::with_policy(&SAMPLE.replace("native, fallback: [spawn]", "spawn"));
    stage.ringfence(["run", "--", "sh", "-c", "exit 3"]).run();
    let log = stage.ringfence(["log"]).run().text();
    let id = log.split_whitespace().next().unwrap();
    let page = without_chance(&stage.ringfence(["log", "show", id]).run().page(&stage));
    let neutral: String = page
        .lines()
        .map(|line| {
            let name = ["pid", "uid", "resourceUsage", "policyHash"]
                .into_iter()
                .find(|name| line.starts_with(&format!("    {name:<16} ")));
            name.map_or_else(|| format!("{line}\n"), |name| format!("    {name:<16} [VALUE]\n"))
        })
        .collect();
    insta::assert_snapshot!(neutral);
}

#[test]
fn completions_are_made_for_every_shell() {
    let stage = Stage::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = stage.ringfence(["completions", shell]).run().expect(0, &[]).text();
        assert!(script.len() > 1000 && script.contains("dry-run"), "{shell}");
    }
}

#[test]
fn man_pages_are_made_for_every_command() {
    let stage = Stage::new();
    stage.ringfence(["man", "--out", "pages"]).run().expect(0, &[]);
    for name in
        ["ringfence", "ringfence-run", "ringfence-policy", "ringfence-policy-show", "ringfence-log", "ringfence-doctor"]
    {
        let page = stage.read(&format!("pages/{name}.1")).unwrap_or_else(|| panic!("{name}.1 is missing"));
        assert!(page.contains(".SH NAME"), "{name}");
    }
    stage.ringfence(["man", "--out", "/dev/null/x"]).run().expect(125, &["could not write man pages"]);
}

#[test]
fn the_schema_is_json() {
    let stage = Stage::new();
    let schema = stage.ringfence(["policy", "schema"]).run().expect(0, &[]).json();
    assert!(schema["properties"]["proc"].is_object());
}
