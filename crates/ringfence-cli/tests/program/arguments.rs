//! Arguments reach the program as they are, and no mixture of flags makes us panic.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use proptest::prelude::*;

use crate::stage::Stage;

/// Prints each argument with a NUL after it.
const ECHO: &str = "printf '%s\\0' \"$@\"";

fn check_arguments(arguments: &[OsString]) {
    let stage = Stage::spawn();
    let fixed = ["run", "-q", "--", "sh", "-c", ECHO, "echo"].map(OsString::from);
    let ended = stage.ringfence(fixed.iter().chain(arguments)).run();
    assert_eq!(ended.code, 0, "{ended:?}");
    let expected: Vec<u8> = arguments.iter().flat_map(|argument| [argument.as_bytes(), b"\0"].concat()).collect();
    // With no argument, `printf` prints one empty string.
    assert_eq!(ended.stdout, if arguments.is_empty() { b"\0".to_vec() } else { expected });
}

#[test]
fn s08_odd_arguments_reach_the_program_unchanged() {
    let odd: [&[u8]; 9] = [
        b"",
        b" ",
        b"a\nb",
        b"{\"x\":1}",
        b"$HOME `id` $(id)",
        b"--flag",
        b"--",
        b"\xff\xfe\x80",
        "日本\u{202e}".as_bytes(),
    ];
    check_arguments(&odd.map(|bytes| OsStr::from_bytes(bytes).to_owned()));
    check_arguments(&[]);
}

#[test]
fn s08_a_megabyte_of_arguments_and_the_longest_one_that_the_kernel_takes_pass() {
    let many: Vec<OsString> = (0..20).map(|_| "x".repeat(50_000).into()).collect();
    check_arguments(&many);
    // The kernel takes no argument over 128 KiB, so nobody can give us one; just below it, it passes.
    let stage = Stage::spawn();
    let long = "x".repeat(131_071);
    stage.ringfence(["run", "-q", "--", "true", &long]).run().expect(0, &[]);
}

#[test]
fn s08_a_program_whose_name_is_no_text_is_not_found_and_not_a_panic() {
    let stage = Stage::spawn();
    let name = OsStr::from_bytes(b"\xff\xfe");
    stage.ringfence([OsStr::new("run"), OsStr::new("--"), name]).run().expect(127, &["was not found"]);
    stage.ringfence([OsStr::new("run"), OsStr::new("--shell"), name]).run().expect(2, &["not UTF-8"]);
    stage
        .ringfence([OsStr::new("run"), OsStr::new("--backend"), name, OsStr::new("--"), OsStr::new("true")])
        .run()
        .expect(2, &[]);
    let code = stage.ringfence([
        OsStr::new("run"),
        OsStr::new("-q"),
        OsStr::new("--lang"),
        OsStr::new("bash"),
        OsStr::new("--code"),
        OsStr::from_bytes(b"printf '\xff'"),
    ]);
    assert_eq!(code.run().expect(0, &[]).stdout, b"\xff");
}

/// Words that mean something to us, and some that do not.
const WORDS: &[&str] = &[
    "run",
    "policy",
    "show",
    "lint",
    "test",
    "diff",
    "init",
    "log",
    "verify",
    "doctor",
    "completions",
    "bash",
    "help",
    "--",
    "-",
    "-h",
    "-V",
    "-q",
    "-n",
    "--json",
    "--events",
    "--dry-run",
    "--stdin",
    "--stdout",
    "--shell",
    "--lang",
    "python",
    "--code",
    "--backend",
    "spawn",
    "none",
    "auto",
    "--docker",
    "--timeout",
    "1s",
    "0",
    "-1",
    "--memory",
    "64MiB",
    "--cpus",
    "--processes",
    "--net",
    "--allow-host",
    "*",
    "a.example.org",
    "--env",
    "A=B",
    "--pass-env",
    "--at",
    "same",
    "--cwd",
    "..",
    "--workspace",
    ".",
    "--policy",
    "sandbox.policy.yaml",
    "--grant",
    "proc.memory",
    "--grant-file",
    "true",
    "echo",
    "",
    "\u{202e}",
    "=",
    "--=x",
    "99999999999999999999",
];

/// The codes that the help documents, and those of `true` and `echo`, of `diff` and `lint`.
const DOCUMENTED: [i32; 8] = [0, 1, 2, 124, 125, 126, 127, 130];

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_arguments_without_nul_reach_the_program_unchanged(
        arguments in proptest::collection::vec(proptest::collection::vec(1u8.., 0..40), 0..6)
    ) {
        let arguments: Vec<OsString> = arguments.into_iter().map(OsString::from_vec).collect();
        check_arguments(&arguments);
    }

    #[test]
    fn any_mixture_of_flags_ends_with_a_documented_code(
        words in proptest::collection::vec(prop_oneof![
            9 => proptest::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
            1 => proptest::collection::vec(1u8.., 0..12),
        ], 0..9)
    ) {
        let stage = Stage::spawn();
        let words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
        // `Ended` refuses a panic by itself.
        let ended = stage.ringfence(&words).stdin("").run();
        prop_assert!(DOCUMENTED.contains(&ended.code), "{words:?}: {ended:?}");
    }

    #[test]
    fn any_policy_text_ends_with_a_documented_code(text in "\\PC{0,200}") {
        let stage = Stage::with_policy(&text);
        let ended = stage.ringfence(["policy", "show"]).run();
        prop_assert!([0, 125].contains(&ended.code), "{text:?}: {ended:?}");
    }
}
