//! The programs behind one wall: what every guest keeps of them, wherever it is.

use std::collections::BTreeMap;
use std::io;

use ringfence_linux::wall::{Behind, Failed, Reaped, Stdio};

use crate::files::{self, Placed};
use crate::protocol::{ONLY, Order, ProgramNumber, Report, Start};

/// Asks a program to end.
const TERM: u8 = 15;

/// A program that was executed and has not ended.
struct Running {
    /// Its process id, its group and its session.
    leader: i32,
    placed: Option<Placed>,
    /// Whether what is left of its session is killed when it ends.
    stopping: bool,
}

/// Whether the guest goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    End,
}

/// Sends a report on its way.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(Report);

/// Those that run.
#[derive(Default)]
pub(crate) struct Programs {
    running: BTreeMap<ProgramNumber, Running>,
}

/// A failed attempt in words.
pub(crate) fn said(attempt: &str, error: &io::Error) -> Failed {
    Failed::Said(format!("could not {attempt}: {error}"))
}

impl Programs {
    /// The only program of a wall, which runs already.
    pub(crate) fn only(leader: i32) -> Self {
        Self { running: BTreeMap::from([(ONLY, Running { leader, placed: None, stopping: false })]) }
    }

    /// Whether none runs.
    pub(crate) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether a program may be given this number.
    pub(crate) fn check_free(&self, number: ProgramNumber) -> Result<(), Failed> {
        if number == ONLY || self.running.contains_key(&number) {
            return Err(Failed::Said("the program's number is taken".to_owned()));
        }
        Ok(())
    }

    /// Puts the files of `start` in place and executes its program, whose number is free.
    pub(crate) fn start(&mut self, behind: &Behind<'_>, start: &Start, stdio: &Stdio) -> Result<(), Failed> {
        let placed = files::place(&start.folder, &start.files)
            .map_err(|error| said("put the code and files of the run in place", &error))?;
        match behind.start(&start.program, stdio, &mut |_| true) {
            Ok(leader) => {
                self.running.insert(start.number, Running { leader, placed: Some(placed), stopping: false });
                Ok(())
            }
            Err(failed) => {
                placed.remove();
                Err(failed)
            }
        }
    }

    /// Reaps all that have ended, and tells of those that are programs. The guest ends with the only one.
    pub(crate) fn reap(&mut self, behind: &Behind<'_>, tell: Tell<'_>) -> Next {
        let mut next = Next::GoOn;
        while let Some(reaped) = behind.reap() {
            if let Some((number, running)) = self.take_ended(reaped) {
                running.remove_placed();
                // Its number stays taken as long as anybody is in its session.
                if running.stopping && !behind.kill_session(running.leader) {
                    next = Next::End;
                }
                tell(ended(number, reaped, behind.children()));
                if number == ONLY {
                    next = Next::End;
                }
            }
        }
        next
    }

    /// Kills everything behind the wall but the guest, and tells of the programs that ended so.
    pub(crate) fn kill_all(&mut self, behind: &Behind<'_>, tell: Tell<'_>) {
        behind.kill_everything(&mut |reaped| {
            if let Some((number, running)) = self.take_ended(reaped) {
                running.remove_placed();
                tell(ended(number, reaped, 0));
            }
        });
    }

    /// Does what an order about programs wants; any other is given back.
    pub(crate) fn obey(&mut self, behind: &Behind<'_>, order: Order, tell: Tell<'_>) -> Result<Next, Order> {
        match order {
            Order::Signal { program, signal } => {
                if let Some(running) = self.running.get(&program) {
                    behind.signal_group(running.leader, signal);
                }
            }
            Order::Stop { program } => {
                if let Some(running) = self.running.get_mut(&program) {
                    running.stopping = true;
                    behind.signal_group(running.leader, TERM);
                }
            }
            Order::Kill { program: ONLY } => return Ok(Next::End),
            Order::Kill { program } => {
                let killed = self.running.get(&program).is_none_or(|running| behind.kill_session(running.leader));
                if !killed {
                    // What cannot be killed by itself is killed with all others.
                    return Ok(Next::End);
                }
            }
            Order::KillAll => self.kill_all(behind, tell),
            Order::Measure => {
                let sample = behind.measure();
                tell(Report::Measured { tasks: sample.tasks, resident_bytes: sample.resident_bytes });
            }
            other => return Err(other),
        }
        Ok(Next::GoOn)
    }

    fn take_ended(&mut self, reaped: Reaped) -> Option<(ProgramNumber, Running)> {
        let number = *self.running.iter().find(|(_, running)| running.leader == reaped.pid)?.0;
        self.running.remove(&number).map(|running| (number, running))
    }
}

impl Running {
    fn remove_placed(&self) {
        if let Some(placed) = &self.placed {
            placed.remove();
        }
    }
}

fn ended(program: ProgramNumber, reaped: Reaped, left: u32) -> Report {
    Report::Ended { program, wait_status: reaped.wait_status, usage: reaped.usage, left }
}
