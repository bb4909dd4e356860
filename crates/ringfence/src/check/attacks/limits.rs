//! Time, output, memory, processes and other amounts. Each is tried with a narrow limit and a bounded attack, so that even
//! one that gets through does the host no harm.

use std::time::Duration;

use ringfence_policy::{Bytes, TimeSpan};

use super::super::attack::{Attack, Control, Found, Probe};
use super::super::host::{Nap, secret};
use crate::{Evidence, Guarantee, Status, Strength};

const TIME_LIMIT: Duration = Duration::from_millis(300);
const OUTPUT: u64 = 4 * 1024;
const MUCH_OUTPUT: u64 = 64 * 1024;
const MEMORY: u64 = 32 << 20;
const MUCH_MEMORY: u64 = 96_000_000;
const PROCESSES: u32 = 16;
const MANY_PROCESSES: u32 = 100;
/// Where they are counted by looking, a few more than the limit are there before the kernel's own limit.
const SLACK: u32 = 40;
/// A higher limit is not tried: the probe needs an argument for each file.
const MOST_FILES: u32 = 20_000;

/// What the supervisor keeps.
pub(super) const TIME: &[Attack] = &[
    Attack {
        id: "R09-deadline",
        guarantee: Guarantee::TimeLimit,
        tries: "ignore polite signals and pass the deadline",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, policy, _| {
            let grace = policy.proc.grace.value.get();
            let long = TIME_LIMIT + grace + Duration::from_millis(500);
            let done = secret()?;
            let script = format!("trap '' TERM INT HUP; sleep {}; echo {done}", long.as_secs_f32());
            let mut probe = Probe::new(script, move |ended| {
                let finished = ended.outcome.stdout.contains(&done);
                Ok(Found::when(finished, "the program went on until its own end"))
            })
            .stopped_on_its_way();
            probe.limits.proc.timeout = TimeSpan::new(TIME_LIMIT).ok();
            Ok(probe)
        },
    },
    Attack {
        id: "R06-flood",
        guarantee: Guarantee::OutputLimit,
        tries: "print 64KiB where 4KiB are kept",
        control: Control::WithoutWall,
        needs: &[],
        applies: |policy| policy.proc.output.value.get() > MUCH_OUTPUT,
        set: |_, _, _| {
            let script = format!("head -c {MUCH_OUTPUT} /dev/zero | tr '\\0' x; echo");
            let mut probe = Probe::new(script, |ended| {
                let kept = u64::try_from(ended.outcome.stdout.len()).unwrap_or(u64::MAX);
                Ok(Found::when(kept >= MUCH_OUTPUT, format!("{kept} bytes were kept")))
            });
            probe.limits.proc.output = Some(Bytes::new(OUTPUT));
            Ok(probe)
        },
    },
];

/// What the kernel keeps, or is looked at.
pub(super) const AMOUNTS: &[Attack] = &[
    Attack {
        id: "R02-memory",
        guarantee: Guarantee::Memory,
        tries: "hold 96MB in memory where 32MiB are allowed",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, policy, _| {
            // `tail` holds a line until it has ended, and this one does not end before all of it is there.
            let script = format!("head -c {MUCH_MEMORY} /dev/zero | tail -n 1 | wc -c");
            let mut probe = Probe::new(script, |ended| {
                let held = ended.outcome.stdout.contains(&MUCH_MEMORY.to_string());
                Ok(Found::when(held, "all of it was held"))
            })
            .stopped_on_its_way();
            probe.limits.proc.memory = Some(Bytes::new(policy.proc.memory.value.get().min(MEMORY)));
            Ok(probe)
        },
    },
    Attack {
        id: "R01-processes",
        guarantee: Guarantee::Processes,
        tries: "run 100 processes at once where 16 may",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, policy, _| {
            let most = policy.proc.processes.value.min(PROCESSES);
            let script = format!("n=0; while [ $n -lt {MANY_PROCESSES} ]; do sleep $1 & n=$((n+1)); done; sleep 0.3");
            let mut probe = Probe::new(script, move |ended| {
                let seen = ended.seen.most;
                // It may be over before the host looks.
                if seen == 0 && ended.outcome.status != Status::TooManyProcesses {
                    return Ok(Found::Unclear("the host saw none of them".to_owned()));
                }
                // What only looks now and then kills once it has seen too many; what enforces never lets them be.
                let watched =
                    |one: &Evidence| one.guarantee == Guarantee::Processes && one.strength == Strength::Watched;
                let is_watched = ended.outcome.enforced.iter().any(watched);
                if is_watched && ended.outcome.status == Status::TooManyProcesses {
                    return Ok(Found::Stopped);
                }
                let too_many = u32::try_from(seen).is_ok_and(|seen| seen > most + SLACK);
                Ok(Found::when(too_many, format!("{seen} ran at once")))
            })
            .napping(Nap::long()?)
            .stopped_on_its_way();
            probe.limits.proc.processes = Some(most);
            probe.limits.proc.timeout = TimeSpan::new(Duration::from_secs(3).min(policy.proc.timeout.value.get())).ok();
            Ok(probe)
        },
    },
    Attack {
        id: "R03-large-file",
        guarantee: Guarantee::FileSize,
        tries: "write beyond the largest size of a file",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, policy, _| {
            let most = policy.proc.file_size.value.get();
            // A hole: it takes no room, where it can be made.
            let script = format!(
                "[ -w . ] || cd \"$HOME\"; echo x > fill
                (dd if=/dev/zero of=fill bs=1 count=1 seek={most} 2> /dev/null); sleep $1; rm -f fill"
            );
            Ok(Probe::new(script, move |ended| {
                let filled = ended.seen.look.as_ref().map_or(0, |look| look.filled);
                Ok(match filled {
                    0 => Found::Unclear("the host saw nothing that was written".to_owned()),
                    size => Found::when(size > most, format!("a file of {size} bytes was made")),
                })
            })
            .napping(Nap::until_seen()?))
        },
    },
    Attack {
        id: "R05-open-files",
        guarantee: Guarantee::OpenFiles,
        tries: "open more files than one process may",
        control: Control::WithoutWall,
        needs: &[],
        applies: |policy| policy.proc.open_files.value <= MOST_FILES,
        set: |_, policy, _| {
            let many = policy.proc.open_files.value + 40;
            // `paste` holds all its files open at once.
            let script = format!(
                "(ulimit -n \"$(ulimit -Hn)\"; paste $(yes /dev/null | head -n {many}) > /dev/null 2>&1 && sleep $1)"
            );
            Ok(Probe::for_nap(script, Nap::until_seen()?, "all of them were open at once"))
        },
    },
    Attack {
        id: "S03-core",
        guarantee: Guarantee::NoCoreFile,
        tries: "let a crash leave a core",
        control: Control::WithoutWall,
        needs: &[],
        // A host that forbids it to us leaves nothing to attack.
        applies: |_| rustix::process::getrlimit(rustix::process::Resource::Core).maximum != Some(0),
        set: |_, _, _| {
            let script = "(ulimit -c unlimited) 2> /dev/null && ulimit -c unlimited; sleep $1";
            Ok(Probe::new(script, |ended| {
                let Some(look) = &ended.seen.look else {
                    return Ok(Found::Unclear("the host did not see the probe".to_owned()));
                };
                let limit = look.limit("Max core file size");
                let is_none = limit.parse::<u64>().is_ok_and(|bytes| bytes <= 1);
                Ok(Found::when(!is_none, format!("a core may have {limit} bytes")))
            })
            .napping(Nap::until_seen()?))
        },
    },
];
