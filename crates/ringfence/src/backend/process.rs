//! A program under its keeper, with its pipes: what every backend that runs on this host's kernel hands to the engine.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use ringfence_linux::cgroup::{Cgroup, CgroupUsage};
use ringfence_linux::{GuestText, Keeper, Launch, Privileges, Report, Rlimit, tree};
use rustix::fs::{Mode, OFlags};
use rustix::pipe::PipeFlags;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::program::Program;
use super::{StartError, WallError};
use crate::plan::Plan;
use crate::request::Stdin;
use crate::scratch::Scratch;

/// How long a keeper may take to answer an order before it is killed from outside.
const KEEPER_ANSWER: Duration = Duration::from_secs(2);

/// How long a wall may take to be raised.
const RAISING: Duration = Duration::from_secs(30);

/// A place with a program ready in it or, once released, running. Dropping it kills the program and removes all that was made for it.
#[derive(Debug)]
pub struct Sandbox {
    keeper: Keeper,
    /// The keeper's control socket in the event loop. It only tells that there is a report: the keeper reads it.
    control: UnixStream,
    /// Its number on the host; nothing behind a wall, where it has another.
    program: Option<i32>,
    pub(crate) stdin: Option<pipe::Sender>,
    pub(crate) stdout: Option<pipe::Receiver>,
    pub(crate) stderr: Option<pipe::Receiver>,
    proofs: Vec<(String, String)>,
    // After the keeper: the files and the group of a program are removed when it is gone.
    scratch: Option<Scratch>,
    pub(super) group: Option<Cgroup>,
    /// The image that stands inside.
    pub(super) image: Option<String>,
}

/// The program's ends of its pipes, and ours.
pub(super) struct Pipes {
    stdin: Option<OwnedFd>,
    stdout: OwnedFd,
    stderr: OwnedFd,
    our_stdin: Option<OwnedFd>,
    our_stdout: OwnedFd,
    our_stderr: OwnedFd,
}

impl Pipes {
    pub(super) fn new(plan: &Plan) -> Result<Self, StartError> {
        let (our_stdout, stdout) = make_pipe()?;
        let (our_stderr, stderr) = make_pipe()?;
        let (stdin, our_stdin) = match plan.stdin() {
            Stdin::Empty => {
                let null =
                    File::open("/dev/null").map_err(|source| StartError::Io { attempt: "open /dev/null", source })?;
                (Some(OwnedFd::from(null)), None)
            }
            Stdin::Bytes(_) => {
                let (read, write) = make_pipe()?;
                (Some(read), Some(write))
            }
            Stdin::Pipe(_) => (None, None),
        };
        Ok(Self { stdin, stdout, stderr, our_stdin, our_stdout, our_stderr })
    }

    /// What the program gets as its standard input, output and error.
    pub(super) fn program_ends<'a>(&'a self, plan: &'a Plan) -> Result<[BorrowedFd<'a>; 3], StartError> {
        let stdin = match (plan.stdin(), &self.stdin) {
            (Stdin::Pipe(given), _) => given.as_fd(),
            (_, Some(made)) => made.as_fd(),
            (Stdin::Empty | Stdin::Bytes(_), None) => {
                return Err(StartError::Io {
                    attempt: "make standard input",
                    source: io::ErrorKind::InvalidInput.into(),
                });
            }
        };
        Ok([stdin, self.stdout.as_fd(), self.stderr.as_fd()])
    }

    /// The sandbox of a program that was given its ends. Our copies of those are closed: while they are open, a reader
    /// would wait for ever.
    pub(super) fn into_sandbox(self, keeper: Keeper) -> Result<Sandbox, StartError> {
        let watch = |source| StartError::Io { attempt: "watch the program", source };
        Ok(Sandbox {
            control: keeper.control().and_then(|fd| UnixStream::from_std(fd.into())).map_err(watch)?,
            keeper,
            program: None,
            stdin: self.our_stdin.map(writer).transpose().map_err(watch)?,
            stdout: Some(reader(self.our_stdout).map_err(watch)?),
            stderr: Some(reader(self.our_stderr).map_err(watch)?),
            proofs: Vec::new(),
            scratch: None,
            group: None,
            image: None,
        })
    }
}

/// Makes all that `program` needs; it is executed by [`Sandbox::release`].
pub(super) fn prepare(
    plan: &Plan,
    program: Program,
    privileges: Privileges,
    rlimits: &[Rlimit],
) -> Result<Sandbox, StartError> {
    let cwd = open_cwd(plan)?;
    let pipes = Pipes::new(plan)?;
    let [stdin, stdout, stderr] = pipes.program_ends(plan)?;
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
    })?;
    let mut sandbox = pipes.into_sandbox(keeper)?;
    sandbox.scratch = program.scratch;
    Ok(sandbox)
}

impl Sandbox {
    /// The image that stands inside, by its name and digest.
    pub(crate) fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }

    /// Executes the program; everything is in force. Returns once its first instruction is about to run.
    pub async fn release(&mut self) -> Result<(), StartError> {
        let watch = |source| StartError::Io { attempt: "watch the program", source };
        self.keeper.release().map_err(watch)?;
        let Ok(report) = tokio::time::timeout(KEEPER_ANSWER, self.next_report()).await else {
            // A program that is not behind a wall may stop its keeper before that can say that it started. The clock of
            // the run goes on all the same.
            return Ok(());
        };
        match report.map_err(watch)? {
            Some(Report::Started { pid }) => {
                self.program = Some(pid).filter(|_| self.keeper.is_on_the_host());
                Ok(())
            }
            Some(Report::Failed { stage, errno }) => {
                Err(StartError::Step { stage, source: io::Error::from_raw_os_error(errno) })
            }
            Some(Report::Ended { .. } | Report::Gone { .. }) | None => {
                Err(watch(io::Error::from(io::ErrorKind::UnexpectedEof)))
            }
        }
    }

    /// What was seen from inside before the release: names of guarantees, and what was found.
    pub fn proofs(&self) -> &[(String, String)] {
        &self.proofs
    }

    /// Waits until the guest behind a wall has proven it.
    pub(super) async fn proven(&mut self) -> Result<(), StartError> {
        let watch = |source| StartError::Io { attempt: "watch the guest", source };
        let text = tokio::time::timeout(RAISING, async {
            loop {
                self.control.readable().await?;
                match self.control.try_io(Interest::READABLE, || self.keeper.receive_text()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    text => return text,
                }
            }
        });
        match text.await.map_err(|_| watch(io::ErrorKind::TimedOut.into()))?.map_err(watch)? {
            GuestText::Proven(text) => {
                let proofs = ringfence_linux::wall::read_proofs(&text);
                self.proofs = proofs.into_iter().map(|proof| (proof.name, proof.found)).collect();
                Ok(())
            }
            GuestText::Report(Report::Failed { stage, errno }) => {
                Err(StartError::Step { stage, source: io::Error::from_raw_os_error(errno) })
            }
            GuestText::Failed(text) => Err(StartError::Wall(WallError(text))),
            GuestText::Report(_) | GuestText::Gone => Err(watch(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// The keeper's next report; nothing when it is gone.
    pub(crate) async fn next_report(&self) -> io::Result<Option<Report>> {
        loop {
            self.control.readable().await?;
            match self.control.try_io(Interest::READABLE, || self.keeper.receive()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                report => return report,
            }
        }
    }

    /// Sends a signal to the program's group.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) -> io::Result<()> {
        let number = u8::try_from(signal.as_raw()).map_err(|_| io::ErrorKind::InvalidInput)?;
        self.keeper.signal(number)
    }

    /// Kills the program and everything it started.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.keeper.kill()
    }

    /// Kills without the keeper's help.
    pub(crate) fn kill_from_outside(&self) {
        self.keeper.kill_from_outside();
    }

    /// What the program and everything it started use now.
    pub(crate) fn sample(&self) -> tree::Sample {
        tree::sample(self.keeper.pid())
    }

    /// What the kernel counted for all processes together, where it did.
    pub(crate) fn counted(&self) -> Option<CgroupUsage> {
        self.group.as_ref().and_then(|group| group.usage().ok())
    }

    /// How long to wait for the keeper after an order to kill.
    pub(crate) fn answer_limit() -> Duration {
        KEEPER_ANSWER
    }

    /// For a keeper that ended without a last word: kills the program's group, and says whether it was there.
    pub(crate) fn kill_group_of_lost_program(&self) -> bool {
        self.program
            .and_then(rustix::process::Pid::from_raw)
            .is_some_and(|group| rustix::process::kill_process_group(group, rustix::process::Signal::KILL).is_ok())
    }
}

/// Opens the working directory beneath the workspace; nothing on the way may lead out of it.
fn open_cwd(plan: &Plan) -> Result<OwnedFd, StartError> {
    let failed = |source: rustix::io::Errno| StartError::WorkingDirectory {
        path: plan.workspace().join(plan.cwd()),
        source: source.into(),
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let workspace = rustix::fs::open(plan.workspace(), flags, Mode::empty()).map_err(failed)?;
    if plan.cwd().as_os_str().is_empty() {
        return Ok(workspace);
    }
    rustix::fs::openat2(
        &workspace,
        plan.cwd(),
        flags,
        Mode::empty(),
        rustix::fs::ResolveFlags::BENEATH | rustix::fs::ResolveFlags::NO_MAGICLINKS,
    )
    .map_err(failed)
}

fn make_pipe() -> Result<(OwnedFd, OwnedFd), StartError> {
    rustix::pipe::pipe_with(PipeFlags::CLOEXEC)
        .map_err(|errno| StartError::Io { attempt: "make a pipe", source: errno.into() })
}

fn reader(fd: OwnedFd) -> io::Result<pipe::Receiver> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    pipe::Receiver::from_owned_fd_unchecked(fd)
}

fn writer(fd: OwnedFd) -> io::Result<pipe::Sender> {
    rustix::io::ioctl_fionbio(&fd, true)?;
    pipe::Sender::from_owned_fd_unchecked(fd)
}
