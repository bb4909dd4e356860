//! One probe, behind the wall and without it.

use std::path::{Path, PathBuf};

use crate::stage::{Ended, Invocation, Stage};

/// Where a probe runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wall {
    Native,
    /// `spawn`: the program sees the host.
    Bare,
    /// `none`: it has no limits either but time and output.
    Limitless,
}

impl Wall {
    fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Bare => "spawn",
            Self::Limitless => "none",
        }
    }
}

/// A stage on a host that has the wall. Where it has none, the test is skipped loudly, or fails if it was required.
pub(crate) fn walled() -> Option<Stage> {
    walled_with("")
}

/// Likewise, with more of a policy.
pub(crate) fn walled_with(policy: &str) -> Option<Stage> {
    let stage = Stage::with_policy(&format!("version: 1\n{policy}"));
    let ended = stage.ringfence(["doctor", "--json"]).run();
    let native = ended.json()["backends"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["backend"] == "native").cloned())
        .unwrap_or_default();
    let is_there = native["usable"] == true;
    let required = std::env::var("RINGFENCE_TEST_REQUIRE").is_ok_and(|list| list.split(',').any(|it| it == "native"));
    assert!(is_there || !required, "native was required: {native}");
    if !is_there {
        eprintln!("SKIPPED: native cannot be used here: {native}");
    }
    is_there.then_some(stage)
}

/// A stage that asks about hosts which no rule names. What answers for them is the proxy above ours, at a port of the host.
pub(crate) fn asking_about_hosts(net: &str, above: u16) -> Option<Stage> {
    let stage = walled_with(&format!("net: {{ mode: allowlist, unknown: ask, {net} }}\n"))?;
    // A repository does not choose it.
    let folder = stage.path().join("home/.config/ringfence");
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!("version: 1\nnet: {{ upstream: \"http://127.0.0.1:{above}\" }}\n");
    std::fs::write(folder.join("policy.yaml"), text).unwrap();
    Some(stage)
}

/// Likewise, with the folder beside the workspace at `/deps`.
pub(crate) fn walled_with_deps() -> Option<Stage> {
    let stage = walled()?;
    let mounts = format!("[{{ host: {}, at: /deps }}]", text(&outside(&stage)));
    stage.write("sandbox.policy.yaml", format!("version: 1\nfs: {{ mounts: {mounts} }}\n"));
    Some(stage)
}

/// `ringfence run FLAGS… -- ARGV…` behind `wall`, quietly.
pub(crate) fn run<'a>(stage: &'a Stage, wall: Wall, flags: &[&str], argv: &[&str]) -> Invocation<'a> {
    stage.ringfence([&["run", "-q", "--backend", wall.name()], flags, &["--"], argv].concat())
}

/// A script for the shell, with arguments.
pub(crate) fn sh(stage: &Stage, wall: Wall, script: &str, arguments: &[&str]) -> Ended {
    run(stage, wall, &[], &[&["sh", "-c", script, "sh"], arguments].concat()).run()
}

/// Likewise, in Python. `None`, loudly, where there is no Python.
pub(crate) fn python(stage: &Stage, wall: Wall, code: &str, arguments: &[&str]) -> Option<Ended> {
    let python = interpreter()?;
    Some(run(stage, wall, &[], &[&[python.to_str().unwrap(), "-c", code], arguments].concat()).run())
}

/// The system's Python rather than a version manager's.
pub(crate) fn interpreter() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(PathBuf::from("/usr/bin")).chain(std::env::split_paths(&path));
    let found = folders.map(|folder| folder.join("python3")).find(|file| file.is_file());
    if found.is_none() {
        eprintln!("SKIPPED: there is no python3");
    }
    found
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The value of `name` in lines of `name value`.
pub(crate) fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix([':', ' ', '\t'])).map(|it| it.trim().to_owned())
}

/// A folder beside the workspace, which no policy shows.
pub(crate) fn outside(stage: &Stage) -> PathBuf {
    let folder = stage.path().join("outside");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
