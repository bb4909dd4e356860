//! Clocks of its own for a program: how long the machine has been up is the host's affair.
//!
//! The time of day stays the host's: no namespace changes it.

use std::fs;
use std::io;
use std::path::Path;

/// The first kernel that lets a process which shares its parent's memory change its clocks when it executes, as ours does.
const SINCE: (u32, u32) = (6, 3);
/// Process 1 has begun a moment before; a time before zero would look like one far away.
const BEGIN: i64 = 1;

/// Lets the clocks of what this process starts from now on begin near zero. Where the kernel cannot, they stay the host's: no
/// guarantee rests on them. Needs the rights that process 1 of a new user namespace has.
pub(super) fn begin_near_zero() -> io::Result<()> {
    if !Path::new("/proc/self/ns/time").exists() || kernel() < SINCE {
        return Ok(());
    }
    // SAFETY: takes one integer; the flag concerns children only.
    if unsafe { libc::unshare(libc::CLONE_NEWTIME) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let (monotonic, boottime) = (back(libc::CLOCK_MONOTONIC)?, back(libc::CLOCK_BOOTTIME)?);
    let offsets = format!("monotonic {monotonic} 0\nboottime {boottime} 0\n");
    while_readable(|| fs::write("/proc/self/timens_offsets", offsets))
}

/// Writes a file of this process in `/proc`. Of a process that may not be read, such a file belongs to the host's root.
fn while_readable(write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let may_be_read = |yes: libc::c_ulong| {
        // SAFETY: integers only; the flag belongs to this process's memory, and nothing untrusted runs yet.
        let set = unsafe { libc::prctl(libc::PR_SET_DUMPABLE, yes, 0, 0, 0) };
        if set < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    may_be_read(1)?;
    let written = write();
    may_be_read(0)?;
    written
}

/// The seconds that bring `clock` back to its beginning.
fn back(clock: libc::clockid_t) -> io::Result<i64> {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is valid for writing.
    if unsafe { libc::clock_gettime(clock, &raw mut now) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((BEGIN - now.tv_sec).min(0))
}

/// The version of the kernel; zero when it does not say, which counts as too old.
fn kernel() -> (u32, u32) {
    version(&rustix::system::uname().release().to_string_lossy())
}

fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_does_not_say_its_version_counts_as_too_old() {
        assert_eq!(version("6.18.44-generic"), (6, 18));
        assert_eq!(version("5.15.0-101"), (5, 15));
        assert!(version("unknown") < SINCE && version("") < SINCE && version("6.x") < SINCE);
        assert!(version("6.10") > SINCE);
    }
}
