//! Packages that were fetched outside and are shown read-only inside, so that programs without a network can install what
//! the workspace's lock file names.
//!
//! The lock file is the project's and so perhaps a program's: it is read with a cap, parsed strictly, and nothing that it says
//! is executed or followed. What is fetched is held against the hashes in it ([`fill`]), and a cache is looked at whole, byte
//! for byte, before each use ([`mounts`]). No cache is ever shown writable.

mod cargo;
mod failure;
mod fill;
mod lock;
mod npm;
mod pip;
mod range;
mod registry;
mod store;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use ringfence_policy::{CacheKind, ResolvedPolicy};

pub use failure::CacheError;
pub use fill::{Filled, fill};
pub use store::{Entry, Verified, list, prune, verify};

use crate::state::StateFolder;

/// Where caches are shown inside; each in a folder of its kind.
pub const AT: &str = "/deps";
/// Where cargo looks for its configuration from every folder.
const CARGO_CONFIG: &str = "/.cargo/config.toml";

/// Every kind.
pub const KINDS: [CacheKind; 3] = [CacheKind::Pip, CacheKind::Npm, CacheKind::Cargo];

fn place(kind: CacheKind) -> PathBuf {
    Path::new(AT).join(kind.to_string())
}

/// What of the host is to be shown read-only, and where, for the caches that `policy` lists: each is the one of the lock file
/// that lies in `workspace` now, and has just been looked at whole.
pub fn mounts(
    policy: &ResolvedPolicy,
    workspace: &Path,
    state: &StateFolder,
) -> Result<Vec<(PathBuf, PathBuf)>, CacheError> {
    let mut mounts = Vec::new();
    for kind in policy.cache.iter().map(|kind| kind.value) {
        let at = place(kind);
        let taken = policy.fs.mounts.iter().map(|mount| mount.value.target().as_path());
        if let Some(taken) = taken.into_iter().find(|taken| taken.starts_with(&at) || at.starts_with(taken)) {
            return Err(CacheError::Taken { kind, at, taken: taken.to_owned() });
        }
        let lock = lock::find(kind, workspace)?;
        let files = store::ready(state, kind, &lock)?;
        if kind == CacheKind::Cargo {
            mounts.push((files.join(cargo::CONFIG), PathBuf::from(CARGO_CONFIG)));
        }
        mounts.push((files, at));
    }
    Ok(mounts)
}

/// The variables that lead programs to the caches of these kinds, and keep them from looking elsewhere.
pub fn environment(kinds: impl IntoIterator<Item = CacheKind>) -> Vec<(&'static str, &'static str)> {
    let variables = |kind: CacheKind| -> &'static [(&'static str, &'static str)] {
        match kind {
            CacheKind::Pip => &[("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", "/deps/pip")],
            // What it would write beside the packages is turned off: nothing can be written there.
            CacheKind::Npm => &[
                ("npm_config_cache", "/deps/npm"),
                ("npm_config_offline", "true"),
                ("npm_config_userconfig", "/deps/npm/npmrc"),
                ("npm_config_logs_max", "0"),
                ("npm_config_update_notifier", "false"),
                ("npm_config_audit", "false"),
                ("npm_config_fund", "false"),
            ],
            CacheKind::Cargo => &[("CARGO_NET_OFFLINE", "true")],
        }
    };
    kinds.into_iter().flat_map(|kind| variables(kind).iter().copied()).collect()
}
