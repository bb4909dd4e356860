//! A program under its keeper or guest, with its pipes: what every backend that runs on this host's kernel hands to the
//! engine.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use ringfence_guest::protocol::ONLY;
use ringfence_guest::{Guest, Order};
use ringfence_linux::cgroup::CgroupUsage;
use ringfence_linux::{Keeper, Launch, Privileges, Report, Rlimit, tree};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use self::member::{Alone, Member, Screen};
use super::counters::Counters;
use super::guest::{self, Link, Proofs};
use super::native::AtWork;
use super::pipes::{Pipes, reader, writer};
use super::program::{Program, open_cwd};
use super::{FoundImage, Live, Shown, StartError};
use crate::egress::{Egress, Log};
use crate::event::Violation;
use crate::outcome::ContainerFrom;
use crate::plan::Plan;
use crate::request::TerminalSize;
use crate::scratch::Scratch;
use crate::waiting::{Later, afterwards};
use crate::way_out::WayOut;
use crate::workspace::layer::{Lower, PrivateLayer};

mod member;

pub(super) use self::member::alone;
pub(super) use self::member::in_session;

/// How long a keeper may take to answer an order before it is killed from outside.
const KEEPER_ANSWER: Duration = Duration::from_secs(2);

/// A place with a program ready in it or, once released, running. Dropping it kills the program and removes all that was
/// made for it.
#[derive(Debug)]
pub struct Sandbox {
    supervisor: Supervisor,
    pub(crate) stdin: Option<pipe::Sender>,
    pub(crate) stdout: Option<pipe::Receiver>,
    pub(crate) stderr: Option<pipe::Receiver>,
    /// What is typed into the program's terminal.
    pub(crate) typed: Option<pipe::Receiver>,
    terminal: Option<Screen>,
    pub(super) proofs: Proofs,
    // After the supervisor: the files and the group of a program are removed when it is gone.
    pub(super) scratch: Option<Scratch>,
    pub(super) counters: Option<Counters>,
    /// What they had counted before the program was started, where they are not the program's own.
    counted_before: Option<CgroupUsage>,
    /// The image that stands inside.
    pub(super) image: Option<String>,
    /// How that was found.
    pub(super) shown: Shown,
    /// Where its container came from, where some wait.
    pub(crate) container: Option<ContainerFrom>,
    /// The way out of a wall that is there for this program alone.
    egress: Option<Egress>,
    /// What was decided for this program.
    pub(super) network: Option<Arc<Log>>,
    /// The workspace, when what is changed of it is kept.
    pub(super) lower: Option<Arc<Lower>>,
    /// The folders that stay the host's own, where something in them is denied.
    pub(super) live: Option<Arc<Live>>,
    /// What the guest of this program alone left, once it is gone.
    left: std::sync::Mutex<Option<guest::Left>>,
    /// The copy of the workspace that the program works in. After the supervisor, as the files are.
    pub(super) copy: std::sync::Mutex<Option<PrivateLayer>>,
    /// The keeper said that nothing of the program is left.
    is_gone: AtomicBool,
    /// Its program was let go before we had heard of the proof.
    released: bool,
    /// The code that its program waits for.
    pub(super) code: Option<Vec<u8>>,
    /// It is one of the runs that are under way.
    pub(super) at_work: Option<AtWork>,
    /// What is to be done once all is known of it.
    pub(super) afterwards: Option<Later>,
}

/// Who starts, signals and kills the program, and tells of it.
#[derive(Debug)]
enum Supervisor {
    /// A process on the host.
    Keeper {
        keeper: Keeper,
        /// The keeper's control socket in the event loop. It only tells that there is a report: the keeper reads it.
        control: UnixStream,
        /// Its number on the host.
        program: Option<i32>,
    },
    /// Process 1 behind a wall that is there for this program alone.
    Guest(Link),
    /// One of the programs of a guest that is kept.
    Kept(Member),
    /// The only program of a guest that is far.
    Alone(Alone),
}

impl Pipes {
    /// The sandbox of a program that was given its ends. Our copies of those are closed: while they are open, a reader
    /// would wait for ever.
    fn into_sandbox(self, supervisor: Supervisor) -> io::Result<Sandbox> {
        Ok(Sandbox {
            stdin: self.our_stdin.map(writer).transpose()?,
            stdout: Some(reader(self.our_stdout)?),
            stderr: Some(reader(self.our_stderr)?),
            ..Sandbox::new(supervisor)
        })
    }

    /// The sandbox of a program that a keeper holds.
    pub(super) fn kept_by(self, keeper: Keeper) -> Result<Sandbox, StartError> {
        let control = keeper.control().and_then(|fd| UnixStream::from_std(fd.into())).map_err(watch)?;
        self.into_sandbox(Supervisor::Keeper { keeper, control, program: None }).map_err(watch)
    }

    /// The sandbox of a program that a guest of its own holds.
    pub(super) fn behind(self, guest: Guest) -> Result<Sandbox, StartError> {
        Link::new(guest).and_then(|link| self.into_sandbox(Supervisor::Guest(link))).map_err(watch)
    }
}

fn no_last_word_of_the_keeper() -> io::Error {
    let what = "the keeper ended before it could say that nothing of the program is left";
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}

fn watch(source: io::Error) -> StartError {
    StartError::Io { attempt: "watch the program", source }
}

/// Makes all that `program` needs; it is executed by [`Sandbox::release`].
pub(super) fn prepare(
    plan: &Plan,
    program: Program,
    privileges: Privileges,
    rlimits: &[Rlimit],
) -> Result<Sandbox, StartError> {
    let cwd = open_cwd(plan.workspace(), plan.cwd())?;
    let pipes = Pipes::new(plan.stdin())?;
    let [stdin, stdout, stderr] = pipes.program_ends(plan.stdin())?;
    let argv: Vec<&OsStr> = program.argv.iter().map(AsRef::as_ref).collect();
    let env: Vec<(&OsStr, &OsStr)> =
        plan.env().iter().map(|(name, value)| (name.as_os_str(), value.as_os_str())).collect();
    let keeper = ringfence_linux::keeper::launch(&Launch {
        program: program.file.as_os_str(),
        argv: &argv,
        env: &env,
        cwd: cwd.as_fd(),
        stdin,
        stdout,
        stderr,
        privileges,
        rlimits,
        fence: None,
    })?;
    let mut sandbox = pipes.kept_by(keeper)?;
    sandbox.scratch = program.scratch;
    Ok(sandbox)
}

impl Sandbox {
    fn new(supervisor: Supervisor) -> Self {
        Self {
            supervisor,
            stdin: None,
            stdout: None,
            stderr: None,
            typed: None,
            terminal: None,
            proofs: Proofs::new(),
            scratch: None,
            counters: None,
            counted_before: None,
            image: None,
            shown: Shown::AsAsked,
            container: None,
            egress: None,
            network: None,
            lower: None,
            live: None,
            left: std::sync::Mutex::default(),
            copy: std::sync::Mutex::default(),
            is_gone: AtomicBool::new(false),
            released: false,
            code: None,
            at_work: None,
            afterwards: None,
        }
    }

    /// The image that stands inside, by its name and digest.
    pub(crate) fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }

    /// Whether it shows what was found.
    pub(crate) fn shows(&self, found: Option<&FoundImage>) -> bool {
        FoundImage::is_shown(found, self.image(), self.shown)
    }

    /// Executes the program; everything is in force. Returns once its first instruction is about to run, or the first of the code that
    /// it waits for.
    pub async fn release(&mut self) -> Result<(), StartError> {
        if let (Some(code), Supervisor::Guest(link)) = (self.code.take(), &self.supervisor) {
            // Its guest says that it begins before it gives it anything. Whatever comes instead: nothing was begun, or ends with us.
            link.order(Order::Code(code)).map_err(|_| StartError::NobodyWaits)?;
            return match tokio::time::timeout(KEEPER_ANSWER, self.next_report()).await {
                Ok(Ok(Some(Report::Started { .. }))) => Ok(()),
                _ => Err(StartError::NobodyWaits),
            };
        }
        match &mut self.supervisor {
            Supervisor::Keeper { keeper, .. } => keeper.release().map_err(watch)?,
            Supervisor::Guest(_) if self.released => {}
            Supervisor::Guest(link) => link.order(Order::Release).map_err(watch)?,
            Supervisor::Kept(member) | Supervisor::Alone(Alone { member, .. }) => {
                if let Some(screen) = member.start().await? {
                    self.stdin = Some(screen.try_clone().and_then(writer).map_err(watch)?);
                    self.stdout = Some(screen.try_clone().and_then(reader).map_err(watch)?);
                    self.terminal = Some(Screen::Near(screen));
                }
                return Ok(());
            }
        }
        let Ok(report) = tokio::time::timeout(KEEPER_ANSWER, self.next_report()).await else {
            // A program that is not behind a wall may stop its keeper before that can say that it started. The clock of
            // the run goes on all the same.
            return Ok(());
        };
        match report.map_err(watch)? {
            Some(Report::Started { pid }) => {
                if let Supervisor::Keeper { program, .. } = &mut self.supervisor {
                    *program = Some(pid);
                }
                Ok(())
            }
            Some(Report::Failed { stage, errno }) => {
                Err(StartError::Step { stage, source: io::Error::from_raw_os_error(errno) })
            }
            // Whoever holds the program is gone, and the program may have begun: one that uses up all memory at once can take
            // its guest with it. Whoever watches is told the same, and says by the kernel's counters what happened.
            None => Ok(()),
            Some(Report::Ended { .. } | Report::Gone { .. }) => {
                Err(watch(io::Error::new(io::ErrorKind::InvalidData, "an end was told before a beginning")))
            }
        }
    }

    /// What was seen from inside before the release: names of guarantees, and what was found.
    pub fn proofs(&self) -> &[(String, String)] {
        &self.proofs
    }

    /// Waits until the guest behind a wall has proven it, and opens its way out, if it has one. The program of one `alone` need not
    /// wait for us to hear of it: it is released as soon as the ledger knows of it, and runs once its own process has proven everything.
    pub(super) async fn proven(&mut self, plan: &Plan, way_out: Option<WayOut>, alone: bool) -> Result<(), StartError> {
        if let Supervisor::Guest(link) = &self.supervisor {
            let released = &mut self.released;
            let at_once = alone && way_out.is_none();
            let release = async {
                if at_once {
                    plan.written_down().await;
                    *released = true;
                    // It is gone then, as whoever waits for its proof is told.
                    link.order(Order::Release).ok();
                }
                std::future::pending::<std::convert::Infallible>().await
            };
            let (proofs, egress) = tokio::select! {
                biased;
                proven = link.proven_for(plan, way_out) => proven?,
                never = release => match never {},
            };
            self.proofs = proofs;
            self.lead_out(egress);
        }
        Ok(())
    }

    /// Gives it the way out of a wall that is there for this program alone, if it has one.
    pub(super) fn lead_out(&mut self, egress: Option<Egress>) {
        self.network = egress.as_ref().map(Egress::follow);
        self.egress = egress;
    }

    /// Ends the way out of a wall that was there for this program alone. What was carried is counted by [`Self::close_network`].
    pub(crate) fn stop_network(&self) {
        if let Some(egress) = &self.egress {
            egress.stop();
        }
    }

    /// Ends the way out of a wall that was there for this program alone, and returns when all that it carried is counted.
    pub(crate) async fn close_network(&mut self) {
        if let Some(egress) = &self.egress {
            egress.close().await;
        }
    }

    /// What the program wanted of the network, where that is decided host by host.
    pub(crate) fn network(&self) -> Option<&Arc<Log>> {
        self.network.as_ref()
    }

    /// What is counted is shared with others: what it is by now is not this program's.
    pub(super) async fn share(&mut self, counters: Counters) {
        // Without a beginning nothing that it counts could be told from what others did.
        if let Some(before) = counters.usage().await {
            self.counted_before = Some(before);
            self.counters = Some(counters);
        }
    }

    /// The next report about the program; nothing when whoever tells of it is gone.
    pub(crate) async fn next_report(&self) -> io::Result<Option<Report>> {
        match &self.supervisor {
            Supervisor::Keeper { keeper, control, .. } => loop {
                control.readable().await?;
                match control.try_io(Interest::READABLE, || keeper.receive()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    report => {
                        let gone = matches!(report, Ok(Some(Report::Gone { .. })));
                        self.is_gone.fetch_or(gone, Ordering::Relaxed);
                        return report;
                    }
                }
            },
            Supervisor::Guest(link) => match link.next().await? {
                Some(mut received) => {
                    if let Some(left) = link.left(&mut received) {
                        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(left);
                    }
                    guest::as_keepers(received.report).map(Some)
                }
                None => Ok(None),
            },
            Supervisor::Kept(program) => program.next_report().await,
            Supervisor::Alone(program) => {
                let report = program.next_report(&self.left).await;
                let gone = matches!(report, Ok(Some(Report::Gone { .. })));
                self.is_gone.fetch_or(gone, Ordering::Relaxed);
                report
            }
        }
    }

    /// What has to be told of the host's folders when the program has ended.
    pub(crate) async fn came_later(&self) -> Option<Violation> {
        self.live.as_ref()?.violation().await
    }

    /// Holds a layer that the program writes to, until it is asked for.
    pub(super) fn hold(&self, layer: Option<PrivateLayer>) {
        *self.copy.lock().unwrap_or_else(PoisonError::into_inner) = layer;
    }

    /// The private layer that the program left changed; nothing when it is not kept, or in a session.
    pub(crate) fn take_layer(&self) -> io::Result<Option<PrivateLayer>> {
        if let Some(copy) = self.copy.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // Somebody who lives on might still write to it.
            let gone = self.is_gone.load(Ordering::Relaxed);
            return if gone { Ok(Some(copy)) } else { Err(no_last_word_of_the_keeper()) };
        }
        let keeps = matches!(&self.supervisor, Supervisor::Alone(alone) if alone.keeps_workspace());
        if self.lower.is_none() && !keeps {
            return Ok(None);
        }
        match self.left.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            Some(left) => left.take_layer(self.lower.as_ref()),
            None => Err(guest::no_last_word()),
        }
    }

    /// Whether the program left no room for anything more to be written.
    pub(crate) fn is_full(&self) -> bool {
        self.left.lock().unwrap_or_else(PoisonError::into_inner).as_ref().is_some_and(|left| left.full)
    }

    /// Sends a signal to the program's group.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) -> io::Result<()> {
        let signal = u8::try_from(signal.as_raw()).map_err(|_| io::ErrorKind::InvalidInput)?;
        match &self.supervisor {
            Supervisor::Keeper { keeper, .. } => keeper.signal(signal),
            Supervisor::Guest(link) => link.order(Order::Signal { program: ONLY, signal }),
            Supervisor::Kept(member) | Supervisor::Alone(Alone { member, .. }) => member.signal(signal),
        }
    }

    /// Asks the program to end. In a session, nothing of its own session stays when it does.
    pub(crate) fn ask_to_end(&self) -> io::Result<()> {
        match &self.supervisor {
            Supervisor::Kept(program) => program.stop(),
            Supervisor::Keeper { .. } | Supervisor::Guest(_) | Supervisor::Alone(_) => {
                self.signal(rustix::process::Signal::TERM)
            }
        }
    }

    /// Kills the program and everything it started.
    pub(crate) fn kill(&self) -> io::Result<()> {
        match &self.supervisor {
            Supervisor::Keeper { keeper, .. } => keeper.kill(),
            Supervisor::Guest(link) => link.order(Order::Kill { program: ONLY }),
            Supervisor::Kept(program) => program.kill(),
            Supervisor::Alone(program) => program.kill(),
        }
    }

    /// Kills without the help of a keeper or guest that does not answer. A session ends by it.
    pub(crate) fn kill_from_outside(&self) {
        match &self.supervisor {
            Supervisor::Keeper { keeper, .. } => keeper.kill_from_outside(),
            Supervisor::Guest(link) => link.kill(),
            Supervisor::Kept(member) | Supervisor::Alone(Alone { member, .. }) => member.guest().kill(),
        }
    }

    /// What the program and everything it started use now; in a session, all of its programs.
    pub(crate) fn sample(&self) -> tree::Sample {
        match &self.supervisor {
            Supervisor::Keeper { keeper, .. } => tree::sample(keeper.pid()),
            Supervisor::Guest(link) => link.sample().unwrap_or_default(),
            Supervisor::Kept(member) | Supervisor::Alone(Alone { member, .. }) => member.guest().sample(),
        }
    }

    /// What was counted for all processes together, where it was, since the program was started.
    pub(crate) async fn counted(&self) -> Option<CgroupUsage> {
        let counted = self.counters.as_ref()?.usage().await?;
        match self.counted_before {
            None => Some(counted),
            Some(before) => Some(CgroupUsage {
                // The most of all programs so far, not of this one.
                memory_peak: None,
                oom_kills: counted.oom_kills.saturating_sub(before.oom_kills),
                pids_limit_hits: counted.pids_limit_hits.saturating_sub(before.pids_limit_hits),
                ..counted
            }),
        }
    }

    /// Ends it, when all that there is to know of it is known. Whoever waits for its outcome does not wait until the kernel has put
    /// away where its processes were counted.
    pub(crate) fn put_away(mut self) {
        let (counters, next) = (self.counters.take(), self.afterwards.take());
        drop(self);
        afterwards(move || drop(counters));
        next.into_iter().for_each(Later::begin);
    }

    /// Whether what is counted is this program's alone.
    pub(crate) fn is_alone(&self) -> bool {
        self.counted_before.is_none()
    }

    /// Gives the program's terminal another size.
    pub(crate) fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let screen = match (&self.terminal, &self.supervisor) {
            (Some(Screen::Near(screen)), _) => screen,
            (Some(Screen::Far), Supervisor::Kept(member) | Supervisor::Alone(Alone { member, .. })) => {
                return member.resize(size);
            }
            (Some(Screen::Far), Supervisor::Keeper { .. } | Supervisor::Guest(_)) | (None, _) => return Ok(()),
        };
        let size = rustix::termios::Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(screen, size).map_err(io::Error::from)
    }

    /// How long to wait for the keeper after an order to kill.
    pub(crate) fn answer_limit() -> Duration {
        KEEPER_ANSWER
    }

    /// Whether a place that was told to end and has not ended yet still tells what is left of it: what a program changed may
    /// take longer to be told than a kill takes to be answered.
    pub(crate) fn still_tells(&self) -> bool {
        matches!(&self.supervisor, Supervisor::Alone(alone) if alone.still_tells())
    }

    /// For a keeper that ended without a last word: kills the program's group, and says whether it was there.
    pub(crate) fn kill_group_of_lost_program(&self) -> bool {
        let Supervisor::Keeper { program, .. } = &self.supervisor else { return false };
        program
            .and_then(rustix::process::Pid::from_raw)
            .is_some_and(|group| rustix::process::kill_process_group(group, rustix::process::Signal::KILL).is_ok())
    }
}
