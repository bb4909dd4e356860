//! A home, a workspace and a clean environment for one test, and the program started in them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ringfence_testkit::canary::until;
use tempfile::TempDir;

/// Enough for everything that should happen at once, on a machine that is busy.
pub(crate) const SOON: Duration = Duration::from_secs(15);

/// The binary under test; the variable is set where the tests were moved after they were built.
pub(crate) fn binary() -> OsString {
    std::env::var_os("NEXTEST_BIN_EXE_ringfence").unwrap_or_else(|| env!("CARGO_BIN_EXE_ringfence").into())
}

/// A place for one test; removed when dropped.
#[derive(Debug)]
pub(crate) struct Stage {
    root: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let root = tempfile::Builder::new().prefix("ringfence-cli-").tempdir().unwrap();
        let stage = Self { root };
        for folder in ["home", "work", "tmp"] {
            fs::create_dir(stage.root.path().join(folder)).unwrap();
        }
        stage
    }

    /// A stage whose project has this policy.
    pub(crate) fn with_policy(text: &str) -> Self {
        let stage = Self::new();
        stage.write("sandbox.policy.yaml", text);
        stage
    }

    /// A stage whose project chooses `spawn`.
    pub(crate) fn spawn() -> Self {
        Self::with_policy("version: 1\nbackend: spawn\n")
    }

    pub(crate) fn path(&self) -> &Path {
        self.root.path()
    }

    pub(crate) fn work(&self) -> PathBuf {
        self.root.path().join("work")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.path().join("home/.local/state/ringfence")
    }

    pub(crate) fn ledger(&self) -> PathBuf {
        self.state().join("ledger.jsonl")
    }

    /// Writes a file of the workspace, which nobody else may write.
    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.work().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        path
    }

    /// What a file of the workspace says; nothing when it is not there.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        fs::read(self.work().join(name)).ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Waits until a file of the workspace has something in it.
    pub(crate) fn wait_for(&self, name: &str) -> String {
        assert!(until(SOON, || self.read(name).is_some_and(|text| text.ends_with('\n'))), "{name} did not come");
        self.read(name).unwrap()
    }

    /// `ringfence ARGS…` in the workspace.
    pub(crate) fn ringfence<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(&self, args: I) -> Invocation<'_> {
        let mut command = Command::new(binary());
        command.args(args).env_clear().current_dir(self.work());
        let host = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("/usr/local/bin:/usr/bin:/bin:{host}"));
        command.env("HOME", self.root.path().join("home")).env("TMPDIR", self.root.path().join("tmp"));
        command.env("LANG", "C.UTF-8");
        // What is run here is about what comes after the reading of requests; what is about that says so.
        command.env("RINGFENCE_VALIDATE", "off");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Invocation { command, stdin: None, _stage: self }
    }

    /// `ringfence run --backend spawn -- sh -c SCRIPT`, quietly.
    pub(crate) fn spawn_sh(&self, script: &str) -> Invocation<'_> {
        self.ringfence(["run", "-q", "--backend", "spawn", "--", "sh", "-c", script])
    }

    /// Likewise, with flags before the command.
    pub(crate) fn spawn_sh_with(&self, flags: &[&str], script: &str) -> Invocation<'_> {
        let before = ["run", "-q", "--backend", "spawn"];
        self.ringfence([&before[..], flags, &["--", "sh", "-c", script]].concat())
    }

    /// Text with this stage's paths taken out.
    pub(crate) fn neutral(&self, text: &str) -> String {
        let real = self.root.path().canonicalize().unwrap();
        text.replace(&*real.to_string_lossy(), "[STAGE]").replace(&*self.root.path().to_string_lossy(), "[STAGE]")
    }
}

/// A start of the program that is being put together.
#[derive(Debug)]
pub(crate) struct Invocation<'a> {
    command: Command,
    stdin: Option<Vec<u8>>,
    _stage: &'a Stage,
}

impl Invocation<'_> {
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub(crate) fn without_env(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    pub(crate) fn cwd(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    pub(crate) fn stdin(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.command.stdin(Stdio::piped());
        self.stdin = Some(bytes.into());
        self
    }

    /// The same start by way of another program, which is told of it as its last arguments. What is said of streams comes after this.
    #[allow(dead_code, reason = "for the tests of walls, which share this")]
    pub(crate) fn by_way_of(self, program: &str, args: &[&OsStr]) -> Self {
        let mut command = Command::new(program);
        command.args(args).arg(self.command.get_program()).args(self.command.get_args()).env_clear();
        command.envs(self.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(self.command.get_current_dir().unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { command, ..self }
    }

    /// Where its standard input comes from.
    pub(crate) fn stdin_from(mut self, from: impl Into<Stdio>) -> Self {
        self.command.stdin(from);
        self
    }

    /// Where its standard output goes instead of to us.
    pub(crate) fn stdout(mut self, to: impl Into<Stdio>) -> Self {
        self.command.stdout(to);
        self
    }

    pub(crate) fn stderr(mut self, to: impl Into<Stdio>) -> Self {
        self.command.stderr(to);
        self
    }

    /// Starts it and does not wait.
    pub(crate) fn start(mut self) -> Child {
        self.command.spawn().unwrap()
    }

    /// Starts it and waits for its end.
    pub(crate) fn run(self) -> Ended {
        let stdin = self.stdin.clone();
        let mut child = self.start();
        let writer = child.stdin.take().zip(stdin).map(|(mut pipe, bytes)| {
            std::thread::spawn(move || {
                // A program that does not read its input is fine.
                std::io::Write::write_all(&mut pipe, &bytes).ok();
            })
        });
        let ended = Ended::from(child.wait_with_output().unwrap());
        if let Some(writer) = writer {
            writer.join().unwrap();
        }
        ended
    }
}

/// How the program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// Its exit code; 1000 and the signal's number when one killed it.
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl From<std::process::Output> for Ended {
    fn from(output: std::process::Output) -> Self {
        let code = output.status.code().or_else(|| output.status.signal().map(|signal| 1000 + signal)).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!stderr.contains("panicked"), "it panicked: {stderr}");
        Self { code, stdout: output.stdout, stderr }
    }
}

impl Ended {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// The outcome that `--json` printed. Its fields are looked up by their path, such as `/resourceUsage/wallTimeMs`.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Exit code and text for a snapshot.
    pub(crate) fn page(&self, stage: &Stage) -> String {
        let mut page = format!("exit code {}\n", self.code);
        for (name, text) in [("stdout", self.text()), ("stderr", self.stderr.clone())] {
            if !text.is_empty() {
                page.push_str(&format!("--- {name}\n{}", stage.neutral(&text)));
            }
        }
        page
    }

    #[track_caller]
    pub(crate) fn expect(self, code: i32, in_stderr: &[&str]) -> Self {
        assert_eq!(self.code, code, "{self:#?}");
        for part in in_stderr {
            assert!(self.stderr.contains(part), "`{part}` is not in\n{}", self.stderr);
        }
        self
    }
}
