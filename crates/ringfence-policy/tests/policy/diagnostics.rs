use std::fmt::Write as _;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use ringfence_policy::{Diagnostic, Grant, Overrides, parse};

use crate::DESIGN;

/// As a front door would print it: the place, the offending text, what to write.
fn render(text: &str, problems: &[Diagnostic]) -> String {
    let mut out = String::new();
    for problem in problems {
        writeln!(out, "{problem} [{}]", problem.code).unwrap();
        if let Some(span) = problem.span.clone().filter(|span| !span.is_empty()) {
            writeln!(out, "    at: {}", text[span].lines().next().unwrap_or_default()).unwrap();
        }
        writeln!(out, "    hint: {}", problem.advice.as_deref().unwrap_or("-")).unwrap();
    }
    out
}

fn problems(text: &str) -> String {
    match parse("p.yaml", text) {
        Ok(_) => "accepted\n".to_owned(),
        Err(problems) => render(text, &problems),
    }
}

/// Each input as a section, so that the snapshot reads as a catalogue.
fn catalogue(inputs: &[&str]) -> String {
    let mut out = String::new();
    for input in inputs {
        let shown: String = if input.len() > 200 { "…\n".to_owned() } else { format!("{}\n", input.trim_end()) };
        writeln!(out, "--- {shown}=> {}", problems(input)).unwrap();
    }
    out
}

/// A file whose `proc` is this.
fn with(text: &str) -> String {
    format!("version: 1\n{text}")
}

fn catalogue_of(texts: &[&str]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| with(text)).collect();
    catalogue(&texts.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn the_designs_example_is_accepted() {
    assert_eq!(problems(DESIGN), "accepted\n");
}

#[test]
fn text_that_is_not_one_plain_yaml_document() {
    crate::assert_page!(catalogue(&[
        "",
        "# nothing but a comment\n",
        "fs: {}\n",
        "version: 2\n",
        "version: [1]\n",
        "- version: 1\n",
        "just text\n",
        "version: 1\nfs: {\n",
        "version: 1\n\tfs: 1\n",
        "version: 1\nimage: \"a\n",
        "version: 1\nfs: &a {}\nnet: *a\n",
        "version: 1\nnet: *a\n",
        "version: 1\n<<: {fs: {}}\n",
        "version: 1\nimage: !!python/object:os.system a\n",
        "version: 1\n---\nversion: 1\n",
        "%YAML 1.2\n---\nversion: 1\n",
        "version: 1\n? [a]\n: b\n",
        "version: 1\nimage: a\nimage: b\nfs: { size: 1MiB, size: 2MiB }\n",
        &format!("version: 1\nfs: {}", "[".repeat(400)),
        &format!("version: 1\nfs: {}{}", "{a: ".repeat(30), "}".repeat(30)),
    ]));
}

#[test]
fn keys_and_types_that_do_not_fit() {
    crate::assert_page!(catalogue_of(&[
        "prox: {}",
        "fs: { sise: 1GiB, denny: [] }",
        "proc: { max-timeout: 5s, env: { pas: [] } }",
        "something_else_entirely: 1",
        "\"\\u001b[31m\\u202e\": 1",
        "fs: []",
        "fs:",
        "fs: { deny: \"**/.env\" }",
        "fs: { deny: }",
        "fs: { deny: { a: b } }",
        "fs: { deny: [[a]] }",
        "fs: { size: [1] }",
        "fs: { protect: all }",
        "net: none",
        "proc: { timeout: { seconds: 5 } }",
        "proc: { env: { set: [A] } }",
        "proc: { env: { set: { A: } } }",
        "tools: [a]",
        "backend: { use: auto, falback: [] }",
    ]));
}

#[test]
fn values_that_cannot_be_meant() {
    crate::assert_page!(catalogue_of(&[
        "proc: { timeout: 5 }",
        "proc: { timeout: 0 }",
        "proc: { timeout: 0s }",
        "proc: { timeout: -5s }",
        "proc: { timeout: .nan }",
        "proc: { timeout: 9223372036854775808 }",
        "proc: { timeout: 30d }",
        "proc: { timeout: 9000h }",
        "proc: { timeout: 900s, max_timeout: 600s }",
        "proc: { memory: 512 }",
        "proc: { memory: 512m }",
        "proc: { memory: lots }",
        "proc: { memory: 0 }",
        "proc: { cpus: 0 }",
        "proc: { cpus: NaN }",
        "proc: { cpus: 0.0001 }",
        "proc: { processes: 0 }",
        "proc: { processes: 1.5 }",
        "proc: { open_files: -1 }",
        "proc: { user: root }",
        "proc: { user: \"0:0\" }",
        "proc: { user: 1000 }",
        "proc: { env: { pass: [\"*\"] } }",
        "proc: { env: { pass: [\"A*\", \"a b\"] } }",
        "proc: { env: { set: { \"A=B\": 1 } } }",
        "backend: dokcer",
        "backend: privileged",
        "backend: { fallback: [auto] }",
        "image: --privileged",
        "image: \"python --privileged\"",
        "image: \"\"",
        "image: {}",
        "image: [a]",
        "image: { name: \"a:1\", build: ./b }",
        "image: { name: --privileged }",
        "image: { build: /etc }",
        "image: { build: ../up }",
        "image: { name: \"a:1\", pull: always }",
        "image: { name: \"a:1\", pul: never }",
        "backend: { use: docker, runtime: /usr/bin/runsc }",
        "backend: { use: docker, runtime: --privileged }",
        "backend: { use: docker, runtime: [runsc] }",
        "cache: pip",
        "cache: [pipp]",
        "cache: [\"../x\"]",
        "extends: [python]",
        "extends: [\"preset:pyton\"]",
        "extends: \"preset:python\"",
        "extends: [\"../other.yaml\"]",
        "overrides: { grantable: [memory] }",
        "tools: { allow: [\"a b\"] }",
    ]));
}

#[test]
fn files_and_mounts_that_are_refused() {
    crate::assert_page!(catalogue_of(&[
        "fs: { workspace: / }",
        "fs: { workspace: { path: ~, mode: reveiw } }",
        "fs: { workspace: ~/project }",
        "fs: { workspace: \"src/*\" }",
        "fs: { deny: [\"a[\", \"\"] }",
        "fs: { mounts: [./deps] }",
        "fs: { mounts: [{ host: ./deps }] }",
        "fs: { mounts: [{ host: ./deps, at: /deps, size: 1GiB }] }",
        "fs: { mounts: [{ host: /, at: /host }] }",
        "fs: { mounts: [{ host: /var/run/docker.sock, at: /s }] }",
        "fs: { mounts: [{ host: ./a, at: deps }] }",
        "fs: { mounts: [{ host: ./a, at: / }, { host: ./a, at: /proc/x }, { host: ../a, at: /a }] }",
        "fs: { mounts: [{ host: ./a, at: /a, mode: rw }] }",
        "fs: { mounts: [{ tmpfs: /tmp }] }",
        "fs: { mounts: [{ tmpfs: /tmp, size: 0 }] }",
        "fs: { mounts: [{ tmpfs: /t, size: 1MiB }, { host: ./a, at: /t }] }",
        "fs: { mounts: [{ host: ./a, at: /a, hostPath: / }] }",
    ]));
}

#[test]
fn network_rules_that_are_refused() {
    crate::assert_page!(catalogue_of(&[
        "net: { mode: on }",
        "net: { allow: [\"*\"] }",
        "net: { allow: [\"*.com\", \"https://pypi.org\", \"me@pypi.org\", \"pypi.org/simple\"] }",
        "net: { allow: [\"a..b\", \"pypi%2eorg\", \"раypal.com\", 2852039166, localhost] }",
        "net: { allow: [\"pypi.org:99999\"] }",
        "net: { allow: [{ methods: [GET] }] }",
        "net: { allow: [{ host: a.test, methods: [get], paths: [repos] }] }",
        "net: { allow: [{ host: a.test, methods: [] }] }",
        "net: { allow: [{ host: a.test, credential: \"ghp_ABC/==\" }] }",
        "net: { deny: [{ host: a.test, credential: x }] }",
        "net: { deny: [{ host: a.test, inspect: true, budget: { bytes: 1MiB } }] }",
        "net: { allow: [{ host: a.test, inspect: yes, acknowledge: 1 }] }",
        "net: { allow: [{ host: a.test, inspect: false, credential: x }] }",
        "net: { allow: [{ host: a.test, inspect: false, strip: [Cookie] }] }",
        "net: { allow: [{ host: a.test, strip: [] }] }",
        "net: { allow: [{ host: a.test, strip: [Host, content-length, \"a b\", Proxy-Authorization] }] }",
        "net: { allow: [{ host: a.test, strip: [Content_Encoding, transfer_encoding, Proxy_Authorization] }] }",
        "net: { allow: [{ host: a.test, protocol: tcp, ports: [22], strip: [Cookie] }] }",
        "net: { deny: [{ host: a.test, strip: [Cookie] }] }",
        "net: { allow: [{ host: a.test, protocol: udp }] }",
        "net: { allow: [{ host: a.test, protocol: tcp }] }",
        "net: { allow: [{ host: a.test, protocol: tcp, ports: [22], inspect: true }] }",
        "net: { allow: [{ host: a.test, budget: {} }] }",
        "net: { allow: [{ host: a.test, budget: { requests: 0, bytes: 0, rate: 10/h } }] }",
        "net: { budget: { request: 1 } }",
        "net: { unknown: allow }",
        "net: { upstream: \"http://me:hunter2@proxy.test:3128\" }",
        "net: { upstream: proxy.test }",
        "net: { localhost: [http] }",
        "net: { localhost: [0] }",
        "net: { unix: [/var/run/docker.sock, run/x.sock] }",
    ]));
}

#[test]
fn credentials_that_are_refused() {
    let page = catalogue_of(&[
        "credentials: [github]",
        "credentials: { github: ghp_0123456789 }",
        "credentials: { \"git hub\": { from: { env: T }, hosts: [a.test] } }",
        "credentials: { github: { from: { env: T } } }",
        "credentials: { github: { hosts: [a.test] } }",
        "credentials: { github: { from: ghp_0123456789, hosts: [a.test] } }",
        "credentials: { github: { from: {}, hosts: [a.test] } }",
        "credentials: { github: { from: { env: T, file: /t }, hosts: [a.test] } }",
        "credentials: { github: { from: { env: T }, hosts: [] } }",
        "credentials: { github: { from: { env: T }, hosts: [\"*\"] } }",
        "credentials: { github: { from: { env: \"A B\" }, hosts: [a.test] } }",
        "credentials: { github: { from: { file: token }, hosts: [a.test] } }",
        "credentials: { github: { from: { keyring: github }, hosts: [a.test] } }",
        "credentials: { github: { from: { command: pass github }, hosts: [a.test] } }",
        "credentials: { github: { from: { command: [] }, hosts: [a.test] } }",
        "credentials: { github: { from: { command: [./token] }, hosts: [a.test] } }",
        "credentials: { github: { from: { env: T }, hosts: [a.test], header: Host } }",
        "credentials: { github: { from: { env: T }, hosts: [a.test], format: ghp_0123456789 } }",
        "credentials: { github: { from: { env: T }, hosts: [a.test], env: LD_PRELOAD } }",
        "credentials: { github: { from: { env: T }, hosts: [a.test], secret: x } }",
        "credentials: { github: { from: { env: T }, hosts: [a.test], sign: md5 } }",
        "credentials: { github: { from: { env: T }, hosts: [a.test], sign: hmac-sha256, format: \"Bearer {}\" } }",
        "credentials: { github: { from: { env: T }, hosts: [a.test], sign: hmac-sha256, env: T } }",
    ]);
    // The text of the input is in the page; what is said about it must not repeat a secret.
    let said = page.lines().filter(|line| line.starts_with("=>") || line.trim_start().starts_with("hint:"));
    assert!(said.clone().count() > 20 && said.into_iter().all(|line| !line.contains("ghp_")), "{page}");
    crate::assert_page!(page);
}

#[test]
fn command_rules_that_are_refused() {
    crate::assert_page!(catalogue_of(&[
        "commands: { deny: [rm] }",
        "commands: [rm]",
        "commands: [{ why: because }]",
        "commands: [{ allow: [a], deny: [a] }]",
        "commands: [{ deny: [] }]",
        "commands: [{ deny: rm -rf / }]",
        "commands: [{ deny: [\"rm -rf /\"] }]",
        "commands: [{ deny: [rm, -rf], matches: [\"rm -r\"] }]",
        "commands: [{ deny: [rm, -rf], rejects: [\"rm -rf build\"] }]",
        "commands: [{ deny: [git], reading: allow }]",
        "commands: [{ ask: [git], reading: pass }]",
        "commands: [{ deny: [rm], matches: [\"rm $HOME\", \"rm a; rm b\", \"rm 'a\"] }]",
    ]));
}

#[test]
fn overrides_and_grants_that_are_refused() {
    let mut out = String::new();
    for text in [
        "{",
        "[]",
        "{\"net\": {\"mode\": \"opne\"}}",
        "{\"proc\": {\"timeout\": 5}}",
        "{\"proc\": {\"timeout\": \"5s\", \"timeout\": \"6s\"}}",
        "{\"fs\": {\"mounts\": []}}",
        "{\"backend\": \"none\", \"policy\": {}}",
        "{\"proc\": {\"cpus\": -1, \"memory\": null}}",
    ] {
        let problems = Overrides::parse_json(text).expect_err(text);
        writeln!(out, "--- {text}\n=> {}", render(text, &problems)).unwrap();
    }
    for text in [
        "version: 1\ngrant: { proc: { memory: 4GiB } }\n",
        "version: 1\nby: ana\n",
        "grant: { proc: { memory: 4 } }\nby: ana\n",
        "version: 1\ngrant: { fs: { mounts: [] } }\nby: \"a\\nb\"\n",
        "version: 1\ngrants: {}\nby: ana\n",
    ] {
        let problems = Grant::parse("grant.yaml", text).expect_err(text);
        writeln!(out, "--- {text}=> {}", render(text, &problems)).unwrap();
    }
    crate::assert_page!(out);
}

#[test]
fn several_problems_are_reported_at_once_from_the_top() {
    let text = "version: 1\nextends: [x]\nproc: { timeout: 5 }\nnet: { mode: x }\nfs: { size: x }\n";
    let lines: Vec<u32> =
        parse("p", text).unwrap_err().iter().map(|problem| problem.place.as_ref().unwrap().line).collect();
    assert_eq!(lines, [2, 3, 4, 5]);
}

#[test]
fn a_file_of_ten_megabytes_is_refused_before_it_is_parsed() {
    let text = format!("version: 1\n# {}", "x".repeat(10_000_000));
    let start = Instant::now();
    let problems = parse("p.yaml", &text).unwrap_err();
    assert_eq!(problems[0].code, "policy::too-large");
    assert!(start.elapsed() < Duration::from_millis(100));
}

#[test]
fn bombs_end_in_a_diagnostic_and_soon() {
    let mut anchors = "version: 1\na0: &a0 [x, x]\n".to_owned();
    for level in 1..40 {
        writeln!(anchors, "a{level}: &a{level} [*a{0}, *a{0}]", level - 1).unwrap();
    }
    let bombs = [
        anchors,
        format!("version: 1\nfs: {}", "[".repeat(500_000)),
        format!("version: 1\nfs: {}", "{a: ".repeat(200_000)),
        format!(
            "version: 1\nfs:\n{}",
            (0..2000).map(|level| format!("{}a:\n", " ".repeat(level % 400))).collect::<String>()
        ),
        format!("version: 1\nfs: {{ deny: [{}] }}", "a,".repeat(400_000)),
        format!("version: 1\n{}", (0..100_000).map(|key| format!("k{key}: 1\n")).collect::<String>()),
        format!("version: 1\n{}", "a: 1\n".repeat(100_000)),
        format!("version: 1\n{}", "? ".repeat(400_000)),
        format!("version: 1\n{}", "- ".repeat(400_000)),
        "---\n".repeat(200_000),
        format!("version: 1\nimage: \"{}\"", "\\u0000".repeat(100_000)),
    ];
    for bomb in bombs {
        let start = Instant::now();
        let problems = parse("p.yaml", &bomb).expect_err("a bomb");
        assert!(!problems.is_empty() && problems.len() <= 51, "{}", problems.len());
        assert!(problems.iter().all(|problem| problem.message.len() < 500), "{problems:?}");
        assert!(start.elapsed() < Duration::from_secs(5), "{:?} for {:?}", start.elapsed(), &bomb[..40]);
    }
}

proptest! {
    #[test]
    fn any_text_is_a_policy_or_has_a_place_for_its_problem(text in "\\PC{0,200}|[a-z0-9:{}\\[\\], \n\"'&*!|>#-]{0,200}") {
        for text in [text.clone(), format!("version: 1\nfs: {text}"), format!("version: 1\n{text}")] {
            if let Err(problems) = parse("p.yaml", &text) {
                prop_assert!(!problems.is_empty());
                for problem in &problems {
                    prop_assert!(problem.place.as_ref().is_some_and(|place| place.line > 0 && place.column > 0));
                    // A front door slices the text with it.
                    let span = problem.span.clone().unwrap_or_default();
                    prop_assert!(text.get(span.clone()).is_some(), "{:?} in {:?}", span, text);
                }
            }
            drop(Grant::parse("grant.yaml", &text));
            drop(Overrides::parse_json(&text));
        }
    }

    #[test]
    fn the_example_with_any_piece_cut_out_never_panics(from in 0..1100_usize, length in 0..60_usize) {
        let kept: String = DESIGN.chars().enumerate().filter(|(at, _)| *at < from || *at >= from + length).map(|(_, c)| c).collect();
        drop(parse("p.yaml", &kept));
    }
}

#[test]
fn a_file_pattern_that_could_match_nothing_is_refused() {
    let read = |key: &str, text: &str| parse("p.yaml", &format!("version: 1\nfs: {{ {key}: [\"{text}\"] }}\n"));
    for key in ["deny", "protect"] {
        for text in ["/etc/x", "~/x", "./secret", "secret/", "a/../b", "a//b"] {
            let refused = read(key, text).unwrap_err();
            assert!(format!("{refused:?}").contains("would match nothing"), "{key} {text}: {refused:?}");
        }
        for text in ["secret", "**/.env", "a/b/**", ".x/*"] {
            assert!(read(key, text).is_ok(), "{key} {text}");
        }
    }
}
