//! R rows: whatever is used up, it is used up inside.

use std::time::{Duration, Instant};

use crate::walls::{for_each_engine, has_violation};

#[test]
fn r01_measured_too_many_processes_are_capped_reported_and_the_next_run_starts() {
    for_each_engine("", |place| {
        if !place.enforces("proc.processes") {
            return;
        }
        let script = "i=0; while [ $i -lt 120 ]; do sleep 3 & i=$((i+1)); done; wait";
        let outcome = place.outcome(&["--processes", "24", "--timeout", "20s"], script);
        assert!(has_violation(&outcome, "proc.processes"), "{outcome:#}");
        place.outcome(&["--processes", "64", "--timeout", "3s"], "f() { f | f & }; f; sleep 2");
        let begin = Instant::now();
        place.run(&[], &["true"]).run().expect(0, &[]);
        assert!(begin.elapsed() < Duration::from_secs(10), "the next run took {:?}", begin.elapsed());
        let twin = place.limitless(&["--processes", "24"], &["sh", "-c", script]);
        assert_eq!(twin["status"], "exited", "the probe proves nothing: {twin:#}");
    });
}

#[test]
fn r02_measured_a_memory_bomb_ends_inside_and_is_reported_as_memory() {
    let grow =
        |size: u64| format!("import mmap\nm = mmap.mmap(-1, {size})\nfor p in range(0, {size}, 4096): m[p] = 1\n");
    for_each_engine("", |place| {
        if !place.enforces("proc.memory") {
            return;
        }
        let code = grow(1 << 30);
        let outcome = place.run(&["--json", "--memory", "96MiB"], &["python3", "-c", &code]).run().json();
        let seen = (outcome["status"].as_str(), outcome["oomKilled"].as_bool());
        assert_eq!(seen, (Some("outOfMemory"), Some(true)), "{outcome:#}");
        assert!(has_violation(&outcome, "proc.memory"), "{outcome:#}");
        let code = grow(160 << 20);
        let twin = place.limitless(&["--memory", "96MiB"], &["/usr/bin/python3", "-c", &code]);
        assert_eq!(twin["exitCode"], 0, "the probe proves nothing: {twin:#}");
        assert!(place.is_soon_empty(), "a container is left");
    });
}

#[test]
fn r03_r04_everything_that_can_be_written_has_an_end_and_the_hosts_disk_is_not_used() {
    for_each_engine("fs: { size: 32MiB }\n", |place| {
        let before = rustix::fs::statvfs(place.stage.work()).unwrap().f_bfree;
        let script = "for file in /tmp/a /dev/shm/a ~/a ./a; do dd if=/dev/zero of=$file bs=1M count=400; done 2>&1 | grep -c 'No space left'; \
            fallocate -l 1T /tmp/huge 2> /dev/null && echo fallocated; rm -f /tmp/a /dev/shm/a ~/a ./a; echo x > again; cat again";
        let ended = place.run(&["--memory", "1GiB"], &["sh", "-c", script]).run();
        assert_eq!(ended.text(), "4\nx\n", "{ended:?}");
        let after = rustix::fs::statvfs(place.stage.work()).unwrap();
        let used = before.saturating_sub(after.f_bfree) * after.f_frsize;
        assert!(used < 1 << 30, "the host's disk has {used} bytes less");
        let twin = place.bare_sh("dd if=/dev/zero of=a bs=1M count=40 2> /dev/null; wc -c < a", &[]);
        assert_eq!(twin.text(), format!("{}\n", 40 << 20), "the probe proves nothing");
    });
}

#[test]
fn r04_measured_very_many_files_and_deep_folders_end_in_bounded_time() {
    for_each_engine("fs: { size: 64MiB }\n", |place| {
        let code = "
import os
made = 0
try:
    for number in range(300_000): os.close(os.open('/tmp/%d' % number, os.O_CREAT | os.O_WRONLY)); made += 1
except OSError: pass
depth = 0
try:
    while depth < 3000: os.mkdir('d'); os.chdir('d'); depth += 1
except OSError: pass
print(depth > 100)
";
        let begin = Instant::now();
        let ended = place.python(code, &[]);
        assert!(begin.elapsed() < Duration::from_secs(60), "it took {:?}", begin.elapsed());
        assert!(matches!(ended.code, 0 | 125 | 137), "{ended:?}");
        assert!(place.is_soon_empty(), "a container is left");
    });
}

#[test]
fn r05_descriptors_are_limited() {
    for_each_engine("proc: { open_files: 64 }\n", |place| {
        let script = "ulimit -n 1000 2> /dev/null; paste $(yes /dev/null | head -n 200) && echo opened; :";
        assert_eq!(place.sh(script, &[]).text(), "");
        let twin = std::process::Command::new("sh").args(["-c", script]).output().unwrap();
        assert!(String::from_utf8_lossy(&twin.stdout).contains("opened"), "the probe proves nothing");
    });
}

#[test]
fn r06_endless_output_is_cut_and_marked() {
    for_each_engine("", |place| {
        let script = "yes | head -c 50M; head -c 20M /dev/zero | tr '\\0' x >&2; echo; echo end";
        let outcome = place.outcome(&["--output", "64KiB"], script);
        assert_eq!((outcome["outputTruncated"].as_bool(), outcome["exitCode"].as_i64()), (Some(true), Some(0)));
        let kept = outcome["stdout"].as_str().unwrap();
        assert!(kept.len() < 100 << 10 && kept.ends_with("end\n"), "{} bytes", kept.len());
        let short = place.outcome(&["--output", "64KiB"], "echo short");
        assert_eq!(short["outputTruncated"], false);
    });
}
