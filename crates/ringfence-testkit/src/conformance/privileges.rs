//! Environment, descriptors, privileges and other processes.

use std::fs;

use ringfence::Guarantee;

use super::{Allowed, Case, Probe, Setting};
use crate::Trouble;
use crate::canary::{LeakedDescriptor, ProcessCanary, Seen, Witness, secret};
use crate::place::Place;

pub(super) fn cases() -> Vec<Case> {
    let plain = Allowed::Writes(": > allowed");
    vec![
        Case {
            id: "S01-variable",
            guarantee: Guarantee::CleanEnvironment,
            setting: Setting::DIRECT,
            allowed: Allowed::Writes("[ \"$LANG\" = C.UTF-8 ] && [ -n \"$PATH\" ] && : > allowed"),
            forbidden: |place| {
                let secret = secret()?;
                let script = "printf %s \"$CANARY_SECRET\" > stolen1; env > stolen2; cat /proc/self/environ > stolen3";
                let mut probe = steals(place, script, secret.clone());
                probe.environment = vec![("CANARY_SECRET".into(), secret.into())];
                Ok(probe)
            },
        },
        Case {
            id: "F14-leaked-descriptor",
            guarantee: Guarantee::CleanDescriptors,
            setting: Setting::DIRECT,
            allowed: Allowed::Writes("exec 9> allowed"),
            forbidden: |place| {
                let leaked = LeakedDescriptor::open()?;
                let number = leaked.number().to_string();
                let script = "cat /proc/self/fd/$1 > stolen1; cat /proc/$PPID/fd/$1 > stolen2";
                let mut probe = steals(place, script, leaked.secret().to_owned()).with(number);
                let judge = probe.reached;
                // The descriptor stays open until the probe has ended.
                probe.reached = Box::new(move |ended| {
                    let reached = judge(ended);
                    drop(leaked);
                    reached
                });
                Ok(probe)
            },
        },
        Case {
            id: "N01-no-new-privs",
            guarantee: Guarantee::NoNewPrivileges,
            setting: Setting::DIRECT,
            allowed: plain,
            forbidden: |_| {
                shows(|seen| (status(seen, "NoNewPrivs") != "1").then(|| "NoNewPrivs is not set".to_owned()))
            },
        },
        Case {
            id: "N01-capabilities",
            guarantee: Guarantee::Unprivileged,
            setting: Setting::DIRECT,
            allowed: plain,
            forbidden: |_| {
                shows(|seen| {
                    let some = ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"]
                        .into_iter()
                        .find(|name| status(seen, name).bytes().any(|digit| digit != b'0'));
                    some.map(|name| format!("{name} is {}", status(seen, name)))
                })
            },
        },
        Case {
            id: "N01-seccomp",
            guarantee: Guarantee::KernelFilter,
            setting: Setting::DIRECT,
            allowed: plain,
            forbidden: |_| shows(|seen| (status(seen, "Seccomp") != "2").then(|| "there is no filter".to_owned())),
        },
        Case {
            id: "N11-kill-a-process-of-the-host",
            guarantee: Guarantee::ProcessesHidden,
            setting: Setting::DIRECT,
            allowed: Allowed::Writes("sleep 9 & kill -9 $! && : > allowed"),
            forbidden: |_| {
                let process = ProcessCanary::start()?;
                let pid = process.pid().to_string();
                Ok(Probe::new("kill -9 $1", move |_| {
                    Ok(process.died().then(|| "a process of the host was killed".to_owned()))
                })
                .with(pid))
            },
        },
        Case {
            id: "S01-see-a-process-of-the-host",
            guarantee: Guarantee::ProcessesHidden,
            setting: Setting::DIRECT,
            allowed: Allowed::Writes("[ -r /proc/self/cmdline ] && : > allowed"),
            forbidden: |place| {
                let process = ProcessCanary::start()?;
                let (pid, secret) = (process.pid().to_string(), process.secret().to_owned());
                let mut probe =
                    steals(place, "cat /proc/$1/cmdline > stolen1; cat /proc/[0-9]*/cmdline > stolen2", secret)
                        .with(pid);
                let judge = probe.reached;
                probe.reached = Box::new(move |ended| {
                    let reached = judge(ended);
                    drop(process);
                    reached
                });
                Ok(probe)
            },
        },
    ]
}

/// A probe that copies a secret into files of the workspace.
pub(super) fn steals(place: &Place, script: &str, secret: String) -> Probe {
    let workspace = place.workspace();
    Probe::new(script, move |_| {
        let failed = || "look for stolen secrets";
        for entry in fs::read_dir(&workspace).map_err(Trouble::io(failed()))? {
            let path = entry.map_err(Trouble::io(failed()))?.path();
            let is_loot = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("stolen"));
            let bytes = if is_loot { fs::read(&path).unwrap_or_default() } else { Vec::new() };
            if bytes.windows(secret.len()).any(|window| window == secret.as_bytes()) {
                return Ok(Some(format!("{} holds the secret", path.display())));
            }
        }
        Ok(None)
    })
}

/// A probe that lives for a moment, so that the kernel can be asked about it.
fn shows(judge: fn(&Seen) -> Option<String>) -> Result<Probe, Trouble> {
    let mark = secret()?;
    let witness = Witness::start(mark.clone());
    Ok(Probe::new("sleep 0.5; :", move |_| match witness.finish() {
        Some(seen) => Ok(judge(&seen)),
        // A process that was not seen proves nothing, so it must not count as held.
        None => Ok(Some("the process was never seen from the host".to_owned())),
    })
    .with(mark))
}

fn status<'a>(seen: &'a Seen, name: &str) -> &'a str {
    seen.status.get(name).map_or("", String::as_str)
}
