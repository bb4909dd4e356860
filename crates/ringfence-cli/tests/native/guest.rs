//! Attacks on process 1 inside, which keeps the program and talks to the supervisor.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use ringfence_testkit::canary::{ProcessCanary, secret};

use crate::probe::{Wall, python, run, sh, walled, walled_with};
use crate::stage::SOON;

#[test]
fn s01_the_guest_shows_neither_the_hosts_command_line_nor_its_environment() {
    let Some(stage) = walled() else { return };
    let secret = secret().unwrap();
    let policy = stage.path().join(&secret);
    std::fs::write(&policy, "version: 1\n").unwrap();
    let script = "for process in /proc/[0-9]*; do
            for file in cmdline environ comm maps auxv stack syscall wchan; do tr '\\0' ' ' < $process/$file; done
            readlink $process/exe $process/cwd $process/root $process/fd/*
        done 2>/dev/null; ps auxeww 2>/dev/null; cat /proc/*/mountinfo 2>/dev/null; :";
    let look = |wall| {
        run(&stage, wall, &["--policy", policy.to_str().unwrap()], &["sh", "-c", script])
            .env("CANARY_OF_THE_HOST", &secret)
            .run()
            .expect(0, &[])
            .text()
    };
    let inside = look(Wall::Native);
    assert!(!inside.contains(&secret), "{inside}");
    assert!(!inside.contains("/target/") && !inside.contains("ringfence run"), "{inside}");
    assert!(look(Wall::Bare).contains(&secret), "the probe proves nothing");
}

#[test]
fn a_guest_that_began_before_the_policy_was_read_keeps_to_the_policy() {
    let look = |policy: &str| {
        let stage = walled_with(policy)?;
        let script = "id -u; id -g; df -k --output=size /tmp | tail -n 1 | tr -d ' '; df --output=itotal /tmp | tail -n 1 | tr -d ' '";
        Some(run(&stage, Wall::Native, &[], &["sh", "-c", script]).run().expect(0, &[]).text())
    };
    let Some(usual) = look("") else { return };
    assert_eq!(usual, "1000\n1000\n2097152\n524288\n", "the twin: what is begun with");
    assert_eq!(look("fs: { size: 48MiB }\n").unwrap(), "1000\n1000\n49152\n12288\n");
    assert_eq!(look("fs: { size: 3GiB }\n").unwrap(), "1000\n1000\n3145728\n786432\n");
    assert_eq!(look("proc: { user: \"1234:4321\" }\n").unwrap(), "1234\n4321\n2097152\n524288\n");
}

#[test]
fn n11_the_guest_cannot_be_killed_stopped_traced_read_or_written() {
    let Some(stage) = walled() else { return };
    // Aimed at process 1 inside, or at a process of the same user without a wall.
    let code = "
import ctypes, os, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
got = []
target = int(sys.argv[1])
proc = '/proc/%d/' % target
for path in ['mem', 'environ', 'maps', 'auxv', 'pagemap', 'syscall', 'stack', 'io', 'personality']:
    try:
        if open(proc + path, 'rb').read(16): got.append(path)
    except OSError: pass
for path in ['mem', 'oom_score_adj', 'coredump_filter', 'comm', 'clear_refs', 'uid_map', 'setgroups', 'sched', 'autogroup']:
    try: os.close(os.open(proc + path, os.O_WRONLY)); got.append('write ' + path)
    except OSError: pass
for path in ['exe', 'cwd', 'root', 'ns/user', 'ns/mnt']:
    try: os.readlink(proc + path); got.append('link ' + path)
    except OSError: pass
for path in ['fd', 'fdinfo', 'map_files', 'task/%d/fd' % target]:
    try:
        if os.listdir(proc + path): got.append('list ' + path)
    except OSError: pass
for name, request in [('attach', 16), ('seize', 0x4206)]:
    if libc.ptrace(request, target, 0, 0) == 0: got.append(name)
for name in ['SIGKILL', 'SIGSTOP', 'SIGTERM', 'SIGHUP', 'SIGSEGV', 'SIGTSTP', 'SIGUSR1', 'SIGCHLD']:
    # Refused where the kernel has a second fence for signals; without it the kernel drops them.
    try: os.kill(target, getattr(signal, name))
    except (PermissionError, ProcessLookupError): pass
print(got)
raise SystemExit(7)
";
    let Some(ended) = python(&stage, Wall::Native, code, &["1"]) else { return };
    assert_eq!((ended.code, &*ended.text()), (7, "[]\n"), "{ended:?}");
    let canary = ProcessCanary::start().unwrap();
    let twin = python(&stage, Wall::Bare, code, &[&canary.pid().to_string()]).unwrap();
    for reached in ["'environ'", "'maps'", "'write oom_score_adj'", "'link exe'", "'list fd'"] {
        assert!(twin.text().contains(reached), "the probe proves nothing about {reached}: {twin:?}");
    }
    assert!(canary.died(), "the probe proves nothing about signals");
}

#[test]
fn n11_the_guest_cannot_be_killed_by_a_limit_that_the_program_sets_for_it() {
    let Some(stage) = walled() else { return };
    // The kernel's own signal for a limit of processor time ends even process 1.
    let code = "
import ctypes, sys, time
libc = ctypes.CDLL(None, use_errno=True)
target = int(sys.argv[1])
for kind, most in [(0, 0), (7, 0), (9, 0), (1, 0)]: print(libc.prlimit(target, kind, (ctypes.c_ulong * 2)(most, most), None), flush=True)
if target != 1: sys.exit(7)
# Ends of children keep the guest busy until its time is up.
import os
end = time.time() + 2
while time.time() < end:
    if os.fork() == 0:
        if os.fork() == 0: os._exit(0)
        os._exit(0)
    os.wait()
raise SystemExit(7)
";
    let Some(ended) = python(&stage, Wall::Native, code, &["1"]) else { return };
    assert_eq!((ended.code, &*ended.text()), (7, "-1\n-1\n-1\n-1\n"), "{ended:?}");
    let canary = ProcessCanary::start().unwrap();
    let twin = python(&stage, Wall::Bare, code, &[&canary.pid().to_string()]).unwrap();
    assert_eq!(twin.text(), "0\n0\n0\n0\n", "the probe proves nothing: {twin:?}");
}

#[test]
fn s05_what_is_written_to_other_descriptors_or_printed_as_a_result_changes_no_result() {
    let Some(stage) = walled() else { return };
    let code = "
import os, socket
print('{\"exitCode\":0,\"status\":\"exited\"}', flush=True)
open_ = []
for fd in range(3, 1100):
    try: os.write(fd, b'E\\0\\0\\0\\0\\0\\0\\0\\0'); open_.append(fd)
    except OSError: pass
for name in os.listdir('/proc/self/fd'):
    if int(name) > 2: open_.append(int(name))
# The one that lists is gone by now.
print([fd for fd in set(open_) if os.path.exists('/proc/self/fd/%d' % fd)])
for fd in range(0, 3):
    try: socket.socket(fileno=os.dup(fd)); print('a socket', fd)
    except OSError: pass
raise SystemExit(7)
";
    let python = crate::probe::interpreter();
    let Some(python) = python else { return };
    let ended = run(&stage, Wall::Native, &["--json"], &[python.to_str().unwrap(), "-c", code]).run();
    let outcome = ended.json();
    assert_eq!((ended.code, outcome["exitCode"].as_i64(), outcome["status"].as_str()), (7, Some(7), Some("exited")));
    assert_eq!(outcome["stdout"], "{\"exitCode\":0,\"status\":\"exited\"}\n[]\n");
    // A descriptor that is there is found, and written to.
    let leak = format!("exec 9> leaked; exec {} -c \"$1\"", python.display());
    let twin = sh(&stage, Wall::Bare, &leak, &[code]);
    assert!(twin.text().contains("[9]"), "the probe proves nothing: {twin:?}");
    assert!(fs::metadata(stage.work().join("leaked")).unwrap().len() > 0, "the probe proves nothing");
}

#[test]
fn n11_orphans_of_a_program_are_reaped_and_do_not_confuse_its_result() {
    let Some(stage) = walled() else { return };
    let script = "i=0; while [ $i -lt 100 ]; do (sh -c 'exit 3' &); i=$((i+1)); done; sleep 0.2
        grep -l 'State:.Z' /proc/[0-9]*/status; exit 5";
    let ended = sh(&stage, Wall::Native, script, &[]);
    assert_eq!((ended.code, &*ended.text()), (5, ""), "{ended:?}");
}

#[test]
fn huge_arguments_and_environments_are_passed_or_refused_and_never_hang() {
    let Some(stage) = walled() else { return };
    let long = "x".repeat(120 * 1024);
    let begin = std::time::Instant::now();
    let ended = run(&stage, Wall::Native, &[], &["sh", "-c", "echo ${#1}", "sh", &long]).run().expect(0, &[]);
    assert_eq!(ended.text().trim(), long.len().to_string());
    let many: Vec<&str> = vec!["a"; 100_000];
    let ended = run(&stage, Wall::Native, &[], &[&["sh", "-c", "echo $#", "sh"], &many[..]].concat()).run();
    assert_eq!(ended.text(), "100000\n", "{ended:?}");
    let variable = format!("BIG={long}");
    let flags = ["--env", &variable];
    let ended = run(&stage, Wall::Native, &flags, &["sh", "-c", "echo ${#BIG}"]).run().expect(0, &[]);
    assert_eq!(ended.text().trim(), long.len().to_string());
    assert!(begin.elapsed() < SOON);
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let Some(stage) = walled() else { return };
    stage.write("script", "#!/no/such/interpreter\n");
    fs::set_permissions(stage.work().join("script"), fs::Permissions::from_mode(0o755)).unwrap();
    for program in ["no-such-program", "./script"] {
        let named = format!("`{program}` was not found inside");
        let told = run(&stage, Wall::Native, &[], &[program, "a"]).run();
        told.expect(127, &[&named, "check the spelling", "interpreter of its first line"]);
    }
}
