//! R rows: whatever is used up, it is used up inside.

use std::time::{Duration, Instant};

use ringfence_testkit::canary::{is_alive, until};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde_json::Value;

use crate::probe::{Wall, interpreter, run, walled, walled_with};
use crate::stage::Stage;

/// The outcome of a script under `flags`, and how long it took.
fn outcome(stage: &Stage, flags: &[&str], script: &str) -> (Value, Duration) {
    let begin = Instant::now();
    let ended = run(stage, Wall::Native, &[&["--json"], flags].concat(), &["sh", "-c", script]).run();
    (ended.json(), begin.elapsed())
}

fn in_python(stage: &Stage, flags: &[&str], code: &str) -> Option<(Value, Duration)> {
    let python = interpreter()?;
    let begin = Instant::now();
    let argv = [python.to_str().unwrap(), "-c", code];
    let ended = run(stage, Wall::Native, &[&["--json"], flags].concat(), &argv).run();
    Some((ended.json(), begin.elapsed()))
}

/// The outcome without a limit but those of time and output.
fn limitless(stage: &Stage, flags: &[&str], argv: &[&str]) -> Value {
    run(stage, Wall::Limitless, &[&["--json"], flags].concat(), argv).run().json()
}

fn has_violation(outcome: &Value, rule: &str) -> bool {
    outcome["violations"].as_array().unwrap().iter().any(|violation| violation["rule"] == rule)
}

/// Whether the kernel keeps this limit for all processes together.
fn is_enforced(outcome: &Value, guarantee: &str) -> bool {
    let enforced = outcome["enforced"].as_array().unwrap();
    enforced.iter().any(|one| one["guarantee"] == guarantee && one["strength"] == "enforced")
}

/// The most processes that a host process could see at once, while `act` runs.
fn most_processes(act: impl FnOnce()) -> usize {
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let stopped = std::sync::Arc::clone(&stop);
    let counter = std::thread::spawn(move || {
        let count = || {
            let entries = std::fs::read_dir("/proc").unwrap().flatten();
            entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.parse::<u32>().is_ok())).count()
        };
        let (before, mut most) = (count(), 0);
        while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
            most = most.max(count());
            std::thread::sleep(Duration::from_millis(5));
        }
        most.saturating_sub(before)
    });
    act();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    counter.join().unwrap()
}

#[test]
fn r01_measured_a_fork_bomb_is_capped_by_the_kernel_and_the_next_run_starts_at_once() {
    let Some(stage) = walled() else { return };
    let bombs = [
        "f() { f | f & }; f; sleep 2",
        "f() { sh -c 'while :; do sleep 5 & done' & f; }; f",
        "while :; do sleep 100 & done",
        "while :; do (setsid sleep 100 > /dev/null 2>&1 &); done",
    ];
    for bomb in bombs {
        let most = most_processes(|| {
            let (outcome, elapsed) = outcome(&stage, &["--processes", "64", "--timeout", "3s"], bomb);
            assert_ne!(outcome["status"], "couldNotRun", "{outcome:#}");
            assert!(elapsed < Duration::from_secs(12), "`{bomb}` took {elapsed:?}");
        });
        // Not exact: other tests and other people start processes meanwhile.
        assert!(most < 400, "`{bomb}` had {most} processes");
        let begin = Instant::now();
        run(&stage, Wall::Native, &[], &["true"]).run().expect(0, &[]);
        assert!(begin.elapsed() < Duration::from_secs(3), "the next run took {:?}", begin.elapsed());
    }
}

#[test]
fn r01_measured_too_many_processes_are_reported_as_such() {
    let Some(stage) = walled() else { return };
    let script = "i=0; while [ $i -lt 120 ]; do sleep 3 & i=$((i+1)); done; wait";
    let (outcome, _) = outcome(&stage, &["--processes", "16"], script);
    assert!(has_violation(&outcome, "proc.processes"), "{outcome:#}");
    assert_eq!(outcome["status"], "tooManyProcesses", "{outcome:#}");
    let twin = limitless(&stage, &["--processes", "16"], &["sh", "-c", script]);
    assert_eq!(twin["status"], "exited", "the probe proves nothing: {twin:#}");
}

#[test]
fn r02_measured_a_memory_bomb_ends_inside_and_is_reported_as_memory() {
    let Some(stage) = walled() else { return };
    let shared = |size: u64| {
        format!(
            "
import mmap
memory = mmap.mmap(-1, {size})
for page in range(0, {size}, 4096): memory[page] = 1
"
        )
    };
    let Some((outcome, elapsed)) = in_python(&stage, &["--memory", "64MiB"], &shared(1 << 30)) else { return };
    assert_eq!((outcome["status"].as_str(), outcome["oomKilled"].as_bool()), (Some("outOfMemory"), Some(true)));
    assert!(has_violation(&outcome, "proc.memory") && elapsed < Duration::from_secs(10), "{outcome:#}");
    let heap = "
blocks = []
while True: blocks.append(bytearray(1 << 20))
";
    let (outcome, _) = in_python(&stage, &["--memory", "64MiB"], heap).unwrap();
    if is_enforced(&outcome, "proc.memory") {
        assert_eq!(outcome["status"], "outOfMemory", "{outcome:#}");
    } else {
        // A limit for each process refuses the memory before it is used: the program itself sees the end of it.
        assert!(outcome["stderr"].to_string().contains("MemoryError"), "{outcome:#}");
    }
    assert!(outcome["resourceUsage"]["memoryPeakBytes"].as_u64().unwrap() < 200 << 20, "{outcome:#}");
    let python = interpreter().unwrap();
    // More than the limit, and little for a host.
    let argv = [python.to_str().unwrap(), "-c", &shared(128 << 20)];
    let twin = limitless(&stage, &["--memory", "64MiB"], &argv);
    assert_eq!(twin["exitCode"], 0, "the probe proves nothing: {twin:#}");
}

#[test]
fn r02_measured_many_processes_share_one_memory_limit() {
    let Some(stage) = walled() else { return };
    let Some(python) = interpreter() else { return };
    let one = format!("{} -c 'x = bytearray(40 << 20); import time; time.sleep(4)'", python.display());
    let script = format!("for i in 1 2 3 4 5 6 7 8; do {one} & done; wait; echo done");
    let (outcome, _) = outcome(&stage, &["--memory", "64MiB"], &script);
    assert!(has_violation(&outcome, "proc.memory"), "{outcome:#}");
    assert!(outcome["resourceUsage"]["memoryPeakBytes"].as_u64().unwrap() < 400 << 20, "{outcome:#}");
}

#[test]
fn r02_measured_memory_used_up_by_files_does_not_lose_the_run() {
    let Some(stage) = walled() else { return };
    let script =
        "dd if=/dev/zero of=/dev/shm/a bs=1M count=100; dd if=/dev/zero of=/tmp/b bs=1M count=100; echo told; exit 9";
    for _ in 0..5 {
        let (outcome, _) = outcome(&stage, &["--memory", "32MiB", "--timeout", "20s"], script);
        assert_ne!(outcome["status"], "couldNotRun", "{outcome:#}");
        if is_enforced(&outcome, "proc.memory") {
            assert!(has_violation(&outcome, "proc.memory"), "{outcome:#}");
        } else {
            assert_eq!(outcome["stdout"], "told\n", "{outcome:#}");
        }
    }
}

#[test]
fn r03_everything_that_can_be_written_is_one_quota_and_the_hosts_disk_is_not_used() {
    let Some(stage) = walled_with("fs: { size: 32MiB }\n") else { return };
    let before = rustix::fs::statvfs(stage.work()).unwrap().f_bfree;
    let script = "for file in /tmp/a /dev/shm/a ~/a ./a; do dd if=/dev/zero of=$file bs=1M count=100; done 2>&1 | grep -c 'No space left'
        du -cm /tmp/a /dev/shm/a ~/a ./a | tail -n 1 | cut -f1; fallocate -l 1T /tmp/huge && echo fallocated; rm -f /tmp/a /dev/shm/a ~/a ./a; echo x > again; cat again";
    let (outcome, _) = outcome(&stage, &[], script);
    let lines: Vec<&str> = outcome["stdout"].as_str().unwrap().lines().collect();
    let [refused, used, again] = &*lines else { panic!("{outcome:#}") };
    assert_eq!((*refused, *again), ("4", "x"), "{outcome:#}");
    assert!(used.parse::<u64>().unwrap() <= 33, "{outcome:#}");
    let after = rustix::fs::statvfs(stage.work()).unwrap();
    let used = before.saturating_sub(after.f_bfree) * after.f_frsize;
    assert!(used < 1 << 30, "the host's disk has {used} bytes less");
    let twin =
        crate::probe::sh(&stage, Wall::Bare, "dd if=/dev/zero of=a bs=1M count=40 2>/dev/null; du -m a | cut -f1", &[]);
    assert_eq!(twin.text(), "40\n", "the probe proves nothing");
}

#[test]
fn r04_measured_files_are_counted_too_and_deep_trees_are_removed_in_bounded_time() {
    let Some(stage) = walled_with("fs: { size: 64MiB }\n") else { return };
    let make = |folder: &str, most: u64| {
        format!(
            "
import os
made = 0
try:
    for number in range({most}):
        os.close(os.open('{folder}/%d' % number, os.O_CREAT | os.O_WRONLY)); made += 1
    print(made, 0)
except OSError as error: print(made, error.errno)
"
        )
    };
    let Some((outcome, elapsed)) = in_python(&stage, &[], &make("/tmp", 1_000_000)) else { return };
    let text = outcome["stdout"].as_str().unwrap();
    let (made, errno) = text.trim().split_once(' ').unwrap_or_else(|| panic!("no cap: {outcome:#}"));
    assert_eq!(errno, "28");
    assert!(made.parse::<u64>().unwrap() <= 64 << 20 >> 12, "{text}");
    assert!(elapsed < Duration::from_secs(30));
    let folder = crate::probe::outside(&stage);
    let python = interpreter().unwrap();
    let code = make(folder.to_str().unwrap(), 17_000);
    let twin = limitless(&stage, &[], &[python.to_str().unwrap(), "-c", &code]);
    assert_eq!(twin["stdout"], "17000 0\n", "the probe proves nothing: {twin:#}");
    let deep = "
import os
depth = 0
try:
    while depth < 10_000:
        os.mkdir('d'); os.chdir('d'); depth += 1
except OSError: pass
print(depth)
";
    let (outcome, elapsed) = in_python(&stage, &[], deep).unwrap();
    assert!(outcome["stdout"].as_str().unwrap().trim().parse::<u32>().unwrap() > 1000, "{outcome:#}");
    assert!(elapsed < Duration::from_secs(30), "it took {elapsed:?}");
}

#[test]
fn r05_descriptors_threads_and_buffers_are_limited() {
    let Some(stage) = walled() else { return };
    let code = "
import os, resource, sys, threading, time
files, threads = int(sys.argv[1]), int(sys.argv[2])
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
opened = []
try:
    for _ in range(files): opened.append(os.open('/dev/null', os.O_RDONLY))
except OSError as error: print('descriptors', len(opened) < 1024, error.errno, flush=True)
for fd in opened: os.close(fd)
started = 0
try:
    for _ in range(threads):
        threading.Thread(target=time.sleep, args=(2,), daemon=True).start(); started += 1
except RuntimeError: print('threads', started < 200, flush=True)
os._exit(0)
";
    let Some(python) = interpreter() else { return };
    let python = python.to_str().unwrap();
    let flags = ["--json", "--processes", "64"];
    let outcome = run(&stage, Wall::Native, &flags, &[python, "-c", code, "100000", "2000"]).run().json();
    let text = outcome["stdout"].as_str().unwrap();
    assert!(text.contains("descriptors True 24\n"), "{outcome:#}");
    let capped = text.contains("threads True") || outcome["status"] == "tooManyProcesses";
    assert!(capped, "{outcome:#}");
    // Over both limits, and little for a host.
    let twin = limitless(&stage, &["--processes", "64"], &[python, "-c", code, "1500", "150"]);
    assert_eq!(
        (twin["stdout"].as_str(), twin["exitCode"].as_i64()),
        (Some(""), Some(0)),
        "it proves nothing: {twin:#}"
    );
}

#[test]
fn r06_measured_endless_output_is_cut_and_costs_no_memory_outside() {
    let Some(stage) = walled() else { return };
    let script = "yes | head -c 300M; head -c 300M /dev/zero | tr '\\0' x >&2; echo; echo end";
    let mut child = run(&stage, Wall::Native, &["--json", "--output", "64KiB"], &["sh", "-c", script]).start();
    let mut peak = 0;
    let status = format!("/proc/{}/status", child.id());
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stdout, &mut text).unwrap();
        text
    });
    while child.try_wait().unwrap().is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let now = crate::probe::field(&text, "VmRSS").and_then(|it| it.trim_end_matches(" kB").parse::<u64>().ok());
        peak = peak.max(now.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(20));
    }
    let outcome: Value = serde_json::from_str(&reader.join().unwrap()).unwrap();
    assert_eq!((outcome["outputTruncated"].as_bool(), outcome["exitCode"].as_i64()), (Some(true), Some(0)));
    assert!(
        outcome["stdout"].as_str().unwrap().len() < 100 << 10 && outcome["stdout"].as_str().unwrap().ends_with("end\n")
    );
    assert!(peak > 0 && peak < 64 << 10, "the supervisor had {peak} KiB");
    // Without us somebody would have to keep it all.
    let counted = format!("{{ {script}; }} 2>&1 | wc -c");
    let twin = std::process::Command::new("sh").args(["-c", &counted]).output().unwrap();
    let bytes = String::from_utf8_lossy(&twin.stdout).trim().parse::<u64>().unwrap();
    assert!(bytes > 600 << 20, "the probe proves nothing: it wrote {bytes} bytes");
}

#[test]
fn r08_a_program_that_leaves_something_behind_returns_at_once() {
    let Some(stage) = walled() else { return };
    let (outcome, elapsed) = outcome(&stage, &[], "(sleep 30 &); (setsid sleep 30 &); echo done");
    assert_eq!((outcome["stdout"].as_str(), outcome["exitCode"].as_i64()), (Some("done\n"), Some(0)));
    assert!(elapsed < Duration::from_secs(3), "it took {elapsed:?}");
    // Who waits for the end of the output waits for the child.
    let begin = Instant::now();
    std::process::Command::new("sh").args(["-c", "(sleep 2 &); echo done"]).output().unwrap();
    assert!(begin.elapsed() >= Duration::from_secs(2), "the probe proves nothing");
}

#[test]
fn r09_whatever_a_program_does_with_signals_it_ends_at_the_deadline_plus_grace() {
    let Some(stage) = walled() else { return };
    let stubborn = [
        "kill -STOP $$; sleep 60",
        "trap '' TERM INT HUP QUIT; while :; do sleep 1; done",
        "trap '' TERM; while :; do :; done",
        "trap '' TERM; (setsid sh -c 'trap \"\" TERM; kill -STOP $$' &); kill -STOP 0; sleep 60",
    ];
    for script in stubborn {
        let (outcome, elapsed) = outcome(&stage, &["--timeout", "1s"], script);
        assert_eq!(
            (outcome["status"].as_str(), outcome["timedOut"].as_bool()),
            (Some("timedOut"), Some(true)),
            "{script}"
        );
        assert!(elapsed >= Duration::from_secs(1) && elapsed < Duration::from_secs(7), "`{script}` took {elapsed:?}");
    }
    // But for the last, which would leave a daemon: a polite signal does not end them.
    for script in &stubborn[..3] {
        let mut command = std::process::Command::new("sh");
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.args(["-c", script]).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(200));
        kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        let still_there = child.try_wait().unwrap().is_none();
        kill_process_group(Pid::from_child(&child), Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(still_there, "the probe proves nothing: `{script}` ended by itself");
    }
}

#[test]
fn r07_a_daemon_that_left_its_session_dies_with_the_program() {
    let Some(stage) = walled() else { return };
    // A number of seconds that nobody else sleeps, so that the host can find it.
    let mark = format!("98{}", std::process::id());
    let script = format!(
        "(setsid sh -c 'trap \"\" TERM HUP INT; sleep {mark}; :' > /dev/null 2>&1 &); sleep 0.3; echo $(ls -d /proc/[0-9]* | wc -l)"
    );
    let mut child = run(&stage, Wall::Native, &[], &["sh", "-c", &script]).start();
    let seen = until(Duration::from_secs(10), || !sleepers(&mark).is_empty());
    assert!(child.wait().unwrap().success());
    assert!(seen, "the probe proves nothing: the daemon was never there");
    assert!(until(Duration::from_secs(1), || sleepers(&mark).is_empty()), "the daemon survived");
}

/// Processes of the host that sleep for `seconds`.
fn sleepers(seconds: &str) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let sleeps = format!("sleep\0{seconds}\0");
    pids.filter(|pid| is_alive(*pid))
        .filter(|pid| std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == sleeps.as_bytes()))
        .collect()
}

#[test]
fn strict_runs_where_limits_are_enforced_and_is_refused_where_they_are_watched() {
    let Some(stage) = walled_with("extends: [preset:strict]\n") else { return };
    let (strict, _) = outcome(&stage, &[], "exit 7");
    stage.write("sandbox.policy.yaml", "version: 1\nextends: [preset:strict]\nproc: { limits: watched }\n");
    let (lenient, _) = outcome(&stage, &[], "exit 7");
    assert_eq!(lenient["exitCode"], 7, "the twin: what is watched will do here\n{lenient:#}");
    let limits = ["proc.memory", "proc.cpus", "proc.processes"];
    if limits.iter().all(|limit| is_enforced(&lenient, limit)) {
        assert_eq!(strict["exitCode"], 7, "{strict:#}");
    } else {
        assert_eq!(strict["refusal"]["rule"], "proc.limits", "{strict:#}");
        assert!(strict["refusal"]["hint"].to_string().contains("limits: watched"), "{strict:#}");
    }
}
