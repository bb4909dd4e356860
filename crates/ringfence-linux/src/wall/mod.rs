//! A full wall on this host's kernel: namespaces, an own view of files, no privileges.
//!
//! [`start`] clones a process into new namespaces. There, as process 1, it builds the view, gives up every privilege, and
//! lives the life that the caller gave it, in which it starts programs: each has every restriction in force, and proves
//! them, before its first instruction. The caller says exactly what is shown: nothing here knows policy.

mod attempt;
mod awaited;
mod begun;
mod clock;
mod companion;
mod contained;
mod contained_proof;
mod cover;
mod door;
mod ground;
mod guest;
mod inside;
mod landlock;
mod lasting;
mod lay;
mod layer;
mod membership;
mod mount_api;
mod namespaces;
mod network;
mod program;
mod proof;
mod quota;
mod root;
mod spare;
mod view;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use attempt::{Need, Refused, attempt};
pub use begun::WholeWall;
pub use contained::{Contained, Ground, Kernel, ProcessOne, Writable};
pub use door::{Door, Doors, open_one as open_door};
pub use guest::{Behind, Life, Raising, Reaped, WallDescriptors, WallLaunch, Woken, start};
pub use inside::SetupError;
pub(crate) use landlock::known as landlock_known;
pub use landlock::{LandlockError, abi as landlock_abi};
pub use lay::{LaidOut, Laying, Marker};
pub(crate) use lay::{begin as begin_laying, lay_here};
pub use membership::Membership;
pub use mount_api::idmapped_tree;
pub use namespaces::{Identity, OwnerMap, Processors, Raised, is_single_threaded, reap_holders, user_namespace};
pub use program::{Failed, Program, Restrictions, Stdio, TerminalSize, chain};
pub use proof::Proof;
pub use spare::Spare;
pub use view::{Access, Entry, Source, Written, hold_source};

/// What a wall shows and to whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wall {
    /// Who the program is inside and outside.
    pub identity: Identity,
    /// The name of the machine inside.
    pub hostname: OsString,
    /// The view, in order: folders before what lies in them.
    pub entries: Vec<Entry>,
    /// All that can be written together, in bytes.
    pub writable_bytes: u64,
    /// All files that can be made together.
    pub writable_files: u64,
}

/// A step of raising a wall, for an error that names it. The name is put together only when it is needed.
pub(crate) fn at(step: impl fmt::Display) -> impl FnOnce(rustix::io::Errno) -> SetupError {
    move |errno| SetupError::Step { step: step.to_string(), source: io::Error::from(errno) }
}

/// The home folder inside.
pub const HOME: &str = "/home/agent";

/// A path inside, from its parts.
pub(crate) fn inside_path(path: &std::path::Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}

/// Paths as bytes: those of a host need not be text.
mod os_path {
    use std::ffi::OsString;
    use std::path::{Path, PathBuf};

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
        path.as_os_str().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathBuf, D::Error> {
        OsString::deserialize(deserializer).map(PathBuf::from)
    }
}

/// Likewise, a list of them.
mod os_paths {
    use std::ffi::OsString;
    use std::path::PathBuf;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
        paths.iter().map(|path| path.as_os_str()).collect::<Vec<_>>().serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<OsString>::deserialize(deserializer)?.into_iter().map(PathBuf::from).collect())
    }
}
