//! The tests once more as an ordinary user, when root runs them: much of what we promise differs between the two.
//!
//! Nothing is built again. The built tests travel in a nextest archive, with a copy of the tree, into a folder that
//! everybody can read: the checkout may lie where an ordinary user cannot look.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::footprint::{Scratch, keep_apart, open_to_all, reachable_by_all};
use crate::step::{Failure, Outcome, Screen, capture};
use crate::test::{BACKENDS_REQUIRED, at_once, nextest_ended, required_backends};
use crate::tools::NEXTEST;
use crate::workspace::{Workspace, current_uid};

/// The first number that Debian gives to a person. It needs no entry in `/etc/passwd`.
pub(crate) const ORDINARY: u32 = 1000;

/// The crates whose promises depend on who asks.
const WHICH: &str =
    "package(ringfence-cli) + package(ringfence) + package(ringfence-linux) + package(ringfence-testkit)";

pub(crate) fn test(workspace: &Workspace, scratch: &Scratch, screen: &Screen) -> Result<Outcome, Failure> {
    if current_uid()? != 0 {
        return Ok(Outcome::Passed("we are an ordinary user already: the step before was it".to_owned()));
    }
    let built = Built::prepare(workspace, scratch, screen)?;
    built.run(screen, WHICH, &[(BACKENDS_REQUIRED.to_owned(), required_backends())]).map(Outcome::Passed)
}

/// The built tests and the tree, where everybody can read them.
#[derive(Debug)]
pub(crate) struct Built {
    place: PathBuf,
}

impl Built {
    /// Packs and copies, unless an earlier step did.
    pub(crate) fn prepare(workspace: &Workspace, scratch: &Scratch, screen: &Screen) -> Result<Self, Failure> {
        let built = Self { place: scratch.subfolder("ordinary")? };
        if built.tree().exists() {
            return Ok(built);
        }
        let nextest = NEXTEST.locate(workspace)?;
        let archive = built.archive();
        let mut command = workspace.command(&nextest);
        command.args(["nextest", "archive", "--workspace", "--all-features", "--zstd-level", "1", "--archive-file"]);
        command.arg(&archive);
        capture(screen, command)?.required()?;
        fs::set_permissions(&archive, Permissions::from_mode(0o644))
            .map_err(|error| Failure::io(format!("open `{}` to all", archive.display()), &error))?;
        copy_file(&nextest, &built.nextest())?;
        copy_tree(workspace, &built.tree())?;
        Ok(built)
    }

    fn archive(&self) -> PathBuf {
        self.place.join("tests.tar.zst")
    }

    fn nextest(&self) -> PathBuf {
        self.place.join("cargo-nextest")
    }

    fn tree(&self) -> PathBuf {
        self.place.join("tree")
    }

    /// Runs the tests that `which` chooses, with these variables, and sees that they leave nothing.
    pub(crate) fn run(&self, screen: &Screen, which: &str, more: &[(String, String)]) -> Result<String, Failure> {
        let own = |name: &str| own_folder(&self.place, name);
        let folders = [own("home")?, own("tmp")?, own("tests")?, own("state")?];
        let [home, temporary, extracted, state] = &folders;
        let tree = self.tree();
        let mut command = Command::new(self.nextest());
        command.args(["nextest", "run", "--no-fail-fast", "-E", which, "--archive-file"]).arg(self.archive());
        command.arg("--workspace-remap").arg(&tree).arg("--extract-to").arg(extracted);
        command.env_clear().current_dir(&tree);
        command.env("PATH", path_for_all(&std::env::var_os("PATH").unwrap_or_default())?);
        command.env("HOME", home).env("USER", "ordinary").env("LOGNAME", "ordinary").env("SHELL", "/bin/sh");
        for name in ["CI", "LANG", "RUST_BACKTRACE", "TERM"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        keep_apart(&mut command, temporary, state);
        // Snapshots are looked up in the copy and never rewritten there.
        command.env("INSTA_WORKSPACE_ROOT", &tree).env("INSTA_UPDATE", "no");
        command.env("CARGO_TERM_COLOR", "never").envs([at_once()]).envs(more.iter().cloned());
        // Root's supplementary groups go with its number: the standard library drops them before it changes the user.
        command.gid(ORDINARY).uid(ORDINARY);
        let summary = nextest_ended(capture(screen, command)?)?;

        let left: Vec<String> = names_in(temporary);
        if !left.is_empty() {
            return Err(Failure::new(format!("the tests left in their temporary folder: {}", left.join(", "))));
        }
        for folder in &folders {
            fs::remove_dir_all(folder)
                .map_err(|error| Failure::io(format!("remove `{}`", folder.display()), &error))?;
        }
        Ok(summary)
    }
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn own_folder(place: &Path, name: &str) -> Result<PathBuf, Failure> {
    let folder = place.join(name);
    let attempt = format!("make `{}` for the ordinary user", folder.display());
    // A run that failed left its own for whoever looks; the next begins anew.
    drop(fs::remove_dir_all(&folder));
    fs::create_dir(&folder)
        .and_then(|()| fs::set_permissions(&folder, Permissions::from_mode(0o700)))
        .and_then(|()| chown(&folder, Some(ORDINARY), Some(ORDINARY)))
        .map_err(|error| Failure::io(attempt, &error))?;
    Ok(folder)
}

/// Everything that git would commit; a test may read any of it.
fn copy_tree(workspace: &Workspace, to: &Path) -> Result<(), Failure> {
    for name in workspace.files()? {
        let target = to.join(&name);
        let folder = target.parent().unwrap_or(to);
        fs::create_dir_all(folder).map_err(|error| Failure::io(format!("make `{}`", folder.display()), &error))?;
        for step in folder.ancestors().take_while(|step| step.starts_with(to)) {
            open_to_all(step)?;
        }
        copy_file(&workspace.root.join(&name), &target)?;
    }
    Ok(())
}

/// Copies a file, readable by all, or a symbolic link as it is.
fn copy_file(from: &Path, to: &Path) -> Result<(), Failure> {
    let copy = || {
        if from.symlink_metadata()?.is_symlink() && !from.is_file() {
            return symlink(fs::read_link(from)?, to);
        }
        fs::copy(from, to)?;
        let mode = fs::metadata(from)?.permissions().mode();
        let for_all = if mode & 0o100 == 0 { 0o644 } else { 0o755 };
        fs::set_permissions(to, Permissions::from_mode(for_all))
    };
    copy().map_err(|error| Failure::io(format!("copy `{}`", from.display()), &error))
}

/// The parts of the PATH that an ordinary user can reach: a program in root's home would be found and not started.
fn path_for_all(path: &OsString) -> Result<OsString, Failure> {
    let kept = std::env::split_paths(path).filter(|folder| reachable_by_all(folder));
    std::env::join_paths(kept).map_err(|error| Failure::new(format!("PATH cannot be put together again: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_keeps_what_everybody_can_reach_and_nothing_else() {
        let kept = path_for_all(&OsString::from("/no/such/folder:/usr/bin:relative:")).unwrap();
        assert_eq!(kept, "/usr/bin");
    }
}
