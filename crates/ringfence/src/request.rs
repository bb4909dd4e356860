//! What someone wants run. A request is data from outside: every part of it is checked here, once, before use.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

pub use ringfence_linux::wall::TerminalSize;
use ringfence_policy::Overrides;

use crate::language::{Language, NamedInterpreter};

/// Of all arguments together.
pub const MOST_ARGUMENT_BYTES: usize = 2 * 1024 * 1024;
/// Of one argument: the kernel's own limit.
pub const MOST_BYTES_OF_ONE_ARGUMENT: usize = 128 * 1024 - 1;
/// Of a shell line.
pub const MOST_SHELL_BYTES: usize = MOST_BYTES_OF_ONE_ARGUMENT;
/// Of code.
pub const MOST_CODE_BYTES: usize = 16 * 1024 * 1024;
/// Of standard input given as bytes.
pub const MOST_STDIN_BYTES: usize = 64 * 1024 * 1024;
/// Of all files together.
pub const MOST_FILE_BYTES: usize = 64 * 1024 * 1024;
/// Of files.
pub const MOST_FILES: usize = 4096;
/// Of metadata entries, and of each one's length.
pub const MOST_METADATA: usize = 64;
const MOST_METADATA_BYTES: usize = 4096;
/// Less is a mistake in the unit.
const LEAST_MEMORY: u64 = 1024 * 1024;

/// What is to be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// A program and its arguments; no shell sees them.
    Argv(Vec<OsString>),
    /// One line for the shell.
    Shell(String),
    /// Code in a language.
    Code {
        /// The language.
        language: Language,
        /// The source text.
        source: Vec<u8>,
        /// The file's name that tracebacks show; without folders.
        name: Option<String>,
        /// What is to run it; otherwise the first that is found inside of those that the language knows.
        interpreter: Option<NamedInterpreter>,
    },
    /// Nothing yet: a place that is kept for the runs of a session.
    Place,
}

/// What the program reads from its standard input.
#[derive(Debug, Default)]
pub enum Stdin {
    /// Nothing.
    #[default]
    Empty,
    /// These bytes.
    Bytes(Vec<u8>),
    /// The reading end of a pipe that the caller made for this purpose. Never a terminal or a file of the host: the
    /// program gets the descriptor itself.
    Pipe(OwnedFd),
}

/// A file to put beside the code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputFile {
    /// Relative, without `..`.
    pub path: PathBuf,
    /// What it holds.
    pub content: Vec<u8>,
}

/// Where the workspace appears inside.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum WorkspaceAt {
    /// Where the backend puts it.
    #[default]
    Default,
    /// At its path on the host.
    Same,
    /// At this path.
    Path(PathBuf),
}

/// Who asked, for the ledger. It never decides anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata {
    /// The front door: `cli`, `library`, …
    pub door: String,
    /// Names and values that the caller wants found again.
    pub labels: Vec<(String, String)>,
}

/// What someone wants run.
#[derive(Debug)]
pub struct Request {
    /// The program, line or code.
    pub work: Work,
    /// Where the workspace appears inside.
    pub workspace_at: WorkspaceAt,
    /// Where it starts, below the workspace.
    pub cwd: PathBuf,
    /// Variables for this run; they may not be ones that change how programs load code.
    pub env: Vec<(String, String)>,
    /// Standard input.
    pub stdin: Stdin,
    /// Files beside the code.
    pub files: Vec<InputFile>,
    /// Narrowing of the policy, the time limit included.
    pub overrides: Overrides,
    /// Give the program a terminal of this size instead of pipes; in a session.
    pub terminal: Option<TerminalSize>,
    /// Who asked.
    pub metadata: Metadata,
}

/// Why a request is no request. Nothing was judged.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadRequest {
    /// No program.
    #[error("there is no program to run; name one, such as `python3`")]
    EmptyArgv,
    /// The program's name is empty.
    #[error("the program's name is empty")]
    EmptyProgram,
    /// No line or code.
    #[error("the {0} is empty")]
    Empty(&'static str),
    /// A NUL byte.
    #[error("the {0} holds a NUL byte, which no program can receive")]
    Nul(&'static str),
    /// Something is over its cap.
    #[error("the {what} is {size} bytes long; the most is {most}. {instead}")]
    TooLong {
        /// What is.
        what: &'static str,
        /// How long.
        size: usize,
        /// The cap.
        most: usize,
        /// What to do instead.
        instead: &'static str,
    },
    /// More entries than the cap.
    #[error("there are {count} {what}; the most is {most}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many.
        count: usize,
        /// The cap.
        most: usize,
    },
    /// A path that could lead outside.
    #[error("`{0}` is not a path below the workspace; write it relative and without `..`")]
    PathOutside(String),
    /// The workspace inside has no absolute path.
    #[error("the workspace cannot appear at `{0}`; write an absolute path, or `same`")]
    RelativeWorkspaceAt(String),
    /// A variable's name that cannot be one.
    #[error("`{0}` is not a variable's name; write letters, digits and `_`, not starting with a digit")]
    BadVariable(String),
    /// A file name with folders in it.
    #[error("`{0}` is not a plain file name; write it without folders")]
    BadFileName(String),
    /// A limit that leaves nothing to run with.
    #[error("a limit leaves nothing to run with; ask for at least one process, 1MiB of memory and 1 byte of output")]
    NothingCouldRun,
    /// A place is asked for by opening a session, not by a run.
    #[error("there is no program to run; a place without one is a session's")]
    NothingToRun,
    /// A terminal outside of a session.
    #[error("a terminal needs a session; start one with `ringfence session start`")]
    TerminalWithoutSession,
    /// A run in a session that wants a wall of its own.
    #[error("the wall of a session stands already: {0} is chosen when the session is started")]
    FixedBySession(&'static str),
}

impl Request {
    /// A request for `work` with everything else at its default.
    pub fn new(work: Work) -> Self {
        Self {
            work,
            workspace_at: WorkspaceAt::Default,
            cwd: PathBuf::new(),
            env: Vec::new(),
            stdin: Stdin::Empty,
            files: Vec::new(),
            overrides: Overrides::default(),
            terminal: None,
            metadata: Metadata { door: "library".to_owned(), labels: Vec::new() },
        }
    }

    /// All that it asks the policy for.
    pub(crate) fn whole_overrides(&self) -> Overrides {
        let mut overrides = self.overrides.clone();
        overrides.proc.env.set.extend(self.env.iter().cloned());
        overrides
    }

    /// A request for a program and its arguments.
    pub fn argv<I: IntoIterator<Item = S>, S: Into<OsString>>(argv: I) -> Self {
        Self::new(Work::Argv(argv.into_iter().map(Into::into).collect()))
    }

    /// A request for a shell line.
    pub fn shell(line: impl Into<String>) -> Self {
        Self::new(Work::Shell(line.into()))
    }

    /// A request for code.
    pub fn code(language: Language, source: impl Into<Vec<u8>>) -> Self {
        Self::new(Work::Code { language, source: source.into(), name: None, interpreter: None })
    }

    /// Checks all that can be checked without a policy.
    pub fn check(&self) -> Result<(), BadRequest> {
        match &self.work {
            Work::Argv(argv) => check_argv(argv)?,
            Work::Shell(line) => {
                if line.trim().is_empty() {
                    return Err(BadRequest::Empty("shell line"));
                }
                no_nul(line.as_bytes(), "shell line")?;
                at_most("shell line", line.len(), MOST_SHELL_BYTES, "Pass it as code in bash instead.")?;
            }
            Work::Code { source, name, .. } => {
                if source.is_empty() {
                    return Err(BadRequest::Empty("code"));
                }
                at_most("code", source.len(), MOST_CODE_BYTES, "Pass large data as files or standard input.")?;
                if let Some(name) = name {
                    plain_file_name(name)?;
                }
            }
            Work::Place => {}
        }
        if let WorkspaceAt::Path(path) = &self.workspace_at
            && !path.is_absolute()
        {
            return Err(BadRequest::RelativeWorkspaceAt(shorten(&path.to_string_lossy())));
        }
        below(&self.cwd)?;
        for (name, value) in &self.env {
            if !is_variable_name(name) {
                return Err(BadRequest::BadVariable(shorten(name)));
            }
            no_nul(value.as_bytes(), "value of an environment variable")?;
            at_most("value of an environment variable", value.len(), MOST_BYTES_OF_ONE_ARGUMENT, "Pass it as a file.")?;
        }
        if let Stdin::Bytes(bytes) = &self.stdin {
            at_most("standard input", bytes.len(), MOST_STDIN_BYTES, "Pass it as a stream or a file.")?;
        }
        if self.files.len() > MOST_FILES {
            return Err(BadRequest::TooMany { what: "files", count: self.files.len(), most: MOST_FILES });
        }
        for file in &self.files {
            below(&file.path)?;
            if file.path.as_os_str().is_empty() {
                return Err(BadRequest::PathOutside(String::new()));
            }
        }
        let total = self.files.iter().map(|file| file.content.len()).sum();
        at_most("total of the files", total, MOST_FILE_BYTES, "Put them into the workspace instead.")?;
        let labels = &self.metadata.labels;
        if labels.len() > MOST_METADATA {
            return Err(BadRequest::TooMany { what: "labels", count: labels.len(), most: MOST_METADATA });
        }
        for (name, value) in labels {
            at_most("label", name.len() + value.len(), MOST_METADATA_BYTES, "Keep it short.")?;
        }
        let proc = &self.overrides.proc;
        let nothing = proc.processes == Some(0) || proc.output.is_some_and(|output| output.get() == 0);
        if nothing || proc.memory.is_some_and(|memory| memory.get() < LEAST_MEMORY) {
            return Err(BadRequest::NothingCouldRun);
        }
        Ok(())
    }

    /// Checks what a run in a fresh sandbox cannot have.
    pub(crate) fn check_fresh(&self) -> Result<(), BadRequest> {
        if self.work == Work::Place {
            return Err(BadRequest::NothingToRun);
        }
        if self.terminal.is_some() { Err(BadRequest::TerminalWithoutSession) } else { Ok(()) }
    }

    /// Checks what a run in a session cannot have: a wall that differs from the one that stands.
    pub(crate) fn check_in_session(&self) -> Result<(), BadRequest> {
        let Overrides { backend, cache, fs, net, proc, validate: _ } = &self.overrides;
        let fixed = [
            (backend.is_some(), "the backend"),
            (cache.is_some(), "which caches are shown"),
            (*fs != Overrides::default().fs, "what of the file system is shown"),
            (*net != Overrides::default().net, "the network"),
            (proc.cpus.is_some(), "the number of processors"),
            (proc.memory.is_some(), "the memory limit"),
            (proc.processes.is_some(), "the limit of processes"),
            (self.workspace_at != WorkspaceAt::Default, "where the workspace appears"),
        ];
        if let Some((_, what)) = fixed.iter().find(|(asked, _)| *asked) {
            return Err(BadRequest::FixedBySession(what));
        }
        if self.work == Work::Place { Err(BadRequest::NothingToRun) } else { Ok(()) }
    }
}

fn check_argv(argv: &[OsString]) -> Result<(), BadRequest> {
    let program = argv.first().ok_or(BadRequest::EmptyArgv)?;
    if program.is_empty() {
        return Err(BadRequest::EmptyProgram);
    }
    let mut total = 0;
    for argument in argv {
        no_nul(argument.as_bytes(), "argument")?;
        at_most("argument", argument.len(), MOST_BYTES_OF_ONE_ARGUMENT, "Pass it as a file or standard input.")?;
        total += argument.len() + 1;
    }
    at_most("total of the arguments", total, MOST_ARGUMENT_BYTES, "Pass them as a file or standard input.")
}

fn at_most(what: &'static str, size: usize, most: usize, instead: &'static str) -> Result<(), BadRequest> {
    if size > most { Err(BadRequest::TooLong { what, size, most, instead }) } else { Ok(()) }
}

fn no_nul(bytes: &[u8], what: &'static str) -> Result<(), BadRequest> {
    if bytes.contains(&0) { Err(BadRequest::Nul(what)) } else { Ok(()) }
}

/// Only plain names, one below the other: no root, no `..`, no NUL.
fn below(path: &Path) -> Result<(), BadRequest> {
    let plain = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    if plain && !path.as_os_str().as_bytes().contains(&0) {
        Ok(())
    } else {
        Err(BadRequest::PathOutside(shorten(&path.to_string_lossy())))
    }
}

fn plain_file_name(name: &str) -> Result<(), BadRequest> {
    let mut parts = Path::new(name).components();
    let plain =
        matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == OsStr::new(name));
    if plain && !name.starts_with('-') && !name.contains('\0') {
        Ok(())
    } else {
        Err(BadRequest::BadFileName(shorten(name)))
    }
}

/// Whether a shell would take it as a variable's name.
pub fn is_variable_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 256
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn shorten(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(request: Request, expected: Result<(), BadRequest>) {
        assert_eq!(request.check(), expected);
    }

    #[test]
    fn a_program_needs_a_name_and_no_nul() {
        check(Request::argv(["true"]), Ok(()));
        check(Request::argv(Vec::<OsString>::new()), Err(BadRequest::EmptyArgv));
        check(Request::argv([""]), Err(BadRequest::EmptyProgram));
        check(Request::argv(["echo", "a\0b"]), Err(BadRequest::Nul("argument")));
        check(Request::argv([OsStr::from_bytes(b"\xff\xfe")]), Ok(()));
    }

    #[test]
    fn s08_an_argument_over_the_kernels_limit_is_refused_before_anything_starts() {
        let long = "x".repeat(1 << 20);
        assert!(matches!(Request::argv(["echo", &long]).check(), Err(BadRequest::TooLong { what: "argument", .. })));
        let many: Vec<String> = (0..30).map(|_| "x".repeat(100_000)).collect();
        assert!(matches!(Request::argv(many).check(), Err(BadRequest::TooLong { what: "total of the arguments", .. })));
        check(Request::argv(["echo", &"x".repeat(100_000)]), Ok(()));
    }

    #[test]
    fn code_of_ten_megabytes_is_a_request_and_of_a_hundred_is_not() {
        check(Request::code(Language::Python, vec![b'#'; 10 << 20]), Ok(()));
        assert!(Request::code(Language::Python, vec![b'#'; 100 << 20]).check().is_err());
        check(Request::code(Language::Python, ""), Err(BadRequest::Empty("code")));
    }

    #[test]
    fn a_limit_that_leaves_nothing_to_run_with_is_a_bad_request() {
        let mut request = Request::argv(["true"]);
        request.overrides.proc.processes = Some(0);
        check(request, Err(BadRequest::NothingCouldRun));
        let mut request = Request::argv(["true"]);
        request.overrides.proc.memory = Some(ringfence_policy::Bytes::new(1));
        check(request, Err(BadRequest::NothingCouldRun));
    }

    #[test]
    fn f18_a_working_directory_never_leads_outside_the_workspace() {
        for bad in ["/", "..", "a/../..", "/proc/self/fd/8", "a\0"] {
            let mut request = Request::argv(["true"]);
            request.cwd = PathBuf::from(bad);
            assert!(matches!(request.check(), Err(BadRequest::PathOutside(_))), "{bad}");
        }
        let mut request = Request::argv(["true"]);
        request.cwd = PathBuf::from("./src/inner");
        check(request, Ok(()));
    }

    #[test]
    fn f20_a_file_with_a_path_that_leads_outside_rejects_the_whole_request() {
        for bad in ["../x", "/etc/passwd", "a/../../b", ""] {
            let mut request = Request::code(Language::Bash, "true");
            request.files = vec![
                InputFile { path: PathBuf::from("good"), content: Vec::new() },
                InputFile { path: PathBuf::from(bad), content: Vec::new() },
            ];
            assert!(request.check().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_run_in_a_session_narrows_what_is_its_own_and_is_refused_anything_of_the_wall() {
        let mut own = Request::argv(["true"]);
        own.overrides.proc.timeout = Some("1s".parse().unwrap());
        own.overrides.proc.output = Some(ringfence_policy::Bytes::new(10));
        assert_eq!(own.check_in_session(), Ok(()));
        let of_the_wall: [fn(&mut Request); 5] = [
            |request| request.overrides.proc.memory = Some(ringfence_policy::Bytes::new(1 << 30)),
            |request| request.overrides.proc.processes = Some(4),
            |request| request.overrides.net.mode = Some(ringfence_policy::NetMode::None),
            |request| request.overrides.fs.mode = Some(ringfence_policy::WorkspaceMode::ReadOnly),
            |request| request.workspace_at = WorkspaceAt::Same,
        ];
        for ask in of_the_wall {
            let mut request = Request::argv(["true"]);
            ask(&mut request);
            assert!(matches!(request.check_in_session(), Err(BadRequest::FixedBySession(_))), "{request:?}");
        }
        let mut seen = Request::argv(["true"]);
        seen.terminal = Some(TerminalSize { rows: 24, columns: 80 });
        assert_eq!(seen.check_fresh(), Err(BadRequest::TerminalWithoutSession));
        assert_eq!(seen.check_in_session(), Ok(()));
        assert_eq!(Request::new(Work::Place).check_fresh(), Err(BadRequest::NothingToRun));
    }

    #[test]
    fn a_code_file_name_is_plain() {
        for (name, good) in
            [("a.py", true), ("../a.py", false), ("a/b.py", false), ("-c", false), ("..", false), ("", false)]
        {
            let request = Request::new(Work::Code {
                language: Language::Python,
                source: b"1".to_vec(),
                name: Some(name.to_owned()),
                interpreter: None,
            });
            assert_eq!(request.check().is_ok(), good, "{name}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_checked_without_a_panic(line in ".*", name in ".*", value in ".*", cwd in ".*") {
            let mut request = Request::shell(line);
            request.env = vec![(name.clone(), value)];
            request.cwd = PathBuf::from(cwd);
            request.check().ok();
            plain_file_name(&name).ok();
        }
    }
}
