//! Prints what a run writes, on a thread of its own: a reader who is slow must never hold up a time limit.

use std::io::{self, IsTerminal, Write};
use std::thread::JoinHandle;

use ringfence::capture::marker;
use ringfence::{Event, Outcome, Stream};
use ringfence_policy::BackendKind;
use tokio::sync::{Mutex, mpsc};

use crate::args::OutputArgs;
use crate::chatter;
use crate::terminal::Harmless;

/// Whoever holds it holds back what programs write.
pub(crate) static HELD_BACK: Mutex<()> = Mutex::const_new(());

/// Events that wait for the thread.
const WAITING: usize = 4;

/// Whether anybody sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Printed {
    /// It was passed on.
    PassedOn,
    /// Whoever read our output has gone.
    NobodyReads,
}

/// A screen, and the thread that writes to it once there is something to write.
pub(crate) enum Printer {
    /// Nothing was printed yet.
    Ready(Screen),
    /// The thread has the screen.
    Printing { events: mpsc::Sender<Event>, thread: JoinHandle<(Screen, io::Result<()>)> },
}

impl Printer {
    pub(crate) fn new(screen: Screen) -> Self {
        Self::Ready(screen)
    }

    /// Passes an event on.
    pub(crate) async fn print(&mut self, event: Event) -> io::Result<Printed> {
        if let Self::Ready(screen) = self {
            if let Event::Preparing { .. } = event {
                // Here, and not on a thread: until the program runs this process has one, or it could raise no wall.
                let printed = screen.show(&event);
                return Ok(if printed.is_ok() { Printed::PassedOn } else { Printed::NobodyReads });
            }
            screen.started |= matches!(event, Event::Started { .. });
            if !screen.shows(&event) {
                return Ok(Printed::PassedOn);
            }
            let (events, receiver) = mpsc::channel(WAITING);
            let screen = std::mem::take(screen);
            let thread =
                std::thread::Builder::new().name("printer".to_owned()).spawn(move || print_all(screen, receiver))?;
            *self = Self::Printing { events, thread };
        }
        match self {
            Self::Printing { events, .. } if events.send(event).await.is_err() => Ok(Printed::NobodyReads),
            Self::Printing { .. } | Self::Ready(_) => Ok(Printed::PassedOn),
        }
    }

    /// Prints the last event, and waits until everything is out.
    pub(crate) async fn finish(self, last: Event) -> io::Result<Screen> {
        let (screen, printed) = match self {
            Self::Ready(mut screen) => {
                let printed = screen.show(&last);
                (screen, printed)
            }
            Self::Printing { events, thread } => {
                // A thread that stopped at an error says so below.
                events.send(last).await.ok();
                drop(events);
                // A question that ends with the run lets go first: nothing else runs while we wait for the thread.
                drop(HELD_BACK.lock().await);
                thread.join().map_err(|_| io::Error::other("the thread that prints panicked"))?
            }
        };
        printed.map(|()| screen)
    }
}

fn print_all(mut screen: Screen, mut events: mpsc::Receiver<Event>) -> (Screen, io::Result<()>) {
    while let Some(event) = events.blocking_recv() {
        let _turn = HELD_BACK.blocking_lock();
        if let Err(error) = screen.show(&event) {
            return (screen, Err(error));
        }
    }
    (screen, Ok(()))
}

/// Where a run's output goes.
#[derive(Default)]
pub(crate) struct Screen {
    events: bool,
    streams: bool,
    quiet: bool,
    chosen_by_name: bool,
    started: bool,
    stdout: Option<Harmless>,
    stderr: Option<Harmless>,
}

impl Screen {
    pub(crate) fn new(args: OutputArgs, chosen_by_name: bool) -> Self {
        Self {
            events: args.events,
            streams: !args.json && !args.events,
            quiet: args.quiet,
            chosen_by_name,
            started: false,
            stdout: io::stdout().is_terminal().then(Harmless::default),
            stderr: io::stderr().is_terminal().then(Harmless::default),
        }
    }

    /// The same, for a program that was given the terminal itself.
    pub(crate) fn unfiltered(self) -> Self {
        Self { stdout: None, stderr: None, ..self }
    }

    /// Whether this event would print anything.
    fn shows(&self, event: &Event) -> bool {
        self.events || (self.streams && matches!(event, Event::Output { .. } | Event::Omitted { .. }))
    }

    pub(crate) fn show(&mut self, event: &Event) -> io::Result<()> {
        self.started |= matches!(event, Event::Started { .. });
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
            Event::Preparing { what } => {
                if !self.quiet {
                    chatter::say(what);
                }
                Ok(())
            }
            Event::Started { .. }
            | Event::Output { .. }
            | Event::Omitted { .. }
            | Event::Usage(_)
            | Event::Violation(_)
            | Event::Traffic { .. }
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
    pub(crate) fn notice_weak_wall(&self, outcome: &Outcome) {
        if !self.started || outcome.not_enforced.is_empty() || (self.quiet && self.chosen_by_name) {
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
        let what = if backend == BackendKind::Landlock { "is a wall with gaps" } else { "is no wall" };
        chatter::say(&format!("warning: `{backend}` {what}; not enforced: {}", names.join(", ")));
    }
}
