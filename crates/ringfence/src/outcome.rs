//! How a run ended, what it used, what was violated, what was really enforced.

use std::ffi::OsString;

use base64::Engine as _;
use ringfence_policy::BackendKind;
use serde::{Deserialize, Serialize};

use crate::capture::Captured;
use crate::egress::Contact;
use crate::event::Violation;
use crate::guarantee::{Evidence, Guarantee};
use crate::refusal::Refusal;
use crate::request::Work;
use crate::run_id::RunId;
use crate::workspace::{AtOnce, Counts};

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    /// The program ended by itself; see `exitCode`.
    Exited,
    /// A signal ended it that was not ours; see `signal`.
    Signalled,
    /// It reached its time limit.
    TimedOut,
    /// It reached its memory limit.
    OutOfMemory,
    /// It reached its limit of processes.
    TooManyProcesses,
    /// The caller ended it.
    Cancelled,
    /// Policy forbids it; see `refusal`. Nothing was started.
    Refused,
    /// We failed; see `error`. Nothing was started, or its end could not be confirmed.
    CouldNotRun,
}

/// What we failed at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// What kind, for exit codes and callers.
    pub kind: FailureKind,
    /// What was attempted, and why it failed, outermost first.
    pub chain: Vec<String>,
    /// What to do about it.
    pub hint: Option<String>,
}

/// The kinds of our failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FailureKind {
    /// The request itself makes no sense.
    BadRequest,
    /// The program does not exist.
    NotFound,
    /// The program exists and cannot be executed.
    NotExecutable,
    /// The wanted backend is not there.
    BackendUnavailable,
    /// The ledger cannot be written.
    Ledger,
    /// Anything else in raising the wall or starting the program.
    Start,
    /// The program ran, and what it changed could not be kept.
    Changes,
}

/// What a run used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceUsage {
    /// From start to end.
    pub wall_time_ms: u64,
    /// User and system time of all its processes.
    pub cpu_time_ms: u64,
    /// The most that was seen in use.
    pub memory_peak_bytes: u64,
    /// From block devices.
    pub bytes_read: u64,
    /// To block devices.
    pub bytes_written: u64,
}

/// Why the wanted backend was not used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FellBack {
    /// What the policy wanted.
    pub wanted: String,
    /// Why it could not be had.
    pub reason: String,
}

/// The end of a run. Its JSON names are stable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The run.
    pub run_id: RunId,
    /// How it ended.
    pub status: Status,
    /// The program's own code, when it exited.
    pub exit_code: Option<i32>,
    /// The signal's number, when one ended it.
    pub signal: Option<i32>,
    /// Standard output, with a line where something was left out. Not always UTF-8 inside: see `stdout_base64`.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// The exact bytes of standard output when they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    /// The exact bytes of standard error when they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
    /// It reached its time limit.
    pub timed_out: bool,
    /// It was killed for its memory.
    pub oom_killed: bool,
    /// Something of its output was left out.
    pub output_truncated: bool,
    /// The program changed the workspace in its private layer; the host's files are as they were.
    pub workspace_changed: bool,
    /// How much of it, when it was kept to be looked at.
    pub changes: Option<Counts>,
    /// What of it the host has already.
    #[serde(default)]
    pub applied: Option<AtOnce>,
    /// What it used.
    pub resource_usage: ResourceUsage,
    /// The policy that this run had, every default written out.
    pub effective_policy: serde_json::Value,
    /// The guarantees in force, with evidence.
    pub enforced: Vec<Evidence>,
    /// What the policy asks for and this backend cannot keep.
    pub not_enforced: Vec<Guarantee>,
    /// Limits reached and rules broken.
    pub violations: Vec<Violation>,
    /// What rules found when the request was read, and let pass: told, or approved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub findings: Vec<ringfence_validate::Finding>,
    /// What it wanted of the network, where that is decided host by host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub network: Vec<Contact>,
    /// How many different ones are not listed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub network_omitted: u64,
    /// A few of the hosts that the request names, where its program failed and there is no network.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreachable: Vec<String>,
    /// Why it was not run.
    pub refusal: Option<Refusal>,
    /// What we failed at.
    pub error: Option<Failure>,
    /// What a model may do now.
    pub advice: Option<String>,
    /// Whether a model may correct its request and try again.
    pub retryable: bool,
    /// The wall it ran behind.
    pub backend: Option<BackendKind>,
    /// The wall that was wanted and missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fell_back: Option<FellBack>,
    /// The image, when the wall has one.
    pub image: Option<String>,
    /// What ran its code, by the name or path that it was started by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<String>,
    /// Where its container came from, when the engine has some wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<ContainerFrom>,
    /// When it started, or when it was refused.
    pub started_at: String,
    /// Names of variables of the host that were not passed in.
    pub env_withheld: Vec<String>,
}

/// Where the container of a run came from, of an engine that has some wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerFrom {
    /// It had waited.
    Waited,
    /// It was made for this run: none waited that was of the same kind.
    Made,
    /// Likewise, because what had waited was found dead.
    MadeInstead,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Outcome {
    /// Puts in what the program wrote.
    pub(crate) fn set_output(&mut self, stdout: &Captured, stderr: &Captured) {
        (self.stdout, self.stdout_base64) = text_and_exact(stdout.bytes());
        (self.stderr, self.stderr_base64) = text_and_exact(stderr.bytes());
        self.output_truncated = stdout.omitted > 0 || stderr.omitted > 0;
    }

    /// Puts in what was seen from inside before the program ran.
    pub(crate) fn prove(&mut self, proofs: &[(String, String)]) {
        for (name, found) in proofs {
            if let Some(evidence) = self.enforced.iter_mut().find(|evidence| evidence.guarantee.name() == name) {
                evidence.evidence = format!("{}; seen inside: {found}", evidence.evidence);
            }
        }
    }

    /// Puts in which image stood inside, also as evidence of what was shown.
    pub(crate) fn name_image(&mut self, image: Option<&str>) {
        let Some(image) = image else { return };
        self.image = Some(image.to_owned());
        if let Some(shown) = self.enforced.iter_mut().find(|it| it.guarantee == Guarantee::FsConfined) {
            shown.evidence = format!("{}; root: {image}", shown.evidence);
        }
    }

    /// The exit code of a command that stands for this run: the program's own, or the convention's.
    pub fn conventional_exit_code(&self) -> u8 {
        match self.status {
            // It ran, and nothing shows how it ended: nobody may take that for success.
            _ if self.error.as_ref().is_some_and(|error| error.kind == FailureKind::Ledger) => 125,
            Status::Exited => self.exit_code.and_then(|code| u8::try_from(code).ok()).unwrap_or(125),
            Status::Signalled | Status::OutOfMemory | Status::TooManyProcesses | Status::Cancelled => {
                let signal = self.signal.unwrap_or(9);
                u8::try_from(128 + signal).unwrap_or(255)
            }
            Status::TimedOut => 124,
            Status::Refused => 126,
            Status::CouldNotRun => match self.error.as_ref().map(|error| error.kind) {
                Some(FailureKind::NotFound) => 127,
                Some(FailureKind::BadRequest) => 2,
                Some(
                    FailureKind::NotExecutable
                    | FailureKind::BackendUnavailable
                    | FailureKind::Ledger
                    | FailureKind::Start
                    | FailureKind::Changes,
                )
                | None => 125,
            },
        }
    }
}

fn text_and_exact(bytes: Vec<u8>) -> (String, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (text, None),
        Err(error) => {
            let exact = base64::engine::general_purpose::STANDARD.encode(error.as_bytes());
            (String::from_utf8_lossy(error.as_bytes()).into_owned(), Some(exact))
        }
    }
}

/// Letters of a program's name that are shown.
const MOST_SHOWN: usize = 200;

/// Whether this is one word that has others in it.
fn is_line(argv: &[OsString]) -> bool {
    let [word] = argv else { return false };
    word.to_string_lossy().trim().contains([' ', '\t', '\n', ';', '|', '&'])
}

impl Failure {
    /// A failure from an error and all its causes.
    pub fn new(kind: FailureKind, error: &dyn std::error::Error) -> Self {
        let mut chain = vec![error.to_string()];
        let mut cause = error.source();
        while let Some(error) = cause {
            chain.push(error.to_string());
            cause = error.source();
        }
        Self { kind, chain, hint: None }
    }

    /// Knowing what was to be run: what is missing has a name, and a whole line where a program's name was expected is for a shell.
    #[must_use]
    pub(crate) fn of(self, work: &Work) -> Self {
        let (FailureKind::NotFound, Work::Argv(argv)) = (self.kind, work) else { return self };
        if is_line(argv) {
            return self.hint("no program has that name: for a line of the shell, use `ringfence run --shell LINE`");
        }
        match argv.first() {
            // Where it was looked for outside, it is named already. The kernel does not name it, and says the same of a script's interpreter.
            Some(program) if self.chain.len() > 1 => {
                let shown: String = program.to_string_lossy().escape_debug().take(MOST_SHOWN).collect();
                let chain = vec![format!("`{shown}` was not found inside")];
                let hint = "check the spelling, or install it where the sandbox can see it; a script also needs the interpreter of its first line";
                Self { chain, ..self }.hint(hint)
            }
            _ => self,
        }
    }

    /// Says what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
