//! Code in a language, standard input and where a program starts.

use crate::probe::{Wall, interpreter, run, walled};

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
