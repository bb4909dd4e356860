//! The tier without namespaces: Landlock and a filter around one program.
//!
//! Everything is made before the fork, by whoever starts the program. What runs after it, in the program's process, makes
//! plain system calls on what was prepared, as in `program_process.rs`. This module knows no policy: the caller says
//! which files are reached.

use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use landlock::{
    AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, Scope,
};
use libc::c_int;

use crate::environment;
use crate::keeper::{Rlimit, RlimitKind};
use crate::keeper_process;
use crate::program_process::{InForce, Step, errno, look_at_limit};
use crate::report::Stage;
use crate::seccomp::{self, Program};
use crate::wall::{LandlockError, landlock_abi, landlock_known};

/// The first version that also stops a file from being truncated; before, one that cannot be written can be emptied.
pub const FILES_SINCE: i32 = 3;
/// The first version that keeps signals in.
pub const SIGNALS_SINCE: i32 = 6;
const TCP_SINCE: i32 = 4;

/// What a program may do with a file, or with all below a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Read and execute.
    Read,
    /// List folders; read nothing.
    Names,
    /// Everything but devices and sockets.
    Write,
    /// Read and write a device that is there.
    Device,
}

/// Rules that are being collected.
#[derive(Debug)]
pub struct Rules {
    created: RulesetCreated,
    version: i32,
}

impl Rules {
    /// No file, no TCP port, no signal and no abstract socket outside, as far as this kernel's version goes.
    pub fn new() -> Result<Self, LandlockError> {
        let version = landlock_abi().ok_or(LandlockError::Missing)?;
        let abi = landlock_known(version);
        // Everything that this kernel's version has is asked for, and nothing less is accepted.
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(<AccessFs as landlock::Access>::from_all(abi))?;
        if version >= TCP_SINCE {
            ruleset = ruleset.handle_access(<AccessNet as landlock::Access>::from_all(abi))?;
        }
        if version >= SIGNALS_SINCE {
            ruleset = ruleset.scope(<Scope as landlock::Access>::from_all(abi))?;
        }
        Ok(Self { created: ruleset.create()?, version })
    }

    /// Lets `file`, or all below it, be reached. Opened by the caller: a path could change its meaning.
    pub fn allow(&mut self, file: BorrowedFd<'_>, reach: Reach) -> Result<(), LandlockError> {
        let abi = landlock_known(self.version);
        let wanted: BitFlags<AccessFs> = match reach {
            Reach::Read => AccessFs::from_read(abi),
            Reach::Names => AccessFs::ReadDir.into(),
            Reach::Write => {
                let all = <AccessFs as landlock::Access>::from_all(abi);
                all & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::IoctlDev)
            }
            Reach::Device => {
                let wanted = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate;
                wanted & <AccessFs as landlock::Access>::from_all(abi)
            }
        };
        let kind = rustix::fs::fstat(file).map_err(|errno| LandlockError::Look { source: errno.into() })?.st_mode;
        let is_folder = rustix::fs::FileType::from_raw_mode(kind).is_dir();
        // Rights on folders make no sense on a file, and the kernel refuses them.
        let wanted = if is_folder { wanted } else { wanted & AccessFs::from_file(abi) };
        if !wanted.is_empty() {
            (&mut self.created).add_rule(PathBeneath::new(file, wanted))?;
        }
        Ok(())
    }

    /// The rules, complete. `hidden` is a file of ours that they do not allow: the program's process tries to open it.
    pub fn fence(self, hidden: &OsStr) -> Result<Fence, LandlockError> {
        let hidden = CString::new(std::os::unix::ffi::OsStrExt::as_bytes(hidden)).map_err(|_| LandlockError::Partly)?;
        let ruleset: Option<OwnedFd> = self.created.into();
        let ruleset = ruleset.ok_or(LandlockError::Partly)?;
        Ok(Fence { ruleset, version: self.version, filter: seccomp::tier_program(), hidden })
    }
}

/// A fence that can be put around a program.
#[derive(Debug)]
pub struct Fence {
    ruleset: OwnedFd,
    version: i32,
    filter: &'static Program,
    hidden: CString,
}

impl Fence {
    /// The version of Landlock that it was made with.
    pub fn version(&self) -> i32 {
        self.version
    }

    /// What stays valid in the copied memory of a forked process.
    pub(crate) fn prepare(&self) -> Prepared<'_> {
        Prepared { ruleset: self.ruleset.as_raw_fd(), filter: self.filter, hidden: &self.hidden, version: self.version }
    }
}

/// A fence as the program's process sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Prepared<'a> {
    pub(crate) ruleset: c_int,
    filter: &'static Program,
    hidden: &'a CStr,
    version: i32,
}

/// Restricts this process to the rules at descriptor `ruleset`. Needs `no_new_privs`.
pub(crate) fn restrict(ruleset: c_int) -> Step<()> {
    // SAFETY: two integers; the kernel reads the rules through the descriptor.
    let restricted = unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset, 0u32) };
    if restricted == 0 { Ok(()) } else { Err((Stage::Landlock, errno())) }
}

/// Puts the filter in force, and tries what must fail now. Allocates nothing: an error of the system is a number.
pub(crate) fn filter_and_prove(fence: &Prepared<'_>, launch: &keeper_process::Prepared<'_>) -> Step<()> {
    seccomp::install(fence.filter).map_err(|error| (Stage::Filter, error.raw_os_error().unwrap_or(libc::EINVAL)))?;
    for limit in launch.rlimits.iter().filter(|limit| limit.kind != RlimitKind::Core) {
        prove_limit(limit)?;
    }
    // SAFETY: the list was made before the fork from NUL-terminated strings and a null pointer, and lives as long as the
    // parent's `launch` call, of which we hold a copy.
    if unsafe { environment::count(launch.env, launch.listed) }.is_err() {
        return Err((Stage::ProveEnvironment, 0));
    }
    // SAFETY: integers and a pointer to a NUL-terminated string that outlives the calls. What any of them would make, if it
    // succeeded, ends with this process, which then does not become the program.
    unsafe {
        let hidden = fence.hidden.as_ptr();
        let closed = libc::O_CLOEXEC | libc::O_NONBLOCK;
        fails(libc::open(hidden, libc::O_RDONLY | closed), libc::EACCES, Stage::ProveFiles)?;
        fails(libc::open(hidden, libc::O_WRONLY | closed), libc::EACCES, Stage::ProveFiles)?;
        if fence.version >= FILES_SINCE {
            fails(libc::truncate(hidden, 0), libc::EACCES, Stage::ProveFiles)?;
        }
        fails(libc::chmod(hidden, 0o600), libc::EPERM, Stage::ProveFilter)?;
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
            fails(libc::socket(family, libc::SOCK_DGRAM, 0), libc::EAFNOSUPPORT, Stage::ProveFilter)?;
        }
        fails(libc::unshare(libc::CLONE_NEWUSER), libc::EPERM, Stage::ProveFilter)?;
        if libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || libc::prctl(libc::PR_GET_SECCOMP) != 2 {
            return Err((Stage::ProveFilter, 0));
        }
        if fence.version >= SIGNALS_SINCE {
            fails(libc::kill(libc::getppid(), 0), libc::EPERM, Stage::ProveSignals)?;
        }
    }
    Ok(())
}

/// One that is not in force, or could be raised, is told as the error number 0.
fn prove_limit(limit: &Rlimit) -> Step<()> {
    match look_at_limit(limit) {
        Ok(InForce::Kept(_)) => Ok(()),
        Ok(InForce::Otherwise(..)) => Err((Stage::ProveLimits, 0)),
        Ok(InForce::Raised(errno)) | Err(errno) => Err((Stage::ProveLimits, errno)),
    }
}

/// Whether a call failed as it must. A success is told as the error number 0.
fn fails(result: c_int, expected: c_int, stage: Stage) -> Step<()> {
    match (result, errno()) {
        (-1, errno) if errno == expected => Ok(()),
        (-1, errno) => Err((stage, errno)),
        _ => Err((stage, 0)),
    }
}
