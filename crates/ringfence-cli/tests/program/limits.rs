//! Time and output, with programs that do not want to be limited.

use std::fs::File;
use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use ringfence_testkit::canary::{is_alive, until};

use crate::stage::{Ended, SOON, Stage};

#[test]
fn r06_measured_hundreds_of_megabytes_are_cut_and_marked_in_constant_memory() {
    let stage = Stage::new();
    let script = "head -c 300000000 /dev/zero | tr '\\0' y; echo the end; head -c 300000000 /dev/zero | tr '\\0' z >&2";
    let mut child = stage.spawn_sh_with(&["--json"], script).start();
    let mut stdout = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        stdout.read_to_end(&mut text).unwrap();
        text
    });
    // The high-water mark only rises: the last look before the end is the most it ever had.
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        most = most.max(line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0));
        std::thread::sleep(Duration::from_millis(10));
    }
    let outcome: serde_json::Value = serde_json::from_slice(&reader.join().unwrap()).unwrap();
    assert_eq!((&outcome["outputTruncated"], &outcome["exitCode"]), (&true.into(), &0.into()));
    for (stream, filler) in [("stdout", 'y'), ("stderr", 'z')] {
        let text = outcome[stream].as_str().unwrap();
        assert!(text.len() < (1 << 20) + 200, "{stream} is {} bytes", text.len());
        assert!(text.starts_with(filler) && text.contains("bytes of output left out"), "{stream}");
    }
    assert!(outcome["stdout"].as_str().unwrap().ends_with("the end\n"), "the tail is kept");
    assert!(most > 1000, "the memory was never looked at");
    assert!(most < 64 * 1024, "the supervisor took {most} KiB");
}

#[test]
fn r06_what_is_streamed_is_capped_and_marked_as_well() {
    let stage = Stage::new();
    let ended =
        stage.spawn_sh_with(&["--output", "4KiB"], "head -c 1000000 /dev/zero | tr '\\0' y; echo; echo the end").run();
    let text = ended.expect(0, &[]).text();
    assert!(text.len() < 5000, "{} bytes", text.len());
    assert!(text.contains("bytes of output left out") && text.ends_with("the end\n"), "{text}");
}

#[test]
fn r08_a_background_child_that_holds_the_pipe_does_not_delay_the_end() {
    let stage = Stage::new();
    let begin = Instant::now();
    let ended = stage.spawn_sh("(sleep 60 &); echo done").run().expect(0, &[]);
    assert_eq!(ended.text(), "done\n");
    assert!(begin.elapsed() < SOON);
}

fn check_killed(script: &str) {
    let stage = Stage::new();
    let begin = Instant::now();
    let flags = ["--timeout", "1s"];
    let mut child = stage.spawn_sh_with(&flags, &format!("echo $$ > pid; {script}")).stdout(Stdio::null()).start();
    let ended = until(2 * SOON, || child.try_wait().unwrap().is_some());
    if !ended {
        // Its keeper sees that we are gone, and kills the program.
        child.kill().unwrap();
    }
    let ended_with = Ended::from(child.wait_with_output().unwrap());
    assert!(ended, "the run goes on long after its deadline");
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    let pid = stage.wait_for("pid").trim().parse().unwrap();
    assert!(until(SOON, || !is_alive(pid)), "{pid} is still there");
    assert_eq!(ended_with.code, 124, "{ended_with:?}");
}

#[test]
fn r09_a_program_that_stops_itself_is_killed_at_the_deadline() {
    check_killed("kill -STOP $$");
}

#[test]
fn r09_a_program_that_ignores_every_polite_signal_is_killed_at_the_deadline() {
    check_killed("trap '' TERM INT HUP QUIT; while :; do sleep 0.1; done");
}

#[test]
fn r09_a_busy_loop_is_killed_at_the_deadline() {
    check_killed("while :; do :; done");
}

#[test]
fn n11_a_program_that_stops_its_supervisors_child_still_ends_at_the_deadline() {
    check_killed("kill -STOP $PPID; while :; do sleep 0.1; done");
}

#[test]
fn r10_a_time_limit_that_makes_no_sense_is_a_usage_mistake() {
    let stage = Stage::new();
    let ages = (1_u64 << 63).to_string();
    for limit in ["0", "0s", "-1", "-1s", "NaN", "inf", "", "1e9s", "999d", "9999999999999s", &ages, "1x", "٣s"] {
        let flag = format!("--timeout={limit}");
        let ended = stage.spawn_sh_with(&[&flag], "touch canary").run();
        // A limit that can be read and is above the ceiling is refused; any other is a mistake.
        assert!([2, 126].contains(&ended.code), "{limit:?}: {ended:?}");
        assert!(!ended.stderr.is_empty());
    }
    assert_eq!(stage.read("canary"), None);
    stage.spawn_sh_with(&["--timeout=1.5s"], "touch canary").run().expect(0, &[]);
    assert!(stage.read("canary").is_some());
}

#[test]
fn a_reader_who_is_slow_does_not_stop_the_time_limit() {
    let stage = Stage::new();
    // Far more than a pipe and the queue of events hold, and nobody reads.
    let script = "echo $$ > pid; while :; do head -c 1000000 /dev/zero; done";
    let mut child = stage.spawn_sh_with(&["--timeout", "1s"], script).start();
    let pid = stage.wait_for("pid").trim().parse().unwrap();
    assert!(until(SOON, || !is_alive(pid)), "the program runs on while nobody reads");
    drop(child.stdout.take());
    child.wait().unwrap();
}

#[test]
fn a_reader_who_goes_away_ends_the_run_and_nothing_survives() {
    let stage = Stage::new();
    let mut child = stage.spawn_sh("echo $$ > pid; while :; do echo line; sleep 0.01; done").start();
    let pid = stage.wait_for("pid").trim().parse().unwrap();
    let mut first = [0u8; 5];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"line\n");
    let code = child.wait().unwrap().code();
    assert_eq!(code, Some(141));
    assert!(until(SOON, || !is_alive(pid)), "the program survived");
}

#[test]
fn a_full_disk_under_the_output_is_our_failure_and_nothing_survives() {
    let stage = Stage::new();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ended = stage.spawn_sh("echo $$ > pid; echo line; exec sleep 60").stdout(full).run();
    assert_eq!(ended.code, 125, "{ended:?}");
    let pid = stage.wait_for("pid").trim().parse().unwrap();
    assert!(until(SOON, || !is_alive(pid)), "the program survived");
}

#[test]
fn r02_memory_over_the_limit_is_reported_as_memory() {
    let stage = Stage::new();
    let script =
        "for n in 1 2 3 4 5 6 7 8; do head -c 25000000 /dev/zero | tail -n 1 | (sleep 9; cat) > /dev/null & done; wait";
    let outcome = stage.spawn_sh_with(&["--json", "--memory", "64MiB"], script).run().expect(137, &[]).json();
    assert_eq!((&outcome["status"], &outcome["oomKilled"]), (&"outOfMemory".into(), &true.into()));
    assert_eq!(outcome["violations"][0]["rule"], "proc.memory");
}

#[test]
fn r01_too_many_processes_are_reported_as_such_and_the_next_run_starts_at_once() {
    let stage = Stage::new();
    let bomb = "n=0; while [ $n -lt 100 ]; do sleep 20 & n=$((n+1)); done; wait";
    let outcome = stage.spawn_sh_with(&["--json", "--processes", "20"], bomb).run().expect(137, &[]).json();
    assert_eq!(outcome["status"], "tooManyProcesses");
    let begin = Instant::now();
    stage.spawn_sh("true").run().expect(0, &[]);
    assert!(begin.elapsed() < Duration::from_secs(5));
}
