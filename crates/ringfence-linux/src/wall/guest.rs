//! Process 1 behind a wall: raises the rest of it, starts the program, and keeps it as a keeper does.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use libc::c_int;

use serde::{Deserialize, Serialize};

use super::inside::Inside;
use super::membership::{Membership, OpenMembership};
use super::namespaces::{Joined, raise};
use super::proof::{Expected, Proof, prove};
use super::view::open_sources;
use super::{Access, Raised, Wall, landlock, os_paths};
use crate::keeper::{Rlimit, c_string, null_terminated, place_descriptors};
use crate::keeper_process::{self, CONTROL, SignalMask};
use crate::program_process::{close_from_on_exec, errno, exit, reset_signals, run_sharing_memory, set_limit};
use crate::report::{self, Report, Stage};
use crate::{privileges, seccomp};

/// What runs behind a wall. Plain data: it can be sent to the process that raises the wall.
#[derive(Debug, Serialize, Deserialize)]
pub struct WallLaunch {
    /// What is shown.
    pub wall: Wall,
    /// The files to try to execute, in this order; the first that is there is taken.
    #[serde(with = "os_paths")]
    pub programs: Vec<PathBuf>,
    /// The arguments, the program's name first.
    pub argv: Vec<OsString>,
    /// The whole environment.
    pub env: Vec<(OsString, OsString)>,
    /// Where it starts, inside.
    pub cwd: OsString,
    /// Limits of each process by itself.
    pub rlimits: Vec<Rlimit>,
    /// The second fence: what may be read, and what may be written.
    pub paths: Vec<(OsString, Access)>,
    /// Where the processes are counted together.
    pub cgroup: Option<Membership>,
    /// Run on so many processors, where no cgroup shares out their time.
    pub processors: Option<u32>,
    /// All processes and threads together, the guest included. The kernel counts them in the wall's user namespace.
    pub processes: u64,
}

/// The descriptors of a start.
#[derive(Debug, Clone, Copy)]
pub struct WallDescriptors<'a> {
    /// Standard input, output and error.
    pub stdio: [BorrowedFd<'a>; 3],
    /// The guest's end of the control socket.
    pub control: BorrowedFd<'a>,
    /// Trees that entries refer to by number.
    pub trees: &'a [OwnedFd],
}

/// Raises the wall of `launch` and holds its program ready. The first message on the control socket is its proofs, or
/// what failed. This process must have one thread.
pub fn start(launch: &WallLaunch, descriptors: WallDescriptors<'_>) -> io::Result<Raised> {
    let strings = Strings::new(launch)?;
    // Built before the fork: what is made once here is there in every copy.
    seccomp::program();
    let into = launch.cgroup.as_ref().map(Membership::open).transpose()?;
    let masked = SignalMask::block_all()?;
    let raised = raise(
        launch.wall.identity,
        into.as_ref().and_then(OpenMembership::folder),
        |pid| match &into {
            Some(into) => into.add(pid),
            None => Ok(()),
        },
        |joined| guest(launch, &strings, descriptors, joined),
    );
    masked.restore()?;
    raised
}

/// All strings of a start in the form that system calls take.
struct Strings {
    programs: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
    cwd: CString,
}

impl Strings {
    fn new(launch: &WallLaunch) -> io::Result<Self> {
        let invalid = |error: crate::keeper::LaunchError| io::Error::new(io::ErrorKind::InvalidInput, error);
        let programs = launch.programs.iter().map(|path| c_string(path.as_os_str(), "program's path"));
        let argv = launch.argv.iter().map(|argument| c_string(argument, "argument"));
        let env = launch.env.iter().map(|(name, value)| {
            let entry = [name.as_bytes(), b"=", value.as_bytes()].concat();
            c_string(OsStr::from_bytes(&entry), "environment")
        });
        Ok(Self {
            programs: programs.collect::<Result<_, _>>().map_err(invalid)?,
            argv: argv.collect::<Result<_, _>>().map_err(invalid)?,
            env: env.collect::<Result<_, _>>().map_err(invalid)?,
            cwd: c_string(&launch.cwd, "working directory").map_err(invalid)?,
        })
    }
}

/// The guest's whole life.
fn guest(launch: &WallLaunch, strings: &Strings, descriptors: WallDescriptors<'_>, joined: Joined) {
    // Where it can be told what failed, until descriptors are arranged.
    let mut control = descriptors.control.as_raw_fd();
    match prepare(launch, strings, descriptors, joined, &mut control) {
        Ok(Ready { signals, program, inside }) => {
            keeper_process::send(CONTROL, &Report::Started { pid: program });
            keeper_process::supervise(signals, program, &|| inside.layer())
        }
        Err(Failed::Step(stage, errno)) => {
            keeper_process::send(control, &Report::Failed { stage, errno });
            exit(1)
        }
        Err(Failed::Said(text)) => {
            report::send_text(control, report::Text::Failed, &text);
            exit(1)
        }
    }
}

/// A guest whose program was executed.
struct Ready {
    signals: c_int,
    program: c_int,
    inside: Inside,
}

enum Failed {
    Step(Stage, c_int),
    Said(String),
}

fn prepare(
    launch: &WallLaunch,
    strings: &Strings,
    descriptors: WallDescriptors<'_>,
    joined: Joined,
    control: &mut c_int,
) -> Result<Ready, Failed> {
    let said = |error: &dyn std::error::Error| Failed::Said(chain(error));
    super::clock::begin_near_zero().map_err(|error| said(&error))?;
    privileges::set_not_dumpable().map_err(|error| said(&error))?;
    super::inside::forget_arguments().map_err(|error| said(&error))?;
    super::inside::cut_off().map_err(|error| said(&error))?;
    // Opened before all else is closed: prepared trees are descriptors too.
    let sources = open_sources(&launch.wall.entries, descriptors.trees).map_err(|error| said(&error))?;
    let stdio = descriptors.stdio.map(|fd| fd.as_raw_fd());
    place_descriptors([stdio[0], stdio[1], stdio[2], descriptors.control.as_raw_fd()])
        .map_err(|(stage, errno)| Failed::Step(stage, errno))?;
    *control = CONTROL;
    let inside = Inside::enter(&launch.wall, sources).map_err(|error| said(&error))?;
    // Once more: becoming another user has set it to what the host prefers.
    privileges::set_not_dumpable().map_err(|error| said(&error))?;
    joined.wait();
    // What else the supervisor had open ends here.
    inside.close_all_but_layers(CONTROL + 1).map_err(|errno| Failed::Step(Stage::Descriptors, errno))?;
    let signals = keeper_process::child_signals().map_err(|(stage, errno)| Failed::Step(stage, errno))?;
    // Nothing is left to do that needs a privilege. The program's process inherits all three, and proves them.
    privileges::set_no_new_privileges().map_err(|error| said(&error))?;
    let _bounding = privileges::drop_all().map_err(|error| said(&error))?;
    seccomp::install(seccomp::program()).map_err(|error| said(&error))?;
    let mut failure = None;
    let started = run_sharing_memory(&mut || {
        failure = Some(become_program(launch, strings));
    });
    let program = started.map_err(|error| said(&error))?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    for fd in 0..=2 {
        // SAFETY: closes descriptors of this process alone. The program has its own; ours would hide the pipes' ends.
        unsafe { libc::close(fd) };
    }
    Ok(Ready { signals, program, inside })
}

/// Runs in the program's own process. Returns only when something failed.
fn become_program(launch: &WallLaunch, strings: &Strings) -> Failed {
    match restrict(launch, strings) {
        Ok(()) => {
            keeper_process::wait_for_go();
            match reset_signals() {
                Ok(()) => execute(strings),
                Err((stage, errno)) => Failed::Step(stage, errno),
            }
        }
        Err(failed) => failed,
    }
}

fn restrict(launch: &WallLaunch, strings: &Strings) -> Result<(), Failed> {
    let step = |(stage, errno)| Failed::Step(stage, errno);
    let said = |error: &dyn std::error::Error| Failed::Said(chain(error));
    // SAFETY: integers and a NUL-terminated path; the session and the working directory are this process's own.
    unsafe {
        if libc::setsid() < 0 {
            return Err(Failed::Step(Stage::Session, errno()));
        }
        if libc::chdir(strings.cwd.as_ptr()) < 0 {
            return Err(Failed::Step(Stage::WorkingDirectory, errno()));
        }
    }
    close_from_on_exec(CONTROL).map_err(|errno| Failed::Step(Stage::Descriptors, errno))?;
    be_killed_first().map_err(|error| said(&error))?;
    for limit in &launch.rlimits {
        set_limit(limit).map_err(step)?;
    }
    limit_processes(launch.processes).map_err(|error| said(&error))?;
    if let Some(processors) = launch.processors {
        pin(processors).map_err(|error| said(&error))?;
    }
    let version = landlock::restrict(&launch.paths).map_err(|error| said(&error))?;
    let expected = Expected { identity: launch.wall.identity, shown: launch.paths.len(), landlock: version };
    let proofs = prove(&expected).map_err(|error| said(&error))?;
    report::send_text(CONTROL, report::Text::Proven, &write_proofs(&proofs));
    Ok(())
}

/// Makes the kernel, when memory runs out, kill the program and what it starts before the guest, which has to tell of it.
/// The program can take this back, and harms itself: without its guest the run ends at once.
fn be_killed_first() -> io::Result<()> {
    while_readable(|| std::fs::write("/proc/self/oom_score_adj", "1000"))
}

/// Writes a file of this process in `/proc`. Of a process that may not be read, such a file belongs to the host's root.
pub(super) fn while_readable(write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let may_be_read = |yes: libc::c_ulong| {
        // SAFETY: integers only; the flag belongs to memory that is the guest's and ours, where nothing untrusted runs.
        let set = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, yes, 0, 0, 0) };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    may_be_read(1)?;
    let written = write();
    may_be_read(0)?;
    written
}

fn limit_processes(most: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: `limit` is valid for reading, and outlives the call.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) };
    if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Keeps this process on the first `most` of the processors that it may use.
fn pin(most: u32) -> io::Result<()> {
    let mut allowed = rustix::thread::sched_getaffinity(None)?;
    let mut kept = 0;
    for processor in 0..rustix::thread::CpuSet::MAX_CPU {
        if allowed.is_set(processor) {
            kept += 1;
            if kept > most {
                allowed.unset(processor);
            }
        }
    }
    rustix::thread::sched_setaffinity(None, &allowed).map_err(io::Error::from)
}

fn execute(strings: &Strings) -> Failed {
    let argv = null_terminated(&strings.argv);
    let env = null_terminated(&strings.env);
    let mut reason = libc::ENOENT;
    for program in &strings.programs {
        // SAFETY: NUL-terminated strings and null-terminated lists, which live until this process has executed.
        unsafe { libc::execve(program.as_ptr(), argv.as_ptr(), env.as_ptr()) };
        match errno() {
            libc::ENOENT | libc::ENOTDIR => {}
            other => reason = other,
        }
    }
    Failed::Step(Stage::Exec, reason)
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

/// One proof a line, its name and what was found separated by a tab.
fn write_proofs(proofs: &[Proof]) -> String {
    proofs.iter().map(|proof| format!("{}\t{}\n", proof.name, proof.found.replace(['\n', '\t'], " "))).collect()
}

/// The proofs in a guest's message. It was written before any untrusted instruction, and is read with care all the same.
pub fn read_proofs(text: &str) -> Vec<Proof> {
    text.lines()
        .take(64)
        .filter_map(|line| line.split_once('\t'))
        .map(|(name, found)| Proof { name: name.to_owned(), found: found.chars().take(512).collect() })
        .collect()
}
