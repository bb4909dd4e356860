//! Giving up capabilities for good, and reading from the kernel what is left.
//!
//! Nothing here is best effort: a set that is not empty afterwards is an error. The one exception is the bounding set
//! of a caller who was never allowed to change it, and the answer says so.

use std::io;

use libc::{c_int, c_ulong};

use crate::kernel_file;

/// More than the kernel writes for a thread with ordinary groups; a longer file is not read.
const STATUS_LIMIT: u64 = 256 * 1024;
/// `_LINUX_CAPABILITY_VERSION_3`: two words for each set.
const CAPABILITY_VERSION: u32 = 0x2008_0522;
/// Capabilities are numbered below this: the sets have 64 bits.
const CAPABILITY_BITS: c_ulong = 64;
const CAP_SETPCAP: u32 = 8;

/// No rights by user id 0, none kept over a change of it, none raised again; and none of this can be taken back.
const SECURE_BITS: c_int = libc::SECBIT_NOROOT
    | libc::SECBIT_NOROOT_LOCKED
    | libc::SECBIT_NO_SETUID_FIXUP
    | libc::SECBIT_NO_SETUID_FIXUP_LOCKED
    | libc::SECBIT_KEEP_CAPS_LOCKED
    | libc::SECBIT_NO_CAP_AMBIENT_RAISE
    | libc::SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;

/// What became of the bounding set, the only one that a process without privileges cannot empty.
#[must_use = "a bounding set that was kept is harmless only under no_new_privs"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounding {
    /// It is empty, and the secure bits are locked: no execution can give a capability.
    Empty,
    /// The caller has no `CAP_SETPCAP`, so the set and the secure bits stayed. With `no_new_privs` a file still gives
    /// no capability; without it, a setuid file would.
    Kept {
        /// The capabilities in it, as a bit set.
        capabilities: u64,
    },
}

/// Whether a kernel must know of ambient capabilities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ambient {
    /// Every Linux that we run on does.
    Known,
    /// One that is not Linux may not have them, and then says that the request means nothing.
    PerhapsUnknown,
}

/// Empties all capability sets of the calling thread and locks the ways back.
pub fn drop_all() -> io::Result<Bounding> {
    drop_all_with(Ambient::Known)
}

/// Likewise, on a kernel that may not know of ambient capabilities.
pub(crate) fn drop_all_with(ambient: Ambient) -> io::Result<Bounding> {
    let before = capabilities()?;
    let bounding = if before.effective & (1 << CAP_SETPCAP) == 0 {
        match bounding_set()? {
            0 => Bounding::Empty,
            capabilities => Bounding::Kept { capabilities },
        }
    } else {
        prctl(libc::PR_SET_SECUREBITS, [SECURE_BITS as c_ulong, 0, 0, 0])?;
        empty_bounding_set()?;
        Bounding::Empty
    };
    match prctl(libc::PR_CAP_AMBIENT, [libc::PR_CAP_AMBIENT_CLEAR_ALL as c_ulong, 0, 0, 0]) {
        Err(error) if ambient == Ambient::PerhapsUnknown && error.raw_os_error() == Some(libc::EINVAL) => {}
        cleared => drop(cleared?),
    }
    set_no_capabilities()?;
    match capabilities()? {
        Sets { effective: 0, permitted: 0, inheritable: 0 } => Ok(bounding),
        _ => Err(io::Error::other("the kernel accepted the empty capability sets but did not empty them")),
    }
}

/// Makes the calling thread, and all that it starts, unable to gain privileges by executing a file.
pub fn set_no_new_privileges() -> io::Result<()> {
    prctl(libc::PR_SET_NO_NEW_PRIVS, [1, 0, 0, 0]).map(drop)
}

/// Makes the process unreadable to others of its user: no trace, no memory, no descriptors by `/proc`, no core file.
/// It ends with the next `execve`.
pub fn set_not_dumpable() -> io::Result<()> {
    prctl(libc::PR_SET_DUMPABLE, [0, 0, 0, 0]).map(drop)
}

/// What the kernel says about the rights of the calling thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// Real, effective, saved and file-system user ids.
    pub uids: [u32; 4],
    /// Real, effective, saved and file-system group ids.
    pub gids: [u32; 4],
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Inheritable capabilities.
    pub cap_inh: u64,
    /// Permitted capabilities.
    pub cap_prm: u64,
    /// Effective capabilities.
    pub cap_eff: u64,
    /// The bounding set.
    pub cap_bnd: u64,
    /// Ambient capabilities.
    pub cap_amb: u64,
    /// Whether no file can give privileges.
    pub no_new_privs: bool,
    /// 0 none, 1 strict, 2 filter.
    pub seccomp: u32,
    /// How many filters are in force; nothing before Linux 5.9.
    pub seccomp_filters: Option<u32>,
}

/// Reads `/proc/thread-self/status`.
pub fn read_status() -> io::Result<Status> {
    let text = kernel_file::read_open(std::fs::File::open("/proc/thread-self/status")?, STATUS_LIMIT)?;
    parse_status(&text).ok_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidData, "/proc/thread-self/status lacks a field or holds an unknown value")
    })
}

/// The same as the kernel answers system calls, for kernels whose `/proc` does not tell all of it.
pub(crate) fn ask_status() -> io::Result<Status> {
    let sets = capabilities()?;
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let (effective_uid, effective_gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Ok(Status {
        uids: [uid, effective_uid, effective_uid, effective_uid],
        gids: [gid, effective_gid, effective_gid, effective_gid],
        groups: rustix::process::getgroups()?.into_iter().map(rustix::process::Gid::as_raw).collect(),
        cap_inh: sets.inheritable,
        cap_prm: sets.permitted,
        cap_eff: sets.effective,
        cap_bnd: bounding_set()?,
        // What is ambient is permitted and inheritable too: there is none where those are empty.
        cap_amb: sets.permitted & sets.inheritable,
        no_new_privs: prctl(libc::PR_GET_NO_NEW_PRIVS, [0, 0, 0, 0])? == 1,
        seccomp: u32::try_from(prctl(libc::PR_GET_SECCOMP, [0, 0, 0, 0])?).unwrap_or(0),
        seccomp_filters: None,
    })
}

fn parse_status(text: &str) -> Option<Status> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    let set = |name| u64::from_str_radix(field(name)?, 16).ok();
    let numbers =
        |name| field(name)?.split_ascii_whitespace().map(|word| word.parse::<u32>().ok()).collect::<Option<Vec<_>>>();
    Some(Status {
        uids: numbers("Uid")?.try_into().ok()?,
        gids: numbers("Gid")?.try_into().ok()?,
        groups: numbers("Groups")?,
        cap_inh: set("CapInh")?,
        cap_prm: set("CapPrm")?,
        cap_eff: set("CapEff")?,
        cap_bnd: set("CapBnd")?,
        cap_amb: set("CapAmb")?,
        no_new_privs: match field("NoNewPrivs")? {
            "0" => false,
            "1" => true,
            _ => return None,
        },
        seccomp: field("Seccomp")?.parse().ok()?,
        seccomp_filters: match field("Seccomp_filters") {
            Some(count) => Some(count.parse().ok()?),
            None => None,
        },
    })
}

struct Sets {
    effective: u64,
    permitted: u64,
    inheritable: u64,
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: c_int,
}

/// One half of the three sets, in the kernel's order.
#[repr(C)]
#[derive(Default, Clone, Copy)]
struct CapabilityWords {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn capabilities() -> io::Result<Sets> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let mut words = [CapabilityWords::default(); 2];
    // SAFETY: with version 3 the kernel reads and writes one header and writes two sets of words, all valid for
    // writing.
    let got = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) };
    if got != 0 {
        return Err(io::Error::last_os_error());
    }
    let join = |low: u32, high: u32| u64::from(high) << 32 | u64::from(low);
    let [low, high] = words;
    Ok(Sets {
        effective: join(low.effective, high.effective),
        permitted: join(low.permitted, high.permitted),
        inheritable: join(low.inheritable, high.inheritable),
    })
}

fn set_no_capabilities() -> io::Result<()> {
    let mut header = CapabilityHeader { version: CAPABILITY_VERSION, pid: 0 };
    let words = [CapabilityWords::default(); 2];
    // SAFETY: with version 3 the kernel reads and writes one header and reads two sets of words, all valid for that.
    let set = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, words.as_ptr()) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks the kernel for each capability until it knows no further one, so that none of a newer kernel is passed over and
/// no `/proc` is needed.
fn bounding_set() -> io::Result<u64> {
    let mut set = 0;
    for capability in 0..CAPABILITY_BITS {
        match prctl(libc::PR_CAPBSET_READ, [capability, 0, 0, 0]) {
            Ok(0) => {}
            Ok(_) => set |= 1 << capability,
            Err(error) if is_end(&error, capability) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(set)
}

/// Takes every capability out of the bounding set. What the thread may do now, it still may: it is what executions can give that ends.
/// Those that are not in it are only asked about, which costs nothing beside the change of credentials that taking one out is.
pub(crate) fn empty_bounding_set() -> io::Result<()> {
    for capability in 0..CAPABILITY_BITS {
        let dropped = match prctl(libc::PR_CAPBSET_READ, [capability, 0, 0, 0]) {
            Ok(0) => Ok(0),
            Ok(_) => prctl(libc::PR_CAPBSET_DROP, [capability, 0, 0, 0]),
            Err(error) => Err(error),
        };
        match dropped {
            Ok(_) => {}
            Err(error) if is_end(&error, capability) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether `error` says that there is no capability of this number. A kernel that knows none at all is not believed.
fn is_end(error: &io::Error, capability: c_ulong) -> bool {
    error.raw_os_error() == Some(libc::EINVAL) && capability > c_ulong::from(CAP_SETPCAP)
}

fn prctl(option: c_int, arguments: [c_ulong; 4]) -> io::Result<c_int> {
    let [second, third, fourth, fifth] = arguments;
    // SAFETY: every option that this module passes takes integers only and reads no memory of ours.
    let result = unsafe { libc::prctl(option, second, third, fourth, fifth) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Capabilities belong to a thread, so a new one can lose them without harm to the other tests.
    fn in_a_thread<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
        std::thread::spawn(act).join().unwrap()
    }

    #[test]
    fn privileges_are_all_gone_after_the_drop_and_do_not_come_back() {
        let (before, bounding, after) = in_a_thread(|| {
            let before = read_status().unwrap();
            set_no_new_privileges().unwrap();
            (before, drop_all().unwrap(), read_status().unwrap())
        });
        assert_eq!((after.cap_eff, after.cap_prm, after.cap_inh, after.cap_amb), (0, 0, 0, 0));
        assert!(after.no_new_privs);
        if before.cap_eff & (1 << CAP_SETPCAP) != 0 {
            assert_ne!(before.cap_eff, 0, "the twin: there was something to lose");
            assert_eq!(bounding, Bounding::Empty);
            assert_eq!(after.cap_bnd, 0);
        } else {
            let kept = Bounding::Kept { capabilities: before.cap_bnd };
            assert_eq!(bounding, if before.cap_bnd == 0 { Bounding::Empty } else { kept });
            assert_eq!(after.cap_bnd, before.cap_bnd);
        }
    }

    #[test]
    fn privileges_do_not_come_back_by_executing_a_program_as_user_0() {
        if capabilities().unwrap().effective & (1 << CAP_SETPCAP) == 0 {
            eprintln!("SKIPPED: only root has privileges that could come back");
            return;
        }
        let effective = |dropped| {
            let output = in_a_thread(move || {
                if dropped {
                    // Without no_new_privs: the locked secure bits and the empty bounding set must do.
                    assert_eq!(drop_all().unwrap(), Bounding::Empty);
                }
                std::process::Command::new("grep").args(["CapEff", "/proc/self/status"]).output().unwrap()
            });
            String::from_utf8(output.stdout).unwrap()
        };
        assert_eq!(effective(true), "CapEff:\t0000000000000000\n");
        assert_ne!(effective(false), "CapEff:\t0000000000000000\n");
    }

    #[test]
    fn privileges_can_be_dropped_twice() {
        in_a_thread(|| {
            let first = drop_all().unwrap();
            assert_eq!(drop_all().unwrap(), first);
        });
    }

    #[test]
    fn privileges_that_a_caller_without_setpcap_keeps_in_the_bounding_set_are_told() {
        in_a_thread(|| {
            set_no_capabilities().unwrap();
            let bounding = read_status().unwrap().cap_bnd;
            let expected = if bounding == 0 { Bounding::Empty } else { Bounding::Kept { capabilities: bounding } };
            assert_eq!(drop_all().unwrap(), expected);
        });
    }

    #[test]
    fn privileges_status_without_a_field_or_with_a_strange_value_is_refused() {
        let good = "Uid:\t0\t1\t2\t3\nGid:\t4\t5\t6\t7\nGroups:\t8 9 \nCapInh:\t0000000000000001\n\
            CapPrm:\t0000000000000002\nCapEff:\t000001ffffffffff\nCapBnd:\t0\nCapAmb:\t0\nNoNewPrivs:\t1\nSeccomp:\t2\n\
            Seccomp_filters:\t3\n";
        let status = parse_status(good).unwrap();
        assert_eq!((status.uids, status.gids, status.groups.as_slice()), ([0, 1, 2, 3], [4, 5, 6, 7], &[8, 9][..]));
        assert_eq!((status.cap_inh, status.cap_prm, status.cap_eff), (1, 2, 0x1ff_ffff_ffff));
        assert_eq!((status.no_new_privs, status.seccomp, status.seccomp_filters), (true, 2, Some(3)));
        for line in good.lines().filter(|line| !line.starts_with("Seccomp_filters")) {
            assert_eq!(parse_status(&good.replace(&format!("{line}\n"), "")), None, "without {line}");
        }
        assert_eq!(parse_status(&good.replace("NoNewPrivs:\t1", "NoNewPrivs:\t2")), None);
        assert_eq!(parse_status(&good.replace("CapEff:\t000001ffffffffff", "CapEff:\tmany")), None);
        assert_eq!(parse_status(&good.replace("Seccomp_filters:\t3", "Seccomp_filters:\tx")), None);
    }

    #[test]
    fn privileges_process_that_is_not_dumpable_says_so() {
        // In a child, because it holds for the whole process.
        // SAFETY: the child makes two system calls with integers and leaves by `_exit`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_hidden = set_not_dumpable().is_ok() && prctl(libc::PR_GET_DUMPABLE, [0; 4]).is_ok_and(|is| is == 0);
            // SAFETY: takes an integer and does not return.
            unsafe { libc::_exit(if is_hidden { 0 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: `status` is valid for writing; the child is ours and not yet reaped.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
