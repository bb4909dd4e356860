//! Sessions: a wall that is kept, the programs behind it, and attacks by one of them on what keeps them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use ringfence_testkit::canary::{is_alive, secret, until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::probe::{interpreter, walled, walled_with};
use crate::stage::{Ended, Invocation, SOON, Stage};
use crate::talked_to;

/// A session of a stage, stopped when dropped.
pub(crate) struct Session<'a> {
    stage: &'a Stage,
    name: &'static str,
    info: Value,
}

impl<'a> Session<'a> {
    pub(crate) fn start(stage: &'a Stage, name: &'static str, flags: &[&str]) -> Self {
        let info = stage.ringfence([&["session", "start", "--json", name], flags].concat()).run().expect(0, &[]).json();
        Self { stage, name, info }
    }

    pub(crate) fn exec(&self, flags: &[&str], argv: &[&str]) -> Invocation<'a> {
        self.stage.ringfence([&["session", "exec"], flags, &[self.name, "--"], argv].concat())
    }

    pub(crate) fn sh(&self, script: &str) -> Ended {
        self.exec(&[], &["sh", "-c", script]).run()
    }

    pub(crate) fn keeper(&self) -> u32 {
        u32::try_from(self.info["pid"].as_u64().unwrap()).unwrap()
    }

    fn is_listed(&self) -> bool {
        let all = self.stage.ringfence(["session", "list", "--json"]).run().expect(0, &[]).json();
        all.as_array().unwrap().iter().any(|one| one["name"] == self.name)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.stage.ringfence(["session", "stop", self.name]).run();
        // Also one that ended by itself writes its end down before it goes.
        until(SOON, || !is_alive(self.keeper()));
    }
}

/// Programs of the host that sleep for `seconds`, which nobody else does.
fn sleepers(seconds: &str) -> usize {
    let line = format!("sleep\0{seconds}\0");
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|found| found == line.as_bytes())).count()
}

#[test]
fn a_session_keeps_files_and_programs_from_run_to_run_and_nothing_afterwards() {
    let Some(stage) = walled() else { return };
    stage.write("there.txt", "as it was\n");
    let session = Session::start(&stage, "work", &[]);
    let mark = format!("63{}", std::process::id());
    session.sh("echo one > /tmp/kept; echo changed > there.txt; echo new > new.txt").expect(0, &[]);
    session.sh(&format!("sleep {mark} > /dev/null 2>&1 &")).expect(0, &[]);
    let ended = session.sh("cat /tmp/kept there.txt new.txt; pwd; exit 3");
    assert_eq!((ended.code, &*ended.text()), (3, "one\nchanged\nnew\n/workspace\n"), "{ended:?}");
    assert!(until(SOON, || sleepers(&mark) == 1), "a program in the background goes on");
    assert_eq!((stage.read("there.txt").as_deref(), stage.read("new.txt")), (Some("as it was\n"), None));
    assert!(session.is_listed());
    let ended = stage.ringfence(["session", "stop", "work"]).run().expect(0, &["2 changes (1 added, 1 changed)"]);
    assert_eq!(ended.text(), "");
    assert!(until(SOON, || sleepers(&mark) == 0), "the session's programs end with it");
    assert!(!session.is_listed());
    stage.ringfence(["session", "exec", "work", "--", "true"]).run().expect(2, &["no session named", "session list"]);
    assert_eq!(fs::read_dir(stage.state().join("sessions")).unwrap().count(), 0);
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
    let again = Session::start(&stage, "work", &[]);
    again.sh("test ! -e /tmp/kept && test ! -e new.txt").expect(0, &[]);
}

#[test]
fn a_run_in_a_session_has_input_code_results_and_an_outcome_as_any_other() {
    let Some(stage) = walled() else { return };
    let session = Session::start(&stage, "work", &[]);
    talked_to::a_run_has_input_and_a_code(&|args| stage.ringfence(args));
    let outcome = session.exec(&["--json"], &["true"]).run().json();
    assert_eq!(outcome["backend"], "native");
    for (name, when) in [("net.none", ", when the session was opened"), ("env.clean", "the listed strings alone")] {
        let seen = outcome["enforced"].as_array().unwrap().iter().find(|one| one["guarantee"] == name).unwrap();
        let evidence = seen["evidence"].as_str().unwrap();
        assert!(evidence.contains("seen inside") && evidence.ends_with(when), "{seen}");
    }
    if interpreter().is_some() {
        let flags = ["session", "exec", "work", "--lang", "python", "--code", "print(1)\nraise ValueError('x')"];
        let ended = stage.ringfence(flags).run();
        assert_eq!((ended.code, &*ended.text()), (1, "1\n"), "{ended:?}");
        assert!(ended.stderr.contains("main.py\", line 2"), "{ended:?}");
        session.sh("test -z \"$(ls /run/code)\"").expect(0, &[]);
    }
}

#[test]
fn runs_in_the_background_are_waited_for_and_signalled_by_their_id() {
    let Some(stage) = walled() else { return };
    let _session = Session::start(&stage, "work", &[]);
    talked_to::runs_in_the_background_are_waited_for_and_signalled(&|args| stage.ringfence(args));
}

#[test]
fn r09_a_time_limit_ends_a_run_and_leaves_its_session() {
    let Some(stage) = walled() else { return };
    let session = Session::start(&stage, "work", &[]);
    let mark = format!("64{}", std::process::id());
    let begin = Instant::now();
    let script = format!("trap '' TERM; (trap '' TERM; sleep {mark}) & sleep {mark}");
    session.exec(&["--timeout", "300ms"], &["sh", "-c", &script]).run().expect(124, &["time.limit"]);
    assert!(begin.elapsed() < SOON);
    assert!(until(SOON, || sleepers(&mark) == 0), "what the run started is still there");
    assert_eq!(session.sh("echo goes on").expect(0, &[]).text(), "goes on\n");
    // More than the policy's most is refused, in a session as elsewhere.
    session.exec(&["--timeout", "2h"], &["true"]).run().expect(126, &["more than the policy allows"]);
}

#[test]
fn a_command_that_is_killed_takes_its_run_with_it_and_not_its_session() {
    let Some(stage) = walled() else { return };
    let session = Session::start(&stage, "work", &[]);
    let mark = format!("65{}", std::process::id());
    for signal in [Signal::KILL, Signal::INT] {
        let mut child = session.exec(&[], &["sleep", &mark]).start();
        assert!(until(SOON, || sleepers(&mark) == 1));
        kill_process(Pid::from_child(&child), signal).unwrap();
        child.wait().unwrap();
        assert!(until(SOON, || sleepers(&mark) == 0), "the run outlived its command");
    }
    session.sh("true").expect(0, &[]);
}

#[test]
fn r11_a_session_whose_keeper_is_killed_leaves_nothing_and_its_name_is_free() {
    let Some(stage) = walled() else { return };
    let session = Session::start(&stage, "work", &[]);
    let mark = format!("66{}", std::process::id());
    session.sh(&format!("(setsid sleep {mark} > /dev/null 2>&1 &)")).expect(0, &[]);
    assert!(until(SOON, || sleepers(&mark) == 1));
    let keeper = Pid::from_raw(session.keeper().cast_signed()).unwrap();
    kill_process(keeper, Signal::KILL).unwrap();
    assert!(until(SOON, || sleepers(&mark) == 0), "programs outlived the keeper of their session");
    assert!(until(SOON, || !is_alive(session.keeper())));
    stage.ringfence(["session", "exec", "work", "--", "true"]).run().expect(2, &["no session named"]);
    assert!(!session.is_listed());
    assert_eq!(fs::read_dir(stage.state().join("sessions")).unwrap().count(), 0);
    let again = Session::start(&stage, "work", &[]);
    again.sh("true").expect(0, &[]);
}

#[test]
fn a_session_ends_when_it_is_idle_or_old_and_not_before() {
    let Some(stage) = walled() else { return };
    talked_to::sessions_end_when_they_are_idle_or_old(&|args| stage.ringfence(args), &stage.ledger());
}

#[test]
fn a_name_belongs_to_one_session_and_to_one_user() {
    let Some(stage) = walled() else { return };
    let _session = Session::start(&stage, "work", &[]);
    stage.ringfence(["session", "start", "work"]).run().expect(2, &["is open already", "session stop work"]);
    stage.ringfence(["session", "start", "../x"]).run().expect(2, &[]);
    stage.ringfence(["session", "start", "long", "--life", "700h"]).run().expect(2, &["168h"]);
    let folder = stage.state().join("sessions");
    for path in [folder.clone(), folder.join("work")] {
        assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
    }
    let made_up = stage.ringfence(["session", "start"]).run().expect(0, &[]).text();
    stage.ringfence(["session", "stop", made_up.trim()]).run().expect(0, &[]);
    // A wall that cannot be had opens nothing.
    stage.ringfence(["session", "start", "other", "--backend", "spawn"]).run().expect(125, &["has no sessions"]);
    let too_much = ["session", "start", "other", "--memory", "500GiB"];
    stage.ringfence(too_much).run().expect(126, &["more than the policy"]);
    let refused = stage.ringfence([&too_much[..], &["--json"]].concat()).run().expect(126, &[]);
    assert_eq!(refused.json()["status"], "refused", "{refused:?}");
    assert!(refused.json()["refusal"]["rule"].is_string(), "{refused:?}");
    assert_eq!(fs::read_dir(folder).unwrap().count(), 1);
}

#[test]
fn a_program_with_a_terminal_can_be_talked_to_and_the_hosts_terminal_is_not_it() {
    let Some(stage) = walled() else { return };
    let _session = Session::start(&stage, "work", &[]);
    talked_to::a_terminal_is_the_programs_own(&|args| stage.ringfence(args));
}

#[test]
fn s01_two_sessions_and_the_host_see_nothing_of_each_other() {
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    let (one, other) = (Session::start(&stage, "one", &[]), Session::start(&stage, "other", &[]));
    let leave =
        format!("echo {secret} | tee /tmp/left /dev/shm/left $HOME/left left > /dev/null; sleep 100 {secret} &");
    one.sh(&format!("{leave} true")).expect(0, &[]);
    let look = "cat /tmp/* /dev/shm/* $HOME/* * /proc/*/cmdline 2>/dev/null; ls -R /run /tmp; true";
    assert!(one.sh(look).text().contains(&secret), "the probe proves nothing");
    assert!(!other.sh(look).text().contains(&secret));
    assert_eq!(stage.read("left"), None);
}

#[test]
fn n11_programs_that_run_already_cannot_reach_the_guest_while_it_starts_others() {
    let Some(stage) = walled() else { return };
    let Some(python) = interpreter() else { return };
    let session = Session::start(&stage, "work", &[]);
    // Everything about process 1 and about each process that is not ours, as fast as it can: a start makes processes
    // that share the guest's memory for a moment.
    let code = "
import os, sys, time
got, me = set(), os.getpid()
end = time.time() + 6
while time.time() < end and not os.path.exists('/tmp/stop'):
    for pid in [name for name in os.listdir('/proc') if name.isdigit() and int(name) != me]:
        try: comm = open(f'/proc/{pid}/comm').read()
        except OSError: continue
        if pid != '1' and not comm.startswith('ringfence-guest'): continue
        before = set(got)
        for path in ['mem', 'environ', 'maps', 'auxv']:
            try:
                with open(f'/proc/{pid}/{path}', 'rb') as file:
                    if path == 'mem': got.add('open mem')
                    elif file.read(1): got.add(path)
            except OSError: pass
        for path in ['oom_score_adj', 'comm', 'clear_refs', 'coredump_filter', 'sched']:
            try: os.close(os.open(f'/proc/{pid}/{path}', os.O_WRONLY)); got.add('write ' + path)
            except OSError: pass
        try:
            if os.listdir(f'/proc/{pid}/fd'): got.add('list fd')
        except OSError: pass
        for path in ['exe', 'root', 'fd/3', 'ns/mnt']:
            try: os.readlink(f'/proc/{pid}/{path}'); got.add(path)
            except OSError: pass
        # One that has executed meanwhile is a program like ourselves.
        if pid != '1': got = before
print(sorted(got))
open(f'/proc/{me}/mem', 'rb').close()
";
    let ended = session.exec(&["--background"], &[python.to_str().unwrap(), "-c", code]).run().expect(0, &[]);
    for number in 0..60 {
        assert_eq!(session.sh(&format!("echo {number}")).expect(0, &[]).text(), format!("{number}\n"));
    }
    session.sh("touch /tmp/stop").expect(0, &[]);
    let seen = stage.ringfence(["session", "wait", "work", ended.text().trim()]).run().expect(0, &[]);
    assert_eq!(seen.text(), "[]\n");
}

#[test]
fn r08_what_a_run_leaves_behind_does_not_delay_its_end_and_is_said() {
    let Some(stage) = walled() else { return };
    let session = Session::start(&stage, "work", &[]);
    for left in ["yes", "while :; do echo x; sleep 0.02; done"] {
        let begin = Instant::now();
        let script = format!("({left}) & exit 3");
        let outcome = session.exec(&["--json"], &["sh", "-c", &script]).run().expect(3, &[]).json();
        assert!(begin.elapsed() < SOON, "{left}");
        assert_eq!(outcome["notEnforced"], serde_json::json!(["proc.no-survivors"]), "what stays is said");
    }
    // The twin: alone, a run leaves nothing behind, and promises it.
    let outcome = stage.ringfence(["run", "--json", "--", "true"]).run().expect(0, &[]).json();
    assert_eq!(outcome["notEnforced"], serde_json::json!([]));
}

#[test]
fn r07_a_program_that_forks_away_in_its_session_is_killed_at_the_time_limit() {
    let Some(stage) = walled() else { return };
    let Some(python) = interpreter() else { return };
    let session = Session::start(&stage, "work", &[]);
    let code = "
import os, time
for _ in range(3):
    if os.fork() == 0:
        while True:
            os.setpgid(0, 0)
            if os.fork(): os._exit(0)
            open('/tmp/alive', 'w').write('x')
time.sleep(100)
";
    session.exec(&["--timeout", "1s"], &[python.to_str().unwrap(), "-c", code]).run().expect(124, &[]);
    let look = "rm -f /tmp/alive; sleep 0.3; test ! -e /tmp/alive";
    // Either all of it is gone, or the session is.
    assert!(matches!(session.sh(look).code, 0 | 2 | 125), "it goes on");
}

#[test]
fn r09_no_program_holds_up_the_guest_by_a_lease_and_a_guest_that_is_stuck_ends_its_session() {
    let Some(stage) = walled() else { return };
    let Some(python) = interpreter() else { return };
    let session = Session::start(&stage, "work", &[]);
    let lease = "
import fcntl, os
file = os.open('/tmp/tool', os.O_CREAT | os.O_RDONLY, 0o755)
try: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK); print('leased')
except PermissionError: print('refused')
";
    let ended = session.exec(&[], &[python.to_str().unwrap(), "-c", lease]).run().expect(0, &[]);
    assert_eq!(ended.text(), "refused\n");
    let bare = lease.replace("/tmp/tool", "tool");
    let twin = stage.ringfence(["run", "-q", "--backend", "spawn", "--", python.to_str().unwrap(), "-c", &bare]).run();
    assert_eq!(twin.text(), "leased\n", "the probe proves nothing");
    // As a stuck one would be: the host stops it.
    let guest = fs::read_to_string(format!("/proc/{0}/task/{0}/children", session.keeper())).unwrap();
    let guest = Pid::from_raw(guest.split_whitespace().next().unwrap().parse().unwrap()).unwrap();
    kill_process(guest, Signal::STOP).unwrap();
    let begin = Instant::now();
    stage.ringfence(["session", "stop", "work"]).run();
    assert!(begin.elapsed() < SOON, "stopping waited for a guest that does not answer");
    assert!(until(SOON, || !is_alive(session.keeper())));
}

#[test]
fn r02_what_was_left_behind_and_is_over_a_watched_limit_ends_the_session() {
    let Some(stage) = walled_with("proc: { memory: 200MiB }\n") else { return };
    let Some(python) = interpreter() else { return };
    let outcome = stage.ringfence(["run", "--json", "--", "true"]).run().json();
    let memory = outcome["enforced"].as_array().unwrap().iter().find(|one| one["guarantee"] == "proc.memory").cloned();
    if memory.unwrap()["strength"] != "watched" {
        eprintln!("SKIPPED: memory is enforced here, not watched");
        return;
    }
    let session = Session::start(&stage, "work", &[]);
    let hog = "import time; x = b'x' * (120 << 20); time.sleep(100)";
    let script = format!("for i in 1 2 3; do setsid {} -c \"{hog}\" > /dev/null 2>&1 & done; exit 0", python.display());
    session.sh(&script).expect(0, &[]);
    assert!(until(SOON, || !is_alive(session.keeper())), "nobody acted");
    assert!(fs::read_to_string(stage.ledger()).unwrap().contains("\"reason\":\"memory\""));
}

#[test]
fn s05_a_program_in_a_session_cannot_speak_for_another_or_for_the_guest() {
    let Some(stage) = walled() else { return };
    let session = Session::start(&stage, "work", &[]);
    // A report that the other run ended well, to everything that is open.
    let forged =
        "i=0; while [ $i -lt 20 ]; do printf 'RFG\\001\\010\\000\\000\\000\\003\\002\\000\\000' >&$i; i=$((i+1)); done";
    let mut other = session.exec(&["-q"], &["sh", "-c", "sleep 1; exit 9"]).start();
    session.sh(&format!("({forged}) 2> /dev/null; true")).expect(0, &[]);
    session.sh("kill -9 1 2> /dev/null; kill -STOP 1 2> /dev/null; true").expect(0, &[]);
    assert_eq!(other.wait().unwrap().code(), Some(9));
    // What is open in a program is its own three, and the one that lists.
    assert_eq!(session.sh("ls /proc/self/fd | wc -l").expect(0, &[]).text().trim(), "4");
}

#[test]
fn r01_r02_the_limits_of_a_session_hold_for_all_its_programs_together() {
    let Some(stage) = walled_with("proc: { processes: 12 }\n") else { return };
    let session = Session::start(&stage, "work", &[]);
    session.sh("i=0; while [ $i -lt 8 ]; do sleep 50 > /dev/null 2>&1 & i=$((i+1)); done; true").expect(0, &[]);
    let bomb = "i=0; while [ $i -lt 60 ]; do sleep 20 > /dev/null 2>&1 & i=$((i+1)); done; wait";
    let outcome = session.exec(&["--json"], &["sh", "-c", bomb]).run().json();
    let rules = outcome["violations"].as_array().unwrap();
    assert!(rules.iter().any(|one| one["rule"] == "proc.processes"), "{outcome:#}");
    // A fresh one has them all again.
    stage.ringfence(["session", "stop", "work"]).run();
    let again = Session::start(&stage, "again", &[]);
    again.sh("i=0; while [ $i -lt 6 ]; do sleep 0.01 & i=$((i+1)); done; wait").expect(0, &[]);
}
