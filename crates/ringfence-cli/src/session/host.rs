//! The process that keeps a session: opens it, answers commands, and ends with it.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringfence::approve::Nobody;
use ringfence::checkpoint::CheckpointError;
use ringfence::launcher::Launcher;
use ringfence::request::TerminalSize;
use ringfence::run::RunControl;
use ringfence::session::{IDLE, LIFE};
use ringfence::{Approver, Engine, Event, Outcome, Request, Run, Session, SessionRequest, Stdin, Stream};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::asking::{AtCommand, People};
use super::store::{Held, Info};
use super::wire::{AskedAt, Call, CheckpointCall, Exec, HEADER, Kind, Look, MOST_WORD, announced, message, read_call};
use super::{SessionFailure, SessionName};
use crate::approver::NotHeldBack;
use crate::args::{OutputArgs, SessionStartArgs};
use crate::ended::{Spoken, finish};
use crate::run::{wall_overrides, workspace_at};
use crate::{Done, chatter, setup};

/// Outcomes of runs in the background that nobody has fetched.
const MOST_OUTCOMES: usize = 64;
/// So long it may take, when the session has ended, to say how its runs did.
const TELLS: Duration = Duration::from_secs(2);

/// Opens a session and keeps it until it ends.
pub(super) fn keep(args: &SessionStartArgs) -> Done {
    if args.detached {
        // Not the terminal's any more, nor of the group that a signal from it goes to.
        rustix::process::setsid().map_err(|errno| SessionFailure::Spawn(errno.into()))?;
    }
    let name = match &args.name {
        Some(name) => name.clone(),
        None => SessionName::make_up()?,
    };
    let context = setup::load(&args.layers, Vec::new())?;
    let workspace = context.workspace.clone();
    let held = Held::take(&setup::state().map_err(SessionFailure::State)?, &name)?;
    ringfence::adopt_orphans().map_err(SessionFailure::Spawn)?;
    let people: Arc<People> = Arc::default();
    let engine = setup::engine_asking(context, Launcher::here().for_one_wall(), Arc::clone(&people) as _)?;
    let wanted = SessionRequest {
        workspace_at: workspace_at(args.at.as_deref()),
        overrides: wall_overrides(&args.wall),
        idle: args.idle.map_or(IDLE, |idle| idle.get()),
        life: args.life.map_or(LIFE, |life| life.get()),
        metadata: ringfence::request::Metadata {
            door: "cli".to_owned(),
            labels: vec![("session".to_owned(), name.to_string())],
        },
    };
    let (idle, life) = (wanted.idle, wanted.life);
    setup::runtime()?.block_on(async {
        let session = match engine.open_session(wanted).await {
            Ok(session) => session,
            Err(outcome) => {
                let output = OutputArgs { json: args.json, ..OutputArgs::default() };
                finish(&outcome, output, Spoken::All)?;
                return Ok(outcome.conventional_exit_code());
            }
        };
        let info = Info {
            name: name.to_string(),
            id: session.id().to_string(),
            backend: session.backend().to_string(),
            workspace: workspace.to_string_lossy().into_owned(),
            started_at: ringfence::session::now(),
            idle_seconds: idle.as_secs(),
            life_seconds: life.as_secs(),
            pid: std::process::id(),
        };
        let listener = UnixListener::from_std(held.listen()?).map_err(SessionFailure::Signals)?;
        held.announce(&info)?;
        tell(&info, args)?;
        serve(Arc::new(Keeper { name, engine, session, people, runs: Mutex::default() }), listener).await?;
        Ok(0)
    })
}

/// Says that the session is open, and lets go of what belongs to whoever started it.
fn tell(info: &Info, args: &SessionStartArgs) -> Result<(), SessionFailure> {
    if !args.detached {
        chatter::say(&format!("session `{0}` is open: `ringfence session exec {0} -- COMMAND`", info.name));
        return Ok(());
    }
    let text = serde_json::to_string(info).map_err(|error| SessionFailure::Output(error.into()))?;
    chatter::data(&text).map_err(SessionFailure::Output)?;
    let away = || -> io::Result<()> {
        let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        std::env::set_current_dir("/")
    };
    away().map_err(SessionFailure::Output)
}

struct Keeper {
    name: SessionName,
    engine: Engine,
    session: Session,
    people: Arc<People>,
    runs: Mutex<BTreeMap<String, Known>>,
}

/// A run that can be signalled and, when it is in the background, waited for.
struct Known {
    control: RunControl,
    outcome: watch::Receiver<Option<Box<Outcome>>>,
}

async fn serve(keeper: Arc<Keeper>, listener: UnixListener) -> Result<(), SessionFailure> {
    let listen = |kind| signal(kind).map_err(SessionFailure::Signals);
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let user = rustix::process::geteuid().as_raw();
    let mut answers = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            _ended = keeper.session.ended() => break,
            accepted = listener.accept() => accepted,
            Some(_answered) = answers.join_next() => continue,
            _ = interrupt.recv() => { keeper.session.close().await; break }
            _ = terminate.recv() => { keeper.session.close().await; break }
        };
        // One connection that could not be made is no reason to end the others.
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        if stream.peer_cred().is_ok_and(|peer| peer.uid() == user) {
            let keeper = Arc::clone(&keeper);
            answers.spawn(async move {
                // Whoever has gone away is told nothing more.
                keeper.answer(stream).await.ok();
            });
        }
    }
    // Its runs end with it, and a wall may be gone before all is said of them: the ledger and whoever waits hear how they ended.
    let all_told = async { while answers.join_next().await.is_some() {} };
    tokio::time::timeout(TELLS, all_told).await.ok();
    Ok(())
}

impl Keeper {
    async fn answer(&self, stream: UnixStream) -> io::Result<()> {
        let (call, given) = read_call(&stream).await?;
        let (from, mut to) = stream.into_split();
        match call {
            Call::Exec(exec) => self.exec(*exec, given, from, to).await,
            Call::Look => {
                let used = self.session.measure().await?;
                let look = Look { running: self.session.running(), tasks: used.tasks, memory_bytes: used.memory_bytes };
                to.write_all(&message(Kind::Answer, &serde_json::to_vec(&look)?)?).await
            }
            Call::Stop => {
                let ended = self.session.close().await;
                let told = to.write_all(&message(Kind::Answer, &serde_json::to_vec(&ended)?)?).await;
                // Left open until this process ends, which is what the command waits for.
                std::mem::forget((from, to));
                told
            }
            Call::Checkpoint(call) => to.write_all(&message(Kind::Answer, &self.checkpoint(call).await?)?).await,
            Call::Signal { run, signal } => {
                let control = self.find(&run).map(|(control, _)| control);
                match (control, Signal::from_named_raw(signal)) {
                    (Some(control), Some(signal)) => {
                        control.signal(signal);
                        to.write_all(&message(Kind::Answer, b"{}")?).await
                    }
                    _ => to.write_all(&message(Kind::NoSuchRun, b"")?).await,
                }
            }
            Call::Wait { run } => {
                let Some((_, mut outcome)) = self.find(&run) else {
                    return to.write_all(&message(Kind::NoSuchRun, b"")?).await;
                };
                let ended = outcome.wait_for(Option::is_some).await.map_err(io::Error::other)?.clone();
                to.write_all(&message(Kind::Ended, &serde_json::to_vec(&ended)?)?).await
            }
        }
    }

    /// Does something with the session's checkpoints. The answer is an `Ok` or an `Err` of the call's own type.
    async fn checkpoint(&self, call: CheckpointCall) -> io::Result<Vec<u8>> {
        match call {
            CheckpointCall::Create { name } => answer(self.session.checkpoint(name).await),
            CheckpointCall::List => answer(Ok(self.session.checkpoints())),
            CheckpointCall::Compare { from, to } => answer(self.session.compare(from, to).await),
            CheckpointCall::Restore { to, behind } => answer(self.session.restore(to, behind).await),
            CheckpointCall::Drop { which } => answer(self.session.drop_checkpoints(which).await),
        }
    }

    fn runs(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, run: &str) -> Option<(RunControl, watch::Receiver<Option<Box<Outcome>>>)> {
        self.runs().get(run).map(|known| (known.control.clone(), known.outcome.clone()))
    }

    async fn exec(
        &self,
        exec: Exec,
        given: Option<OwnedFd>,
        from: OwnedReadHalf,
        mut to: OwnedWriteHalf,
    ) -> io::Result<()> {
        let background = exec.background;
        let (input, person): (_, Arc<dyn Approver>) = match exec.asked {
            AskedAt::Nobody => (given, Arc::new(Nobody)),
            AskedAt::NotHeldBack => (given, Arc::new(NotHeldBack)),
            AskedAt::Terminal => (None, Arc::new(AtCommand::new(given.ok_or(io::ErrorKind::InvalidData)?)?)),
        };
        // About what the session's programs want of the network, whoever wants it.
        let _here = self.people.sit(&person, exec.asked);
        let request = self.request(exec, input)?;
        let run = self.session.start(&self.engine.asking(person), request).map_err(io::Error::other)?;
        let (sender, outcome) = watch::channel(None);
        let id = run.id().to_string();
        self.remember(&id, Known { control: run.control(), outcome });
        if background {
            return follow_in_background(run, &mut to, &sender).await;
        }
        let followed = follow(run, from, &mut to).await;
        self.runs().remove(&id);
        followed
    }

    /// Keeps the newest runs, and all that go on.
    fn remember(&self, id: &str, known: Known) {
        let mut runs = self.runs();
        runs.insert(id.to_owned(), known);
        while runs.len() > MOST_OUTCOMES {
            let over = runs.iter().find(|(_, known)| known.outcome.borrow().is_some()).map(|(id, _)| id.clone());
            let Some(over) = over else { return };
            runs.remove(&over);
        }
    }

    fn request(&self, exec: Exec, input: Option<OwnedFd>) -> io::Result<Request> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let cwd = exec.cwd();
        let mut request = Request::new(exec.work.into_work().ok_or_else(invalid)?);
        request.cwd = cwd;
        request.env = exec.env;
        request.overrides.proc.timeout =
            exec.timeout.map(|timeout| timeout.parse()).transpose().map_err(|_| invalid())?;
        if exec.terminal.is_some() || exec.background {
            // Nobody waits for these to return: without a wish, they have all the time that the policy gives.
            let most = self.session.policy().proc.max_timeout.value;
            request.overrides.proc.timeout = request.overrides.proc.timeout.or(Some(most));
        }
        request.overrides.proc.output = exec.output.map(ringfence_policy::Bytes::new);
        if !exec.pass_env.is_empty() {
            let known = self.session.policy().proc.env.pass.iter().map(|name| name.value.clone());
            request.overrides.proc.env.pass = Some(known.chain(exec.pass_env).collect());
        }
        request.terminal = exec.terminal.map(|(rows, columns)| TerminalSize { rows, columns });
        request.stdin = input.map_or(Stdin::Empty, Stdin::Pipe);
        request.metadata.door = "cli".to_owned();
        request.metadata.labels = vec![("session".to_owned(), self.name.to_string())];
        Ok(request)
    }
}

fn answer<T: serde::Serialize>(done: Result<T, CheckpointError>) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(&done.map_err(|error| error.failure())).map_err(io::Error::other)
}

/// Passes on what happens until the run is over. A command that goes away takes its run with it.
async fn follow(mut run: Run, mut from: OwnedReadHalf, to: &mut OwnedWriteHalf) -> io::Result<()> {
    let mut listening = true;
    let (mut word, mut read) = ([0u8; HEADER + MOST_WORD], 0);
    loop {
        let event = tokio::select! {
            event = run.next_event() => event,
            // Cancel-safe: what was read is kept in `word`.
            came = from.read(word.get_mut(read..).unwrap_or_default()), if listening => {
                match came {
                    Ok(came @ 1..) => {
                        read += came;
                        listening = obey(&run, &mut word, &mut read);
                    }
                    Ok(0) | Err(_) => listening = false,
                }
                if !listening {
                    run.cancel();
                }
                continue;
            }
        };
        let Some(event) = event else { return Ok(()) };
        let over = matches!(event, Event::Ended(_));
        if let Some(bytes) = as_message(&event)?
            && let Err(error) = to.write_all(&bytes).await
        {
            run.cancel();
            if over {
                return Err(error);
            }
        }
        if over {
            return Ok(());
        }
    }
}

/// Does what a command says while its run goes on; false when that means nothing.
fn obey(run: &Run, word: &mut [u8; HEADER + MOST_WORD], read: &mut usize) -> bool {
    while let Some(header) = word.first_chunk::<HEADER>().filter(|_| *read >= HEADER) {
        let Ok((kind, length)) = announced(*header, MOST_WORD) else { return false };
        let end = HEADER + length;
        if *read < end {
            return true;
        }
        match (kind, word.get(HEADER..end)) {
            (Kind::Cancel, _) => run.cancel(),
            (Kind::Resize, Some(&[a, b, c, d])) => {
                run.control()
                    .resize(TerminalSize { rows: u16::from_le_bytes([a, b]), columns: u16::from_le_bytes([c, d]) });
            }
            _ => return false,
        }
        word.copy_within(end.., 0);
        *read -= end;
    }
    true
}

/// Tells the run's id, and keeps its outcome for whoever asks.
async fn follow_in_background(
    mut run: Run,
    to: &mut OwnedWriteHalf,
    outcome: &watch::Sender<Option<Box<Outcome>>>,
) -> io::Result<()> {
    let mut told = false;
    while let Some(event) = run.next_event().await {
        let over = matches!(event, Event::Ended(_));
        if !told
            && (over || matches!(event, Event::Started { .. }))
            && let Some(bytes) = as_message(&event)?
        {
            told = true;
            // A command that is gone does not end what it left in the background.
            to.write_all(&bytes).await.ok();
            to.shutdown().await.ok();
        }
        if let Event::Ended(ended) = event {
            outcome.send_replace(Some(ended));
        }
    }
    Ok(())
}

fn as_message(event: &Event) -> io::Result<Option<Vec<u8>>> {
    let letter = |stream: &Stream| match stream {
        Stream::Stdout => Kind::Stdout,
        Stream::Stderr => Kind::Stderr,
    };
    Ok(Some(match event {
        Event::Started { run_id, backend } => message(Kind::Started, &serde_json::to_vec(&(run_id, backend))?)?,
        Event::Output { stream, bytes } => message(letter(stream), bytes)?,
        Event::Omitted { stream, bytes } => {
            message(Kind::Omitted, &[&[letter(stream) as u8][..], &bytes.to_le_bytes()].concat())?
        }
        Event::Violation(violation) => message(Kind::Violation, &serde_json::to_vec(violation)?)?,
        Event::Traffic { run_id, traffic } => message(Kind::Traffic, &serde_json::to_vec(&(run_id, traffic))?)?,
        Event::Ended(outcome) => message(Kind::Ended, &serde_json::to_vec(outcome)?)?,
        Event::Usage(_) | Event::Preparing { .. } => return Ok(None),
    }))
}
