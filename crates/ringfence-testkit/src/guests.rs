//! The guests of native walls that this process's launchers made, as the host sees them.

use std::fs;
use std::path::PathBuf;

/// The children of a process, by its first thread.
pub fn children(of: u32) -> Vec<u32> {
    numbers(&format!("/proc/{of}/task/{of}/children").into())
}

fn numbers(file: &PathBuf) -> Vec<u32> {
    fs::read_to_string(file).unwrap_or_default().split_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// Of the children of this process, by all of its threads, the children that process 1 of a wall is.
pub fn guests() -> Vec<u32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let ours = threads.flat_map(|thread| numbers(&thread.path().join("children")));
    ours.flat_map(children).filter(|pid| lives(*pid)).collect()
}

/// Whether it is process 1 of a wall, and not only what its launcher has not yet put away of one.
pub fn lives(process: u32) -> bool {
    has(process, "Name:\tringfence-guest") && !has(process, "State:\tZ (zombie)")
}

/// Whether the kernel says `line` of its status.
pub fn has(process: u32, line: &str) -> bool {
    fs::read_to_string(format!("/proc/{process}/status")).is_ok_and(|status| status.lines().any(|its| its == line))
}
