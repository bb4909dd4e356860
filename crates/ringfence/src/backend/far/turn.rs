//! Whose turn it is: what a far guest may say now. Everything else means that it is given up.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use ringfence_guest::far::{FarReport, Node, Stream};
use ringfence_guest::protocol::{ONLY, ProgramNumber};
use ringfence_guest::{Report, Why};
use ringfence_linux::cgroup::CgroupUsage;
use ringfence_linux::wall::Proof;
use tokio::sync::{Notify, oneshot};

use super::OutOfTurn;
use super::bring::{self, Bringing, Collector, Parts};
use super::relay::Relay;
use super::stream::{AtTheEnd, Inlet, Outlet};
use super::wire::Voice;

/// Of a failure in a guest's words.
const MOST_WORDS: usize = 4096;

/// Who waits for the wall to be proven.
pub(super) type Proving = oneshot::Sender<Result<Vec<Proof>, Why>>;

/// All that was asked of a guest and not answered yet.
#[derive(Debug)]
pub(super) struct Turns {
    pub(super) voice: Voice,
    pub(super) begun: Begun,
    pub(super) programs: BTreeMap<ProgramNumber, Program>,
    /// The last number that was given to a program: lower ones may be over.
    pub(super) highest: ProgramNumber,
    /// Questions for what is in use.
    pub(super) measures: u32,
    /// Questions for files: how many, and who asked.
    pub(super) finds: VecDeque<(usize, oneshot::Sender<Vec<bool>>)>,
    pub(super) fill: Fill,
    /// Questions for what differs.
    pub(super) collectors: VecDeque<Collector>,
    /// Somebody asked what differs before the end. What was told then is not told again.
    pub(super) was_looked_at: bool,
    /// What makes a layer of what differs at the end, when that is kept.
    pub(super) last: Last,
    /// Something was asked for that the guest may end by.
    pub(super) may_end: bool,
    /// What was counted of everything in its place, as it last said.
    pub(super) counted: Option<CgroupUsage>,
    /// The way out, where there is one.
    pub(super) relay: Option<Relay>,
}

/// How far the guest is with its wall.
#[derive(Debug)]
pub(super) enum Begun {
    NotYet,
    Asked(Proving),
    Proven,
    /// It said its last word.
    Gone,
}

/// How far the workspace is.
#[derive(Debug)]
pub(super) enum Fill {
    Nobody,
    Sending(oneshot::Sender<io::Result<()>>),
    Sent(oneshot::Sender<io::Result<()>>),
}

/// The layer of the end.
#[derive(Debug)]
pub(super) enum Last {
    /// What is changed is nobody's business, or all was told.
    Nothing,
    Waiting(Box<dyn Bringing>),
    Coming(Collector),
}

/// How far a program is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Asked,
    Running,
    Ended,
}

/// A program's ends of its pipes, until it is started. One with a terminal has no standard error of its own.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: Option<OwnedFd>,
}

#[derive(Debug)]
pub(super) struct Program {
    phase: Phase,
    ends: Option<Ends>,
    /// What it writes to; with a terminal there is only one.
    output: Arc<Outlet>,
    error: Option<Arc<Outlet>>,
    pub(super) input: Arc<Inlet>,
    /// Nobody waits for it any more.
    forgotten: bool,
    /// Tells that something of its output was taken.
    pub(super) moved: Arc<Notify>,
}

impl Program {
    pub(super) fn new(ends: Ends) -> Self {
        Self {
            phase: Phase::Asked,
            output: Outlet::new(),
            error: ends.stderr.as_ref().map(|_| Outlet::new()),
            ends: Some(ends),
            input: Arc::default(),
            forgotten: false,
            moved: Arc::default(),
        }
    }

    fn outlet(&self, stream: Stream) -> Option<&Arc<Outlet>> {
        match stream {
            Stream::Output => Some(&self.output),
            Stream::Error => self.error.as_ref(),
        }
    }

    /// What it writes to.
    pub(super) fn outlets(&self) -> impl Iterator<Item = (Stream, &Arc<Outlet>)> {
        [(Stream::Output, Some(&self.output)), (Stream::Error, self.error.as_ref())]
            .into_iter()
            .filter_map(|(stream, outlet)| Some((stream, outlet?)))
    }

    /// Nobody wants anything more of it; says which streams the guest has to close.
    pub(super) fn forget(&mut self) -> Vec<Stream> {
        self.forgotten = true;
        self.input.close();
        let running = self.phase != Phase::Asked;
        self.outlets().filter_map(|(stream, outlet)| (outlet.close() && running).then_some(stream)).collect()
    }

    fn is_over(&self) -> bool {
        self.forgotten && self.phase == Phase::Ended && self.outlets().all(|(_, outlet)| outlet.has_ended())
    }

    /// Nothing more can be heard of it.
    fn cut(&self) {
        self.outlets().for_each(|(_, outlet)| outlet.cut());
        self.input.close();
    }

    /// Begins to move bytes, as the program began to run.
    fn run(&mut self, number: ProgramNumber, voice: &Voice) {
        self.phase = Phase::Running;
        let Some(Ends { stdin, stdout, stderr }) = self.ends.take() else { return };
        let at_the_end = if stderr.is_some() { AtTheEnd::Tell } else { AtTheEnd::StayOpen };
        let outlets = [(Stream::Output, Some(stdout)), (Stream::Error, stderr)];
        for (stream, end) in outlets {
            if let (Some(outlet), Some(end)) = (self.outlet(stream), end) {
                let (outlet, moved) = (Arc::clone(outlet), Arc::clone(&self.moved));
                tokio::spawn(outlet.pour(end, (number, stream), voice.clone(), moved));
            }
        }
        tokio::spawn(Arc::clone(&self.input).draw(stdin, number, at_the_end, voice.clone()));
    }
}

/// What is to be done with something that came in its turn.
#[derive(Debug)]
pub(super) enum Step {
    Nothing,
    /// A near guest would have said it too.
    Tell(Report),
    /// Nodes are to be passed on.
    Bring(Parts, Vec<Node>),
    /// All nodes that somebody asked for were told, or not all.
    Brought(Collector, Result<(), String>),
    /// Likewise, those of the end; nothing when nothing differs.
    BroughtLast(Option<Collector>, Result<(), String>),
    /// Its last word.
    Gone(Report),
}

impl Turns {
    pub(super) fn new(voice: Voice, bringing: Option<Box<dyn Bringing>>) -> Self {
        Self {
            voice,
            begun: Begun::NotYet,
            programs: BTreeMap::new(),
            highest: ONLY,
            measures: 0,
            finds: VecDeque::new(),
            fill: Fill::Nobody,
            collectors: VecDeque::new(),
            was_looked_at: false,
            last: bringing.map_or(Last::Nothing, Last::Waiting),
            may_end: false,
            counted: None,
            relay: None,
        }
    }

    /// Judges what a guest said.
    pub(super) fn take(&mut self, said: FarReport) -> Result<Step, OutOfTurn> {
        if !matches!((&self.begun, &said), (Begun::Proven, _) | (Begun::Asked(_), FarReport::Report(_))) {
            return Err(OutOfTurn);
        }
        match said {
            FarReport::Report(report) => return self.take_report(report),
            FarReport::Output { program, stream, bytes } => self.outlet(program, stream)?.push(&bytes)?,
            FarReport::OutputEnd { program, stream } => {
                self.outlet(program, stream)?.end()?;
                self.programs.retain(|_, program| !program.is_over());
            }
            FarReport::InputTaken { program, bytes } => {
                if let Some(running) = self.heard_of(program)? {
                    running.input.taken(bytes)?;
                }
            }
            FarReport::InputClosed { program } => {
                if let Some(running) = self.heard_of(program)? {
                    running.input.close();
                }
            }
            FarReport::Counted { memory_peak, killed_for_memory, starts_refused } => {
                self.counted = Some(CgroupUsage {
                    memory_peak,
                    oom_kills: killed_for_memory,
                    pids_limit_hits: starts_refused,
                    processes_now: 0,
                });
            }
            FarReport::Found(found) => {
                let (asked, sender) = self.finds.pop_front().ok_or(OutOfTurn)?;
                if found.len() != asked {
                    return Err(OutOfTurn);
                }
                // Who does not wait any more does not need it.
                sender.send(found).ok();
            }
            FarReport::Filled(filled) => {
                let sender = match std::mem::replace(&mut self.fill, Fill::Nobody) {
                    Fill::Sent(sender) => sender,
                    // It may fail before it has everything.
                    Fill::Sending(sender) if filled.is_err() => sender,
                    Fill::Sending(_) | Fill::Nobody => return Err(OutOfTurn),
                };
                sender.send(filled.map_err(|text| said_by_the_guest(&text))).ok();
            }
            FarReport::Differs(nodes) => {
                bring::check(&nodes)?;
                return Ok(Step::Bring(self.collecting()?, nodes));
            }
            FarReport::Collected(all) => return self.collected(all),
            FarReport::Connection { connection, what } => {
                self.relay.as_mut().ok_or(OutOfTurn)?.take(connection, what, &self.voice)?;
            }
            FarReport::Question { question, message } => {
                self.relay.as_mut().ok_or(OutOfTurn)?.ask(question, message)?;
            }
        }
        Ok(Step::Nothing)
    }

    fn take_report(&mut self, report: Report) -> Result<Step, OutOfTurn> {
        if let Begun::Asked(_) = self.begun {
            let is_open = self.relay.as_ref().is_none_or(|relay| relay.is_open);
            let answer = match (report, &mut self.relay) {
                (Report::Door, Some(relay)) if !relay.is_open => {
                    relay.is_open = true;
                    return Ok(Step::Nothing);
                }
                // Nothing is proven of a wall whose only door may be anybody's.
                (Report::Proven(proofs), _) if is_open => Ok(proofs),
                (Report::Failed { why, .. }, _) => Err(why),
                _ => return Err(OutOfTurn),
            };
            let after = if answer.is_ok() { Begun::Proven } else { Begun::Gone };
            if let Begun::Asked(sender) = std::mem::replace(&mut self.begun, after) {
                sender.send(answer).ok();
            }
            return Ok(Step::Nothing);
        }
        match report {
            Report::Started { program, terminal } => {
                let voice = self.voice.clone();
                let running = self.in_phase(program, Phase::Asked)?;
                if terminal != running.error.is_none() {
                    return Err(OutOfTurn);
                }
                running.run(program, &voice);
            }
            Report::Failed { program, .. } => {
                self.in_phase(program, Phase::Asked)?.cut();
                self.programs.remove(&program);
            }
            Report::Ended { program, .. } => {
                self.in_phase(program, Phase::Running)?.phase = Phase::Ended;
                self.programs.retain(|_, program| !program.is_over());
            }
            Report::Measured { .. } => self.measures = self.measures.checked_sub(1).ok_or(OutOfTurn)?,
            Report::Gone { .. } => {
                self.begun = Begun::Gone;
                return Ok(Step::Gone(report));
            }
            Report::Proven(_) | Report::Door | Report::Layer { .. } | Report::Workspace { .. } => {
                return Err(OutOfTurn);
            }
        }
        Ok(Step::Tell(report))
    }

    fn in_phase(&mut self, number: ProgramNumber, phase: Phase) -> Result<&mut Program, OutOfTurn> {
        self.programs.get_mut(&number).filter(|program| program.phase == phase).ok_or(OutOfTurn)
    }

    /// A program that wrote must have been started, and what it writes to must be there.
    fn outlet(&self, number: ProgramNumber, stream: Stream) -> Result<&Outlet, OutOfTurn> {
        let program = self.programs.get(&number).filter(|program| program.phase != Phase::Asked).ok_or(OutOfTurn)?;
        program.outlet(stream).map(AsRef::as_ref).ok_or(OutOfTurn)
    }

    /// What is told of a program's input may come when the program is over, but not before it began.
    fn heard_of(&self, number: ProgramNumber) -> Result<Option<&Program>, OutOfTurn> {
        match self.programs.get(&number) {
            Some(program) if program.phase == Phase::Asked => Err(OutOfTurn),
            None if number == ONLY || number > self.highest => Err(OutOfTurn),
            known => Ok(known),
        }
    }

    /// Who wants to know what differs.
    fn collecting(&mut self) -> Result<Parts, OutOfTurn> {
        if let Some(collector) = self.collectors.front() {
            return Ok(collector.parts());
        }
        self.last = match std::mem::replace(&mut self.last, Last::Nothing) {
            Last::Waiting(bringing) if self.may_end => Last::Coming(Collector::begin(bringing).map_err(|_| OutOfTurn)?),
            other => other,
        };
        match &self.last {
            Last::Coming(collector) => Ok(collector.parts()),
            Last::Waiting(_) | Last::Nothing => Err(OutOfTurn),
        }
    }

    fn collected(&mut self, all: Result<(), String>) -> Result<Step, OutOfTurn> {
        if let Some(collector) = self.collectors.pop_front() {
            return Ok(Step::Brought(collector, all));
        }
        match std::mem::replace(&mut self.last, Last::Nothing) {
            Last::Coming(collector) => Ok(Step::BroughtLast(Some(collector), all)),
            // What differs is all that was told before.
            Last::Waiting(bringing) if self.may_end && self.was_looked_at => {
                Ok(Step::BroughtLast(Some(Collector::begin(bringing).map_err(|_| OutOfTurn)?), all))
            }
            Last::Waiting(_) if self.may_end => Ok(Step::BroughtLast(None, all)),
            Last::Waiting(_) | Last::Nothing => Err(OutOfTurn),
        }
    }

    /// Nothing more is to be heard: everything that waits gets an error, and streams end with what came.
    pub(super) fn give_up(&mut self) {
        self.begun = Begun::Gone;
        self.finds.clear();
        self.fill = Fill::Nobody;
        self.collectors.clear();
        self.last = Last::Nothing;
        self.relay.as_mut().into_iter().for_each(Relay::cut);
        // Who serves it learns that nothing more comes.
        self.relay = None;
        self.programs.values_mut().for_each(|program| {
            program.cut();
            program.ends = None;
        });
    }
}

/// A failure in a guest's words.
pub(super) fn said_by_the_guest(text: &str) -> io::Error {
    io::Error::other(text.chars().take(MOST_WORDS).collect::<String>())
}
