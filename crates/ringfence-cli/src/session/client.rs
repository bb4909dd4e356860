//! Commands that want something of a session.

use std::io::{self, IsTerminal, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use ringfence::{Event, Outcome, Stream};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::asking;
use super::store::{Info, connect};
use super::wire::{self, AskedAt, Call, Exec, Kind, WireWork, message, read_answer};
use super::{SessionFailure, SessionName};
use crate::args::{ExecArgs, OutputArgs};
use crate::ended::{Spoken, finish};
use crate::printer::{Printed, Printer, Screen};
use crate::run::{self, BROKEN_PIPE, QUIT, start_folder};
use crate::stdin::pass_on_stdin;
use crate::stop_signals::StopSignals;
use crate::{Done, chatter, question, setup};

/// How long a keeper may take to put everything away after its session has ended.
const KEEPER_ENDS: Duration = Duration::from_secs(5);
/// Events on their way from the thread that reads to the one that prints.
const WAITING: usize = 16;
/// Likewise, where a question may hold back what is printed: its end must be heard behind them. How much they hold is bounded by the
/// policy's `proc.output`.
const WAITING_FOR_AN_ANSWER: usize = 64 * 1024;

/// Makes a call that has one answer; nothing when there is no such run.
pub(super) fn ask(name: &SessionName, call: &Call) -> Result<Option<Vec<u8>>, SessionFailure> {
    let (_, mut stream) = open(name)?;
    let talk = |source| SessionFailure::Talk { name: name.clone(), source };
    wire::call(&mut stream, call, None).map_err(talk)?;
    match read_answer(&mut stream).map_err(talk)? {
        Some((Kind::Answer | Kind::Ended, body)) => {
            if matches!(call, Call::Stop) {
                wait_for_the_end(&mut stream);
            }
            Ok(Some(body))
        }
        Some((Kind::NoSuchRun, _)) => Ok(None),
        Some(_) | None => Err(SessionFailure::Ended(name.clone())),
    }
}

/// Waits until the session's keeper has put everything away. It has nothing more to say; one that hangs is not waited for.
fn wait_for_the_end(stream: &mut UnixStream) {
    stream.set_read_timeout(Some(KEEPER_ENDS)).ok();
    stream.read_exact(&mut [0u8; 1]).ok();
}

fn open(name: &SessionName) -> Result<(Info, UnixStream), SessionFailure> {
    connect(&setup::state()?, name)
}

pub(super) fn exec(args: &ExecArgs) -> Done {
    let work = run::work(&args.work, args.stdin)?;
    let (info, mut stream) = open(&args.name)?;
    let talk = |source| SessionFailure::Talk { name: args.name.clone(), source };
    let terminal = args.terminal.then(OurTerminal::take).transpose()?;
    let mut env = args.limits.env.clone();
    if terminal.is_some() && !env.iter().any(|(name, _)| name == "TERM") {
        env.push(("TERM".to_owned(), std::env::var("TERM").unwrap_or_else(|_| "xterm-256color".to_owned())));
    }
    let call = Call::Exec(Box::new(Exec {
        work: WireWork::new(work).ok_or_else(|| talk(io::ErrorKind::InvalidInput.into()))?,
        cwd: start_folder(args.limits.cwd.as_deref(), Path::new(&info.workspace))?.into_os_string(),
        env,
        pass_env: args.limits.pass_env.clone(),
        timeout: args.limits.timeout.map(|timeout| timeout.to_string()),
        output: args.limits.output.map(|output| output.get()),
        terminal: terminal.as_ref().map(OurTerminal::size).transpose()?,
        background: args.background,
        asked: asked_at(args),
    }));
    let (mut input, mut questions) = (None, None);
    if asked_at(args) == AskedAt::Terminal {
        let (keepers, ours) = asking::pair().map_err(talk)?;
        wire::call(&mut stream, &call, Some(keepers.as_fd())).map_err(talk)?;
        questions = Some(ours);
    } else if args.stdin || args.terminal {
        let (read, write) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|errno| talk(errno.into()))?;
        wire::call(&mut stream, &call, Some(read.as_fd())).map_err(talk)?;
        input = Some(write);
    } else {
        wire::call(&mut stream, &call, None).map_err(talk)?;
    }
    if args.background {
        return begun(&mut stream, args);
    }
    let done = setup::runtime()?.block_on(follow(stream, input, questions, terminal.as_ref(), args));
    drop(terminal);
    let (outcome, stopped_by) = done?;
    let Some(outcome) = outcome else { return Ok(stopped_by.unwrap_or(BROKEN_PIPE)) };
    finish(&outcome, args.output, Spoken::All)?;
    Ok(stopped_by.unwrap_or_else(|| outcome.conventional_exit_code()))
}

/// Who can be asked here. With its input passed on, the terminal is the program's to read from, and a program that was given the terminal itself
/// could write anything on it.
fn asked_at(args: &ExecArgs) -> AskedAt {
    if args.stdin || args.terminal || args.background || !question::can_ask() {
        AskedAt::Nobody
    } else if question::is_held_back(args.output) {
        AskedAt::Terminal
    } else {
        AskedAt::NotHeldBack
    }
}

/// Prints the id of a run that goes on in the background.
fn begun(stream: &mut UnixStream, args: &ExecArgs) -> Done {
    let talk = |source| SessionFailure::Talk { name: args.name.clone(), source };
    match read_answer(stream).map_err(talk)? {
        Some((Kind::Started, body)) => {
            let (id, _): (String, String) = serde_json::from_slice(&body).map_err(|error| talk(error.into()))?;
            chatter::data(&format!("{id}\n")).map_err(SessionFailure::Output)?;
            Ok(0)
        }
        Some((Kind::Ended, body)) => {
            let outcome: Outcome = serde_json::from_slice(&body).map_err(|error| talk(error.into()))?;
            finish(&outcome, args.output, Spoken::All)?;
            Ok(outcome.conventional_exit_code())
        }
        Some(_) | None => Err(SessionFailure::Ended(args.name.clone()).into()),
    }
}

/// Waits for a run in the background, and shows it as if it had been in the foreground.
pub(super) fn wait(name: &SessionName, run: String, output: OutputArgs) -> Done {
    let answer = ask(name, &Call::Wait { run: run.clone() })?.ok_or(SessionFailure::NoSuchRun(run))?;
    let talk = |error: serde_json::Error| SessionFailure::Talk { name: name.clone(), source: error.into() };
    let outcome: Outcome = serde_json::from_slice(&answer).map_err(talk)?;
    if !output.json && !output.events {
        let mut screen = Screen::new(output, true);
        let exact = |text: &str, exact: &Option<String>| {
            let decode = |exact: &String| base64::engine::general_purpose::STANDARD.decode(exact).ok();
            exact.as_ref().and_then(decode).unwrap_or_else(|| text.as_bytes().to_vec())
        };
        for (stream, bytes) in [
            (Stream::Stdout, exact(&outcome.stdout, &outcome.stdout_base64)),
            (Stream::Stderr, exact(&outcome.stderr, &outcome.stderr_base64)),
        ] {
            screen.show(&Event::Output { stream, bytes }).map_err(SessionFailure::Output)?;
        }
    }
    finish(&outcome, output, Spoken::All)?;
    Ok(outcome.conventional_exit_code())
}

/// Shows a run until it ends; its outcome and, when we ended it, with which exit code.
async fn follow(
    stream: UnixStream,
    mut input: Option<OwnedFd>,
    questions: Option<UnixStream>,
    terminal: Option<&OurTerminal>,
    args: &ExecArgs,
) -> Result<(Option<Box<Outcome>>, Option<u8>), Box<dyn crate::Fatal>> {
    let talk = |source| SessionFailure::Talk { name: args.name.clone(), source };
    let listen = |kind| signal(kind).map_err(SessionFailure::Signals);
    let mut signals = StopSignals::listen().map_err(SessionFailure::Signals)?;
    let mut quit = listen(SignalKind::quit())?;
    let mut resized = listen(SignalKind::window_change())?;
    let read_from = stream.try_clone().map_err(talk)?;
    let write_to = stream.try_clone().map_err(talk)?;
    let over = Arc::new(Notify::new());
    let waiting = if questions.is_some() { WAITING_FOR_AN_ANSWER } else { WAITING };
    let mut events = read_on_a_thread(read_from, waiting, Arc::clone(&over)).map_err(talk)?;
    // A keeper that asks what means nothing gets no answer.
    let asking = questions.map(|questions| tokio::spawn(async move { drop(asking::ask_here(questions).await) }));
    let ask_no_more = || asking.iter().for_each(JoinHandle::abort);
    // Only short words are written, so this never waits long.
    let say = |kind: Kind, body: &[u8]| -> io::Result<()> { (&write_to).write_all(&message(kind, body)?) };
    let mut screen = Screen::new(args.output, true);
    if terminal.is_some() {
        screen = screen.unfiltered();
    }
    let mut printer = Printer::new(screen);
    let mut stopped_by = None;
    let mut stop = |code: u8| {
        stopped_by.get_or_insert(code);
        ask_no_more();
        // A keeper that is gone has ended the run.
        say(Kind::Cancel, &[]).ok();
    };
    let outcome = loop {
        let event = tokio::select! {
            event = events.recv() => event,
            code = signals.next() => { stop(code); continue }
            _ = quit.recv() => { stop(QUIT); continue }
            _ = resized.recv() => {
                if let Some((rows, columns)) = terminal.map(OurTerminal::size).transpose()? {
                    say(Kind::Resize, &[rows.to_le_bytes(), columns.to_le_bytes()].concat()).map_err(talk)?;
                }
                continue;
            }
        };
        let event = event.ok_or_else(|| SessionFailure::Ended(args.name.clone()))?.map_err(talk)?;
        match event {
            Event::Started { .. } => {
                if let Some(input) = input.take() {
                    pass_on_stdin(input)?;
                }
            }
            Event::Ended(outcome) => break outcome,
            _ => {}
        }
        let mut printing = pin!(printer.print(event));
        // Output waits as long as a question stands. Whoever stops the run ends both, and the end of the run ends its questions.
        let printed = loop {
            tokio::select! {
                printed = &mut printing => break printed.map_err(SessionFailure::Output)?,
                code = signals.next() => stop(code),
                () = over.notified() => ask_no_more(),
            }
        };
        if printed == Printed::NobodyReads {
            stop(BROKEN_PIPE);
        }
    };
    ask_no_more();
    stream.shutdown(Shutdown::Both).ok();
    match printer.finish(Event::Ended(outcome.clone())).await {
        Ok(_) => Ok((Some(outcome), stopped_by)),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok((None, stopped_by)),
        Err(error) => Err(SessionFailure::Output(error).into()),
    }
}

type Events = tokio::sync::mpsc::Receiver<io::Result<Event>>;

/// Reads what the session's keeper tells, on a thread: it waits for one message at a time.
/// Its end is told at once, whatever waits before it.
fn read_on_a_thread(mut stream: UnixStream, waiting: usize, told_over: Arc<Notify>) -> io::Result<Events> {
    let (sender, events) = tokio::sync::mpsc::channel(waiting);
    std::thread::Builder::new().name("session".to_owned()).spawn(move || {
        loop {
            let event = match read_answer(&mut stream) {
                Ok(Some((kind, body))) => as_event(kind, body),
                Ok(None) => return,
                Err(error) => Err(error),
            };
            let over = !matches!(event, Ok(ref event) if !matches!(event, Event::Ended(_)));
            if over {
                told_over.notify_one();
            }
            if sender.blocking_send(event).is_err() || over {
                return;
            }
        }
    })?;
    Ok(events)
}

fn as_event(kind: Kind, body: Vec<u8>) -> io::Result<Event> {
    let meaningless = || io::Error::new(io::ErrorKind::InvalidData, "the session's keeper said something unknown");
    Ok(match kind {
        Kind::Started => {
            let (run_id, backend) = serde_json::from_slice(&body)?;
            Event::Started { run_id, backend }
        }
        Kind::Stdout => Event::Output { stream: Stream::Stdout, bytes: body },
        Kind::Stderr => Event::Output { stream: Stream::Stderr, bytes: body },
        Kind::Omitted => {
            let (letter, count) = body.split_first().ok_or_else(meaningless)?;
            let stream = if *letter == Kind::Stdout as u8 { Stream::Stdout } else { Stream::Stderr };
            Event::Omitted { stream, bytes: u64::from_le_bytes(count.try_into().map_err(|_| meaningless())?) }
        }
        Kind::Violation => Event::Violation(serde_json::from_slice(&body)?),
        Kind::Traffic => {
            let (run_id, traffic) = serde_json::from_slice(&body)?;
            Event::Traffic { run_id, traffic }
        }
        Kind::Ended => Event::Ended(serde_json::from_slice(&body)?),
        Kind::Answer
        | Kind::NoSuchRun
        | Kind::Cancel
        | Kind::Resize
        | Kind::Question
        | Kind::Withdrawn
        | Kind::Reply => return Err(meaningless()),
    })
}

/// Our terminal, which passes every key on; as it was when dropped.
struct OurTerminal {
    before: Termios,
}

impl OurTerminal {
    fn take() -> Result<Self, SessionFailure> {
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return Err(SessionFailure::NoTerminal);
        }
        let before = tcgetattr(&stdin).map_err(|errno| SessionFailure::Terminal(errno.into()))?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Flush, &raw).map_err(|errno| SessionFailure::Terminal(errno.into()))?;
        Ok(Self { before })
    }

    /// Rows and columns.
    fn size(&self) -> Result<(u16, u16), SessionFailure> {
        let size = tcgetwinsize(io::stdin()).map_err(|errno| SessionFailure::Terminal(errno.into()))?;
        Ok((size.ws_row.max(1), size.ws_col.max(1)))
    }
}

impl Drop for OurTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        tcsetattr(io::stdin(), OptionalActions::Flush, &self.before).ok();
    }
}
