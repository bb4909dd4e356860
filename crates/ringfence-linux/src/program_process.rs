//! The program's own process, from its fork to `execve`: puts everything in force, or ends.
//!
//! The same rules as in [`crate::keeper_process`] hold: no allocation, no lock, no panic.

use std::mem::MaybeUninit;

use libc::{c_int, c_void};

use crate::fence;
use crate::keeper::{Privileges, Rlimit, RlimitKind};
use crate::keeper_process::{CONTROL, CWD, Prepared, RULESET};
use crate::report::Stage;

pub(crate) const MAX_SIGNAL: c_int = 64;
const PROGRAM_STACK: usize = 32 * 1024;
const SHARING_STACK: usize = 256 * 1024;

/// What a step brought, or which one failed and why.
pub(crate) type Step<T> = Result<T, (Stage, c_int)>;

/// What the program's process and the keeper share while the first one has not yet executed.
struct Start<'a> {
    prepared: &'a Prepared<'a>,
    failed: Option<(Stage, c_int)>,
}

/// Starts the program's process. It shares our memory until it executes, and we are stopped meanwhile: no page table is
/// copied, and its failure can simply be written down.
pub(crate) fn start_program(prepared: &Prepared<'_>) -> Step<c_int> {
    #[repr(align(16))]
    struct Stack(MaybeUninit<[u8; PROGRAM_STACK]>);
    // Not initialised: every page that is touched here is a page that must be copied.
    let mut stack = Stack(MaybeUninit::uninit());
    let mut start = Start { prepared, failed: None };
    // SAFETY: the stack is ours, aligned and large enough for `become_program`, which only makes system calls; the
    // pointer is one past its end, because stacks grow down. CLONE_VFORK keeps us stopped until the child has executed
    // or ended, so `stack` and `start` outlive its use of them and are never touched by two at once. Signals are
    // blocked in both, so no handler runs on the shared memory.
    let pid = unsafe {
        libc::clone(
            become_program,
            stack.0.as_mut_ptr().add(1).cast::<c_void>(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut start).cast::<c_void>(),
        )
    };
    check(pid, Stage::Fork)?;
    // SAFETY: `start` is a valid, initialised local. Volatile, because the compiler cannot see that another process
    // wrote it.
    match unsafe { std::ptr::read_volatile(&raw const start.failed) } {
        Some(failure) => Err(failure),
        None => Ok(pid),
    }
}

/// Runs in the program's process: puts everything in force, then executes.
extern "C" fn become_program(argument: *mut c_void) -> c_int {
    let start = argument.cast::<Start<'_>>();
    // SAFETY: the pointer is the `start` of `start_program`, which is stopped while we use it.
    let failure = enforce_and_execute(unsafe { (*start).prepared });
    // SAFETY: as above.
    unsafe { std::ptr::write_volatile(&raw mut (*start).failed, Some(failure)) };
    exit(127)
}

/// Returns only when a step failed.
fn enforce_and_execute(prepared: &Prepared<'_>) -> (Stage, c_int) {
    let steps = || -> Step<()> {
        // SAFETY: integers only; the session and the working directory are this process's own.
        unsafe {
            check(libc::setsid(), Stage::Session)?;
            check(libc::fchdir(CWD), Stage::WorkingDirectory)?;
        }
        if prepared.privileges == Privileges::NoNew {
            // SAFETY: integers only.
            check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, Stage::NoNewPrivileges)?;
        }
        if prepared.fence.is_some() {
            fence::restrict(RULESET)?;
        }
        close_from(CONTROL).map_err(|errno| (Stage::Descriptors, errno))?;
        for limit in prepared.rlimits {
            set_limit(limit)?;
        }
        reset_signals()?;
        match &prepared.fence {
            Some(fence) => fence::filter_and_prove(fence, prepared),
            None => Ok(()),
        }
    };
    if let Err(failure) = steps() {
        return failure;
    }
    // SAFETY: the three pointers were made before the fork from NUL-terminated strings and null-terminated lists that
    // live as long as the parent's `launch` call, of which we hold a copy.
    unsafe { libc::execve(prepared.program, prepared.argv, prepared.env) };
    (Stage::Exec, errno())
}

pub(crate) fn set_limit(limit: &Rlimit) -> Step<()> {
    let (_, hard) = read_limit(limit.kind).map_err(|errno| (Stage::Rlimit, errno))?;
    write_limit(limit.kind, limit.most.min(hard)).map_err(|errno| (Stage::Rlimit, errno))
}

fn resource(kind: RlimitKind) -> libc::__rlimit_resource_t {
    match kind {
        RlimitKind::Data => libc::RLIMIT_DATA,
        RlimitKind::FileSize => libc::RLIMIT_FSIZE,
        RlimitKind::OpenFiles => libc::RLIMIT_NOFILE,
        RlimitKind::Core => libc::RLIMIT_CORE,
    }
}

/// What is found when a limit is looked at.
pub(crate) enum InForce {
    /// This, soft and hard, which could not be raised.
    Kept(u64),
    /// Something else, soft and hard.
    Otherwise(u64, u64),
    /// It could be raised, or the kernel refused it for another reason than that we may not.
    Raised(c_int),
}

/// Reads what is in force of `limit` for this process, and tries to raise it. What a success would change ends with this
/// process, which then does not become the program.
pub(crate) fn look_at_limit(limit: &Rlimit) -> Result<InForce, c_int> {
    let (soft, hard) = read_limit(limit.kind)?;
    if soft != hard || hard > limit.most {
        return Ok(InForce::Otherwise(soft, hard));
    }
    Ok(match write_limit(limit.kind, hard.saturating_add(1)) {
        Err(libc::EPERM) => InForce::Kept(hard),
        Err(errno) => InForce::Raised(errno),
        Ok(()) => InForce::Raised(0),
    })
}

/// A limit of this process, soft and hard.
pub(crate) fn read_limit(kind: RlimitKind) -> Result<(u64, u64), c_int> {
    let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `now` is valid for writing, and outlives the call.
    let got = unsafe { libc::getrlimit(resource(kind), &raw mut now) };
    if got < 0 { Err(errno()) } else { Ok((now.rlim_cur, now.rlim_max)) }
}

/// Sets a limit of this process, soft and hard.
pub(crate) fn write_limit(kind: RlimitKind, most: u64) -> Result<(), c_int> {
    let wanted = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: `wanted` is valid for reading, and outlives the call. The limit is this process's own.
    let set = unsafe { libc::setrlimit(resource(kind), &raw const wanted) };
    if set < 0 { Err(errno()) } else { Ok(()) }
}

/// Gives one signal its default action back.
pub(crate) fn reset_signal(signal: c_int) -> Step<()> {
    // The kernel's own structure, all zero: the default action, no flags, an empty mask. libc's wrapper would refuse
    // signals 32 and 33, which a parent may have left ignored.
    let default = [0u64; 4];
    // SAFETY: `default` is as large as the kernel's structure and valid for reading. Without CLONE_SIGHAND the table is
    // this process's own.
    let reset = unsafe {
        libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), std::ptr::null_mut::<c_void>(), 8usize)
    };
    if reset < 0 { Err((Stage::Signals, errno())) } else { Ok(()) }
}

/// Ignored signals stay ignored across `execve`, and blocked ones blocked; a program expects neither.
pub(crate) fn reset_signals() -> Step<()> {
    for signal in (1..=MAX_SIGNAL).filter(|signal| ![libc::SIGKILL, libc::SIGSTOP].contains(signal)) {
        reset_signal(signal)?;
    }
    // SAFETY: an all-zero sigset_t is valid; `sigemptyset` overwrites it.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `none` is valid, and outlives both calls.
    unsafe {
        libc::sigemptyset(&raw mut none);
        check(libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut()), Stage::Signals)?;
    }
    Ok(())
}

/// Runs `child` in a new process that shares our memory, while we are stopped until it has executed or ended. Returns
/// its process id. The caller has one thread, and `child` returns only when it could not execute.
pub(crate) fn run_sharing_memory(child: &mut dyn FnMut()) -> std::io::Result<c_int> {
    extern "C" fn trampoline(argument: *mut c_void) -> c_int {
        let child = argument.cast::<&mut dyn FnMut()>();
        // SAFETY: the pointer is to the `child` below, whose owner is stopped while we use it.
        unsafe { (*child)() };
        exit(127)
    }
    let mut stack: Vec<MaybeUninit<u128>> = Vec::with_capacity(SHARING_STACK / size_of::<u128>());
    let mut child = child;
    // SAFETY: the stack is ours, aligned and large enough for code that goes no deeper than reading a few files; the
    // pointer is one past its end, because stacks grow down. CLONE_VFORK keeps us stopped until the child has executed
    // or ended, so `stack` and `child` outlive its use of them. We have one thread and signals are blocked, so nobody
    // else runs on the shared memory.
    let pid = unsafe {
        libc::clone(
            trampoline,
            stack.as_mut_ptr().add(stack.capacity()).cast::<c_void>(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw mut child).cast::<c_void>(),
        )
    };
    if pid < 0 { Err(std::io::Error::last_os_error()) } else { Ok(pid) }
}

/// Lets every descriptor from `first` on close when the program is executed.
pub(crate) fn close_from_on_exec(first: c_int) -> Result<(), c_int> {
    // SAFETY: three integers; only flags of this process's own table change.
    let set =
        unsafe { libc::syscall(libc::SYS_close_range, first.cast_unsigned(), u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if set < 0 { Err(errno()) } else { Ok(()) }
}

pub(crate) fn close_from(first: c_int) -> Result<(), c_int> {
    close_between(first, c_int::MAX)
}

/// Closes the descriptors from `first` to `last`; none where that is before the first.
pub(crate) fn close_between(first: c_int, last: c_int) -> Result<(), c_int> {
    if last < first {
        return Ok(());
    }
    // SAFETY: `close_range` takes three integers and reads no memory of ours. It closes descriptors that Rust may own;
    // the table is a copy in a process that never runs an owner's destructor.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first.cast_unsigned(), last.cast_unsigned(), 0u32) };
    if closed < 0 { Err(errno()) } else { Ok(()) }
}

pub(crate) fn check(result: c_int, stage: Stage) -> Step<c_int> {
    if result < 0 { Err((stage, errno())) } else { Ok(result) }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: `__errno_location` returns a valid pointer for the calling thread.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn exit(code: c_int) -> ! {
    // SAFETY: ends this process alone, without running destructors of memory that is a copy of another's.
    unsafe { libc::_exit(code) }
}
