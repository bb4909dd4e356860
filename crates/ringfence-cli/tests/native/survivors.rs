//! R11: many runs at once, and supervisors that are killed, leave nothing behind.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use ringfence_testkit::canary::{is_alive, until};
use rustix::process::{Pid, Signal, kill_process};

use crate::probe::{Wall, run, walled};
use crate::stage::Stage;

const RUNS: usize = 40;
const MANY_RUNS: usize = 200;

/// Control groups of ours whose supervisor is one of `supervisors`.
fn groups(supervisors: &BTreeSet<u32>) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let points = mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    let below = own.lines().filter_map(|line| line.rsplit(':').next()).collect::<BTreeSet<_>>();
    points
        .flat_map(|point| below.iter().map(move |path| format!("{point}{path}")))
        .filter_map(|folder| fs::read_dir(folder).ok())
        .flat_map(|entries| entries.flatten())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            let supervisor = name.strip_prefix("rf-").and_then(|rest| rest.split('-').next()?.parse().ok());
            supervisor.is_some_and(|pid| supervisors.contains(&pid))
        })
        .collect()
}

/// Processes of the host that sleep for `seconds`, which nobody else does.
fn sleepers(seconds: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let sleeps = format!("sleep\0{seconds}\0");
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| is_alive(*pid))
        .filter(|pid| fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == sleeps.as_bytes()))
        .collect()
}

/// Processes that were started by one of ours and still run the binary: guests.
fn guests(stage: &Stage) -> Vec<u32> {
    let work = stage.work();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "ringfence-guest")
        })
        .filter(|pid| {
            let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
            mounts.contains(work.to_str().unwrap())
        })
        .collect()
}

/// Numbers that nobody chose; the seed is told when a test fails.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// What is to become of a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its program ends with this code.
    Ends(i32),
    /// It is killed so many milliseconds after its start, mostly while it raises its wall.
    KilledSoon(u64),
    /// It is killed while its program runs.
    KilledLater,
}

impl Fate {
    fn choose(chance: &mut Chance) -> Self {
        match chance.below(4) {
            0 => Self::Ends(i32::try_from(chance.below(100)).unwrap()),
            1 => Self::KilledSoon(chance.below(120)),
            _ => Self::KilledLater,
        }
    }

    fn script(self, mark: &str) -> String {
        let daemon = format!("(setsid sh -c 'trap \"\" TERM; sleep {mark}; :' > /dev/null 2>&1 &)");
        match self {
            Self::Ends(code) => format!("{daemon}; sleep 0.2; exit {code}"),
            Self::KilledSoon(_) | Self::KilledLater => format!("{daemon}; sleep {mark}; :"),
        }
    }
}

#[test]
fn r11_measured_two_hundred_runs_at_once_with_supervisors_killed_at_random_leave_nothing_behind() {
    let Some(stage) = walled() else { return };
    let mark = format!("97{}", std::process::id());
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    let mut chance = Chance(seed.into());
    let mounts_before = fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count();
    let mut runs = Vec::new();
    for _ in 0..MANY_RUNS {
        let fate = Fate::choose(&mut chance);
        let child = run(&stage, Wall::Native, &["--timeout", "60s"], &["sh", "-c", &fate.script(&mark)]).start();
        runs.push((fate, Instant::now(), child));
        std::thread::sleep(Duration::from_millis(chance.below(8)));
        for (fate, started, child) in &runs {
            if matches!(fate, Fate::KilledSoon(after) if started.elapsed() > Duration::from_millis(*after)) {
                // It stays a zombie until it is waited for, so the number is its own.
                kill_process(Pid::from_child(child), Signal::KILL).unwrap();
            }
        }
    }
    let supervisors: BTreeSet<u32> = runs.iter().map(|(_, _, child)| child.id()).collect();
    let later = runs.iter().filter(|(fate, ..)| *fate == Fate::KilledLater).count();
    let started = until(Duration::from_secs(40), || sleepers(&mark).len() >= later);
    assert!(started, "seed {seed}: of {later} runs {} ever started", sleepers(&mark).len());
    assert!(!guests(&stage).is_empty(), "guests would not be found");
    assert!(!crate::probe::is_root() || !groups(&supervisors).is_empty(), "control groups would not be found");
    for (_, _, child) in runs.iter().filter(|(fate, ..)| !matches!(fate, Fate::Ends(_))) {
        kill_process(Pid::from_child(child), Signal::KILL).unwrap();
        std::thread::sleep(Duration::from_millis(chance.below(4)));
    }
    for (fate, _, mut child) in runs {
        let status = child.wait().unwrap();
        if let Fate::Ends(code) = fate {
            assert_eq!(status.code(), Some(code), "seed {seed}: the end of another disturbed a run");
        }
    }
    assert!(until(Duration::from_secs(10), || sleepers(&mark).is_empty()), "seed {seed}: programs survived");
    assert!(until(Duration::from_secs(10), || guests(&stage).is_empty()), "seed {seed}: guests survived");
    // The next start removes what a killed supervisor could not, or another one's that comes first.
    run(&stage, Wall::Native, &[], &["true"]).run().expect(0, &[]);
    let removed = until(Duration::from_secs(5), || groups(&supervisors).is_empty());
    assert!(removed, "seed {seed}: control groups are left: {:?}", groups(&supervisors));
    assert_eq!(fs::read_to_string("/proc/self/mountinfo").unwrap().lines().count(), mounts_before, "mounts are left");
    let scratch = stage.state().join("scratch");
    assert_eq!(fs::read_dir(scratch).map_or(0, Iterator::count), 0, "scratch folders are left");
    assert_eq!(fs::read_dir(stage.path().join("tmp")).unwrap().count(), 0, "something is left in TMPDIR");
    stage.ringfence(["log", "verify"]).run().expect(0, &[]);
}

#[test]
fn r11_measured_forty_runs_at_once_all_end_as_they_should() {
    let Some(stage) = walled() else { return };
    let children: Vec<_> = (0..RUNS)
        .map(|number| {
            run(&stage, Wall::Native, &[], &["sh", "-c", &format!("echo run {number}; exit {number}")]).start()
        })
        .collect();
    let supervisors: BTreeSet<u32> = children.iter().map(std::process::Child::id).collect();
    for (number, child) in children.into_iter().enumerate() {
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), i32::try_from(number).ok(), "{stderr}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), format!("run {number}\n"), "{stderr}");
    }
    assert_eq!(groups(&supervisors), Vec::<String>::new(), "control groups are left");
}

/// Processes that carry `mark` in the environment that they were started with.
fn marked(mark: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let environments = entries.filter_map(|entry| fs::read(entry.path().join("environ")).ok());
    environments.filter(|bytes| bytes.windows(mark.len()).any(|part| part == mark.as_bytes())).count()
}

#[test]
fn a_guest_that_was_made_early_and_is_not_needed_ends_with_its_command() {
    let Some(stage) = walled() else { return };
    let mark = format!("MARK_OF_A_TEST={}", std::process::id());
    let value = mark.split_once('=').unwrap().1;
    let mut child = run(&stage, Wall::Native, &[], &["sleep", "5"]).env("MARK_OF_A_TEST", value).start();
    assert!(until(Duration::from_secs(5), || marked(&mark) > 0), "marked processes would not be found");
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    let bad = stage.write("bad.yaml", "version: 2\n");
    for flags in [
        vec!["--policy", bad.to_str().unwrap()],
        vec!["--backend", "docker"],
        vec!["--env", "LD_PRELOAD=/x"],
        vec!["--no-such-flag"],
    ] {
        let words = ["run"].into_iter().chain(flags.iter().copied()).chain(["--", "true"]);
        let ended = stage.ringfence(words).env("MARK_OF_A_TEST", value).run();
        assert_ne!(ended.code, 0, "{flags:?}: the wall was needed");
        assert!(until(Duration::from_secs(2), || marked(&mark) == 0), "{flags:?}: something is left");
    }
}
