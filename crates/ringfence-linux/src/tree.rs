//! The processes below one process, as `/proc` shows them.
//!
//! A sample is a look at something that moves: good for watching and for cleaning up, never proof that nothing was
//! missed. The keeper's own loop, which ends only when it has no child, is that proof.

use std::fs;
use std::io::Read;

/// What a look at a tree found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    /// Processes and threads.
    pub tasks: u64,
    /// Resident memory of all of them, shared pages counted for each.
    pub resident_bytes: u64,
    /// Whether the look stopped at its cap.
    pub capped: bool,
}

/// More than this many processes are not looked at: a look must not take longer than the time between two.
const MOST_PROCESSES: usize = 20_000;
/// The list of one thread's children that is read at most; about 20,000 process ids.
const MOST_CHILDREN_BYTES: u64 = 256 * 1024;

/// Looks at everything below `root`, without `root` itself.
pub fn sample(root: i32) -> Sample {
    sample_of(&descendants(root))
}

/// Looks at these processes.
pub(crate) fn sample_of(processes: &[i32]) -> Sample {
    let mut found = Sample::default();
    let page = rustix::param::page_size() as u64;
    found.capped = processes.len() >= MOST_PROCESSES;
    for &pid in processes {
        found.tasks += threads(pid).len().max(1) as u64;
        found.resident_bytes += resident_pages(pid).saturating_mul(page);
    }
    // Who cannot open a file any more sees nothing, and must not take that for little.
    found.capped |= is_blind();
    found
}

fn is_blind() -> bool {
    match fs::File::open("/proc/self/stat") {
        Ok(_) => false,
        Err(error) => matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)),
    }
}

/// Kills everything below `root`, stopping it first so that it cannot fork away from under us.
pub fn kill_below(root: i32) {
    for signal in [rustix::process::Signal::STOP, rustix::process::Signal::KILL] {
        for pid in descendants(root) {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                // A failure means that it has ended, or that it is not ours to signal: nothing else can be done here.
                rustix::process::kill_process(pid, signal).ok();
            }
        }
    }
}

/// Whether this kernel lists a process's children, which finding orphans rests on.
pub fn children_are_listed() -> bool {
    // Any other failure, such as too many open files, says nothing about the kernel.
    !matches!(fs::File::open("/proc/thread-self/children"), Err(error) if error.kind() == std::io::ErrorKind::NotFound)
}

/// The process ids below `root`, parents before children.
pub fn descendants(root: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut next = 0;
    let mut parent = root;
    loop {
        found.extend(children_of(parent));
        if found.len() >= MOST_PROCESSES {
            found.truncate(MOST_PROCESSES);
            return found;
        }
        let Some(pid) = found.get(next) else { return found };
        parent = *pid;
        next += 1;
    }
}

/// The children of all threads of `pid`.
pub fn children_of(pid: i32) -> Vec<i32> {
    threads(pid).into_iter().flat_map(|thread| children(pid, thread)).take(MOST_PROCESSES).collect()
}

fn threads(pid: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(MOST_PROCESSES).collect()
}

fn children(pid: i32, thread: i32) -> Vec<i32> {
    let mut text = String::new();
    let Ok(file) = fs::File::open(format!("/proc/{pid}/task/{thread}/children")) else { return Vec::new() };
    if file.take(MOST_CHILDREN_BYTES).read_to_string(&mut text).is_err() {
        return Vec::new();
    }
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn resident_pages(pid: i32) -> u64 {
    // "size resident shared …", in pages; absent once the process has ended.
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/statm")) else { return 0 };
    text.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0)
}

/// Everybody that `/proc` shows but process 1: for process 1, of a namespace of its own.
pub(crate) fn everybody_else() -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| *pid > 1).take(MOST_PROCESSES).collect()
}

/// The process ids in the session that `leader` leads, of all that `/proc` shows and that have not ended.
pub(crate) fn members_of_session(leader: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.take(MOST_PROCESSES).filter(|pid| session_of(*pid) == Some(leader) && !is_zombie(*pid)).collect()
}

fn is_zombie(pid: i32) -> bool {
    let Ok(text) = fs::read(format!("/proc/{pid}/stat")) else { return true };
    // After the name in brackets, which may hold anything.
    let after = text.iter().rposition(|byte| *byte == b')').and_then(|at| text.get(at + 2));
    matches!(after, Some(b'Z' | b'X') | None)
}

fn session_of(pid: i32) -> Option<i32> {
    // SAFETY: an integer only. Zero for a session that was begun outside of our namespace.
    Some(unsafe { libc::getsid(pid) }).filter(|session| *session > 0)
}

/// Calls `act` for each child of the calling process, which has one thread. Allocates nothing: the keeper uses it.
pub(crate) fn for_each_own_child(mut act: impl FnMut(libc::c_int)) {
    // SAFETY: the path is a NUL-terminated constant.
    let fd = unsafe { libc::open(c"/proc/thread-self/children".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return;
    }
    let mut buffer = [0u8; 4096];
    let mut pid: libc::c_int = 0;
    loop {
        // SAFETY: `buffer` is valid for writing its length.
        let read = unsafe { libc::read(fd, buffer.as_mut_ptr().cast::<libc::c_void>(), buffer.len()) };
        let Ok(read @ 1..) = usize::try_from(read) else { break };
        for byte in buffer.iter().take(read) {
            match byte {
                b'0'..=b'9' => pid = pid.wrapping_mul(10).wrapping_add(libc::c_int::from(byte - b'0')),
                _ => {
                    if pid > 1 {
                        act(pid);
                    }
                    pid = 0;
                }
            }
        }
    }
    if pid > 1 {
        act(pid);
    }
    // SAFETY: `fd` was opened above and is used by nothing else.
    unsafe { libc::close(fd) };
}
