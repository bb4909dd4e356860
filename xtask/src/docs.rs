//! Files that the binary writes about itself: man pages, completions, the schema of the policy file.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use crate::step::{Failure, Screen, Verbosity, capture, shown};
use crate::workspace::{BUILD_EVERYTHING, Workspace};

const SHELLS: &[&str] = &["bash", "elvish", "fish", "powershell", "zsh"];
/// Editors fetch it by its address, so it is committed.
const SCHEMA: &str = "docs/sandbox.policy.schema.json";

/// Writes all of them: the schema to its committed place, the rest under the target folder.
pub(crate) fn write(workspace: &Workspace) -> Result<ExitCode, Failure> {
    let screen = Screen::new(Verbosity::Summary);
    let binary = built(workspace, &screen)?;
    let out = workspace.target.join("docs-generated");
    let pages = out.join("man");
    fs::create_dir_all(&pages).map_err(|error| Failure::io(format!("make `{}`", pages.display()), &error))?;
    let mut man = workspace.command(&binary);
    man.args(["man", "--out"]).arg(&pages);
    say(man)?;
    for shell in SHELLS {
        let mut completions = workspace.command(&binary);
        completions.args(["completions", shell]);
        put(out.join("completions").join(format!("ringfence.{shell}")), &say(completions)?)?;
    }
    put(workspace.root.join(SCHEMA), &schema(workspace, &binary)?)?;
    println!("wrote {} and {SCHEMA}", out.display());
    Ok(ExitCode::SUCCESS)
}

/// Fails when the committed schema is not what the binary would write.
pub(crate) fn check(workspace: &Workspace, screen: &mut Screen) -> Result<String, Failure> {
    let binary = built(workspace, screen)?;
    let current = schema(workspace, &binary)?;
    let committed = fs::read(workspace.root.join(SCHEMA)).map_err(|error| {
        let failure = Failure::io(format!("read {SCHEMA}"), &error);
        Failure::new(format!("{}; `cargo xtask docs` writes it", failure.what))
    })?;
    if committed == current {
        Ok(format!("{SCHEMA} is current"))
    } else {
        Err(Failure::new(format!(
            "{SCHEMA} is not what `ringfence policy schema` says; run `cargo xtask docs` and commit it"
        )))
    }
}

fn built(workspace: &Workspace, screen: &Screen) -> Result<PathBuf, Failure> {
    capture(screen, workspace.cargo(BUILD_EVERYTHING))?.required()?;
    workspace.binary()
}

fn schema(workspace: &Workspace, binary: &PathBuf) -> Result<Vec<u8>, Failure> {
    let mut command = workspace.command(binary);
    command.args(["policy", "schema"]);
    say(command)
}

/// What the binary says on stdout; saying nothing is a failure.
fn say(mut command: Command) -> Result<Vec<u8>, Failure> {
    let words = shown(&command);
    let output = command.output().map_err(|error| Failure::io(format!("run `{words}`"), &error))?;
    let silent = output.stdout.is_empty() && !words.contains("--out");
    if output.status.success() && !silent {
        return Ok(output.stdout);
    }
    Err(Failure {
        what: format!("`{words}` ended with {} and {} bytes on stdout", output.status, output.stdout.len()),
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

fn put(file: PathBuf, content: &[u8]) -> Result<(), Failure> {
    let attempt = format!("write `{}`", file.display());
    let made = file.parent().map_or(Ok(()), fs::create_dir_all);
    made.and_then(|()| fs::write(&file, content)).map_err(|error| Failure::io(attempt, &error))
}
