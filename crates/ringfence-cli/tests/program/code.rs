//! Code in languages, and what a program reads.

use crate::stage::Stage;

fn has(program: &str) -> bool {
    let found =
        ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|folder| std::path::Path::new(folder).join(program).exists());
    if !found {
        eprintln!("SKIPPED: `{program}` is not on this machine");
    }
    found
}

fn check(language: &str, code: &str, expected: &str) {
    let stage = Stage::spawn();
    let ended = stage.ringfence(["run", "-q", "--lang", language, "--code", code]).run().expect(0, &[]);
    assert_eq!(ended.text(), expected, "--code");
    stage.write("my program.txt", code);
    let ended = stage.ringfence(["run", "-q", "--lang", language, "my program.txt"]).run().expect(0, &[]);
    assert_eq!(ended.text(), expected, "a file");
    let ended = stage.ringfence(["run", "-q", "--lang", language, "-"]).stdin(code).run().expect(0, &[]);
    assert_eq!(ended.text(), expected, "standard input");
}

#[test]
fn code_runs_in_bash_from_a_flag_a_file_and_standard_input() {
    check("bash", "x=(a b); echo ${x[1]} '\"$HOME\"'", "b \"$HOME\"\n");
    check("sh", "echo 1", "1\n");
}

#[test]
fn code_runs_in_python_from_a_flag_a_file_and_standard_input() {
    check("python", "print('ü' * 2, \"'\")", "üü '\n");
    check("py", "import os\nprint(os.getcwd().endswith('work'))", "True\n");
}

#[test]
fn code_runs_in_javascript_from_a_flag_and_standard_input() {
    if has("node") {
        let stage = Stage::spawn();
        let code = "console.log([1, 2].map((x) => x * 21)[1])";
        stage.write("program.js", code);
        for ended in [
            stage.ringfence(["run", "-q", "--lang", "javascript", "--code", code]).run(),
            stage.ringfence(["run", "-q", "--lang", "js", "program.js"]).run(),
            stage.ringfence(["run", "-q", "--lang", "node", "-"]).stdin(code).run(),
        ] {
            assert_eq!(ended.expect(0, &[]).text(), "42\n");
        }
    }
}

#[test]
fn a_traceback_shows_the_users_file_name() {
    let stage = Stage::spawn();
    stage.write("sub/broken_script.py", "def f():\n    raise ValueError('here')\nf()\n");
    stage
        .ringfence(["run", "-q", "--lang", "python", "sub/broken_script.py"])
        .run()
        .expect(1, &["broken_script.py\", line 2", "ValueError: here"]);
    stage.write("broken.sh", "true\nno-such-command-here\n");
    stage.ringfence(["run", "-q", "--lang", "bash", "broken.sh"]).run().expect(127, &["broken.sh: line 2"]);
    stage.ringfence(["run", "-q", "--lang", "python", "--code", "1/0"]).run().expect(1, &["main.py\", line 1"]);
}

#[test]
fn a_language_without_an_interpreter_is_127_and_says_what_to_install() {
    let stage = Stage::spawn();
    stage
        .ringfence(["run", "--lang", "python", "--code", "1"])
        .env("PATH", stage.work())
        .run()
        .expect(127, &["no interpreter for python", "hint: install python3"]);
}

#[test]
fn ten_megabytes_of_code_run_and_seventeen_are_refused() {
    let stage = Stage::spawn();
    let mut code = b"echo begin\n".to_vec();
    code.extend(std::iter::repeat_n(&b"# nothing to see here, move along\n"[..], 300_000).flatten());
    code.extend_from_slice(b"echo end\n");
    assert!(code.len() > 10_000_000);
    stage.write("long.sh", &code);
    let ended = stage.ringfence(["run", "-q", "--lang", "bash", "long.sh"]).run().expect(0, &[]);
    assert_eq!(ended.text(), "begin\nend\n");
    let ended = stage.ringfence(["run", "-q", "--lang", "bash", "-"]).stdin(code.clone()).run().expect(0, &[]);
    assert_eq!(ended.text(), "begin\nend\n");
    code.resize(17 << 20, b'#');
    stage.write("long.sh", &code);
    stage.ringfence(["run", "--lang", "bash", "long.sh"]).run().expect(2, &["longer than"]);
    stage.ringfence(["run", "--lang", "bash", "-"]).stdin(code).run().expect(2, &["longer than"]);
}

#[test]
fn code_that_cannot_be_read_is_our_failure() {
    let stage = Stage::spawn();
    stage
        .ringfence(["run", "--lang", "python", "no-such-file.py"])
        .run()
        .expect(125, &["could not read the code from no-such-file.py", "because"]);
    stage.ringfence(["run", "--lang", "python", "."]).run().expect(125, &["could not read the code"]);
}

#[test]
fn standard_input_is_passed_on_only_when_asked_for() {
    let stage = Stage::new();
    assert_eq!(stage.spawn_sh("cat").stdin("hello\n").run().expect(0, &[]).text(), "");
    assert_eq!(stage.spawn_sh_with(&["--stdin"], "cat").stdin("hello\n").run().expect(0, &[]).text(), "hello\n");
    let large = vec![b'x'; 3_000_000];
    let counted = stage.spawn_sh_with(&["--stdin"], "wc -c").stdin(large.clone()).run().expect(0, &[]);
    assert_eq!(counted.text().trim(), "3000000");
    assert_eq!(stage.spawn_sh_with(&["--stdin"], "exit 3").stdin(large).run().code, 3, "input that nobody reads");
}

#[test]
fn input_that_never_ends_does_not_hold_up_the_end() {
    let stage = Stage::new();
    let mut child = stage.spawn_sh_with(&["--stdin"], "exit 4").stdin("").start();
    // Kept open until the program has ended.
    let open = child.stdin.take();
    assert_eq!(child.wait().unwrap().code(), Some(4));
    drop(open);
}

#[test]
fn f18_a_start_folder_below_the_workspace_is_taken_and_any_other_refused() {
    let stage = Stage::spawn();
    stage.write("sub/deeper/file", "");
    std::os::unix::fs::symlink("/", stage.work().join("link")).unwrap();
    let pwd = |cwd: &str| stage.ringfence(["run", "-q", "--cwd", cwd, "--", "pwd", "-P"]).run();
    assert!(pwd("sub/deeper").expect(0, &[]).text().ends_with("/work/sub/deeper\n"));
    let absolute = stage.work().canonicalize().unwrap().join("sub");
    assert!(pwd(absolute.to_str().unwrap()).expect(0, &[]).text().ends_with("/work/sub\n"));
    for outside in
        ["..", "/", "/etc", "sub/../..", "/proc/self/fd/8", "link", "link/etc", "no-such-folder", "sub/deeper/file"]
    {
        let ended = stage.ringfence(["run", "--cwd", outside, "--", "touch", "canary"]).run();
        assert!([2, 125].contains(&ended.code) && !ended.stderr.is_empty(), "{outside}: {ended:?}");
    }
    assert_eq!((stage.read("canary"), stage.read("sub/canary")), (None, None));
}

#[test]
fn the_program_starts_where_we_are_below_the_workspace() {
    let stage = Stage::spawn();
    stage.write("sub/file", "");
    std::fs::create_dir(stage.work().join(".git")).unwrap();
    let ended = stage.ringfence(["run", "-q", "--", "pwd"]).cwd(stage.work().join("sub")).run().expect(0, &[]);
    assert!(ended.text().ends_with("/work/sub\n"), "{}", ended.text());
}
