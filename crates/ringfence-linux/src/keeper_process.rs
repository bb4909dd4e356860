//! The keeper itself: the code between `fork` and `execve`, and the loop of the process that stays.
//!
//! It runs in a copy of a process that may have many threads, so it must not allocate, lock, panic or call anything of
//! libc that does: only plain system calls on memory made before the fork. Keep it boring.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use libc::{c_char, c_int, c_void};

use crate::fence;
use crate::keeper::{Privileges, Rlimit, arrange_descriptors, own};
use crate::program_process::{MAX_SIGNAL, Step, check, errno, exit, reset_signal, start_program};
use crate::report::{Layer, Report, Stage, Usage};

/// Followed by a signal number: send it to the program's process group.
pub(crate) const COMMAND_SIGNAL: u8 = b'S';
/// Kill everything.
pub(crate) const COMMAND_KILL: u8 = b'K';
/// Execute the program.
pub(crate) const COMMAND_GO: u8 = b'G';

// Where the keeper puts its descriptors, so that one call can close all others.
pub(crate) const CONTROL: c_int = 3;
pub(crate) const CWD: c_int = 4;
/// Only where there is one.
pub(crate) const RULESET: c_int = 5;

/// Pointers and numbers that stay valid in the copied memory of the keeper.
pub(crate) struct Prepared<'a> {
    pub(crate) program: *const c_char,
    pub(crate) argv: *const *const c_char,
    pub(crate) env: *const *const c_char,
    /// What `env` was made from.
    pub(crate) listed: &'a [(&'a OsStr, &'a OsStr)],
    pub(crate) cwd: c_int,
    pub(crate) stdio: [c_int; 3],
    pub(crate) control: c_int,
    pub(crate) privileges: Privileges,
    pub(crate) rlimits: &'a [Rlimit],
    pub(crate) fence: Option<fence::Prepared<'a>>,
}

/// Forks the keeper; returns its process id and a descriptor for it.
pub(crate) fn fork(prepared: &Prepared<'_>) -> io::Result<(i32, OwnedFd)> {
    let masked = SignalMask::block_all()?;
    let forked = clone_process(CloneArguments::default());
    if let Ok(Forked::Child) = forked {
        keep(prepared);
    }
    masked.restore()?;
    match forked? {
        Forked::Parent(pid, pidfd) => Ok((pid, pidfd)),
        Forked::Child => exit(1),
    }
}

/// Which of the two processes goes on after a fork.
pub(crate) enum Forked {
    Child,
    /// The child's process id and a descriptor for it.
    Parent(i32, OwnedFd),
}

/// Forks, with what `arguments` ask for. The child has a copy of our memory, never the memory itself; where we may have
/// several threads, it must not allocate, lock or return to code that does. Its end sends no signal: an application that
/// reaps "any child" must not take its status from us.
pub(crate) fn clone_process(arguments: CloneArguments) -> io::Result<Forked> {
    let mut pidfd: c_int = -1;
    let mut arguments = CloneArguments {
        flags: (arguments.flags | libc::CLONE_PIDFD as u64) & !(libc::CLONE_VM as u64),
        pidfd: std::ptr::from_mut(&mut pidfd).expose_provenance() as u64,
        ..arguments
    };
    // SAFETY: without CLONE_VM this is a fork: the child gets a copy of our memory, and `arguments` and `pidfd` outlive
    // the call. What the child may do is for the callers to keep to.
    let mut pid =
        unsafe { libc::syscall(libc::SYS_clone3, std::ptr::from_mut(&mut arguments), size_of::<CloneArguments>()) };
    // The filter of a container engine lets nobody use a call whose flags it cannot read, and says that there is none. The
    // older call would pass flags over that it does not know, such as the control group to be born in.
    if pid < 0 && errno() == libc::ENOSYS && arguments.flags <= u64::from(u32::MAX) {
        // SAFETY: a fork as above. It has no stack of its own; the third argument, the same everywhere, is where the kernel
        // writes the descriptor of the process. What the last two are for is not asked.
        pid = unsafe {
            let none = 0usize;
            libc::syscall(libc::SYS_clone, arguments.flags, none, std::ptr::from_mut(&mut pidfd), none, none)
        };
    }
    match i32::try_from(pid) {
        Ok(0) => Ok(Forked::Child),
        Ok(pid @ 1..) => Ok(Forked::Parent(pid, own(pidfd))),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits for the keeper's end, at most `limit`.
pub(crate) fn reap(pidfd: BorrowedFd<'_>, limit: Duration) -> bool {
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let mut poll = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: `poll` is one valid pollfd, which outlives the call.
        let ready = unsafe { libc::poll(&raw mut poll, 1, c_int::try_from(left.as_millis()).unwrap_or(c_int::MAX)) };
        if ready == 0 || (ready < 0 && io::Error::last_os_error().kind() != io::ErrorKind::Interrupted) {
            return false;
        }
        // SAFETY: an all-zero siginfo_t is a valid value for the kernel to overwrite.
        let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
        // `__WALL`, because the keeper's end sends no signal and plain waiting passes such children over.
        // SAFETY: `info` is valid for writing; the other arguments are integers.
        let waited = unsafe {
            libc::waitid(
                libc::P_PIDFD,
                pidfd.as_raw_fd().cast_unsigned(),
                &raw mut info,
                libc::WEXITED | libc::WNOHANG | libc::__WALL,
            )
        };
        // ECHILD: somebody else in this process reaped it.
        if waited == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD) {
            return true;
        }
    }
}

/// Kills the process that `pidfd` names, if it is still there.
pub(crate) fn kill_pidfd(pidfd: BorrowedFd<'_>) {
    // SAFETY: integers and a null pointer, which the call documents as "as kill would". A failure means that the
    // process is gone, which is what was wanted.
    unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), libc::SIGKILL, std::ptr::null::<c_void>(), 0);
    }
}

/// `struct clone_args` of the kernel.
#[repr(C)]
#[derive(Default)]
pub(crate) struct CloneArguments {
    pub(crate) flags: u64,
    pub(crate) pidfd: u64,
    pub(crate) child_tid: u64,
    pub(crate) parent_tid: u64,
    pub(crate) exit_signal: u64,
    pub(crate) stack: u64,
    pub(crate) stack_size: u64,
    pub(crate) tls: u64,
    pub(crate) set_tid: u64,
    pub(crate) set_tid_size: u64,
    pub(crate) cgroup: u64,
}

/// All signals blocked: a handler of the supervisor must never run in the keeper, where it would act on shared pipes.
pub(crate) struct SignalMask {
    before: libc::sigset_t,
}

impl SignalMask {
    pub(crate) fn block_all() -> io::Result<Self> {
        // SAFETY: an all-zero sigset_t is a valid value; `sigfillset` overwrites it.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        let mut before = all;
        // SAFETY: `all` is valid for writing.
        unsafe { libc::sigfillset(&raw mut all) };
        // SAFETY: both sets are valid, and outlive the call.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        Ok(Self { before })
    }

    pub(crate) fn restore(&self) -> io::Result<()> {
        // SAFETY: `before` was filled by `pthread_sigmask`.
        let failed = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
        if failed != 0 {
            return Err(io::Error::from_raw_os_error(failed));
        }
        Ok(())
    }
}

/// The keeper's whole life.
fn keep(prepared: &Prepared<'_>) -> ! {
    let mut control = prepared.control;
    match set_up(prepared, &mut control) {
        Ok((signals, program)) => {
            send(control, &Report::Started { pid: program });
            supervise(signals, program)
        }
        Err((stage, errno)) => {
            send(control, &Report::Failed { stage, errno });
            exit(1)
        }
    }
}

fn set_up(prepared: &Prepared<'_>, control: &mut c_int) -> Step<(c_int, c_int)> {
    let keeper = |result: c_int| check(result, Stage::Keeper);
    // SAFETY: every call below takes integers only, and this process has one thread.
    unsafe {
        // A group of its own, so that a signal to ours does not reach it. No session of its own: that would also be a
        // scheduling group of its own, which waits for its turn on a busy machine before it can start anything.
        keeper(libc::setpgid(0, 0))?;
        keeper(libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))?;
        // Nobody of the same user may trace the keeper or read its memory, which is a copy of the supervisor's.
        keeper(libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0))?;
    }
    let stdio = prepared.stdio;
    match &prepared.fence {
        None => arrange_descriptors([stdio[0], stdio[1], stdio[2], prepared.control, prepared.cwd])?,
        Some(fence) => {
            arrange_descriptors([stdio[0], stdio[1], stdio[2], prepared.control, prepared.cwd, fence.ruleset])?;
        }
    }
    *control = CONTROL;
    let signals = child_signals()?;
    wait_for_go();
    let program = start_program(prepared)?;
    let ruleset = prepared.fence.map(|_| RULESET);
    for fd in [0, 1, 2, CWD].into_iter().chain(ruleset) {
        // SAFETY: closes descriptors of this process alone. The program has its own; ours would hide the pipes' ends.
        unsafe { libc::close(fd) };
    }
    Ok((signals, program))
}

/// Returns when the program may be executed; ends the keeper when it may not, or when nobody is there to say so.
fn wait_for_go() {
    let mut order = [0u8; 2];
    loop {
        // SAFETY: `order` is valid for writing its length. The keeper's end of the socket blocks.
        let received = unsafe { libc::recv(CONTROL, order.as_mut_ptr().cast::<c_void>(), order.len(), 0) };
        match (received, order) {
            (1, [COMMAND_GO, _]) => return,
            (-1, _) if errno() == libc::EINTR => {}
            _ => exit(0),
        }
    }
}

/// A descriptor that becomes readable when a child ends. All signals are blocked already.
pub(crate) fn child_signals() -> Step<c_int> {
    // A parent may have left it ignored, and then the kernel would reap the program without telling us.
    reset_signal(libc::SIGCHLD)?;
    // SAFETY: an all-zero sigset_t is valid; `sigemptyset` overwrites it.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for writing, and outlives the calls.
    unsafe {
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        check(libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK), Stage::Keeper)
    }
}

/// Waits for the program's end, an order, or the supervisor's death; leaves nothing alive.
fn supervise(signals: c_int, program: c_int) -> ! {
    loop {
        if let Some(report) = reap_children(program) {
            send(CONTROL, &report);
            break;
        }
        let (ordered, _) = wait_for(signals, -1);
        if ordered {
            match receive_order() {
                Order::Signal(signal) => {
                    // SAFETY: integers only. The program leads its own group; until it is reaped, which only this
                    // loop does, the number cannot belong to anybody else.
                    unsafe { libc::kill(-program, signal) };
                }
                // After its death the program is reaped in `kill_everything`, with its own report.
                Order::Kill => break,
                Order::Nothing => {}
            }
        }
    }
    kill_everything(signals, program);
    send(CONTROL, &Report::Gone { usage: usage_of_children(), layer: Layer::Unchanged });
    exit(0)
}

enum Order {
    Signal(c_int),
    Kill,
    Nothing,
}

fn receive_order() -> Order {
    let mut order = [0u8; 2];
    // SAFETY: `order` is valid for writing two bytes.
    let received = unsafe { libc::recv(CONTROL, order.as_mut_ptr().cast::<c_void>(), order.len(), libc::MSG_DONTWAIT) };
    match (received, order) {
        (2, [COMMAND_SIGNAL, signal]) if (1..=MAX_SIGNAL).contains(&c_int::from(signal)) => {
            Order::Signal(c_int::from(signal))
        }
        (-1, _) if errno() == libc::EAGAIN || errno() == libc::EINTR => Order::Nothing,
        // An end of file, an order to kill, an error, anything unknown: each means that nothing may stay alive.
        _ => Order::Kill,
    }
}

/// Kills until there is no child left. Orphans of those who die become our children, so this ends with an empty tree.
fn kill_everything(signals: c_int, program: c_int) {
    // A whole group at once: a fork in it cannot slip through.
    // SAFETY: integers only. At worst the group is gone already; its number is not reused while a member lives.
    unsafe { libc::kill(-program, libc::SIGKILL) };
    loop {
        crate::tree::for_each_own_child(|pid| {
            // SAFETY: integers only. `pid` is a child that only we can reap, so its number is its own. Its group is not
            // ours or our supervisor's: the program began in a session of its own, and no group spans two.
            unsafe {
                let group = libc::getpgid(pid);
                if group > 1 && group != libc::getpgrp() {
                    libc::kill(-group, libc::SIGKILL);
                }
                libc::kill(pid, libc::SIGKILL);
            }
        });
        if let Some(report) = reap_children(program) {
            send(CONTROL, &report);
        }
        if has_no_child() {
            return;
        }
        wait_for(signals, 20);
    }
}

pub(crate) fn has_no_child() -> bool {
    // SAFETY: null pointers are allowed; WNOWAIT leaves a child to be reaped.
    let left =
        unsafe { libc::waitid(libc::P_ALL, 0, std::ptr::null_mut(), libc::WEXITED | libc::WNOHANG | libc::WNOWAIT) };
    left < 0 && errno() == libc::ECHILD
}

/// Reaps all that have ended; the program's own end as a report.
fn reap_children(program: c_int) -> Option<Report> {
    let mut ended = None;
    while let Some((pid, wait_status, usage)) = reap_one() {
        if pid == program {
            // What it started and did not wait for is ours now.
            let mut left = 0u32;
            crate::tree::for_each_own_child(|_| left = left.saturating_add(1));
            ended = Some(Report::Ended { wait_status, usage, left });
        }
    }
    ended
}

/// Reaps a child that has ended, if there is one: its number, its status, and what it used.
pub(crate) fn reap_one() -> Option<(c_int, c_int, Usage)> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is a valid value for the kernel to overwrite.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for writing.
    let pid = unsafe { libc::wait4(-1, &raw mut status, libc::WNOHANG, &raw mut usage) };
    (pid > 0).then(|| (pid, status, convert_usage(&usage)))
}

/// Waits for a child's end or an order; says which came. A time limit below zero means none.
pub(crate) fn wait_for(signals: c_int, milliseconds: c_int) -> (bool, bool) {
    let mut polls = [
        libc::pollfd { fd: CONTROL, events: libc::POLLIN, revents: 0 },
        libc::pollfd { fd: signals, events: libc::POLLIN, revents: 0 },
    ];
    // SAFETY: `polls` holds two valid entries.
    unsafe { libc::poll(polls.as_mut_ptr(), 2, milliseconds) };
    if polls[1].revents != 0 {
        drain(signals);
    }
    (polls[0].revents != 0, polls[1].revents != 0)
}

/// Waits for a child's end alone.
pub(crate) fn wait_for_child(signals: c_int, milliseconds: c_int) {
    let mut poll = libc::pollfd { fd: signals, events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one valid entry.
    unsafe { libc::poll(&raw mut poll, 1, milliseconds) };
    if poll.revents != 0 {
        drain(signals);
    }
}

/// Takes one notice of a child's end out of `signals`.
pub(crate) fn drain(signals: c_int) {
    let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
    // SAFETY: `info` is valid for writing its length. The content is not needed: `wait4` says who ended.
    unsafe { libc::read(signals, info.as_mut_ptr().cast::<c_void>(), info.len()) };
}

pub(crate) fn usage_of_children() -> Usage {
    // SAFETY: an all-zero rusage is a valid value for the kernel to overwrite.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid for writing.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    convert_usage(&usage)
}

fn convert_usage(usage: &libc::rusage) -> Usage {
    let microseconds = |time: libc::timeval| {
        time.tv_sec.cast_unsigned().saturating_mul(1_000_000).saturating_add(time.tv_usec.cast_unsigned())
    };
    Usage {
        user_us: microseconds(usage.ru_utime),
        system_us: microseconds(usage.ru_stime),
        max_resident_bytes: usage.ru_maxrss.cast_unsigned().saturating_mul(1024),
        read_bytes: usage.ru_inblock.cast_unsigned().saturating_mul(512),
        written_bytes: usage.ru_oublock.cast_unsigned().saturating_mul(512),
    }
}

pub(crate) fn send(control: c_int, report: &Report) {
    let bytes = report.encode();
    // SAFETY: `bytes` is valid for reading its length. A supervisor that is gone cannot be told; the next wait sees the
    // closed socket and kills.
    unsafe { libc::send(control, bytes.as_ptr().cast::<c_void>(), bytes.len(), libc::MSG_NOSIGNAL) };
}
