//! Where the checkout lies, where its build output goes, and how cargo is started there.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step::Failure;

/// What the tests start is built by these words and no others, so that nothing is compiled twice.
pub(crate) const BUILD_EVERYTHING: [&str; 4] = ["build", "--workspace", "--all-targets", "--all-features"];

/// What people install.
pub(crate) const BUILD_RELEASED: [&str; 2] = ["build", "--release"];

/// The checkout that `cargo xtask` was started in.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    cargo: OsString,
}

impl Workspace {
    pub(crate) fn find() -> Result<Self, Failure> {
        // Read at run time: a checkout that was moved together with its target folder still finds itself.
        let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR").ok_or_else(|| {
            Failure::new("start this program as `cargo xtask`, so that it knows where the checkout is")
        })?;
        let root = Path::new(&manifest_dir)
            .parent()
            .filter(|root| root.join("Cargo.toml").is_file())
            .ok_or_else(|| Failure::new(format!("no workspace around `{}`", manifest_dir.display())))?
            .to_path_buf();
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut workspace = Self { target: root.join("target"), root, cargo };
        workspace.target = workspace.ask_for_target()?;
        Ok(workspace)
    }

    fn ask_for_target(&self) -> Result<PathBuf, Failure> {
        let output = self
            .cargo(["metadata", "--no-deps", "--format-version", "1"])
            .output()
            .map_err(|error| Failure::io("start `cargo metadata`", &error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.split_once("\"target_directory\":\"")
            .and_then(|(_, rest)| rest.split_once('"'))
            .map(|(path, _)| PathBuf::from(path))
            .ok_or_else(|| Failure {
                what: "`cargo metadata` does not say where the target folder is".to_owned(),
                output: String::from_utf8_lossy(&output.stderr).into_owned(),
            })
    }

    /// Cargo in the checkout, without what the cargo that started us added to the environment: a build that sees those
    /// variables change is built again.
    pub(crate) fn cargo<'a>(&self, words: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = self.command(&self.cargo);
        command.args(words);
        command
    }

    /// Any program, in the checkout, with the same cleaned environment.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.root).env("CARGO_TERM_COLOR", "never").env("GIT_TERMINAL_PROMPT", "0");
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") || text == "RUST_RECURSION_COUNT" {
                command.env_remove(&name);
            }
        }
        command
    }

    /// Where the built `ringfence` lies. Cargo is asked: its settings decide on the folder.
    ///
    /// It is built together with everything else: by itself it would have dependencies with fewer features, which are then
    /// compiled once more.
    pub(crate) fn binary(&self) -> Result<PathBuf, Failure> {
        self.built_by(&BUILD_EVERYTHING)
    }

    /// Where `ringfence` lies as people install it.
    pub(crate) fn released(&self) -> Result<PathBuf, Failure> {
        self.built_by(&BUILD_RELEASED)
    }

    fn built_by(&self, words: &[&'static str]) -> Result<PathBuf, Failure> {
        let all = words.iter().copied().chain(["--message-format", "json-render-diagnostics"]);
        let output = self.cargo(all).output().map_err(|error| Failure::io("start `cargo build`", &error))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let binary = text.lines().filter_map(executable_in).find(|path| path.file_name() == Some("ringfence".as_ref()));
        binary.filter(|_| output.status.success()).ok_or_else(|| Failure {
            what: format!("`cargo {}` made no binary `ringfence`", words.join(" ")),
            output: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// The files that are committed or would be: relative to the root, sorted, those that exist.
    pub(crate) fn files(&self) -> Result<Vec<String>, Failure> {
        let output = self
            .command("git")
            // A checkout that another user owns (a container's volume) is still ours to read.
            .args(["-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .output()
            .map_err(|error| Failure::io("list the files with git", &error))?;
        if !output.status.success() {
            return Err(Failure {
                what: "`git ls-files` failed; the checks look at what git would commit, so a git checkout is needed"
                    .to_owned(),
                output: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        let mut files = Vec::new();
        for name in output.stdout.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
            let name = std::str::from_utf8(name).map_err(|_| {
                Failure::new(format!("the file name `{}` is not UTF-8; rename it", name.escape_ascii()))
            })?;
            if self.root.join(name).symlink_metadata().is_ok() {
                files.push(name.to_owned());
            }
        }
        files.sort();
        files.dedup();
        Ok(files)
    }
}

/// The executable that a line of cargo's messages announces.
pub(crate) fn executable_in(message: &str) -> Option<PathBuf> {
    let (_, rest) = message.split_once("\"executable\":\"")?;
    rest.split_once('"').map(|(path, _)| PathBuf::from(path))
}

/// The user this process acts as.
pub(crate) fn current_uid() -> Result<u32, Failure> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata("/proc/self").map_err(|error| Failure::io("read /proc/self", &error))?;
    Ok(metadata.uid())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_is_read_from_the_message_that_names_one() {
        let message = r#"{"reason":"compiler-artifact","executable":"/x/debug/ringfence","fresh":true}"#;
        assert_eq!(executable_in(message), Some(PathBuf::from("/x/debug/ringfence")));
        assert_eq!(executable_in(r#"{"reason":"compiler-artifact","executable":null}"#), None);
        assert_eq!(executable_in(""), None);
    }
}
