//! The whole life of a far guest, as process 1 of a container.
//!
//! One thread and one loop wait for everything: orders, the ends of children, and what programs read and write. No program
//! holds what orders come through or reports go to, and none can look into this process to find them, or the key of its frames.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use ringfence_linux::wall::{Behind, Failed, Kernel, ProcessOne};
use rustix::event::{PollFd, PollFlags};

use crate::door::{AtTheDoor, Door};
use crate::far::{FarOrder, FarReport};
use crate::far_host::{Ear, Voice, begin, wait};
use crate::far_workspace::Keeping;
use crate::programs::{Next, Programs};
use crate::protocol::{ONLY, Order, ProgramNumber, Report, Start};
use crate::streams::{OutOfTurn, Streams, TellFar, Waits};

/// Pieces of connections that are sent before orders and programs get their turn.
const PIECES: usize = 16;

/// A kernel of its own may not wake us when a program closes its input, and says it when it is asked.
const LOOKS_EVERY: Duration = Duration::from_millis(250);

/// Somebody started a far guest where there is none to be.
#[derive(Debug, thiserror::Error)]
#[error(
    "this is how ringfence lives inside a container, as its process 1: an engine starts it there, and `ringfence run` asks for it"
)]
pub struct NotAGuest;

/// Lives as process 1 of a container; returns only when we are not process 1. To be called before anything else is done.
pub fn live_far() -> NotAGuest {
    forget_environment();
    match ProcessOne::take() {
        Ok(None) => NotAGuest,
        // Nobody can be told: standard output is not yet known to be a host's.
        Err(_) => std::process::exit(1),
        Ok(Some((process, reports))) => {
            let mut voice = Voice::new(reports);
            if let Some(failed) = live(process, &mut voice) {
                voice.tell(&FarReport::Report(Report::Failed { program: ONLY, why: failed.into() }));
            }
            std::process::exit(1)
        }
    }
}

/// Executes us once more without the environment that the engine set: a kernel of its own may let programs read it, and knows
/// no other way to forget it. Returns when there is none, or it failed: what is left is found by the proof, before any program.
fn forget_environment() {
    if rustix::process::getpid().is_init() && std::env::vars_os().next().is_some() {
        let arguments = std::env::args_os().skip(1);
        drop(Command::new("/proc/self/exe").arg0("guest").args(arguments).env_clear().exec());
    }
}

/// Lives until the end, which is that of the process; returns when the wall does not stand, or nobody wants one.
fn live(mut process: ProcessOne, voice: &mut Voice) -> Option<Failed> {
    let mut ear = Ear::new();
    let begin = begin(&mut process, &mut ear, voice)?;
    let voice = &*voice;
    if let Err(error) = rustix::io::ioctl_fionbio(&voice.to, true) {
        return Some(Failed::Said(format!("could not prepare to report: {error}")));
    }
    let behind = match process.enter(&begin.contained) {
        Ok(behind) => behind,
        Err(failed) => return Some(failed),
    };
    // Before any program is there that could listen in its place.
    let door = match begin.door.as_ref().map(Door::open).transpose() {
        Ok(door) => door,
        Err(failed) => return Some(failed),
    };
    let proofs = match behind.rehearse() {
        Ok(proofs) => proofs,
        Err(failed) => return Some(failed),
    };
    if door.is_some() {
        voice.tell(&FarReport::Report(Report::Door));
    }
    voice.tell(&FarReport::Report(Report::Proven(proofs)));
    let workspace = Keeping::new(&begin.contained.workspace, begin.workspace);
    let kernel = begin.contained.kernel;
    let (programs, streams) = (Programs::default(), BTreeMap::new());
    FarLife { behind, kernel, programs, streams, door, workspace, ear, voice }.serve()
}

struct FarLife<'a> {
    behind: Behind<'a>,
    kernel: Kernel,
    programs: Programs,
    /// Of programs that run, and of those that ended and whose streams somebody holds.
    streams: BTreeMap<ProgramNumber, Streams>,
    door: Option<Door>,
    workspace: Keeping,
    ear: Ear,
    voice: &'a Voice,
}

/// Why a far guest ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The host wants it.
    Asked,
    /// The host is gone, silent, or says what makes no sense: nobody is there to be told.
    Alone,
}

/// What ended a wait.
#[derive(Debug, Clone, Copy)]
enum Woken {
    Order,
    Child,
    Stream(ProgramNumber, Waits, PollFlags),
    Door(AtTheDoor, PollFlags),
}

impl FarLife<'_> {
    fn serve(mut self) -> ! {
        let end = loop {
            if let Err(end) = self.go_on() {
                break end;
            }
        };
        // Nothing that runs may see the end of the one that holds it.
        let Self { behind, mut programs, mut streams, mut workspace, mut ear, voice, .. } = self;
        programs.kill_all(&behind, &mut |report| note(&mut streams, voice, report));
        if end == End::Asked {
            let tell: TellFar<'_> = &mut |report| voice.tell(&report);
            for streams in streams.values_mut() {
                streams.finish(tell);
            }
            let room = behind.room();
            let layer = workspace.finish(tell);
            voice.tell(&FarReport::Report(Report::Gone { usage: behind.usage(), layer, room }));
            ear.wait_until_heard(behind.control());
        }
        behind.end()
    }

    fn go_on(&mut self) -> Result<(), End> {
        let Self { behind, programs, streams, door, voice, .. } = self;
        let next = programs.reap(behind, &mut |report| note(streams, voice, report));
        for streams in streams.values_mut() {
            streams.settle(Instant::now(), &mut |report| voice.tell(&report));
        }
        streams.retain(|_, streams| !streams.is_over());
        if let Some(door) = door {
            door.settle(Instant::now(), &mut |report| voice.tell(&report));
        }
        if next == Next::End {
            // What a program left could not be killed by itself; the end kills all.
            return Err(End::Asked);
        }
        if self.voice.lost.get() {
            return Err(End::Alone);
        }
        let mut pieces = 0;
        for woken in self.wait()? {
            match woken {
                Woken::Child => self.behind.heed(),
                Woken::Order => {
                    if !self.ear.listen(self.behind.control()) {
                        return Err(End::Alone);
                    }
                    while let Some(order) = self.ear.orders.next_message().map_err(|_| End::Alone)? {
                        self.obey(order)?;
                    }
                }
                Woken::Stream(program, what, found) => {
                    let voice = self.voice;
                    if let Some(streams) = self.streams.get_mut(&program) {
                        streams.go_on(what, found, &mut |report| voice.tell(&report));
                    }
                }
                // What is left is found again, and first.
                Woken::Door(..) if pieces == PIECES => {}
                Woken::Door(what, found) => {
                    pieces += 1;
                    let voice = self.voice;
                    if let Some(door) = &mut self.door {
                        door.go_on(what, found, &mut |report| voice.tell(&report));
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits until there is something to do.
    fn wait(&self) -> Result<Vec<Woken>, End> {
        let mut what = vec![(Woken::Order, self.behind.control(), PollFlags::IN)];
        what.push((Woken::Child, self.behind.child_ends(), PollFlags::IN));
        for (&program, streams) in &self.streams {
            let waits = streams.waits();
            what.extend(waits.map(|(waits, fd, flags)| (Woken::Stream(program, waits, flags), fd, flags)));
        }
        if let Some(door) = &self.door {
            what.extend(door.waits().map(|(waits, fd, flags)| (Woken::Door(waits, flags), fd, flags)));
        }
        let mut polls: Vec<PollFd<'_>> =
            what.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let at_the_door = self.door.as_ref().and_then(Door::deadline);
        let mut deadline = self.streams.values().filter_map(Streams::deadline).chain(at_the_door).min();
        if self.kernel == Kernel::Own && self.streams.values().any(Streams::feeds) {
            let look = Instant::now() + LOOKS_EVERY;
            deadline = Some(deadline.map_or(look, |deadline| deadline.min(look)));
        }
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let silence = self.ear.silence_left();
        wait(&mut polls, left.map_or(silence, |left| left.min(silence))).map_err(|_| End::Alone)?;
        let woken: Vec<Woken> = what
            .iter()
            .zip(&polls)
            .filter(|(_, poll)| !poll.revents().is_empty())
            .map(|((woken, _, _), poll)| match *woken {
                Woken::Stream(program, waits, _) => Woken::Stream(program, waits, poll.revents()),
                Woken::Door(waits, _) => Woken::Door(waits, poll.revents()),
                other => other,
            })
            .collect();
        // A guest that was held up itself has orders to read.
        if !woken.iter().any(|woken| matches!(woken, Woken::Order)) && silence.is_zero() {
            return Err(End::Alone);
        }
        Ok(woken)
    }

    fn obey(&mut self, order: FarOrder) -> Result<(), End> {
        let voice = self.voice;
        let tell: TellFar<'_> = &mut |report| voice.tell(&report);
        let done = match order {
            FarOrder::Order(order) => return self.obey_near(order),
            FarOrder::Input { program, bytes } => match self.streams.get_mut(&program) {
                Some(streams) => streams.take_in(&bytes, tell),
                None => Ok(()),
            },
            FarOrder::InputEnd { program } => {
                if let Some(streams) = self.streams.get_mut(&program) {
                    streams.complete(tell);
                }
                Ok(())
            }
            FarOrder::Taken { program, stream, bytes } => match self.streams.get_mut(&program) {
                Some(streams) => streams.taken(stream, bytes),
                None => Ok(()),
            },
            FarOrder::OutputClosed { program, stream } => {
                if let Some(streams) = self.streams.get_mut(&program) {
                    streams.close(stream, tell);
                }
                Ok(())
            }
            FarOrder::Resize { program, size } => {
                if let Some(streams) = self.streams.get(&program) {
                    streams.resize(size);
                }
                Ok(())
            }
            FarOrder::Find(files) => {
                let is_there = |file: &std::ffi::OsString| rustix::fs::stat(file.as_os_str()).is_ok();
                tell(FarReport::Found(files.iter().map(is_there).collect()));
                Ok(())
            }
            FarOrder::Make(nodes) => self.workspace.make(nodes),
            FarOrder::Made => self.workspace.made(tell),
            FarOrder::Collect => {
                // Whether anything differs is told by what was told.
                self.workspace.collect(tell);
                Ok(())
            }
            FarOrder::Connection { connection, what } => match &mut self.door {
                Some(door) => door.obey(connection, what, tell),
                None => Err(OutOfTurn),
            },
            FarOrder::Answer { question, message } => match &mut self.door {
                Some(door) => door.answer(question, &message),
                None => Err(OutOfTurn),
            },
            FarOrder::Prove => return self.prove(),
            FarOrder::StillHere => Ok(()),
            FarOrder::Begin { .. } | FarOrder::Meet { .. } => Err(OutOfTurn),
        };
        done.map_err(|OutOfTurn| End::Alone)
    }

    /// Tells what holds now, or that it does not hold any more: then nothing is ever started here.
    fn prove(&mut self) -> Result<(), End> {
        if !self.programs.is_empty() || !self.streams.is_empty() {
            return Err(End::Alone);
        }
        let (report, next) = match self.behind.rehearse() {
            Ok(proofs) => (Report::Proven(proofs), Ok(())),
            Err(failed) => (Report::Failed { program: ONLY, why: failed.into() }, Err(End::Alone)),
        };
        self.voice.tell(&FarReport::Report(report));
        next
    }

    /// What a near guest is ordered too.
    fn obey_near(&mut self, order: Order) -> Result<(), End> {
        if let Order::Kill { program } = &order
            && let Some(streams) = self.streams.get_mut(program)
        {
            // Whoever kills does not wait for what is left to be read.
            streams.tell_end(&mut |report| self.voice.tell(&report));
        }
        let Self { behind, programs, streams, voice, .. } = self;
        match programs.obey(behind, order, &mut |report| note(streams, voice, report)) {
            Ok(Next::GoOn) => Ok(()),
            Ok(Next::End) | Err(Order::End) => Err(End::Asked),
            Err(Order::Start(start)) => {
                self.start(&start);
                Ok(())
            }
            Err(_) => Err(End::Alone),
        }
    }

    fn start(&mut self, start: &Start) {
        let program = start.number;
        self.voice.count();
        let report = match self.try_start(start) {
            Ok(streams) => {
                let report = Report::Started { program, terminal: streams.has_terminal() };
                self.streams.insert(program, streams);
                report
            }
            Err(failed) => Report::Failed { program, why: failed.into() },
        };
        self.voice.tell(&FarReport::Report(report));
    }

    fn try_start(&mut self, start: &Start) -> Result<Streams, Failed> {
        self.programs.check_free(start.number)?;
        if self.streams.contains_key(&start.number) {
            return Err(Failed::Said("the program's number is taken: its streams are not forgotten".to_owned()));
        }
        if !self.workspace.is_ready() {
            return Err(Failed::Said("the workspace is not filled".to_owned()));
        }
        let (stdio, streams) = match start.terminal {
            Some(size) => Streams::terminal(start.number, &self.behind, size)?,
            None => Streams::pipes(start.number)?,
        };
        self.programs.start(&self.behind, start, &stdio)?;
        Ok(streams)
    }
}

/// Sends a report on its way. That a program ended waits for what the program wrote.
fn note(streams: &mut BTreeMap<ProgramNumber, Streams>, voice: &Voice, report: Report) {
    if let Report::Ended { .. } = &report {
        voice.count();
    }
    let its = match &report {
        Report::Ended { program, .. } => streams.get_mut(program),
        _ => None,
    };
    match its {
        Some(its) => its.end(report),
        None => voice.tell(&FarReport::Report(report)),
    }
}
