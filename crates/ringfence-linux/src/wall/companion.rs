//! A short-lived process that shares our memory and works beside us: cheaper than a copy of all page tables, and nothing of
//! ours has to be copied when it is next written.

use std::io;
use std::mem::{ManuallyDrop, MaybeUninit};

use libc::{c_int, c_void};

use crate::keeper_process::SignalMask;

const STACK: usize = 32 * 1024;

/// A process that runs one function on a stack of its own. It is waited for, never forgotten: see [`Companion::wait`].
pub(super) struct Companion {
    pid: c_int,
    /// Given back only when the process is gone.
    stack: ManuallyDrop<Vec<MaybeUninit<u128>>>,
}

impl Companion {
    /// Starts `run` in a process of its own, with `flags` of `clone` beside `CLONE_VM`.
    ///
    /// # Safety
    ///
    /// `run` must make plain system calls only, without libc, whose `errno` is shared: no allocation, lock or panic. What
    /// `argument` points to must live, and be shared in a way that two threads may, until [`Companion::wait`] returned.
    pub(super) unsafe fn start(
        run: extern "C" fn(*mut c_void) -> c_int,
        argument: *mut c_void,
        flags: c_int,
    ) -> io::Result<Self> {
        let mut stack = ManuallyDrop::new(Vec::<MaybeUninit<u128>>::with_capacity(STACK / size_of::<u128>()));
        // A handler of ours must not run there, on memory that is shared.
        let masked = SignalMask::block_all()?;
        // SAFETY: the stack is ours, aligned and large enough for a few system calls; the pointer is one past its end,
        // because stacks grow down. It is not given back before the process is gone. The rest is the caller's promise.
        let pid = unsafe {
            let end = stack.as_mut_ptr().add(stack.capacity()).cast::<c_void>();
            libc::clone(run, end, libc::CLONE_VM | flags, argument)
        };
        let started = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { pid, stack }) };
        masked.restore()?;
        started
    }

    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for its end, and says by which status it went.
    pub(super) fn wait(self) -> io::Result<c_int> {
        let status = self.end()?;
        if libc::WIFEXITED(status) { Ok(libc::WEXITSTATUS(status)) } else { Err(io::Error::other("it was killed")) }
    }

    /// Kills it, and does not wait.
    pub(super) fn kill(&self) -> io::Result<()> {
        // SAFETY: no memory is involved. Nobody else waits for it, so the number is still its own.
        if unsafe { libc::kill(self.pid, libc::SIGKILL) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Puts it away when it is gone; gives it back when it is not yet. Where it cannot be waited for, its stack is not given back.
    pub(super) fn put_away(mut self) -> Option<Self> {
        let mut status = 0;
        // SAFETY: `status` is valid for writing. `__WALL`, because its end sends no signal.
        match unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL | libc::WNOHANG) } {
            0 => Some(self),
            gone if gone > 0 => {
                // SAFETY: the process that ran on it is gone, and the value is not used again.
                unsafe { ManuallyDrop::drop(&mut self.stack) };
                None
            }
            _ => None,
        }
    }

    fn end(mut self) -> io::Result<c_int> {
        loop {
            let mut status = 0;
            // SAFETY: `status` is valid for writing. `__WALL`, because its end sends no signal.
            if unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } >= 0 {
                // SAFETY: the process that ran on it is gone, and the value is not used again.
                unsafe { ManuallyDrop::drop(&mut self.stack) };
                return Ok(status);
            }
            match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            }
        }
    }
}
