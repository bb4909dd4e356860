//! What is left when a program kills its own keeper: processes that this process adopts, where it asked to.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions};

use crate::tree;

static ADOPTS: AtomicBool = AtomicBool::new(false);
/// Children of ours that are no orphans.
static KEEPERS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
const ROUNDS: usize = 100;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(5);

fn keepers() -> MutexGuard<'static, BTreeSet<i32>> {
    KEEPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the calling process adopt the orphans of its descendants, so that it can kill what outlives a keeper.
/// It is process-wide, hence for a program that owns its process and starts no children of its own, not for a library
/// inside another one.
pub fn adopt_orphans() -> io::Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    ADOPTS.store(true, Ordering::Release);
    Ok(())
}

pub(crate) fn add_keeper(pid: i32) {
    keepers().insert(pid);
}

pub(crate) fn remove_keeper(pid: i32) {
    keepers().remove(&pid);
}

/// Kills what was adopted, and all below it; says whether nothing of it is left. True as well when nothing is adopted.
pub fn kill_adopted() -> bool {
    if !ADOPTS.load(Ordering::Acquire) {
        return true;
    }
    for _ in 0..ROUNDS {
        let known = keepers().clone();
        let adopted: Vec<i32> = tree::children_of(rustix::process::getpid().as_raw_nonzero().get())
            .into_iter()
            .filter(|pid| !known.contains(pid))
            .collect();
        if adopted.is_empty() {
            return true;
        }
        for pid in adopted {
            tree::kill_below(pid);
            if let Some(pid) = Pid::from_raw(pid) {
                // It may have ended by itself, or be reaped by the next round: either is what is wanted.
                rustix::process::kill_process(pid, Signal::KILL).ok();
                rustix::process::waitpid(Some(pid), WaitOptions::NOHANG).ok();
            }
        }
        std::thread::sleep(BETWEEN_ROUNDS);
    }
    false
}
