//! Why there is no cache.

use std::io;
use std::path::PathBuf;

use ringfence_policy::CacheKind;

/// Why packages were not fetched, or cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The workspace has no lock file of this kind.
    #[error("the policy lists the cache `{kind}`, but the workspace has no {}; write one, or take `{kind}` out of `cache`", .names.join(" and no "))]
    NoLock {
        /// Which cache.
        kind: CacheKind,
        /// The names that were looked for.
        names: &'static [&'static str],
    },
    /// The lock file says something that is not followed.
    #[error("the lock file {path} is refused{}: {problem}", match .line { Some(line) => format!(" in line {line}"), None => String::new() })]
    Lock {
        /// Which.
        path: PathBuf,
        /// Where in it, from 1.
        line: Option<usize>,
        /// What, and what to do.
        problem: String,
    },
    /// Nobody fetched what this lock file names.
    #[error("the packages of {lock} are not in the cache `{kind}`; fetch them with `ringfence cache fill`")]
    Missing {
        /// Which cache.
        kind: CacheKind,
        /// The lock file.
        lock: PathBuf,
    },
    /// It is not what was fetched any more.
    #[error("the cache `{kind}` is not what was fetched: {problem}; fetch it again with `ringfence cache fill`")]
    Damaged {
        /// Which cache.
        kind: CacheKind,
        /// What was found.
        problem: String,
    },
    /// Something else is to be shown at the same place.
    #[error("the cache `{kind}` is shown at {at}, where `fs.mounts` has {taken}; mount that elsewhere")]
    Taken {
        /// Which cache.
        kind: CacheKind,
        /// Where it is shown.
        at: PathBuf,
        /// Where the policy mounts something.
        taken: PathBuf,
    },
    /// The program that fetches is not there.
    #[error(
        "`{tool}` was not found on the path outside of the workspace; install it, it fetches the packages of `{kind}`"
    )]
    NoTool {
        /// Which cache.
        kind: CacheKind,
        /// Which program.
        tool: &'static str,
    },
    /// The program that fetches would find settings of the workspace.
    #[error(
        "the packages of `{kind}` are not fetched, because the state folder lies in the workspace {workspace}, whose settings `{kind}` would follow; choose a smaller workspace, or a state folder outside of it"
    )]
    Within {
        /// Which cache.
        kind: CacheKind,
        /// Where the state folder lies in.
        workspace: PathBuf,
    },
    /// The program that fetches failed.
    #[error("`{tool}` could not fetch the packages ({ended}); it said:\n{said}")]
    Tool {
        /// Which program.
        tool: &'static str,
        /// How it ended.
        ended: String,
        /// The end of what it said.
        said: String,
    },
    /// What came is not what the lock file says.
    #[error("what was fetched is not what the lock file says: {problem}; nothing of it is used")]
    Fetched {
        /// What was found.
        problem: String,
    },
    /// Files could not be read or written.
    #[error("could not {attempt} {path}")]
    Io {
        /// What was attempted.
        attempt: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

pub(super) fn failed(attempt: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> CacheError {
    let path = path.to_owned();
    move |source| CacheError::Io { attempt, path, source }
}
