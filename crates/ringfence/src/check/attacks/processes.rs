//! What of the host's processes can be seen and signalled, what goes in, and what stays.

use std::time::Duration;

use ringfence_policy::TimeSpan;

use super::super::attack::{Attack, Control, Ended, Found, Probe};
use super::super::host::{Bystander, LeakedDescriptor, Nap};
use crate::Guarantee;

const SOON: Duration = Duration::from_secs(5);
const SEEN_ALIVE: &str = "the host sees the child alive during the run";

/// What is left when the program ends.
pub(super) const ENDS: &[Attack] = &[
    Attack {
        id: "R08-background",
        guarantee: Guarantee::PromptReturn,
        tries: "leave a child that holds the output open",
        control: Control::Own(SEEN_ALIVE),
        needs: &[],
        applies: |_| true,
        set: |_, _, _| {
            Ok(Probe::new("sleep $1 & sleep 0.2", |ended| {
                Ok(if ended.elapsed > SOON {
                    Found::GotThrough(format!("it returned after {} s", ended.elapsed.as_secs()))
                } else {
                    was_alive(ended, Found::Stopped)
                })
            })
            .napping(Nap::long()?))
        },
    },
    Attack {
        id: "R07-daemon",
        guarantee: Guarantee::NoSurvivors,
        tries: "leave a daemon in a session of its own",
        control: Control::Own(SEEN_ALIVE),
        needs: &["setsid"],
        applies: |_| true,
        set: |_, _, _| {
            let script =
                "(setsid sh -c 'trap \"\" TERM HUP INT; sleep $0; :' $1 > /dev/null 2>&1 < /dev/null &); sleep 0.2";
            Ok(Probe::new(script, |ended| {
                Ok(match ended.left {
                    0 => was_alive(ended, Found::Stopped),
                    left => Found::GotThrough(format!("{left} processes outlived the run")),
                })
            })
            .napping(Nap::long()?))
        },
    },
];

fn was_alive(ended: &Ended<'_>, found: Found) -> Found {
    if ended.seen.most > 0 { found } else { Found::Unclear("the host never saw the child alive".to_owned()) }
}

/// What goes in, and what can be seen.
pub(super) const SEEN: &[Attack] = &[
    Attack {
        id: "S01-environment",
        guarantee: Guarantee::CleanEnvironment,
        tries: "read a variable of the host",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, _, _| {
            let variable = super::super::arena::VARIABLE;
            let script = format!("echo \"value: ${variable}\"; env; tr '\\0' '\\n' < /proc/self/environ");
            // Its value is the engine's, and only its name is known here.
            Ok(Probe::new(script, move |ended| {
                let is_there = ended.outcome.stdout.lines().any(|line| line.starts_with(&format!("{variable}=")));
                let has_value = ended.outcome.stdout.contains("value: canary-");
                Ok(Found::when(is_there || has_value, "a variable of the host is inside"))
            }))
        },
    },
    Attack {
        id: "F14-descriptor",
        guarantee: Guarantee::CleanDescriptors,
        tries: "read by a descriptor that we left open",
        control: Control::Own("we read through it ourselves, by its number"),
        needs: &[],
        applies: |_| true,
        set: |_, _, _| {
            let leaked = LeakedDescriptor::open()?;
            let (number, secret) = (leaked.number(), leaked.secret.clone());
            let script = "for fd in $1 $(seq 3 40); do cat /proc/self/fd/$fd /proc/$$/fd/$fd; done";
            Ok(Probe::new(script, move |ended| {
                let out = ended.outcome.stdout.contains(&secret);
                drop(leaked);
                Ok(Found::when(out, "what the descriptor leads to came out"))
            })
            .with(number.to_string()))
        },
    },
    Attack {
        id: "S05-forgery",
        guarantee: Guarantee::CleanDescriptors,
        tries: "write to every descriptor, and tell a result that is not its own",
        control: Control::Own("we wrote through one ourselves, by its number"),
        needs: &[],
        applies: |_| true,
        set: |_, _, _| {
            let leaked = LeakedDescriptor::writable()?;
            let number = leaked.number();
            let script = "for fd in $1 $(seq 3 40); do
                (printf '{\"status\":\"exited\",\"exitCode\":0}\\n' > /proc/self/fd/$fd); (printf 'RF\\001\\000' >&$fd)
                done; echo '{\"status\":\"exited\",\"exitCode\":0}'; exit 7";
            Ok(Probe::new(script, move |ended| {
                if leaked.was_written()? {
                    return Ok(Found::GotThrough("what it wrote came out at a descriptor of ours".to_owned()));
                }
                Ok(match ended.outcome.exit_code {
                    Some(7) => Found::Stopped,
                    other => Found::GotThrough(format!("it exited with 7, and {other:?} was told")),
                })
            })
            .with(number.to_string())
            .stopped_on_its_way())
        },
    },
    Attack {
        id: "S01-processes",
        guarantee: Guarantee::ProcessesHidden,
        tries: "read the command line of a host's process",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, _, _| {
            let bystander = Bystander::start()?;
            let (pid, secret) = (bystander.pid(), bystander.secret.clone());
            // Of all that it can read it tells canaries only.
            let script = "grep -aho 'canary-[0-9a-f]*' /proc/$1/cmdline /proc/$1/environ /proc/[0-9]*/cmdline";
            Ok(Probe::new(script, move |ended| {
                let out = ended.outcome.stdout.contains(&secret);
                drop(bystander);
                Ok(Found::when(out, "the command line of a host's process came out"))
            })
            .with(pid.to_string()))
        },
    },
    Attack {
        id: "N11-signal",
        guarantee: Guarantee::ProcessesHidden,
        tries: "kill a process of the host",
        control: Control::WithoutWall,
        needs: &[],
        applies: |_| true,
        set: |_, _, _| {
            let mut bystander = Bystander::start()?;
            let pid = bystander.pid();
            let mut probe = Probe::new("kill -9 $1; sleep 0.1", move |_| {
                Ok(Found::when(bystander.died()?, "a process of the host was killed"))
            })
            .with(pid.to_string());
            probe.limits.proc.timeout = TimeSpan::new(SOON).ok();
            Ok(probe)
        },
    },
];
