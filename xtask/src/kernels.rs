//! Whether the wall holds on other kernels than this one: `ringfence check` and a few commands of every day, in machines of
//! Debian's releases, with cgroups of version 2 and systemd, as root and as an ordinary user.
//!
//! A machine takes some minutes, so this is no step of the test command. It is for whoever changes the wall, and for a release.

mod machine;

use std::process::ExitCode;

use machine::Machine;

use crate::step::{Failure, Paint, Screen, Verbosity, capture};
use crate::workspace::{BUILD_RELEASED, Workspace, current_uid};

/// What a machine says last.
const END: &str = "<that was all>";

/// A release, by the name that its packages have.
struct Kernel {
    suite: &'static str,
    stages: &'static [&'static [Stage]],
}

/// One thing that is tried in a machine.
#[derive(Debug, Clone, Copy)]
struct Stage {
    name: &'static str,
    who: Who,
    /// For a shell, in an empty folder.
    line: &'static str,
    ends: i32,
    /// What its output must say.
    says: &'static [&'static str],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Root,
    Person,
}

const HELD: &str = "EVERYTHING THAT WAS ATTACKED HELD";

const KERNELS: &[Kernel] = &[
    Kernel { suite: "bullseye", stages: &[WITHOUT_LANDLOCK, AT_LAST] },
    Kernel { suite: "bookworm", stages: &[WITH_ALL, AT_LAST] },
    Kernel { suite: "trixie", stages: &[WITH_ALL, WITH_APPARMOR, AT_LAST] },
    Kernel { suite: "sid", stages: &[WITH_ALL, WITH_APPARMOR, AT_LAST] },
];

/// What every kernel has to let us do that has all that the wall is made of.
const WITH_ALL: &[Stage] = &[
    Stage {
        name: "root: check",
        who: Who::Root,
        line: "ringfence check",
        ends: 0,
        says: &[HELD, "cgroups      v2", "22 enforced, 0 watched"],
    },
    // The twin of what is looked for at last.
    Stage {
        name: "root: a wall that stands is seen",
        who: Who::Root,
        line: "ringfence session start s > /dev/null && look && ringfence session stop s",
        ends: 0,
        says: &["/sys/fs/cgroup/ringfence/"],
    },
    Stage {
        name: "person: check",
        who: Who::Person,
        line: "ringfence check",
        ends: 0,
        says: &[HELD, "user         uid 1000", "backend      native"],
    },
    // Its limits need a group, which only systemd can give.
    Stage {
        name: "person: check under `strict`",
        who: Who::Person,
        line: "printf 'version: 1\\nextends: [preset:strict]\\n' > sandbox.policy.yaml; ringfence check",
        ends: 0,
        says: &[HELD, "22 enforced, 0 watched"],
    },
    Stage {
        name: "person: review and apply",
        who: Who::Person,
        line: "echo old > file; ringfence run -- sh -c 'echo new > file'; grep -qx old file && ringfence apply && cat file",
        ends: 0,
        says: &["new"],
    },
    Stage {
        name: "person: a session",
        who: Who::Person,
        line: "ringfence session start s && ringfence session exec s -- sh -c 'echo kept > /tmp/file' && \
            ringfence session exec s -- cat /tmp/file && ringfence session stop s",
        ends: 0,
        says: &["kept"],
    },
    Stage {
        name: "person: a limit of memory",
        who: Who::Person,
        line: "printf 'version: 1\\nproc: { limits: enforced }\\n' > sandbox.policy.yaml; \
            ringfence run --memory 64MiB -- python3 -c 'x = bytearray(300_000_000)'",
        ends: 137,
        says: &["proc.memory"],
    },
    Stage {
        name: "root: forbid user namespaces",
        who: Who::Root,
        line: "sysctl -w user.max_user_namespaces=0",
        ends: 0,
        says: &["= 0"],
    },
    // Nothing weaker takes the wall's place, and what forbids it is named.
    Stage {
        name: "person: where they are forbidden",
        who: Who::Person,
        line: "ringfence run -- true",
        ends: 125,
        says: &["user.max_user_namespaces = 0", "hint: "],
    },
];

/// Where AppArmor can say who may make user namespaces: its profile of a program, as a distribution ships them.
const WITH_APPARMOR: &[Stage] = &[
    Stage {
        name: "root: forbid them by AppArmor",
        who: Who::Root,
        line: "sysctl -q -w user.max_user_namespaces=10000; printf '%s\\n' 'abi <abi/4.0>,' \
            'profile ringfence /usr/local/bin/ringfence {' 'file, capability, network, mount, umount, pivot_root, ptrace,' \
            'signal, unix, dbus, change_profile, deny userns,' '}' | apparmor_parser -r && echo loaded",
        ends: 0,
        says: &["loaded"],
    },
    Stage {
        name: "person: where AppArmor forbids them",
        who: Who::Person,
        line: "ringfence run -- true",
        ends: 125,
        says: &["the AppArmor profile that this runs in, `ringfence", "hint: "],
    },
    Stage {
        name: "root: permit them by AppArmor",
        who: Who::Root,
        line: "printf '%s\\n' 'abi <abi/4.0>,' 'profile ringfence /usr/local/bin/ringfence flags=(unconfined) { userns, }' | \
            apparmor_parser -r && echo loaded",
        ends: 0,
        says: &["loaded"],
    },
    Stage {
        name: "person: where AppArmor permits them",
        who: Who::Person,
        line: "ringfence run -- echo hello",
        ends: 0,
        says: &["hello"],
    },
];

/// Before Linux 5.13, or where it was not chosen at the start.
const WITHOUT_LANDLOCK: &[Stage] = &[
    Stage {
        name: "root: refused",
        who: Who::Root,
        line: "ringfence run -- true",
        ends: 125,
        says: &["this kernel has no Landlock", "hint: "],
    },
    Stage {
        name: "person: refused",
        who: Who::Person,
        line: "ringfence run -- true",
        ends: 125,
        says: &["this kernel has no Landlock", "hint: "],
    },
    Stage {
        name: "person: no wall by name",
        who: Who::Person,
        line: "ringfence run --backend spawn -- echo without",
        ends: 0,
        says: &["without", "not enforced"],
    },
];

const AT_LAST: &[Stage] =
    &[Stage { name: "nothing is left", who: Who::Root, line: "sleep 1; look", ends: 1, says: &[] }];

/// What a stage can call to see what there is of ours: groups, mounts, processes and temporary files.
const LOOK: &str = "look() { { find /sys/fs/cgroup -mindepth 2 -name 'ringfence*' -o -path '*ringfence/*' -type d; \
    grep ringfence /proc/mounts; pgrep -a ringfence; find /tmp /var/tmp -name '*ringfence*'; } | grep .; }";

/// Tries `names`, or all of them, and prints a line for each thing that was tried.
pub(crate) fn try_all(workspace: &Workspace, names: &[&str]) -> Result<ExitCode, Failure> {
    if let Some(name) = names.iter().find(|name| KERNELS.iter().all(|kernel| kernel.suite != **name)) {
        let known = KERNELS.iter().map(|kernel| kernel.suite).collect::<Vec<_>>().join(", ");
        return Err(Failure::new(format!("there is no kernel of `{name}` here; there are {known}")));
    }
    if current_uid()? != 0 {
        return Err(Failure::new("machines are made as root: start this command with `sudo`"));
    }
    let mut screen = Screen::new(Verbosity::Summary);
    screen.begin(format!("{:<40}", "building what people install"));
    capture(&screen, workspace.cargo(BUILD_RELEASED))?.required()?;
    let program = workspace.released()?;
    screen.end(Paint::Good, "ok", "");
    let mut failed = 0;
    for kernel in KERNELS.iter().filter(|kernel| names.is_empty() || names.contains(&kernel.suite)) {
        screen.begin(format!("{:<40}", format!("{}: a machine of it", kernel.suite)));
        let machine = Machine::of(kernel.suite, workspace, &screen)?;
        let stages = kernel.stages.concat();
        let said = machine.run(&program, &script(&stages), workspace, &screen)?;
        let ended = Ended::all(&said);
        screen.end(Paint::Good, "ok", &format!("Linux {}", line_after(&said, "<kernel>").unwrap_or("unknown")));
        for stage in &stages {
            let wrong = ended
                .iter()
                .find(|ended| ended.name == stage.name)
                .map_or_else(|| Some("it was not tried".to_owned()), |ended| ended.differs_from(stage));
            match wrong {
                None => println!("  {} {}", screen.painted(Paint::Good, "ok    "), stage.name),
                Some(wrong) => {
                    failed += 1;
                    println!("  {} {}: {wrong}", screen.painted(Paint::Bad, "FAILED"), stage.name);
                    if let Some(ended) = ended.iter().find(|ended| ended.name == stage.name) {
                        screen.explain(&ended.said);
                    }
                }
            }
        }
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What a machine is to do for `stages`, as a script for bash. Each has an empty folder.
fn script(stages: &[Stage]) -> String {
    let mut script = String::from("export LANG=C.UTF-8; sysctl -q -w kernel.printk=1; echo '<kernel>'; uname -r\n");
    for (number, stage) in stages.iter().enumerate() {
        let shell = match stage.who {
            Who::Root => "bash -c",
            Who::Person => "su - person -c",
        };
        let place = format!("mkdir ~/stage-{number} && cd ~/stage-{number} || exit 1");
        let line = format!("export XDG_RUNTIME_DIR=/run/user/$(id -u); {place}; {LOOK}; {}", stage.line);
        // One word for the shell that reads the script.
        let word = line.replace('\'', "'\\''");
        let ended = "code=$?; echo; echo \"<ended $code>\"";
        script.push_str(&format!("echo '<stage {}>'; {shell} '{word}'; {ended}\n", stage.name));
    }
    script.push_str(&format!("echo '{END}'\n"));
    script
}

/// How one stage ended.
#[derive(Debug, PartialEq, Eq)]
struct Ended {
    name: String,
    said: String,
    code: i32,
}

impl Ended {
    /// Of all that a machine said.
    fn all(said: &str) -> Vec<Self> {
        let one = |rest: &str| {
            let (name, rest) = rest.split_once(">\n")?;
            let (said, rest) = rest.split_once("<ended ")?;
            let code = rest.split_once('>')?.0.parse().ok()?;
            Some(Self { name: name.to_owned(), said: said.to_owned(), code })
        };
        said.split("<stage ").skip(1).filter_map(one).collect()
    }

    /// What is not as `stage` says, in words.
    fn differs_from(&self, stage: &Stage) -> Option<String> {
        if self.code != stage.ends {
            return Some(format!("it ended with {} instead of {}", self.code, stage.ends));
        }
        let unsaid = stage.says.iter().find(|words| !self.said.contains(**words))?;
        Some(format!("it did not say `{unsaid}`"))
    }
}

fn line_after<'a>(text: &'a str, line: &str) -> Option<&'a str> {
    let mut lines = text.lines().skip_while(|found| *found != line);
    lines.next()?;
    lines.next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(ends: i32, says: &'static [&'static str]) -> Stage {
        Stage { name: "person: check", who: Who::Person, line: "echo 'one' two; exit 3", ends, says }
    }

    #[test]
    fn what_is_said_is_compared_with_what_was_to_be_said() {
        let said = "<kernel>\n6.1.0\n<stage person: check>\none two\n\n<ended 3>\n<that was all>\n";
        let ended = Ended::all(said);
        assert_eq!(ended.len(), 1);
        assert_eq!(line_after(said, "<kernel>"), Some("6.1.0"));
        let check = |stage: Stage, expected: Option<&str>| {
            assert_eq!(ended[0].differs_from(&stage).as_deref(), expected);
        };
        check(stage(3, &["one", "two"]), None);
        check(stage(0, &["one"]), Some("it ended with 3 instead of 0"));
        check(stage(3, &["three"]), Some("it did not say `three`"));
    }

    #[test]
    fn a_stage_that_was_cut_off_did_not_end() {
        assert_eq!(Ended::all("<stage a>\nsomething"), []);
        assert_eq!(Ended::all("<stage a>\nsomething\n<ended x>\n"), []);
        assert_eq!(Ended::all(""), []);
    }

    #[test]
    fn a_script_is_read_by_a_shell_as_it_was_meant() {
        let root = Stage { who: Who::Root, ..stage(3, &["one two"]) };
        let home = std::env::temp_dir().join(format!("ringfence-kernels-{}", std::process::id()));
        std::fs::create_dir(&home).unwrap();
        let output = std::process::Command::new("bash").env("HOME", &home).args(["-c", &script(&[root])]).output();
        std::fs::remove_dir_all(&home).unwrap();
        let said = String::from_utf8(output.unwrap().stdout).unwrap();
        let ended = Ended::all(&said);
        assert_eq!(ended.iter().map(|ended| ended.differs_from(&stage(3, &["one two"]))).collect::<Vec<_>>(), [None]);
        assert!(said.ends_with(&format!("{END}\n")), "{said}");
    }
}
