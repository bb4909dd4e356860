//! What a sandbox may use at most, in the units that the kernel keeps.

use std::io;

/// The period over which the kernel gives out processor time.
pub(super) const PERIOD_US: u64 = 100_000;
/// The least that the kernel accepts in a period.
const LEAST_QUOTA_US: u64 = 1_000;

/// What a sandbox may use at most, all its processes together. Nothing means that this is not limited here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// Memory in bytes, swap counted.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Processor time, in thousandths of one processor.
    pub cpu_millis: Option<u32>,
}

/// A memory limit as the kernel keeps it: whole pages, rounded down.
pub(super) fn whole_pages(bytes: u64) -> io::Result<u64> {
    let page = rustix::param::page_size() as u64;
    match bytes / page * page {
        0 => Err(invalid(format!("a memory limit of {bytes} bytes is less than a page; give at least {page}"))),
        whole => Ok(whole),
    }
}

/// The processor time in one period.
pub(super) fn quota_us(millis: u32) -> io::Result<u64> {
    match u64::from(millis) * PERIOD_US / 1000 {
        quota if quota < LEAST_QUOTA_US => {
            Err(invalid(format!("{millis} thousandths of a processor are less than the kernel can give; at least 10")))
        }
        quota => Ok(quota),
    }
}

/// Fails where the machine swaps: for a kernel that does not count swap.
pub(super) fn require_no_swap() -> io::Result<()> {
    if is_swap_on(&crate::kernel_file::read("/proc/swaps")?) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this machine swaps, and the kernel does not count swap",
        ));
    }
    Ok(())
}

/// Whether `/proc/swaps` lists anything after its heading.
pub(super) fn is_swap_on(swaps: &str) -> bool {
    swaps.lines().count() > 1
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_limits_round_down_and_never_to_nothing() {
        let page = rustix::param::page_size() as u64;
        assert_eq!(whole_pages(3 * page + 1).unwrap(), 3 * page);
        assert_eq!(whole_pages(page - 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(whole_pages(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(quota_us(1500).unwrap(), 150_000);
        assert_eq!(quota_us(10).unwrap(), 1_000);
        assert_eq!(quota_us(9).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(quota_us(0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
