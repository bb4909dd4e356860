//! `ringfence run`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use ringfence::capture::marker;
use ringfence::request::{MOST_CODE_BYTES, WorkspaceAt};
use ringfence::run_id::NoRandomness;
use ringfence::{Engine, Event, Outcome, Plan, Request, Run, Status, Stdin, Stream, Work};
use ringfence_policy::{Field, Grant, NetMode, Overrides, ResolvedPolicy};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::RunArgs;
use crate::setup;
use crate::terminal::Harmless;
use crate::{Done, Fatal, chatter, render};

/// What `timeout` gives an interrupted run before a second interrupt ends us at once.
const INTERRUPTED: u8 = 130;
const BROKEN_PIPE: u8 = 141;

/// Why a run was not even asked for.
#[derive(Debug, thiserror::Error)]
enum RunFailure {
    #[error("could not read the code from {path}")]
    ReadCode { path: PathBuf, source: io::Error },
    #[error("the code in {path} is longer than {MOST_CODE_BYTES} bytes")]
    LongCode { path: PathBuf },
    #[error("the {0} is not UTF-8")]
    NotText(&'static str),
    #[error("--code, a file or `-` must say what to run")]
    NoCode,
    #[error("standard input cannot be both the code and the program's input; give the code as a file or with --code")]
    StdinTwice,
    #[error("could not pass on standard input")]
    Stdin(#[source] io::Error),
    #[error("could not listen for signals")]
    Signals(#[source] io::Error),
    #[error("could not become the one who adopts orphans")]
    Adopt(#[source] io::Error),
    #[error(transparent)]
    RunId(#[from] NoRandomness),
    #[error("the run was abandoned before it ended")]
    Abandoned,
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
    #[error("could not write the outcome as JSON")]
    Json(#[from] serde_json::Error),
    #[error("there is no folder `{path}` below the workspace {workspace}")]
    Cwd { path: PathBuf, workspace: PathBuf },
}

impl Fatal for RunFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::NoCode | Self::StdinTwice | Self::NotText(_) | Self::LongCode { .. } | Self::Cwd { .. } => 2,
            Self::ReadCode { .. }
            | Self::Stdin(_)
            | Self::Signals(_)
            | Self::Adopt(_)
            | Self::RunId(_)
            | Self::Abandoned
            | Self::Output(_)
            | Self::Json(_) => crate::OUR_FAILURE,
        }
    }
}

pub(crate) fn run(args: RunArgs) -> Done {
    let work = work(&args)?;
    let granted: Vec<Grant> = match overrides(&args, None).only(&args.grant) {
        widen if widen.is_empty() => Vec::new(),
        widen => vec![Grant::new(widen, format!("--grant by uid {}", rustix::process::getuid().as_raw()))],
    };
    let context = setup::load(&args.layers, granted)?;
    let mut request = Request::new(work);
    request.overrides = overrides(&args, Some(&context.loaded.policy)).without(&args.grant);
    request.env = args.env.clone();
    request.workspace_at = match &args.at {
        None => WorkspaceAt::Default,
        Some(path) if path == Path::new("same") => WorkspaceAt::Same,
        Some(path) => WorkspaceAt::Path(path.clone()),
    };
    request.cwd = start_folder(&args, &context.workspace)?;
    request.metadata.door = "cli".to_owned();
    if args.stdin {
        request.stdin = Stdin::Pipe(pass_on_stdin()?);
    }
    ringfence::adopt_orphans().map_err(RunFailure::Adopt)?;
    let engine = setup::engine(context)?;
    let runtime = setup::runtime()?;
    runtime.block_on(async {
        if args.dry_run {
            return dry_run(&engine, request, &args).await;
        }
        follow(&engine, request, &args).await
    })
}

/// Where the program starts: `--cwd`, or the folder we are in when it lies below the workspace.
fn start_folder(args: &RunArgs, workspace: &Path) -> Result<PathBuf, RunFailure> {
    let Some(cwd) = &args.cwd else {
        let here = std::env::current_dir().ok().and_then(|here| here.canonicalize().ok());
        return Ok(here.and_then(|here| here.strip_prefix(workspace).ok().map(Path::to_owned)).unwrap_or_default());
    };
    if cwd.is_absolute() {
        return cwd
            .strip_prefix(workspace)
            .map(Path::to_owned)
            .map_err(|_| RunFailure::Cwd { path: cwd.clone(), workspace: workspace.to_owned() });
    }
    Ok(cwd.clone())
}

fn work(args: &RunArgs) -> Result<Work, RunFailure> {
    if let Some(line) = &args.shell {
        let line = line.to_str().ok_or(RunFailure::NotText("shell line"))?;
        return Ok(Work::Shell(line.to_owned()));
    }
    let Some(language) = args.lang else { return Ok(Work::Argv(args.command.clone())) };
    let (source, name) = match (&args.code, &args.file) {
        (Some(code), _) => (OsString::clone(code).into_encoded_bytes(), None),
        (None, Some(path)) if path == Path::new("-") => {
            if args.stdin {
                return Err(RunFailure::StdinTwice);
            }
            (read_code(io::stdin().lock(), Path::new("standard input"))?, None)
        }
        (None, Some(path)) => {
            let file = File::open(path).map_err(|source| RunFailure::ReadCode { path: path.clone(), source })?;
            let name = path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
            (read_code(file, path)?, name)
        }
        (None, None) => return Err(RunFailure::NoCode),
    };
    Ok(Work::Code { language, source, name })
}

fn read_code(from: impl Read, path: &Path) -> Result<Vec<u8>, RunFailure> {
    let mut source = Vec::new();
    from.take(MOST_CODE_BYTES as u64 + 1)
        .read_to_end(&mut source)
        .map_err(|error| RunFailure::ReadCode { path: path.to_owned(), source: error })?;
    if source.len() > MOST_CODE_BYTES {
        return Err(RunFailure::LongCode { path: path.to_owned() });
    }
    Ok(source)
}

/// What the flags ask for. The policy is needed where a flag adds to a list of it.
fn overrides(args: &RunArgs, policy: Option<&ResolvedPolicy>) -> Overrides {
    let mut overrides = Overrides::default();
    overrides.proc.timeout = args.timeout;
    overrides.proc.memory = args.memory;
    overrides.proc.cpus = args.cpus;
    overrides.proc.processes = args.processes;
    overrides.proc.output = args.output;
    overrides.net.mode = args.net.map(NetMode::from);
    if !args.allow_host.is_empty() {
        overrides.net.mode = overrides.net.mode.or(Some(NetMode::Allowlist));
        overrides.net.allow = Some(args.allow_host.clone());
    }
    if !args.pass_env.is_empty() {
        let known = policy.iter().flat_map(|policy| policy.proc.env.pass.iter().map(|name| name.value.clone()));
        overrides.proc.env.pass = Some(known.chain(args.pass_env.iter().cloned()).collect());
    }
    overrides
}

/// Copies our standard input to a pipe of our own, on a thread: the program gets no descriptor of the host, and a
/// terminal that is never closed does not hold up the end.
fn pass_on_stdin() -> Result<OwnedFd, RunFailure> {
    let (read, write) =
        rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|errno| RunFailure::Stdin(errno.into()))?;
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            // A program that reads no more, or input that breaks off, ends the copy; the program sees the end of file.
            io::copy(&mut io::stdin().lock(), &mut File::from(write)).ok();
        })
        .map_err(RunFailure::Stdin)?;
    Ok(read)
}

async fn dry_run(engine: &Engine, request: Request, args: &RunArgs) -> Done {
    match engine.dry_run(request).await {
        Ok(plan) => {
            chatter::data(&show_plan(&plan)).map_err(RunFailure::Output)?;
            Ok(0)
        }
        Err(outcome) => {
            finish(&outcome, args)?;
            Ok(outcome.conventional_exit_code())
        }
    }
}

fn show_plan(plan: &Plan) -> String {
    let mut text = format!(
        "run       {}\nbackend   {}\nworkspace {}\n",
        describe_work(plan.work()),
        plan.backend(),
        plan.workspace().display()
    );
    if !plan.cwd().as_os_str().is_empty() {
        text.push_str(&format!("start in  {}\n", plan.cwd().display()));
    }
    let limits = plan.limits();
    text.push_str(&format!("time      {:?}, then {:?} of grace\n", limits.timeout, limits.grace));
    let names: Vec<String> = plan.env().iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    text.push_str(&format!("variables {}\n", names.join(" ")));
    text.push_str("\nenforced\n");
    for evidence in plan.receipt() {
        text.push_str(&format!("  {:<18} {}\n", evidence.guarantee.name(), evidence.evidence));
    }
    if !plan.not_enforced().is_empty() {
        text.push_str("\nnot enforced\n");
        for guarantee in plan.not_enforced() {
            text.push_str(&format!("  {:<18} {}\n", guarantee.name(), guarantee.meaning()));
        }
    }
    text
}

fn describe_work(work: &Work) -> String {
    match work {
        Work::Argv(argv) => {
            let words: Vec<String> = argv.iter().map(|word| format!("{:?}", word.to_string_lossy())).collect();
            words.join(" ")
        }
        Work::Shell(line) => format!("shell line {line:?}"),
        Work::Code { language, source, .. } => format!("{} bytes of {language}", source.len()),
    }
}

/// Starts the run and shows it until it ends.
async fn follow(engine: &Engine, request: Request, args: &RunArgs) -> Done {
    let listen = |kind| signal(kind).map_err(RunFailure::Signals);
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hangup = listen(SignalKind::hangup())?;
    let mut run = engine.start(request).map_err(RunFailure::from)?;
    let mut screen = Screen::new(args);
    let mut stopped_by = None;
    let outcome = loop {
        let event = tokio::select! {
            event = run.next_event() => event,
            _ = interrupt.recv() => { stop(&run, &mut stopped_by, INTERRUPTED); continue }
            _ = terminate.recv() => { stop(&run, &mut stopped_by, 143); continue }
            _ = hangup.recv() => { stop(&run, &mut stopped_by, 129); continue }
        };
        let event = event.ok_or(RunFailure::Abandoned)?;
        if let Err(error) = screen.show(&event) {
            if error.kind() != io::ErrorKind::BrokenPipe {
                return Err(RunFailure::Output(error).into());
            }
            // Nobody reads what it prints: end it, and wait for its end.
            stop(&run, &mut stopped_by, BROKEN_PIPE);
        }
        if let Event::Ended(outcome) = event {
            break outcome;
        }
    };
    screen.notice_weak_wall(&outcome);
    finish(&outcome, args)?;
    Ok(stopped_by.unwrap_or_else(|| outcome.conventional_exit_code()))
}

fn stop(run: &Run, stopped_by: &mut Option<u8>, code: u8) {
    stopped_by.get_or_insert(code);
    run.cancel();
}

/// Where a run's output goes.
struct Screen {
    events: bool,
    streams: bool,
    quiet: bool,
    chosen_by_name: bool,
    stdout: Option<Harmless>,
    stderr: Option<Harmless>,
}

impl Screen {
    fn new(args: &RunArgs) -> Self {
        Self {
            events: args.events,
            streams: !args.json && !args.events,
            quiet: args.quiet,
            chosen_by_name: args.layers.backend.is_some() || args.layers.docker,
            stdout: io::stdout().is_terminal().then(Harmless::default),
            stderr: io::stderr().is_terminal().then(Harmless::default),
        }
    }

    fn show(&mut self, event: &Event) -> io::Result<()> {
        if self.events {
            let mut line = serde_json::to_string(event)?;
            line.push('\n');
            return chatter::data(&line);
        }
        match event {
            Event::Output { stream, bytes } if self.streams => self.write(*stream, bytes),
            Event::Omitted { stream, bytes } if self.streams => self.write(*stream, marker(*bytes).as_bytes()),
            Event::Ended(_) if self.streams => {
                let rest = [self.stdout.as_mut(), self.stderr.as_mut()].map(|open| open.map(Harmless::finish));
                let [stdout, stderr] = rest.map(Option::unwrap_or_default);
                io::stdout().lock().write_all(stdout.as_bytes())?;
                io::stderr().lock().write_all(stderr.as_bytes())
            }
            Event::Started { .. }
            | Event::Output { .. }
            | Event::Omitted { .. }
            | Event::Usage(_)
            | Event::Violation(_)
            | Event::Ended(_) => Ok(()),
        }
    }

    fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        fn put(mut to: impl Write, harmless: Option<&mut Harmless>, bytes: &[u8]) -> io::Result<()> {
            match harmless {
                Some(harmless) => to.write_all(harmless.push(bytes).as_bytes())?,
                None => to.write_all(bytes)?,
            }
            to.flush()
        }
        match stream {
            Stream::Stdout => put(io::stdout().lock(), self.stdout.as_mut(), bytes),
            Stream::Stderr => put(io::stderr().lock(), self.stderr.as_mut(), bytes),
        }
    }

    /// Says once what a weak wall did not enforce. A fallback is always said; a choice by name can be made quiet.
    fn notice_weak_wall(&self, outcome: &Outcome) {
        if outcome.not_enforced.is_empty() || (self.quiet && self.chosen_by_name) {
            return;
        }
        let Some(backend) = outcome.backend else { return };
        if let Some(fell_back) = &outcome.fell_back {
            chatter::say(&format!(
                "warning: `{}` could not be had ({}); the policy falls back to `{backend}`",
                fell_back.wanted, fell_back.reason
            ));
        }
        let names: Vec<&str> = outcome.not_enforced.iter().map(|guarantee| guarantee.name()).collect();
        chatter::say(&format!("warning: `{backend}` is no wall; not enforced: {}", names.join(", ")));
    }
}

/// The end of a run for a person or, with `--json`, for a program.
fn finish(outcome: &Outcome, args: &RunArgs) -> Result<(), RunFailure> {
    if args.json {
        let mut text = serde_json::to_string_pretty(outcome)?;
        text.push('\n');
        match chatter::data(&text) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Err(RunFailure::Output(error)),
            Ok(()) | Err(_) => {}
        }
        return Ok(());
    }
    if let Some(refused) = &outcome.refusal {
        chatter::say_raw(&render::refusal(refused));
    }
    if let Some(error) = &outcome.error {
        chatter::say_raw(&render::failure(error));
    }
    if !args.quiet {
        if outcome.output_truncated {
            chatter::say("some output was left out; the policy's proc.output is the cap");
        }
        match outcome.status {
            Status::TimedOut | Status::OutOfMemory | Status::TooManyProcesses => {
                let rules: Vec<String> = outcome
                    .violations
                    .iter()
                    .map(|violation| format!("{} ({})", violation.message, violation.rule))
                    .collect();
                chatter::say(&format!("stopped: {}", rules.join("; ")));
                if let Some(advice) = &outcome.advice {
                    chatter::say(advice);
                }
            }
            Status::Exited | Status::Signalled | Status::Cancelled | Status::Refused | Status::CouldNotRun => {}
        }
    }
    Ok(())
}

/// The part of a call's wishes that is, or is not, about some fields.
trait Split {
    fn only(&self, fields: &[Field]) -> Overrides;
    fn without(&self, fields: &[Field]) -> Overrides;
}

impl Split for Overrides {
    fn only(&self, fields: &[Field]) -> Overrides {
        let others: Vec<Field> = Field::all().filter(|field| !fields.contains(field)).collect();
        self.without(&others)
    }

    fn without(&self, fields: &[Field]) -> Overrides {
        let mut left = self.clone();
        for field in fields {
            match field {
                Field::Backend => left.backend = None,
                Field::WorkspaceMode => left.fs.mode = None,
                Field::FsSize => left.fs.size = None,
                Field::NetMode => left.net.mode = None,
                Field::NetAllow => left.net.allow = None,
                Field::NetLocalhost => left.net.localhost = None,
                Field::NetUnix => left.net.unix = None,
                Field::Cpus => left.proc.cpus = None,
                Field::Memory => left.proc.memory = None,
                Field::Processes => left.proc.processes = None,
                Field::Timeout => left.proc.timeout = None,
                Field::Output => left.proc.output = None,
                Field::EnvPass => left.proc.env.pass = None,
                Field::EnvSet => left.proc.env.set.clear(),
            }
        }
        left
    }
}
