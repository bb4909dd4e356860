//! Checkpoints of a session: the workspace as it was, and attacks on going back to it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::Duration;

use ringfence_testkit::canary::{FileCanary, is_alive, secret, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::probe::{interpreter, outside, text, walled, walled_with};
use crate::sessions::Session;
use crate::stage::{Ended, SOON, Stage};

/// `ringfence checkpoint VERB work ARGS…`
fn checkpoint(stage: &Stage, verb: &str, args: &[&str]) -> Ended {
    stage.ringfence([&["checkpoint", verb, "work"], args].concat()).run()
}

/// Everything that a program sees in the workspace: types, permissions, targets and contents.
fn seen(session: &Session<'_>) -> String {
    let script = "cd /workspace; find . -mindepth 1 -printf '%p %y %m %l\\n' | sort; \
                  find . -type f -exec sha256sum {} + | sort";
    session.sh(script).expect(0, &[]).text()
}

#[test]
fn a_workspace_becomes_what_it_was_whatever_programs_did_to_it() {
    let Some(stage) = walled() else { return };
    for name in ["changed", "removed", "mode", "kind", "tree/deep/leaf", "tree/other", "untouched"] {
        stage.write(name, format!("{name} of the host\n"));
    }
    symlink("changed", stage.work().join("link")).unwrap();
    std::thread::sleep(Duration::from_millis(30));
    let session = Session::start(&stage, "work", &[]);
    let canary = FileCanary::set(stage.work()).unwrap();
    let at_first = seen(&session);
    session
        .sh("umask 022; echo one >> changed; rm removed; chmod 750 mode; rm -r tree; echo new > new; ln -sf new link; \
             rm kind; mkdir kind; echo inner > kind/inner; mkfifo -m 600 pipe; mkdir -p shut/in; echo x > shut/in/x; chmod 500 shut")
        .expect(0, &[]);
    let at_one = seen(&session);
    let one = checkpoint(&stage, "create", &["--name", "first"]).expect(0, &[]);
    assert_eq!(one.text(), "1\n");
    session
        .sh("chmod 700 shut; rm -r shut kind pipe new; echo two > changed; echo back > removed; chmod 600 mode; mkdir tree; \
             echo mine > tree/other; ln -sf elsewhere link; echo newer > newer; mkdir -p a/b/c; echo c > a/b/c/c; rm untouched; \
             mkdir untouched new; echo in > new/in")
        .expect(0, &[]);
    let at_two = seen(&session);
    let ended = checkpoint(&stage, "restore", &["first"]).expect(0, &["as in checkpoint 1", "is checkpoint 2"]);
    assert_eq!((seen(&session), ended.text()), (at_one.clone(), String::new()));
    checkpoint(&stage, "restore", &["1"]).expect(0, &["already"]);
    // What was there before was remembered, and the host's own state is 0.
    checkpoint(&stage, "restore", &["2"]).expect(0, &["is checkpoint 3"]);
    assert_eq!(seen(&session), at_two);
    checkpoint(&stage, "restore", &["0"]).expect(0, &["as the host has it"]);
    assert_eq!(seen(&session), at_first);
    let ended = checkpoint(&stage, "restore", &["1", "--json"]).expect(0, &[]).json();
    assert_eq!((&ended["number"], &ended["before"]["number"]), (&1.into(), &5.into()));
    assert_eq!(seen(&session), at_one);
    // Programs go on to work in it, and what differs from the host is what is kept at the end.
    checkpoint(&stage, "restore", &["0"]).expect(0, &[]);
    session.sh("rm tree/deep/leaf; echo more >> changed; cat tree/other").expect(0, &[]);
    assert_eq!(canary.change().unwrap(), None, "the host's files");
    stage.ringfence(["session", "stop", "work"]).run().expect(0, &["2 changes (1 changed, 1 removed)"]);
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
}

#[test]
fn states_are_compared_with_each_other_the_host_and_the_present() {
    let Some(stage) = walled() else { return };
    stage.write("a.txt", "one\ntwo\n");
    stage.write("b.txt", "kept\n");
    std::thread::sleep(Duration::from_millis(30));
    let session = Session::start(&stage, "work", &[]);
    session.sh("echo three >> a.txt; echo first > new.txt").expect(0, &[]);
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    assert_eq!(checkpoint(&stage, "diff", &["--name-only"]).expect(0, &[]).text(), "");
    session.sh("sed -i s/three/drei/ a.txt; rm b.txt").expect(0, &[]);
    checkpoint(&stage, "create", &["--name", "two"]).expect(0, &[]);
    session.sh("rm new.txt").expect(0, &[]);
    let check = |states: &[&str], expected: &str| {
        let flags = [states, &["--name-only"]].concat();
        assert_eq!(checkpoint(&stage, "diff", &flags).expect(0, &[]).text(), expected, "{states:?}");
    };
    check(&["1", "two"], "a.txt\nb.txt\n");
    check(&["two", "1"], "a.txt\nb.txt\n");
    check(&["0", "1"], "a.txt\nnew.txt\n");
    check(&["1", "0"], "a.txt\nnew.txt\n");
    check(&["1"], "a.txt\nb.txt\nnew.txt\n");
    check(&[], "new.txt\n");
    check(&["two", "2"], "");
    check(&["now", "0"], "a.txt\nb.txt\n");
    let page = checkpoint(&stage, "diff", &["1", "two"]).expect(0, &[]).text();
    assert!(page.contains("-three") && page.contains("+drei") && page.contains("-kept"), "{page}");
    let page = checkpoint(&stage, "diff", &["two", "0"]).expect(0, &[]).text();
    assert!(page.contains("-drei") && page.contains("+kept") && page.contains("-first"), "{page}");
    let only = checkpoint(&stage, "diff", &["1", "two", "--path", "b.txt", "--name-only"]).expect(0, &[]).text();
    assert_eq!(only, "b.txt\n");
    assert!(checkpoint(&stage, "diff", &["1", "--json", "--stat"]).expect(0, &[]).json().is_object());
    checkpoint(&stage, "diff", &["7"]).expect(2, &["no checkpoint `7`", "checkpoint list"]);
    checkpoint(&stage, "restore", &["now"]).expect(2, &["no checkpoint `now`"]);
}

#[test]
fn a_checkpoint_lists_the_runs_since_the_one_before_and_the_ledger_has_it() {
    let Some(stage) = walled() else { return };
    let session = Session::start(&stage, "work", &[]);
    checkpoint(&stage, "list", &[]).expect(0, &["no checkpoint yet"]);
    session.sh("echo one > file").expect(0, &[]);
    session.sh("exit 3").expect(3, &[]);
    checkpoint(&stage, "create", &["--name", "after two runs"]).expect(0, &[]);
    session.exec(&[], &["touch", "third"]).run().expect(0, &[]);
    let made = checkpoint(&stage, "create", &["--json"]).expect(0, &[]).json();
    assert_eq!((&made["number"], &made["name"], &made["whileProgramsRan"]), (&2.into(), &().into(), &false.into()));
    let list = checkpoint(&stage, "list", &[]).expect(0, &[]).text();
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 5, "{list}");
    assert!(lines[0].starts_with("1 ") && lines[0].ends_with("after two runs"), "{list}");
    assert!(lines[1].contains("exit 0") && lines[1].contains("echo one > file"), "{list}");
    assert!(lines[2].contains("exit 3") && lines[4].contains("touch third"), "{list}");
    let all = checkpoint(&stage, "list", &["--json"]).expect(0, &[]).json();
    assert_eq!(all[0]["changes"], serde_json::json!({ "added": 1, "changed": 0, "removed": 0 }));
    assert_eq!((&all[0]["runs"][1]["exitCode"], &all[1]["runs"].as_array().unwrap().len()), (&3.into(), &1));
    checkpoint(&stage, "create", &["--name", "after two runs"]).expect(2, &["checkpoint 1 has this name"]);
    for bad in ["7", "now", "a\nb"] {
        checkpoint(&stage, "create", &["--name", bad]).expect(2, &["write a word"]);
    }
    checkpoint(&stage, "restore", &["1"]).expect(0, &[]);
    let log = fs::read_to_string(stage.ledger()).unwrap();
    assert_eq!(log.matches("\"kind\":\"checkpointed\"").count(), 3, "{log}");
    assert_eq!(log.matches("\"kind\":\"restored\"").count(), 1, "{log}");
    let run = all[1]["runs"][0]["run"].as_str().unwrap();
    assert!(log.lines().any(|line| line.contains("\"checkpointed\"") && line.contains(run)), "{log}");
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
}

#[test]
fn a_restore_is_refused_while_programs_run_and_says_which() {
    let Some(stage) = walled() else { return };
    let session = Session::start(&stage, "work", &[]);
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    session.sh("echo x > file").expect(0, &[]);
    let script = "touch /tmp/ready; exec sleep 100";
    let run = session.exec(&["--background"], &["sh", "-c", script]).run().expect(0, &[]).text().trim().to_owned();
    session.sh("while [ ! -e /tmp/ready ]; do sleep 0.05; done").expect(0, &[]);
    checkpoint(&stage, "restore", &["1"]).expect(2, &["nothing was restored", &run, "exec sleep 100", "session wait"]);
    // It can be remembered all the same, with a word about it.
    checkpoint(&stage, "create", &[]).expect(0, &["programs ran meanwhile"]);
    checkpoint(&stage, "restore", &["1", "--kill"]).expect(2, &["nothing was restored", &run]);
    stage.ringfence(["session", "signal", "work", &run, "KILL"]).run().expect(0, &[]);
    stage.ringfence(["session", "wait", "work", &run]).run().expect(137, &[]);
    session.sh("setsid sleep 100 > /dev/null 2>&1 &").expect(0, &[]);
    checkpoint(&stage, "restore", &["1"]).expect(2, &["a process that an earlier run left behind", "restore --kill"]);
    session.sh("test -e file").expect(0, &[]);
    checkpoint(&stage, "restore", &["--kill", "1"]).expect(0, &[]);
    session.sh("test ! -e file").expect(0, &[]);
}

#[test]
fn f02_a_restore_writes_and_removes_nothing_through_links_of_a_program() {
    let Some(stage) = walled() else { return };
    let outside = outside(&stage);
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o777)).unwrap();
    fs::write(outside.join("kept"), "kept\n").unwrap();
    stage.write("folder/kept", "of the workspace\n");
    let session = Session::start(&stage, "work", &[]);
    session.sh("mkdir made; echo mine > made/new; echo mine > folder/new").expect(0, &[]);
    let at_one = seen(&session);
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    let canary = FileCanary::set(&outside).unwrap();
    let host = FileCanary::set(stage.work()).unwrap();
    let to = text(&outside);
    session
        .sh(&format!("rm -r made folder; ln -s '{to}' made; ln -s '{to}' folder; ln -s '{to}/made' added"))
        .expect(0, &[]);
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    checkpoint(&stage, "restore", &["1"]).expect(0, &[]);
    assert_eq!(seen(&session), at_one);
    checkpoint(&stage, "restore", &["2"]).expect(0, &[]);
    checkpoint(&stage, "restore", &["0"]).expect(0, &[]);
    assert_eq!((canary.change().unwrap(), host.change().unwrap()), (None, None));
    // The twin: whoever follows such a link reaches the folder.
    symlink(&outside, stage.path().join("made")).unwrap();
    fs::write(stage.path().join("made/new"), "x").unwrap();
    assert!(canary.change().unwrap().is_some());
}

#[test]
fn s01_a_restore_brings_no_denied_file_of_the_host_to_programs() {
    let Some(stage) = walled_with("fs: { deny: ['**/.env', 'vault/**'] }\n") else { return };
    let secret = secret().unwrap();
    for name in [".env", "vault/key", "sub/.env"] {
        stage.write(name, &secret);
    }
    stage.write("sub/plain", "plain\n");
    std::thread::sleep(Duration::from_millis(30));
    let session = Session::start(&stage, "work", &[]);
    let at_first = seen(&session);
    session
        .sh("echo mine > .env; mkdir vault; echo mine > vault/key; rm -r sub; mkdir sub; echo mine > sub/.env")
        .expect(0, &[]);
    let at_one = seen(&session);
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    checkpoint(&stage, "restore", &["0"]).expect(0, &[]);
    assert_eq!(seen(&session), at_first);
    let found = session.sh("cat .env vault/key sub/.env; cat sub/plain; grep -r . .").text();
    assert!(!found.contains(&secret), "{found}");
    assert!(found.contains("plain"), "the twin: what is not denied came back\n{found}");
    for states in [["0", "1"], ["1", "0"]] {
        let shown = checkpoint(&stage, "diff", &states).expect(0, &[]).text();
        assert!(!shown.contains(&secret), "{shown}");
    }
    checkpoint(&stage, "restore", &["1"]).expect(0, &[]);
    assert_eq!(seen(&session), at_one);
    assert!(session.sh("cat .env vault/key sub/.env").text().contains("mine"));
}

#[test]
fn what_the_wall_puts_into_a_workspace_stays_where_it_is() {
    let Some(stage) = walled() else { return };
    fs::write(outside(&stage).join("shown"), "shown\n").unwrap();
    let mounts = format!("[{{ host: {}, at: /workspace/vendor/deps }}]", text(&outside(&stage)));
    stage.write("sandbox.policy.yaml", format!("version: 1\nfs: {{ mounts: {mounts} }}\n"));
    let session = Session::start(&stage, "work", &[]);
    let at_first = seen(&session);
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    session.sh("echo mine > vendor/mine; echo x > y").expect(0, &[]);
    let at_two = seen(&session);
    assert!(at_first.contains("./vendor/deps/shown") && at_two.contains("./vendor/mine"), "{at_two}");
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    let names = checkpoint(&stage, "diff", &["1", "2", "--name-only"]).expect(0, &[]).text();
    assert_eq!(names, "vendor/mine\ny\n");
    for (number, expected) in [("1", &at_first), ("2", &at_two), ("0", &at_first)] {
        checkpoint(&stage, "restore", &[number]).expect(0, &[]);
        assert_eq!(&seen(&session), expected);
    }
}

#[test]
fn f22_odd_names_come_back_as_they_were_and_a_terminal_is_not_told_to_obey_them() {
    let Some(stage) = walled() else { return };
    let session = Session::start(&stage, "work", &[]);
    let script = "printf 'a\\nb' > \"$(printf 'new\\nline')\"; echo x > \"$(printf '\\033[2Jx')\"; echo y > \"$(printf '\\377\\376')\"; \
                  echo z > ' -rf *'; mkdir \"$(printf 'f\\ng')\"; echo i > \"$(printf 'f\\ng')/.\u{202e}gnp\"; ln -s \"$(printf 'x\\ny')\" l";
    session.sh(script).expect(0, &[]);
    let at_one = session.sh("find . -print0 | sort -z | od -c").text();
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    session.sh("rm -rf ./* ./.?*; echo more > more").expect(0, &[]);
    let listed = checkpoint(&stage, "diff", &["--name-only"]).expect(0, &[]).text();
    assert!(!listed.contains('\u{1b}') && !listed.contains('\u{202e}'), "{listed:?}");
    checkpoint(&stage, "restore", &["1"]).expect(0, &[]);
    assert_eq!(session.sh("find . -print0 | sort -z | od -c").text(), at_one);
}

#[test]
fn a_file_that_is_written_through_a_mapping_is_not_taken_for_unchanged() {
    let Some(stage) = walled() else { return };
    let Some(python) = interpreter() else { return };
    let session = Session::start(&stage, "work", &[]);
    session.sh("head -c 8192 /dev/zero > mapped").expect(0, &[]);
    std::thread::sleep(Duration::from_millis(30));
    let code = "import mmap, os, time\nf = open('mapped', 'r+b')\nm = mmap.mmap(f.fileno(), 8192)\nm[0] = 1\n\
                open('/tmp/ready', 'w').close()\nwhile not os.path.exists('/tmp/go'): time.sleep(0.02)\nm[1] = 2\n\
                open('/tmp/done', 'w').close()\ntime.sleep(100)\n";
    session.exec(&["--background"], &[text(&python), "-c", code]).run().expect(0, &[]);
    session.sh("while [ ! -e /tmp/ready ]; do sleep 0.05; done").expect(0, &[]);
    std::thread::sleep(Duration::from_millis(30));
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    session.sh("touch /tmp/go; while [ ! -e /tmp/done ]; do sleep 0.05; done").expect(0, &[]);
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    assert_eq!(checkpoint(&stage, "diff", &["1", "2", "--name-only"]).expect(0, &[]).text(), "mapped\n");
}

/// The folders of contents that checkpoints of this stage have, and how many contents are in them.
fn contents(stage: &Stage) -> Vec<usize> {
    let Ok(entries) = fs::read_dir(stage.state().join("scratch")) else { return Vec::new() };
    let folders = entries.flatten().map(|entry| entry.path().join("objects"));
    folders.filter(|folder| folder.is_dir()).map(|folder| fs::read_dir(folder).unwrap().count()).collect()
}

#[test]
fn checkpoints_share_contents_are_dropped_with_what_only_they_held_and_end_with_their_session() {
    let Some(stage) = walled() else { return };
    let session = Session::start(&stage, "work", &[]);
    session.sh("echo shared > shared; echo one > only").expect(0, &[]);
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    session.sh("echo two > only").expect(0, &[]);
    checkpoint(&stage, "create", &["--name", "second"]).expect(0, &[]);
    assert_eq!(contents(&stage), [3]);
    checkpoint(&stage, "drop", &["9"]).expect(2, &["no checkpoint `9`"]);
    checkpoint(&stage, "drop", &["0"]).expect(2, &["no checkpoint `0`"]);
    checkpoint(&stage, "drop", &["1"]).expect(0, &["1 checkpoint dropped"]);
    assert_eq!(contents(&stage), [2]);
    checkpoint(&stage, "restore", &["1"]).expect(2, &["no checkpoint `1`"]);
    session.sh("rm shared only").expect(0, &[]);
    checkpoint(&stage, "restore", &["second"]).expect(0, &["is checkpoint 3"]);
    assert_eq!(session.sh("cat shared only").text(), "shared\ntwo\n");
    checkpoint(&stage, "drop", &["--all"]).expect(0, &["2 checkpoints dropped"]);
    assert_eq!(contents(&stage), [0]);
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    session.sh("rm shared").expect(0, &[]);
    checkpoint(&stage, "restore", &["4"]).expect(0, &[]);
    assert_eq!(session.sh("cat shared").text(), "shared\n");
    stage.ringfence(["session", "stop", "work"]).run().expect(0, &[]);
    assert!(until(SOON, || contents(&stage).is_empty()));
    checkpoint(&stage, "list", &[]).expect(2, &["no session named"]);
}

#[test]
fn r11_checkpoints_of_a_keeper_that_is_killed_are_removed_by_the_next_start() {
    let Some(stage) = walled() else { return };
    let session = Session::start(&stage, "work", &[]);
    session.sh("echo x > file").expect(0, &[]);
    checkpoint(&stage, "create", &[]).expect(0, &[]);
    assert_eq!(contents(&stage), [1]);
    kill_process(Pid::from_raw(session.keeper().cast_signed()).unwrap(), Signal::KILL).unwrap();
    assert!(until(SOON, || !is_alive(session.keeper())));
    let again = Session::start(&stage, "other", &[]);
    assert_eq!(contents(&stage), [0usize; 0]);
    again.sh("true").expect(0, &[]);
}

#[test]
fn a_session_without_a_private_layer_has_no_checkpoints_and_says_what_to_do() {
    let Some(stage) = walled() else { return };
    let _session = Session::start(&stage, "work", &["--mode", "ephemeral"]);
    for (verb, args) in [("create", &[][..]), ("restore", &["0"]), ("diff", &["0"])] {
        checkpoint(&stage, verb, args).expect(2, &["no private layer", "mode: review"]);
    }
}
