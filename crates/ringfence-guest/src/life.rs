//! The guest's whole life, as process 1 behind a wall.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ringfence_linux::passing;
use ringfence_linux::wall::{Behind, Failed, Program, Proof, Raising, Reaped, Stdio};
use ringfence_linux::{Layer, tree};

use crate::files::{self, Placed};
use crate::protocol::{
    HEADER, MOST_ORDER, MOST_REPORT, ONLY, Order, ProgramNumber, Report, Start, body_length, decode, encode,
};

/// Read at once of an order.
const PIECE: usize = 64 * 1024;
/// Asks a program to end.
const TERM: u8 = 15;

/// Lives as process 1. It returns when the wall could not be raised, and the process then ends.
pub fn live(raising: Raising<'_>) {
    match raising {
        Raising::Failed(control, failed) => {
            tell(control, &Report::Failed { program: ONLY, why: failed.into() }, None);
        }
        Raising::Raised(behind, Some(program)) => live_for(behind, program),
        Raising::Raised(behind, None) => match behind.rehearse() {
            Ok(proofs) => {
                tell(behind.control(), &Report::Proven(proofs), None);
                Life { behind, programs: BTreeMap::new() }.serve()
            }
            Err(failed) => {
                tell(behind.control(), &Report::Failed { program: ONLY, why: failed.into() }, None);
            }
        },
    }
}

/// Sends a report. A host that is gone cannot be told; the next wait sees that.
fn tell(control: BorrowedFd<'_>, report: &Report, descriptor: Option<BorrowedFd<'_>>) {
    if let Ok(frame) = encode(report, MOST_REPORT) {
        let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
        passing::send(control, &frame, &descriptors).ok();
    }
}

/// A life for one program, which is held until it is released: the guest ends with it.
fn live_for(behind: Behind<'_>, program: &Program) {
    let mut released = |proofs: &[Proof]| {
        tell(behind.control(), &Report::Proven(proofs.to_vec()), None);
        matches!(next_order(behind.control()), Ok(Some((Order::Release, _))))
    };
    let pid = match behind.start(program, &Stdio::OfTheGuest, &mut released) {
        Ok(pid) => pid,
        Err(failed) => {
            return tell(behind.control(), &Report::Failed { program: ONLY, why: failed.into() }, None);
        }
    };
    behind.close_stdio();
    tell(behind.control(), &Report::Started { program: ONLY, terminal: false }, None);
    Life { behind, programs: BTreeMap::from([(ONLY, Running { leader: pid, placed: None, stopping: false })]) }.serve()
}

/// A program that was executed and has not ended.
struct Running {
    /// Its process id, its group and its session.
    leader: i32,
    placed: Option<Placed>,
    /// Whether what is left of its session is killed when it ends.
    stopping: bool,
}

struct Life<'a> {
    behind: Behind<'a>,
    programs: BTreeMap<ProgramNumber, Running>,
}

/// Whether the guest goes on.
#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    End,
}

impl Life<'_> {
    fn serve(mut self) -> ! {
        loop {
            if self.reap() == Next::End {
                break;
            }
            if self.behind.wait(None).order && self.obey() == Next::End {
                break;
            }
        }
        let Self { behind, mut programs } = self;
        behind.kill_everything(&mut |reaped| {
            if let Some((number, _)) = take_ended(&mut programs, reaped) {
                tell(behind.control(), &ended(number, reaped, 0), None);
            }
        });
        let layer = behind.layer();
        let handed = if layer == Layer::Changed { behind.kept_layer() } else { None };
        tell(behind.control(), &Report::Gone { usage: behind.usage(), layer, room: behind.room() }, handed);
        behind.end()
    }

    /// Reaps all that have ended, and tells of those that are programs. The guest ends with the only one.
    fn reap(&mut self) -> Next {
        let mut next = Next::GoOn;
        while let Some(reaped) = self.behind.reap() {
            if let Some((number, running)) = take_ended(&mut self.programs, reaped) {
                if let Some(placed) = running.placed {
                    placed.remove();
                }
                // Its number stays taken as long as anybody is in its session.
                if running.stopping && !self.behind.kill_session(running.leader) {
                    next = Next::End;
                }
                tell(self.behind.control(), &ended(number, reaped, self.behind.children()), None);
                if number == ONLY {
                    next = Next::End;
                }
            }
        }
        next
    }

    fn obey(&mut self) -> Next {
        match next_order(self.behind.control()) {
            Ok(Some((Order::Start(start), descriptors))) => self.start(&start, descriptors),
            Ok(Some((Order::Signal { program, signal }, _))) => {
                if let Some(running) = self.programs.get(&program) {
                    self.behind.signal_group(running.leader, signal);
                }
            }
            Ok(Some((Order::Stop { program }, _))) => {
                if let Some(running) = self.programs.get_mut(&program) {
                    running.stopping = true;
                    self.behind.signal_group(running.leader, TERM);
                }
            }
            Ok(Some((Order::Kill { program: ONLY }, _))) => return Next::End,
            Ok(Some((Order::Kill { program }, _))) => {
                let killed = self.programs.get(&program).is_none_or(|running| self.behind.kill_session(running.leader));
                if !killed {
                    // What cannot be killed by itself is killed with all others.
                    return Next::End;
                }
            }
            Ok(Some((Order::KillAll, _))) => self.kill_all(),
            Ok(Some((Order::Measure, _))) => {
                let sample = tree::sample(1);
                let measured = Report::Measured { tasks: sample.tasks, resident_bytes: sample.resident_bytes };
                tell(self.behind.control(), &measured, None);
            }
            Ok(Some((Order::Layer, _))) => {
                let layer = self.behind.kept_layer();
                tell(self.behind.control(), &Report::Layer { comes: layer.is_some() }, layer);
            }
            Ok(Some((Order::Workspace, _))) => {
                let workspace = self.behind.shown_workspace();
                tell(self.behind.control(), &Report::Workspace { comes: workspace.is_some() }, workspace);
            }
            // An end of file, an order to end, an error, anything out of turn: each means that nothing may stay alive.
            Ok(Some((Order::End | Order::Release, _)) | None) | Err(_) => return Next::End,
        }
        Next::GoOn
    }

    fn kill_all(&mut self) {
        let Self { behind, programs } = self;
        behind.kill_everything(&mut |reaped| {
            if let Some((number, running)) = take_ended(programs, reaped) {
                if let Some(placed) = running.placed {
                    placed.remove();
                }
                tell(behind.control(), &ended(number, reaped, 0), None);
            }
        });
    }

    fn start(&mut self, start: &Start, descriptors: Vec<OwnedFd>) {
        match self.try_start(start, descriptors) {
            Ok((running, screen)) => {
                self.programs.insert(start.number, running);
                tell(
                    self.behind.control(),
                    &Report::Started { program: start.number, terminal: screen.is_some() },
                    screen.as_ref().map(AsFd::as_fd),
                );
            }
            Err(failed) => {
                tell(self.behind.control(), &Report::Failed { program: start.number, why: failed.into() }, None);
            }
        }
    }

    fn try_start(&self, start: &Start, descriptors: Vec<OwnedFd>) -> Result<(Running, Option<OwnedFd>), Failed> {
        let said = |attempt: &str, error: &io::Error| Failed::Said(format!("could not {attempt}: {error}"));
        if start.number == ONLY || self.programs.contains_key(&start.number) {
            return Err(Failed::Said("the program's number is taken".to_owned()));
        }
        let (stdio, screen) = match start.terminal {
            Some(size) => {
                let (screen, terminal) = self.behind.terminal(size).map_err(|error| said("make a terminal", &error))?;
                (Stdio::Terminal(terminal), Some(screen))
            }
            None => {
                let three = <[OwnedFd; 3]>::try_from(descriptors);
                let three = three.map_err(|_| Failed::Said("a program needs three descriptors".to_owned()))?;
                (Stdio::Given(three), None)
            }
        };
        let placed = files::place(&start.folder, &start.files)
            .map_err(|error| said("put the code and files of the run in place", &error))?;
        match self.behind.start(&start.program, &stdio, &mut |_| true) {
            Ok(leader) => Ok((Running { leader, placed: Some(placed), stopping: false }, screen)),
            Err(failed) => {
                placed.remove();
                Err(failed)
            }
        }
    }
}

fn take_ended(programs: &mut BTreeMap<ProgramNumber, Running>, reaped: Reaped) -> Option<(ProgramNumber, Running)> {
    let number = *programs.iter().find(|(_, running)| running.leader == reaped.pid)?.0;
    programs.remove(&number).map(|running| (number, running))
}

fn ended(program: ProgramNumber, reaped: Reaped, left: u32) -> Report {
    Report::Ended { program, wait_status: reaped.wait_status, usage: reaped.usage, left }
}

/// Reads one whole order, and waits for it. Nothing when the host is gone.
fn next_order(control: BorrowedFd<'_>) -> io::Result<Option<(Order, Vec<OwnedFd>)>> {
    let bad = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut header = [0u8; HEADER];
    let mut descriptors = Vec::new();
    if !read_whole(control, &mut header, &mut descriptors)? {
        return Ok(None);
    }
    let length = body_length(header, MOST_ORDER).map_err(bad)?;
    let mut body = Vec::new();
    while body.len() < length {
        let start = body.len();
        body.resize(length.min(start + PIECE), 0);
        if !read_whole(control, body.get_mut(start..).unwrap_or_default(), &mut descriptors)? {
            return Ok(None);
        }
    }
    Ok(Some((decode(&body).map_err(bad)?, descriptors)))
}

/// Fills `bytes`; false when the end came before.
fn read_whole(control: BorrowedFd<'_>, bytes: &mut [u8], descriptors: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let (received, came) = passing::receive(control, rest)?;
        if received == 0 {
            return Ok(false);
        }
        filled += received;
        descriptors.extend(came);
    }
    Ok(true)
}
