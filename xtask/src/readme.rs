//! The two commands of the README: what they promise is what happens.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::footprint::Scratch;
use crate::step::{Failure, Outcome, Screen, capture};
use crate::workspace::Workspace;

const RUN: &str = "cargo run --release -- run ";
const TEST: &str = "cargo xtask test";
const PROMISED: &str = "hello from the sandbox";

/// Runs the README's first command as written there, and checks that README and CI name the same test command.
pub(crate) fn check(workspace: &Workspace, scratch: &Scratch, screen: &Screen) -> Result<Outcome, Failure> {
    let readme = read(&workspace.root.join("README.md"))?;
    let line = command_in(&readme, RUN)
        .ok_or_else(|| Failure::new(format!("README.md has no fenced line that starts with `{RUN}`")))?;
    if command_in(&readme, TEST).is_none_or(|line| line.trim_end() != TEST) {
        return Err(Failure::new(format!("README.md has no fenced line `{TEST}`")));
    }
    if ci_command(&read(&workspace.root.join(".ci/run"))?) != [TEST] {
        return Err(Failure::new(format!(".ci/run must call `{TEST}` and nothing else")));
    }

    // The build is long and the run short: only the first is worth watching.
    capture(screen, build(workspace))?.required()?;
    let mut command = workspace.command("sh");
    command.args(["-c", line]).stdin(Stdio::null());
    scratch.apply(&mut command);
    let output = command.output().map_err(|error| Failure::io(format!("run `{line}`"), &error))?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && stdout.lines().any(|line| line == PROMISED) {
        return Ok(Outcome::Passed(format!("`{line}` says `{PROMISED}`")));
    }
    Err(Failure {
        what: format!("`{line}` ended with {} and did not do what README.md says", output.status),
        output: format!("stdout:\n{stdout}\nstderr:\n{}", String::from_utf8_lossy(&output.stderr)),
    })
}

/// What builds all that the README's first command needs.
pub(crate) fn build(workspace: &Workspace) -> Command {
    workspace.cargo(["build", "--release"])
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| Failure::io(format!("read `{}`", file.display()), &error))
}

/// The first line inside a fenced block that starts so, without a prompt.
fn command_in<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    let mut fenced = false;
    for line in text.lines() {
        let line = line.trim();
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            let line = line.strip_prefix("$ ").unwrap_or(line);
            if line.starts_with(start) {
                return Some(line);
            }
        }
    }
    None
}

/// What the script does, besides comments and finding its own folder.
fn ci_command(script: &str) -> Vec<&str> {
    let lines = script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let deeds = lines.filter(|line| *line != "set -euo pipefail" && *line != "cd \"$(dirname \"$0\")/..\"");
    deeds.map(|line| line.strip_prefix("exec ").unwrap_or(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_fenced_line_is_a_command() {
        let text = "Say `cargo xtask test`.\ncargo xtask test\n```sh\n$ cargo run --release -- run -- true\n```\n";
        assert_eq!(command_in(text, RUN), Some("cargo run --release -- run -- true"));
        assert_eq!(command_in(text, TEST), None);
    }

    #[test]
    fn the_ci_script_calls_the_test_command_and_nothing_else() {
        let good =
            "#!/usr/bin/env bash\n# Why.\nset -euo pipefail\ncd \"$(dirname \"$0\")/..\"\nexec cargo xtask test\n";
        assert_eq!(ci_command(good), [TEST]);
        for hostile in ["exec cargo xtask test --skip tests\n", "cargo xtask test || true\n", "true\n", ""] {
            assert_ne!(ci_command(hostile), [TEST], "{hostile}");
        }
        assert_ne!(ci_command(&format!("rm -rf x\n{good}")), [TEST]);
    }
}
