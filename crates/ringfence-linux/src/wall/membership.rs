//! Which control groups a guest joins. They are made and removed by the supervisor; here they are only entered.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{os_path, os_paths};

/// The groups of one sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Membership {
    /// One folder of the unified hierarchy; the guest is born in it.
    Unified(#[serde(with = "os_path")] PathBuf),
    /// A folder for each controller of version 1.
    PerController(#[serde(with = "os_paths")] Vec<PathBuf>),
}

/// The same, opened: nothing is looked up once the guest exists.
pub(super) enum OpenMembership {
    Unified(File),
    PerController(Vec<File>),
}

impl Membership {
    pub(super) fn open(&self) -> io::Result<OpenMembership> {
        match self {
            Self::Unified(folder) => File::open(folder).map(OpenMembership::Unified),
            Self::PerController(folders) => folders
                .iter()
                .map(|folder| open_list(folder))
                .collect::<io::Result<_>>()
                .map(OpenMembership::PerController),
        }
    }
}

/// Where a folder is told who joins it. Version 1 has a list of threads: a process with one thread goes there whole, and
/// without waiting for others. In a mixture of versions there may be a folder without.
fn open_list(folder: &Path) -> io::Result<File> {
    let open = |list: &str| OpenOptions::new().write(true).open(folder.join(list));
    match open("tasks") {
        Err(error) if error.kind() == io::ErrorKind::NotFound => open("cgroup.procs"),
        opened => opened,
    }
}

impl OpenMembership {
    /// The folder to be born in.
    pub(super) fn folder(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Unified(folder) => Some(folder.as_fd()),
            Self::PerController(_) => None,
        }
    }

    /// What a process that is there already needs to join; nothing where it would have to be born.
    pub(super) fn lists(self) -> Option<Vec<OwnedFd>> {
        match self {
            Self::Unified(_) => None,
            Self::PerController(files) => Some(files.into_iter().map(OwnedFd::from).collect()),
        }
    }

    /// The same groups, from what [`OpenMembership::lists`] gave.
    pub(super) fn from_lists(lists: Vec<OwnedFd>) -> Self {
        Self::PerController(lists.into_iter().map(File::from).collect())
    }

    /// Joins the thread `pid`, or the calling one as 0, where it was not born.
    pub(super) fn add(&self, pid: i32) -> io::Result<()> {
        match self {
            Self::Unified(_) => Ok(()),
            Self::PerController(files) => files.iter().try_for_each(|mut file| write!(file, "{pid}")),
        }
    }
}
