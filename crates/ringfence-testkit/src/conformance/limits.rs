//! Time, output, survivors, memory, processes and other amounts.

use std::fs;
use std::time::Duration;

use ringfence::Guarantee;

use super::{Allowed, Case, Ended, Probe, Setting};
use crate::Trouble;
use crate::canary::{Heartbeat, Witness, is_marked_alive, secret};
use crate::place::Place;

const OUTPUT_CAP: usize = 64 * 1024;
const FILE_CAP: u64 = 1024 * 1024;
/// Of one processor, for a probe that asks for a whole one.
const CPU_SHARE: f64 = 0.3;

pub(super) fn cases() -> Vec<Case> {
    let proc = |proc| Setting { proc, ..Setting::DIRECT };
    vec![
        Case {
            id: "R09-ignores-the-polite-signal",
            guarantee: Guarantee::TimeLimit,
            setting: proc("timeout: 1s, grace: 200ms"),
            allowed: Allowed::Writes(": > allowed"),
            forbidden: |place| Ok(marks(place, "trap '' TERM INT HUP; sleep 4; : > reached")),
        },
        Case {
            id: "R09-leaves-the-session",
            guarantee: Guarantee::TimeLimit,
            setting: proc("timeout: 1s, grace: 200ms"),
            allowed: Allowed::Writes("sleep 0.2; : > allowed"),
            forbidden: |place| Ok(marks(place, "setsid sh -c \"trap '' TERM; sleep 4; : > reached\"")),
        },
        Case {
            id: "R06-stdout",
            guarantee: Guarantee::OutputLimit,
            setting: proc("timeout: 20s, output: 64KiB"),
            allowed: Allowed::PrintsNote("cat note"),
            forbidden: |_| Ok(Probe::new("head -c 4000000 /dev/zero | tr '\\0' x", kept_too_much)),
        },
        Case {
            id: "R08-background-child-holds-the-pipe",
            guarantee: Guarantee::PromptReturn,
            setting: Setting::DIRECT,
            allowed: Allowed::Writes("sleep 0.1 & wait; : > allowed"),
            forbidden: |_| {
                Ok(Probe::new("(sleep 5 &); echo done", |ended| {
                    let late = ended.wall > Duration::from_secs(4);
                    Ok(late.then(|| format!("it returned after {:?}", ended.wall)))
                }))
            },
        },
        Case {
            id: "R07-daemon-that-ignores-signals",
            guarantee: Guarantee::NoSurvivors,
            setting: Setting::DIRECT,
            allowed: Allowed::Writes("(: > allowed) & wait"),
            forbidden: |place| survives(place, "(setsid sh -c \"trap '' TERM HUP INT; $1\" \"$2\" &)"),
        },
        Case {
            id: "R07-daemon-that-forks-twice",
            guarantee: Guarantee::NoSurvivors,
            setting: Setting::DIRECT,
            allowed: Allowed::Writes("(: > allowed) & wait"),
            forbidden: |place| survives(place, "(setsid sh -c \"(setsid sh -c '$1' $2 &)\" &)"),
        },
        Case {
            id: "R02-one-process",
            guarantee: Guarantee::Memory,
            setting: proc("timeout: 20s, memory: 64MiB"),
            allowed: Allowed::Writes(
                "[ \"$(head -c 1000000 /dev/zero | tail -n 1 | wc -c)\" = 1000000 ] && : > allowed",
            ),
            forbidden: |place| {
                let script = "[ \"$(head -c 250000000 /dev/zero | tail -n 1 | wc -c)\" = 250000000 ] && : > reached";
                Ok(marks(place, script))
            },
        },
        Case {
            id: "R02-many-processes",
            guarantee: Guarantee::Memory,
            setting: proc("timeout: 20s, memory: 64MiB"),
            allowed: Allowed::Writes(": > allowed"),
            forbidden: |place| {
                // Each holds its share as one unfinished line until its reader wakes up. Only if none of them was killed
                // was all of it held at once; a kernel that kills some of them lets the others end.
                let script = "for n in 1 2 3 4 5 6 7 8; do head -c 25000000 /dev/zero | tail -n 1 | \
                              (sleep 3; wc -c) > size$n & done; wait; all=0; for n in 1 2 3 4 5 6 7 8; do \
                              all=$((all + $(cat size$n))); done; [ $all = 200000000 ] && : > reached";
                Ok(marks(place, script))
            },
        },
        Case {
            id: "R01-many-processes",
            guarantee: Guarantee::Processes,
            setting: proc("timeout: 20s, processes: 20"),
            allowed: Allowed::Writes("for n in 1 2 3 4 5; do sleep 0.1 & done; wait; : > allowed"),
            forbidden: |place| {
                let script = "n=0; while [ $n -lt 60 ]; do sleep 9 & n=$((n+1)); done; sleep 1; : > reached; \
                              kill $(jobs -p)";
                Ok(marks(place, script))
            },
        },
        Case {
            id: "R03-one-large-file",
            guarantee: Guarantee::FileSize,
            setting: proc("timeout: 20s, file_size: 1MiB"),
            allowed: Allowed::Writes("head -c 500000 /dev/zero > small && : > allowed"),
            forbidden: |place| {
                let big = place.workspace().join("big");
                // Whoever may raise the limit again has none.
                Ok(Probe::new("ulimit -f unlimited; head -c 4000000 /dev/zero > big", move |_| {
                    let size = fs::metadata(&big).map_or(0, |metadata| metadata.len());
                    Ok((size > FILE_CAP).then(|| format!("a file of {size} bytes was written")))
                }))
            },
        },
        Case {
            id: "R05-descriptors",
            guarantee: Guarantee::OpenFiles,
            setting: proc("timeout: 20s, open_files: 64"),
            allowed: Allowed::Writes("paste /dev/null /dev/null /dev/null && : > allowed"),
            forbidden: |place| {
                // `paste` holds all its files open at once.
                Ok(marks(place, "ulimit -n 1000; paste $(yes /dev/null | head -n 200) && : > reached"))
            },
        },
        Case {
            id: "S03-crash",
            guarantee: Guarantee::NoCoreFile,
            setting: Setting::DIRECT,
            allowed: Allowed::Writes(": > allowed"),
            forbidden: crash,
        },
        Case {
            id: "R05-busy-loop",
            guarantee: Guarantee::Cpus,
            setting: proc("timeout: 20s, cpus: 0.3"),
            allowed: Allowed::Writes(": > allowed"),
            forbidden: |_| {
                let mark = secret()?;
                let witness = Witness::start(mark.clone());
                let script = "n=0; while [ $n -lt 2000000 ]; do n=$((n+1)); done";
                Ok(Probe::new(script, move |ended| {
                    let used = witness.finish().map_or(0, |seen| seen.cpu_ticks);
                    #[allow(clippy::cast_precision_loss, reason = "a few hundred ticks")]
                    let share = used as f64 / rustix::param::clock_ticks_per_second() as f64 / ended.wall.as_secs_f64();
                    Ok((share > CPU_SHARE * 1.5).then(|| format!("it used {share:.2} processors")))
                })
                .with(mark))
            },
        },
    ]
}

/// A probe that leaves the file `reached` when it gets through.
pub(super) fn marks(place: &Place, script: &str) -> Probe {
    let mark = place.workspace().join("reached");
    Probe::new(script, move |_| Ok(mark.exists().then(|| "the probe went through to its end".to_owned())))
}

fn kept_too_much(ended: &Ended) -> Result<Option<String>, Trouble> {
    // A line says how much was left out.
    let kept = ended.stdout.len();
    Ok((kept > OUTPUT_CAP + 200).then(|| format!("{kept} bytes were kept")))
}

/// A probe whose child goes on beating after its end.
fn survives(place: &Place, start: &str) -> Result<Probe, Trouble> {
    let heart = Heartbeat::watch(place.workspace());
    // Where the workspace is not the host's, its heart is not heard here; its name is still seen.
    let mark = secret()?;
    let name = mark.clone();
    let script = format!(
        "{start} > /dev/null 2>&1 < /dev/null; n=0; while [ ! -s beat ] && [ $n -lt 100 ]; do n=$((n+1)); sleep 0.05; done"
    );
    let probe = Probe::new(script, move |_| {
        let lives = heart.goes_on() || is_marked_alive(&name);
        Ok(lives.then(|| "a process outlived its run".to_owned()))
    });
    Ok(probe.with(Heartbeat::LOOP).with(mark))
}

fn crash(place: &Place) -> Result<Probe, Trouble> {
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").map_err(Trouble::io("read the core pattern"))?;
    let workspace = place.workspace();
    let mark = secret()?;
    let witness = Witness::start(mark.clone());
    let script = "ulimit -c unlimited; sleep 0.5; kill -SEGV $$";
    Ok(Probe::new(script, move |_| {
        let seen = witness.finish();
        if !pattern.starts_with(['|', '/']) {
            let file = fs::read_dir(&workspace)
                .map_err(Trouble::io("look for a core file"))?
                .flatten()
                .find(|entry| entry.file_name() != "reached" && entry.file_name() != "allowed");
            return Ok(file.map(|file| format!("{} was written", file.path().display())));
        }
        // Cores of this host go elsewhere; what the kernel would let the process write is told by its limit.
        let limit =
            seen.as_ref().and_then(|seen| seen.limits.lines().find(|line| line.starts_with("Max core file size")));
        let lifted = limit.is_some_and(|line| !matches!(line.split_whitespace().nth(4), Some("0" | "1")));
        Ok(lifted.then(|| format!("the crash may write a core: {}", limit.unwrap_or_default())))
    })
    .with(mark))
}
