//! One probe, behind the tier and without it.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::stage::{Ended, Stage};

/// Python's interpreter of the system, which every host of these tests has.
pub(crate) const PYTHON: &str = "/usr/bin/python3";

/// Where a probe runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wall {
    Tier,
    /// `spawn`: the program sees the host.
    Bare,
}

/// A stage on a host that has the tier. Where it has none, the test is skipped loudly, or fails if it was required.
pub(crate) fn fenced() -> Option<Stage> {
    fenced_with("fs: { workspace: { mode: read-only } }\n")
}

/// Likewise, with a policy.
pub(crate) fn fenced_with(policy: &str) -> Option<Stage> {
    let stage = Stage::with_policy(&format!("version: 1\n{policy}"));
    let ended = stage.ringfence(["doctor", "--json"]).run();
    let tier = ended.json()["backends"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["backend"] == "landlock").cloned())
        .unwrap_or_default();
    let is_there = tier["usable"] == true && Path::new(PYTHON).exists();
    let required = std::env::var("RINGFENCE_TEST_REQUIRE").is_ok_and(|list| list.split(',').any(|it| it == "landlock"));
    // It is not for root, so nothing can require it of root.
    assert!(is_there || !required || is_root(), "landlock was required: {tier}");
    if !is_there {
        eprintln!("SKIPPED: landlock cannot be used here: {tier}");
    }
    is_there.then_some(stage)
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// `ringfence run FLAGS… -- ARGV…` behind `wall`, quietly.
pub(crate) fn run(stage: &Stage, wall: Wall, flags: &[&str], argv: &[&str]) -> Ended {
    let name = match wall {
        Wall::Tier => "landlock",
        Wall::Bare => "spawn",
    };
    stage.ringfence([&["run", "-q", "--backend", name], flags, &["--"], argv].concat()).run()
}

/// A script for the shell, with arguments.
pub(crate) fn sh(stage: &Stage, wall: Wall, script: &str, arguments: &[&str]) -> Ended {
    run(stage, wall, &[], &[&["sh", "-c", script, "sh"], arguments].concat())
}

/// Likewise, in Python, with `libc` at hand. What goes wrong in one line does not stop the next.
pub(crate) fn python(stage: &Stage, wall: Wall, code: &str, arguments: &[&str]) -> Ended {
    let code = format!("{PRELUDE}\n{code}");
    run(stage, wall, &[], &[&[PYTHON, "-c", &code], arguments].concat())
}

const PRELUDE: &str = "
import ctypes, errno, os, signal, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return libc.syscall(ctypes.c_long(number), *given), ctypes.get_errno()
def attempt(act):
    try: return act()
    except Exception as error: print(error, file=sys.stderr)
";

/// A folder beside the workspace, which nothing shows.
pub(crate) fn outside(stage: &Stage) -> PathBuf {
    let folder = stage.path().join("outside");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A process of the same user that has nothing to do with a run; ended when dropped.
#[derive(Debug)]
pub(crate) struct Victim(Child);

impl Victim {
    pub(crate) fn start() -> Self {
        let mut command = Command::new("/bin/sleep");
        Self(command.arg("300").stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn id(&self) -> String {
        self.0.id().to_string()
    }

    pub(crate) fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }

    /// A file of its folder in `/proc`.
    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}
