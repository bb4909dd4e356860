//! Runs in sessions that are talked to, let go and signalled, and how long a session lives: for all walls alike.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use ringfence_testkit::canary::{is_alive, until};

use crate::stage::{Ended, Invocation, SOON};

/// `ringfence ARGS…` where the wall is.
pub(crate) type Ringfence<'a> = &'a dyn Fn(&[&str]) -> Invocation<'a>;

fn exec<'a>(ringfence: Ringfence<'a>, flags: &[&str], argv: &[&str]) -> Invocation<'a> {
    ringfence(&[&["session", "exec"], flags, &["work", "--"], argv].concat())
}

/// In a session `work`.
pub(crate) fn a_run_has_input_and_a_code(ringfence: Ringfence<'_>) {
    let ended = exec(ringfence, &["-i"], &["cat"]).stdin("typed\n").run().expect(0, &[]);
    assert_eq!(ended.text(), "typed\n");
    // Nobody passes it on without being asked.
    assert_eq!(exec(ringfence, &[], &["cat"]).stdin("typed\n").run().expect(0, &[]).text(), "");
    exec(ringfence, &[], &["no-such-program"]).run().expect(127, &[]);
    exec(ringfence, &[], &["sh", "-c", "kill -SEGV $$"]).run().expect(139, &[]);
    let outcome = exec(ringfence, &["--json", "--env", "A=b"], &["sh", "-c", "echo $A; echo err >&2"]).run().json();
    assert_eq!((&outcome["stdout"], &outcome["stderr"]), (&"b\n".into(), &"err\n".into()));
    let seen = outcome["enforced"].as_array().unwrap().iter().find(|one| one["guarantee"] == "net.none").unwrap();
    assert!(seen["evidence"].as_str().unwrap().contains("seen inside"), "{seen}");
}

/// In a session `work`.
pub(crate) fn runs_in_the_background_are_waited_for_and_signalled(ringfence: Ringfence<'_>) {
    let begin = |script: &str| {
        let ended = exec(ringfence, &["--background"], &["sh", "-c", script]).run().expect(0, &[]);
        ended.text().trim().to_owned()
    };
    let about = |words: &[&str]| -> Ended { ringfence(&[&["session"], words].concat()).run() };
    let first = begin("sleep 0.3; echo first; exit 4");
    let second = begin("trap 'echo asked; exit 5' USR1; touch /tmp/ready; while :; do sleep 0.05; done");
    let ended = about(&["wait", "work", &first]);
    assert_eq!((ended.code, &*ended.text()), (4, "first\n"), "{ended:?}");
    let ready = "while [ ! -e /tmp/ready ]; do sleep 0.05; done";
    exec(ringfence, &[], &["sh", "-c", ready]).run().expect(0, &[]);
    about(&["signal", "work", &second, "USR1"]).expect(0, &[]);
    let ended = about(&["wait", "work", &second, "--json"]);
    assert_eq!((ended.code, &ended.json()["stdout"]), (5, &"asked\n".into()), "{ended:?}");
    for command in ["wait", "signal"] {
        about(&[command, "work", "01arz3ndektsv4rrffq69g5fav"]).expect(2, &["no run"]);
    }
}

/// Both ends of a new terminal.
fn terminal() -> (OwnedFd, OwnedFd) {
    use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let theirs = ioctl_tiocgptpeer(&ours, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    let size = rustix::termios::Winsize { ws_row: 33, ws_col: 77, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&ours, size).unwrap();
    (ours, theirs)
}

/// In a session `work`.
pub(crate) fn a_terminal_is_the_programs_own(ringfence: Ringfence<'_>) {
    exec(ringfence, &["-t"], &["true"]).run().expect(2, &["no terminal"]);
    let (ours, theirs) = terminal();
    let script = "tty; stty size; read -r line; echo \"<$line>\"; exit 6";
    let run = exec(ringfence, &["-t"], &["sh", "-c", script]);
    let mut child = run.stdin_from(theirs.try_clone().unwrap()).stdout(theirs).start();
    let mut screen = fs::File::from(ours);
    let mut seen = String::new();
    let mut piece = [0u8; 1024];
    let begin = Instant::now();
    let mut typed = false;
    // The terminal is gone, and reading fails, when the command has ended.
    while let Ok(read @ 1..) = screen.read(&mut piece) {
        seen.push_str(&String::from_utf8_lossy(&piece[..read]));
        if seen.contains("33 77") && !typed {
            typed = true;
            screen.write_all(b"hello\r").unwrap();
        }
        assert!(begin.elapsed() < SOON, "{seen}");
        if seen.contains("<hello>") {
            break;
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(6), "{seen}");
    assert!(seen.contains("/dev/pts/0") && seen.contains("<hello>"), "{seen}");
    let mode = rustix::termios::tcgetattr(screen.as_fd()).unwrap();
    assert!(mode.local_modes.contains(rustix::termios::LocalModes::ECHO), "our terminal is as it was");
}

/// Opens sessions of its own; `log` is where the ledger is.
pub(crate) fn sessions_end_when_they_are_idle_or_old(ringfence: Ringfence<'_>, log: &std::path::Path) {
    let start = |name: &str, flags: &[&str]| {
        let info = ringfence(&[&["session", "start", "--json", name], flags].concat()).run().expect(0, &[]).json();
        u32::try_from(info["pid"].as_u64().unwrap()).unwrap()
    };
    let old = start("old", &["--life", "3s"]);
    let mut killed = ringfence(&["session", "exec", "-q", "old", "--", "sleep", "100"]).start();
    let idle = start("idle", &["--idle", "2s"]);
    let busy = start("busy", &["--idle", "2s"]);
    let mut child = ringfence(&["session", "exec", "busy", "--", "sleep", "6"]).start();
    assert!(until(SOON, || !is_alive(idle)), "nobody used it");
    assert!(is_alive(busy), "a session with a run is not idle");
    assert!(until(SOON, || !is_alive(old)), "it lived too long");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(killed.wait().unwrap().code(), Some(137));
    assert!(until(SOON, || !is_alive(busy)));
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("\"reason\":\"idle\"") && log.contains("\"reason\":\"life\""), "{log}");
}
