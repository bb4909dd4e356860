//! The commands of the README: what they promise is what happens. Those that start agents are tried by the step `clients`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::footprint::Scratch;
use crate::step::{Failure, Outcome, Screen, capture};
use crate::workspace::{BUILD_RELEASED, Workspace};

const RUN: &str = "cargo run --release -- run ";
const TEST: &str = "cargo xtask test";
const PROMISED: &str = "hello from the sandbox";
const INIT: &str = "ringfence init ";
const INSTALL: &str = "cargo install --locked --path ";

/// Runs the README's first command as written there and those that set agents up, and checks that README and CI name the same test command.
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
    if !output.status.success() || !stdout.lines().any(|line| line == PROMISED) {
        return Err(Failure {
            what: format!("`{line}` ended with {} and did not do what README.md says", output.status),
            output: format!("stdout:\n{stdout}\nstderr:\n{}", String::from_utf8_lossy(&output.stderr)),
        });
    }
    let agents = set_up_agents(workspace, scratch, screen, &readme)?;
    Ok(Outcome::Passed(format!("`{line}` says `{PROMISED}`; {agents} agents can be set up")))
}

/// Sets up each agent that the README names, in one project, and sees that nothing is missing then. Returns how many there were.
fn set_up_agents(workspace: &Workspace, scratch: &Scratch, screen: &Screen, readme: &str) -> Result<usize, Failure> {
    let package = command_in(readme, INSTALL).and_then(|line| line.strip_prefix(INSTALL)).map(str::trim);
    let manifest = package.map(|folder| workspace.root.join(folder).join("Cargo.toml"));
    if !manifest.as_deref().is_some_and(|file| read(file).is_ok_and(|text| text.contains("\nname = \"ringfence\""))) {
        return Err(Failure::new(format!("README.md has no fenced line `{INSTALL}FOLDER` that leads to our program")));
    }
    let lines: Vec<&str> = commands_in(readme).filter(|line| line.starts_with(INIT)).collect();
    let (project, binary) = (scratch.subfolder("readme-project")?, workspace.binary()?);
    for (line, more) in lines.iter().map(|line| (*line, "--yes")).chain(lines.iter().map(|line| (*line, "--check"))) {
        let words = line.strip_prefix("ringfence ").unwrap_or(line).split_whitespace();
        let mut command = workspace.command(&binary);
        command.args(words).arg(more).current_dir(&project);
        scratch.apply(&mut command);
        capture(screen, command)?.required()?;
    }
    fs::remove_dir_all(&project).map_err(|error| Failure::io(format!("remove `{}`", project.display()), &error))?;
    match lines.len() {
        0 => Err(Failure::new(format!("README.md has no fenced line that starts with `{INIT}`"))),
        count => Ok(count),
    }
}

/// What builds all that the README's first command needs.
pub(crate) fn build(workspace: &Workspace) -> Command {
    workspace.cargo(BUILD_RELEASED)
}

fn read(file: &Path) -> Result<String, Failure> {
    fs::read_to_string(file).map_err(|error| Failure::io(format!("read `{}`", file.display()), &error))
}

/// The first command that starts so.
fn command_in<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    commands_in(text).find(|line| line.starts_with(start))
}

/// The lines inside fenced blocks, without prompts.
fn commands_in(text: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    text.lines().map(str::trim).filter_map(move |line| {
        if line.starts_with("```") {
            fenced = !fenced;
            return None;
        }
        fenced.then(|| line.strip_prefix("$ ").unwrap_or(line))
    })
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
