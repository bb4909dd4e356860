//! The private copy of a workspace that a program works in, or that what it works in is filled from.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ringfence_policy::ResolvedPolicy;

use super::StartError;
use super::landlock::{open, state_below};
use super::native::deny;
use crate::guarantee::Guarantee;
use crate::scratch::Scratch;
use crate::state::StateFolder;
use crate::workspace::copy::{Manifest, Owners, copy};
use crate::workspace::layer::{Held, Life, Lower, PrivateLayer, ShownCopy};

/// A copy that is ready to be worked in.
#[derive(Debug)]
pub(super) struct Copied {
    folder: OwnedFd,
    lower: Arc<Lower>,
    manifest: Arc<Manifest>,
}

/// Copies the workspace `root` to the empty folder `to`, without what `policy` denies and without the state folder.
pub(super) fn make(
    policy: &ResolvedPolicy,
    root: &Path,
    state: &StateFolder,
    to: &Path,
    owners: Owners,
) -> Result<Copied, StartError> {
    let rules = &policy.fs.deny;
    let mut absent: BTreeSet<PathBuf> = deny::find(root, rules, Some(state))?.into_iter().collect();
    absent.extend(state_below(root, state)?);
    let looked_at = |source| StartError::WorkingDirectory { path: root.to_owned(), source };
    let (from, folder) = (open(root)?, open(to)?);
    // By name once more: what came since it was looked for is not copied either.
    let is_denied = |path: &Path, kind| absent.contains(path) || deny::denies(rules, path, kind);
    let most = policy.fs.size.value.get();
    let manifest = copy(from.as_fd(), folder.as_fd(), most, owners, is_denied)?;
    let left_out = manifest.left_out().to_vec();
    let lower = Lower::new(from, root.to_owned(), left_out, Vec::new()).map_err(looked_at)?;
    Ok(Copied { folder, lower: Arc::new(lower), manifest: Arc::new(manifest) })
}

impl Copied {
    /// What can be told of it.
    pub(super) fn proof(&self) -> (String, String) {
        let copied = format!("a private copy of {} files and folders", self.manifest.len());
        let found = match self.manifest.left_out().len() {
            0 => copied,
            left_out => format!("{copied}, without {left_out} that are denied, another name of one, or closed"),
        };
        (Guarantee::FsWorkspaceMode.name().to_owned(), found)
    }

    /// How much its files hold, holes in them included.
    pub(super) fn bytes(&self) -> u64 {
        self.manifest.bytes()
    }

    /// How many files, folders and links it has.
    pub(super) fn len(&self) -> u64 {
        u64::try_from(self.manifest.len()).unwrap_or(u64::MAX)
    }

    /// The copy, to read it, or to take into it what was changed elsewhere.
    pub(super) fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }

    /// What programs see in the place of the workspace. It lies in `scratch`.
    pub(super) fn into_shown(self, scratch: Scratch) -> ShownCopy {
        ShownCopy { folder: self.folder, manifest: self.manifest, lies_in: scratch }
    }

    /// The layer that is compared with the workspace at the end. The copy lies in `scratch`.
    pub(super) fn into_layer(self, scratch: Scratch) -> PrivateLayer {
        PrivateLayer::copy(self.folder, self.lower, self.manifest, scratch, Life::Over)
    }

    /// A layer that is compared with the workspace while the copy is `held`.
    pub(super) fn layer(&self, held: impl Held + 'static, life: Life) -> io::Result<PrivateLayer> {
        let (lower, manifest) = (Arc::clone(&self.lower), Arc::clone(&self.manifest));
        Ok(PrivateLayer::copy(self.folder.try_clone()?, lower, manifest, held, life))
    }
}
