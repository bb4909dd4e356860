//! The programs that the steps need: found, or fetched into `target/tools`, or named with the command that installs them.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::{Failure, Outcome, Screen, capture};
use crate::workspace::{Workspace, current_uid};

/// A cargo subcommand from crates.io.
#[derive(Debug)]
pub(crate) struct Tool {
    name: &'static str,
    /// What is installed when none is found.
    version: &'static str,
    /// The oldest that understands how we call it.
    minimum: &'static str,
    /// What of it is built.
    features: &'static [&'static str],
}

pub(crate) const NEXTEST: Tool = Tool {
    name: "cargo-nextest",
    version: "0.9.143",
    minimum: "0.9.100",
    // It need not fetch newer versions of itself.
    features: &["--no-default-features", "--features", "default-no-update"],
};
pub(crate) const DENY: Tool = Tool { name: "cargo-deny", version: "0.20.2", minimum: "0.20.0", features: &[] };

/// Programs, and the Debian package that brings each.
pub(crate) type Packages = &'static [(&'static str, &'static str)];

/// Programs that the tests start, and the Debian package that brings each.
const DEBIAN_PACKAGES: Packages =
    &[("python3", "python3"), ("bash", "bash"), ("git", "git"), ("tmux", "tmux"), ("c++", "g++")];

/// Parts of the Rust toolchain that a minimal installation leaves out, as cargo calls them and as rustup does.
const COMPONENTS: &[(&str, &str)] = &[("fmt", "rustfmt"), ("clippy", "clippy")];

impl Tool {
    /// Where a usable copy lies: on the PATH, or where an earlier run put it.
    pub(crate) fn locate(&self, workspace: &Workspace) -> Result<PathBuf, Failure> {
        self.find(workspace).map(|(path, _)| path).ok_or_else(|| {
            Failure::new(format!(
                "{} {} or newer is not here; `cargo xtask test --only tools` fetches it",
                self.name, self.minimum
            ))
        })
    }

    fn find(&self, workspace: &Workspace) -> Option<(PathBuf, String)> {
        let candidates = on_path(self.name).into_iter().chain([self.home(workspace).join("bin").join(self.name)]);
        let minimum = numbers(self.minimum)?;
        candidates
            .filter_map(|path| version_of(&path).map(|version| (path, version)))
            .find(|(_, version)| numbers(version).is_some_and(|version| version >= minimum))
    }

    fn home(&self, workspace: &Workspace) -> PathBuf {
        workspace.target.join("tools")
    }

    fn install(&self, workspace: &Workspace, screen: &Screen) -> Result<(), Failure> {
        let home = self.home(workspace);
        // They run for seconds and are built for minutes: built quickly, and what both need once.
        let mut command = workspace.cargo(["install", "--locked", "--debug", "--root"]);
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").arg(&home).arg("--target-dir").arg(home.join("build"));
        command.arg(format!("{}@{}", self.name, self.version)).args(self.features);
        capture(screen, command)?.required().map(drop)
    }
}

/// Finds or fetches all of them; says of each that stays missing what to do about it.
pub(crate) fn prepare(workspace: &Workspace, screen: &Screen) -> Result<Outcome, Failure> {
    let mut missing = Vec::new();
    let mut output = String::new();
    for (command, component) in COMPONENTS {
        if !capture(screen, workspace.cargo([*command, "--version"]))?.succeeded() {
            missing.push(format!("{component} is missing: run `rustup component add {component}`"));
        }
    }
    if let Err(failure) = debian_packages(workspace, screen, DEBIAN_PACKAGES) {
        missing.push(failure.what);
        output.push_str(&failure.output);
    }
    let mut found = Vec::new();
    for tool in [NEXTEST, DENY] {
        if tool.find(workspace).is_none()
            && let Err(failure) = tool.install(workspace, screen)
        {
            output.push_str(&failure.output);
        }
        match tool.find(workspace) {
            Some((_, version)) => found.push(format!("{} {version}", tool.name)),
            None => missing.push(format!(
                "{} is missing and could not be fetched: run `cargo install --locked {}@{}`",
                tool.name, tool.name, tool.version
            )),
        }
    }
    if missing.is_empty() {
        Ok(Outcome::Passed(found.join(", ")))
    } else {
        Err(Failure { what: missing.join("; "), output })
    }
}

/// Installs what of `wanted`, programs and the packages that bring them, is not here, where we may.
pub(crate) fn debian_packages(workspace: &Workspace, screen: &Screen, wanted: Packages) -> Result<(), Failure> {
    let absent: Vec<&str> = absent_packages(wanted, |program| on_path(program).is_empty());
    if absent.is_empty() {
        return Ok(());
    }
    if current_uid()? == 0 && !on_path("apt-get").is_empty() {
        for words in [&["update"][..], &["install", "-y", "--no-install-recommends"][..]] {
            let mut command = workspace.command("apt-get");
            command.env("DEBIAN_FRONTEND", "noninteractive").args(words);
            if words.contains(&"install") {
                command.args(&absent);
            }
            capture(screen, command)?.required()?;
        }
    }
    match absent_packages(wanted, |program| on_path(program).is_empty()).as_slice() {
        [] => Ok(()),
        still => Err(Failure::new(format!("install these packages (Debian's names): {}", still.join(" ")))),
    }
}

fn absent_packages(wanted: Packages, is_absent: impl Fn(&str) -> bool) -> Vec<&'static str> {
    wanted.iter().filter(|(program, _)| is_absent(program)).map(|(_, package)| *package).collect()
}

/// Every file of this name on the PATH that may be executed, first match first.
pub(crate) fn on_path(program: &str) -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(&path, program)
}

fn find_in(path: &OsStr, program: &str) -> Vec<PathBuf> {
    std::env::split_paths(path).map(|folder| folder.join(program)).filter(|file| is_executable(file)).collect()
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

fn version_of(program: &Path) -> Option<String> {
    if !is_executable(program) {
        return None;
    }
    // `cargo-nextest --version` and `cargo-deny --version` both start with their name and the version.
    let output = Command::new(program).arg("--version").output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.split_whitespace().nth(1).map(str::to_owned)
}

/// A version as numbers that compare. What follows `-` or `+` makes it something other than a release: not used.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let mut parts = version.trim_start_matches('v').split('.').map(|part| part.parse::<u64>());
    let numbers = [parts.next()?.ok()?, parts.next()?.ok()?, parts.next()?.ok()?];
    parts.next().is_none().then_some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_as_numbers_and_what_is_no_release_is_not_used() {
        assert!(numbers("0.20.2") > numbers("0.9.143"));
        assert!(numbers("0.9.99") < numbers("0.9.100"));
        for odd in ["", "1", "1.2", "1.2.3.4", "1.2.3-rc.1", "one.two.three", "1.2.-3"] {
            assert_eq!(numbers(odd), None, "{odd}");
        }
    }

    #[test]
    fn what_we_install_satisfies_what_we_require() {
        for tool in [NEXTEST, DENY] {
            assert!(numbers(tool.version).unwrap() >= numbers(tool.minimum).unwrap(), "{}", tool.name);
        }
    }

    #[test]
    fn only_the_packages_of_absent_programs_are_asked_for() {
        assert_eq!(absent_packages(DEBIAN_PACKAGES, |program| program == "c++"), ["g++"]);
        assert!(absent_packages(DEBIAN_PACKAGES, |_| false).is_empty());
    }

    #[test]
    fn a_program_is_found_on_the_path_but_a_folder_or_a_plain_file_is_not() {
        assert!(!find_in(OsStr::new("/bin:/usr/bin"), "sh").is_empty());
        assert!(find_in(OsStr::new("/"), "etc").is_empty());
        assert!(find_in(OsStr::new("/etc"), "passwd").is_empty());
        assert!(find_in(OsStr::new(""), "sh").is_empty());
    }
}
