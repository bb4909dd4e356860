//! Questions about what runs in a session, at the terminal of `session exec`.

use std::io::Read;

use crate::asking::{UNKNOWN, asking};
use crate::origin::FETCH;
use crate::probe::{interpreter, walled_with};
use crate::sessions::Session;
use crate::sitting::{END, QUESTION, QUESTION_OF_A_RULE, Sitting};
use crate::stage::{SOON, Stage};

/// `session exec FLAGS… work -- ARGV…` at a terminal.
fn sit(stage: &Stage, flags: &[&str], argv: &[&str]) -> Sitting {
    Sitting::command(stage, &[&["session", "exec"], flags, &["work", "--"], argv].concat(), None)
}

/// Likewise; `answer` is typed at the question, if it is any. All that was shown.
fn at_terminal(stage: &Stage, argv: &[&str], answer: &str) -> String {
    let mut sitting = sit(stage, &[], argv);
    if !answer.is_empty() {
        sitting.wait_for(END);
        sitting.type_in(answer);
    }
    sitting.end().0
}

#[test]
fn who_says_yes_at_the_terminal_of_an_exec_lets_the_host_through_for_the_session_and_is_written_down() {
    let Some((stage, above)) = asking("allow: []") else { return };
    let Some(python) = interpreter() else { return };
    let session = Session::start(&stage, "work", &[]);
    let fetch = [python.to_str().unwrap(), "-c", FETCH, UNKNOWN];
    // Nobody is there, which is no answer: whoever comes is asked.
    let nobody = session.exec(&[], &fetch).run();
    assert!(nobody.text().contains("403 ") && nobody.text().contains("nobody is there to be asked"), "{nobody:?}");
    assert_eq!(above.asked(), Vec::<String>::new());
    let shown = at_terminal(&stage, &fetch, "yes\n");
    assert!(shown.contains("ringfence asks: reach 93.184.216.34:80?"), "{shown}");
    assert!(shown.contains("a question of ringfence, not of the program"), "{shown}");
    assert!(shown.contains("200 hello"), "{shown}");
    // Each later run of the session has the answer.
    let again = session.exec(&[], &fetch).run();
    assert!(again.text().starts_with("200 hello"), "{again:?}");
    assert_eq!(above.asked(), ["GET http://93.184.216.34/x 0"; 2]);
    let ledger = std::fs::read_to_string(stage.ledger()).unwrap();
    let uid = rustix::process::getuid().as_raw();
    assert!(ledger.contains(&format!("net.unknown approved by uid {uid} at the terminal")), "{ledger}");
}

#[test]
fn everything_but_yes_at_the_terminal_of_an_exec_is_a_no_that_holds() {
    let Some((stage, above)) = asking("allow: []") else { return };
    let Some(python) = interpreter() else { return };
    let fetch = [python.to_str().unwrap(), "-c", FETCH, UNKNOWN];
    for answer in ["no\n", "y\n", "\u{4}"] {
        let _session = Session::start(&stage, "work", &[]);
        let shown = at_terminal(&stage, &fetch, answer);
        assert!(shown.contains("403 Ringfence denied"), "{answer:?}: {shown}");
        let again = at_terminal(&stage, &fetch, "");
        assert!(again.contains("403 ") && !again.contains("ringfence asks"), "a no is not asked again: {again}");
    }
    assert_eq!(above.asked(), Vec::<String>::new());
}

#[test]
fn a_command_that_is_asked_about_is_asked_at_the_terminal_of_its_own_exec() {
    let rules = "commands: [{ ask: [echo], matches: [\"echo x\"] }, { ask: [printf], matches: [\"printf x\"] }]\n";
    let Some(stage) = walled_with(rules) else { return };
    let session = Session::start(&stage, "work", &[]);
    let yes = at_terminal(&stage, &["echo", "it ran"], "yes\n");
    assert!(yes.contains("ringfence asks: echo it ran?") && yes.contains("\nit ran"), "{yes}");
    let no = at_terminal(&stage, &["echo", "it ran"], "no\n");
    assert!(no.contains("did not say yes") && !no.contains("\nit ran"), "{no}");
    // Somebody sits at another terminal of the session, and is not asked about what others run.
    let mut other = sit(&stage, &[], &["sh", "-c", "read x < /dev/null; sleep 2; true"]);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let alone = session.exec(&[], &["echo", "it ran"]).run();
    assert!(alone.stderr.contains("nobody is there to be asked") && !alone.text().contains("it ran"), "{alone:?}");
    other.type_in("yes\n");
    let (shown, _) = other.end();
    assert!(!shown.contains("ringfence asks"), "{shown}");
    // "Always" is for the rule, as long as the session.
    let mut always = sit(&stage, &[], &["printf", "one"]);
    always.wait_for(QUESTION_OF_A_RULE);
    always.type_in("always\n");
    assert!(always.end().0.contains("one"));
    assert_eq!(session.exec(&[], &["printf", "two"]).run().text(), "two");
    let ledger = std::fs::read_to_string(stage.ledger()).unwrap();
    assert_eq!(ledger.matches("\"standing\":true").count(), 1, "{ledger}");
}

#[test]
fn a_program_of_a_session_cannot_write_below_a_question_or_hide_it() {
    let Some((stage, above)) = asking("allow: []") else { return };
    let Some(python) = interpreter() else { return };
    let _session = Session::start(&stage, "work", &[]);
    // It writes a question of its own once ours stands, in colours that nobody could read.
    let fake =
        "\\x1b[8m======== a question of ringfence, not of the program ========\\nringfence asks: reach good.test:443?";
    let code = format!(
        "import threading, time\ndef write():\n    time.sleep(1)\n    print(\"{fake}\", flush=True)\n\
         threading.Thread(target=write).start()\nprint('continue? \\x1b[30;40m', end='', flush=True)\n{FETCH}"
    );
    let mut sitting = sit(&stage, &[], &[python.to_str().unwrap(), "-c", &code, UNKNOWN]);
    sitting.wait_for(QUESTION);
    std::thread::sleep(std::time::Duration::from_secs(2));
    sitting.type_in("no\n");
    let (shown, _) = sitting.end();
    let (before, after) = shown.split_once(QUESTION).unwrap();
    assert!(before.contains("\x1b[0m\r") && before.contains("ringfence asks: reach 93.184.216.34:80?"), "{shown:?}");
    assert!(!before.contains("good.test") && after.contains("good.test"), "it was held back: {shown:?}");
    assert!(after.starts_with("no\r\n") && after.contains("\\x1b[8m"), "{shown:?}");
    assert_eq!(above.asked(), Vec::<String>::new());
}

#[test]
fn whoever_gave_the_terminal_or_the_input_away_is_not_asked() {
    let Some((stage, above)) = asking("allow: []") else { return };
    let Some(python) = interpreter() else { return };
    let _session = Session::start(&stage, "work", &[]);
    let fetch = [python.to_str().unwrap(), "-c", FETCH, UNKNOWN];
    for flag in ["-t", "-i"] {
        let (shown, _) = sit(&stage, &[flag], &fetch).end();
        assert!(shown.contains("403 ") && !shown.contains("ringfence asks"), "{flag}: {shown}");
    }
    let (mut from, to) = std::io::pipe().unwrap();
    let arguments = [&["session", "exec", "work", "--"], &fetch[..]].concat();
    let (shown, _) = Sitting::command(&stage, &arguments, Some(to.into())).end();
    let mut written = String::new();
    from.read_to_string(&mut written).unwrap();
    assert!(written.contains("403 ") && written.contains("neither a terminal nor a file"), "{written} {shown}");
    assert_eq!(above.asked(), Vec::<String>::new());
    // The twin: at a terminal of its own, somebody is.
    assert!(at_terminal(&stage, &fetch, "yes\n").contains("200 hello"));
}

#[test]
fn a_run_of_a_session_that_ends_while_a_question_stands_ends_and_so_does_one_that_is_stopped() {
    let Some((stage, above)) = asking("allow: []") else { return };
    let Some(python) = interpreter() else { return };
    let _session = Session::start(&stage, "work", &[]);
    // It writes more than waits in any pipe.
    let code = format!(
        "import threading\nthreading.Thread(target=lambda: [print('x' * 1000) for _ in range(1000)]).start()\n{FETCH}"
    );
    let begin = std::time::Instant::now();
    let argv = [python.to_str().unwrap(), "-c", &code, UNKNOWN];
    let sitting = sit(&stage, &["--timeout", "2s"], &argv);
    sitting.wait_for(QUESTION);
    let (shown, status) = sitting.end();
    assert_eq!(status.code(), Some(124), "{shown}");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    let other = UNKNOWN.replace("93.184.216.34", "93.184.216.35");
    let sitting =
        sit(&stage, &[], &[python.to_str().unwrap(), "-c", &code.replace("timeout=10", "timeout=100"), &other]);
    sitting.wait_for(QUESTION);
    let begin = std::time::Instant::now();
    rustix::process::kill_process(rustix::process::Pid::from_child(&sitting.child), rustix::process::Signal::TERM)
        .unwrap();
    let (shown, status) = sitting.end();
    assert_eq!(status.code(), Some(143), "{shown}");
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    assert_eq!(above.asked(), Vec::<String>::new());
}
