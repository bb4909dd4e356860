//! The keeper's promises, each shown on real processes.

#![allow(clippy::unwrap_used, reason = "a test stops at the first failure")]

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use ringfence_linux::{Keeper, Launch, Privileges, Report, Rlimit, RlimitKind, Stage, keeper, tree};

struct Started {
    keeper: Keeper,
    stdout: File,
}

fn start(script: &str, privileges: Privileges, rlimits: &[Rlimit]) -> Started {
    start_program("/bin/sh", &["sh", "-c", script], privileges, rlimits)
}

fn start_program(program: &str, argv: &[&str], privileges: Privileges, rlimits: &[Rlimit]) -> Started {
    let ready = prepare(program, argv, privileges, rlimits);
    ready.keeper.release().unwrap();
    ready
}

fn prepare(program: &str, argv: &[&str], privileges: Privileges, rlimits: &[Rlimit]) -> Started {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
    let null: OwnedFd = File::open("/dev/null").unwrap().into();
    let cwd: OwnedFd = File::open("/").unwrap().into();
    let argv: Vec<&OsStr> = argv.iter().map(OsStr::new).collect();
    let keeper = keeper::launch(&Launch {
        program: OsStr::new(program),
        argv: &argv,
        env: &[(OsStr::new("PATH"), OsStr::new("/usr/bin:/bin")), (OsStr::new("MARK"), OsStr::new("here"))],
        cwd: cwd.as_fd(),
        stdin: null.as_fd(),
        stdout: write.as_fd(),
        stderr: write.as_fd(),
        privileges,
        rlimits,
        fence: None,
    })
    .unwrap();
    Started { keeper, stdout: File::from(read) }
}

fn next(keeper: &Keeper) -> Option<Report> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match keeper.receive() {
            Ok(report) => return report,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                assert!(Instant::now() < until, "no report within 20 s");
                std::thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn ended(keeper: &Keeper) -> i32 {
    loop {
        match next(keeper) {
            Some(Report::Started { .. }) => {}
            Some(Report::Ended { wait_status, .. }) => return wait_status,
            other => panic!("expected the end, got {other:?}"),
        }
    }
}

fn finish(mut started: Started) -> (i32, String) {
    let status = ended(&started.keeper);
    assert!(matches!(next(&started.keeper), Some(Report::Gone { .. })));
    assert_eq!(next(&started.keeper), None, "after the last report the keeper is gone");
    assert!(started.keeper.reap(Duration::from_secs(5)));
    let mut text = String::new();
    started.stdout.read_to_string(&mut text).unwrap();
    (status, text)
}

fn alive(pid: &str) -> bool {
    // A zombie is dead; only its parent has not looked yet.
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap_or("").trim_start().starts_with('Z'))
}

fn wait_until_dead(pid: &str) {
    let until = Instant::now() + Duration::from_secs(10);
    while alive(pid) {
        assert!(Instant::now() < until, "{pid} is still alive");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn output_and_exit_status_come_back() {
    let (status, text) = finish(start("echo $MARK; exit 7", Privileges::NoNew, &[]));
    assert_eq!((status >> 8) & 0xff, 7);
    assert_eq!(text, "here\n");
}

#[test]
fn nothing_runs_before_the_release_and_nothing_ever_without_one() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("ran");
    let script = format!("echo ran > {}", mark.display());
    let argv = ["sh", "-c", script.as_str()];
    let held = prepare("/bin/sh", &argv, Privileges::NoNew, &[]);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!mark.exists(), "it ran before its release");
    drop(held);
    assert!(!mark.exists(), "it ran although it was dropped");
    finish(start_program("/bin/sh", &argv, Privileges::NoNew, &[]));
    assert!(mark.exists(), "the twin did not run: the probe proves nothing");
}

#[test]
fn s06_a_kill_is_told_apart_from_its_exit_code() {
    let (killed, _) = finish(start("kill -9 $$", Privileges::NoNew, &[]));
    let (exited, _) = finish(start("exit 137", Privileges::NoNew, &[]));
    assert_eq!(killed & 0x7f, 9);
    assert_eq!((exited & 0x7f, (exited >> 8) & 0xff), (0, 137));
}

#[test]
fn a_program_that_cannot_be_executed_is_a_failure_of_the_exec_step() {
    let started = start_program("/does/not/exist", &["x"], Privileges::NoNew, &[]);
    assert_eq!(next(&started.keeper), Some(Report::Failed { stage: Stage::Exec, errno: libc_enoent() }));
    assert_eq!(next(&started.keeper), None);
}

fn libc_enoent() -> i32 {
    rustix::io::Errno::NOENT.raw_os_error()
}

#[test]
fn r07_a_daemon_that_double_forks_and_ignores_signals_dies_with_the_program() {
    let (_, text) = finish(start(
        "(setsid sh -c 'trap \"\" TERM HUP; echo $$; exec >/dev/null 2>&1; sleep 999' &) ; sleep 0.3",
        Privileges::NoNew,
        &[],
    ));
    let pid = text.trim();
    assert!(!pid.is_empty() && !alive(pid), "the daemon {pid} survived");
}

#[test]
fn the_daemon_of_the_twin_survives_without_a_keeper() {
    let output = std::process::Command::new("sh")
        .args(["-c", "(setsid sh -c 'trap \"\" TERM HUP; echo $$; exec >/dev/null 2>&1; sleep 20' &) ; sleep 0.3"])
        .output()
        .unwrap();
    let pid = String::from_utf8(output.stdout).unwrap().trim().to_owned();
    assert!(alive(&pid), "the probe proves nothing: its daemon dies by itself");
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
}

#[test]
fn r08_a_background_child_that_holds_the_pipe_does_not_delay_the_end() {
    let begin = Instant::now();
    let (status, text) = finish(start("(sleep 30 &) ; echo done", Privileges::NoNew, &[]));
    assert_eq!((status, text.as_str()), (0, "done\n"));
    assert!(begin.elapsed() < Duration::from_secs(10));
}

#[test]
fn an_order_to_kill_ends_a_program_that_ignores_signals() {
    let started = start("trap '' TERM INT HUP; while :; do :; done", Privileges::NoNew, &[]);
    assert!(matches!(next(&started.keeper), Some(Report::Started { .. })));
    started.keeper.kill().unwrap();
    let (status, _) = finish(started);
    assert_eq!(status & 0x7f, 9);
}

#[test]
fn a_signal_reaches_the_program() {
    let mut started = start("trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done", Privileges::NoNew, &[]);
    let mut ready = [0u8; 6];
    started.stdout.read_exact(&mut ready).unwrap();
    started.keeper.signal(15).unwrap();
    let (status, _) = finish(started);
    assert_eq!((status >> 8) & 0xff, 3);
}

#[test]
fn dropping_the_keeper_leaves_nothing_alive() {
    let mut started = start("echo $$; exec sleep 999", Privileges::NoNew, &[]);
    let mut line = [0u8; 16];
    let read = started.stdout.read(&mut line).unwrap();
    let pid = String::from_utf8_lossy(&line[..read]).trim().to_owned();
    assert!(alive(&pid));
    drop(started);
    wait_until_dead(&pid);
}

#[test]
fn n11_a_program_that_stops_its_keeper_is_still_killed() {
    let mut started = start("kill -STOP $PPID; echo $$; exec sleep 999", Privileges::NoNew, &[]);
    let mut line = [0u8; 16];
    let read = started.stdout.read(&mut line).unwrap();
    let pid = String::from_utf8_lossy(&line[..read]).trim().to_owned();
    drop(started);
    wait_until_dead(&pid);
}

#[test]
fn f14_a_descriptor_of_the_supervisor_is_absent_inside() {
    // Without close-on-exec, as a careless embedding application would have it.
    let leaked = File::open("/etc/passwd").unwrap();
    let copy = rustix::io::dup(&leaked).unwrap();
    rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty()).unwrap();
    let list = "for f in /proc/self/fd/*; do readlink $f; done";
    let bare = std::process::Command::new("sh").args(["-c", list]).output().unwrap();
    assert!(String::from_utf8_lossy(&bare.stdout).contains("/etc/passwd"), "the probe does not see a leak");
    let (_, text) = finish(start(list, Privileges::NoNew, &[]));
    assert!(!text.contains("/etc/passwd"), "{text}");
    assert!(!text.contains("socket:"), "the control socket is inside: {text}");
}

#[test]
fn the_program_has_no_new_privs_default_signals_and_its_own_session() {
    let (_, text) = finish(start(
        "grep -E 'NoNewPrivs|SigBlk|SigIgn' /proc/self/status; read -r _ _ _ _ _ s _ < /proc/self/stat; echo sid $s me $$",
        Privileges::NoNew,
        &[],
    ));
    assert!(text.contains("NoNewPrivs:\t1"), "{text}");
    assert!(text.contains("SigBlk:\t0000000000000000"), "{text}");
    assert!(text.contains("SigIgn:\t0000000000000000"), "{text}");
    let words: Vec<&str> = text.lines().last().unwrap().split(' ').collect();
    assert_eq!(words[1], words[3], "{text}");
    let (_, host) = finish(start("grep NoNewPrivs /proc/self/status", Privileges::Host, &[]));
    assert_eq!(
        host.trim(),
        std::fs::read_to_string("/proc/self/status").unwrap().lines().find(|l| l.starts_with("NoNewPrivs")).unwrap()
    );
}

#[test]
fn limits_are_set_and_cannot_be_raised() {
    let limits = [
        Rlimit { kind: RlimitKind::FileSize, most: 4096 },
        Rlimit { kind: RlimitKind::OpenFiles, most: 32 },
        Rlimit { kind: RlimitKind::Core, most: 0 },
        Rlimit { kind: RlimitKind::Data, most: 64 << 20 },
    ];
    let (_, text) = finish(start("ulimit -n; ulimit -c; ulimit -d; ulimit -f", Privileges::NoNew, &limits));
    assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["32", "0", "65536", "8"]);
}

#[test]
fn a_sample_counts_processes_and_memory_below_the_keeper() {
    let mut started = start("sleep 99 & sleep 99 & echo ready; wait", Privileges::NoNew, &[]);
    let mut ready = [0u8; 6];
    started.stdout.read_exact(&mut ready).unwrap();
    let until = Instant::now() + Duration::from_secs(5);
    while tree::sample(started.keeper.pid()).tasks < 3 {
        assert!(Instant::now() < until);
    }
    assert!(tree::sample(started.keeper.pid()).resident_bytes > 100_000);
}

#[test]
fn r01_a_fork_bomb_is_gone_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let mark = directory.path().join("stop");
    // Bounded twice, so that a failure here does not take the machine along.
    let script = format!(
        "f() {{ [ -e {0} ] || [ $1 -gt 8 ] && return; f $(($1+1)) & setsid sh -c 'sleep 20' & f $(($1+1)) & sleep 20; }}; f 0; sleep 20",
        mark.display()
    );
    let started = start(&script, Privileges::NoNew, &[]);
    std::thread::sleep(Duration::from_millis(400));
    let root = started.keeper.pid();
    assert!(tree::sample(root).tasks > 20, "the bomb did not go off");
    started.keeper.kill().unwrap();
    let below = tree::descendants(root);
    finish(started);
    File::create(&mark).unwrap();
    for pid in below {
        assert!(!Path::new(&format!("/proc/{pid}")).exists() || !alive(&pid.to_string()), "{pid} survived");
    }
}
