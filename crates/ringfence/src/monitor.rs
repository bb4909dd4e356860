//! Watches one run: the clock, memory and processes where the wall does not keep them, the end.

use std::convert::Infallible;
use std::time::{Duration, Instant};

use ringfence_linux::cgroup::CgroupUsage;
use ringfence_linux::{Layer, Report, Usage};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval_at, sleep_until};

use crate::backend::Sandbox;
use crate::capture::Captured;
use crate::egress::Contacts;
use crate::event::{Event, Stream, UsageSample, Violation};
use crate::outcome::ResourceUsage;
use crate::plan::{Limits, Plan};
use crate::pump::{read_stream, write_stdin};
use crate::request::Stdin;
use crate::run::{Caller, Wish};
use crate::workspace::layer::PrivateLayer;

/// The time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The first look comes early: a bomb goes off at once.
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// Looks between two usage events.
const LOOKS_PER_EVENT: u32 = 10;

/// Why we ended a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    TimeLimit,
    Memory,
    Processes,
    Cancelled,
}

/// How a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// With the status that `wait` gave.
    Reaped(i32),
    /// Its keeper ended without telling: only the program itself could have killed it.
    Lost,
}

/// What watching a run brought.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) end: End,
    pub(crate) ended_by: Option<Reason>,
    pub(crate) usage: ResourceUsage,
    pub(crate) violations: Vec<Violation>,
    /// What was wanted of the network, where that is decided host by host.
    pub(crate) network: Contacts,
    /// What of it is still to be told, once the end is written down: that waits for no reader.
    pub(crate) last: Vec<Event>,
    pub(crate) stdout: Captured,
    pub(crate) stderr: Captured,
    pub(crate) layer_changed: bool,
    /// The workspace's private layer, when it holds changes and is kept.
    pub(crate) layer: std::io::Result<Option<PrivateLayer>>,
}

/// Watches the program of `sandbox` until nothing of it is left.
pub(crate) async fn watch(
    mut sandbox: Sandbox,
    plan: &Plan,
    events: mpsc::Sender<Event>,
    caller: Caller,
    started: Instant,
) -> Watched {
    let limits = plan.limits();
    let (gone_sender, gone) = watch::channel(false);
    let input: &[u8] = match plan.stdin() {
        Stdin::Bytes(bytes) => bytes,
        Stdin::Empty | Stdin::Pipe(_) => &[],
    };
    let (stdin, typed) = (sandbox.stdin.take(), sandbox.typed.take());
    let streams = [(Stream::Stdout, sandbox.stdout.take()), (Stream::Stderr, sandbox.stderr.take())];
    let [stdout, stderr] = streams.map(|(stream, pipe)| {
        let (events, gone) = (events.clone(), gone.clone());
        async move {
            match pipe {
                Some(pipe) => read_stream(stream, pipe, limits.output, events, gone).await,
                None => Captured::default(),
            }
        }
    });
    // Beside everything else: whoever reads slowly holds up neither the watching nor a connection.
    let tell = async {
        if let Some(network) = sandbox.network() {
            network.pass_on(plan.run_id(), &events).await;
        }
        std::future::pending::<Infallible>().await
    };
    let mut supervision =
        Supervision { sandbox: &sandbox, limits, events: events.clone(), started, seen: Seen::default() };
    let supervise = async {
        // A program that is gone reads no more: the rest of its input is dropped.
        tokio::select! {
            () = supervision.until_gone(caller) => {}
            () = async { write_stdin(stdin, input, typed).await; std::future::pending::<()>().await } => {}
        }
        // Before its output is read to the end: whoever shows that may be holding it back while a question of the network stands.
        supervision.sandbox.stop_network();
        gone_sender.send_replace(true);
    };
    let both = async { tokio::join!(stdout, stderr, supervise) };
    let (stdout, stderr, ()) = tokio::select! {
        biased;
        done = both => done,
        never = tell => match never {},
    };
    let mut seen = supervision.seen;
    // Nothing of it reads any more, and what is left of its place goes away meanwhile.
    seen.violations.extend(sandbox.came_later().await);
    seen.take_counters(sandbox.counted().await, sandbox.is_alone());
    if seen.survivors {
        seen.violations.push(Violation {
            rule: "proc.no-survivors".to_owned(),
            message: "processes that the program left behind could not all be killed".to_owned(),
        });
    }
    if sandbox.is_full() {
        let size = plan.policy().fs.size.value;
        seen.violations.push(Violation {
            rule: "fs.size".to_owned(),
            message: format!("all of the {size} that may be written was in use at the end, or as many files as may be"),
        });
    }
    sandbox.close_network().await;
    let network = sandbox.network().map(|log| log.contacts()).unwrap_or_default();
    // Told later, and nothing is waited for here: as long as somebody holds this log, what is left behind in a session is written to
    // it, and not to the session's own.
    let last = sandbox.network().map(|log| log.take_rest(plan.run_id())).unwrap_or_default();
    seen.violations.extend(network.violations());
    let layer = sandbox.take_layer();
    sandbox.put_away();
    let wall = seen.ended_at.unwrap_or_else(Instant::now).duration_since(started);
    let cpu_us = seen.usage.user_us.saturating_add(seen.usage.system_us);
    Watched {
        end: seen.wait_status.map_or(End::Lost, End::Reaped),
        ended_by: seen.ended_by,
        usage: ResourceUsage {
            wall_time_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            cpu_time_ms: cpu_us / 1000,
            memory_peak_bytes: seen.peak_bytes.max(seen.usage.max_resident_bytes),
            bytes_read: seen.usage.read_bytes,
            bytes_written: seen.usage.written_bytes,
        },
        violations: seen.violations,
        network,
        last,
        stdout,
        stderr,
        // Whether a copy was changed is known when it has been compared.
        layer_changed: seen.layer_changed || matches!(layer, Ok(Some(_))),
        layer,
    }
}

/// What was seen so far.
#[derive(Debug, Default)]
struct Seen {
    ended_by: Option<Reason>,
    wait_status: Option<i32>,
    ended_at: Option<Instant>,
    usage: Usage,
    peak_bytes: u64,
    violations: Vec<Violation>,
    survivors: bool,
    layer_changed: bool,
}

impl Seen {
    /// Limits that the kernel kept: its counters say whether they were reached, and the end says whether that was why.
    fn take_counters(&mut self, counted: Option<CgroupUsage>, alone: bool) {
        let Some(counted) = counted else { return };
        self.peak_bytes = counted.memory_peak.unwrap_or(self.peak_bytes);
        // A guest that was killed itself leaves no status.
        let killed = self.wait_status.is_none_or(|status| status & 0x7f == 9 || status >> 8 == 128 + 9);
        let failed = self.wait_status != Some(0);
        if counted.oom_kills > 0 {
            let message = format!("processes killed for memory: {}", counted.oom_kills);
            self.violations.push(Violation { rule: "proc.memory".to_owned(), message });
            self.ended_by = self.ended_by.or(killed.then_some(Reason::Memory));
        }
        if counted.pids_limit_hits > 0 {
            let message = format!("starts of a process or thread that were refused: {}", counted.pids_limit_hits);
            self.violations.push(Violation { rule: "proc.processes".to_owned(), message });
            // Where others are counted too, it may have been one of them.
            self.ended_by = self.ended_by.or((failed && alone).then_some(Reason::Processes));
        }
    }
}

struct Supervision<'a> {
    sandbox: &'a Sandbox,
    limits: Limits,
    events: mpsc::Sender<Event>,
    started: Instant,
    seen: Seen,
}

impl Supervision<'_> {
    async fn until_gone(&mut self, caller: Caller) {
        let Caller { mut cancel, mut wishes } = caller;
        let deadline = self.started + self.limits.timeout;
        let mut looks = interval_at((self.started + FIRST_LOOK).into(), LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut looks_left = LOOKS_PER_EVENT;
        // When the next, firmer step is due; nothing while nothing was asked for.
        let mut kill_at: Option<Instant> = None;
        let mut force_at: Option<Instant> = None;
        loop {
            let next_step = force_at.or(kill_at).unwrap_or(deadline);
            tokio::select! {
                report = self.sandbox.next_report() => match report {
                    Ok(Some(Report::Ended { wait_status, usage, left })) => {
                        self.seen.wait_status = Some(wait_status);
                        // A program that could not start more may end before anybody looked.
                        let most = self.limits.watched_processes;
                        if self.seen.ended_by.is_none() && most.is_some_and(|most| u64::from(left) > most) {
                            self.end_for(Reason::Processes);
                        }
                        self.seen.ended_at = Some(Instant::now());
                        self.seen.usage = usage;
                        // What is left is being killed by the keeper now.
                        force_at.get_or_insert(Instant::now() + Sandbox::answer_limit());
                    }
                    Ok(Some(Report::Gone { usage, layer })) => {
                        self.seen.usage = usage;
                        self.seen.layer_changed = layer == Layer::Changed;
                        return;
                    }
                    // One that comes late.
                    Ok(Some(Report::Started { .. })) => {}
                    Ok(Some(Report::Failed { .. }) | None) | Err(_) => return self.lost(),
                },
                () = sleep_until(next_step.into()) => {
                    if force_at.is_some() && self.sandbox.still_tells() {
                        force_at = Some(Instant::now() + Sandbox::answer_limit());
                    } else if force_at.is_some() {
                        self.sandbox.kill_from_outside();
                        return self.lost();
                    } else if kill_at.is_some() {
                        force_at = Some(self.kill());
                    } else {
                        self.end_for(Reason::TimeLimit);
                        kill_at = Some(self.ask_to_end());
                    }
                }
                changed = cancel.changed(), if self.seen.ended_by.is_none() => {
                    // A caller who is gone can no longer want the run.
                    if changed.is_err() || *cancel.borrow_and_update() {
                        self.end_for(Reason::Cancelled);
                        kill_at = Some(self.ask_to_end());
                    }
                }
                Some(wish) = wishes.recv() => self.grant(wish),
                _ = looks.tick(), if force_at.is_none() => {
                    looks_left -= 1;
                    if let Some(reason) = self.look(looks_left == 0).await {
                        self.end_for(reason);
                        force_at = Some(self.kill());
                    }
                    if looks_left == 0 {
                        looks_left = LOOKS_PER_EVENT;
                    }
                }
            }
        }
    }

    /// What a caller may do with a program that runs. One that is over needs nothing more.
    fn grant(&self, wish: Wish) {
        match wish {
            Wish::Signal(signal) => self.sandbox.signal(signal).ok(),
            Wish::Resize(size) => self.sandbox.resize(size).ok(),
        };
    }

    /// The keeper is gone, or did not answer. What can still be reached is killed.
    fn lost(&mut self) {
        self.sandbox.kill_from_outside();
        if self.seen.wait_status.is_none() {
            self.sandbox.kill_group_of_lost_program();
        }
        self.seen.survivors = !ringfence_linux::orphans::kill_adopted();
        self.seen.ended_at.get_or_insert_with(Instant::now);
    }

    /// Politely; returns when to be firmer.
    fn ask_to_end(&self) -> Instant {
        if self.sandbox.ask_to_end().is_err() {
            return Instant::now();
        }
        Instant::now() + self.limits.grace
    }

    /// Firmly; returns when to do it without the keeper.
    fn kill(&self) -> Instant {
        if self.sandbox.kill().is_err() {
            return Instant::now();
        }
        Instant::now() + Sandbox::answer_limit()
    }

    fn end_for(&mut self, reason: Reason) {
        self.seen.ended_by = Some(reason);
        let (rule, message) = match reason {
            Reason::TimeLimit => ("time.limit", format!("still running after {:?}", self.limits.timeout)),
            Reason::Memory => (
                "proc.memory",
                format!("used {} of {} bytes", self.seen.peak_bytes, self.limits.watched_memory.unwrap_or(0)),
            ),
            Reason::Processes => (
                "proc.processes",
                format!("more than {} processes and threads", self.limits.watched_processes.unwrap_or(0)),
            ),
            Reason::Cancelled => return,
        };
        let violation = Violation { rule: rule.to_owned(), message };
        self.seen.violations.push(violation.clone());
        // A listener who is slow finds it in the outcome: waiting for one must not hold up the end.
        self.events.try_send(Event::Violation(violation)).ok();
    }

    /// Looks at what is in use; says which limit was reached.
    async fn look(&mut self, tell: bool) -> Option<Reason> {
        let sample = self.sandbox.sample();
        self.seen.peak_bytes = self.seen.peak_bytes.max(sample.resident_bytes);
        if tell {
            let wall = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
            let usage =
                UsageSample { wall_time_ms: wall, memory_bytes: sample.resident_bytes, processes: sample.tasks };
            // A listener who is slow loses samples, not output.
            self.events.try_send(Event::Usage(usage)).ok();
        }
        if self.limits.watched_memory.is_some_and(|most| sample.resident_bytes > most) {
            return Some(Reason::Memory);
        }
        let too_many = self.limits.watched_processes.is_some_and(|most| sample.tasks > most || sample.capped);
        too_many.then_some(Reason::Processes)
    }
}
