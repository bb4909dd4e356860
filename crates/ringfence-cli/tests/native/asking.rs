//! A host that no rule names, asked about at a terminal; what a run was denied, learned from; and another proxy above ours.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;

use crate::origin::{FETCH, Origin};
use crate::probe::{Wall, asking_about_hosts, interpreter, python, run, walled_with};
use crate::sitting::{END, QUESTION, QUESTION_OF_A_RULE, Sitting};
use crate::stage::{SOON, Stage};

/// A host that nobody has to look up. What answers for it is the proxy above ours.
pub(crate) const UNKNOWN: &str = "http://93.184.216.34/x";

/// A stage that asks, and the proxy above ours, which answers every request itself.
pub(crate) fn asking(net: &str) -> Option<(Stage, Origin)> {
    let above = Origin::start();
    let stage = asking_about_hosts(net, above.port)?;
    Some((stage, above))
}

/// Runs `code` at a terminal of its own, types `before` at once and `answer` at the question. All that was shown.
fn python_at_terminal(stage: &Stage, code: &str, before: &str, answer: &str) -> Option<String> {
    let python = interpreter()?;
    Some(at_terminal(stage, &[python.to_str().unwrap(), "-c", code, UNKNOWN], before, answer))
}

fn at_terminal(stage: &Stage, argv: &[&str], before: &str, answer: &str) -> String {
    let mut sitting = Sitting::start(stage, &[&["--"], argv].concat(), None);
    sitting.type_in(before);
    if !answer.is_empty() {
        sitting.wait_for(END);
        sitting.type_in(answer);
    }
    sitting.end().0
}

#[test]
fn who_says_yes_at_the_terminal_lets_the_host_through_and_is_written_down() {
    let Some((stage, above)) = asking("allow: []") else { return };
    let twice = format!("{FETCH}\nfor url in sys.argv[1:]: print(urllib.request.urlopen(url).status)");
    let Some(shown) = python_at_terminal(&stage, &twice, "", "yes\n") else { return };
    assert!(shown.contains("ringfence asks: reach 93.184.216.34:80?"), "{shown}");
    assert!(shown.contains("beware: an address without a name"), "{shown}");
    assert_eq!(shown.matches(QUESTION).count(), 1, "one question for both: {shown}");
    assert!(shown.contains("200 hello"), "{shown}");
    assert_eq!(above.asked(), ["GET http://93.184.216.34/x 0"; 2]);
    let ledger = std::fs::read_to_string(stage.ledger()).unwrap();
    let uid = rustix::process::getuid().as_raw();
    assert!(ledger.contains(&format!("net.unknown approved by uid {uid} at the terminal")), "{ledger}");
    assert!(ledger.contains(&format!("\"through\":\"http://127.0.0.1:{}\"", above.port)), "{ledger}");
}

#[test]
fn everything_but_yes_is_a_no_and_what_was_typed_before_is_no_answer() {
    let Some((stage, above)) = asking("allow: []") else { return };
    for (before, answer) in [("", "no\n"), ("", "\n"), ("", "y\n"), ("", "yess\n"), ("", "\u{4}"), ("yes\n", "\n")] {
        // The wait is for what is typed before.
        let code = format!("import time; time.sleep(1)\n{FETCH}");
        let Some(shown) = python_at_terminal(&stage, &code, before, answer) else { return };
        assert!(shown.contains("403 Ringfence denied"), "{before:?} {answer:?}: {shown}");
    }
    assert_eq!(above.asked(), Vec::<String>::new());
}

#[test]
fn without_a_terminal_it_is_a_denial_that_says_so() {
    let Some((stage, above)) = asking("allow: []") else { return };
    let Some(ended) = python(&stage, Wall::Native, FETCH, &[UNKNOWN]) else { return };
    let text = ended.text();
    assert!(text.starts_with("403 Ringfence denied") && text.contains("nobody is there to be asked"), "{text}");
    assert_eq!(above.asked(), Vec::<String>::new());
}

#[test]
fn nobody_is_asked_for_more_than_the_operator_permits() {
    let Some((stage, above)) = asking("allow: []") else { return };
    let floor = stage.write("floor.yaml", "version: 1\nnet: { allow: [a.test] }\n");
    let Some(python) = interpreter() else { return };
    let argv = [python.to_str().unwrap(), "-c", FETCH, UNKNOWN];
    let held = run(&stage, Wall::Native, &[], &argv).env("RINGFENCE_OPERATOR_POLICY", &floor).run();
    assert!(held.text().starts_with("403 ") && !held.text().contains("to be asked"), "{held:?}");
    assert_eq!(above.asked(), Vec::<String>::new(), "nor does anybody else choose the proxy then");
    let shown = stage.ringfence(["policy", "show", "--json"]).env("RINGFENCE_OPERATOR_POLICY", &floor).run().json();
    assert_eq!((&shown["net"]["unknown"], &shown["net"]["upstream"]), (&"deny".into(), &serde_json::Value::Null));
}

#[test]
fn what_a_run_was_denied_is_learned_and_then_goes_through_the_proxy_above() {
    let Some((stage, above)) = asking("allow: [other.test]") else { return };
    let Some(python) = interpreter() else { return };
    let argv = [python.to_str().unwrap(), "-c", FETCH, UNKNOWN, "http://webhook.site/x"];
    let outcome = run(&stage, Wall::Native, &["--json"], &argv).run().json();
    let run_id = outcome["runId"].as_str().unwrap_or_else(|| panic!("{outcome:#}"));
    let enforced = outcome["enforced"].as_array().unwrap();
    let evidence = enforced.iter().find(|one| one["guarantee"] == "net.allowlist").unwrap();
    assert!(evidence["evidence"].to_string().contains("which goes out through http://127.0.0.1:"), "{evidence}");
    let alone = stage.ringfence(["learn", run_id]).run().expect(1, &["webhook.site:80", "an address without a name"]);
    assert_eq!(alone.text(), "");
    let learned = stage.ringfence(["learn", "--include", "93.184.216.34", run_id]).run();
    let policy = stage.read("sandbox.policy.yaml").unwrap();
    let rules: String =
        learned.text().lines().filter(|line| line.starts_with("    - ")).map(|line| &line[6..]).collect();
    stage.write("sandbox.policy.yaml", policy.replace("[other.test]", &format!("[{rules}]")));
    let again = run(&stage, Wall::Native, &[], &argv).run();
    assert!(again.text().starts_with("200 hello\n403 "), "{again:?} {rules}");
    assert_eq!(above.asked(), ["GET http://93.184.216.34/x 0"]);
}

#[test]
fn the_password_for_the_proxy_above_is_the_hosts_and_not_seen_inside() {
    let Some((stage, above)) = asking("allow: [{ host: 93.184.216.34, ports: [80] }]") else { return };
    let Some(python) = interpreter() else { return };
    let code = format!("import os; print('UPSTREAM' in ' '.join(os.environ))\n{FETCH}");
    let argv = [python.to_str().unwrap(), "-c", &code, UNKNOWN];
    let ended = run(&stage, Wall::Native, &[], &argv).env("RINGFENCE_UPSTREAM_CREDENTIAL", "me:hunter2").run();
    assert_eq!(ended.text(), "False\n200 hello\n", "{ended:?}");
    assert_eq!(above.asked().len(), 1);
    let ledger = std::fs::read_to_string(stage.ledger()).unwrap();
    assert!(!ledger.contains("hunter2"));
    let bad = run(&stage, Wall::Native, &[], &argv).env("RINGFENCE_UPSTREAM_CREDENTIAL", "nonsense").run();
    bad.expect(125, &["NAME:PASSWORD"]);
}

#[test]
fn a_run_that_ends_while_a_question_stands_ends() {
    let Some((stage, above)) = asking("allow: []") else { return };
    stage.write(
        "sandbox.policy.yaml",
        "version: 1\nnet: { mode: allowlist, unknown: ask }\nproc: { timeout: 2s, grace: 100ms }\n",
    );
    let begin = std::time::Instant::now();
    // It writes more than waits in any pipe, so that somebody has to let go of the terminal.
    let code = format!(
        "import threading\nthreading.Thread(target=lambda: [print('x' * 1000) for _ in range(1000)]).start()\n{FETCH}"
    );
    let Some(shown) = python_at_terminal(&stage, &code, "", "") else { return };
    assert!(shown.contains(QUESTION), "{shown}");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_eq!(above.asked(), Vec::<String>::new());
}

#[test]
fn a_command_that_is_asked_about_runs_when_somebody_says_yes() {
    let rule = "commands: [{ ask: [echo], matches: [\"echo x\"] }]\n";
    let Some(stage) = walled_with(rule) else { return };
    let yes = at_terminal(&stage, &["echo", "it ran"], "", "yes\n");
    assert!(yes.contains("ringfence asks: echo it ran?") && yes.contains("\nit ran"), "{yes}");
    let no = at_terminal(&stage, &["echo", "it ran"], "", "no\n");
    assert!(no.contains("did not say yes") && !no.contains("\nit ran"), "{no}");
}

#[test]
fn each_command_that_is_asked_about_is_a_question_of_its_own() {
    let rules =
        "commands: [{ ask: [echo, one], matches: [\"echo one\"] }, { ask: [echo, two], matches: [\"echo two\"] }]\n";
    let Some(stage) = walled_with(rules) else { return };
    for (second, runs) in [("yes\n", true), ("no\n", false)] {
        let mut sitting = Sitting::start(&stage, &["--shell", "echo one && echo two --everything"], None);
        sitting.wait_for("ringfence asks: echo one?");
        sitting.wait_for(QUESTION_OF_A_RULE);
        sitting.type_in("yes\n");
        sitting.wait_for("ringfence asks: echo two --everything?");
        sitting.wait_for(&format!("(commands.ask echo two)\r\n  {QUESTION_OF_A_RULE}"));
        sitting.type_in(second);
        let (shown, _) = sitting.end();
        assert_eq!(shown.contains("\none\r\ntwo --everything"), runs, "{shown}");
    }
}

#[test]
fn always_is_for_every_command_of_that_rule_and_of_no_other() {
    let rules = "commands: [{ ask: [echo], matches: [\"echo x\"] }, { ask: [printf], matches: [\"printf x\"] }]\n";
    let Some(stage) = walled_with(rules) else { return };
    let mut sitting = Sitting::start(&stage, &["--shell", "echo one && echo two && printf three"], None);
    sitting.wait_for("ringfence asks: echo one?");
    sitting.wait_for(QUESTION_OF_A_RULE);
    sitting.type_in("always\n");
    sitting.wait_for("ringfence asks: printf three?");
    sitting.wait_for(QUESTION_OF_A_RULE);
    sitting.type_in("yes\n");
    let (shown, _) = sitting.end();
    assert!(shown.contains("\none\r\ntwo\r\nthree") && !shown.contains("asks: echo two?"), "{shown}");
}

#[test]
fn a_program_cannot_hide_the_question() {
    let Some((stage, above)) = asking("allow: []") else { return };
    let code = format!("print('continue? [yes/no] \\x1b[8m\\x1b[30;40m', end='', flush=True)\n{FETCH}");
    let Some(shown) = python_at_terminal(&stage, &code, "", "no\n") else { return };
    assert!(shown.contains("continue? [yes/no] \\x1b[8m\x1b[30;40m\x1b[0m\r\r\n"), "{shown:?}");
    let (before, question) = shown.split_once("ringfence asks: ").unwrap();
    assert!(before.contains("a question of ringfence, not of the program") && !before.contains("\x1b[8m"), "{shown:?}");
    assert!(question.starts_with("reach 93.184.216.34:80?"), "{shown:?}");
    assert_eq!(above.asked(), Vec::<String>::new());
}

#[test]
fn nobody_is_asked_while_the_output_goes_to_a_pipe_and_to_a_file_it_may() {
    let Some((stage, above)) = asking("allow: []") else { return };
    let Some(python) = interpreter() else { return };
    let argv = ["--", python.to_str().unwrap(), "-c", FETCH, UNKNOWN];
    let (mut from, to) = std::io::pipe().unwrap();
    let (shown, _) = Sitting::start(&stage, &argv, Some(to.into())).end();
    let mut written = String::new();
    from.read_to_string(&mut written).unwrap();
    assert!(written.contains("403 ") && written.contains("neither a terminal nor a file"), "{written} {shown}");
    assert!(!shown.contains("ringfence asks"), "{shown}");
    assert_eq!(above.asked(), Vec::<String>::new());
    let log = stage.path().join("log");
    let (_reads, json) = std::io::pipe().unwrap();
    let asks: [(&[&str], Stdio); 2] = [(&[], File::create(&log).unwrap().into()), (&["--json"], json.into())];
    for (flags, stdout) in asks {
        let mut sitting = Sitting::start(&stage, &[flags, &argv].concat(), Some(stdout));
        sitting.wait_for(QUESTION);
        sitting.type_in("yes\n");
        sitting.end();
    }
    assert_eq!(std::fs::read_to_string(log).unwrap(), "200 hello\n");
    assert_eq!(above.asked().len(), 2);
}

#[test]
fn a_signal_ends_a_run_whose_output_waits_for_a_question() {
    let Some((stage, above)) = asking("allow: []") else { return };
    let Some(python) = interpreter() else { return };
    // It writes once the question stands, in more pieces than wait anywhere, and itself waits longer than we do.
    let fetch = FETCH.replace("timeout=10", "timeout=100");
    let code = format!(
        "import threading, time\ndef write():\n    time.sleep(1)\n    for _ in range(200): print('x' * 100, flush=True); time.sleep(0.005)\n\
         threading.Thread(target=write).start()\n{fetch}"
    );
    for (signal, code_of) in [(rustix::process::Signal::TERM, 143), (rustix::process::Signal::HUP, 129)] {
        let sitting = Sitting::start(&stage, &["--", python.to_str().unwrap(), "-c", &code, UNKNOWN], None);
        sitting.wait_for(QUESTION);
        // Until it has written.
        std::thread::sleep(std::time::Duration::from_secs(3));
        let begin = std::time::Instant::now();
        rustix::process::kill_process(rustix::process::Pid::from_child(&sitting.child), signal).unwrap();
        let (shown, status) = sitting.end();
        assert_eq!(status.code(), Some(code_of), "{status:?} {}", shown.len());
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    }
    assert_eq!(above.asked(), Vec::<String>::new());
}
