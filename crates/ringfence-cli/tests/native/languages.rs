//! Code in a language, standard input and where a program starts.

use crate::probe::{Wall, interpreter, run, walled};
use crate::stage::Stage;

#[test]
fn code_in_python_runs_and_its_traceback_names_the_users_file_and_line() {
    let Some(stage) = walled() else { return };
    if interpreter().is_none() {
        return;
    }
    let ended = stage.ringfence(["run", "-q", "--lang", "python", "--code", "print(6 * 7)"]).run().expect(0, &[]);
    assert_eq!(ended.text(), "42\n");
    stage.write("script.py", "import os\n\ndef broken():\n    raise ValueError(os.getcwd())\n\nbroken()\n");
    let ended = stage.ringfence(["run", "-q", "--lang", "python", "script.py"]).run();
    assert_eq!(ended.code, 1);
    assert!(ended.stderr.contains("script.py\", line 4, in broken"), "{ended:?}");
    assert!(ended.stderr.contains("ValueError: /workspace"), "{ended:?}");
}

/// A program of this host that says its version, behind the wall too.
fn on_this_host(stage: &Stage, program: &str, flags: &[&str]) -> bool {
    run(stage, Wall::Native, &[], &[&[program], flags, &["--version"]].concat()).run().code == 0
}

#[test]
fn an_interpreter_that_is_named_runs_the_code_and_stands_in_outcome_plan_and_ledger() {
    let Some(stage) = walled() else { return };
    let Some(python) = interpreter() else { return };
    // The same by its version and by its path: what another `python3` on the PATH is does not matter.
    let version = "import sys; print('%d.%d' % sys.version_info[:2])";
    let path = python.to_str().unwrap();
    let by = |program: &str| {
        let arguments = ["run", "--json", "--lang", "python", "--interpreter", program, "--code", version];
        stage.ringfence(arguments).run().expect(0, &[]).json()
    };
    let outcome = by(path);
    assert_eq!(outcome["interpreter"], path);
    let named = format!("python{}", outcome["stdout"].as_str().unwrap().trim());
    if on_this_host(&stage, &named, &[]) {
        assert_eq!((by(&named)["interpreter"].as_str(), &by(&named)["stdout"]), (Some(&*named), &outcome["stdout"]));
    } else {
        eprintln!("SKIPPED: there is no {named} inside");
    }
    let found = stage.ringfence(["run", "--json", "--lang", "python", "--code", version]).run().expect(0, &[]).json();
    assert_eq!(found["interpreter"], "python3", "the twin: found, and said");
    let plain = stage.ringfence(["run", "--json", "--", "true"]).run().expect(0, &[]).json();
    assert!(plain.get("interpreter").is_none(), "no code, and nothing that runs it");
    let dry = ["run", "--dry-run", "--lang", "python", "--interpreter", path, "--code", version];
    let plan = stage.ringfence(dry).run().expect(0, &[]);
    assert!(plan.text().contains(&format!("of python, by {path:?}")), "{plan:?}");
    assert!(std::fs::read_to_string(stage.ledger()).unwrap().contains(&format!("python code by {path} (")));
}

#[test]
fn an_interpreter_of_the_workspace_is_executed_only_where_it_is_seen_and_a_missing_one_is_told() {
    let Some(stage) = walled() else { return };
    let script = stage.write("tools/python9", "#!/bin/sh\necho \"run by $0\"; tail -1 \"$1\"\n");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let by = |program: &str| {
        stage.ringfence(["run", "-q", "--lang", "python", "--interpreter", program, "--code", "# the code"]).run()
    };
    assert_eq!(by("/workspace/tools/python9").expect(0, &[]).text(), "run by /workspace/tools/python9\n# the code");
    assert_eq!(by(script.to_str().unwrap()).code, 127, "where it is on the host is nothing inside");
    assert_eq!(by("python0.1").code, 127);
    for no_interpreter in ["bash", "./tools/python9", "tools/python9", ""] {
        by(no_interpreter).expect(2, &["error:"]);
    }
}

#[test]
fn an_interpreter_that_is_named_is_a_command_that_rules_and_strict_lists_speak_of() {
    let Some(stage) = walled() else { return };
    let Some(python) = interpreter() else { return };
    let by = |flags: &[&str], level: &str| {
        let flags = [&["run", "-q", "--lang", "python"], flags, &["--code", "print(6 * 7)"]].concat();
        stage.ringfence(flags).env("RINGFENCE_VALIDATE", level).run()
    };
    let named = ["--interpreter", python.to_str().unwrap()];
    by(&named, "strict").expect(126, &["strict.command"]);
    assert_eq!(by(&named, "standard").expect(0, &[]).text(), "42\n", "the twin");
    stage.write("sandbox.policy.yaml", "version: 1\nvalidate: { level: strict, commands: [python3] }\n");
    assert_eq!(by(&named, "strict").expect(0, &[]).text(), "42\n", "it is listed");
    stage.write("sandbox.policy.yaml", "version: 1\ncommands: [{ deny: [python3], why: not here }]\n");
    by(&named, "off").expect(126, &["not here"]);
}

#[test]
fn code_in_javascript_runs_and_its_trace_names_the_users_file_and_line() {
    let Some(stage) = walled() else { return };
    let Some(program) = ["node", "deno", "bun"].into_iter().find(|program| on_this_host(&stage, program, &[])) else {
        eprintln!("SKIPPED: neither node nor deno nor bun is inside");
        return;
    };
    stage
        .write("script.js", "const six = 6;\nfunction broken() {\n  throw new Error(String(six * 7));\n}\nbroken();\n");
    let ended = stage.ringfence(["run", "--json", "--lang", "javascript", "script.js"]).run();
    let outcome = ended.json();
    assert_eq!((ended.code, &outcome["interpreter"]), (1, &program.into()), "{outcome}");
    let trace = outcome["stderr"].as_str().unwrap();
    assert!(trace.contains("script.js:3") && trace.contains("42"), "{trace}");
    let named = ["run", "-q", "--lang", "javascript", "--interpreter", program, "--code", "console.log(6 * 7)"];
    assert_eq!(stage.ringfence(named).run().expect(0, &[]).text(), "42\n");
}

#[test]
fn code_in_typescript_runs_and_its_trace_names_the_users_file_and_line() {
    let Some(stage) = walled() else { return };
    let strips: &[&str] = &["--experimental-strip-types"];
    let known: [(&str, &[&str]); 4] = [("deno", &[]), ("bun", &[]), ("tsx", &[]), ("node", strips)];
    if !known.into_iter().any(|(program, flags)| on_this_host(&stage, program, flags)) {
        eprintln!("SKIPPED: neither deno nor bun nor tsx nor a node that strips types is inside");
        return;
    }
    stage.write("script.ts", "const six: number = 6;\nfunction broken(by: number): never {\n  throw new Error(String(six * by));\n}\nbroken(7);\n");
    let ended = stage.ringfence(["run", "--json", "--lang", "typescript", "script.ts"]).run();
    let outcome = ended.json();
    assert_eq!(ended.code, 1, "{outcome}");
    let trace = outcome["stderr"].as_str().unwrap();
    assert!(trace.contains("script.ts:3") && trace.contains("42"), "{trace}");
}

#[test]
fn code_in_bash_runs_and_never_passes_through_an_argument() {
    let Some(stage) = walled() else { return };
    let code = "echo \"$BASH_VERSION\" | cut -c1; tr '\\0' ' ' < /proc/$$/cmdline; echo; exit 3";
    let ended = stage.ringfence(["run", "-q", "--lang", "bash", "--code", code]).run();
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(!ended.text().contains("BASH_VERSION"), "the code is in its command line: {ended:?}");
    let ended = stage.ringfence(["run", "-q", "--shell", "echo one | tr o 0; false"]).run();
    assert_eq!((ended.code, &*ended.text()), (1, "0ne\n"), "{ended:?}");
}

#[test]
fn the_code_itself_can_be_read_inside_and_not_changed() {
    let Some(stage) = walled() else { return };
    let code = "cat \"$0\" > /dev/null && echo read; echo x >> \"$0\" && echo changed; rm -f \"$0\"; ls -d \"$0\" > /dev/null && echo there";
    let ended = stage.ringfence(["run", "-q", "--lang", "bash", "--code", code]).run();
    assert_eq!(ended.text(), "read\nthere\n", "{ended:?}");
}

#[test]
fn standard_input_is_passed_only_when_asked_for() {
    let Some(stage) = walled() else { return };
    let flags: [(&[&str], &str); 2] = [(&["--stdin"], "from outside"), (&[], "")];
    for (flags, expected) in flags {
        let ended = run(&stage, Wall::Native, flags, &["cat"]).stdin("from outside").run().expect(0, &[]);
        assert_eq!(ended.text(), expected);
    }
}

#[test]
fn f14_a_file_given_as_standard_input_cannot_be_opened_again_for_writing() {
    let Some(stage) = walled() else { return };
    let file = crate::probe::outside(&stage).join("input");
    std::fs::write(&file, "as it was\n").unwrap();
    let script = "cat; echo x >> /proc/self/fd/0; echo x >> /dev/stdin; readlink /proc/self/fd/0 >&2";
    let ended = {
        let mut command = std::process::Command::new(crate::stage::binary());
        command.env("RINGFENCE_VALIDATE", "off");
        command.args(["run", "-q", "--stdin", "--", "sh", "-c", script]).current_dir(stage.work());
        command.env("HOME", stage.path().join("home")).stdin(std::fs::File::open(&file).unwrap()).output().unwrap()
    };
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "as it was\n");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "as it was\n");
    let twin =
        std::process::Command::new("sh").args(["-c", script]).stdin(std::fs::File::open(&file).unwrap()).output();
    assert!(twin.unwrap().status.success());
    assert_ne!(std::fs::read_to_string(&file).unwrap(), "as it was\n", "the probe proves nothing");
}

#[test]
fn a_program_that_is_missing_or_cannot_be_executed_is_told_as_such() {
    let Some(stage) = walled() else { return };
    stage.write("plain", "not a program");
    for (program, code) in [("no-such-program", 127), ("./no-such-file", 127), ("./plain", 125), ("/workspace", 125)] {
        let ended = run(&stage, Wall::Native, &["--json"], &[program]).run();
        let outcome = ended.json();
        assert_eq!((ended.code, outcome["status"].as_str()), (code, Some("couldNotRun")), "{program}: {outcome:#}");
        assert_eq!(outcome["enforced"].as_array().unwrap().len(), 0, "nothing ran, so nothing was enforced");
    }
}
