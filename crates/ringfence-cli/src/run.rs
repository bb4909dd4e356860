//! `ringfence run`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::pin::pin;

use ringfence::language::UnknownInterpreter;
use ringfence::launcher::Launcher;
use ringfence::request::{MOST_CODE_BYTES, WorkspaceAt};
use ringfence::run_id::NoRandomness;
use ringfence::{Engine, Event, Plan, Request, Run, Stdin, Work};
use ringfence_policy::{Field, Grant, NetMode, Overrides, ResolvedPolicy};
use serde_json::json;

use crate::args::{ApplyWhen, Asked, RunArgs, WallLimitArgs, WorkArgs};
use crate::ended::{Spoken, finish};
use crate::printer::{Printed, Printer, Screen};
use crate::setup;
use crate::stdin::pass_on_stdin;
use crate::stop_signals::StopSignals;
use crate::terminal::harmless;
use crate::{Done, Fatal, chatter};

pub(crate) const HUNG_UP: u8 = 129;
pub(crate) const INTERRUPTED: u8 = 130;
pub(crate) const QUIT: u8 = 131;
pub(crate) const BROKEN_PIPE: u8 = 141;
pub(crate) const TERMINATED: u8 = 143;

/// Why a run was not even asked for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunFailure {
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
    #[error(transparent)]
    Interpreter(#[from] UnknownInterpreter),
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
    #[error("could not start the thread that prints")]
    Printer(#[source] io::Error),
    #[error("could not write to standard output")]
    Output(#[source] io::Error),
    #[error("could not write the outcome as JSON")]
    Json(#[from] serde_json::Error),
    #[error("there is no folder `{path}` below the workspace {workspace}")]
    Cwd { path: PathBuf, workspace: PathBuf },
    #[error("--grant {0} permits nothing: no flag asks for more of it")]
    EmptyGrant(Field),
}

impl Fatal for RunFailure {
    fn exit_code(&self) -> u8 {
        match self {
            Self::NoCode
            | Self::StdinTwice
            | Self::Interpreter(_)
            | Self::NotText(_)
            | Self::LongCode { .. }
            | Self::Cwd { .. }
            | Self::EmptyGrant(_) => 2,
            Self::ReadCode { .. }
            | Self::Stdin(_)
            | Self::Signals(_)
            | Self::Adopt(_)
            | Self::RunId(_)
            | Self::Abandoned
            | Self::Printer(_)
            | Self::Output(_)
            | Self::Json(_) => crate::OUR_FAILURE,
        }
    }
}

pub(crate) fn run(args: RunArgs, launcher: Launcher) -> Done {
    let launcher = launcher.for_one_wall();
    let work = work(&args.work, args.stdin)?;
    let mut wishes = overrides(&args, None);
    wishes.proc.env.set.extend(args.limits.env.iter().cloned());
    if let Some(field) = args.grant.iter().find(|field| wishes.only(&[**field]).is_empty()) {
        return Err(RunFailure::EmptyGrant(*field).into());
    }
    let granted: Vec<Grant> = match wishes.only(&args.grant) {
        widen if widen.is_empty() => Vec::new(),
        widen => vec![Grant::new(widen, format!("--grant by uid {}", rustix::process::getuid().as_raw()))],
    };
    let context = setup::load(&args.layers, granted)?;
    let mut request = Request::new(work);
    request.overrides = overrides(&args, Some(&context.loaded.policy)).without(&args.grant);
    // What was granted is in the policy already; as a wish of the request it would be refused again.
    if !args.grant.contains(&Field::EnvSet) {
        request.env = args.limits.env.clone();
    }
    request.workspace_at = workspace_at(args.at.as_deref());
    request.cwd = start_folder(args.limits.cwd.as_deref(), &context.workspace)?;
    request.metadata.door = "cli".to_owned();
    let mut input = None;
    if args.stdin {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|errno| RunFailure::Stdin(errno.into()))?;
        request.stdin = Stdin::Pipe(read);
        input = Some(write);
    }
    ringfence::adopt_orphans().map_err(RunFailure::Adopt)?;
    // With its input passed on, the terminal is the program's to read from.
    let asks_nobody = !args.approve.is_empty() || args.ask == Asked::Nobody;
    let engine = match (asks_nobody, args.stdin) {
        (true, _) => setup::engine_approving(context, launcher, args.approve.clone())?,
        (false, true) => setup::engine(context, launcher)?,
        (false, false) => setup::engine_at_terminal(context, launcher, args.output)?,
    };
    engine.expect(&request);
    // The process ends with its run: what the kernel takes back at once is not taken apart piece by piece before.
    let runtime = ManuallyDrop::new(setup::runtime()?);
    runtime.block_on(async {
        if args.dry_run {
            return dry_run(&engine, request, &args).await;
        }
        let done = follow(&engine, request, input, &args).await;
        engine.tidy().await;
        done
    })
}

/// Where the program starts: `--cwd`, or the folder we are in when it lies below the workspace.
pub(crate) fn start_folder(cwd: Option<&Path>, workspace: &Path) -> Result<PathBuf, RunFailure> {
    let Some(cwd) = cwd else {
        let here = std::env::current_dir().ok().and_then(|here| here.canonicalize().ok());
        return Ok(here.and_then(|here| here.strip_prefix(workspace).ok().map(Path::to_owned)).unwrap_or_default());
    };
    if cwd.is_absolute() {
        return cwd
            .strip_prefix(workspace)
            .map(Path::to_owned)
            .map_err(|_| RunFailure::Cwd { path: cwd.to_owned(), workspace: workspace.to_owned() });
    }
    Ok(cwd.to_owned())
}

pub(crate) fn work(args: &WorkArgs, passes_stdin: bool) -> Result<Work, RunFailure> {
    if let Some(line) = &args.shell {
        let line = line.to_str().ok_or(RunFailure::NotText("shell line"))?;
        return Ok(Work::Shell(line.to_owned()));
    }
    let Some(language) = args.lang else { return Ok(Work::Argv(args.command.clone())) };
    let interpreter = args.interpreter.as_deref().map(|program| language.interpreter(program)).transpose()?;
    let (source, name) = match (&args.code, &args.file) {
        (Some(code), _) => (OsString::clone(code).into_encoded_bytes(), None),
        (None, Some(path)) if path == Path::new("-") => {
            if passes_stdin {
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
    Ok(Work::Code { language, source, name, interpreter })
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
    let mut overrides = wall_overrides(&args.wall);
    overrides.proc.timeout = args.limits.timeout;
    overrides.proc.output = args.limits.output;
    if !args.limits.pass_env.is_empty() {
        let known = policy.iter().flat_map(|policy| policy.proc.env.pass.iter().map(|name| name.value.clone()));
        overrides.proc.env.pass = Some(known.chain(args.limits.pass_env.iter().cloned()).collect());
    }
    overrides
}

/// Likewise, of what belongs to a wall.
pub(crate) fn wall_overrides(args: &WallLimitArgs) -> Overrides {
    let mut overrides = Overrides::default();
    overrides.proc.memory = args.memory;
    overrides.proc.cpus = args.cpus;
    overrides.proc.processes = args.processes;
    overrides.fs.mode = args.mode;
    overrides.fs.source = args.source;
    overrides.net.mode = args.net.map(NetMode::from);
    if !args.allow_host.is_empty() {
        overrides.net.mode = overrides.net.mode.or(Some(NetMode::Allowlist));
        overrides.net.allow = Some(args.allow_host.clone());
    }
    overrides
}

/// Where the workspace appears inside.
pub(crate) fn workspace_at(at: Option<&Path>) -> WorkspaceAt {
    match at {
        None => WorkspaceAt::Default,
        Some(path) if path == Path::new("same") => WorkspaceAt::Same,
        Some(path) => WorkspaceAt::Path(path.to_owned()),
    }
}

async fn dry_run(engine: &Engine, request: Request, args: &RunArgs) -> Done {
    match engine.dry_run(request).await {
        Ok(plan) => {
            let text = if args.output.json { plan_as_json(&plan) } else { show_plan(&plan) };
            chatter::data(&text).map_err(RunFailure::Output)?;
            Ok(0)
        }
        Err(outcome) => {
            finish(&outcome, args.output, Spoken::All)?;
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
    harmless(&text)
}

fn plan_as_json(plan: &Plan) -> String {
    let milliseconds = |span: std::time::Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let limits = plan.limits();
    let variables: Vec<_> = plan.env().iter().map(|(name, _)| name.to_string_lossy()).collect();
    let plan = json!({ "plan": {
        "work": describe_work(plan.work()),
        "backend": plan.backend(),
        "workspace": plan.workspace().to_string_lossy(),
        "cwd": plan.cwd().to_string_lossy(),
        "timeoutMs": milliseconds(limits.timeout),
        "graceMs": milliseconds(limits.grace),
        "variables": variables,
        "envWithheld": plan.env_withheld(),
        "enforced": plan.receipt(),
        "notEnforced": plan.not_enforced(),
        "effectivePolicy": plan.policy().canonical_json(),
    }});
    format!("{plan:#}\n")
}

fn describe_work(work: &Work) -> String {
    match work {
        Work::Argv(argv) => {
            let words: Vec<String> = argv.iter().map(|word| format!("{:?}", word.to_string_lossy())).collect();
            words.join(" ")
        }
        Work::Shell(line) => format!("shell line {line:?}"),
        Work::Code { language, source, interpreter, .. } => match interpreter {
            Some(named) => format!("{} bytes of {language}, by {:?}", source.len(), named.program()),
            None => format!("{} bytes of {language}", source.len()),
        },
        Work::Place => "nothing".to_owned(),
    }
}

/// Starts the run and shows it until it ends. Threads are made only once the program runs: until then this process may
/// raise walls itself.
async fn follow(engine: &Engine, request: Request, mut input: Option<OwnedFd>, args: &RunArgs) -> Done {
    let mut signals = StopSignals::listen().map_err(RunFailure::Signals)?;
    let mut run = engine.start(request).map_err(RunFailure::from)?;
    let mut printer = Printer::new(Screen::new(args.output, args.layers.named_backend().is_some()));
    let mut stopped_by = None;
    let outcome = loop {
        let event = tokio::select! {
            event = run.next_event() => event,
            code = signals.next() => { stop(&run, &mut stopped_by, code); continue }
        };
        let event = event.ok_or(RunFailure::Abandoned)?;
        if let Event::Started { .. } = event
            && let Some(input) = input.take()
        {
            pass_on_stdin(input)?;
        }
        if let Event::Ended(outcome) = event {
            break outcome;
        }
        let mut printing = pin!(printer.print(event));
        // Output waits as long as a question stands, and whoever stops the run ends both.
        let printed = loop {
            tokio::select! {
                printed = &mut printing => break printed.map_err(RunFailure::Printer)?,
                code = signals.next() => stop(&run, &mut stopped_by, code),
            }
        };
        if printed == Printed::NobodyReads {
            // End it, and wait for its end.
            stop(&run, &mut stopped_by, BROKEN_PIPE);
        }
    };
    let mut outcome = outcome;
    match args.apply {
        Some(ApplyWhen::Clean) => engine.apply_if_clean(&mut outcome).await,
        Some(ApplyWhen::Unflagged) => engine.apply_unflagged(&mut outcome).await,
        None => {}
    }
    let screen = match printer.finish(Event::Ended(outcome.clone())).await {
        Ok(screen) => screen,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            return Ok(BROKEN_PIPE);
        }
        Err(error) => return Err(RunFailure::Output(error).into()),
    };
    screen.notice_weak_wall(&outcome);
    finish(&outcome, args.output, spoken(args.apply))?;
    Ok(stopped_by.unwrap_or_else(|| outcome.conventional_exit_code()))
}

/// Whoever wants all applied that may be has nothing to do where all of it was.
fn spoken(apply: Option<ApplyWhen>) -> Spoken {
    match apply {
        Some(ApplyWhen::Unflagged) => Spoken::WhatWasLeft,
        Some(ApplyWhen::Clean) | None => Spoken::All,
    }
}

fn stop(run: &Run, stopped_by: &mut Option<u8>, code: u8) {
    stopped_by.get_or_insert(code);
    run.cancel();
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
                Field::Cache => left.cache = None,
                Field::WorkspaceMode => left.fs.mode = None,
                Field::WorkspaceSource => left.fs.source = None,
                Field::FsSize => left.fs.size = None,
                Field::NetMode => left.net.mode = None,
                Field::NetAllow => left.net.allow = None,
                Field::NetLocalhost => left.net.localhost = None,
                Field::NetUnix => left.net.unix = None,
                Field::NetBudget => left.net.budget = None,
                Field::NetUnknown => left.net.unknown = None,
                Field::Cpus => left.proc.cpus = None,
                Field::Memory => left.proc.memory = None,
                Field::Processes => left.proc.processes = None,
                Field::Limits => left.proc.limits = None,
                Field::Timeout => left.proc.timeout = None,
                Field::Output => left.proc.output = None,
                Field::EnvPass => left.proc.env.pass = None,
                Field::EnvSet => left.proc.env.set.clear(),
                Field::Validate => left.validate = None,
            }
        }
        left
    }
}
