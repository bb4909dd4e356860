//! Landlock: a second fence around files, and around signals and abstract sockets where the kernel has it.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible, PathBeneath, RestrictionStatus, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};

use rustix::fs::{FileType, OFlags};

use super::Access;

/// Why the second fence is not up.
#[derive(Debug, thiserror::Error)]
pub enum LandlockError {
    /// The kernel has none.
    #[error("this kernel has no Landlock")]
    Missing,
    /// A rule could not be made.
    #[error("could not make Landlock rules")]
    Rules(#[from] landlock::RulesetError),
    /// A path of a rule is not there.
    #[error("could not open {path} for Landlock")]
    Path {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// What a file is could not be told.
    #[error("could not look at a file for Landlock")]
    Look {
        /// Why.
        source: std::io::Error,
    },
    /// The kernel took only a part.
    #[error("the kernel enforces Landlock only in part")]
    Partly,
}

/// The version of Landlock that this kernel has; nothing when it has none.
pub fn abi() -> Option<i32> {
    // SAFETY: with LANDLOCK_CREATE_RULESET_VERSION the call takes a null pointer and a size of zero, and makes nothing.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0usize, 1u32) };
    i32::try_from(version).ok().filter(|version| *version > 0)
}

/// The versions that the library knows, by number.
pub(crate) fn known(version: i32) -> ABI {
    match version {
        1 => ABI::V1,
        2 => ABI::V2,
        3 => ABI::V3,
        4 => ABI::V4,
        5 => ABI::V5,
        _ => ABI::V6,
    }
}

/// The rules of one wall, made once for all of its programs.
#[derive(Debug)]
pub(crate) struct Fence {
    rules: RulesetCreated,
    version: i32,
}

impl Fence {
    /// Around `paths`, as they are now.
    pub(crate) fn make(paths: &[(OsString, Access)]) -> Result<Self, LandlockError> {
        let version = abi().ok_or(LandlockError::Missing)?;
        let abi = known(version);
        // Everything that this kernel's version has is asked for, and nothing less is accepted.
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi))?;
        if version >= 6 {
            ruleset = ruleset.scope(Scope::from_all(abi))?;
        }
        let mut rules = ruleset.create()?;
        for (path, access) in paths {
            rules = rules.add_rule(rule(Path::new(path), *access, abi)?)?;
        }
        Ok(Self { rules, version })
    }

    /// Restricts this thread for all time; says by which version. Needs `no_new_privs`.
    pub(crate) fn restrict(&self) -> Result<i32, LandlockError> {
        let rules = self.rules.try_clone().map_err(|source| LandlockError::Look { source })?;
        let RestrictionStatus { ruleset, .. } = rules.restrict_self()?;
        if ruleset == RulesetStatus::FullyEnforced { Ok(self.version) } else { Err(LandlockError::Partly) }
    }
}

fn rule(path: &Path, access: Access, abi: ABI) -> Result<PathBeneath<OwnedFd>, LandlockError> {
    let failed = |errno: rustix::io::Errno| LandlockError::Path { path: path.to_owned(), source: errno.into() };
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let opened = rustix::fs::open(path, flags, rustix::fs::Mode::empty()).map_err(failed)?;
    let mode = rustix::fs::fstat(&opened).map_err(failed)?.st_mode;
    let wanted = match access {
        Access::ReadOnly => AccessFs::from_read(abi),
        Access::ReadWrite => AccessFs::from_all(abi),
    };
    // Rights on folders make no sense on a file, and the kernel refuses them.
    let wanted = match FileType::from_raw_mode(mode) {
        FileType::Directory => wanted,
        _ => wanted & AccessFs::from_file(abi),
    };
    Ok(PathBeneath::new(opened, wanted))
}
