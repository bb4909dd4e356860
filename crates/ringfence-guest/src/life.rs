//! The guest's whole life, as process 1 behind a wall.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ringfence_linux::Layer;
use ringfence_linux::passing;
use ringfence_linux::wall::{Behind, Failed, Program, Proof, Raising, Stdio, Woken};

use crate::programs::{Next, Programs, said};
use crate::protocol::{HEADER, MOST_ORDER, MOST_REPORT, ONLY, Order, Report, Start, body_length, decode, encode};

/// So long a program waits for its code. Nobody may need it any more.
pub const WAITS: Duration = Duration::from_secs(120);
/// Read at once of an order.
const PIECE: usize = 64 * 1024;

/// Lives as process 1. It returns when the wall could not be raised, and the process then ends.
pub fn live(raising: Raising<'_>) {
    match raising {
        Raising::Failed(control, failed) => {
            tell(control, &Report::Failed { program: ONLY, why: failed.into() }, None);
        }
        Raising::Raised(behind, Some(program)) => live_for(behind, program),
        Raising::Raised(behind, None) => match behind.rehearse() {
            Ok(proofs) => {
                hand_out_doors(&behind);
                tell(behind.control(), &Report::Proven(proofs), None);
                Life { behind, programs: Programs::default() }.serve()
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

/// Gives the host the sockets that it is to listen at, if there are any, in one message with a report for each. They are
/// closed here, so that nobody waits in vain at one when the host is done.
fn hand_out_doors(behind: &Behind<'_>) {
    let doors = behind.take_doors();
    if let Ok(frame) = encode(&Report::Door, MOST_REPORT) {
        let descriptors: Vec<BorrowedFd<'_>> = doors.iter().map(AsFd::as_fd).collect();
        // A host that is gone cannot be told.
        passing::send(behind.control(), &frame.repeat(doors.len()), &descriptors).ok();
    }
}

/// A life for one program, which is held until it is released: the guest ends with it.
fn live_for(behind: Behind<'_>, program: &Program) {
    hand_out_doors(&behind);
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
    // One that waits for its code starts with it.
    if !behind.awaits_code() {
        tell(behind.control(), &STARTED, None);
    }
    Life { behind, programs: Programs::only(pid) }.serve()
}

/// That the only program started.
const STARTED: Report = Report::Started { program: ONLY, terminal: false };

struct Life<'a> {
    behind: Behind<'a>,
    programs: Programs,
}

impl Life<'_> {
    fn serve(mut self) -> ! {
        loop {
            let Self { behind, programs } = &mut self;
            if programs.reap(behind, &mut |report| tell(behind.control(), &report, None)) == Next::End {
                break;
            }
            let limit = self.behind.awaits_code().then_some(WAITS);
            let woken = self.behind.wait(limit);
            let waited_in_vain = limit.is_some() && woken == Woken { order: false, child: false };
            if waited_in_vain || woken.order && self.obey() == Next::End {
                break;
            }
        }
        let Self { behind, mut programs } = self;
        programs.kill_all(&behind, &mut |report| tell(behind.control(), &report, None));
        let layer = behind.layer();
        let handed = if layer == Layer::Changed { behind.kept_layer() } else { None };
        tell(behind.control(), &Report::Gone { usage: behind.usage(), layer, room: behind.room() }, handed);
        behind.end()
    }

    fn obey(&mut self) -> Next {
        // An end of file, an error: each means that nothing may stay alive.
        let Ok(Some((order, descriptors))) = next_order(self.behind.control()) else { return Next::End };
        let Self { behind, programs } = self;
        let order = match programs.obey(behind, order, &mut |report| tell(behind.control(), &report, None)) {
            Ok(next) => return next,
            Err(order) => order,
        };
        match order {
            Order::Start(start) => self.start(&start, descriptors),
            Order::Layer => {
                let layer = self.behind.kept_layer();
                tell(self.behind.control(), &Report::Layer { comes: layer.is_some() }, layer);
            }
            Order::Workspace => {
                let workspace = self.behind.shown_workspace();
                tell(self.behind.control(), &Report::Workspace { comes: workspace.is_some() }, workspace);
            }
            Order::Code(code) => return self.give(&code),
            // An order to end, and anything out of turn.
            _ => return Next::End,
        }
        Next::GoOn
    }

    /// Gives the only program its code, if it is still there.
    fn give(&mut self, code: &[u8]) -> Next {
        let Self { behind, programs } = self;
        if programs.reap(behind, &mut |report| tell(behind.control(), &report, None)) == Next::End {
            return Next::End;
        }
        match behind.put_code(code) {
            Ok(pipe) => {
                tell(behind.control(), &STARTED, None);
                // There is room for it, and we read there, too: nothing can go wrong that would not end the program.
                match File::from(pipe).write_all(code) {
                    Ok(()) => Next::GoOn,
                    Err(_) => Next::End,
                }
            }
            Err(failed) => {
                tell(behind.control(), &Report::Failed { program: ONLY, why: failed.into() }, None);
                Next::End
            }
        }
    }

    fn start(&mut self, start: &Start, descriptors: Vec<OwnedFd>) {
        let (report, screen) = match self.try_start(start, descriptors) {
            Ok(screen) => (Report::Started { program: start.number, terminal: screen.is_some() }, screen),
            Err(failed) => (Report::Failed { program: start.number, why: failed.into() }, None),
        };
        tell(self.behind.control(), &report, screen.as_ref().map(AsFd::as_fd));
    }

    /// The screen's end of the program's terminal, when it has one.
    fn try_start(&mut self, start: &Start, descriptors: Vec<OwnedFd>) -> Result<Option<OwnedFd>, Failed> {
        self.programs.check_free(start.number)?;
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
        self.programs.start(&self.behind, start, &stdio)?;
        Ok(screen)
    }
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
