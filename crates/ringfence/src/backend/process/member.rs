//! A program of a guest that serves several, or could: one in a session, or one that is alone in a place that is far.

use std::any::Any;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ringfence_guest::protocol::ProgramNumber;
use ringfence_guest::{Order, Received, Start};
use ringfence_linux::{Layer, Report, Usage};
use tokio::sync::mpsc;

use super::{KEEPER_ANSWER, Sandbox, Supervisor, watch};
use crate::backend::StartError;
use crate::backend::guest::{self, Kept, Left};
use crate::backend::pipes::{Pipes, make_pipe, reader, writer};
use crate::plan::Plan;
use crate::request::{Stdin, TerminalSize};

/// How long the guest of a session may take to start a program: others may keep the machine busy.
const STARTS: Duration = Duration::from_secs(10);
/// Likewise, when all that comes with the program goes through one stream.
const STARTS_FAR: Duration = Duration::from_secs(60);
/// How long what a program wrote may take to arrive after its end. Less than a guest may take to answer.
const ARRIVES: Duration = Duration::from_secs(1);
/// How long a far guest may take to tell what differs, as long as it goes on to tell.
const TELLS: Duration = Duration::from_secs(600);

/// A program of a guest that is kept.
#[derive(Debug)]
pub(super) struct Member {
    guest: Kept,
    number: ProgramNumber,
    reports: tokio::sync::Mutex<mpsc::Receiver<Received>>,
    /// Until it is released.
    start: Option<(Start, Vec<OwnedFd>)>,
    /// Its end, once told, is all that is waited for.
    ended: Mutex<Option<(Usage, Instant)>>,
}

/// A program that is alone in a place that is far: with it, the place ends.
#[derive(Debug)]
pub(super) struct Alone {
    pub(super) member: Member,
    // After the guest: the place is removed when nobody is in it. Only who drops it needs it.
    _place: Mutex<Box<dyn Any + Send>>,
}

/// A program's terminal, as its host has it.
#[derive(Debug)]
pub(super) enum Screen {
    /// The screen's end of it.
    Near(OwnedFd),
    /// It is where the guest is.
    Far,
}

/// The sandbox of a program that `guest` starts when it is released, with pipes of its own.
pub(in crate::backend) fn in_session(
    plan: &Plan,
    guest: &Kept,
    start: impl FnOnce(ProgramNumber) -> Result<Start, StartError>,
) -> Result<Sandbox, StartError> {
    make(plan, guest, start, Supervisor::Kept)
}

/// The sandbox of the only program of `guest`, which is far, has proven its wall and ends with it. `place` is dropped when
/// nothing is left of either, and removes what both were in.
pub(in crate::backend) fn alone(
    plan: &Plan,
    guest: &Kept,
    start: impl FnOnce(ProgramNumber) -> Result<Start, StartError>,
    place: Box<dyn Any + Send>,
) -> Result<Sandbox, StartError> {
    make(plan, guest, start, |member| Supervisor::Alone(Alone { member, _place: Mutex::new(place) }))
}

fn make(
    plan: &Plan,
    guest: &Kept,
    start: impl FnOnce(ProgramNumber) -> Result<Start, StartError>,
    supervisor: impl FnOnce(Member) -> Supervisor,
) -> Result<Sandbox, StartError> {
    let typed = match plan.stdin() {
        Stdin::Pipe(given) if plan.terminal().is_some() => Some(given.try_clone().and_then(reader).map_err(watch)?),
        Stdin::Pipe(_) | Stdin::Empty | Stdin::Bytes(_) => None,
    };
    let pipes = if plan.terminal().is_some() { None } else { Some(Pipes::new(plan.stdin())?) };
    // A terminal that is far is read and written through pipes that end here.
    let screen = if pipes.is_none() && guest.far().is_some() { Some((make_pipe()?, make_pipe()?)) } else { None };
    let (number, reports) = guest.enlist();
    let start = start(number).inspect_err(|_| guest.forget(number))?;
    let member = |ends| Member {
        guest: guest.clone(),
        number,
        reports: tokio::sync::Mutex::new(reports),
        start: Some((start, ends)),
        ended: Mutex::new(None),
    };
    if let Some(pipes) = pipes {
        let given: io::Result<Vec<OwnedFd>> =
            pipes.program_ends(plan.stdin())?.iter().map(|end| end.try_clone_to_owned()).collect();
        let member = member(given.map_err(watch)?);
        return pipes.into_sandbox(supervisor(member)).map_err(watch);
    }
    let Some(((typed_end, our_typed), (our_shown, shown_end))) = screen else {
        return Ok(Sandbox { typed, ..Sandbox::new(supervisor(member(Vec::new()))) });
    };
    Ok(Sandbox {
        stdin: Some(writer(our_typed).map_err(watch)?),
        stdout: Some(reader(our_shown).map_err(watch)?),
        typed,
        terminal: Some(Screen::Far),
        ..Sandbox::new(supervisor(member(vec![typed_end, shown_end])))
    })
}

impl Member {
    /// Starts it, and returns once its first instruction is about to run; with the screen's end of its terminal, when one was
    /// handed over.
    pub(super) async fn start(&mut self) -> Result<Option<OwnedFd>, StartError> {
        let Some((start, descriptors)) = self.start.take() else { return Ok(None) };
        let is_far = self.guest.far().is_some();
        let is_handed = start.terminal.is_some() && !is_far;
        let given: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        self.guest.start(start, &given).map_err(watch)?;
        drop(descriptors);
        let limit = if is_far { STARTS_FAR } else { STARTS };
        let gone = || watch(io::Error::new(io::ErrorKind::UnexpectedEof, "the place that it was to run in is gone"));
        let Ok(first) = tokio::time::timeout(limit, self.reports.get_mut().recv()).await else {
            // Whether it will be started is not known, so nothing there may go on.
            self.guest.kill();
            let why = "the place that it was to run in did not answer, and was ended";
            return Err(watch(io::Error::new(io::ErrorKind::TimedOut, why)));
        };
        let received = first.ok_or_else(gone)?;
        match (received.report, received.descriptor) {
            (ringfence_guest::Report::Started { .. }, Some(descriptor)) if is_handed => {
                guest::terminal(descriptor).map(Some).map_err(watch)
            }
            (ringfence_guest::Report::Started { .. }, None) if !is_handed => Ok(None),
            (ringfence_guest::Report::Failed { why, .. }, _) => Err(guest::start_error(why)),
            _ => Err(gone()),
        }
    }

    pub(super) fn signal(&self, signal: u8) -> io::Result<()> {
        self.guest.order(Order::Signal { program: self.number, signal })
    }

    /// Asks it to end; nothing of its own session stays when it does.
    pub(super) fn stop(&self) -> io::Result<()> {
        self.guest.order(Order::Stop { program: self.number })
    }

    pub(super) fn kill(&self) -> io::Result<()> {
        self.guest.order(Order::Kill { program: self.number })
    }

    pub(super) fn guest(&self) -> &Kept {
        &self.guest
    }

    pub(super) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        self.guest.far().map_or(Ok(()), |far| far.resize(self.number, size))
    }

    fn ended(&self) -> Option<(Usage, Instant)> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its own next report, until it ended.
    async fn own_report(&self) -> io::Result<Option<Report>> {
        let Some(received) = self.reports.lock().await.recv().await else { return Ok(None) };
        let report = guest::as_keepers(received.report)?;
        if let Report::Ended { usage, .. } = report {
            *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some((usage, Instant::now()));
        }
        Ok(Some(report))
    }

    /// What it wrote is on its way to us, where it is far.
    async fn arrived(&self, limit: Instant) {
        if let Some(far) = self.guest.far() {
            far.drained(self.number, limit).await;
        }
    }

    /// After the program's end nothing more is to come: what it left behind is the session's.
    pub(super) async fn next_report(&self) -> io::Result<Option<Report>> {
        match self.ended() {
            None => self.own_report().await,
            Some((usage, ended)) => {
                self.arrived(ended + ARRIVES).await;
                Ok(Some(Report::Gone { usage, layer: Layer::Unchanged }))
            }
        }
    }
}

impl Alone {
    /// After the program's end its place ends too, and says last what is left of it.
    pub(super) async fn next_report(&self, left: &Mutex<Option<Left>>) -> io::Result<Option<Report>> {
        if self.member.ended().is_none() {
            let report = self.member.own_report().await?;
            if let Some(Report::Ended { .. }) = report {
                self.member.guest.order(Order::End)?;
            }
            return Ok(report);
        }
        self.member.guest.gone().await;
        // It may be asked once more before what it wrote has arrived.
        let (usage, layer) = {
            let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
            if left.is_none() {
                *left = self.member.guest.take_left();
            }
            let Some(left) = &*left else { return Ok(None) };
            (left.usage, if left.changed { Layer::Changed } else { Layer::Unchanged })
        };
        self.member.arrived(Instant::now() + ARRIVES).await;
        Ok(Some(Report::Gone { usage, layer }))
    }

    /// Kills everything in the place, which says last what is left of it.
    pub(super) fn kill(&self) -> io::Result<()> {
        self.member.guest.order(Order::End)
    }

    /// Whether what differs there becomes a layer.
    pub(super) fn keeps_workspace(&self) -> bool {
        self.member.guest.far().is_some_and(|far| far.keeps_workspace())
    }

    /// Whether the program ended, and its place still tells what is left of it.
    pub(super) fn still_tells(&self) -> bool {
        let recent = self.member.ended().is_some_and(|(_, ended)| ended.elapsed() < TELLS);
        recent && self.member.guest.far().is_some_and(|far| far.is_heard(KEEPER_ANSWER))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.guest.forget(self.number);
        if self.start.is_none() && self.ended().is_none() {
            // A guest that cannot be told is gone, and the program with it.
            self.guest.order(Order::Kill { program: self.number }).ok();
        }
    }
}
